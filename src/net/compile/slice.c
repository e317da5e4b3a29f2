/* SPDX-License-Identifier: MIT */
/* Slicing by reachability: a program has the nodes that its results need, and no other. Marks stand
 * on the roots of values, so aliases vanish here. */
#include "net/compile/program.h"

#include <string.h>

struct marks {
    bool *values; /* needed */
    bool *nodes;  /* part of the program */
};

static void need(struct marks *marks, struct weir_value *value) {
    if (value != NULL) marks->values[weir__value_root(value)->id] = true;
}

/** Marks the nodes from `first` to below `end` that make needed values, and what those read. */
static void reach(const struct weir__graph *graph, struct marks *marks, uint32_t first,
                  uint32_t end) {
    for (uint32_t i = end; i-- > first;) {
        const struct weir__node *node = graph->nodes[i];
        if (node->dead || node->op == WEIR__OP_ALIAS) continue;
        bool needed = false;
        for (uint32_t k = 0; k < node->out_count; k++) needed |= marks->values[node->out[k]->id];
        if (!needed) continue;
        marks->nodes[i] = true;
        for (uint32_t k = 0; k < node->in_count; k++) need(marks, node->in[k]);
    }
}

static bool take_marks(struct weir__graph *graph, struct marks *marks) {
    marks->values = weir__pool_take(graph->pool, graph->value_count, sizeof(bool));
    marks->nodes = weir__pool_take(graph->pool, graph->node_count, sizeof(bool));
    return marks->values != NULL && marks->nodes != NULL;
}

static int list_program(struct weir__graph *graph, struct weir__slices *slices,
                        enum weir__program_kind kind, const bool *nodes) {
    assert((unsigned)kind < WEIR__PROGRAM_COUNT);
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) count += nodes[i];
    uint32_t *list = weir__pool_take(graph->pool, count, sizeof list[0]);
    if (list == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0, next = 0; i < graph->node_count; i++)
        if (nodes[i]) list[next++] = i;
    slices->node_counts[kind] = count;
    slices->nodes[kind] = list;
    return WEIR_OK;
}

static void need_stashes(const struct weir__graph *graph, struct marks *marks) {
    for (uint32_t i = 0; i < graph->skip_count; i++)
        if (graph->skips[i].use.verb == WEIR_SKIP_STASH) need(marks, graph->skips[i].value);
}

static void need_border_grads(const struct weir__graph *graph, struct marks *marks) {
    need(marks, graph->input_grad);
    for (uint32_t i = 0; i < graph->skip_count; i++) need(marks, graph->skips[i].grad_out);
}

/** Marks what a layer's backward nodes, those that are in `all`, read of a later layer's. */
static void need_layer_grads(const struct weir__graph *graph, const struct marks *all,
                             struct marks *marks) {
    for (uint32_t i = graph->forward_count; i < graph->node_count; i++) {
        const struct weir__node *node = graph->nodes[i];
        for (uint32_t k = 0; all->nodes[i] && k < node->in_count; k++) {
            const struct weir_value *in = node->in[k];
            if (in == NULL || node->op == WEIR__OP_ALIAS) continue;
            const struct weir__node *from = weir__value_root(node->in[k])->producer;
            if (from != NULL && from->id >= graph->forward_count && from->layer > node->layer)
                need(marks, node->in[k]);
        }
    }
}

/* ---- one program after the other ---- */

/** A bit of the engine's masks. */
static uint64_t bit_of(uint32_t index) {
    return (uint64_t)1 << (index < 63 ? index : 63);
}

static bool is_forward_node(const struct weir__graph *graph, const struct weir_value *value) {
    assert(value->producer != NULL);
    return value->producer->id < graph->forward_count;
}

/** Notes what a backward node reads, so that it is kept. */
static void note_read(const struct weir__graph *graph, struct weir__slices *slices,
                      const struct weir_value *in) {
    if (in->source == WEIR__FROM_INPUT) slices->inputs_kept |= bit_of(in->index);
    if (in->source == WEIR__FROM_SKIP) slices->skip_kept[in->index] = true;
    if (in->source == WEIR__FROM_NODE && is_forward_node(graph, in))
        slices->residual[in->id] = true;
}

