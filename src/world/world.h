/* SPDX-License-Identifier: MIT */
/**
 * How a process finds its world: what its launcher told it, and the MPI library that reaches the
 * others. Internal; statuses as in weir.h.
 */
#ifndef WEIR_WORLD_INSIDE_H
#define WEIR_WORLD_INSIDE_H

#include "base/base.h"
#include "weir_world.h"
#include "world/mpi_abi.h"

/** What the launcher's environment says of this process. */
struct weir__launch {
    const char *by; /**< the variable that says it; NULL: there is no launcher */
    uint32_t rank;
    uint32_t size; /**< 0: it does not say */
};

/** Looks for mpiexec's and mpirun's variables (PMI, Open MPI, PMIx) and then for srun's, since one
 * of the former may have been started by the latter. A batch script's own process has none. Any
 * thread, as getenv. */
struct weir__launch weir__launch_read(void);

/** An opened library. */
struct weir__mpi {
    void *library;
    char path[512]; /**< as it was opened, for people */
    struct weir__mpi_calls calls;
};

/** Opens the library that weir_world_mpi looks for, and fills the table; starts nothing. It stays
 * in the process for good. WEIR_ERR_NOT_FOUND: none, or it does not open; WEIR_ERR_UNSUPPORTED: it
 * is no MPI of the standard ABI, nor a shim of this version. `faults` says what was tried and how
 * to mend it. */
int weir__mpi_open(const char *library, struct weir_faults *faults, struct weir__mpi *mpi);

/** A process that is alone: rank 0 of 1. Holds nothing. */
void weir__world_of_one(struct weir_world *world);

#endif
