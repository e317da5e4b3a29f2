/* SPDX-License-Identifier: MIT */
/**
 * What the machine is, and where workers go: hwloc behind one header. A worker's cores share the
 * nearest cache and NUMA node that can hold them all; one processing unit per core; cpusets that
 * the process inherited and cgroup CPU quotas are respected; the caller's thread is never bound.
 *
 * Two Weir processes on one machine: a process claims the cores it binds through abstract Unix
 * sockets (one name per core, gone with the process, no file). "auto" avoids cores that another
 * Weir process has claimed; where too few are left, workers share unbound and must park instead of
 * spin (`exclusive` is false). A list's cores are bound all the same, but then are not exclusive.
 * Pipes of one process take different cores where there are enough, else the same ones: they are
 * taken to run in turn, as training and validation do, and keep `exclusive`.
 *
 * Machines come from HWLOC_SYNTHETIC too ("pack:2 numa:2 core:4 pu:1"): hwloc then makes binding
 * calls do nothing, and so do we; nor does a made-up machine claim cores.
 */
#ifndef WEIR_PLACE_H
#define WEIR_PLACE_H

#include "base/base.h"

#define WEIR__PLACE_CORES_MAX 1024

struct weir__machine; /**< hwloc's topology and what the process may use of it */

/** Facts for `doctor`. */
struct weir__machine_facts {
    char model[128];
    uint32_t cores, processing_units, packages, numa_nodes;
    uint32_t usable_cores;                  /**< after cpuset and quota */
    double quota_cores;                     /**< cgroup's limit in cores, 0: none */
    uint64_t l1d_bytes, l2_bytes, l3_bytes; /**< of one cache; 0 if unknown */
    uint32_t l3_count;
    uint64_t memory_bytes;
    bool synthetic;
};

/** Reads the machine's topology. WEIR_ERR_SYSTEM if the system shows none. */
int weir__machine_new(const struct weir_allocator *allocator, struct weir__machine **machine);
/** Gives its claims back too. Accepts NULL. */
void weir__machine_destroy(struct weir__machine *machine);
void weir__machine_facts(const struct weir__machine *machine, struct weir__machine_facts *facts);

/** Where one worker goes. */
struct weir__placement {
    struct weir_place place;
    bool exclusive;   /**< bound, and its cores are no other worker's, nor another process's */
    uint32_t threads; /**< how many threads its calls should use */
    uint32_t core_ids[WEIR__PLACE_CORES_MAX]; /**< place.core_count processing units, one per
                                                   core, the operating system's numbers */
};

/** Plans `workers` placements of `threads` cores each (0: usable cores / workers, at least 1; with
 * a list: its cores / workers). `threads` is never changed, for results are the same bits only for
 * the same number. `bind` as weir_pipe_options.bind (NULL: WEIR_BIND from the environment, else
 * "auto"). With a list, its processing units are dealt to the workers in order, `threads` each.
 * More cores wanted than are there, or left by a quota or other processes: unbound, not exclusive;
 * "none" too. WEIR_ERR_ARGUMENT for a malformed list, a core that is not there or not allowed, or
 * too few: named in `faults`. Gives back what an earlier plan of this machine claimed. */
int weir__place_plan(struct weir__machine *machine, const char *bind, uint32_t workers,
                     uint32_t threads, struct weir_faults *faults,
                     struct weir__placement *placements);
/** Refuses what weir__place_plan refuses on this machine, with the same faults, and places and
 * claims nothing. */
int weir__place_check(const struct weir_allocator *allocator, const char *bind, uint32_t workers,
                      uint32_t threads, struct weir_faults *faults);
/** Binds the calling thread; does nothing if the placement is not bound or the machine synthetic.
 * WEIR_ERR_SYSTEM if the system refuses, WEIR_ERR_OUT_OF_MEMORY. From any thread. */
int weir__place_bind(struct weir__machine *machine, const struct weir__placement *placement);
/** What is near a device, as far as the system tells. */
struct weir__near {
    int32_t numa_node;   /**< the operating system's number; -1: unknown, or there is but one */
    char cores[64];      /**< processing units that we may use, "0-3,8"; "": unknown; cut ends in
                              "..." */
    uint32_t core_count; /**< cores that we may use among them; 0: unknown, or none */
    uint32_t core_ids[WEIR__PLACE_CORES_MAX]; /**< one processing unit per core, as
                                                   weir__placement's, in the machine's order */
};
/** What is near the PCI device at `address` (weir__device.pci: "0000:3B:00.0"), for workers with a
 * GPU and its staging memory. WEIR_ERR_NOT_FOUND: the system shows no such device, or the machine
 * is synthetic; WEIR_ERR_ARGUMENT: no such address; WEIR_ERR_OUT_OF_MEMORY. Any thread. */
int weir__place_near(const struct weir__machine *machine, const char *address,
                     struct weir__near *near);
/** Gives claimed cores back (also done by weir__machine_destroy). */
void weir__place_unclaim(struct weir__machine *machine);

#endif
