/* SPDX-License-Identifier: MIT */
/* The world of one: there is nobody to send to. */
#include "world/world.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int open_none(void *context, uint32_t count) {
    (void)context, (void)count;
    return WEIR_OK;
}

static int refuse(void *context, const struct weir_message *message, struct weir_request *request) {
    (void)context, (void)message, (void)request;
    return WEIR_ERR_ARGUMENT;
}

static int test_none(void *context, struct weir_request *request, bool *ended,
                     struct weir_arrival *arrival) {
    (void)context, (void)request, (void)arrival;
    *ended = false;
    return WEIR_ERR_ARGUMENT;
}

static int cancel_none(void *context, struct weir_request *request, bool *ended) {
    return test_none(context, request, ended, NULL);
}

static const char *reason(void *context) {
    (void)context;
    return "a process alone has no peer";
}

static void end(void *context, int exit_status) {
    (void)context;
    _exit(exit_status);
}

static void close_none(void *context) {
    (void)context;
}

void weir__world_of_one(struct weir_world *world) {
    static const struct weir_world_calls calls = {
        .size = sizeof calls,
        .open = open_none,
        .send = refuse,
        .receive = refuse,
        .test = test_none,
        .cancel = cancel_none,
        .reason = reason,
        .abort = end,
        .close = close_none,
    };
    assert(world != NULL);
    *world = (struct weir_world){.size = sizeof *world,
                                 .calls = &calls,
                                 .rank_count = 1,
                                 .host_count = 1,
                                 .name = "one process"};
    if (gethostname(world->host, sizeof world->host - 1) != 0) strcpy(world->host, "this host");
}
