/* SPDX-License-Identifier: MIT */
/* From layers to stages. Sums go over the layers each time: lists are short, and the sums must not
 * depend on what was asked before. */
#include "balance/balance.h"
#include "skip/skip.h"

#include <string.h>

struct stage_costs {
    struct weir_stage_costs shown; /* first */
    const struct weir_layer_costs *layers;
    uint32_t capacity;
    struct weir_stage_cost *list;
    struct weir_skip_route *skips;
    uint32_t *readers;  /* room for every skip's */
    uint32_t *stage_of; /* [layer] */
    /* for the simulator */
    double *seconds; /* [stage * WEIR_KIND_COUNT + kind] */
    uint64_t *border_bytes, *saved_bytes, *kept_bytes;
    bool *differentiable, *no_backward;
    struct weir__pool pool;
};

bool weir__layer_skips_are_valid(const struct weir_layer_costs *layers, size_t *readers) {
    assert(layers != NULL && readers != NULL);
    *readers = 0;
    if (layers->skip_count > 0 && layers->skips == NULL) return false;
    for (uint32_t s = 0; s < layers->skip_count; s++) {
        if (!weir__skip_route_is_valid(&layers->skips[s], layers->layer_count)) return false;
        *readers += layers->skips[s].reader_count;
    }
    return true;
}

static bool take_room(struct stage_costs *costs, size_t readers) {
    assert(costs->capacity >= 1 && costs->capacity <= costs->layers->layer_count);
    const struct weir_layer_costs *layers = costs->layers;
    struct weir__pool *pool = &costs->pool;
    uint32_t stages = costs->capacity;
    costs->list = weir__pool_take(pool, stages, sizeof costs->list[0]);
    costs->skips = weir__pool_take(pool, layers->skip_count, sizeof costs->skips[0]);
    costs->readers = weir__pool_take(pool, readers, sizeof(uint32_t));
    costs->stage_of = weir__pool_take(pool, layers->layer_count, sizeof(uint32_t));
    costs->seconds = weir__pool_take(pool, stages, WEIR_KIND_COUNT * sizeof(double));
    costs->border_bytes = weir__pool_take(pool, stages, sizeof(uint64_t));
    costs->saved_bytes = weir__pool_take(pool, stages, sizeof(uint64_t));
    costs->kept_bytes = weir__pool_take(pool, stages, sizeof(uint64_t));
    costs->differentiable = weir__pool_take(pool, stages, sizeof(bool));
    costs->no_backward = weir__pool_take(pool, stages, sizeof(bool));
    return costs->list != NULL && costs->skips != NULL && costs->readers != NULL &&
           costs->stage_of != NULL && costs->seconds != NULL && costs->border_bytes != NULL &&
           costs->saved_bytes != NULL && costs->kept_bytes != NULL &&
           costs->differentiable != NULL && costs->no_backward != NULL;
}

