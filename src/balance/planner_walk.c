/* SPDX-License-Identifier: MIT */
/*
 * What is tried. First the even cuts with uniform modes, and from "never" on a path that
 * checkpoints one stage after the other, each time one of the worker that needs most. Then, with
 * FULL effort, everything where that is little; else downhill in several mixtures of step and
 * memory, from light memory being worth nothing to it being all that counts: so the front is found
 * in its whole length, whatever the limit is, and a limit only chooses from it.
 */
#include "balance/planner.h"

#include <math.h>
#include <string.h>

enum { SHARING_QUICK = 2, EXHAUSTIVE_MOST = 4000, MIXED_MOST = 3 };
static const uint64_t budget_actions = 20000000;
static const double mixtures[] = {0.0, 0.3, 1.0, HUGE_VAL};
static const enum weir_checkpoint uniform[] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_EXCEPT_LAST,
                                               WEIR_CHECKPOINT_ALWAYS};
enum { UNIFORM = 3, MIXTURES = 4 };

/* ---- shapes ---- */

static int add_shape(struct weir_planner *planner, const char *schedule,
                     const struct weir_table *table) {
    struct weir__shape *shape = &planner->shapes[planner->shape_count];
    *shape = (struct weir__shape){.schedule = schedule, .stages = table->stage_count};
    shape->workers = weir__pool_take(&planner->pool, table->stage_count, sizeof(uint32_t));
    if (shape->workers == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < table->worker_count; w++)
        for (uint32_t a = table->rows[w]; a < table->rows[w + 1]; a++) {
            shape->workers[table->actions[a].stage] = w;
            shape->split |= table->actions[a].kind == WEIR_KIND_I;
        }
    planner->shape_count++;
    return WEIR_OK;
}

static int try_shape(struct weir_planner *planner, const char *schedule, uint32_t stages,
                     struct weir_faults *faults) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table;
    options.allocator = planner->allocator;
    options.schedule = schedule;
    options.stages = stages;
    options.workers = planner->options->workers;
    options.micro_batches = planner->options->micro_batches;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    int status = weir_table_new(&options, faults, &table);
    if (status != WEIR_OK) return status;
    status = add_shape(planner, schedule, table);
    weir_table_destroy(table);
    return status;
}

/* All that the schedule takes, the fewest stages first; with little effort only these. */
static int try_schedule(struct weir_planner *planner, const char *schedule, uint32_t most,
                        struct weir_faults *faults) {
    const struct weir_planner_options *options = planner->options;
    uint32_t layers = options->costs->layer_count, before = planner->shape_count;
    for (uint32_t v = 1; v <= most && v <= layers / options->workers; v++) {
        uint32_t stages = options->stages > 0 ? options->stages : v * options->workers;
        /* why not, is said of what was asked for */
        bool told = options->schedule != NULL && (options->stages > 0 || v == 1);
        struct weir_faults own = WEIR_FAULTS_INIT;
        own.allocator = planner->allocator;
        int status = try_shape(planner, schedule, stages, &own);
        for (uint32_t i = 0; status != WEIR_OK && told && i < own.kept; i++)
            weir_faults_add(faults, "%s", own.lines[i]);
        weir_faults_clean_up(&own);
        if (status != WEIR_OK && status != WEIR_ERR_ARGUMENT && status != WEIR_ERR_CONFIG)
            return status;
        if (options->stages > 0) break;
        bool enough = options->effort == WEIR_PLANNER_QUICK && planner->shape_count > before;
        if (enough) break;
    }
    return WEIR_OK;
}

