/* SPDX-License-Identifier: MIT */
/*
 * Goal: models as data: what weir_model_add and shape inference accept, refuse and say.
 * Method: small lists, each with one thing wrong, and lists whose facts are known.
 */
#include "harness.h"
#include "net/net_trial.h"

#include "net/compile/compile.h"

#include <string.h>

static const struct weir_tensor row4 = {.dtype = WEIR_F32, .rank = 1, .shape = {4}};
static const struct weir_tensor label = {.dtype = WEIR_I64};
static const struct weir_tensor tokens3 = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};

static void expect_fault(const struct weir_faults *faults, const char *part) {
    for (uint32_t i = 0; i < faults->kept; i++)
        if (strstr(faults->lines[i], part) != NULL) return;
    TEST_FAIL("no fault says '%s'", part);
    for (uint32_t i = 0; i < faults->kept; i++) TEST_FAIL("fault: %s", faults->lines[i]);
}

static void expect_add_refused(const char *type, const char *name, struct weir_attrs attrs,
                               int status, const char *part) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    struct weir_faults faults = WEIR_FAULTS_INIT;
    EXPECT_STATUS(weir_model_add(model, type, name, attrs, &faults), status);
    expect_fault(&faults, part);
    EXPECT_EQ_UINT(weir_model_layer_count(model), 0);
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

static void test_bad_attributes_are_refused(void) {
    struct weir_attr out = WEIR_ATTR_INT("out_features", 3);
    expect_add_refused("conv9d", NULL, WEIR_NO_ATTRS, WEIR_ERR_ARGUMENT,
                       "no type 'conv9d': did you mean 'conv2d'?");
    expect_add_refused("lstm", NULL, WEIR_NO_ATTRS, WEIR_ERR_ARGUMENT,
                       "no type 'lstm'; types are: linear embedding");
    expect_add_refused("block", NULL, WEIR_NO_ATTRS, WEIR_ERR_ARGUMENT,
                       "a block stands in files only: add its layers");
    expect_add_refused("linear", NULL, WEIR_NO_ATTRS, WEIR_ERR_ARGUMENT,
                       "layer 0 (linear): out_features is missing");
    expect_add_refused("linear", NULL, WEIR_ATTRS(out, WEIR_ATTR_INT("wide", 1)), WEIR_ERR_ARGUMENT,
                       "no attribute 'wide'; it takes: out_features, bias");
    expect_add_refused("linear", NULL, WEIR_ATTRS(out, WEIR_ATTR_INT("biass", 1)),
                       WEIR_ERR_ARGUMENT, "no attribute 'biass': did you mean 'bias'? It takes: ");
    expect_add_refused("linear", NULL, WEIR_ATTRS(out, out), WEIR_ERR_ARGUMENT,
                       "out_features is given twice");
    expect_add_refused("linear", NULL, WEIR_ATTRS(WEIR_ATTR_INT("out_features", 0)),
                       WEIR_ERR_ARGUMENT, "out_features is 0, but must be from 1");
    expect_add_refused("linear", NULL, WEIR_ATTRS(WEIR_ATTR_TEXT("out_features", "3")),
                       WEIR_ERR_ARGUMENT, "out_features must be a whole number, not a text");
    expect_add_refused("dropout", NULL, WEIR_ATTRS(WEIR_ATTR_REAL("p", 1)), WEIR_ERR_ARGUMENT,
                       "p is 1, but must be from 0 to below 1");
    expect_add_refused("gelu", NULL, WEIR_ATTRS(WEIR_ATTR_TEXT("approximate", "tan")),
                       WEIR_ERR_ARGUMENT, "approximate is 'tan', but must be one of none|tanh");
    expect_add_refused("relu", "12", WEIR_NO_ATTRS, WEIR_ERR_ARGUMENT, "is a number");
}

