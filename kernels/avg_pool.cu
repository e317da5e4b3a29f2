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
#include "image.cuh"

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

template <typename T, int width>
__device__ __forceinline__ void avg_pool(const struct weir__cuda_pool &pool) {
    using part = several<T, width>;
    const uint32_t parts = pool.walk.by_parts.by;
    walk_images(pool.walk, [&](const spot &at) {
        const part *image = static_cast<const part *>(pool.x) + at.row * pool.in_items + at.part;
        const box window = window_of(pool, at.y, at.x);
        float sum[width] = {};
#pragma unroll 1
        for (int32_t i = window.top; i < window.bottom; i++)
#pragma unroll 2
            for (int32_t j = window.left; j < window.right; j++) {
                const part x = image[static_cast<uint32_t>(i * pool.in.width + j) * parts];
#pragma unroll
                for (int k = 0; k < width; k++) sum[k] += widen(x.at[k]);
            }
        divide_all(sum, divisor_of(pool, at.y, at.x));
        part y;
#pragma unroll
        for (int k = 0; k < width; k++) y.at[k] = narrow<T>(sum[k]);
        static_cast<part *>(pool.y)[at.row * pool.out_items + at.item] = y;
    });
}

template <typename T, int width>
__device__ __forceinline__ void avg_pool_grad(const struct weir__cuda_pool &pool) {
    using part = several<T, width>;
    const uint32_t parts = pool.walk.by_parts.by;
    walk_images(pool.walk, [&](const spot &at) {
        const part *image = static_cast<const part *>(pool.dy) + at.row * pool.out_items + at.part;
        const box over = windows_over(pool, at.y, at.x);
        float sum[width] = {};
#pragma unroll 1
        for (int32_t i = over.top; i < over.bottom; i++)
#pragma unroll 1
            for (int32_t j = over.left; j < over.right; j++) {
                const part dy = image[static_cast<uint32_t>(i * pool.out.width + j) * parts];
                float share[width];
#pragma unroll
                for (int k = 0; k < width; k++) share[k] = widen(dy.at[k]);
                divide_all(share, divisor_of(pool, i, j));
#pragma unroll
                for (int k = 0; k < width; k++) sum[k] += share[k];
            }
        part dx;
#pragma unroll
        for (int k = 0; k < width; k++) dx.at[k] = narrow<T>(sum[k]);
        static_cast<part *>(pool.y)[at.row * pool.in_items + at.item] = dx;
    });
}

extern "C" __global__ void __launch_bounds__(256) weir_avg_pool2d_f32(struct weir__cuda_pool pool) {
    pool.walk.whole != 0 ? avg_pool<float, 4>(pool) : avg_pool<float, 1>(pool);
}
EXPORT_KERNEL(weir_avg_pool2d_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_avg_pool2d_bf16(struct weir__cuda_pool pool) {
    pool.walk.whole != 0 ? avg_pool<bf16, 8>(pool) : avg_pool<bf16, 1>(pool);
}
EXPORT_KERNEL(weir_avg_pool2d_bf16);

extern "C" __global__ void __launch_bounds__(256)
    weir_avg_pool2d_grad_f32(struct weir__cuda_pool pool) {
    pool.walk.whole != 0 ? avg_pool_grad<float, 4>(pool) : avg_pool_grad<float, 1>(pool);
}
EXPORT_KERNEL(weir_avg_pool2d_grad_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_avg_pool2d_grad_bf16(struct weir__cuda_pool pool) {
    pool.walk.whole != 0 ? avg_pool_grad<bf16, 8>(pool) : avg_pool_grad<bf16, 1>(pool);
}
EXPORT_KERNEL(weir_avg_pool2d_grad_bf16);
