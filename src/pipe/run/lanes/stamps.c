/* SPDX-License-Identifier: MIT */
/* When streams came to what they were given. A driver tells that of each event, for a microsecond
 * or so of the host's time, so it is not asked at a step's end, while devices stand still: a worker
 * asks when it has given its streams all of the next step and would only wait, or a reader of the
 * trace does before that. Until then events keep their times, for two steps take turns with them.
 */
#include "pipe/run/ranks.h"

static struct weir__event *signal_of_copy(const struct weir__unstamped *of, uint32_t index) {
    const struct weir__prepared_copy *copy = &of->plan->copies[index];
    const struct weir__copy_stream *stream = of->plan->bound.streams[copy->lane];
    return weir__signal(&stream->signals, copy->place, of->turn);
}

static struct weir_trace_event *event_of(const struct weir__worker *worker, uint32_t line_index) {
    return &worker->events[(worker->unstamped_first + line_index) % worker->event_capacity];
}

/* When what the wait is for was done, on the host's clock. */
static int time_of(const struct weir__unstamped *of, const struct weir_pipe *pipe,
                   const struct weir__needed_wait *wait, uint64_t *ns) {
    const struct weir__worker *from = &pipe->workers[wait->worker];
    struct weir__event *event;
    *ns = 0;
    if (wait->copy != WEIR__NO_COPY) {
        if (of->plan->bound.streams[of->plan->copies[wait->copy].lane] == NULL)
            return WEIR_OK; /* a message of a CPU's, which nobody has timed */
        event = signal_of_copy(of, wait->copy);
    } else if (from->device->calls->synchronous) {
        *ns = event_of(from, wait->count - 1)->end;
        return WEIR_OK;
    } else {
        event = weir__signal(&from->signals, wait->count - 1, of->turn);
    }
    return event->device->calls->event_time(event, ns);
}

/* The last of the waits, if it is over after `*ns`: when, and for whom that was. */
static int last_of(const struct weir__unstamped *of, const struct weir__worker *worker,
                   const struct weir__call *call, uint64_t *ns, int32_t *waited_for) {
    const struct weir__row_plan *p = of->plan;
    for (uint32_t i = call->wait_begin; i < call->wait_end; i++) {
        uint64_t ready = 0;
        int status = time_of(of, worker->pipe, &p->waits[i], &ready);
        if (status != WEIR_OK) return status;
        if (ready <= *ns) continue;
        *ns = ready;
        *waited_for = weir__wait_for_whom(p, worker->index, &p->waits[i]);
    }
    return WEIR_OK;
}

/* The same of a norm's parts from other replicas, for which no worker of this one is named. */
static int last_of_replicas(const struct weir__unstamped *of, const struct weir__call *call,
                            uint64_t *ns) {
    const struct weir__row_plan *p = of->plan;
    bool awaits = weir__writes(call->action.kind, WEIR__NORMS);
    for (uint32_t k = 0; awaits && k < p->bound.replica_ports; k++) {
        struct weir__event *event = weir__replicas_signal(p, call->action.stage, k, of->turn);
        uint64_t ready = 0;
        int status = event == NULL ? WEIR_OK : event->device->calls->event_time(event, &ready);
        if (status != WEIR_OK) return status;
        if (ready > *ns) *ns = ready;
    }
    return WEIR_OK;
}

/* ---- copies ---- */

static void record_copy(struct weir__worker *worker, const struct weir__copy_event *event) {
    if (worker->copy_event_capacity == 0) return;
    worker->copy_events[worker->copy_event_count++ % worker->copy_event_capacity] = *event;
}

/* It began when its stream had come there, what it follows was done, and the host had given it. */
static int stamp_copy(const struct weir__unstamped *of, struct weir__worker *worker, uint32_t first,
                      const struct weir_trace_event *action) {
    const struct weir__row_plan *p = of->plan;
    const struct weir__prepared_copy *copy = &p->copies[first];
    struct weir__copy_stream *stream = p->bound.streams[copy->lane];
    struct weir__event *signal = signal_of_copy(of, first);
    uint64_t given = stream->given_ns[2 * copy->place + of->turn], end = 0;
    uint64_t start = stream->free_ns > given ? stream->free_ns : given;
    int status = signal->device->calls->event_time(signal, &end);
    if (status != WEIR_OK) return status;
    for (uint32_t i = copy->wait_begin; i < copy->wait_end; i++) {
        uint64_t ready = 0;
        status = time_of(of, worker->pipe, &p->waits[i], &ready);
        if (status != WEIR_OK) return status;
        if (ready > start) start = ready;
    }
    if (end < start) end = start; /* two devices' clocks agree to a microsecond or so */
    stream->free_ns = end;
    record_copy(worker, &(struct weir__copy_event){action->step, start, end, p, first});
    return WEIR_OK;
}

