/* SPDX-License-Identifier: MIT */
/**
 * Matrix products, and attention's blocks: everything is a product with a panel, a matrix of few
 * columns, 64 at most, whose rows lie at a fixed distance. A matrix that is stored the other way is
 * packed into panels first.
 */
#ifndef WEIR_PANEL_H
#define WEIR_PANEL_H

#include "net/cpu/vector.h"

#include <stdbool.h>

/** Most columns of a panel that is no wide tile. */
#define WEIR__PANEL 32
/** With WEIR_PAIRS, a and b are of pairs: a float is two neighbouring steps of the depth, each a
 * bf16, the first in the lower half of its bits. */

/** Columns of a tile, and rows. */
#if defined(__AVX512F__)
#define WEIR__TILE_COLUMNS 32
#define WEIR__TILE_ROWS 12
#else
#define WEIR__TILE_COLUMNS 16
#if defined(__AVX__) || defined(__aarch64__)
#define WEIR__TILE_ROWS 6
#else
#define WEIR__TILE_ROWS 2
#endif
#endif

/** Of a wide tile, which products have alone: it loads least for its multiply-adds, but columns of
 * attention and of convolutions seldom fill it. */
#if defined(__AVX512F__) && !defined(WEIR_PAIRS)
#define WEIR__WIDE_COLUMNS 64
#define WEIR__WIDE_ROWS 6
#else
#define WEIR__WIDE_COLUMNS WEIR__TILE_COLUMNS
#define WEIR__WIDE_ROWS WEIR__TILE_ROWS
#endif

/** How a product enters c. The sum over depth is one chain of multiply-adds in ascending order. */
enum weir__panel_mode {
    WEIR__PANEL_SET,   /**< c = sum */
    WEIR__PANEL_CHAIN, /**< the chain begins with c, or what `begin` says */
    WEIR__PANEL_ADD    /**< c = c + sum, or what `add` says; the sum made first, its chain may
                            begin, too */
};

/** The depth's steps, taken again from so many floats further on. */
struct weir__panel_again {
    int64_t times; /**< 0: once, too */
    int64_t a, b;
};

/** c (rows, columns) from a (rows, depth) and the panel b (depth, columns). Distances in floats. */
struct weir__panel {
    const float *a; /**< element (r, k) at a[r * a_row + k * a_step]; a_row or a_step is 1 */
    int64_t a_row, a_step;
    const float *b; /**< as many columns are read as VECTOR_F32(panel_width) says, of each tile */
    int64_t b_row;
    float *c; /**< only its columns are touched */
    int64_t c_row;
    int64_t rows, depth, columns;
    enum weir__panel_mode mode;
    const float *begin; /**< (rows, columns): what chains begin with; NULL: with c, or 0 */
    int64_t begin_row;  /**< 0: with the same in every row */
    const float *add;   /**< (rows, columns): what WEIR__PANEL_ADD adds to; NULL: c */
    int64_t add_row;
    struct weir__panel_again lines, planes; /**< all lines of a plane, then the next plane's */
    int64_t next; /**< from b to the panel that is brought near meanwhile; 0: none */
};

void VECTOR_F32(panel_product)(const struct weir__panel *panel);
/** The width of a tile that so many columns take, at most a tile's. */
int64_t VECTOR_F32(panel_width)(int64_t columns);

/** Packs `columns` rows of `from` as the columns of a panel: to[k * to_row + j] = scale *
 * from[j * from_row + k], 0 from `columns` up to to_row, a multiple of 16. */
void VECTOR(panel_pack_rows)(float *to, int64_t to_row, const number *from, int64_t from_row,
                             int64_t columns, int64_t depth, float scale);
/** Copies a panel's rows together: to[k * to_row + j] = scale * from[k * from_row + j], 0 from
 * `columns` up to `to_columns`, a multiple of 16. */
void VECTOR(panel_pack)(float *to, int64_t to_row, int64_t to_columns, const number *from,
                        int64_t from_row, int64_t columns, int64_t depth, float scale);
/** The same from floats. */
void VECTOR_F32(panel_pack_rows)(float *to, int64_t to_row, const float *from, int64_t from_row,
                                 int64_t columns, int64_t depth, float scale);
void VECTOR_F32(panel_pack)(float *to, int64_t to_row, int64_t to_columns, const float *from,
                            int64_t from_row, int64_t columns, int64_t depth, float scale);
/** And from bf16. */
void VECTOR_BF16(panel_pack_rows)(float *to, int64_t to_row, const struct weir__bf16 *from,
                                  int64_t from_row, int64_t columns, int64_t depth, float scale);
void VECTOR_BF16(panel_pack)(float *to, int64_t to_row, int64_t to_columns,
                             const struct weir__bf16 *from, int64_t from_row, int64_t columns,
                             int64_t depth, float scale);

#endif
