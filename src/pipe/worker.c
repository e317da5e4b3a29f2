/* SPDX-License-Identifier: MIT */
/* A worker walks its row: wait, copy, call, stamp, publish. After a failure it publishes the rest
 * of its row unrun, so that everybody who waits for it wakes up, sees the failure and does the
 * same. */
#include "pipe/pipe.h"

#include "base/portable.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* Bounds of spinning before the futex: shorter than this a park costs more than it saves, longer
 * than that a wait is no hand-off any more. */
enum { SPIN_LEAST_NS = 50000, SPIN_MOST_NS = 2000000 };

/** One step on one worker. */
struct run {
    struct weir__worker *worker;
    struct weir_pipe *pipe;
    const struct weir__prepared *prepared;
    struct weir_task task; /* what is the same for every action is filled in once */
    struct weir_error error;
    uint64_t now;          /* end of the last action */
    bool decided, updates; /* what the norm says about U */
};

static bool has_failed(const struct weir_pipe *pipe) {
    int failed = atomic_load_explicit(&pipe->failed, memory_order_acquire);
    return failed == WEIR__FAILURE_IN_WRITING || failed == WEIR__FAILURE_KNOWN;
}

void weir__pipe_fail(struct weir_pipe *pipe, const struct weir__call *call, int status,
                     const struct weir_error *error) {
    bool updates = call != NULL && call->action.kind == WEIR_KIND_U;
    int none = updates ? WEIR__FAILURE_OF_UPDATE : WEIR__FAILURE_NONE;
    if (!atomic_compare_exchange_strong(&pipe->failed, &none, WEIR__FAILURE_IN_WRITING)) return;
    pipe->error = (struct weir_error){status, -1, -1, WEIR_FORWARD, "", ""};
    memcpy(pipe->error.layer, error->layer, sizeof pipe->error.layer);
    memcpy(pipe->error.message, error->message, sizeof pipe->error.message);
    if (call != NULL) {
        bool of_micro_batch = weir__kinds[call->action.kind].per_micro_batch;
        pipe->error.stage = call->action.stage;
        pipe->error.micro_batch = of_micro_batch ? (int32_t)call->action.micro_batch : -1;
        pipe->error.phase = call->phase;
    }
    if (pipe->error.message[0] == '\0')
        snprintf(pipe->error.message, sizeof pipe->error.message, "%s", weir_status_text(status));
    atomic_store_explicit(&pipe->failed, WEIR__FAILURE_KNOWN, memory_order_release);
}

/* ---- waiting ---- */

static uint64_t spin_bound(const struct weir__worker *worker) {
    if (!worker->pipe->spins) return 0;
    uint64_t bound = 4 * worker->expected_wait_ns;
    if (bound < SPIN_LEAST_NS) return SPIN_LEAST_NS;
    return bound > SPIN_MOST_NS ? SPIN_MOST_NS : bound;
}

/* To an absolute time, in slices, so that a failure elsewhere is seen. The rest is spun: a timer's
 * wake-up takes about as long. */
static void sleep_towards(uint64_t ready) {
    enum { SLACK_NS = 60000, SLICE_NS = 1000000 };
    uint64_t now = weir__now_ns();
    if (now + SLACK_NS >= ready) return;
    uint64_t left = ready - now - SLACK_NS;
    struct timespec slice = {.tv_nsec = left < SLICE_NS ? (long)left : SLICE_NS};
    (void)nanosleep(&slice, NULL);
}

/* A copied crossing is there `link_delay_ns` after its producer's end. True if it was not yet. */
static bool wait_delay(struct run *run, const struct weir__wait *wait) {
    const struct weir__worker *from = &run->pipe->workers[wait->worker];
    uint64_t ready =
        weir__worker_event(from, wait->count - 1)->end + run->pipe->setup.options.link_delay_ns;
    bool waits = weir__now_ns() < ready;
    while (weir__now_ns() < ready && !has_failed(run->pipe)) {
        if (!run->pipe->spins) sleep_towards(ready);
        weir__pause();
    }
    return waits;
}

