/* SPDX-License-Identifier: MIT */
/*
 * Goal: what a network on a GPU cannot find out there is found out before: tokens and targets that
 * are no index, wherever their stage is, and libraries that are missing, too old or incomplete.
 * Method: small models on the fake driver, whose calls are counted; for libraries the same driver
 * without its mark, which is taken for a real one, and libraries made for the purpose.
 */
#include "device/cuda_driver.h"
#include "device/cuda_kernels.h"
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "net/cuda/cublaslt.h"
#include "net/cuda/cudnn.h"
#include "net/net_trial.h"
#include "weir_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, TOKENS = 6, VOCAB = 9, CLASSES = 5, IGNORED = -100 };

/* ---- indices ---- */

/* Goes on with what was stashed, and leaves its input. */
static struct weir_value *build_take(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    (void)x;
    return weir_read(b, "", weir_layer_text(layer, "skip"));
}

static const struct weir_attr_rule take_attrs[] = {
    {.key = "skip", .kind = WEIR_ATTR_KIND_TEXT, .required = true}};
static const struct weir_layer_type take = {.name = "take",
                                            .attrs = take_attrs,
                                            .attr_count = 1,
                                            .skip_count = 1,
                                            .skips = {{WEIR_SKIP_POP, "skip", NULL}},
                                            .build = build_take};

enum way { AS_THEY_COME, FOLDED, SKIPPED, WAYS };

static void add_way(struct weir_model *model, enum way way) {
    if (way == SKIPPED) {
        EXPECT_STATUS(weir_model_add_type(model, &take), WEIR_OK);
        trial_add(model, "stash", WEIR_ATTRS(WEIR_ATTR_TEXT("skip", "tokens")));
        trial_add(model, "take", WEIR_ATTRS(WEIR_ATTR_TEXT("skip", "tokens")));
    } else {
        trial_add(model, way == FOLDED ? "flatten" : "identity", WEIR_NO_ATTRS);
        trial_add(model, "identity", WEIR_NO_ATTRS);
    }
}

/* Tokens over two layers, an embedding of them, and a class for each row. */
static struct weir_model *token_model(enum way way) {
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {TOKENS}};
    struct weir_tensor label = {.dtype = WEIR_I64};
    if (way == FOLDED) tokens = (struct weir_tensor){.dtype = WEIR_I64, .rank = 2, .shape = {2, 3}};
    struct weir_model *model = trial_model(tokens, label, "cross_entropy");
    add_way(model, way);
    trial_add(
        model, "embedding",
        WEIR_ATTRS(WEIR_ATTR_INT("num_embeddings", VOCAB), WEIR_ATTR_INT("embedding_dim", 3)));
    trial_add(model, "flatten", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", CLASSES)));
    return model;
}

struct batch {
    int64_t tokens[ROWS * TOKENS], labels[ROWS];
};

static struct weir_net_batch good_batch(struct batch *data) {
    for (int i = 0; i < ROWS * TOKENS; i++) data->tokens[i] = i % VOCAB;
    for (int i = 0; i < ROWS; i++) data->labels[i] = i % CLASSES;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = ROWS, batch.input = data->tokens, batch.target = data->labels;
    return batch;
}

static void expect_refused(const struct weir_fake_cuda_control *gpu, struct weir_net *net,
                           const struct weir_net_batch *batch, const char *message, int32_t stage,
                           const char *layer) {
    for (int train = 0; train <= 1; train++) {
        struct weir_step_result result;
        uint64_t calls = gpu->calls_made();
        int status =
            train ? weir_net_step(net, batch, &result) : weir_net_infer(net, batch, &result);
        EXPECT_STATUS(status, WEIR_ERR_ARGUMENT);
        EXPECT_STATUS(result.error.status, WEIR_ERR_ARGUMENT);
        EXPECT_EQ_STR(result.error.message, message);
        EXPECT_EQ_INT(result.error.stage, stage);
        EXPECT_CONTAINS(result.error.layer, layer);
        EXPECT_EQ_UINT(gpu->calls_made(), calls); /* before the step began */
    }
}

static void expect_taken(struct weir_net *net, const struct weir_net_batch *batch) {
    struct weir_step_result result;
    EXPECT_STATUS(weir_net_infer(net, batch, &result), WEIR_OK);
    EXPECT_STATUS(weir_net_step(net, batch, &result), WEIR_OK);
    EXPECT_EQ_STR(result.error.message, "");
}

