/* SPDX-License-Identifier: MIT */
/*
 * What the graphs say of each layer without a clock. The model is compiled twice: as one stage,
 * which says what is kept between the programs, and with a stage per layer, which says what crosses
 * each border and what a layer does where its stage ends with it.
 */
#include "net/run/devices.h"
#include "net/profile/profile.h"

#include <string.h>

struct graphs {
    struct weir__profile_state *profile;
    struct weir__pool *pool;
    struct weir__network whole, alone;
    struct weir__slices slices; /* of `whole` */
    struct weir__net_weights weights;
    uint32_t layers;
    int64_t rows;
};

static int rounded(const struct weir_value *value, int64_t rows, uint64_t *bytes) {
    size_t exact;
    int status = weir__value_bytes(value, rows, &exact);
    if (status != WEIR_OK) return status;
    if (!weir__round_up(exact, WEIR__CACHE_LINE, &exact)) return WEIR_ERR_OVERFLOW;
    *bytes = exact;
    return WEIR_OK;
}

/** The loss is the last layer's. */
static struct weir_layer_cost *layer_of(const struct graphs *graphs, uint32_t layer) {
    assert(graphs->layers > 0);
    return &graphs->profile->layers[layer < graphs->layers ? layer : graphs->layers - 1];
}

/* ---- what is kept ---- */

/** Which values their own layer's backward reads. */
static void note_own(const struct graphs *graphs, bool *own) {
    const struct weir__slices *slices = &graphs->slices;
    for (uint32_t i = 0; i < slices->node_counts[WEIR__PROGRAM_BACKWARD]; i++) {
        const struct weir__node *node =
            slices->graph->nodes[slices->nodes[WEIR__PROGRAM_BACKWARD][i]];
        for (uint32_t k = 0; k < node->in_count; k++) {
            if (node->in[k] == NULL) continue;
            const struct weir_value *in = weir__value_root(node->in[k]);
            if (in->producer != NULL)
                own[in->id] |=
                    layer_of(graphs, in->producer->layer) == layer_of(graphs, node->layer);
        }
    }
}

static int add_saved(const struct graphs *graphs, const struct weir_value *value, bool own) {
    const struct weir__slices *slices = &graphs->slices;
    bool residual = slices->residual[value->id], left = slices->left_for_weight[value->id];
    uint64_t bytes;
    if (!residual && !left) return WEIR_OK;
    int status = rounded(value, graphs->rows, &bytes);
    if (status != WEIR_OK) return status;
    assert(value->producer != NULL);
    struct weir_layer_cost *layer = layer_of(graphs, value->producer->layer);
    if (residual) layer->saved += bytes;
    if (residual && !own) layer->saved_output += bytes;
    if (left || slices->residual_of_weight[value->id]) layer->weight_saved += bytes;
    return WEIR_OK;
}

