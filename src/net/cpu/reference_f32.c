/* SPDX-License-Identifier: MIT */
/*
 * The reference kernels in f32: what runs where no faster row exists. The loops are written once,
 * in the .inc files, and compiled here and in reference_f64.c: REAL is the dtype, NAME gives its
 * functions names of their own, MATH picks the C library's function for it.
 */
#define REAL float
#define NAME(name) name##_f32
#define MATH(name) name##f
#include "net/cpu/reference.inc"
