/* SPDX-License-Identifier: MIT */
/* One row per tensor of a block, and three beside the blocks. */
#include "cli/decoder_tensors.h"

#include <stdio.h>
#include <string.h>

enum size { NONE, WIDTH, INNER, QUERIES, KEYS, HEAD, VOCAB };
enum presence { ALWAYS, QKV_BIAS, BIAS, MLP_BIAS, QK_NORM, UNTIED };

struct row {
    const char *name, *gguf;
    enum size shape[2];
    enum presence when;
};

static const struct row of_block[] = {
    {"input_layernorm.weight", "attn_norm.weight", {WIDTH}, ALWAYS},
    {"self_attn.q_proj.weight", "attn_q.weight", {QUERIES, WIDTH}, ALWAYS},
    {"self_attn.q_proj.bias", "attn_q.bias", {QUERIES}, QKV_BIAS},
    {"self_attn.k_proj.weight", "attn_k.weight", {KEYS, WIDTH}, ALWAYS},
    {"self_attn.k_proj.bias", "attn_k.bias", {KEYS}, QKV_BIAS},
    {"self_attn.v_proj.weight", "attn_v.weight", {KEYS, WIDTH}, ALWAYS},
    {"self_attn.v_proj.bias", "attn_v.bias", {KEYS}, QKV_BIAS},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", {HEAD}, QK_NORM},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", {HEAD}, QK_NORM},
    {"self_attn.o_proj.weight", "attn_output.weight", {WIDTH, QUERIES}, ALWAYS},
    {"self_attn.o_proj.bias", "attn_output.bias", {WIDTH}, BIAS},
    {"post_attention_layernorm.weight", "ffn_norm.weight", {WIDTH}, ALWAYS},
    {"mlp.gate_proj.weight", "ffn_gate.weight", {INNER, WIDTH}, ALWAYS},
    {"mlp.gate_proj.bias", "ffn_gate.bias", {INNER}, MLP_BIAS},
    {"mlp.up_proj.weight", "ffn_up.weight", {INNER, WIDTH}, ALWAYS},
    {"mlp.up_proj.bias", "ffn_up.bias", {INNER}, MLP_BIAS},
    {"mlp.down_proj.weight", "ffn_down.weight", {WIDTH, INNER}, ALWAYS},
    {"mlp.down_proj.bias", "ffn_down.bias", {WIDTH}, MLP_BIAS},
};
static const struct row first = {
    "model.embed_tokens.weight", "token_embd.weight", {VOCAB, WIDTH}, ALWAYS};
static const struct row last[] = {{"model.norm.weight", "output_norm.weight", {WIDTH}, ALWAYS},
                                  {"lm_head.weight", "output.weight", {VOCAB, WIDTH}, UNTIED}};

struct listing {
    struct weir__pool *pool;
    const struct weir_decoder_options *options;
    struct decoder_tensor *list;
    uint32_t count;
};

static bool is_there(const struct weir_decoder_options *options, enum presence when) {
    switch (when) {
    case ALWAYS: return true;
    case QKV_BIAS: return options->qkv_bias || options->bias;
    case BIAS: return options->bias;
    case MLP_BIAS: return options->mlp_bias;
    case QK_NORM: return options->qk_norm;
    case UNTIED: return !options->tied;
    }
    return false;
}

static int64_t length_of(const struct weir_decoder_options *options, enum size size) {
    switch (size) {
    case NONE: return 1;
    case WIDTH: return options->width;
    case INNER: return options->inner;
    case QUERIES: return (int64_t)options->heads * options->head_size;
    case KEYS: return (int64_t)options->kv_heads * options->head_size;
    case HEAD: return options->head_size;
    case VOCAB: return options->vocab;
    }
    return 0;
}

static uint32_t heads_of(const struct weir_decoder_options *options, const struct row *row) {
    if (strncmp(row->gguf, "attn_q.", 7) == 0) return options->heads;
    return strncmp(row->gguf, "attn_k.", 7) == 0 ? options->kv_heads : 0;
}

/** `block` < 0: of none. */
static void add(struct listing *listing, const struct row *row, int64_t block) {
    char name[96], gguf[64];
    if (!is_there(listing->options, row->when)) return;
    snprintf(name, sizeof name, "%s", row->name);
    snprintf(gguf, sizeof gguf, "%s", row->gguf);
    if (block >= 0) {
        snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)block, row->name);
        snprintf(gguf, sizeof gguf, "blk.%lld.%s", (long long)block, row->gguf);
    }
    listing->list[listing->count++] =
        (struct decoder_tensor){.name = weir__pool_text(listing->pool, name),
                                .gguf = weir__pool_text(listing->pool, gguf),
                                .rank = row->shape[1] == NONE ? 1 : 2,
                                .shape = {length_of(listing->options, row->shape[0]),
                                          length_of(listing->options, row->shape[1])},
                                .heads = heads_of(listing->options, row)};
}

int decoder_tensors_list(struct weir__pool *pool, const struct weir_decoder_options *options,
                         const struct decoder_tensor **list, uint32_t *count) {
    size_t most = (size_t)options->layers * WEIR__COUNT_OF(of_block) + 3;
    struct listing listing = {pool, options, weir__pool_take(pool, most, sizeof **list), 0};
    if (listing.list == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    add(&listing, &first, -1);
    for (uint32_t block = 0; block < options->layers; block++)
        for (size_t i = 0; i < WEIR__COUNT_OF(of_block); i++) add(&listing, &of_block[i], block);
    for (size_t i = 0; i < WEIR__COUNT_OF(last); i++) add(&listing, &last[i], -1);
    *list = listing.list;
    *count = listing.count;
    return pool->failed ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
}
