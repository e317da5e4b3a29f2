/* SPDX-License-Identifier: MIT */
/*
 * The conversation, and replies to it. Which tokens are read is decided by the tokens alone: a
 * template that writes earlier replies in another way, or text that the tokenizer takes apart in
 * another way than the model put it together, is read again from where it differs.
 */
#include "cmd/chat.h"

#include "cli/interrupt.h"
#include "cli/json_text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- messages ---- */

int chat_add(struct chat *chat, enum chat_role role, const char *text, size_t bytes) {
    if (chat->count == chat->capacity) {
        size_t capacity = chat->capacity == 0 ? 16 : 2 * chat->capacity;
        void *list = realloc(chat->messages, capacity * sizeof *chat->messages);
        if (list == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        chat->messages = list;
        chat->capacity = capacity;
    }
    char *copy = malloc(bytes + 1);
    if (copy == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if (bytes > 0) memcpy(copy, text, bytes);
    chat->messages[chat->count++] = (struct chat_message){role, copy, bytes};
    return WEIR_OK;
}

static void forget(struct chat *chat, size_t first, size_t end) {
    assert(first <= end && end <= chat->count);
    for (size_t i = first; i < end; i++) free((void *)(uintptr_t)chat->messages[i].text);
    memmove(&chat->messages[first], &chat->messages[end],
            (chat->count - end) * sizeof chat->messages[0]);
    chat->count -= end - first;
}

/* The system's stay: so many come first. */
static size_t first_of_talk(const struct chat *chat) {
    return chat->count > 0 && chat->messages[0].role == CHAT_SYSTEM ? 1 : 0;
}

void chat_forget_all(struct chat *chat) {
    forget(chat, first_of_talk(chat), chat->count);
}

void chat_clean_up(struct chat *chat) {
    forget(chat, 0, chat->count);
    free(chat->messages);
    free(chat->kept);
    chat_tokens_clean_up(&chat->io, &chat->tokens);
    reply_clean_up(&chat->reply);
    text_encoder_destroy(chat->encoder);
    model_text_close(&chat->text);
    chat_input_clean_up(&chat->input);
}

/* ---- what the context has room for ---- */

static int encode(struct chat *chat) {
    return chat_encode(&chat->io, chat->text.form, chat->encoder, chat->messages, chat->count, true,
                       &chat->tokens);
}

/* Places that a reply is sure of. */
static size_t room_of_reply(const struct chat *chat) {
    uint32_t quarter = chat->generator.context / 4, asked = chat->values->tokens;
    uint32_t room = asked > 0 && asked < quarter ? asked : quarter;
    return room > 0 ? room : 1;
}

/* Leaves out the oldest question and what was said until the next one; false: that is the last. */
static bool leave_out(struct chat *chat, uint32_t *left_out) {
    size_t first = first_of_talk(chat), end = first + 1;
    while (end < chat->count && chat->messages[end].role != CHAT_USER) end++;
    if (end >= chat->count) return false;
    forget(chat, first, end);
    *left_out += (uint32_t)(end - first);
    return true;
}

/* Whether the last message has room, behind the system's alone. */
static int try_last(struct chat *chat, bool *fits) {
    struct chat_message alone[2];
    size_t count = first_of_talk(chat);
    if (count > 0) alone[0] = chat->messages[0];
    alone[count++] = chat->messages[chat->count - 1];
    int status =
        chat_encode(&chat->io, chat->text.form, chat->encoder, alone, count, true, &chat->tokens);
    *fits = chat->tokens.count <= chat->generator.context;
    return status;
}

/* Encodes as much of the conversation as the context takes; once something must go, until half of
 * it is free, for all the rest is read anew. */
static int encode_what_fits(struct chat *chat, uint32_t *left_out) {
    size_t context = chat->generator.context, most = context - room_of_reply(chat);
    int status = encode(chat);
    while (status == WEIR_OK && chat->tokens.count > most && leave_out(chat, left_out)) {
        most = context / 2;
        status = encode(chat);
    }
    if (*left_out > 0)
        fprintf(stderr,
                "weir: chat: note: the context of %zu tokens is full: the oldest %" PRIu32
                " messages are left out from here on\n",
                context, *left_out);
    return status;
}

/* Takes the last message back. */
static void refuse_message(struct chat *chat) {
    fprintf(stderr,
            "weir: chat: the message makes %zu tokens, but the context has %" PRIu32
            ": it is left out: shorten it, or start with a larger --context\n",
            chat->tokens.count, chat->generator.context);
    forget(chat, chat->count - 1, chat->count);
}

/* ---- a reply ---- */

static void show(const struct chat *chat, const char *text, size_t bytes) {
    people_write(&chat->people, text, bytes);
    fflush(chat->people.stream);
}

static bool take_token(void *context, uint32_t text, uint32_t token) {
    struct chat *chat = context;
    const char *more;
    size_t bytes;
    (void)text;
    int status = reply_put(&chat->reply, token, &more, &bytes);
    if (status != WEIR_OK) chat->failed = status;
    show(chat, more, bytes);
    return status != WEIR_OK || chat->reply.end != REPLY_GOES_ON;
}

/* Tokens whose keys and values are there, and that come first now too; the last is always read. */
static uint32_t find_known(const struct chat *chat) {
    uint32_t known = 0;
    while (known < chat->kept_count && known + 1 < chat->tokens.count &&
           chat->kept[known] == chat->tokens.ids[known])
        known++;
    return known;
}

static int draw(struct chat *chat, struct generator_text *text) {
    const struct chat_values *values = chat->values;
    const char *more;
    size_t bytes;
    struct generator_run run = {
        .sampler =
            sampling_options_sampler(&values->sampling, values->pipe.seed, chat->generator.vocab),
        .tokens = values->tokens > 0 ? values->tokens : chat->generator.context,
        .stop = interrupt_came,
        .visit = take_token,
        .context = chat};
    reply_begin(&chat->reply);
    int status = generator_continue(&chat->generator, &run, text, 1, &chat->times, chat->error);
    chat->kept_count = text->read;
    if (status != WEIR_OK) return status;
    if (chat->failed != WEIR_OK) return chat->failed;
    if ((status = reply_finish(&chat->reply, &more, &bytes)) != WEIR_OK) return status;
    show(chat, more, bytes);
    fputc('\n', chat->people.stream);
    fflush(chat->people.stream);
    return WEIR_OK;
}

static void tell_end(const struct chat *chat, const struct generator_text *text) {
    if (text->end == GENERATOR_TOKENS && chat->values->tokens > 0)
        fprintf(stderr, "weir: chat: note: the reply ends after --tokens %" PRIu32 "\n",
                chat->values->tokens);
    else if (text->end == GENERATOR_TOKENS || text->end == GENERATOR_CONTEXT)
        fprintf(stderr,
                "weir: chat: note: the context of %" PRIu32
                " tokens is full: the reply ends here\n",
                chat->generator.context);
}

static const char *end_name(const struct chat *chat, const struct generator_text *text) {
    if (chat->reply.end == REPLY_STOP) return "stop"; /* perhaps found at the very end */
    switch (text->end) {
    case GENERATOR_VISIT: return "end";
    case GENERATOR_TOKENS: return "tokens";
    case GENERATOR_CONTEXT: return "context";
    default: return "interrupted";
    }
}

static int write_reply(struct chat *chat, const struct generator_text *text, uint32_t known,
                       uint32_t left_out) {
    const struct chat_message *said = &chat->messages[chat->count - 1];
    if (chat->values->json == NULL) return WEIR_OK;
    json_t *line = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:I, s:I}", "message", json_text_bytes(said->text, said->bytes),
        "reply", json_text_bytes(chat->reply.text.data, chat->reply.text.count), "end",
        end_name(chat, text), "prompt_tokens", (json_int_t)text->prompt, "known_tokens",
        (json_int_t)known, "tokens", (json_int_t)(text->count - text->prompt), "left_out",
        (json_int_t)left_out);
    return json_text_line(&chat->json, line);
}

int chat_reply(struct chat *chat) {
    uint32_t left_out = 0;
    bool fits;
    int status = try_last(chat, &fits);
    if (status != WEIR_OK) return status;
    if (!fits) {
        refuse_message(chat);
        return WEIR_OK;
    }
    status = encode_what_fits(chat, &left_out);
    if (status != WEIR_OK) return status;
    uint32_t count = (uint32_t)chat->tokens.count, known = find_known(chat);
    memcpy(chat->kept, chat->tokens.ids, count * sizeof chat->kept[0]);
    struct generator_text text = {.tokens = chat->kept,
                                  .prompt = count,
                                  .count = count,
                                  .read = known,
                                  .identity = {sampler_hash(chat->kept, count), 0}};
    status = draw(chat, &text);
    if (status != WEIR_OK) return status;
    chat->replies++;
    chat->drawn += text.count - text.prompt;
    tell_end(chat, &text);
    status = write_reply(chat, &text, known, left_out);
    if (status != WEIR_OK) return status;
    return chat_add(chat, CHAT_ASSISTANT, chat->reply.text.data, chat->reply.text.count);
}
