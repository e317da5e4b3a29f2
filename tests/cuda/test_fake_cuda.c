/* SPDX-License-Identifier: MIT */
/*
 * Goal: the fake driver lets no forgotten wait through, and never breaks a right program. Method:
 * programs of copies whose result is known: pairs with one wait, read after write and write after
 * read, with the wait and without; random programs over two GPUs and several streams with all the
 * waits that their buffers need, under 1,000 seeds, then with one wait less.
 */
#include "device/cuda.h"
#include "cuda/fake_gpu.h"
#include "harness.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define GPUS_OR_SKIP(fake, seed, count, flags)                                                     \
    const struct weir_fake_cuda_control *fake = fake_gpus(seed, count, flags);                     \
    if (fake == NULL) return

/* ---- random programs ---- */

enum {
    GPUS = 2,
    STREAMS = 5, /* 0, 2, 4 on the first GPU */
    BUFFERS = 6,
    HOSTS = 4,
    PLACES = BUFFERS + HOSTS,
    STEPS = 24,
    WORDS = 16,
    BUFFER_BYTES = WORDS * sizeof(uint32_t)
};

/* A step copies one place to another on one stream, or adds one place to another. */
struct program {
    const struct weir_fake_cuda_control *fake;
    bool adds_only; /* what is never overwritten cannot hide a wrong order */
    struct weir__device *device[GPUS];
    struct weir_stream *stream[STREAMS];
    struct weir__event event[STEPS];
    uint32_t *place[PLACES];       /* device buffers, then pinned host buffers */
    uint32_t value[PLACES][WORDS]; /* what each must hold in the end */
    int writer[PLACES];            /* the step that wrote it last; -1 */
    uint32_t readers[PLACES];      /* bit s: step s read it since */
    int on[STEPS];                 /* the step's stream */
    _Alignas(4096) uint32_t host[HOSTS * WORDS];
};

static struct weir__device *device_of(struct program *p, int stream) {
    return p->device[stream % GPUS];
}

static void open_program(struct program *p) {
    for (int g = 0; g < GPUS; g++) p->device[g] = fake_gpu_open(g == 0 ? "cuda:0" : "cuda:1");
    CHECK_HELPERS();
    for (int g = 0; g < GPUS; g++)
        CHECK(p->device[g]->calls->reaches(p->device[g], p->device[1 - g]));
    CHECK_OK(p->device[0]->calls->host_pin(p->device[0], p->host, sizeof p->host));
    for (int s = 0; s < STREAMS; s++)
        CHECK_OK(device_of(p, s)->calls->stream_new(device_of(p, s), &p->stream[s]));
    for (int i = 0; i < PLACES; i++) {
        struct weir__device *device = p->device[i % GPUS];
        void *memory = &p->host[(i < BUFFERS ? 0 : i - BUFFERS) * WORDS];
        if (i < BUFFERS) CHECK_OK(device->calls->memory_acquire(device, BUFFER_BYTES, &memory));
        p->place[i] = memory;
        for (int w = 0; w < WORDS; w++) p->value[i][w] = (uint32_t)(1000 * i + w);
        if (i < BUFFERS)
            CHECK(p->fake->poke(memory, p->value[i], BUFFER_BYTES));
        else
            memcpy(memory, p->value[i], BUFFER_BYTES);
        p->writer[i] = -1;
    }
}

static void close_program(struct program *p) {
    for (int i = 0; i < BUFFERS; i++)
        p->device[i % GPUS]->calls->memory_release(p->device[i % GPUS], p->place[i], BUFFER_BYTES);
    for (int s = 0; s < STEPS; s++) device_of(p, 0)->calls->event_clean_up(&p->event[s]);
    for (int s = 0; s < STREAMS; s++) device_of(p, s)->calls->stream_destroy(p->stream[s]);
    p->device[0]->calls->host_unpin(p->device[0], p->host, sizeof p->host);
    for (int g = 0; g < GPUS; g++) p->device[g]->calls->close(p->device[g]);
}

struct addition {
    uint32_t *to;
    const uint32_t *from;
};

static void add(const void *arguments) {
    const struct addition *a = arguments;
    for (int w = 0; w < WORDS; w++) a->to[w] = a->to[w] * 3 + a->from[w];
}

