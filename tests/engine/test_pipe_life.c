/* SPDX-License-Identifier: MIT */
/*
 * Goal: pipes come and go without a trace, live beside each other, and say so when they are in use
 * or stuck; workers are threads that last. Method: what /proc says of this process before and
 * after; callbacks that block until they are told.
 */
#include "engine/engine_stages.h"

#include "pipe/run/pipe.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct engine_model model, second;
static struct engine_trial trial, other;

enum { EVENTS_MAX = 512, MILLISECOND = 1000000 };

/* The thread sanitizer remembers threads that have ended. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KEEPS_THREADS true
#endif
#endif
#ifndef KEEPS_THREADS
#define KEEPS_THREADS false
#endif

static struct weir_pipe_options chain(struct engine_model *of, uint32_t stages) {
    engine_model_init(of, stages);
    if (stages > 2) {
        engine_skip(of, 0, WEIR_SKIP_STASH, "a");
        engine_skip(of, 2, WEIR_SKIP_POP, "a");
    }
    return engine_options(of);
}

/* ---- what the process has ---- */

static uint32_t count_entries(const char *path) {
    uint32_t count = 0;
    DIR *directory = opendir(path);
    for (; directory != NULL && readdir(directory) != NULL; count++) continue;
    if (directory != NULL) closedir(directory);
    return count;
}

static uint32_t count_threads(void) {
    return count_entries("/proc/self/task");
}

static void *do_nothing(void *argument) {
    return argument;
}

/* Threads of this process without a pipe; the thread sanitizer has one from the first on. */
static uint32_t count_threads_alone(void) {
    struct timespec little = {.tv_nsec = 50 * MILLISECOND};
    pthread_t thread;
    if (pthread_create(&thread, NULL, do_nothing, NULL) == 0) pthread_join(thread, NULL);
    nanosleep(&little, NULL); /* those of the last test may stand in /proc a little longer */
    return count_threads();
}

/* The same for threads that were joined just now. */
static void expect_threads(uint32_t expected) {
    struct timespec little = {.tv_nsec = MILLISECOND};
    for (int k = 0; k < 60000 && count_threads() != expected; k++) nanosleep(&little, NULL);
    EXPECT_EQ_UINT(count_threads(), expected);
}

/* Address space in pages. */
static long count_pages(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld", &pages) != 1) TEST_FAIL("no /proc/self/statm");
    if (file != NULL) fclose(file);
    return pages;
}

static void build_and_destroy(const struct weir_pipe_options *options, uint32_t number) {
    struct weir_pipe *pipe;
    struct weir_step_result result;
    CHECK_OK(weir_pipe_new(options, NULL, &pipe));
    struct weir_step step = engine_step(&trial.batch);
    if (number % 4 == 0) EXPECT_STATUS(weir_pipe_step(pipe, &step, &result), WEIR_OK);
    if (number % 4 == 1) { /* destroyed after a failed step */
        model.failure.armed = true;
        EXPECT_STATUS(weir_pipe_step(pipe, &step, &result), 77);
        model.failure.armed = false;
    }
    weir_pipe_destroy(pipe);
}

// PI-12
static void test_a_thousand_pipes_leave_nothing_behind(void) {
    enum { PIPES = 1000, WARM = 20 };
    uint32_t threads = count_threads_alone(), descriptors = 0;
    long pages = 0;
    struct weir_pipe_options options = chain(&model, 3);
    model.failure.phase = WEIR_BACKWARD, model.failure.stage = 1, model.failure.status = 77;
    engine_batch_init(&trial.batch, &model, options.rows, 1);
    for (uint32_t i = 0; i < PIPES && !test_has_failed(); i++) {
        build_and_destroy(&options, i);
        EXPECT_EQ_UINT(test_allocator_live_blocks(), 0);
        if (i != WARM) continue;
        descriptors = count_entries("/proc/self/fd");
        pages = count_pages();
    }
    expect_threads(threads);
    EXPECT_EQ_UINT(count_entries("/proc/self/fd"), descriptors);
    if (!KEEPS_THREADS) /* the C library's own, not 16 KiB for each pipe */
        EXPECT(count_pages() - pages < 256 * 16);
    EXPECT_EQ_UINT(atomic_load(&model.attached), 3 * PIPES);
    EXPECT_EQ_UINT(atomic_load(&model.detached), 3 * PIPES);
    engine_batch_clean_up(&trial.batch);
}

