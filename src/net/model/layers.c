/* SPDX-License-Identifier: MIT */
/* The table of layer types, and the types that are one op each. Names, attributes and initial
 * values are PyTorch's. Composites stand in files of their own. */
#include "net/model/layer.h"

#include <math.h>
#include <string.h>

static const struct weir_init one = {WEIR_INIT_ONE, 0};
static const struct weir_init zero = {WEIR_INIT_ZERO, 0};

/* ---- linear, embedding, layer_norm ---- */

/** The last dimension. */
static int64_t width_of(const struct weir_value *x) {
    assert(x != NULL);
    struct weir_tensor tensor = weir_value_tensor(x);
    return tensor.rank == 0 ? 1 : tensor.shape[tensor.rank - 1];
}

static const struct weir_attr_rule linear_attrs[] = {
    WEIR__SIZE("out_features"),
    {.key = "bias", .kind = WEIR_ATTR_KIND_FLAG, .integer = 1},
    WEIR__OF_INPUT("in_features", -1),
};

struct weir_init weir__linear_init(int64_t in_features) {
    assert(in_features >= 1);
    return (struct weir_init){WEIR_INIT_UNIFORM, 1 / sqrt((double)in_features)};
}

static struct weir_value *build_linear(struct weir_builder *b, const struct weir_layer *layer,
                                       struct weir_value *x) {
    if (x->rank == 0)
        return weir_builder_fail(b, WEIR_ERR_SHAPE,
                                 "linear works on the last dimension of a row, but its input is "
                                 "one number per row");
    int64_t in = width_of(x), out = weir_layer_int(layer, "out_features");
    struct weir_init init = weir__linear_init(in);
    struct weir_value *weight = weir_parameter(b, "weight", 2, (int64_t[]){out, in}, init);
    struct weir_value *bias = NULL;
    if (weir_layer_flag(layer, "bias")) bias = weir_parameter(b, "bias", 1, &out, init);
    return weir_linear(b, x, weight, bias, false);
}

static const struct weir_attr_rule embedding_attrs[] = {
    WEIR__SIZE("num_embeddings"),
    WEIR__SIZE("embedding_dim"),
    WEIR__INIT_STD,
};

static struct weir_value *build_embedding(struct weir_builder *b, const struct weir_layer *layer,
                                          struct weir_value *x) {
    int64_t shape[] = {weir_layer_int(layer, "num_embeddings"),
                       weir_layer_int(layer, "embedding_dim")};
    struct weir_init init = {WEIR_INIT_NORMAL, weir_layer_real(layer, "init_std")};
    return weir_embedding(b, x, weir_parameter(b, "weight", 2, shape, init));
}

static const struct weir_attr_rule layer_norm_attrs[] = {
    {.key = "eps", .kind = WEIR_ATTR_KIND_REAL, .real = 1e-5, .below = 1},
    WEIR__OF_INPUT("normalized_shape", -1),
    WEIR__ONLY_FLAG("elementwise_affine", true),
    WEIR__ONLY_FLAG("bias", true),
};

static struct weir_value *build_layer_norm(struct weir_builder *b, const struct weir_layer *layer,
                                           struct weir_value *x) {
    int64_t width = width_of(x);
    struct weir_value *weight = weir_parameter(b, "weight", 1, &width, one);
    struct weir_value *bias = weir_parameter(b, "bias", 1, &width, zero);
    return weir_layer_norm(b, x, weight, bias, weir_layer_real(layer, "eps"));
}

static const struct weir_attr_rule rms_norm_attrs[] = {
    {.key = "eps", .kind = WEIR_ATTR_KIND_REAL, .real = -1, .below = 1},
    {.key = "elementwise_affine", .kind = WEIR_ATTR_KIND_FLAG, .integer = 1},
    WEIR__OF_INPUT("normalized_shape", -1),
};

static struct weir_value *build_rms_norm(struct weir_builder *b, const struct weir_layer *layer,
                                         struct weir_value *x) {
    int64_t width = width_of(x);
    struct weir_value *weight = NULL;
    if (weir_layer_flag(layer, "elementwise_affine"))
        weight = weir_parameter(b, "weight", 1, &width, one);
    return weir_rms_norm(b, x, weight, weir_layer_real(layer, "eps"));
}