static void wait_for(struct program *p, int step, int earlier) {
    if (p->on[earlier] == p->on[step]) return;
    struct weir__device *device = device_of(p, p->on[step]);
    EXPECT_STATUS(device->calls->stream_wait(p->stream[p->on[step]], &p->event[earlier]), WEIR_OK);
}

/* Waits for whoever wrote what is read, and for all who read or wrote what is written: the latest
 * first, which may imply the others. */
static void order(struct program *p, int step, int to, int from) {
    uint32_t needed = p->readers[to];
    if (p->writer[from] >= 0) needed |= 1u << p->writer[from];
    if (p->writer[to] >= 0) needed |= 1u << p->writer[to];
    for (int earlier = step - 1; earlier >= 0; earlier--)
        if (needed >> earlier & 1u) wait_for(p, step, earlier);
    p->writer[to] = step;
    p->readers[to] = 0;
    p->readers[from] |= 1u << step;
}

static void do_step(struct program *p, int step, uint64_t random) {
    int to = (int)(random % PLACES), from = (int)((random >> 8) % (PLACES - 1));
    from += from >= to;
    int on = p->on[step] = (int)((random >> 16) % STREAMS);
    struct weir__device *device = device_of(p, on);
    bool adds = p->adds_only || (random >> 24) % 3 == 0;
    EXPECT_STATUS(device->calls->enter(device), WEIR_OK);
    EXPECT_STATUS(device->calls->event_init(device, &p->event[step]), WEIR_OK);
    order(p, step, to, from);
    if (adds) {
        struct addition a = {p->place[to], p->place[from]};
        EXPECT_EQ_INT(p->fake->launch(weir_stream_cuda(p->stream[on]), add, &a, sizeof a), 0);
        add(&(struct addition){p->value[to], p->value[from]});
    } else {
        EXPECT_STATUS(
            device->calls->copy(p->stream[on], p->place[to], p->place[from], BUFFER_BYTES),
            WEIR_OK);
        memcpy(p->value[to], p->value[from], BUFFER_BYTES);
    }
    EXPECT_STATUS(device->calls->event_record(p->stream[on], &p->event[step]), WEIR_OK);
}

/* How many places hold something else than they must. */
static int wrong_places(struct program *p) {
    int wrong = 0;
    for (int i = 0; i < PLACES; i++) {
        uint32_t seen[WORDS];
        if (i >= BUFFERS)
            memcpy(seen, p->place[i], BUFFER_BYTES);
        else
            EXPECT(p->fake->peek(seen, p->place[i], BUFFER_BYTES));
        wrong += memcmp(seen, p->value[i], BUFFER_BYTES) != 0;
    }
    return wrong;
}

