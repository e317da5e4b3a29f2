/* SPDX-License-Identifier: MIT */
/*
 * Goal: the vector functions keep the error bounds that net/cpu/vector.h states, sums have the
 * order that it states, and bf16 is loaded and stored right. Method: dense sweeps against the C
 * library in double, in units of the last place of the exact result; products with panels against
 * plain loops, whole numbers exactly. Compiled for each level, into a suite of its own.
 */
#include "harness.h"
#include "net/cpu/level.h"
#include "net/cpu/panel.h"

#include "base/base.h"

#include <math.h>
#include <stdio.h>

extern const struct weir__level VECTOR(level);

/** First in each test. */
#define NEED_LEVEL                                                                                 \
    if (!weir__level_runs(&VECTOR(level))) SKIP("not on this processor")

/** The distance of two numbers in units of the last place of `exact` as a float. */
static double ulps(float got, double exact) {
    float near = (float)fabs(exact);
    double unit = (double)nextafterf(near, INFINITY) - (double)near;
    return fabs((double)got - exact) / unit;
}

static void expect_ulps(const char *name, float x, float got, double exact, double bound) {
    if (!(ulps(got, exact) <= bound))
        TEST_FAIL("%s(%.9g) is %.9g, not %.17g: %.2f ulp", name, (double)x, (double)got, exact,
                  ulps(got, exact));
}

enum { STEPS = 400000 };

static float sweep(float from, float to, int i) {
    return from + (to - from) * (float)i / STEPS;
}

static void test_exp_is_within_2_ulp(void) {
    NEED_LEVEL;
    for (int i = 0; i <= STEPS && !test_has_failed(); i++) {
        float x = sweep(-87.2f, 88, i);
        expect_ulps("exp", x, v_exp(v_all(x))[7], exp((double)x), 2);
        float small = x / 1000;
        expect_ulps("exp", small, v_exp(v_all(small))[0], exp((double)small), 2);
    }
    CHECK(v_exp(v_all(0))[0] == 1);
    CHECK(v_exp(v_all(-88))[0] == 0);
    CHECK(v_exp(v_all(-INFINITY))[0] == 0);
    CHECK(isnan(v_exp(v_all(NAN))[0]));
}

static void test_log_is_within_2_ulp(void) {
    NEED_LEVEL;
    for (int i = 0; i <= STEPS && !test_has_failed(); i++) {
        float x = exp2f(sweep(-125, 127, i)), near = sweep(0.5f, 3, i);
        expect_ulps("log", x, v_log(v_all(x))[3], log((double)x), 2);
        expect_ulps("log", near, v_log(v_all(near))[3], log((double)near), 2);
    }
    CHECK(v_log(v_all(1))[0] == 0);
    CHECK(isnan(v_log(v_all(NAN))[0]));
}

static void test_log_above_1_is_within_2_ulp(void) {
    NEED_LEVEL;
    for (int i = 0; i <= STEPS && !test_has_failed(); i++) {
        float x = sweep(0, 1, i), small = exp2f(sweep(-120, 0, i));
        expect_ulps("log(1 + x)", x, v_log_above_1(v_all(x))[3], log1p((double)x), 2);
        expect_ulps("log(1 + x)", small, v_log_above_1(v_all(small))[0], log1p((double)small), 2);
    }
    CHECK(v_log_above_1(v_all(0))[0] == 0);
    CHECK(isnan(v_log_above_1(v_all(NAN))[0]));
}

static void test_tanh_is_within_3_ulp(void) {
    NEED_LEVEL;
    for (int i = 0; i <= STEPS && !test_has_failed(); i++) {
        float x = sweep(-12, 12, i), small = exp2f(sweep(-120, 0, i));
        expect_ulps("tanh", x, v_tanh(v_all(x))[9], tanh((double)x), 3);
        expect_ulps("tanh", small, v_tanh(v_all(small))[0], tanh((double)small), 3);
    }
    CHECK(v_tanh(v_all(1e30f))[0] == 1);
    CHECK(v_tanh(v_all(-INFINITY))[0] == -1);
    CHECK(v_tanh(v_all(0))[0] == 0 && !signbit(v_tanh(v_all(0))[0]));
    CHECK(signbit(v_tanh(v_all(-0.0f))[0]));
    CHECK(isnan(v_tanh(v_all(NAN))[0]));
}

