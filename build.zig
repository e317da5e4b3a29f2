//! Builds Weir: two static archives, the `weir` command, the tests and the benches.
//!
//! Sources are found by directory: every .c file below src/net and src/io belongs to
//! libweir_net.a, every other one below src to libweir.a, tools/*.c make bin/weir, tests/*.c the
//! test program, bench/*.c the bench program. A new file needs no change here.

const std = @import("std");
const builtin = @import("builtin");
const Build = std.Build;
const LazyPath = Build.LazyPath;
const Step = Build.Step;

const zig_wanted = "0.17.0";
const version = "0.1.0";

comptime {
    if (!std.mem.eql(u8, builtin.zig_version_string, zig_wanted)) @compileError(
        "Weir is built by Zig " ++ zig_wanted ++ ", this is Zig " ++ builtin.zig_version_string ++
            ": run './zigw build', which finds or installs the right one, or install it with " ++
            "'pip install ziglang==" ++ zig_wanted ++ "'",
    );
}

/// Bits matter here: no fast-math, and multiply and add are fused only where the source says so.
const language_flags: []const []const u8 = &.{ "-std=c11", "-D_GNU_SOURCE", "-fno-math-errno", "-ffp-contract=off" };
const warning_flags: []const []const u8 = &.{
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wstrict-prototypes",
    "-Wmissing-prototypes",
    "-Wvla",
    "-Wno-missing-field-initializers",
    "-Wno-unused-parameter", // callbacks have them
    "-Werror=implicit-function-declaration",
    "-Werror=incompatible-pointer-types",
    "-Werror=int-conversion",
    "-Werror=return-type",
};
const c_flags = language_flags ++ warning_flags;
const sanitizer_flags: []const []const u8 = &.{
    "-O1",                       "-g",            "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all", "-march=native", "-fno-omit-frame-pointer",
};

const Options = struct {
    target: Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    strict: bool,
    onednn: ?OneDnn,
    sanitize_thread: bool = false,
};

const OneDnn = struct {
    /// Holds include/ and lib/ or lib64/; null is the system's own.
    prefix: ?[]const u8,
    lib_dir: []const u8,
};

pub fn build(b: *Build) void {
    const steps = .{
        .train = b.step("train", "Train the default GPT over two stages; options of 'weir train' after --"),
        .@"test" = b.step("test", "Run the tests; parts of their names after -- choose some"),
        .tidy = b.step("tidy", "Check the sources against the project's rules"),
        .fmt = b.step("fmt", "Format the sources with clang-format and zig fmt; '-- --check' only looks"),
        .bench = b.step("bench", "Run the benches; topics and options after --"),
        .tsan = b.step("test-tsan", "Run the tests under ThreadSanitizer, without oneDNN"),
        .asan = b.step("test-asan", "Run the tests under Address- and UBSanitizer; needs clang"),
    };
    const options = parseOptions(b);

    const engine = addEngine(b, options);
    const net = addNet(b, options, engine);
    const command = if (readTracked(b, "tools/main.c") != null) addCommand(b, options, engine, net) else null;
    installAll(b, options, engine, net, command);
    if (!b.isRoot()) return;

    steps.train.dependOn(runTrain(b));
    steps.@"test".dependOn(runTests(b, options, engine, net));
    steps.tidy.dependOn(runTidy(b, options, engine, net));
    steps.fmt.dependOn(runFormat(b));
    steps.bench.dependOn(runBench(b, options, engine, net));
    steps.tsan.dependOn(runThreadSanitizer(b, options));
    steps.asan.dependOn(runAddressSanitizer(b, options));
}

