/* SPDX-License-Identifier: MIT */
/**
 * What the machine is, and where workers go: hwloc behind one header. A worker's cores share the
 * nearest cache and NUMA node that can hold them all; one processing unit per core; cpusets that
 * the process inherited and cgroup CPU quotas are respected; the caller's thread is never bound.
 *
 * A worker with a GPU computes nothing itself and mostly waits: it gets one core near its GPU.
 * Where there are enough, that is nobody else's, and the others' groups are as whole as without it;
 * else such workers share what the others leave near their GPUs, as evenly as can be, or where
 * nothing is left run anywhere near theirs.
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
    uint32_t usable_cores; /**< after cpuset and quota */
    double quota_cores;    /**< cgroup's limit in cores, 0: none */
    uint64_t allowed;      /**< a digest of the processing units that cpusets leave to us */
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

/** What is near a device, as far as the system tells. */
struct weir__near {
    int32_t numa_node;   /**< the operating system's number; -1: unknown, or there is but one */
    char cores[64];      /**< processing units that we may use, "0-3,8"; "": unknown; cut ends in
                              "..." */
    uint32_t core_count; /**< cores that we may use among them; 0: unknown, or none */
    uint32_t core_ids[WEIR__PLACE_CORES_MAX]; /**< one processing unit per core, as
                                                   weir__worker_place's, in the machine's order */
};
/** Nothing is known. */
#define WEIR__NEAR_UNKNOWN                                                                         \
    {                                                                                              \
        -1, "", 0, {                                                                               \
            0                                                                                      \
        }                                                                                          \
    }
/** What is near the PCI device at `address` (weir__device.pci: "0000:3B:00.0"), for workers with a
 * GPU and its staging memory. WEIR_ERR_NOT_FOUND: the system shows no such device;
 * WEIR_ERR_ARGUMENT: no such address; WEIR_ERR_OUT_OF_MEMORY. A synthetic machine has devices only
 * where hwloc's HWLOC_FSROOT names a directory that holds its /sys. Any thread. */
int weir__place_near(const struct weir__machine *machine, const char *address,
                     struct weir__near *near);

/** Who is to be placed. */
struct weir__place_request {
    const char *bind; /**< as weir_pipe_options.bind; NULL: WEIR_BIND from the environment, else
                           "auto" */
    uint32_t workers;
    uint32_t threads; /**< of each worker without a GPU; 0: what the GPUs' workers leave of the
                           usable cores, or of a list's, divided, at least 1 */
    const struct weir__near *const *gpus; /**< per worker: what is near its GPU; NULL: it has none.
                                               NULL instead of an array: nobody has */
    uint32_t share, shares; /**< a list is for so many processes (0: one), which share it evenly and
                                 in order: this one's number */
};

/** Where one worker goes. */
struct weir__worker_place {
    struct weir_place place;
    bool exclusive;      /**< bound, and its cores are no other worker's, nor another process's */
    uint32_t threads;    /**< how many threads its calls should use: 1 with a GPU */
    int32_t memory_node; /**< where memory belongs that it works in, or that its GPU copies from and
                              to: the GPU's NUMA node where that is known, else its cores'; -1:
                              anywhere */
    uint32_t core_ids[WEIR__PLACE_CORES_MAX]; /**< place.core_count processing units, one per
                                                   core, the operating system's numbers */
};

/** Plans a placement of `threads` cores for each worker without a GPU, of one for the others.
 * `threads` is never changed: the plan's memory counts on it. With a list, its processing units are
 * dealt to the workers in order, as many each; where all workers have GPUs, `threads` each (0:
 * divided).
 * More cores wanted than are there, or left by a quota or other processes: unbound, not exclusive;
 * "none" too. WEIR_ERR_ARGUMENT for a malformed list, a core that is not there or not allowed, or
 * too few: named in `faults`. Gives back what an earlier plan of this machine claimed. */
int weir__place_plan(struct weir__machine *machine, const struct weir__place_request *request,
                     struct weir_faults *faults, struct weir__worker_place *placements);
/** Refuses what weir__place_plan refuses on this machine, with the same faults, and places and
 * claims nothing. What is near the GPUs is not looked at. */
int weir__place_check(const struct weir_allocator *allocator,
                      const struct weir__place_request *request, struct weir_faults *faults);
/** Binds the calling thread; does nothing if the placement is not bound or the machine synthetic.
 * WEIR_ERR_SYSTEM if the system refuses, WEIR_ERR_OUT_OF_MEMORY. From any thread. */
int weir__place_bind(struct weir__machine *machine, const struct weir__worker_place *placement);
/** Gives claimed cores back (also done by weir__machine_destroy). */
void weir__place_unclaim(struct weir__machine *machine);

#endif
