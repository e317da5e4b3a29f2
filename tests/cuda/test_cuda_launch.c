/* SPDX-License-Identifier: MIT */
/*
 * Goal: every launcher of cuda_kernels.h does what the header says, and launches the shape that its
 * kernel's head comment names. Method: on the fake driver, which runs the emulated kernels, in
 * device memory that the host cannot touch, or on the machine's own GPU, where nobody sees shapes;
 * results against plain loops, ragged sizes, few blocks and many; bad arguments; a launch that
 * fails.
 */
#include "base/base.h"
#include "cuda/emulated.h"
#include "cuda/fake_gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 20 };

/* A GPU, a stream, and two ranges of its memory with copies of them here. */
struct bench {
    const struct weir_fake_cuda_control *fake;
    struct weir__device *device;
    struct weir_stream *stream;
    unsigned char *to, *from;           /* on the device */
    unsigned char *found, *given, *due; /* here: what to has, from has, to must have */
};

static bool open_on(struct bench *bench) {
    if (bench->fake == NULL) return false;
    bench->device = fake_gpu_open("cuda");
    if (bench->device == NULL) return true;
    const struct weir__device_calls *calls = bench->device->calls;
    EXPECT_STATUS(calls->memory_acquire(bench->device, ROOM, (void **)&bench->to), WEIR_OK);
    EXPECT_STATUS(calls->memory_acquire(bench->device, ROOM, (void **)&bench->from), WEIR_OK);
    EXPECT_STATUS(calls->stream_new(bench->device, &bench->stream), WEIR_OK);
    bench->found = malloc(ROOM);
    bench->given = malloc(ROOM);
    bench->due = malloc(ROOM);
    for (size_t i = 0; i < ROOM; i++) bench->given[i] = (unsigned char)test_random_u64();
    EXPECT(bench->fake->poke(bench->from, bench->given, ROOM));
    return true;
}

static bool open_bench(struct bench *bench) {
    *bench = (struct bench){.fake = any_gpus(test_random_u64(), 1, 0)};
    return open_on(bench);
}

static void close_bench(struct bench *bench) {
    const struct weir__device_calls *calls = bench->device->calls;
    calls->stream_destroy(bench->stream);
    calls->memory_release(bench->device, bench->to, ROOM);
    calls->memory_release(bench->device, bench->from, ROOM);
    calls->close(bench->device);
    free(bench->found);
    free(bench->given);
    free(bench->due);
    fake_gpus_clean(bench->fake);
}

#define OPEN_OR_SKIP(bench)                                                                        \
    struct bench bench;                                                                            \
    if (!open_bench(&bench)) return;                                                               \
    CHECK_HELPERS()

/* Before a launch: nothing of it is there yet. */
static void clear(struct bench *bench) {
    memset(bench->due, 0x5A, ROOM);
    EXPECT(bench->fake->poke(bench->to, bench->due, ROOM));
}

/* After it: the whole range is as it is due. */
static void expect_due(struct bench *bench, int status) {
    if (!EXPECT_STATUS(status, WEIR_OK)) return;
    EXPECT_STATUS(bench->device->calls->stream_finish(bench->stream), WEIR_OK);
    EXPECT(bench->fake->peek(bench->found, bench->to, ROOM));
    EXPECT_EQ_BYTES(bench->found, bench->due, ROOM);
}

struct shape {
    uint32_t blocks[3], threads[3];
};

static struct shape last_shape(void) {
    struct shape shape = {{0}, {0}};
    if (test_gpu_is_real()) return shape;
    struct emulation emulation = emulation_open();
    if (emulation.shape != NULL) emulation.shape(shape.blocks, shape.threads);
    return shape;
}

static void expect_blocks(uint32_t blocks) {
    if (test_gpu_is_real()) return;
    struct shape shape = last_shape();
    EXPECT_EQ_UINT(shape.blocks[0] * shape.blocks[1] * shape.blocks[2], blocks);
    EXPECT_EQ_UINT(shape.threads[0] * shape.threads[1] * shape.threads[2], 256);
}

