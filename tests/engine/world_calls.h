/* SPDX-License-Identifier: MIT */
/** Short forms of any world's calls, for tests: messages on channel 0 with tag 0. */
#ifndef WEIR_TESTS_ENGINE_WORLD_CALLS_H
#define WEIR_TESTS_ENGINE_WORLD_CALLS_H

#include "weir_world.h"

int world_open(struct weir_world *world, uint32_t count);
int world_send(struct weir_world *world, uint32_t peer, const void *data, size_t bytes,
               struct weir_request *request);
int world_receive(struct weir_world *world, uint32_t peer, void *data, size_t bytes,
                  struct weir_request *request);
int world_test(struct weir_world *world, struct weir_request *request, bool *ended);
int world_cancel(struct weir_world *world, struct weir_request *request, bool *ended);
const char *world_reason(struct weir_world *world);
/** Tests it so many times at most; whether it ended. A failure is the test's, too. */
bool world_ends(struct weir_world *world, struct weir_request *request, uint32_t most);

#endif
