/* SPDX-License-Identifier: MIT */
/**
 * What the simulate and schedules benches train: models that are cut into up to SUBJECT_STAGES_MOST
 * stages (or into single layers) on one or two workers, and runs of them that are sampled.
 */
#ifndef WEIR_BENCH_SUBJECT_H
#define WEIR_BENCH_SUBJECT_H

#include "steps.h"
#include "weir_net.h"

#include "weir_net.h"

enum { SUBJECT_WORKERS = 2, SUBJECT_STAGES_MOST = 4, SUBJECT_ROWS_MOST = 16 };

struct subject {
    const char *name;
    uint32_t steps_per_sample; /**< their median is the sample */
    uint32_t rows;             /**< of a step where nothing else is asked for */
    /** What all trials share; the run's memory. */
    void *(*new_context)(struct bench *bench);
    void (*destroy_context)(void *context);
    /** Layers that a cut can stand between; NULL: stages are of equal cost as they are. */
    uint32_t (*layers)(void *context);
    /** What a net is made of, the context's; NULL: stages are callbacks of the bench. */
    const struct weir_model *(*model)(void *context);
    /** A pipe built as `how` says in schedule, workers, rows, chunks, checkpoint and threads.
     * `balance` NULL: automatic. */
    void *(*open)(struct bench *bench, void *context, const struct weir_pipe_options *how,
                  uint32_t stages, const uint32_t *balance);
    struct weir_pipe *(*pipe)(void *trial);
    /** A training step without update, always of the same rows. Dies on a failure. */
    void (*step)(void *trial, struct weir_step_result *result);
    /** Of all gradients of parameters, in layer order. */
    uint64_t (*hash)(void *trial);
    void (*close)(void *trial);
};

/** Callbacks that keep a core busy for times that are chosen: unequal from stage to stage, or of
 * one model of equal parts, F, R, I and W alike. */
extern const struct subject subject_busy, subject_equal;
/** A small GPT, and a small U-Net, whose skips cross; and larger ones: the default GPT of `weir
 * train` with fewer rows, and a U-Net of full depth. */
extern const struct subject subject_gpt, subject_unet, subject_gpt_default, subject_unet_deep;

/** A context for subject_gpt of sizes of one's own (--quick makes them small), with data for `rows`
 * rows. */
void *subject_gpt_context(struct bench *bench, struct weir_gpt_options gpt, uint32_t rows);
/** The net of a trial of a network. */
struct weir_net *subject_net(void *trial);

/** A trial that is sampled. Zeroed but for subject, trial and name. */
struct subject_run {
    const struct subject *subject;
    void *trial;
    char name[BENCH_NAME_BYTES];
    struct steps steps; /**< steps_per_sample for each sample */
    double *bubbles;    /**< of each sample's last step */
    double loss;
    uint64_t hash;
    bool warm;
};

/** Whether there is such a table of SUBJECT_WORKERS workers. */
bool subject_fits(const char *schedule, uint32_t stages, uint32_t micro_batches);
/** A bench_case's `sample`, in seconds by the steps' own stamps; the first one warms up and has no
 * value. `context` is the struct subject_run. */
void subject_sample(struct bench *bench, void *context, double *value);
/** Runs one more step; whether loss and gradients are the first one's bits. */
bool subject_same_again(struct subject_run *run);

#endif
