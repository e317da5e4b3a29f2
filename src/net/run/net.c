/* SPDX-License-Identifier: MIT */
/* A model on a pipe: compiled, described to the engine, stepped. */
#include "net/run/devices.h"
#include "pipe/describe/groups.h"
#include "net/cpu/level.h"
#include "world/allreduce.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- options ---- */

/** What is below 0 or no number undoes what was learnt. A mean of which nothing new becomes a part
 * is none: its bias correction divides by 0. */
static bool check_optimizer(const struct weir_optimizer *optimizer, struct weir_faults *faults) {
    const double betas[] = {optimizer->beta1, optimizer->beta2};
    const struct {
        const char *name;
        double value;
    } others[] = {{"lr", optimizer->lr},
                  {"weight-decay", optimizer->weight_decay},
                  {"eps", optimizer->eps},
                  {"momentum", optimizer->momentum}};
    bool good = true;
    if (optimizer->kind == WEIR_OPTIMIZER_NONE) return true;
    if ((unsigned)optimizer->kind > WEIR_OPTIMIZER_SGD) {
        weir_faults_add(faults, "optimizer.kind is %d: give WEIR_OPTIMIZER_ADAMW, _SGD or _NONE",
                        (int)optimizer->kind);
        return false;
    }
    for (size_t i = 0; i < WEIR__COUNT_OF(others); i++) {
        if (others[i].value >= 0 && isfinite(others[i].value)) continue;
        weir_faults_add(faults, "--%s %g: give a number from 0 on", others[i].name,
                        others[i].value);
        good = false;
    }
    for (int i = 0; i < 2 && optimizer->kind == WEIR_OPTIMIZER_ADAMW; i++) {
        if (betas[i] >= 0 && betas[i] < 1) continue;
        weir_faults_add(faults, "--beta%d %g: give a number from 0 on and below 1, like %s", i + 1,
                        betas[i], i == 0 ? "0.9" : "0.999");
        good = false;
    }
    return good;
}

