/* SPDX-License-Identifier: MIT */
/**
 * CUDA C++ on the host: with this header, which kernels/platform.cuh includes where the compiler is
 * not nvcc, the .cu files compile as C++.
 *
 * A block's threads are fibers on one host thread. A fiber runs until it comes to a barrier (of its
 * block or warp) that others have not reached: then another one goes on, in a seeded random order.
 * So between barriers a thread sees either all or nothing of what another one does, and a barrier
 * that is missing gives a wrong result nearly always:
 *  - shared memory, static and dynamic, holds a pattern (0xA5) before a block begins, so that what
 *    was not written yet, or only by the block before, is not taken for good;
 *  - dynamic shared memory ends where no page is;
 *  - a thread that ends or waits elsewhere while others wait for it is reported (fake_cuda_fault),
 *    which is stricter than hardware: a block's barrier counts threads that have ended, too;
 *  - the build has UBSan trap on a misaligned vector or number, an index outside of an array, an
 *    overflow.
 * What global memory is touched outside of its bounds is found if its owner makes it crash: put
 * it at the edge of a page, or build with AddressSanitizer.
 *
 * Not here, so that kernels do without: floating-point atomics (their order is not fixed), anything
 * that waits for another block, __activemask.
 */
#ifndef WEIR_TESTS_EMULATION_H
#define WEIR_TESTS_EMULATION_H

#include "fake_kernels.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* ---- the language ---- */

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))
/* All kernels' in one section, whose bounds the linker knows; one block at a time uses it. */
#define __shared__ static __attribute__((section("weir_shared")))

struct uint3 {
    uint32_t x, y, z;
};
struct dim3 {
    uint32_t x, y, z;
};

namespace emulation {

/** Where the running thread is. */
struct place {
    uint3 thread, block;
    dim3 threads, blocks;
    uint32_t rank; /**< the thread's, x fastest */
};
extern place here;

enum operation { BARRIER, WARP_BARRIER, SHUFFLE, VOTE, PRODUCT };

/** Returns when the block's threads have all come to a barrier. */
void wait_for_block();
/** Returns when the lanes in `mask` have all come to this operation. */
void wait_for_warp(operation operation, uint32_t mask);
/** All lanes of `mask` give a value and get that of `source`, a lane of their warp. */
uint64_t exchange(operation operation, uint32_t mask, uint64_t value, uint32_t source);
/** All lanes of a whole warp come here, and see what each of them points to; nobody changes that
 * before all have parted. */
void meet(operation operation, const void *own, const void *(&all)[32]);
void part(operation operation);
/** A copy of 16 bytes that is not made before the thread's finish_copies: at the latest moment. */
void copy_later(void *to, const void *from, bool there);
void finish_copies();
/** The launch's dynamic shared memory. */
void *dynamic_shared();
/** Runs `call(arguments)` once for every thread of every block. */
void launch(const uint32_t blocks[3], const uint32_t threads[3], uint32_t shared_bytes,
            void (*call)(void **arguments), void **arguments);

template <size_t... index> struct indices {};
template <typename T, T... index> struct sequence { using list = indices<index...>; };

/** A kernel with its parameters' types: how it is called with an array of pointers. */
template <auto kernel> struct entry;
template <typename... Parameters, void (*kernel)(Parameters...)> struct entry<kernel> {
    static constexpr size_t parameter_bytes[] = {sizeof(Parameters)..., 0};

    template <size_t... index> static void call_with(void **arguments, indices<index...>) {
        kernel(*static_cast<Parameters *>(arguments[index])...);
    }
    static void call(void **arguments) {
        call_with(arguments,
                  typename __make_integer_seq<sequence, size_t, sizeof...(Parameters)>::list());
    }
};

} // namespace emulation

#define EXPORT_KERNEL(kernel)                                                                      \
    extern "C" const size_t *const fake_cuda_parameters_##kernel;                                  \
    extern "C" const size_t *const fake_cuda_parameters_##kernel =                                 \
        emulation::entry<&kernel>::parameter_bytes;                                                \
    extern "C" void fake_cuda_run_##kernel(const uint32_t blocks[3], const uint32_t threads[3],    \
                                           uint32_t shared_bytes, void **arguments) {              \
        emulation::launch(blocks, threads, shared_bytes, emulation::entry<&kernel>::call,          \
                          arguments);                                                              \
    }                                                                                              \
    static_assert(true, "")

#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulation::dynamic_shared())

#define threadIdx (emulation::here.thread)
#define blockIdx (emulation::here.block)
#define blockDim (emulation::here.threads)
#define gridDim (emulation::here.blocks)

