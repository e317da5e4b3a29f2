//! What build.zig reads of the project's folders, so that the configuration depends on it.

const std = @import("std");
const Build = std.Build;
const LazyPath = Build.LazyPath;

/// Sorted paths of a folder's files, relative to the project. The configuration depends on the
/// folders' listings, so that added and removed files are noticed.
pub fn listSources(
    b: *Build,
    folder: []const u8,
    extension: []const u8,
    depth: enum { flat, recursive },
) []const []const u8 {
    const io = b.graph.io;
    var found: std.ArrayList([]const u8) = .empty;
    var folders: std.ArrayList([]const u8) = .empty;
    folders.append(b.allocator, folder) catch @panic("OOM");
    while (folders.pop()) |next| {
        track(b, next);
        var open = b.root.openDir(io, next, .{ .iterate = true }) catch continue;
        defer open.close(io);
        var entries = open.iterate();
        while (entries.next(io) catch @panic("cannot list a folder")) |entry| {
            const path = b.fmt("{s}/{s}", .{ next, entry.name });
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

/// Every .c file below src that knows no net.
pub fn engineSources(b: *Build) []const []const u8 {
    var kept: std.ArrayList([]const u8) = .empty;
    for (listSources(b, "src", ".c", .recursive)) |source| {
        if (!isNetSource(source)) kept.append(b.allocator, source) catch @panic("OOM");
    }
    return kept.items;
}

/// The others.
pub fn netSources(b: *Build) []const []const u8 {
    var kept: std.ArrayList([]const u8) = .empty;
    for (listSources(b, "src", ".c", .recursive)) |source| {
        if (isNetSource(source)) kept.append(b.allocator, source) catch @panic("OOM");
    }
    return kept.items;
}

/// The command's.
pub fn toolSources(b: *Build) []const []const u8 {
    return listSources(b, "tools", ".c", .recursive);
}

/// What the command reads data sets and tokenizers with; the tests and the fuzz targets have it,
/// too.
pub fn dataSources(b: *Build) []const []const u8 {
    const data = listSources(b, "tools/data", ".c", .flat);
    const text = listSources(b, "tools/text", ".c", .flat);
    return std.mem.concat(b.allocator, []const u8, &.{ data, text }) catch @panic("OOM");
}

/// What tools/text stands on, and no library of the project's.
pub const text_libraries: []const []const u8 = &.{ "pcre2-8", "utf8proc" };

/// Folders below tests whose files are the test program's; the others are programs, libraries and
/// data of their own.
const test_rooms: []const []const u8 =
    &.{ "cli", "cuda", "engine", "io", "kernels", "net", "schedule", "text", "world" };

/// The test program's, but for tests/toys.
pub fn testSources(b: *Build) []const []const u8 {
    var found: std.ArrayList([]const u8) = .empty;
    found.appendSlice(b.allocator, listSources(b, "tests", ".c", .flat)) catch @panic("OOM");
    for (test_rooms) |room| {
        const sources = listSources(b, b.fmt("tests/{s}", .{room}), ".c", .flat);
        found.appendSlice(b.allocator, sources) catch @panic("OOM");
    }
    return found.items;
}

/// Those whose loops the tests count, instead of looking at a clock: what reads files, fills and
/// simulates tables, and searches.
pub fn countedSources(b: *Build) []const []const u8 {
    var kept: std.ArrayList([]const u8) = .empty;
    kept.appendSlice(b.allocator, dataSources(b)) catch @panic("OOM");
    for (listSources(b, "src", ".c", .recursive)) |source| {
        if (isCounted(source)) kept.append(b.allocator, source) catch @panic("OOM");
    }
    return kept.items;
}

fn isCounted(source: []const u8) bool {
    for ([_][]const u8{ "src/io/", "src/schedule/", "src/balance/" }) |folder| {
        if (std.mem.startsWith(u8, source, folder)) return true;
    }
    for ([_][]const u8{ "/model.c", "/hash.c" }) |name| { // layers' names
        if (std.mem.endsWith(u8, source, name)) return true;
    }
    return false;
}

/// What the fake driver computes products and convolutions with, and what that needs.
pub fn referenceSources(b: *Build) []const []const u8 {
    const own: []const []const u8 = &.{
        "src/net/cpu/reference_f32.c",
        "src/net/cpu/shared.c",
        "src/net/moments.c",
        "src/net/scalar.c",
        "src/net/cuda/workspace.c",
    };
    const base = listSources(b, "src/base", ".c", .flat);
    return std.mem.concat(b.allocator, []const u8, &.{ own, base }) catch @panic("OOM");
}

fn isNetSource(source: []const u8) bool {
    const startsWith = std.mem.startsWith;
    return startsWith(u8, source, "src/net/") or startsWith(u8, source, "src/io/");
}

pub fn fileExists(b: *Build, path: []const u8) bool {
    std.Io.Dir.cwd().access(b.graph.io, path, .{}) catch return false;
    return true;
}

/// Whether both paths lead to one file.
pub fn isSameFile(b: *Build, path: []const u8, other: []const u8) bool {
    const here = std.Io.Dir.cwd();
    const one = here.statFile(b.graph.io, path, .{}) catch return false;
    const two = here.statFile(b.graph.io, other, .{}) catch return false;
    return one.inode == two.inode and one.size == two.size;
}

/// The checked-out commit's hash, read from .git itself: Git need not be installed.
pub fn gitCommit(b: *Build) []const u8 {
    const cutPrefix = std.mem.cutPrefix;
    const unknown = "unknown";
    var folder: []const u8 = ".git";
    if (readTracked(b, ".git")) |link| { // a worktree or submodule
        folder = cutPrefix(u8, link, "gitdir: ") orelse return unknown;
    }
    const head = readTracked(b, b.pathJoin(&.{ folder, "HEAD" })) orelse return unknown;
    const ref = cutPrefix(u8, head, "ref: ") orelse return head;
    if (readTracked(b, b.pathJoin(&.{ folder, ref }))) |hash| return hash;
    const up = readTracked(b, b.pathJoin(&.{ folder, "commondir" })) orelse ".";
    const common = b.pathResolve(&.{ folder, up });
    if (readTracked(b, b.pathJoin(&.{ common, ref }))) |hash| return hash;
    const refs = readTracked(b, b.pathJoin(&.{ common, "packed-refs" })) orelse return unknown;
    var lines = std.mem.tokenizeScalar(u8, refs, '\n');
    while (lines.next()) |line| {
        const hash = std.mem.cutSuffix(u8, line, ref) orelse continue;
        return std.mem.trim(u8, hash, " ");
    }
    return unknown;
}

/// A file's text without surrounding space; null if there is none.
pub fn readTracked(b: *Build, path: []const u8) ?[]const u8 {
    track(b, path);
    var file = placeOf(b, path).openFile(b.graph.io, path, .{}) catch return null;
    defer file.close(b.graph.io);
    var reader = file.reader(b.graph.io, &.{});
    const text = reader.interface.allocRemaining(b.allocator, .limited(1 << 20)) catch return null;
    return std.mem.trim(u8, text, " \r\n");
}

/// Zig's record of an archive or a program names the headers of those files only that it compiled
/// when it wrote the record, so that later changes of the others' headers pass unseen. With a build
/// ID that changes with any header it looks at its files again, each of which has a record of its
/// own that is whole.
pub fn fresh(b: *Build, compile: *Build.Step.Compile) *Build.Step.Compile {
    compile.build_id = headersDigest(b);
    return compile;
}

var digest: ?std.zig.BuildId = null;

/// Of all that sources include.
fn headersDigest(b: *Build) std.zig.BuildId {
    if (digest) |known| return known;
    var md5 = std.crypto.hash.Md5.init(.{});
    for ([_][]const u8{ "src", "tools", "tests", "bench", "kernels" }) |folder| {
        for ([_][]const u8{ ".h", ".cuh", ".inc" }) |ending| addAll(b, &md5, folder, ending);
    }
    // Tests include some of these whole.
    for ([_][]const u8{ "tools", "tests/tidy" }) |folder| addAll(b, &md5, folder, ".c");
    var bytes: [16]u8 = undefined;
    md5.final(&bytes);
    // Zig stops at an ID with a zero in it.
    for (&bytes) |*byte| byte.* = @max(byte.*, 1);
    digest = .initHexString(&bytes);
    return digest.?;
}

fn addAll(b: *Build, md5: *std.crypto.hash.Md5, folder: []const u8, ending: []const u8) void {
    for (listSources(b, folder, ending, .recursive)) |path| {
        md5.update(readTracked(b, path) orelse "");
    }
}

/// Makes the configuration depend on a file, or, since Zig cannot track what is not there yet, on
/// the listing of the nearest folder above it.
pub fn track(b: *Build, path: []const u8) void {
    const absolute = std.fs.path.isAbsolute(path);
    var sub_path = path;
    while (true) {
        const lazy: LazyPath = if (absolute) .{ .cwd_relative = sub_path } else b.path(sub_path);
        if (placeOf(b, path).statFile(b.graph.io, sub_path)) |stat| {
            if (stat.kind != .directory) return b.dependOnFileContents(lazy);
            return b.dependOnDirectoryContents(lazy);
        } else |_| {}
        sub_path = std.fs.path.dirname(sub_path) orelse return;
    }
}

/// What a path is relative to.
fn placeOf(b: *Build, path: []const u8) Build.Cache.Path {
    return if (std.fs.path.isAbsolute(path)) .cwd() else b.root;
}
