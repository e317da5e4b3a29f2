/* SPDX-License-Identifier: MIT */
/*
 * residual_mix: of each token's S sources x_s with rstd_s = 1 / sqrt(sum(x_s^2) / C + eps),
 *   share = softmax over s of rstd_s * (x_s . u), u = weight * query, y = sum of share_s * x_s.
 * residual_mix_grad: with k_s = share_s * (dy . x_s - sum of share_t * (dy . x_t)) * rstd_s,
 *   pull = sum of k_s * x_s
 *   dx_s = d_s + share_s * dy + k_s * u - k_s * rstd_s^2 * (x_s . u) / C * x_s
 * residual_mix_weight: dweight = query * sum, dquery = weight * sum, of pull's column sums.
 *
 * Memory: y, share, rstd, pull and dx_s are overwritten (=); dx_s may have d_s's memory; of the
 *   weights with overwrite =, else +=. Fast if rows and pointers are multiples of 16 bytes.
 * Bytes: reads M x C numbers of each source once from memory, then from a cache; of the gradient dy
 *   and d_s, too; writes y, or pull in F32 and M x C numbers for each source. Floor: that /
 *   bandwidth.
 * Launch: threads 256; rows of up to 1024 numbers take a warp each, longer ones a block.
 *   residual_mix_weight: a thread a column.
 * Lane s of each warp has source s's logit, and source s + 32's.
 */
#include "net/norm_row.cuh"

enum { SETS = 2 }; /* of 32 sources */

/* A number for each source. */
struct of_sources {
    float at[SETS];

    __device__ __forceinline__ void set(uint32_t s, float value) {
#pragma unroll
        for (uint32_t k = 0; k < SETS; k++)
            if (s == k * 32 + threadIdx.x % 32) at[k] = value;
    }
    __device__ __forceinline__ float get(uint32_t s) const {
        return __shfl_sync(0xffffffffu, s < 32 ? at[0] : at[1], s % 32);
    }
    template <typename How> __device__ __forceinline__ float reduce() const {
        return reduce_warp<How>(How::of(at[0], at[1]));
    }
};
static_assert(32 * SETS == WEIR__CUDA_SOURCES_MAX, "every source has a lane");

struct two_sums {
    float first, second;
};

template <typename T, bool whole_, uint32_t threads_> struct mix_row {
    static constexpr uint32_t width = chunk_width<T>, threads = threads_;
    static constexpr bool whole = whole_;
    uint32_t n, lane;

    /** The direction u's numbers from i on. */
    __device__ __forceinline__ floats<width> direction(const float *weight, const float *query,
                                                       uint32_t i) const {
        floats<width> u = load_floats<whole, width>(weight, i, n);
        const floats<width> q = load_floats<whole, width>(query, i, n);
#pragma unroll
        for (uint32_t e = 0; e < width; e++) u.at[e] *= q.at[e];
        return u;
    }

    /** Over the row: add(two sums, i). */
    template <typename Add>
    __device__ __forceinline__ two_sums reduce(float (*shared)[32], Add add_chunk) const {
        two_sums sums = {0.0f, 0.0f};
#pragma unroll 1
        for (uint32_t i = lane * width; i < n; i += threads * width) add_chunk(sums, i);
        sums.first = reduce_block<threads / 32, struct add>(sums.first, shared[0]);
        sums.second = reduce_block<threads / 32, struct add>(sums.second, shared[1]);
        return sums;
    }

    /** visit(i) for each of the row's chunks, by whole warps: past the row i is n at least. */
    template <typename Visit> __device__ __forceinline__ void each(Visit visit) const {
#pragma unroll 1
        for (uint32_t first = 0; first < n; first += threads * width) visit(first + lane * width);
    }
};

template <typename Form>
__device__ __forceinline__ two_sums squares_and_logit(const Form &row, float (*shared)[32],
                                                      const void *source, uint64_t at, float scale,
                                                      const float *weight, const float *query) {
    using T = typename Form::number;
    const T *x = static_cast<const T *>(source) + at;
    return row.reduce(shared, [&](two_sums &sums, uint32_t i) {
        const auto v = load_chunk<Form::whole>(x, i, row.n);
        const auto u = row.direction(weight, query, i);
#pragma unroll
        for (uint32_t e = 0; e < Form::width; e++) {
            const float number = widen(v.at[e]) * scale;
            sums.first += number * number;
            sums.second += number * u.at[e];
        }
    });
}

