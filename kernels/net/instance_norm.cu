/* SPDX-License-Identifier: MIT */
/*
 * instance_norm, instance_norm_act, their gradients; T pixels of C channels in each of R rows. With
 * d(v) = what dropout2d leaves of v, l(v) = leaky_relu(v), and for each row and channel
 *   mean = sum(d(x)) / T, rstd = 1 / sqrt(sum(d(x)^2) / T - (sum(d(x)) / T)^2 + eps),
 *   n = (d(x) - mean) * rstd:
 *   y = l(n * weight + bias)
 *   g = l'(y) * dy * weight; dx = d((g - sum(g) / T - n * sum(g * n) / T) * rstd)
 *   dweight = or += sum(l'(y) * dy * n), dbias = or += sum(l'(y) * dy), over rows and pixels
 * Without dropout the threshold is 0, without activation the slope is 1: so ops fused with them
 * have their parts' bits. What a part would store is rounded as it would.
 *
 * Sums are pairs of floats, whose second holds what the first's roundings lost, products' too
 * (Ogita, Rump and Oishi 2005, Sum2 and Dot2): as exact as numbers of 48 bits, of which the
 * difference for the variance loses (mean / deviation)^2; of BF16 a few at a time as floats first
 * (running). The GPUs of workstations run double at 1/64 of float, so doubles are only what
 * threads' pairs become at the end. Two halves: _sums, _grad_sums sum up parts of a row's pixels;
 * _moments, _means, _weights add the parts, warps in turn, then the warps' sums in their order.
 *
 * Memory: =; dweight, dbias = or +=. Fast if C is a multiple of 4 and pointers of 16.
 * Bytes: forward reads R x T x C numbers twice, and writes them once; gradient reads dy, x (and y)
 *   twice, writes dx once. What fits in the second cache comes from there the second time. Floor:
 *   2 (3, with y 4) x R x T x C x (4 or 2) / bandwidth, and as much again where it does not fit,
 * but for what is written. Launch: threads 256, `across` of them (a power of two up to 32) over the
 * chunks of a pixel, the others over pixels; blocks (C / 4 across, parts of the pixels, rows).
 */
#include "net/chunk.cuh"
#include "net/mask.cuh"
#include "net/parts.cuh"
#include "net/cuda/norm_arguments.h"

enum { WIDTH = 4, THREADS = 256 };

/* What a thread has of a pixel at once: as many channels as one draw of random words serves. Eight
 * of them, 16 bytes of bf16, would need 165 registers. */
template <typename T> using quad = several<T, WIDTH>;

/* Where a thread stands: its channels, its first pixel, and the pixels of its part. */
struct norm_spot {
    uint32_t channel, across, down;
    uint32_t pixel, step, end;

    __device__ __forceinline__ explicit norm_spot(const struct weir__cuda_instance &call) {
        across = 1u << call.across_log2;
        step = THREADS >> call.across_log2;
        down = threadIdx.x >> call.across_log2;
        channel = (blockIdx.x * across + threadIdx.x % across) * WIDTH;
        const uint32_t first = blockIdx.y * call.part_pixels, rest = call.pixels - first;
        end = first + (rest < call.part_pixels ? rest : call.part_pixels);
        pixel = first + down;
    }
};

/* What a thread knows of its channels of a row. */
template <typename T> struct channels {
    uint32_t keep; /* bit e: channel e is kept */
    float scale, slope;

    __device__ __forceinline__ channels(const struct weir__cuda_instance &call, uint64_t row,
                                        uint32_t channel)
        : keep(0), scale(call.mask.scale), slope(call.slope) {
        const uint4 words = draw(call.mask, row, channel / 4);
#pragma unroll
        for (uint32_t e = 0; e < WIDTH; e++)
            if (is_kept(call.mask, word_of(words, e))) keep |= 1u << e;
    }

    /* As dropout2d stores it. */
    __device__ __forceinline__ float dropped(float value, uint32_t e) const {
        return rounded<T>((keep >> e & 1) != 0 ? value * scale : 0.0f);
    }
    /* As leaky_relu stores it. */
    __device__ __forceinline__ float leaked(float value, float sign) const {
        return rounded<T>(sign > 0.0f ? value : slope * value);
    }
};

