/* SPDX-License-Identifier: MIT */
/**
 * Functions of doubles in what decides bits, from sums and products in a fixed order: the C
 * library's differ by processor. Within 4 units of the last place of the exact result, or of 1
 * where that is smaller. Any thread.
 */
#ifndef WEIR_SCALAR_H
#define WEIR_SCALAR_H

#include <stdint.h>

/** The natural logarithm of a normal x > 0. */
double weir__log(double x);
/** e^x, |x| <= 700. */
double weir__exp(double x);
/** Of the angle 2 pi * turns, 0 <= turns <= 1. */
double weir__cos_of_turns(double turns);
double weir__sin_of_turns(double turns);
/** base^exponent for 0 <= base <= 1, by squaring: within `exponent` units of the last place. */
double weir__power(double base, uint64_t exponent);

#endif
