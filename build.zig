//! Builds Weir: two static archives, the `weir` command, the tests and the benches.
//!
//! Sources are found by directory: every .c file below src/net and src/io belongs to libweir_net.a,
//! every other one below src to libweir.a; those below tools make bin/weir, those of tests and its
//! rooms (build/files.zig) with tools/data and tools/text the test program, bench/*.c the bench
//! program, each examples/*.c a program; src/*.h are public; the .cu of kernels/engine become
//! images in libweir.a, those of kernels/net in libweir_net.a, all of them with tests/fake_cuda a
//! library of the tests; examples/*.cu programs where nvcc is. A new file needs no change here.

const std = @import("std");
const builtin = @import("builtin");
const clang_parts = @import("build/clang_parts.zig");
const clang_tools = @import("build/clang.zig");
const cuda = @import("build/cuda.zig");
const embed = @import("build/embed.zig");
const files = @import("build/files.zig");
const flags_of = @import("build/flags.zig");
const gpu = @import("build/gpu.zig");
const levels = @import("build/levels.zig");
const mpi = @import("build/mpi.zig");
const package = @import("build/package.zig");
const page = @import("build/page.zig");
const portable_folder = @import("build/portable.zig");
const Build = std.Build;
const Compile = Build.Step.Compile;
const LazyPath = Build.LazyPath;
const Run = Build.Step.Run;
const Step = Build.Step;
const Clang = clang_tools.Clang;
const addObjects = clang_tools.addObjects;
const compileWithClang = clang_tools.compileWithClang;
const endLink = clang_tools.endLink;
const engineSources = files.engineSources;
const findClang = clang_tools.findClang;
const fresh = files.fresh;
const linkWithClang = clang_tools.linkWithClang;
const listSources = files.listSources;
const readTracked = files.readTracked;

const zig_wanted = "0.17.0";
const version = "0.1.0";

comptime {
    if (!std.mem.eql(u8, builtin.zig_version_string, zig_wanted)) @compileError(
        "Weir is built by Zig " ++ zig_wanted ++ ", this is Zig " ++ builtin.zig_version_string ++
            ": run './zigw build', which finds or installs the right one, or install it with " ++
            "'pip install ziglang==" ++ zig_wanted ++ "'",
    );
}

const Options = struct {
    target: Build.ResolvedTarget,
    optimize: std.builtin.Optimize,
    strict: bool,
    toolkits: cuda.Toolkits,
    sanitize_thread: bool = false,
    /// For other machines: without debug information.
    portable: bool = false,
    /// Of the tests on a GPU.
    sanitizer: gpu.Sanitizer = .none,
};

/// What is built from src, always together.
const Libraries = struct {
    engine: *Compile,
    net: *Compile,
    /// Linked before the others, whose files it has in part.
    counted: ?*Compile = null,
};

