/* SPDX-License-Identifier: MIT */
/**
 * Models that benches train on two cores, and the shapes that they are trained in: stages,
 * schedule, micro-batches, threads.
 */
#ifndef WEIR_BENCH_TRAINING_H
#define WEIR_BENCH_TRAINING_H

#include "harness.h"
#include "weir_models.h"

enum { TRAINING_CORES = 2, TRAINING_STAGES_MOST = 8, TRAINING_CHUNKS = 8 /* train's default */ };

/** What is trained. The caller fills in what stands above `model`, training_make the rest. */
struct training_job {
    const char *topic; /**< in results */
    const char *level; /**< of the kernels: "v3" */
    enum weir_dtype dtype;
    uint32_t rows;
    uint32_t unit;   /**< layers that a cut is shifted by */
    uint32_t chunks; /**< that the planner is given; 0: train's default */
    bool adamw;      /**< with GPT-2's numbers and clipping; else SGD */
    struct weir_gpt_options gpt;
    struct weir_unet_options unet;           /**< depth 0: it is another one */
    struct weir_resnet_options resnet;       /**< classes 0: it is another one */
    struct weir_amoebanet_options amoebanet; /**< likewise */
    struct weir_decoder_options decoder;     /**< layers 0: it is another one; all: it is the GPT */
    uint32_t lora_rank;                      /**< of adapters, which alone learn; 0: none */

    struct weir_model *model;
    void *input, *target;
    double flops; /**< of a step */
    uint64_t parameters;
};

/** How. */
struct training_shape {
    const char *name;
    const char *schedule; /**< NULL: 1f1b of one stage, else zb-h1 */
    uint32_t stages, workers, chunks;
    uint32_t threads;                       /**< of a worker; 0: the cores divided */
    const char *bind;                       /**< as the pipe has it */
    uint32_t balance[TRAINING_STAGES_MOST]; /**< 0: by estimated costs */
    enum weir_checkpoint checkpoint[TRAINING_STAGES_MOST];
    bool recompute_late;
    const struct weir_world *world; /**< the ranks that have the workers; NULL: this process */
    char note[BENCH_NOTE_BYTES];    /**< all of it for people; training_new writes it */
};

struct training {
    const struct training_job *job;
    struct training_shape shape;
    struct weir_net *net;
    uint64_t steps;
};

/** Model, data and facts; --quick makes the model small. */
void training_make(struct bench *bench, struct training_job *job);
void training_job_clean_up(struct training_job *job);
/** With the first weights of a seed. Dies where it cannot be. `job` outlives it. */
void training_new(const struct training_job *job, const struct training_shape *shape,
                  struct training *out);
void training_clean_up(struct training *training);
/** Bytes of all its workers, as planned. */
uint64_t training_bytes(const struct training *training);
/** One step; its seconds. */
double training_step(struct training *training);
/** By the present weights, without dropout. */
double training_loss(struct training *training);
/** The mini-batch that steps take, numbered as the next one. */
struct weir_net_batch training_batch(const struct training *training);
/** A case's `sample`, of struct training: the faster of two steps. */
void training_sample(struct bench *bench, void *context, double *value);
/** The options that training_new makes of a shape, which they borrow from. */
struct weir_net_options training_options(const struct training_job *job,
                                         const struct training_shape *shape);

/* ---- shapes (training_shape.c) --------------------------------------------------------------- */

/** Of so many stages, each with a worker of its own: the fastest by a scan of micro-batches, then
 * of cuts near the one that the estimated costs give. */
struct training_shape training_best_shape(struct bench *bench, const struct training_job *job,
                                          const char *name, uint32_t stages);
/** What `weir train` chooses where `given` alone is given of the pipeline, words that end with a
 * NULL (or NULL: nothing): by estimates, with the job's micro-batches. Its name is "planned". */
struct training_shape training_planned_shape(struct bench *bench, const struct training_job *job,
                                             const char *const *given);

#endif
