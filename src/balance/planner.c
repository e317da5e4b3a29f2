/* SPDX-License-Identifier: MIT */
/* The planner's result. The caller is asked for the bytes of a try only where they can matter:
 * tries come from the fastest on, and one is asked for if its estimate is below all bytes known so
 * far. */
#include "balance/planner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHARING_MOST = 4, SHARING_QUICK = 2, ASKS_DEFAULT = 48, LEAST_ASKS = 8, LIMIT_ASKS = 16 };
enum { RUNNER_ASKS = 6, CELLS_LARGE = 4096 };
/* Estimates may be too high: exact bytes are hoped to be this part of them. */
static const double hope = 0.6;

int weir_planner_new(const struct weir_allocator *allocator, struct weir_planner **planner) {
    struct weir_planner *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->allocator = allocator;
    weir__pool_init(&made->pool, allocator);
    int status = weir_simulator_new(allocator, &made->simulator);
    if (status != WEIR_OK) {
        weir__release(allocator, made, 1, sizeof *made);
        return status;
    }
    *planner = made;
    return WEIR_OK;
}

void weir_planner_destroy(struct weir_planner *planner) {
    if (planner == NULL) return;
    weir__planner_end(planner);
    weir__pool_clean_up(&planner->pool);
    weir_simulator_destroy(planner->simulator);
    weir__release(planner->allocator, planner, 1, sizeof *planner);
}

/* ---- a search's memory ---- */

bool weir__planner_is_quick(const struct weir_planner_options *options) {
    uint32_t most = options->micro_batches;
    for (uint32_t i = 0; i < options->other_count; i++)
        if (options->others[i].micro_batches > most) most = options->others[i].micro_batches;
    uint64_t replicas = options->shared != NULL ? options->shared->replicas : 1;
    bool large = replicas * options->workers * most > CELLS_LARGE;
    return large || options->effort == WEIR_PLANNER_QUICK;
}

static uint32_t sharing_most(const struct weir_planner_options *options) {
    return weir__planner_is_quick(options) ? SHARING_QUICK : SHARING_MOST;
}

static bool take_room(struct weir_planner *planner) {
    struct weir__pool *pool = &planner->pool;
    size_t stages = planner->stages_most, workers = planner->options->workers;
    size_t sets = planner->options->worker_costs != NULL ? workers : 1;
    planner->weights =
        weir__pool_take(pool, sets * planner->options->costs->layer_count, sizeof(double));
    planner->sizes = weir__pool_take(pool, stages, sizeof(uint32_t));
    planner->modes = weir__pool_take(pool, stages, sizeof(enum weir_checkpoint));
    planner->table_modes = weir__pool_take(pool, stages, sizeof(enum weir_checkpoint));
    planner->saved = weir__pool_take(pool, stages, sizeof(uint64_t));
    planner->kept = weir__pool_take(pool, stages, sizeof(uint64_t));
    planner->gradients = weir__pool_take(pool, stages, sizeof(uint64_t));
    planner->lasting = weir__pool_take(pool, workers, sizeof(uint64_t));
    planner->largest = weir__pool_take(pool, workers, sizeof(uint64_t));
    planner->no_backward = weir__pool_take(pool, stages, sizeof(bool));
    planner->shares = weir__pool_take(pool, stages, sizeof(struct weir__share));
    return planner->weights != NULL && planner->sizes != NULL && planner->modes != NULL &&
           planner->table_modes != NULL && planner->saved != NULL && planner->kept != NULL &&
           planner->lasting != NULL && planner->largest != NULL && planner->no_backward != NULL &&
           planner->shares != NULL;
}