static void test_normal_share_is_within_2_ulp_of_1(void) {
    NEED_LEVEL;
    for (int i = 0; i <= STEPS && !test_has_failed(); i++) {
        float x = sweep(-14, 14, i);
        vfloat density, share = v_normal_share(v_all(x), &density);
        double exact = 0.5 * erfc(-(double)x * sqrt(0.5));
        CHECK_NEAR(share[5], exact, 0x1p-22);
        double shape = exp(-0.5 * (double)x * (double)x);
        /* x^2 / 2 is rounded before exp sees it. */
        CHECK_NEAR(density[5], shape, shape * 0x1p-24 * (4 + (double)x * (double)x) + 1e-37);
        if (x < 0 && x > -4) CHECK_NEAR(share[5], exact, exact * 0x1p-20);
    }
}

static void test_sigmoid_is_within_3_and_5_ulp(void) {
    NEED_LEVEL;
    for (int i = 0; i <= STEPS && !test_has_failed(); i++) {
        float x = sweep(-16, 16, i);
        vfloat spread, share = v_sigmoid(v_all(x), &spread);
        double exact = 1 / (1 + exp(-(double)x));
        expect_ulps("sigmoid", x, share[2], exact, 3);
        expect_ulps("sigmoid's slope", x, spread[2], exact / (1 + exp((double)x)), 5);
    }
    vfloat spread;
    CHECK(v_sigmoid(v_all(200), &spread)[0] == 1);
    CHECK(v_sigmoid(v_all(-200), &spread)[0] == 0);
    CHECK(spread[0] == 0);
    CHECK(isnan(v_sigmoid(v_all(NAN), &spread)[0]));
}

static void test_lanes_are_summed_in_halves(void) {
    NEED_LEVEL;
    float x[LANES];
    for (int i = 0; i < LANES; i++) x[i] = (float)(test_random_unit() - 0.5);
    float wanted[LANES];
    memcpy(wanted, x, sizeof x);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) wanted[i] += wanted[i + half];
    CHECK(v_sum(v_load(x)) == wanted[0]);
    float largest = x[0];
    for (int i = 1; i < LANES; i++) largest = fmaxf(largest, x[i]);
    CHECK(v_largest(v_load(x)) == largest);
}

/** The same for numbers of either kind; whole ones up to 16 are the same in both. */
#define EXPECT_SOME(type, count)                                                                   \
    do {                                                                                           \
        type *x = weir__acquire(test_allocator(), (size_t)(count), sizeof(type));                  \
        type *y = weir__acquire(test_allocator(), (size_t)(count), sizeof(type));                  \
        for (int i = 0; i < (count); i++) v_store_one(x + i, (float)(i + 1));                      \
        vfloat v = v_load_some(x, count);                                                          \
        for (int i = 0; i < LANES; i++) EXPECT(v[i] == (i < (count) ? (float)(i + 1) : 0));        \
        v_store_some(y, v, count); /* the allocator's guards see a lane too many */                \
        EXPECT_EQ_BYTES(x, y, (size_t)(count) * sizeof(type));                                     \
        for (int i = 0; i < (count); i++) EXPECT(v_load_one(y + i) == (float)(i + 1));             \
        weir__release(test_allocator(), x, (size_t)(count), sizeof(type));                         \
        weir__release(test_allocator(), y, (size_t)(count), sizeof(type));                         \
    } while (0)

static void test_partial_loads_and_stores_keep_to_their_lanes(void) {
    NEED_LEVEL;
    for (int count = 0; count <= LANES; count++) {
        EXPECT_SOME(float, count);
        EXPECT_SOME(struct weir__bf16, count);
    }
}

/* ---- bf16 ---- */

/** The magnitude that the bits stand for, by their exponent and fraction; infinity's would be the
 * next power of two. */
static double magnitude_of_bf16(uint16_t bits) {
    int exponent = bits >> 7 & 0xff, fraction = bits & 0x7f;
    return exponent == 0 ? ldexp(fraction, -133) : ldexp(128 + fraction, exponent - 134);
}

