/* SPDX-License-Identifier: MIT */
/*
 * bias_gelu: y = gelu(x + bias). bias_gelu_grad: dx = dy * gelu'(x + bias). Both forms: gelu.cuh.
 *
 * Memory: y and dx are overwritten (=). Fast if C and pointers are multiples of 16 bytes.
 * Bytes: reads M C or 2 M C numbers, writes M C, which a GELU behind a sum would read and write
 *   once more; a thread reads its part of the bias once for eight rows or more. Floor: that /
 *   bandwidth.
 * Launch: threads (x along a row in chunks of 16 bytes, y rows), x y = 256; blocks (ceil(chunks /
 *   x), ceil(M / 8 y)) or fewer: the grid strides both ways.
 */
#include "net/biased.cuh"
#include "net/gelu.cuh"

template <typename T, bool by_tanh>
__device__ __forceinline__ void forward(const struct weir__cuda_biased &all) {
    for_biased<1, T>(all, [](float, float v) { return gelu_of<T, by_tanh>(v); });
}

template <typename T, bool by_tanh>
__device__ __forceinline__ void backward(const struct weir__cuda_biased &all) {
    for_biased<2, T>(all, [](float d, float v) { return d * gelu_slope<T, by_tanh>(v); });
}

extern "C" __global__ void __launch_bounds__(256) weir_bias_gelu_f32(struct weir__cuda_biased all) {
    all.by_tanh != 0 ? forward<float, true>(all) : forward<float, false>(all);
}
EXPORT_KERNEL(weir_bias_gelu_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_bias_gelu_bf16(struct weir__cuda_biased all) {
    all.by_tanh != 0 ? forward<bf16, true>(all) : forward<bf16, false>(all);
}
EXPORT_KERNEL(weir_bias_gelu_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_bias_gelu_grad_f32(struct weir__cuda_biased all) {
    all.by_tanh != 0 ? backward<float, true>(all) : backward<float, false>(all);
}
EXPORT_KERNEL(weir_bias_gelu_grad_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_bias_gelu_grad_bf16(struct weir__cuda_biased all) {
    all.by_tanh != 0 ? backward<bf16, true>(all) : backward<bf16, false>(all);
}
EXPORT_KERNEL(weir_bias_gelu_grad_bf16);
