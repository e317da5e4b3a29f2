/* SPDX-License-Identifier: MIT */
/*
 * attention_keep: puts each row's k and v where its sequence and place are in the cache
 * attention_cached: y = softmax(scale * q k^T) v over the last `reach` places up to its own of its
 *   sequence; keys and values may serve several heads
 * attention_join: the same of rows whose places are in several parts, from what each has
 *
 * A launch of the first for all rows goes before the first of the second: several rows may be of
 * one sequence. A block has one row, head and part of 256 places, so that a single sequence fills
 * more of a GPU than it has heads: scores first, four threads to a key; then the shares' values,
 * each thread some columns of every n-th place. Parts are brought to the largest score of all, and
 * added in their order. What is summed depends on the place, the reach and the size of a head only.
 *
 * Memory: y (=), and the rows' places of the cache (=). Fast if heads are multiples of 16 bytes.
 * Bytes: a row reads its sequence's past, (places seen) x 2 x heads of keys x size numbers, nearly
 *   all there is to do; heads that share keys find them in the cache.
 *   Parts are (size + 2) / (128 x size) of that in F32. Floor: that / bandwidth; with few rows a
 *   block's own reach decides: 256 threads with 4 to 8 reads of 16 bytes under way, 16 to 32 KB.
 * Launch: keep: threads 256, blocks (ceil(keys / 2048), rows), the grid strides along x;
 *   cached: threads 256, blocks (rows x heads, parts), shared memory 11 KB;
 *   join: threads 256, blocks rows x heads; where all rows have one part it is left out.
 */
#include "net/cuda/attention_arguments.h"
#include "net/number.cuh"

enum {
    THREADS = 256,
    CHUNK = WEIR__CUDA_CACHED_PART, /* places */
    LANES = 4,                      /* threads of a score */
    SCORES = CHUNK * LANES / THREADS
};

/* Numbers of a place's keys. */
__device__ __forceinline__ uint64_t keys_of(const struct weir__cuda_cached &pass) {
    return static_cast<uint64_t>(pass.heads / pass.group) * pass.size;
}

template <typename T>
__device__ __forceinline__ T *place_at(const struct weir__cuda_cached &pass, uint64_t row,
                                       uint32_t place) {
    const uint64_t sequence = pass.places.sequence[row];
    return static_cast<T *>(pass.cache) + (sequence * pass.table + place) * 2 * keys_of(pass);
}

/* The first place that a row sees. */
__device__ __forceinline__ uint32_t first_seen(const struct weir__cuda_cached &pass, uint64_t row) {
    const uint32_t place = pass.places.place[row];
    return place < pass.reach ? 0 : place + 1 - pass.reach;
}

/* How many places it sees. */
__device__ __forceinline__ uint32_t count_seen(const struct weir__cuda_cached &pass, uint64_t row) {
    return pass.places.place[row] + 1 - first_seen(pass, row);
}

template <typename T> __device__ __forceinline__ void keep(const struct weir__cuda_cached &pass) {
    constexpr uint32_t at_once = 16 / sizeof(T);
    const uint64_t row = blockIdx.y, count = keys_of(pass);
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    const T *k = static_cast<const T *>(pass.k) + row * pass.kv_step;
    const T *v = static_cast<const T *>(pass.v) + row * pass.kv_step;
    T *keys = place_at<T>(pass, row, pass.places.place[row]), *values = keys + count;
    const bool wide = is_aligned(k) && is_aligned(v) && is_aligned(keys) && is_aligned(values);
    const uint64_t vectors = wide ? count / at_once : 0;
    for (uint64_t i = first; i < vectors; i += step) {
        reinterpret_cast<uint4 *>(keys)[i] = reinterpret_cast<const uint4 *>(k)[i];
        reinterpret_cast<uint4 *>(values)[i] = reinterpret_cast<const uint4 *>(v)[i];
    }
    for (uint64_t i = vectors * at_once + first; i < count; i += step)
        keys[i] = k[i], values[i] = v[i];
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
    uint64_t step;         /* from place to place */
    uint32_t places, size; /* places: that the row sees */
};

/* -inf - -inf is not a number. */
__device__ __forceinline__ float finite_base(float largest) {
    return largest == -INFINITY ? 0.0f : largest;
}

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

/* The part's scores become shares, relative to the largest, which it returns; `share` is the
 * thread's. Every warp finds the largest for itself. */