/* Runs the program that `text` decides under `seed`, without its wait `dropped` (0: with all). */
static int run_program(const struct weir_fake_cuda_control *fake, uint64_t text, uint64_t seed,
                       enum weir_fake_cuda_order how, bool adds_only, uint64_t dropped) {
    static struct program p;
    p = (struct program){.fake = fake, .adds_only = adds_only};
    fake->reset(seed, GPUS, 0);
    fake->set_order(how);
    fake->drop_wait(dropped);
    open_program(&p);
    if (test_has_failed()) return -1;
    uint64_t random = text * UINT64_C(0x9e3779b97f4a7c15) + 1;
    for (int step = 0; step < STEPS; step++) {
        random = (random ^ random >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
        do_step(&p, step, random >> 20);
    }
    for (int i = 0; i < STREAMS; i++) {
        int s = (int)((seed + (uint64_t)i) % STREAMS);
        EXPECT_STATUS(device_of(&p, s)->calls->stream_finish(p.stream[s]), WEIR_OK);
    }
    int wrong = wrong_places(&p);
    close_program(&p);
    return fake_gpus_clean(fake) ? wrong : -1;
}

static void test_no_order_breaks_a_right_program(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    uint64_t text = test_random_u64();
    for (uint64_t seed = 0; seed < 1000; seed++) {
        enum weir_fake_cuda_order how = seed % 10 == 0   ? WEIR_FAKE_CUDA_LAZY
                                        : seed % 10 == 1 ? WEIR_FAKE_CUDA_EAGER
                                                         : WEIR_FAKE_CUDA_RANDOM;
        CHECK_EQ_INT(run_program(fake, text + seed / 20, text ^ seed, how, false, 0), 0);
    }
}

/* Each wait of a program, left away in turn: of those that no earlier one implies nearly all show
 * within a few seeds (the rest is implied by later ones), of those that are implied none. */
static void test_a_wait_less_shows_unless_others_imply_it(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    enum { SEEDS = 6, PROGRAMS = 6 };
    uint64_t text = test_random_u64();
    int needed = 0, noticed = 0;
    for (uint64_t i = 0; i < PROGRAMS; i++) {
        CHECK_EQ_INT(run_program(fake, text + i, 1, WEIR_FAKE_CUDA_LAZY, true, 0), 0);
        uint64_t waits = fake->waits_made();
        for (uint64_t k = 1; k <= waits; k++) {
            struct weir_fake_cuda_wait wait;
            int wrong = 0;
            for (uint64_t seed = 0; seed < SEEDS && wrong == 0; seed++)
                wrong = run_program(fake, text + i, seed, WEIR_FAKE_CUDA_RANDOM, true, k);
            CHECK(wrong >= 0 && fake->wait(k, &wait));
            CHECK(wait.recorded && !wait.blocks);
            if (wait.implied || wait.done) CHECK_EQ_INT(wrong, 0);
            needed += !wait.implied && !wait.done;
            noticed += wrong > 0;
        }
    }
    CHECK(needed > 10);
    CHECK(noticed * 10 > needed * 8);
}

/* ---- pairs with one wait ---- */

enum { PAIR_BYTES = 4096 };

struct pair {
    struct weir__device *device;
    struct weir_stream *first, *second;
    struct weir__event event;
    bool forgets; /* the wait; the driver does not know */
    char *x, *y, *host[3];
};

static void open_pair(struct pair *pair) {
    static _Alignas(4096) char pages[3 * PAIR_BYTES];
    pair->device = fake_gpu_open("cuda");
    CHECK_HELPERS();
    const struct weir__device_calls *calls = pair->device->calls;
    void *memory = NULL;
    CHECK_OK(calls->memory_acquire(pair->device, 2 * PAIR_BYTES, &memory));
    pair->x = memory;
    pair->y = pair->x + PAIR_BYTES;
    for (int i = 0; i < 3; i++) {
        pair->host[i] = &pages[i * PAIR_BYTES];
        memset(pair->host[i], i + 1, PAIR_BYTES);
    }
    CHECK_OK(calls->host_pin(pair->device, pages, sizeof pages));
    CHECK_OK(calls->stream_new(pair->device, &pair->first));
    CHECK_OK(calls->stream_new(pair->device, &pair->second));
    CHECK_OK(calls->event_init(pair->device, &pair->event));
}

static void close_pair(struct pair *pair) {
    const struct weir__device_calls *calls = pair->device->calls;
    calls->event_clean_up(&pair->event);
    calls->stream_destroy(pair->first);
    calls->stream_destroy(pair->second);
    calls->host_unpin(pair->device, pair->host[0], 3 * PAIR_BYTES);
    calls->memory_release(pair->device, pair->x, 2 * PAIR_BYTES);
    calls->close(pair->device);
}

static void copy(struct pair *pair, struct weir_stream *stream, void *to, const void *from) {
    EXPECT_STATUS(pair->device->calls->copy(stream, to, from, PAIR_BYTES), WEIR_OK);
}

static void hand_over(struct pair *pair) {
    EXPECT_STATUS(pair->device->calls->event_record(pair->first, &pair->event), WEIR_OK);
    if (pair->forgets) return;
    EXPECT_STATUS(pair->device->calls->stream_wait(pair->second, &pair->event), WEIR_OK);
}

static void finish(struct pair *pair, bool first_first) {
    struct weir_stream *streams[2] = {pair->first, pair->second};
    for (int i = 0; i < 2; i++)
        EXPECT_STATUS(pair->device->calls->stream_finish(streams[first_first ? i : 1 - i]),
                      WEIR_OK);
}

/* The second stream reads what the first wrote. */
static bool read_after_write(struct pair *pair, bool first_first) {
    copy(pair, pair->first, pair->y, pair->host[0]);
    copy(pair, pair->first, pair->x, pair->host[0]);
    hand_over(pair);
    copy(pair, pair->second, pair->host[2], pair->x);
    finish(pair, first_first);
    return memcmp(pair->host[2], pair->host[0], PAIR_BYTES) == 0;
}

/* The second stream overwrites what the first reads. */
static bool write_after_read(struct pair *pair, bool first_first) {
    copy(pair, pair->first, pair->x, pair->host[0]);
    EXPECT_STATUS(pair->device->calls->stream_finish(pair->first), WEIR_OK);
    copy(pair, pair->first, pair->y, pair->host[0]);
    copy(pair, pair->first, pair->host[2], pair->x);
    hand_over(pair);
    copy(pair, pair->second, pair->x, pair->host[1]);
    finish(pair, first_first);
    return memcmp(pair->host[2], pair->host[0], PAIR_BYTES) == 0;
}

/* Of 200 seeds, how many give the wrong number. */
static int wrong_seeds(const struct weir_fake_cuda_control *fake, bool (*run)(struct pair *, bool),
                       bool forgets, bool first_first) {
    int wrong = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct pair pair = {.forgets = forgets};
        fake->reset(seed, 1, 0);
        open_pair(&pair);
        if (test_has_failed()) return -1;
        wrong += !run(&pair, first_first);
        close_pair(&pair);
        if (!fake_gpus_clean(fake)) return -1;
    }
    return wrong;
}

