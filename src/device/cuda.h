/* SPDX-License-Identifier: MIT */
/**
 * Inside src/device: a GPU as a device, shared by cuda*.c. What each file does:
 *   cuda.c          opening, closing, the table of calls, errors
 *   cuda_memory.c   the device's memory, pinned memory of the host, peers
 *   cuda_streams.c  streams, events, copies, launches
 *   cuda_clock.c    GPU time to the host's
 *   cuda_modules.c  the kernels' images
 */
#ifndef WEIR_DEVICE_CUDA_H
#define WEIR_DEVICE_CUDA_H

#include "device/cuda_driver.h"
#include "device/cuda_kernels.h"
#include "device/device.h"

#include <pthread.h>

/** Maps times of a GPU, given in milliseconds since a base, to CLOCK_MONOTONIC. The two clocks run
 * at rates that differ by some parts per million. Between two bases that does not matter; beyond
 * the last it is learned from base to base. */
struct weir__cuda_clock {
    uint64_t first_host_ns; /**< the first base */
    uint64_t base_host_ns;  /**< the base that times are given from */
    double base_gpu_ns;     /**< from the first base to this one, by the GPU's clock */
    double rate;            /**< host's nanoseconds per GPU's */
    double former_gpu_ns;   /**< from the base before to this one; 0: there is none … */
    double former_rate;     /**< … or so it was between them */
};

/** Times further from the base than this are less exact than a microsecond as floats. */
#define WEIR__CUDA_CLOCK_FAR_MS 4096.0f

/** The first base, at which the host's clock said `host_ns`. */
void weir__cuda_clock_begin(struct weir__cuda_clock *clock, uint64_t host_ns);
/** A new base, `milliseconds` after the last one, at which the host's clock said `host_ns`. */
void weir__cuda_clock_rebase(struct weir__cuda_clock *clock, uint64_t host_ns, float milliseconds);
/** For so long after its base the clock says more than a new base would. */
uint64_t weir__cuda_clock_span_ns(const struct weir__cuda_clock *clock);
/** `milliseconds` after (negative: before) the base. */
uint64_t weir__cuda_clock_map(const struct weir__cuda_clock *clock, float milliseconds);

struct weir__cuda_device;

/** What failed last; a sticky failure stays. */
struct weir__cuda_failure {
    const char *call; /**< static; NULL: nothing has */
    int result;
    const char *name; /**< static: what a library other than the driver calls the result, which is
                           its own then, and never sticky; NULL: the driver's */
};

enum { WEIR__CUDA_WAYS_MAX = 48, WEIR__CUDA_WAY_MAX = 120 };

/** What another part hangs on to a device, to end with it. */
struct weir__cuda_attached {
    /** With the device's context current, and all streams gone; `device` still calls. */
    void (*close)(struct weir__cuda_attached *attached, struct weir__cuda_device *device);
};

enum { WEIR__CUDA_SETS_MAX = 4 };

/** A set of kernels as a device has loaded it. */
struct weir__cuda_modules {
    const struct weir__cuda_set *set;
    struct CUmod_st **modules;
    uint32_t module_count, module_capacity;
    struct CUfunc_st **functions; /**< [kernel] */
};

struct weir__cuda_device {
    struct weir__device device; /**< first: the one is cast to the other */
    struct weir__cuda_driver driver;
    int gpu;                           /**< the driver's number for it */
    struct CUctx_st *context;          /**< the primary one, retained */
    struct CUstream_st *own;           /**< for memory_touch and bases; under `lock` */
    struct CUevent_st *bases[3];       /**< [0] is the base; under `lock` */
    struct weir__cuda_clock clock;     /**< under `lock` */
    uint64_t in_vain_until_ns;         /**< no new base until then; under `lock` */
    struct weir__cuda_failure failure; /**< under `failure_lock`, which is taken last */
    pthread_mutex_t lock, failure_lock;
    _Atomic size_t own_bytes; /**< that memory_acquire gave and nobody gave back */
    int priorities[2];        /**< of streams: least, greatest */
    uint32_t way_count;       /**< under `failure_lock`, as `ways` */
    char ways[WEIR__CUDA_WAYS_MAX][WEIR__CUDA_WAY_MAX];
    /** The engine's first, then NULL; written under `lock`, read without. */
    struct weir__cuda_modules *_Atomic sets[WEIR__CUDA_SETS_MAX];
    struct weir__cuda_attached *numerics; /**< the net's libraries (net/cuda/numerics.h); NULL until
                                               one is needed; under `lock` */
};

struct weir__cuda_stream {
    struct weir_stream stream; /**< first */
    struct CUstream_st *native;
};

