/* SPDX-License-Identifier: MIT */
/**
 * The search's parts: the problem laid out by stage, the state of a table that is being built from
 * the left, one action after the other, and the ways to build one.
 *
 * Within a stage F, R, B or I, and W each run in ascending micro-batches: where micro-batches are
 * alike, sorting a table's starts by stage makes it such a one, no later and with no more memory. B
 * and W together do too, so that gradients have the bits of other ascending schedules.
 * What is alive on a worker follows from the order of its line alone, so a limit is a matter of
 * orders, not of times.
 */
#ifndef WEIR_SCHEDULE_AUTO_H
#define WEIR_SCHEDULE_AUTO_H

#include "schedule/schedules.h"
#include "weir_predict.h"

/** So many (stage, micro-batch) and no more are searched. */
#define WEIR__AUTO_CELLS_MAX (UINT32_C(1) << 22)

/** Between two stages: a border or a skip. */
struct weir__auto_feed {
    uint32_t stage;
    double copy;
};

/** By stage: list[begin[s] .. begin[s + 1]). */
struct weir__auto_feeds {
    uint32_t *begin;
    struct weir__auto_feed *list;
};

struct weir__auto_worker {
    int64_t limit[WEIR__AMOUNTS];
    int64_t alone[WEIR__AMOUNTS]; /**< what one micro-batch by itself needs at most */
    double work;                  /**< the least time of all its actions */
};

struct weir__auto_problem {
    const struct weir_allocator *allocator;
    const struct weir_search_options *options;
    const struct weir_simulate_options *costs;
    uint32_t stage_count, worker_count, micro_batch_count;
    size_t cell_count;
    uint32_t feed_room;   /**< of each list of feeds */
    uint32_t entry_count; /**< actions, where every backward is split */
    struct weir__stage_facts *stages;
    struct weir__auto_worker *workers;
    uint32_t *held_begin, *held; /**< stages of each worker, ascending */
    struct weir__auto_feeds values_in, values_out, gradients_in, gradients_out;
    double round;  /**< the most work that one worker has per micro-batch */
    double bound;  /**< of the step, from below */
    bool exact;    /**< no stage waits for a gradient that it does not read, no message queues, and
                        weir__auto_fill moves no R */
    bool feasible; /**< one micro-batch after the other stays within the limits */
};

/** The costs that a search is given, or unit times. False if their size is not this library's. */
bool weir__auto_read_costs(const struct weir_simulate_options *given,
                           struct weir_simulate_options *costs);
/** Loop order, or down the workers and up again. */
void weir__auto_place(uint32_t stages, uint32_t workers, bool v, uint32_t *stage_workers);

/** Lays the problem out for one placement. WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_OVERFLOW. Clean up in
 * every case. */
int weir__auto_problem_init(struct weir__auto_problem *problem,
                            const struct weir_search_options *options,
                            const struct weir_simulate_options *costs,
                            const uint32_t *stage_workers);
void weir__auto_problem_clean_up(struct weir__auto_problem *problem);

static inline size_t weir__auto_cell(const struct weir__auto_problem *problem, uint32_t stage,
                                     uint32_t micro_batch) {
    assert(stage < problem->stage_count && micro_batch < problem->micro_batch_count);
    return (size_t)stage * problem->micro_batch_count + micro_batch;
}
static inline bool weir__auto_recomputed(const struct weir__auto_problem *problem, uint32_t stage,
                                         uint32_t micro_batch) {
    assert(stage < problem->stage_count);
    return micro_batch < problem->stages[stage].recomputed;
}

/** The last arrival at a stage, where [stage] ends are all known. */
static inline double weir__auto_arrival(const struct weir__auto_feeds *in, const double *ends,
                                        uint32_t s) {
    double at = 0.0;
    for (uint32_t f = in->begin[s]; f < in->begin[s + 1]; f++) {
        double come = ends[in->list[f].stage] + in->list[f].copy;
        at = come > at ? come : at;
    }
    return at;
}
/** The last arrival of a micro-batch, or `ready` if that is later, by [cell] ends; false while one
 * is not known. */
