/* SPDX-License-Identifier: MIT */
/*
 * Goal: a GPU tells how its runs stand with memory and which ways they take, and prefers streams
 * for copies. Method: the fake driver, which counts both.
 */
#include "harness.h"
#include "cuda/fake_gpu.h"
#include "device/cuda.h"

#include <string.h>

enum { BYTES = 64 << 10 };

static void test_memory_beside_the_devices_own_is_told(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 1, 0);
    if (fake == NULL) return;
    struct weir__device *device = fake_gpu_open("cuda:0");
    struct weir__cuda_room before, after;
    char line[160] = "";
    CHECK(device != NULL);
    CHECK_OK(weir__cuda_memory_room(device, &before));
    CHECK_EQ_UINT(before.own_bytes, 0);
    uint64_t other = 0; /* memory of the context's that nobody counts */
    CHECK_OK(device->calls->enter(device));
    CHECK_EQ_INT(weir__cuda_device(device)->driver.memory_allocate(&other, 3 << 20), 0);
    void *memory = NULL;
    CHECK_OK(device->calls->memory_acquire(device, BYTES, &memory));
    CHECK_OK(weir__cuda_memory_room(device, &after));
    EXPECT_EQ_UINT(after.own_bytes, BYTES);
    EXPECT_EQ_UINT(after.beside_bytes, before.beside_bytes + (3 << 20));
    EXPECT_EQ_UINT(after.free_bytes, before.free_bytes - (3 << 20) - BYTES);
    EXPECT(device->calls->tell_way(device, 0, line, sizeof line));
    EXPECT_CONTAINS(line, "3 MiB beside them");
    EXPECT_CONTAINS(line, "of 1024 MiB");
    EXPECT(!device->calls->tell_way(device, 1, line, sizeof line));
    weir__cuda_way_note(weir__cuda_device(device), "by %s", "this");
    weir__cuda_way_note(weir__cuda_device(device), "by %s", "that");
    weir__cuda_way_note(weir__cuda_device(device), "by %s", "this");
    EXPECT(device->calls->tell_way(device, 2, line, sizeof line));
    EXPECT_EQ_STR(line, "cuda:0: by that");
    EXPECT(!device->calls->tell_way(device, 3, line, sizeof line));
    device->calls->memory_release(device, memory, BYTES);
    EXPECT_EQ_INT(weir__cuda_device(device)->driver.memory_free(other), 0);
    CHECK_OK(weir__cuda_memory_room(device, &after));
    EXPECT_EQ_UINT(after.own_bytes, 0);
    device->calls->close(device);
    CHECK(fake_gpus_clean(fake));
}

static void test_streams_for_copies_have_the_greatest_priority(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 1, 0);
    if (fake == NULL) return;
    struct weir__device *device = fake_gpu_open("cuda:0");
    struct weir_fake_cuda_counts counts;
    struct weir_stream *plain = NULL, *copies = NULL;
    CHECK(device != NULL);
    CHECK_OK(device->calls->stream_new(device, &plain));
    fake->counts(&counts);
    EXPECT_EQ_UINT(counts.preferred, 0);
    CHECK_OK(device->calls->copy_stream_new(device, &copies));
    fake->counts(&counts);
    EXPECT_EQ_UINT(counts.preferred, 1);
    device->calls->stream_destroy(copies);
    device->calls->stream_destroy(plain);
    device->calls->close(device);
    CHECK(fake_gpus_clean(fake));
}

WEIR_TEST_SUITE(cuda_ways, TEST(memory_beside_the_devices_own_is_told),
                TEST(streams_for_copies_have_the_greatest_priority))
