/* SPDX-License-Identifier: MIT */
/*
 * Products. The result is cut into blocks, which the team shares; each block is made by itself, as
 * GotoBLAS does: 256 steps of the depth at a time, the right-hand matrix's columns are packed as
 * panels as wide as a tile, which the second cache holds, and a strip of the left-hand matrix's
 * rows goes over them, so that each panel stays in the first cache while it does. The left-hand
 * matrix is read where it lies: with AVX-512 packing it took as long as it saved. But weights'
 * gradients read a column of it, whose distances fall on few sets of the cache, or few pages:
 * theirs is packed always with AVX-512, and with AVX2 where it must be.
 *
 * On one core this is within 5% of oneDNN's matmul with AVX-512 and at 90-98% of the roof with AVX2
 * (oneDNN 2.x has only its gemm there, which allocates while it runs), at every shape of a GPT. So
 * no library is asked: its sums would be its own, ours are one chain each in ascending order of the
 * depth, whatever the blocks, the team and the width of a register.
 *
 * Weights' gradients add up all rows of a group's micro-batches in one chain, which goes on from
 * where the one before left it: no sums wait beside it.
 *
 * Where activations are bf16 the sums of all the depth wait as floats, and are narrowed once. With
 * AVX512-BF16 a step is a pair of the depth's numbers (vector_pairs.c): on a core of Zen 4 180 to
 * 220 GFLOP/s of the 236 that the instruction has, packing counted, at every product of a GPT 512
 * wide with 256 rows or more.
 *
 * Weights are read from where `pack` left all their panels, one behind the other; without that each
 * call packs those of the block that it makes, which is a tenth of a GPT's step of 256 rows.
 */
#include "net/cpu/product.h"
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

#include <assert.h>

#if defined(WEIR_PAIRS)
enum { NUMBERS = 2 };
#else
enum { NUMBERS = 1 };
#endif

enum { DEPTH_AT_ONCE = WEIR__PRODUCT_STEPS * NUMBERS, BLOCKS_PER_MEMBER = 2 };
/** Of a block; a strip that is packed for each block is worth more of them. */
enum { BLOCK_COLUMNS = 384, GRADIENT_BLOCK_COLUMNS = 1024 };
/** Of a block whose sums wait in workspace. */
enum { SUMMED_ROWS = 512, NARROWED_ROWS = 1024 };

/** Whether activations are stored narrower than sums. */
static const bool narrow = sizeof(number) < sizeof(float);

/** Whether sums are narrowed when they are whole. */
static bool narrows(const struct weir__matrix_product *product) {
    return narrow && !product->grad_weight;
}

/** Where sums wait in workspace: to be narrowed, or added after all parts of the depth to what is
 * in c; before the operands are known they may have to. */
static bool needs_sums(const struct weir__matrix_product *product) {
    bool adds = product->mode == WEIR__PANEL_ADD && product->depth > DEPTH_AT_ONCE;
    bool apart = product->addend != NULL && (const void *)product->addend != product->c;
    return (adds && !apart) || narrows(product);
}

static int64_t block_columns(const struct weir__matrix_product *product) {
    return product->grad_weight ? GRADIENT_BLOCK_COLUMNS : BLOCK_COLUMNS;
}

static int64_t summed_rows(const struct weir__matrix_product *product) {
    return narrows(product) ? NARROWED_ROWS : SUMMED_ROWS;
}

/** Steps of a panel for so much of the depth. */
static int64_t steps_of(int64_t depth) {
    return (depth + NUMBERS - 1) / NUMBERS;
}

/* ---- workspace, one for each member of the team ---- */

struct product_areas {
    float *panels; /* one behind the other: (depth, a panel's columns) */
    float *strip;  /* (rows / tile, depth, tile) */
    float *sums;   /* (rows, columns) */
};

/** Floats for a product of at most so many rows, and so on; places them in `memory`. */
static int64_t lay_out(const struct weir__matrix_product *most, float *memory,
                       struct product_areas *areas) {
    int64_t depth = steps_of(v_least(most->depth, DEPTH_AT_ONCE));
    int64_t columns = v_up(v_least(most->columns, block_columns(most)), WEIR__TILE_COLUMNS);
    int64_t strip = columns * depth;
    int64_t sums = strip + (VECTOR(packs_strips)(most) ? v_up(WEIR__STRIP_ROWS * depth, LANES) : 0);
    if (memory != NULL) *areas = (struct product_areas){memory, memory + strip, memory + sums};
    if (!needs_sums(most)) return sums;
    return sums + v_up(v_least(most->rows, summed_rows(most)), v_tile_rows(most)) * columns;
}