/** Notes what the weight part reads, so that it lasts until then. Nothing is computed twice: the
 * input part leaves what it has made, and what came over the border stays where it is. */
static void note_weight_read(const struct weir__graph *graph, struct weir__slices *slices,
                             const struct weir_value *in, const struct marks *input) {
    struct weir_weight_reads *reads = &slices->weight_reads;
    switch (in->source) {
    case WEIR__FROM_INPUT: reads->inputs |= bit_of(in->index); break;
    case WEIR__FROM_SKIP: reads->skips |= bit_of(in->index); break;
    case WEIR__FROM_OUTPUT_GRAD: reads->output_grads |= bit_of(in->index); break;
    case WEIR__FROM_SKIP_GRAD: reads->skip_grads |= bit_of(in->index); break;
    case WEIR__FROM_PARAMETER: break;
    case WEIR__FROM_NODE:
        if (is_forward_node(graph, in))
            slices->residual_of_weight[in->id] = true;
        else if (input->nodes[in->producer->id])
            slices->left_for_weight[in->id] = true;
        break;
    }
}

/** What the backward nodes of `all` read. */
static void note_reads(const struct weir__graph *graph, struct weir__slices *slices,
                       const struct marks *all, const struct marks *input) {
    for (uint32_t i = graph->forward_count; i < graph->node_count; i++) {
        const struct weir__node *node = graph->nodes[i];
        bool of_weight = !input->nodes[i] || slices->in_both[i];
        for (uint32_t k = 0; all->nodes[i] && k < node->in_count; k++) {
            if (node->in[k] == NULL) continue;
            const struct weir_value *in = weir__value_root(node->in[k]);
            note_read(graph, slices, in);
            if (of_weight) note_weight_read(graph, slices, in, input);
        }
    }
}

/** Nodes of the input part that make gradients of parameters too. */
static void find_in_both(const struct weir__graph *graph, struct weir__slices *slices,
                         const struct marks *input) {
    for (uint32_t i = graph->forward_count; i < graph->node_count; i++)
        for (uint32_t k = 0; input->nodes[i] && k < graph->nodes[i]->out_count; k++)
            slices->in_both[i] |= graph->nodes[i]->out[k]->accumulator != WEIR__NONE;
}

/** Backward comes first, because the other programs must keep what it reads. */
static int slice_backward(struct weir__graph *graph, struct weir__slices *slices) {
    struct marks all, input;
    if (!take_marks(graph, &all) || !take_marks(graph, &input)) return WEIR_ERR_OUT_OF_MEMORY;
    need_border_grads(graph, &all);
    need(&all, graph->backward_loss);
    for (uint32_t i = 0; i < graph->value_count; i++)
        if (graph->values[i]->accumulator != WEIR__NONE) need(&all, graph->values[i]);
    reach(graph, &all, graph->forward_count, graph->node_count);
    need_border_grads(graph, &input);
    need(&input, graph->backward_loss);
    if (graph->layered) need_layer_grads(graph, &all, &input);
    reach(graph, &input, graph->forward_count, graph->node_count);
    find_in_both(graph, slices, &input);
    note_reads(graph, slices, &all, &input);
    int status = list_program(graph, slices, WEIR__PROGRAM_BACKWARD, all.nodes);
    if (status != WEIR_OK) return status;
    status = list_program(graph, slices, WEIR__PROGRAM_BACKWARD_INPUT, input.nodes);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < graph->node_count; i++)
        all.nodes[i] = all.nodes[i] && (!input.nodes[i] || slices->in_both[i]);
    return list_program(graph, slices, WEIR__PROGRAM_BACKWARD_WEIGHT, all.nodes);
}

