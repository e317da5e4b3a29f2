/* SPDX-License-Identifier: MIT */
/*
 * "auto" among the schedules: the table that the search finds for the counts, by the costs and
 * limits that the options name, or by unit times.
 */
#include "schedule/auto/auto.h"

#include <string.h>

/* The search's options with the table's counts and modes; `costs` is what they then point to. */
static bool read_options(const struct weir_table_options *options,
                         struct weir_search_options *search, struct weir_simulate_options *costs) {
    *search = (struct weir_search_options)WEIR_SEARCH_OPTIONS_INIT;
    if (options->search != NULL) {
        if (!weir__is_sized(options->search)) return false;
        *search = *options->search;
    }
    if (!weir__auto_read_costs(search->costs, costs)) return false;
    costs->no_backward = options->no_backward;
    costs->recompute_late = options->recompute_late;
    search->costs = costs;
    search->allocator = options->allocator;
    search->stages = options->stages;
    search->workers = options->workers;
    search->micro_batches = options->micro_batches;
    search->checkpoint = options->checkpoint;
    search->stage_checkpoint = options->stage_checkpoint;
    search->ascending = true;
    search->whole_backward = search->whole_backward || options->whole_backward;
    return true;
}

/* Down the workers and up again where each has two stages, else around them. Not whichever is
 * faster: all tables of a pipe, for any number of micro-batches, must agree. */
static void place(const struct weir_search_options *search, uint32_t *stage_workers) {
    bool v = search->stages == 2 * search->workers;
    weir__auto_place(search->stages, search->workers, v, stage_workers);
}

static int run_search(struct weir_search_options *search, struct weir_faults *faults,
                      struct weir_table **table) {
    struct weir_search_result result;
    struct weir_simulator *simulator;
    int status = weir_simulator_new(search->allocator, &simulator);
    if (status != WEIR_OK) return status;
    status = weir_search(simulator, search, faults, &result);
    *table = status != WEIR_OK ? NULL : result.table;
    weir_simulator_destroy(simulator);
    return status;
}

static int search_table(const struct weir_table_options *options, bool quick,
                        struct weir_faults *faults, struct weir_table **table) {
    struct weir_search_options search;
    struct weir_simulate_options costs;
    if (!read_options(options, &search, &costs)) {
        weir_faults_add(faults, "auto: the search's options, or its costs, have a size that is not "
                                "that of this library");
        return WEIR_ERR_ARGUMENT;
    }
    if (quick) search.effort = 1;
    if (search.stage_workers != NULL) return run_search(&search, faults, table);
    uint32_t *own = weir__acquire(search.allocator, search.stages, sizeof *own);
    if (own == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    place(&search, own);
    search.stage_workers = own;
    int status = run_search(&search, faults, table);
    weir__release(search.allocator, own, search.stages, sizeof *own);
    return status;
}

/* What a search of least effort refuses. Without options of its own it refuses counts alone. */
static void check(const struct weir_table_options *options, struct weir_faults *faults) {
    struct weir_table *table = NULL;
    uint64_t cells = (uint64_t)options->stages * options->micro_batches;
    if (options->search == NULL && cells <= WEIR__AUTO_CELLS_MAX) return;
    if (search_table(options, true, faults, &table) == WEIR_OK) weir_table_destroy(table);
}

/* Takes over what the builder is given to fill. */
static void fill(const struct weir_table_options *options, struct weir__table_builder *builder) {
    assert(builder->line_count == 0);
    struct weir_table *table = NULL;
    if (search_table(options, false, NULL, &table) != WEIR_OK) builder->failed = true;
    for (uint32_t w = 0; w < builder->worker_count; w++) {
        weir__table_line(builder);
        for (uint32_t a = table != NULL ? table->lines[w] : 0;
             table != NULL && a < table->lines[w + 1]; a++) {
            const struct weir_action *action = &table->actions[a];
            weir__table_add(builder, (enum weir_kind)action->kind, action->stage,
                            action->micro_batch);
        }
    }
    weir_table_destroy(table);
}

const struct weir__named_schedule weir__schedule_auto = {.name = "auto",
                                                         .sharing = WEIR__SHARING_ANY,
                                                         .check = check,
                                                         .infers_as = "1f1b",
                                                         .fill = fill,
                                                         .places_recompute = true,
                                                         .searched = true};
