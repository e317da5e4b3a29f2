/* SPDX-License-Identifier: MIT */
/** The networks' own CUDA kernels (kernels/net): which there are, their images, and launches. */
#ifndef WEIR_NET_CUDA_KERNELS_H
#define WEIR_NET_CUDA_KERNELS_H

#include "device/cuda_kernels.h"
#include "net/cuda/kernel_map.h"

enum weir__net_kernel {
#define WEIR__NET_KERNEL_ENUM(name) WEIR__NET_KERNEL_##name,
    WEIR__NET_KERNEL_MAP(WEIR__NET_KERNEL_ENUM)
#undef WEIR__NET_KERNEL_ENUM
        WEIR__NET_KERNEL_COUNT
};

/** Written by the build, as weir__cuda_images. */
extern const struct weir__cuda_image weir__net_images[];
extern const size_t weir__net_image_count;

extern const struct weir__cuda_set weir__net_kernel_set;

/** As weir__cuda_launch. */
int weir__net_launch(struct weir_stream *stream, enum weir__net_kernel kernel,
                     const struct weir__cuda_grid *grid, void **arguments);

#endif
