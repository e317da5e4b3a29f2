/* SPDX-License-Identifier: MIT */
/* A part of the layer list as a stage of the engine: its callbacks pick a program, point the bases
 * at the task's memory, and run it. */
#include "device/device.h"
#include "net/moments.h"
#include "net/run/net.h"

#include <stdio.h>
#include <string.h>

/* ---- instances ---- */

static struct weir__instance *find_instance(struct weir__net_stage *stage, int64_t rows) {
    if (stage->found < stage->instance_count && stage->instances[stage->found]->rows == rows)
        return stage->instances[stage->found];
    for (uint32_t i = 0; i < stage->instance_count; i++) {
        if (stage->instances[i]->rows != rows) continue;
        stage->found = i;
        return stage->instances[i];
    }
    return NULL;
}

static int grow_instances(struct weir__net_stage *stage) {
    const struct weir_allocator *allocator = stage->plan.allocator;
    if (stage->instance_count < stage->instance_capacity) return WEIR_OK;
    uint32_t capacity = stage->instance_capacity == 0 ? 4 : 2 * stage->instance_capacity;
    struct weir__instance **list = weir__acquire(allocator, capacity, sizeof list[0]);
    if (list == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if (stage->instance_count > 0)
        memcpy(list, stage->instances, stage->instance_count * sizeof list[0]);
    weir__release(allocator, stage->instances, stage->instance_capacity, sizeof list[0]);
    stage->instances = list;
    stage->instance_capacity = capacity;
    assert(stage->instance_count < stage->instance_capacity);
    return WEIR_OK;
}

/** Programs that calls in these phases may run, as bits. */
static uint32_t programs_of(uint32_t phases) {
    static const uint32_t by_phase[WEIR_PHASE_COUNT] = {
        [WEIR_FORWARD] = 1u << WEIR__PROGRAM_FORWARD,
        [WEIR_FORWARD_CHECKPOINT] = 1u << WEIR__PROGRAM_CHECKPOINT,
        [WEIR_RECOMPUTE] = 1u << WEIR__PROGRAM_RECOMPUTE,
        [WEIR_BACKWARD] = 1u << WEIR__PROGRAM_BACKWARD,
        [WEIR_BACKWARD_INPUT] = 1u << WEIR__PROGRAM_BACKWARD_INPUT,
        [WEIR_BACKWARD_WEIGHT] = 1u << WEIR__PROGRAM_BACKWARD_WEIGHT,
        [WEIR_INFER] = 1u << WEIR__PROGRAM_INFER | 1u << WEIR__PROGRAM_INFER_LOSS};
    uint32_t programs = 0;
    for (uint32_t phase = 0; phase < WEIR_PHASE_COUNT; phase++)
        if ((phases >> phase & 1) != 0) programs |= by_phase[phase];
    return programs;
}

static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    assert(rows >= 1);
    struct weir__net_stage *stage = context;
    struct weir__instance *instance = find_instance(stage, rows);
    int status = WEIR_OK;
    if (instance == NULL) {
        status = grow_instances(stage);
        if (status != WEIR_OK) return status;
        if ((status = weir__instance_new(&stage->plan, rows, &instance)) != WEIR_OK) return status;
        assert(stage->instance_count < stage->instance_capacity);
        stage->instances[stage->instance_count++] = instance;
    }
    status = weir__instance_plan(&stage->plan, instance, programs_of(bytes->phases));
    if (status != WEIR_OK) return status;
    const struct weir__program *programs = instance->programs;
    size_t infer = programs[WEIR__PROGRAM_INFER].workspace;
    size_t infer_loss = programs[WEIR__PROGRAM_INFER_LOSS].workspace;
    *bytes = (struct weir_stage_bytes){
        .saved = instance->saved,
        .saved_for_input = instance->saved_for_input,
        .left_for_weight = instance->left_for_weight,
        .areas = instance->areas,
        .area_count = instance->area_count,
        .workspace = {[WEIR_NORM] = stage->norm_workspace,
                      [WEIR_FORWARD] = programs[WEIR__PROGRAM_FORWARD].workspace,
                      [WEIR_FORWARD_CHECKPOINT] = programs[WEIR__PROGRAM_CHECKPOINT].workspace,
                      [WEIR_RECOMPUTE] = programs[WEIR__PROGRAM_RECOMPUTE].workspace,
                      [WEIR_BACKWARD] = programs[WEIR__PROGRAM_BACKWARD].workspace,
                      [WEIR_BACKWARD_INPUT] = programs[WEIR__PROGRAM_BACKWARD_INPUT].workspace,
                      [WEIR_BACKWARD_WEIGHT] = programs[WEIR__PROGRAM_BACKWARD_WEIGHT].workspace,
                      [WEIR_INFER] = infer > infer_loss ? infer : infer_loss}};
    return WEIR_OK;
}

