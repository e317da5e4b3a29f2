/* SPDX-License-Identifier: MIT */
/**
 * What a kernel may use beyond plain CUDA C++: every use of PTX, and of what differs between a GPU
 * and the host, has a name here and a twin in tests/fake_cuda/emulation.h, with which the same .cu
 * files are compiled for the host.
 *
 * - EXPORT_KERNEL(weir_name); after a kernel, on a line of its own: the tests find it by that (and
 *   by number.cuh's STORED_KERNELS).
 * - DYNAMIC_SHARED(type, name); in a kernel: `name` points to the launch's shared memory.
 * - bf16_from_f32 and f16_from_f32 round to nearest even, overflow to infinity, make every NaN
 *   0x7FFF; f32_from_f16 is exact.
 * - exp2_fast, inverse_fast (both within 2^-22, subnormals are 0) and tanh_fast (within 2^-10.9),
 *   relative, log2_fast (within 2^-22 where its value is small): an instruction each, where what is
 *   made of them is stored in BF16.
 * - f32_from_bits and bits_from_f32 change no bit.
 * - store_words: 8 or 16 bytes at once to global memory.
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

__device__ __forceinline__ float exp2_fast(float value) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power;
}

__device__ __forceinline__ float inverse_fast(float value) {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(value));
    return inverse;
}

__device__ __forceinline__ float log2_fast(float value) {
    float power;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(value));
    return power;
}

__device__ __forceinline__ float tanh_fast(float value) {
    float tangent;
    asm("tanh.approx.f32 %0, %1;" : "=f"(tangent) : "f"(value));
    return tangent;
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

__device__ __forceinline__ void store_words(void *to, const uint2 &words) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(words.x), "r"(words.y)
                 : "memory");
}

__device__ __forceinline__ void store_words(void *to, const uint4 &words) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(to)), "r"(words.x), "r"(words.y), "r"(words.z),
                   "r"(words.w)
                 : "memory");
}

__device__ __forceinline__ uint32_t bf16_pair(float low, float high) {
    uint32_t bits;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
    return bits;
}

/* As half of a pair, which is four times as fast as one alone. */
__device__ __forceinline__ uint16_t bf16_from_f32(float value) {
    return static_cast<uint16_t>(bf16_pair(value, 0.0f));
}

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/** Where the lane's row of the four parts begins: the instruction takes 32 of them. */
__device__ __forceinline__ uint32_t row_address(const void *tile, uint32_t pitch) {
    const uint32_t lane = threadIdx.x % 32;
    return shared_address(tile) + (lane % 16 * pitch + lane / 16 * 8) * 2;
}

__device__ __forceinline__ void load_16x16(uint32_t (&part)[4], const void *tile, uint32_t pitch) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                 : "r"(row_address(tile, pitch))
                 : "memory");
}

__device__ __forceinline__ void load_16x16_transposed(uint32_t (&part)[4], const void *tile,
                                                      uint32_t pitch) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(part[0]), "=r"(part[1]), "=r"(part[2]), "=r"(part[3])
                 : "r"(row_address(tile, pitch))
                 : "memory");
}

template <int count>
__device__ __forceinline__ void multiply_16x8(float (&sum)[count][4], const uint32_t (&left)[4],
                                              const uint32_t (&right)[count][2]) {
#pragma unroll
    for (int n = 0; n < count; n++)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sum[n][0]), "+f"(sum[n][1]), "+f"(sum[n][2]), "+f"(sum[n][3])
            : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[n][0]),
              "r"(right[n][1]));
}

__device__ __forceinline__ void copy_async(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
}

__device__ __forceinline__ void copy_async_wait() {
    asm volatile("cp.async.wait_all;" ::: "memory");
}

#else
#include "emulation.h"
#endif

#endif
