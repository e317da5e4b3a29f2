/* SPDX-License-Identifier: MIT */
/* Stages are built in order, since a stage's input is what the one before it puts out. */
#include "net/compile/compile.h"
#include "weir_models.h"

#include <fnmatch.h>
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
    if (value == NULL) weir_builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    builder->graph->inputs[index] = value;
    return value;
}

static void build_loss(struct weir_builder *builder) {
    const struct weir_model *model = builder->network->model;
    struct weir__graph *graph = builder->graph;
    builder->layer = NULL;
    builder->layer_index = model->layer_count;
    if (!model->has_target || builder->network->sequences > 0) return;
    struct weir_value *target = add_input(builder, 1, &builder->network->target);
    target = weir__narrow(builder, target);
    if (builder->status != WEIR_OK) return;
    switch (model->loss) {
    case WEIR__LOSS_NONE: return;
    case WEIR__LOSS_CROSS_ENTROPY:
        graph->loss = weir__cross_entropy(builder, graph->output, target, model->ignore_index);
        return;
    case WEIR__LOSS_MSE: graph->loss = weir__mse(builder, graph->output, target); return;
    case WEIR__LOSS_BCE:
        graph->loss = weir__bce_with_logits(builder, graph->output, target);
        return;
    }
}

static struct weir_value *build_layer(struct weir_builder *builder, uint32_t index,
                                      struct weir_value *x) {
    assert(index < builder->network->model->layer_count);
    builder->layer = builder->network->model->layers[index];
    builder->layer_index = index;
    builder->dropout_count = 0;
    builder->skips_done = 0;
    if (builder->network->skips_wrong && builder->layer->type->skip_count > 0) {
        builder->status = WEIR_ERR_SKIP; /* it was told already; nobody knows the output's shape */
        return NULL;
    }
    weir__attrs_check_input(builder, builder->layer, x);
    struct weir_value *y = builder->layer->type->build(builder, builder->layer, x);
    const char *misused = atomic_load(builder->layer->misused_key);
    if (misused != NULL)
        return weir_builder_fail(builder, WEIR_ERR_ARGUMENT,
                                 "its build function asks for the attribute '%.60s', which its "
                                 "type does not list as of that kind: add it to the type's attrs",
                                 misused);
    if (builder->status == WEIR_OK) weir__skips_check_done(builder);
    if (builder->status != WEIR_OK) return NULL;
    if (y != NULL && y->batched) return y;
    return weir_builder_fail(builder, WEIR_ERR_ARGUMENT,
                             "its build function returned %s instead of a value with rows",
                             y == NULL ? "nothing" : "a parameter");
}

/* ---- memory of parameters ---- */

/** Where the next bytes begin in the stage's parameters. */
static int take_bytes(struct weir__stage_graph *stage, size_t bytes, size_t *offset) {
    *offset = stage->parameter_bytes;
    if (!weir__round_up(bytes, WEIR__CACHE_LINE, &bytes)) return WEIR_ERR_OVERFLOW;
    return weir__add(stage->parameter_bytes, bytes, &stage->parameter_bytes) ? WEIR_OK
                                                                             : WEIR_ERR_OVERFLOW;
}

static int place_parameter(struct weir__network *network, struct weir__stage_graph *stage,
                           uint32_t index) {
    assert(index - stage->parameter_first < stage->parameter_count);
    struct weir__parameter_decl *parameter = &network->parameters[index];
    size_t bytes;
    if (parameter->mapped != NULL) return WEIR_OK;
    int status = weir__value_bytes(parameter->value, 1, &bytes);
    return status == WEIR_OK ? take_bytes(stage, bytes, &parameter->offset) : status;
}

static size_t accumulator_bytes(const struct weir__network *network,
                                const struct weir__accumulator *accumulator) {
    const struct weir__parameter_decl *parameter = &network->parameters[accumulator->parameter];
    return (size_t)accumulator->count * weir_dtype_bytes(parameter->dtype); /* a value's: it fits */
}

/** Statistics that move lie where their moments do among the gradients, which are longer: so what
 * has the sums of a piece of the gradients can make the same piece of the parameters of it. */
