/* SPDX-License-Identifier: MIT */
/* What would fit within the limit: every candidate's step is predicted from its table alone; then,
 * from the shortest on, they are planned until one fits. */
#include "pipe/describe/microbatch.h"
#include "pipe/plan/plan.h"

#include <stdlib.h>
#include <string.h>

enum { CANDIDATES_MAX = 512 };

struct candidate {
    struct weir_pipe_options options;
    double step;
    uint32_t changes, number;
};

struct candidates {
    const struct weir_pipe_options *given;
    struct candidate *list;
    uint32_t count;
};

/* ---- steps ---- */

double weir__plan_step(const struct weir__row_plan *prepared) {
    assert(prepared->rows > 0 && prepared->makespan > 0.0);
    int64_t sizes[2];
    (void)weir__prepared_sizes(prepared, sizes);
    return prepared->makespan * (double)sizes[0] / (double)prepared->rows;
}

/* False where the candidate cannot be: it is refused without a word. */
static bool predict(struct candidate *candidate, int *status) {
    struct weir__setup setup;
    struct weir__row_plan outline;
    *status = weir__setup_init(&setup, &candidate->options, NULL);
    if (*status != WEIR_OK) return false;
    *status = weir__prepared_outline(&outline, &setup, candidate->options.rows);
    if (*status == WEIR_OK) {
        candidate->step = weir__plan_step(&outline);
        weir__prepared_clean_up(&outline);
    }
    weir__setup_clean_up(&setup);
    return *status == WEIR_OK;
}

/* ---- candidates ---- */

static int add(struct candidates *all, const struct weir_pipe_options *options) {
    assert(all->count <= CANDIDATES_MAX);
    const struct weir_pipe_options *given = all->given;
    int status;
    if (all->count == CANDIDATES_MAX) return WEIR_OK;
    struct candidate *next = &all->list[all->count];
    *next = (struct candidate){.options = *options, .number = all->count};
    next->changes = (strcmp(options->schedule, given->schedule) != 0) +
                    (options->checkpoint != given->checkpoint) +
                    (options->chunks != given->chunks) +
                    (options->recompute_late != given->recompute_late);
    if (next->changes == 0) return WEIR_OK;
    all->count += predict(next, &status);
    return status == WEIR_ERR_OUT_OF_MEMORY ? status : WEIR_OK;
}

static int add_chunks(struct candidates *all, struct weir_pipe_options options) {
    uint32_t most = all->given->table_csv != NULL ? all->given->chunks : UINT32_MAX;
    for (;; options.chunks *= 2) {
        int status = add(all, &options);
        if (status != WEIR_OK) return status;
        if (options.chunks > most / 2 || 2 * (int64_t)options.chunks > options.rows) return WEIR_OK;
    }
}

static int add_modes(struct candidates *all, struct weir_pipe_options options) {
    static const enum weir_checkpoint modes[] = {WEIR_CHECKPOINT_EXCEPT_LAST,
                                                 WEIR_CHECKPOINT_ALWAYS};
    int status = add_chunks(all, options);
    if (status != WEIR_OK || options.infer_only) return status;
    for (size_t i = 0; i < WEIR__COUNT_OF(modes); i++) {
        options.checkpoint = modes[i];
        options.stage_checkpoint = NULL;
        options.recompute_late = all->given->recompute_late;
        if ((status = add_chunks(all, options)) != WEIR_OK) return status;
        if (all->given->recompute_late) continue;
        options.recompute_late = true;
        if ((status = add_chunks(all, options)) != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int add_all(struct candidates *all) {
    struct weir_pipe_options options = *all->given;
    int status = add_modes(all, options);
    if (status != WEIR_OK) return status;
    options.table_csv = NULL;
    options.table_csv_bytes = 0;
    for (uint32_t i = 0; weir_schedule_name(i) != NULL; i++) {
        options.schedule = weir_schedule_name(i);
        if (weir_schedule_is_searched(options.schedule)) continue;
        if (all->given->table_csv == NULL && strcmp(options.schedule, all->given->schedule) == 0)
            continue;
        if ((status = add_modes(all, options)) != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* The number of chunks as it is goes first: another changes results' bits, and how much slower
 * smaller micro-batches are per row is not in the prediction. */
static int by_step(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->options.chunks != y->options.chunks)
        return x->options.chunks < y->options.chunks ? -1 : 1;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->changes != y->changes) return x->changes < y->changes ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* ---- which fits ---- */

static int largest_arena(const struct weir_pipe_options *options, bool estimate, size_t *bytes) {
    struct weir__setup setup;
    struct weir__row_plan *prepared[WEIR__PREPARED_MAX];
    uint32_t count = 0;
    *bytes = 0;
    int status = weir__setup_init(&setup, options, NULL);
    if (status != WEIR_OK) return status;
    setup.estimate = estimate;
    status = weir__plan_prepare(&setup, prepared, &count, NULL);
    for (uint32_t i = 0; status == WEIR_OK && i < count; i++)
        for (uint32_t w = 0; w < prepared[i]->table->worker_count; w++)
            if (prepared[i]->arena_bytes[w] > *bytes) *bytes = prepared[i]->arena_bytes[w];
    weir__prepared_destroy(options->allocator, prepared, count);
    weir__setup_clean_up(&setup);
    return status;
}

static bool fits(const struct candidate *candidate, size_t *bytes, int *status) {
    assert(candidate->options.memory_limit > 0);
    uint64_t limit = candidate->options.memory_limit;
    *status = largest_arena(&candidate->options, true, bytes);
    if (*status != WEIR_OK || *bytes > limit) return false;
    *status = largest_arena(&candidate->options, false, bytes);
    return *status == WEIR_OK && *bytes <= limit;
}

static int choose(struct candidates *all, double step, struct weir__advice *advice) {
    assert(step > 0.0 && !advice->found);
    int status = add_all(all);
    if (status != WEIR_OK) return status;
    if (all->count > 1) qsort(all->list, all->count, sizeof *all->list, by_step);
    for (uint32_t i = 0; i < all->count && !advice->found; i++) {
        advice->found = fits(&all->list[i], &advice->bytes, &status);
        if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
        advice->options = all->list[i].options;
        advice->step = all->list[i].step / step;
    }
    return WEIR_OK;
}

int weir__plan_advise(const struct weir_pipe_options *options, double step,
                      struct weir__advice *advice) {
    struct weir_pipe_options given = *options;
    if (given.schedule == NULL) given.schedule = "1f1b";
    struct candidates all = {.given = &given};
    *advice = (struct weir__advice){0};
    all.list = weir__acquire(options->allocator, CANDIDATES_MAX, sizeof *all.list);
    if (all.list == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = choose(&all, step, advice);
    weir__release(options->allocator, all.list, CANDIDATES_MAX, sizeof *all.list);
    return status;
}
