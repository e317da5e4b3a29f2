/* SPDX-License-Identifier: MIT */
/**
 * The header of a safetensors file: rules 6 to 9 of safetensors.h as far as one entry goes. Inside
 * the reader only.
 *
 * Memory: the strings as long as the header, once, and the entries that were read: for any header
 * that is at most some 8 bytes for each of its bytes. Time: each byte is looked at once.
 */
#ifndef WEIR_IO_SAFETENSORS_HEADER_H
#define WEIR_IO_SAFETENSORS_HEADER_H

#include "io/safetensors.h"

/** What is read, and for messages from where. */
struct weir__safetensors_source {
    const struct weir__io *io;
    const char *path;
    const char *text; /**< the header: UTF-8 that begins with '{' */
    size_t text_bytes;
    const char *buffer;
    size_t buffer_bytes;
    uint32_t tensors_max;
};

/** What it says, in the header's order; names, keys and values are in `texts`. */
struct weir__safetensors_header {
    const struct weir_allocator *allocator;
    char *texts;
    size_t text_bytes;
    struct weir__safetensor *tensors;
    uint32_t tensor_count, tensor_capacity;
    struct weir__safetensors_text *metadata;
    uint32_t metadata_count, metadata_capacity;
};

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
/** Fails with `status` and "PATH: the printf-like reason". */
int weir__safetensors_refuse(const struct weir__safetensors_source *source, int status,
                             const char *format, ...);

/** Reads all entries. Names and keys that stand twice, and tensors against each other, are the
 * caller's to check. WEIR_ERR_FORMAT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY. In every case
 * `header` is then the caller's: weir__safetensors_header_clean_up. */
int weir__safetensors_header_read(const struct weir__safetensors_source *source,
                                  struct weir__safetensors_header *header);
/** Accepts a zeroed one. */
void weir__safetensors_header_clean_up(struct weir__safetensors_header *header);

#endif
