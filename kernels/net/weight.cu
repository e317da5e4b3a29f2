/* SPDX-License-Identifier: MIT */
/*
 * weight_pack:    to[o][t][i]  = from[o][i][t], rounded to the type of `to`
 * weight_deliver: to[o][i][t] (+)= from[o][t][i]
 *
 * A convolution's weights between PyTorch's order, (out, in of a group, taps), F32, and that of
 * channels last. Of one output channel, whole input channels with all their taps are contiguous in
 * PyTorch's order: a block holds so many of them, 256 of 3x3, that each thread moves 32 bytes of
 * F32, and has the next tile under way while it stores one. Held they lie as in PyTorch's order.
 * There they move 16 bytes at a time; on the other side, too, a thread has 16 bytes of a tap's
 * row, and lanes first go along 32 channels of it and then over taps: with an odd number of taps
 * the 32 that they hold at a time lie in as many banks.
 *
 * What makes no difference (one tap, one channel) is moved as it lies. Rows that are no multiple
 * of 16 bytes, and more than 72 taps, go through tiles of 64 channels by 32 taps, number by number.
 *
 * Memory: pack overwrites (=); deliver adds (+=) if `adds`, else overwrites. Aligned to numbers;
 *   fast if aligned to 16 bytes.
 * Bytes: reads and writes each number once (deliver reads `to` as well, if it adds). Floor: for
 *   1024 x 1024 x 3 x 3, 57 MB to BF16, 75 MB between F32 (113 MB): 12, 16 us (24 us) on an H200.
 * Launch: threads 288, blocks as many as have work or fewer: the grid strides. Five to a
 *   multiprocessor hold 46 KB each of what is under way and of what is stored, where 29 KB cover an
 *   H200's bandwidth x latency.
 */
#include "net/chunk.cuh"
#include "net/cuda/arguments.h"

enum { THREADS = WEIR__CUDA_WEIGHT_THREADS, HELD = 8 * THREADS, BLOCKS = 5 };
enum { GROUP = 32, TAPS_MAX = HELD / GROUP };            /* channels */
enum { CHANNELS = 64, TAPS = 32, PITCH = CHANNELS + 1 }; /* number by number */

/* A matrix (in, taps) for each of `out`. */
struct weights {
    uint64_t out, in, taps;
};

/* ---- as it lies ---- */

template <typename T>
__device__ __forceinline__ void pack_flat(T *to, const float *from, uint64_t n) {
    constexpr uint32_t width = chunk_width<T>;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * THREADS;
    const uint64_t chunks = is_aligned(to) && is_aligned(from) ? n / width : 0;
    for (uint64_t i = first; i < chunks; i += step) {
        const floats<width> v = load_floats<true, width>(from + i * width, 0, width);
        store_chunk<true>(to + i * width, 0, width, narrow_all<T>(v.at));
    }
    for (uint64_t i = chunks * width + first; i < n; i += step) to[i] = narrow<T>(from[i]);
}

template <typename T>
__device__ __forceinline__ void deliver_flat(float *to, const T *from, uint64_t n, bool adds) {
    constexpr uint32_t width = chunk_width<T>;
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * THREADS + threadIdx.x;
    const uint64_t step = static_cast<uint64_t>(gridDim.x) * THREADS;
    const uint64_t chunks = is_aligned(to) && is_aligned(from) ? n / width : 0;
    for (uint64_t i = first; i < chunks; i += step) {
        const chunk<T> v = load_chunk<true>(from + i * width, 0, width);
        floats<width> sum = {};
        if (adds) sum = load_floats<true, width>(to + i * width, 0, width);
#pragma unroll
        for (uint32_t k = 0; k < width; k++)
            sum.at[k] = adds ? sum.at[k] + widen(v.at[k]) : widen(v.at[k]);
        store_floats<true, width>(to + i * width, 0, width, sum);
    }
    for (uint64_t i = chunks * width + first; i < n; i += step)
        to[i] = adds ? to[i] + widen(from[i]) : widen(from[i]);
}

/* ---- whole channels at a time ---- */

/* Where a block is: at channels `channel` … of the matrix `out`. */
struct turned_place {
    uint64_t out;
    uint32_t channel;
};

/* How a grid walks over matrices: `channels` at a time. */
struct turned_walk {
    uint64_t out_step;
    uint32_t in, taps, channels, channel_step, channel_end;
};

