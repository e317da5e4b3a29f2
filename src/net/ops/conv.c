/* SPDX-License-Identifier: MIT */
/* Convolution of images that lie channels last, with PyTorch's weights [out, in / groups, kernel].
 */
#include "net/ops/rules.h"

#include <string.h>

static struct weir__plane plane_of(const int64_t sizes[2]) {
    return (struct weir__plane){sizes[0], sizes[1]};
}

bool weir__window_out(struct weir__window *window) {
    const struct weir__plane *in = &window->in, *kernel = &window->kernel,
                             *stride = &window->stride;
    int64_t height = in->height + 2 * window->padding.height - kernel->height;
    int64_t width = in->width + 2 * window->padding.width - kernel->width;
    window->out.height = height < 0 ? 0 : height / stride->height + 1;
    window->out.width = width < 0 ? 0 : width / stride->width + 1;
    return height >= 0 && width >= 0;
}

/** What does not fit here leaves the output's shape as it is. */
static void check_channels(struct weir_builder *builder, const struct weir_value *x,
                           const struct weir_value *weight, int64_t groups) {
    char text[96];
    int64_t in = x->shape[0], out = weight->shape[0];
    if (groups < 1 || in % groups != 0 || out % groups != 0)
        weir__builder_note(
            builder, WEIR_ERR_SHAPE,
            "conv2d's %lld groups must divide its %lld input and %lld output channels",
            (long long)groups, (long long)in, (long long)out);
    else if (weight->shape[1] != in / groups)
        weir__builder_note(builder, WEIR_ERR_SHAPE,
                           "conv2d's weight takes %lld channels in each of %lld groups, but its "
                           "input is %s",
                           (long long)weight->shape[1], (long long)groups,
                           weir__value_text(x, text));
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
    if (!weir__window_out(&window))
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "conv2d's kernel of %lldx%lld is larger than its padded input, "
                                 "which is %s",
                                 (long long)window.kernel.height, (long long)window.kernel.width,
                                 weir__value_text(x, text));
    if (window.out.height > INT32_MAX || window.out.width > INT32_MAX)
        return weir_builder_fail(builder, WEIR_ERR_OVERFLOW,
                                 "conv2d's output would be %lldx%lld pixels, which no memory holds",
                                 (long long)window.out.height, (long long)window.out.width);
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
