/* SPDX-License-Identifier: MIT */
/*
 * Stages for the engine's tests, and what they must compute.
 *
 * A model is a chain of stages made of one small formula, whose bits depend on every byte that it
 * is given, on the row, and on the order in which parameter gradients are added up. Each callback
 * also verifies what it was given (alignment, phase, thread, saved area, workspace nobody else
 * writes to) and notes what does not hold. The reference calls the same callbacks in a plain loop,
 * each micro-batch in memory of its own that nothing shares; a pipe must give the same bits.
 *
 * The formula, per row and element e of produced tensor o (border outputs, then stashes):
 *   h = b + sum over consumed tensors c of k(o, c) x_c[(e + o) mod width] p[(e + 3c + o) mod n]
 *   y = h / (1 + h^2) + sum over `added` tensors of x / 8
 * Integer tensors come from integer tensors by addition. A loss is the mean square of the first
 * output's h / (1 + h^2) to a target. Of tied parameters the first use's norm adds up all
 * gradients, and updates take that sum, so that all uses stay equal.
 */
#ifndef WEIR_TESTS_ENGINE_STAGES_H
#define WEIR_TESTS_ENGINE_STAGES_H

#include "harness.h"

#include <stdatomic.h>

enum {
    ENGINE_STAGES_MAX = 8,
    ENGINE_OUTPUTS_MAX = 4,
    ENGINE_SKIPS_MAX = 8,
    ENGINE_TIES_MAX = 3,
    ENGINE_INPUTS_MAX = 6,
    ENGINE_PORTS_MAX = 20,
    ENGINE_CHUNKS_MAX = 64,
    ENGINE_GROUPS_MAX = 16,
    ENGINE_PARTS_MAX = 64, /* of a sliced stage: its parameters at most */
    ENGINE_CUT = 3,        /* and in how many numbers its sections may be cut */
    ENGINE_ROWS_MAX = 128, /* of a micro-batch, where areas are listed */
    ENGINE_CALLS_MAX = 8192
};

/* A tensor that a stage consumes or produces. */
struct engine_port {
    struct weir_tensor tensor;
    int64_t width;  /* elements per row */
    uint32_t place; /* in the task's inputs, outputs or skips */
    bool skip, replicated, empty;
    bool added; /* goes into y alone: no one but F reads it */
};

struct engine_model;
struct weir_fake_cuda_control; /* engine_gpu.h */

struct engine_stage {
    /* what a test says */
    struct weir_tensor outputs[ENGINE_OUTPUTS_MAX];
    uint32_t output_count;
    struct weir_skip_use skips[ENGINE_SKIPS_MAX];
    uint32_t skip_count;
    uint32_t parameters; /* f64 numbers; the optimizer's state and gradients are as many */
    struct weir_tie ties[ENGINE_TIES_MAX]; /* ranges of them, none of which overlap */
    uint32_t tie_count;
    size_t state_bytes; /* which every callback changes and the next one verifies */
    double loss_scale;  /* of this stage's part of the loss; 0: none */
    bool keeps_inputs;  /* W reads inputs where they lie, else from the saved area */
    bool checks_inputs; /* I compares them with the saved area; nobody reads them later */
    bool parts_areas;   /* what only I reads, and what it makes for W, have their own areas … */
    bool lists_areas;   /* … which are further areas 0 and 1; what W reads is area 2 */
    bool reads_grads;   /* W makes again, from the gradients that came, what I has made */
    bool adds_border;   /* border input 0 is `added` */
    bool adds_skips;    /* and all float skips are */
    bool fixed;         /* no callbacks norm and update */
    bool frozen;        /* no_backward: see engine_freeze */
    /* derived */
    struct engine_model *model;
    uint32_t index;
    struct engine_port consumed[ENGINE_PORTS_MAX], produced[ENGINE_PORTS_MAX];
    uint32_t consumed_count, produced_count;
    struct weir_area areas[ENGINE_ROWS_MAX][3];            /* per row count, as measured */
    struct weir_section sections[2 * ENGINE_TIES_MAX + 1]; /* where the model is sliced */
    uint32_t section_count;
    size_t cuts[ENGINE_PARTS_MAX];
    uint32_t replica, replicas; /* as attached */
    /* seen; written by the stage's worker only */
    int thread;
    bool attached;
    struct weir_stream *stream;          /* likewise */
    const void *state;                   /* as attached */
    uint32_t task_count;                 /* since then */
    int64_t prepared[ENGINE_CHUNKS_MAX]; /* row counts */
    uint32_t prepared_count;
};

/* One callback, in the order in which they began. */
struct engine_call {
    uint64_t mini_batch;
    uint32_t stage, micro_batch;
    int64_t rows, row_first;
    enum weir_phase phase;
    int thread;
    bool checkpointing, recomputing;
};

