/* SPDX-License-Identifier: MIT */
/**
 * What all of Weir's headers speak of: statuses, memory, faults, tensors; and schedules, which
 * stand by themselves. Included by weir.h, which is the place to begin.
 *
 * Options. A struct of options, a stage or a step has an initialiser, WEIR_…_INIT, which sets every
 * member: those that it does not name to 0, NULL or false. Where the struct may grow, `size` is its
 * first member, set by the initialiser to the struct's own size. A call refuses any other size with
 * WEIR_ERR_ARGUMENT: then the header and the library are of different versions. The initialisers
 * name members, as C99 and C++20 do; earlier C++ takes that from GCC and Clang as an extension,
 * for which these headers, in C++, count as system headers.
 */
#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#pragma GCC system_header
extern "C" {
#endif

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0

/* ---- status ---------------------------------------------------------------------------------- */

/** Every status of the library: X(NAME, value, text). Values are part of the interface. */
#define WEIR_STATUS_MAP(X)                                                                         \
    X(OK, 0, "done")                                                                               \
    X(ERR_OUT_OF_MEMORY, -1, "out of memory")                                                      \
    X(ERR_ARGUMENT, -2, "an argument is not valid")                                                \
    X(ERR_CONFIG, -3, "the configuration is refused")                                              \
    X(ERR_SKIP, -4, "skip connections do not match")                                               \
    X(ERR_SCHEDULE, -5, "the schedule cannot be executed")                                         \
    X(ERR_MEMORY_LIMIT, -6, "the plan needs more memory than the limit")                           \
    X(ERR_ROWS, -7, "this row count was not prepared")                                             \
    X(ERR_BUSY, -8, "the pipe is in use, or a step of it that was given up has not ended")         \
    X(ERR_TIMEOUT, -9, "a callback or a device's work did not end within the watchdog's limit")    \
    X(ERR_NONFINITE, -10, "the gradient is not finite")                                            \
    X(ERR_TORN, -11, "an update failed half way: parameters are torn")                             \
    X(ERR_PORTAL, -12, "a portal was used out of turn")                                            \
    X(ERR_SHAPE, -13, "shapes or dtypes do not fit")                                               \
    X(ERR_NOT_FOUND, -14, "not found")                                                             \
    X(ERR_EXISTS, -15, "exists already")                                                           \
    X(ERR_FORMAT, -16, "the file is malformed")                                                    \
    X(ERR_IO, -17, "input or output failed")                                                       \
    X(ERR_UNSUPPORTED, -18, "not supported here")                                                  \
    X(ERR_SYSTEM, -19, "the operating system refused")                                             \
    X(ERR_OVERFLOW, -20, "a size overflows")                                                       \
    X(ERR_CALLBACK, -21, "a callback failed")                                                      \
    X(ERR_BACKEND, -22, "a numerical library, or a device's driver, failed")                       \
    X(ERR_DEVICE, -23, "a device failed")                                                          \
    X(ERR_LOSS, -24,                                                                               \
      "no such loss, or one without target: take cross_entropy, bce_with_logits, mse, or NULL")    \
    X(ERR_PEER, -25, "another process of the world, or the way to it, failed")

enum weir_status {
#define WEIR_STATUS_ENUM(name, value, text) WEIR_##name = (value),
    WEIR_STATUS_MAP(WEIR_STATUS_ENUM)
#undef WEIR_STATUS_ENUM
};

/** The status's name without its prefix, e.g. "ERR_SKIP"; "ERR_CALLBACK" for a positive value,
 * "UNKNOWN" for any other. Static storage. */
const char *weir_status_name(int status);
/** One sentence without full stop for people. Static storage. */
const char *weir_status_text(int status);
/** "0.1.0". Static storage. */
const char *weir_version(void);

/* ---- memory, logs, faults -------------------------------------------------------------------- */

/** Where the library's own (host) memory comes from. Both members are required. Thread-safe if
 * pipes are used from several threads. `alignment` is a power of two. `release` gets the size that
 * was acquired; releasing NULL does nothing. Never called during a step. */
struct weir_allocator {
    void *(*acquire)(void *context, size_t bytes, size_t alignment);
    void (*release)(void *context, void *memory, size_t bytes);
    void *context;
};

/** The C library's aligned_alloc and free; what NULL means everywhere. Static storage. */
const struct weir_allocator *weir_allocator_default(void);

/** Receives one line of text without newline; may be called from any worker. */
typedef void weir_log_fn(void *context, const char *line);

/** A list of everything that is wrong with a configuration, one line per fault, each saying how to
 * mend it. Lives in the caller's memory: WEIR_FAULTS_INIT, then weir_faults_clean_up. Bounded: at
 * most 256 lines of 512 bytes are kept, the count goes on. Lines that no memory could be had for
 * are counted too; one that is there already is not added again. What a name from a file brings
 * along stays one line that does nothing to a terminal: control characters and bytes that are no
 * UTF-8 are written like \x1b or \n. */
struct weir_faults {
    const struct weir_allocator *allocator; /**< NULL: the default */
    char **lines;                           /**< owned; `kept` of them */
    uint32_t kept;
    uint32_t capacity;
    uint32_t count; /**< how many were reported, kept or not */
};
#define WEIR_FAULTS_INIT                                                                           \
    { .count = 0 }

/** Frees what `faults` holds and makes it empty again. Accepts NULL. */
void weir_faults_clean_up(struct weir_faults *faults);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
/** Adds one line, printf-like. Accepts NULL (does nothing). */
void weir_faults_add(struct weir_faults *faults, const char *format, ...);

/* ---- tensors --------------------------------------------------------------------------------- */

/** Every dtype: X(NAME, bytes, text, safetensors name). */
#define WEIR_DTYPE_MAP(X)                                                                          \
    X(F32, 4, "f32", "F32")                                                                        \
    X(F64, 8, "f64", "F64")                                                                        \
    X(BF16, 2, "bf16", "BF16")                                                                     \
    X(F16, 2, "f16", "F16")                                                                        \
    X(I64, 8, "i64", "I64")                                                                        \
    X(I32, 4, "i32", "I32")                                                                        \
    X(U8, 1, "u8", "U8")                                                                           \
    X(BOOL, 1, "bool", "BOOL")

enum weir_dtype {
#define WEIR_DTYPE_ENUM(name, bytes, text, file) WEIR_##name,
    WEIR_DTYPE_MAP(WEIR_DTYPE_ENUM)
#undef WEIR_DTYPE_ENUM
        WEIR_DTYPE_COUNT
};

/** Bytes of one element. */
size_t weir_dtype_bytes(enum weir_dtype dtype);
/** "f32" … */
const char *weir_dtype_name(enum weir_dtype dtype);
/** True for F32, F64, BF16, F16: only these may be differentiable. */
bool weir_dtype_is_float(enum weir_dtype dtype);

#define WEIR_RANK_MAX 6

/** A tensor that crosses a border: its shape is without the row dimension, which comes first and
 * whose size is the micro-batch's row count. Rank 0 is one number per row. */
struct weir_tensor {
    enum weir_dtype dtype;
    uint32_t rank;
    int64_t shape[WEIR_RANK_MAX];
    bool differentiable; /**< a gradient flows back through it; floating point only */
};

/** A tensor's data in a task: contiguous, 64-byte aligned where Weir owns it, `rows` rows. */
struct weir_view {
    void *data; /**< NULL: an empty skip, or a gradient that does not exist (reads as zero) */
    int64_t rows;
};

/* ---- schedules: tables of actions ------------------------------------------------------------ */

/**
 * Schedules: which worker does what, in which order, as a table of actions; made from a name, or
 * read and written as text. Errors and ownership are as in weir.h. A table needs no pipe, no stage
 * and no device.
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

/** The kinds of action: ENTRY(NAME, letter, text). */
#define WEIR_KIND_MAP(ENTRY)                                                                       \
    ENTRY(F, 'F', "forward")                                                                       \
    ENTRY(R, 'R', "recompute")                                                                     \
    ENTRY(B, 'B', "backward")                                                                      \
    ENTRY(I, 'I', "backward input")                                                                \
    ENTRY(W, 'W', "backward weight")                                                               \
    ENTRY(N, 'N', "norm")                                                                          \
    ENTRY(U, 'U', "update")

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

/** A schedule: one ordered line of actions per worker. Which worker runs a stage is said by the
 * lines alone: each stage stands in one line. Plain data, read-only once made. */
struct weir_table {
    uint32_t stage_count;
    uint32_t worker_count;
    uint32_t micro_batch_count;
    uint32_t action_count;
    const uint32_t *lines;             /**< worker_count + 1 offsets into actions */
    const struct weir_action *actions; /**< action_count */
};

struct weir_search_options; /* weir_predict.h */

/** What a schedule is a pure function of. */
struct weir_table_options {
    size_t size;
    const struct weir_allocator *allocator;
    const char *schedule; /**< a name of weir_schedule_name(), e.g. "1f1b" */
    uint32_t stages;
    uint32_t workers; /**< 0: stages / weir_schedule_virtual_stages. Fewer than stages: loop order,
                           or V order for zb-v (whose last worker may have one), v-half, v-min,
                           dualpipe-v and, with two stages each, auto */
    uint32_t micro_batches;
    enum weir_checkpoint checkpoint;
    const enum weir_checkpoint *stage_checkpoint; /**< one per stage, or NULL */
    const bool *no_backward; /**< one per stage, or NULL: no R, B, I, W of a stage marked */
    bool recompute_late;     /**< R wait for the gradient: each stands directly before its B or I.
                                  Else it may stand earlier, where the worker would wait if an
                                  action took one unit and B two, and where it raises no peak of
                                  saved activations. Not for weir_table_parse */
    bool whole_backward;     /**< "auto" takes B alone, never I and W */
    const struct weir_search_options *search; /**< what "auto" goes by (weir_predict.h), but for the
                                                   counts and modes above; NULL: unit times, no
                                                   limit */
};
#define WEIR_TABLE_OPTIONS_INIT                                                                    \
    {                                                                                              \
        .size = sizeof(struct weir_table_options), .schedule = "1f1b", .stages = 1,                \
        .micro_batches = 1                                                                         \
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
/** Room for the text below. */
#define WEIR_ORDER_BYTES 24
/** In which order a stage adds the gradients of its micro-batches up, as its B or W stand in its
 * line: "ascending", "descending", or 16 hexadecimal digits that are the same for the same order.
 * Rounding makes it part of what decides a result's bits, so who continues what another table began
 * compares these. Returns whether all stages have one order: then it is that order's text, however
 * many stages there are. Else it is of all stages together, and the cut into stages decides bits
 * too. Where nothing is added up it is ascending. */
bool weir_table_order(const struct weir_table *table, char text[WEIR_ORDER_BYTES]);
/** Accepts NULL. */
void weir_table_destroy(struct weir_table *table);

#ifdef __cplusplus
}
#endif
#endif
