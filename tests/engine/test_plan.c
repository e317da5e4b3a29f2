/* SPDX-License-Identifier: MIT */
/*
 * Goal: what a plan tells is true. Method: random pipes, whose parts must add up to what is
 * acquired, whose curves must end where the parts say, and whose hand-overs must not lengthen the
 * replay; refused limits, whose advice is taken.
 */
#include "engine/engine_gpu.h"

#include "pipe/run/pipe.h"
#include "pipe/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

static struct engine_model model;
static struct engine_random run;

/* ---- sums ---- */

static void expect_sums(const struct weir_plan *plan) {
    for (uint32_t d = 0; d < plan->device_count; d++) {
        const struct weir_device_plan *device = &plan->devices[d];
        EXPECT_EQ_UINT(device->total, device->parameters + device->gradients + device->optimizer +
                                          device->activations + device->borders + device->portals +
                                          device->workspace + device->padding);
    }
}

static void expect_acquired(const struct weir_pipe *pipe, const struct weir_plan *plan) {
    EXPECT_EQ_UINT(pipe->worker_count, plan->device_count);
    for (uint32_t w = 0; w < plan->device_count && !test_has_failed(); w++) {
        const struct weir__arena *arena = &pipe->memory.arenas[w];
        EXPECT_EQ_UINT(plan->devices[w].total, arena->lasting_bytes + arena->working_bytes);
        EXPECT((arena->working != NULL) == (arena->working_bytes > 0));
        EXPECT_EQ_UINT(arena->lasting_bytes, pipe->prepared[0]->lasting_bytes[w]);
    }
}

static void expect_curve(const struct weir_plan *plan, uint32_t d) {
    const struct weir_plan_curve *curve = &plan->curves[d];
    const struct weir_device_plan *device = &plan->devices[d];
    uint64_t most = 0;
    EXPECT(curve->point_count > 0 && curve->points[0].time == 0.0);
    for (uint32_t i = 0; i < curve->point_count; i++) {
        if (curve->points[i].bytes > most) most = curve->points[i].bytes;
        EXPECT(i == 0 || curve->points[i].time > curve->points[i - 1].time);
    }
    EXPECT_EQ_UINT(most, device->total - device->padding);
    EXPECT(curve->points[curve->point_count - 1].bytes >=
           device->parameters + device->gradients + device->optimizer);
}

static void expect_receives(const struct weir_plan *plan) {
    for (uint32_t d = 0; d < plan->device_count; d++) {
        const struct weir_plan_receive *receive = &plan->receives[d];
        EXPECT_EQ_UINT(receive->slots, receive->most);
        EXPECT(receive->most <= receive->each && (receive->each == 0) == (receive->most == 0));
    }
}

static void test_what_is_planned_is_what_is_acquired(void) {
    for (uint32_t number = 0; number < 500 && !test_has_failed(); number++) {
        struct weir_pipe *pipe;
        struct weir_plan *plan;
        engine_random_choose(&run, &model);
        if (EXPECT_STATUS(weir_plan_new(&run.options, NULL, &plan), WEIR_OK)) {
            expect_sums(plan);
            expect_receives(plan);
            for (uint32_t d = 0; d < plan->device_count; d++) expect_curve(plan, d);
            if (EXPECT_STATUS(weir_pipe_new(&run.options, NULL, &pipe), WEIR_OK))
                expect_acquired(pipe, plan);
            if (!test_has_failed()) weir_pipe_destroy(pipe);
            weir_plan_destroy(plan);
        }
        if (test_has_failed()) engine_random_describe(&run, number);
    }
}

/* ---- estimates ---- */

