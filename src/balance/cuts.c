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
        worker[k] = options->stage_workers != NULL
                        ? options->stage_workers[k]
                        : weir_placement_worker(options->placement, cuts->workers, k);
        assert(worker[k] < cuts->workers);
        closes[k] = !seen[worker[k]];
        seen[worker[k]] = true;
    }
    cuts->worker = worker;
    cuts->closes = closes;
    return true;
}

int weir__cuts_init(struct weir__cuts *cuts, struct weir__pool *pool,
                    const struct weir_partition_options *options, uint32_t workers) {
    assert(options->parts >= 1 && options->parts <= options->count);
    *cuts = (struct weir__cuts){
        .count = options->count, .parts = options->parts, .workers = workers, .bound = HUGE_VAL};
    double *prefix = weir__pool_take(pool, (size_t)cuts->count + 1, sizeof *prefix);
    cuts->ends = weir__pool_take(pool, cuts->parts, sizeof cuts->ends[0]);
    cuts->before = weir__pool_take(pool, cuts->parts, sizeof cuts->before[0]);
    cuts->load = weir__pool_take(pool, cuts->workers, sizeof cuts->load[0]);
    cuts->closed = weir__pool_take(pool, (size_t)cuts->parts + 1, sizeof cuts->closed[0]);
    cuts->open = weir__pool_take(pool, (size_t)cuts->parts + 1, sizeof cuts->open[0]);
    cuts->paces = weir__pool_take(pool, cuts->workers, sizeof cuts->paces[0]);
    if (prefix == NULL || cuts->paces == NULL || cuts->ends == NULL || cuts->before == NULL ||
        cuts->load == NULL || cuts->closed == NULL || cuts->open == NULL ||
        !place(cuts, pool, options))
        return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < cuts->count; i++) prefix[i + 1] = prefix[i] + options->weights[i];
    cuts->prefix = prefix;
    for (uint32_t w = 0; w < workers; w++) {
        cuts->paces[w] = options->worker_paces != NULL ? options->worker_paces[w] : 1;
        cuts->open[0] += 1 / cuts->paces[w];
    }
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
    double all = cuts->prefix[cuts->count];
    double room = cuts->open[part + 1] * cuts->bound;
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
    double pace = cuts->paces[worker];
    double load =
        cuts->before[part] + (cuts->prefix[cuts->ends[part]] - cuts->prefix[begin]) * pace;
    if (too_heavy(cuts, load)) return false;
    cuts->load[worker] = load;
    cuts->closed[part + 1] = cuts->closed[part] + (cuts->closes[part] ? load / pace : 0);
    cuts->open[part + 1] = cuts->open[part] - (cuts->closes[part] ? 1 / pace : 0);
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
        *sum +=
            (cuts->prefix[begin + sizes[k]] - cuts->prefix[begin]) * cuts->paces[cuts->worker[k]];
        if (*sum > largest) largest = *sum;
    }
    return largest;
}
