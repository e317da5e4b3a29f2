/* SPDX-License-Identifier: MIT */
/*
 * Walking over partitions, part by part. A part only grows, and weights are not negative, so the
 * first size that is too heavy ends the part's turn. What is left of the list must fit into the
 * workers that still have a part to come, which ends most turns early.
 */
#include "balance/balance.h"

#include <math.h>

static bool place(struct weir__cuts *cuts, struct weir__pool *pool,
                  const struct weir_partition_options *options) {
    assert(cuts->parts > 0 && cuts->workers > 0 && cuts->workers <= cuts->parts);
    uint32_t *worker = weir__pool_take(pool, cuts->parts, sizeof *worker);
    bool *closes = weir__pool_take(pool, cuts->parts, sizeof *closes);
    bool *seen = weir__pool_take(pool, cuts->workers, sizeof *seen);
    if (worker == NULL || closes == NULL || seen == NULL) return false;
    for (uint32_t k = cuts->parts; k-- > 0;) {
        worker[k] = weir__part_worker(options, k);
        assert(worker[k] < cuts->workers);
        closes[k] = !seen[worker[k]];
        seen[worker[k]] = true;
    }
    cuts->worker = worker;
    cuts->closes = closes;
    return true;
}

uint32_t weir__part_worker(const struct weir_partition_options *options, uint32_t part) {
    assert(part < options->parts);
    if (options->stage_workers != NULL) return options->stage_workers[part];
    return weir_placement_worker(options->placement, weir__part_workers(options), part);
}

double *weir__weight_sums(struct weir__pool *pool, const struct weir_partition_options *options) {
    uint32_t sets = options->by_worker ? weir__part_workers(options) : 1, count = options->count;
    double *sums = weir__pool_take(pool, (size_t)sets * (count + 1), sizeof *sums);
    for (uint32_t s = 0; sums != NULL && s < sets; s++) {
        const double *weights = &options->weights[(size_t)s * count];
        double *own = &sums[(size_t)s * (count + 1)];
        for (uint32_t i = 0; i < count; i++) own[i + 1] = own[i] + weights[i];
    }
    return sums;
}

/** Each layer where it is lightest; the sums themselves where workers do not differ. */
static const double *least_sums(struct weir__pool *pool,
                                const struct weir_partition_options *options, const double *sums) {
    uint32_t workers = weir__part_workers(options), count = options->count;
    if (!options->by_worker) return sums;
    double *least = weir__pool_take(pool, (size_t)count + 1, sizeof *least);
    for (uint32_t i = 0; least != NULL && i < count; i++) {
        double lightest = options->weights[i];
        for (uint32_t w = 1; w < workers; w++)
            lightest = fmin(lightest, options->weights[(size_t)w * count + i]);
        least[i + 1] = least[i] + lightest;
    }
    return least;
}

static bool weigh(struct weir__cuts *cuts, struct weir__pool *pool,
                  const struct weir_partition_options *options) {
    assert(cuts->worker != NULL);
    const double *sums = weir__weight_sums(pool, options);
    cuts->sums = weir__pool_take(pool, cuts->parts, sizeof cuts->sums[0]);
    if (sums == NULL || cuts->sums == NULL) return false;
    for (uint32_t k = 0; k < cuts->parts; k++)
        cuts->sums[k] = weir__worker_sums(options, sums, cuts->worker[k]);
    cuts->least = least_sums(pool, options, sums);
    return cuts->least != NULL;
}

int weir__cuts_init(struct weir__cuts *cuts, struct weir__pool *pool,
                    const struct weir_partition_options *options, uint32_t workers) {
    assert(options->parts >= 1 && options->parts <= options->count);
    *cuts = (struct weir__cuts){
        .count = options->count, .parts = options->parts, .workers = workers, .bound = HUGE_VAL};
    cuts->ends = weir__pool_take(pool, cuts->parts, sizeof cuts->ends[0]);
    cuts->before = weir__pool_take(pool, cuts->parts, sizeof cuts->before[0]);
    cuts->load = weir__pool_take(pool, cuts->workers, sizeof cuts->load[0]);
    cuts->placed = weir__pool_take(pool, (size_t)cuts->parts + 1, sizeof cuts->placed[0]);
    cuts->closed = weir__pool_take(pool, (size_t)cuts->parts + 1, sizeof cuts->closed[0]);
    cuts->open = weir__pool_take(pool, (size_t)cuts->parts + 1, sizeof cuts->open[0]);
    if (cuts->ends == NULL || cuts->before == NULL || cuts->load == NULL || cuts->placed == NULL ||
        cuts->closed == NULL || cuts->open == NULL || !place(cuts, pool, options) ||
        !weigh(cuts, pool, options))
        return WEIR_ERR_OUT_OF_MEMORY;
    cuts->open[0] = workers;
    return WEIR_OK;
}

