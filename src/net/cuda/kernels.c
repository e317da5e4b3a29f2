/* SPDX-License-Identifier: MIT */
#include "net/cuda/kernels.h"

static const char *const names[] = {
#define KERNEL_NAME(name) "weir_" #name,
    WEIR__NET_KERNEL_MAP(KERNEL_NAME)
#undef KERNEL_NAME
};

const struct weir__cuda_set weir__net_kernel_set = {names, WEIR__NET_KERNEL_COUNT, weir__net_images,
                                                    &weir__net_image_count};

int weir__net_launch(struct weir_stream *stream, enum weir__net_kernel kernel,
                     const struct weir__cuda_grid *grid, void **arguments) {
    return weir__cuda_launch_of(stream, &weir__net_kernel_set, kernel, grid, arguments);
}
