//! A Zig project that depends on Weir by path and uses its modules.

const std = @import("std");

pub fn build(b: *std.Build) void {
    const target = b.standardTargetOptions(.{});
    const with_net = b.option(bool, "net", "Networks too") orelse false;
    const weir = b.dependency("weir", .{ .optimize = .debug });
    const used = weir.module(if (with_net) "weir_net" else "weir");
    const module = b.createModule(.{
        .root_source_file = b.path("main.zig"),
        .target = target,
        .optimize = .debug,
        .imports = &.{.{ .name = "weir", .module = used }},
    });
    const options = b.addOptions();
    options.addOption(bool, "with_net", with_net);
    module.addOptions("options", options);
    module.addIncludePath(weir.path("src"));
    module.addCSourceFile(.{ .file = b.path("initialisers.c") });
    b.installArtifact(b.addExecutable(.{ .name = "embed", .root_module = module }));
}
