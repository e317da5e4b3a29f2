/* SPDX-License-Identifier: MIT */
/* Profiles that were not measured: by FLOPs and bytes, and for another number of rows than what was
 * measured. */
#include "net/model/layer.h"
#include "net/profile/profile.h"
#include "net/profile/roofs.h"
#include "weir_profile.h"

#include <string.h>

/* ---- without a clock ---- */

struct roofs {
    double flops, bytes, passes, kernel; /* the last: seconds until a kernel starts */
};

static struct roofs roofs_of(const struct weir__profile_state *profile) {
    const struct weir_profile *shown = &profile->shown;
    double threads = shown->threads > 0 ? shown->threads : 1;
    bool half = shown->dtype == WEIR_BF16;
    if (!profile->backend->on_gpu)
        return (struct roofs){(half ? WEIR__ROOF_CPU_BF16_FLOPS : WEIR__ROOF_CPU_FLOPS) * threads,
                              WEIR__ROOF_CPU_BYTES, 1, 0};
    return (struct roofs){half ? WEIR__ROOF_GPU_BF16_FLOPS : WEIR__ROOF_GPU_F32_FLOPS,
                          WEIR__ROOF_GPU_BYTES, WEIR__ROOF_GPU_PASSES, WEIR__ROOF_GPU_START};
}

/* The seconds of F of the profile's layer `index`, if it had the bytes of `layer` and `rows` rows.
 */
static double forward_of(const struct weir__profile_state *profile, uint32_t index,
                         const struct weir_layer_cost *layer, int64_t rows,
                         const struct weir_layer_facts *facts) {
    assert(index < profile->shown.costs.layer_count);
    struct roofs roofs = roofs_of(profile);
    double kept = (double)(layer->saved + layer->border), fixed = (double)layer->parameters;
    return (double)facts[index].flops * (double)rows / roofs.flops +
           (roofs.passes * kept + fixed) / roofs.bytes + profile->kernels[index] * roofs.kernel;
}

static void estimate_layer(struct weir_layer_cost *layer, double forward) {
    layer->seconds[WEIR_KIND_F] = layer->forward_checkpoint = forward;
    if (layer->no_backward) return;
    layer->seconds[WEIR_KIND_R] = layer->recompute_last = forward;
    layer->seconds[WEIR_KIND_I] = forward;
    layer->seconds[WEIR_KIND_W] = layer->trainable > 0 ? forward : 0;
    layer->seconds[WEIR_KIND_B] = layer->seconds[WEIR_KIND_I] + layer->seconds[WEIR_KIND_W];
}

