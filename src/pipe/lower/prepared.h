/* SPDX-License-Identifier: MIT */
/**
 * A prepared row count: the action table lowered to calls that a worker only has to make.
 * Everything that a step needs is decided here: micro-batches, memory, views, copies, portals, and
 * the few waits that the dependencies and the memory plan leave once what is implied is taken away.
 * It has three lives: the plan (struct weir__row_plan), which is const to all who run; where it is
 * bound (struct weir__bound); and a worker's run of a step (struct weir__run, pipe/run/run.h).
 */
#ifndef WEIR_PREPARED_H
#define WEIR_PREPARED_H

#include "pipe/memory/memory.h"
#include "pipe/describe/setup.h"
#include "schedule/index.h"

/** A wait for another worker: its line must have ended `count` actions. Or for a copy, if `copy`
 * names one: that must have ended. */
struct weir__needed_wait {
    uint32_t worker;
    uint32_t count;
    uint32_t action; /**< the last of them, in the table; of a copy: the one that it is for */
    uint32_t copy;   /**< a unit's first, or WEIR__NO_COPY */
    bool delayed;    /**< a copied crossing: link_delay_ns counts from that action's end */
    uint8_t cause;   /**< enum weir__edge_cause; MEMORY where only bytes that are shared say so */
};
#define WEIR__NO_COPY UINT32_MAX

/** A stream of copies to a worker, from another's memory or the caller's. There is one wherever
 * one of the two devices runs behind its host; copies of a lane run in order. The reader's thread
 * gives it work. And there is one between two workers of different ranks, whose copies are messages
 * (pipe/run/ranks): it has no stream. */
struct weir__lane {
    uint32_t worker;
    uint32_t from; /**< a worker, or WEIR__FROM_CALLER */
    bool of_ranks; /**< between two ranks */
    bool may_hop;  /**< two devices with memories of their own: unless one reaches the other, copies
                        pass through WEIR__HOP_SLOTS slots of pinned memory. Else the waits of its
                        units for each other are dropped where the pipe is prepared */
    bool hops;     /**< they probably do (weir__setup_hops): their ways are chosen for that */
};
#define WEIR__FROM_CALLER UINT32_MAX
#define WEIR__NO_LANE UINT32_MAX
/** A unit that is larger than a slot goes in pieces, of which some are on their way in and some on
 * their way out. A piece of 4 MiB is on a PCIe 5 link for 76 us, 15 times as long as a copy needs
 * to begin; so what is pinned for a lane is 16 MiB, and a unit comes through a piece later than it
 * would over one link. */
enum { WEIR__HOP_SLOTS = 4, WEIR__HOP_PIECE_BYTES = 4 << 20 };
/** A message between a GPU and another rank passes whole through one of so many slots of pinned
 * memory, unless it goes by NCCL: one is filled while the other is emptied. */
enum { WEIR__PORT_SLOTS = 2 };

/** A crossing between memories, for the action that needs it first. Without a lane it is done by
 * the worker's thread when the action starts. */
struct weir__prepared_copy {
    uint32_t action;
    uint32_t made;       /**< the action after which it can be made; WEIR__NO_ACTION: the first
                              that uses the source block */
    uint32_t from_block; /**< WEIR__NO_BLOCK: from the caller, by way of the worker's staging */
    size_t from_offset;  /**< in the block */
    uint32_t to_block;
    uint32_t lane; /**< or WEIR__NO_LANE */
    uint32_t unit; /**< of a lane: the first of those that are done together with it (ways.h), which
                        waits for all of them and has their place; itself where it is alone */
    uint32_t next; /**< the next of those, or WEIR__NO_COPY */
    uint32_t place; /**< in its lane */
    uint64_t piece; /**< of a unit's first that may hop: its first piece's number in the lane; it is
                         in slot piece % WEIR__HOP_SLOTS */
    bool by_kernel; /**< all of a unit, which else has one copy */
    uint32_t blocks_max;           /**< of a kernel for one copy: weir__copy_set's */
    uint32_t wait_begin, wait_end; /**< of the unit's first */
    uint32_t input;                /**< from the caller: which pipe input … */
    size_t input_offset;           /**< … and where in it */
    size_t staging;                /**< where in the worker's staging it passes through */
    double start;                  /**< replay time from which its destination is held */
    size_t bytes;
};

/** A tensor that goes back to the caller from a device with a memory of its own. Behind the action
 * that writes it, it is copied into the worker's staging; at the step's end, from there. */
struct weir__return {
    void **where;  /**< where the action wrote it */
    bool gradient; /**< of a pipe input; else a pipe output */
    uint32_t index;
    size_t offset; /**< in the caller's memory */
    size_t staging;
    size_t bytes;
};