/* ---- pixels ---- */

/* A chunk of a pixel: x; in a gradient dy, and y or, without activation, ones. */
template <typename T> struct pixel { quad<T> x, dy, y; };

template <typename T, bool whole>
__device__ __forceinline__ quad<T> load_quad(const void *from, uint64_t at, uint32_t channel,
                                             uint32_t n) {
    return load_some<whole, WIDTH>(static_cast<const T *>(from) + at, channel, n);
}

template <typename T, bool whole>
__device__ __forceinline__ quad<T> load_sign(const struct weir__cuda_instance &call, uint64_t at,
                                             uint32_t channel) {
    if (call.sign != nullptr) return load_quad<T, whole>(call.sign, at, channel, call.channels);
    quad<T> ones;
#pragma unroll
    for (uint32_t e = 0; e < WIDTH; e++) ones.at[e] = narrow<T>(1.0f);
    return ones;
}

/* visit(pixel, where its channels begin in the row) for a thread's pixels of a row, ascending, and
 * pause() after every few of them, of BF16 the same few however a row lies. In
 * registers one place for a gradient's three arrays is less than three bases, and for one array its
 * base is less than the place. */
template <typename T, bool whole, bool gradient, typename Visit, typename Pause>
__device__ __forceinline__ void each_pixel(const struct weir__cuda_instance &call,
                                           const struct norm_spot &spot, uint64_t row, Visit visit,
                                           Pause pause) {
    constexpr uint32_t unroll = !whole && sizeof(T) > 2 ? 1 : gradient ? 4 : 8;
    const uint32_t n = call.channels;
    const uint64_t first = gradient ? row * call.pixels : 0;
    const T *x = static_cast<const T *>(call.x) + (gradient ? 0 : row * call.pixels * n);
#pragma unroll 1
    for (uint32_t p = spot.pixel; p < spot.end; p += unroll * spot.step) {
        struct pixel<T> held[unroll];
#pragma unroll
        for (uint32_t k = 0; k < unroll; k++) {
            const uint64_t place = gradient ? first + p + k * spot.step : p + k * spot.step;
            const uint64_t at = place * n;
            if (p + k * spot.step >= spot.end) continue;
            held[k].x = load_quad<T, whole>(x, at, spot.channel, n);
            if (!gradient) continue;
            held[k].dy = load_quad<T, whole>(call.dy, at, spot.channel, n);
            held[k].y = load_sign<T, whole>(call, at, spot.channel);
        }
#pragma unroll
        for (uint32_t k = 0; k < unroll; k++)
            if (p + k * spot.step < spot.end)
                visit(held[k], static_cast<uint64_t>(p + k * spot.step) * n);
        pause();
    }
}

__device__ __forceinline__ bool has_whole_rows(const struct weir__cuda_instance &call) {
    return call.channels % WIDTH == 0 && is_aligned(call.out) && is_aligned(call.x) &&
           is_aligned(call.dy) && is_aligned(call.sign) && is_aligned(call.mean) &&
           is_aligned(call.rstd) && is_aligned(call.weight) && is_aligned(call.bias) &&
           is_aligned(call.means);
}

template <bool whole>
__device__ __forceinline__ floats<WIDTH> load_or(const float *from, uint32_t channel, uint32_t n,
                                                 float other) {
    if (from != nullptr) return load_floats<whole, WIDTH>(from, channel, n);
    floats<WIDTH> v;
#pragma unroll
    for (uint32_t e = 0; e < WIDTH; e++) v.at[e] = other;
    return v;
}

