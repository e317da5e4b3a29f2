/* SPDX-License-Identifier: MIT */
/* From layers to stages. Sums go over the layers each time: lists are short, and the sums must not
 * depend on what was asked before. */
#include "balance/balance.h"

#include <string.h>

struct stage_costs {
    struct weir_stage_costs public; /* first */
    const struct weir_layer_costs *layers;
    uint32_t capacity;
    struct weir_stage_cost *list;
    struct weir_stage_skip *skips;
    uint32_t *readers;  /* room for every skip's */
    uint32_t *stage_of; /* [layer] */
    struct weir__pool pool;
};

static bool skips_are_valid(const struct weir_layer_costs *layers, size_t *readers) {
    *readers = 0;
    for (uint32_t s = 0; s < layers->skip_count; s++) {
        const struct weir_layer_skip *skip = &layers->skips[s];
        uint32_t before = skip->source;
        for (uint32_t r = 0; r < skip->reader_count; before = skip->readers[r++])
            if (skip->readers[r] <= before || skip->readers[r] >= layers->layer_count) return false;
        if (skip->source >= layers->layer_count) return false;
        *readers += skip->reader_count;
    }
    return true;
}

int weir_stage_costs_new(const struct weir_layer_costs *layers, uint32_t stages,
                         const struct weir_allocator *allocator, struct weir_stage_costs **costs) {
    size_t readers;
    if (layers->layer_count == 0 || stages == 0 || stages > layers->layer_count ||
        !skips_are_valid(layers, &readers))
        return WEIR_ERR_ARGUMENT;
    struct weir__pool pool;
    weir__pool_init(&pool, allocator);
    struct stage_costs *made = weir__pool_take(&pool, 1, sizeof *made);
    struct weir_stage_cost *list = weir__pool_take(&pool, stages, sizeof *list);
    struct weir_stage_skip *skips = weir__pool_take(&pool, layers->skip_count, sizeof *skips);
    uint32_t *of_skips = weir__pool_take(&pool, readers, sizeof *of_skips);
    uint32_t *stage_of = weir__pool_take(&pool, layers->layer_count, sizeof *stage_of);
    if (made == NULL || list == NULL || skips == NULL || of_skips == NULL || stage_of == NULL) {
        weir__pool_clean_up(&pool);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    *made = (struct stage_costs){.public = {.list = list, .skips = skips},
                                 .layers = layers,
                                 .capacity = stages,
                                 .list = list,
                                 .skips = skips,
                                 .readers = of_skips,
                                 .stage_of = stage_of,
                                 .pool = pool};
    *costs = &made->public;
    return WEIR_OK;
}

void weir_stage_costs_destroy(struct weir_stage_costs *costs) {
    if (costs == NULL) return;
    struct weir__pool pool = ((struct stage_costs *)costs)->pool; /* which holds itself */
    weir__pool_clean_up(&pool);
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

/** What the stage's end changes: its output is the border's, and nothing here reads it again. */
static void close_stage(struct weir_stage_cost *stage, const struct weir_layer_cost *last) {
    stage->seconds[WEIR_KIND_R] += last->recompute_last - last->seconds[WEIR_KIND_R];
    if (stage->seconds[WEIR_KIND_R] < 0) stage->seconds[WEIR_KIND_R] = 0; /* rounding */
    stage->saved -= last->saved_output;
    stage->border = last->border;
    stage->border_gradient = last->border_gradient;
}

static void add_tasks(struct weir_stage_cost *stage, double task_seconds) {
    stage->seconds[WEIR_KIND_F] += task_seconds;
    stage->forward_checkpoint += task_seconds;
    if (stage->no_backward) return;
    stage->seconds[WEIR_KIND_R] += task_seconds;
    stage->seconds[WEIR_KIND_B] += task_seconds;
    stage->seconds[WEIR_KIND_I] += task_seconds;
    stage->seconds[WEIR_KIND_W] += task_seconds;
}

static void fill_stage(const struct stage_costs *costs, struct weir_stage_cost *stage,
                       uint32_t first, uint32_t count) {
    const struct weir_layer_cost *layers = costs->layers->layers;
    *stage =
        (struct weir_stage_cost){.layer_first = first, .layer_count = count, .no_backward = true};
    for (uint32_t i = first; i < first + count; i++) add_layer(stage, &layers[i]);
    close_stage(stage, &layers[first + count - 1]);
    add_tasks(stage, costs->layers->task_seconds);
    if (!stage->no_backward) return;
    stage->saved = stage->weight_saved = 0;
    stage->seconds[WEIR_KIND_R] = 0;
}

/* ---- skips ---- */

static void fill_skips(struct stage_costs *costs) {
    const struct weir_layer_costs *layers = costs->layers;
    uint32_t *readers = costs->readers;
    costs->public.skip_count = 0;
    for (uint32_t s = 0; s < layers->skip_count; s++) {
        const struct weir_layer_skip *from = &layers->skips[s];
        uint32_t source = costs->stage_of[from->source], count = 0, before = source;
        for (uint32_t r = 0; r < from->reader_count; r++) {
            uint32_t stage = costs->stage_of[from->readers[r]];
            if (stage != before) readers[count++] = stage;
            before = stage;
        }
        if (count == 0) continue;
        costs->skips[costs->public.skip_count++] =
            (struct weir_stage_skip){.skip = s,
                                     .source = source,
                                     .reader_count = count,
                                     .readers = readers,
                                     .bytes = from->bytes,
                                     .differentiable = from->differentiable};
        readers += count;
    }
}

int weir_stage_costs_fill(struct weir_stage_costs *costs, const uint32_t *sizes, uint32_t stages) {
    struct stage_costs *inside = (struct stage_costs *)costs;
    uint64_t sum = 0;
    bool valid = stages >= 1 && stages <= inside->capacity;
    for (uint32_t s = 0; valid && s < stages; s++) {
        valid = sizes[s] >= 1;
        sum += sizes[s];
    }
    if (!valid || sum != inside->layers->layer_count) return WEIR_ERR_ARGUMENT;
    costs->stage_count = stages;
    for (uint32_t s = 0, layer = 0; s < stages; s++) {
        fill_stage(inside, &inside->list[s], layer, sizes[s]);
        for (uint32_t i = 0; i < sizes[s]; i++) inside->stage_of[layer++] = s;
    }
    fill_skips(inside);
    return WEIR_OK;
}