/* ---- copies ---- */

typedef int copy_fn(struct weir_stream *stream, void *to, const void *from, uint64_t bytes,
                    uint32_t blocks_max);

static void copy_by(struct bench *bench, copy_fn *copy, uint32_t block_bytes) {
    static const uint64_t sizes[] = {1, 15, 64, 1000, 16384, 16385, 100000};
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++) {
        for (uint32_t most = 0; most < 3; most++) {
            uint64_t at = test_random_below(100);
            clear(bench);
            memcpy(bench->due + at, bench->given, sizes[i]);
            int status = copy(bench->stream, bench->to + at, bench->from, sizes[i], most);
            expect_due(bench, status);
            uint32_t wanted = (uint32_t)((sizes[i] + block_bytes - 1) / block_bytes);
            expect_blocks(most > 0 && most < wanted ? most : wanted);
        }
    }
}

static void test_contiguous_copies_use_as_many_blocks_as_they_may(void) {
    OPEN_OR_SKIP(bench);
    copy_by(&bench, weir__cuda_copy, 16384);
    copy_by(&bench, weir__cuda_push, 16384);
    copy_by(&bench, weir__cuda_pull, 32768);
    close_bench(&bench);
}

/* A set's way shows in the log: which kernel, or the copy engine. */
static void set_takes(struct bench *bench, uint32_t to_memory, uint32_t from_memory, uint32_t count,
                      const char *call) {
    struct weir_fake_cuda_entry entry;
    struct weir__copy_item items[3];
    uint64_t before = 0, found = 0;
    while (bench->fake->entry(before, &entry)) before++;
    clear(bench);
    for (uint32_t i = 0; i < count; i++) {
        items[i] = (struct weir__copy_item){bench->to + i * 1000, bench->from + i * 1000, 700};
        memcpy(bench->due + i * 1000, bench->given + i * 1000, 700);
    }
    const struct weir__copy_set set = {items, count, to_memory, from_memory, 1};
    int status = bench->device->calls->copy_set(bench->stream, &set);
    memset(items, 0, sizeof items);
    expect_due(bench, status);
    for (uint64_t i = before; bench->fake->entry(i, &entry); i++)
        found += strcmp(entry.call, call) == 0;
    EXPECT_EQ_UINT(found, strcmp(call, "cuMemcpyAsync") == 0 ? count : 1);
}

/* What memories are called decides; here all is one GPU's. */
static void test_a_set_goes_by_the_kernel_for_its_memories(void) {
    if (fake_gpus(1, 1, 0) == NULL) return; /* which has a log */
    OPEN_OR_SKIP(bench);
    uint32_t own = bench.device->memory;
    set_takes(&bench, own, own, 1, "weir_copy");
    set_takes(&bench, own, own + 1, 1, "weir_pull");
    set_takes(&bench, own + 1, own, 1, "weir_push");
    set_takes(&bench, own, 0, 1, "weir_pull");
    set_takes(&bench, 0, own, 1, "weir_push");
    set_takes(&bench, 0, own, 3, "weir_copy_batch");
    close_bench(&bench);
}

/* As many copies as given, some empty, beside each other in both ranges. */
static void batch_of(struct bench *bench, size_t count, uint64_t bytes_below) {
    struct weir__copy_item items[300];
    size_t at = 0;
    clear(bench);
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes = i % 9 == 4 ? 0 : test_random_below(bytes_below);
        items[i] = (struct weir__copy_item){bench->to + at + 1, bench->from + at, bytes};
        memcpy(bench->due + at + 1, bench->given + at, bytes);
        at += bytes + test_random_below(20) + 1;
    }
    int status = weir__cuda_copy_batch(bench->stream, items, count);
    memset(items, 0, sizeof items); /* they were taken */
    expect_due(bench, status);
}

