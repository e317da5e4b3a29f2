/* SPDX-License-Identifier: MIT */
/*
 * Goal: packings are near the largest sum of live bytes, the same every time, and quick for many
 * blocks. Method: real models' plans, whose padding says how near; rhythms like those of a pipeline
 * and random blocks for the packer alone, whose results are checked for overlap.
 */
#include "harness.h"
#include "weir_models.h"

#include "pipe/memory/packing.h"

#include <stdlib.h>
#include <string.h>

/* ---- the packer alone ---- */

static void expect_apart(const struct weir__pack_item *items, uint32_t count, size_t bytes) {
    for (uint32_t i = 0; i < count && !test_has_failed(); i++) {
        EXPECT(items[i].offset + items[i].bytes <= bytes);
        for (uint32_t k = 0; k < i; k++) {
            bool together = items[i].start < items[k].end && items[k].start < items[i].end;
            bool shared = items[i].offset < items[k].offset + items[k].bytes &&
                          items[k].offset < items[i].offset + items[i].bytes;
            EXPECT(!together || !shared);
        }
    }
}

static void fill_random(struct weir__pack_item *items, uint32_t count, uint32_t moments) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t start = (uint32_t)test_random_below(moments);
        items[i] = (struct weir__pack_item){64 * (1 + (size_t)test_random_below(50)), start,
                                            start + 1 + 0.5 * (double)test_random_below(20),
                                            (uint32_t)test_random_below(3), SIZE_MAX};
    }
}

static void test_random_blocks_never_overlap(void) {
    for (int k = 0; k < 60 && !test_has_failed(); k++) {
        struct weir__pack_options options = {.allocator = test_allocator(), .search = true};
        struct weir__pack_item items[400], again[400];
        uint32_t count = 1 + (uint32_t)test_random_below(400);
        size_t bytes, bound, bytes_again;
        fill_random(items, count, 1 + (uint32_t)test_random_below(count));
        memcpy(again, items, sizeof items);
        CHECK_OK(weir__packing_run(items, count, &options, &bytes, &bound));
        expect_apart(items, count, bytes);
        CHECK(bound <= bytes && 10 * bytes <= 13 * bound);
        CHECK_OK(weir__packing_run(again, count, &options, &bytes_again, &bound));
        CHECK_EQ_UINT(bytes, bytes_again);
        for (uint32_t i = 0; i < count; i++) CHECK_EQ_UINT(items[i].offset, again[i].offset);
    }
}

/* A rhythm of unequal areas, as of two stages in turn on one worker: long lives of one size while
 * short ones of another come and go between them. */
static void test_a_rhythm_of_two_sizes_packs_well(void) {
    enum { ROUNDS = 3000 };
    struct weir__pack_item *items = malloc(2 * ROUNDS * sizeof *items);
    struct weir__pack_options options = {.allocator = test_allocator()};
    size_t bytes, bound;
    CHECK(items != NULL);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        items[2 * i] = (struct weir__pack_item){84 * 64, 6.0 * i, 6.0 * i + 9.0, 0, 0};
        items[2 * i + 1] = (struct weir__pack_item){87 * 64, 6.0 * i + 3.0, 6.0 * i + 6.0, 0, 0};
    }
    CHECK_OK(weir__packing_run(items, 2 * ROUNDS, &options, &bytes, &bound));
    expect_apart(items, 2 * 50, bytes);
    CHECK_EQ_UINT(bound, (84 + 87) * 64);
    CHECK(100 * bytes <= 103 * bound);
    free(items);
}

static void test_a_target_is_worth_more_work(void) {
    bool helped = false;
    for (int k = 0; k < 40; k++) {
        struct weir__pack_item items[60];
        struct weir__pack_options options = {.allocator = test_allocator(), .search = true};
        size_t without, bound, with;
        fill_random(items, 60, 30);
        CHECK_OK(weir__packing_run(items, 60, &options, &without, &bound));
        options.fit = bound;
        CHECK_OK(weir__packing_run(items, 60, &options, &with, &bound));
        CHECK(with <= without);
        helped |= with < without;
    }
    CHECK(helped);
}

