/* SPDX-License-Identifier: MIT */
/* Philox4x32-10: ten rounds of two 32x32 products. Chosen because a number is a function of its
 * place, not of a state: masks do not depend on chunks, partition or recompute, and vectorise. */
#include "base/base.h"

enum { ROUNDS = 10 };
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define KEY_STEP_0 0x9E3779B9u /* golden ratio */
#define KEY_STEP_1 0xBB67AE85u /* sqrt(3) - 1 */

void weir__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0;
        uint64_t p1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        k0 += KEY_STEP_0;
        k1 += KEY_STEP_1;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

void weir__philox_words(uint64_t seed, uint64_t mini_batch, uint32_t op, uint32_t row,
                        uint32_t group, uint32_t out[4]) {
    const uint32_t counter[4] = {group, row, op, (uint32_t)mini_batch};
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    weir__philox(counter, key, out);
}