/* Waits for everything that `call` follows; returns the worker last waited for, or -1. */
static int32_t wait_inputs(struct run *run, const struct weir__call *call) {
    int32_t waited_for = -1;
    for (uint32_t i = call->wait_begin; i < call->wait_end; i++) {
        const struct weir__wait *wait = &run->prepared->waits[i];
        struct weir__worker *from = &run->pipe->workers[wait->worker];
        uint32_t wanted = from->base + wait->count;
        if (!weir__gate_reached(&from->progress, wanted)) {
            waited_for = (int32_t)wait->worker;
            weir__gate_wait(&from->progress, wanted, spin_bound(run->worker), 0);
        }
        if (wait->delayed && !has_failed(run->pipe) && wait_delay(run, wait))
            waited_for = (int32_t)wait->worker;
    }
    return waited_for;
}

/* ---- portals and copies ---- */

static int use_portals(struct run *run, const struct weir__call *call) {
    int status = WEIR_OK;
    void *memory;
    for (uint32_t i = call->portal_begin; status == WEIR_OK && i < call->portal_end; i++) {
        const struct weir__portal_move *move = &run->prepared->moves[i];
        if (move->step == WEIR__PORTAL_DO_USE)
            status = weir__portal_use(move->portal, &memory, &run->error);
        else if (move->step == WEIR__PORTAL_DO_USE_GRADIENT)
            status = weir__portal_use_gradient(move->portal, &memory, &run->error);
    }
    return status;
}

static int put_portals(struct run *run, const struct weir__call *call) {
    int status = WEIR_OK;
    for (uint32_t i = call->portal_begin; status == WEIR_OK && i < call->portal_end; i++) {
        const struct weir__portal_move *move = &run->prepared->moves[i];
        if (move->step == WEIR__PORTAL_DO_PUT) {
            weir__portal_reset(move->portal, move->name, move->life);
            status = weir__portal_put(move->portal, move->value, &run->error);
        } else if (move->step == WEIR__PORTAL_DO_RESET_GRADIENT) {
            weir__portal_reset(move->portal, move->name, 0);
        } else if (move->step == WEIR__PORTAL_DO_PUT_GRADIENT) {
            status = weir__portal_put_gradient(move->portal, move->value, &run->error);
        }
    }
    return status;
}

static int make_copies(struct run *run, const struct weir__call *call) {
    int status = WEIR_OK;
    for (uint32_t i = call->copy_begin; status == WEIR_OK && i < call->copy_end; i++) {
        const struct weir__copy *copy = &run->prepared->copies[i];
        status = run->worker->device->calls->copy(run->worker->stream, copy->to, copy->from,
                                                  copy->bytes);
    }
    return status;
}

/* ---- the task ---- */

/* The caller's memory, by rows: set at F, where a micro-batch begins on a stage. */
static void place_inputs(struct run *run, const struct weir__call *call) {
    const struct weir__setup *setup = &run->pipe->setup;
    const struct weir__stage_setup *at = &setup->stages[call->action.stage];
    struct weir__views *views = call->views;
    for (uint32_t e = 0; e < at->entering_count; e++) {
        uint32_t k = at->entering[e];
        const struct weir_input *input = &setup->options.inputs[k];
        int64_t first = input->replicated ? 0 : views->row_first * input->rows_factor;
        views->inputs[at->border_count + e].data =
            (char *)run->pipe->inputs[k] + (size_t)first * setup->input_row_bytes[k];
    }
    for (uint32_t k = 0; views->output_slots != NULL && k < at->stage.output_count; k++) {
        char *own = run->pipe->outputs[k];
        views->outputs[k].data = own == NULL
                                     ? views->output_slots[k]
                                     : own + (size_t)views->row_first * setup->output_row_bytes[k];
    }
    views->loss = 0.0;
}

