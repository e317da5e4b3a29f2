/* SPDX-License-Identifier: MIT */
/** The words of a `train` command that is started again, and what they say of its checkpoints. */
#ifndef WEIR_TOOLS_LAUNCH_TRAIN_H
#define WEIR_TOOLS_LAUNCH_TRAIN_H

#include "cli/saved.h"
#include "cmd/launch_job.h"

/** How many ranks a start has, and how they share the work. */
struct launch_share {
    uint32_t ranks, replicas, workers; /**< workers: of all replicas */
};

struct launch_train {
    int count; /**< of words behind "train" */
    char **words;
    const char *save; /**< where it saves to; NULL: nowhere */
    const char *resume, *log_dir;
    bool saves_often;          /**< --save-every */
    double start_timeout;      /**< seconds: --start-timeout, or what follows from --peer-timeout */
    bool names_pipeline;       /**< --workers, --stages or --balance */
    struct saved before;       /**< at `save`, before the first start */
    bool log_is_foreign;       /**< `log_dir` had metrics then, which no start of this job wrote */
    struct launch_share whole; /**< of the first start */
    uint32_t groups;           /**< --gradient-groups, or what follows from --replicas */
};

/** Reads what is behind "train", which begins on so many ranks. */
void launch_train_read(struct launch_train *train, int count, char **words, uint32_t ranks);
/** What so many ranks, or fewer of them, share: as many replicas as may be, each of no more ranks
 * than at first, and of as many workers. */
struct launch_share launch_train_share(const struct launch_train *train, uint32_t ranks);
/** Whether it resumes from a FILE-STEP or FILE-best and does not say where it saves, which `train`
 * then takes to be FILE. */
bool launch_train_has_suffix(const struct launch_train *train);
/** Whether a checkpoint of this job is there to go on from. */
bool launch_train_has_saved(const struct launch_train *train);
/** Removes what a run that begins anew would take for another's: metrics that this job wrote. */
void launch_train_forget_log(const struct launch_train *train);
/** Adds "train" and its words, which go on from that checkpoint if there is one, for a share:
 * workers are given unless the pipeline is named otherwise. `texts` hold numbers, until the command
 * has ended. False: too many words. */
bool launch_train_add(const struct launch_train *train, const struct launch_share *share,
                      char texts[3][16], struct launch_words *command);

#endif
