/* SPDX-License-Identifier: MIT */
/*
 * From slices to instances: a place for every value of every program. A value has one home per
 * program: the saved area if it is a residual, else the border slot that wants it, else workspace,
 * packed by lifetime and in place where the op allows. What is wanted in more than one place is
 * copied at the program's end. Workspace is packed for the largest row count, whatever the
 * instance's: best fit is not monotone, and fewer rows must never need more than many.
 */
#include "net/compile/program.h"

#include <string.h>

struct planner {
    const struct weir__instance_options *options;
    const struct weir__graph *graph;
    struct weir__instance *instance;
    int64_t workspace_rows;       /* at least the instance's */
    struct weir__pool scratch;    /* dies with the planning */
    struct weir__location *kept;  /* [value] in the area that keeps it */
    struct weir__location *homes; /* [value] in the present program */
    uint32_t *buffer_of;          /* [value] its workspace buffer, or NONE */
    uint32_t *last_use;           /* [value] the last call that reads it */
    struct weir__buffer *buffers;
    uint32_t buffer_count;
    uint32_t *order;
};

/* ---- where values are ---- */

static bool is_forward(enum weir__program_kind kind) {
    return kind == WEIR__PROGRAM_FORWARD || kind == WEIR__PROGRAM_CHECKPOINT ||
           kind == WEIR__PROGRAM_INFER || kind == WEIR__PROGRAM_INFER_LOSS;
}

static bool is_part(enum weir__program_kind kind) {
    return kind == WEIR__PROGRAM_BACKWARD_INPUT || kind == WEIR__PROGRAM_BACKWARD_WEIGHT;
}

/** The first area of that life; the bases of all three follow one another. */
static enum weir__pointer_base first_area(const struct weir__slices *slices, uint32_t value) {
    if (slices->residual_of_weight[value]) return WEIR__BASE_SAVED;
    if (slices->residual[value]) return WEIR__BASE_SAVED_FOR_INPUT;
    return slices->left_for_weight[value] ? WEIR__BASE_LEFT_FOR_WEIGHT : WEIR__BASE_NONE;
}

/** In this program the value lies in that area. */
static bool in_area(const struct weir__slices *slices, uint32_t value,
                    enum weir__program_kind kind) {
    if (slices->residual[value]) return !is_forward(kind) || kind == WEIR__PROGRAM_FORWARD;
    return slices->left_for_weight[value] && is_part(kind);
}

static struct weir__location parameter_home(const struct weir__instance_options *options,
                                            uint32_t i) {
    const void *mapped = options->parameters_mapped == NULL ? NULL : options->parameters_mapped[i];
    if (mapped != NULL) return (struct weir__location){WEIR__BASE_FILE, (size_t)(uintptr_t)mapped};
    return (struct weir__location){WEIR__BASE_PARAMETERS, options->parameter_offsets[i]};
}

static struct weir__location source_home(const struct planner *planner,
                                         const struct weir_value *value) {
    struct weir__location home = {WEIR__BASE_NONE, 0};
    switch (value->source) {
    case WEIR__FROM_INPUT: home.base = WEIR__BASE_INPUT + value->index; break;
    case WEIR__FROM_SKIP: home.base = WEIR__BASE_SKIP(value->index); break;
    case WEIR__FROM_OUTPUT_GRAD: home.base = WEIR__BASE_OUTPUT_GRAD; break;
    case WEIR__FROM_SKIP_GRAD: home.base = WEIR__BASE_SKIP_GRAD(value->index); break;
    case WEIR__FROM_PARAMETER:
        home = parameter_home(planner->options, value->index - planner->options->parameter_first);
        break;
    case WEIR__FROM_NODE: break;
    }
    return home;
}

/** Homes that do not depend on what else the program does; BASE_NONE where that is still open. */
static void settle_homes(struct planner *planner, enum weir__program_kind kind) {
    const struct weir__slices *slices = planner->options->slices;
    for (uint32_t i = 0; i < planner->graph->value_count; i++) {
        const struct weir_value *value = planner->graph->values[i];
        struct weir__location *home = &planner->homes[i];
        *home = source_home(planner, value);
        planner->buffer_of[i] = WEIR__NONE;
        planner->last_use[i] = 0;
        if (value->accumulator != WEIR__NONE)
            *home = (struct weir__location){
                WEIR__BASE_GRADIENTS, planner->graph->accumulators[value->accumulator].offset};
        if (in_area(slices, i, kind)) *home = planner->kept[i];
    }
    const struct weir_value *loss =
        is_forward(kind) ? planner->graph->loss : planner->graph->backward_loss;
    if (loss != NULL) planner->homes[loss->id] = (struct weir__location){WEIR__BASE_LOSS, 0};
}

