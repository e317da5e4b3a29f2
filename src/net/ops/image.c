/* SPDX-License-Identifier: MIT */
/* Ops that move and mix pixels: pooling, upsampling, concatenation. */
#include "net/ops/rules.h"

#include <string.h>

static struct weir__plane plane_of(const int64_t sizes[2]) {
    return (struct weir__plane){sizes[0], sizes[1]};
}

static struct weir__plane plane_in(const struct weir_value *x) {
    return (struct weir__plane){x->shape[1], x->shape[2]};
}

static double pixels(struct weir__plane plane) {
    return (double)plane.height * (double)plane.width;
}

/** An op from one image to another with as many channels. */
static struct weir_value *emit_window(struct weir_builder *builder, enum weir__op_code op,
                                      struct weir_value *x, const struct weir__window *window) {
    x = weir__channels_last(builder, x);
    struct weir__node *node = weir__emit(builder, op, 1, &x);
    if (node == NULL) return NULL;
    node->shape.width = x->shape[0];
    node->shape.window = *window;
    return weir__output_image(builder, node, x->shape[0], window->out);
}

/* ---- pooling ---- */

static struct weir_value *pool(struct weir_builder *builder, enum weir__op_code op,
                               const char *name, struct weir_value *x,
                               const struct weir_pool_options *options) {
    char text[96];
    if (!weir__expects_image(builder, name, x)) return NULL;
    struct weir__window window = {.in = plane_in(x),
                                  .kernel = plane_of(options->kernel),
                                  .stride = plane_of(options->stride),
                                  .padding = plane_of(options->padding),
                                  .count_padding = options->count_include_pad};
    if (2 * window.padding.height > window.kernel.height ||
        2 * window.padding.width > window.kernel.width)
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "%s's padding must be at most half of its kernel", name);
    if (!weir__window_out(&window))
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "%s's kernel of %lldx%lld is larger than its input, which is %s",
                                 name, (long long)window.kernel.height,
                                 (long long)window.kernel.width, weir__value_text(x, text));
    return emit_window(builder, op, x, &window);
}

struct weir_value *weir_max_pool2d(struct weir_builder *builder, struct weir_value *x,
                                   const struct weir_pool_options *options) {
    return pool(builder, WEIR__OP_max_pool2d, "max_pool2d", x, options);
}

struct weir_value *weir_avg_pool2d(struct weir_builder *builder, struct weir_value *x,
                                   const struct weir_pool_options *options) {
    return pool(builder, WEIR__OP_avg_pool2d, "avg_pool2d", x, options);
}

struct weir_value *weir_adaptive_avg_pool2d(struct weir_builder *builder, struct weir_value *x,
                                            const int64_t size[2]) {
    if (!weir__expects_image(builder, "adaptive_avg_pool2d", x)) return NULL;
    struct weir__window window = {.in = plane_in(x), .out = plane_of(size), .adaptive = true};
    return emit_window(builder, WEIR__OP_avg_pool2d, x, &window);
}

/** The mean of windows of one pixel, with less than no padding before the first. */
struct weir_value *weir__every_second(struct weir_builder *builder, struct weir_value *x,
                                      int64_t first) {
    assert(first == 0 || first == 1);
    if (!weir__expects_image(builder, "every_second", x)) return NULL;
    struct weir__plane in = plane_in(x);
    struct weir__window window = {.in = in,
                                  .out = {(in.height + 1) / 2, (in.width + 1) / 2},
                                  .kernel = {1, 1},
                                  .stride = {2, 2},
                                  .padding = {-first, -first},
                                  .count_padding = true};
    return emit_window(builder, WEIR__OP_avg_pool2d, x, &window);
}

/** From x, not from an index that is kept: x is mostly kept anyway. */
static void max_pool_gradient(struct weir_builder *builder, const struct weir__node *node,
                              struct weir_value *dy) {
    struct weir_value *x = node->in[0];
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, max_pool2d_grad, node, dy, x);
    weir__contribute(builder, x, weir__output_like(builder, grad, x));
}

static void avg_pool_gradient(struct weir_builder *builder, const struct weir__node *node,
                              struct weir_value *dy) {
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, avg_pool2d_grad, node, dy);
    weir__contribute(builder, node->in[0], weir__output_like(builder, grad, node->in[0]));
}

