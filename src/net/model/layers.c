/* SPDX-License-Identifier: MIT */
/* The table of layer types, and the types that are one op each. Names, attributes and initial
 * values are PyTorch's. Composites stand in files of their own. */
#include "net/model/layer.h"

#include <math.h>
#include <string.h>

#define ATTRS(list) .attrs = list, .attr_count = sizeof(list) / sizeof((list)[0])

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
    {.key = "out_features", .kind = WEIR_ATTR_KIND_INT, .required = true, .least = 1},
    {.key = "bias", .kind = WEIR_ATTR_KIND_FLAG, .integer = 1},
};

static struct weir_value *build_linear(struct weir_builder *b, const struct weir_layer *layer,
                                       struct weir_value *x) {
    if (x->rank == 0)
        return weir_builder_fail(b, WEIR_ERR_SHAPE,
                                 "linear works on the last dimension of a row, but its input is "
                                 "one number per row");
    int64_t in = width_of(x), out = weir_layer_int(layer, "out_features");
    struct weir_init init = {WEIR_INIT_UNIFORM, 1 / sqrt((double)in)};
    struct weir_value *weight = weir_parameter(b, "weight", 2, (int64_t[]){out, in}, init);
    struct weir_value *bias = NULL;
    if (weir_layer_flag(layer, "bias")) bias = weir_parameter(b, "bias", 1, &out, init);
    return weir_linear(b, x, weight, bias, false);
}

static const struct weir_attr_rule embedding_attrs[] = {
    {.key = "num_embeddings", .kind = WEIR_ATTR_KIND_INT, .required = true, .least = 1},
    {.key = "embedding_dim", .kind = WEIR_ATTR_KIND_INT, .required = true, .least = 1},
};

static struct weir_value *build_embedding(struct weir_builder *b, const struct weir_layer *layer,
                                          struct weir_value *x) {
    int64_t shape[] = {weir_layer_int(layer, "num_embeddings"),
                       weir_layer_int(layer, "embedding_dim")};
    struct weir_init init = {WEIR_INIT_NORMAL, 1};
    return weir_embedding(b, x, weir_parameter(b, "weight", 2, shape, init));
}

static const struct weir_attr_rule layer_norm_attrs[] = {
    {.key = "eps", .kind = WEIR_ATTR_KIND_REAL, .real = 1e-5, .below = 1},
};

static struct weir_value *build_layer_norm(struct weir_builder *b, const struct weir_layer *layer,
                                           struct weir_value *x) {
    int64_t width = width_of(x);
    struct weir_value *weight = weir_parameter(b, "weight", 1, &width, one);
    struct weir_value *bias = weir_parameter(b, "bias", 1, &width, zero);
    return weir_layer_norm(b, x, weight, bias, weir_layer_real(layer, "eps"));
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

/* ---- the table ---- */

static const struct weir_layer_type linear = {
    .name = "linear", ATTRS(linear_attrs), .build = build_linear};
static const struct weir_layer_type embedding = {
    .name = "embedding", ATTRS(embedding_attrs), .build = build_embedding};
static const struct weir_layer_type layer_norm = {
    .name = "layer_norm", ATTRS(layer_norm_attrs), .build = build_layer_norm};
static const struct weir_layer_type relu = {.name = "relu", .build = build_relu};
static const struct weir_layer_type gelu = {.name = "gelu", ATTRS(gelu_attrs), .build = build_gelu};
static const struct weir_layer_type dropout = {
    .name = "dropout", ATTRS(dropout_attrs), .build = build_dropout};
static const struct weir_layer_type identity = {.name = "identity", .build = build_identity};
static const struct weir_layer_type flatten = {.name = "flatten", .build = build_flatten};
static const struct weir_layer_type stash = {
    .name = "stash",
    ATTRS(skip_attrs),
    .skip_count = 1,
    .skips = {{WEIR_SKIP_STASH, "skip", "namespace"}},
    .build = build_stash,
};
static const struct weir_layer_type pop_add = {
    .name = "pop_add",
    ATTRS(skip_attrs),
    .skip_count = 1,
    .skips = {{WEIR_SKIP_POP, "skip", "namespace"}},
    .build = build_add_skip,
};
static const struct weir_layer_type read_add = {
    .name = "read_add",
    ATTRS(skip_attrs),
    .skip_count = 1,
    .skips = {{WEIR_SKIP_READ, "skip", "namespace"}},
    .build = build_add_skip,
};

static const struct weir_layer_type pop_concat = {
    .name = "pop_concat",
    ATTRS(skip_attrs),
    .skip_count = 1,
    .skips = {{WEIR_SKIP_POP, "skip", "namespace"}},
    .build = build_concat_skip,
};
static const struct weir_layer_type read_concat = {
    .name = "read_concat",
    ATTRS(skip_attrs),
    .skip_count = 1,
    .skips = {{WEIR_SKIP_READ, "skip", "namespace"}},
    .build = build_concat_skip,
};

static const struct weir_layer_type *const types[] = {
    &linear,
    &embedding,
    &layer_norm,
    &relu,
    &gelu,
    &dropout,
    &identity,
    &flatten,
    &stash,
    &pop_add,
    &read_add,
    &pop_concat,
    &read_concat,
    &weir__layer_gpt_embedding,
    &weir__layer_gpt_block,
    &weir__layer_gpt_head,
};

const struct weir_layer_type *weir__layer_type_at(uint32_t index) {
    if (index < WEIR__COUNT_OF(types)) return types[index];
    index -= WEIR__COUNT_OF(types);
    return index < weir__image_layer_count ? weir__image_layers[index] : NULL;
}

const char *weir_layer_type_name(uint32_t index) {
    const struct weir_layer_type *type = weir__layer_type_at(index);
    return type == NULL ? NULL : type->name;
}
