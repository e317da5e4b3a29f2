//! CUDA's part of the build: finding nvcc, compiling the .cu of kernels into images that the
//! archive carries as data, and listing the kernels for the host's emulation.

const std = @import("std");
const files = @import("files.zig");
const Build = std.Build;
const Compile = Build.Step.Compile;
const LazyPath = Build.LazyPath;

/// The emulated kernels: no exceptions, no runtime of C++.
pub const emulation_flags: []const []const u8 = &.{
    "-std=c++17",
    "-D_GNU_SOURCE",
    "-fno-math-errno",
    "-ffp-contract=off",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-threadsafe-statics",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wvla",
    "-Wno-missing-field-initializers",
    "-Werror=return-type",
};
/// As for C: a product is fused with a sum only where the source says so. The last target's PTX is
/// for GPUs that come later.
pub const nvcc_flags: []const []const u8 = &.{
    "-std=c++17",
    "-O3",
    "-fmad=false",
    "-Werror",
    "all-warnings",
    "-gencode",
    "arch=compute_80,code=sm_80",
    "-gencode",
    "arch=compute_90,code=sm_90",
    "-gencode",
    "arch=compute_100,code=[sm_100,compute_100]",
};

/// Not looked for again until something in the folders changes: PATH itself is not watched.
pub fn findNvcc(b: *Build, wanted: ?bool, folder: ?[]const u8) ?[]const u8 {
    if (!(wanted orelse true)) return null;
    var places: std.ArrayList([]const u8) = .empty;
    if (folder) |given| {
        places.append(b.allocator, b.pathJoin(&.{ given, "bin" })) catch @panic("OOM");
    } else {
        const path = b.graph.environ_map.get("PATH") orelse "";
        var each = std.mem.tokenizeScalar(u8, path, std.fs.path.delimiter);
        while (each.next()) |place| places.append(b.allocator, place) catch @panic("OOM");
        places.append(b.allocator, "/usr/local/cuda/bin") catch @panic("OOM");
    }
    for (places.items) |place| {
        if (!std.fs.path.isAbsolute(place)) continue;
        files.track(b, place);
        const nvcc = b.pathJoin(&.{ place, "nvcc" });
        if (files.fileExists(b, nvcc)) return nvcc;
    }
    if (folder != null or wanted != null) std.process.fatal(
        "CUDA is asked for, but there is no nvcc in {s}: install the CUDA toolkit, give an " ++
            "absolute -Dcuda-path=DIR, or -Dcuda=false",
        .{if (folder) |given| b.pathJoin(&.{ given, "bin" }) else "PATH or /usr/local/cuda/bin"},
    );
    std.log.warn("nvcc was not found (-Dcuda-path=DIR says where it is): building without " ++
        "CUDA kernels", .{});
    return null;
}

/// What a folder's kernels become: an array, its name's stem, and the header that declares it.
pub const Images = struct { folder: []const u8, stem: []const u8, header: []const u8 };
pub const engine_images: Images = .{
    .folder = "kernels/engine",
    .stem = "weir__cuda_image",
    .header = "device/cuda_kernels.h",
};
pub const net_images: Images = .{
    .folder = "kernels/net",
    .stem = "weir__net_image",
    .header = "net/cuda/kernels.h",
};
/// For tests and benches on a GPU.
pub const toy_images: Images = .{
    .folder = "tests/toys",
    .stem = "test_cuda_image",
    .header = "toys/toys.h",
};

/// A C file that defines <stem>s and <stem>_count: one for each .cu; none without nvcc.
pub fn imagesSource(b: *Build, nvcc: ?[]const u8, images: Images) LazyPath {
    const found = files.listSources(b, images.folder, ".cu", .flat);
    const kernels = if (nvcc != null) found else &.{};
    const written = b.addWriteFiles();
    var data: std.ArrayList(u8) = .empty;
    var table: std.ArrayList(u8) = .empty;
    for (kernels) |source| {
        const name = std.fs.path.stem(source);
        const image = b.fmt("{s}.fatbin", .{name});
        // Beside the C file: a new image makes it a new file, which is compiled again.
        _ = written.addCopyFile(compileKernel(b, nvcc.?, source), image);
        data.print(b.allocator,
            \\_Alignas(64) static const unsigned char {s}_data[] = {{
            \\#embed "{s}"
            \\}};
            \\
        , .{ name, image }) catch @panic("OOM");
        table.print(b.allocator, "    {{\"{s}\", {s}_data, sizeof {s}_data}},\n", .{
            name, name, name,
        }) catch @panic("OOM");
    }
    if (kernels.len == 0) table.appendSlice(b.allocator, "    {0}\n") catch @panic("OOM");
    const text = b.fmt(
        \\#pragma clang diagnostic ignored "-Wc23-extensions"
        \\#include "{s}"
        \\{s}const struct weir__cuda_image {s}s[] = {{
        \\{s}}};
        \\const size_t {s}_count = {d};
        \\
    , .{ images.header, data.items, images.stem, table.items, images.stem, kernels.len });
    return written.add(b.fmt("{s}s.c", .{images.stem}), text);
}

