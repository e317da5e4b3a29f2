/* SPDX-License-Identifier: MIT */
/*
 * Engine stages on GPUs that the fake driver stands for: the same callbacks, run when and where the
 * driver comes to them. On real GPUs the callbacks are functions of the host in a GPU's stream, on
 * managed memory.
 */
#ifndef WEIR_TESTS_ENGINE_GPU_H
#define WEIR_TESTS_ENGINE_GPU_H

#include "engine/engine_stages.h"
#include "fake_cuda/fake_cuda.h"

#include <pthread.h>
#include <stdatomic.h>

/* The fake driver, which from now on is what "cuda" opens; NULL, and the test is skipped (or has
 * failed), where this build has none, or tests run on real GPUs. */
const struct weir_fake_cuda_control *engine_gpu_open(void);
/* The same, or the machine's own GPUs where tests run on these: see any_gpus. */
const struct weir_fake_cuda_control *engine_gpu_open_any(void);
/* A device's name, or where there is only one GPU, that one's. */
const char *engine_gpu_name(const char *name);

/* Runs `work` on a copy of the task when the task's stream comes there. An update obeys the task's
 * verdict. A status. */
typedef void engine_gpu_work_fn(struct engine_stage *stage, const struct weir_task *task);
int engine_gpu_submit(struct engine_stage *stage, const struct weir_task *task,
                      engine_gpu_work_fn *work);

/* Adds `count` numbers to others when the stage's stream comes there. A status. */
int engine_gpu_add(struct engine_stage *stage, double *to, const double *from, size_t count);

/* Copies from and to memory that may be a GPU's, past all order. */
void engine_gpu_read(const struct engine_model *model, void *to, const void *from, size_t bytes);
void engine_gpu_write(const struct engine_model *model, void *to, const void *from, size_t bytes);

/* GPUs that go on by themselves, if slowly, from its beginning to its end: for threads that ask and
 * do not wait. Nothing where `gpu` is NULL. */
struct engine_gpu_goer {
    const struct weir_fake_cuda_control *gpu;
    pthread_t thread;
    _Atomic bool over;
};
void engine_gpu_goer_begin(struct engine_gpu_goer *goer, const struct weir_fake_cuda_control *gpu);
void engine_gpu_goer_end(struct engine_gpu_goer *goer);

/* Nothing is left of any pipe, and no memory was used against the rules. */
bool engine_gpu_expect_clean(const struct weir_fake_cuda_control *gpu);

#endif
