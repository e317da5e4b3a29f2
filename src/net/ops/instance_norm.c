/* SPDX-License-Identifier: MIT */
/* Instance norm over the pixels of each row and channel, and dropout2d, leaky ReLU fused with it
 * (fuse.c puts those there). Mean and 1 / deviation are kept, as LayerNorm's. */
#include "net/ops/rules.h"

struct weir_value *weir_instance_norm2d(struct weir_builder *builder, struct weir_value *x,
                                        struct weir_value *weight, struct weir_value *bias,
                                        double eps) {
    if (!weir__expects_image(builder, "instance_norm2d", x)) return NULL;
    assert((weight == NULL) == (bias == NULL));
    int64_t channels = x->shape[0], pixels = x->shape[1] * x->shape[2];
    if (pixels == 1)
        weir__builder_note(builder, WEIR_ERR_SHAPE,
                           "instance_norm2d needs more than one pixel per channel, but its "
                           "input is [%lld, 1, 1]: use larger images or fewer levels",
                           (long long)channels);
    x = weir__channels_last(builder, x);
    struct weir__node *node = WEIR__EMIT(builder, instance_norm, x, weight, bias);
    if (node == NULL) return NULL;
    node->shape.tokens = pixels;
    node->shape.width = channels;
    node->shape.eps = eps;
    node->shape.has_bias = weight != NULL;
    struct weir_value *y = weir__output_like(builder, node, x);
    weir__output_exact(builder, node, 1, &channels);
    weir__output_exact(builder, node, 1, &channels);
    return y;
}

static void gradient(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy) {
    struct weir_value *x = node->in[0], *weight = node->in[1], *bias = node->in[2];
    struct weir_value *mean = node->out[1], *rstd = node->out[2];
    if (weir__wants_grad(x)) {
        struct weir__node *dx =
            WEIR__EMIT_LIKE(builder, instance_norm_grad_input, node, dy, x, mean, rstd, weight);
        weir__contribute(builder, x, weir__output_like(builder, dx, x));
    }
    if (!weir__wants_grad(weight) && !weir__wants_grad(bias)) return;
    struct weir__node *dw =
        WEIR__EMIT_LIKE(builder, instance_norm_grad_weight, node, dy, x, mean, rstd);
    weir__output_accumulator(builder, dw, weight);
    weir__output_accumulator(builder, dw, bias);
}

static void act_gradient(struct weir_builder *builder, const struct weir__node *node,
                         struct weir_value *dy) {
    struct weir_value *x = node->in[0];
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, instance_norm_act_grad, node, dy,
                                              node->out[0], x, node->out[1], node->out[2]);
    weir__contribute(builder, x, weir__output_like(builder, grad, x));
}

static double cost(const struct weir__node *node) {
    return 8.0 * (double)node->shape.tokens * (double)node->shape.width;
}

static double act_cost(const struct weir__node *node) {
    return 10.0 * (double)node->shape.tokens * (double)node->shape.width;
}

const struct weir__op_rule weir__rule_instance_norm = {.gradient = gradient, .cost = cost};
const struct weir__op_rule weir__rule_instance_norm_act = {.gradient = act_gradient,
                                                           .cost = act_cost};
