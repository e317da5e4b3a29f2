/* SPDX-License-Identifier: MIT */
/**
 * `train --log-dir DIR`: a line per update in DIR/metrics.csv, and the same as scalars in an event
 * file for TensorBoard. Both grow while the run goes on. A resumed run goes on in the same files,
 * from its checkpoint on. That they cannot be written any more is said once and costs no training.
 */
#ifndef WEIR_TOOLS_TRAIN_LOG_H
#define WEIR_TOOLS_TRAIN_LOG_H

#include "weir.h"

#include <limits.h>
#include <stdio.h>

struct train;
struct train_line;
struct task_score;

/** In DIR. An event file has a name of its own in every run. */
#define TRAIN_LOG_CSV "metrics.csv"

/** Zeroed: nothing is logged. */
struct train_log {
    FILE *csv;
    int events; /**< a descriptor, where csv is; -1: none */
    char csv_path[PATH_MAX], events_path[PATH_MAX];
};

/** Adds faults: no folder, or the log of another run in it. */
void train_log_check(const struct train *t);
/** Opens both files, behind what the resumed run had done. Without --log-dir nothing happens, here
 * and below. `log` is t's. */
int train_log_begin(struct train *t, struct train_log *log);
/** After an update, with its validation if one followed. */
void train_log_update(const struct train *t, struct train_log *log, const struct train_line *line);
/** A validation that followed no update's line: the last one. */
void train_log_validation(const struct train *t, struct train_log *log, uint64_t update,
                          const struct task_score *score);
void train_log_end(struct train_log *log);

#endif
