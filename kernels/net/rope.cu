/* SPDX-License-Identifier: MIT */
/*
 * rope: numbers i and i + pairs of each head turn by the angle t * frequencies[i] of token t, or,
 *   with way -1, back
 * rope_cached: the same of single tokens, at their places
 *
 * A token's angles are the same for all heads. So a block has 8 tokens: it makes their sines and
 * cosines, each thread some, and then turns all their heads. The angle is rounded to F32, as models
 * are trained, and reduced to an eighth of a turn in double: it may be a hundred thousand.
 *
 * Memory: y is overwritten (=), and may be x. Fast if pairs are multiples of 16 bytes, and so are
 *   the pointers.
 * Bytes: reads x, writes y. Floor: 2 x rows x heads x size x (4 or 2) / bandwidth.
 * Launch: threads 256, blocks ceil(rows / 8), shared memory 8 KB.
 */
#include "net/chunk.cuh"
#include "net/cuda/attention_arguments.h"

enum { THREADS = 256, TOKENS = 8, PAIRS = WEIR__CUDA_ROPE_PAIRS };

/* A block's tokens. */
struct __align__(16) angles {
    float sine[TOKENS][PAIRS], cosine[TOKENS][PAIRS];
};

/* On [-pi/4, pi/4], by Taylor's series, of which what is cut off is below 2^-27 of the result. */
__device__ __forceinline__ float short_sine(float x) {
    const float xx = x * x;
    const float sum = fmaf(xx, fmaf(xx, 2.7557319e-6f, -1.9841270e-4f), 8.333331e-3f);
    return fmaf(x * xx, fmaf(xx, sum, -0.16666667f), x);
}

__device__ __forceinline__ float short_cosine(float x) {
    const float xx = x * x;
    const float sum = fmaf(xx, fmaf(xx, -2.7557319e-7f, 2.4801587e-5f), -1.3888889e-3f);
    return fmaf(xx * xx, fmaf(xx, sum, 4.1666668e-2f), fmaf(xx, -0.5f, 1.0f));
}

__device__ __forceinline__ void find_angle(float angle, float way, float &sine, float &cosine) {
    const double quarters = static_cast<double>(angle) * (2 / 3.14159265358979323846);
    const double nearest = floor(quarters + 0.5);
    const float x = static_cast<float>((quarters - nearest) * (3.14159265358979323846 / 2));
    const float s = short_sine(x), c = short_cosine(x);
    const uint32_t quarter = static_cast<uint32_t>(static_cast<int32_t>(nearest));
    const float turned_s = quarter % 2 != 0 ? c : s, turned_c = quarter % 2 != 0 ? s : c;
    sine = (quarter & 2) != 0 ? -way * turned_s : way * turned_s;
    cosine = ((quarter + 1) & 2) != 0 ? -turned_c : turned_c;
}

/* `place_of` says where the token of a row stands in its sequence. */
template <typename Place>
__device__ __forceinline__ void find_angles(struct angles *angles,
                                            const struct weir__cuda_rope &pass, uint64_t first,
                                            uint32_t count, Place place_of) {
    for (uint32_t i = threadIdx.x; i < count * pass.pairs; i += THREADS) {
        const uint32_t token = i / pass.pairs, pair = i % pass.pairs;
        const float angle = pass.frequencies[pair] * static_cast<float>(place_of(first + token));
        find_angle(angle, pass.way, angles->sine[token][pair], angles->cosine[token][pair]);
    }
}

/* Of `width` pairs, a multiple of 4, or of one. */
template <int width>
__device__ __forceinline__ struct floats<width> take_floats(const float *from) {
    if constexpr (width > 1)
        return load_floats<true, width>(from, 0, width);
    else
        return {*from};
}

/* `width` pairs of a token's head at once, whose first numbers are at x. */
template <typename T, int width>
__device__ __forceinline__ void turn(T *y, const T *x, uint32_t pairs, const float *sine,
                                     const float *cosine) {
    const struct floats<width> s = take_floats<width>(sine), c = take_floats<width>(cosine);
    const several<T, width> a = *reinterpret_cast<const several<T, width> *>(x);
    const several<T, width> b = *reinterpret_cast<const several<T, width> *>(x + pairs);
    float low[width], high[width];
#pragma unroll
    for (int k = 0; k < width; k++) {
        low[k] = fmaf(widen(a.at[k]), c.at[k], -(widen(b.at[k]) * s.at[k]));
        high[k] = fmaf(widen(b.at[k]), c.at[k], widen(a.at[k]) * s.at[k]);
    }
    store_all(y, narrow_all<T>(low));
    store_all(y + pairs, narrow_all<T>(high));
}

template <typename T, int width>
__device__ __forceinline__ void turn_all(const struct angles *angles,
                                         const struct weir__cuda_rope &pass, uint64_t first,
                                         uint32_t count) {
    const uint32_t per_head = pass.pairs / width, per_token = pass.heads * per_head;
    const T *x = static_cast<const T *>(pass.x) + first * pass.heads * 2 * pass.pairs;
    T *y = static_cast<T *>(pass.y) + first * pass.heads * 2 * pass.pairs;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < count * per_token; i += THREADS) {
        const uint32_t token = i / per_token, pair = i % per_head * width;
        const uint64_t at = static_cast<uint64_t>(i / per_head) * 2 * pass.pairs + pair;
        turn<T, width>(y + at, x + at, pass.pairs, angles->sine[token] + pair,
                       angles->cosine[token] + pair);
    }
}

template <typename T, typename Place>
__device__ __forceinline__ void turn_block(const struct weir__cuda_rope &pass, Place place_of) {
    constexpr int width = static_cast<int>(chunk_width<T>);
    __shared__ struct angles angles;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * TOKENS, left = pass.rows - first;
    const uint32_t count = left < TOKENS ? static_cast<uint32_t>(left) : TOKENS;
    find_angles(&angles, pass, first, count, place_of);
    __syncthreads();
    if (pass.pairs % width == 0 && is_aligned(pass.x) && is_aligned(pass.y))
        turn_all<T, width>(&angles, pass, first, count);
    else
        turn_all<T, 1>(&angles, pass, first, count);
}

template <typename T> __device__ __forceinline__ void rope(const struct weir__cuda_rope &call) {
    turn_block<T>(call, [&](uint64_t row) { return static_cast<uint32_t>(row % call.tokens); });
}

template <typename T>
__device__ __forceinline__ void rope_cached(const struct weir__cuda_rope_cached &call) {
    turn_block<T>(call.rope, [&](uint64_t row) { return call.places.place[row]; });
}

STORED_KERNELS(rope, weir__cuda_rope, (THREADS), rope<T>);
STORED_KERNELS(rope_cached, weir__cuda_rope_cached, (THREADS), rope_cached<T>);
