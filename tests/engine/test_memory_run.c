/* SPDX-License-Identifier: MIT */
/*
 * Goal: running pipes use the memory that was planned, all of it and no other, and need none while
 * they run. Method: arenas are poisoned before a step and looked at after it; the allocator, the
 * process's mappings and the C library's heap are counted over a hundred steps.
 */
#include "engine/engine_stages.h"

#include "pipe/run/pipe.h"

#include <fcntl.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct engine_model model;
static struct engine_random run;
static struct engine_trial trial;

/* ---- the arena, byte by byte ---- */

static size_t arena_bytes(uint32_t worker) {
    return weir__arena_bytes(&trial.pipe->memory.arenas[worker]);
}

static unsigned char *arena_byte(uint32_t worker, size_t offset) {
    return weir__arena_at(&trial.pipe->memory.arenas[worker], offset);
}

/* 1: of a lasting block, 2: of one that this table uses. */
static unsigned char *map_arena(const struct weir__row_plan *prepared, uint32_t worker,
                                size_t bytes) {
    unsigned char *map = calloc(bytes + 1, 1);
    for (uint32_t i = 0; i < prepared->memory.block_count; i++) {
        const struct weir__block *block = &prepared->memory.blocks[i];
        if (block->worker != worker) continue;
        memset(map + block->offset, block->first == WEIR__NO_BLOCK ? 1 : 2, block->bytes);
    }
    return map;
}

static void poison(int value, uint32_t index) {
    const struct weir__row_plan *prepared = trial.pipe->prepared[index];
    for (uint32_t w = 0; w < trial.pipe->worker_count; w++) {
        unsigned char *map = map_arena(prepared, w, arena_bytes(w));
        for (size_t i = 0; i < arena_bytes(w); i++)
            if (map[i] != 1) *arena_byte(w, i) = (unsigned char)value;
        free(map);
    }
}

enum { BLOCKS_MAX = 4096 };
static bool end_used[BLOCKS_MAX]; /* [block]: its last 64 bytes were written to */

/* Of prepared row count `index`: changed bytes lie in its blocks. */
static void look_at(int value, uint32_t index) {
    const struct weir__row_plan *prepared = trial.pipe->prepared[index];
    for (uint32_t w = 0; w < trial.pipe->worker_count; w++) {
        unsigned char *map = map_arena(prepared, w, arena_bytes(w));
        for (size_t i = 0; i < arena_bytes(w) && !test_has_failed(); i++)
            if (map[i] == 0 && *arena_byte(w, i) != value)
                TEST_FAIL("byte %zu of worker %u's arena is planned for nothing", i, w);
        free(map);
        for (uint32_t b = 0; b < prepared->memory.block_count; b++) {
            const struct weir__block *block = &prepared->memory.blocks[b];
            size_t end = block->offset + block->bytes;
            for (size_t i = end - 64; block->worker == w && i < end; i++)
                end_used[b] |= block->first == WEIR__NO_BLOCK || *arena_byte(w, i) != value;
        }
    }
}

/* The outputs go to memory of the pipe's own, so that those blocks are written to as well. Twice,
 * because what is written may be the poison. */
static void step_on_poison(uint32_t index, bool infer) {
    static const int values[] = {0x5C, 0xA3};
    const struct weir__memory *memory = &trial.pipe->prepared[index]->memory;
    struct weir_step step = engine_step(&trial.batch);
    step.outputs = NULL;
    memset(end_used, 0, sizeof end_used);
    CHECK(memory->block_count <= BLOCKS_MAX);
    for (int k = 0; k < 2 && !test_has_failed(); k++) {
        poison(values[k], index);
        EXPECT_STATUS(infer ? weir_pipe_infer(trial.pipe, &step, &trial.result)
                            : weir_pipe_step(trial.pipe, &step, &trial.result),
                      WEIR_OK);
        engine_expect_clean(&model);
        look_at(values[k], index);
    }
    for (uint32_t b = 0; b < memory->block_count && !test_has_failed(); b++)
        if (!end_used[b])
            TEST_FAIL("a block of class %d, %zu bytes at %zu: nobody wrote to its end",
                      memory->blocks[b].class_of, memory->blocks[b].bytes,
                      memory->blocks[b].offset);
}

