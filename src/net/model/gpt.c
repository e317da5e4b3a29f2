/* SPDX-License-Identifier: MIT */
/*
 * GPT-2 (Radford et al., 2019) as three composite layers: embedding, blocks, head. Parameters carry
 * the names and shapes of the Hugging Face export, whose products hold their weights [in, out]; the
 * head's is a Linear, [out, in], and so may be the token embedding itself.
 */
#include "net/model/gpt.h"

#include <math.h>

static const double eps = 1e-5;
static const struct weir_init one = {WEIR_INIT_ONE, 0};
static const struct weir_init zero = {WEIR_INIT_ZERO, 0};
static const struct weir_init weights = {WEIR_INIT_NORMAL, 0.02};

static struct weir_value *norm(struct weir_builder *b, struct weir_value *x,
                               const char *weight_name, const char *bias_name) {
    assert(weight_name != NULL && bias_name != NULL);
    if (x == NULL) return NULL;
    int64_t width = weir__value_width(x);
    struct weir_value *weight = weir_parameter(b, weight_name, 1, &width, one);
    struct weir_value *bias = weir_parameter(b, bias_name, 1, &width, zero);
    return weir_layer_norm(b, x, weight, bias, eps);
}

/** GPT-2's Conv1D. */
static struct weir_value *product(struct weir_builder *b, struct weir_value *x, int64_t out,
                                  const char *weight_name, const char *bias_name,
                                  struct weir_init init) {
    assert(out >= 1 && weight_name != NULL && bias_name != NULL);
    if (x == NULL) return NULL;
    int64_t shape[] = {weir__value_width(x), out};
    struct weir_value *weight = weir_parameter(b, weight_name, 2, shape, init);
    struct weir_value *bias = weir_parameter(b, bias_name, 1, &out, zero);
    return weir_linear(b, x, weight, bias, true);
}

/* ---- embedding ---- */

static const struct weir_attr_rule embedding_attrs[] = {WEIR__SIZE("vocab"), WEIR__SIZE("context"),
                                                        WEIR__SIZE("width"), WEIR__GPT_DROPOUT};

struct weir_value *weir__gpt_embed(struct weir_builder *b, const struct weir_layer *layer,
                                   struct weir_value *x) {
    int64_t width = weir_layer_int(layer, "width");
    int64_t tokens[] = {weir_layer_int(layer, "vocab"), width};
    int64_t places[] = {weir_layer_int(layer, "context"), width};
    struct weir_value *wte = weir_parameter(b, "wte.weight", 2, tokens, weights);
    struct weir_value *wpe = weir_parameter(b, "wpe.weight", 2, places, weights);
    struct weir_value *h = weir_position_add(b, weir_embedding(b, x, wte), wpe);
    return weir_dropout(b, h, weir_layer_real(layer, "dropout"));
}

/* ---- block ---- */

static const struct weir_attr_rule block_attrs[] = {WEIR__SIZE("width"), WEIR__SIZE("heads"),
                                                    WEIR__GPT_DROPOUT, WEIR__GPT_LAYERS};

/** Of the projections that end sublayers. */
static struct weir_init residual_init(const struct weir_layer *layer) {
    double layers = (double)weir_layer_int(layer, "layers");
    return (struct weir_init){WEIR_INIT_NORMAL, 0.02 / sqrt(2 * layers)};
}

struct weir_value *weir__gpt_attend(struct weir_builder *b, const struct weir_layer *layer,
                                    struct weir_value *x) {
    int64_t width = weir_layer_int(layer, "width"), heads = weir_layer_int(layer, "heads");
    struct weir_init residual = residual_init(layer);
    struct weir_value *h = norm(b, x, "ln_1.weight", "ln_1.bias");
    h = product(b, h, 3 * width, "attn.c_attn.weight", "attn.c_attn.bias", weights);
    h = weir_attention(b, h, heads, true);
    h = product(b, h, width, "attn.c_proj.weight", "attn.c_proj.bias", residual);
    return weir_dropout(b, h, weir_layer_real(layer, "dropout"));
}

