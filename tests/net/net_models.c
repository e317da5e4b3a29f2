/* SPDX-License-Identifier: MIT */
/* Models grow layer by layer; an image's size is kept track of, so that every layer fits. */
#include "net/net_models.h"
#include "harness.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SKIPS_MAX = 4, PARAMETRIC_MAX = 32, PATTERN_BYTES = 32 };

static bool coin(void) {
    return test_random_below(2) == 1;
}

static uint32_t between(uint32_t least, uint32_t most) {
    return least + (uint32_t)test_random_below(most - least + 1);
}

/* ---- what grows ---- */

/** A chain's vector is an image of one pixel. */
struct extent {
    int64_t channels, height, width;
};

struct open_skip {
    char name[8];
    bool read;
    struct extent extent;
};

struct sketch {
    struct weir_model *model;
    struct extent now;
    uint32_t open_count, made;
    struct open_skip open[SKIPS_MAX];
    char parametric[PARAMETRIC_MAX][PATTERN_BYTES]; /* names of parameters, in order */
    uint32_t parametric_count;
};

__attribute__((format(printf, 2, 3))) static void note(struct sketch *sketch, const char *format,
                                                       ...) {
    va_list list;
    if (sketch->parametric_count == PARAMETRIC_MAX) return;
    va_start(list, format);
    vsnprintf(sketch->parametric[sketch->parametric_count++], PATTERN_BYTES, format, list);
    va_end(list);
}

/** Of the layer that was added last. */
static void note_parameters(struct sketch *sketch) {
    note(sketch, "%u.*", weir_model_layer_count(sketch->model) - 1);
}

/** Whole ones, or what attention has and the rest apart. */
static void note_blocks(struct sketch *sketch, const char *list, const char *attention,
                        uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        bool whole = coin();
        note(sketch, whole ? "%s.%u.*" : "%s.%u.mlp*", list, i);
        if (!whole) note(sketch, "%s.%u.%s*", list, i, attention);
    }
}

static void add_stash(struct sketch *sketch) {
    if (sketch->open_count == SKIPS_MAX) return;
    struct open_skip *skip = &sketch->open[sketch->open_count++];
    snprintf(skip->name, sizeof skip->name, "s%u", sketch->made++);
    skip->read = false;
    skip->extent = sketch->now;
    trial_add_skip(sketch->model, "stash", skip->name, "");
}

/** Adds where the extents are equal, else joins; nothing where the skip is too small. */
static bool add_reader(struct sketch *sketch, bool pop) {
    if (sketch->open_count == 0) return false;
    uint32_t at = (uint32_t)test_random_below(sketch->open_count);
    struct open_skip *skip = &sketch->open[at];
    const struct extent *its = &skip->extent, *now = &sketch->now;
    if (its->height < now->height || its->width < now->width) return false;
    bool equal = memcmp(its, now, sizeof *now) == 0, concat = !equal || test_random_below(3) == 0;
    bool multiply = !concat && test_random_below(4) == 0;
    const char *type = concat     ? (pop ? "pop_concat" : "read_concat")
                       : multiply ? (pop ? "pop_multiply" : "read_multiply")
                       : pop      ? "pop_add"
                                  : "read_add";
    trial_add_skip(sketch->model, type, skip->name, "");
    if (concat)
        sketch->now = (struct extent){now->channels + its->channels, its->height, its->width};
    skip->read = true;
    if (pop) *skip = sketch->open[--sketch->open_count];
    return true;
}

/** Every skip needs a pop, or a read as its end. */
static void close_skips(struct sketch *sketch) {
    while (sketch->open_count > 0 && !test_has_failed()) {
        bool reads_only = sketch->open[sketch->open_count - 1].read && coin();
        if (reads_only) {
            sketch->open_count--;
            continue;
        }
        if (add_reader(sketch, true) || sketch->now.height * sketch->now.width == 1) continue;
        trial_add(sketch->model, "adaptive_avg_pool2d",
                  WEIR_ATTRS(WEIR_ATTR_INT("output_size", 1)));
        sketch->now.height = sketch->now.width = 1;
    }
}

