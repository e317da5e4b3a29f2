/* SPDX-License-Identifier: MIT */
/*
 * Products. The result is cut into blocks, which the team shares; each block is made by itself, as
 * GotoBLAS does: 256 of the depth at a time, the right-hand matrix's columns are packed as panels
 * one tile wide, which the second cache holds, and a strip of the left-hand matrix's rows goes over
 * them, so that each panel stays in the first cache while it does. The left-hand matrix is read
 * where it lies, which is faster than packing it unless its distances fall on few sets of the
 * cache.
 *
 * On one core this is within 5% of oneDNN's matmul with AVX-512 and at 90-98% of the roof with AVX2
 * (oneDNN 2.x has only its gemm there, which allocates while it runs), at every shape of a GPT. So
 * no library is asked: its sums would be its own, ours are one chain each in ascending order of the
 * depth, whatever the blocks, the team and the width of a register.
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
    float *c;          /* (rows, columns), contiguous */
    const float *bias; /* (columns): what the chain begins with; NULL: with 0 */
    int64_t rows, depth, columns;
    enum weir__panel_mode mode;
};

enum {
    DEPTH_AT_ONCE = 256,
    STRIP_ROWS = 96, /* whole tiles */
    BLOCK_COLUMNS = 384,
    SUMMED_ROWS = 256, /* of a block whose sums wait in workspace */
    FEW_ROWS = 8,      /* at most so many are one pass over the right-hand matrix */
    BLOCKS_PER_MEMBER = 2
};
/** Distances in floats that fall on few sets of the first cache. */
enum { BAD_STEP = 1024 };
_Static_assert(STRIP_ROWS % WEIR__TILE_ROWS == 0, "a strip is whole tiles");

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t up(int64_t count, int64_t unit) {
    return (count + unit - 1) / unit * unit;
}

/** Where a sum over several parts of the depth is finished before it is added. */
static bool needs_sums(int64_t depth, enum weir__panel_mode mode) {
    return mode == WEIR__PANEL_ADD && depth > DEPTH_AT_ONCE;
}

/** Whether the left-hand matrix is packed. */
static bool packs(const struct product *product) {
    return product->a_row == 1 && product->a_step % BAD_STEP == 0;
}

/* ---- workspace, one for each member of the team ---- */

struct product_areas {
    float *panels; /* (columns / tile, depth, tile) */
    float *strip;  /* (rows / tile, depth, tile) */
    float *sums;   /* (rows, columns) */
};

/** Floats for a product of at most so many rows, and so on; places them in `memory`. */
static int64_t lay_out(const struct product *most, float *memory, struct product_areas *areas) {
    int64_t depth = least(most->depth, DEPTH_AT_ONCE);
    int64_t columns = up(least(most->columns, BLOCK_COLUMNS), WEIR__TILE_COLUMNS);
    int64_t strip = columns * depth;
    int64_t sums = strip + (packs(most) ? up(STRIP_ROWS * depth, LANES) : 0);
    if (memory != NULL) *areas = (struct product_areas){memory, memory + strip, memory + sums};
    if (!needs_sums(most->depth, most->mode)) return sums;
    return sums + up(least(most->rows, SUMMED_ROWS), WEIR__TILE_ROWS) * columns;
}

