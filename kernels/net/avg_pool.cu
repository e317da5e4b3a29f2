/* SPDX-License-Identifier: MIT */
/*
 * avg_pool2d: y = the sum of each window's numbers, row by row, / its divisor: the kernel's size
 *   with count_padding, else how many numbers it has.
 * avg_pool2d_grad: dx = the sum over the windows that hold a pixel, ascending, of dy / divisor.
 *
 * Memory: y and dx are overwritten (=). Images lie channels last; fast where a pixel's channels are
 *   multiples of 16 bytes.
 * Bytes: reads one plane, writes the other. Floor: that / bandwidth (what several windows share
 *   comes from the first cache). A quotient by a power of two is a product, with the same bits.
 * Launch: threads 256 (fewer where an image is smaller), a part of 16 bytes a thread; blocks
 *   (ceil(parts of an image / threads), images) or fewer: the grid strides both ways.
 */
#include "net/image.cuh"

/* How many numbers window (y, x) is divided by. */
__device__ __forceinline__ uint32_t divisor_of(const struct weir__cuda_pool &pool, int32_t y,
                                               int32_t x) {
    if (pool.count_padding != 0 && pool.adaptive == 0)
        return static_cast<uint32_t>(pool.kernel.height * pool.kernel.width);
    const box window = window_of(pool, y, x);
    return static_cast<uint32_t>((window.bottom - window.top) * (window.right - window.left));
}

/* values[k] / divisor, each; divisor > 0. */
template <int width>
__device__ __forceinline__ void divide_all(float (&values)[width], uint32_t divisor) {
    const float by = static_cast<float>(divisor), inverse = 1.0f / by;
    const bool power = (divisor & (divisor - 1)) == 0;
#pragma unroll
    for (int k = 0; k < width; k++) values[k] = power ? values[k] * inverse : values[k] / by;
}

struct avg_pool {
    template <typename T, int width>
    static __device__ __forceinline__ void run(const struct weir__cuda_pool &pool) {
        using part = several<T, width>;
        walk_images(pool.walk, [&](const spot &at) {
            const part *image =
                static_cast<const part *>(pool.x) + at.row * pool.in_items + at.part;
            float sum[width] = {};
            add_box(sum, image, window_of(pool, at.y, at.x), pool.in.width, pool.walk.by_parts.by);
            divide_all(sum, divisor_of(pool, at.y, at.x));
            static_cast<part *>(pool.y)[at.row * pool.out_items + at.item] = narrow_all<T>(sum);
        });
    }
};

struct avg_pool_grad {
    template <typename T, int width>
    static __device__ __forceinline__ void run(const struct weir__cuda_pool &pool) {
        walk_outputs<T, width>(pool, [&](float(&sum)[width], const several<T, width> &dy,
                                         const spot &, int32_t i, int32_t j, uint64_t) {
            float share[width];
#pragma unroll
            for (int k = 0; k < width; k++) share[k] = widen(dy.at[k]);
            divide_all(share, divisor_of(pool, i, j));
#pragma unroll
            for (int k = 0; k < width; k++) sum[k] += share[k];
        });
    }
};

STORED_KERNELS(avg_pool2d, weir__cuda_pool, (256), by_parts<avg_pool, T>);
STORED_KERNELS(avg_pool2d_grad, weir__cuda_pool, (256), by_parts<avg_pool_grad, T>);
