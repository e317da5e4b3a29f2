/* SPDX-License-Identifier: MIT */
/* The caller's side of a step: hand the command out, wait, collect. */
#include "pipe/run/ranks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- commands and the watchdog ---- */

static bool all_done(struct weir_pipe *pipe) {
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        if (pipe->workers[w].started &&
            !weir__gate_reached(&pipe->workers[w].done, pipe->command.number))
            return false;
    return true;
}

/* What a worker's thread, or its device, has been at for how long. */
struct overdue {
    uint32_t action;
    uint64_t since; /* 0: nothing */
    const char *what;
    uint64_t limit; /* ns */
};

static void note_overdue(struct overdue *longest, uint64_t since, uint32_t action,
                         const char *what) {
    assert(what != NULL);
    if (since == 0 || (longest->since != 0 && longest->since <= since)) return;
    *longest = (struct overdue){action, since, what, longest->limit};
}

/* Of workers that do all their work at once, or of those whose devices run behind them. */
static void longest_callback(struct weir_pipe *pipe, bool at_once, struct overdue *longest) {
    longest->since = 0;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        struct weir__worker *worker = &pipe->workers[w];
        if (worker->device->calls->synchronous != at_once) continue;
        uint64_t since = atomic_load_explicit(&worker->busy_since, memory_order_acquire);
        uint32_t action = atomic_load_explicit(&worker->busy_action, memory_order_relaxed);
        note_overdue(longest, since, action, "the callback has not returned");
    }
}

static void longest_work(struct weir_pipe *pipe, struct overdue *longest, uint64_t *ended) {
    longest->since = *ended = 0;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        const struct weir__watched *watched = &pipe->workers[w].watched;
        if (!weir__is_here(pipe, w)) continue;
        weir__watch(&pipe->workers[w]);
        bool copy = watched->copy != WEIR__NO_COPY;
        note_overdue(longest, watched->since, watched->action,
                     copy ? "a copy for it has not ended"
                          : "what it gave its device has not ended");
        if (watched->ended > *ended) *ended = watched->ended;
    }
}

static bool is_overdue(const struct overdue *longest, uint64_t now, uint64_t ended) {
    uint64_t from = longest->since > ended ? longest->since : ended;
    return longest->since != 0 && now > from && now - from >= longest->limit;
}

/* The most workers of one GPU: each may take that many times as long beside the others. */
static uint64_t sharers(const struct weir_pipe *pipe) {
    uint64_t most = 1;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        const struct weir__device *device = pipe->workers[w].device;
        uint64_t count = 0;
        for (uint32_t v = 0; v < pipe->worker_count; v++)
            count +=
                !device->calls->synchronous && pipe->workers[v].device->memory == device->memory;
        if (count > most) most = count;
    }
    return most;
}

/* Finds what has gone on for longest. A driver whose queue is full keeps callbacks until earlier
 * work has ended, and workers of one GPU wait for each other there. So behind the host the limit
 * begins anew whenever a device is seen to end something; a step's work is finite, so a hang is
 * still found. Callbacks on the host come first, because a driver that is asked may hang too.
 * Asking takes time: what counts was over the limit before, and still goes on. */
static bool find_overdue(struct weir_pipe *pipe, struct overdue *found) {
    uint64_t now = weir__now_ns(), ended;
    found->limit = pipe->setup.options.watchdog_ns;
    longest_callback(pipe, true, found);
    if (is_overdue(found, now, 0)) return true;
    found->limit *= sharers(pipe);
    longest_work(pipe, found, &ended);
    if (is_overdue(found, now, ended)) return true;
    longest_callback(pipe, false, found);
    return is_overdue(found, now, ended);
}

/* Reports what has taken longer than the limit. */
static bool watchdog_bites(struct weir_pipe *pipe) {
    struct overdue longest = {0};
    struct weir_error error = {0};
    if (!find_overdue(pipe, &longest)) return false;
    assert(longest.action < pipe->command.plan->table->action_count);
    const struct weir__call *call = &pipe->command.plan->calls[longest.action];
    weir__fail(&error, WEIR_ERR_TIMEOUT, "%s for %.3g s: the limit is %.3g s", longest.what,
               (double)(weir__now_ns() - longest.since) * 1e-9, (double)longest.limit * 1e-9);
    weir__pipe_fail(pipe, call, WEIR_ERR_TIMEOUT, &error);
    /* the failure is dropped if the callback has returned meanwhile and updates have begun */
    int failed = atomic_load_explicit(&pipe->outcome.failed, memory_order_acquire);
    if (failed == WEIR__FAILURE_OF_UPDATE) return false;
    pipe->outcome.stuck = true;
    return true;
}

