/* SPDX-License-Identifier: MIT */
/**
 * A device: memory, streams, events and copies, behind one table of calls. The CPU is one
 * implementation (cpu.c); CUDA is another. Nothing above this header knows which it has.
 *
 * The rules are CUDA's, because they are the weaker ones:
 *  - work given to a stream runs in order, possibly later, possibly while the caller goes on;
 *  - weir__stream_wait binds to the event's latest record at the moment of the call, and an event
 *    never recorded counts as done. So between threads a host flag ("recorded in this step",
 *    a weir__gate) comes first, then the consumer enqueues its wait;
 *  - memory that a stream uses may be reused only by work ordered after it.
 * On the CPU a stream's work runs at once on the calling thread, so a record is a time stamp and a
 * wait is over when the flag was seen. A delay on copies, for measurements, is the executor's
 * (weir_pipe_options.link_delay_ns).
 */
#ifndef WEIR_DEVICE_H
#define WEIR_DEVICE_H

#include "base/base.h"

struct weir__device;

/** Work in order. One owner thread at a time. */
struct weir_stream {
    struct weir__device *device;
    /** Threads that share a kernel's work on a CPU, whose head is the stream's worker, or NULL:
     * made by whoever first wants them there, gone with the stream. */
    struct weir__team *team;
    bool spins; /**< whether the team may spin; the pipe says so before its worker begins */
};

/** A point in a stream. Written by record (owner of the stream), read by wait and query after the
 * host flag was seen; query also before, which tells of an earlier record then. */
struct weir__event {
    struct weir__device *device;
    uint64_t ready_ns;        /**< CPU: CLOCK_MONOTONIC time at which it was recorded; 0: never */
    void *native;             /**< CUDA's event (CUevent) */
    _Atomic uint64_t told_ns; /**< CUDA: what event_time said of the latest record; 0: not asked.
                                   Any thread that may ask */
};

/** What an update is judged by (verdict.h): the sum of the squares in this order. */
struct weir__judgement {
    const double *squares; /**< host memory, pinned for a GPU */
    size_t count;
    double clip_norm;             /**< 0: none */
    struct weir_verdict *verdict; /**< the device's memory */
};

/** One of several copies. */
struct weir__copy_item {
    void *to;
    const void *from;
    size_t bytes;
};

/** Copies that a kernel does, several of them at once. */
struct weir__copy_set {
    const struct weir__copy_item *items; /**< the caller's again when the call returns */
    uint32_t count;
    uint32_t to_memory, from_memory; /**< weir__device.memory that all go to, and come from */
    uint32_t blocks_max; /**< of a single one: how many of the device's processors it may take; 0:
                              as many as there are */
};

/** What a thread had current before a visit. */
struct weir__visit {
    void *former;
    bool changed;
};

/** One kind of device. All calls but those that return nothing return a status; a device's sticky
 * error (a launch that failed, memory that was overrun) is returned by every later call on it.
 * Thread: `enter` first on every thread that calls, but open's and close's, and event_query's and
 * event_wait's, which any thread may call. */
