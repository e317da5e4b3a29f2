/* SPDX-License-Identifier: MIT */
/**
 * A file of links: what `weir doctor --json` writes under a launcher, and what --links reads. JSON
 * with
 *
 *   ranks   [{host}]: one object for each rank, `host` a name; ranks without one have a host each.
 *           Or how many ranks there are
 *   links   [{from, to, alpha, bandwidth}]: seconds, and bytes a second, of each directed pair. One
 *           without `from` and `to` is for all pairs that have none of their own
 *
 * and whatever else.
 */
#ifndef WEIR_TOOLS_LINKS_FILE_H
#define WEIR_TOOLS_LINKS_FILE_H

#include "weir_predict.h"

#include <jansson.h>

enum { LINKS_RANKS_MOST = 4096 };

/** Zeroed, then links_file_read. */
struct links_file {
    struct weir_rank_links ranks;
    struct weir_link_cost *costs; /**< ranks.costs; a pair that no link was given for has NaN */
    uint32_t *hosts;              /**< ranks.hosts */
    uint32_t host_count;
};

/** Reads what --links names; faults say what is wrong with it. Clean up in every case. */
int links_file_read(struct links_file *file, const char *path, struct weir_faults *faults);
void links_file_clean_up(struct links_file *file);

/** `links` of all pairs; a new reference. */
json_t *links_file_json(const struct weir_link_cost *costs, uint32_t rank_count);

#endif