struct weir_value *weir__gpt_mlp(struct weir_builder *b, const struct weir_layer *layer,
                                 struct weir_value *x) {
    int64_t width = weir_layer_int(layer, "width");
    struct weir_init residual = residual_init(layer);
    struct weir_value *h = norm(b, x, "ln_2.weight", "ln_2.bias");
    h = product(b, h, 4 * width, "mlp.c_fc.weight", "mlp.c_fc.bias", weights);
    h = weir_gelu(b, h, true);
    h = product(b, h, width, "mlp.c_proj.weight", "mlp.c_proj.bias", residual);
    return weir_dropout(b, h, weir_layer_real(layer, "dropout"));
}

static struct weir_value *build_block(struct weir_builder *b, const struct weir_layer *layer,
                                      struct weir_value *x) {
    if (!weir__layer_has_width(b, layer, x)) return NULL;
    x = weir_sum(b, x, weir__gpt_attend(b, layer, x));
    return weir_sum(b, x, weir__gpt_mlp(b, layer, x));
}

/* ---- head ---- */

static const struct weir_attr_rule head_attrs[] = {
    WEIR__SIZE("width"), WEIR__SIZE("vocab"), {.key = "tied", .kind = WEIR_ATTR_KIND_FLAG}};

struct weir_value *weir__gpt_predict(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    int64_t shape[] = {weir_layer_int(layer, "vocab"), weir_layer_int(layer, "width")};
    if (!weir__layer_has_width(b, layer, x)) return NULL;
    struct weir_value *h = norm(b, x, "ln_f.weight", "ln_f.bias");
    struct weir_value *weight = weir_layer_flag(layer, "tied")
                                    ? weir_tied_parameter(b, "wte.weight")
                                    : weir_parameter(b, "lm_head.weight", 2, shape, weights);
    if (weight == NULL) return NULL;
    if (weight->shape[0] != shape[0] || weight->shape[1] != shape[1])
        return weir_builder_fail(b, WEIR_ERR_SHAPE,
                                 "it is tied to a token embedding [%lld, %lld], not [%lld, %lld]",
                                 (long long)weight->shape[0], (long long)weight->shape[1],
                                 (long long)shape[0], (long long)shape[1]);
    return weir_linear(b, h, weight, NULL, false);
}

const struct weir_layer_type weir__layer_gpt_embedding = {
    .name = "gpt_embedding",
    WEIR__ATTRS(embedding_attrs),
    .prefix = WEIR_PREFIX_NONE,
    .composite = true,
    .build = weir__gpt_embed,
    .input = "tokens (i64)",
    .output = "tokens, width",
    .about = "the sum of token and position embeddings, and its dropout: GPT-2's wte and wpe"};
const struct weir_layer_type weir__layer_gpt_block = {
    .name = "gpt_block",
    WEIR__ATTRS(block_attrs),
    .prefix = WEIR_PREFIX_ORDINAL,
    .composite = true,
    .build = build_block,
    .input = "tokens, width",
    .output = "tokens, width",
    .about = "GPT-2's block: attention and MLP, each behind a LayerNorm and beside a residual"};
const struct weir_layer_type weir__layer_gpt_head = {
    .name = "gpt_head",
    WEIR__ATTRS(head_attrs),
    .prefix = WEIR_PREFIX_NONE,
    .composite = true,
    .build = weir__gpt_predict,
    .input = "tokens, width",
    .output = "tokens, vocab",
    .about = "GPT-2's last LayerNorm and head; tied: the token embedding is its weight"};

/* ---- the model ---- */