struct weir__device_calls {
    const char *kind; /**< "cpu", "cuda" */
    /** Makes the device the calling thread's, for all later calls with it. */
    int (*enter)(struct weir__device *device);
    /** The same until `leave`, which puts back what was there: for threads that are others'. Leave
     * what failed, too. */
    int (*visit)(struct weir__device *device, struct weir__visit *visit);
    void (*leave)(struct weir__device *device, const struct weir__visit *visit);
    /** Reserves `bytes` (a multiple of 64) on huge pages where the system has them; contents are
     * undefined, pages untouched. WEIR_ERR_OUT_OF_MEMORY. */
    int (*memory_acquire)(struct weir__device *device, size_t bytes, void **memory);
    void (*memory_release)(struct weir__device *device, void *memory, size_t bytes);
    /** Zeroes and so faults in the pages, on the calling thread, bound to NUMA node `node` (the
     * operating system's number) if >= 0 (a preference: failure to bind is not an error). Done when
     * it returns. */
    int (*memory_touch)(struct weir__device *device, void *memory, size_t bytes, int32_t node);
    /** Lets `copy` reach the host's memory [memory, memory + bytes), whole pages, from any thread
     * and any device of this kind, until host_unpin. WEIR_ERR_OUT_OF_MEMORY. */
    int (*host_pin)(struct weir__device *device, void *memory, size_t bytes);
    void (*host_unpin)(struct weir__device *device, void *memory, size_t bytes);
    int (*stream_new)(struct weir__device *device, struct weir_stream **stream);
    /** For copies beside other work: where a device has room for less than all that could begin,
     * its kernels begin before those of other streams. */
    int (*copy_stream_new)(struct weir__device *device, struct weir_stream **stream);
    /** The stream's work must be done (stream_finish). Accepts NULL. */
    void (*stream_destroy)(struct weir_stream *stream);
    /** Blocks the calling thread until all the stream's work is done, or has failed. */
    int (*stream_finish)(struct weir_stream *stream);
    int (*event_init)(struct weir__device *device, struct weir__event *event);
    void (*event_clean_up)(struct weir__event *event);
    int (*event_record)(struct weir_stream *stream, struct weir__event *event);
    /** Later work of `stream` starts after `event`. The event may be another device's. */
    int (*stream_wait)(struct weir_stream *stream, struct weir__event *event);
    /** Blocks the calling thread until the event is done. */
    int (*event_wait)(struct weir__event *event);
    /** Whether the event's latest record is done, at once; an event never recorded is. Called by
     * any thread, also while another one waits. */
    int (*event_query)(struct weir__event *event, bool *done);
    /** CLOCK_MONOTONIC nanoseconds at which the event was done; on a GPU to a microsecond or so if
     * asked for within some seconds (a minute later to some microseconds), and only after the
     * stream that recorded it was finished. Blocks for as long as the driver takes, about a
     * microsecond. */
    int (*event_time)(struct weir__event *event, uint64_t *ns);
    /** Copies between memories that the stream's device reaches: its own, those of devices that
     * `reaches` says, and the host's where it is pinned. Ranges do not overlap; fastest
     * where both are 64-byte aligned. */
    int (*copy)(struct weir_stream *stream, void *destination, const void *source, size_t bytes);
    /** Does what `copy` does with each, in no order, by one launch of a kernel, or one for every 64
     * of many: it begins sooner than a copy engine, but on the processors that compute. */
    int (*copy_set)(struct weir_stream *stream, const struct weir__copy_set *set);
    /** Writes the verdict on the gradients behind what the stream has been given. */
    int (*judge)(struct weir_stream *stream, const struct weir__judgement *judgement);
    /** Whether `copy` on this device's streams may read and write `other`'s memory. */
    bool (*reaches)(struct weir__device *device, struct weir__device *other);
    /** All streams, events and memory must be gone. */
    void (*close)(struct weir__device *device);
    /** Writes what failed last on the device, in its driver's words, into `text` (capacity >= 1);
     * "" if nothing has. Optional, default: nothing to add to the status. Any thread. */
    void (*explain)(struct weir__device *device, char *text, size_t capacity);
    /** Writes the index-th line of how its runs stand with memory, and of which ways they take,
     * where there are several (libraries and their versions, whose attention), as "cuda:0:
     * products: cuBLASLt 13.1.0 (libcublasLt.so.13)"; false, and nothing: there are no more. Lines
     * come as pipes are built, and stay. Optional. Any thread. */
    bool (*tell_way)(struct weir__device *device, uint32_t index, char *text, size_t capacity);
    bool synchronous; /**< work is done when the call returns: events need not be kept */
};

struct weir__device {
    const struct weir__device_calls *calls;
    const struct weir_allocator *allocator;
    char name[32];
    uint32_t memory;   /**< devices of the same number share memory: a pointer of one is one of the
                            other. 0 is the host's */
    char pci[16];      /**< a GPU's PCI address, for weir__place_near; "" for a CPU */
    size_t stream_min; /**< CPU: copies of so many bytes pass the caches by; open sets
                            weir__copy_stream_min(0), who knows the machine may set better */
};

/** What a device's name says, without opening it. */
struct weir__device_facts {
    uint32_t memory;  /**< weir__device.memory */
    bool synchronous; /**< weir__device_calls.synchronous */
};
/** Of a name that weir__device_open would refuse: a CPU's. */
struct weir__device_facts weir__device_facts(const char *name);

/** Which memories the copies of its streams may read and write, as its driver says without being
 * opened for use: bit m is weir__device.memory m. What nobody can say is 1: all of a CPU's, of a
 * name that is refused, without a driver, of GPUs that are not there. weir__device_calls.reaches,
 * which asks for access, may still say no. Any thread. */
uint64_t weir__device_reach(const char *name);

/** Opens "cpu" (or "cpu:N": the same device under another name), "cuda" (the first GPU) or
 * "cuda:N". WEIR_ERR_NOT_FOUND for a kind or number that is not there, WEIR_ERR_ARGUMENT for a
 * malformed name; `error` (may be NULL) says what is missing and how to mend it. The caller closes
 * it with device->calls->close. */
int weir__device_open(const char *name, const struct weir_allocator *allocator,
                      struct weir_error *error, struct weir__device **device);
/** Whether there is such a device, without opening it: the same statuses and errors, but for those
 * of a device that is there and does not open. */
int weir__device_check(const char *name, struct weir_error *error);

/** CPU copy by the best known way for its size: memcpy below `stream_min` bytes, non-temporal
 * stores from there on (where the destination is 64-byte aligned). What a device's `copy` does;
 * exposed for the copy bench. */
void weir__cpu_copy(void *destination, const void *source, size_t bytes, size_t stream_min);
/** A CPU's `judge`; `stream` may be NULL. WEIR_OK. */
int weir__cpu_judge(struct weir_stream *stream, const struct weir__judgement *judgement);
/** The best stream_min for cores whose last cache holds `last_cache_bytes` (0: unknown). */
size_t weir__copy_stream_min(uint64_t last_cache_bytes);

#endif