static bool wait_worker(struct weir_pipe *pipe, struct weir__worker *worker) {
    uint64_t limit = pipe->setup.options.watchdog_ns, slice = limit / 4 + 1;
    bool runs = pipe->command.kind == WEIR__COMMAND_RUN, watched = limit > 0 && runs;
    bool polls = pipe->ranks != NULL && runs;
    if (!watched) slice = 0;
    if (polls && (!watched || slice > WEIR__RANKS_POLL_NS)) slice = WEIR__RANKS_POLL_NS;
    while (!weir__gate_wait(&worker->done, pipe->command.number, 0, slice)) {
        if (polls) weir__ranks_poll(pipe);
        if (watched && watchdog_bites(pipe)) return false;
    }
    return true;
}

/* Where the watchdog gave one worker up, another may still be writing the record of its failure. */
static int first_failure(struct weir_pipe *pipe) {
    int failed;
    do {
        failed = atomic_load_explicit(&pipe->outcome.failed, memory_order_acquire);
    } while (failed == WEIR__FAILURE_IN_WRITING);
    if (failed != WEIR__FAILURE_KNOWN) return WEIR_OK;
    bool broken = pipe->ranks != NULL && atomic_load(&pipe->ranks->broken);
    if ((broken || pipe->outcome.error.status == WEIR_ERR_DEVICE) && !pipe->outcome.lost) {
        pipe->outcome.lost = true;
        pipe->outcome.lost_by = pipe->outcome.error;
    }
    return pipe->outcome.error.status;
}

int weir__pipe_command(struct weir_pipe *pipe) {
    atomic_store_explicit(&pipe->outcome.failed, WEIR__FAILURE_NONE, memory_order_relaxed);
    pipe->outcome.error = (struct weir_error){WEIR_OK, -1, -1, WEIR_FORWARD, "", ""};
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        struct weir__worker *worker = &pipe->workers[w];
        worker->base = atomic_load_explicit(&worker->progress.value, memory_order_relaxed);
        worker->watched = (struct weir__watched){.copy = WEIR__NO_COPY};
    }
    weir__ranks_begin(pipe);
    weir__gate_advance(&pipe->start, ++pipe->command.number);
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        if (!pipe->workers[w].started) continue;
        if (!wait_worker(pipe, &pipe->workers[w])) break;
    }
    weir__ranks_finish(pipe);
    return first_failure(pipe);
}

/* ---- one call at a time ---- */

/* With the place and the reason of the failure that did it. */
static int tell_lost(const struct weir_pipe *pipe, struct weir_error *error) {
    const struct weir_error *by = &pipe->outcome.lost_by;
    const char *name = by->status == WEIR_ERR_PEER ? "the world" : "a device";
    if (by->stage >= 0)
        name = pipe->workers[pipe->prepared[0]->stage_worker[by->stage]].device->name;
    if (error != NULL) *error = *by;
    return weir__fail(error, by->status, "%s of this pipe has failed (%.190s): build it anew", name,
                      by->message);
}

int weir__pipe_enter(struct weir_pipe *pipe, struct weir_error *error) {
    bool expected = false;
    if (!atomic_compare_exchange_strong(&pipe->in_use, &expected, true))
        return weir__fail(error, WEIR_ERR_BUSY,
                          "another call on this pipe is in progress: use one "
                          "pipe from one thread at a time");
    if (pipe->outcome.stuck && !all_done(pipe)) {
        atomic_store(&pipe->in_use, false);
        return weir__fail(error, WEIR_ERR_BUSY,
                          "an earlier step has not ended yet: a callback of it has not returned, "
                          "or a device is still at its work");
    }
    pipe->outcome.stuck = false;
    if (pipe->outcome.lost) {
        int status = tell_lost(pipe, error);
        atomic_store(&pipe->in_use, false); /* the last touch: the pipe may be destroyed now */
        return status;
    }
    return WEIR_OK;
}

