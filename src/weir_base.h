/* SPDX-License-Identifier: MIT */
/**
 * What all of Weir's headers speak of: statuses, memory, faults, tensors. Included by weir.h, which
 * is the place to begin.
 */
#ifndef WEIR_BASE_H
#define WEIR_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
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
    X(ERR_DEVICE, -23, "a device failed")

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
 * are counted too. What a name from a file brings along stays one line that does nothing to a
 * terminal: control characters and bytes that are no UTF-8 are written like \x1b or \n. */
struct weir_faults {
    const struct weir_allocator *allocator; /**< NULL: the default */
    char **lines;                           /**< owned; `kept` of them */
    uint32_t kept;
    uint32_t capacity;
    uint32_t count; /**< how many were reported, kept or not */
};
#define WEIR_FAULTS_INIT                                                                           \
    { 0, 0, 0, 0, 0 }

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

#ifdef __cplusplus
}
#endif
#endif
