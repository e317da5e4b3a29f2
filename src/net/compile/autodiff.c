/* SPDX-License-Identifier: MIT */
/*
 * Reverse-mode differentiation at compile time. Nodes are visited in descending order and each op's
 * rule contributes to its operands' gradients at once, so a value's gradient is a left fold over
 * its consumers in descending order. What comes in over the border (the output's gradient, the
 * running sums of skips) stands first, as it would if the later layers were in the same graph.
 */
#include "net/model/builder.h"

static struct weir_value *incoming(struct weir_builder *builder, enum weir__value_source source,
                                   uint32_t index, const struct weir_value *like) {
    struct weir_tensor tensor = weir_value_tensor(like);
    tensor.differentiable = false;
    struct weir_value *value = weir__graph_value(builder->graph, source, index, &tensor);
    if (value == NULL) return weir_builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    value->channels_last = like->channels_last;
    return value;
}

/** Gradients that other stages hand in. */
static void seed(struct weir_builder *builder) {
    struct weir__graph *graph = builder->graph;
    if (graph->loss == NULL && graph->output->requires_grad)
        graph->output->grad = incoming(builder, WEIR__FROM_OUTPUT_GRAD, 0, graph->output);
    for (uint32_t i = 0; i < graph->skip_count; i++) {
        const struct weir__graph_skip_use *use = &graph->skips[i];
        if (use->value->requires_grad && use->later_readers)
            use->value->grad = incoming(builder, WEIR__FROM_SKIP_GRAD, i, use->value);
    }
}

static void visit(struct weir_builder *builder, const struct weir__node *node) {
    assert(node->out_count >= 1);
    struct weir_value *y = node->out[0];
    if (node->dead || !y->requires_grad) return;
    if (y->grad == NULL && y != builder->graph->loss) return;
    builder->layer_index = node->layer;
    if (node->op == WEIR__OP_ALIAS) {
        struct weir_value *x = node->in[0], *dy = y->grad;
        bool same = weir__value_same_shape(x, dy) && x->channels_last == dy->channels_last;
        weir__contribute(builder, x, same ? dy : weir__alias_like(builder, dy, x));
        return;
    }
    const struct weir__op_rule *rule = weir__op_rule(node->op);
    assert(rule->gradient != NULL);
    rule->gradient(builder, node, y->grad);
}

/** Accumulators were made while going backward; their sum goes forward. */
static void order_accumulators(struct weir__graph *graph) {
    uint32_t count = graph->accumulator_count;
    for (uint32_t i = 0; i < count / 2; i++) {
        struct weir__accumulator swap = graph->accumulators[i];
        graph->accumulators[i] = graph->accumulators[count - 1 - i];
        graph->accumulators[count - 1 - i] = swap;
    }
    for (uint32_t i = 0; i < graph->value_count; i++) {
        struct weir_value *value = graph->values[i];
        if (value->accumulator != WEIR__NONE) value->accumulator = count - 1 - value->accumulator;
    }
}

int weir__differentiate(struct weir_builder *builder) {
    struct weir__graph *graph = builder->graph;
    if (builder->status != WEIR_OK) return builder->status;
    assert(graph->forward_count == graph->node_count && graph->inputs[0] != NULL);
    seed(builder);
    for (uint32_t i = graph->forward_count; i-- > 0 && builder->status == WEIR_OK;)
        visit(builder, graph->nodes[i]);
    if (graph->inputs[0]->requires_grad) graph->input_grad = graph->inputs[0]->grad;
    for (uint32_t i = 0; i < graph->skip_count; i++)
        if (graph->skips[i].use.verb != WEIR_SKIP_STASH)
            graph->skips[i].grad_out = graph->skips[i].value->grad;
    order_accumulators(graph);
    return builder->status;
}