/* ---- vectors ---- */

/* Their copies are functions so that UBSan sees the addresses: it looks at no plain struct's. */

struct __align__(8) uint2 {
    uint32_t x, y;

    uint2() = default;
    uint2(uint32_t x_, uint32_t y_) : x(x_), y(y_) {
    }
    uint2(const uint2 &from) : x(from.x), y(from.y) {
    }
    uint2 &operator=(const uint2 &from) {
        x = from.x, y = from.y;
        return *this;
    }
};

struct __align__(16) uint4 {
    uint32_t x, y, z, w;

    uint4() = default;
    uint4(uint32_t x_, uint32_t y_, uint32_t z_, uint32_t w_) : x(x_), y(y_), z(z_), w(w_) {
    }
    uint4(const uint4 &from) : x(from.x), y(from.y), z(from.z), w(from.w) {
    }
    uint4 &operator=(const uint4 &from) {
        x = from.x, y = from.y, z = from.z, w = from.w;
        return *this;
    }
};

/* ---- threads together ---- */

static inline void __syncthreads() {
    emulation::wait_for_block();
}
static inline void __syncwarp(uint32_t mask = 0xffffffffu) {
    emulation::wait_for_warp(emulation::WARP_BARRIER, mask);
}

namespace emulation {

template <typename T> T shuffle(uint32_t mask, T value, uint32_t source) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a shuffle takes 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = exchange(SHUFFLE, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/** The lane that a shuffle of `width` lanes reads: its own where the other is not among them. */
static inline uint32_t within(uint32_t lane, int64_t other, uint32_t width) {
    const int64_t first = lane / width * width;
    return other < first || other >= first + width ? lane : static_cast<uint32_t>(other);
}

} // namespace emulation

template <typename T>
static inline T __shfl_sync(uint32_t mask, T value, uint32_t source, uint32_t width = 32) {
    const uint32_t lane = emulation::here.rank % 32;
    return emulation::shuffle(mask, value, lane / width * width + source % width);
}
template <typename T>
static inline T __shfl_up_sync(uint32_t mask, T value, uint32_t delta, uint32_t width = 32) {
    const uint32_t lane = emulation::here.rank % 32;
    return emulation::shuffle(mask, value,
                              emulation::within(lane, static_cast<int64_t>(lane) - delta, width));
}
template <typename T>
static inline T __shfl_down_sync(uint32_t mask, T value, uint32_t delta, uint32_t width = 32) {
    const uint32_t lane = emulation::here.rank % 32;
    return emulation::shuffle(mask, value,
                              emulation::within(lane, static_cast<int64_t>(lane) + delta, width));
}
template <typename T>
static inline T __shfl_xor_sync(uint32_t mask, T value, uint32_t lanes, uint32_t width = 32) {
    const uint32_t lane = emulation::here.rank % 32;
    return emulation::shuffle(mask, value, emulation::within(lane, lane ^ lanes, width));
}
uint32_t __ballot_sync(uint32_t mask, bool predicate);

namespace emulation {

/** The butterfly of shuffles over `lanes` neighbours: its bits, at one meeting's cost. */
template <int lanes, int count, typename How> void butterfly(float (&of)[count], How how) {
    const void *all[32];
    float held[lanes][count], next[lanes][count];
    const uint32_t lane = here.rank % 32, first = lane / lanes * lanes;
    meet(SHUFFLE, of, all);
    for (uint32_t l = 0; l < lanes; l++) memcpy(held[l], all[first + l], sizeof held[l]);
    part(SHUFFLE);
    for (uint32_t apart = lanes / 2; apart > 0; apart /= 2) {
        for (uint32_t l = 0; l < lanes; l++)
            for (int i = 0; i < count; i++) next[l][i] = how(held[l][i], held[l ^ apart][i]);
        memcpy(held, next, sizeof held);
    }
    memcpy(of, held[lane - first], sizeof held[0]);
}

} // namespace emulation

template <int lanes, int count> static inline void max_of_lanes(float (&of)[count]) {
    emulation::butterfly<lanes>(of, [](float a, float b) { return fmaxf(a, b); });
}
template <int lanes, int count> static inline void sum_of_lanes(float (&of)[count]) {
    emulation::butterfly<lanes>(of, [](float a, float b) { return a + b; });
}

/* ---- atomics: on whole numbers only ---- */

template <typename T> static inline T atomicAdd(T *to, T value) {
    static_assert(T(1) / T(2) == T(0), "floating-point sums need an order");
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
template <typename T> static inline T atomicMax(T *to, T value) {
    static_assert(T(1) / T(2) == T(0), "for whole numbers");
    return __atomic_fetch_max(to, value, __ATOMIC_RELAXED);
}

template <typename T> static inline T atomicExch(T *to, T value) {
    return __atomic_exchange_n(to, value, __ATOMIC_RELAXED);
}

/* ---- memory, numbers ---- */

static inline int __popc(uint32_t bits) {
    return __builtin_popcount(bits);
}

template <typename T> static inline T __ldcs(const T *from) {
    return *from;
}
template <typename Words> static inline void store_words(void *to, const Words &words) {
    *static_cast<Words *>(to) = words;
}

static inline float f32_from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint32_t bits_from_f32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}
/* exp2_fast, inverse_fast, log2_fast, tanh_fast: the host's own, which are nearer. */
static inline float exp2_fast(float value) {
    return exp2f(value);
}
static inline float inverse_fast(float value) {
    return 1.0f / value;
}
static inline float log2_fast(float value) {
    return log2f(value);
}
static inline float tanh_fast(float value) {
    return tanhf(value);
}
uint16_t bf16_from_f32(float value);
uint16_t f16_from_f32(float value);
float f32_from_f16(uint16_t bits);
static inline uint32_t bf16_pair(float low, float high) {
    return bf16_from_f32(low) | static_cast<uint32_t>(bf16_from_f32(high)) << 16;
}

/* ---- tensor cores, copies under way ---- */

namespace emulation {

/** Number (row, column) of a tile. */
static inline uint32_t number_at(const void *tile, uint32_t pitch, uint32_t row, uint32_t column) {
    return static_cast<const uint16_t *>(tile)[row * pitch + column];
}

/** A fragment's number: lanes hold neighbours along `pair`, two in a register. */
static inline float number_of(const uint32_t *registers, uint32_t pair) {
    return f32_from_bits(pair % 2 == 0 ? *registers << 16 : *registers >> 16 << 16);
}

template <int count> struct fragments { uint32_t left[4], right[count][2]; };

/** Row (lane's, half), column (n, of the lane's two) of a product: its 16 terms at once, one
 * rounding. */
template <int count>
float add_terms(float sum, const void *const (&all)[32], int n, uint32_t row, uint32_t column) {
    double terms = 0;
    for (uint32_t k = 0; k < 16; k++) {
        const uint32_t a = row % 8 * 4 + k % 8 / 2, b = column * 4 + k % 8 / 2;
        const fragments<count> *left = static_cast<const fragments<count> *>(all[a]);
        const fragments<count> *right = static_cast<const fragments<count> *>(all[b]);
        terms += static_cast<double>(number_of(&left->left[row / 8 + k / 8 * 2], k)) *
                 static_cast<double>(number_of(&right->right[n][k / 8], k));
    }
    return static_cast<float>(static_cast<double>(sum) + terms);
}

} // namespace emulation

static inline void load_16x16(uint32_t (&part)[4], const void *tile, uint32_t pitch) {
    const uint32_t lane = emulation::here.rank % 32;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = i % 2 * 8 + lane / 4, column = i / 2 * 8 + lane % 4 * 2;
        part[i] = emulation::number_at(tile, pitch, row, column) |
                  emulation::number_at(tile, pitch, row, column + 1) << 16;
    }
}

