/* SPDX-License-Identifier: MIT */
/* Cutting the list of layers into stages: a given balance is checked, an automatic one makes the
 * costliest stage as cheap as it can be (dynamic programming over prefixes; exact). */
#include "net/compile.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/** best[k][i]: the smallest possible largest sum of items 0 … i-1 in k + 1 parts; cut[k][i]: where
 * the last of them begins. */
struct table {
    double *prefix; /* count + 1 */
    double *best;
    uint32_t *cut;
    uint32_t width; /* count + 1 */
};

static void fill_row(struct table *table, uint32_t k, uint32_t i) {
    double *best = &table->best[k * table->width + i];
    *best = HUGE_VAL;
    if (k == 0) {
        *best = table->prefix[i];
        return;
    }
    for (uint32_t j = k; j < i; j++) {
        double last = table->prefix[i] - table->prefix[j];
        double before = table->best[(k - 1) * table->width + j];
        double largest = last > before ? last : before;
        if (largest >= *best) continue;
        *best = largest;
        table->cut[k * table->width + i] = j;
    }
}

static void solve(struct table *table, const double *costs, uint32_t count, uint32_t parts,
                  uint32_t *sizes) {
    for (uint32_t i = 0; i < count; i++) table->prefix[i + 1] = table->prefix[i] + costs[i];
    for (uint32_t k = 0; k < parts; k++)
        for (uint32_t i = k + 1; i <= count; i++) fill_row(table, k, i);
    uint32_t end = count;
    for (uint32_t k = parts; k-- > 0;) {
        uint32_t begin = k == 0 ? 0 : table->cut[k * table->width + end];
        sizes[k] = end - begin;
        end = begin;
    }
}

int weir__block_partition(const struct weir_allocator *allocator, const double *costs,
                          uint32_t count, uint32_t part_count, uint32_t *sizes) {
    assert(part_count >= 1 && part_count <= count);
    struct weir__pool pool;
    weir__pool_init(&pool, allocator);
    struct table table = {.width = count + 1};
    size_t cells = (size_t)part_count * table.width;
    table.prefix = weir__pool_take(&pool, table.width, sizeof table.prefix[0]);
    table.best = weir__pool_take(&pool, cells, sizeof table.best[0]);
    table.cut = weir__pool_take(&pool, cells, sizeof table.cut[0]);
    bool enough = table.prefix != NULL && table.best != NULL && table.cut != NULL;
    if (enough) solve(&table, costs, count, part_count, sizes);
    weir__pool_clean_up(&pool);
    return enough ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

/* ---- a model's stages ---- */

static const char *balance_text(const uint32_t *balance, uint32_t count, char *text,
                                size_t capacity) {
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count && used + 1 < capacity; i++) {
        int more = snprintf(text + used, capacity - used, "%s%u", i == 0 ? "" : ",", balance[i]);
        used += more > 0 ? (size_t)more : 0;
    }
    return text;
}

static int check_balance(uint32_t layers, uint32_t stages, const uint32_t *balance,
                         struct weir_faults *faults) {
    static const char *const hint =
        "leave the balance away for an automatic one (by estimated cost)";
    char text[96];
    uint64_t sum = 0;
    bool positive = true;
    for (uint32_t s = 0; s < stages; s++) {
        positive &= balance[s] >= 1;
        sum += balance[s];
    }
    balance_text(balance, stages, text, sizeof text);
    if (!positive) weir_faults_add(faults, "balance %s gives a stage no layer; %s", text, hint);
    if (sum != layers)
        weir_faults_add(faults, "balance %s adds up to %llu layers, but the model has %u; %s", text,
                        (unsigned long long)sum, layers, hint);
    return positive && sum == layers ? WEIR_OK : WEIR_ERR_CONFIG;
}

static int automatic(const struct weir_model *model, enum weir_dtype dtype, uint32_t stages,
                     uint32_t *sizes, struct weir_faults *faults) {
    uint32_t layers = model->layer_count;
    struct weir__pool pool;
    weir__pool_init(&pool, model->allocator);
    struct weir_layer_facts *facts = weir__pool_take(&pool, layers, sizeof *facts);
    double *costs = weir__pool_take(&pool, layers, sizeof *costs);
    int status = facts == NULL || costs == NULL ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
    if (status == WEIR_OK) status = weir_model_infer(model, dtype, facts, faults);
    for (uint32_t i = 0; status == WEIR_OK && i < layers; i++) costs[i] = (double)facts[i].flops;
    if (status == WEIR_OK)
        status = weir__block_partition(model->allocator, costs, layers, stages, sizes);
    weir__pool_clean_up(&pool);
    return status;
}

int weir__partition(const struct weir_model *model, enum weir_dtype dtype, uint32_t stages,
                    const uint32_t *balance, uint32_t *sizes, struct weir_faults *faults) {
    uint32_t layers = model->layer_count;
    if (layers == 0 && stages == 1) {
        sizes[0] = 0;
        return WEIR_OK;
    }
    if (balance != NULL) {
        int status = check_balance(layers, stages, balance, faults);
        if (status == WEIR_OK) memcpy(sizes, balance, stages * sizeof sizes[0]);
        return status;
    }
    if (stages > layers || stages == 0) {
        weir_faults_add(faults, "%u stages cannot be made of %u layer%s; use 1 to %u", stages,
                        layers, layers == 1 ? "" : "s", layers == 0 ? 1 : layers);
        return WEIR_ERR_CONFIG;
    }
    if (stages == layers || stages == 1) {
        for (uint32_t s = 0; s < stages; s++) sizes[s] = stages == 1 ? layers : 1;
        return WEIR_OK;
    }
    return automatic(model, dtype, stages, sizes, faults);
}
