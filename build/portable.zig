//! A folder that runs on another machine: programs for a common processor, and their libraries.

const std = @import("std");
const Build = std.Build;
const Compile = Build.Step.Compile;
const Run = Build.Step.Run;

pub const Programs = struct { weir: *Compile, tests: *Compile, bench: *Compile };
pub const Libraries = struct { fake: *Compile, managed: *Compile };

/// Makes RUNPATH, which is not handed on from library to library, the older RPATH.
fn addRpathTool(b: *Build) *Compile {
    const module = b.createModule(.{
        .target = b.graph.host,
        .optimize = .fast,
        .link_libc = true,
    });
    const flags: []const []const u8 = &.{ "-std=c11", "-D_GNU_SOURCE" };
    module.addCSourceFile(.{ .file = b.path("build/rpath.c"), .flags = flags });
    return b.addExecutable(.{ .name = "rpath", .root_module = module });
}

pub fn gather(b: *Build, programs: Programs, libraries: Libraries) *Run {
    const run = b.addSystemCommand(&.{ "sh", "build/portable.sh" });
    run.setName("portable");
    run.setCwd(b.path(""));
    run.stdio = .inherit;
    run.addDirectoryArg2(b.graph.path(.install_prefix, "portable"), .{ .make_absolute = true });
    run.addArtifactArg(addRpathTool(b));
    for ([_]*Compile{ programs.weir, programs.tests, programs.bench }) |program| {
        program.root_module.addRPathSpecial("$ORIGIN/../lib");
        run.addArtifactArg(program);
    }
    run.addArg("--");
    run.addArtifactArg(libraries.fake);
    run.addArtifactArg(libraries.managed);
    return run;
}

/// Its own program that runs all of it.
pub fn runAll(b: *Build, folder: *Run) *Run {
    const run = b.addSystemCommand(&.{"sh"});
    run.setName("first-contact");
    run.addFileArg2(b.graph.path(.install_prefix, "portable/run"), .{ .make_absolute = true });
    run.addArgs(&.{ "first-contact", "--into" });
    const results = b.graph.path(.install_prefix, "first-contact");
    run.addDirectoryArg2(results, .{ .make_absolute = true });
    run.step.dependOn(&folder.step);
    return run;
}
