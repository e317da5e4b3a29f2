/* SPDX-License-Identifier: MIT */
/* Order statistics and the bootstrap. Nothing here assumes a distribution: times on a shared
 * machine have a long tail, which is why medians are compared and not means. */
#include "harness.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RESAMPLES = 2000 };

uint64_t bench_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double *copy_of(const double *samples, uint32_t count) {
    double *copy = malloc((count + 1) * sizeof *copy);
    if (copy == NULL) bench_die("out of memory");
    memcpy(copy, samples, count * sizeof *copy);
    return copy;
}

static double quantile_of_sorted(const double *sorted, uint32_t count, double q) {
    double place = q * (count - 1);
    uint32_t below = (uint32_t)place;
    uint32_t above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - below) * (sorted[above] - sorted[below]);
}

double bench_quantile(const double *samples, uint32_t count, double q) {
    if (count == 0) return NAN;
    double *sorted = copy_of(samples, count);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    double quantile = quantile_of_sorted(sorted, count, q);
    free(sorted);
    return quantile;
}

double bench_median(const double *samples, uint32_t count) {
    return bench_quantile(samples, count, 0.5);
}

uint32_t bench_outliers(const double *samples, uint32_t count) {
    double low = bench_quantile(samples, count, 0.25);
    double high = bench_quantile(samples, count, 0.75), fence = 1.5 * (high - low);
    uint32_t outliers = 0;
    for (uint32_t i = 0; i < count; i++)
        outliers += samples[i] < low - fence || samples[i] > high + fence;
    return outliers;
}

/* The median of samples[pick[i]]; `scratch` has room for them. */
static double median_of(const double *samples, const uint32_t *pick, uint32_t count,
                        double *scratch) {
    for (uint32_t i = 0; i < count; i++) scratch[i] = samples[pick[i]];
    qsort(scratch, count, sizeof *scratch, compare_doubles);
    return quantile_of_sorted(scratch, count, 0.5);
}

static void draw(uint32_t *pick, uint32_t count, uint64_t *random) {
    for (uint32_t i = 0; i < count; i++) pick[i] = (uint32_t)(bench_random(random) % count);
}

struct bench_interval bench_ratio_interval(const double *a, uint32_t a_count, const double *b,
                                           uint32_t b_count, bool paired, uint64_t seed) {
    if (a_count == 0 || b_count == 0) return (struct bench_interval){NAN, NAN};
    assert(!paired || a_count == b_count);
    uint32_t most = a_count > b_count ? a_count : b_count;
    double *ratios = malloc(RESAMPLES * sizeof *ratios), *scratch = malloc(most * sizeof *scratch);
    uint32_t *pick = malloc(most * sizeof *pick);
    if (ratios == NULL || scratch == NULL || pick == NULL) bench_die("out of memory");
    for (uint32_t i = 0; i < RESAMPLES; i++) {
        draw(pick, a_count, &seed);
        double above = median_of(a, pick, a_count, scratch);
        if (!paired) draw(pick, b_count, &seed);
        ratios[i] = above / median_of(b, pick, b_count, scratch);
    }
    qsort(ratios, RESAMPLES, sizeof *ratios, compare_doubles);
    struct bench_interval interval = {quantile_of_sorted(ratios, RESAMPLES, 0.025),
                                      quantile_of_sorted(ratios, RESAMPLES, 0.975)};
    free(ratios);
    free(scratch);
    free(pick);
    return interval;
}

struct bench_interval bench_median_interval(const double *samples, uint32_t count, uint64_t seed) {
    const double one = 1.0;
    return bench_ratio_interval(samples, count, &one, 1, false, seed);
}

struct bench_line bench_fit(const double *x, const double *y, uint32_t count) {
    double x_mean = 0.0, y_mean = 0.0, above = 0.0, below = 0.0;
    for (uint32_t i = 0; i < count; i++) x_mean += x[i] / count, y_mean += y[i] / count;
    for (uint32_t i = 0; i < count; i++) {
        above += (x[i] - x_mean) * (y[i] - y_mean);
        below += (x[i] - x_mean) * (x[i] - x_mean);
    }
    double slope = above / below;
    return (struct bench_line){y_mean - slope * x_mean, slope};
}

void bench_fit_copies(const double *bytes, const double *seconds, uint32_t count, double *alpha,
                      double *beta) {
    double aa = 0.0, ab = 0.0, bb = 0.0, a = 0.0, b = 0.0;
    for (uint32_t i = 0; i < count; i++) {
        double x = 1.0 / seconds[i], y = bytes[i] / seconds[i];
        aa += x * x, ab += x * y, bb += y * y, a += x, b += y;
    }
    double determinant = aa * bb - ab * ab;
    *alpha = (a * bb - b * ab) / determinant;
    *beta = determinant / (b * aa - a * ab);
}
