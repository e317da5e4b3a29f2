/* SPDX-License-Identifier: MIT */
/*
 * max_pool2d: y = the largest number of each window; the last NaN, where there is one.
 * max_pool2d_grad, where windows do not overlap: dx = dy at its window's first largest number, 0
 *   elsewhere. A thread has a window and what lies between it and the next ones.
 * Where they overlap, two kernels: max_pool2d_winners writes which of its window's numbers that is
 *   (in the kernel's rows, then columns), and max_pool2d_gather sums, for each input, the dy of the
 *   windows that it won, in ascending order.
 *
 * Memory: y, dx and winners are overwritten (=). Images lie channels last; fast where a pixel's
 *   channels are multiples of 16 bytes.
 * Bytes: max_pool2d reads the input, writes the output; max_pool2d_grad reads x and dy, writes dx.
 *   Floor: that / bandwidth (numbers that overlapping windows share come from the first cache).
 *   Winners add a byte for each output, written and read; four where a kernel has more than 256.
 * Launch: threads 256 (fewer where an image is smaller), a part of 16 bytes a thread; blocks
 *   (ceil(parts of an image / threads), images) or fewer: the grid strides both ways.
 */
#include "net/image.cuh"

__device__ __forceinline__ float lowest() {
    return f32_from_bits(0xff800000u); /* -infinity */
}

/* visit(number of the kernel's, part) for what lies in a window, row by row. */
template <typename T, int width, typename Visit>
__device__ __forceinline__ void look_at(const struct weir__cuda_pool &pool, const spot &at,
                                        int32_t y, int32_t x, Visit visit) {
    using part = several<T, width>;
    const uint32_t parts = pool.walk.by_parts.by;
    const part *image = static_cast<const part *>(pool.x) + at.row * pool.in_items + at.part;
    const box window = window_of(pool, y, x);
    const int32_t top = y * pool.stride.height - pool.padding.height;
    const int32_t left = x * pool.stride.width - pool.padding.width;
#pragma unroll 1
    for (int32_t i = window.top; i < window.bottom; i++) {
        const part *line = image + static_cast<uint32_t>(i * pool.in.width) * parts;
        const uint32_t row = static_cast<uint32_t>((i - top) * pool.kernel.width);
#pragma unroll 2
        for (int32_t j = window.left; j < window.right; j++)
            visit(row + static_cast<uint32_t>(j - left), line[static_cast<uint32_t>(j) * parts]);
    }
}

struct max_pool {
    template <typename T, int width>
    static __device__ __forceinline__ void run(const struct weir__cuda_pool &pool) {
        using part = several<T, width>;
        walk_images(pool.walk, [&](const spot &at) {
            part best;
#pragma unroll
            for (int k = 0; k < width; k++) best.at[k] = narrow<T>(lowest());
            look_at<T, width>(pool, at, at.y, at.x, [&](uint32_t, const part &x) {
#pragma unroll
                for (int k = 0; k < width; k++) {
                    const float v = widen(x.at[k]);
                    if (v > widen(best.at[k]) || v != v) best.at[k] = x.at[k];
                }
            });
            static_cast<part *>(pool.y)[at.row * pool.out_items + at.item] = best;
        });
    }
};

/* Of each number of the part: where its window's first largest one is. */
template <typename T, int width>
__device__ __forceinline__ void find_winners(const struct weir__cuda_pool &pool, const spot &at,
                                             uint32_t (&winners)[width]) {
    float best[width];
    const box window = window_of(pool, at.y, at.x);
    const int32_t top = at.y * pool.stride.height - pool.padding.height;
    const int32_t left = at.x * pool.stride.width - pool.padding.width;
    const uint32_t first = static_cast<uint32_t>((window.top - top) * pool.kernel.width) +
                           static_cast<uint32_t>(window.left - left);
#pragma unroll
    for (int k = 0; k < width; k++) best[k] = lowest(), winners[k] = first;
    look_at<T, width>(pool, at, at.y, at.x, [&](uint32_t number, const several<T, width> &x) {
#pragma unroll
        for (int k = 0; k < width; k++) {
            const float v = widen(x.at[k]);
            if (!(v > best[k]) && v == v) continue;
            best[k] = v;
            winners[k] = number;
        }
    });
}

/* ---- windows apart ---- */

