/* SPDX-License-Identifier: MIT */
/* A pipe's ranks between its steps: who has which workers, and what they tell each other. */
#include "pipe/run/ranks.h"

#include "world/wait.h"

/* ---- who has what ---- */

static int check_world(const struct weir_pipe *pipe, const struct weir_world *world,
                       struct weir_faults *faults) {
    uint32_t before = faults != NULL ? faults->count : 0, gpus = 0;
    if (!weir__is_sized(world) || !weir__is_sized(world->calls) ||
        world->rank >= world->rank_count) {
        weir_faults_add(faults, "world: rank %u of %u, or a member `size`, is not right",
                        world->rank, world->rank_count);
        return WEIR_ERR_ARGUMENT;
    }
    for (uint32_t w = 0; w < pipe->worker_count; w++)
        gpus += !weir__setup_device(&pipe->setup, w).synchronous;
    if (gpus > 0)
        weir_faults_add(faults, "workers on GPUs in a world of %u rank%s: give CPUs",
                        world->rank_count, weir__s(world->rank_count));
    if (world->rank_count <= pipe->worker_count && gpus == 0) return WEIR_OK;
    if (faults != NULL && faults->count == before)
        weir_faults_add(faults,
                        "%u worker%s for %u ranks: ask for at least as many, or start fewer",
                        pipe->worker_count, weir__s(pipe->worker_count), world->rank_count);
    return WEIR_ERR_CONFIG;
}

int weir__ranks_init(struct weir_pipe *pipe, struct weir_faults *faults) {
    const struct weir_world *world = pipe->setup.options.world;
    if (world == NULL) return WEIR_OK;
    int status = check_world(pipe, world, faults);
    if (status != WEIR_OK) return status;
    struct weir__ranks *ranks = weir__pool_take(&pipe->setup.pool, 1, sizeof *ranks);
    if (ranks == NULL || pthread_mutex_init(&ranks->lock, NULL) != 0) return WEIR_ERR_OUT_OF_MEMORY;
    ranks->world = world;
    ranks->exchange.merge = weir__ranks_merge;
    while (ranks->end < pipe->worker_count && weir__rank_of(pipe, ranks->end) <= world->rank)
        ranks->first += weir__rank_of(pipe, ranks->end++) < world->rank;
    assert(ranks->first < ranks->end);
    pipe->ranks = ranks;
    return WEIR_OK;
}

/* What is under way when a world broke must not write into memory that is given back. */
static void cancel_receives(struct weir_pipe *pipe, const struct weir__row_plan *plan) {
    const struct weir_world *world = pipe->ranks->world;
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        struct weir__port *port = plan->bound.ports[l];
        uint32_t done = port == NULL ? 0 : weir__ranks_ended(port);
        for (; port != NULL && !port->sends && done < port->begun; done++) {
            bool ended;
            if (world->calls->cancel(world->context, &port->requests[done], &ended) != WEIR_OK)
                return;
        }
    }
}

void weir__ranks_clean_up(struct weir_pipe *pipe) {
    if (pipe->ranks != NULL && atomic_load(&pipe->ranks->broken) && pipe->command.plan != NULL)
        cancel_receives(pipe, pipe->command.plan);
    if (pipe->ranks != NULL) pthread_mutex_destroy(&pipe->ranks->lock);
    pipe->ranks = NULL;
}

/* ---- between steps ---- */

static int take_from(const struct weir_world *world, uint32_t peer, void *data, size_t bytes) {
    struct weir_arrival arrival;
    int status = weir__world_receive(world, peer, data, bytes, &arrival);
    if (status != WEIR_OK) return status;
    if (arrival.tag > 0) return -(int)arrival.tag; /* what the owner came with */
    return arrival.bytes == bytes ? WEIR_OK : WEIR_ERR_PEER;
}

int weir__ranks_give(struct weir_pipe *pipe, uint32_t stage, int status, void *data, size_t bytes) {
    const struct weir_world *world = pipe->ranks->world;
    uint32_t owner = weir__rank_of(pipe, pipe->prepared[0]->stage_worker[stage]);
    int given = WEIR_OK;
    assert(status <= WEIR_OK && -status <= WEIR_TAG_MOST);
    if (world->rank != owner) return take_from(world, owner, data, bytes);
    for (uint32_t r = 0; given == WEIR_OK && r < world->rank_count; r++)
        if (r != owner)
            given = weir__world_send(world, r, (uint32_t)-status, data,
                                     status == WEIR_OK ? bytes : 0);
    return status != WEIR_OK ? status : given;
}

int weir__ranks_give_back(struct weir_pipe *pipe, bool infer) {
    if (pipe->ranks == NULL) return WEIR_OK;
    const struct weir__row_plan *plan = pipe->command.plan;
    const struct weir__setup *setup = &pipe->setup;
    uint32_t last = plan->table->stage_count - 1;
    int status = WEIR_OK;
    for (uint32_t k = 0; k < setup->stages[last].stage.output_count && status == WEIR_OK; k++)
        if (pipe->command.outputs[k] != NULL)
            status = weir__ranks_give(pipe, last, WEIR_OK, pipe->command.outputs[k],
                                      (size_t)plan->rows * setup->output_row_bytes[k]);
    for (uint32_t k = 0; k < setup->options.input_count && status == WEIR_OK && !infer; k++) {
        const struct weir_input *input = &setup->options.inputs[k];
        if (pipe->command.input_grads[k] == NULL || !input->tensor.differentiable) continue;
        size_t rows = (size_t)(plan->rows * input->rows_factor);
        status = weir__ranks_give(pipe, input->stage, WEIR_OK, pipe->command.input_grads[k],
                                  rows * setup->input_row_bytes[k]);
    }
    return status;
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
    /* what one rank leaves out because of another's waits, the other must wait for */
    for (uint32_t i = 0; i < plan->wait_count; i++) {
        const struct weir__needed_wait *wait = &plan->waits[i];
        const uint32_t numbers[] = {wait->worker, wait->count, wait->copy};
        hash = weir__hash(hash, numbers, sizeof numbers);
    }
    return hash;
}

uint64_t weir__ranks_digest(const struct weir_pipe *pipe) {
    const struct weir_pipe_options *options = &pipe->setup.options;
    const double reals[] = {options->clip_norm};
    const uint64_t flags[] = {options->skip_nonfinite, options->infer_only, options->input_count};
    uint64_t hash = weir__hash(WEIR__HASH_BEGIN, reals, sizeof reals);
    hash = weir__hash(hash, flags, sizeof flags);
    for (uint32_t i = 0; i < pipe->prepared_count; i++) hash = hash_plan(hash, pipe->prepared[i]);
    return hash;
}