static int take_chunks(struct weir_planner *planner, const struct weir_planner_chunks *from) {
    assert(planner->chunk_count <= planner->options->other_count);
    struct weir__chunks *chunks = &planner->chunks[planner->chunk_count];
    *chunks = (struct weir__chunks){.micro_batches = from->micro_batches,
                                    .layers = from->costs,
                                    .scale = from->micro_batch_scale,
                                    .scale_sum = from->micro_batches,
                                    .least = 1,
                                    .most = 1};
    if (chunks->scale != NULL) {
        chunks->scale_sum = 0;
        chunks->least = chunks->most = chunks->scale[0];
    }
    for (uint32_t i = 0; chunks->scale != NULL && i < chunks->micro_batches; i++) {
        chunks->scale_sum += chunks->scale[i];
        chunks->least = fmin(chunks->least, chunks->scale[i]);
        chunks->most = fmax(chunks->most, chunks->scale[i]);
    }
    int status = weir_stage_costs_new(from->costs, planner->stages_most, planner->allocator,
                                      &chunks->stages);
    planner->chunk_count += status == WEIR_OK;
    return status;
}

static int take_all_chunks(struct weir_planner *planner) {
    const struct weir_planner_options *options = planner->options;
    struct weir_planner_chunks first = {options->micro_batches, options->costs,
                                        options->micro_batch_scale};
    planner->chunks = weir__pool_take(&planner->pool, (size_t)options->other_count + 1,
                                      sizeof planner->chunks[0]);
    if (planner->chunks == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = take_chunks(planner, &first);
    if (status != WEIR_OK) return status;
    planner->costs = planner->chunks[0].stages;
    for (uint32_t i = 0; i < options->other_count; i++)
        if ((status = take_chunks(planner, &options->others[i])) != WEIR_OK) return status;
    return WEIR_OK;
}

int weir__planner_begin(struct weir_planner *planner, const struct weir_planner_options *options) {
    assert(options->workers > 0 && options->workers <= options->costs->layer_count);
    uint32_t layers = options->costs->layer_count;
    uint64_t stages = (uint64_t)options->workers * sharing_most(options);
    if (stages < options->stages) stages = options->stages;
    weir__pool_clean_up(&planner->pool);
    weir__pool_init(&planner->pool, planner->allocator);
    planner->options = options;
    planner->stages_most = stages < layers ? (uint32_t)stages : layers;
    planner->shapes = NULL;
    planner->points = NULL;
    planner->shape_count = planner->point_count = planner->point_capacity = 0;
    planner->table = NULL;
    planner->chunks = NULL;
    planner->chunk_count = 0;
    planner->tries = planner->asks = 0;
    planner->status = WEIR_OK;
    planner->replicas = options->shared != NULL ? options->shared->replicas : 1;
    if (!take_room(planner)) return WEIR_ERR_OUT_OF_MEMORY;
    if (options->shared != NULL) planner->shared = *options->shared;
    planner->shared.gradient_bytes = planner->gradients;
    planner->shared.parameter_bytes = NULL;
    return take_all_chunks(planner);
}

void weir__planner_end(struct weir_planner *planner) {
    weir_table_destroy(planner->table);
    for (uint32_t i = 0; i < planner->chunk_count; i++)
        weir_stage_costs_destroy(planner->chunks[i].stages);
    planner->table = NULL;
    planner->chunk_count = 0;
    planner->costs = NULL;
}

/* ---- what was asked for ---- */

static void check_fixed(const struct weir_planner_options *options, struct weir_faults *faults) {
    uint32_t layers = options->costs->layer_count;
    uint64_t sum = 0;
    if (options->stages > layers)
        weir_faults_add(faults, "%u stages of %u layer%s: choose %u to %u", options->stages, layers,
                        weir__s(layers), options->workers, layers);
    else if (options->stages > 0 && options->stages < options->workers)
        weir_faults_add(faults, "%u stage%s on %u workers: ask for %u worker%s, or more stages",
                        options->stages, weir__s(options->stages), options->workers,
                        options->stages, weir__s(options->stages));
    if (options->balance != NULL && options->stages == 0)
        weir_faults_add(faults, "a balance without the number of stages: give both");
    for (uint32_t s = 0; options->balance != NULL && s < options->stages; s++)
        sum = options->balance[s] == 0 ? UINT32_MAX : sum + options->balance[s];
    if (options->balance != NULL && options->stages > 0 && sum != layers)
        weir_faults_add(faults, "the balance does not give %u layer%s to %u stage%s of one or more",
                        layers, weir__s(layers), options->stages, weir__s(options->stages));
    if (options->stage_checkpoint != NULL && options->stages == 0)
        weir_faults_add(faults, "checkpoint modes of stages without their number: give both");
}

static void check_chunks(const struct weir_planner_options *options, struct weir_faults *faults) {
    uint32_t layers = options->costs->layer_count;
    bool none = options->micro_batches < 1;
    for (uint32_t i = 0; i < options->other_count; i++) {
        const struct weir_planner_chunks *other = &options->others[i];
        none |= other->micro_batches < 1;
        if (other->costs->layer_count != layers)
            weir_faults_add(faults,
                            "costs of %u layer%s for %u micro-batch%s, of %u for %u: give "
                            "those of one list",
                            other->costs->layer_count, weir__s(other->costs->layer_count),
                            other->micro_batches, weir__es(other->micro_batches), layers,
                            options->micro_batches);
    }
    if (none) weir_faults_add(faults, "no micro-batch: ask for 1 or more");
}

/* All costs have each worker's kind. */
static void check_workers(const struct weir_planner_options *options, struct weir_faults *faults) {
    for (uint32_t w = 0; options->worker_costs != NULL && w < options->workers; w++) {
        const struct weir_worker_cost *worker = &options->worker_costs[w];
        bool valid = weir__worker_cost_is_valid(options->costs, worker);
        for (uint32_t i = 0; i < options->other_count; i++)
            valid = valid && weir__worker_cost_is_valid(options->others[i].costs, worker);
        if (!valid)
            weir_faults_add(faults,
                            "worker %u: no costs of its kind, number %u, for all layers, or a pace "
                            "of %g: give them, and a pace of 0 or more",
                            w, worker->kind, worker->pace);
    }
}

static bool are_sound(const struct weir_planner_options *options) {
    bool sound = weir__is_sized(options) && options->costs != NULL &&
                 options->other_count <= WEIR_PLANNER_OTHERS_MOST &&
                 (options->other_count == 0 || options->others != NULL);
    for (uint32_t i = 0; sound && i < options->other_count; i++)
        sound = options->others[i].costs != NULL;
    return sound;
}

static int check(const struct weir_planner_options *options, struct weir_faults *faults) {
    struct weir_faults own = WEIR_FAULTS_INIT;
    if (!are_sound(options)) return WEIR_ERR_ARGUMENT;
    if (faults != NULL) own.allocator = faults->allocator;
    uint32_t layers = options->costs->layer_count;
    if (options->workers < 1 || options->workers > layers)
        weir_faults_add(&own, "%u worker%s for %u layer%s: choose 1 to %u", options->workers,
                        weir__s(options->workers), layers, weir__s(layers), layers);
    else
        check_fixed(options, &own);
    if (!(options->step_slack >= 0 && options->step_slack <= 1))
        weir_faults_add(&own, "a slack of %g: give 0 to 1", options->step_slack);
    uint32_t replicas = options->shared != NULL ? options->shared->replicas : 1;
    if (options->ranks != NULL)
        weir__check_rank_links(options->ranks, replicas * options->workers, &own);
    if (replicas == 0 || (options->ranks != NULL && options->ranks->rank_count % replicas != 0))
        weir_faults_add(&own, "%u replica%s of the ranks: give a number that divides theirs",
                        replicas, weir__s(replicas));
    check_chunks(options, &own);
    if (own.count == 0) check_workers(options, &own);
    for (uint32_t i = 0; i < own.kept; i++) weir_faults_add(faults, "%s", own.lines[i]);
    int status = own.count > 0 ? WEIR_ERR_ARGUMENT : WEIR_OK;
    weir_faults_clean_up(&own);
    return status;
}

/* ---- asking ---- */

struct ranking {
    struct weir_planner *planner;
    uint32_t *order; /* of the points that are kept */
    uint32_t count;
};

struct ranked {
    double first, second;
    uint32_t point;
};

static int by_rank(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    if (x->second != y->second) return x->second < y->second ? -1 : 1;
    return (x->point > y->point) - (x->point < y->point);
}

int weir__planner_rank(struct weir_planner *planner, enum weir__rank by, bool base_only,
                       uint32_t **order, uint32_t *count) {
    struct ranked *list = weir__pool_take(&planner->pool, planner->point_count, sizeof *list);
    *order = weir__pool_take(&planner->pool, planner->point_count, sizeof **order);
    *count = 0;
    if (list == NULL || *order == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < planner->shape_count; i++)
        for (uint32_t k = 0; k < planner->shapes[i].count; k++) {
            uint32_t index = planner->shapes[i].points[k];
            const struct weir__point *point = &planner->points[index];
            double bytes = (double)(by == WEIR__BY_LEAST ? point->least : point->estimate);
            bool steps = by == WEIR__BY_STEP;
            if (base_only && !point->base) continue;
            list[(*count)++] =
                (struct ranked){steps ? point->step : bytes, steps ? bytes : point->step, index};
        }
    assert(*count <= planner->point_count);
    qsort(list, *count, sizeof *list, by_rank);
    for (uint32_t i = 0; i < *count; i++) (*order)[i] = list[i].point;
    return WEIR_OK;
}

static double promise(const struct weir_planner *planner, const struct weir__point *point) {
    assert(point->tried.shape < planner->shape_count);
    double ratio = planner->shapes[point->tried.shape].exact_ratio;
    if (planner->options->memory == NULL) return (double)point->estimate;
    return (double)point->estimate * (ratio > 0 ? ratio : hope);
}

/* How much smaller the next has to be, so that so many asks reach from the largest to the smallest.
 */
static double gap_for(const struct weir_planner *planner, const uint32_t *order, uint32_t count,
                      uint32_t asks) {
    double least = HUGE_VAL, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        double estimate = (double)planner->points[order[i]].estimate;
        least = estimate < least ? estimate : least;
        most = estimate > most ? estimate : most;
    }
    if (asks < 2 || !(least > 0)) return 1.0;
    return pow(least / most, 1.0 / (asks - 1));
}

