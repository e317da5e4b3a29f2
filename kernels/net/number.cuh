/* SPDX-License-Identifier: MIT */
/**
 * Numbers as they are stored, and several at once. Kernels for networks are templates over the
 * stored type, float or bf16; all arithmetic is float: load widens (exactly), store rounds once, to
 * nearest even.
 */
#ifndef WEIR_KERNELS_NUMBER_CUH
#define WEIR_KERNELS_NUMBER_CUH

#include "platform.cuh"

/** STORED_KERNELS(name, arguments, bounds, body<… T …>); on a line of its own: the kernels
 * weir_<name>_f32 and _bf16, which take a struct of `arguments` by value and give it to the body,
 * T being what is stored. `bounds`: __launch_bounds__'s, in parentheses. */
#define STORED_KERNELS(name, arguments, bounds, ...)                                               \
    STORED_KERNEL(weir_##name##_f32, float, arguments, bounds, __VA_ARGS__);                       \
    STORED_KERNEL(weir_##name##_bf16, bf16, arguments, bounds, __VA_ARGS__)
#define STORED_KERNEL(kernel, type, arguments, bounds, ...)                                        \
    extern "C" __global__ void __launch_bounds__ bounds kernel(                                    \
        const __grid_constant__ struct arguments call) {                                           \
        using T = type;                                                                            \
        __VA_ARGS__(call);                                                                         \
    }                                                                                              \
    EXPORT_KERNEL(kernel)

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

/** Each rounded as it is stored. */
template <typename T, int count>
__device__ __forceinline__ several<T, count> narrow_all(const float (&values)[count]) {
    several<T, count> stored;
#pragma unroll
    for (int k = 0; k < count; k++) stored.at[k] = narrow<T>(values[k]);
    return stored;
}

/** Whether numbers can be moved 16 bytes at a time: the pointer is a multiple of 16. */
__device__ __forceinline__ bool is_aligned(const void *pointer) {
    return reinterpret_cast<uint64_t>(pointer) % 16 == 0;
}

#endif
