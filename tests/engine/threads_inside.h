/* SPDX-License-Identifier: MIT */
/** A world of threads inside: threads_messages.c has its messages, threads_world.c the rest. */
#ifndef WEIR_TESTS_ENGINE_THREADS_INSIDE_H
#define WEIR_TESTS_ENGINE_THREADS_INSIDE_H

#include "engine/threads_world.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS_TEXT_BYTES = 200 };

/** Where a message is. The waits of LEAVES, TRAVELS, WANTED and FILLS end by calls of one rank. */
enum threads_place {
    THREADS_LEAVES,   /**< the sender's */
    THREADS_TRAVELS,  /**< the receiver's; messages of a way pass in order */
    THREADS_CAME,     /**< a receive must begin */
    THREADS_WANTED,   /**< the sender's, which read the memory */
    THREADS_FILLS,    /**< the receiver's */
    THREADS_IN,       /**< its receive's test ends it */
    THREADS_RECEIVED, /**< only the send's request goes on */
    THREADS_PLACES
};

/** A send with its message, or a receive. Its memory is touched in calls of its own rank only. */
struct threads_operation {
    struct threads_operation *next;    /**< in the order of their beginnings */
    struct threads_operation *partner; /**< of a receive and a message, WANTED to IN */
    struct threads_rank *rank;
    struct weir_message message;
    struct weir_request *request; /**< NULL: ended for its caller */
    bool receives;
    size_t filled; /**< of a receive: from here on, of its message's bytes */
    /* of a send */
    enum threads_place place;
    bool copied;     /**< its bytes, by send; else they are read at WANTED's end */
    uint8_t *bytes;  /**< the message's, as they were when it was sent until then */
    uint64_t number; /**< on its way */
    uint32_t draws[THREADS_PLACES];
    uint32_t calls_left; /**< of the wait … */
    uint64_t until_ns;   /**< … and its time; 0: none */
    uint32_t end_calls;  /**< the sender's, from when its memory was read to the request's end */
};

/** Of the messages of one channel from one rank to another. */
struct threads_way {
    uint64_t sent, came;
};

struct threads_rank {
    struct threads_world *owner;
    struct weir_world world;
    pthread_t thread;
    atomic_bool inside; /**< a call; relaxed, or it would hide what `touched` shows */
    uint64_t touched;   /**< outside of the lock: for ThreadSanitizer */
    /* under the lock */
    uint64_t calls[THREADS_CALL_COUNT];
    bool failed, dropped, closed, returned;
    const char *waits; /**< the collective call that it is in, or NULL */
    char reason[THREADS_TEXT_BYTES];
};

struct threads_world {
    struct threads_options options;
    struct threads_rank *ranks;
    threads_world_fn *function;
    void *context;
    pthread_mutex_t lock; /**< of all that follows */
    struct threads_operation *operations;
    struct threads_way *ways; /**< by channel, sender, receiver */
    uint32_t channels;
    const char *gathers_for; /**< the collective call that ranks have come for … */
    uint32_t gathers_count, gathered;
    uint64_t gatherings; /**< … and how many of them are complete */
    struct weir_faults faults;
    struct threads_counts counts;
    bool fired, aborted;
    uint32_t abort_rank;
    int abort_status, first_failure;
    char over[THREADS_TEXT_BYTES]; /**< why all calls fail, or "" */
};

/** Zeroed memory, at least one element of it; for free. */
void *threads_take(size_t count, size_t bytes);
/** Every call begins with the first and ends with the second, which hold the lock between them.
 * False, and not held: another thread is in a call of the rank. */
bool threads_come_in(struct threads_rank *rank);
void threads_go_out(struct threads_rank *rank);
/** Counts a call, which fails where it was asked to, or where one has before. */
int threads_admit(struct threads_rank *rank, enum threads_call kind);
/** WEIR_ERR_PEER: the rank's calls fail from now on. */
__attribute__((format(printf, 2, 3))) int threads_refuse(struct threads_rank *rank,
                                                         const char *format, ...);
/** WEIR_ERR_ARGUMENT: a fault. */
__attribute__((format(printf, 2, 3))) int threads_misuse(struct threads_rank *rank,
                                                         const char *format, ...);

/** What a call of the rank does for all messages: nothing after a failure, when memory of requests
 * that have not ended may be gone. */
void threads_progress(const struct threads_rank *rank);
/** Forgets it. */
void threads_drop(struct threads_operation *operation);
/** What it waits for, for people. */
void threads_describe(const struct threads_operation *operation, char *text, size_t capacity);
int threads_send(void *context, const struct weir_message *message, struct weir_request *request);
int threads_receive(void *context, const struct weir_message *message,
                    struct weir_request *request);
int threads_test(void *context, struct weir_request *request, bool *ended,
                 struct weir_arrival *arrival);
int threads_cancel(void *context, struct weir_request *request, bool *ended);

#endif
