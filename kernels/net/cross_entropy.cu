/* SPDX-License-Identifier: MIT */
/*
 * cross_entropy: largest = max(logits), total = sum(exp(logits - largest)),
 *   partial = log(total) + largest - logits[target]: each row's loss, which loss.cu adds up; 0
 * where the target is ignored, NaN where it is outside of the row cross_entropy_grad: dlogits =
 * (exp(logits - largest) / total - onehot(target)) / weight; 0 where ignored, NaN where the target
 * is outside. Probabilities are never in memory.
 *
 * The sum is one pass. A thread keeps sum(2^(x log2(e) - c)) with a whole number c, which grows
 * with the numbers that it meets: then the exponent is rounded once, and sums of different c are
 * brought together by exact powers of two. The row's one is turned into `total` last: log2(e) being
 * the same rounded number there, its error drops out.
 *
 * Memory: largest, total, partial, dlogits are overwritten (=); dlogits may be the logits.
 * Bytes: reads M x V numbers (the gradient writes as many). Floor: that / bandwidth.
 * A row of an odd number of numbers begins anywhere: which numbers a thread adds may not depend on
 *   that, so chunks are put together from the two aligned ones that they lie in. The gradient needs
 *   no order, and takes aligned chunks.
 * Launch: threads 256; rows of up to 1024 numbers take a warp each, longer ones a block.
 */
#include "net/chunk.cuh"
#include "net/cuda/table_arguments.h"
#include "net/reduce.cuh"

enum { UNROLL = 4 };
#define LOG2_E 1.44269504088896341f
#define LN_2 0.693147180559945309f

/* Sixteen bytes from anywhere in memory that is there; the aligned ones around are read. */
__device__ __forceinline__ uint4 load_shifted(const unsigned char *from) {
    const uint32_t off = static_cast<uint32_t>(reinterpret_cast<uint64_t>(from) % 16);
    const uint4 *aligned = reinterpret_cast<const uint4 *>(from - off);
    const uint4 a = aligned[0];
    if (off == 0) return a;
    const uint4 b = aligned[1];
    uint32_t w[7] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z};
    if ((off & 8) != 0) w[0] = w[2], w[1] = w[3], w[2] = w[4], w[3] = w[5], w[4] = w[6], w[5] = b.w;
    if ((off & 4) != 0) w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = w[4], w[4] = w[5];
    uint32_t to[4];
#pragma unroll
    for (uint32_t k = 0; k < 4; k++)
        to[k] =
            static_cast<uint32_t>((static_cast<uint64_t>(w[k + 1]) << 32 | w[k]) >> off % 4 * 8);
    return {to[0], to[1], to[2], to[3]};
}

__device__ __forceinline__ void unpack(const uint4 &from, floats<4> &to) {
    to.at[0] = f32_from_bits(from.x);
    to.at[1] = f32_from_bits(from.y);
    to.at[2] = f32_from_bits(from.z);
    to.at[3] = f32_from_bits(from.w);
}
__device__ __forceinline__ void unpack(const uint4 &from, floats<8> &to) {
    const uint32_t w[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        to.at[2 * k] = f32_from_bits(w[k] << 16);
        to.at[2 * k + 1] = f32_from_bits(w[k] & 0xffff0000u);
    }
}

/* How a row's numbers lie: chunks are aligned, or put together, or there may be nothing around. */
enum lie { ALIGNED, SHIFTED, ALONE };

/* The 16 bytes of numbers i …, all of them the row's. */
template <enum lie lie, typename T>
__device__ __forceinline__ uint4 load_whole(const T *row, uint32_t i) {
    if constexpr (lie == ALIGNED) return *reinterpret_cast<const uint4 *>(row + i);
    return load_shifted(reinterpret_cast<const unsigned char *>(row + i));
}

/* Numbers i … of a row, -infinity past its end. */
template <enum lie lie, typename T>
__device__ __forceinline__ floats<chunk_width<T>> load_logits(const T *row, uint32_t i,
                                                              uint32_t n) {
    floats<chunk_width<T>> v;
    if (lie != ALONE && n - i >= chunk_width<T>) {
        unpack(load_whole<lie>(row, i), v);
        return v;
    }
#pragma unroll
    for (uint32_t e = 0; e < chunk_width<T>; e++)
        v.at[e] = e < n - i ? widen(row[i + e]) : f32_from_bits(0xff800000);
    return v;
}

/* sum x 2^scale, of the numbers met. The largest is more than a half of the sum, so what exp2_fast
 * takes for 0 would not change it. */
struct power_sum {
    float largest, scale, sum;

    __device__ __forceinline__ void rescale(float to) {
        sum *= exp2f(scale - to);
        scale = to;
    }

