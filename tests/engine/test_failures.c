/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever fails, wherever: the caller gets that status with its place, nobody hangs, little
 * is started afterwards, nothing is torn or leaked, and the same pipe's next step is right. Method:
 * every callback of every phase of all pipes up to 4 stages by 4 chunks fails once; every
 * allocation fails once and for good.
 */
#include "engine/engine_stages.h"
#include "pipe/run/pipe.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct engine_model model;
static struct engine_trial trial;
static struct engine_call points[ENGINE_CALLS_MAX];

/* Positive ones are the caller's own; any other is handed on as well. */
static const int statuses[] = {1,
                               77,
                               INT_MAX,
                               WEIR_ERR_BACKEND,
                               WEIR_ERR_NONFINITE,
                               WEIR_ERR_OUT_OF_MEMORY,
                               INT_MIN,
                               WEIR_ERR_TIMEOUT};
enum { STATUSES = sizeof statuses / sizeof statuses[0] };

static void chain(uint32_t stages) {
    engine_model_init(&model, stages);
    if (stages > 1) engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
    if (stages > 2) engine_skip(&model, 1, WEIR_SKIP_READ, "a");
    if (stages > 1) engine_skip(&model, stages - 1, WEIR_SKIP_POP, "a");
}

/* ---- every callback of a step ---- */

static bool expect_untouched(void) {
    bool same = true;
    for (uint32_t s = 0; same && s < model.stage_count; s++) {
        struct weir_attachment at;
        size_t bytes = model.stages[s].parameters * sizeof(double);
        same = EXPECT_STATUS(weir_pipe_attachment(trial.pipe, s, &at), WEIR_OK) &&
               EXPECT_EQ_BYTES(at.parameters, trial.reference.parameters[s], bytes) &&
               EXPECT_EQ_BYTES(at.optimizer, trial.reference.optimizer[s], bytes);
    }
    return same;
}

/* After an update that was torn: what is there now is what counts. */
static void take_state(void) {
    for (uint32_t s = 0; s < model.stage_count; s++) {
        struct weir_attachment at;
        size_t bytes = model.stages[s].parameters * sizeof(double);
        EXPECT_STATUS(weir_pipe_attachment(trial.pipe, s, &at), WEIR_OK);
        memcpy(trial.reference.parameters[s], at.parameters, bytes);
        memcpy(trial.reference.optimizer[s], at.optimizer, bytes);
    }
}

static void expect_record(const struct engine_call *at, int status) {
    const struct weir_error *error = &trial.result.error;
    char layer[16], message[64];
    bool whole = at->phase == WEIR_NORM || at->phase == WEIR_UPDATE;
    snprintf(layer, sizeof layer, "layer.%u", at->stage);
    snprintf(message, sizeof message, "meant to fail in %s", weir_phase_name(at->phase));
    EXPECT_STATUS(error->status, status);
    EXPECT_EQ_INT(error->stage, (int)at->stage);
    EXPECT_EQ_INT(error->micro_batch, whole ? -1 : (int)at->micro_batch);
    EXPECT_EQ_INT(error->phase, at->phase);
    EXPECT_EQ_STR(error->layer, layer);
    EXPECT_EQ_STR(error->message, message);
    EXPECT(trial.result.gradient_norm != trial.result.gradient_norm); /* none was taken */
    EXPECT(!trial.result.updated);
}

static void fail_at(const struct engine_call *at, uint32_t number) {
    int given = statuses[number % STATUSES];
    bool updates = at->phase == WEIR_UPDATE;
    struct weir_step step = engine_step(&trial.batch);
    model.failure.armed = true, model.failure.late = number % 3 == 1;
    model.failure.phase = at->phase, model.failure.stage = at->stage;
    model.failure.micro_batch = at->micro_batch, model.failure.status = given;
    int status = at->phase == WEIR_INFER ? weir_pipe_infer(trial.pipe, &step, &trial.result)
                                         : weir_pipe_step(trial.pipe, &step, &trial.result);
    model.failure.armed = false;
    EXPECT_STATUS(status, updates ? WEIR_ERR_TORN : given);
    expect_record(at, updates ? WEIR_ERR_TORN : given);
    if (updates)
        take_state();
    else
        expect_untouched();
    engine_trial_step(&trial);
}