/* ---- panels ---- */

/** Floats of all b's panels before those of a part of the depth, which begins with number `first`;
 * all, for the depth itself. In each part they stand in the order of their columns. */
static int64_t packed_before(const struct weir__matrix_product *product, int64_t first) {
    assert(first == product->depth || first % DEPTH_AT_ONCE == 0);
    return steps_of(first) * v_up(product->columns, WEIR__TILE_COLUMNS);
}

/** Points `panel` at its depth's steps, from the number `first` on, of b's columns from `j` on;
 * `to` has room for them. */
static void take_panel(const struct weir__matrix_product *product, int64_t j, int64_t first,
                       float *to, struct weir__panel *panel) {
    panel->b_row = v_panel_width(product, j);
    if (product->packed != NULL) {
        assert(j % WEIR__WIDE_COLUMNS == 0);
        panel->b = product->packed + packed_before(product, first) + j * panel->depth;
    } else if (panel->columns == panel->b_row && VECTOR(reads_in_place)(product)) {
        panel->b = (const float *)product->b + first * product->b_row + j;
        panel->b_row = product->b_row;
    } else {
        VECTOR(pack_panel)(product, j, first, panel, to);
        panel->b = to;
    }
}

/** The panel behind this one in memory, if packed ones come from there. One whose rows are whole
 * registers of AVX-512 lasts long enough for the processor to foresee the next by itself. */
static const float *ahead_of(const struct weir__matrix_product *product,
                             const struct weir__panel *panel) {
    if (product->packed == NULL || WEIR__TILE_COLUMNS > LANES) return NULL;
    const float *next = panel->b + panel->depth * WEIR__TILE_COLUMNS;
    return next < product->packed + packed_before(product, product->depth) ? next : NULL;
}

struct panel_packing {
    const struct weir__matrix_product *product;
    float *to;
};

/** A panel's columns, in all the depth. */
static void pack_part(void *context, uint32_t part, uint32_t member) {
    const struct panel_packing *packing = context;
    const struct weir__matrix_product *product = packing->product;
    const int64_t j = (int64_t)part * WEIR__WIDE_COLUMNS;
    struct weir__panel panel = {.columns = v_least(product->columns - j, WEIR__WIDE_COLUMNS)};
    (void)member;
    for (int64_t first = 0; first < product->depth; first += DEPTH_AT_ONCE) {
        panel.depth = steps_of(v_least(product->depth - first, DEPTH_AT_ONCE));
        float *to = packing->to + packed_before(product, first) + j * panel.depth;
        VECTOR(pack_panel)(product, j, first, &panel, to);
    }
}

/* ---- a block ---- */

struct product_block {
    int64_t row, rows, column, columns;
};

/** A strip of rows with a panel, whose tiles have so many rows and are `tile_step` floats apart.
 * What is `ahead`, a panel, is brought into the second cache meanwhile. */
static void multiply_tiles(const struct weir__panel *panel, int64_t rows, int64_t tile_step,
                           const float *ahead) {
    const int64_t each = panel->depth * WEIR__TILE_COLUMNS / (WEIR__STRIP_ROWS / rows);
    struct weir__panel tile = *panel;
    for (int64_t row = 0; row < panel->rows; row += rows) {
        for (int64_t i = 0; ahead != NULL && i < each; i += LANES)
            __builtin_prefetch(ahead + i, 0, 2);
        if (ahead != NULL) ahead += each;
        tile.rows = v_least(panel->rows - row, rows);
        VECTOR_F32(panel_product)(&tile);
        tile.a += tile_step;
        tile.c += rows * panel->c_row;
        if (tile.begin != NULL) tile.begin += rows * panel->begin_row;
        if (tile.add != NULL) tile.add += rows * panel->add_row;
    }
}

/** The same; `packed`: tiles of neighbours, each by itself. */
static void multiply_strip(const struct weir__panel *panel, int64_t rows, bool packed,
                           const float *ahead) {
    packed = packed && panel->a_row == 1;
    if (packed || ahead != NULL)
        multiply_tiles(panel, rows, rows * (packed ? panel->depth : panel->a_row), ahead);
    else
        VECTOR_F32(panel_product)(panel);
}

