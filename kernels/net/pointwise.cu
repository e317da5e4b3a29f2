/* SPDX-License-Identifier: MIT */
/*
 * each: y = f(x), for relu, leaky_relu, scale, silu, sigmoid, tanh
 * each_pair: y = f(a, b), for add, multiply, and the gradients of the above from dy and x (silu,
 *   relu) or y
 *
 * Memory: y is overwritten (=) and may be an input. Fast if pointers are multiples of 16.
 * Bytes: reads n or 2 n, writes n numbers. Floor: 2 n or 3 n x (4 or 2) / bandwidth.
 * Launch: threads 256, blocks ceil(n / (512 chunks of 16 bytes)), or fewer: the grid strides.
 */
#include "net/each.cuh"

/* 1 / (1 + exp(-x)), by an exp that cannot overflow; in BF16 what overflows becomes 0. */
template <typename T> __device__ __forceinline__ float logistic(float x) {
    if constexpr (sizeof(T) == 2) return inverse_fast(1.0f + exp2_fast(x * -1.44269504088896341f));
    const float small = expf(-fabsf(x));
    return (x < 0.0f ? small : 1.0f) / (1.0f + small);
}

template <typename T> __device__ __forceinline__ void map_one(const struct weir__cuda_each &call) {
    const float slope = call.slope;
    switch (call.map) {
    case WEIR__CUDA_MAP_RELU: /* not v > 0 ? v : 0: a NaN must come through */
        for_each<1, T>(call, [](float v, float) { return v <= 0.0f ? 0.0f : v; });
        break;
    case WEIR__CUDA_MAP_LEAKY_RELU:
        for_each<1, T>(call, [=](float v, float) { return v > 0.0f ? v : slope * v; });
        break;
    case WEIR__CUDA_MAP_SCALE:
        for_each<1, T>(call, [=](float v, float) { return slope * v; });
        break;
    case WEIR__CUDA_MAP_SILU:
        for_each<1, T>(call, [](float v, float) { return v * logistic<T>(v); });
        break;
    case WEIR__CUDA_MAP_SIGMOID:
        for_each<1, T>(call, [](float v, float) { return logistic<T>(v); });
        break;
    case WEIR__CUDA_MAP_TANH:
        for_each<1, T>(call,
                       [](float v, float) { return sizeof(T) == 2 ? tanh_fast(v) : tanhf(v); });
        break;
    }
}

template <typename T> __device__ __forceinline__ void map_pair(const struct weir__cuda_each &call) {
    const float slope = call.slope;
    switch (call.map) {
    case WEIR__CUDA_MAP_ADD: for_each<2, T>(call, [](float u, float v) { return u + v; }); break;
    case WEIR__CUDA_MAP_MULTIPLY:
        for_each<2, T>(call, [](float u, float v) { return u * v; });
        break;
    case WEIR__CUDA_MAP_RELU_GRAD:
        for_each<2, T>(call, [](float d, float v) { return v <= 0.0f ? 0.0f : d; });
        break;
    case WEIR__CUDA_MAP_LEAKY_RELU_GRAD:
        for_each<2, T>(call, [=](float d, float v) { return v > 0.0f ? d : slope * d; });
        break;
    case WEIR__CUDA_MAP_SILU_GRAD:
        for_each<2, T>(call, [](float d, float v) {
            const float share = logistic<T>(v);
            return d * (share * (1.0f + v * (1.0f - share)));
        });
        break;
    case WEIR__CUDA_MAP_SIGMOID_GRAD:
        for_each<2, T>(call, [](float d, float v) { return d * (1.0f - v) * v; });
        break;
    case WEIR__CUDA_MAP_TANH_GRAD:
        for_each<2, T>(call, [](float d, float v) { return d * (1.0f - v * v); });
        break;
    }
}

STORED_KERNELS(each, weir__cuda_each, (256), map_one<T>);
STORED_KERNELS(each_pair, weir__cuda_each, (256), map_pair<T>);
