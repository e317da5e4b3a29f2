/* SPDX-License-Identifier: MIT */
/**
 * The simulation's state: costs by stage as the walk reads them, and what it has found so far.
 *
 * The walk needs no list of dependencies. What others wait for is one of two things per stage and
 * micro-batch: its forward's end, and the end of what sends the gradient on. So a cell is two
 * numbers, and a crossing is looked up by arithmetic: 16 bytes per cell where an index by kind and
 * lists of edges take ten times that.
 */
#ifndef WEIR_SCHEDULE_SIMULATE_H
#define WEIR_SCHEDULE_SIMULATE_H

#include "schedule/action.h"
#include "weir_predict.h"

/** Ends, when they are known: not negative. Before that -1, or -2 - w where worker w waits for it
 * (and those that next_waiter lists). */
struct weir__sim_cell {
    double forward, gradient;
};

/** What is live at once. Amounts begin and end in order of time. What begins at the time `at` waits
 * in `held` until time has passed, so that what ends at the same time is taken off first. */
struct weir__sim_amount {
    uint64_t now, held, peak;
    double at;
};

/** A skip, as a stage receives it (or a gradient of one). */
struct weir__sim_feed {
    uint32_t stage; /**< where from */
    double copy;    /**< WEIR__SIM_MESSAGE: it says itself when it is there */
};

/** In a copy's place: between ranks an arrival depends on other messages. */
#define WEIR__SIM_MESSAGE (-1.0)

/** What a stage's forward, or its gradient, sends of each micro-batch to another rank. */
struct weir__sim_message {
    uint32_t input;    /**< where its arrivals are noted: see weir__sim_ranks */
    uint32_t with;     /**< the input that brings the same to the same worker, or UINT32_MAX */
    uint32_t line;     /**< the way out that it takes */
    uint32_t lane;     /**< and its place among its worker's messages to the receiver */
    uint32_t next;     /**< of the same sender, or UINT32_MAX */
    uint32_t receiver; /**< a worker */
    double bytes_seconds, latency;
};

/** Messages from one worker to another go in the order in which they are read, as in the engine,
 * where their places in memory follow each other so. */
struct weir__sim_lane {
    uint32_t receiver;       /**< a worker */
    uint32_t other;          /**< of the same sender, or UINT32_MAX */
    uint32_t count;          /**< of messages for a micro-batch */
    size_t begin, next, end; /**< in `queue`: of a step, and those that were not sent yet */
};
struct weir__sim_queued {
    uint32_t message, micro_batch;
};

/** An action that has begun. */
struct weir__sim_event {
    double end;
    uint32_t worker;
};

/** Simulation over ranks: actions end in order of time, so that messages get into their lines in
 * order. Inputs are numbered: a stage's border, stages + its output's gradient, 2 * stages + feeds.
 */
struct weir__sim_ranks {
    struct weir__sim_event *events; /**< [worker]: a heap, the first on top */
    uint32_t event_count;
    double *line_free; /**< [2 * ranks]: hosts' ways out, then ranks' */
    struct weir__sim_message *messages;
    uint32_t message_count;
    uint32_t *first, *last; /**< [2 * stages]: a sender's messages; forwards, then gradients */
    uint32_t *taken;        /**< [2 * stages]: a receiver's feeds that are known, the same way */
    uint32_t *message_of;   /**< [input], or UINT32_MAX */
    uint32_t input_count;
    double *arrived; /**< [input][micro-batch], `stride` apart; as in a cell */
    uint8_t *made;   /**< likewise: its producer has ended */
    struct weir__sim_lane *lanes;
    uint32_t lane_count;
    uint32_t *lane_of; /**< [worker]: its first, or UINT32_MAX */
    struct weir__sim_queued *queue;
};

