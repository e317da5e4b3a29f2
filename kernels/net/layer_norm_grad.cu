/* SPDX-License-Identifier: MIT */
/*
 * layer_norm_grad_input: with n = (x - mean) * rstd and d = dy * weight,
 *   dx = (d - sum(d) / C - n * sum(d * n) / C) * rstd
 * rms_norm_grad_input: the same with a mean of 0 and without sum(d); the weight may be missing: 1
 * add_layer_norm_grad_input: dsum + that, which is rounded as it would be stored before it is added
 *
 * Memory: dx is overwritten (=). Fast if rows and pointers are multiples of 16 bytes.
 * Bytes: reads 2 x M x C numbers (with dsum 3), writes M x C; the weight stays in the first cache.
 * A row is read once as long as it fits in registers, as in layer_norm.cu; dsum is read last.
 *   Floor: 3 (4) x M x C x (4 or 2) / bandwidth.
 * Launch: threads 256; rows of up to 1024 numbers take a warp each, longer ones a block.
 */
#include "net/norm_row.cuh"

template <typename T, typename Form, bool added, bool centred> struct layer_norm_grad_row {
    static constexpr uint32_t width = Form::width, held = Form::held, threads = Form::threads;
    static constexpr bool whole = Form::whole, full = Form::is_full;
    const struct weir__cuda_layer_norm_grad &call;
    uint32_t n, lane;
    kept<T, held> keep_dy, keep_x;

    /** visit(dy's chunk, x's, i) for each of this lane's chunks, whose first number is number i. */
    template <typename Visit>
    __device__ __forceinline__ void each(const T *dy, const T *x, Visit visit) {
        walk_row<Form>(
            lane, n, [&](uint32_t k, uint32_t i) { visit(keep_dy.at[k], keep_x.at[k], i); },
            [&](uint32_t i) { visit(load_chunk<whole>(dy, i, n), load_chunk<whole>(x, i, n), i); });
    }

    __device__ __forceinline__ void run(uint64_t m, float (*shared)[32]) {
        const T *dy = static_cast<const T *>(call.dy) + m * n;
        const T *x = static_cast<const T *>(call.x) + m * n;
        keep_row<whole, threads, full>(keep_dy, dy, lane, n);
        keep_row<whole, threads, full>(keep_x, x, lane, n);
        const float mean = centred ? call.mean[m] : 0.0f, rstd = call.rstd[m];
        float sum = 0.0f, product = 0.0f;
        each(dy, x, [&](const chunk<T> &v, const chunk<T> &at, uint32_t i) {
            const floats<width> weight = weights_at(i);
#pragma unroll
            for (uint32_t e = 0; e < width; e++) { /* past the row, dy and weight are 0 */
                const float d = widen(v.at[e]) * weight.at[e];
                const float normal = (widen(at.at[e]) - mean) * rstd;
                sum += d;
                if (whole || i + e < n) product += d * normal;
            }
        });
        sum = centred
                  ? reduce_block<threads / 32, struct add>(sum, shared[0]) / static_cast<float>(n)
                  : 0.0f;
        product =
            reduce_block<threads / 32, struct add>(product, shared[1]) / static_cast<float>(n);
        T *dx = static_cast<T *>(call.dx) + m * n;
        each(dy, x, [&](const chunk<T> &v, const chunk<T> &at, uint32_t i) {
            const floats<width> weight = weights_at(i);
            float made[width];
#pragma unroll
            for (uint32_t e = 0; e < width; e++) {
                const float normal = (widen(at.at[e]) - mean) * rstd;
                made[e] = (widen(v.at[e]) * weight.at[e] - sum - normal * product) * rstd;
            }
            const chunk<T> own = narrow_all<T>(made);
            store_chunk<whole>(dx, i, n, added ? plus_dsum(own, m, i) : own);
        });
    }

    __device__ __forceinline__ floats<width> weights_at(uint32_t i) {
        floats<width> weight;
        if constexpr (!centred) {
#pragma unroll
            for (uint32_t e = 0; e < width; e++) weight.at[e] = 1.0f;
        }
        if (centred || call.weight != nullptr)
            weight = load_floats<whole, width>(call.weight, i, n);
        return weight;
    }

    __device__ __forceinline__ chunk<T> plus_dsum(const chunk<T> &v, uint64_t m, uint32_t i) {
        return sum_of<T>(v, load_chunk<whole>(static_cast<const T *>(call.dsum) + m * n, i, n));
    }
};

template <typename T, bool added, bool centred> struct layer_norm_grad_rows {
    template <typename Form>
    static __device__ __forceinline__ void run(const struct weir__cuda_layer_norm_grad &call) {
        walk_rows<Form::threads>(call.rows, [&](uint64_t m, uint32_t lane, float(*shared)[32]) {
            layer_norm_grad_row<T, Form, added, centred>{call, call.width, lane, {}, {}}.run(
                m, shared);
        });
    }
};

template <typename T, bool added, uint32_t threads, bool centred = true>
__device__ __forceinline__ void layer_norm_grad(const struct weir__cuda_layer_norm_grad &call) {
    const bool whole = call.width % chunk_width<T> == 0 && is_aligned(call.dy) &&
                       is_aligned(call.x) && is_aligned(call.dx) && is_aligned(call.dsum) &&
                       is_aligned(call.weight);
    by_form<layer_norm_grad_rows<T, added, centred>, T, threads>(call, whole);
}

STORED_KERNELS(layer_norm_grad_warp, weir__cuda_layer_norm_grad, (256),
               layer_norm_grad<T, false, 32>);
STORED_KERNELS(layer_norm_grad_block, weir__cuda_layer_norm_grad, (256),
               layer_norm_grad<T, false, 256>);
STORED_KERNELS(add_layer_norm_grad_warp, weir__cuda_layer_norm_grad, (256),
               layer_norm_grad<T, true, 32>);
STORED_KERNELS(add_layer_norm_grad_block, weir__cuda_layer_norm_grad, (256),
               layer_norm_grad<T, true, 256>);
STORED_KERNELS(rms_norm_grad_warp, weir__cuda_layer_norm_grad, (256),
               layer_norm_grad<T, false, 32, false>);
STORED_KERNELS(rms_norm_grad_block, weir__cuda_layer_norm_grad, (256),
               layer_norm_grad<T, false, 256, false>);