/* ---- attention ---- */

static const struct weir_attr_rule multihead_attention_attrs[] = {
    WEIR__SIZE("num_heads"),
    {.key = "is_causal", .kind = WEIR_ATTR_KIND_FLAG},
    {.key = "bias", .kind = WEIR_ATTR_KIND_FLAG, .integer = 1},
    WEIR__OF_INPUT("embed_dim", -1),
    WEIR__ONLY_ZERO("dropout"),
    WEIR__ONLY_FLAG("batch_first", true),
    WEIR__ONLY_FLAG("add_bias_kv", false),
    WEIR__ONLY_FLAG("add_zero_attn", false),
};

/** A product whose weight stands [out, in], and its bias of zeros or none. */
static struct weir_value *project(struct weir_builder *b, const struct weir_layer *layer,
                                  struct weir_value *x, int64_t out, double bound,
                                  const char *weight_name, const char *bias_name) {
    struct weir_init init = {WEIR_INIT_UNIFORM, bound};
    struct weir_value *bias = NULL;
    struct weir_value *weight =
        weir_parameter(b, weight_name, 2, (int64_t[]){out, width_of(x)}, init);
    if (weir_layer_flag(layer, "bias")) bias = weir_parameter(b, bias_name, 1, &out, zero);
    return weight == NULL ? NULL : weir_linear(b, x, weight, bias, false);
}

/** Self-attention: query, key and value are the input. */
static struct weir_value *build_multihead_attention(struct weir_builder *b,
                                                    const struct weir_layer *layer,
                                                    struct weir_value *x) {
    struct weir_tensor in = weir_value_tensor(x);
    int64_t heads = weir_layer_int(layer, "num_heads"), width = width_of(x);
    char text[96];
    if (in.rank != 2 || !weir_dtype_is_float(in.dtype) || width % heads != 0)
        return weir_builder_fail(
            b, WEIR_ERR_SHAPE,
            "%lld heads take [tokens, embed_dim], embed_dim a multiple of %lld, "
            "but the input is %s",
            (long long)heads, (long long)heads, weir__tensor_text(&in, text, sizeof text));
    /* xavier_uniform_ of [3 C, C] */
    double joined = sqrt(6 / (4 * (double)width)), own = 1 / sqrt((double)width);
    x = project(b, layer, x, 3 * width, joined, "in_proj_weight", "in_proj_bias");
    x = weir_attention(b, x, heads, weir_layer_flag(layer, "is_causal"));
    if (x == NULL) return NULL;
    return project(b, layer, x, width, own, "out_proj.weight", "out_proj.bias");
}

/* ---- pointwise ---- */

static struct weir_value *build_relu(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    (void)layer;
    return weir_relu(b, x);
}

static const struct weir_attr_rule gelu_attrs[] = {
    {.key = "approximate", .kind = WEIR_ATTR_KIND_TEXT, .text = "none", .choices = "none|tanh"},
};

static struct weir_value *build_gelu(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    return weir_gelu(b, x, strcmp(weir_layer_text(layer, "approximate"), "tanh") == 0);
}

static const struct weir_attr_rule dropout_attrs[] = {
    {.key = "p", .kind = WEIR_ATTR_KIND_REAL, .real = 0.5, .below = 1},
};

static struct weir_value *build_dropout(struct weir_builder *b, const struct weir_layer *layer,
                                        struct weir_value *x) {
    return weir_dropout(b, x, weir_layer_real(layer, "p"));
}

static struct weir_value *build_identity(struct weir_builder *b, const struct weir_layer *layer,
                                         struct weir_value *x) {
    (void)b;
    (void)layer;
    return x;
}

static const struct weir_attr_rule flatten_attrs[] = {
    WEIR__ONLY_INT("start_dim", 1),
    WEIR__ONLY_INT("end_dim", -1),
};