fn compileKernel(b: *Build, nvcc: []const u8, source: []const u8) LazyPath {
    const run = b.addSystemCommand(&.{"sh"});
    run.setName(b.fmt("nvcc {s}", .{source}));
    run.addFileArg(b.path("build/nvcc.sh"));
    run.addArgs(&.{ nvcc, "-fatbin", "--threads=2" }); // targets side by side: short ends
    run.addArgs(nvcc_flags);
    run.addDirectoryArg2(b.path("src"), .{ .prefix = "-I" });
    run.addDirectoryArg2(b.path("kernels"), .{ .prefix = "-I" });
    run.addArgs(&.{ "-MD", "-MF" });
    _ = run.addDepFileOutputArg("kernel.d");
    run.addFileArg(b.path(source));
    run.addArg("-o");
    return run.addOutputFileArg("kernel.fatbin");
}

/// A program of one .cu on the engine's archive; nvcc adds CUDA's runtime, as an archive.
pub fn compileProgram(b: *Build, nvcc: []const u8, source: []const u8, engine: *Compile) LazyPath {
    const run = b.addSystemCommand(&.{nvcc});
    run.setName(b.fmt("nvcc {s}", .{source}));
    run.addArgs(nvcc_flags);
    run.addDirectoryArg2(b.path("src"), .{ .prefix = "-I" });
    run.addArgs(&.{ "-MD", "-MF" });
    _ = run.addDepFileOutputArg("program.d");
    run.addFileArg(b.path(source));
    run.addArtifactArg2(engine, .{});
    for (b.graph.search_prefixes.items) |prefix| run.addArg(b.fmt("-L{s}/lib", .{prefix}));
    run.addArgs(&.{ "-lhwloc", "-lpthread", "-lm", "-o" });
    return run.addOutputFileArg(std.fs.path.stem(source));
}

/// Registers, shared memory and spills of every kernel.
pub fn reportKernels(b: *Build, nvcc: ?[]const u8) *Build.Step.Run {
    const run = b.addSystemCommand(&.{ "sh", "build/kernel_report.sh" });
    run.setName("kernel-report");
    run.addArg(nvcc orelse "");
    run.addArgs(nvcc_flags);
    return run;
}

/// What the emulation is made of, all of it C++.
pub fn emulatedSources(b: *Build) []const []const u8 {
    return std.mem.concat(b.allocator, []const u8, &.{
        files.listSources(b, "kernels", ".cu", .recursive),
        files.listSources(b, "tests/toys", ".cu", .flat),
        files.listSources(b, "tests/fake_cuda", ".cc", .flat),
    }) catch @panic("OOM");
}

const Text = std.ArrayList(u8);

/// A row of fake_cuda_kernels, and what it needs declared.
fn addKernel(b: *Build, name: []const u8, declarations: *Text, rows: *Text) void {
    declarations.print(b.allocator,
        \\extern "C" const size_t *const fake_cuda_parameters_{s};
        \\extern "C" void fake_cuda_run_{s}(const uint32_t blocks[3],
        \\    const uint32_t threads[3], uint32_t shared_bytes, void **arguments);
        \\
    , .{ name, name }) catch @panic("OOM");
    rows.print(
        b.allocator,
        "    {{\"{s}\", fake_cuda_run_{s}, fake_cuda_parameters_{s}}},\n",
        .{ name, name, name },
    ) catch @panic("OOM");
}

/// A C++ file that defines fake_cuda_kernels: every EXPORT_KERNEL(name); of the .cu files, and both
/// kernels of every STORED_KERNELS(name, …).
pub fn kernelTable(b: *Build) LazyPath {
    var declarations: Text = .empty;
    var rows: Text = .empty;
    for (emulatedSources(b)) |source| {
        if (!std.mem.endsWith(u8, source, ".cu")) continue;
        const text = files.readTracked(b, source) orelse continue;
        var lines = std.mem.splitScalar(u8, text, '\n');
        while (lines.next()) |line| {
            if (std.mem.cutPrefix(u8, line, "EXPORT_KERNEL(")) |rest| {
                const name = std.mem.cutSuffix(u8, rest, ");") orelse continue;
                addKernel(b, name, &declarations, &rows);
            } else if (std.mem.cutPrefix(u8, line, "STORED_KERNELS(")) |rest| {
                const name, _ = std.mem.cutScalar(u8, rest, ',') orelse continue;
                addKernel(b, b.fmt("weir_{s}_f32", .{name}), &declarations, &rows);
                addKernel(b, b.fmt("weir_{s}_bf16", .{name}), &declarations, &rows);
            }
        }
    }
    return b.addWriteFiles().add("fake_kernels.cc", b.fmt(
        \\#include "fake_kernels.h"
        \\{s}const struct fake_cuda_kernel fake_cuda_kernels[] = {{
        \\{s}}};
        \\const size_t fake_cuda_kernel_count =
        \\    sizeof fake_cuda_kernels / sizeof fake_cuda_kernels[0];
        \\
    , .{ declarations.items, rows.items }));
}
