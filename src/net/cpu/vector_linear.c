/* SPDX-License-Identifier: MIT */
/*
 * Products of our own: what runs without oneDNN, and with it for shapes too small to be worth a
 * library call. The right-hand matrix is packed 32 columns at a time, so that the loop reads memory
 * in order whichever way it is stored and whatever its stride does to the caches. Where it is read
 * just once anyway, for few rows, it stays where it is.
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

static int measure_depth(int64_t depth, size_t *workspace) {
    size_t bytes;
    if (!weir__multiply((size_t)depth, WEIR__PANEL * sizeof(float), &bytes))
        return WEIR_ERR_OVERFLOW;
    *workspace = bytes;
    return WEIR_OK;
}

/** At most this many rows are one pass over the right-hand matrix. */
enum { FEW_ROWS = 8 };

static void multiply(const struct product *product, float *packed) {
    bool in_place = !product->b_flipped && product->rows <= FEW_ROWS;
    for (int64_t j = 0; j < product->columns; j += WEIR__PANEL) {
        int64_t columns = product->columns - j < WEIR__PANEL ? product->columns - j : WEIR__PANEL;
        struct weir__panel panel = {.a = product->a,
                                    .a_row = product->a_row,
                                    .a_step = product->a_step,
                                    .b = packed,
                                    .b_row = WEIR__PANEL,
                                    .c = product->c + j,
                                    .c_row = product->columns,
                                    .rows = product->rows,
                                    .depth = product->depth,
                                    .columns = columns,
                                    .mode = product->mode};
        if (in_place && columns == WEIR__PANEL) {
            panel.b = product->b + j;
            panel.b_row = product->columns;
        } else if (product->b_flipped) {
            weir__panel_pack_rows(packed, product->b + j * product->depth, product->depth, columns,
                                  product->depth, 1);
        } else {
            weir__panel_pack(packed, WEIR__PANEL, WEIR__PANEL, product->b + j, product->columns,
                             columns, product->depth, 1);
        }
        weir__panel_product(&panel);
    }
}

int weir__vector_measure_linear(const struct weir__op_shape *shape, size_t *workspace) {
    return measure_depth(shape->in, workspace);
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
    return measure_depth(shape->out, workspace);
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
    return measure_depth(shape->rows * shape->tokens, workspace);
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