/** What a portal does around a call. */
enum weir__portal_step {
    WEIR__PORTAL_DO_ARRIVE, /**< a PUT whose stash is another rank's, before the first use here */
    WEIR__PORTAL_DO_ARRIVE_GRADIENT,
    WEIR__PORTAL_DO_USE,
    WEIR__PORTAL_DO_USE_GRADIENT,
    WEIR__PORTAL_DO_PUT,            /**< from here on behind the call */
    WEIR__PORTAL_DO_RESET_GRADIENT, /**< with the stash's PUT: a failed step leaves no trace */
    WEIR__PORTAL_DO_PUT_GRADIENT
};
struct weir__portal_move {
    uint32_t life; /**< PUT, ARRIVE: its full life */
    uint8_t step;  /**< enum weir__portal_step */
    struct weir__portal *portal;
    void **at; /**< puts: the tracker's pointer, which goes in; uses: the view's, which comes out */
    const char *name;
};

/** A stage's tensors for one micro-batch; arrays as in struct weir_task. */
struct weir__views {
    int64_t rows, row_first;
    struct weir_view *inputs, *outputs, *output_grads, *input_grads;
    struct weir_view *skips, *skip_grads, *skip_grads_out;
    void **output_places; /**< last stage: where outputs go that the caller does not want, or that
                              a device makes in a memory of its own */
    void **grad_places;   /**< such a device: where gradients of entering inputs go */
    void *saved, *saved_for_input, *left_for_weight;
    void **areas; /**< the further ones; NULL: the stage has none */
    double *loss; /**< the pipe's, where the stage's device can write */
};

/** One action, ready to be called. */
struct weir__call {
    struct weir_action action;
    enum weir_phase phase;
    weir_task_fn *run;         /**< NULL: nothing to do (a stage without norm or update) */
    struct weir__views *views; /**< NULL for N and U */
    uint32_t wait_begin, wait_end;
    uint32_t copy_begin, copy_end;
    uint32_t portal_begin, portal_end;
    uint32_t return_begin, return_end;
    uint32_t gradients; /**< block that it gets as the stage's gradients: its group's sum */
    uint32_t sum_begin, sum_end; /**< of the plan's sums: groups' that are complete behind it */
    bool saves;                  /**< the call gets the saved area */
    bool gradients_first;        /**< first to write those gradients in a step */
};

/** Two groups' sums are added (weir_shared.h). */
struct weir__group_sum {
    uint32_t into, from; /**< blocks */
};

/** A stage's lasting memory: blocks of the plan, at the same offsets in every prepared row count.
 */
struct weir__lasting {
    uint32_t parameters, gradients, optimizer, state;
    const uint32_t *groups; /**< [own group]: blocks of sums that last, the first that of
                                 `gradients`; NULL: the others do not, or there are none */
};

/** Where other replicas' parts of own slices of a stage's gradients arrive. */
struct weir__arrivals {
    uint32_t block; /**< WEIR__NO_BLOCK: there are none */
    size_t each;    /**< bytes of each replica's, in the order of replicas without this one */
    uint32_t gradient, norm, update; /**< actions: the last gradient, N and U */
};

/** Of a tie whose uses lie in memories apart: copies, WEIR__NO_BLOCK where there is none. */
struct weir__tie_copies {
    uint32_t *arrived; /**< [use]: of its gradient, for the owner's norm */
    uint32_t *whole;   /**< [worker]: of the sum, for its stages' updates */
};

/** A pointer that waits for its arena. */
struct weir__binding {
    void **where;
    uint32_t block;
    size_t offset; /**< in the block */
};

/** A worker's memory in two parts: what lasts as long as the pipe, and what steps work in, which is
 * replaced where a row count needs more. Blocks' offsets go through the first into the second. */
struct weir__arena {
    void *lasting, *working; /**< NULL where there are no bytes */
    size_t lasting_bytes, working_bytes;
    bool touched; /**< the working part, by the worker; from then on it is there */
    bool lasting_pinned, working_pinned;
};
static inline void *weir__arena_at(const struct weir__arena *arena, size_t offset) {
    bool lasts = offset < arena->lasting_bytes;
    char *part = (char *)(lasts ? arena->lasting : arena->working);
    if (part == NULL) return NULL; /* another rank's */
    return part + (lasts ? offset : offset - arena->lasting_bytes);
}
/** Where the block begins; NULL for WEIR__NO_BLOCK. */
static inline void *weir__arena_block(const struct weir__arena *arenas,
                                      const struct weir__memory *memory, uint32_t block) {
    if (block == WEIR__NO_BLOCK) return NULL;
    assert(block < memory->block_count);
    return weir__arena_at(&arenas[memory->blocks[block].worker], memory->blocks[block].offset);
}
static inline size_t weir__arena_bytes(const struct weir__arena *arena) {
    return arena->lasting_bytes + arena->working_bytes;
}

