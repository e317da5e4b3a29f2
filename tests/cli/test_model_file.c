/* SPDX-License-Identifier: MIT */
/*
 * Goal: a model in a file is the same list that calls build, and a faulty file is told all its
 * faults at once. Method: texts parsed here; built-in models written by `weir describe` and read
 * back. What is malformed as JSON or hostile stands with the fixtures of all formats.
 */
#include "cli/cli.h"
#include "harness.h"
#include "net/compile/model_file.h"

#include <stdio.h>
#include <string.h>

static int read_text(const char *text, struct weir_faults *faults, struct weir_model **model) {
    *faults = (struct weir_faults)WEIR_FAULTS_INIT;
    *model = NULL;
    return weir__model_text_read(test_allocator(), text, strlen(text), "m.json", faults, model);
}

static const struct weir_attr *attribute(const struct weir_model *model, uint32_t layer,
                                         const char *key) {
    struct weir_attrs attrs = {0, NULL};
    EXPECT_STATUS(weir_model_layer(model, layer, NULL, NULL, &attrs), WEIR_OK);
    for (uint32_t i = 0; i < attrs.count; i++)
        if (strcmp(attrs.list[i].key, key) == 0) return &attrs.list[i];
    return NULL;
}

static void test_layers_attributes_names_and_the_border_are_read(void) {
    static const char text[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [3, 8, 6]},"
        " \"target\": {\"dtype\": \"i64\", \"shape\": []}, \"loss\": \"cross_entropy\","
        " \"ignore_index\": -1, \"layers\": ["
        "{\"type\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": [3, 1], \"bias\": false,"
        " \"stride\": null, \"padding\": [1, 0]},"
        "{\"type\": \"leaky_relu\", \"negative_slope\": 0.25, \"output_shape\": [1], \"flops\": 7},"
        "{\"type\": \"flatten\"},"
        "{\"type\": \"linear\", \"out_features\": 5, \"name\": \"head\", \"frozen\": true}]}";
    struct weir_faults faults;
    struct weir_model *model;
    struct weir_tensor input, target;
    const char *loss, *type, *name;
    CHECK_OK(read_text(text, &faults, &model));
    weir_model_border(model, &input, &target, &loss);
    EXPECT_EQ_STR(loss, "cross_entropy");
    EXPECT(input.dtype == WEIR_F32 && input.rank == 3 && input.shape[1] == 8);
    EXPECT(target.dtype == WEIR_I64 && target.rank == 0);
    EXPECT_EQ_UINT(weir_model_layer_count(model), 4);
    const struct weir_attr *kernel = attribute(model, 0, "kernel_size");
    CHECK(kernel != NULL);
    EXPECT(kernel->kind == WEIR_ATTR_KIND_PAIR && kernel->integer == 3 && kernel->second == 1);
    EXPECT(attribute(model, 0, "stride") == NULL);
    EXPECT_EQ_INT(attribute(model, 0, "bias")->integer, 0);
    EXPECT_NEAR(attribute(model, 1, "negative_slope")->real, 0.25, 0);
    EXPECT_STATUS(weir_model_layer(model, 3, &type, &name, NULL), WEIR_OK);
    EXPECT_EQ_STR(type, "linear");
    EXPECT_EQ_STR(name, "head");
    EXPECT_EQ_INT(attribute(model, 3, "frozen")->integer, 1);
    struct weir_layer_facts facts[4];
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, NULL), WEIR_OK);
    EXPECT_EQ_UINT(facts[0].output.shape[1], 8);
    EXPECT(facts[3].parameters == 5 * (4 * 8 * 6 + 1) && facts[3].trainable == 0);
    weir_model_destroy(model);
}

static void test_what_is_frozen_is_read(void) {
    struct weir_faults faults;
    struct weir_model *model;
    struct weir_layer_facts facts[2];
    CHECK_OK(read_text("{\"input\": {\"dtype\": \"f32\", \"shape\": [4]}, \"layers\": ["
                       "{\"type\": \"linear\", \"out_features\": 3},"
                       "{\"type\": \"linear\", \"out_features\": 2}],"
                       " \"freeze\": [\"0.*\", \"*.bias\"]}",
                       &faults, &model));
    EXPECT_EQ_STR(weir_model_freeze_pattern(model, 0), "0.*");
    EXPECT_EQ_STR(weir_model_freeze_pattern(model, 1), "*.bias");
    EXPECT(weir_model_freeze_pattern(model, 2) == NULL);
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, NULL), WEIR_OK);
    EXPECT_EQ_UINT(facts[0].trainable, 0);
    EXPECT_EQ_UINT(facts[1].trainable, 3 * 2);
    weir_model_destroy(model);
}