static void check_pair(const struct weir_fake_cuda_control *fake,
                       bool (*run)(struct pair *, bool)) {
    for (int first_first = 0; first_first < 2; first_first++) {
        CHECK_EQ_INT(wrong_seeds(fake, run, false, first_first), 0);
        CHECK_EQ_UINT(fake->waits_made(), 1);
        int wrong = wrong_seeds(fake, run, true, first_first);
        CHECK(wrong > 120);
    }
}

static void test_reading_what_is_not_written_yet_shows_in_most_seeds(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    check_pair(fake, read_after_write);
}

static void test_overwriting_what_is_not_read_yet_shows_in_most_seeds(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    check_pair(fake, write_after_read);
}

/* An event that is recorded again keeps the waits that were bound before to the former record, and
 * a wait before the first record is no wait. */
static void test_a_wait_binds_to_the_latest_record_at_its_call(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    struct pair pair = {0};
    fake->set_order(WEIR_FAKE_CUDA_LAZY);
    open_pair(&pair);
    CHECK_HELPERS();
    const struct weir__device_calls *calls = pair.device->calls;
    CHECK_OK(calls->stream_wait(pair.second, &pair.event));
    copy(&pair, pair.first, pair.x, pair.host[0]);
    CHECK_OK(calls->event_record(pair.first, &pair.event));
    CHECK_OK(calls->stream_wait(pair.second, &pair.event));
    copy(&pair, pair.first, pair.x, pair.host[1]);
    CHECK_OK(calls->event_record(pair.first, &pair.event));
    copy(&pair, pair.second, pair.host[2], pair.x);
    CHECK_OK(calls->stream_finish(pair.second));
    CHECK_EQ_INT(pair.host[2][0], 1); /* the second copy was not forced */
    CHECK_OK(calls->event_wait(&pair.event));
    copy(&pair, pair.second, pair.host[2], pair.x);
    CHECK_OK(calls->stream_wait(pair.second, &pair.event));
    CHECK_OK(calls->stream_finish(pair.second));
    CHECK_EQ_INT(pair.host[2][0], 2);
    struct weir_fake_cuda_wait wait;
    CHECK_EQ_UINT(fake->waits_made(), 4);
    CHECK(fake->wait(1, &wait) && !wait.recorded && !wait.blocks);
    CHECK(fake->wait(2, &wait) && wait.recorded && !wait.done && !wait.implied);
    CHECK(fake->wait(3, &wait) && wait.recorded && wait.blocks);
    CHECK(fake->wait(4, &wait) && wait.recorded && wait.done && !wait.implied);
    CHECK(!fake->wait(5, &wait) && !fake->wait(0, &wait));
    close_pair(&pair);
    CHECK(fake_gpus_clean(fake));
}