/* `embeds` is the stage that looks the tokens up, `judges` the one of the loss. */
static void check_tokens(const struct weir_fake_cuda_control *gpu, struct weir_net *net,
                         int32_t embeds) {
    struct batch data;
    struct weir_net_batch batch = good_batch(&data);
    data.tokens[7] = VOCAB;
    expect_refused(gpu, net, &batch, "token 7 of the mini-batch is 9, which is outside [0, 9)",
                   embeds, "2 (embedding)");
    data.tokens[2] = -1;
    expect_refused(gpu, net, &batch, "token 2 of the mini-batch is -1, which is outside [0, 9)",
                   embeds, "2 (embedding)");
}

static void check_labels(const struct weir_fake_cuda_control *gpu, struct weir_net *net,
                         int32_t judges) {
    struct batch data;
    struct weir_net_batch batch = good_batch(&data);
    data.labels[ROWS - 1] = CLASSES;
    expect_refused(gpu, net, &batch, "target 3 of the mini-batch is 5, which is outside [0, 5)",
                   judges, "loss");
    data.labels[1] = IGNORED - 1;
    expect_refused(gpu, net, &batch, "target 1 of the mini-batch is -101, which is outside [0, 5)",
                   judges, "loss");
    batch.target = NULL; /* nothing to judge */
    struct weir_step_result result;
    EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_OK);
    batch = good_batch(&data);
    data.labels[2] = IGNORED;
    expect_taken(net, &batch);
}

static void check_indices(const struct weir_fake_cuda_control *gpu, enum way way, uint32_t stages,
                          const uint32_t *balance, const char *const *devices, int32_t embeds) {
    struct weir_net_options options = trial_options(stages, ROWS, 2);
    options.dtype = WEIR_F32;
    options.balance = balance;
    options.pipe.devices = devices;
    options.pipe.device_count = stages;
    gpu->reset(1, 2, 0);
    struct weir_model *model = token_model(way);
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL && strcmp(devices[embeds], "cpu") != 0) check_tokens(gpu, net, embeds);
    if (net != NULL && strcmp(devices[stages - 1], "cpu") != 0)
        check_labels(gpu, net, (int32_t)stages - 1);
    weir_net_destroy(net);
    weir_model_destroy(model);
    fake_gpus_clean(gpu);
}

static void test_indices_are_looked_at_before_the_step_wherever_their_stage_is(void) {
    static const char *const names[] = {"cuda:0", "cuda:1", "cuda:0", "cpu"};
    const struct weir_fake_cuda_control *gpu = fake_gpus(1, 2, 0);
    if (gpu == NULL) return;
    for (enum way way = 0; way < WAYS; way++) {
        check_indices(gpu, way, 1, (const uint32_t[]){5}, names, 0);
        check_indices(gpu, way, 2, (const uint32_t[]){3, 2}, names, 0);
        /* the embedding's stage gets its tokens over a cut, or two, or by a skip */
        check_indices(gpu, way, 2, (const uint32_t[]){2, 3}, names, 1);
        check_indices(gpu, way, 3, (const uint32_t[]){1, 1, 3}, names, 2);
        check_indices(gpu, way, 2, (const uint32_t[]){1, 4}, (const char *[]){"cpu", "cuda"}, 1);
        check_indices(gpu, way, 4, (const uint32_t[]){1, 1, 1, 2}, names, 2);
    }
}

/* ---- libraries ---- */

/* All that is called, none of which works. */
#define STUB(member, symbol, parameters) "int " #symbol "(void) { return 1; } "
static const char whole_lt[] =
    "unsigned long cublasLtGetVersion(void) { return 130000; } "
    "const char *cublasLtGetStatusName(int s) { return 0; } " WEIR__CUBLASLT_CALL_MAP(STUB);
#define WHOLE_DNN_OF(cuda)                                                                         \
    "unsigned long cudnnGetVersion(void) { return 91801; } "                                       \
    "unsigned long cudnnGetCudartVersion(void) { return " cuda "; } "                              \
    "const char *cudnnGetErrorString(int s) { return 0; } " WEIR__CUDNN_CALL_MAP(STUB)
static const char early_dnn[] = WHOLE_DNN_OF("9000");
static const char late_dnn[] = WHOLE_DNN_OF("14000");
#undef STUB