void weir__pipe_leave(struct weir_pipe *pipe) {
    assert(atomic_load(&pipe->in_use));
    atomic_store(&pipe->in_use, false);
}

/* ---- steps ---- */

static struct weir__row_plan *find_prepared(const struct weir_pipe *pipe, int64_t rows,
                                            bool infer) {
    for (uint32_t i = 0; i < pipe->prepared_count; i++)
        if (pipe->prepared[i]->rows == rows && pipe->prepared[i]->infer == infer)
            return pipe->prepared[i];
    return NULL;
}

static int check_step(struct weir_pipe *pipe, const struct weir_step *step, bool infer,
                      struct weir_error *error) {
    assert(atomic_load(&pipe->in_use));
    if (!weir__is_sized(step))
        return weir__fail(error, WEIR_ERR_ARGUMENT, WEIR__BEGIN_WITH, "WEIR_STEP_INIT");
    if (!infer && pipe->setup.options.infer_only)
        return weir__fail(error, WEIR_ERR_ARGUMENT, "this pipe was built with infer_only");
    if (!isfinite(step->loss_weight) || step->loss_weight < 0.0)
        return weir__fail(error, WEIR_ERR_ARGUMENT,
                          "loss_weight is %g: give what all losses weigh, or 0 for the rows",
                          step->loss_weight);
    if (step->rows < 1 || step->rows > pipe->setup.options.rows)
        return weir__fail(error, WEIR_ERR_ROWS,
                          "a mini-batch of %lld row%s: the pipe was built for 1 to %lld: give so "
                          "many, or build it for more (options.rows)",
                          (long long)step->rows, step->rows == 1 ? "" : "s",
                          (long long)pipe->setup.options.rows);
    pipe->command.plan = find_prepared(pipe, step->rows, infer);
    if (pipe->command.plan == NULL)
        return weir__fail(error, WEIR_ERR_ROWS,
                          "a mini-batch of %lld row%s was not prepared: call "
                          "weir_pipe_prepare%s(pipe, %lld) before",
                          (long long)step->rows, weir__s((uint64_t)step->rows),
                          infer ? "_infer" : "", (long long)step->rows);
    const struct weir__groups *groups = &pipe->command.plan->groups;
    bool parts = !infer && !(step->accumulate_first && step->accumulate_last);
    if (parts && groups->count > groups->size && !pipe->setup.options.accumulates)
        return weir__fail(error, WEIR_ERR_ARGUMENT,
                          "a step is a part of an update, and this pipe has several groups of "
                          "gradients: build it with `accumulates`");
    uint32_t count = pipe->setup.options.input_count;
    for (uint32_t k = 0; k < count; k++)
        if (step->inputs == NULL || step->inputs[k] == NULL)
            return weir__fail(error, WEIR_ERR_ARGUMENT, "input %u (%s) is NULL", k,
                              pipe->setup.options.inputs[k].name);
    return WEIR_OK;
}

/* The workers read the pipe's copy, so that a callback that outlives the step finds it valid. */
static void take_step(struct weir_pipe *pipe, const struct weir_step *step) {
    assert(step->inputs != NULL || pipe->setup.options.input_count == 0);
    assert(pipe->command.plan != NULL);
    uint32_t inputs = pipe->setup.options.input_count;
    uint32_t outputs = pipe->setup.stages[pipe->setup.flow.stage_count - 1].stage.output_count;
    pipe->command.kind = WEIR__COMMAND_RUN;
    pipe->command.step = *step;
    pipe->command.turn ^= 1;
    weir__stamps_take(pipe);
    if (step->loss_weight == 0.0) pipe->command.step.loss_weight = (double)step->rows;
    for (uint32_t k = 0; k < inputs; k++) {
        pipe->command.inputs[k] = step->inputs[k];
        pipe->command.input_grads[k] = step->input_grads != NULL ? step->input_grads[k] : NULL;
    }
    for (uint32_t k = 0; k < outputs; k++)
        pipe->command.outputs[k] = step->outputs != NULL ? step->outputs[k] : NULL;
}