int weir_stage_costs_new(const struct weir_layer_costs *layers, uint32_t stages,
                         const struct weir_allocator *allocator, struct weir_stage_costs **costs) {
    size_t readers;
    if (layers->layer_count == 0 || stages == 0 || stages > layers->layer_count ||
        !weir__layer_skips_are_valid(layers, &readers))
        return WEIR_ERR_ARGUMENT;
    struct stage_costs *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->layers = layers;
    made->capacity = stages;
    weir__pool_init(&made->pool, allocator);
    if (!take_room(made, readers)) {
        weir_stage_costs_destroy(&made->shown);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    made->shown.list = made->list;
    made->shown.skips = made->skips;
    *costs = &made->shown;
    return WEIR_OK;
}

void weir_stage_costs_destroy(struct weir_stage_costs *costs) {
    struct stage_costs *inside = (struct stage_costs *)costs;
    if (costs == NULL) return;
    weir__pool_clean_up(&inside->pool);
    weir__release(inside->pool.allocator, inside, 1, sizeof *inside);
}

/* ---- a stage ---- */

static void add_layer(struct weir_stage_cost *stage, const struct weir_layer_cost *layer) {
    for (int kind = 0; kind < WEIR_KIND_COUNT; kind++) stage->seconds[kind] += layer->seconds[kind];
    stage->forward_checkpoint += layer->forward_checkpoint;
    stage->saved += layer->saved;
    stage->weight_saved += layer->weight_saved;
    if (stage->workspace < layer->workspace) stage->workspace = layer->workspace;
    stage->parameters += layer->parameters;
    stage->gradients += layer->gradients;
    stage->optimizer += layer->optimizer;
    stage->no_backward &= layer->no_backward;
}

static void add_copies(const struct weir_layer_costs *costs, struct weir_stage_cost *stage,
                       const struct weir_layer_cost *layer) {
    if (layer->copied == 0 || layer->copied_from >= stage->layer_first) return;
    stage->parameters += layer->copied;
    if (layer->copied_learns) stage->optimizer += costs->optimizer_arrays * layer->copied;
}

/** What the stage's end changes: its output is the border's, and nothing here reads it again. */
static void close_stage(struct weir_stage_cost *stage, const struct weir_layer_cost *last) {
    double *again = &stage->seconds[WEIR_KIND_R];
    *again += last->recompute_last - last->seconds[WEIR_KIND_R];
    if (*again < 0) *again = 0; /* rounding */
    stage->saved -= last->saved_output;
    stage->border = last->border;
    stage->border_gradient = last->border_gradient;
}

/** Nobody wants a gradient of its input: there is no input part, and W does all. */
static void join_parts(struct weir_stage_cost *stage) {
    stage->seconds[WEIR_KIND_W] += stage->seconds[WEIR_KIND_I];
    stage->seconds[WEIR_KIND_I] = 0;
    stage->weight_saved = stage->saved;
}

static void add_tasks(struct weir_stage_cost *stage, double task_seconds) {
    stage->forward_checkpoint += task_seconds;
    for (uint32_t kind = 0; kind < WEIR_KIND_COUNT; kind++) {
        const struct weir__kind_facts *facts = &weir__kinds[kind];
        bool has = facts->in_step && !(facts->of_backward && stage->no_backward);
        if (has) stage->seconds[kind] += task_seconds;
    }
}

/** Over the border, or of a skip that was stashed before. */
static bool wants_gradient(const struct stage_costs *costs, const struct weir_stage_cost *stage) {
    const struct weir_layer_costs *layers = costs->layers;
    uint32_t first = stage->layer_first, end = first + stage->layer_count;
    assert(stage->layer_count >= 1 && end <= layers->layer_count);
    bool wants = first > 0 && layers->layers[first - 1].border_gradient > 0;
    for (uint32_t s = 0; s < layers->skip_count && !wants; s++) {
        const struct weir_skip_route *skip = &layers->skips[s];
        if (!skip->differentiable || skip->source >= first) continue;
        for (uint32_t r = 0; r < skip->reader_count && !wants; r++)
            wants = skip->readers[r] >= first && skip->readers[r] < end;
    }
    return wants;
}

/** A worker that takes longer does so for all. */
static void slow_down(struct weir_stage_cost *stage, double pace) {
    for (int kind = 0; kind < WEIR_KIND_COUNT; kind++) stage->seconds[kind] *= pace;
    stage->forward_checkpoint *= pace;
}

static void fill_stage(const struct stage_costs *costs, struct weir_stage_cost *stage,
                       uint32_t first, uint32_t count, const struct weir_worker_cost *worker) {
    assert(count >= 1 && first + count <= costs->layers->layer_count);
    assert(stage >= costs->list && stage < costs->list + costs->capacity);
    const struct weir_layer_costs *own = weir__costs_of(costs->layers, worker->kind);
    const struct weir_layer_cost *layers = own->layers;
    *stage =
        (struct weir_stage_cost){.layer_first = first, .layer_count = count, .no_backward = true};
    for (uint32_t i = first; i < first + count; i++) {
        add_layer(stage, &layers[i]);
        add_copies(own, stage, &layers[i]);
    }
    close_stage(stage, &layers[first + count - 1]);
    if (!wants_gradient(costs, stage)) join_parts(stage);
    add_tasks(stage, own->task_seconds);
    slow_down(stage, weir__pace(worker));
    if (!stage->no_backward) return;
    stage->saved = stage->weight_saved = 0;
    stage->seconds[WEIR_KIND_R] = 0;
}

/* ---- skips ---- */

static void fill_skips(struct stage_costs *costs) {
    const struct weir_layer_costs *layers = costs->layers;
    uint32_t *readers = costs->readers;
    costs->shown.skip_count = 0;
    for (uint32_t s = 0; s < layers->skip_count; s++) {
        struct weir_skip_route *to = &costs->skips[costs->shown.skip_count];
        uint32_t source = costs->stage_of[layers->skips[s].source], before = source;
        *to = layers->skips[s];
        to->source = source;
        to->reader_count = 0;
        for (uint32_t r = 0; r < layers->skips[s].reader_count; r++) {
            uint32_t stage = costs->stage_of[layers->skips[s].readers[r]];
            assert(stage >= before && stage < costs->shown.stage_count);
            if (stage != before) readers[to->reader_count++] = stage;
            before = stage;
        }
        if (to->reader_count == 0) continue;
        costs->shown.skip_count++;
        to->readers = readers;
        readers += to->reader_count;
    }
}

int weir_stage_costs_fill(struct weir_stage_costs *costs, const uint32_t *sizes, uint32_t stages) {
    return weir_stage_costs_fill_on(costs, sizes, stages, NULL, NULL);
}

int weir_stage_costs_fill_on(struct weir_stage_costs *costs, const uint32_t *sizes, uint32_t stages,
                             const struct weir_worker_cost *workers,
                             const uint32_t *stage_workers) {
    static const struct weir_worker_cost alike = {0, 1};
    struct stage_costs *inside = (struct stage_costs *)costs;
    assert(inside->layers != NULL && sizes != NULL);
    assert(workers == NULL || stage_workers != NULL);
    uint64_t sum = 0;
    bool valid = stages >= 1 && stages <= inside->capacity;
    for (uint32_t s = 0; valid && s < stages; s++) {
        valid = sizes[s] >= 1;
        if (valid && workers != NULL)
            valid = weir__worker_cost_is_valid(inside->layers, &workers[stage_workers[s]]);
        sum += sizes[s];
    }
    if (!valid || sum != inside->layers->layer_count) return WEIR_ERR_ARGUMENT;
    costs->stage_count = stages;
    for (uint32_t s = 0, layer = 0; s < stages; s++) {
        const struct weir_worker_cost *worker =
            workers != NULL ? &workers[stage_workers[s]] : &alike;
        fill_stage(inside, &inside->list[s], layer, sizes[s], worker);
        for (uint32_t i = 0; i < sizes[s]; i++) inside->stage_of[layer++] = s;
    }
    fill_skips(inside);
    return WEIR_OK;
}

/* ---- for the simulator ---- */

static double mean_forward(const struct weir_stage_cost *stage, enum weir_checkpoint mode,
                           uint32_t micro_batches) {
    assert(micro_batches > 0);
    if (mode == WEIR_CHECKPOINT_DEFAULT) mode = WEIR_CHECKPOINT_EXCEPT_LAST;
    double part = (double)weir_checkpoint_count(mode, micro_batches) / micro_batches;
    assert(part >= 0 && part <= 1);
    if (stage->no_backward) part = 0;
    return weir__mean_forward(stage, part);
}

int weir_stage_costs_simulate(struct weir_stage_costs *costs, enum weir_checkpoint checkpoint,
                              const enum weir_checkpoint *stage_checkpoint, uint32_t micro_batches,
                              struct weir_simulate_options *options) {
    struct stage_costs *inside = (struct stage_costs *)costs;
    assert(costs->stage_count <= inside->capacity && options != NULL);
    if (costs->stage_count == 0 || micro_batches == 0) return WEIR_ERR_ARGUMENT;
    for (uint32_t s = 0; s < costs->stage_count; s++) {
        const struct weir_stage_cost *stage = &inside->list[s];
        double *seconds = &inside->seconds[s * (size_t)WEIR_KIND_COUNT];
        enum weir_checkpoint mode = stage_checkpoint == NULL ? checkpoint : stage_checkpoint[s];
        if (mode == WEIR_CHECKPOINT_DEFAULT) mode = checkpoint;
        memcpy(seconds, stage->seconds, sizeof stage->seconds);
        seconds[WEIR_KIND_F] = mean_forward(stage, mode, micro_batches);
        inside->border_bytes[s] = stage->border;
        inside->differentiable[s] = stage->border_gradient > 0;
        inside->saved_bytes[s] = stage->saved;
        inside->kept_bytes[s] = s == 0 || stage->no_backward ? 0 : inside->list[s - 1].border;
        inside->no_backward[s] = stage->no_backward;
    }
    options->stage_seconds = inside->seconds;
    options->border_bytes = inside->border_bytes;
    options->border_differentiable = inside->differentiable;
    options->skip_count = costs->skip_count;
    options->skips = inside->skips;
    options->saved_bytes = inside->saved_bytes;
    options->kept_bytes = inside->kept_bytes;
    options->no_backward = inside->no_backward;
    return WEIR_OK;
}