__device__ __forceinline__ float share_out(struct shared *shared, float *share) {
    float largest[1] = {-INFINITY};
#pragma unroll
    for (uint32_t i = threadIdx.x % 32; i < CHUNK; i += 32)
        largest[0] = fmaxf(largest[0], shared->score[i]);
    max_of_lanes<32>(largest);
    const float base = finite_base(largest[0]);
    *share = expf(shared->score[threadIdx.x] - base);
    shared->share[threadIdx.x] = *share;
    return largest[0];
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

/* Where a row's head has its parts. */
__device__ __forceinline__ float *parts_of(const struct weir__cuda_cached &pass) {
    return pass.parts + static_cast<uint64_t>(blockIdx.x) * pass.part_count *
                            (WEIR__CUDA_CACHED_HEAD + pass.size);
}

/* The threads' sums make up y, or the row's part where there are several. */
template <typename T, int at_once>
__device__ __forceinline__ void fold(const struct weir__cuda_cached &pass, bool in_parts,
                                     float largest, struct shared *shared,
                                     const float (&out)[at_once], float sum, uint32_t groups) {
    const uint32_t size = pass.size;
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
    if (!in_parts) {
        T *y = static_cast<T *>(pass.y) + static_cast<uint64_t>(blockIdx.x) * size;
        y[threadIdx.x] = narrow<T>(numerator / shares);
        return;
    }
    float *part = parts_of(pass) + blockIdx.y * (WEIR__CUDA_CACHED_HEAD + size);
    part[WEIR__CUDA_CACHED_HEAD + threadIdx.x] = numerator;
    if (threadIdx.x == 0) part[0] = largest, part[1] = shares;
}

template <typename T, int at_once>
__device__ __forceinline__ void attend(const struct weir__cuda_cached &pass, struct shared *shared,
                                       const struct past<T> &past) {
    const uint32_t columns = past.size / at_once, groups = THREADS / columns;
    const uint32_t group = threadIdx.x / columns, column = threadIdx.x % columns * at_once;
    const uint32_t first = blockIdx.y * CHUNK;
    float out[at_once] = {}, share;
    make_scores<T, at_once>(shared, past, first, pass.scale);
    __syncthreads();
    const float largest = share_out(shared, &share);
    __syncthreads();
    if (group < groups) add_values<T, at_once>(out, shared, past, first, group, groups, column);
    fold<T, at_once>(pass, past.places > CHUNK, largest, shared, out, share, groups);
}

template <typename T>
__device__ __forceinline__ void attend_one(const struct weir__cuda_cached &pass) {
    constexpr int at_once = 16 / sizeof(T);
    DYNAMIC_SHARED(struct shared, shared);
    const uint64_t row = blockIdx.x / pass.heads, kept = keys_of(pass);
    const uint32_t head = blockIdx.x % pass.heads;
    const T *q = static_cast<const T *>(pass.q) + row * pass.step + head * pass.size;
    const T *k = place_at<T>(pass, row, first_seen(pass, row)) + head / pass.group * pass.size;
    const struct past<T> past = { k, k + kept, 2 * kept, count_seen(pass, row), pass.size };
    if (blockIdx.y * CHUNK >= past.places) return;
    if (threadIdx.x < pass.size) shared->query[threadIdx.x] = widen(q[threadIdx.x]);
    __syncthreads();
    if (pass.size % at_once == 0 && is_aligned(k))
        attend<T, at_once>(pass, shared, past);
    else
        attend<T, 1>(pass, shared, past);
}

template <typename T> __device__ __forceinline__ void join(const struct weir__cuda_cached &pass) {
    const uint32_t row = blockIdx.x / pass.heads;
    const uint32_t count = (count_seen(pass, row) - 1) / CHUNK + 1, d = threadIdx.x;
    const uint32_t pitch = WEIR__CUDA_CACHED_HEAD + pass.size;
    const float *parts = parts_of(pass);
    float largest = -INFINITY, numerator = 0.0f, shares = 0.0f;
    if (count == 1 || d >= pass.size) return;
    for (uint32_t p = 0; p < count; p++) largest = fmaxf(largest, parts[p * pitch]);
    for (uint32_t p = 0; p < count; p++) {
        const float *part = parts + p * pitch;
        const float factor = expf(part[0] - finite_base(largest));
        numerator = fmaf(part[WEIR__CUDA_CACHED_HEAD + d], factor, numerator);
        shares = fmaf(part[1], factor, shares);
    }
    static_cast<T *>(pass.y)[static_cast<uint64_t>(blockIdx.x) * pass.size + d] =
        narrow<T>(numerator / shares);
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

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    weir_attention_cached_f32(struct weir__cuda_cached pass) {
    attend_one<float>(pass);
}
EXPORT_KERNEL(weir_attention_cached_f32);

extern "C" __global__ void __launch_bounds__(THREADS, 3)
    weir_attention_cached_bf16(struct weir__cuda_cached pass) {
    attend_one<bf16>(pass);
}
EXPORT_KERNEL(weir_attention_cached_bf16);

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_attention_join_f32(struct weir__cuda_cached pass) {
    join<float>(pass);
}
EXPORT_KERNEL(weir_attention_join_f32);

extern "C" __global__ void __launch_bounds__(THREADS)
    weir_attention_join_bf16(struct weir__cuda_cached pass) {
    join<bf16>(pass);
}
EXPORT_KERNEL(weir_attention_join_bf16);
