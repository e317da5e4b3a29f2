/* SPDX-License-Identifier: MIT */
/*
 * Goal: the CPU device keeps device.h's contract, in particular that a copy delivers the value that
 * its source has when its producer is done, however late. Method: producers on other threads that
 * take their time, results checked on the copied tensor, and the k-th allocation failing.
 */
#include "base/base.h"
#include "device/device.h"
#include "harness.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void sleep_ns(uint64_t ns) {
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)}, NULL);
}

static struct weir__device *open_cpu(void) {
    struct weir__device *device = NULL;
    EXPECT_STATUS(weir__device_open("cpu", test_allocator(), NULL, &device), WEIR_OK);
    return device;
}

static void *acquire(struct weir__device *device, size_t bytes) {
    void *memory = NULL;
    EXPECT_STATUS(device->calls->memory_acquire(device, bytes, &memory), WEIR_OK);
    return memory;
}

/* ---- opening ---- */

static void test_devices_open_by_name(void) {
    static const char *const names[] = {"cpu", "cpu:0", "cpu:17"};
    for (size_t i = 0; i < WEIR__COUNT_OF(names); i++) {
        struct weir__device *device = NULL;
        CHECK_OK(weir__device_open(names[i], test_allocator(), NULL, &device));
        EXPECT_EQ_STR(device->name, names[i]);
        EXPECT_EQ_STR(device->calls->kind, "cpu");
        EXPECT(device->calls->synchronous);
        device->calls->close(device);
    }
}

static void test_unknown_and_malformed_devices_are_refused(void) {
    static const char *const malformed[] = {
        NULL,     "",       ":0",      "cpu:",         "cpu:x",
        "cpu:1x", "cpu 1",  "cpu:-1",  "cpu:1:2",      "CPU",
        "cpu:+1", "cpu: 1", "cpu:1.0", "cpu:12345678", "cpu:00000000000000000000000000000000"};
    struct weir__device *device = NULL;
    for (size_t i = 0; i < WEIR__COUNT_OF(malformed); i++) {
        CHECK_STATUS(weir__device_open(malformed[i], test_allocator(), NULL, &device),
                     WEIR_ERR_ARGUMENT);
    }
    static const char *const unknown[] = {"tpu", "cp", "cpux", "cpux:1", "tpu:3"};
    for (size_t i = 0; i < WEIR__COUNT_OF(unknown); i++) {
        CHECK_STATUS(weir__device_open(unknown[i], test_allocator(), NULL, &device),
                     WEIR_ERR_NOT_FOUND);
    }
    CHECK(device == NULL);
}

static void test_a_device_without_memory_says_so(void) {
    struct weir__device *device = NULL;
    test_allocator_fail_at(1, false);
    CHECK_STATUS(weir__device_open("cpu", test_allocator(), NULL, &device), WEIR_ERR_OUT_OF_MEMORY);
    test_allocator_fail_at(0, false);
    device = open_cpu();
    struct weir_stream *stream = NULL;
    test_allocator_fail_at(1, false);
    EXPECT_STATUS(device->calls->stream_new(device, &stream), WEIR_ERR_OUT_OF_MEMORY);
    test_allocator_fail_at(0, false);
    void *memory = NULL;
    EXPECT_STATUS(device->calls->memory_acquire(device, (size_t)1 << 62, &memory),
                  WEIR_ERR_OUT_OF_MEMORY);
    EXPECT_STATUS(device->calls->memory_acquire(device, SIZE_MAX & ~(size_t)63, &memory),
                  WEIR_ERR_OUT_OF_MEMORY);
    device->calls->stream_destroy(NULL);
    device->calls->memory_release(device, NULL, 64);
    device->calls->close(device);
}

/* ---- memory ---- */

static void test_memory_is_huge_page_aligned_and_zero_once_touched(void) {
    static const size_t sizes[] = {0, 64, 4096, 4160, (2u << 20) - 64, 2u << 20, (6u << 20) + 64};
    struct weir__device *device = open_cpu();
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++) {
        for (int32_t node = -1; node <= 0; node++) {
            unsigned char *memory = acquire(device, sizes[i]);
            EXPECT((uintptr_t)memory % WEIR__HUGE_PAGE == 0);
            if (sizes[i] > 0) memory[0] = memory[sizes[i] - 1] = 1;
            EXPECT_STATUS(device->calls->memory_touch(device, memory, sizes[i], node), WEIR_OK);
            unsigned sum = 0;
            for (size_t k = 0; k < sizes[i]; k++) sum += memory[k];
            EXPECT_EQ_UINT(sum, 0);
            device->calls->memory_release(device, memory, sizes[i]);
        }
    }
    device->calls->close(device);
}