/* What a thread knows of its channels of a row, their statistics included. */
template <typename T, bool whole> struct normed {
    struct channels<T> channels;
    floats<WIDTH> mean, rstd, weight;

    __device__ __forceinline__ normed(const struct weir__cuda_instance &call, uint64_t row,
                                      uint32_t channel)
        : channels(call, row, channel),
          mean(load_floats<whole, WIDTH>(call.mean + row * call.channels, channel, call.channels)),
          rstd(load_floats<whole, WIDTH>(call.rstd + row * call.channels, channel, call.channels)),
          weight(load_or<whole>(call.weight, channel, call.channels, 1.0f)) {
    }

    __device__ __forceinline__ float normal(const struct pixel<T> &pixel, uint32_t e) const {
        const float v = channels.dropped(widen(pixel.x.at[e]), e);
        return (v - mean.at[e]) * rstd.at[e];
    }
    /* The gradient as it reaches the norm. */
    __device__ __forceinline__ float slope(const struct pixel<T> &pixel, uint32_t e) const {
        return channels.leaked(widen(pixel.dy.at[e]), widen(pixel.y.at[e])) * weight.at[e];
    }
};

/* ---- sums over a part of the pixels ---- */

/* A sum of floats, and what its roundings lost. */
struct paired {
    float sum, rest;

    /* The error of an addition is a float: Knuth's, for numbers of any sizes. What is not finite
     * stays out of the rest, where it would make a NaN of an infinity. */
    __device__ __forceinline__ void add(float value) {
        const float now = sum + value, part = now - sum;
        rest += (sum - (now - part)) + (value - part);
        sum = now;
    }
    __device__ __forceinline__ void add_product(float a, float b) {
        const float product = a * b;
        const float lost = fmaf(a, b, -product);
        add(product);
        rest += lost;
    }
    __device__ __forceinline__ double whole() const {
        const double all = static_cast<double>(sum);
        return fabsf(sum) < INFINITY ? all + static_cast<double>(rest) : all;
    }
};

/* Adds up what the block's threads have of each channel, and gives it to the part's `to`: (C). All
 * threads. */
__device__ __forceinline__ void fold_block(const struct norm_spot &spot,
                                           const struct paired (&sum)[WIDTH], double *to,
                                           uint32_t n) {
    __shared__ double shared[WIDTH][THREADS];
    __syncthreads();
#pragma unroll
    for (uint32_t e = 0; e < WIDTH; e++) shared[e][threadIdx.x] = sum[e].whole();
    for (uint32_t half = spot.step / 2; half > 0; half /= 2) {
        __syncthreads();
        if (spot.down >= half) continue;
#pragma unroll
        for (uint32_t e = 0; e < WIDTH; e++)
            shared[e][threadIdx.x] += shared[e][threadIdx.x + half * spot.across];
    }
    if (spot.down != 0) return;
#pragma unroll
    for (uint32_t e = 0; e < WIDTH; e++)
        if (spot.channel + e < n) to[spot.channel + e] = shared[e][threadIdx.x];
}

/* A thread's sums of its channels: of v and v^2, or of g and g * n. BF16's squares have 16 bits:
 * eight of them that are alike, as where the mean is large beside the deviation, have an exact sum
 * as floats; so only those are paired. */
template <typename T> struct running {
    struct paired sum[WIDTH] = {}, product[WIDTH] = {};
    float few[WIDTH] = {}, few_products[WIDTH] = {};

    __device__ __forceinline__ void add(uint32_t e, float value, float other) {
        if constexpr (sizeof(T) == 2) {
            few[e] += value;
            few_products[e] += value * other;
        } else {
            sum[e].add(value);
            product[e].add_product(value, other);
        }
    }
    __device__ __forceinline__ void pause() {
        if constexpr (sizeof(T) == 2) {
#pragma unroll
            for (uint32_t e = 0; e < WIDTH; e++) {
                sum[e].add(few[e]);
                product[e].add(few_products[e]);
                few[e] = few_products[e] = 0.0f;
            }
        }
    }
};