/* In micro-batch order, then stage order, whatever the schedule. */
static double sum_loss(const struct weir_pipe *pipe) {
    uint32_t m = pipe->command.plan->groups.whole;
    double loss = 0.0;
    assert(m > 0);
    for (uint32_t i = 0; i < m; i++)
        for (uint32_t s = 0; s < pipe->command.plan->table->stage_count; s++)
            loss += pipe->memory.losses[(size_t)s * m + i];
    return loss;
}

/* A failure here means that no worker has updated anything. */
static int check_verdict(const struct weir_pipe *pipe, const struct weir_verdict *verdict,
                         struct weir_error *error) {
    if (verdict->applies || pipe->setup.options.skip_nonfinite || pipe->command.step.no_update)
        return WEIR_OK;
    return weir__fail(error, WEIR_ERR_NONFINITE,
                      "the gradient's norm is %g: lower the learning rate, clip, or skip such "
                      "updates (skip_nonfinite)",
                      verdict->norm);
}

/* Takes the events of updates back that were not done, so that the step does not look whole. */
static void forget_updates(struct weir_pipe *pipe) {
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        struct weir__worker *worker = &pipe->workers[w];
        assert(worker->event_count >= worker->step_first_event);
        while (worker->event_count > worker->step_first_event) {
            uint64_t last = (worker->event_count - 1) % worker->event_capacity;
            if (!weir__writes(worker->events[last].action.kind, WEIR__PARAMETERS)) break;
            worker->event_count--;
        }
    }
}

static int collect(struct weir_pipe *pipe, bool infer, int status,
                   struct weir_step_result *result) {
    assert(pipe->command.plan != NULL && pipe->command.kind == WEIR__COMMAND_RUN);
    const struct weir_step *step = &pipe->command.step;
    bool normed = !infer && step->accumulate_last && status == WEIR_OK;
    struct weir_verdict verdict = {0};
    if (normed) {
        struct weir__judgement judgement = weir__pipe_judgement(pipe, &verdict);
        (void)weir__cpu_judge(NULL, &judgement);
        if (pipe->any_norm) result->gradient_norm = verdict.norm;
        status = check_verdict(pipe, &verdict, &pipe->outcome.error);
        if (status != WEIR_OK) forget_updates(pipe);
    }
    result->error = pipe->outcome.error;
    result->flags = pipe->ranks != NULL ? pipe->ranks->flags : step->flags;
    if (status != WEIR_OK) return status;
    result->loss = sum_loss(pipe);
    result->updated = normed && !step->no_update && verdict.applies;
    return WEIR_OK;
}

/* Ranks that have not heard each other do not know what comes next. */
static void lose_world(struct weir_pipe *pipe, int status, const char *what) {
    struct weir_error error = {WEIR_OK, -1, -1, WEIR_FORWARD, "", ""};
    atomic_store(&pipe->ranks->broken, true);
    if (pipe->outcome.lost) return;
    weir__fail(&error, status, "%s", what);
    pipe->outcome.lost = true;
    pipe->outcome.lost_by = error;
}

/* What GPUs did is told with the driver's times, so these are asked for at once. */
static int stamp_for_others(struct weir_pipe *pipe) {
    assert(pipe->command.kind == WEIR__COMMAND_RUN);
    if (pipe->ranks == NULL || pipe->host == NULL) return WEIR_OK;
    weir__stamps_leave(pipe);
    return weir__stamps_read(pipe);
}

/* Where other ranks cannot tell what they did there is no report of a step that is done; the next
 * call fails. */
static void keep_history(struct weir_pipe *pipe) {
    int stamped = stamp_for_others(pipe);
    int told = weir__ranks_tell_events(pipe);
    if (told != WEIR_OK) lose_world(pipe, told, "ranks did not tell what they did in a step");
    if (stamped != WEIR_OK || told != WEIR_OK) return;
    if (pipe->ranks != NULL && pipe->ranks->world->rank != 0) return;
    pipe->history.last = pipe->command.plan;
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        pipe->workers[w].last_first_event = pipe->workers[w].step_first_event;
}

