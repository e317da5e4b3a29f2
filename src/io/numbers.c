/* SPDX-License-Identifier: MIT */
#include "io/numbers.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32, BLOCK_BYTES = 2 + BLOCK, LARGEST = 127 };

static const struct {
    uint32_t block;
    size_t bytes; /* of a block */
    enum weir_dtype dtype;
} kinds[] = {
    {1, 4, WEIR_F32}, {1, 2, WEIR_F16}, {1, 2, WEIR_BF16}, {BLOCK, BLOCK_BYTES, WEIR_DTYPE_COUNT}};

uint32_t weir__stored_block(enum weir__stored type) {
    return kinds[type].block;
}

size_t weir__stored_bytes(enum weir__stored type, size_t count) {
    assert(count % kinds[type].block == 0);
    return count / kinds[type].block * kinds[type].bytes;
}

enum weir_dtype weir__stored_dtype(enum weir__stored type) {
    return kinds[type].dtype;
}

bool weir__numbers_known(enum weir_dtype dtype) {
    return dtype == WEIR_F32 || dtype == WEIR_F16 || dtype == WEIR_BF16;
}

/* ---- reading ---- */

static float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_half(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = half & 0x7fff;
    if (rest >= 0x7c00) return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400) return from_bits(sign | ((rest << 13) + 0x38000000));
    float small = (float)rest * 0x1p-24F;
    return sign != 0 ? -small : small;
}

void weir__numbers_read(enum weir_dtype dtype, const void *from, size_t count, float *to) {
    assert(weir__numbers_known(dtype));
    if (dtype == WEIR_F32) {
        memcpy(to, from, count * sizeof *to);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, (const char *)from + 2 * i, sizeof bits);
        to[i] = dtype == WEIR_F16 ? from_half(bits) : from_bits((uint32_t)bits << 16);
    }
}

/* ---- writing ---- */

static uint16_t to_half(float value) {
    uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000;
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (bits >= 0x47800000) return (uint16_t)(sign | 0x7c00);
    if (bits < 0x38800000) /* the sum's last place is a subnormal's unit */
        return (uint16_t)(sign | (to_bits(from_bits(bits) + 0.5F) - 0x3f000000));
    bits += 0xfff + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - 0x38000000) >> 13);
}

static uint16_t to_brain(float value) {
    uint32_t bits = to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static bool write_halves(const float *from, size_t count, bool brain, char *to) {
    const uint16_t infinite = brain ? 0x7f80 : 0x7c00;
    for (size_t i = 0; i < count; i++) {
        uint16_t bits = brain ? to_brain(from[i]) : to_half(from[i]);
        if ((bits & 0x7fff) == infinite && !isinf(from[i])) return false;
        memcpy(to + 2 * i, &bits, sizeof bits);
    }
    return true;
}

/** A scale and a byte for each number. Each operation rounds to single, as theirs do. */
static bool write_block(const float *from, char *to) {
    float largest = 0;
    for (uint32_t i = 0; i < BLOCK; i++) {
        if (!isfinite(from[i])) return false;
        largest = fmaxf(largest, fabsf(from[i]));
    }
    float scale = largest / LARGEST, inverse = scale > 0 ? 1 / scale : 0;
    if (!write_halves(&scale, 1, false, to)) return false;
    for (uint32_t i = 0; i < BLOCK; i++) {
        float product = from[i] * inverse; /* not finite where the scale is subnormal */
        to[2 + i] = (char)(isfinite(product) ? (int8_t)roundf(product) : 0);
    }
    return true;
}

bool weir__numbers_write(enum weir__stored type, const float *from, size_t count, void *to) {
    assert(count % kinds[type].block == 0);
    if (type == WEIR__STORED_F32) memcpy(to, from, count * sizeof *from);
    if (type == WEIR__STORED_F16 || type == WEIR__STORED_BF16)
        return write_halves(from, count, type == WEIR__STORED_BF16, to);
    for (size_t i = 0; type == WEIR__STORED_Q8_0 && i < count / BLOCK; i++)
        if (!write_block(from + i * BLOCK, (char *)to + i * BLOCK_BYTES)) return false;
    return true;
}
