/* SPDX-License-Identifier: MIT */
/*
 * Goal: whole networks give PyTorch's numbers: losses, outputs, all gradients, and parameters after
 * clipped AdamW and momentum SGD updates, whatever the partition, chunks, schedule and checkpoint
 * mode, with backward whole or split. Method: files written once by tests/golden/make_nets.py in
 * float64, read here; the models are built by calls, or read from their files.
 *
 * Tolerances are relative, per tensor, in the 2-norm. f64: 1e-12. f32: rounding errors add up like
 * a random walk along the longest chain of additions, so epsilon sqrt(length), where `length` is
 * the sum of the reductions on the longest path, times 3 (forward, gradients of inputs, gradients
 * of weights), plus the rows and tokens that a weight's gradient sums over. Each update adds as
 * much again.
 */
#include "harness.h"
#include "io/safetensors.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UPDATES = 4, UPDATES_MAX = 10, CONFIGS_MAX = 128 };

/* ---- the models ---- */

struct layer {
    const char *type;
    int64_t out;      /* linear */
    const char *text; /* gelu: approximate; skips: [namespace/]name; linear: "no bias" */
};

/* The lists of make_nets.py. */
static const struct layer crossing_layers[] = {
    {"linear", 8, ""},    {"stash", 0, "a"},     {"gelu", 0, "none"},    {"stash", 0, "b"},
    {"linear", 8, ""},    {"stash", 0, "x/a"},   {"layer_norm", 0, ""},  {"read_add", 0, "b"},
    {"gelu", 0, "tanh"},  {"pop_add", 0, "a"},   {"stash", 0, "c"},      {"linear", 8, ""},
    {"read_add", 0, "b"}, {"relu", 0, ""},       {"read_add", 0, "x/a"}, {"pop_add", 0, "c"},
    {"linear", 8, ""},    {"pop_add", 0, "x/a"}, {"pop_add", 0, "b"},    {"layer_norm", 0, ""},
    {"linear", 5, ""}};
static const struct layer nested_layers[] = {
    {"flatten", 0, ""},      {"linear", 10, ""},        {"stash", 0, "outer"},
    {"relu", 0, ""},         {"linear", 10, ""},        {"stash", 0, "inner"},
    {"gelu", 0, "tanh"},     {"linear", 10, "no bias"}, {"read_add", 0, "outer"},
    {"pop_add", 0, "inner"}, {"layer_norm", 0, ""},     {"linear", 10, ""},
    {"pop_add", 0, "outer"}, {"identity", 0, ""},       {"linear", 6, "no bias"}};

/* Adapters, which alone learn. */
struct adapted {
    struct weir_lora lora;
    const char *targets[3];
};

struct golden {
    const char *path;
    const char *json;                           /* the model's own file, or NULL */
    const struct weir_decoder_options *decoder; /* or NULL */
    const struct weir_gpt_options *gpt;         /* or NULL */
    const struct adapted *lora;                 /* or NULL */
    const struct layer *layers;                 /* NULL without these: the GPT */
    uint32_t residual_layers; /* of the GPT with residuals in blocks of 2; 0: the plain one */
    uint32_t updates;         /* 0: UPDATES */
    uint32_t layer_count;
    struct weir_tensor input, target, output;
    const char *loss;
    int64_t rows;
    bool tied, packed;
    struct weir_optimizer optimizer;
    double clip;
    double length; /* of the tolerance's formula */
};

#define LAYERS(list) .layers = list, .layer_count = sizeof list / sizeof list[0]

