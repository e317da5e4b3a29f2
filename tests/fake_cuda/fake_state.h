/* SPDX-License-Identifier: MIT */
/**
 * Inside the fake driver. All state is one struct under one lock, which every entry point holds
 * from its first line to its last; what is declared here is called with the lock held.
 *   fake_control.c  the state, its control functions, injected failures, the log
 *   fake_objects.c  contexts and handles
 *   fake_memory.c   device memory, pinned memory, who may touch what
 *   fake_streams.c  queues, events, and in which order work runs
 *   fake_driver.c   the driver's symbols
 *   fake_numerics.c products and convolutions
 *   fake_nccl.c     messages between GPUs
 */
#ifndef WEIR_TESTS_FAKE_STATE_H
#define WEIR_TESTS_FAKE_STATE_H

#include "fake_cuda.h"

#include "device/cuda_driver.h"

#include <pthread.h>

enum {
    FAKE_ENTRIES_MAX = 1 << 20,
    FAKE_RANGES_MAX = 4096,
    FAKE_ARGUMENT_BYTES_MAX = 4096, /* as CUDA's */
    FAKE_QUARANTINE_BYTES = 64 << 20
};

/* ---- objects ---- */

enum fake_kind { FAKE_CONTEXT, FAKE_STREAM, FAKE_EVENT, FAKE_MODULE, FAKE_FUNCTION };

/** What a handle stands for. Handles are numbers that are never used again, so a stale one is
 * seen; they are no addresses of anything. */
struct fake_slot {
    enum fake_kind kind;
    void *object; /* NULL: destroyed */
};

/** Of the primary context of one GPU; another life has another handle. */
struct fake_context {
    uint64_t handle; /* 0: not retained */
    uint32_t gpu;
    uint32_t retained;
    uint32_t peers;               /* bit g: may touch GPU g's memory */
    int broken;                   /* the sticky result, or 0 */
    struct fake_stream *standard; /* the default stream, made when first used */
};

/** A moment in a stream: of an event's record. Shared by the event, the operation that marks it,
 * and the waits bound to it. */
struct fake_record {
    uint32_t references;
    bool done;
    uint64_t ns;                /* the GPU's clock, once done */
    struct fake_stream *stream; /* valid until done */
    uint32_t stream_index;
    uint64_t position; /* in the stream */
    uint64_t *known;   /* the stream's knowledge then; see struct fake_stream */
    size_t known_count;
};

struct fake_event {
    uint64_t handle, number;
    struct fake_context *context;
    struct fake_record *record; /* the latest; NULL: never recorded */
    bool timed;
};

struct fake_message;

enum fake_work { FAKE_COPY, FAKE_FILL, FAKE_RECORD, FAKE_WAIT, FAKE_RUN, FAKE_MESSAGE };

struct fake_op {
    struct fake_op *next;
    enum fake_work work;
    uint64_t entry;    /* in the log */
    uint64_t sequence; /* of all submissions */
    char *to;
    const char *from; /* of a copy; staged: owned */
    size_t bytes;
    unsigned char value;
    bool staged;
    struct fake_record *record;
    struct fake_message *message;
    bool dropped;                          /* a message that ends without a byte */
    const struct fake_cuda_kernel *kernel; /* or: */
    weir_fake_cuda_fn *run;
    uint32_t grid[3], block[3], shared_bytes;
    void *arguments; /* owned */
};

struct fake_stream {
    struct fake_stream *next; /* in the state's list */
    uint64_t handle;
    uint32_t number; /* from 1 in the order of making; 0 for default streams */
    uint32_t index;  /* from 0, of all streams */
    struct fake_context *context;
    bool blocking; /* waits for the default stream and is waited for */
    bool destroyed;
    struct fake_op *head, *tail;
    uint64_t priority; /* by the seed */
    uint64_t position; /* operations submitted */
    uint64_t *known;   /* per stream index: the position that this one's next work comes after */
    size_t known_count;
};

