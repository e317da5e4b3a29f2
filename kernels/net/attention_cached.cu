/* SPDX-License-Identifier: MIT */
/*
 * attention_keep: puts each row's k and v where its sequence and place are in the cache
 * attention_cached: y = softmax(scale * q k^T) v over the places 0 ... its own of its sequence
 *
 * A launch of the first for all rows goes before the first of the second: several rows may be of
 * one sequence. A block has one row and head, and goes over its places 256 at a time, as attention
 * does: scores first, four threads to a key; then the shares' values, each thread some columns of
 * every n-th place. What they sum depends on the place and on the size of a head only.
 *
 * Memory: y (=), and the rows' places of the cache (=). Fast if heads are multiples of 16 bytes.
 * Bytes: a row reads its sequence's past, (place + 1) x 2C numbers, nearly all there is to do.
 *   Floor: that / bandwidth; with few rows a block's own reach decides: 256 threads with 4 to 8
 *   reads of 16 bytes under way, 16 to 32 KB.
 * Launch: keep: threads 256, blocks (ceil(2C / 2048), rows), the grid strides along x;
 *   cached: threads 256, blocks rows x heads, shared memory 11 KB.
 */
#include "net/cuda/attention_arguments.h"
#include "net/number.cuh"

enum {
    THREADS = 256,
    CHUNK = THREADS, /* places */
    LANES = 4,       /* threads of a score */
    SCORES = CHUNK * LANES / THREADS
};

template <typename T>
__device__ __forceinline__ T *sequence_at(const struct weir__cuda_cached &pass, uint64_t row) {
    const uint64_t kept = 2 * static_cast<uint64_t>(pass.heads) * pass.size;
    return static_cast<T *>(pass.cache) + pass.places.sequence[row] * (pass.table * kept);
}

template <typename T> __device__ __forceinline__ void keep(const struct weir__cuda_cached &pass) {
    constexpr uint32_t at_once = 16 / sizeof(T);
    const uint64_t row = blockIdx.y, width = static_cast<uint64_t>(pass.heads) * pass.size;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const T *from = static_cast<const T *>(pass.qkv) + (3 * row + 1) * width;
    T *to = sequence_at<T>(pass, row) + pass.places.place[row] * 2 * width;
    const uint64_t vectors = is_aligned(from) && is_aligned(to) ? 2 * width / at_once : 0;
    for (uint64_t i = first; i < vectors; i += step)
        reinterpret_cast<uint4 *>(to)[i] = reinterpret_cast<const uint4 *>(from)[i];
    for (uint64_t i = vectors * at_once + first; i < 2 * width; i += step) to[i] = from[i];
}

/* What a block has in shared memory. */
struct shared {
    float query[CHUNK];
    float score[CHUNK];
    float share[CHUNK];
    float sum[THREADS / 32];
    float part[THREADS * 8]; /* a thread's values, up to 8 */
};

/* One row's head. */
template <typename T> struct past {
    const T *k, *v;
    uint64_t step; /* from place to place */
    uint32_t places, size;
};

template <typename T, int at_once>
__device__ __forceinline__ void make_scores(struct shared *shared, const struct past<T> &past,
                                            uint32_t first, float scale) {
    const uint32_t lane = threadIdx.x % LANES, own = threadIdx.x / LANES;
    float sum[SCORES] = {};
#pragma unroll 2
    for (uint32_t d = lane * at_once; d < past.size; d += LANES * at_once) {
        several<T, at_once> key[SCORES] = {};
#pragma unroll
        for (uint32_t i = 0; i < SCORES; i++) {
            const uint32_t place = first + own + i * (THREADS / LANES);
            if (place < past.places)
                key[i] =
                    *reinterpret_cast<const several<T, at_once> *>(past.k + place * past.step + d);
        }
#pragma unroll
        for (uint32_t k = 0; k < at_once; k++)
#pragma unroll
            for (uint32_t i = 0; i < SCORES; i++)
                sum[i] = fmaf(shared->query[d + k], widen(key[i].at[k]), sum[i]);
    }
    sum_of_lanes<LANES>(sum);
#pragma unroll
    for (uint32_t i = 0; i < SCORES; i++) {
        const uint32_t at = own + i * (THREADS / LANES);
        if (lane == 0) shared->score[at] = first + at < past.places ? sum[i] * scale : -INFINITY;
    }
}

/* The chunk's scores become shares, relative to the largest so far; returns what older ones are
 * worth. Every warp finds the largest for itself. */
