/* SPDX-License-Identifier: MIT */
/* Conversations from lines of JSON: each is a passage, or a fault that names file and line. */
#include "data/documents.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#define FILE_BYTES_MAX ((size_t)1 << 32)

struct chat_reading {
    const struct weir__io *io;
    const struct model_text *words;
    struct text_encoder *encoder;
    struct weir__documents *documents;
    struct weir_faults *faults;
    uint32_t context;
    const char *path;
    uint64_t line;
    struct weir__bytes messages; /* struct chat_message, whose texts are the line's JSON */
    size_t count;
    struct chat_tokens tokens;
};

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
/* Returns WEIR_ERR_CONFIG. */
static int
refuse(const struct chat_reading *r, const char *format, ...) {
    char reason[384], shown[96];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    weir_faults_add(r->faults, "%s, line %" PRIu64 ": %s", weir__path_text(r->path, shown), r->line,
                    reason);
    return WEIR_ERR_CONFIG;
}

/* ---- a line's messages ---- */

static int add_message(struct chat_reading *r, enum chat_role role, const json_t *text) {
    struct chat_message message = {role, json_string_value(text), json_string_length(text)};
    int status = weir__bytes_append(r->io, &r->messages, &message, sizeof message);
    if (status == WEIR_OK) r->count++;
    return status;
}

static int check_message(const struct chat_reading *r, json_t *message, enum chat_role *role) {
    size_t number = r->count + 1;
    const json_t *name = json_object_get(message, "role");
    const char *key;
    json_t *value;
    if (!json_is_object(message))
        return refuse(r, "message %zu is no object: write {\"role\": …, \"content\": …}", number);
    if (!json_is_string(name))
        return refuse(r, "message %zu has no \"role\": give system, user or assistant", number);
    if (strlen(json_string_value(name)) != json_string_length(name) ||
        !chat_role_find(json_string_value(name), role))
        return refuse(r,
                      "message %zu has the role \"%.40s\": only system, user and assistant are "
                      "taken",
                      number, json_string_value(name));
    if (!json_is_string(json_object_get(message, "content")))
        return refuse(r, "message %zu has no text as its \"content\": give a string", number);
    json_object_foreach(message, key, value) {
        bool known = strcmp(key, "role") == 0 || strcmp(key, "content") == 0;
        if (!known && !json_is_null(value))
            return refuse(r, "message %zu has \"%.40s\", which would be left out: take it away",
                          number, key);
    }
    return WEIR_OK;
}

