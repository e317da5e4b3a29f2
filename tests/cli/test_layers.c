/* SPDX-License-Identifier: MIT */
/*
 * Goal: blocks of a model file are the layers that they stand for, and `weir layers` says what the
 * files take. Method: a file with blocks against the same list written out, by the layers' hashes;
 * blocks with one thing wrong; the command's page against the one in docs.
 */
#include "cli/cli.h"
#include "harness.h"
#include "io/io_faults.h"
#include "net/compile/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model of rows of four numbers; ' stands for ". */
static int read_layers(const char *layers, struct weir_faults *faults, struct weir_model **model) {
    char text[2048];
    *faults = (struct weir_faults)WEIR_FAULTS_INIT;
    *model = NULL;
    snprintf(text, sizeof text, "{'input':{'dtype':'f32','shape':[4]},'layers':[%s]}", layers);
    for (char *c = text; *c != '\0'; c++) *c = *c == '\'' ? '"' : *c;
    return weir__model_text_read(test_allocator(), text, strlen(text), "m.json", faults, model);
}

static void expect_same(const char *layers, const char *flat) {
    struct weir_model *models[2];
    struct weir_faults faults;
    struct weir_layer_hash a, b;
    struct weir_layer_facts facts[64];
    CHECK_OK(read_layers(layers, &faults, &models[0]));
    CHECK_OK(read_layers(flat, &faults, &models[1]));
    uint32_t count = weir_model_layer_count(models[1]);
    CHECK_EQ_UINT(weir_model_layer_count(models[0]), count);
    for (uint32_t i = 0; i < count; i++) {
        EXPECT_STATUS(weir_model_hash(models[0], i, &a), WEIR_OK);
        EXPECT_STATUS(weir_model_hash(models[1], i, &b), WEIR_OK);
        if (a.form != b.form || a.numbers != b.numbers) TEST_FAIL("layer %u differs", i);
    }
    EXPECT_STATUS(weir_model_infer(models[0], WEIR_F32, facts, &faults), WEIR_OK);
    for (uint32_t i = 0; i < faults.kept; i++) TEST_FAIL("%s", faults.lines[i]);
    weir_faults_clean_up(&faults);
    weir_model_destroy(models[0]);
    weir_model_destroy(models[1]);
}

#define RELU "{'type':'relu'}"
#define LINEAR "{'type':'linear','out_features':4}"

static void test_a_block_is_its_layers_repeated(void) {
    expect_same(RELU ",{'type':'block','repeat':3,'layers':[" LINEAR "," RELU "]}," LINEAR,
                RELU "," LINEAR "," RELU "," LINEAR "," RELU "," LINEAR "," RELU "," LINEAR);
    expect_same("{'type':'block','layers':[{'type':'linear','out_features':4,'name':'fc'}]}",
                "{'type':'linear','out_features':4,'name':'fc'}");
    expect_same("{'type':'block','repeat':2,'layers':[" RELU
                ",{'type':'block','repeat':2,'layers':[" LINEAR "]}]}",
                RELU "," LINEAR "," LINEAR "," RELU "," LINEAR "," LINEAR);
}

static const char *text_of(struct weir_attrs attrs, const char *key) {
    for (uint32_t i = 0; i < attrs.count; i++)
        if (strcmp(attrs.list[i].key, key) == 0) return attrs.list[i].text;
    return "";
}

/* Types, and the skips' namespaces and names: "stash h.0/x; relu; pop_add h.0/x; ". */
static void expect_skips(const char *layers, const char *wanted) {
    struct weir_faults faults;
    struct weir_model *model;
    struct weir_layer_facts facts[64];
    char text[1024] = "";
    CHECK_OK(read_layers(layers, &faults, &model));
    for (uint32_t i = 0; i < weir_model_layer_count(model); i++) {
        const char *type = "";
        struct weir_attrs attrs = {0, NULL};
        EXPECT_STATUS(weir_model_layer(model, i, &type, NULL, &attrs), WEIR_OK);
        size_t used = strlen(text);
        bool is_skip = text_of(attrs, "skip")[0] != '\0';
        snprintf(text + used, sizeof text - used, "%s%s%s%s%s; ", type, is_skip ? " " : "",
                 text_of(attrs, "namespace"), is_skip ? "/" : "", text_of(attrs, "skip"));
    }
    EXPECT_EQ_STR(text, wanted);
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, NULL), WEIR_OK);
    weir_model_destroy(model);
}