template <typename T, bool whole, uint32_t threads> struct mix_form : mix_row<T, whole, threads> {
    using number = T;
};

/* A row whose squares have no sum in float is scaled by a power of two. */
template <typename Form>
__device__ __forceinline__ void take_logits(const Form &row, const struct weir__cuda_mix &call,
                                            uint64_t m, float (*shared)[32], of_sources &logits,
                                            of_sources &rstds) {
    const float count = static_cast<float>(row.n);
#pragma unroll 1
    for (uint32_t s = 0; s < call.sources; s++) {
        float scale = 1.0f;
        two_sums sums =
            squares_and_logit(row, shared, call.x[s], m * row.n, scale, call.weight, call.query);
        if (sums.first > 0x1p120f) { /* of the whole row: all its threads do this */
            scale = 0x1p-80f;
            sums = squares_and_logit(row, shared, call.x[s], m * row.n, scale, call.weight,
                                     call.query);
        }
        const float rstd = 1.0f / sqrtf(sums.first / count + call.eps * scale * scale);
        logits.set(s, sums.second * rstd);
        rstds.set(s, rstd * scale);
    }
}

template <typename Form>
__device__ __forceinline__ void residual_mix_row(const Form &row, const struct weir__cuda_mix &call,
                                                 uint64_t m, float (*shared)[32]) {
    using T = typename Form::number;
    const float none = f32_from_bits(0xff800000u); /* -infinity */
    of_sources share = {{none, none}}, rstd = {{0.0f, 0.0f}};
    take_logits(row, call, m, shared, share, rstd);
    const float largest = share.template reduce<larger>();
#pragma unroll
    for (uint32_t k = 0; k < SETS; k++) share.at[k] = expf(share.at[k] - largest);
    const float total = share.template reduce<add>();
#pragma unroll
    for (uint32_t k = 0; k < SETS; k++) {
        const uint32_t s = row.lane + k * 32;
        share.at[k] /= total;
        if (row.lane < 32 && s < call.sources) {
            call.share[m * call.sources + s] = share.at[k];
            call.rstd[m * call.sources + s] = rstd.at[k];
        }
    }
    row.each([&](uint32_t i) {
        float sum[Form::width] = {};
#pragma unroll 1
        for (uint32_t s = 0; s < call.sources; s++) {
            const float part = share.get(s);
            if (i >= row.n) continue;
            const auto v =
                load_chunk<Form::whole>(static_cast<const T *>(call.x[s]) + m * row.n, i, row.n);
#pragma unroll
            for (uint32_t e = 0; e < Form::width; e++) sum[e] += part * widen(v.at[e]);
        }
        if (i < row.n)
            store_chunk<Form::whole>(static_cast<T *>(call.y) + m * row.n, i, row.n,
                                     narrow_all<T>(sum));
    });
}

/* ---- the gradient ---- */

/* Of each source, what its gradient is made of. */
struct mix_slopes {
    of_sources share, slope, inward;
};

template <typename Form>
__device__ __forceinline__ mix_slopes slopes_of(const Form &row,
                                                const struct weir__cuda_mix_grad &call, uint64_t m,
                                                float (*shared)[32]) {
    using T = typename Form::number;
    const T *dy = static_cast<const T *>(call.dy) + m * row.n;
    mix_slopes made = {};
    float mean = 0.0f;
#pragma unroll 1
    for (uint32_t s = 0; s < call.sources; s++) {
        const T *x = static_cast<const T *>(call.x[s]) + m * row.n;
        const two_sums sums = row.reduce(shared, [&](two_sums &to, uint32_t i) {
            const auto v = load_chunk<Form::whole>(x, i, row.n);
            const auto d = load_chunk<Form::whole>(dy, i, row.n);
            const auto u = row.direction(call.weight, call.query, i);
#pragma unroll
            for (uint32_t e = 0; e < Form::width; e++) {
                to.first += widen(v.at[e]) * widen(d.at[e]);
                to.second += widen(v.at[e]) * u.at[e];
            }
        });
        const float share = call.share[m * call.sources + s];
        made.share.set(s, share);
        made.slope.set(s, sums.first);
        made.inward.set(s, sums.second);
        mean += share * sums.first;
    }
#pragma unroll
    for (uint32_t k = 0; k < SETS; k++) {
        const uint32_t s = threadIdx.x % 32 + k * 32;
        const float rstd = s < call.sources ? call.rstd[m * call.sources + s] : 0.0f;
        made.slope.at[k] = made.share.at[k] * (made.slope.at[k] - mean) * rstd;
        made.inward.at[k] *= made.slope.at[k] * rstd * rstd / static_cast<float>(row.n);
    }
    return made;
}

