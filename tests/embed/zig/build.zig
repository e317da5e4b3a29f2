//! A Zig project that depends on Weir by path and uses its engine.

const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    // without the CUDA kernels, whose images take nvcc minutes: they are no part of the question
    const weir = b.dependency("weir", .{ .onednn = false, .cuda = false, .optimize = .debug });
    const header = b.addTranslateC(.{
        .root_source_file = weir.path("src/weir.h"),
        .target = target,
        .optimize = .debug,
    });
    const module = b.createModule(.{
        .root_source_file = b.path("main.zig"),
        .target = target,
        .optimize = .debug,
        .imports = &.{.{ .name = "weir", .module = header.createModule() }},
    });
    module.linkLibrary(weir.artifact("weir"));
    b.installArtifact(b.addExecutable(.{ .name = "embed", .root_module = module }));
}
