/* SPDX-License-Identifier: MIT */
/*
 * Goal: a portal counts its uses and refuses what is out of turn. Method: the sequences of a step,
 * with and without checkpoints, by hand; then random ones against a model that is two counters.
 */
#include "harness.h"

#include "skip/skip.h"

#include <string.h>

/* ---- life ---- */

// PO-3
static void test_life_without_a_checkpoint_is_one_use(void) {
    struct weir__portal portal;
    double value = 1.0;
    void *got = NULL;
    weir__portal_reset(&portal, "foo", 1);
    CHECK_OK(weir__portal_put(&portal, &value, NULL));
    CHECK_EQ_UINT(portal.life, 1);
    CHECK_OK(weir__portal_use(&portal, &got, NULL));
    CHECK_EQ_PTR(got, &value);
    CHECK_EQ_UINT(portal.life, 0);
}

// PO-3
static void test_life_under_a_checkpoint_is_two_uses(void) {
    struct weir__portal portal;
    double value = 1.0;
    void *got = NULL;
    weir__portal_reset(&portal, "foo", 2);
    CHECK_OK(weir__portal_put(&portal, &value, NULL));
    CHECK_EQ_UINT(portal.life, 2);
    CHECK_OK(weir__portal_use(&portal, &got, NULL));
    CHECK_EQ_UINT(portal.life, 1);
    CHECK_OK(weir__portal_use(&portal, &got, NULL));
    CHECK_EQ_PTR(got, &value);
    CHECK_EQ_UINT(portal.life, 0);
}

// PO-3
static void test_stash_in_recompute_does_not_resurrect(void) {
    struct weir__portal portal;
    struct weir_error error = {0};
    double value = 1.0, again = 2.0;
    void *got = NULL;
    weir__portal_reset(&portal, "foo", 2);
    CHECK_OK(weir__portal_put(&portal, &value, NULL));
    CHECK_OK(weir__portal_use(&portal, &got, NULL));
    CHECK_OK(weir__portal_use(&portal, &got, NULL));
    CHECK_OK(weir__portal_put(&portal, &again, NULL));
    CHECK_EQ_UINT(portal.life, 0);
    CHECK_STATUS(weir__portal_use(&portal, &got, &error), WEIR_ERR_PORTAL);
    CHECK_CONTAINS(error.message, "skip 'foo' is used once more after its 2 uses");
}

// PO-3
static void test_several_readers_count_each_use(void) {
    /* two reading stages of one worker, one of which recomputes: three uses */
    struct weir__portal portal;
    int value = 7;
    void *got = NULL;
    weir__portal_reset(&portal, "v", 3);
    CHECK_OK(weir__portal_put(&portal, &value, NULL));
    for (uint32_t left = 3; left-- > 0;) {
        CHECK_OK(weir__portal_use(&portal, &got, NULL));
        CHECK_EQ_PTR(got, &value);
        CHECK_EQ_UINT(portal.life, left);
    }
    CHECK_STATUS(weir__portal_use(&portal, &got, NULL), WEIR_ERR_PORTAL);
}

// PO-4
static void test_putting_again_reuses_the_portal(void) {
    struct weir__portal portal;
    double value = 1.0, again = 2.0;
    void *got = NULL;
    weir__portal_reset(&portal, "foo", 2);
    CHECK_OK(weir__portal_put(&portal, &value, NULL));
    CHECK_OK(weir__portal_use(&portal, &got, NULL));
    CHECK_OK(weir__portal_put(&portal, &again, NULL));
    CHECK_EQ_UINT(portal.life, 1);
    CHECK_OK(weir__portal_use(&portal, &got, NULL));
    CHECK_EQ_PTR(got, &value);
}

static void test_use_before_put_names_the_skip(void) {
    struct weir__portal portal;
    struct weir_error error = {0};
    int untouched = 0;
    void *got = &untouched;
    weir__portal_reset(&portal, "foo", 1);
    CHECK_STATUS(weir__portal_use(&portal, &got, &error), WEIR_ERR_PORTAL);
    CHECK_STATUS(error.status, WEIR_ERR_PORTAL);
    CHECK_CONTAINS(error.message, "skip 'foo' is used before it is stashed");
    CHECK_EQ_PTR(got, &untouched);
    CHECK_STATUS(weir__portal_use(&portal, &got, NULL), WEIR_ERR_PORTAL);
}