/** Device memory, live or (for a while) freed. */
struct fake_range {
    struct fake_range *next;
    char *start;
    size_t bytes, mapped_bytes;
    uint32_t gpu;
    bool live, open;
    bool managed; /* the host and every GPU may touch it */
};

struct fake_pin {
    struct fake_pin *next;
    const char *start;
    size_t bytes;
    uint32_t gpu; /* whose context registered it */
    int thread;
};

struct fake_gpu {
    struct fake_context context;
    uint64_t memory_used;
    uint32_t reachable; /* bit g: may be given access to g */
    char pci[32];
};

struct fake_state {
    pthread_mutex_t lock; /* of all that is here, while a call is inside … */
    pthread_mutex_t look; /* … and this too, but not while it runs a function of the host: then who
                             has this alone may read, for nothing changes */
    bool host_runs;
    bool initialized; /* cuInit was called */
    uint64_t seed, random;
    uint32_t gpu_count, flags;
    enum weir_fake_cuda_order order;
    int version;
    uint64_t memory_bytes;
    struct weir_fake_cuda_range nvtx_ranges[FAKE_RANGES_MAX];
    size_t nvtx_range_count;
    uint32_t bad_plans; /* of those to be made */
    double clock_rate;
    uint64_t clock_ahead_ns;
    struct fake_gpu gpus[WEIR_FAKE_CUDA_GPUS_MAX];

    struct fake_slot *slots; /* handles slot_base + 1 … */
    uint64_t slot_base;
    size_t slot_count, slot_capacity;

    struct fake_stream *streams;
    uint32_t stream_count, stream_numbers; /* made so far */
    uint64_t event_numbers, sequence, ran;
    struct fake_range *ranges;
    size_t quarantined;
    int open_gpu; /* whose memory is open; -1: none */
    struct fake_pin *pins;
    const struct fake_cuda_kernel *kernels; /* a test's */
    size_t kernel_count;

    uint64_t calls, fail_at;
    int fail_result;
    bool failed;
    uint64_t drop_at;
    struct weir_fake_cuda_wait drop_like; /* nth 0: none */
    struct fake_record *dropped;          /* what the dropped wait was for */
    struct weir_fake_cuda_wait *waits;
    size_t wait_count, wait_capacity;
    struct weir_fake_cuda_entry *entries;
    size_t entry_count, entry_capacity;
    struct weir_fake_cuda_counts counts;
};
extern struct fake_state fake;

/* ---- fake_control.c ---- */

void fake_lock(void);
void fake_unlock(void);
/** For calls that a driver answers while a stream's work runs. False where another thread is inside
 * and runs a function of the host: then the caller may only look. */
bool fake_lock_or_look(void);
void fake_unlock_looked(bool all);
/** Memory that is there, zeroed; the process ends where there is none. */
void *fake_new(size_t bytes);
uint64_t fake_random(void);
uint64_t fake_random_below(uint64_t bound);
/** The GPUs' clock. */
uint64_t fake_clock_ns(void);
/** Whether the environment's WEIR_FAKE_CUDA_FAULT is `fault`. */
bool fake_is_planted(const char *fault);
/** Notes a use of memory against the rules. */
void fake_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** A line of the log; returns where it is (to mark it as run). */
uint64_t fake_log(const char *call, const struct fake_stream *stream,
                  const struct fake_event *event, const void *to, const void *from, size_t bytes);
/** Notes a wait for a record (NULL: none yet); true if it is the one to drop. */
bool fake_note_wait(const struct weir_fake_cuda_wait *wait, struct fake_record *record);
/** The injected result of this call, or 0. */
int fake_injected(void);

/** Gives a stream a function to run, with a copy of `bytes` bytes of arguments. A CUresult. */
int fake_launch(void *stream, const char *call, weir_fake_cuda_fn *run, const void *arguments,
                size_t bytes);

/* ---- fake_objects.c ---- */