fn parseOptions(b: *Build) Options {
    const target = b.standardTargetOptions(.{});
    const optimize = b.option(
        std.builtin.Optimize,
        "optimize",
        "debug, safe, fast (default) or small",
    ) orelse switch (b.graph.release_mode) {
        .off, .any, .fast => std.builtin.Optimize.fast,
        .safe => .safe,
        .small => .small,
    };
    // Zig shows a file's warnings only when the file fails, and its compiler is always the same.
    const strict = b.option(bool, "strict", "Warnings are errors (default: yes, unless built as a dependency)") orelse b.isRoot();
    const wanted = b.option(bool, "onednn", "Use oneDNN for products (default: where it is found)");
    const prefix = b.option([]const u8, "onednn-prefix", "Folder with oneDNN's include/ and lib/ (default: the system's)");
    return .{ .target = target, .optimize = optimize, .strict = strict, .onednn = findOneDnn(b, wanted, prefix) };
}

fn findOneDnn(b: *Build, wanted: ?bool, prefix: ?[]const u8) ?OneDnn {
    if (!(wanted orelse true)) return null;
    const places: []const []const u8 = if (prefix) |p| &.{p} else &.{ "/usr/local", "/usr" };
    for (places) |place| {
        const header = b.pathJoin(&.{ place, "include", "oneapi", "dnnl", "dnnl_version.h" });
        track(b, header);
        if (!fileExists(b, header)) continue;
        const lib64 = b.pathJoin(&.{ place, "lib64" });
        const lib_dir = if (fileExists(b, b.pathJoin(&.{ lib64, "libdnnl.so" }))) lib64 else b.pathJoin(&.{ place, "lib" });
        return .{ .prefix = if (std.mem.eql(u8, place, "/usr")) null else place, .lib_dir = lib_dir };
    }
    if (prefix != null or wanted != null) std.process.fatal(
        "oneDNN is asked for, but {s}/include/oneapi/dnnl/dnnl_version.h is not there: install it (Debian: libdnnl-dev), give -Donednn-prefix=DIR, or build without it (-Donednn=false)",
        .{prefix orelse "/usr"},
    );
    // So that this is said, and looked for again, at every build.
    b.graph.poisonCache();
    std.log.warn("oneDNN was not found (Debian: libdnnl-dev): building with the plain C kernels, which are much slower", .{});
    return null;
}

fn addEngine(b: *Build, options: Options) *Step.Compile {
    const module = createModule(b, options);
    addSources(b, options, module, engineSources(b), &.{});
    module.linkSystemLibrary("hwloc", .{ .use_pkg_config = .no });
    const library = b.addLibrary(.{ .name = "weir", .root_module = module });
    library.installHeader(b.path("src/weir.h"), "weir.h");
    return library;
}

fn addNet(b: *Build, options: Options, engine: *Step.Compile) *Step.Compile {
    const module = createModule(b, options);
    addSources(b, options, module, netSources(b, options.onednn != null), oneDnnFlags(b, options));
    module.linkSystemLibrary("jansson", .{ .use_pkg_config = .no });
    linkOneDnn(module, options);
    module.linkLibrary(engine);
    const library = b.addLibrary(.{ .name = "weir_net", .root_module = module });
    library.installHeader(b.path("src/weir_net.h"), "weir_net.h");
    return library;
}

fn addCommand(b: *Build, options: Options, engine: *Step.Compile, net: *Step.Compile) *Step.Compile {
    const module = createModule(b, options);
    addSources(b, options, module, listSources(b, "tools", ".c", .flat), oneDnnFlags(b, options));
    // In a file of its own: a new commit compiles this one again and nothing else.
    const text = b.fmt("extern const char weir_build_commit[];\nconst char weir_build_commit[] = \"{s}\";\n", .{gitCommit(b)});
    module.addCSourceFile(.{ .file = b.addWriteFiles().add("build_commit.c", text) });
    module.linkSystemLibrary("popt", .{ .use_pkg_config = .no });
    module.linkSystemLibrary("jansson", .{ .use_pkg_config = .no });
    module.linkLibrary(net);
    module.linkLibrary(engine);
    return b.addExecutable(.{ .name = "weir_command", .root_module = module });
}

