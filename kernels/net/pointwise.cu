/* SPDX-License-Identifier: MIT */
/*
 * each: y = f(x), for relu, leaky_relu, scale, silu, sigmoid, tanh
 * each_pair: y = f(a, b), for add, multiply, swiglu, and the gradients of the above from dy and x
 *   (silu, relu) or y
 * swiglu_grad: dgate = dy * up * silu'(gate), dup = dy * silu(gate)
 *
 * Memory: y is overwritten (=) and may be an input. Fast if pointers are multiples of 16.
 * Bytes: reads n or 2 n, writes n numbers; swiglu_grad reads 3 n and writes 2 n. Floor: 2 n, 3 n or
 *   5 n x (4 or 2) / bandwidth.
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
    case WEIR__CUDA_MAP_SWIGLU:
        for_each<2, T>(call, [](float u, float v) { return u * logistic<T>(u) * v; });
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

template <typename T>
__device__ __forceinline__ void swiglu_grad_one(float dy, float gate, float up, float &dgate,
                                                float &dup) {
    const float share = logistic<T>(gate);
    dgate = dy * up * (share * (1.0f + gate * (1.0f - share)));
    dup = dy * (gate * share);
}

template <typename T>
__device__ __forceinline__ void swiglu_grad(const struct weir__cuda_swiglu_grad &call) {
    constexpr uint32_t width = chunk_width<T>;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const T *dy = static_cast<const T *>(call.dy), *gate = static_cast<const T *>(call.gate);
    const T *up = static_cast<const T *>(call.up);
    T *dgate = static_cast<T *>(call.dgate), *dup = static_cast<T *>(call.dup);
    const bool whole = is_aligned(dy) && is_aligned(gate) && is_aligned(up) && is_aligned(dgate) &&
                       is_aligned(dup);
#pragma unroll 1
    for (uint64_t i = first * width; i < call.count; i += step * width) {
        const uint64_t left = call.count - i;
        const bool full = whole && left >= width;
        const chunk<T> d = load_some(dy + i, left, full), g = load_some(gate + i, left, full);
        const chunk<T> u = load_some(up + i, left, full);
        float made[2][width];
#pragma unroll
        for (uint32_t k = 0; k < width; k++)
            swiglu_grad_one<T>(widen(d.at[k]), widen(g.at[k]), widen(u.at[k]), made[0][k],
                               made[1][k]);
        store_some(dgate + i, narrow_all<T>(made[0]), left, full);
        store_some(dup + i, narrow_all<T>(made[1]), left, full);
    }
}

STORED_KERNELS(each, weir__cuda_each, (256), map_one<T>);
STORED_KERNELS(each_pair, weir__cuda_each, (256), map_pair<T>);
STORED_KERNELS(swiglu_grad, weir__cuda_swiglu_grad, (256), swiglu_grad<T>);
