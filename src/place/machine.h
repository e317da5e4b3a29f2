/* SPDX-License-Identifier: MIT */
/**
 * Inside src/place: the machine as the planner sees it, a list of usable cores in hwloc's logical
 * order (neighbours in the list are neighbours in the machine), and the parts that plan.c joins.
 */
#ifndef WEIR_PLACE_MACHINE_H
#define WEIR_PLACE_MACHINE_H

#include "place/place.h"

#include <hwloc.h>

/** One core that the process may use. */
struct weir__core {
    uint32_t unit; /**< the one processing unit of it that we use, the operating system's number */
    uint32_t id;   /**< the core's lowest processing unit, allowed or not: its name in claims */
};

/** Written by weir__machine_new only, except `claims`, which belong to the thread that plans. */
struct weir__machine {
    const struct weir_allocator *allocator;
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed;   /**< processing units that cpusets leave to us */
    struct weir__core *cores; /**< core_count of them; room for capacity */
    int *claims;              /**< per core: the claim's socket, or -1 */
    uint32_t capacity;
    uint32_t core_count;
    uint32_t usable_count; /**< core_count, or what the cgroup's quota leaves of it */
    double quota_cores;
    bool synthetic;
};

/** The index of the core that holds a processing unit, or core_count. */
uint32_t weir__machine_core_of(const struct weir__machine *machine, uint32_t unit);

/* ---- quota.c ---- */

/** The cgroups' limit on processor time in cores (v1 and v2, the tightest one on the way up), 0 for
 * none. Reads <root>/proc/self/cgroup and mountinfo; `root` is "" but for tests. */
double weir__quota_cores(const char *root);
/** How many of `cores` cores a quota can keep busy: at least one. */
uint32_t weir__quota_usable(uint32_t cores, double quota_cores);

/* ---- list.c ---- */

/** Reads "0-3,8" into `units` in the order given. Each number must be in `allowed`, none named
 * twice. WEIR_ERR_ARGUMENT with every reason in `faults`, WEIR_ERR_OUT_OF_MEMORY. */
int weir__list_parse(const char *text, hwloc_const_bitmap_t allowed, struct weir_faults *faults,
                     uint32_t capacity, uint32_t *units, uint32_t *count);
/** The set as "0-3,8"; what does not fit is cut at a comma and ends in "...". Returns `text`. */
const char *weir__list_text(hwloc_const_bitmap_t set, char *text, size_t capacity);

/* ---- near.c ---- */

/** weir__place_near for any machine; reads <root>/sys, `root` is "" but for tests. */
int weir__near_read(const struct weir__machine *machine, const char *root, const char *address,
                    struct weir__near *near);

/* ---- claim.c ---- */

enum weir__claim {
    WEIR__CLAIM_OURS,     /**< this machine holds it now, or claims do not work here */
    WEIR__CLAIM_SIBLING,  /**< another pipe of this process holds it; now this machine too */
    WEIR__CLAIM_STRANGER, /**< another process holds it */
};

enum weir__claim weir__claim_core(struct weir__machine *machine, uint32_t core);
void weir__unclaim_core(struct weir__machine *machine, uint32_t core);

/* ---- plan.c ---- */

/** What one call plans. */
struct weir__placing {
    struct weir__machine *machine;
    uint32_t workers, threads;
    uint32_t share, shares;               /**< as weir__place_request's, at least 1 */
    uint32_t gpu_count;                   /**< workers with one */
    const struct weir__near *const *gpus; /**< as weir__place_request's */
    struct weir__worker_place *placements;
};
static inline const struct weir__near *weir__placing_gpu(const struct weir__placing *placing,
                                                         uint32_t worker) {
    return placing->gpus != NULL ? placing->gpus[worker] : NULL;
}
/** Workers without a GPU. */
static inline uint32_t weir__placing_computing(const struct weir__placing *placing) {
    return placing->workers - placing->gpu_count;
}
/** Fills a bound worker's placement: all but worker, threads, core_count and core_ids, which are
 * there. WEIR_ERR_OUT_OF_MEMORY. */
int weir__placing_describe(const struct weir__placing *placing,
                           struct weir__worker_place *placement);

/* ---- auto.c ---- */

/** Binds, and claims, where there is room; placements are all unbound before.
 * WEIR_ERR_OUT_OF_MEMORY. */
int weir__placing_auto(const struct weir__placing *placing);

/* ---- choose.c ---- */

/** Deals groups of `threads` cores to `workers`: owner[i] becomes the worker of core i, or
 * WEIR__NO_WORKER. Only cores with usable[i] are dealt; false if these are too few. A group
 * straddles two caches, NUMA nodes or packages only where no group that does not is left, workers
 * go together under the smallest object that holds them all, and are numbered in logical order. */
bool weir__choose(const struct weir__machine *machine, const bool *usable, uint32_t workers,
                  uint32_t threads, uint32_t *owner);
#define WEIR__NO_WORKER UINT32_MAX

#endif
