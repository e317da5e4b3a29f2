/* SPDX-License-Identifier: MIT */
/*
 * Goal: a kernel that breaks a real GPU's context ends the step with a status that says so, every
 * later step too, and nothing hangs or crashes. Method: a stage whose kernel stores to an address
 * that is not aligned; on the machine's own GPU only, whose driver then has nothing else to give to
 * this process: so this suite is the last.
 */
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "toys/toys.h"
#include "real_gpu.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 4 };

static struct CUfunc_st *misaligned;

static int launch(const struct weir_task *task) {
    const struct weir__cuda_grid grid = {{1, 1, 1}, {32, 1, 1}, 0};
    void *to = task->outputs[0].data;
    if (task->micro_batch != 2) return WEIR_OK;
    return toys_launch(task->stream, misaligned, &grid, (void *[]){&to});
}

static int forward(void *context, const struct weir_task *task) {
    (void)context;
    return launch(task);
}

static int backward(void *context, const struct weir_task *task) {
    (void)context, (void)task;
    return WEIR_OK;
}

static struct weir_pipe *open_pipe(void) {
    static const struct weir_stage_calls calls = {.forward = forward, .backward = backward};
    static const char *const devices[] = {"cuda:0"};
    const struct weir_tensor row = {
        .dtype = WEIR_F32, .rank = 1, .shape = {64}, .differentiable = true};
    const struct weir_input input = {.tensor = row, .name = "x"};
    struct weir_stage stage = WEIR_STAGE_INIT;
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    struct weir_pipe *pipe = NULL;
    stage.calls = &calls;
    stage.outputs = &row;
    stage.output_count = 1;
    options.allocator = test_allocator();
    options.stages = &stage;
    options.stage_count = options.workers = 1;
    options.inputs = &input;
    options.input_count = 1;
    options.rows = options.chunks = ROWS;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.devices = devices;
    options.device_count = 1;
    EXPECT_STATUS(weir_pipe_new(&options, NULL, &pipe), WEIR_OK);
    return pipe;
}

static void expect_broken(struct weir_pipe *pipe) {
    static float x[ROWS * 64];
    const void *inputs[] = {x};
    struct weir_step step = WEIR_STEP_INIT;
    struct weir_step_result result = {0};
    step.rows = ROWS;
    step.inputs = inputs;
    EXPECT_STATUS(weir_pipe_step(pipe, &step, &result), WEIR_ERR_DEVICE);
    EXPECT_STATUS(result.error.status, WEIR_ERR_DEVICE);
    EXPECT_CONTAINS(result.error.message, "cuda:0");
    EXPECT(!result.updated);
}

static void test_a_kernel_that_fails_breaks_the_pipe_and_not_the_process(void) {
    struct toys toys;
    if (!test_gpu_is_real() || real_gpu_is_fake()) SKIP("it takes a real GPU: --gpu");
    if (test_is_sanitized()) SKIP("the sanitizer would report what it does on purpose");
    if (any_gpus(1, 1, 0) == NULL) return;
    struct weir__device *device = fake_gpu_open("cuda:0");
    CHECK(device != NULL);
    EXPECT_STATUS(toys_load(&toys, device), WEIR_OK);
    EXPECT_STATUS(toys_find(&toys, "weir_misaligned", &misaligned), WEIR_OK);
    struct weir_pipe *pipe = open_pipe();
    if (pipe != NULL) expect_broken(pipe);
    if (pipe != NULL) expect_broken(pipe);
    weir_pipe_destroy(pipe);
    void *memory = NULL;
    EXPECT_STATUS(device->calls->memory_acquire(device, 64, &memory), WEIR_ERR_DEVICE);
    toys_unload(&toys);
    device->calls->close(device);
}

WEIR_TEST_SUITE(gpu_broken, TEST(a_kernel_that_fails_breaks_the_pipe_and_not_the_process))