/** Bytes of what is kept, by life. */
static int measure_lives(const struct planner *planner, size_t lives[WEIR__AREA_LIVES]) {
    for (uint32_t i = 0; i < planner->graph->value_count; i++) {
        enum weir__pointer_base first = first_area(planner->options->slices, i);
        if (first == WEIR__BASE_NONE) continue;
        size_t bytes, *life = &lives[first - WEIR__BASE_SAVED];
        int status = weir__value_bytes(planner->graph->values[i], planner->instance->rows, &bytes);
        if (status != WEIR_OK) return status;
        if (!weir__round_up(bytes, WEIR__CACHE_LINE, &bytes) || !weir__add(*life, bytes, life))
            return WEIR_ERR_OVERFLOW;
    }
    return WEIR_OK;
}

/** The bytes of an area: the first of its life, or a further one. */
static size_t *area_bytes(struct weir__instance *instance, uint32_t base) {
    if (base == WEIR__BASE_SAVED) return &instance->saved;
    if (base == WEIR__BASE_SAVED_FOR_INPUT) return &instance->saved_for_input;
    if (base == WEIR__BASE_LEFT_FOR_WEIGHT) return &instance->left_for_weight;
    return &instance->areas[base - WEIR__BASE_AREAS].bytes;
}

static uint32_t next_area(struct weir__instance *instance, uint32_t life) {
    assert(instance->area_count < WEIR__AREAS_MAX);
    instance->areas[instance->area_count] = (struct weir_area){0, (enum weir_area_life)life};
    return WEIR__BASE_AREAS + instance->area_count++;
}

/** Value by value; an area that has its part of the whole is followed by another. */
static int plan_areas(struct planner *planner) {
    struct weir__instance *instance = planner->instance;
    size_t lives[WEIR__AREA_LIVES] = {0};
    uint32_t present[WEIR__AREA_LIVES] = {WEIR__BASE_SAVED, WEIR__BASE_SAVED_FOR_INPUT,
                                          WEIR__BASE_LEFT_FOR_WEIGHT};
    int status = measure_lives(planner, lives);
    if (status != WEIR_OK) return status;
    instance->saved = instance->saved_for_input = instance->left_for_weight = 0;
    instance->area_count = 0;
    for (uint32_t i = 0; i < planner->graph->value_count; i++) {
        enum weir__pointer_base first = first_area(planner->options->slices, i);
        if (first == WEIR__BASE_NONE) continue;
        uint32_t life = first - WEIR__BASE_SAVED;
        size_t bytes, part = lives[life] / WEIR__AREA_PARTS;
        status = weir__value_bytes(planner->graph->values[i], instance->rows, &bytes);
        if (status != WEIR_OK) return status;
        if (*area_bytes(instance, present[life]) > part) present[life] = next_area(instance, life);
        size_t *end = area_bytes(instance, present[life]);
        planner->kept[i] = (struct weir__location){present[life], *end};
        *end += (bytes + WEIR__CACHE_LINE - 1) / WEIR__CACHE_LINE * WEIR__CACHE_LINE;
    }
    return WEIR_OK;
}

/* ---- calls ---- */

static int measure_at(struct weir__node_call *call, int64_t rows, uint32_t threads) {
    struct weir__op_shape shape = call->shape;
    shape.rows = rows;
    shape.threads = threads;
    size_t bytes = 0;
    int status = weir__kernel_workspace(call->kernel, &shape, &bytes);
    if (call->workspace < bytes) call->workspace = bytes;
    return status;
}

/** Room for the planned row count and for the instance's own, and for the threads there may be. */
static int measure_call(const struct planner *planner, struct weir__node_call *call) {
    const struct weir__instance_options *options = planner->options;
    const int64_t rows[] = {planner->workspace_rows, planner->instance->rows};
    const uint32_t threads[] = {options->threads, 1};
    for (int r = 0; r < (rows[0] == rows[1] ? 1 : 2); r++) {
        for (int t = 0; t < (options->threads_known || threads[0] == 1 ? 1 : 2); t++) {
            int status = measure_at(call, rows[r], threads[t]);
            if (status != WEIR_OK) return status;
        }
    }
    return WEIR_OK;
}