static void test_waits_that_others_imply_are_told(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    struct pair pair = {0};
    struct weir_fake_cuda_wait wait;
    struct weir_stream *third = NULL;
    struct weir__event later;
    open_pair(&pair);
    CHECK_HELPERS();
    const struct weir__device_calls *calls = pair.device->calls;
    CHECK_OK(calls->stream_new(pair.device, &third));
    CHECK_OK(calls->event_init(pair.device, &later));
    copy(&pair, pair.first, pair.x, pair.host[0]);
    hand_over(&pair);
    CHECK_OK(calls->stream_wait(pair.second, &pair.event)); /* once more */
    CHECK_OK(calls->stream_wait(pair.first, &pair.event));  /* its own */
    CHECK_OK(calls->event_record(pair.second, &later));
    CHECK_OK(calls->stream_wait(third, &later));
    CHECK_OK(calls->stream_wait(third, &pair.event)); /* by way of the second stream */
    static const bool implied[] = {false, true, true, false, true};
    for (uint64_t k = 1; k <= 5; k++) {
        CHECK(fake->wait(k, &wait));
        CHECK_EQ_INT(wait.implied, implied[k - 1]);
    }
    CHECK_OK(calls->stream_finish(third));
    CHECK_OK(calls->stream_finish(pair.first));
    calls->event_clean_up(&later);
    calls->stream_destroy(third);
    close_pair(&pair);
    CHECK(fake_gpus_clean(fake));
}

/* ---- memory ---- */

static void test_new_and_freed_memory_is_nan(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    struct weir__device *device = fake_gpu_open("cuda");
    struct weir__cuda_device *own = weir__cuda_device(device);
    float seen[16];
    void *memory = NULL;
    CHECK_OK(device->calls->memory_acquire(device, sizeof seen, &memory));
    CHECK(fake->peek(seen, memory, sizeof seen));
    for (int i = 0; i < 16; i++) CHECK(seen[i] != seen[i]);
    CHECK(fake->owns(0, memory, sizeof seen) && !fake->owns(0, memory, sizeof seen + 1));
    device->calls->memory_release(device, memory, sizeof seen);
    CHECK(!fake->owns(0, memory, 1) && !fake->peek(seen, memory, 1));
    struct weir_fake_cuda_counts counts;
    CHECK_EQ_INT(own->driver.memory_fill((uint64_t)(uintptr_t)memory, 0, 64, own->own), 1);
    CHECK_EQ_INT(own->driver.memory_free((uint64_t)(uintptr_t)memory), 1);
    fake->counts(&counts);
    CHECK_EQ_UINT(counts.faults, 2);
    CHECK_CONTAINS(counts.first_fault, "was freed");
    device->calls->close(device);
}

/* What was right at the call and is freed when its turn comes breaks the context, as it would. */
static void test_memory_freed_under_work_breaks_the_context(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    struct pair pair = {0};
    struct weir_fake_cuda_counts counts;
    open_pair(&pair);
    CHECK_HELPERS();
    const struct weir__device_calls *calls = pair.device->calls;
    copy(&pair, pair.first, pair.x, pair.host[0]);
    calls->memory_release(pair.device, pair.x, 2 * PAIR_BYTES);
    CHECK_STATUS(calls->stream_finish(pair.first), WEIR_ERR_DEVICE);
    CHECK_STATUS(calls->stream_finish(pair.second), WEIR_ERR_DEVICE);
    fake->counts(&counts);
    CHECK_EQ_UINT(counts.faults, 1);
    CHECK_CONTAINS(counts.first_fault, "running work");
    pair.x = NULL;
    close_pair(&pair);
}

