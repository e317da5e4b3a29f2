/* SPDX-License-Identifier: MIT */
/* Messages of a step, and who waits for them. */
#include "pipe/run/ranks.h"

#include "base/portable.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* What a failed rank leaves, and what a step's numbers are preceded by. */
struct verdict_record {
    uint32_t failed; /* the first rank that did, and 1; 0: none */
    uint32_t flags;
    struct weir_error error;
};

enum { TAG_BASE = 181, PARK_NS = 50000 };
_Static_assert(TAG_BASE *TAG_BASE <= WEIR_TAG_MOST + 1, "tags are a step's and a place's rest");

/* Of a training step or an inference, whichever the ranks were called for. */
static uint64_t number_of(const struct weir_pipe *pipe) {
    return 2 * pipe->step_count + pipe->command.plan->infer;
}

uint32_t weir__port_tag(const struct weir_pipe *pipe, uint32_t place) {
    return (uint32_t)(number_of(pipe) % TAG_BASE) * TAG_BASE + place % TAG_BASE;
}

/* ---- ports of a plan ---- */

/* Lanes from one rank to another have the channels from there on, in their order. */
static uint32_t channel_of(const struct weir_pipe *pipe, const struct weir__row_plan *plan,
                           uint32_t lane) {
    const struct weir__lane *lanes = plan->lanes;
    uint32_t channel = WEIR__LANE_CHANNEL;
    for (uint32_t l = 0; l < lane; l++)
        channel += lanes[l].of_ranks &&
                   weir__rank_of(pipe, lanes[l].from) == weir__rank_of(pipe, lanes[lane].from) &&
                   weir__rank_of(pipe, lanes[l].worker) == weir__rank_of(pipe, lanes[lane].worker);
    return channel;
}

/* The most that any rank's lanes to another need. Channels of offers are behind these. */
static uint32_t lane_channels(const struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    uint32_t count = 0;
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        if (!plan->lanes[l].of_ranks) continue;
        uint32_t channel = channel_of(pipe, plan, l) - WEIR__LANE_CHANNEL;
        if (channel >= count) count = channel + 1;
    }
    return count;
}

static int fill_port(struct weir_pipe *pipe, const struct weir__row_plan *plan, uint32_t lane,
                     struct weir__port *port) {
    struct weir__pool *pool = &pipe->setup.pool;
    for (uint32_t i = 0; i < plan->copy_count; i++) port->count += plan->copies[i].lane == lane;
    uint32_t *copies = weir__pool_take(pool, port->count, sizeof *copies);
    port->requests = weir__pool_take(pool, port->count, sizeof *port->requests);
    if (copies == NULL || port->requests == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < plan->copy_count; i++) {
        const struct weir__prepared_copy *copy = &plan->copies[i];
        if (copy->lane != lane) continue;
        assert(copy->place < port->count && copy->unit == i && copy->next == WEIR__NO_COPY);
        copies[copy->place] = i;
        port->body_count += weir__kinds[plan->calls[copy->action].action.kind].per_micro_batch;
    }
    port->copies = copies;
    return WEIR_OK;
}

