/* SPDX-License-Identifier: MIT */
/*
 * cast_f32_bf16, cast_f32_f16, cast_bf16_f32, cast_f16_f32: to[i] = from[i], in another dtype
 *
 * Rounds to nearest, ties to even; what is too big becomes an infinity; subnormals are kept. A NaN
 * stays one, its payload is not promised. The copy comes for free: `to` may be another device's
 * memory or the host's, and half the bytes go over the link.
 *
 * Memory: to is overwritten (=). Fast if both pointers are aligned to 16 bytes.
 * Bytes: n x (4 + 2). Floor: 6 n / bandwidth (H200: 1.25 us per million elements).
 * Launch: threads 256; blocks ceil(n / 2048), eight elements a thread, or fewer: the grid strides.
 */
#include "engine/span.cuh"

/* How one number, and two that share a word, become the other dtype. */
struct narrow_bf16 {
    static __device__ __forceinline__ uint16_t one(uint32_t from) {
        return bf16_from_f32(f32_from_bits(from));
    }
};
struct narrow_f16 {
    static __device__ __forceinline__ uint16_t one(uint32_t from) {
        return f16_from_f32(f32_from_bits(from));
    }
};
struct widen_bf16 {
    static __device__ __forceinline__ uint32_t one(uint32_t from) {
        return from << 16;
    }
};
struct widen_f16 {
    static __device__ __forceinline__ uint32_t one(uint32_t from) {
        return bits_from_f32(f32_from_f16(static_cast<uint16_t>(from)));
    }
};

__device__ __forceinline__ bool are_aligned(const void *a, const void *b) {
    return (reinterpret_cast<uint64_t>(a) | reinterpret_cast<uint64_t>(b)) % 16 == 0;
}

template <typename Cast>
__device__ __forceinline__ uint32_t narrow_two(uint32_t low, uint32_t high) {
    return Cast::one(low) | static_cast<uint32_t>(Cast::one(high)) << 16;
}

template <typename Cast>
__device__ __forceinline__ void narrow(uint16_t *to, const uint32_t *from, uint64_t n,
                                       struct lane lane) {
    const uint64_t eights = are_aligned(to, from) ? n / 8 : 0;
    const uint4 *source = reinterpret_cast<const uint4 *>(from);
    uint4 *target = reinterpret_cast<uint4 *>(to);
    for (uint64_t i = lane.rank; i < eights; i += lane.count) {
        const uint4 a = __ldcs(&source[2 * i]), b = __ldcs(&source[2 * i + 1]);
        target[i] = {narrow_two<Cast>(a.x, a.y), narrow_two<Cast>(a.z, a.w),
                     narrow_two<Cast>(b.x, b.y), narrow_two<Cast>(b.z, b.w)};
    }
    for (uint64_t i = eights * 8 + lane.rank; i < n; i += lane.count) to[i] = Cast::one(from[i]);
}

template <typename Cast>
__device__ __forceinline__ uint4 widen_four(uint32_t first, uint32_t second) {
    return {Cast::one(first & 0xffff), Cast::one(first >> 16), Cast::one(second & 0xffff),
            Cast::one(second >> 16)};
}

template <typename Cast>
__device__ __forceinline__ void widen(uint32_t *to, const uint16_t *from, uint64_t n,
                                      struct lane lane) {
    const uint64_t eights = are_aligned(to, from) ? n / 8 : 0;
    const uint4 *source = reinterpret_cast<const uint4 *>(from);
    uint4 *target = reinterpret_cast<uint4 *>(to);
    for (uint64_t i = lane.rank; i < eights; i += lane.count) {
        const uint4 a = __ldcs(&source[i]);
        target[2 * i] = widen_four<Cast>(a.x, a.y);
        target[2 * i + 1] = widen_four<Cast>(a.z, a.w);
    }
    for (uint64_t i = eights * 8 + lane.rank; i < n; i += lane.count) to[i] = Cast::one(from[i]);
}

extern "C" __global__ void __launch_bounds__(256, 6)
    weir_cast_f32_bf16(uint16_t *to,         /* (n) */
                       const uint32_t *from, /* (n), the numbers' bits */
                       uint64_t n) {
    narrow<narrow_bf16>(to, from, n, grid_lane());
}
EXPORT_KERNEL(weir_cast_f32_bf16);

extern "C" __global__ void __launch_bounds__(256, 6)
    weir_cast_f32_f16(uint16_t *to,         /* (n) */
                      const uint32_t *from, /* (n), the numbers' bits */
                      uint64_t n) {
    narrow<narrow_f16>(to, from, n, grid_lane());
}
EXPORT_KERNEL(weir_cast_f32_f16);

extern "C" __global__ void __launch_bounds__(256, 6)
    weir_cast_bf16_f32(uint32_t *to,         /* (n), the numbers' bits */
                       const uint16_t *from, /* (n) */
                       uint64_t n) {
    widen<widen_bf16>(to, from, n, grid_lane());
}
EXPORT_KERNEL(weir_cast_bf16_f32);

extern "C" __global__ void __launch_bounds__(256, 6)
    weir_cast_f16_f32(uint32_t *to,         /* (n), the numbers' bits */
                      const uint16_t *from, /* (n) */
                      uint64_t n) {
    widen<widen_f16>(to, from, n, grid_lane());
}
EXPORT_KERNEL(weir_cast_f16_f32);
