/* SPDX-License-Identifier: MIT */
/*
 * Goal: threads decide how fast, and nothing else: no bit, and no memory that the plan does not
 * know. Method: GPTs and U-Nets large enough for their calls to be shared, each trained alone on
 * one thread and by a random pipeline of teams; and after two steps all that the process takes from
 * the system is counted.
 */
#include "harness.h"
#include "net/net_pipes.h"

#include "base/base.h"
#include "net/kernel.h"
#include "weir_models.h"

#include <string.h>

enum { PAIRS = 12, WATCHED = 10, STEPS = 3 };

static bool coin(void) {
    return test_random_below(2) == 1;
}

static uint32_t between(uint32_t least, uint32_t most) {
    return least + (uint32_t)test_random_below(most - least + 1);
}

static void make_gpt(struct net_problem *problem) {
    struct weir_gpt_options gpt = WEIR_GPT_OPTIONS_INIT;
    gpt.layers = between(1, 2);
    gpt.heads = between(1, 4);
    gpt.width = gpt.heads * (coin() ? 24 : 32);
    gpt.context = between(20, 70);
    gpt.vocab = between(30, 300);
    gpt.tied = coin();
    gpt.dropout = coin() ? 0.1 : 0;
    problem->input = problem->target =
        (struct weir_tensor){.dtype = WEIR_I64, .rank = 1, .shape = {gpt.context}};
    problem->classes = problem->labels = gpt.vocab;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &gpt, NULL, &problem->model), WEIR_OK);
}

static void make_unet(struct net_problem *problem) {
    struct weir_unet_options unet = WEIR_UNET_OPTIONS_INIT;
    unet.depth = between(1, 3);
    unet.num_convs = between(1, 2);
    unet.base_channels = coin() ? 8 : between(3, 20);
    unet.height = 8 * between(2, 5);
    unet.width = 8 * between(2, 5);
    problem->input = (struct weir_tensor){
        .dtype = WEIR_F32, .rank = 3, .shape = {unet.in_channels, unet.height, unet.width}};
    problem->target = (struct weir_tensor){
        .dtype = WEIR_F32, .rank = 3, .shape = {unet.out_channels, unet.height, unet.width}};
    problem->classes = problem->labels = 2;
    EXPECT_STATUS(weir_model_unet(test_allocator(), &unet, NULL, &problem->model), WEIR_OK);
}

/** One stage on one thread. */
static struct weir_net_options alone(void) {
    struct weir_net_options options = trial_options(1, between(4, 12), between(1, 3));
    options.dtype = WEIR_F32;
    options.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.pipe.clip_norm = coin() ? 0.5 : 0;
    return options;
}

/** A pipeline of teams that adds gradients up in the same order. */
static struct weir_net_options spread(const struct weir_net_options *options) {
    struct weir_net_options several = *options;
    several.stages = between(1, 3);
    net_pipe_schedule(&several, strcmp(options->pipe.schedule, "gpipe") == 0);
    several.pipe.checkpoint = net_pipe_checkpoint();
    several.pipe.threads_per_worker = between(1, 4);
    return several;
}

static void compare(void (*make)(struct net_problem *problem)) {
    struct net_problem problem = {0};
    struct trial_data data;
    struct trial_result want[2] = {{0}}, got[2] = {{0}};
    make(&problem);
    if (problem.model == NULL) return;
    struct weir_net_options one = alone();
    one.pipe.schedule = coin() ? "gpipe" : "1f1b";
    struct weir_net_options several = spread(&one);
    net_pipe_data(&problem, &one, &data);
    net_pipe_train(&problem, &one, &data, want);
    net_pipe_train(&problem, &several, &data, got);
    for (int i = 0; i < 2; i++) {
        if (!test_has_failed()) trial_result_compare(&want[i], &got[i]);
        trial_result_clean_up(&want[i]);
        trial_result_clean_up(&got[i]);
    }
    if (test_has_failed()) net_pipe_print(&problem, &several);
    trial_data_clean_up(&data);
    weir_model_destroy(problem.model);
}

static void test_threads_are_not_in_the_bits_of_a_gpt(void) {
    for (int i = 0; i < PAIRS && !test_has_failed(); i++) compare(make_gpt);
}

static void test_threads_are_not_in_the_bits_of_a_unet(void) {
    for (int i = 0; i < PAIRS && !test_has_failed(); i++) compare(make_unet);
}

/** What the steps behind the first two take. */
static struct test_memory_use watch(const struct net_problem *problem,
                                    const struct weir_net_options *options) {
    struct trial_data data;
    net_pipe_data(problem, options, &data);
    struct weir_net *net = trial_net(problem->model, options);
    struct weir_step_result result;
    for (uint64_t i = 0; net != NULL && i < 2 + STEPS; i++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = data.rows;
        batch.input = data.input;
        batch.target = data.target;
        batch.mini_batch = batch.update = i;
        if (i == 2) test_watch_memory();
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    }
    struct test_memory_use use = test_memory_used();
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    return use;
}

static void expect_no_memory(void (*make)(struct net_problem *problem)) {
    if (!test_can_watch_memory()) SKIP("malloc cannot be watched here");
    for (int i = 0; i < WATCHED && !test_has_failed(); i++) {
        struct net_problem problem = {0};
        make(&problem);
        CHECK(problem.model != NULL);
        struct weir_net_options one = alone(), several = spread(&one);
        struct test_memory_use use = watch(&problem, &several);
        EXPECT_EQ_UINT(use.blocks, 0);
        EXPECT_EQ_UINT(use.mappings, 0);
        if (test_has_failed()) net_pipe_print(&problem, &several);
        weir_model_destroy(problem.model);
    }
}

static void test_steps_of_a_gpt_take_no_memory(void) {
    expect_no_memory(make_gpt);
}

static void test_steps_of_a_unet_take_no_memory(void) {
    expect_no_memory(make_unet);
}

WEIR_TEST_SUITE(threads, TEST(threads_are_not_in_the_bits_of_a_gpt),
                TEST(threads_are_not_in_the_bits_of_a_unet), TEST(steps_of_a_gpt_take_no_memory),
                TEST(steps_of_a_unet_take_no_memory))
