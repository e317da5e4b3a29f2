/* SPDX-License-Identifier: MIT */
/**
 * A running pipe: workers and what they share. One host thread per worker, alive as long as the
 * pipe. The caller's thread hands out commands through one gate and waits for every worker's.
 *
 * Who may touch what: between commands everything belongs to the caller; from the moment that
 * `start` advances until a worker's `done` does, the command, the prepared row count and `base`s
 * are read-only, a worker's own members are its own, and results of an action belong to whoever
 * waited for that worker's `progress`.
 */
#ifndef WEIR_PIPE_H
#define WEIR_PIPE_H

#include "device/device.h"
#include "device/nvtx.h"
#include "pipe/lower/prepared.h"
#include "place/place.h"

#include <pthread.h>

/** Host memory that devices copy from and to: whole huge pages, pinned. */
struct weir__host_memory {
    struct weir__device *host, *device;
    void *data;
    size_t bytes;
};

/** Events that say how far a stream has come; recorded anew in every step. Who waits for one has
 * passed the gate that says that it was. There are two for each place, which steps take in turn, so
 * that the times of one step can be read during the next (stamps.c). */
struct weir__signals {
    struct weir__event *events;
    uint32_t count; /**< of events */
};
static inline struct weir__event *weir__signal(const struct weir__signals *signals, uint32_t place,
                                               uint32_t turn) {
    assert(2 * place + turn < signals->count);
    return &signals->events[2 * place + turn];
}

/** A unit of copies by a lane, as it was in a step. Times as in struct weir_trace_event. */
struct weir__copy_event {
    uint64_t step, start, end;
    const struct weir__row_plan *plan;
    uint32_t copy; /**< the unit's first */
};

/** A step whose stamps are the host's still. */
struct weir__unstamped {
    const struct weir__row_plan *plan;
    uint32_t turn;
    bool any;
};

/** Where the device that copies does not reach the source's memory: the source's own device copies
 * into pinned memory first, on a stream of its own that the same thread gives work to. Both
 * streams' events are recorded and waited for by that thread alone, in the order of the pieces, so
 * there is one for each slot. */
struct weir__hop {
    struct weir__device *device; /**< NULL: there is no hop */
    struct weir_stream *stream;
    struct weir__signals filled;  /**< by slot: a piece is there, on `stream` */
    struct weir__signals emptied; /**< by slot: it has gone on, on the lane's stream; only where the
                                       same unit comes to the slot again, for other units have
                                       waits */
    struct weir__host_memory slots;
    uint32_t slot_count;
    size_t slot_bytes, wanted_bytes; /**< of a slot: as it is, as it must be */
};

struct weir__nccl_pair;

/** A lane's stream, owned by the worker to which it copies. Of a lane of ranks, and of what goes
 * between replicas, it is the end that is here, on this worker's GPU: the stream sends or receives
 * (pipe/run/ranks/crossings.c), and a signal says that the message has left, or come to, the plan's
 * memory. */
struct weir__copy_stream {
    struct weir__copy_stream *next; /**< of the same worker */
    uint32_t from;    /**< a worker, or WEIR__FROM_CALLER; of a send, the receiver … */
    bool of_replicas; /**< … or the other replica */
    bool sends;       /**< of ranks */
    struct weir__nccl_pair *pair; /**< of ranks: by NCCL; NULL: through the slots of `hop` */
    struct weir__device *device;  /**< that copies */
    struct weir_stream *stream;
    struct weir__signals signals; /**< by place in the lane */
    struct weir__hop hop;
    uint64_t *given_ns; /**< for stamps.c: when each unit was given, as the signals */
    uint32_t given_count;
    uint64_t free_ns; /**< likewise: when the copy before was done */
};

/** How far the watchdog has seen a worker's device come in a step, and since when the next action
 * or copy could run. It belongs to the caller. */
struct weir__watched {
    uint32_t done;   /**< actions of the line that are done */
    uint32_t action; /**< the next, in the table */
    uint32_t copy;   /**< one for it that runs, or WEIR__NO_COPY: it runs itself */
    uint64_t since;  /**< 0: neither does */
    uint64_t ended;  /**< when one was last seen to have ended; 0: none yet */
};

