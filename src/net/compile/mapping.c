/* SPDX-License-Identifier: MIT */
/* Parameters that stay in their file: which may, and what the nodes that read them are told. */
#include "net/compile/compile.h"

/** Whether the node reads this operand as net/kernel.h's "stored". */
static bool reads_stored(const struct weir__node *node, uint32_t operand) {
    switch (node->op) {
    case WEIR__OP_linear:
    case WEIR__OP_linear_grad_input:
    case WEIR__OP_linear_add:
    case WEIR__OP_linear_grad_input_add:
    case WEIR__OP_linear_cross_entropy:
    case WEIR__OP_linear_cross_entropy_grad:
    case WEIR__OP_embedding: return operand == 1;
    default: return false;
    }
}

static bool may_stay(const struct weir__graph *graph, const struct weir_value *parameter) {
    uint32_t uses = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct weir__node *node = graph->nodes[i];
        for (uint32_t k = 0; k < node->in_count && !node->dead; k++) {
            if (node->in[k] != parameter) continue;
            if (!reads_stored(node, k)) return false;
            uses++;
        }
    }
    return uses > 0;
}

static void tell_nodes(const struct weir__graph *graph,
                       const struct weir__parameter_decl *parameter) {
    for (uint32_t i = 0; i < graph->node_count; i++) {
        struct weir__node *node = graph->nodes[i];
        if (!node->dead && node->in_count > 1 && node->in[1] == parameter->value)
            node->shape.stored = parameter->stored;
    }
}

void weir__map_parameters(struct weir__network *network, struct weir__stage_graph *stage,
                          const struct weir__backend *backend,
                          const struct weir__mapping *mapping) {
    assert(backend != NULL && mapping->find != NULL);
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        struct weir__parameter_decl *parameter = &network->parameters[stage->parameter_first + i];
        bool stays = (parameter->frozen || mapping->all) && !parameter->adapter;
        enum weir_dtype stored = WEIR_F32;
        parameter->mapped = NULL; /* a copy begins as its original is */
        parameter->stored = parameter->dtype;
        if (!stays || backend->on_gpu || parameter->dtype != WEIR_F32) continue;
        bool copies = parameter->original != WEIR__NONE; /* of what may be given other numbers */
        if (copies && network->parameters[parameter->original].mapped == NULL) continue;
        if (!may_stay(&stage->graph, parameter->value)) continue;
        const void *mapped = mapping->find(mapping->context, parameter, &stored);
        assert(stored == WEIR_F32 || stored == WEIR_BF16);
        if (mapped == NULL || (stored == WEIR_BF16 && !backend->reads_bf16)) continue;
        parameter->mapped = mapped;
        parameter->frozen = true;
        parameter->stored = stored;
        stage->mapped_bytes += (size_t)parameter->count * weir_dtype_bytes(stored);
        tell_nodes(&stage->graph, parameter);
    }
}
