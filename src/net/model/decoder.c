/* SPDX-License-Identifier: MIT */
/*
 * Today's decoders of text: RMSNorm, rotary positions, grouped-query attention and SwiGLU, as Llama
 * (Touvron et al., 2023), Mistral, Qwen 2.5 and Qwen 3 have them. Parameters carry the names and
 * shapes of Hugging Face's transformers, and numbers are computed in their order.
 *
 * Packed rows, of several documents each (net/kernel.h), come as the model's input [2, T]: tokens,
 * and where each one's document begins. So one tensor says all of a row, wherever rows come from
 * and go to. The first layer stashes it as it is, a skip without a gradient, and every block reads
 * it: within its stage for nothing, elsewhere as one portal of 16 bytes per token, where a border
 * has 4 bytes times the width. (An input of its own for every stage would want its data on every
 * rank, and a third pointer in every call that takes a mini-batch.)
 */
#include "net/model/layer.h"

#include "net/model/network.h"
#include "net/scalar.h"
#include "weir_models.h"

#include <math.h>
#include <stdio.h>

static const struct weir_init one = {WEIR_INIT_ONE, 0};
static const struct weir_init zero = {WEIR_INIT_ZERO, 0};
static const struct weir_init weights = {WEIR_INIT_NORMAL, 0.02};

/* ---- positions ---- */

static float scaled_frequency(const struct weir_layer *layer, float plain) {
    double original = (double)weir_layer_int(layer, "rope_original");
    double factor = weir_layer_real(layer, "rope_factor");
    if (original == 0) return (float)(plain / factor);
    double low = weir_layer_real(layer, "rope_low"), high = weir_layer_real(layer, "rope_high");
    double turns = original * plain / (2 * 3.14159265358979323846);
    if (turns > high) return plain;
    if (turns < low) return (float)(plain / factor);
    double share = (turns - low) / (high - low);
    return (float)((1 - share) * plain / factor + share * plain);
}

/** Radians per token of each pair of a head's numbers, in the network's pool; NULL without memory.
 */
