/* SPDX-License-Identifier: MIT */
/**
 * What a command over several processes does when a rank is lost: it says so once, on the lowest
 * rank that lives, and ends everywhere, whatever it is at. The command's own thread speaks if it
 * comes back soon, for it knows which action waited; else the world's thread does, and ends the
 * process under it. What is on disk stays.
 */
#ifndef WEIR_TOOLS_RANKS_LOST_H
#define WEIR_TOOLS_RANKS_LOST_H

#include "cli/saved.h"
#include "weir_world.h"

#include <stdatomic.h>

struct ranks;

/** How a command that was started by `weir launch` tells it how far it is: the variable holds a
 * word, and a line on stderr begins with RANKS_LOST_MARK and that word; then comes RANKS_STARTING,
 * before a rank joins; RANKS_STARTED, once all have come; RANKS_REFUSED, where it says itself why
 * it does not join; RANKS_BROKEN, where it fails or MPI has ended the process in it; or RANKS_LOST
 * and who is lost. */
#define RANKS_LOST_VARIABLE "WEIR_LAUNCH"
#define RANKS_LOST_MARK "weir-launch"
#define RANKS_STARTING "starting"
#define RANKS_STARTED "started"
#define RANKS_REFUSED "refused"
#define RANKS_BROKEN "broken"
#define RANKS_LOST "lost "

/** Zeroed: nothing is lost. */
struct ranks_lost {
    struct weir_lost peer;    /**< from `told` on */
    _Atomic bool told;        /**< by the world's thread */
    atomic_flag claimed;      /**< by the one thread that ends the process with a word */
    int errors;               /**< what stderr was before it was held back; 0: it still is */
    struct saved before;      /**< what was there when the run began */
    _Atomic(const char *) at; /**< what the run is at; NULL: its start */
    _Atomic uint64_t done;    /**< of the command's units */
};

/** Of weir_world_options; `context` is the struct ranks. Does not return: it ends the process. */
void ranks_lost_tell(void *context, const struct weir_lost *peer);
/** Around what joins the others: tells the launcher how that ended, and also if the process ends in
 * it. */
void ranks_start_begin(void);
void ranks_start_end(int status, bool refused);
/** What the run is at from now on: static text, as in "rank 1 is lost: while ...". */
void ranks_at(struct ranks *ranks, const char *what, uint64_t done);
/** The run's thread, after a failure: whether it comes from a lost rank. Then this thread alone
 * goes on to the end, with stderr as it was where this rank speaks, and nowhere else. Waits a
 * moment for the world's thread where a peer is the reason. */
bool ranks_lost_claim(struct ranks *ranks, int status);
/** After the failure was told: ends the process, and as far as it goes the others. */
_Noreturn void ranks_lost_end(struct ranks *ranks);

#endif