/* Called at the beginning of every task; anything but 0 is returned by the callback. */
typedef int engine_hook_fn(void *context, const struct weir_task *task);

/* Callbacks without a task, which fail with `status` at `stage`. */
enum engine_lifecycle { ENGINE_NONE, ENGINE_MEASURE, ENGINE_ATTACH, ENGINE_PREPARE };

struct engine_model {
    struct engine_stage stages[ENGINE_STAGES_MAX];
    uint32_t stage_count;
    struct weir_input inputs[ENGINE_INPUTS_MAX];
    uint32_t input_count;
    uint64_t seed;
    bool sliced;     /* stages can be of replicas: norms of each parameter, in slices */
    uint32_t jitter; /* one call in so many sleeps, yields or spins a little; 0: none */
    engine_hook_fn *hook;
    void *hook_context;
    struct {
        bool armed, late; /* late: after the work is done */
        enum weir_phase phase;
        uint32_t stage, micro_batch;
        int status;
    } failure;
    struct {
        enum engine_lifecycle at;
        uint32_t stage;
        int status;
    } lifecycle;
    const struct weir_fake_cuda_control *gpu; /* stages may be on GPUs of its; or NULL */
    int combine_status;                       /* of every combine */
    bool reference; /* called by the reference: threads and row counts are its own business */
    /* seen */
    _Atomic uint32_t call_count;
    struct engine_call calls[ENGINE_CALLS_MAX];
    _Atomic uint32_t violations;
    char violation[256]; /* the first */
    _Atomic uint32_t attached, detached, prepared;
    /* what weir_pipe_options points to */
    struct weir_stage described[ENGINE_STAGES_MAX];
};

/* ---- models ---- */

/* A chain of `stages` with one f32 [4] border each, 5 parameters each, an input and a loss. */
void engine_model_init(struct engine_model *model, uint32_t stages);
struct weir_tensor engine_tensor(enum weir_dtype dtype, int64_t width, bool differentiable);
/* Adds a use; `width` as everywhere f64 [width], differentiable. Returns it for changes. */
struct weir_skip_use *engine_skip(struct engine_model *model, uint32_t stage,
                                  enum weir_skip_verb verb, const char *name);
struct weir_input *engine_input(struct engine_model *model, uint32_t stage, const char *name,
                                struct weir_tensor tensor);
/* The stage's parameters [first, first + count) are a use of what has that name. */
void engine_tie(struct engine_model *model, uint32_t stage, const char *name, uint32_t first,
                uint32_t count);
/* The stage has no backward, and nothing that touches it is differentiable any more. */
void engine_freeze(struct engine_model *model, uint32_t stage);
/* Derives what follows and fills in stages, inputs and allocator; the rest is as in _INIT. */
struct weir_pipe_options engine_options(struct engine_model *model);
/* Forgets calls. */
void engine_forget(struct engine_model *model);
/* Calls of a phase; of any phase for WEIR_PHASE_COUNT. */
uint32_t engine_calls_of(const struct engine_model *model, enum weir_phase phase);
/* The place of a call in the log, or UINT32_MAX. */
uint32_t engine_find_call(const struct engine_model *model, enum weir_phase phase, uint32_t stage,
                          uint32_t micro_batch);
/* Fails the test if a callback noted something. */
bool engine_expect_clean(struct engine_model *model);

/* Starting values, as attach sets them; of a tied parameter those of its first use. */
double engine_initial_parameter(const struct engine_model *model, uint32_t stage, uint32_t index);

/* What a pipe calls, and the reference; the others are for `fixed` and `frozen` stages. */
extern const struct weir_stage_calls engine_stage_calls, engine_fixed_calls, engine_frozen_calls;
/* Whether this replica's slices have the stage's parameter i; the reference has all. */
bool engine_owns(const struct engine_stage *stage, uint32_t i);
/* Partial sums that the norm writes: none in a frozen stage. */
uint32_t engine_norm_count(const struct engine_stage *stage);

/* ---- batches ---- */

/* A mini-batch: inputs, and memory for what comes back. */
struct engine_batch {
    const struct engine_model *model;
    int64_t rows;
    void *inputs[ENGINE_INPUTS_MAX];
    void *input_grads[ENGINE_INPUTS_MAX]; /* NULL where there is none */
    size_t input_bytes[ENGINE_INPUTS_MAX];
    void *outputs[ENGINE_OUTPUTS_MAX];
    size_t output_bytes[ENGINE_OUTPUTS_MAX];
};

/* Inputs depend on `seed` only; what comes back is filled with 0x5A. */
void engine_batch_init(struct engine_batch *batch, const struct engine_model *model, int64_t rows,
                       uint64_t seed);
void engine_batch_clean_up(struct engine_batch *batch);
/* Back to 0x5A. */
void engine_batch_clear(struct engine_batch *batch);
struct weir_step engine_step(const struct engine_batch *batch);