static void test_a_copy_over_the_end_is_refused(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    struct pair pair = {0};
    struct weir_fake_cuda_counts counts;
    open_pair(&pair);
    CHECK_HELPERS();
    const struct weir__device_calls *calls = pair.device->calls;
    CHECK_STATUS(calls->copy(pair.first, pair.y + 64, pair.host[0], PAIR_BYTES), WEIR_ERR_BACKEND);
    CHECK_STATUS(calls->copy(pair.first, pair.host[2] + 64, pair.x, PAIR_BYTES), WEIR_ERR_BACKEND);
    CHECK_OK(calls->copy(pair.first, pair.y + 64, pair.host[0], PAIR_BYTES - 64));
    CHECK_OK(calls->stream_finish(pair.first));
    fake->counts(&counts);
    CHECK_EQ_UINT(counts.faults, 2);
    CHECK_CONTAINS(counts.first_fault, "over the end of its allocation");
    close_pair(&pair);
}

/* In a child, for it ends there. */
static void test_the_host_cannot_touch_device_memory(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    if (test_is_sanitized()) SKIP("the sanitizer takes the signal");
    struct weir__device *device = fake_gpu_open("cuda");
    void *memory = NULL;
    CHECK_OK(device->calls->memory_acquire(device, 4096, &memory));
    CHECK_OK(device->calls->memory_touch(device, memory, 4096, -1));
    pid_t child = fork();
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile char *)memory = 1;
        _exit(0);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    device->calls->memory_release(device, memory, 4096);
    device->calls->close(device);
    CHECK(fake_gpus_clean(fake));
}

/* Where the real driver's leniency is asked for: towards the device the host's memory is read at
 * the call, towards the host the copy is done when the call returns. */
static void test_pageable_copies_are_as_the_drivers(void) {
    GPUS_OR_SKIP(fake, 1, 1, WEIR_FAKE_CUDA_PAGEABLE);
    fake->set_order(WEIR_FAKE_CUDA_LAZY);
    struct pair pair = {0};
    char local[PAIR_BYTES];
    open_pair(&pair);
    CHECK_HELPERS();
    memset(local, 7, sizeof local);
    copy(&pair, pair.first, pair.x, local);
    memset(local, 8, sizeof local);
    copy(&pair, pair.first, local, pair.x);
    CHECK_EQ_INT(local[PAIR_BYTES - 1], 7);
    close_pair(&pair);
    CHECK(fake_gpus_clean(fake));
}

/* ---- the log, handles ---- */

static void test_the_log_tells_what_ran_when(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    fake->set_order(WEIR_FAKE_CUDA_LAZY);
    struct pair pair = {0};
    struct weir_fake_cuda_entry entry;
    uint64_t first = 0, copies = 0, index = 0;
    open_pair(&pair);
    CHECK_HELPERS();
    while (fake->entry(first, &entry)) first++;
    copy(&pair, pair.first, pair.x, pair.host[0]);
    copy(&pair, pair.second, pair.y, pair.host[1]);
    CHECK_OK(pair.device->calls->stream_finish(pair.second));
    for (index = first; fake->entry(index, &entry); index++) {
        if (strcmp(entry.call, "cuMemcpyAsync") != 0) continue;
        CHECK_EQ_PTR(entry.to, copies == 0 ? pair.x : pair.y);
        CHECK_EQ_UINT(entry.bytes, PAIR_BYTES);
        CHECK_EQ_INT(entry.ran > 0, copies == 1);
        copies++;
    }
    CHECK_EQ_UINT(copies, 2);
    CHECK_OK(pair.device->calls->stream_finish(pair.first));
    close_pair(&pair);
    CHECK(fake_gpus_clean(fake));
}

/* Nothing but the host's wait for the stream says that a stream may go. */
static void test_work_of_a_stream_that_went_is_lost_with_its_context(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    fake->set_order(WEIR_FAKE_CUDA_LAZY);
    struct pair pair = {0};
    struct weir_fake_cuda_counts counts;
    open_pair(&pair);
    CHECK_HELPERS();
    copy(&pair, pair.first, pair.x, pair.host[0]);
    close_pair(&pair);
    fake->counts(&counts);
    CHECK_EQ_UINT(counts.lost_work, 1);
    CHECK_EQ_UINT(counts.pending, 0);
}