/** All of a block, so much of the depth from `first` on; c is the block's. */
static void multiply_depth(const struct weir__matrix_product *product,
                           const struct product_block *block, int64_t first,
                           const struct product_areas *areas, struct weir__panel panel) {
    struct weir__panel panels[GRADIENT_BLOCK_COLUMNS / WEIR__TILE_COLUMNS];
    const bool packed = VECTOR(packs_strips)(product);
    int64_t count = 0;
    float *const c = panel.c;
    for (int64_t j = 0; j < block->columns; j += WEIR__WIDE_COLUMNS, count++) {
        panels[count] = panel;
        if (panel.begin != NULL) panels[count].begin = panel.begin + j;
        if (panel.add != NULL) panels[count].add = panel.add + j;
        panels[count].columns = v_least(block->columns - j, WEIR__WIDE_COLUMNS);
        take_panel(product, block->column + j, first, areas->panels + j * panel.depth,
                   &panels[count]);
    }
    for (int64_t row = 0; row < block->rows; row += WEIR__STRIP_ROWS) {
        panel.rows = v_least(block->rows - row, WEIR__STRIP_ROWS);
        VECTOR(take_strip)(product, block->row + row, first, areas->strip, &panel);
        for (int64_t i = 0; i < count; i++) {
            panel.b = panels[i].b;
            panel.b_row = panels[i].b_row;
            panel.columns = panels[i].columns;
            panel.begin = panels[i].begin;
            if (panel.begin != NULL) panel.begin += row * panel.begin_row;
            panel.add = panels[i].add;
            if (panel.add != NULL) panel.add += row * panel.add_row;
            panel.c = c + row * panel.c_row + i * WEIR__WIDE_COLUMNS;
            multiply_strip(&panel, v_tile_rows(product), packed,
                           row == 0 ? ahead_of(product, &panel) : NULL);
        }
    }
}

/** Sums that waited in workspace are narrowed. */
static void narrow_sums(const struct weir__matrix_product *product,
                        const struct product_block *block, const float *sums) {
    assert(block->row + block->rows <= product->rows);
    for (int64_t r = 0; r < block->rows; r++, sums += block->columns) {
        int64_t at = (block->row + r) * product->c_row + block->column;
        number *c = (number *)product->c + at;
        if (product->addend != NULL)
            row_narrow_add(c, sums, product->addend + at, block->columns);
        else
            row_narrow(c, sums, block->columns);
    }
}

/** The block's bias, rounded as weights are. */
static void round_bias(const float *bias, int64_t count, float *to) {
    assert(count <= BLOCK_COLUMNS);
    for (int64_t j = 0; j < count; j++) {
        number rounded;
        v_store_one(&rounded, bias[j]);
        to[j] = v_load_one(&rounded);
    }
}

/** The block's sums while they grow: in workspace, or in c. */
static void place_sums(const struct weir__matrix_product *product,
                       const struct product_block *block, const struct product_areas *areas,
                       struct weir__panel *panel) {
    const bool waits = needs_sums(product);
    const int64_t at = block->row * product->c_row + block->column;
    panel->c = waits ? areas->sums : (float *)product->c + at;
    panel->c_row = waits ? block->columns : product->c_row;
}

/** The last part of the depth, whose chains go on from where sums are: to c, and what is there or
 * in the addend is added to them. */
static void end_sums(const struct weir__matrix_product *product, const struct product_block *block,
                     bool begun, struct weir__panel *panel) {
    const int64_t at = block->row * product->c_row + block->column;
    assert(product->mode == WEIR__PANEL_ADD && product->addend != NULL && !narrows(product));
    if (begun) {
        panel->begin = panel->c;
        panel->begin_row = panel->c_row;
    }
    panel->mode = WEIR__PANEL_ADD;
    panel->c = (float *)product->c + at;
    panel->c_row = product->c_row;
    panel->add = (const float *)(const void *)product->addend + at;
    panel->add_row = product->c_row;
}

/** The parts of the depth make one chain, so the bits are those of a loop over all of it. */
static void multiply_block(const struct weir__matrix_product *product,
                           const struct product_block *block, const struct product_areas *areas) {
    const bool adds = product->mode == WEIR__PANEL_ADD;
    float bias[BLOCK_COLUMNS];
    struct weir__panel panel = {.mode = adds ? WEIR__PANEL_SET : product->mode};
    if (product->bias != NULL) {
        round_bias(product->bias + block->column, block->columns, bias);
        panel.begin = bias;
    }
    place_sums(product, block, areas, &panel);
    for (int64_t k = 0; k < product->depth; k += DEPTH_AT_ONCE) {
        panel.depth = steps_of(v_least(product->depth - k, DEPTH_AT_ONCE));
        if (adds && !narrows(product) && k + DEPTH_AT_ONCE >= product->depth)
            end_sums(product, block, k > 0, &panel);
        multiply_depth(product, block, k, areas, panel);
        panel.mode = WEIR__PANEL_CHAIN;
        panel.begin = NULL;
    }
    if (narrows(product)) narrow_sums(product, block, areas->sums);
}