template <typename T, bool whole, bool gradient>
__device__ __forceinline__ void add_pixels(const struct weir__cuda_instance &call,
                                           const struct norm_spot &spot, uint64_t row,
                                           struct running<T> &running) {
    const auto pause = [&] { running.pause(); };
    if constexpr (gradient) {
        const struct normed<T, whole> normed(call, row, spot.channel);
        const auto visit = [&](const struct pixel<T> &pixel, uint64_t) {
#pragma unroll
            for (uint32_t e = 0; e < WIDTH; e++)
                running.add(e, normed.slope(pixel, e), normed.normal(pixel, e));
        };
        each_pixel<T, whole, true>(call, spot, row, visit, pause);
    } else {
        const struct channels<T> channels(call, row, spot.channel);
        const auto visit = [&](const struct pixel<T> &pixel, uint64_t) {
#pragma unroll
            for (uint32_t e = 0; e < WIDTH; e++) {
                const float v = channels.dropped(widen(pixel.x.at[e]), e);
                running.add(e, v, v);
            }
        };
        each_pixel<T, whole, false>(call, spot, row, visit, pause);
    }
}

template <typename T, bool gradient>
__device__ __forceinline__ void sum_up(const struct weir__cuda_instance &call) {
    const uint32_t n = call.channels;
    const struct norm_spot spot(call);
    const bool whole = has_whole_rows(call);
#pragma unroll 1
    for (uint64_t row = blockIdx.z; row < call.rows; row += gridDim.z) {
        struct running<T> running;
        if (spot.channel < n && whole) add_pixels<T, true, gradient>(call, spot, row, running);
        if (spot.channel < n && !whole) add_pixels<T, false, gradient>(call, spot, row, running);
        double *partial = call.partial + (row * call.parts + blockIdx.y) * 2 * n;
        fold_block(spot, running.sum, partial, n);
        fold_block(spot, running.product, partial + n, n);
    }
}

STORED_KERNELS(instance_sums, weir__cuda_instance, (256, 2), sum_up<T, false>);
STORED_KERNELS(instance_grad_sums, weir__cuda_instance, (256, 2), sum_up<T, true>);

/* ---- the parts' sums ---- */

extern "C" __global__ void __launch_bounds__(1024)
    weir_instance_moments(const __grid_constant__ struct weir__cuda_instance call) {
    const uint32_t n = call.channels, c = blockIdx.x * 32 + threadIdx.x % 32;
    const double pixels = static_cast<double>(call.pixels);
    for (uint64_t row = blockIdx.y; row < call.rows; row += gridDim.y) {
        const double *partial = call.partial + row * call.parts * 2 * n;
        const double sum = fold_parts(partial, call.parts, n, c, c < n);
        const double squares =
            fold_parts(partial, call.parts, n, static_cast<uint64_t>(n) + c, c < n);
        if (threadIdx.x >= 32 || c >= n) continue;
        const double mean = sum / pixels, variance = squares / pixels - mean * mean;
        const double rstd = 1.0 / sqrt((variance < 0.0 ? 0.0 : variance) + call.eps);
        call.mean[row * n + c] = static_cast<float>(mean);
        call.rstd[row * n + c] = /* a NaN comes through, and squares above floats are one */
            squares < INFINITY ? static_cast<float>(rstd) : f32_from_bits(0x7fffffff);
    }
}
EXPORT_KERNEL(weir_instance_moments);

extern "C" __global__ void __launch_bounds__(1024)
    weir_instance_means(const __grid_constant__ struct weir__cuda_instance call) {
    const uint32_t n = call.channels;
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * 32 + threadIdx.x % 32;
    const bool there = i < static_cast<uint64_t>(n) * 2;
    for (uint64_t row = blockIdx.y; row < call.rows; row += gridDim.y) {
        const double sum =
            fold_parts(call.partial + row * call.parts * 2 * n, call.parts, n, i, there);
        if (threadIdx.x < 32 && there)
            call.means[row * 2 * n + i] =
                static_cast<float>(sum / static_cast<double>(call.pixels));
    }
}
EXPORT_KERNEL(weir_instance_means);

