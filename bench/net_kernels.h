/* SPDX-License-Identifier: MIT */
/** What gpu-net-kernels times: the net's rows of CUDA, and what is done to its flat arrays. */
#ifndef WEIR_BENCH_NET_KERNELS_H
#define WEIR_BENCH_NET_KERNELS_H

#include "gpu.h"

/** One thing to be timed; the first member of what its maker knows of it. */
struct net_kernel {
    char label[48]; /**< "layer_norm/bf16" */
    size_t bytes;   /**< read and written, as the kernel's head comment counts */
    int (*run)(struct weir_stream *stream, const struct net_kernel *kernel);
};

enum { NET_KERNELS_MOST = 160 };

struct net_kernels {
    const struct net_kernel *list[NET_KERNELS_MOST];
    uint32_t count;
};
void net_kernels_add(struct net_kernels *kernels, const struct net_kernel *kernel);

/** Memory for the ops' operands, which all of them share: none changes its inputs. */
enum net_area { NET_F32, NET_BF16, NET_I64, NET_OUT, NET_WORKSPACE, NET_AREAS };

struct net_areas {
    unsigned char *memory[NET_AREAS];
    size_t bytes[NET_AREAS];
};

/** The ops at sizes of GPT-2 124M and of the U-Net (5, 64), with rows for about `bytes` of traffic;
 * answers checked. Areas are at least `bytes` / 2 long; net_ops_clean_up. */
void net_ops_init(struct bench *bench, size_t bytes, struct net_areas *areas,
                  struct net_kernels *kernels);
void net_ops_clean_up(struct bench *bench, struct net_areas *areas);

struct net_flat;
/** Updates, norm and sums of GPT-2 124M's parameters; answers checked. The run's, but for the GPU's
 * memory: net_flat_clean_up. */
struct net_flat *net_flat_new(struct bench *bench, struct net_kernels *kernels);
void net_flat_clean_up(struct net_flat *flat);

#endif
