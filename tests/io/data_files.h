/* SPDX-License-Identifier: MIT */
/** Files of data for tests: arrays and tokens, written as their formats say. */
#ifndef WEIR_TESTS_DATA_FILES_H
#define WEIR_TESTS_DATA_FILES_H

#include <stddef.h>
#include <stdint.h>

/** DIRECTORY/NAME as .npy of version 1: `descr` is NumPy's ("<f4"), `shape` its tuple's inside ("3,
 * 2"). Fails the test if it cannot. */
void data_make_npy(const char *directory, const char *name, const char *descr, const char *shape,
                   const void *data, size_t bytes);
/** DIRECTORY/NAME as IDX of type u8. */
void data_make_idx(const char *directory, const char *name, uint32_t rank, const uint32_t *sizes,
                   const uint8_t *data);
/** DIRECTORY/NAME as a token file of 16 bits: `count` tokens, token i being first + i * step. */
void data_make_tokens(const char *directory, const char *name, uint32_t count, uint32_t first,
                      uint32_t step);
/** An empty folder DIRECTORY/NAME; its path into `path`. */
void data_make_folder(const char *directory, const char *name, char path[512]);

#endif
