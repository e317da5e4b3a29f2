/* SPDX-License-Identifier: MIT */
/* The CPU as a device. A stream's work runs at once on the calling thread, so ordering is free and
 * an event that was recorded is done.
 *
 * Memory comes straight from mmap, 2 MiB aligned, so that the kernel can back it with huge pages:
 * first touch runs at 14 GB/s instead of 3 and the TLB reaches far. It is never pre-populated:
 * pages belong near the thread that touches them (memory_touch), not near the one that maps. */
#include "base/portable.h"
#include "base/team.h"
#include "device/device.h"
#include "device/kinds.h"
#include "device/past_cache.h"
#include "device/verdict.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    NODES_MAX = 1024,
    /* linux/mempolicy.h's MPOL_PREFERRED, so that no libnuma header is needed. */
    POLICY_PREFERRED = 1
};

struct cpu_stream {
    struct weir_stream stream;
    const struct weir_allocator *allocator;
};

static struct cpu_stream *cpu_stream(struct weir_stream *stream) {
    assert(stream != NULL);
    return (struct cpu_stream *)stream;
}

/* ---- memory ---- */

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Maps `bytes` from a huge page's boundary on: maps one huge page more, and unmaps both ends. */
static void *map_aligned(size_t bytes) {
    assert(bytes % page_bytes() == 0);
    size_t whole;
    if (!weir__add(bytes, WEIR__HUGE_PAGE, &whole)) return NULL;
    char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) return NULL;
    size_t before = (size_t)(-(uintptr_t)start & (WEIR__HUGE_PAGE - 1));
    size_t after = WEIR__HUGE_PAGE - before;
    /* Unmapping an end fails only at the limit on mappings; then it merely stays reserved. */
    if (before > 0) (void)munmap(start, before);
    if (after > 0) (void)munmap(start + before + bytes, after);
    assert(((uintptr_t)(start + before) & (WEIR__HUGE_PAGE - 1)) == 0);
    return start + before;
}