static int fill_saved(const struct graphs *graphs) {
    const struct weir__graph *graph = graphs->slices.graph;
    bool *own = weir__pool_take(graphs->pool, graph->value_count, sizeof *own);
    if (own == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    note_own(graphs, own);
    for (uint32_t i = 0; i < graph->value_count; i++) {
        int status = add_saved(graphs, graph->values[i], own[i]);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* ---- parameters ---- */

/** Accumulators of further uses of a tied parameter belong to the layer that uses it again. Moments
 * are in the place of statistics, which are shorter. */
static int fill_accumulators(const struct graphs *graphs) {
    const struct weir__network *whole = &graphs->whole;
    const struct weir__graph *graph = &whole->stages[0].graph;
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct weir_value *value = graph->values[i];
        if (value->accumulator == WEIR__NONE || value->producer == NULL) continue;
        const struct weir__accumulator *use = &graph->accumulators[value->accumulator];
        const struct weir__parameter_decl *parameter = &whole->parameters[use->parameter];
        struct weir_layer_cost *layer = layer_of(graphs, value->producer->layer);
        uint64_t bytes;
        if (use->offset == parameter->offset && parameter->running == NULL) continue;
        int status = rounded(value, 1, &bytes);
        if (status != WEIR_OK) return status;
        layer->gradients += bytes;
        if (parameter->running != NULL) layer->parameters += bytes;
    }
    return WEIR_OK;
}

static int fill_parameters(const struct graphs *graphs, bool infer_only) {
    const struct weir__network *whole = &graphs->whole;
    for (uint32_t i = 0; i < whole->parameter_count; i++) {
        const struct weir__parameter_decl *parameter = &whole->parameters[i];
        struct weir_layer_cost *layer = layer_of(graphs, parameter->layer);
        uint64_t bytes;
        const struct weir__running *running = parameter->running;
        bool moves = running != NULL && whole->parameters[running->mean].value->requires_grad;
        if (moves && !infer_only) continue; /* it lies with its moments */
        if (parameter->mapped != NULL) continue;
        int status = rounded(parameter->value, 1, &bytes);
        if (status != WEIR_OK) return status;
        layer->parameters += bytes;
        if (parameter->frozen || infer_only) continue;
        layer->trainable += bytes;
        layer->gradients += bytes;
    }
    return infer_only ? WEIR_OK : fill_accumulators(graphs);
}

/** A layer by itself has copies of what it ties to earlier ones. */
static int fill_copies(const struct graphs *graphs) {
    const struct weir__network *alone = &graphs->alone;
    for (uint32_t i = 0; i < alone->parameter_count; i++) {
        const struct weir__parameter_decl *copy = &alone->parameters[i];
        if (copy->original == WEIR__NONE || copy->mapped != NULL) continue;
        struct weir_layer_cost *layer = layer_of(graphs, copy->layer);
        uint64_t bytes;
        int status = rounded(copy->value, 1, &bytes);
        if (status != WEIR_OK) return status;
        layer->copied += bytes;
        layer->copied_from = alone->parameters[copy->original].layer;
        layer->copied_learns = !copy->frozen && !graphs->profile->shown.infer_only;
    }
    return WEIR_OK;
}

/* ---- borders, and a layer by itself ---- */

static bool is_live(const struct weir__node *node) {
    return !node->dead && node->op != WEIR__OP_ALIAS;
}

static uint32_t count_live(const struct weir__graph *graph, uint32_t layer) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < graph->forward_count; i++)
        count += is_live(graph->nodes[i]) && graph->nodes[i]->layer == layer;
    return count;
}

/** The n-th live forward node of a layer. */
static const struct weir__node *find_live(const struct weir__graph *graph, uint32_t layer,
                                          uint32_t n) {
    for (uint32_t i = 0; i < graph->forward_count; i++)
        if (is_live(graph->nodes[i]) && graph->nodes[i]->layer == layer && n-- == 0)
            return graph->nodes[i];
    return NULL;
}

static bool recomputes(const struct weir__slices *slices, uint32_t node) {
    for (uint32_t i = 0; i < slices->node_counts[WEIR__PROGRAM_RECOMPUTE]; i++)
        if (slices->nodes[WEIR__PROGRAM_RECOMPUTE][i] == node) return true;
    return false;
}

/** Node by node, what R of the layer alone runs. Where kernels join layers the lists differ, and
 * all of the layer's nodes count. */
static void mark_last(const struct graphs *graphs, uint32_t layer,
                      const struct weir__slices *slices, bool *last) {
    assert(layer < graphs->layers);
    const struct weir__graph *whole = graphs->slices.graph, *alone = slices->graph;
    uint32_t count = count_live(whole, layer);
    bool same = count == count_live(alone, layer);
    for (uint32_t n = 0; n < count; n++) {
        const struct weir__node *node = find_live(whole, layer, n);
        const struct weir__node *twin = same ? find_live(alone, layer, n) : NULL;
        same = same && twin->op == node->op;
        last[node->id] = !same || recomputes(slices, twin->id);
    }
    graphs->profile->layers[layer].joined = count_live(alone, layer) > count;
}

static int fill_workspace(const struct graphs *graphs, const struct weir_net_options *options,
                          const struct weir__slices *slices, struct weir_layer_cost *layer) {
    uint32_t parameters = graphs->alone.parameter_count;
    struct weir__instance *instance;
    struct weir__instance_options plan = {
        .allocator = options->pipe.allocator,
        .slices = slices,
        .parameter_offsets = weir__pool_take(graphs->pool, parameters, sizeof(size_t)),
        .dtype = options->dtype,
        .rows_max = graphs->rows,
        .threads = graphs->profile->shown.threads,
        .threads_known = true,
        .backend = graphs->profile->backend};
    uint32_t all = (1u << WEIR__PROGRAM_COUNT) - 1;
    if (plan.parameter_offsets == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__instance_new(&plan, graphs->rows, &instance);
    if (status != WEIR_OK) return status;
    status = weir__instance_plan(&plan, instance, all);
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++)
        if (layer->workspace < instance->programs[kind].workspace)
            layer->workspace = instance->programs[kind].workspace;
    weir__instance_destroy(options->pipe.allocator, instance);
    return status;
}