static void test_packing_survives_failing_allocations(void) {
    struct weir__pack_options options = {.allocator = test_allocator(), .search = true};
    struct weir__pack_item items[200];
    int status = WEIR_ERR_OUT_OF_MEMORY;
    size_t bytes, bound;
    fill_random(items, 200, 60);
    for (uint64_t k = 1; status == WEIR_ERR_OUT_OF_MEMORY; k++) {
        test_allocator_fail_at(k, false);
        status = weir__packing_run(items, 200, &options, &bytes, &bound);
    }
    test_allocator_fail_at(0, false);
    CHECK_OK(status);
    expect_apart(items, 200, bytes);
}

/* ---- models ---- */

static struct weir_model *make_model(int which) {
    struct weir_gpt_options gpt = WEIR_GPT_OPTIONS_INIT;
    struct weir_unet_options unet = WEIR_UNET_OPTIONS_INIT;
    struct weir_model *model = NULL;
    if (which == 1) gpt.layers = 12, gpt.width = 768, gpt.context = 1024, gpt.vocab = 50257;
    if (which == 0) gpt.layers = 8;
    int status = which < 2 ? weir_model_gpt(test_allocator(), &gpt, NULL, &model)
                           : weir_model_unet(test_allocator(), &unet, NULL, &model);
    return EXPECT_STATUS(status, WEIR_OK) ? model : NULL;
}

/* The largest part of a device's bytes beyond those in use at its peak, of one plan; -1 where the
 * schedule does not have it. */
static double worst_padding(const struct weir_model *model, const char *schedule, uint32_t stages,
                            uint32_t workers, uint32_t chunks, int checkpoint) {
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_plan *plan;
    options.stages = stages;
    options.pipe.allocator = test_allocator();
    options.pipe.workers = workers, options.pipe.chunks = chunks, options.pipe.rows = chunks;
    options.pipe.schedule = schedule, options.pipe.bind = "none";
    options.pipe.threads_per_worker = 1;
    options.pipe.checkpoint = (enum weir_checkpoint)(WEIR_CHECKPOINT_ALWAYS + checkpoint);
    int status = weir_net_plan(model, &options, NULL, &plan);
    if (status == WEIR_ERR_ARGUMENT) return -1.0;
    if (!EXPECT_STATUS(status, WEIR_OK)) return -1.0;
    double worst = 0.0;
    for (uint32_t d = 0; d < plan->device_count; d++) {
        const struct weir_device_plan *device = &plan->devices[d];
        double part = (double)device->padding / (double)(device->total - device->padding);
        if (part > worst) worst = part;
    }
    weir_plan_destroy(plan);
    return worst;
}

/* In depth of all combinations; otherwise of all chunks and all modes, but not of all pairs. */
static void expect_near(const struct weir_model *model, int which, const char *schedule,
                        uint32_t workers, uint32_t per_worker) {
    static const uint32_t chunks[] = {3, 8, 32};
    int shift = (int)test_random_below(3);
    for (int c = 0; c < (int)(sizeof chunks / sizeof chunks[0]); c++) {
        for (int checkpoint = 0; checkpoint < 3; checkpoint++) {
            if (!test_is_full() && checkpoint != (c + shift) % 3) continue;
            double part = worst_padding(model, schedule, workers * per_worker, workers, chunks[c],
                                        checkpoint);
            if (part > 0.03)
                TEST_FAIL("model %d, %s, %u workers of %u stages, %u chunks, checkpoint %d: %.4f",
                          which, schedule, workers, per_worker, chunks[c], checkpoint, part);
        }
    }
}

static void test_plans_of_models_are_within_3_percent(void) {
    for (int which = 0; which < 3; which++) {
        struct weir_model *model = make_model(which);
        CHECK(model != NULL);
        for (uint32_t i = 0; weir_schedule_name(i) != NULL; i++)
            for (uint32_t workers = 2; workers <= 4; workers += 2)
                for (uint32_t per_worker = 1; per_worker <= 2; per_worker++)
                    expect_near(model, which, weir_schedule_name(i), workers, per_worker);
        weir_model_destroy(model);
        CHECK_HELPERS();
    }
}

WEIR_TEST_SUITE(packing, TEST(random_blocks_never_overlap), TEST(a_rhythm_of_two_sizes_packs_well),
                TEST(a_target_is_worth_more_work), TEST(packing_survives_failing_allocations),
                TEST(plans_of_models_are_within_3_percent))