#define STASH_X "{'type':'stash','skip':'x'}"
#define POP_X "{'type':'pop_add','skip':'x'}"

static void test_repeats_of_a_namespace_have_skips_of_their_own(void) {
    expect_skips("{'type':'block','repeat':2,'namespace':'h','layers':[" STASH_X "," RELU "," POP_X
                 "]}",
                 "stash h.0/x; relu; pop_add h.0/x; stash h.1/x; relu; pop_add h.1/x; ");
    /* A skip from before the block stays what it is; a namespace of one's own comes last. */
    expect_skips(STASH_X ",{'type':'block','repeat':2,'namespace':'h','layers':["
                         "{'type':'stash','skip':'x','namespace':'a'},"
                         "{'type':'read_add','skip':'x'},"
                         "{'type':'pop_add','skip':'x','namespace':'a'}]}",
                 "stash /x; stash h.0.a/x; read_add /x; pop_add h.0.a/x; stash h.1.a/x; "
                 "read_add /x; pop_add h.1.a/x; ");
    /* Nested: what the outer stashes is the same for the inner's repeats. */
    expect_skips("{'type':'block','repeat':2,'namespace':'o','layers':["
                 "{'type':'stash','skip':'v'},"
                 "{'type':'block','repeat':2,'namespace':'i','layers':[" STASH_X ","
                 "{'type':'read_add','skip':'v'}," POP_X "]}]}",
                 "stash o.0/v; stash o.0.i.0/x; read_add o.0/v; pop_add o.0.i.0/x; "
                 "stash o.0.i.1/x; read_add o.0/v; pop_add o.0.i.1/x; "
                 "stash o.1/v; stash o.1.i.0/x; read_add o.1/v; pop_add o.1.i.0/x; "
                 "stash o.1.i.1/x; read_add o.1/v; pop_add o.1.i.1/x; ");
}

static void test_a_frozen_block_freezes_its_layers(void) {
    struct weir_faults faults;
    struct weir_model *model;
    struct weir_layer_facts facts[3];
    CHECK_OK(read_layers("{'type':'block','frozen':true,'layers':[" LINEAR
                         ",{'type':'block','layers':[" LINEAR "]}]}," LINEAR,
                         &faults, &model));
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, NULL), WEIR_OK);
    EXPECT(facts[0].trainable == 0 && facts[1].trainable == 0 && facts[2].trainable == 20);
    weir_model_destroy(model);
}

