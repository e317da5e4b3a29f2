/* SPDX-License-Identifier: MIT */
/*
 * Goal: what is trained has the same bits on every machine: of levels v3, v4 and neon, and others
 * of v2; in bf16 others again, and of v4-bf16 its own. Method: five updates of a small GPT, of
 * one that mixes residuals, and of a small U-Net, from a seed and from numbers that are counted,
 * not drawn; a digest of the loss and of all parameters, compared with the one that stands here, at
 * every level of our own kernels that runs here, over two pipelines.
 *
 * A change that is meant to change bits (a formula, an order of sums) changes the digests, and says
 * so in CHANGELOG.md: checkpoints go on with other bits then.
 */
#include "harness.h"
#include "base/base.h"
#include "net/cpu/level.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 4, UPDATES = 5, CONTEXT = 24, VOCABULARY = 61, SIDE = 18 };

enum bits { FUSED, PLAIN, PAIRS, BITS };

struct digests {
    const char *name;
    struct weir_model *(*model)(void);
    enum weir_dtype dtype;
    const char *is[BITS];
};

static struct weir_model *gpt_of(uint32_t residual_block) {
    struct weir_gpt_options options = WEIR_GPT_OPTIONS_INIT;
    struct weir_model *model = NULL;
    options.layers = 2;
    options.width = 40;
    options.heads = 2;
    options.context = CONTEXT;
    options.vocab = VOCABULARY;
    options.dropout = 0.1;
    options.residual_block = residual_block;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

static struct weir_model *gpt(void) {
    return gpt_of(0);
}

static struct weir_model *mixing_gpt(void) {
    return gpt_of(1);
}

static struct weir_model *unet(void) {
    struct weir_unet_options options = WEIR_UNET_OPTIONS_INIT;
    struct weir_model *model = NULL;
    options.depth = 2;
    options.num_convs = 1;
    options.base_channels = 20;
    options.height = options.width = SIDE;
    EXPECT_STATUS(weir_model_unet(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

static const struct digests models[] = {
    {"gpt", gpt, WEIR_F32, {"3f2248a374f4a2fa", "e52cff85185714a4"}},
    {"mixing gpt", mixing_gpt, WEIR_F32, {"d229a8afe2a087a6", "5ef08d9c1c86093c"}},
    {"unet", unet, WEIR_F32, {"552ae995f7243f69", "ca5b2235d6d08775"}},
    {"gpt", gpt, WEIR_BF16, {"71dbe17418b4b5a8", "0534f746ab95555a", "feedc40f866c2b08"}},
    {"mixing gpt",
     mixing_gpt,
     WEIR_BF16,
     {"ec438b9bec9a8a31", "fdf78c624079882a", "fd567d5629e85ebc"}},
    {"unet", unet, WEIR_BF16, {"11bf02dd0c9c7015", "bab1824298157afc", "11bf02dd0c9c7015"}},
};

/* ---- training ---- */

static struct weir_net *new_net(const struct weir_model *model, enum weir_dtype dtype,
                                const char *level, uint32_t stages) {
    struct weir_net_options options = trial_options(stages, ROWS, 2);
    options.dtype = dtype;
    options.level = level;
    options.pipe.threads_per_worker = stages;
    return trial_net(model, &options);
}

static void fill(void *numbers, enum weir_dtype dtype, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t mixed = (i + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 40;
        if (dtype == WEIR_I64)
            ((int64_t *)numbers)[i] = (int64_t)(mixed % VOCABULARY);
        else
            ((float *)numbers)[i] = (float)mixed * 0x1p-24f;
    }
}

static void add_parameters(const struct weir_net *net, uint64_t *digest) {
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        CHECK_OK(weir_net_parameter(net, i, &parameter));
        *digest = weir__hash(*digest, parameter.data, (size_t)parameter.count * sizeof(float));
    }
}

static uint64_t train(struct weir_net *net, int64_t input, int64_t target, enum weir_dtype in,
                      enum weir_dtype out) {
    static int64_t x[ROWS * 3 * SIDE * SIDE], t[ROWS * SIDE * SIDE];
    uint64_t digest = WEIR__HASH_BEGIN;
    fill(x, in, (size_t)(ROWS * input));
    fill(t, out, (size_t)(ROWS * target));
    for (int i = 0; i < UPDATES; i++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        struct weir_step_result result;
        batch.rows = ROWS;
        batch.input = x;
        batch.target = t;
        batch.lr = weir_lr(WEIR_LR_COSINE, 0.01, 0.1, (uint64_t)i, 2, UPDATES);
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
        digest = weir__hash(digest, &result.loss, sizeof result.loss);
    }
    add_parameters(net, &digest);
    return digest;
}

static enum bits bits_of(const struct weir__level *level, enum weir_dtype dtype) {
    const char *bits = dtype == WEIR_BF16 ? level->bits_bf16 : level->bits;
    if (strcmp(bits, "v4-bf16") == 0) return PAIRS;
    return strcmp(bits, level->name) == 0 ? PLAIN : FUSED;
}

static void expect_digest(const struct digests *of, const struct weir__level *level,
                          uint32_t stages) {
    char text[32];
    struct weir_model *model = of->model();
    struct weir_net *net = model == NULL ? NULL : new_net(model, of->dtype, level->name, stages);
    if (net != NULL) {
        bool images = of->model == unet;
        snprintf(text, sizeof text, "%016llx",
                 (unsigned long long)train(
                     net, images ? 3 * SIDE * SIDE : CONTEXT, images ? SIDE * SIDE : CONTEXT,
                     images ? WEIR_F32 : WEIR_I64, images ? WEIR_F32 : WEIR_I64));
        if (strcmp(text, of->is[bits_of(level, of->dtype)]) != 0)
            TEST_FAIL("%s in %s at level %s, %u stages: %s", of->name, weir_dtype_name(of->dtype),
                      level->name, stages, text);
    }
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static void test_trained_parameters_are_these_to_the_bit(void) {
    const struct weir__level *level;
    for (size_t m = 0; m < WEIR__COUNT_OF(models); m++)
        for (uint32_t i = 0; (level = weir__level_at(i)) != NULL; i++) {
            if (!weir__level_runs(level)) continue;
            expect_digest(&models[m], level, 1);
            expect_digest(&models[m], level, 2);
        }
}

WEIR_TEST_SUITE(digests, TEST(trained_parameters_are_these_to_the_bit))
