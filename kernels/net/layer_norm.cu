/* SPDX-License-Identifier: MIT */
/*
 * layer_norm: mean = sum(x) / C, rstd = 1 / sqrt(sum((x - mean)^2) / C + eps),
 *             y = (x - mean) * rstd * weight + bias
 *   The mean is made twice: the second one, of distances to the first, has the first one's error. A
 *   row whose squares have no sum is scaled by a power of two, and looked at once more.
 * add_layer_norm: sum = x + b, rounded as it is stored, and the same of that sum
 *
 * Memory: y, mean, rstd (and sum) are overwritten (=). Fast if rows and pointers are multiples of
 *   16 bytes.
 * Bytes: reads and writes M x C numbers (with a sum: reads 2, writes 2); 8 M for the statistics;
 * the weights stay in the first cache. A row is read once as long as it fits in registers: 1024
 *   numbers by a warp, 16 or 8 thousand by a block; what is longer comes from a cache the second
 * and third time. Floor: 2 x M x C x (4 or 2) / bandwidth. Launch: threads 256; rows of up to 1024
 * numbers take a warp each, longer ones a block.
 */
#include "net/norm_row.cuh"

template <typename T, typename Form, bool added> struct layer_norm_row {
    static constexpr uint32_t width = Form::width, held = Form::held, threads = Form::threads;
    static constexpr bool whole = Form::whole, full = Form::is_full;
    const struct weir__cuda_layer_norm &call;
    uint32_t n, lane;
    float scale; /* of the numbers that are visited; of those in memory 1 */
    kept<T, held> keep;

    /** visit(chunk, i) for each of this lane's chunks. */
    template <typename Visit> __device__ __forceinline__ void each(const T *row, Visit visit) {
        walk_row<Form>(
            lane, n, [&](uint32_t k, uint32_t i) { visit(keep.at[k], i); },
            [&](uint32_t i) { visit(scaled(load_chunk<whole>(row, i, n)), i); });
    }

    __device__ __forceinline__ chunk<T> scaled(const chunk<T> &v) {
        float made[width];
#pragma unroll
        for (uint32_t e = 0; e < width; e++) made[e] = widen(v.at[e]) * scale;
        return narrow_all<T>(made);
    }

    __device__ __forceinline__ void scale_by(float power) {
        scale = power;
        walk_row<Form>(
            lane, n, [&](uint32_t k, uint32_t) { keep.at[k] = scaled(keep.at[k]); },
            [](uint32_t) {});
    }

    /** x + b, to memory and to what is kept. */
    __device__ __forceinline__ void add(T *sum, const T *x, const T *b) {
        kept<T, held> other;
        keep_row<whole, threads, full>(keep, x, lane, n);
        keep_row<whole, threads, full>(other, b, lane, n);
        walk_row<Form>(
            lane, n,
            [&](uint32_t k, uint32_t i) {
                keep.at[k] = sum_of<T>(keep.at[k], other.at[k]);
                store_chunk<whole>(sum, i, n, keep.at[k]);
            },
            [&](uint32_t i) {
                store_chunk<whole>(
                    sum, i, n, sum_of<T>(load_chunk<whole>(x, i, n), load_chunk<whole>(b, i, n)));
            });
    }

    __device__ __forceinline__ float mean_of(const T *row, float *shared) {
        float sum = 0.0f;
        each(row, [&](const chunk<T> &v, uint32_t) {
#pragma unroll
            for (uint32_t e = 0; e < width; e++) sum += widen(v.at[e]);
        });
        return reduce_block<threads / 32, struct add>(sum, shared) / static_cast<float>(n);
    }

    /** The variance, by a mean that it makes better. */
    __device__ __forceinline__ float variance_of(const T *row, float *mean, float (*shared)[32]) {
        float squares = 0.0f, rest = 0.0f;
        each(row, [&](const chunk<T> &v, uint32_t i) {
#pragma unroll
            for (uint32_t e = 0; e < width; e++) {
                const float distance = widen(v.at[e]) - *mean;
                if (!whole && i + e >= n) continue;
                squares += distance * distance;
                rest += distance;
            }
        });
        rest = reduce_block<threads / 32, struct add>(rest, shared[0]) / static_cast<float>(n);
        squares = reduce_block<threads / 32, struct add>(squares, shared[1]);
        *mean += rest;
        const float variance = squares / static_cast<float>(n) - rest * rest;
        return variance < 0.0f ? 0.0f : variance;
    }

    __device__ __forceinline__ void run(uint64_t m, float (*shared)[32]) {
        const T *x = static_cast<const T *>(call.x) + m * n;
        if (added) {
            T *sum = static_cast<T *>(call.sum) + m * n;
            add(sum, x, static_cast<const T *>(call.b) + m * n);
            x = sum;
        } else {
            keep_row<whole, threads, full>(keep, x, lane, n);
        }
        float mean, variance;
#pragma unroll 1
        for (;;) {
            mean = mean_of(x, shared[0]);
            variance = variance_of(x, &mean, shared + 1);
            if (variance < f32_from_bits(0x7f800000) || scale < 1.0f) break;
            scale_by(0x1p-80f);
        }
        /* of a scaled constant row eps is all that is left: it must not vanish */
        const float least = scale < 1.0f && call.eps > 0.0f ? 0x1p-126f : 0.0f;
        const float rstd = 1.0f / sqrtf(variance + fmaxf(call.eps * scale * scale, least));
        T *y = static_cast<T *>(call.y) + m * n;
        each(x, [&](const chunk<T> &v, uint32_t i) {
            const floats<width> weight = load_floats<whole, width>(call.weight, i, n);
            const floats<width> bias = load_floats<whole, width>(call.bias, i, n);
            float made[width];
#pragma unroll
            for (uint32_t e = 0; e < width; e++)
                made[e] = (widen(v.at[e]) - mean) * rstd * weight.at[e] + bias.at[e];
            store_chunk<whole>(y, i, n, narrow_all<T>(made));
        });
        if (lane != 0) return;
        call.mean[m] = scale < 1.0f ? mean * 0x1p80f : mean;
        call.rstd[m] = rstd * scale;
    }
};

template <typename T, bool added> struct layer_norm_rows {
    template <typename Form>
    static __device__ __forceinline__ void run(const struct weir__cuda_layer_norm &call) {
        walk_rows<Form::threads>(call.rows, [&](uint64_t m, uint32_t lane, float(*shared)[32]) {
            layer_norm_row<T, Form, added>{call, call.width, lane, 1.0f, {}}.run(m, shared);
        });
    }
};

template <typename T, bool added, uint32_t threads>
__device__ __forceinline__ void layer_norm(const struct weir__cuda_layer_norm &call) {
    const bool whole = call.width % chunk_width<T> == 0 && is_aligned(call.x) &&
                       is_aligned(call.b) && is_aligned(call.y) && is_aligned(call.sum) &&
                       is_aligned(call.weight) && is_aligned(call.bias);
    by_form<layer_norm_rows<T, added>, T, threads>(call, whole);
}

STORED_KERNELS(layer_norm_warp, weir__cuda_layer_norm, (256, 3), layer_norm<T, false, 32>);
STORED_KERNELS(layer_norm_block, weir__cuda_layer_norm, (256, 3), layer_norm<T, false, 256>);
STORED_KERNELS(add_layer_norm_warp, weir__cuda_layer_norm, (256, 2), layer_norm<T, true, 32>);
STORED_KERNELS(add_layer_norm_block, weir__cuda_layer_norm, (256, 2), layer_norm<T, true, 256>);