static struct weir_value *build_flatten(struct weir_builder *b, const struct weir_layer *layer,
                                        struct weir_value *x) {
    (void)layer;
    int64_t count = weir__value_count(x);
    return weir_reshape(b, x, 1, &count);
}

/* ---- skips ---- */

static const struct weir_attr_rule skip_attrs[] = {
    {.key = "skip", .kind = WEIR_ATTR_KIND_TEXT, .required = true},
    {.key = "namespace", .kind = WEIR_ATTR_KIND_TEXT, .text = ""},
};

static struct weir_value *build_stash(struct weir_builder *b, const struct weir_layer *layer,
                                      struct weir_value *x) {
    weir_stash(b, weir_layer_text(layer, "namespace"), weir_layer_text(layer, "skip"), x);
    return x;
}

static struct weir_value *build_concat_skip(struct weir_builder *b, const struct weir_layer *layer,
                                            struct weir_value *x) {
    struct weir_value *skip =
        weir_read(b, weir_layer_text(layer, "namespace"), weir_layer_text(layer, "skip"));
    return weir_concat(b, x, skip);
}

static struct weir_value *build_add_skip(struct weir_builder *b, const struct weir_layer *layer,
                                         struct weir_value *x) {
    struct weir_value *skip =
        weir_read(b, weir_layer_text(layer, "namespace"), weir_layer_text(layer, "skip"));
    return weir_sum(b, x, skip);
}

static struct weir_value *build_multiply_skip(struct weir_builder *b,
                                              const struct weir_layer *layer,
                                              struct weir_value *x) {
    struct weir_value *skip =
        weir_read(b, weir_layer_text(layer, "namespace"), weir_layer_text(layer, "skip"));
    return weir_product(b, x, skip);
}

/* ---- the table ---- */

static const struct weir_layer_type linear = {
    .name = "linear",
    WEIR__ATTRS(linear_attrs),
    .build = build_linear,
    WEIR__SAYS("nn.Linear", "..., in_features", "..., out_features"),
};
static const struct weir_layer_type embedding = {
    .name = "embedding",
    WEIR__ATTRS(embedding_attrs),
    .build = build_embedding,
    WEIR__SAYS("nn.Embedding", "... (i64)", "..., embedding_dim"),
};
static const struct weir_layer_type layer_norm = {
    .name = "layer_norm",
    WEIR__ATTRS(layer_norm_attrs),
    .build = build_layer_norm,
    WEIR__SAYS("nn.LayerNorm", "..., normalized_shape", "..., normalized_shape"),
};
static const struct weir_layer_type rms_norm = {
    .name = "rms_norm",
    WEIR__ATTRS(rms_norm_attrs),
    .build = build_rms_norm,
    WEIR__SAYS("nn.RMSNorm", "..., normalized_shape", "..., normalized_shape"),
    .about = "without an eps it is the numbers' epsilon: 1.19e-7, of f64 2.2e-16",
};
static const struct weir_layer_type multihead_attention = {
    .name = "multihead_attention",
    WEIR__ATTRS(multihead_attention_attrs),
    .build = build_multihead_attention,
    WEIR__SAYS("nn.MultiheadAttention", "tokens, embed_dim", "tokens, embed_dim"),
    .about =
        "self-attention: query, key and value are the input; is_causal: of each token to those "
        "up to itself",
};
static const struct weir_layer_type relu = {
    .name = "relu", .build = build_relu, WEIR__SAYS("nn.ReLU", "...", "...")};
static const struct weir_layer_type gelu = {.name = "gelu",
                                            WEIR__ATTRS(gelu_attrs),
                                            .build = build_gelu,
                                            WEIR__SAYS("nn.GELU", "...", "...")};
static const struct weir_layer_type dropout = {.name = "dropout",
                                               WEIR__ATTRS(dropout_attrs),
                                               .build = build_dropout,
                                               WEIR__SAYS("nn.Dropout", "...", "...")};
static const struct weir_layer_type identity = {
    .name = "identity", .build = build_identity, WEIR__SAYS("nn.Identity", "...", "...")};
