/* SPDX-License-Identifier: MIT */
/**
 * Every CUDA kernel of the engine by name: X(name); its symbol in the module is weir_<name>, its
 * file kernels/engine/<...>.cu.
 */
#ifndef WEIR_DEVICE_CUDA_KERNEL_MAP_H
#define WEIR_DEVICE_CUDA_KERNEL_MAP_H

/** cuda_copy.c, cuda_fill.c */
#define WEIR__CUDA_KERNEL_MAP(X)                                                                   \
    X(copy)                                                                                        \
    X(copy_batch)                                                                                  \
    X(copy_rows)                                                                                   \
    X(push)                                                                                        \
    X(pull)                                                                                        \
    X(transpose_1)                                                                                 \
    X(transpose_2)                                                                                 \
    X(transpose_4)                                                                                 \
    X(transpose_8)                                                                                 \
    X(cast_f32_bf16)                                                                               \
    X(cast_bf16_f32)                                                                               \
    X(cast_f32_f16)                                                                                \
    X(cast_f16_f32)                                                                                \
    X(random_words)                                                                                \
    X(fill)                                                                                        \
    X(decide)

#endif
