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
#include "net/image.cuh"

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

struct upsample_grad {
    template <typename T, int width>
    static __device__ __forceinline__ void run(const struct weir__cuda_pool &pool) {
        using part = several<T, width>;
        walk_images(pool.walk, [&](const spot &at) {
            const part *image =
                static_cast<const part *>(pool.dy) + at.row * pool.out_items + at.part;
            const int32_t top = at.y * pool.stride.height, left = at.x * pool.stride.width;
            const box block = {top, top + pool.stride.height, left, left + pool.stride.width};
            float sum[width] = {};
            add_box(sum, image, block, pool.out.width, pool.walk.by_parts.by);
            static_cast<part *>(pool.y)[at.row * pool.in_items + at.item] = narrow_all<T>(sum);
        });
    }
};

STORED_KERNELS(upsample_grad, weir__cuda_pool, (256), by_parts<upsample_grad, T>);
