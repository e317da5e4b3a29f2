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
    static constexpr float log2_e = 1.44269504088896341f;
};

template <bool by_tanh> __device__ __forceinline__ float gelu_exact(float x) {
    if (by_tanh) {
        const float inner = gelu::root_2_pi * (x + gelu::cubic * x * x * x);
        return 0.5f * x * (1.0f + tanhf(inner));
    }
    return x * (0.5f * (1.0f + erff(x * gelu::root_half)));
}

template <bool by_tanh> __device__ __forceinline__ float gelu_slope_exact(float x) {
    if (by_tanh) {
        const float t = tanhf(gelu::root_2_pi * (x + gelu::cubic * x * x * x));
        const float inner_slope = gelu::root_2_pi * (1.0f + 3.0f * gelu::cubic * x * x);
        return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * inner_slope;
    }
    const float density = gelu::density_0 * expf(-0.5f * x * x);
    return 0.5f * (1.0f + erff(x * gelu::root_half)) + x * density;
}

/* (1 + tanh(inner)) / 2 = 1 / (1 + exp(-2 inner)). tanh.approx would be one special instruction
 * instead of two, but it is within 2^-11 of numbers near -1: of the sum with 1 nothing would be
 * left where x is below -3, of which BF16 keeps eight bits. */
__device__ __forceinline__ float gelu_share(float x, float square) {
    constexpr float by = -2.0f * gelu::root_2_pi * gelu::log2_e;
    return inverse_fast(1.0f + exp2_fast(x * fmaf(by * gelu::cubic, square, by)));
}

/* Half of erfc(|x| / sqrt(2)) and exp(-x^2 / 2): Abramowitz and Stegun 7.1.26, within 1.5e-7. */
__device__ __forceinline__ float gelu_rest(float x, float &density) {
    const float t = inverse_fast(fmaf(0.3275911f * gelu::root_half, fabsf(x), 1.0f));
    density = exp2_fast(x * x * (-0.5f * gelu::log2_e));
    float sum = fmaf(t, 0.5f * 1.061405429f, 0.5f * -1.453152027f);
    sum = fmaf(t, sum, 0.5f * 1.421413741f);
    sum = fmaf(t, sum, 0.5f * -0.284496736f);
    sum = fmaf(t, sum, 0.5f * 0.254829592f);
    return sum * t * density;
}

/** gelu(x) as it is stored in T: in BF16 by few instructions, which at 2 bytes a number take as
 * long as the memory. */
template <typename T, bool by_tanh> __device__ __forceinline__ float gelu_of(float x) {
    if constexpr (sizeof(T) > 2) {
        return gelu_exact<by_tanh>(x);
    } else if constexpr (by_tanh) {
        return x * gelu_share(x, x * x);
    } else {
        float density;
        const float rest = gelu_rest(x, density);
        return x * (x < 0.0f ? rest : 1.0f - rest);
    }
}

template <typename T, bool by_tanh> __device__ __forceinline__ float gelu_slope(float x) {
    if constexpr (sizeof(T) > 2) {
        return gelu_slope_exact<by_tanh>(x);
    } else if constexpr (by_tanh) {
        constexpr float by = 2.0f * gelu::root_2_pi;
        const float square = x * x, share = gelu_share(x, square);
        const float inner_slope = fmaf(3.0f * gelu::cubic * by, square, by);
        return fmaf(x * (share * (1.0f - share)), inner_slope, share);
    } else {
        float density;
        const float rest = gelu_rest(x, density);
        return fmaf(x * gelu::density_0, density, x < 0.0f ? rest : 1.0f - rest);
    }
}

#endif
