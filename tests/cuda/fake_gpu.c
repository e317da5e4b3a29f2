/* SPDX-License-Identifier: MIT */
/* The library is opened once more than Weir does, and stays: its state lives as long as the
 * program. */
#include "cuda/fake_gpu.h"

#include "harness.h"
#include "real_gpu.h"

#include <dlfcn.h>
#include <stdlib.h>

const struct weir_fake_cuda_control *fake_gpus(uint64_t seed, uint32_t gpu_count, uint32_t flags) {
    const char *path = test_fake_cuda_path();
    if (test_gpu_is_real()) test_skip("it needs a driver that does as it is told: the fake one");
    if (path == NULL && !test_gpu_is_real()) test_skip("the fake CUDA driver was not built");
    if (path == NULL || test_gpu_is_real()) return NULL;
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        TEST_FAIL("%s", dlerror());
        return NULL;
    }
    const struct weir_fake_cuda_control *control = dlsym(library, "weir_fake_cuda_control");
    if (!EXPECT(control != NULL) || !EXPECT(setenv("WEIR_CUDA_DRIVER", path, 1) == 0)) return NULL;
    control->reset(seed, gpu_count, flags);
    return control;
}

const struct weir_fake_cuda_control *any_gpus(uint64_t seed, uint32_t gpu_count, uint32_t flags) {
    return test_gpu_is_real() ? real_gpus(gpu_count, false) : fake_gpus(seed, gpu_count, flags);
}

struct weir__device *fake_gpu_open(const char *name) {
    struct weir__device *device = NULL;
    struct weir_error error = {0};
    int status = weir__device_open(name, test_allocator(), &error, &device);
    if (!EXPECT_STATUS(status, WEIR_OK)) TEST_FAIL("%s: %s", name, error.message);
    if (device != NULL) EXPECT_STATUS(device->calls->enter(device), WEIR_OK);
    return device;
}

bool fake_gpus_clean(const struct weir_fake_cuda_control *fake) {
    struct weir_fake_cuda_counts counts;
    fake->counts(&counts);
    bool clean = EXPECT_EQ_UINT(counts.contexts, 0);
    clean &= EXPECT_EQ_UINT(counts.orphans, 0);
    clean &= EXPECT_EQ_UINT(counts.streams + counts.events + counts.modules, 0);
    clean &= EXPECT_EQ_UINT(counts.allocations + counts.pins, 0);
    clean &= EXPECT_EQ_UINT(counts.plans, 0);
    clean &= EXPECT_EQ_UINT(counts.lost_work, 0);
    clean &= EXPECT_EQ_STR(counts.first_fault, "");
    return clean && EXPECT_EQ_UINT(counts.faults, 0);
}