pub fn build(b: *Build) void {
    const train = b.step("train", "Train a GPT over a pipeline; options of 'weir train' after --");
    const tests = b.step("test", "Run the tests; parts of their names after -- choose some");
    const full_help = "Run the tests in depth: more sizes, seeds and repetitions";
    const tests_full = b.step("test-full", full_help);
    const examples = b.step("examples", "Build the programs of examples/ into zig-out/examples");
    const tidy = b.step("tidy", "Check the sources against the project's rules");
    const fmt = b.step("fmt", "Format with clang-format and zig fmt; '-- --check' only looks");
    const bench = b.step("bench", "Run the benches; topics and options after --");
    const results = b.step("results", "Make bench/RESULTS.md and its pictures of bench/results");
    const tsan = b.step("test-tsan", "Run the tests under ThreadSanitizer");
    const asan = b.step("test-asan", "Run the tests under Address- and UBSanitizer; needs clang");
    const mpi_help = "Run the tests of ranks, and those named after --, with an MPI from PyPI";
    const test_mpi = b.step("test-mpi", mpi_help);
    const kernel_help = "Print the CUDA kernels' registers and spills; fails if one spills";
    const kernel_report = b.step("kernel-report", kernel_help);
    const test_gpu = b.step("test-gpu", "Run the tests on this machine's GPU; -Dsanitizer=TOOL");
    const bench_gpu = b.step("bench-gpu", "Run the benches of GPUs; topics and options after --");
    const portable_help = "Gather programs and libraries for machines without Zig or packages";
    const portable = b.step("portable", portable_help);
    const first_help = "Learn all of this machine's GPU: see build/portable/run; -- --fake";
    const first_contact = b.step("first-contact", first_help);
    const fuzz = b.step("fuzz", "Fuzz what reads files; -runs=N and formats after --; needs clang");
    const install_help = "Install weir, its completion and its man pages into ~/.local, or -- DIR";
    const install_user = b.step("install-user", install_help);
    const commands = b.step("compile-commands", "Write compile_commands.json, for clangd");
    const archives = b.step("archives", "Compile the two archives alone");
    const program_help = "Install the test program alone, to be run elsewhere (-Dtarget=)";
    const program_alone = b.step("test-program", program_help);

    const options = parseOptions(b);
    const libraries = addLibraries(b, options);
    const both: embed.Archives = .{ .engine = libraries.engine, .net = libraries.net };
    const shared = embed.install(b, options.target, both, version);
    embed.addZigModules(b, options.target, both);
    if (!b.isRoot()) return;

    installCommand(b, options, libraries);
    mpi.installShim(b);
    train.dependOn(runTrain(b));
    const installed_examples = addExamples(b, options, libraries, examples);
    const bench_program = addBench(b, options, libraries);
    var test_program: TestProgram = .{
        .tests = addTestProgram(b, options, libraries),
        .bench = bench_program,
        .examples = installed_examples,
        .fake_cuda = addFakeCuda(b, options),
        .managed_cuda = addManagedCuda(b, options),
    };
    // One for another machine is linked where its libraries are.
    if (levels.isNative(options.target)) test_program.tests.step.dependOn(shared);
    tests.dependOn(runTests(b, test_program, &.{}));
    tests_full.dependOn(runTests(b, test_program, &.{"--full"}));
    test_program.mpi = mpi.bring(b);
    test_mpi.dependOn(runTests(b, test_program, &.{ "world", "cli_ranks", "cli_faults" }));
    addTidy(b, options, libraries, tidy);
    fmt.dependOn(runFormat(b));
    bench.dependOn(runBench(b, bench_program, &.{}));
    bench_gpu.dependOn(runBench(b, bench_program, &.{"--gpu"}));
    results.dependOn(runBench(b, bench_program, &.{ "--results", "bench" }));
    tidy.dependOn(runBench(b, bench_program, &.{ "--check-results", "bench" }));
    tsan.dependOn(runThreadSanitizer(b, options));
    asan.dependOn(runAddressSanitizer(b));
    kernel_report.dependOn(runHere(b, cuda.reportKernels(b, options.toolkits)));
    test_gpu.dependOn(runOnGpu(b, options, libraries));
    const folder = makePortable(b, options);
    portable.dependOn(&folder.step);
    first_contact.dependOn(runHere(b, portable_folder.runAll(b, folder)));
    install_user.dependOn(installForUser(b));
    fuzz.dependOn(runFuzzers(b));
    commands.dependOn(writeCompileCommands(b));
    inline for (.{ libraries.engine, libraries.net }) |part| archives.dependOn(&part.step);
    program_alone.dependOn(&b.addInstallArtifact(test_program.tests, .{}).step);
}

// ---- options -----------------------------------------------------------------------------------