static void test_reset_makes_a_portal_new(void) {
    struct weir__portal portal;
    int value = 7;
    void *got = NULL;
    weir__portal_reset(&portal, "foo", 1);
    CHECK_OK(weir__portal_put(&portal, &value, NULL));
    CHECK_OK(weir__portal_put_gradient(&portal, &value, NULL));
    weir__portal_reset(&portal, "foo", 1);
    CHECK_STATUS(weir__portal_use(&portal, &got, NULL), WEIR_ERR_PORTAL);
    CHECK_STATUS(weir__portal_use_gradient(&portal, &got, NULL), WEIR_ERR_PORTAL);
    CHECK_OK(weir__portal_put(&portal, &value, NULL));
    CHECK_OK(weir__portal_use(&portal, &got, NULL));
}

/* ---- gradients ---- */

// PO-2
static void test_a_gradient_is_used_once(void) {
    struct weir__portal portal;
    struct weir_error error = {0};
    double gradient = 3.0;
    void *got = NULL;
    weir__portal_reset(&portal, "foo", 1);
    CHECK_OK(weir__portal_put_gradient(&portal, &gradient, &error));
    CHECK_OK(weir__portal_use_gradient(&portal, &got, &error));
    CHECK_EQ_PTR(got, &gradient);
    CHECK_STATUS(weir__portal_use_gradient(&portal, &got, &error), WEIR_ERR_PORTAL);
    CHECK_CONTAINS(error.message, "the gradient of skip 'foo' is used twice");
}

// PO-2
static void test_a_gradient_is_put_before_its_use(void) {
    struct weir__portal portal;
    struct weir_error error = {0};
    void *got = NULL;
    weir__portal_reset(&portal, "foo", 1);
    CHECK_STATUS(weir__portal_use_gradient(&portal, &got, &error), WEIR_ERR_PORTAL);
    CHECK_CONTAINS(error.message, "the gradient of skip 'foo' is used before it is put");
}

static void test_a_gradient_is_put_once(void) {
    struct weir__portal portal;
    struct weir_error error = {0};
    double gradient = 3.0;
    void *got = NULL;
    weir__portal_reset(&portal, "foo", 1);
    CHECK_OK(weir__portal_put_gradient(&portal, &gradient, NULL));
    CHECK_STATUS(weir__portal_put_gradient(&portal, &gradient, &error), WEIR_ERR_PORTAL);
    CHECK_CONTAINS(error.message, "the gradient of skip 'foo' is put twice");
    CHECK_OK(weir__portal_use_gradient(&portal, &got, NULL));
    CHECK_STATUS(weir__portal_put_gradient(&portal, &gradient, NULL), WEIR_ERR_PORTAL);
}

static void test_long_names_are_cut_in_messages(void) {
    char name[400];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    struct weir__portal portal;
    struct weir_error error = {0};
    void *got = NULL;
    weir__portal_reset(&portal, name, 1);
    CHECK_STATUS(weir__portal_use(&portal, &got, &error), WEIR_ERR_PORTAL);
    CHECK_CONTAINS(error.message, "is used before it is stashed");
}

/* ---- all sequences ---- */

static void test_random_sequences_follow_the_model(void) {
    int values[2];
    for (int run = 0; run < 2000; run++) {
        struct weir__portal portal;
        uint32_t full = (uint32_t)test_random_below(4), left = 0, put = 0, gradients = 0, used = 0;
        int *kept = NULL;
        weir__portal_reset(&portal, "foo", full);
        for (int step = 0; step < 12; step++) {
            void *got = NULL;
            int *value = &values[test_random_below(2)];
            switch (test_random_below(4)) {
            case 0:
                CHECK_OK(weir__portal_put(&portal, value, NULL));
                kept = put == 0 ? value : kept;
                left = put == 0 ? full : left;
                put = 1;
                break;
            case 1: {
                bool allowed = put == 1 && left > 0;
                CHECK_EQ_INT(weir__portal_use(&portal, &got, NULL) == WEIR_OK, allowed);
                CHECK_EQ_PTR(got, allowed ? kept : NULL);
                left -= allowed;
                break;
            }
            case 2:
                CHECK_EQ_INT(weir__portal_put_gradient(&portal, value, NULL) == WEIR_OK,
                             gradients == 0);
                gradients = 1;
                break;
            default:
                CHECK_EQ_INT(weir__portal_use_gradient(&portal, &got, NULL) == WEIR_OK,
                             gradients == 1 && used == 0);
                used = gradients;
            }
        }
    }
}

WEIR_TEST_SUITE(portal, TEST(life_without_a_checkpoint_is_one_use),
                TEST(life_under_a_checkpoint_is_two_uses),
                TEST(stash_in_recompute_does_not_resurrect), TEST(several_readers_count_each_use),
                TEST(putting_again_reuses_the_portal), TEST(use_before_put_names_the_skip),
                TEST(reset_makes_a_portal_new), TEST(a_gradient_is_used_once),
                TEST(a_gradient_is_put_before_its_use), TEST(a_gradient_is_put_once),
                TEST(long_names_are_cut_in_messages), TEST(random_sequences_follow_the_model))