/* A library of that source, as FOLDER/NAME; its path stays. */
static const char *build_library(const char *folder, const char *name, const char *source) {
    static char paths[4][256];
    static uint32_t count;
    char output[512], *path = paths[count++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    int code = test_shell(output, sizeof output, "echo '%s' >%s.c && '%s' cc -shared -o %s %s.c",
                          source, path, test_zig(), path, path);
    EXPECT_EQ_STR(output, "");
    EXPECT_EQ_INT(code, 0);
    return path;
}

/* One that says this version and nothing else. */
static const char *make_library(const char *folder, const char *name, const char *symbol,
                                unsigned version) {
    char source[128];
    snprintf(source, sizeof source, "unsigned long %s(void) { return %u; }", symbol, version);
    return build_library(folder, name, source);
}

/* The fake driver without its mark, as the one that Weir opens. */
static const struct weir_fake_cuda_control *unmarked_gpus(void) {
    const struct weir_fake_cuda_control *gpu = fake_gpus(1, 2, 0);
    if (gpu == NULL) return NULL;
    const char *missing = test_managed_cuda_path() == NULL ? "the library of managed memory"
                          : test_zig() == NULL             ? "a compiler to make libraries with"
                          : weir__cuda_image_count == 0    ? "CUDA kernels in this build"
                                                           : NULL;
    if (missing != NULL) test_skip("it takes %s", missing);
    if (missing != NULL) return NULL;
    bool set = EXPECT(setenv("WEIR_TEST_CUDA_DRIVER", test_fake_cuda_path(), 1) == 0) &&
               EXPECT(setenv("WEIR_CUDA_DRIVER", test_managed_cuda_path(), 1) == 0);
    return set ? gpu : NULL;
}

static uint32_t count_calls(const struct weir_fake_cuda_control *gpu, const char *call) {
    struct weir_fake_cuda_entry entry;
    uint32_t count = 0;
    for (uint64_t i = 0; gpu->entry(i, &entry); i++) count += strcmp(entry.call, call) == 0;
    return count;
}

/* Builds a net where one library at least is not as it should be: as many faults as parts, which
 * they contain in this order; no device was opened for it. */
static void expect_missing(const struct weir_fake_cuda_control *gpu, const struct weir_model *model,
                           const char *const *devices, int status, const char *const parts[2]) {
    struct weir_net_options options = trial_options(2, ROWS, 2);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    faults.allocator = test_allocator();
    options.dtype = WEIR_F32;
    options.pipe.devices = devices;
    options.pipe.device_count = 2;
    gpu->reset(1, 2, 0);
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), status);
    EXPECT(net == NULL);
    EXPECT_EQ_UINT(faults.kept, parts[1] != NULL ? 2 : 1);
    for (uint32_t i = 0; i < faults.kept && parts[i] != NULL; i++)
        EXPECT_CONTAINS(faults.lines[i], parts[i]);
    EXPECT_EQ_UINT(count_calls(gpu, "cuDevicePrimaryCtxRetain"), 0);
    weir_faults_clean_up(&faults);
}

static struct weir_model *image_model(void) {
    struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {1, 4, 4}};
    struct weir_tensor label = {.dtype = WEIR_I64};
    struct weir_model *model = trial_model(image, label, "cross_entropy");
    trial_add(model, "conv2d",
              WEIR_ATTRS(WEIR_ATTR_INT("out_channels", 2), WEIR_ATTR_PAIR("kernel_size", 3, 3)));
    trial_add(model, "flatten", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", CLASSES)));
    return model;
}

static const char *const on_gpus[] = {"cuda:0", "cuda:1"};

static void test_a_library_that_is_missing_or_old_is_named_before_the_pipe_is_built(void) {
    static const char *const lt = "WEIR_CUBLASLT names a library that does not open";
    static const char *const dnn = "WEIR_CUDNN names a library that does not open";
    static const char *const old_lt = "cuBLASLt 11.9.2 is too old, Weir needs 12.0: install the "
                                      "CUDA toolkit's libcublas, or PyPI's nvidia-cublas";
    static const char *const old_dnn = "cuDNN 8.9.7 is too old, Weir needs 9.0: install NVIDIA's "
                                       "cudnn9 package for your CUDA";
    const struct weir_fake_cuda_control *gpu = unmarked_gpus();
    if (gpu == NULL) return;
    const char *folder = test_temporary_directory();
    struct weir_model *model = image_model();
    CHECK(setenv("WEIR_CUBLASLT", "/none/lt.so", 1) == 0);
    CHECK(setenv("WEIR_CUDNN", "/none/dnn.so", 1) == 0);
    expect_missing(gpu, model, on_gpus, WEIR_ERR_NOT_FOUND, (const char *[]){lt, dnn});
    const char *made = make_library(folder, "lt11.so", "cublasLtGetVersion", 110902);
    CHECK(setenv("WEIR_CUBLASLT", made, 1) == 0);
    expect_missing(gpu, model, on_gpus, WEIR_ERR_NOT_FOUND, (const char *[]){old_lt, dnn});
    made = make_library(folder, "dnn8.so", "cudnnGetVersion", 80907);
    CHECK(setenv("WEIR_CUDNN", made, 1) == 0);
    expect_missing(gpu, model, on_gpus, WEIR_ERR_UNSUPPORTED, (const char *[]){old_lt, old_dnn});
    made = build_library(folder, "lt13.so", whole_lt);
    CHECK(setenv("WEIR_CUBLASLT", made, 1) == 0);
    expect_missing(gpu, model, on_gpus, WEIR_ERR_UNSUPPORTED, (const char *[]){old_dnn, NULL});
    weir_model_destroy(model);
}