/* Every callback that a step and an inference make fails once. */
static uint32_t fail_everywhere(const struct weir_pipe_options *options,
                                const struct engine_order *order) {
    if (!engine_trial_open(&trial, &model, options, order)) return 0;
    engine_trial_step(&trial);
    engine_trial_infer(&trial);
    uint32_t count = model.call_count;
    memcpy(points, model.calls, sizeof points);
    for (uint32_t i = 0; i < count && !test_has_failed(); i++) {
        engine_forget(&model);
        fail_at(&points[i], i);
        if (test_has_failed())
            printf("%u stages, %u chunks, %s, %s of stage %u, micro-batch %u\n",
                   options->stage_count, options->chunks, options->schedule,
                   weir_phase_name(points[i].phase), points[i].stage, points[i].micro_batch);
    }
    engine_trial_close(&trial);
    return count;
}

static void fail_everywhere_under(const char *schedule, enum weir_checkpoint mode) {
    uint32_t count = 0, expected = 0;
    for (uint32_t stages = 1; stages <= 4; stages++) {
        for (uint32_t chunks = 1; chunks <= 4; chunks++) {
            chain(stages);
            struct weir_pipe_options options = engine_options(&model);
            options.rows = options.chunks = chunks;
            options.schedule = schedule, options.checkpoint = mode;
            count += fail_everywhere(&options, NULL);
            uint32_t kinds = mode == WEIR_CHECKPOINT_ALWAYS ? 4 : 3; /* F, (R,) B, infer */
            expected += stages * (chunks * kinds + 2);
            CHECK_HELPERS();
        }
    }
    CHECK_EQ_UINT(count, expected);
}

// PI-8
// PI-9
static void test_any_failure_under_gpipe_is_reported_and_survived(void) {
    fail_everywhere_under("gpipe", WEIR_CHECKPOINT_ALWAYS);
    fail_everywhere_under("gpipe", WEIR_CHECKPOINT_NEVER);
}

// PI-8
// PI-9
static void test_any_failure_under_1f1b_is_reported_and_survived(void) {
    fail_everywhere_under("1f1b", WEIR_CHECKPOINT_ALWAYS);
    fail_everywhere_under("1f1b", WEIR_CHECKPOINT_NEVER);
}

// PI-9
static void test_any_failure_on_shared_workers_and_copies_is_survived(void) {
    for (uint32_t workers = 1; workers < 4; workers++) {
        chain(4);
        struct weir_pipe_options options = engine_options(&model);
        options.workers = workers, options.chunks = 3, options.link = WEIR_LINK_COPY;
        options.link_delay_ns = workers == 2 ? 50000 : 0;
        options.debug_inputs = workers == 3;
        CHECK(fail_everywhere(&options, NULL) > 4 * 3 * 3);
    }
}

// PI-9
static void test_any_failure_of_split_backwards_is_survived(void) {
    static char table[4096];
    for (int k = 0; k < 6; k++) {
        struct engine_order order = {0};
        chain(3);
        struct weir_pipe_options options = engine_options(&model);
        options.rows = options.chunks = 3;
        options.table_csv_bytes = engine_random_table(table, sizeof table, 3, 2 + (uint32_t)k % 2,
                                                      3, false, NULL, &order);
        options.table_csv = table;
        CHECK(fail_everywhere(&options, &order) > 3 * 3 * 3);
        CHECK_HELPERS();
    }
}

/* ---- little is started afterwards ---- */

struct flag {
    atomic_bool raised;
    _Atomic uint32_t later; /* calls that began afterwards */
    long nap_ns;            /* of every call before */
};

static int fail_first_of_last(void *context, const struct weir_task *task) {
    struct flag *flag = context;
    struct timespec little = {.tv_nsec = 1000000}, before = {.tv_nsec = flag->nap_ns};
    if (atomic_load(&flag->raised)) {
        atomic_fetch_add(&flag->later, 1);
        while (atomic_load(&trial.pipe->outcome.failed) == 0) nanosleep(&little, NULL);
        return 0;
    }
    if (flag->nap_ns > 0) nanosleep(&before, NULL);
    if (task->stage != 3) return 0;
    atomic_store(&flag->raised, true);
    return 13;
}

// PI-8
static void test_little_is_started_after_a_failure(void) {
    static const long naps[] = {0, 2000000};
    for (int k = 0; k < 4; k++) {
        struct flag flag = {.nap_ns = naps[k % 2]};
        chain(4);
        model.hook = fail_first_of_last, model.hook_context = &flag;
        struct weir_pipe_options options = engine_options(&model);
        options.rows = options.chunks = 60;
        options.schedule = k < 2 ? "gpipe" : "1f1b";
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        struct weir_step step = engine_step(&trial.batch);
        EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), 13);
        EXPECT_EQ_INT(trial.result.error.micro_batch, 0);
        EXPECT(flag.later <= 3); /* one of each other worker, which had not heard of it */
        EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_BACKWARD), 0);
        model.hook = NULL;
        engine_trial_step(&trial);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