static void place_input_grads(struct run *run, const struct weir__call *call) {
    const struct weir__setup *setup = &run->pipe->setup;
    const struct weir__stage_setup *at = &setup->stages[call->action.stage];
    for (uint32_t e = 0; e < at->entering_count; e++) {
        uint32_t k = at->entering[e];
        const struct weir_input *input = &setup->options.inputs[k];
        char *own = input->tensor.differentiable ? run->pipe->input_grads[k] : NULL;
        size_t first = (size_t)(call->views->row_first * input->rows_factor);
        call->views->input_grads[at->border_count + e].data =
            own == NULL ? NULL : own + first * setup->input_row_bytes[k];
    }
}

static void *lasting(const struct run *run, uint32_t block) {
    if (block == WEIR__NO_BLOCK) return NULL;
    return weir__arena_at(&run->pipe->arenas[run->worker->index],
                          run->prepared->memory.blocks[block].offset);
}

static void fill_micro_batch(struct run *run, const struct weir__call *call) {
    struct weir_task *task = &run->task;
    struct weir__views *views = call->views;
    const struct weir_view *nothing = run->prepared->nothing;
    uint32_t reads = weir__kinds[call->action.kind].reads;
    uint32_t writes = weir__kinds[call->action.kind].writes;
    if (call->action.kind == WEIR_KIND_F) place_inputs(run, call);
    if (writes & WEIR__INPUT_GRADS) place_input_grads(run, call);
    task->rows = views->rows;
    task->row_first = views->row_first;
    task->inputs = views->inputs;
    task->outputs = writes & WEIR__OUTPUTS ? views->outputs : nothing;
    bool grads = (reads & (WEIR__OUTPUT_GRADS | WEIR__WEIGHT_INPUTS)) != 0;
    task->output_grads = grads ? views->output_grads : nothing;
    task->input_grads = writes & WEIR__INPUT_GRADS ? views->input_grads : nothing;
    task->skips = views->skips;
    task->skip_grads = grads ? views->skip_grads : nothing;
    task->skip_grads_out = writes & WEIR__SKIP_GRADS_OUT ? views->skip_grads_out : nothing;
    uint32_t areas = call->saves ? reads | writes : 0;
    task->saved = areas & WEIR__SAVED ? views->saved : NULL;
    task->saved_for_input = areas & WEIR__SAVED_FOR_INPUT ? views->saved_for_input : NULL;
    task->left_for_weight = areas & WEIR__WEIGHT_INPUTS ? views->left_for_weight : NULL;
    task->loss = &views->loss;
}

/* N and U are of a whole mini-batch. */
static void leave_micro_batch(struct weir_task *task, const struct weir_view *nothing) {
    task->rows = task->row_first = 0;
    task->inputs = task->outputs = task->output_grads = task->input_grads = nothing;
    task->skips = task->skip_grads = task->skip_grads_out = nothing;
    task->saved = task->saved_for_input = task->left_for_weight = NULL;
    task->loss = NULL;
}

static void fill_task(struct run *run, const struct weir__call *call) {
    struct weir_task *task = &run->task;
    uint32_t stage = call->action.stage;
    const struct weir__lasting *blocks = &run->prepared->lasting[stage];
    task->phase = call->phase;
    task->stage = stage;
    task->micro_batch = call->action.micro_batch;
    task->workspace = call->workspace;
    task->parameters = lasting(run, blocks->parameters);
    task->gradients = lasting(run, blocks->gradients);
    task->optimizer = lasting(run, blocks->optimizer);
    task->state = lasting(run, blocks->state);
    task->gradients_first = call->gradients_first && run->pipe->command.step.accumulate_first;
    task->norm_squares = run->pipe->norm_squares[stage];
    task->error = &run->error;
    run->error.layer[0] = run->error.message[0] = '\0'; /* an earlier action's */
    bool whole = call->views == NULL;                   /* N and U */
    task->tied = whole ? run->prepared->tied[stage] : NULL;
    task->tied_count = whole ? run->pipe->setup.stages[stage].tied_count : 0;
    if (call->views != NULL)
        fill_micro_batch(run, call);
    else
        leave_micro_batch(task, run->prepared->nothing);
}

