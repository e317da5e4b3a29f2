/* SPDX-License-Identifier: MIT */
/** What topic kernels times, and how much it has to do. */
#ifndef WEIR_BENCH_KERNELS_H
#define WEIR_BENCH_KERNELS_H

#include "device/device.h"
#include "harness.h"
#include "net/cpu/level.h"

/** One thing to be timed; the first member of what its maker knows of it. */
struct kernel {
    char label[48]; /**< "gpt-s/layer_norm" */
    size_t bytes;   /**< that must be read and written, each once */
    double multiply_adds, exponentials;
    bool product; /**< of matrices, or a convolution */
    int (*run)(const struct kernel *kernel);
};

enum { KERNELS_MOST = 256 };

struct kernels {
    const struct weir__level *level;
    struct weir__device *device;
    const struct kernel *list[KERNELS_MOST];
    uint32_t count;
};

void kernels_add(struct kernels *kernels, const struct kernel *kernel);

/** Zeroed memory as the engine has it, on huge pages; to be given back. */
void *kernels_take(const struct kernels *kernels, size_t bytes);
void kernels_give(const struct kernels *kernels, void *memory, size_t bytes);
/** Random numbers within ±2. */
void kernels_fill(struct bench *bench, float *numbers, size_t count);

/** All ops of the level at shapes of models; answers checked. The run's, but for the memory. */
struct kernel_ops;
struct kernel_ops *kernel_ops_new(struct bench *bench, struct kernels *kernels);
void kernel_ops_clean_up(struct kernel_ops *ops);

/** The same for what is done to a GPT's parameters. */
struct kernel_updates;
struct kernel_updates *kernel_updates_new(struct bench *bench, struct kernels *kernels);
void kernel_updates_clean_up(struct kernel_updates *updates);

#endif