static void test_an_estimate_is_never_above_the_plan(void) {
    for (uint32_t number = 0; number < 100 && !test_has_failed(); number++) {
        struct weir_plan *plan, *estimate;
        engine_random_choose(&run, &model);
        CHECK_OK(weir_plan_new(&run.options, NULL, &plan));
        CHECK_OK(weir_plan_estimate(&run.options, NULL, &estimate));
        CHECK_EQ_UINT(plan->device_count, estimate->device_count);
        expect_sums(estimate);
        for (uint32_t d = 0; d < plan->device_count; d++) {
            CHECK(estimate->devices[d].total <= plan->devices[d].total);
            /* what is held a little longer for readers on other workers is in an estimate no more
             */
            const struct weir_device_plan *device = &plan->devices[d];
            uint64_t held = device->borders + device->portals + device->padding;
            CHECK(estimate->devices[d].total + held >= device->total);
            CHECK_EQ_UINT(estimate->devices[d].parameters, plan->devices[d].parameters);
        }
        CHECK(estimate->makespan == plan->makespan);
        weir_plan_destroy(plan);
        weir_plan_destroy(estimate);
    }
}

/* ---- hand-overs ---- */

/* Waiting for memory must cost nothing in the times that the plan was made for. */
static void expect_same_replay(const struct weir__row_plan *prepared) {
    uint32_t count = prepared->table->action_count;
    double *times = calloc(3 * (size_t)count + 1, sizeof *times), makespan = 0.0;
    if (!EXPECT(times != NULL)) return;
    for (uint32_t a = 0; a < count; a++) times[a] = prepared->end[a] - prepared->start[a];
    EXPECT_STATUS(weir__table_replay(prepared->table, &prepared->orders, times, NULL, times + count,
                                     times + 2 * (size_t)count, &makespan, test_allocator()),
                  WEIR_OK);
    EXPECT(makespan == prepared->makespan);
    free(times);
}

static void test_sharing_memory_does_not_lengthen_the_replay(void) {
    for (uint32_t number = 0; number < 200 && !test_has_failed(); number++) {
        struct weir__setup setup;
        struct weir__row_plan prepared;
        engine_random_choose(&run, &model);
        bool frozen = false; /* their replay is held back, which the orders do not say */
        for (uint32_t s = 0; s < model.stage_count; s++) frozen |= model.stages[s].frozen;
        if (frozen) continue;
        CHECK_OK(weir__setup_init(&setup, &run.options, NULL));
        CHECK_OK(weir__prepared_init(&prepared, &setup, run.options.rows, false, NULL));
        expect_same_replay(&prepared);
        weir__prepared_clean_up(&prepared);
        weir__setup_clean_up(&setup);
        if (test_has_failed()) engine_random_describe(&run, number);
    }
}

/* ---- receive slots ---- */

/* Two stages, one border each way: every micro-batch arrives once at each worker. Forward and
 * backward run one at a time, so one slot is enough but for what is kept for the backward. */
static void test_receive_slots_are_counted_and_handed_on(void) {
    for (int copies = 0; copies < 2; copies++) {
        struct weir_plan *plan;
        engine_model_init(&model, 2);
        model.stages[1].keeps_inputs = false;
        struct weir_pipe_options options = engine_options(&model);
        options.rows = 16, options.chunks = 8, options.schedule = "1f1b";
        options.checkpoint = WEIR_CHECKPOINT_NEVER;
        options.link = copies != 0 ? WEIR_LINK_COPY : WEIR_LINK_AUTO;
        CHECK_OK(weir_plan_new(&options, NULL, &plan));
        for (uint32_t d = 0; d < 2; d++) {
            CHECK_EQ_UINT(plan->receives[d].each, 8);
            CHECK_EQ_UINT(plan->receives[d].slots, 1);
            CHECK_EQ_UINT(plan->receives[d].most, 1);
        }
        weir_plan_destroy(plan);
    }
}

