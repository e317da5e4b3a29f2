/* SPDX-License-Identifier: MIT */
/* Pages for man, in the macros of man(7). */
#include "cli/args_show.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>

/* A backslash begins an escape, a dot or quote at a line's beginning a request; a plain '-' may
 * become another character, which nobody can copy to a shell. */
void args_man_text(const char *text) {
    if (*text == '.' || *text == '\'') {
        fputs("\\&", stdout);
    }
    for (; *text; text++) {
        switch (*text) {
        case '\\': fputs("\\e", stdout); break;
        case '-': fputs("\\-", stdout); break;
        case '\n': putchar(' '); break;
        default: putchar(*text);
        }
    }
}

static void print_name(const char *name) {
    for (; *name; name++) {
        putchar(toupper((unsigned char)*name));
    }
}

static void print_item(const struct arg_option *option) {
    char text[ARGS_TEXT_MAX];
    fputs(".TP\n\\fB\\-\\-", stdout);
    args_man_text(option->name);
    fputs("\\fR", stdout);
    if (args_value_text(option, text, sizeof(text))[0]) {
        fputs(" \\fI", stdout);
        args_man_text(text);
        fputs("\\fR", stdout);
    }
    putchar('\n');
    args_man_text(args_option_text(option, text, sizeof(text)));
    putchar('\n');
}

void args_man(const struct arg_command *command) {
    assert(command->name[0] && command->summary[0]);
    fputs(".TH WEIR\\-", stdout);
    print_name(command->name);
    printf(" 1 \"\" \"weir %s\" \"Weir\"\n.SH NAME\nweir\\-%s \\- ", weir_version(), command->name);
    args_man_text(command->summary);
    printf("\n.SH SYNOPSIS\n\\fBweir %s\\fR [\\fIoptions\\fR]\n", command->name);
    if (command->details) {
        fputs(".SH DESCRIPTION\n", stdout);
        args_man_text(command->details);
        putchar('\n');
    }
    fputs(".SH OPTIONS\n", stdout);
    for (uint32_t s = 0; s < command->section_count; s++) {
        const struct arg_section *section = &command->sections[s];
        fputs(".SS ", stdout);
        args_man_text(section->title);
        putchar('\n');
        for (uint32_t i = 0; i < section->option_count; i++) {
            print_item(&section->options[i]);
        }
    }
    fputs(".SH EXIT STATUS\n0: done. 1: the work failed. 2: wrong usage, or a configuration that "
          "was refused. 128 + n: ended by signal n.\n.SH SEE ALSO\n\\fBweir\\fR(1)\n",
          stdout);
}
