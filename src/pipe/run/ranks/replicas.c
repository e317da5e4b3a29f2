/* SPDX-License-Identifier: MIT */
/* What replicas of a pipe send each other in a step (weir_shared.h): behind a stage's last gradient
 * each slice of its sum to the replica that owns it, which adds them up before its norm; behind its
 * update the slice's parameters to all others. A rank's gradients go in descending order of stages,
 * for they are complete in about that, its parameters in the order of its updates, so that the
 * first messages go while others still are at work. What its CPUs send another replica has one such
 * order; each GPU's has its own, and its stream. */
#include "pipe/run/ranks.h"

struct making {
    struct weir_pipe *pipe;
    const struct weir__row_plan *plan;
    struct weir__port *port;
    struct weir__worker *gpu; /* whose stages these are; NULL: all of this rank's on CPUs */
    uint32_t peer;            /* a replica */
    size_t piece;             /* a message's bytes at most */
    const uint32_t *updates;  /* stages here in the order of their updates */
    uint32_t update_count;
    uint32_t count;
    struct weir__item *items; /* NULL: they are counted */
};

static const struct weir_stage *stage_of(const struct weir_pipe *pipe, uint32_t s) {
    return &pipe->setup.stages[s].stage;
}

static void slice_of(const struct weir_pipe *pipe, const struct weir_section *section,
                     uint32_t replica, size_t *begin, size_t *bytes) {
    size_t end;
    weir_section_slice(section, weir__replicas(&pipe->setup.options), replica, begin, &end);
    assert(end >= *begin);
    *bytes = end - *begin;
}

static size_t rounded(size_t bytes) {
    return (bytes + WEIR__ALIGNMENT - 1) / WEIR__ALIGNMENT * WEIR__ALIGNMENT;
}

/* Where in the arrivals a replica's part begins. */
static size_t arrivals_of(const struct weir_pipe *pipe, const struct weir__arrivals *arrivals,
                          uint32_t replica) {
    assert(replica != pipe->ranks->replica);
    return arrivals->each * (replica - (replica > pipe->ranks->replica));
}

/* ---- messages of a plan ---- */

static void add_item(struct making *making, const struct weir__item *item) {
    assert(making->piece > 0);
    for (size_t at = 0, bytes; at < item->bytes; at += bytes, making->count++) {
        bytes = item->bytes - at < making->piece ? item->bytes - at : making->piece;
        if (making->items == NULL) continue;
        making->items[making->count] = *item;
        making->items[making->count].offset += at;
        making->items[making->count].bytes = bytes;
    }
}

static void add_gradients(struct making *making, uint32_t s) {
    const struct weir__arrivals *arrivals = &making->plan->arrivals[s];
    const struct weir_stage *stage = stage_of(making->pipe, s);
    bool sends = making->port->sends;
    assert(making->peer != making->pipe->ranks->replica);
    size_t arrives = sends ? 0 : arrivals_of(making->pipe, arrivals, making->peer), begin, bytes;
    for (uint32_t k = 0; k < stage->section_count; k++) {
        slice_of(making->pipe, &stage->sections[k],
                 sends ? making->peer : making->pipe->ranks->replica, &begin, &bytes);
        const struct weir__item item = {
            .block = sends ? making->plan->lasting[s].gradients : arrivals->block,
            .action = arrivals->gradient,
            .offset = sends ? stage->sections[k].offset + begin : arrives,
            .bytes = bytes};
        add_item(making, &item);
        arrives += rounded(bytes);
    }
}

/* The updated, of whose sender they are the slice; or the gradients, which lie likewise. */
static void add_parameters(struct making *making, uint32_t s) {
    const struct weir_stage *stage = stage_of(making->pipe, s);
    size_t begin;
    assert(making->plan->arrivals[s].update != WEIR__NO_ACTION);
    for (uint32_t k = 0; k < stage->section_count; k++) {
        struct weir__item item = {.block = making->plan->lasting[s].parameters,
                                  .action = making->plan->arrivals[s].update};
        if (!stage->sections[k].parameters) continue;
        slice_of(making->pipe, &stage->sections[k],
                 making->port->sends ? making->pipe->ranks->replica : making->peer, &begin,
                 &item.bytes);
        item.offset = stage->sections[k].offset + begin;
        add_item(making, &item);
    }
}

