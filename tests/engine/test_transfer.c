/* SPDX-License-Identifier: MIT */
/*
 * Goal: a stage's lasting memory is read and written between steps, whatever threads ask: a call
 * during another one is refused and copies nothing, one that is taken sees a state that some step
 * left, whole. Method: one thread steps while another reads and writes all the time, on CPUs and on
 * the fake driver's GPUs; what was read is looked for among the reference's states.
 */
#include "engine/engine_gpu.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 24, STAGES = 3, FIXED = 0, LEARNING = 2, PARAMETERS = 5 };

static struct engine_model model;
static struct engine_trial trial;
static double states[STEPS + 1]
                    [PARAMETERS]; /* of stage LEARNING, before each step and at the end */
static atomic_bool ended;

static struct weir_step step_at(const struct engine_batch *batch, uint64_t k) {
    struct weir_step step = engine_step(batch);
    step.mini_batch = step.update = k;
    return step;
}

static void note_states(const struct weir_pipe_options *options) {
    size_t bytes = sizeof states[0];
    engine_order_of(&trial.order, options->schedule,
                    engine_chunk_count(options->rows, options->chunks));
    memcpy(states[0], trial.reference.parameters[LEARNING], bytes);
    for (uint64_t k = 0; k < STEPS; k++) {
        struct weir_step step = step_at(&trial.expected, k);
        engine_reference_step(&trial.reference, &trial.expected, &step, &trial.how);
        memcpy(states[k + 1], trial.reference.parameters[LEARNING], bytes);
    }
}

/* The pipe may be the other thread's: then again. */
static void *step_through(void *argument) {
    struct weir_step_result result;
    int status = WEIR_OK;
    (void)argument;
    for (uint64_t k = 0; k < STEPS && status == WEIR_OK; k++) {
        struct weir_step step = step_at(&trial.batch, k);
        do {
            status = weir_pipe_step(trial.pipe, &step, &result);
            if (status == WEIR_ERR_BUSY) sched_yield();
        } while (status == WEIR_ERR_BUSY);
    }
    EXPECT_STATUS(status, WEIR_OK);
    atomic_store(&ended, true);
    return NULL;
}

/* Steps only go forward: the state is none of before `first`. Its place, or STEPS + 1. */
static uint64_t find_state(const double *read, uint64_t first) {
    uint64_t k = first;
    while (k <= STEPS && memcmp(read, states[k], sizeof states[k]) != 0) k++;
    return k;
}

/* Reads one stage's parameters, and writes another's, which no step changes, as they are. */
static void read_and_write(const void *learning, void *fixed) {
    double read[PARAMETERS], same[PARAMETERS], untouched[PARAMETERS];
    uint64_t state = 0, reads = 0;
    memset(untouched, 0x5A, sizeof untouched);
    memcpy(same, trial.reference.parameters[FIXED], sizeof same);
    for (bool last = false; !last && !test_has_failed();) {
        last = atomic_load(&ended);
        memset(read, 0x5A, sizeof read);
        int status = weir_pipe_read(trial.pipe, LEARNING, read, learning, sizeof read);
        if (status == WEIR_ERR_BUSY) {
            EXPECT_EQ_BYTES(read, untouched, sizeof read);
        } else if (EXPECT_STATUS(status, WEIR_OK)) {
            state = find_state(read, state);
            EXPECT(state <= STEPS);
            reads++;
        }
        status = weir_pipe_write(trial.pipe, FIXED, fixed, same, sizeof same);
        if (status != WEIR_ERR_BUSY) EXPECT_STATUS(status, WEIR_OK);
        sched_yield();
    }
    EXPECT(reads > 0);
    EXPECT_EQ_UINT(state, STEPS);
}

static void race(const struct weir_fake_cuda_control *gpu, const char *const *devices) {
    struct weir_attachment fixed, learning;
    pthread_t thread;
    engine_model_init(&model, STAGES);
    model.stages[FIXED].fixed = true;
    model.gpu = gpu;
    model.jitter = 7;
    struct weir_pipe_options options = engine_options(&model);
    options.chunks = 3;
    options.devices = devices;
    options.device_count = devices != NULL ? STAGES : 0;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    note_states(&options);
    engine_forget(&model);
    atomic_store(&ended, false);
    CHECK_OK(weir_pipe_attachment(trial.pipe, FIXED, &fixed));
    CHECK_OK(weir_pipe_attachment(trial.pipe, LEARNING, &learning));
    CHECK_EQ_INT(pthread_create(&thread, NULL, step_through, NULL), 0);
    read_and_write(learning.parameters, fixed.parameters);
    pthread_join(thread, NULL);
    engine_expect_state(trial.pipe, &trial.reference);
    engine_trial_close(&trial);
}

// PI-13
static void test_memory_is_read_and_written_between_steps_only(void) {
    race(NULL, NULL);
}

// PI-13
static void test_a_gpus_memory_is_read_and_written_between_steps_only(void) {
    static const char *const devices[] = {"cuda:0", "cpu", "cuda:1"};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    race(gpu, devices);
    engine_gpu_expect_clean(gpu);
}

static void test_what_is_no_stage_has_no_memory(void) {
    double number = 1;
    engine_model_init(&model, STAGES);
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    EXPECT_STATUS(weir_pipe_read(trial.pipe, STAGES, &number, &number, sizeof number),
                  WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_pipe_write(trial.pipe, STAGES, &number, &number, sizeof number),
                  WEIR_ERR_ARGUMENT);
    engine_trial_close(&trial);
}

/* More than one piece of pinned memory, and not a whole number of them. */
static void test_any_number_of_bytes_goes_there_and_back(void) {
    enum { MOST = (9 << 20) + 12345 };
    static const size_t sizes[] = {0, 1, 4 << 20, (4 << 20) + 1, MOST};
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    if (gpu == NULL) return;
    gpu->reset(1, 2, WEIR_FAKE_CUDA_UNGUARDED); /* attach looks at so much as on a CPU */
    engine_model_init(&model, 1);
    model.stages[0].state_bytes = MOST;
    struct weir_pipe_options options = engine_options(&model);
    options.devices = (const char *const[]){"cuda:1"};
    options.device_count = 1;
    struct weir_pipe *pipe;
    struct weir_attachment at;
    CHECK_OK(weir_pipe_new(&options, NULL, &pipe));
    CHECK_OK(weir_pipe_attachment(pipe, 0, &at));
    unsigned char *here = malloc(MOST), *back = malloc(MOST + 1);
    for (size_t i = 0; i < MOST; i++) here[i] = (unsigned char)test_random_below(256);
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++) {
        memset(back, 0x5A, MOST + 1);
        here[0]++;
        EXPECT_STATUS(weir_pipe_write(pipe, 0, at.state, here, sizes[k]), WEIR_OK);
        EXPECT_STATUS(weir_pipe_read(pipe, 0, back, at.state, sizes[k]), WEIR_OK);
        EXPECT(memcmp(here, back, sizes[k]) == 0);
        EXPECT_EQ_INT(back[sizes[k]], 0x5A);
    }
    free(here);
    free(back);
    weir_pipe_destroy(pipe);
    engine_gpu_expect_clean(gpu);
}

WEIR_TEST_SUITE(transfer, TEST(memory_is_read_and_written_between_steps_only),
                TEST(a_gpus_memory_is_read_and_written_between_steps_only),
                TEST(what_is_no_stage_has_no_memory), TEST(any_number_of_bytes_goes_there_and_back))