/* ---- all blocks ---- */

struct sharing {
    const struct weir__matrix_product *product;
    int64_t rows, columns; /* of a block */
    float *workspace;
};

/** So many parts of nearly one size, each of whole units. */
static int64_t cut(int64_t length, int64_t parts, int64_t unit) {
    return v_up((length + parts - 1) / parts, unit);
}

static void multiply_part(void *context, uint32_t part, uint32_t member) {
    const struct sharing *sharing = context;
    const struct weir__matrix_product *product = sharing->product;
    int64_t across = v_parts(product->columns, sharing->columns);
    struct product_block block = {.row = part / across * sharing->rows,
                                  .column = part % across * sharing->columns};
    struct product_areas areas;
    block.rows = v_least(product->rows - block.row, sharing->rows);
    block.columns = v_least(product->columns - block.column, sharing->columns);
    int64_t size = lay_out(product, NULL, NULL);
    lay_out(product, sharing->workspace + member * size, &areas);
    multiply_block(product, &block, &areas);
}

static double work_of(const struct weir__matrix_product *product) {
    return (double)product->rows * (double)product->depth * (double)product->columns;
}

/** Halves blocks until there are enough of them for the team. */
static int64_t cut_blocks(struct sharing *sharing, uint32_t threads) {
    const struct weir__matrix_product *product = sharing->product;
    int64_t down = needs_sums(product) ? v_parts(product->rows, summed_rows(product)) : 1;
    int64_t across = v_parts(product->columns, block_columns(product));
    const int64_t rows = v_tile_rows(product), columns = WEIR__WIDE_COLUMNS;
    double wanted = threads > 1 ? threads * BLOCKS_PER_MEMBER : 1;
    if (wanted > work_of(product) / WEIR__SHARED_LEAST)
        wanted = work_of(product) / WEIR__SHARED_LEAST;
    for (;;) {
        sharing->rows = cut(product->rows, down, rows);
        sharing->columns = cut(product->columns, across, columns);
        int64_t count =
            v_parts(product->rows, sharing->rows) * v_parts(product->columns, sharing->columns);
        bool tiny = sharing->rows <= rows && sharing->columns <= columns;
        if ((double)count >= wanted || tiny) return count;
        if (sharing->rows > sharing->columns || sharing->columns <= columns)
            down *= 2;
        else
            across *= 2;
    }
}

static void make_product(const struct weir__op_call *call,
                         const struct weir__matrix_product *product) {
    struct sharing sharing = {.product = product, .workspace = call->workspace};
    if (product->rows == 0 || product->columns == 0) return;
    weir__share(call, cut_blocks(&sharing, call->shape->threads), work_of(product), multiply_part,
                &sharing);
}

/* ---- the ops ---- */

static struct weir__matrix_product forward_of(const struct weir__op_shape *shape) {
    return (struct weir__matrix_product){.b_is_bf16 = shape->stored == WEIR_BF16,
                                         .b_row = shape->weight_in_out ? shape->out : shape->in,
                                         .a_row = shape->in,
                                         .a_step = 1,
                                         .flipped = !shape->weight_in_out,
                                         .c_row = shape->out,
                                         .rows = shape->rows * shape->tokens,
                                         .depth = shape->in,
                                         .columns = shape->out,
                                         .mode =
                                             shape->has_bias ? WEIR__PANEL_CHAIN : WEIR__PANEL_SET};
}

static struct weir__matrix_product grad_input_of(const struct weir__op_shape *shape) {
    return (struct weir__matrix_product){.b_is_bf16 = shape->stored == WEIR_BF16,
                                         .b_row = shape->weight_in_out ? shape->out : shape->in,
                                         .a_row = shape->out,
                                         .a_step = 1,
                                         .flipped = shape->weight_in_out,
                                         .c_row = shape->in,
                                         .rows = shape->rows * shape->tokens,
                                         .depth = shape->out,
                                         .columns = shape->in,
                                         .mode = WEIR__PANEL_SET};
}

/** The same, to be added. */
static struct weir__matrix_product added(struct weir__matrix_product product) {
    product.mode = WEIR__PANEL_ADD;
    return product;
}

