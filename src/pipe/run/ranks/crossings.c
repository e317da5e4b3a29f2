/* SPDX-License-Identifier: MIT */
/* Messages of a GPU's memory. The poll gives its stream what they need; nothing here blocks.
 *
 * Through slots of pinned memory: a send is copied into a slot behind its producer, and goes on
 * from there when that is done; a receive comes to a slot, and is copied from there.
 *
 * By NCCL: the receiver offers a place on the world when the plan's memory is free, the sender
 * makes its call when it has heard that and its producer was given, and says so at once; then the
 * receiver makes its own. So of each two both are made or none, and what streams were given always
 * ends: they never wait for what some thread has yet to do, which may have failed. Nobody waits in
 * a call: NCCL ends a pair's first ones only when it has connected the two, for which both must be
 * made. Kernels of NCCL do not wait on a GPU for a peer that is steps behind, either. What they say
 * carries step, place and bytes, and an empty word is that of a rank that has failed.
 *
 * Between replicas (replicas.c) messages follow an action of the same worker at either end: the
 * last gradient, or the update, of their stage.
 *
 * A lane's messages are in its plan's order on either side, as all lanes' are, and the actions
 * that they lie between are one order of the whole step: so no two wait for each other. */
#include "pipe/run/ranks.h"

#include <string.h>

/* Words that are received ahead of what they say. */
enum { WORDS_AHEAD = 8 };

/* ---- what belongs to a port ---- */

