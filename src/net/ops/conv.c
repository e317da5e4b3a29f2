/* SPDX-License-Identifier: MIT */
/* Convolution of images that lie channels last, with PyTorch's weights [out, in / groups, kernel].
 */
#include "net/ops/rules.h"

#include <string.h>

static struct weir__plane plane_of(const int64_t sizes[2]) {
    return (struct weir__plane){sizes[0], sizes[1]};
}

/** Between a side's taps; a single one has none. */
static struct weir__plane gap_of(const int64_t dilation[2], struct weir__plane kernel) {
    return (struct weir__plane){kernel.height > 1 && dilation[0] > 1 ? dilation[0] - 1 : 0,
                                kernel.width > 1 && dilation[1] > 1 ? dilation[1] - 1 : 0};
}

/** Pixels from the first tap of a side to its last. */
static int64_t reach_of(int64_t kernel, int64_t gap) {
    assert(kernel >= 0 && gap >= 0);
    return kernel + (kernel - 1) * gap;
}

bool weir__window_out(struct weir__window *window) {
    const struct weir__plane *in = &window->in, *kernel = &window->kernel,
                             *stride = &window->stride;
    int64_t height =
        in->height + 2 * window->padding.height - reach_of(kernel->height, window->gap.height);
    int64_t width =
        in->width + 2 * window->padding.width - reach_of(kernel->width, window->gap.width);
    window->out.height = height < 0 ? 0 : height / stride->height + 1;
    window->out.width = width < 0 ? 0 : width / stride->width + 1;
    return height >= 0 && width >= 0;
}

/** True if they do. What does not fit leaves the output's shape as it is. */
static bool groups_divide(struct weir_builder *builder, const char *op, int64_t groups, int64_t in,
                          int64_t out) {
    if (groups >= 1 && in % groups == 0 && out % groups == 0) return true;
    weir__builder_note(builder, WEIR_ERR_SHAPE,
                       "%s's %lld groups must divide its %lld input and %lld output channels", op,
                       (long long)groups, (long long)in, (long long)out);
    return false;
}

static void check_channels(struct weir_builder *builder, const struct weir_value *x,
                           const struct weir_value *weight, int64_t groups) {
    char text[96];
    int64_t in = x->shape[0];
    if (!groups_divide(builder, "conv2d", groups, in, weight->shape[0])) return;
    if (weight->shape[1] != in / groups)
        weir__builder_note(builder, WEIR_ERR_SHAPE,
                           "conv2d's weight takes %lld channels in each of %lld groups, but its "
                           "input is %s",
                           (long long)weight->shape[1], (long long)groups,
                           weir__value_text(x, text));
}

static bool plane_fits(struct weir_builder *builder, const char *op, struct weir__plane plane) {
    if (plane.height <= INT32_MAX && plane.width <= INT32_MAX) return true;
    weir_builder_fail(builder, WEIR_ERR_OVERFLOW,
                      "%s's output would be %lldx%lld pixels, which no memory holds", op,
                      (long long)plane.height, (long long)plane.width);
    return false;
}

struct weir_value *weir_conv2d(struct weir_builder *builder, struct weir_value *x,
                               struct weir_value *weight, struct weir_value *bias,
                               const struct weir_conv_options *options) {
    char text[96];
    if (!weir__expects_image(builder, "conv2d", x)) return NULL;
    assert(weight->rank == 4);
    check_channels(builder, x, weight, options->groups);
    struct weir__window window = {.in = {x->shape[1], x->shape[2]},
                                  .kernel = {weight->shape[2], weight->shape[3]},
                                  .stride = plane_of(options->stride),
                                  .padding = plane_of(options->padding),
                                  .groups = options->groups};
    window.gap = gap_of(options->dilation, window.kernel);
    if (!weir__window_out(&window))
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "conv2d's kernel of %lldx%lld%s is larger than its padded input, "
                                 "which is %s",
                                 (long long)reach_of(window.kernel.height, window.gap.height),
                                 (long long)reach_of(window.kernel.width, window.gap.width),
                                 window.gap.height + window.gap.width > 0 ? ", dilated," : "",
                                 weir__value_text(x, text));
    if (!plane_fits(builder, "conv2d", window.out)) return NULL;
    x = weir__channels_last(builder, x);
    struct weir__node *node = WEIR__EMIT(builder, conv2d, x, weight, bias);
    if (node == NULL) return NULL;
    node->shape.in = x->shape[0];
    node->shape.out = weight->shape[0];
    node->shape.has_bias = bias != NULL;
    node->shape.window = window;
    node->shape.tokens = window.out.height * window.out.width;
    return weir__output_image(builder, node, node->shape.out, window.out);
}

