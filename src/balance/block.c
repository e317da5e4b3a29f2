/* SPDX-License-Identifier: MIT */
/*
 * One part per worker: dynamic programming over prefixes; exact. Let the last of k + 1 parts of the
 * first i layers begin at j. A smaller j makes the k parts before it lighter and the last one
 * heavier. So the best j is where the two cross. Bisection finds it: parts * count * log(count) in
 * all (512 layers in 64 parts: half a million comparisons; to try every j would be 7 million).
 *
 * Where parts have paces every j is tried: more items may then weigh less, since each part has one
 * at least, and one more may move a heavy one from a slow part to a fast one.
 */
#include "balance/balance.h"

/** best[k][i]: the smallest possible largest sum of items 0 … i-1 in k + 1 parts; cut[k][i]: where
 * the last of them begins. */
struct table {
    double *prefix; /* count + 1 */
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

static void fill_paced_cell(struct table *table, const double *paces, uint32_t k, uint32_t i) {
    assert(k >= 1 && k < i && i < table->width);
    const double *before = &table->best[(k - 1) * (size_t)table->width];
    size_t cell = k * (size_t)table->width + i;
    for (uint32_t j = k; j < i; j++) {
        double last = (table->prefix[i] - table->prefix[j]) * paces[k];
        double most = before[j] > last ? before[j] : last;
        if (j > k && most >= table->best[cell]) continue;
        table->best[cell] = most;
        table->cut[cell] = j;
    }
}

static void solve(struct table *table, const double *costs, uint32_t count, uint32_t parts,
                  const double *paces, uint32_t *sizes) {
    assert(parts >= 1 && parts <= count && table->width == count + 1);
    for (uint32_t i = 0; i < count; i++) table->prefix[i + 1] = table->prefix[i] + costs[i];
    for (uint32_t i = 1; i <= count; i++)
        table->best[i] = table->prefix[i] * (paces != NULL ? paces[0] : 1);
    for (uint32_t k = 1; k < parts; k++)
        for (uint32_t i = k + 1; i <= count; i++)
            if (paces == NULL)
                fill_cell(table, k, i);
            else
                fill_paced_cell(table, paces, k, i);
    uint32_t end = count;
    for (uint32_t k = parts; k-- > 0;) {
        uint32_t begin = k == 0 ? 0 : table->cut[k * (size_t)table->width + end];
        assert(begin < end);
        sizes[k] = end - begin;
        end = begin;
    }
}

int weir__block_partition(const struct weir_allocator *allocator, const double *costs,
                          uint32_t count, uint32_t part_count, const double *paces,
                          uint32_t *sizes) {
    assert(costs != NULL && sizes != NULL);
    assert(part_count >= 1 && part_count <= count);
    struct weir__pool pool;
    weir__pool_init(&pool, allocator);
    struct table table = {.width = count + 1};
    size_t cells = (size_t)part_count * table.width;
    table.prefix = weir__pool_take(&pool, table.width, sizeof table.prefix[0]);
    table.best = weir__pool_take(&pool, cells, sizeof table.best[0]);
    table.cut = weir__pool_take(&pool, cells, sizeof table.cut[0]);
    bool enough = table.prefix != NULL && table.best != NULL && table.cut != NULL;
    if (enough) solve(&table, costs, count, part_count, paces, sizes);
    weir__pool_clean_up(&pool);
    return enough ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}