static void test_several_bad_attributes_are_all_listed(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    struct weir_faults faults = WEIR_FAULTS_INIT;
    EXPECT_STATUS(weir_model_add(model, "linear", NULL,
                                 WEIR_ATTRS(WEIR_ATTR_INT("bias", 1), WEIR_ATTR_INT("a", 1)),
                                 &faults),
                  WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(&faults, "bias must be true or false, not a whole number", "no attribute 'a'",
                  "out_features is missing");
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

static void test_a_bad_model_is_refused(void) {
    struct weir_model *model;
    struct weir_tensor bad = {.dtype = WEIR_F32, .rank = 1, .shape = {0}};
    EXPECT_STATUS(weir_model_new(test_allocator(), &bad, &label, "mse", &model), WEIR_ERR_SHAPE);
    EXPECT_STATUS(weir_model_new(test_allocator(), &row4, &label, "hinge", &model), WEIR_ERR_LOSS);
    EXPECT_STATUS(weir_model_new(test_allocator(), &row4, NULL, "mse", &model), WEIR_ERR_LOSS);
    EXPECT_CONTAINS(weir_status_text(WEIR_ERR_LOSS), "take cross_entropy, bce_with_logits, mse");
    weir_model_destroy(NULL);
}

// PI-4
static void test_a_layer_added_twice_is_refused(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_attrs attrs = WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4));
    EXPECT_STATUS(weir_model_add(model, "linear", "fc", attrs, &faults), WEIR_OK);
    EXPECT_STATUS(weir_model_add(model, "linear", "fc", attrs, &faults), WEIR_ERR_EXISTS);
    expect_fault(&faults, "the name 'fc' is layer 0's already");
    EXPECT_EQ_UINT(weir_model_layer_count(model), 1);
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

// PI-6
static void test_layers_can_be_counted_listed_and_indexed(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    EXPECT_EQ_UINT(weir_model_layer_count(model), 0);
    char key[16] = "p";
    trial_add(model, "dropout", WEIR_ATTRS(WEIR_ATTR_INT(key, 0)));
    key[0] = 'x'; /* attributes are copied */
    EXPECT_STATUS(weir_model_add(model, "relu", "act", WEIR_NO_ATTRS, NULL), WEIR_OK);
    const char *type, *name;
    struct weir_attrs attrs;
    EXPECT_EQ_UINT(weir_model_layer_count(model), 2);
    CHECK_OK(weir_model_layer(model, 0, &type, &name, &attrs));
    EXPECT_EQ_STR(type, "dropout");
    EXPECT_EQ_STR(name, "");
    CHECK_EQ_UINT(attrs.count, 1);
    EXPECT_EQ_STR(attrs.list[0].key, "p");
    EXPECT_EQ_INT(attrs.list[0].kind, WEIR_ATTR_KIND_REAL);
    CHECK_OK(weir_model_layer(model, 1, &type, &name, &attrs));
    EXPECT_EQ_STR(name, "act");
    EXPECT_STATUS(weir_model_layer(model, 2, &type, &name, &attrs), WEIR_ERR_NOT_FOUND);
    for (uint32_t i = 0; weir_layer_type_at(i) != NULL; i++) EXPECT(i < 100);
    weir_model_destroy(model);
}

static void expect_infer_refused(struct weir_model *model, int status, const char *part) {
    struct weir_layer_facts facts[8];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, &faults), status);
    expect_fault(&faults, part);
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