/* From the fastest on, what promises to be smaller than all before. */
static int ask_front(struct weir_planner *planner) {
    uint32_t *order, count, most = planner->options->memory_asks;
    double least = HUGE_VAL, gap = 1.0;
    int status = weir__planner_rank(planner, WEIR__BY_STEP, false, &order, &count);
    if (status != WEIR_OK) return status;
    if (most == 0) most = ASKS_DEFAULT;
    if (planner->options->memory == NULL)
        most = UINT32_MAX;
    else if (count > most)
        gap = gap_for(planner, order, count, most);
    for (uint32_t i = 0; i < count && most > 0; i++) {
        struct weir__point *point = &planner->points[order[i]];
        if (promise(planner, point) >= least * gap) continue;
        if ((status = weir__planner_ask(planner, point)) != WEIR_OK) return status;
        most--;
        if (!point->refused && (double)point->bytes < least) least = (double)point->bytes;
    }
    return WEIR_OK;
}

/* Those that may be the smallest of all, whatever the limit is. */
static int ask_smallest(struct weir_planner *planner, uint64_t *least) {
    bool quick = weir__planner_is_quick(planner->options);
    uint32_t *order, count;
    int status = weir__planner_rank(planner, WEIR__BY_ESTIMATE, quick, &order, &count);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < count && i < LEAST_ASKS; i++) {
        struct weir__point *point = &planner->points[order[i]];
        if ((status = weir__planner_ask(planner, point)) != WEIR_OK) return status;
        if (point->refused) continue;
        if (*least == 0 || point->bytes < *least) *least = point->bytes;
    }
    return WEIR_OK;
}

