//! What pkg-config and CMake read of the installed libraries.

const std = @import("std");
const Build = std.Build;
const OneDnn = @import("onednn.zig").OneDnn;

pub fn fillTemplate(
    b: *Build,
    version: []const u8,
    onednn: ?OneDnn,
    template: []const u8,
) []const u8 {
    var flags: []const u8 = "";
    var libraries: []const u8 = "";
    if (onednn) |found| {
        const dir = found.lib_dir;
        const own = found.prefix != null;
        flags = if (own) b.fmt("-L{s} -Wl,-rpath,{s} -ldnnl", .{ dir, dir }) else "-ldnnl";
        libraries = if (own) b.fmt(";{s}/libdnnl.so", .{dir}) else ";dnnl";
    }
    var text = template;
    inline for (.{
        .{ "@VERSION@", version },
        .{ "@ONEDNN_FLAGS@", flags },
        .{ "@ONEDNN_LIBRARIES@", libraries },
    }) |pair| {
        text = std.mem.replaceOwned(u8, b.allocator, text, pair[0], pair[1]) catch @panic("OOM");
    }
    return text;
}