/* ---- life on the worker ---- */

static int attach(void *context, const struct weir_attachment *attachment) {
    struct weir__net_stage *stage = context;
    const struct weir__backend *backend = stage->plan.backend;
    bool on_gpu = !attachment->stream->device->calls->synchronous;
    assert(on_gpu == backend->on_gpu); /* devices.c has looked it up in the pipe's table */
    if (on_gpu != backend->on_gpu) return WEIR_ERR_CONFIG;
    stage->at = *attachment;
    return backend->attach(attachment->stream, attachment->threads);
}

static int prepare(void *context, int64_t rows) {
    struct weir__net_stage *stage = context;
    struct weir__instance *instance = find_instance(stage, rows);
    if (instance == NULL) return WEIR_ERR_ROWS;
    if (instance->prepared) return WEIR_OK;
    uint32_t threads = stage->at.threads == 0 ? 1 : stage->at.threads;
    return weir__instance_prepare(instance, stage->compiled->graph.node_count, threads,
                                  stage->at.stream);
}

static void detach(void *context) {
    struct weir__net_stage *stage = context;
    for (uint32_t i = 0; i < stage->instance_count; i++)
        weir__instance_release(stage->instances[i], stage->compiled->graph.node_count);
}

/* ---- tasks ---- */

static void point(uintptr_t *base, const struct weir_view *views, uint32_t index) {
    *base = views == NULL ? 0 : (uintptr_t)views[index].data;
}

static void fill_bases(const struct weir__net_stage *stage, const struct weir__instance *instance,
                       const struct weir_task *task, size_t discard) {
    assert(instance->area_count <= WEIR__AREAS_MAX);
    uintptr_t *bases = stage->bases;
    const struct weir__graph *graph = &stage->compiled->graph;
    bases[WEIR__BASE_SAVED] = (uintptr_t)task->saved;
    bases[WEIR__BASE_SAVED_FOR_INPUT] = (uintptr_t)task->saved_for_input;
    bases[WEIR__BASE_LEFT_FOR_WEIGHT] = (uintptr_t)task->left_for_weight;
    for (uint32_t a = 0; task->areas != NULL && a < instance->area_count; a++)
        bases[WEIR__BASE_AREAS + a] = (uintptr_t)task->areas[a];
    bases[WEIR__BASE_WORKSPACE] = (uintptr_t)task->workspace;
    bases[WEIR__BASE_PARAMETERS] = (uintptr_t)task->parameters;
    bases[WEIR__BASE_GRADIENTS] = (uintptr_t)task->gradients;
    bases[WEIR__BASE_LOSS] = (uintptr_t)task->loss;
    bases[WEIR__BASE_STATE] = (uintptr_t)task->state;
    for (uint32_t i = 0; i < WEIR__STAGE_INPUT_MAX && graph->inputs[i] != NULL; i++)
        point(&bases[WEIR__BASE_INPUT + i], task->inputs, i);
    point(&bases[WEIR__BASE_OUTPUT], task->outputs, 0);
    point(&bases[WEIR__BASE_OUTPUT_GRAD], task->output_grads, 0);
    point(&bases[WEIR__BASE_INPUT_GRAD], task->input_grads, 0);
    if (bases[WEIR__BASE_INPUT_GRAD] == 0)
        bases[WEIR__BASE_INPUT_GRAD] = bases[WEIR__BASE_WORKSPACE] + discard;
    for (uint32_t k = 0; k < graph->skip_count; k++) {
        point(&bases[WEIR__BASE_SKIP(k)], task->skips, k);
        point(&bases[WEIR__BASE_SKIP_GRAD(k)], task->skip_grads, k);
        point(&bases[WEIR__BASE_SKIP_GRAD_OUT(k)], task->skip_grads_out, k);
    }
}

