/* SPDX-License-Identifier: MIT */
/**
 * How kernels walk over images that lie channels last. A pixel's channels are parts of 16 bytes
 * where they divide so, else single numbers; neighbouring threads have neighbouring parts. A thread
 * finds its pixel by products with what weir__cuda_divisor made, not by divisions.
 */
#ifndef WEIR_KERNELS_IMAGE_CUH
#define WEIR_KERNELS_IMAGE_CUH

#include "net/cuda/arguments.h"
#include "net/number.cuh"

/** n / by, for n < 2^31. */
__device__ __forceinline__ uint32_t divide(uint32_t n, const struct weir__cuda_divisor &divisor) {
    const uint64_t product = static_cast<uint64_t>(n) * divisor.multiplier;
    return (static_cast<uint32_t>(product >> 32) + n) >> divisor.shift;
}

/** A part of a pixel of an image. */
struct spot {
    uint64_t row;  /* the image */
    uint32_t item; /* the part, counted through the image */
    uint32_t part; /* counted through the pixel */
    int32_t y, x;
};

/** visit(spot) for every part of every image: all threads, blocks y over images. */
template <typename Visit>
__device__ __forceinline__ void walk_images(const struct weir__cuda_walk &walk, Visit visit) {
    const uint32_t first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
#pragma unroll 1
    for (uint64_t row = blockIdx.y; row < walk.rows; row += gridDim.y)
#pragma unroll 1
        for (uint32_t i = first; i < walk.items; i += step) {
            const uint32_t pixel = divide(i, walk.by_parts), y = divide(pixel, walk.by_width);
            visit(spot{row, i, i - pixel * walk.by_parts.by, static_cast<int32_t>(y),
                       static_cast<int32_t>(pixel - y * walk.by_width.by)});
        }
}

/** Rows top … bottom - 1 and columns left … right - 1 of a plane. */
struct box {
    int32_t top, bottom, left, right;
};

__device__ __forceinline__ int32_t larger_of(int32_t a, int32_t b) {
    return a > b ? a : b;
}
__device__ __forceinline__ int32_t smaller_of(int32_t a, int32_t b) {
    return a < b ? a : b;
}

/** Which inputs output (y, x) looks at. */
__device__ __forceinline__ box window_of(const struct weir__cuda_pool &pool, int32_t y, int32_t x) {
    const struct weir__cuda_extent in = pool.in, out = pool.out;
    if (pool.adaptive != 0)
        return {y * in.height / out.height, ((y + 1) * in.height + out.height - 1) / out.height,
                x * in.width / out.width, ((x + 1) * in.width + out.width - 1) / out.width};
    const int32_t top = y * pool.stride.height - pool.padding.height;
    const int32_t left = x * pool.stride.width - pool.padding.width;
    return {larger_of(top, 0), smaller_of(top + pool.kernel.height, in.height), larger_of(left, 0),
            smaller_of(left + pool.kernel.width, in.width)};
}

/** The first and the last but one of the windows, in one direction, that hold input `at`. */
__device__ __forceinline__ int32_t first_over(int32_t at, int32_t padding, int32_t kernel,
                                              const struct weir__cuda_divisor &stride) {
    const int32_t begin = at + padding - kernel; /* the last start that does not reach it */
    return begin < 0 ? 0 : static_cast<int32_t>(divide(static_cast<uint32_t>(begin), stride)) + 1;
}
__device__ __forceinline__ int32_t end_over(int32_t at, int32_t padding, int32_t outputs,
                                            const struct weir__cuda_divisor &stride) {
    const int32_t last = at + padding; /* < 0: before all windows, where the padding crops */
    if (last < 0) return 0;
    return smaller_of(static_cast<int32_t>(divide(static_cast<uint32_t>(last), stride)) + 1,
                      outputs);
}

/** Which outputs look at input (y, x). */
__device__ __forceinline__ box windows_over(const struct weir__cuda_pool &pool, int32_t y,
                                            int32_t x) {
    const struct weir__cuda_extent in = pool.in, out = pool.out;
    if (pool.adaptive != 0)
        return {y * out.height / in.height, ((y + 1) * out.height + in.height - 1) / in.height,
                x * out.width / in.width, ((x + 1) * out.width + in.width - 1) / in.width};
    return {first_over(y, pool.padding.height, pool.kernel.height, pool.by_stride_height),
            end_over(y, pool.padding.height, out.height, pool.by_stride_height),
            first_over(x, pool.padding.width, pool.kernel.width, pool.by_stride_width),
            end_over(x, pool.padding.width, out.width, pool.by_stride_width)};
}

/** visit(y, x) for each place of a box, row by row. */
template <int unroll, typename Visit>
__device__ __forceinline__ void walk_box(const box &box, Visit visit) {
#pragma unroll 1
    for (int32_t y = box.top; y < box.bottom; y++)
#pragma unroll unroll
        for (int32_t x = box.left; x < box.right; x++) visit(y, x);
}

/** sum += the numbers of a box of a plane, row by row: `image` is the plane's part, `columns` the
 * pixels of its rows, `parts` the parts of a pixel. */
template <typename T, int width>
__device__ __forceinline__ void add_box(float (&sum)[width], const several<T, width> *image,
                                        const box &box, int32_t columns, uint32_t parts) {
    walk_box<2>(box, [&](int32_t y, int32_t x) {
        const several<T, width> v = image[static_cast<uint32_t>(y * columns + x) * parts];
#pragma unroll
        for (int k = 0; k < width; k++) sum[k] += widen(v.at[k]);
    });
}

/** Op::run<T, width>(pool), width being as many numbers of T as a part has. */
template <typename Op, typename T>
__device__ __forceinline__ void by_parts(const struct weir__cuda_pool &pool) {
    if (pool.walk.whole != 0)
        Op::template run<T, 16 / sizeof(T)>(pool);
    else
        Op::template run<T, 1>(pool);
}

/** dx: for each input the sum that add(sum, dy, spot, y, x, place) makes of the outputs (y, x) that
 * look at it, ascending; `place` is dy's among all parts. */
template <typename T, int width, typename Add>
__device__ __forceinline__ void walk_outputs(const struct weir__cuda_pool &pool, Add add) {
    using part = several<T, width>;
    const uint32_t parts = pool.walk.by_parts.by;
    walk_images(pool.walk, [&](const spot &at) {
        const uint64_t image = at.row * pool.out_items + at.part;
        float sum[width] = {};
        walk_box<1>(windows_over(pool, at.y, at.x), [&](int32_t y, int32_t x) {
            const uint64_t place = image + static_cast<uint32_t>(y * pool.out.width + x) * parts;
            add(sum, static_cast<const part *>(pool.dy)[place], at, y, x, place);
        });
        static_cast<part *>(pool.y)[at.row * pool.in_items + at.item] = narrow_all<T>(sum);
    });
}

#endif
