/* SPDX-License-Identifier: MIT */
/* Profiles that were not measured: by FLOPs and bytes, and for another number of rows than what was
 * measured. */
#include "net/model/layer.h"
#include "net/profile/profile.h"
#include "net/profile/roofs.h"
#include "weir_profile.h"

#include <math.h>
#include <string.h>

/* ---- without a clock ---- */

/* The seconds of F of a layer on a GPU. */
static double forward_of(const struct weir__profile_state *profile, uint32_t index,
                         const struct weir_layer_facts *facts) {
    const struct weir_profile *shown = &profile->shown;
    const struct weir_layer_cost *layer = &profile->layers[index];
    assert(index < shown->costs.layer_count);
    double peak = shown->dtype == WEIR_BF16 ? WEIR__ROOF_GPU_BF16_FLOPS : WEIR__ROOF_GPU_F32_FLOPS;
    double kept = (double)(layer->saved + layer->border), fixed = (double)layer->parameters;
    return (double)facts[index].flops * (double)shown->rows / peak +
           (WEIR__ROOF_GPU_PASSES * kept + fixed) / WEIR__ROOF_GPU_BYTES +
           profile->kernels[index] * WEIR__ROOF_GPU_START;
}

static void estimate_layer(struct weir_layer_cost *layer, double forward) {
    layer->seconds[WEIR_KIND_F] = layer->forward_checkpoint = forward;
    if (layer->no_backward) return;
    layer->seconds[WEIR_KIND_R] = layer->recompute_last = forward;
    layer->seconds[WEIR_KIND_I] = forward;
    layer->seconds[WEIR_KIND_W] = layer->trainable > 0 ? forward : 0;
    layer->seconds[WEIR_KIND_B] = layer->seconds[WEIR_KIND_I] + layer->seconds[WEIR_KIND_W];
}

