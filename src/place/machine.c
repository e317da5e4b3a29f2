/* SPDX-License-Identifier: MIT */
/* What the machine is and what of it this process may use: hwloc's topology, less what cpusets,
 * taskset and the cgroup's quota take away. */
#include "place/machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static uint32_t object_count(hwloc_topology_t topology, hwloc_obj_type_t type) {
    int count = hwloc_get_nbobjs_by_type(topology, type);
    return count > 0 ? (uint32_t)count : 0;
}

/* Some virtual machines show processing units and no cores. */
static hwloc_obj_type_t core_type(hwloc_topology_t topology) {
    return object_count(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
}

static int load(struct weir__machine *machine) {
    if (hwloc_topology_init(&machine->topology) != 0) return WEIR_ERR_OUT_OF_MEMORY;
    /* hwloc's x86 part binds the calling thread to each core in turn to ask it; the kernel's files
     * say the same. Elsewhere there is no such part, and nothing to be refused. */
    (void)hwloc_topology_set_components(machine->topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                        "x86");
    if (hwloc_topology_load(machine->topology) == 0) return WEIR_OK;
    hwloc_topology_destroy(machine->topology);
    return WEIR_ERR_SYSTEM;
}

/* The cpuset that hwloc sees, cut down to what the main thread may run on: taskset and the like.
 * Where the system does not tell, the cpuset alone. */
static int find_allowed(struct weir__machine *machine) {
    machine->allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(machine->topology));
    if (machine->allowed == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if (machine->synthetic) return WEIR_OK;
    hwloc_bitmap_t bound = hwloc_bitmap_alloc();
    if (bound == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = hwloc_get_proc_cpubind(machine->topology, getpid(), bound, HWLOC_CPUBIND_THREAD);
    bool known = status == 0 && hwloc_bitmap_intersects(bound, machine->allowed);
    if (known) status = hwloc_bitmap_and(machine->allowed, machine->allowed, bound);
    hwloc_bitmap_free(bound);
    return known && status != 0 ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
}

static int lowest_allowed(const struct weir__machine *machine, hwloc_obj_t core) {
    int unit = hwloc_bitmap_first(core->cpuset);
    while (unit >= 0 && !hwloc_bitmap_isset(machine->allowed, (unsigned)unit))
        unit = hwloc_bitmap_next(core->cpuset, unit);
    return unit;
}

static int find_cores(struct weir__machine *machine) {
    assert(machine->core_count == 0 && machine->cores == NULL);
    hwloc_obj_type_t type = core_type(machine->topology);
    machine->capacity = object_count(machine->topology, type);
    if (machine->capacity > WEIR__PLACE_CORES_MAX) machine->capacity = WEIR__PLACE_CORES_MAX;
    size_t capacity = machine->capacity;
    machine->cores = weir__acquire(machine->allocator, capacity, sizeof *machine->cores);
    machine->claims = weir__acquire(machine->allocator, capacity, sizeof *machine->claims);
    if (machine->cores == NULL || machine->claims == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < capacity; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(machine->topology, type, i);
        int unit = lowest_allowed(machine, core);
        if (unit < 0) continue;
        uint32_t id = (uint32_t)hwloc_bitmap_first(core->complete_cpuset);
        machine->cores[machine->core_count] = (struct weir__core){(uint32_t)unit, id};
        machine->claims[machine->core_count++] = -1;
    }
    return machine->core_count > 0 ? WEIR_OK : WEIR_ERR_SYSTEM;
}

int weir__machine_new(const struct weir_allocator *allocator, struct weir__machine **machine) {
    assert(machine != NULL);
    struct weir__machine *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->allocator = allocator;
    int status = load(made);
    if (status != WEIR_OK) goto fail_load;
    made->synthetic = hwloc_topology_is_thissystem(made->topology) == 0;
    status = find_allowed(made);
    if (status != WEIR_OK) goto fail_find;
    status = find_cores(made);
    if (status != WEIR_OK) goto fail_find;
    made->quota_cores = made->synthetic ? 0 : weir__quota_cores("");
    made->usable_count = weir__quota_usable(made->core_count, made->quota_cores);
    *machine = made;
    return WEIR_OK;

fail_find:
    weir__machine_destroy(made);
    return status;
fail_load:
    weir__release(allocator, made, 1, sizeof *made);
    return status;
}

void weir__machine_destroy(struct weir__machine *machine) {
    if (machine == NULL) return;
    weir__place_unclaim(machine);
    size_t capacity = machine->capacity;
    weir__release(machine->allocator, machine->claims, capacity, sizeof *machine->claims);
    weir__release(machine->allocator, machine->cores, capacity, sizeof *machine->cores);
    hwloc_bitmap_free(machine->allowed);
    hwloc_topology_destroy(machine->topology);
    weir__release(machine->allocator, machine, 1, sizeof *machine);
}

uint32_t weir__machine_core_of(const struct weir__machine *machine, uint32_t unit) {
    for (uint32_t i = 0; i < machine->core_count; i++) {
        if (machine->cores[i].unit == unit) return i;
    }
    /* Not the one that we would use: another thread of the core. */
    hwloc_obj_type_t type = core_type(machine->topology);
    hwloc_obj_t object = hwloc_get_pu_obj_by_os_index(machine->topology, unit);
    while (object != NULL && object->type != type) object = object->parent;
    if (object == NULL) return machine->core_count;
    uint32_t id = (uint32_t)hwloc_bitmap_first(object->complete_cpuset);
    for (uint32_t i = 0; i < machine->core_count; i++) {
        if (machine->cores[i].id == id) return i;
    }
    return machine->core_count;
}

/* ---- facts ---- */

static uint64_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t type) {
    hwloc_obj_t cache = hwloc_get_obj_by_type(topology, type, 0);
    return cache == NULL ? 0 : cache->attr->cache.size;
}

/* After the colon of the first line that begins so. */
static bool read_cpuinfo(const char *key, char *text, size_t capacity) {
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL) return false;
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, key, strlen(key)) != 0) continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(text, capacity, "%.*s", (int)strcspn(colon, "\n"), colon);
        found = true;
    }
    fclose(file);
    return found;
}

