/* SPDX-License-Identifier: MIT */
/**
 * Weir's engine: pipeline-parallel training over stages that are callbacks.
 *
 * The method is GPipe's (Huang et al., arXiv 1811.06965) as torchgpipe built it (Kim et al.,
 * arXiv 2004.09910): a mini-batch is scattered by rows into micro-batches, stages on different
 * workers run them at the same time, activations are recomputed before the gradient arrives, and
 * skip connections travel by portal straight from the stage that stashes to the stage that reads.
 * Unlike those systems, everything about a step is planned before it runs: actions, dependencies,
 * copies, and the first and last use of every byte.
 *
 * Errors. Functions that can fail return an int: WEIR_OK (0), a negative enum weir_status, or,
 * where a callback of yours failed, the positive value that it returned, unchanged. Results come
 * through out-parameters, which are written only on success unless the function says otherwise.
 * The library never exits, aborts on an operating error, prints, or touches signals.
 *
 * Losses of micro-batches are summed: `loss_weight` makes means of them (struct weir_task).
 *
 * Life. (1) Describe stages and inputs; the descriptions are copied, their contexts are not and
 * must outlive the pipe. (2) weir_pipe_new checks everything, lists every fault, plans, allocates
 * all memory and starts the workers. (3) weir_pipe_prepare and _infer add further row counts. (4)
 * weir_pipe_step and weir_pipe_infer, any number of times, from any thread, one at a time; they
 * allocate nothing; between them the trace may be read. (5) weir_pipe_destroy joins the workers.
 *
 * @code
 *   static int forward(void *model, const struct weir_task *task);    // outputs = f(inputs)
 *   static int recompute(void *model, const struct weir_task *task);  // saved, once more
 *   static int backward(void *model, const struct weir_task *task);   // input_grads, gradients
 *   static const struct weir_stage_calls calls = {
 *       .forward = forward, .recompute = recompute, .backward = backward};
 *
 *   struct weir_tensor x = {.dtype = WEIR_F32, .rank = 1, .shape = {64}, .differentiable = true};
 *   struct weir_stage stages[2] = {WEIR_STAGE_INIT, WEIR_STAGE_INIT};
 *   for (int s = 0; s < 2; s++) {
 *       stages[s].calls = &calls, stages[s].context = &model[s];
 *       stages[s].outputs = &x, stages[s].output_count = 1;
 *   }
 *   struct weir_input input = {.tensor = x, .name = "x"};
 *   struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
 *   options.stages = stages, options.stage_count = 2;
 *   options.inputs = &input, options.input_count = 1;
 *   options.rows = 32, options.chunks = 8, options.schedule = "1f1b";
 *
 *   struct weir_pipe *pipe;
 *   int status = weir_pipe_new(&options, &faults, &pipe);   // faults: every reason, or NULL
 *   struct weir_step step = WEIR_STEP_INIT;
 *   step.rows = 32, step.inputs = (const void *[]){batch};
 *   status = weir_pipe_step(pipe, &step, &result);          // result.loss, result.error
 *   weir_pipe_destroy(pipe);
 * @endcode
 *
 * weir_base.h comes along: statuses, memory, faults, tensors, and schedules by themselves; and
 * weir_shared.h: tied parameters, groups of gradients, replicas.
 */
#ifndef WEIR_H
#define WEIR_H

#include "weir_shared.h"
#include "weir_world.h"