static void test_destroying_nothing_does_nothing(void) {
    weir_pipe_destroy(NULL);
}

/* ---- pipes beside each other ---- */

static void *run_steps(void *argument) {
    struct engine_trial *of = argument;
    for (int k = 0; k < 60 && !test_has_failed(); k++) engine_trial_step(of);
    return NULL;
}

// PI-13
static void test_two_pipes_share_the_cores(void) {
    pthread_t thread;
    struct weir_pipe_options options = chain(&model, 3);
    struct weir_pipe_options options_of_other = chain(&second, 4);
    options.bind = options_of_other.bind = NULL; /* the default, on the same cores */
    model.jitter = 5;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    CHECK(engine_trial_open(&other, &second, &options_of_other, NULL));
    CHECK_EQ_INT(pthread_create(&thread, NULL, run_steps, &other), 0);
    run_steps(&trial);
    pthread_join(thread, NULL);
    engine_trial_close(&trial);
    engine_trial_step(&other);
    engine_trial_close(&other);
}

// PI-12
static void test_destroying_a_pipe_does_not_disturb_another(void) {
    pthread_t thread;
    struct weir_pipe_options options = chain(&model, 2);
    struct weir_pipe_options options_of_other = chain(&second, 3);
    second.jitter = 4;
    CHECK(engine_trial_open(&other, &second, &options_of_other, NULL));
    CHECK_EQ_INT(pthread_create(&thread, NULL, run_steps, &other), 0);
    for (int k = 0; k < 10; k++) {
        if (!engine_trial_open(&trial, &model, &options, NULL)) break;
        engine_trial_step(&trial);
        engine_trial_close(&trial);
    }
    pthread_join(thread, NULL);
    engine_trial_close(&other);
}

static void *one_step(void *argument) {
    engine_trial_step(argument);
    return NULL;
}

// PI-13
static void test_a_pipe_may_be_used_from_any_thread(void) {
    struct weir_pipe_options options = chain(&model, 3);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    for (int k = 0; k < 8; k++) {
        pthread_t thread;
        CHECK_EQ_INT(pthread_create(&thread, NULL, one_step, &trial), 0);
        pthread_join(thread, NULL);
    }
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

/* ---- blocking callbacks ---- */

struct blocker {
    enum weir_phase phase;
    uint32_t stage;
    atomic_bool closed, inside;
};

static void nap(long ns) {
    struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&time, NULL);
}

static int block(void *context, const struct weir_task *task) {
    struct blocker *blocker = context;
    if (task->phase != blocker->phase || task->stage != blocker->stage) return 0;
    atomic_store(&blocker->inside, true);
    while (atomic_load(&blocker->closed)) nap(MILLISECOND);
    return 0;
}

// PI-13
static void test_a_pipe_in_use_is_busy(void) {
    pthread_t thread;
    struct blocker blocker = {.phase = WEIR_BACKWARD, .stage = 1, .closed = true};
    struct weir_step_result result;
    struct weir_attachment at;
    double number = 3;
    struct weir_pipe_options options = chain(&model, 2);
    model.hook = block, model.hook_context = &blocker;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    CHECK_OK(weir_pipe_attachment(trial.pipe, 0, &at));
    struct weir_step step = engine_step(&trial.batch);
    CHECK_EQ_INT(pthread_create(&thread, NULL, one_step, &trial), 0);
    while (!atomic_load(&blocker.inside)) sched_yield();
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &result), WEIR_ERR_BUSY);
    EXPECT_CONTAINS(result.error.message, "one thread at a time");
    EXPECT_STATUS(weir_pipe_infer(trial.pipe, &step, &result), WEIR_ERR_BUSY);
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 3, NULL), WEIR_ERR_BUSY);
    EXPECT_STATUS(weir_pipe_read(trial.pipe, 0, &number, at.parameters, sizeof number),
                  WEIR_ERR_BUSY);
    EXPECT_STATUS(weir_pipe_write(trial.pipe, 0, at.parameters, &number, sizeof number),
                  WEIR_ERR_BUSY);
    EXPECT(number == 3);
    atomic_store(&blocker.closed, false);
    pthread_join(thread, NULL); /* and that step is right */
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

/* ---- work ahead ---- */

