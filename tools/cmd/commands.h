/* SPDX-License-Identifier: MIT */
/** The subcommands; each returns the command's exit code. argv[0] is the subcommand's name. */
#ifndef WEIR_TOOLS_COMMANDS_H
#define WEIR_TOOLS_COMMANDS_H

int cmd_train(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_grad(int argc, char **argv);
int cmd_init(int argc, char **argv);
int cmd_describe(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_profile(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_schedule(int argc, char **argv);
int cmd_doctor(int argc, char **argv);

#endif
