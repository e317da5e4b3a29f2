/* SPDX-License-Identifier: MIT */
/** Stages on GPUs: which they are, whether all their ops have kernels, and what of a batch only the
 * host can look at. */
#ifndef WEIR_NET_DEVICES_H
#define WEIR_NET_DEVICES_H

#include "net/run/net.h"

/** Fills backends[options->stages], for `balance` layers per stage. Where workers' devices differ
 * this takes a table: every reason why there is none is in `faults`, with the status that the pipe
 * would give; and so are the faults of a model that cannot be compiled. */
int weir__net_backends(const struct weir_model *model, const struct weir_net_options *options,
                       const uint32_t *balance, struct weir_faults *faults,
                       const struct weir__backend **backends);
/** How many threads a CPU's stage will get of so many cores, where the options leave it open, as
 * weir_pipe_options says: what one for each GPU's worker leaves, divided among the others; at least
 * 1. Pipes of a process that may not use all cores get fewer: it is what workspace is planned for,
 * and kernels do with fewer threads what it is not enough for. */
uint32_t weir__net_threads(const struct weir_net_options *options, uint32_t cores);
/** The same in a world, where all ranks are to plan for the same threads: copies the options, with
 * the threads where they leave them open (world/cores.h). Without a world nothing is filled in.
 * Collective; blocks. As weir__world_cores. */
int weir__net_fill_threads(const struct weir_net_options *options, struct weir_net_options *filled,
                           struct weir_faults *faults);
/** Whether a worker's device is a GPU. */
bool weir__net_on_gpu(const struct weir_pipe_options *options, uint32_t worker);
/** What every stage runs on, where all workers' devices are of one kind; false: they are not. */
bool weir__net_sole_backend(const struct weir_net_options *options,
                            const struct weir__backend **backend);
/** Whether the dtype can be had on each of `backends`: F64 on CPUs alone, BF16 not by
 * the reference. */
int weir__net_check_dtype(enum weir_dtype dtype, const struct weir__backend *const *backends,
                          uint32_t count, struct weir_faults *faults);
/** Whether every op of a stage's programs has a kernel there: WEIR_ERR_UNSUPPORTED, with a line for
 * each kind of op that has none. */
int weir__net_check_kernels(const struct weir__network *network, const struct weir__slices *slices,
                            const struct weir__backend *backend, struct weir_faults *faults);
/** Whether the libraries behind the kernels can be used: WEIR_ERR_NOT_FOUND and the like, with a
 * line for each that says what to install. */
int weir__net_check_libraries(const struct weir_net *net, struct weir_faults *faults);
/** Whether tokens and targets that a GPU will take as indices are in range: WEIR_ERR_ARGUMENT, with
 * stage, layer and the number, as the CPU's kernels say it. */
int weir__net_check_indices(const struct weir_net *net, const struct weir_net_batch *batch,
                            struct weir_error *error);

#endif