fn addProgram(b: *Build, options: Options, directory: []const u8, engine: *Step.Compile, net: *Step.Compile) *Step.Compile {
    const module = createModule(b, options);
    addSources(b, options, module, listSources(b, directory, ".c", .flat), oneDnnFlags(b, options));
    module.addIncludePath(b.path(directory));
    module.linkSystemLibrary("jansson", .{ .use_pkg_config = .no });
    module.linkSystemLibrary("hwloc", .{ .use_pkg_config = .no });
    module.linkLibrary(net);
    module.linkLibrary(engine);
    return b.addExecutable(.{ .name = b.fmt("weir_{s}", .{directory}), .root_module = module });
}

fn installAll(b: *Build, options: Options, engine: *Step.Compile, net: *Step.Compile, command: ?*Step.Compile) void {
    b.installArtifact(engine);
    b.installArtifact(net);
    const install = b.getInstallStep();
    if (command) |program| install.dependOn(&b.addInstallArtifact(program, .{ .dest_sub_path = "weir" }).step);

    const files = b.addWriteFiles();
    inline for (.{
        .{ "weir.pc", "lib/pkgconfig" },
        .{ "weir_net.pc", "lib/pkgconfig" },
        .{ "WeirConfig.cmake", "lib/cmake/Weir" },
        .{ "WeirConfigVersion.cmake", "lib/cmake/Weir" },
    }) |file| {
        const text = fillTemplate(b, @embedFile("cmake/" ++ file[0] ++ ".in"), options);
        install.dependOn(&b.addInstallFile(files.add(file[0], text), file[1] ++ "/" ++ file[0]).step);
    }
}

fn fillTemplate(b: *Build, template: []const u8, options: Options) []const u8 {
    var flags: []const u8 = "";
    var libraries: []const u8 = "";
    if (options.onednn) |onednn| {
        const own = onednn.prefix != null;
        flags = if (own) b.fmt("-L{s} -Wl,-rpath,{s} -ldnnl", .{ onednn.lib_dir, onednn.lib_dir }) else "-ldnnl";
        libraries = if (own) b.fmt(";{s}/libdnnl.so", .{onednn.lib_dir}) else ";dnnl";
    }
    var text = template;
    inline for (.{ .{ "@VERSION@", version }, .{ "@ONEDNN_FLAGS@", flags }, .{ "@ONEDNN_LIBRARIES@", libraries } }) |pair| {
        text = std.mem.replaceOwned(u8, b.allocator, text, pair[0], pair[1]) catch @panic("OOM");
    }
    return text;
}

fn runTrain(b: *Build) *Step {
    const run = b.addRunFile(b.graph.path(.install_bin, "weir"));
    run.setName("weir train");
    run.step.dependOn(b.getInstallStep());
    run.addArg("train");
    return runHere(b, run);
}

fn runTests(b: *Build, options: Options, engine: *Step.Compile, net: *Step.Compile) *Step {
    const run = b.addRunArtifact(addProgram(b, options, "tests", engine, net));
    run.setName("tests");
    // Some tests use what is installed: the command, and the archives from other languages.
    run.step.dependOn(b.getInstallStep());
    run.addDirectoryArg2(b.graph.path(.install_prefix, ""), .{ .prefix = "--prefix=", .make_absolute = true });
    run.addFileArg2(b.graph.path(.zig_exe, ""), .{ .prefix = "--zig=", .make_absolute = true });
    return runHere(b, run);
}

fn runBench(b: *Build, options: Options, engine: *Step.Compile, net: *Step.Compile) *Step {
    const run = b.addRunArtifact(addProgram(b, options, "bench", engine, net));
    run.setName("bench");
    return runHere(b, run);
}