static int place_moments(struct weir__network *network, struct weir__stage_graph *stage,
                         struct weir__accumulator *moments) {
    const struct weir__running *running = network->parameters[moments->parameter].running;
    const uint32_t own[] = {running->mean, running->variance, running->batches};
    size_t begin = stage->parameter_bytes, end, unused;
    int status = WEIR_OK;
    for (size_t i = 0; i < WEIR__COUNT_OF(own) && status == WEIR_OK; i++)
        status = place_parameter(network, stage, own[i]);
    if (status != WEIR_OK) return status;
    moments->offset = begin;
    if (!weir__add(begin, accumulator_bytes(network, moments), &end)) return WEIR_ERR_OVERFLOW;
    assert(end > stage->parameter_bytes);
    return take_bytes(stage, end - stage->parameter_bytes, &unused);
}

/** The first use's accumulator is the parameter's gradient itself, the others follow behind all. */
static int place_accumulators(struct weir__network *network, struct weir__stage_graph *stage) {
    struct weir__graph *graph = &stage->graph;
    for (uint32_t i = 0; i < graph->accumulator_count; i++) {
        struct weir__accumulator *accumulator = &graph->accumulators[i];
        const struct weir__parameter_decl *parameter = &network->parameters[accumulator->parameter];
        bool first = true;
        for (uint32_t k = 0; k < i; k++)
            first &= graph->accumulators[k].parameter != accumulator->parameter;
        accumulator->offset = first ? parameter->offset : stage->gradient_bytes;
        if (first) continue;
        size_t bytes = accumulator_bytes(network, accumulator);
        if (!weir__round_up(bytes, WEIR__CACHE_LINE, &bytes)) return WEIR_ERR_OVERFLOW;
        if (!weir__add(stage->gradient_bytes, bytes, &stage->gradient_bytes))
            return WEIR_ERR_OVERFLOW;
    }
    return WEIR_OK;
}

/** Whether steps move it: then its mean has an accumulator. */
static bool moves(const struct weir__network *network, const struct weir__stage_graph *stage,
                  uint32_t parameter) {
    const struct weir__running *running = network->parameters[parameter].running;
    for (uint32_t i = 0; running != NULL && i < stage->graph.accumulator_count; i++)
        if (stage->graph.accumulators[i].parameter == running->mean) return true;
    return false;
}

/** What learns, then statistics that move, then the rest: gradients end before that. */
static int place_parameters(struct weir__network *network, struct weir__stage_graph *stage) {
    uint32_t begin = stage->parameter_first, end = begin + stage->parameter_count;
    int status = WEIR_OK;
    for (uint32_t p = begin; p < end && status == WEIR_OK; p++)
        if (!network->parameters[p].frozen) status = place_parameter(network, stage, p);
    stage->trainable_bytes = stage->parameter_bytes;
    for (uint32_t i = 0; i < stage->graph.accumulator_count && status == WEIR_OK; i++) {
        struct weir__accumulator *accumulator = &stage->graph.accumulators[i];
        if (network->parameters[accumulator->parameter].running != NULL)
            status = place_moments(network, stage, accumulator);
    }
    stage->gradient_bytes = stage->parameter_bytes;
    for (uint32_t p = begin; p < end && status == WEIR_OK; p++)
        if (network->parameters[p].frozen && !moves(network, stage, p))
            status = place_parameter(network, stage, p);
    return status == WEIR_OK ? place_accumulators(network, stage) : status;
}

/* ---- stages ---- */

/** The stage's first input: the model's input, or the output of the stage before. That one lies in
 * memory in the order that the stage before gave it. */
static struct weir_value *build_input(struct weir_builder *builder,
                                      const struct weir__compile_options *options) {
    struct weir__network *network = builder->network;
    if (builder->stage > 0) {
        const struct weir_value *before = network->stages[builder->stage - 1].graph.output;
        struct weir_tensor tensor = weir_value_tensor(before);
        struct weir_value *x = add_input(builder, 0, &tensor);
        if (x != NULL) x->channels_last = before->channels_last;
        return x;
    }
    struct weir_tensor tensor = network->input;
    tensor.differentiable = options->input_grads && weir_dtype_is_float(tensor.dtype);
    return weir__narrow(builder, add_input(builder, 0, &tensor));
}

