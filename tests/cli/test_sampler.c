/* SPDX-License-Identifier: MIT */
/*
 * Goal: tokens are drawn from what transformers leaves of the logits, by its probabilities. Method:
 * random logits and options with what its processors made of them (tests/golden/make_sampling.py);
 * nuclei found by sorting; frequencies. The sampler belongs to the command and is in no library, so
 * its source is compiled in here, for test_generator.c too.
 */
#include "../../tools/cmd/sampler.c"
#include "harness.h"

#include <jansson.h>

enum { VOCAB = 40 };

/* ---- transformers ---- */

enum { GOLDEN_MOST = 64 };

static double number(const json_t *line, const char *key) {
    return json_number_value(json_object_get(line, key));
}

static void compare_line(const json_t *line) {
    double logits[GOLDEN_MOST], sum = 0;
    uint32_t tokens[GOLDEN_MOST], scratch[GOLDEN_MOST], largest;
    const json_t *left = json_object_get(line, "left");
    const json_t *said = json_object_get(line, "tokens"), *given = json_object_get(line, "logits");
    uint32_t vocab = (uint32_t)json_array_size(given), count = (uint32_t)json_array_size(said);
    const struct sampler sampler = {.temperature = number(line, "temperature"),
                                    .top_k = (uint32_t)number(line, "top_k"),
                                    .top_p = number(line, "top_p"),
                                    .min_p = number(line, "min_p"),
                                    .penalty = number(line, "repetition_penalty"),
                                    .vocab = vocab};
    CHECK(vocab > 0 && vocab <= GOLDEN_MOST && count <= GOLDEN_MOST);
    for (uint32_t i = 0; i < vocab; i++) logits[i] = json_number_value(json_array_get(given, i));
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = (uint32_t)json_integer_value(json_array_get(said, i));
    sampler_penalize(&sampler, tokens, count, logits, scratch);
    CHECK(find_largest(logits, vocab, &largest));
    const struct softened weights = soften(&sampler, logits, largest, scratch);
    for (uint32_t i = 0; i < vocab; i++) sum += weight_left(&weights, i);
    for (uint32_t i = 0; i < vocab; i++) {
        double wanted = json_number_value(json_array_get(left, i));
        double got = weight_left(&weights, i) / sum;
        CHECK_EQ_INT(got > 0, wanted > 0);
        CHECK_NEAR(got, wanted, 1e-12);
    }
}

static void test_what_is_left_is_what_transformers_leaves(void) {
    char text[1 << 13];
    uint32_t lines = 0;
    FILE *file = fopen("tests/golden/sampling.golden", "r");
    if (file == NULL) SKIP("not in the project's folder");
    while (fgets(text, sizeof text, file) != NULL && !test_has_failed()) {
        json_t *line = json_loads(text, 0, NULL);
        CHECK(line != NULL);
        compare_line(line);
        if (test_has_failed()) TEST_FAIL("line %u: %s", lines + 1, text);
        json_decref(line);
        lines++;
    }
    fclose(file);
    CHECK(lines >= 60);
}

static void test_tokens_of_no_vocabulary_are_penalized_as_none(void) {
    const struct sampler sampler = {.penalty = 2, .vocab = 3};
    const uint32_t tokens[] = {7, 1, 1, UINT32_MAX};
    uint32_t scratch[3];
    double logits[3] = {1, 1, -1};
    sampler_penalize(&sampler, tokens, 4, logits, scratch);
    CHECK_EQ_INT((int64_t)(8 * logits[0]), 8);
    CHECK_EQ_INT((int64_t)(8 * logits[1]), 4);
    CHECK_EQ_INT((int64_t)(8 * logits[2]), -8);
}

/* ---- draws ---- */

/** Logits in a random order: a few values, so that many are equal. */
static void draw_logits(double *logits, uint32_t count, uint32_t values) {
    for (uint32_t i = 0; i < count; i++) logits[i] = (double)test_random_below(values) / 4;
}

static void test_the_largest_k_are_drawn_from_and_the_first_of_equals(void) {
    double logits[VOCAB];
    uint32_t scratch[VOCAB], token;
    for (int i = 0; i < 300 && !test_has_failed(); i++) {
        struct sampler sampler = {test_random_u64(), 0.5 + test_random_unit(),
                                  1 + (uint32_t)test_random_below(VOCAB + 3), 1.0, VOCAB};
        struct sampler_text text = {test_random_u64(), 0};
        draw_logits(logits, VOCAB, 1 + (uint32_t)test_random_below(9));
        CHECK_OK(sampler_draw(&sampler, &text, (uint32_t)i, logits, scratch, &token));
        uint32_t before = 0;
        for (uint32_t t = 0; t < VOCAB; t++) before += precedes(logits, t, token);
        CHECK(before < sampler.top_k);
        sampler.top_k = 1;
        uint32_t only, best;
        CHECK_OK(sampler_draw(&sampler, &text, (uint32_t)i, logits, scratch, &only));
        sampler.temperature = 0;
        CHECK_OK(sampler_draw(&sampler, &text, (uint32_t)i, logits, scratch, &best));
        CHECK_EQ_UINT(only, best);
        for (uint32_t t = 0; t < VOCAB; t++) CHECK(!precedes(logits, t, best));
    }
}

