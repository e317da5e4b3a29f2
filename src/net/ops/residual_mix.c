/* SPDX-License-Identifier: MIT */
/*
 * Block attention residuals (arXiv 2603.15031). Shares and 1 / deviation are kept, a number per
 * token and source each. The backward pass adds to what later readers of a source gave: the sum
 * goes from reader to reader, in one pass over memory with what each of them makes.
 */
#include "net/ops/rules.h"

#include <string.h>

struct weir_value *weir__residual_mix(struct weir_builder *builder, uint32_t count,
                                      struct weir_value *const *sources, struct weir_value *weight,
                                      struct weir_value *query, double eps) {
    struct weir_value *in[2 + WEIR__SOURCES_MAX] = {weight, query};
    if (builder->status != WEIR_OK) return NULL;
    assert(count >= 1 && count <= WEIR__SOURCES_MAX && weight != NULL && query != NULL);
    for (uint32_t s = 0; s < count; s++) {
        char text[96], first[96];
        if (!weir__expects_features(builder, "residual_mix", sources[s])) return NULL;
        if (!weir__value_same_shape(sources[s], sources[0]))
            return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                     "it mixes sources of one shape, but one is %s and another %s",
                                     weir__value_text(sources[s], text),
                                     weir__value_text(sources[0], first));
        in[2 + s] = weir__plain(builder, sources[s]);
    }
    struct weir__node *node = weir__emit(builder, WEIR__OP_residual_mix, 2 + count, in);
    if (node == NULL) return NULL;
    node->shape.tokens = weir__value_tokens(in[2]);
    node->shape.width = weir__value_width(in[2]);
    node->shape.sources = count;
    node->shape.eps = eps;
    int64_t shares[] = {node->shape.tokens, count};
    struct weir_value *y = weir__output_like(builder, node, in[2]);
    weir__output_exact(builder, node, 2, shares);
    weir__output_exact(builder, node, 2, shares);
    return y;
}

static void gradient(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy) {
    uint32_t count = (uint32_t)node->shape.sources;
    struct weir_value *const *sources = node->in + 2;
    struct weir_value *in[5 + 2 * WEIR__SOURCES_MAX] = {dy, node->out[1], node->out[2], node->in[0],
                                                        node->in[1]};
    for (uint32_t s = 0; s < count; s++) {
        in[5 + s] = sources[s];
        in[5 + count + s] = sources[s]->grad;
    }
    struct weir__node *grad =
        weir__emit_like(builder, WEIR__OP_residual_mix_grad, node, 5 + 2 * count, in);
    if (grad == NULL) return;
    struct weir_value *pull =
        weir__output_exact(builder, grad, sources[0]->rank, sources[0]->shape);
    for (uint32_t s = 0; s < count; s++) {
        struct weir_value *dx = weir__output_like(builder, grad, sources[s]);
        if (weir__wants_grad(sources[s])) sources[s]->grad = dx;
    }
    if (!weir__wants_grad(node->in[0]) && !weir__wants_grad(node->in[1])) return;
    struct weir__node *weight =
        WEIR__EMIT_LIKE(builder, residual_mix_grad_weight, node, pull, node->in[0], node->in[1]);
    weir__output_accumulator(builder, weight, node->in[0]);
    weir__output_accumulator(builder, weight, node->in[1]);
}

/** Three products of a token with each source. */
static double cost(const struct weir__node *node) {
    return 6.0 * (double)node->shape.sources * (double)node->shape.tokens *
           (double)node->shape.width;
}

const struct weir__op_rule weir__rule_residual_mix = {.gradient = gradient, .cost = cost};
const struct weir__op_rule weir__rule_residual_mix_grad = {.sums = true};
