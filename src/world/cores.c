/* SPDX-License-Identifier: MIT */
#include "world/cores.h"

#include "place/place.h"
#include "world/allreduce.h"

#include <string.h>

/* What a rank may use; all 0 but its own until it is gathered. */
struct means {
    uint64_t key; /* the same where ranks may use the same cores of one host */
    uint64_t cores;
};

/* A machine that cannot be looked at has one core. WEIR_ERR_OUT_OF_MEMORY. */
static int find_own(const struct weir_world *world, const struct weir_allocator *allocator,
                    struct means *own) {
    struct weir__machine *machine;
    struct weir__machine_facts facts = {.usable_cores = 1};
    int status = weir__machine_new(allocator, &machine);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
    if (status == WEIR_OK) {
        weir__machine_facts(machine, &facts);
        weir__machine_destroy(machine);
    }
    uint64_t key = weir__hash(facts.allowed, world->host, strlen(world->host));
    *own = (struct means){key, facts.usable_cores > 0 ? facts.usable_cores : 1};
    return WEIR_OK;
}

static uint32_t least_share(const struct means *all, uint32_t count) {
    uint64_t least = UINT32_MAX;
    for (uint32_t r = 0; r < count; r++) {
        uint64_t sharing = 0;
        for (uint32_t k = 0; k < count; k++) sharing += all[k].key == all[r].key;
        assert(sharing > 0);
        if (all[r].cores / sharing < least) least = all[r].cores / sharing;
    }
    return least > 0 ? (uint32_t)least : 1;
}

int weir__world_cores(const struct weir_world *world, const struct weir_allocator *allocator,
                      struct weir_faults *faults, uint32_t *cores) {
    uint32_t count = world->rank_count;
    struct weir_error error = {0};
    assert(cores != NULL && world->rank < count);
    size_t bytes = count * sizeof(struct means);
    struct means *all = weir__acquire(allocator, 2 * (size_t)count, sizeof *all);
    struct means own = {0};
    int status = all != NULL ? find_own(world, allocator, &own) : WEIR_ERR_OUT_OF_MEMORY;
    status = weir__world_agree(world, status, 0, "cores", faults);
    if (status != WEIR_OK) goto out;
    all[world->rank] = own;
    status = weir__world_gather_in(world, all, all + count, bytes, &error);
    if (status == WEIR_OK)
        *cores = least_share(all, count);
    else
        weir_faults_add(faults, "the ranks' cores cannot be asked for: %s", error.message);
out:
    weir__release(allocator, all, 2 * (size_t)count, sizeof *all);
    return status;
}

uint32_t weir__world_threads(uint32_t cores, uint32_t ranks, uint32_t workers) {
    assert(ranks > 0);
    uint32_t most = workers > ranks ? (workers - 1) / ranks + 1 : 1;
    return cores > most ? cores / most : 1;
}
