/* SPDX-License-Identifier: MIT */
/*
 * Ops over the pixels of each row and channel: instance norm, dropout2d, and both with a leaky ReLU
 * in one. Rows are done one after another, so that what a row's sums have read is still near when
 * its numbers are made.
 *
 * A row lies as one flat array whose number i is of channel i % C. It is walked in blocks of four
 * whole vectors, and comes back to the same channels after a period, the least common multiple of
 * C and a block: so any number of channels fills all lanes, and what belongs to a channel is a
 * table of one period. Sums are kept per number of the period ("place") and folded at the end.
 *
 * Moments are made in one pass over memory: a tile of 64 numbers per place is read from the first
 * cache twice, for its mean and for the squares around that; then two means and their squares
 * become one. Means are kept as distances from that of a place's first tile, the base: so digits
 * are lost neither to a mean far from 0 nor to a difference of large squares.
 *
 * The fused ops are the same loops with more of them switched on, which gives their parts' bits.
 */
#include "net/cpu/vector.h"
#include "net/cpu/vector_calls.h"

enum { BLOCK_VECTORS = 4, BLOCK = BLOCK_VECTORS * LANES, TILE_TURNS = 64 };

/** How a row is walked: `whole` numbers in turns of a period, then `rest` more. */
struct norm_walk {
    int64_t channels, count, period, whole, rest;
};

