/* SPDX-License-Identifier: MIT */
#include "text/model_text.h"

#include <limits.h>
#include <stdio.h>

#define FILE_BYTES_MAX ((size_t)256 << 20)

const char *const model_text_templates[] = {"auto",  "llama3",  "llama3.1", "qwen2.5",
                                            "qwen3", "smollm2", NULL};

/* ---- the folder's files ---- */

bool model_text_is(const struct weir__io *io, const char *folder) {
    char path[PATH_MAX];
    return weir__folder_has(io, folder, "tokenizer.json", path);
}

int model_text_read(const struct weir__io *io, const char *folder, const char *name, size_t flags,
                    json_t **root) {
    char path[PATH_MAX], shown[96];
    struct weir__bytes bytes = {0};
    *root = NULL;
    if (!weir__folder_has(io, folder, name, path)) return WEIR_OK;
    int status = weir__file_read(io, path, FILE_BYTES_MAX, &bytes);
    if (status != WEIR_OK) return status;
    json_t *read = json_loadb(bytes.data, bytes.count, JSON_REJECT_DUPLICATES | flags, NULL);
    weir__bytes_release(io->allocator, &bytes);
    if (json_is_object(read)) {
        *root = read;
        return WEIR_OK;
    }
    json_decref(read);
    return weir__fail(io->error, WEIR_ERR_FORMAT, "%s: is not an object in JSON",
                      weir__path_text(path, shown));
}

/* ---- numbers of tokens ---- */

static int refuse_field(const struct weir__io *io, const char *folder, const char *file,
                        const char *key) {
    char shown[96];
    return weir__fail(io->error, WEIR_ERR_FORMAT,
                      "%s/%s: \"%s\" is neither a token's number nor a list of at most %d: mend it "
                      "or leave it away",
                      weir__path_text(folder, shown), file, key, MODEL_TEXT_ENDS_MAX - 1);
}

static bool take_id(const json_t *value, uint32_t *id) {
    json_int_t number = json_integer_value(value);
    if (!json_is_integer(value) || number < 0 || number >= (json_int_t)TOKENIZER_NONE) return false;
    *id = (uint32_t)number;
    return true;
}

static void add_end(struct model_text *text, uint32_t id) {
    if (id == TOKENIZER_NONE || model_text_ends(text, id)) return;
    if (text->end_count < MODEL_TEXT_ENDS_MAX) text->ends[text->end_count++] = id;
}

/* One place is left for the token that ends a turn. */
static bool take_ends(const json_t *value, struct model_text *text) {
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count >= MODEL_TEXT_ENDS_MAX) return false;
    for (size_t i = 0; i < count; i++) {
        uint32_t id;
        if (!take_id(json_is_array(value) ? json_array_get(value, i) : value, &id)) return false;
        add_end(text, id);
    }
    return true;
}

/* Of a file the fields that no file before it had. */
static int take_file(const struct weir__io *io, const char *folder, const char *file,
                     struct model_text *text) {
    json_t *root;
    int status = model_text_read(io, folder, file, 0, &root);
    if (status != WEIR_OK || root == NULL) return status;
    const json_t *begin = json_object_get(root, "bos_token_id");
    const json_t *ends = json_object_get(root, "eos_token_id");
    bool has_begin = begin != NULL && !json_is_null(begin) && text->begin == TOKENIZER_NONE;
    bool has_ends = ends != NULL && !json_is_null(ends) && text->end_count == 0;
    if (has_begin && !take_id(begin, &text->begin))
        status = refuse_field(io, folder, file, "bos_token_id");
    else if (has_ends && !take_ends(ends, text))
        status = refuse_field(io, folder, file, "eos_token_id");
    json_decref(root);
    return status;
}

static uint32_t find_separator(const struct model_text *text) {
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};
    struct tokenizer_token token;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint32_t id = tokenizer_find(text->tokenizer, names[i]);
        if (id != TOKENIZER_NONE && tokenizer_get(text->tokenizer, id, &token) && token.added)
            return id;
    }
    return text->end_count > 0 ? text->ends[0] : TOKENIZER_NONE;
}

/* ---- all ---- */

int model_text_open(const struct weir__io *io, const char *folder, struct model_text *text) {
    *text = (struct model_text){.begin = TOKENIZER_NONE, .separator = TOKENIZER_NONE};
    int status = take_file(io, folder, "generation_config.json", text);
    if (status != WEIR_OK) return status;
    if ((status = take_file(io, folder, "config.json", text)) != WEIR_OK) return status;
    status = tokenizer_open(io, folder, &text->tokenizer);
    if (status == WEIR_OK) text->separator = find_separator(text);
    return status;
}

int model_text_choose(const struct weir__io *io, const char *folder, uint32_t name,
                      struct model_text *text) {
    const struct chat_template *form = NULL;
    int status = WEIR_OK;
    if (name == 0)
        status = chat_template_find(io, folder, &form);
    else
        form = chat_template_named(model_text_templates[name]);
    if (status != WEIR_OK) return status;
    if ((status = chat_template_check(io, form, text->tokenizer)) != WEIR_OK) return status;
    text->form = form;
    add_end(text, tokenizer_find(text->tokenizer, chat_template_end(form)));
    return WEIR_OK;
}

bool model_text_ends(const struct model_text *text, uint32_t id) {
    for (uint32_t i = 0; i < text->end_count; i++)
        if (text->ends[i] == id) return true;
    return false;
}

void model_text_close(struct model_text *text) {
    tokenizer_close(text->tokenizer);
    *text = (struct model_text){0};
}
