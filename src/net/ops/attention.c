/* SPDX-License-Identifier: MIT */
/* Self-attention. The scores are never kept: the backward pass makes them again, block by
 * block, from qkv and the logarithm of each row's sum. */
#include "net/model/network.h"
#include "net/ops/rules.h"

/** One token per row: keys and values of those before it come from the cache. */
static struct weir_value *emit_cached(struct weir_builder *builder, struct weir_value *qkv,
                                      int64_t heads, bool causal) {
    if (!causal)
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "attention to tokens that come later cannot continue a text: "
                                 "make it causal");
    if (qkv->shape[0] != 1)
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "attention of a text that is continued takes one token per row, "
                                 "not %lld",
                                 (long long)qkv->shape[0]);
    struct weir__node *node = WEIR__EMIT(builder, attention_cached, qkv);
    if (node == NULL) return NULL;
    node->shape.in = builder->network->sequences;
    node->shape.table = builder->network->places;
    node->shape.width = weir__value_width(qkv) / 3;
    node->shape.heads = heads;
    return weir__output(builder, node, 2, (int64_t[]){1, node->shape.width});
}

struct weir_value *weir_attention(struct weir_builder *builder, struct weir_value *qkv,
                                  int64_t heads, bool causal) {
    char text[96];
    if (!weir__expects_features(builder, "attention", qkv)) return NULL;
    int64_t width = weir__value_width(qkv) / 3;
    bool thirds = qkv->rank == 2 && weir__value_width(qkv) % 3 == 0;
    if (!thirds || heads < 1 || width % heads != 0) {
        weir__builder_note(
            builder, WEIR_ERR_SHAPE,
            "attention with %lld heads takes [tokens, 3 x width], width a multiple of the heads, "
            "not %s",
            (long long)heads, weir__value_text(qkv, text));
        if (!thirds) builder->status = builder->noted; /* no shape to go on with */
    }
    if (builder->network->sequences > 0) return emit_cached(builder, qkv, heads, causal);
    struct weir__node *node = WEIR__EMIT(builder, attention, qkv);
    if (node == NULL) return NULL;
    int64_t tokens = qkv->shape[0];
    node->shape.tokens = tokens;
    node->shape.width = width;
    node->shape.heads = heads;
    node->shape.sees_all = !causal;
    struct weir_value *y = weir__output(builder, node, 2, (int64_t[]){tokens, width});
    weir__output_exact(builder, node, 2, (int64_t[]){heads, tokens});
    return y;
}

static void gradient(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy) {
    struct weir_value *qkv = node->in[0];
    if (!weir__wants_grad(qkv)) return;
    struct weir__node *grad =
        WEIR__EMIT_LIKE(builder, attention_grad, node, dy, qkv, node->out[0], node->out[1]);
    weir__contribute(builder, qkv, weir__output_like(builder, grad, qkv));
}

/** Two products over the lower triangle, or all, and its softmax. */
static double cost(const struct weir__node *node) {
    double tokens = (double)node->shape.tokens;
    double pairs = tokens * (node->shape.sees_all ? tokens : (tokens + 1) / 2);
    return pairs * (4.0 * (double)node->shape.width + 5.0 * (double)node->shape.heads);
}

const struct weir__op_rule weir__rule_attention = {.gradient = gradient, .cost = cost};