static bool any_empty(void) {
    bool any = false;
    for (uint32_t s = 0; s < model.stage_count; s++)
        for (uint32_t j = 0; j < model.stages[s].skip_count; j++)
            any |= model.stages[s].skips[j].empty;
    return any;
}

/* Bytes that nobody reads keep no one from being right, and the plan is what is used. */
static void test_steps_use_what_was_planned_and_nothing_else(void) {
    for (uint32_t number = 0; number < 60 && !test_has_failed(); number++) {
        engine_random_choose(&run, &model);
        if (any_empty()) continue; /* their saved areas have a part that nobody writes to */
        run.options.wait = WEIR_WAIT_PARK;
        const struct engine_order *order = run.has_table ? &run.order : NULL;
        if (!engine_trial_open(&trial, &model, &run.options, order)) break;
        poison(0xFF, 0); /* NaNs */
        engine_trial_step(&trial);
        if (!test_has_failed()) step_on_poison(0, false);
        if (!test_has_failed()) step_on_poison(1, true);
        engine_trial_close(&trial);
        if (test_has_failed()) engine_random_describe(&run, number);
    }
}

static void test_poison_between_steps_changes_no_bit(void) {
    for (uint32_t number = 0; number < 40 && !test_has_failed(); number++) {
        engine_random_choose(&run, &model);
        const struct engine_order *order = run.has_table ? &run.order : NULL;
        if (!engine_trial_open(&trial, &model, &run.options, order)) break;
        for (int k = 0; k < 3 && !test_has_failed(); k++) {
            poison((int)test_random_below(256), 0);
            engine_trial_step(&trial);
            if (!test_has_failed()) engine_trial_infer(&trial);
        }
        engine_trial_close(&trial);
        if (test_has_failed()) engine_random_describe(&run, number);
    }
}

/* ---- nothing new while it runs ---- */

enum { MAPS_BYTES = 1 << 18 };

/* The process's mappings without the caller's stack, which grows by itself. */
static size_t read_maps(char *text) {
    size_t used = 0;
    ssize_t got;
    int file = open("/proc/self/maps", O_RDONLY);
    if (file < 0) return 0;
    while ((got = read(file, text + used, MAPS_BYTES - 1 - used)) > 0) used += (size_t)got;
    close(file);
    text[used] = '\0';
    char *stack = strstr(text, "[stack]");
    if (stack != NULL)
        while (stack > text && stack[-1] != '\n') *--stack = ' ';
    return used;
}

static void run_many_steps(void) {
    struct weir_step step = engine_step(&trial.batch);
    for (int k = 0; k < 100; k++) {
        step.rows = k % 3 == 2 ? 5 : 8;
        int status = k % 4 == 3 ? weir_pipe_infer(trial.pipe, &step, &trial.result)
                                : weir_pipe_step(trial.pipe, &step, &trial.result);
        EXPECT_STATUS(status, WEIR_OK);
    }
    model.failure.armed = true, model.failure.phase = WEIR_BACKWARD, model.failure.status = 3;
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), 3);
    model.failure.armed = false;
}

static void test_a_hundred_steps_allocate_and_map_nothing(void) {
    static char before[MAPS_BYTES], after[MAPS_BYTES];
    for (int k = 0; k < 2; k++) {
        engine_model_init(&model, 3);
        engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
        engine_skip(&model, 2, WEIR_SKIP_POP, "a");
        struct weir_pipe_options options = engine_options(&model);
        options.link = k == 0 ? WEIR_LINK_POINTER : WEIR_LINK_COPY;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        CHECK_OK(weir_pipe_prepare(trial.pipe, 5, NULL));
        run_many_steps(); /* the C library and the sanitizers have had what they want */
        uint64_t acquired = test_allocator_count();
        size_t heap = mallinfo2().uordblks, bytes = read_maps(before);
        run_many_steps();
        EXPECT_EQ_UINT(mallinfo2().uordblks, heap);
        EXPECT_EQ_UINT(test_allocator_count(), acquired);
        EXPECT_EQ_UINT(read_maps(after), bytes);
        EXPECT(bytes > 0 && strcmp(before, after) == 0);
        engine_trial_close(&trial);
    }
}

/* ---- the arena's own ---- */

