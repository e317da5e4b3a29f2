/* SPDX-License-Identifier: MIT */
/**
 * A driver that lies in wait. libweir_fake_cuda.so has the driver API's symbols that Weir uses
 * (src/device/cuda_driver.h) and follows CUDA's rules, but runs every stream as late, and in an
 * order as bad, as those rules allow: a program that forgot a wait computes a wrong number.
 *
 *  - Nothing runs before something forces it: a stream's or event's synchronisation, a query or
 *    an elapsed time that finds work undone (each runs one operation, but no function of the host:
 *    who asks must not be kept by it, nor while another thread runs one), a copy that blocks. Then
 *    what the target needs runs, and other streams' ready work before, between or after, by
 *    `order` and the seed.
 *  - A wait binds to the event's latest record at the moment of the call; an event never recorded
 *    counts as done. Work of one stream runs in order, that of others in any that the waits allow.
 *  - Device memory is the host's, at addresses of its own that only running work may touch: code
 *    of the host that follows a device pointer ends in SIGSEGV. It is filled with NaN (bytes 0xff)
 *    when it is allocated and when it is freed.
 *  - A copy (or launch) that names freed memory, host memory that is not pinned, memory of a GPU
 *    without peer access, or that runs over the end of an allocation, fails and is counted
 *    (`faults`); where it could not be seen before the work ran, the context is broken (700).
 *  - A context must be current on the calling thread where the driver wants one (else 201).
 *
 *  - Products and convolutions are a table of its own, the symbol `weir_fake_cuda_numerics`
 *    (src/net/cuda/numerics.h), whose calls are calls of the driver as any other: they enqueue, and
 *    compute with the CPU's reference kernels.
 *
 *  - NCCL's symbols are there as well (fake_nccl.c), between GPUs of one process: a send ends when
 *    its receive does, and neither before both are given; calls come into their streams late.
 *
 * The environment's WEIR_FAKE_CUDA_FAULT plants a fault for a whole program: "image", the driver
 * takes none of this build's; "library", there are no products and no convolutions; "plan", none of
 * theirs runs; or a kernel's symbol, which then does nothing.
 *
 * Tests reach it through dlopen of the same path and the symbol `weir_fake_cuda_control`, which is
 * a struct weir_fake_cuda_control. All functions may be called from any thread; `reset` only while
 * no other thread is in the library. In a program that does not reset it there are 2 GPUs, or as
 * many as the environment's WEIR_FAKE_CUDA_GPUS says, by a driver for CUDA 13.0, or for
 * WEIR_FAKE_CUDA_VERSION's; and where it has WEIR_FAKE_CUDA_RUNS they go on by themselves.
 * WEIR_FAKE_CUDA_BAD_PLANS is `bad_plans`; WEIR_FAKE_CUDA_HELD_BACK says which reasons NVML has for
 * a low clock (0: none).
 */
#ifndef WEIR_TESTS_FAKE_CUDA_H
#define WEIR_TESTS_FAKE_CUDA_H

#include "fake_kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define WEIR_FAKE_CUDA_GPUS_MAX 8
#define WEIR_FAKE_CUDA_PRIORITY (-5) /**< the greatest of a stream; the least is 0 */

/** For reset. */
enum weir_fake_cuda_flags {
    /** Asynchronous copies take host memory that is not pinned, as the real driver does: towards
     * the device it is read during the call, towards the host the call waits for the copy. */
    WEIR_FAKE_CUDA_PAGEABLE = 1,
    /** Code of the host may touch device memory: faster, and nothing is noticed. */
    WEIR_FAKE_CUDA_UNGUARDED = 2,
    /** No GPU reaches another's memory; else each reaches all. */
    WEIR_FAKE_CUDA_NO_PEERS = 4,
    /** GPUs have addresses of their own for everything, or just for the host's pinned memory. */
    WEIR_FAKE_CUDA_NOT_UNIFIED = 8,
    WEIR_FAKE_CUDA_NO_HOST_POINTERS = 16
};

enum weir_fake_cuda_order {
    WEIR_FAKE_CUDA_LAZY,  /**< what is forced needs, and nothing else */
    WEIR_FAKE_CUDA_EAGER, /**< at once, as it is submitted: the friendliest of all */
    WEIR_FAKE_CUDA_RANDOM /**< by the seed: mostly the latest submitted first, some at random */
};

/** What is alive, and what went wrong since the reset. */
struct weir_fake_cuda_counts {
    uint64_t contexts, streams, events, allocations, bytes, pins, modules;
    uint64_t preferred;    /**< streams that were made of the greatest priority */
    uint64_t plans;        /**< libraries of weir_fake_cuda_numerics, and their plans */
    uint64_t orphans;      /**< objects that were alive when their context went */
    uint64_t faults;       /**< uses of memory against the rules */
    uint64_t lost_work;    /**< operations that never ran: their context went, or broke */
    uint64_t pending;      /**< operations not run yet */
    uint64_t cold_pins;    /**< pinned with pages that nobody had touched: they land wherever the
                                thread runs that pins them */
    char first_fault[160]; /**< what the first of `faults` was; "" */
};