/* ---- catching stages that write to what they only may read ---- */

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; data != NULL && i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_view(uint64_t hash, const struct weir_tensor *tensor,
                          const struct weir_view *view) {
    size_t bytes = 0;
    if (weir__tensor_bytes(tensor, view->rows, &bytes) != WEIR_OK) return hash;
    return hash_bytes(hash, view->data, bytes);
}

static bool is_weight_part(const struct weir__call *call) {
    return (weir__kinds[call->action.kind].reads & WEIR__WEIGHT_INPUTS) != 0;
}

/* The border inputs that a call may read: others may be gone, and something else lie there. */
static uint64_t readable_inputs(const struct weir_stage *stage, const struct weir__call *call) {
    if (call->action.kind == WEIR_KIND_F) return UINT64_MAX;
    if (call->phase == WEIR_RECOMPUTE) return stage->inputs_recomputed;
    uint64_t weight = is_weight_part(call) ? stage->weight_reads.inputs : UINT64_MAX;
    return stage->inputs_kept & weight;
}

static bool is_readable_skip(const struct weir_stage *stage, const struct weir__call *call,
                             uint32_t j) {
    if (stage->skips[j].verb == WEIR_SKIP_STASH) return false;
    if (weir__kinds[call->action.kind].reads & WEIR__SKIPS_IN) return true;
    return stage->skips[j].kept &&
           (!is_weight_part(call) || weir__input_bit(stage->weight_reads.skips, j));
}

static uint64_t hash_gradients(const struct run *run, const struct weir__call *call,
                               uint64_t hash) {
    const struct weir_stage *stage = &run->pipe->setup.stages[call->action.stage].stage;
    bool weight = is_weight_part(call);
    uint64_t outputs = weight ? stage->weight_reads.output_grads : UINT64_MAX;
    uint64_t skips = weight ? stage->weight_reads.skip_grads : UINT64_MAX;
    if (!weight && !(weir__kinds[call->action.kind].reads & WEIR__OUTPUT_GRADS)) return hash;
    for (uint32_t k = 0; k < stage->output_count; k++)
        if (weir__input_bit(outputs, k))
            hash = hash_view(hash, &stage->outputs[k], &call->views->output_grads[k]);
    for (uint32_t j = 0; j < stage->skip_count; j++)
        if (weir__input_bit(skips, j))
            hash = hash_view(hash, &stage->skips[j].tensor, &call->views->skip_grads[j]);
    return hash;
}

static uint64_t hash_read_only(const struct run *run, const struct weir__call *call) {
    const struct weir__setup *setup = &run->pipe->setup;
    uint32_t s = call->action.stage;
    const struct weir__stage_setup *at = &setup->stages[s];
    uint64_t hash = 0xcbf29ce484222325u, mask = readable_inputs(&at->stage, call);
    for (uint32_t k = 0; k < weir__setup_input_count(setup, s); k++)
        if (k >= at->border_count || weir__input_bit(mask, k))
            hash = hash_view(hash, weir__setup_input(setup, s, k), &call->views->inputs[k]);
    for (uint32_t j = 0; j < at->stage.skip_count; j++) {
        const struct weir_skip_use *use = &at->stage.skips[j];
        if (is_readable_skip(&at->stage, call, j))
            hash = hash_view(hash, &use->tensor, &call->views->skips[j]);
    }
    return hash_gradients(run, call, hash);
}

static int run_watched(struct run *run, const struct weir__call *call, void *context) {
    uint64_t before = hash_read_only(run, call);
    int status = call->run(context, &run->task);
    if (status != WEIR_OK || hash_read_only(run, call) == before) return status;
    return weir__fail(&run->error, WEIR_ERR_CALLBACK,
                      "the stage wrote to its inputs, skips or incoming gradients, which are "
                      "read-only: write to outputs or workspace instead");
}

