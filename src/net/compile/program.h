/* SPDX-License-Identifier: MIT */
/**
 * Programs: what a stage runs. A graph is sliced once by reachability: which nodes each program
 * needs, and which forward values the backward nodes read (the *residuals*, which are kept in the
 * task's saved area; stage inputs, skips and parameters lie elsewhere anyway). For each row count
 * an *instance* holds the programs as flat arrays of kernel calls whose operands are planned
 * offsets from a few base pointers that the task brings. Running one is a loop; it allocates
 * nothing.
 */
#ifndef WEIR_PROGRAM_H
#define WEIR_PROGRAM_H

#include "net/backend.h"
#include "net/model/graph.h"

enum weir__program_kind {
    WEIR__PROGRAM_FORWARD,    /**< keeping residuals */
    WEIR__PROGRAM_CHECKPOINT, /**< forward: outputs, stashes and loss only; the loss where backward
                                   does not make it (graph->backward_loss) */
    WEIR__PROGRAM_RECOMPUTE,  /**< the ancestors of residuals, nothing else */
    WEIR__PROGRAM_BACKWARD,
    WEIR__PROGRAM_BACKWARD_INPUT,  /**< gradients of input and skips, and such a loss */
    WEIR__PROGRAM_BACKWARD_WEIGHT, /**< the rest: gradients of parameters */
    WEIR__PROGRAM_INFER,           /**< outputs and stashes */
    WEIR__PROGRAM_INFER_LOSS,      /**< and the loss */
    WEIR__PROGRAM_COUNT
};

/** Which nodes make up each program, and what is kept between them. Lies in the graph's pool. */
struct weir__slices {
    const struct weir__graph *graph;
    uint32_t node_counts[WEIR__PROGRAM_COUNT]; /**< aliases not counted */
    uint32_t *nodes[WEIR__PROGRAM_COUNT];      /**< ascending */
    bool *residual;                            /**< [value]: forward keeps it for backward */
    bool *residual_of_weight;   /**< [value]: a residual that the weight part reads */
    bool *left_for_weight;      /**< [value]: made by the input part, read by the other */
    bool *in_both;              /**< [node]: makes gradients of both parts; each asks for
                                     its own outputs */
    bool *skip_kept;            /**< [skip use]: backward reads the value */
    bool *to_output;            /**< [node]: in forward programs only the output needs it: of
                                     inference by tokens, or weir__graph_head */
    uint64_t inputs_kept;       /**< bit i: backward reads input i */
    uint64_t inputs_recomputed; /**< bit i: recompute reads input i */
    struct weir_weight_reads weight_reads; /**< what the weight part reads at the border, where it
                                                lies: nothing of it is copied */
};

int weir__slice(struct weir__graph *graph, struct weir__slices *slices);
/** Bytes per row that one layer's graph keeps for its backward: residuals and its input. */
int weir__graph_activation_bytes(struct weir__graph *graph, uint64_t *sum);

/** What is kept between programs lies in several areas of each life, so that a pipe's memory packs
 * better: a new one begins where the last has this part of the whole. */
enum { WEIR__AREA_LIVES = 3, WEIR__AREA_PARTS = 8 };
enum { WEIR__AREAS_MAX = WEIR__AREA_LIVES * (WEIR__AREA_PARTS - 1) };

/** Where a pointer starts. Skips follow, three bases each: value, sum in, sum out. */
enum weir__pointer_base {
    WEIR__BASE_NONE, /**< an absent operand */
    WEIR__BASE_SAVED,
    WEIR__BASE_SAVED_FOR_INPUT,
    WEIR__BASE_LEFT_FOR_WEIGHT,
    WEIR__BASE_WORKSPACE,
    WEIR__BASE_PARAMETERS,
    WEIR__BASE_GRADIENTS,
    WEIR__BASE_LOSS,
    WEIR__BASE_STATE,
    WEIR__BASE_FILE,  /**< 0: offsets are addresses, of parameters that stay in their file */
    WEIR__BASE_AREAS, /**< the instance's further areas */
    WEIR__BASE_INPUT = WEIR__BASE_AREAS + WEIR__AREAS_MAX,
    WEIR__BASE_OUTPUT = WEIR__BASE_INPUT + WEIR__STAGE_INPUT_MAX,
    WEIR__BASE_OUTPUT_GRAD,
    WEIR__BASE_INPUT_GRAD,
    WEIR__BASE_SKIPS
};
#define WEIR__BASE_SKIP(k) (WEIR__BASE_SKIPS + 3 * (k))
#define WEIR__BASE_SKIP_GRAD(k) (WEIR__BASE_SKIPS + 3 * (k) + 1)
#define WEIR__BASE_SKIP_GRAD_OUT(k) (WEIR__BASE_SKIPS + 3 * (k) + 2)
#define WEIR__BASE_COUNT(skip_count) (WEIR__BASE_SKIPS + 3 * (skip_count))

struct weir__location {
    uint32_t base;
    size_t offset;
};

/** Memory of one node that lasts as long as the pipe; shared by all instances of the stage. */
struct weir__net_lasting {
    size_t offset, bytes;            /**< in the stage's state; 0 bytes: none */
    struct weir__net_lasting *owner; /**< whose memory it begins, and whose packed weights it takes
                                      where there are these weights'; NULL: its own */
    bool frozen;                     /**< the weights do not learn */
    uint64_t packed_of; /**< the weights that the node packed last, or another one whose packed
                             weights are all of its own, by the run's numbers; 0: none. The
                             worker's */
};

/** What all calls of one node share, whichever program they stand in. */
struct weir__node_call {
    struct weir__op_shape shape;
    const struct weir__kernel *kernel; /**< NULL: no program needs the node */
    void *state;
    size_t workspace;
    struct weir__net_lasting *lasting; /**< NULL: none */
    bool prepared;
};