static int node_call(struct planner *planner, const struct weir__node *node,
                     struct weir__node_call **call) {
    *call = &planner->instance->nodes[node->id];
    if ((*call)->kernel != NULL) return WEIR_OK;
    const struct weir__instance_options *options = planner->options;
    const struct weir__kernel *kernel = options->backend->kernel(node->op, options->dtype);
    if (kernel == NULL) return WEIR_ERR_UNSUPPORTED;
    (*call)->shape = node->shape;
    (*call)->shape.rows = planner->instance->rows;
    (*call)->shape.rows_max = options->rows_max;
    (*call)->shape.threads = options->threads;
    (*call)->kernel = kernel;
    if (options->lasting != NULL && options->lasting[node->id].bytes > 0)
        (*call)->lasting = &options->lasting[node->id];
    planner->instance->prepared = false;
    int status = measure_call(planner, *call);
    if (status != WEIR_OK) (*call)->kernel = NULL;
    return status;
}

/** Whether this program asks a node for its k-th output. */
static bool is_wanted(const struct planner *planner, const struct weir__node *node, uint32_t k,
                      enum weir__program_kind kind) {
    if (!is_part(kind) || !planner->options->slices->in_both[node->id]) return true;
    bool of_parameter = node->out[k]->accumulator != WEIR__NONE;
    return of_parameter == (kind == WEIR__PROGRAM_BACKWARD_WEIGHT);
}

static bool take_operands(struct planner *planner, struct weir__planned_call *call,
                          uint32_t in_count, uint32_t out_count) {
    struct weir__pool *pool = &planner->instance->pool;
    assert(in_count <= WEIR__NODE_IN_MAX && out_count <= WEIR__NODE_OUT_MAX);
    call->in_count = (uint8_t)in_count;
    call->out_count = (uint8_t)out_count;
    call->in = weir__pool_take(pool, in_count, sizeof call->in[0]);
    call->out = weir__pool_take(pool, out_count, sizeof call->out[0]);
    call->in_unit = weir__pool_take(pool, in_count, sizeof call->in_unit[0]);
    call->out_unit = weir__pool_take(pool, out_count, sizeof call->out_unit[0]);
    return call->in != NULL && call->out != NULL && call->in_unit != NULL && call->out_unit != NULL;
}