int weir__net_check(const struct weir_model *model, const struct weir_net_options *options,
                    struct weir_faults *faults) {
    int status = WEIR_OK;
    if (!weir__is_sized(options) || !weir__is_sized(&options->pipe)) {
        weir_faults_add(faults, WEIR__BEGIN_WITH, "WEIR_NET_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    bool known =
        options->dtype == WEIR_F32 || options->dtype == WEIR_F64 || options->dtype == WEIR_BF16;
    if (!known) {
        weir_faults_add(faults, "--dtype %s is not supported: use f32, bf16 or f64",
                        weir_dtype_name(options->dtype));
        status = WEIR_ERR_CONFIG;
    }
    if (!model->has_target && !options->pipe.infer_only) {
        weir_faults_add(faults, "a model without target and loss cannot be trained, only inferred: "
                                "give both");
        status = WEIR_ERR_CONFIG;
    }
    const struct weir__level *level;
    if (weir__level_find(options->level, faults, &level) != WEIR_OK) status = WEIR_ERR_CONFIG;
    if (!check_optimizer(&options->optimizer, faults)) status = WEIR_ERR_CONFIG;
    bool one = model->input.rank == 1 || weir__model_is_packed(model);
    bool texts = model->input.dtype == WEIR_I64 && one;
    if (options->sequences > 0 && (!texts || !options->pipe.infer_only)) {
        weir_faults_add(faults,
                        "only a model of tokens (i64 rows of rank 1) can continue texts, in a "
                        "pipe with infer_only");
        status = WEIR_ERR_CONFIG;
    }
    if (options->logits_most < 0) {
        weir_faults_add(faults, "logits_most is %" PRId64 ": give a number from 0 on",
                        options->logits_most);
        status = WEIR_ERR_CONFIG;
    }
    if (options->stages == 0 || options->stages > UINT16_MAX) {
        weir_faults_add(faults, "%u stages are not possible: use 1 to %u", options->stages,
                        model->layer_count > 0 ? model->layer_count : 1);
        status = WEIR_ERR_CONFIG;
    }
    return status;
}

/** The largest micro-batch, as scatter makes it. */
static int64_t largest_rows(const struct weir_pipe_options *options) {
    if (options->rows < 1 || options->chunks < 1) return 1;
    return options->rows / options->chunks + (options->rows % options->chunks != 0);
}

/** How many threads a stage will get. Where the engine decides it, this is a guess. */
static uint32_t likely_threads(const struct weir_net_options *options) {
    if (options->pipe.threads_per_worker > 0) return options->pipe.threads_per_worker;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return weir__net_threads(options, cores > 0 ? (uint32_t)cores : 1);
}

/** Whether weights meet several micro-batches before they change, and memory is not scarce. */
static bool keeps_packed(const struct weir_net_options *options) {
    const struct weir_pipe_options *pipe = &options->pipe;
    return pipe->memory_limit == 0 && (pipe->infer_only || (pipe->chunks > 1 && pipe->rows > 1));
}

/* ---- building ---- */

/** Which layers each stage has, and what it runs on. */
static int cut(struct weir_net *net, const struct weir_net_options *options,
               struct weir_faults *faults) {
    net->balance = weir__acquire(net->allocator, options->stages, sizeof net->balance[0]);
    net->backends = weir__acquire(net->allocator, options->stages, sizeof net->backends[0]);
    net->cut_count = options->stages;
    if (net->balance == NULL || net->backends == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__partition_model(net->model, options->dtype, options->stages,
                                       options->balance, net->balance, faults);
    if (status != WEIR_OK) return status;
    status = weir__net_backends(net->model, options, net->balance, faults, net->backends);
    if (status != WEIR_OK) return status;
    return weir__net_check_dtype(options->dtype, net->backends, options->stages, faults);
}

static int compile(struct weir_net *net, const struct weir_net_options *options,
                   struct weir_faults *faults) {
    struct weir__compile_options compile = {
        .dtype = options->dtype,
        .balance = net->balance,
        .stage_count = options->stages,
        .infer_only = options->pipe.infer_only,
        .input_grads = options->input_grads,
        .sequences = options->sequences,
        .layered = net->layered,
        .rows_max = net->rows_max,
        .logits_most = options->logits_most,
        .backends = net->backends,
        .mapping = net->weights.archive == NULL ? NULL : &net->weights.mapping};
    return weir__network_init(&net->network, net->allocator, net->model, &compile, faults);
}

static int make_stages(struct weir_net *net, const struct weir_net_options *options,
                       struct weir_faults *faults) {
    struct weir__pool *pool = &net->network.pool;
    uint32_t count = net->network.stage_count;
    int kernels = WEIR_OK;
    net->stages = weir__pool_take(pool, count, sizeof net->stages[0]);
    struct weir_stage *list = weir__pool_take(pool, count, sizeof list[0]);
    if (net->stages == NULL || list == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < count; s++) {
        struct weir__net_stage *stage = &net->stages[s];
        stage->plan =
            (struct weir__instance_options){.allocator = net->allocator,
                                            .dtype = net->dtype,
                                            .rows_max = net->rows_max,
                                            .threads = likely_threads(options),
                                            .threads_known = options->pipe.threads_per_worker > 0,
                                            .keeps_packed = keeps_packed(options),
                                            .backend = net->backends[s]};
        stage->optimizer = options->optimizer;
        stage->seed = options->seed;
        stage->share.groups = weir__gradient_groups(&options->pipe);
        stage->share.replicas = weir__replicas(&options->pipe);
        stage->share.replica = weir__replica(&options->pipe);
        int status = weir__stage_init(stage, &net->network, s);
        if (status != WEIR_OK) return status;
        if (kernels == WEIR_OK)
            kernels =
                weir__net_check_kernels(&net->network, &stage->slices, net->backends[s], faults);
        status = weir__stage_describe(stage, &net->network, s, net->infer_only, &list[s], faults);
        if (status != WEIR_OK) return status;
    }
    net->pipe_options.stages = list;
    net->pipe_options.stage_count = count;
    return kernels;
}

/** Zeros in the place of a target that a batch goes without. */
static int make_no_target(struct weir_net *net, struct weir_faults *faults) {
    int64_t rows = net->pipe_options.rows < 1 ? 1 : net->pipe_options.rows;
    int status = weir__tensor_bytes(&net->network.target, rows, &net->target_bytes);
    if (status == WEIR_OK) {
        net->no_target = weir__acquire(net->allocator, net->target_bytes, 1);
        if (net->no_target == NULL) status = WEIR_ERR_OUT_OF_MEMORY;
    }
    if (status != WEIR_OK)
        weir_faults_add(faults, "the targets of %" PRId64 " rows: %s: use fewer rows", rows,
                        weir_status_text(status));
    return status;
}

static int make_inputs(struct weir_net *net, struct weir_faults *faults) {
    assert(net->network.stage_count >= 1);
    struct weir_input *inputs = weir__pool_take(&net->network.pool, 2, sizeof inputs[0]);
    if (inputs == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    inputs[0].tensor = net->network.input;
    inputs[0].tensor.differentiable =
        net->input_grads && weir_dtype_is_float(net->network.input.dtype);
    inputs[0].name = "input";
    net->pipe_options.inputs = inputs;
    net->pipe_options.input_count = 1;
    if (!net->has_loss) return WEIR_OK;
    inputs[1].tensor = net->network.target;
    inputs[1].name = "target";
    inputs[1].stage = net->network.stage_count - 1;
    net->pipe_options.input_count = 2;
    return make_no_target(net, faults);
}

#define PLAIN_TEXT                                                                                 \
    "mini-batches cannot be accumulated: %s is of a batch norm that is not deferred: make it so "  \
    "(\"deferred\": true), or accumulate none (--accumulate 1)"

/** A number of a batch norm that is not deferred, or NULL: a micro-batch's weight in it is known by
 * those behind it, of the whole update. */
static const char *plain_norm(const struct weir_net *net) {
    for (uint32_t i = 0; i < net->network.parameter_count; i++) {
        const struct weir__running *running = net->network.parameters[i].running;
        if (running != NULL && running->plain) return net->network.parameters[i].name;
    }
    return NULL;
}

/** All but the pipe. On failure weir_net_destroy still has to be called. */
static int set_up(struct weir_net *net, const struct weir_model *model,
                  const struct weir_net_options *options, struct weir_faults *faults) {
    int status = weir__net_check(model, options, faults);
    if (status != WEIR_OK) return status;
    net->model = model;
    net->optimizer = options->optimizer;
    net->dtype = options->dtype;
    net->seed = options->seed;
    net->reference = options->reference;
    (void)weir__level_find(options->level, NULL,
                           &net->level); /* there, or weir__net_check says so */
    net->has_loss = model->has_target && options->sequences == 0;
    net->sequences = options->sequences;
    net->input_grads = options->input_grads;
    net->infer_only = options->pipe.infer_only;
    net->rows_max = largest_rows(&options->pipe);
    net->pipe_options = options->pipe;
    status = weir__net_weights_open(&net->weights, options, faults);
    if (status != WEIR_OK) return status;
    if ((status = cut(net, options, faults)) != WEIR_OK) return status;
    if ((status = compile(net, options, faults)) != WEIR_OK) return status;
    if ((status = make_stages(net, options, faults)) != WEIR_OK) return status;
    if ((status = weir__net_check_libraries(net, faults)) != WEIR_OK) return status;
    if (options->pipe.accumulates && plain_norm(net) != NULL) {
        weir_faults_add(faults, PLAIN_TEXT, plain_norm(net));
        return WEIR_ERR_CONFIG;
    }
    return make_inputs(net, faults);
}

static int new_without_pipe(const struct weir_model *model, const struct weir_net_options *options,
                            bool layered, struct weir_faults *faults, struct weir_net **net) {
    const struct weir_allocator *allocator = options->pipe.allocator;
    struct weir_net *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->allocator = allocator;
    made->layered = layered;
    int status = set_up(made, model, options, faults);
    if (status == WEIR_OK)
        *net = made;
    else
        weir_net_destroy(made);
    return status;
}

/** The ranks of a world: on all that decides bits and is not the pipe's. */
static int agree(const struct weir_net *net, struct weir_faults *faults) {
    const struct weir_world *world = net->pipe_options.world;
    const struct weir_optimizer *o = &net->optimizer;
    const double reals[] = {o->lr, o->weight_decay, o->beta1, o->beta2, o->eps, o->momentum};
    const uint64_t rest[] = {net->seed, (uint64_t)net->dtype, (uint64_t)o->kind, o->nesterov,
                             o->decay_matrices_only};
    if (world == NULL) return WEIR_OK;
    const char *level = net->level->name;
    int status =
        weir__world_agree(world, WEIR_OK, weir__hash(WEIR__HASH_BEGIN, level, strlen(level)),
                          "levels of kernels: give all the same --level", faults);
    if (status != WEIR_OK) return status;
    uint64_t hash = weir__hash(WEIR__HASH_BEGIN, reals, sizeof reals);
    hash = weir__hash(hash, rest, sizeof rest);
    for (uint32_t i = 0; i < net->network.parameter_count; i++) { /* each opens its own file */
        const struct weir__parameter_decl *parameter = &net->network.parameters[i];
        const uint64_t stays[] = {parameter->mapped != NULL, (uint64_t)parameter->stored};
        hash = weir__hash(hash, stays, sizeof stays);
    }
    for (uint32_t i = 0; i <= weir_model_layer_count(net->model); i++) {
        struct weir_layer_hash layer;
        (void)weir_model_hash(net->model, i, &layer); /* there are so many */
        hash = weir__hash(hash, &layer, sizeof layer);
    }
    return weir__world_agree(world, WEIR_OK, hash, "models, weights, optimizers, seeds or dtypes",
                             faults);
}

static int new_with_pipe(const struct weir_model *model, const struct weir_net_options *options,
                         bool layered, struct weir_faults *faults, struct weir_net **net) {
    assert(model != NULL && options != NULL && net != NULL);
    struct weir_net_options own;
    struct weir_net *made;
    bool sized = weir__is_sized(options) && weir__is_sized(&options->pipe);
    int status = sized ? weir__net_fill_threads(options, &own, faults) : WEIR_OK;
    if (status != WEIR_OK) return status;
    status = new_without_pipe(model, sized ? &own : options, layered, faults, &made);
    if (status != WEIR_OK)
        return sized ? weir__world_agree(options->pipe.world, status, 0, "nets", faults) : status;
    status = weir_pipe_new(&made->pipe_options, faults, &made->pipe);
    if (status != WEIR_OK) goto fail;
    if ((status = agree(made, faults)) != WEIR_OK) goto fail;
    *net = made;
    return WEIR_OK;
fail:
    weir_net_destroy(made);
    return status;
}

int weir_net_new(const struct weir_model *model, const struct weir_net_options *options,
                 struct weir_faults *faults, struct weir_net **net) {
    return new_with_pipe(model, options, false, faults, net);
}

int weir__net_new_layered(const struct weir_model *model, const struct weir_net_options *options,
                          struct weir_faults *faults, struct weir_net **net) {
    return new_with_pipe(model, options, true, faults, net);
}

int weir_net_plan(const struct weir_model *model, const struct weir_net_options *options,
                  struct weir_faults *faults, struct weir_plan **plan) {
    assert(model != NULL && options != NULL && plan != NULL);
    struct weir_net *made;
    int status = new_without_pipe(model, options, false, faults, &made);
    if (status != WEIR_OK) return status;
    status = weir_plan_new(&made->pipe_options, faults, plan);
    weir_net_destroy(made);
    return status;
}

uint64_t weir__net_mapped_count(const struct weir_model *model,
                                const struct weir_net_options *options) {
    struct weir_net *net;
    uint64_t count = 0;
    if (options->weights == NULL || new_without_pipe(model, options, false, NULL, &net) != WEIR_OK)
        return 0;
    for (uint32_t i = 0; i < net->network.named_count; i++) {
        const struct weir__parameter_decl *parameter =
            &net->network.parameters[net->network.named[i]];
        count += parameter->mapped != NULL ? parameter->count : 0;
    }
    weir_net_destroy(net);
    return count;
}

void weir_net_destroy(struct weir_net *net) {
    if (net == NULL) return;
    weir_pipe_destroy(net->pipe);
    for (uint32_t s = 0; net->stages != NULL && s < net->network.stage_count; s++)
        weir__stage_clean_up(&net->stages[s]);
    weir__release(net->allocator, net->no_target, net->target_bytes, 1);
    weir__release(net->allocator, net->backends, net->cut_count, sizeof net->backends[0]);
    weir__release(net->allocator, net->balance, net->cut_count, sizeof net->balance[0]);
    weir__network_clean_up(&net->network);
    weir__net_weights_close(&net->weights);
    weir__release(net->allocator, net, 1, sizeof *net);
}

/* ---- asking ---- */

struct weir_pipe *weir_net_pipe(struct weir_net *net) {
    return net->pipe;
}

const uint32_t *weir_net_balance(const struct weir_net *net) {
    return net->balance;
}

uint32_t weir_net_parameter_count(const struct weir_net *net) {
    return net->network.named_count;
}

/** NULL where there is nothing: on another rank. */
static void *at(void *base, size_t offset) {
    return base == NULL ? NULL : (char *)base + offset;
}

int weir_net_parameter(const struct weir_net *net, uint32_t index,
                       struct weir_parameter *parameter) {
    assert(net != NULL && parameter != NULL);
    if (index >= net->network.named_count) return WEIR_ERR_NOT_FOUND;
    const struct weir__parameter_decl *info = &net->network.parameters[net->network.named[index]];
    assert(info->stage < net->network.stage_count);
    const struct weir__net_stage *stage = &net->stages[info->stage];
    *parameter = (struct weir_parameter){.name = info->name,
                                         .stage = info->stage,
                                         .layer = info->layer,
                                         .dtype = info->mapped != NULL ? info->stored : info->dtype,
                                         .rank = info->rank,
                                         .count = info->count,
                                         .frozen = info->frozen,
                                         .mapped = info->mapped != NULL,
                                         .adapter = info->adapter,
                                         .statistic = info->running != NULL};
    memcpy(parameter->shape, info->shape, sizeof parameter->shape);
    parameter->data = info->mapped == NULL         ? at(stage->at.parameters, info->offset)
                      : weir__stage_is_here(stage) ? (void *)(uintptr_t)info->mapped
                                                   : NULL;
    if (net->infer_only || info->frozen) return WEIR_OK;
    parameter->gradient = at(stage->at.gradients, info->offset);
    size_t place = weir__stage_optimizer_at(stage, info);
    for (uint32_t i = 0; i < weir__optimizer_arrays(&net->optimizer); i++)
        parameter->optimizer[i] = at(stage->at.optimizer, i * stage->array_bytes + place);
    return WEIR_OK;
}

/* ---- steps ---- */

double weir_net_loss_weight(const struct weir_net *net, const void *target, int64_t rows) {
    const struct weir_model *model = net->model;
    int64_t per_row = 1;
    for (uint32_t d = 0; d < model->target.rank; d++) per_row *= model->target.shape[d];
    if (model->loss != WEIR__LOSS_CROSS_ENTROPY) return (double)(rows * per_row);
    const int64_t *labels = target;
    int64_t weight = 0;
    for (int64_t i = 0; i < rows * per_row; i++) weight += labels[i] != model->ignore_index;
    return (double)weight;
}

static int prepare_rows(struct weir_net *net, int64_t rows, bool train, struct weir_error *error) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = net->allocator;
    int status = train ? weir_pipe_prepare(net->pipe, rows, &faults)
                       : weir_pipe_prepare_infer(net->pipe, rows, &faults);
    if (status != WEIR_OK)
        weir__fail(error, status, "%" PRId64 " row%s cannot be prepared: %s", rows,
                   weir__s((uint64_t)rows),
                   faults.kept > 0 ? faults.lines[0] : weir_status_text(status));
    weir_faults_clean_up(&faults);
    return status;
}

/** All that is there is looked at. */
static int64_t output_first(const struct weir_net *net, const struct weir_net_batch *batch) {
    if (batch->output == NULL) return batch->rows;
    return net->sequences > 0 && !batch->look ? batch->output_first : 0;
}

/** The pipe's step for a batch; arrays are the caller's and outlive the call. */
static void fill_step(struct weir_net *net, const struct weir_net_batch *batch,
                      const void *inputs[2], void *input_grads[2], void *outputs[1],
                      struct weir_step *step) {
    inputs[0] = batch->input;
    inputs[1] = batch->target != NULL ? batch->target : net->no_target;
    input_grads[0] = net->input_grads ? batch->input_grad : NULL;
    input_grads[1] = NULL;
    outputs[0] = batch->output;
    net->step.places = (struct weir__places){batch->sequence, batch->place};
    net->step.output_first = output_first(net, batch);
    net->step.has_target = net->has_loss && batch->target != NULL;
    net->step.look = batch->look;
    net->step.lr = batch->lr < 0 ? net->optimizer.lr : batch->lr;
    step->rows = batch->rows;
    step->inputs = inputs;
    step->input_grads = input_grads;
    step->outputs = outputs;
    step->mini_batch =
        batch->mini_batch == WEIR_NET_NEXT ? net->next_mini_batch : batch->mini_batch;
    step->update = batch->update == WEIR_NET_NEXT ? net->next_update : batch->update;
    step->loss_weight = batch->loss_weight;
    if (batch->loss_weight == 0 && net->step.has_target)
        step->loss_weight = weir_net_loss_weight(net, batch->target, batch->rows);
    step->accumulate_first = !batch->accumulate_next;
    step->accumulate_last = !batch->accumulate_more;
    step->no_update = batch->no_update || net->optimizer.kind == WEIR_OPTIMIZER_NONE;
    step->user = &net->step;
    step->flags = batch->flags;
}

/** A net with caches must be told where each row stands, and that must lie within its caches. */
static int check_places(const struct weir_net *net, const struct weir_net_batch *batch,
                        struct weir_error *error) {
    if (net->sequences == 0) return WEIR_OK;
    if (batch->sequence == NULL || batch->place == NULL)
        return weir__fail(error, WEIR_ERR_ARGUMENT, "a batch needs the rows' sequences and places");
    if (batch->output_first < 0 || batch->output_first > batch->rows)
        return weir__fail(error, WEIR_ERR_ARGUMENT,
                          "output_first is %" PRId64 ": with %" PRId64 " rows it is at least 0 and "
                          "at most that",
                          batch->output_first, batch->rows);
    for (int64_t i = 0; i < batch->rows; i++) {
        if (batch->sequence[i] < net->sequences && batch->place[i] < net->network.places) continue;
        return weir__fail(error, WEIR_ERR_ARGUMENT,
                          "row %" PRId64 " is place %u of sequence %u, but there are %" PRId64
                          " places and %u sequences",
                          i, batch->place[i], batch->sequence[i], net->network.places,
                          net->sequences);
    }
    return WEIR_OK;
}

static int check_accumulated(const struct weir_net *net, const struct weir_net_batch *batch,
                             struct weir_error *error) {
    const char *name = plain_norm(net);
    if (name == NULL || (!batch->accumulate_next && !batch->accumulate_more)) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_UNSUPPORTED, PLAIN_TEXT, name);
}

static int run_step(struct weir_net *net, const struct weir_step *step, bool train,
                    struct weir_step_result *result) {
    return train ? weir_pipe_step(net->pipe, step, result)
                 : weir_pipe_infer(net->pipe, step, result);
}

/** Rows that were not prepared are, and then it is run again. */
static int run_prepared(struct weir_net *net, const struct weir_step *step, bool train,
                        struct weir_step_result *result) {
    int status = run_step(net, step, train, result);
    bool unprepared = status == WEIR_ERR_ROWS && result->error.stage < 0; /* not a stage's own */
    if (!unprepared) return status;
    status = prepare_rows(net, step->rows, train, &result->error);
    return status == WEIR_OK ? run_step(net, step, train, result) : status;
}

static int check_batch(struct weir_net *net, const struct weir_net_batch *batch, bool train,
                       struct weir_error *error) {
    if (!weir__is_sized(batch))
        return weir__fail(error, WEIR_ERR_ARGUMENT, WEIR__BEGIN_WITH, "WEIR_NET_BATCH_INIT");
    if (batch->rows < 1 || batch->rows > net->pipe_options.rows)
        return weir__fail(error, WEIR_ERR_ROWS,
                          "a mini-batch of %" PRId64 " rows: the pipe was built for 1 to %" PRId64
                          ": give so many, or build it for more (options.pipe.rows)",
                          batch->rows, net->pipe_options.rows);
    if (!net->filled && net->network.named_count > 0)
        return weir__fail(error, WEIR_ERR_CONFIG,
                          "the parameters have no values yet: call weir_net_init or weir_net_load, "
                          "or weir_net_share after giving them your own");
    if (isnan(batch->lr))
        return weir__fail(error, WEIR_ERR_ARGUMENT,
                          "lr is not a number: give a rate, or less than 0 for the optimizer's");
    if (batch->input == NULL || (train && batch->target == NULL && net->has_loss))
        return weir__fail(error, WEIR_ERR_ARGUMENT, "a batch needs an input%s",
                          train ? " and a target" : "");
    int status = check_places(net, batch, error);
    if (status == WEIR_OK && train) status = check_accumulated(net, batch, error);
    return status == WEIR_OK ? weir__net_check_indices(net, batch, error) : status;
}

/** What WEIR_NET_NEXT is after a training step. Without an optimizer the caller updates. */
static void count_step(struct weir_net *net, const struct weir_net_batch *batch,
                       const struct weir_step *step, bool updated) {
    bool callers = net->optimizer.kind == WEIR_OPTIMIZER_NONE && step->accumulate_last;
    if (batch->no_update) return;
    net->next_mini_batch = step->mini_batch + 1;
    net->next_update = step->update + (updated || callers);
}

static int run(struct weir_net *net, const struct weir_net_batch *batch, bool train,
               struct weir_step_result *result) {
    const void *inputs[2];
    void *input_grads[2], *outputs[1];
    struct weir_step step = WEIR_STEP_INIT;
    struct weir_step_result unasked;
    if (result == NULL) result = &unasked;
    memset(result, 0, sizeof *result);
    weir__error_clear(&result->error);
    int status = check_batch(net, batch, train, &result->error);
    if (status != WEIR_OK) return status;
    fill_step(net, batch, inputs, input_grads, outputs, &step);
    status = run_prepared(net, &step, train, result);
    if (train && step.accumulate_last) net->step.weights++; /* failed ones, too: who knows */
    if (status == WEIR_OK && train) count_step(net, batch, &step, result->updated);
    return status;
}

int weir_net_step(struct weir_net *net, const struct weir_net_batch *batch,
                  struct weir_step_result *result) {
    return run(net, batch, true, result);
}

int weir_net_infer(struct weir_net *net, const struct weir_net_batch *batch,
                   struct weir_step_result *result) {
    return run(net, batch, false, result);
}
