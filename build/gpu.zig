//! What runs on a GPU: the tests on the machine's own, plainly or under compute-sanitizer.

const std = @import("std");
const files = @import("files.zig");
const Build = std.Build;
const Compile = Build.Step.Compile;
const Run = Build.Step.Run;

pub const Sanitizer = enum { none, memcheck, racecheck, synccheck, initcheck };

pub fn sanitizerOption(b: *Build) Sanitizer {
    const help = "test-gpu under compute-sanitizer: memcheck, racecheck, synccheck or initcheck";
    return b.option(Sanitizer, "sanitizer", help) orelse .none;
}

/// The tests' program on the machine's own GPUs.
pub fn runTests(b: *Build, program: *Compile, managed: *Compile, sanitizer: Sanitizer) *Run {
    if (sanitizer == .none) {
        const run = b.addRunArtifact(program);
        run.setName("tests on a GPU");
        addArguments(run, managed);
        return run;
    }
    const run = b.addSystemCommand(&.{"sh"});
    run.setName(b.fmt("tests on a GPU under {t}", .{sanitizer}));
    run.addFileArg(b.path("build/compute_sanitizer.sh"));
    run.addArg(@tagName(sanitizer));
    run.addArtifactArg(program);
    run.addArg("--sanitized");
    addArguments(run, managed);
    return run;
}

fn addArguments(run: *Run, managed: *Compile) void {
    run.addArg("--gpu");
    addManaged(run, managed);
}

pub fn addManaged(run: *Run, managed: *Compile) void {
    run.addArtifactArg2(managed, .{ .prefix = "--managed-cuda=", .make_absolute = true });
}
