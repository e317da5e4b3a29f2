/* SPDX-License-Identifier: MIT */
/*
 * bias_add: y[p][c] = y[p][c] + bias[c]
 *
 * Memory: y (pixels, channels) is read and written, bias (channels) is F32. Fast if y is a multiple
 *   of 16 and a vector's numbers are of one pixel: channels are a multiple of 16 / sizeof(T).
 * Bytes: reads and writes n = pixels x channels numbers. Floor: 2 n x (4 or 2) / bandwidth.
 * Launch: threads 256, blocks ceil(n / 2048), eight numbers a thread, or fewer: the grid strides.
 *   The stride is divided by the channels once; from then on the channel is added up.
 */
#include "net/number.cuh"

template <typename T>
__device__ __forceinline__ void bias_add(T *y, const float *bias, uint64_t n, uint64_t channels) {
    constexpr int width = 16 / sizeof(T);
    using vector = several<T, width>;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const bool wide = is_aligned(y) && channels % width == 0;
    const uint64_t each = wide ? width : 1, ahead = step * each % channels;
    uint64_t channel = first * each % channels;
    for (uint64_t i = first; i < n / each; i += step) {
        if (wide) {
            vector v = reinterpret_cast<const vector *>(y)[i];
#pragma unroll
            for (int k = 0; k < width; k++) v.at[k] = narrow<T>(widen(v.at[k]) + bias[channel + k]);
            reinterpret_cast<vector *>(y)[i] = v;
        } else {
            y[i] = narrow<T>(widen(y[i]) + bias[channel]);
        }
        channel += ahead;
        if (channel >= channels) channel -= channels;
    }
}

extern "C" __global__ void __launch_bounds__(256)
    weir_bias_add_f32(float *y, const float *bias, uint64_t pixels, uint64_t channels) {
    bias_add(y, bias, pixels * channels, channels);
}
EXPORT_KERNEL(weir_bias_add_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_bias_add_bf16(bf16 *y, const float *bias, uint64_t pixels, uint64_t channels) {
    bias_add(y, bias, pixels * channels, channels);
}
EXPORT_KERNEL(weir_bias_add_bf16);
