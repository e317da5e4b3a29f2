//! Levels: instruction sets that the CPU's kernels are compiled for, all into one library, which
//! takes the best that the processor has (src/net/cpu/level.h). All else is for the lowest.

const std = @import("std");
const Build = std.Build;
const Cpu = std.Target.Cpu;
const x86 = std.Target.x86;

pub const Level = struct {
    name: []const u8,
    model: ?*const Cpu.Model = null,
    /// Beyond the model's.
    features: []const x86.Feature = &.{},
    /// Clang's words for the same.
    clang: []const []const u8 = &.{},
};

const x86_levels: []const Level = &.{
    .{ .name = "v2", .model = &x86.cpu.x86_64_v2, .clang = &.{"-march=x86-64-v2"} },
    .{ .name = "v3", .model = &x86.cpu.x86_64_v3, .clang = &.{"-march=x86-64-v3"} },
    .{
        .name = "v4",
        .model = &x86.cpu.x86_64_v4,
        .clang = &.{ "-march=x86-64-v4", "-mprefer-vector-width=512" },
    },
};

/// v4 with AVX512-BF16, for products of bf16 alone (src/net/cpu/vector_pairs.c).
const pairs_level: Level = .{
    .name = "v4_pairs",
    .model = &x86.cpu.x86_64_v4,
    .features = &.{.avx512bf16},
    .clang = &.{ "-march=x86-64-v4", "-mavx512bf16", "-mprefer-vector-width=512" },
};

pub fn levels(arch: Cpu.Arch) []const Level {
    return switch (arch) {
        .x86_64 => x86_levels,
        .aarch64 => &.{.{ .name = "neon" }},
        else => &.{.{ .name = "plain" }},
    };
}

/// What is compiled without a target being asked for: this machine's kind, its lowest level.
pub fn baseline(b: *Build) std.Target.Query {
    return .{ .cpu_model = switch (b.graph.host.result.cpu.arch) {
        .x86_64 => .{ .explicit = x86_levels[0].model.? },
        else => .baseline,
    } };
}

/// Whether programs run on this kind of machine: std's own question counts the processor's model.
pub fn isNative(of: Build.ResolvedTarget) bool {
    return of.query.cpu_arch == null and of.query.isNativeOs() and of.query.isNativeAbi();
}

/// `base` with the level's instructions.
pub fn target(b: *Build, base: Build.ResolvedTarget, level: Level) Build.ResolvedTarget {
    const model = level.model orelse return base;
    var query = base.query;
    query.cpu_model = .{ .explicit = model };
    query.cpu_features_add = x86.featureSet(level.features);
    // Whole registers, which the kernels are written for.
    query.cpu_features_sub = x86.featureSet(&.{.prefer_256_bit});
    return b.resolveTargetQuery(query);
}

/// Files of src/net/cpu whose kernels store floats, whatever activations are stored as.
const float_files: []const []const u8 = &.{
    "vector_backend.c",
    "vector_conv.c",
    "vector_conv_single.c",
    "vector_conv_walk.c",
    "vector_conv_weight.c",
    "vector_flat.c",
    "vector_panel.c",
    "vector_winograd.c",
    "vector_winograd_pack.c",
    "vector_winograd_weight.c",
};

/// Files of that level; those named so are of no other.
const pair_files: []const []const u8 = &.{
    "vector_linear.c",
    "vector_linear_loss.c",
    "vector_panel.c",
    "vector_pairs.c",
    "vector_pairs_level.c",
};

/// What is compiled with the same instructions and words.
pub const Set = struct {
    level: Level,
    sources: []const []const u8,
    flags: []const []const u8,
};

/// Each file once for each level, and kernels once more, for numbers that are stored as bf16
/// (src/net/cpu/vector.h); products of these once more as pairs. Of `sources`, those that are not
/// leveled are left out.
pub fn sets(b: *Build, arch: Cpu.Arch, sources: []const []const u8) []const Set {
    var all: std.ArrayList(Set) = .empty;
    const leveled = only(b, sources, true);
    const plain = pick(b, leveled, isPlain);
    for (levels(arch)) |level| {
        const name = b.fmt("-DWEIR_LEVEL={s}", .{level.name});
        const flags = b.graph.dupeStrings(&.{name});
        const bf16 = b.graph.dupeStrings(&.{ name, "-DWEIR_STORED_BF16" });
        all.appendSlice(b.allocator, &.{
            .{ .level = level, .sources = plain, .flags = flags },
            .{ .level = level, .sources = pick(b, plain, isStored), .flags = bf16 },
        }) catch @panic("OOM");
    }
    if (arch == .x86_64) all.append(b.allocator, .{
        .level = pairs_level,
        .sources = pick(b, leveled, isOfPairs),
        .flags = &.{ "-DWEIR_LEVEL=v4_pairs", "-DWEIR_STORED_BF16", "-DWEIR_PAIRS" },
    }) catch @panic("OOM");
    return all.items;
}

/// Whether a leveled file is of kernels over numbers as they are stored.
fn isStored(source: []const u8) bool {
    return isKernel(source) and !isOneOf(source, float_files);
}

/// Whether it is of products of pairs, too, and whether of more than those.
fn isOfPairs(source: []const u8) bool {
    return isKernel(source) and isOneOf(source, pair_files);
}

fn isPlain(source: []const u8) bool {
    return !std.mem.startsWith(u8, std.fs.path.basename(source), "vector_pairs");
}

fn isKernel(source: []const u8) bool {
    return std.mem.startsWith(u8, source, "src/net/cpu/");
}

fn isOneOf(source: []const u8, names: []const []const u8) bool {
    for (names) |name| {
        if (std.mem.eql(u8, std.fs.path.basename(source), name)) return true;
    }
    return false;
}

fn pick(
    b: *Build,
    from: []const []const u8,
    wanted: *const fn ([]const u8) bool,
) []const []const u8 {
    var kept: std.ArrayList([]const u8) = .empty;
    for (from) |source| {
        if (wanted(source)) kept.append(b.allocator, source) catch @panic("OOM");
    }
    return kept.items;
}

/// Whether a file is compiled once for each level.
pub fn isLeveled(source: []const u8) bool {
    const name = std.fs.path.basename(source);
    return std.mem.startsWith(u8, name, "vector_") or std.mem.eql(u8, name, "test_vector.c");
}

/// Those of `sources` that are, or are not.
pub fn only(b: *Build, sources: []const []const u8, leveled: bool) []const []const u8 {
    var kept: std.ArrayList([]const u8) = .empty;
    for (sources) |source| {
        if (isLeveled(source) == leveled) kept.append(b.allocator, source) catch @panic("OOM");
    }
    return kept.items;
}