static inline bool weir__auto_arrive(const struct weir__auto_problem *problem,
                                     const struct weir__auto_feeds *in, const double *ends,
                                     uint32_t stage, uint32_t micro_batch, double *ready) {
    for (uint32_t f = in->begin[stage]; f < in->begin[stage + 1]; f++) {
        double end = ends[weir__auto_cell(problem, in->list[f].stage, micro_batch)];
        if (end < 0.0) return false;
        *ready = end + in->list[f].copy > *ready ? end + in->list[f].copy : *ready;
    }
    return true;
}
/** The latest end, or `end` if that is sooner, by which all arrives by its [cell] latest start. */
double weir__auto_latest(const struct weir__auto_problem *problem,
                         const struct weir__auto_feeds *out, const double *latest, uint32_t stage,
                         uint32_t micro_batch, double end);

/* ---- a table being built ---- */

/** An action with its times. */
struct weir__auto_step {
    double start, end;
    uint32_t stage, micro_batch;
    enum weir_kind kind;
};

struct weir__auto_place {
    double free; /**< end of the worker's last action */
    int64_t used[WEIR__AMOUNTS], peak[WEIR__AMOUNTS];
    uint32_t oldest; /**< every micro-batch before this is freed */
};

/** How many a stage has of each; `weights`: no I before it lacks its W. */
struct weir__auto_progress {
    uint32_t forwards, recomputes, gradients, weights;
};

#define WEIR__AUTO_IS_SPLIT 1u
#define WEIR__AUTO_IS_FREED 2u

struct weir__auto_state {
    struct weir__auto_place *places;      /**< [worker] */
    struct weir__auto_progress *progress; /**< [stage] */
    double *forward_end, *gradient_end;   /**< [cell], -1: not yet */
    uint8_t *marks;                       /**< [cell] */
};

/** What an action changed beside its cell, to take it back. */
struct weir__auto_undo {
    struct weir__auto_place place;
    struct weir__auto_progress progress;
};

int weir__auto_state_init(struct weir__auto_state *state, const struct weir__auto_problem *problem);
void weir__auto_state_clean_up(struct weir__auto_state *state,
                               const struct weir__auto_problem *problem);
void weir__auto_state_reset(struct weir__auto_state *state,
                            const struct weir__auto_problem *problem);
/** The stage's next action of a kind (B and I are both offered), if all that it waits for is
 * placed and, where it begins to keep something, what is left of the limit still lets every
 * micro-batch that has begun come to its end. */
bool weir__auto_next(const struct weir__auto_problem *problem, struct weir__auto_state *state,
                     uint32_t stage, enum weir_kind kind, struct weir__auto_step *step);
/** Whether all that a forward waits for is placed, and when it has come, unless `ready` is later.
 */
bool weir__auto_has_values(const struct weir__auto_problem *problem,
                           const struct weir__auto_state *state, uint32_t s, uint32_t i,
                           double *ready);
/** Places what weir__auto_next gave. */
void weir__auto_place_step(const struct weir__auto_problem *problem, struct weir__auto_state *state,
                           const struct weir__auto_step *step, struct weir__auto_undo *undo);
/** Takes the last one placed back. */
void weir__auto_take_back(const struct weir__auto_problem *problem, struct weir__auto_state *state,
                          const struct weir__auto_step *step, const struct weir__auto_undo *undo);

/** What the workers keep at most, summed: bytes, or activations where nothing has bytes. */
int64_t weir__auto_peak(const struct weir__auto_problem *problem,
                        const struct weir__auto_state *state);

/* ---- a whole table ---- */

struct weir__auto_draft {
    uint32_t count;
    double step;                   /**< makespan; INFINITY: there is none */
    int64_t peak;                  /**< sum of what the workers keep at most */
    struct weir__auto_step *steps; /**< in an order of execution; room for entry_count */
};

/** The lower of two steps, and of equal steps what keeps less. */
static inline bool weir__auto_better(double step, int64_t peak,
                                     const struct weir__auto_draft *than) {
    return step < than->step || (!(step > than->step) && peak < than->peak);
}

/** How the next table is to be built. */
struct weir__auto_taste {
    double *order;   /**< [pass][cell]: what is lower comes first */
    uint8_t *split;  /**< [cell]: not 0 for I and W */
    double patience; /**< a worker leaves ready work for work that it likes better and that
                          arrives within so many times the duration of the former */
};

