/* SPDX-License-Identifier: MIT */
/**
 * A world whose ranks are threads of the test's process, and which does to its callers the worst
 * that weir_world.h, and MPI, allow.
 *
 * A message waits for calls of its sender, then of its receiver; matched, again for its sender's,
 * unless its bytes were copied by send, and for its receiver's: how many each time is drawn from
 * the seed by channel, ranks and number, and not by how threads run. So nothing moves while nobody
 * calls, requests end in any order, and an ended send's message may still wait for its sender.
 * Order holds for matching alone. The memory of a receive is all ones (a NaN) from its beginning,
 * filled from the back, whole at its end only; a send's is read as late as can be.
 *
 * What callers may not do is a fault, which fails the test at once: channels that are not open,
 * peers that are none, a request that is under way or is not, or was moved, calls of one rank from
 * two threads at a time, memory of a request that was written to, collective calls that differ,
 * close with requests under way, messages that nobody received. ThreadSanitizer sees calls of one
 * rank that follow each other on two threads by luck only.
 */
#ifndef WEIR_TESTS_ENGINE_THREADS_WORLD_H
#define WEIR_TESTS_ENGINE_THREADS_WORLD_H

#include "weir_world.h"

enum threads_call {
    THREADS_ANY, /**< of the following; the others are not counted */
    THREADS_OPEN,
    THREADS_SEND,
    THREADS_RECEIVE,
    THREADS_TEST,
    THREADS_CANCEL,
    THREADS_CALL_COUNT
};

struct threads_options {
    uint32_t ranks;
    uint32_t ranks_per_host; /**< 0: all on one */
    uint32_t channels;       /**< open from the beginning */
    uint32_t limit_s;        /**< of a run; 0: THREADS_LIMIT_S */
    uint64_t seed;
    uint32_t delay;    /**< the most calls that one of a message's waits takes, below 65536 */
    uint32_t delay_us; /**< and the most time, below 32768, which must pass too */
    uint32_t fail_rank, fail_call; /**< that call of that rank fails: 1 is the first, 0 none … */
    enum threads_call fail_kind;   /**< … of this kind */
    uint32_t drop_rank, drop_call; /**< from that call on, of any kind, all of that rank's fail, and
                                        no other rank hears of it again: 0 none */
    bool no_launcher;              /**< a rank that ends with a failure does not end the others */
    bool keeps_faults;             /**< they do not fail the test: it looks at them itself */
};
enum { THREADS_LIMIT_S = 60 };

struct threads_counts {
    uint64_t sent, received, cancelled;
    uint64_t copied;     /**< sends whose bytes were copied at once */
    uint64_t late;       /**< tests of a receive that said no although its message had been sent */
    uint64_t unexpected; /**< messages that came before their receive began */
    uint64_t overtaken;  /**< messages that could end before one sent earlier to the same rank */
};

struct threads_world;
typedef int threads_world_fn(void *context, struct weir_world *world);

/** Memory is malloc's, so that failing allocations of test_allocator() are the others'. */
struct threads_world *threads_world_new(const struct threads_options *options);
void threads_world_destroy(struct threads_world *world);
/** The rank's world, for a test that calls on threads of its own, or for several ranks on one. */
struct weir_world *threads_world_rank(struct threads_world *world, uint32_t rank);
/** Runs the function on a thread for each rank, with that rank's world, and closes the world on
 * ranks that did not and end with WEIR_OK. Any other status is a process that ends with a failure:
 * the others' calls fail from then on. Returns the status of the first that failed, in time.
 * Behind the limit it fails the test with what each rank waits for, and all calls fail; a rank that
 * then goes on as long again ends the process. Once in a world. */
int threads_world_run(struct threads_world *world, threads_world_fn *function, void *context);

/** A new world, one run in it, and its end; the run's status. */
int threads_world_once(const struct threads_options *options, threads_world_fn *function,
                       void *context);

/** These are for when no rank calls. */
const struct weir_faults *threads_world_faults(const struct threads_world *world);
struct threads_counts threads_world_counts(const struct threads_world *world);
/** Whether the call of fail_call or drop_call came: loop over it until not. */
bool threads_world_fired(const struct threads_world *world);
/** Whether a rank called abort; the first, and its exit status. A dropped one's is not heard. */
bool threads_world_aborted(const struct threads_world *world, uint32_t *rank, int *exit_status);

#endif