/* Over all rows: their parts follow each other. */
extern "C" __global__ void __launch_bounds__(1024)
    weir_instance_weights(const __grid_constant__ struct weir__cuda_instance call, float *dweight,
                          float *dbias, uint32_t overwrite) {
    const uint32_t n = call.channels;
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * 32 + threadIdx.x % 32;
    const bool there = i < static_cast<uint64_t>(n) * 2;
    const double sum = fold_parts(call.partial, call.rows * call.parts, n, i, there);
    if (threadIdx.x >= 32 || !there) return;
    float *to = i < n ? dbias + i : dweight + (i - n);
    *to = overwrite != 0 ? static_cast<float>(sum) : *to + static_cast<float>(sum);
}
EXPORT_KERNEL(weir_instance_weights);

/* ---- what is made of them ---- */

template <typename T, bool whole>
__device__ __forceinline__ void apply_norm(const struct weir__cuda_instance &call,
                                           const struct norm_spot &spot, uint64_t row) {
    const uint32_t n = call.channels;
    const struct normed<T, whole> normed(call, row, spot.channel);
    const floats<WIDTH> bias = load_or<whole>(call.bias, spot.channel, n, 0.0f);
    T *out = static_cast<T *>(call.out) + row * call.pixels * n;
    const auto visit = [&](const struct pixel<T> &pixel, uint64_t at) {
        float y[WIDTH];
#pragma unroll
        for (uint32_t e = 0; e < WIDTH; e++) {
            float normal = normed.normal(pixel, e);
            if (call.weight != nullptr) normal = normal * normed.weight.at[e] + bias.at[e];
            normal = rounded<T>(normal);
            y[e] = normed.channels.leaked(normal, normal);
        }
        store_some<whole>(out + at, spot.channel, n, narrow_all<T>(y));
    };
    each_pixel<T, whole, false>(call, spot, row, visit, [] {});
}

template <typename T, bool whole>
__device__ __forceinline__ void apply_gradient(const struct weir__cuda_instance &call,
                                               const struct norm_spot &spot, uint64_t row) {
    const uint32_t n = call.channels;
    const struct normed<T, whole> normed(call, row, spot.channel);
    const float *means = call.means + row * 2 * n;
    const floats<WIDTH> sum = load_floats<whole, WIDTH>(means, spot.channel, n);
    const floats<WIDTH> product = load_floats<whole, WIDTH>(means + n, spot.channel, n);
    T *out = static_cast<T *>(call.out) + row * call.pixels * n;
    const auto visit = [&](const struct pixel<T> &pixel, uint64_t at) {
        float dx[WIDTH];
#pragma unroll
        for (uint32_t e = 0; e < WIDTH; e++) {
            const float g = normed.slope(pixel, e), normal = normed.normal(pixel, e);
            const float own = (g - sum.at[e] - normal * product.at[e]) * normed.rstd.at[e];
            dx[e] = normed.channels.dropped(rounded<T>(own), e);
        }
        store_some<whole>(out + at, spot.channel, n, narrow_all<T>(dx));
    };
    each_pixel<T, whole, true>(call, spot, row, visit, [] {});
}

template <typename T, bool whole, bool gradient>
__device__ __forceinline__ void apply_row(const struct weir__cuda_instance &call,
                                          const struct norm_spot &spot, uint64_t row) {
    if constexpr (gradient)
        apply_gradient<T, whole>(call, spot, row);
    else
        apply_norm<T, whole>(call, spot, row);
}

template <typename T, bool gradient>
__device__ __forceinline__ void apply(const struct weir__cuda_instance &call) {
    const struct norm_spot spot(call);
    const bool whole = has_whole_rows(call);
    if (spot.channel >= call.channels) return;
#pragma unroll 1
    for (uint64_t row = blockIdx.z; row < call.rows; row += gridDim.z) {
        if (whole)
            apply_row<T, true, gradient>(call, spot, row);
        else
            apply_row<T, false, gradient>(call, spot, row);
    }
}

STORED_KERNELS(instance_apply, weir__cuda_instance, (256, 2), apply<T, false>);
STORED_KERNELS(instance_grad, weir__cuda_instance, (256, 2), apply<T, true>);
