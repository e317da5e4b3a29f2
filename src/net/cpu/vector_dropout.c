/* SPDX-License-Identifier: MIT */
/*
 * Dropout: weir__philox_words thirty-two groups at a time, one group of four elements per lane of
 * two vectors: a round waits for the one before it, so two go side by side. The words are the same,
 * number for number; only whole numbers are involved until the product.
 */
#include "net/cpu/vector.h"
#include "net/cpu/vector_calls.h"

enum {
    GROUP = 4,
    GROUPS = 2 * LANES,
    BLOCK = GROUP * GROUPS,
    VECTORS = BLOCK / LANES,
    ROUNDS = 10
};

/* Philox4x32-10's constants, as in base/philox.c. */
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define KEY_STEP_0 0x9E3779B9u
#define KEY_STEP_1 0xBB67AE85u

/** What all elements of a call share. */
struct drop {
    uint32_t keys[ROUNDS][2]; /**< the seed's */
    uint32_t mini_batch, op;
    uint32_t threshold; /**< kept if word >> 8 is at least this */
    float scale;
};

/** The low and high halves of lanes times a constant, even and odd lanes apart. */
VECTOR_INLINE void multiply_wide(vword a, uint32_t factor, vword *low, vword *high) {
    typedef uint64_t vwide __attribute__((vector_size(64)));
    const vwide lower = {UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
                         UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    vwide even = ((vwide)a & lower) * (uint64_t)factor, odd = ((vwide)a >> 32) * (uint64_t)factor;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#error "lanes are counted from the low end"
#endif
    *low = a * factor;
    *high = __builtin_shufflevector((vword)even, (vword)odd, 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11,
                                    27, 13, 29, 15, 31);
}

VECTOR_INLINE void philox_round(const uint32_t keys[2], vword c[4]) {
    vword low0, high0, low1, high1;
    multiply_wide(c[0], MULTIPLIER_0, &low0, &high0);
    multiply_wide(c[2], MULTIPLIER_1, &low1, &high1);
    c[0] = high1 ^ c[1] ^ keys[0];
    c[2] = high0 ^ c[3] ^ keys[1];
    c[1] = low1;
    c[3] = low0;
}

VECTOR_INLINE void philox(const struct drop *drop, uint32_t row, uint32_t group,
                          vword words[2][4]) {
    V_UNROLL
    for (int v = 0; v < 2; v++) {
        words[v][0] = (vword)v_lane_numbers() + group + (uint32_t)(v * LANES);
        words[v][1] = (vword){0} + row;
        words[v][2] = (vword){0} + drop->op;
        words[v][3] = (vword){0} + drop->mini_batch;
    }
    for (int round = 0; round < ROUNDS; round++) {
        philox_round(drop->keys[round], words[0]);
        philox_round(drop->keys[round], words[1]);
    }
}

/* Lane l of vector v is element 16 v + l, word l % 4 of group 4 v + l / 4. */
#define PAIR(a, b, g)                                                                              \
    __builtin_shufflevector(a, b, g, 16 + (g), g, 16 + (g), (g) + 1, 17 + (g), (g) + 1, 17 + (g),  \
                            (g) + 2, 18 + (g), (g) + 2, 18 + (g), (g) + 3, 19 + (g), (g) + 3,      \
                            19 + (g))
#define WEAVE(w, v)                                                                                \
    __builtin_shufflevector(PAIR((w)[0], (w)[1], 4 * (v)), PAIR((w)[2], (w)[3], 4 * (v)), 0, 1,    \
                            16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)

/** All ones for the BLOCK elements from `group` on that are kept. */
VECTOR_INLINE void keep_block(const struct drop *drop, uint32_t row, uint32_t group,
                              vint kept[VECTORS]) {
    vword words[2][4];
    philox(drop, row, group, words);
    const vword elements[VECTORS] = {WEAVE(words[0], 0), WEAVE(words[0], 1), WEAVE(words[0], 2),
                                     WEAVE(words[0], 3), WEAVE(words[1], 0), WEAVE(words[1], 1),
                                     WEAVE(words[1], 2), WEAVE(words[1], 3)};
    V_UNROLL
    for (int v = 0; v < VECTORS; v++) kept[v] = (elements[v] >> 8) >= (vword){0} + drop->threshold;
}

VECTOR_INLINE vfloat drop_vector(const struct drop *drop, vint kept, vfloat x, vfloat residual,
                                 const bool adds) {
    vfloat y = v_select(kept, x * drop->scale, v_all(0));
    return adds ? residual + v_as_stored(y) : y;
}

VECTOR_INLINE void drop_row(const struct drop *drop, uint32_t row, int64_t width, const number *x,
                            const number *residual, number *y, const bool adds) {
    for (int64_t i = 0; i < width; i += BLOCK) {
        vint kept[VECTORS];
        keep_block(drop, row, (uint32_t)(i / GROUP), kept);
        V_UNROLL
        for (int v = 0; v < VECTORS; v++) {
            int64_t at = i + v * LANES;
            int64_t count = width - at < LANES ? width - at : LANES;
            if (count <= 0) continue;
            vfloat other = adds ? v_load_some(residual + at, count) : v_all(0);
            v_store_some(
                y + at, drop_vector(drop, kept[v], v_load_some(x + at, count), other, adds), count);
        }
    }
}

/* ---- images ---- */

/*
 * Elements are counted channel by channel, memory goes pixel by pixel. So a row's words are drawn
 * once, in the order of elements, and kept as bits; a channel's bits of 32 pixels then make one
 * lane, and each pixel takes its lowest bit off sixteen channels at once.
 */
enum { PIXELS = 32 };

/** Bits of a row in whole blocks, and eight bytes that reading a lane may run over. */
static size_t bit_words(const struct weir__op_shape *shape) {
    return (size_t)((shape->width + BLOCK - 1) / BLOCK * (BLOCK / 64) + 1);
}

/** Where elements do not lie in the order in which they are counted. */
static bool is_image(const struct weir__op_shape *shape) {
    return shape->channels > 1 && shape->channels < shape->width;
}

int VECTOR(measure_dropout)(const struct weir__op_shape *shape, size_t *workspace) {
    *workspace = is_image(shape) ? bit_words(shape) * sizeof(uint64_t) : 0;
    return WEIR_OK;
}

/** Bit l is lane l. */
VECTOR_INLINE uint64_t mask_bits(vint mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask);
#else
    uint64_t bits = 0;
    for (int l = 0; l < LANES; l++) bits |= (uint64_t)(mask[l] & 1) << l;
    return bits;
#endif
}

