/* SPDX-License-Identifier: MIT */
/*
 * Goal: estimates follow the roofs, roofs are kept and taken back as they were, and on any machine
 * a layer's estimate is near what it takes. Method: roofs of the test's own, whose answers are
 * known; files that are cut, of another key or nowhere; and small models that are measured beside
 * their estimates, again where the machine was busy.
 */
#include "net/profile/roofs.h"

#include "harness.h"
#include "io/cache.h"
#include "io/file.h"
#include "net/profiles.h"
#include "weir_models.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ATTEMPTS_MOST = 40 };

/* ---- what roofs say ---- */

static struct weir__roofs some_roofs(void) {
    struct weir__roofs roofs = {.key = "weir roofs 1: a test's",
                                .product = 1e9,
                                .copy_cached = 4e9,
                                .memory = 1e9,
                                .thread = 0.5,
                                .memory_thread = 0.25,
                                .cache = 1024,
                                .count = 3};
    roofs.samples[0] = (struct weir__roof_sample){WEIR__OP_linear, 1e-9, {10, 4, 4, 0}};
    roofs.samples[1] = (struct weir__roof_sample){WEIR__OP_linear, 4e-9, {10, 10, 10, 0}};
    roofs.samples[2] = (struct weir__roof_sample){WEIR__OP_add, 1e-10, {12, 6, 0, 0}};
    return roofs;
}

static struct weir__node product(int64_t tokens, int64_t in, int64_t out) {
    return (struct weir__node){
        .op = WEIR__OP_linear,
        .shape = {.op = WEIR__OP_linear, .tokens = tokens, .in = in, .out = out}};
}

static void test_a_call_takes_its_work_at_the_rate_of_near_samples(void) {
    struct weir__roofs roofs = some_roofs();
    struct weir__node small = product(256, 16, 16), large = product(256, 1024, 1024),
                      middle = product(256, 128, 128);
    double work = 4.0 * 256 * 128 * 128;
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &small, 4, 1) / (1e-9 * 1024 * 256), 1, 1e-3);
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &large, 4, 1) / (4e-9 * 0x1p30), 1, 1e-3);
    /* half-way between both shapes, in powers of two: the mean of both rates, so too */
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &middle, 4, 1) / (2e-9 * work), 1, 1e-9);
    /* twice the rows are twice the work of the same kind */
    double once = weir__roofs_seconds(&roofs, &middle, 4, 1);
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &middle, 8, 1) / once, 2, 1e-9);
    /* and 1024 rows as fast as any more of them */
    once = weir__roofs_seconds(&roofs, &small, 4, 1);
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &small, 16, 1) / once, 4, 1e-9);
}

static void test_threads_share_what_is_long_enough(void) {
    struct weir__roofs roofs = some_roofs();
    struct weir__node large = product(256, 128, 128), small = product(1, 16, 16);
    double alone = weir__roofs_seconds(&roofs, &large, 4, 1);
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &large, 4, 3), alone / 2, 1e-12);
    alone = weir__roofs_seconds(&roofs, &small, 1, 1);
    CHECK(alone < WEIR__ROOF_SHARED_LEAST);
    EXPECT(weir__roofs_seconds(&roofs, &small, 1, 3) == alone);
}

static void test_memory_beyond_the_cache_costs_besides(void) {
    struct weir__roofs roofs = some_roofs();
    struct weir_value value = {
        .rank = 1, .shape = {64}, .batched = true, .accumulator = WEIR__NONE};
    struct weir_value sum = value;
    struct weir__node add = {.op = WEIR__OP_add, .in_count = 2, .out_count = 1};
    struct weir_value *operands[] = {&value, &value};
    add.in = add.out = operands;
    /* a row is 3 * 64 numbers, 768 bytes */
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &add, 1, 1), 192 * 1e-10, 1e-15);
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &add, 100, 1), 19200 * 1e-10 + (76800 - 1024) / 1e9,
                1e-12);
    /* which threads share as they share memory */
    double own = 1920000 * 1e-10, beyond = (7680000 - 1024) / 1e9;
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &add, 10000, 3), own / 2 + beyond / 1.5, 1e-12);
    own = 19200 * 1e-10, beyond = (76800 - 1024) / 1e9; /* together long enough */
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &add, 100, 3), own / 2 + beyond / 1.5, 1e-12);
    own = 1920 * 1e-10, beyond = (7680 - 1024) / 1e9; /* too short for it */
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &add, 10, 3), own + beyond, 1e-15);
    add.op = WEIR__OP_concat; /* of which nothing is known but its bytes */
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &add, 1, 1), 768 / 8e9, 1e-15);
    /* what is added to is read and written */
    struct weir_value *sums[] = {&sum};
    sum.accumulator = 0;
    add.out = sums;
    EXPECT_NEAR(weir__roofs_seconds(&roofs, &add, 1, 1), 1024 / 8e9, 1e-15);
}