/* ---- the reference ---- */

/* Per stage, the micro-batches in the order in which its parameter gradients are added. */
struct engine_order {
    uint32_t at[ENGINE_STAGES_MAX][ENGINE_CHUNKS_MAX];
};
/* The order of a schedule's name: gpipe and looped-bfs are descending, all others ascending. */
void engine_order_of(struct engine_order *order, const char *schedule, uint32_t micro_batches);

struct engine_reference {
    struct engine_model *model;
    double *parameters[ENGINE_STAGES_MAX];
    double *gradients[ENGINE_STAGES_MAX]; /* of the first group, and in the end of all */
    double *further[ENGINE_STAGES_MAX][ENGINE_GROUPS_MAX];
    double *optimizer[ENGINE_STAGES_MAX];
    void *memory; /* of the step that runs */
    double loss, gradient_norm;
    bool updated;
};

struct engine_reference_options {
    uint32_t chunks;
    const struct engine_order *order;
    double clip_norm;
    bool infer;
    uint32_t groups; /* of gradients; 0: one */
};

/* torch.chunk's count, by its own arithmetic. */
uint32_t engine_chunk_count(int64_t rows, uint32_t chunks);
void engine_reference_init(struct engine_reference *reference, struct engine_model *model);
void engine_reference_clean_up(struct engine_reference *reference);
/* One mini-batch, unpipelined: outputs and input gradients go into `batch`. */
void engine_reference_step(struct engine_reference *reference, struct engine_batch *batch,
                           const struct weir_step *step,
                           const struct engine_reference_options *options);

/* ---- comparing, bit for bit ---- */

/* What came back in two batches. */
bool engine_expect_batches(const struct engine_batch *batch, const struct engine_batch *expected,
                           bool gradients);
/* Parameters, gradients and optimizer state. */
bool engine_expect_state(struct weir_pipe *pipe, const struct engine_reference *reference);
bool engine_expect_result(const struct weir_step_result *result,
                          const struct engine_reference *reference);

/* ---- all of it ---- */

/* A pipe, its batch, the reference and its batch: `open`, any number of `step`s, `close`. */
struct engine_trial {
    struct engine_model *model;
    struct weir_pipe *pipe;
    struct engine_batch batch, expected;
    struct engine_reference reference;
    struct engine_reference_options how;
    struct engine_order order;
    const char *schedule;  /* whose order it is; NULL: given */
    struct weir_step base; /* what steps are like: loss_weight, accumulation, no_update */
    struct weir_step_result result;
    uint64_t steps;
};

/* False, and the test failed, if the pipe is refused. `order` NULL: the schedule's. The model is
 * the caller's and must stay. */
bool engine_trial_open(struct engine_trial *trial, struct engine_model *model,
                       const struct weir_pipe_options *options, const struct engine_order *order);
/* A step of the options' rows on both, compared. */
bool engine_trial_step(struct engine_trial *trial);
bool engine_trial_infer(struct engine_trial *trial);
/* A step of other rows, which must have been prepared. */
bool engine_trial_rows(struct engine_trial *trial, int64_t rows, bool infer);
void engine_trial_close(struct engine_trial *trial);

/* Builds and destroys a pipe that must be refused with `status`, one line of the faults containing
 * `part`. */
bool engine_expect_refused(const struct weir_pipe_options *options, int status, const char *part);

/* ---- random models and tables (engine_random.c) ---- */

void engine_random_model(struct engine_model *model, uint32_t stages);
/* A random table that can be executed, as CSV: stages on workers at random, recomputes anywhere
 * between F and B (`late`: behind the gradient), some backwards split into I and W. `forward_only`
 * (or NULL) marks stages of which nothing but F is written. Returns the length. */
size_t engine_random_table(char *text, size_t capacity, uint32_t stages, uint32_t workers,
                           uint32_t micro_batches, bool late, const bool *forward_only,
                           struct engine_order *order);

/* A random model's options and what they point to. */
struct engine_random {
    struct weir_pipe_options options;
    enum weir_checkpoint stage_checkpoint[ENGINE_STAGES_MAX];
    struct engine_order order; /* where it has a table */
    bool has_table;
    char table[1 << 17];
};
/* Whether the schedule can be had for so many rows; interleaved and dualpipe-v not for all. */
bool engine_random_accepts(const struct engine_random *run, int64_t rows);
/* As many groups of gradients as torch.chunk can make of the rows; and their sums last, or not. */
void engine_random_groups(struct engine_random *run);
/* Whether no group is left empty. */
bool engine_fills_groups(uint32_t micro_batches, uint32_t groups);
/* `run` must stay where it is. */
void engine_random_choose(struct engine_random *run, struct engine_model *model);
void engine_random_describe(const struct engine_random *run, uint32_t number);

#endif
