/* SPDX-License-Identifier: MIT */
/*
 * mse: partial = sum over a tile of (x - t)^2; mse_grad: dx = 2 / weight * (x - t)
 * bce: partial = sum over a tile of max(x, 0) - x t + log(1 + exp(-|x|)): finite for an infinite x
 *   that its t agrees with;
 * bce_grad: dx = (sigmoid(x) - t) / weight
 * loss: loss = the sum of all partial sums / weight; 0 where the weight is 0
 *
 * Sums are in double. Thread t of 256 adds its chunks of a tile of 4096 numbers in turn (chunk k is
 * numbers 16 bytes x (256 k + t) …); then the block's butterfly. Of the partial sums thread t adds
 * t, t + 256 …; then the butterfly.
 *
 * Memory: partial, loss, dx are overwritten (=). Fast if pointers are multiples of 16. `loss` may
 * be the host's pinned memory. Bytes: reads 2 n numbers (gradients write n). Floor: that /
 * bandwidth; loss: a few round trips. Launch: threads 256; blocks: tiles; gradients as for_each
 * (each.cuh); loss: one.
 */
#include "net/chunk.cuh"
#include "net/each.cuh"
#include "net/cuda/table_arguments.h"
#include "net/reduce.cuh"

struct squared_error {
    template <typename T> static __device__ __forceinline__ double of(float x, float t) {
        const double distance = static_cast<double>(x) - static_cast<double>(t);
        return distance * distance;
    }
};

/* max(x, 0) - x t is one product; where its factor is 0 a NaN comes through by the rest. As BF16
 * the product is rounded once, and the logarithm is within 2^-21. */
struct binary_entropy {
    template <typename T> static __device__ __forceinline__ double of(float x, float t) {
        if constexpr (sizeof(T) == 2) {
            const float share = (x > 0.0f ? 1.0f : 0.0f) - t;
            const float power = exp2_fast(-fabsf(x) * 1.44269504088896341f);
            const float rest = log2_fast(1.0f + power) * 0.693147180559945309f;
            return static_cast<double>((share == 0.0f ? 0.0f : x * share) + rest);
        }
        const double share = (x > 0.0f ? 1.0 : 0.0) - static_cast<double>(t);
        const float rest = log1pf(expf(-fabsf(x)));
        return (share == 0.0 ? 0.0 : static_cast<double>(x) * share) + static_cast<double>(rest);
    }
};

template <typename Term, typename T, bool whole>
__device__ __forceinline__ double sum_tile(const T *x, const T *t, uint32_t n) {
    constexpr uint32_t width = chunk_width<T>, count = WEIR__CUDA_LOSS_TILE / width / 256;
    chunk<T> held_x[count], held_t[count];
    double sum = 0.0;
#pragma unroll
    for (uint32_t k = 0; k < count; k++) {
        const uint32_t i = (k * 256 + threadIdx.x) * width;
        held_x[k] = load_chunk<whole>(x, i, n);
        held_t[k] = load_chunk<whole>(t, i, n);
    }
#pragma unroll
    for (uint32_t k = 0; k < count; k++)
#pragma unroll
        for (uint32_t e = 0; e < width; e++)
            if (whole || (k * 256 + threadIdx.x) * width + e < n)
                sum += Term::template of<T>(widen(held_x[k].at[e]), widen(held_t[k].at[e]));
    return sum;
}

template <typename Term, typename T>
__device__ __forceinline__ void sum_loss(const struct weir__cuda_loss &call) {
    __shared__ double shared[32];
    const uint64_t at = static_cast<uint64_t>(blockIdx.x) * WEIR__CUDA_LOSS_TILE;
    const uint64_t rest = call.count - at;
    const T *x = static_cast<const T *>(call.x) + at, *t = static_cast<const T *>(call.t) + at;
    double sum;
    if (rest >= WEIR__CUDA_LOSS_TILE && is_aligned(x) && is_aligned(t))
        sum = sum_tile<Term, T, true>(x, t, WEIR__CUDA_LOSS_TILE);
    else
        sum = sum_tile<Term, T, false>(
            x, t, rest < WEIR__CUDA_LOSS_TILE ? static_cast<uint32_t>(rest) : WEIR__CUDA_LOSS_TILE);
    sum = reduce_block<8, struct add>(sum, shared);
    if (threadIdx.x == 0) call.partial[blockIdx.x] = sum;
}

__device__ __forceinline__ float logistic(float x) {
    const float small = expf(-fabsf(x));
    return (x < 0.0f ? small : 1.0f) / (1.0f + small);
}

extern "C" __global__ void __launch_bounds__(256)
    weir_loss(double *loss, const double *partial, uint64_t count, double weight) {
    constexpr uint32_t unroll = 8;
    __shared__ double shared[32];
    double sum = 0.0;
    for (uint64_t first = threadIdx.x; first < count; first += 256 * unroll) {
        double held[unroll];
#pragma unroll
        for (uint32_t k = 0; k < unroll; k++)
            held[k] = first + k * 256 < count ? partial[first + k * 256] : 0.0;
#pragma unroll
        for (uint32_t k = 0; k < unroll; k++) sum += held[k];
    }
    sum = reduce_block<8, struct add>(sum, shared);
    if (threadIdx.x == 0) *loss = weight > 0.0 ? sum / weight : 0.0;
}
EXPORT_KERNEL(weir_loss);

extern "C" __global__ void __launch_bounds__(256)
    weir_mse_f32(const __grid_constant__ struct weir__cuda_loss call) {
    sum_loss<struct squared_error, float>(call);
}
EXPORT_KERNEL(weir_mse_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_mse_bf16(const __grid_constant__ struct weir__cuda_loss call) {
    sum_loss<struct squared_error, bf16>(call);
}
EXPORT_KERNEL(weir_mse_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_bce_f32(const __grid_constant__ struct weir__cuda_loss call) {
    sum_loss<struct binary_entropy, float>(call);
}
EXPORT_KERNEL(weir_bce_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_bce_bf16(const __grid_constant__ struct weir__cuda_loss call) {
    sum_loss<struct binary_entropy, bf16>(call);
}
EXPORT_KERNEL(weir_bce_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_mse_grad_f32(float *dx, const float *inputs, const float *targets, uint64_t n,
                      float factor) {
    for_each<2>(dx, inputs, targets, n, [=](float x, float t) { return (x - t) * factor; });
}
EXPORT_KERNEL(weir_mse_grad_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_mse_grad_bf16(bf16 *dx, const bf16 *inputs, const bf16 *targets, uint64_t n,
                       float factor) {
    for_each<2>(dx, inputs, targets, n, [=](float x, float t) { return (x - t) * factor; });
}
EXPORT_KERNEL(weir_mse_grad_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_bce_grad_f32(float *dx, const float *inputs, const float *targets, uint64_t n,
                      float factor) {
    for_each<2>(dx, inputs, targets, n,
                [=](float x, float t) { return (logistic(x) - t) * factor; });
}
EXPORT_KERNEL(weir_bce_grad_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_bce_grad_bf16(bf16 *dx, const bf16 *inputs, const bf16 *targets, uint64_t n,
                       float factor) {
    for_each<2>(dx, inputs, targets, n,
                [=](float x, float t) { return (logistic(x) - t) * factor; });
}
EXPORT_KERNEL(weir_bce_grad_bf16);