/* ---- actions ---- */

static int call_stage(struct run *run, const struct weir__call *call) {
    void *context = run->pipe->setup.stages[call->action.stage].stage.context;
    fill_task(run, call);
    if (run->pipe->setup.options.debug_inputs && call->views != NULL)
        return run_watched(run, call, context);
    return call->run(context, &run->task);
}

double weir__pipe_norm(const struct weir_pipe *pipe) {
    if (!pipe->any_norm) return NAN;
    double sum = 0.0;
    for (uint32_t s = 0; s < pipe->setup.flow.stage_count; s++)
        for (uint32_t i = 0; i < pipe->setup.stages[s].stage.norm_count; i++)
            sum += pipe->norm_squares[s][i];
    return sqrt(sum);
}

/* Every worker decides alone, from the same numbers: all N are done when any U starts. */
static void decide(struct run *run) {
    const struct weir_pipe_options *options = &run->pipe->setup.options;
    double norm = weir__pipe_norm(run->pipe);
    run->decided = true;
    run->updates = !run->pipe->command.step.no_update;
    run->task.gradient_scale = 1.0;
    if (!run->pipe->any_norm) return;
    if (!isfinite(norm)) {
        run->updates = false;
        if (options->skip_nonfinite || run->pipe->command.step.no_update) return;
        struct weir_error error = {0};
        weir__fail(&error, WEIR_ERR_NONFINITE,
                   "the gradient's norm is %g: lower the learning rate, clip, or skip such "
                   "updates (skip_nonfinite)",
                   norm);
        weir__pipe_fail(run->pipe, NULL, WEIR_ERR_NONFINITE, &error);
        return;
    }
    /* torch.nn.utils.clip_grad_norm_'s formula */
    double scale = options->clip_norm / (norm + 1e-6);
    if (options->clip_norm > 0.0 && scale < 1.0) run->task.gradient_scale = scale;
}

/* From here on a failure tears the parameters; false if something else has failed before. Without
 * this the watchdog could give up an earlier callback while the updates begin. */
static bool begin_update(struct weir_pipe *pipe) {
    int none = WEIR__FAILURE_NONE;
    return atomic_compare_exchange_strong(&pipe->failed, &none, WEIR__FAILURE_OF_UPDATE) ||
           none == WEIR__FAILURE_OF_UPDATE;
}

static int do_action(struct run *run, const struct weir__call *call) {
    if (call->action.kind == WEIR_KIND_U) {
        if (!run->decided) decide(run);
        if (!run->updates || !begin_update(run->pipe)) return WEIR_OK;
    }
    if (call->run == NULL) return WEIR_OK;
    int status = use_portals(run, call);
    if (status == WEIR_OK) status = call_stage(run, call);
    if (status == WEIR_OK) status = put_portals(run, call);
    return status;
}

static void stamp(struct run *run, const struct weir__call *call, uint32_t row_index,
                  uint64_t start, int32_t waited_for) {
    struct weir_trace_event *event = weir__worker_event(run->worker, row_index);
    uint64_t waited = run->now;
    run->now = weir__now_ns();
    *event = (struct weir_trace_event){run->pipe->step_count,
                                       waited,
                                       start,
                                       run->now,
                                       call->action,
                                       run->worker->index,
                                       waited_for,
                                       run->task.rows_total};
    run->worker->event_count++;
    if (waited_for >= 0)
        run->worker->expected_wait_ns = (7 * run->worker->expected_wait_ns + start - waited) / 8;
}

/* Torn parameters are what an update leaves behind, and nothing else can say so. */
static int own_status(const struct weir__call *call, int status) {
    if (call->action.kind == WEIR_KIND_U) return WEIR_ERR_TORN;
    return status == WEIR_ERR_TORN ? WEIR_ERR_CALLBACK : status;
}

