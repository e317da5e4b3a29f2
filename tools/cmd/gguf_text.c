/* SPDX-License-Identifier: MIT */
#include "cmd/gguf_text.h"

#include "text/chat_template.h"
#include "text/model_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* llama.cpp's kinds of tokens. */
enum gguf_kind { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

struct gguf_words {
    struct gguf_keys *keys;
    const struct weir__io *io;
    const char *folder;
    struct model_text text;
    json_t *tokenizer; /* tokenizer.json */
    json_t *config;    /* tokenizer_config.json, or NULL */
};

static int refuse(const struct gguf_words *w, const char *why) {
    char shown[96];
    return weir__fail(w->io->error, WEIR_ERR_UNSUPPORTED,
                      "%s/tokenizer.json: %s: give --format hf, whose readers have it",
                      weir__path_text(w->folder, shown), why);
}

/* ---- how a text is split ---- */

#define SPLIT_BEFORE "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define SPLIT_AFTER "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const struct {
    const char *split; /* the pattern; NULL: none */
    bool digits;       /* each digit by itself */
    bool ignores_merges;
    const char *name;
} splits[] = {
    {SPLIT_BEFORE "\\p{N}{1,3}" SPLIT_AFTER, false, true, "llama-bpe"},
    {SPLIT_BEFORE "\\p{N}" SPLIT_AFTER, false, false, "qwen2"},
    {NULL, true, false, "smollm"},
    {NULL, false, false, "gpt-2"},
};

static const char *text_in(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* Where it is not said, as the tokenizer takes it. */
static bool flag_in(const json_t *object, const char *key, bool otherwise) {
    const json_t *flag = json_object_get(object, key);
    return flag != NULL ? json_is_true(flag) : otherwise;
}

static bool is_bytes(const json_t *part, bool splits_words) {
    return strcmp(text_in(part, "type"), "ByteLevel") == 0 &&
           flag_in(part, "use_regex", true) == splits_words &&
           !flag_in(part, "add_prefix_space", true);
}

/* What stands before the last part, which makes bytes of a word. */
static const char *name_split(const json_t *before, const json_t *bytes, bool ignores_merges) {
    const json_t *pattern = json_object_get(before, "pattern");
    bool isolated =
        strcmp(text_in(before, "behavior"), "Isolated") == 0 && !flag_in(before, "invert", false);
    bool digits = strcmp(text_in(before, "type"), "Digits") == 0 &&
                  flag_in(before, "individual_digits", false);
    const char *split = isolated ? text_in(pattern, "Regex") : NULL;
    if (before != NULL && !digits && split == NULL) return NULL;
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
        bool same = split == NULL ? splits[i].split == NULL && splits[i].digits == digits
                                  : splits[i].split != NULL && strcmp(splits[i].split, split) == 0;
        if (same && splits[i].ignores_merges == ignores_merges && is_bytes(bytes, split == NULL))
            return splits[i].name;
    }
    return NULL;
}

