/* SPDX-License-Identifier: MIT */
/** Minimal filtering of 2 x 2 pixels by 3 x 3 taps, number by number: what our kernels' bits are.
 */
#ifndef WEIR_TESTS_WINOGRAD_H
#define WEIR_TESTS_WINOGRAD_H

#include "kernels/kernels.h"

/** How products are added: a * b + sum, rounded once or twice. */
typedef float winograd_add_fn(bool fused, float a, float b, float sum);

/** A convolution of 3 x 3 taps without strides, groups or dilation: its results without the bias
 * and what they are added to. */
void winograd_sums(const struct kernel_case *test, winograd_add_fn *add, bool fused, float *sums);

#endif
