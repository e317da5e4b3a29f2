/* SPDX-License-Identifier: MIT */
/*
 * Goal: each crossing takes the way that its model says costs least, and what goes together may go
 * together. Method: the model at its ends; plans of random and of large pipes over GPUs, which need
 * no GPU, against the same rules by brute force.
 */
#include "engine/engine_gpu.h"

#include "pipe/lanes/ways.h"

#include <stdio.h>
#include <string.h>

static struct engine_model model;
static struct engine_random run;
static bool no_peers; /* what the driver says, if there is one */

/* ---- the model ---- */

static void test_engines_begin_sooner_and_disturb_less(void) {
    for (int k = WEIR__LINK_OWN; k <= WEIR__LINK_HOP; k++) {
        enum weir__link_kind kind = (enum weir__link_kind)k;
        const struct weir__link_speed *speed = weir__link_speed(kind);
        const uint64_t small = 1024, large = 256 << 20;
        uint32_t few = weir__way_blocks(kind, small, false);
        uint32_t many = weir__way_blocks(kind, large, false);
        EXPECT(few == 1 && weir__way_blocks(kind, 0, false) == 1 && many > 1);
        EXPECT(weir__way_blocks(kind, small, true) == 1);
        EXPECT(weir__way_blocks(kind, large, true) <= many);
        EXPECT(many * speed->block_bytes_per_ns >= speed->bytes_per_ns);
        EXPECT(weir__way_kernel_ns(kind, small, few, false) > weir__way_engine_ns(kind, small));
        EXPECT(weir__way_kernel_ns(kind, large, many, false) > weir__way_engine_ns(kind, large));
        EXPECT(weir__way_kernel_ns(kind, large, many, false) <
               weir__way_kernel_ns(kind, large, many, true));
        EXPECT(weir__way_kernel_ns(kind, large, 1, false) >
               weir__way_kernel_ns(kind, large, many, false));
    }
}

/* ---- plans ---- */

static bool prepare(const struct weir_pipe_options *options, struct weir__setup *setup,
                    struct weir__row_plan *prepared) {
    if (!EXPECT_STATUS(weir__setup_init(setup, options, NULL), WEIR_OK)) return false;
    int status = weir__prepared_init(prepared, setup, options->rows, options->infer_only, NULL);
    if (EXPECT_STATUS(status, WEIR_OK)) return true;
    weir__setup_clean_up(setup);
    return false;
}

static void forget(struct weir__setup *setup, struct weir__row_plan *prepared) {
    weir__prepared_clean_up(prepared);
    weir__setup_clean_up(setup);
}

static uint32_t memory_of(const struct weir__setup *setup, uint32_t worker) {
    return worker == WEIR__FROM_CALLER ? 0 : weir__setup_device(setup, worker).memory;
}

static enum weir__link_kind kind_of(const struct weir__setup *setup,
                                    const struct weir__lane *lane) {
    uint32_t to = memory_of(setup, lane->worker), from = memory_of(setup, lane->from);
    if (to == 0 || from == 0) return WEIR__LINK_HOST;
    if (to != from && no_peers) return WEIR__LINK_HOP;
    return to == from ? WEIR__LINK_OWN : WEIR__LINK_PEER;
}

/* Whether an action of the device that copies has begun and not ended, or begins, until the one
 * that the copy is for does. */
static bool is_busy(const struct weir__setup *setup, const struct weir__row_plan *p,
                    const struct weir__prepared_copy *copy) {
    const struct weir__lane *lane = &p->lanes[copy->lane];
    uint32_t worker =
        weir__setup_device(setup, lane->worker).synchronous ? lane->from : lane->worker;
    for (uint32_t a = 0; a < p->table->action_count; a++) {
        uint32_t w = weir__table_worker_of(p->table, a);
        if (memory_of(setup, w) != memory_of(setup, worker) || a == copy->action) continue;
        bool later = p->start[a] > copy->start && p->start[a] >= p->start[copy->action];
        if (w == p->lanes[copy->lane].worker && a > copy->action) continue;
        if (p->end[a] > copy->start && !later) return true;
    }
    return false;
}

struct seen {
    uint32_t engine, kernel, units, busy, idle, blocks;
};

/* Alone: what is predicted to cost less. */
static void expect_cheapest(const struct weir__setup *setup, const struct weir__row_plan *p,
                            const struct weir__prepared_copy *copy, struct seen *seen) {
    enum weir__link_kind kind = kind_of(setup, &p->lanes[copy->lane]);
    bool busy = is_busy(setup, p, copy);
    uint32_t blocks = weir__way_blocks(kind, copy->bytes, busy);
    bool kernel = !busy && weir__way_kernel_ns(kind, copy->bytes, blocks, busy) <
                               weir__way_engine_ns(kind, copy->bytes);
    EXPECT(copy->by_kernel == kernel);
    EXPECT_EQ_UINT(copy->blocks_max, blocks);
    seen->engine += !copy->by_kernel, seen->kernel += copy->by_kernel;
    seen->busy += busy, seen->idle += !busy;
    seen->blocks += blocks;
}

