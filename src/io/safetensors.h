/* SPDX-License-Identifier: MIT */
/**
 * safetensors files: an 8-byte little-endian length, a JSON header of that length, and one buffer
 * that the header's offsets cover exactly (github.com/huggingface/safetensors).
 *
 * The reader trusts nothing. It refuses, each with its own message that names the file, the tensor
 * and the numbers (WEIR_ERR_FORMAT):
 *   1. a file shorter than 8 bytes;
 *   2. a header longer than the limit (100,000,000 bytes, as the reference has it);
 *   3. a header that reaches past the end of the file;
 *   4. a header that does not begin with '{';
 *   5. a header that is not UTF-8;
 *   6. a header that is not one JSON object, or has a key twice;
 *   7. an entry of another form: `__metadata__` maps text to text; a tensor has exactly dtype (a
 *      known one), shape (integers >= 0) and data_offsets (two integers >= 0);
 *   8. a shape whose size in bytes overflows;
 *   9. offsets that are backwards, outside the buffer, leave a hole or overlap, or whose distance
 *      is not shape times dtype;
 *  10. bytes of the buffer that no tensor covers.
 * Limits of Weir's own (more than 8 dimensions, too many tensors) give WEIR_ERR_UNSUPPORTED.
 *
 * The writer is deterministic: equal tensors and metadata give equal bytes, whatever order they are
 * given in. It lays them out as the reference does (wider dtypes first, then by name), so both
 * write the same file.
 */
#ifndef WEIR_IO_SAFETENSORS_H
#define WEIR_IO_SAFETENSORS_H

#include "io/file.h"

#define WEIR__SAFETENSORS_RANK_MAX 8
#define WEIR__SAFETENSORS_HEADER_MAX 100000000u

/** A dtype of the format. The table is in the format's order of increasing alignment, which is also
 * the order that the reference's writer sorts by. */
struct weir__safetensors_dtype {
    const char *name;
    uint8_t bits;
    enum weir_dtype dtype; /**< WEIR_DTYPE_COUNT: none of Weir's */
};
#define WEIR__SAFETENSORS_DTYPES 22
extern const struct weir__safetensors_dtype weir__safetensors_dtypes[WEIR__SAFETENSORS_DTYPES];
/** Whether `bytes` bytes are UTF-8 (no overlong forms, no surrogates). */
bool weir__utf8_valid(const char *text, size_t bytes);
/** Bytes of a shape, as the format counts them (what a whole number of bytes cannot hold is
 * WEIR_ERR_SHAPE; WEIR_ERR_OVERFLOW). Sizes are >= 0. */
int weir__safetensors_bytes(const struct weir__safetensors_dtype *dtype, uint32_t rank,
                            const int64_t *shape, size_t *bytes);

/** What a reader puts up with; 0 is the default. */
struct weir__safetensors_limits {
    size_t header_bytes; /**< 100,000,000 */
    uint32_t tensors;    /**< 1,000,000 */
};

/** A tensor of an open file. Pointers are the file's and live until it is closed. */
struct weir__safetensor {
    const char *name;
    const char *dtype_name; /**< as in the file: "F32", "F8_E4M3", … */
    enum weir_dtype dtype;  /**< WEIR_DTYPE_COUNT where Weir has no such dtype: opaque bytes */
    uint32_t rank;
    int64_t shape[WEIR__SAFETENSORS_RANK_MAX];
    const void *data; /**< `bytes` bytes, little-endian. Aligned only as the file has it: memcpy */
    size_t bytes;
};

/** One line of `__metadata__`. UTF-8; keys are unique. */
struct weir__safetensors_text {
    const char *key;
    const char *value;
};

/** An open file; read-only, so any number of threads may use it. */
struct weir__safetensors;

/** Opens and checks `path`. The data are mapped, not read: pages come when they are touched.
 * Replacing the file meanwhile (as every writer here does, by renaming) does no harm; cutting it
 * short in place does. `limits` may be NULL. The file is the caller's: weir__safetensors_close.
 * WEIR_ERR_IO, WEIR_ERR_FORMAT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY. */
int weir__safetensors_open(const struct weir__io *io, const char *path,
                           const struct weir__safetensors_limits *limits,
                           struct weir__safetensors **file);
/** Accepts NULL. */
void weir__safetensors_close(struct weir__safetensors *file);
/** Tensors; they are numbered by their place in the buffer. */
uint32_t weir__safetensors_count(const struct weir__safetensors *file);
/** `index` < count. */
const struct weir__safetensor *weir__safetensors_get(const struct weir__safetensors *file,
                                                     uint32_t index);
/** By name; NULL if there is none. */
const struct weir__safetensor *weir__safetensors_find(const struct weir__safetensors *file,
                                                      const char *name);
/** A value of `__metadata__`, or NULL. */
const char *weir__safetensors_metadata(const struct weir__safetensors *file, const char *key);
/** All of it. */
const struct weir__safetensors_text *weir__safetensors_texts(const struct weir__safetensors *file,
                                                             uint32_t *count);
/** The bytes of the file, and the XXH64 of them all, or of the first 8 and the header alone. */
size_t weir__safetensors_size(const struct weir__safetensors *file);
uint64_t weir__safetensors_digest(const struct weir__safetensors *file, bool header);
/** Gives back the memory that reading a tensor has taken; its bytes stay where they are. */
void weir__safetensors_drop(const struct weir__safetensors *file,
                            const struct weir__safetensor *tensor);
/** "F32 [3, 4]" into `text`, cut if need be; for messages. Returns `text`. */
const char *weir__safetensor_text(const struct weir__safetensor *tensor, char *text,
                                  size_t capacity);

/** Gives the next piece of a tensor's bytes, from `offset` on: *data and *bytes (1 … the rest),
 * valid until the next call. Returns 0 or a status, which ends the writing. */
typedef int weir__safetensors_next_fn(void *context, size_t offset, const void **data,
                                      size_t *bytes);

/** A tensor to be written. */
struct weir__safetensors_item {
    const char *name; /**< UTF-8, not "__metadata__", unique */
    enum weir_dtype dtype;
    uint32_t rank;
    int64_t shape[WEIR__SAFETENSORS_RANK_MAX]; /**< each >= 0 */
    const void *data;                /**< all bytes, or NULL and then `next` (or no bytes at all) */
    weir__safetensors_next_fn *next; /**< where the bytes are not in one place */
    void *context;                   /**< given to `next` */
};

/** Writes `path` atomically (io/file.h): on any failure the old file is as it was. Besides file.h's
 * statuses: WEIR_ERR_ARGUMENT (a bad name, shape, dtype or key, or one given twice),
 * WEIR_ERR_OVERFLOW, and what a `next` returned. */
int weir__safetensors_save(const struct weir__io *io, const char *path,
                           const struct weir__safetensors_item *items, uint32_t item_count,
                           const struct weir__safetensors_text *texts, uint32_t text_count);

#endif
