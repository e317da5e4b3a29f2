/* SPDX-License-Identifier: MIT */
/*
 * GPT-2 with block attention residuals (arXiv 2603.15031): before each sublayer, and before the
 * last norm, each token mixes its *sources*: the embedding, the sums of the finished blocks of
 * layers, and the present block's sum so far. Source 0 is the embedding, source n the n-th block's
 * sum: a skip of that name, which the block's last layer stashes and every later layer reads. What
 * goes from layer to layer is the present block's sum; between blocks it is the finished one's, a
 * source already.
 */
#include "net/model/gpt.h"

#include <stdio.h>

static const char name_space[] = "residual";
static const double eps = 1e-6;
static const struct weir_init one = {WEIR_INIT_ONE, 0};
static const struct weir_init zero = {WEIR_INIT_ZERO, 0};

#define RESIDUAL_BLOCK WEIR__SIZE("residual_block")

static const char *source_name(uint32_t source, char text[32]) {
    snprintf(text, 32, "%u", source);
    return text;
}

/** The i-th use of a layer that reads the sources below `reads`, and then stashes one, or none
 * (WEIR__NONE). */
static bool use_at(uint32_t reads, uint32_t stashed, uint32_t i, struct weir_skip_use *use,
                   char text[32]) {
    bool stashes = i == reads && stashed != WEIR__NONE;
    if (i >= reads && !stashes) return false;
    use->verb = stashes ? WEIR_SKIP_STASH : WEIR_SKIP_READ;
    use->name_space = name_space;
    use->name = source_name(stashes ? stashed : i, text);
    return true;
}

/** The first `reads` sources, then x if it is there, mixed by the parameters `local`_proj and
 * `local`_norm. */
static struct weir_value *mix(struct weir_builder *b, uint32_t reads, struct weir_value *x,
                              const char *query_name, const char *weight_name) {
    struct weir_value *sources[WEIR__SOURCES_MAX];
    uint32_t count = 0;
    int64_t width = weir__value_width(x);
    struct weir_value *query = weir_parameter(b, query_name, 1, &width, zero);
    struct weir_value *weight = weir_parameter(b, weight_name, 1, &width, one);
    for (; count < reads; count++) {
        char text[32];
        sources[count] = weir_read(b, name_space, source_name(count, text));
        if (sources[count] == NULL) return NULL;
    }
    sources[count++] = x;
    assert(count <= WEIR__SOURCES_MAX);
    return weir__residual_mix(b, count, sources, weight, query, eps);
}

/* ---- embedding ---- */

static const struct weir_attr_rule embedding_attrs[] = {WEIR__SIZE("vocab"), WEIR__SIZE("context"),
                                                        WEIR__SIZE("width"), WEIR__GPT_DROPOUT};

static bool embedding_skip(const struct weir_layer *layer, uint32_t i, struct weir_skip_use *use,
                           char text[32]) {
    (void)layer;
    return use_at(0, 0, i, use, text);
}

static struct weir_value *build_embedding(struct weir_builder *b, const struct weir_layer *layer,
                                          struct weir_value *x) {
    x = weir__gpt_embed(b, layer, x);
    if (x != NULL) weir_stash(b, name_space, "0", x);
    return x;
}

/* ---- block ---- */

static const struct weir_attr_rule block_attrs[] = {
    WEIR__SIZE("width"), WEIR__SIZE("heads"), WEIR__GPT_DROPOUT, WEIR__GPT_LAYERS, RESIDUAL_BLOCK};

/** Where a layer stands. */
struct block_place {
    uint32_t finished; /**< blocks before its own */
    bool first,
        stashes; /**< of its block; its block's sum, as the last of one that is not the last */
};

static struct block_place place_of(const struct weir_layer *layer) {
    int64_t layers = weir_layer_int(layer, "layers"),
            block = weir_layer_int(layer, "residual_block");
    int64_t at = layer->ordinal;
    assert(block >= 1);
    return (struct block_place){.finished = (uint32_t)(at / block),
                                .first = at % block == 0,
                                .stashes = (at + 1) % block == 0 && at + 1 < layers};
}