/** The k-th wait since the reset, k from 1: cuStreamWaitEvent or cuEventSynchronize. */
struct weir_fake_cuda_wait {
    bool blocks;   /**< cuEventSynchronize */
    bool recorded; /**< the event had a record at all */
    bool done;     /**< the work had run, or the host had waited for it, when the wait was called */
    bool implied;  /**< earlier waits of the stream, and its own order, order it as well */
    uint64_t of;   /**< the stream that waits, or the event that the host waits for, as made */
    uint64_t nth;  /**< of its kind on that, from 1: the same in every run of a program, where k
                        depends on how threads interleave */
};

/** One line of the log, in the order of the calls. */
struct weir_fake_cuda_entry {
    const char *call;      /**< the driver's name, static */
    uint64_t ran;          /**< the how-manieth operation it was to run, from 1; 0: not yet */
    uint64_t stream;       /**< as made: 1, 2, …; 0: the default stream, or none */
    uint64_t event;        /**< as made: 1, 2, …; 0: none */
    const void *to, *from; /**< of copies and fills */
    size_t bytes;
};

/** A range that somebody pushed by NVTX. */
struct weir_fake_cuda_range {
    char name[32];
    int thread, depth; /**< gettid; how many were around it */
    bool ended;
};

/** For a launch without a table: `arguments` is a copy of what was given. */
typedef void weir_fake_cuda_fn(const void *arguments);

struct weir_fake_cuda_control {
    /** Forgets everything, as a new process would: no context, 1 GiB on each GPU, driver 13.0,
     * order RANDOM, no failure ahead, an empty log. */
    void (*reset)(uint64_t seed, uint32_t gpu_count, uint32_t flags);
    void (*set_order)(enum weir_fake_cuda_order order);
    /** What cuDriverGetVersion says, e.g. 12040. */
    void (*set_version)(int version);
    void (*set_memory)(uint64_t bytes_per_gpu);
    /** Whether `gpu` may be given access to the memory of `peer`. */
    void (*set_peer)(uint32_t gpu, uint32_t peer, bool can);
    /** PCI address of a GPU, as cuDeviceGetPCIBusId says it. */
    void (*set_pci)(uint32_t gpu, const char *address);
    /** GPUs' clocks run so much faster than the host's, and are this much ahead of it. */
    void (*set_clock)(double parts_per_million, uint64_t ahead_ns);

    /** Makes the k-th call of the driver from now on (1 is the next) fail with `result`, a
     * CUresult; 0 turns this off. What releases something releases it all the same. A result that
     * breaks a context (700, 719, …) does so to the current one. */
    void (*fail_call)(uint64_t k, int result);
    bool (*failed)(void); /**< whether that has happened since fail_call */
    uint64_t (*calls_made)(void);
    /** Makes the k-th wait since the reset do nothing; 0 turns this off. In order RANDOM most
     * forces then put off what it was for as long as anything else can run, so that few seeds show
     * whether it is missed. */
    void (*drop_wait)(uint64_t k);
    /** Makes the wait of which `blocks`, `of` and `nth` say so do nothing; NULL turns this off. */
    void (*drop_wait_like)(const struct weir_fake_cuda_wait *wait);
    uint64_t (*waits_made)(void);
    /** False if there is no such wait. */
    bool (*wait)(uint64_t k, struct weir_fake_cuda_wait *wait);

    void (*counts)(struct weir_fake_cuda_counts *counts);
    /** False if there is no entry `index` (from 0; the first 1,048,576 are kept). */
    bool (*entry)(uint64_t index, struct weir_fake_cuda_entry *entry);
    /** The log as text, for people. */
    void (*print)(FILE *to);

    /** Whether [memory, memory + bytes) is live memory of that GPU. */
    bool (*owns)(uint32_t gpu, const void *memory, size_t bytes);
    /** The thread (gettid) that pinned the memory there; 0: it is not pinned. */
    int (*pinned_by)(const void *memory);
    /** Copies between device and host memory at once, past all order; false if the device's range
     * is not live. For tests that set up and look. */
    bool (*peek)(void *host, const void *device, size_t bytes);
    bool (*poke)(void *device, const void *host, size_t bytes);
    /** Gives a stream (a CUstream) a function of the host to run as a kernel would, with a copy of
     * `bytes` bytes of arguments. A CUresult; it is a call of the driver as any other. */
    int (*launch)(void *stream, weir_fake_cuda_fn *run, const void *arguments, size_t bytes);
    /** Runs one operation that can run, functions of the host too; false if there is none. What a
     * GPU does by itself: for tests of threads that ask and do not wait. */
    bool (*go_on)(void);
    /** The k-th message from now on, of NCCL's, loses its pair's ranks to each other; 0 turns this
     * off. How many messages were given so far. */
    void (*nccl_lose)(uint64_t k);
    uint64_t (*nccl_given)(void);
    /** NVTX's range `index` (from 0) since the reset, in the order of their beginnings; false if
     * there is none. */
    bool (*range)(uint64_t index, struct weir_fake_cuda_range *range);
    /** Of the fake libraries' convolutions and attention, `count` that are made from now on do not
     * run: the library itself says so, each time. Their next ones do. */
    void (*bad_plans)(uint32_t count);
    /** Adds kernels that cuModuleGetFunction finds, until the next reset, besides those that are
     * linked into the library. The table must live as long. False if there is a table already. */
    bool (*add_kernels)(const struct fake_cuda_kernel *kernels, size_t count);
};

#endif
