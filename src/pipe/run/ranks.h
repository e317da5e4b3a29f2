/* SPDX-License-Identifier: MIT */
/**
 * A pipe's part in a world (weir_world.h). Every rank plans all workers and runs its own. What
 * crosses between ranks is a copy of the plan like others, but by a lane that has an end here and
 * one there: a port. A step's messages and their order in each lane are those of the plan, so
 * nobody says what comes next: a tag only proves it.
 *
 * A receive is begun when the plan's slot for it is free; a send when its producer has ended. Both
 * go on by polls: of workers that wait or have ended an action, and of the caller's thread every
 * POLL_NS, so that a long callback holds up nobody. One poll at a time makes all of this rank's
 * calls of the world.
 *
 * Of a GPU's memory (crossings.c) a message goes by NCCL, or through pinned memory and the world.
 * Either way the poll gives its stream what there is to do, and the port says that it was given.
 *
 * When a step's last norm is known the ranks exchange numbers: squares, losses, and whether
 * anything failed before. So all of them judge alike, and a failure anywhere, before any update,
 * ends the step on all ranks. Replicas (weir_shared.h) are ranks with a plan each; messages between
 * those that have the same stages go by ports of no lane (replicas.c): one for all CPUs, and one
 * for each GPU, whose messages go as those of a lane do. A rank that fails still sends, without
 * bytes, and receives what is left of the step, so that the next step finds the lanes empty.
 */
#ifndef WEIR_RANKS_H
#define WEIR_RANKS_H

#include "device/nccl.h"
#include "pipe/run/run.h"
#include "world/allreduce.h"

/** A message between replicas: bytes of a block, behind an action of this rank's, which on a GPU
 * is the port's worker's. */
struct weir__item {
    uint32_t block, action;
    size_t offset, bytes;
};

/** This rank's end of a lane, or of what goes between it and another replica's. */
struct weir__port {
    struct weir__gate ended; /**< messages that have ended since the pipe began; by the poll */
    uint32_t base;           /**< of it in this step; set by the caller before `start` */
    bool sends;
    uint32_t peer, channel;
    uint32_t offer_channel;          /**< of a crossing by NCCL: of what goes the other way */
    uint32_t count;                  /**< messages of a step with an update … */
    uint32_t body_count;             /**< … and without: those before the norms */
    const uint32_t *copies;          /**< [count]: copies of the plan, by place … */
    const struct weir__item *items;  /**< … or, if not NULL, messages between replicas */
    uint32_t replica;                /**< of those: the other … */
    uint32_t *until;                 /**< … and [stage]: how many there are up to its gradients */
    struct weir_request *requests;   /**< [count]: those of places ended to `begun` are under way */
    uint32_t begun;                  /**< in this step; the poll's */
    struct weir__crossing *crossing; /**< of a GPU's: what is beside its messages; else NULL */
    uint32_t whole; /**< sends of this step up to there have bytes; those behind were
                         begun after a failure and have none */
};

/** A GPU's end of a lane of ranks, or between replicas, for one row count (crossings.c): the
 * poll's, as the port. The port's `ended` then says what its stream was given, and signals what has
 * ended there. */
struct weir__crossing {
    struct weir__worker *worker;
    struct weir__copy_stream *stream;
    struct weir_request *offers; /**< [count]: by NCCL, of the receiver's word that it is ready */
    uint64_t *sizes;             /**< [count]: by NCCL, the bytes that the sender's word says … */
    bool *empty;                 /**< [count]: … or that there are none: its rank has failed */
    uint32_t offered;            /**< offers begun, in this step */
    uint32_t heard;              /**< offers, of a send, or messages, of a receive, that came */
    uint32_t told;               /**< by NCCL: own words, of a send, or offers, that have ended */
    uint32_t closed;             /**< of which nothing is under way any more */
    bool giving;                 /**< by NCCL: the next message's call is made, and not over */
};

struct weir__rank_clock;

struct weir__ranks {
    const struct weir_world *world;
    uint32_t first, end; /**< workers of this rank */
    uint32_t replica, replicas, ranks_per_replica;
    pthread_mutex_t lock; /**< of a poll: the world's calls, ports, the exchange */
    uint32_t channels;    /**< that are open */
    struct weir__allreduce exchange;
    size_t exchange_capacity;    /**< bytes */
    bool exchanging;             /**< the step's has begun */
    uint32_t flags;              /**< of all ranks' steps, once it is over */
    bool gives;                  /**< it is over, nothing failed: replicas give each other what they
                                      update */
    struct weir__gate exchanged; /**< number of the last command whose exchange is over */
    uint64_t *gathered; /**< [2 * ranks]: what they tell each other while the pipe is built */
    struct weir__rank_clock *clocks; /**< of all ranks, against rank 0's (ranks/events.c) */
    struct weir_trace_event *events; /**< of a worker's step, on their way to rank 0 … */
    uint32_t event_capacity;         /**< … with room for so many */
    _Atomic bool broken;             /**< a call of the world failed: nothing under way will end */
    struct weir_request pulse;       /**< where a worker is on a GPU: a receive that never ends */
    bool pulsing;                    /**< it is under way */
    struct weir__nccl nccl;          /**< open where some crossing goes by it */
    char exchange_text[256];         /**< for weir_pipe_exchange … */
    bool slow;                       /**< … of two GPUs that do not exchange by NCCL */
};

