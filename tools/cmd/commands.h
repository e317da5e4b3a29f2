/* SPDX-License-Identifier: MIT */
/** The subcommands; each returns the command's exit code. argv[0] is the subcommand's name. */
#ifndef WEIR_TOOLS_COMMANDS_H
#define WEIR_TOOLS_COMMANDS_H

#include <stdbool.h>
#include <stdio.h>

struct subcommand {
    const char *name; /**< NULL behind the last */
    const char *summary;
    int (*run)(int argc, char **argv);
    bool joins; /**< under a launcher its processes are ranks of one world; else it is refused */
};
extern const struct subcommand subcommands[];
/** NULL: there is none. */
const struct subcommand *subcommand_find(const char *name);
/** Says on stderr that there is none, and which may be meant; returns the exit code. */
int subcommand_refuse(const char *name);
void subcommands_usage(FILE *to);

int cmd_train(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_chat(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_predict(int argc, char **argv);
int cmd_grad(int argc, char **argv);
int cmd_init(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_merge(int argc, char **argv);
int cmd_describe(int argc, char **argv);
int cmd_layers(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_schedule(int argc, char **argv);
int cmd_launch(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_help(int argc, char **argv);
int cmd_man(int argc, char **argv);
int cmd_completion(int argc, char **argv);

#endif
