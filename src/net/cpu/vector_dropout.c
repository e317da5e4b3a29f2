/* SPDX-License-Identifier: MIT */
/*
 * Dropout: weir__random_words sixteen groups at a time, one group of four elements per lane. The
 * words are the same, number for number; only whole numbers are involved until the product.
 */
#include "net/cpu/vector.h"
#include "net/cpu/vector_calls.h"

enum { GROUP = 4, BLOCK = GROUP * LANES, ROUNDS = 10 };

/* Philox4x32-10's constants, as in base/philox.c. */
#define MULTIPLIER_0 0xD2511F53u
#define MULTIPLIER_1 0xCD9E8D57u
#define KEY_STEP_0 0x9E3779B9u
#define KEY_STEP_1 0xBB67AE85u

/** What all elements of a call share. */
struct drop {
    uint64_t seed;
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
    *low = (vword)((even & lower) | (odd << 32));
    *high = (vword)((even >> 32) | (odd & ~lower));
}

VECTOR_INLINE void philox(const struct drop *drop, uint32_t row, uint32_t group, vword words[4]) {
    vword c0 = (vword)v_lane_numbers() + group, c1 = (vword){0} + row;
    vword c2 = (vword){0} + drop->op, c3 = (vword){0} + drop->mini_batch;
    uint32_t k0 = (uint32_t)drop->seed, k1 = (uint32_t)(drop->seed >> 32);
    for (int round = 0; round < ROUNDS; round++) {
        vword low0, high0, low1, high1;
        multiply_wide(c0, MULTIPLIER_0, &low0, &high0);
        multiply_wide(c2, MULTIPLIER_1, &low1, &high1);
        c0 = high1 ^ c1 ^ k0;
        c2 = high0 ^ c3 ^ k1;
        c1 = low1;
        c3 = low0;
        k0 += KEY_STEP_0;
        k1 += KEY_STEP_1;
    }
    words[0] = c0, words[1] = c1, words[2] = c2, words[3] = c3;
}

/* Lane l of vector v is element 16 v + l, word l % 4 of group 4 v + l / 4. */
#define PAIR(a, b, g)                                                                              \
    __builtin_shufflevector(a, b, g, 16 + (g), g, 16 + (g), (g) + 1, 17 + (g), (g) + 1, 17 + (g),  \
                            (g) + 2, 18 + (g), (g) + 2, 18 + (g), (g) + 3, 19 + (g), (g) + 3,      \
                            19 + (g))
#define WEAVE(w, v)                                                                                \
    __builtin_shufflevector(PAIR((w)[0], (w)[1], 4 * (v)), PAIR((w)[2], (w)[3], 4 * (v)), 0, 1,    \
                            16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)

/** All ones for the 64 elements from `group` on that are kept. */
VECTOR_INLINE void keep_block(const struct drop *drop, uint32_t row, uint32_t group,
                              vint kept[GROUP]) {
    vword words[4];
    philox(drop, row, group, words);
    const vword elements[GROUP] = {WEAVE(words, 0), WEAVE(words, 1), WEAVE(words, 2),
                                   WEAVE(words, 3)};
    V_UNROLL
    for (int v = 0; v < GROUP; v++) kept[v] = (elements[v] >> 8) >= (vword){0} + drop->threshold;
}

VECTOR_INLINE vfloat drop_vector(const struct drop *drop, vint kept, vfloat x, vfloat residual,
                                 const bool adds) {
    vfloat y = v_select(kept, x * drop->scale, v_all(0));
    return adds ? residual + y : y;
}

VECTOR_INLINE void drop_row(const struct drop *drop, uint32_t row, int64_t width, const float *x,
                            const float *residual, float *y, const bool adds) {
    for (int64_t i = 0; i < width; i += BLOCK) {
        vint kept[GROUP];
        keep_block(drop, row, (uint32_t)(i / GROUP), kept);
        V_UNROLL
        for (int v = 0; v < GROUP; v++) {
            int64_t at = i + v * LANES;
            int64_t count = width - at < LANES ? width - at : LANES;
            if (count <= 0) continue;
            vfloat other = adds ? v_load_some(residual + at, count) : v_all(0);
            v_store_some(
                y + at, drop_vector(drop, kept[v], v_load_some(x + at, count), other, adds), count);
        }
    }
}

VECTOR_INLINE void drop_rows(const struct weir__op_call *call, const bool adds) {
    const struct weir__op_shape *shape = call->shape;
    const struct drop drop = {.seed = call->seed,
                              .mini_batch = (uint32_t)call->mini_batch,
                              .op = shape->random_op,
                              .threshold = weir__dropout_threshold(shape->p),
                              .scale = (float)(1 / (1 - shape->p))};
    for (int64_t row = 0; row < shape->rows; row++) {
        int64_t at = row * shape->width;
        drop_row(&drop, (uint32_t)(call->row_first + row), shape->width,
                 (const float *)call->in[0] + at, adds ? (const float *)call->in[1] + at : NULL,
                 (float *)call->out[0] + at, adds);
    }
}

int weir__vector_dropout(const struct weir__op_call *call) {
    int64_t count = call->shape->rows * call->shape->width;
    if (call->infer)
        memmove(call->out[0], call->in[0], (size_t)count * sizeof(float));
    else
        drop_rows(call, false);
    return WEIR_OK;
}

int weir__vector_dropout_add(const struct weir__op_call *call) {
    if (!call->infer) {
        drop_rows(call, true);
        return WEIR_OK;
    }
    struct weir__op_call sum = *call;
    sum.in = (const void *const[]){call->in[1], call->in[0]};
    return weir__vector_add(&sum);
}
