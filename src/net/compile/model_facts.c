/* SPDX-License-Identifier: MIT */
/* What the compiler finds out about each layer of a model. */
#include "net/compile/compile.h"
#include "net/compile/program.h"

#include <string.h>

static int fill_facts(const struct weir__network *network, uint32_t layer,
                      struct weir_layer_facts *facts) {
    struct weir__stage_graph *stage = &network->stages[layer];
    memset(facts, 0, sizeof *facts);
    facts->output = weir_value_tensor(stage->graph.output);
    for (uint32_t i = 0; i < stage->parameter_count; i++) {
        const struct weir__parameter_decl *parameter =
            &network->parameters[stage->parameter_first + i];
        if (parameter->original != WEIR__NONE) continue;
        if (parameter->running != NULL) {
            facts->statistics += parameter->count;
            continue;
        }
        facts->parameters += parameter->count;
        facts->trainable += parameter->frozen ? 0 : parameter->count;
    }
    double flops = 0;
    for (uint32_t i = 0; i < stage->graph.forward_count; i++) {
        const struct weir__node *node = stage->graph.nodes[i];
        const struct weir__op_rule *rule = weir__op_rule(node->op);
        if (!node->dead && node->layer == layer && rule->cost != NULL) flops += rule->cost(node);
    }
    facts->flops = (uint64_t)flops;
    return weir__graph_activation_bytes(&stage->graph, &facts->activation_bytes);
}

/** Each layer is a stage of its own, so that the compiler says of each what it needs. */
int weir_model_infer(const struct weir_model *model, enum weir_dtype dtype,
                     struct weir_layer_facts *facts, struct weir_faults *faults) {
    uint32_t count = model->layer_count == 0 ? 1 : model->layer_count;
    uint32_t *balance = weir__acquire(model->allocator, count, sizeof balance[0]);
    if (balance == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) balance[i] = model->layer_count == 0 ? 0 : 1;
    struct weir__compile_options options = {
        .dtype = dtype, .balance = balance, .stage_count = count, .facts_only = true};
    struct weir__network network;
    int status = weir__network_init(&network, model->allocator, model, &options, faults);
    if (status != WEIR_OK) goto out;
    for (uint32_t i = 0; status == WEIR_OK && i < model->layer_count; i++)
        status = fill_facts(&network, i, &facts[i]);
    weir__network_clean_up(&network);
out:
    weir__release(model->allocator, balance, count, sizeof balance[0]);
    return status;
}