static void test_shapes_that_do_not_fit_are_refused_with_the_layer(void) {
    struct weir_model *model = trial_model(tokens3, label, "cross_entropy");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4)));
    expect_infer_refused(model, WEIR_ERR_SHAPE,
                         "layer 0 (linear): linear takes floating-point numbers, but its input is "
                         "i64 [3]");
    model = trial_model((struct weir_tensor){.dtype = WEIR_F32}, label, "cross_entropy");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4)));
    expect_infer_refused(model, WEIR_ERR_SHAPE, "layer 0 (linear): linear works on the last");
    model = trial_model(row4, label, "cross_entropy");
    trial_add(model, "embedding",
              WEIR_ATTRS(WEIR_ATTR_INT("num_embeddings", 4), WEIR_ATTR_INT("embedding_dim", 4)));
    expect_infer_refused(model, WEIR_ERR_SHAPE, "layer 0 (embedding): embedding takes i64");
    model = trial_model(row4, label, "cross_entropy");
    trial_add_skip(model, "stash", "a", "");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 3)));
    trial_add_skip(model, "pop_add", "a", "");
    expect_infer_refused(model, WEIR_ERR_SHAPE,
                         "layer 2 (pop_add): add takes equal shapes, not f32 [3] and f32 [4]");
    model = trial_model(row4, tokens3, "cross_entropy");
    trial_add(model, "relu", WEIR_NO_ATTRS);
    expect_infer_refused(model, WEIR_ERR_SHAPE, "loss: cross_entropy takes an i64 target");
    model = trial_model(row4, label, "mse");
    trial_add(model, "relu", WEIR_NO_ATTRS);
    expect_infer_refused(model, WEIR_ERR_SHAPE, "loss: mse takes a target like the output");
}

/* PyTorch's lists repeat what follows from the input. */
static void test_sizes_of_the_input_may_be_repeated_and_must_be_right(void) {
    struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 8, 8}};
    struct weir_layer_facts facts[4];
    for (int64_t wrong = 0; wrong < 2; wrong++) {
        struct weir_model *model = trial_model(image, label, "cross_entropy");
        trial_add(model, "conv2d",
                  WEIR_ATTRS(WEIR_ATTR_INT("in_channels", 3 + wrong),
                             WEIR_ATTR_INT("out_channels", 4), WEIR_ATTR_INT("kernel_size", 3),
                             WEIR_ATTR_INT("dilation", 1),
                             WEIR_ATTR_TEXT("padding_mode", "zeros")));
        trial_add(model, "instance_norm2d", WEIR_ATTRS(WEIR_ATTR_INT("num_features", 4 + wrong)));
        trial_add(model, "linear",
                  WEIR_ATTRS(WEIR_ATTR_INT("in_features", 6), WEIR_ATTR_INT("out_features", 5)));
        trial_add(model, "layer_norm", WEIR_ATTRS(WEIR_ATTR_INT("normalized_shape", 5 + wrong)));
        struct weir_faults faults = WEIR_FAULTS_INIT;
        int status = weir_model_infer(model, WEIR_F32, facts, &faults);
        expect_fault(&faults, wrong
                                  ? "layer 0 (conv2d): in_channels is 4, but its input has 3 (f32 "
                                    "[3, 8, 8]): leave it out, or give 3"
                                  : "loss: cross_entropy takes an i64 target");
        EXPECT_STATUS(status, WEIR_ERR_SHAPE);
        if (wrong) expect_fault(&faults, "num_features is 5, but its input has 4");
        if (wrong) expect_fault(&faults, "normalized_shape is 6, but its input has 5");
        weir_faults_clean_up(&faults);
        weir_model_destroy(model);
    }
}

static void expect_transposed_refused(struct weir_attrs attrs, const char *part) {
    struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 4, 4}};
    struct weir_model *model = trial_model(image, label, "cross_entropy");
    trial_add(model, "conv_transpose2d", attrs);
    expect_infer_refused(model, WEIR_ERR_SHAPE, part);
}