fn parseOptions(b: *Build) Options {
    const Optimize = std.builtin.Optimize;
    const optimize_help = "debug, safe, fast (default) or small";
    // Zig shows a file's warnings only when the file fails, and its compiler is always the same.
    const strict_help = "Warnings are errors (default: yes, but not in a dependency)";
    const optimize = b.option(Optimize, "optimize", optimize_help);
    return .{
        .target = b.standardTargetOptions(.{ .default_target = levels.baseline(b) }),
        .optimize = optimize orelse switch (b.graph.release_mode) {
            .off, .any, .fast => .fast,
            .safe => .safe,
            .small => .small,
        },
        .strict = b.option(bool, "strict", strict_help) orelse b.isRoot(),
        .toolkits = cuda.parseOptions(b),
        .sanitizer = gpu.sanitizerOption(b),
    };
}

// ---- artifacts ---------------------------------------------------------------------------------

fn addLibraries(b: *Build, options: Options) Libraries {
    const engine = addEngine(b, options);
    return .{ .engine = engine, .net = addNet(b, options) };
}

fn addEngine(b: *Build, options: Options) *Compile {
    const module = createModule(b, options);
    addSources(b, options, module, engineSources(b), &.{});
    for (page.texts) |text| module.addCSourceFile(.{ .file = page.textSource(b, text) });
    addImages(b, options, module, cuda.engine_images);
    linkSystem(module, "hwloc");
    const library = fresh(b, b.addLibrary(.{ .name = "weir", .root_module = module }));
    inline for (.{ ".h", ".hpp" }) |ending| for (listSources(b, "src", ending, .flat)) |header| {
        library.installHeader(b.path(header), std.fs.path.basename(header)); // the net's too
    };
    return library;
}

/// Its programs link the engine beside it: neither waits for the other to be compiled.
fn addNet(b: *Build, options: Options) *Compile {
    const module = createModule(b, options);
    var rest: std.ArrayList([]const u8) = .empty;
    const sources = files.netSources(b);
    addLeveled(b, options, module, sources, &.{});
    for (levels.only(b, sources, false)) |source| {
        if (std.mem.startsWith(u8, source, "src/net/cpu/")) {
            addApart(b, options, module, source, &.{}, &.{});
        } else {
            rest.append(b.allocator, source) catch @panic("OOM");
        }
    }
    addSources(b, options, module, rest.items, &.{});
    addImages(b, options, module, cuda.net_images);
    linkSystem(module, "jansson");
    return fresh(b, b.addLibrary(.{ .name = "weir_net", .root_module = module }));
}

/// Compiles those of `sources` that have levels for every level, all side by side.
fn addLeveled(
    b: *Build,
    options: Options,
    module: *Build.Module,
    sources: []const []const u8,
    includes: []const []const u8,
) void {
    for (levels.sets(b, options.target.result.cpu.arch, sources)) |set| {
        var own = options;
        own.target = levels.target(b, options.target, set.level);
        for (set.sources) |source| addApart(b, own, module, source, set.flags, includes);
    }
}

/// A file that takes long: beside the others, and without waiting for nvcc.
fn addApart(
    b: *Build,
    options: Options,
    module: *Build.Module,
    source: []const u8,
    flags: []const []const u8,
    includes: []const []const u8,
) void {
    const part = createModule(b, options);
    for (includes) |include| part.addIncludePath(b.path(include));
    addSources(b, options, part, &.{source}, flags);
    linkSystem(part, "jansson"); // for the folders of headers, which only a library brings
    const name = std.fs.path.stem(source);
    module.addObject(fresh(b, b.addObject(.{ .name = name, .root_module = part })));
}

/// A program made of `sources`, which include from `folder`.
fn addProgram(
    b: *Build,
    options: Options,
    libraries: Libraries,
    folder: []const u8,
    sources: []const []const u8,
) *Compile {
    const module = createModule(b, options);
    const bench = std.mem.eql(u8, folder, "bench");
    const rest: []const []const u8 = if (bench) &.{ "tests", "tools" } else &.{"tools"};
    const includes = std.mem.concat(b.allocator, []const u8, &.{ &.{folder}, rest });
    addParts(b, options, module, sources, includes catch @panic("OOM"));
    if (libraries.counted) |counted| module.linkLibrary(counted);
    linkLibraries(module, libraries);
    if (!bench) for (files.text_libraries) |library| linkSystem(module, library);
    const name = b.fmt("weir_{s}", .{folder});
    return fresh(b, b.addExecutable(.{ .name = name, .root_module = module }));
}

