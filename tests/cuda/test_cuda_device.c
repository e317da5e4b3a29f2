/* SPDX-License-Identifier: MIT */
/*
 * Goal: a GPU keeps device.h's contract, says what failed in the driver's words, and leaves nothing
 * behind, whichever call fails. Method: the fake driver, which runs work late and in hostile
 * orders, keeps the host from device memory, and fails the k-th call; where that is not needed, the
 * machine's own GPUs too. Clocks that drift are computed.
 */
#include "device/cuda.h"
#include "cuda/fake_gpu.h"
#include "harness.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 1024, BYTES = COUNT * sizeof(float) };

#define GPUS_OR_SKIP(fake, seed, count, flags)                                                     \
    const struct weir_fake_cuda_control *fake = fake_gpus(seed, count, flags);                     \
    if (fake == NULL) return
/* The machine's own will do. */
#define ANY_GPUS_OR_SKIP(fake, seed, count, flags)                                                 \
    const struct weir_fake_cuda_control *fake = any_gpus(seed, count, flags);                      \
    if (fake == NULL) return

static void *acquire(struct weir__device *device, size_t bytes) {
    void *memory = NULL;
    EXPECT_STATUS(device->calls->memory_acquire(device, bytes, &memory), WEIR_OK);
    return memory;
}

/* Pinned pages of the host, by way of the CPU's device. */
struct pinned {
    struct weir__device *cpu, *gpu;
    float *data;
};

static void pin(struct pinned *pinned, struct weir__device *gpu) {
    *pinned = (struct pinned){.gpu = gpu};
    CHECK_OK(weir__device_open("cpu", test_allocator(), NULL, &pinned->cpu));
    pinned->data = acquire(pinned->cpu, BYTES);
    CHECK_OK(gpu->calls->host_pin(gpu, pinned->data, BYTES));
}

static void unpin(struct pinned *pinned) {
    pinned->gpu->calls->host_unpin(pinned->gpu, pinned->data, BYTES);
    pinned->cpu->calls->memory_release(pinned->cpu, pinned->data, BYTES);
    pinned->cpu->calls->close(pinned->cpu);
}

static void fill(float *data, float first) {
    for (int i = 0; i < COUNT; i++) data[i] = first + (float)i;
}

/* Wrong elements, NaN included. */
static int wrong(const float *data, float first) {
    int count = 0;
    for (int i = 0; i < COUNT; i++) count += !(data[i] == first + (float)i);
    return count;
}

/* ---- opening, memory ---- */

static void test_a_gpu_opens_by_name_and_leaves_nothing(void) {
    bool real = test_gpu_is_real();
    ANY_GPUS_OR_SKIP(fake, 1, real ? 1 : 3, 0);
    static const char *const names[] = {"cuda", "cuda:0", "cuda:2"};
    static const uint32_t memories[] = {1, 1, 3};
    for (size_t i = 0; i < WEIR__COUNT_OF(names) - real; i++) {
        struct weir__device *device = fake_gpu_open(names[i]);
        CHECK_HELPERS();
        CHECK_EQ_STR(device->name, names[i]);
        CHECK_EQ_STR(device->calls->kind, "cuda");
        CHECK(!device->calls->synchronous);
        CHECK_EQ_UINT(device->memory, memories[i]);
        CHECK(strchr(device->pci, ':') != NULL);
        if (!real) CHECK_EQ_STR(device->pci, i < 2 ? "0000:1B:00.0" : "0000:1D:00.0");
        char text[64] = "x";
        device->calls->explain(device, text, sizeof text);
        CHECK_EQ_STR(text, "");
        device->calls->close(device);
        CHECK(fake_gpus_clean(fake));
    }
}

/* The context is shared with whoever uses CUDA in this process, and a thread's own stays its own.
 */
static void test_only_enter_changes_the_threads_context(void) {
    ANY_GPUS_OR_SKIP(fake, 1, 2, 0);
    struct weir__device *first = fake_gpu_open("cuda:0");
    struct weir__device *second = NULL;
    CHECK_HELPERS();
    struct weir__cuda_device *own = weir__cuda_device(first);
    struct CUctx_st *current = NULL;
    CHECK_OK(weir__device_open("cuda:1", test_allocator(), NULL, &second));
    void *memory = acquire(second, 4096);
    CHECK_OK(second->calls->memory_touch(second, memory, 4096, -1));
    second->calls->memory_release(second, memory, 4096);
    CHECK_EQ_INT(own->driver.context_get_current(&current), 0);
    CHECK_EQ_PTR(current, own->context);
    CHECK_OK(second->calls->enter(second));
    CHECK_EQ_INT(own->driver.context_get_current(&current), 0);
    CHECK_EQ_PTR(current, weir__cuda_device(second)->context);
    second->calls->close(second);
    first->calls->close(first);
    CHECK(fake_gpus_clean(fake));
}