template <typename Form>
__device__ __forceinline__ void residual_mix_grad_row(const Form &row,
                                                      const struct weir__cuda_mix_grad &call,
                                                      uint64_t m, float (*shared)[32]) {
    using T = typename Form::number;
    constexpr uint32_t width = Form::width;
    const mix_slopes made = slopes_of(row, call, m, shared);
    const uint64_t at = m * row.n;
    row.each([&](uint32_t i) {
        const bool inside = i < row.n;
        const uint32_t from = inside ? i : 0;
        const auto d = load_chunk<Form::whole>(static_cast<const T *>(call.dy) + at, from, row.n);
        const auto u = row.direction(call.weight, call.query, from);
        floats<width> pull = {};
#pragma unroll 1
        for (uint32_t s = 0; s < call.sources; s++) {
            const float share = made.share.get(s), slope = made.slope.get(s);
            const float inward = made.inward.get(s);
            if (!inside) continue;
            const auto x =
                load_chunk<Form::whole>(static_cast<const T *>(call.x[s]) + at, i, row.n);
            float own[width];
#pragma unroll
            for (uint32_t e = 0; e < width; e++) {
                own[e] = share * widen(d.at[e]) + slope * u.at[e] - inward * widen(x.at[e]);
                pull.at[e] += slope * widen(x.at[e]);
            }
            if (call.sum[s] != nullptr) {
                const auto sum =
                    load_chunk<Form::whole>(static_cast<const T *>(call.sum[s]) + at, i, row.n);
#pragma unroll
                for (uint32_t e = 0; e < width; e++) own[e] = widen(sum.at[e]) + own[e];
            }
            store_chunk<Form::whole>(static_cast<T *>(call.dx[s]) + at, i, row.n,
                                     narrow_all<T>(own));
        }
        if (inside) store_floats<Form::whole, width>(call.pull + at, i, row.n, pull);
    });
}

template <typename T, bool whole, uint32_t threads>
__device__ __forceinline__ void walk_mix(const struct weir__cuda_mix &call) {
    walk_rows<threads>(call.rows, [&](uint64_t m, uint32_t lane, float(*shared)[32]) {
        residual_mix_row(mix_form<T, whole, threads>{{call.width, lane}}, call, m, shared);
    });
}

template <typename T, bool whole, uint32_t threads>
__device__ __forceinline__ void walk_mix(const struct weir__cuda_mix_grad &call) {
    walk_rows<threads>(call.rows, [&](uint64_t m, uint32_t lane, float(*shared)[32]) {
        residual_mix_grad_row(mix_form<T, whole, threads>{{call.width, lane}}, call, m, shared);
    });
}

template <typename T, uint32_t threads, typename Call>
__device__ __forceinline__ void mix(const Call &call) {
    if (call.whole != 0)
        walk_mix<T, true, threads>(call);
    else
        walk_mix<T, false, threads>(call);
}

STORED_KERNELS(residual_mix_warp, weir__cuda_mix, (256), mix<T, 32>);
STORED_KERNELS(residual_mix_block, weir__cuda_mix, (256), mix<T, 256>);
STORED_KERNELS(residual_mix_grad_warp, weir__cuda_mix_grad, (256), mix<T, 32>);
STORED_KERNELS(residual_mix_grad_block, weir__cuda_mix_grad, (256), mix<T, 256>);

extern "C" __global__ void __launch_bounds__(256)
    weir_residual_mix_weight(const __grid_constant__ struct weir__cuda_mix_weight call) {
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * 256 + threadIdx.x;
    if (i >= call.width) return;
    const float dweight = call.sum[i] * call.query[i], dquery = call.sum[i] * call.weight[i];
    call.dweight[i] = call.overwrite != 0 ? dweight : call.dweight[i] + dweight;
    call.dquery[i] = call.overwrite != 0 ? dquery : call.dquery[i] + dquery;
}
EXPORT_KERNEL(weir_residual_mix_weight);
