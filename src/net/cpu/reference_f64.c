/* SPDX-License-Identifier: MIT */
/*
 * The reference kernels in f64: the oracle of the tests, and what f64 nets run on. See
 * reference_f32.c for the three macros.
 */
#define REAL double
#define NAME(name) name##_f64
#define MATH(name) name
#include "net/cpu/reference.inc"
