/* SPDX-License-Identifier: MIT */
/* Texts as they are, on a terminal without what would upset it; for programs as JSON, where bytes
 * that are no UTF-8 become U+FFFD and the tokens say what they were. Notes go to stderr. */
#include "cmd/generate.h"
#include "cli/json_text.h"

#include <inttypes.h>

static const char *end_name(const struct generator_text *text, const struct reply *reply) {
    static const char *const names[] = {[GENERATOR_GOING] = "failed",
                                        [GENERATOR_TOKENS] = "tokens",
                                        [GENERATOR_CONTEXT] = "context",
                                        [GENERATOR_VISIT] = "end",
                                        [GENERATOR_INTERRUPTED] = "interrupted"};
    bool stopped = reply != NULL && reply->end == REPLY_STOP;
    return stopped ? "stop" : names[text->end];
}

/* ---- for people ---- */

static void print_numbers(const struct generate *g, const struct generator_text *text,
                          uint32_t from, uint32_t to) {
    for (uint32_t i = from; i < to; i++) fprintf(g->people.stream, "%" PRIu32 " ", text->tokens[i]);
}

static void print_prompt(const struct generate *g, uint32_t number) {
    const struct prompt *prompt = &g->prompts.list[number];
    if (prompt->text != NULL && prompt->bytes == 0) return;
    if (g->people.colour) fputs("\033[1m", g->people.stream);
    if (prompt->text != NULL)
        people_write(&g->people, prompt->text, prompt->bytes);
    else
        print_numbers(g, &g->texts[number], 0, g->texts[number].prompt);
    if (g->people.colour) fputs("\033[0m", g->people.stream);
}

void generate_print_prompt(const struct generate *g) {
    print_prompt(g, 0);
    fflush(g->people.stream);
}

static void stream_text(const struct generate *g, const char *text, size_t bytes) {
    if (!g->streams) return;
    people_write(&g->people, text, bytes);
    fflush(g->people.stream);
}

bool generate_take_token(void *context, uint32_t text, uint32_t token) {
    struct generate *g = context;
    const char *more;
    size_t bytes;
    if (g->replies == NULL) {
        if (!g->streams) return false;
        fprintf(g->people.stream, "%" PRIu32 " ", token);
        fflush(g->people.stream);
        return false;
    }
    int status = reply_put(&g->replies[text], token, &more, &bytes);
    if (status != WEIR_OK && g->failed == WEIR_OK) g->failed = status;
    stream_text(g, more, bytes);
    return status != WEIR_OK || g->replies[text].end != REPLY_GOES_ON;
}

static void print_text(const struct generate *g, uint32_t number, const struct reply *reply) {
    const struct generator_text *text = &g->texts[number];
    if (g->prompts.count > 1)
        fprintf(g->people.stream, "%s--- %s ---\n", number > 0 ? "\n" : "",
                g->prompts.list[number].label);
    if (!g->streams) {
        print_prompt(g, number);
        if (reply == NULL)
            print_numbers(g, text, text->prompt, text->count);
        else
            people_write(&g->people, reply->text.data, reply->text.count);
    }
    fputc('\n', g->people.stream);
    fflush(g->people.stream);
}

/* ---- for programs ---- */

static json_t *numbers_of(const uint32_t *tokens, uint32_t count) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) json_array_append_new(list, json_integer(tokens[i]));
    return list;
}

static int write_text(struct generate *g, uint32_t number, const struct reply *reply) {
    const struct generator_text *text = &g->texts[number];
    const struct prompt *prompt = &g->prompts.list[number];
    if (g->values->json == NULL) return WEIR_OK;
    json_t *line = json_object();
    if (reply != NULL) {
        json_object_set_new(line, "prompt", json_text_bytes(prompt->text, prompt->bytes));
        json_object_set_new(line, "text", json_text_bytes(reply->text.data, reply->text.count));
    }
    json_object_set_new(line, "end", json_string(end_name(text, reply)));
    json_object_set_new(line, "prompt_tokens",
                        numbers_of(text->tokens, prompt->empty ? 0 : text->prompt));
    json_object_set_new(line, "tokens",
                        numbers_of(text->tokens + text->prompt, text->count - text->prompt));
    return json_text_line(&g->json, line);
}

/* ---- both ---- */

/* What was held back is certain now. */
static int finish(struct generate *g, struct reply *reply) {
    const char *more;
    size_t bytes;
    if (reply == NULL) return WEIR_OK;
    int status = reply_finish(reply, &more, &bytes);
    stream_text(g, more, bytes);
    return status;
}

int generate_print_texts(struct generate *g, uint32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        struct reply *reply = g->replies != NULL ? &g->replies[i] : NULL;
        int status = finish(g, reply);
        if (status != WEIR_OK) return status;
        print_text(g, first + i, reply);
        if ((status = write_text(g, first + i, reply)) != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static double rate(uint64_t tokens, double seconds) {
    return seconds > 0.0 ? (double)tokens / seconds : 0.0;
}

int generate_print_summary(struct generate *g, uint32_t done, bool interrupted) {
    const struct generator_times *times = &g->times;
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < done; i++) tokens += g->texts[i].count - g->texts[i].prompt;
    fprintf(stderr,
            "weir: generate: %" PRIu32 " text%s, %" PRIu64 " token%s, %.0f tokens/s (and %" PRIu64
            " of prompts, %.0f tokens/s)%s\n",
            done, weir__s(done), tokens, weir__s(tokens), rate(times->tokens, times->seconds),
            times->prompt_tokens, rate(times->prompt_tokens, times->prompt_seconds),
            interrupted ? ": interrupted" : "");
    if (g->values->json == NULL) return WEIR_OK;
    json_t *summary = json_pack(
        "{s:I, s:I, s:o, s:o, s:I, s:o, s:b}", "texts", (json_int_t)done, "tokens",
        (json_int_t)tokens, "seconds", json_text_real(times->seconds + times->prompt_seconds),
        "tokens_per_second", json_text_real(rate(times->tokens, times->seconds)), "prompt_tokens",
        (json_int_t)times->prompt_tokens, "prompt_tokens_per_second",
        json_text_real(rate(times->prompt_tokens, times->prompt_seconds)), "interrupted",
        interrupted);
    return json_text_line(&g->json, json_pack("{s:o}", "summary", summary));
}