static bool fits(const struct weir_planner *planner, const struct weir__point *point) {
    uint64_t limit = planner->options->memory_limit;
    return point->asked && !point->refused && (limit == 0 || point->bytes <= limit);
}

static bool is_better(const struct weir__point *point, const struct weir__point *than) {
    if (than == NULL || point->step != than->step) return than == NULL || point->step < than->step;
    return point->bytes < than->bytes;
}

/* The best that fits, not of `not_shape`. */
static struct weir__point *best(struct weir_planner *planner, uint32_t not_shape) {
    struct weir__point *found = NULL;
    for (uint32_t i = 0; i < planner->shape_count; i++)
        for (uint32_t k = 0; k < planner->shapes[i].count && i != not_shape; k++) {
            struct weir__point *point = &planner->points[planner->shapes[i].points[k]];
            if (fits(planner, point) && is_better(point, found)) found = point;
        }
    return found;
}

/* What is asked for until one of it fits. */
struct wish {
    uint32_t not_shape; /* UINT32_MAX: any */
    bool chunks_kept;   /* only what was asked for */
    uint32_t most;      /* asks */
};

/* The fastest that fits, of what promises to be within the limit. */
static int ask_within(struct weir_planner *planner, struct wish wish) {
    uint32_t *order, count;
    double limit = (double)planner->options->memory_limit;
    int status = weir__planner_rank(planner, WEIR__BY_STEP, false, &order, &count);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < count && wish.most > 0; i++) {
        struct weir__point *point = &planner->points[order[i]];
        if (point->tried.shape == wish.not_shape) continue;
        if (wish.chunks_kept && planner->shapes[point->tried.shape].chunks > 0) continue;
        if (limit > 0 && !point->asked && promise(planner, point) > limit) continue;
        wish.most -= !point->asked;
        if ((status = weir__planner_ask(planner, point)) != WEIR_OK) return status;
        if (fits(planner, point)) break;
    }
    return WEIR_OK;
}

