/* SPDX-License-Identifier: MIT */
/*
 * What shells complete after a subcommand: its options, and behind an option what its value may be.
 * A placeholder that speaks of files (FILE, PATH, DIR) lets files be completed.
 */
#include "cli/args_show.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static bool is_flag(const struct arg_option *option) {
    return option->type == ARG_FLAG || option->type == ARG_UNFLAG;
}

static bool takes_file(const struct arg_option *option) {
    static const char *const marks[] = {"FILE", "PATH", "DIR", "FOLDER"};
    for (size_t i = 0; option->value && i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (strstr(option->value, marks[i])) {
            return true;
        }
    }
    return false;
}

/* Until the first ';': what follows are details. */
static int short_bytes(const struct arg_option *option) {
    return (int)strcspn(option->help, ";");
}

static void print_choices(const struct arg_option *option) {
    for (uint32_t i = 0; option->choices && option->choices[i]; i++) {
        printf("%s%s", i ? " " : "", option->choices[i]);
    }
}

/* The options of a command, one after the other. */
static void each(const struct arg_command *command,
                 void (*print)(const struct arg_command *command,
                               const struct arg_option *option)) {
    for (uint32_t s = 0; s < command->section_count; s++) {
        assert(command->sections[s].option_count > 0);
        for (uint32_t i = 0; i < command->sections[s].option_count; i++) {
            print(command, &command->sections[s].options[i]);
        }
    }
}

/* ---- bash ---- */

static void print_word(const struct arg_command *command, const struct arg_option *option) {
    (void)command;
    printf(" --%s", option->name);
}

/* Nothing for an option whose value nobody can guess. */
static void print_kind(const struct arg_command *command, const struct arg_option *option) {
    (void)command;
    const char *kind = is_flag(option)             ? "flag"
                       : option->type == ARG_PATHS ? "paths"
                       : takes_file(option)        ? "file"
                       : option->choices           ? "one"
                                                   : NULL;
    if (!kind) {
        return;
    }
    printf("    --%s) echo %s ", option->name, kind);
    print_choices(option);
    puts(";;");
}

void args_complete_bash(const struct arg_command *command) {
    printf("_weir_options_%s() {\n    echo", command->name);
    each(command, print_word);
    printf(" --help\n}\n_weir_value_%s() {\n    case $1 in\n", command->name);
    each(command, print_kind);
    puts("    *) echo value ;;\n    esac\n}");
}

/* ---- zsh ---- */

/* A colon ends a part of what _arguments and _describe read, brackets a description. */
static void quote_zsh(const char *text, int bytes) {
    for (int i = 0; i < bytes; i++) {
        if (text[i] == '\'') {
            fputs("'\\''", stdout);
        } else {
            printf("%s%c", strchr("[]:\\", text[i]) ? "\\" : "", text[i]);
        }
    }
}

void args_describe_zsh(const char *name, const char *text) {
    printf("'%s:", name);
    quote_zsh(text, (int)strlen(text));
    putchar('\'');
}

static void print_zsh(const struct arg_command *command, const struct arg_option *option) {
    (void)command;
    printf("        '--%s%s[", option->name,
           is_flag(option) || option->type == ARG_PATHS ? "" : "=");
    quote_zsh(option->help, short_bytes(option));
    putchar(']');
    if (!is_flag(option)) {
        printf(":%s", option->type == ARG_PATHS ? "*--*:" : "");
        quote_zsh(option->value ? option->value : option->name,
                  (int)strlen(option->value ? option->value : option->name));
        putchar(':');
    }
    if (takes_file(option)) {
        fputs("_files", stdout);
    } else if (option->choices) {
        putchar('(');
        print_choices(option);
        putchar(')');
    }
    fputs("' \\\n", stdout);
}

void args_complete_zsh(const struct arg_command *command) {
    printf("    %s)\n        _arguments \\\n", command->name);
    each(command, print_zsh);
    puts("        '--help[print its options]'\n        ;;");
}

/* ---- fish ---- */

static void quote_fish(const char *text, int bytes) {
    putchar('\'');
    for (int i = 0; i < bytes; i++) {
        printf("%s%c", text[i] == '\'' || text[i] == '\\' ? "\\" : "", text[i]);
    }
    putchar('\'');
}

void args_quote_fish(const char *text) {
    quote_fish(text, (int)strlen(text));
}

static void print_fish(const struct arg_command *command, const struct arg_option *option) {
    printf("complete -c weir -n '__fish_seen_subcommand_from %s' -l %s%s -d ", command->name,
           option->name,
           is_flag(option)      ? ""
           : takes_file(option) ? " -r -F"
                                : " -x");
    quote_fish(option->help, short_bytes(option));
    if (option->choices) {
        fputs(" -a '", stdout);
        print_choices(option);
        putchar('\'');
    }
    putchar('\n');
}

void args_complete_fish(const struct arg_command *command) {
    each(command, print_fish);
}