static const struct golden gpt = {
    .path = "tests/golden/gpt.safetensors",
    .input = {.dtype = WEIR_I64, .rank = 1, .shape = {8}},
    .output = {.dtype = WEIR_F64, .rank = 2, .shape = {8, 32}},
    .rows = 5,
    .optimizer = {WEIR_OPTIMIZER_ADAMW, 0.01, 0.1, 0.9, 0.95, 1e-3, 0.0, false, true},
    .clip = 0.5,
    /* per block two norms, c_attn, scores, mix, two projections of 16 and 64, c_fc; head */
    .length = 3 * (2 * (2 * 16 + 16 + 8 + 8 + 16 + 16 + 64) + 16 + 16 + 32) + 5 * 8,
};
static const struct golden residual = {
    .path = "tests/golden/gpt_residual.safetensors",
    .residual_layers = 3,
    .updates = UPDATES_MAX,
    .input = {.dtype = WEIR_I64, .rank = 1, .shape = {8}},
    .output = {.dtype = WEIR_F64, .rank = 2, .shape = {8, 32}},
    .rows = 5,
    .optimizer = {WEIR_OPTIMIZER_ADAMW, 0.01, 0.1, 0.9, 0.95, 1e-3, 0.0, false, true},
    .clip = 0.5,
    /* as the GPT, but for three blocks, and before each sublayer squares, logits, and a sum of up
     * to 3 sources */
    .length =
        3 * (3 * (2 * 16 + 16 + 8 + 8 + 16 + 16 + 64) + 7 * (16 + 16 + 3) + 16 + 16 + 32) + 5 * 8,
};
static const struct golden crossing = {
    .path = "tests/golden/crossing.safetensors",
    LAYERS(crossing_layers),
    .input = {.dtype = WEIR_F32, .rank = 2, .shape = {3, 6}},
    .target = {.dtype = WEIR_I64, .rank = 1, .shape = {3}},
    .output = {.dtype = WEIR_F64, .rank = 2, .shape = {3, 5}},
    .loss = "cross_entropy",
    .rows = 7,
    .optimizer = {WEIR_OPTIMIZER_SGD, 0.05, 0.02, 0.0, 0.0, 0.0, 0.9, true, false},
    .length = 3 * (6 + 8 + 8 + 8 + 8 + 8 + 8 + 5) + 7 * 3,
};
static const struct golden nested = {
    .path = "tests/golden/nested.safetensors",
    LAYERS(nested_layers),
    .input = {.dtype = WEIR_F32, .rank = 2, .shape = {4, 3}},
    .target = {.dtype = WEIR_F32, .rank = 1, .shape = {6}},
    .output = {.dtype = WEIR_F64, .rank = 1, .shape = {6}},
    .loss = "mse",
    .rows = 7,
    .optimizer = {WEIR_OPTIMIZER_SGD, 0.05, 0.0, 0.0, 0.0, 0.0, 0.8, false, false},
    .clip = 0.7,
    .length = 3 * (12 + 10 + 10 + 10 + 10 + 10 + 6) + 7,
};
static const struct golden text = {
    .path = "tests/golden/text_layers.safetensors",
    .json = "tests/golden/text_layers.json",
    .input = {.dtype = WEIR_I64, .rank = 1, .shape = {6}},
    .target = {.dtype = WEIR_I64},
    .output = {.dtype = WEIR_F64, .rank = 1, .shape = {5}},
    .rows = 7,
    .optimizer = {WEIR_OPTIMIZER_SGD, 0.05, 0.0, 0.0, 0.0, 0.0, 0.8, false, false},
    /* norm, two products, scores and mix, in each block a linear more; the last linear */
    .length = 3 * (2 * (8 + 16 + 4 + 6 + 8) + 8 + 16 + 2 + 6 + 48) + 7 * 6,
};
static const struct golden image = {
    .path = "tests/golden/image_layers.safetensors",
    .json = "tests/golden/image_layers.json",
    .input = {.dtype = WEIR_F32, .rank = 3, .shape = {2, 5, 4}},
    .target = {.dtype = WEIR_F32, .rank = 1, .shape = {4}},
    .output = {.dtype = WEIR_F64, .rank = 1, .shape = {4}},
    .rows = 7,
    .optimizer = {WEIR_OPTIMIZER_SGD, 0.05, 0.0, 0.0, 0.0, 0.0, 0.8, false, false},
    .length = 3 * (18 + 18 + 18 + 120) + 7 * 20,
};
static const struct golden convolutions = {
    .path = "tests/golden/conv_layers.safetensors",
    .json = "tests/golden/conv_layers.json",
    .input = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 13, 12}},
    .target = {.dtype = WEIR_F32, .rank = 1, .shape = {4}},
    .output = {.dtype = WEIR_F64, .rank = 1, .shape = {4}},
    .rows = 7,
    .optimizer = {WEIR_OPTIMIZER_SGD, 0.05, 0.0, 0.0, 0.0, 0.0, 0.8, false, false},
    .length = 3 * (27 + 42 + 21 + 9 + 48 + 27 + 600) + 7 * 156,
};

/* ---- decoders: tests/golden/make_decoders.py ---- */

