/* SPDX-License-Identifier: MIT */
/* A pipe's ranks between its steps: who has which workers, and what they tell each other. */
#include "pipe/run/ranks.h"

#include "pipe/describe/microbatch.h"
#include "world/wait.h"

/* ---- who has what ---- */

static int check_world(const struct weir_pipe *pipe, const struct weir_world *world,
                       struct weir_faults *faults) {
    if (!weir__is_sized(world) || !weir__is_sized(world->calls) ||
        world->rank >= world->rank_count) {
        weir_faults_add(faults, "world: rank %u of %u, or a member `size`, is not right",
                        world->rank, world->rank_count);
        return WEIR_ERR_ARGUMENT;
    }
    uint32_t ranks = world->rank_count / weir__replicas(&pipe->setup.options);
    if (ranks <= pipe->worker_count) return WEIR_OK;
    weir_faults_add(faults, "%u worker%s for %u ranks%s: ask for at least as many, or start fewer",
                    pipe->worker_count, weir__s(pipe->worker_count), ranks,
                    ranks < world->rank_count ? " of each replica" : "");
    return WEIR_ERR_CONFIG;
}

int weir__ranks_init(struct weir_pipe *pipe, struct weir_faults *faults) {
    const struct weir_world *world = pipe->setup.options.world;
    uint32_t replicas = weir__replicas(&pipe->setup.options);
    if (world == NULL && replicas > 1)
        weir_faults_add(faults,
                        "%u replicas are made of ranks, and this process is alone: start it by "
                        "mpiexec -n %u, or another number that they divide",
                        replicas, replicas);
    if (world == NULL) return replicas > 1 ? WEIR_ERR_CONFIG : WEIR_OK;
    int status = check_world(pipe, world, faults);
    if (status != WEIR_OK) return status;
    struct weir__ranks *ranks = weir__pool_take(&pipe->setup.pool, 1, sizeof *ranks);
    if (ranks == NULL || pthread_mutex_init(&ranks->lock, NULL) != 0) return WEIR_ERR_OUT_OF_MEMORY;
    ranks->world = world;
    ranks->exchange.merge = weir__ranks_merge;
    ranks->replicas = replicas;
    ranks->replica = weir__replica(&pipe->setup.options);
    ranks->ranks_per_replica = world->rank_count / replicas;
    pipe->ranks = ranks;
    while (ranks->end < pipe->worker_count && weir__rank_of(pipe, ranks->end) <= world->rank)
        ranks->first += weir__rank_of(pipe, ranks->end++) < world->rank;
    assert(ranks->first < ranks->end);
    return weir__ranks_take_clocks(pipe);
}

/* What is under way when a world broke must not write into memory that is given back. */
static void cancel_receives(struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    const struct weir_world *world = pipe->ranks->world;
    for (uint32_t l = 0; l < weir__port_count(plan); l++) {
        struct weir__port *port = plan->bound.ports[l];
        uint32_t done = port == NULL ? 0 : weir__ranks_ended(port);
        if (port != NULL && port->crossing != NULL) {
            weir__crossing_cancel(pipe, port);
            continue;
        }
        for (; port != NULL && !port->sends && done < port->begun; done++) {
            bool ended;
            if (world->calls->cancel(world->context, &port->requests[done], &ended) != WEIR_OK)
                return;
        }
    }
}

void weir__ranks_stop(struct weir_pipe *pipe) {
    if (pipe->ranks != NULL && atomic_load(&pipe->ranks->broken) && pipe->command.plan != NULL)
        cancel_receives(pipe, pipe->command.plan);
    if (pipe->ranks != NULL && pipe->ranks->pulsing) {
        bool ended;
        const struct weir_world *world = pipe->ranks->world;
        (void)world->calls->cancel(world->context, &pipe->ranks->pulse, &ended);
        pipe->ranks->pulsing = false;
    }
    for (uint32_t w = 0; pipe->workers != NULL && w < pipe->worker_count; w++) {
        struct weir__copy_stream *s = pipe->workers[w].rank_streams;
        for (; s != NULL; s = s->next) {
            weir__nccl_pair_destroy(s->pair);
            s->pair = NULL;
        }
    }
}

void weir__ranks_clean_up(struct weir_pipe *pipe) {
    if (pipe->ranks == NULL) return;
    weir__nccl_close(&pipe->ranks->nccl);
    pthread_mutex_destroy(&pipe->ranks->lock);
    pipe->ranks = NULL;
}

/* ---- between steps ---- */

enum { STATUSES = 64 };

/* What the owner comes with, and of which step and stage it is. */
static uint32_t tag_of_gift(const struct weir_pipe *pipe, uint32_t stage, int status) {
    assert(status <= WEIR_OK && -status < STATUSES);
    uint64_t identity = pipe->step_count + stage;
    return weir__talk_tag(WEIR__TALK_GIFT, identity * STATUSES + (uint64_t)-status);
}

