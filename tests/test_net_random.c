/* SPDX-License-Identifier: MIT */
/*
 * Goal: the Bits contract. For given rows, chunks, order of accumulation and kernels, outputs,
 * loss, norm, every gradient and the parameters after updates are the same bits, whatever the
 * stages, the partition, the workers, the schedule, the checkpoint modes, the recompute timing, the
 * links, and which backwards are split. Method: random small models (net_models.h), each trained
 * once on one stage and once on a random pipeline of several.
 */
#include "harness.h"
#include "net_models.h"
#include "net_trial.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { CASES = 200 };

static bool coin(void) {
    return test_random_below(2) == 1;
}

static uint32_t between(uint32_t least, uint32_t most) {
    return least + (uint32_t)test_random_below(most - least + 1);
}

/* ---- random pipelines ---- */

static void random_balance(uint32_t layers, uint32_t stages, uint32_t *balance) {
    for (uint32_t s = 0; s < stages; s++) balance[s] = 1;
    for (uint32_t i = stages; i < layers; i++) balance[test_random_below(stages)]++;
}

/* Any schedule and workers that can be had, if the schedule adds gradients in the same order. */
static void random_schedule(struct weir_net_options *options, bool descending) {
    int64_t rows = options->pipe.rows, chunks = options->pipe.chunks;
    int64_t size = (rows + chunks - 1) / chunks;
    struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    want.stages = options->stages;
    want.micro_batches = (uint32_t)((rows + size - 1) / size);
    do {
        want.schedule = weir_schedule_name(between(0, 9));
        want.workers = coin() ? 0 : between(1, options->stages);
        bool last_first =
            strcmp(want.schedule, "gpipe") == 0 || strcmp(want.schedule, "looped-bfs") == 0;
        if (last_first == descending) weir_table_new(&want, NULL, &table);
    } while (table == NULL);
    weir_table_destroy(table);
    options->pipe.schedule = want.schedule;
    options->pipe.workers = want.workers;
}

/* Whether all its backwards are whole: those that it splits itself have their W in an order that
 * another splitting might not keep. */
static bool leaves_backwards_whole(const char *schedule) {
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "looped-bfs"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
        if (strcmp(names[k], schedule) == 0) return true;
    return false;
}

static enum weir_checkpoint random_checkpoint(void) {
    static const enum weir_checkpoint modes[] = {
        WEIR_CHECKPOINT_ALWAYS, WEIR_CHECKPOINT_EXCEPT_LAST, WEIR_CHECKPOINT_NEVER};
    return modes[test_random_below(3)];
}

/** Loss, outputs and gradients of one step, then the parameters after two more with updates. */
static void train(const struct net_problem *problem, const struct weir_net_options *options,
                  const struct trial_data *data, struct trial_result *first,
                  struct trial_result *last) {
    struct weir_net *net = trial_net(problem->model, options);
    if (net == NULL) return;
    trial_step(net, problem->model, data, first);
    for (uint64_t i = 0; i < 2; i++) {
        struct weir_net_batch batch = {.rows = data->rows,
                                       .input = data->input,
                                       .target = data->target,
                                       .mini_batch = 4 + i,
                                       .update = i,
                                       .lr = -1};
        struct weir_step_result result;
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    }
    trial_step(net, problem->model, data, last);
    weir_net_destroy(net);
}

static void compare(const struct net_problem *problem, const struct weir_net_options *one,
                    const struct weir_net_options *several) {
    struct trial_data data;
    struct trial_result want[2] = {{0}}, got[2] = {{0}};
    trial_data_init(&data, &problem->input, &problem->target, one->dtype, one->pipe.rows,
                    problem->classes, problem->labels);
    train(problem, one, &data, &want[0], &want[1]);
    train(problem, several, &data, &got[0], &got[1]);
    for (int i = 0; i < 2; i++) {
        if (!test_has_failed()) trial_result_compare(&want[i], &got[i]);
        trial_result_clean_up(&want[i]);
        trial_result_clean_up(&got[i]);
    }
    trial_data_clean_up(&data);
}

static void describe(const struct net_problem *problem, const struct weir_net_options *options) {
    net_problem_print(problem, options->stages, options->balance);
    printf("  %s, %lld rows in %u chunks, %u workers, checkpoint %s, %s recompute, dtype %s\n",
           options->pipe.schedule, (long long)options->pipe.rows, options->pipe.chunks,
           options->pipe.workers, weir_checkpoint_name(options->pipe.checkpoint),
           options->pipe.recompute_late ? "late" : "early", weir_dtype_name(options->dtype));
    if (options->pipe.table_csv != NULL)
        printf("%.*s", (int)options->pipe.table_csv_bytes, options->pipe.table_csv);
}

static void random_case(void) {
    struct net_problem problem = {0};
    net_problem_init(&problem);
    if (problem.model == NULL || test_has_failed()) return;
    static char table[TRIAL_TABLE_BYTES];
    uint32_t layers = weir_model_layer_count(problem.model), balance[8];
    enum weir_checkpoint modes[8];
    struct weir_net_options one = trial_options(1, between(1, 13), between(1, 5));
    one.dtype = coin() ? WEIR_F64 : WEIR_F32;
    one.reference = coin();
    one.input_grads = coin();
    one.pipe.schedule = coin() ? "gpipe" : "1f1b";
    one.pipe.checkpoint = random_checkpoint();
    one.pipe.clip_norm = coin() ? 0.5 : 0;
    if (coin()) one.optimizer = (struct weir_optimizer)WEIR_SGD_INIT;
    if (one.optimizer.kind == WEIR_OPTIMIZER_SGD) one.optimizer.momentum = 0.9;
    struct weir_net_options several = one;
    several.stages = between(1, layers < 4 ? layers : 4);
    random_balance(layers, several.stages, balance);
    several.balance = balance;
    random_schedule(&several, strcmp(one.pipe.schedule, "gpipe") == 0);
    several.pipe.checkpoint = random_checkpoint();
    for (uint32_t s = 0; s < several.stages; s++) modes[s] = random_checkpoint();
    if (coin()) several.pipe.stage_checkpoint = modes;
    several.pipe.recompute_late = coin();
    several.pipe.debug_inputs = coin();
    several.pipe.link = coin() ? WEIR_LINK_COPY : WEIR_LINK_AUTO;
    if (coin() && leaves_backwards_whole(several.pipe.schedule))
        trial_split(&several, coin() ? 100 : 50, table);
    compare(&problem, &one, &several);
    if (test_has_failed()) describe(&problem, &several);
    weir_model_destroy(problem.model);
}

// MB-7
// PO-7
static void test_bits_do_not_depend_on_the_pipeline(void) {
    for (int i = 0; i < CASES && !test_has_failed(); i++) random_case();
}

WEIR_TEST_SUITE(net_random, TEST(bits_do_not_depend_on_the_pipeline))