static int add_nodes(struct planner *planner, enum weir__program_kind kind,
                     struct weir__program *program) {
    const struct weir__slices *slices = planner->options->slices;
    for (uint32_t i = 0; i < slices->node_counts[kind]; i++) {
        const struct weir__node *node = planner->graph->nodes[slices->nodes[kind][i]];
        struct weir__planned_call *call = &program->calls[program->call_count++];
        call->layer = node->layer;
        call->to_output = is_forward(kind) && slices->to_output[node->id];
        if (!take_operands(planner, call, node->in_count, node->out_count))
            return WEIR_ERR_OUT_OF_MEMORY;
        int status = node_call(planner, node, &call->node);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/** `value` (NULL: zeros like `like`) is wanted at `slot`: its home, if that is open, or a copy. */
static int deliver(struct planner *planner, struct weir__program *program, struct weir_value *value,
                   const struct weir_value *like, struct weir__location slot) {
    struct weir_value *root = value == NULL ? NULL : weir__value_root(value);
    if (root != NULL && planner->homes[root->id].base == WEIR__BASE_NONE) {
        planner->homes[root->id] = slot;
        return WEIR_OK;
    }
    size_t bytes;
    int status = weir__value_bytes(like, planner->instance->rows, &bytes);
    if (status != WEIR_OK) return status;
    struct weir__node_call *node = weir__pool_take(&planner->instance->pool, 1, sizeof *node);
    if (node == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    const struct weir__backend *backend = planner->options->backend;
    node->kernel = root == NULL ? &backend->zero : &backend->move;
    node->shape.width = (int64_t)bytes;
    struct weir__planned_call *call = &program->calls[program->call_count++];
    call->node = node;
    call->layer = like->producer == NULL ? 0 : like->producer->layer;
    if (!take_operands(planner, call, root != NULL, 1)) return WEIR_ERR_OUT_OF_MEMORY;
    if (root != NULL) call->in[0] = planner->homes[root->id];
    call->out[0] = slot;
    call->to_output = slot.base == WEIR__BASE_OUTPUT;
    call->delivers = true;
    return WEIR_OK;
}

static int deliver_outputs(struct planner *planner, struct weir__program *program) {
    const struct weir__graph *graph = planner->graph;
    struct weir__location slot = {WEIR__BASE_OUTPUT, 0};
    int status = deliver(planner, program, graph->output, graph->output, slot);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < graph->skip_count; i++) {
        struct weir_value *value = graph->skips[i].value;
        if (graph->skips[i].use.verb != WEIR_SKIP_STASH) continue;
        slot.base = WEIR__BASE_SKIP(i);
        if ((status = deliver(planner, program, value, value, slot)) != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int deliver_gradients(struct planner *planner, struct weir__program *program) {
    const struct weir__graph *graph = planner->graph;
    struct weir__location slot = {WEIR__BASE_INPUT_GRAD, 0};
    int status = WEIR_OK;
    if (graph->inputs[0]->requires_grad)
        status = deliver(planner, program, graph->input_grad, graph->inputs[0], slot);
    for (uint32_t i = 0; status == WEIR_OK && i < graph->skip_count; i++) {
        const struct weir__graph_skip_use *skip = &graph->skips[i];
        if (skip->use.verb == WEIR_SKIP_STASH || !skip->value->requires_grad) continue;
        slot.base = WEIR__BASE_SKIP_GRAD_OUT(i);
        status = deliver(planner, program, skip->grad_out, skip->value, slot);
    }
    return status;
}

static int add_deliveries(struct planner *planner, enum weir__program_kind kind,
                          struct weir__program *program) {
    int status = WEIR_OK;
    if (is_forward(kind)) status = deliver_outputs(planner, program);
    if (kind == WEIR__PROGRAM_BACKWARD || kind == WEIR__PROGRAM_BACKWARD_INPUT)
        status = deliver_gradients(planner, program);
    return status;
}

/* ---- workspace ---- */

static void note_uses(struct planner *planner, enum weir__program_kind kind) {
    const struct weir__slices *slices = planner->options->slices;
    for (uint32_t i = 0; i < slices->node_counts[kind]; i++) {
        const struct weir__node *node = planner->graph->nodes[slices->nodes[kind][i]];
        for (uint32_t k = 0; k < node->in_count; k++)
            if (node->in[k] != NULL) planner->last_use[weir__value_root(node->in[k])->id] = i;
    }
}

static uint32_t open_buffer(struct planner *planner, size_t bytes, uint32_t call) {
    uint32_t index = planner->buffer_count++;
    bool fits = weir__round_up(bytes, WEIR__CACHE_LINE, &bytes);
    assert(fits);
    (void)fits;
    planner->buffers[index] = (struct weir__buffer){bytes, 0, call, call};
    return index;
}

/** Whether output `out` may take input `in`'s memory. */
static bool may_take(const struct weir__node *node, uint32_t in, uint32_t out) {
    const struct weir__op_rule *rule = weir__op_rule(node->op);
    if (node->in[in] == NULL) return false;
    if (out == 0) return in < 8 && (rule->in_place >> in & 1) != 0;
    return rule->sums && node->in_count - in == node->out_count - out;
}

/** The buffer of an operand whose memory the output may take, or NONE. */
static uint32_t in_place_buffer(const struct planner *planner, const struct weir__node *node,
                                uint32_t out, uint32_t call, size_t bytes) {
    for (uint32_t k = 0; k < node->in_count; k++) {
        if (!may_take(node, k, out)) continue;
        struct weir_value *in = weir__value_root(node->in[k]);
        uint32_t buffer = planner->buffer_of[in->id], readers = 0;
        for (uint32_t j = 0; j < node->in_count; j++)
            readers += node->in[j] != NULL && weir__value_root(node->in[j]) == in;
        if (buffer == WEIR__NONE || planner->last_use[in->id] != call || readers != 1) continue;
        size_t held;
        if (weir__value_bytes(in, planner->workspace_rows, &held) == WEIR_OK && held == bytes)
            return buffer;
    }
    return WEIR__NONE;
}

static int place_output(struct planner *planner, const struct weir__node *node, uint32_t k,
                        uint32_t call) {
    const struct weir_value *out = node->out[k];
    if (planner->homes[out->id].base != WEIR__BASE_NONE) return WEIR_OK;
    size_t bytes;
    int status = weir__value_bytes(out, planner->workspace_rows, &bytes);
    if (status != WEIR_OK) return status;
    uint32_t buffer = in_place_buffer(planner, node, k, call, bytes);
    if (buffer == WEIR__NONE) buffer = open_buffer(planner, bytes, call);
    uint32_t last = planner->last_use[out->id];
    planner->buffers[buffer].last = last > call ? last : call;
    planner->buffer_of[out->id] = buffer;
    return WEIR_OK;
}

static struct weir__location locate(const struct planner *planner, struct weir_value *value) {
    if (value == NULL) return (struct weir__location){WEIR__BASE_NONE, 0};
    const struct weir_value *root = weir__value_root(value);
    uint32_t buffer = planner->buffer_of[root->id];
    if (buffer == WEIR__NONE) return planner->homes[root->id];
    return (struct weir__location){WEIR__BASE_WORKSPACE, planner->buffers[buffer].offset};
}

/** Into how many units a row may be cut. */
static int64_t units_of(const struct weir__node_call *call) {
    switch (call->kernel->cut) {
    case WEIR__CUT_ROWS: return 1;
    case WEIR__CUT_TOKENS: return call->shape.tokens;
    case WEIR__CUT_NUMBERS: return call->shape.width;
    default: return 0;
    }
}

/** Bytes of a unit of an operand; 0 where all parts have the whole. */
static uint32_t unit_bytes(const struct weir_value *value, int64_t units) {
    if (value == NULL || !value->batched || units == 0) return 0;
    size_t bytes = (size_t)weir__value_count(value) * weir_dtype_bytes(value->dtype);
    assert(bytes % (size_t)units == 0 && bytes / (size_t)units <= UINT32_MAX);
    return (uint32_t)(bytes / (size_t)units);
}

/** A product by a kernel without state is for any number of rows; a GPU's wants them aligned. Only
 * tokens are asked for in part. */
static bool takes_fewer_rows(const struct planner *planner, const struct weir__node_call *call) {
    bool on_gpu = planner->options->backend->on_gpu, by_tokens = planner->graph->by_tokens;
    enum weir__op_code op = call->shape.op;
    bool product = op == WEIR__OP_linear || op == WEIR__OP_linear_add;
    return by_tokens && product && call->kernel->prepare == NULL && !on_gpu;
}

/** Settles how a call may be shared, and whether it may do without some rows. */
static void plan_units(const struct planner *planner, const struct weir__node *node,
                       struct weir__planned_call *call) {
    int64_t units = units_of(call->node);
    call->units = units * call->node->shape.rows;
    if (units == 0 && call->to_output && takes_fewer_rows(planner, call->node)) units = 1;
    if (call->to_output) call->row_units = (uint32_t)units;
    for (uint32_t k = 0; k < node->in_count; k++) call->in_unit[k] = unit_bytes(node->in[k], units);
    for (uint32_t k = 0; k < node->out_count; k++)
        if (call->out[k].base != WEIR__BASE_NONE)
            call->out_unit[k] = unit_bytes(node->out[k], units);
}

/** Gives the open values buffers, packs these, and fills in the operands. */
static int plan_workspace(struct planner *planner, enum weir__program_kind kind,
                          struct weir__program *program) {
    const struct weir__slices *slices = planner->options->slices;
    uint32_t count = slices->node_counts[kind];
    uint32_t *scratch = weir__pool_take(&planner->scratch, count, sizeof *scratch);
    if (scratch == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    planner->buffer_count = 0;
    note_uses(planner, kind);
    for (uint32_t i = 0; i < count; i++) {
        const struct weir__node *node = planner->graph->nodes[slices->nodes[kind][i]];
        for (uint32_t k = 0; k < node->out_count; k++) {
            int status = WEIR_OK;
            if (is_wanted(planner, node, k, kind)) status = place_output(planner, node, k, i);
            if (status != WEIR_OK) return status;
        }
        scratch[i] = open_buffer(planner, program->calls[i].node->workspace, i);
    }
    program->workspace = weir__pack(planner->buffers, planner->buffer_count, planner->order);
    for (uint32_t i = 0; i < count; i++) {
        const struct weir__node *node = planner->graph->nodes[slices->nodes[kind][i]];
        struct weir__planned_call *call = &program->calls[i];
        for (uint32_t k = 0; k < node->in_count; k++) call->in[k] = locate(planner, node->in[k]);
        for (uint32_t k = 0; k < node->out_count; k++)
            call->out[k] = locate(planner, is_wanted(planner, node, k, kind) ? node->out[k] : NULL);
        call->workspace =
            (struct weir__location){WEIR__BASE_WORKSPACE, planner->buffers[scratch[i]].offset};
        plan_units(planner, node, call);
    }
    return WEIR_OK;
}

/** Behind everything else, where an input gradient goes that nobody asked for at run time. */
static int plan_discard(const struct planner *planner, struct weir__program *program) {
    const struct weir_value *input = planner->graph->inputs[0];
    if (!planner->options->discard || !input->requires_grad) return WEIR_OK;
    size_t bytes;
    int status = weir__value_bytes(input, planner->workspace_rows, &bytes);
    if (status != WEIR_OK) return status;
    program->discard = program->workspace;
    return weir__add(program->discard, bytes, &program->workspace) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

static int plan_program(struct planner *planner, enum weir__program_kind kind) {
    struct weir__program *program = &planner->instance->programs[kind];
    *program = (struct weir__program){0};
    size_t most =
        planner->options->slices->node_counts[kind] + 2 * (1 + planner->graph->skip_count);
    program->calls = weir__pool_take(&planner->instance->pool, most, sizeof program->calls[0]);
    if (program->calls == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    settle_homes(planner, kind);
    int status = add_nodes(planner, kind, program);
    if (status != WEIR_OK) return status;
    if ((status = add_deliveries(planner, kind, program)) != WEIR_OK) return status;
    if ((status = plan_workspace(planner, kind, program)) != WEIR_OK) return status;
    bool gives = kind == WEIR__PROGRAM_BACKWARD || kind == WEIR__PROGRAM_BACKWARD_INPUT;
    return gives ? plan_discard(planner, program) : WEIR_OK;
}

static int plan_programs(struct planner *planner, uint32_t programs) {
    uint32_t values = planner->graph->value_count, nodes = planner->graph->node_count;
    struct weir__pool *scratch = &planner->scratch;
    size_t buffers = (size_t)values + nodes;
    planner->kept = weir__pool_take(scratch, values, sizeof planner->kept[0]);
    planner->homes = weir__pool_take(scratch, values, sizeof planner->homes[0]);
    planner->buffer_of = weir__pool_take(scratch, values, sizeof(uint32_t));
    planner->last_use = weir__pool_take(scratch, values, sizeof(uint32_t));
    planner->buffers = weir__pool_take(scratch, buffers, sizeof planner->buffers[0]);
    planner->order = weir__pool_take(scratch, 2 * buffers, sizeof(uint32_t));
    if (planner->kept == NULL || planner->homes == NULL || planner->buffer_of == NULL ||
        planner->last_use == NULL || planner->buffers == NULL || planner->order == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    int status = plan_areas(planner);
    if (status != WEIR_OK) return status;
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++) {
        uint32_t bit = UINT32_C(1) << kind;
        if ((programs & bit & ~planner->instance->planned) == 0) continue;
        status = plan_program(planner, (enum weir__program_kind)kind);
        if (status != WEIR_OK) return status;
        planner->instance->planned |= bit;
    }
    return WEIR_OK;
}

int weir__instance_plan(const struct weir__instance_options *options,
                        struct weir__instance *instance, uint32_t programs) {
    int64_t rows = instance->rows;
    struct planner planner = {
        .options = options, .graph = options->slices->graph, .instance = instance};
    if ((programs & ~instance->planned) == 0) return WEIR_OK;
    planner.workspace_rows = rows > options->rows_max ? rows : options->rows_max;
    weir__pool_init(&planner.scratch, options->allocator);
    int status = plan_programs(&planner, programs);
    weir__pool_clean_up(&planner.scratch);
    return status;
}

int weir__instance_new(const struct weir__instance_options *options, int64_t rows,
                       struct weir__instance **instance) {
    assert(rows >= 1);
    struct weir__instance *made = weir__acquire(options->allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->rows = rows;
    weir__pool_init(&made->pool, options->allocator);
    made->nodes = weir__pool_take(&made->pool, options->slices->graph->node_count,
                                  sizeof(struct weir__node_call));
    if (made->nodes == NULL) {
        weir__instance_destroy(options->allocator, made);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    *instance = made;
    return WEIR_OK;
}

void weir__instance_destroy(const struct weir_allocator *allocator,
                            struct weir__instance *instance) {
    if (instance == NULL) return;
    weir__pool_clean_up(&instance->pool);
    weir__release(allocator, instance, 1, sizeof *instance);
}