static void find_model(const struct weir__machine *machine, char *text, size_t capacity) {
    hwloc_topology_t topology = machine->topology;
    const char *model = NULL;
    hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    if (package != NULL) model = hwloc_obj_get_info_by_name(package, "CPUModel");
    if (model == NULL) model = hwloc_obj_get_info_by_name(hwloc_get_root_obj(topology), "CPUModel");
    if (model == NULL && machine->synthetic) model = "synthetic";
    if (model != NULL)
        snprintf(text, capacity, "%s", model);
    else if (!read_cpuinfo("model name", text, capacity))
        snprintf(text, capacity, "unknown");
}

static uint64_t digest_allowed(hwloc_const_bitmap_t allowed) {
    uint64_t hash = WEIR__HASH_BEGIN;
    for (int unit = hwloc_bitmap_first(allowed); unit >= 0; unit = hwloc_bitmap_next(allowed, unit))
        hash = weir__hash(hash, &unit, sizeof unit);
    return hash;
}

void weir__machine_facts(const struct weir__machine *machine, struct weir__machine_facts *facts) {
    assert(machine != NULL && facts != NULL);
    hwloc_topology_t topology = machine->topology;
    *facts = (struct weir__machine_facts){
        .cores = object_count(topology, core_type(topology)),
        .processing_units = object_count(topology, HWLOC_OBJ_PU),
        .packages = object_count(topology, HWLOC_OBJ_PACKAGE),
        .numa_nodes = object_count(topology, HWLOC_OBJ_NUMANODE),
        .usable_cores = machine->usable_count,
        .quota_cores = machine->quota_cores,
        .allowed = digest_allowed(machine->allowed),
        .l1d_bytes = cache_bytes(topology, HWLOC_OBJ_L1CACHE),
        .l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE),
        .l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE),
        .l3_count = object_count(topology, HWLOC_OBJ_L3CACHE),
        .memory_bytes = hwloc_get_root_obj(topology)->total_memory,
        .synthetic = machine->synthetic,
    };
    find_model(machine, facts->model, sizeof facts->model);
}
