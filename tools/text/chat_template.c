/* SPDX-License-Identifier: MIT */
#include "text/chat_template.h"

#include "text/model_text.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define FILE_BYTES_MAX (64u << 20)
#define TEMPLATE_FILE "chat_template.jinja"
#define CONFIG_FILE "tokenizer_config.json"
#define DATES "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"

struct chat_template {
    const char *name;
    const char *start, *middle, *end, *after; /* around a turn's role and text */
    const char *first;                        /* before all */
    const char *system;                       /* the system turn where none is; NULL: no turn */
    bool trims, dates, thinks;
};

#define HEADERS                                                                                    \
    "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", "", "<|begin_of_text|>"
#define CHATML "<|im_start|>", "\n", "<|im_end|>", "\n", ""

static const struct chat_template forms[] = {
    {"llama3", HEADERS, NULL, .trims = true},
    {"llama3.1", HEADERS, "", .trims = true, .dates = true},
    {"qwen2.5", CHATML, "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
    {"qwen3", CHATML, NULL, .thinks = true},
    {"smollm2", CHATML, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"},
};

/* XXH64 of the published text without its last line end. */
static const struct {
    uint64_t digest;
    const char *name;
} published[] = {
    {0xc0e2a829a7f6e18a, "llama3.1"}, {0xe980fb39e0834855, "llama3.1"},
    {0xdcdc8f0c69cd885e, "llama3"},   {0x14f39dfcc63bcdcb, "qwen2.5"},
    {0xebed4c75e31de940, "qwen3"},    {0x406244e5f006a13a, "smollm2"},
};

const struct chat_template *chat_template_named(const char *name) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (strcmp(forms[i].name, name) == 0) return &forms[i];
    return NULL;
}

const char *chat_template_name(const struct chat_template *form) {
    return form->name;
}

const char *chat_template_end(const struct chat_template *form) {
    return form->end;
}

const struct chat_template *chat_template_of_text(const char *text, size_t bytes) {
    if (bytes > 0 && text[bytes - 1] == '\n') bytes--;
    uint64_t digest = weir__xxh64(text, bytes);
    for (size_t i = 0; i < sizeof published / sizeof *published; i++)
        if (published[i].digest == digest) return chat_template_named(published[i].name);
    return NULL;
}

/* ---- a folder's ---- */

/* The one, or of several that which is named so. */
static const json_t *default_of(const json_t *templates) {
    const json_t *found = json_is_string(templates) ? templates : NULL;
    for (size_t i = 0; i < json_array_size(templates); i++) {
        const json_t *each = json_array_get(templates, i);
        const char *name = json_string_value(json_object_get(each, "name"));
        if (name != NULL && strcmp(name, "default") == 0) found = json_object_get(each, "template");
    }
    return json_is_string(found) ? found : NULL;
}

static int read_config(const struct weir__io *io, const char *folder, struct weir__bytes *text) {
    json_t *root;
    /* model_max_length may be 10^30 */
    int status = model_text_read(io, folder, CONFIG_FILE, JSON_DECODE_INT_AS_REAL, &root);
    const json_t *found = default_of(json_object_get(root, "chat_template"));
    if (status == WEIR_OK && found != NULL)
        status = weir__bytes_append(io, text, json_string_value(found), json_string_length(found));
    json_decref(root);
    return status;
}

int chat_template_read(const struct weir__io *io, const char *folder, struct weir__bytes *text) {
    char path[PATH_MAX];
    *text = (struct weir__bytes){0};
    return weir__folder_has(io, folder, TEMPLATE_FILE, path)
               ? weir__file_read(io, path, FILE_BYTES_MAX, text)
               : read_config(io, folder, text);
}

int chat_template_find(const struct weir__io *io, const char *folder,
                       const struct chat_template **found) {
    char path[PATH_MAX], shown[96];
    struct weir__bytes text;
    *found = NULL;
    int status = chat_template_read(io, folder, &text);
    if (status == WEIR_OK && !weir__folder_has(io, folder, TEMPLATE_FILE, path))
        status = weir__path_join(io, folder, CONFIG_FILE, path);
    if (status != WEIR_OK) return status;
    bool has = text.data != NULL;
    if (has) *found = chat_template_of_text(text.data, text.count);
    weir__bytes_release(io->allocator, &text);
    if (*found != NULL) return WEIR_OK;
    return has ? weir__fail(io->error, WEIR_ERR_UNSUPPORTED,
                            "%s: the chat template is none of the published ones that are known: "
                            "name the one that it writes like by --template (" CHAT_TEMPLATE_NAMES
                            ")",
                            weir__path_text(path, shown))
               : weir__fail(io->error, WEIR_ERR_NOT_FOUND,
                            "%s: has no chat template, neither in " TEMPLATE_FILE
                            " nor in " CONFIG_FILE ": name one by --template (" CHAT_TEMPLATE_NAMES
                            ")",
                            weir__path_text(folder, shown));
}

static int check_token(const struct weir__io *io, const struct chat_template *form,
                       const struct tokenizer *tokenizer, const char *mark) {
    char token[32];
    struct tokenizer_token facts;
    snprintf(token, sizeof token, "%.*s", (int)strcspn(mark, "\n"), mark);
    if (token[0] == '\0') return WEIR_OK;
    uint32_t id = tokenizer_find(tokenizer, token);
    if (id != TOKENIZER_NONE && tokenizer_get(tokenizer, id, &facts) && facts.added) return WEIR_OK;
    return weir__fail(io->error, WEIR_ERR_UNSUPPORTED,
                      "the chat template %s writes %s, which is no added token of the tokenizer: "
                      "name another one by --template (" CHAT_TEMPLATE_NAMES ")",
                      form->name, token);
}

int chat_template_check(const struct weir__io *io, const struct chat_template *form,
                        const struct tokenizer *tokenizer) {
    const char *marks[] = {form->first, form->start, form->middle, form->end};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        int status = check_token(io, form, tokenizer, marks[i]);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* ---- a conversation's text ---- */

static const char *const roles[] = {"system", "user", "assistant"};

bool chat_role_find(const char *name, enum chat_role *role) {
    for (unsigned i = 0; i < sizeof roles / sizeof *roles; i++) {
        if (strcmp(roles[i], name) != 0) continue;
        *role = (enum chat_role)i;
        return true;
    }
    return false;
}

struct piece {
    const char *at;
    size_t bytes;
};

struct writer {
    const struct weir__io *io;
    const struct chat_template *form;
    struct chat_tokens *to;
    int status;  /* the first failure */
    bool learnt; /* what is written now */
};

static void put(struct writer *w, struct piece piece) {
    struct chat_tokens *to = w->to;
    if (w->status == WEIR_OK) w->status = weir__bytes_reserve(w->io, &to->marks, piece.bytes);
    if (w->status == WEIR_OK)
        w->status = weir__bytes_append(w->io, &to->text, piece.at, piece.bytes);
    if (w->status != WEIR_OK || piece.bytes == 0) return;
    memset(to->marks.data + to->marks.count, w->learnt, piece.bytes);
    to->marks.count += piece.bytes;
}

static void put_text(struct writer *w, const char *text) {
    put(w, (struct piece){text, strlen(text)});
}

static void begin_turn(struct writer *w, enum chat_role role) {
    put_text(w, w->form->start);
    put_text(w, roles[role]);
    put_text(w, w->form->middle);
    w->learnt = role == CHAT_ASSISTANT;
}

static void end_turn(struct writer *w) {
    put_text(w, w->form->end);
    w->learnt = false;
    put_text(w, w->form->after);
}

/* Bytes of the blank at the beginning of the text, as Python's str.strip takes it; 0: none. */
static size_t blank_at(const unsigned char *at, size_t bytes) {
    if (bytes == 0) return 0;
    if ((at[0] >= 9 && at[0] <= 13) || (at[0] >= 28 && at[0] <= 32)) return 1;
    if (bytes >= 2 && at[0] == 0xC2 && (at[1] == 0x85 || at[1] == 0xA0)) return 2;
    if (bytes < 3) return 0;
    unsigned code = (at[0] & 15u) << 12 | (at[1] & 63u) << 6 | (at[2] & 63u);
    if (at[0] < 0xE1 || at[0] > 0xE3) return 0;
    bool blank = code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
                 code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
    return blank ? 3 : 0;
}

static struct piece trim(struct piece piece) {
    size_t blank;
    while ((blank = blank_at((const unsigned char *)piece.at, piece.bytes)) > 0) {
        piece.at += blank;
        piece.bytes -= blank;
    }
    for (size_t back = 1; back <= 3 && back <= piece.bytes; back++) {
        const char *at = piece.at + piece.bytes - back;
        if (blank_at((const unsigned char *)at, back) != back) continue;
        piece.bytes -= back;
        back = 0;
    }
    return piece;
}

static struct piece trim_lines(struct piece piece, bool left, bool right) {
    while (left && piece.bytes > 0 && piece.at[0] == '\n') piece.at++, piece.bytes--;
    while (right && piece.bytes > 0 && piece.at[piece.bytes - 1] == '\n') piece.bytes--;
    return piece;
}

/* The first or last place of a word in a text; NULL: none. */
static const char *find(struct piece piece, const char *word, bool last) {
    size_t length = strlen(word);
    const char *found = NULL;
    for (size_t i = 0; i + length <= piece.bytes; i++) {
        if (memcmp(piece.at + i, word, length) != 0) continue;
        found = piece.at + i;
        if (!last) break;
    }
    return found;
}

static struct piece from(struct piece piece, const char *at) {
    return (struct piece){at, piece.bytes - (size_t)(at - piece.at)};
}

/* A reply of Qwen3: what was thought is kept behind the last user's turn only. */
static void put_reply(struct writer *w, struct piece text, bool after_user, bool last) {
    struct piece thought = {text.at, 0};
    const char *close = find(text, "</think>", false);
    if (close != NULL) {
        thought = trim_lines((struct piece){text.at, (size_t)(close - text.at)}, false, true);
        const char *open = find(thought, "<think>", true);
        if (open != NULL) thought = from(thought, open + strlen("<think>"));
        thought = trim_lines(thought, true, false);
        text = from(text, find(text, "</think>", true) + strlen("</think>"));
        text = trim_lines(text, true, false);
    }
    if (after_user && (last || thought.bytes > 0)) {
        put_text(w, "<think>\n");
        put(w, trim_lines(thought, true, true));
        put_text(w, "\n</think>\n\n");
        text = trim_lines(text, true, false);
    }
    put(w, text);
}

static bool has_end(struct piece piece, const char *word, bool begin) {
    size_t length = strlen(word);
    const char *at = begin ? piece.at : piece.at + piece.bytes - length;
    return piece.bytes >= length && memcmp(at, word, length) == 0;
}

/* The last turn of a user; a tool's answer, which some write as one, is none. */
static size_t last_user(const struct chat_message *messages, size_t count) {
    for (size_t i = count; i-- > 0;) {
        struct piece text = {messages[i].text, messages[i].bytes};
        if (messages[i].role != CHAT_USER) continue;
        if (has_end(text, "<tool_response>", true) && has_end(text, "</tool_response>", false))
            continue;
        return i;
    }
    return count - 1;
}

/* The first turn where the template writes one of its own; the messages that are done by it. */
static size_t put_system(struct writer *w, const struct chat_message *first) {
    bool given = first->role == CHAT_SYSTEM;
    const char *own = w->form->system;
    if (own == NULL || (given && !w->form->dates)) return 0;
    begin_turn(w, CHAT_SYSTEM);
    if (w->form->dates) put_text(w, DATES);
    if (given)
        put(w, trim((struct piece){first->text, first->bytes}));
    else
        put_text(w, own);
    end_turn(w);
    return given;
}

static void put_all(struct writer *w, const struct chat_message *messages, size_t count) {
    size_t user = last_user(messages, count);
    put_text(w, w->form->first);
    for (size_t i = put_system(w, messages); i < count; i++) {
        struct piece text = {messages[i].text, messages[i].bytes};
        begin_turn(w, messages[i].role);
        if (w->form->trims) text = trim(text);
        if (w->form->thinks && messages[i].role == CHAT_ASSISTANT)
            put_reply(w, text, i > user, i + 1 == count);
        else
            put(w, text);
        end_turn(w);
    }
}

/* ---- its tokens ---- */

static int take_tokens(const struct weir__io *io, const struct text_tokens *from,
                       struct chat_tokens *to) {
    int status = weir__bytes_reserve(io, &to->id_room, from->count * sizeof *from->ids);
    if (status != WEIR_OK) return status;
    status = weir__bytes_reserve(io, &to->learnt_room, from->count * sizeof(bool));
    if (status != WEIR_OK) return status;
    bool *learnt = (bool *)to->learnt_room.data;
    for (size_t i = 0; i < from->count; i++) {
        uint32_t end = from->spans[i].end;
        learnt[i] = end > 0 && to->marks.data[end - 1] != 0;
    }
    if (from->count > 0) memcpy(to->id_room.data, from->ids, from->count * sizeof *from->ids);
    to->ids = (const uint32_t *)(const void *)to->id_room.data;
    to->learnt = learnt;
    to->count = from->count;
    return WEIR_OK;
}

int chat_encode(const struct weir__io *io, const struct chat_template *form,
                struct text_encoder *encoder, const struct chat_message *messages, size_t count,
                bool prompt, struct chat_tokens *tokens) {
    struct writer w = {io, form, tokens, WEIR_OK, false};
    struct text_tokens encoded;
    tokens->text.count = tokens->marks.count = tokens->count = 0;
    if (count == 0)
        return weir__fail(io->error, WEIR_ERR_ARGUMENT, "a conversation has no message");
    put_all(&w, messages, count);
    if (prompt) begin_turn(&w, CHAT_ASSISTANT);
    if (w.status != WEIR_OK) return w.status;
    int status = text_encode(encoder, tokens->text.data, tokens->text.count, TEXT_SPANS, &encoded);
    if (status != WEIR_OK)
        return weir__fail(io->error, status, "a conversation of %zu bytes cannot be encoded",
                          tokens->text.count);
    return take_tokens(io, &encoded, tokens);
}

void chat_tokens_clean_up(const struct weir__io *io, struct chat_tokens *tokens) {
    weir__bytes_release(io->allocator, &tokens->text);
    weir__bytes_release(io->allocator, &tokens->marks);
    weir__bytes_release(io->allocator, &tokens->id_room);
    weir__bytes_release(io->allocator, &tokens->learnt_room);
    *tokens = (struct chat_tokens){0};
}