static void test_memory_is_aligned_and_zero_once_touched(void) {
    ANY_GPUS_OR_SKIP(fake, 1, 1, 0);
    static const size_t sizes[] = {0, 64, 4096, 4160, (1u << 20) + 64};
    struct weir__device *device = fake_gpu_open("cuda");
    CHECK_HELPERS();
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++) {
        void *memory = acquire(device, sizes[i]);
        CHECK_EQ_UINT((uintptr_t)memory % 256, 0);
        CHECK_OK(device->calls->memory_touch(device, memory, sizes[i], 0));
        unsigned char *seen = malloc(sizes[i] + 1);
        CHECK(seen != NULL && fake->peek(seen, memory, sizes[i]));
        size_t others = 0;
        for (size_t k = 0; k < sizes[i]; k++) others += seen[k] != 0;
        free(seen);
        CHECK_EQ_UINT(others, 0);
        device->calls->memory_release(device, memory, sizes[i]);
    }
    device->calls->memory_release(device, NULL, 64);
    device->calls->close(device);
    CHECK(fake_gpus_clean(fake));
}

static void test_too_little_memory_is_told_in_the_drivers_words(void) {
    ANY_GPUS_OR_SKIP(fake, 1, 1, 0);
    struct weir__device *device = fake_gpu_open("cuda");
    CHECK_HELPERS();
    void *memory = NULL;
    char text[256];
    size_t too_much = test_gpu_is_real() ? (size_t)1 << 46 : 2u << 20;
    if (!test_gpu_is_real()) fake->set_memory(1u << 20);
    CHECK_STATUS(device->calls->memory_acquire(device, too_much, &memory), WEIR_ERR_OUT_OF_MEMORY);
    device->calls->explain(device, text, sizeof text);
    CHECK_CONTAINS(text, "cuda: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)");
    memory = acquire(device, 1u << 20);
    device->calls->memory_release(device, memory, 1u << 20);
    device->calls->close(device);
    CHECK(fake_gpus_clean(fake));
}

static void test_no_memory_of_the_host_is_told(void) {
    ANY_GPUS_OR_SKIP(fake, 1, 1, 0);
    struct weir__device *device = NULL;
    for (uint64_t k = 1;; k++) {
        test_allocator_fail_at(k, false);
        int status = weir__device_open("cuda", test_allocator(), NULL, &device);
        if (!test_allocator_fired()) break;
        CHECK_STATUS(status, WEIR_ERR_OUT_OF_MEMORY);
        CHECK(fake_gpus_clean(fake));
    }
    struct weir_stream *stream = NULL;
    test_allocator_fail_at(1, false);
    EXPECT_STATUS(device->calls->stream_new(device, &stream), WEIR_ERR_OUT_OF_MEMORY);
    test_allocator_fail_at(0, false);
    device->calls->stream_destroy(NULL);
    device->calls->event_clean_up(NULL);
    device->calls->event_clean_up(&(struct weir__event){0});
    device->calls->close(device);
    CHECK(fake_gpus_clean(fake));
}

/* ---- streams, events, copies ---- */

/* Host to GPU on one stream, GPU to host on another that waits for it. */
static void there_and_back(struct weir__device *device, struct pinned *pinned, float first) {
    const struct weir__device_calls *calls = device->calls;
    struct weir_stream *up = NULL, *down = NULL;
    struct weir__event there = {0};
    float *memory = acquire(device, BYTES);
    EXPECT_STATUS(calls->stream_new(device, &up), WEIR_OK);
    EXPECT_STATUS(calls->stream_new(device, &down), WEIR_OK);
    EXPECT_STATUS(calls->event_init(device, &there), WEIR_OK);
    fill(pinned->data, first);
    EXPECT_STATUS(calls->copy(up, memory, pinned->data, BYTES), WEIR_OK);
    EXPECT_STATUS(calls->event_record(up, &there), WEIR_OK);
    EXPECT_STATUS(calls->event_wait(&there), WEIR_OK);
    fill(pinned->data, -1e6f);
    EXPECT_STATUS(calls->stream_wait(down, &there), WEIR_OK);
    EXPECT_STATUS(calls->copy(down, pinned->data, memory, BYTES), WEIR_OK);
    EXPECT_STATUS(calls->copy(down, NULL, NULL, 0), WEIR_OK);
    EXPECT_STATUS(calls->stream_finish(down), WEIR_OK);
    EXPECT_EQ_INT(wrong(pinned->data, first), 0);
    EXPECT_STATUS(calls->stream_finish(up), WEIR_OK);
    calls->event_clean_up(&there);
    calls->stream_destroy(down);
    calls->stream_destroy(up);
    calls->memory_release(device, memory, BYTES);
}