#define DECODER                                                                                    \
    .layers = 2, .width = 16, .inner = 24, .heads = 4, .kv_heads = 2, .head_size = 4,              \
    .context = 12, .vocab = 20, .eps = 1e-5, .rope_theta = 10000, .rope_factor = 1, .rope_low = 1, \
    .rope_high = 4
static const struct weir_decoder_options llama_options = {DECODER, .qkv_bias = true, .bias = true,
                                                          .mlp_bias = true};
static const struct weir_decoder_options mistral_options = {DECODER};
static const struct weir_decoder_options qwen2_options = {DECODER, .qkv_bias = true, .tied = true};
static const struct weir_decoder_options qwen3_options = {DECODER, .qk_norm = true, .tied = true};

/* Per block two norms, q, scores of keys and mix, o, gate and up, down; the last norm and the head.
 */
#define DECODER_GOLDEN(name)                                                                       \
    {                                                                                              \
        .path = "tests/golden/decoder_" #name ".safetensors", .decoder = &name##_options,          \
        .input = {.dtype = WEIR_I64, .rank = 1, .shape = {12}},                                    \
        .output = {.dtype = WEIR_F64, .rank = 2, .shape = {12, 20}}, .rows = 4,                    \
        .optimizer = {WEIR_OPTIMIZER_SGD, 0.05, 0.0, 0.0, 0.0, 0.0, 0.8, false, false},            \
        .clip = 0.5, .length = 3 * (2 * (2 * 16 + 16 + 6 + 12 + 24 + 16 + 24) + 16 + 16) + 4 * 12  \
    }
static const struct golden decoders[] = {DECODER_GOLDEN(llama), DECODER_GOLDEN(mistral),
                                         DECODER_GOLDEN(qwen2), DECODER_GOLDEN(qwen3)};

/* Rows of several documents. */
#define PACKED_GOLDEN(name)                                                                        \
    {                                                                                              \
        .path = "tests/golden/packed_" #name ".safetensors", .decoder = &name##_options,           \
        .packed = true, .input = {.dtype = WEIR_I64, .rank = 2, .shape = {2, 12}},                 \
        .output = {.dtype = WEIR_F64, .rank = 2, .shape = {12, 20}}, .rows = 4,                    \
        .optimizer = {WEIR_OPTIMIZER_SGD, 0.05, 0.0, 0.0, 0.0, 0.0, 0.8, false, false},            \
        .clip = 0.5, .length = 3 * (2 * (2 * 16 + 16 + 6 + 12 + 24 + 16 + 24) + 16 + 16) + 4 * 12  \
    }
static const struct golden packed[] = {PACKED_GOLDEN(llama), PACKED_GOLDEN(mistral),
                                       PACKED_GOLDEN(qwen3)};

/* ---- adapters: LORA of tests/golden/make_decoders.py ---- */

static const struct adapted lora_llama = {{.rank = 3, .alpha = 5, .target_count = 1},
                                          {"all-linear"}};
static const struct adapted lora_qwen2 = {
    {.rank = 2, .alpha = 3, .rslora = true, .target_count = 3}, {"q_proj", "v_proj", "down_proj"}};
static const struct adapted lora_gpt2 = {{.rank = 4, .alpha = 4, .target_count = 2},
                                         {"c_attn", "mlp.c_proj"}};
static const struct weir_gpt_options gpt2_options = {
    .layers = 2, .width = 16, .heads = 4, .context = 12, .vocab = 20};

#define LORA_GOLDEN(name, model)                                                                   \
    {                                                                                              \
        .path = "tests/golden/lora_" #name ".safetensors", .lora = &lora_##name, model,            \
        .input = {.dtype = WEIR_I64, .rank = 1, .shape = {12}},                                    \
        .output = {.dtype = WEIR_F64, .rank = 2, .shape = {12, 20}}, .rows = 4, .updates = 10,     \
        .optimizer = {WEIR_OPTIMIZER_SGD, 0.05, 0.0, 0.0, 0.0, 0.0, 0.8, false, false},            \
        .clip = 0.5, .length = 3 * (2 * (4 * 16 + 16 + 6 + 12 + 64 + 16 + 24) + 16 + 16) + 4 * 12  \
    }

/** The options that differ from DECODER's. */
static struct weir_decoder_options decoder_options(const struct golden *golden) {
    struct weir_decoder_options options = *golden->decoder;
    options.packed = golden->packed;
    if (golden->decoder == &mistral_options) options.window = 5, options.kv_heads = 1;
    if (golden->decoder == &qwen3_options) options.head_size = 6;
    if (golden->decoder != &llama_options) return options;
    options.rope_theta = 100;
    options.rope_factor = 4;
    options.rope_original = 16;
    return options;
}