static bool is_of_port(const struct making *making, uint32_t s) {
    struct weir__worker *worker = &making->pipe->workers[making->plan->stage_worker[s]];
    bool learns = making->plan->arrivals[s].gradient != WEIR__NO_ACTION;
    if (!learns || !weir__is_here(making->pipe, worker->index)) return false;
    return making->gpu != NULL ? worker == making->gpu : worker->device->calls->synchronous;
}

static void add_all(struct making *making) {
    uint32_t stages = making->plan->table->stage_count;
    making->count = 0;
    for (uint32_t s = stages; s-- > 0;) {
        if (!is_of_port(making, s)) continue;
        add_gradients(making, s);
        making->port->until[s] = making->count;
    }
    making->port->body_count = making->count;
    for (uint32_t i = 0; i < making->update_count; i++)
        if (is_of_port(making, making->updates[i])) add_parameters(making, making->updates[i]);
    making->port->count = making->count;
}

/* Of a GPU's port, when it has its messages. */
static int make_crossing(const struct making *making, bool by_nccl, size_t slot) {
    struct weir__port *port = making->port;
    const struct weir__rank_end end = {.worker = making->gpu,
                                       .other = making->peer,
                                       .of_replicas = true,
                                       .sends = port->sends,
                                       .by_nccl = by_nccl};
    struct weir__copy_stream *stream = NULL;
    assert(making->gpu->index >= making->pipe->ranks->first);
    int status = weir__rank_stream(making->pipe, &end, &stream);
    if (status != WEIR_OK) return status;
    port->channel = WEIR__LANE_CHANNEL + 2 * (making->gpu->index - making->pipe->ranks->first);
    port->offer_channel = port->channel + 1;
    status = weir__rank_stream_grow(making->pipe, stream, slot, port->count);
    if (status != WEIR_OK) return status;
    return weir__crossing_new(making->pipe, port, making->gpu, stream);
}

