/* SPDX-License-Identifier: MIT */
/**
 * The order in which samples are visited: for each pass over the data a permutation that is
 * computed, not stored, so that the position in the data is a number and any pass can begin
 * anywhere.
 *
 * It is a Feistel network of eight rounds on the index's two halves, whose round function is the
 * project's random numbers (Philox) keyed by the seed, walked until it lands among the samples
 * (Black and Rogaway, CT-RSA 2002): fewer than four turns on average.
 */
#ifndef WEIR_IO_PERMUTATION_H
#define WEIR_IO_PERMUTATION_H

#include "base/base.h"

/** Where `index` < `count` goes in pass `epoch` (its low 32 bits count): for fixed other arguments
 * a bijection of 0 … count - 1. Depends on its arguments alone. */
uint64_t weir__permute(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index);

#endif
