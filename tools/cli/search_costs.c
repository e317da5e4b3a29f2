/* SPDX-License-Identifier: MIT */
/*
 * What a search goes by. Only the chunks that were asked for are measured at first, and the times
 * of others follow from theirs; then those that win are measured, and their neighbours, until what
 * wins is measured itself.
 */
#include "pipe/describe/microbatch.h"
#include "schedule/facts.h"
#include "cli/pipe_costs.h"
#include "cli/search.h"

#include <stdio.h>
#include <string.h>

/* Measurements that together would take longer than this, or more memory than the machine has to
 * spare, are not made unasked. */
static const double patience_seconds = 10.0;
enum { MEASURED_STEPS = 3, MICRO_BATCHES_MEASURED = 4 * (MEASURED_STEPS + 1) };

static struct weir_net_options net_of(const struct weir_net_options *net,
                                      const struct search_costs *costs) {
    struct weir_net_options own = *net;
    if (costs->chunks > 0) own.pipe.chunks = costs->chunks;
    return own;
}

/* ---- one number of chunks ---- */

static int measure(struct search *search, struct search_costs *costs,
                   const struct weir_model *model, const struct weir_net_options *net,
                   struct weir_faults *faults) {
    struct weir_profile_options options = WEIR_PROFILE_OPTIONS_INIT;
    struct weir_profile *made;
    uint64_t begin = weir__now_ns();
    options.net = net_of(net, costs);
    options.warm_up = 1;
    options.steps_least = MEASURED_STEPS;
    options.seconds = 0.5;
    int status = weir_profile_new(model, &options, faults, &made);
    if (status != WEIR_OK) return status;
    weir_profile_destroy(costs->profile);
    costs->profile = made;
    costs->known = true;
    search->measured += (double)(weir__now_ns() - begin) * 1e-9;
    snprintf(search->costs, sizeof search->costs, "measured in %.1f s", search->measured);
    return WEIR_OK;
}

/* By what is thought of it so far. */
static bool is_quick(const struct search *search, const struct weir_profile *profile) {
    double seconds = 0, bytes = 0;
    for (uint32_t i = 0; i < profile->costs.layer_count; i++) {
        const struct weir_layer_cost *layer = &profile->costs.layers[i];
        seconds += weir__pass_seconds(layer->seconds, WEIR__PASS_FORWARD) +
                   weir__least_backward(layer->seconds, true);
        bytes += (double)(layer->parameters + layer->gradients + layer->saved + layer->workspace);
    }
    return search->measured + seconds * MICRO_BATCHES_MEASURED <= patience_seconds &&
           bytes <= 0x1p32;
}

static int read_profile(struct search *search, const struct pipe_options *options,
                        const struct weir_model *model, const struct weir_net_options *net,
                        FILE *notes, struct weir_faults *faults) {
    struct pipe_storage storage;
    memset(&storage, 0, sizeof storage);
    int status = pipe_profile(options, model, &storage, net, notes, faults);
    search->cost_list[0].profile = storage.profile;
    snprintf(search->costs, sizeof search->costs, "of %.80s%s", options->profile,
             search->chunks_kept ? "" : ", from there for other chunks");
    return status;
}

static int find_first(struct search *search, bool measures, const struct pipe_options *options,
                      const struct weir_model *model, const struct weir_net_options *net,
                      FILE *notes, struct weir_faults *faults) {
    struct search_costs *first = &search->cost_list[0];
    search->cost_count = 1;
    first->micro_batches = weir__chunk_count(net->pipe.rows, net->pipe.chunks);
    if (options->profile != NULL) return read_profile(search, options, model, net, notes, faults);
    int status = weir_profile_estimate(model, net, faults, &first->profile);
    bool on_gpu = status == WEIR_OK && strcmp(first->profile->device, "cuda") == 0;
    snprintf(search->costs, sizeof search->costs, "estimated from FLOPs and bytes%s",
             on_gpu ? ", as an H100 takes for them" : "");
    search->measures = measures && status == WEIR_OK && is_quick(search, first->profile);
    return search->measures ? measure(search, first, model, net, faults) : status;
}

/* ---- others ---- */

/* What is not known, from what is. */
static int scale_others(struct search *search, const struct weir_model *model,
                        const struct weir_net_options *net, struct weir_faults *faults) {
    const struct weir_profile *known[SEARCH_COSTS_MOST] = {search->cost_list[0].profile};
    uint32_t count = 1;
    int status = WEIR_OK;
    for (uint32_t i = 1; i < search->cost_count; i++)
        if (search->cost_list[i].known) known[count++] = search->cost_list[i].profile;
    for (uint32_t i = 1; i < search->cost_count && status == WEIR_OK; i++) {
        struct search_costs *costs = &search->cost_list[i];
        struct weir_net_options own = net_of(net, costs);
        if (costs->known) continue;
        weir_profile_destroy(costs->profile);
        costs->profile = NULL;
        status = known[0]->measured
                     ? weir_profile_scale(model, &own, known, count, faults, &costs->profile)
                     : weir_profile_estimate(model, &own, faults, &costs->profile);
    }
    return status;
}

int search_costs_find(struct search *search, bool measures, const struct pipe_options *options,
                      const struct weir_model *model, const struct weir_net_options *net,
                      FILE *notes, struct weir_faults *faults) {
    uint32_t counts[WEIR_NET_CHUNKS_MOST], count = 0;
    int status = find_first(search, measures, options, model, net, notes, faults);
    if (status != WEIR_OK || faults->count > 0) return status;
    if (!search->chunks_kept) count = weir_net_chunks(net, counts);
    for (uint32_t i = 0; i < count; i++)
        search->cost_list[search->cost_count++] =
            (struct search_costs){.micro_batches = counts[i], .chunks = counts[i]};
    return scale_others(search, model, net, faults);
}

/* The next more, or fewer, of what there is; UINT32_MAX: none. */
static uint32_t neighbour(const struct search *search, uint32_t of, bool more) {
    uint32_t found = UINT32_MAX, own = search->cost_list[of].micro_batches;
    for (uint32_t i = 0; i < search->cost_count; i++) {
        uint32_t at = search->cost_list[i].micro_batches;
        if (more ? at <= own : at >= own) continue;
        uint32_t best = found == UINT32_MAX ? 0 : search->cost_list[found].micro_batches;
        if (found == UINT32_MAX || (more ? at < best : at > best)) found = i;
    }
    return found;
}

int search_costs_refine(struct search *search, const struct weir_model *model,
                        const struct weir_net_options *net, struct weir_faults *faults,
                        bool *changed) {
    uint32_t at = 0;
    int status = WEIR_OK;
    *changed = false;
    if (!search->measures || search->result.winner == NULL) return WEIR_OK;
    while (search->cost_list[at].micro_batches != search->result.winner->micro_batches) at++;
    const uint32_t wanted[] = {at, neighbour(search, at, false), neighbour(search, at, true)};
    for (int i = 0; i < 3 && status == WEIR_OK; i++) {
        if (wanted[i] == UINT32_MAX) continue;
        struct search_costs *costs = &search->cost_list[wanted[i]];
        if (costs->known || !is_quick(search, costs->profile)) continue;
        status = measure(search, costs, model, net, faults);
        *changed = true;
    }
    return status == WEIR_OK && *changed ? scale_others(search, model, net, faults) : status;
}
