/* SPDX-License-Identifier: MIT */
#include "engine/world_calls.h"
#include "harness.h"

int world_open(struct weir_world *world, uint32_t count) {
    return world->calls->open(world->context, count);
}

int world_send(struct weir_world *world, uint32_t peer, const void *data, size_t bytes,
               struct weir_request *request) {
    struct weir_message message = {.data = (void *)(uintptr_t)data, .bytes = bytes, .peer = peer};
    return world->calls->send(world->context, &message, request);
}

int world_receive(struct weir_world *world, uint32_t peer, void *data, size_t bytes,
                  struct weir_request *request) {
    struct weir_message message = {.data = data, .bytes = bytes, .peer = peer};
    return world->calls->receive(world->context, &message, request);
}

int world_test(struct weir_world *world, struct weir_request *request, bool *ended) {
    return world->calls->test(world->context, request, ended, NULL);
}

int world_cancel(struct weir_world *world, struct weir_request *request, bool *ended) {
    return world->calls->cancel(world->context, request, ended);
}

const char *world_reason(struct weir_world *world) {
    return world->calls->reason(world->context);
}

bool world_ends(struct weir_world *world, struct weir_request *request, uint32_t most) {
    bool ended = false;
    for (uint32_t i = 0; i < most && !ended; i++)
        if (!EXPECT_STATUS(world_test(world, request, &ended), WEIR_OK)) return false;
    return ended;
}