fn runTidy(b: *Build, options: Options, engine: *Step.Compile, net: *Step.Compile) *Step {
    const module = createModule(b, options);
    addSources(b, options, module, listSources(b, "tests/tidy", ".c", .flat), &.{});
    const run = b.addRunArtifact(b.addExecutable(.{ .name = "weir_tidy", .root_module = module }));
    run.setName("tidy");
    run.addArtifactArg2(engine, .{ .prefix = "--engine=" });
    run.addArtifactArg2(net, .{ .prefix = "--net=" });
    run.step.dependOn(checkHeaders(b, options, .c));
    run.step.dependOn(checkHeaders(b, options, .cpp));
    return runHere(b, run);
}

/// Every header must compile alone, as C and as C++.
fn checkHeaders(b: *Build, options: Options, language: Build.Module.CSourceLanguage) *Step {
    const module = createModule(b, options);
    module.addIncludePath(b.path("."));
    const flags: []const []const u8 = if (language == .c) c_flags else &.{ "-std=c++17", "-Wall", "-Wextra", "-D_GNU_SOURCE" };
    const files = b.addWriteFiles();
    for ([_][]const u8{ "src", "tools", "bench", "tests" }) |directory| {
        module.addIncludePath(b.path(directory));
        for (listSources(b, directory, ".h", .recursive)) |header| {
            const name = b.fmt("{s}.{s}", .{ header, if (language == .c) "c" else "cc" });
            const file = files.add(name, b.fmt("#include \"{s}\"\n", .{header}));
            module.addCSourceFile(.{ .file = file, .flags = flags, .language = language });
        }
    }
    return &b.addLibrary(.{ .name = b.fmt("headers_{t}", .{language}), .root_module = module }).step;
}

fn runFormat(b: *Build) *Step {
    const run = b.addSystemCommand(&.{ "sh", "tests/tidy/format.sh" });
    run.setName("fmt");
    run.addFileArg2(b.graph.path(.zig_exe, ""), .{ .make_absolute = true });
    return runHere(b, run);
}

/// Zig brings ThreadSanitizer's runtime; oneDNN's OpenMP is not instrumented and stays out.
fn runThreadSanitizer(b: *Build, options: Options) *Step {
    var own = options;
    own.onednn = null;
    own.sanitize_thread = true;
    const engine = addEngine(b, own);
    const net = addNet(b, own, engine);
    const run = b.addRunArtifact(addProgram(b, own, "tests", engine, net));
    run.setName("tests under ThreadSanitizer");
    return runHere(b, run);
}

/// Zig has no AddressSanitizer runtime, so the system's clang compiles the same files.
fn runAddressSanitizer(b: *Build, options: Options) *Step {
    const clang = b.findProgramLazy(.{ .names = &.{ "clang", "clang-19", "clang-16", "clang-14" } });
    const link = b.addRunFile(clang);
    link.setName("link the tests with clang (Debian: apt-get install clang)");
    link.addArgs(sanitizer_flags);
    for (engineSources(b)) |source| link.addFileArg(compileWithClang(b, clang, source, &.{}));
    const flags = oneDnnFlags(b, options);
    for (netSources(b, options.onednn != null)) |source| link.addFileArg(compileWithClang(b, clang, source, flags));
    for (listSources(b, "tests", ".c", .flat)) |source| link.addFileArg(compileWithClang(b, clang, source, flags));
    if (options.onednn) |onednn| {
        if (onednn.prefix != null) link.addArgs(&.{ b.fmt("-L{s}", .{onednn.lib_dir}), b.fmt("-Wl,-rpath,{s}", .{onednn.lib_dir}) });
        link.addArg("-ldnnl");
    }
    link.addArgs(&.{ "-ljansson", "-lhwloc", "-lpthread", "-lm", "-o" });
    const run = b.addRunFile(link.addOutputFileArg("weir_tests_asan"));
    run.setName("tests under AddressSanitizer");
    return runHere(b, run);
}

