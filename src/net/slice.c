/* SPDX-License-Identifier: MIT */
/* Slicing by reachability: a program has the nodes that its results need, and no other. Marks stand
 * on the roots of values, so aliases vanish here. */
#include "net/program.h"

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

static void need_outputs(const struct weir__graph *graph, struct marks *marks) {
    need(marks, graph->output);
    for (uint32_t i = 0; i < graph->skip_count; i++)
        if (graph->skips[i].verb == WEIR_SKIP_STASH) need(marks, graph->skips[i].value);
}

static void need_border_grads(const struct weir__graph *graph, struct marks *marks) {
    need(marks, graph->input_grad);
    for (uint32_t i = 0; i < graph->skip_count; i++) need(marks, graph->skips[i].grad_out);
}

/* ---- one program after the other ---- */

static void note_read(const struct weir__graph *graph, struct weir__slices *slices,
                      const struct weir_value *in, const struct marks *input, bool weight_part) {
    if (in->source == WEIR__FROM_INPUT) slices->inputs_kept |= (uint64_t)1 << in->index;
    if (in->source == WEIR__FROM_SKIP) slices->skip_kept[in->index] = true;
    bool border = in->source == WEIR__FROM_OUTPUT_GRAD || in->source == WEIR__FROM_SKIP_GRAD;
    bool from_node = in->source == WEIR__FROM_NODE;
    bool backward = from_node && in->producer->id >= graph->forward_count;
    if (from_node && !backward) slices->residual[in->id] = true;
    if (!weight_part) return;
    if (border || (backward && input->nodes[in->producer->id])) slices->carried[in->id] = true;
}

/** What the backward nodes of `all` read; those that are not in `input` are the weight part. */
static void note_reads(const struct weir__graph *graph, struct weir__slices *slices,
                       const struct marks *all, const struct marks *input) {
    for (uint32_t i = graph->forward_count; i < graph->node_count; i++) {
        const struct weir__node *node = graph->nodes[i];
        for (uint32_t k = 0; all->nodes[i] && k < node->in_count; k++)
            if (node->in[k] != NULL)
                note_read(graph, slices, weir__value_root(node->in[k]), input, !input->nodes[i]);
    }
}

/** Backward comes first: what it reads of the forward pass is what the others must keep. */
static int slice_backward(struct weir__graph *graph, struct weir__slices *slices) {
    struct marks all, input;
    if (!take_marks(graph, &all) || !take_marks(graph, &input)) return WEIR_ERR_OUT_OF_MEMORY;
    need_border_grads(graph, &input);
    reach(graph, &input, graph->forward_count, graph->node_count);
    need_border_grads(graph, &all);
    for (uint32_t i = 0; i < graph->value_count; i++)
        if (graph->values[i]->accumulator != WEIR__NONE) need(&all, graph->values[i]);
    reach(graph, &all, graph->forward_count, graph->node_count);
    note_reads(graph, slices, &all, &input);
    int status = list_program(graph, slices, WEIR__PROGRAM_BACKWARD, all.nodes);
    if (status == WEIR_OK)
        status = list_program(graph, slices, WEIR__PROGRAM_BACKWARD_INPUT, input.nodes);
    for (uint32_t i = 0; i < graph->node_count; i++) all.nodes[i] = all.nodes[i] && !input.nodes[i];
    if (status != WEIR_OK) return status;
    return list_program(graph, slices, WEIR__PROGRAM_BACKWARD_WEIGHT, all.nodes);
}

static int slice_forward(struct weir__graph *graph, struct weir__slices *slices,
                         enum weir__program_kind kind) {
    struct marks marks;
    if (!take_marks(graph, &marks)) return WEIR_ERR_OUT_OF_MEMORY;
    if (kind != WEIR__PROGRAM_RECOMPUTE) need_outputs(graph, &marks);
    if (kind != WEIR__PROGRAM_RECOMPUTE && kind != WEIR__PROGRAM_INFER) need(&marks, graph->loss);
    if (kind == WEIR__PROGRAM_FORWARD || kind == WEIR__PROGRAM_RECOMPUTE)
        for (uint32_t i = 0; i < graph->value_count; i++) marks.values[i] |= slices->residual[i];
    reach(graph, &marks, 0, graph->forward_count);
    if (kind == WEIR__PROGRAM_RECOMPUTE)
        for (uint32_t i = 0; i < WEIR__STAGE_INPUT_MAX; i++)
            if (graph->inputs[i] != NULL && marks.values[graph->inputs[i]->id])
                slices->inputs_recomputed |= (uint64_t)1 << i;
    return list_program(graph, slices, kind, marks.nodes);
}

int weir__slice(struct weir__graph *graph, struct weir__slices *slices) {
    static const enum weir__program_kind forwards[] = {
        WEIR__PROGRAM_FORWARD, WEIR__PROGRAM_CHECKPOINT, WEIR__PROGRAM_RECOMPUTE,
        WEIR__PROGRAM_INFER, WEIR__PROGRAM_INFER_LOSS};
    memset(slices, 0, sizeof *slices);
    slices->graph = graph;
    slices->residual = weir__pool_take(graph->pool, graph->value_count, sizeof(bool));
    slices->carried = weir__pool_take(graph->pool, graph->value_count, sizeof(bool));
    slices->skip_kept = weir__pool_take(graph->pool, graph->skip_count, sizeof(bool));
    if (slices->residual == NULL || slices->carried == NULL || slices->skip_kept == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    int status = slice_backward(graph, slices);
    for (size_t i = 0; status == WEIR_OK && i < WEIR__COUNT_OF(forwards); i++)
        status = slice_forward(graph, slices, forwards[i]);
    return status;
}

int weir__graph_activation_bytes(struct weir__graph *graph, uint64_t *sum) {
    struct weir__slices slices;
    int status = weir__slice(graph, &slices);
    *sum = 0;
    for (uint32_t i = 0; status == WEIR_OK && i < graph->value_count; i++) {
        const struct weir_value *value = graph->values[i];
        bool kept_input = value == graph->inputs[0] && (slices.inputs_kept & 1) != 0;
        size_t bytes;
        if (!slices.residual[i] && !kept_input) continue;
        status = weir__value_bytes(value, 1, &bytes);
        if (status == WEIR_OK) *sum += bytes;
    }
    return status;
}