/// On two cores the compiler takes a library's files one by one, so each folder's become a library
/// of their own: they are compiled side by side.
fn addParts(
    b: *Build,
    options: Options,
    module: *Build.Module,
    sources: []const []const u8,
    includes: []const []const u8,
) void {
    var begin: usize = 0;
    for (sources, 1..) |source, end| {
        const folder = std.fs.path.dirname(source).?;
        if (end < sources.len and std.mem.eql(u8, folder, std.fs.path.dirname(sources[end]).?)) {
            continue;
        }
        const part = createModule(b, options);
        for (includes) |include| part.addIncludePath(b.path(include));
        addSources(b, options, part, sources[begin..end], &.{});
        linkSystem(part, "jansson"); // likewise
        linkSystem(part, "hwloc");
        const name = std.mem.replaceOwned(u8, b.allocator, folder, "/", "_") catch @panic("OOM");
        module.linkLibrary(fresh(b, b.addLibrary(.{ .name = name, .root_module = part })));
        begin = end;
    }
}

fn addTestProgram(b: *Build, options: Options, libraries: Libraries) *Compile {
    var own = libraries;
    own.counted = addCounted(b, options);
    const sources = files.testSources(b);
    const program = addProgram(b, options, own, "tests", levels.only(b, sources, false));
    const includes: []const []const u8 = &.{ "tests", "tools" };
    addLeveled(b, options, program.root_module, sources, includes);
    addToys(b, options, program.root_module);
    return program;
}

/// Some of the libraries' files once more, counting their steps: see tests/steps.h.
fn addCounted(b: *Build, options: Options) *Compile {
    const module = createModule(b, options);
    const counts: []const []const u8 = &.{"-fsanitize-coverage=trace-pc"};
    module.addIncludePath(b.path("tools"));
    addSources(b, options, module, files.countedSources(b), counts);
    linkSystem(module, "jansson"); // its headers are in folders that only a linked library brings
    return fresh(b, b.addLibrary(.{ .name = "weir_counted", .root_module = module }));
}

fn addBench(b: *Build, options: Options, libraries: Libraries) *Compile {
    const own = listSources(b, "bench", ".c", .flat);
    const tools = listSources(b, "tools/cli", ".c", .flat);
    const sources = std.mem.concat(b.allocator, []const u8, &.{ own, tools }) catch @panic("OOM");
    const program = addProgram(b, options, libraries, "bench", levels.only(b, sources, false));
    addLeveled(b, options, program.root_module, sources, &.{"bench"});
    addCommit(b, program);
    addToys(b, options, program.root_module);
    return program;
}

/// tests/toys: kernels and what loads them, and what tests and benches know of ops.
fn addToys(b: *Build, options: Options, module: *Build.Module) void {
    module.addIncludePath(b.path("tests"));
    addSources(b, options, module, listSources(b, "tests/toys", ".c", .flat), &.{});
    addImages(b, options, module, cuda.toy_images);
}

fn addImages(b: *Build, options: Options, module: *Build.Module, images: cuda.Images) void {
    const source = cuda.imagesSource(b, options.toolkits, options.portable, images);
    module.addCSourceFile(.{ .file = source, .flags = flags_of.language_flags });
}

fn linkLibraries(module: *Build.Module, libraries: Libraries) void {
    linkSystem(module, "jansson");
    linkSystem(module, "hwloc");
    module.linkLibrary(libraries.net);
    module.linkLibrary(libraries.engine);
}

