/* SPDX-License-Identifier: MIT */
/* What replicas of a pipe send each other in a step (weir_shared.h): behind a stage's last gradient
 * each slice of its sum to the replica that owns it, which adds them up before its norm; behind its
 * update the slice's parameters to all others. A rank's gradients go in descending order of stages,
 * for they are complete in about that, its parameters in the order of its updates, so that the
 * first messages go while others still are at work. */
#include "pipe/run/ranks.h"

struct making {
    struct weir_pipe *pipe;
    const struct weir__row_plan *plan;
    struct weir__port *port;
    uint32_t peer;           /* a replica */
    const uint32_t *updates; /* stages here in the order of their updates */
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
    if (item->bytes == 0) return;
    if (making->items != NULL) making->items[making->count] = *item;
    making->count++;
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

static bool learns_here(const struct making *making, uint32_t s) {
    return making->plan->arrivals[s].gradient != WEIR__NO_ACTION &&
           weir__is_here(making->pipe, making->plan->stage_worker[s]);
}

static void add_all(struct making *making) {
    uint32_t stages = making->plan->table->stage_count;
    making->count = 0;
    for (uint32_t s = stages; s-- > 0;) {
        if (learns_here(making, s)) add_gradients(making, s);
        making->port->until[s] = making->count;
    }
    making->port->body_count = making->count;
    for (uint32_t i = 0; i < making->update_count; i++)
        if (learns_here(making, making->updates[i])) add_parameters(making, making->updates[i]);
    making->port->count = making->count;
}

/* `making` has what all ports of the plan have in common. */
static int make_port(struct making making, struct weir__row_plan *plan, uint32_t peer, bool sends) {
    struct weir_pipe *pipe = making.pipe;
    struct weir__pool *pool = &pipe->setup.pool;
    assert(peer < pipe->ranks->replicas && peer != pipe->ranks->replica);
    struct weir__port *port = weir__pool_take(pool, 1, sizeof *port);
    if (port == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    making.port = port;
    making.peer = peer;
    *port = (struct weir__port){
        .sends = sends,
        .peer = pipe->ranks->world->rank +
                (peer - pipe->ranks->replica) * pipe->ranks->ranks_per_replica,
        .channel = WEIR__REPLICA_CHANNEL,
        .replica = peer,
        .until = weir__pool_take(pool, plan->table->stage_count, sizeof *port->until)};
    if (port->until == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    add_all(&making);
    making.items = weir__pool_take(pool, making.count, sizeof *making.items);
    port->requests = weir__pool_take(pool, making.count, sizeof *port->requests);
    if (making.items == NULL || port->requests == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    add_all(&making);
    port->items = making.items;
    plan->bound.ports[plan->lane_count + plan->bound.replica_ports++] = port;
    return WEIR_OK;
}

int weir__replicas_prepare(struct weir_pipe *pipe, struct weir__row_plan *plan) {
    if (plan->arrivals == NULL) return WEIR_OK;
    uint32_t *updates =
        weir__pool_take(&pipe->setup.pool, plan->table->stage_count, sizeof *updates);
    if (updates == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    uint32_t count =
        weir__table_updates(plan->table, pipe->ranks->first, pipe->ranks->end, updates);
    const struct making making = {
        .pipe = pipe, .plan = plan, .updates = updates, .update_count = count};
    for (uint32_t r = 0; r < pipe->ranks->replicas; r++) {
        if (r == pipe->ranks->replica) continue;
        for (int sends = 1; sends >= 0; sends--) {
            int status = make_port(making, plan, r, sends != 0);
            if (status != WEIR_OK) return status;
        }
    }
    return WEIR_OK;
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

void weir__replicas_wait(struct weir__run *run, const struct weir__call *call) {
    const struct weir__row_plan *plan = run->plan;
    for (uint32_t l = plan->lane_count; l < weir__port_count(plan); l++) {
        struct weir__port *port = plan->bound.ports[l];
        if (!port->sends)
            weir__ranks_wait(run, &port->ended, port->base + port->until[call->action.stage]);
    }
}