/** What a stage's gradients have to do with groups and with other replicas. */
struct weir__sim_share {
    double whole;     /**< as in a cell: when the others' parts of its slice are there */
    double arrives;   /**< the last of those that were sent */
    double ended[2];  /**< below 0, or when its gradients are complete, and when it is updated */
    uint32_t missing; /**< parts that were not sent yet */
    uint64_t bytes;   /**< of its gradients */
    uint64_t slice, parameters; /**< of what it owns of both */
    bool begun;                 /**< a group's sum is */
};

/** A rank's stages in the order in which it sends of them: their gradients, or parameters. */
struct weir__sim_queue {
    uint32_t begin, end; /**< in `queued` */
    uint32_t next;
    double due; /**< no message leaves before */
};

enum { WEIR__SIM_GRADIENTS, WEIR__SIM_PARAMETERS, WEIR__SIM_SENT };

struct weir__sim_shares {
    const struct weir_shared_costs *costs; /**< NULL: nothing is shared */
    struct weir_table *table;              /**< all replicas', or NULL */
    uint32_t replicas, each;               /**< stages of a replica */
    uint32_t group_size, rank_count;
    struct weir__sim_share *stages;
    uint32_t *left;                                 /**< [stage][group]: gradients to come */
    uint8_t *complete;                              /**< [stage][node]: sums */
    struct weir__sim_queue *queues[WEIR__SIM_SENT]; /**< [rank] */
    uint32_t *queued[WEIR__SIM_SENT];
    double gathered; /**< the last parameters' arrival */
    double add_seconds_per_byte;
    bool free; /**< messages take no time */
};

/** Sums of groups that begin or end in an action. */
struct weir__sim_sums {
    uint32_t begun, added;
};

struct weir__sim_stage {
    struct weir__stage_facts facts;
    double value_copy, gradient_copy; /**< of the border's input, and its output's gradient */
    uint32_t values_begin, values_end, gradients_begin, gradients_end; /**< in feeds */
    uint32_t backwards;      /**< of its actions, those that write PARAM_GRADS, */
    uint32_t backwards_left; /**< and have not run */
    bool sends;              /**< it has actions that write INPUT_GRADS */
    bool takes_value;        /**< its input comes from the stage before */
    bool waits_gradient;     /**< its output's gradient comes from the next stage */
    struct weir__sim_amount activations;
};

struct weir__sim_worker {
    uint32_t cursor;
    uint32_t next_waiter; /**< another one parked on the same thing, or UINT32_MAX */
    double free;          /**< end of its last action */
    double first, last;   /**< of its actions in the step; first < 0: none yet */
    double busy, copy, host;
    struct weir__sim_amount live[WEIR__AMOUNTS];
};

/** Times of a kind's tasks, for its mean. */
struct weir__sim_kind {
    double sum, least, most;
    uint64_t count;
};

struct weir__sim {
    const struct weir_table *table;
    const struct weir_simulate_options *options;
    struct weir__sim_cell *cells; /**< [stage][micro-batch], stages `stride` cells apart */
    size_t stride;
    struct weir__sim_stage *stages;
    struct weir__sim_worker *workers;
    struct weir__sim_feed *feeds;
    struct weir_predicted_worker *predicted;
    uint64_t *stage_peaks;
    uint32_t *ready;     /**< [worker]: a stack */
    uint8_t *recomputed; /**< a bit per cell: there is an R of it */
    double *start, *end; /**< by action, or NULL */
    double *ordered;     /**< by action, as in a cell: its end, where there are orders; or NULL */
    uint32_t ready_count, done_count;
    uint32_t barrier_waiters; /**< parked until all gradients are complete, or UINT32_MAX */
    uint64_t barrier_total;   /**< gradients and norms, */
    uint64_t barrier_left;    /**< and those that have not run */
    double barrier_end;
    double host, noise, step, total;
    const double *scale; /**< [micro-batch], or NULL */
    uint64_t actions;
    struct weir__sim_kind kinds[WEIR_KIND_COUNT];
    bool over_ranks; /**< messages are looked at; else crossings are by themselves */
    struct weir__sim_ranks ranks;
    struct weir__sim_shares shares;
};

