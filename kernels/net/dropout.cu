/* SPDX-License-Identifier: MIT */
/*
 * dropout: y = keep ? x * scale : 0, or residual + that; keep of element e of row r: word e % 4 of
 *   weir__philox_words(seed, mini_batch, op, row_first + r, e / 4), its upper 24 bits at least
 *   `threshold`. Where channels > 0, a row lies as (pixels, channels), and (pixel, c) is element
 *   c * pixels + pixel.
 * dropout2d: the same, with the channel as the element: all its pixels are kept or dropped.
 *
 * Memory: y is overwritten (=) and may be x or residual. Fast if pointers and rows (dropout2d:
 *   channels) are multiples of 16 bytes.
 * Bytes: reads n or 2 n, writes n numbers. Floor: 2 n or 3 n x (4 or 2) / bandwidth. Ten rounds are
 *   about 60 instructions for four elements; with the rest 20 to 25 for each, of which an H200
 *   issues some 1.2e12 a second: f32 is bound by memory, bf16 by both alike. dropout2d draws once
 *   for a thread's eight or more pixels.
 * Launch: threads (x along a row in chunks of 16 bytes, y rows), x y = 256; blocks likewise, with
 *   two chunks a thread, or fewer: the grid strides both ways. Where channels > 0 and in dropout2d:
 * threads (x along channels, y pixels), z rows.
 */
#include "net/mask.cuh"

/* ---- rows in the order of their elements ---- */

/* What becomes of chunk i of a row. */
template <typename T, bool adds>
__device__ __forceinline__ chunk<T> drop_chunk(const struct weir__cuda_dropout &all, uint64_t row,
                                               uint64_t i, const chunk<T> &x,
                                               const chunk<T> &residual) {
    constexpr uint32_t width = chunk_width<T>;
    float made[width];
#pragma unroll
    for (uint32_t group = 0; group < width / 4; group++) {
        const uint4 words = draw(all.mask, row, i * (width / 4) + group);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t e = group * 4 + k;
            made[e] = drop(all.mask, widen(x.at[e]), word_of(words, k));
            if (adds) made[e] = widen(residual.at[e]) + made[e];
        }
    }
    return narrow_all<T>(made);
}

/* Chunks i and i + step of a row, of which there are `chunks`. */
template <typename T, bool adds, bool whole>
__device__ __forceinline__ void drop_two(const struct weir__cuda_dropout &all, uint64_t row,
                                         uint64_t i, uint64_t step, uint64_t chunks) {
    constexpr uint32_t unroll = 2, width = chunk_width<T>;
    const uint64_t at = row * all.width;
    chunk<T> x[unroll], residual[unroll];
#pragma unroll
    for (uint32_t u = 0; u < unroll; u++) {
        const uint64_t first = (i + u * step) * width;
        if (i + u * step >= chunks) continue;
        x[u] = load_some(static_cast<const T *>(all.x) + at + first, all.width - first, whole);
        if (adds)
            residual[u] = load_some(static_cast<const T *>(all.residual) + at + first,
                                    all.width - first, whole);
    }
#pragma unroll
    for (uint32_t u = 0; u < unroll; u++) {
        const uint64_t first = (i + u * step) * width;
        if (i + u * step >= chunks) continue;
        store_some(static_cast<T *>(all.y) + at + first,
                   drop_chunk<T, adds>(all, row, i + u * step, x[u], residual[u]),
                   all.width - first, whole);
    }
}

template <typename T, bool adds, bool whole>
__device__ __forceinline__ void drop_rows(const struct weir__cuda_dropout &all) {
    const uint64_t chunks = (all.width + chunk_width<T> - 1) / chunk_width<T>;
    const uint64_t x = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t y = static_cast<uint64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    const uint64_t x_step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
#pragma unroll 1
    for (uint64_t row = y; row < all.rows; row += static_cast<uint64_t>(gridDim.y) * blockDim.y)
#pragma unroll 1
        for (uint64_t i = x; i < chunks; i += 2 * x_step)
            drop_two<T, adds, whole>(all, row, i, x_step, chunks);
}

/* ---- images, channels last ---- */

/* What of a group of four elements is channel c's: consecutive pixels. Lanes are neighbours in c,
 * so that a group's four accesses run along channels. */
template <typename T, bool adds>
__device__ __forceinline__ void drop_group(const struct weir__cuda_dropout &all, uint64_t row,
                                           uint64_t c, uint64_t group) {
    const uint64_t begin = c * all.pixels, end = begin + all.pixels;
    const uint64_t at = row * all.width + c;
    const uint4 words = draw(all.mask, row, group);
    float held[4], residual[4];
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        const uint64_t element = group * 4 + k;
        if (element < begin || element >= end) continue;
        const uint64_t place = at + (element - begin) * all.channels;
        held[k] = widen(static_cast<const T *>(all.x)[place]);
        if (adds) residual[k] = widen(static_cast<const T *>(all.residual)[place]);
    }
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        const uint64_t element = group * 4 + k;
        if (element < begin || element >= end) continue;
        float v = drop(all.mask, held[k], word_of(words, k));
        if (adds) v = residual[k] + v;
        static_cast<T *>(all.y)[at + (element - begin) * all.channels] = narrow<T>(v);
    }
}

