/* SPDX-License-Identifier: MIT */
/* From "--bind" to each worker's cores; auto.c has "auto". How many threads a worker has depends on
 * the machine and the options alone, never on who else runs: the plan's memory counts on it. Other
 * processes' claims decide just where workers go, or that they go nowhere in particular. */
#include "place/machine.h"

#include <stdlib.h>
#include <string.h>

static void place_unbound(const struct weir__placing *placing) {
    assert(placing->threads > 0 && placing->gpu_count <= placing->workers);
    for (uint32_t w = 0; w < placing->workers; w++) {
        struct weir__worker_place *placement = &placing->placements[w];
        const struct weir__near *gpu = weir__placing_gpu(placing, w);
        memset(placement, 0, sizeof *placement);
        placement->place.worker = w;
        placement->place.numa_node = -1;
        placement->threads = gpu != NULL ? 1 : placing->threads;
        placement->memory_node = gpu != NULL ? gpu->numa_node : -1;
    }
}

/* ---- describing a bound worker ---- */

static hwloc_bitmap_t units_of(const struct weir__worker_place *placement) {
    assert(placement->place.core_count <= WEIR__PLACE_CORES_MAX);
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

int weir__placing_describe(const struct weir__placing *placing,
                           struct weir__worker_place *placement) {
    assert(placement->place.core_count > 0 && !placement->place.bound);
    struct weir_place *place = &placement->place;
    hwloc_bitmap_t set = units_of(placement);
    if (set == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    place->bound = true;
    place->numa_node = node_of(placing->machine->topology, set);
    if (placement->memory_node < 0) placement->memory_node = place->numa_node;
    weir__list_text(set, place->cores, sizeof place->cores);
    name_cache(placing->machine->topology, set, place->cache, sizeof place->cache);
    hwloc_bitmap_free(set);
    return WEIR_OK;
}

/* ---- a list ---- */

/* Of a list. Where a GPU's worker stands beside others it needs no more than one. */
static uint32_t cores_of(const struct weir__placing *placing, uint32_t worker) {
    bool waits = weir__placing_gpu(placing, worker) != NULL && weir__placing_computing(placing) > 0;
    return waits ? 1 : placing->threads;
}

/* Of all workers, where those that compute have `threads` each. */
static uint64_t cores_wanted(const struct weir__placing *placing, uint32_t threads) {
    assert(threads > 0);
    uint32_t computing = weir__placing_computing(placing);
    if (computing == 0) return (uint64_t)placing->workers * threads;
    return (uint64_t)computing * threads + placing->gpu_count;
}

static void deal_list(const struct weir__placing *placing, const uint32_t *units) {
    place_unbound(placing);
    for (uint32_t w = 0; w < placing->workers; w++) {
        struct weir__worker_place *placement = &placing->placements[w];
        placement->place.core_count = cores_of(placing, w);
        memcpy(placement->core_ids, units, placement->place.core_count * sizeof *units);
        units += placement->place.core_count;
    }
}

/* Per core: no worker's, one worker's (its number + 1), or several workers'. */
enum { NOBODY = 0 };
#define SEVERAL UINT32_MAX

/* A worker is exclusive if its cores are nobody else's, seen as whole cores: a list may name both
 * threads of one. Claims them on the way, so that "auto" of other processes keeps away. */
static void find_owners(const struct weir__placing *placing, uint32_t *owners) {
    struct weir__machine *machine = placing->machine;
    for (uint32_t w = 0; w < placing->workers; w++) {
        const struct weir__worker_place *placement = &placing->placements[w];
        for (uint32_t i = 0; i < placement->place.core_count; i++) {
            uint32_t core = weir__machine_core_of(machine, placement->core_ids[i]);
            if (core == machine->core_count) continue; /* beyond WEIR__PLACE_CORES_MAX */
            bool stranger = weir__claim_core(machine, core) == WEIR__CLAIM_STRANGER;
            bool mine = owners[core] == NOBODY || owners[core] == w + 1;
            owners[core] = mine && !stranger ? w + 1 : SEVERAL;
        }
    }
}

static bool owns_its_cores(const struct weir__placing *placing, uint32_t worker,
                           const uint32_t *owners) {
    const struct weir__worker_place *placement = &placing->placements[worker];
    for (uint32_t i = 0; i < placement->place.core_count; i++) {
        uint32_t core = weir__machine_core_of(placing->machine, placement->core_ids[i]);
        if (core < placing->machine->core_count && owners[core] == SEVERAL) return false;
    }
    return true;
}

static int find_exclusive(const struct weir__placing *placing) {
    assert(placing->threads > 0 && placing->machine->usable_count <= placing->machine->core_count);
    const struct weir__machine *machine = placing->machine;
    size_t cores = machine->core_count;
    uint32_t *owners = weir__acquire(machine->allocator, cores, sizeof *owners);
    if (owners == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    find_owners(placing, owners);
    /* With a smaller quota the kernel stops workers now and then: spinning would waste it. */
    bool enough = cores_wanted(placing, placing->threads) <= machine->usable_count;
    for (uint32_t w = 0; w < placing->workers; w++)
        placing->placements[w].exclusive = enough && owns_its_cores(placing, w, owners);
    weir__release(machine->allocator, owners, cores, sizeof *owners);
    return WEIR_OK;
}

/* How many of `count` cores each worker gets that computes, or each where none does; 0: too few. */
static uint32_t divide(const struct weir__placing *placing, uint32_t count) {
    assert(placing->workers > 0);
    uint32_t computing = weir__placing_computing(placing);
    if (computing == 0) return count / placing->workers;
    return count > placing->gpu_count ? (count - placing->gpu_count) / computing : 0;
}

/* Whether the list has a core for every thread; sets `placing->threads` where it is left open. */
static int count_units(struct weir__placing *placing, const char *bind, uint32_t count,
                       struct weir_faults *faults) {
    if (placing->threads == 0) placing->threads = divide(placing, count);
    uint64_t need = cores_wanted(placing, placing->threads > 0 ? placing->threads : 1);
    if (need <= count && placing->threads <= WEIR__PLACE_CORES_MAX) return WEIR_OK;
    weir_faults_add(faults,
                    "bind \"%s\" names %u core%s%s, but %u worker%s need%s %llu: name more cores, "
                    "or ask for fewer workers or fewer threads per worker",
                    bind, count, weir__s(count),
                    placing->shares > 1 ? " for each rank of the host" : "", placing->workers,
                    weir__s(placing->workers), placing->workers == 1 ? "s" : "",
                    (unsigned long long)need);
    return WEIR_ERR_ARGUMENT;
}

static int place_units(struct weir__placing *placing, const uint32_t *units) {
    assert(placing->placements != NULL && placing->threads > 0);
    deal_list(placing, units);
    for (uint32_t w = 0; w < placing->workers; w++) {
        int status = weir__placing_describe(placing, &placing->placements[w]);
        if (status != WEIR_OK) return status;
    }
    return find_exclusive(placing);
}

/* Without placements the list is only checked. */
static int place_list(struct weir__placing *placing, const char *bind, struct weir_faults *faults) {
    const struct weir__machine *machine = placing->machine;
    uint32_t count = 0, capacity = (uint32_t)hwloc_bitmap_weight(machine->allowed);
    uint32_t *units = weir__acquire(machine->allocator, capacity, sizeof *units);
    if (units == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__list_parse(bind, machine->allowed, faults, capacity, units, &count);
    if (status != WEIR_OK) goto out;
    count /= placing->shares;
    status = count_units(placing, bind, count, faults);
    if (status != WEIR_OK || placing->placements == NULL) goto out;
    status = place_units(placing, units + (size_t)placing->share * count);
out:
    weir__release(machine->allocator, units, capacity, sizeof *units);
    return status;
}

/* ---- */

static const char *effective_bind(const char *bind) {
    if (bind != NULL) return bind;
    const char *from_environment = getenv("WEIR_BIND");
    return from_environment != NULL && *from_environment != '\0' ? from_environment : "auto";
}

static struct weir__placing begin_call(const struct weir__place_request *request) {
    struct weir__placing placing = {
        .workers = request->workers,
        .threads = request->threads,
        .gpus = request->gpus,
        .share = request->share,
        .shares = request->shares > 0 ? request->shares : 1,
    };
    assert(request->workers > 0 && placing.share < placing.shares);
    for (uint32_t w = 0; w < placing.workers; w++)
        placing.gpu_count += weir__placing_gpu(&placing, w) != NULL;
    return placing;
}

static int place_by_itself(struct weir__placing *placing, bool binds) {
    bool computing = weir__placing_computing(placing) > 0;
    if (placing->threads == 0 && computing)
        placing->threads = divide(placing, placing->machine->usable_count);
    if (placing->threads == 0) placing->threads = 1;
    place_unbound(placing);
    return binds ? weir__placing_auto(placing) : WEIR_OK;
}

int weir__place_plan(struct weir__machine *machine, const struct weir__place_request *request,
                     struct weir_faults *faults, struct weir__worker_place *placements) {
    assert(machine != NULL && placements != NULL);
    weir__place_unclaim(machine);
    const char *bind = effective_bind(request->bind);
    struct weir__placing placing = begin_call(request);
    placing.machine = machine;
    placing.placements = placements;
    bool is_auto = strcmp(bind, "auto") == 0;
    bool is_list = !is_auto && strcmp(bind, "none") != 0;
    int status = is_list ? place_list(&placing, bind, faults) : place_by_itself(&placing, is_auto);
    if (status != WEIR_OK) weir__place_unclaim(machine);
    return status;
}

int weir__place_check(const struct weir_allocator *allocator,
                      const struct weir__place_request *request, struct weir_faults *faults) {
    struct weir__placing placing = begin_call(request);
    const char *bind = effective_bind(request->bind);
    if (strcmp(bind, "auto") == 0 || strcmp(bind, "none") == 0) return WEIR_OK;
    int status = weir__machine_new(allocator, &placing.machine);
    if (status != WEIR_OK) return status;
    status = place_list(&placing, bind, faults);
    weir__machine_destroy(placing.machine);
    return status;
}

int weir__place_bind(struct weir__machine *machine, const struct weir__worker_place *placement) {
    assert(machine != NULL && placement != NULL);
    if (!placement->place.bound || machine->synthetic) return WEIR_OK;
    hwloc_bitmap_t set = units_of(placement);
    if (set == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = hwloc_set_cpubind(machine->topology, set, HWLOC_CPUBIND_THREAD);
    hwloc_bitmap_free(set);
    return status == 0 ? WEIR_OK : WEIR_ERR_SYSTEM;
}