static int take_messages(struct chat_reading *r, const json_t *list) {
    enum chat_role role = CHAT_USER;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return refuse(r, "\"messages\" is no list of messages: give at least one of a user and a "
                         "reply");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *message = json_array_get(list, i);
        int status = check_message(r, message, &role);
        if (status != WEIR_OK) return status;
        status = add_message(r, role, json_object_get(message, "content"));
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int take_pair(struct chat_reading *r, const json_t *prompt, const json_t *completion) {
    if (prompt == NULL && completion == NULL)
        return refuse(r, "there are neither \"messages\" nor \"prompt\" and \"completion\": give "
                         "one of both");
    if (!json_is_string(prompt) || !json_is_string(completion))
        return refuse(r, "\"prompt\" and \"completion\" are not both texts: give two strings, or "
                         "\"messages\"");
    int status = add_message(r, CHAT_USER, prompt);
    return status == WEIR_OK ? add_message(r, CHAT_ASSISTANT, completion) : status;
}

static int take_object(struct chat_reading *r, const json_t *root) {
    static const char *const written[] = {"tools", "functions", "documents",
                                          "chat_template_kwargs"};
    const json_t *messages = json_object_get(root, "messages");
    if (!json_is_object(root)) return refuse(r, "is no object in JSON: give {\"messages\": …}");
    for (size_t i = 0; i < sizeof written / sizeof *written; i++) {
        const json_t *value = json_object_get(root, written[i]);
        if (value != NULL && !json_is_null(value))
            return refuse(r, "\"%s\" would be left out: take it away", written[i]);
    }
    if (messages != NULL && !json_is_null(messages)) return take_messages(r, messages);
    return take_pair(r, json_object_get(root, "prompt"), json_object_get(root, "completion"));
}

/* ---- its tokens ---- */

static const struct chat_message *messages_of(const struct chat_reading *r) {
    return (const struct chat_message *)(const void *)r->messages.data;
}

static int add_conversation(struct chat_reading *r) {
    struct chat_tokens *tokens = &r->tokens;
    bool replies = false;
    for (size_t i = 0; i < r->count; i++) replies |= messages_of(r)[i].role == CHAT_ASSISTANT;
    if (!replies)
        return refuse(r, "there is no reply (role assistant), and nothing to learn: add one, or "
                         "take the line away");
    int status =
        chat_encode(r->io, r->words->form, r->encoder, messages_of(r), r->count, false, tokens);
    if (status == WEIR_ERR_OVERFLOW) return refuse(r, "is above 1 GiB: shorten it");
    if (status != WEIR_OK) return status;
    if (tokens->count > (size_t)r->context + 1)
        return refuse(r,
                      "has %zu tokens, but a row of --context %" PRIu32 " takes %" PRIu32
                      ": give --context %zu or more, or shorten it",
                      tokens->count, r->context, r->context + 1, tokens->count - 1);
    struct weir__passage passage = {.first = r->documents->token_count,
                                    .count = (uint32_t)tokens->count};
    status = weir__documents_add(r->io, r->documents, tokens->ids, tokens->learnt, tokens->count);
    return status == WEIR_OK ? weir__documents_add_passage(r->io, r->documents, passage) : status;
}

/* Python's JSON takes \u0000, too. */
static int take_line(struct chat_reading *r, const char *text, size_t bytes) {
    json_error_t error;
    json_t *root = json_loadb(
        text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &error);
    r->messages.count = r->count = 0;
    if (root == NULL) return refuse(r, "is no JSON: %.200s", error.text);
    int status = take_object(r, root);
    if (status != WEIR_OK) goto out;
    status = add_conversation(r);
out:
    json_decref(root);
    return status;
}

static bool is_blank(const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (text[i] != ' ' && text[i] != '\t' && text[i] != '\r') return false;
    return true;
}

static int take_lines(struct chat_reading *r, const struct weir__bytes *file) {
    bool refused = false;
    for (size_t at = 0; at < file->count;) {
        const char *text = file->data + at, *end = memchr(text, '\n', file->count - at);
        size_t bytes = end != NULL ? (size_t)(end - text) : file->count - at;
        r->line++;
        int status = is_blank(text, bytes) ? WEIR_OK : take_line(r, text, bytes);
        if (status != WEIR_OK && status != WEIR_ERR_CONFIG) return status;
        refused |= status != WEIR_OK;
        at += bytes + (end != NULL);
    }
    return refused ? WEIR_ERR_CONFIG : WEIR_OK;
}

int weir__documents_add_chats(const struct weir__io *io, const struct model_text *words,
                              const char *path, uint32_t context, struct weir_faults *faults,
                              struct weir__documents *documents) {
    struct chat_reading r = {.io = io,
                             .words = words,
                             .documents = documents,
                             .faults = faults,
                             .context = context,
                             .path = path};
    struct weir__bytes file = {0};
    int status = weir__file_read(io, path, FILE_BYTES_MAX, &file);
    if (status != WEIR_OK) return status;
    status = text_encoder_new(words->tokenizer, &r.encoder);
    if (status != WEIR_OK) goto out;
    status = take_lines(&r, &file);
    documents->file_count++;
out:
    chat_tokens_clean_up(io, &r.tokens);
    weir__bytes_release(io->allocator, &r.messages);
    text_encoder_destroy(r.encoder);
    weir__bytes_release(io->allocator, &file);
    return status;
}
