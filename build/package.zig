//! What pkg-config and CMake read of the installed libraries.

const std = @import("std");
const Build = std.Build;

pub fn fillTemplate(b: *Build, version: []const u8, template: []const u8) []const u8 {
    const allocator = b.allocator;
    return std.mem.replaceOwned(u8, allocator, template, "@VERSION@", version) catch @panic("OOM");
}
