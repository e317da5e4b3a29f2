/* SPDX-License-Identifier: MIT */
/* Self-attention, and positions by rotation. Scores are never kept: the backward pass makes them
 * again, block by block, from qkv and the logarithm of each row's sum. */
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
    double reach = (double)node->shape.reach;
    double pairs = tokens * (node->shape.sees_all ? tokens : (tokens + 1) / 2);
    if (reach > 0 && reach < tokens) pairs = reach * (tokens - (reach - 1) / 2);
    return pairs * (4.0 * (double)node->shape.width + 5.0 * (double)node->shape.heads);
}

const struct weir__op_rule weir__rule_attention = {.gradient = gradient, .cost = cost};

/* ---- grouped ---- */

/** Whether the operands are what `grouping` says; else a fault. */
static bool check_grouped(struct weir_builder *builder, const struct weir_value *q,
                          const struct weir_value *k, const struct weir_value *v,
                          const struct weir__grouping *grouping) {
    char text[3][96];
    int64_t heads = grouping->heads, kv_heads = grouping->kv_heads;
    if (!weir__expects_features(builder, "attention", q) ||
        !weir__expects_features(builder, "attention", k) ||
        !weir__expects_features(builder, "attention", v))
        return false;
    bool fits = q->rank == 2 && k->rank == 2 && q->shape[0] == k->shape[0] &&
                weir__value_same_shape(k, v) && heads >= 1 && kv_heads >= 1 &&
                heads % kv_heads == 0 && q->shape[1] % heads == 0 &&
                k->shape[1] == q->shape[1] / heads * kv_heads && grouping->reach >= 0;
    if (fits) return true;
    weir_builder_fail(builder, WEIR_ERR_SHAPE,
                      "attention of %lld heads to %lld takes queries [tokens, width] and keys and "
                      "values [tokens, %lld / %lld of it], not %s, %s and %s",
                      (long long)heads, (long long)kv_heads, (long long)kv_heads, (long long)heads,
                      weir__value_text(q, text[0]), weir__value_text(k, text[1]),
                      weir__value_text(v, text[2]));
    return false;
}

struct weir_value *weir__grouped_attention(struct weir_builder *builder, struct weir_value *q,
                                           struct weir_value *k, struct weir_value *v,
                                           const struct weir__grouping *grouping) {
    if (!check_grouped(builder, q, k, v, grouping)) return NULL;
    bool cached = builder->network->sequences > 0;
    struct weir__node *node =
        cached ? WEIR__EMIT(builder, grouped_attention_cached, q, k, v)
               : WEIR__EMIT(builder, grouped_attention, q, k, v, grouping->documents);
    if (node == NULL) return NULL;
    assert(!cached || grouping->documents == NULL);
    node->shape.packed = grouping->documents != NULL;
    node->shape.tokens = q->shape[0];
    node->shape.width = q->shape[1];
    node->shape.heads = grouping->heads;
    node->shape.kv_heads = grouping->kv_heads;
    node->shape.reach = grouping->reach;
    struct weir_value *y = weir__output_like(builder, node, q);
    if (!cached) {
        weir__output_exact(builder, node, 2, (int64_t[]){grouping->heads, q->shape[0]});
        return y;
    }
    if (q->shape[0] != 1)
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "attention of a text that is continued takes one token per row, "
                                 "not %lld",
                                 (long long)q->shape[0]);
    node->shape.in = builder->network->sequences;
    node->shape.table = builder->network->places;
    return y;
}

static void grouped_gradient(struct weir_builder *builder, const struct weir__node *node,
                             struct weir_value *dy) {
    struct weir_value *const *in = node->in;
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, grouped_attention_grad, node, dy, in[0],
                                              in[1], in[2], node->out[0], node->out[1], in[3]);
    for (uint32_t i = 0; i < 3; i++) {
        struct weir_value *dx = weir__output_like(builder, grad, in[i]);
        if (weir__wants_grad(in[i])) weir__contribute(builder, in[i], dx);
    }
}

const struct weir__op_rule weir__rule_grouped_attention = {.gradient = grouped_gradient,
                                                           .cost = cost};

/* ---- rotary positions ---- */

struct weir_value *weir__rope(struct weir_builder *builder, struct weir_value *x, int64_t heads,
                              const float *frequencies, struct weir_value *documents) {
    if (!weir__expects_features(builder, "rope", x)) return NULL;
    assert(x->rank == 2 && heads >= 1 && x->shape[1] % (2 * heads) == 0);
    bool cached = builder->network->sequences > 0;
    struct weir__node *node =
        cached ? WEIR__EMIT(builder, rope_cached, x) : WEIR__EMIT(builder, rope, x, documents);
    if (node == NULL) return NULL;
    assert(!cached || documents == NULL);
    node->shape.packed = documents != NULL;
    node->shape.tokens = x->shape[0];
    node->shape.width = x->shape[1];
    node->shape.heads = heads;
    node->shape.frequencies = frequencies;
    node->shape.table = builder->network->places;
    return weir__output_like(builder, node, x);
}

static void rope_gradient(struct weir_builder *builder, const struct weir__node *node,
                          struct weir_value *dy) {
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, rope_grad, node, dy, node->in[1]);
    weir__contribute(builder, node->in[0], weir__output_like(builder, grad, node->in[0]));
}

static double rope_cost(const struct weir__node *node) {
    return 4.0 * (double)node->shape.tokens * (double)node->shape.width;
}

const struct weir__op_rule weir__rule_rope = {
    .gradient = rope_gradient, .cost = rope_cost, .in_place = 1};