template <typename T, bool adds>
__device__ __forceinline__ void drop_image(const struct weir__cuda_dropout &all) {
    const uint64_t x = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t y = static_cast<uint64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
#pragma unroll 1
    for (uint64_t row = blockIdx.z; row < all.rows; row += gridDim.z)
#pragma unroll 1
        for (uint64_t c = x; c < all.channels; c += static_cast<uint64_t>(gridDim.x) * blockDim.x) {
            const uint64_t end = ((c + 1) * all.pixels + 3) / 4;
#pragma unroll 1
            for (uint64_t group = c * all.pixels / 4 + y; group < end;
                 group += static_cast<uint64_t>(gridDim.y) * blockDim.y)
                drop_group<T, adds>(all, row, c, group);
        }
}

template <typename T, bool adds>
__device__ __forceinline__ void drop_elements(const struct weir__cuda_dropout &all) {
    if (all.channels > 0)
        drop_image<T, adds>(all);
    else if (has_whole_chunks<T>(all, all.width))
        drop_rows<T, adds, true>(all);
    else
        drop_rows<T, adds, false>(all);
}

template <typename T>
__device__ __forceinline__ void dropout(const struct weir__cuda_dropout &all) {
    all.residual != nullptr ? drop_elements<T, true>(all) : drop_elements<T, false>(all);
}

/* ---- whole channels ---- */

/* A thread's channels, a chunk of them, at UNROLL pixels that are `step` apart. */
template <typename T, uint32_t unroll>
__device__ __forceinline__ void drop_pixels(const T *x, T *y, uint64_t pixel, uint64_t step,
                                            const struct weir__cuda_dropout &all, uint64_t count,
                                            bool whole, uint32_t kept) {
    chunk<T> held[unroll];
#pragma unroll
    for (uint32_t u = 0; u < unroll; u++)
        if (pixel + u * step < all.pixels)
            held[u] = load_some(x + (pixel + u * step) * all.channels, count, whole);
#pragma unroll
    for (uint32_t u = 0; u < unroll; u++) {
        if (pixel + u * step >= all.pixels) continue;
        float made[chunk_width<T>];
#pragma unroll
        for (uint32_t k = 0; k < chunk_width<T>; k++)
            made[k] = (kept >> k & 1) != 0 ? widen(held[u].at[k]) * all.mask.scale : 0.0f;
        store_some(y + (pixel + u * step) * all.channels, narrow_all<T>(made), count, whole);
    }
}

template <typename T>
__device__ __forceinline__ void drop_channels(const struct weir__cuda_dropout &all, uint64_t row,
                                              uint64_t c, bool whole) {
    constexpr uint32_t unroll = 2, width = chunk_width<T>;
    const uint64_t step = static_cast<uint64_t>(gridDim.y) * blockDim.y;
    const uint64_t at = row * all.width + c;
    uint32_t kept = 0;
#pragma unroll
    for (uint32_t group = 0; group < width / 4; group++) {
        const uint4 words = draw(all.mask, row, c / 4 + group);
#pragma unroll
        for (uint32_t k = 0; k < 4; k++)
            if (is_kept(all.mask, word_of(words, k))) kept |= 1u << (group * 4 + k);
    }
#pragma unroll 1
    for (uint64_t pixel = static_cast<uint64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
         pixel < all.pixels; pixel += unroll * step)
        drop_pixels<T, unroll>(static_cast<const T *>(all.x) + at, static_cast<T *>(all.y) + at,
                               pixel, step, all, all.channels - c, whole, kept);
}

template <typename T>
__device__ __forceinline__ void dropout2d(const struct weir__cuda_dropout &all) {
    const bool whole = has_whole_chunks<T>(all, all.channels);
    const uint64_t x = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t x_step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
#pragma unroll 1
    for (uint64_t row = blockIdx.z; row < all.rows; row += gridDim.z)
#pragma unroll 1
        for (uint64_t c = x * chunk_width<T>; c < all.channels; c += x_step * chunk_width<T>)
            drop_channels<T>(all, row, c, whole);
}

extern "C" __global__ void __launch_bounds__(256, 4)
    weir_dropout_f32(struct weir__cuda_dropout all) {
    dropout<float>(all);
}
EXPORT_KERNEL(weir_dropout_f32);

extern "C" __global__ void __launch_bounds__(256, 4)
    weir_dropout_bf16(struct weir__cuda_dropout all) {
    dropout<bf16>(all);
}
EXPORT_KERNEL(weir_dropout_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_dropout2d_f32(struct weir__cuda_dropout all) {
    dropout2d<float>(all);
}
EXPORT_KERNEL(weir_dropout2d_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_dropout2d_bf16(struct weir__cuda_dropout all) {
    dropout2d<bf16>(all);
}
EXPORT_KERNEL(weir_dropout2d_bf16);
