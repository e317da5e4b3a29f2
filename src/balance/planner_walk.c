/* SPDX-License-Identifier: MIT */
/*
 * What is tried. First the even cuts with uniform modes, and from "never" on a path that
 * checkpoints one stage after the other, each time one of the worker that needs most. Then, with
 * FULL effort, everything where that is little; else downhill in several mixtures of step and
 * memory, from those where only the step counts to those where only memory does. So the whole front
 * is found whatever the limit is, and the limit only chooses from it.
 */
#include "balance/planner.h"

#include <math.h>
#include <string.h>

enum { EXHAUSTIVE_MOST = 4000, MIXED_MOST = 3, LAYERS_FEW = 16 };
static const uint64_t budget_actions = 40000000;
static const double mixtures[] = {0.0, 0.3, 1.0, HUGE_VAL};
static const enum weir_checkpoint uniform[] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_ALWAYS,
                                               WEIR_CHECKPOINT_EXCEPT_LAST};
enum { UNIFORM = 3, MIXTURES = 4, DOWNHILL_LEAST = 24 };

/* ---- shapes ---- */

/* Each stage adds up its gradients in the order that is asked for. */
static bool has_own_order(const struct weir_planner_options *options,
                          const struct weir_table *table) {
    char order[WEIR_ORDER_BYTES];
    if (options->any_order || options->schedule != NULL) return true;
    const char *wanted = options->order != NULL ? options->order : "ascending";
    return weir_table_order(table, order) && strcmp(order, wanted) == 0;
}

