/* SPDX-License-Identifier: MIT */
/* Stages are built in order, since a stage's input is what the one before it puts out. */
#include "net/compile.h"

#include <string.h>

const char *weir__network_layer_label(const struct weir__network *network, uint32_t layer) {
    return layer < network->model->layer_count ? network->model->layers[layer]->label : "loss";
}

/* ---- borders ---- */

static struct weir_tensor at_dtype(struct weir_tensor tensor, enum weir_dtype dtype) {
    if (weir_dtype_is_float(tensor.dtype)) tensor.dtype = dtype;
    tensor.differentiable = false;
    return tensor;
}

static struct weir_value *add_input(struct weir_builder *builder, uint32_t index,
                                    const struct weir_tensor *tensor) {
    struct weir_value *value = weir__graph_value(builder->graph, WEIR__FROM_INPUT, index, tensor);
    if (value == NULL) weir__builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    builder->graph->inputs[index] = value;
    return value;
}

static void build_loss(struct weir_builder *builder) {
    const struct weir_model *model = builder->network->model;
    struct weir__graph *graph = builder->graph;
    builder->layer = NULL;
    builder->layer_index = model->layer_count;
    if (!model->has_target || model->loss == WEIR__LOSS_NONE) return;
    struct weir_value *target = add_input(builder, 1, &builder->network->target);
    if (builder->status != WEIR_OK) return;
    graph->loss = model->loss == WEIR__LOSS_MSE
                      ? weir__mse(builder, graph->output, target)
                      : weir__cross_entropy(builder, graph->output, target, model->ignore_index);
}

static struct weir_value *build_layer(struct weir_builder *builder, uint32_t index,
                                      struct weir_value *x) {
    builder->layer = builder->network->model->layers[index];
    builder->layer_index = index;
    builder->dropout_count = 0;
    builder->skips_done = 0;
    struct weir_value *y = builder->layer->type->build(builder, builder->layer, x);
    if (builder->status == WEIR_OK) weir__skips_check_done(builder);
    assert(y != NULL || builder->status != WEIR_OK);
    return y;
}

/* ---- memory of parameters ---- */

static int place_parameter(struct weir__network *network, struct weir__stage_graph *stage,
                           uint32_t index) {
    struct weir__parameter *parameter = &network->parameters[index];
    size_t bytes;
    int status = weir__value_bytes(parameter->value, 1, &bytes);
    if (status != WEIR_OK) return status;
    parameter->offset = stage->parameter_bytes;
    if (!weir__round_up(bytes, WEIR__CACHE_LINE, &bytes)) return WEIR_ERR_OVERFLOW;
    return weir__add(stage->parameter_bytes, bytes, &stage->parameter_bytes) ? WEIR_OK
                                                                             : WEIR_ERR_OVERFLOW;
}

/** The first use's accumulator is the parameter's gradient itself, the others follow behind all. */
static int place_accumulators(struct weir__network *network, struct weir__stage_graph *stage) {
    struct weir__graph *graph = &stage->graph;
    stage->gradient_bytes = stage->parameter_bytes;
    for (uint32_t i = 0; i < graph->accumulator_count; i++) {
        struct weir__accumulator *accumulator = &graph->accumulators[i];
        const struct weir__parameter *parameter = &network->parameters[accumulator->parameter];
        bool first = true;
        for (uint32_t k = 0; k < i; k++)
            first &= graph->accumulators[k].parameter != accumulator->parameter;
        accumulator->offset = first ? parameter->offset : stage->gradient_bytes;
        if (first) continue;
        size_t bytes;
        int status = weir__value_bytes(parameter->value, 1, &bytes);
        if (status != WEIR_OK) return status;
        if (!weir__round_up(bytes, WEIR__CACHE_LINE, &bytes)) return WEIR_ERR_OVERFLOW;
        if (!weir__add(stage->gradient_bytes, bytes, &stage->gradient_bytes))
            return WEIR_ERR_OVERFLOW;
    }
    return WEIR_OK;
}

static int place_parameters(struct weir__network *network, struct weir__stage_graph *stage) {
    int status = WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < stage->parameter_count; i++)
        status = place_parameter(network, stage, stage->parameter_first + i);
    return status != WEIR_OK || network->facts_only ? status : place_accumulators(network, stage);
}

/* ---- stages ---- */

static int build_stage(struct weir__network *network, uint32_t index,
                       const struct weir__compile_options *options, const struct weir_tensor *input,
                       struct weir_faults *faults) {
    struct weir__stage_graph *stage = &network->stages[index];
    struct weir_builder builder = {.network = network,
                                   .graph = &stage->graph,
                                   .stage = index,
                                   .dtype = network->dtype,
                                   .faults = faults};
    stage->graph.pool = &network->pool;
    stage->parameter_first = network->parameter_count;
    struct weir_value *x = add_input(&builder, 0, input);
    for (uint32_t i = 0; i < stage->layer_count && x != NULL; i++)
        x = build_layer(&builder, stage->layer_first + i, x);
    stage->graph.output = x;
    if (index + 1 == network->stage_count) build_loss(&builder);
    if (builder.status != WEIR_OK) return builder.status;
    stage->parameter_count = network->parameter_count - stage->parameter_first;
    weir__fuse(&stage->graph);
    stage->graph.forward_count = stage->graph.node_count;
    if (!options->infer_only) weir__differentiate(&builder);
    return builder.status != WEIR_OK ? builder.status : place_parameters(network, stage);
}

static int cut(struct weir__network *network, const struct weir__compile_options *options) {
    network->stages =
        weir__pool_take(&network->pool, options->stage_count, sizeof network->stages[0]);
    if (network->stages == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    uint32_t layer = 0;
    for (uint32_t s = 0; s < options->stage_count; s++) {
        network->stages[s].layer_first = layer;
        network->stages[s].layer_count = options->balance[s];
        layer += options->balance[s];
    }
    assert(layer == network->model->layer_count);
    return WEIR_OK;
}

static int compile(struct weir__network *network, const struct weir__compile_options *options,
                   struct weir_faults *faults) {
    int status = cut(network, options);
    if (status == WEIR_OK) status = weir__network_skips(network, faults);
    struct weir_tensor x = network->input;
    x.differentiable = options->input_grads && weir_dtype_is_float(x.dtype);
    for (uint32_t s = 0; status == WEIR_OK && s < network->stage_count; s++) {
        status = build_stage(network, s, options, &x, faults);
        if (status == WEIR_OK) x = weir__value_tensor(network->stages[s].graph.output);
    }
    return status;
}

int weir__network_init(struct weir__network *network, const struct weir_allocator *allocator,
                       const struct weir_model *model, const struct weir__compile_options *options,
                       struct weir_faults *faults) {
    assert(options->stage_count >= 1);
    memset(network, 0, sizeof *network);
    weir__pool_init(&network->pool, allocator);
    network->model = model;
    network->dtype = options->dtype;
    network->facts_only = options->facts_only;
    network->stage_count = options->stage_count;
    network->input = at_dtype(model->input, options->dtype);
    network->target = at_dtype(model->target, options->dtype);
    int status = compile(network, options, faults);
    if (status != WEIR_OK) weir__network_clean_up(network);
    return status;
}

void weir__network_clean_up(struct weir__network *network) {
    weir__pool_clean_up(&network->pool);
}