    template <uint32_t count> __device__ __forceinline__ void add(floats<count> v) {
#pragma unroll
        for (uint32_t e = 0; e < count; e++) largest = fmaxf(largest, v.at[e]);
        if (largest * LOG2_E > scale) rescale(ceilf(largest * LOG2_E));
#pragma unroll
        for (uint32_t e = 0; e < count; e++) v.at[e] = exp2_fast(fmaf(v.at[e], LOG2_E, -scale));
#pragma unroll
        for (uint32_t half = count / 2; half > 0; half /= 2)
#pragma unroll
            for (uint32_t e = 0; e < half; e++) v.at[e] += v.at[e + half];
        sum += v.at[0];
    }
};

/* The sum of what lane `lane` of `threads` has of a row. */
template <enum lie lie, typename T, uint32_t threads>
__device__ __forceinline__ struct power_sum sum_logits(const T *row, uint32_t n, uint32_t lane) {
    constexpr uint32_t width = chunk_width<T>, step = threads * width;
    /* The scale is not -infinity: that minus itself is a NaN. */
    struct power_sum sum = {f32_from_bits(0xff800000), -1e30f, 0.0f};
    uint32_t i = lane * width;
    if constexpr (lie != ALONE) {
#pragma unroll 1
        for (; i + (UNROLL - 1) * step + width <= n; i += UNROLL * step) {
            uint4 held[UNROLL];
#pragma unroll
            for (uint32_t k = 0; k < UNROLL; k++) held[k] = load_whole<lie>(row, i + k * step);
#pragma unroll
            for (uint32_t k = 0; k < UNROLL; k++) {
                floats<width> v;
                unpack(held[k], v);
                sum.add(v);
            }
        }
    }
#pragma unroll 1
    for (; i < n; i += step) sum.add(load_logits<lie>(row, i, n));
    return sum;
}

/* The row's largest number, and the sum of exp(x - largest). */
struct row_total {
    float largest, total;
};

template <typename T, uint32_t threads>
__device__ __forceinline__ struct row_total total_of(const T *row, uint32_t n, bool fast,
                                                     uint32_t lane, float (*shared)[32]) {
    struct power_sum sum;
    if (fast && is_aligned(row))
        sum = sum_logits<ALIGNED, T, threads>(row, n, lane);
    else if (fast)
        sum = sum_logits<SHIFTED, T, threads>(row, n, lane);
    else
        sum = sum_logits<ALONE, T, threads>(row, n, lane);
    const float largest = reduce_block<threads / 32, struct larger>(sum.largest, shared[0]);
    sum.rescale(fmaxf(ceilf(largest * LOG2_E), -1e30f));
    const float all = reduce_block<threads / 32, struct add>(sum.sum, shared[1]);
    return {largest, all * exp2f(fmaf(-largest, LOG2_E, sum.scale))};
}

template <typename T, uint32_t threads>
__device__ __forceinline__ void cross_entropy(const struct weir__cuda_cross_entropy &call) {
    __shared__ float shared[2][32];
    constexpr uint64_t per_block = 256 / threads;
    const uint32_t n = call.width, lane = threadIdx.x % threads;
    const bool fast = is_aligned(call.logits);
    const uint64_t step = gridDim.x * per_block;
#pragma unroll 1
    for (uint64_t m = blockIdx.x * per_block + threadIdx.x / threads; m < call.rows; m += step) {
        const T *row = static_cast<const T *>(call.logits) + m * n;
        const struct row_total of = total_of<T, threads>(row, n, fast, lane, shared);
        if (lane != 0) continue;
        const int64_t target = call.target[m];
        double loss = 0.0;
        if (target != call.ignore_index) {
            const bool inside = static_cast<uint64_t>(target) < n;
            const float logit = inside ? widen(row[target]) : f32_from_bits(0x7fffffff);
            loss = static_cast<double>(log2f(of.total) * LN_2) +
                   (static_cast<double>(of.largest) - static_cast<double>(logit));
        }
        call.largest[m] = of.largest;
        call.total[m] = of.total;
        call.partial[m] = loss;
    }
}

/* ---- the gradient ---- */

/* What number i of a row becomes. */
template <typename T> struct logit_slope {
    float largest, total, share, factor; /* factor: share / total */
    int64_t target;
    bool ignored;

    __device__ __forceinline__ float power(T logit) const {
        if constexpr (sizeof(T) == 2) return exp2_fast((widen(logit) - largest) * LOG2_E);
        return exp2f((widen(logit) - largest) * LOG2_E);
    }
    __device__ __forceinline__ float of(T logit, uint32_t i) const {
        if (ignored) return 0.0f;
        if (static_cast<int64_t>(i) == target) return (power(logit) / total - 1.0f) * share;
        return power(logit) * factor;
    }
    /* A chunk that begins with number i. */
    __device__ __forceinline__ chunk<T> of(const chunk<T> &logits, uint32_t i) const {
        float made[chunk_width<T>];
#pragma unroll
        for (uint32_t e = 0; e < chunk_width<T>; e++) made[e] = power(logits.at[e]) * factor;
        if (ignored || static_cast<uint64_t>(target) - i < chunk_width<T>)
#pragma unroll
            for (uint32_t e = 0; e < chunk_width<T>; e++) made[e] = of(logits.at[e], i + e);
        return narrow_all<T>(made);
    }
};