static int make_port(struct weir_pipe *pipe, struct weir__row_plan *plan, uint32_t l) {
    const struct weir__lane *lane = &plan->lanes[l];
    bool sends = weir__is_here(pipe, lane->from);
    assert(lane->of_ranks && lane->from != WEIR__FROM_CALLER);
    if (!sends && !weir__is_here(pipe, lane->worker)) return WEIR_OK;
    struct weir__port *port = weir__pool_take(&pipe->setup.pool, 1, sizeof *port);
    if (port == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    port->sends = sends;
    port->peer = weir__rank_of(pipe, sends ? lane->worker : lane->from);
    port->channel = channel_of(pipe, plan, l);
    port->offer_channel = port->channel + lane_channels(pipe, plan);
    plan->bound.ports[l] = port;
    int status = fill_port(pipe, plan, l, port);
    struct weir__copy_stream *stream = plan->bound.streams[l];
    if (status != WEIR_OK || stream == NULL) return status;
    return weir__crossing_new(pipe, port, &pipe->workers[sends ? lane->from : lane->worker],
                              stream);
}

/* All ranks count alike, whatever replica they are of: so between GPUs there are always offers. */
uint32_t weir__ranks_channels(const struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    const struct weir__setup *setup = &pipe->setup;
    bool offers = false;
    for (uint32_t l = 0; !offers && l < plan->lane_count; l++)
        offers = plan->lanes[l].of_ranks &&
                 weir__setup_device(setup, plan->lanes[l].worker).memory > 0 &&
                 weir__setup_device(setup, plan->lanes[l].from).memory > 0;
    uint32_t lanes = lane_channels(pipe, plan) * (offers ? 2 : 1);
    uint32_t replicas = weir__replicas_channels(pipe, plan);
    return WEIR__LANE_CHANNEL + (lanes > replicas ? lanes : replicas);
}

static int open_own(struct weir_pipe *pipe, uint32_t count) {
    const struct weir_world *world = pipe->ranks->world;
    int status = world->calls->open(world->context, count);
    if (status != WEIR_OK) return status;
    pipe->ranks->channels = count;
    return weir__ranks_begin_pulse(pipe);
}

/* As all ranks do then; what fails on one, if its world goes on, none waits for. */
static int open_channels(struct weir_pipe *pipe, const struct weir__row_plan *plan,
                         struct weir_faults *faults) {
    const struct weir_world *world = pipe->ranks->world;
    uint32_t count = weir__ranks_channels(pipe, plan);
    if (count <= pipe->ranks->channels) return WEIR_OK;
    int status = open_own(pipe, count);
    if (status != WEIR_OK) weir_faults_add(faults, "%.200s", world->calls->reason(world->context));
    return weir__world_agree(world, status, 0, "channels", faults);
}

/* A record, and all squares and losses. */
static size_t record_bytes(const struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    size_t numbers =
        pipe->memory.square_count + (size_t)plan->table->stage_count * plan->groups.whole;
    return sizeof(struct verdict_record) + numbers * sizeof(double);
}

static int take_exchange(struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    struct weir__allreduce *exchange = &pipe->ranks->exchange;
    size_t bytes = record_bytes(pipe, plan);
    if (bytes <= pipe->ranks->exchange_capacity) return WEIR_OK;
    unsigned char *own = weir__pool_take(&pipe->setup.pool, bytes, 1);
    unsigned char *other = weir__pool_take(&pipe->setup.pool, bytes, 1);
    if (own == NULL || other == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    exchange->own = own;
    exchange->other = other;
    pipe->ranks->exchange_capacity = bytes;
    return WEIR_OK;
}

static int take_event_room(struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    struct weir__ranks *ranks = pipe->ranks;
    uint32_t longest = weir__table_longest_line(plan->table);
    if (longest <= ranks->event_capacity) return WEIR_OK;
    ranks->events = weir__pool_take(&pipe->setup.pool, longest, sizeof *ranks->events);
    ranks->event_capacity = ranks->events != NULL ? longest : 0;
    return ranks->events != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static int make_ports(struct weir_pipe *pipe, struct weir__row_plan *plan) {
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        int status = plan->lanes[l].of_ranks ? make_port(pipe, plan, l) : WEIR_OK;
        if (status != WEIR_OK) return status;
    }
    int status = take_event_room(pipe, plan);
    return status == WEIR_OK ? take_exchange(pipe, plan) : status;
}

int weir__ranks_prepare(struct weir_pipe *pipe, struct weir__row_plan *plan,
                        struct weir_faults *faults) {
    if (pipe->ranks == NULL) return WEIR_OK;
    int status = make_ports(pipe, plan);
    status = weir__world_agree(pipe->ranks->world, status, 0, "plans", NULL);
    if (status != WEIR_OK || (status = open_channels(pipe, plan, faults)) != WEIR_OK) return status;
    return weir__ranks_connect(pipe, plan, faults);
}

/* ---- numbers ---- */

/* Who failed first by rank; and numbers, of which each is told by one rank, 0 by the others. */
void weir__ranks_merge(unsigned char *own, const unsigned char *other, size_t bytes) {
    struct verdict_record mine, theirs;
    memcpy(&mine, own, sizeof mine);
    memcpy(&theirs, other, sizeof theirs);
    theirs.flags |= mine.flags;
    mine.flags = theirs.flags;
    bool first = theirs.failed != 0 && (mine.failed == 0 || theirs.failed < mine.failed);
    memcpy(own, first ? &theirs : &mine, sizeof mine);
    weir__allreduce_join(own + sizeof mine, other + sizeof mine, bytes - sizeof mine);
}

/* Puts this rank's numbers into the record, or takes all from it. Of a stage's squares each is one
 * replica's, and so is a micro-batch's loss, unless all replicas have had it. */
static void move_numbers(struct weir_pipe *pipe, unsigned char *record, bool puts) {
    const struct weir__row_plan *plan = pipe->command.plan;
    const struct weir__groups *groups = &plan->groups;
    size_t all = groups->whole * sizeof(double), own = groups->count * sizeof(double);
    bool shares = pipe->ranks->replicas > 1;
    unsigned char *at = record + sizeof(struct verdict_record);
    for (uint32_t s = 0; s < plan->table->stage_count; s++) {
        size_t squares = pipe->setup.stages[s].stage.norm_count * sizeof(double);
        bool here = weir__is_here(pipe, plan->stage_worker[s]);
        if (puts && here) memcpy(at, pipe->memory.norm_squares[s], squares);
        if (!puts && (!here || shares)) memcpy(pipe->memory.norm_squares[s], at, squares);
        at += squares;
    }
    for (uint32_t s = 0; s < plan->table->stage_count; s++) {
        double *losses = &pipe->memory.losses[(size_t)s * groups->whole];
        bool here = weir__is_here(pipe, plan->stage_worker[s]);
        if (puts && here) memcpy(at + groups->first * sizeof *losses, losses + groups->first, own);
        if (!puts && (!here || shares)) memcpy(losses, at, all);
        at += all;
    }
    assert(at == record + pipe->ranks->exchange.bytes);
}

static bool is_known(struct weir_pipe *pipe) {
    return atomic_load_explicit(&pipe->outcome.failed, memory_order_acquire) == WEIR__FAILURE_KNOWN;
}

/* Whether a GPU has made what its worker was given, up to so many actions. What has failed makes
 * nothing; a GPU that cannot say fails the step: it may still be at its numbers. */
static bool is_made(struct weir_pipe *pipe, struct weir__worker *worker, uint32_t count) {
    bool done = true;
    assert(weir__is_here(pipe, worker->index));
    if (worker->device->calls->synchronous || count == 0 || weir__pipe_has_failed(pipe))
        return true;
    struct weir__event *signal = weir__signal(&worker->signals, count - 1, pipe->command.turn);
    int status = worker->device->calls->event_query(signal, &done);
    if (status == WEIR_OK) return done;
    struct weir_error error = {0};
    weir__fail(&error, status, "worker %u's device does not say whether norms and losses are there",
               worker->index);
    weir__pipe_fail(pipe, NULL, status, &error);
    return true;
}

/* Whether every worker here has done all that numbers come from. */
static bool is_whole(struct weir_pipe *pipe) {
    const struct weir__row_plan *plan = pipe->command.plan;
    bool whole = true;
    for (uint32_t w = pipe->ranks->first; whole && w < pipe->ranks->end; w++) {
        struct weir__worker *worker = &pipe->workers[w];
        uint32_t end = plan->table->lines[w + 1] - plan->table->lines[w], done = plan->tail[w];
        if (pipe->command.step.accumulate_last) done += (end - done) / 2; /* as many N as U */
        whole = weir__gate_reached(&worker->progress, worker->base + done) &&
                is_made(pipe, worker, done);
    }
    return whole;
}

/* Begins with this rank's record, and zeros behind it. */
static void begin_record(struct weir_pipe *pipe, enum weir__talk kind, size_t bytes) {
    struct weir__ranks *ranks = pipe->ranks;
    struct verdict_record record = {.flags = pipe->command.step.flags};
    assert(bytes <= ranks->exchange_capacity);
    if (is_known(pipe)) {
        record.failed = ranks->world->rank + 1;
        record.error = pipe->outcome.error;
    }
    ranks->exchange.bytes = bytes;
    ranks->exchange.tag = weir__talk_tag(kind, number_of(pipe));
    memset(ranks->exchange.own, 0, bytes);
    memcpy(ranks->exchange.own, &record, sizeof record);
    weir__allreduce_begin(&ranks->exchange);
}

/* A step that has failed has no numbers: a GPU may still be at them. */
static void begin_exchange(struct weir_pipe *pipe) {
    struct verdict_record record;
    begin_record(pipe, WEIR__TALK_NUMBERS, record_bytes(pipe, pipe->command.plan));
    memcpy(&record, pipe->ranks->exchange.own, sizeof record);
    if (record.failed == 0) move_numbers(pipe, pipe->ranks->exchange.own, true);
    pipe->ranks->exchanging = true;
}

static void end_exchange(struct weir_pipe *pipe) {
    struct weir__ranks *ranks = pipe->ranks;
    struct verdict_record record;
    memcpy(&record, ranks->exchange.own, sizeof record);
    if (record.failed == 0) move_numbers(pipe, ranks->exchange.own, false);
    ranks->flags = record.flags;
    ranks->gives = record.failed == 0;
    if (record.failed != 0 && record.failed != ranks->world->rank + 1)
        weir__pipe_fail_elsewhere(pipe, record.failed - 1, &record.error);
    weir__gate_advance(&ranks->exchanged, pipe->command.number);
}

static int go_on_with_numbers(struct weir_pipe *pipe, struct weir_error *error) {
    struct weir__ranks *ranks = pipe->ranks;
    bool over = false;
    if (weir__gate_reached(&ranks->exchanged, pipe->command.number)) return WEIR_OK;
    if (!ranks->exchanging && !is_whole(pipe)) return WEIR_OK;
    /* what has failed is told with its reason, in the next poll if that is still being written */
    if (!ranks->exchanging && weir__pipe_has_failed(pipe) && !is_known(pipe)) return WEIR_OK;
    if (!ranks->exchanging) begin_exchange(pipe);
    int status = weir__allreduce_go_on(ranks->world, &ranks->exchange, &over);
    if (over) end_exchange(pipe);
    if (status == WEIR_OK) return WEIR_OK;
    return weir__fail(error, status, "a step's numbers: %.200s",
                      weir__allreduce_reason(ranks->world, &ranks->exchange));
}

/* ---- messages ---- */

static uint32_t wanted(const struct weir_pipe *pipe, const struct weir__port *port) {
    if (port->items != NULL) return weir__replicas_wanted(pipe, port);
    return pipe->command.step.accumulate_last ? port->count : port->body_count;
}

/* Whether what is waited for has ended, as the poll can tell: of a GPU's that it was given, where
 * the stream that waits follows it, else that it is done. */
static bool is_over(const struct weir_pipe *pipe, const struct weir__needed_wait *wait,
                    bool follows) {
    const struct weir__row_plan *plan = pipe->command.plan;
    bool copy = wait->copy != WEIR__NO_COPY, done = true;
    if (copy && weir__is_message(plan, &plan->copies[wait->copy]))
        return weir__ranks_has_ended(plan, wait->copy);
    struct weir__worker *from = &pipe->workers[wait->worker];
    assert(weir__is_here(pipe, wait->worker));
    if (!weir__gate_reached(&from->progress, from->base + wait->count)) return false;
    if (follows || (!copy && from->device->calls->synchronous)) return true;
    struct weir__event *event =
        copy ? weir__signal(&plan->bound.streams[plan->copies[wait->copy].lane]->signals,
                            plan->copies[wait->copy].place, pipe->command.turn)
             : weir__signal(&from->signals, wait->count - 1, pipe->command.turn);
    return event->device->calls->event_query(event, &done) == WEIR_OK && done;
}

static bool have_all_ended(struct weir_pipe *pipe) {
    bool all = true;
    for (uint32_t w = pipe->ranks->first; w < pipe->ranks->end; w++)
        all = all && weir__gate_reached(&pipe->workers[w].done, pipe->command.number);
    return all;
}

bool weir__pipe_has_failed(struct weir_pipe *pipe) {
    return atomic_load_explicit(&pipe->outcome.failed, memory_order_acquire) >=
           WEIR__FAILURE_IN_WRITING;
}

struct weir_message weir__port_message(const struct weir_pipe *pipe, const struct weir__port *port,
                                       uint32_t place) {
    const struct weir__row_plan *plan = pipe->command.plan;
    if (port->items != NULL) return weir__replicas_message(pipe, port, place);
    const struct weir__copy_ends *ends = &plan->bound.ends[port->copies[place]];
    return (struct weir_message){.data = port->sends ? ends->from : ends->to,
                                 .bytes = plan->copies[port->copies[place]].bytes};
}

/* The plan's time from which a receive's place is held. */
static double start_of(const struct weir_pipe *pipe, const struct weir__port *port,
                       uint32_t place) {
    return port->items != NULL ? weir__replicas_start(pipe, port, place)
                               : pipe->command.plan->copies[port->copies[place]].start;
}

/* Of the port's messages: those of which nothing is under way any more. */
static uint32_t closed_of(const struct weir__port *port) {
    return port->crossing != NULL ? port->crossing->closed : weir__ranks_ended(port);
}

/* Those whose receives may write to the plan's memory. */
static uint32_t taken(const struct weir__port *port) {
    if (port->crossing == NULL) return port->begun;
    return port->crossing->stream->pair != NULL ? port->crossing->offered : weir__ranks_ended(port);
}

/* Whether some of the port's messages still need the bytes that a receive would get: a send with
 * bytes that is under way, or a receive that is, or that comes first in the plan. */
static bool needs(const struct weir_pipe *pipe, const struct weir__port *other,
                  const struct weir__port *port, uint32_t place) {
    const struct weir_message wants = weir__port_message(pipe, port, place);
    uint32_t end = other->sends ? other->whole : wanted(pipe, other);
    if (other == port) end = place;
    bool needed = false;
    for (uint32_t j = closed_of(other); !needed && j < end; j++) {
        const struct weir_message has = weir__port_message(pipe, other, j);
        bool overlap = (char *)has.data < (char *)wants.data + wants.bytes &&
                       (char *)wants.data < (char *)has.data + has.bytes;
        needed = overlap && (other->sends || j < taken(other) ||
                             start_of(pipe, other, j) < start_of(pipe, port, place));
    }
    return needed;
}

static bool is_needed(const struct weir_pipe *pipe, const struct weir__port *port, uint32_t place) {
    const struct weir__row_plan *plan = pipe->command.plan;
    bool needed = false;
    for (uint32_t l = 0; !needed && l < weir__port_count(plan); l++)
        needed = plan->bound.ports[l] != NULL && needs(pipe, plan->bound.ports[l], port, place);
    return needed;
}

/* When something has failed, what is left follows no action. A lane's sends then have no bytes,
 * which may be others' by now; a receive still follows what needs its bytes, in the plan's order,
 * so that no ranks wait for each other. */
static bool may_begin_failed(struct weir_pipe *pipe, const struct weir__port *port,
                             uint32_t place) {
    return have_all_ended(pipe) && (port->sends || !is_needed(pipe, port, place));
}

/* What comes behind updates, maybe in place of gradients, follows no wait of the plan: slices of
 * them, or uses of a tie, may still be on their way from there. Those sends that have begun and not
 * ended are waited for. By NCCL one that waits for an offer has not begun, but none of these can
 * lose its bytes. Numbers are known, so every norm is, on all ranks: what norms read, slices that
 * go to their owners and uses that go to a tie's, has come there, and so was offered and begun.
 * Only what updates read may still wait for its offer, a tie's sum on its way to its other uses:
 * slices come in its place only where nothing is updated, and then its reader takes none of them.
 */
static bool may_begin_item(struct weir_pipe *pipe, const struct weir__port *port, uint32_t place) {
    if (!weir__replicas_is_due(pipe, port, place)) return false;
    return port->sends || place < port->body_count || !is_needed(pipe, port, place);
}

/* A send's bytes are made; a receive's place is free. A line that failed says that all of it is
 * done, while another's callback still runs: so what is left then waits for all of them. */
bool weir__port_may_begin(struct weir_pipe *pipe, const struct weir__port *port, uint32_t place) {
    const struct weir__row_plan *plan = pipe->command.plan;
    bool may = true;
    if (weir__pipe_has_failed(pipe)) return may_begin_failed(pipe, port, place);
    if (port->items != NULL) return may_begin_item(pipe, port, place);
    const struct weir__prepared_copy *copy = &plan->copies[port->copies[place]];
    if (port->sends) {
        uint32_t made = weir__prepared_made(plan, copy), w = plan->lanes[copy->lane].from;
        uint32_t count = made - plan->table->lines[w] + 1;
        return weir__gate_reached(&pipe->workers[w].progress, pipe->workers[w].base + count);
    }
    for (uint32_t i = copy->wait_begin; may && i < copy->wait_end; i++)
        may = is_over(pipe, &plan->waits[i], port->crossing != NULL);
    return may;
}

static int begin_message(struct weir_pipe *pipe, struct weir__port *port, uint32_t place) {
    const struct weir_world *world = pipe->ranks->world;
    struct weir_message message = weir__port_message(pipe, port, place);
    message.peer = port->peer;
    message.channel = port->channel;
    message.tag = weir__port_tag(pipe, place);
    assert(message.data != NULL);
    if (port->sends && port->items == NULL &&
        weir__pipe_has_failed(pipe)) /* nobody needs what it was to be */
        message.data = NULL, message.bytes = 0;
    if (port->sends && message.bytes > 0) port->whole = place + 1;
    return port->sends ? world->calls->send(world->context, &message, &port->requests[place])
                       : world->calls->receive(world->context, &message, &port->requests[place]);
}

int weir__port_check(const struct weir_pipe *pipe, const struct weir__port *port, uint32_t place,
                     const struct weir_arrival *arrival, size_t bytes, struct weir_error *error) {
    bool whole = arrival->bytes == bytes || arrival->bytes == 0; /* none: the sender has failed */
    if (arrival->tag == weir__port_tag(pipe, place) && whole) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_PEER,
                      "message %u from rank %u is not that of the plan: tag %u and %zu bytes, not "
                      "%u and %zu: every rank must make the same calls",
                      place, port->peer, arrival->tag, arrival->bytes, weir__port_tag(pipe, place),
                      bytes);
}

static int go_on_with_port(struct weir_pipe *pipe, struct weir__port *port,
                           struct weir_error *error) {
    const struct weir_world *world = pipe->ranks->world;
    uint32_t count = wanted(pipe, port), done = weir__ranks_ended(port), before = done;
    int status = WEIR_OK;
    if (port->crossing != NULL) return weir__crossing_go_on(pipe, port, count, error);
    while (status == WEIR_OK && port->begun < count &&
           weir__port_may_begin(pipe, port, port->begun)) {
        status = begin_message(pipe, port, port->begun);
        port->begun++;
    }
    while (status == WEIR_OK && done < port->begun) {
        struct weir_arrival arrival = {0};
        bool over = false;
        status = world->calls->test(world->context, &port->requests[done], &over, &arrival);
        if (status != WEIR_OK || !over) break;
        if (!port->sends)
            status = weir__port_check(pipe, port, done, &arrival,
                                      weir__port_message(pipe, port, done).bytes, error);
        done++;
    }
    if (done != before) weir__gate_advance(&port->ended, port->base + done);
    return status;
}

/* Who waits for a GPU calls the world all the same: a message that has left may need it still, and
 * a rank that is lost fails a call. So a receive is under way of what nobody sends. */
static int go_on_with_pulse(struct weir_pipe *pipe) {
    struct weir__ranks *ranks = pipe->ranks;
    bool ended = false;
    assert(!ranks->pulsing || ranks->world->rank_count > 1);
    if (!ranks->pulsing) return WEIR_OK;
    int status = ranks->world->calls->test(ranks->world->context, &ranks->pulse, &ended, NULL);
    return status == WEIR_OK && ended ? WEIR_ERR_PEER : status;
}

static int go_on(struct weir_pipe *pipe, struct weir_error *error) {
    const struct weir__row_plan *plan = pipe->command.plan;
    int alive = go_on_with_pulse(pipe);
    if (alive != WEIR_OK) return alive;
    for (uint32_t l = 0; l < weir__port_count(plan); l++) {
        struct weir__port *port = plan->bound.ports[l];
        int status = port != NULL ? go_on_with_port(pipe, port, error) : WEIR_OK;
        if (status != WEIR_OK) return status;
    }
    return go_on_with_numbers(pipe, error);
}

/* For a message, or for the norms of all. */
static bool awaits_others(struct weir_pipe *pipe, const struct weir__call *call) {
    const struct weir__row_plan *plan = pipe->command.plan;
    if (weir__writes(call->action.kind, WEIR__PARAMETERS)) return true;
    for (uint32_t i = call->wait_begin; i < call->wait_end; i++)
        if (plan->waits[i].copy != WEIR__NO_COPY && !is_over(pipe, &plan->waits[i], true))
            return true;
    return false;
}

/* The first action of this rank that other ranks hold up; NULL: none. */
static const struct weir__call *find_waiting(struct weir_pipe *pipe) {
    const struct weir__row_plan *plan = pipe->command.plan;
    for (uint32_t w = pipe->ranks->first; w < pipe->ranks->end; w++) {
        const uint32_t *line = &plan->table->lines[w];
        struct weir__worker *worker = &pipe->workers[w];
        uint32_t done = atomic_load_explicit(&worker->progress.value, memory_order_acquire);
        uint32_t next = line[0] + (done - worker->base);
        if (next < line[1] && awaits_others(pipe, &plan->calls[next])) return &plan->calls[next];
    }
    return NULL;
}

static void break_off(struct weir_pipe *pipe, int status, struct weir_error *error) {
    const struct weir_world *world = pipe->ranks->world;
    if (error->message[0] == '\0')
        weir__fail(error, status, "%.200s", world->calls->reason(world->context));
    bool own = status != WEIR_ERR_PEER && status != WEIR_ERR_ARGUMENT; /* a device's */
    weir__pipe_fail(pipe, find_waiting(pipe), own ? status : WEIR_ERR_PEER, error);
    atomic_store_explicit(&pipe->ranks->broken, true, memory_order_release);
    weir__ranks_abort(pipe);
}

void weir__ranks_poll(struct weir_pipe *pipe) {
    struct weir__ranks *ranks = pipe->ranks;
    struct weir_error error = {0};
    if (ranks == NULL || pthread_mutex_trylock(&ranks->lock) != 0) return;
    if (!atomic_load_explicit(&ranks->broken, memory_order_acquire)) {
        int status = go_on(pipe, &error);
        if (status != WEIR_OK) break_off(pipe, status, &error);
    }
    pthread_mutex_unlock(&ranks->lock);
}

/* ---- a step ---- */

void weir__ranks_begin(struct weir_pipe *pipe) {
    const struct weir__row_plan *plan = pipe->command.plan;
    if (pipe->ranks == NULL || pipe->command.kind != WEIR__COMMAND_RUN) return;
    pipe->ranks->exchanging = false;
    pipe->ranks->flags = 0;
    pipe->ranks->gives = false;
    for (uint32_t l = 0; l < weir__port_count(plan); l++) {
        struct weir__port *port = plan->bound.ports[l];
        if (port == NULL) continue;
        port->base = atomic_load_explicit(&port->ended.value, memory_order_relaxed);
        port->begun = port->whole = 0;
        weir__crossing_begin(port);
    }
}

static bool is_finished(struct weir_pipe *pipe) {
    const struct weir__row_plan *plan = pipe->command.plan;
    bool finished = weir__gate_reached(&pipe->ranks->exchanged, pipe->command.number);
    for (uint32_t l = 0; finished && l < weir__port_count(plan); l++) {
        struct weir__port *port = plan->bound.ports[l];
        finished = port == NULL || closed_of(port) == wanted(pipe, port);
    }
    return finished;
}

void weir__ranks_finish(struct weir_pipe *pipe) {
    if (pipe->ranks == NULL || pipe->command.kind != WEIR__COMMAND_RUN) return;
    if (pipe->outcome.stuck) { /* who knows what it sends */
        pthread_mutex_lock(&pipe->ranks->lock);
        atomic_store(&pipe->ranks->broken, true);
        weir__ranks_abort(pipe);
        pthread_mutex_unlock(&pipe->ranks->lock);
    }
    while (!is_finished(pipe) && !atomic_load(&pipe->ranks->broken)) {
        weir__ranks_poll(pipe);
        sched_yield();
    }
}

int weir__ranks_end(struct weir_pipe *pipe, int status) {
    struct weir__ranks *ranks = pipe->ranks;
    const struct weir_step *step = &pipe->command.step;
    if (ranks == NULL || atomic_load(&ranks->broken)) return status;
    if (pipe->command.plan->infer || !step->accumulate_last || step->no_update) return status;
    struct verdict_record record;
    bool over = false;
    begin_record(pipe, WEIR__TALK_VERDICT, sizeof record);
    while (!over) {
        int asked = weir__allreduce_go_on(ranks->world, &ranks->exchange, &over);
        if (asked != WEIR_OK) atomic_store(&ranks->broken, true);
        if (asked != WEIR_OK && status != WEIR_OK) return status;
        if (asked != WEIR_OK)
            return weir__fail(&pipe->outcome.error, WEIR_ERR_TORN,
                              "whether the others have updated cannot be known: %.160s",
                              weir__allreduce_reason(ranks->world, &ranks->exchange));
        if (!over) sched_yield();
    }
    memcpy(&record, ranks->exchange.own, sizeof record);
    if (status != WEIR_OK || record.failed == 0) return status;
    pipe->outcome.error = record.error;
    return weir__fail(&pipe->outcome.error, WEIR_ERR_TORN, "the update failed on rank %u: %.180s",
                      record.failed - 1, record.error.message);
}

bool weir__ranks_wait(struct weir__run *run, struct weir__gate *gate, uint32_t value) {
    uint64_t spin = weir__run_spin_ns(run->worker), start = 0;
    bool waited = false;
    while (!weir__gate_reached(gate, value) && !weir__run_has_failed(run)) {
        weir__ranks_poll(run->pipe);
        if (weir__gate_reached(gate, value)) break;
        waited = true;
        uint64_t now = weir__now_ns();
        if (start == 0) start = now;
        if (now - start < spin)
            weir__pause();
        else
            weir__gate_wait(gate, value, 0, PARK_NS);
    }
    return waited;
}

int32_t weir__ranks_wait_copy(struct weir__run *run, uint32_t copy) {
    const struct weir__prepared_copy *of = &run->plan->copies[copy];
    struct weir__port *port = run->plan->bound.ports[of->lane];
    if (port == NULL) return -1; /* between other ranks */
    bool waited = weir__ranks_wait(run, &port->ended, port->base + of->place + 1);
    const struct weir__lane *lane = &run->plan->lanes[of->lane];
    return waited ? (int32_t)(port->sends ? lane->worker : lane->from) : -1;
}

void weir__ranks_wait_numbers(struct weir__run *run) {
    weir__ranks_wait(run, &run->pipe->ranks->exchanged, run->pipe->command.number);
}