static int run_step(struct weir_pipe *pipe, const struct weir_step *step, bool infer,
                    struct weir_step_result *result) {
    int status = check_step(pipe, step, infer, &result->error);
    if (status != WEIR_OK) return status;
    take_step(pipe, step);
    uint64_t before = weir__now_ns();
    pipe->step_count++;
    pipe->counts_updates |= step->update > 0;
    if (!infer) pipe->history.last = NULL;
    int ran = weir__pipe_command(pipe);
    ran = weir__ranks_end(pipe, ran);
    result->ns = weir__now_ns() - before;
    status = collect(pipe, infer, ran, result);
    if (status == WEIR_OK && !infer) keep_history(pipe);
    bool stamped = pipe->ranks != NULL && status == WEIR_OK && !infer;
    if (ran == WEIR_OK && !stamped) weir__stamps_leave(pipe);
    if (status != WEIR_OK) return status;
    status = weir__ranks_give_back(pipe, infer);
    if (status == WEIR_OK) return WEIR_OK;
    lose_world(pipe, status, "what a step gave cannot be given to all ranks");
    return weir__fail(&result->error, status, "%s", pipe->outcome.lost_by.message);
}

static int take_turn(struct weir_pipe *pipe, const struct weir_step *step, bool infer,
                     struct weir_step_result *result) {
    struct weir_step_result unasked;
    if (result == NULL) result = &unasked;
    memset(result, 0, sizeof *result);
    result->gradient_norm = NAN;
    weir__error_clear(&result->error);
    if (pipe == NULL) return weir__fail(&result->error, WEIR_ERR_ARGUMENT, "the pipe is NULL");
    int status = weir__pipe_enter(pipe, &result->error);
    if (status != WEIR_OK) return status;
    status = run_step(pipe, step, infer, result);
    weir__pipe_leave(pipe);
    return status;
}

int weir_pipe_step(struct weir_pipe *pipe, const struct weir_step *step,
                   struct weir_step_result *result) {
    return take_turn(pipe, step, false, result);
}

int weir_pipe_infer(struct weir_pipe *pipe, const struct weir_step *step,
                    struct weir_step_result *result) {
    return take_turn(pipe, step, true, result);
}

/* ---- further row counts ---- */