static const struct golden adapted[] = {LORA_GOLDEN(llama, .decoder = &llama_options),
                                        LORA_GOLDEN(qwen2, .decoder = &qwen2_options),
                                        LORA_GOLDEN(gpt2, .gpt = &gpt2_options)};

static void add_layer(struct weir_model *model, const struct layer *layer) {
    struct weir_attr attrs[2];
    struct weir_attrs given = {0, attrs};
    char name_space[8] = "";
    const char *slash = strchr(layer->text, '/');
    if (strcmp(layer->type, "linear") == 0) {
        attrs[given.count++] = (struct weir_attr)WEIR_ATTR_INT("out_features", layer->out);
        attrs[given.count++] = (struct weir_attr)WEIR_ATTR_FLAG("bias", layer->text[0] == '\0');
    } else if (strcmp(layer->type, "gelu") == 0) {
        attrs[given.count++] = (struct weir_attr)WEIR_ATTR_TEXT("approximate", layer->text);
    } else if (layer->text[0] != '\0') {
        const char *name = slash == NULL ? layer->text : slash + 1;
        attrs[given.count++] = (struct weir_attr)WEIR_ATTR_TEXT("skip", name);
        if (slash != NULL) {
            snprintf(name_space, sizeof name_space, "%.*s", (int)(slash - layer->text),
                     layer->text);
            attrs[given.count++] = (struct weir_attr)WEIR_ATTR_TEXT("namespace", name_space);
        }
    }
    CHECK_OK(weir_model_add(model, layer->type, NULL, given, NULL));
}

static bool is_gpt(const struct golden *golden) {
    return golden->gpt == NULL && golden->layers == NULL && golden->json == NULL &&
           golden->decoder == NULL;
}

static struct weir_model *make_plain(const struct golden *golden) {
    struct weir_model *model = NULL;
    if (golden->gpt != NULL) {
        EXPECT_STATUS(weir_model_gpt(test_allocator(), golden->gpt, NULL, &model), WEIR_OK);
        return model;
    }
    if (golden->json != NULL) {
        EXPECT_STATUS(weir_model_read(test_allocator(), golden->json, NULL, &model), WEIR_OK);
        return model;
    }
    if (golden->decoder != NULL) {
        struct weir_decoder_options options = decoder_options(golden);
        EXPECT_STATUS(weir_model_decoder(test_allocator(), &options, NULL, &model), WEIR_OK);
        return model;
    }
    if (is_gpt(golden)) {
        struct weir_gpt_options options = {2, 16, 2, 8, 32, golden->tied, 0.0};
        if (golden->residual_layers > 0) {
            options.layers = golden->residual_layers;
            options.residual_block = 2;
        }
        EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &model), WEIR_OK);
        return model;
    }
    EXPECT_STATUS(
        weir_model_new(test_allocator(), &golden->input, &golden->target, golden->loss, &model),
        WEIR_OK);
    if (model != NULL) weir_model_ignore_index(model, 2);
    for (uint32_t i = 0; model != NULL && i < golden->layer_count; i++)
        add_layer(model, &golden->layers[i]);
    return model;
}

static struct weir_model *make_model(const struct golden *golden) {
    struct weir_model *model = make_plain(golden);
    if (model == NULL || golden->lora == NULL) return model;
    struct weir_lora lora = golden->lora->lora;
    lora.targets = golden->lora->targets;
    EXPECT_STATUS(weir_model_lora(model, &lora), WEIR_OK);
    return model;
}

/* ---- configurations ---- */

struct config {
    uint32_t stages, workers, chunks;
    const char *schedule;
    enum weir_checkpoint checkpoint;
    bool late, splits;
};

static uint32_t make_configs(struct config configs[CONFIGS_MAX]) {
    static const uint32_t chunks[] = {1, 2, 3, 5};
    static const char *const schedules[] = {"gpipe", "1f1b"};
    uint32_t count = 0;
    for (uint32_t stages = 1; stages <= 3; stages++)
        for (uint32_t c = 0; c < 4; c++)
            for (uint32_t s = 0; s < 2; s++)
                for (uint32_t mode = WEIR_CHECKPOINT_ALWAYS; mode <= WEIR_CHECKPOINT_NEVER;
                     mode++, count++)
                    configs[count] = (struct config){.stages = stages,
                                                     .workers = stages == 3 && c == 1 ? 2 : stages,
                                                     .chunks = chunks[c],
                                                     .schedule = schedules[s],
                                                     .checkpoint = (enum weir_checkpoint)mode,
                                                     .late = c == 2,
                                                     .splits = count % 2 == 1};
    return count;
}