/** Frequencies of 20,000 draws are within five standard deviations of softmax(logits / T). */
static void test_draws_follow_the_distribution(void) {
    enum { DRAWS = 20000, FEW = 6 };
    const double logits[FEW] = {0.0, 1.0, -1.0, 2.0, -INFINITY, 0.5};
    struct sampler sampler = {test_random_u64(), 0.7, 0, 1.0, FEW};
    uint32_t scratch[FEW], counts[FEW] = {0}, token;
    double sum = 0;
    for (uint32_t i = 0; i < DRAWS; i++) {
        struct sampler_text text = {i / 100, i % 7};
        CHECK_OK(sampler_draw(&sampler, &text, i % 100, logits, scratch, &token));
        counts[token]++;
    }
    for (uint32_t t = 0; t < FEW; t++) sum += exp(logits[t] / sampler.temperature);
    for (uint32_t t = 0; t < FEW; t++) {
        double p = exp(logits[t] / sampler.temperature) / sum;
        CHECK_NEAR(counts[t] / (double)DRAWS, p, 5 * sqrt(p * (1 - p) / DRAWS));
    }
    CHECK_EQ_UINT(counts[4], 0);
}

/* The fewest likeliest tokens that make a share of the top k, found by sorting. */
static uint32_t find_nucleus(const struct sampler *sampler, const double *logits, bool *inside) {
    uint32_t order[VOCAB], k = sampler->top_k == 0 ? VOCAB : sampler->top_k, count = 0;
    double sum = 0, so_far = 0;
    for (uint32_t t = 0; t < VOCAB; t++) {
        uint32_t before = 0;
        for (uint32_t other = 0; other < VOCAB; other++) before += precedes(logits, other, t);
        order[before] = t;
        inside[t] = false;
    }
    if (k > VOCAB) k = VOCAB;
    for (uint32_t i = 0; i < k; i++) sum += exp(logits[order[i]] / sampler->temperature);
    while (count < k && so_far < sampler->top_p * sum) {
        so_far += exp(logits[order[count]] / sampler->temperature);
        inside[order[count++]] = true;
    }
    return count;
}

static void test_the_likeliest_that_make_p_are_drawn_from(void) {
    uint32_t scratch[VOCAB], token, seen_all = 0;
    for (int i = 0; i < 60 && !test_has_failed(); i++) {
        struct sampler sampler = {test_random_u64(), 0.5 + test_random_unit(),
                                  (uint32_t)test_random_below(VOCAB),
                                  0.05 + 0.9 * test_random_unit(), VOCAB};
        double logits[VOCAB];
        bool inside[VOCAB], seen[VOCAB] = {false};
        draw_logits(logits, VOCAB, 9);
        uint32_t count = find_nucleus(&sampler, logits, inside), found = 0;
        for (uint32_t n = 0; n < 2000 && !test_has_failed(); n++) {
            struct sampler_text text = {n, (uint32_t)i};
            CHECK_OK(sampler_draw(&sampler, &text, n, logits, scratch, &token));
            if (!inside[token]) TEST_FAIL("token %u of %u, p %.17g", token, count, sampler.top_p);
            found += !seen[token];
            seen[token] = true;
        }
        seen_all += found == count;
        sampler.top_p = 1e-9; /* one is always left */
        CHECK_OK(sampler_draw(&sampler, &(struct sampler_text){0}, 0, logits, scratch, &token));
        for (uint32_t t = 0; t < VOCAB; t++) CHECK(!precedes(logits, t, token));
    }
    CHECK(seen_all > 50); /* rare ones may be missed, nothing else */
}

static void test_logits_without_a_largest_are_refused(void) {
    double logits[3] = {0, NAN, 1};
    uint32_t scratch[3], token;
    struct sampler sampler = {1, 1.0, 0, 1.0, 3};
    struct sampler_text text = {0};
    CHECK_STATUS(sampler_draw(&sampler, &text, 0, logits, scratch, &token), WEIR_ERR_NONFINITE);
    logits[1] = INFINITY;
    CHECK_STATUS(sampler_draw(&sampler, &text, 0, logits, scratch, &token), WEIR_ERR_NONFINITE);
    for (int i = 0; i < 3; i++) logits[i] = -INFINITY;
    CHECK_STATUS(sampler_draw(&sampler, &text, 0, logits, scratch, &token), WEIR_ERR_NONFINITE);
    logits[1] = -1e300;
    sampler.temperature = 1e-300; /* quotients overflow, and the only one left is drawn */
    CHECK_OK(sampler_draw(&sampler, &text, 0, logits, scratch, &token));
    CHECK_EQ_UINT(token, 1);
}

WEIR_TEST_SUITE(sampler, TEST(what_is_left_is_what_transformers_leaves),
                TEST(tokens_of_no_vocabulary_are_penalized_as_none),
                TEST(the_largest_k_are_drawn_from_and_the_first_of_equals),
                TEST(draws_follow_the_distribution), TEST(the_likeliest_that_make_p_are_drawn_from),
                TEST(logits_without_a_largest_are_refused))