/* The only fault. */
static void expect_refused(const char *layers, const char *message) {
    struct weir_faults faults;
    struct weir_model *model;
    EXPECT_STATUS(read_layers(layers, &faults, &model), WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(&faults, message);
    weir_faults_clean_up(&faults);
}

static void test_faults_in_blocks_name_the_path_and_stand_once(void) {
    expect_refused(RELU "," RELU "," RELU ",{'type':'block','repeat':5,'layers':[" RELU
                        ",{'type':'linear','out_feature':4,'out_features':4}]}",
                   "layer 4 at layers[3].layers[1] (linear): no attribute 'out_feature': did you "
                   "mean 'out_features'?");
    expect_refused("{'type':'block','repeat':2,'layers':[{'type':'block','repeat':2,'layers':["
                   "{'type':'reluu'}]}]}",
                   "layer 0 at layers[0].layers[0].layers[0]: there is no type 'reluu': did you "
                   "mean 'relu'?");
    expect_refused("{'type':'block','repeat':3,'layers':[" RELU "]},{'type':'dropout','p':2}",
                   "layer 3 at layers[1] (dropout): p is 2");
    expect_refused("{'type':'block','repeats':3,'layers':[" RELU "]}",
                   "layer 0 (block): no attribute 'repeats': did you mean 'repeat'?");
    expect_refused("{'type':'block','repeat':0,'layers':[" RELU "]}",
                   "layer 0 (block): repeat is 0, but must be from 1");
    expect_refused("{'type':'block','repeat':3,'layers':[]}",
                   "layer 0 (block): layers must be a list of at least one layer");
    expect_refused("{'type':'block','name':'b','layers':[" RELU "]}", "a block has no name");
    expect_refused("{'type':'block','repeat':2,'layers':[{'type':'relu','name':'a'}]}",
                   "layer 0 at layers[0].layers[0] (relu): the name 'a' would be every repeat's: "
                   "leave it out");
    expect_refused("{'type':'block','repeat':2,'layers':[" STASH_X "," POP_X "]}",
                   "layer 0 (block): each of its 2 repeats stashes 'x': give the block a "
                   "\"namespace\"");
    expect_refused("{'type':'block','repeat':65537,'layers':[" RELU "]}",
                   "m.json: more than 65536 layers, blocks written out");
    expect_refused("{'type':'block','repeat':60000,'layers':[{'type':'block','layers':[]}]}",
                   "layers must be a list of at least one layer");
}

static void test_shapes_that_do_not_fit_in_a_block_name_the_path(void) {
    struct weir_faults faults;
    struct weir_model *model;
    struct weir_layer_facts facts[8];
    CHECK_OK(read_layers(RELU ",{'type':'block','repeat':2,'layers':[{'type':'linear',"
                              "'in_features':4,'out_features':6}]}",
                         &faults, &model));
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, &faults), WEIR_ERR_SHAPE);
    EXPECT_FAULTS(&faults, "layer 2 at layers[1].layers[0] (linear): in_features is 4, but its "
                           "input has 6");
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

static void test_blocks_may_stand_in_blocks_but_not_without_end(void) {
    char layers[1024] = "";
    for (int depth = 1; depth <= 9; depth++) {
        layers[0] = '\0';
        for (int i = 0; i < depth; i++) strcat(layers, "{'type':'block','layers':[");
        strcat(layers, RELU);
        for (int i = 0; i < depth; i++) strcat(layers, "]}");
        if (depth <= 8)
            expect_same(layers, RELU);
        else
            expect_refused(layers, "it is in more than 8 blocks");
    }
}

/* ---- the command ---- */

static const char *text_at(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

static void test_describe_writes_blocks_out(void) {
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [4]}, \"layers\": [{\"type\": \"block\", "
        "\"repeat\": 2, \"layers\": [{\"type\": \"relu\"}, {\"type\": \"tanh\"}]}]}";
    char path[512];
    struct cli_run run;
    const char *folder = test_temporary_directory();
    io_make_file(folder, "m.json", model, sizeof model - 1, path);
    CLI_CODE(&run, 0, "describe --model %s --json %s/flat", path, folder);
    snprintf(path, sizeof path, "%s/flat", folder);
    json_t *root = cli_json(path), *list = json_object_get(root, "layers");
    EXPECT_EQ_UINT(json_array_size(list), 4);
    for (size_t i = 0; i < json_array_size(list); i++)
        EXPECT_EQ_STR(text_at(json_array_get(list, i), "type"), i % 2 == 0 ? "relu" : "tanh");
    json_decref(root);
}

static void test_the_page_of_layers_is_the_tables(void) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/layers.md", test_temporary_directory());
    CLI_CODE(&run, 0, "layers --markdown %s", path);
    cli_same_files(path, "docs/layers.md"); /* weir layers --markdown docs/layers.md */
}

