/* SPDX-License-Identifier: MIT */
/*
 * Between PyTorch's order of a convolution's weights and the library's blocks, where the library's
 * own reorder does not serve: 3.x cannot add, 2.x turns gradients at 13 GB/s (here: 40), and none
 * turns a kernel round.
 */
#include "net/cpu/onednn.h"
#include "net/cpu/vector.h"

/** What a number's place along one dimension adds to where it lies: dimensions do not mix. */
static int64_t place(const struct weir__onednn_layout *layout, int dimension, int64_t i) {
    assert(dimension >= 0 && dimension < layout->dimensions);
    int64_t at = 0, step = 1;
    for (int b = layout->block_count - 1; b >= 0; b--) {
        if (layout->block_dimensions[b] == dimension) {
            at += i % layout->blocks[b] * step;
            i /= layout->blocks[b];
        }
        step *= layout->blocks[b];
    }
    return at + i * layout->strides[dimension];
}

/** The layout's dimensions: groups come first, where there are any. */
static int dimension_out(const struct weir__onednn_weights *weights) {
    return weights->groups > 1 ? 1 : 0;
}

static int64_t place_of_group(const struct weir__onednn_weights *weights, int64_t group) {
    return weights->groups > 1 ? place(&weights->layout, 0, group) : 0;
}

/** Of the kernel from input channel i to output channel o. */
static int64_t place_of_kernel(const struct weir__onednn_weights *weights, int64_t o, int64_t i) {
    int first = dimension_out(weights);
    return place(&weights->layout, first, weights->turned ? i : o) +
           place(&weights->layout, first + 1, weights->turned ? o : i);
}

static int64_t place_of_tap(const struct weir__onednn_weights *weights, int64_t y, int64_t x) {
    int height = dimension_out(weights) + 2;
    if (weights->turned) {
        y = weights->kernel.height - 1 - y;
        x = weights->kernel.width - 1 - x;
    }
    return place(&weights->layout, height, y) + place(&weights->layout, height + 1, x);
}

void VECTOR(onednn_turn)(const struct weir__onednn_weights *weights, const float *plain,
                       float *blocked) {
    assert(weights->turned && weights->groups == 1);
    for (int64_t o = 0; o < weights->out; o++)
        for (int64_t i = 0; i < weights->in; i++) {
            float *to = blocked + place_of_kernel(weights, o, i);
            for (int64_t y = 0; y < weights->kernel.height; y++)
                for (int64_t x = 0; x < weights->kernel.width; x++)
                    to[place_of_tap(weights, y, x)] = *plain++;
        }
}

/* ---- delivering ------------------------------------------------------------------------------ */

/** Output channels of a group, whatever the layout. */
static void deliver_one_by_one(const struct weir__onednn_weights *weights, const float *blocked,
                               float *plain, int64_t first, int64_t end, bool overwrite) {
    for (int64_t o = first; o < end; o++)
        for (int64_t i = 0; i < weights->in; i++) {
            const float *from = blocked + place_of_kernel(weights, o, i);
            for (int64_t y = 0; y < weights->kernel.height; y++)
                for (int64_t x = 0; x < weights->kernel.width; x++, plain++) {
                    float number = from[place_of_tap(weights, y, x)];
                    *plain = overwrite ? number : *plain + number;
                }
        }
}

/** Walks an output channel's numbers in PyTorch's order: input channels, each kernel's rows. */
struct weights_walk {
    const struct weir__onednn_weights *weights;
    const float *blocked; /**< the output channel's */
    const float *kernel;  /**< the input channel's */
    int64_t in, y, x, stride_y, stride_x;
};

static void walk_to_channel(struct weights_walk *walk, int64_t in) {
    int dimension = dimension_out(walk->weights) + 1;
    walk->in = in;
    walk->y = walk->x = 0;
    walk->kernel = walk->blocked + place(&walk->weights->layout, dimension, in);
}

static struct weights_walk walk_init(const struct weir__onednn_weights *weights,
                                     const float *blocked) {
    struct weights_walk walk = {.weights = weights,
                                .blocked = blocked,
                                .stride_y = place_of_tap(weights, 1, 0),
                                .stride_x = place_of_tap(weights, 0, 1)};
    walk_to_channel(&walk, 0);
    return walk;
}

