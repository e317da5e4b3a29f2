/* SPDX-License-Identifier: MIT */
/* From "--bind" to each worker's cores. How many threads a worker has depends on the machine and
 * the options alone, never on who else runs: results are the same bits only for the same number.
 * Other processes' claims decide just where workers go, or that they go nowhere in particular. */
#include "place/machine.h"

#include <stdlib.h>
#include <string.h>

/* What one call plans; the arrays have core_count (`units`: as many processing units) elements. */
struct plan {
    struct weir__machine *machine;
    uint32_t workers, threads;
    struct weir__placement *placements;
};

static void place_unbound(const struct plan *plan) {
    for (uint32_t w = 0; w < plan->workers; w++) {
        struct weir__placement *placement = &plan->placements[w];
        memset(placement, 0, sizeof *placement);
        placement->place.worker = w;
        placement->place.numa_node = -1;
        placement->threads = plan->threads;
    }
}

/* ---- describing a bound worker ---- */

static hwloc_bitmap_t units_of(const struct weir__placement *placement) {
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    if (set == NULL) return NULL;
    for (uint32_t i = 0; i < placement->place.core_count; i++) {
        if (hwloc_bitmap_set(set, placement->core_ids[i]) == 0) continue;
        hwloc_bitmap_free(set);
        return NULL;
    }
    return set;
}

static int32_t node_of(hwloc_topology_t topology, hwloc_const_bitmap_t set) {
    hwloc_obj_t node = NULL;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != NULL) {
        if (hwloc_bitmap_isincluded(set, node->cpuset)) return (int32_t)node->os_index;
    }
    return -1;
}

static void name_cache(hwloc_topology_t topology, hwloc_const_bitmap_t set, char *text,
                       size_t capacity) {
    hwloc_obj_t object = hwloc_get_obj_covering_cpuset(topology, set);
    while (object != NULL && !hwloc_obj_type_is_dcache(object->type)) object = object->parent;
    text[0] = '\0';
    if (object != NULL) (void)hwloc_obj_type_snprintf(text, capacity, object, 0);
}

