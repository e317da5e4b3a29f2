//! What a program by clang is made of beside the tree's own files: the fake CUDA driver, generated
//! files.

const std = @import("std");
const clang_tools = @import("clang.zig");
const cuda = @import("cuda.zig");
const files = @import("files.zig");
const levels = @import("levels.zig");
const page = @import("page.zig");
const Build = std.Build;
const LazyPath = Build.LazyPath;
const Clang = clang_tools.Clang;
const addObjects = clang_tools.addObjects;
const compileOne = clang_tools.compileOne;
const compileWithClang = clang_tools.compileWithClang;
const linkWithClang = clang_tools.linkWithClang;

/// As addFakeCuda, so that what kernels touch outside of their memory is seen.
pub fn linkFakeCuda(b: *Build, clang: Clang) LazyPath {
    // The C program that opens it has no runtime for what only C++ checks.
    const no_function = "-fno-sanitize=function";
    const shared: []const []const u8 =
        &.{ "-fPIC", no_function, "-Ikernels", "-Itests/fake_cuda" };
    const cpp: []const []const []const u8 = &.{ shared, cuda.emulation_flags, &.{ "-x", "c++" } };
    const cpp_flags = std.mem.concat(b.allocator, []const u8, cpp) catch @panic("OOM");
    var kernels = clang;
    kernels.dialect = &.{};
    const link = linkWithClang(b, clang, "the fake CUDA driver");
    link.addArg("-shared");
    const drivers = files.listSources(b, "tests/fake_cuda", ".c", .flat);
    addObjects(link, compileWithClang(b, clang, drivers, shared));
    addObjects(link, compileWithClang(b, clang, files.referenceSources(b), shared));
    addObjects(link, compileWithClang(b, kernels, cuda.emulatedSources(b), cpp_flags));
    link.addFileArg(compileOne(b, kernels, cuda.kernelTable(b), "fake_kernels.cc", cpp_flags));
    link.addArgs(&.{ "-lpthread", "-lm", "-o" });
    return link.addOutputFileArg("libweir_fake_cuda_asan.so");
}

/// All of `sources`, those of levels for each of them.
pub fn compileLevels(b: *Build, clang: Clang, sources: []const []const u8) []const LazyPath {
    var objects: std.ArrayList(LazyPath) = .empty;
    const rest = compileWithClang(b, clang, levels.only(b, sources, false), &.{});
    objects.appendSlice(b.allocator, rest) catch @panic("OOM");
    for (levels.sets(b, b.graph.host.result.cpu.arch, sources)) |set| {
        const own: []const []const []const u8 = &.{ set.flags, set.level.clang };
        const all = std.mem.concat(b.allocator, []const u8, own) catch @panic("OOM");
        const made = compileWithClang(b, clang, set.sources, all);
        objects.appendSlice(b.allocator, made) catch @panic("OOM");
    }
    return objects.items;
}

pub fn linkTests(b: *Build, clang: Clang) LazyPath {
    const link = linkWithClang(b, clang, "the tests");
    addObjects(link, compileWithClang(b, clang, files.engineSources(b), &.{}));
    addObjects(link, compileGenerated(b, clang));
    addObjects(link, compileLevels(b, clang, files.netSources(b)));
    addObjects(link, compileWithClang(b, clang, files.dataSources(b), &.{}));
    addObjects(link, compileLevels(b, clang, files.testSources(b)));
    const toys = files.listSources(b, "tests/toys", ".c", .flat);
    addObjects(link, compileWithClang(b, clang, toys, &.{}));
    link.addFileArg(compileNoImages(b, clang, cuda.toy_images));
    return clang_tools.endLink(link, "weir_tests_asan");
}

/// clang-14 knows no #embed.
pub fn compileNoImages(b: *Build, clang: Clang, images: cuda.Images) LazyPath {
    const source = cuda.imagesSource(b, .{ .nvcc = null }, false, images);
    return compileOne(b, clang, source, images.stem, &.{});
}

/// The report's style and script, and no CUDA images.
pub fn compileGenerated(b: *Build, clang: Clang) []const LazyPath {
    const objects = b.allocator.alloc(LazyPath, page.texts.len + 2) catch @panic("OOM");
    for (page.texts, objects[2..]) |text, *object| {
        object.* = compileOne(b, clang, page.textSource(b, text), text.path, &.{});
    }
    objects[0] = compileNoImages(b, clang, cuda.engine_images);
    objects[1] = compileNoImages(b, clang, cuda.net_images);
    return objects;
}
