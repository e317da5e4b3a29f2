/* SPDX-License-Identifier: MIT */
/*
 * Goal: the Bits contract. For given rows, chunks, order of accumulation and kernels, outputs,
 * loss, norm, every gradient and the parameters after updates are the same bits, whatever the
 * stages, the partition, the workers, their threads, the schedule, the checkpoint modes, the
 * recompute timing, the links, slices of logits, and which backwards are split. Method: random
 * small models
 * (net_models.h), in f32, f64 and bf16, each trained once on one stage and once on a random
 * pipeline of several.
 */
#include "harness.h"
#include "net/net_pipes.h"

#include "base/base.h"
#include "net/cpu/level.h"

#include <stdio.h>
#include <string.h>

enum { CASES = 200 };

static bool coin(void) {
    return test_random_below(2) == 1;
}

static uint32_t between(uint32_t least, uint32_t most) {
    return least + (uint32_t)test_random_below(most - least + 1);
}

/** One that runs here, or the best. */
static const char *draw_level(void) {
    uint32_t runs = 0;
    while (weir__level_at(runs) != NULL && weir__level_runs(weir__level_at(runs))) runs++;
    return coin() ? NULL : weir__level_at((uint32_t)test_random_below(runs))->name;
}

static void compare(const struct net_problem *problem, const struct weir_net_options *one,
                    const struct weir_net_options *several) {
    struct trial_data data;
    struct trial_result want[2] = {{0}}, got[2] = {{0}};
    net_pipe_data(problem, one, &data);
    net_pipe_train(problem, one, &data, want);
    net_pipe_train(problem, several, &data, got);
    for (int i = 0; i < 2; i++) {
        if (!test_has_failed()) trial_result_compare(&want[i], &got[i]);
        trial_result_clean_up(&want[i]);
        trial_result_clean_up(&got[i]);
    }
    trial_data_clean_up(&data);
}

static void random_case(void) {
    struct net_problem problem = {0};
    net_problem_init(&problem);
    if (problem.model == NULL || test_has_failed()) return;
    static const enum weir_dtype dtypes[] = {WEIR_F32, WEIR_F64, WEIR_BF16};
    static char table[TRIAL_TABLE_BYTES];
    uint32_t layers = weir_model_layer_count(problem.model), balance[8];
    enum weir_checkpoint modes[8];
    struct weir_net_options one = trial_options(1, between(1, 13), between(1, 5));
    one.dtype = dtypes[test_random_below(WEIR__COUNT_OF(dtypes))];
    one.reference = one.dtype != WEIR_BF16 && coin();
    one.level = draw_level();
    one.input_grads = coin();
    one.logits_most = coin() ? 1 : 0;
    one.pipe.schedule = coin() ? "gpipe" : "1f1b";
    one.pipe.checkpoint = net_pipe_checkpoint();
    one.pipe.clip_norm = coin() ? 0.5 : 0;
    if (coin()) one.optimizer = (struct weir_optimizer)WEIR_SGD_INIT;
    if (one.optimizer.kind == WEIR_OPTIMIZER_SGD) one.optimizer.momentum = 0.9;
    struct weir_net_options several = one;
    several.stages = between(1, layers < 4 ? layers : 4);
    net_pipe_balance(layers, several.stages, balance);
    several.balance = balance;
    net_pipe_schedule(&several, strcmp(one.pipe.schedule, "gpipe") == 0);
    several.logits_most = coin() ? 1 : 0;
    several.pipe.checkpoint = net_pipe_checkpoint();
    for (uint32_t s = 0; s < several.stages; s++) modes[s] = net_pipe_checkpoint();
    if (coin()) several.pipe.stage_checkpoint = modes;
    several.pipe.threads_per_worker = between(1, 3);
    several.pipe.recompute_late = coin();
    several.pipe.debug_inputs = coin();
    several.pipe.link = coin() ? WEIR_LINK_COPY : WEIR_LINK_AUTO;
    if (coin() && net_pipe_is_whole(several.pipe.schedule))
        trial_split(&several, coin() ? 100 : 50, table);
    compare(&problem, &one, &several);
    if (test_has_failed()) net_pipe_print(&problem, &several);
    weir_model_destroy(problem.model);
}

// MB-7
// PO-7
static void test_bits_do_not_depend_on_the_pipeline(void) {
    for (int i = 0; i < CASES && !test_has_failed(); i++) random_case();
}

WEIR_TEST_SUITE(net_random, TEST(bits_do_not_depend_on_the_pipeline))