static int take_from(const struct weir_pipe *pipe, uint32_t peer, uint32_t stage, void *data,
                     size_t bytes) {
    struct weir_arrival arrival;
    uint32_t good = tag_of_gift(pipe, stage, WEIR_OK);
    int status = weir__world_receive(pipe->ranks->world, peer, data, bytes, &arrival);
    if (status != WEIR_OK) return status;
    if (arrival.tag == good) return arrival.bytes == bytes ? WEIR_OK : WEIR_ERR_PEER;
    bool told = arrival.tag / STATUSES == good / STATUSES;
    return told ? -(int)(arrival.tag % STATUSES) : WEIR_ERR_PEER;
}

int weir__ranks_give(struct weir_pipe *pipe, uint32_t replica, uint32_t stage, int status,
                     void *data, size_t bytes) {
    const struct weir_world *world = pipe->ranks->world;
    uint32_t owner = weir__rank_in(pipe, replica, pipe->prepared[0]->stage_worker[stage]);
    int given = WEIR_OK;
    if (world->rank != owner) return take_from(pipe, owner, stage, data, bytes);
    for (uint32_t r = 0; given == WEIR_OK && r < world->rank_count; r++)
        if (r != owner)
            given = weir__world_send(world, r, tag_of_gift(pipe, stage, status), data,
                                     status == WEIR_OK ? bytes : 0);
    return status != WEIR_OK ? status : given;
}

/* Rows of the mini-batch that a replica has had. */
struct rows_of {
    uint32_t replica;
    size_t first, rows;
};

static int give_rows(struct weir_pipe *pipe, const struct rows_of *part, uint32_t stage, void *data,
                     size_t row_bytes) {
    if (data == NULL) return WEIR_OK;
    return weir__ranks_give(pipe, part->replica, stage, WEIR_OK,
                            (char *)data + part->first * row_bytes, part->rows * row_bytes);
}

static int give_part(struct weir_pipe *pipe, const struct rows_of *part, bool infer) {
    const struct weir__setup *setup = &pipe->setup;
    uint32_t last = pipe->command.plan->table->stage_count - 1;
    int status = WEIR_OK;
    for (uint32_t k = 0; k < setup->stages[last].stage.output_count && status == WEIR_OK; k++)
        status = give_rows(pipe, part, last, pipe->command.outputs[k], setup->output_row_bytes[k]);
    for (uint32_t k = 0; k < setup->options.input_count && status == WEIR_OK && !infer; k++) {
        const struct weir_input *input = &setup->options.inputs[k];
        size_t row_bytes = (size_t)input->rows_factor * setup->input_row_bytes[k];
        if (input->tensor.differentiable)
            status = give_rows(pipe, part, input->stage, pipe->command.input_grads[k], row_bytes);
    }
    return status;
}

int weir__ranks_give_back(struct weir_pipe *pipe, bool infer) {
    if (pipe->ranks == NULL) return WEIR_OK;
    const struct weir_pipe_options *options = &pipe->setup.options;
    int64_t rows = pipe->command.plan->rows;
    int status = WEIR_OK;
    for (uint32_t r = 0; status == WEIR_OK && r < pipe->ranks->replicas; r++) {
        struct weir__groups groups =
            infer ? weir__groups_infer(options, r, rows) : weir__groups_of(options, r, rows);
        int64_t first = weir__chunk_first(rows, options->chunks, groups.first);
        int64_t end = weir__chunk_first(rows, options->chunks, groups.first + groups.count);
        const struct rows_of part = {r, (size_t)first, (size_t)(end - first)};
        status = give_part(pipe, &part, infer);
        if (groups.count == groups.whole) break; /* so have the others */
    }
    return status;
}

void weir_pipe_input_rows(const struct weir_pipe *pipe, uint32_t input, int64_t rows,
                          int64_t *first, int64_t *count) {
    const struct weir_pipe_options *options = &pipe->setup.options;
    assert(pipe->prepared_count > 0 && input < options->input_count);
    const struct weir__row_plan *plan = pipe->prepared[0];
    *first = *count = 0;
    if (!weir__is_here(pipe, plan->stage_worker[options->inputs[input].stage])) return;
    *count = rows;
    if (options->inputs[input].replicated) return;
    struct weir__groups groups = weir__groups_of(options, weir__replica(options), rows);
    *first = weir__chunk_first(rows, options->chunks, groups.first);
    *count = weir__chunk_first(rows, options->chunks, groups.first + groups.count) - *first;
}

/* ---- what must be the same ---- */

