/* SPDX-License-Identifier: MIT */
/**
 * The action table's grammar: the dependencies that follow from what each kind reads and writes
 * (facts.h). They are derived: an action waits for the actions that write what it reads, never for
 * a hand-written list.
 */
#ifndef WEIR_ACTION_H
#define WEIR_ACTION_H

#include "schedule/facts.h"

/** A parameter that stages share: its owner's norm waits for the others' gradients. */
struct weir__flow_tie {
    uint32_t owner;
    uint32_t other_count;
    const uint32_t *others; /**< ascending stages after the owner */
};

/** What flows between stages; the default (borders NULL) is a differentiable border between all
 * neighbours and no skips. */
struct weir__flow {
    uint32_t stage_count;
    const bool *border_differentiable; /**< [stage_count - 1], or NULL: all */
    const bool *no_backward;           /**< [stage_count], or NULL: none; only F (and U) of these */
    uint32_t skip_count;
    const struct weir_skip_route *skips; /**< neither bytes nor names are read */
    uint32_t tie_count;
    const struct weir__flow_tie *ties;
    bool recompute_late;
    bool replicas; /**< a stage's norm makes its gradients whole, with other replicas' */
    bool infer;    /**< only F are expected */
};

/** Why an edge is there. */
enum weir__edge_cause {
    WEIR__CAUSE_BORDER,
    WEIR__CAUSE_GRADIENT,
    WEIR__CAUSE_SKIP,
    WEIR__CAUSE_LOCAL,
    WEIR__CAUSE_MEMORY
};

struct weir__edge {
    uint32_t from; /**< action index in table->actions; from happens before the edge's owner */
    uint8_t cause; /**< enum weir__edge_cause */
};

/**
 * Predecessors of every action: edges[begin[a] .. begin[a + 1]). What the order of a line implies
 * is left out: edges between actions of one worker (so CAUSE_LOCAL never stands in a proven
 * table's), and the barrier before U on all but the first U of a line, where it is one edge from
 * each other line's last N or gradient, whichever is later. A border and a skip, or a border's and
 * a skip's gradient, between the same two actions are two edges; several skips are one. Skip
 * gradients go from reader to reader in descending stage order and have CAUSE_SKIP, as values.
 */
struct weir__deps {
    const struct weir_allocator *allocator;
    uint32_t action_count;
    uint32_t edge_count;
    uint32_t *begin;
    struct weir__edge *edges;
};

/** Derives the dependencies of a table under a flow. Linear in actions and edges. The table must
 * have passed weir__table_check_flow. WEIR_ERR_OVERFLOW where edges are beyond 32 bits. */
int weir__deps_new(const struct weir_table *table, const struct weir__flow *flow,
                   const struct weir_allocator *allocator, struct weir__deps *deps);
void weir__deps_clean_up(struct weir__deps *deps);
/** `deps`, and an edge for each F of a stage without backward from the next stage's F of the
 * micro-batch `ahead` before it, unless one worker has both. It says what slots for `ahead`
 * micro-batches would say; where lines are ordered otherwise, a replay may find it a deadlock. */
int weir__deps_hold(const struct weir_table *table, const struct weir__deps *deps,
                    const bool *no_backward, uint32_t ahead, struct weir__deps *held);

/** weir_table_check for a flow. */
int weir__table_check_flow(const struct weir_table *table, const struct weir__flow *flow,
                           const struct weir_allocator *allocator, struct weir_faults *faults);

/** The actions of a table that weir__table_finish made, to put in another order within lines. */
struct weir_action *weir__table_actions(struct weir_table *table);
/** The worker whose line holds the action; binary search over table->lines. */
uint32_t weir__table_worker_of(const struct weir_table *table, uint32_t action);
/** Actions of the line that has most. */
uint32_t weir__table_longest_line(const struct weir_table *table);
/** worker of each stage into out[stage_count]; UINT32_MAX for a stage without action. */
void weir__table_workers(const struct weir_table *table, uint32_t *out);
/** The stages that the workers [first, end) update, as their lines do: first what each of them
 * updates first, of the last worker and so on. Into `stages`, with room for all; how many. Replicas
 * send each other parameters in this order. */
uint32_t weir__table_updates(const struct weir_table *table, uint32_t first, uint32_t end,
                             uint32_t *stages);
/** Whether each stage adds its gradients up by ascending micro-batches. */
bool weir__table_is_ascending(const struct weir_table *table);
/** Whether it has I and W. */
bool weir__table_is_split(const struct weir_table *table);
/** "2B1" into text (>= 24 bytes); returns text. */
const char *weir__action_text(const struct weir_action *action, char text[24]);

/**
 * Builds tables: append actions line by line, then finish. Sticky: a failed append (no memory)
 * fails finish. Used by schedules and the CSV reader.
 */