fn createModule(b: *Build, options: Options) *Build.Module {
    const checked = options.optimize == .debug or options.optimize == .safe;
    return b.createModule(.{
        .target = options.target,
        .optimize = options.optimize,
        .link_libc = true,
        .pic = true,
        .omit_frame_pointer = false,
        .strip = if (options.portable) true else null,
        // A trap needs no runtime, so that the archives link from any compiler.
        .sanitize_c = if (checked) .trap else .off,
        .sanitize_thread = options.sanitize_thread,
    });
}

fn addSources(
    b: *Build,
    options: Options,
    module: *Build.Module,
    sources: []const []const u8,
    flags: []const []const u8,
) void {
    const errors: []const []const u8 = &.{ "-Werror", "-Wno-error=deprecated-declarations" };
    const strict = if (options.strict) errors else &.{};
    const all: []const []const []const u8 = &.{ flags_of.c_flags, strict, flags };
    module.addIncludePath(b.path("src"));
    if (sources.len > 0) module.addCSourceFiles(.{
        .files = sources,
        .flags = std.mem.concat(b.allocator, []const u8, all) catch @panic("OOM"),
    });
}

/// pkg-config need not be there: the compiler knows the system's folders, and --search-prefix.
fn linkSystem(module: *Build.Module, name: []const u8) void {
    module.linkSystemLibrary(name, .{ .use_pkg_config = .no });
}

// ---- CUDA --------------------------------------------------------------------------------------

/// The kernels, compiled for the host, and a driver that runs them: the tests open it.
fn addFakeCuda(b: *Build, options: Options) *Compile {
    const module = createModule(b, options);
    module.sanitize_c = .trap;
    module.sanitize_thread = false; // its fibers are not threads, and its lock is one for all
    module.addIncludePath(b.path("kernels"));
    module.addIncludePath(b.path("tests/fake_cuda"));
    addSources(b, options, module, listSources(b, "tests/fake_cuda", ".c", .flat), &.{});
    addSources(b, options, module, files.referenceSources(b), &.{});
    const strict: []const []const u8 = if (options.strict) &.{"-Werror"} else &.{};
    const both: []const []const []const u8 = &.{ cuda.emulation_flags, strict };
    const flags = std.mem.concat(b.allocator, []const u8, both) catch @panic("OOM");
    for (cuda.emulatedSources(b)) |source| { // side by side
        const part = createModule(b, options);
        part.sanitize_c = .trap;
        part.sanitize_thread = false;
        part.addIncludePath(b.path("src"));
        part.addIncludePath(b.path("kernels"));
        part.addIncludePath(b.path("tests/fake_cuda"));
        part.addCSourceFile(.{ .file = b.path(source), .flags = flags, .language = .cpp });
        const name = std.fs.path.stem(source);
        module.addObject(fresh(b, b.addObject(.{ .name = name, .root_module = part })));
    }
    module.addCSourceFile(.{ .file = cuda.kernelTable(b), .flags = flags });
    return fresh(b, b.addLibrary(.{
        .name = "weir_fake_cuda",
        .linkage = .dynamic,
        .root_module = module,
    }));
}

/// The machine's driver, with memory that the host's code may touch.
fn addManagedCuda(b: *Build, options: Options) *Compile {
    const module = createModule(b, options);
    addSources(b, options, module, listSources(b, "tests/managed_cuda", ".c", .flat), &.{});
    return fresh(b, b.addLibrary(.{
        .name = "weir_managed_cuda",
        .linkage = .dynamic,
        .root_module = module,
    }));
}

fn runOnGpu(b: *Build, options: Options, libraries: Libraries) *Step {
    const program = addTestProgram(b, options, libraries);
    const managed = addManagedCuda(b, options);
    return runHere(b, gpu.runTests(b, program, managed, options.sanitizer));
}

// ---- installation ------------------------------------------------------------------------------

fn addCommand(b: *Build, options: Options, libraries: Libraries) *Compile {
    const command = addProgram(b, options, libraries, "tools", files.toolSources(b));
    addCommit(b, command);
    return command;
}

