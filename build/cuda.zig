//! CUDA's part of the build: finding nvcc, compiling the .cu of kernels into images that the
//! archive carries as data, and listing the kernels for the host's emulation.

const std = @import("std");
const files = @import("files.zig");
const Build = std.Build;
const Compile = Build.Step.Compile;
const LazyPath = Build.LazyPath;

/// The emulated kernels: no exceptions, no runtime of C++. GPUs want loops unrolled that would take
/// the host's compiler minutes.
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
    "-Wno-pass-failed",
    "-mllvm",
    "-pragma-unroll-threshold=64",
};
/// Of images; an nvcc makes those that it knows. PTX of the last is for GPUs that come later.
const architectures = "80 90 100";
/// As for C: a product is fused with a sum only where the source says so.
const nvcc_flags: []const []const u8 = &.{ "-std=c++17", "-O3", "-fmad=false" };

pub const Toolkits = struct {
    /// The CUDA compiler's path; null leaves the kernels out.
    nvcc: ?[]const u8,
    /// For drivers before the compiler's CUDA: in the portable folder.
    older: ?Older = null,
};

pub const Older = union(enum) {
    nvcc: []const u8,
    nvrtc: Nvrtc,
};

pub const Nvrtc = struct {
    /// With the Python package.
    folder: LazyPath,
    /// The toolkit's, which packs what is compiled.
    fatbinary: []const u8,
};

pub fn parseOptions(b: *Build) Toolkits {
    const cuda_help = "Compile the CUDA kernels (default: where nvcc is found)";
    const with_cuda = b.option(bool, "cuda", cuda_help);
    const path_help = "CUDA's folder, with bin/nvcc (default: PATH's, then /usr/local/cuda)";
    const path = b.option([]const u8, "cuda-path", path_help);
    const older_help = "Images for drivers of CUDA 12 in 'portable' and 'kernel-report': by " ++
        "DIR/bin/nvcc (default: /usr/local/cuda-12.9, -12.8), or pypi: by NVRTC from there";
    const older = b.option([]const u8, "cuda-12", older_help);
    // A project that depends on Weir asks for the kernels, which take nvcc minutes.
    const nvcc = findNvcc(b, with_cuda orelse if (b.isRoot()) null else false, path) orelse
        return .{ .nvcc = null };
    return .{ .nvcc = nvcc, .older = findOlder(b, nvcc, older) };
}

fn findOlder(b: *Build, nvcc: []const u8, wanted: ?[]const u8) ?Older {
    if (std.mem.eql(u8, wanted orelse "", "pypi")) return .{ .nvrtc = bringNvrtc(b, nvcc) };
    const usual: []const []const u8 = &.{ "/usr/local/cuda-12.9", "/usr/local/cuda-12.8" };
    for (if (wanted) |folder| &.{folder} else usual) |folder| {
        const found = b.pathJoin(&.{ folder, "bin", "nvcc" });
        if (files.isSameFile(b, found, nvcc)) return null; // it serves them already
        if (!files.fileExists(b, found)) continue;
        return if (wanted != null or isNewerThan12(b, nvcc)) .{ .nvcc = found } else null;
    }
    if (wanted) |folder| std.process.fatal(
        "there is no {s}/bin/nvcc: -Dcuda-12 takes the folder of CUDA 12.8 or 12.9, or pypi",
        .{folder},
    );
    return null;
}

/// An nvcc of CUDA 12 makes what drivers of CUDA 12 take, and the usual one may be newer than it.
fn isNewerThan12(b: *Build, nvcc: []const u8) bool {
    var code: u8 = undefined;
    const said = b.runAllowFail(&.{ nvcc, "--version" }, &code, .ignore) catch return false;
    const word = "release ";
    const at = std.mem.indexOf(u8, said, word) orelse return false;
    const release = said[at + word.len ..];
    const end = std.mem.indexOfScalar(u8, release, '.') orelse return false;
    return (std.fmt.parseInt(u32, release[0..end], 10) catch 0) > 12;
}

fn bringNvrtc(b: *Build, nvcc: []const u8) Nvrtc {
    const run = b.addSystemCommand(&.{"sh"});
    run.setName("bring NVRTC");
    run.addFileArg(b.path("build/bring.sh"));
    const folder = run.addOutputDirectoryArg("nvrtc");
    run.addArgs(&.{ "nvidia-cuda-nvrtc-cu12==12.9.86", "./zigw build portable -Dcuda-12=DIR" });
    const tools = std.fs.path.dirname(nvcc).?;
    return .{ .folder = folder, .fatbinary = b.pathJoin(&.{ tools, "fatbinary" }) };
}

/// What code as it should be does without, and a newer toolkit may find: an error where CI looks.
fn strictFlags(b: *Build) []const []const u8 {
    if (b.graph.environ_map.get("CI") == null) return &.{};
    return &.{ "-Werror", "all-warnings" };
}