struct weir__table_builder {
    const struct weir_allocator *allocator;
    uint32_t stage_count, worker_count, micro_batch_count;
    const bool *no_backward; /**< per stage, or NULL: what is of_backward of these is left out */
    uint32_t line_count;     /**< lines begun */
    uint32_t capacity, count;
    uint32_t *lines;
    struct weir_action *actions;
    bool failed;
};
void weir__table_begin(struct weir__table_builder *builder, const struct weir_allocator *allocator,
                       uint32_t stages, uint32_t workers, uint32_t micro_batches);
void weir__table_line(struct weir__table_builder *builder);
void weir__table_add(struct weir__table_builder *builder, enum weir_kind kind, uint32_t stage,
                     uint32_t micro_batch);
/** A worker's line of a table, its stages `offset` higher; where it has no N, an N of each U's
 * stage before the first U: a norm is known before any parameter changes. `replicas`: N in
 * descending order of stages, so that a tie's owner takes its norm behind the other uses' stages.
 */
void weir__table_add_line(struct weir__table_builder *builder, const struct weir_table *table,
                          uint32_t worker, uint32_t offset, bool replicas);
/** *table is the caller's. Cleans the builder up in every case. WEIR_ERR_OUT_OF_MEMORY. */
int weir__table_finish(struct weir__table_builder *builder, struct weir_table **table);
/** Cleans the builder up without a table. */
void weir__table_abandon(struct weir__table_builder *builder);

/** Which numbers of stages a worker can have. */
enum weir__sharing {
    WEIR__SHARING_ANY,  /**< one by default; any where there are fewer workers than stages */
    WEIR__SHARING_EVEN, /**< two by default; any number, the same for all workers */
    WEIR__SHARING_ONE,
    WEIR__SHARING_TWO,
    WEIR__SHARING_V /**< two, in V order; the last worker's may be one, where the V turns */
};

/** A schedule: a pure function that fills the builder, U included, and one entry of the list of
 * schedules (schedule.c). R stands for a checkpointed (stage, micro-batch); see
 * weir__checkpointed. `check` sees options whose counts and `sharing` are sound. */
struct weir__named_schedule {
    const char *name;
    enum weir__sharing sharing;
    void (*check)(const struct weir_table_options *options, struct weir_faults *faults);
    const char *infers_as; /**< where there is a check: whose forwards, of the same stages on each
                                worker, run in inference what it refuses */
    void (*fill)(const struct weir_table_options *options, struct weir__table_builder *builder);
    bool places_recompute; /**< R stand where they should; else they are moved into slack */
    bool searched;         /**< by costs, which takes its time; see weir_schedule_is_searched */
};
/** Whether weir_table_new makes a table of these, memory aside: WEIR_OK, or WEIR_ERR_ARGUMENT with
 * every reason in `faults` (which may be NULL). */
int weir__table_options_check(const struct weir_table_options *options, struct weir_faults *faults);
/** Names another schedule, and the workers, where inference alone is meant and this one refuses the
 * number of micro-batches, which counts for its backwards only. */
void weir__table_options_infer(struct weir_table_options *options);
bool weir__checkpointed(const struct weir_table_options *options, uint32_t stage,
                        uint32_t micro_batch);
/**
 * Moves R earlier, into idle time, for recomputation that need not wait for the gradient. The table
 * is replayed with `seconds` ([stage][kind]; NULL: the kinds' units), all borders
 * differentiable, no skips and copies. Where a worker waits at least as long as the next R of its
 * line takes, the R goes there, unless its own F, or a B, I or W, stands in between: what those
 * free is what it needs. So whatever saved activations weigh, no worker's peak of them rises, and
 * at the given times nothing starts later than before. The order of all other actions stays. Linear
 * but for what is moved. WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_SCHEDULE (the table cannot be run): it is
 * then as it was, or as sound.
 */
int weir__recompute_in_slack(struct weir_table *table, const double *seconds,
                             const struct weir_allocator *allocator);
/** A forward-only table of any number of micro-batches: F in micro-batch order, loop order of
 * stages on fewer workers, on the same workers as `training`. */
int weir__table_new_infer(const struct weir_table *training, uint32_t micro_batches,
                          const struct weir_allocator *allocator, struct weir_table **table);

/**
 * Replays a table: the event times of an executor without cost. duration_ns[action] is the time of
 * each; copy_ns[edge] (or NULL) what passes between producer's end and data ready on that edge.
 * Fills start and end per action; returns the makespan without N and U (of what is `in_step`).
 * Also the linearisation that the memory plan is made from. WEIR_ERR_SCHEDULE on deadlock.
 */
int weir__table_replay(const struct weir_table *table, const struct weir__deps *deps,
                       const double *duration, const double *copy, double *start, double *end,
                       double *makespan, const struct weir_allocator *allocator);

#endif
