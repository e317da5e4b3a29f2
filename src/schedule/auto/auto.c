/* SPDX-License-Identifier: MIT */
/*
 * The search: every named schedule is tried by the simulator, which knows the limit too; then
 * tables are built (improve.c) and, of small cases, all of them (prove.c). The simulator
 * has the last word on which is faster.
 */
#include "schedule/auto/auto.h"
#include "schedule/simulate/simulate.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define EFFORT_DEFAULT 120000u
#define BEHIND 1.1

struct auto_search {
    struct weir_simulator *simulator;
    struct weir_search_options options;
    struct weir_simulate_options costs;
    struct weir_faults *faults;
    uint32_t *stage_workers;          /**< [stages]: the placement that is searched */
    uint32_t *table_workers;          /**< [stages]: the one of a named schedule's table */
    struct weir_search_result result; /**< the best so far, if it has a table */
    double step;                      /**< of it, and what it keeps */
    uint64_t peak;
    uint32_t short_worker; /**< where a limit is too low: the worker that lacks most, */
    int short_amount;      /**< of bytes or activations, */
    int64_t short_need;    /**< and what it needs, where that is least; INT64_MAX: nothing yet */
};

/* ---- what was asked ---- */

bool weir__auto_read_costs(const struct weir_simulate_options *given,
                           struct weir_simulate_options *costs) {
    *costs = (struct weir_simulate_options)WEIR_SIMULATE_OPTIONS_INIT;
    if (given == NULL) {
        weir__unit_seconds(costs->kind_seconds);
        return true;
    }
    if (!weir__is_sized(given)) return false;
    *costs = *given;
    costs->shared = NULL; /* a table is one replica's */
    return true;
}

static int read_options(const struct weir_search_options *options, struct weir_search_options *own,
                        struct weir_simulate_options *costs) {
    if (!weir__is_sized(options)) return WEIR_ERR_ARGUMENT;
    *own = *options;
    if (!weir__auto_read_costs(own->costs, costs)) return WEIR_ERR_ARGUMENT;
    costs->noise = 0.0;
    costs->no_causes = true;
    costs->want_actions = false;
    return WEIR_OK;
}

static void check_counts(const struct weir_search_options *options, struct weir_faults *faults) {
    uint64_t cells = (uint64_t)options->stages * options->micro_batches;
    if (options->stages < 1 || options->stages >= UINT16_MAX || options->workers < 1 ||
        options->workers > options->stages || options->micro_batches < 1) {
        weir_faults_add(faults,
                        "%" PRIu32 " stage%s on %" PRIu32 " worker%s, %" PRIu32
                        " micro-batch%s: ask for at least one of each, and no more workers than "
                        "stages",
                        options->stages, weir__s(options->stages), options->workers,
                        weir__s(options->workers), options->micro_batches,
                        weir__es(options->micro_batches));
    } else if (cells > WEIR__AUTO_CELLS_MAX) {
        weir_faults_add(faults,
                        "%" PRIu32 " stage%s and %" PRIu32 " micro-batches are too many to search: "
                        "with so many stages ask for at most %" PRIu32 " micro-batches, or name a "
                        "schedule",
                        options->stages, weir__s(options->stages), options->micro_batches,
                        WEIR__AUTO_CELLS_MAX / options->stages);
    }
}

/* ---- comparing ---- */

static uint64_t peak_of(const struct weir_prediction *prediction) {
    uint64_t bytes = 0, activations = 0;
    for (uint32_t w = 0; w < prediction->worker_count; w++) {
        bytes += prediction->workers[w].peak_bytes;
        activations += prediction->workers[w].peak_activations;
    }
    return bytes > 0 ? bytes : activations;
}

static bool is_within(const struct weir_search_options *options,
                      const struct weir_prediction *prediction) {
    for (uint32_t w = 0; w < prediction->worker_count; w++) {
        const struct weir_predicted_worker *worker = &prediction->workers[w];
        uint64_t bytes =
            options->memory_limits != NULL ? options->memory_limits[w] : options->memory_limit;
        uint64_t activations = options->activation_limit;
        if (bytes != 0 && worker->peak_bytes > bytes) return false;
        if (activations != 0 && worker->peak_activations > activations) return false;
    }
    return true;
}

static int simulate(struct auto_search *search, const struct weir_table *table,
                    struct weir_prediction *prediction) {
    search->costs.table = table;
    return weir_simulate(search->simulator, &search->costs, search->faults, prediction);
}

