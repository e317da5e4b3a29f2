/* SPDX-License-Identifier: MIT */
/* Token i of what it says has the embedding e(i + 1), all others e(0); the head's row of a token is
 * the embedding of the one that it comes after. */
#include "cli/cli_talker.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { WIDTH = 64, INNER = 8, KEYS = 32, LAYERS = 2, SAYS_MAX = WIDTH - 2 };

struct weights {
    const char *folder;
    uint32_t vocab;
    float *embedding, *head, *zeros, *ones;
    struct weir__safetensors_item items[3 + 9 * LAYERS];
    char names[3 + 9 * LAYERS][80];
    uint32_t count;
};

static void add(struct weights *w, int64_t rows, int64_t columns, float *data, int layer,
                const char *name) {
    char *full = w->names[w->count];
    const char *inside = layer < 0 ? "" : layer == 0 ? "model.layers.0." : "model.layers.1.";
    snprintf(full, sizeof w->names[0], "%s%s", inside, name);
    w->items[w->count++] = (struct weir__safetensors_item){.name = full,
                                                           .dtype = WEIR_F32,
                                                           .rank = columns > 0 ? 2 : 1,
                                                           .shape = {rows, columns},
                                                           .data = data};
}

static void add_layer(struct weights *w, int layer) {
    add(w, WIDTH, 0, w->ones, layer, "input_layernorm.weight");
    add(w, WIDTH, WIDTH, w->zeros, layer, "self_attn.q_proj.weight");
    add(w, KEYS, WIDTH, w->zeros, layer, "self_attn.k_proj.weight");
    add(w, KEYS, WIDTH, w->zeros, layer, "self_attn.v_proj.weight");
    add(w, WIDTH, WIDTH, w->zeros, layer, "self_attn.o_proj.weight");
    add(w, WIDTH, 0, w->ones, layer, "post_attention_layernorm.weight");
    add(w, INNER, WIDTH, w->zeros, layer, "mlp.gate_proj.weight");
    add(w, INNER, WIDTH, w->zeros, layer, "mlp.up_proj.weight");
    add(w, WIDTH, INNER, w->zeros, layer, "mlp.down_proj.weight");
}

static void save(struct weights *w) {
    struct weir__io io = {.allocator = test_allocator()};
    char path[512];
    add(w, w->vocab, WIDTH, w->embedding, -1, "model.embed_tokens.weight");
    for (int layer = 0; layer < LAYERS; layer++) add_layer(w, layer);
    add(w, WIDTH, 0, w->ones, -1, "model.norm.weight");
    add(w, w->vocab, WIDTH, w->head, -1, "lm_head.weight");
    snprintf(path, sizeof path, "%s/model/model.safetensors", w->folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, w->items, w->count, NULL, 0), WEIR_OK);
}

/* Row `token`, column `column`. */
static void set_one(float *matrix, uint32_t token, uint32_t column) {
    memset(matrix + (size_t)token * WIDTH, 0, WIDTH * sizeof *matrix);
    matrix[(size_t)token * WIDTH + column] = 1;
}

static uint32_t teach(struct weights *w, const struct cli_talker *talker,
                      const struct tokenizer *tokenizer) {
    struct text_encoder *encoder = NULL;
    struct text_tokens says = {0};
    for (uint32_t i = 0; i < w->vocab; i++) w->embedding[(size_t)i * WIDTH] = 1;
    for (uint32_t i = 0; i < WIDTH * WIDTH; i++) w->ones[i] = 1;
    EXPECT_STATUS(text_encoder_new(tokenizer, &encoder), WEIR_OK);
    EXPECT_STATUS(text_encode(encoder, talker->says, strlen(talker->says), 0, &says), WEIR_OK);
    uint32_t count = (uint32_t)says.count, after = 0;
    EXPECT(count >= 1 && count <= SAYS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        set_one(w->embedding, says.ids[i], i + 1);
        set_one(w->head, says.ids[i], i);
    }
    if (talker->then != NULL) after = tokenizer_find(tokenizer, talker->then);
    if (talker->then != NULL)
        set_one(w->head, after, count);
    else
        w->head[(size_t)says.ids[0] * WIDTH + count] = 1;
    text_encoder_destroy(encoder);
    return count;
}

static void write_files(const char *folder, const struct cli_talker *talker, uint32_t vocab) {
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\": \"llama\", \"hidden_size\": %d, \"intermediate_size\": %d, "
             "\"num_hidden_layers\": %d, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
             "\"head_dim\": 16, \"vocab_size\": %u, \"max_position_embeddings\": %u, "
             "\"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\"}",
             WIDTH, INNER, LAYERS, vocab, talker->context);
    cli_write(folder, "model/config.json", text);
}

uint32_t cli_make_talker(const char *folder, const struct cli_talker *talker) {
    struct weir_error error = {0};
    struct weir__io io = {.allocator = test_allocator(), .error = &error};
    static struct weights w;
    struct tokenizer *tokenizer = NULL;
    char path[512];
    if (!cli_do(folder,
                "mkdir model && cp \"$OLDPWD\"/tests/golden/tokenizers/%s.json "
                "model/tokenizer.json",
                talker->family))
        return 0;
    snprintf(path, sizeof path, "%s/model", folder);
    if (!EXPECT_STATUS(tokenizer_open(&io, path, &tokenizer), WEIR_OK)) return 0;
    w = (struct weights){.folder = folder, .vocab = tokenizer_size(tokenizer)};
    size_t numbers = (size_t)w.vocab * WIDTH;
    w.embedding = calloc(numbers, sizeof(float));
    w.head = calloc(numbers, sizeof(float));
    w.zeros = calloc(WIDTH * WIDTH, sizeof(float));
    w.ones = calloc(WIDTH * WIDTH, sizeof(float));
    uint32_t count = teach(&w, talker, tokenizer);
    write_files(folder, talker, w.vocab);
    save(&w);
    free(w.embedding);
    free(w.head);
    free(w.zeros);
    free(w.ones);
    tokenizer_close(tokenizer);
    return count;
}
