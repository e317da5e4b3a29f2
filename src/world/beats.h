/* SPDX-License-Identifier: MIT */
/**
 * Whether the other processes of a world live. A thread of its own keeps a connection to each and
 * sends a word over it now and then; it never calls MPI, which may hang for ever in any call once a
 * peer is gone. A process that ends without goodbye is known to be dead as soon as its kernel
 * closes the connection; one that is not heard of for the time-out is silent: stopped, or cut off.
 * Who notices tells all, so that all name the same rank. Internal; statuses as in weir.h.
 */
#ifndef WEIR_WORLD_BEATS_H
#define WEIR_WORLD_BEATS_H

#include "weir_world.h"
#include "world/wire.h"

struct weir__beats;

struct weir__beats_options {
    const struct weir_allocator *allocator;
    const char *host;
    double peer_timeout, start_timeout;                        /**< as in weir_world_options */
    void (*lost)(void *context, const struct weir_lost *lost); /**< as in weir_world_options */
    void *context;
};

/** Before MPI begins: makes a door to be reached at, and the thread. From here to settle there is
 * the limit of start_timeout, since nobody can be asked yet.
 * WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_SYSTEM: no thread. */
int weir__beats_begin(const struct weir__beats_options *options, struct weir__beats **out);
const struct weir__door *weir__beats_door(const struct weir__beats *beats);
/** All ranks' doors in their order, which are copied. Waits until every connection is there, or
 * cannot be; *unreached: how many of this rank's cannot, *first (any value where 0): to whom.
 * WEIR_ERR_PEER: a rank was lost meanwhile. */
int weir__beats_meet(struct weir__beats *beats, uint32_t rank, uint32_t rank_count,
                     const struct weir__door *doors, uint32_t *unreached, uint32_t *first);
/** Every rank has met: the limit ends. */
void weir__beats_settle(struct weir__beats *beats);

/** Whether a rank is lost: any thread. NULL beats have nobody to lose. */
bool weir__beats_has_lost(const struct weir__beats *beats);
/** The same, after a wait for it: what MPI says first the thread may learn a little later. */
bool weir__beats_wait_lost(struct weir__beats *beats, uint32_t milliseconds);
/** Of a lost rank: one line that names it and its host. */
void weir__beats_tell(struct weir__beats *beats, char *text, size_t capacity);
/** Tells all that this process ends them with that exit status. */
void weir__beats_abort(struct weir__beats *beats, int exit_status);
/** Says goodbye to all, and ends the thread; NULL does nothing. */
void weir__beats_end(struct weir__beats *beats);

#endif
