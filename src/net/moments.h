/* SPDX-License-Identifier: MIT */
/**
 * A mini-batch's moments, as batch norm's running numbers take them: sums that are exact, so that
 * they are the same whatever the order, the schedule, and how many parts and ranks added them up.
 *
 * A sum lies as WEIR__MOMENT_DIGITS whole numbers, each in a floating-point number as gradients
 * are: digit k counts units of 4096^k * 2^-144. So adding numbers to each other adds sums, and
 * nothing is rounded before a digit has taken 4,096 terms. (A long accumulator, as Kulisch's; with
 * room for carries, as Demmel and Nguyen's "Parallel Reproducible Summation" has it.) Terms are
 * cut below 2^-144; what is 2^144 or more, infinite or no number makes the sum such, too.
 *
 * Per channel there are two: of the distances from the running mean, and of their squares; then one
 * in all, of how many numbers a channel has. Terms are made in double from each micro-batch's mean
 * and variance. Functions of any thread.
 */
#ifndef WEIR_MOMENTS_H
#define WEIR_MOMENTS_H

#include "base/base.h"

enum { WEIR__MOMENT_DIGITS = 24, WEIR__MOMENT_TERM = 6 };

/** Numbers in the moments of so many channels. */
static inline int64_t weir__moment_numbers(int64_t channels) {
    return (2 * channels + 1) * WEIR__MOMENT_DIGITS;
}

/** A term: digits first … first - count + 1. */
struct weir__term {
    int first, count;
    double digits[WEIR__MOMENT_TERM];
};
struct weir__term weir__term_of(double value);

/** Where the running numbers of one batch norm lie; `dtype` is of all but the last. */
struct weir__running_numbers {
    enum weir_dtype dtype;
    int64_t channels;
    const void *moments; /**< of a mini-batch */
    void *mean, *variance;
    int64_t *batches;
    bool plain; /**< moments are weighted as they move the numbers, and count micro-batches */
};
/** Takes a mini-batch in, as PyTorch's BatchNorm2d in training would the whole of it: the variance
 * is the unbiased one. `momentum` < 0: the mean over all mini-batches so far. One without numbers
 * changes nothing. With `plain` numbers become what PyTorch's would, one micro-batch after the
 * other: the linear recurrence, written out, is a weighted sum (net/kernel.h). */
void weir__running_move(const struct weir__running_numbers *numbers, double momentum);

#endif