template <typename T, uint32_t threads>
__device__ __forceinline__ void slope_row(T *to, const T *from, uint32_t n, uint32_t lane,
                                          const struct logit_slope<T> &slope) {
    constexpr uint32_t width = chunk_width<T>, step = threads * width;
    const uint64_t ragged = (16 - reinterpret_cast<uint64_t>(from) % 16) % 16 / sizeof(T);
    const bool alike =
        (reinterpret_cast<uint64_t>(to) ^ reinterpret_cast<uint64_t>(from)) % 16 == 0;
    const uint32_t head = alike && ragged < n ? static_cast<uint32_t>(ragged) : n;
    const uint32_t end = head + (n - head) / width * width;
    uint32_t at = head + lane * width;
#pragma unroll 1
    for (; at + (UNROLL - 1) * step < end; at += UNROLL * step) {
        chunk<T> held[UNROLL];
#pragma unroll
        for (uint32_t k = 0; k < UNROLL; k++) held[k] = load_chunk<true>(from, at + k * step, n);
#pragma unroll
        for (uint32_t k = 0; k < UNROLL; k++)
            store_chunk<true>(to, at + k * step, n, slope.of(held[k], at + k * step));
    }
#pragma unroll 1
    for (; at < end; at += step)
        store_chunk<true>(to, at, n, slope.of(load_chunk<true>(from, at, n), at));
#pragma unroll 1
    for (uint32_t i = lane; i < head; i += threads) to[i] = narrow<T>(slope.of(from[i], i));
#pragma unroll 1
    for (uint32_t i = end + lane; i < n; i += threads) to[i] = narrow<T>(slope.of(from[i], i));
}

template <typename T, uint32_t threads>
__device__ __forceinline__ void cross_entropy_grad(
    const struct weir__cuda_cross_entropy_grad &call) {
    constexpr uint64_t per_block = 256 / threads;
    const uint32_t n = call.width, lane = threadIdx.x % threads;
    const uint64_t step = gridDim.x * per_block;
#pragma unroll 1
    for (uint64_t m = blockIdx.x * per_block + threadIdx.x / threads; m < call.rows; m += step) {
        const int64_t target = call.target[m];
        const bool ignored = target == call.ignore_index;
        const bool inside = static_cast<uint64_t>(target) < n;
        const float share = inside ? call.share : f32_from_bits(0x7fffffff);
        const float largest = call.largest[m], total = call.total[m];
        const struct logit_slope<T> slope = {
            largest, total, share, share / total, target, ignored
        };
        slope_row<T, threads>(static_cast<T *>(call.dlogits) + m * n,
                              static_cast<const T *>(call.logits) + m * n, n, lane, slope);
    }
}

extern "C" __global__ void __launch_bounds__(256)
    weir_cross_entropy_warp_f32(const __grid_constant__ struct weir__cuda_cross_entropy call) {
    cross_entropy<float, 32>(call);
}
EXPORT_KERNEL(weir_cross_entropy_warp_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_cross_entropy_warp_bf16(const __grid_constant__ struct weir__cuda_cross_entropy call) {
    cross_entropy<bf16, 32>(call);
}
EXPORT_KERNEL(weir_cross_entropy_warp_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_cross_entropy_block_f32(const __grid_constant__ struct weir__cuda_cross_entropy call) {
    cross_entropy<float, 256>(call);
}
EXPORT_KERNEL(weir_cross_entropy_block_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_cross_entropy_block_bf16(const __grid_constant__ struct weir__cuda_cross_entropy call) {
    cross_entropy<bf16, 256>(call);
}
EXPORT_KERNEL(weir_cross_entropy_block_bf16);

extern "C" __global__ void __launch_bounds__(256) weir_cross_entropy_grad_warp_f32(
    const __grid_constant__ struct weir__cuda_cross_entropy_grad call) {
    cross_entropy_grad<float, 32>(call);
}
EXPORT_KERNEL(weir_cross_entropy_grad_warp_f32);

extern "C" __global__ void __launch_bounds__(256) weir_cross_entropy_grad_warp_bf16(
    const __grid_constant__ struct weir__cuda_cross_entropy_grad call) {
    cross_entropy_grad<bf16, 32>(call);
}
EXPORT_KERNEL(weir_cross_entropy_grad_warp_bf16);

extern "C" __global__ void __launch_bounds__(256) weir_cross_entropy_grad_block_f32(
    const __grid_constant__ struct weir__cuda_cross_entropy_grad call) {
    cross_entropy_grad<float, 256>(call);
}
EXPORT_KERNEL(weir_cross_entropy_grad_block_f32);

extern "C" __global__ void __launch_bounds__(256) weir_cross_entropy_grad_block_bf16(
    const __grid_constant__ struct weir__cuda_cross_entropy_grad call) {
    cross_entropy_grad<bf16, 256>(call);
}
EXPORT_KERNEL(weir_cross_entropy_grad_block_bf16);