/* Of stage 1, in pieces that stage 0 waits for: done while worker 1 waits, or not at all. */
static struct {
    struct weir_stage_calls calls;
    uint32_t pieces;
    int status;
    _Atomic uint32_t done;
} ahead;

static int work_ahead(void *context, const struct weir_task *task, bool *more) {
    const struct engine_stage *stage = context;
    EXPECT_EQ_UINT(task->stage, 1);
    EXPECT(task->state == stage->state && task->parameters != NULL);
    *more = atomic_fetch_add(&ahead.done, 1) + 1 < ahead.pieces;
    return ahead.status;
}

static int await_pieces(void *context, const struct weir_task *task) {
    (void)context;
    for (int k = 0; task->stage == 0 && k < 5000 && atomic_load(&ahead.done) < ahead.pieces; k++)
        nap(MILLISECOND);
    return 0;
}

static bool open_ahead(uint32_t pieces, int status) {
    struct weir_pipe_options options = chain(&model, 2);
    ahead.calls = *model.described[1].calls;
    ahead.calls.ahead = work_ahead;
    ahead.pieces = pieces, ahead.status = status;
    atomic_store(&ahead.done, 0);
    model.described[1].calls = &ahead.calls;
    model.hook = await_pieces;
    return engine_trial_open(&trial, &model, &options, NULL);
}

static void test_what_can_be_done_ahead_is_done_while_a_worker_waits(void) {
    CHECK(open_ahead(3, WEIR_OK));
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_OK);
    EXPECT(atomic_load(&ahead.done) >= 3);
    engine_trial_close(&trial);
    CHECK(open_ahead(1, WEIR_OK));
    engine_trial_step(&trial); /* and no bit is another */
    engine_trial_close(&trial);
}

static void test_work_ahead_that_fails_ends_the_step(void) {
    CHECK(open_ahead(1, 7));
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), 7);
    EXPECT_EQ_INT(trial.result.error.stage, 1);
    engine_trial_close(&trial);
}

/* A step that has begun, to be destroyed under. */
struct stepping {
    struct weir_pipe *pipe;
    struct weir_step step;
    int status;
    _Atomic bool begun;
};

static int begin(void *context, const struct weir_task *task) {
    struct stepping *stepping = context;
    (void)task;
    atomic_store(&stepping->begun, true);
    return WEIR_OK;
}

static void *step_once(void *argument) {
    struct stepping *stepping = argument;
    stepping->status = weir_pipe_step(stepping->pipe, &stepping->step, NULL);
    return NULL;
}

static void test_destroying_waits_for_a_step(void) {
    struct weir_pipe_options options = chain(&model, 2);
    for (int i = 0; i < 1000 && !test_has_failed(); i++) {
        struct stepping stepping = {.status = WEIR_ERR_BUSY};
        pthread_t thread;
        model.hook = begin, model.hook_context = &stepping;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        stepping.pipe = trial.pipe;
        stepping.step = engine_step(&trial.batch);
        CHECK_EQ_INT(pthread_create(&thread, NULL, step_once, &stepping), 0);
        while (!atomic_load(&stepping.begun)) sched_yield();
        uint64_t stop = weir__now_ns() + test_random_below(200000);
        while (weir__now_ns() < stop) sched_yield();
        engine_trial_close(&trial);
        pthread_join(thread, NULL);
        EXPECT_STATUS(stepping.status, WEIR_OK);
    }
}

/* ---- the watchdog ---- */

static void expect_timeout(enum weir_phase phase, uint32_t stage, int status, bool of_micro_batch) {
    struct blocker blocker = {.phase = phase, .stage = stage, .closed = true};
    struct weir_pipe_options options = chain(&model, 2);
    options.watchdog_ns = 100 * MILLISECOND;
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    model.hook = block, model.hook_context = &blocker;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), status);
    EXPECT_STATUS(trial.result.error.status, status);
    EXPECT_EQ_INT(trial.result.error.stage, (int)stage);
    EXPECT_EQ_INT(trial.result.error.micro_batch, of_micro_batch ? 0 : -1);
    EXPECT_EQ_INT(trial.result.error.phase, phase);
    EXPECT_CONTAINS(trial.result.error.message, "the limit is 0.1 s");
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_BUSY);
    EXPECT_CONTAINS(trial.result.error.message, "has not returned");
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 3, NULL), WEIR_ERR_BUSY);
    atomic_store(&blocker.closed, false);
    int again;
    do {
        nap(MILLISECOND);
        again = weir_pipe_infer(trial.pipe, &step, &trial.result);
    } while (again == WEIR_ERR_BUSY);
    EXPECT_STATUS(again, WEIR_OK);
    if (phase != WEIR_UPDATE) engine_trial_step(&trial);
    engine_trial_close(&trial);
}

