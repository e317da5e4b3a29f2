/* SPDX-License-Identifier: MIT */
/*
 * Products of our own: what runs without oneDNN, and with it for shapes too small to be worth a
 * library call. The right-hand matrix is packed 32 columns at a time, so that the loop reads memory
 * in order whichever way it is stored and whatever its stride does to the caches.
 */
#include "net/cpu/panel.h"
#include "net/cpu/vector_calls.h"

#include <assert.h>

/** c (rows, columns) = a (rows, depth) * b. */
struct product {
    const float *a; /* element (r, k) at a[r * a_row + k * a_step] */
    int64_t a_row, a_step;
    const float *b; /* (depth, columns), or (columns, depth) where b_flipped */
    bool b_flipped;
    float *c; /* (rows, columns), contiguous */
    int64_t rows, depth, columns;
    enum weir__panel_mode mode;
};

/** What of the packed matrix is in use at a time: 32 KiB, which the first cache holds. */
enum { DEPTH_AT_ONCE = 256 };
/** At most this many rows are one pass over the right-hand matrix. */
enum { FEW_ROWS = 8 };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static bool needs_sums(int64_t depth, enum weir__panel_mode mode) {
    return mode == WEIR__PANEL_ADD && depth > DEPTH_AT_ONCE;
}

/** A panel, and where a sum over several parts of the depth is finished before it is added. */
static int measure_product(int64_t rows, int64_t depth, enum weir__panel_mode mode,
                           size_t *workspace) {
    assert(rows >= 0 && depth >= 0);
    int64_t panel_rows = least(depth, DEPTH_AT_ONCE) + (needs_sums(depth, mode) ? rows : 0);
    return weir__multiply((size_t)panel_rows, WEIR__PANEL * sizeof(float), workspace)
               ? WEIR_OK
               : WEIR_ERR_OVERFLOW;
}

/** Points `panel` at rows first … of columns j … of b, packed unless it is read just once. */
static void take_panel(const struct product *product, int64_t j, int64_t first, float *packed,
                       struct weir__panel *panel) {
    assert(j < product->columns && first < product->depth);
    panel->b = packed;
    panel->b_row = WEIR__PANEL;
    if (product->b_flipped) {
        weir__panel_pack_rows(packed, product->b + j * product->depth + first, product->depth,
                              panel->columns, panel->depth, 1);
        return;
    }
    const float *b = product->b + first * product->columns + j;
    if (product->rows <= FEW_ROWS && panel->columns == WEIR__PANEL) {
        panel->b = b;
        panel->b_row = product->columns;
    } else {
        weir__panel_pack(packed, WEIR__PANEL, WEIR__PANEL, b, product->columns, panel->columns,
                         panel->depth, 1);
    }
}

static void add_sums(const struct product *product, int64_t j, int64_t columns, const float *sums) {
    assert(columns <= WEIR__PANEL && j + columns <= product->columns);
    for (int64_t r = 0; r < product->rows; r++)
        weir__vector_flat_f32.accumulate(NULL, product->c + r * product->columns + j,
                                         sums + r * WEIR__PANEL, (uint64_t)columns);
}

/** The parts of the depth make one chain, so the bits are those of a loop over all of it. */
static void multiply(const struct product *product, float *workspace) {
    bool summing = needs_sums(product->depth, product->mode);
    float *sums = workspace + WEIR__PANEL * least(product->depth, DEPTH_AT_ONCE);
    for (int64_t j = 0; j < product->columns; j += WEIR__PANEL) {
        struct weir__panel panel = {.a_row = product->a_row,
                                    .a_step = product->a_step,
                                    .c = summing ? sums : product->c + j,
                                    .c_row = summing ? WEIR__PANEL : product->columns,
                                    .rows = product->rows,
                                    .columns = least(product->columns - j, WEIR__PANEL),
                                    .mode = summing ? WEIR__PANEL_SET : product->mode};
        for (int64_t k = 0; k < product->depth; k += DEPTH_AT_ONCE) {
            panel.a = product->a + k * product->a_step;
            panel.depth = least(product->depth - k, DEPTH_AT_ONCE);
            take_panel(product, j, k, workspace, &panel);
            weir__panel_product(&panel);
            panel.mode = WEIR__PANEL_CHAIN;
        }
        if (summing) add_sums(product, j, panel.columns, sums);
    }
}

int weir__vector_measure_linear(const struct weir__op_shape *shape, size_t *workspace) {
    return measure_product(shape->rows * shape->tokens, shape->in, WEIR__PANEL_SET, workspace);
}

/* The chain begins with the bias, which costs nothing more than beginning with 0. */
int weir__vector_linear(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const float *bias = shape->has_bias ? call->in[2] : NULL;
    struct product product = {.a = call->in[0],
                              .a_row = shape->in,
                              .a_step = 1,
                              .b = call->in[1],
                              .b_flipped = !shape->weight_in_out,
                              .c = call->out[0],
                              .rows = shape->rows * shape->tokens,
                              .depth = shape->in,
                              .columns = shape->out,
                              .mode = bias != NULL ? WEIR__PANEL_CHAIN : WEIR__PANEL_SET};
    if (bias != NULL)
        for (int64_t m = 0; m < product.rows; m++)
            memcpy(product.c + m * shape->out, bias, (size_t)shape->out * sizeof(float));
    multiply(&product, call->workspace);
    return WEIR_OK;
}

int weir__vector_measure_linear_grad_input(const struct weir__op_shape *shape, size_t *workspace) {
    return measure_product(shape->rows * shape->tokens, shape->out, WEIR__PANEL_SET, workspace);
}

int weir__vector_linear_grad_input(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct product product = {.a = call->in[0],
                              .a_row = shape->out,
                              .a_step = 1,
                              .b = call->in[1],
                              .b_flipped = shape->weight_in_out,
                              .c = call->out[0],
                              .rows = shape->rows * shape->tokens,
                              .depth = shape->out,
                              .columns = shape->in,
                              .mode = WEIR__PANEL_SET};
    multiply(&product, call->workspace);
    return WEIR_OK;
}

int weir__vector_measure_linear_grad_weight(const struct weir__op_shape *shape, size_t *workspace) {
    return measure_product(shape->weight_in_out ? shape->in : shape->out,
                           shape->rows * shape->tokens, WEIR__PANEL_ADD, workspace);
}

int weir__vector_linear_grad_weight(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    bool flip = shape->weight_in_out;
    struct product product = {.a = call->in[flip ? 0 : 1],
                              .a_row = 1,
                              .a_step = flip ? shape->in : shape->out,
                              .b = call->in[flip ? 1 : 0],
                              .c = call->out[0],
                              .rows = flip ? shape->in : shape->out,
                              .depth = shape->rows * shape->tokens,
                              .columns = flip ? shape->out : shape->in,
                              .mode = call->overwrite ? WEIR__PANEL_SET : WEIR__PANEL_ADD};
    multiply(&product, call->workspace);
    return WEIR_OK;
}
