//! Programs made by the system's clang, for what Zig has no runtime of.

const std = @import("std");
const Build = std.Build;
const LazyPath = Build.LazyPath;
const Run = Build.Step.Run;
const Step = Build.Step;

const Words = []const []const u8;

pub const Clang = struct {
    program: LazyPath,
    flags: []const []const u8,
    dialect: []const []const u8,
    /// What must have succeeded before it is asked for anything.
    after: ?*Step = null,
};

pub const clang_names: []const []const u8 = &.{ "clang", "clang-19", "clang-14" };

pub fn findClang(b: *Build) LazyPath {
    return b.findProgramLazy(.{ .names = clang_names });
}

pub fn linkWithClang(b: *Build, clang: Clang, what: []const u8) *Run {
    const link = b.addRunFile(clang.program);
    link.setName(b.fmt("link {s} with clang", .{what}));
    link.addArgs(clang.flags);
    return link;
}

pub fn endLink(link: *Run, name: []const u8) LazyPath {
    link.addArgs(&.{ "-lpcre2-8", "-lutf8proc", "-ljansson", "-lhwloc", "-lpthread", "-lm", "-o" });
    return link.addOutputFileArg(name);
}

pub fn addObjects(link: *Run, objects: []const LazyPath) void {
    for (objects) |object| link.addFileArg(object);
}

pub fn compileWithClang(b: *Build, clang: Clang, sources: Words, flags: Words) []const LazyPath {
    const objects = b.allocator.alloc(LazyPath, sources.len) catch @panic("OOM");
    for (sources, objects) |source, *object| {
        object.* = compileOne(b, clang, b.path(source), source, flags);
    }
    return objects;
}

pub fn compileOne(
    b: *Build,
    clang: Clang,
    source: LazyPath,
    name: []const u8,
    flags: Words,
) LazyPath {
    const run = b.addRunFile(clang.program);
    run.setName(b.fmt("clang {s}", .{name}));
    if (clang.after) |step| run.step.dependOn(step);
    run.addArgs(clang.dialect);
    run.addArgs(clang.flags);
    run.addArgs(flags);
    run.addDirectoryArg2(b.path("src"), .{ .prefix = "-I" });
    run.addDirectoryArg2(b.path("tests"), .{ .prefix = "-I" });
    run.addDirectoryArg2(b.path("tools"), .{ .prefix = "-I" });
    run.addArgs(&.{ "-MD", "-MF" });
    _ = run.addDepFileOutputArg("source.d");
    run.addArg("-c");
    run.addFileArg(source);
    run.addArg("-o");
    return run.addOutputFileArg("source.o");
}