static int fill_alone(struct graphs *graphs, const struct weir_net_options *options, uint32_t index,
                      bool *last) {
    assert(index < graphs->layers && graphs->alone.stage_count == graphs->layers);
    struct weir__stage_graph *stage = &graphs->alone.stages[index];
    struct weir_layer_cost *layer = &graphs->profile->layers[index];
    struct weir__slices slices;
    int status = weir__slice(&stage->graph, &slices);
    if (status != WEIR_OK) return status;
    if ((status = rounded(stage->graph.output, graphs->rows, &layer->border)) != WEIR_OK)
        return status;
    if (weir__graph_head(&stage->graph) != NULL) layer->border = 0; /* only who asks has it */
    layer->no_backward = stage->no_backward;
    graphs->profile->kernels[index] = count_live(graphs->slices.graph, index);
    if (stage->graph.output->requires_grad && index + 1 < graphs->layers)
        layer->border_gradient = layer->border;
    mark_last(graphs, index, &slices, last);
    return fill_workspace(graphs, options, &slices, layer);
}

/* ---- skips ---- */

static int fill_skips(const struct graphs *graphs) {
    const struct weir__network *whole = &graphs->whole;
    struct weir__pool *pool = &graphs->profile->pool;
    struct weir_skip_route *skips = weir__pool_take(pool, whole->skip_count, sizeof *skips);
    if (skips == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < whole->skip_count; s++) {
        struct weir_skip_route *skip = &skips[s];
        *skip = whole->skips[s].route;
        skip->name_space = weir__pool_text(pool, skip->name_space);
        skip->name = weir__pool_text(pool, skip->name);
        skip->readers = weir__pool_copy(pool, skip->readers, skip->reader_count, sizeof(uint32_t));
        if (skip->name == NULL || skip->name_space == NULL || skip->readers == NULL)
            return WEIR_ERR_OUT_OF_MEMORY;
        skip->differentiable = whole->skips[s].value->requires_grad;
        int status = rounded(whole->skips[s].value, graphs->rows, &skip->bytes);
        if (status != WEIR_OK) return status;
    }
    graphs->profile->shown.costs.skips = skips;
    graphs->profile->shown.costs.skip_count = whole->skip_count;
    return WEIR_OK;
}

/* ---- seconds ---- */

/** Whether a step runs programs of the kind, of which some are for training and some are not. */
static bool runs(const struct graphs *graphs, enum weir__program_kind kind) {
    bool infers = kind == WEIR__PROGRAM_INFER;
    if (kind == WEIR__PROGRAM_INFER_LOSS) return false;
    return graphs->profile->shown.infer_only ? infers : !infers;
}

static void fill_seconds(const struct graphs *graphs, enum weir__program_kind kind,
                         const struct weir__roofs *roofs, const bool *last) {
    const struct weir__slices *slices = &graphs->slices;
    for (uint32_t i = 0; runs(graphs, kind) && i < slices->node_counts[kind]; i++) {
        const struct weir__node *node = slices->graph->nodes[slices->nodes[kind][i]];
        struct weir_layer_cost *layer = layer_of(graphs, node->layer);
        if (slices->to_output[node->id] && kind != WEIR__PROGRAM_INFER) continue;
        double seconds =
            weir__roofs_seconds(roofs, node, graphs->rows, graphs->profile->shown.threads);
        *weir__profile_share(layer, kind) += seconds;
        if (kind == WEIR__PROGRAM_RECOMPUTE && last[node->id]) layer->recompute_last += seconds;
    }
}

/* ---- all ---- */