static bool beats(const struct auto_search *search, const struct weir_prediction *prediction) {
    if (!is_within(&search->options, prediction)) return false;
    if (search->result.table == NULL || prediction->step < search->step) return true;
    return !(prediction->step > search->step) && peak_of(prediction) < search->peak;
}

/* The table is the search's from here on: it is the best so far, or destroyed. One that skips and
 * borders do not allow is no candidate. */
static int compete(struct auto_search *search, struct weir_table *table, const char *name) {
    assert(table != NULL);
    struct weir_prediction prediction;
    int status = simulate(search, table, &prediction);
    if (status != WEIR_OK || !beats(search, &prediction)) {
        weir_table_destroy(table);
        return status == WEIR_ERR_SCHEDULE ? WEIR_OK : status;
    }
    weir_table_destroy(search->result.table);
    search->result.table = table;
    search->result.name = name;
    search->step = prediction.step;
    search->peak = peak_of(&prediction);
    return WEIR_OK;
}

/* ---- named schedules ---- */

static int named_table(const struct auto_search *search, const char *name,
                       struct weir_table **table) {
    struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
    options.allocator = search->options.allocator;
    options.schedule = name;
    options.stages = search->options.stages;
    options.workers = search->options.workers;
    options.micro_batches = search->options.micro_batches;
    options.checkpoint = search->options.checkpoint;
    options.stage_checkpoint = search->options.stage_checkpoint;
    options.no_backward = search->costs.no_backward;
    options.recompute_late = search->costs.recompute_late;
    return weir_table_new(&options, NULL, table);
}

static bool is_placed_so(const struct auto_search *search, const struct weir_table *table) {
    assert(table->stage_count == search->options.stages);
    size_t bytes = search->options.stages * sizeof *search->stage_workers;
    weir__table_workers(table, search->table_workers);
    return memcmp(search->table_workers, search->stage_workers, bytes) == 0;
}

/* What skips and borders do not allow has no taste. */
static int taste_named(struct auto_search *search, const struct weir__auto_problem *problem,
                       struct weir__auto_bench *bench, const struct weir_table *table) {
    struct weir_prediction prediction;
    search->costs.want_actions = true;
    int status = simulate(search, table, &prediction);
    search->costs.want_actions = false;
    if (status == WEIR_ERR_SCHEDULE) return WEIR_OK;
    if (status != WEIR_OK) return status;
    weir__auto_imitate(problem, bench, table, prediction.start);
    return WEIR_OK;
}

/* One named schedule: to compete, and as a taste for the limit that it may not keep. */
static int try_named(struct auto_search *search, const struct weir__auto_problem *problem,
                     struct weir__auto_bench *bench, const char *name) {
    struct weir_table *table = NULL;
    int status = named_table(search, name, &table);
    if (status != WEIR_OK) return status == WEIR_ERR_OUT_OF_MEMORY ? status : WEIR_OK;
    const struct weir_search_options *options = &search->options;
    if (!is_placed_so(search, table) || (options->whole_backward && weir__table_is_split(table)) ||
        (options->ascending && !weir__table_is_ascending(table))) {
        weir_table_destroy(table);
        return WEIR_OK;
    }
    if (problem->feasible) status = taste_named(search, problem, bench, table);
    if (status != WEIR_OK) {
        weir_table_destroy(table);
        return status;
    }
    return compete(search, table, name);
}