static void test_a_model_without_target_only_infers(void) {
    struct weir_faults faults;
    struct weir_model *model;
    struct weir_tensor input, target;
    const char *loss;
    CHECK_OK(read_text(
        "{\"input\": {\"dtype\": \"i64\", \"shape\": [4]}, \"layers\": [{\"type\": \"identity\"}],"
        " \"target\": null, \"loss\": null}",
        &faults, &model));
    weir_model_border(model, &input, &target, &loss);
    EXPECT(loss == NULL);
    weir_model_destroy(model);
}

static void expect_line(const struct weir_faults *faults, const char *line) {
    for (uint32_t i = 0; i < faults->kept; i++)
        if (strstr(faults->lines[i], line) != NULL) return;
    TEST_FAIL("no fault says '%s'", line);
}

static void test_only_cross_entropy_ignores_a_label(void) {
    struct weir_faults faults;
    struct weir_model *model = NULL;
    CHECK_STATUS(
        read_text("{\"input\": {\"dtype\": \"f32\", \"shape\": [4]}, \"target\": {\"dtype\": "
                  "\"f32\", \"shape\": [4]}, \"loss\": \"mse\", \"ignore_index\": -1, "
                  "\"layers\": [{\"type\": \"relu\"}]}",
                  &faults, &model),
        WEIR_ERR_ARGUMENT);
    expect_line(&faults,
                "ignore_index means nothing without the loss cross_entropy: leave it away");
    weir_faults_clean_up(&faults);
}

static void test_all_faults_of_a_file_are_listed(void) {
    static const char text[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [3, -1], \"size\": 1},"
        " \"target\": {\"dtype\": \"f16\", \"shape\": []}, \"loss\": \"cross_entrop\", \"extra\": "
        "1,"
        " \"ignore_index\": 0.5, \"layers\": ["
        "{\"type\": \"conv2d\", \"out_chanels\": 16, \"kernel_size\": 3.5, \"bias\": 1},"
        "{\"type\": \"linear\", \"out_features\": 0, \"name\": \"x\"},"
        "{\"type\": \"relu\", \"name\": \"x\"},"
        "{\"type\": \"stash\", \"skip\": \"a\"},"
        "{\"type\": \"max_pool2d\", \"kernel_size\": [2, 2, 2]},"
        "{\"type\": \"relu\", \"name\": 7},"
        "{\"type\": \"dropout\", \"p\": {}}]}";
    static const char *const lines[] = {
        "m.json: input has no member 'size': it takes dtype and shape",
        "m.json: input.shape[1] must be a whole number from 1 to",
        "m.json: target.dtype is f16, but must be f32 or i64",
        "m.json: no member 'extra'; a model has: input target layers loss ignore_index",
        "m.json: ignore_index must be a whole number",
        "layer 0 (conv2d): no attribute 'out_chanels': did you mean 'out_channels'? It takes: ",
        "layer 0 (conv2d): kernel_size must be a whole number or two",
        "layer 0 (conv2d): bias must be true or false",
        "layer 0 (conv2d): out_channels is missing",
        "layer 1 'x' (linear): out_features is 0, but must be from 1",
        "layer 2: the name 'x' is layer 1's already",
        "'a' is stashed",
        "layer 4 (max_pool2d): kernel_size must be a number, a text, true, false, or two whole",
        "layer 5 (relu): its name must be a text",
        "layer 6 (dropout): p must be a number",
    };
    struct weir_faults faults;
    struct weir_model *model;
    EXPECT_STATUS(read_text(text, &faults, &model), WEIR_ERR_ARGUMENT);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) expect_line(&faults, lines[i]);
    if (test_has_failed())
        for (uint32_t i = 0; i < faults.kept; i++) printf("  %s\n", faults.lines[i]);
    weir_faults_clean_up(&faults);
}

