/* SPDX-License-Identifier: MIT */
/** What becomes of an option table besides a parse: `--help`, a page for man, and what shells
 * complete. All of it goes to stdout. */
#ifndef WEIR_TOOLS_ARGS_SHOW_H
#define WEIR_TOOLS_ARGS_SHOW_H

#include "cli/args.h"

#define ARGS_TEXT_MAX 1024

/** Prints a page of section 1 as roff. */
void args_man(const struct arg_command *command);
/** Text as roff has it, without line breaks of its own. */
void args_man_text(const char *text);
/** Prints the subcommand's part of the script that 'weir completion SHELL' prints. */
void args_complete_bash(const struct arg_command *command);
void args_complete_zsh(const struct arg_command *command);
void args_complete_fish(const struct arg_command *command);
/** 'NAME:TEXT' for zsh's _describe, and 'TEXT' for fish. */
void args_describe_zsh(const char *name, const char *text);
void args_quote_fish(const char *text);

/** "N", "adamw|sgd", or "" for a flag, into `text`; returns it. */
const char *args_value_text(const struct arg_option *option, char *text, size_t capacity);
/** The help with unit, default and variable into `text`; returns it. */
const char *args_option_text(const struct arg_option *option, char *text, size_t capacity);

#endif
