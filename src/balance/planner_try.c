/* SPDX-License-Identifier: MIT */
/* One try: a table, a simulated step, and an estimate of what it needs. */
#include "balance/planner.h"

#include <math.h>
#include <string.h>

/* Making a table takes as long as simulating it so many times. */
enum { TABLE_COST = 4 };

/* ---- the table ---- */

static bool is_same_table(const struct weir_planner *planner, const struct weir__try *tried) {
    uint32_t stages = planner->shapes[tried->shape].stages;
    assert(stages == planner->costs->stage_count);
    if (planner->table == NULL || planner->table_shape != tried->shape ||
        planner->table_late != tried->late)
        return false;
    for (uint32_t s = 0; s < stages; s++)
        if (planner->table_modes[s] != tried->modes[s] ||
            planner->no_backward[s] != planner->costs->list[s].no_backward)
            return false;
    return true;
}

static void spend(struct weir_planner *planner, uint64_t actions) {
    planner->actions_left -= actions < planner->actions_left ? actions : planner->actions_left;
}

/* Fills the cut, and makes the table. */
static int prepare(struct weir_planner *planner, const struct weir__try *tried) {
    assert(tried->sizes != NULL && tried->modes != NULL);
    const struct weir__shape *shape = &planner->shapes[tried->shape];
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    int status = weir__planner_fill(planner, tried->shape, tried->sizes);
    if (status != WEIR_OK || is_same_table(planner, tried)) return status;
    weir_table_destroy(planner->table);
    planner->table = NULL;
    planner->table_shape = tried->shape;
    planner->table_late = tried->late;
    for (uint32_t s = 0; s < shape->stages; s++) {
        planner->table_modes[s] = tried->modes[s];
        planner->no_backward[s] = planner->costs->list[s].no_backward;
    }
    options.allocator = planner->allocator;
    options.schedule = shape->schedule;
    options.stages = shape->stages;
    options.workers = planner->options->workers;
    options.micro_batches = planner->chunks[shape->chunks].micro_batches;
    options.stage_checkpoint = planner->table_modes;
    options.no_backward = planner->no_backward;
    options.recompute_late = tried->late;
    status = weir_table_new(&options, NULL, &planner->table);
    if (status != WEIR_OK) return status;
    spend(planner, TABLE_COST * (uint64_t)planner->table->action_count);
    return WEIR_OK;
}

/* ---- memory ---- */

/* A border lies with its producer until the reader's backward; that is before the producer's own.
 * Where the producer has none the reader's is counted. Skips lie with their source as long. */
static void fill_kept(struct weir_planner *planner) {
    const struct weir_stage_costs *costs = planner->costs;
    assert(costs->stage_count <= planner->stages_most);
    uint64_t *kept = planner->kept;
    memset(kept, 0, costs->stage_count * sizeof kept[0]);
    for (uint32_t s = 0; s < costs->stage_count; s++) {
        bool moves = costs->list[s].no_backward && s + 1 < costs->stage_count;
        kept[s + moves] += costs->list[s].border;
        planner->saved[s] = costs->list[s].saved;
    }
    for (uint32_t k = 0; k < costs->skip_count; k++)
        kept[costs->skips[k].source] += costs->skips[k].bytes;
}

/* Gradients lie with who makes them: one per border; of a skip, as many as are made before its
 * source takes the first. */
static void add_gradients(struct weir_planner *planner, const struct weir__shape *shape) {
    const struct weir_stage_costs *costs = planner->costs;
    uint32_t most = planner->chunks[shape->chunks].micro_batches;
    for (uint32_t s = 0; s + 1 < costs->stage_count; s++)
        planner->lasting[shape->workers[s + 1]] += costs->list[s].border_gradient;
    for (uint32_t k = 0; k < costs->skip_count; k++) {
        const struct weir_skip_route *skip = &costs->skips[k];
        for (uint32_t r = 0; skip->differentiable && r < skip->reader_count; r++) {
            uint32_t before = r == 0 ? skip->source : skip->readers[r - 1];
            assert(skip->readers[r] > before);
            uint32_t alive = skip->readers[r] - before;
            planner->lasting[shape->workers[skip->readers[r]]] +=
                skip->bytes * (alive < most ? alive : most);
        }
    }
}

static uint64_t estimate_of(struct weir_planner *planner, const struct weir__shape *shape,
                            const struct weir_prediction *prediction) {
    uint32_t workers = planner->options->workers;
    assert(prediction->worker_count == workers);
    assert(shape->stages == planner->costs->stage_count);
    uint64_t most = 0;
    memset(planner->lasting, 0, workers * sizeof planner->lasting[0]);
    memset(planner->largest, 0, workers * sizeof planner->largest[0]);
    for (uint32_t s = 0; s < shape->stages; s++) {
        const struct weir_stage_cost *stage = &planner->costs->list[s];
        uint32_t w = shape->workers[s];
        planner->lasting[w] += weir__planner_lasting(planner, stage);
        if (planner->largest[w] < stage->workspace) planner->largest[w] = stage->workspace;
    }
    add_gradients(planner, shape);
    for (uint32_t w = 0; w < workers; w++) {
        uint64_t bytes =
            planner->lasting[w] + planner->largest[w] + prediction->workers[w].peak_bytes;
        if (bytes > most) most = bytes;
    }
    return most;
}

