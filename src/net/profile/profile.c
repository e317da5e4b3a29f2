/* SPDX-License-Identifier: MIT */
/*
 * Measuring layers. A stage per layer would be simpler, and wrong: kernels that join layers would
 * run apart, stashes would become copies over a border, R of a layer by itself is not R of a layer
 * in the middle of a stage, and tied layers could not be cut at all. So the whole model is one
 * stage, and the clock is read between its kernel calls (25 ns each). On a GPU an event is recorded
 * there, and asked for its time when the stream has come to the program's end.
 */
#include "device/device.h"
#include "net/run/devices.h"
#include "net/profile/profile.h"
#include "net/profile/roofs.h"

#include "pipe/describe/microbatch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MICRO_BATCHES = 4, STEPS_MAX = 1000 };

/* The first micro-batch warms up and packs weights; then one of each way through a step. */
static const char training_table[] = "0F0,0B0,0F1,0B1,0F2,0R2,0B2,0F3,0I3,0W3\n";
/* Of inference, and where calls are asked for. */
static const char plain_table[] = "0F0,0B0,0F1,0B1,0F2,0B2,0F3,0B3\n";

/** What a program's runs took, call by call. */
struct program_times {
    uint32_t calls, runs, capacity;
    float *seconds; /* [run * calls + call] */
    double *sums;   /* [run] */
};

struct measuring {
    struct weir__timing timing; /* first */
    struct weir__profile_state *profile;
    const struct weir_profile_options *options;
    struct weir__pool pool; /* dies with the measuring */
    struct weir_net *net;
    const bool *last; /* [node] R runs it where its layer ends a stage */
    struct program_times times[WEIR__PROGRAM_COUNT];
    double *scratch; /* room for a median */
    double inside;   /* seconds of the present step's programs */
    double *outside; /* [step] seconds per action besides */
    uint32_t steps;
    uint32_t event_count; /* of timing.events */
    bool counting;
    void *input, *target;
    bool estimates;                /* seconds by roofs, where the bytes are found */
    weir__profile_visit_fn *visit; /* NULL: calls' times are summed up by layer */
    void *visitor;
};

/* ---- what is asked for ---- */

int64_t weir__profile_rows(const struct weir_net_options *options) {
    if (options->pipe.rows < 1 || options->pipe.chunks < 1) return 1;
    return weir__chunk_first(options->pipe.rows, options->pipe.chunks, 1);
}

static int check_options(const struct weir_model *model, const struct weir_profile_options *options,
                         struct weir_faults *faults) {
    if (options->steps_least < 1 || options->steps_least > options->steps_most ||
        options->steps_most > STEPS_MAX) {
        weir_faults_add(faults, "%u to %u steps cannot be measured: 1 to %d can",
                        options->steps_least, options->steps_most, STEPS_MAX);
        return WEIR_ERR_ARGUMENT;
    }
    if (model->layer_count == 0) {
        weir_faults_add(faults, "a model without layers has nothing to measure");
        return WEIR_ERR_ARGUMENT;
    }
    const struct weir__backend *backend;
    int status = weir__net_check(model, &options->net, faults);
    if (status != WEIR_OK) return status;
    bool alone = weir__net_sole_backend(&options->net, &backend);
    assert(alone);
    (void)alone;
    return weir__net_check_dtype(options->net.dtype, &backend, 1, faults);
}

/* ---- stamps ---- */

static bool is_on_gpu(const struct measuring *m) {
    return m->profile->backend->on_gpu;
}

/** Events' times are the host's to a microsecond: a later one may lie before an earlier one. */
static double seconds_between(const struct measuring *m, uint32_t first, uint32_t last) {
    assert(first <= last);
    int64_t ns = (int64_t)(m->timing.stamps[last] - m->timing.stamps[first]);
    return ns > 0 ? (double)ns * 1e-9 : 0;
}

static void note_calls(struct measuring *m, struct program_times *times) {
    assert(times->runs < times->capacity);
    float *row = &times->seconds[(size_t)times->runs * times->calls];
    for (uint32_t i = 0; i < times->calls; i++) row[i] = (float)seconds_between(m, i, i + 1);
}

