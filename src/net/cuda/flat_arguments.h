/* SPDX-License-Identifier: MIT */
/** What the kernels of flat arrays take by value: as arguments.h. */
#ifndef WEIR_NET_CUDA_FLAT_ARGUMENTS_H
#define WEIR_NET_CUDA_FLAT_ARGUMENTS_H

#include <stdint.h>

enum {
    WEIR__CUDA_SPANS = 128, /**< in one launch: 3 KiB of its 4 KiB of parameters */
    WEIR__CUDA_TILE = 4096  /**< numbers that one block takes */
};

struct weir__cuda_flat_span {
    uint64_t first, count;
    uint32_t first_tile; /**< tiles of the spans before this one */
    uint32_t mark;       /**< struct weir__span's result, or decays */
};

/** Spans of flat arrays, at least one; a launch has a block for each tile. */
struct weir__cuda_flat {
    struct weir__cuda_flat_span spans[WEIR__CUDA_SPANS];
    uint32_t count;
};

struct weir__cuda_adamw {
    float *w, *m, *v;
    const float *g;
    float decay, fresh1, fresh2, beta2, root2, eps, rate;
};

struct weir__cuda_sgd {
    float *w, *m; /**< m: NULL without momentum */
    const float *g;
    float decay, lr, factor;
    uint32_t nesterov, first;
};

#endif
