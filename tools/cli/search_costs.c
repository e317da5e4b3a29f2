/* SPDX-License-Identifier: MIT */
/* What a search goes by: a profile that is named, or estimates from the machine's roofs. Times of
 * other chunks than a profile's follow from it. */
#include "pipe/describe/microbatch.h"
#include "cli/pipe_costs.h"
#include "cli/search.h"

#include <stdio.h>
#include <string.h>

static struct weir_net_options net_of(const struct weir_net_options *net,
                                      const struct search_costs *costs) {
    struct weir_net_options own = *net;
    if (costs->chunks > 0) own.pipe.chunks = costs->chunks;
    return own;
}

/* ---- one number of chunks ---- */

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

static int find_first(struct search *search, const struct pipe_options *options,
                      const struct weir_model *model, const struct weir_net_options *net,
                      FILE *notes, struct weir_faults *faults) {
    struct search_costs *first = &search->cost_list[0];
    search->cost_count = 1;
    first->micro_batches = weir_net_micro_batches(net);
    first->whole = weir__chunk_count(net->pipe.rows, net->pipe.chunks);
    if (options->profile != NULL) return read_profile(search, options, model, net, notes, faults);
    int status = weir_profile_estimate(model, net, faults, &first->profile);
    if (status != WEIR_OK) return status;
    static const char gpus[] = "from FLOPs and bytes, as an H100 takes for them";
    bool on_gpu = strcmp(first->profile->device, "cuda") == 0;
    snprintf(search->costs, sizeof search->costs, "estimated %s",
             on_gpu ? gpus : "from this machine's roofs");
    if (first->profile->other != NULL)
        snprintf(search->costs, sizeof search->costs,
                 "estimated from this machine's roofs and, on GPUs, %s", gpus);
    return WEIR_OK;
}

/* ---- others ---- */

static int find_others(struct search *search, const struct weir_model *model,
                       const struct weir_net_options *net, struct weir_faults *faults) {
    const struct weir_profile *known = search->cost_list[0].profile;
    int status = WEIR_OK;
    for (uint32_t i = 1; i < search->cost_count && status == WEIR_OK; i++) {
        struct search_costs *costs = &search->cost_list[i];
        struct weir_net_options own = net_of(net, costs);
        status = known->measured
                     ? weir_profile_scale(model, &own, &known, 1, faults, &costs->profile)
                     : weir_profile_estimate(model, &own, faults, &costs->profile);
    }
    return status;
}

int search_costs_find(struct search *search, const struct pipe_options *options,
                      const struct weir_model *model, const struct weir_net_options *net,
                      FILE *notes, struct weir_faults *faults) {
    uint32_t counts[WEIR_NET_CHUNKS_MOST], count = 0;
    int status = find_first(search, options, model, net, notes, faults);
    if (status != WEIR_OK || faults->count > 0) return status;
    if (!search->chunks_kept) count = weir_net_chunks(net, counts);
    for (uint32_t i = 0; i < count; i++)
        search->cost_list[search->cost_count++] = (struct search_costs){
            .micro_batches = counts[i] / search->replicas, .whole = counts[i], .chunks = counts[i]};
    return find_others(search, model, net, faults);
}
