/* SPDX-License-Identifier: MIT */
/*
 * gelu: y = x / 2 * (1 + erf(x / sqrt(2))), or, with by_tanh,
 *       y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
 *
 * Memory: y is overwritten (=). Fast if both pointers are multiples of 16.
 * Bytes: reads n, writes n numbers. Floor: 2 n x (4 or 2) / bandwidth (an H200's 4.8 TB/s: 1.7 us
 *   per million f32).
 * Launch: threads 256, blocks ceil(n / 2048), eight numbers a thread, or fewer: the grid strides.
 */
#include "number.cuh"

__device__ __forceinline__ float gelu(float x, bool by_tanh) {
    const float inner = 0.797884560802865356f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + (by_tanh ? tanhf(inner) : erff(x * 0.707106781186547524f)));
}

template <typename T>
__device__ __forceinline__ void gelu_all(T *y, const T *x, uint64_t n, bool by_tanh) {
    constexpr int width = 16 / sizeof(T);
    using vector = several<T, width>;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const uint64_t vectors = is_aligned(y) && is_aligned(x) ? n / width : 0;
    for (uint64_t i = first; i < vectors; i += step) {
        vector v = reinterpret_cast<const vector *>(x)[i];
#pragma unroll
        for (int k = 0; k < width; k++) v.at[k] = narrow<T>(gelu(widen(v.at[k]), by_tanh));
        reinterpret_cast<vector *>(y)[i] = v;
    }
    for (uint64_t i = vectors * width + first; i < n; i += step)
        y[i] = narrow<T>(gelu(widen(x[i]), by_tanh));
}

extern "C" __global__ void __launch_bounds__(256)
    weir_gelu_f32(float *y, const float *x, uint64_t n, uint32_t by_tanh) {
    gelu_all(y, x, n, by_tanh != 0);
}
EXPORT_KERNEL(weir_gelu_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_gelu_bf16(bf16 *y, const bf16 *x, uint64_t n, uint32_t by_tanh) {
    gelu_all(y, x, n, by_tanh != 0);
}
EXPORT_KERNEL(weir_gelu_bf16);