static enum weir__program_kind program_of(const struct weir_task *task) {
    assert((unsigned)task->phase < WEIR_PHASE_COUNT);
    static const enum weir__program_kind by_phase[WEIR_PHASE_COUNT] = {
        [WEIR_FORWARD] = WEIR__PROGRAM_FORWARD,
        [WEIR_FORWARD_CHECKPOINT] = WEIR__PROGRAM_CHECKPOINT,
        [WEIR_RECOMPUTE] = WEIR__PROGRAM_RECOMPUTE,
        [WEIR_BACKWARD] = WEIR__PROGRAM_BACKWARD,
        [WEIR_BACKWARD_INPUT] = WEIR__PROGRAM_BACKWARD_INPUT,
        [WEIR_BACKWARD_WEIGHT] = WEIR__PROGRAM_BACKWARD_WEIGHT,
        [WEIR_INFER] = WEIR__PROGRAM_INFER_LOSS};
    const struct weir__net_step_state *step = task->user;
    if (task->phase == WEIR_INFER && step != NULL && !step->has_target) return WEIR__PROGRAM_INFER;
    return by_phase[task->phase];
}

static bool is_forward(enum weir_phase phase) {
    return phase == WEIR_FORWARD || phase == WEIR_FORWARD_CHECKPOINT || phase == WEIR_INFER;
}

/** The host must not write what a GPU writes: nobody knows which of the two comes first. */
static bool zeroes_loss(const struct weir__net_stage *stage, const struct weir_task *task,
                        enum weir__program_kind kind) {
    bool written = stage->compiled->graph.loss != NULL && kind != WEIR__PROGRAM_INFER;
    return is_forward(task->phase) && task->loss != NULL &&
           !(written && stage->plan.backend->on_gpu);
}

static int report(const struct weir__net_stage *stage, const struct weir_task *task, int status,
                  const struct weir__planned_call *failed) {
    assert(status != WEIR_OK && failed != NULL);
    if (task->error == NULL) return status;
    const char *label = weir__network_layer_label(stage->network, failed->layer);
    snprintf(task->error->layer, sizeof task->error->layer, "%s", label);
    if (task->error->message[0] == '\0')
        weir__fail(task->error, status, "%s failed: %s", weir__op_name(failed->node->shape.op),
                   weir_status_text(status));
    return status;
}

/** Of the micro-batch's rows, the first whose output is wanted. */
static int64_t output_first(const struct weir__net_stage *stage, const struct weir_task *task) {
    const struct weir__net_step_state *step = task->user;
    if (!stage->last || step == NULL || step->output_first <= task->row_first) return 0;
    int64_t first = step->output_first - task->row_first;
    assert(first > 0 && task->rows > 0);
    return first < task->rows ? first : task->rows;
}

/** Nor are an output's rows wanted from `first` on that have no memory. */
static bool is_wanted(const struct weir__net_stage *stage, const struct weir_task *task,
                      int64_t first) {
    return first < task->rows && stage->bases[WEIR__BASE_OUTPUT] != 0;
}

