/* SPDX-License-Identifier: MIT */
#include "cuda/kernel_gpu.h"

#include "cuda/fake_gpu.h"
#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GAP = 128, PAGE = 4096, GAP_BYTE = 0x5A };

bool kernel_gpu_is_there(void) {
    return test_fake_cuda_path() != NULL || test_gpu_is_real();
}

bool kernel_gpu_init(struct kernel_gpu *gpu) {
    *gpu = (struct kernel_gpu){.bytes = GAP, .apart = getenv("WEIR_TEST_APART") != NULL};
    if (any_gpus(test_random_u64(), 1, 0) == NULL) return false;
    gpu->device = fake_gpu_open("cuda:0");
    if (gpu->device == NULL) return false;
    return EXPECT_STATUS(gpu->device->calls->stream_new(gpu->device, &gpu->stream), WEIR_OK);
}

void kernel_gpu_add(struct kernel_gpu *gpu, void *host, size_t bytes) {
    if (host == NULL) return;
    CHECK(gpu->count < KERNEL_GPU_BUFFERS);
    gpu->buffers[gpu->count].host = host;
    gpu->buffers[gpu->count].bytes = bytes;
    gpu->buffers[gpu->count++].offset = gpu->bytes;
    gpu->bytes += (bytes + 63) / 64 * 64 + GAP;
}

void kernel_gpu_add_blank(struct kernel_gpu *gpu, void *host, size_t bytes, bool lost) {
    int before = gpu->count;
    kernel_gpu_add(gpu, host, bytes);
    if (gpu->count == before) return;
    gpu->buffers[before].blank = true;
    gpu->buffers[before].lost = lost;
}

static size_t apart_bytes(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static void upload_apart(struct kernel_gpu *gpu) {
    const struct weir__device_calls *calls = gpu->device->calls;
    for (int i = 0; i < gpu->count; i++) {
        size_t bytes = gpu->buffers[i].bytes;
        void *memory = NULL;
        CHECK_OK(calls->memory_acquire(gpu->device, apart_bytes(bytes), &memory));
        gpu->buffers[i].memory = memory;
        if (!gpu->buffers[i].blank)
            CHECK_OK(
                calls->copy(gpu->stream, memory, gpu->staging + gpu->buffers[i].offset, bytes));
    }
}

void kernel_gpu_upload(struct kernel_gpu *gpu) {
    const struct weir__device_calls *calls = gpu->device->calls;
    gpu->bytes = (gpu->bytes + PAGE - 1) / PAGE * PAGE;
    gpu->staging =
        mmap(NULL, gpu->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(gpu->staging != MAP_FAILED);
    memset(gpu->staging, GAP_BYTE, gpu->bytes);
    for (int i = 0; i < gpu->count; i++)
        memcpy(gpu->staging + gpu->buffers[i].offset, gpu->buffers[i].host, gpu->buffers[i].bytes);
    void *memory = NULL;
    CHECK_OK(calls->host_pin(gpu->device, gpu->staging, gpu->bytes));
    if (gpu->apart) {
        upload_apart(gpu);
        return;
    }
    CHECK_OK(calls->memory_acquire(gpu->device, gpu->bytes, &memory));
    gpu->memory = memory;
    CHECK_OK(calls->copy(gpu->stream, gpu->memory, gpu->staging, gpu->bytes));
}

void *kernel_gpu_at(const struct kernel_gpu *gpu, const void *host) {
    if (host == NULL) return NULL;
    for (int i = 0; i < gpu->count; i++) {
        const char *begin = gpu->buffers[i].host;
        if ((const char *)host >= begin && (const char *)host <= begin + gpu->buffers[i].bytes)
            return (gpu->apart ? gpu->buffers[i].memory : gpu->memory + gpu->buffers[i].offset) +
                   ((const char *)host - begin);
    }
    TEST_FAIL("a pointer into none of the buffers");
    return NULL;
}

static void check_gaps(const struct kernel_gpu *gpu) {
    size_t from = 0;
    for (int i = 0; i <= gpu->count; i++) {
        size_t to = i < gpu->count ? gpu->buffers[i].offset : gpu->bytes;
        for (size_t at = from; at < to; at++) {
            if ((unsigned char)gpu->staging[at] == GAP_BYTE) continue;
            TEST_FAIL("byte %zu before buffer %d was written", to - at, i);
            return;
        }
        if (i < gpu->count) from = gpu->buffers[i].offset + gpu->buffers[i].bytes;
    }
}

static int download_apart(const struct kernel_gpu *gpu) {
    int status = WEIR_OK;
    for (int i = 0; i < gpu->count && status == WEIR_OK; i++)
        if (!gpu->buffers[i].lost)
            status = gpu->device->calls->copy(gpu->stream, gpu->staging + gpu->buffers[i].offset,
                                              gpu->buffers[i].memory, gpu->buffers[i].bytes);
    return status;
}

int kernel_gpu_download(struct kernel_gpu *gpu) {
    const struct weir__device_calls *calls = gpu->device->calls;
    int status = gpu->apart ? download_apart(gpu)
                            : calls->copy(gpu->stream, gpu->staging, gpu->memory, gpu->bytes);
    int finished = calls->stream_finish(gpu->stream);
    if (status == WEIR_OK) status = finished;
    if (status != WEIR_OK) return status;
    check_gaps(gpu);
    for (int i = 0; i < gpu->count; i++)
        memcpy(gpu->buffers[i].host, gpu->staging + gpu->buffers[i].offset, gpu->buffers[i].bytes);
    return WEIR_OK;
}

void kernel_gpu_clean_up(struct kernel_gpu *gpu) {
    if (gpu->device == NULL) return;
    const struct weir__device_calls *calls = gpu->device->calls;
    if (gpu->stream != NULL) EXPECT_STATUS(calls->stream_finish(gpu->stream), WEIR_OK);
    calls->stream_destroy(gpu->stream);
    if (gpu->memory != NULL) calls->memory_release(gpu->device, gpu->memory, gpu->bytes);
    for (int i = 0; gpu->apart && i < gpu->count; i++)
        calls->memory_release(gpu->device, gpu->buffers[i].memory,
                              apart_bytes(gpu->buffers[i].bytes));
    if (gpu->staging != NULL) {
        calls->host_unpin(gpu->device, gpu->staging, gpu->bytes);
        munmap(gpu->staging, gpu->bytes);
    }
    calls->close(gpu->device);
}
