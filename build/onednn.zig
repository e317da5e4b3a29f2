//! Finding oneDNN.

const std = @import("std");
const files = @import("files.zig");
const Build = std.Build;
const fileExists = files.fileExists;

pub const OneDnn = struct {
    /// Holds include/ and lib/ or lib64/; null is the system's own.
    prefix: ?[]const u8,
    lib_dir: []const u8,
};

pub fn findOneDnn(b: *Build, wanted: ?bool, prefix: ?[]const u8) ?OneDnn {
    if (!(wanted orelse true)) return null;
    const usual: []const []const u8 = &.{ "/usr/local", "/usr" };
    const places = if (prefix) |given| &.{given} else usual;
    if (!std.fs.path.isAbsolute(places[0])) std.process.fatal(
        "-Donednn-prefix={s}: give an absolute path, programs remember it",
        .{places[0]},
    );
    for (places) |place| {
        const header = b.pathJoin(&.{ place, "include", "oneapi", "dnnl", "dnnl_version.h" });
        files.track(b, header);
        if (!fileExists(b, header)) continue;
        const lib64 = b.pathJoin(&.{ place, "lib64" });
        const in_lib64 = fileExists(b, b.pathJoin(&.{ lib64, "libdnnl.so" }));
        return .{
            .prefix = if (std.mem.eql(u8, place, "/usr")) null else place,
            .lib_dir = if (in_lib64) lib64 else b.pathJoin(&.{ place, "lib" }),
        };
    }
    if (prefix != null or wanted != null) std.process.fatal(
        "oneDNN is asked for, but {s}/include/oneapi/dnnl/dnnl_version.h is not there: install " ++
            "it (Debian: libdnnl-dev), give -Donednn-prefix=DIR, or -Donednn=false",
        .{prefix orelse "/usr"},
    );
    // So that this is said, and looked for again, at every build.
    b.graph.poisonCache();
    std.log.warn(
        "oneDNN was not found (Debian: libdnnl-dev): building with slower products of our own",
        .{},
    );
    return null;
}
