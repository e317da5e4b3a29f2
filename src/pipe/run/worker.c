/* SPDX-License-Identifier: MIT */
/* A worker walks its line: wait, copy, call, stamp, publish. After a failure it publishes the rest
 * of its line unrun, so that everybody who waits for it wakes up, sees the failure and does the
 * same. */
#include "pipe/run/ranks.h"

#include "base/portable.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* How long a worker spins before it parks. Below the first a park costs more than it saves; a wait
 * above the second is no hand-off any more. */
enum { SPIN_LEAST_NS = 50000, SPIN_MOST_NS = 2000000 };

static bool is_behind(const struct weir_pipe *pipe, const struct weir__call *call) {
    uint32_t worker = pipe->command.plan->stage_worker[call->action.stage];
    return !pipe->workers[worker].device->calls->synchronous;
}

void weir__pipe_fail(struct weir_pipe *pipe, const struct weir__call *call, int status,
                     const struct weir_error *error) {
    assert(status != WEIR_OK);
    int before = WEIR__FAILURE_NONE;
    bool first =
        atomic_compare_exchange_strong(&pipe->outcome.failed, &before, WEIR__FAILURE_IN_WRITING);
    /* updates may have begun elsewhere when a device tells of a failure, or when its work hangs */
    bool may_be_late = call == NULL || weir__writes(call->action.kind, WEIR__PARAMETERS) ||
                       status == WEIR_ERR_DEVICE || is_behind(pipe, call);
    if (!first && before == WEIR__FAILURE_OF_UPDATE && may_be_late)
        first = atomic_compare_exchange_strong(&pipe->outcome.failed, &before,
                                               WEIR__FAILURE_IN_WRITING);
    if (!first) return;
    bool torn = before == WEIR__FAILURE_OF_UPDATE && status != WEIR_ERR_DEVICE;
    if (torn) status = WEIR_ERR_TORN;
    pipe->outcome.error = (struct weir_error){status, -1, -1, WEIR_FORWARD, "", ""};
    memcpy(pipe->outcome.error.layer, error->layer, sizeof pipe->outcome.error.layer);
    memcpy(pipe->outcome.error.message, error->message, sizeof pipe->outcome.error.message);
    if (call != NULL) {
        bool of_micro_batch = weir__kinds[call->action.kind].per_micro_batch;
        pipe->outcome.error.stage = call->action.stage;
        uint32_t number = pipe->command.plan->groups.first + call->action.micro_batch;
        pipe->outcome.error.micro_batch = of_micro_batch ? (int32_t)number : -1;
        pipe->outcome.error.phase = call->phase;
    }
    if (pipe->outcome.error.message[0] == '\0')
        snprintf(pipe->outcome.error.message, sizeof pipe->outcome.error.message, "%s",
                 weir_status_text(status));
    atomic_store_explicit(&pipe->outcome.failed, WEIR__FAILURE_KNOWN, memory_order_release);
}

void weir__pipe_fail_elsewhere(struct weir_pipe *pipe, uint32_t rank,
                               const struct weir_error *error) {
    int before = WEIR__FAILURE_NONE;
    if (!atomic_compare_exchange_strong(&pipe->outcome.failed, &before, WEIR__FAILURE_IN_WRITING) &&
        before != WEIR__FAILURE_KNOWN)
        return;
    pipe->outcome.error = *error;
    snprintf(pipe->outcome.error.message, sizeof pipe->outcome.error.message, "rank %u: %.230s",
             rank, error->message);
    atomic_store_explicit(&pipe->outcome.failed, WEIR__FAILURE_KNOWN, memory_order_release);
}

/* ---- waiting ---- */

uint64_t weir__run_spin_ns(const struct weir__worker *worker) {
    if (!worker->pipe->spins) return 0;
    uint64_t bound = 4 * worker->expected_wait_ns;
    if (bound < SPIN_LEAST_NS) return SPIN_LEAST_NS;
    return bound > SPIN_MOST_NS ? SPIN_MOST_NS : bound;
}

/* Sleeps one slice towards an absolute time, so that a failure elsewhere is seen. The caller spins
 * the last SLACK_NS, which is about what a timer's wake-up takes. */