/* A node that is not there is a preference that cannot be kept, not an error. */
static void test_touching_for_an_absent_node_still_zeroes(void) {
    struct weir__device *device = open_cpu();
    unsigned char *memory = acquire(device, 8192);
    memset(memory, 1, 8192);
    EXPECT_STATUS(device->calls->memory_touch(device, memory + 64, 4096, 1000), WEIR_OK);
    EXPECT_STATUS(device->calls->memory_touch(device, memory + 64, 4096, 100000), WEIR_OK);
    EXPECT_EQ_UINT(memory[63], 1);
    EXPECT_EQ_UINT(memory[64], 0);
    EXPECT_EQ_UINT(memory[64 + 4095], 0);
    EXPECT_EQ_UINT(memory[64 + 4096], 1);
    device->calls->memory_release(device, memory, 8192);
    device->calls->close(device);
}

static uint64_t mapped_pages(void) {
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%llu", &pages) != 1) pages = 0;
    fclose(file);
    return pages;
}

static void test_released_memory_goes_back_whole(void) {
    struct weir__device *device = open_cpu();
    uint64_t before = 0;
    for (int i = 0; i < 2000; i++) {
        if (i == 20) before = mapped_pages();
        void *memory = acquire(device, (3u << 20) + 64);
        CHECK(memory != NULL);
        device->calls->memory_release(device, memory, (3u << 20) + 64);
    }
    /* 2 MiB lost per turn would be a million pages. */
    EXPECT(mapped_pages() < before + 10000);
    device->calls->close(device);
}

/* ---- copies ---- */

static void copy_bytes(size_t bytes, size_t destination_offset, size_t source_offset,
                       size_t stream_min) {
    enum { GUARD = 64 };
    unsigned char *source = malloc(bytes + source_offset + GUARD);
    unsigned char *destination = aligned_alloc(64, (bytes + destination_offset + 191) / 64 * 64);
    bool ready = EXPECT(source != NULL && destination != NULL);
    if (ready) {
        uint64_t word = test_random_u64();
        for (size_t i = 0; i < bytes; i++) {
            source[source_offset + i] = (unsigned char)(word >> (i % 57));
            if (i % 57 == 56) word = word * 6364136223846793005u + 1442695040888963407u;
        }
        memset(destination, 0x5a, bytes + destination_offset + GUARD);
        weir__cpu_copy(destination + destination_offset, source + source_offset, bytes, stream_min);
        EXPECT_EQ_BYTES(destination + destination_offset, source + source_offset, bytes);
        EXPECT_EQ_UINT(destination[destination_offset + bytes], 0x5a);
    }
    free(destination);
    free(source);
}

static void test_copies_of_every_size_are_whole(void) {
    static const size_t edge = 1u << 20, small[] = {0, 1, 63, 64, 65, 4096, 1000003};
    for (size_t i = 0; i < WEIR__COUNT_OF(small); i++) {
        copy_bytes(small[i], 0, 0, edge);
        copy_bytes(small[i], 0, 3, 1);
    }
    copy_bytes(edge - 1, 0, 0, edge);
    copy_bytes(edge, 0, 0, edge);
    copy_bytes(edge + 64 + 63, 0, 0, edge);
    copy_bytes(edge + 1, 0, 1, edge);
    copy_bytes(edge + 1, 1, 0, edge);
    copy_bytes(edge + test_random_below(1000), 0, test_random_below(64), edge);
}

/* From the size on at which source and destination no longer fit the last cache together. */
static void test_large_copies_pass_the_caches_by(void) {
    EXPECT_EQ_UINT(weir__copy_stream_min(0), 16u << 20);
    EXPECT_EQ_UINT(weir__copy_stream_min(8u << 20), 4u << 20);
    struct weir__device *device = open_cpu();
    EXPECT_EQ_UINT(device->stream_min, weir__copy_stream_min(0));
    device->calls->close(device);
}

/* One thread makes a tensor late, on its own stream, then says so; another copies it. */
struct late {
    struct weir__device *device;
    struct weir_stream *stream; /* the producer's */
    struct weir__event made;
    struct weir__gate recorded; /* 1 once `made` is recorded */
    uint32_t *source;
    size_t count;
    uint32_t value;
    uint64_t late_ns;
    bool through_copy; /* the source itself comes by a copy */
    uint32_t *scratch;
};

static void *produce(void *context) {
    struct late *late = context;
    const struct weir__device_calls *calls = late->device->calls;
    sleep_ns(late->late_ns);
    uint32_t *target = late->through_copy ? late->scratch : late->source;
    for (size_t i = 0; i < late->count; i++) target[i] = late->value + (uint32_t)i;
    if (late->through_copy) {
        EXPECT_STATUS(
            calls->copy(late->stream, late->source, late->scratch, late->count * sizeof(uint32_t)),
            WEIR_OK);
    }
    EXPECT_STATUS(calls->event_record(late->stream, &late->made), WEIR_OK);
    weir__gate_advance(&late->recorded, 1);
    return NULL;
}