static int slice_forward(struct weir__graph *graph, struct weir__slices *slices,
                         enum weir__program_kind kind) {
    struct marks marks;
    if (!take_marks(graph, &marks)) return WEIR_ERR_OUT_OF_MEMORY;
    if (kind != WEIR__PROGRAM_RECOMPUTE) {
        need(&marks, graph->output);
        need_stashes(graph, &marks);
    }
    bool trains = kind == WEIR__PROGRAM_FORWARD || kind == WEIR__PROGRAM_CHECKPOINT;
    if (kind == WEIR__PROGRAM_INFER_LOSS || (trains && graph->backward_loss == NULL))
        need(&marks, graph->loss);
    if (kind == WEIR__PROGRAM_FORWARD || kind == WEIR__PROGRAM_RECOMPUTE)
        for (uint32_t i = 0; i < graph->value_count; i++) marks.values[i] |= slices->residual[i];
    reach(graph, &marks, 0, graph->forward_count);
    if (kind == WEIR__PROGRAM_RECOMPUTE)
        for (uint32_t i = 0; i < WEIR__STAGE_INPUT_MAX; i++)
            if (graph->inputs[i] != NULL && marks.values[graph->inputs[i]->id])
                slices->inputs_recomputed |= (uint64_t)1 << i;
    return list_program(graph, slices, kind, marks.nodes);
}

/** Keeps keys and values: what comes after needs them. */
static bool keeps_tokens(const struct weir__node *node) {
    return node->op == WEIR__OP_attention_cached || node->op == WEIR__OP_grouped_attention_cached;
}

/** Of inference by tokens: what neither stashes nor tokens that follow need. Else a product whose
 * loss does without it. */
static int find_to_output(struct weir__graph *graph, struct weir__slices *slices) {
    struct marks marks;
    const struct weir__node *head = weir__graph_head(graph);
    if (head != NULL) slices->to_output[head->id] = true;
    if (!graph->by_tokens) return WEIR_OK;
    assert(graph->node_count == graph->forward_count);
    if (!take_marks(graph, &marks)) return WEIR_ERR_OUT_OF_MEMORY;
    need_stashes(graph, &marks);
    for (uint32_t i = 0; i < graph->forward_count; i++)
        if (keeps_tokens(graph->nodes[i])) need(&marks, graph->nodes[i]->out[0]);
    reach(graph, &marks, 0, graph->forward_count);
    for (uint32_t i = 0; i < graph->forward_count; i++) slices->to_output[i] = !marks.nodes[i];
    return WEIR_OK;
}

static bool take_lists(struct weir__graph *graph, struct weir__slices *slices) {
    struct weir__pool *pool = graph->pool;
    slices->residual = weir__pool_take(pool, graph->value_count, sizeof(bool));
    slices->residual_of_weight = weir__pool_take(pool, graph->value_count, sizeof(bool));
    slices->left_for_weight = weir__pool_take(pool, graph->value_count, sizeof(bool));
    slices->in_both = weir__pool_take(pool, graph->node_count, sizeof(bool));
    slices->skip_kept = weir__pool_take(pool, graph->skip_count, sizeof(bool));
    slices->to_output = weir__pool_take(pool, graph->node_count, sizeof(bool));
    return slices->residual != NULL && slices->residual_of_weight != NULL &&
           slices->left_for_weight != NULL && slices->in_both != NULL &&
           slices->skip_kept != NULL && slices->to_output != NULL;
}

int weir__slice(struct weir__graph *graph, struct weir__slices *slices) {
    assert(graph->forward_count <= graph->node_count);
    static const enum weir__program_kind forwards[] = {
        WEIR__PROGRAM_FORWARD, WEIR__PROGRAM_CHECKPOINT, WEIR__PROGRAM_RECOMPUTE,
        WEIR__PROGRAM_INFER, WEIR__PROGRAM_INFER_LOSS};
    memset(slices, 0, sizeof *slices);
    slices->graph = graph;
    if (!take_lists(graph, slices)) return WEIR_ERR_OUT_OF_MEMORY;
    int status = slice_backward(graph, slices);
    if (status != WEIR_OK) return status;
    for (size_t i = 0; i < WEIR__COUNT_OF(forwards); i++)
        if ((status = slice_forward(graph, slices, forwards[i])) != WEIR_OK) return status;
    return find_to_output(graph, slices);
}

int weir__graph_activation_bytes(struct weir__graph *graph, uint64_t *sum) {
    struct weir__slices slices;
    int status = weir__slice(graph, &slices);
    *sum = 0;
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct weir_value *value = graph->values[i];
        bool kept_input = value == graph->inputs[0] && (slices.inputs_kept & 1) != 0;
        size_t bytes;
        if (!slices.residual[i] && !kept_input) continue;
        if ((status = weir__value_bytes(value, 1, &bytes)) != WEIR_OK) return status;
        *sum += bytes;
    }
    return WEIR_OK;
}
