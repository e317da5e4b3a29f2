/* SPDX-License-Identifier: MIT */
/*
 * `--help` from an option table: a column of options, a column of text with default and unit,
 * wrapped to 100 columns, so that it reads the same in a terminal and in a file.
 */
#include "cli/args.h"

#include <stdio.h>
#include <string.h>

#define COLUMNS 100
#define INDENT 28

/* Words of `text`, wrapped; `at` is the column where it begins. */
static void print_wrapped(const char *text, size_t at, size_t indent) {
    while (*text) {
        size_t space = strspn(text, " "), word = strcspn(text + space, " \n");
        if (at + space + word > COLUMNS && at > indent) {
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

static size_t choices_text(const struct arg_option *option, char *text, size_t capacity,
                           size_t used) {
    for (uint32_t i = 0; option->choices[i]; i++) {
        used = append(text, capacity, used, i ? "|" : "");
        used = append(text, capacity, used, option->choices[i]);
    }
    return used;
}

static void print_option(const struct arg_option *option) {
    char left[160], right[1024];
    size_t used = append(left, sizeof(left), 0, "  --");
    used = append(left, sizeof(left), used, option->name);
    if (option->value || option->choices) {
        used = append(left, sizeof(left), used, " ");
    }
    if (option->value) {
        used = append(left, sizeof(left), used, option->value);
    } else if (option->choices) {
        used = choices_text(option, left, sizeof(left), used);
    }
    printf("%s", left);
    if (used + 2 > INDENT) {
        putchar('\n');
        used = 0;
    }
    printf("%*s", (int)(INDENT - used), "");
    used = append(right, sizeof(right), 0, option->help);
    const char *unit = option->unit ? option->unit : option->type == ARG_BYTES ? "bytes" : NULL;
    if (unit) {
        used = append(right, sizeof(right), used, ", in ");
        used = append(right, sizeof(right), used, unit);
    }
    if (option->fallback) {
        used = append(right, sizeof(right), used, " (default ");
        used = append(right, sizeof(right), used, option->fallback);
        used = append(right, sizeof(right), used, ")");
    }
    if (option->environment) {
        used = append(right, sizeof(right), used, " [also ");
        used = append(right, sizeof(right), used, option->environment);
        append(right, sizeof(right), used, "]");
    }
    print_wrapped(right, INDENT, INDENT);
}

void args_help(const struct arg_command *command) {
    printf("usage: weir %s [options]\n\n", command->name);
    print_wrapped(command->summary, 0, 0);
    if (command->details) {
        putchar('\n');
        print_wrapped(command->details, 0, 0);
    }
    for (uint32_t s = 0; s < command->section_count; s++) {
        const struct arg_section *section = &command->sections[s];
        printf("\n%s:\n", section->title);
        for (uint32_t i = 0; i < section->option_count; i++) {
            print_option(&section->options[i]);
        }
    }
    printf("\n  --help, -h                print this\n");
}
