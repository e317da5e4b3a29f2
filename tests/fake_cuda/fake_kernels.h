/* SPDX-License-Identifier: MIT */
/**
 * The emulated kernels, for who runs them: the fake driver, and tests that open the library and
 * look these names up. C or C++.
 */
#ifndef WEIR_TESTS_FAKE_KERNELS_H
#define WEIR_TESTS_FAKE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One kernel of kernels/ or tests/kernels/. */
struct fake_cuda_kernel {
    const char *name; /**< its symbol in a module: "weir_copy" */
    /** Runs all blocks, one after the other, on the calling thread; done when it returns. One
     * kernel at a time runs in the process. arguments[i] points to parameter i. */
    void (*run)(const uint32_t blocks[3], const uint32_t threads[3], uint32_t shared_bytes,
                void **arguments);
    /** Bytes of each parameter, ended by 0: a launch copies them. */
    const size_t *parameter_bytes;
};

extern const struct fake_cuda_kernel fake_cuda_kernels[];
extern const size_t fake_cuda_kernel_count;

/** Chooses the order in which blocks, and threads of a block, come in later runs. */
void fake_cuda_seed(uint64_t seed);

/** What the calling thread's last run did that a GPU forbids, as one line, or NULL; asking clears
 * it, the text stays until the next one. The run ended there: its later threads and blocks did
 * nothing. */
const char *fake_cuda_fault(void);

/** The shape of the last launch in the process, for tests of who chooses it. */
void fake_cuda_shape(uint32_t blocks[3], uint32_t threads[3]);

#ifdef __cplusplus
}
#endif

#endif
