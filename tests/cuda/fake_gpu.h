/* SPDX-License-Identifier: MIT */
/**
 * GPUs for tests: the fake driver as the one that Weir opens, and its control.
 */
#ifndef WEIR_TESTS_FAKE_GPU_H
#define WEIR_TESTS_FAKE_GPU_H

#include "device/device.h"
#include "fake_cuda/fake_cuda.h"

/** Resets the fake driver and makes it, until the test's end, the driver that Weir opens. NULL, and
 * the test is skipped (or has failed), where it was not built, or tests run on a real one. */
const struct weir_fake_cuda_control *fake_gpus(uint64_t seed, uint32_t gpu_count, uint32_t flags);
/** The same, for tests that need nothing that only the fake driver can: on the machine's own GPUs
 * where tests run on these (tests/real_gpu.h says what the control can do then). NULL also
 * where there are not so many of them. */
const struct weir_fake_cuda_control *any_gpus(uint64_t seed, uint32_t gpu_count, uint32_t flags);

/** An opened device, entered; NULL (and the test failed) if it does not open. */
struct weir__device *fake_gpu_open(const char *name);

/** Whether nothing is left in the driver, all work ran, and no memory was used against the rules.
 * Fails the test, naming what is not so. */
bool fake_gpus_clean(const struct weir_fake_cuda_control *fake);

#endif
