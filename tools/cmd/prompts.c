/* SPDX-License-Identifier: MIT */
/* Lines into tokens, and equal prompts told apart. */
#include "cmd/prompts.h"

#include "io/file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 1 << 26 };

void prompts_clean_up(struct prompts *prompts) {
    for (uint32_t i = 0; i < prompts->count; i++) {
        free(prompts->list[i].tokens);
        free(prompts->list[i].text);
    }
    free(prompts->list);
    text_encoder_destroy(prompts->encoder);
    *prompts = (struct prompts){0};
}

/* A new prompt of `count` >= 1 tokens, to be filled in; NULL without memory. */
static struct prompt *add(struct prompts *prompts, uint32_t count, const char *label) {
    if (prompts->count == prompts->capacity) {
        uint32_t capacity = prompts->capacity == 0 ? 16 : 2 * prompts->capacity;
        void *list = realloc(prompts->list, capacity * sizeof *prompts->list);
        if (list == NULL) return NULL;
        prompts->list = list;
        prompts->capacity = capacity;
    }
    struct prompt *prompt = &prompts->list[prompts->count];
    *prompt = (struct prompt){.count = count};
    snprintf(prompt->label, sizeof prompt->label, "%s", label);
    prompt->tokens = malloc(prompt->count * sizeof prompt->tokens[0]);
    if (prompt->tokens == NULL) return NULL;
    prompts->count++;
    return prompt;
}

int prompts_read_by(struct prompts *prompts, const struct model_text *model) {
    prompts->model = model;
    return text_encoder_new(model->tokenizer, &prompts->encoder);
}

