/* SPDX-License-Identifier: MIT */
/*
 * What vector_operands.c does, for products of pairs: an element of a panel or a strip is two
 * neighbouring numbers of the depth, bf16, the first one in the lower half. Rows that lie along the
 * depth have them side by side, so these are read where they are; where the depth goes across rows,
 * two are interleaved. A depth that is odd ends with a zero.
 */
#include "net/cpu/product.h"

#include <assert.h>

VECTOR_INLINE __mmask16 first_lanes(int64_t count) {
    return (__mmask16)((1u << (count < 0 ? 0 : count > LANES ? LANES : count)) - 1);
}

VECTOR_INLINE __m512 load_floats(const float *from, int64_t count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), from);
}

/** Numbers in the lower halves of lanes. */
VECTOR_INLINE __m512i load_numbers(const number *from, int64_t count) {
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(count), from));
}

/** Both rounded to nearest even: `first` to the lower half of the lanes, in order. */
VECTOR_INLINE vfloat narrow_both(__m512 first, __m512 second) {
    return (vfloat)_mm512_cvtne2ps_pbh(second, first);
}

/** Lane i: number i, and number 16 + i in the upper half. */
VECTOR_INLINE vfloat interleave(vfloat numbers) {
    const __m512i places =
        _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                         21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return (vfloat)_mm512_permutexvar_epi16(places, (__m512i)numbers);
}

VECTOR_INLINE vfloat join(__m512i first, __m512i second) {
    return (vfloat)_mm512_or_si512(first, _mm512_slli_epi32(second, 16));
}

/** 16 rows of weights, `columns` of them there, become columns. */
static void pack_weight_rows(float *to, const float *from, int64_t from_row, int64_t columns,
                             int64_t depth) {
    for (int64_t k = 0; k < depth; k += 2 * LANES) {
        vfloat rows[LANES];
        V_UNROLL
        for (int j = 0; j < LANES; j++) {
            const float *row = from + j * from_row + k;
            int64_t count = j < columns ? depth - k : 0;
            rows[j] = narrow_both(load_floats(row, count), load_floats(row + LANES, count - LANES));
        }
        v_transpose(rows);
        int64_t steps = v_least((depth - k + 1) / 2, LANES);
        for (int64_t s = 0; s < steps; s++) v_store(to + (k / 2 + s) * WEIR__TILE_COLUMNS, rows[s]);
    }
}

static void pack_weights(float *to, const float *from, int64_t from_row, int64_t columns,
                         int64_t depth) {
    for (int64_t k = 0; k < depth; k += 2, from += 2 * from_row, to += WEIR__TILE_COLUMNS) V_UNROLL
    for (int j = 0; j < WEIR__TILE_COLUMNS; j += LANES) {
        int64_t second = k + 1 < depth ? columns - j : 0;
        v_store(to + j, interleave(narrow_both(load_floats(from + j, columns - j),
                                               load_floats(from + from_row + j, second))));
    }
}

/** The same of weights that are pairs already. */
static void pack_number_rows(float *to, const number *from, int64_t from_row, int64_t columns,
                             int64_t depth) {
    for (int64_t k = 0; k < depth; k += 2 * LANES) {
        vfloat rows[LANES];
        V_UNROLL
        for (int j = 0; j < LANES; j++) {
            int64_t count = j < columns ? v_least(depth - k, 2 * LANES) : 0;
            __mmask32 there = (__mmask32)((UINT64_C(1) << count) - 1);
            rows[j] = (vfloat)_mm512_maskz_loadu_epi16(there, from + j * from_row + k);
        }
        v_transpose(rows);
        int64_t steps = v_least((depth - k + 1) / 2, LANES);
        for (int64_t s = 0; s < steps; s++) v_store(to + (k / 2 + s) * WEIR__TILE_COLUMNS, rows[s]);
    }
}

static void pack_numbers(float *to, const number *from, int64_t from_row, int64_t columns,
                         int64_t depth) {
    for (int64_t k = 0; k < depth; k += 2, from += 2 * from_row, to += WEIR__TILE_COLUMNS) V_UNROLL
    for (int j = 0; j < WEIR__TILE_COLUMNS; j += LANES) {
        int64_t second = k + 1 < depth ? columns - j : 0;
        v_store(to + j, join(load_numbers(from + j, columns - j),
                             load_numbers(from + from_row + j, second)));
    }
}

