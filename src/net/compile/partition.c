/* SPDX-License-Identifier: MIT */
/* Cutting the list of layers into stages: a given balance is checked, an automatic one makes the
 * costliest stage as cheap as it can be. */
#include "balance/balance.h"
#include "net/compile/compile.h"

#include <stdio.h>
#include <string.h>

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
    if (!positive) weir_faults_add(faults, "balance %s gives a stage no layer: %s", text, hint);
    if (sum != layers)
        weir_faults_add(faults, "balance %s adds up to %llu layer%s, but the model has %u: %s",
                        text, (unsigned long long)sum, weir__s(sum), layers, hint);
    return positive && sum == layers ? WEIR_OK : WEIR_ERR_CONFIG;
}

static int divide(const struct weir_model *model, enum weir_dtype dtype, uint32_t stages,
                  uint32_t *sizes, struct weir__pool *pool, struct weir_faults *faults) {
    assert(stages >= 1);
    uint32_t layers = model->layer_count;
    struct weir_layer_facts *facts = weir__pool_take(pool, layers, sizeof *facts);
    double *costs = weir__pool_take(pool, layers, sizeof *costs);
    if (facts == NULL || costs == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir_model_infer(model, dtype, facts, faults);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < layers; i++) costs[i] = (double)facts[i].flops;
    struct weir_partition_options cut = WEIR_PARTITION_OPTIONS_INIT;
    cut.allocator = model->allocator;
    cut.weights = costs;
    cut.count = layers;
    cut.parts = stages;
    return weir_partition(&cut, sizes, NULL);
}

static int automatic(const struct weir_model *model, enum weir_dtype dtype, uint32_t stages,
                     uint32_t *sizes, struct weir_faults *faults) {
    struct weir__pool pool;
    weir__pool_init(&pool, model->allocator);
    int status = divide(model, dtype, stages, sizes, &pool, faults);
    weir__pool_clean_up(&pool);
    return status;
}

int weir__partition_model(const struct weir_model *model, enum weir_dtype dtype, uint32_t stages,
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
        weir_faults_add(faults, "%u stages cannot be made of %u layer%s: use 1 to %u", stages,
                        layers, weir__s(layers), layers == 0 ? 1 : layers);
        return WEIR_ERR_CONFIG;
    }
    if (stages == layers || stages == 1) {
        for (uint32_t s = 0; s < stages; s++) sizes[s] = stages == 1 ? layers : 1;
        return WEIR_OK;
    }
    return automatic(model, dtype, stages, sizes, faults);
}