struct weir__worker {
    struct weir__gate progress; /**< base + actions ended in this step; advanced by this worker */
    struct weir__gate done;     /**< number of the last command that it finished */
    struct weir_pipe *pipe;
    uint32_t index;
    uint32_t base; /**< of progress in this step; set by the caller before `start` */
    pthread_t thread;
    bool started;
    struct weir__device *device;
    struct weir_stream *stream;
    struct weir__signals signals; /**< by place in its line; of a device behind its host */
    struct weir__copy_stream *copy_streams; /**< what comes by lanes */
    struct weir__copy_stream *rank_streams; /**< ends of lanes of ranks, of a GPU */
    struct weir__host_memory staging;       /**< the caller's rows on their way, likewise; and what
                                                 is read and written between steps */
    size_t staging_wanted;
    struct weir_verdict *verdict;    /**< in the memory of a device behind its host; else NULL */
    struct weir_trace_event *events; /**< a ring, written by this worker; others read an event after
                                          they saw its action's progress */
    uint32_t event_capacity;
    uint64_t event_count;
    uint64_t step_first_event; /**< event_count when the step began */
    uint64_t last_first_event; /**< of the last completed training step: the caller's, as
                                  `history.last` is */
    uint64_t unstamped_first;  /**< of the unstamped step's events, of which there are … */
    uint32_t unstamped_count;  /**< … so many; the caller's, set between steps */
    struct weir__copy_event *copy_events; /**< a ring, of copies to this worker; written with
                                               stamps */
    uint32_t copy_event_capacity;
    uint64_t copy_event_count;
    uint64_t expected_wait_ns; /**< running mean of this worker's waits */
    _Atomic uint64_t
        busy_since; /**< start of the callback that runs now, 0: none; for the watchdog */
    _Atomic uint32_t busy_action;
    struct weir__watched watched;
};

enum weir__command_kind {
    WEIR__COMMAND_ATTACH,
    WEIR__COMMAND_PREPARE,
    WEIR__COMMAND_TOUCH, /**< working memory that is new */
    WEIR__COMMAND_RUN,
    WEIR__COMMAND_TRANSFER, /**< one worker's memory to or from the caller's */
    WEIR__COMMAND_DETACH,
    WEIR__COMMAND_EXIT
};

/** A step's first failure. Who takes it from where it is to IN_WRITING writes the record, which is
 * there to be read when it is KNOWN. */
enum weir__failure {
    WEIR__FAILURE_NONE,
    WEIR__FAILURE_OF_UPDATE, /**< none, and an update has begun: nothing else can fail any more, so
                                  that every other failure means that no parameter has changed */
    WEIR__FAILURE_IN_WRITING,
    WEIR__FAILURE_KNOWN
};

/** What the workers are to do; the caller's until `start` advances, then read by all. */
struct weir__command {
    uint32_t number; /**< of the last one given */
    enum weir__command_kind kind;
    const struct weir__row_plan *plan;
    struct weir_step step; /**< its arrays are the caller's: workers read the pipe's copies … */
    const void **inputs;   /**< … which these are */
    void **input_grads;
    void **outputs;
    uint32_t turn;                 /**< of the signals */
    struct weir__unstamped before; /**< for workers to stamp when they have nothing better to do */
    struct weir__transfer {
        uint32_t worker;
        void *to;
        const void *from;
        size_t bytes;
        bool to_device;
    } transfer;
};

/** Where everything lies; the caller moves it between commands, and binds all plans anew. */
struct weir__pipe_memory {
    struct weir__arena *arenas; /**< per worker */
    struct weir__arena *grown;  /**< per worker: working memory on its way in (arena.c) */
    size_t *arena_bytes;        /**< per worker: the sizes of `arenas` */
    void **staging;             /**< per worker: its staging */
    double **norm_squares;      /**< per stage; written by N, read by all workers after every N */
    double *squares;            /**< all of these, in the order of stages */
    size_t square_count;
    double *losses;                   /**< [stage][micro-batch] */
    struct weir__host_memory numbers; /**< squares and losses, where devices write them */
    size_t numbers_bytes;
    uint32_t numbers_worker; /**< whose GPU's node they lie on; none: no device writes late */
};

/** How the last command ended, and whether another can follow. */
struct weir__outcome {
    _Atomic int failed;        /**< enum weir__failure; who takes it to IN_WRITING writes `error` */
    struct weir_error error;   /**< all read it when it is KNOWN */
    bool stuck;                /**< the watchdog gave up on the last command */
    bool lost;                 /**< a device has failed: no step can follow */
    struct weir_error lost_by; /**< the failure that did it */
};

