/* SPDX-License-Identifier: MIT */
/* Panels: numbers as they are stored, packed as floats in the order in which products read them. */
#include "net/cpu/panel.h"

#include <assert.h>

VECTOR_INLINE int64_t clip(int64_t count) {
    return count < 0 ? 0 : count > LANES ? LANES : count;
}

/** What is brought near ahead, for more rows are read at a time than the processor foresees: so
 * many bytes further in each row that becomes a column, and so many rows further down of the
 * others. */
enum { BYTES_AHEAD = 256, ROWS_AHEAD = 12 };

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

#if defined(WEIR_STORED_BF16)
/** 16 rows of 32 numbers become columns, as pairs: half of the shuffles. With what is brought near
 * 1.5 times as fast from memory, on a Xeon of the fifth generation at v4. */
static void pack_pairs(float *to, int64_t to_row, const number *from, int64_t from_row,
                       float scale) {
    vfloat pairs[LANES];
    V_UNROLL
    for (int j = 0; j < LANES; j++) {
        memcpy(&pairs[j], from + j * from_row, sizeof pairs[j]);
        __builtin_prefetch((const char *)(from + j * from_row) + BYTES_AHEAD);
    }
    v_transpose(pairs);
    V_UNROLL
    for (int k = 0; k < LANES; k++) {
        vword bits = (vword)pairs[k];
        v_store(to + 2 * k * to_row, (vfloat)(bits << 16) * scale);
        v_store(to + (2 * k + 1) * to_row, (vfloat)(bits & 0xFFFF0000) * scale);
    }
}
#endif

void VECTOR(panel_pack_rows)(float *to, int64_t to_row, const number *from, int64_t from_row,
                             int64_t columns, int64_t depth, float scale) {
    assert(columns >= 1 && columns <= to_row && to_row % LANES == 0);
    int64_t k = 0;
#if defined(WEIR_STORED_BF16)
    for (; k + 2 * LANES <= depth && columns == to_row; k += 2 * LANES)
        for (int64_t j = 0; j < to_row; j += LANES)
            pack_pairs(to + k * to_row + j, to_row, from + j * from_row + k, from_row, scale);
#endif
    for (; k < depth; k += LANES)
        for (int64_t j = 0; j < to_row; j += LANES)
            pack_square(to + k * to_row + j, to_row, from + j * from_row + k, from_row, columns - j,
                        depth - k, scale);
}

void VECTOR(panel_pack)(float *to, int64_t to_row, int64_t to_columns, const number *from,
                        int64_t from_row, int64_t columns, int64_t depth, float scale) {
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