#ifdef __cplusplus
#pragma GCC system_header
extern "C" {
#endif

/* ---- stages ---------------------------------------------------------------------------------- */

/** What a callback is asked to do. */
enum weir_phase {
    WEIR_FORWARD,            /**< outputs, stashes, saved (NULL in a stage without backward) */
    WEIR_FORWARD_CHECKPOINT, /**< outputs and stashes only; saved is NULL */
    WEIR_RECOMPUTE,          /**< saved, from the same inputs and skips; nothing else */
    WEIR_BACKWARD,           /**< input and skip gradients, and parameter gradients */
    WEIR_BACKWARD_INPUT,     /**< input and skip gradients, leaving what the next needs */
    WEIR_BACKWARD_WEIGHT,    /**< parameter gradients */
    WEIR_NORM,               /**< sums of squares of the complete gradients */
    WEIR_UPDATE,             /**< parameters and optimizer state */
    WEIR_INFER,              /**< outputs and stashes; no gradient will be asked for */
    WEIR_PHASE_COUNT
};

/** "forward", "recompute", …; "none" for WEIR_PHASE_COUNT. Static storage. */
const char *weir_phase_name(enum weir_phase phase);

/** What went wrong, where. -1 where a place does not apply, and then the phase is
 * WEIR_PHASE_COUNT, whose name is "none". */
struct weir_error {
    int status;
    int32_t stage;
    int32_t micro_batch;
    enum weir_phase phase;
    char layer[64];    /**< filled by the stage; empty if it has no layers */
    char message[256]; /**< filled by the stage or by Weir: the reason, and how to mend it */
};

struct weir_verdict; /**< these two are for GPUs: see below the pipe */
struct weir_stream;  /**< where a device runs work in order; a CPU stage's work runs at once */

/** One call of a stage, for one micro-batch. All memory belongs to Weir (or, for inputs, outputs
 * and input gradients of the pipe, to the caller of the step) and is valid until the callback
 * returns, on CUDA (see weir_stream_cuda) until the stream has passed the work. Inputs, popped
 * skips and output gradients are read-only: a stage that writes to them corrupts a checkpoint;
 * pipes with debug_inputs catch it. The views that a phase has no use for are empty (data NULL,
 * rows 0); norm and update get nothing of a micro-batch. Gradients are written with "=", except the
 * parameters' own, which add unless `gradients_first`. */
struct weir_task {
    enum weir_phase phase;
    uint32_t stage;
    uint32_t micro_batch;
    uint32_t micro_batch_count;
    int64_t rows;        /**< of this micro-batch */
    int64_t row_first;   /**< its first row's place in the mini-batch */
    int64_t rows_total;  /**< rows of the mini-batch */
    uint64_t mini_batch; /**< its number since the beginning: the counter of random numbers */
    uint64_t update;     /**< updates done before this one */
    double loss_weight;  /**< total weight of the loss over everything accumulated; the caller's */
    void *user;          /**< weir_step.user */
    struct weir_stream *stream;

    const struct weir_view *inputs;         /**< border first, then pipe inputs entering here */
    const struct weir_view *outputs;        /**< F and infer only; written, but for those on request
                                                 whose data is NULL */
    const struct weir_view *output_grads;   /**< backward only; data NULL reads as zero. For W the
                                                 data of what is not in weight_reads is gone */
    const struct weir_view *input_grads;    /**< backward only; written; NULL: not wanted */
    const struct weir_view *skips;          /**< per declared skip: stash written, read/pop read */
    const struct weir_view *skip_grads;     /**< per skip: the running sum that comes in: for a
                                                 stash its whole gradient, for a read or pop that
                                                 of later readers (NULL for the last reader); W:
                                                 as output_grads */
    const struct weir_view *skip_grads_out; /**< per read or pop: the running sum, written =
                                                 (incoming sum) + own part; NULL: not wanted */
    void *saved;           /**< F written, R written, backward: see struct weir_stage_bytes */
    void *saved_for_input; /**< the same, but NULL for W */
    void *left_for_weight; /**< I written, W read */
    void *const *areas;    /**< per further area of struct weir_stage_bytes; NULL: none in this
                                phase. Those whose life has not begun, or is over, are not there */
    void *workspace;
    void *parameters;
    void *gradients;
    void *optimizer;
    void *state;
    bool gradients_first; /**< this call is the first since the last update: overwrite */
    bool recompute_late;
    double gradient_scale; /**< update: multiply the gradients by this (clipping); else 1 */
    const struct weir_verdict *verdict; /**< update, on a device behind its host: obey it; else
                                             NULL */
    double *norm_squares;               /**< norm: stage.norm_count numbers, written */
    const struct weir_tied *tied; /**< norm, update: per name of the stage's ties, in the order in
                                       which it names them first; else NULL */
    uint32_t tied_count;
    double *loss; /**< F, infer: what this micro-batch and stage add to the step's loss, written
                       ("="): Weir sums all, so a mean is a part of it, the sum of its rows'
                       losses / loss_weight. Where F leaves 0, B or its input's part may do so */
    struct weir_error *error; /**< layer and message may be filled before returning non-zero */
};

/** upstream's is_checkpointing(): a forward whose activations will be recomputed. */
bool weir_task_is_checkpointing(const struct weir_task *task);
/** upstream's is_recomputing(). */
bool weir_task_is_recomputing(const struct weir_task *task);

/** From when to when an area is kept: as the member of struct weir_stage_bytes of that name. */
enum weir_area_life { WEIR_AREA_SAVED, WEIR_AREA_SAVED_FOR_INPUT, WEIR_AREA_LEFT_FOR_WEIGHT };
struct weir_area {
    size_t bytes;
    enum weir_area_life life;
};

/** Bytes that one micro-batch of `rows` rows needs; every number is rounded up to 64 by Weir. Where
 * a backward is split, what only I reads, and what I makes for W, have areas of their own, so that
 * between the two no more is kept than W needs; a stage that does not care leaves both at 0, and
 * its I may write to `saved` for W. What is kept may be in more areas than one of each life: they
 * lie side by side or, where that makes the arena smaller, apart. */
struct weir_stage_bytes {
    uint32_t phases;               /**< given: bit 1 << phase where there will be such calls */
    size_t saved;                  /**< from F (or R) to B or W */
    size_t saved_for_input;        /**< from F (or R) to B or I: W does not read it */
    size_t left_for_weight;        /**< from I to W; with B there is none */
    const struct weir_area *areas; /**< further ones; the stage's, as long as the pipe */
    uint32_t area_count;
    size_t workspace[WEIR_PHASE_COUNT]; /**< during one call of that phase */
};

/** Given to `attach`: where this stage's lasting memory is, on a GPU in its memory. Zeroed, touched
 * by this thread, 64-byte aligned; NULL where the stage asked for no bytes, and gradients and
 * optimizer where nothing learns: with infer_only, and in a stage without backward. */
struct weir_attachment {
    void *parameters;
    void *gradients;
    void *optimizer;
    void *state;
    struct weir_stream *stream; /**< the worker's; Weir waits for what attach gives to it */
    uint32_t stage;
    uint32_t worker;
    uint32_t threads; /**< cores of this worker, which may all be used by a call. A network's
                           kernels share them by threads that are bound as the worker is */
    uint32_t replica, replicas; /**< of the pipe: 0 of 1 where there is but one */
};

/** 0, or what the step then ends with (a positive value unchanged). On the worker's thread. */
typedef int weir_task_fn(void *context, const struct weir_task *task);

/** A stage's code. Needed are `forward`; `recompute` where a checkpoint mode asks for it; and for
 * training `backward`, or both of the split pair, unless the stage has no_backward. */
struct weir_stage_calls {
    weir_task_fn *forward; /**< FORWARD, INFER and, where recompute will make `saved` later,
                                FORWARD_CHECKPOINT: `saved` is there in the first alone */
    weir_task_fn *recompute;
    weir_task_fn *backward; /**< asked for by tables with B, as gpipe's and 1f1b's are */
    weir_task_fn *backward_input;
    weir_task_fn *backward_weight;
    weir_task_fn *norm;
    weir_task_fn *update;
    /** Adds to a sum of gradients another, element by element: `bytes` of them, of which the first
     * is at `offset` in the stage's gradients. What the stage writes no gradient to is left alone:
     * it may be anything. Needed with gradient_groups. Status and thread as of a task. */
    int (*combine)(void *context, void *into, const void *from, size_t offset, size_t bytes);
    /** Bytes for a row count, on the thread that builds or prepares the pipe, before any memory
     * is there; NULL: nothing is needed. Must always give the same answer for the same rows (and
     * phases that are asked for: bytes->phases), and no smaller one for more rows. `bytes` is
     * zeroed but for what is given. */
    int (*measure)(void *context, int64_t rows, struct weir_stage_bytes *bytes);
    /** Once, on the worker's thread, before any other call there. Does not own the memory. */
    int (*attach)(void *context, const struct weir_attachment *attachment);
    /** On the worker's thread, once for each size of micro-batch before it is first used; again
     * only after a weir_pipe_prepare that failed, or a measure for further phases. */
    int (*prepare)(void *context, int64_t rows);
    /** Once, on the worker's thread, if attach succeeded; the memory goes after it. */
    void (*detach)(void *context);
    /** NULL, or a piece of work ahead, such as packing weights, while `task` waits, which has
     * parameters and state alone. *more: one is left. Not on GPUs, over processes, with ties. */
    int (*ahead)(void *context, const struct weir_task *task, bool *more);
};

/** How a stage uses a skip. Exactly one stash; any number of reads; at most one pop, which is the
 * last use. Where there are reads and no pop the last read ends the skip. */
enum weir_skip_verb { WEIR_SKIP_STASH, WEIR_SKIP_READ, WEIR_SKIP_POP };

struct weir_skip_use {
    enum weir_skip_verb verb;
    const char *name;          /**< unique within its namespace */
    const char *name_space;    /**< NULL and "" are the default namespace */
    struct weir_tensor tensor; /**< the same at every use */
    bool empty;                /**< stash: passes NULL: no portal, no gradient, pops as NULL */
    bool kept;                 /**< read, pop: backward reads the value as well */
};

/** Where a skip goes: from stage to stages or, in a list of layers, from layer to layers. A skip
 * that is used where it is stashed only, or is empty, has no route. */
struct weir_skip_route {
    uint32_t source;
    uint32_t reader_count;
    const uint32_t *readers; /**< ascending, all above `source`; those that read or pop */
    uint64_t bytes;          /**< of one micro-batch */
    bool differentiable;     /**< as many bytes of gradient come back */
    const char *name_space;  /**< "" is the default */
    const char *name;        /**< may be NULL where nobody is told */
};

/** What W reads of a split backward, where it lies: what is not in here is freed after I. Bit 63
 * stands for all above. */
struct weir_weight_reads {
    uint64_t inputs;       /**< bit i: input i, if it is in inputs_kept */
    uint64_t skips;        /**< bit j: skip use j, if it is kept */
    uint64_t output_grads; /**< bit k: the gradient of output k */
    uint64_t skip_grads;   /**< bit j: the sum that comes in for skip use j */
};

/** A stage: code, and what crosses its border. Its border inputs are the previous stage's outputs;
 * stage 0 has only pipe inputs. The last stage's outputs are the pipe's. */
struct weir_stage {
    size_t size;
    const char *name; /**< for messages and traces; NULL: "stage N" */
    const struct weir_stage_calls *calls;
    void *context; /**< given to every call; must outlive the pipe */
    const struct weir_tensor *outputs;
    uint32_t output_count; /**< at least 1 */
    uint32_t skip_count;
    const struct weir_skip_use *skips;
    uint64_t inputs_kept;       /**< bit i: backward reads input i. Bit 63 stands for all above */
    uint64_t inputs_recomputed; /**< bit i: recompute reads input i */
    size_t parameter_bytes;
    size_t gradient_bytes;
    size_t optimizer_bytes;
    size_t state_bytes;  /**< lasting memory of any other use: packed copies of weights, caches of
                              keys and values. As old as the pipe, with infer_only as well; the plan
                              counts it as workspace */
    size_t mapped_bytes; /**< of files, read where they lie: the plan tells them, but counts none */
    uint32_t norm_count; /**< partial sums that `norm` writes */
    uint32_t tie_count;
    const struct weir_tie *ties;         /**< uses of parameters that other stages use as well */
    const struct weir_section *sections; /**< of its gradients, where replicas share them */
    uint32_t section_count;
    /** Frozen: nothing in it learns and nothing before it wants a gradient. Tables have F (and an
     * empty U) of it only. Its F runs in phase WEIR_FORWARD whatever the checkpoint mode and saves
     * nothing; recompute, backward, norm and update are never called, and gradient_bytes,
     * optimizer_bytes, norm_count and measured `saved` bytes count as 0. Its outputs, its skips,
     * the pipe inputs that enter it and the outputs of the stage before it must not be
     * differentiable. F of such a stage runs ahead of the next stage's only as far as the memory
     * plan has slots: two micro-batches, or a few more. */
    bool no_backward;
    struct weir_weight_reads weight_reads; /**< all, unless the stage says otherwise */
    bool output_on_request; /**< the last stage: outputs have no memory but what the caller of a
                                 step brings; where there is none data is NULL. On a device with
                                 memory of its own they have */
};
#define WEIR_STAGE_INIT                                                                            \
    {                                                                                              \
        .size = sizeof(struct weir_stage), .inputs_kept = UINT64_MAX,                              \
        .inputs_recomputed = UINT64_MAX, .weight_reads = {                                         \
            UINT64_MAX,                                                                            \
            UINT64_MAX,                                                                            \
            UINT64_MAX,                                                                            \
            UINT64_MAX                                                                             \
        }                                                                                          \
    }

/** Something that the caller brings to each step. */
struct weir_input {
    struct weir_tensor tensor;
    const char *name;
    uint32_t stage;      /**< where it enters: labels go straight to the last stage */
    bool replicated;     /**< every micro-batch gets it whole; shape is then the whole shape */
    int64_t rows_factor; /**< its rows per row of the mini-batch; 0 is 1. It is split by its own
                              rows: a count that gives other micro-batches is refused */
};

/* ---- the pipe -------------------------------------------------------------------------------- */

enum weir_wait {
    WEIR_WAIT_AUTO, /**< spin where every worker has a core of its own, else park */
    WEIR_WAIT_SPIN,
    WEIR_WAIT_PARK
};

/** How tensors cross between workers: the reader is given the producer's memory, or copies into
 * its own when it first needs them. */
enum weir_link { WEIR_LINK_AUTO, WEIR_LINK_POINTER, WEIR_LINK_COPY };

/** What copies between memories on GPUs; results are the same bits. A kernel begins sooner than a
 * copy engine, and one launch can do many copies, but it takes processors from what computes. */
enum weir_copy_by {
    WEIR_COPY_BY_CHOICE, /**< each crossing by what is predicted to cost least */
    WEIR_COPY_BY_ENGINE,
    WEIR_COPY_BY_KERNEL, /**< each by a launch of its own */
    WEIR_COPY_BY_BATCH   /**< all that an action needs from one memory in one launch */
};

struct weir_pipe_options {
    size_t size;
    const struct weir_allocator *allocator;
    const struct weir_stage *stages;
    uint32_t stage_count; /**< at least 1 */
    uint32_t input_count;
    const struct weir_input *inputs;
    int64_t rows;          /**< the largest mini-batch */
    uint32_t chunks;       /**< micro-batches asked for; scatter splits as torch.chunk does */
    uint32_t workers;      /**< 0: the schedule's default */
    const char *schedule;  /**< a name; ignored where `table_csv` is given */
    const char *table_csv; /**< a table's text, or NULL */
    size_t table_csv_bytes;
    enum weir_checkpoint checkpoint;
    const enum weir_checkpoint *stage_checkpoint; /**< one per stage, or NULL */
    bool recompute_late; /**< R waits for the gradient too; to measure the gain */
    bool infer_only;     /**< no backward, no gradients, no optimizer state */
    bool debug_inputs;   /**< catch stages that write to what is read-only (slow; on CPUs) */
    uint32_t threads_per_worker; /**< 0: the cores divided among the workers; in a world as many as
                                      every rank has cores for, which shares those of its host that
                                      others may use too. One on a GPU has 1, on a core near the GPU
                                      that "auto" takes from nobody. No bit of a network depends on
                                      it */
    const char *bind;            /**< "auto", "none", or a core list like "0-3,8", dealt to the
                                      workers in order; NULL: the environment's WEIR_BIND, else
                                      "auto" */
    enum weir_wait wait;
    enum weir_link link;    /**< AUTO: pointers where memory is the same */
    uint64_t link_delay_ns; /**< with COPY on CPUs, for measurements: what crosses is there so long
                                 after its producer's end, as behind a copy engine: the
                                 workers go on meanwhile. Each crossing by itself */
    const char *const *devices; /**< one per worker: "cpu", "cuda:1" ("cuda" is the first GPU);
                                   NULL: all CPU */
    uint32_t device_count;
    uint64_t memory_limit;  /**< bytes per worker; 0: none */
    uint64_t watchdog_ns;   /**< for a callback; behind the host also for what an action gave its
                                 device and for a copy, from when it could run, or from when a
                                 device of the pipe last ended something, times the workers of
                                 one GPU; 0: none */
    double clip_norm;       /**< largest global gradient norm; 0: no clipping. Needs a
                                 stage with a norm */
    bool skip_nonfinite;    /**< a non-finite gradient skips the update; else it fails */
    uint32_t trace_actions; /**< ring size per worker; 0: the last step or two */
    weir_log_fn *log;
    void *log_context;
    const struct weir_search_options *search; /**< as in weir_table_options; lives as long as the
                                                   pipe */
    enum weir_copy_by copy_by;                /**< to or from GPUs; CPUs have one way only */
    /** The processes that share the workers (weir_world.h), or NULL: this one has them all. */
    const struct weir_world *world;
    uint32_t replicas;        /**< of the pipe (weir_shared.h); 0: 1. `workers`, and a table, are of
                                   each. They divide the world's ranks and gradient_groups */
    uint32_t gradient_groups; /**< a power of two; 0: `replicas` */
    bool accumulates;         /**< steps may be parts of an update though a replica has several
                                   groups, whose sums then last: gradient_bytes for each */
};
#define WEIR_PIPE_OPTIONS_INIT                                                                     \
    { .size = sizeof(struct weir_pipe_options), .chunks = 1, .schedule = "1f1b" }

/** What a mini-batch is made of; all memory is the caller's and rows-first, contiguous. */
struct weir_step {
    size_t size;
    int64_t rows;              /**< a prepared count */
    const void *const *inputs; /**< one per pipe input; not NULL */
    void *const *input_grads;  /**< one per pipe input or NULL; entries may be NULL; written = */
    void *const *outputs;      /**< one per output of the last stage, or NULL, also singly */
    uint64_t mini_batch;       /**< number since the beginning */
    uint64_t update;           /**< updates done before this one */
    double loss_weight;        /**< total weight over all accumulated mini-batches, finite and not
                                    negative; 0: rows */
    bool accumulate_first;     /**< gradients start from zero */
    bool accumulate_last;      /**< the update follows */
    bool no_update;            /**< stop after the norm: gradients stay to be read */
    void *user;
    uint32_t flags; /**< the caller's own: all ranks' results have the flags of all */
};
#define WEIR_STEP_INIT                                                                             \
    { .size = sizeof(struct weir_step), .accumulate_first = true, .accumulate_last = true }

struct weir_step_result {
    double loss;          /**< over this mini-batch */
    double gradient_norm; /**< global, before clipping; NaN where no norm was taken */
    bool updated;
    uint32_t flags;          /**< of the step, on any rank; written where it ran */
    uint64_t ns;             /**< from submission to the last worker's end */
    struct weir_error error; /**< status WEIR_OK, or the first failure */
};

struct weir_pipe;

/** Builds a pipe. On failure every fault found is in `faults` (may be NULL) and nothing is left
 * behind. Blocks until every stage is attached. */
int weir_pipe_new(const struct weir_pipe_options *options, struct weir_faults *faults,
                  struct weir_pipe **pipe);
/** Joins the workers and frees everything; waits for a step or any other call on the pipe that is
 * in progress on another thread, for a callback that has not returned, and for a device's work that
 * has not ended, as long as that takes. Accepts NULL. No call may begin once this one has; not from
 * a callback of this pipe. Other pipes are not disturbed. */
void weir_pipe_destroy(struct weir_pipe *pipe);
/** Adds table and plan for mini-batches of `rows` rows (at most options.rows). Allocates; not
 * during a step. Prepared already: does nothing. Arenas are as large as the pipe's plan says; where
 * another number of micro-batches overlaps so that it needs more, the part of an arena that steps
 * work in is replaced by a larger one. What lasts (attachments) stays where it is.
 * WEIR_ERR_MEMORY_LIMIT: that would be more than memory_limit; nothing has changed then. */
int weir_pipe_prepare(struct weir_pipe *pipe, int64_t rows, struct weir_faults *faults);
/** The same for weir_pipe_infer alone, whatever number of micro-batches the rows make: also one
 * that the schedule refuses to train, or that a given table does not have. A rest of data that is
 * only judged needs no more. */
int weir_pipe_prepare_infer(struct weir_pipe *pipe, int64_t rows, struct weir_faults *faults);
/** Runs forward, backward and update of one mini-batch; blocks. On failure parameters, optimizer
 * state and the pipe are as before, unless the status is WEIR_ERR_TORN, and `result->error` says
 * what failed; gradients are not, so an accumulation begins again with accumulate_first.
 * WEIR_ERR_TIMEOUT: a callback has not returned, or a device's work or a copy has not ended; every
 * later call, what reads the trace too, gives WEIR_ERR_BUSY until it has, and so long it may use
 * the step's inputs, input_grads and outputs. `result` is always written; NULL: nobody asks. */
int weir_pipe_step(struct weir_pipe *pipe, const struct weir_step *step,
                   struct weir_step_result *result);
/** Forward only, phase WEIR_INFER: nothing saved, no checkpoint, no recompute. */
int weir_pipe_infer(struct weir_pipe *pipe, const struct weir_step *step,
                    struct weir_step_result *result);
/** The table that a prepared row count trains by; NULL if it was not prepared for that. With
 * infer_only the one that the pipe's own row count would train by, though forwards alone are run.
 * The pipe's. */
const struct weir_table *weir_pipe_table(const struct weir_pipe *pipe, int64_t rows);
/** Stages, as built. */
uint32_t weir_pipe_stage_count(const struct weir_pipe *pipe);
/** Where a stage's lasting memory is: its attachment. Valid while the pipe lives; read or write it
 * only between steps, a GPU's by the calls below. */
int weir_pipe_attachment(const struct weir_pipe *pipe, uint32_t stage,
                         struct weir_attachment *attachment);
/** Copies a stage's lasting memory to the caller's, wherever its device has it; between steps. */
int weir_pipe_read(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                   size_t bytes);
/** The other way. Both fail as the device does, or copy nothing: WEIR_ERR_BUSY during another call,
 * WEIR_ERR_ARGUMENT without such a stage. */
int weir_pipe_write(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                    size_t bytes);

/* ---- GPUs ------------------------------------------------------------------------------------ */

/** Whether an update is to be done and how its gradients are to be scaled, where that is not known
 * when update is called: on a device that runs behind its host it stands in the device's memory
 * when the stream comes to the update, which must leave everything as it is unless `applies`, and
 * multiply by `gradient_scale` from here instead of the task's. */
struct weir_verdict {
    double gradient_scale;
    double norm; /**< of the gradients before that */
    int32_t applies;
    int32_t reserved;
};

/** A CUDA stage's stream as what CUDA's driver API calls a CUstream (cudaStream_t in its runtime),
 * for kernels of your own; NULL for a CPU's. A stage whose worker's device is a GPU is called as on
 * a CPU, on the worker's thread, with the GPU's primary context current; examples/engine_cuda.cu is
 * a whole program. What is different:
 *  - A callback enqueues kernels, copies and graphs on the task's stream and returns: it waits for
 *    nothing. What synchronises (a plain cudaMemcpy, cudaMalloc, cudaFree) gives no wrong results,
 *    but nobody runs ahead meanwhile: get memory in attach, or as state_bytes and workspace.
 *  - What a task points at is the GPU's memory, `verdict` too, and the host must not touch it. But
 *    `loss` and `norm_squares` are pinned host memory, which kernels reach at the same address:
 *    the stream writes them, callbacks do not read them, Weir does when the step is over (and, of
 *    norm_squares, on each GPU that judges by them before its updates). The task itself, its lists
 *    of views and areas, and `tied` are the host's and gone after the call: kernels get values.
 *  - This stream alone is in order with all that comes before and after. It is non-blocking: work
 *    on the default stream is not. A stream of your own must wait for an event of this one first,
 *    and this one for an event of that one before the callback returns.
 *  - The stream, the context and the thread's choice of a GPU stay as they are: nothing is reset,
 *    destroyed, or left being captured. A capture is thread local or relaxed, not global, which
 *    other threads of Weir's that ask for their events would break.
 *  - A status tells what the host was told, as that a launch is refused; WEIR_ERR_DEVICE that the
 *    GPU is lost: the pipe then refuses every later step. How the work itself fares Weir learns at
 *    the step's end.
 * The caller's rows stay host memory of any kind, and Weir copies them. Between steps all streams
 * are idle. */
void *weir_stream_cuda(const struct weir_stream *stream);

/* ---- the memory plan ------------------------------------------------------------------------- */

/** Bytes on one device at the moment of its peak; they add up to `total`, the arena's size. */
struct weir_device_plan {
    char name[32];
    uint64_t total, parameters, gradients, optimizer;
    uint64_t activations; /**< saved areas, and what I leaves for W */
    uint64_t borders;     /**< border tensors and their gradients */
    uint64_t portals;     /**< skips and their gradients */
    uint64_t workspace;   /**< of calls, and the stages' state_bytes */
    uint64_t padding;     /**< what alignment and packing leave unused */
    uint64_t mapped; /**< not in `total`: of files, which stages read where they lie. The system
                          has them in memory while there is room, once for all who map them;
                          what two stages share is counted with both */
};

/** From `time` until the next point, `bytes` are in use on a device. Times are in forwards of a
 * whole micro-batch, any stage's: recompute, input and weight part take one, a backward two. */
struct weir_plan_point {
    double time;
    uint64_t bytes;
};

/** Memory over the predicted step: ascending; the first point is at 0. The highest is the device's
 * total less its padding, the last what lasts. A block that another worker reads is held half a
 * forward longer than it is needed, so that a late reader stops nobody, unless the arena is smaller
 * without that. */
struct weir_plan_curve {
    uint32_t point_count;
    const struct weir_plan_point *points;
};

/** Slots for what arrives at a device from others: border inputs, gradients, portals. An arrival
 * holds one from the start of the first action there that reads it to the end of the last; until
 * then its bytes are where they were made. */
struct weir_plan_receive {
    uint32_t each;  /**< one per arrival: (stage, direction, micro-batch), and so for each skip */
    uint32_t slots; /**< handed on, from one pool for all */
    uint32_t most;  /**< arrivals that are held at once: no fewer slots can do */
};

/** How many tensors come to a device from other memories in a step, on streams of their own, by
 * what copies them; all 0 between CPUs. */
struct weir_plan_copies {
    uint32_t by_engine, by_kernel; /**< the latter a launch each */
    uint32_t batched, launches;    /**< several in a launch, and how many launches */
};

/** Bytes of the host's memory that are pinned for a device, besides the arenas of CPUs' workers,
 * which are pinned as a whole where a pipe has GPUs too. All 0 for a CPU. */
struct weir_plan_pinned {
    uint64_t staging; /**< what the caller brings and gets passes through it */
    uint64_t numbers; /**< losses and norms, which a rank's first GPU's worker has for all */
    uint64_t hops;    /**< for what crosses to other ranks, but not by NCCL, and what comes from
                           GPUs whose memory this one does not reach, as far as their driver says
                           without being opened: where access is refused all the same it has more */
};

/** The plan of a pipe that is built, or would be. */
struct weir_plan {
    uint32_t device_count;
    const struct weir_device_plan *devices;
    const struct weir_plan_curve *curves;     /**< per device; training's, of the largest count */
    const struct weir_plan_receive *receives; /**< per device; likewise */
    const struct weir_plan_copies *copies;    /**< per device; likewise */
    const struct weir_plan_pinned *pinned;    /**< per device; of all row counts that it is for */
    double makespan;                          /**< of that step, in the units of the curves */
};

/** The plan that the pipe was built with, for the largest row count. The pipe's. */
const struct weir_plan *weir_pipe_plan(const struct weir_pipe *pipe);
/** Plans without allocating training memory or starting workers: the same checks, the same plan as
 * weir_pipe_new's to the byte. The caller's: weir_plan_destroy. */
int weir_plan_new(const struct weir_pipe_options *options, struct weir_faults *faults,
                  struct weir_plan **plan);
/** What cannot be less: the same with `total` the largest sum of what is in use at once, nothing
 * held longer than it is needed. Nothing is packed, which saves most of a plan's time; memory_limit
 * and bind are not looked at. */
int weir_plan_estimate(const struct weir_pipe_options *options, struct weir_faults *faults,
                       struct weir_plan **plan);
/** Accepts NULL. */
void weir_plan_destroy(struct weir_plan *plan);

/* ---- the machine ----------------------------------------------------------------------------- */

/** One worker's place. */
struct weir_place {
    uint32_t worker, core_count;
    uint32_t rank; /**< that it is on … */
    bool bound;
    int32_t numa_node;       /**< the operating system's number, or -1 */
    char cores[64];          /**< operating system's numbers of its processing units, "0-3" */
    char cache[32];          /**< the nearest cache that its cores share, "L3", or "" */
    char host[64];           /**< … and its host; "" without a world */
    uint64_t clock_error_ns; /**< how wrong its times may be: they are another clock's, moved */
};

/** Where the pipe's worker runs. WEIR_ERR_NOT_FOUND: on another rank; rank 0 knows all. */
int weir_pipe_place(const struct weir_pipe *pipe, uint32_t worker, struct weir_place *place);

/* ---- what steps did -------------------------------------------------------------------------- */

/** One executed action. Times are CLOCK_MONOTONIC nanoseconds. A GPU's are asked of its driver,
 * which takes a microsecond or so for each: no step waits for that. They are taken while the next
 * step runs, or by the first of the functions below that is called before it, for which others that
 * are called at the same time wait.
 *
 * These functions, and weir_snapshot_new, may run on several threads at once, but not beside a step
 * or any other call that is given a pipe that is not const: those write what these read. When the
 * watchdog gave up on the last step they give WEIR_ERR_BUSY (weir_pipe_trace no event) until a
 * later call on the pipe has found it ended. */
struct weir_trace_event {
    uint64_t step;   /**< number of the step on this pipe */
    uint64_t waited; /**< when the worker began to wait for the action's inputs */
    uint64_t start;  /**< when the callback was called (on a GPU: when the stream came to what it
                          gave, and all that this follows was done) */
    uint64_t end;    /**< when it had returned (on a GPU: when the stream had passed it) */
    struct weir_action action;
    uint32_t worker;
    int32_t waited_for; /**< the worker whose action was waited for last, or -1; of a copy between
                             memories: the worker at its other end */
    int64_t rows;       /**< of the step's mini-batch */
    uint64_t update;    /**< updates done before it, as the step said */
};

/** Copies a worker's newest events, oldest first, at most `capacity`; returns how many. Not during
 * a step. */
uint32_t weir_pipe_trace(const struct weir_pipe *pipe, uint32_t worker, uint32_t capacity,
                         struct weir_trace_event *events);

/** A worker's time in one step, as fractions of nothing: nanoseconds that add up: busy + idle =
 * makespan, dependency + copy + imbalance + host = idle. `copy`: producer's end to data ready;
 * `host`: inputs ready to start; `dependency`: idle time of the same table when every kind takes
 * its mean time; `imbalance`: the rest. Memory that another worker has not left yet counts as an
 * input: waiting for it is dependency where equal times would wait too. N and U are left out. */
struct weir_worker_time {
    double busy, idle, dependency, copy, imbalance, host;
    double steady; /**< (last end - first start - busy) / (last end - first start) */
};

/** The last step's times. */
struct weir_step_report {
    double makespan;         /**< ns, from the first action's start to the last one's end */
    double bubble;           /**< 1 - sum of busy / (workers * makespan) */
    double bubble_steady;    /**< the largest `steady` of the workers */
    double recompute_hidden; /**< part of R's time that ran while its gradient was not there yet */
    double critical_path;    /**< ns: the table's makespan with each (stage, kind)'s median time,
                                  were there a slot of memory for everything */
    uint32_t worker_count;
    struct weir_worker_time *workers; /**< the pipe's, valid until the next call; so only one
                                           thread at a time asks for a report */
};

/** Analyses the last completed training step. WEIR_ERR_NOT_FOUND if there was none, or if inference
 * since then has filled the trace (trace_actions makes it longer). */
int weir_pipe_report(struct weir_pipe *pipe, struct weir_step_report *report);

/** Receives the next bytes of a text; returns 0 or a status, which ends the writing. */
typedef int weir_write_fn(void *context, const char *text, size_t bytes);

/** Writes the trace as Chrome trace events (JSON), which Perfetto opens: one track per worker, flow
 * arrows for crossings that were waited for; where GPUs copy, one track per worker and source with
 * every copy and its bytes, and arrows from what made them and to what they are for. */
int weir_pipe_trace_chrome(const struct weir_pipe *pipe, weir_write_fn *write, void *context);
/** Draws the last step as text, `columns` wide (40 to 1000 are possible), one line per worker:
 * letters of the kinds, dots for waiting. `colour` uses ANSI colours. Like the function above: not
 * during a step, allocates nothing, and a failure of `write` ends it and is returned.
 * WEIR_ERR_NOT_FOUND without a step. */
int weir_pipe_trace_text(const struct weir_pipe *pipe, uint32_t columns, bool colour,
                         weir_write_fn *write, void *context);

#ifdef __cplusplus
}
#endif
#endif