/* ---- several at once ---- */

static int fail_all(void *context, const struct weir_task *task) {
    (void)context;
    if (task->phase != WEIR_BACKWARD) return 0;
    snprintf(task->error->message, sizeof task->error->message, "of %u", task->stage);
    return 100 + (int)task->stage;
}

static void test_the_record_is_of_one_failure(void) {
    char message[16];
    struct weir_pipe_options options;
    chain(4);
    for (uint32_t s = 0; s < 4; s++) model.stages[s].outputs[0].differentiable = false;
    for (uint32_t s = 0; s < 4; s++) model.stages[s].skip_count = 0;
    options = engine_options(&model); /* backwards wait for nothing: all fail at about once */
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    for (int k = 0; k < 200 && !test_has_failed(); k++) {
        struct weir_step step = engine_step(&trial.batch);
        model.hook = fail_all;
        int status = weir_pipe_step(trial.pipe, &step, &trial.result);
        EXPECT(status >= 100 && status < 104);
        EXPECT_STATUS(trial.result.error.status, status);
        EXPECT_EQ_INT(trial.result.error.stage, status - 100);
        snprintf(message, sizeof message, "of %d", status - 100);
        EXPECT_EQ_STR(trial.result.error.message, message);
        model.hook = NULL;
        if (k % 10 == 0) engine_trial_step(&trial);
    }
    engine_trial_close(&trial);
}

static int fail_silently(void *context, const struct weir_task *task) {
    (void)context;
    return task->phase == WEIR_BACKWARD && task->stage == 1 ? 9 : 0;
}

static void test_a_failure_without_words_gets_some(void) {
    chain(2);
    model.hook = fail_silently;
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), 9);
    EXPECT_EQ_STR(trial.result.error.message, weir_status_text(9));
    EXPECT_EQ_STR(trial.result.error.layer, "");
    engine_trial_close(&trial);
}

static void test_a_failed_accumulation_starts_again(void) {
    chain(3);
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    trial.base.accumulate_last = false, trial.base.loss_weight = 16.0;
    engine_trial_step(&trial);
    struct weir_step step = engine_step(&trial.batch);
    step.accumulate_first = false, step.loss_weight = 16.0;
    model.failure.armed = true, model.failure.phase = WEIR_BACKWARD, model.failure.stage = 1;
    model.failure.micro_batch = 2, model.failure.status = 8;
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), 8);
    model.failure.armed = false;
    engine_trial_step(&trial);
    trial.base.accumulate_first = false, trial.base.accumulate_last = true;
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

/* ---- callbacks without a task ---- */

static void expect_none_left(void) {
    EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
    EXPECT_EQ_UINT(atomic_load(&model.attached), atomic_load(&model.detached));
}

static void test_a_failure_while_building_is_reported(void) {
    for (int at = ENGINE_MEASURE; at <= ENGINE_PREPARE; at++) {
        for (uint32_t k = 0; k < 6; k++) {
            char part[32];
            chain(3);
            model.lifecycle.at = (enum engine_lifecycle)at, model.lifecycle.stage = k / 2;
            model.lifecycle.status = k % 2 == 0 ? 41 : WEIR_ERR_BACKEND;
            struct weir_pipe_options options = engine_options(&model);
            options.workers = 2;
            snprintf(part, sizeof part, "stage %u", k / 2);
            CHECK(engine_expect_refused(&options, model.lifecycle.status, part));
            expect_none_left();
        }
    }
}

static void test_a_failure_while_preparing_leaves_the_pipe_as_it_was(void) {
    for (int at = ENGINE_MEASURE; at <= ENGINE_PREPARE; at += 2) {
        for (uint32_t s = 0; s < 3; s++) {
            struct weir_faults faults = {.allocator = test_allocator()};
            char part[32];
            chain(3);
            struct weir_pipe_options options = engine_options(&model);
            options.rows = 12;
            CHECK(engine_trial_open(&trial, &model, &options, NULL));
            model.lifecycle.at = (enum engine_lifecycle)at, model.lifecycle.stage = s;
            model.lifecycle.status = 43;
            EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 6, &faults), 43);
            snprintf(part, sizeof part, "stage %u", s);
            EXPECT_CONTAINS(faults.kept > 0 ? faults.lines[0] : "", part);
            EXPECT(weir_pipe_table(trial.pipe, 6) == NULL);
            engine_trial_step(&trial);
            model.lifecycle.at = ENGINE_NONE;
            EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 6, NULL), WEIR_OK);
            engine_trial_rows(&trial, 6, false);
            weir_faults_clean_up(&faults);
            engine_trial_close(&trial);
            CHECK_HELPERS();
        }
    }
}