static void test_a_copy_delivers_what_its_source_has_when_its_turn_comes(void) {
    ANY_GPUS_OR_SKIP(fake, 1, 1, 0);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct pinned pinned;
        fake->reset(seed, 1, 0);
        fake->set_order((enum weir_fake_cuda_order)(seed % 3));
        struct weir__device *device = fake_gpu_open("cuda");
        CHECK_HELPERS();
        pin(&pinned, device);
        CHECK_HELPERS();
        there_and_back(device, &pinned, (float)seed * 5000.0f);
        unpin(&pinned);
        device->calls->close(device);
        CHECK(fake_gpus_clean(fake));
    }
}

static void test_an_event_never_recorded_counts_as_done(void) {
    ANY_GPUS_OR_SKIP(fake, 1, 1, 0);
    struct weir__device *device = fake_gpu_open("cuda");
    struct weir_stream *stream = NULL;
    struct weir__event event;
    uint64_t ns = 7;
    CHECK_HELPERS();
    CHECK_OK(device->calls->stream_new(device, &stream));
    CHECK_OK(device->calls->event_init(device, &event));
    CHECK_OK(device->calls->stream_wait(stream, &event));
    CHECK_OK(device->calls->event_wait(&event));
    CHECK_OK(device->calls->stream_finish(stream));
    CHECK_STATUS(device->calls->event_time(&event, &ns), WEIR_ERR_BACKEND);
    CHECK_EQ_UINT(ns, 7);
    device->calls->event_clean_up(&event);
    device->calls->stream_destroy(stream);
    device->calls->close(device);
    CHECK(fake_gpus_clean(fake));
}

static void test_a_kernel_runs_on_the_stream(void) {
    ANY_GPUS_OR_SKIP(fake, 1, 1, 0);
    struct pinned pinned;
    struct weir_stream *stream = NULL;
    struct weir__device *device = fake_gpu_open("cuda");
    CHECK_HELPERS();
    pin(&pinned, device);
    void *memory = acquire(device, BYTES);
    CHECK_OK(device->calls->stream_new(device, &stream));
    CHECK(weir_stream_cuda(stream) != NULL);
    const float value = 2.5f;
    struct weir__cuda_fill arguments = {.to = memory, .bytes = BYTES};
    for (int i = 0; i < 4; i++) memcpy(&arguments.pattern[i], &value, sizeof value);
    const struct weir__cuda_grid grid = {{2, 1, 1}, {256, 1, 1}, 0};
    CHECK_OK(weir__cuda_launch(stream, WEIR__CUDA_KERNEL_fill, &grid, (void *[]){&arguments}));
    memset(&arguments, 0, sizeof arguments); /* they were copied */
    CHECK_OK(device->calls->copy(stream, pinned.data, memory, BYTES));
    CHECK_OK(device->calls->stream_finish(stream));
    for (int i = 0; i < COUNT; i++) CHECK(pinned.data[i] == value);
    const struct weir__cuda_grid large = {{1, 1, 1}, {2048, 1, 1}, 0};
    CHECK_STATUS(weir__cuda_launch(stream, WEIR__CUDA_KERNEL_fill, &large, (void *[]){&arguments}),
                 WEIR_ERR_BACKEND);
    device->calls->stream_destroy(stream);
    device->calls->memory_release(device, memory, BYTES);
    unpin(&pinned);
    device->calls->close(device);
    CHECK(fake_gpus_clean(fake));
}

