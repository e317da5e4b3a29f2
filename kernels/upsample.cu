/* SPDX-License-Identifier: MIT */
/*
 * upsample: y[i][j] = x[i / stride.height][j / stride.width]
 * upsample_grad: dx = the sum of dy over each pixel's block, row by row
 *
 * Memory: y and dx are overwritten (=). Images lie channels last. upsample moves bytes: a pixel's
 *   in parts of 16, 8, 4 or 2, whichever divides it; so one kernel serves all dtypes.
 *   upsample_grad is fast where a pixel's channels are multiples of 16 bytes.
 * Bytes: reads one plane, writes the other. Floor: that / bandwidth.
 * Launch: threads 256 (fewer where an image is smaller), a part a thread; blocks (ceil(parts of an
 *   image / threads), images) or fewer: the grid strides both ways.
 */
#include "image.cuh"

template <typename Part>
__device__ __forceinline__ void upsample(const struct weir__cuda_pool &pool) {
    const uint32_t parts = pool.walk.by_parts.by;
    walk_images(pool.walk, [&](const spot &at) {
        const uint32_t i = divide(static_cast<uint32_t>(at.y), pool.by_stride_height);
        const uint32_t j = divide(static_cast<uint32_t>(at.x), pool.by_stride_width);
        const uint32_t from = (i * static_cast<uint32_t>(pool.in.width) + j) * parts + at.part;
        static_cast<Part *>(pool.y)[at.row * pool.out_items + at.item] =
            static_cast<const Part *>(pool.x)[at.row * pool.in_items + from];
    });
}

extern "C" __global__ void __launch_bounds__(256) weir_upsample(struct weir__cuda_pool pool) {
    switch (pool.walk.part_bytes) {
    case 16: upsample<uint4>(pool); break;
    case 8: upsample<uint2>(pool); break;
    case 4: upsample<uint32_t>(pool); break;
    default: upsample<uint16_t>(pool); break;
    }
}
EXPORT_KERNEL(weir_upsample);

template <typename T, int width>
__device__ __forceinline__ void upsample_grad(const struct weir__cuda_pool &pool) {
    using part = several<T, width>;
    const uint32_t parts = pool.walk.by_parts.by;
    walk_images(pool.walk, [&](const spot &at) {
        const part *image = static_cast<const part *>(pool.dy) + at.row * pool.out_items + at.part;
        const int32_t top = at.y * pool.stride.height, left = at.x * pool.stride.width;
        float sum[width] = {};
#pragma unroll 1
        for (int32_t i = top; i < top + pool.stride.height; i++)
#pragma unroll 2
            for (int32_t j = left; j < left + pool.stride.width; j++) {
                const part dy = image[static_cast<uint32_t>(i * pool.out.width + j) * parts];
#pragma unroll
                for (int k = 0; k < width; k++) sum[k] += widen(dy.at[k]);
            }
        part dx;
#pragma unroll
        for (int k = 0; k < width; k++) dx.at[k] = narrow<T>(sum[k]);
        static_cast<part *>(pool.y)[at.row * pool.in_items + at.item] = dx;
    });
}

extern "C" __global__ void __launch_bounds__(256)
    weir_upsample_grad_f32(struct weir__cuda_pool pool) {
    pool.walk.whole != 0 ? upsample_grad<float, 4>(pool) : upsample_grad<float, 1>(pool);
}
EXPORT_KERNEL(weir_upsample_grad_f32);

extern "C" __global__ void __launch_bounds__(256)
    weir_upsample_grad_bf16(struct weir__cuda_pool pool) {
    pool.walk.whole != 0 ? upsample_grad<bf16, 8>(pool) : upsample_grad<bf16, 1>(pool);
}
EXPORT_KERNEL(weir_upsample_grad_bf16);