static double pool_cost(const struct weir__node *node) {
    const struct weir__window *window = &node->shape.window;
    double each =
        window->adaptive ? pixels(window->in) / pixels(window->out) : pixels(window->kernel);
    return (double)node->shape.width * pixels(window->out) * each;
}

/* ---- upsampling ---- */

struct weir_value *weir_upsample(struct weir_builder *builder, struct weir_value *x,
                                 const int64_t scale[2]) {
    if (!weir__expects_image(builder, "upsample", x)) return NULL;
    struct weir__window window = {.in = plane_in(x), .stride = plane_of(scale)};
    bool fits = scale[0] <= INT32_MAX / x->shape[1] && scale[1] <= INT32_MAX / x->shape[2];
    if (!fits) return weir_builder_fail(builder, WEIR_ERR_SHAPE, "upsample's output is too large");
    window.out = (struct weir__plane){x->shape[1] * scale[0], x->shape[2] * scale[1]};
    return emit_window(builder, WEIR__OP_upsample, x, &window);
}

static void upsample_gradient(struct weir_builder *builder, const struct weir__node *node,
                              struct weir_value *dy) {
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, upsample_grad, node, dy);
    weir__contribute(builder, node->in[0], weir__output_like(builder, grad, node->in[0]));
}

/* ---- concatenation ---- */

static bool concat_fits(struct weir_builder *builder, const struct weir_value *a,
                        const struct weir_value *b) {
    char text_a[96], text_b[96];
    bool fits = a->rank == b->rank && a->rank >= 1 && a->dtype == b->dtype;
    for (uint32_t d = 1; fits && d < a->rank; d++)
        fits = a->rank == 3 ? a->shape[d] <= b->shape[d] : a->shape[d] == b->shape[d];
    if (fits) return true;
    weir_builder_fail(
        builder, WEIR_ERR_SHAPE,
        "concat joins along the first dimension; the others must be equal (of images, "
        "the input's may be smaller than the skip's), not %s and %s",
        weir__value_text(a, text_a), weir__value_text(b, text_b));
    return false;
}

/** The elements behind the first dimension. */
static int64_t tail(const struct weir_value *x) {
    return weir__value_count(x) / x->shape[0];
}

struct weir_value *weir_concat(struct weir_builder *builder, struct weir_value *a,
                               struct weir_value *b) {
    if (!weir__expects_float(builder, "concat", a) || !weir__expects_float(builder, "concat", b) ||
        !concat_fits(builder, a, b))
        return NULL;
    bool image = a->rank == 3;
    if (image) {
        a = weir__channels_last(builder, a);
        b = weir__channels_last(builder, b);
    }
    struct weir__node *node = WEIR__EMIT(builder, concat, a, b);
    if (node == NULL) return NULL;
    struct weir__plane one = {1, 1};
    /* What is no image is one pixel: blocks follow one another. */
    node->shape.in = image ? a->shape[0] : a->shape[0] * tail(a);
    node->shape.out = image ? b->shape[0] : b->shape[0] * tail(b);
    node->shape.window.in = image ? plane_in(a) : one;
    node->shape.window.out = image ? plane_in(b) : one;
    int64_t shape[WEIR_RANK_MAX];
    memcpy(shape, b->shape, sizeof shape);
    shape[0] += a->shape[0];
    struct weir_value *y = weir__output(builder, node, b->rank, shape);
    if (y != NULL) y->channels_last = image;
    return y;
}

static void concat_gradient(struct weir_builder *builder, const struct weir__node *node,
                            struct weir_value *dy) {
    struct weir_value *a = node->in[0], *b = node->in[1];

    if (weir__wants_grad(a)) {
        struct weir__node *grad = WEIR__EMIT_LIKE(builder, concat_grad_a, node, dy);
        weir__contribute(builder, a, weir__output_like(builder, grad, a));
    }
    if (weir__wants_grad(b)) {
        struct weir__node *grad = WEIR__EMIT_LIKE(builder, concat_grad_b, node, dy);
        weir__contribute(builder, b, weir__output_like(builder, grad, b));
    }
}

const struct weir__op_rule weir__rule_max_pool2d = {.gradient = max_pool_gradient,
                                                    .cost = pool_cost};
const struct weir__op_rule weir__rule_avg_pool2d = {.gradient = avg_pool_gradient,
                                                    .cost = pool_cost};
const struct weir__op_rule weir__rule_upsample = {.gradient = upsample_gradient};
const struct weir__op_rule weir__rule_concat = {.gradient = concat_gradient};