static int cpu_memory_acquire(struct weir__device *device, size_t bytes, void **memory) {
    (void)device;
    assert(bytes % WEIR__CACHE_LINE == 0);
    size_t whole;
    if (!weir__round_up(bytes == 0 ? 1 : bytes, page_bytes(), &whole)) {
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    void *mapped = map_aligned(whole);
    if (mapped == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    /* Refused where the kernel has no huge pages: then small ones serve. */
    (void)madvise(mapped, whole, MADV_HUGEPAGE);
    *memory = mapped;
    return WEIR_OK;
}

static void cpu_memory_release(struct weir__device *device, void *memory, size_t bytes) {
    (void)device;
    if (memory == NULL) return;
    size_t whole = 0;
    bool fits = weir__round_up(bytes == 0 ? 1 : bytes, page_bytes(), &whole);
    int status = munmap(memory, whole);
    assert(fits && status == 0);
    (void)fits, (void)status;
}

/* Asks the kernel to take the pages wholly inside the range from `node`. A preference: containers
 * often forbid the call, and first touch by a bound thread puts them there anyway. */
static void prefer_node(void *memory, size_t bytes, int32_t node) {
#ifdef SYS_mbind
    enum { WORD_BITS = 8 * sizeof(unsigned long) };
    unsigned long mask[NODES_MAX / WORD_BITS] = {0};
    if (node < 0 || node >= NODES_MAX) return;
    mask[node / WORD_BITS] |= 1ul << (node % WORD_BITS);
    uintptr_t page = page_bytes();
    uintptr_t first = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t last = ((uintptr_t)memory + bytes) & ~(page - 1);
    if (first >= last) return;
    (void)syscall(SYS_mbind, first, last - first, POLICY_PREFERRED, mask, NODES_MAX + 1ul, 0u);
#else
    (void)memory, (void)bytes, (void)node;
#endif
}

static int cpu_memory_touch(struct weir__device *device, void *memory, size_t bytes, int32_t node) {
    (void)device;
    assert(memory != NULL || bytes == 0);
    if (bytes == 0) return WEIR_OK;
    prefer_node(memory, bytes, node);
    memset(memory, 0, bytes);
    return WEIR_OK;
}

/* Every copy is a thread's own: what it can read needs no pinning. */
static int cpu_host_pin(struct weir__device *device, void *memory, size_t bytes) {
    (void)device, (void)memory, (void)bytes;
    return WEIR_OK;
}

static void cpu_host_unpin(struct weir__device *device, void *memory, size_t bytes) {
    (void)device, (void)memory, (void)bytes;
}

/* ---- streams and events ---- */

static int cpu_enter(struct weir__device *device) {
    (void)device;
    return WEIR_OK;
}

static int cpu_visit(struct weir__device *device, struct weir__visit *visit) {
    *visit = (struct weir__visit){0};
    return cpu_enter(device);
}

static void cpu_leave(struct weir__device *device, const struct weir__visit *visit) {
    (void)device, (void)visit;
}

static int cpu_stream_new(struct weir__device *device, struct weir_stream **stream) {
    struct cpu_stream *made = weir__acquire(device->allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->stream.device = device;
    made->allocator = device->allocator;
    *stream = &made->stream;
    return WEIR_OK;
}

static void cpu_stream_destroy(struct weir_stream *stream) {
    if (stream == NULL) return;
    struct cpu_stream *own = cpu_stream(stream);
    weir__team_destroy(stream->team);
    weir__release(own->allocator, own, 1, sizeof *own);
}

static int cpu_stream_finish(struct weir_stream *stream) {
    (void)stream;
    return WEIR_OK;
}

static int cpu_event_init(struct weir__device *device, struct weir__event *event) {
    assert(device != NULL && event != NULL);
    *event = (struct weir__event){.device = device};
    return WEIR_OK;
}

static void cpu_event_clean_up(struct weir__event *event) {
    if (event != NULL) *event = (struct weir__event){0};
}

static int cpu_event_record(struct weir_stream *stream, struct weir__event *event) {
    (void)stream;
    assert(stream != NULL && event != NULL);
    event->ready_ns = weir__now_ns();
    return WEIR_OK;
}

static int cpu_event_wait(struct weir__event *event) {
    (void)event;
    assert(event->ready_ns <= weir__now_ns());
    return WEIR_OK;
}

static int cpu_event_query(struct weir__event *event, bool *done) {
    (void)event;
    *done = true;
    return WEIR_OK;
}

static int cpu_event_time(struct weir__event *event, uint64_t *ns) {
    assert(event->ready_ns > 0);
    *ns = event->ready_ns;
    return WEIR_OK;
}

static int cpu_stream_wait(struct weir_stream *stream, struct weir__event *event) {
    (void)stream;
    assert(stream != NULL && event != NULL && event->device != NULL);
    /* Work given to this stream runs now, so a wait for any kind of event is a blocking one. */
    return event->device->calls->event_wait(event);
}

static int cpu_copy(struct weir_stream *stream, void *destination, const void *source,
                    size_t bytes) {
    assert(stream != NULL);
    weir__cpu_copy(destination, source, bytes, stream->device->stream_min);
    return WEIR_OK;
}

static int cpu_copy_set(struct weir_stream *stream, const struct weir__copy_set *set) {
    assert(set->count == 0 || set->items != NULL);
    for (uint32_t i = 0; i < set->count; i++)
        cpu_copy(stream, set->items[i].to, set->items[i].from, set->items[i].bytes);
    return WEIR_OK;
}

int weir__cpu_judge(struct weir_stream *stream, const struct weir__judgement *judgement) {
    (void)stream;
    double sum = 0.0;
    for (size_t i = 0; i < judgement->count; i++) sum += judgement->squares[i];
    weir__judge_sum(sum, judgement->clip_norm, judgement->verdict);
    return WEIR_OK;
}

static bool cpu_reaches(struct weir__device *device, struct weir__device *other) {
    assert(device != NULL && other != NULL);
    return other->memory == device->memory;
}

/* ---- copies ---- */

/* Source and destination together fill the last cache at half its size. Below, plain stores are
 * faster (Zen 4, 32 MiB: 41 against 27 GB/s at 8 MiB), from there on they are slower (20 against 27
 * at 16 MiB, 13 against 22 at 256 MiB). */
size_t weir__copy_stream_min(uint64_t last_cache_bytes) {
    enum { UNKNOWN = 16 << 20 };
    return last_cache_bytes == 0 ? UNKNOWN : (size_t)(last_cache_bytes / 2);
}

void weir__cpu_copy(void *destination, const void *source, size_t bytes, size_t stream_min) {
    assert(bytes == 0 || (destination != NULL && source != NULL));
    if (WEIR__LIKELY(bytes < stream_min)) {
        if (bytes > 0) memcpy(destination, source, bytes);
    } else if ((uintptr_t)destination % WEIR__CACHE_LINE == 0) {
        weir__copy_past_cache(destination, source, bytes);
    } else {
        memcpy(destination, source, bytes);
    }
}

/* ---- the table ---- */

static void cpu_close(struct weir__device *device) {
    if (device != NULL) weir__release(device->allocator, device, 1, sizeof *device);
}

static const struct weir__device_calls cpu_calls = {
    .kind = "cpu",
    .enter = cpu_enter,
    .visit = cpu_visit,
    .leave = cpu_leave,
    .memory_acquire = cpu_memory_acquire,
    .memory_release = cpu_memory_release,
    .memory_touch = cpu_memory_touch,
    .host_pin = cpu_host_pin,
    .host_unpin = cpu_host_unpin,
    .copy_stream_new = cpu_stream_new,
    .stream_new = cpu_stream_new,
    .stream_destroy = cpu_stream_destroy,
    .stream_finish = cpu_stream_finish,
    .event_init = cpu_event_init,
    .event_clean_up = cpu_event_clean_up,
    .event_record = cpu_event_record,
    .stream_wait = cpu_stream_wait,
    .event_wait = cpu_event_wait,
    .event_query = cpu_event_query,
    .event_time = cpu_event_time,
    .copy = cpu_copy,
    .copy_set = cpu_copy_set,
    .judge = weir__cpu_judge,
    .reaches = cpu_reaches,
    .close = cpu_close,
    .synchronous = true,
};

int weir__cpu_probe(uint32_t ordinal, struct weir_error *error) {
    (void)ordinal, (void)error;
    return WEIR_OK;
}

/* Every ordinal is the same processor. src/place decides which cores a worker gets. */
int weir__cpu_open(const char *name, uint32_t ordinal, const struct weir_allocator *allocator,
                   struct weir_error *error, struct weir__device **device) {
    assert(name != NULL && device != NULL);
    (void)ordinal, (void)error;
    struct weir__device *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    assert(strlen(name) < sizeof made->name);
    made->calls = &cpu_calls;
    made->allocator = allocator;
    made->stream_min = weir__copy_stream_min(0);
    memcpy(made->name, name, strlen(name) + 1);
    *device = made;
    return WEIR_OK;
}