static void test_impossible_transposed_convolutions_are_refused(void) {
    struct weir_attr out = WEIR_ATTR_INT("out_channels", 4), size = WEIR_ATTR_INT("kernel_size", 2);
    struct weir_attr groups = WEIR_ATTR_INT("groups", 2);
    expect_transposed_refused(WEIR_ATTRS(out, size, groups),
                              "layer 0 (conv_transpose2d): conv_transpose2d's 2 groups must divide "
                              "its 3 input and 4 output channels");
    expect_transposed_refused(WEIR_ATTRS(WEIR_ATTR_INT("out_channels", 5), size, groups),
                              "groups must divide its 5 output channels");
    expect_transposed_refused(WEIR_ATTRS(out, size, WEIR_ATTR_PAIR("output_padding", 0, 1)),
                              "output_padding must be below its stride");
    expect_transposed_refused(WEIR_ATTRS(out, size, WEIR_ATTR_INT("padding", 3)),
                              "padding leaves no pixel of an input f32 [3, 4, 4]");
    expect_transposed_refused(WEIR_ATTRS(out, size, WEIR_ATTR_INT("in_channels", 5)),
                              "in_channels is 5, but its input has 3");
}

static void test_other_cases_of_pytorch_are_refused(void) {
    struct weir_attr out = WEIR_ATTR_INT("out_channels", 3), size = WEIR_ATTR_INT("kernel_size", 3);
    expect_add_refused("max_pool2d", NULL, WEIR_ATTRS(size, WEIR_ATTR_PAIR("dilation", 1, 2)),
                       WEIR_ERR_ARGUMENT, "dilation may only be 1: nothing else is offered");
    expect_add_refused("conv2d", NULL,
                       WEIR_ATTRS(out, size, WEIR_ATTR_TEXT("padding_mode", "reflect")),
                       WEIR_ERR_ARGUMENT, "padding_mode may only be zeros");
    expect_add_refused("max_pool2d", NULL, WEIR_ATTRS(size, WEIR_ATTR_FLAG("ceil_mode", 1)),
                       WEIR_ERR_ARGUMENT, "ceil_mode may only be false");
}

static void test_two_unnamed_layers_with_one_parameter_name_are_refused(void) {
    struct weir_model *model = trial_model(tokens3, label, "cross_entropy");
    struct weir_attrs attrs = WEIR_ATTRS(WEIR_ATTR_INT("width", 4), WEIR_ATTR_INT("vocab", 4));
    trial_add(model, "embedding",
              WEIR_ATTRS(WEIR_ATTR_INT("num_embeddings", 4), WEIR_ATTR_INT("embedding_dim", 4)));
    trial_add(model, "gpt_head", attrs);
    trial_add(model, "gpt_head", attrs);
    expect_infer_refused(model, WEIR_ERR_EXISTS,
                         "layer 2 (gpt_head): its parameter 'ln_f.weight' exists already, in layer "
                         "1 (gpt_head)");
}

static void test_facts_of_known_layers(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 6)));
    trial_add(model, "relu", WEIR_NO_ATTRS);
    trial_add(model, "linear",
              WEIR_ATTRS(WEIR_ATTR_INT("out_features", 3), WEIR_ATTR_FLAG("bias", false)));
    struct weir_layer_facts facts[3];
    CHECK_OK(weir_model_infer(model, WEIR_F32, facts, NULL));
    EXPECT_EQ_UINT(facts[0].parameters, 30);
    EXPECT_EQ_UINT(facts[0].flops, 2 * 4 * 6);
    EXPECT_EQ_UINT(facts[0].activation_bytes, 4 * sizeof(float)); /* its input */
    EXPECT_EQ_INT(facts[0].output.shape[0], 6);
    EXPECT_EQ_UINT(facts[1].parameters, 0);
    EXPECT_EQ_UINT(facts[1].activation_bytes, 6 * sizeof(float)); /* its output */
    EXPECT_EQ_UINT(facts[2].parameters, 18);
    weir_model_destroy(model);
}

