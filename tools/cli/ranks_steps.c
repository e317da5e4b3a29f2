/* SPDX-License-Identifier: MIT */
/* What the ranks of a command tell each other while it runs. */
#include "cli/ranks.h"

#include "base/base.h"
#include "cli/interrupt.h"
#include "world/allreduce.h"

#include <string.h>

const struct weir_world *ranks_world(const struct ranks *ranks) {
    return ranks->joined && ranks->world.rank_count > 1 ? &ranks->world : NULL;
}

bool ranks_leads(const struct ranks *ranks) {
    return ranks_world(ranks) == NULL || ranks->world.rank == 0;
}

int ranks_gather(struct ranks *ranks, void *data, size_t bytes) {
    const struct weir_world *world = ranks_world(ranks);
    assert(world != NULL);
    return weir__world_gather(world, NULL, data, bytes, ranks->of.error);
}

int ranks_share(struct ranks *ranks, void *data, size_t bytes) {
    const struct weir_world *world = ranks_world(ranks);
    if (world == NULL) return WEIR_OK;
    if (world->rank > 0) memset(data, 0, bytes);
    return ranks_gather(ranks, data, bytes);
}

uint32_t ranks_flags(void) {
    return (uint32_t)interrupt_exit(EXIT_DONE);
}

void ranks_heard(struct ranks *ranks, int status, uint32_t flags) {
    ranks->stopped |= flags & RANKS_CODE;
    ranks->agreed = status != WEIR_OK && status != WEIR_ERR_PEER && status != WEIR_ERR_TIMEOUT &&
                    status != WEIR_ERR_TORN;
}

bool ranks_stopped(const struct ranks *ranks) {
    return ranks_world(ranks) != NULL ? ranks->stopped != 0 : interrupt_came();
}
