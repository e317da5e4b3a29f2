/* SPDX-License-Identifier: MIT */
/* Texts as bytes, on a terminal without what would upset it; for programs as JSON, where bytes that
 * are no UTF-8 become U+FFFD and the tokens say what they were. Notes go to stderr. */
#include "cmd/generate.h"
#include "cli/json_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const end_names[] = {[GENERATOR_GOING] = "failed",
                                        [GENERATOR_TOKENS] = "tokens",
                                        [GENERATOR_CONTEXT] = "context",
                                        [GENERATOR_INTERRUPTED] = "interrupted"};

/* ---- for people ---- */

static bool upsets(uint32_t byte) {
    return (byte < 32 && byte != '\n' && byte != '\t') || byte == 127;
}

static void print_token(const struct generate *g, uint32_t token) {
    if (!g->bytes)
        fprintf(g->people.stream, "%" PRIu32 " ", token);
    else
        fputc(g->people.terminal && upsets(token) ? '?' : (int)token, g->people.stream);
}

static void print_range(const struct generate *g, const struct generator_text *text, uint32_t from,
                        uint32_t to) {
    for (uint32_t i = from; i < to; i++) print_token(g, text->tokens[i]);
}

static void print_prompt(const struct generate *g, uint32_t number) {
    if (g->prompts.list[number].empty) return;
    if (g->people.colour) fputs("\033[1m", g->people.stream);
    print_range(g, &g->texts[number], 0, g->texts[number].prompt);
    if (g->people.colour) fputs("\033[0m", g->people.stream);
}

void generate_print_prompt(const struct generate *g) {
    print_prompt(g, 0);
    fflush(g->people.stream);
}

void generate_print_token(void *context, uint32_t text, uint32_t token) {
    const struct generate *g = context;
    (void)text;
    print_token(g, token);
    fflush(g->people.stream);
}

static void print_text(const struct generate *g, uint32_t number) {
    const struct generator_text *text = &g->texts[number];
    if (g->prompts.count > 1)
        fprintf(g->people.stream, "%s--- %s ---\n", number > 0 ? "\n" : "",
                g->prompts.list[number].label);
    if (!g->streams) {
        print_prompt(g, number);
        print_range(g, text, text->prompt, text->count);
    }
    fputc('\n', g->people.stream);
    fflush(g->people.stream);
}

/* ---- for programs ---- */

/* Tokens that are bytes, as a JSON string; a new reference, or NULL. */
static json_t *text_of(const uint32_t *tokens, uint32_t count) {
    char *bytes = malloc((size_t)count + 1);
    if (bytes == NULL) return NULL;
    for (uint32_t i = 0; i < count; i++) bytes[i] = (char)tokens[i];
    json_t *string = json_text_bytes(bytes, count);
    free(bytes);
    return string;
}

static json_t *numbers_of(const uint32_t *tokens, uint32_t count) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) json_array_append_new(list, json_integer(tokens[i]));
    return list;
}

static int write_text(struct generate *g, uint32_t number) {
    const struct generator_text *text = &g->texts[number];
    bool empty = g->prompts.list[number].empty;
    if (g->values->json == NULL) return WEIR_OK;
    json_t *line = json_object();
    if (g->bytes) {
        json_object_set_new(line, "prompt", text_of(text->tokens, empty ? 0 : text->prompt));
        json_object_set_new(line, "text",
                            text_of(text->tokens + text->prompt, text->count - text->prompt));
    }
    json_object_set_new(line, "end", json_string(end_names[text->end]));
    json_object_set_new(line, "prompt_tokens", numbers_of(text->tokens, empty ? 0 : text->prompt));
    json_object_set_new(line, "tokens",
                        numbers_of(text->tokens + text->prompt, text->count - text->prompt));
    return json_text_line(&g->json, line);
}

/* ---- both ---- */

int generate_print_texts(struct generate *g, uint32_t first, uint32_t count) {
    int status = WEIR_OK;
    for (uint32_t i = first; status == WEIR_OK && i < first + count; i++) {
        print_text(g, i);
        status = write_text(g, i);
    }
    return status;
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
