/* SPDX-License-Identifier: MIT */
/*
 * One part per worker: dynamic programming over prefixes; exact. Let the last of k + 1 parts of the
 * first i layers begin at j. A smaller j makes the k parts before it lighter and the last one
 * heavier. So the best j is where the two cross. Bisection finds it: parts * count * log(count) in
 * all (512 layers in 64 parts: half a million comparisons; to try every j would be 7 million).
 *
 * Where a layer weighs more on one worker than on another, the parts before may get lighter as j
 * grows: their last worker can then leave a layer that is heavy there to the one before it. So j
 * comes down from i - 1 until the last part alone is too heavy.
 */
#include "balance/balance.h"

#include <math.h>

/** best[k][i]: the smallest possible largest sum of items 0 … i-1 in k + 1 parts; cut[k][i]: where
 * the last of them begins. */
struct table {
    const struct weir_partition_options *options;
    const double *sums;   /* of all sets */
    const double *prefix; /* of the present part's worker: count + 1 */
    double *best;
    uint32_t *cut;
    uint32_t width; /* count + 1 */
};

/** The least j in [least, most] after which items up to i sum to at most `sum`; most + 1: none. */
static uint32_t first_within(const struct table *table, uint32_t i, uint32_t least, uint32_t most,
                             double sum) {
    assert(least <= most && most < i && i < table->width);
    uint32_t low = least, high = most + 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (table->prefix[i] - table->prefix[middle] <= sum)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/** The least j in [least, most] where the parts before weigh at least as much as the last one. */
static uint32_t crossing(const struct table *table, const double *before, uint32_t i,
                         uint32_t least, uint32_t most) {
    assert(least <= most && most < i && i < table->width);
    uint32_t low = least, high = most + 1;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (before[middle] >= table->prefix[i] - table->prefix[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void fill_cell(struct table *table, uint32_t k, uint32_t i) {
    assert(k >= 1 && k < i && i < table->width);
    const double *before = &table->best[(k - 1) * (size_t)table->width];
    size_t cell = k * (size_t)table->width + i;
    uint32_t most = i - 1, j = crossing(table, before, i, k, most);
    double best = j <= most ? before[j] : table->prefix[i] - table->prefix[most];
    if (j > k && j <= most) {
        double sooner = table->prefix[i] - table->prefix[j - 1];
        best = sooner < best ? sooner : best;
    }
    table->best[cell] = best;
    table->cut[cell] = first_within(table, i, k, most, table->best[cell]);
}

/** The same for workers that differ. */
static void fill_cell_slowly(struct table *table, uint32_t k, uint32_t i) {
    assert(k >= 1 && k < i && i < table->width);
    const double *before = &table->best[(k - 1) * (size_t)table->width];
    size_t cell = k * (size_t)table->width + i;
    double best = HUGE_VAL;
    for (uint32_t j = i; j-- > k;) {
        double last = table->prefix[i] - table->prefix[j], most = fmax(before[j], last);
        if (last > best) break;
        if (most > best) continue;
        best = most;
        table->cut[cell] = j;
    }
    table->best[cell] = best;
}

static void enter_part(struct table *table, uint32_t part) {
    uint32_t worker = weir__part_worker(table->options, part);
    table->prefix = weir__worker_sums(table->options, table->sums, worker);
}

static void solve(struct table *table, uint32_t *sizes) {
    uint32_t count = table->options->count, parts = table->options->parts;
    assert(parts >= 1 && parts <= count && table->width == count + 1);
    enter_part(table, 0);
    for (uint32_t i = 1; i <= count; i++) table->best[i] = table->prefix[i];
    for (uint32_t k = 1; k < parts; k++) {
        enter_part(table, k);
        for (uint32_t i = k + 1; i <= count; i++)
            table->options->by_worker ? fill_cell_slowly(table, k, i) : fill_cell(table, k, i);
    }
    uint32_t end = count;
    for (uint32_t k = parts; k-- > 0;) {
        uint32_t begin = k == 0 ? 0 : table->cut[k * (size_t)table->width + end];
        assert(begin < end);
        sizes[k] = end - begin;
        end = begin;
    }
}

int weir__block_partition(const struct weir_partition_options *options, uint32_t *sizes,
                          double *largest) {
    assert(options->weights != NULL && sizes != NULL && largest != NULL);
    assert(options->parts >= 1 && options->parts <= options->count);
    struct weir__pool pool;
    weir__pool_init(&pool, options->allocator);
    struct table table = {.options = options, .width = options->count + 1};
    size_t cells = (size_t)options->parts * table.width;
    table.sums = weir__weight_sums(&pool, options);
    table.best = weir__pool_take(&pool, cells, sizeof table.best[0]);
    table.cut = weir__pool_take(&pool, cells, sizeof table.cut[0]);
    bool enough = table.sums != NULL && table.best != NULL && table.cut != NULL;
    if (enough) solve(&table, sizes);
    if (enough) *largest = table.best[cells - 1];
    weir__pool_clean_up(&pool);
    return enough ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}