/* The row that the page has for a type of the list for programs. */
static void expect_row(const char *page, const json_t *type) {
    char row[8192], attribute[128];
    const char *torch = text_at(type, "pytorch"), *mark = torch[0] == '\0' ? "" : "`";
    snprintf(row, sizeof row, "\n| `%s` | %s%s%s | %s | %s | ", text_at(type, "type"), mark, torch,
             mark, text_at(type, "input"), text_at(type, "output"));
    const char *begin = strstr(page, row);
    if (begin == NULL) TEST_FAIL("the page lacks %s", row);
    CHECK(begin != NULL);
    snprintf(row, sizeof row, "%.*s", (int)strcspn(begin + 1, "\n"), begin + 1);
    json_t *attributes = json_object_get(type, "attributes"), *value;
    size_t i;
    json_array_foreach(attributes, i, value) {
        bool required = json_is_true(json_object_get(value, "required"));
        const char *kind = text_at(value, "type"); /* the page parts choices by commas */
        snprintf(attribute, sizeof attribute, required ? "**`%s`** %.*s" : "`%s` %.*s",
                 text_at(value, "name"), (int)strcspn(kind, "|"), kind);
        EXPECT_CONTAINS(row, attribute);
    }
}

/* PyTorch's facts of two layers, and that every type is there. */
static void test_layers_are_listed_for_people_and_programs(void) {
    struct cli_run run;
    char path[512];
    snprintf(path, sizeof path, "%s/layers.json", test_temporary_directory());
    CLI_CODE(&run, 0, "layers --json %s", path);
    json_t *root = cli_json(path), *list = json_object_get(root, "layers");
    char *page = cli_read("docs/layers.md", NULL);
    CHECK(json_is_array(list) && page != NULL);
    json_t *linear = json_array_get(list, 0);
    EXPECT_EQ_STR(text_at(linear, "pytorch"), "nn.Linear");
    json_t *attributes = json_object_get(linear, "attributes");
    EXPECT(json_is_true(json_object_get(json_array_get(attributes, 0), "required")));
    EXPECT(json_is_true(json_object_get(json_array_get(attributes, 1), "default")));
    EXPECT_EQ_STR(text_at(json_array_get(attributes, 2), "of_input"), "last");
    CLI_CODE(&run, 0, "layers");
    uint32_t count = 0, rows = 0;
    for (; weir_layer_type_at(count) != NULL; count++) {
        EXPECT_EQ_STR(text_at(json_array_get(list, count), "type"),
                      weir_layer_type_at(count)->name);
        EXPECT_CONTAINS(run.output, weir_layer_type_at(count)->name);
        expect_row(page, json_array_get(list, count));
    }
    for (const char *at = page; (at = strstr(at, "\n| `")) != NULL; at++) rows++;
    EXPECT_EQ_UINT(json_array_size(list), count);
    EXPECT_EQ_UINT(rows, count);
    free(page);
    EXPECT_CONTAINS(run.output, "nn.LeakyReLU");
    EXPECT_CONTAINS(run.output, "negative_slope       number                     0.01\n");
    json_decref(root);
    CLI_CODE(&run, 0, "layers leaky_relu");
    EXPECT(strncmp(run.output, "leaky_relu ", 11) == 0);
    EXPECT_CONTAINS(run.output, "negative_slope ");
    EXPECT(strstr(run.output, "nn.Linear") == NULL);
    CLI_CODE(&run, 0, "layers linear --json %s", path);
    root = json_load_file(path, 0, NULL);
    EXPECT_EQ_UINT(json_array_size(json_object_get(root, "layers")), 1);
    json_decref(root);
    CLI_CODE(&run, 2, "layers --json - --markdown - 2>&1");
    EXPECT_CONTAINS(run.output, "--json - and --markdown -: only one of them can have stdout");
}

WEIR_TEST_SUITE(layers, TEST(a_block_is_its_layers_repeated),
                TEST(repeats_of_a_namespace_have_skips_of_their_own),
                TEST(a_frozen_block_freezes_its_layers),
                TEST(faults_in_blocks_name_the_path_and_stand_once),
                TEST(shapes_that_do_not_fit_in_a_block_name_the_path),
                TEST(blocks_may_stand_in_blocks_but_not_without_end),
                TEST(describe_writes_blocks_out), TEST(the_page_of_layers_is_the_tables),
                TEST(layers_are_listed_for_people_and_programs))