/* The newest is refused where it lacks a function, and cuDNN without its own CUDA's cuBLASLt, or
 * where that CUDA is newer than the driver's. */
static void test_a_library_that_cannot_be_used_is_named_before_the_pipe_is_built(void) {
    static const char *const no_name = "this cuBLASLt is incomplete: it has no "
                                       "cublasLtGetStatusName: install it anew";
    static const char *const no_cuda = "this cuDNN is incomplete: it has no cudnnGetCudartVersion";
    static const char *const no_lt = "cuDNN is one for CUDA 9 and needs libcublasLt.so.9, which "
                                     "is not found: install libcublas of CUDA 9";
    static const char *const late =
        "this cuDNN is one for CUDA 14, and the driver one for CUDA 13: "
        "install cuDNN for CUDA 13, such as PyPI's nvidia-cudnn-cu13";
    const struct weir_fake_cuda_control *gpu = unmarked_gpus();
    if (gpu == NULL) return;
    const char *folder = test_temporary_directory();
    struct weir_model *model = image_model();
    const char *made = make_library(folder, "lt.so", "cublasLtGetVersion", 130000);
    CHECK(setenv("WEIR_CUBLASLT", made, 1) == 0);
    made = make_library(folder, "dnn.so", "cudnnGetVersion", 91801);
    CHECK(setenv("WEIR_CUDNN", made, 1) == 0);
    expect_missing(gpu, model, on_gpus, WEIR_ERR_UNSUPPORTED, (const char *[]){no_name, no_cuda});
    CHECK(setenv("WEIR_CUBLASLT", build_library(folder, "whole_lt.so", whole_lt), 1) == 0);
    CHECK(setenv("WEIR_CUDNN", build_library(folder, "early_dnn.so", early_dnn), 1) == 0);
    expect_missing(gpu, model, on_gpus, WEIR_ERR_NOT_FOUND, (const char *[]){no_lt, NULL});
    CHECK(setenv("WEIR_CUDNN", build_library(folder, "late_dnn.so", late_dnn), 1) == 0);
    expect_missing(gpu, model, on_gpus, WEIR_ERR_UNSUPPORTED, (const char *[]){late, NULL});
    weir_model_destroy(model);
}

/* Stages ask for what their own ops need: the image model's convolution is in the first. */
static void test_a_library_that_no_stage_needs_is_not_asked_for(void) {
    static const char *const first_on_cpu[] = {"cpu", "cuda:1"};
    static const char *const second_on_cpu[] = {"cuda:1", "cpu"};
    const struct weir_fake_cuda_control *gpu = unmarked_gpus();
    if (gpu == NULL) return;
    struct weir_model *images = image_model(), *tokens = token_model(AS_THEY_COME);
    CHECK(setenv("WEIR_CUBLASLT", "/none/lt.so", 1) == 0);
    CHECK(setenv("WEIR_CUDNN", "/none/dnn.so", 1) == 0);
    const char *const lt[] = {"WEIR_CUBLASLT names", NULL};
    const char *const dnn[] = {"WEIR_CUDNN names", NULL};
    expect_missing(gpu, tokens, on_gpus, WEIR_ERR_NOT_FOUND, lt);
    expect_missing(gpu, images, first_on_cpu, WEIR_ERR_NOT_FOUND, lt);
    expect_missing(gpu, images, second_on_cpu, WEIR_ERR_NOT_FOUND, dnn);
    weir_model_destroy(images);
    weir_model_destroy(tokens);
}

WEIR_TEST_SUITE(net_cuda_checks,
                TEST(indices_are_looked_at_before_the_step_wherever_their_stage_is),
                TEST(a_library_that_is_missing_or_old_is_named_before_the_pipe_is_built),
                TEST(a_library_that_cannot_be_used_is_named_before_the_pipe_is_built),
                TEST(a_library_that_no_stage_needs_is_not_asked_for))
