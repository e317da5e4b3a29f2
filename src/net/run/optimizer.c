/* SPDX-License-Identifier: MIT */
/* What optimizers keep, and the learning rate's schedules. */
#include "net/run/net.h"
#include "net/scalar.h"

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

double weir_lr(enum weir_lr_schedule schedule, double lr, double floor, uint64_t update,
               uint64_t warmup, uint64_t updates) {
    if (update < warmup) return lr * (double)(update + 1) / (double)warmup;
    if (schedule == WEIR_LR_CONSTANT) return lr;
    uint64_t last = updates > 0 ? updates - 1 : 0;
    if (update >= last) return last > warmup || update > last ? floor * lr : lr;
    double progress = (double)(update - warmup) / (double)(last - warmup);
    return lr * (floor + (1 - floor) * 0.5 * (1 + weir__cos_of_turns(progress / 2)));
}
