/* SPDX-License-Identifier: MIT */
/* Exact sums, and how they move the running numbers. */
#include "net/moments.h"
#include "net/scalar.h"

#include <math.h>

enum { DIGIT_BITS = 12, LEAST_BITS = -144 };

struct weir__term weir__term_of(double value) {
    struct weir__term term = {.first = WEIR__MOMENT_DIGITS - 1, .count = 1};
    int bits = 0;
    if (value == 0) return (struct weir__term){0};
    if (isfinite(value)) (void)frexp(value, &bits);
    if (!isfinite(value) || bits > -LEAST_BITS) {
        term.digits[0] = isnan(value) ? value : copysign(INFINITY, value);
        return term;
    }
    if (bits <= LEAST_BITS) return (struct weir__term){0};
    term.first = (bits - 1 - LEAST_BITS) / DIGIT_BITS;
    assert(term.first < WEIR__MOMENT_DIGITS);
    double rest = ldexp(value, -(LEAST_BITS + term.first * DIGIT_BITS));
    for (term.count = 0; rest != 0 && term.count <= term.first; term.count++) {
        assert(term.count < WEIR__MOMENT_TERM && fabs(rest) < 1 << DIGIT_BITS);
        term.digits[term.count] = trunc(rest);
        rest = (rest - trunc(rest)) * (1 << DIGIT_BITS);
    }
    return term;
}

/** From the largest digit down; most are 0. */
static double sum_of(enum weir_dtype dtype, const void *digits, int64_t number) {
    double sum = 0;
    for (int k = WEIR__MOMENT_DIGITS; k-- > 0;) {
        uint64_t place = (uint64_t)(number * WEIR__MOMENT_DIGITS + k);
        double digit = weir__number_at(dtype, digits, place);
        if (digit != 0) sum += ldexp(digit, LEAST_BITS + k * DIGIT_BITS);
    }
    return sum;
}

static void store(enum weir_dtype dtype, void *numbers, int64_t index, double value) {
    assert(dtype == WEIR_F32 || dtype == WEIR_F64);
    if (dtype == WEIR_F64)
        ((double *)numbers)[index] = value;
    else
        ((float *)numbers)[index] = (float)value;
}

/** mean += share * its sum, variance = kept * variance + share * its sum. */
static void move_plain(const struct weir__running_numbers *numbers, double momentum,
                       uint64_t count) {
    uint64_t before = (uint64_t)*numbers->batches, after = before + count;
    double share = momentum < 0 ? 1 / (double)after : 1;
    double kept = momentum < 0 ? (double)before * share : weir__power(1 - momentum, count);
    *numbers->batches = (int64_t)after;
    for (int64_t c = 0; c < numbers->channels; c++) {
        double mean = weir__number_at(numbers->dtype, numbers->mean, (uint64_t)c);
        double variance = weir__number_at(numbers->dtype, numbers->variance, (uint64_t)c);
        double sum = sum_of(numbers->dtype, numbers->moments, 2 * c);
        double squares = sum_of(numbers->dtype, numbers->moments, 2 * c + 1);
        store(numbers->dtype, numbers->mean, c, mean + share * sum);
        store(numbers->dtype, numbers->variance, c, kept * variance + share * squares);
    }
}

void weir__running_move(const struct weir__running_numbers *numbers, double momentum) {
    assert(numbers->channels >= 1 && momentum <= 1);
    double count = sum_of(numbers->dtype, numbers->moments, 2 * numbers->channels);
    if (count == 0) return;
    if (numbers->plain) {
        move_plain(numbers, momentum, (uint64_t)count);
        return;
    }
    *numbers->batches += 1;
    double share = momentum < 0 ? 1 / (double)*numbers->batches : momentum;
    for (int64_t c = 0; c < numbers->channels; c++) {
        double mean = weir__number_at(numbers->dtype, numbers->mean, (uint64_t)c);
        double variance = weir__number_at(numbers->dtype, numbers->variance, (uint64_t)c);
        double distance = sum_of(numbers->dtype, numbers->moments, 2 * c) / count;
        double squares = sum_of(numbers->dtype, numbers->moments, 2 * c + 1);
        double found = (squares - distance * distance * count) / (count - 1);
        if (found < 0) found = 0; /* rounding; a NaN stays */
        store(numbers->dtype, numbers->mean, c, mean + share * distance);
        store(numbers->dtype, numbers->variance, c, variance + share * (found - variance));
    }
}