/* A row of 4 tokens reads 4 rows of 64 numbers of a table of 10,000, and 64 numbers are written. */
static void test_a_table_counts_by_the_rows_that_are_read(void) {
    struct weir_value table = {.rank = 2, .shape = {10000, 64}, .accumulator = WEIR__NONE},
                      out = {.rank = 1, .shape = {64}, .batched = true, .accumulator = WEIR__NONE};
    struct weir__node embedding = {.op = WEIR__OP_embedding,
                                   .shape = {.op = WEIR__OP_embedding, .tokens = 4},
                                   .in_count = 2,
                                   .out_count = 1};
    struct weir_value *ins[] = {NULL, &table}, *outs[] = {&out};
    embedding.in = ins, embedding.out = outs;
    EXPECT_NEAR(weir__roof_shape(&embedding, 1).bytes, (4 + 1) * 64 * 4, 0);
}

/* ---- files ---- */

static const char *fresh_cache(void) {
    const char *folder = test_temporary_directory();
    return folder != NULL && setenv("WEIR_CACHE", folder, 1) == 0 ? folder : NULL;
}

static void expect_equal(const struct weir__roofs *a, const struct weir__roofs *b) {
    CHECK(a->count == b->count);
    EXPECT(a->product == b->product && a->copy_cached == b->copy_cached);
    EXPECT(a->memory == b->memory && a->memory_thread == b->memory_thread);
    EXPECT(a->thread == b->thread && a->cache == b->cache);
    for (uint32_t i = 0; i < a->count; i++) {
        EXPECT(a->samples[i].op == b->samples[i].op && a->samples[i].rate == b->samples[i].rate);
        for (int k = 0; k < WEIR__ROOF_SIZES; k++)
            EXPECT(a->samples[i].size[k] == b->samples[i].size[k]);
    }
}

static void test_what_was_kept_comes_back_for_its_key_alone(void) {
    struct weir__roofs roofs = some_roofs(), back = {.key = "weir roofs 1: a test's"};
    CHECK(fresh_cache() != NULL);
    EXPECT(!weir__roofs_load(&back));
    weir__roofs_keep(&roofs);
    CHECK(weir__roofs_load(&back));
    expect_equal(&roofs, &back);
    struct weir__roofs other = {.key = "weir roofs 1: another's"};
    EXPECT(!weir__roofs_load(&other));
}

/* Whatever is missing of it. */
static void test_a_file_that_is_cut_is_none(void) {
    struct weir__roofs roofs = some_roofs();
    struct weir__bytes bytes = {NULL, 0, 0};
    const struct weir__io io = {NULL, NULL, NULL};
    char path[1024], found[1024];
    const char *folder = fresh_cache();
    CHECK(folder != NULL);
    weir__roofs_keep(&roofs);
    CHECK(test_shell(found, sizeof found, "ls '%s'", folder) == 0);
    snprintf(path, sizeof path, "%s/%.*s", folder, (int)strcspn(found, "\n"), found);
    CHECK(weir__file_read(&io, path, 1 << 20, &bytes) == WEIR_OK);
    for (size_t length = bytes.count; length-- > 0;) {
        CHECK(truncate(path, (off_t)length) == 0);
        struct weir__roofs back = {.key = "weir roofs 1: a test's"};
        EXPECT(!weir__roofs_load(&back));
    }
    weir__bytes_release(NULL, &bytes);
}

