/* SPDX-License-Identifier: MIT */
/*
 * Goal: upstream's memory experiments are accepted with their published balances, and fit where
 * they did. Method: plans alone, of torchgpipe's unet-memory and amoebanetd-memory (docs/models.md
 * has their totals beside the published ones): parameters and what belongs to them are exact, and
 * without what a CPU keeps packed a worker is within a Tesla P40's 22 GiB. RMSprop's squares are as
 * many bytes as SGD's momentum.
 */
#include "base/base.h"
#include "harness.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include <string.h>

#define WORKERS_MAX 8
#define DEVICE_BYTES (UINT64_C(22) << 30)

struct experiment {
    uint32_t size, width; /* (B, C), or (L, D) */
    uint32_t workers, balance[WORKERS_MAX];
    uint64_t parameters;
};

static void check(const struct experiment *experiment, const struct weir_model *model, int64_t rows,
                  double momentum) {
    struct weir_net_options options = trial_options(experiment->workers, rows, 128);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_plan *plan = NULL;
    uint64_t parameters = 0, gradients = 0, squares = 0, bytes = 4 * experiment->parameters;
    options.dtype = WEIR_F32;
    options.balance = experiment->balance;
    options.pipe.schedule = "gpipe";
    options.pipe.checkpoint = WEIR_CHECKPOINT_EXCEPT_LAST;
    options.optimizer =
        (struct weir_optimizer){.kind = WEIR_OPTIMIZER_SGD, .lr = 0.1, .momentum = momentum};
    if (!EXPECT_STATUS(weir_net_plan(model, &options, &faults, &plan), WEIR_OK)) return;
    EXPECT_EQ_UINT(plan->device_count, experiment->workers);
    for (uint32_t w = 0; w < plan->device_count; w++) {
        const struct weir_device_plan *device = &plan->devices[w];
        parameters += device->parameters;
        gradients += device->gradients;
        squares += device->optimizer;
        EXPECT(device->total - device->workspace <= DEVICE_BYTES);
    }
    /* Arrays begin at whole lines, and statistics and their moments are beside them. */
    EXPECT(parameters >= bytes && parameters <= bytes + bytes / 25);
    EXPECT(gradients >= bytes && gradients <= bytes + bytes / 25);
    if (momentum > 0) EXPECT(squares >= bytes && squares <= bytes + bytes / 1000);
    if (momentum == 0) EXPECT_EQ_UINT(squares, 0);
    weir_plan_destroy(plan);
    weir_faults_clean_up(&faults);
}

static void test_unets_are_planned_with_their_published_balances(void) {
    static const struct experiment experiments[] = {
        {11, 128, 1, {505}, UINT64_C(2213834176)},
        {24, 128, 2, {526, 551}, UINT64_C(4993859008)},
        {24, 160, 4, {472, 54, 36, 515}, UINT64_C(7802903600)},
        {48, 160, 8, {800, 140, 62, 36, 36, 36, 36, 987}, UINT64_C(15822206000)}};
    for (size_t i = 0; i < WEIR__COUNT_OF(experiments) && !test_has_failed(); i++) {
        struct weir_unet_options options = WEIR_UNET_OPTIONS_INIT;
        struct weir_model *model = NULL;
        options.num_convs = experiments[i].size;
        options.base_channels = experiments[i].width;
        CHECK_OK(weir_model_unet(test_allocator(), &options, NULL, &model));
        check(&experiments[i], model, 32, 0);
        weir_model_destroy(model);
    }
}

static void test_amoebanets_are_planned_with_their_published_balances(void) {
    static const struct experiment experiments[] = {
        {18, 416, 1, {24}, 319024120},
        {18, 544, 2, {16, 8}, 542734840},
        {36, 544, 4, {16, 12, 7, 7}, 1055832376},
        {72, 512, 8, {23, 16, 11, 6, 6, 5, 5, 6}, 1844858344}};
    for (size_t i = 0; i < WEIR__COUNT_OF(experiments) && !test_has_failed(); i++) {
        struct weir_amoebanet_options options = WEIR_AMOEBANET_OPTIONS_INIT;
        struct weir_model *model = NULL;
        options.layers = experiments[i].size;
        options.filters = experiments[i].width;
        CHECK_OK(weir_model_amoebanetd(test_allocator(), &options, NULL, &model));
        check(&experiments[i], model, 128, 0.9);
        weir_model_destroy(model);
    }
}

static void test_other_sums_of_layers_are_refused(void) {
    static const uint32_t balance[] = {526, 550};
    struct weir_unet_options options = WEIR_UNET_OPTIONS_INIT;
    struct weir_net_options net = trial_options(2, 32, 32);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_model *model = NULL;
    struct weir_plan *plan = NULL;
    options.num_convs = 24;
    options.base_channels = 128;
    CHECK_OK(weir_model_unet(test_allocator(), &options, NULL, &model));
    net.balance = balance;
    EXPECT_STATUS(weir_net_plan(model, &net, &faults, &plan), WEIR_ERR_CONFIG);
    EXPECT(faults.kept > 0 && strstr(faults.lines[0], "1077") != NULL);
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(upstream_memory, TEST(unets_are_planned_with_their_published_balances),
                TEST(amoebanets_are_planned_with_their_published_balances),
                TEST(other_sums_of_layers_are_refused))