static const float *frequencies_of(struct weir_builder *b, const struct weir_layer *layer,
                                   int64_t size) {
    assert(size >= 2 && size % 2 == 0);
    double theta = weir_layer_real(layer, "rope_theta");
    float *list = weir__pool_take(&b->network->pool, (size_t)(size / 2), sizeof *list);
    if (list == NULL) {
        weir_builder_fail(b, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
        return NULL;
    }
    for (int64_t i = 0; i < size / 2; i++) {
        double exponent = (double)(2 * i) / (double)size;
        list[i] = scaled_frequency(layer, (float)weir__exp(-exponent * weir__log(theta)));
    }
    return list;
}

/** What turns queries and keys. */
struct positions {
    const float *frequencies;
    struct weir_value *documents; /**< NULL: rows are whole */
};

/* ---- packed rows ---- */

static const char documents_skip[] = "documents";

static bool embedding_skip(const struct weir_layer *layer, uint32_t i, struct weir_skip_use *use,
                           char text[32]) {
    (void)layer;
    (void)text;
    *use =
        (struct weir_skip_use){.verb = WEIR_SKIP_STASH, .name = documents_skip, .name_space = ""};
    return i == 0;
}

static bool block_skip(const struct weir_layer *layer, uint32_t i, struct weir_skip_use *use,
                       char text[32]) {
    (void)text;
    *use = (struct weir_skip_use){.verb = WEIR_SKIP_READ, .name = documents_skip, .name_space = ""};
    return i == 0 && weir_layer_flag(layer, "packed");
}

static const struct weir_attr_rule embedding_attrs[] = {
    WEIR__SIZE("num_embeddings"),
    WEIR__SIZE("embedding_dim"),
    WEIR__INIT_STD,
};

/** Texts that are continued come token by token. Their input is stashed and read all the same: a
 * layer does what its type says. */
static struct weir_value *build_embedding(struct weir_builder *b, const struct weir_layer *layer,
                                          struct weir_value *x) {
    int64_t shape[] = {weir_layer_int(layer, "num_embeddings"),
                       weir_layer_int(layer, "embedding_dim")};
    struct weir_init init = {WEIR_INIT_NORMAL, weir_layer_real(layer, "init_std")};
    struct weir_value *table = weir_parameter(b, "weight", 2, shape, init);
    weir_stash(b, "", documents_skip, x);
    return b->network->sequences > 0 ? weir_embedding(b, x, table)
                                     : weir__packed_embedding(b, x, table);
}

bool weir__model_is_packed(const struct weir_model *model) {
    return model->layer_count > 0 && model->layers[0]->type == &weir__layer_packed_embedding &&
           model->input.rank == 2;
}

const struct weir_layer_type weir__layer_packed_embedding = {
    .name = "packed_embedding",
    WEIR__ATTRS(embedding_attrs),
    .skip_at = embedding_skip,
    .build = build_embedding,
    .input = "2, tokens (i64)",
    .output = "tokens, embedding_dim",
    .about = "an embedding of rows of several documents: tokens, then for each the place in the "
             "row of its document's first; it stashes them as 'documents' for packed blocks"};

/** The skip, where the block's rows are packed. */
static struct weir_value *documents_of(struct weir_builder *b, const struct weir_layer *layer,
                                       const struct weir_value *x) {
    if (!weir_layer_flag(layer, "packed")) return NULL;
    struct weir_value *documents = weir_read(b, "", documents_skip);
    char text[96];
    if (documents == NULL || b->network->sequences > 0) return NULL;
    struct weir_tensor tensor = weir_value_tensor(documents);
    if (documents->dtype == WEIR_I64 && documents->rank == 2 && documents->shape[0] == 2 &&
        documents->shape[1] == x->shape[0])
        return documents;
    return weir_builder_fail(b, WEIR_ERR_SHAPE,
                             "the skip '%s' of packed rows is i64 [2, %lld], not %s: begin the "
                             "model with a packed_embedding",
                             documents_skip, (long long)x->shape[0],
                             weir__tensor_text(&tensor, text, sizeof text));
}

/* ---- the block ---- */

static const struct weir_attr_rule block_attrs[] = {
    WEIR__SIZE("width"),
    WEIR__SIZE("inner"),
    WEIR__SIZE("heads"),
    WEIR__SIZE("kv_heads"),
    WEIR__SIZE("head_size"),
    {.key = "window", .kind = WEIR_ATTR_KIND_INT},
    {.key = "eps", .kind = WEIR_ATTR_KIND_REAL, .real = 1e-6, .below = 1},
    {.key = "qkv_bias", .kind = WEIR_ATTR_KIND_FLAG},
    {.key = "bias", .kind = WEIR_ATTR_KIND_FLAG},
    {.key = "mlp_bias", .kind = WEIR_ATTR_KIND_FLAG},
    {.key = "qk_norm", .kind = WEIR_ATTR_KIND_FLAG},
    {.key = "rope_theta", .kind = WEIR_ATTR_KIND_REAL, .real = 10000, .below = 1e30},
    {.key = "rope_factor", .kind = WEIR_ATTR_KIND_REAL, .real = 1, .below = 1e30},
    {.key = "rope_low", .kind = WEIR_ATTR_KIND_REAL, .real = 1, .below = 1e30},
    {.key = "rope_high", .kind = WEIR_ATTR_KIND_REAL, .real = 4, .below = 1e30},
    {.key = "rope_original", .kind = WEIR_ATTR_KIND_INT},
    {.key = "packed", .kind = WEIR_ATTR_KIND_FLAG},
};

static struct weir_value *norm(struct weir_builder *b, const struct weir_layer *layer,
                               struct weir_value *x, const char *name) {
    if (x == NULL) return NULL;
    int64_t width = weir__value_width(x);
    struct weir_value *weight = weir_parameter(b, name, 1, &width, one);
    return weir_rms_norm(b, x, weight, weir_layer_real(layer, "eps"));
}

/** A product by the parameter "`name`.weight", with "`name`.bias" if `biased`. */
static struct weir_value *product(struct weir_builder *b, struct weir_value *x, int64_t out,
                                  const char *name, bool biased) {
    char text[64];
    if (x == NULL) return NULL;
    int64_t shape[] = {out, weir__value_width(x)};
    snprintf(text, sizeof text, "%s.weight", name);
    struct weir_value *weight = weir_parameter(b, text, 2, shape, weights), *bias = NULL;
    snprintf(text, sizeof text, "%s.bias", name);
    if (biased) bias = weir_parameter(b, text, 1, &out, zero);
    return weight == NULL ? NULL : weir_linear(b, x, weight, bias, false);
}

/** Queries or keys: with the norm of each head, if there is one, and turned. */
static struct weir_value *turned(struct weir_builder *b, const struct weir_layer *layer,
                                 struct weir_value *x, int64_t heads, const char *norm_name,
                                 const struct positions *positions) {
    if (x == NULL || positions->frequencies == NULL) return NULL;
    if (weir_layer_flag(layer, "qk_norm")) {
        int64_t tokens = x->shape[0], size = weir_layer_int(layer, "head_size");
        x = weir_reshape(b, x, 3, (int64_t[]){tokens, heads, size});
        x = norm(b, layer, x, norm_name);
        x = weir_reshape(b, x, 2, (int64_t[]){tokens, heads * size});
    }
    return weir__rope(b, x, heads, positions->frequencies, positions->documents);
}

static struct weir_value *attend(struct weir_builder *b, const struct weir_layer *layer,
                                 struct weir_value *x) {
    int64_t size = weir_layer_int(layer, "head_size");
    const struct positions positions = {frequencies_of(b, layer, size), documents_of(b, layer, x)};
    const struct weir__grouping grouping = {.heads = weir_layer_int(layer, "heads"),
                                            .kv_heads = weir_layer_int(layer, "kv_heads"),
                                            .reach = weir_layer_int(layer, "window"),
                                            .documents = positions.documents};
    int64_t kv_width = grouping.kv_heads * size;
    bool all_biased = weir_layer_flag(layer, "bias");
    bool biased = all_biased || weir_layer_flag(layer, "qkv_bias");
    struct weir_value *q = product(b, x, grouping.heads * size, "self_attn.q_proj", biased);
    struct weir_value *k = product(b, x, kv_width, "self_attn.k_proj", biased);
    struct weir_value *v = product(b, x, kv_width, "self_attn.v_proj", biased);
    q = turned(b, layer, q, grouping.heads, "self_attn.q_norm.weight", &positions);
    k = turned(b, layer, k, grouping.kv_heads, "self_attn.k_norm.weight", &positions);
    if (q == NULL || k == NULL || v == NULL) return NULL;
    struct weir_value *y = weir__grouped_attention(b, q, k, v, &grouping);
    return product(b, y, weir_layer_int(layer, "width"), "self_attn.o_proj", all_biased);
}

static struct weir_value *feed_forward(struct weir_builder *b, const struct weir_layer *layer,
                                       struct weir_value *x) {
    int64_t inner = weir_layer_int(layer, "inner");
    bool biased = weir_layer_flag(layer, "mlp_bias");
    struct weir_value *gate = product(b, x, inner, "mlp.gate_proj", biased);
    struct weir_value *up = product(b, x, inner, "mlp.up_proj", biased);
    if (gate == NULL || up == NULL) return NULL;
    return product(b, weir__swiglu(b, gate, up), weir_layer_int(layer, "width"), "mlp.down_proj",
                   biased);
}

/** Whether the frequencies are numbers. */
static bool turns(const struct weir_layer *layer) {
    double low = weir_layer_real(layer, "rope_low"), high = weir_layer_real(layer, "rope_high");
    bool stretched = weir_layer_int(layer, "rope_original") > 0;
    return weir_layer_real(layer, "rope_theta") > 1 && weir_layer_real(layer, "rope_factor") >= 1 &&
           (!stretched || (low > 0 && high > low));
}

/** Whether the sizes go together; else a fault. */
static bool check_block(struct weir_builder *b, const struct weir_layer *layer,
                        const struct weir_value *x) {
    int64_t heads = weir_layer_int(layer, "heads"), kv_heads = weir_layer_int(layer, "kv_heads");
    int64_t size = weir_layer_int(layer, "head_size");
    if (heads % kv_heads != 0 || size % 2 != 0) {
        weir_builder_fail(b, WEIR_ERR_SHAPE,
                          "%lld heads share %lld of keys, each of %lld numbers: the first is a "
                          "multiple of the second, and the last is even",
                          (long long)heads, (long long)kv_heads, (long long)size);
        return false;
    }
    if (!turns(layer)) {
        weir_builder_fail(b, WEIR_ERR_ARGUMENT,
                          "its rope_theta is above 1, its rope_factor at least 1, and with a "
                          "rope_original rope_high is above rope_low, which is above 0");
        return false;
    }
    return weir__layer_has_width(b, layer, x);
}

static struct weir_value *build_block(struct weir_builder *b, const struct weir_layer *layer,
                                      struct weir_value *x) {
    if (!check_block(b, layer, x)) return NULL;
    struct weir_value *h = attend(b, layer, norm(b, layer, x, "input_layernorm.weight"));
    if (h == NULL) return NULL;
    x = weir_sum(b, x, h);
    h = feed_forward(b, layer, norm(b, layer, x, "post_attention_layernorm.weight"));
    return h == NULL ? NULL : weir_sum(b, x, h);
}

const struct weir_layer_type weir__layer_decoder_block = {
    .name = "decoder_block",
    WEIR__ATTRS(block_attrs),
    .composite = true,
    .skip_at = block_skip,
    .build = build_block,
    .input = "tokens, width",
    .output = "tokens, width",
    .about =
        "a block of Llama, Mistral or Qwen: grouped-query attention with rotary positions, and "
        "SwiGLU, each behind an RMSNorm and beside a residual; packed: of rows of several "
        "documents, behind a packed_embedding"};

/* ---- the head ---- */

static const struct weir_attr_rule head_attrs[] = {
    WEIR__SIZE("vocab"),
    {.key = "tied", .kind = WEIR_ATTR_KIND_TEXT, .text = ""},
};

static struct weir_value *build_head(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    const char *tied = weir_layer_text(layer, "tied");
    int64_t shape[] = {weir_layer_int(layer, "vocab"), weir__value_width(x)};
    struct weir_value *weight = tied[0] != '\0' ? weir_tied_parameter(b, tied)
                                                : weir_parameter(b, "weight", 2, shape, weights);
    if (weight == NULL) return NULL;
    if (weight->rank != 2 || weight->shape[0] != shape[0] || weight->shape[1] != shape[1])
        return weir_builder_fail(b, WEIR_ERR_SHAPE,
                                 "'%s', which it is tied to, is not [%lld, %lld]", tied,
                                 (long long)shape[0], (long long)shape[1]);
    return weir_linear(b, x, weight, NULL, false);
}

const struct weir_layer_type weir__layer_decoder_head = {
    .name = "decoder_head",
    WEIR__ATTRS(head_attrs),
    .composite = true,
    .build = build_head,
    .input = "tokens, width",
    .output = "tokens, vocab",
    .about = "a product without bias; `tied` names the parameter that is its weight"};

/* ---- the model ---- */

static bool check_options(const struct weir_decoder_options *options, struct weir_faults *faults) {
    bool good = options->layers >= 1 && options->width >= 1 && options->inner >= 1 &&
                options->heads >= 1 && options->kv_heads >= 1 && options->head_size >= 1 &&
                options->context >= 1 && options->vocab >= 1;
    if (!good)
        weir_faults_add(faults, "layers, width, inner, heads, kv_heads, head_size, context and "
                                "vocab of a decoder are at least 1");
    if (options->rope_theta > 1 && options->rope_factor >= 1) return good;
    weir_faults_add(faults,
                    "a decoder's rope_theta is above 1, not %g, and its rope_factor at "
                    "least 1, not %g",
                    options->rope_theta, options->rope_factor);
    return false;
}

static int add_blocks(struct weir_model *model, const struct weir_decoder_options *options,
                      struct weir_faults *faults) {
    const struct weir_attr attrs[] = {
        WEIR_ATTR_INT("width", options->width),
        WEIR_ATTR_INT("inner", options->inner),
        WEIR_ATTR_INT("heads", options->heads),
        WEIR_ATTR_INT("kv_heads", options->kv_heads),
        WEIR_ATTR_INT("head_size", options->head_size),
        WEIR_ATTR_INT("window", options->window),
        WEIR_ATTR_REAL("eps", options->eps),
        WEIR_ATTR_FLAG("qkv_bias", options->qkv_bias),
        WEIR_ATTR_FLAG("bias", options->bias),
        WEIR_ATTR_FLAG("mlp_bias", options->mlp_bias),
        WEIR_ATTR_FLAG("qk_norm", options->qk_norm),
        WEIR_ATTR_REAL("rope_theta", options->rope_theta),
        WEIR_ATTR_REAL("rope_factor", options->rope_factor),
        WEIR_ATTR_REAL("rope_low", options->rope_low),
        WEIR_ATTR_REAL("rope_high", options->rope_high),
        WEIR_ATTR_INT("rope_original", options->rope_original),
        WEIR_ATTR_FLAG("packed", true),
    };
    uint32_t count = WEIR__COUNT_OF(attrs) - (options->packed ? 0 : 1);
    for (uint32_t i = 0; i < options->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "model.layers.%u", i);
        int status =
            weir_model_add(model, "decoder_block", name, (struct weir_attrs){count, attrs}, faults);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int add_layers(struct weir_model *model, const struct weir_decoder_options *options,
                      struct weir_faults *faults) {
    const char *tied = options->tied ? "model.embed_tokens.weight" : "";
    int status = weir_model_add(model, options->packed ? "packed_embedding" : "embedding",
                                "model.embed_tokens",
                                WEIR_ATTRS(WEIR_ATTR_INT("num_embeddings", options->vocab),
                                           WEIR_ATTR_INT("embedding_dim", options->width),
                                           WEIR_ATTR_REAL("init_std", weights.scale)),
                                faults);
    if (status != WEIR_OK) return status;
    status = add_blocks(model, options, faults);
    if (status != WEIR_OK) return status;
    status = weir_model_add(model, "rms_norm", "model.norm",
                            WEIR_ATTRS(WEIR_ATTR_REAL("eps", options->eps)), faults);
    if (status != WEIR_OK) return status;
    return weir_model_add(
        model, "decoder_head", "lm_head",
        WEIR_ATTRS(WEIR_ATTR_INT("vocab", options->vocab), WEIR_ATTR_TEXT("tied", tied)), faults);
}

int weir_model_decoder(const struct weir_allocator *allocator,
                       const struct weir_decoder_options *options, struct weir_faults *faults,
                       struct weir_model **model) {
    assert(options != NULL && model != NULL);
    if (!check_options(options, faults)) return WEIR_ERR_ARGUMENT;
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {options->context}};
    struct weir_tensor packed = {.dtype = WEIR_I64, .rank = 2, .shape = {2, options->context}};
    struct weir_model *made;
    int status = weir_model_new(allocator, options->packed ? &packed : &tokens, &tokens,
                                "cross_entropy", &made);
    if (status != WEIR_OK) return status;
    if ((status = add_layers(made, options, faults)) == WEIR_OK)
        *model = made;
    else
        weir_model_destroy(made);
    return status;
}
