/* SPDX-License-Identifier: MIT */
/**
 * What all ranks of a world come to know, each of what the others bring.
 */
#ifndef WEIR_ALLREDUCE_H
#define WEIR_ALLREDUCE_H

#include "world/wait.h"

/** All ranks' numbers become known to all, by messages on channel 0: in round k to the rank 2^k
 * further on from that 2^k before (dissemination; Hensgen, Finkel, Manber 1988). What is merged may
 * be merged again without harm. */
struct weir__allreduce {
    unsigned char *own, *other; /**< what is known here; what comes */
    size_t bytes;
    void (*merge)(unsigned char *own, const unsigned char *other, size_t bytes);
    uint32_t first, count; /**< the ranks that take part; no `count`: all */
    uint32_t tag;          /**< of its messages: what is exchanged (weir__talk_tag) */
    bool strange;          /**< a rank's message was of something else: WEIR_ERR_PEER */
    uint32_t distance;     /**< of this round; the number of ranks or more: it is over */
    bool under_way, sent, received;
    struct weir_request send, receive;
};

/** Begins, and goes on without waiting; *over: every rank's part is merged into `own`. All ranks
 * exchange the same things in the same order. Failures are the world's. */
void weir__allreduce_begin(struct weir__allreduce *exchange);
int weir__allreduce_go_on(const struct weir_world *world, struct weir__allreduce *exchange,
                          bool *over);
/** Both, to the end: blocks, and sleeps where that takes long. Opens channel 0. */
int weir__allreduce_wait(const struct weir_world *world, struct weir__allreduce *exchange);
/** Why it failed: one line, as the world's reason. */
const char *weir__allreduce_reason(const struct weir_world *world,
                                   const struct weir__allreduce *exchange);
/** A merge for bytes that one rank alone brings, and that are 0 on the others. */
void weir__allreduce_join(unsigned char *own, const unsigned char *other, size_t bytes);

/** Every rank comes with its status, and a digest of what must be the same: of `what`, as in "the
 * ranks have different %s". WEIR_OK where all come with WEIR_OK and one digest; else a rank's
 * failure: its own, another's as WEIR_ERR_PEER, or WEIR_ERR_CONFIG, with a fault. Collective;
 * blocks. `world` may be NULL: the own status. */
int weir__world_agree(const struct weir_world *world, int status, uint64_t digest, const char *what,
                      struct weir_faults *faults);
/** The same among `count` ranks from `first` on, of which this is one, none with a failure. */
int weir__world_agree_among(const struct weir_world *world, uint32_t first, uint32_t count,
                            uint64_t digest, const char *what, struct weir_faults *faults);

/** Every rank comes with the same number of bytes, all 0 but for what it alone has to say; each
 * leaves with what all said. Collective; blocks. The world's failures, and
 * WEIR_ERR_OUT_OF_MEMORY; `error`, which may be NULL, says why. */
int weir__world_gather(const struct weir_world *world, const struct weir_allocator *allocator,
                       void *data, size_t bytes, struct weir_error *error);
/** The same in `room`, of as many bytes, so that it needs no memory. */
int weir__world_gather_in(const struct weir_world *world, void *data, void *room, size_t bytes,
                          struct weir_error *error);

/** Every rank gets rank 0's number. Collective; blocks. The world's failures, for it needs no
 * memory; `world` may be NULL: the own number. */
int weir__world_share(const struct weir_world *world, uint64_t *number);

#endif