__device__ __forceinline__ float share_out(struct shared *shared, float *largest, float *sum) {
    float now[1] = {*largest};
#pragma unroll
    for (uint32_t i = threadIdx.x % 32; i < CHUNK; i += 32)
        now[0] = fmaxf(now[0], shared->score[i]);
    max_of_lanes<32>(now);
    const float base = now[0] == -INFINITY ? 0.0f : now[0]; /* -inf - -inf is not a number */
    const float factor = expf(*largest - base), p = expf(shared->score[threadIdx.x] - base);
    shared->share[threadIdx.x] = p;
    *sum = *sum * factor + p;
    *largest = now[0];
    return factor;
}

template <typename T, int at_once>
__device__ __forceinline__ void add_values(float (&out)[at_once], const struct shared *shared,
                                           const struct past<T> &past, uint32_t first,
                                           uint32_t group, uint32_t groups, uint32_t column) {
    const uint32_t left = past.places - first, count = left < CHUNK ? left : CHUNK;
    const T *v = past.v + first * past.step + column;
#pragma unroll 4
    for (uint32_t j = group; j < count; j += groups) {
        const several<T, at_once> value =
            *reinterpret_cast<const several<T, at_once> *>(v + j * past.step);
#pragma unroll
        for (int k = 0; k < at_once; k++)
            out[k] = fmaf(shared->share[j], widen(value.at[k]), out[k]);
    }
}

/* The threads' sums make up y. */
template <typename T, int at_once>
__device__ __forceinline__ void fold(T *y, struct shared *shared, const float (&out)[at_once],
                                     float sum, uint32_t size, uint32_t groups) {
    float whole[1] = {sum};
    sum_of_lanes<32>(whole);
    if (threadIdx.x % 32 == 0) shared->sum[threadIdx.x / 32] = whole[0];
#pragma unroll
    for (int k = 0; k < at_once; k++) shared->part[threadIdx.x * at_once + k] = out[k];
    __syncthreads();
    if (threadIdx.x >= size) return;
    float numerator = 0.0f, shares = 0.0f;
    for (uint32_t g = 0; g < groups; g++) numerator += shared->part[g * size + threadIdx.x];
#pragma unroll
    for (uint32_t w = 0; w < THREADS / 32; w++) shares += shared->sum[w];
    y[threadIdx.x] = narrow<T>(numerator / shares);
}

template <typename T, int at_once>
__device__ __forceinline__ void attend(struct shared *shared, T *y, const struct past<T> &past,
                                       float scale) {
    const uint32_t columns = past.size / at_once, groups = THREADS / columns;
    const uint32_t group = threadIdx.x / columns, column = threadIdx.x % columns * at_once;
    float out[at_once] = {}, largest = -INFINITY, sum = 0.0f;
#pragma unroll 1
    for (uint32_t first = 0; first < past.places; first += CHUNK) {
        make_scores<T, at_once>(shared, past, first, scale);
        __syncthreads();
        const float factor = share_out(shared, &largest, &sum);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < at_once; k++) out[k] *= factor;
        if (group < groups) add_values<T, at_once>(out, shared, past, first, group, groups, column);
    }
    fold<T, at_once>(y, shared, out, sum, past.size, groups);
}

template <typename T>
__device__ __forceinline__ void attend_one(const struct weir__cuda_cached &pass) {
    constexpr int at_once = 16 / sizeof(T);
    DYNAMIC_SHARED(struct shared, shared);
    const uint64_t row = blockIdx.x / pass.heads, head = blockIdx.x % pass.heads;
    const uint64_t width = static_cast<uint64_t>(pass.heads) * pass.size, at = head * pass.size;
    const T *q = static_cast<const T *>(pass.qkv) + 3 * row * width + at;
    const T *k = sequence_at<T>(pass, row) + at;
    T *y = static_cast<T *>(pass.y) + row * width + at;
    const struct past<T> past = { k, k + width, 2 * width, pass.places.place[row] + 1, pass.size };
    if (threadIdx.x < pass.size) shared->query[threadIdx.x] = widen(q[threadIdx.x]);
    __syncthreads();
    if (pass.size % at_once == 0 && is_aligned(k))
        attend<T, at_once>(shared, y, past, pass.scale);
    else
        attend<T, 1>(shared, y, past, pass.scale);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_attention_keep_f32(struct weir__cuda_cached pass) {
    keep<float>(pass);
}
EXPORT_KERNEL(weir_attention_keep_f32);

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_attention_keep_bf16(struct weir__cuda_cached pass) {
    keep<bf16>(pass);
}
EXPORT_KERNEL(weir_attention_keep_bf16);

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_attention_cached_f32(struct weir__cuda_cached pass) {
    attend_one<float>(pass);
}
EXPORT_KERNEL(weir_attention_cached_f32);

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_attention_cached_bf16(struct weir__cuda_cached pass) {
    attend_one<bf16>(pass);
}
EXPORT_KERNEL(weir_attention_cached_bf16);