/* One lane, one action, one place, in order, each once. */
static uint32_t expect_unit(const struct weir__row_plan *p, uint32_t first) {
    const struct weir__prepared_copy *copies = p->copies;
    uint32_t count = 0;
    for (uint32_t i = first; i != WEIR__NO_COPY && count <= WEIR__UNIT_COPIES; i = copies[i].next) {
        EXPECT(copies[i].unit == first && copies[i].lane == copies[first].lane);
        EXPECT(copies[i].action == copies[first].action && copies[i].start == copies[first].start);
        EXPECT_EQ_UINT(copies[i].place, copies[first].place);
        EXPECT(copies[i].next > i && copies[i].by_kernel == copies[first].by_kernel);
        count++;
    }
    EXPECT(count <= WEIR__UNIT_COPIES && (count == 1 || copies[first].by_kernel));
    return count;
}

static void expect_ways(const struct weir__setup *setup, const struct weir__row_plan *p,
                        struct seen *seen) {
    enum weir_copy_by by = setup->options.copy_by;
    uint32_t in_lanes = 0, in_units = 0;
    for (uint32_t i = 0; i < p->copy_count; i++) {
        const struct weir__prepared_copy *copy = &p->copies[i];
        if (copy->lane == WEIR__NO_LANE) continue;
        in_lanes++;
        if (copy->unit != i) continue;
        uint32_t count = expect_unit(p, i);
        in_units += count;
        seen->units += count > 1;
        if (by == WEIR_COPY_BY_ENGINE) EXPECT(count == 1 && !copy->by_kernel);
        if (by == WEIR_COPY_BY_KERNEL) EXPECT(count == 1 && copy->by_kernel);
        if (by == WEIR_COPY_BY_BATCH) EXPECT(copy->by_kernel);
        if (by == WEIR_COPY_BY_CHOICE && count > 1) EXPECT(!is_busy(setup, p, copy));
        if (by == WEIR_COPY_BY_CHOICE && count == 1) expect_cheapest(setup, p, copy, seen);
        /* no two of one lane and action, unless the first is full */
        for (uint32_t j = 0; by == WEIR_COPY_BY_BATCH && j < i; j++)
            if (p->copies[j].lane == copy->lane && p->copies[j].action == copy->action &&
                p->copies[j].unit == j)
                EXPECT_EQ_UINT(expect_unit(p, j), WEIR__UNIT_COPIES);
    }
    EXPECT_EQ_UINT(in_units, in_lanes);
}

static void expect_counts(const struct weir__row_plan *p) {
    struct weir_plan_copies all = {0};
    uint32_t in_lanes = 0;
    for (uint32_t w = 0; w < p->table->worker_count; w++) {
        struct weir_plan_copies one = weir__ways_count(p, w);
        EXPECT(one.batched >= 2 * one.launches);
        all.by_engine += one.by_engine, all.by_kernel += one.by_kernel;
        all.batched += one.batched;
    }
    for (uint32_t i = 0; i < p->copy_count; i++) in_lanes += p->copies[i].lane != WEIR__NO_LANE;
    EXPECT_EQ_UINT(all.by_engine + all.by_kernel + all.batched, in_lanes);
}

static void judge(const struct weir_pipe_options *options, struct seen *seen) {
    struct weir__setup setup;
    struct weir__row_plan prepared;
    if (!prepare(options, &setup, &prepared)) return;
    expect_ways(&setup, &prepared, seen);
    expect_counts(&prepared);
    forget(&setup, &prepared);
}

static void test_random_plans_take_the_ways_that_the_model_says(void) {
    enum { RUNS = 200 };
    static const char *const names[] = {"cpu", "cuda:0", "cuda:1"};
    const char *devices[ENGINE_STAGES_MAX];
    struct seen seen = {0};
    for (uint32_t number = 0; number < RUNS && !test_has_failed(); number++) {
        engine_random_choose(&run, &model);
        struct weir_pipe_options *options = &run.options;
        for (uint32_t w = 0; w < ENGINE_STAGES_MAX; w++) devices[w] = names[test_random_below(3)];
        options->devices = devices, options->device_count = ENGINE_STAGES_MAX;
        options->debug_inputs = false, options->link_delay_ns = 0;
        if (options->link == WEIR_LINK_POINTER) options->link = WEIR_LINK_AUTO;
        options->copy_by = (enum weir_copy_by)test_random_below(WEIR_COPY_BY_BATCH + 1);
        judge(options, &seen);
        if (test_has_failed()) engine_random_describe(&run, number);
    }
    EXPECT(seen.engine > 0 && seen.units > 0 && seen.busy > 0 && seen.idle > 0);
}