/* Fills all but worker, core_count and core_ids, which are there. */
static int describe(const struct plan *plan, struct weir__placement *placement) {
    struct weir_place *place = &placement->place;
    hwloc_bitmap_t set = units_of(placement);
    if (set == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    place->bound = true;
    place->numa_node = node_of(plan->machine->topology, set);
    weir__list_text(set, place->cores, sizeof place->cores);
    name_cache(plan->machine->topology, set, place->cache, sizeof place->cache);
    hwloc_bitmap_free(set);
    return WEIR_OK;
}

/* ---- "auto" ---- */

/* Whom a core belongs to, as far as known; unknown ones are tried. */
struct candidates {
    bool sibling[WEIR__PLACE_CORES_MAX]; /* another pipe's of this process */
    bool stranger[WEIR__PLACE_CORES_MAX];
    bool usable[WEIR__PLACE_CORES_MAX]; /* the two, put together */
    uint32_t owner[WEIR__PLACE_CORES_MAX];
};

/* Cores that nobody else has, or, if these are too few, those of this process's other pipes too. */
static bool choose(const struct plan *plan, struct candidates *candidates) {
    for (int share = 0; share <= 1; share++) {
        for (uint32_t i = 0; i < plan->machine->core_count; i++) {
            candidates->usable[i] =
                !candidates->stranger[i] && (share == 1 || !candidates->sibling[i]);
        }
        if (weir__choose(plan->machine, candidates->usable, plan->workers, plan->threads,
                         candidates->owner)) {
            return true;
        }
    }
    return false;
}

/* Claims what was chosen, in one order for all processes, so that of two that start together one
 * gets all that it wants. False at the first core that turns out to be another's: choose again. */
static bool claim_chosen(struct weir__machine *machine, struct candidates *candidates) {
    for (uint32_t i = 0; i < machine->core_count; i++) {
        if (candidates->owner[i] == WEIR__NO_WORKER || candidates->sibling[i]) continue;
        enum weir__claim claim = weir__claim_core(machine, i);
        candidates->sibling[i] = claim == WEIR__CLAIM_SIBLING;
        candidates->stranger[i] = claim == WEIR__CLAIM_STRANGER;
        if (claim != WEIR__CLAIM_OURS) return false;
    }
    return true;
}

static bool choose_and_claim(const struct plan *plan, struct candidates *candidates) {
    struct weir__machine *machine = plan->machine;
    if ((uint64_t)plan->workers * plan->threads > machine->usable_count) return false;
    /* Each failed turn learns about one more core. */
    for (uint32_t turn = 0; turn <= machine->core_count; turn++) {
        if (!choose(plan, candidates)) return false;
        if (claim_chosen(machine, candidates)) return true;
    }
    assert(false);
    return false;
}

static int place_auto(const struct plan *plan) {
    struct weir__machine *machine = plan->machine;
    place_unbound(plan);
    struct candidates *candidates = weir__acquire(machine->allocator, 1, sizeof *candidates);
    if (candidates == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    bool found = choose_and_claim(plan, candidates);
    for (uint32_t i = 0; i < machine->core_count; i++) {
        if (!found || candidates->owner[i] == WEIR__NO_WORKER) {
            weir__unclaim_core(machine, i);
            continue;
        }
        struct weir__placement *placement = &plan->placements[candidates->owner[i]];
        placement->core_ids[placement->place.core_count++] = machine->cores[i].unit;
    }
    int status = WEIR_OK;
    for (uint32_t w = 0; found && w < plan->workers && status == WEIR_OK; w++) {
        plan->placements[w].exclusive = true;
        status = describe(plan, &plan->placements[w]);
    }
    weir__release(machine->allocator, candidates, 1, sizeof *candidates);
    return status;
}

/* ---- a list ---- */

static void deal_list(const struct plan *plan, const uint32_t *units) {
    place_unbound(plan);
    for (uint32_t w = 0; w < plan->workers; w++) {
        struct weir__placement *placement = &plan->placements[w];
        placement->place.core_count = plan->threads;
        memcpy(placement->core_ids, &units[(size_t)w * plan->threads],
               plan->threads * sizeof *units);
    }
}

/* Per core: no worker's, one worker's (its number + 1), or several workers'. */
enum { NOBODY = 0 };
#define SEVERAL UINT32_MAX

/* A worker is exclusive if its cores are nobody else's, seen as whole cores: a list may name both
 * threads of one. Claims them on the way, so that "auto" of other processes keeps away. */
static void find_owners(const struct plan *plan, uint32_t *owners) {
    struct weir__machine *machine = plan->machine;
    for (uint32_t w = 0; w < plan->workers; w++) {
        const struct weir__placement *placement = &plan->placements[w];
        for (uint32_t i = 0; i < placement->place.core_count; i++) {
            uint32_t core = weir__machine_core_of(machine, placement->core_ids[i]);
            if (core == machine->core_count) continue; /* beyond WEIR__PLACE_CORES_MAX */
            bool stranger = weir__claim_core(machine, core) == WEIR__CLAIM_STRANGER;
            bool mine = owners[core] == NOBODY || owners[core] == w + 1;
            owners[core] = mine && !stranger ? w + 1 : SEVERAL;
        }
    }
}

static bool owns_its_cores(const struct plan *plan, uint32_t worker, const uint32_t *owners) {
    const struct weir__placement *placement = &plan->placements[worker];
    for (uint32_t i = 0; i < placement->place.core_count; i++) {
        uint32_t core = weir__machine_core_of(plan->machine, placement->core_ids[i]);
        if (core < plan->machine->core_count && owners[core] == SEVERAL) return false;
    }
    return true;
}

static int find_exclusive(const struct plan *plan) {
    const struct weir__machine *machine = plan->machine;
    size_t cores = machine->core_count;
    uint32_t *owners = weir__acquire(machine->allocator, cores, sizeof *owners);
    if (owners == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    find_owners(plan, owners);
    /* With a smaller quota the kernel stops workers now and then: spinning would waste it. */
    bool enough = (uint64_t)plan->workers * plan->threads <= machine->usable_count;
    for (uint32_t w = 0; w < plan->workers; w++) {
        plan->placements[w].exclusive = enough && owns_its_cores(plan, w, owners);
    }
    weir__release(machine->allocator, owners, cores, sizeof *owners);
    return WEIR_OK;
}

/* Whether the list has a core for every thread; sets `plan->threads` where it is left open. */
static int count_units(struct plan *plan, const char *bind, uint32_t count,
                       struct weir_faults *faults) {
    if (plan->threads == 0) plan->threads = count / plan->workers;
    uint64_t need = (uint64_t)plan->workers * (plan->threads > 0 ? plan->threads : 1);
    if (need <= count && plan->threads <= WEIR__PLACE_CORES_MAX) return WEIR_OK;
    weir_faults_add(faults,
                    "bind \"%s\" names %u core%s, but %u worker%s need%s %llu: name more cores, or "
                    "ask for fewer workers or fewer threads per worker",
                    bind, count, weir__s(count), plan->workers, weir__s(plan->workers),
                    plan->workers == 1 ? "s" : "", (unsigned long long)need);
    return WEIR_ERR_ARGUMENT;
}

static int place_units(struct plan *plan, const uint32_t *units) {
    deal_list(plan, units);
    for (uint32_t w = 0; w < plan->workers; w++) {
        int status = describe(plan, &plan->placements[w]);
        if (status != WEIR_OK) return status;
    }
    return find_exclusive(plan);
}

/* Without placements the list is only checked. */
static int place_list(struct plan *plan, const char *bind, struct weir_faults *faults) {
    struct weir__machine *machine = plan->machine;
    uint32_t count = 0, capacity = (uint32_t)hwloc_bitmap_weight(machine->allowed);
    uint32_t *units = weir__acquire(machine->allocator, capacity, sizeof *units);
    if (units == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__list_parse(bind, machine->allowed, faults, capacity, units, &count);
    if (status == WEIR_OK) status = count_units(plan, bind, count, faults);
    if (status == WEIR_OK && plan->placements != NULL) status = place_units(plan, units);
    weir__release(machine->allocator, units, capacity, sizeof *units);
    return status;
}

/* ---- */

static const char *effective_bind(const char *bind) {
    if (bind != NULL) return bind;
    const char *from_environment = getenv("WEIR_BIND");
    return from_environment != NULL && *from_environment != '\0' ? from_environment : "auto";
}

int weir__place_plan(struct weir__machine *machine, const char *bind, uint32_t workers,
                     uint32_t threads, struct weir_faults *faults,
                     struct weir__placement *placements) {
    assert(machine != NULL && placements != NULL);
    assert(workers > 0);
    weir__place_unclaim(machine);
    bind = effective_bind(bind);
    struct plan plan = {machine, workers, threads, placements};
    bool is_auto = strcmp(bind, "auto") == 0;
    int status = WEIR_OK;
    if (!is_auto && strcmp(bind, "none") != 0) {
        status = place_list(&plan, bind, faults);
    } else {
        if (threads == 0) plan.threads = machine->usable_count / workers;
        if (plan.threads == 0) plan.threads = 1;
        if (is_auto) {
            status = place_auto(&plan);
        } else {
            place_unbound(&plan);
        }
    }
    if (status != WEIR_OK) weir__place_unclaim(machine);
    return status;
}

int weir__place_check(const struct weir_allocator *allocator, const char *bind, uint32_t workers,
                      uint32_t threads, struct weir_faults *faults) {
    struct plan plan = {.workers = workers, .threads = threads};
    assert(workers > 0);
    bind = effective_bind(bind);
    if (strcmp(bind, "auto") == 0 || strcmp(bind, "none") == 0) return WEIR_OK;
    int status = weir__machine_new(allocator, &plan.machine);
    if (status == WEIR_OK) status = place_list(&plan, bind, faults);
    weir__machine_destroy(plan.machine);
    return status;
}

int weir__place_bind(struct weir__machine *machine, const struct weir__placement *placement) {
    assert(machine != NULL && placement != NULL);
    if (!placement->place.bound || machine->synthetic) return WEIR_OK;
    hwloc_bitmap_t set = units_of(placement);
    if (set == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = hwloc_set_cpubind(machine->topology, set, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(set);
    return status == 0 ? WEIR_OK : WEIR_ERR_SYSTEM;
}
