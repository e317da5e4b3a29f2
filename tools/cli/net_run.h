/* SPDX-License-Identifier: MIT */
/** What the subcommands that run a network share: faults of their files before any work is done,
 * and the text of a step that failed. */
#ifndef WEIR_TOOLS_NET_RUN_H
#define WEIR_TOOLS_NET_RUN_H

#include "weir_net.h"

/** Adds a fault if no file could appear at `path` (NULL: none is wanted): a folder that is missing
 * or may not be written, a folder itself, or `-`. Better now than after the last step. */
void net_run_check_output(const char *option, const char *path, struct weir_faults *faults);
/** The same of a checkpoint: where `several` processes save, or there is one already, a folder. */
void net_run_check_checkpoint(const char *option, const char *path, bool several,
                              struct weir_faults *faults);
/** Adds a fault if `path` (NULL: none is given) cannot be read. */
void net_run_check_input(const char *option, const char *path, struct weir_faults *faults);
/** weir_net_load whose faults name the file. */
int net_run_load(struct weir_net *net, const char *path, struct weir_progress *progress,
                 struct weir_faults *faults);
/** weir_net_load_some whose faults do; its notes do not. */
int net_run_load_some(struct weir_net *net, const char *path, struct weir_faults *notes,
                      struct weir_faults *faults);
/** The first failure of a step, as a message that says where it was. */
void net_run_error(const struct weir_error *from, struct weir_error *error);

#endif