static int compile(struct graphs *graphs, const struct weir_model *model,
                   const struct weir_net_options *options, struct weir_faults *faults) {
    uint32_t *ones = weir__pool_take(graphs->pool, graphs->layers, sizeof *ones);
    const struct weir__backend **backends =
        weir__pool_take(graphs->pool, graphs->layers, sizeof *backends);
    if (ones == NULL || backends == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < graphs->layers; i++) ones[i] = 1;
    for (uint32_t i = 0; i < graphs->layers; i++) backends[i] = graphs->profile->backend;
    struct weir__compile_options compile = {.dtype = options->dtype,
                                            .balance = &graphs->layers,
                                            .stage_count = 1,
                                            .layered = true,
                                            .rows_max = graphs->rows,
                                            .logits_most = options->logits_most,
                                            .backends = backends,
                                            .infer_only = options->pipe.infer_only};
    int status = weir__net_weights_open(&graphs->weights, options, faults);
    if (status != WEIR_OK) return status;
    if (graphs->weights.archive != NULL) compile.mapping = &graphs->weights.mapping;
    status = weir__network_init(&graphs->whole, options->pipe.allocator, model, &compile, faults);
    if (status != WEIR_OK) return status;
    compile.balance = ones;
    compile.stage_count = graphs->layers;
    compile.facts_only = true;
    status = weir__network_init(&graphs->alone, options->pipe.allocator, model, &compile, faults);
    if (status != WEIR_OK) weir__network_clean_up(&graphs->whole);
    return status;
}

static int fill(struct graphs *graphs, const struct weir_net_options *options, bool *last) {
    int status = fill_saved(graphs);
    if (status != WEIR_OK) return status;
    if ((status = fill_parameters(graphs, options->pipe.infer_only)) != WEIR_OK) return status;
    if ((status = fill_copies(graphs)) != WEIR_OK) return status;
    if ((status = fill_skips(graphs)) != WEIR_OK) return status;
    for (uint32_t i = 0; i < graphs->layers; i++)
        if ((status = fill_alone(graphs, options, i, last)) != WEIR_OK) return status;
    return WEIR_OK;
}

int weir__profile_bytes(struct weir__profile_state *profile, const struct weir_model *model,
                        const struct weir_net_options *options, const struct weir__roofs *roofs,
                        struct weir__pool *pool, const bool **recomputed_last,
                        struct weir_faults *faults) {
    struct graphs graphs = {.profile = profile,
                            .pool = pool,
                            .layers = model->layer_count,
                            .rows = profile->shown.rows};
    int status = compile(&graphs, model, options, faults);
    if (status != WEIR_OK) {
        weir__net_weights_close(&graphs.weights);
        return status;
    }
    struct weir__graph *graph = &graphs.whole.stages[0].graph;
    bool *last = weir__pool_take(pool, graph->node_count, sizeof *last);
    status = last == NULL ? WEIR_ERR_OUT_OF_MEMORY : weir__slice(graph, &graphs.slices);
    if (status != WEIR_OK) goto out;
    status = weir__net_check_kernels(&graphs.whole, &graphs.slices, profile->backend, faults);
    if (status != WEIR_OK) goto out;
    status = fill(&graphs, options, last);
    for (int kind = 0; status == WEIR_OK && roofs != NULL && kind < WEIR__PROGRAM_COUNT; kind++)
        fill_seconds(&graphs, (enum weir__program_kind)kind, roofs, last);
out:
    weir__network_clean_up(&graphs.alone);
    weir__network_clean_up(&graphs.whole);
    weir__net_weights_close(&graphs.weights);
    *recomputed_last = last;
    return status;
}

struct weir__profile_ranges weir__profile_ranges(const struct weir__graph *graph) {
    struct weir__profile_ranges ranges = {1, 1, false};
    for (uint32_t i = 0; i < graph->forward_count; i++) {
        const struct weir__node *node = graph->nodes[i];
        bool of_input = node->in_count > 0 && node->in[0] != NULL &&
                        weir__value_root(node->in[0]) == graph->inputs[0];
        if (node->dead) continue;
        if (node->op == WEIR__OP_embedding && of_input &&
            (ranges.input == 1 || node->shape.table < ranges.input))
            ranges.input = node->shape.table;
        if (node->op == WEIR__OP_embedding && of_input) ranges.packed |= node->shape.packed;
        if (node->op == WEIR__OP_cross_entropy || node->op == WEIR__OP_linear_cross_entropy)
            ranges.target = node->shape.width;
    }
    return ranges;
}