static int put_split(const struct gguf_words *w) {
    const json_t *part = json_object_get(w->tokenizer, "pre_tokenizer"), *before = NULL;
    const json_t *model = json_object_get(w->tokenizer, "model");
    bool whole = json_is_true(json_object_get(model, "ignore_merges"));
    if (strcmp(text_in(part, "type"), "Sequence") == 0) {
        const json_t *list = json_object_get(part, "pretokenizers");
        size_t count = json_array_size(list);
        if (count < 1 || count > 2) return refuse(w, "llama.cpp has no such pre_tokenizer");
        before = count == 2 ? json_array_get(list, 0) : NULL;
        part = json_array_get(list, count - 1);
    }
    const char *name = name_split(before, part, whole);
    if (name == NULL)
        return refuse(w, "llama.cpp has no such pre_tokenizer, or it goes on by scores that this "
                         "file does not have");
    gguf_put_text(w->keys, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_text(w->keys, "tokenizer.ggml.pre", name, strlen(name));
    return WEIR_OK;
}

/* ---- tokens and merges ---- */

static bool looks_special(const char *text) {
    size_t length = strlen(text);
    return length > 4 && strncmp(text, "<|", 2) == 0 && strcmp(text + length - 2, "|>") == 0;
}

static void put_tokens(const struct gguf_words *w, uint32_t vocabulary) {
    struct tokenizer_token token;
    gguf_put_array(w->keys, "tokenizer.ggml.tokens", GGUF_TEXT, vocabulary);
    for (uint32_t id = 0; id < vocabulary; id++) {
        char unused[24];
        snprintf(unused, sizeof unused, "[PAD%" PRIu32 "]", id);
        const char *text = tokenizer_get(w->text.tokenizer, id, &token) ? token.text : unused;
        gguf_item_text(w->keys, text, strlen(text));
    }
    gguf_put_array(w->keys, "tokenizer.ggml.token_type", GGUF_I32, vocabulary);
    for (uint32_t id = 0; id < vocabulary; id++) {
        enum gguf_kind kind = UNUSED;
        if (tokenizer_get(w->text.tokenizer, id, &token))
            kind = !token.added                                 ? NORMAL
                   : token.special || looks_special(token.text) ? CONTROL
                                                                : USER_DEFINED;
        gguf_item_i32(w->keys, (int32_t)kind);
    }
}

/* A merge is a pair, or both with a blank between them. */
static int put_merges(const struct gguf_words *w) {
    const json_t *model = json_object_get(w->tokenizer, "model");
    const json_t *merges = json_object_get(model, "merges");
    size_t count = json_array_size(merges);
    gguf_put_array(w->keys, "tokenizer.ggml.merges", GGUF_TEXT, count);
    for (size_t i = 0; i < count; i++) {
        const json_t *merge = json_array_get(merges, i);
        const json_t *a = json_array_get(merge, 0), *b = json_array_get(merge, 1);
        struct weir__bytes text = {0};
        size_t first = json_string_length(a), second = json_string_length(b);
        if (json_is_string(merge)) {
            gguf_item_text(w->keys, json_string_value(merge), json_string_length(merge));
            continue;
        }
        int status = weir__bytes_reserve(w->io, &text, first + 1 + second);
        if (status != WEIR_OK) return status;
        memcpy(text.data, json_string_value(a), first);
        text.data[first] = ' ';
        memcpy(text.data + first + 1, json_string_value(b), second);
        gguf_item_text(w->keys, text.data, first + 1 + second);
        weir__bytes_release(w->io->allocator, &text);
    }
    return WEIR_OK;
}

/* ---- single tokens ---- */

/* That of tokenizer_config.json, a text or an object with one, else `otherwise`. */
static uint32_t special_of(const struct gguf_words *w, const char *key, uint32_t otherwise) {
    const json_t *value = json_object_get(w->config, key);
    if (json_is_object(value)) value = json_object_get(value, "content");
    if (!json_is_string(value)) return otherwise;
    uint32_t id = tokenizer_find(w->text.tokenizer, json_string_value(value));
    return id != TOKENIZER_NONE ? id : otherwise;
}

static void put_special(const struct gguf_words *w, const char *key, uint32_t id) {
    if (id != TOKENIZER_NONE) gguf_put_u32(w->keys, key, id);
}

/* What the tokenizer puts around a text: nothing, or one token before it. */
static int find_begin(const struct gguf_words *w, uint32_t *begin) {
    struct text_encoder *encoder = NULL;
    struct text_tokens tokens;
    *begin = TOKENIZER_NONE;
    int status = text_encoder_new(w->text.tokenizer, &encoder);
    if (status != WEIR_OK) return status;
    status = text_encode(encoder, "0", 1, 0, &tokens);
    if (status != WEIR_OK) goto out;
    size_t plain = tokens.count;
    if (plain == 0) {
        status = refuse(w, "the text \"0\" has no token");
        goto out;
    }
    uint32_t last = tokens.ids[plain - 1];
    status = text_encode(encoder, "0", 1, TEXT_ADD_SPECIAL, &tokens);
    if (status != WEIR_OK || tokens.count == plain) goto out;
    if (tokens.count == plain + 1 && tokens.ids[plain] == last)
        *begin = tokens.ids[0];
    else
        status = refuse(w, "it puts more around a text than one token before it");
out:
    text_encoder_destroy(encoder);
    return status;
}

static int put_specials(const struct gguf_words *w) {
    uint32_t begin = TOKENIZER_NONE;
    int status = find_begin(w, &begin);
    if (status != WEIR_OK) return status;
    uint32_t end = w->text.end_count > 0 ? w->text.ends[0] : TOKENIZER_NONE;
    uint32_t first = begin != TOKENIZER_NONE ? begin : special_of(w, "bos_token", w->text.begin);
    put_special(w, "tokenizer.ggml.bos_token_id", first);
    put_special(w, "tokenizer.ggml.eos_token_id", special_of(w, "eos_token", end));
    put_special(w, "tokenizer.ggml.padding_token_id", special_of(w, "pad_token", TOKENIZER_NONE));
    gguf_put_bool(w->keys, "tokenizer.ggml.add_bos_token", begin != TOKENIZER_NONE);
    return WEIR_OK;
}

static int put_template(const struct gguf_words *w) {
    struct weir__bytes text;
    int status = chat_template_read(w->io, w->folder, &text);
    if (status == WEIR_OK && text.data != NULL)
        gguf_put_text(w->keys, "tokenizer.chat_template", text.data, text.count);
    weir__bytes_release(w->io->allocator, &text);
    return status;
}

/* ---- all ---- */

static int put_all(struct gguf_words *w, uint32_t vocabulary) {
    char shown[96];
    int status = model_text_read(w->io, w->folder, "tokenizer.json", 0, &w->tokenizer);
    if (status != WEIR_OK) return status;
    /* model_max_length may be 10^30 */
    status = model_text_read(w->io, w->folder, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL,
                             &w->config);
    if (status != WEIR_OK) return status;
    if (tokenizer_size(w->text.tokenizer) > vocabulary)
        return weir__fail(
            w->io->error, WEIR_ERR_CONFIG,
            "%s: the tokenizer has %" PRIu32 " tokens, the model's vocabulary %" PRIu32
            ": give the folder its own tokenizer.json",
            weir__path_text(w->folder, shown), tokenizer_size(w->text.tokenizer), vocabulary);
    if ((status = put_split(w)) != WEIR_OK) return status;
    put_tokens(w, vocabulary);
    if ((status = put_merges(w)) != WEIR_OK) return status;
    if ((status = put_specials(w)) != WEIR_OK) return status;
    if ((status = put_template(w)) != WEIR_OK) return status;
    return w->keys->status;
}

int gguf_put_words(struct gguf_keys *keys, const char *folder, uint32_t vocabulary) {
    struct gguf_words w = {.keys = keys, .io = keys->io, .folder = folder};
    int status = model_text_open(w.io, folder, &w.text);
    if (status != WEIR_OK) return status;
    status = put_all(&w, vocabulary);
    json_decref(w.tokenizer);
    json_decref(w.config);
    model_text_close(&w.text);
    return status;
}
