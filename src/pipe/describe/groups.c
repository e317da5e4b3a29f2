/* SPDX-License-Identifier: MIT */
#include "pipe/describe/groups.h"

#include "pipe/describe/microbatch.h"

#include <inttypes.h>

static bool is_power_of_two(uint32_t number) {
    return number > 0 && (number & (number - 1)) == 0;
}

static void check_ranks(const struct weir_pipe_options *options, uint32_t replicas,
                        struct weir_faults *faults) {
    const struct weir_world *world = options->world;
    uint32_t ranks = world != NULL && weir__is_sized(world) ? world->rank_count : 0;
    if (options->infer_only)
        weir_faults_add(faults,
                        "%" PRIu32 " replicas share the gradients of training, and this "
                        "pipe only infers: leave them away",
                        replicas);
    else if (ranks > 0 && ranks % replicas != 0)
        weir_faults_add(faults,
                        "%" PRIu32 " replicas need a number of ranks that they divide, and there "
                        "%s %" PRIu32 ": start %" PRIu32,
                        replicas, ranks == 1 ? "is" : "are", ranks,
                        (ranks / replicas + 1) * replicas);
}

void weir__groups_check(const struct weir_pipe_options *options, struct weir_faults *faults) {
    uint32_t replicas = weir__replicas(options), groups = weir__gradient_groups(options);
    if (!is_power_of_two(groups))
        weir_faults_add(faults,
                        "gradient_groups %" PRIu32 ": they are added two by two: give a "
                        "power of two%s",
                        groups, options->gradient_groups == 0 ? ", and as many replicas" : "");
    if (groups % replicas != 0)
        weir_faults_add(faults,
                        "%" PRIu32 " replicas do not divide %" PRIu32 " gradient groups: give as "
                        "many groups, or fewer replicas",
                        replicas, groups);
    if (replicas > 1) check_ranks(options, replicas, faults);
}

static uint32_t group_size(uint32_t whole, uint32_t groups) {
    assert(whole > 0 && groups > 0);
    return (whole - 1) / groups + 1;
}

static bool fills(uint32_t whole, uint32_t groups) {
    return (whole - 1) / group_size(whole, groups) + 1 == groups;
}

bool weir__groups_check_rows(const struct weir_pipe_options *options, int64_t rows,
                             struct weir_faults *faults) {
    uint32_t groups = weir__gradient_groups(options), replicas = weir__replicas(options);
    uint32_t whole = weir__chunk_count(rows, options->chunks), fewer = groups;
    bool sound = is_power_of_two(groups) && groups % replicas == 0;
    if (options->infer_only || !sound || fills(whole, groups)) return true;
    while (fewer > replicas && !fills(whole, fewer)) fewer /= 2;
    if (fills(whole, fewer))
        weir_faults_add(faults,
                        "%" PRIu32 " micro-batch%s (of %lld row%s) cannot be %" PRIu32 " groups "
                        "of gradients: give gradient_groups %" PRIu32,
                        whole, weir__es(whole), (long long)rows, weir__s((uint64_t)rows), groups,
                        fewer);
    else
        weir_faults_add(faults,
                        "%" PRIu32 " micro-batch%s (of %lld row%s) cannot be %" PRIu32 " groups "
                        "of gradients: give chunks %" PRIu32 " and as many rows, or fewer "
                        "replicas",
                        whole, weir__es(whole), (long long)rows, weir__s((uint64_t)rows), groups,
                        group_size(whole, groups) * groups);
    return false;
}

struct weir__groups weir__groups_of(const struct weir_pipe_options *options, uint32_t replica,
                                    int64_t rows) {
    uint32_t whole = weir__chunk_count(rows, options->chunks);
    uint32_t size = group_size(whole, weir__gradient_groups(options));
    uint32_t most = size * (weir__gradient_groups(options) / weir__replicas(options));
    uint32_t first = replica * most;
    uint32_t left = first < whole ? whole - first : 0;
    return (struct weir__groups){whole, first, left < most ? left : most, size};
}

struct weir__groups weir__groups_infer(const struct weir_pipe_options *options, uint32_t replica,
                                       int64_t rows) {
    uint32_t whole = weir__chunk_count(rows, options->chunks), replicas = weir__replicas(options);
    uint32_t most = group_size(whole, replicas), first = replica * most;
    if (!fills(whole, replicas)) return (struct weir__groups){whole, 0, whole, whole};
    return (struct weir__groups){whole, first, whole - first < most ? whole - first : most, most};
}

/* The first cut from `wanted` on. */
static size_t cut_at(const struct weir_section *section, size_t wanted) {
    uint32_t low = 0, high = section->cut_count;
    if (section->cuts == NULL) {
        size_t rest = wanted % WEIR_SLICE_BLOCK, left = section->bytes - wanted;
        size_t more = rest == 0 ? 0 : WEIR_SLICE_BLOCK - rest;
        return more < left ? wanted + more : section->bytes;
    }
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (section->cuts[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low < section->cut_count ? section->cuts[low] : section->bytes;
}

void weir_section_slice(const struct weir_section *section, uint32_t replicas, uint32_t replica,
                        size_t *begin, size_t *end) {
    size_t part = section->bytes / replicas;
    assert(replica < replicas);
    *begin = replica == 0 ? 0 : cut_at(section, part * replica);
    *end = replica + 1 == replicas ? section->bytes : cut_at(section, part * (replica + 1));
}
