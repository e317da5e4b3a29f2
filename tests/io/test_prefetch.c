/* SPDX-License-Identifier: MIT */
/*
 * Goal: reading ahead changes nothing but the time: the same batches in the same order, errors at
 * their batch, never more read than there is room for, and a clean end at any moment. Method: fills
 * that count, fail and dawdle; the allocator counts; ThreadSanitizer sees the rest.
 */
#include "harness.h"
#include "data/prefetch.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

struct source {
    _Atomic uint64_t fills;
    uint64_t fail_at; /* this batch and all after it fail */
    bool dawdles;
};

static void pause_ns(long ns) {
    struct timespec time = {0, ns};
    nanosleep(&time, NULL);
}

static int fill(void *context, uint64_t number, void *input, void *target,
                struct weir_error *error) {
    struct source *source = context;
    int64_t *in = input, *out = target;
    if (source->dawdles) pause_ns(500000);
    atomic_fetch_add(&source->fills, 1);
    if (number >= source->fail_at)
        return weir__fail(error, WEIR_ERR_IO, "batch %d of images.npy failed", (int)number);
    for (int i = 0; i < 16; i++) in[i] = (int64_t)number * 100 + i;
    out[0] = -(int64_t)number;
    return WEIR_OK;
}

static int begin(struct source *source, uint64_t first, uint32_t depth,
                 struct weir__prefetch **prefetch) {
    struct weir__prefetch_options options = {test_allocator(), fill, source, first, depth,
                                             16 * 8,           8};
    return weir__prefetch_new(&options, NULL, prefetch);
}

static bool is_batch(const struct weir__batch *batch, uint64_t number) {
    const int64_t *in = batch->input, *out = batch->target;
    bool same = batch->number == number && out[0] == -(int64_t)number;
    for (int i = 0; i < 16; i++) same = same && in[i] == (int64_t)number * 100 + i;
    return same;
}

static void take_many(struct source *source, uint32_t depth, uint64_t first, uint64_t count,
                      bool slow_taker) {
    struct weir__prefetch *prefetch;
    struct weir__batch batch;
    CHECK_OK(begin(source, first, depth, &prefetch));
    uint64_t acquired = test_allocator_count();
    for (uint64_t i = 0; i < count && !test_has_failed(); i++) {
        EXPECT_STATUS(weir__prefetch_next(prefetch, &batch, NULL), WEIR_OK);
        EXPECT(is_batch(&batch, first + i));
        if (slow_taker) pause_ns(300000);
        EXPECT(is_batch(&batch, first + i)); /* nobody writes to it meanwhile */
        EXPECT(atomic_load(&source->fills) <= i + depth);
    }
    EXPECT_EQ_UINT(test_allocator_count(), acquired);
    weir__prefetch_destroy(prefetch);
    EXPECT(atomic_load(&source->fills) <= count + depth);
}

static void test_batches_come_in_order_whoever_is_slower(void) {
    for (uint32_t depth = 2; depth <= 4; depth++) {
        for (int slow = 0; slow < 3; slow++) {
            struct source source = {.fail_at = UINT64_MAX, .dawdles = slow == 1};
            take_many(&source, depth, 1000 * depth, 60, slow == 2);
            CHECK_HELPERS();
        }
    }
}

/* Numbers have 64 bits, also where a resumed run begins. */
static void test_any_number_can_be_the_first(void) {
    struct source source = {.fail_at = UINT64_MAX};
    take_many(&source, 3, UINT32_MAX - 3, 10, false);
}

static void test_reader_stops_when_all_is_full(void) {
    struct source source = {.fail_at = UINT64_MAX};
    struct weir__prefetch *prefetch;
    CHECK_OK(begin(&source, 0, 3, &prefetch));
    for (int i = 0; i < 60000 && atomic_load(&source.fills) < 3; i++) pause_ns(1000000);
    EXPECT_EQ_UINT(atomic_load(&source.fills), 3);
    pause_ns(20000000);
    EXPECT_EQ_UINT(atomic_load(&source.fills), 3);
    weir__prefetch_destroy(prefetch);
}

static void test_failure_comes_at_its_batch_and_stays(void) {
    struct source source = {.fail_at = 12};
    struct weir__prefetch *prefetch;
    struct weir__batch batch;
    struct weir_error error = {.status = WEIR_OK};
    CHECK_OK(begin(&source, 10, 4, &prefetch));
    EXPECT_STATUS(weir__prefetch_next(prefetch, &batch, &error), WEIR_OK);
    EXPECT_STATUS(weir__prefetch_next(prefetch, &batch, &error), WEIR_OK);
    EXPECT(is_batch(&batch, 11));
    for (int i = 0; i < 3; i++) {
        error = (struct weir_error){.status = WEIR_OK};
        EXPECT_STATUS(weir__prefetch_next(prefetch, &batch, &error), WEIR_ERR_IO);
        EXPECT_STATUS(error.status, WEIR_ERR_IO);
        EXPECT_EQ_STR(error.message, "batch 12 of images.npy failed");
    }
    EXPECT_EQ_UINT(atomic_load(&source.fills), 3);
    weir__prefetch_destroy(prefetch);
}

static void test_it_ends_cleanly_at_any_moment(void) {
    weir__prefetch_destroy(NULL);
    for (uint64_t taken = 0; taken < 12; taken++) {
        struct source source = {.fail_at = taken % 3 ? UINT64_MAX : taken,
                                .dawdles = taken % 2 == 1};
        struct weir__prefetch *prefetch;
        struct weir__batch batch;
        CHECK_OK(begin(&source, 0, 2 + taken % 3, &prefetch));
        if (taken % 4 == 3) pause_ns((long)test_random_below(2000000));
        for (uint64_t i = 0; i < taken; i++) weir__prefetch_next(prefetch, &batch, NULL);
        weir__prefetch_destroy(prefetch);
        CHECK_EQ_UINT(test_allocator_live_blocks(), 0);
    }
}

static void test_it_survives_any_failing_allocation(void) {
    struct source source = {.fail_at = UINT64_MAX};
    for (uint64_t k = 1, fired = 1; fired; k++) {
        struct weir__prefetch *prefetch = NULL;
        test_allocator_fail_at(k, false);
        int status = begin(&source, 0, 2, &prefetch);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        weir__prefetch_destroy(prefetch);
    }
}

WEIR_TEST_SUITE(prefetch, TEST(batches_come_in_order_whoever_is_slower),
                TEST(any_number_can_be_the_first), TEST(reader_stops_when_all_is_full),
                TEST(failure_comes_at_its_batch_and_stays), TEST(it_ends_cleanly_at_any_moment),
                TEST(it_survives_any_failing_allocation))