int weir__planner_shapes(struct weir_planner *planner, uint32_t most, struct weir_faults *faults) {
    const struct weir_planner_options *options = planner->options;
    struct weir_faults own = WEIR_FAULTS_INIT;
    uint32_t names = 1;
    while (weir_schedule_name(names) != NULL) names++;
    planner->shapes = weir__pool_take(&planner->pool, (size_t)names * most + 1, /* and plain */
                                      sizeof planner->shapes[0]);
    if (planner->shapes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    own.allocator = planner->allocator;
    int status = WEIR_OK;
    if (options->schedule != NULL) status = try_schedule(planner, options->schedule, most, &own);
    for (uint32_t i = 0; status == WEIR_OK && options->schedule == NULL && i < names; i++)
        status = try_schedule(planner, weir_schedule_name(i), most, NULL);
    bool none = status == WEIR_OK && planner->shape_count == 0;
    for (uint32_t i = 0; none && i < own.kept; i++) weir_faults_add(faults, "%s", own.lines[i]);
    if (none && own.kept == 0)
        weir_faults_add(faults, "no schedule takes %u stages on %u workers with %u micro-batches",
                        options->stages, options->workers, options->micro_batches);
    weir_faults_clean_up(&own);
    return none ? WEIR_ERR_ARGUMENT : status;
}

/* ---- modes ---- */

static bool modes_are_free(const struct weir_planner *planner) {
    return planner->options->checkpoint == WEIR_CHECKPOINT_DEFAULT &&
           planner->options->stage_checkpoint == NULL;
}

static void set_modes(struct weir_planner *planner, uint32_t stages, enum weir_checkpoint mode) {
    const struct weir_planner_options *options = planner->options;
    for (uint32_t s = 0; s < stages; s++) {
        enum weir_checkpoint own = mode;
        if (options->checkpoint != WEIR_CHECKPOINT_DEFAULT) own = options->checkpoint;
        if (options->stage_checkpoint != NULL &&
            options->stage_checkpoint[s] != WEIR_CHECKPOINT_DEFAULT)
            own = options->stage_checkpoint[s];
        planner->modes[s] = own;
    }
}

static struct weir__try present(const struct weir_planner *planner, uint32_t shape) {
    return (struct weir__try){shape, planner->sizes, planner->modes,
                              planner->options->recompute == WEIR_RECOMPUTE_LATE};
}

/* Even cuts with uniform modes. */
static int try_uniform(struct weir_planner *planner, uint32_t shape, enum weir_checkpoint mode) {
    double step;
    uint64_t estimate;
    int status = weir__planner_cut(planner, shape, mode);
    set_modes(planner, planner->shapes[shape].stages, mode);
    struct weir__try tried = present(planner, shape);
    if (status != WEIR_OK) return status;
    return weir__planner_try_and_keep(planner, &tried, true, &step, &estimate);
}

/* ---- one stage after the other ---- */

struct path {
    uint32_t shape;
    uint64_t *alive; /* [stage]: activations, when nothing is checkpointed */
    uint64_t *bytes; /* [worker]: estimates */
};

static uint64_t saving_of(const struct weir_planner *planner, const struct path *path,
                          uint32_t stage) {
    return path->alive[stage] > 1 ? (path->alive[stage] - 1) * planner->costs->list[stage].saved
                                  : 0;
}

/* Of the worker's stages the one that gives most for its time; UINT32_MAX: none gives anything. */
static uint32_t best_stage(const struct weir_planner *planner, const struct path *path,
                           uint32_t worker) {
    const struct weir__shape *shape = &planner->shapes[path->shape];
    uint32_t best = UINT32_MAX;
    double most = 0;
    for (uint32_t s = 0; s < shape->stages; s++) {
        if (shape->workers[s] != worker || planner->modes[s] != WEIR_CHECKPOINT_NEVER) continue;
        double saving = (double)saving_of(planner, path, s) /
                        (planner->costs->list[s].seconds[WEIR_KIND_R] + 1e-12);
        if (saving <= most) continue;
        most = saving;
        best = s;
    }
    return best;
}

static uint32_t peak_worker(const struct weir_planner *planner, const struct path *path) {
    uint32_t peak = 0;
    for (uint32_t w = 1; w < planner->options->workers; w++)
        if (path->bytes[w] > path->bytes[peak]) peak = w;
    return peak;
}

static bool checkpoint_one(struct weir_planner *planner, const struct path *path, uint32_t worker,
                           enum weir_checkpoint mode) {
    uint32_t stage = best_stage(planner, path, worker);
    if (stage == UINT32_MAX) return false;
    planner->modes[stage] = mode;
    uint64_t saving = saving_of(planner, path, stage);
    path->bytes[worker] -= saving < path->bytes[worker] ? saving : path->bytes[worker];
    return true;
}

static int begin_path(struct weir_planner *planner, struct path *path) {
    struct weir__shape *shape = &planner->shapes[path->shape];
    struct weir_prediction prediction;
    double step;
    uint64_t estimate;
    path->alive = weir__pool_take(&planner->pool, shape->stages, sizeof(uint64_t));
    path->bytes = weir__pool_take(&planner->pool, planner->options->workers, sizeof(uint64_t));
    if (path->alive == NULL || path->bytes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__planner_cut(planner, path->shape, WEIR_CHECKPOINT_NEVER);
    set_modes(planner, shape->stages, WEIR_CHECKPOINT_NEVER);
    struct weir__try tried = present(planner, path->shape);
    if (status == WEIR_OK)
        status = weir__planner_try(planner, &tried, &step, &estimate, &prediction);
    if (status != WEIR_OK || step >= HUGE_VAL) return status;
    memcpy(path->alive, prediction.stage_peak_activations, shape->stages * sizeof(uint64_t));
    for (uint32_t w = 0; w < planner->options->workers; w++)
        path->bytes[w] =
            planner->lasting[w] + planner->largest[w] + prediction.workers[w].peak_bytes;
    return WEIR_OK;
}

/* Down to all that can be; with a limit in one stride to it, and one more where that was not
 * enough. */
static int try_path(struct weir_planner *planner, uint32_t shape, enum weir_checkpoint mode,
                    uint64_t limit) {
    struct path path = {.shape = shape};
    uint32_t strides = limit > 0 ? 2 : UINT32_MAX;
    double step;
    uint64_t estimate = 0;
    int status = begin_path(planner, &path);
    for (uint32_t k = 0; status == WEIR_OK && k < strides; k++) {
        bool changed = false;
        uint64_t target = limit;
        do {
            uint32_t peak = peak_worker(planner, &path);
            if (limit > 0 && path.bytes[peak] <= target) break;
            if (!checkpoint_one(planner, &path, peak, mode)) break;
            changed = true;
        } while (limit > 0);
        if (!changed) break;
        struct weir__try tried = present(planner, shape);
        status = weir__planner_try_and_keep(planner, &tried, false, &step, &estimate);
        if (limit > 0 && estimate <= limit) break;
        /* what was still too much weighs on the next stride */
        for (uint32_t w = 0; limit > 0 && w < planner->options->workers; w++)
            path.bytes[w] += estimate - limit;
    }
    return status;
}

/* ---- everything ---- */

struct visitor {
    struct weir_planner *planner;
    uint32_t shape;
    double mixture;
};

static int visit(void *context, const uint32_t *sizes, double largest) {
    struct visitor *visitor = context;
    struct weir_planner *planner = visitor->planner;
    struct weir__try tried = present(planner, visitor->shape);
    double step;
    uint64_t estimate;
    (void)largest;
    tried.sizes = sizes;
    return weir__planner_try_and_keep(planner, &tried, false, &step, &estimate);
}

static double score(void *context, const uint32_t *sizes) {
    struct visitor *visitor = context;
    struct weir_planner *planner = visitor->planner;
    struct weir__try tried = present(planner, visitor->shape);
    double step;
    uint64_t estimate;
    tried.sizes = sizes;
    if (planner->status == WEIR_OK)
        planner->status = weir__planner_try_and_keep(planner, &tried, false, &step, &estimate);
    if (planner->status != WEIR_OK || step >= HUGE_VAL) return HUGE_VAL;
    if (isinf(visitor->mixture)) return (double)estimate;
    return step * pow((double)estimate, visitor->mixture);
}

static struct weir_partition_options cut_options(const struct weir_planner *planner,
                                                 uint32_t shape) {
    struct weir_partition_options cut = WEIR_PARTITION_OPTIONS_INIT;
    cut.allocator = planner->allocator;
    cut.weights = planner->weights;
    cut.count = planner->options->costs->layer_count;
    cut.parts = planner->shapes[shape].stages;
    cut.workers = planner->options->workers;
    cut.stage_workers = planner->shapes[shape].workers;
    return cut;
}

/* C(n, k), or HUGE_VAL. */
static double choices(uint32_t n, uint32_t k) {
    double all = 1;
    for (uint32_t i = 1; i <= k && all < 1e18; i++) all *= (double)(n - k + i) / i;
    return all;
}

/* The next of 3^stages; false after the last. */
static bool next_modes(enum weir_checkpoint *modes, uint32_t stages) {
    for (uint32_t s = 0; s < stages; s++) {
        if (modes[s] < WEIR_CHECKPOINT_NEVER) {
            modes[s]++;
            return true;
        }
        modes[s] = WEIR_CHECKPOINT_ALWAYS;
    }
    return false;
}

static int try_everything(struct weir_planner *planner, uint32_t shape) {
    struct visitor visitor = {planner, shape, 0};
    uint32_t stages = planner->shapes[shape].stages;
    int status = weir__planner_cut(planner, shape, WEIR_CHECKPOINT_NEVER);
    struct weir_partition_options cut = cut_options(planner, shape);
    set_modes(planner, stages, WEIR_CHECKPOINT_ALWAYS);
    bool more = status == WEIR_OK;
    while (more && status == WEIR_OK) {
        if (planner->options->balance != NULL)
            status = visit(&visitor, planner->options->balance, 0);
        else
            status = weir_partition_each(&cut, HUGE_VAL, visit, &visitor);
        more = modes_are_free(planner) && next_modes(planner->modes, stages);
    }
    return status;
}

/* ---- downhill ---- */

/* For planner->modes, from the cut that planner->weights make even. */
static int go_downhill(struct weir_planner *planner, uint32_t shape, double mixture,
                       uint32_t budget) {
    struct visitor visitor = {planner, shape, mixture};
    struct weir_partition_options cut = cut_options(planner, shape);
    cut.budget = budget;
    int status = weir_partition_search(&cut, score, &visitor, planner->sizes, NULL);
    if (status == WEIR_ERR_NOT_FOUND) status = WEIR_OK;
    return planner->status != WEIR_OK ? planner->status : status;
}

static int try_downhill(struct weir_planner *planner, uint32_t shape, uint32_t budget) {
    uint32_t count = modes_are_free(planner) ? UNIFORM : 1, stages = planner->shapes[shape].stages;
    uint32_t own = budget / ((count + MIXED_MOST) * MIXTURES) + 1;
    int status = WEIR_OK;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t k = 0; k < MIXTURES && status == WEIR_OK; k++) {
            status = weir__planner_cut(planner, shape, uniform[i]); /* sets the weights */
            set_modes(planner, stages, uniform[i]);
            if (status == WEIR_OK) status = go_downhill(planner, shape, mixtures[k], own);
        }
    /* the modes of what was kept, from the fastest to the smallest */
    for (uint32_t i = 0; i < MIXED_MOST && count > 1 && status == WEIR_OK; i++) {
        const struct weir__shape *at = &planner->shapes[shape];
        if (at->count == 0) break;
        uint32_t from = at->points[(2 * i + 1) * at->count / (2 * MIXED_MOST)];
        memcpy(planner->modes, planner->points[from].tried.modes,
               stages * sizeof planner->modes[0]);
        for (uint32_t k = 0; k < MIXTURES && status == WEIR_OK; k++)
            status = go_downhill(planner, shape, mixtures[k], own);
    }
    return status;
}

/* ---- the whole ---- */

static int try_late(struct weir_planner *planner, uint32_t shape) {
    struct weir__shape *at = &planner->shapes[shape];
    uint32_t count = at->count;
    uint32_t *points = weir__pool_copy(&planner->pool, at->points, count, sizeof *points);
    if (points == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        struct weir__try tried = planner->points[points[i]].tried;
        bool any = false;
        double step;
        uint64_t estimate;
        for (uint32_t s = 0; s < at->stages; s++) any |= tried.modes[s] != WEIR_CHECKPOINT_NEVER;
        if (!any) continue;
        tried.late = true;
        int status = weir__planner_try_and_keep(planner, &tried, false, &step, &estimate);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int try_shape_fully(struct weir_planner *planner, uint32_t shape) {
    const struct weir_planner_options *options = planner->options;
    uint32_t stages = planner->shapes[shape].stages, layers = options->costs->layer_count;
    uint64_t cells = (uint64_t)stages * options->micro_batches;
    uint64_t share = planner->actions_left / (planner->shape_count - shape);
    uint64_t budget = share / (4 * cells + 200);
    double all = options->balance != NULL ? 1 : choices(layers - 1, stages - 1);
    if (modes_are_free(planner)) all *= pow(UNIFORM, stages);
    if (budget > EXHAUSTIVE_MOST) budget = EXHAUSTIVE_MOST;
    int status = WEIR_OK;
    if (all <= (double)budget) {
        status = try_everything(planner, shape);
    } else {
        if (modes_are_free(planner)) status = try_path(planner, shape, WEIR_CHECKPOINT_ALWAYS, 0);
        if (status == WEIR_OK && modes_are_free(planner))
            status = try_path(planner, shape, WEIR_CHECKPOINT_EXCEPT_LAST, 0);
        if (status == WEIR_OK && options->balance == NULL && budget > 0)
            status = try_downhill(planner, shape, (uint32_t)budget);
    }
    if (status == WEIR_OK && options->recompute == WEIR_RECOMPUTE_ANY)
        status = try_late(planner, shape);
    return status;
}

static int walk_quickly(struct weir_planner *planner) {
    const struct weir_planner_options *options = planner->options;
    int status = WEIR_OK;
    for (uint32_t i = 0; i < planner->shape_count && status == WEIR_OK; i++)
        status = try_uniform(planner, i, WEIR_CHECKPOINT_NEVER);
    bool free = modes_are_free(planner) && options->memory_limit > 0;
    for (uint32_t i = 0; i < planner->shape_count && status == WEIR_OK && free; i++)
        status = try_uniform(planner, i, WEIR_CHECKPOINT_ALWAYS);
    for (uint32_t i = 0; i < planner->shape_count && status == WEIR_OK && free; i++)
        status = try_path(planner, i, WEIR_CHECKPOINT_ALWAYS, options->memory_limit);
    return status;
}

int weir__planner_walk(struct weir_planner *planner) {
    bool free = modes_are_free(planner);
    int status = WEIR_OK;
    planner->actions_left = budget_actions;
    if (planner->options->effort == WEIR_PLANNER_QUICK) return walk_quickly(planner);
    for (uint32_t i = 0; i < planner->shape_count && status == WEIR_OK; i++)
        for (uint32_t k = 0; k < (free ? UNIFORM : 1) && status == WEIR_OK; k++)
            status = try_uniform(planner, i, uniform[k]);
    for (uint32_t i = 0; i < planner->shape_count && status == WEIR_OK; i++)
        status = try_shape_fully(planner, i);
    return status;
}