static void test_gpt2_has_its_published_number_of_parameters(void) {
    static const struct {
        struct weir_gpt_options options;
        uint64_t parameters;
    } sizes[] = {{{12, 768, 12, 1024, 50257, true, 0.0}, 124439808},
                 {{24, 1024, 16, 1024, 50257, true, 0.0}, 354823168},
                 {{36, 1280, 20, 1024, 50257, true, 0.0}, 774030080},
                 {{48, 1600, 25, 1024, 50257, true, 0.0}, 1557611200},
                 /* 2 x 768 more before each of 24 sublayers, and at the end */
                 {{12, 768, 12, 1024, 50257, true, 0.0, 2}, 124439808 + 25 * 2 * 768}};
    static struct weir_layer_facts facts[50];
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++) {
        struct weir_model *model;
        CHECK_OK(weir_model_gpt(test_allocator(), &sizes[i].options, NULL, &model));
        uint32_t count = weir_model_layer_count(model);
        CHECK_EQ_UINT(count, sizes[i].options.layers + 2);
        CHECK_OK(weir_model_infer(model, WEIR_F32, facts, NULL));
        uint64_t sum = 0;
        for (uint32_t k = 0; k < count; k++) sum += facts[k].parameters;
        EXPECT_EQ_UINT(sum, sizes[i].parameters);
        EXPECT_EQ_INT(facts[count - 1].output.shape[1], 50257);
        weir_model_destroy(model);
    }
}

static void test_residuals_of_too_many_blocks_are_refused(void) {
    struct weir_gpt_options options = {63, 8, 2, 4, 5, false, 0.0, 1};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_model *model;
    static struct weir_layer_facts facts[65];
    CHECK_OK(weir_model_gpt(test_allocator(), &options, &faults, &model));
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, &faults), WEIR_OK);
    weir_model_destroy(model);
    options.layers = 64;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, &faults, &model), WEIR_ERR_ARGUMENT);
    expect_fault(&faults, "--residual-block 1 makes 64 blocks of 64 layers, but 63 are the most: "
                          "give --residual-block 2 or more");
    options.layers = 127;
    options.residual_block = 2;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, &faults, &model), WEIR_ERR_ARGUMENT);
    weir_faults_clean_up(&faults);
}

static void test_impossible_gpts_are_refused(void) {
    struct weir_gpt_options options = {0, 10, 3, 4, 5, false, 1.0};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_model *model;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, &faults, &model), WEIR_ERR_ARGUMENT);
    expect_fault(&faults, "--layers");
    expect_fault(&faults, "--width 10 is not a multiple of --heads 3");
    expect_fault(&faults, "--dropout is 1");
    weir_faults_clean_up(&faults);
}

/* ---- nets that are refused ---- */

static void expect_net_refused(const struct weir_model *model,
                               const struct weir_net_options *options, int status,
                               const char *part) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net;
    EXPECT_STATUS(weir_net_new(model, options, &faults, &net), status);
    expect_fault(&faults, part);
    weir_faults_clean_up(&faults);
}

// PI-3
static void test_partitions_that_do_not_fit_are_refused(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    for (int i = 0; i < 3; i++) trial_add(model, "relu", WEIR_NO_ATTRS);
    struct weir_net_options options = trial_options(2, 4, 1);
    options.balance = (uint32_t[]){1, 1};
    expect_net_refused(model, &options, WEIR_ERR_CONFIG,
                       "balance 1,1 adds up to 2 layers, but the model has 3: leave the balance "
                       "away for an automatic one (by estimated cost)");
    options.balance = (uint32_t[]){3, 0};
    expect_net_refused(model, &options, WEIR_ERR_CONFIG, "balance 3,0 gives a stage no layer");
    options.balance = NULL;
    options.stages = 4;
    expect_net_refused(model, &options, WEIR_ERR_CONFIG, "4 stages cannot be made of 3 layers");
    options.stages = 0;
    expect_net_refused(model, &options, WEIR_ERR_CONFIG, "0 stages are not possible");
    options.stages = 1;
    options.dtype = WEIR_BF16;
    options.reference = true;
    expect_net_refused(model, &options, WEIR_ERR_CONFIG,
                       "--dtype bf16: the reference kernels have f32 and f64 alone");
    options.size = 1;
    expect_net_refused(model, &options, WEIR_ERR_ARGUMENT, "WEIR_NET_OPTIONS_INIT");
    weir_model_destroy(model);
}

