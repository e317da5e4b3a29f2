/* SPDX-License-Identifier: MIT */
/**
 * GELU and its derivative, for gelu.cu and what is fused with it:
 *   y = x / 2 * (1 + erf(x / sqrt(2))), or, with by_tanh,
 *   y = x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
 */
#ifndef WEIR_KERNELS_GELU_CUH
#define WEIR_KERNELS_GELU_CUH

#include "platform.cuh"

struct gelu {
    static constexpr float root_2_pi = 0.797884560802865356f; /* sqrt(2 / pi) */
    static constexpr float root_half = 0.707106781186547524f;
    static constexpr float density_0 = 0.398942280401432678f; /* 1 / sqrt(2 pi) */
    static constexpr float cubic = 0.044715f;
};

template <bool by_tanh> __device__ __forceinline__ float gelu_of(float x) {
    if (by_tanh) {
        const float inner = gelu::root_2_pi * (x + gelu::cubic * x * x * x);
        return 0.5f * x * (1.0f + tanhf(inner));
    }
    return x * (0.5f * (1.0f + erff(x * gelu::root_half)));
}

template <bool by_tanh> __device__ __forceinline__ float gelu_slope(float x) {
    if (by_tanh) {
        const float t = tanhf(gelu::root_2_pi * (x + gelu::cubic * x * x * x));
        const float inner_slope = gelu::root_2_pi * (1.0f + 3.0f * gelu::cubic * x * x);
        return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner_slope;
    }
    const float density = gelu::density_0 * expf(-0.5f * x * x);
    return 0.5f * (1.0f + erff(x * gelu::root_half)) + x * density;
}

#endif
