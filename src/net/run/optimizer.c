/* SPDX-License-Identifier: MIT */
/* Optimizers per parameter, and the learning rate's schedules. The arithmetic is the kernels'. */
#include "net/run/net.h"

#include <math.h>

uint32_t weir__optimizer_arrays(const struct weir_optimizer *optimizer) {
    switch (optimizer->kind) {
    case WEIR_OPTIMIZER_ADAMW: return 2;
    case WEIR_OPTIMIZER_SGD: return optimizer->momentum != 0 ? 1 : 0;
    case WEIR_OPTIMIZER_NONE: return 0;
    }
    return 0;
}

const char *weir__optimizer_array_name(const struct weir_optimizer *optimizer, uint32_t array) {
    assert(array < weir__optimizer_arrays(optimizer));
    if (optimizer->kind == WEIR_OPTIMIZER_SGD) return "momentum_buffer";
    return array == 0 ? "exp_avg" : "exp_avg_sq";
}

void weir__optimizer_update(const struct weir_optimizer *optimizer, enum weir_dtype dtype,
                            bool reference, const struct weir_task *task, double lr,
                            const struct weir__parameter_decl *info, void *parameter,
                            const void *gradient, void *const *arrays) {
    assert(!info->frozen);
    bool decays = !optimizer->decay_matrices_only || info->rank >= 2;
    double weight_decay = decays ? optimizer->weight_decay : 0;
    if (optimizer->kind == WEIR_OPTIMIZER_ADAMW) {
        struct weir__adamw_step adamw = {.lr = lr,
                                         .beta1 = optimizer->beta1,
                                         .beta2 = optimizer->beta2,
                                         .eps = optimizer->eps,
                                         .weight_decay = weight_decay,
                                         .step = task->update + 1,
                                         .gradient_scale = task->gradient_scale};
        weir__adamw_update(dtype, &adamw, info->count, parameter, gradient, arrays[0], arrays[1],
                           reference);
    } else if (optimizer->kind == WEIR_OPTIMIZER_SGD) {
        struct weir__sgd_step sgd = {.lr = lr,
                                     .momentum = optimizer->momentum,
                                     .weight_decay = weight_decay,
                                     .nesterov = optimizer->nesterov,
                                     .first = task->update == 0,
                                     .gradient_scale = task->gradient_scale};
        void *momentum = optimizer->momentum != 0 ? arrays[0] : NULL;
        weir__sgd_update(dtype, &sgd, info->count, parameter, gradient, momentum, reference);
    }
}

double weir_lr(enum weir_lr_schedule schedule, double lr, double floor, uint64_t update,
               uint64_t warmup, uint64_t updates) {
    if (update < warmup) return lr * (double)(update + 1) / (double)warmup;
    if (schedule == WEIR_LR_CONSTANT) return lr;
    uint64_t last = updates > 0 ? updates - 1 : 0;
    if (update >= last) return last > warmup || update > last ? floor * lr : lr;
    double progress = (double)(update - warmup) / (double)(last - warmup);
    return lr * (floor + (1 - floor) * 0.5 * (1 + cos(acos(-1.0) * progress)));
}
