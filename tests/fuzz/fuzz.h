/* SPDX-License-Identifier: MIT */
/**
 * What the fuzz targets share. A target is tests/fuzz/fuzz_<format>.c with LLVMFuzzerTestOneInput;
 * `zig build fuzz` runs it on millions of inputs, from the seeds in tests/fuzz/corpus/<format>. It
 * reads the input as Weir does, from memory, uses what was opened, and checks what must hold of it.
 * Anything wrong ends the process with a message; libFuzzer keeps the input.
 */
#ifndef WEIR_TESTS_FUZZ_H
#define WEIR_TESTS_FUZZ_H

#include "io/file.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The target; always 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count);

#ifdef __cplusplus
}
#endif

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) fuzz_fail(__FILE__, __LINE__, #condition);                               \
    } while (0)

/** Prints and aborts. */
void fuzz_fail(const char *file, int line, const char *text) __attribute__((noreturn));

/** For readers: the memory file, a counting allocator, an error. Ends at fuzz_end. */
struct weir__io *fuzz_begin(const void *bytes, size_t count);
/** Checks that everything was given back, and that the allocator's peak was at most 16 times the
 * file and `fixed` bytes. */
void fuzz_end(size_t fixed);
/** A sum over all bytes, so that each is read. */
uint64_t fuzz_touch(const void *data, size_t count);

#endif
