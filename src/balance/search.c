/* SPDX-License-Identifier: MIT */
/*
 * The best of many partitions. If there are few, all are looked at. Else the search goes downhill
 * from the exact block partition. A step moves one layer from a part to another, and with it every
 * cut between them by one: moving single cuts would get stuck more often.
 */
#include "balance/balance.h"

#include <math.h>
#include <string.h>

enum { BUDGET_DEFAULT = 50000, ANYWHERE_MAX = 128 };

uint32_t weir_placement_worker(enum weir_placement placement, uint32_t workers, uint32_t stage) {
    assert(workers >= 1);
    uint32_t lap = stage / workers, at = stage % workers;
    return placement == WEIR_PLACEMENT_V && lap % 2 == 1 ? workers - 1 - at : at;
}

static bool is_valid(const struct weir_partition_options *options) {
    if (!weir__is_sized(options) || options->weights == NULL || options->parts < 1 ||
        options->parts > options->count || options->workers > options->parts)
        return false;
    uint32_t workers = weir__part_workers(options), sets = options->by_worker ? workers : 1;
    for (uint32_t k = 0; options->stage_workers != NULL && k < options->parts; k++)
        if (options->stage_workers[k] >= workers) return false;
    for (size_t i = 0; i < (size_t)sets * options->count; i++)
        if (!(options->weights[i] >= 0) || isinf(options->weights[i])) return false;
    return true;
}

static uint64_t budget_of(const struct weir_partition_options *options) {
    return options->budget == 0 ? BUDGET_DEFAULT : options->budget;
}

/** Partitions in all: C(count - 1, parts - 1), or more than `most`. */
static bool all_within(const struct weir_partition_options *options, uint64_t most) {
    assert(options->parts >= 1 && options->parts <= options->count);
    double all = 1;
    uint32_t n = options->count - 1, k = options->parts - 1;
    for (uint32_t i = 1; i <= k && all <= 1e18; i++) all *= (double)(n - k + i) / i;
    return all <= (double)most + 0.5;
}

/* ---- downhill ---- */

struct descent {
    weir_partition_score_fn *score;
    void *context;
    uint32_t parts;
    uint32_t *sizes; /* where it stands; the best yet */
    double best;
    uint64_t left; /* scores that may still be asked for */
    uint64_t asked;
};

static double ask(struct descent *descent) {
    assert(descent->left > 0);
    descent->left--;
    descent->asked++;
    return descent->score(descent->context, descent->sizes);
}

static bool try_move(struct descent *descent, uint32_t from, uint32_t to) {
    assert(from < descent->parts && to < descent->parts && from != to);
    if (descent->sizes[from] == 1 || descent->left == 0) return false;
    descent->sizes[from]--;
    descent->sizes[to]++;
    double score = ask(descent);
    if (score < descent->best) {
        descent->best = score;
        return true;
    }
    descent->sizes[from]++;
    descent->sizes[to]--;
    return false;
}

/** One look at every move, the near ones first; those that help are made at once, as long as they
 * do. */
static bool sweep(struct descent *descent) {
    assert(descent->parts >= 1);
    bool moved = false;
    uint32_t farthest = descent->parts <= ANYWHERE_MAX ? descent->parts - 1 : 1;
    for (uint32_t distance = 1; distance <= farthest; distance++)
        for (uint32_t a = 0; a + distance < descent->parts; a++) {
            while (try_move(descent, a, a + distance)) moved = true;
            while (try_move(descent, a + distance, a)) moved = true;
        }
    return moved;
}

static void descend(struct descent *descent) {
    descent->best = ask(descent);
    while (descent->left > 0 && sweep(descent)) {}
}

/* ---- several parts per worker ---- */

struct heaviest {
    const struct weir__cuts *cuts;
    double *load;
};

/** The heaviest worker; among equals the more even the better, so that a plateau has a slope. */
static double heaviest_score(void *context, const uint32_t *sizes) {
    struct heaviest *heaviest = context;
    assert(heaviest->load != NULL);
    const struct weir__cuts *cuts = heaviest->cuts;
    double largest = weir__partition_largest(cuts, sizes, heaviest->load), squares = 0;
    double all = cuts->least[cuts->count];
    for (uint32_t w = 0; w < cuts->workers; w++) squares += heaviest->load[w] * heaviest->load[w];
    return all > 0 ? largest + 1e-9 * squares / all : largest;
}

/** Goes on from `sizes` with whatever is better, until there is nothing or the budget is spent. */
static void improve(struct weir__cuts *cuts, uint64_t budget, uint32_t *sizes,
                    struct weir_partition_result *result) {
    assert(cuts->moves == 0 && result->largest >= 0);
    cuts->strict = true;
    cuts->bound = result->largest;
    while (weir__cuts_next(cuts, budget)) {
        weir__cuts_sizes(cuts, sizes);
        cuts->bound = result->largest = weir__cuts_largest(cuts);
        result->looked++;
    }
    result->exact = cuts->depth < 0;
}

static bool is_shared(const struct weir__cuts *cuts) {
    for (uint32_t k = 0; k < cuts->parts; k++)
        if (!cuts->closes[k]) return true;
    return false;
}