static uint64_t hash_plan(uint64_t hash, const struct weir__row_plan *plan) {
    const uint64_t counts[] = {(uint64_t)plan->rows, plan->micro_batch_count,
                               plan->table->action_count, plan->table->worker_count,
                               plan->copy_count};
    hash = weir__hash(hash, counts, sizeof counts);
    for (uint32_t a = 0; a < plan->table->action_count; a++) {
        const struct weir_action *action = &plan->table->actions[a];
        const uint32_t numbers[] = {action->kind, action->stage, action->micro_batch};
        hash = weir__hash(hash, numbers, sizeof numbers);
    }
    hash = weir__hash(hash, plan->table->lines,
                      (plan->table->worker_count + 1) * sizeof *plan->table->lines);
    for (uint32_t i = 0; i < plan->copy_count; i++) {
        const struct weir__prepared_copy *copy = &plan->copies[i];
        const uint64_t numbers[] = {copy->action, copy->lane, copy->bytes};
        hash = weir__hash(hash, numbers, sizeof numbers);
    }
    hash = weir__hash(hash, &plan->waits_hash, sizeof plan->waits_hash);
    return hash;
}

static uint64_t hash_plans(const struct weir_pipe *pipe, uint64_t hash) {
    for (uint32_t i = 0; i < pipe->prepared_count; i++) hash = hash_plan(hash, pipe->prepared[i]);
    return hash;
}

static uint32_t channels_of(const struct weir_pipe *pipe) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < pipe->prepared_count; i++) {
        uint32_t own = weir__ranks_channels(pipe, pipe->prepared[i]);
        if (own > most) most = own;
    }
    return most;
}

/* What replicas have in common: not the micro-batches, but the order of updates, in which
 * parameters go. */
static uint64_t hash_shares(const struct weir_pipe *pipe, uint64_t hash) {
    const struct weir__row_plan *plan = pipe->prepared[0];
    for (uint32_t i = 0; i < pipe->prepared_count; i++)
        hash = weir__hash(hash, &pipe->prepared[i]->rows, sizeof pipe->prepared[i]->rows);
    hash =
        weir__hash(hash, plan->stage_worker, plan->table->stage_count * sizeof *plan->stage_worker);
    for (uint32_t a = 0; a < plan->table->action_count; a++) {
        const struct weir_action *action = &plan->table->actions[a];
        if (weir__writes(action->kind, WEIR__PARAMETERS))
            hash = weir__hash(hash, &action->stage, sizeof action->stage);
    }
    for (uint32_t s = 0; s < plan->table->stage_count; s++) {
        const struct weir_stage *stage = &pipe->setup.stages[s].stage;
        for (uint32_t k = 0; k < stage->section_count; k++) {
            const uint64_t numbers[] = {stage->sections[k].offset, stage->sections[k].bytes};
            hash = weir__hash(hash, numbers, sizeof numbers);
        }
    }
    return hash;
}

/* Which workers are on GPUs: ranks send to each other by that, and bits are those of one kind of
 * device. */
static uint64_t hash_kinds(const struct weir_pipe *pipe) {
    uint64_t hash = WEIR__HASH_BEGIN;
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        bool synchronous = weir__setup_device(&pipe->setup, w).synchronous;
        hash = weir__hash(hash, &synchronous, sizeof synchronous);
    }
    return hash;
}

static uint64_t hash_options(const struct weir_pipe *pipe, uint64_t hash) {
    const struct weir_pipe_options *options = &pipe->setup.options;
    const double reals[] = {options->clip_norm};
    const uint64_t flags[] = {options->skip_nonfinite,        options->infer_only,
                              options->input_count,           weir__replicas(options),
                              weir__gradient_groups(options), options->accumulates};
    hash = weir__hash(hash, reals, sizeof reals);
    return weir__hash(hash, flags, sizeof flags);
}

int weir__ranks_agree(const struct weir_world *world, const struct weir_pipe *pipe, int status,
                      uint64_t own, const char *what, struct weir_faults *faults) {
    uint64_t hash = weir__hash(WEIR__HASH_BEGIN, &own, sizeof own);
    bool whole = status == WEIR_OK && world != NULL;
    bool shares = whole && pipe->ranks->replicas > 1;
    if (whole) hash = hash_options(pipe, hash);
    if (whole) hash = shares ? hash_shares(pipe, hash) : hash_plans(pipe, hash);
    status = weir__world_agree(world, status, hash, what, faults);
    if (status != WEIR_OK || !whole) return status;
    status = weir__world_agree(world, WEIR_OK, hash_kinds(pipe),
                               "devices: all must give a worker a CPU in every replica, or a GPU "
                               "in each",
                               faults);
    if (status != WEIR_OK) return status;
    uint32_t first = pipe->ranks->replica * pipe->ranks->ranks_per_replica;
    if (shares)
        status = weir__world_agree_among(world, first, pipe->ranks->ranks_per_replica,
                                         hash_plans(pipe, hash), what, faults);
    return weir__world_agree(world, status, channels_of(pipe), what, faults);
}