static void sleep_towards(uint64_t ready) {
    enum { SLACK_NS = 60000, SLICE_NS = 1000000 };
    uint64_t now = weir__now_ns();
    if (now + SLACK_NS >= ready) return;
    uint64_t left = ready - now - SLACK_NS;
    struct timespec slice = {.tv_nsec = left < SLICE_NS ? (long)left : SLICE_NS};
    (void)nanosleep(&slice, NULL);
}

/* A copied crossing is there `link_delay_ns` after its producer's end. True if it was not yet. */
static bool wait_delay(struct weir__run *run, const struct weir__needed_wait *wait) {
    assert(wait->count > 0 && wait->copy == WEIR__NO_COPY);
    const struct weir__worker *from = &run->pipe->workers[wait->worker];
    uint64_t ready =
        weir__worker_event(from, wait->count - 1)->end + run->pipe->setup.options.link_delay_ns;
    bool waits = weir__now_ns() < ready;
    while (weir__now_ns() < ready && !weir__run_has_failed(run)) {
        if (!run->pipe->spins) sleep_towards(ready);
        weir__pause();
    }
    return waits;
}

int32_t weir__run_gates(struct weir__run *run, uint32_t begin, uint32_t end) {
    assert(begin <= end && end <= run->plan->wait_count);
    int32_t waited_for = -1;
    for (uint32_t i = begin; i < end; i++) {
        const struct weir__needed_wait *wait = &run->plan->waits[i];
        struct weir__worker *from = &run->pipe->workers[wait->worker];
        bool message = wait->copy != WEIR__NO_COPY &&
                       weir__is_message(run->plan, &run->plan->copies[wait->copy]);
        if (message) {
            int32_t whom = weir__ranks_wait_copy(run, wait->copy);
            if (whom >= 0) waited_for = whom;
            continue;
        }
        if (from == run->worker) continue; /* its own copies, and what these follow */
        assert(weir__is_here(run->pipe, wait->worker));
        uint32_t wanted = from->base + wait->count;
        if (!weir__gate_reached(&from->progress, wanted)) {
            waited_for = (int32_t)wait->worker;
            weir__gate_wait(&from->progress, wanted, weir__run_spin_ns(run->worker), 0);
        }
        if (wait->delayed && !weir__run_has_failed(run) && wait_delay(run, wait))
            waited_for = (int32_t)wait->worker;
    }
    return waited_for;
}

/* ---- portals and copies ---- */

/* Before the call its uses, behind it its puts. */
static int pass_portals(struct weir__run *run, const struct weir__call *call, bool puts) {
    assert(call->portal_end <= run->plan->move_count);
    int status = WEIR_OK;
    for (uint32_t i = call->portal_begin; status == WEIR_OK && i < call->portal_end; i++) {
        const struct weir__portal_move *move = &run->plan->moves[i];
        enum weir__portal_step step = (enum weir__portal_step)move->step;
        if (puts != (step >= WEIR__PORTAL_DO_PUT)) continue;
        bool arrives = step == WEIR__PORTAL_DO_ARRIVE || step == WEIR__PORTAL_DO_ARRIVE_GRADIENT;
        if (arrives || step == WEIR__PORTAL_DO_PUT || step == WEIR__PORTAL_DO_RESET_GRADIENT)
            weir__portal_reset(move->portal, move->name, move->life);
        if (step == WEIR__PORTAL_DO_USE)
            status = weir__portal_use(move->portal, move->at, &run->error);
        else if (step == WEIR__PORTAL_DO_USE_GRADIENT)
            status = weir__portal_use_gradient(move->portal, move->at, &run->error);
        else if (step == WEIR__PORTAL_DO_PUT || step == WEIR__PORTAL_DO_ARRIVE)
            status = weir__portal_put(move->portal, *move->at, &run->error);
        else if (step == WEIR__PORTAL_DO_PUT_GRADIENT || step == WEIR__PORTAL_DO_ARRIVE_GRADIENT)
            status = weir__portal_put_gradient(move->portal, *move->at, &run->error);
    }
    return status;
}