static int fill_port(struct making *making) {
    struct weir__pool *pool = &making->pipe->setup.pool;
    struct weir__port *port = making->port;
    making->items = NULL;
    add_all(making);
    making->items = weir__pool_take(pool, making->count, sizeof *making->items);
    port->requests = weir__pool_take(pool, making->count, sizeof *port->requests);
    if (making->items == NULL || port->requests == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    add_all(making);
    port->items = making->items;
    return WEIR_OK;
}

/* `making` has what all ports of the plan have in common. */
static int make_port(struct making making, struct weir__row_plan *plan, bool sends) {
    struct weir_pipe *pipe = making.pipe;
    struct weir__pool *pool = &pipe->setup.pool;
    assert(making.peer < pipe->ranks->replicas && making.peer != pipe->ranks->replica);
    struct weir__port *port = weir__pool_take(pool, 1, sizeof *port);
    if (port == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    making.port = port;
    making.piece = SIZE_MAX;
    *port = (struct weir__port){
        .sends = sends,
        .peer = pipe->ranks->world->rank +
                (making.peer - pipe->ranks->replica) * pipe->ranks->ranks_per_replica,
        .channel = WEIR__REPLICA_CHANNEL,
        .replica = making.peer,
        .until = weir__pool_take(pool, plan->table->stage_count, sizeof *port->until)};
    if (port->until == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    plan->bound.ports[plan->lane_count + plan->bound.replica_ports++] = port;
    if (making.gpu == NULL) return fill_port(&making);
    uint32_t w = making.gpu->index;
    const struct weir__seat own = {pipe->ranks->replica, w}, other = {making.peer, w};
    size_t slot = weir__prepared_replica_slot(plan, &pipe->setup, w, making.peer);
    bool by_nccl = weir__setup_joins(&pipe->setup, own, other, pipe->worker_count);
    if (!by_nccl) making.piece = slot;
    int status = fill_port(&making);
    return status == WEIR_OK ? make_crossing(&making, by_nccl, slot) : status;
}

/* All of this rank with a worker on a GPU, or with all of its workers on CPUs. */
static int make_ports(struct making making, struct weir__row_plan *plan, struct weir__worker *gpu) {
    making.gpu = gpu;
    for (making.peer = 0; making.peer < making.pipe->ranks->replicas; making.peer++) {
        if (making.peer == making.pipe->ranks->replica) continue;
        bool none = gpu != NULL && weir__prepared_replica_slot(plan, &making.pipe->setup,
                                                               gpu->index, making.peer) == 0;
        for (int sends = 1; sends >= 0 && !none; sends--) {
            int status = make_port(making, plan, sends != 0);
            if (status != WEIR_OK) return status;
        }
    }
    return WEIR_OK;
}

int weir__replicas_prepare(struct weir_pipe *pipe, struct weir__row_plan *plan) {
    if (plan->arrivals == NULL) return WEIR_OK;
    assert(pipe->ranks != NULL && plan->bound.replica_ports == 0);
    uint32_t *updates =
        weir__pool_take(&pipe->setup.pool, plan->table->stage_count, sizeof *updates);
    if (updates == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    uint32_t count =
        weir__table_updates(plan->table, pipe->ranks->first, pipe->ranks->end, updates);
    const struct making making = {
        .pipe = pipe, .plan = plan, .updates = updates, .update_count = count};
    int status = make_ports(making, plan, NULL);
    for (uint32_t w = pipe->ranks->first; w < pipe->ranks->end; w++) {
        struct weir__worker *worker = &pipe->workers[w];
        if (status != WEIR_OK) return status;
        if (!worker->device->calls->synchronous) status = make_ports(making, plan, worker);
    }
    return status;
}

uint32_t weir__replicas_channels(const struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    uint32_t ranks = pipe->ranks->ranks_per_replica;
    bool gpus = false;
    for (uint32_t w = 0; plan->arrivals != NULL && w < pipe->worker_count; w++)
        gpus = gpus || weir__setup_device(&pipe->setup, w).memory > 0;
    return gpus ? 2 * ((pipe->worker_count + ranks - 1) / ranks) : 0;
}

/* ---- messages of a step ---- */

uint32_t weir__replicas_wanted(const struct weir_pipe *pipe, const struct weir__port *port) {
    if (!pipe->command.step.accumulate_last) return 0;
    return pipe->ranks->gives ? port->count : port->body_count;
}

bool weir__replicas_is_due(const struct weir_pipe *pipe, const struct weir__port *port,
                           uint32_t place) {
    const struct weir__row_plan *plan = pipe->command.plan;
    uint32_t action = port->items[place].action;
    struct weir__worker *worker =
        &pipe->workers[plan->stage_worker[plan->table->actions[action].stage]];
    uint32_t count = action - plan->table->lines[worker->index] + 1;
    return weir__gate_reached(&worker->progress, worker->base + count);
}

struct weir_message weir__replicas_message(const struct weir_pipe *pipe,
                                           const struct weir__port *port, uint32_t place) {
    const struct weir__row_plan *plan = pipe->command.plan;
    const struct weir__item *item = &port->items[place];
    uint32_t stage = plan->table->actions[item->action].stage, block = item->block;
    bool keeps = place >= port->body_count && pipe->command.step.no_update;
    if (keeps) block = plan->lasting[stage].gradients;
    char *data = weir__arena_block(pipe->memory.arenas, &plan->memory, block);
    return (struct weir_message){.data = data + item->offset, .bytes = item->bytes};
}

double weir__replicas_start(const struct weir_pipe *pipe, const struct weir__port *port,
                            uint32_t place) {
    return pipe->command.plan->start[port->items[place].action];
}

/* ---- adding up ---- */

/* A leaf's slice: here the stage's own sum, else what has arrived. */
static void *leaf(const struct weir__run *run, uint32_t s, uint32_t replica, size_t own,
                  size_t arrived) {
    const struct weir__row_plan *plan = run->plan;
    const struct weir__arena *arenas = run->pipe->memory.arenas;
    const struct weir__arrivals *arrivals = &plan->arrivals[s];
    if (replica == run->pipe->ranks->replica)
        return (char *)weir__arena_block(arenas, &plan->memory, plan->lasting[s].gradients) + own;
    return (char *)weir__arena_block(arenas, &plan->memory, arrivals->block) +
           arrivals_of(run->pipe, arrivals, replica) + arrived;
}

/* Where the sum of replicas [first, first + count) lies, when they are added up: with this
 * replica's, if it is one of them. */
static uint32_t node_of(const struct weir__run *run, uint32_t first, uint32_t count) {
    uint32_t own = run->pipe->ranks->replica;
    return own >= first && own < first + count ? own : first;
}

static int add_slice(struct weir__run *run, uint32_t s, const struct weir_section *section,
                     size_t arrived) {
    const struct weir_stage *stage = stage_of(run->pipe, s);
    uint32_t replicas = run->pipe->ranks->replicas;
    size_t begin, bytes;
    slice_of(run->pipe, section, run->pipe->ranks->replica, &begin, &bytes);
    size_t own = section->offset + begin;
    for (uint32_t half = 1; half < replicas && bytes > 0; half *= 2) {
        for (uint32_t first = 0; first < replicas; first += 2 * half) {
            uint32_t lower = node_of(run, first, half), upper = node_of(run, first + half, half);
            uint32_t into = node_of(run, first, 2 * half);
            uint32_t from = into == lower ? upper : lower;
            int status = stage->calls->combine(stage->context, leaf(run, s, into, own, arrived),
                                               leaf(run, s, from, own, arrived), own, bytes);
            if (status != WEIR_OK) return status;
        }
    }
    return WEIR_OK;
}

int weir__replicas_add(struct weir__run *run, const struct weir__call *call) {
    uint32_t s = call->action.stage;
    const struct weir_stage *stage = stage_of(run->pipe, s);
    size_t arrived = 0, begin, bytes;
    if (run->plan->arrivals == NULL || run->plan->arrivals[s].gradient == WEIR__NO_ACTION)
        return WEIR_OK;
    for (uint32_t k = 0; k < stage->section_count; k++) {
        int status = add_slice(run, s, &stage->sections[k], arrived);
        if (status != WEIR_OK) return status;
        slice_of(run->pipe, &stage->sections[k], run->pipe->ranks->replica, &begin, &bytes);
        arrived += rounded(bytes);
    }
    return WEIR_OK;
}

struct weir__event *weir__replicas_signal(const struct weir__row_plan *plan, uint32_t stage,
                                          uint32_t k, uint32_t turn) {
    const struct weir__port *port = plan->bound.ports[plan->lane_count + k];
    assert(k < plan->bound.replica_ports && stage < plan->table->stage_count);
    if (port->sends || port->crossing == NULL || port->until[stage] == 0) return NULL;
    return weir__signal(&port->crossing->stream->signals, port->until[stage] - 1, turn);
}

int weir__replicas_wait(struct weir__run *run, const struct weir__call *call) {
    const struct weir__row_plan *plan = run->plan;
    struct weir_stream *stream = run->worker->stream;
    uint32_t stage = call->action.stage;
    for (uint32_t k = 0; k < plan->bound.replica_ports; k++) {
        struct weir__port *port = plan->bound.ports[plan->lane_count + k];
        if (port->sends) continue;
        weir__ranks_wait(run, &port->ended, port->base + port->until[stage]);
        struct weir__event *event = weir__replicas_signal(plan, stage, k, run->pipe->command.turn);
        if (event == NULL || weir__run_has_failed(run)) continue;
        int status = stream->device->calls->stream_wait(stream, event);
        if (status != WEIR_OK) return weir__run_explain(run, status);
    }
    return WEIR_OK;
}
