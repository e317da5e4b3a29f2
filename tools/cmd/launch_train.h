/* SPDX-License-Identifier: MIT */
/** The words of a `train` command that is started again, and what they say of its checkpoints. */
#ifndef WEIR_TOOLS_LAUNCH_TRAIN_H
#define WEIR_TOOLS_LAUNCH_TRAIN_H

#include "cli/saved.h"
#include "cmd/launch_job.h"

struct launch_train {
    int count; /**< of words behind "train" */
    char **words;
    const char *save; /**< where it saves to; NULL: nowhere */
    const char *resume, *log_dir;
    bool saves_often;    /**< --save-every */
    bool names_pipeline; /**< --workers, --stages or --balance */
    struct saved before; /**< at `save`, before the first start */
};

/** Reads what is behind "train". */
void launch_train_read(struct launch_train *train, int count, char **words);
/** Whether it resumes from a FILE-STEP or FILE-best and does not say where it saves, which `train`
 * then takes to be FILE. */
bool launch_train_has_suffix(const struct launch_train *train);
/** Whether a checkpoint of this job is there to go on from. */
bool launch_train_has_saved(const struct launch_train *train);
/** Adds "train" and its words, which go on from that checkpoint if there is one; `workers`
 * (decimal) are given unless the pipeline is named. False: too many words. */
bool launch_train_add(const struct launch_train *train, const char *workers,
                      struct launch_words *command);

#endif
