/* SPDX-License-Identifier: MIT */
/**
 * Schedules: which worker does what, in which order, as a table of actions; made from a name, or
 * read and written as text. Part of weir.h, which includes it; errors and ownership are as there.
 * It stands by itself: a table needs no pipe, no stage and no device.
 *
 * @code
 *   struct weir_table_options options = WEIR_TABLE_OPTIONS_INIT;
 *   options.schedule = "zb-h1", options.stages = 4, options.micro_batches = 8;
 *   struct weir_table *table;
 *   int status = weir_table_new(&options, &faults, &table);
 *   size_t bytes = weir_table_format(table, false, text, sizeof text);   // "0F0,0F1,…"
 *   weir_table_destroy(table);
 * @endcode
 */
#ifndef WEIR_SCHEDULE_H
#define WEIR_SCHEDULE_H

#include "weir_base.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The kinds of action: X(NAME, letter, text). */
#define WEIR_KIND_MAP(X)                                                                           \
    X(F, 'F', "forward")                                                                           \
    X(R, 'R', "recompute")                                                                         \
    X(B, 'B', "backward")                                                                          \
    X(I, 'I', "backward input")                                                                    \
    X(W, 'W', "backward weight")                                                                   \
    X(N, 'N', "norm")                                                                              \
    X(U, 'U', "update")

enum weir_kind {
#define WEIR_KIND_ENUM(name, letter, text) WEIR_KIND_##name,
    WEIR_KIND_MAP(WEIR_KIND_ENUM)
#undef WEIR_KIND_ENUM
        WEIR_KIND_COUNT
};

struct weir_action {
    uint32_t micro_batch; /**< 0 for N and U */
    uint16_t stage;
    uint8_t kind; /**< enum weir_kind */
};

/** Which micro-batches of a stage are checkpointed. */
enum weir_checkpoint {
    WEIR_CHECKPOINT_DEFAULT, /**< except_last; in a per-stage override: the pipe's mode */
    WEIR_CHECKPOINT_ALWAYS,
    WEIR_CHECKPOINT_EXCEPT_LAST,
    WEIR_CHECKPOINT_NEVER
};

/** "always", "except_last", "never" to the mode, or WEIR_ERR_ARGUMENT. */
int weir_checkpoint_parse(const char *text, enum weir_checkpoint *mode);
/** The reverse. Static storage. */
const char *weir_checkpoint_name(enum weir_checkpoint mode);
/** How many of `micro_batches` the mode checkpoints: all, all but one, none. */
uint32_t weir_checkpoint_count(enum weir_checkpoint mode, uint32_t micro_batches);

/** A schedule: one ordered row of actions per worker. Which worker runs a stage is said by the rows
 * alone: each stage stands in one row. Plain data, read-only once made. */
struct weir_table {
    uint32_t stage_count;
    uint32_t worker_count;
    uint32_t micro_batch_count;
    uint32_t action_count;
    const uint32_t *rows;              /**< worker_count + 1 offsets into actions */
    const struct weir_action *actions; /**< action_count */
};

struct weir_search_options; /* weir_search.h */

/** What a schedule is a pure function of. */
struct weir_table_options {
    size_t size;
    const struct weir_allocator *allocator;
    const char *schedule; /**< a name of weir_schedule_name(), e.g. "1f1b" */
    uint32_t stages;
    uint32_t workers; /**< 0: stages / weir_schedule_virtual_stages. Fewer than stages: loop order,
                           or V order for zb-v, v-half, v-min, dualpipe-v and,
                           with two stages each, auto */
    uint32_t micro_batches;
    enum weir_checkpoint checkpoint;
    const enum weir_checkpoint *stage_checkpoint; /**< one per stage, or NULL */
    const bool *no_backward; /**< one per stage, or NULL: no R, B, I, W of a stage marked */
    bool recompute_late;     /**< R wait for the gradient: each stands directly before its B or I.
                                  Else it may stand earlier, where the worker would wait if an
                                  action took one unit and B two, and where it raises no peak of
                                  saved activations. Not for weir_table_parse */
    bool whole_backward;     /**< "auto" takes B alone, never I and W */
    const struct weir_search_options *search; /**< what "auto" goes by (weir_search.h), but for the
                                                   counts and modes above; NULL: unit times, no
                                                   limit */
};
#define WEIR_TABLE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        sizeof(struct weir_table_options), 0, "1f1b", 1, 0, 1, WEIR_CHECKPOINT_DEFAULT, 0, 0,      \
            false, false, 0                                                                        \
    }

/** The i-th schedule's name, NULL after the last. Static storage. */
const char *weir_schedule_name(uint32_t index);
/** Whether the name is that of a search by costs ("auto"), which takes milliseconds to seconds
 * where the others are filled in microseconds. */
bool weir_schedule_is_searched(const char *name);
/** How many stages each worker has where only the number of stages is given: 1, or 2 for those that
 * are made of several per worker. 0 for a name that no schedule has. */
uint32_t weir_schedule_virtual_stages(const char *name);
/** Whether each worker can have `count` stages. False for a name that no schedule has. */
bool weir_schedule_can_share(const char *name, uint32_t count);
/** Makes a table. WEIR_ERR_ARGUMENT with every reason and the nearest valid values in `faults`.
 * The table is the caller's: weir_table_destroy. */
int weir_table_new(const struct weir_table_options *options, struct weir_faults *faults,
                   struct weir_table **table);
/** Reads the CSV notation of torch.distributed.pipelining (`0F3`, one row per worker) with R, U and
 * (…;…)OVERLAP_F_B cells. Communication cells are skipped, each kind with a line in `notes`. `text`
 * need not end with a zero. The checkpoint options add the R that are missing directly before their
 * B or I; a text with any R of its own is taken as it is, whatever they say. Missing U go to the
 * row's end. R, B, I and W of stages marked in no_backward may stand in the text and are left out,
 * with a line in `notes`. `stages`, `workers` and `micro_batches` 0 are taken from the text.
 * WEIR_ERR_FORMAT names row and cell of every fault; WEIR_ERR_CONFIG: the text is for other counts,
 * both are named; WEIR_ERR_ARGUMENT: the options. Whether the table can run is weir_table_check's
 * question. */
int weir_table_parse(const struct weir_table_options *options, const char *text, size_t bytes,
                     struct weir_faults *faults, struct weir_faults *notes,
                     struct weir_table **table);
/** Writes the CSV into `text` (at most `capacity` bytes, always zero-terminated if capacity > 0)
 * and returns the bytes that the whole needs without the zero. `plain` leaves R and U out. */
size_t weir_table_format(const struct weir_table *table, bool plain, char *text, size_t capacity);
/** Proves a training table complete, free of duplicates and of deadlock: for each stage and
 * micro-batch one F and one B, or one I then one W. WEIR_ERR_SCHEDULE with every fault, naming the
 * action (or the actions that wait for each other). */
int weir_table_check(const struct weir_table *table, const struct weir_allocator *allocator,
                     struct weir_faults *faults);
/** Accepts NULL. */
void weir_table_destroy(struct weir_table *table);

#ifdef __cplusplus
}
#endif
#endif