static void test_what_is_no_model_is_refused_with_the_reason(void) {
    static const struct {
        const char *text;
        int status;
        const char *message;
    } cases[] = {
        {"", WEIR_ERR_FORMAT, "m.json: line 1, column"},
        {"{\"input\": }", WEIR_ERR_FORMAT, "m.json: line 1, column"},
        {"[]", WEIR_ERR_ARGUMENT, "a model is an object with input, layers, target and loss"},
        {"{}", WEIR_ERR_ARGUMENT, "input must be an object like"},
        {"{\"layers\": {}}", WEIR_ERR_ARGUMENT, "layers must be a list of at most 65536 layers"},
        {"{\"layers\": [5]}", WEIR_ERR_ARGUMENT, "layer 0: it must be an object with a type"},
        {"{\"layers\": [{\"type\": \"conv\"}]}", WEIR_ERR_ARGUMENT,
         "layer 0: there is no type 'conv': did you mean 'conv2d'?"},
        {"{\"layers\": [{\"type\": \"transformer\"}]}", WEIR_ERR_ARGUMENT,
         "layer 0: there is no type 'transformer'; types are: linear"},
        {"{\"layers\": [{\"type\": \"nn.LayerNorm\"}, {\"type\": \"ReLU\"}]}", WEIR_ERR_ARGUMENT,
         "layer 1: there is no type 'ReLU': did you mean 'relu'?"},
        {"{\"layers\": [{\"type\": \"nn.LayerNorm\"}]}", WEIR_ERR_ARGUMENT,
         "layer 0: there is no type 'nn.LayerNorm': did you mean 'layer_norm'?"},
        {"{\"layers\": []}", WEIR_ERR_ARGUMENT, "m.json: layers is empty: give at least one"},
        {"FROM nvidia/cuda", WEIR_ERR_FORMAT, "a model file is JSON, like what 'weir describe"},
        {"{\"input\": {\"dtype\": \"f32\", \"shape\": [1]}, \"layers\": [], \"loss\": \"mse\"}",
         WEIR_ERR_ARGUMENT, "target and loss go together, but target is missing"},
        {"{\"input\": {\"dtype\": \"f32\", \"shape\": [1]}, \"layers\": [], \"loss\": \"l1\","
         " \"target\": {\"dtype\": \"f32\", \"shape\": [1]}}",
         WEIR_ERR_ARGUMENT, "loss 'l1' is not known; losses are: cross_entropy"},
        {"{\"a\": 1, \"a\": 2}", WEIR_ERR_FORMAT, "duplicate object key"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct weir_faults faults;
        struct weir_model *model;
        EXPECT_STATUS(read_text(cases[i].text, &faults, &model), cases[i].status);
        expect_line(&faults, cases[i].message);
        weir_faults_clean_up(&faults);
    }
}

/* ---- the command --------------------------------------------------------------------------------
 */

/** describe --json of a model, read back and described again, is the same text. */
static void round_trip(const char *folder, const char *options) {
    struct cli_run run;
    CHECK(folder != NULL);
    CLI_CODE(&run, 0, "describe %s --json %s/1.json", options, folder);
    CLI_CODE(&run, 0, "describe --model %s/1.json --json %s/2.json", folder, folder);
    char output[256];
    if (test_shell(output, sizeof output, "cmp '%s/1.json' '%s/2.json'", folder, folder) != 0)
        TEST_FAIL("%s: %s", options, output);
}

static void test_built_in_models_come_back_from_their_files(void) {
    static const char *const models[] = {
        "gpt --layers 2 --width 16 --heads 2 --context 8 --dropout 0.1",
        "gpt --layers 1 --width 8 --heads 2 --context 4 --tied",
        "unet --depth 2 --num-convs 1 --base-channels 4 --image-size 20x16"};
    for (int k = 0; k < 3; k++) {
        char options[128];
        snprintf(options, sizeof options, "--model %s", models[k]);
        round_trip(test_temporary_directory(), options);
        CHECK_HELPERS();
    }
}

static void test_what_is_frozen_and_ignored_comes_back(void) {
    const char *folder = test_temporary_directory();
    static const char *const members[] = {"\"freeze\":[\"h.0.*\",\"*.bias\"]",
                                          "\"ignore_index\":7"};
    char output[256], options[640];
    struct cli_run run;
    CLI_CODE(&run, 0,
             "describe --model gpt --layers 2 --width 16 --heads 2 --context 8 --freeze 'h.0.*' "
             "--json %s/0.json",
             folder);
    CHECK(test_shell(output, sizeof output, "sed 's/: -100/: 7/' <'%s/0.json' >'%s/m.json'", folder,
                     folder) == 0);
    snprintf(options, sizeof options, "--model %s/m.json --freeze '*.bias'", folder);
    round_trip(folder, options);
    for (int k = 0; k < 2; k++)
        if (test_shell(output, sizeof output, "tr -d ' \\n' <'%s/2.json' | grep -F '%s'", folder,
                       members[k]) != 0)
            TEST_FAIL("%s is not there", members[k]);
}

static void test_shape_faults_name_the_layer(void) {
    char path[512];
    struct cli_run run;
    snprintf(path, sizeof path, "%s/m.json", test_temporary_directory());
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs("{\"input\": {\"dtype\": \"f32\", \"shape\": [3, 4, 4]}, \"layers\": ["
          "{\"type\": \"relu\"}, {\"type\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 7,"
          " \"name\": \"stem\"}]}",
          file);
    fclose(file);
    CLI_CODE(&run, 2, "describe --model %s", path);
    EXPECT_CONTAINS(run.output,
                    "layer 1 'stem' (conv2d): conv2d's kernel of 7x7 is larger than its "
                    "padded input, which is f32 [3, 4, 4]");
}

static void expect_infer(const char *input, const char *layers, const char *message) {
    struct weir_faults faults;
    struct weir_model *model;
    struct weir_layer_facts facts[4];
    char text[512];
    snprintf(text, sizeof text,
             "{\"input\": {\"dtype\": \"f32\", \"shape\": %s}, \"layers\": [%s]}", input, layers);
    CHECK_OK(read_text(text, &faults, &model));
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, &faults), WEIR_ERR_OVERFLOW);
    expect_line(&faults, message);
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