/* Each way once for every micro-batch, whether the reader has the producer's memory or a copy. */
static void test_a_mixed_pipe_counts_pointers_and_copies(void) {
    static const char *const devices[][3] = {
        {"cuda:0", "cuda:0", "cpu"}, {"cpu", "cuda:0", "cuda:0"}, {"cpu", "cpu", "cuda:1"}};
    if (engine_gpu_open() == NULL) return;
    for (size_t i = 0; i < WEIR__COUNT_OF(devices); i++) {
        struct weir_plan *plan;
        engine_model_init(&model, 3);
        engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
        engine_skip(&model, 2, WEIR_SKIP_POP, "a");
        struct weir_pipe_options options = engine_options(&model);
        options.rows = 16, options.chunks = 8, options.schedule = "1f1b";
        options.checkpoint = WEIR_CHECKPOINT_NEVER;
        options.devices = devices[i], options.device_count = 3;
        CHECK_OK(weir_plan_new(&options, NULL, &plan));
        CHECK_EQ_UINT(plan->receives[0].each, 16); /* gradients of its border and of the skip */
        CHECK_EQ_UINT(plan->receives[1].each, 16); /* both borders */
        CHECK_EQ_UINT(plan->receives[2].each, 16);
        expect_receives(plan);
        weir_plan_destroy(plan);
    }
}

/* ---- advice ---- */

static size_t largest(const struct weir_plan *plan) {
    size_t most = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        if (plan->devices[d].total > most) most = (size_t)plan->devices[d].total;
    return most;
}

static void wide_model(uint32_t stages) {
    engine_model_init(&model, stages);
    for (uint32_t s = 0; s < stages; s++)
        model.stages[s].outputs[0] = engine_tensor(WEIR_F32, 256, true);
}

/* Whatever the limit: the change that is named fits, or nothing does. */
static void test_advice_fits_when_it_is_taken(void) {
    uint32_t found = 0, none = 0;
    for (uint32_t part = 1; part <= 20; part++) {
        struct weir__advice advice;
        struct weir_plan *plan;
        wide_model(4);
        struct weir_pipe_options options = engine_options(&model);
        options.rows = 32, options.chunks = 8, options.schedule = "gpipe";
        options.checkpoint = WEIR_CHECKPOINT_NEVER;
        CHECK_OK(weir_plan_new(&options, NULL, &plan));
        options.memory_limit = part == 1 ? 64 : largest(plan) * part / 21;
        weir_plan_destroy(plan);
        CHECK_STATUS(weir_plan_new(&options, NULL, &plan), WEIR_ERR_MEMORY_LIMIT);
        CHECK_OK(weir__plan_advise(&options, 1.0, &advice));
        found += advice.found, none += !advice.found;
        if (!advice.found) continue;
        CHECK_OK(weir_plan_new(&advice.options, NULL, &plan));
        CHECK_EQ_UINT(largest(plan), advice.bytes);
        CHECK(advice.bytes <= options.memory_limit);
        weir_plan_destroy(plan);
    }
    CHECK(found > 0 && none > 0);
}

static void test_a_refusal_names_what_is_missing_and_what_fits(void) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_plan *plan;
    char text[128];
    wide_model(4);
    struct weir_pipe_options options = engine_options(&model);
    options.rows = 32, options.chunks = 8, options.schedule = "gpipe";
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    CHECK_OK(weir_plan_new(&options, NULL, &plan));
    size_t most = largest(plan);
    weir_plan_destroy(plan);
    options.memory_limit = most - 1;
    CHECK_STATUS(weir_plan_new(&options, &faults, &plan), WEIR_ERR_MEMORY_LIMIT);
    CHECK(faults.kept >= 2);
    CHECK_CONTAINS(faults.lines[0], "1 more than the limit");
    snprintf(text, sizeof text, "the smallest limit that would do is %zu", most);
    CHECK_CONTAINS(faults.lines[faults.kept - 1], text);
    CHECK_CONTAINS(faults.lines[faults.kept - 1], "the cheapest change that fits");
    weir_faults_clean_up(&faults);
    options.memory_limit = most;
    CHECK_OK(weir_plan_new(&options, NULL, &plan));
    weir_plan_destroy(plan);
}

WEIR_TEST_SUITE(plan, TEST(what_is_planned_is_what_is_acquired),
                TEST(an_estimate_is_never_above_the_plan),
                TEST(sharing_memory_does_not_lengthen_the_replay),
                TEST(receive_slots_are_counted_and_handed_on),
                TEST(a_mixed_pipe_counts_pointers_and_copies), TEST(advice_fits_when_it_is_taken),
                TEST(a_refusal_names_what_is_missing_and_what_fits))