static inline void load_16x16_transposed(uint32_t (&part)[4], const void *tile, uint32_t pitch) {
    const uint32_t lane = emulation::here.rank % 32;
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t row = i % 2 * 8 + lane % 4 * 2, column = i / 2 * 8 + lane / 4;
        part[i] = emulation::number_at(tile, pitch, row, column) |
                  emulation::number_at(tile, pitch, row + 1, column) << 16;
    }
}

template <int count>
static inline void multiply_16x8(float (&sum)[count][4], const uint32_t (&left)[4],
                                 const uint32_t (&right)[count][2]) {
    emulation::fragments<count> own;
    const void *all[32];
    const uint32_t lane = emulation::here.rank % 32;
    memcpy(own.left, left, sizeof own.left);
    memcpy(own.right, right, sizeof own.right);
    emulation::meet(emulation::PRODUCT, &own, all);
    for (int n = 0; n < count; n++)
        for (uint32_t i = 0; i < 4; i++)
            sum[n][i] = emulation::add_terms<count>(sum[n][i], all, n, lane / 4 + i / 2 * 8,
                                                    lane % 4 * 2 + i % 2);
    emulation::part(emulation::PRODUCT);
}

static inline void copy_async(void *to, const void *from, bool there) {
    emulation::copy_later(to, from, there);
}
static inline void copy_async_wait() {
    emulation::finish_copies();
}

#endif