struct weir__planned_call {
    struct weir__node_call *node;
    uint32_t layer;
    uint8_t in_count, out_count;
    bool to_output; /**< only the stage's output needs it, which may not be asked for */
    bool delivers;  /**< copies what another call made, or zeros: is of no node of the graph */
    struct weir__location *in, *out;
    struct weir__location workspace;
    int64_t units;                /**< that a team may share (enum weir__cut); 0: it may not */
    uint32_t row_units;           /**< of a row, where the call may do without some rows; 0: not */
    uint32_t *in_unit, *out_unit; /**< bytes of one; 0: all have the whole */
};

struct weir__program {
    uint32_t call_count;
    struct weir__planned_call *calls;
    size_t workspace; /**< bytes */
    size_t discard;   /**< where in the workspace an unwanted input gradient goes */
};

struct weir__instance {
    int64_t rows;
    struct weir__pool pool;
    struct weir__node_call *nodes; /**< [node] */
    struct weir__program programs[WEIR__PROGRAM_COUNT];
    uint32_t planned;                               /**< bit 1 << kind: that program is there */
    size_t saved, saved_for_input, left_for_weight; /**< bytes, as in struct weir_stage_bytes */
    struct weir_area areas[WEIR__AREAS_MAX];        /**< further ones */
    uint32_t area_count;
    bool prepared;
};

/** What instances are made from. */
struct weir__instance_options {
    const struct weir_allocator *allocator;
    const struct weir__slices *slices;
    const size_t *parameter_offsets;      /**< [the network's parameter - parameter_first] */
    const void *const *parameters_mapped; /**< [the same]: where it lies in a file instead, or NULL;
                                               NULL: none does */
    uint32_t parameter_first;
    struct weir__net_lasting *lasting; /**< [node] */
    enum weir_dtype dtype;
    int64_t rows_max;   /**< of a micro-batch; workspace is planned for these */
    uint32_t threads;   /**< to plan for; the real number comes with weir__instance_prepare */
    bool threads_known; /**< false: it is a guess, and one thread may be the truth */
    const struct weir__backend *backend;
    bool discard;      /**< the input's gradient may not be wanted at run time */
    bool keeps_packed; /**< packed weights are kept where that pays (see weir__lasting_plan), else
                            only where a kernel cannot do without */
};

/** Settles the nodes' lasting memory: lasting[node count], zeroed, and its bytes in all. Of a
 * kernel that packs weights itself a packed copy is kept where keeps_packed says that several
 * micro-batches meet the same weights, and none has more than 4096 rows of a product: with so many,
 * packing is about 1% of it. Of weights that stay in their file nothing is kept. */
int weir__lasting_plan(const struct weir__instance_options *options,
                       struct weir__net_lasting *lasting, size_t *total);
/** For `rows` rows, without a program yet. The caller's: weir__instance_destroy. */
int weir__instance_new(const struct weir__instance_options *options, int64_t rows,
                       struct weir__instance **instance);
/** Plans those of `programs` (bit 1 << kind) that are not there yet. On failure those that were
 * stay as they are. */
int weir__instance_plan(const struct weir__instance_options *options,
                        struct weir__instance *instance, uint32_t programs);
void weir__instance_destroy(const struct weir_allocator *allocator,
                            struct weir__instance *instance);
/** On the worker's thread: makes the kernels' states for `threads` threads, or for as many as get
 * along with the workspace that was planned. WEIR_ERR_BACKEND where not even one does. `stream` is
 * the worker's. */
int weir__instance_prepare(struct weir__instance *instance, uint32_t node_count, uint32_t threads,
                           struct weir_stream *stream);
void weir__instance_release(struct weir__instance *instance, uint32_t node_count);

/** What is needed to look at results (net/run/look.c). */
struct weir__look {
    const struct weir__graph *graph;
    const struct weir__node_call *nodes; /**< the instance's */
    int64_t rows;
};

/** One run. */
struct weir__program_run {
    const uintptr_t *bases;
    uint64_t weights;       /**< numbers what the weights are: packed ones are made anew where it is
                                 another; 0: always */
    uint64_t weights_given; /**< the same of those that do not learn */
    struct weir__op_call call; /**< what all kernels are told: seed, mini_batch, overwrite… */
    bool output_wanted;
    int64_t output_first; /**< the first row whose output is wanted, where it is */
    uint64_t *stamps; /**< [calls + 1]: the clock before each call, then after the last; or NULL */
    struct weir__event *events;    /**< [calls + 1]: recorded instead, on call.stream; or NULL */
    const struct weir__look *look; /**< after each call its results are looked at; or NULL */
};
/** After a call: WEIR_ERR_NONFINITE and a message where it gave a number that is not finite. */
int weir__program_look(const struct weir__program_run *run,
                       const struct weir__planned_call *planned);
/** On failure *failed is the call that failed; it stays as it was where that was the last stamp. */
int weir__program_run(const struct weir__program *program, const struct weir__program_run *run,
                      const struct weir__planned_call **failed);

/** Packs the weights of the first call that would have to. *packed: there was one. */
int weir__program_pack(const struct weir__program *program, const struct weir__program_run *run,
                       bool *packed);

/** Packing by lifetimes: buffer i is used by calls first[i] … last[i]. */
struct weir__buffer {
    size_t bytes;  /**< a multiple of 64; 0 takes no room */
    size_t offset; /**< the result */
    uint32_t first, last;
};
/** Greedy best fit, largest first. `order` has room for 2 * `count` indexes. Gives the bytes in
 * all. */
size_t weir__pack(struct weir__buffer *buffers, uint32_t count, uint32_t *order);

#endif
