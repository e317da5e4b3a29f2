/* SPDX-License-Identifier: MIT */
/**
 * A GPU's twin of a test's buffers: all in one allocation, each between bytes that must not change.
 * Where the environment has WEIR_TEST_APART each is an allocation of its own, and what a kernel
 * must not read holds nothing that was ever written: so memcheck sees what lies beside a buffer,
 * and initcheck what is read too early, which both miss in one allocation that is filled.
 */
#ifndef WEIR_TESTS_KERNEL_GPU_H
#define WEIR_TESTS_KERNEL_GPU_H

#include "device/device.h"

enum { KERNEL_GPU_BUFFERS = 24 };

struct kernel_gpu {
    struct weir__device *device;
    struct weir_stream *stream;
    struct {
        char *host;
        size_t bytes, offset;
        bool blank, lost;
        char *memory; /* apart: its own */
    } buffers[KERNEL_GPU_BUFFERS];
    int count;
    char *staging, *memory; /* the host's pinned one, the device's */
    size_t bytes;
    bool apart;
};

/* Whether there is a driver to run on, the fake one or, where tests run on GPUs, a real one. */
bool kernel_gpu_is_there(void);
/* Opens the device; false (and the test failed) if that cannot be. */
bool kernel_gpu_init(struct kernel_gpu *gpu);
/* Adds a buffer of the host; not after kernel_gpu_upload. NULL is left out. */
void kernel_gpu_add(struct kernel_gpu *gpu, void *host, size_t bytes);
/* One that kernels write before they read it. `lost`: nobody asks for it afterwards. */
void kernel_gpu_add_blank(struct kernel_gpu *gpu, void *host, size_t bytes, bool lost);
/* Copies all to the device. */
void kernel_gpu_upload(struct kernel_gpu *gpu);
/* Where the device has what begins at `host`, a buffer; NULL for NULL. */
void *kernel_gpu_at(const struct kernel_gpu *gpu, const void *host);
/* Waits for the stream, fails the test if something was written beside the buffers, and copies all
 * back. The stream's status. */
int kernel_gpu_download(struct kernel_gpu *gpu);
void kernel_gpu_clean_up(struct kernel_gpu *gpu);

#endif
