/* SPDX-License-Identifier: MIT */
/*
 * Goal: the watchdog's limit holds for each thing that a device is given, not for the step, and its
 * error names the one that hangs, wherever threads wait meanwhile. Method: the fake driver in its
 * lazy order, where nothing runs before somebody waits for it; functions of the host in streams
 * that take their time, or do not return before they are let go. That driver does one thing at a
 * time, and what could run meanwhile looks as if it hung too: so where a name is asked for nothing
 * could.
 */
#include "engine/engine_gpu.h"
#include "pipe/run/pipe.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { MILLISECOND = 1000000, LIMIT_MS = 300 };

static struct engine_model model;
static struct engine_trial trial;

static struct {
    enum weir_phase phase;
    uint32_t stage, micro_batch;
    atomic_bool closed;
    atomic_bool inside;
} gate;

static void nap(long ns) {
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static void stay(const void *arguments) {
    (void)arguments;
    atomic_store(&gate.inside, true);
    while (atomic_load(&gate.closed)) nap(MILLISECOND);
}

static int give_gate(void *context, const struct weir_task *task) {
    const struct weir_fake_cuda_control *gpu = context;
    bool of_micro_batch = task->phase != WEIR_NORM && task->phase != WEIR_UPDATE;
    if (task->phase != gate.phase || task->stage != gate.stage) return WEIR_OK;
    if (of_micro_batch && task->micro_batch != gate.micro_batch) return WEIR_OK;
    return gpu->launch(weir_stream_cuda(task->stream), stay, &gate, 1);
}

static bool open_pipe(const struct weir_fake_cuda_control *gpu, const char *const *devices,
                      uint32_t stages, uint32_t chunks) {
    gpu->reset(1, 2, 0);
    gpu->set_order(WEIR_FAKE_CUDA_LAZY);
    engine_model_init(&model, stages);
    model.gpu = gpu;
    struct weir_pipe_options options = engine_options(&model);
    options.schedule = "gpipe";
    options.chunks = chunks;
    options.rows = 2 * chunks;
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    options.recompute_late = true;
    options.devices = devices;
    options.device_count = stages;
    options.wait = WEIR_WAIT_PARK;
    options.watchdog_ns = (uint64_t)LIMIT_MS * MILLISECOND;
    return engine_trial_open(&trial, &model, &options, NULL);
}

/* Where the host has given updates already, they will be done when the gate opens. */
static void expect_named(const struct weir_fake_cuda_control *gpu, enum weir_phase phase,
                         int32_t stage, int32_t micro_batch, const char *what) {
    const struct weir_error *error = &trial.result.error;
    atomic_store(&gate.closed, true);
    atomic_store(&gate.inside, false);
    model.hook = give_gate, model.hook_context = (void *)(uintptr_t)gpu;
    struct weir_step step = engine_step(&trial.batch);
    int status = weir_pipe_step(trial.pipe, &step, &trial.result);
    EXPECT(atomic_load(&gate.inside));
    EXPECT(status == WEIR_ERR_TIMEOUT || status == WEIR_ERR_TORN);
    EXPECT_EQ_INT(error->stage, stage);
    EXPECT_EQ_INT(error->micro_batch, micro_batch);
    EXPECT_EQ_STR(weir_phase_name(error->phase), weir_phase_name(phase));
    EXPECT_CONTAINS(error->message, "the limit is 0.3 s");
    EXPECT_CONTAINS(error->message, what);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_BUSY);
    atomic_store(&gate.closed, false);
    model.hook = NULL;
    do {
        nap(MILLISECOND);
        status = weir_pipe_infer(trial.pipe, &step, &trial.result);
    } while (status == WEIR_ERR_BUSY);
    EXPECT_STATUS(status, WEIR_OK);
    engine_trial_close(&trial);
    engine_gpu_expect_clean(gpu);
}

static const char its_own[] = "what it gave its device has not ended";

static void test_the_action_that_hangs_is_named(void) {
    static const char *const devices[] = {"cuda:0", "cuda:1"};
    static const struct {
        enum weir_phase phase;
        uint32_t stages, chunks, stage, micro_batch;
    } cases[] = {{WEIR_FORWARD_CHECKPOINT, 1, 3, 0, 1},
                 {WEIR_RECOMPUTE, 1, 3, 0, 1},
                 {WEIR_BACKWARD, 1, 3, 0, 0},
                 {WEIR_NORM, 1, 3, 0, 0},
                 {WEIR_UPDATE, 1, 3, 0, 0},
                 {WEIR_FORWARD_CHECKPOINT, 2, 1, 0, 0},
                 {WEIR_FORWARD_CHECKPOINT, 2, 1, 1, 0},
                 {WEIR_RECOMPUTE, 2, 1, 1, 0},
                 {WEIR_BACKWARD, 2, 1, 1, 0}};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (size_t i = 0; gpu != NULL && i < WEIR__COUNT_OF(cases); i++) {
        bool whole = cases[i].phase == WEIR_NORM || cases[i].phase == WEIR_UPDATE;
        gate.phase = cases[i].phase;
        gate.stage = cases[i].stage, gate.micro_batch = cases[i].micro_batch;
        CHECK(open_pipe(gpu, devices, cases[i].stages, cases[i].chunks));
        expect_named(gpu, gate.phase, (int32_t)gate.stage, whole ? -1 : (int32_t)gate.micro_batch,
                     its_own);
        CHECK_HELPERS();
    }
}

