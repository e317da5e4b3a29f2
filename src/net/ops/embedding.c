/* SPDX-License-Identifier: MIT */
/* Rows of a table, picked by number, and a table of positions that is added. */
#include "net/model/network.h"
#include "net/ops/rules.h"

#include <string.h>

static struct weir__node *emit(struct weir_builder *builder, struct weir_value *index,
                               struct weir_value *table, int64_t tokens) {
    assert(table->rank == 2);
    struct weir__node *node = WEIR__EMIT(builder, embedding, index, table);
    if (node == NULL) return NULL;
    node->shape.tokens = tokens;
    node->shape.in = node->shape.table = table->shape[0];
    node->shape.out = node->shape.width = table->shape[1];
    return node;
}

struct weir_value *weir__packed_embedding(struct weir_builder *builder,
                                          struct weir_value *documents, struct weir_value *table) {
    char text[96];
    if (!weir__expects_rows(builder, "embedding", documents) || table == NULL) return NULL;
    bool packed =
        documents->dtype == WEIR_I64 && documents->rank == 2 && documents->shape[0] == 2;
    if (!packed)
        return weir_builder_fail(builder, WEIR_ERR_SHAPE,
                                 "packed rows are i64 [2, tokens]: the tokens' numbers, then where "
                                 "each one's document begins; but its input is %s",
                                 weir__value_text(documents, text));
    struct weir__node *node = emit(builder, documents, table, documents->shape[1]);
    if (node == NULL) return NULL;
    node->shape.packed = true;
    return weir__output(builder, node, 2, (int64_t[]){documents->shape[1], table->shape[1]});
}

struct weir_value *weir_embedding(struct weir_builder *builder, struct weir_value *index,
                                  struct weir_value *table) {
    char text[96];
    if (!weir__expects_rows(builder, "embedding", index)) return NULL;
    assert(table->rank == 2);
    if (index->dtype != WEIR_I64 || index->rank >= WEIR_RANK_MAX)
        return weir_builder_fail(
            builder, WEIR_ERR_SHAPE,
            "embedding takes i64 numbers of rank below %d, but its input is %s", WEIR_RANK_MAX,
            weir__value_text(index, text));
    struct weir__node *node = emit(builder, index, table, weir__value_count(index));
    if (node == NULL) return NULL;
    int64_t shape[WEIR_RANK_MAX];
    memcpy(shape, index->shape, sizeof shape);
    shape[index->rank] = table->shape[1];
    return weir__output(builder, node, index->rank + 1, shape);
}

static void embedding_gradient(struct weir_builder *builder, const struct weir__node *node,
                               struct weir_value *dy) {
    if (!weir__wants_grad(node->in[1])) return;
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, embedding_grad, node, node->in[0], dy);
    weir__output_accumulator(builder, grad, node->in[1]);
}

struct weir_value *weir_position_add(struct weir_builder *builder, struct weir_value *x,
                                     struct weir_value *table) {
    char text[96];
    if (!weir__expects_features(builder, "positions", x)) return NULL;
    assert(table->rank == 2);
    if (x->rank != 2 || x->shape[0] > table->shape[0] || x->shape[1] != table->shape[1])
        return weir_builder_fail(
            builder, WEIR_ERR_SHAPE, "positions take at most %lld tokens of width %lld, not %s",
            (long long)table->shape[0], (long long)table->shape[1], weir__value_text(x, text));
    bool cached = builder->network->sequences > 0;
    if (cached && builder->network->places > table->shape[0])
        return weir_builder_fail(builder, WEIR_ERR_SHAPE, "there are %lld positions, not %lld",
                                 (long long)table->shape[0], (long long)builder->network->places);
    struct weir__node *node =
        weir__emit(builder, cached ? WEIR__OP_position_cached : WEIR__OP_position_add, 2,
                   (struct weir_value *[]){x, table});
    if (node == NULL) return NULL;
    node->shape.tokens = x->shape[0];
    node->shape.width = x->shape[1];
    node->shape.table = table->shape[0];
    return weir__output_like(builder, node, x);
}

static void position_gradient(struct weir_builder *builder, const struct weir__node *node,
                              struct weir_value *dy) {
    weir__contribute(builder, node->in[0], dy);
    if (!weir__wants_grad(node->in[1])) return;
    struct weir__node *grad = WEIR__EMIT_LIKE(builder, position_grad, node, dy);
    weir__output_accumulator(builder, grad, node->in[1]);
}

static double position_cost(const struct weir__node *node) {
    return (double)node->shape.tokens * (double)node->shape.width;
}

const struct weir__op_rule weir__rule_embedding = {.gradient = embedding_gradient};
const struct weir__op_rule weir__rule_position_add = {
    .gradient = position_gradient, .cost = position_cost, .in_place = 1};
