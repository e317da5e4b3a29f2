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

template <typename Cast> __device__ __forceinline__ uint2 cast_four(const uint4 &from) {
    return {narrow_two<Cast>(from.x, from.y), narrow_two<Cast>(from.z, from.w)};
}
template <typename Cast> __device__ __forceinline__ uint4 cast_four(const uint2 &from) {
    return {Cast::one(from.x & 0xffff), Cast::one(from.x >> 16), Cast::one(from.y & 0xffff),
            Cast::one(from.y >> 16)};
}

/* Four numbers at a time, 16 bytes (Source) that become 8, or 8 that become 16: so neighbouring
 * threads' accesses lie side by side on both sides. */
template <typename Cast, typename Source, typename To, typename From>
__device__ __forceinline__ void cast(To *to, const From *from, uint64_t n, struct lane lane) {
    constexpr uint32_t unroll = 2;
    const uint64_t fours = are_aligned(to, from) ? n / 4 : 0;
    const Source *source = reinterpret_cast<const Source *>(from);
#pragma unroll 1
    for (uint64_t i = lane.rank; i < fours; i += unroll * lane.count) {
        const uint64_t next = i + lane.count;
        const Source a = __ldcs(&source[i]);
        const Source b = __ldcs(&source[next < fours ? next : i]);
        store_words(to + i * 4, cast_four<Cast>(a));
        if (next < fours) store_words(to + next * 4, cast_four<Cast>(b));
    }
#pragma unroll 1
    for (uint64_t i = fours * 4 + lane.rank; i < n; i += lane.count) to[i] = Cast::one(from[i]);
}

template <typename Cast>
__device__ __forceinline__ void narrow(uint16_t *to, const uint32_t *from, uint64_t n,
                                       struct lane lane) {
    cast<Cast, uint4>(to, from, n, lane);
}

template <typename Cast>
__device__ __forceinline__ void widen(uint32_t *to, const uint16_t *from, uint64_t n,
                                      struct lane lane) {
    cast<Cast, uint2>(to, from, n, lane);
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
