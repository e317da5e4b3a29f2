/* SPDX-License-Identifier: MIT */
/**
 * `train --report`: what a run leaves on its page besides its pipe's own facts. Curves are
 * collected in bounded memory, a typical step's snapshot is taken before anything can push it out
 * of the trace, and the page is written once, however the run ended. Without --report all of this
 * does nothing.
 */
#ifndef WEIR_TOOLS_TRAIN_REPORT_H
#define WEIR_TOOLS_TRAIN_REPORT_H

#include "cli/args.h"
#include "base/pool.h"
#include "weir_report.h"

enum { CURVE_POINTS = 4096, CURVE_VALUES = 4 };

/** Values over updates. When it is full, neighbours are averaged and from then on twice as many
 * updates make a point. */
struct curve {
    uint32_t count, value_count;
    uint32_t stride, pending; /**< updates per point; of the point that is being made */
    double sum_x, sums[CURVE_VALUES];
    double x[CURVE_POINTS], values[CURVE_VALUES][CURVE_POINTS];
};

void curve_init(struct curve *curve, uint32_t value_count);
void curve_add(struct curve *curve, double x, const double *values);
/** Makes a point of what is pending. */
void curve_finish(struct curve *curve);

struct train;
struct train_line;
struct task_score;

struct train_report {
    struct weir__pool pool;
    const char *command;      /**< as it was typed, quoted for a shell */
    struct curve updates;     /**< loss, gradient norm, rate, seconds */
    struct curve validations; /**< loss, metric */
    struct weir_snapshot *snapshot;
    bool written;
};

/** Before the command line is parsed, which changes it: argv[0] is the subcommand. The result, NULL
 * without memory, is the caller's: train_report_destroy. */
struct train_report *train_report_new(int argc, char **argv);
/** Accepts NULL. */
void train_report_destroy(struct train_report *report);

void train_report_update(struct train *t, const struct train_line *line);
void train_report_validation(struct train *t, uint64_t step, const struct task_score *score);
/** Takes a typical step out of the trace: before inference, which would push it out, and before the
 * page is written. */
int train_report_keep(struct train *t);
/** Writes the page, unless it has been; `failure` (NULL: none) says why the run went no further. */
int train_report_write(struct train *t, const char *failure);

/** The command line that repeats the run: folder, environment, words, and what was automatic. From
 * `pool`, NULL without memory. */
const char *train_report_command(const struct train *t, struct weir__pool *pool);
/** argv[1…] quoted for a shell. From `pool`, NULL without memory. */
const char *train_report_words(struct weir__pool *pool, int argc, char **argv);
/** All options and the values that the run took, what was given on the command line stands out;
 * `facts` has room for ARGS_OPTIONS_MAX. Returns how many, or 0 without memory. */
uint32_t train_report_options(const struct train *t, struct weir__pool *pool,
                              struct weir_report_fact *facts);

#endif
