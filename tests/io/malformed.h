/* SPDX-License-Identifier: MIT */
/**
 * Malformed files, each with the status and a piece of the message that it must be refused with. A
 * table for each format: tests/malformed_<format>.c. What they are for: test_malformed.c.
 */
#ifndef WEIR_TESTS_MALFORMED_H
#define WEIR_TESTS_MALFORMED_H

#include "harness.h"
#include "io/file.h"

/** One file. */
struct malformed {
    const char *name; /**< what is wrong with it; unique in its format */
    int status;
    const char *part; /**< of the message, or of one of the faults */
    const char *text;
    size_t text_bytes;
    size_t zeros; /**< bytes of zero behind the text */
    bool raw;     /**< the text is the file as it is, whatever `write` of the set does */
};

/** Of string literals, so that zeros inside are kept. */
#define MALFORMED(what, status, part, text, zeros)                                                 \
    { what, status, part, text, sizeof(text) - 1, zeros, false }
#define MALFORMED_RAW(what, status, part, text)                                                    \
    { what, status, part, text, sizeof(text) - 1, 0, true }

/** A format. */
struct malformed_set {
    const char *format;
    const struct malformed *list;
    size_t count;
    /** The file's bytes of one that is not raw into `bytes`, which has room for `text_bytes` +
     * `zeros` + 2,048; returns how many. NULL: text and zeros as they are. */
    size_t (*write)(const struct malformed *malformed, char *bytes);
    /** Reads the file as Weir does, and gives everything back; the message (or all faults) into
     * `message`. Returns the status. */
    int (*read)(const struct weir__io *io, const char *path, char *message, size_t capacity);
    /** A sound file of which every shorter beginning is refused with WEIR_ERR_FORMAT; or NULL. */
    const struct malformed *whole;
};

extern const struct malformed_set malformed_safetensors;
extern const struct malformed_set malformed_csv;
extern const struct malformed_set malformed_npy;
extern const struct malformed_set malformed_idx;
extern const struct malformed_set malformed_tokens;
extern const struct malformed_set malformed_model;

/** Every set, in the order of the tests; NULL ends it. */
const struct malformed_set *malformed_set_at(size_t index);
/** The bytes of a file, at most `text_bytes` + `zeros` + 2,048 of them, free() them; NULL and the
 * test failed where there is no memory. */
char *malformed_bytes(const struct malformed_set *set, const struct malformed *malformed,
                      size_t *bytes);

#endif