/* A trial: one net on one configuration, with the file's parameters. */
struct trial {
    const struct golden *golden;
    struct weir__safetensors *file;
    enum weir_dtype dtype;
    double tolerance;
    struct weir_model *model;
    struct weir_net *net;
    char where[128];
};

static const struct weir__safetensor *find(const struct trial *trial, const char *prefix,
                                           const char *name) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const struct weir__safetensor *tensor = weir__safetensors_find(trial->file, full);
    if (tensor == NULL) TEST_FAIL("%s holds no %s", trial->golden->path, full);
    return tensor;
}

static double number(enum weir_dtype dtype, const void *data, size_t i) {
    double real;
    float single;
    if (dtype == WEIR_F64) {
        memcpy(&real, (const char *)data + i * sizeof real, sizeof real);
        return real;
    }
    memcpy(&single, (const char *)data + i * sizeof single, sizeof single);
    return (double)single;
}

/* Bytes of the file's tensor, at the dtype of the run if it is real. The caller's: free. */
static void *load(const struct trial *trial, const char *prefix, const char *name) {
    const struct weir__safetensor *tensor = find(trial, prefix, name);
    if (tensor == NULL) return NULL;
    size_t count = tensor->bytes / weir_dtype_bytes(tensor->dtype);
    void *data = malloc(tensor->bytes * 2 + 8);
    if (data == NULL || !weir_dtype_is_float(tensor->dtype)) {
        if (data != NULL) memcpy(data, tensor->data, tensor->bytes);
        return data;
    }
    for (size_t i = 0; i < count; i++) {
        double value = number(tensor->dtype, tensor->data, i);
        if (trial->dtype == WEIR_F64)
            ((double *)data)[i] = value;
        else
            ((float *)data)[i] = (float)value;
    }
    return data;
}

/* |have - want| <= tolerance |want|, in the 2-norm. */
static void compare(const struct trial *trial, const char *prefix, const char *name,
                    enum weir_dtype dtype, const void *have, double tolerance) {
    const struct weir__safetensor *want = find(trial, prefix, name);
    CHECK(want != NULL && have != NULL);
    size_t count = want->bytes / weir_dtype_bytes(want->dtype);
    double error = 0.0, norm = 0.0;
    for (size_t i = 0; i < count; i++) {
        double a = number(dtype, have, i), b = number(want->dtype, want->data, i);
        error += (a - b) * (a - b);
        norm += b * b;
    }
    if (!(sqrt(error) <= tolerance * sqrt(norm)))
        TEST_FAIL("%s: %s%s: relative error %.3g > %.3g", trial->where, prefix, name,
                  sqrt(error / norm), tolerance);
}

static void fill_parameters(struct trial *trial) {
    for (uint32_t i = 0; i < weir_net_parameter_count(trial->net); i++) {
        struct weir_parameter parameter;
        CHECK_OK(weir_net_parameter(trial->net, i, &parameter));
        const struct weir__safetensor *from = find(trial, "param.", parameter.name);
        CHECK(from != NULL);
        CHECK_EQ_UINT(from->rank, parameter.rank);
        for (uint32_t d = 0; d < from->rank; d++) CHECK_EQ_INT(from->shape[d], parameter.shape[d]);
        void *data = load(trial, "param.", parameter.name);
        memcpy(parameter.data, data, parameter.count * weir_dtype_bytes(parameter.dtype));
        free(data);
    }
    EXPECT_STATUS(weir_net_share(trial->net), WEIR_OK);
}