static int try_all_named(struct auto_search *search, const struct weir__auto_problem *problem,
                         struct weir__auto_bench *bench) {
    const char *name;
    for (uint32_t i = 0; (name = weir_schedule_name(i)) != NULL; i++) {
        if (weir_schedule_is_searched(name)) continue;
        int status = try_named(search, problem, bench, name);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* ---- from a draft to a table ---- */

static int compete_draft(struct auto_search *search, const struct weir__auto_problem *problem,
                         struct weir__auto_bench *bench) {
    assert(bench->best.count > 0);
    struct weir__table_builder builder;
    struct weir_table *table = NULL;
    weir__table_begin(&builder, problem->allocator, problem->stage_count, problem->worker_count,
                      problem->micro_batch_count);
    builder.no_backward = problem->costs->no_backward;
    weir__auto_fill(problem, bench, &bench->best, &builder);
    int status = weir__table_finish(&builder, &table);
    return status != WEIR_OK ? status : compete(search, table, NULL);
}

/* ---- one placement ---- */

/* Builds until the work is done, or nothing better can be; a placement that begins far behind is
 * not gone on with. */
static bool build(const struct auto_search *search, const struct weir__auto_problem *problem,
                  struct weir__auto_bench *bench) {
    assert(problem->feasible);
    uint64_t all = bench->work_most;
    bool small = problem->entry_count <= WEIR__AUTO_PROOF_ENTRIES;
    bool known = search->result.table != NULL;
    bench->goal = known ? search->step : INFINITY;
    weir__auto_begin(problem, bench);
    bool behind = known && bench->best.step > BEHIND * search->step;
    if (small && all > bench->work) bench->work_most = bench->work + (all - bench->work) / 8;
    if (!behind) weir__auto_improve(problem, bench);
    bench->work_most = all;
    if (known && search->step < bench->best.step) bench->best.step = search->step;
    return small && weir__auto_prove(problem, bench) && problem->exact;
}

/* What the worker that needs most needs, in the placement where that is least. */
static void note_shortage(struct auto_search *search, const struct weir__auto_problem *problem) {
    assert(!problem->feasible);
    for (int amount = WEIR__AMOUNTS; amount-- > 0;) {
        uint32_t most = UINT32_MAX;
        for (uint32_t w = 0; w < problem->worker_count; w++) {
            const struct weir__auto_worker *worker = &problem->workers[w];
            bool lacks = worker->alone[amount] > worker->limit[amount];
            if (lacks && (most == UINT32_MAX ||
                          worker->alone[amount] > problem->workers[most].alone[amount]))
                most = w;
        }
        if (most == UINT32_MAX || problem->workers[most].alone[amount] >= search->short_need)
            continue;
        search->short_worker = most;
        search->short_amount = amount;
        search->short_need = problem->workers[most].alone[amount];
        return;
    }
}

/* Named schedules, and what is built. */
static int try_all(struct auto_search *search, const struct weir__auto_problem *problem,
                   struct weir__auto_bench *bench) {
    int status = try_all_named(search, problem, bench);
    if (status != WEIR_OK) return status;
    bool optimal = problem->feasible && build(search, problem, bench);
    if (problem->feasible && bench->best.count > 0) {
        weir__auto_join(problem, bench, &bench->best);
        if ((status = compete_draft(search, problem, bench)) != WEIR_OK) return status;
    }
    search->result.work += bench->work;
    search->result.optimal = search->result.optimal && optimal;
    if (problem->bound < search->result.bound) search->result.bound = problem->bound;
    if (!problem->feasible) note_shortage(search, problem);
    return WEIR_OK;
}

static int search_placement(struct auto_search *search, uint64_t work) {
    struct weir__auto_problem problem;
    struct weir__auto_bench bench = {0};
    int status =
        weir__auto_problem_init(&problem, &search->options, &search->costs, search->stage_workers);
    if (status != WEIR_OK) goto out;
    if ((status = weir__auto_bench_init(&bench, &problem, work)) != WEIR_OK) goto out;
    status = try_all(search, &problem, &bench);
out:
    weir__auto_bench_clean_up(&bench, &problem);
    weir__auto_problem_clean_up(&problem);
    return status;
}

/* ---- all of it ---- */

void weir__auto_place(uint32_t stages, uint32_t workers, bool v, uint32_t *stage_workers) {
    assert(workers > 0 && (!v || stages == 2 * workers));
    for (uint32_t s = 0; s < stages; s++) {
        bool up = v && s >= workers;
        stage_workers[s] = up ? 2 * workers - 1 - s : s % workers;
    }
}

/* False where somebody has no stage, or a stage nobody. `mark` has a number per stage. */
static bool check_placement(const struct weir_search_options *options, uint32_t *mark,
                            struct weir_faults *faults) {
    memset(mark, 0, options->stages * sizeof *mark);
    for (uint32_t s = 0; s < options->stages; s++) {
        uint32_t worker = options->stage_workers[s];
        if (worker >= options->workers) {
            weir_faults_add(faults,
                            "stage %" PRIu32 " is given to worker %" PRIu32
                            ": the last one is %" PRIu32 ", choose one up to that",
                            s, worker, options->workers - 1);
            return false;
        }
        mark[worker] = 1;
    }
    for (uint32_t w = 0; w < options->workers; w++) {
        if (mark[w] != 0) continue;
        weir_faults_add(
            faults, "worker %" PRIu32 " has no stage: give it one, or ask for fewer workers", w);
        return false;
    }
    return true;
}

static int search_placements(struct auto_search *search) {
    const struct weir_search_options *options = &search->options;
    uint64_t effort = options->effort > 0 ? options->effort : EFFORT_DEFAULT;
    if (options->stage_workers != NULL) {
        if (!check_placement(options, search->table_workers, search->faults))
            return WEIR_ERR_ARGUMENT;
        memcpy(search->stage_workers, options->stage_workers,
               options->stages * sizeof *search->stage_workers);
        return search_placement(search, effort);
    }
    bool both = options->workers > 1 && options->stages == 2 * options->workers;
    if (both) {
        weir__auto_place(options->stages, options->workers, true, search->stage_workers);
        int status = search_placement(search, effort / 4 * 3);
        if (status != WEIR_OK) return status;
        effort = effort > search->result.work ? effort - search->result.work : 0;
    }
    weir__auto_place(options->stages, options->workers, false, search->stage_workers);
    return search_placement(search, effort);
}

static int refuse(const struct auto_search *search) {
    const char *unit = search->short_amount == WEIR__BYTES ? "bytes" : "activations";
    weir_faults_add(search->faults,
                    "worker %" PRIu32 " needs %" PRId64 " %s for one micro-batch alone, which is "
                    "more than its limit: give a limit of %" PRId64 " or more",
                    search->short_worker, search->short_need, unit, search->short_need);
    return WEIR_ERR_MEMORY_LIMIT;
}

/* The best table once more, for its numbers. */
static int conclude(struct auto_search *search, struct weir_search_result *result) {
    if (search->result.table == NULL) return refuse(search);
    if (search->options.costs != NULL)
        search->costs.want_actions = search->options.costs->want_actions;
    int status = simulate(search, search->result.table, &search->result.prediction);
    if (status != WEIR_OK) return status;
    double step = search->result.prediction.step;
    if (step <= search->result.bound) search->result.optimal = true;
    if (search->result.optimal || step < search->result.bound) search->result.bound = step;
    *result = search->result;
    search->result.table = NULL;
    return WEIR_OK;
}

static int acquire(struct auto_search *search) {
    const struct weir_allocator *allocator = search->options.allocator;
    uint32_t stages = search->options.stages;
    search->stage_workers = weir__acquire(allocator, stages, sizeof *search->stage_workers);
    search->table_workers = weir__acquire(allocator, stages, sizeof *search->table_workers);
    bool acquired = search->stage_workers != NULL && search->table_workers != NULL;
    return acquired ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static void clean_up(struct auto_search *search) {
    const struct weir_allocator *allocator = search->options.allocator;
    uint32_t stages = search->options.stages;
    weir_table_destroy(search->result.table);
    weir__release(allocator, search->table_workers, stages, sizeof *search->table_workers);
    weir__release(allocator, search->stage_workers, stages, sizeof *search->stage_workers);
}

int weir_search(struct weir_simulator *simulator, const struct weir_search_options *options,
                struct weir_faults *faults, struct weir_search_result *result) {
    struct weir_faults own = WEIR_FAULTS_INIT;
    struct auto_search search = {.simulator = simulator,
                                 .faults = faults != NULL ? faults : &own,
                                 .short_need = INT64_MAX,
                                 .result = {.optimal = true, .bound = INFINITY}};
    if (simulator == NULL || result == NULL ||
        read_options(options, &search.options, &search.costs) != WEIR_OK) {
        weir_faults_add(faults, "weir_search: an argument is NULL, or " WEIR__BEGIN_WITH,
                        "WEIR_SEARCH_OPTIONS_INIT, costs with WEIR_SIMULATE_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    uint32_t before = search.faults->count;
    check_counts(&search.options, search.faults);
    weir__simulate_check_skips(search.costs.skips, search.costs.skip_count, search.options.stages,
                               search.faults);
    int status = WEIR_ERR_ARGUMENT;
    if (search.faults->count > before) goto out;
    if ((status = acquire(&search)) != WEIR_OK) goto out;
    if ((status = search_placements(&search)) != WEIR_OK) goto out;
    status = conclude(&search, result);
out:
    clean_up(&search);
    weir_faults_clean_up(&own);
    return status;
}
