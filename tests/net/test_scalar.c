/* SPDX-License-Identifier: MIT */
/*
 * Goal: the functions of doubles that decide bits are as exact as net/scalar.h says, and are made
 * of sums and products alone. Method: sweeps against the C library in long double, and some results
 * to the bit.
 */
#include "harness.h"
#include "net/scalar.h"

#include <math.h>

enum { STEPS = 200000 };

static void expect_near(const char *name, double x, double got, long double exact, double units) {
    double size = fabs((double)exact) > 1 ? fabs((double)exact) : 1;
    if (!(fabsl((long double)got - exact) <= (long double)(units * 0x1p-53 * size)))
        TEST_FAIL("%s(%.17g) is %.17g, not %.17Lg", name, x, got, exact);
}

static void test_log_is_near_the_librarys(void) {
    for (int i = 1; i < STEPS && !test_has_failed(); i++) {
        double x = (double)i / STEPS, small = ldexp(x, -(i % 1000)), large = ldexp(x, i % 1000);
        expect_near("log", x, weir__log(x), logl((long double)x), 4);
        expect_near("log", small, weir__log(small), logl((long double)small), 4);
        expect_near("log", large, weir__log(large), logl((long double)large), 4);
    }
    CHECK(weir__log(1) == 0);
}

static void test_cos_and_sin_are_near_the_librarys(void) {
    const long double turn = 2 * acosl(-1.0L);
    for (int i = 0; i <= STEPS && !test_has_failed(); i++) {
        double x = (double)i / STEPS;
        expect_near("cos", x, weir__cos_of_turns(x), cosl(turn * (long double)x), 4);
        expect_near("sin", x, weir__sin_of_turns(x), sinl(turn * (long double)x), 4);
    }
    CHECK(weir__cos_of_turns(0) == 1 && weir__cos_of_turns(0.5) == -1);
    CHECK(weir__cos_of_turns(1) == 1 && weir__sin_of_turns(0.25) == 1);
    CHECK(weir__cos_of_turns(0.25) == 0 && weir__sin_of_turns(0.75) == -1);
}

static void test_powers_are_near_the_librarys(void) {
    const double bases[] = {0, 0.5, 0.9, 0.95, 0.999, 0.99999, 1};
    for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++)
        for (uint64_t n = 0; n < 20000 && !test_has_failed(); n += 1 + n / 7)
            expect_near("power", bases[b], weir__power(bases[b], n),
                        powl((long double)bases[b], (long double)n), 4 + (double)n);
}

static void test_results_are_these_to_the_bit(void) {
    CHECK(weir__log(0.1) == -0x1.26bb1bbb55515p+1);
    CHECK(weir__cos_of_turns(0.1) == 0x1.9e3779b97f4a8p-1);
    CHECK(weir__sin_of_turns(0.3) == 0x1.e6f0e134455p-1);
    CHECK(weir__power(0.999, 1000) == 0x1.788526411edacp-2);
}

WEIR_TEST_SUITE(scalar, TEST(log_is_near_the_librarys), TEST(cos_and_sin_are_near_the_librarys),
                TEST(powers_are_near_the_librarys), TEST(results_are_these_to_the_bit))