static void test_a_batch_takes_any_number_of_copies(void) {
    OPEN_OR_SKIP(bench);
    static const size_t counts[] = {0, 1, 5, 63, 64, 65, 300};
    for (size_t i = 0; i < WEIR__COUNT_OF(counts); i++) batch_of(&bench, counts[i], 3000);
    batch_of(&bench, 20, 50000);
    close_bench(&bench);
}

static void rows_of(struct bench *bench, const struct weir__cuda_rows *shape, uint32_t most) {
    struct weir__cuda_rows rows = *shape;
    clear(bench);
    for (uint64_t r = 0; r < rows.rows; r++)
        memcpy(bench->due + r * rows.to_pitch, bench->given + r * rows.from_pitch, rows.row_bytes);
    rows.to = bench->to;
    rows.from = bench->from;
    expect_due(bench, weir__cuda_copy_rows(bench->stream, &rows, most));
}

static void test_rows_are_copied_in_the_widest_vectors_that_fit(void) {
    OPEN_OR_SKIP(bench);
    static const struct {
        struct weir__cuda_rows rows;
        struct shape shape;
    } cases[] = {
        {{.to_pitch = 64, .from_pitch = 256, .row_bytes = 64, .rows = 1000},
         {{1, 4, 1}, {4, 64, 1}}},
        {{.to_pitch = 256, .from_pitch = 64, .row_bytes = 64, .rows = 7}, {{1, 1, 1}, {4, 64, 1}}},
        {{.to_pitch = 100, .from_pitch = 100, .row_bytes = 36, .rows = 50},
         {{1, 1, 1}, {16, 16, 1}}},
        {{.to_pitch = 7, .from_pitch = 9, .row_bytes = 7, .rows = 300}, {{1, 3, 1}, {8, 32, 1}}},
        {{.to_pitch = 6, .from_pitch = 10, .row_bytes = 6, .rows = 9}, {{1, 1, 1}, {4, 64, 1}}},
        {{.to_pitch = 1, .from_pitch = 2, .row_bytes = 100000, .rows = 1},
         {{25, 1, 1}, {256, 1, 1}}},
        {{.to_pitch = 72, .from_pitch = 68, .row_bytes = 64, .rows = 100},
         {{1, 2, 1}, {16, 16, 1}}},
        {{.to_pitch = 8192, .from_pitch = 8192, .row_bytes = 8192, .rows = 12},
         {{2, 3, 1}, {256, 1, 1}}},
        {{.to_pitch = 40000, .from_pitch = 40000, .row_bytes = 40000, .rows = 5},
         {{10, 2, 1}, {256, 1, 1}}},
    };
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        rows_of(&bench, &cases[i].rows, 0);
        struct shape shape = last_shape();
        bool seen = !test_gpu_is_real();
        if (seen) EXPECT_EQ_BYTES(&shape, &cases[i].shape, sizeof shape);
        for (uint32_t most = 1; most < 4; most++) {
            rows_of(&bench, &cases[i].rows, most);
            shape = last_shape();
            if (seen) EXPECT(shape.blocks[0] * shape.blocks[1] <= most);
        }
    }
    close_bench(&bench);
}

static void change_layout(struct bench *bench, size_t channels, size_t pixels, size_t element) {
    enum { IMAGES = 2 };
    size_t whole = IMAGES * channels * pixels;
    clear(bench);
    for (size_t e = 0; e < whole; e++) {
        size_t image = e / (channels * pixels), c = e / pixels % channels, p = e % pixels;
        size_t to = (image * pixels + p) * channels + c;
        memcpy(bench->due + to * element, bench->given + e * element, element);
    }
    expect_due(bench, weir__cuda_nchw_to_nhwc(bench->stream, bench->to, bench->from, IMAGES,
                                              channels, pixels, element));
    EXPECT(bench->fake->poke(bench->from, bench->due, ROOM));
    clear(bench);
    memcpy(bench->due, bench->given, whole * element);
    expect_due(bench, weir__cuda_nhwc_to_nchw(bench->stream, bench->to, bench->from, IMAGES,
                                              channels, pixels, element));
    EXPECT(bench->fake->poke(bench->from, bench->given, ROOM));
}

