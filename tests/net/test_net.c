/* SPDX-License-Identifier: MIT */
/*
 * Goal: a net computes what its layers say, on one stage and on several.
 * Method: every layer type and composite runs through the whole machinery (compiler, plan, pipe) in
 * f64, once with split backwards; its gradients are compared with central differences of its loss.
 */
#include "harness.h"
#include "net/net_trial.h"

#include "base/base.h"

#include <math.h>
#include <string.h>

static const struct weir_tensor row8 = {.dtype = WEIR_F64, .rank = 1, .shape = {8}};
static const struct weir_tensor label = {.dtype = WEIR_I64};

static void check_model(struct weir_model *model, const struct weir_tensor *input,
                        const struct weir_tensor *target, int64_t classes, int64_t labels,
                        bool input_grads) {
    if (model == NULL || test_has_failed()) {
        weir_model_destroy(model);
        return;
    }
    struct trial_data data;
    trial_data_init(&data, input, target, WEIR_F64, 5, classes, labels);
    uint32_t layers = weir_model_layer_count(model);
    static char table[TRIAL_TABLE_BYTES];
    for (uint32_t k = 0; k < 4 && !test_has_failed(); k++) {
        uint32_t stages = 1 + k % 2;
        if (stages > layers) continue;
        struct weir_net_options options = trial_options(stages, 5, 2);
        options.input_grads = input_grads;
        if (k >= 2) trial_split(&options, 100, table);
        trial_check_gradients(model, &options, &data);
    }
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_linear_with_mse_has_true_gradients(void) {
    struct weir_tensor out = {.dtype = WEIR_F64, .rank = 1, .shape = {3}};
    struct weir_model *model = trial_model(row8, out, "mse");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4)));
    trial_add(model, "linear",
              WEIR_ATTRS(WEIR_ATTR_INT("out_features", 3), WEIR_ATTR_FLAG("bias", false)));
    check_model(model, &row8, &out, 0, 0, true);
}

static void test_pointwise_layers_have_true_gradients(void) {
    struct weir_model *model = trial_model(row8, label, "cross_entropy");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 6)));
    trial_add(model, "relu", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 6)));
    trial_add(model, "gelu", WEIR_NO_ATTRS);
    trial_add(model, "layer_norm", WEIR_NO_ATTRS);
    trial_add(model, "rms_norm", WEIR_ATTRS(WEIR_ATTR_REAL("eps", 1e-3)));
    trial_add(model, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.3)));
    trial_add(model, "gelu", WEIR_ATTRS(WEIR_ATTR_TEXT("approximate", "tanh")));
    trial_add(model, "identity", WEIR_NO_ATTRS);
    check_model(model, &row8, &label, 0, 6, true);
}

static void test_embedding_and_flatten_have_true_gradients(void) {
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};
    struct weir_model *model = trial_model(tokens, label, "cross_entropy");
    trial_add(model, "identity", WEIR_NO_ATTRS);
    trial_add(model, "embedding",
              WEIR_ATTRS(WEIR_ATTR_INT("num_embeddings", 5), WEIR_ATTR_INT("embedding_dim", 4)));
    trial_add(model, "flatten", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4)));
    check_model(model, &tokens, &label, 5, 4, false);
}

/** Layers without kinks; the others are in test_kernel_gradients.c. */
static void test_image_layers_have_true_gradients(void) {
    struct weir_tensor image = {.dtype = WEIR_F64, .rank = 3, .shape = {2, 5, 6}};
    struct weir_model *model = trial_model(image, label, "cross_entropy");
    trial_add(model, "conv2d",
              WEIR_ATTRS(WEIR_ATTR_INT("out_channels", 4), WEIR_ATTR_PAIR("kernel_size", 3, 2),
                         WEIR_ATTR_PAIR("padding", 1, 1), WEIR_ATTR_INT("groups", 2)));
    trial_add(model, "conv_transpose2d",
              WEIR_ATTRS(WEIR_ATTR_INT("out_channels", 4), WEIR_ATTR_PAIR("kernel_size", 3, 2),
                         WEIR_ATTR_PAIR("padding", 1, 0), WEIR_ATTR_PAIR("stride", 1, 2),
                         WEIR_ATTR_PAIR("output_padding", 0, 1), WEIR_ATTR_INT("groups", 2)));
    trial_add(model, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.2)));
    trial_add(model, "instance_norm2d", WEIR_ATTRS(WEIR_ATTR_FLAG("affine", true)));
    trial_add(model, "silu", WEIR_NO_ATTRS);
    trial_add(model, "avg_pool2d", WEIR_ATTRS(WEIR_ATTR_PAIR("kernel_size", 2, 2)));
    trial_add(model, "dropout2d", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.2)));
    trial_add(model, "instance_norm2d", WEIR_NO_ATTRS);
    trial_add(model, "flatten", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4)));
    check_model(model, &image, &label, 0, 4, true);
}

static void test_skips_have_true_gradients(void) {
    struct weir_model *model = trial_model(row8, label, "cross_entropy");
    trial_add_skip(model, "stash", "a", "");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 8)));
    trial_add_skip(model, "stash", "a", "inner");
    trial_add(model, "gelu", WEIR_NO_ATTRS);
    trial_add_skip(model, "read_add", "a", "");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 8)));
    trial_add_skip(model, "read_multiply", "a", "");
    trial_add_skip(model, "pop_multiply", "a", "inner");
    trial_add_skip(model, "pop_add", "a", "");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4)));
    check_model(model, &row8, &label, 0, 4, true);
}

static void check_gpt(bool tied, double dropout) {
    struct weir_gpt_options options = WEIR_GPT_OPTIONS_INIT;
    options.layers = 1, options.width = 4, options.heads = 2, options.context = 3;
    options.vocab = 5, options.tied = tied, options.dropout = dropout;
    struct weir_model *model = NULL;
    CHECK_OK(weir_model_gpt(test_allocator(), &options, NULL, &model));
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};
    struct trial_data data;
    trial_data_init(&data, &tokens, &tokens, WEIR_F64, 3, 5, 5);
    static char table[TRIAL_TABLE_BYTES];
    struct weir_net_options net_options = trial_options(3, 3, 2);
    trial_check_gradients(model, &net_options, &data);
    trial_split(&net_options, 100, table);
    trial_check_gradients(model, &net_options, &data);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_gpt_has_true_gradients(void) {
    check_gpt(false, 0.2);
}
static void test_tied_gpt_has_true_gradients(void) {
    check_gpt(true, 0);
}

WEIR_TEST_SUITE(net, TEST(linear_with_mse_has_true_gradients),
                TEST(pointwise_layers_have_true_gradients),
                TEST(embedding_and_flatten_have_true_gradients),
                TEST(image_layers_have_true_gradients), TEST(skips_have_true_gradients),
                TEST(gpt_has_true_gradients), TEST(tied_gpt_has_true_gradients))
