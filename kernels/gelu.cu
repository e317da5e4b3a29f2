/* SPDX-License-Identifier: MIT */
/*
 * gelu: y = gelu(x). gelu_grad: dx = dy * gelu'(x). Both forms, by erf and by tanh: gelu.cuh.
 *
 * Memory: y and dx are overwritten (=). Fast if pointers are multiples of 16.
 * Bytes: reads n or 2 n, writes n numbers. Floor: 2 n or 3 n x (4 or 2) / bandwidth (an H200's 4.8
 *   TB/s: 1.7 us per million f32). tanhf and erff are 20 to 40 instructions, which bf16 just bears:
 *   at 2 bytes a number, 4.8 TB/s leave a multiprocessor about 24 lane-cycles for each.
 * Launch: threads 256, blocks ceil(n / (512 chunks of 16 bytes)), or fewer: the grid strides.
 */
#include "each.cuh"
#include "gelu.cuh"
#include "net/cuda/arguments.h"

template <typename T> __device__ __forceinline__ void gelu_all(const struct weir__cuda_each &all) {
    T *y = static_cast<T *>(all.y);
    const T *x = static_cast<const T *>(all.a);
    if (all.by_tanh != 0)
        for_each<1>(y, x, x, all.count, [](float v, float) { return gelu_of<true>(v); });
    else
        for_each<1>(y, x, x, all.count, [](float v, float) { return gelu_of<false>(v); });
}

template <typename T>
__device__ __forceinline__ void gelu_grad_all(const struct weir__cuda_each &all) {
    T *dx = static_cast<T *>(all.y);
    const T *dy = static_cast<const T *>(all.a), *x = static_cast<const T *>(all.b);
    if (all.by_tanh != 0)
        for_each<2>(dx, dy, x, all.count, [](float d, float v) { return d * gelu_slope<true>(v); });
    else
        for_each<2>(dx, dy, x, all.count,
                    [](float d, float v) { return d * gelu_slope<false>(v); });
}

extern "C" __global__ void __launch_bounds__(256) weir_gelu_f32(struct weir__cuda_each all) {
    gelu_all<float>(all);
}
EXPORT_KERNEL(weir_gelu_f32);

extern "C" __global__ void __launch_bounds__(256) weir_gelu_bf16(struct weir__cuda_each all) {
    gelu_all<bf16>(all);
}
EXPORT_KERNEL(weir_gelu_bf16);

extern "C" __global__ void __launch_bounds__(256) weir_gelu_grad_f32(struct weir__cuda_each all) {
    gelu_grad_all<float>(all);
}
EXPORT_KERNEL(weir_gelu_grad_f32);

extern "C" __global__ void __launch_bounds__(256) weir_gelu_grad_bf16(struct weir__cuda_each all) {
    gelu_grad_all<bf16>(all);
}
EXPORT_KERNEL(weir_gelu_grad_bf16);