static bool check_options(const struct weir_gpt_options *options, struct weir_faults *faults) {
    uint32_t before = faults == NULL ? 0 : faults->count;
    bool good = options->layers >= 1 && options->width >= 1 && options->heads >= 1 &&
                options->context >= 1 && options->vocab >= 1;
    if (!good)
        weir_faults_add(faults, "--layers, --width, --heads, --context and --vocab must be at "
                                "least 1: leave them away for the defaults");
    if (options->heads >= 1 && options->width % options->heads != 0) {
        uint32_t below = options->width - options->width % options->heads;
        weir_faults_add(faults, "--width %u is not a multiple of --heads %u: give --width %u",
                        options->width, options->heads, below > 0 ? below : options->heads);
        good = false;
    }
    if (!(options->dropout >= 0 && options->dropout < 1)) {
        weir_faults_add(faults, "--dropout is %g, but must be from 0 to below 1", options->dropout);
        good = false;
    }
    uint32_t block = options->residual_block, layers = options->layers;
    uint32_t blocks = block == 0 || layers == 0 ? 0 : (layers - 1) / block + 1;
    if (blocks >= WEIR__SOURCES_MAX) {
        weir_faults_add(faults,
                        "--residual-block %u makes %u blocks of %u layers, but %d are the most: "
                        "give --residual-block %u or more",
                        block, blocks, layers, WEIR__SOURCES_MAX - 1,
                        (layers - 1) / (WEIR__SOURCES_MAX - 1) + 1);
        good = false;
    }
    assert(good || faults == NULL || faults->count > before);
    (void)before;
    return good;
}

/** One of the list's types, or its kin whose residuals are mixed; that takes all attributes, the
 * other one leaves the last `more` away. */
static int add_layer(struct weir_model *model, const struct weir_gpt_options *options,
                     const char *type, const char *mixed_type, uint32_t count, uint32_t more,
                     const struct weir_attr *attrs, struct weir_faults *faults) {
    bool mixed = options->residual_block > 0;
    assert(more <= count);
    return weir_model_add(model, mixed ? mixed_type : type, NULL,
                          (struct weir_attrs){mixed ? count : count - more, attrs}, faults);
}

static int add_layers(struct weir_model *model, const struct weir_gpt_options *options,
                      struct weir_faults *faults) {
    struct weir_attr residual = WEIR_ATTR_INT("residual_block", options->residual_block);
    struct weir_attr layers = WEIR_ATTR_INT("layers", options->layers);
    struct weir_attr width = WEIR_ATTR_INT("width", options->width);
    struct weir_attr vocab = WEIR_ATTR_INT("vocab", options->vocab);
    struct weir_attr dropout = WEIR_ATTR_REAL("dropout", options->dropout);
    struct weir_attr embedding[] = {vocab, WEIR_ATTR_INT("context", options->context), width,
                                    dropout};
    struct weir_attr block[] = {width, WEIR_ATTR_INT("heads", options->heads), dropout, layers,
                                residual};
    struct weir_attr head[] = {width, vocab, WEIR_ATTR_FLAG("tied", options->tied), layers,
                               residual};
    int status = add_layer(model, options, "gpt_embedding", "gpt_residual_embedding",
                           WEIR__COUNT_OF(embedding), 0, embedding, faults);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < options->layers; i++) {
        status = add_layer(model, options, "gpt_block", "gpt_residual_block", WEIR__COUNT_OF(block),
                           1, block, faults);
        if (status != WEIR_OK) return status;
    }
    return add_layer(model, options, "gpt_head", "gpt_residual_head", WEIR__COUNT_OF(head), 2, head,
                     faults);
}

int weir_model_gpt(const struct weir_allocator *allocator, const struct weir_gpt_options *options,
                   struct weir_faults *faults, struct weir_model **model) {
    assert(options != NULL && model != NULL);
    if (!check_options(options, faults)) return WEIR_ERR_ARGUMENT;
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {options->context}};
    struct weir_model *made;
    int status = weir_model_new(allocator, &tokens, &tokens, "cross_entropy", &made);
    if (status != WEIR_OK) return status;
    status = add_layers(made, options, faults);
    if (status != WEIR_OK) {
        weir_model_destroy(made);
        return status;
    }
    *model = made;
    return WEIR_OK;
}
