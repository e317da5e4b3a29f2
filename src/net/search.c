/* SPDX-License-Identifier: MIT */
/* The planner's layers and memory are those of a model. */
#include "weir_net_search.h"

#include "net/layer.h"
#include "net/profile.h"
#include "pipe/microbatch.h"

#include <string.h>

/* ---- costs without a clock ---- */

static const double flops_per_second = 20e9, bytes_per_second = 10e9, task_seconds = 1e-6;

static void estimate_layer(struct weir_layer_cost *layer, const struct weir_layer_facts *facts,
                           int64_t rows, double threads) {
    double bytes = (double)(layer->saved + layer->border + layer->parameters);
    double forward = (double)facts->flops * (double)rows / (flops_per_second * threads) +
                     bytes / bytes_per_second;
    layer->seconds[WEIR_KIND_F] = layer->forward_checkpoint = forward;
    if (layer->no_backward) return;
    layer->seconds[WEIR_KIND_R] = layer->recompute_last = forward;
    layer->seconds[WEIR_KIND_I] = forward;
    layer->seconds[WEIR_KIND_W] = layer->trainable > 0 ? forward : 0;
    layer->seconds[WEIR_KIND_B] = layer->seconds[WEIR_KIND_I] + layer->seconds[WEIR_KIND_W];
}

static int estimate(struct weir__profile *profile, const struct weir_model *model,
                    struct weir_faults *faults) {
    struct weir__pool pool;
    weir__pool_init(&pool, model->allocator);
    struct weir_layer_facts *facts = weir__pool_take(&pool, model->layer_count, sizeof *facts);
    int status = facts == NULL ? WEIR_ERR_OUT_OF_MEMORY
                               : weir_model_infer(model, profile->shown.dtype, facts, faults);
    for (uint32_t i = 0; status == WEIR_OK && i < model->layer_count; i++)
        estimate_layer(&profile->layers[i], &facts[i], profile->shown.rows,
                       profile->shown.threads > 0 ? profile->shown.threads : 1);
    profile->shown.costs.task_seconds = task_seconds;
    weir__pool_clean_up(&pool);
    return status;
}

int weir_profile_estimate(const struct weir_model *model, const struct weir_net_options *net,
                          struct weir_faults *faults, struct weir_profile **profile) {
    struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
    struct weir_profile *made;
    options.net = *net;
    options.bytes_only = true;
    int status = weir_profile_new(model, &options, faults, &made);
    if (status != WEIR_OK) return status;
    status = estimate((struct weir__profile *)made, model, faults);
    if (status == WEIR_OK)
        *profile = made;
    else
        weir_profile_destroy(made);
    return status;
}

/* ---- the search ---- */

static const double link_seconds = 5e-6;

struct asking {
    const struct weir_model *model;
    const struct weir_net_options *net;
};

void weir_net_choose(const struct weir_planner_choice *choice, struct weir_net_options *net) {
    net->stages = choice->stages;
    net->balance = choice->balance;
    net->pipe.workers = choice->workers;
    net->pipe.schedule = choice->schedule;
    net->pipe.table_csv = NULL;
    net->pipe.table_csv_bytes = 0;
    net->pipe.stage_checkpoint = choice->checkpoint;
    net->pipe.recompute_late = choice->recompute_late;
}

static int plan_bytes(void *context, const struct weir_planner_choice *choice, uint64_t *bytes) {
    const struct asking *asking = context;
    struct weir_net_options net = *asking->net;
    struct weir_plan *plan;
    weir_net_choose(choice, &net);
    net.pipe.memory_limit = 0;
    int status = weir_net_plan(asking->model, &net, NULL, &plan);
    if (status != WEIR_OK) return status;
    *bytes = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        if (plan->devices[d].total > *bytes) *bytes = plan->devices[d].total;
    weir_plan_destroy(plan);
    return WEIR_OK;
}

/* A micro-batch of fewer rows takes as much less. */
static const double *scales(struct weir__pool *pool, int64_t rows, uint32_t count,
                            uint32_t chunks) {
    double *scale = weir__pool_take(pool, count, sizeof *scale);
    double most = (double)weir__chunk_first(rows, chunks, 1);
    for (uint32_t i = 0; scale != NULL && i < count; i++)
        scale[i] =
            (double)(weir__chunk_first(rows, chunks, i + 1) - weir__chunk_first(rows, chunks, i)) /
            most;
    return scale;
}

int weir_net_search(struct weir_planner *planner, const struct weir_model *model,
                    const struct weir_net_options *net, const struct weir_layer_costs *costs,
                    const struct weir_planner_options *search, struct weir_faults *faults,
                    struct weir_planner_result *result) {
    struct weir_planner_options options = *search;
    struct asking asking = {model, net};
    if (search->size != sizeof *search || net->size != sizeof *net) return WEIR_ERR_ARGUMENT;
    if (net->pipe.rows < 1 || net->pipe.chunks < 1) {
        weir_faults_add(faults, "no rows, or no chunks: ask for 1 or more of each");
        return WEIR_ERR_ARGUMENT;
    }
    struct weir__pool pool;
    weir__pool_init(&pool, net->pipe.allocator);
    options.costs = costs;
    options.workers = net->pipe.workers > 0 ? net->pipe.workers : net->stages;
    options.micro_batches = weir__chunk_count(net->pipe.rows, net->pipe.chunks);
    options.micro_batch_scale =
        scales(&pool, net->pipe.rows, options.micro_batches, net->pipe.chunks);
    options.memory = plan_bytes;
    options.memory_context = &asking;
    if (options.link.latency == 0 && options.link.seconds_per_byte == 0)
        options.link.latency = link_seconds;
    int status = options.micro_batch_scale == NULL
                     ? WEIR_ERR_OUT_OF_MEMORY
                     : weir_planner_search(planner, &options, faults, result);
    weir__pool_clean_up(&pool);
    return status;
}
