/* SPDX-License-Identifier: MIT */
/*
 * Products with panels. A tile of the result stays in registers while the loop runs over the depth:
 * each step loads one row of the panel and multiplies it by one number from each row of a. With
 * AVX-512 eight rows by two vectors leave the loads off the critical path (10 loads, 16
 * multiply-adds a step); elsewhere a vector is two or four registers and two rows is what fits.
 */
#include "net/cpu/panel.h"

#include <assert.h>

#if defined(__AVX512F__)
#define TILE_ROWS 8
#else
#define TILE_ROWS 2
#endif

VECTOR_INLINE vfloat load_column(const float *from, int64_t count, bool whole) {
    return whole ? v_load(from) : v_load_some(from, count);
}

VECTOR_INLINE void store_column(float *to, vfloat v, int64_t count, bool whole) {
    if (whole)
        v_store(to, v);
    else
        v_store_some(to, v, count);
}

VECTOR_INLINE int64_t clip(int64_t count) {
    return count < 0 ? 0 : count > LANES ? LANES : count;
}

/** One tile. `rows`, `vectors` and `whole` are constants where this is inlined. */
VECTOR_INLINE void tile(const struct weir__panel *panel, int64_t row, const int rows,
                        const int vectors, const bool whole) {
    assert(rows >= 1 && rows <= TILE_ROWS && (vectors == 1 || vectors == 2));
    const float *a = panel->a + row * panel->a_row, *b = panel->b;
    float *c = panel->c + row * panel->c_row;
    const int64_t a_row = panel->a_row, c_row = panel->c_row;
    vfloat sum[TILE_ROWS][2];
    V_UNROLL
    for (int r = 0; r < rows; r++) {
        V_UNROLL
        for (int v = 0; v < vectors; v++)
            sum[r][v] = panel->mode != WEIR__PANEL_CHAIN
                            ? v_all(0)
                            : load_column(c + r * c_row + v * LANES,
                                          clip(panel->columns - v * LANES), whole);
    }
    for (int64_t k = 0; k < panel->depth; k++) {
        vfloat b0 = v_load(b), b1 = vectors > 1 ? v_load(b + LANES) : b0;
        V_UNROLL
        for (int r = 0; r < rows; r++) {
            vfloat factor = v_all(a[r * a_row]);
            sum[r][0] = v_fma(factor, b0, sum[r][0]);
            if (vectors > 1) sum[r][1] = v_fma(factor, b1, sum[r][1]);
        }
        a += panel->a_step;
        b += panel->b_row;
    }
    V_UNROLL
    for (int r = 0; r < rows; r++) {
        V_UNROLL
        for (int v = 0; v < vectors; v++) {
            int64_t count = clip(panel->columns - v * LANES);
            float *to = c + r * c_row + v * LANES;
            if (panel->mode == WEIR__PANEL_ADD) sum[r][v] += load_column(to, count, whole);
            store_column(to, sum[r][v], count, whole);
        }
    }
}

VECTOR_INLINE void tiles(const struct weir__panel *panel, const int vectors, const bool whole) {
    int64_t row = 0;
    for (; row + TILE_ROWS <= panel->rows; row += TILE_ROWS)
        tile(panel, row, TILE_ROWS, vectors, whole);
#if TILE_ROWS > 2
    for (; row + 2 <= panel->rows; row += 2) tile(panel, row, 2, vectors, whole);
#endif
    if (row < panel->rows) tile(panel, row, 1, vectors, whole);
}

void weir__panel_product(const struct weir__panel *panel) {
    assert(panel->rows >= 0 && panel->depth >= 0);
    assert(panel->columns > 0 && panel->columns <= WEIR__PANEL);
    if (panel->columns == 2 * LANES)
        tiles(panel, 2, true);
    else if (panel->columns == LANES)
        tiles(panel, 1, true);
    else if (panel->columns > LANES)
        tiles(panel, 2, false);
    else
        tiles(panel, 1, false);
}

/* ---- packing ---- */

/** At most 16 rows of at most 16 numbers become columns. */
static void pack_square(float *to, const float *from, int64_t from_row, int64_t columns,
                        int64_t depth, float scale) {
    vfloat rows[LANES];
    V_UNROLL
    for (int j = 0; j < LANES; j++)
        rows[j] = j >= columns     ? v_all(0)
                  : depth >= LANES ? v_load(from + j * from_row)
                                   : v_load_some(from + j * from_row, depth);
    v_transpose(rows);
    int64_t steps = depth < LANES ? depth : LANES;
    for (int64_t k = 0; k < steps; k++) v_store(to + k * WEIR__PANEL, rows[k] * scale);
}

void weir__panel_pack_rows(float *to, const float *from, int64_t from_row, int64_t columns,
                           int64_t depth, float scale) {
    assert(columns >= 1 && columns <= WEIR__PANEL);
    for (int64_t k = 0; k < depth; k += LANES)
        for (int64_t j = 0; j < WEIR__PANEL; j += LANES)
            pack_square(to + k * WEIR__PANEL + j, from + j * from_row + k, from_row, columns - j,
                        depth - k, scale);
}

void weir__panel_pack(float *to, int64_t to_row, int64_t to_columns, const float *from,
                      int64_t from_row, int64_t columns, int64_t depth, float scale) {
    assert(to_columns % LANES == 0 && columns <= to_columns);
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < to_columns; j += LANES) {
            const float *source = from + k * from_row + j;
            vfloat v =
                columns - j >= LANES ? v_load(source) : v_load_some(source, clip(columns - j));
            v_store(to + k * to_row + j, v * scale);
        }
}
