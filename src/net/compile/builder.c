/* SPDX-License-Identifier: MIT */
/* The sticky error, and what every op's emitter is made of. */
#include "net/model/builder.h"
#include "net/compile/compile.h"
#include "net/ops/rules.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void report(struct weir_builder *builder, const char *format, va_list arguments) {
    char text[384];
    vsnprintf(text, sizeof text, format, arguments);
    const char *label = builder->layer == NULL ? "loss" : builder->layer->label;
    weir_faults_add(builder->faults, "%s%s: %s", builder->layer == NULL ? "" : "layer ", label,
                    text);
}

void *weir_builder_fail(struct weir_builder *builder, int status, const char *format, ...) {
    assert(status != WEIR_OK);
    if (builder->status != WEIR_OK) return NULL;
    builder->status = status;
    va_list arguments;
    va_start(arguments, format);
    report(builder, format, arguments);
    va_end(arguments);
    return NULL;
}

void weir__builder_note(struct weir_builder *builder, int status, const char *format, ...) {
    assert(status != WEIR_OK);
    if (builder->status != WEIR_OK) return;
    if (builder->noted == WEIR_OK) builder->noted = status;
    va_list arguments;
    va_start(arguments, format);
    report(builder, format, arguments);
    va_end(arguments);
}

static void *fail_memory(struct weir_builder *builder) {
    return weir_builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
}

/** Counts of elements are int64_t everywhere, and sums of a few of them must fit too. */
#define WEIR__VALUE_BYTES_MAX ((size_t)1 << 60)

static void *fail_size(struct weir_builder *builder, const char *what,
                       const struct weir_tensor *tensor) {
    char text[96];
    return weir_builder_fail(builder, WEIR_ERR_OVERFLOW, "%s would be %s, which no memory holds",
                             what, weir__tensor_text(tensor, text, sizeof text));
}

/* ---- nodes ---- */

struct weir__node *weir__emit(struct weir_builder *builder, enum weir__op_code op,
                              uint32_t in_count, struct weir_value *const *in) {
    assert(in_count <= WEIR__NODE_IN_MAX);
    if (builder->status != WEIR_OK) return NULL;
    struct weir__node *node = weir__graph_node(builder->graph, op, builder->layer_index, in_count);
    if (node == NULL) return fail_memory(builder);
    node->shape.dtype = builder->dtype;
    node->shape.tokens = 1;
    node->in_count = in_count;
    memcpy(node->in, in, in_count * sizeof in[0]);
    return node;
}

struct weir__node *weir__emit_like(struct weir_builder *builder, enum weir__op_code op,
                                   const struct weir__node *forward, uint32_t in_count,
                                   struct weir_value *const *in) {
    assert(forward != NULL);
    struct weir__node *node = weir__emit(builder, op, in_count, in);
    if (node == NULL) return NULL;
    node->shape = forward->shape;
    node->shape.op = op;
    return node;
}

static struct weir_value *add_output(struct weir_builder *builder, struct weir__node *node,
                                     const struct weir_tensor *tensor) {
    assert(node->out_count < node->out_capacity);
    size_t bytes;
    if (weir__tensor_bytes(tensor, 1, &bytes) != WEIR_OK || bytes > WEIR__VALUE_BYTES_MAX)
        return fail_size(builder, "its output", tensor);
    struct weir_value *value = weir__graph_value(builder->graph, WEIR__FROM_NODE, 0, tensor);
    if (value == NULL) return fail_memory(builder);
    value->producer = node;
    for (uint32_t i = 0; i < node->in_count; i++)
        value->requires_grad |= node->in[i] != NULL && node->in[i]->requires_grad;
    node->out[node->out_count++] = value;
    return value;
}

struct weir_value *weir__output(struct weir_builder *builder, struct weir__node *node,
                                uint32_t rank, const int64_t *shape) {
    if (builder->status != WEIR_OK) return NULL;
    assert(rank <= WEIR_RANK_MAX);
    struct weir_tensor tensor = {.dtype = builder->dtype, .rank = rank};
    memcpy(tensor.shape, shape, rank * sizeof shape[0]);
    return add_output(builder, node, &tensor);
}

struct weir_value *weir__output_exact(struct weir_builder *builder, struct weir__node *node,
                                      uint32_t rank, const int64_t *shape) {
    struct weir_value *value = weir__output(builder, node, rank, shape);
    if (value != NULL) value->dtype = weir__exact_dtype(builder->dtype);
    return value;
}

struct weir_value *weir__output_like(struct weir_builder *builder, struct weir__node *node,
                                     const struct weir_value *like) {
    if (builder->status != WEIR_OK) return NULL;
    struct weir_value *value = weir__output(builder, node, like->rank, like->shape);
    if (value != NULL) value->channels_last = like->channels_last;
    return value;
}

