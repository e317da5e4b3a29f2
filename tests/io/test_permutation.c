/* SPDX-License-Identifier: MIT */
/*
 * Goal: every pass visits every sample once, in an order of its own that never changes. Method:
 * whole permutations counted, frozen values, places of one sample over many passes.
 */
#include "harness.h"
#include "data/permutation.h"

#include <math.h>
#include <stdlib.h>

static void check_bijection(uint64_t seed, uint64_t epoch, uint64_t count) {
    char *seen = calloc(count, 1);
    CHECK(seen);
    for (uint64_t i = 0; i < count && !test_has_failed(); i++) {
        uint64_t place = weir__permute(seed, epoch, count, i);
        EXPECT(place < count && !seen[place]++);
    }
    free(seen);
}

static void test_every_pass_visits_every_sample_once(void) {
    for (uint64_t count = 1; count < 300; count++) check_bijection(7, count, count);
    for (int i = 0; i < 8; i++)
        check_bijection(test_random_u64(), test_random_u64(), 1 + test_random_below(100000));
    check_bijection(1, 2, 65536);
    check_bijection(1, 2, 65537);
}

static void test_huge_counts_have_places_below_them(void) {
    static const uint64_t counts[] = {(uint64_t)1 << 40, ((uint64_t)1 << 63) + 1, UINT64_MAX};
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        for (uint64_t i = 0; i < 100; i++)
            CHECK(weir__permute(3, 4, counts[k], counts[k] - 1 - i) < counts[k]);
    }
}

/* Another order would make old checkpoints resume with other data. */
static void test_order_is_frozen(void) {
    static const uint64_t expected[] = {11194, 6241, 1201, 4030};
    for (uint64_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        EXPECT_EQ_UINT(weir__permute(1, 0, 12000, i), expected[i]);
}

static void test_passes_and_seeds_have_orders_of_their_own(void) {
    int same_pass = 0, same_seed = 0, same_place = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        uint64_t place = weir__permute(1, 0, 1000, i);
        same_pass += place == weir__permute(1, 1, 1000, i);
        same_seed += place == weir__permute(2, 0, 1000, i);
        same_place += place == i;
    }
    CHECK(same_pass < 10 && same_seed < 10 && same_place < 10);
}

/* Sample 0 of 10 over many passes: each place a tenth of the time, within six sigmas. And of three
 * samples all six orders. */
static void test_places_are_uniform(void) {
    enum { PASSES = 20000 };
    uint32_t places[10] = {0}, orders[3][3] = {{0}};
    for (uint64_t pass = 0; pass < PASSES; pass++) {
        places[weir__permute(5, pass, 10, 0)]++;
        orders[weir__permute(5, pass, 3, 0)][weir__permute(5, pass, 3, 1)]++;
    }
    for (int i = 0; i < 10; i++) EXPECT_NEAR(places[i], PASSES / 10, 6 * sqrt(PASSES / 10));
    for (int i = 0; i < 9; i++) {
        bool possible = i / 3 != i % 3;
        EXPECT_NEAR(orders[i / 3][i % 3], possible ? PASSES / 6 : 0,
                    possible ? 6 * sqrt(PASSES / 6) : 0);
    }
}

WEIR_TEST_SUITE(permutation, TEST(every_pass_visits_every_sample_once),
                TEST(huge_counts_have_places_below_them), TEST(order_is_frozen),
                TEST(passes_and_seeds_have_orders_of_their_own), TEST(places_are_uniform))
