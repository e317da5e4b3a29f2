/* SPDX-License-Identifier: MIT */
/**
 * IDX files, as MNIST has them (yann.lecun.com/exdb/mnist): two zero bytes, a byte for the type of
 * the numbers, a byte for the number of dimensions, their sizes as big-endian unsigned 32-bit
 * integers, and the numbers, big-endian, the last dimension running fastest.
 *
 * Types: 0x08 u8, 0x09 i8, 0x0B i16, 0x0C i32, 0x0D f32, 0x0E f64.
 *
 * The reader trusts nothing. WEIR_ERR_FORMAT, each with its own message, for
 *   1. a file shorter than 4 bytes, or than 4 bytes and its sizes;
 *   2. first bytes that are not zero (said of a file compressed by gzip: unpack it);
 *   3. a type that is none of these;
 *   4. no dimension at all;
 *   5. a size in bytes that overflows, or is not exactly what follows the header.
 * More than 8 dimensions: WEIR_ERR_UNSUPPORTED.
 */
#ifndef WEIR_IO_IDX_H
#define WEIR_IO_IDX_H

#include "data/array.h"

/** Opens and checks `path`; the array is the caller's: weir__array_close. Written only on success.
 * WEIR_ERR_IO, WEIR_ERR_FORMAT, WEIR_ERR_UNSUPPORTED, WEIR_ERR_OUT_OF_MEMORY. */
int weir__idx_open(const struct weir__io *io, const char *path, struct weir__array *array);

#endif