static void test_what_is_a_day_old_is_measured_again(void) {
    struct weir__roofs roofs = some_roofs();
    char text[256];
    const char *folder = fresh_cache();
    CHECK(folder != NULL);
    weir__roofs_keep(&roofs);
    CHECK(test_shell(text, sizeof text, "touch -d '23 hours ago' '%s'/*", folder) == 0);
    EXPECT(weir__roofs_load(&roofs));
    CHECK(test_shell(text, sizeof text, "touch -d '25 hours ago' '%s'/*", folder) == 0);
    EXPECT(!weir__roofs_load(&roofs));
}

static void test_without_a_folder_nothing_is_kept(void) {
    struct weir__roofs roofs = some_roofs();
    const char *const nowhere[] = {"", "/dev/null", "/none/at/all"};
    for (int i = 0; i < 3; i++) {
        CHECK(setenv("WEIR_CACHE", nowhere[i], 1) == 0);
        weir__roofs_keep(&roofs);
        EXPECT(!weir__roofs_load(&roofs));
    }
}

/* ---- this machine ---- */

static double whole(const struct weir_profile *profile) {
    double sum = 0;
    for (uint32_t i = 0; i < profile->costs.layer_count; i++)
        sum += profile->costs.layers[i].seconds[WEIR_KIND_F] +
               profile->costs.layers[i].seconds[WEIR_KIND_B];
    return sum;
}

static struct weir_model *wide_gpt(void) {
    struct weir_gpt_options options = WEIR_GPT_OPTIONS_INIT;
    struct weir_model *model = NULL;
    options.layers = 2;
    options.width = 192;
    options.heads = 3;
    options.context = 96;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

static struct weir_model *wide_unet(void) {
    struct weir_unet_options options = WEIR_UNET_OPTIONS_INIT;
    struct weir_model *model = NULL;
    options.depth = 2;
    options.num_convs = 1;
    options.base_channels = 16;
    options.height = options.width = 64;
    EXPECT_STATUS(weir_model_unet(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

/* Most of whose calls are bound by memory: batch norms, sums, pools. */
static struct weir_model *wide_amoebanet(void) {
    struct weir_amoebanet_options options = WEIR_AMOEBANET_OPTIONS_INIT;
    struct weir_model *model = NULL;
    options.layers = 3;
    options.filters = 64;
    options.classes = 10;
    options.height = options.width = 224;
    EXPECT_STATUS(weir_model_amoebanetd(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

/* The estimate, over what was measured. */
static double estimate_of(const struct weir_model *model) {
    struct weir_profile_options options = profile_options(2, 1);
    struct weir_profile *measured = profile_of(model, &options), *estimated = NULL;
    EXPECT_STATUS(weir_profile_estimate(model, &options.net, NULL, &estimated), WEIR_OK);
    double ratio = measured != NULL && estimated != NULL ? whole(estimated) / whole(measured) : 0;
    EXPECT(estimated == NULL || !estimated->measured);
    weir_profile_destroy(measured);
    weir_profile_destroy(estimated);
    return ratio;
}

static void test_estimates_are_near_what_layers_take(void) {
    struct weir_model *models[] = {wide_gpt(), wide_unet(), wide_amoebanet()};
    for (int i = 0; i < 3; i++) {
        double ratio = 0;
        for (int attempt = 0; attempt < ATTEMPTS_MOST; attempt++) {
            ratio = estimate_of(models[i]);
            if (ratio > 0.6 && ratio < 1.67) break;
        }
        if (!(ratio > 0.5 && ratio < 2)) TEST_FAIL("model %d: %.2f of what it takes", i, ratio);
        weir_model_destroy(models[i]);
    }
}

WEIR_TEST_SUITE(roofs, TEST(a_call_takes_its_work_at_the_rate_of_near_samples),
                TEST(threads_share_what_is_long_enough),
                TEST(memory_beyond_the_cache_costs_besides),
                TEST(a_table_counts_by_the_rows_that_are_read),
                TEST(what_was_kept_comes_back_for_its_key_alone), TEST(a_file_that_is_cut_is_none),
                TEST(what_is_a_day_old_is_measured_again), TEST(without_a_folder_nothing_is_kept),
                TEST(estimates_are_near_what_layers_take))
