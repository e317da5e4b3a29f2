/* SPDX-License-Identifier: MIT */
/*
 * concat: y[i][j] = (a[i][j], b[i][j]) along the channels; zeros for a where its plane, the upper
 *   left of the output's, does not reach.
 * concat_grad_a: da[i][j] = the first channels of dy[i][j]. (concat_grad_b is a copy of rows.)
 *
 * Memory: y and da are overwritten (=). Images lie channels last; bytes are moved in parts of 16,
 * 8, 4 or 2, whichever divides a's pixel and b's; so one kernel serves all dtypes. Bytes: reads a
 * and b, writes y; reads and writes da's. Floor: that / bandwidth. Launch: threads 256 (fewer where
 * an image is smaller), a part a thread; blocks (ceil(parts of an image / threads), images) or
 * fewer: the grid strides both ways.
 */
#include "net/image.cuh"

/* Nothing: the bytes of zero. */
template <typename Part> __device__ __forceinline__ Part nothing() {
    return 0;
}
template <> __device__ __forceinline__ uint4 nothing<uint4>() {
    return {0, 0, 0, 0};
}
template <> __device__ __forceinline__ uint2 nothing<uint2>() {
    return {0, 0};
}

template <typename Part>
__device__ __forceinline__ void concat(const struct weir__cuda_concat &join) {
    const uint32_t b_parts = join.walk.by_parts.by - join.a_parts;
    const uint64_t in_pixels = static_cast<uint64_t>(join.in.height) * join.in.width;
    const uint64_t out_pixels = static_cast<uint64_t>(join.out.height) * join.out.width;
    walk_images(join.walk, [&](const spot &at) {
        const uint32_t in = static_cast<uint32_t>(at.y * join.in.width + at.x);
        const uint32_t out = static_cast<uint32_t>(at.y * join.out.width + at.x);
        Part value;
        if (at.part >= join.a_parts)
            value = static_cast<const Part *>(
                join.b)[(at.row * out_pixels + out) * b_parts + (at.part - join.a_parts)];
        else if (at.y < join.in.height && at.x < join.in.width)
            value = static_cast<const Part *>(
                join.a)[(at.row * in_pixels + in) * join.a_parts + at.part];
        else
            value = nothing<Part>();
        static_cast<Part *>(join.y)[at.row * join.walk.items + at.item] = value;
    });
}

/* join.y is da, join.a is dy. */
template <typename Part>
__device__ __forceinline__ void concat_grad_a(const struct weir__cuda_concat &join) {
    const uint64_t out_pixels = static_cast<uint64_t>(join.out.height) * join.out.width;
    walk_images(join.walk, [&](const spot &at) {
        const uint32_t out = static_cast<uint32_t>(at.y * join.out.width + at.x);
        static_cast<Part *>(join.y)[at.row * join.walk.items + at.item] = static_cast<const Part *>(
            join.a)[(at.row * out_pixels + out) * join.joined_parts + at.part];
    });
}

extern "C" __global__ void __launch_bounds__(256) weir_concat(struct weir__cuda_concat join) {
    switch (join.walk.part_bytes) {
    case 16: concat<uint4>(join); break;
    case 8: concat<uint2>(join); break;
    case 4: concat<uint32_t>(join); break;
    default: concat<uint16_t>(join); break;
    }
}
EXPORT_KERNEL(weir_concat);

extern "C" __global__ void __launch_bounds__(256)
    weir_concat_grad_a(struct weir__cuda_concat join) {
    switch (join.walk.part_bytes) {
    case 16: concat_grad_a<uint4>(join); break;
    case 8: concat_grad_a<uint2>(join); break;
    case 4: concat_grad_a<uint32_t>(join); break;
    default: concat_grad_a<uint16_t>(join); break;
    }
}
EXPORT_KERNEL(weir_concat_grad_a);