fn installCommand(b: *Build, options: Options, libraries: Libraries) void {
    const command = addCommand(b, options, libraries);
    const install = b.addInstallArtifact(command, .{ .dest_sub_path = "weir" });
    b.getInstallStep().dependOn(&install.step);
}

/// Every examples/*.c is a program of its own, and every .cu where nvcc compiles for this machine.
/// Returns what installs them; the step then also says where they are.
fn addExamples(b: *Build, options: Options, libraries: Libraries, step: *Step) *Step {
    const installed = &b.addWriteFiles().step; // empty: it only waits for all
    defer step.dependOn(sayExamples(b, installed));
    for (listSources(b, "examples", ".c", .flat)) |source| {
        const module = createModule(b, options);
        addSources(b, options, module, &.{source}, &.{});
        linkLibraries(module, libraries);
        const name = std.fs.path.stem(source);
        const program = fresh(b, b.addExecutable(.{ .name = name, .root_module = module }));
        const folder: Build.InstallDir = .{ .custom = "examples" };
        const install = b.addInstallArtifact(program, .{ .dest_dir = .{ .override = folder } });
        installed.dependOn(&install.step);
    }
    const nvcc = if (levels.isNative(options.target)) options.toolkits.nvcc else null;
    for (listSources(b, "examples", ".cu", .flat)) |source| {
        const program = cuda.compileProgram(b, nvcc orelse break, source, libraries.engine);
        const place = b.fmt("examples/{s}", .{std.fs.path.stem(source)});
        installed.dependOn(&b.addInstallFile(program, place).step);
    }
    return installed;
}

fn sayExamples(b: *Build, installed: *Step) *Step {
    const list = "echo 'run them as they are; what each does is said in examples/:'; ls \"$1\"/*";
    const say = b.addSystemCommand(&.{ "sh", "-c", list, "sh" });
    say.setName("list examples");
    say.addDirectoryArg2(b.graph.path(.install_prefix, "examples"), .{ .make_absolute = true });
    say.step.dependOn(installed);
    return runHere(b, say);
}

/// Defines weir_build_commit, in a file of its own: a new commit compiles that again and no other.
fn addCommit(b: *Build, program: *Compile) void {
    const text = b.fmt(
        \\extern const char weir_build_commit[];
        \\const char weir_build_commit[] = "{s}";
        \\
    , .{files.gitCommit(b)});
    program.root_module.addCSourceFile(.{ .file = b.addWriteFiles().add("build_commit.c", text) });
}

fn makePortable(b: *Build, options: Options) *Run {
    var own = options;
    own.target = b.resolveTargetQuery(levels.baseline(b));
    own.portable = true;
    const libraries = addLibraries(b, own);
    return portable_folder.gather(b, .{
        .weir = addCommand(b, own, libraries),
        .tests = addTestProgram(b, own, libraries),
        .bench = addBench(b, own, libraries),
    }, .{
        .fake = addFakeCuda(b, own),
        .managed = addManagedCuda(b, own),
    });
}

// ---- steps that run something ------------------------------------------------------------------

fn runTrain(b: *Build) *Step {
    const run = b.addRunFile(b.graph.path(.install_bin, "weir"));
    run.setName("weir train");
    run.step.dependOn(b.getInstallStep());
    // Where the README says; an option given after -- comes later and counts.
    run.addArgs(&.{ "train", "--save", "zig-out/gpt.safetensors" });
    run.addArgs(&.{ "--trace", "zig-out/trace.json", "--report", "zig-out/report.html" });
    return runHere(b, run);
}

fn installForUser(b: *Build) *Step {
    const run = b.addSystemCommand(&.{ "sh", "build/install_user.sh" });
    run.setName("install-user");
    run.addFileArg2(b.graph.path(.install_bin, "weir"), .{ .make_absolute = true });
    run.step.dependOn(b.getInstallStep());
    return runHere(b, run);
}

/// The tests, and what they use: programs of their own, and libraries that they open.
const TestProgram = struct {
    tests: *Compile,
    bench: *Compile,
    examples: *Step,
    fake_cuda: *Compile,
    managed_cuda: *Compile,
    /// A folder with bin/mpiexec; null: the one of PATH.
    mpi: ?LazyPath = null,
};