/** Gradients pass through even where no op makes one: an identity, a skip. */
static bool has_gradient_border(const struct weir__graph *graph) {
    if (graph->inputs[0]->requires_grad || graph->output->requires_grad) return true;
    for (uint32_t i = 0; i < graph->skip_count; i++)
        if (graph->skips[i].value->requires_grad) return true;
    return false;
}

static int build_stage(struct weir__network *network, uint32_t index,
                       const struct weir__compile_options *options, struct weir_faults *faults) {
    assert(index < network->stage_count);
    struct weir__stage_graph *stage = &network->stages[index];
    struct weir_builder builder = {.network = network,
                                   .graph = &stage->graph,
                                   .stage = index,
                                   .dtype = network->dtype,
                                   .faults = faults};
    stage->graph.pool = &network->pool;
    stage->graph.layered = options->layered;
    stage->graph.by_tokens = options->sequences > 0;
    const struct weir__backend *backend =
        options->backends == NULL ? NULL : options->backends[index];
    stage->graph.fuses_sums = backend != NULL && backend->fuses_sums;
    stage->graph.fuses_batch_norms =
        backend == NULL || backend->kernel(WEIR__OP_batch_norm_act, network->dtype) != NULL;
    stage->graph.adds_to_products =
        backend == NULL || backend->kernel(WEIR__OP_linear_add, network->dtype) != NULL;
    bool slices =
        backend == NULL || backend->kernel(WEIR__OP_linear_cross_entropy, network->dtype) != NULL;
    stage->graph.rows_max = slices ? options->rows_max : 0;
    stage->graph.logits_most = options->logits_most;
    stage->parameter_first = network->parameter_count;
    struct weir_value *x = build_input(&builder, options);
    for (uint32_t i = 0; i < stage->layer_count && x != NULL; i++)
        x = build_layer(&builder, stage->layer_first + i, x);
    if (index + 1 == network->stage_count) x = weir__plain(&builder, x);
    stage->graph.output = x;
    if (index + 1 == network->stage_count) build_loss(&builder);
    if (builder.status != WEIR_OK || builder.noted != WEIR_OK)
        return builder.noted != WEIR_OK ? builder.noted : builder.status;
    stage->parameter_count = network->parameter_count - stage->parameter_first;
    weir__fuse(&stage->graph);
    stage->graph.forward_count = stage->graph.node_count;
    if (!options->infer_only) weir__differentiate(&builder);
    stage->no_backward = stage->graph.node_count == stage->graph.forward_count &&
                         !has_gradient_border(&stage->graph);
    if (builder.status != WEIR_OK) return builder.status;
    if (options->mapping != NULL)
        weir__map_parameters(network, stage, options->backends[index], options->mapping);
    return place_parameters(network, stage);
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

/** Where all is frozen there is nothing to train. */
static int check_something_learns(const struct weir__network *network,
                                  const struct weir__compile_options *options,
                                  struct weir_faults *faults) {
    bool learns = options->infer_only || options->facts_only || network->parameter_count == 0;
    for (uint32_t i = 0; i < network->parameter_count; i++)
        learns |= !network->parameters[i].frozen;
    if (learns || options->input_grads) return WEIR_OK;
    weir_faults_add(faults, "all parameters are frozen: nothing is left to train");
    return WEIR_ERR_CONFIG;
}

/** Parameters by their public number: those that are no copies. */
static int list_named(struct weir__network *network) {
    network->named =
        weir__pool_take(&network->pool, network->parameter_count, sizeof network->named[0]);
    if (network->named == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < network->parameter_count; i++)
        if (network->parameters[i].original == WEIR__NONE)
            network->named[network->named_count++] = i;
    return WEIR_OK;
}

/** A pattern that freezes nothing is a slip of the pen. */
static int check_freezes(const struct weir__network *network, struct weir_faults *faults) {
    const struct weir_model *model = network->model;
    int status = WEIR_OK;
    for (uint32_t f = 0; f < model->freeze_count; f++) {
        bool used = false;
        for (uint32_t i = 0; i < network->parameter_count && !used; i++)
            used = fnmatch(model->freezes[f], network->parameters[i].name, 0) == 0;
        if (used) continue;
        const char *example = network->parameter_count > 0 ? network->parameters[0].name : "none";
        weir_faults_add(faults,
                        "no parameter matches the pattern '%s' that is to be frozen: the "
                        "first is named '%s'",
                        model->freezes[f], example);
        status = WEIR_ERR_CONFIG;
    }
    return status;
}

/** Whether a product of an adapter's was taken for this pattern. */
static bool takes_some(const struct weir__network *network, const char *pattern) {
    for (uint32_t i = 0; i < network->parameter_count; i++) {
        const struct weir__parameter_decl *parameter = &network->parameters[i];
        size_t length = parameter->adapter ? weir__product_name(parameter->name, true) : 0;
        char name[256];
        if (length == 0 || length >= sizeof name) continue;
        memcpy(name, parameter->name, length);
        name[length] = '\0';
        if (weir__lora_takes(pattern, name, false)) return true;
    }
    return false;
}

static int check_targets(const struct weir__network *network, struct weir_faults *faults) {
    const struct weir_lora *lora = network->model->lora;
    int status = WEIR_OK;
    for (uint32_t i = 0; lora != NULL && i < lora->target_count; i++) {
        if (takes_some(network, lora->targets[i])) continue;
        weir_faults_add(faults,
                        "no product is named like '%s', beside which adapters are to stand: name "
                        "some as 'weir describe' does, without the .weight, or all-linear",
                        lora->targets[i]);
        status = WEIR_ERR_CONFIG;
    }
    return status;
}

static int first_of(int status, int later) {
    return status != WEIR_OK ? status : later;
}

/** After a fault it goes on as long as shapes are known, to find more of them. */
static int compile(struct weir__network *network, const struct weir__compile_options *options,
                   struct weir_faults *faults) {
    int status = cut(network, options);
    if (status != WEIR_OK) return status;
    status = weir__network_skips(network, faults);
    if (status != WEIR_OK && status != WEIR_ERR_SKIP) return status;
    network->skips_wrong = status == WEIR_ERR_SKIP;
    for (uint32_t s = 0; s < network->stage_count; s++) {
        int built = build_stage(network, s, options, faults);
        status = first_of(status, built);
        if (built == WEIR_ERR_OUT_OF_MEMORY) return built;
        if (network->stages[s].graph.output == NULL) return status;
    }
    int listed = list_named(network);
    if (listed != WEIR_OK) return listed;
    status = first_of(status, check_freezes(network, faults));
    status = first_of(status, check_targets(network, faults));
    return first_of(status, check_something_learns(network, options, faults));
}

int weir__network_init(struct weir__network *network, const struct weir_allocator *allocator,
                       const struct weir_model *model, const struct weir__compile_options *options,
                       struct weir_faults *faults) {
    assert(options->stage_count >= 1);
    memset(network, 0, sizeof *network);
    weir__pool_init(&network->pool, allocator);
    weir__name_set_init(&network->parameter_names, &network->pool);
    network->model = model;
    network->dtype = options->dtype;
    network->sequences = options->sequences;
    network->stage_count = options->stage_count;
    network->input = at_dtype(model->input, weir__exact_dtype(options->dtype));
    if (options->sequences > 0) {
        bool packed = weir__model_is_packed(model);
        network->places = network->input.shape[packed ? 1 : 0];
        if (packed) network->input.rank = 1;
        network->input.shape[0] = 1;
    }
    network->target = at_dtype(model->target, weir__exact_dtype(options->dtype));
    int status = compile(network, options, faults);
    if (status != WEIR_OK) weir__network_clean_up(network);
    return status;
}

void weir__network_clean_up(struct weir__network *network) {
    weir__pool_clean_up(&network->pool);
}