static void add_activation(struct sketch *sketch) {
    static const char *const plain[] = {"relu", "silu", "sigmoid", "tanh", "gelu", "identity"};
    uint64_t pick = test_random_below(9);
    if (pick < 6)
        trial_add(sketch->model, plain[pick], WEIR_NO_ATTRS);
    else if (pick == 6)
        trial_add(sketch->model, "gelu", WEIR_ATTRS(WEIR_ATTR_TEXT("approximate", "tanh")));
    else if (pick == 7)
        trial_add(sketch->model, "leaky_relu",
                  WEIR_ATTRS(WEIR_ATTR_REAL("negative_slope", coin() ? 0.2 : 0.01)));
    else
        trial_add(sketch->model, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.25)));
}

/* ---- chains ---- */

static void add_linear(struct sketch *sketch, int64_t out) {
    trial_add(sketch->model, "linear",
              WEIR_ATTRS(WEIR_ATTR_INT("out_features", out), WEIR_ATTR_FLAG("bias", coin())));
    sketch->now.channels = out;
    note_parameters(sketch);
}

static void add_chain_layer(struct sketch *sketch) {
    uint64_t pick = test_random_below(11);
    if (pick < 3) {
        add_linear(sketch, sketch->now.channels);
    } else if (pick < 5) {
        add_stash(sketch);
    } else if (pick < 7) {
        add_reader(sketch, pick == 6);
    } else if (pick == 7) {
        trial_add(sketch->model, coin() ? "layer_norm" : "rms_norm", WEIR_NO_ATTRS);
        note_parameters(sketch);
    } else if (pick == 8) {
        trial_add(sketch->model, "softmax", WEIR_NO_ATTRS);
    } else {
        add_activation(sketch);
    }
}

static void random_chain(struct net_problem *problem, struct sketch *sketch) {
    int64_t width = between(1, 20);
    bool tokens = test_random_below(4) == 0, mse = coin();
    sketch->now = (struct extent){width, 1, 1};
    problem->input = (struct weir_tensor){.dtype = WEIR_F32, .rank = 1, .shape = {width}};
    if (tokens) problem->input = (struct weir_tensor){.dtype = WEIR_I64};
    problem->target = (struct weir_tensor){.dtype = WEIR_I64};
    if (mse)
        problem->target =
            (struct weir_tensor){.dtype = WEIR_F32, .rank = 1, .shape = {problem->labels}};
    sketch->model = trial_model(problem->input, problem->target, mse ? "mse" : "cross_entropy");
    if (tokens) {
        trial_add(sketch->model, "embedding",
                  WEIR_ATTRS(WEIR_ATTR_INT("num_embeddings", problem->classes),
                             WEIR_ATTR_INT("embedding_dim", width)));
        note_parameters(sketch);
    }
    for (uint32_t i = between(3, 14); i > 0; i--) add_chain_layer(sketch);
    close_skips(sketch);
    add_linear(sketch, problem->labels);
    if (coin()) trial_add(sketch->model, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.1)));
}

static void random_gpt(struct net_problem *problem, struct sketch *sketch) {
    struct weir_gpt_options options = WEIR_GPT_OPTIONS_INIT;
    options.layers = between(1, 3);
    options.heads = between(1, 3);
    options.width = options.heads * between(1, 6);
    options.context = between(1, 6);
    options.vocab = between(3, 11);
    options.dropout = coin() ? 0.2 : 0;
    options.tied = coin();
    if (test_random_below(3) == 0) options.residual_block = between(1, 2);
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &sketch->model), WEIR_OK);
    note(sketch, "wte.*");
    note(sketch, "wpe.*");
    note_blocks(sketch, "h", "attn", options.layers);
    if (options.residual_block > 0) note(sketch, "final_res*");
    note(sketch, "ln_f.*");
    if (!options.tied) note(sketch, "lm_head.*");
    problem->input =
        (struct weir_tensor){.dtype = WEIR_I64, .rank = 1, .shape = {(int64_t)options.context}};
    problem->target = problem->input;
    problem->classes = problem->labels = options.vocab;
}

/** Heads that share keys, a window, norms and biases or not; where `packs`, rows of several
 * documents or not. */