fn runTests(b: *Build, program: TestProgram, arguments: []const []const u8) *Step {
    const run = b.addRunArtifact(program.tests);
    run.setName("tests");
    // Some tests use what is installed: the command, the archives from other languages, examples.
    run.step.dependOn(b.getInstallStep());
    run.step.dependOn(program.examples);
    const prefix = b.graph.path(.install_prefix, "");
    run.addDirectoryArg2(prefix, .{ .prefix = "--prefix=", .make_absolute = true });
    const zig = b.graph.path(.zig_exe, "");
    run.addFileArg2(zig, .{ .prefix = "--zig=", .make_absolute = true });
    run.addArtifactArg2(program.bench, .{ .prefix = "--bench=", .make_absolute = true });
    addFakeCudaArgument(run, program.fake_cuda);
    gpu.addManaged(run, program.managed_cuda);
    if (program.mpi) |folder| {
        run.addDirectoryArg2(folder, .{ .prefix = "--mpi=", .make_absolute = true });
    }
    run.addArgs(arguments);
    return runHere(b, run);
}

fn addFakeCudaArgument(run: *Run, library: *Compile) void {
    run.addArtifactArg2(library, .{ .prefix = "--fake-cuda=", .make_absolute = true });
}

fn runBench(b: *Build, program: *Compile, arguments: []const []const u8) *Step {
    const run = b.addRunArtifact(program);
    run.setName("bench");
    run.addArgs(arguments);
    return runHere(b, run);
}

fn runFormat(b: *Build) *Step {
    const run = b.addSystemCommand(&.{ "sh", "tests/tidy/format.sh" });
    run.setName("fmt");
    run.addFileArg2(b.graph.path(.zig_exe, ""), .{ .make_absolute = true });
    return runHere(b, run);
}

fn writeCompileCommands(b: *Build) *Step {
    const run = b.addSystemCommand(&.{ "sh", "build/compile_commands.sh" });
    run.setName("compile-commands");
    run.addArgs(flags_of.c_flags);
    run.addArg("--");
    run.addArgs(cuda.emulation_flags);
    return runHere(b, run);
}

/// In the project's folder, with the caller's terminal and the arguments after --, every time.
fn runHere(b: *Build, run: *Run) *Step {
    run.setCwd(b.path(""));
    run.stdio = .inherit;
    run.addPassthruArgs();
    return &run.step;
}

// ---- tidy --------------------------------------------------------------------------------------

fn addTidy(b: *Build, options: Options, libraries: Libraries, step: *Step) void {
    const module = createModule(b, options);
    addSources(b, options, module, listSources(b, "tests/tidy", ".c", .flat), &.{});
    const program = fresh(b, b.addExecutable(.{ .name = "weir_tidy", .root_module = module }));

    const sources = b.addRunArtifact(program);
    sources.setName("tidy sources");
    step.dependOn(runHere(b, sources));

    const archives = b.addRunArtifact(program);
    archives.setName("tidy archives");
    archives.addArtifactArg2(libraries.engine, .{ .prefix = "--engine=" });
    archives.addArtifactArg2(libraries.net, .{ .prefix = "--net=" });
    step.dependOn(runHere(b, archives));

    step.dependOn(checkHeaders(b, options, .c));
    step.dependOn(checkHeaders(b, options, .cpp));
}