/* Unless its sums have another order than asked for. */
static int add_shape(struct weir_planner *planner, const char *schedule, uint32_t chunks,
                     const struct weir_table *table) {
    assert(table->worker_count == planner->options->workers);
    struct weir__shape *shape = &planner->shapes[planner->shape_count];
    if (!has_own_order(planner->options, table)) return WEIR_OK;
    *shape =
        (struct weir__shape){.schedule = schedule, .stages = table->stage_count, .chunks = chunks};
    shape->workers = weir__pool_take(&planner->pool, table->stage_count, sizeof(uint32_t));
    if (shape->workers == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    weir__table_workers(table, shape->workers);
    shape->split = weir__table_is_split(table);
    planner->shape_count++;
    return WEIR_OK;
}

static int try_shape(struct weir_planner *planner, const char *schedule, uint32_t chunks,
                     uint32_t stages, struct weir_faults *faults) {
    assert(chunks < planner->chunk_count && stages > 0);
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table;
    options.allocator = planner->allocator;
    options.schedule = schedule;
    options.stages = stages;
    options.workers = planner->options->workers;
    options.micro_batches = planner->chunks[chunks].micro_batches;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    int status = weir_table_new(&options, faults, &table);
    if (status != WEIR_OK) return status;
    status = add_shape(planner, schedule, chunks, table);
    weir_table_destroy(table);
    return status;
}

/* Among few layers every number of stages is tried, else as many on each worker. */
static bool is_looked_at(const struct weir_planner_options *options, uint32_t stages) {
    return stages % options->workers == 0 || options->costs->layer_count <= LAYERS_FEW;
}

/* All that the schedule takes, the fewest stages first; with little effort only these. */
static int try_schedule(struct weir_planner *planner, const char *schedule, uint32_t chunks,
                        uint32_t most, struct weir_faults *faults) {
    assert(most > 0 && planner->options->workers > 0);
    const struct weir_planner_options *options = planner->options;
    uint32_t layers = options->costs->layer_count, before = planner->shape_count;
    uint32_t first = options->stages > 0 ? options->stages : options->workers;
    uint64_t last = options->stages > 0 ? first : (uint64_t)most * options->workers;
    for (uint32_t stages = first; stages <= last && stages <= layers; stages++) {
        if (options->stages == 0 && !is_looked_at(options, stages)) continue;
        /* why not, is said of what was asked for */
        bool told = faults != NULL && chunks == 0 && stages == first;
        struct weir_faults own = WEIR_FAULTS_INIT;
        own.allocator = planner->allocator;
        int status = try_shape(planner, schedule, chunks, stages, told ? &own : NULL);
        for (uint32_t i = 0; status != WEIR_OK && i < own.kept; i++)
            weir_faults_add(faults, "%s", own.lines[i]);
        weir_faults_clean_up(&own);
        if (status != WEIR_OK && status != WEIR_ERR_ARGUMENT && status != WEIR_ERR_CONFIG)
            return status;
        bool enough = weir__planner_is_quick(options) && planner->shape_count > before;
        if (enough) break;
    }
    return WEIR_OK;
}

/* Of one number of micro-batches. */
static int try_schedules(struct weir_planner *planner, uint32_t chunks, uint32_t most,
                         struct weir_faults *faults) {
    const char *fixed = planner->options->schedule, *name;
    if (fixed != NULL) return try_schedule(planner, fixed, chunks, most, faults);
    for (uint32_t i = 0; (name = weir_schedule_name(i)) != NULL; i++) {
        if (weir_schedule_is_searched(name)) continue; /* one search in another: too slow */
        int status = try_schedule(planner, name, chunks, most, NULL);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

int weir__planner_shapes(struct weir_planner *planner, uint32_t most, struct weir_faults *faults) {
    assert(most > 0 && planner->shape_count == 0);
    const struct weir_planner_options *options = planner->options;
    struct weir_faults own = WEIR_FAULTS_INIT;
    size_t names = 1, counts = most;
    if (options->costs->layer_count <= LAYERS_FEW) counts = options->costs->layer_count;
    while (weir_schedule_name((uint32_t)names) != NULL) names++;
    planner->shapes =
        weir__pool_take(&planner->pool, names * counts * planner->chunk_count + 1, /* and plain */
                        sizeof planner->shapes[0]);
    if (planner->shapes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    own.allocator = planner->allocator;
    int status = WEIR_OK;
    for (uint32_t c = 0; c < planner->chunk_count && status == WEIR_OK; c++)
        status = try_schedules(planner, c, most, &own);
    assert(planner->shape_count <= names * counts * planner->chunk_count);
    bool none = status == WEIR_OK && planner->shape_count == 0;
    for (uint32_t i = 0; none && i < own.kept; i++) weir_faults_add(faults, "%s", own.lines[i]);
    if (none && own.kept == 0)
        weir_faults_add(faults, "no schedule takes %u stage%s on %u worker%s with %u micro-batch%s",
                        options->stages, weir__s(options->stages), options->workers,
                        weir__s(options->workers), options->micro_batches,
                        weir__es(options->micro_batches));
    weir_faults_clean_up(&own);
    return none ? WEIR_ERR_ARGUMENT : status;
}

/* ---- modes ---- */

bool weir__planner_modes_are_free(const struct weir_planner *planner) {
    return planner->options->checkpoint == WEIR_CHECKPOINT_DEFAULT &&
           planner->options->stage_checkpoint == NULL;
}

static void set_modes(struct weir_planner *planner, uint32_t stages, enum weir_checkpoint mode) {
    assert(stages <= planner->stages_most);
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

struct weir__try weir__planner_present(const struct weir_planner *planner, uint32_t shape) {
    return (struct weir__try){shape, planner->sizes, planner->modes, planner->late};
}

/* Even cuts with uniform modes. */
static int try_uniform(struct weir_planner *planner, uint32_t shape, enum weir_checkpoint mode,
                       double *step, uint64_t *estimate) {
    int status = weir__planner_cut(planner, shape, mode);
    set_modes(planner, planner->shapes[shape].stages, mode);
    struct weir__try tried = weir__planner_present(planner, shape);
    if (status != WEIR_OK) return status;
    return weir__planner_try_and_keep(planner, &tried, true, step, estimate);
}

/* ---- one stage after the other ---- */

struct walk_path {
    uint32_t shape;
    uint32_t *sizes; /* [stage]: even by time, when nothing is checkpointed; with that: */
    uint64_t *alive; /* [stage]: activations */
    uint64_t *bytes; /* [worker]: estimates */
    double step;
    uint64_t estimate;
};

static uint64_t saving_of(const struct weir_planner *planner, const struct walk_path *path,
                          uint32_t stage) {
    assert(stage < planner->costs->stage_count);
    return path->alive[stage] > 1 ? (path->alive[stage] - 1) * planner->costs->list[stage].saved
                                  : 0;
}

/* Of the worker's stages the one that gives most for its time; UINT32_MAX: none gives anything. */
static uint32_t best_stage(const struct weir_planner *planner, const struct walk_path *path,
                           uint32_t worker) {
    const struct weir__shape *shape = &planner->shapes[path->shape];
    assert(worker < planner->options->workers);
    assert(planner->costs->stage_count == shape->stages);
    uint32_t best = UINT32_MAX;
    double most = 0;
    for (uint32_t s = 0; s < shape->stages; s++) {
        if (shape->workers[s] != worker || planner->modes[s] != WEIR_CHECKPOINT_NEVER) continue;
        double saving =
            (double)saving_of(planner, path, s) /
            (weir__pass_seconds(planner->costs->list[s].seconds, WEIR__PASS_RECOMPUTE) + 1e-12);
        if (saving <= most) continue;
        most = saving;
        best = s;
    }
    return best;
}

static uint32_t peak_worker(const struct weir_planner *planner, const struct walk_path *path) {
    uint32_t peak = 0;
    for (uint32_t w = 1; w < planner->options->workers; w++)
        if (path->bytes[w] > path->bytes[peak]) peak = w;
    return peak;
}

static bool checkpoint_one(struct weir_planner *planner, const struct walk_path *path,
                           uint32_t worker, enum weir_checkpoint mode) {
    assert(mode != WEIR_CHECKPOINT_NEVER);
    uint32_t stage = best_stage(planner, path, worker);
    if (stage == UINT32_MAX) return false;
    planner->modes[stage] = mode;
    uint64_t saving = saving_of(planner, path, stage);
    path->bytes[worker] -= saving < path->bytes[worker] ? saving : path->bytes[worker];
    return true;
}

static bool take_path(struct weir_planner *planner, struct walk_path *path) {
    uint32_t stages = planner->shapes[path->shape].stages, workers = planner->options->workers;
    path->sizes = weir__pool_take(&planner->pool, stages, sizeof path->sizes[0]);
    path->alive = weir__pool_take(&planner->pool, stages, sizeof path->alive[0]);
    path->bytes = weir__pool_take(&planner->pool, workers, sizeof path->bytes[0]);
    return path->sizes != NULL && path->alive != NULL && path->bytes != NULL;
}

/* Where nothing is checkpointed. */
static int begin_path(struct weir_planner *planner, uint32_t shape, struct walk_path *path) {
    uint32_t stages = planner->shapes[shape].stages;
    struct weir_prediction prediction;
    *path = (struct walk_path){.shape = shape};
    if (!take_path(planner, path)) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__planner_cut(planner, shape, WEIR_CHECKPOINT_NEVER);
    if (status != WEIR_OK) return status;
    memcpy(path->sizes, planner->sizes, stages * sizeof path->sizes[0]);
    set_modes(planner, stages, WEIR_CHECKPOINT_NEVER);
    struct weir__try tried = weir__planner_present(planner, shape);
    status = weir__planner_try(planner, &tried, &path->step, &path->estimate, &prediction);
    if (status != WEIR_OK || path->step >= HUGE_VAL) return status;
    assert(prediction.stage_count == stages);
    assert(prediction.worker_count == planner->options->workers);
    memcpy(path->alive, prediction.stage_peak_activations, stages * sizeof path->alive[0]);
    for (uint32_t w = 0; w < planner->options->workers; w++)
        path->bytes[w] =
            planner->lasting[w] + planner->largest[w] + prediction.workers[w].peak_bytes;
    return weir__planner_keep(planner, &tried, path->step, path->estimate, true);
}

static void take_position(struct weir_planner *planner, const struct walk_path *path) {
    uint32_t stages = planner->shapes[path->shape].stages;
    memcpy(planner->sizes, path->sizes, stages * sizeof planner->sizes[0]);
    set_modes(planner, stages, WEIR_CHECKPOINT_NEVER);
    /* best_stage reads the costs of this cut */
    int status = weir__planner_fill(planner, path->shape, planner->sizes);
    assert(status == WEIR_OK);
    (void)status;
}

/* A stage at a time, until there is none that would give anything. */
static int walk_path(struct weir_planner *planner, const struct walk_path *path,
                     enum weir_checkpoint mode) {
    take_position(planner, path);
    while (checkpoint_one(planner, path, peak_worker(planner, path), mode)) {
        struct weir__try tried = weir__planner_present(planner, path->shape);
        double step;
        uint64_t estimate;
        int status = weir__planner_try_and_keep(planner, &tried, false, &step, &estimate);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int try_path(struct weir_planner *planner, uint32_t shape, enum weir_checkpoint mode) {
    struct walk_path path;
    int status = begin_path(planner, shape, &path);
    if (status != WEIR_OK || path.step >= HUGE_VAL) return status;
    return walk_path(planner, &path, mode);
}

/* In one stride to the limit, and one more where that was not enough; then all that is left.
 * *step is HUGE_VAL where even that is not. */
static int stride_to_limit(struct weir_planner *planner, const struct walk_path *path,
                           uint64_t limit, double *step) {
    assert(path->step < HUGE_VAL);
    uint64_t estimate = path->estimate;
    int status;
    take_position(planner, path);
    for (int k = 0; k < 2 && estimate > limit; k++) {
        uint32_t changes = 0, peak = peak_worker(planner, path);
        while (path->bytes[peak] > limit &&
               checkpoint_one(planner, path, peak, WEIR_CHECKPOINT_ALWAYS)) {
            peak = peak_worker(planner, path);
            changes++;
        }
        if (changes == 0) break;
        struct weir__try tried = weir__planner_present(planner, path->shape);
        status = weir__planner_try_and_keep(planner, &tried, false, step, &estimate);
        if (status != WEIR_OK) return status;
        for (uint32_t w = 0; estimate > limit && w < planner->options->workers; w++)
            path->bytes[w] += estimate - limit;
    }
    if (planner->options->memory != NULL || estimate > limit) {
        status = try_uniform(planner, path->shape, WEIR_CHECKPOINT_ALWAYS, step, &estimate);
        if (status != WEIR_OK) return status;
    }
    if (estimate > limit) *step = HUGE_VAL;
    return WEIR_OK;
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
    struct weir__try tried = weir__planner_present(planner, visitor->shape);
    double step;
    uint64_t estimate;
    (void)largest;
    tried.sizes = sizes;
    return weir__planner_try_and_keep(planner, &tried, false, &step, &estimate);
}

static double score(void *context, const uint32_t *sizes) {
    const struct visitor *visitor = context;
    double step;
    uint64_t estimate;
    if (!weir__planner_evaluate(visitor->planner, visitor->shape, sizes, &step, &estimate))
        return HUGE_VAL;
    if (isinf(visitor->mixture)) return (double)estimate;
    return step * pow((double)estimate, visitor->mixture);
}

struct weir_partition_options weir__planner_cut_options(const struct weir_planner *planner,
                                                        uint32_t shape) {
    struct weir_partition_options cut = WEIR_PARTITION_OPTIONS_INIT;
    cut.allocator = planner->allocator;
    cut.weights = planner->weights;
    cut.by_worker = planner->options->worker_costs != NULL;
    cut.count = planner->options->costs->layer_count;
    cut.parts = planner->shapes[shape].stages;
    cut.workers = planner->options->workers;
    cut.stage_workers = planner->shapes[shape].workers;
    return cut;
}

/* C(n, k), or HUGE_VAL. */
static double choices(uint32_t n, uint32_t k) {
    assert(k <= n);
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

/* Every partition with every mode. */
static int try_everything(struct weir_planner *planner, uint32_t shape) {
    struct visitor visitor = {planner, shape, 0};
    uint32_t stages = planner->shapes[shape].stages;
    int status = weir__planner_cut(planner, shape, WEIR_CHECKPOINT_NEVER);
    if (status != WEIR_OK) return status;
    struct weir_partition_options cut = weir__planner_cut_options(planner, shape);
    set_modes(planner, stages, WEIR_CHECKPOINT_ALWAYS);
    do {
        status = planner->options->balance != NULL
                     ? visit(&visitor, planner->options->balance, 0)
                     : weir_partition_each(&cut, HUGE_VAL, visit, &visitor);
        if (status != WEIR_OK) return status;
    } while (weir__planner_modes_are_free(planner) && next_modes(planner->modes, stages));
    return WEIR_OK;
}

/* ---- downhill ---- */

/* For planner->modes, from the cut that planner->weights make even. */
static int go_downhill(struct weir_planner *planner, uint32_t shape, double mixture,
                       uint32_t budget) {
    assert(budget > 0);
    struct visitor visitor = {planner, shape, mixture};
    struct weir_partition_options cut = weir__planner_cut_options(planner, shape);
    cut.budget = budget;
    int status = weir_partition_search(&cut, score, &visitor, planner->sizes, NULL);
    if (status == WEIR_ERR_NOT_FOUND) status = WEIR_OK;
    return planner->status != WEIR_OK ? planner->status : status;
}

/* In all mixtures. */
static int mix_downhill(struct weir_planner *planner, uint32_t shape, uint32_t budget) {
    for (uint32_t k = 0; k < MIXTURES; k++) {
        int status = go_downhill(planner, shape, mixtures[k], budget);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int try_downhill(struct weir_planner *planner, uint32_t shape, uint32_t budget) {
    assert(planner->options->balance == NULL);
    uint32_t count = weir__planner_modes_are_free(planner) ? UNIFORM : 1,
             stages = planner->shapes[shape].stages;
    uint32_t own = budget / ((count + MIXED_MOST) * MIXTURES) + 1;
    int status;
    for (uint32_t i = 0; i < count; i++) {
        status = weir__planner_cut(planner, shape, uniform[i]); /* sets the weights */
        if (status != WEIR_OK) return status;
        set_modes(planner, stages, uniform[i]);
        if ((status = mix_downhill(planner, shape, own)) != WEIR_OK) return status;
    }
    /* the modes of what was kept, from the fastest to the smallest */
    for (uint32_t i = 0; i < MIXED_MOST && count > 1; i++) {
        const struct weir__shape *at = &planner->shapes[shape];
        if (at->count == 0) break;
        uint32_t from = at->points[(2 * i + 1) * at->count / (2 * MIXED_MOST)];
        assert(from < planner->point_count);
        memcpy(planner->modes, planner->points[from].tried.modes,
               stages * sizeof planner->modes[0]);
        if ((status = mix_downhill(planner, shape, own)) != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* ---- the whole ---- */

static int try_late(struct weir_planner *planner, uint32_t shape) {
    assert(planner->options->recompute == WEIR_RECOMPUTE_ANY);
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

static int try_some(struct weir_planner *planner, uint32_t shape, uint32_t budget) {
    const struct weir_planner_options *options = planner->options;
    bool free = weir__planner_modes_are_free(planner);
    int status;
    if (free && (status = try_path(planner, shape, WEIR_CHECKPOINT_ALWAYS)) != WEIR_OK)
        return status;
    if (free && (status = try_path(planner, shape, WEIR_CHECKPOINT_EXCEPT_LAST)) != WEIR_OK)
        return status;
    if (options->balance == NULL && budget >= DOWNHILL_LEAST &&
        (status = try_downhill(planner, shape, budget)) != WEIR_OK)
        return status;
    return options->recompute == WEIR_RECOMPUTE_ANY ? try_late(planner, shape) : WEIR_OK;
}

static int try_shape_fully(struct weir_planner *planner, uint32_t shape) {
    assert(shape < planner->shape_count);
    const struct weir_planner_options *options = planner->options;
    uint32_t stages = planner->shapes[shape].stages, layers = options->costs->layer_count;
    uint64_t cells = (uint64_t)stages * weir__planner_chunks_at(planner, shape)->micro_batches;
    uint64_t share = planner->actions_left / (planner->shape_count - shape);
    uint64_t budget = share / (4 * cells + 200);
    planner->actions_floor = planner->actions_left - share / 3; /* of the paths */
    bool both = options->recompute == WEIR_RECOMPUTE_ANY;
    double all = options->balance != NULL ? 1 : choices(layers - 1, stages - 1);
    if (weir__planner_modes_are_free(planner)) all *= pow(UNIFORM, stages);
    if (budget > EXHAUSTIVE_MOST) budget = EXHAUSTIVE_MOST;
    if (all * (1 + both) > (double)budget) return try_some(planner, shape, (uint32_t)budget);
    planner->shapes[shape].complete = true;
    int status = try_everything(planner, shape);
    if (status != WEIR_OK || !both) return status;
    planner->late = true;
    status = try_everything(planner, shape);
    planner->late = false;
    return status;
}

int weir__planner_stride(struct weir_planner *planner, uint32_t shape, uint64_t limit,
                         double fastest) {
    assert(shape < planner->shape_count);
    struct walk_path path;
    double step = HUGE_VAL;
    int status = begin_path(planner, shape, &path);
    if (status != WEIR_OK) return status;
    if (path.step >= fastest) return WEIR_ERR_NOT_FOUND;
    return stride_to_limit(planner, &path, limit, &step);
}

/* ---- few tries ---- */

/* A shape's even cuts: without checkpoints, from which modes change, and with all of them. */
struct start {
    struct walk_path path;
    double bound; /* of what it can come to */
    bool begun, done;
};

static int fill_even(struct weir_planner *planner, uint32_t shape, enum weir_checkpoint mode) {
    int status = weir__planner_cut(planner, shape, mode);
    return status != WEIR_OK ? status : weir__planner_fill(planner, shape, planner->sizes);
}

static int find_bound(struct weir_planner *planner, uint32_t shape, struct start *start) {
    assert(!start->begun && !start->done);
    bool free = weir__planner_modes_are_free(planner);
    int status = fill_even(planner, shape, WEIR_CHECKPOINT_NEVER);
    if (status != WEIR_OK) return status;
    start->bound = weir__planner_bound(planner, shape, NULL);
    if (!free || planner->options->memory_limit == 0) return WEIR_OK;
    status = fill_even(planner, shape, WEIR_CHECKPOINT_ALWAYS);
    if (status != WEIR_OK) return status;
    set_modes(planner, planner->shapes[shape].stages, WEIR_CHECKPOINT_ALWAYS);
    start->bound = fmin(start->bound, weir__planner_bound(planner, shape, planner->modes));
    return WEIR_OK;
}

/* The fastest that fits is known only where estimates decide. */
static void note_fit(const struct weir_planner *planner, double step, uint64_t estimate,
                     double *best) {
    uint64_t limit = planner->options->memory_limit;
    bool fits = planner->options->memory == NULL && (limit == 0 || estimate <= limit);
    if (fits && step < *best) *best = step;
}

static int begin_start(struct weir_planner *planner, uint32_t shape, struct start *start,
                       double *best) {
    if (start->begun) return WEIR_OK;
    start->begun = true;
    int status = begin_path(planner, shape, &start->path);
    if (status != WEIR_OK) return status;
    note_fit(planner, start->path.step, start->path.estimate, best);
    return WEIR_OK;
}

static int finish_start(struct weir_planner *planner, struct start *start, double *best) {
    assert(start->begun);
    uint64_t limit = planner->options->memory_limit;
    double step = HUGE_VAL;
    if (!weir__planner_modes_are_free(planner) || limit == 0 || start->path.step >= HUGE_VAL)
        return WEIR_OK;
    int status = stride_to_limit(planner, &start->path, limit, &step);
    if (planner->options->memory == NULL && step < *best) *best = step;
    return status;
}

/* The most promising first, while they may still be faster than what fits already. */
static int walk_starts(struct weir_planner *planner, struct start *starts, double best) {
    for (;;) {
        uint32_t next = UINT32_MAX;
        for (uint32_t i = 0; i < planner->shape_count; i++)
            if (!starts[i].done && (next == UINT32_MAX || starts[i].bound < starts[next].bound))
                next = i;
        if (next == UINT32_MAX || starts[next].bound >= best) return WEIR_OK;
        starts[next].done = true;
        int status = begin_start(planner, next, &starts[next], &best);
        if (status != WEIR_OK) return status;
        if ((status = finish_start(planner, &starts[next], &best)) != WEIR_OK) return status;
    }
}

/* Of the chunks that were asked for, every schedule is looked at. */
static int walk_quickly(struct weir_planner *planner) {
    struct start *starts = weir__pool_take(&planner->pool, planner->shape_count, sizeof *starts);
    double best = HUGE_VAL;
    if (starts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < planner->shape_count; i++) {
        int status = find_bound(planner, i, &starts[i]);
        if (status != WEIR_OK) return status;
        if (planner->shapes[i].chunks > 0) continue;
        if ((status = begin_start(planner, i, &starts[i], &best)) != WEIR_OK) return status;
    }
    return walk_starts(planner, starts, best);
}

int weir__planner_walk(struct weir_planner *planner) {
    assert(planner->shape_count > 0 && planner->point_count == 0);
    bool free = weir__planner_modes_are_free(planner);
    double step;
    uint64_t estimate;
    int status;
    planner->actions_left = budget_actions;
    planner->late = planner->options->recompute == WEIR_RECOMPUTE_LATE;
    if (weir__planner_is_quick(planner->options)) return walk_quickly(planner);
    for (uint32_t k = 0; k < (free ? UNIFORM : 1); k++)
        for (uint32_t i = 0; i < planner->shape_count; i++) {
            if (k >= 2 && planner->actions_left == 0) continue;
            status = try_uniform(planner, i, uniform[k], &step, &estimate);
            if (status != WEIR_OK) return status;
        }
    for (uint32_t i = 0; i < planner->shape_count; i++)
        if ((status = try_shape_fully(planner, i)) != WEIR_OK) return status;
    return WEIR_OK;
}
