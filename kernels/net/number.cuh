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

/** As it would be stored: widen(narrow<T>(value)). */
template <typename T> __device__ __forceinline__ float rounded(float value) {
    return sizeof(T) == 2 ? f32_from_bits(bf16_pair(0.0f, value)) : value;
}

/** `count` neighbours, moved at once: sizeof(T) x count is 4, 8 or 16, and the address a multiple
 * of it. */
template <typename T, int count> struct __align__(sizeof(T) * count) several {
    T at[count];
};

/** BF16 lie in words, which stay whole: half of one is taken or changed without the other. */
template <int count> struct halves {
    uint32_t words[count / 2];

    struct half {
        uint32_t &word;
        uint32_t shift;

        __device__ __forceinline__ operator bf16() const {
            return {static_cast<uint16_t>(word >> shift)};
        }
        __device__ __forceinline__ half &operator=(bf16 value) {
            word = (word & 0xffff0000u >> shift) | static_cast<uint32_t>(value.bits) << shift;
            return *this;
        }
        __device__ __forceinline__ half &operator=(const half &value) {
            return *this = static_cast<bf16>(value);
        }
    };
    __device__ __forceinline__ bf16 operator[](uint32_t k) const {
        return {static_cast<uint16_t>(words[k / 2] >> k % 2 * 16)};
    }
    __device__ __forceinline__ half operator[](uint32_t k) {
        return {words[k / 2], k % 2 * 16};
    }
};
template <> struct __align__(4) several<bf16, 2> {
    halves<2> at;
};
template <> struct __align__(8) several<bf16, 4> {
    halves<4> at;
};
template <> struct __align__(16) several<bf16, 8> {
    halves<8> at;
};

/** Each rounded as it is stored; BF16 two at a time. */
template <typename T, int count>
__device__ __forceinline__ several<T, count> narrow_all(const float (&values)[count]) {
    several<T, count> stored;
    if constexpr (sizeof(T) == 2 && count % 2 == 0) {
#pragma unroll
        for (int k = 0; k < count; k += 2)
            stored.at.words[k / 2] = bf16_pair(values[k], values[k + 1]);
    } else {
#pragma unroll
        for (int k = 0; k < count; k++) stored.at[k] = narrow<T>(values[k]);
    }
    return stored;
}

/** `to` = v, at once: left to itself the compiler may store it word by word. */
template <int count, typename T>
__device__ __forceinline__ void store_all(T *to, const several<T, count> &v) {
    if constexpr (sizeof(T) == 4 && count == 4)
        store_words(to, uint4{bits_from_f32(v.at[0]), bits_from_f32(v.at[1]),
                              bits_from_f32(v.at[2]), bits_from_f32(v.at[3])});
    else if constexpr (sizeof(T) == 2 && count == 8)
        store_words(to, uint4{v.at.words[0], v.at.words[1], v.at.words[2], v.at.words[3]});
    else if constexpr (sizeof(T) == 2 && count == 4)
        store_words(to, uint2{v.at.words[0], v.at.words[1]});
    else
        *reinterpret_cast<several<T, count> *>(to) = v;
}

/** Whether numbers can be moved 16 bytes at a time: the pointer is a multiple of 16. */
__device__ __forceinline__ bool is_aligned(const void *pointer) {
    return reinterpret_cast<uint64_t>(pointer) % 16 == 0;
}

#endif
