/* SPDX-License-Identifier: MIT */
/**
 * Numbers as they are stored, and several at once. Kernels for networks are templates over the
 * stored type, float or bf16; all arithmetic is float: load widens (exactly), store rounds once, to
 * nearest even.
 */
#ifndef WEIR_KERNELS_NUMBER_CUH
#define WEIR_KERNELS_NUMBER_CUH

#include "platform.cuh"

struct bf16 {
    uint16_t bits;
};

__device__ __forceinline__ float widen(float value) {
    return value;
}
__device__ __forceinline__ float widen(bf16 value) {
    return f32_from_bits(static_cast<uint32_t>(value.bits) << 16);
}

template <typename T> __device__ __forceinline__ T narrow(float value);
template <> __device__ __forceinline__ float narrow<float>(float value) {
    return value;
}
template <> __device__ __forceinline__ bf16 narrow<bf16>(float value) {
    return {bf16_from_f32(value)};
}

/** `count` neighbours, moved at once: sizeof(T) x count is 4, 8 or 16, and the address a multiple
 * of it. */
template <typename T, int count> struct __align__(sizeof(T) * count) several {
    T at[count];
};

/** Whether numbers can be moved 16 bytes at a time: the pointer is a multiple of 16. */
__device__ __forceinline__ bool is_aligned(const void *pointer) {
    return reinterpret_cast<uint64_t>(pointer) % 16 == 0;
}

#endif
