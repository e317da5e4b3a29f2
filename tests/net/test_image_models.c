/* SPDX-License-Identifier: MIT */
/*
 * Goal: the built-in networks of images, whole, give the same bits however they are cut. Method:
 * loss, outputs, gradients and running numbers of a step, and of another one after two updates, of
 * ResNet-101, a small AmoebaNet-D and a small U-Net: of one stage that keeps everything, and of
 * random schedules, checkpoints and cuts into one to four stages.
 */
#include "base/base.h"
#include "harness.h"
#include "net/net_pipes.h"
#include "weir_models.h"

#include <stdio.h>

enum { ROWS = 4, CHUNKS = 2, CLASSES = 10, KINDS = 3, CASES_QUICK = 2, CASES_FULL = 8 };

static struct weir_model *resnet(void) {
    struct weir_resnet_options options = WEIR_RESNET_OPTIONS_INIT;
    struct weir_model *model = NULL;
    options.classes = CLASSES;
    options.height = options.width = 32;
    EXPECT_STATUS(weir_model_resnet101(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

static struct weir_model *model_of(int kind) {
    struct weir_unet_options unet = WEIR_UNET_OPTIONS_INIT;
    struct weir_amoebanet_options amoebanet = WEIR_AMOEBANET_OPTIONS_INIT;
    struct weir_model *model = NULL;
    if (kind == 0) return resnet();
    amoebanet.layers = 3;
    amoebanet.filters = 16;
    amoebanet.classes = CLASSES;
    unet.depth = 3;
    unet.num_convs = 2;
    unet.base_channels = 4;
    unet.height = unet.width = 35;
    int status = kind == 1 ? weir_model_amoebanetd(test_allocator(), &amoebanet, NULL, &model)
                           : weir_model_unet(test_allocator(), &unet, NULL, &model);
    EXPECT_STATUS(status, WEIR_OK);
    return model;
}

static struct weir_net_options random_options(uint32_t layers, bool descending,
                                              uint32_t balance[4]) {
    struct weir_net_options options =
        trial_options(1 + (uint32_t)test_random_below(4), ROWS, CHUNKS);
    options.dtype = WEIR_F32;
    options.optimizer = (struct weir_optimizer){.kind = WEIR_OPTIMIZER_SGD, .lr = 0.01};
    net_pipe_balance(layers, options.stages, balance);
    options.balance = balance;
    net_pipe_schedule(&options, descending);
    options.pipe.checkpoint = net_pipe_checkpoint();
    options.pipe.recompute_late = test_random_below(2) == 0;
    return options;
}

static void compare_pipelines(int kind, bool descending) {
    struct net_problem problem = {.model = model_of(kind), .classes = CLASSES, .labels = CLASSES};
    struct weir_net_options one = trial_options(1, ROWS, CHUNKS);
    struct trial_result whole[2] = {{0}}, cut[2] = {{0}};
    struct trial_data data;
    const char *loss;
    uint32_t balance[4];
    if (test_has_failed()) return;
    weir_model_border(problem.model, &problem.input, &problem.target, &loss);
    one.dtype = WEIR_F32;
    one.optimizer = (struct weir_optimizer){.kind = WEIR_OPTIMIZER_SGD, .lr = 0.01};
    one.pipe.schedule = descending ? "gpipe" : "1f1b";
    one.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    net_pipe_data(&problem, &one, &data);
    net_pipe_train(&problem, &one, &data, whole);
    for (size_t i = test_count(CASES_QUICK, CASES_FULL); i > 0 && !test_has_failed(); i--) {
        struct weir_net_options several =
            random_options(weir_model_layer_count(problem.model), descending, balance);
        net_pipe_train(&problem, &several, &data, cut);
        for (int r = 0; r < 2 && !test_has_failed(); r++) trial_result_compare(&whole[r], &cut[r]);
        if (test_has_failed())
            printf("  model %d: %u stages, %s, %s\n", kind, several.stages, several.pipe.schedule,
                   weir_checkpoint_name(several.pipe.checkpoint));
        for (int r = 0; r < 2; r++) trial_result_clean_up(&cut[r]);
    }
    for (int r = 0; r < 2; r++) trial_result_clean_up(&whole[r]);
    trial_data_clean_up(&data);
    weir_model_destroy(problem.model);
}

static void test_no_pipeline_is_in_the_bits(void) {
    for (int kind = 0; kind < KINDS && !test_has_failed(); kind++)
        compare_pipelines(kind, test_random_below(2) == 0);
}

WEIR_TEST_SUITE(image_models, TEST(no_pipeline_is_in_the_bits))