/** Whether all ranks come with WEIR_OK, as weir__world_agree; and then what GPUs they have, and
 * which are this one's, into setup->gpus, which stays NULL where the options name none: before the
 * pipe is built. `world` may be NULL: the own status; `setup` where that is a failure. Collective;
 * blocks. */
int weir__ranks_survey(const struct weir_world *world, struct weir__setup *setup, int status,
                       struct weir_faults *faults);
/** Once, when channels are open; where a worker here is on a GPU. */
int weir__ranks_begin_pulse(struct weir_pipe *pipe);
/** Makes the pairs that a plan's messages need and that are not there. Collective; blocks. */
int weir__ranks_connect(struct weir_pipe *pipe, const struct weir__row_plan *plan,
                        struct weir_faults *faults);

/** Finds this rank's workers, when the first plan is there; `pipe->ranks` stays NULL without a
 * world. WEIR_ERR_CONFIG: fewer workers than ranks. */
int weir__ranks_init(struct weir_pipe *pipe, struct weir_faults *faults);
/** Ends what is under way with other ranks: before streams and memory go. */
void weir__ranks_stop(struct weir_pipe *pipe);
void weir__ranks_clean_up(struct weir_pipe *pipe);
/** How many channels a plan needs. */
uint32_t weir__ranks_channels(const struct weir_pipe *pipe, const struct weir__row_plan *plan);
/** Ports of a plan; opens the channels, and joins the GPUs, that it needs. Collective. */
int weir__ranks_prepare(struct weir_pipe *pipe, struct weir__row_plan *plan,
                        struct weir_faults *faults);
/** The room for what weir__ranks_meet finds. */
int weir__ranks_take_clocks(struct weir_pipe *pipe);
/** When all ranks have built the pipe: rank 0 learns where the others' workers are, and how far
 * their clocks are from its own. Collective; blocks. */
int weir__ranks_meet(struct weir_pipe *pipe);
/** After a training step that succeeded: rank 0 learns when the others of its replica did their
 * actions. Collective; blocks. */
int weir__ranks_tell_events(struct weir_pipe *pipe);
/** Whether all ranks come with WEIR_OK, the same `own` digest, pipes with the same options, workers
 * on the same kinds of devices, as many channels, and, within each replica, plans with the same
 * messages. `pipe` is NULL where there is none, for
 * `status`. Else as weir__world_agree. Collective; blocks. */
int weir__ranks_agree(const struct weir_world *world, const struct weir_pipe *pipe, int status,
                      uint64_t own, const char *what, struct weir_faults *faults);
/** From the rank of a replica's stage, which comes with a status, to all others, which get both.
 * Collective; blocks. */
int weir__ranks_give(struct weir_pipe *pipe, uint32_t replica, uint32_t stage, int status,
                     void *data, size_t bytes);

/** After a step that succeeded: what it gave the caller on one rank, it has on all. Collective. */
int weir__ranks_give_back(struct weir_pipe *pipe, bool infer);

/** Before a command is given: nothing has begun. */
void weir__ranks_begin(struct weir_pipe *pipe);
/** Goes on with messages and numbers as far as they can go now; nothing where somebody else is at
 * that. Any thread, in a step. */
void weir__ranks_poll(struct weir_pipe *pipe);
/** After a step's updates: the status, or WEIR_ERR_TORN where another rank's failed.
 * Collective; blocks. */
int weir__ranks_end(struct weir_pipe *pipe, int status);
/** On the caller's thread, after its own workers have ended their lines: until all messages and the
 * exchange have. */
void weir__ranks_finish(struct weir_pipe *pipe);

/** A GPU's end of messages of ranks, in one direction: a stream of the worker's, which later plans
 * find again (lanes/streams.c). */
struct weir__rank_end {
    struct weir__worker *worker;
    uint32_t other;   /**< a worker, … */
    bool of_replicas; /**< … or a replica */
    bool sends, by_nccl;
};
int weir__rank_stream(struct weir_pipe *pipe, const struct weir__rank_end *end,
                      struct weir__copy_stream **stream);
/** A signal for each of `places`, and slots, if it has any, that `bytes` fit in. */
int weir__rank_stream_grow(struct weir_pipe *pipe, struct weir__copy_stream *stream, size_t bytes,
                           uint32_t places);

/** What a port on a GPU has besides, once it has its messages; and goes on with them. */
int weir__crossing_new(struct weir_pipe *pipe, struct weir__port *port, struct weir__worker *worker,
                       struct weir__copy_stream *stream);
int weir__crossing_go_on(struct weir_pipe *pipe, struct weir__port *port, uint32_t count,
                         struct weir_error *error);