fn compileWithClang(b: *Build, clang: LazyPath, source: []const u8, flags: []const []const u8) LazyPath {
    const run = b.addRunFile(clang);
    run.setName(b.fmt("clang {s}", .{source}));
    run.addArgs(c_flags);
    run.addArgs(sanitizer_flags);
    run.addArgs(flags);
    run.addDirectoryArg2(b.path("src"), .{ .prefix = "-I" });
    run.addDirectoryArg2(b.path("tests"), .{ .prefix = "-I" });
    run.addArgs(&.{ "-MD", "-MF" });
    _ = run.addDepFileOutputArg("source.d");
    run.addArg("-c");
    run.addFileArg(b.path(source));
    run.addArg("-o");
    return run.addOutputFileArg("source.o");
}

/// In the project's folder, with the caller's terminal and the arguments after --, every time.
fn runHere(b: *Build, run: *Step.Run) *Step {
    run.setCwd(b.path(""));
    run.stdio = .inherit;
    run.addPassthruArgs();
    return &run.step;
}

fn createModule(b: *Build, options: Options) *Build.Module {
    return b.createModule(.{
        .target = options.target,
        .optimize = options.optimize,
        .link_libc = true,
        .pic = true,
        .omit_frame_pointer = false,
        // A trap needs no runtime, so that the archives link from any compiler.
        .sanitize_c = if (options.optimize == .debug or options.optimize == .safe) .trap else .off,
        .sanitize_thread = options.sanitize_thread,
    });
}

fn addSources(b: *Build, options: Options, module: *Build.Module, sources: []const []const u8, flags: []const []const u8) void {
    module.addIncludePath(b.path("src"));
    const strict: []const []const u8 = if (options.strict) &.{ "-Werror", "-Wno-error=deprecated-declarations" } else &.{};
    const all = std.mem.concat(b.allocator, []const u8, &.{ c_flags, strict, flags }) catch @panic("OOM");
    if (sources.len > 0) module.addCSourceFiles(.{ .files = sources, .flags = all });
}

fn oneDnnFlags(b: *Build, options: Options) []const []const u8 {
    const onednn = options.onednn orelse return &.{"-DWEIR_ONEDNN=0"};
    const prefix = onednn.prefix orelse return &.{"-DWEIR_ONEDNN=1"};
    return b.graph.dupeStrings(&.{ "-DWEIR_ONEDNN=1", "-isystem", b.pathJoin(&.{ prefix, "include" }) });
}

fn linkOneDnn(module: *Build.Module, options: Options) void {
    const onednn = options.onednn orelse return;
    if (onednn.prefix != null) {
        module.addLibraryPath(.{ .cwd_relative = onednn.lib_dir });
        module.addRPath(.{ .cwd_relative = onednn.lib_dir });
    }
    module.linkSystemLibrary("dnnl", .{ .use_pkg_config = .no });
}

fn engineSources(b: *Build) []const []const u8 {
    var kept: std.ArrayList([]const u8) = .empty;
    for (listSources(b, "src", ".c", .recursive)) |source| {
        if (!isNetSource(source)) kept.append(b.allocator, source) catch @panic("OOM");
    }
    return kept.items;
}

fn netSources(b: *Build, with_onednn: bool) []const []const u8 {
    var kept: std.ArrayList([]const u8) = .empty;
    for (listSources(b, "src", ".c", .recursive)) |source| {
        const needs_onednn = std.mem.startsWith(u8, source, "src/net/cpu/onednn");
        if (!isNetSource(source) or (needs_onednn and !with_onednn)) continue;
        kept.append(b.allocator, source) catch @panic("OOM");
    }
    return kept.items;
}

fn isNetSource(source: []const u8) bool {
    return std.mem.startsWith(u8, source, "src/net/") or std.mem.startsWith(u8, source, "src/io/");
}

