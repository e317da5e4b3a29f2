/* SPDX-License-Identifier: MIT */
/* Which cores make a worker. Usable cores stand in logical order, so every object of the topology
 * (cache, NUMA node, package) covers a run of them, and the tree is walked with two indices.
 *
 * At each object as many groups as fit are made inside its children, and only what is then missing
 * is made of the cores that the children left over. So the number of groups that straddle children
 * is the least possible, first at the machine, then at packages, NUMA nodes and caches. */
#include "place/machine.h"

/* The cores to deal, as a compact list, and what was dealt so far. */
struct deal {
    const struct weir__machine *machine;
    const uint32_t *candidates; /* indices of cores */
    uint32_t threads;
    uint32_t dealt;  /* groups so far */
    uint32_t *owner; /* per core: a group */
};

/* The end of the run of candidates in `object` that begins at `first`. */
static uint32_t run_end(const struct deal *deal, hwloc_obj_t object, uint32_t first,
                        uint32_t last) {
    assert(first <= last);
    const struct weir__core *cores = deal->machine->cores;
    uint32_t end = first;
    while (end < last && hwloc_bitmap_isset(object->cpuset, cores[deal->candidates[end]].unit))
        end++;
    return end;
}

/* The child with the fewest groups that can still hold all `groups`, and its run; NULL if none. */
static hwloc_obj_t tightest_child(const struct deal *deal, hwloc_obj_t object, uint32_t *first,
                                  uint32_t *last, uint32_t groups) {
    hwloc_obj_t best = NULL;
    uint32_t at = *first, best_first = 0, best_last = 0;
    for (unsigned i = 0; i < object->arity; i++) {
        uint32_t end = run_end(deal, object->children[i], at, *last);
        bool fits = (end - at) / deal->threads >= groups;
        if (fits && (best == NULL || end - at < best_last - best_first)) {
            best = object->children[i];
            best_first = at;
            best_last = end;
        }
        at = end;
    }
    if (best == NULL) return NULL;
    *first = best_first;
    *last = best_last;
    return best;
}

/* Makes groups of the cores of a run that nobody has. */
static void deal_left_over(struct deal *deal, uint32_t first, uint32_t last, uint32_t groups) {
    assert(first <= last && deal->threads > 0);
    uint32_t missing = groups * deal->threads;
    for (uint32_t i = first; i < last && missing > 0; i++) {
        uint32_t *owner = &deal->owner[deal->candidates[i]];
        if (*owner != WEIR__NO_WORKER) continue;
        *owner = deal->dealt;
        missing--;
        if (missing % deal->threads == 0) deal->dealt++;
    }
    assert(missing == 0);
}

/* Deals `groups` inside an object. Recursion as deep as the topology. */
static void deal_inside(struct deal *deal, hwloc_obj_t object, uint32_t first, uint32_t last,
                        uint32_t groups) {
    assert((last - first) / deal->threads >= groups);
    hwloc_obj_t child;
    while ((child = tightest_child(deal, object, &first, &last, groups)) != NULL) object = child;
    uint32_t missing = groups;
    uint32_t at = first;
    for (unsigned i = 0; i < object->arity && missing > 0; i++) {
        uint32_t end = run_end(deal, object->children[i], at, last);
        uint32_t some = (end - at) / deal->threads;
        if (some > missing) some = missing;
        if (some > 0) deal_inside(deal, object->children[i], at, end, some);
        missing -= some;
        at = end;
    }
    deal_left_over(deal, first, last, missing);
}

/* Groups become workers in the order of their first cores, so that neighbours are near. */
static void number_in_order(struct deal *deal, uint32_t count, uint32_t *number) {
    uint32_t next = 0;
    for (uint32_t i = 0; i < deal->dealt; i++) number[i] = WEIR__NO_WORKER;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t *owner = &deal->owner[i];
        if (*owner == WEIR__NO_WORKER) continue;
        if (number[*owner] == WEIR__NO_WORKER) number[*owner] = next++;
        *owner = number[*owner];
    }
    assert(next == deal->dealt);
}

bool weir__choose(const struct weir__machine *machine, const bool *usable, uint32_t workers,
                  uint32_t threads, uint32_t *owner) {
    assert(workers > 0 && threads > 0);
    assert(machine->core_count <= WEIR__PLACE_CORES_MAX);
    uint32_t candidates[WEIR__PLACE_CORES_MAX], number[WEIR__PLACE_CORES_MAX];
    uint32_t count = 0;
    for (uint32_t i = 0; i < machine->core_count; i++) {
        owner[i] = WEIR__NO_WORKER;
        if (usable[i]) candidates[count++] = i;
    }
    if ((uint64_t)workers * threads > count) return false;
    struct deal deal = {machine, candidates, threads, 0, owner};
    deal_inside(&deal, hwloc_get_root_obj(machine->topology), 0, count, workers);
    assert(deal.dealt == workers);
    number_in_order(&deal, machine->core_count, number);
    return true;
}