void weir__crossing_begin(struct weir__port *port);
/** After a failure of the world: what still runs must not write to what is given back. */
void weir__crossing_cancel(const struct weir_pipe *pipe, struct weir__port *port);
/** Ends all that streams wait for from other ranks. Under the lock of a poll, or after all. */
void weir__ranks_abort(struct weir_pipe *pipe);

/** For crossings: how a message is checked and begun, and whether its action allows it. */
int weir__port_check(const struct weir_pipe *pipe, const struct weir__port *port, uint32_t place,
                     const struct weir_arrival *arrival, size_t bytes, struct weir_error *error);
uint32_t weir__port_tag(const struct weir_pipe *pipe, uint32_t place);
/** What is sent or received in the plan's memory, but for whom it is. */
struct weir_message weir__port_message(const struct weir_pipe *pipe, const struct weir__port *port,
                                       uint32_t place);
bool weir__port_may_begin(struct weir_pipe *pipe, const struct weir__port *port, uint32_t place);
bool weir__pipe_has_failed(struct weir_pipe *pipe);

/** Merges two ranks' numbers, flags and failures of a step. */
void weir__ranks_merge(unsigned char *own, const unsigned char *other, size_t bytes);

/** Messages between replicas (replicas.c): makes their ports behind those of lanes, and their
 * streams; how many there are in this step; whether the action before one has ended, or was given
 * to its GPU; and what it is. */
int weir__replicas_prepare(struct weir_pipe *pipe, struct weir__row_plan *plan);
uint32_t weir__replicas_wanted(const struct weir_pipe *pipe, const struct weir__port *port);
bool weir__replicas_is_due(const struct weir_pipe *pipe, const struct weir__port *port,
                           uint32_t place);
/** From when on, in the plan, the place of a receive is held. */
double weir__replicas_start(const struct weir_pipe *pipe, const struct weir__port *port,
                            uint32_t place);
struct weir_message weir__replicas_message(const struct weir_pipe *pipe,
                                           const struct weir__port *port, uint32_t place);
/** Channels that they need, besides WEIR__REPLICA_CHANNEL. */
uint32_t weir__replicas_channels(const struct weir_pipe *pipe, const struct weir__row_plan *plan);
/** Before a norm: until all replicas' parts of own slices are there, or will be before it in its
 * stream; then adds them up. Statuses of the device and of combine. */
int weir__replicas_wait(struct weir__run *run, const struct weir__call *call);
int weir__replicas_add(struct weir__run *run, const struct weir__call *call);
/** What says that a GPU's parts have come by the k-th port between replicas, in a turn of signals;
 * NULL: the stage's norm awaits nothing there, or no device. */
struct weir__event *weir__replicas_signal(const struct weir__row_plan *plan, uint32_t stage,
                                          uint32_t k, uint32_t turn);

/** Polls until the gate is reached, or something fails. True if it was not yet. */
bool weir__ranks_wait(struct weir__run *run, struct weir__gate *gate, uint32_t value);
/** Waits for a message of the plan, polling; returns the worker at its other end, if it had to. A
 * failure ends every wait. */
int32_t weir__ranks_wait_copy(struct weir__run *run, uint32_t copy);
/** Before an update: until all ranks' norms are known. */
void weir__ranks_wait_numbers(struct weir__run *run);
/** Messages of this step that have ended. */
static inline uint32_t weir__ranks_ended(const struct weir__port *port) {
    return atomic_load_explicit(&port->ended.value, memory_order_relaxed) - port->base;
}
/** Whether a message of the plan has ended; one between other ranks has. */
static inline bool weir__ranks_has_ended(const struct weir__row_plan *plan, uint32_t copy) {
    struct weir__port *port = plan->bound.ports[plan->copies[copy].lane];
    uint32_t place = plan->copies[copy].place;
    return port == NULL || weir__gate_reached(&port->ended, port->base + place + 1);
}
/** The rank that has a worker of a replica. */
static inline uint32_t weir__rank_in(const struct weir_pipe *pipe, uint32_t replica,
                                     uint32_t worker) {
    return replica * pipe->ranks->ranks_per_replica +
           weir__setup_rank(&pipe->setup, worker, pipe->worker_count);
}
/** The rank that has a worker of this rank's replica. */
static inline uint32_t weir__rank_of(const struct weir_pipe *pipe, uint32_t worker) {
    return weir__rank_in(pipe, pipe->ranks->replica, worker);
}
/** Ports of a plan: of its lanes, and between replicas. */
static inline uint32_t weir__port_count(const struct weir__row_plan *plan) {
    return plan->lane_count + plan->bound.replica_ports;
}
/** Whether a worker runs in this process. */
static inline bool weir__is_here(const struct weir_pipe *pipe, uint32_t worker) {
    return pipe->ranks == NULL || (worker >= pipe->ranks->first && worker < pipe->ranks->end);
}

enum { WEIR__RANKS_POLL_NS = 1000000 };
/** Lanes' channels are behind these. */
enum { WEIR__NUMBERS_CHANNEL, WEIR__REPLICA_CHANNEL, WEIR__PULSE_CHANNEL, WEIR__LANE_CHANNEL };

#endif