static uint32_t begin_of(const struct weir__cuts *cuts, uint32_t part) {
    assert(part < cuts->parts);
    return part == 0 ? 0 : cuts->ends[part - 1];
}

static bool too_heavy(const struct weir__cuts *cuts, double weight) {
    return cuts->strict ? weight >= cuts->bound : weight > cuts->bound;
}

/** What is left after `part` does not fit into the workers that still have parts to come. The
 * margin keeps rounding from passing over what just fits. */
static bool hopeless(const struct weir__cuts *cuts, uint32_t part) {
    assert(part + 1 < cuts->parts);
    double left = cuts->least[cuts->count] - cuts->least[cuts->ends[part]];
    double all = cuts->placed[part + 1] + left, room = cuts->open[part + 1] * cuts->bound;
    return all - cuts->closed[part + 1] > room + 1e-9 * all;
}

/** Gives the moving part one layer more (the last part: all). False: its turn is over. */
static bool widen(struct weir__cuts *cuts) {
    assert(cuts->depth >= 0 && cuts->depth < (int64_t)cuts->parts);
    uint32_t part = (uint32_t)cuts->depth, worker = cuts->worker[part];
    uint32_t begin = begin_of(cuts, part), most = cuts->count - (cuts->parts - 1 - part);
    bool last = part + 1 == cuts->parts;
    if (cuts->ends[part] >= most) return false;
    cuts->ends[part] = last ? most : cuts->ends[part] + 1;
    cuts->moves++;
    double own = cuts->sums[part][cuts->ends[part]] - cuts->sums[part][begin];
    double load = cuts->before[part] + own;
    if (too_heavy(cuts, load)) return false;
    assert(cuts->closes[part] <= cuts->open[part]);
    cuts->load[worker] = load;
    cuts->placed[part + 1] = cuts->placed[part] + own;
    cuts->closed[part + 1] = cuts->closed[part] + (cuts->closes[part] ? load : 0);
    cuts->open[part + 1] = cuts->open[part] - cuts->closes[part];
    return true;
}

static void enter(struct weir__cuts *cuts, uint32_t part) {
    assert(part < cuts->parts && begin_of(cuts, part) < cuts->count);
    cuts->depth = part;
    cuts->ends[part] = begin_of(cuts, part);
    cuts->before[part] = cuts->load[cuts->worker[part]];
}

static void leave(struct weir__cuts *cuts) {
    assert(cuts->depth >= 0);
    cuts->load[cuts->worker[cuts->depth]] = cuts->before[cuts->depth];
    cuts->depth--;
}

bool weir__cuts_next(struct weir__cuts *cuts, uint64_t moves_max) {
    assert(cuts->depth < (int64_t)cuts->parts);
    if (cuts->moves == 0) enter(cuts, 0);
    while (cuts->depth >= 0 && cuts->moves < moves_max) {
        uint32_t part = (uint32_t)cuts->depth;
        if (!widen(cuts))
            leave(cuts);
        else if (part + 1 == cuts->parts)
            return true;
        else if (!hopeless(cuts, part))
            enter(cuts, part + 1);
    }
    return false;
}

void weir__cuts_sizes(const struct weir__cuts *cuts, uint32_t *sizes) {
    assert(cuts->depth + 1 == (int64_t)cuts->parts);
    assert(cuts->ends[cuts->parts - 1] == cuts->count);
    for (uint32_t k = 0; k < cuts->parts; k++) sizes[k] = cuts->ends[k] - begin_of(cuts, k);
}

double weir__cuts_largest(const struct weir__cuts *cuts) {
    assert(cuts->depth + 1 == (int64_t)cuts->parts);
    double largest = 0;
    for (uint32_t w = 0; w < cuts->workers; w++)
        if (cuts->load[w] > largest) largest = cuts->load[w];
    return largest;
}

double weir__partition_largest(const struct weir__cuts *cuts, const uint32_t *sizes, double *load) {
    assert(sizes != NULL && load != NULL);
    double largest = 0;
    for (uint32_t w = 0; w < cuts->workers; w++) load[w] = 0;
    for (uint32_t k = 0, begin = 0; k < cuts->parts; begin += sizes[k++]) {
        double *sum = &load[cuts->worker[k]];
        *sum += cuts->sums[k][begin + sizes[k]] - cuts->sums[k][begin];
        if (*sum > largest) largest = *sum;
    }
    return largest;
}