static void trial_begin(struct trial *trial, const struct config *config, bool training) {
    const struct golden *golden = trial->golden;
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    static char table[TRIAL_TABLE_BYTES];
    options.pipe.allocator = test_allocator();
    options.pipe.rows = golden->rows;
    options.pipe.chunks = config->chunks;
    options.pipe.workers = config->workers;
    options.pipe.schedule = config->schedule;
    options.pipe.checkpoint = config->checkpoint;
    options.pipe.recompute_late = config->late;
    options.pipe.threads_per_worker = 1;
    options.pipe.bind = "none";
    options.pipe.clip_norm = golden->clip;
    options.stages = config->stages;
    options.dtype = trial->dtype;
    options.input_grads = golden->input.dtype == WEIR_F32;
    options.optimizer = golden->optimizer;
    if (!training) options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    if (config->splits) trial_split(&options, 100, table);
    snprintf(trial->where, sizeof trial->where, "%s %s stages %u chunks %u %s %s%s%s", golden->path,
             weir_dtype_name(trial->dtype), config->stages, config->chunks, config->schedule,
             weir_checkpoint_name(config->checkpoint), config->late ? " late" : "",
             config->splits ? " split" : "");
    int status = weir_net_new(trial->model, &options, &faults, &trial->net);
    if (status != WEIR_OK)
        TEST_FAIL("%s: %s: %s", trial->where, weir_status_name(status),
                  faults.kept > 0 ? faults.lines[0] : "");
    weir_faults_clean_up(&faults);
    if (status == WEIR_OK) fill_parameters(trial);
}

static void trial_end(struct trial *trial) {
    weir_net_destroy(trial->net);
    trial->net = NULL;
}

/* ---- one mini-batch: loss, output, gradients ---- */

static size_t row_count(const struct weir_tensor *tensor) {
    size_t count = 1;
    for (uint32_t d = 0; d < tensor->rank; d++) count *= (size_t)tensor->shape[d];
    return count;
}

static void check_gradients(const struct trial *trial, const char *prefix) {
    for (uint32_t i = 0; i < weir_net_parameter_count(trial->net); i++) {
        struct weir_parameter parameter;
        CHECK_OK(weir_net_parameter(trial->net, i, &parameter));
        if (parameter.frozen) continue;
        compare(trial, prefix, parameter.name, trial->dtype, parameter.gradient, trial->tolerance);
    }
}

static void check_mini_batch(const struct trial *trial) {
    const struct golden *golden = trial->golden;
    struct weir_step_result result;
    size_t rows = (size_t)golden->rows;
    void *input = load(trial, "", "input.0"), *target = load(trial, "", "target.0");
    void *output = malloc(rows * row_count(&golden->output) * sizeof(double));
    void *grad = golden->input.dtype != WEIR_F32
                     ? NULL
                     : malloc(rows * row_count(&golden->input) * sizeof(double));
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = golden->rows;
    batch.input = input;
    batch.target = target;
    batch.output = output;
    batch.input_grad = grad;
    batch.no_update = true;
    if (EXPECT_STATUS(weir_net_step(trial->net, &batch, &result), WEIR_OK)) {
        compare(trial, "", "loss", WEIR_F64, &result.loss, trial->tolerance);
        compare(trial, "", "output", trial->dtype, output, trial->tolerance);
        if (grad != NULL) compare(trial, "grad.", "input", trial->dtype, grad, trial->tolerance);
        check_gradients(trial, "grad.");
    }
    free(input);
    free(target);
    free(output);
    free(grad);
}

/* ---- training ---- */

static uint32_t updates_of(const struct golden *golden) {
    return golden->updates > 0 ? golden->updates : UPDATES;
}

static void run_updates(const struct trial *trial, double *losses, double *norms) {
    const struct golden *golden = trial->golden;
    for (uint64_t k = 0; k < updates_of(golden); k++) {
        char input[16], target[16];
        struct weir_step_result result = {0};
        snprintf(input, sizeof input, "input.%u", (unsigned)k);
        snprintf(target, sizeof target, "target.%u", (unsigned)k);
        double lr = !is_gpt(golden) || golden->residual_layers > 0
                        ? -1.0
                        : weir_lr(WEIR_LR_COSINE, 0.01, 0.1, k, 2, 6);
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = golden->rows;
        batch.input = load(trial, "", input);
        batch.target = load(trial, "", target);
        batch.mini_batch = k;
        batch.update = k;
        batch.lr = lr;
        int status = weir_net_step(trial->net, &batch, &result);
        free((void *)batch.input);
        free((void *)batch.target);
        CHECK_OK(status);
        CHECK(result.updated);
        losses[k] = result.loss;
        norms[k] = result.gradient_norm;
    }
}