static void gradient(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy) {
    struct weir_value *x = node->in[0], *weight = node->in[1], *bias = node->in[2];
    if (weir__wants_grad(x)) {
        struct weir__node *dx = WEIR__EMIT_LIKE(builder, conv2d_grad_input, node, dy, weight);
        weir__contribute(builder, x, weir__output_like(builder, dx, x));
    }
    if (weir__wants_grad(weight)) {
        struct weir__node *dw = WEIR__EMIT_LIKE(builder, conv2d_grad_weight, node, x, dy);
        weir__output_accumulator(builder, dw, weight);
    }
    if (weir__wants_grad(bias)) {
        struct weir__node *db = WEIR__EMIT_LIKE(builder, bias_grad, node, dy);
        weir__output_accumulator(builder, db, bias);
    }
}

static double cost(const struct weir__node *node) {
    const struct weir__op_shape *shape = &node->shape;
    const struct weir__window *window = &shape->window;
    double taps = (double)window->kernel.height * (double)window->kernel.width;
    return 2.0 * (double)shape->tokens * taps * (double)(shape->in / window->groups) *
           (double)shape->out;
}

const struct weir__op_rule weir__rule_conv2d = {.gradient = gradient, .cost = cost};

/* ---- transposed ---- */

/** The convolution whose input is conv_transpose2d's output. */
static bool transposed_window(struct weir_builder *builder, const struct weir_value *x,
                              const struct weir_value *weight,
                              const struct weir_conv_options *options,
                              struct weir__window *window) {
    struct weir__plane kernel = {weight->shape[2], weight->shape[3]};
    struct weir__plane gap = gap_of(options->dilation, kernel);
    const int64_t reach[] = {reach_of(kernel.height, gap.height),
                             reach_of(kernel.width, gap.width)};
    int64_t sides[2];
    for (int i = 0; i < 2; i++) {
        sides[i] = (x->shape[1 + i] - 1) * options->stride[i] - 2 * options->padding[i] + reach[i] +
                   options->output_padding[i];
        if (sides[i] >= 1 && options->output_padding[i] < options->stride[i]) continue;
        bool empty = sides[i] < 1;
        char text[96];
        weir_builder_fail(builder, WEIR_ERR_SHAPE,
                          empty ? "conv_transpose2d's padding leaves no pixel of an input %s"
                                : "conv_transpose2d's output_padding must be below its stride, "
                                  "for an input %s",
                          weir__value_text(x, text));
        return false;
    }
    *window = (struct weir__window){.in = plane_of(sides),
                                    .out = {x->shape[1], x->shape[2]},
                                    .kernel = kernel,
                                    .gap = gap,
                                    .stride = plane_of(options->stride),
                                    .padding = plane_of(options->padding),
                                    .groups = options->groups};
    return plane_fits(builder, "conv_transpose2d", window->in);
}

static struct weir_value *add_bias(struct weir_builder *builder, struct weir_value *x,
                                   struct weir_value *bias) {
    assert(bias->rank == 1 && weir__value_count(x) % bias->shape[0] == 0);
    struct weir__node *node = WEIR__EMIT(builder, bias_add, x, bias);
    if (node == NULL) return NULL;
    node->shape.width = weir__value_count(x);
    node->shape.out = bias->shape[0];
    node->shape.tokens = node->shape.width / node->shape.out;
    return weir__output_like(builder, node, x);
}

struct weir_value *weir_conv_transpose2d(struct weir_builder *builder, struct weir_value *x,
                                         struct weir_value *weight, struct weir_value *bias,
                                         const struct weir_conv_options *options) {
    static const char name[] = "conv_transpose2d";
    struct weir__window window;
    if (!weir__expects_image(builder, name, x)) return NULL;
    assert(weight->rank == 4 && weight->shape[0] == x->shape[0]);
    int64_t out = weight->shape[1] * options->groups;
    if (!groups_divide(builder, name, options->groups, x->shape[0], out)) {
        builder->status = builder->noted; /* no shape to go on with */
        return NULL;
    }
    if (!transposed_window(builder, x, weight, options, &window)) return NULL;
    x = weir__channels_last(builder, x);
    struct weir__node *node = WEIR__EMIT(builder, conv2d_grad_input, x, weight);
    if (node == NULL) return NULL;
    node->shape.in = out;
    node->shape.out = x->shape[0];
    node->shape.window = window;
    node->shape.tokens = window.out.height * window.out.width;
    struct weir_value *y = weir__output_image(builder, node, out, window.in);
    return y == NULL || bias == NULL ? y : add_bias(builder, y, bias);
}

static void transposed_gradient(struct weir_builder *builder, const struct weir__node *node,
                                struct weir_value *dy) {
    struct weir_value *x = node->in[0], *weight = node->in[1];
    assert(!node->shape.has_bias);
    if (weir__wants_grad(x)) {
        struct weir__node *dx = WEIR__EMIT_LIKE(builder, conv2d, node, dy, weight);
        weir__contribute(builder, x, weir__output_like(builder, dx, x));
    }
    if (weir__wants_grad(weight)) {
        struct weir__node *dw = WEIR__EMIT_LIKE(builder, conv2d_grad_weight, node, dy, x);
        weir__output_accumulator(builder, dw, weight);
    }
}

const struct weir__op_rule weir__rule_conv2d_grad_input = {.gradient = transposed_gradient,
                                                           .cost = cost};
