/* SPDX-License-Identifier: MIT */
/* Permutations by a keyed bijection. */
#include "data/permutation.h"

/* The op number of data's random numbers: no layer has index 0xFFFFFF. */
#define RANDOM_OP UINT32_MAX
enum { ROUNDS = 8 };

static unsigned half_bits(uint64_t count) {
    unsigned bits = 1;
    while (bits < 32 && (count - 1) >> (2 * bits) != 0) bits++;
    return bits;
}

static uint64_t feistel(uint64_t seed, uint64_t epoch, unsigned bits, uint64_t index) {
    uint32_t mask = bits < 32 ? (1u << bits) - 1 : UINT32_MAX;
    uint32_t left = (uint32_t)(index >> bits) & mask, right = (uint32_t)index & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t words[4];
        weir__philox_words(seed, epoch, RANDOM_OP, round, right, words);
        uint32_t mixed = (left ^ words[0]) & mask;
        left = right;
        right = mixed;
    }
    return (uint64_t)left << bits | right;
}

uint64_t weir__permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index) {
    assert(index < count);
    unsigned bits = half_bits(count);
    do {
        index = feistel(seed, epoch, bits, index);
    } while (index >= count); /* a cycle that began below count comes back there */
    return index;
}