/* ---- memory ---- */

typedef int attempt_fn(const struct weir_pipe_options *options, struct weir_faults *faults);

static int attempt_pipe(const struct weir_pipe_options *options, struct weir_faults *faults) {
    struct weir_pipe *pipe = NULL;
    int status = weir_pipe_new(options, faults, &pipe);
    if (status == WEIR_OK)
        weir_pipe_destroy(pipe);
    else
        EXPECT(pipe == NULL);
    return status;
}

static int attempt_plan(const struct weir_pipe_options *options, struct weir_faults *faults) {
    struct weir_plan *plan = NULL;
    int status = weir_plan_new(options, faults, &plan);
    if (status == WEIR_OK)
        weir_plan_destroy(plan);
    else
        EXPECT(plan == NULL);
    return status;
}

/* Every k until none fails any more; returns how many there were. */
static uint64_t fail_every_allocation(attempt_fn *attempt, const struct weir_pipe_options *options,
                                      bool persistent) {
    for (uint64_t k = 1;; k++) {
        struct weir_faults faults = {.allocator = test_allocator()};
        test_allocator_fail_at(k, persistent);
        int status = attempt(options, &faults);
        bool fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        weir_faults_clean_up(&faults);
        expect_none_left();
        if (!EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK) || !fired) return k;
        if (test_has_failed()) return k;
    }
}

static void test_every_allocation_of_building_may_fail(void) {
    static const char table[] = "0F0,0F1,0B1,0B0\n1F0,2F0,1F1,2F1,2B1,1B1,2B0,1B0\n";
    for (int k = 0; k < 4; k++) {
        chain(3);
        struct weir_pipe_options options = engine_options(&model);
        options.chunks = 2, options.link = WEIR_LINK_COPY;
        if (k / 2 == 1) options.table_csv = table, options.table_csv_bytes = sizeof table - 1;
        EXPECT(fail_every_allocation(attempt_pipe, &options, k % 2 != 0) > 20);
        EXPECT(fail_every_allocation(attempt_plan, &options, k % 2 != 0) > 10);
        CHECK_HELPERS();
    }
}

static void test_every_allocation_of_preparing_may_fail(void) {
    for (int persistent = 0; persistent < 2; persistent++) {
        chain(3);
        struct weir_pipe_options options = engine_options(&model);
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        bool fired = true;
        for (uint64_t k = 1; fired && !test_has_failed(); k++) {
            size_t live = test_allocator_live_blocks();
            test_allocator_fail_at(k, persistent != 0);
            int status = weir_pipe_prepare(trial.pipe, 5, NULL);
            fired = test_allocator_fired();
            test_allocator_fail_at(0, false);
            EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
            EXPECT((weir_pipe_table(trial.pipe, 5) == NULL) == fired);
            if (fired) EXPECT_EQ_UINT(test_allocator_live_blocks(), live);
            if (k % 8 == 0) engine_trial_step(&trial);
        }
        engine_trial_rows(&trial, 5, false);
        engine_trial_rows(&trial, 5, true);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

static void test_an_arena_that_cannot_be_had_is_reported(void) {
    chain(2);
    model.stages[0].outputs[0].shape[0] = 1 << 22;
    struct weir_pipe_options options = engine_options(&model);
    options.rows = 1 << 22, options.chunks = 1; /* 2^46 bytes for a border alone */
    CHECK(engine_expect_refused(&options, WEIR_ERR_OUT_OF_MEMORY, "for its arena"));
    expect_none_left();
}

WEIR_TEST_SUITE(failures, TEST(any_failure_under_gpipe_is_reported_and_survived),
                TEST(any_failure_under_1f1b_is_reported_and_survived),
                TEST(any_failure_on_shared_workers_and_copies_is_survived),
                TEST(any_failure_of_split_backwards_is_survived),
                TEST(little_is_started_after_a_failure), TEST(the_record_is_of_one_failure),
                TEST(a_failure_without_words_gets_some), TEST(a_failed_accumulation_starts_again),
                TEST(a_failure_while_building_is_reported),
                TEST(a_failure_while_preparing_leaves_the_pipe_as_it_was),
                TEST(every_allocation_of_building_may_fail),
                TEST(every_allocation_of_preparing_may_fail),
                TEST(an_arena_that_cannot_be_had_is_reported))
