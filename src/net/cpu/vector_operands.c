/* SPDX-License-Identifier: MIT */
/*
 * How the operands of products are packed, as floats: what is stored narrower is widened as it is
 * packed, weights are rounded first.
 */
#include "net/cpu/product.h"

#include <assert.h>

/** Distances in numbers, multiples of this, that fall on few sets of the first cache: a line must
 * stay there for each tile that takes some of it. Any, with AVX-512: what finds a tile's numbers is
 * decoded beside its multiply-adds, and a packed strip's lie at constants. */
enum { BAD_STEP = WEIR__TILE_ROWS < 12 ? 128 : 1 };
/** At most so many rows are one pass over the right-hand matrix. */
enum { FEW_ROWS = 8 };

static const bool narrow = sizeof(number) < sizeof(float);

/** Whole vectors of floats become what a `number` has. */
static void round_all(float *floats, int64_t count) {
    assert(count % LANES == 0);
    for (int64_t i = 0; i < count; i += LANES) {
        number rounded[LANES];
        v_store(rounded, v_load(floats + i));
        v_store(floats + i, v_load(rounded));
    }
}

/** What is stored as bf16 is widened, and has no more than a `number` has. */
static void pack_bf16(const struct weir__matrix_product *product, int64_t j, int64_t first,
                      const struct weir__panel *panel, float *to) {
    const struct weir__bf16 *b = product->b;
    const int64_t width = v_panel_width(product, j);
    if (product->flipped) VECTOR_BF16(panel_pack_rows)
    (to, width, b + j * product->b_row + first, product->b_row, panel->columns, panel->depth, 1);
    else VECTOR_BF16(panel_pack)(to, width, width, b + first * product->b_row + j, product->b_row,
                                 panel->columns, panel->depth, 1);
}

static void pack_weights(const struct weir__matrix_product *product, int64_t j, int64_t first,
                         const struct weir__panel *panel, float *to) {
    const float *b = product->b;
    const int64_t width = v_panel_width(product, j);
    if (product->flipped) VECTOR_F32(panel_pack_rows)
    (to, width, b + j * product->b_row + first, product->b_row, panel->columns, panel->depth, 1);
    else VECTOR_F32(panel_pack)(to, width, width, b + first * product->b_row + j, product->b_row,
                                panel->columns, panel->depth, 1);
    if (narrow) round_all(to, panel->depth * width);
}

bool VECTOR(reads_in_place)(const struct weir__matrix_product *product) {
    return !narrow && !product->b_is_bf16 && product->rows <= FEW_ROWS && !product->flipped;
}

void VECTOR(pack_panel)(const struct weir__matrix_product *product, int64_t j, int64_t first,
                        const struct weir__panel *panel, float *to) {
    assert(j < product->columns && first < product->depth);
    if (!product->grad_weight) {
        (product->b_is_bf16 ? pack_bf16 : pack_weights)(product, j, first, panel, to);
        return;
    }
    const int64_t width = v_panel_width(product, j);
    VECTOR(panel_pack)
    (to, width, width, (const number *)product->b + first * product->b_row + j, product->b_row,
     panel->columns, panel->depth, 1);
}

bool VECTOR(packs_strips)(const struct weir__matrix_product *product) {
    return narrow || (product->grad_weight && product->a_step % BAD_STEP == 0);
}

VECTOR_INLINE void widen(float *to, const number *from, int64_t count) {
    for (int64_t i = 0; i < count; i++) to[i] = v_load_one(from + i);
}

/** to[tile][k][row of the tile] from a[k * a_step + row]: a's steps are too far apart for the
 * processor to foresee them. */
VECTOR_INLINE void pack_tiles(float *to, const number *a, int64_t a_step, int64_t rows,
                              int64_t depth, const int tile_rows) {
    enum { STEPS_AHEAD = 12, LINE = 64 / sizeof *a };
    for (int64_t k = 0; k < depth; k++, a += a_step, to += tile_rows) {
        int64_t row = 0;
        for (int64_t i = 0; i < rows; i += LINE) __builtin_prefetch(a + STEPS_AHEAD * a_step + i);
        for (; row + tile_rows <= rows; row += tile_rows) {
            float tile[WEIR__TILE_ROWS]; /* which is neither of both */
            widen(tile, a + row, tile_rows);
            memcpy(to + row * depth, tile, (size_t)tile_rows * sizeof *tile);
        }
        if (row < rows) widen(to + row * depth, a + row, rows - row);
    }
}

static void pack_adjacent(float *to, const number *a, int64_t a_step, int64_t rows, int64_t depth,
                          int64_t tile_rows) {
    if (tile_rows == WEIR__WIDE_ROWS)
        pack_tiles(to, a, a_step, rows, depth, WEIR__WIDE_ROWS);
    else
        pack_tiles(to, a, a_step, rows, depth, WEIR__TILE_ROWS);
}

void VECTOR(take_strip)(const struct weir__matrix_product *product, int64_t row, int64_t first,
                        float *to, struct weir__panel *panel) {
    assert(panel->rows <= WEIR__STRIP_ROWS && panel->depth <= WEIR__PRODUCT_STEPS);
    const number *a = product->a + row * product->a_row + first * product->a_step;
    panel->a = to;
    if (!VECTOR(packs_strips)(product)) {
        panel->a = (const void *)a;
        panel->a_row = product->a_row;
        panel->a_step = product->a_step;
    } else if (product->grad_weight) {
        panel->a_row = 1;
        panel->a_step = v_tile_rows(product);
        pack_adjacent(to, a, product->a_step, panel->rows, panel->depth, panel->a_step);
    } else {
        for (int64_t r = 0; r < panel->rows; r++)
            widen(to + r * panel->depth, a + r * product->a_row, panel->depth);
        panel->a_row = panel->depth;
        panel->a_step = 1;
    }
}
