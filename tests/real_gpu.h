/* SPDX-License-Identifier: MIT */
/**
 * The machine's own GPUs for tests (weir_tests --gpu), by which the same test bodies run that
 * otherwise have the fake driver or the emulation.
 */
#ifndef WEIR_TESTS_REAL_GPU_H
#define WEIR_TESTS_REAL_GPU_H

#include "device/cuda_kernels.h"
#include "fake_cuda/fake_cuda.h"
#include "harness.h"

/** How many there are; 0: none that can be tested, and `error` says why and how to mend it. Asks
 * the driver, once; the context that tests use beside the library's is made here. */
uint32_t real_gpu_open(struct weir_error *error);
/** Of the first one, and its driver's version, for people; after real_gpu_open. */
const char *real_gpu_name(void);
/** Whether it is the fake driver that stands for the machine's own. */
bool real_gpu_is_fake(void);
/** Ends what real_gpu_open began, if it did. */
void real_gpu_close(void);

/**
 * The fake driver's control, as far as a real one has it: peek and poke; launch, on managed memory;
 * what asks for an order or begins anew does nothing, all counts are 0. The rest is NULL: a test
 * that needs it takes the fake driver only. `managed`: until the test's end, memory of GPUs is such
 * that the host may touch it. NULL, and the test is skipped (or has failed), where there are fewer
 * GPUs than `count`, or no managed memory.
 */
const struct weir_fake_cuda_control *real_gpus(uint32_t count, bool managed);

/** Runs a kernel of kernels/ or tests/toys/ by its name, with or without weir_, to its end.
 * Memory must be the GPU's or pinned. Fails the test if it cannot or does not. */
bool real_gpu_run(const char *name, const struct weir__cuda_grid *grid, void **arguments);
/** Lets kernels reach the host's pages, at the same addresses, until real_gpu_unpin. */
bool real_gpu_pin(void *memory, size_t bytes);
void real_gpu_unpin(void *memory);

#endif