uint64_t fake_handle_new(enum fake_kind kind, void *object);
/** NULL if it is none, or gone. */
void *fake_handle_find(enum fake_kind kind, uint64_t handle);
void fake_handle_end(uint64_t handle);
/** The calling thread's context; NULL: none, or it is gone. */
struct fake_context *fake_current(void);
uint64_t fake_current_handle(void);
void fake_set_current(uint64_t handle);
/** Retains a GPU's context. */
struct fake_context *fake_context_retain(uint32_t gpu);
/** False if it is not retained. The last one takes along all that is alive in it. */
bool fake_context_release(uint32_t gpu);
/** Breaks a context for good. */
void fake_context_break(struct fake_context *context, int result);
/** All objects of a context, or (NULL) of all; `orphans` counts them. */
void fake_objects_end(struct fake_context *context);

/* ---- fake_memory.c ---- */

/** A CUresult. */
int fake_memory_new(uint32_t gpu, size_t bytes, bool managed, uint64_t *address);
/** False if there is no live memory that begins there. */
bool fake_memory_end(uint64_t address);
/** All of a GPU's. Returns how many were live. */
uint64_t fake_memory_end_all(uint32_t gpu);
struct fake_range *fake_range_of(const void *address);
int fake_pin_new(uint32_t gpu, const void *start, size_t bytes);
bool fake_pin_end(const void *start);
uint64_t fake_pin_end_all(uint32_t gpu);
/** What pins it, or NULL. */
const struct fake_pin *fake_pin_of(const void *start, size_t bytes);
bool fake_is_pinned(const void *start, size_t bytes);
/** What [start, start + bytes) is to a context. */
enum fake_place { FAKE_DEVICE, FAKE_PINNED, FAKE_PAGEABLE, FAKE_FORBIDDEN };
/** FORBIDDEN is noted as a fault; `what` says for what it was used. */
enum fake_place fake_place_of(const struct fake_context *context, const void *start, size_t bytes,
                              const char *what);
/** Opens the memory that a context's work may touch; NULL closes all. */
void fake_memory_open(const struct fake_context *context);

/* ---- fake_streams.c ---- */

struct fake_stream *fake_stream_new(struct fake_context *context, bool blocking, bool standard);
/** Its work still runs, if anything forces it. */
void fake_stream_end(struct fake_stream *stream);
/** The stream of a handle, or the current context's default one; NULL: invalid. */
struct fake_stream *fake_stream_of(const void *handle);
struct fake_op *fake_op_new(enum fake_work work, uint64_t entry);
/** Takes the operation over. */
void fake_submit(struct fake_stream *stream, struct fake_op *op);
/** A moment after all that was submitted to the stream. */
struct fake_record *fake_submit_record(struct fake_stream *stream);
void fake_record_release(struct fake_record *record);
/** Makes the stream's later work come after the record. */
void fake_submit_wait(struct fake_stream *stream, struct fake_record *record, uint64_t entry);
/** Whether the stream's own order and its waits so far imply it. */
bool fake_is_implied(const struct fake_stream *stream, const struct fake_record *record);
/** Runs what it takes, and what the order adds. */
void fake_force_stream(struct fake_stream *stream);
void fake_force_record(struct fake_record *record);
/** Runs one operation that the record or the stream (the other is NULL) needs, but for functions of
 * the host, which could keep the caller; true if it is done now. */
bool fake_poll(struct fake_record *record, struct fake_stream *stream);
/** Runs one operation that can run, a function of the host too; false if there is none. */
bool fake_go_on(void);
/** Forgets streams of a context (NULL: all), and their work. Returns how many were alive. */
uint64_t fake_streams_end(const struct fake_context *context);

/* ---- fake_nccl.c ---- */

/** Of an operation at the head of its stream: whether its other side is, too. */
bool fake_message_is_ready(const struct fake_op *op);
/** The stream of the other side; NULL: nobody has given it yet. */
struct fake_stream *fake_message_other(const struct fake_op *op);
/** Moves the bytes. The other side's stream, whose head ends with it; NULL: there is none. */
struct fake_stream *fake_message_run(struct fake_op *op);
/** The operation goes. */
void fake_message_forget(struct fake_op *op);
void fake_nccl_lose(uint64_t k);
uint64_t fake_nccl_given(void);

#endif
