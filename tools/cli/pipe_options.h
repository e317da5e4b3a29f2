/* SPDX-License-Identifier: MIT */
/**
 * The pipeline's options, shared by train, grad and plan, and what they make of struct
 * weir_net_options.
 */
#ifndef WEIR_TOOLS_PIPE_OPTIONS_H
#define WEIR_TOOLS_PIPE_OPTIONS_H

#include "cli/args.h"
#include "io/file.h"
#include "weir_net.h"

/** Rows of option tables for what makes a schedule's table, whose numbers lie at `at`; further
 * members (fallback, help) follow. A count is at least 1. */
#define PIPE_COUNT_OPTION(key, letter, at, ...)                                                    \
    { .name = (key), .type = ARG_U32, .offset = (at), .value = (letter), .least = 1, __VA_ARGS__ }
#define PIPE_CHOICE_OPTION(key, names, at, ...)                                                    \
    { .name = (key), .type = ARG_CHOICE, .offset = (at), .choices = (names), __VA_ARGS__ }
/** The schedules with `between` between them, and as help lists them. */
#define PIPE_SCHEDULE_LIST(between)                                                                \
    "gpipe" between "1f1b" between "interleaved" between "looped-bfs" between "zb-h1" between      \
    "zb-h2" between "zb-v" between "v-half" between "v-min" between "dualpipe-v"
#define PIPE_SCHEDULES PIPE_SCHEDULE_LIST(", ")
/** Choices, NULL behind the last. */
extern const char *const pipe_schedule_names[];
extern const char *const pipe_checkpoint_names[];
extern const char *const pipe_recompute_names[];

struct pipe_options {
    uint32_t stages;
    struct arg_numbers balance;
    uint32_t balance_by; /**< cost, time, size */
    const char *profile;
    uint32_t workers, virtual_stages, chunks;
    const char *schedule;
    const char *checkpoint; /**< always, except_last or never; or one per stage, by commas */
    uint32_t recompute;     /**< early, late */
    struct arg_texts device;
    uint32_t dtype; /**< f32, bf16, f64 */
    const char *level;
    uint32_t threads_per_stage;
    const char *bind;
    uint32_t wait; /**< auto, spin, park */
    uint64_t seed;
    uint64_t memory_limit;
    double watchdog;
    uint32_t replicas, gradient_groups; /**< 0 in commands that have no such options */
};

enum { PIPE_BALANCE_BY_COST, PIPE_BALANCE_BY_TIME, PIPE_BALANCE_BY_SIZE };

extern const struct arg_option pipe_option_list[];
extern const uint32_t pipe_option_count;
/** Of commands that train, or plan that: they are of the same struct. */
extern const struct arg_option pipe_share_list[];
extern const uint32_t pipe_share_count;
/** Of commands that have them and no --plan: those that infer, and others. */
extern const struct arg_refusal pipe_infer_refusals[], pipe_refusals[];

/** What the filled options point to; lives as long as they are used. */
struct pipe_storage {
    struct pipe_options own;  /**< as given, but of one replica */
    struct weir__bytes table; /**< a --schedule FILE.csv */
    const char *devices[ARG_LIST_MAX];
    uint32_t *sizes;              /**< the balance that --balance-by chose, or NULL */
    struct weir_profile *profile; /**< the measured times that it used, or NULL */
    enum weir_checkpoint checkpoint[ARG_LIST_MAX]; /**< of the stages, where they differ */
};

/** Checks what the command line can know (every fault is a line) and fills `net`, all but rows,
 * optimizer and loss. `storage` must outlive the use of `net`: pipe_storage_clean_up. */
int pipe_options_fill(const struct pipe_options *options, const struct args *args,
                      const struct weir_model *model, struct pipe_storage *storage,
                      struct weir_net_options *net, struct weir_faults *faults);
void pipe_storage_clean_up(struct pipe_storage *storage);
/** Stages per worker: asked for, or the schedule's default. */
uint32_t pipe_virtual_stages(const struct pipe_options *options);
/** "always", "early", "f32" … of the options, for summaries. */
const char *pipe_checkpoint_text(const struct pipe_options *options);
const char *pipe_recompute_text(const struct pipe_options *options);
const char *pipe_dtype_text(const struct pipe_options *options);

#endif