static bool is_bf16_nan(uint16_t bits) {
    return (bits & 0x7fff) > 0x7f80;
}

static void test_every_bf16_is_loaded_exactly(void) {
    NEED_LEVEL;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        struct weir__bf16 stored[LANES], again[LANES];
        for (uint32_t i = 0; i < LANES; i++) stored[i].bits = (uint16_t)(bits + i);
        vfloat v = v_load(stored);
        double wanted = magnitude_of_bf16((uint16_t)bits);
        if ((bits & 0x7fff) == 0x7f80) wanted = INFINITY;
        if (is_bf16_nan((uint16_t)bits)) {
            CHECK(isnan(v[0]) && isnan(v_load_one(stored)));
        } else {
            CHECK(fabs((double)v[0]) == wanted && !signbit(v[0]) == (bits < 0x8000));
            CHECK(v_load_one(stored) == v[0]);
        }
        v_store(again, v);
        for (uint32_t i = 0; i < LANES; i++)
            if (!is_bf16_nan(stored[i].bits)) CHECK(again[i].bits == stored[i].bits);
    }
}

/** The nearer of the two bf16 around a float, or the one whose last bit is 0. */
static uint16_t nearest_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint16_t inner = (uint16_t)(bits >> 16), outer = (uint16_t)(inner + 1);
    if (isinf(x)) return inner;
    double up = magnitude_of_bf16(outer) - fabs((double)x);
    double down = fabs((double)x) - magnitude_of_bf16(inner);
    if (down == up) return inner % 2 == 0 ? inner : outer;
    return down < up ? inner : outer;
}

static void expect_narrowed(uint32_t bits) {
    float x;
    struct weir__bf16 lanes[LANES], one;
    memcpy(&x, &bits, sizeof x);
    v_store(lanes, v_all(x));
    v_store_one(&one, x);
    bool quiet = is_bf16_nan(one.bits) && (one.bits & 0x40) != 0;
    if (lanes[5].bits != one.bits || (isnan(x) ? !quiet : one.bits != nearest_bf16(x)))
        TEST_FAIL("%08x becomes %04x", bits, one.bits);
}

/** Around every bf16: ties and their neighbours, denormals, what overflows, NaNs. */
static void test_floats_are_narrowed_to_the_nearest_bf16(void) {
    static const uint32_t lower[] = {0, 1, 0x1234, 0x7fff, 0x8000, 0x8001, 0xffff};
    NEED_LEVEL;
    for (uint32_t upper = 0; upper < 0x10000 && !test_has_failed(); upper++) {
        for (size_t i = 0; i < WEIR__COUNT_OF(lower); i++) expect_narrowed(upper << 16 | lower[i]);
        expect_narrowed(upper << 16 | (uint32_t)test_random_below(0x10000));
    }
}

/* ---- panels ---- */

/** Whole numbers small enough that every product and sum is exact. */
static void fill(float *to, size_t count) {
    for (size_t i = 0; i < count; i++) to[i] = (float)((int)test_random_below(17) - 8);
}

enum { SIDE = 37 }; /* rows and depth at most */
enum { WIDEST = WEIR__WIDE_COLUMNS > WEIR__PANEL ? WEIR__WIDE_COLUMNS : WEIR__PANEL };

struct arrays {
    float a[SIDE * SIDE], b[SIDE * WIDEST], c[SIDE * WIDEST], wanted[SIDE * WIDEST];
};

static void multiply_plainly(const struct weir__panel *panel, float *wanted) {
    for (int64_t r = 0; r < panel->rows; r++)
        for (int64_t j = 0; j < panel->columns; j++) {
            float sum = panel->mode == WEIR__PANEL_SET ? 0 : wanted[r * WIDEST + j];
            for (int64_t k = 0; k < panel->depth; k++)
                sum +=
                    panel->a[r * panel->a_row + k * panel->a_step] * panel->b[k * panel->b_row + j];
            wanted[r * WIDEST + j] = sum;
        }
}