static int run(void *context, const struct weir_task *task) {
    struct weir__net_stage *stage = context;
    const struct weir__instance *instance = find_instance(stage, task->rows);
    if (instance == NULL || !instance->prepared)
        return weir__fail(task->error, WEIR_ERR_ROWS,
                          "a micro-batch of %lld row%s was not prepared", (long long)task->rows,
                          weir__s((uint64_t)task->rows));
    const struct weir__net_step_state *step = task->user;
    const struct weir__planned_call *failed = NULL;
    enum weir__program_kind kind = program_of(task);
    int64_t first = output_first(stage, task);
    const struct weir__program *program = &instance->programs[kind];
    assert((instance->planned >> kind & 1) != 0);
    fill_bases(stage, instance, task, program->discard);
    if (zeroes_loss(stage, task, kind)) *task->loss = 0;
    const struct weir__look look = {&stage->compiled->graph, instance->nodes, task->rows};
    struct weir__program_run run = {.bases = stage->bases,
                                    .weights = step == NULL ? 0 : step->weights,
                                    .weights_given = step == NULL ? 0 : step->weights_given,
                                    .output_wanted = is_wanted(stage, task, first),
                                    .output_first = first,
                                    .stamps = stage->timing == NULL ? NULL : stage->timing->stamps,
                                    .events = stage->timing == NULL ? NULL : stage->timing->events,
                                    .look = step != NULL && step->look ? &look : NULL,
                                    .call = {.overwrite = task->gradients_first,
                                             .infer = task->phase == WEIR_INFER,
                                             .seed = stage->seed,
                                             .mini_batch = task->mini_batch,
                                             .row_first = task->row_first,
                                             .rows_total = task->rows_total,
                                             .loss_weight = task->loss_weight,
                                             .places = step == NULL ? NULL : &step->places,
                                             .stream = task->stream,
                                             .error = task->error}};
    int status = weir__program_run(program, &run, &failed);
    if (status != WEIR_OK && failed == NULL)
        return weir__fail(task->error, status, "timing its layers failed: %s",
                          weir_status_text(status));
    if (status != WEIR_OK) return report(stage, task, status, failed);
    return stage->timing == NULL ? WEIR_OK
                                 : stage->timing->note(stage->timing, task, kind, program);
}

/** Packs the weights of one call: forwards first, as they are needed. Unless every micro-batch
 * packs anew, all calls of the update find them then. */
static int ahead(void *context, const struct weir_task *task, bool *more) {
    struct weir__net_stage *stage = context;
    const struct weir__net_step_state *step = task->user;
    const struct weir__instance *instance = find_instance(stage, task->rows);
    uint64_t *packed = &stage->packed_ahead[task->phase == WEIR_INFER];
    *more = false;
    if (instance == NULL || !instance->prepared || step == NULL || step->weights == 0 ||
        *packed == step->weights)
        return WEIR_OK;
    fill_bases(stage, instance, task, 0);
    const struct weir__program_run run = {.bases = stage->bases,
                                          .weights = step->weights,
                                          .weights_given = step->weights_given,
                                          .call = {.stream = task->stream, .error = task->error}};
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++) {
        bool infers = kind == WEIR__PROGRAM_INFER || kind == WEIR__PROGRAM_INFER_LOSS;
        if ((instance->planned >> kind & 1) == 0 || infers != (task->phase == WEIR_INFER)) continue;
        int status = weir__program_pack(&instance->programs[kind], &run, more);
        if (status != WEIR_OK || *more) return status;
    }
    *packed = step->weights;
    return WEIR_OK;
}

/* ---- norm and update ---- */

static void *at(void *base, size_t offset) {
    return (void *)((uintptr_t)base + offset);
}

/** The stage's i-th parameter. */
static const struct weir__parameter_decl *parameter_of(const struct weir__net_stage *stage,
                                                       uint32_t i) {
    assert(i < stage->compiled->parameter_count);
    return &stage->network->parameters[stage->compiled->parameter_first + i];
}

/** Adds a use's gradient to the first one's, in the slice that is this replica's. */
static int fold(const struct weir__net_stage *stage, struct weir_stream *stream,
                const struct weir__parameter_decl *parameter, void *first, void *use) {
    size_t begin, end;
    weir__stage_slice(stage, parameter, stage->share.replica, &begin, &end);
    size_t number = weir_dtype_bytes(weir__exact_dtype(stage->network->dtype));
    return stage->flat->accumulate(stream, at(first, begin), at(use, begin),
                                   (end - begin) / number);
}

/** Uses of a parameter are summed in layer order, once per update. Those that stages share are
 * summed by the first one's, from everywhere; what the others have stays as it is. */