struct weir_value *weir__output_image(struct weir_builder *builder, struct weir__node *node,
                                      int64_t channels, struct weir__plane plane) {
    if (builder->status != WEIR_OK) return NULL;
    const int64_t shape[] = {channels, plane.height, plane.width};
    struct weir_value *value = weir__output(builder, node, 3, shape);
    if (value != NULL) value->channels_last = true;
    return value;
}

struct weir_value *weir__output_number(struct weir_builder *builder, struct weir__node *node) {
    if (builder->status != WEIR_OK) return NULL;
    struct weir_tensor tensor = {.dtype = WEIR_F64};
    struct weir_value *value = add_output(builder, node, &tensor);
    if (value != NULL) value->batched = false;
    return value;
}

/** `count` numbers of no row; of 0, shaped as the parameter. */
static void add_accumulator(struct weir_builder *builder, struct weir__node *node,
                            const struct weir_value *parameter, int64_t count) {
    if (builder->status != WEIR_OK) return;
    assert(parameter->source == WEIR__FROM_PARAMETER);
    struct weir__graph *graph = builder->graph;
    void *list = graph->accumulators;
    if (!weir__pool_grow(graph->pool, &list, graph->accumulator_count, &graph->accumulator_capacity,
                         sizeof graph->accumulators[0])) {
        fail_memory(builder);
        return;
    }
    graph->accumulators = list;
    struct weir_value *value =
        count > 0 ? weir__output_exact(builder, node, 1, &count)
                  : weir__output_exact(builder, node, parameter->rank, parameter->shape);
    if (value == NULL) return;
    value->batched = false;
    /* Of two that one kernel makes, the frozen one's goes to workspace. */
    if (!parameter->requires_grad) return;
    value->accumulator = graph->accumulator_count;
    graph->accumulators[graph->accumulator_count++] = (struct weir__accumulator){
        .parameter = parameter->index, .count = (uint64_t)weir__value_count(value)};
}

void weir__output_accumulator(struct weir_builder *builder, struct weir__node *node,
                              const struct weir_value *parameter) {
    add_accumulator(builder, node, parameter, 0);
}

void weir__output_moments(struct weir_builder *builder, struct weir__node *node,
                          const struct weir_value *running_mean, int64_t count) {
    assert(count > 0);
    add_accumulator(builder, node, running_mean, count);
}

/* ---- values without a kernel ---- */

static struct weir_value *alias_as(struct weir_builder *builder, struct weir_value *x,
                                   uint32_t rank, const int64_t *shape, bool channels_last) {
    struct weir__node *node = weir__emit(builder, WEIR__OP_ALIAS, 1, &x);
    struct weir_value *y = weir__output(builder, node, rank, shape);
    if (y == NULL) return NULL;
    y->dtype = x->dtype;
    y->batched = x->batched;
    y->channels_last = channels_last;
    assert(weir__value_count(x) == weir__value_count(y));
    return y;
}

struct weir_value *weir_reshape(struct weir_builder *builder, struct weir_value *x, uint32_t rank,
                                const int64_t *shape) {
    char text[96], wanted[96];
    if (!weir__expects_rows(builder, "reshape", x)) return NULL;
    struct weir_tensor tensor = {.dtype = x->dtype, .rank = rank};
    size_t bytes = 0, have = 0;
    if (rank <= WEIR_RANK_MAX) memcpy(tensor.shape, shape, rank * sizeof shape[0]);
    bool fits = weir__value_bytes(x, 1, &have) == WEIR_OK &&
                weir__tensor_bytes(&tensor, 1, &bytes) == WEIR_OK && bytes == have;
    if (!fits)
        return weir_builder_fail(
            builder, WEIR_ERR_SHAPE, "reshape from %s to %s", weir__value_text(x, text),
            rank <= WEIR_RANK_MAX ? weir__tensor_text(&tensor, wanted, sizeof wanted)
                                  : "more dimensions than there may be");
    x = weir__plain(builder, x);
    return x == NULL ? NULL : alias_as(builder, x, rank, shape, false);
}

struct weir_value *weir__alias(struct weir_builder *builder, struct weir_value *x) {
    return weir__alias_like(builder, x, x);
}

struct weir_value *weir__alias_like(struct weir_builder *builder, struct weir_value *x,
                                    const struct weir_value *like) {
    if (builder->status != WEIR_OK) return NULL;
    return alias_as(builder, x, like->rank, like->shape, like->channels_last);
}

