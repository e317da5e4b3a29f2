/* SPDX-License-Identifier: MIT */
#include "net_spread.h"

#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SAMPLES = 8, FACTOR = 8 };

static size_t numbers(size_t exact_bytes) {
    return exact_bytes / sizeof(double);
}

/* ---- samples ---- */

static double square(double number) {
    return number * number;
}

static double square_distance(const void *sample, const void *exact, size_t first, size_t count) {
    return square(net_exact_distance(sample, WEIR_F32, exact, first, count));
}

static void add_sample(struct net_spread *spread, const struct trial_result sample[2]) {
    const struct trial_result *exact = spread->exact;
    for (int i = 0; i < 2; i++) spread->loss[i] += square(sample[i].loss - exact[i].loss);
    spread->norm += square(sample->norm - exact->norm);
    spread->output +=
        square_distance(sample->output, exact->output, 0, numbers(exact->output_bytes));
    if (spread->has_input_grad)
        spread->input_grad += square_distance(sample->input_grad, exact->input_grad, 0,
                                              numbers(exact->input_grad_bytes));
    for (uint32_t i = 0; i < spread->parts.count; i++) {
        const struct net_part *part = &spread->parts.list[i];
        if (part->frozen) continue;
        spread->gradients[i] +=
            square_distance(sample->gradients, exact->gradients, part->first, part->count);
    }
}

static void finish(struct net_spread *spread) {
    double *sums[] = {&spread->loss[0], &spread->loss[1], &spread->norm, &spread->output,
                      &spread->input_grad};
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++) *sums[i] = sqrt(*sums[i] / SAMPLES);
    for (uint32_t i = 0; i < spread->parts.count; i++)
        spread->gradients[i] = sqrt(spread->gradients[i] / SAMPLES);
}

void net_spread_init(struct net_spread *spread, const struct net_problem *problem,
                     const struct weir_net_options *options, const struct trial_data *data,
                     enum weir_dtype dtype) {
    const struct net_rounding none = {0, 0};
    memset(spread, 0, sizeof *spread);
    spread->digits = dtype == WEIR_BF16 ? 8 : 24;
    spread->has_input_grad = options->input_grads && weir_dtype_is_float(problem->input.dtype);
    net_exact_parts(problem, options, &spread->parts);
    net_exact_train(problem, options, data, &none, spread->exact);
    for (uint64_t i = 1; i <= SAMPLES && !test_has_failed(); i++) {
        const struct net_rounding rounding = {spread->digits, i};
        struct trial_result sample[2] = {{0}};
        net_exact_train(problem, options, data, &rounding, sample);
        if (!test_has_failed()) add_sample(spread, sample);
        for (int k = 0; k < 2; k++) trial_result_clean_up(&sample[k]);
    }
    finish(spread);
}

void net_spread_clean_up(struct net_spread *spread) {
    for (int k = 0; k < 2; k++) trial_result_clean_up(&spread->exact[k]);
}

/* ---- checks ---- */

static void expect_within(double distance, double rms, double norm, uint32_t digits,
                          const char *what) {
    double bound = FACTOR * rms + ldexp(norm, digits == 8 ? -8 : -22);
    if (distance <= bound) return;
    TEST_FAIL("%s is %.3g from f64's, at most %.3g: relative %.3g, where samples have %.3g", what,
              distance, bound, distance / norm, rms / norm);
}

static void check_tensor(const struct net_spread *spread, const void *got, enum weir_dtype dtype,
                         const void *exact, const struct net_part *part, double rms) {
    expect_within(net_exact_distance(got, dtype, exact, part->first, part->count), rms,
                  net_exact_norm(exact, part->first, part->count), spread->digits, part->name);
}

void net_spread_check(const struct net_spread *spread, const struct trial_result got[2],
                      enum weir_dtype dtype) {
    static const char *const losses[] = {"loss", "loss after two updates"};
    const struct trial_result *exact = spread->exact;
    const struct net_part output = {"output", 0, numbers(exact->output_bytes), false};
    const struct net_part input = {"input's gradient", 0, numbers(exact->input_grad_bytes), false};
    for (int i = 0; i < 2; i++)
        expect_within(fabs(got[i].loss - exact[i].loss), spread->loss[i], fabs(exact[i].loss),
                      spread->digits, losses[i]);
    expect_within(fabs(got->norm - exact->norm), spread->norm, exact->norm, spread->digits,
                  "gradients' norm");
    check_tensor(spread, got->output, dtype, exact->output, &output, spread->output);
    if (spread->has_input_grad)
        check_tensor(spread, got->input_grad, WEIR_F32, exact->input_grad, &input,
                     spread->input_grad);
    for (uint32_t i = 0; i < spread->parts.count; i++)
        if (!spread->parts.list[i].frozen)
            check_tensor(spread, got->gradients, WEIR_F32, exact->gradients, &spread->parts.list[i],
                         spread->gradients[i]);
}
