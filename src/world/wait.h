/* SPDX-License-Identifier: MIT */
/**
 * Calls of a world (weir_world.h) that wait for their ends. Statuses and reasons are the world's.
 */
#ifndef WEIR_WORLD_WAIT_H
#define WEIR_WORLD_WAIT_H

#include "base/base.h"
#include "weir_world.h"

/** Until the request has ended. `arrival` may be NULL. */
int weir__world_wait(const struct weir_world *world, struct weir_request *request,
                     struct weir_arrival *arrival);
/** A message on channel 0, with a tag. Its receiver waits in weir__world_receive, or will. */
int weir__world_send(const struct weir_world *world, uint32_t peer, uint32_t tag, const void *data,
                     size_t bytes);
/** The next message from `peer` on channel 0, of `bytes` bytes at most. */
int weir__world_receive(const struct weir_world *world, uint32_t peer, void *data, size_t bytes,
                        struct weir_arrival *arrival);

#endif