/** The image x in the other order. */
static struct weir_value *turned(struct weir_builder *builder, struct weir_value *x) {
    assert(x->rank == 3);
    int64_t channels = x->shape[0], pixels = x->shape[1] * x->shape[2];
    bool to_last = !x->channels_last;
    if (channels == 1 || pixels == 1) return alias_as(builder, x, x->rank, x->shape, to_last);
    struct weir__node *node = WEIR__EMIT(builder, transpose, x);
    if (node == NULL) return NULL;
    node->shape.in = to_last ? channels : pixels;
    node->shape.out = to_last ? pixels : channels;
    struct weir_value *y = weir__output_like(builder, node, x);
    if (y != NULL) y->channels_last = to_last;
    return y;
}

struct weir_value *weir__plain(struct weir_builder *builder, struct weir_value *x) {
    if (builder->status != WEIR_OK || x == NULL || !x->channels_last) return x;
    return turned(builder, x);
}

struct weir_value *weir__channels_last(struct weir_builder *builder, struct weir_value *x) {
    if (builder->status != WEIR_OK || x == NULL || x->channels_last) return x;
    assert(x->rank == 3);
    return turned(builder, x);
}

struct weir_value *weir__ordered_like(struct weir_builder *builder, struct weir_value *x,
                                      const struct weir_value *like) {
    return like != NULL && like->channels_last ? weir__channels_last(builder, x)
                                               : weir__plain(builder, x);
}

/* ---- parameters ---- */

static const char *full_name(struct weir_builder *builder, const char *local) {
    assert(builder->layer != NULL);
    char text[256];
    snprintf(text, sizeof text, "%s%s", builder->layer->prefix, local);
    const char *name = weir__pool_text(&builder->network->pool, text);
    return name != NULL ? name : fail_memory(builder);
}

static void add_name(struct weir_builder *builder, const char *name) {
    struct weir__network *network = builder->network;
    uint32_t other = weir__name_set_find(&network->parameter_names, name);
    if (other == WEIR__NO_NAME) {
        if (!weir__name_set_add(&network->parameter_names, name, network->parameter_count))
            fail_memory(builder);
        return;
    }
    weir__builder_note(builder, WEIR_ERR_EXISTS,
                       "its parameter '%s' exists already, in layer %s: give one of them a name",
                       name, weir__network_layer_label(network, network->parameters[other].layer));
}

static bool parameter_fits(struct weir_builder *builder, const char *local, uint32_t rank,
                           const int64_t *shape) {
    struct weir_tensor tensor = {.dtype = weir__exact_dtype(builder->dtype), .rank = rank};
    char what[80];
    size_t bytes;
    snprintf(what, sizeof what, "its parameter '%.40s'", local);
    if (rank > WEIR_RANK_MAX) {
        weir_builder_fail(builder, WEIR_ERR_SHAPE, "%s has more than %d dimensions", what,
                          WEIR_RANK_MAX);
        return false;
    }
    memcpy(tensor.shape, shape, rank * sizeof shape[0]);
    int status = weir__tensor_bytes(&tensor, 1, &bytes);
    if (status == WEIR_OK && bytes <= WEIR__VALUE_BYTES_MAX) return true;
    if (status == WEIR_OK || status == WEIR_ERR_OVERFLOW) {
        fail_size(builder, what, &tensor);
    } else {
        char text[96];
        weir_builder_fail(builder, status, "%s cannot be %s", what,
                          weir__tensor_text(&tensor, text, sizeof text));
    }
    return false;
}

static struct weir_value *parameter_value(struct weir_builder *builder, uint32_t index) {
    assert(index < builder->network->parameter_count);
    const struct weir__parameter_decl *parameter = &builder->network->parameters[index];
    struct weir_tensor tensor = {
        .dtype = parameter->dtype, .rank = parameter->rank, .differentiable = !parameter->frozen};
    memcpy(tensor.shape, parameter->shape, sizeof tensor.shape);
    struct weir_value *value =
        weir__graph_value(builder->graph, WEIR__FROM_PARAMETER, index, &tensor);
    if (value == NULL) return fail_memory(builder);
    value->batched = false;
    return value;
}

static bool is_frozen(const struct weir_builder *builder, const char *name) {
    const struct weir_model *model = builder->network->model;
    if (builder->layer->frozen) return true;
    for (uint32_t i = 0; i < model->freeze_count; i++)
        if (fnmatch(model->freezes[i], name, 0) == 0) return true;
    return false;
}

/** Adds to the network's list, and the value to the stage's graph. */
static struct weir_value *add_parameter(struct weir_builder *builder,
                                        const struct weir__parameter_decl *parameter) {
    struct weir__network *network = builder->network;
    void *list = network->parameters;
    if (!weir__pool_grow(&network->pool, &list, network->parameter_count,
                         &network->parameter_capacity, sizeof network->parameters[0]))
        return fail_memory(builder);
    network->parameters = list;
    uint32_t index = network->parameter_count++;
    network->parameters[index] = *parameter;
    struct weir_value *value = parameter_value(builder, index);
    if (value == NULL) return NULL;
    network->parameters[index].value = value;
    network->parameters[index].count = (uint64_t)weir__value_count(value);
    return value;
}