/** Waits until the stream has passed the program, so that its events can be recorded again. */
static int read_events(struct measuring *m, struct weir_stream *stream, uint32_t count) {
    assert(count <= m->event_count);
    const struct weir__device_calls *calls = stream->device->calls;
    int status = calls->stream_finish(stream);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < count; i++) {
        status = calls->event_time(&m->timing.events[i], &m->timing.stamps[i]);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/** On the worker's thread, after a program has run. */
static int note_run(struct weir__timing *timing, const struct weir_task *task,
                    enum weir__program_kind kind, const struct weir__program *program) {
    struct measuring *m = (struct measuring *)timing;
    struct program_times *times = &m->times[kind];
    bool counts = m->counting && task->micro_batch > 0 && times->runs < times->capacity;
    int status = WEIR_OK;
    if (is_on_gpu(m)) status = read_events(m, task->stream, program->call_count + 1);
    if (status != WEIR_OK) return status;
    double seconds = seconds_between(m, 0, program->call_count);
    m->inside += seconds;
    if (!counts) return WEIR_OK;
    assert(times->calls == program->call_count);
    note_calls(m, times);
    times->sums[times->runs++] = seconds;
    return WEIR_OK;
}

/** An event per stamp, on the stage's device. */
static int take_events(struct measuring *m, uint32_t count, struct weir_faults *faults) {
    assert(m->event_count == 0);
    struct weir__device *device = m->net->stages[0].at.stream->device;
    m->timing.events = weir__pool_take(&m->pool, count, sizeof *m->timing.events);
    if (m->timing.events == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (; m->event_count < count; m->event_count++) {
        int status = device->calls->event_init(device, &m->timing.events[m->event_count]);
        if (status == WEIR_OK) continue;
        weir_faults_add(faults, "events to measure by cannot be had: %s", weir_status_text(status));
        return status;
    }
    return WEIR_OK;
}

static void release_events(struct measuring *m) {
    for (uint32_t i = 0; i < m->event_count; i++)
        m->timing.events[i].device->calls->event_clean_up(&m->timing.events[i]);
}

static int take_room(struct measuring *m, const struct weir__instance *instance,
                     struct weir_faults *faults) {
    assert(m->net != NULL && m->options->steps_most <= STEPS_MAX);
    uint32_t runs = m->options->steps_most * MICRO_BATCHES, most = 0;
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++) {
        struct program_times *times = &m->times[kind];
        times->calls = instance->programs[kind].call_count;
        times->capacity = runs;
        times->seconds = weir__pool_take(&m->pool, (size_t)runs * times->calls, sizeof(float));
        times->sums = weir__pool_take(&m->pool, runs, sizeof(double));
        if (times->seconds == NULL || times->sums == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        if (most < times->calls) most = times->calls;
    }
    m->scratch = weir__pool_take(&m->pool, runs, sizeof(double));
    m->outside = weir__pool_take(&m->pool, m->options->steps_most, sizeof(double));
    m->timing.stamps = weir__pool_take(&m->pool, (size_t)most + 1, sizeof(uint64_t));
    bool enough = m->scratch != NULL && m->outside != NULL && m->timing.stamps != NULL;
    m->timing.note = note_run;
    if (!enough) return WEIR_ERR_OUT_OF_MEMORY;
    return is_on_gpu(m) ? take_events(m, most + 1, faults) : WEIR_OK;
}

/* ---- data ---- */

static void fill_random(void *data, enum weir_dtype dtype, size_t count, int64_t below) {
    assert(data != NULL || count == 0);
    uint32_t words[4];
    for (size_t i = 0; i < count; i++) {
        if (i % 4 == 0) weir__philox_words(1, 0, 0, (uint32_t)(i >> 34), (uint32_t)(i / 4), words);
        double unit = words[i % 4] * 0x1p-32;
        if (dtype == WEIR_F32)
            ((float *)data)[i] = (float)unit;
        else if (dtype == WEIR_F64)
            ((double *)data)[i] = unit;
        else
            ((int64_t *)data)[i] = (int64_t)(unit * (double)below);
    }
}

/** All micro-batches' rows: the caller's, once for each, or random. */
static int make_rows(struct measuring *m, const struct weir_tensor *tensor, const void *given,
                     int64_t below, void **out) {
    assert(below >= 1);
    size_t bytes, all;
    int status = weir__tensor_bytes(tensor, m->profile->shown.rows, &bytes);
    if (status != WEIR_OK) return status;
    if (!weir__multiply(bytes, MICRO_BATCHES, &all)) return WEIR_ERR_OVERFLOW;
    char *data = weir__pool_take(&m->pool, all, 1);
    if (data == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if (given == NULL)
        fill_random(data, tensor->dtype, all / weir_dtype_bytes(tensor->dtype), below);
    for (int i = 0; given != NULL && i < MICRO_BATCHES; i++)
        memcpy(data + (size_t)i * bytes, given, bytes);
    *out = data;
    return WEIR_OK;
}

/** One document to each row: more cost less. */
static void make_documents(const struct weir_tensor *input, int64_t rows, int64_t *data) {
    assert(input->rank == 2 && input->dtype == WEIR_I64);
    int64_t tokens = input->shape[1];
    for (int64_t r = 0; r < rows; r++)
        memset(data + (2 * r + 1) * tokens, 0, (size_t)tokens * sizeof *data);
}

static int make_data(struct measuring *m) {
    const struct weir__network *network = &m->net->network;
    struct weir__profile_ranges ranges = weir__profile_ranges(&network->stages[0].graph);
    int status = make_rows(m, &network->input, m->options->input, ranges.input, &m->input);
    if (status == WEIR_OK && ranges.packed && m->options->input == NULL)
        make_documents(&network->input, MICRO_BATCHES * m->profile->shown.rows, m->input);
    if (status != WEIR_OK || !m->net->has_loss) return status;
    return make_rows(m, &network->target, m->options->target, ranges.target, &m->target);
}

/* ---- steps ---- */

static int make_net(struct measuring *m, const struct weir_model *model,
                    struct weir_faults *faults) {
    const struct weir_net_options *given = &m->options->net;
    struct weir_net_options net = WEIR_NET_OPTIONS_INIT;
    net.pipe.allocator = given->pipe.allocator;
    net.pipe.rows = m->profile->shown.rows;
    if (net.pipe.rows > INT64_MAX / MICRO_BATCHES) return WEIR_ERR_OVERFLOW;
    net.pipe.rows *= MICRO_BATCHES;
    net.pipe.chunks = MICRO_BATCHES;
    net.pipe.workers = 1;
    net.pipe.infer_only = given->pipe.infer_only;
    bool plain = given->pipe.infer_only || m->visit != NULL;
    net.pipe.table_csv = plain ? plain_table : training_table;
    net.pipe.table_csv_bytes = strlen(net.pipe.table_csv);
    net.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    net.pipe.threads_per_worker = m->profile->shown.threads;
    net.pipe.bind = given->pipe.bind;
    net.pipe.wait = given->pipe.wait;
    net.pipe.devices = given->pipe.devices;
    net.pipe.device_count = is_on_gpu(m) ? 1 : 0;
    net.stages = 1;
    net.dtype = given->dtype;
    net.seed = given->seed;
    net.reference = given->reference;
    net.level = given->level;
    net.logits_most = given->logits_most;
    net.optimizer.kind = WEIR_OPTIMIZER_NONE;
    int status = weir__net_new_layered(model, &net, faults, &m->net);
    if (status != WEIR_OK) return status;
    /* roofs' rates are the same by weights of 0, which need no drawing */
    status = m->visit != NULL ? weir_net_share(m->net) : weir_net_init(m->net, given->seed);
    if (status != WEIR_OK)
        weir_faults_add(faults, "parameters to measure with cannot be set: %s",
                        weir_status_text(status));
    return status;
}

static int step(struct measuring *m, struct weir_step_result *result) {
    assert(m->net != NULL && m->input != NULL);
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = m->profile->shown.rows * MICRO_BATCHES;
    batch.input = m->input;
    batch.target = m->target;
    batch.no_update = true;
    m->inside = 0;
    int status = m->options->net.pipe.infer_only ? weir_net_infer(m->net, &batch, result)
                                                 : weir_net_step(m->net, &batch, result);
    /* What a gradient of random numbers is does not matter. */
    return status == WEIR_ERR_NONFINITE ? WEIR_OK : status;
}

/** What actions take besides kernel calls; of the training steps that the pipe can report. */
static int note_outside(struct measuring *m) {
    assert(m->steps < m->options->steps_most);
    struct weir_step_report report;
    if (m->options->net.pipe.infer_only || is_on_gpu(m)) return WEIR_OK;
    int status = weir_pipe_report(weir_net_pipe(m->net), &report);
    if (status != WEIR_OK) return status;
    double outside = report.makespan * 1e-9 - m->inside;
    m->outside[m->steps] = outside > 0 ? outside / 10 : 0;
    return WEIR_OK;
}

static int take_steps(struct measuring *m, struct weir_step_result *result) {
    const struct weir_profile_options *options = m->options;
    int status;
    for (uint32_t i = 0; i < options->warm_up; i++)
        if ((status = step(m, result)) != WEIR_OK) return status;
    uint64_t begin = weir__now_ns();
    m->counting = true;
    for (; m->steps < options->steps_most; m->steps++) {
        bool long_enough = (double)(weir__now_ns() - begin) * 1e-9 >= options->seconds;
        if (m->steps >= options->steps_least && long_enough) break;
        if ((status = step(m, result)) != WEIR_OK) return status;
        if ((status = note_outside(m)) != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int run_steps(struct measuring *m, struct weir_faults *faults) {
    struct weir_step_result result;
    int status = take_steps(m, &result);
    if (status != WEIR_OK)
        weir_faults_add(faults, "a step failed while it was measured: %s",
                        result.error.message[0] != '\0' ? result.error.message
                                                        : weir_status_text(status));
    return status;
}

/* ---- from stamps to layers ---- */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, uint32_t count, double part) {
    if (count == 0) return 0;
    qsort(values, count, sizeof values[0], ascending);
    double at = part * (count - 1);
    uint32_t below = (uint32_t)at, above = below + 1 < count ? below + 1 : below;
    return values[below] + (at - below) * (values[above] - values[below]);
}

double weir__profile_typical(double *values, uint32_t count) {
    double most = 1.5 * quantile(values, count, 0.5), sum = 0;
    uint32_t used = 0;
    for (; used < count && values[used] <= most; used++) sum += values[used];
    return used > 0 ? sum / used : 0;
}

static double call_seconds(struct measuring *m, enum weir__program_kind kind, uint32_t call) {
    const struct program_times *times = &m->times[kind];
    assert(call < times->calls);
    for (uint32_t run = 0; run < times->runs; run++)
        m->scratch[run] = (double)times->seconds[(size_t)run * times->calls + call];
    return weir__profile_typical(m->scratch, times->runs);
}

static double call_least(const struct measuring *m, enum weir__program_kind kind, uint32_t call) {
    const struct program_times *times = &m->times[kind];
    float least = times->seconds[call];
    assert(times->runs > 0 && call < times->calls);
    for (uint32_t run = 1; run < times->runs; run++)
        least = fminf(least, times->seconds[(size_t)run * times->calls + call]);
    return (double)least;
}

static double run_quantile(struct measuring *m, enum weir__program_kind kind, double part) {
    const struct program_times *times = &m->times[kind];
    memcpy(m->scratch, times->sums, times->runs * sizeof m->scratch[0]);
    return quantile(m->scratch, times->runs, part);
}

double *weir__profile_share(struct weir_layer_cost *layer, enum weir__program_kind kind) {
    switch (kind) {
    case WEIR__PROGRAM_FORWARD:
    case WEIR__PROGRAM_INFER:
    case WEIR__PROGRAM_INFER_LOSS: return &layer->seconds[WEIR_KIND_F];
    case WEIR__PROGRAM_CHECKPOINT: return &layer->forward_checkpoint;
    case WEIR__PROGRAM_RECOMPUTE: return &layer->seconds[WEIR_KIND_R];
    case WEIR__PROGRAM_BACKWARD: return &layer->seconds[WEIR_KIND_B];
    case WEIR__PROGRAM_BACKWARD_INPUT: return &layer->seconds[WEIR_KIND_I];
    case WEIR__PROGRAM_BACKWARD_WEIGHT: return &layer->seconds[WEIR_KIND_W];
    case WEIR__PROGRAM_COUNT: break;
    }
    return NULL;
}

static void share_program(struct measuring *m, enum weir__program_kind kind,
                          const struct weir__instance *instance) {
    const struct weir__program *program = &instance->programs[kind];
    const struct weir__slices *slices = &m->net->stages[0].slices;
    uint32_t layers = m->profile->shown.costs.layer_count;
    assert(layers >= 1 && instance->programs[kind].call_count == m->times[kind].calls);
    for (uint32_t i = 0; m->times[kind].runs > 0 && i < program->call_count; i++) {
        uint32_t at = program->calls[i].layer < layers ? program->calls[i].layer : layers - 1;
        struct weir_layer_cost *layer = &m->profile->layers[at];
        double seconds = call_seconds(m, kind, i);
        bool of_node = i < slices->node_counts[kind];
        *weir__profile_share(layer, kind) += seconds;
        if (kind == WEIR__PROGRAM_RECOMPUTE && of_node && m->last[slices->nodes[kind][i]])
            layer->recompute_last += seconds;
    }
}

static void share(struct measuring *m, const struct weir__instance *instance) {
    assert(m->profile->layers != NULL);
    struct weir_profile *shown = &m->profile->shown;
    struct weir_layer_cost whole = {0};
    for (int kind = 0; kind < WEIR__PROGRAM_COUNT; kind++) {
        if (m->times[kind].runs == 0) continue;
        share_program(m, (enum weir__program_kind)kind, instance);
        *weir__profile_share(&whole, (enum weir__program_kind)kind) =
            run_quantile(m, (enum weir__program_kind)kind, 0.5);
    }
    memcpy(shown->seconds, whole.seconds, sizeof shown->seconds);
    double width = 0, middle = 0;
    static const enum weir__program_kind steady[] = {WEIR__PROGRAM_FORWARD, WEIR__PROGRAM_BACKWARD,
                                                     WEIR__PROGRAM_INFER, WEIR__PROGRAM_INFER_LOSS};
    for (size_t i = 0; i < WEIR__COUNT_OF(steady); i++) {
        width += run_quantile(m, steady[i], 0.9) - run_quantile(m, steady[i], 0.1);
        middle += run_quantile(m, steady[i], 0.5);
    }
    shown->spread = middle > 0 ? width / middle : 0;
    shown->costs.task_seconds =
        is_on_gpu(m) ? WEIR__ROOF_GPU_TASK : quantile(m->outside, m->steps, 0.5);
    shown->steps = m->steps;
    shown->measured = true;
}

/* Only nodes: what else a program does takes next to nothing. */
static void visit_calls(struct measuring *m, enum weir__program_kind kind) {
    const struct weir__slices *slices = &m->net->stages[0].slices;
    uint32_t count = m->times[kind].runs > 0 ? slices->node_counts[kind] : 0;
    assert(count <= m->times[kind].calls);
    for (uint32_t i = 0; i < count; i++) {
        if (slices->to_output[slices->nodes[kind][i]]) continue; /* nobody asks for that */
        struct weir__profile_call call = {.node = slices->graph->nodes[slices->nodes[kind][i]],
                                          .rows = m->profile->shown.rows,
                                          .least = call_least(m, kind, i),
                                          .typical = call_seconds(m, kind, i)};
        m->visit(m->visitor, &call);
    }
}

static const struct weir__instance *instance_of(const struct weir_net *net, int64_t rows) {
    const struct weir__net_stage *stage = &net->stages[0];
    for (uint32_t i = 0; i < stage->instance_count; i++)
        if (stage->instances[i]->rows == rows) return stage->instances[i];
    return NULL;
}

static int measure(struct measuring *m, const struct weir_model *model,
                   struct weir_faults *faults) {
    int status = make_net(m, model, faults);
    if (status != WEIR_OK) return status;
    const struct weir__instance *instance = instance_of(m->net, m->profile->shown.rows);
    assert(instance != NULL);
    status = take_room(m, instance, faults);
    if (status != WEIR_OK) return status;
    if ((status = make_data(m)) != WEIR_OK) return status;
    m->net->stages[0].timing = &m->timing;
    status = run_steps(m, faults);
    m->net->stages[0].timing = NULL;
    if (status != WEIR_OK) return status;
    if (m->visit == NULL) share(m, instance);
    for (int kind = 0; m->visit != NULL && kind < WEIR__PROGRAM_COUNT; kind++)
        visit_calls(m, (enum weir__program_kind)kind);
    return WEIR_OK;
}

/* ---- all ---- */

static int measure_all(struct measuring *m, const struct weir_model *model,
                       const struct weir__roofs *roofs, struct weir_faults *faults) {
    const struct weir_profile_options *options = m->options;
    weir__pool_init(&m->pool, options->net.pipe.allocator);
    int status =
        weir__profile_bytes(m->profile, model, &options->net, roofs, &m->pool, &m->last, faults);
    if (status == WEIR_OK && !options->bytes_only) status = measure(m, model, faults);
    release_events(m);
    weir_net_destroy(m->net);
    weir__pool_clean_up(&m->pool);
    return status;
}

/* A profile of what `m` is to measure, on one kind of device; what it took stays with `m`. */
static int make(struct measuring *m, const struct weir_model *model, struct weir_faults *faults) {
    const struct weir_profile_options *options = m->options;
    const struct weir__roofs *roofs = NULL;
    struct weir__profile_state *made;
    int status = check_options(model, options, faults);
    if (status != WEIR_OK) return status;
    status = weir__profile_acquire(options->net.pipe.allocator, model->layer_count, &made);
    if (status != WEIR_OK) return status;
    status = weir__profile_identity(made, model, &options->net, !options->bytes_only);
    if (status != WEIR_OK) goto fail;
    if (m->estimates && !made->backend->on_gpu) status = weir__roofs_find(&made->shown, &roofs);
    if (status != WEIR_OK) goto fail;
    m->profile = made;
    if ((status = measure_all(m, model, roofs, faults)) != WEIR_OK) goto fail;
    weir__profile_optimizer(made, &options->net.optimizer);
    return WEIR_OK;

fail:
    weir_profile_destroy(&made->shown);
    return status;
}

static int measure_kind(const void *context, const struct weir_model *model,
                        const struct weir_net_options *net, struct weir_faults *faults,
                        struct weir__profile_state **profile) {
    struct weir_profile_options options = *(const struct weir_profile_options *)context;
    struct measuring m = {.options = &options};
    options.net = *net;
    int status = make(&m, model, faults);
    if (status == WEIR_OK) *profile = m.profile;
    return status;
}

/* Of one kind of device: a rank measures on one. */
static int make_own(struct measuring *m, struct weir_profile_options *own,
                    const struct weir_model *model, struct weir_faults *faults) {
    const struct weir_world *world = own->net.pipe.world;
    const struct weir__backend *backend;
    char name[24];
    const char *device = name;
    if (!weir__net_sole_backend(&own->net, &backend)) {
        weir_faults_add(faults, "over several processes a profile is of CPUs or of GPUs: give "
                                "--device one kind");
        return WEIR_ERR_CONFIG;
    }
    if (backend->on_gpu) {
        weir__profile_own_gpu(world, name);
        own->net.pipe.devices = &device;
        own->net.pipe.device_count = 1;
    }
    return make(m, model, faults);
}

/* All ranks begin together, so that each is measured beside the others. */
static int new_over_ranks(const struct weir_model *model,
                          const struct weir_profile_options *options, struct weir_faults *faults,
                          struct weir_profile **profile) {
    struct weir_profile_options own = *options;
    struct measuring m = {.options = &own};
    int status = weir__net_fill_threads(&options->net, &own.net, faults);
    if (status != WEIR_OK) return status;
    int made = make_own(&m, &own, model, faults);
    status = weir__profile_gather(m.profile, options->net.pipe.world, made, faults);
    if (status == WEIR_OK)
        *profile = &m.profile->shown;
    else if (made == WEIR_OK)
        weir_profile_destroy(&m.profile->shown);
    return status;
}

int weir_profile_new(const struct weir_model *model, const struct weir_profile_options *options,
                     struct weir_faults *faults, struct weir_profile **profile) {
    assert(model != NULL && options != NULL && profile != NULL);
    if (!weir__is_sized(options) || !weir__is_sized(&options->net)) {
        weir_faults_add(faults, WEIR__BEGIN_WITH,
                        "WEIR_PROFILE_OPTIONS_INIT and WEIR_NET_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    const struct weir_world *world = options->net.pipe.world;
    if (world != NULL && world->rank_count > 1 && !options->bytes_only)
        return new_over_ranks(model, options, faults, profile);
    return weir__profile_make(model, &options->net, measure_kind, options, faults, profile);
}

int weir__profile_estimated(const struct weir_model *model,
                            const struct weir_profile_options *options, struct weir_faults *faults,
                            struct weir__profile_state **profile) {
    assert(options->bytes_only);
    struct measuring m = {.options = options, .estimates = true};
    int status = make(&m, model, faults);
    if (status == WEIR_OK) *profile = m.profile;
    return status;
}

int weir__profile_calls(const struct weir_model *model, const struct weir_profile_options *options,
                        weir__profile_visit_fn *visit, void *context, struct weir_faults *faults) {
    assert(!options->bytes_only && visit != NULL);
    struct measuring m = {.options = options, .visit = visit, .visitor = context};
    int status = make(&m, model, faults);
    if (status == WEIR_OK) weir_profile_destroy(&m.profile->shown);
    return status;
}