/* Finds the facts of all layers; they lie in the profile's memory. */
static int find_facts(struct weir__profile_state *profile, const struct weir_model *model,
                      struct weir_faults *faults, struct weir_layer_facts **facts) {
    *facts = weir__pool_take(&profile->pool, model->layer_count, sizeof **facts);
    if (*facts == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    return weir_model_infer(model, profile->shown.dtype, *facts, faults);
}

int weir_profile_estimate(const struct weir_model *model, const struct weir_net_options *net,
                          struct weir_faults *faults, struct weir_profile **profile) {
    struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
    struct weir_profile *made;
    struct weir_layer_facts *facts;
    if (!weir__is_sized(net)) {
        weir_faults_add(faults, WEIR__BEGIN_WITH, "WEIR_NET_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    options.net = *net;
    options.bytes_only = true;
    int status = weir_profile_new(model, &options, faults, &made);
    if (status != WEIR_OK) return status;
    struct weir__profile_state *own = (struct weir__profile_state *)made;
    status = find_facts(own, model, faults, &facts);
    if (status != WEIR_OK) {
        weir_profile_destroy(made);
        return status;
    }
    for (uint32_t i = 0; i < model->layer_count; i++)
        estimate_layer(&own->layers[i], forward_of(own, i, &own->layers[i], made->rows, facts));
    made->costs.task_seconds = own->backend->on_gpu ? WEIR__ROOF_GPU_TASK : WEIR__ROOF_CPU_TASK;
    *profile = made;
    return WEIR_OK;
}

/* ---- from other rows ---- */

/* The nearest profile that has at most as many rows, and the nearest that has more; NULL: none. */
struct between {
    const struct weir_profile *below, *above;
    double part; /* of the way from below to above */
};

static struct between find_between(const struct weir_profile *const *known, uint32_t count,
                                   int64_t rows) {
    assert(count == 0 || known != NULL);
    struct between at = {NULL, NULL, 0};
    for (uint32_t i = 0; i < count; i++) {
        bool below = known[i]->rows <= rows;
        if (below && (at.below == NULL || known[i]->rows > at.below->rows)) at.below = known[i];
        if (!below && (at.above == NULL || known[i]->rows < at.above->rows)) at.above = known[i];
    }
    if (at.below != NULL && at.above != NULL)
        at.part = (double)(rows - at.below->rows) / (double)(at.above->rows - at.below->rows);
    return at;
}

static double line(double below, double above, double part) {
    return below + part * (above - below);
}

static void take_seconds(struct weir_layer_cost *layer, const struct weir_layer_cost *below,
                         const struct weir_layer_cost *above, double part, double scale) {
    assert(part >= 0 && part < 1 && scale > 0);
    for (int k = 0; k < WEIR_KIND_COUNT; k++)
        layer->seconds[k] = scale * line(below->seconds[k], above->seconds[k], part);
    layer->forward_checkpoint =
        scale * line(below->forward_checkpoint, above->forward_checkpoint, part);
    layer->recompute_last = scale * line(below->recompute_last, above->recompute_last, part);
}

/* Times lie on the line between both profiles. Beyond all profiles they grow from the nearest one
 * as the estimate does. */
static void scale_layers(struct weir__profile_state *profile, const struct between *at,
                         const struct weir_layer_facts *facts) {
    assert(at->below != NULL || at->above != NULL);
    const struct weir_profile *below = at->below != NULL ? at->below : at->above;
    const struct weir_profile *above = at->above != NULL ? at->above : below;
    struct weir_profile *shown = &profile->shown;
    for (uint32_t i = 0; i < shown->costs.layer_count; i++) {
        const struct weir_layer_cost *a = &below->costs.layers[i], *b = &above->costs.layers[i];
        double now = forward_of(profile, i, &profile->layers[i], shown->rows, facts);
        double then = forward_of(profile, i, a, below->rows, facts);
        bool beyond = below == above && now > 0 && then > 0;
        take_seconds(&profile->layers[i], a, b, at->part, beyond ? now / then : 1);
    }
    shown->costs.task_seconds =
        line(below->costs.task_seconds, above->costs.task_seconds, at->part);
    shown->measured = below->measured && above->measured;
    shown->spread = below->spread > above->spread ? below->spread : above->spread;
}

static bool is_of(const struct weir_profile *profile, const struct weir_profile *known) {
    return known->model == profile->model && known->dtype == profile->dtype &&
           known->threads == profile->threads && strcmp(known->device, profile->device) == 0 &&
           known->infer_only == profile->infer_only && known->reference == profile->reference &&
           known->costs.layer_count == profile->costs.layer_count;
}

int weir_profile_scale(const struct weir_model *model, const struct weir_net_options *net,
                       const struct weir_profile *const *known, uint32_t count,
                       struct weir_faults *faults, struct weir_profile **profile) {
    struct weir_profile *made;
    struct weir_layer_facts *facts;
    int status = weir_profile_estimate(model, net, faults, &made);
    if (status != WEIR_OK) return status;
    bool fits = count > 0;
    for (uint32_t i = 0; i < count; i++) fits = fits && is_of(made, known[i]);
    if (!fits)
        weir_faults_add(faults,
                        "times of another model, device, dtype or number of threads, or none: "
                        "measure again");
    struct between at = find_between(known, fits ? count : 0, made->rows);
    status = fits ? find_facts((struct weir__profile_state *)made, model, faults, &facts)
                  : WEIR_ERR_CONFIG;
    if (status != WEIR_OK) {
        weir_profile_destroy(made);
        return status;
    }
    scale_layers((struct weir__profile_state *)made, &at, facts);
    *profile = made;
    return WEIR_OK;
}
