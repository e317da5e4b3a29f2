/* SPDX-License-Identifier: MIT */
/*
 * batch_norm, its gradients and its statistics; M = R * T pixels of C channels. The passes over
 * pixels are instance_norm.cu's, for which the micro-batch is one row:
 *   sums of x and x^2      -> _moments: mean = sum(x) / M, variance = sum(x^2) / M - mean^2
 *   mean, variance         -> _scale: as the floats (mean, 1 / sqrt(variance + eps)) that n =
 *                             (x - mean) * rstd is made of; in a gradient also the means of its
 *                             sums, times weight
 *   sums of dy and dy * n  -> _sums, in double; _deliver gives them to dbias and dweight
 *   mean, variance         -> _statistics: their moments' digits (net/moments.h)
 *   a mini-batch's moments -> _move: the running numbers
 * All of these but the passes are of channels alone, in double, and round to floats where those are
 * stored.
 *
 * A digit k of v is trunc(v * 2^(144 - 12 k)) - 4096 * trunc(v * 2^(144 - 12 (k + 1))): products
 * with powers of two, whole numbers and their difference are exact.
 *
 * Memory: =; _deliver and _statistics = or +=.
 * Bytes: of the parts' sums and of the channels: little beside the pixels.
 * Launch: _moments and _sums as instance_norm.cu's folds: a block of 1,024 for 32 columns; the
 *   others threads 256, one a channel, or a digit.
 */
#include "net/parts.cuh"
#include "net/cuda/norm_arguments.h"
#include "weir.h"

enum { DIGIT_BITS = 12, LEAST_BITS = 144 };

__device__ __forceinline__ uint32_t thread_number() {
    return blockIdx.x * blockDim.x + threadIdx.x;
}

extern "C" __global__ void __launch_bounds__(1024)
    weir_batch_moments(const __grid_constant__ struct weir__cuda_batch_norm call) {
    const uint32_t n = call.channels, c = blockIdx.x * 32 + threadIdx.x % 32;
    const double pixels = static_cast<double>(call.pixels);
    const double sum = fold_parts(call.partial, call.parts, n, c, c < n);
    const double squares =
        fold_parts(call.partial, call.parts, n, static_cast<uint64_t>(n) + c, c < n);
    if (threadIdx.x >= 32 || c >= n) return;
    const double mean = sum / pixels, variance = squares / pixels - mean * mean;
    call.mean[c] = mean;
    call.variance[c] = variance < 0.0 ? 0.0 : variance; /* a NaN comes through */
}
EXPORT_KERNEL(weir_batch_moments);

extern "C" __global__ void __launch_bounds__(256)
    weir_batch_scale(const __grid_constant__ struct weir__cuda_batch_norm call) {
    const uint32_t c = thread_number(), n = call.channels;
    if (c >= n) return;
    const bool running = call.running_mean != nullptr;
    const double variance =
        running ? static_cast<double>(call.running_variance[c]) : call.variance[c];
    call.middle[c] = running ? call.running_mean[c] : static_cast<float>(call.mean[c]);
    call.factor[c] = static_cast<float>(1.0 / sqrt(variance + call.eps));
    if (call.sum == nullptr) return;
    const double pixels = static_cast<double>(call.pixels);
    const float weight = call.weight == nullptr ? 1.0f : call.weight[c];
    call.means[c] = static_cast<float>(call.sum[c] / pixels) * weight;
    call.means[n + c] = static_cast<float>(call.product[c] / pixels) * weight;
}
EXPORT_KERNEL(weir_batch_scale);

extern "C" __global__ void __launch_bounds__(1024)
    weir_batch_sums(const __grid_constant__ struct weir__cuda_batch_norm call) {
    const uint32_t n = call.channels;
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * 32 + threadIdx.x % 32;
    const bool there = i < static_cast<uint64_t>(n) * 2;
    const double sum = fold_parts(call.partial, call.parts, n, i, there);
    if (threadIdx.x >= 32 || !there) return;
    *(i < n ? call.sum + i : call.product + (i - n)) = sum;
}
EXPORT_KERNEL(weir_batch_sums);

/* ---- what is made of the sums ---- */

extern "C" __global__ void __launch_bounds__(256)
    weir_batch_deliver(const double *sum, const double *product, float *dweight, float *dbias,
                       uint32_t channels, uint32_t overwrite) {
    const uint32_t c = thread_number();
    if (c >= channels) return;
    const float weight = static_cast<float>(product[c]), bias = static_cast<float>(sum[c]);
    dweight[c] = overwrite != 0 ? weight : dweight[c] + weight;
    dbias[c] = overwrite != 0 ? bias : dbias[c] + bias;
}
EXPORT_KERNEL(weir_batch_deliver);