static const struct weir_layer_type flatten = {.name = "flatten",
                                               WEIR__ATTRS(flatten_attrs),
                                               .build = build_flatten,
                                               WEIR__SAYS("nn.Flatten", "...", "numbers")};

/** A type whose only skip is `verb`. */
#define SKIP_TYPE(name_, verb, build_, input_, output_, about_)                                    \
    {                                                                                              \
        .name = name_, WEIR__ATTRS(skip_attrs), .skip_count = 1,                                   \
        .skips = {{verb, "skip", "namespace"}}, .build = build_, .input = input_,                  \
        .output = output_, .about = about_                                                         \
    }
static const struct weir_layer_type stash =
    SKIP_TYPE("stash", WEIR_SKIP_STASH, build_stash, "...", "...",
              "keeps its input under a name; a later layer reads it any number of times, or pops "
              "it, its last use");
static const struct weir_layer_type pop_add = SKIP_TYPE(
    "pop_add", WEIR_SKIP_POP, build_add_skip, "...", "...", "its input + the skip, of equal shape");
static const struct weir_layer_type read_add =
    SKIP_TYPE("read_add", WEIR_SKIP_READ, build_add_skip, "...", "...",
              "its input + the skip, of equal shape");
static const struct weir_layer_type pop_multiply =
    SKIP_TYPE("pop_multiply", WEIR_SKIP_POP, build_multiply_skip, "...", "...",
              "its input * the skip, number by number, of equal shape");
static const struct weir_layer_type read_multiply =
    SKIP_TYPE("read_multiply", WEIR_SKIP_READ, build_multiply_skip, "...", "...",
              "its input * the skip, number by number, of equal shape");
static const struct weir_layer_type pop_concat =
    SKIP_TYPE("pop_concat", WEIR_SKIP_POP, build_concat_skip, "a, ...", "a + b, ...",
              "its input, then the skip [b, ...]; of images the input's may be smaller");
static const struct weir_layer_type read_concat =
    SKIP_TYPE("read_concat", WEIR_SKIP_READ, build_concat_skip, "a, ...", "a + b, ...",
              "its input, then the skip [b, ...]; of images the input's may be smaller");

static const struct weir_attr_rule block_attrs[] = {
    {.key = "repeat", .kind = WEIR_ATTR_KIND_INT, .integer = 1, .least = 1},
    {.key = "namespace", .kind = WEIR_ATTR_KIND_TEXT, .text = ""},
};

const struct weir_layer_type weir__layer_block = {
    .name = "block",
    WEIR__ATTRS(block_attrs),
    WEIR__SAYS("nn.Sequential", "...", "..."),
    .about = "in files: its list \"layers\", `repeat` times after one another; with a namespace "
             "the skips that it stashes are each repeat's own",
};

static const struct weir_layer_type *const types[] = {
    &linear,
    &embedding,
    &layer_norm,
    &rms_norm,
    &multihead_attention,
    &relu,
    &gelu,
    &dropout,
    &identity,
    &flatten,
    &stash,
    &pop_add,
    &read_add,
    &pop_multiply,
    &read_multiply,
    &pop_concat,
    &read_concat,
    &weir__layer_gpt_embedding,
    &weir__layer_gpt_block,
    &weir__layer_gpt_head,
    &weir__layer_gpt_residual_embedding,
    &weir__layer_gpt_residual_block,
    &weir__layer_gpt_residual_head,
    &weir__layer_packed_embedding,
    &weir__layer_decoder_block,
    &weir__layer_decoder_head,
    &weir__layer_residual,
    &weir__layer_amoeba_stem,
    &weir__layer_amoeba_first_cell,
    &weir__layer_amoeba_cell,
    &weir__layer_amoeba_last_cell,
    &weir__layer_amoeba_classify,
    &weir__layer_block,
};

const struct weir_layer_type *weir_layer_type_at(uint32_t index) {
    if (index < WEIR__COUNT_OF(types)) return types[index];
    index -= WEIR__COUNT_OF(types);
    return index < weir__image_layer_count ? weir__image_layers[index] : NULL;
}