/** How many numbers of the depth a panel from `first` on has. */
static int64_t numbers_of(const struct weir__matrix_product *product,
                          const struct weir__panel *panel, int64_t first) {
    assert(first % 2 == 0 && first + 2 * panel->depth <= product->depth + 1);
    return v_least(2 * panel->depth, product->depth - first);
}

bool VECTOR(reads_in_place)(const struct weir__matrix_product *product) {
    (void)product;
    return false;
}

void VECTOR(pack_panel)(const struct weir__matrix_product *product, int64_t j, int64_t first,
                        const struct weir__panel *panel, float *to) {
    assert(j < product->columns && !(product->grad_weight && product->flipped));
    const int64_t depth = numbers_of(product, panel, first), columns = panel->columns;
    const float *weights = product->b;
    const number *numbers = product->b;
    const bool are_numbers = product->grad_weight || product->b_is_bf16;
    if (are_numbers && !product->flipped)
        pack_numbers(to, numbers + first * product->b_row + j, product->b_row, columns, depth);
    else if (!product->flipped)
        pack_weights(to, weights + first * product->b_row + j, product->b_row, columns, depth);
    for (int64_t i = 0; are_numbers && product->flipped && i < WEIR__TILE_COLUMNS; i += LANES)
        pack_number_rows(to + i, numbers + (j + i) * product->b_row + first, product->b_row,
                         columns - i, depth);
    for (int64_t i = 0; !are_numbers && product->flipped && i < WEIR__TILE_COLUMNS; i += LANES)
        pack_weight_rows(to + i, weights + (j + i) * product->b_row + first, product->b_row,
                         columns - i, depth);
}

bool VECTOR(packs_strips)(const struct weir__matrix_product *product) {
    return product->grad_weight || product->depth % 2 != 0;
}

/** to[tile][step][row of the tile] from a[k * a_step + row]. */
static void pack_adjacent(float *to, const number *a, int64_t a_step, int64_t rows, int64_t depth) {
    const int64_t steps = (depth + 1) / 2;
    for (int64_t k = 0; k < depth; k += 2, a += 2 * a_step, to += WEIR__TILE_ROWS)
        for (int64_t row = 0; row < rows; row += WEIR__TILE_ROWS) {
            int64_t count = v_least(rows - row, WEIR__TILE_ROWS);
            int64_t second = k + 1 < depth ? count : 0;
            vfloat pairs =
                join(load_numbers(a + row, count), load_numbers(a + a_step + row, second));
            v_store_some(to + row * steps, pairs, count);
        }
}

/** to[row][step] from a[row * a_row + k]. */
static void pack_rows(float *to, const number *a, int64_t a_row, int64_t rows, int64_t depth) {
    const int64_t steps = (depth + 1) / 2;
    for (int64_t row = 0; row < rows; row++, a += a_row, to += steps) {
        to[steps - 1] = 0;
        memcpy(to, a, (size_t)depth * sizeof *a);
    }
}

void VECTOR(take_strip)(const struct weir__matrix_product *product, int64_t row, int64_t first,
                        float *to, struct weir__panel *panel) {
    assert(panel->rows <= WEIR__STRIP_ROWS && panel->depth <= WEIR__PRODUCT_STEPS);
    const int64_t depth = numbers_of(product, panel, first);
    const number *a = product->a + row * product->a_row + first * product->a_step;
    panel->a = to;
    if (!VECTOR(packs_strips)(product)) {
        panel->a = (const void *)a;
        panel->a_row = product->a_row / 2;
        panel->a_step = 1;
    } else if (product->grad_weight) {
        pack_adjacent(to, a, product->a_step, panel->rows, depth);
        panel->a_row = 1;
        panel->a_step = WEIR__TILE_ROWS;
    } else {
        pack_rows(to, a, product->a_row, panel->rows, depth);
        panel->a_row = panel->depth;
        panel->a_step = 1;
    }
}