static void test_a_callback_that_does_not_return_is_reported(void) {
    expect_timeout(WEIR_FORWARD_CHECKPOINT, 0, WEIR_ERR_TIMEOUT, true);
    expect_timeout(WEIR_FORWARD_CHECKPOINT, 1, WEIR_ERR_TIMEOUT, true);
    expect_timeout(WEIR_RECOMPUTE, 1, WEIR_ERR_TIMEOUT, true);
    expect_timeout(WEIR_BACKWARD, 0, WEIR_ERR_TIMEOUT, true);
    expect_timeout(WEIR_NORM, 1, WEIR_ERR_TIMEOUT, false);
    expect_timeout(WEIR_UPDATE, 1, WEIR_ERR_TORN, false);
}

static void *close_soon(void *argument) {
    struct blocker *blocker = argument;
    nap(30 * MILLISECOND);
    atomic_store(&blocker->closed, false);
    return NULL;
}

static void test_destroying_waits_for_a_callback_that_does_not_return(void) {
    pthread_t thread;
    struct blocker blocker = {.phase = WEIR_BACKWARD, .stage = 0, .closed = true};
    struct weir_pipe_options options = chain(&model, 2);
    options.watchdog_ns = 10 * MILLISECOND;
    model.hook = block, model.hook_context = &blocker;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_TIMEOUT);
    CHECK_EQ_INT(pthread_create(&thread, NULL, close_soon, &blocker), 0);
    engine_trial_close(&trial);
    EXPECT(!atomic_load(&blocker.closed));
    pthread_join(thread, NULL);
}

static int dawdle(void *context, const struct weir_task *task) {
    (void)context, (void)task;
    nap(MILLISECOND);
    return 0;
}

/* The limit is for one callback, not for the step. */
static void test_many_short_callbacks_are_no_timeout(void) {
    struct weir_pipe_options options = chain(&model, 2);
    options.watchdog_ns = 500 * MILLISECOND, options.rows = options.chunks = 64;
    model.hook = dawdle; /* 2 * 64 * 3 milliseconds at least, on two workers */
    options.wait = WEIR_WAIT_PARK;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    for (int k = 0; k < 3; k++) engine_trial_step(&trial);
    engine_trial_close(&trial);
}

/* ---- workers ---- */

/* A barrier in which all stages must be at once: it is passed only if they run at the same time. */
struct meeting {
    uint32_t stages;
    _Atomic uint32_t arrived;
    atomic_bool missed;
};

static int meet(void *context, const struct weir_task *task) {
    struct meeting *meeting = context;
    uint32_t all = meeting->stages * task->micro_batch_count;
    if (task->phase != WEIR_FORWARD && task->phase != WEIR_FORWARD_CHECKPOINT) return 0;
    /* in clock cycle k stage j is at micro-batch k - j: all are busy at cycle stages - 1 */
    if (task->stage + task->micro_batch != meeting->stages - 1) return 0;
    atomic_fetch_add(&meeting->arrived, 1);
    for (uint32_t i = 0; atomic_load(&meeting->arrived) < meeting->stages; i++) {
        if (i == 10000) atomic_store(&meeting->missed, true);
        if (i >= 10000 || all == 0) return 0;
        nap(MILLISECOND / 2);
    }
    return 0;
}

static struct weir_trace_event events[2][EVENTS_MAX];

static bool any_overlap(uint32_t count_a, uint32_t count_b) {
    for (uint32_t a = 0; a < count_a; a++)
        for (uint32_t b = 0; b < count_b; b++)
            if (events[0][a].start < events[1][b].end && events[1][b].start < events[0][a].end)
                return true;
    return false;
}

// ST-4
static void test_workers_run_at_the_same_time(void) {
    struct meeting meeting = {.stages = 2};
    struct weir_pipe_options options = chain(&model, 2);
    options.bind = NULL, options.schedule = "gpipe";
    model.hook = meet, model.hook_context = &meeting;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    EXPECT(!atomic_load(&meeting.missed));
    EXPECT(any_overlap(weir_pipe_trace(trial.pipe, 0, EVENTS_MAX, events[0]),
                       weir_pipe_trace(trial.pipe, 1, EVENTS_MAX, events[1])));
    engine_trial_close(&trial);
}