static void test_a_layer_that_no_memory_holds_is_named(void) {
    expect_infer(
        "[3, 8, 8]",
        "{\"type\": \"conv2d\", \"out_channels\": 9, \"kernel_size\": 1, "
        "\"padding\": 2147483647}",
        "layer 0 (conv2d): conv2d's output would be 4294967302x4294967302 pixels, which no "
        "memory holds");
    expect_infer("[4]",
                 "{\"type\": \"linear\", \"out_features\": 2147483647},"
                 "{\"type\": \"linear\", \"out_features\": 2147483647}",
                 "layer 1 (linear): its parameter 'weight' would be f32 [2147483647, 2147483647]");
    expect_infer("[1, 1, 1]", "{\"type\": \"upsample\", \"scale_factor\": 2147483647}",
                 "layer 0 (upsample): its output would be f32 [1, 2147483647, 2147483647]");
}

static void test_a_border_that_no_memory_holds_is_refused(void) {
    struct weir_faults faults;
    struct weir_model *model;
    EXPECT_STATUS(read_text("{\"input\": {\"dtype\": \"f32\", \"shape\": [2147483647, 2147483647,"
                            " 4]}, \"layers\": []}",
                            &faults, &model),
                  WEIR_ERR_SHAPE);
    expect_line(&faults, "m.json: a row of the input or the target is larger than any memory");
    weir_faults_clean_up(&faults);
}

static void test_a_name_with_a_control_character_is_refused(void) {
    struct weir_faults faults;
    struct weir_model *model;
    EXPECT_STATUS(read_text("{\"input\": {\"dtype\": \"f32\", \"shape\": [4]}, \"layers\": ["
                            "{\"type\": \"relu\", \"name\": \"a\\u001b[31m\"}]}",
                            &faults, &model),
                  WEIR_ERR_ARGUMENT);
    expect_line(&faults, "layer 0: its name holds a control character");
    weir_faults_clean_up(&faults);
}

static void test_describe_lists_skips_and_their_routes(void) {
    struct cli_run run;
    CLI_CODE(&run, 0,
             "describe --model unet --depth 2 --num-convs 1 --base-channels 4 --image-size 16 "
             "--balance 7,12,10");
    EXPECT_CONTAINS(run.output,
                    "0/skip         layer    4 -> 23       f32 [4, 16, 16]          4.0 "
                    "KiB/row  stage 0 -> 2 by portal");
    EXPECT_CONTAINS(run.output, "stage 1, no copy");
}

WEIR_TEST_SUITE(model_file, TEST(layers_attributes_names_and_the_border_are_read),
                TEST(what_is_frozen_is_read), TEST(only_cross_entropy_ignores_a_label),
                TEST(a_model_without_target_only_infers), TEST(all_faults_of_a_file_are_listed),
                TEST(what_is_no_model_is_refused_with_the_reason),
                TEST(built_in_models_come_back_from_their_files),
                TEST(what_is_frozen_and_ignored_comes_back), TEST(shape_faults_name_the_layer),
                TEST(a_layer_that_no_memory_holds_is_named),
                TEST(a_border_that_no_memory_holds_is_refused),
                TEST(a_name_with_a_control_character_is_refused),
                TEST(describe_lists_skips_and_their_routes))