/* The CPU's thread waits for the device, the devices' threads for the CPU's. */
static void test_what_hangs_beside_a_cpu_is_named(void) {
    static const char *const devices[][3] = {{"cuda:0", "cpu", "cuda:1"}, {"cpu", "cuda:0", "cpu"}};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    for (uint32_t i = 0; gpu != NULL && i < WEIR__COUNT_OF(devices); i++) {
        gate.phase = WEIR_FORWARD_CHECKPOINT;
        gate.stage = i, gate.micro_batch = 0;
        CHECK(open_pipe(gpu, devices[i], 3, 2));
        expect_named(gpu, gate.phase, (int32_t)i, 0, its_own);
        CHECK_HELPERS();
    }
}

/* Its stream is kept before the step begins. */
static void test_a_copy_that_hangs_is_named_by_its_action(void) {
    static const char *const devices[] = {"cuda:0"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    CHECK(open_pipe(gpu, devices, 1, 2));
    struct weir_stream *stream = trial.pipe->workers[0].copy_streams->stream;
    CHECK_OK(stream->device->calls->enter(stream->device));
    atomic_store(&gate.closed, true);
    CHECK_EQ_INT(gpu->launch(weir_stream_cuda(stream), stay, &gate, 1), 0);
    gate.phase = WEIR_FORWARD_CHECKPOINT, gate.stage = UINT32_MAX; /* no other gate */
    expect_named(gpu, gate.phase, 0, 0, "a copy for it has not ended");
}

static void linger(const void *arguments) {
    (void)arguments;
    nap(30L * MILLISECOND);
}

static int dawdle(void *context, const struct weir_task *task) {
    const struct weir_fake_cuda_control *gpu = context;
    return gpu->launch(weir_stream_cuda(task->stream), linger, &gate, 1);
}

/* Together they take twice the limit and more, one after the other. */
static void test_a_step_of_short_actions_may_take_longer(void) {
    static const char *const devices[] = {"cuda:0", "cuda:1"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    CHECK(open_pipe(gpu, devices, 2, 3));
    model.hook = dawdle, model.hook_context = (void *)(uintptr_t)gpu;
    uint64_t before = weir__now_ns();
    engine_trial_step(&trial);
    EXPECT(weir__now_ns() - before > 2 * (uint64_t)LIMIT_MS * MILLISECOND);
    model.hook = NULL;
    engine_trial_close(&trial);
    engine_gpu_expect_clean(gpu);
}

/* As a driver whose queue is full keeps an update until earlier work has ended. */
static int wait_for_all(void *context, const struct weir_task *task) {
    if (task->phase != WEIR_UPDATE) return dawdle(context, task);
    const struct weir_pipe *pipe = trial.pipe;
    const uint32_t *rows = pipe->command.plan->table->lines;
    uint32_t given = atomic_load(&pipe->workers[0].progress.value) - pipe->workers[0].base;
    int status = given > 8 && given <= rows[1] ? WEIR_OK : WEIR_ERR_CALLBACK;
    for (uint32_t i = 0; status == WEIR_OK && i < given; i++) {
        struct weir__event *event = weir__signal(&pipe->workers[0].signals, i, pipe->command.turn);
        status = event->device->calls->event_wait(event);
    }
    return status;
}

static void test_a_full_queue_is_no_callback_that_hangs(void) {
    static const char *const devices[] = {"cuda:0"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    CHECK(open_pipe(gpu, devices, 1, 8));
    model.hook = wait_for_all, model.hook_context = (void *)(uintptr_t)gpu;
    engine_trial_step(&trial);
    EXPECT(trial.result.ns > 2 * (uint64_t)LIMIT_MS * MILLISECOND);
    model.hook = NULL;
    engine_trial_close(&trial);
    engine_gpu_expect_clean(gpu);
}

static void linger_long(const void *arguments) {
    (void)arguments;
    nap(LIMIT_MS * MILLISECOND / 3);
}

static int dawdle_long(void *context, const struct weir_task *task) {
    const struct weir_fake_cuda_control *gpu = context;
    bool update = task->phase == WEIR_NORM || task->phase == WEIR_UPDATE;
    if (update) return WEIR_OK;
    return gpu->launch(weir_stream_cuda(task->stream), linger_long, &gate, 1);
}

/* That driver takes turns among four that could run: none may have ended when all have begun. */
static void test_workers_that_wait_for_each_others_gpu_do_not_hang(void) {
    static const char *const devices[] = {"cuda:0", "cuda:0", "cuda:0", "cuda:0"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    CHECK(open_pipe(gpu, devices, 4, 4));
    gpu->set_order(WEIR_FAKE_CUDA_RANDOM);
    model.hook = dawdle_long, model.hook_context = (void *)(uintptr_t)gpu;
    engine_trial_step(&trial);
    model.hook = NULL;
    engine_trial_close(&trial);
    engine_gpu_expect_clean(gpu);
}

WEIR_TEST_SUITE(watch_gpu, TEST(the_action_that_hangs_is_named),
                TEST(what_hangs_beside_a_cpu_is_named),
                TEST(a_copy_that_hangs_is_named_by_its_action),
                TEST(a_step_of_short_actions_may_take_longer),
                TEST(a_full_queue_is_no_callback_that_hangs),
                TEST(workers_that_wait_for_each_others_gpu_do_not_hang))
