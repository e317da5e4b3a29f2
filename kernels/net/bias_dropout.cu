/* SPDX-License-Identifier: MIT */
/*
 * bias_dropout_add: y = residual + dropout(x + bias), with dropout.cu's masks; a row of N numbers
 * is N / C times C, and the bias repeats.
 *
 * Memory: y is overwritten (=) and may be x or residual. Fast if C and pointers are multiples of 16
 *   bytes; else each number draws for itself.
 * Bytes: reads 2 n numbers and the bias, writes n, which a sum of its own would read and write once
 *   more. Floor: 3 n x (4 or 2) / bandwidth; words cost as in dropout.cu.
 * Launch: threads (x along C in chunks of 16 bytes, y along N / C), x y = 256; blocks likewise,
 * eight chunks a thread, and z rows, or fewer: the grid strides all three ways.
 */
#include "net/biased.cuh"
#include "net/mask.cuh"

/* visit(c) for the first of every `width` columns that are the thread's. */
template <uint32_t width, typename Visit>
__device__ __forceinline__ void walk_columns(const struct weir__cuda_dropout &all, Visit visit) {
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const uint64_t x_step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
    for (uint64_t c = first * width; c < all.channels; c += x_step * width) visit(c);
}

/* visit(row, element) for those of column c that are the thread's. */
template <typename Visit>
__device__ __forceinline__ void walk_column(const struct weir__cuda_dropout &all, uint64_t c,
                                            Visit visit) {
    const uint64_t y = static_cast<uint64_t>(blockIdx.y) * blockDim.y + threadIdx.y;
    const uint64_t y_step = static_cast<uint64_t>(gridDim.y) * blockDim.y;
#pragma unroll 1
    for (uint64_t row = blockIdx.z; row < all.rows; row += gridDim.z)
#pragma unroll 1
        for (uint64_t t = y; t < all.pixels; t += y_step) visit(row, t * all.channels + c);
}

template <typename T>
__device__ __forceinline__ void add_chunk(const struct weir__cuda_dropout &all, uint64_t row,
                                          uint64_t e, const floats<chunk_width<T>> &bias) {
    const uint64_t at = row * all.width + e;
    chunk<T> x = load_some(static_cast<const T *>(all.x) + at, 0, true);
    const chunk<T> residual = load_some(static_cast<const T *>(all.residual) + at, 0, true);
    uint4 words = {0, 0, 0, 0};
#pragma unroll
    for (uint32_t k = 0; k < chunk_width<T>; k++) {
        if (k % 4 == 0) words = draw(all.mask, row, e / 4 + k / 4);
        const float v = drop(all.mask, widen(x.at[k]) + bias.at[k], word_of(words, k % 4));
        x.at[k] = narrow<T>(widen(residual.at[k]) + v);
    }
    store_some(static_cast<T *>(all.y) + at, x, 0, true);
}

template <typename T>
__device__ __forceinline__ void add_number(const struct weir__cuda_dropout &all, uint64_t row,
                                           uint64_t e, float bias) {
    const uint64_t at = row * all.width + e;
    const uint32_t word = word_of(draw(all.mask, row, e / 4), static_cast<uint32_t>(e % 4));
    const float v = drop(all.mask, widen(static_cast<const T *>(all.x)[at]) + bias, word);
    static_cast<T *>(all.y)[at] = narrow<T>(widen(static_cast<const T *>(all.residual)[at]) + v);
}

template <typename T>
__device__ __forceinline__ void bias_dropout_add(const struct weir__cuda_dropout &all) {
    if (has_whole_chunks<T>(all, all.channels))
        walk_columns<chunk_width<T>>(all, [&](uint64_t c) {
            const floats<chunk_width<T>> bias = load_bias<T>(all.bias, c, all.channels);
            walk_column(all, c, [&](uint64_t row, uint64_t e) { add_chunk<T>(all, row, e, bias); });
        });
    else
        walk_columns<1>(all, [&](uint64_t c) {
            const float bias = all.bias[c];
            walk_column(all, c,
                        [&](uint64_t row, uint64_t e) { add_number<T>(all, row, e, bias); });
        });
}

extern "C" __global__ void __launch_bounds__(256, 5)
    weir_bias_dropout_add_f32(struct weir__cuda_dropout all) {
    bias_dropout_add<float>(all);
}
EXPORT_KERNEL(weir_bias_dropout_add_f32);

extern "C" __global__ void __launch_bounds__(256, 5)
    weir_bias_dropout_add_bf16(struct weir__cuda_dropout all) {
    bias_dropout_add<bf16>(all);
}
EXPORT_KERNEL(weir_bias_dropout_add_bf16);