/* False: the step is over for this worker. */
static bool run_action(struct run *run, uint32_t action, uint32_t row_index) {
    const struct weir__call *call = &run->prepared->calls[action];
    struct weir__worker *worker = run->worker;
    int32_t waited_for = wait_inputs(run, call);
    if (has_failed(run->pipe)) return false;
    int status = make_copies(run, call);
    uint64_t start = weir__now_ns();
    atomic_store_explicit(&worker->busy_action, action, memory_order_relaxed);
    atomic_store_explicit(&worker->busy_since, start, memory_order_release);
    if (status == WEIR_OK) status = do_action(run, call);
    atomic_store_explicit(&worker->busy_since, 0, memory_order_release);
    stamp(run, call, row_index, start, waited_for);
    if (status != WEIR_OK) weir__pipe_fail(run->pipe, call, own_status(call, status), &run->error);
    if (has_failed(run->pipe)) return false;
    weir__gate_advance(&worker->progress, worker->base + row_index + 1);
    return true;
}

static void run_row(struct weir__worker *worker) {
    struct weir_pipe *pipe = worker->pipe;
    const struct weir_step *step = &pipe->command.step;
    struct run run = {.worker = worker, .pipe = pipe, .prepared = pipe->command.prepared};
    const struct weir_table *table = run.prepared->table;
    uint32_t first = table->rows[worker->index];
    uint32_t length = table->rows[worker->index + 1] - first;
    uint32_t stop = step->accumulate_last ? length : run.prepared->tail[worker->index];
    run.task = (struct weir_task){.micro_batch_count = run.prepared->micro_batch_count,
                                  .rows_total = step->rows,
                                  .mini_batch = step->mini_batch,
                                  .update = step->update,
                                  .loss_weight = step->loss_weight,
                                  .user = step->user,
                                  .stream = worker->stream,
                                  .recompute_late = pipe->setup.options.recompute_late,
                                  .gradient_scale = 1.0};
    worker->step_first_event = worker->event_count;
    run.now = weir__now_ns();
    for (uint32_t i = 0; i < stop; i++)
        if (!run_action(&run, first + i, i)) break;
    weir__gate_advance(&worker->progress, worker->base + length);
}

/* ---- attach, prepare, detach ---- */

/* Which of the pipe's stages refused what, as the record's message. */
static int refuse(const struct weir_pipe *pipe, uint32_t s, const char *what, int status,
                  struct weir_error *error) {
    char text[96];
    return weir__fail(error, status, "%s: its %s callback returned %d (%s)",
                      weir__setup_stage_text(&pipe->setup, s, text), what, status,
                      weir_status_text(status));
}

/* Whether the stage was prepared for micro-batches of that size, in all phases that come now. While
 * it is attached the phases do not count: it has been measured for all of them. */
static bool is_known_size(const struct weir_pipe *pipe, const struct weir__prepared *prepared,
                          uint32_t stage, int64_t rows) {
    uint32_t known = 0, i = 0;
    for (; i < pipe->prepared_count && pipe->prepared[i] != prepared; i++) {
        int64_t sizes[2];
        uint32_t count = weir__prepared_sizes(pipe->prepared[i], sizes);
        if (sizes[0] == rows || sizes[count - 1] == rows) known |= pipe->prepared[i]->phases[stage];
    }
    if (i < pipe->prepared_count) return known != 0;
    return (prepared->phases[stage] & ~known) == 0;
}

static int prepare_stage(struct weir__worker *worker, const struct weir__prepared *prepared,
                         uint32_t s, struct weir_error *error) {
    const struct weir_pipe *pipe = worker->pipe;
    const struct weir_stage *stage = &pipe->setup.stages[s].stage;
    int64_t sizes[2];
    uint32_t count = weir__prepared_sizes(prepared, sizes);
    for (uint32_t i = 0; i < count && stage->calls->prepare != NULL; i++) {
        if (is_known_size(pipe, prepared, s, sizes[i])) continue;
        int status = stage->calls->prepare(stage->context, sizes[i]);
        if (status != WEIR_OK) return refuse(pipe, s, "prepare", status, error);
    }
    return WEIR_OK;
}