static void random_decoder(struct net_problem *problem, struct sketch *sketch, bool packs) {
    struct weir_decoder_options options = WEIR_DECODER_OPTIONS_INIT;
    options.layers = between(1, 3);
    options.kv_heads = between(1, 2);
    options.heads = options.kv_heads * between(1, 3);
    options.head_size = 2 * between(1, 4);
    options.width = between(1, 20);
    options.inner = between(1, 20);
    options.context = between(1, 40);
    options.vocab = between(3, 11);
    options.window = coin() ? between(1, 12) : 0;
    options.qkv_bias = coin();
    options.qk_norm = coin();
    options.tied = coin();
    options.packed = problem->packed = packs && test_random_below(3) != 0;
    EXPECT_STATUS(weir_model_decoder(test_allocator(), &options, NULL, &sketch->model), WEIR_OK);
    note(sketch, "model.embed_tokens.*");
    note_blocks(sketch, "model.layers", "self_attn", options.layers);
    note(sketch, "model.norm.*");
    if (!options.tied) note(sketch, "lm_head.*");
    problem->target =
        (struct weir_tensor){.dtype = WEIR_I64, .rank = 1, .shape = {(int64_t)options.context}};
    problem->input = problem->target;
    if (options.packed)
        problem->input = (struct weir_tensor){
            .dtype = WEIR_I64, .rank = 2, .shape = {2, (int64_t)options.context}};
    problem->classes = problem->labels = options.vocab;
}