static int fold_uses(const struct weir__net_stage *stage, const struct weir_task *task) {
    const struct weir__graph *graph = &stage->compiled->graph;
    int status;
    for (uint32_t i = 0; i < graph->accumulator_count; i++) {
        const struct weir__accumulator *use = &graph->accumulators[i];
        const struct weir__parameter_decl *parameter = &stage->network->parameters[use->parameter];
        if (use->offset == parameter->offset || weir__parameter_is_shared(parameter)) continue;
        status = fold(stage, task->stream, parameter, at(task->gradients, parameter->offset),
                      at(task->gradients, use->offset));
        if (status != WEIR_OK) return status;
    }
    for (uint32_t t = 0; t < task->tied_count; t++) {
        const struct weir__parameter_decl *parameter = &stage->network->parameters[stage->tied[t]];
        if (parameter->original != WEIR__NONE) continue;
        for (uint32_t u = 1; u < task->tied[t].use_count; u++) {
            status = fold(stage, task->stream, parameter, task->tied[t].gradients[0],
                          task->tied[t].gradients[u]);
            if (status != WEIR_OK) return status;
        }
    }
    return WEIR_OK;
}

static int norm(void *context, const struct weir_task *task) {
    struct weir__net_stage *stage = context;
    const struct weir__spans own = {stage->pieces, stage->piece_count, task->stream};
    int status = fold_uses(stage, task);
    if (status != WEIR_OK) return status;
    if (stage->piece_count < stage->norm_count) /* other replicas' */
        memset(task->norm_squares, 0, stage->norm_count * sizeof task->norm_squares[0]);
    return stage->flat->squares(&own, task->gradients, task->norm_squares, task->workspace);
}

