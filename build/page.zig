//! The report's page: its texts as C files.

const std = @import("std");
const files = @import("files.zig");
const Build = std.Build;
const LazyPath = Build.LazyPath;

/// What the report's page is made of besides C stays a file of its own kind.
pub const Text = struct { path: []const u8, symbol: []const u8 };
pub const texts = [_]Text{
    .{ .path = "src/trace/page.css", .symbol = "weir__page_style" },
    .{ .path = "src/trace/page.js", .symbol = "weir__page_script" },
};

/// A C file that defines `symbol` as the file's text.
pub fn textSource(b: *Build, text: Text) LazyPath {
    const read = files.readTracked(b, text.path) orelse
        std.process.fatal("{s} is missing", .{text.path});
    var source: std.ArrayList(u8) = .empty;
    source.print(b.allocator, "extern const char {s}[];\nconst char {s}[] =\n    \"", .{
        text.symbol,
        text.symbol,
    }) catch @panic("OOM");
    for (read) |byte| source.appendSlice(b.allocator, switch (byte) {
        '\n' => "\\n\"\n    \"",
        '"' => "\\\"",
        '\\' => "\\\\",
        else => &.{byte},
    }) catch @panic("OOM");
    source.appendSlice(b.allocator, "\\n\";\n") catch @panic("OOM");
    return b.addWriteFiles().add(b.fmt("{s}.c", .{text.symbol}), source.items);
}
