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