__device__ __forceinline__ struct turned_walk walk_over(const struct weights &weights) {
    struct turned_walk walk;
    walk.in = static_cast<uint32_t>(weights.in);
    walk.taps = static_cast<uint32_t>(weights.taps);
    walk.channels = TAPS_MAX / walk.taps * GROUP;
    const uint32_t tiles = (walk.in + walk.channels - 1) / walk.channels;
    walk.out_step = gridDim.x / tiles;
    walk.channel_step = gridDim.x % tiles * walk.channels;
    walk.channel_end = tiles * walk.channels;
    return walk;
}

__device__ __forceinline__ struct turned_place first_place(const struct turned_walk &walk) {
    const uint32_t tiles = walk.channel_end / walk.channels;
    return {blockIdx.x / tiles, blockIdx.x % tiles * walk.channels};
}

__device__ __forceinline__ struct turned_place next_place(const struct turned_walk &walk,
                                                          struct turned_place place) {
    place.out += walk.out_step;
    place.channel += walk.channel_step;
    if (place.channel >= walk.channel_end) {
        place.channel -= walk.channel_end;
        place.out++;
    }
    return place;
}

__device__ __forceinline__ uint32_t channels_at(const struct turned_walk &walk,
                                                struct turned_place place) {
    const uint32_t left = walk.in - place.channel;
    return left < walk.channels ? left : walk.channels;
}

/* Where the place's first number is in PyTorch's order, and where channels are last. */
__device__ __forceinline__ uint64_t together(const struct turned_walk &walk,
                                             struct turned_place place) {
    return (place.out * walk.in + place.channel) * walk.taps;
}
__device__ __forceinline__ uint64_t apart(const struct turned_walk &walk,
                                          struct turned_place place) {
    return place.out * walk.taps * walk.in + place.channel;
}

/* A thread's chunk of a tap's row in any tile: from which channel of the tile, where that is held,
 * and how far it is behind the tile's first number where channels are last. */
struct turned_spot {
    uint32_t channel, held, apart;
};

template <typename T> constexpr uint32_t spots = HELD / THREADS / chunk_width<T>;

template <typename T>
__device__ __forceinline__ struct turned_spot spot_of(const struct turned_walk &walk,
                                                      uint32_t number) {
    constexpr uint32_t chunks = GROUP / chunk_width<T>;
    const uint32_t chunk = threadIdx.x + number * THREADS, line = chunk / chunks;
    const uint32_t group = line / walk.taps, tap = line - group * walk.taps;
    const uint32_t channel = group * GROUP + chunk % chunks * chunk_width<T>;
    return {channel, channel * walk.taps + tap, tap * walk.in + channel};
}

/* Has a tile on its way to `held`. */
__device__ __forceinline__ void fetch(float *held, const float *from,
                                      const struct turned_walk &walk, struct turned_place place) {
    const uint32_t count = channels_at(walk, place) * walk.taps;
    const float *first = from + together(walk, place);
#pragma unroll
    for (uint32_t u = 0; u < HELD / THREADS / 4; u++) {
        const uint32_t e = (threadIdx.x + u * THREADS) * 4;
        if (e < count) copy_async(held + e, first + e, true);
    }
}

/* `held`: 2 x HELD, aligned to 16 bytes. */
template <typename T>
__device__ __forceinline__ void pack_whole(T *to, const float *from, float *held,
                                           const struct weights &weights) {
    constexpr uint32_t width = chunk_width<T>;
    const struct turned_walk walk = walk_over(weights);
    struct turned_place place = first_place(walk);
    struct turned_spot mine[spots<T>];
#pragma unroll
    for (uint32_t u = 0; u < spots<T>; u++) mine[u] = spot_of<T>(walk, u);
    if (place.out < weights.out) fetch(held, from, walk, place);
#pragma unroll 1
    for (uint32_t half = 0; place.out < weights.out; half ^= 1) {
        const struct turned_place next = next_place(walk, place);
        const uint32_t channels = channels_at(walk, place);
        copy_async_wait();
        __syncthreads();
        if (next.out < weights.out) fetch(held + (half ^ 1) * HELD, from, walk, next);
        T *first = to + apart(walk, place);
#pragma unroll
        for (uint32_t u = 0; u < spots<T>; u++) {
            if (mine[u].channel >= channels) continue;
            float values[width];
#pragma unroll
            for (uint32_t k = 0; k < width; k++)
                values[k] = held[half * HELD + mine[u].held + k * walk.taps];
            store_chunk<true>(first, mine[u].apart, walk.in, narrow_all<T>(values));
        }
        place = next;
    }
}