static int64_t common_divisor(int64_t a, int64_t b) {
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/** A row that is shorter than its period is one turn, its places are its numbers. */
static struct norm_walk walk_of(const struct weir__op_shape *shape) {
    int64_t channels = shape->width, count = shape->tokens * channels;
    int64_t factor = channels / common_divisor(channels, BLOCK);
    int64_t blocks = (count + BLOCK - 1) / BLOCK;
    int64_t period = (factor < blocks ? factor : blocks) * BLOCK;
    int64_t whole = count / period * period;
    return (struct norm_walk){channels, count, period, whole, count - whole};
}

/** One period of each. While moments are summed, `mean` is from the base and `rstd` the squares;
 * `gradient` and `product` are sums, then means. */
struct norm_tables {
    float *base, *mean, *rstd, *kept, *weight, *bias, *gradient, *product;
};
enum { TABLES = sizeof(struct norm_tables) / sizeof(float *) };

int VECTOR(measure_instance_norm)(const struct weir__op_shape *shape, size_t *workspace) {
    *workspace = TABLES * (size_t)walk_of(shape).period * sizeof(float);
    return WEIR_OK;
}

static struct norm_tables tables_of(const struct weir__op_call *call,
                                    const struct norm_walk *walk) {
    float *at = call->workspace;
    int64_t period = walk->period;
    return (struct norm_tables){.base = at,
                                .mean = at + period,
                                .rstd = at + 2 * period,
                                .kept = at + 3 * period,
                                .weight = at + 4 * period,
                                .bias = at + 5 * period,
                                .gradient = at + 6 * period,
                                .product = at + 7 * period};
}

/** Repeats the first C numbers of a table. */
static void repeat(const struct norm_walk *walk, float *table) {
    assert(walk->channels >= 1 && walk->channels <= walk->period);
    for (int64_t filled = walk->channels; filled < walk->period;) {
        int64_t more = walk->period - filled < filled ? walk->period - filled : filled;
        memcpy(table + filled, table, (size_t)more * sizeof(float));
        filled += more;
    }
}

static void set_table(const struct norm_walk *walk, float *table, const float *of_channels) {
    memcpy(table, of_channels, (size_t)walk->channels * sizeof(float));
    repeat(walk, table);
}

/** What is done to each number besides the norm; constant wherever it is inlined. */
struct norm_parts {
    bool drops;  /**< dropout2d before */
    bool scales; /**< weight and bias */
    bool leaks;  /**< leaky ReLU after */
};
static const struct norm_parts plain = {false, false, false}, affine = {false, true, false};
static const struct norm_parts fused = {true, false, true};

/** Factors that all numbers share. */
struct norm_factors {
    float keep, slope;
};

static struct norm_factors factors_of(const struct weir__op_call *call) {
    double p = call->infer ? 0 : call->shape->p;
    assert(p >= 0 && p < 1);
    return (struct norm_factors){(float)(1 / (1 - p)), (float)call->shape->slope};
}

/** The tables' numbers at one vector of places. */
struct lanes {
    vfloat mean, rstd, kept, weight, bias, gradient, product;
};

VECTOR_INLINE struct lanes lanes_at(const struct norm_tables *tables, int64_t place,
                                    struct norm_parts parts) {
    struct lanes lanes = {.mean = v_load(tables->mean + place),
                          .rstd = v_load(tables->rstd + place)};
    if (parts.drops) lanes.kept = v_load(tables->kept + place);
    if (parts.scales) lanes.weight = v_load(tables->weight + place);
    if (parts.scales) lanes.bias = v_load(tables->bias + place);
    return lanes;
}

VECTOR_INLINE int64_t lanes_left(int64_t at, int64_t count) {
    return count - at < LANES ? count - at : LANES;
}

/* ---- dropout2d ---- */

static void keep_row(const struct weir__op_call *call, const struct norm_walk *walk, int64_t row,
                     float *kept) {
    assert(row < call->shape->rows);
    VECTOR(keep_channels)(call, row, walk->channels, kept);
    repeat(walk, kept);
}

/** Channels that are dropped become 0, not 0 times what they were. */
VECTOR_INLINE vfloat drop(vfloat x, float keep, vfloat kept) {
    return v_keep((vint)kept, x * keep);
}

int VECTOR(dropout2d)(const struct weir__op_call *call) {
    const struct norm_walk walk = walk_of(call->shape);
    const struct norm_tables tables = tables_of(call, &walk);
    const number *x = call->in[0];
    number *y = call->out[0];
    const float keep = factors_of(call).keep;
    if (call->infer) {
        memmove(y, x, (size_t)(call->shape->rows * walk.count) * sizeof(number));
        return WEIR_OK;
    }
    for (int64_t r = 0; r < call->shape->rows; r++, x += walk.count, y += walk.count) {
        keep_row(call, &walk, r, tables.kept);
        for (int64_t i = 0; i < walk.count; i += walk.period)
            for (int64_t j = 0; j < walk.period && i + j < walk.count; j += LANES) {
                int64_t at = i + j, count = lanes_left(at, walk.count);
                vfloat kept = v_load(tables.kept + j);
                v_store_some(y + at, drop(v_load_some(x + at, count), keep, kept), count);
            }
    }
    return WEIR_OK;
}

/* ---- moments ---- */

VECTOR_INLINE vfloat kept_number(vfloat x, const float *keep) {
    return keep != NULL ? v_as_stored(x * *keep) : x;
}

/** Places that hold a number at all. */
static int64_t places_of(const struct norm_walk *walk) {
    return walk->count < walk->period ? walk->count : walk->period;
}

/** Joins `added` numbers, by their mean and squares, to the `before` that are in the tables. */
VECTOR_INLINE void join_at(const struct norm_tables *tables, int64_t place, int64_t count,
                           int64_t before, int64_t added, vfloat mean, vfloat squares) {
    float share = (float)added / (float)(before + added);
    vfloat old = v_load(tables->mean + place), old_squares = v_load(tables->rstd + place);
    vfloat distance = mean - old;
    squares += distance * (distance * ((float)before * share)); /* as if each were repeated */
    v_store_some(tables->mean + place, old + distance * share, count);
    v_store_some(tables->rstd + place, old_squares + squares, count);
}

/** Block `place` of the tile that begins at `x`; `before` turns are in the tables. Numbers are
 * multiplied by *keep unless that is NULL. */
VECTOR_INLINE void add_tile(const number *x, int64_t period, int64_t turns, int64_t before,
                            const float *keep, const struct norm_tables *tables, int64_t place) {
    vfloat middle[BLOCK_VECTORS] = {v_all(0), v_all(0), v_all(0), v_all(0)};
    vfloat sum[BLOCK_VECTORS] = {v_all(0), v_all(0), v_all(0), v_all(0)};
    vfloat square[BLOCK_VECTORS] = {v_all(0), v_all(0), v_all(0), v_all(0)};
    float share = 1 / (float)turns;
    for (int64_t t = 0; t < turns; t++) {
        V_UNROLL
        for (int v = 0; v < BLOCK_VECTORS; v++)
            middle[v] += kept_number(v_load(x + t * period + place + v * LANES), keep);
    }
    V_UNROLL
    for (int v = 0; v < BLOCK_VECTORS; v++) middle[v] *= share;
    for (int64_t t = 0; t < turns; t++) {
        V_UNROLL
        for (int v = 0; v < BLOCK_VECTORS; v++) {
            vfloat distance =
                kept_number(v_load(x + t * period + place + v * LANES), keep) - middle[v];
            sum[v] += distance; /* what rounding has left */
            square[v] = v_fma(distance, distance, square[v]);
        }
    }
    V_UNROLL
    for (int v = 0; v < BLOCK_VECTORS; v++) {
        int64_t at = place + v * LANES;
        if (before == 0) v_store(tables->base + at, middle[v]);
        vfloat rest = sum[v] * share, mean = middle[v] - v_load(tables->base + at) + rest;
        join_at(tables, at, LANES, before, turns, mean, v_fma(-sum[v], rest, square[v]));
    }
}

/** Mean and squares of each place. `keep` as in add_tile. */
VECTOR_INLINE void sum_moments(const struct norm_walk *walk, const number *x, const float *keep,
                               const struct norm_tables *tables) {
    int64_t turns = walk->whole / walk->period;
    memset(tables->mean, 0, (size_t)walk->period * sizeof(float));
    memset(tables->rstd, 0, (size_t)walk->period * sizeof(float));
    for (int64_t t = 0; t < turns; t += TILE_TURNS) {
        int64_t more = turns - t < TILE_TURNS ? turns - t : TILE_TURNS;
        for (int64_t j = 0; j < walk->period; j += BLOCK)
            add_tile(x + t * walk->period, walk->period, more, t, keep, tables, j);
    }
    for (int64_t j = 0; j < walk->rest; j += LANES) {
        int64_t count = lanes_left(j, walk->rest);
        vfloat number = kept_number(v_load_some(x + walk->whole + j, count), keep);
        if (turns == 0) v_store_some(tables->base + j, number, count);
        vfloat mean = number - v_load_some(tables->base + j, count);
        join_at(tables, j, count, turns, 1, mean, v_all(0));
    }
}

/** How many numbers lie at the places from `place` on. */
VECTOR_INLINE vfloat numbers_at(const struct norm_walk *walk, int64_t place) {
    int64_t longer = walk->rest - place;
    longer = longer < 0 ? 0 : longer < LANES ? longer : LANES;
    float turns = (float)(walk->whole / walk->period);
    return v_select(v_lane_numbers() < (int32_t)longer, v_all(turns + 1), v_all(turns));
}

/** Joins the places of `count` channels from `channel` on. */
VECTOR_INLINE void fold_moments(const struct norm_walk *walk, const struct norm_tables *tables,
                                int64_t channel, int64_t count, vfloat *mean, vfloat *squares) {
    int64_t places = places_of(walk);
    vfloat base = v_load_some(tables->base + channel, count), sum = v_all(0);
    for (int64_t j = channel; j < places; j += walk->channels) {
        vfloat step = v_load_some(tables->base + j, count) - base;
        sum = v_fma(numbers_at(walk, j), step + v_load_some(tables->mean + j, count), sum);
    }
    *mean = sum * (1 / (float)(walk->count / walk->channels));
    *squares = v_all(0);
    for (int64_t j = channel; j < places; j += walk->channels) {
        vfloat step = v_load_some(tables->base + j, count) - base;
        vfloat distance = step + v_load_some(tables->mean + j, count) - *mean;
        vfloat own = v_load_some(tables->rstd + j, count);
        *squares += v_fma(numbers_at(walk, j) * distance, distance, own);
    }
    *mean += base;
}

/** The row's mean and rstd (C each), and their tables. A channel that is dropped is all 0. */
static void finish_moments(const struct norm_walk *walk, const struct norm_tables *tables,
                           float eps, bool drops, float *mean, float *rstd) {
    float share = 1 / (float)(walk->count / walk->channels);
    for (int64_t c = 0; c < walk->channels; c += LANES) {
        int64_t count = lanes_left(c, walk->channels);
        vfloat middle, squares;
        fold_moments(walk, tables, c, count, &middle, &squares);
        if (drops) {
            vint kept = (vint)v_load_some(tables->kept + c, count);
            middle = v_keep(kept, middle);
            squares = v_keep(kept, squares);
        }
        v_store_some(mean + c, middle, count);
        v_store_some(rstd + c, 1.0f / v_sqrt(squares * share + eps), count);
    }
    set_table(walk, tables->mean, mean);
    set_table(walk, tables->rstd, rstd);
}

/* ---- forward ---- */

VECTOR_INLINE vfloat normal(vfloat x, const struct lanes *lanes) {
    return (x - lanes->mean) * lanes->rstd;
}

VECTOR_INLINE vfloat normalise(vfloat x, const struct lanes *lanes,
                               const struct norm_factors *factors, struct norm_parts parts) {
    vfloat y = normal(kept_number(x, parts.drops ? &factors->keep : NULL), lanes);
    if (parts.scales) y = v_fma(y, lanes->weight, lanes->bias);
    if (parts.leaks) y = v_leaky(v_as_stored(y), v_as_stored(y), factors->slope);
    return parts.drops ? v_keep((vint)lanes->kept, y) : y;
}

/** Tile by tile, so that memory is walked nearly in order while tables stay in registers. */
VECTOR_INLINE void normalise_row(const struct norm_walk *walk, const struct norm_tables *tables,
                                 const struct norm_factors *factors, const number *x, number *y,
                                 struct norm_parts parts) {
    for (int64_t i = 0; i < walk->whole; i += TILE_TURNS * walk->period)
        for (int64_t j = 0; j < walk->period; j += BLOCK) {
            struct lanes lanes[BLOCK_VECTORS];
            V_UNROLL
            for (int v = 0; v < BLOCK_VECTORS; v++)
                lanes[v] = lanes_at(tables, j + v * LANES, parts);
            int64_t end = i + TILE_TURNS * walk->period;
            for (int64_t at = i + j; at < (end < walk->whole ? end : walk->whole);
                 at += walk->period) {
                V_UNROLL
                for (int v = 0; v < BLOCK_VECTORS; v++)
                    v_store(y + at + v * LANES,
                            normalise(v_load(x + at + v * LANES), &lanes[v], factors, parts));
            }
        }
    for (int64_t j = 0; j < walk->rest; j += LANES) {
        int64_t at = walk->whole + j, count = lanes_left(j, walk->rest);
        struct lanes lanes = lanes_at(tables, j, parts);
        v_store_some(y + at, normalise(v_load_some(x + at, count), &lanes, factors, parts), count);
    }
}

VECTOR_INLINE void forward(const struct weir__op_call *call, struct norm_parts parts) {
    const struct norm_walk walk = walk_of(call->shape);
    const struct norm_tables tables = tables_of(call, &walk);
    const struct norm_factors factors = factors_of(call);
    const float *keep = parts.drops ? &factors.keep : NULL;
    bool drops = parts.drops && !call->infer && call->shape->p > 0;
    if (parts.drops) memset(tables.kept, 0xff, (size_t)walk.period * sizeof(float));
    if (parts.scales) set_table(&walk, tables.weight, call->in[1]);
    if (parts.scales) set_table(&walk, tables.bias, call->in[2]);
    for (int64_t r = 0; r < call->shape->rows; r++) {
        const number *x = (const number *)call->in[0] + r * walk.count;
        if (drops) keep_row(call, &walk, r, tables.kept);
        sum_moments(&walk, x, keep, &tables);
        finish_moments(&walk, &tables, (float)call->shape->eps, drops,
                       (float *)call->out[1] + r * walk.channels,
                       (float *)call->out[2] + r * walk.channels);
        normalise_row(&walk, &tables, &factors, x, (number *)call->out[0] + r * walk.count, parts);
    }
}

int VECTOR(instance_norm)(const struct weir__op_call *call) {
    if (call->shape->has_bias)
        forward(call, affine);
    else
        forward(call, plain);
    return WEIR_OK;
}

int VECTOR(instance_norm_act)(const struct weir__op_call *call) {
    forward(call, fused);
    return WEIR_OK;
}

/* ---- backward ---- */

/** The operands of a gradient, at a row; `y` is the fused op's only. */
struct gradient_row {
    const number *dy, *y, *x;
};

/** The gradient of the normalised x; *normed becomes that. */
VECTOR_INLINE vfloat arriving(const struct gradient_row *row, int64_t at, int64_t count,
                              const struct lanes *lanes, const struct norm_factors *factors,
                              struct norm_parts parts, vfloat *normed) {
    vfloat x = v_load_some(row->x + at, count), dy = v_load_some(row->dy + at, count);
    if (parts.leaks) dy = v_as_stored(v_leaky(v_load_some(row->y + at, count), dy, factors->slope));
    if (parts.scales) dy *= lanes->weight;
    *normed = normal(kept_number(x, parts.drops ? &factors->keep : NULL), lanes);
    return dy;
}

/** Adds the sums of a tile, as in add_tile, to the tables of gradient and product. */
VECTOR_INLINE void add_gradients(const struct gradient_row *row, const struct norm_walk *walk,
                                 int64_t first, int64_t place, const struct norm_tables *tables,
                                 const struct norm_factors *factors, struct norm_parts parts) {
    struct lanes lanes[BLOCK_VECTORS];
    vfloat sum[BLOCK_VECTORS] = {v_all(0), v_all(0), v_all(0), v_all(0)};
    vfloat product[BLOCK_VECTORS] = {v_all(0), v_all(0), v_all(0), v_all(0)};
    int64_t end = first + TILE_TURNS * walk->period;
    V_UNROLL
    for (int v = 0; v < BLOCK_VECTORS; v++) lanes[v] = lanes_at(tables, place + v * LANES, parts);
    for (int64_t at = first + place; at < (end < walk->whole ? end : walk->whole);
         at += walk->period) {
        V_UNROLL
        for (int v = 0; v < BLOCK_VECTORS; v++) {
            vfloat normed,
                gradient = arriving(row, at + v * LANES, LANES, &lanes[v], factors, parts, &normed);
            sum[v] += gradient;
            product[v] = v_fma(gradient, normed, product[v]);
        }
    }
    V_UNROLL
    for (int v = 0; v < BLOCK_VECTORS; v++) {
        float *to = tables->gradient + place + v * LANES;
        float *to_product = tables->product + place + v * LANES;
        v_store(to, v_load(to) + sum[v]);
        v_store(to_product, v_load(to_product) + product[v]);
    }
}

/** Sums of the gradient and of its product with the normalised x, per place. */
VECTOR_INLINE void sum_gradients(const struct gradient_row *row, const struct norm_walk *walk,
                                 const struct norm_tables *tables,
                                 const struct norm_factors *factors, struct norm_parts parts) {
    memset(tables->gradient, 0, (size_t)walk->period * sizeof(float));
    memset(tables->product, 0, (size_t)walk->period * sizeof(float));
    for (int64_t i = 0; i < walk->whole; i += TILE_TURNS * walk->period)
        for (int64_t j = 0; j < walk->period; j += BLOCK)
            add_gradients(row, walk, i, j, tables, factors, parts);
    for (int64_t j = 0; j < walk->rest; j += LANES) {
        int64_t count = lanes_left(j, walk->rest);
        struct lanes lanes = lanes_at(tables, j, parts);
        vfloat normed,
            gradient = arriving(row, walk->whole + j, count, &lanes, factors, parts, &normed);
        vfloat sum = v_load(tables->gradient + j) + gradient;
        v_store_some(tables->gradient + j, sum, count);
        v_store_some(tables->product + j, v_fma(gradient, normed, v_load(tables->product + j)),
                     count);
    }
}

/** Adds up the places of each channel, into the table's first C numbers. */
static void fold_sums(const struct norm_walk *walk, float *table) {
    int64_t places = places_of(walk);
    for (int64_t c = 0; c < walk->channels; c += LANES) {
        int64_t count = lanes_left(c, walk->channels);
        vfloat sum = v_load_some(table + c, count);
        for (int64_t j = c + walk->channels; j < places; j += walk->channels)
            sum += v_load_some(table + j, count);
        v_store_some(table + c, sum, count);
    }
}

/** Sums of places become a table of means. */
static void finish_means(const struct norm_walk *walk, float *table) {
    float share = 1 / (float)(walk->count / walk->channels);
    fold_sums(walk, table);
    for (int64_t c = 0; c < walk->channels; c += LANES) {
        int64_t count = lanes_left(c, walk->channels);
        v_store_some(table + c, v_load_some(table + c, count) * share, count);
    }
    repeat(walk, table);
}

VECTOR_INLINE struct lanes gradient_lanes_at(const struct norm_tables *tables, int64_t place,
                                             struct norm_parts parts) {
    struct lanes lanes = lanes_at(tables, place, parts);
    lanes.gradient = v_load(tables->gradient + place);
    lanes.product = v_load(tables->product + place);
    return lanes;
}

VECTOR_INLINE vfloat input_gradient(const struct gradient_row *row, int64_t at, int64_t count,
                                    const struct lanes *lanes, const struct norm_factors *factors,
                                    struct norm_parts parts) {
    vfloat normed, gradient = arriving(row, at, count, lanes, factors, parts, &normed);
    vfloat dx = v_fma(normed, -lanes->product, gradient - lanes->gradient) * lanes->rstd;
    return parts.drops ? drop(v_as_stored(dx), factors->keep, lanes->kept) : dx;
}

VECTOR_INLINE void write_gradients(const struct gradient_row *row, const struct norm_walk *walk,
                                   const struct norm_tables *tables,
                                   const struct norm_factors *factors, number *dx,
                                   struct norm_parts parts) {
    for (int64_t i = 0; i < walk->whole; i += TILE_TURNS * walk->period)
        for (int64_t j = 0; j < walk->period; j += BLOCK) {
            struct lanes lanes[BLOCK_VECTORS];
            V_UNROLL
            for (int v = 0; v < BLOCK_VECTORS; v++)
                lanes[v] = gradient_lanes_at(tables, j + v * LANES, parts);
            int64_t end = i + TILE_TURNS * walk->period;
            for (int64_t at = i + j; at < (end < walk->whole ? end : walk->whole);
                 at += walk->period) {
                V_UNROLL
                for (int v = 0; v < BLOCK_VECTORS; v++)
                    v_store(dx + at + v * LANES,
                            input_gradient(row, at + v * LANES, LANES, &lanes[v], factors, parts));
            }
        }
    for (int64_t j = 0; j < walk->rest; j += LANES) {
        int64_t at = walk->whole + j, count = lanes_left(j, walk->rest);
        struct lanes lanes = gradient_lanes_at(tables, j, parts);
        v_store_some(dx + at, input_gradient(row, at, count, &lanes, factors, parts), count);
    }
}

/** What a gradient reads: dy, y of the fused op, x, mean, rstd, weight. */
struct gradient_ins {
    const number *dy, *y, *x;
    const float *mean, *rstd, *weight;
};

VECTOR_INLINE struct gradient_row enter_row(const struct gradient_ins *ins,
                                            const struct norm_walk *walk, int64_t r,
                                            const struct norm_tables *tables) {
    set_table(walk, tables->mean, ins->mean + r * walk->channels);
    set_table(walk, tables->rstd, ins->rstd + r * walk->channels);
    int64_t at = r * walk->count;
    return (struct gradient_row){ins->dy + at, ins->y != NULL ? ins->y + at : NULL, ins->x + at};
}

VECTOR_INLINE void backward(const struct weir__op_call *call, const struct gradient_ins *ins,
                            struct norm_parts parts) {
    const struct norm_walk walk = walk_of(call->shape);
    const struct norm_tables tables = tables_of(call, &walk);
    const struct norm_factors factors = factors_of(call);
    bool drops = parts.drops && !call->infer && call->shape->p > 0;
    if (parts.drops) memset(tables.kept, 0xff, (size_t)walk.period * sizeof(float));
    if (parts.scales) set_table(&walk, tables.weight, ins->weight);
    for (int64_t r = 0; r < call->shape->rows; r++) {
        const struct gradient_row row = enter_row(ins, &walk, r, &tables);
        if (drops) keep_row(call, &walk, r, tables.kept);
        sum_gradients(&row, &walk, &tables, &factors, parts);
        finish_means(&walk, tables.gradient);
        finish_means(&walk, tables.product);
        write_gradients(&row, &walk, &tables, &factors, (number *)call->out[0] + r * walk.count,
                        parts);
    }
}

int VECTOR(instance_norm_grad_input)(const struct weir__op_call *call) {
    const void *const *in = call->in;
    bool scales = call->shape->has_bias;
    const struct gradient_ins ins = {
        .dy = in[0], .x = in[1], .mean = in[2], .rstd = in[3], .weight = scales ? in[4] : NULL};
    if (scales)
        backward(call, &ins, affine);
    else
        backward(call, &ins, plain);
    return WEIR_OK;
}

int VECTOR(instance_norm_act_grad)(const struct weir__op_call *call) {
    const void *const *in = call->in;
    const struct gradient_ins ins = {
        .dy = in[0], .y = in[1], .x = in[2], .mean = in[3], .rstd = in[4]};
    backward(call, &ins, fused);
    return WEIR_OK;
}

/** Rows' sums are added in ascending order, then once to what was there. */
int VECTOR(instance_norm_grad_weight)(const struct weir__op_call *call) {
    const struct norm_walk walk = walk_of(call->shape);
    const struct norm_tables tables = tables_of(call, &walk);
    const struct norm_factors factors = factors_of(call);
    const struct gradient_ins ins = {
        .dy = call->in[0], .x = call->in[1], .mean = call->in[2], .rstd = call->in[3]};
    float *sums[2] = {tables.weight, tables.bias};
    const float *own[2] = {tables.product, tables.gradient};
    memset(tables.weight, 0, (size_t)walk.channels * sizeof(float));
    memset(tables.bias, 0, (size_t)walk.channels * sizeof(float));
    for (int64_t r = 0; r < call->shape->rows; r++) {
        const struct gradient_row row = enter_row(&ins, &walk, r, &tables);
        sum_gradients(&row, &walk, &tables, &factors, plain);
        fold_sums(&walk, tables.gradient);
        fold_sums(&walk, tables.product);
        for (int i = 0; i < 2; i++)
            VECTOR_F32(flat_f32).accumulate(NULL, sums[i], own[i], (uint64_t)walk.channels);
    }
    for (int i = 0; i < 2; i++) {
        if (call->overwrite)
            memcpy(call->out[i], sums[i], (size_t)walk.channels * sizeof(float));
        else
            VECTOR_F32(flat_f32).accumulate(NULL, call->out[i], sums[i], (uint64_t)walk.channels);
    }
    return WEIR_OK;
}