/* The context's default stream belongs to whoever shares it: its work is not waited for. */
static void test_streams_are_not_ordered_with_the_default_one(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    fake->set_order(WEIR_FAKE_CUDA_LAZY);
    struct pinned pinned;
    struct weir_stream *stream = NULL;
    struct weir__device *device = fake_gpu_open("cuda");
    struct weir_fake_cuda_counts counts;
    CHECK_HELPERS();
    pin(&pinned, device);
    float *memory = acquire(device, BYTES);
    CHECK_OK(device->calls->stream_new(device, &stream));
    const struct weir__cuda_driver *driver = &weir__cuda_device(device)->driver;
    CHECK_EQ_INT(driver->memory_fill((uint64_t)(uintptr_t)memory, 1, BYTES, NULL), 0);
    CHECK_OK(device->calls->copy(stream, pinned.data, memory, BYTES));
    CHECK_OK(device->calls->stream_finish(stream));
    CHECK(pinned.data[0] != pinned.data[0]); /* not filled yet */
    fake->counts(&counts);
    CHECK_EQ_UINT(counts.pending, 1);
    CHECK_EQ_INT(driver->stream_synchronize(NULL), 0);
    device->calls->stream_destroy(stream);
    device->calls->memory_release(device, memory, BYTES);
    unpin(&pinned);
    device->calls->close(device);
    CHECK(fake_gpus_clean(fake));
}

static void test_a_cpus_stream_is_no_gpus(void) {
    struct weir__device *device = NULL;
    struct weir_stream *stream = NULL;
    CHECK_OK(weir__device_open("cpu", test_allocator(), NULL, &device));
    CHECK_OK(device->calls->stream_new(device, &stream));
    CHECK(weir_stream_cuda(stream) == NULL);
    CHECK_OK(weir__device_check("cpu:3", NULL));
    device->calls->stream_destroy(stream);
    device->calls->close(device);
}

/* ---- several devices ---- */

static void copy_over(struct weir__device *from, struct weir__device *to, int expected) {
    struct pinned pinned;
    struct weir_stream *stream = NULL;
    pin(&pinned, from);
    CHECK_HELPERS();
    float *a = acquire(from, BYTES), *b = acquire(to, BYTES);
    EXPECT_STATUS(from->calls->enter(from), WEIR_OK);
    EXPECT_STATUS(from->calls->stream_new(from, &stream), WEIR_OK);
    fill(pinned.data, 3.0f);
    EXPECT_STATUS(from->calls->copy(stream, a, pinned.data, BYTES), WEIR_OK);
    EXPECT_STATUS(from->calls->copy(stream, b, a, BYTES), expected);
    EXPECT_STATUS(from->calls->stream_finish(stream), WEIR_OK);
    if (expected == WEIR_OK) {
        fill(pinned.data, 0.0f);
        EXPECT_STATUS(from->calls->copy(stream, pinned.data, b, BYTES), WEIR_OK);
        EXPECT_STATUS(from->calls->stream_finish(stream), WEIR_OK);
        EXPECT_EQ_INT(wrong(pinned.data, 3.0f), 0);
    }
    from->calls->stream_destroy(stream);
    from->calls->memory_release(from, a, BYTES);
    to->calls->memory_release(to, b, BYTES);
    unpin(&pinned);
}

static void test_peers_are_reached_where_the_hardware_can(void) {
    GPUS_OR_SKIP(fake, 1, 3, 0);
    fake->set_peer(0, 2, false);
    struct weir__device *device[3], *again = fake_gpu_open("cuda");
    struct weir__device *cpu = NULL;
    char name[] = "cuda:0";
    for (int i = 0; i < 3; i++, name[5]++) device[i] = fake_gpu_open(name);
    CHECK_HELPERS();
    CHECK_OK(weir__device_open("cpu", test_allocator(), NULL, &cpu));
    copy_over(device[0], device[1], WEIR_ERR_BACKEND); /* not asked for yet */
    for (int twice = 0; twice < 2; twice++) {
        CHECK(device[0]->calls->reaches(device[0], device[1]));
        CHECK(!device[0]->calls->reaches(device[0], device[2]));
        CHECK(device[2]->calls->reaches(device[2], device[0]));
        CHECK(device[0]->calls->reaches(device[0], again));
        CHECK(!device[0]->calls->reaches(device[0], cpu));
        CHECK(!cpu->calls->reaches(cpu, device[0]));
    }
    copy_over(device[0], device[1], WEIR_OK);
    copy_over(device[0], again, WEIR_OK);
    copy_over(device[0], device[2], WEIR_ERR_BACKEND);
    struct weir_fake_cuda_counts counts;
    fake->counts(&counts);
    CHECK_EQ_UINT(counts.faults, 2);
    CHECK_CONTAINS(counts.first_fault, "without peer access");
    for (int i = 0; i < 3; i++) device[i]->calls->close(device[i]);
    again->calls->close(again);
    cpu->calls->close(cpu);
}

struct producer {
    struct weir__device *device;
    struct weir_stream *stream;
    struct weir__event made;
    struct weir__gate recorded;
    struct pinned *pinned;
    float *memory;
};

