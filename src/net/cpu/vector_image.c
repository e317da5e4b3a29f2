/* SPDX-License-Identifier: MIT */
/*
 * Ops that move the numbers of images: each is read once and written once, whole vectors of
 * channels where there are sixteen.
 */
#include "net/cpu/vector.h"
#include "net/cpu/vector_calls.h"

VECTOR_INLINE int64_t lanes_left(int64_t at, int64_t count) {
    return count - at < LANES ? count - at : LANES;
}

/* ---- transpose: squares of 16 by 16 in registers ---- */

/** Fewer rows or columns than this are moved one by one: a square would be mostly empty. */
enum { NARROW = 5 };

/* Pairs of `width` lanes of two vectors become neighbours: of the lower or the upper pairs. */
#define WEAVE_1(a, b, first)                                                                       \
    __builtin_shufflevector(a, b, (first), 16 + (first), (first) + 2, 18 + (first), (first) + 4,   \
                            20 + (first), (first) + 6, 22 + (first), (first) + 8, 24 + (first),    \
                            (first) + 10, 26 + (first), (first) + 12, 28 + (first), (first) + 14,  \
                            30 + (first))
#define WEAVE_2(a, b, first)                                                                       \
    __builtin_shufflevector(a, b, (first), (first) + 1, 16 + (first), 17 + (first), (first) + 4,   \
                            (first) + 5, 20 + (first), 21 + (first), (first) + 8, (first) + 9,     \
                            24 + (first), 25 + (first), (first) + 12, (first) + 13, 28 + (first),  \
                            29 + (first))
#define WEAVE_4(a, b, first)                                                                       \
    __builtin_shufflevector(a, b, (first), (first) + 1, (first) + 2, (first) + 3, 16 + (first),    \
                            17 + (first), 18 + (first), 19 + (first), (first) + 8, (first) + 9,    \
                            (first) + 10, (first) + 11, 24 + (first), 25 + (first), 26 + (first),  \
                            27 + (first))
#define WEAVE_8(a, b, first)                                                                       \
    __builtin_shufflevector(a, b, (first), (first) + 1, (first) + 2, (first) + 3, (first) + 4,     \
                            (first) + 5, (first) + 6, (first) + 7, 16 + (first), 17 + (first),     \
                            18 + (first), 19 + (first), 20 + (first), 21 + (first), 22 + (first),  \
                            23 + (first))
/* Swaps the off-diagonal squares of `width` of all squares of twice that. */
#define SWAP_SQUARES(v, width)                                                                     \
    V_UNROLL                                                                                       \
    for (int i = 0; i < LANES; i++) {                                                              \
        if ((i & (width)) != 0) continue;                                                          \
        vfloat a = (v)[i], b = (v)[i + (width)];                                                   \
        (v)[i] = WEAVE_##width(a, b, 0);                                                           \
        (v)[i + (width)] = WEAVE_##width(a, b, width);                                             \
    }

VECTOR_INLINE void transpose_square(vfloat v[LANES]){SWAP_SQUARES(v, 1) SWAP_SQUARES(v, 2)
                                                         SWAP_SQUARES(v, 4) SWAP_SQUARES(v, 8)}

/** y (columns, rows) = x (rows, columns), at most 16 of each, whose rows are in_row and out_row
 * numbers apart. */
VECTOR_INLINE void move_square(const number *x, int64_t in_row, const int64_t rows, number *y,
                               int64_t out_row, const int64_t columns) {
    assert(rows <= LANES && columns <= LANES);
    vfloat v[LANES];
    V_UNROLL
    for (int i = 0; i < LANES; i++)
        v[i] = i < rows ? v_load_some(x + i * in_row, columns) : v_all(0);
    transpose_square(v);
    V_UNROLL
    for (int i = 0; i < LANES; i++)
        if (i < columns) v_store_some(y + i * out_row, v[i], rows);
}

static void move_narrow(const number *x, int64_t in, number *y, int64_t out) {
    if (in < out) {
        for (int64_t o = 0; o < out; o++)
            for (int64_t i = 0; i < in; i++) y[o * in + i] = x[i * out + o];
    } else {
        for (int64_t i = 0; i < in; i++)
            for (int64_t o = 0; o < out; o++) y[o * in + i] = x[i * out + o];
    }
}

static void move_part(const number *x, int64_t in, number *y, int64_t out, int64_t i, int64_t o) {
    assert(i < in && o < out);
    int64_t rows = lanes_left(i, in), columns = lanes_left(o, out);
    const number *from = x + i * out + o;
    number *to = y + o * in + i;
    if (rows == LANES && columns == LANES)
        move_square(from, out, LANES, to, in, LANES);
    else
        move_square(from, out, rows, to, in, columns);
}

/** The longer side outside, so that both sides' memory is walked in as few streams as can be. */
static void move_matrix(const number *x, int64_t in, number *y, int64_t out) {
    if (in < out) {
        for (int64_t o = 0; o < out; o += LANES)
            for (int64_t i = 0; i < in; i += LANES) move_part(x, in, y, out, i, o);
    } else {
        for (int64_t i = 0; i < in; i += LANES)
            for (int64_t o = 0; o < out; o += LANES) move_part(x, in, y, out, i, o);
    }
}

