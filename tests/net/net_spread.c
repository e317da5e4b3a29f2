/* SPDX-License-Identifier: MIT */
#include "net/net_spread.h"

#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 8, FACTOR = 8, NEAREST_FACTOR = 2, SINGLE_DIGITS = 24, BF16_DIGITS = 8 };
enum { DISTANCES = sizeof(struct net_distances) / sizeof(double) };
_Static_assert(sizeof(struct net_distances) % sizeof(double) == 0, "doubles, one behind the other");

static size_t numbers(size_t exact_bytes) {
    return exact_bytes / sizeof(double);
}

/* `output` is what the output has, `dtype` what gradients have. */
static void measure(const struct net_spread *spread, const struct trial_result got[2],
                    enum weir_dtype dtype, enum weir_dtype output, struct net_distances *to) {
    const struct trial_result *exact = spread->exact;
    memset(to, 0, sizeof *to);
    for (int i = 0; i < 2; i++) to->loss[i] = fabs(got[i].loss - exact[i].loss);
    to->norm = fabs(got->norm - exact->norm);
    to->output =
        net_exact_distance(got->output, output, exact->output, 0, numbers(exact->output_bytes));
    if (spread->has_input_grad)
        to->input_grad = net_exact_distance(got->input_grad, dtype, exact->input_grad, 0,
                                            numbers(exact->input_grad_bytes));
    for (uint32_t i = 0; i < spread->parts.count; i++) {
        const struct net_part *part = &spread->parts.list[i];
        if (!part->frozen)
            to->gradients[i] = net_exact_distance(got->gradients, dtype, exact->gradients,
                                                  part->first, part->count);
    }
}

/* ---- what is allowed ---- */

static void take_sample(struct net_spread *spread, const struct net_problem *problem,
                        const struct weir_net_options *options, const struct trial_data *data,
                        uint64_t seed) {
    const struct net_rounding rounding = {spread->digits, seed};
    const enum weir_dtype dtype = seed == 0 ? WEIR_F64 : WEIR_F32;
    struct trial_result sample[2] = {{0}};
    struct net_distances distances;
    double *sums = (double *)&spread->allowed;
    const double *each = (const double *)&distances;
    net_exact_train(problem, options, data, &rounding, sample);
    if (!test_has_failed()) {
        measure(spread, sample, dtype, dtype, &distances);
        for (size_t i = 0; i < DISTANCES; i++)
            sums[i] += seed == 0 ? NEAREST_FACTOR * each[i] : each[i] * each[i];
    }
    for (int k = 0; k < 2; k++) trial_result_clean_up(&sample[k]);
}

void net_spread_init(struct net_spread *spread, const struct net_problem *problem,
                     const struct weir_net_options *options, const struct trial_data *data,
                     enum weir_dtype dtype) {
    const struct net_rounding none = {0, 0};
    double *allowed = (double *)&spread->allowed;
    memset(spread, 0, sizeof *spread);
    spread->digits = dtype == WEIR_BF16 ? BF16_DIGITS : SINGLE_DIGITS;
    spread->has_input_grad = options->input_grads && weir_dtype_is_float(problem->input.dtype);
    net_exact_parts(problem, options, &spread->parts);
    net_exact_train(problem, options, data, &none, spread->exact);
    for (uint64_t i = 1; i <= SAMPLES && !test_has_failed(); i++)
        take_sample(spread, problem, options, data, i);
    for (size_t i = 0; i < DISTANCES; i++) allowed[i] = FACTOR * sqrt(allowed[i] / SAMPLES);
    if (!test_has_failed()) take_sample(spread, problem, options, data, 0);
}

void net_spread_clean_up(struct net_spread *spread) {
    for (int k = 0; k < 2; k++) trial_result_clean_up(&spread->exact[k]);
}

/* ---- checks ---- */

static bool expect_within(const struct net_spread *spread, double distance, double allowed,
                          double norm, const char *what) {
    double bound = allowed + ldexp(norm, spread->digits == BF16_DIGITS ? -8 : -22);
    if (distance <= bound) return true;
    TEST_FAIL("%s is %.3g from f64's, which is %.3g; at most %.3g", what, distance, norm, bound);
    return false;
}

static double largest_gradient(const struct net_spread *spread) {
    double most = 0;
    for (uint32_t i = 0; i < spread->parts.count; i++) {
        const struct net_part *part = &spread->parts.list[i];
        if (part->frozen) continue;
        most = fmax(most, net_exact_norm(spread->exact->gradients, part->first, part->count));
    }
    return most;
}

/* What tells a sum that lacks digits from one that lacks terms. */
static void print_numbers(const struct trial_result *got, const struct trial_result *exact,
                          const struct net_part *part) {
    enum { NUMBERS_MAX = 128 };
    const float *is = (const float *)got->gradients + part->first;
    const double *wanted = (const double *)exact->gradients + part->first;
    printf("  %s, each number and how far it is from f64's:", part->name);
    for (size_t i = 0; i < part->count && i < NUMBERS_MAX; i++)
        printf("%s%.4g %+.2g", i % 6 == 0 ? "\n    " : ", ", wanted[i], (double)is[i] - wanted[i]);
    printf("\n");
}

void net_spread_check(const struct net_spread *spread, const struct trial_result got[2],
                      enum weir_dtype dtype) {
    const struct trial_result *exact = spread->exact;
    const struct net_distances *allowed = &spread->allowed;
    struct net_distances is;
    double whole = largest_gradient(spread);
    measure(spread, got, WEIR_F32, dtype, &is);
    expect_within(spread, is.loss[0], allowed->loss[0], fabs(exact[0].loss), "loss");
    expect_within(spread, is.loss[1], allowed->loss[1], fabs(exact[1].loss),
                  "loss after two updates");
    expect_within(spread, is.norm, allowed->norm, exact->norm, "gradients' norm");
    expect_within(spread, is.output, allowed->output,
                  net_exact_norm(exact->output, 0, numbers(exact->output_bytes)), "output");
    if (spread->has_input_grad)
        expect_within(spread, is.input_grad, allowed->input_grad,
                      net_exact_norm(exact->input_grad, 0, numbers(exact->input_grad_bytes)),
                      "input's gradient");
    for (uint32_t i = 0; i < spread->parts.count; i++) {
        const struct net_part *part = &spread->parts.list[i];
        if (part->frozen) continue;
        double norm = net_exact_norm(exact->gradients, part->first, part->count);
        bool is_noise = allowed->gradients[i] > norm;
        bool near = expect_within(spread, is.gradients[i], allowed->gradients[i],
                                  is_noise ? fmax(norm, whole) : norm, part->name);
        if (!near) print_numbers(got, exact, part);
    }
}