static int prepare_stages(struct weir__worker *worker, const struct weir__prepared *prepared,
                          struct weir_error *error) {
    int status = WEIR_OK;
    for (uint32_t s = 0; s < worker->pipe->setup.flow.stage_count && status == WEIR_OK; s++)
        if (prepared->stage_worker[s] == worker->index)
            status = prepare_stage(worker, prepared, s, error);
    return status;
}

static int attach_stages(struct weir__worker *worker, const struct weir__prepared *prepared,
                         struct weir_error *error) {
    struct weir_pipe *pipe = worker->pipe;
    for (uint32_t s = 0; s < pipe->setup.flow.stage_count; s++) {
        if (prepared->stage_worker[s] != worker->index) continue;
        const struct weir_stage *stage = &pipe->setup.stages[s].stage;
        struct weir_attachment attachment;
        int status = weir_pipe_attachment(pipe, s, &attachment);
        if (status == WEIR_OK && stage->calls->attach != NULL)
            status = stage->calls->attach(stage->context, &attachment);
        if (status != WEIR_OK) return refuse(pipe, s, "attach", status, error);
        pipe->attached[s] = true;
    }
    return WEIR_OK;
}

static int attach(struct weir__worker *worker, struct weir_error *error) {
    struct weir_pipe *pipe = worker->pipe;
    const struct weir__placement *placement = &pipe->placements[worker->index];
    int status = weir__place_bind(pipe->machine, placement);
    if (status != WEIR_OK)
        return weir__fail(error, status,
                          "worker %u cannot be bound to cores %s (%s): bind others, or \"none\"",
                          worker->index, placement->place.cores, weir_status_text(status));
    status = weir__arena_touch(worker, true);
    if (status == WEIR_OK) status = attach_stages(worker, pipe->prepared[0], error);
    for (uint32_t i = 0; i < pipe->prepared_count && status == WEIR_OK; i++)
        status = prepare_stages(worker, pipe->prepared[i], error);
    return status;
}

static void detach(struct weir__worker *worker) {
    struct weir_pipe *pipe = worker->pipe;
    for (uint32_t s = pipe->setup.flow.stage_count; s-- > 0;) {
        if (pipe->prepared[0]->stage_worker[s] != worker->index || !pipe->attached[s]) continue;
        const struct weir_stage *stage = &pipe->setup.stages[s].stage;
        pipe->attached[s] = false;
        if (stage->calls->detach != NULL) stage->calls->detach(stage->context);
    }
}

static void obey(struct weir__worker *worker) {
    struct weir_pipe *pipe = worker->pipe;
    struct weir_error error = {0};
    int status = WEIR_OK;
    switch (pipe->command.kind) {
    case WEIR__COMMAND_ATTACH: status = attach(worker, &error); break;
    case WEIR__COMMAND_PREPARE:
        status = prepare_stages(worker, pipe->command.prepared, &error);
        break;
    case WEIR__COMMAND_TOUCH: status = weir__arena_touch(worker, false); break;
    case WEIR__COMMAND_RUN: run_row(worker); break;
    case WEIR__COMMAND_DETACH: detach(worker); break;
    case WEIR__COMMAND_EXIT: break;
    }
    if (status != WEIR_OK) weir__pipe_fail(pipe, NULL, status, &error);
}

void *weir__worker_main(void *argument) {
    struct weir__worker *worker = argument;
    struct weir_pipe *pipe = worker->pipe;
    for (uint32_t number = 1;; number++) {
        weir__gate_wait(&pipe->start, number, spin_bound(worker), 0);
        enum weir__command_kind kind = pipe->command.kind;
        obey(worker);
        weir__gate_advance(&worker->done, number);
        if (kind == WEIR__COMMAND_EXIT) return NULL;
    }
}