/** Bit e % 64 of word e / 64 is set where element e is kept. */
static void draw_bits(const struct drop *drop, uint32_t row, int64_t width, uint64_t *bits) {
    for (int64_t i = 0; i < width; i += BLOCK, bits += BLOCK / 64) {
        vint kept[VECTORS];
        keep_block(drop, row, (uint32_t)(i / GROUP), kept);
        V_UNROLL
        for (int w = 0; w < BLOCK / 64; w++)
            bits[w] = mask_bits(kept[4 * w]) | mask_bits(kept[4 * w + 1]) << 16 |
                      mask_bits(kept[4 * w + 2]) << 32 | mask_bits(kept[4 * w + 3]) << 48;
    }
}

/** The bits of the elements from `element` on, `step` apart, 32 each; `count` lanes. */
VECTOR_INLINE vword gather_bits(const uint64_t *bits, int64_t element, int64_t step,
                                int64_t count) {
    assert(count >= 0 && count <= LANES);
    uint32_t lanes[LANES] = {0};
    for (int64_t l = 0; l < count; l++, element += step) {
        uint64_t word;
        memcpy(&word, (const char *)bits + element / 8, sizeof word);
        lanes[l] = (uint32_t)(word >> element % 8);
    }
    vword gathered;
    memcpy(&gathered, lanes, sizeof gathered);
    return gathered;
}