/* ---- what is said ---- */

static struct weir_planner_choice choice_of(const struct weir_planner *planner,
                                            const struct weir__point *point) {
    struct weir_planner_choice choice = weir__planner_choose(planner, point);
    choice.exact = planner->options->memory != NULL;
    choice.fits = fits(planner, point);
    return choice;
}

/* The idle time's causes; what is left of busy without recompute is work. */
static void fill_parts(const struct weir_planner *planner, const struct weir__try *tried,
                       const struct weir_prediction *prediction,
                       struct weir_planner_choice *choice) {
    uint32_t workers = prediction->worker_count, all = workers * prediction->replicas;
    assert(workers == planner->options->workers);
    struct weir_planner_parts *parts = &choice->parts;
    double busy = 0;
    for (uint32_t w = 0; w < all; w++) {
        const struct weir_predicted_worker *worker = &prediction->workers[w];
        busy += worker->busy;
        parts->bubble += worker->dependency / all;
        parts->imbalance += worker->imbalance / all;
        parts->copies += worker->copy / all;
        parts->host += worker->host / all;
    }
    parts->recompute = weir__planner_recompute_time(planner, tried) / workers;
    parts->work = busy / all - parts->recompute;
    parts->shared = planner->replicas > 1 ? prediction->total - prediction->step : 0;
    choice->bubble = prediction->bubble;
    choice->moved_bytes = prediction->moved_bytes;
}

