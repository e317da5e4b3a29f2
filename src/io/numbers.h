/* SPDX-License-Identifier: MIT */
/**
 * Numbers as files store them: single, half and brain floats, and GGUF's blocks of bytes with a
 * scale. Rounding is to nearest, ties to even; blocks are llama.cpp's q8_0, bit for bit. Pure
 * functions, any thread.
 */
#ifndef WEIR_IO_NUMBERS_H
#define WEIR_IO_NUMBERS_H

#include "base/base.h"

enum weir__stored { WEIR__STORED_F32, WEIR__STORED_F16, WEIR__STORED_BF16, WEIR__STORED_Q8_0 };

/** Numbers that share a scale, which are stored together; their count is of whole blocks. */
uint32_t weir__stored_block(enum weir__stored type);
/** Bytes of `count` numbers, whole blocks. */
size_t weir__stored_bytes(enum weir__stored type, size_t count);
/** The dtype of the same numbers; WEIR_DTYPE_COUNT: Weir has none. */
enum weir_dtype weir__stored_dtype(enum weir__stored type);

/** Whether numbers of this dtype can be read: f32, f16 and bf16 can. */
bool weir__numbers_known(enum weir_dtype dtype);
/** Reads `count` of them, at any alignment, exactly. */
void weir__numbers_read(enum weir_dtype dtype, const void *from, size_t count, float *to);
/** Stores them, whole blocks. False: a number became infinite that was not, or a block has one that
 * is no finite number; `to` is then unspecified. */
bool weir__numbers_write(enum weir__stored type, const float *from, size_t count, void *to);

#endif