static int measure_product(const struct product *product, uint32_t threads, size_t *workspace) {
    assert(product->rows >= 0 && product->depth >= 0 && threads > 0);
    size_t each = (size_t)lay_out(product, NULL, NULL) * sizeof(float);
    return weir__multiply(each, threads, workspace) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/* ---- a block ---- */

struct product_block {
    int64_t row, rows, column, columns;
};

/** Points `panel` at `depth` rows, from `first` on, of b's columns from `j` on, packed at `to`
 * unless they are read just once. */
static void take_panel(const struct product *product, int64_t j, int64_t first, float *to,
                       struct weir__panel *panel) {
    assert(j < product->columns && first < product->depth);
    panel->b = to;
    panel->b_row = WEIR__TILE_COLUMNS;
    if (product->b_flipped) {
        VECTOR(panel_pack_rows)
        (to, WEIR__TILE_COLUMNS, product->b + j * product->depth + first, product->depth,
         panel->columns, panel->depth, 1);
        return;
    }
    const float *b = product->b + first * product->columns + j;
    if (product->rows <= FEW_ROWS && panel->columns == WEIR__TILE_COLUMNS) {
        panel->b = b;
        panel->b_row = product->columns;
    } else {
        VECTOR(panel_pack)
        (to, WEIR__TILE_COLUMNS, WEIR__TILE_COLUMNS, b, product->columns, panel->columns,
         panel->depth, 1);
    }
}

/** to[tile][k][row of the tile] from a[k * a_step + row]. */
static void pack_strip(float *to, const float *a, int64_t a_step, int64_t rows, int64_t depth) {
    assert(rows <= STRIP_ROWS && depth <= DEPTH_AT_ONCE);
    for (int64_t k = 0; k < depth; k++, a += a_step, to += WEIR__TILE_ROWS) {
        int64_t row = 0;
        for (; row + WEIR__TILE_ROWS <= rows; row += WEIR__TILE_ROWS)
            memcpy(to + row * depth, a + row, WEIR__TILE_ROWS * sizeof *a);
        if (row < rows) memcpy(to + row * depth, a + row, (size_t)(rows - row) * sizeof *a);
    }
}

/** A strip of rows with a panel. */
static void multiply_strip(const struct product *product, const struct weir__panel *panel,
                           const float *packed) {
    if (packed == NULL) {
        VECTOR_F32(panel_product)(panel);
        return;
    }
    struct weir__panel tile = *panel;
    assert(product->a_row == 1);
    tile.a_step = WEIR__TILE_ROWS;
    for (int64_t row = 0; row < panel->rows; row += WEIR__TILE_ROWS) {
        tile.rows = least(panel->rows - row, WEIR__TILE_ROWS);
        tile.a = packed + row * panel->depth;
        tile.c = panel->c + row * panel->c_row;
        VECTOR_F32(panel_product)(&tile);
    }
}

/** All of a block, `depth` of the depth from `first` on; c is the block's. */
static void multiply_depth(const struct product *product, const struct product_block *block,
                           int64_t first, const struct product_areas *areas,
                           struct weir__panel panel) {
    struct weir__panel panels[BLOCK_COLUMNS / WEIR__TILE_COLUMNS];
    int64_t count = 0;
    float *const c = panel.c;
    for (int64_t j = 0; j < block->columns; j += WEIR__TILE_COLUMNS, count++) {
        panel.columns = least(block->columns - j, WEIR__TILE_COLUMNS);
        take_panel(product, block->column + j, first, areas->panels + j * panel.depth, &panel);
        panels[count] = panel;
    }
    float *packed = packs(product) ? areas->strip : NULL;
    for (int64_t row = 0; row < block->rows; row += STRIP_ROWS) {
        int64_t rows = least(block->rows - row, STRIP_ROWS);
        const float *a = product->a + (block->row + row) * product->a_row + first * product->a_step;
        if (packed != NULL) pack_strip(packed, a, product->a_step, rows, panel.depth);
        for (int64_t i = 0; i < count; i++) {
            panels[i].a = a;
            panels[i].rows = rows;
            panels[i].c = c + row * panel.c_row + i * WEIR__TILE_COLUMNS;
            multiply_strip(product, &panels[i], packed);
        }
    }
}

static void add_sums(const struct product *product, const struct product_block *block,
                     const float *sums) {
    assert(block->row + block->rows <= product->rows);
    for (int64_t r = 0; r < block->rows; r++)
        VECTOR_F32(flat_f32).accumulate(
            NULL, product->c + (block->row + r) * product->columns + block->column,
            sums + r * block->columns, (uint64_t)block->columns);
}

/** The parts of the depth make one chain, so the bits are those of a loop over all of it. */
static void multiply_block(const struct product *product, const struct product_block *block,
                           const struct product_areas *areas) {
    bool summing = needs_sums(product->depth, product->mode);
    float *c = product->c + block->row * product->columns + block->column;
    struct weir__panel panel = {.a_row = product->a_row,
                                .a_step = product->a_step,
                                .c = summing ? areas->sums : c,
                                .c_row = summing ? block->columns : product->columns,
                                .mode = summing ? WEIR__PANEL_SET : product->mode};
    for (int64_t r = 0; r < block->rows && product->bias != NULL; r++)
        memcpy(c + r * product->columns, product->bias + block->column,
               (size_t)block->columns * sizeof *c);
    for (int64_t k = 0; k < product->depth; k += DEPTH_AT_ONCE) {
        panel.depth = least(product->depth - k, DEPTH_AT_ONCE);
        multiply_depth(product, block, k, areas, panel);
        panel.mode = WEIR__PANEL_CHAIN;
    }
    if (summing) add_sums(product, block, areas->sums);
}

/* ---- all blocks ---- */

struct sharing {
    const struct product *product;
    int64_t rows, columns; /* of a block */
    float *workspace;
};

/** So many parts of nearly one size, each of whole units. */
static int64_t cut(int64_t length, int64_t parts, int64_t unit) {
    return up((length + parts - 1) / parts, unit);
}

static int64_t count_of(int64_t length, int64_t part) {
    return (length + part - 1) / part;
}

static void multiply_part(void *context, uint32_t part, uint32_t member) {
    const struct sharing *sharing = context;
    const struct product *product = sharing->product;
    int64_t across = count_of(product->columns, sharing->columns);
    struct product_block block = {.row = part / across * sharing->rows,
                                  .column = part % across * sharing->columns};
    struct product_areas areas;
    block.rows = least(product->rows - block.row, sharing->rows);
    block.columns = least(product->columns - block.column, sharing->columns);
    int64_t size = lay_out(product, NULL, NULL);
    lay_out(product, sharing->workspace + member * size, &areas);
    multiply_block(product, &block, &areas);
}

static double work_of(const struct product *product) {
    return (double)product->rows * (double)product->depth * (double)product->columns;
}

/** Halves blocks until there are enough of them for the team. */
static int64_t cut_blocks(struct sharing *sharing, uint32_t threads) {
    const struct product *product = sharing->product;
    bool summing = needs_sums(product->depth, product->mode);
    int64_t down = summing ? count_of(product->rows, SUMMED_ROWS) : 1;
    int64_t across = count_of(product->columns, BLOCK_COLUMNS);
    double wanted = threads > 1 ? threads * BLOCKS_PER_MEMBER : 1;
    if (wanted > work_of(product) / WEIR__SHARED_LEAST)
        wanted = work_of(product) / WEIR__SHARED_LEAST;
    for (;;) {
        sharing->rows = cut(product->rows, down, WEIR__TILE_ROWS);
        sharing->columns = cut(product->columns, across, WEIR__TILE_COLUMNS);
        int64_t count =
            count_of(product->rows, sharing->rows) * count_of(product->columns, sharing->columns);
        bool tiny = sharing->rows <= WEIR__TILE_ROWS && sharing->columns <= WEIR__TILE_COLUMNS;
        if ((double)count >= wanted || tiny) return count;
        if (sharing->rows > sharing->columns || sharing->columns <= WEIR__TILE_COLUMNS)
            down *= 2;
        else
            across *= 2;
    }
}

static int multiply(const struct weir__op_call *call, const struct product *product) {
    struct sharing sharing = {.product = product, .workspace = call->workspace};
    if (product->rows == 0 || product->columns == 0) return WEIR_OK;
    weir__share(call, cut_blocks(&sharing, call->shape->threads), work_of(product), multiply_part,
                &sharing);
    return WEIR_OK;
}

/* ---- the ops ---- */

static struct product forward_of(const struct weir__op_shape *shape) {
    return (struct product){.a_row = shape->in,
                            .a_step = 1,
                            .b_flipped = !shape->weight_in_out,
                            .rows = shape->rows * shape->tokens,
                            .depth = shape->in,
                            .columns = shape->out,
                            .mode = shape->has_bias ? WEIR__PANEL_CHAIN : WEIR__PANEL_SET};
}

int VECTOR(measure_linear)(const struct weir__op_shape *shape, size_t *workspace) {
    const struct product product = forward_of(shape);
    return measure_product(&product, shape->threads, workspace);
}

/* The chain begins with the bias, which costs nothing more than beginning with 0. */
int VECTOR(linear)(const struct weir__op_call *call) {
    struct product product = forward_of(call->shape);
    product.a = call->in[0];
    product.b = call->in[1];
    product.bias = call->shape->has_bias ? call->in[2] : NULL;
    product.c = call->out[0];
    return multiply(call, &product);
}

static struct product grad_input_of(const struct weir__op_shape *shape) {
    return (struct product){.a_row = shape->out,
                            .a_step = 1,
                            .b_flipped = shape->weight_in_out,
                            .rows = shape->rows * shape->tokens,
                            .depth = shape->out,
                            .columns = shape->in,
                            .mode = WEIR__PANEL_SET};
}

int VECTOR(measure_linear_grad_input)(const struct weir__op_shape *shape, size_t *workspace) {
    const struct product product = grad_input_of(shape);
    return measure_product(&product, shape->threads, workspace);
}

int VECTOR(linear_grad_input)(const struct weir__op_call *call) {
    struct product product = grad_input_of(call->shape);
    product.a = call->in[0];
    product.b = call->in[1];
    product.c = call->out[0];
    return multiply(call, &product);
}

static struct product grad_weight_of(const struct weir__op_shape *shape) {
    bool flip = shape->weight_in_out;
    return (struct product){.a_row = 1,
                            .a_step = flip ? shape->in : shape->out,
                            .rows = flip ? shape->in : shape->out,
                            .depth = shape->rows * shape->tokens,
                            .columns = flip ? shape->out : shape->in,
                            .mode = WEIR__PANEL_ADD};
}

int VECTOR(measure_linear_grad_weight)(const struct weir__op_shape *shape, size_t *workspace) {
    const struct product product = grad_weight_of(shape);
    return measure_product(&product, shape->threads, workspace);
}

int VECTOR(linear_grad_weight)(const struct weir__op_call *call) {
    struct product product = grad_weight_of(call->shape);
    bool flip = call->shape->weight_in_out;
    product.a = call->in[flip ? 0 : 1];
    product.b = call->in[flip ? 1 : 0];
    product.c = call->out[0];
    if (call->overwrite) product.mode = WEIR__PANEL_SET;
    return multiply(call, &product);
}
