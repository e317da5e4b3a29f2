/* SPDX-License-Identifier: MIT */
/* Options' values as they would be typed. */
#include "cli/args.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* As short as it can be and still be read back as the same number. */
static void format_real(double value, char *text, size_t capacity) {
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, capacity, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

static void append(char *text, size_t capacity, size_t *used, const char *before,
                   const char *word) {
    int more = snprintf(text + *used, capacity - *used, "%s%s", before, word);
    if (more > 0) *used += (size_t)more;
    if (*used >= capacity) *used = capacity - 1;
}

static void format_numbers(const struct arg_numbers *numbers, char *text, size_t capacity) {
    size_t used = 0;
    for (uint32_t i = 0; i < numbers->count; i++) {
        char number[16];
        snprintf(number, sizeof number, "%" PRIu32, numbers->items[i]);
        append(text, capacity, &used, i == 0 ? "" : ",", number);
    }
}

static void format_texts(const struct arg_texts *texts, char *text, size_t capacity) {
    size_t used = 0;
    for (uint32_t i = 0; i < texts->count; i++)
        append(text, capacity, &used, i == 0 ? "" : ",", arg_texts_get(texts, i));
}

static void format_paths(const struct arg_paths *paths, char *text, size_t capacity) {
    size_t used = 0;
    for (uint32_t i = 0; i < paths->count; i++)
        append(text, capacity, &used, i == 0 ? "" : " ", paths->items[i]);
}

static void format_words(const struct arg_words *words, char *text, size_t capacity) {
    size_t used = 0;
    for (uint32_t i = 0; i < words->count; i++)
        append(text, capacity, &used, i == 0 ? "" : " ", words->items[i]);
}

static void format_text(const char *value, char *text, size_t capacity) {
    snprintf(text, capacity, "%s", value != NULL ? value : "");
}

const char *args_value(const struct args *args, uint32_t section, uint32_t option, char *text,
                       size_t capacity) {
    const struct arg_section *in = &args->command->sections[section];
    const struct arg_option *of = &in->options[option];
    const void *value = args->values + in->offset + of->offset;
    text[0] = 0;
    switch (of->type) {
    case ARG_FLAG: format_text(*(const bool *)value ? "yes" : "no", text, capacity); break;
    case ARG_UNFLAG: format_text(*(const bool *)value ? "no" : "yes", text, capacity); break;
    case ARG_TEXT: format_text(*(const char *const *)value, text, capacity); break;
    case ARG_U32: snprintf(text, capacity, "%" PRIu32, *(const uint32_t *)value); break;
    case ARG_BYTES:
    case ARG_U64: snprintf(text, capacity, "%" PRIu64, *(const uint64_t *)value); break;
    case ARG_REAL: format_real(*(const double *)value, text, capacity); break;
    case ARG_CHOICE: format_text(of->choices[*(const uint32_t *)value], text, capacity); break;
    case ARG_U32_LIST: format_numbers(value, text, capacity); break;
    case ARG_LIST: format_texts(value, text, capacity); break;
    case ARG_TEXTS: format_words(value, text, capacity); break;
    case ARG_PATHS: format_paths(value, text, capacity); break;
    }
    return text;
}