static bool block_skip(const struct weir_layer *layer, uint32_t i, struct weir_skip_use *use,
                       char text[32]) {
    struct block_place place = place_of(layer);
    return use_at(place.finished + 1, place.stashes ? place.finished + 1 : WEIR__NONE, i, use,
                  text);
}

/** Of a block's first layer the input is the finished block's sum, or the embedding: the last
 * source that it reads. */
static struct weir_value *build_block(struct weir_builder *b, const struct weir_layer *layer,
                                      struct weir_value *x) {
    struct block_place place = place_of(layer);
    uint32_t reads = place.finished + 1;
    char text[32];
    if (!weir__layer_has_width(b, layer, x)) return NULL;
    if (reads >= WEIR__SOURCES_MAX)
        return weir_builder_fail(b, WEIR_ERR_ARGUMENT,
                                 "it is in block %u of residuals, but %d are the most: make "
                                 "residual_block larger",
                                 reads, WEIR__SOURCES_MAX - 1);
    struct weir_value *h =
        mix(b, place.first ? reads - 1 : reads, x, "attn_res_proj.weight", "attn_res_norm.weight");
    h = weir__gpt_attend(b, layer, h);
    x = place.first ? h : weir_sum(b, x, h);
    if (x == NULL) return NULL;
    h = mix(b, reads, x, "mlp_res_proj.weight", "mlp_res_norm.weight");
    x = weir_sum(b, x, weir__gpt_mlp(b, layer, h));
    if (x != NULL && place.stashes) weir_stash(b, name_space, source_name(reads, text), x);
    return x;
}

/* ---- head ---- */

static const struct weir_attr_rule head_attrs[] = {WEIR__SIZE("width"),
                                                   WEIR__SIZE("vocab"),
                                                   {.key = "tied", .kind = WEIR_ATTR_KIND_FLAG},
                                                   WEIR__SIZE("layers"),
                                                   RESIDUAL_BLOCK};

/** Finished blocks before the last one, and the embedding. */
static uint32_t head_reads(const struct weir_layer *layer) {
    int64_t layers = weir_layer_int(layer, "layers"),
            block = weir_layer_int(layer, "residual_block");
    int64_t blocks = (layers - 1) / block + 1;
    assert(block >= 1);
    return blocks < WEIR__SOURCES_MAX ? (uint32_t)blocks : WEIR__SOURCES_MAX - 1;
}

static bool head_skip(const struct weir_layer *layer, uint32_t i, struct weir_skip_use *use,
                      char text[32]) {
    return use_at(head_reads(layer), WEIR__NONE, i, use, text);
}

static struct weir_value *build_head(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    if (!weir__layer_has_width(b, layer, x)) return NULL;
    x = mix(b, head_reads(layer), x, "final_res_proj.weight", "final_res_norm.weight");
    return x == NULL ? NULL : weir__gpt_predict(b, layer, x);
}

const struct weir_layer_type weir__layer_gpt_residual_embedding = {
    .name = "gpt_residual_embedding",
    WEIR__ATTRS(embedding_attrs),
    .prefix = WEIR_PREFIX_NONE,
    .composite = true,
    .skip_at = embedding_skip,
    .build = build_embedding,
    .input = "tokens (i64)",
    .output = "tokens, width",
    .about = "gpt_embedding, whose output later layers mix, too: block attention residuals"};
const struct weir_layer_type weir__layer_gpt_residual_block = {
    .name = "gpt_residual_block",
    WEIR__ATTRS(block_attrs),
    .prefix = WEIR_PREFIX_ORDINAL,
    .composite = true,
    .skip_at = block_skip,
    .build = build_block,
    .input = "tokens, width",
    .output = "tokens, width",
    .about = "one of `layers` of GPT-2's blocks, whose sublayers each mix the sums of the finished "
             "blocks of residual_block layers: block attention residuals"};
const struct weir_layer_type weir__layer_gpt_residual_head = {
    .name = "gpt_residual_head",
    WEIR__ATTRS(head_attrs),
    .prefix = WEIR_PREFIX_NONE,
    .composite = true,
    .skip_at = head_skip,
    .build = build_head,
    .input = "tokens, width",
    .output = "tokens, vocab",
    .about = "gpt_head of what the blocks' sums are mixed to: block attention residuals"};