static void test_lasting_memory_is_zero_and_where_the_attachment_says(void) {
    engine_model_init(&model, 4);
    struct weir_pipe_options options = engine_options(&model);
    options.workers = 2;
    CHECK(engine_trial_open(&trial, &model, &options, NULL)); /* attach checks the zeros */
    for (uint32_t s = 0; s < 4; s++) {
        struct weir_attachment at;
        CHECK_OK(weir_pipe_attachment(trial.pipe, s, &at));
        EXPECT_EQ_UINT(at.stage, s);
        EXPECT_EQ_UINT(at.worker, s % 2);
        EXPECT(at.threads >= 1);
        uintptr_t lasting = (uintptr_t)trial.pipe->memory.arenas[at.worker].lasting;
        size_t bytes = trial.pipe->memory.arenas[at.worker].lasting_bytes;
        EXPECT((uintptr_t)at.parameters - lasting < bytes);
        EXPECT((uintptr_t)at.gradients - lasting < bytes);
        EXPECT((uintptr_t)at.optimizer - lasting < bytes);
        EXPECT_EQ_UINT(weir_pipe_plan(trial.pipe)->devices[at.worker].total,
                       arena_bytes(at.worker));
    }
    struct weir_attachment none;
    EXPECT_STATUS(weir_pipe_attachment(trial.pipe, 4, &none), WEIR_ERR_ARGUMENT);
    engine_trial_close(&trial);
}

/* The trial's stages change their state in every task and verify it in the next. */
static void test_a_stages_state_lasts_from_step_to_step(void) {
    for (int infer_only = 0; infer_only < 2; infer_only++) {
        engine_model_init(&model, 3);
        model.stages[0].state_bytes = 1000, model.stages[2].state_bytes = 1;
        struct weir_pipe_options options = engine_options(&model);
        options.workers = 2, options.infer_only = infer_only != 0;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        CHECK_OK(weir_pipe_prepare(trial.pipe, 4, NULL));
        for (int k = 0; k < 3 && !test_has_failed(); k++) {
            if (!infer_only) engine_trial_step(&trial);
            engine_trial_infer(&trial);
            engine_trial_rows(&trial, 4, true);
        }
        struct weir_attachment at[3];
        for (uint32_t s = 0; s < 3; s++) CHECK_OK(weir_pipe_attachment(trial.pipe, s, &at[s]));
        EXPECT(at[1].state == NULL);
        EXPECT_EQ_UINT(((unsigned char *)at[0].state)[999], model.stages[0].task_count % 256);
        EXPECT_EQ_UINT(((unsigned char *)at[2].state)[0], model.stages[2].task_count % 256);
        EXPECT(model.stages[0].task_count >= 6);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

static void plan_of_state(size_t bytes, bool infer_only, struct weir_device_plan devices[2]) {
    struct weir_plan *plan;
    model.stages[1].state_bytes = bytes;
    struct weir_pipe_options options = engine_options(&model);
    options.workers = 2, options.infer_only = infer_only;
    CHECK_OK(weir_plan_new(&options, NULL, &plan));
    for (uint32_t d = 0; d < 2; d++) {
        const struct weir_device_plan *from = &plan->devices[d];
        devices[d] = *from;
        EXPECT_EQ_UINT(from->parameters + from->gradients + from->optimizer + from->activations +
                           from->borders + from->portals + from->workspace + from->padding,
                       from->total);
    }
    weir_plan_destroy(plan);
}

static void test_state_is_planned_to_the_byte(void) {
    for (int infer_only = 0; infer_only < 2; infer_only++) {
        struct weir_device_plan without[2], with[2];
        engine_model_init(&model, 3);
        plan_of_state(0, infer_only != 0, without);
        CHECK_HELPERS();
        plan_of_state(1000, infer_only != 0, with); /* 1024 with its alignment */
        CHECK_HELPERS();
        EXPECT_EQ_UINT(with[0].total, without[0].total);
        EXPECT_EQ_UINT(with[1].total, without[1].total + 1024);
        EXPECT_EQ_UINT(with[1].workspace, without[1].workspace + 1024);
        EXPECT_EQ_UINT(with[1].padding, without[1].padding);
    }
}

WEIR_TEST_SUITE(memory_run, TEST(steps_use_what_was_planned_and_nothing_else),
                TEST(poison_between_steps_changes_no_bit),
                TEST(a_hundred_steps_allocate_and_map_nothing),
                TEST(lasting_memory_is_zero_and_where_the_attachment_says),
                TEST(a_stages_state_lasts_from_step_to_step), TEST(state_is_planned_to_the_byte))
