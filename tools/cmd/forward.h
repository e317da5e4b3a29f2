/* SPDX-License-Identifier: MIT */
/** What `weir eval` and `weir predict` share: trained weights, all rows of some data, and a pipe
 * that only infers. */
#ifndef WEIR_TOOLS_FORWARD_H
#define WEIR_TOOLS_FORWARD_H

#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/pipe_options.h"
#include "cmd/task.h"

struct forward_values {
    struct model_options model;
    struct pipe_options pipe;
    const char *load, *json;
    struct arg_paths data;
    uint32_t batch;
    struct ranks_times times;
    uint32_t form; /**< --template, of eval */
    bool no_pack;  /**< likewise */
};

/** What runs through which weights, and the summary for programs; the model's options and the
 * pipeline's follow in sections of their own. */
extern const struct arg_option forward_option_list[];
extern const uint32_t forward_option_count;

/** A run. Zeroed but for values, args, faults, error and net options; then cleaned up as a whole.
 */
struct forward {
    struct forward_values *values;
    const struct args *args;
    struct weir_faults *faults;
    struct weir_error *error;
    struct people people;
    struct ranks ranks;
    struct weir_model *model;
    struct weir_net *net;
    struct pipe_storage storage;
    struct weir_net_options options;
    const char *out;  /**< another file that will be written, or NULL; set before forward_begin */
    struct task task; /**< `predicts` is set before forward_begin */
    uint64_t rows;    /**< done */
    double seconds;
};

/** Joins the launcher's world, opens data, builds the net and loads the weights. Faults are listed
 * as far as they can be found. On ranks but 0 `out` and the values' `json` are NULL from then on.
 */
int forward_begin(struct forward *f, const struct arg_command *command);
/** Gives all rows to `visit`, at most a mini-batch at a time, until one fails or Ctrl-C comes to
 * any rank. All ranks visit, for all run the steps. */
typedef int forward_visit_fn(void *context, uint64_t first, uint32_t rows);
int forward_rows(struct forward *f, forward_visit_fn *visit, void *context);
/** Whether Ctrl-C left some rows out. */
bool forward_stopped(const struct forward *f);
/** Bytes, tokens or samples that went through, and how many a second. */
double forward_units(const struct forward *f);
double forward_rate(const struct forward *f);
/** Says what went wrong, gives all back and leaves the world; the exit code. */
int forward_end(struct forward *f, int status);

#endif