static void check_training(const struct trial *trial) {
    double losses[UPDATES_MAX], norms[UPDATES_MAX];
    double tolerance =
        trial->dtype == WEIR_F64 ? 1e-12 : updates_of(trial->golden) * trial->tolerance;
    run_updates(trial, losses, norms);
    CHECK_HELPERS();
    compare(trial, "", "losses", WEIR_F64, losses, tolerance);
    compare(trial, "", "norms", WEIR_F64, norms, tolerance);
    for (uint32_t i = 0; i < weir_net_parameter_count(trial->net); i++) {
        struct weir_parameter parameter;
        CHECK_OK(weir_net_parameter(trial->net, i, &parameter));
        if (parameter.frozen) continue;
        compare(trial, "after.", parameter.name, trial->dtype, parameter.data, tolerance);
    }
}

/* ---- running ---- */

typedef void check_fn(const struct trial *trial);

static void run(const struct golden *golden, enum weir_dtype dtype, bool training,
                check_fn *check) {
    struct config configs[CONFIGS_MAX];
    uint32_t count = make_configs(configs);
    struct trial trial = {.golden = golden, .dtype = dtype};
    trial.tolerance = dtype == WEIR_F64 ? 1e-12 : FLT_EPSILON * sqrt(golden->length);
    struct weir__io io = {.allocator = test_allocator()};
    CHECK_OK(weir__safetensors_open(&io, golden->path, NULL, &trial.file));
    trial.model = make_model(golden);
    uint32_t stride = training ? 5 : 1; /* of 72, prime to what they cycle through */
    for (uint32_t i = 0; trial.model != NULL && i < count && !test_has_failed(); i += stride) {
        trial_begin(&trial, &configs[i], training);
        if (trial.net != NULL && !test_has_failed()) check(&trial);
        trial_end(&trial);
    }
    weir_model_destroy(trial.model);
    weir__safetensors_close(trial.file);
}

// MB-7
static void test_gpt_gives_pytorchs_gradients(void) {
    run(&gpt, WEIR_F64, false, check_mini_batch);
    run(&gpt, WEIR_F32, false, check_mini_batch);
}

static void check_tied(const struct trial *trial) {
    struct weir_step_result result;
    void *input = load(trial, "", "input.0"), *target = load(trial, "", "target.0");
    void *output = malloc(5 * 8 * 32 * sizeof(double));
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = 5;
    batch.input = input;
    batch.target = target;
    batch.output = output;
    batch.no_update = true;
    if (EXPECT_STATUS(weir_net_step(trial->net, &batch, &result), WEIR_OK)) {
        compare(trial, "tied.", "output", trial->dtype, output, trial->tolerance);
        for (uint32_t i = 0; i < weir_net_parameter_count(trial->net); i++) {
            struct weir_parameter parameter;
            if (!EXPECT_STATUS(weir_net_parameter(trial->net, i, &parameter), WEIR_OK)) break;
            EXPECT(strcmp(parameter.name, "lm_head.weight") != 0);
            if (strcmp(parameter.name, "wte.weight") == 0 ||
                strcmp(parameter.name, "h.0.mlp.c_fc.weight") == 0)
                compare(trial, "tied.grad.", parameter.name, trial->dtype, parameter.gradient,
                        trial->tolerance);
        }
    }
    free(input);
    free(target);
    free(output);
}

// PI-4
static void test_tied_head_sums_both_gradients(void) {
    struct golden tied = gpt;
    tied.tied = true;
    run(&tied, WEIR_F64, false, check_tied);
    run(&tied, WEIR_F32, false, check_tied);
}

static void test_gpt_trains_as_pytorch_with_clipped_adamw(void) {
    run(&gpt, WEIR_F64, true, check_training);
    run(&gpt, WEIR_F32, true, check_training);
}

static void test_mixed_residuals_give_pytorchs_gradients(void) {
    run(&residual, WEIR_F64, false, check_mini_batch);
    run(&residual, WEIR_F32, false, check_mini_batch);
}

static void test_mixed_residuals_train_as_pytorch(void) {
    run(&residual, WEIR_F64, true, check_training);
    run(&residual, WEIR_F32, true, check_training);
}

// SK-7
static void test_crossing_skips_give_pytorchs_gradients(void) {
    run(&crossing, WEIR_F64, false, check_mini_batch);
    run(&crossing, WEIR_F32, false, check_mini_batch);
}

static void test_crossing_skips_train_as_pytorch_with_nesterov(void) {
    run(&crossing, WEIR_F64, true, check_training);
    run(&crossing, WEIR_F32, true, check_training);
}