static void test_images_change_their_layout_and_back(void) {
    OPEN_OR_SKIP(bench);
    static const struct {
        size_t channels, pixels;
        uint32_t blocks[2]; /* of two images: elements of 2 bytes, of 4 */
    } cases[] = {{1, 2000, {6, 6}}, {3, 784, {8, 8}},  {16, 100, {8, 8}},
                 {17, 100, {4, 8}}, {64, 65, {4, 12}}, {784, 3, {8, 8}}};
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        for (size_t element = 1; element <= 8; element *= 2) {
            change_layout(&bench, cases[i].channels, cases[i].pixels, element);
            expect_blocks(cases[i].blocks[element >= 4]);
        }
    }
    close_bench(&bench);
}

/* Numbers that 16 bits hold exactly: there and back. */
static void cast_both_ways(struct bench *bench, enum weir_dtype narrow, uint64_t n, uint32_t most) {
    float *wide = (float *)(void *)bench->due;
    clear(bench);
    for (uint64_t i = 0; i < n; i++) wide[i] = ldexpf((float)(i % 255) - 127.0f, (int)(i % 8));
    EXPECT(bench->fake->poke(bench->from, bench->due, 4 * n));
    struct weir_stream *stream = bench->stream;
    unsigned char *between = bench->from + ROOM / 2;
    EXPECT_STATUS(weir__cuda_cast(stream, between, narrow, bench->from, WEIR_F32, n, most),
                  WEIR_OK);
    expect_due(bench, weir__cuda_cast(stream, bench->to, WEIR_F32, between, narrow, n, most));
    uint32_t wanted = (uint32_t)((n + 2047) / 2048);
    expect_blocks(most > 0 && most < wanted ? most : wanted);
}

static void test_casts_go_there_and_back(void) {
    OPEN_OR_SKIP(bench);
    static const uint64_t sizes[] = {1, 7, 8, 9, 2048, 2049, 20001};
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++) {
        cast_both_ways(&bench, WEIR_BF16, sizes[i], (uint32_t)i % 3);
        cast_both_ways(&bench, WEIR_F16, sizes[i], (uint32_t)i % 3);
    }
    close_bench(&bench);
}

/* ---- peers ---- */

/* Device 0's memory to device 1's by `copy` on one of them, and back here. */
static void copy_to_peer(struct bench *bench, struct weir__device *on, copy_fn *copy, void *there,
                         uint64_t bytes) {
    struct weir_stream *stream = NULL;
    const struct weir__device_calls *calls = on->calls;
    memset(bench->due, 0x5A, ROOM);
    EXPECT(bench->fake->poke(there, bench->due, ROOM));
    memcpy(bench->due + 3, bench->given, bytes);
    EXPECT_STATUS(calls->enter(on), WEIR_OK);
    EXPECT_STATUS(calls->stream_new(on, &stream), WEIR_OK);
    EXPECT_STATUS(copy(stream, (unsigned char *)there + 3, bench->from, bytes, 0), WEIR_OK);
    EXPECT_STATUS(calls->stream_finish(stream), WEIR_OK);
    EXPECT(bench->fake->peek(bench->found, there, ROOM));
    EXPECT_EQ_BYTES(bench->found, bench->due, ROOM);
    calls->stream_destroy(stream);
    EXPECT_STATUS(bench->device->calls->enter(bench->device), WEIR_OK);
}

