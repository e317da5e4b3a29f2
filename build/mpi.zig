//! MPI: the library that makes another MPI's calls the standard ABI's, and one for the tests.

const std = @import("std");
const Build = std.Build;
const LazyPath = Build.LazyPath;

/// lib/libweir_mpi.so, which the command beside it opens, where -Dmpicc says what compiles it.
pub fn installShim(b: *Build) void {
    const help = "Install lib/libweir_mpi.so too, for an MPI before 5: its mpicc";
    const mpicc = b.option([]const u8, "mpicc", help) orelse return;
    const run = b.addSystemCommand(&.{ mpicc, "-std=c11", "-O2", "-shared", "-fPIC" });
    run.setName("mpicc libweir_mpi.so");
    run.addDirectoryArg2(b.path("src"), .{ .prefix = "-I" });
    run.addFileInput(b.path("src/world/mpi_abi.h"));
    run.addFileArg2(b.path("build/mpi_shim.c"), .{});
    run.addArg("-o");
    const library = run.addOutputFileArg2("libweir_mpi.so", .{});
    b.getInstallStep().dependOn(&b.addInstallLibFile(library, "libweir_mpi.so").step);
}

/// A folder with MPICH's bin/mpiexec and lib/libmpi_abi.so.1, from the Python package.
pub fn bring(b: *Build) LazyPath {
    const run = b.addSystemCommand(&.{"sh"});
    run.setName("bring an MPI");
    run.addFileArg(b.path("build/bring.sh"));
    const folder = run.addOutputDirectoryArg("mpi");
    run.addArgs(&.{ "mpich==5.0.2", "PATH=$PWD/own/bin:$PATH ./zigw build test -- world" });
    return folder;
}