/** What a worker could do next. */
struct weir__auto_offer {
    struct weir__auto_step step;
    double order;
};

/** An action in its line; a whole backward's W is void. */
struct weir__auto_entry {
    uint32_t stage, micro_batch;
    uint8_t kind; /**< enum weir_kind */
    bool is_void;
};

/** When lines' entries run, and in which order. */
struct weir__auto_times {
    double *ready, *start, *end; /**< [entry] */
    uint32_t *order;             /**< entries that are not void */
    uint32_t count;
    double step, sum; /**< the last end, and the sum of all lines' */
};

/** Lines that are changed: `now` says when they run, `next` is for trying. */
struct weir__auto_lines {
    uint32_t *begin; /**< [worker + 1] */
    uint32_t *cursor;
    double *free;
    uint32_t *ready; /**< a stack of workers, */
    bool *awake;     /**< who is in it or running */
    uint32_t ready_count;
    uint32_t *summed;              /**< [stage]: how many micro-batches' gradients */
    struct weir__auto_entry *list; /**< [entry_count] */
    struct weir__auto_times now, next;
};

/** What the search works in. */
struct weir__auto_bench {
    struct weir__auto_state state;
    struct weir__auto_taste taste;
    struct weir__auto_step *choices; /**< [worker]: what it does next; start INFINITY: nothing */
    uint32_t *winners;               /**< a tree over workers: who starts first. Its leaves are
                                          winners[leaf_count + worker] */
    uint32_t leaf_count;             /**< a power of two */
    struct weir__auto_offer *offers; /**< of one worker */
    uint32_t offer_count;
    double *latest;      /**< [pass][cell]: starts that a draft can put up with */
    double *latest_line; /**< [worker] */
    struct weir__auto_lines lines;
    struct weir__auto_draft best, trial, current;
    double goal; /**< a step that is known to be reachable */
    uint64_t work, work_most;
};

int weir__auto_bench_init(struct weir__auto_bench *bench, const struct weir__auto_problem *problem,
                          uint64_t work_most);
void weir__auto_bench_clean_up(struct weir__auto_bench *bench,
                               const struct weir__auto_problem *problem);
/** Builds `trial` by the taste; its step is INFINITY where the limits stop it. */
void weir__auto_build(const struct weir__auto_problem *problem, struct weir__auto_bench *bench);
/** Fills `latest` for a draft: the latest starts by which it would end no later. */
void weir__auto_find_latest(const struct weir__auto_problem *problem,
                            struct weir__auto_bench *bench, const struct weir__auto_draft *draft);
/** Fills lines from a draft. Late R go to directly before what they are for, as in every table:
 * they wait for the same gradient there, keep nothing for longer, and hold up no one else. */
void weir__auto_fill(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                     const struct weir__auto_draft *draft, struct weir__table_builder *builder);
/** Makes a table `trial`, as it is; nothing happens if it does not keep the limits. */
void weir__auto_adopt(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                      const struct weir_table *table);
/** Changes a draft (not `trial`, which is used) in small steps until none makes it better or the
 * work is done. */
void weir__auto_polish(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                       struct weir__auto_draft *draft);
/** Makes one B of each I and W of a draft that stand together, where its step stays. */
void weir__auto_join(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                     struct weir__auto_draft *draft);
/** From `best` on, builds until the work is done, into `best`. */
void weir__auto_improve(const struct weir__auto_problem *problem, struct weir__auto_bench *bench);
/** Builds in the order of a table's starts, into `best` if it is better. */
void weir__auto_imitate(const struct weir__auto_problem *problem, struct weir__auto_bench *bench,
                        const struct weir_table *table, const double *starts);
/** Builds from nothing, by a repeated block of one micro-batch's actions. */
void weir__auto_begin(const struct weir__auto_problem *problem, struct weir__auto_bench *bench);
/** Cases of more actions than this are not searched to the end. */
#define WEIR__AUTO_PROOF_ENTRIES 64u
/** Branch and bound over all tables, with `step` known to be reachable. True: there is none below
 * best.step any more. False: the work was done first. */
bool weir__auto_prove(const struct weir__auto_problem *problem, struct weir__auto_bench *bench);

#endif