/// Sorted paths of a folder's files, relative to the project. The configuration depends on the
/// folders' listings, so that added and removed files are noticed.
fn listSources(b: *Build, directory: []const u8, extension: []const u8, depth: enum { flat, recursive }) []const []const u8 {
    const io = b.graph.io;
    var found: std.ArrayList([]const u8) = .empty;
    var folders: std.ArrayList([]const u8) = .empty;
    folders.append(b.allocator, directory) catch @panic("OOM");
    while (folders.pop()) |folder| {
        track(b, folder);
        var open = b.root.openDir(io, folder, .{ .iterate = true }) catch continue;
        defer open.close(io);
        var entries = open.iterate();
        while (entries.next(io) catch |err| std.process.fatal("cannot list {s}: {t}", .{ folder, err })) |entry| {
            const path = b.fmt("{s}/{s}", .{ folder, entry.name });
            if (entry.kind == .directory and depth == .recursive and entry.name[0] != '.') {
                folders.append(b.allocator, path) catch @panic("OOM");
            } else if (entry.kind == .file and std.mem.endsWith(u8, entry.name, extension)) {
                found.append(b.allocator, path) catch @panic("OOM");
            }
        }
    }
    std.mem.sort([]const u8, found.items, {}, lessThan);
    return found.items;
}

fn lessThan(_: void, a: []const u8, b: []const u8) bool {
    return std.mem.lessThan(u8, a, b);
}

fn fileExists(b: *Build, path: []const u8) bool {
    std.Io.Dir.cwd().access(b.graph.io, path, .{}) catch return false;
    return true;
}

/// The checked-out commit's hash, read from .git itself: Git need not be installed.
fn gitCommit(b: *Build) []const u8 {
    const unknown = "unknown";
    if (!b.isRoot()) return unknown;
    var folder: []const u8 = ".git";
    if (readTracked(b, ".git")) |link| { // a worktree or submodule
        folder = std.mem.cutPrefix(u8, link, "gitdir: ") orelse return unknown;
    }
    const head = readTracked(b, b.pathJoin(&.{ folder, "HEAD" })) orelse return unknown;
    const ref = std.mem.cutPrefix(u8, head, "ref: ") orelse return head;
    if (readTracked(b, b.pathJoin(&.{ folder, ref }))) |hash| return hash;
    const common = if (readTracked(b, b.pathJoin(&.{ folder, "commondir" }))) |up| b.pathResolve(&.{ folder, up }) else folder;
    if (readTracked(b, b.pathJoin(&.{ common, ref }))) |hash| return hash;
    const packed_refs = readTracked(b, b.pathJoin(&.{ common, "packed-refs" })) orelse return unknown;
    var lines = std.mem.tokenizeScalar(u8, packed_refs, '\n');
    while (lines.next()) |line| {
        if (std.mem.endsWith(u8, line, ref) and line.len > ref.len) return line[0 .. line.len - ref.len - 1];
    }
    return unknown;
}

/// A file's text without surrounding space; null if there is none.
fn readTracked(b: *Build, path: []const u8) ?[]const u8 {
    track(b, path);
    const place = if (std.fs.path.isAbsolute(path)) std.Io.Dir.cwd() else b.root.root_dir.handle;
    const text = place.readFileAlloc(b.graph.io, path, b.allocator, .limited(1 << 20)) catch return null;
    return std.mem.trim(u8, text, " \r\n");
}

/// Makes the configuration depend on a file, or, since Zig cannot track what is not there yet, on
/// the listing of the nearest folder above it.
fn track(b: *Build, path: []const u8) void {
    const absolute = std.fs.path.isAbsolute(path);
    const place = if (absolute) std.Io.Dir.cwd() else b.root.root_dir.handle;
    var sub_path = path;
    while (true) {
        const lazy: LazyPath = if (absolute) .{ .cwd_relative = sub_path } else b.path(sub_path);
        if (place.statFile(b.graph.io, sub_path, .{})) |stat| {
            return if (stat.kind == .directory) b.dependOnDirectoryContents(lazy) else b.dependOnFileContents(lazy);
        } else |_| {}
        sub_path = std.fs.path.dirname(sub_path) orelse return;
    }
}
