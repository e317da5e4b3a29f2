/* SPDX-License-Identifier: MIT */
#include "world/wait.h"

#include <sched.h>

int weir__world_wait(const struct weir_world *world, struct weir_request *request,
                     struct weir_arrival *arrival) {
    bool over = false;
    int status = WEIR_OK;
    while (status == WEIR_OK && !over) {
        status = world->calls->test(world->context, request, &over, arrival);
        if (!over) sched_yield();
    }
    return status;
}

int weir__world_send(const struct weir_world *world, uint32_t peer, uint32_t tag, const void *data,
                     size_t bytes) {
    const struct weir_message message = {
        .data = (void *)(uintptr_t)data, .bytes = bytes, .peer = peer, .tag = tag};
    struct weir_request request;
    int status = world->calls->send(world->context, &message, &request);
    return status != WEIR_OK ? status : weir__world_wait(world, &request, NULL);
}

int weir__world_receive(const struct weir_world *world, uint32_t peer, void *data, size_t bytes,
                        struct weir_arrival *arrival) {
    const struct weir_message message = {.data = data, .bytes = bytes, .peer = peer};
    struct weir_request request;
    int status = world->calls->receive(world->context, &message, &request);
    return status != WEIR_OK ? status : weir__world_wait(world, &request, arrival);
}

int weir__world_expect(const struct weir_world *world, uint32_t peer, uint32_t tag, void *data,
                       size_t bytes) {
    struct weir_arrival arrival = {0};
    int status = weir__world_receive(world, peer, data, bytes, &arrival);
    if (status != WEIR_OK) return status;
    return arrival.tag == tag && arrival.bytes == bytes ? WEIR_OK : WEIR_ERR_PEER;
}