/// Every header must compile alone, as C and as C++; tests/suites.h is a list, not a header, and
/// the emulation is for C++ only.
fn checkHeaders(b: *Build, options: Options, language: enum { c, cpp }) *Step {
    const module = createModule(b, options);
    const written = b.addWriteFiles();
    var names: std.ArrayList([]const u8) = .empty;
    module.addIncludePath(b.path("."));
    for ([_][]const u8{ "src", "tools", "bench", "tests" }) |folder| {
        module.addIncludePath(b.path(folder));
        for (listSources(b, folder, ".h", .recursive)) |header| {
            if (std.mem.eql(u8, header, "tests/suites.h")) continue;
            const is_cpp = std.mem.eql(u8, header, "tests/fake_cuda/emulation.h");
            if (is_cpp and language == .c) continue;
            const name = b.fmt("{s}.{t}", .{ header, language });
            _ = written.add(name, b.fmt("#include \"{s}\"\n", .{header}));
            names.append(b.allocator, name) catch @panic("OOM");
        }
    }
    const cpp_flags: []const []const u8 = &.{ "-std=c++17", "-D_GNU_SOURCE" };
    module.addCSourceFiles(.{
        .root = written.getDirectory(),
        .files = names.items,
        .flags = if (language == .c) flags_of.language_flags else cpp_flags,
    });
    const name = b.fmt("headers_{t}", .{language});
    return &fresh(b, b.addLibrary(.{ .name = name, .root_module = module })).step;
}

// ---- sanitizers --------------------------------------------------------------------------------

/// Zig brings ThreadSanitizer's runtime.
fn runThreadSanitizer(b: *Build, options: Options) *Step {
    var own = options;
    own.sanitize_thread = true;
    const run = b.addRunArtifact(addTestProgram(b, own, addLibraries(b, own)));
    run.setName("tests under ThreadSanitizer");
    addFakeCudaArgument(run, addFakeCuda(b, own));
    return runHere(b, run);
}

/// Zig has no AddressSanitizer runtime, so the system's clang compiles the same files.
fn runAddressSanitizer(b: *Build) *Step {
    const clang: Clang = .{
        .program = findClang(b),
        .dialect = flags_of.c_flags,
        .flags = flags_of.sanitizer_flags,
    };
    const program = clang_parts.linkTests(b, clang);
    const run = b.addRunFile(program);
    run.setName("tests under AddressSanitizer");
    run.addFileArg2(clang_parts.linkFakeCuda(b, clang), .{
        .prefix = "--fake-cuda=",
        .make_absolute = true,
    });
    return runHere(b, run);
}

/// One program for each tests/fuzz/fuzz_<format>.c, with everything of src.
fn runFuzzers(b: *Build) *Step {
    const check = b.addSystemCommand(&.{"sh"});
    check.setName("find libFuzzer");
    check.addFileArg(b.path("tests/fuzz/check.sh"));
    check.addArgs(clang_tools.clang_names);
    const clang: Clang = .{
        .program = findClang(b),
        .dialect = flags_of.c_flags,
        .flags = flags_of.sanitizer_flags ++ .{"-fsanitize=fuzzer-no-link"},
        .after = &check.step,
    };
    const run = b.addSystemCommand(&.{ "sh", "tests/fuzz/run.sh" });
    run.setName("fuzz");
    const shared: []const []const u8 =
        &.{ "tests/io/io_memory.c", "tests/fuzz/fuzz.c", "tests/fuzz/arrays.c" };
    const objects: []const []const LazyPath = &.{
        compileWithClang(b, clang, engineSources(b), &.{}),
        clang_parts.compileGenerated(b, clang),
        clang_parts.compileLevels(b, clang, files.netSources(b)),
        compileWithClang(b, clang, shared, &.{}),
        compileWithClang(b, clang, files.dataSources(b), &.{}),
    };
    for (listSources(b, "tests/fuzz", ".c", .flat)) |target| {
        const name = std.fs.path.stem(target);
        if (!std.mem.startsWith(u8, name, "fuzz_")) continue;
        const link = linkWithClang(b, clang, name);
        link.addArg("-fsanitize=fuzzer");
        for (objects) |list| addObjects(link, list);
        addObjects(link, compileWithClang(b, clang, &.{target}, &.{}));
        run.addFileArg(endLink(link, b.fmt("weir_{s}", .{name})));
    }
    run.addArg("--");
    return runHere(b, run);
}
