/* SPDX-License-Identifier: MIT */
/*
 * rms_norm: rstd = 1 / sqrt(sum(x^2) / C + eps), y = x * rstd * weight, or without a weight.
 *   A row with a number whose square is too large is scaled by a power of two before.
 *
 * Memory: y, rstd are overwritten (=). Fast if rows and pointers are multiples of 16 bytes.
 * Bytes: reads and writes M x C numbers; 4 M for the statistics; the weight stays in the first
 *   cache. A row is read once as long as it fits in registers, as in layer_norm.cu. Floor: 2 x M x
 * C x (4 or 2) / bandwidth. Launch: threads 256; rows of up to 1024 numbers take a warp each,
 * longer ones a block.
 */
#include "net/norm_row.cuh"

template <typename T, typename Form> struct rms_norm_row {
    static constexpr uint32_t width = Form::width, held = Form::held, threads = Form::threads;
    static constexpr bool whole = Form::whole, full = Form::is_full;
    const struct weir__cuda_layer_norm &call;
    uint32_t n, lane;
    kept<T, held> keep;

    /** visit(chunk, i) for each of this lane's chunks; past the row its numbers are 0. */
    template <typename Visit> __device__ __forceinline__ void each(const T *row, Visit visit) {
        walk_row<Form>(
            lane, n, [&](uint32_t k, uint32_t i) { visit(keep.at[k], i); },
            [&](uint32_t i) { visit(load_chunk<whole>(row, i, n), i); });
    }

    __device__ __forceinline__ float rstd_of(const T *row, float (*shared)[32]) {
        float largest = 0.0f, squares = 0.0f;
        each(row, [&](const chunk<T> &v, uint32_t) {
#pragma unroll
            for (uint32_t e = 0; e < width; e++) largest = fmaxf(largest, fabsf(widen(v.at[e])));
        });
        largest = reduce_block<threads / 32, struct larger>(largest, shared[0]);
        const float scale = largest > 0x1p48f ? 0x1p-80f : 1.0f;
        each(row, [&](const chunk<T> &v, uint32_t) {
#pragma unroll
            for (uint32_t e = 0; e < width; e++) {
                const float x = widen(v.at[e]) * scale;
                squares += x * x;
            }
        });
        squares = reduce_block<threads / 32, struct add>(squares, shared[1]);
        return 1.0f / sqrtf(squares / static_cast<float>(n) + call.eps * scale * scale) * scale;
    }

    __device__ __forceinline__ void run(uint64_t m, float (*shared)[32]) {
        const T *x = static_cast<const T *>(call.x) + m * n;
        T *y = static_cast<T *>(call.y) + m * n;
        keep_row<whole, threads, full>(keep, x, lane, n);
        const float rstd = rstd_of(x, shared);
        each(x, [&](const chunk<T> &v, uint32_t i) {
            float made[width];
            floats<width> weight;
            if (call.weight != nullptr) weight = load_floats<whole, width>(call.weight, i, n);
#pragma unroll
            for (uint32_t e = 0; e < width; e++) {
                const float normal = widen(v.at[e]) * rstd;
                made[e] = call.weight != nullptr ? normal * weight.at[e] : normal;
            }
            store_chunk<whole>(y, i, n, narrow_all<T>(made));
        });
        if (lane == 0) call.rstd[m] = rstd;
    }
};

template <typename T> struct rms_norm_rows {
    template <typename Form>
    static __device__ __forceinline__ void run(const struct weir__cuda_layer_norm &call) {
        walk_rows<Form::threads>(call.rows, [&](uint64_t m, uint32_t lane, float(*shared)[32]) {
            rms_norm_row<T, Form>{call, call.width, lane, {}}.run(m, shared);
        });
    }
};

template <typename T, uint32_t threads>
__device__ __forceinline__ void rms_norm(const struct weir__cuda_layer_norm &call) {
    const bool whole = call.width % chunk_width<T> == 0 && is_aligned(call.x) &&
                       is_aligned(call.y) && is_aligned(call.weight);
    by_form<rms_norm_rows<T>, T, threads>(call, whole);
}

STORED_KERNELS(rms_norm_warp, weir__cuda_layer_norm, (256, 3), rms_norm<T, 32>);
STORED_KERNELS(rms_norm_block, weir__cuda_layer_norm, (256, 3), rms_norm<T, 256>);
