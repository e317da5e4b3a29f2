/* SPDX-License-Identifier: MIT */
/*
 * gelu: y = gelu(x). gelu_grad: dx = dy * gelu'(x). Both forms, by erf and by tanh: gelu.cuh.
 *
 * Memory: y and dx are overwritten (=). Fast if pointers are multiples of 16.
 * Bytes: reads n or 2 n, writes n numbers. Floor: 2 n or 3 n x (4 or 2) / bandwidth (an H200's 4.8
 *   TB/s: 1.7 us per million f32). tanhf and erff are 20 to 40 instructions, which f32 bears. At 2
 *   bytes a number 4.2 TB/s leave a multiprocessor about 32 lane-cycles for each: BF16's forms take
 *   11 (tanh) and 18 (erf), of which two are of the special unit.
 * Launch: threads 256, blocks ceil(n / (512 chunks of 16 bytes)), or fewer: the grid strides.
 */
#include "net/each.cuh"
#include "net/gelu.cuh"

template <typename T> __device__ __forceinline__ void forward(const struct weir__cuda_each &call) {
    if (call.by_tanh != 0)
        for_each<1, T>(call, [](float v, float) { return gelu_of<T, true>(v); });
    else
        for_each<1, T>(call, [](float v, float) { return gelu_of<T, false>(v); });
}

template <typename T> __device__ __forceinline__ void backward(const struct weir__cuda_each &call) {
    if (call.by_tanh != 0)
        for_each<2, T>(call, [](float d, float v) { return d * gelu_slope<T, true>(v); });
    else
        for_each<2, T>(call, [](float d, float v) { return d * gelu_slope<T, false>(v); });
}

STORED_KERNELS(gelu, weir__cuda_each, (256), forward<T>);
STORED_KERNELS(gelu_grad, weir__cuda_each, (256), backward<T>);