static const float *walk_next(struct weights_walk *walk) {
    const float *number = walk->kernel + walk->y * walk->stride_y + walk->x * walk->stride_x;
    if (++walk->x < walk->weights->kernel.width) return number;
    walk->x = 0;
    if (++walk->y < walk->weights->kernel.height) return number;
    walk_to_channel(walk, walk->in + 1);
    return number;
}

/** Where the columns of a square come from and its rows go to, `stride` apart. */
struct square {
    const float *from[LANES];
    float *to;
    int64_t stride;
};

VECTOR_INLINE void deliver_square(const struct square *square, bool overwrite) {
    vfloat rows[LANES];
    V_UNROLL
    for (int k = 0; k < LANES; k++) rows[k] = v_load(square->from[k]);
    v_transpose(rows);
    V_UNROLL
    for (int k = 0; k < LANES; k++) {
        float *to = square->to + k * square->stride;
        v_store(to, overwrite ? rows[k] : v_load(to) + rows[k]);
    }
}

/** `columns` of `lanes` numbers, of which the first `wanted` are delivered. */
static void deliver_part(const struct square *square, int64_t columns, int64_t lanes,
                         int64_t wanted, bool overwrite) {
    assert(columns <= LANES && wanted <= lanes && lanes <= LANES);
    vfloat rows[LANES] = {v_all(0)};
    for (int64_t k = 0; k < columns; k++) rows[k] = v_load_some(square->from[k], lanes);
    v_transpose(rows);
    for (int64_t k = 0; k < wanted; k++) {
        float *to = square->to + k * square->stride;
        if (!overwrite) rows[k] += v_load_some(to, columns);
        v_store_some(to, rows[k], columns);
    }
}

/** Output channels that are neighbours in the library's memory, `lanes` of them, of which `wanted`
 * exist. */
static void deliver_lanes(struct weights_walk walk, float *plain, int64_t lanes, int64_t wanted,
                          bool overwrite) {
    struct weir__plane kernel = walk.weights->kernel;
    int64_t length = walk.weights->in * kernel.height * kernel.width;
    struct square square = {.stride = length};
    for (int64_t j = 0; j < length; j += LANES) {
        int64_t columns = length - j < LANES ? length - j : LANES;
        for (int64_t k = 0; k < columns; k++) square.from[k] = walk_next(&walk);
        square.to = plain + j;
        if (columns < LANES || wanted < LANES)
            deliver_part(&square, columns, lanes, wanted, overwrite);
        else
            deliver_square(&square, overwrite);
    }
}

/** How many output channels from a multiple of that are neighbours in the library's memory. */
static int64_t neighbours(const struct weir__onednn_weights *weights) {
    const struct weir__onednn_layout *layout = &weights->layout;
    int last = layout->block_count - 1;
    if (last < 0 || layout->block_dimensions[last] != dimension_out(weights) || weights->turned)
        return 1;
    return layout->blocks[last] % LANES == 0 ? LANES : layout->blocks[last] == 8 ? 8 : 1;
}

int64_t VECTOR(onednn_deliveries)(const struct weir__onednn_weights *weights) {
    return weights->groups * ((weights->out + LANES - 1) / LANES);
}

void VECTOR(onednn_deliver)(const struct weir__onednn_weights *weights, const float *blocked,
                          float *plain, bool overwrite, int64_t part) {
    int64_t length = weights->in * weights->kernel.height * weights->kernel.width;
    int64_t lanes = neighbours(weights), parts = (weights->out + LANES - 1) / LANES;
    int64_t group = part / parts, first = part % parts * LANES;
    int64_t end = weights->out - first < LANES ? weights->out : first + LANES;
    assert(group < weights->groups);
    const float *from = blocked + place_of_group(weights, group);
    plain += (group * weights->out + first) * length;
    if (lanes == 1) {
        deliver_one_by_one(weights, from, plain, first, end, overwrite);
        return;
    }
    for (int64_t o = first; o < end; o += lanes, plain += lanes * length) {
        int64_t wanted = end - o < lanes ? end - o : lanes;
        deliver_lanes(walk_init(weights, from + place_of_kernel(weights, o, 0)), plain, lanes,
                      wanted, overwrite);
    }
}