/* The window's pixels, and those up to the next one's: the last one's reach to the edge. */
__device__ __forceinline__ box cell_of(const struct weir__cuda_pool &pool, const spot &at) {
    const int32_t top = at.y * pool.stride.height - pool.padding.height;
    const int32_t left = at.x * pool.stride.width - pool.padding.width;
    return {
        larger_of(top, 0), at.y + 1 < pool.out.height ? top + pool.stride.height : pool.in.height,
        larger_of(left, 0), at.x + 1 < pool.out.width ? left + pool.stride.width : pool.in.width};
}

struct max_pool_grad {
    template <typename T, int width>
    static __device__ __forceinline__ void run(const struct weir__cuda_pool &pool) {
        using part = several<T, width>;
        const uint32_t parts = pool.walk.by_parts.by;
        walk_images(pool.walk, [&](const spot &at) {
            uint32_t winners[width];
            const part dy = static_cast<const part *>(pool.dy)[at.row * pool.out_items + at.item];
            find_winners<T, width>(pool, at, winners);
            part *image = static_cast<part *>(pool.y) + at.row * pool.in_items + at.part;
            const int32_t top = at.y * pool.stride.height - pool.padding.height;
            const int32_t left = at.x * pool.stride.width - pool.padding.width;
            walk_box<1>(cell_of(pool, at), [&](int32_t i, int32_t j) {
                const bool inside = i - top < pool.kernel.height && j - left < pool.kernel.width;
                const uint32_t number = static_cast<uint32_t>((i - top) * pool.kernel.width) +
                                        static_cast<uint32_t>(j - left);
                float dx[width];
#pragma unroll
                for (int k = 0; k < width; k++) {
                    const bool won = inside && winners[k] == number;
                    dx[k] = 0.0f + (won ? widen(dy.at[k]) : 0.0f);
                }
                image[static_cast<uint32_t>(i * pool.in.width + j) * parts] = narrow_all<T>(dx);
            });
        });
    }
};

/* ---- windows that overlap ---- */

template <typename Winner> struct write_winners {
    template <typename T, int width>
    static __device__ __forceinline__ void run(const struct weir__cuda_pool &pool) {
        using set = several<Winner, width>;
        walk_images(pool.walk, [&](const spot &at) {
            uint32_t winners[width];
            find_winners<T, width>(pool, at, winners);
            set found;
#pragma unroll
            for (int k = 0; k < width; k++) found.at[k] = static_cast<Winner>(winners[k]);
            static_cast<set *>(pool.winners)[at.row * pool.out_items + at.item] = found;
        });
    }
};

template <typename Winner> struct gather {
    template <typename T, int width>
    static __device__ __forceinline__ void run(const struct weir__cuda_pool &pool) {
        using set = several<Winner, width>;
        walk_outputs<T, width>(pool, [&](float(&sum)[width], const several<T, width> &dy,
                                         const spot &at, int32_t i, int32_t j, uint64_t place) {
            const set winners = static_cast<const set *>(pool.winners)[place];
            const int32_t down = at.y + pool.padding.height - i * pool.stride.height;
            const int32_t along = at.x + pool.padding.width - j * pool.stride.width;
            const uint32_t number = static_cast<uint32_t>(down * pool.kernel.width + along);
#pragma unroll
            for (int k = 0; k < width; k++)
                if (winners.at[k] == number) sum[k] += widen(dy.at[k]);
        });
    }
};

/* Winners of a kernel of up to 256 numbers are bytes. */
template <template <typename> class Op> struct by_winner {
    template <typename T, int width>
    static __device__ __forceinline__ void run(const struct weir__cuda_pool &pool) {
        if (pool.wide_winners != 0)
            Op<uint32_t>::template run<T, width>(pool);
        else
            Op<uint8_t>::template run<T, width>(pool);
    }
};

STORED_KERNELS(max_pool2d, weir__cuda_pool, (256), by_parts<max_pool, T>);
STORED_KERNELS(max_pool2d_grad, weir__cuda_pool, (256), by_parts<max_pool_grad, T>);
STORED_KERNELS(max_pool2d_winners, weir__cuda_pool, (256), by_parts<by_winner<write_winners>, T>);
STORED_KERNELS(max_pool2d_gather, weir__cuda_pool, (256, 4), by_parts<by_winner<gather>, T>);