template <typename T>
__device__ __forceinline__ void load_spots(chunk<T> (&ahead)[spots<T>], const T *from,
                                           const struct turned_spot (&mine)[spots<T>],
                                           const struct turned_walk &walk,
                                           struct turned_place place) {
    const uint32_t channels = channels_at(walk, place);
    const T *first = from + apart(walk, place);
#pragma unroll
    for (uint32_t u = 0; u < spots<T>; u++)
        if (mine[u].channel < channels) ahead[u] = load_chunk<true>(first, mine[u].apart, walk.in);
}

/* `count` numbers, a multiple of 4. */
__device__ __forceinline__ void give(float *to, const float *held, uint32_t count, bool adds) {
    constexpr uint32_t parts = HELD / THREADS / 4;
    chunk<float> sums[parts];
#pragma unroll
    for (uint32_t u = 0; u < parts; u++) {
        const uint32_t e = (threadIdx.x + u * THREADS) * 4;
        if (adds && e < count) sums[u] = load_chunk<true>(to, e, count);
    }
#pragma unroll
    for (uint32_t u = 0; u < parts; u++) {
        const uint32_t e = (threadIdx.x + u * THREADS) * 4;
        if (e >= count) continue;
        const chunk<float> v = load_chunk<true>(held, e, count);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) sums[u].at[k] = adds ? sums[u].at[k] + v.at[k] : v.at[k];
        store_chunk<true>(to, e, count, sums[u]);
    }
}

template <typename T>
__device__ __forceinline__ void deliver_whole(float *to, const T *from, float *held,
                                              const struct weights &weights, bool adds) {
    const struct turned_walk walk = walk_over(weights);
    struct turned_place place = first_place(walk);
    struct turned_spot mine[spots<T>];
    chunk<T> ahead[spots<T>];
#pragma unroll
    for (uint32_t u = 0; u < spots<T>; u++) mine[u] = spot_of<T>(walk, u);
    if (place.out < weights.out) load_spots(ahead, from, mine, walk, place);
#pragma unroll 1
    for (uint32_t half = 0; place.out < weights.out; half ^= 1) {
        const struct turned_place next = next_place(walk, place);
        const uint32_t channels = channels_at(walk, place);
        float *now = held + half * HELD;
#pragma unroll
        for (uint32_t u = 0; u < spots<T>; u++) {
            if (mine[u].channel >= channels) continue;
#pragma unroll
            for (uint32_t k = 0; k < chunk_width<T>; k++)
                now[mine[u].held + k * walk.taps] = widen(ahead[u].at[k]);
        }
        __syncthreads();
        if (next.out < weights.out) load_spots(ahead, from, mine, walk, next);
        give(to + together(walk, place), now, channels * walk.taps, adds);
        place = next;
    }
}

/* ---- number by number ---- */

/* Where a tile lies, and how much of it there is. */
struct weight_tile {
    uint64_t out, channel, tap;
    uint32_t channels, taps;
};

__device__ __forceinline__ struct weight_tile tile_at(uint64_t number,
                                                      const struct weights &weights) {
    const uint64_t across = (weights.taps + TAPS - 1) / TAPS;
    const uint64_t down = (weights.in + CHANNELS - 1) / CHANNELS;
    struct weight_tile tile;
    tile.out = number / (across * down);
    tile.channel = number / across % down * CHANNELS;
    tile.tap = number % across * TAPS;
    const uint64_t channels = weights.in - tile.channel, taps = weights.taps - tile.tap;
    tile.channels = static_cast<uint32_t>(channels < CHANNELS ? channels : CHANNELS);
    tile.taps = static_cast<uint32_t>(taps < TAPS ? taps : TAPS);
    return tile;
}

__device__ __forceinline__ uint64_t tiles_of(const struct weights &weights) {
    return weights.out * ((weights.in + CHANNELS - 1) / CHANNELS) *
           ((weights.taps + TAPS - 1) / TAPS);
}

