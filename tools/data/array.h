/* SPDX-License-Identifier: MIT */
/**
 * Arrays in files: what the readers of .npy (data/npy.h) and IDX (data/idx.h) give, and how their
 * numbers are read, in pieces and at any place, without mapping or loading the file.
 *
 * An open array has been checked against its file's size: every number that its shape names is
 * there. Sizes are checked products; nothing is allocated by what a file says.
 *
 * Statuses, besides data/source.h's: WEIR_ERR_FORMAT (the file breaks its format's rules: the
 * message names the file and the numbers), WEIR_ERR_UNSUPPORTED (it is good, but not read here). An
 * open array is read-only: any number of threads, each with an io of its own.
 */
#ifndef WEIR_IO_ARRAY_H
#define WEIR_IO_ARRAY_H

#include "data/source.h"

#define WEIR__ARRAY_RANK_MAX 8

/** Types of numbers in array files: X(NAME, bytes, text). */
#define WEIR__NUMBER_MAP(X)                                                                        \
    X(BOOL, 1, "bool")                                                                             \
    X(U8, 1, "u8")                                                                                 \
    X(I8, 1, "i8")                                                                                 \
    X(I16, 2, "i16")                                                                               \
    X(I32, 4, "i32")                                                                               \
    X(I64, 8, "i64")                                                                               \
    X(F32, 4, "f32")                                                                               \
    X(F64, 8, "f64")

enum weir__number {
#define WEIR__NUMBER_ENUM(name, bytes, text) WEIR__NUMBER_##name,
    WEIR__NUMBER_MAP(WEIR__NUMBER_ENUM)
#undef WEIR__NUMBER_ENUM
        WEIR__NUMBER_COUNT
};

/** Bytes of one number. */
size_t weir__number_bytes(enum weir__number number);
/** "u8" … Static storage. */
const char *weir__number_name(enum weir__number number);
/** Whether it is f32 or f64. */
bool weir__number_is_real(enum weir__number number);

struct weir__array {
    struct weir__source source;
    enum weir__number number;
    bool big_endian;
    uint32_t rank;
    int64_t shape[WEIR__ARRAY_RANK_MAX]; /**< each >= 0, the first is slowest ("C order") */
    uint64_t count;                      /**< numbers in all: the product of the shape */
    uint64_t offset;                     /**< bytes before the first number */
};

/** Opens a .npy, also one in a .npz (data/npz.h), or an IDX file, whichever its first bytes say;
 * what is neither: WEIR_ERR_FORMAT.
 * The array is in the caller's memory: weir__array_close. Written only on success. */
int weir__array_open(const struct weir__io *io, const char *path, struct weir__array *array);
/** Accepts a zeroed one. */
void weir__array_close(struct weir__array *array);
/** "u8 [60000, 28, 28]" into `text`, cut if need be; for messages. Returns `text`. */
const char *weir__array_text(const struct weir__array *array, char *text, size_t capacity);

/** Numbers first … first + count - 1 (all below array->count) as floats, rounded to nearest; bool
 * is 0 or 1 (any byte but 0 counts as 1). Of `io` only the error is used, here and below. */
int weir__array_read_f32(const struct weir__array *array, const struct weir__io *io, uint64_t first,
                         uint64_t count, float *out);
/** The same as doubles. */
int weir__array_read_f64(const struct weir__array *array, const struct weir__io *io, uint64_t first,
                         uint64_t count, double *out);
/** The same as integers; the array must not hold f32 or f64 (assert). */
int weir__array_read_i64(const struct weir__array *array, const struct weir__io *io, uint64_t first,
                         uint64_t count, int64_t *out);

/** For readers of formats: opens `path`, has `read` find number, shape and offset, and checks the
 * size. As weir__array_open. */
typedef int weir__array_read_fn(const struct weir__io *io, struct weir__array *array);
int weir__array_open_by(const struct weir__io *io, const char *path, weir__array_read_fn *read,
                        struct weir__array *array);
/** For readers of formats: fills `count` from the shape, whose sizes are >= 0, and checks that the
 * file has exactly its numbers behind `offset`. */
int weir__array_check_size(const struct weir__io *io, struct weir__array *array);

#endif
