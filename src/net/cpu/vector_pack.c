/* SPDX-License-Identifier: MIT */
/* Panels: numbers as they are stored, packed as floats in the order in which products read them. */
#include "net/cpu/panel.h"

#include <assert.h>

VECTOR_INLINE int64_t clip(int64_t count) {
    return count < 0 ? 0 : count > LANES ? LANES : count;
}

/** At most 16 rows of at most 16 numbers become columns. */
static void pack_square(float *to, int64_t to_row, const number *from, int64_t from_row,
                        int64_t columns, int64_t depth, float scale) {
    vfloat rows[LANES];
    V_UNROLL
    for (int j = 0; j < LANES; j++)
        rows[j] = j >= columns     ? v_all(0)
                  : depth >= LANES ? v_load(from + j * from_row)
                                   : v_load_some(from + j * from_row, depth);
    v_transpose(rows);
    int64_t steps = depth < LANES ? depth : LANES;
    for (int64_t k = 0; k < steps; k++) v_store(to + k * to_row, rows[k] * scale);
}

void VECTOR(panel_pack_rows)(float *to, int64_t to_row, const number *from, int64_t from_row,
                             int64_t columns, int64_t depth, float scale) {
    assert(columns >= 1 && columns <= to_row && to_row % LANES == 0);
    for (int64_t k = 0; k < depth; k += LANES)
        for (int64_t j = 0; j < to_row; j += LANES)
            pack_square(to + k * to_row + j, to_row, from + j * from_row + k, from_row, columns - j,
                        depth - k, scale);
}

void VECTOR(panel_pack)(float *to, int64_t to_row, int64_t to_columns, const number *from,
                        int64_t from_row, int64_t columns, int64_t depth, float scale) {
    enum { ROWS_AHEAD = 12 };
    assert(to_columns % LANES == 0 && columns <= to_columns);
    for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < to_columns; j += LANES) {
            const number *source = from + k * from_row + j;
            __builtin_prefetch(source + ROWS_AHEAD * from_row);
            vfloat v =
                columns - j >= LANES ? v_load(source) : v_load_some(source, clip(columns - j));
            v_store(to + k * to_row + j, v * scale);
        }
}
