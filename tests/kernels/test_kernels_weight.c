/* SPDX-License-Identifier: MIT */
/*
 * Goal: a convolution's weights come into the order of channels last, and gradients out of it, bit
 * for bit, whatever their sizes and addresses. Method: the kernels, emulated, on memory whose
 * neighbourhood is watched, with as many blocks as there may be and fewer, against plain loops.
 * BF16 is written by numbers that it has: how they are rounded is the same function's as in casts.
 */
#include "base/base.h"
#include "cuda/emulated.h"
#include "net/cuda/arguments.h"

#include <string.h>

#define OPEN_OR_SKIP()                                                                             \
    if (test_fake_cuda_path() == NULL && !test_gpu_is_real())                                      \
    SKIP("there is no library of emulated kernels")

struct sizes {
    uint64_t out, in, taps;
};

/* One tap or channel; rows of whole chunks, in one tile, with parts of one, over several; ragged
 * rows; more taps than a tile of whole channels takes, and as many. */
static const struct sizes shapes[] = {
    {1, 1, 1},   {5, 1, 9},   {3, 257, 1},  {64, 96, 1},  {3, 8, 9},   {2, 64, 9},
    {7, 40, 9},  {3, 256, 9}, {2, 264, 9},  {5, 600, 9},  {2, 12, 9},  {3, 3, 9},
    {2, 100, 9}, {2, 65, 9},  {9, 300, 4},  {1, 1160, 2}, {2, 88, 25}, {3, 40, 49},
    {2, 48, 72}, {1, 72, 73}, {2, 16, 121}, {1, 24, 288}, {2, 17, 35}, {40, 16, 9},
};

static struct weir__cuda_grid any_grid(void) {
    static const uint32_t blocks[] = {1, 2, 3, 7, 50};
    return emulation_grid(blocks[test_random_below(WEIR__COUNT_OF(blocks))],
                          WEIR__CUDA_WEIGHT_THREADS);
}

/* A random number that BF16 has. */
static float any_number(void) {
    uint32_t bits = (uint32_t)(test_random_below(0x7f7f) | test_random_below(2) << 15) << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void store(void *array, bool narrow, uint64_t at, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (narrow)
        ((uint16_t *)array)[at] = (uint16_t)(bits >> 16);
    else
        ((uint32_t *)array)[at] = bits;
}

static float number_at(const void *array, bool narrow, uint64_t at) {
    uint32_t bits =
        narrow ? (uint32_t)((const uint16_t *)array)[at] << 16 : ((const uint32_t *)array)[at];
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Where (o, i, t) is when channels are last. */
static uint64_t turned(const struct sizes *of, uint64_t number) {
    uint64_t tap = number % of->taps, in = number / of->taps % of->in;
    return (number / of->taps / of->in * of->taps + tap) * of->in + in;
}

static void run(const char *kernel, struct sizes of, void *to, const void *from, uint32_t adds) {
    struct weir__cuda_grid grid = any_grid();
    emulation_run(kernel, &grid,
                  (void *[]){(void *)&to, (void *)&from, &of.out, &of.in, &of.taps, &adds});
}

static void pack_once(const char *kernel, struct sizes of, bool narrow, size_t alignment) {
    uint64_t count = of.out * of.in * of.taps;
    struct watched from = watched_random(count * 4, alignment);
    struct watched to = watched_random(count * (narrow ? 2 : 4), alignment);
    for (uint64_t i = 0; i < count; i++) store(from.at, false, i, any_number());
    run(kernel, of, to.at, from.at, 0);
    for (uint64_t i = 0; i < count && !test_has_failed(); i++)
        if (number_at(to.at, narrow, turned(&of, i)) != number_at(from.at, false, i))
            TEST_FAIL("%s of %d x %d x %d: number %d is wrong", kernel, (int)of.out, (int)of.in,
                      (int)of.taps, (int)i);
    watched_clean_up(&from);
    watched_clean_up(&to);
}

static void deliver_once(const char *kernel, struct sizes of, bool narrow, size_t alignment) {
    uint64_t count = of.out * of.in * of.taps;
    uint32_t adds = test_random_below(2) == 0;
    struct watched from = watched_random(count * (narrow ? 2 : 4), alignment);
    struct watched to = watched_random(count * 4, alignment);
    float *wanted = weir__acquire(test_allocator(), (size_t)count, sizeof *wanted);
    for (uint64_t i = 0; i < count; i++) {
        store(from.at, narrow, turned(&of, i), any_number());
        store(to.at, false, i, any_number());
        float value = number_at(from.at, narrow, turned(&of, i));
        wanted[i] = adds ? number_at(to.at, false, i) + value : value;
    }
    run(kernel, of, to.at, from.at, adds);
    if (memcmp(to.at, wanted, (size_t)count * 4) != 0)
        TEST_FAIL("%s of %d x %d x %d, adds %u: wrong", kernel, (int)of.out, (int)of.in,
                  (int)of.taps, adds);
    weir__release(test_allocator(), wanted, (size_t)count, sizeof *wanted);
    watched_clean_up(&from);
    watched_clean_up(&to);
}

static void test_pack_puts_channels_last(void) {
    OPEN_OR_SKIP();
    for (size_t i = 0; i < WEIR__COUNT_OF(shapes) && !test_has_failed(); i++)
        for (size_t alignment = 4; alignment <= 16; alignment *= 4) {
            pack_once("weight_pack_f32", shapes[i], false, alignment);
            pack_once("weight_pack_bf16", shapes[i], true, alignment);
        }
}

static void test_deliver_puts_taps_last(void) {
    OPEN_OR_SKIP();
    for (size_t i = 0; i < WEIR__COUNT_OF(shapes) && !test_has_failed(); i++)
        for (size_t alignment = 4; alignment <= 16; alignment *= 4) {
            deliver_once("weight_deliver_f32", shapes[i], false, alignment);
            deliver_once("weight_deliver_bf16", shapes[i], true, alignment);
        }
}

WEIR_TEST_SUITE(kernels_weight, TEST(pack_puts_channels_last), TEST(deliver_puts_taps_last))