/* `held` is (TAPS, PITCH) floats. */
template <typename T>
__device__ __forceinline__ void pack_each(T *to, const float *from, float *held,
                                          const struct weights &weights) {
    for (uint64_t number = blockIdx.x; number < tiles_of(weights); number += gridDim.x) {
        const struct weight_tile tile = tile_at(number, weights);
        const float *source =
            from + (tile.out * weights.in + tile.channel) * weights.taps + tile.tap;
        for (uint32_t e = threadIdx.x; e < tile.channels * tile.taps; e += THREADS) {
            const uint32_t i = e / tile.taps, t = e % tile.taps;
            held[t * PITCH + i] = source[i * weights.taps + t];
        }
        __syncthreads();
        T *first = to + (tile.out * weights.taps + tile.tap) * weights.in + tile.channel;
        for (uint32_t e = threadIdx.x; e < tile.channels * tile.taps; e += THREADS) {
            const uint32_t t = e / tile.channels, i = e % tile.channels;
            first[t * weights.in + i] = narrow<T>(held[t * PITCH + i]);
        }
        __syncthreads();
    }
}

template <typename T>
__device__ __forceinline__ void deliver_each(float *to, const T *from, float *held,
                                             const struct weights &weights, bool adds) {
    for (uint64_t number = blockIdx.x; number < tiles_of(weights); number += gridDim.x) {
        const struct weight_tile tile = tile_at(number, weights);
        const T *source = from + (tile.out * weights.taps + tile.tap) * weights.in + tile.channel;
        for (uint32_t e = threadIdx.x; e < tile.channels * tile.taps; e += THREADS) {
            const uint32_t t = e / tile.channels, i = e % tile.channels;
            held[t * PITCH + i] = widen(source[t * weights.in + i]);
        }
        __syncthreads();
        float *first = to + (tile.out * weights.in + tile.channel) * weights.taps + tile.tap;
        for (uint32_t e = threadIdx.x; e < tile.channels * tile.taps; e += THREADS) {
            const uint32_t i = e / tile.taps, t = e % tile.taps;
            const float sum = held[t * PITCH + i];
            float *at = first + i * weights.taps + t;
            *at = adds ? *at + sum : sum;
        }
        __syncthreads();
    }
}

/* ---- the kernels ---- */

/* Whether rows of `width` numbers and more can be moved 16 bytes at a time, and counted. */
__device__ __forceinline__ bool are_whole(const void *to, const void *from,
                                          const struct weights &weights, uint32_t width) {
    return is_aligned(to) && is_aligned(from) && weights.in % width == 0 &&
           weights.taps <= TAPS_MAX && weights.in <= UINT32_MAX / 2 / TAPS_MAX;
}

template <typename T>
__device__ __forceinline__ void pack(T *to, const float *from, const struct weights &weights) {
    __shared__ __align__(16) float held[2 * HELD];
    if (weights.in == 1 || weights.taps == 1)
        pack_flat(to, from, weights.out * weights.in * weights.taps);
    else if (are_whole(to, from, weights, chunk_width<T>))
        pack_whole(to, from, held, weights);
    else
        pack_each(to, from, held, weights);
}

template <typename T>
__device__ __forceinline__ void deliver(float *to, const T *from, const struct weights &weights,
                                        bool adds) {
    __shared__ __align__(16) float held[2 * HELD];
    if (weights.in == 1 || weights.taps == 1)
        deliver_flat(to, from, weights.out * weights.in * weights.taps, adds);
    else if (are_whole(to, from, weights, chunk_width<T>))
        deliver_whole(to, from, held, weights, adds);
    else
        deliver_each(to, from, held, weights, adds);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    weir_weight_pack_f32(float *to, const float *from, uint64_t out, uint64_t in, uint64_t taps,
                         uint32_t) {
    pack(to, from, {out, in, taps});
}
EXPORT_KERNEL(weir_weight_pack_f32);

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    weir_weight_pack_bf16(bf16 *to, const float *from, uint64_t out, uint64_t in, uint64_t taps,
                          uint32_t) {
    pack(to, from, {out, in, taps});
}
EXPORT_KERNEL(weir_weight_pack_bf16);

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    weir_weight_deliver_f32(float *to, const float *from, uint64_t out, uint64_t in, uint64_t taps,
                            uint32_t adds) {
    deliver(to, from, {out, in, taps}, adds != 0);
}
EXPORT_KERNEL(weir_weight_deliver_f32);

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    weir_weight_deliver_bf16(float *to, const bf16 *from, uint64_t out, uint64_t in, uint64_t taps,
                             uint32_t adds) {
    deliver(to, from, {out, in, taps}, adds != 0);
}
EXPORT_KERNEL(weir_weight_deliver_bf16);