/* ---- moments ---- */

/* Two to the power of a multiple of DIGIT_BITS within its range. */
__device__ __forceinline__ double power_of_two(int bits) {
    double power = 1.0;
    const double step = bits < 0 ? 0x1p-12 : 0x1p12;
    for (int left = bits < 0 ? -bits : bits; left > 0; left -= DIGIT_BITS) power *= step;
    return power;
}

__device__ __forceinline__ double digit_of(double value, int k) {
    const bool finite = fabs(value) < power_of_two(LEAST_BITS);
    if (!finite)
        return k != WEIR__CUDA_DIGITS - 1 ? 0.0 : value != value ? value : value * 0x1p1000;
    const double scaled = value * power_of_two(LEAST_BITS - k * DIGIT_BITS);
    return trunc(scaled) - 0x1p12 * trunc(scaled * 0x1p-12);
}

/* Number `at` of a channel's two, or the count. */
__device__ __forceinline__ double term_of(const struct weir__cuda_batch_statistics &call,
                                          uint32_t at) {
    const uint32_t c = at / 2;
    if (c == call.channels) return call.count;
    const double distance = call.mean[c] - static_cast<double>(call.running_mean[c]);
    const double squares = call.variance[c] + call.weight_squares * (distance * distance);
    return at % 2 == 0 ? call.weight_mean * distance : call.weight_variance * squares;
}

extern "C" __global__ void __launch_bounds__(256)
    weir_batch_statistics(const __grid_constant__ struct weir__cuda_batch_statistics call) {
    const uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= (static_cast<uint64_t>(call.channels) * 2 + 1) * WEIR__CUDA_DIGITS) return;
    const double term = term_of(call, static_cast<uint32_t>(i / WEIR__CUDA_DIGITS));
    const float digit = static_cast<float>(digit_of(term, static_cast<int>(i % WEIR__CUDA_DIGITS)));
    call.moments[i] = call.overwrite != 0 ? digit : call.moments[i] + digit;
}
EXPORT_KERNEL(weir_batch_statistics);

/* From the largest digit down. */
__device__ __forceinline__ double sum_of(const float *digits) {
    double sum = 0.0;
    for (int k = WEIR__CUDA_DIGITS; k-- > 0;) {
        const double digit = static_cast<double>(digits[k]);
        if (digit != 0.0) sum += digit * power_of_two(k * DIGIT_BITS - LEAST_BITS);
    }
    return sum;
}

__device__ __forceinline__ double power(double base, uint64_t exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent /= 2, base *= base)
        if (exponent % 2 == 1) result *= base;
    return result;
}

/* One block: the count of batches is read by all before it is written. */
extern "C" __global__ void __launch_bounds__(256)
    weir_batch_move(const __grid_constant__ struct weir__cuda_batch_running call,
                    const struct weir_verdict *verdict) {
    const uint32_t n = call.channels;
    const double count = sum_of(call.moments + static_cast<uint64_t>(n) * 2 * WEIR__CUDA_DIGITS);
    if (verdict->applies == 0 || count == 0.0) return;
    const int64_t before = *call.batches;
    const int64_t batches = before + (call.plain != 0 ? static_cast<int64_t>(count) : 1);
    const bool cumulative = call.momentum < 0.0;
    const double each = 1.0 / static_cast<double>(batches);
    const double share = cumulative ? each : call.plain != 0 ? 1.0 : call.momentum;
    const double kept = call.plain == 0 ? 0.0
                        : cumulative    ? static_cast<double>(before) * each
                                        : power(1.0 - call.momentum, static_cast<uint64_t>(count));
    __syncthreads();
    if (threadIdx.x == 0) *call.batches = batches;
    for (uint32_t c = threadIdx.x; c < n; c += blockDim.x) {
        const float *digits = call.moments + static_cast<uint64_t>(c) * 2 * WEIR__CUDA_DIGITS;
        const double mean = static_cast<double>(call.mean[c]);
        const double variance = static_cast<double>(call.variance[c]);
        const double sum = sum_of(digits), squares = sum_of(digits + WEIR__CUDA_DIGITS);
        if (call.plain != 0) {
            call.mean[c] = static_cast<float>(mean + share * sum);
            call.variance[c] = static_cast<float>(kept * variance + share * squares);
            continue;
        }
        const double distance = sum / count;
        const double found = (squares - distance * distance * count) / (count - 1.0);
        call.mean[c] = static_cast<float>(mean + share * distance);
        call.variance[c] =
            static_cast<float>(/* rounding may make it negative; a NaN stays */
                               variance + share * ((found < 0.0 ? 0.0 : found) - variance));
    }
}
EXPORT_KERNEL(weir_batch_move);