/* Of 8 million numbers a row: nothing is allocated. */
static void test_large_crossings_beside_work_take_the_engine(void) {
    static const char *const devices[] = {"cuda:0", "cuda:1", "cuda:0"};
    struct seen seen = {0};
    engine_model_init(&model, 3);
    for (uint32_t s = 0; s < 2; s++) model.stages[s].outputs[0].shape[0] = 8 << 20;
    struct weir_pipe_options options = engine_options(&model);
    options.devices = devices, options.device_count = 3;
    judge(&options, &seen);
    EXPECT(seen.engine > 0 && seen.kernel == 0 && seen.busy > 0 && seen.idle > 0);
}

/* Through the host two GPUs are further apart: a kernel would get fewer blocks. */
static void test_hops_are_two_crossings_of_the_hosts_link(void) {
    static const char *const devices[] = {"cuda:0", "cuda:1", "cpu", "cuda:0"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    struct seen seen = {0};
    uint32_t differ = 0;
    if (gpu == NULL) return;
    for (int64_t width = 64; width <= 1 << 20; width += width / 4) {
        struct seen of[2] = {{0}, {0}};
        for (int hops = 0; hops < 2 && !test_has_failed(); hops++) {
            no_peers = hops != 0;
            gpu->reset(1, 2, no_peers ? WEIR_FAKE_CUDA_NO_PEERS : 0);
            engine_model_init(&model, 4);
            for (uint32_t s = 0; s < 3; s++) model.stages[s].outputs[0].shape[0] = width;
            struct weir_pipe_options options = engine_options(&model);
            options.devices = devices, options.device_count = 4;
            options.checkpoint = WEIR_CHECKPOINT_NEVER;
            judge(&options, &of[hops]);
            seen.engine += of[hops].engine;
        }
        differ += of[0].blocks != of[1].blocks;
    }
    no_peers = false;
    EXPECT(seen.engine > 0 && differ > 0);
    for (uint64_t bytes = 1; bytes < 1 << 26; bytes *= 3) {
        uint32_t blocks = weir__way_blocks(WEIR__LINK_HOST, bytes, false);
        EXPECT_EQ_UINT(weir__way_blocks(WEIR__LINK_HOP, bytes, false), blocks);
        EXPECT(weir__way_engine_ns(WEIR__LINK_HOP, bytes) ==
               2.0 * weir__way_engine_ns(WEIR__LINK_HOST, bytes));
        for (int busy = 0; busy < 2; busy++)
            EXPECT(weir__way_kernel_ns(WEIR__LINK_HOP, bytes, blocks, busy != 0) ==
                   2.0 * weir__way_kernel_ns(WEIR__LINK_HOST, bytes, blocks, busy != 0));
    }
}

/* ---- more than one launch takes ---- */

static int nothing(void *context, const struct weir_task *task) {
    (void)context, (void)task;
    return 0;
}

static void test_a_launch_takes_no_more_than_it_can(void) {
    enum { OUTPUTS = 150 };
    static const char *const devices[] = {"cuda:0", "cuda:1"};
    static const struct weir_stage_calls calls = {.forward = nothing};
    struct weir_tensor outputs[OUTPUTS];
    struct weir_stage stages[2] = {WEIR_STAGE_INIT, WEIR_STAGE_INIT};
    struct weir_input input = {.tensor = engine_tensor(WEIR_F32, 4, false), .name = "x"};
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    for (uint32_t k = 0; k < OUTPUTS; k++) outputs[k] = engine_tensor(WEIR_F32, 1 + k, false);
    outputs[7] = engine_tensor(WEIR_F32, WEIR__WAY_BATCHED_MAX, false); /* too large for a batch */
    for (uint32_t s = 0; s < 2; s++) {
        stages[s].calls = &calls;
        stages[s].outputs = outputs, stages[s].output_count = s == 0 ? OUTPUTS : 1;
    }
    options.allocator = test_allocator();
    options.stages = stages, options.stage_count = 2;
    options.inputs = &input, options.input_count = 1;
    options.rows = options.chunks = 1;
    options.infer_only = true;
    options.devices = devices, options.device_count = 2;
    struct weir__setup setup;
    struct weir__row_plan prepared;
    CHECK(prepare(&options, &setup, &prepared));
    struct weir_plan_copies count = weir__ways_count(&prepared, 1);
    EXPECT_EQ_UINT(count.batched, OUTPUTS - 1);
    EXPECT_EQ_UINT(count.launches, 3);
    EXPECT_EQ_UINT(count.by_engine + count.by_kernel, 1);
    forget(&setup, &prepared);
}

WEIR_TEST_SUITE(ways, TEST(engines_begin_sooner_and_disturb_less),
                TEST(random_plans_take_the_ways_that_the_model_says),
                TEST(large_crossings_beside_work_take_the_engine),
                TEST(hops_are_two_crossings_of_the_hosts_link),
                TEST(a_launch_takes_no_more_than_it_can))