/// Not looked for again until something in the folders changes: PATH itself is not watched.
fn findNvcc(b: *Build, wanted: ?bool, folder: ?[]const u8) ?[]const u8 {
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

/// A C file that defines <stem>s and <stem>_count: one for each .cu, and with `older` another one;
/// none without nvcc.
pub fn imagesSource(b: *Build, toolkits: Toolkits, older: bool, images: Images) LazyPath {
    const written = b.addWriteFiles();
    var rows: Rows = .{ .written = written };
    if (toolkits.nvcc) |nvcc| {
        rows.add(b, images, .{ .nvcc = nvcc }, "newest");
        if (older) if (toolkits.older) |other| rows.add(b, images, other, "older");
    }
    if (rows.count == 0) rows.table.appendSlice(b.allocator, "    {0}\n") catch @panic("OOM");
    const text = b.fmt(
        \\#pragma clang diagnostic ignored "-Wc23-extensions"
        \\#include "{s}"
        \\{s}const struct weir__cuda_image {s}s[] = {{
        \\{s}}};
        \\const size_t {s}_count = {d};
        \\
    , .{ images.header, rows.data.items, images.stem, rows.table.items, images.stem, rows.count });
    return written.add(b.fmt("{s}s.c", .{images.stem}), text);
}

/// The parts of such a file.
const Rows = struct {
    written: *Build.Step.WriteFile,
    data: Text = .empty,
    table: Text = .empty,
    count: usize = 0,

    fn add(rows: *Rows, b: *Build, images: Images, by: Older, which: []const u8) void {
        const facts = b.fmt("{s}.inc", .{which});
        _ = rows.written.addCopyFile(tellFacts(b, by), facts);
        for (files.listSources(b, images.folder, ".cu", .flat)) |source| {
            const name = std.fs.path.stem(source);
            const image = b.fmt("{s}_{s}", .{ name, which });
            // Beside the C file: a new image makes it a new file, which is compiled again.
            _ = rows.written.addCopyFile(compileKernel(b, by, source), image);
            rows.data.print(b.allocator,
                \\_Alignas(64) static const unsigned char {s}[] = {{
                \\#embed "{s}"
                \\}};
                \\
            , .{ image, image }) catch @panic("OOM");
            rows.table.print(b.allocator,
                \\    {{"{s}", {s}, sizeof {s},
                \\#include "{s}"
                \\    }},
                \\
            , .{ name, image, image, facts }) catch @panic("OOM");
            rows.count += 1;
        }
    }
};

fn runNvcc(b: *Build, nvcc: []const u8) *Build.Step.Run {
    const run = b.addSystemCommand(&.{"sh"});
    run.addFileArg(b.path("build/nvcc.sh"));
    run.addArgs(&.{ nvcc, architectures });
    return run;
}

fn runNvrtc(b: *Build, nvrtc: Nvrtc) *Build.Step.Run {
    const run = b.addSystemCommand(&.{"python3"});
    run.addFileArg(b.path("build/nvrtc.py"));
    run.addDirectoryArg(nvrtc.folder);
    run.setEnvironmentVariable("FATBINARY", nvrtc.fatbinary);
    run.addArg(architectures);
    return run;
}

/// The members of struct weir__cuda_image that are its compiler's.
fn tellFacts(b: *Build, by: Older) LazyPath {
    const run = switch (by) {
        .nvcc => |nvcc| runNvcc(b, nvcc),
        .nvrtc => |nvrtc| runNvrtc(b, nvrtc),
    };
    run.setName("toolkit's facts");
    run.addArg("--facts");
    return run.captureStdOut(.{});
}

fn compileKernel(b: *Build, by: Older, source: []const u8) LazyPath {
    switch (by) {
        .nvcc => |nvcc| {
            const run = runNvcc(b, nvcc);
            run.setName(b.fmt("nvcc {s}", .{source}));
            run.addArgs(&.{ "-fatbin", "--threads=2" }); // targets side by side: short ends
            run.addArgs(nvcc_flags);
            run.addArgs(strictFlags(b));
            run.addDirectoryArg2(b.path("src"), .{ .prefix = "-I" });
            run.addDirectoryArg2(b.path("kernels"), .{ .prefix = "-I" });
            run.addArgs(&.{ "-MD", "-MF" });
            _ = run.addDepFileOutputArg("kernel.d");
            run.addFileArg(b.path(source));
            run.addArg("-o");
            return run.addOutputFileArg("kernel.fatbin");
        },
        .nvrtc => |nvrtc| {
            const run = runNvrtc(b, nvrtc);
            run.setName(b.fmt("nvrtc {s}", .{source}));
            run.setCwd(b.path(""));
            const headers = files.listSources(b, "src", ".h", .recursive);
            for (headers) |header| run.addFileInput(b.path(header));
            const shared = files.listSources(b, "kernels", ".cuh", .recursive);
            for (shared) |header| run.addFileInput(b.path(header));
            const image = run.addOutputFileArg("kernel.fatbin");
            run.addFileArg(b.path(source));
            return image;
        },
    }
}

/// A program of one .cu on the engine's archive; nvcc adds CUDA's runtime, as an archive.
pub fn compileProgram(b: *Build, nvcc: []const u8, source: []const u8, engine: *Compile) LazyPath {
    const run = runNvcc(b, nvcc);
    run.setName(b.fmt("nvcc {s}", .{source}));
    run.addArgs(nvcc_flags);
    run.addArgs(strictFlags(b));
    run.addDirectoryArg2(b.path("src"), .{ .prefix = "-I" });
    run.addArgs(&.{ "-MD", "-MF" });
    _ = run.addDepFileOutputArg("program.d");
    run.addFileArg(b.path(source));
    run.addArtifactArg2(engine, .{});
    for (b.graph.search_prefixes.items) |prefix| run.addArg(b.fmt("-L{s}/lib", .{prefix}));
    run.addArgs(&.{ "-lhwloc", "-lpthread", "-lm", "-o" });
    return run.addOutputFileArg(std.fs.path.stem(source));
}

/// Registers, shared memory and spills of every kernel, and of the older images beside them.
pub fn reportKernels(b: *Build, toolkits: Toolkits) *Build.Step.Run {
    const run = b.addSystemCommand(&.{ "sh", "build/kernel_report.sh" });
    run.setName("kernel-report");
    run.addArgs(&.{ toolkits.nvcc orelse "", architectures });
    if (toolkits.older) |older| switch (older) {
        .nvcc => |nvcc| run.addArg(nvcc),
        .nvrtc => |nvrtc| run.addDirectoryArg(nvrtc.folder),
    } else run.addArg("");
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