/** What readers of the trace ask for, between steps. */
struct weir__pipe_history {
    const struct weir__row_plan *last; /**< of the last completed training step, for the report */
    struct weir_worker_time *times;
    struct weir__unstamped *unstamped; /**< the last step; the first reader stamps it … */
    pthread_mutex_t *stamping;         /**< … under this lock, others wait for that */
};

struct weir_pipe {
    struct weir__gate start; /**< number of the last command given */
    struct weir__command command;
    /* fixed when the pipe is built; of `workers` each has its own */
    struct weir__setup setup;
    struct weir__machine *machine;
    struct weir__worker_place *placements; /**< per worker */
    struct weir__worker *workers;
    uint32_t worker_count;
    struct weir__device *host; /**< the CPU; where some device runs behind its host */
    struct weir_plan plan;
    struct weir__nvtx nvtx;    /**< a profiler's ranges */
    struct weir__ranks *ranks; /**< NULL: all workers are here */
    bool any_norm;
    bool spins; /**< every worker has a core of its own */
    /* the caller's, between commands */
    uint32_t prepared_count, prepared_capacity;
    struct weir__row_plan **prepared;
    struct weir__pipe_memory memory;
    struct weir__pipe_history history;
    uint64_t step_count;
    bool counts_updates; /**< some step said a number of updates done before it */
    /* anybody's */
    bool *attached;      /**< per stage; written by the stage's worker */
    _Atomic bool in_use; /**< a call is in progress */
    struct weir__outcome outcome;
};

#define WEIR__NUMBERS_NO_WORKER UINT32_MAX

/** Pins memory acquired from a CPU's device to the end of its last page, so that nothing else is
 * pinned with it; unpinned with the same `bytes`. */
int weir__host_pin(struct weir__device *device, void *memory, size_t bytes);
void weir__host_unpin(struct weir__device *device, void *memory, size_t bytes);
/** Touched by the calling thread, the worker's, on its GPU's node, then pinned for `device`. Clean
 * up before either device is closed. */
int weir__host_memory_init(struct weir__host_memory *memory, const struct weir__worker *worker,
                           struct weir__device *device, size_t bytes);
void weir__host_memory_clean_up(struct weir__host_memory *memory);
/** On the worker's thread, between steps: the host memory that its GPU copies from and to, grown to
 * what is wanted. What cannot be had leaves what is there; bind then all the same. */
int weir__host_memory_settle(struct weir__worker *worker, struct weir_error *error);
/** What was wanted and could not be had is wanted no more. */
void weir__host_memory_forget(struct weir_pipe *pipe);

/** Acquires the worker's memory, untouched; clean_up accepts what init failed on. */
int weir__arena_init(struct weir__worker *worker, size_t lasting_bytes, size_t bytes);
void weir__arena_clean_up(struct weir__worker *worker);
/** On the worker's thread, before anything else: touches all of it, then pins it where it is the
 * host's and other devices copy from or to it. */
int weir__arena_settle(struct weir__worker *worker, struct weir_error *error);
/** On the worker's thread: the same of what was reserved, if it is to be pinned. */
int weir__arena_settle_grown(struct weir__worker *worker, struct weir_error *error);
/** On the worker's thread: touches the working part if it is new. */
int weir__arena_touch(struct weir__worker *worker);
/** Acquires larger working parts where one of `list` needs them, to the side; nothing moves yet.
 * WEIR_ERR_MEMORY_LIMIT, WEIR_ERR_OUT_OF_MEMORY: nothing is kept. */
int weir__arenas_reserve(struct weir_pipe *pipe, struct weir__row_plan *const *list, uint32_t count,
                         struct weir_faults *faults);
/** Gives what was reserved back. */
void weir__arenas_drop(struct weir_pipe *pipe);
/** Puts what was reserved in place. True if anything moved: then every prepared row count is to be
 * bound again, and the workers are to touch it. */
bool weir__arenas_grow(struct weir_pipe *pipe);

/** Streams and signals for a prepared row count, and what is wanted of host memory (streams.c); on
 * the caller's thread, between steps. What a failure leaves is the worker's, for clean_up. */
int weir__streams_prepare(struct weir_pipe *pipe, struct weir__row_plan *prepared);
void weir__streams_clean_up(struct weir__worker *worker);