static void test_training_without_a_loss_is_refused(void) {
    struct weir_model *model;
    CHECK_OK(weir_model_new(test_allocator(), &row4, NULL, NULL, &model));
    trial_add(model, "relu", WEIR_NO_ATTRS);
    struct weir_net_options options = trial_options(1, 4, 1);
    expect_net_refused(model, &options, WEIR_ERR_CONFIG, "without target and loss");
    weir_model_destroy(model);
}

static void test_the_automatic_partition_follows_the_costs(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 64)));
    trial_add(model, "relu", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 64)));
    trial_add(model, "relu", WEIR_NO_ATTRS);
    uint32_t sizes[2];
    CHECK_OK(weir__partition_model(model, WEIR_F32, 2, NULL, sizes, NULL));
    EXPECT_EQ_UINT(sizes[0], 2);
    EXPECT_EQ_UINT(sizes[1], 2);
    weir_model_destroy(model);
}

/* ---- hashes ---- */

static struct weir_model *hashed_model(const char *type, const char *name,
                                       struct weir_attrs attrs) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    EXPECT_STATUS(weir_model_add(model, "identity", NULL, WEIR_NO_ATTRS, NULL), WEIR_OK);
    EXPECT_STATUS(weir_model_add(model, type, name, attrs, NULL), WEIR_OK);
    return model;
}

/* Which hashes of layer 1 differ from dropout's with p 0.5: 1 form, 2 numbers. */
static int differs(struct weir_model *model) {
    struct weir_model *other = hashed_model("dropout", NULL, WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.5)));
    struct weir_layer_hash a, b;
    EXPECT_STATUS(weir_model_hash(model, 1, &a), WEIR_OK);
    EXPECT_STATUS(weir_model_hash(other, 1, &b), WEIR_OK);
    EXPECT_STATUS(weir_model_hash(other, 3, &b), WEIR_ERR_NOT_FOUND);
    weir_model_destroy(model);
    weir_model_destroy(other);
    return (a.form != b.form) + 2 * (a.numbers != b.numbers);
}

static void test_hashes_tell_layers_apart(void) {
    EXPECT_EQ_INT(differs(hashed_model("dropout", NULL, WEIR_NO_ATTRS)), 0); /* PyTorch's default */
    struct weir_attr p = WEIR_ATTR_REAL("p", 0.5), frozen = WEIR_ATTR_FLAG("frozen", 1);
    EXPECT_EQ_INT(differs(hashed_model("dropout", NULL, WEIR_ATTRS(frozen, p))), 0);
    EXPECT_EQ_INT(differs(hashed_model("dropout", NULL, WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.25)))), 2);
    EXPECT_EQ_INT(differs(hashed_model("dropout", "d", WEIR_ATTRS(p))), 1);
    EXPECT_EQ_INT(differs(hashed_model("dropout2d", NULL, WEIR_ATTRS(p))), 1);
    EXPECT(differs(hashed_model("identity", NULL, WEIR_NO_ATTRS)) == 3);
}

static uint64_t conv_form(struct weir_attrs attrs) {
    struct weir_model *model = hashed_model("conv2d", NULL, attrs);
    struct weir_layer_hash hash = {0, 0};
    EXPECT_STATUS(weir_model_hash(model, 1, &hash), WEIR_OK);
    weir_model_destroy(model);
    return hash.form;
}