struct weir_model *net_small_gpt(uint32_t width, uint32_t context, uint32_t vocab) {
    struct weir_gpt_options options = {2, width, 2, context, vocab, false, 0.2, 0};
    struct weir_model *model = NULL;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

struct weir_model *net_small_decoder(uint32_t layers, uint32_t width, uint32_t inner,
                                     uint32_t context, uint32_t vocab) {
    struct weir_decoder_options options = WEIR_DECODER_OPTIONS_INIT;
    struct weir_model *model = NULL;
    options.layers = layers;
    options.width = width;
    options.inner = inner;
    options.heads = 2;
    options.kv_heads = 1;
    options.head_size = width / 2;
    options.context = context;
    options.vocab = vocab;
    options.tied = options.qkv_bias = true;
    EXPECT_STATUS(weir_model_decoder(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

/* ---- image nets ---- */

static void add_conv(struct sketch *sketch) {
    int64_t groups = sketch->now.channels % 2 == 0 && test_random_below(4) == 0 ? 2 : 1;
    int64_t out = groups * between(1, 6), side = coin() ? 3 : 1;
    int64_t stride = sketch->now.height >= 4 && test_random_below(4) == 0 ? 2 : 1;
    trial_add(sketch->model, "conv2d",
              WEIR_ATTRS(WEIR_ATTR_INT("out_channels", out), WEIR_ATTR_INT("kernel_size", side),
                         WEIR_ATTR_INT("padding", side / 2), WEIR_ATTR_INT("stride", stride),
                         WEIR_ATTR_INT("groups", groups), WEIR_ATTR_FLAG("bias", coin())));
    sketch->now.channels = out;
    sketch->now.height = (sketch->now.height - 1) / stride + 1;
    sketch->now.width = (sketch->now.width - 1) / stride + 1;
    note_parameters(sketch);
}

static void add_transposed(struct sketch *sketch) {
    struct extent *now = &sketch->now;
    int64_t groups = now->channels % 2 == 0 && test_random_below(3) == 0 ? 2 : 1;
    int64_t out = groups * between(1, 4), stride = now->height * now->width <= 36 ? 2 : 1;
    bool odd = stride == 2 && coin();
    trial_add(sketch->model, "conv_transpose2d",
              WEIR_ATTRS(WEIR_ATTR_INT("out_channels", out), WEIR_ATTR_INT("kernel_size", 3),
                         WEIR_ATTR_INT("padding", 1), WEIR_ATTR_INT("stride", stride),
                         WEIR_ATTR_PAIR("output_padding", odd, 0), WEIR_ATTR_INT("groups", groups),
                         WEIR_ATTR_FLAG("bias", coin())));
    now->channels = out;
    now->height = (now->height - 1) * stride + 1 + odd;
    now->width = (now->width - 1) * stride + 1;
    note_parameters(sketch);
}

/** Of a row, or of a micro-batch, which may have one row. */
static void add_norm(struct sketch *sketch) {
    bool affine = coin();
    if (sketch->now.height * sketch->now.width == 1) return;
    trial_add(sketch->model, coin() ? "instance_norm2d" : "batch_norm2d",
              WEIR_ATTRS(WEIR_ATTR_FLAG("affine", affine)));
    if (affine) note_parameters(sketch);
}

/** The U-Net's unit, which is fused where a stage holds it whole. */
static void add_unit(struct sketch *sketch) {
    add_conv(sketch);
    if (sketch->now.height * sketch->now.width == 1) return;
    if (coin()) trial_add(sketch->model, "dropout2d", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.3)));
    trial_add(sketch->model, "instance_norm2d", WEIR_NO_ATTRS);
    trial_add(sketch->model, "leaky_relu", WEIR_NO_ATTRS);
}

static void add_resizing(struct sketch *sketch) {
    struct extent *now = &sketch->now;
    if (now->height >= 2 && now->width >= 2 && test_random_below(3) != 0) {
        trial_add(sketch->model, coin() ? "max_pool2d" : "avg_pool2d",
                  WEIR_ATTRS(WEIR_ATTR_INT("kernel_size", 2)));
        now->height /= 2;
        now->width /= 2;
    } else if (now->height * now->width <= 36) {
        trial_add(sketch->model, "upsample", WEIR_ATTRS(WEIR_ATTR_INT("scale_factor", 2)));
        now->height *= 2;
        now->width *= 2;
    }
}

static void add_image_layer(struct sketch *sketch) {
    switch (test_random_below(11)) {
    case 0: add_conv(sketch); break;
    case 1:
    case 2: add_unit(sketch); break;
    case 3: add_norm(sketch); break;
    case 4:
    case 5: add_stash(sketch); break;
    case 6: add_reader(sketch, false); break;
    case 7: add_reader(sketch, true); break;
    case 8: add_resizing(sketch); break;
    case 9: add_transposed(sketch); break;
    default: add_activation(sketch); break;
    }
}

static void random_image(struct net_problem *problem, struct sketch *sketch) {
    struct extent *now = &sketch->now;
    *now = (struct extent){between(1, 5), between(3, 9), between(3, 9)};
    problem->input = (struct weir_tensor){
        .dtype = WEIR_F32, .rank = 3, .shape = {now->channels, now->height, now->width}};
    problem->target = (struct weir_tensor){.dtype = WEIR_I64};
    sketch->model = trial_model(problem->input, problem->target, "cross_entropy");
    for (uint32_t i = between(3, 12); i > 0; i--) add_image_layer(sketch);
    close_skips(sketch);
    if (coin())
        trial_add(sketch->model, "adaptive_avg_pool2d",
                  WEIR_ATTRS(WEIR_ATTR_PAIR("output_size", 2, 1)));
    trial_add(sketch->model, "flatten", WEIR_NO_ATTRS);
    add_linear(sketch, problem->labels);
}

/* ---- all ---- */

/** Some parameters, or all but the last's: then whole stages have nothing to learn. */
static void freeze_some(const struct sketch *sketch) {
    bool prefix = coin();
    for (uint32_t i = 0; i + 1 < sketch->parametric_count; i++) {
        if (!prefix && coin()) continue;
        EXPECT_STATUS(weir_model_freeze(sketch->model, sketch->parametric[i]), WEIR_OK);
    }
}

static void init_problem(struct net_problem *problem, bool packs) {
    struct sketch sketch = {0};
    memset(problem, 0, sizeof *problem);
    problem->classes = 7;
    problem->labels = between(2, 9);
    switch (test_random_below(6)) {
    case 0: random_gpt(problem, &sketch); break;
    case 1:
    case 2: random_chain(problem, &sketch); break;
    case 3: random_decoder(problem, &sketch, packs); break;
    default: random_image(problem, &sketch); break;
    }
    if (sketch.model != NULL && test_random_below(3) == 0) freeze_some(&sketch);
    problem->model = sketch.model;
}

void net_problem_init(struct net_problem *problem) {
    init_problem(problem, true);
}

void net_problem_init_for_gpus(struct net_problem *problem) {
    init_problem(problem, false);
}

void net_problem_print(const struct net_problem *problem, uint32_t stages,
                       const uint32_t *balance) {
    uint32_t count = weir_model_layer_count(problem->model);
    for (uint32_t stage = 0, begin = 0, layer = 0; layer < count; layer++) {
        const char *type = "", *name;
        struct weir_attrs attrs;
        for (; balance != NULL && layer == begin + balance[stage] && stage + 1 < stages; stage++)
            begin += balance[stage];
        weir_model_layer(problem->model, layer, &type, &name, &attrs);
        if (balance != NULL) printf("  stage %u:", stage);
        printf("  %u %s %s\n", layer, type,
               attrs.count > 0 && attrs.list[0].text != NULL ? attrs.list[0].text : "");
    }
}