static int keep_prepared(struct weir_pipe *pipe, struct weir__row_plan **list, uint32_t count) {
    assert(count > 0 && pipe->prepared_count > 0);
    uint32_t before = pipe->prepared_count;
    for (uint32_t i = 0; i < count; i++) {
        if (weir__pool_add(&pipe->setup.pool, &pipe->prepared, &pipe->prepared_count,
                           &pipe->prepared_capacity, &list[i], sizeof list[i]))
            continue;
        pipe->prepared_count = before;
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    return WEIR_OK;
}

static int command_workers(struct weir_pipe *pipe, enum weir__command_kind kind,
                           struct weir__row_plan *prepared, struct weir_faults *faults) {
    pipe->command.kind = kind;
    pipe->command.plan = prepared;
    int status = weir__pipe_command(pipe);
    if (status != WEIR_OK) weir_faults_add(faults, "%s", pipe->outcome.error.message);
    return status;
}

/* Points everything to where it lies now. Memory to be pinned was touched before; the rest is
 * touched here, when what it replaces is gone. A touch cannot fail on a CPU. On another device a
 * failure leaves working memory that is not zeroed, which nobody relies on. */
static int take_arenas(struct weir_pipe *pipe, struct weir_faults *faults) {
    bool grown = weir__arenas_grow(pipe);
    weir__pipe_bind(pipe);
    return grown ? command_workers(pipe, WEIR__COMMAND_TOUCH, NULL, faults) : WEIR_OK;
}

/* What is not prepared yet. */
static int make_prepared(struct weir_pipe *pipe, int64_t rows, bool train,
                         struct weir__row_plan *made[2], uint32_t *count,
                         struct weir_faults *faults) {
    for (int infer = !train; infer < 2; infer++) {
        if (find_prepared(pipe, rows, infer != 0) != NULL) continue;
        int status = weir__prepared_new(&pipe->setup, rows, infer != 0, made, count, faults);
        if (status != WEIR_OK) return status;
    }
    assert(*count <= 2);
    return WEIR_OK;
}

static int prepare_streams(struct weir_pipe *pipe, struct weir__row_plan *const *made,
                           uint32_t count, struct weir_faults *faults) {
    assert(count > 0);
    for (uint32_t i = 0; i < count; i++) {
        int status = weir__streams_prepare(pipe, made[i]);
        if (status == WEIR_OK) continue;
        weir_faults_add(faults, "%lld row%s: streams or events for %s cannot be had: %s",
                        (long long)made[0]->rows, weir__s((uint64_t)made[0]->rows),
                        made[0]->rows == 1 ? "it" : "them", weir_status_text(status));
        return status;
    }
    return WEIR_OK;
}

/* All of it or nothing. Training and inference have the same sizes of micro-batches, and inference
 * comes with training at the latest: so the stages are asked to prepare for the first. */
static int prepare_rows(struct weir_pipe *pipe, int64_t rows, bool train,
                        struct weir_faults *faults) {
    struct weir__row_plan *made[2];
    uint32_t count = 0;
    int status = make_prepared(pipe, rows, train, made, &count, faults);
    if (status != WEIR_OK) goto fail_new;
    status = weir__arenas_reserve(pipe, made, count, faults);
    if (status != WEIR_OK) goto fail_new;
    status = prepare_streams(pipe, made, count, faults);
    if (status != WEIR_OK) goto fail_keep;
    status = command_workers(pipe, WEIR__COMMAND_PREPARE, made[0], faults);
    if (status != WEIR_OK) goto fail_keep;
    status = keep_prepared(pipe, made, count);
    if (status != WEIR_OK) goto fail_keep;
    return take_arenas(pipe, faults);
fail_keep:
    weir__arenas_drop(pipe);
    weir__host_memory_forget(pipe);
fail_new:
    weir__pipe_bind(pipe); /* staging may have moved */
    weir__prepared_destroy(pipe->setup.options.allocator, made, count);
    return status;
}

static int prepare_new(struct weir_pipe *pipe, int64_t rows, bool train,
                       struct weir_faults *faults) {
    assert(atomic_load(&pipe->in_use));
    if (rows < 1 || rows > pipe->setup.options.rows) {
        weir_faults_add(faults, "%lld rows: the pipe was built for 1 to %lld", (long long)rows,
                        (long long)pipe->setup.options.rows);
        return WEIR_ERR_ARGUMENT;
    }
    int status = weir__setup_check_rows(&pipe->setup, rows, faults);
    if (status != WEIR_OK) return status;
    train &= !pipe->setup.options.infer_only;
    if (find_prepared(pipe, rows, !train) != NULL) return WEIR_OK;
    return prepare_rows(pipe, rows, train, faults);
}

/* All ranks have prepared or none has. */
static int prepare_ranks(struct weir_pipe *pipe, uint32_t before, int status, int64_t rows,
                         struct weir_faults *faults) {
    if (pipe->ranks == NULL) return status;
    int all =
        weir__ranks_agree(pipe->ranks->world, pipe, status, (uint64_t)rows,
                          "row counts, or plans for them: each must make the same calls", faults);
    for (uint32_t i = before; all == WEIR_OK && i < pipe->prepared_count; i++)
        all = weir__ranks_prepare(pipe, pipe->prepared[i], faults);
    if (all == WEIR_OK || status != WEIR_OK) return all;
    weir__prepared_destroy(pipe->setup.options.allocator, &pipe->prepared[before],
                           pipe->prepared_count - before);
    pipe->prepared_count = before;
    return all;
}

static int prepare(struct weir_pipe *pipe, int64_t rows, bool train, struct weir_faults *faults) {
    if (pipe == NULL) return WEIR_ERR_ARGUMENT;
    struct weir_error error = {0};
    int status = weir__pipe_enter(pipe, &error);
    if (status != WEIR_OK) {
        weir_faults_add(faults, "%s", error.message);
        return status;
    }
    uint32_t before = pipe->prepared_count;
    status = prepare_new(pipe, rows, train, faults);
    status = prepare_ranks(pipe, before, status, rows, faults);
    weir__pipe_leave(pipe);
    return status;
}

int weir_pipe_prepare(struct weir_pipe *pipe, int64_t rows, struct weir_faults *faults) {
    return prepare(pipe, rows, true, faults);
}

int weir_pipe_prepare_infer(struct weir_pipe *pipe, int64_t rows, struct weir_faults *faults) {
    return prepare(pipe, rows, false, faults);
}
