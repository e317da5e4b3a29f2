/* SPDX-License-Identifier: MIT */
/*
 * `--help` from an option table: a column of options, a column of text with default and unit,
 * wrapped to the terminal, and to 100 columns where there is none or a wider one.
 */
#include "cli/args_show.h"

#include "cli/output.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS_MOST = 100, INDENT = 28, INDENT_NARROW = 8, COLUMNS_NARROW = 70 };

struct sheet {
    size_t columns, indent;
};

/* Words of `text`, wrapped; `at` is the column where it begins. */
static void print_wrapped(const struct sheet *page, const char *text, size_t at, size_t indent) {
    while (*text) {
        size_t space = strspn(text, " "), word = strcspn(text + space, " \n");
        if (at + space + word > page->columns && at > indent) {
            printf("\n%*s", (int)indent, "");
            at = indent;
            space = 0;
        }
        text += strspn(text, " ");
        printf("%*s%.*s", (int)space, "", (int)word, text);
        at += space + word;
        text += word;
        if (*text == '\n') {
            printf("\n%*s", (int)indent, "");
            at = indent;
            text++;
        }
    }
    putchar('\n');
}

static size_t append(char *text, size_t capacity, size_t used, const char *part) {
    int more = snprintf(text + used, capacity - used, "%s", part);
    size_t end = used + (more > 0 ? (size_t)more : 0);
    return end < capacity ? end : capacity - 1;
}

const char *args_value_text(const struct arg_option *option, char *text, size_t capacity) {
    size_t used = 0;
    assert(capacity > 0);
    text[0] = 0;
    if (option->value) {
        append(text, capacity, 0, option->value);
        return text;
    }
    for (uint32_t i = 0; option->choices && option->choices[i]; i++) {
        used = append(text, capacity, used, i ? "|" : "");
        used = append(text, capacity, used, option->choices[i]);
    }
    return text;
}

const char *args_option_text(const struct arg_option *option, char *text, size_t capacity) {
    const char *unit = option->unit ? option->unit : option->type == ARG_BYTES ? "bytes" : NULL;
    size_t used = append(text, capacity, 0, option->help);
    if (unit) {
        used = append(text, capacity, used, ", in ");
        used = append(text, capacity, used, unit);
    }
    if (option->fallback) {
        used = append(text, capacity, used, " (default ");
        used = append(text, capacity, used, option->fallback);
        used = append(text, capacity, used, ")");
    }
    if (option->environment) {
        used = append(text, capacity, used, " [also ");
        used = append(text, capacity, used, option->environment);
        append(text, capacity, used, "]");
    }
    return text;
}

static void print_option(const struct sheet *page, const struct arg_option *option) {
    char value[ARGS_TEXT_MAX], text[ARGS_TEXT_MAX];
    args_value_text(option, value, sizeof(value));
    int used = printf("  --%s%s%s", option->name, value[0] ? " " : "", value);
    if (used < 0 || (size_t)used + 2 > page->indent) {
        putchar('\n');
        used = 0;
    }
    printf("%*s", (int)page->indent - used, "");
    print_wrapped(page, args_option_text(option, text, sizeof(text)), page->indent, page->indent);
}

void args_help(const struct arg_command *command) {
    struct people people;
    people_init(&people, false);
    struct sheet page = {people.columns < COLUMNS_MOST ? people.columns : COLUMNS_MOST, INDENT};
    if (page.columns < COLUMNS_NARROW) {
        page.indent = INDENT_NARROW;
    }
    printf("usage: weir %s [options]\n\n", command->name);
    print_wrapped(&page, command->summary, 0, 0);
    if (command->details) {
        putchar('\n');
        print_wrapped(&page, command->details, 0, 0);
    }
    for (uint32_t s = 0; s < command->section_count; s++) {
        const struct arg_section *section = &command->sections[s];
        printf("\n%s:\n", section->title);
        for (uint32_t i = 0; i < section->option_count; i++) {
            print_option(&page, &section->options[i]);
        }
    }
    static const struct arg_option help = {"help, -h", ARG_FLAG, 0, "print this"};
    putchar('\n');
    print_option(&page, &help);
}
