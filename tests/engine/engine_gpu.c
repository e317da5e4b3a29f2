/* SPDX-License-Identifier: MIT */
#include "engine/engine_gpu.h"

#include "cuda/fake_gpu.h"
#include "real_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { GPUS = 2 };

const struct weir_fake_cuda_control *engine_gpu_open(void) {
    return fake_gpus(1, GPUS, 0);
}

const struct weir_fake_cuda_control *engine_gpu_open_any(void) {
    return test_gpu_is_real() ? real_gpus(1, true) : engine_gpu_open();
}

const char *engine_gpu_name(const char *name) {
    bool second = strcmp(name, "cuda:1") == 0;
    return second && weir__device_check(name, NULL) != WEIR_OK ? "cuda:0" : name;
}

struct submitted {
    struct engine_stage *stage;
    engine_gpu_work_fn *work;
    struct weir_task task;
};

static void run(const void *arguments) {
    const struct submitted *submitted = arguments;
    struct weir_task task = submitted->task;
    if (task.verdict != NULL) {
        if (!task.verdict->applies) return;
        task.gradient_scale = task.verdict->gradient_scale;
    }
    submitted->work(submitted->stage, &task);
}

int engine_gpu_submit(struct engine_stage *stage, const struct weir_task *task,
                      engine_gpu_work_fn *work) {
    struct submitted submitted = {stage, work, *task};
    void *stream = weir_stream_cuda(task->stream);
    int result = stage->model->gpu->launch(stream, run, &submitted, sizeof submitted);
    if (result == 0) return WEIR_OK;
    snprintf(task->error->message, sizeof task->error->message, "the launch gives %d", result);
    return WEIR_ERR_DEVICE;
}

struct addition {
    double *to;
    const double *from;
    size_t count;
};

static void add(const void *arguments) {
    const struct addition *sum = arguments;
    for (size_t i = 0; i < sum->count; i++) sum->to[i] += sum->from[i];
}

int engine_gpu_add(struct engine_stage *stage, double *to, const double *from, size_t count) {
    const struct addition sum = {to, from, count};
    void *stream = weir_stream_cuda(stage->stream);
    bool launched = stage->model->gpu->launch(stream, add, &sum, sizeof sum) == 0;
    return launched ? WEIR_OK : WEIR_ERR_DEVICE;
}

void engine_gpu_read(const struct engine_model *model, void *to, const void *from, size_t bytes) {
    if (bytes == 0) return;
    if (model->gpu == NULL || !model->gpu->peek(to, from, bytes)) memcpy(to, from, bytes);
}

void engine_gpu_write(const struct engine_model *model, void *to, const void *from, size_t bytes) {
    if (bytes == 0) return;
    if (model->gpu == NULL || !model->gpu->poke(to, from, bytes)) memcpy(to, from, bytes);
}

static void *go_on(void *argument) {
    struct engine_gpu_goer *goer = argument;
    static const struct timespec little = {.tv_nsec = 20000}, more = {.tv_nsec = 200000};
    while (!atomic_load(&goer->over)) (void)nanosleep(goer->gpu->go_on() ? &little : &more, NULL);
    return NULL;
}

void engine_gpu_goer_begin(struct engine_gpu_goer *goer, const struct weir_fake_cuda_control *gpu) {
    goer->gpu = gpu;
    atomic_init(&goer->over, false);
    if (gpu != NULL && pthread_create(&goer->thread, NULL, go_on, goer) != 0) abort();
}

void engine_gpu_goer_end(struct engine_gpu_goer *goer) {
    atomic_store(&goer->over, true);
    if (goer->gpu != NULL) pthread_join(goer->thread, NULL);
}

bool engine_gpu_expect_clean(const struct weir_fake_cuda_control *gpu) {
    struct weir_fake_cuda_counts counts;
    gpu->counts(&counts);
    return EXPECT_EQ_STR(counts.first_fault, "") && EXPECT_EQ_UINT(counts.faults, 0) &&
           EXPECT_EQ_UINT(counts.orphans, 0) && EXPECT_EQ_UINT(counts.contexts, 0) &&
           EXPECT_EQ_UINT(counts.streams, 0) && EXPECT_EQ_UINT(counts.events, 0) &&
           EXPECT_EQ_UINT(counts.allocations, 0) && EXPECT_EQ_UINT(counts.pins, 0) &&
           EXPECT_EQ_UINT(counts.pending, 0) && EXPECT_EQ_UINT(counts.cold_pins, 0);
}