int VECTOR(transpose)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const number *x = call->in[0];
    number *y = call->out[0];
    int64_t in = shape->in, out = shape->out;
    for (int64_t m = 0; m < shape->rows * shape->tokens; m++, x += in * out, y += in * out) {
        if (in == 1 || out == 1)
            memcpy(y, x, (size_t)(in * out) * sizeof(number));
        else if (in < NARROW || out < NARROW)
            move_narrow(x, in, y, out);
        else
            move_matrix(x, in, y, out);
    }
    return WEIR_OK;
}

/* ---- upsampling ---- */

/** A pixel's channels to each pixel of a block of rows x columns. */
VECTOR_INLINE void fill_block(const number *x, int64_t channels, number *y, int64_t row,
                              const int64_t rows, const int64_t columns) {
    for (int64_t c = 0; c < channels; c += LANES) {
        int64_t count = lanes_left(c, channels);
        vfloat v = v_load_some(x + c, count);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                v_store_some(y + i * row + j * channels + c, v, count);
    }
}

/** The sum of a block, row by row. */
VECTOR_INLINE void sum_block(const number *dy, int64_t channels, int64_t row, const int64_t rows,
                             const int64_t columns, number *dx) {
    for (int64_t c = 0; c < channels; c += LANES) {
        int64_t count = lanes_left(c, channels);
        vfloat sum = v_all(0);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < columns; j++)
                sum += v_load_some(dy + i * row + j * channels + c, count);
        v_store_some(dx + c, sum, count);
    }
}

int VECTOR(upsample)(const struct weir__op_call *call) {
    const struct weir__window *window = &call->shape->window;
    struct weir__plane factor = window->stride;
    assert(window->out.height == window->in.height * factor.height);
    int64_t channels = call->shape->width, row = window->out.width * channels;
    const number *x = call->in[0];
    number *y = call->out[0];
    for (int64_t i = 0; i < call->shape->rows * window->in.height; i++, y += factor.height * row)
        for (int64_t j = 0; j < window->in.width; j++, x += channels) {
            number *to = y + j * factor.width * channels;
            if (factor.height == 2 && factor.width == 2)
                fill_block(x, channels, to, row, 2, 2);
            else
                fill_block(x, channels, to, row, factor.height, factor.width);
        }
    return WEIR_OK;
}

int VECTOR(upsample_grad)(const struct weir__op_call *call) {
    const struct weir__window *window = &call->shape->window;
    struct weir__plane factor = window->stride;
    assert(window->out.height == window->in.height * factor.height);
    int64_t channels = call->shape->width, row = window->out.width * channels;
    const number *dy = call->in[0];
    number *dx = call->out[0];
    for (int64_t i = 0; i < call->shape->rows * window->in.height; i++, dy += factor.height * row)
        for (int64_t j = 0; j < window->in.width; j++, dx += channels) {
            const number *from = dy + j * factor.width * channels;
            if (factor.height == 2 && factor.width == 2)
                sum_block(from, channels, row, 2, 2, dx);
            else
                sum_block(from, channels, row, factor.height, factor.width, dx);
        }
    return WEIR_OK;
}

/* ---- joining channels ---- */

/** `count` numbers of each of `pixels` pixels, which lie `from_step` and `to_step` apart. */
static void copy_pixels(number *to, int64_t to_step, const number *from, int64_t from_step,
                        int64_t count, int64_t pixels) {
    assert(count <= to_step && count <= from_step);
    for (int64_t p = 0; p < pixels; p++, to += to_step, from += from_step) {
        int64_t c = 0;
        for (; c + LANES <= count; c += LANES) v_store(to + c, v_load(from + c));
        if (c < count) v_store_some(to + c, v_load_some(from + c, count - c), count - c);
    }
}

static void clear_pixels(number *to, int64_t step, int64_t count, int64_t pixels) {
    assert(count <= step);
    for (int64_t p = 0; p < pixels; p++, to += step)
        for (int64_t c = 0; c < count; c += LANES)
            v_store_some(to + c, v_all(0), lanes_left(c, count));
}

int VECTOR(concat)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__plane in = shape->window.in, out = shape->window.out;
    assert(in.height <= out.height && in.width <= out.width);
    int64_t both = shape->in + shape->out;
    const number *a = call->in[0], *b = call->in[1];
    number *y = call->out[0];
    for (int64_t i = 0; i < shape->rows * out.height; i++, y += out.width * both) {
        int64_t reach = i % out.height < in.height ? in.width : 0;
        copy_pixels(y, both, a, shape->in, shape->in, reach);
        clear_pixels(y + reach * both, both, shape->in, out.width - reach);
        copy_pixels(y + shape->in, both, b, shape->out, shape->out, out.width);
        a += reach * shape->in;
        b += out.width * shape->out;
    }
    return WEIR_OK;
}

int VECTOR(concat_grad_a)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__plane in = shape->window.in, out = shape->window.out;
    assert(in.height <= out.height && in.width <= out.width);
    int64_t both = shape->in + shape->out;
    number *da = call->out[0];
    for (int64_t i = 0; i < shape->rows * in.height; i++, da += in.width * shape->in) {
        int64_t row = i / in.height * out.height + i % in.height;
        copy_pixels(da, shape->in, (const number *)call->in[0] + row * out.width * both, both,
                    shape->in, in.width);
    }
    return WEIR_OK;
}

int VECTOR(concat_grad_b)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__plane out = shape->window.out;
    copy_pixels(call->out[0], shape->out, (const number *)call->in[0] + shape->in,
                shape->in + shape->out, shape->out, shape->rows * out.height * out.width);
    return WEIR_OK;
}