/** Where a plan's tensors lie. weir__prepared_bind fills the arrays in whenever memory has moved,
 * between commands. In a step a worker writes what is of its own stages and micro-batches: views of
 * the caller's rows and of what comes out of portals, and the portals whose turn is its. */
struct weir__bound {
    struct weir__views *views;          /**< [stage][micro-batch] */
    struct weir__tracker *trackers;     /**< per micro-batch */
    struct weir_tied **tied;            /**< [stage]: what its norm and update are given */
    void **workspaces;                  /**< per action of the table */
    struct weir__copy_ends *ends;       /**< per copy */
    struct weir__copy_stream **streams; /**< per lane, the pipe's; NULL: of ranks, and no GPU is at
                                             the end that is here */
    struct weir__port **ports;          /**< per lane of ranks: the end of it that this rank has, or
                                             NULL; behind them those of replicas */
    uint32_t replica_ports;             /**< how many there are of these */
};
struct weir__copy_ends {
    void *from, *to;
};

/** Fixed, but for `bound`'s arrays, once weir__streams_prepare has dropped waits that no device
 * needs. */
struct weir__row_plan {
    struct weir__pool pool;
    int64_t rows;
    bool infer;
    uint32_t micro_batch_count;  /**< of this replica … */
    struct weir__groups groups;  /**< … of the mini-batch's */
    struct weir_table *exported; /**< the training table as a schedule or CSV gave it; NULL: only
                                      inference was asked for */
    struct weir_table *table;    /**< what runs: that one with N, or inference's own */
    struct weir__deps deps;
    struct weir__deps orders; /**< those, and an edge of CAUSE_MEMORY for each wait of that cause */
    struct weir__memory memory;
    double *start, *end;   /**< per action: the replay that lifetimes are taken from */
    double makespan;       /**< its, in forwards of a micro-batch */
    size_t *arena_bytes;   /**< per worker: what this plan needs */
    size_t *least_bytes;   /**< per worker: the largest sum of its blocks that live at once */
    size_t *lasting_bytes; /**< per worker: of it, at the beginning, what lasts */
    const uint32_t *stage_worker;
    uint32_t *phases;                /**< per stage: bits of those that it is called in */
    uint32_t *tail;                  /**< per worker: index in its line of its first N or U */
    struct weir__call *calls;        /**< per action of the table */
    const struct weir_view *nothing; /**< as many empty views as any stage has of one sort */
    struct weir__needed_wait *waits;
    struct weir__prepared_copy *copies;
    const struct weir__portal_move *moves;
    const struct weir__return *returns;
    const struct weir__group_sum *sums;
    uint32_t sum_count, sum_capacity;
    const struct weir__lane *lanes;
    uint32_t lane_count, lane_capacity;
    size_t *staging_bytes; /**< per worker */
    uint32_t wait_count, copy_count, move_count, return_count;
    uint64_t waits_hash; /**< of all, as planned: the same on all ranks */
    uint32_t copy_capacity, move_capacity, return_capacity;
    struct weir__lasting *lasting;        /**< per stage */
    struct weir__arrivals *arrivals;      /**< per stage; NULL: there is one replica */
    struct weir__tie_copies *tie_copies;  /**< per tie */
    const struct weir__binding *bindings; /**< pointers to be filled in when the arenas are there */
    uint32_t binding_count, binding_capacity;
    struct weir__bound bound;
};

/** For a row count, of training or of inference, appended to list[*count]; touches no arena, and
 * memory_limit and such are the pipe's business. */
int weir__prepared_new(const struct weir__setup *setup, int64_t rows, bool infer,
                       struct weir__row_plan **list, uint32_t *count, struct weir_faults *faults);
void weir__prepared_destroy(const struct weir_allocator *allocator, struct weir__row_plan **list,
                            uint32_t count);
/** Makes the table, the plan and the calls of one. */
int weir__prepared_init(struct weir__row_plan *prepared, const struct weir__setup *setup,
                        int64_t rows, bool infer, struct weir_faults *faults);
/** The training table, its dependencies, views and replay alone: enough for times. No callback is
 * called. Clean up what succeeds. */
int weir__prepared_outline(struct weir__row_plan *prepared, const struct weir__setup *setup,
                           int64_t rows);
void weir__prepared_clean_up(struct weir__row_plan *prepared);
/** Resolves all pointers: arenas[worker], staging[worker], losses[stage * micro-batches + i]. */
void weir__prepared_bind(const struct weir__row_plan *prepared, const struct weir__arena *arenas,
                         void *const *staging, double *losses);
