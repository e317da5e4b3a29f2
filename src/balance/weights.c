/* SPDX-License-Identifier: MIT */
/* What a layer weighs, by time or by size. */
#include "balance/balance.h"

#include <math.h>

static double time_weight(const struct weir_layer_cost *layer,
                          const struct weir_balance_options *options, double checkpointed) {
    assert(checkpointed >= 0 && checkpointed <= 1);
    const double *seconds = layer->seconds;
    double kept = weir__pass_seconds(seconds, WEIR__PASS_FORWARD);
    if (options->infer || layer->no_backward) return kept;
    double backward = weir__least_backward(seconds, true);
    if (options->split)
        backward = weir__pass_seconds(seconds, WEIR__PASS_GRADIENT) +
                   weir__pass_seconds(seconds, WEIR__PASS_WEIGHT);
    double again = layer->forward_checkpoint + weir__pass_seconds(seconds, WEIR__PASS_RECOMPUTE);
    return (1 - checkpointed) * kept + checkpointed * again + backward;
}

static double lasting_weight(const struct weir_layer_cost *layer, double scale) {
    if (scale >= 0) return scale * (double)layer->parameters;
    return (double)layer->parameters + (double)layer->gradients + (double)layer->optimizer;
}

static double size_weight(const struct weir_layer_cost *layer,
                          const struct weir_balance_options *options, double checkpointed) {
    assert(checkpointed >= 0 && checkpointed <= 1);
    double alive = options->alive == 0 ? options->micro_batches : options->alive;
    double lasting = lasting_weight(layer, options->parameter_scale);
    double saved = (double)layer->saved, border = (double)layer->border;
    if (options->infer) return lasting + border;
    double kept = (1 - checkpointed) * alive;
    if (checkpointed > 0 && kept < 1) kept = 1;
    return lasting + kept * saved + checkpointed * alive * border;
}

int weir_layer_weights(const struct weir_layer_costs *costs,
                       const struct weir_balance_options *options, double *weights) {
    assert(costs != NULL && weights != NULL);
    size_t readers;
    if (!weir__is_sized(options) || options->micro_batches == 0) return WEIR_ERR_ARGUMENT;
    uint32_t total = options->micro_batches;
    enum weir_checkpoint mode = options->checkpoint == WEIR_CHECKPOINT_DEFAULT
                                    ? WEIR_CHECKPOINT_EXCEPT_LAST
                                    : options->checkpoint;
    double checkpointed = (double)weir_checkpoint_count(mode, total) / total;
    double alive = options->alive == 0 ? total : options->alive;
    for (uint32_t i = 0; i < costs->layer_count; i++)
        weights[i] = options->by == WEIR_BALANCE_BY_TIME
                         ? time_weight(&costs->layers[i], options, checkpointed)
                         : size_weight(&costs->layers[i], options, checkpointed);
    if (options->by == WEIR_BALANCE_BY_TIME || options->infer) return WEIR_OK;
    if (!weir__layer_skips_are_valid(costs, &readers)) return WEIR_ERR_ARGUMENT;
    for (uint32_t s = 0; s < costs->skip_count; s++)
        weights[costs->skips[s].source] += alive * (double)costs->skips[s].bytes;
    return WEIR_OK;
}

/* ---- workers that differ ---- */

const struct weir_layer_costs *weir__costs_of(const struct weir_layer_costs *costs, uint32_t kind) {
    for (; costs != NULL && kind > 0; kind--) costs = costs->other;
    return costs;
}

bool weir__worker_cost_is_valid(const struct weir_layer_costs *costs,
                                const struct weir_worker_cost *worker) {
    const struct weir_layer_costs *list = weir__costs_of(costs, worker->kind);
    return list != NULL && list->layer_count == costs->layer_count && worker->pace >= 0 &&
           worker->pace < HUGE_VAL;
}

int weir_worker_weights(const struct weir_layer_costs *costs,
                        const struct weir_worker_cost *workers, uint32_t worker_count,
                        const struct weir_balance_options *options, double *weights) {
    assert(costs != NULL && workers != NULL && weights != NULL);
    for (uint32_t w = 0; w < worker_count; w++) {
        double *own = &weights[(size_t)w * costs->layer_count];
        if (!weir__worker_cost_is_valid(costs, &workers[w])) return WEIR_ERR_ARGUMENT;
        int status = weir_layer_weights(weir__costs_of(costs, workers[w].kind), options, own);
        if (status != WEIR_OK) return status;
        if (options->by != WEIR_BALANCE_BY_TIME) continue;
        for (uint32_t i = 0; i < costs->layer_count; i++) own[i] *= weir__pace(&workers[w]);
    }
    return WEIR_OK;
}