// ST-4
static void test_workers_outlive_steps_and_end_with_the_pipe(void) {
    int threads[3];
    uint32_t before = count_threads_alone();
    struct weir_pipe_options options = chain(&model, 3);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    EXPECT_EQ_UINT(count_threads(), before + 3);
    for (uint32_t s = 0; s < 3; s++) threads[s] = model.stages[s].thread;
    EXPECT(threads[0] != threads[1] && threads[1] != threads[2] && threads[0] != threads[2]);
    for (int k = 0; k < 3; k++) engine_trial_step(&trial); /* each task checks its thread */
    model.failure.armed = true, model.failure.phase = WEIR_BACKWARD;
    model.failure.stage = 2, model.failure.status = 5;
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), 5);
    EXPECT_EQ_UINT(count_threads(), before + 3);
    engine_trial_close(&trial);
    expect_threads(before);
}

// ST-4
static void test_stages_of_one_worker_share_a_thread(void) {
    static const char table[] = "0F0,2F0,2B0,0B0\n1F0,1B0\n";
    struct engine_order order = {0};
    struct weir_pipe_options options = chain(&model, 3);
    options.rows = 2, options.chunks = 1;
    options.table_csv = table, options.table_csv_bytes = sizeof table - 1;
    CHECK(engine_trial_open(&trial, &model, &options, &order));
    engine_trial_step(&trial);
    EXPECT_EQ_INT(model.stages[0].thread, model.stages[2].thread);
    EXPECT(model.stages[0].thread != model.stages[1].thread);
    engine_trial_close(&trial);
}

/* Their values are 32 bits wide; a long training passes the end of them. */
static void test_progress_counters_may_wrap(void) {
    struct weir_pipe_options options = chain(&model, 3);
    options.recompute_late = true;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    for (uint32_t k = 0; k < 40 && !test_has_failed(); k++) {
        for (uint32_t w = 0; w < 3; w++)
            atomic_store(&trial.pipe->workers[w].progress.value, UINT32_MAX - k - 7 * w);
        engine_trial_step(&trial);
    }
    engine_trial_close(&trial);
}

/* Half of what the cores' last cache holds; without one, what the device was opened with. */
static void test_devices_know_the_last_cache(void) {
    static const char *const machines[] = {"l3:1(size=6291456) core:2 pu:1", "core:2 pu:1"};
    static const uint64_t caches[] = {6291456, 0};
    for (size_t i = 0; i < WEIR__COUNT_OF(machines); i++) {
        struct weir_pipe_options options = chain(&model, 2);
        setenv("HWLOC_SYNTHETIC", machines[i], 1);
        bool opened = engine_trial_open(&trial, &model, &options, NULL);
        unsetenv("HWLOC_SYNTHETIC");
        CHECK(opened);
        for (uint32_t w = 0; w < 2; w++)
            EXPECT_EQ_UINT(trial.pipe->workers[w].device->stream_min,
                           weir__copy_stream_min(caches[i]));
        engine_trial_step(&trial);
        engine_trial_close(&trial);
    }
}

WEIR_TEST_SUITE(pipe_life, TEST(a_thousand_pipes_leave_nothing_behind),
                TEST(destroying_nothing_does_nothing), TEST(two_pipes_share_the_cores),
                TEST(destroying_a_pipe_does_not_disturb_another),
                TEST(a_pipe_may_be_used_from_any_thread), TEST(a_pipe_in_use_is_busy),
                TEST(what_can_be_done_ahead_is_done_while_a_worker_waits),
                TEST(work_ahead_that_fails_ends_the_step), TEST(destroying_waits_for_a_step),
                TEST(a_callback_that_does_not_return_is_reported),
                TEST(destroying_waits_for_a_callback_that_does_not_return),
                TEST(many_short_callbacks_are_no_timeout), TEST(workers_run_at_the_same_time),
                TEST(workers_outlive_steps_and_end_with_the_pipe),
                TEST(stages_of_one_worker_share_a_thread), TEST(progress_counters_may_wrap),
                TEST(devices_know_the_last_cache))