/** Blocks, copies and portal moves of every action (lifetimes.c). Fills views through bindings. */
int weir__prepared_lifetimes(struct weir__row_plan *prepared, const struct weir__setup *setup,
                             const struct weir_stage_bytes *bytes);
/** Which sum each gradient is added to, and the sums of sums; for weir__prepared_lifetimes
 * (sums.c). Without memory the pool has failed. */
void weir__prepared_sums(struct weir__row_plan *prepared, const struct weir__setup *setup);
/** Arrivals of each stage that learns; likewise. */
void weir__prepared_arrivals(struct weir__row_plan *prepared, const struct weir__setup *setup);
/** Of messages between a worker's stages and those of another replica that pass through slots of
 * pinned memory: what one holds; longer ones go in pieces. 0: there are no messages. */
size_t weir__prepared_replica_slot(const struct weir__row_plan *prepared,
                                   const struct weir__setup *setup, uint32_t worker,
                                   uint32_t replica);
/** The waits of every call (waits.c), from dependencies and hand-overs, without what is implied. */
int weir__prepared_waits(struct weir__row_plan *prepared, const struct weir__setup *setup,
                         const double *start, const double *end);
/** `*where` will point to `offset` in the block once the arenas are there; WEIR__NO_BLOCK leaves it
 * alone. Without memory the pool has failed. */
void weir__prepared_point(struct weir__row_plan *prepared, void **where, uint32_t block,
                          size_t offset);
/** The views of (stage, micro-batch). */
static inline struct weir__views *weir__prepared_views(const struct weir__row_plan *prepared,
                                                       uint32_t stage, uint32_t micro_batch) {
    assert(stage < prepared->table->stage_count && micro_batch < prepared->micro_batch_count);
    return &prepared->bound.views[(size_t)stage * prepared->micro_batch_count + micro_batch];
}
/** The action after which a copy that is not the caller's can be made; after the replay. */
static inline uint32_t weir__prepared_made(const struct weir__row_plan *prepared,
                                           const struct weir__prepared_copy *copy) {
    assert(copy->from_block < prepared->memory.block_count);
    if (copy->made != WEIR__NO_ACTION) return copy->made;
    return weir__memory_first(&prepared->memory, copy->from_block, prepared->start, prepared->end);
}
/** Whether the copy is given to a stream: one of a lane that is not of ranks. */
static inline bool weir__has_stream(const struct weir__row_plan *prepared,
                                    const struct weir__prepared_copy *copy) {
    return copy->lane != WEIR__NO_LANE && !prepared->lanes[copy->lane].of_ranks;
}
/** Whether the copy is a message between ranks. */
static inline bool weir__is_message(const struct weir__row_plan *prepared,
                                    const struct weir__prepared_copy *copy) {
    return copy->lane != WEIR__NO_LANE && prepared->lanes[copy->lane].of_ranks;
}
/** What a unit's copies take side by side, each from the beginning of a line on; SIZE_MAX for more
 * than that. */
size_t weir__unit_bytes(const struct weir__row_plan *prepared, uint32_t first);
/** How many pieces a unit is that hops, at least 1. */
static inline uint64_t weir__unit_pieces(const struct weir__row_plan *prepared, uint32_t first) {
    size_t bytes = weir__unit_bytes(prepared, first);
    size_t pieces = bytes / WEIR__HOP_PIECE_BYTES + (bytes % WEIR__HOP_PIECE_BYTES != 0);
    return pieces > 0 ? pieces : 1;
}
/** What a slot must hold for it. */
static inline size_t weir__unit_slot_bytes(const struct weir__row_plan *prepared, uint32_t first) {
    size_t bytes = weir__unit_bytes(prepared, first);
    return bytes < WEIR__HOP_PIECE_BYTES ? bytes : WEIR__HOP_PIECE_BYTES;
}
/** Whom `worker` waits for: of a copy, the worker at its other end; -1: the caller. */
static inline int32_t weir__wait_for_whom(const struct weir__row_plan *prepared, uint32_t worker,
                                          const struct weir__needed_wait *wait) {
    if (wait->copy == WEIR__NO_COPY) return (int32_t)wait->worker;
    assert(wait->copy < prepared->copy_count);
    const struct weir__lane *lane = &prepared->lanes[prepared->copies[wait->copy].lane];
    if (lane->from == WEIR__FROM_CALLER) return -1;
    return (int32_t)(lane->from == worker ? lane->worker : lane->from);
}
/** The rows of micro-batches that occur: 1 or 2 sizes into sizes[2]; returns how many. */
uint32_t weir__prepared_sizes(const struct weir__row_plan *prepared, int64_t sizes[2]);

#endif