static int tell(struct weir_planner *planner, const struct weir__point *point,
                const struct weir_planner_choice **told) {
    assert(point->asked && !point->refused);
    struct weir_prediction prediction;
    double step;
    uint64_t estimate;
    struct weir_planner_choice *choice = weir__pool_take(&planner->pool, 1, sizeof *choice);
    if (choice == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    *choice = choice_of(planner, point);
    *told = choice;
    int status = weir__planner_try(planner, &point->tried, &step, &estimate, &prediction);
    if (status != WEIR_OK || step >= HUGE_VAL) return status;
    fill_parts(planner, &point->tried, &prediction, choice);
    return WEIR_OK;
}

/* `sizes` are the point's. */
static int try_plain(struct weir_planner *planner, struct weir__point *point, uint32_t *sizes,
                     const struct weir_planner_choice **told) {
    assert(sizes == point->tried.sizes && point->tried.modes != NULL);
    int status = weir__planner_cut(planner, point->tried.shape, point->tried.modes[0]);
    if (status != WEIR_OK) return status;
    memcpy(sizes, planner->sizes, planner->options->workers * sizeof *sizes);
    status = weir__planner_try(planner, &point->tried, &point->step, &point->estimate, NULL);
    if (status != WEIR_OK || point->step >= HUGE_VAL) return status;
    status = weir__planner_ask(planner, point);
    return status != WEIR_OK || point->refused ? status : tell(planner, point, told);
}

/* 1f1b as it comes, in a shape of its own, whatever is fixed. */
static int tell_plain(struct weir_planner *planner, const struct weir_planner_choice **told) {
    struct weir_planner_options options = *planner->options;
    uint32_t workers = options.workers, index = planner->shape_count;
    struct weir__shape *shape = &planner->shapes[index];
    uint32_t *sizes = weir__pool_take(&planner->pool, workers, sizeof *sizes);
    enum weir_checkpoint *modes = weir__pool_take(&planner->pool, workers, sizeof *modes);
    *shape = (struct weir__shape){.schedule = "1f1b", .stages = workers};
    shape->workers = weir__pool_take(&planner->pool, workers, sizeof(uint32_t));
    if (sizes == NULL || modes == NULL || shape->workers == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    enum weir_checkpoint mode = options.checkpoint;
    if (mode == WEIR_CHECKPOINT_DEFAULT) mode = WEIR_CHECKPOINT_EXCEPT_LAST;
    for (uint32_t w = 0; w < workers; w++) shape->workers[w] = w, modes[w] = mode;
    options.balance = NULL;
    const struct weir_planner_options *own = planner->options;
    struct weir__point point = {.tried = {.shape = index, .sizes = sizes, .modes = modes}};
    planner->options = &options;
    int status = try_plain(planner, &point, sizes, told);
    planner->options = own;
    return status;
}

static int fill_front(struct weir_planner *planner, struct weir_planner_result *result) {
    uint32_t *order, count;
    int status = weir__planner_rank(planner, WEIR__BY_STEP, false, &order, &count);
    if (status != WEIR_OK) return status;
    struct weir_planner_choice *front = weir__pool_take(&planner->pool, count, sizeof *front);
    if (front == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const struct weir__point *point = &planner->points[order[i]];
        if (!point->asked || point->refused || point->bytes >= least) continue;
        least = point->bytes;
        /* equally fast and smaller: that one alone */
        bool same = result->front_count > 0 && front[result->front_count - 1].step == point->step;
        result->front_count -= same;
        front[result->front_count++] = choice_of(planner, point);
    }
    result->front = front;
    return WEIR_OK;
}

/* With little effort the limit decides what is tried. The least limit that a refusal names must not
 * depend on that. */
static void find_least(struct weir_planner *planner, struct weir_planner_result *result) {
    for (uint32_t i = 0; i < planner->shape_count; i++)
        for (uint32_t k = 0; k < planner->shapes[i].count; k++) {
            const struct weir__point *point = &planner->points[planner->shapes[i].points[k]];
            if (point->asked && !point->refused && point->bytes < result->smallest_limit)
                result->smallest_limit = point->bytes;
        }
}

/* Of two that are about as fast: with the results of the chunks that were asked for, or smaller. */
static bool is_preferred(const struct weir_planner *planner, const struct weir__point *point,
                         const struct weir__point *to) {
    bool kept = planner->shapes[point->tried.shape].chunks == 0;
    bool other_kept = planner->shapes[to->tried.shape].chunks == 0;
    if (kept != other_kept) return kept;
    return point->bytes < to->bytes || (point->bytes == to->bytes && point->step < to->step);
}

/* Among those that are hardly slower than the fastest. */
static const struct weir__point *choose(struct weir_planner *planner) {
    const struct weir__point *chosen = best(planner, UINT32_MAX);
    double most = chosen == NULL ? 0 : chosen->step * (1 + planner->options->step_slack);
    for (uint32_t i = 0; chosen != NULL && i < planner->shape_count; i++)
        for (uint32_t k = 0; k < planner->shapes[i].count; k++) {
            const struct weir__point *point = &planner->points[planner->shapes[i].points[k]];
            if (fits(planner, point) && point->step <= most && is_preferred(planner, point, chosen))
                chosen = point;
        }
    return chosen;
}

static int tell_best(struct weir_planner *planner, struct weir_planner_result *result) {
    const struct weir__point *winner = choose(planner);
    if (winner == NULL) return WEIR_OK;
    int status = ask_within(planner, (struct wish){winner->tried.shape, false, RUNNER_ASKS});
    if (status != WEIR_OK) return status;
    const struct weir__point *second = best(planner, winner->tried.shape);
    if ((status = tell(planner, winner, &result->winner)) != WEIR_OK) return status;
    return second != NULL ? tell(planner, second, &result->runner_up) : WEIR_OK;
}

/* What a refusal names is the least of everything, if that can be known. */
static int ask_least(struct weir_planner *planner, struct weir_planner_result *result) {
    bool quick = weir__planner_is_quick(planner->options);
    uint64_t limit = planner->options->memory_limit;
    int status = ask_smallest(planner, &result->smallest_limit);
    if (status != WEIR_OK) return status;
    if (!quick) find_least(planner, result);
    if (limit == 0 || (result->smallest_limit != 0 && limit >= result->smallest_limit))
        return WEIR_OK;
    return weir__planner_prove_least(planner, &result->smallest_limit, &result->is_smallest);
}

/* The smallest limit is found before anything is tried towards the limit, so that what a refusal
 * names does not depend on it. */
static int conclude(struct weir_planner *planner, struct weir_planner_result *result) {
    assert(planner->shape_count > 0);
    bool quick = weir__planner_is_quick(planner->options);
    int status = ask_front(planner);
    if (status != WEIR_OK) return status;
    if ((status = ask_least(planner, result)) != WEIR_OK) return status;
    const struct weir__point *fastest = best(planner, UINT32_MAX);
    double step = fastest != NULL ? fastest->step : HUGE_VAL;
    if (planner->options->memory_limit >= result->smallest_limit &&
        (status = weir__planner_approach(planner, step)) != WEIR_OK)
        return status;
    status = ask_within(planner, (struct wish){UINT32_MAX, false, LIMIT_ASKS});
    if (status != WEIR_OK) return status;
    struct wish kept = {UINT32_MAX, true, RUNNER_ASKS};
    if (planner->chunk_count > 1 && (status = ask_within(planner, kept)) != WEIR_OK) return status;
    if (planner->options->memory_limit >= result->smallest_limit &&
        (status = weir__planner_prove_fastest(planner)) != WEIR_OK)
        return status;
    if ((status = tell_best(planner, result)) != WEIR_OK) return status;
    if (quick && result->winner != NULL) find_least(planner, result);
    if ((status = fill_front(planner, result)) != WEIR_OK) return status;
    if ((status = tell_plain(planner, &result->plain)) != WEIR_OK) return status;
    result->tries = planner->tries;
    result->asks = planner->asks;
    return result->winner == NULL ? WEIR_ERR_MEMORY_LIMIT : WEIR_OK;
}

static int search(struct weir_planner *planner, const struct weir_planner_options *options,
                  struct weir_faults *faults, struct weir_planner_result *result) {
    int status = weir__planner_begin(planner, options);
    if (status != WEIR_OK) return status;
    status = weir__planner_shapes(planner, sharing_most(options), faults);
    if (status != WEIR_OK) return status;
    if ((status = weir__planner_walk(planner)) != WEIR_OK) return status;
    return conclude(planner, result);
}

int weir_planner_search(struct weir_planner *planner, const struct weir_planner_options *options,
                        struct weir_faults *faults, struct weir_planner_result *result) {
    struct weir_planner_result own = {0};
    int status = check(options, faults);
    if (status != WEIR_OK) return status;
    status = search(planner, options, faults, &own);
    weir__planner_end(planner);
    if (status == WEIR_OK || status == WEIR_ERR_MEMORY_LIMIT) *result = own;
    return status;
}
