//! What programs take that use the libraries: the archives with what pkg-config and CMake read of
//! them, a shared library, and a Zig module.

const std = @import("std");
const levels = @import("levels.zig");
const package = @import("package.zig");
const Build = std.Build;
const Compile = Build.Step.Compile;
const Step = Build.Step;

pub const Archives = struct { engine: *Compile, net: *Compile };

/// Returns what installs the shared library, which -Dshared asks for.
pub fn install(
    b: *Build,
    target: Build.ResolvedTarget,
    archives: Archives,
    version: []const u8,
) *Step {
    b.installArtifact(archives.engine);
    b.installArtifact(archives.net);
    const shared = linkShared(b, target, archives);
    if (b.option(bool, "shared", "Install lib/shared/libweir.so too") orelse false) {
        b.getInstallStep().dependOn(shared);
    }
    const written = b.addWriteFiles();
    inline for (.{
        .{ "weir.pc", "lib/pkgconfig/", true },
        .{ "weir_net.pc", "lib/pkgconfig/", true },
        .{ "weir_shared.pc", "lib/pkgconfig/", false },
        .{ "WeirConfig.cmake", "lib/cmake/Weir/", true },
        .{ "WeirConfigVersion.cmake", "lib/cmake/Weir/", true },
    }) |file| {
        const template = @embedFile("../cmake/" ++ file[0] ++ ".in");
        const text = package.fillTemplate(b, version, template);
        const installed = b.addInstallFile(written.add(file[0], text), file[1] ++ file[0]);
        (if (file[2]) b.getInstallStep() else shared).dependOn(&installed.step);
    }
    return shared;
}

/// Modules of one source, "weir" for the engine alone, "weir_net" for networks too.
pub fn addZigModules(b: *Build, target: Build.ResolvedTarget, archives: Archives) void {
    const header = b.addTranslateC(.{
        .root_source_file = b.path("src/weir_net.h"),
        .target = target,
        .optimize = .debug,
    });
    const c = header.createModule();
    inline for (.{ "weir", "weir_net" }) |name| {
        const module = b.addModule(name, .{
            .root_source_file = b.path("src/weir.zig"),
            .target = target,
            .imports = &.{.{ .name = "weir_c", .module = c }},
        });
        if (comptime std.mem.eql(u8, name, "weir_net")) module.linkLibrary(archives.net);
        module.linkLibrary(archives.engine);
    }
}

/// lib/shared/libweir.so: engine and networks in one, whose symbols have versions. It is apart from
/// the archives so that nobody gets it unasked.
fn linkShared(b: *Build, target: Build.ResolvedTarget, archives: Archives) *Step {
    const link = Step.Run.create(b, "link libweir.so");
    link.addFileArg2(b.graph.path(.zig_exe, ""), .{ .make_absolute = true });
    link.addArgs(&.{ "cc", "-shared" });
    if (!levels.isNative(target)) { // the native one knows the system's folders
        link.addArgs(&.{ "-target", target.query.zigTriple(b.allocator) catch @panic("OOM") });
    }
    link.addArgs(&.{ "-Wl,-soname,libweir.so.0", "-Wl,--whole-archive" });
    link.addArtifactArg2(archives.net, .{});
    link.addArtifactArg2(archives.engine, .{});
    link.addArg("-Wl,--no-whole-archive");
    link.addFileArg2(b.path("build/weir.map"), .{ .prefix = "-Wl,--version-script=" });
    link.addArgs(&.{ "-ljansson", "-lhwloc", "-lpthread", "-lm", "-o" });
    const library = link.addOutputFileArg2("libweir.so.0", .{});
    const installed = &b.addWriteFiles().step; // empty: it only waits for all
    const script = b.addWriteFiles().add("libweir.so", "INPUT(libweir.so.0)\n");
    inline for (.{
        .{ library, "lib/shared/libweir.so.0" },
        .{ script, "lib/shared/libweir.so" },
    }) |file| installed.dependOn(&b.addInstallFile(file[0], file[1]).step);
    return installed;
}