extern const struct weir__device_calls weir__cuda_calls;

static inline struct weir__cuda_device *weir__cuda_device(struct weir__device *device) {
    assert(device != NULL && device->calls == &weir__cuda_calls);
    return (struct weir__cuda_device *)device;
}

static inline const struct weir__cuda_stream *weir__cuda_stream(const struct weir_stream *stream) {
    assert(stream != NULL && stream->device->calls == &weir__cuda_calls);
    return (const struct weir__cuda_stream *)stream;
}

/** The status of `result`; a failure is kept for `explain`. `call` is the driver's name for it. */
int weir__cuda_check(struct weir__cuda_device *device, const char *call, int result);
/** Keeps a failure for `explain`. */
void weir__cuda_note(struct weir__cuda_device *device, const struct weir__cuda_failure *failure);

/** Keeps a line of what its runs do in one way of several, such as a library's version, for
 * weir__device_calls.tell_way: once, however often it is noted; none beyond WAYS_MAX. Any thread.
 */
void weir__cuda_way_note(struct weir__cuda_device *device, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** The device's context as the calling thread's, for calls that may come from any thread, and what
 * it was before. */
struct weir__cuda_scope {
    struct CUctx_st *former;
    bool changed;
};
/** A status. End it in any case. */
int weir__cuda_scope_begin(struct weir__cuda_device *device, struct weir__cuda_scope *scope);
void weir__cuda_scope_end(struct weir__cuda_device *device, const struct weir__cuda_scope *scope);

/* ---- cuda_clock.c ---- */

/** Makes the stream and events and the first base. The context must be current. */
int weir__cuda_clock_new(struct weir__cuda_device *device);
/** What clock_new made, as far as it came. */
void weir__cuda_clock_destroy(struct weir__cuda_device *device);
int weir__cuda_event_time(struct weir__event *event, uint64_t *ns);

/* ---- cuda_modules.c ---- */

/** The set as it is loaded; NULL: it is not. */
const struct weir__cuda_modules *weir__cuda_modules_of(const struct weir__cuda_device *device,
                                                       const struct weir__cuda_set *set);
/** Unloads all sets. The context must be current. */
void weir__cuda_modules_destroy(struct weir__cuda_device *device);
/** WEIR_ERR_UNSUPPORTED if this build has none, and the driver is a real one. */
int weir__cuda_modules_check(const struct weir__cuda_driver *driver, struct weir_error *error);

/** What a GPU's memory is for. */
struct weir__cuda_room {
    size_t free_bytes, total_bytes;
    size_t own_bytes;    /**< the device's, by memory_acquire */
    size_t beside_bytes; /**< used otherwise: the context, code, libraries, other processes */
};
/** A CUDA device; any thread. A status. */
int weir__cuda_memory_room(struct weir__device *device, struct weir__cuda_room *room);

/* ---- cuda_memory.c, cuda_streams.c: calls of the table; see device.h ---- */

int weir__cuda_memory_acquire(struct weir__device *device, size_t bytes, void **memory);
void weir__cuda_memory_release(struct weir__device *device, void *memory, size_t bytes);
int weir__cuda_memory_touch(struct weir__device *device, void *memory, size_t bytes, int32_t node);
int weir__cuda_host_pin(struct weir__device *device, void *memory, size_t bytes);
void weir__cuda_host_unpin(struct weir__device *device, void *memory, size_t bytes);
bool weir__cuda_reaches(struct weir__device *device, struct weir__device *other);
int weir__cuda_stream_new(struct weir__device *device, struct weir_stream **stream);
int weir__cuda_copy_stream_new(struct weir__device *device, struct weir_stream **stream);
void weir__cuda_stream_destroy(struct weir_stream *stream);
int weir__cuda_stream_finish(struct weir_stream *stream);
int weir__cuda_event_init(struct weir__device *device, struct weir__event *event);
void weir__cuda_event_clean_up(struct weir__event *event);
int weir__cuda_event_record(struct weir_stream *stream, struct weir__event *event);
int weir__cuda_stream_wait(struct weir_stream *stream, struct weir__event *event);
int weir__cuda_event_wait(struct weir__event *event);
int weir__cuda_event_query(struct weir__event *event, bool *done);
int weir__cuda_judge(struct weir_stream *stream, const struct weir__judgement *judgement);
int weir__cuda_enqueue_copy(struct weir_stream *stream, void *destination, const void *source,
                            size_t bytes);
int weir__cuda_copy_set(struct weir_stream *stream, const struct weir__copy_set *set);

#endif