static inline struct weir__sim_cell *weir__sim_cell(const struct weir__sim *sim, uint32_t stage,
                                                    uint32_t micro_batch) {
    assert(stage < sim->table->stage_count && micro_batch < sim->stride);
    return &sim->cells[stage * sim->stride + micro_batch];
}
static inline bool weir__sim_is_recomputed(const struct weir__sim *sim, uint32_t stage,
                                           uint32_t micro_batch) {
    assert(stage < sim->table->stage_count && micro_batch < sim->table->micro_batch_count);
    size_t bit = (size_t)stage * sim->table->micro_batch_count + micro_batch;
    return (sim->recomputed[bit / 8] >> (bit % 8) & 1) != 0;
}

/** Whether every skip's readers are stages after its source, in ascending order; each that is not
 * so is a fault, and so is a list that is missing. */
bool weir__simulate_check_skips(const struct weir_skip_route *skips, uint32_t count,
                                uint32_t stages, struct weir_faults *faults);
/** Lists who sends what to other ranks, when copies by stage are known, and marks them. */
void weir__sim_list_messages(struct weir__sim *sim);
/** How many messages there can be at most. */
size_t weir__sim_messages_max(const struct weir_simulate_options *options);
/** No action has begun, all lines are free. */
void weir__sim_rewind_ranks(struct weir__sim *sim);
/** The worker's action ends then. */
void weir__sim_push(struct weir__sim *sim, double end, uint32_t worker);
/** The next end, of equal ones the lower worker's; false: there is none. */
bool weir__sim_pop(struct weir__sim *sim, struct weir__sim_event *event);
/** Sends bytes from a stage's worker to another rank's; when they arrive. */
double weir__sim_send_bytes(struct weir__sim *sim, uint32_t from, uint32_t to, uint64_t bytes,
                            double end);
/** Sends what a stage's forward, or gradient, sends when it ends. */
void weir__sim_send(struct weir__sim *sim, uint32_t stage, bool gradient, uint32_t micro_batch,
                    double end);
static inline double *weir__sim_arrived(const struct weir__sim *sim, uint32_t input,
                                        uint32_t micro_batch) {
    assert(sim->over_ranks && micro_batch < sim->stride && input < sim->ranks.input_count);
    return &sim->ranks.arrived[(size_t)input * sim->stride + micro_batch];
}

/* What replicas and groups add (shared.c). */
/** Whether a link can be: finite, not negative. */
bool weir__is_link(const struct weir_link_cost *link);
/** Every fault of the costs. */
void weir__sim_check_shared(const struct weir_simulate_options *options,
                            struct weir_faults *faults);
/** All replicas' table, with N, where there are several; sim->table then. */
int weir__sim_expand(struct weir__sim *sim, const struct weir_allocator *allocator);
/** Costs of its norms and updates, and the orders of its messages, when ranks are known. */
void weir__sim_cost_shares(struct weir__sim *sim);
void weir__sim_rewind_shares(struct weir__sim *sim);
/** Of an action that writes gradients, when it begins. */
struct weir__sim_sums weir__sim_sum(struct weir__sim *sim, const struct weir_action *action);
/** The stage's gradients are complete, or its parameters are updated. */
void weir__sim_share(struct weir__sim *sim, uint32_t stage, int what, double end);
/** Messages and their bytes between replicas, for a prediction. */
void weir__sim_count_shares(const struct weir__sim *sim, struct weir_prediction *prediction);
/** The stage's number in its replica, which costs are given for. */
static inline uint32_t weir__sim_own(const struct weir__sim *sim, uint32_t stage) {
    return stage % sim->shares.each;
}

/** Tells who waits for it of an end (run.c). False: it was known before. */
bool weir__sim_tell(struct weir__sim *sim, double *awaited, double end);
/** Puts what changes in a run back to its beginning. */
void weir__sim_rewind(struct weir__sim *sim);
/** Runs every action; false where the lines do not allow it. */
bool weir__sim_run(struct weir__sim *sim);

#endif