static int add_bytes(struct prompts *prompts, const char *text, size_t bytes, const char *label) {
    struct prompt *prompt = add(prompts, bytes > 0 ? (uint32_t)bytes : 1, label);
    if (prompt == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    prompt->empty = bytes == 0;
    prompt->tokens[0] = '\n';
    for (size_t i = 0; i < bytes; i++) prompt->tokens[i] = (uint8_t)text[i];
    return WEIR_OK;
}

static int add_encoded(struct prompts *prompts, const char *text, size_t bytes, const char *label,
                       struct weir_faults *faults) {
    struct text_tokens tokens;
    int status = text_encode(prompts->encoder, text, bytes, TEXT_ADD_SPECIAL, &tokens);
    if (status != WEIR_OK) return status;
    uint32_t begin = prompts->model->begin;
    if (begin == TOKENIZER_NONE) begin = prompts->model->separator;
    if (tokens.count == 0 && begin == TOKENIZER_NONE) {
        weir_faults_add(faults,
                        "%s is empty, and the model has no token that texts begin with: "
                        "give it some text",
                        label);
        return WEIR_ERR_CONFIG;
    }
    struct prompt *prompt = add(prompts, tokens.count > 0 ? (uint32_t)tokens.count : 1, label);
    if (prompt == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    prompt->tokens[0] = begin;
    for (size_t i = 0; i < tokens.count; i++) prompt->tokens[i] = tokens.ids[i];
    return WEIR_OK;
}

int prompts_add_text(struct prompts *prompts, const char *text, size_t bytes, const char *label,
                     struct weir_faults *faults) {
    if (bytes > FILE_BYTES_MAX) return WEIR_ERR_OUT_OF_MEMORY;
    int status = prompts->model != NULL ? add_encoded(prompts, text, bytes, label, faults)
                                        : add_bytes(prompts, text, bytes, label);
    if (status != WEIR_OK) return status;
    struct prompt *prompt = &prompts->list[prompts->count - 1];
    prompt->text = malloc(bytes + 1);
    if (prompt->text == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    memcpy(prompt->text, text, bytes);
    prompt->text[bytes] = '\0';
    prompt->bytes = bytes;
    return WEIR_OK;
}

int prompts_add_ids(struct prompts *prompts, const char *text, const char *label,
                    struct weir_faults *faults) {
    uint32_t count = 1;
    for (const char *comma = text; (comma = strchr(comma, ',')) != NULL; comma++) count++;
    struct prompt *prompt = add(prompts, count, label);
    if (prompt == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    const char *at = text;
    for (uint32_t i = 0; i < count; i++, at++) {
        char *end = NULL;
        unsigned long long token = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : UINT64_MAX;
        prompt->tokens[i] = (uint32_t)token;
        if (token <= UINT32_MAX && *end == (i + 1 < count ? ',' : '\0')) at = end;
        if (at == end) continue;
        weir_faults_add(faults, "--prompt-ids %.60s: not token numbers: write them like 15496,995",
                        text);
        return WEIR_ERR_CONFIG;
    }
    return WEIR_OK;
}

/* ---- files ---- */

/* In place; false where a backslash is followed by something else, which *wrong then points to. */
static bool unescape(char *line, size_t *bytes, const char **wrong) {
    size_t used = 0;
    for (size_t i = 0; i < *bytes; i++) {
        char byte = line[i];
        if (byte == '\\') {
            static const char names[] = "nt\\", meant[] = "\n\t\\";
            const char *name =
                i + 1 < *bytes && line[i + 1] != '\0' ? strchr(names, line[i + 1]) : NULL;
            *wrong = line + i;
            if (name == NULL) return false;
            byte = meant[name - names];
            i++;
        }
        line[used++] = byte;
    }
    *bytes = used;
    return true;
}

static int add_line(struct prompts *prompts, char *line, size_t bytes, const char *label,
                    struct weir_faults *faults) {
    const char *wrong;
    if (bytes > 0 && line[bytes - 1] == '\r') bytes--;
    if (bytes == 0) return WEIR_OK;
    size_t left = bytes;
    if (!unescape(line, &left, &wrong)) {
        int shown = wrong + 1 < line + bytes ? 2 : 1;
        weir_faults_add(faults, "%s: '%.*s': write \\n, \\t, or \\\\ for a backslash", label, shown,
                        wrong);
        return WEIR_ERR_CONFIG;
    }
    return prompts_add_text(prompts, line, left, label, faults);
}

static int add_lines(struct prompts *prompts, char *text, size_t bytes, const char *path,
                     struct weir_faults *faults) {
    const char *name = strcmp(path, "-") == 0 ? "stdin" : path, *slash = strrchr(name, '/');
    uint32_t before = prompts->count;
    int status = WEIR_OK;
    for (size_t at = 0, number = 1; at < bytes; number++) {
        const char *end = memchr(text + at, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - text) - at : bytes - at;
        char label[sizeof prompts->list->label];
        snprintf(label, sizeof label, "%.36s, line %zu", slash != NULL ? slash + 1 : name, number);
        int added = add_line(prompts, text + at, length, label, faults);
        if (added == WEIR_ERR_OUT_OF_MEMORY) return added;
        if (added != WEIR_OK) status = added;
        at += length + 1;
    }
    if (status != WEIR_OK || prompts->count > before) return status;
    weir_faults_add(faults, "--prompt-file %s holds no prompt: write one per line", path);
    return WEIR_ERR_CONFIG;
}

static int read_standard(const struct weir__io *io, struct weir__bytes *text) {
    int status = weir__file_append(io, "stdin", STDIN_FILENO, FILE_BYTES_MAX, text);
    if (status != WEIR_OK) goto fail;
    status = weir__bytes_reserve(io, text, 0);
    if (status != WEIR_OK) goto fail;
    if (text->count <= FILE_BYTES_MAX) return WEIR_OK;
    status = weir__fail(io->error, WEIR_ERR_IO, "more than %d bytes: give fewer prompts",
                        (int)FILE_BYTES_MAX);
fail:
    weir__bytes_release(NULL, text);
    return status;
}

int prompts_add_file(struct prompts *prompts, const char *path, struct weir_faults *faults) {
    struct weir_error error = {0};
    struct weir__io io = {.error = &error};
    struct weir__bytes text = {0};
    bool standard = strcmp(path, "-") == 0;
    int status =
        standard ? read_standard(&io, &text) : weir__file_read(&io, path, FILE_BYTES_MAX, &text);
    if (status != WEIR_OK) {
        if (status != WEIR_ERR_OUT_OF_MEMORY)
            weir_faults_add(faults, "--prompt-file %s: %s", path, error.message);
        return status;
    }
    status = add_lines(prompts, text.data, text.count, path, faults);
    weir__bytes_release(NULL, &text);
    return status;
}

/* ---- texts ---- */

struct named {
    uint64_t hash;
    uint32_t index;
};

static int compare(const void *a, const void *b) {
    const struct named *left = a, *right = b;
    if (left->hash != right->hash) return left->hash < right->hash ? -1 : 1;
    return (left->index > right->index) - (left->index < right->index);
}

/* Equal prompts are numbered in their order. */
static bool identify(const struct prompts *prompts, struct generator_text *texts) {
    struct named *names = malloc(prompts->count * sizeof *names);
    if (names == NULL) return false;
    for (uint32_t i = 0; i < prompts->count; i++)
        names[i] = (struct named){sampler_hash(texts[i].tokens, texts[i].prompt), i};
    qsort(names, prompts->count, sizeof *names, compare);
    for (uint32_t i = 0, number = 0; i < prompts->count; i++) {
        number = i > 0 && names[i].hash == names[i - 1].hash ? number + 1 : 0;
        texts[names[i].index].identity = (struct sampler_text){names[i].hash, number};
    }
    free(names);
    return true;
}

static uint32_t room(const struct prompt *prompt, uint32_t context, uint32_t tokens, bool slides) {
    uint32_t most = prompt->count < context ? context + 1 - prompt->count : 1;
    return prompt->count + (slides || tokens < most ? tokens : most);
}

struct generator_text *prompts_texts(const struct prompts *prompts, uint32_t context,
                                     uint32_t tokens, bool slides) {
    size_t numbers = 0;
    for (uint32_t i = 0; i < prompts->count; i++) {
        numbers += room(&prompts->list[i], context, tokens, slides);
    }
    struct generator_text *texts =
        malloc(prompts->count * sizeof *texts + numbers * sizeof(uint32_t));
    if (texts == NULL) return NULL;
    uint32_t *next = (uint32_t *)(texts + prompts->count);
    for (uint32_t i = 0; i < prompts->count; i++) {
        const struct prompt *from = &prompts->list[i];
        texts[i] = (struct generator_text){
            .tokens = next,
            .prompt = from->count,
            .count = from->count,
            .first = from->count > context ? from->count - context : 0,
        };
        memcpy(next, from->tokens, from->count * sizeof next[0]);
        next += room(from, context, tokens, slides);
    }
    if (identify(prompts, texts)) return texts;
    free(texts);
    return NULL;
}