static void test_hashes_see_every_kind_of_attribute(void) {
    struct weir_attr out = WEIR_ATTR_INT("out_channels", 3), size = WEIR_ATTR_INT("kernel_size", 3);
    uint64_t form = conv_form(WEIR_ATTRS(out, size));
    EXPECT(form == conv_form(WEIR_ATTRS(WEIR_ATTR_PAIR("kernel_size", 3, 3), out)));
    EXPECT(form == conv_form(WEIR_ATTRS(out, size, WEIR_ATTR_INT("padding", 0))));
    EXPECT(form == conv_form(WEIR_ATTRS(out, size, WEIR_ATTR_FLAG("bias", 1))));
    EXPECT(form == conv_form(WEIR_ATTRS(out, size, WEIR_ATTR_INT("in_channels", 7))));
    EXPECT(form == conv_form(WEIR_ATTRS(out, size, WEIR_ATTR_INT("dilation", 1))));
    EXPECT(form != conv_form(WEIR_ATTRS(out, size, WEIR_ATTR_PAIR("dilation", 1, 2))));
    EXPECT(form != conv_form(WEIR_ATTRS(out, WEIR_ATTR_PAIR("kernel_size", 3, 1))));
    EXPECT(form != conv_form(WEIR_ATTRS(out, WEIR_ATTR_PAIR("kernel_size", 1, 3))));
    EXPECT(form != conv_form(WEIR_ATTRS(size, WEIR_ATTR_INT("out_channels", 4))));
    EXPECT(form != conv_form(WEIR_ATTRS(out, size, WEIR_ATTR_FLAG("bias", 0))));
    EXPECT(form != conv_form(WEIR_ATTRS(out, size, WEIR_ATTR_INT("padding", 1))));
}

/* Of files that are older than its `dilation` is: kept, they must go on being known. */
static void test_hashes_of_older_files_hold(void) {
    struct weir_attr out = WEIR_ATTR_INT("out_channels", 3), size = WEIR_ATTR_INT("kernel_size", 3);
    EXPECT_EQ_UINT(conv_form(WEIR_ATTRS(out, size)), UINT64_C(892444701789335764));
}

static void test_hash_of_the_border_sees_shapes_and_loss(void) {
    struct weir_model *models[] = {
        trial_model(row4, label, "cross_entropy"), trial_model(row4, label, "cross_entropy"),
        trial_model(row4, row4, "mse"), trial_model(row4, row4, "bce_with_logits"),
        trial_model(tokens3, label, "cross_entropy")};
    struct weir_layer_hash hashes[5];
    weir_model_ignore_index(models[1], 3);
    EXPECT_EQ_INT(weir_model_ignored(models[0]), -100);
    EXPECT_EQ_INT(weir_model_ignored(models[1]), 3);
    for (int i = 0; i < 5; i++) {
        EXPECT_STATUS(weir_model_hash(models[i], 0, &hashes[i]), WEIR_OK);
        weir_model_destroy(models[i]);
        for (int k = 0; k < i; k++)
            EXPECT((hashes[i].form == hashes[k].form) == (i == 1 && k == 0));
    }
    EXPECT(hashes[0].numbers != hashes[1].numbers && hashes[0].numbers == hashes[2].numbers);
}

WEIR_TEST_SUITE(
    model, TEST(bad_attributes_are_refused), TEST(several_bad_attributes_are_all_listed),
    TEST(a_bad_model_is_refused), TEST(a_layer_added_twice_is_refused),
    TEST(layers_can_be_counted_listed_and_indexed),
    TEST(shapes_that_do_not_fit_are_refused_with_the_layer),
    TEST(sizes_of_the_input_may_be_repeated_and_must_be_right),
    TEST(impossible_transposed_convolutions_are_refused), TEST(other_cases_of_pytorch_are_refused),
    TEST(two_unnamed_layers_with_one_parameter_name_are_refused), TEST(facts_of_known_layers),
    TEST(gpt2_has_its_published_number_of_parameters), TEST(impossible_gpts_are_refused),
    TEST(residuals_of_too_many_blocks_are_refused), TEST(partitions_that_do_not_fit_are_refused),
    TEST(training_without_a_loss_is_refused), TEST(the_automatic_partition_follows_the_costs),
    TEST(hashes_tell_layers_apart), TEST(hashes_see_every_kind_of_attribute),
    TEST(hashes_of_older_files_hold), TEST(hash_of_the_border_sees_shapes_and_loss))