/** Groups' sums: what backward writes of the range. */
static int combine(void *context, void *into, const void *from, size_t offset, size_t bytes) {
    const struct weir__net_stage *stage = context;
    const struct weir__graph *graph = &stage->compiled->graph;
    size_t number = weir_dtype_bytes(weir__exact_dtype(stage->network->dtype));
    assert(offset % number == 0 && bytes % number == 0);
    for (uint32_t i = 0; i < graph->accumulator_count; i++) {
        const struct weir__accumulator *use = &graph->accumulators[i];
        size_t begin = use->offset, end = begin + (size_t)use->count * number;
        if (begin < offset) begin = offset;
        if (end > offset + bytes) end = offset + bytes;
        if (begin >= end) continue;
        int status = stage->flat->accumulate(stage->at.stream, at(into, begin - offset),
                                             at((void *)(uintptr_t)from, begin - offset),
                                             (end - begin) / number);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/** Where gradients would begin for a copy's to lie at its span: they lie with the original. */
static const void *gradients_of(const struct weir__net_stage *stage, const struct weir_task *task,
                                const struct weir__span *copy) {
    uint32_t number = stage->compiled->parameter_first + copy->result, t = 0;
    while (t < task->tied_count && stage->tied[t] != number) t++;
    assert(t < task->tied_count);
    return (const void *)((uintptr_t)task->tied[t].gradients[0] -
                          parameter_of(stage, copy->result)->offset);
}

/** Batch norm's running numbers take the mini-batch in. */
static int move_running(const struct weir__net_stage *stage, const struct weir_task *task) {
    const struct weir__parameter_decl *parameters = stage->network->parameters;
    const struct weir__graph *graph = &stage->compiled->graph;
    for (uint32_t i = 0; i < graph->accumulator_count; i++) {
        const struct weir__accumulator *moments = &graph->accumulators[i];
        const struct weir__running *running = parameters[moments->parameter].running;
        if (running == NULL || !weir__stage_moves(stage, moments)) continue;
        assert(moments->parameter == running->mean);
        double momentum = running->cumulative ? -1 : running->momentum;
        const struct weir__running_numbers numbers = {
            .dtype = weir__exact_dtype(stage->network->dtype),
            .channels = (int64_t)parameters[running->mean].count,
            .moments = at(task->gradients, moments->offset),
            .mean = at(task->parameters, parameters[running->mean].offset),
            .variance = at(task->parameters, parameters[running->variance].offset),
            .batches = at(task->parameters, parameters[running->batches].offset),
            .plain = running->plain};
        int status = WEIR_OK;
        if (stage->flat->move_running == NULL)
            weir__running_move(&numbers, momentum);
        else
            status = stage->flat->move_running(task->stream, task->verdict, &numbers, momentum);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int update(void *context, const struct weir_task *task) {
    struct weir__net_stage *stage = context;
    const struct weir__net_step_state *step = task->user;
    struct weir__update update = {.optimizer = &stage->optimizer,
                                  .lr = step == NULL ? stage->optimizer.lr : step->lr,
                                  .number = task->update + 1,
                                  .gradient_scale = task->gradient_scale,
                                  .verdict = task->verdict,
                                  .parameters = task->parameters,
                                  .gradients = task->gradients};
    uint32_t arrays = weir__optimizer_arrays(&stage->optimizer);
    if (stage->optimizer.kind == WEIR_OPTIMIZER_NONE) return WEIR_OK;
    int moved = move_running(stage, task);
    if (moved != WEIR_OK) return moved;
    for (uint32_t i = 0; i < stage->run_count; i++) {
        const struct weir__net_run *run = &stage->runs[i];
        const struct weir__spans spans = {&stage->spans[run->first], run->count, task->stream};
        if (run->copy) update.gradients = gradients_of(stage, task, spans.list);
        if (arrays > 0) update.first = at(task->optimizer, run->shift);
        if (arrays > 1) update.second = at(task->optimizer, stage->array_bytes + run->shift);
        int status = stage->flat->update[stage->optimizer.kind](&spans, &update);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static const struct weir_stage_calls calls = {.forward = run,
                                              .recompute = run,
                                              .backward = run,
                                              .backward_input = run,
                                              .backward_weight = run,
                                              .norm = norm,
                                              .update = update,
                                              .ahead = ahead,
                                              .combine = combine,
                                              .measure = measure,
                                              .attach = attach,
                                              .prepare = prepare,
                                              .detach = detach};

/* ---- describing ---- */

int weir__stage_init(struct weir__net_stage *stage, struct weir__network *network, uint32_t index) {
    assert(index < network->stage_count && network->stages != NULL);
    struct weir__stage_graph *compiled = &network->stages[index];
    stage->network = network;
    stage->compiled = compiled;
    int status = weir__slice(&compiled->graph, &stage->slices);
    if (status != WEIR_OK) return status;
    size_t *offsets = weir__pool_take(&network->pool, compiled->parameter_count, sizeof offsets[0]);
    const void **mapped =
        weir__pool_take(&network->pool, compiled->parameter_count, sizeof mapped[0]);
    stage->bases = weir__pool_take(
        &network->pool, WEIR__BASE_COUNT((size_t)compiled->graph.skip_count), sizeof(uintptr_t));
    stage->plan.lasting =
        weir__pool_take(&network->pool, compiled->graph.node_count, sizeof stage->plan.lasting[0]);
    if (network->pool.failed) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < compiled->parameter_count; i++) {
        offsets[i] = network->parameters[compiled->parameter_first + i].offset;
        mapped[i] = network->parameters[compiled->parameter_first + i].mapped;
    }
    stage->plan.slices = &stage->slices;
    stage->plan.parameter_offsets = offsets;
    stage->plan.parameters_mapped = mapped;
    stage->plan.parameter_first = compiled->parameter_first;
    stage->plan.discard = index == 0;
    stage->last = index + 1 == network->stage_count;
    if ((status = weir__stage_share(stage, network)) != WEIR_OK) return status;
    return weir__lasting_plan(&stage->plan, stage->plan.lasting, &stage->state_bytes);
}

void weir__stage_clean_up(struct weir__net_stage *stage) {
    for (uint32_t i = 0; i < stage->instance_count; i++)
        weir__instance_destroy(stage->plan.allocator, stage->instances[i]);
    weir__release(stage->plan.allocator, stage->instances, stage->instance_capacity,
                  sizeof stage->instances[0]);
}

/** What learns and is shared needs a gradient here, or its copies would drift apart. */
static int check_ties(const struct weir__net_stage *stage, uint32_t index, uint32_t names,
                      struct weir_faults *faults) {
    for (uint32_t i = 0; i < stage->compiled->parameter_count; i++) {
        const struct weir__parameter_decl *parameter = parameter_of(stage, i);
        uint32_t number = stage->compiled->parameter_first + i, k = 0;
        if (parameter->frozen || !weir__parameter_is_shared(parameter)) continue;
        while (k < names && stage->tied[k] != number) k++;
        if (k < names) continue;
        weir_faults_add(faults,
                        "'%s' is tied over stages, but stage %u does not use it on the way to the "
                        "loss: use it there, freeze it or cut elsewhere",
                        parameter->name, index);
        return WEIR_ERR_CONFIG;
    }
    return WEIR_OK;
}

/** Every use, in layer order, of a parameter that another stage uses too. */
static int describe_ties(struct weir__net_stage *stage, struct weir__network *network,
                         uint32_t index, struct weir_stage *description,
                         struct weir_faults *faults) {
    const struct weir__graph *graph = &stage->compiled->graph;
    struct weir_tie *ties = weir__pool_take(&network->pool, graph->accumulator_count, sizeof *ties);
    stage->tied = weir__pool_take(&network->pool, graph->accumulator_count, sizeof stage->tied[0]);
    if (ties == NULL || stage->tied == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    uint32_t count = 0, names = 0;
    for (uint32_t i = 0; i < graph->accumulator_count; i++) {
        uint32_t number = graph->accumulators[i].parameter, k = 0;
        const struct weir__parameter_decl *parameter = &network->parameters[number];
        if (!weir__parameter_is_shared(parameter)) continue;
        ties[count++] =
            (struct weir_tie){.name = parameter->name,
                              .gradient_offset = graph->accumulators[i].offset,
                              .bytes = (size_t)parameter->count *
                                       weir_dtype_bytes(weir__exact_dtype(network->dtype))};
        while (k < names && stage->tied[k] != number) k++;
        if (k == names) stage->tied[names++] = number;
    }
    description->ties = ties;
    description->tie_count = count;
    return check_ties(stage, index, names, faults);
}

int weir__stage_describe(struct weir__net_stage *stage, struct weir__network *network,
                         uint32_t index, bool infer_only, struct weir_stage *description,
                         struct weir_faults *faults) {
    struct weir__stage_graph *compiled = stage->compiled;
    uint32_t skips = compiled->graph.skip_count;
    struct weir_tensor *output = weir__pool_take(&network->pool, 1, sizeof *output);
    struct weir_skip_use *uses = weir__pool_take(&network->pool, skips, sizeof *uses);
    if (output == NULL || uses == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *output = weir_value_tensor(compiled->graph.output);
    if (index + 1 == network->stage_count) output->differentiable = false;
    for (uint32_t i = 0; i < skips; i++) {
        uses[i] = compiled->graph.skips[i].use;
        uses[i].kept = stage->slices.skip_kept[i];
    }
    struct weir_stage init = WEIR_STAGE_INIT;
    *description = init;
    description->calls = &calls;
    description->context = stage;
    description->outputs = output;
    description->output_count = 1;
    description->output_on_request = weir__graph_head(&compiled->graph) != NULL;
    description->skips = uses;
    description->skip_count = skips;
    description->inputs_kept = stage->slices.inputs_kept;
    description->inputs_recomputed = stage->slices.inputs_recomputed;
    description->weight_reads = stage->slices.weight_reads;
    description->parameter_bytes = compiled->parameter_bytes;
    description->state_bytes = stage->state_bytes;
    description->mapped_bytes = compiled->mapped_bytes;
    if (infer_only) return WEIR_OK;
    description->no_backward = compiled->no_backward;
    description->gradient_bytes = compiled->gradient_bytes;
    description->optimizer_bytes = stage->array_bytes * weir__optimizer_arrays(&stage->optimizer);
    description->norm_count = stage->norm_count;
    description->sections = stage->sections;
    description->section_count = stage->section_count;
    return describe_ties(stage, network, index, description, faults);
}