/* ---- the whole ---- */

static int simulate(struct weir_planner *planner, const struct weir__try *tried, bool causes,
                    struct weir_prediction *prediction) {
    assert(planner->table != NULL && planner->table_shape == tried->shape);
    const struct weir_planner_options *options = planner->options;
    const struct weir__chunks *chunks = weir__planner_chunks_at(planner, tried->shape);
    struct weir_simulate_options simulated = WEIR_SIMULATE_OPTIONS_INIT;
    int status = weir_stage_costs_simulate(planner->costs, WEIR_CHECKPOINT_DEFAULT, tried->modes,
                                           chunks->micro_batches, &simulated);
    if (status != WEIR_OK) return status;
    fill_kept(planner);
    for (uint32_t s = 0; s < planner->costs->stage_count; s++)
        planner->gradients[s] = planner->costs->list[s].gradients;
    simulated.table = planner->table;
    simulated.micro_batch_scale = chunks->scale;
    simulated.host_seconds = options->host_seconds;
    simulated.link = options->link;
    simulated.links = options->links;
    simulated.ranks = options->ranks;
    if (options->shared != NULL) simulated.shared = &planner->shared;
    simulated.saved_bytes = planner->saved;
    simulated.kept_bytes = planner->kept;
    simulated.recompute_late = tried->late;
    simulated.no_causes = !causes;
    return weir_simulate(planner->simulator, &simulated, NULL, prediction);
}

int weir__planner_fill(struct weir_planner *planner, uint32_t shape, const uint32_t *sizes) {
    assert(planner->shapes[shape].stages <= planner->stages_most);
    planner->costs = weir__planner_chunks_at(planner, shape)->stages;
    return weir_stage_costs_fill_on(planner->costs, sizes, planner->shapes[shape].stages,
                                    planner->options->worker_costs,
                                    planner->shapes[shape].workers);
}

int weir__planner_try(struct weir_planner *planner, const struct weir__try *tried, double *step,
                      uint64_t *estimate, struct weir_prediction *prediction) {
    const struct weir__shape *shape = &planner->shapes[tried->shape];
    struct weir_prediction own;
    *step = HUGE_VAL;
    *estimate = UINT64_MAX;
    int status = prepare(planner, tried);
    if (status == WEIR_ERR_ARGUMENT || status == WEIR_ERR_CONFIG) return WEIR_OK;
    if (status != WEIR_OK) return status;
    status = simulate(planner, tried, prediction != NULL, &own);
    if (status != WEIR_OK) return status;
    /* fixed costs, as actions */
    spend(planner, planner->replicas * (uint64_t)planner->table->action_count + UINT64_C(200));
    planner->tries++;
    *step = planner->replicas > 1 ? own.total : own.step;
    *estimate = estimate_of(planner, shape, &own);
    if (prediction != NULL) *prediction = own;
    return WEIR_OK;
}

double weir__planner_recompute_time(const struct weir_planner *planner,
                                    const struct weir__try *tried) {
    assert(planner->costs->stage_count == planner->shapes[tried->shape].stages);
    uint32_t micro_batches = weir__planner_chunks_at(planner, tried->shape)->micro_batches;
    double sum = 0;
    for (uint32_t s = 0; s < planner->costs->stage_count; s++)
        sum += weir__pass_seconds(planner->costs->list[s].seconds, WEIR__PASS_RECOMPUTE) *
               weir_checkpoint_count(tried->modes[s], micro_batches);
    return sum;
}

int weir__planner_cut(struct weir_planner *planner, uint32_t index, enum weir_checkpoint mode) {
    const struct weir__shape *shape = &planner->shapes[index];
    assert(shape->stages <= planner->stages_most);
    const struct weir_planner_options *options = planner->options;
    struct weir_balance_options by = WEIR_BALANCE_OPTIONS_INIT;
    if (options->balance != NULL) {
        memcpy(planner->sizes, options->balance, shape->stages * sizeof planner->sizes[0]);
        return WEIR_OK;
    }
    by.checkpoint = mode;
    by.micro_batches = planner->chunks[shape->chunks].micro_batches;
    by.split = shape->split;
    const struct weir_layer_costs *layers = planner->chunks[shape->chunks].layers;
    int status = options->worker_costs == NULL
                     ? weir_layer_weights(layers, &by, planner->weights)
                     : weir_worker_weights(layers, options->worker_costs, options->workers, &by,
                                           planner->weights);
    if (status != WEIR_OK) return status;
    struct weir_partition_options cut = weir__planner_cut_options(planner, index);
    cut.budget = weir__planner_is_quick(options) ? 300 : 2000;
    return weir_partition(&cut, planner->sizes, NULL);
}