int weir__crossing_new(struct weir_pipe *pipe, struct weir__port *port, struct weir__worker *worker,
                       struct weir__copy_stream *stream) {
    struct weir__pool *pool = &pipe->setup.pool;
    assert(port->crossing == NULL && stream->sends == port->sends);
    struct weir__crossing *made = weir__pool_take(pool, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->worker = worker;
    made->stream = stream;
    made->offers = weir__pool_take(pool, port->count, sizeof *made->offers);
    made->sizes = weir__pool_take(pool, port->count, sizeof *made->sizes);
    made->empty = weir__pool_take(pool, port->count, sizeof *made->empty);
    port->crossing = made;
    return pool->failed ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
}

void weir__crossing_begin(struct weir__port *port) {
    struct weir__crossing *crossing = port->crossing;
    if (crossing == NULL) return;
    crossing->offered = crossing->heard = crossing->told = crossing->closed = 0;
    crossing->giving = false;
}

/* One go at a port. */
struct going {
    struct weir_pipe *pipe;
    struct weir__port *port;
    struct weir__crossing *crossing;
    struct weir__device *device;
    struct weir_error *error;
    uint32_t count, given; /* messages of the step; those that the stream was given */
};

static size_t bytes_at(const struct going *g, uint32_t place) {
    assert(place < g->port->count);
    return weir__port_message(g->pipe, g->port, place).bytes;
}

/* In the plan's memory. */
static void *memory_at(const struct going *g, uint32_t place) {
    return weir__port_message(g->pipe, g->port, place).data;
}

static void *slot_at(const struct going *g, uint32_t place) {
    const struct weir__hop *hop = &g->crossing->stream->hop;
    assert(hop->slots.data != NULL && hop->slot_count == WEIR__PORT_SLOTS);
    return (char *)hop->slots.data + place % WEIR__PORT_SLOTS * hop->slot_bytes;
}

static int explain(const struct going *g, int status) {
    char text[200] = "";
    assert(g->error != NULL && g->device != NULL);
    if (status == WEIR_OK || g->error->message[0] != '\0') return status;
    if (g->device->calls->explain != NULL) g->device->calls->explain(g->device, text, sizeof text);
    return weir__fail(g->error, status, "%s", text[0] != '\0' ? text : weir_status_text(status));
}

/* ---- the stream ---- */

static struct weir__event *signal_at(const struct going *g, uint32_t place) {
    return weir__signal(&g->crossing->stream->signals, place, g->pipe->command.turn);
}

static int is_done(const struct going *g, uint32_t place, bool *done) {
    return explain(g, g->device->calls->event_query(signal_at(g, place), done));
}

/* An event of an older step is done, and keeps nobody. */
static int follow_wait(const struct going *g, const struct weir__needed_wait *wait) {
    const struct weir__row_plan *plan = g->pipe->command.plan;
    struct weir_stream *stream = g->crossing->stream->stream;
    uint32_t turn = g->pipe->command.turn;
    struct weir__event *event;
    if (wait->copy != WEIR__NO_COPY) {
        const struct weir__prepared_copy *copy = &plan->copies[wait->copy];
        const struct weir__copy_stream *lane = plan->bound.streams[copy->lane];
        if (lane == NULL) return WEIR_OK;
        event = weir__signal(&lane->signals, copy->place, turn);
    } else {
        struct weir__worker *from = &g->pipe->workers[wait->worker];
        if (from->device->calls->synchronous) return WEIR_OK;
        event = weir__signal(&from->signals, wait->count - 1, turn);
    }
    return g->device->calls->stream_wait(stream, event);
}

/* An action of the end's worker. */
static int follow_action(const struct going *g, uint32_t action) {
    const struct weir__row_plan *plan = g->pipe->command.plan;
    uint32_t w = g->crossing->worker->index;
    assert(action >= plan->table->lines[w] && action < plan->table->lines[w + 1]);
    const struct weir__needed_wait wait = {
        .worker = w, .count = action - plan->table->lines[w] + 1, .copy = WEIR__NO_COPY};
    return follow_wait(g, &wait);
}

/* Of a send: what makes its bytes. Of a receive: what its memory was used for before. */
static int follow(const struct going *g, uint32_t place) {
    const struct weir__row_plan *plan = g->pipe->command.plan;
    if (g->port->items != NULL) return follow_action(g, g->port->items[place].action);
    const struct weir__prepared_copy *copy = &plan->copies[g->port->copies[place]];
    int status = WEIR_OK;
    assert(copy->place == place && copy->wait_end <= plan->wait_count);
    if (g->port->sends) return follow_action(g, weir__prepared_made(plan, copy));
    for (uint32_t i = copy->wait_begin; i < copy->wait_end && status == WEIR_OK; i++)
        status = follow_wait(g, &plan->waits[i]);
    return status;
}

static int record(const struct going *g, uint32_t place) {
    const struct weir__device_calls *calls = g->device->calls;
    struct weir__visit visit;
    assert(g->crossing->stream->device == g->device);
    int status = calls->visit(g->device, &visit), recorded = status;
    if (status == WEIR_OK)
        recorded = calls->event_record(g->crossing->stream->stream, signal_at(g, place));
    calls->leave(g->device, &visit);
    return explain(g, recorded);
}

/* Behind all that it follows: the copy to or from its slot, or none. */
static int give_slot(const struct going *g, uint32_t place, bool copies) {
    struct weir_stream *stream = g->crossing->stream->stream;
    const struct weir__device_calls *calls = g->device->calls;
    void *memory = memory_at(g, place), *slot = slot_at(g, place);
    struct weir__visit visit;
    assert(memory != NULL && memory != slot);
    int status = calls->visit(g->device, &visit);
    if (status != WEIR_OK) goto out;
    if (copies && (status = follow(g, place)) != WEIR_OK) goto out;
    if (copies && g->port->sends)
        status = calls->copy(stream, slot, memory, bytes_at(g, place));
    else if (copies)
        status = calls->copy(stream, memory, slot, bytes_at(g, place));
    if (status != WEIR_OK) goto out;
    status = calls->event_record(stream, signal_at(g, place));
out:
    calls->leave(g->device, &visit);
    return explain(g, status);
}

static int begin_pair(const struct going *g, uint32_t place) {
    struct weir__visit visit;
    assert(!g->crossing->giving && place == g->given);
    int status = g->device->calls->visit(g->device, &visit);
    int followed = status == WEIR_OK ? follow(g, place) : status;
    g->device->calls->leave(g->device, &visit);
    if (followed != WEIR_OK) return explain(g, followed);
    g->crossing->giving = true;
    return weir__nccl_pair_give(g->crossing->stream->pair, g->crossing->stream->stream,
                                memory_at(g, place), bytes_at(g, place), g->error);
}

/* *given: the stream has the next message, which NCCL may give it some time after the call, and
 * the signal behind it. */
static int give_pair(const struct going *g, bool *given) {
    struct weir__crossing *crossing = g->crossing;
    bool ready = true;
    assert(crossing->stream->pair != NULL && g->given < g->count);
    *given = false;
    if (!crossing->giving && !crossing->empty[g->given]) {
        int begun = begin_pair(g, g->given);
        if (begun != WEIR_OK) return begun;
    }
    if (crossing->giving) {
        int polled = weir__nccl_pair_poll(crossing->stream->pair, &ready, g->error);
        if (polled != WEIR_OK || !ready) return polled;
    }
    crossing->giving = false;
    int status = record(g, g->given);
    *given = status == WEIR_OK;
    return status;
}

/* ---- messages ---- */

static int begin_message(const struct going *g, uint32_t place, void *data, size_t bytes) {
    const struct weir_world *world = g->pipe->ranks->world;
    assert(place < g->count && (data != NULL || bytes == 0));
    const struct weir_message message = {.data = bytes > 0 ? data : NULL,
                                         .bytes = bytes,
                                         .peer = g->port->peer,
                                         .channel = g->port->channel,
                                         .tag = weir__port_tag(g->pipe, place)};
    return g->port->sends
               ? world->calls->send(world->context, &message, &g->port->requests[place])
               : world->calls->receive(world->context, &message, &g->port->requests[place]);
}

/* An offer goes the other way. */
static int begin_offer(const struct going *g, uint32_t place) {
    const struct weir_world *world = g->pipe->ranks->world;
    assert(place < g->count && g->crossing->stream->pair != NULL);
    const struct weir_message message = {.peer = g->port->peer,
                                         .channel = g->port->offer_channel,
                                         .tag = weir__port_tag(g->pipe, place)};
    return g->port->sends
               ? world->calls->receive(world->context, &message, &g->crossing->offers[place])
               : world->calls->send(world->context, &message, &g->crossing->offers[place]);
}

static int test(const struct going *g, struct weir_request *request, bool *over,
                struct weir_arrival *arrival) {
    const struct weir_world *world = g->pipe->ranks->world;
    assert(request != NULL && over != NULL);
    *over = false;
    return world->calls->test(world->context, request, over, arrival);
}

/* Whether the plan and the step allow it. *failed: then there is no more to it than that it ends.
 * What fails meanwhile is left to the next poll: a line that fails says that all of it is done. */
static bool may_begin(const struct going *g, uint32_t place, bool *failed) {
    *failed = weir__pipe_has_failed(g->pipe);
    bool may = weir__port_may_begin(g->pipe, g->port, place);
    return may && *failed == weir__pipe_has_failed(g->pipe);
}

/* ---- through slots ---- */

static int send_slots(struct going *g) {
    struct weir__crossing *crossing = g->crossing;
    struct weir__port *port = g->port;
    int status = WEIR_OK;
    assert(port->sends && g->given - crossing->closed <= WEIR__PORT_SLOTS);
    bool failed, over = true;
    while (g->given < g->count && g->given - crossing->closed < WEIR__PORT_SLOTS &&
           may_begin(g, g->given, &failed)) {
        crossing->empty[g->given] = failed;
        if (!failed) port->whole = g->given + 1;
        if ((status = give_slot(g, g->given, !failed)) != WEIR_OK) return status;
        g->given++;
    }
    while (port->begun < g->given) {
        if ((status = is_done(g, port->begun, &over)) != WEIR_OK || !over) break;
        size_t bytes = crossing->empty[port->begun] ? 0 : bytes_at(g, port->begun);
        status = begin_message(g, port->begun, slot_at(g, port->begun), bytes);
        if (status != WEIR_OK) return status;
        port->begun++;
    }
    while (status == WEIR_OK && crossing->closed < port->begun) {
        status = test(g, &port->requests[crossing->closed], &over, NULL);
        if (status != WEIR_OK || !over) break;
        crossing->closed++;
    }
    return status;
}

static int hear_slots(struct going *g) {
    struct weir__crossing *crossing = g->crossing;
    struct weir_arrival arrival;
    bool over;
    assert(crossing->heard >= g->given);
    while (crossing->heard < g->port->begun) {
        uint32_t place = crossing->heard;
        int status = test(g, &g->port->requests[place], &over, &arrival);
        if (status != WEIR_OK || !over) return status;
        status = weir__port_check(g->pipe, g->port, place, &arrival, bytes_at(g, place), g->error);
        if (status != WEIR_OK) return status;
        crossing->empty[place] = arrival.bytes == 0;
        crossing->heard++;
    }
    return WEIR_OK;
}

static int receive_slots(struct going *g) {
    struct weir__crossing *crossing = g->crossing;
    struct weir__port *port = g->port;
    int status;
    assert(!port->sends && port->begun - crossing->closed <= WEIR__PORT_SLOTS);
    while (port->begun < g->count && port->begun - crossing->closed < WEIR__PORT_SLOTS) {
        status = begin_message(g, port->begun, slot_at(g, port->begun), bytes_at(g, port->begun));
        if (status != WEIR_OK) return status;
        port->begun++;
    }
    if ((status = hear_slots(g)) != WEIR_OK) return status;
    while (g->given < crossing->heard) {
        bool failed = weir__pipe_has_failed(g->pipe), drops = failed || crossing->empty[g->given];
        if (!drops && (!may_begin(g, g->given, &failed) || failed)) break;
        if ((status = give_slot(g, g->given, !drops)) != WEIR_OK) return status;
        g->given++;
    }
    while (crossing->closed < g->given) {
        bool over;
        if ((status = is_done(g, crossing->closed, &over)) != WEIR_OK || !over) return status;
        crossing->closed++;
    }
    return WEIR_OK;
}

/* ---- by NCCL ---- */

static int hear_offers(struct going *g) {
    struct weir__crossing *crossing = g->crossing;
    struct weir_arrival arrival;
    bool over;
    int status;
    while (crossing->offered < g->count && crossing->offered < crossing->heard + WORDS_AHEAD) {
        if ((status = begin_offer(g, crossing->offered)) != WEIR_OK) return status;
        crossing->offered++;
    }
    while (crossing->heard < crossing->offered) {
        uint32_t place = crossing->heard;
        status = test(g, &crossing->offers[place], &over, &arrival);
        if (status != WEIR_OK || !over) return status;
        status = weir__port_check(g->pipe, g->port, place, &arrival, 0, g->error);
        if (status != WEIR_OK) return status;
        crossing->heard++;
    }
    return WEIR_OK;
}

/* Once the call is made: NCCL may not end it before the receiver's is made too, as when the two
 * connect. A rank that has failed needs no offer to say so. */
static int say_next(struct going *g, bool *said) {
    struct weir__crossing *crossing = g->crossing;
    uint32_t place = g->given;
    bool failed;
    assert(g->port->begun == place && place < g->count && !crossing->giving);
    *said = false;
    if (!may_begin(g, place, &failed) || (!failed && place >= crossing->heard)) return WEIR_OK;
    crossing->empty[place] = failed;
    crossing->sizes[place] = bytes_at(g, place);
    if (!failed) g->port->whole = place + 1;
    int status = failed ? WEIR_OK : begin_pair(g, place);
    if (status != WEIR_OK) return status;
    status = begin_message(g, place, &crossing->sizes[place], failed ? 0 : sizeof *crossing->sizes);
    if (status != WEIR_OK) return status;
    g->port->begun = place + 1;
    *said = true;
    return WEIR_OK;
}

static int send_next(struct going *g, bool *given) {
    bool said = g->port->begun > g->given;
    assert(g->port->begun - g->given <= 1 && g->given < g->count);
    *given = false;
    int status = said ? WEIR_OK : say_next(g, &said);
    if (status != WEIR_OK || !said) return status;
    status = give_pair(g, given);
    g->given += *given;
    return status;
}

/* Own words must be asked for, or they may never come: progress is in calls alone. */
static int end_words(struct going *g, struct weir_request *words, uint32_t count) {
    struct weir__crossing *crossing = g->crossing;
    bool over = true;
    int status = WEIR_OK;
    assert(crossing->closed <= crossing->told && crossing->told <= count);
    while (status == WEIR_OK && over && crossing->told < count) {
        status = test(g, &words[crossing->told], &over, NULL);
        crossing->told += status == WEIR_OK && over;
    }
    over = true;
    while (status == WEIR_OK && over && crossing->closed < crossing->told &&
           crossing->closed < crossing->heard && crossing->closed < g->given) {
        status = is_done(g, crossing->closed, &over);
        crossing->closed += status == WEIR_OK && over;
    }
    return status;
}

static int send_by_nccl(struct going *g) {
    bool given = true;
    assert(g->port->sends && g->crossing->stream->pair != NULL);
    int status = hear_offers(g);
    while (status == WEIR_OK && given && g->given < g->count) status = send_next(g, &given);
    return status == WEIR_OK ? end_words(g, g->port->requests, g->port->begun) : status;
}

static int hear_words(struct going *g) {
    struct weir__crossing *crossing = g->crossing;
    struct weir__port *port = g->port;
    struct weir_arrival arrival;
    bool over;
    int status;
    assert(crossing->heard >= g->given);
    while (port->begun < g->count && port->begun < crossing->heard + WORDS_AHEAD) {
        status =
            begin_message(g, port->begun, &crossing->sizes[port->begun], sizeof *crossing->sizes);
        if (status != WEIR_OK) return status;
        port->begun++;
    }
    while (crossing->heard < port->begun) {
        uint32_t place = crossing->heard;
        status = test(g, &port->requests[place], &over, &arrival);
        if (status != WEIR_OK || !over) return status;
        status =
            weir__port_check(g->pipe, port, place, &arrival, sizeof *crossing->sizes, g->error);
        if (status != WEIR_OK) return status;
        crossing->empty[place] = arrival.bytes == 0;
        if (arrival.bytes > 0 && crossing->sizes[place] != bytes_at(g, place))
            return weir__fail(g->error, WEIR_ERR_PEER,
                              "message %u from rank %u has %llu bytes, not %zu: every rank must "
                              "make the same calls",
                              place, port->peer, (unsigned long long)crossing->sizes[place],
                              bytes_at(g, place));
        crossing->heard++;
    }
    return WEIR_OK;
}

/* The plan's memory is free for it; or nothing will come there. */
static int make_offers(struct going *g) {
    struct weir__crossing *crossing = g->crossing;
    assert(crossing->offered >= g->given);
    while (crossing->offered < g->count) {
        uint32_t place = crossing->offered;
        bool failed, nothing = place < crossing->heard && crossing->empty[place];
        if (!nothing && !may_begin(g, place, &failed)) break;
        int status = begin_offer(g, place);
        if (status != WEIR_OK) return status;
        crossing->offered++;
    }
    return WEIR_OK;
}

static int receive_by_nccl(struct going *g) {
    struct weir__crossing *crossing = g->crossing;
    int status = hear_words(g);
    bool given = true;
    assert(!g->port->sends && crossing->stream->pair != NULL);
    if (status != WEIR_OK || (status = make_offers(g)) != WEIR_OK) return status;
    while (status == WEIR_OK && given && g->given < crossing->heard &&
           g->given < crossing->offered) {
        status = give_pair(g, &given);
        g->given += given;
    }
    return status == WEIR_OK ? end_words(g, crossing->offers, crossing->offered) : status;
}

/* ---- both ---- */

int weir__crossing_go_on(struct weir_pipe *pipe, struct weir__port *port, uint32_t count,
                         struct weir_error *error) {
    struct weir__crossing *crossing = port->crossing;
    struct going g = {.pipe = pipe,
                      .port = port,
                      .crossing = crossing,
                      .device = crossing->worker->device,
                      .error = error,
                      .count = count,
                      .given = weir__ranks_ended(port)};
    uint32_t before = g.given;
    bool pair = crossing->stream->pair != NULL;
    int status;
    if (port->sends)
        status = pair ? send_by_nccl(&g) : send_slots(&g);
    else
        status = pair ? receive_by_nccl(&g) : receive_slots(&g);
    assert(g.given <= count && crossing->closed <= g.given);
    if (g.given != before) weir__gate_advance(&port->ended, port->base + g.given);
    return status;
}

static bool cancel(const struct weir_world *world, struct weir_request *request) {
    bool ended;
    return world->calls->cancel(world->context, request, &ended) == WEIR_OK;
}

void weir__crossing_cancel(const struct weir_pipe *pipe, struct weir__port *port) {
    const struct weir_world *world = pipe->ranks->world;
    struct weir__crossing *crossing = port->crossing;
    uint32_t i = crossing->heard;
    assert(atomic_load(&pipe->ranks->broken));
    if (port->sends && crossing->stream->pair == NULL) return;
    if (port->sends)
        while (i < crossing->offered && cancel(world, &crossing->offers[i])) i++;
    else
        while (i < port->begun && cancel(world, &port->requests[i])) i++;
}