static int make_copies(struct weir__run *run, const struct weir__call *call) {
    assert(call->copy_end <= run->plan->copy_count);
    const struct weir__device_calls *calls = run->worker->device->calls;
    for (uint32_t i = call->copy_begin; i < call->copy_end; i++) {
        const struct weir__prepared_copy *copy = &run->plan->copies[i];
        if (copy->lane != WEIR__NO_LANE) continue;
        const struct weir__copy_ends *ends = &run->plan->bound.ends[i];
        assert(ends->to != NULL && ends->from != NULL);
        int status = calls->copy(run->worker->stream, ends->to, ends->from, copy->bytes);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* ---- actions ---- */

static int call_stage(struct weir__run *run, const struct weir__call *call) {
    assert(call->run != NULL);
    void *context = run->pipe->setup.stages[call->action.stage].stage.context;
    weir__run_fill_task(run, call);
    if (run->pipe->setup.options.debug_inputs && call->views != NULL)
        return weir__run_guarded(run, call, context);
    return call->run(context, &run->task);
}

/* Once in a step, before the first update: all N are done then, or come before it in the stream.
 * Behind the host nobody knows the verdict yet: there U itself obeys it. A verdict that forbids the
 * update is no failure yet: the caller's thread sees it when all is over. */
static int judge(struct weir__run *run) {
    struct weir__worker *worker = run->worker;
    struct weir_verdict verdict;
    if (run->judged) return WEIR_OK;
    run->judged = true;
    run->updates = !run->pipe->command.step.no_update;
    if (!run->updates) return WEIR_OK;
    bool behind = !worker->device->calls->synchronous;
    struct weir__judgement judgement =
        weir__pipe_judgement(run->pipe, behind ? worker->verdict : &verdict);
    int status = worker->device->calls->judge(worker->stream, &judgement);
    if (status != WEIR_OK) return weir__run_explain(run, status);
    run->task.verdict = worker->verdict;
    if (behind) return WEIR_OK;
    run->updates = verdict.applies != 0;
    run->task.gradient_scale = verdict.gradient_scale;
    return WEIR_OK;
}

/* From here on a failure tears the parameters. False: something has failed before. The exchange
 * keeps the watchdog from giving up an earlier callback while updates begin. */
static bool begin_update(struct weir_pipe *pipe) {
    int none = WEIR__FAILURE_NONE;
    return atomic_compare_exchange_strong(&pipe->outcome.failed, &none, WEIR__FAILURE_OF_UPDATE) ||
           none == WEIR__FAILURE_OF_UPDATE;
}

/* A callback that succeeded may have left a message: the next failure is not of it. */
static void forget_error(struct weir__run *run) {
    run->error.layer[0] = run->error.message[0] = '\0';
}

/* Groups' sums that are complete behind the call, once all mini-batches of the update are in. */
static int add_sums(struct weir__run *run, const struct weir__call *call) {
    const struct weir__stage_setup *at = &run->pipe->setup.stages[call->action.stage];
    const struct weir__memory *memory = &run->plan->memory;
    const struct weir__arena *arenas = run->pipe->memory.arenas;
    for (uint32_t i = call->sum_begin; i < call->sum_end; i++) {
        const struct weir__group_sum *sum = &run->plan->sums[i];
        if (!run->pipe->command.step.accumulate_last) break;
        int status = at->stage.calls->combine(
            at->stage.context, weir__arena_block(arenas, memory, sum->into),
            weir__arena_block(arenas, memory, sum->from), 0, at->stage.gradient_bytes);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int do_action(struct weir__run *run, const struct weir__call *call) {
    assert(run->plan->stage_worker[call->action.stage] == run->worker->index);
    if (weir__writes(call->action.kind, WEIR__PARAMETERS)) {
        int judged = judge(run);
        if (judged != WEIR_OK || !run->updates || !begin_update(run->pipe)) return judged;
    }
    bool adds = run->plan->arrivals != NULL && weir__writes(call->action.kind, WEIR__NORMS);
    int status = adds ? weir__replicas_add(run, call) : WEIR_OK;
    if (call->run == NULL || status != WEIR_OK) return status;
    if ((status = pass_portals(run, call, false)) != WEIR_OK) return status;
    if ((status = call_stage(run, call)) != WEIR_OK) return status;
    if ((status = add_sums(run, call)) != WEIR_OK) return status;
    forget_error(run);
    if ((status = pass_portals(run, call, true)) != WEIR_OK) return status;
    return weir__run_returns(run, call);
}

static void stamp(struct weir__run *run, const struct weir__call *call, uint32_t line_index,
                  uint64_t start, int32_t waited_for) {
    struct weir_trace_event *event = weir__worker_event(run->worker, line_index);
    uint64_t waited = run->now;
    assert(line_index < run->stop && waited <= start);
    run->now = weir__now_ns();
    *event = (struct weir_trace_event){run->pipe->step_count,
                                       waited,
                                       start,
                                       run->now,
                                       call->action,
                                       run->worker->index,
                                       waited_for,
                                       run->task.rows_total,
                                       run->task.update};
    run->worker->event_count++;
    if (waited_for >= 0)
        run->worker->expected_wait_ns = (7 * run->worker->expected_wait_ns + start - waited) / 8;
}

/* Only weir__pipe_fail knows whether parameters are torn. */
static int own_status(int status) {
    return status == WEIR_ERR_TORN ? WEIR_ERR_CALLBACK : status;
}

/* Another worker of this process that the call still waits for; -1: none. */
static int32_t find_missing(const struct weir__run *run, const struct weir__call *call) {
    assert(call->wait_begin <= call->wait_end && call->wait_end <= run->plan->wait_count);
    for (uint32_t i = call->wait_begin; i < call->wait_end; i++) {
        const struct weir__needed_wait *wait = &run->plan->waits[i];
        struct weir__worker *from = &run->pipe->workers[wait->worker];
        if (from != run->worker && !weir__gate_reached(&from->progress, from->base + wait->count))
            return (int32_t)wait->worker;
    }
    return -1;
}

/* What the stage can do ahead, a piece at a time until the call's inputs are there. It counts as
 * waiting, whose time it takes. */
static int work_ahead(struct weir__run *run, const struct weir__call *call, int32_t *missing) {
    const struct weir_stage *stage = &run->pipe->setup.stages[call->action.stage].stage;
    struct weir__worker *worker = run->worker;
    bool more = stage->calls->ahead != NULL && stage->tie_count == 0 && run->pipe->ranks == NULL &&
                worker->device->calls->synchronous && call->views != NULL;
    int status = WEIR_OK;
    while (more && status == WEIR_OK && !weir__run_has_failed(run)) {
        int32_t whom = find_missing(run, call);
        if (whom < 0) break;
        *missing = whom;
        weir__run_fill_task(run, call);
        atomic_store_explicit(&worker->busy_action, (uint32_t)(call - run->plan->calls),
                              memory_order_relaxed);
        atomic_store_explicit(&worker->busy_since, weir__now_ns(), memory_order_release);
        status = stage->calls->ahead(stage->context, &run->task, &more);
        atomic_store_explicit(&worker->busy_since, 0, memory_order_release);
    }
    return status;
}

/* Returns when all that the call follows has happened, or will happen before it in its stream. */
static int wait_inputs(struct weir__run *run, const struct weir__call *call, int32_t *waited_for) {
    int32_t missing = -1;
    int begun = weir__run_lanes(run, call), status = work_ahead(run, call, &missing);
    *waited_for = weir__run_gates(run, call->wait_begin, call->wait_end);
    if (*waited_for < 0) *waited_for = missing;
    if (begun != WEIR_OK) return begun;
    if (status != WEIR_OK) return status;
    if (run->pipe->ranks != NULL && weir__writes(call->action.kind, WEIR__PARAMETERS))
        weir__ranks_wait_numbers(run);
    if (run->plan->arrivals != NULL && weir__writes(call->action.kind, WEIR__NORMS))
        status = weir__replicas_wait(run, call);
    if (status != WEIR_OK) return status;
    for (uint32_t i = call->wait_begin; i < call->wait_end; i++) {
        status = weir__run_follow(run, run->worker->stream, &run->plan->waits[i]);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Lets copies for the next action run beside this one's callback. False: that failed. */
static bool give_ahead(struct weir__run *run, const struct weir__call *next, uint32_t done) {
    assert(done + 1 < run->stop);
    int status = weir__run_lanes_ahead(run, next, done);
    if (status != WEIR_OK) weir__pipe_fail(run->pipe, next, own_status(status), &run->error);
    return status == WEIR_OK;
}

/* The copies, the callback, which the watchdog sees as busy, and the signal behind it. */
static int do_call(struct weir__run *run, uint32_t action, uint32_t line_index, uint64_t *start) {
    const struct weir__call *call = &run->plan->calls[action];
    struct weir__worker *worker = run->worker;
    int status = make_copies(run, call);
    *start = weir__now_ns();
    if (status != WEIR_OK) return status;
    atomic_store_explicit(&worker->busy_action, action, memory_order_relaxed);
    atomic_store_explicit(&worker->busy_since, *start, memory_order_release);
    status = do_action(run, call);
    atomic_store_explicit(&worker->busy_since, 0, memory_order_release);
    if (status != WEIR_OK) return status;
    return weir__run_signal(run, line_index);
}

/* The same as a range of a profiler, if there is one. */
static int run_call(struct weir__run *run, uint32_t action, uint32_t line_index, uint64_t *start) {
    const struct weir__nvtx *nvtx = &run->pipe->nvtx;
    char name[24];
    if (nvtx->library == NULL) return do_call(run, action, line_index, start);
    (void)nvtx->push(weir__action_text(&run->plan->calls[action].action, name));
    int status = do_call(run, action, line_index, start);
    (void)nvtx->pop();
    return status;
}

/* False: the step is over for this worker. */
static bool run_action(struct weir__run *run, uint32_t action, uint32_t line_index) {
    const struct weir__call *call = &run->plan->calls[action];
    struct weir__worker *worker = run->worker;
    assert(line_index < run->stop);
    assert(action == run->plan->table->lines[worker->index] + line_index);
    int32_t waited_for;
    uint64_t start = 0;
    forget_error(run);
    int status = wait_inputs(run, call, &waited_for);
    if (weir__run_has_failed(run)) return false;
    if (status != WEIR_OK) goto fail;
    bool ahead = worker->copy_streams != NULL && worker->device->calls->synchronous &&
                 line_index + 1 < run->stop;
    if (ahead && !give_ahead(run, call + 1, line_index)) return false;
    status = run_call(run, action, line_index, &start);
    if (status != WEIR_OK) goto fail;
    stamp(run, call, line_index, start, waited_for);
    if (weir__run_has_failed(run)) return false;
    weir__gate_advance(&worker->progress, worker->base + line_index + 1);
    weir__ranks_poll(run->pipe);
    return true;
fail:
    stamp(run, call, line_index, start != 0 ? start : weir__now_ns(), waited_for);
    if (status == WEIR_ERR_DEVICE) status = weir__run_explain(run, status);
    weir__pipe_fail(run->pipe, call, own_status(status), &run->error);
    return false;
}

static void run_line(struct weir__worker *worker) {
    struct weir_pipe *pipe = worker->pipe;
    const struct weir_step *step = &pipe->command.step;
    struct weir__run run = {.worker = worker, .pipe = pipe, .plan = pipe->command.plan};
    const struct weir_table *table = run.plan->table;
    uint32_t first = table->lines[worker->index];
    uint32_t length = table->lines[worker->index + 1] - first;
    run.stop = step->accumulate_last ? length : run.plan->tail[worker->index];
    assert(run.stop <= length);
    run.task = (struct weir_task){.micro_batch_count = run.plan->groups.whole,
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
    for (uint32_t i = 0; i < run.stop; i++)
        if (!run_action(&run, first + i, i)) break;
    weir__gate_advance(&worker->progress, worker->base + length);
    int status = weir__run_finish(&run);
    if (status != WEIR_OK) weir__pipe_fail(pipe, NULL, status, &run.error);
}

/* ---- attach, prepare, detach ---- */

/* Which of the pipe's stages refused what, as the record's message. */
static int refuse(const struct weir_pipe *pipe, uint32_t s, const char *what, int status,
                  struct weir_error *error) {
    assert(status != WEIR_OK);
    char text[96];
    return weir__fail(error, status, "%s: its %s callback returned %d (%s)",
                      weir__setup_stage_text(&pipe->setup, s, text), what, status,
                      weir_status_text(status));
}

/* Whether the stage was prepared for micro-batches of that size, in all phases of `prepared`. If
 * that is one of the pipe's own, phases do not count: the stage was measured for all of them. */
static bool is_known_size(const struct weir_pipe *pipe, const struct weir__row_plan *prepared,
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

static int prepare_stage(struct weir__worker *worker, const struct weir__row_plan *prepared,
                         uint32_t s, struct weir_error *error) {
    assert(prepared->stage_worker[s] == worker->index);
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

static int prepare_stages(struct weir__worker *worker, const struct weir__row_plan *prepared,
                          struct weir_error *error) {
    for (uint32_t s = 0; s < worker->pipe->setup.flow.stage_count; s++) {
        if (prepared->stage_worker[s] != worker->index) continue;
        int status = prepare_stage(worker, prepared, s, error);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int attach_stages(struct weir__worker *worker, const struct weir__row_plan *prepared,
                         struct weir_error *error) {
    struct weir_pipe *pipe = worker->pipe;
    for (uint32_t s = 0; s < pipe->setup.flow.stage_count; s++) {
        if (prepared->stage_worker[s] != worker->index) continue;
        const struct weir_stage *stage = &pipe->setup.stages[s].stage;
        assert(!pipe->attached[s]);
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
    assert(worker->pipe->prepared_count > 0);
    struct weir_pipe *pipe = worker->pipe;
    const struct weir__worker_place *placement = &pipe->placements[worker->index];
    int status = weir__place_bind(pipe->machine, placement);
    if (status != WEIR_OK)
        return weir__fail(error, status,
                          "worker %u cannot be bound to cores %s (%s): bind others, or \"none\"",
                          worker->index, placement->place.cores, weir_status_text(status));
    const struct weir__device_calls *calls = worker->device->calls;
    status = calls->enter(worker->device);
    if (status != WEIR_OK) return status;
    if ((status = weir__arena_settle(worker, error)) != WEIR_OK) return status;
    if ((status = weir__host_memory_settle(worker, error)) != WEIR_OK) return status;
    status = attach_stages(worker, pipe->prepared[0], error);
    int finished = calls->stream_finish(worker->stream); /* of those that did not fail */
    if (status != WEIR_OK) return status;
    if (finished != WEIR_OK) return finished;
    for (uint32_t i = 0; i < pipe->prepared_count; i++)
        if ((status = prepare_stages(worker, pipe->prepared[i], error)) != WEIR_OK) return status;
    return WEIR_OK;
}

static int prepare(struct weir__worker *worker, struct weir_error *error) {
    int status = weir__host_memory_settle(worker, error);
    if (status != WEIR_OK) return status;
    if ((status = weir__arena_settle_grown(worker, error)) != WEIR_OK) return status;
    return prepare_stages(worker, worker->pipe->command.plan, error);
}

/* The stream must have ended its work before a stage frees memory: a prepare callback may have
 * given it work and then failed. */
static void detach(struct weir__worker *worker) {
    struct weir_pipe *pipe = worker->pipe;
    const struct weir__device_calls *calls = worker->device->calls;
    bool behind = !calls->synchronous && worker->stream != NULL;
    if (behind && calls->enter(worker->device) == WEIR_OK)
        (void)calls->stream_finish(worker->stream);
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
    case WEIR__COMMAND_PREPARE: status = prepare(worker, &error); break;
    case WEIR__COMMAND_TOUCH: status = weir__arena_touch(worker); break;
    case WEIR__COMMAND_RUN: run_line(worker); break;
    case WEIR__COMMAND_TRANSFER: status = weir__transfer(worker); break;
    case WEIR__COMMAND_DETACH: detach(worker); break;
    case WEIR__COMMAND_EXIT: break;
    }
    if (status != WEIR_OK) weir__pipe_fail(pipe, NULL, status, &error);
}

void *weir__worker_main(void *argument) {
    struct weir__worker *worker = argument;
    struct weir_pipe *pipe = worker->pipe;
    assert(worker == &pipe->workers[worker->index]);
    for (uint32_t number = 1;; number++) {
        weir__gate_wait(&pipe->start, number, weir__run_spin_ns(worker), 0);
        enum weir__command_kind kind = pipe->command.kind;
        obey(worker);
        weir__gate_advance(&worker->done, number);
        if (kind == WEIR__COMMAND_EXIT) return NULL;
    }
}
