/* SPDX-License-Identifier: MIT */
/**
 * What a kernel may use beyond plain CUDA C++: every use of PTX, and of what differs between a GPU
 * and the host, has a name here and a twin in tests/fake_cuda/emulation.h, with which the same .cu
 * files are compiled for the host.
 *
 * - EXPORT_KERNEL(weir_name); after a kernel, on a line of its own: the tests find it by that.
 * - DYNAMIC_SHARED(type, name); in a kernel: `name` points to the launch's shared memory.
 * - bf16_from_f32 and f16_from_f32 round to nearest even, overflow to infinity, make every NaN
 *   0x7FFF; f32_from_f16 is exact.
 * - f32_from_bits and bits_from_f32 change no bit.
 * - max_of_lanes and sum_of_lanes: every lane of a group of `lanes` neighbours (a power of two)
 * gets the largest, or the sum, of their numbers, by a butterfly of shuffles; several numbers at
 * once. Whole warps. A NaN is not the largest.
 */
#ifndef WEIR_KERNELS_PLATFORM_CUH
#define WEIR_KERNELS_PLATFORM_CUH

#ifdef __CUDACC__

#include <stdint.h>

#define EXPORT_KERNEL(kernel) static_assert(true, #kernel)

#define DYNAMIC_SHARED(type, name)                                                                 \
    extern __shared__ uint4 weir_dynamic_shared[];                                                 \
    type *name = reinterpret_cast<type *>(weir_dynamic_shared)

__device__ __forceinline__ float f32_from_bits(uint32_t bits) {
    return __uint_as_float(bits);
}

__device__ __forceinline__ uint32_t bits_from_f32(float value) {
    return __float_as_uint(value);
}

__device__ __forceinline__ uint16_t bf16_from_f32(float value) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ uint16_t f16_from_f32(float value) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ float f32_from_f16(uint16_t bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

template <int lanes, int count> __device__ __forceinline__ void max_of_lanes(float (&of)[count]) {
#pragma unroll
    for (int apart = lanes / 2; apart > 0; apart /= 2)
#pragma unroll
        for (int i = 0; i < count; i++)
            of[i] = fmaxf(of[i], __shfl_xor_sync(0xffffffffu, of[i], apart));
}

template <int lanes, int count> __device__ __forceinline__ void sum_of_lanes(float (&of)[count]) {
#pragma unroll
    for (int apart = lanes / 2; apart > 0; apart /= 2)
#pragma unroll
        for (int i = 0; i < count; i++) of[i] += __shfl_xor_sync(0xffffffffu, of[i], apart);
}

#else
#include "emulation.h"
#endif

#endif