static int estimate_gpu(struct weir__profile_state *profile, const struct weir_model *model,
                        struct weir_faults *faults) {
    struct weir_layer_facts *facts =
        weir__pool_take(&profile->pool, model->layer_count, sizeof *facts);
    if (facts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir_model_infer(model, profile->shown.dtype, facts, faults);
    for (uint32_t i = 0; status == WEIR_OK && i < model->layer_count; i++)
        estimate_layer(&profile->layers[i], forward_of(profile, i, facts));
    return status;
}

static int estimate_kind(const void *context, const struct weir_model *model,
                         const struct weir_net_options *net, struct weir_faults *faults,
                         struct weir__profile_state **profile) {
    struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
    struct weir__profile_state *made;
    assert(context == NULL);
    (void)context;
    options.net = *net;
    options.bytes_only = true;
    int status = weir__profile_estimated(model, &options, faults, &made);
    if (status != WEIR_OK) return status;
    bool on_gpu = made->backend->on_gpu;
    if (on_gpu) status = estimate_gpu(made, model, faults);
    made->shown.costs.task_seconds = on_gpu ? WEIR__ROOF_GPU_TASK : WEIR__ROOF_CPU_TASK;
    if (status == WEIR_OK)
        *profile = made;
    else
        weir_profile_destroy(&made->shown);
    return status;
}

int weir_profile_estimate(const struct weir_model *model, const struct weir_net_options *net,
                          struct weir_faults *faults, struct weir_profile **profile) {
    if (!weir__is_sized(net)) {
        weir_faults_add(faults, WEIR__BEGIN_WITH, "WEIR_NET_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    return weir__profile_make(model, net, estimate_kind, NULL, faults, profile);
}

/* ---- from other rows ---- */

/* The nearest profile that has at most as many rows, and the nearest that has more; NULL: none. */
struct between {
    const struct weir_profile *below, *above;
    double part; /* of the way from below to above */
};

/* Profiles of other rows. */
struct known {
    const struct weir_profile *const *list;
    uint32_t count;
};

static struct between find_between(const struct known *known, const char *device, int64_t rows) {
    assert(known->count == 0 || known->list != NULL);
    struct between at = {NULL, NULL, 0};
    for (uint32_t i = 0; i < known->count; i++) {
        const struct weir_profile *one = weir__profile_of(known->list[i], device);
        bool below = one->rows <= rows;
        if (below && (at.below == NULL || one->rows > at.below->rows)) at.below = one;
        if (!below && (at.above == NULL || one->rows < at.above->rows)) at.above = one;
    }
    if (at.below != NULL && at.above != NULL)
        at.part = (double)(rows - at.below->rows) / (double)(at.above->rows - at.below->rows);
    return at;
}

static double line(double below, double above, double part) {
    return below + part * (above - below);
}

static void take_seconds(struct weir_layer_cost *layer, const struct weir_layer_cost *below,
                         const struct weir_layer_cost *above, double part) {
    assert(part >= 0 && part < 1);
    for (int k = 0; k < WEIR_KIND_COUNT; k++)
        layer->seconds[k] = line(below->seconds[k], above->seconds[k], part);
    layer->forward_checkpoint = line(below->forward_checkpoint, above->forward_checkpoint, part);
    layer->recompute_last = line(below->recompute_last, above->recompute_last, part);
}

/* A measured time grows as its estimate does, from `then` to `now`; but neither against the rows,
 * `most` times as many, nor more than they. */
static void grow(double *now, double known, double then, double most) {
    double ratio = then > 0 ? *now / then : most, low = fmin(1, most), high = fmax(1, most);
    *now = known * fmin(fmax(ratio, low), high);
}

static void grow_seconds(struct weir_layer_cost *layer, const struct weir_layer_cost *known,
                         const struct weir_layer_cost *then, double most) {
    for (int k = 0; k < WEIR_KIND_COUNT; k++)
        grow(&layer->seconds[k], known->seconds[k], then->seconds[k], most);
    grow(&layer->forward_checkpoint, known->forward_checkpoint, then->forward_checkpoint, most);
    grow(&layer->recompute_last, known->recompute_last, then->recompute_last, most);
}

/* Beyond all profiles times grow from the nearest one's, for which the same is estimated. */
static int grow_layers(struct weir__profile_state *profile, const struct weir_model *model,
                       const struct weir_net_options *net, const struct weir_profile *known,
                       struct weir_faults *faults) {
    struct weir_net_options then = *net;
    struct weir_profile *estimated;
    then.pipe.rows = known->rows, then.pipe.chunks = 1;
    then.pipe.threads_per_worker = profile->shown.threads;
    int status = weir_profile_estimate(model, &then, faults, &estimated);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < model->layer_count; i++)
        grow_seconds(&profile->layers[i], &known->costs.layers[i], &estimated->costs.layers[i],
                     (double)profile->shown.rows / (double)known->rows);
    weir_profile_destroy(estimated);
    return WEIR_OK;
}

/* Other rows are as fast on a rank as these. */
static int copy_ranks(struct weir__profile_state *profile, const struct weir_profile *known) {
    uint32_t count = known->costs.rank_count;
    struct weir_profile_rank *ranks;
    double *paces;
    if (count == 0) return WEIR_OK;
    int status = weir__profile_take_ranks(profile, count, &paces, &ranks);
    if (status != WEIR_OK) return status;
    memcpy(paces, known->costs.rank_paces, count * sizeof *paces);
    memcpy(ranks, known->ranks, count * sizeof *ranks);
    return WEIR_OK;
}

/* Between two profiles times lie on the line. */
static int scale_layers(struct weir__profile_state *profile, const struct weir_model *model,
                        const struct weir_net_options *net, const struct between *at,
                        struct weir_faults *faults) {
    assert(at->below != NULL || at->above != NULL);
    const struct weir_profile *below = at->below != NULL ? at->below : at->above;
    const struct weir_profile *above = at->above != NULL ? at->above : below;
    struct weir_profile *shown = &profile->shown;
    if (below == above && below->rows != shown->rows) {
        int status = grow_layers(profile, model, net, below, faults);
        if (status != WEIR_OK) return status;
    } else {
        for (uint32_t i = 0; i < shown->costs.layer_count; i++)
            take_seconds(&profile->layers[i], &below->costs.layers[i], &above->costs.layers[i],
                         at->part);
    }
    shown->costs.task_seconds =
        line(below->costs.task_seconds, above->costs.task_seconds, at->part);
    shown->measured = below->measured && above->measured;
    int status = copy_ranks(profile, below);
    if (status != WEIR_OK) return status;
    shown->spread = below->spread > above->spread ? below->spread : above->spread;
    return WEIR_OK;
}

static bool is_of(const struct weir_profile *profile, const struct weir_profile *known) {
    known = weir__profile_of(known, profile->device);
    return known != NULL && known->model == profile->model && known->dtype == profile->dtype &&
           known->threads == profile->threads && known->infer_only == profile->infer_only &&
           known->reference == profile->reference &&
           known->costs.layer_count == profile->costs.layer_count;
}

static int scale_kind(const void *context, const struct weir_model *model,
                      const struct weir_net_options *net, struct weir_faults *faults,
                      struct weir__profile_state **profile) {
    const struct known *known = context;
    struct weir__profile_state *made;
    int status = estimate_kind(NULL, model, net, faults, &made);
    if (status != WEIR_OK) return status;
    bool fits = known->count > 0;
    for (uint32_t i = 0; i < known->count; i++) fits = fits && is_of(&made->shown, known->list[i]);
    if (!fits) {
        weir_faults_add(faults,
                        "times of another model, device, dtype or number of threads, or none: "
                        "measure again");
        weir_profile_destroy(&made->shown);
        return WEIR_ERR_CONFIG;
    }
    struct between at = find_between(known, made->shown.device, made->shown.rows);
    status = scale_layers(made, model, net, &at, faults);
    if (status == WEIR_OK)
        *profile = made;
    else
        weir_profile_destroy(&made->shown);
    return status;
}

int weir_profile_scale(const struct weir_model *model, const struct weir_net_options *net,
                       const struct weir_profile *const *known, uint32_t count,
                       struct weir_faults *faults, struct weir_profile **profile) {
    const struct known list = {known, count};
    if (!weir__is_sized(net)) {
        weir_faults_add(faults, WEIR__BEGIN_WITH, "WEIR_NET_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    return weir__profile_make(model, net, scale_kind, &list, faults, profile);
}