static int stamp_copies(const struct weir__unstamped *of, struct weir__worker *worker,
                        const struct weir__call *call, const struct weir_trace_event *action) {
    for (uint32_t i = call->copy_begin; i < call->copy_end; i++) {
        const struct weir__prepared_copy *copy = &of->plan->copies[i];
        if (!weir__has_stream(of->plan, copy) || copy->unit != i) continue;
        int status = stamp_copy(of, worker, i, action);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

const struct weir__copy_event *weir__stamps_copy(const struct weir__worker *worker, uint64_t step,
                                                 uint32_t copy) {
    uint64_t count = worker->copy_event_count;
    for (uint32_t i = 0; i < worker->copy_event_capacity && i < count; i++) {
        const struct weir__copy_event *event =
            &worker->copy_events[(count - 1 - i) % worker->copy_event_capacity];
        if (event->step < step) return NULL;
        if (event->step == step && event->copy == event->plan->copies[copy].unit) return event;
    }
    return NULL;
}

/* ---- actions ---- */

/* Begun when the stream had come there, all that it follows was done, and the host had given it. */
static int stamp_action(const struct weir__unstamped *of, struct weir__worker *worker,
                        uint32_t line_index, uint64_t *before) {
    const struct weir__call *call =
        &of->plan->calls[of->plan->table->lines[worker->index] + line_index];
    struct weir_trace_event *event = event_of(worker, line_index);
    struct weir__event *signal = weir__signal(&worker->signals, line_index, of->turn);
    uint64_t start = *before, end = 0;
    int32_t waited_for = -1;
    int status = last_of(of, worker, call, &start, &waited_for);
    if (status != WEIR_OK || (status = last_of_replicas(of, call, &start)) != WEIR_OK)
        return status;
    if ((status = signal->device->calls->event_time(signal, &end)) != WEIR_OK) return status;
    if (event->start > start) start = event->start;
    if (end < start) end = start;
    event->waited_for = waited_for;
    event->waited = *before;
    event->start = start;
    event->end = *before = end;
    return WEIR_OK;
}

/* A worker that does its actions itself has their times; not that it waited for a copy. */
static int name_copy(const struct weir__unstamped *of, struct weir__worker *worker,
                     const struct weir__call *call, struct weir_trace_event *event) {
    uint64_t ready = event->waited;
    return last_of(of, worker, call, &ready, &event->waited_for);
}

void weir__stamps_fill(struct weir__worker *worker, const struct weir__unstamped *of) {
    bool at_once = worker->device->calls->synchronous;
    if (!of->any || (at_once && worker->copy_streams == NULL)) return;
    for (struct weir__copy_stream *s = worker->copy_streams; s != NULL; s = s->next) s->free_ns = 0;
    uint64_t before = worker->unstamped_count > 0 ? event_of(worker, 0)->waited : 0;
    for (uint32_t i = 0; i < worker->unstamped_count; i++) {
        const struct weir__row_plan *p = of->plan;
        const struct weir__call *call = &p->calls[p->table->lines[worker->index] + i];
        int status = stamp_copies(of, worker, call, event_of(worker, i));
        if (status != WEIR_OK) return;
        status = at_once ? name_copy(of, worker, call, event_of(worker, i))
                         : stamp_action(of, worker, i, &before);
        if (status != WEIR_OK) return;
    }
}

/* ---- the caller's ---- */

void weir__stamps_take(struct weir_pipe *pipe) {
    pthread_mutex_lock(pipe->history.stamping);
    pipe->command.before = *pipe->history.unstamped;
    pipe->history.unstamped->any = false;
    pthread_mutex_unlock(pipe->history.stamping);
}

void weir__stamps_leave(struct weir_pipe *pipe) {
    pthread_mutex_lock(pipe->history.stamping);
    *pipe->history.unstamped =
        (struct weir__unstamped){pipe->command.plan, pipe->command.turn, pipe->host != NULL};
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        struct weir__worker *worker = &pipe->workers[w];
        worker->unstamped_first = worker->step_first_event;
        worker->unstamped_count = (uint32_t)(worker->event_count - worker->step_first_event);
    }
    pthread_mutex_unlock(pipe->history.stamping);
}

int weir__stamps_read(const struct weir_pipe *pipe) {
    if (pipe->outcome.stuck) return WEIR_ERR_BUSY;
    pthread_mutex_lock(pipe->history.stamping);
    for (uint32_t w = 0; pipe->history.unstamped->any && w < pipe->worker_count; w++)
        weir__stamps_fill(&pipe->workers[w], pipe->history.unstamped);
    pipe->history.unstamped->any = false;
    pthread_mutex_unlock(pipe->history.stamping);
    return WEIR_OK;
}