static int partition_shared(const struct weir_partition_options *options, uint32_t *sizes,
                            struct weir_partition_result *result) {
    assert(budget_of(options) > 0 && weir__part_workers(options) <= options->parts);
    struct weir__pool pool;
    struct weir__cuts cuts;
    weir__pool_init(&pool, options->allocator);
    double *load = weir__pool_take(&pool, weir__part_workers(options), sizeof *load);
    struct heaviest heaviest = {&cuts, load};
    struct descent descent = {.score = heaviest_score,
                              .context = &heaviest,
                              .parts = options->parts,
                              .sizes = sizes,
                              .left = budget_of(options)};
    int status = load == NULL ? WEIR_ERR_OUT_OF_MEMORY
                              : weir__cuts_init(&cuts, &pool, options, weir__part_workers(options));
    if (status != WEIR_OK || !is_shared(&cuts)) goto out;
    descend(&descent);
    result->looked = (uint32_t)descent.asked;
    result->largest = weir__partition_largest(&cuts, sizes, load);
    improve(&cuts, budget_of(options), sizes, result);
out:
    weir__pool_clean_up(&pool);
    return status;
}

int weir_partition(const struct weir_partition_options *options, uint32_t *sizes,
                   struct weir_partition_result *result) {
    struct weir_partition_result own = {.exact = true};
    if (!is_valid(options)) return WEIR_ERR_ARGUMENT;
    int status = weir__block_partition(options, sizes, &own.largest);
    if (status != WEIR_OK) return status;
    bool shared = weir__part_workers(options) < options->parts || options->stage_workers != NULL;
    if (shared && (status = partition_shared(options, sizes, &own)) != WEIR_OK) return status;
    if (result != NULL) *result = own;
    return WEIR_OK;
}

/* ---- by score ---- */

int weir_partition_each(const struct weir_partition_options *options, double largest,
                        weir_partition_visit_fn *visit, void *context) {
    if (!is_valid(options)) return WEIR_ERR_ARGUMENT;
    struct weir__pool pool;
    struct weir__cuts cuts;
    weir__pool_init(&pool, options->allocator);
    uint32_t *sizes = weir__pool_take(&pool, options->parts, sizeof *sizes);
    int status = sizes == NULL ? WEIR_ERR_OUT_OF_MEMORY
                               : weir__cuts_init(&cuts, &pool, options, weir__part_workers(options));
    if (status != WEIR_OK) goto out;
    cuts.bound = largest;
    while (status == WEIR_OK && weir__cuts_next(&cuts, UINT64_MAX)) {
        weir__cuts_sizes(&cuts, sizes);
        status = visit(context, sizes, weir__cuts_largest(&cuts));
    }
out:
    weir__pool_clean_up(&pool);
    return status;
}

struct scoring {
    weir_partition_score_fn *score;
    void *context;
    uint32_t parts;
    uint32_t *sizes;
    struct weir_partition_result *result;
};

static int score_one(void *context, const uint32_t *sizes, double largest) {
    struct scoring *scoring = context;
    assert(scoring->result != NULL && largest >= 0);
    double score = scoring->score(scoring->context, sizes);
    scoring->result->looked++;
    if (score >= scoring->result->score) return WEIR_OK;
    scoring->result->score = score;
    scoring->result->largest = largest;
    memcpy(scoring->sizes, sizes, scoring->parts * sizeof sizes[0]);
    return WEIR_OK;
}

static int search_downhill(const struct weir_partition_options *options,
                           weir_partition_score_fn *score, void *context, uint32_t *sizes,
                           struct weir_partition_result *result) {
    assert(sizes != NULL && result != NULL);
    struct weir__pool pool;
    struct weir__cuts cuts;
    struct descent descent = {.score = score,
                              .context = context,
                              .parts = options->parts,
                              .sizes = sizes,
                              .left = budget_of(options)};
    weir__pool_init(&pool, options->allocator);
    int status = weir__cuts_init(&cuts, &pool, options, weir__part_workers(options));
    if (status != WEIR_OK) goto out;
    descend(&descent);
    result->score = descent.best;
    result->looked = (uint32_t)descent.asked;
    result->largest = weir__partition_largest(&cuts, sizes, cuts.load);
    result->exact = false;
out:
    weir__pool_clean_up(&pool);
    return status;
}

int weir_partition_search(const struct weir_partition_options *options,
                          weir_partition_score_fn *score, void *context, uint32_t *sizes,
                          struct weir_partition_result *result) {
    struct weir_partition_result own = {.score = HUGE_VAL};
    struct scoring scoring = {score, context, options->parts, sizes, &own};
    int status = weir_partition(options, sizes, &own);
    if (status != WEIR_OK) return status;
    own.looked = 0;
    own.exact = true;
    own.score = HUGE_VAL;
    if (all_within(options, budget_of(options)))
        status = weir_partition_each(options, HUGE_VAL, score_one, &scoring);
    else
        status = search_downhill(options, score, context, sizes, &own);
    if (status != WEIR_OK) return status;
    if (result != NULL) *result = own;
    return own.score < HUGE_VAL ? WEIR_OK : WEIR_ERR_NOT_FOUND;
}