/** Waits until nothing runs on any stream that the worker owns, whatever a step's failure left
 * there; before anybody's memory goes, for streams read and write others' too. No failure is told:
 * it is the caller's way out. Pairs of NCCL must have been ended before: one may wait for a rank
 * that is gone. */
void weir__streams_end(struct weir__worker *worker);

/** Brings `watched` up to date (watch.c). The caller's thread calls it now and then during a step.
 * It asks the device: each action and each copy by a lane has an event. The worker does nothing for
 * it. An action counts from when the one before it and all that it waits for were seen done. It
 * could run then, but another worker's work may have the device: so nothing is overdue while work
 * ends somewhere. */
void weir__watch(struct weir__worker *worker);

/** Takes the driver's times for this worker's part of a step into its events and copy_events; where
 * they cannot be had the host's stay. On its own thread, or between steps on any. */
void weir__stamps_fill(struct weir__worker *worker, const struct weir__unstamped *of);
/** Before a step: its workers will stamp what is left. Waits for a reader who is at that, whose
 * events the step after it records anew. */
void weir__stamps_take(struct weir_pipe *pipe);
/** After a step in which nothing failed: leaves it to be stamped. */
void weir__stamps_leave(struct weir_pipe *pipe);
/** Between steps, before the trace is read: stamps what is left. Where nothing is it does nothing.
 * Any number of threads at once. WEIR_ERR_BUSY: the watchdog gave up on the last step, whose
 * workers may still write. */
int weir__stamps_read(const struct weir_pipe *pipe);
/** The copy to the worker in a step, a number in the prepared row count that ran; NULL: it is not
 * kept. */
const struct weir__copy_event *weir__stamps_copy(const struct weir__worker *worker, uint64_t step,
                                                 uint32_t copy);

/** Another rank's failure, which it tells with its place, is this step's: also where this rank has
 * one, so that all ranks have the same. Before updates. */
void weir__pipe_fail_elsewhere(struct weir_pipe *pipe, uint32_t rank,
                               const struct weir_error *error);

/** Points every prepared row count to where arenas, staging and numbers lie. */
void weir__pipe_bind(struct weir_pipe *pipe);

/** The thread's body; `argument` is its struct weir__worker. */
void *weir__worker_main(void *argument);
/** Makes the pipe's first failure known, with layer and message of `error` and the place of `call`
 * (NULL: none); later failures are dropped. Where an update has begun the status is WEIR_ERR_TORN,
 * unless a device is lost. */
void weir__pipe_fail(struct weir_pipe *pipe, const struct weir__call *call, int status,
                     const struct weir_error *error);
/** weir_pipe_read from a replica's ranks: `from` counts on that which has the stage. */
int weir__pipe_read_from(struct weir_pipe *pipe, uint32_t replica, uint32_t stage, void *to,
                         const void *from, size_t bytes);
/** On the worker's thread: the command's transfer, if it is this one's. */
int weir__transfer(struct weir__worker *worker);
/** weir_pipe_read for the rank that has the stage alone: nothing is said to the others. */
int weir__pipe_read_own(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                        size_t bytes);
/** The caller's turn at the pipe: WEIR_ERR_BUSY, WEIR_ERR_DEVICE and why in `error`, or WEIR_OK and
 * weir__pipe_leave must follow. */
int weir__pipe_enter(struct weir_pipe *pipe, struct weir_error *error);
void weir__pipe_leave(struct weir_pipe *pipe);
/** Gives `pipe->command` to all workers and waits. WEIR_OK, the failure, or WEIR_ERR_TIMEOUT. */
int weir__pipe_command(struct weir_pipe *pipe);
/** What the step's gradients are judged by, once every N is done; into `verdict`. */
static inline struct weir__judgement weir__pipe_judgement(const struct weir_pipe *pipe,
                                                          struct weir_verdict *verdict) {
    return (struct weir__judgement){pipe->memory.squares, pipe->memory.square_count,
                                    pipe->setup.options.clip_norm, verdict};
}
/** The event of an action of the step that ran last on its worker. */
static inline struct weir_trace_event *weir__worker_event(const struct weir__worker *worker,
                                                          uint32_t line_index) {
    assert(worker->event_capacity > 0);
    return &worker->events[(worker->step_first_event + line_index) % worker->event_capacity];
}

#endif