static void test_nested_skips_give_pytorchs_gradients(void) {
    run(&nested, WEIR_F64, false, check_mini_batch);
    run(&nested, WEIR_F32, false, check_mini_batch);
}

static void test_nested_skips_train_as_pytorch_with_momentum(void) {
    run(&nested, WEIR_F64, true, check_training);
    run(&nested, WEIR_F32, true, check_training);
}

static void test_a_file_of_text_layers_gives_pytorchs_gradients(void) {
    run(&text, WEIR_F64, false, check_mini_batch);
    run(&text, WEIR_F32, false, check_mini_batch);
}

static void test_a_file_of_text_layers_trains_as_pytorch(void) {
    run(&text, WEIR_F64, true, check_training);
    run(&text, WEIR_F32, true, check_training);
}

static void test_a_file_of_image_layers_gives_pytorchs_gradients(void) {
    run(&image, WEIR_F64, false, check_mini_batch);
    run(&image, WEIR_F32, false, check_mini_batch);
}

static void test_a_file_of_image_layers_trains_as_pytorch(void) {
    run(&image, WEIR_F64, true, check_training);
    run(&image, WEIR_F32, true, check_training);
}

static void test_decoders_give_transformers_gradients(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(decoders); i++) {
        run(&decoders[i], WEIR_F64, false, check_mini_batch);
        run(&decoders[i], WEIR_F32, false, check_mini_batch);
    }
}

static void test_decoders_train_as_transformers(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(decoders); i++) {
        run(&decoders[i], WEIR_F64, true, check_training);
        run(&decoders[i], WEIR_F32, true, check_training);
    }
}

static void test_packed_decoders_give_transformers_gradients(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(packed); i++) {
        run(&packed[i], WEIR_F64, false, check_mini_batch);
        run(&packed[i], WEIR_F32, false, check_mini_batch);
    }
}

static void test_packed_decoders_train_as_transformers(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(packed); i++) {
        run(&packed[i], WEIR_F64, true, check_training);
        run(&packed[i], WEIR_F32, true, check_training);
    }
}

/* Stages below the first adapter have no backward, and every cut gives pefts numbers. */
static void test_adapters_give_pefts_gradients(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(adapted); i++) {
        run(&adapted[i], WEIR_F64, false, check_mini_batch);
        run(&adapted[i], WEIR_F32, false, check_mini_batch);
    }
}

static void test_adapters_train_as_pefts(void) {
    for (size_t i = 0; i < WEIR__COUNT_OF(adapted); i++) {
        run(&adapted[i], WEIR_F64, true, check_training);
        run(&adapted[i], WEIR_F32, true, check_training);
    }
}

static void test_a_file_of_convolutions_gives_pytorchs_gradients(void) {
    run(&convolutions, WEIR_F64, false, check_mini_batch);
    run(&convolutions, WEIR_F32, false, check_mini_batch);
}

static void test_a_file_of_convolutions_trains_as_pytorch(void) {
    run(&convolutions, WEIR_F64, true, check_training);
    run(&convolutions, WEIR_F32, true, check_training);
}

WEIR_TEST_SUITE(
    golden_nets, TEST(gpt_gives_pytorchs_gradients), TEST(tied_head_sums_both_gradients),
    TEST(gpt_trains_as_pytorch_with_clipped_adamw), TEST(mixed_residuals_give_pytorchs_gradients),
    TEST(mixed_residuals_train_as_pytorch), TEST(crossing_skips_give_pytorchs_gradients),
    TEST(crossing_skips_train_as_pytorch_with_nesterov), TEST(nested_skips_give_pytorchs_gradients),
    TEST(nested_skips_train_as_pytorch_with_momentum),
    TEST(a_file_of_text_layers_gives_pytorchs_gradients),
    TEST(a_file_of_text_layers_trains_as_pytorch),
    TEST(a_file_of_image_layers_gives_pytorchs_gradients),
    TEST(a_file_of_image_layers_trains_as_pytorch), TEST(decoders_give_transformers_gradients),
    TEST(decoders_train_as_transformers), TEST(packed_decoders_give_transformers_gradients),
    TEST(packed_decoders_train_as_transformers), TEST(adapters_give_pefts_gradients),
    TEST(adapters_train_as_pefts), TEST(a_file_of_convolutions_gives_pytorchs_gradients),
    TEST(a_file_of_convolutions_trains_as_pytorch))