static struct weir__matrix_product grad_weight_of(const struct weir__op_shape *shape) {
    bool flip = shape->weight_in_out;
    return (struct weir__matrix_product){.b_row = flip ? shape->out : shape->in,
                                         .a_row = 1,
                                         .a_step = flip ? shape->in : shape->out,
                                         .c_row = flip ? shape->out : shape->in,
                                         .rows = flip ? shape->in : shape->out,
                                         .depth = shape->rows * shape->tokens,
                                         .columns = flip ? shape->out : shape->in,
                                         .mode = WEIR__PANEL_CHAIN,
                                         .grad_weight = true};
}

static struct weir__matrix_product product_of(const struct weir__op_shape *shape) {
    if (shape->op == WEIR__OP_linear_grad_input) return grad_input_of(shape);
    if (shape->op == WEIR__OP_linear_grad_weight) return grad_weight_of(shape);
    if (shape->op == WEIR__OP_linear_add) return added(forward_of(shape));
    if (shape->op == WEIR__OP_linear_grad_input_add) return added(grad_input_of(shape));
    assert(shape->op == WEIR__OP_linear || shape->op == WEIR__OP_linear_cross_entropy ||
           shape->op == WEIR__OP_linear_cross_entropy_grad);
    return forward_of(shape);
}

int VECTOR(measure_product)(const struct weir__op_shape *shape, size_t *workspace) {
    const struct weir__matrix_product product = product_of(shape);
    size_t each = (size_t)lay_out(&product, NULL, NULL) * sizeof(float);
    return weir__multiply(each, shape->threads, workspace) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/** One whose right-hand matrix is the weights. The chain begins with the bias, which costs nothing
 * more than beginning with 0. */
static int multiply_weights(const struct weir__op_call *call, const number *addend,
                            const float *bias) {
    struct weir__matrix_product product = product_of(call->shape);
    product.a = call->in[0];
    product.b = call->in[1];
    product.packed = call->packed;
    product.bias = bias;
    product.addend = addend;
    product.c = call->out[0];
    make_product(call, &product);
    return WEIR_OK;
}

int VECTOR(linear)(const struct weir__op_call *call) {
    return multiply_weights(call, NULL, call->shape->has_bias ? call->in[2] : NULL);
}

int VECTOR(linear_grad_input)(const struct weir__op_call *call) {
    return multiply_weights(call, NULL, NULL);
}

int VECTOR(linear_add)(const struct weir__op_call *call) {
    return multiply_weights(call, call->in[2], call->shape->has_bias ? call->in[3] : NULL);
}

int VECTOR(linear_grad_input_add)(const struct weir__op_call *call) {
    return multiply_weights(call, call->in[2], NULL);
}

int VECTOR(linear_grad_weight)(const struct weir__op_call *call) {
    struct weir__matrix_product product = grad_weight_of(call->shape);
    bool flip = call->shape->weight_in_out;
    product.a = call->in[flip ? 0 : 1];
    product.b = call->in[flip ? 1 : 0];
    product.c = call->out[0];
    if (call->overwrite) product.mode = WEIR__PANEL_SET;
    make_product(call, &product);
    return WEIR_OK;
}

/* ---- packed weights ---- */

/* None where each call reads them where they lie. */
int VECTOR(measure_pack_linear)(const struct weir__op_shape *shape, size_t *bytes) {
    assert(shape->op != WEIR__OP_linear_grad_weight);
    struct weir__matrix_product product = product_of(shape);
    product.rows = shape->rows_max * shape->tokens;
    bool whole = product.columns % WEIR__TILE_COLUMNS == 0;
    int64_t floats =
        whole && VECTOR(reads_in_place)(&product) ? 0 : packed_before(&product, product.depth);
    return weir__multiply((size_t)floats, sizeof(float), bytes) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

static int pack(const struct weir__op_call *call, void *packed) {
    struct weir__matrix_product product = product_of(call->shape);
    struct panel_packing packing = {&product, packed};
    assert(packed != NULL);
    product.b = call->in[1];
    double work = WEIR__SHARED_NUMBER * (double)product.depth * (double)product.columns;
    weir__share(call, v_parts(product.columns, WEIR__WIDE_COLUMNS), work, pack_part, &packing);
    return WEIR_OK;
}

int VECTOR(pack_linear)(const struct weir__op_call *call, void *packed) {
    return pack(call, packed);
}

/* Another one: these are the weights turned (net/kernel.h: shares_pack). */
int VECTOR(pack_linear_grad_input)(const struct weir__op_call *call, void *packed) {
    return pack(call, packed);
}