static void test_peers_memory_is_pushed_and_pulled(void) {
    struct bench bench = {.fake = any_gpus(test_random_u64(), 2, 0)};
    if (!open_on(&bench)) return;
    struct weir__device *peer = NULL;
    void *there = NULL;
    EXPECT_STATUS(weir__device_open("cuda:1", test_allocator(), NULL, &peer), WEIR_OK);
    bool reached = peer != NULL && bench.device->calls->reaches(bench.device, peer) &&
                   peer->calls->reaches(peer, bench.device);
    if (!reached) test_skip("the first two GPUs do not reach each other");
    if (reached) EXPECT_STATUS(peer->calls->memory_acquire(peer, ROOM, &there), WEIR_OK);
    for (uint64_t bytes = 1; there != NULL && bytes < ROOM; bytes = bytes * 7 + 3) {
        copy_to_peer(&bench, bench.device, weir__cuda_push, there, bytes);
        copy_to_peer(&bench, peer, weir__cuda_pull, there, bytes);
    }
    if (peer != NULL) peer->calls->memory_release(peer, there, ROOM);
    if (peer != NULL) peer->calls->close(peer);
    close_bench(&bench);
}

/* ---- others ---- */

static void test_fill_repeats_elements_of_any_size(void) {
    OPEN_OR_SKIP(bench);
    static const uint64_t counts[] = {1, 3, 1000, 20001};
    for (size_t element = 1; element <= 16; element *= 2) {
        for (size_t i = 0; i < WEIR__COUNT_OF(counts); i++) {
            clear(&bench);
            for (uint64_t e = 0; e < counts[i]; e++)
                memcpy(bench.due + e * element, bench.given, element);
            expect_due(&bench,
                       weir__cuda_fill(bench.stream, bench.to, bench.given, element, counts[i]));
            expect_blocks((uint32_t)((counts[i] * element + 16383) / 16384));
        }
    }
    close_bench(&bench);
}

static void test_random_words_are_the_host_s(void) {
    OPEN_OR_SKIP(bench);
    struct weir__cuda_random random = {.to = (uint32_t *)(void *)bench.to,
                                       .rows = 37,
                                       .elements = 1030,
                                       .seed = test_random_u64(),
                                       .mini_batch = test_random_u64(),
                                       .op = 77,
                                       .row_first = 5};
    clear(&bench);
    uint32_t *due = (uint32_t *)(void *)bench.due, words[4];
    for (uint32_t i = 0; i < 37 * 1030; i++) {
        weir__philox_words(random.seed, random.mini_batch, random.op, 5 + i / 1030, i % 1030 / 4,
                           words);
        due[i] = words[i % 1030 % 4];
    }
    expect_due(&bench, weir__cuda_random_words(bench.stream, &random));
    close_bench(&bench);
}

/* In device memory as well as pinned. */
static void test_decide_writes_the_host_s_numbers(void) {
    OPEN_OR_SKIP(bench);
    double squares[] = {0.5, 1e-9, 3.0, 7.0, 1e-3};
    clear(&bench);
    EXPECT(bench.fake->poke(bench.from, squares, sizeof squares));
    double norm = sqrt(0.0 + 0.5 + 1e-9 + 3.0 + 7.0 + 1e-3);
    struct weir_verdict due = {.gradient_scale = 1.5 / (norm + 1e-6), .norm = norm, .applies = 1};
    memcpy(bench.due, &due, offsetof(struct weir_verdict, reserved));
    expect_due(&bench,
               weir__cuda_decide(bench.stream, (void *)bench.to, (void *)bench.from, 5, 1.5));
    close_bench(&bench);
}

