//! What C is compiled with.

/// Bits matter: no fast-math, and multiply and add are fused only where the source says so.
pub const language_flags: []const []const u8 = &.{
    "-std=c11",
    "-D_GNU_SOURCE",
    "-fno-math-errno",
    "-ffp-contract=off",
};
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
pub const c_flags = language_flags ++ warning_flags;
pub const sanitizer_flags: []const []const u8 = &.{
    "-O1",
    "-g",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-omit-frame-pointer",
};