/* A tile's columns or fewer, or a wide one's; packed, or further apart. */
static void choose_columns(struct weir__panel *panel) {
    const bool whole = test_random_below(2) == 0, wide = test_random_below(2) == 0;
    const int64_t most = wide ? WIDEST : WEIR__TILE_COLUMNS;
    panel->columns = whole ? most : 1 + (int64_t)test_random_below(WIDEST);
    panel->b_row = test_random_below(2) == 0 && panel->columns <= most ? most : WIDEST;
}

/* Rows that are neighbours: of a matrix, or of one tile that is packed. */
static void choose_rows(struct weir__panel *panel) {
    const int64_t tile = panel->columns == WEIR__WIDE_COLUMNS ? WEIR__WIDE_ROWS : WEIR__TILE_ROWS;
    const bool packed = test_random_below(2) == 0;
    panel->a_row = 1;
    panel->a_step = packed ? tile : SIDE;
    panel->rows = (int64_t)test_random_below((uint64_t)(packed ? tile : SIDE) + 1);
}

static void test_panel_products_of_whole_numbers_are_exact(void) {
    NEED_LEVEL;
    static struct arrays x;
    for (int i = 0; i < 1200 && !test_has_failed(); i++) {
        fill(x.a, SIDE * SIDE);
        fill(x.b, SIDE * WIDEST);
        fill(x.c, SIDE * WIDEST);
        memcpy(x.wanted, x.c, sizeof x.c);
        struct weir__panel panel = {.a = x.a,
                                    .a_row = SIDE,
                                    .a_step = 1,
                                    .b = x.b,
                                    .c = x.c,
                                    .c_row = WIDEST,
                                    .rows = (int64_t)test_random_below(SIDE + 1),
                                    .depth = (int64_t)test_random_below(SIDE + 1),
                                    .mode = (enum weir__panel_mode)(i % 3)};
        choose_columns(&panel);
        if (i % 2 == 0) choose_rows(&panel);
        VECTOR_F32(panel_product)(&panel);
        multiply_plainly(&panel, x.wanted);
        CHECK_EQ_BYTES(x.c, x.wanted, sizeof x.c); /* also what lies outside of c */
    }
}

static void test_packing_moves_every_number_to_its_place(void) {
    NEED_LEVEL;
    static float from[SIDE * 50], to[50 * WEIR__PANEL];
    for (int i = 0; i < 200 && !test_has_failed(); i++) {
        int64_t columns = 1 + (int64_t)test_random_below(WEIR__PANEL);
        int64_t depth = 1 + (int64_t)test_random_below(SIDE);
        fill(from, WEIR__COUNT_OF(from));
        VECTOR(panel_pack_rows)(to, WEIR__PANEL, from, 50, columns, depth, 2);
        for (int64_t k = 0; k < depth; k++)
            for (int64_t j = 0; j < WEIR__PANEL; j++)
                CHECK(to[k * WEIR__PANEL + j] == (j < columns ? 2 * from[j * 50 + k] : 0));
        int64_t padded = (columns + LANES - 1) / LANES * LANES;
        VECTOR(panel_pack)(to, padded, padded, from, 50, columns, depth, 2);
        for (int64_t k = 0; k < depth; k++)
            for (int64_t j = 0; j < padded; j++)
                CHECK(to[k * padded + j] == (j < columns ? 2 * from[k * 50 + j] : 0));
    }
}

#define SUITE_OF(level, ...) SUITE_NAMED(level, __VA_ARGS__)
#define SUITE_NAMED(level, ...) WEIR_TEST_SUITE(vector_##level, __VA_ARGS__)
SUITE_OF(WEIR_LEVEL, TEST(exp_is_within_2_ulp), TEST(log_is_within_2_ulp),
         TEST(log_above_1_is_within_2_ulp), TEST(tanh_is_within_3_ulp),
         TEST(normal_share_is_within_2_ulp_of_1), TEST(sigmoid_is_within_3_and_5_ulp),
         TEST(lanes_are_summed_in_halves), TEST(partial_loads_and_stores_keep_to_their_lanes),
         TEST(every_bf16_is_loaded_exactly), TEST(floats_are_narrowed_to_the_nearest_bf16),
         TEST(panel_products_of_whole_numbers_are_exact),
         TEST(packing_moves_every_number_to_its_place))