/** `pixels` (<= 32) pixels of `count` channels. */
VECTOR_INLINE void drop_pixels(const struct drop *drop, vword bits, int64_t pixels,
                               int64_t channels, const int64_t count, const number *x,
                               const number *residual, number *y, const bool adds) {
    assert(count >= 1 && count <= LANES && pixels <= PIXELS);
    for (int64_t p = 0; p < pixels; p++, bits >>= 1) {
        vint kept = (vint)(bits << 31) < 0;
        vfloat other = adds ? v_load_some(residual + p * channels, count) : v_all(0);
        vfloat z = drop_vector(drop, kept, v_load_some(x + p * channels, count), other, adds);
        v_store_some(y + p * channels, z, count);
    }
}

VECTOR_INLINE void drop_image(const struct drop *drop, uint32_t row, int64_t width,
                              int64_t channels, uint64_t *bits, const number *x,
                              const number *residual, number *y, const bool adds) {
    assert(width % channels == 0);
    int64_t plane = width / channels;
    draw_bits(drop, row, width, bits);
    for (int64_t p = 0; p < plane; p += PIXELS) {
        int64_t pixels = plane - p < PIXELS ? plane - p : PIXELS;
        for (int64_t c = 0; c < channels; c += LANES) {
            int64_t at = p * channels + c, count = channels - c < LANES ? channels - c : LANES;
            const number *other = adds ? residual + at : NULL;
            vword own = gather_bits(bits, c * plane + p, plane, count);
            if (count == LANES)
                drop_pixels(drop, own, pixels, channels, LANES, x + at, other, y + at, adds);
            else
                drop_pixels(drop, own, pixels, channels, count, x + at, other, y + at, adds);
        }
    }
}

/* ---- calls ---- */

static struct drop drop_of(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    assert(shape->p >= 0 && shape->p < 1);
    struct drop drop = {.mini_batch = (uint32_t)call->mini_batch,
                        .op = shape->random_op,
                        .threshold = weir__dropout_threshold(shape->p),
                        .scale = (float)(1 / (1 - shape->p))};
    for (uint32_t round = 0; round < ROUNDS; round++) {
        drop.keys[round][0] = (uint32_t)call->seed + round * KEY_STEP_0;
        drop.keys[round][1] = (uint32_t)(call->seed >> 32) + round * KEY_STEP_1;
    }
    return drop;
}

VECTOR_INLINE void drop_rows(const struct weir__op_call *call, const bool adds) {
    const struct weir__op_shape *shape = call->shape;
    const struct drop drop = drop_of(call);
    for (int64_t r = 0; r < shape->rows; r++) {
        int64_t at = r * shape->width;
        uint32_t row = (uint32_t)(call->row_first + r);
        const number *x = (const number *)call->in[0] + at;
        const number *residual = adds ? (const number *)call->in[1] + at : NULL;
        number *y = (number *)call->out[0] + at;
        if (is_image(shape))
            drop_image(&drop, row, shape->width, shape->channels, call->workspace, x, residual, y,
                       adds);
        else
            drop_row(&drop, row, shape->width, x, residual, y, adds);
    }
}

void VECTOR(keep_channels)(const struct weir__op_call *call, int64_t row, int64_t channels,
                           float *masks) {
    assert(row >= 0 && row < call->shape->rows);
    const struct drop drop = drop_of(call);
    for (int64_t i = 0; i < channels; i += BLOCK) {
        vint kept[VECTORS];
        keep_block(&drop, (uint32_t)(call->row_first + row), (uint32_t)(i / GROUP), kept);
        for (int v = 0; v < VECTORS; v++) {
            int64_t at = i + v * LANES, count = channels - at < LANES ? channels - at : LANES;
            if (count > 0) v_store_some(masks + at, (vfloat)kept[v], count);
        }
    }
}

int VECTOR(dropout)(const struct weir__op_call *call) {
    int64_t count = call->shape->rows * call->shape->width;
    if (call->infer)
        memmove(call->out[0], call->in[0], (size_t)count * sizeof(number));
    else
        drop_rows(call, false);
    return WEIR_OK;
}

int VECTOR(dropout_add)(const struct weir__op_call *call) {
    if (!call->infer) {
        drop_rows(call, true);
        return WEIR_OK;
    }
    struct weir__op_call sum = *call;
    sum.in = (const void *const[]){call->in[1], call->in[0]};
    return VECTOR(add)(&sum);
}