/** `given` without its names and places. */
static struct weir_value *new_parameter(struct weir_builder *builder, const char *local,
                                        const struct weir__parameter_decl *given) {
    if (builder->status != WEIR_OK) return NULL;
    if (!parameter_fits(builder, local, given->rank, given->shape)) return NULL;
    struct weir__parameter_decl parameter = *given;
    parameter.name = full_name(builder, local);
    if (parameter.name == NULL) return NULL;
    add_name(builder, parameter.name);
    if (builder->status != WEIR_OK) return NULL;
    parameter.local = parameter.name + strlen(builder->layer->prefix);
    parameter.layer = builder->layer_index;
    parameter.stage = builder->stage;
    parameter.original = WEIR__NONE;
    bool adapted = builder->network->model->lora != NULL;
    parameter.frozen |= (adapted && !given->adapter) || is_frozen(builder, parameter.name);
    return add_parameter(builder, &parameter);
}

struct weir_value *weir_parameter(struct weir_builder *builder, const char *local, uint32_t rank,
                                  const int64_t *shape, struct weir_init init) {
    struct weir__parameter_decl given = {
        .dtype = weir__exact_dtype(builder->dtype), .rank = rank, .init = init};
    if (rank <= WEIR_RANK_MAX) memcpy(given.shape, shape, rank * sizeof shape[0]);
    return new_parameter(builder, local, &given);
}

struct weir_value *weir__adapter_parameter(struct weir_builder *builder, const char *local,
                                           uint32_t rank, const int64_t *shape,
                                           struct weir_init init) {
    assert(rank <= WEIR_RANK_MAX);
    struct weir__parameter_decl given = {
        .dtype = weir__exact_dtype(builder->dtype), .rank = rank, .init = init, .adapter = true};
    memcpy(given.shape, shape, rank * sizeof shape[0]);
    return new_parameter(builder, local, &given);
}

struct weir_value *weir__statistic(struct weir_builder *builder, const char *local,
                                   enum weir_dtype dtype, uint32_t rank, const int64_t *shape,
                                   struct weir_init init, const struct weir__running *running) {
    assert(rank <= 1 && running != NULL);
    struct weir__parameter_decl given = {
        .dtype = dtype, .rank = rank, .init = init, .frozen = true, .running = running};
    if (rank > 0) given.shape[0] = shape[0];
    struct weir_value *value = new_parameter(builder, local, &given);
    if (value == NULL) return NULL;
    value->requires_grad = !is_frozen(builder, builder->network->parameters[value->index].name);
    return value;
}

/** This stage's copy: the list's last with that original, since a stage's are neighbours. */
static struct weir_value *copy_parameter(struct weir_builder *builder, uint32_t original) {
    struct weir__network *network = builder->network;
    assert(original < network->parameter_count);
    for (uint32_t i = network->parameter_count; i-- > 0;) {
        const struct weir__parameter_decl *other = &network->parameters[i];
        if (other->stage != builder->stage) break;
        if (other->original == original) return other->value;
    }
    network->parameters[original].copied = true;
    struct weir__parameter_decl copy = network->parameters[original];
    copy.stage = builder->stage;
    copy.layer = builder->layer_index;
    copy.original = original;
    return add_parameter(builder, &copy);
}

struct weir_value *weir_tied_parameter(struct weir_builder *builder, const char *local) {
    if (builder->status != WEIR_OK) return NULL;
    struct weir__network *network = builder->network;
    uint32_t found = WEIR__NONE;
    for (uint32_t i = 0; i < network->parameter_count; i++) {
        const struct weir__parameter_decl *parameter = &network->parameters[i];
        bool named = strcmp(parameter->local, local) == 0 || strcmp(parameter->name, local) == 0;
        if (parameter->original == WEIR__NONE && named) found = i;
    }
    if (found == WEIR__NONE)
        return weir_builder_fail(builder, WEIR_ERR_CONFIG,
                                 "it is tied to '%s', which no earlier layer has", local);
    const struct weir__parameter_decl *parameter = &network->parameters[found];
    return parameter->stage == builder->stage ? parameter->value : copy_parameter(builder, found);
}

/* ---- gradients ---- */

bool weir__wants_grad(const struct weir_value *x) {
    return x != NULL && x->requires_grad;
}

void weir__contribute(struct weir_builder *builder, struct weir_value *x, struct weir_value *grad) {
    if (builder->status != WEIR_OK || !weir__wants_grad(x)) return;
    assert(weir__value_count(x) == weir__value_count(grad) && x->dtype == grad->dtype);
    assert(x->channels_last == grad->channels_last);
    x->grad = x->grad == NULL ? grad : weir_sum(builder, x->grad, grad);
}