static void test_handles_that_are_gone_are_refused(void) {
    GPUS_OR_SKIP(fake, 1, 2, 0);
    struct weir__device *device = fake_gpu_open("cuda:0"), *other = fake_gpu_open("cuda:1");
    CHECK_HELPERS();
    struct weir__cuda_device *own = weir__cuda_device(device), *far = weir__cuda_device(other);
    const struct weir__cuda_driver *driver = &own->driver;
    CHECK_OK(device->calls->enter(device));
    struct CUstream_st *stream = NULL;
    struct CUevent_st *event = NULL;
    CHECK_EQ_INT(driver->event_create(&event, 0), 0);
    CHECK_EQ_INT(driver->event_record(event, far->own), 400); /* another context's */
    CHECK_EQ_INT(driver->stream_wait_event(far->own, event, 0), 0);
    CHECK_EQ_INT(driver->event_record(event, NULL), 0); /* the default stream */
    CHECK_EQ_INT(driver->event_query(event), 0);
    CHECK_EQ_INT(driver->event_destroy(event), 0);
    CHECK_EQ_INT(driver->event_destroy(event), 400);
    CHECK_EQ_INT(driver->event_query(event), 400);
    CHECK_EQ_INT(driver->stream_create(&stream, 0, 0), 0);
    CHECK_EQ_INT(driver->stream_destroy(stream), 0);
    CHECK_EQ_INT(driver->stream_synchronize(stream), 400);
    CHECK_EQ_INT(driver->context_set_current(NULL), 0);
    CHECK_EQ_INT(driver->stream_synchronize(own->own), 201);
    CHECK_EQ_INT(driver->context_release(0), 0);
    CHECK_EQ_INT(driver->context_set_current(own->context), 201);
    fake->reset(1, 1, 0); /* the devices' handles are gone with it; their memory is not */
    CHECK_EQ_INT(driver->stream_synchronize(own->own), 3);
    other->calls->close(other);
    device->calls->close(device);
}

/* The legacy default stream and a stream without NON_BLOCKING wait for each other. */
static void test_the_default_stream_is_ordered_with_blocking_ones(void) {
    GPUS_OR_SKIP(fake, 1, 1, 0);
    fake->set_order(WEIR_FAKE_CUDA_LAZY);
    struct pair pair = {0};
    open_pair(&pair);
    CHECK_HELPERS();
    const struct weir__cuda_driver *driver = &weir__cuda_device(pair.device)->driver;
    struct CUstream_st *blocking = NULL;
    const uint64_t x = (uint64_t)(uintptr_t)pair.x, y = (uint64_t)(uintptr_t)pair.y;
    CHECK_EQ_INT(driver->stream_create(&blocking, 0, 0), 0);
    CHECK_EQ_INT(driver->memory_fill(x, 5, PAIR_BYTES, blocking), 0);
    CHECK_EQ_INT(driver->memory_copy(y, x, PAIR_BYTES, NULL), 0);
    CHECK_EQ_INT(driver->memory_copy((uint64_t)(uintptr_t)pair.host[2], y, PAIR_BYTES, blocking),
                 0);
    CHECK_EQ_INT(driver->stream_synchronize(blocking), 0);
    CHECK_EQ_INT(pair.host[2][PAIR_BYTES - 1], 5);
    CHECK_EQ_INT(driver->stream_destroy(blocking), 0);
    close_pair(&pair);
    CHECK(fake_gpus_clean(fake));
}

WEIR_TEST_SUITE(fake_cuda, TEST(no_order_breaks_a_right_program),
                TEST(a_wait_less_shows_unless_others_imply_it),
                TEST(reading_what_is_not_written_yet_shows_in_most_seeds),
                TEST(overwriting_what_is_not_read_yet_shows_in_most_seeds),
                TEST(a_wait_binds_to_the_latest_record_at_its_call),
                TEST(waits_that_others_imply_are_told), TEST(new_and_freed_memory_is_nan),
                TEST(memory_freed_under_work_breaks_the_context),
                TEST(a_copy_over_the_end_is_refused), TEST(the_host_cannot_touch_device_memory),
                TEST(pageable_copies_are_as_the_drivers), TEST(the_log_tells_what_ran_when),
                TEST(work_of_a_stream_that_went_is_lost_with_its_context),
                TEST(handles_that_are_gone_are_refused),
                TEST(the_default_stream_is_ordered_with_blocking_ones))
