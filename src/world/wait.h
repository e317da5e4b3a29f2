/* SPDX-License-Identifier: MIT */
/**
 * Calls of a world (weir_world.h) that wait for their ends. Statuses and reasons are the world's.
 */
#ifndef WEIR_WORLD_WAIT_H
#define WEIR_WORLD_WAIT_H

#include "base/base.h"
#include "weir_world.h"

/** What a message on channel 0 is of. Nobody says what comes next; its tag proves it: the kind, and
 * a number that the next of the kind has another of, such as a step's. */
enum weir__talk {
    WEIR__TALK_AGREE,
    WEIR__TALK_GATHER,  /**< number: bytes */
    WEIR__TALK_NUMBERS, /**< a step's norms, losses and failures */
    WEIR__TALK_VERDICT, /**< whether its updates were done */
    WEIR__TALK_GIFT,    /**< what one rank gives all, with its status in the number */
    WEIR__TALK_EVENTS,
    WEIR__TALK_PLACE,
    WEIR__TALK_PAIR, /**< number: the lane */
    WEIR__TALK_TWIN, /**< of two replicas; number: the worker */
    WEIR__TALK_LINK, /**< stays the last */
    WEIR__TALK_KINDS
};
enum { WEIR__TALK_NUMBERS_MOST = 2048 };
_Static_assert(WEIR__TALK_KINDS *WEIR__TALK_NUMBERS_MOST <= WEIR_TAG_MOST + 1, "tags have room");

static inline uint32_t weir__talk_tag(enum weir__talk kind, uint64_t number) {
    return (uint32_t)kind * WEIR__TALK_NUMBERS_MOST + (uint32_t)(number % WEIR__TALK_NUMBERS_MOST);
}

/** Until the request has ended. `arrival` may be NULL. */
int weir__world_wait(const struct weir_world *world, struct weir_request *request,
                     struct weir_arrival *arrival);
/** A message on channel 0, with a tag. Its receiver waits in weir__world_receive, or will. */
int weir__world_send(const struct weir_world *world, uint32_t peer, uint32_t tag, const void *data,
                     size_t bytes);
/** The next message from `peer` on channel 0, of `bytes` bytes at most. */
int weir__world_receive(const struct weir_world *world, uint32_t peer, void *data, size_t bytes,
                        struct weir_arrival *arrival);
/** The same of a message that has this tag and so many bytes; WEIR_ERR_PEER for another one. */
int weir__world_expect(const struct weir_world *world, uint32_t peer, uint32_t tag, void *data,
                       size_t bytes);

#endif