static void consume(struct late *late, struct weir_stream *stream, uint32_t *copied) {
    const struct weir__device_calls *calls = late->device->calls;
    struct weir__event done;
    CHECK_OK(calls->event_init(late->device, &done));
    CHECK(weir__gate_wait(&late->recorded, 1, 1000, 0));
    CHECK_OK(calls->stream_wait(stream, &late->made));
    CHECK_OK(calls->copy(stream, copied, late->source, late->count * sizeof *copied));
    CHECK_OK(calls->event_record(stream, &done));
    CHECK_OK(calls->event_wait(&done));
    for (size_t i = 0; i < late->count; i++) CHECK_EQ_UINT(copied[i], late->value + (uint32_t)i);
    calls->event_clean_up(&done);
}

static void copy_late(struct weir__device *device, size_t count, bool through_copy) {
    const struct weir__device_calls *calls = device->calls;
    struct late late = {.device = device,
                        .count = count,
                        .value = (uint32_t)test_random_u64(),
                        .late_ns = 10000000,
                        .through_copy = through_copy};
    size_t bytes = (count * sizeof(uint32_t) + 63) / 64 * 64;
    late.source = acquire(device, bytes);
    late.scratch = acquire(device, bytes);
    uint32_t *copied = acquire(device, bytes);
    struct weir_stream *stream = NULL;
    pthread_t producer;
    EXPECT_STATUS(calls->stream_new(device, &late.stream), WEIR_OK);
    EXPECT_STATUS(calls->stream_new(device, &stream), WEIR_OK);
    EXPECT_STATUS(calls->event_init(device, &late.made), WEIR_OK);
    if (!test_has_failed() && EXPECT(pthread_create(&producer, NULL, produce, &late) == 0)) {
        consume(&late, stream, copied);
        EXPECT_EQ_INT(pthread_join(producer, NULL), 0);
    }
    calls->event_clean_up(&late.made);
    calls->stream_destroy(stream);
    calls->stream_destroy(late.stream);
    calls->memory_release(device, copied, bytes);
    calls->memory_release(device, late.scratch, bytes);
    calls->memory_release(device, late.source, bytes);
}

// ST-1
static void test_a_copy_delivers_what_a_late_producer_made(void) {
    struct weir__device *device = open_cpu();
    /* Once forward, once back as a gradient would; small, and large enough for the other path. */
    copy_late(device, 16, false);
    copy_late(device, 1000, true);
    copy_late(device, device->stream_min / sizeof(uint32_t) + 16, false);
    device->calls->close(device);
}

static void test_an_event_never_recorded_counts_as_done(void) {
    struct weir__device *device = open_cpu();
    struct weir_stream *stream = NULL;
    struct weir__event event;
    EXPECT_STATUS(device->calls->stream_new(device, &stream), WEIR_OK);
    EXPECT_STATUS(device->calls->event_init(device, &event), WEIR_OK);
    EXPECT_EQ_UINT(event.ready_ns, 0);
    EXPECT_STATUS(device->calls->stream_wait(stream, &event), WEIR_OK);
    EXPECT_STATUS(device->calls->event_wait(&event), WEIR_OK);
    uint64_t before = weir__now_ns();
    EXPECT_STATUS(device->calls->event_record(stream, &event), WEIR_OK);
    EXPECT(event.ready_ns >= before && event.ready_ns <= weir__now_ns());
    device->calls->event_clean_up(&event);
    device->calls->stream_destroy(stream);
    device->calls->close(device);
}

static void test_a_set_of_copies_does_each(void) {
    struct weir__device *device = open_cpu();
    struct weir_stream *stream = NULL;
    char from[3][8] = {"first", "second", "third"}, to[3][8] = {{0}};
    CHECK_OK(device->calls->stream_new(device, &stream));
    const struct weir__copy_item items[] = {{to[0], from[0], 8}, {to[1], from[1], 3}};
    const struct weir__copy_set set = {items, 2, device->memory, device->memory, 1};
    EXPECT_STATUS(device->calls->copy_set(stream, &set), WEIR_OK);
    EXPECT_EQ_STR(to[0], "first");
    EXPECT_EQ_STR(to[1], "sec");
    EXPECT_EQ_STR(to[2], "");
    device->calls->stream_destroy(stream);
    device->calls->close(device);
}

WEIR_TEST_SUITE(device, TEST(devices_open_by_name), TEST(unknown_and_malformed_devices_are_refused),
                TEST(a_device_without_memory_says_so),
                TEST(memory_is_huge_page_aligned_and_zero_once_touched),
                TEST(touching_for_an_absent_node_still_zeroes),
                TEST(released_memory_goes_back_whole), TEST(copies_of_every_size_are_whole),
                TEST(large_copies_pass_the_caches_by),
                TEST(a_copy_delivers_what_a_late_producer_made), TEST(a_set_of_copies_does_each),
                TEST(an_event_never_recorded_counts_as_done))
