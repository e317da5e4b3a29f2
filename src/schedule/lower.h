/* SPDX-License-Identifier: MIT */
/**
 * A table lowered to sends and receives (weir_predict.h says how): for each worker, a list of
 * operations.
 */
#ifndef WEIR_SCHEDULE_LOWER_H
#define WEIR_SCHEDULE_LOWER_H

#include "schedule/action.h"
#include "weir_predict.h"

struct weir__link_message {
    uint32_t from;             /**< the action whose result it is */
    uint32_t reader;           /**< the first action that reads it */
    uint32_t sender, receiver; /**< workers */
    uint32_t link;             /**< a number for (sender, receiver) */
    bool skip;                 /**< over skips, else over a border */
    uint32_t next_sent;        /**< the next message of the same action, or WEIR__NO_MESSAGE */
    uint32_t next_read;        /**< the next message with the same first reader */
};
#define WEIR__NO_MESSAGE UINT32_MAX

enum weir__operation_kind { WEIR__RUN, WEIR__SEND, WEIR__RECEIVE };

struct weir__operation {
    uint32_t at; /**< an action, or a message */
    uint8_t kind;
};

struct weir__exchange {
    const struct weir_allocator *allocator;
    uint32_t worker_count, action_count;
    uint32_t message_count, link_count;
    uint32_t message_room, operation_room;
    struct weir__link_message *messages;
    uint32_t *begin; /**< [worker + 1] */
    struct weir__operation *operations;
};

/** `table` is proven under the flow that `deps` are of. Clean up in every case.
 * WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_OVERFLOW. */
int weir__lower(const struct weir_table *table, const struct weir__deps *deps,
                enum weir_receive receive, const struct weir_allocator *allocator,
                struct weir__exchange *exchange);
void weir__exchange_clean_up(struct weir__exchange *exchange);

#endif