static void test_nothing_to_do_launches_nothing(void) {
    if (fake_gpus(1, 1, 0) == NULL) return; /* whose calls can be counted */
    OPEN_OR_SKIP(bench);
    uint64_t before = bench.fake->calls_made();
    struct weir__cuda_rows rows = {bench.to, bench.from, 8, 8, 8, 0, 0};
    struct weir__cuda_random random = {
        .to = (uint32_t *)(void *)bench.to, .rows = 0, .elements = 4};
    struct weir__copy_item item = {bench.to, bench.from, 0};
    struct weir_stream *stream = bench.stream;
    EXPECT_STATUS(weir__cuda_copy(stream, NULL, NULL, 0, 0), WEIR_OK);
    EXPECT_STATUS(weir__cuda_push(stream, NULL, NULL, 0, 0), WEIR_OK);
    EXPECT_STATUS(weir__cuda_pull(stream, NULL, NULL, 0, 0), WEIR_OK);
    EXPECT_STATUS(weir__cuda_copy_batch(stream, &item, 1), WEIR_OK);
    EXPECT_STATUS(weir__cuda_copy_rows(stream, &rows, 0), WEIR_OK);
    EXPECT_STATUS(weir__cuda_nchw_to_nhwc(stream, NULL, NULL, 0, 3, 4, 4), WEIR_OK);
    EXPECT_STATUS(weir__cuda_cast(stream, NULL, WEIR_BF16, NULL, WEIR_F32, 0, 0), WEIR_OK);
    EXPECT_STATUS(weir__cuda_fill(stream, NULL, "", 1, 0), WEIR_OK);
    EXPECT_STATUS(weir__cuda_random_words(stream, &random), WEIR_OK);
    EXPECT_EQ_UINT(bench.fake->calls_made(), before);
    close_bench(&bench);
}

static void test_bad_arguments_are_refused(void) {
    OPEN_OR_SKIP(bench);
    struct weir_stream *stream = bench.stream;
    void *to = bench.to, *from = bench.from;
    struct weir__cuda_rows rows = {to, from, 8, 7, 8, 2, 0};
    EXPECT_STATUS(weir__cuda_copy_rows(stream, &rows, 0), WEIR_ERR_ARGUMENT);
    rows = (struct weir__cuda_rows){to, from, 7, 8, 8, 2, 0};
    EXPECT_STATUS(weir__cuda_copy_rows(stream, &rows, 0), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir__cuda_nchw_to_nhwc(stream, to, from, 1, 3, 4, 3), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir__cuda_nhwc_to_nchw(stream, to, from, UINT64_MAX, 1 << 20, 1 << 20, 4),
                  WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir__cuda_nhwc_to_nchw(stream, to, from, 1u << 31, 1, 1, 4), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir__cuda_cast(stream, to, WEIR_F32, from, WEIR_F32, 4, 0), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir__cuda_cast(stream, to, WEIR_F16, from, WEIR_BF16, 4, 0), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir__cuda_fill(stream, to, "abc", 3, 4), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir__cuda_fill(stream, to, "", 0, 4), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir__cuda_fill(stream, to, "abcd", 4, UINT64_MAX), WEIR_ERR_ARGUMENT);
    close_bench(&bench);
}

static void test_a_launch_that_fails_is_reported(void) {
    if (fake_gpus(1, 1, 0) == NULL) return; /* whose calls can fail */
    OPEN_OR_SKIP(bench);
    enum { OUT_OF_RESOURCES = 701 };
    struct weir__copy_item items[100];
    for (size_t i = 0; i < 100; i++)
        items[i] = (struct weir__copy_item){bench.to + i, bench.from + i, 1};
    bench.fake->fail_call(2, OUT_OF_RESOURCES); /* the second launch of the batch */
    EXPECT(weir__cuda_copy_batch(bench.stream, items, 100) != WEIR_OK);
    EXPECT(bench.fake->failed());
    bench.fake->fail_call(0, 0);
    EXPECT_STATUS(bench.device->calls->stream_finish(bench.stream), WEIR_OK);
    close_bench(&bench);
}

WEIR_TEST_SUITE(cuda_launch, TEST(contiguous_copies_use_as_many_blocks_as_they_may),
                TEST(a_set_goes_by_the_kernel_for_its_memories),
                TEST(a_batch_takes_any_number_of_copies),
                TEST(rows_are_copied_in_the_widest_vectors_that_fit),
                TEST(images_change_their_layout_and_back), TEST(casts_go_there_and_back),
                TEST(peers_memory_is_pushed_and_pulled), TEST(fill_repeats_elements_of_any_size),
                TEST(random_words_are_the_host_s), TEST(decide_writes_the_host_s_numbers),
                TEST(nothing_to_do_launches_nothing), TEST(bad_arguments_are_refused),
                TEST(a_launch_that_fails_is_reported))
