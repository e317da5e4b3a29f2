/* SPDX-License-Identifier: MIT */
/**
 * A product of two matrices, as vector_linear.c cuts it into strips of rows and panels of columns,
 * and how those are packed: vector_operands.c, vector_pairs.c.
 */
#ifndef WEIR_PRODUCT_H
#define WEIR_PRODUCT_H

#include "net/cpu/panel.h"
#include "net/kernel.h"

/** c (rows, columns) = a (rows, depth) * b: activations with weights, which are exact and rounded
 * to what a `number` has, or the gradient of weights: activations with activations. */
struct weir__matrix_product {
    const number *a; /**< element (r, k) at a[r * a_row + k * a_step]; one of the two is 1 */
    int64_t a_row, a_step;
    const void *b; /**< (depth, columns); weights are floats, or bf16 where b_is_bf16, and
                        numbers where grad_weight */
    int64_t b_row; /**< from one of b's rows to the next, as it is stored */
    bool b_is_bf16;
    bool flipped;        /**< b is (columns, depth) */
    void *c;             /**< (rows, columns); numbers, or floats where grad_weight */
    int64_t c_row;       /**< from one of c's rows to the next */
    const float *packed; /**< all of b as panels, in the order in which they are read; NULL: each is
                              packed when it is needed */
    const float *bias;   /**< (columns): what the chain begins with; NULL: with 0 */
    const number *addend; /**< (rows, columns): what WEIR__PANEL_ADD adds to, c's rows apart, or
                               c; else NULL */
    int64_t rows, depth, columns;
    enum weir__panel_mode mode;
    bool grad_weight;
};

enum {
    WEIR__PRODUCT_STEPS = 256, /**< most of a panel's */
    WEIR__STRIP_ROWS = 96,     /**< whole tiles */
};
_Static_assert(WEIR__STRIP_ROWS % WEIR__TILE_ROWS == 0, "a strip is whole tiles");
_Static_assert(WEIR__STRIP_ROWS % WEIR__WIDE_ROWS == 0, "or whole wide ones");

/** How wide b's panel from column `j` on lies when it is packed: a wide tile's columns, or what of
 * a tile's the last ones fill. */
VECTOR_INLINE int64_t v_panel_width(const struct weir__matrix_product *product, int64_t j) {
    return v_least(WEIR__WIDE_COLUMNS, v_up(product->columns - j, WEIR__TILE_COLUMNS));
}
/** Rows of the tiles that go over b's panels, the last one's, too. */
VECTOR_INLINE int64_t v_tile_rows(const struct weir__matrix_product *product) {
    return product->columns > WEIR__TILE_COLUMNS ? WEIR__WIDE_ROWS : WEIR__TILE_ROWS;
}

/** Whether b's columns are read where they lie, as floats: they are read just once, and are
 * neighbours. */
bool VECTOR(reads_in_place)(const struct weir__matrix_product *product);
/** Packs b's columns from `j` on, a panel wide, at `to`: as many as `panel` has, and its depth's
 * steps from the number `first` on. */
void VECTOR(pack_panel)(const struct weir__matrix_product *product, int64_t j, int64_t first,
                        const struct weir__panel *panel, float *to);
/** Whether strips of a are packed: else they are read where they lie. */
bool VECTOR(packs_strips)(const struct weir__matrix_product *product);
/** Points `panel` at its rows of a, from `row` on, at most a strip, and its depth's steps, from the
 * number `first` on; packed at `to`. Where a's rows are neighbours, each tile's are together:
 * to[tile][step][row of the tile]. */
void VECTOR(take_strip)(const struct weir__matrix_product *product, int64_t row, int64_t first,
                        float *to, struct weir__panel *panel);

#endif