static void *produce(void *context) {
    struct producer *p = context;
    const struct weir__device_calls *calls = p->device->calls;
    EXPECT_STATUS(calls->enter(p->device), WEIR_OK);
    EXPECT_STATUS(calls->copy(p->stream, p->pinned->data, p->memory, BYTES), WEIR_OK);
    EXPECT_STATUS(calls->event_record(p->stream, &p->made), WEIR_OK);
    weir__gate_advance(&p->recorded, 1);
    return NULL;
}

/* The consumer's thread has never entered the GPU. */
static void *consume(void *context) {
    struct producer *p = context;
    struct weir_stream *stream = NULL;
    struct weir__event done;
    struct weir__device *cpu = p->pinned->cpu;
    EXPECT_STATUS(cpu->calls->stream_new(cpu, &stream), WEIR_OK);
    EXPECT_STATUS(cpu->calls->event_init(cpu, &done), WEIR_OK);
    EXPECT(weir__gate_wait(&p->recorded, 1, 1000, 0));
    EXPECT_STATUS(cpu->calls->stream_wait(stream, &p->made), WEIR_OK);
    EXPECT_EQ_INT(wrong(p->pinned->data, 11.0f), 0);
    EXPECT_STATUS(cpu->calls->event_record(stream, &done), WEIR_OK);
    EXPECT_STATUS(p->device->calls->stream_wait(p->stream, &done), WEIR_OK);
    cpu->calls->event_clean_up(&done);
    cpu->calls->stream_destroy(stream);
    return NULL;
}

