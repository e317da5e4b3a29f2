/* SPDX-License-Identifier: MIT */
/**
 * Token files as llm.c's preparation scripts write them (dev/data/data_common.py), also its FineWeb
 * shards: 256 little-endian 32-bit integers, of which the first three are a magic number, a version
 * and the number of tokens, and then the tokens, little-endian.
 *
 * Read: magic 20240520, version 1, tokens of 16 bits (GPT-2's), and magic 20240801, version 7,
 * tokens of 32 bits (Llama 3's). The header's other 253 numbers are not looked at. Files without a
 * header (nanoGPT's) are refused, because nothing would tell them from any other bytes.
 *
 * The reader trusts nothing. WEIR_ERR_FORMAT, each with its own message, for
 *   1. a file shorter than the header of 1,024 bytes;
 *   2. another magic;
 *   3. a number of tokens that is negative;
 *   4. a size that is not exactly the header's and the tokens'.
 * Another version: WEIR_ERR_UNSUPPORTED.
 */
#ifndef WEIR_IO_TOKENS_H
#define WEIR_IO_TOKENS_H

#include "data/source.h"

#define WEIR__TOKENS_HEADER_BYTES 1024u

/** An open file; read-only: any number of threads, each with an io of its own. */
struct weir__tokens {
    struct weir__source source;
    uint32_t token_bytes; /**< 2 or 4 */
    uint64_t count;
};

/** Opens and checks `path`; the file is the caller's: weir__tokens_close. Written only on success.
 * WEIR_ERR_IO, WEIR_ERR_FORMAT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY. */
int weir__tokens_open(const struct weir__io *io, const char *path, struct weir__tokens *tokens);
/** Accepts a zeroed one. */
void weir__tokens_close(struct weir__tokens *tokens);
/** Whether the first 4 bytes of a file are one of the magic numbers. */
bool weir__tokens_magic(const unsigned char first[4]);
/** Tokens first … first + count - 1, all below tokens->count. Of `io` only the error is used.
 * WEIR_ERR_IO. */
int weir__tokens_read(const struct weir__tokens *tokens, const struct weir__io *io, uint64_t first,
                      uint64_t count, int64_t *out);

#endif
