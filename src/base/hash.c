/* SPDX-License-Identifier: MIT */
/* FNV-1a, 64 bits: a byte at a time; and XXH64. The same on every machine, kept in files. */
#include "base/base.h"

#include <string.h>

uint64_t weir__hash(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* ---- XXH64: four lanes, each a word in 32 bytes, then what is left ---- */

static const uint64_t prime[5] = {UINT64_C(11400714785074694791), UINT64_C(14029467366897019727),
                                  UINT64_C(1609587929392839161), UINT64_C(9650029242287828579),
                                  UINT64_C(2870177450012600261)};

static uint64_t turn(uint64_t value, int bits) {
    return value << bits | value >> (64 - bits);
}

static uint64_t word_at(const unsigned char *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static uint64_t mix(uint64_t lane, uint64_t word) {
    return turn(lane + word * prime[1], 31) * prime[0];
}

static uint64_t mix_lanes(const unsigned char *at, const unsigned char *end) {
    uint64_t lanes[4] = {prime[0] + prime[1], prime[1], 0, 0 - prime[0]};
    for (; end - at >= 32; at += 32)
        for (int i = 0; i < 4; i++) lanes[i] = mix(lanes[i], word_at(at + 8 * i));
    uint64_t hash = turn(lanes[0], 1) + turn(lanes[1], 7) + turn(lanes[2], 12) + turn(lanes[3], 18);
    for (int i = 0; i < 4; i++) hash = (hash ^ mix(0, lanes[i])) * prime[0] + prime[3];
    return hash;
}

static uint64_t mix_rest(uint64_t hash, const unsigned char *at, const unsigned char *end) {
    uint32_t half;
    assert(end - at < 32);
    for (; end - at >= 8; at += 8)
        hash = turn(hash ^ mix(0, word_at(at)), 27) * prime[0] + prime[3];
    if (end - at >= 4) {
        memcpy(&half, at, sizeof half);
        hash = turn(hash ^ half * prime[0], 23) * prime[1] + prime[2];
        at += 4;
    }
    for (; at < end; at++) hash = turn(hash ^ *at * prime[4], 11) * prime[0];
    return hash;
}

uint64_t weir__xxh64(const void *data, size_t bytes) {
    assert(data != NULL || bytes == 0);
    const unsigned char *at = bytes > 0 ? data : (const void *)"", *end = at + bytes;
    uint64_t hash = (bytes >= 32 ? mix_lanes(at, end) : prime[4]) + bytes;
    hash = mix_rest(hash, at + bytes / 32 * 32, end);
    hash = (hash ^ hash >> 33) * prime[1];
    hash = (hash ^ hash >> 29) * prime[2];
    return hash ^ hash >> 32;
}
