/* SPDX-License-Identifier: MIT */
/*
 * Goal: levels whose sums are fused give the same bits, whatever the registers' width, so that a
 * run may go on on another machine; those that are asked for by name are found or refused. Method:
 * every op on random shapes and the flat calls on random arrays at every level that runs here,
 * compared with the lowest one of the same `bits`.
 */
#include "harness.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

/** The next level of our own kernels from `*i` on that runs here; NULL after the last. */
static const struct weir__level *next(uint32_t *i) {
    const struct weir__level *level;
    while ((level = weir__level_at((*i)++)) != NULL)
        if (weir__level_runs(level)) return level;
    return NULL;
}

/** Levels of fused sums that run here. */
static uint32_t fused_levels(void) {
    uint32_t count = 0, i = 0;
    for (const struct weir__level *level; (level = next(&i)) != NULL;)
        count += strcmp(level->bits, kernel_level(KERNEL_VECTOR)->bits) == 0;
    return count;
}

static void test_fused_levels_give_the_same_bits(void) {
    static const enum kernel_backend backends[][2] = {{KERNEL_LEVEL_2, KERNEL_VECTOR},
                                                      {KERNEL_LEVEL_2_BF16, KERNEL_LEVEL_3_BF16}};
    if (fused_levels() < 2) SKIP("one level of fused sums runs here");
    for (uint32_t o = 0; o < 2 * WEIR__OP_COUNT; o++) {
        enum weir__op_code op = (enum weir__op_code)(o / 2);
        const enum kernel_backend *compared = backends[o % 2];
        if (kernel_is_the_users(op) || kernel_lacks_vector(op)) continue;
        for (int i = 0; i < 30 && !test_has_failed(); i++) {
            struct weir__op_shape shape = kernel_any_shape(op);
            struct kernel_case test;
            struct kernel_results low, high;
            kernel_case_init(&test, &shape);
            test.overwrite = i % 2 == 0;
            EXPECT_STATUS(kernel_run(&test, compared[0], 0, &low), WEIR_OK);
            EXPECT_STATUS(kernel_run(&test, compared[1], 0, &high), WEIR_OK);
            kernel_expect_same(&high, &low, "another level");
            kernel_results_clean_up(&low);
            kernel_results_clean_up(&high);
            kernel_case_clean_up(&test);
        }
    }
}

/* ---- flat arrays ---- */

enum { NUMBERS = 1000 };

struct flat_run {
    float parameters[NUMBERS], gradients[NUMBERS], first[NUMBERS], second[NUMBERS];
    double squares;
};

static void fill(float *numbers) {
    for (int i = 0; i < NUMBERS; i++) numbers[i] = (float)(test_random_unit() - 0.5);
}

/** Three updates by the optimizer and a sum, from the same numbers at each level. */
static void train(const struct weir__flat_calls *flat, const struct weir_optimizer *optimizer,
                  uint64_t count, struct flat_run *run) {
    const struct weir__span span = {.count = count, .decays = true};
    const struct weir__spans spans = {.list = &span, .count = 1};
    for (uint64_t number = 1; number <= 3; number++) {
        const struct weir__update update = {.optimizer = optimizer,
                                            .lr = 0.01,
                                            .number = number,
                                            .gradient_scale = 0.7,
                                            .parameters = run->parameters,
                                            .gradients = run->gradients,
                                            .first = run->first,
                                            .second = run->second};
        EXPECT_STATUS(flat->update[optimizer->kind](&spans, &update), WEIR_OK);
        EXPECT_STATUS(flat->accumulate(NULL, run->gradients, run->parameters, count), WEIR_OK);
    }
    EXPECT_STATUS(flat->squares(&spans, run->gradients, &run->squares, NULL), WEIR_OK);
}

static void test_fused_levels_update_alike(void) {
    static struct flat_run begin, low, high;
    const struct weir_optimizer optimizers[] = {WEIR_ADAMW_INIT, WEIR_SGD_INIT};
    if (fused_levels() < 2) SKIP("one level of fused sums runs here");
    for (int i = 0; i < 40 && !test_has_failed(); i++) {
        uint64_t count = 1 + test_random_below(NUMBERS);
        memset(&begin, 0, sizeof begin);
        fill(begin.parameters);
        fill(begin.gradients);
        low = high = begin;
        train(kernel_level(KERNEL_LEVEL_2)->flat, &optimizers[i % 2], count, &low);
        train(kernel_level(KERNEL_VECTOR)->flat, &optimizers[i % 2], count, &high);
        EXPECT_EQ_BYTES(&high, &low, sizeof low);
        EXPECT(memcmp(low.parameters, begin.parameters, sizeof low.parameters) != 0);
    }
}

/* ---- names ---- */

static void test_levels_are_found_by_name(void) {
    const struct weir__level *found, *level;
    for (uint32_t i = 0; (level = weir__level_at(i)) != NULL; i++) {
        if (!weir__level_runs(level)) continue;
        EXPECT_STATUS(weir__level_find(level->name, NULL, &found), WEIR_OK);
        EXPECT_EQ_PTR(found, level);
        setenv("WEIR_LEVEL", level->name, 1);
        EXPECT_STATUS(weir__level_find(NULL, NULL, &found), WEIR_OK);
        EXPECT_EQ_PTR(found, level);
    }
    unsetenv("WEIR_LEVEL");
    EXPECT_STATUS(weir__level_find(NULL, NULL, &found), WEIR_OK);
    for (uint32_t i = 0; (level = weir__level_at(i)) != NULL; i++)
        if (weir__level_runs(level)) EXPECT(found->x86 >= level->x86);
}

static void expect_refusal(const char *name, const char *text) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    const struct weir__level *level;
    faults.allocator = test_allocator();
    EXPECT_STATUS(weir__level_find(name, &faults, &level), WEIR_ERR_ARGUMENT);
    EXPECT_EQ_UINT(faults.count, 1);
    if (faults.kept == 1) EXPECT_CONTAINS(faults.lines[0], text);
    weir_faults_clean_up(&faults);
}

static void test_other_levels_are_refused(void) {
    const struct weir__level *level;
    expect_refusal("sse", "--level sse: there is no such level: give one of ");
    setenv("WEIR_LEVEL", "sse", 1);
    expect_refusal(NULL, "WEIR_LEVEL is sse: there is no such level");
    unsetenv("WEIR_LEVEL");
    for (uint32_t i = 0; (level = weir__level_at(i)) != NULL; i++)
        if (!weir__level_runs(level))
            expect_refusal(level->name, "this processor has not what it needs");
}

WEIR_TEST_SUITE(levels, TEST(fused_levels_give_the_same_bits), TEST(fused_levels_update_alike),
                TEST(levels_are_found_by_name), TEST(other_levels_are_refused))
