/* SPDX-License-Identifier: MIT */
/* What a device is at, seen from the caller's thread. A worker whose device runs behind it comes to
 * its line's end early and waits there for all of it, or waits for a gate of such a worker. So only
 * the watchdog can see which action hangs. It looks at the first action of every line that is not
 * done: if all that it waits for is done, it runs. */
#include "pipe/run/ranks.h"

/* A failure counts as not done: the worker will find it, and end there. */
static bool is_done(struct weir__event *event) {
    bool done = false;
    return event->device->calls->event_query(event, &done) == WEIR_OK && done;
}

static struct weir__event *signal_of_copy(const struct weir_pipe *pipe, uint32_t copy) {
    const struct weir__row_plan *p = pipe->command.plan;
    const struct weir__copy_stream *stream = p->bound.streams[p->copies[copy].lane];
    return weir__signal(&stream->signals, p->copies[copy].place, pipe->command.turn);
}

/* Of what has been given to its stream: then the gates of its waits were passed, so events that
 * they name were recorded in this step. */
static bool waits_are_over(const struct weir_pipe *pipe, uint32_t begin, uint32_t end) {
    const struct weir__row_plan *p = pipe->command.plan;
    bool over = true;
    for (uint32_t i = begin; over && i < end; i++) {
        const struct weir__needed_wait *wait = &p->waits[i];
        const struct weir__worker *from = &pipe->workers[wait->worker];
        if (wait->copy != WEIR__NO_COPY && p->bound.streams[p->copies[wait->copy].lane] == NULL)
            continue;
        if (wait->copy != WEIR__NO_COPY)
            over = is_done(signal_of_copy(pipe, wait->copy));
        else if (!from->device->calls->synchronous)
            over = is_done(weir__signal(&from->signals, wait->count - 1, pipe->command.turn));
    }
    return over;
}

/* Of a norm: whether all replicas' parts have come. */
static bool have_come(const struct weir_pipe *pipe, const struct weir__call *call) {
    const struct weir__row_plan *p = pipe->command.plan;
    bool all = true, awaits = weir__writes(call->action.kind, WEIR__NORMS);
    for (uint32_t k = 0; all && awaits && k < p->bound.replica_ports; k++) {
        struct weir__event *event =
            weir__replicas_signal(p, call->action.stage, k, pipe->command.turn);
        all = event == NULL || is_done(event);
    }
    return all;
}

/* A copy that has not been given in this step has an old event, which is done. */
static uint32_t running_copy(const struct weir_pipe *pipe, const struct weir__call *call) {
    const struct weir__row_plan *p = pipe->command.plan;
    for (uint32_t i = call->copy_begin; i < call->copy_end; i++) {
        const struct weir__prepared_copy *copy = &p->copies[i];
        if (!weir__has_stream(p, copy) || copy->unit != i || is_done(signal_of_copy(pipe, i)))
            continue;
        if (waits_are_over(pipe, copy->wait_begin, copy->wait_end)) return i;
    }
    return WEIR__NO_COPY;
}

/* How many actions of its line the worker has done, or given to its stream. */
static uint32_t given(struct weir__worker *worker) {
    return atomic_load_explicit(&worker->progress.value, memory_order_acquire) - worker->base;
}

void weir__watch(struct weir__worker *worker) {
    struct weir_pipe *pipe = worker->pipe;
    const struct weir__row_plan *p = pipe->command.plan;
    const uint32_t *line = &p->table->lines[worker->index];
    struct weir__watched *watched = &worker->watched, before = *watched;
    uint32_t turn = pipe->command.turn, most = given(worker);
    bool behind = !worker->device->calls->synchronous;
    assert(most <= line[1] - line[0]);
    if (!behind) watched->done = most;
    while (watched->done < most && is_done(weir__signal(&worker->signals, watched->done, turn)))
        watched->done++;
    watched->action = line[0] + watched->done;
    watched->copy = WEIR__NO_COPY;
    bool runs = false;
    if (watched->action < line[1]) {
        const struct weir__call *call = &p->calls[watched->action];
        watched->copy = running_copy(pipe, call);
        runs = watched->copy != WEIR__NO_COPY ||
               (watched->done < most && waits_are_over(pipe, call->wait_begin, call->wait_end) &&
                have_come(pipe, call));
    }
    bool same = before.action == watched->action && before.copy == watched->copy;
    uint64_t now = weir__now_ns();
    watched->since = !runs ? 0 : same && before.since != 0 ? before.since : now;
    if (!same && (behind || before.copy != WEIR__NO_COPY)) watched->ended = now;
}