static void test_cpu_and_gpu_wait_for_each_other(void) {
    ANY_GPUS_OR_SKIP(fake, 5, 1, 0);
    static float given[COUNT];
    struct pinned pinned;
    struct producer p = {.device = fake_gpu_open("cuda"), .pinned = &pinned};
    CHECK_HELPERS();
    pin(&pinned, p.device);
    p.memory = acquire(p.device, BYTES);
    fill(given, 11.0f);
    CHECK(fake->poke(p.memory, given, BYTES));
    CHECK_OK(p.device->calls->stream_new(p.device, &p.stream));
    CHECK_OK(p.device->calls->event_init(p.device, &p.made));
    pthread_t threads[2];
    CHECK_EQ_INT(pthread_create(&threads[0], NULL, produce, &p), 0);
    CHECK_EQ_INT(pthread_create(&threads[1], NULL, consume, &p), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ_INT(pthread_join(threads[i], NULL), 0);
    CHECK_OK(p.device->calls->stream_finish(p.stream));
    p.device->calls->event_clean_up(&p.made);
    p.device->calls->stream_destroy(p.stream);
    p.device->calls->memory_release(p.device, p.memory, BYTES);
    unpin(&pinned);
    p.device->calls->close(p.device);
    CHECK(fake_gpus_clean(fake));
}

/* ---- failures ---- */

static void *copy_without_entering(void *context) {
    struct producer *p = context;
    char text[256];
    const struct weir__device_calls *calls = p->device->calls;
    EXPECT_STATUS(calls->copy(p->stream, p->pinned->data, p->memory, BYTES), WEIR_ERR_BACKEND);
    calls->explain(p->device, text, sizeof text);
    EXPECT_CONTAINS(text, "CUDA_ERROR_INVALID_CONTEXT");
    return NULL;
}

static void test_a_thread_that_did_not_enter_is_refused(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    struct pinned pinned;
    struct producer p = {.device = fake_gpu_open("cuda"), .pinned = &pinned};
    CHECK_HELPERS();
    pin(&pinned, p.device);
    p.memory = acquire(p.device, BYTES);
    CHECK_OK(p.device->calls->stream_new(p.device, &p.stream));
    pthread_t thread;
    CHECK_EQ_INT(pthread_create(&thread, NULL, copy_without_entering, &p), 0);
    CHECK_EQ_INT(pthread_join(thread, NULL), 0);
    p.device->calls->stream_destroy(p.stream);
    p.device->calls->memory_release(p.device, p.memory, BYTES);
    unpin(&pinned);
    p.device->calls->close(p.device);
    CHECK(fake_gpus_clean(fake));
}

static void test_memory_that_is_not_pinned_is_refused(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    static _Alignas(4096) float host[COUNT];
    struct weir_stream *stream = NULL;
    struct weir__device *device = fake_gpu_open("cuda");
    CHECK_HELPERS();
    float *memory = acquire(device, BYTES);
    CHECK_OK(device->calls->stream_new(device, &stream));
    CHECK_STATUS(device->calls->copy(stream, memory, host, BYTES), WEIR_ERR_BACKEND);
    CHECK_OK(device->calls->host_pin(device, host, BYTES / 2));
    CHECK_OK(device->calls->host_pin(device, host, 0));
    CHECK_STATUS(device->calls->host_pin(device, host, BYTES), WEIR_ERR_BACKEND); /* twice */
    CHECK_OK(device->calls->copy(stream, memory, host, BYTES / 2));
    CHECK_STATUS(device->calls->copy(stream, memory, host, BYTES), WEIR_ERR_BACKEND);
    CHECK_OK(device->calls->stream_finish(stream));
    device->calls->host_unpin(device, host, BYTES / 2);
    device->calls->host_unpin(device, NULL, BYTES);
    CHECK_STATUS(device->calls->copy(stream, memory, host, 64), WEIR_ERR_BACKEND);
    struct weir_fake_cuda_counts counts;
    fake->counts(&counts);
    CHECK_EQ_UINT(counts.faults, 3);
    device->calls->stream_destroy(stream);
    device->calls->memory_release(device, memory, BYTES);
    device->calls->close(device);
}

/* A life with everything in it; the first status that is not WEIR_OK, whatever it is, ends it. */
struct life {
    struct weir__device *device;
    struct weir_stream *stream[2];
    struct weir__event event[2];
    void *memory;
    void *host; /* pinned if `pinned` */
    bool pinned;
};

static int set_up(struct life *life) {
    const struct weir__device_calls *calls = life->device->calls;
    int status = calls->enter(life->device);
    if (status == WEIR_OK) status = calls->memory_acquire(life->device, BYTES, &life->memory);
    if (status == WEIR_OK) status = calls->memory_touch(life->device, life->memory, BYTES, -1);
    if (status == WEIR_OK) status = calls->host_pin(life->device, life->host, BYTES);
    life->pinned = status == WEIR_OK;
    for (int i = 0; i < 2; i++) {
        if (status == WEIR_OK) status = calls->stream_new(life->device, &life->stream[i]);
        if (status == WEIR_OK) status = calls->event_init(life->device, &life->event[i]);
    }
    return status;
}

static int work(struct life *life) {
    const struct weir__device_calls *calls = life->device->calls;
    uint64_t ns;
    int status = calls->copy(life->stream[0], life->memory, life->host, BYTES);
    if (status == WEIR_OK) status = calls->event_record(life->stream[0], &life->event[0]);
    if (status == WEIR_OK) status = calls->stream_wait(life->stream[1], &life->event[0]);
    if (status == WEIR_OK) status = calls->copy(life->stream[1], life->host, life->memory, BYTES);
    if (status == WEIR_OK) status = calls->event_record(life->stream[1], &life->event[1]);
    if (status == WEIR_OK) status = calls->event_wait(&life->event[1]);
    if (status == WEIR_OK) status = calls->event_time(&life->event[1], &ns);
    int finished = WEIR_OK; /* in any case */
    for (int i = 0; i < 2; i++) {
        int own = calls->stream_finish(life->stream[i]);
        if (own != WEIR_OK) own = calls->stream_finish(life->stream[i]);
        if (finished == WEIR_OK) finished = own;
    }
    return status != WEIR_OK ? status : finished;
}

static void end(struct life *life) {
    const struct weir__device_calls *calls = life->device->calls;
    for (int i = 0; i < 2; i++) {
        calls->event_clean_up(&life->event[i]);
        calls->stream_destroy(life->stream[i]);
    }
    if (life->pinned) calls->host_unpin(life->device, life->host, BYTES);
    calls->memory_release(life->device, life->memory, BYTES);
    calls->close(life->device);
}

static int live_once(void) {
    static _Alignas(4096) float host[COUNT];
    struct life life = {.host = host};
    int status = weir__device_open("cuda", test_allocator(), NULL, &life.device);
    if (status != WEIR_OK) return status;
    status = set_up(&life);
    if (status == WEIR_OK) status = work(&life);
    end(&life);
    return status;
}

static void check_life_that_fails(const struct weir_fake_cuda_control *fake, uint64_t k,
                                  int result) {
    fake->reset(k, 1, 0);
    fake->fail_call(k, result);
    int status = live_once();
    if (!fake->failed()) CHECK_OK(status);
    CHECK(status == WEIR_OK || status == weir__cuda_status(result));
    struct weir_fake_cuda_counts counts;
    fake->counts(&counts);
    CHECK_EQ_UINT(counts.contexts + counts.streams + counts.events + counts.modules, 0);
    CHECK_EQ_UINT(counts.allocations + counts.bytes + counts.pins, 0);
    CHECK_EQ_UINT(counts.orphans, 0);
    CHECK_EQ_UINT(counts.faults, 0);
    CHECK_EQ_UINT(test_allocator_live_blocks(), 0);
}

static void test_whichever_call_fails_nothing_is_left(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    static const int results[] = {WEIR__CUDA_UNKNOWN, WEIR__CUDA_OUT_OF_MEMORY,
                                  WEIR__CUDA_ILLEGAL_ADDRESS};
    for (size_t i = 0; i < WEIR__COUNT_OF(results); i++) {
        uint64_t k = 0;
        do {
            check_life_that_fails(fake, ++k, results[i]);
            if (test_has_failed()) TEST_FAIL("when call %u gave %d", (unsigned)k, results[i]);
            CHECK_HELPERS();
        } while (fake->failed());
        CHECK(k > 60);
    }
}

static void test_a_broken_context_stays_broken_and_another_opens(void) {
    GPUS_OR_SKIP(fake, 1, 2, 0);
    struct life life = {0}, other = {0};
    static _Alignas(4096) float host[COUNT], others[COUNT];
    char text[256];
    life.host = host, other.host = others;
    life.device = fake_gpu_open("cuda:0");
    CHECK_HELPERS();
    CHECK_OK(set_up(&life));
    fake->fail_call(1, WEIR__CUDA_ILLEGAL_ADDRESS);
    CHECK_STATUS(life.device->calls->copy(life.stream[0], life.memory, host, BYTES),
                 WEIR_ERR_DEVICE);
    CHECK_STATUS(work(&life), WEIR_ERR_DEVICE);
    CHECK_STATUS(life.device->calls->event_wait(&life.event[0]), WEIR_ERR_DEVICE);
    CHECK_STATUS(life.device->calls->memory_touch(life.device, life.memory, 64, 0),
                 WEIR_ERR_DEVICE);
    life.device->calls->explain(life.device, text, sizeof text);
    CHECK_CONTAINS(text, "cuda:0: cuMemcpyAsync: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    CHECK_CONTAINS(text, "make the pipe anew");
    other.device = fake_gpu_open("cuda:1");
    CHECK_HELPERS();
    CHECK_OK(set_up(&other));
    CHECK_OK(work(&other));
    end(&other);
    end(&life);
    CHECK(fake_gpus_clean(fake));
    CHECK_OK(live_once());
    CHECK(fake_gpus_clean(fake));
}

/* ---- time ---- */

static void test_an_event_is_done_between_its_record_and_the_finish(void) {
    ANY_GPUS_OR_SKIP(fake, 1, 1, 0);
    const uint64_t slack_ns = 2000000000; /* the machine may be busy; wrong bases are 9 s apart */
    static _Alignas(4096) float host[COUNT];
    struct life life = {.host = host};
    bool real = test_gpu_is_real();
    if (!real) fake->set_clock(0.0, 123456789);
    life.device = fake_gpu_open("cuda");
    CHECK_HELPERS();
    CHECK_OK(set_up(&life));
    for (int round = 0; round < 4; round++) {
        /* A base that is far away, by a jump of the GPU's clock. */
        if (round == 2 && !real) fake->set_clock(0.0, 123456789 + UINT64_C(9000000000));
        if (round == 3 && !real) fake->set_clock(0.0, 1000);
        uint64_t ns = 0, before = weir__now_ns();
        CHECK_OK(life.device->calls->event_record(life.stream[0], &life.event[0]));
        CHECK_OK(life.device->calls->stream_finish(life.stream[0]));
        uint64_t after = weir__now_ns();
        CHECK_OK(life.device->calls->event_time(&life.event[0], &ns));
        CHECK(ns + slack_ns >= before && ns <= after + slack_ns);
    }
    end(&life);
    CHECK(fake_gpus_clean(fake));
}

/* An hour of two clocks, bases 4 seconds apart that are known to 3 us: times are exact to a few
 * microseconds throughout, and to one relative to each other near a base. */
static void test_times_stay_exact_on_long_runs(void) {
    static const double drifts[] = {0.0, 37e-6, -80e-6};
    const double step_s = 4.0, noise_ns = 3000.0;
    for (size_t d = 0; d < WEIR__COUNT_OF(drifts); d++) {
        const uint64_t begin = UINT64_C(1000000000000);
        struct weir__cuda_clock clock;
        weir__cuda_clock_begin(&clock, begin);
        double base_s = 0.0, worst_ns = 0.0;
        for (double now = step_s; now < 3600.0; now += step_s) {
            /* Just before the base is renewed, when it is furthest. */
            float since = (float)((now - base_s) * (1.0 + drifts[d]) * 1e3);
            double error =
                (double)(int64_t)(weir__cuda_clock_map(&clock, since) - begin) - now * 1e9;
            if (now > 60.0 && fabs(error) > worst_ns) worst_ns = fabs(error);
            double noise = (test_random_unit() * 2.0 - 1.0) * noise_ns;
            weir__cuda_clock_rebase(&clock, begin + (uint64_t)(now * 1e9 + noise), since);
            base_s = now;
        }
        CHECK(worst_ns < 4500.0);
        /* Half a second after the last base: half a microsecond of float, and the rate's error. */
        uint64_t a = weir__cuda_clock_map(&clock, 500.0f), b = weir__cuda_clock_map(&clock, 501.0f);
        CHECK_NEAR((double)(b - a), 1e6 / (1.0 + drifts[d]), 500.0);
    }
}

/* Two bases known to 3 us: what lies between them is known as they are, whatever the rate. */
static void test_times_between_two_bases_need_no_rate(void) {
    static const double drifts[] = {0.0, 40e-6, -500e-6}, apart_ms[] = {20.0, 300.0, 3000.0};
    for (size_t d = 0; d < WEIR__COUNT_OF(drifts); d++) {
        for (size_t a = 0; a < WEIR__COUNT_OF(apart_ms); a++) {
            const uint64_t begin = UINT64_C(1000000000000);
            const double gpu_ms = apart_ms[a] * (1.0 + drifts[d]), noise_ns = 3000.0;
            struct weir__cuda_clock clock;
            weir__cuda_clock_begin(&clock, begin);
            weir__cuda_clock_rebase(&clock, begin + (uint64_t)(apart_ms[a] * 1e6 + noise_ns),
                                    (float)gpu_ms);
            uint64_t before = weir__cuda_clock_map(&clock, (float)(-0.5 * gpu_ms));
            CHECK_NEAR((double)(before - begin), 0.5 * apart_ms[a] * 1e6, noise_ns + 500.0);
            before = weir__cuda_clock_map(&clock, (float)(-0.875 * gpu_ms));
            CHECK_NEAR((double)(before - begin), 0.125 * apart_ms[a] * 1e6, noise_ns + 500.0);
            /* a base just behind it changes nothing there */
            weir__cuda_clock_rebase(&clock, clock.base_host_ns + 100000, 0.1f);
            uint64_t after = weir__cuda_clock_map(&clock, (float)(-0.875 * gpu_ms - 0.1));
            CHECK_NEAR((double)after, (double)before, 500.0);
        }
    }
}

static void test_a_clock_that_was_set_begins_anew(void) {
    struct weir__cuda_clock clock;
    weir__cuda_clock_begin(&clock, 1000000000);
    weir__cuda_clock_rebase(&clock, 1000000000 + 5000000, 3600e3f);
    CHECK_EQ_UINT(weir__cuda_clock_map(&clock, 0.0f), 1005000000);
    CHECK_EQ_UINT(weir__cuda_clock_map(&clock, -2.0f), 1003000000);
    CHECK_EQ_UINT(weir__cuda_clock_map(&clock, 0.5f), 1005500000);
}

WEIR_TEST_SUITE(
    cuda_device, TEST(a_gpu_opens_by_name_and_leaves_nothing),
    TEST(only_enter_changes_the_threads_context), TEST(memory_is_aligned_and_zero_once_touched),
    TEST(too_little_memory_is_told_in_the_drivers_words), TEST(no_memory_of_the_host_is_told),
    TEST(a_copy_delivers_what_its_source_has_when_its_turn_comes),
    TEST(an_event_never_recorded_counts_as_done), TEST(a_kernel_runs_on_the_stream),
    TEST(streams_are_not_ordered_with_the_default_one), TEST(a_cpus_stream_is_no_gpus),
    TEST(peers_are_reached_where_the_hardware_can), TEST(cpu_and_gpu_wait_for_each_other),
    TEST(a_thread_that_did_not_enter_is_refused), TEST(memory_that_is_not_pinned_is_refused),
    TEST(whichever_call_fails_nothing_is_left),
    TEST(a_broken_context_stays_broken_and_another_opens),
    TEST(an_event_is_done_between_its_record_and_the_finish), TEST(times_stay_exact_on_long_runs),
    TEST(times_between_two_bases_need_no_rate), TEST(a_clock_that_was_set_begins_anew))
