/* SPDX-License-Identifier: MIT */
/* Work behind the host. A worker whose device runs behind it gives an action to a stream and goes
 * on; what comes from elsewhere is copied on streams of its own, one per source, beside the work.
 * Hand-offs have two levels: the gate says that an event was recorded in this step, so that a wait
 * which is given to a stream then binds to that record and to no older one. */
#include "pipe/run/ranks.h"

#include "pipe/lanes/ways.h"

#include <stdio.h>
#include <string.h>

/* ---- building ---- */

/* Signals for so many places, all of which are there to be cleaned up. */
static int grow_signals(struct weir_pipe *pipe, struct weir__device *device, uint32_t places,
                        struct weir__signals *signals) {
    if (places > UINT32_MAX / 2) return WEIR_ERR_OVERFLOW;
    uint32_t count = 2 * places;
    if (count <= signals->count) return WEIR_OK;
    struct weir__event *events = weir__pool_take(&pipe->setup.pool, count, sizeof *events);
    if (events == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if (signals->count > 0) memcpy(events, signals->events, signals->count * sizeof *events);
    signals->events = events;
    for (int status; signals->count < count; signals->count++) {
        status = device->calls->event_init(device, &events[signals->count]);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* A time for each signal. What steps before wrote is kept: it may not have been read yet. */
static int grow_given(struct weir_pipe *pipe, struct weir__copy_stream *stream) {
    uint32_t count = stream->signals.count;
    if (count <= stream->given_count) return WEIR_OK;
    uint64_t *given = weir__pool_take(&pipe->setup.pool, count, sizeof *given);
    if (given == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if (stream->given_count > 0)
        memcpy(given, stream->given_ns, stream->given_count * sizeof *given);
    stream->given_ns = given;
    stream->given_count = count;
    return WEIR_OK;
}

static void drop_signals(struct weir__device *device, struct weir__signals *signals) {
    for (uint32_t i = 0; i < signals->count; i++)
        device->calls->event_clean_up(&signals->events[i]);
    *signals = (struct weir__signals){0};
}

/* The device that copies: the reader's, unless that does all its work at once. */
static struct weir__device *copier(const struct weir_pipe *pipe, const struct weir__lane *lane) {
    struct weir__device *reader = pipe->workers[lane->worker].device;
    if (!reader->calls->synchronous) return reader;
    assert(lane->from != WEIR__FROM_CALLER);
    return pipe->workers[lane->from].device;
}

static int make_hop(struct weir__copy_stream *made, struct weir__device *source) {
    if (source->memory == 0 || made->device->calls->reaches(made->device, source)) return WEIR_OK;
    int status = source->calls->copy_stream_new(source, &made->hop.stream);
    if (status != WEIR_OK) return status;
    made->hop.device = source;
    made->hop.slot_count = WEIR__HOP_SLOTS;
    return WEIR_OK;
}

static int find_stream(struct weir_pipe *pipe, const struct weir__lane *lane,
                       struct weir__copy_stream **stream) {
    struct weir__worker *worker = &pipe->workers[lane->worker];
    struct weir__pool *pool = &pipe->setup.pool;
    for (struct weir__copy_stream *s = worker->copy_streams; s != NULL; s = s->next) {
        if (s->from != lane->from) continue;
        *stream = s;
        return WEIR_OK;
    }
    struct weir__copy_stream *made = weir__pool_take(pool, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->from = lane->from;
    made->device = copier(pipe, lane);
    int status = made->device->calls->copy_stream_new(made->device, &made->stream);
    if (status == WEIR_OK && lane->from != WEIR__FROM_CALLER)
        status = make_hop(made, pipe->workers[lane->from].device);
    if (status != WEIR_OK) {
        made->device->calls->stream_destroy(made->stream);
        return status;
    }
    made->next = worker->copy_streams;
    worker->copy_streams = *stream = made;
    return WEIR_OK;
}

/* Slots of pinned memory between two devices that do not reach each other. */
static int grow_hop(struct weir_pipe *pipe, struct weir__copy_stream *stream,
                    const struct weir__row_plan *prepared, uint32_t first) {
    struct weir__hop *hop = &stream->hop;
    _Static_assert(WEIR__HOP_SLOTS % 2 == 0, "signals come in pairs");
    if (hop->device == NULL) return WEIR_OK;
    int status = grow_signals(pipe, hop->device, WEIR__HOP_SLOTS / 2, &hop->filled);
    if (status != WEIR_OK) return status;
    status = grow_signals(pipe, stream->device, WEIR__HOP_SLOTS / 2, &hop->emptied);
    size_t slot = weir__unit_slot_bytes(prepared, first);
    if (slot > hop->wanted_bytes) hop->wanted_bytes = slot;
    return status;
}

int weir__rank_stream(struct weir_pipe *pipe, const struct weir__rank_end *end,
                      struct weir__copy_stream **stream) {
    struct weir__worker *worker = end->worker;
    assert(weir__is_here(pipe, worker->index) && !worker->device->calls->synchronous);
    for (struct weir__copy_stream *s = worker->rank_streams; s != NULL; s = s->next) {
        if (s->from != end->other || s->sends != end->sends || s->of_replicas != end->of_replicas)
            continue;
        *stream = s;
        return WEIR_OK;
    }
    struct weir__copy_stream *made = weir__pool_take(&pipe->setup.pool, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->from = end->other;
    made->of_replicas = end->of_replicas;
    made->sends = end->sends;
    made->device = worker->device;
    int status = made->device->calls->copy_stream_new(made->device, &made->stream);
    if (status != WEIR_OK) return status;
    if (!end->by_nccl) {
        made->hop.device = made->device;
        made->hop.slot_count = WEIR__PORT_SLOTS;
    }
    made->next = worker->rank_streams;
    worker->rank_streams = *stream = made;
    return WEIR_OK;
}

int weir__rank_stream_grow(struct weir_pipe *pipe, struct weir__copy_stream *stream, size_t bytes,
                           uint32_t places) {
    struct weir__hop *hop = &stream->hop;
    if (hop->device != NULL && bytes > hop->wanted_bytes)
        hop->wanted_bytes = (bytes + WEIR__ALIGNMENT - 1) / WEIR__ALIGNMENT * WEIR__ALIGNMENT;
    return grow_signals(pipe, stream->device, places, &stream->signals);
}

/* The end that is here of a lane of ranks, where it is a GPU's. */
static int find_rank_stream(struct weir_pipe *pipe, const struct weir__lane *lane,
                            struct weir__copy_stream **stream) {
    assert(lane->of_ranks && lane->from != WEIR__FROM_CALLER);
    bool sends = weir__is_here(pipe, lane->from);
    struct weir__rank_end end = {
        .worker = &pipe->workers[sends ? lane->from : lane->worker],
        .other = sends ? lane->worker : lane->from,
        .sends = sends,
        .by_nccl = weir__setup_by_nccl(&pipe->setup, lane->worker, lane->from, pipe->worker_count)};
    bool here = weir__is_here(pipe, end.worker->index);
    if (!here || end.worker->device->calls->synchronous) return WEIR_OK;
    return weir__rank_stream(pipe, &end, stream);
}

static int prepare_worker(struct weir_pipe *pipe, const struct weir__row_plan *prepared,
                          uint32_t w) {
    struct weir__worker *worker = &pipe->workers[w];
    const struct weir_table *table = prepared->table;
    if (worker->device->calls->synchronous) return WEIR_OK;
    size_t staging = prepared->staging_bytes[w];
    if (staging < WEIR__HUGE_PAGE) staging = WEIR__HUGE_PAGE; /* for what goes between steps */
    if (staging > worker->staging_wanted) worker->staging_wanted = staging;
    return grow_signals(pipe, worker->device, table->lines[w + 1] - table->lines[w],
                        &worker->signals);
}

/* A plan is made before devices say whom they reach. Where a lane does not hop after all, its order
 * says what its units would wait for among themselves. */
static void drop_own_waits(struct weir__row_plan *prepared, uint32_t first) {
    struct weir__prepared_copy *copy = &prepared->copies[first];
    uint32_t kept = copy->wait_begin;
    if (prepared->bound.streams[copy->lane]->hop.device != NULL) return;
    for (uint32_t i = copy->wait_begin; i < copy->wait_end; i++) {
        const struct weir__needed_wait *wait = &prepared->waits[i];
        bool own = wait->copy != WEIR__NO_COPY && prepared->copies[wait->copy].lane == copy->lane;
        if (!own) prepared->waits[kept++] = *wait;
    }
    copy->wait_end = kept;
}

static int find_any_stream(struct weir_pipe *pipe, struct weir__row_plan *prepared, uint32_t l) {
    const struct weir__lane *lane = &prepared->lanes[l];
    struct weir__copy_stream **stream = &prepared->bound.streams[l];
    if (lane->of_ranks) return find_rank_stream(pipe, lane, stream);
    return weir__is_here(pipe, lane->worker) ? find_stream(pipe, lane, stream) : WEIR_OK;
}

static int prepare_copy(struct weir_pipe *pipe, struct weir__row_plan *prepared, uint32_t i) {
    const struct weir__prepared_copy *copy = &prepared->copies[i];
    if (copy->lane == WEIR__NO_LANE || copy->unit != i) return WEIR_OK;
    struct weir__copy_stream *stream = prepared->bound.streams[copy->lane];
    if (stream == NULL) return WEIR_OK;
    if (weir__is_message(prepared, copy))
        return weir__rank_stream_grow(pipe, stream, copy->bytes, copy->place + 1);
    drop_own_waits(prepared, i);
    int status = grow_signals(pipe, stream->device, copy->place + 1, &stream->signals);
    if (status != WEIR_OK) return status;
    if ((status = grow_given(pipe, stream)) != WEIR_OK) return status;
    return grow_hop(pipe, stream, prepared, i);
}

int weir__streams_prepare(struct weir_pipe *pipe, struct weir__row_plan *prepared) {
    int status;
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        if (weir__is_here(pipe, w) && (status = prepare_worker(pipe, prepared, w)) != WEIR_OK)
            return status;
    for (uint32_t l = 0; l < prepared->lane_count; l++)
        if ((status = find_any_stream(pipe, prepared, l)) != WEIR_OK) return status;
    /* the last of a lane first: it has the highest place */
    for (uint32_t i = prepared->copy_count; i-- > 0;)
        if ((status = prepare_copy(pipe, prepared, i)) != WEIR_OK) return status;
    return weir__replicas_prepare(pipe, prepared);
}

static void drop_hop(struct weir__hop *hop, struct weir__device *device) {
    if (hop->device == NULL) return;
    drop_signals(hop->device, &hop->filled);
    drop_signals(device, &hop->emptied);
    hop->device->calls->stream_destroy(hop->stream);
    weir__host_memory_clean_up(&hop->slots);
}

static void end_stream(struct weir__device *device, struct weir_stream *stream) {
    if (stream != NULL && device->calls->enter(device) == WEIR_OK)
        (void)device->calls->stream_finish(stream);
}

void weir__streams_end(struct weir__worker *worker) {
    struct weir__copy_stream *lists[] = {worker->copy_streams, worker->rank_streams};
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        for (struct weir__copy_stream *s = lists[l]; s != NULL; s = s->next) {
            if (s->hop.device != NULL) end_stream(s->hop.device, s->hop.stream);
            end_stream(s->device, s->stream);
        }
    }
    end_stream(worker->device, worker->stream);
}

void weir__streams_clean_up(struct weir__worker *worker) {
    for (struct weir__copy_stream *s = worker->copy_streams; s != NULL; s = s->next) {
        drop_signals(s->device, &s->signals);
        s->device->calls->stream_destroy(s->stream);
        drop_hop(&s->hop, s->device);
    }
    for (struct weir__copy_stream *s = worker->rank_streams; s != NULL; s = s->next) {
        assert(s->pair == NULL);
        drop_signals(s->device, &s->signals);
        s->device->calls->stream_destroy(s->stream);
        drop_hop(&s->hop, s->device);
    }
    worker->copy_streams = worker->rank_streams = NULL;
    drop_signals(worker->device, &worker->signals);
    weir__host_memory_clean_up(&worker->staging);
}

/* ---- a step ---- */

static int device_failed(struct weir__run *run, struct weir__device *device, int status) {
    char text[200] = "";
    if (status == WEIR_OK || run->error.message[0] != '\0') return status;
    if (device->calls->explain != NULL) device->calls->explain(device, text, sizeof text);
    if (text[0] != '\0') return weir__fail(&run->error, status, "%s", text);
    return weir__fail(&run->error, status, "device %s: %s", device->name, weir_status_text(status));
}

int weir__run_explain(struct weir__run *run, int status) {
    return device_failed(run, run->worker->device, status);
}

int weir__run_follow(struct weir__run *run, struct weir_stream *stream,
                     const struct weir__needed_wait *wait) {
    const struct weir__device_calls *calls = stream->device->calls;
    uint32_t turn = run->pipe->command.turn;
    struct weir__event *event;
    if (wait->copy != WEIR__NO_COPY) {
        const struct weir__prepared_copy *copy = &run->plan->copies[wait->copy];
        const struct weir__copy_stream *lane = run->plan->bound.streams[copy->lane];
        if (lane == NULL) return WEIR_OK; /* messages of a CPU's, that its gate told of */
        event = weir__signal(&lane->signals, copy->place, turn);
    } else {
        struct weir__worker *from = &run->pipe->workers[wait->worker];
        if (from->device->calls->synchronous) return WEIR_OK;
        event = weir__signal(&from->signals, wait->count - 1, turn);
    }
    if (weir__run_has_failed(run)) return WEIR_OK; /* its record may be an older step's */
    struct weir__device *waits = calls->synchronous ? event->device : stream->device;
    return device_failed(run, waits, calls->stream_wait(stream, event));
}

/* From the caller's memory, which the device may not reach, to where it does. */
static void stage_input(const struct weir__run *run, uint32_t number) {
    const struct weir__prepared_copy *copy = &run->plan->copies[number];
    const char *rows = run->pipe->command.inputs[copy->input];
    memcpy(run->plan->bound.ends[number].from, rows + copy->input_offset, copy->bytes);
}

static int enqueue_set(struct weir__run *run, struct weir_stream *stream, bool by_kernel,
                       const struct weir__copy_set *set) {
    struct weir__device *device = stream->device;
    assert(by_kernel || set->count == 1);
    int status = by_kernel ? device->calls->copy_set(stream, set)
                           : device->calls->copy(stream, set->items->to, set->items->from,
                                                 set->items->bytes);
    return device_failed(run, device, status);
}

/* How much of a unit has been cut off. */
struct cut {
    uint32_t copy; /* the first that is not done, or WEIR__NO_COPY */
    size_t done;   /* bytes of it */
};

/* The next piece, as copies into the slot and out of it; returns how many. */
static uint32_t cut_piece(const struct weir__row_plan *p, struct cut *cut, char *slot,
                          struct weir__copy_item *in, struct weir__copy_item *out) {
    size_t used = 0;
    uint32_t count = 0;
    while (cut->copy != WEIR__NO_COPY && used < WEIR__HOP_PIECE_BYTES) {
        const struct weir__prepared_copy *copy = &p->copies[cut->copy];
        const struct weir__copy_ends *ends = &p->bound.ends[cut->copy];
        size_t rest = copy->bytes - cut->done, room = WEIR__HOP_PIECE_BYTES - used;
        size_t part = rest < room ? rest : room;
        assert(count < WEIR__UNIT_COPIES);
        in[count] = (struct weir__copy_item){slot + used, (char *)ends->from + cut->done, part};
        out[count++] = (struct weir__copy_item){(char *)ends->to + cut->done, slot + used, part};
        used += (part + WEIR__ALIGNMENT - 1) / WEIR__ALIGNMENT * WEIR__ALIGNMENT;
        *cut =
            part < rest ? (struct cut){cut->copy, cut->done + part} : (struct cut){copy->next, 0};
    }
    return count;
}

/* Into a slot by the device that has it, from there by the one that wants it. */
static int hop_piece(struct weir__run *run, const struct weir__copy_stream *lane,
                     const struct weir__prepared_copy *first, struct cut *cut, uint32_t slot) {
    const struct weir__hop *hop = &lane->hop;
    struct weir__event *filled = &hop->filled.events[slot];
    struct weir__copy_item in[WEIR__UNIT_COPIES], out[WEIR__UNIT_COPIES];
    char *memory = (char *)hop->slots.data + slot * hop->slot_bytes;
    uint32_t count = cut_piece(run->plan, cut, memory, in, out);
    struct weir__copy_set inwards = {in, count, 0, hop->device->memory, first->blocks_max};
    struct weir__copy_set outwards = {out, count, lane->device->memory, 0, first->blocks_max};
    int status = enqueue_set(run, hop->stream, first->by_kernel, &inwards);
    if (status != WEIR_OK) return status;
    status = device_failed(run, hop->device, hop->device->calls->event_record(hop->stream, filled));
    if (status != WEIR_OK) return status;
    status = lane->device->calls->enter(lane->device);
    if (status != WEIR_OK) return device_failed(run, lane->device, status);
    status = lane->device->calls->stream_wait(lane->stream, filled);
    if (status != WEIR_OK) return device_failed(run, lane->device, status);
    return enqueue_set(run, lane->stream, first->by_kernel, &outwards);
}

/* That the slots are free of what other units left there is one of the copy's waits. */
static int hop_unit(struct weir__run *run, const struct weir__copy_stream *lane, uint32_t number) {
    const struct weir__prepared_copy *first = &run->plan->copies[number];
    const struct weir__hop *hop = &lane->hop;
    struct cut cut = {number, 0};
    uint64_t pieces = weir__unit_pieces(run->plan, number);
    int status;
    for (uint64_t k = 0; k < pieces; k++) {
        uint32_t slot = (uint32_t)((first->piece + k) % WEIR__HOP_SLOTS);
        struct weir__event *emptied = &hop->emptied.events[slot];
        if (k > 0 && (status = hop->device->calls->enter(hop->device)) != WEIR_OK)
            return device_failed(run, hop->device, status);
        if (k >= WEIR__HOP_SLOTS &&
            (status = hop->device->calls->stream_wait(hop->stream, emptied)) != WEIR_OK)
            return device_failed(run, hop->device, status);
        if ((status = hop_piece(run, lane, first, &cut, slot)) != WEIR_OK) return status;
        if (pieces - k <= WEIR__HOP_SLOTS) continue;
        status = lane->device->calls->event_record(lane->stream, emptied);
        if (status != WEIR_OK) return device_failed(run, lane->device, status);
    }
    assert(cut.copy == WEIR__NO_COPY);
    return WEIR_OK;
}

static int enqueue_unit(struct weir__run *run, const struct weir__copy_stream *lane,
                        uint32_t first) {
    const struct weir__prepared_copy *copies = run->plan->copies;
    if (lane->hop.device != NULL) return hop_unit(run, lane, first);
    const struct weir__lane *of = &run->plan->lanes[copies[first].lane];
    bool caller = of->from == WEIR__FROM_CALLER;
    const struct weir__worker *workers = run->pipe->workers;
    for (uint32_t i = first; caller && i != WEIR__NO_COPY; i = copies[i].next) stage_input(run, i);
    struct weir__copy_item items[WEIR__UNIT_COPIES];
    struct weir__copy_set set = {.items = items,
                                 .to_memory = workers[of->worker].device->memory,
                                 .from_memory = caller ? 0 : workers[of->from].device->memory,
                                 .blocks_max = copies[first].blocks_max};
    for (uint32_t i = first; i != WEIR__NO_COPY; i = copies[i].next) {
        assert(set.count < WEIR__UNIT_COPIES);
        const struct weir__copy_ends *ends = &run->plan->bound.ends[i];
        items[set.count++] = (struct weir__copy_item){ends->to, ends->from, copies[i].bytes};
    }
    return enqueue_set(run, lane->stream, copies[first].by_kernel, &set);
}

/* On the stream that reads first. */
static int run_unit(struct weir__run *run, uint32_t first) {
    const struct weir__prepared_copy *copy = &run->plan->copies[first];
    const struct weir__copy_stream *lane = run->plan->bound.streams[copy->lane];
    bool hops = lane->hop.device != NULL;
    struct weir_stream *stream = hops ? lane->hop.stream : lane->stream;
    struct weir__device *device = stream->device;
    int status = WEIR_OK;
    weir__run_gates(run, copy->wait_begin, copy->wait_end);
    if (device != run->worker->device)
        status = device_failed(run, device, device->calls->enter(device));
    for (uint32_t i = copy->wait_begin; status == WEIR_OK && i < copy->wait_end; i++)
        status = weir__run_follow(run, stream, &run->plan->waits[i]);
    if (status != WEIR_OK || weir__run_has_failed(run)) return status;
    lane->given_ns[2 * copy->place + run->pipe->command.turn] = weir__now_ns();
    status = enqueue_unit(run, lane, first);
    if (status != WEIR_OK) return status;
    struct weir__event *signal = weir__signal(&lane->signals, copy->place, run->pipe->command.turn);
    status = lane->device->calls->event_record(lane->stream, signal);
    return device_failed(run, lane->device, status);
}

static int give_unit(struct weir__run *run, uint32_t number) {
    const struct weir__prepared_copy *copy = &run->plan->copies[number];
    bool begins = weir__has_stream(run->plan, copy) && copy->unit == number;
    run->copies_given = number + 1;
    return begins ? run_unit(run, number) : WEIR_OK;
}

int weir__run_lanes(struct weir__run *run, const struct weir__call *call) {
    int status = WEIR_OK;
    if (run->plan->lane_count == 0) return WEIR_OK;
    uint32_t i = call->copy_begin > run->copies_given ? call->copy_begin : run->copies_given;
    for (; status == WEIR_OK && i < call->copy_end; i++) status = give_unit(run, i);
    return status;
}

/* Whether nothing of what the copy waits for must be waited for by the thread: gates are passed,
 * own actions ended, own copies given. */
static bool is_ready(const struct weir__run *run, const struct weir__prepared_copy *copy,
                     uint32_t done) {
    bool ready = true;
    for (uint32_t i = copy->wait_begin; ready && i < copy->wait_end; i++) {
        const struct weir__needed_wait *wait = &run->plan->waits[i];
        struct weir__worker *from = &run->pipe->workers[wait->worker];
        if (wait->copy != WEIR__NO_COPY &&
            weir__is_message(run->plan, &run->plan->copies[wait->copy]))
            ready = weir__ranks_has_ended(run->plan, wait->copy);
        else if (from != run->worker)
            ready = weir__gate_reached(&from->progress, from->base + wait->count);
        else if (wait->copy != WEIR__NO_COPY)
            ready = wait->copy < run->copies_given;
        else
            ready = wait->count <= done;
    }
    return ready;
}

int weir__run_lanes_ahead(struct weir__run *run, const struct weir__call *next, uint32_t done) {
    int status = WEIR_OK;
    for (uint32_t i = next->copy_begin; status == WEIR_OK && i < next->copy_end; i++) {
        const struct weir__prepared_copy *copy = &run->plan->copies[i];
        bool begins = weir__has_stream(run->plan, copy) && copy->unit == i;
        if (begins && !is_ready(run, copy, done)) break;
        status = give_unit(run, i);
    }
    return status;
}

/* Where the caller wants it, or NULL. */
static void *destination(const struct weir_pipe *pipe, const struct weir__return *back) {
    char *own = back->gradient ? pipe->command.input_grads[back->index]
                               : pipe->command.outputs[back->index];
    return own == NULL ? NULL : own + back->offset;
}

int weir__run_returns(struct weir__run *run, const struct weir__call *call) {
    struct weir__device *device = run->worker->device;
    int status = WEIR_OK;
    for (uint32_t i = call->return_begin; status == WEIR_OK && i < call->return_end; i++) {
        const struct weir__return *back = &run->plan->returns[i];
        if (destination(run->pipe, back) == NULL) continue;
        char *staging = (char *)run->worker->staging.data + back->staging;
        status = device->calls->copy(run->worker->stream, staging, *back->where, back->bytes);
    }
    return device_failed(run, device, status);
}

static void hand_returns(struct weir__run *run) {
    const struct weir__row_plan *p = run->plan;
    uint32_t begin = p->table->lines[run->worker->index];
    uint32_t end = p->table->lines[run->worker->index + 1];
    for (uint32_t a = begin; a < end; a++) {
        for (uint32_t i = p->calls[a].return_begin; i < p->calls[a].return_end; i++) {
            const struct weir__return *back = &p->returns[i];
            void *to = destination(run->pipe, back);
            const char *staging = (const char *)run->worker->staging.data + back->staging;
            if (to != NULL) memcpy(to, staging, back->bytes);
        }
    }
}

int weir__run_signal(struct weir__run *run, uint32_t line_index) {
    struct weir__worker *worker = run->worker;
    const struct weir__device_calls *calls = worker->device->calls;
    if (calls->synchronous) return WEIR_OK;
    struct weir__event *signal =
        weir__signal(&worker->signals, line_index, run->pipe->command.turn);
    int status = calls->event_record(worker->stream, signal);
    return device_failed(run, worker->device, status);
}

/* ---- its end ---- */

/* The worse of two: a device that is lost, else the first failure. */
static int finish_stream(struct weir__run *run, struct weir__device *device,
                         struct weir_stream *stream, int worst) {
    int entered = device->calls->enter(device);
    int finished = entered != WEIR_OK ? entered : device->calls->stream_finish(stream);
    int status = device_failed(run, device, finished);
    return worst == WEIR_OK || status == WEIR_ERR_DEVICE ? status : worst;
}

static int finish_lanes(struct weir__run *run) {
    int worst = WEIR_OK;
    for (struct weir__copy_stream *s = run->worker->copy_streams; s != NULL; s = s->next) {
        worst = finish_stream(run, s->device, s->stream, worst);
        if (s->hop.device != NULL) worst = finish_stream(run, s->hop.device, s->hop.stream, worst);
    }
    return worst;
}

int weir__run_finish(struct weir__run *run) {
    struct weir__worker *worker = run->worker;
    const struct weir__device_calls *calls = worker->device->calls;
    weir__stamps_fill(worker, &run->pipe->command.before);
    int status = finish_lanes(run);
    if (calls->synchronous) return status;
    status = finish_stream(run, worker->device, worker->stream, status);
    if (status != WEIR_OK || weir__run_has_failed(run)) return status;
    hand_returns(run);
    return WEIR_OK;
}
