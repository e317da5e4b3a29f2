/* SPDX-License-Identifier: MIT */
/* The fake driver's state and what tests do with it. */
#include "fake_state.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fake_state fake = {.lock = PTHREAD_MUTEX_INITIALIZER,
                          .look = PTHREAD_MUTEX_INITIALIZER,
                          .open_gpu = -1,
                          .version = 13000};

void fake_lock(void) {
    pthread_mutex_lock(&fake.lock);
    pthread_mutex_lock(&fake.look);
}

void fake_unlock(void) {
    pthread_mutex_unlock(&fake.look);
    pthread_mutex_unlock(&fake.lock);
}

bool fake_lock_or_look(void) {
    while (pthread_mutex_trylock(&fake.lock) != 0) {
        pthread_mutex_lock(&fake.look);
        if (fake.host_runs) return false;
        pthread_mutex_unlock(&fake.look);
        sched_yield();
    }
    pthread_mutex_lock(&fake.look);
    return true;
}

void fake_unlock_looked(bool all) {
    pthread_mutex_unlock(&fake.look);
    if (all) pthread_mutex_unlock(&fake.lock);
}

void *fake_new(size_t bytes) {
    void *made = calloc(1, bytes == 0 ? 1 : bytes);
    if (made == NULL) abort(); /* of a test's machine, not of the GPU under test */
    return made;
}

/* splitmix64 */
uint64_t fake_random(void) {
    fake.random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = fake.random;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t fake_random_below(uint64_t bound) {
    return fake_random() % bound;
}

uint64_t fake_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    return (uint64_t)((double)ns * fake.clock_rate) + fake.clock_ahead_ns;
}

bool fake_is_planted(const char *fault) {
    const char *planted = getenv("WEIR_FAKE_CUDA_FAULT");
    return planted != NULL && strcmp(planted, fault) == 0;
}

void fake_fault(const char *format, ...) {
    if (fake.counts.faults++ > 0) return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fake.counts.first_fault, sizeof fake.counts.first_fault, format, arguments);
    va_end(arguments);
}

/* ---- the log ---- */

/* Room for one more of `bytes` bytes each. */
static void *grow(void *items, size_t count, size_t *capacity, size_t bytes) {
    if (count < *capacity) return items;
    *capacity = *capacity == 0 ? 256 : *capacity * 2;
    void *grown = realloc(items, *capacity * bytes);
    if (grown == NULL) abort();
    return grown;
}

uint64_t fake_log(const char *call, const struct fake_stream *stream,
                  const struct fake_event *event, const void *to, const void *from, size_t bytes) {
    if (fake.entry_count >= FAKE_ENTRIES_MAX) return UINT64_MAX;
    fake.entries = grow(fake.entries, fake.entry_count, &fake.entry_capacity, sizeof *fake.entries);
    fake.entries[fake.entry_count] =
        (struct weir_fake_cuda_entry){.call = call,
                                      .stream = stream == NULL ? 0 : stream->number,
                                      .event = event == NULL ? 0 : event->number,
                                      .to = to,
                                      .from = from,
                                      .bytes = bytes};
    return fake.entry_count++;
}

bool fake_note_wait(const struct weir_fake_cuda_wait *wait, struct fake_record *record) {
    fake.waits = grow(fake.waits, fake.wait_count, &fake.wait_capacity, sizeof *fake.waits);
    struct weir_fake_cuda_wait *noted = &fake.waits[fake.wait_count];
    *noted = *wait;
    noted->nth = 1;
    for (size_t i = 0; i < fake.wait_count; i++)
        noted->nth += fake.waits[i].blocks == wait->blocks && fake.waits[i].of == wait->of;
    fake.wait_count++;
    const struct weir_fake_cuda_wait *like = &fake.drop_like;
    bool alike = like->nth == noted->nth && like->of == noted->of && like->blocks == noted->blocks;
    if (!alike && fake.wait_count != fake.drop_at) return false;
    fake.dropped = record;
    if (record != NULL) record->references++;
    return true;
}

/* Failures of work on the device, after which the driver gives nothing else. */
static bool is_sticky(int result) {
    return result == 700 || result == 702 || result == 710 || (result >= 714 && result <= 719);
}

int fake_injected(void) {
    fake.calls++;
    if (fake.fail_at == 0 || fake.calls != fake.fail_at) return 0;
    fake.failed = true;
    struct fake_context *context = fake_current();
    if (context != NULL && is_sticky(fake.fail_result))
        fake_context_break(context, fake.fail_result);
    return fake.fail_result;
}

/* ---- control ---- */

static void begin(uint64_t seed, uint32_t gpu_count, uint32_t flags) {
    fake.initialized = false;
    fake.seed = fake.random = seed;
    fake.gpu_count = gpu_count < WEIR_FAKE_CUDA_GPUS_MAX ? gpu_count : WEIR_FAKE_CUDA_GPUS_MAX;
    fake.flags = flags;
    fake.order = WEIR_FAKE_CUDA_RANDOM;
    fake.version = 13000;
    fake.memory_bytes = UINT64_C(1) << 30;
    fake.bad_plans = 0;
    fake.nvtx_range_count = 0;
    fake.clock_rate = 1.0;
    fake.clock_ahead_ns = 0;
    for (uint32_t g = 0; g < WEIR_FAKE_CUDA_GPUS_MAX; g++) {
        struct fake_gpu *gpu = &fake.gpus[g];
        *gpu = (struct fake_gpu){.context = {.gpu = g}};
        gpu->reachable = (flags & WEIR_FAKE_CUDA_NO_PEERS) ? 0 : ~(1u << g);
        snprintf(gpu->pci, sizeof gpu->pci, "0000:%02X:00.0", 0x1b + g);
    }
    fake.stream_count = fake.stream_numbers = 0;
    fake.event_numbers = fake.sequence = fake.ran = 0;
    fake.kernels = NULL;
    fake.kernel_count = 0;
    fake.calls = fake.fail_at = fake.drop_at = 0;
    fake.drop_like = (struct weir_fake_cuda_wait){0};
    fake.failed = false;
    fake_nccl_lose(0);
    fake.wait_count = fake.entry_count = 0;
    fake.counts = (struct weir_fake_cuda_counts){0};
}

/* To the program's end. */
static void *run_gpus(void *unused) {
    static const struct timespec little = {.tv_nsec = 20000};
    (void)unused;
    for (;; (void)nanosleep(&little, NULL)) {
        fake_lock();
        (void)fake_go_on();
        fake_unlock();
    }
    return NULL;
}

/* What a program sees that knows nothing of the control: `weir doctor`, for one. */
__attribute__((constructor)) static void begin_by_itself(void) {
    const char *gpus = getenv("WEIR_FAKE_CUDA_GPUS"), *version = getenv("WEIR_FAKE_CUDA_VERSION");
    pthread_t runner;
    begin(1, gpus == NULL ? 2 : (uint32_t)strtoul(gpus, NULL, 10), 0);
    if (version != NULL) fake.version = (int)strtol(version, NULL, 10);
    const char *bad = getenv("WEIR_FAKE_CUDA_BAD_PLANS");
    if (bad != NULL) fake.bad_plans = (uint32_t)strtoul(bad, NULL, 10);
    if (getenv("WEIR_FAKE_CUDA_RUNS") == NULL) return;
    if (pthread_create(&runner, NULL, run_gpus, NULL) != 0) abort();
    pthread_detach(runner);
}

static void control_reset(uint64_t seed, uint32_t gpu_count, uint32_t flags) {
    fake_lock();
    fake_objects_end(NULL);
    fake_record_release(fake.dropped);
    fake.dropped = NULL;
    begin(seed, gpu_count, flags);
    fake_cuda_seed(seed);
    fake_unlock();
}

static void control_set_order(enum weir_fake_cuda_order order) {
    fake_lock();
    fake.order = order;
    fake_unlock();
}

static void control_set_version(int version) {
    fake_lock();
    fake.version = version;
    fake_unlock();
}

static void control_set_memory(uint64_t bytes_per_gpu) {
    fake_lock();
    fake.memory_bytes = bytes_per_gpu;
    fake_unlock();
}

static void control_set_peer(uint32_t gpu, uint32_t peer, bool can) {
    fake_lock();
    if (can)
        fake.gpus[gpu].reachable |= 1u << peer;
    else
        fake.gpus[gpu].reachable &= ~(1u << peer);
    fake_unlock();
}

static void control_set_pci(uint32_t gpu, const char *address) {
    fake_lock();
    snprintf(fake.gpus[gpu].pci, sizeof fake.gpus[gpu].pci, "%s", address);
    fake_unlock();
}

static void control_set_clock(double parts_per_million, uint64_t ahead_ns) {
    fake_lock();
    fake.clock_rate = 1.0 + parts_per_million * 1e-6;
    fake.clock_ahead_ns = ahead_ns;
    fake_unlock();
}

static void control_fail_call(uint64_t k, int result) {
    fake_lock();
    fake.fail_at = k == 0 ? 0 : fake.calls + k;
    fake.fail_result = result;
    fake.failed = false;
    fake_unlock();
}

static bool control_failed(void) {
    fake_lock();
    bool failed = fake.failed;
    fake_unlock();
    return failed;
}

static uint64_t control_calls_made(void) {
    fake_lock();
    uint64_t calls = fake.calls;
    fake_unlock();
    return calls;
}

static void control_drop_wait(uint64_t k) {
    fake_lock();
    fake.drop_at = k;
    fake_unlock();
}

static void control_drop_wait_like(const struct weir_fake_cuda_wait *wait) {
    fake_lock();
    fake.drop_like = wait != NULL ? *wait : (struct weir_fake_cuda_wait){0};
    fake_unlock();
}

static uint64_t control_waits_made(void) {
    fake_lock();
    uint64_t waits = fake.wait_count;
    fake_unlock();
    return waits;
}

static bool control_wait(uint64_t k, struct weir_fake_cuda_wait *wait) {
    fake_lock();
    bool there = k >= 1 && k <= fake.wait_count;
    if (there) *wait = fake.waits[k - 1];
    fake_unlock();
    return there;
}

static void control_counts(struct weir_fake_cuda_counts *counts) {
    fake_lock();
    *counts = fake.counts;
    fake_unlock();
}

static bool control_entry(uint64_t index, struct weir_fake_cuda_entry *entry) {
    fake_lock();
    bool there = index < fake.entry_count;
    if (there) *entry = fake.entries[index];
    fake_unlock();
    return there;
}

static void control_print(FILE *to) {
    fake_lock();
    for (size_t i = 0; i < fake.entry_count; i++) {
        const struct weir_fake_cuda_entry *e = &fake.entries[i];
        fprintf(to, "%5zu %-20s", i, e->call);
        if (e->stream > 0) fprintf(to, " stream %" PRIu64, e->stream);
        if (e->event > 0) fprintf(to, " event %" PRIu64, e->event);
        if (e->to != NULL) fprintf(to, " to %p", e->to);
        if (e->from != NULL) fprintf(to, " from %p", e->from);
        if (e->bytes > 0) fprintf(to, " %zu bytes", e->bytes);
        if (e->ran > 0) fprintf(to, ", ran as %" PRIu64, e->ran);
        fputc('\n', to);
    }
    fake_unlock();
}

static bool is_live(const void *memory, size_t bytes) {
    const struct fake_range *range = fake_range_of(memory);
    return range != NULL && range->live &&
           bytes <= range->bytes - (size_t)((const char *)memory - range->start);
}

static bool control_owns(uint32_t gpu, const void *memory, size_t bytes) {
    fake_lock();
    bool owns = is_live(memory, bytes) && fake_range_of(memory)->gpu == gpu;
    fake_unlock();
    return owns;
}

static bool move(void *to, const void *from, size_t bytes, const void *device) {
    fake_lock();
    bool live = is_live(device, bytes);
    if (live) {
        fake_memory_open(&fake.gpus[fake_range_of(device)->gpu].context);
        memcpy(to, from, bytes);
        fake_memory_open(NULL);
    }
    fake_unlock();
    return live;
}

static int control_pinned_by(const void *memory) {
    fake_lock();
    const struct fake_pin *pin = fake_pin_of(memory, 1);
    int thread = pin != NULL ? pin->thread : 0;
    fake_unlock();
    return thread;
}

static bool control_peek(void *host, const void *device, size_t bytes) {
    return move(host, device, bytes, device);
}

static bool control_poke(void *device, const void *host, size_t bytes) {
    return move(device, host, bytes, device);
}

int fake_launch(void *stream, const char *call, weir_fake_cuda_fn *run, const void *arguments,
                size_t bytes) {
    int result = fake_injected();
    struct fake_stream *on = fake_stream_of(stream);
    const struct fake_context *current = fake_current();
    if (result == 0 && current == NULL) result = WEIR__CUDA_INVALID_CONTEXT;
    if (result == 0) result = current->broken;
    if (result == 0 && (on == NULL || on->context != current)) result = WEIR__CUDA_INVALID_HANDLE;
    if (result != 0) return result;
    struct fake_op *op = fake_op_new(FAKE_RUN, fake_log(call, on, NULL, NULL, NULL, bytes));
    op->run = run;
    op->arguments = fake_new(bytes);
    if (bytes > 0) memcpy(op->arguments, arguments, bytes);
    fake_submit(on, op);
    return 0;
}

static int control_launch(void *stream, weir_fake_cuda_fn *run, const void *arguments,
                          size_t bytes) {
    fake_lock();
    int result = fake_launch(stream, "launch", run, arguments, bytes);
    fake_unlock();
    return result;
}

static bool control_go_on(void) {
    fake_lock();
    bool ran = fake_go_on();
    fake_unlock();
    return ran;
}

static void control_nccl_lose(uint64_t k) {
    fake_lock();
    fake_nccl_lose(k);
    fake_unlock();
}

static uint64_t control_nccl_given(void) {
    fake_lock();
    uint64_t given = fake_nccl_given();
    fake_unlock();
    return given;
}

static bool control_range(uint64_t index, struct weir_fake_cuda_range *range) {
    fake_lock();
    bool there = index < fake.nvtx_range_count;
    if (there) *range = fake.nvtx_ranges[index];
    fake_unlock();
    return there;
}

static void control_bad_plans(uint32_t count) {
    fake_lock();
    fake.bad_plans = count;
    fake_unlock();
}

static bool control_add_kernels(const struct fake_cuda_kernel *kernels, size_t count) {
    fake_lock();
    bool added = fake.kernels == NULL;
    if (added) {
        fake.kernels = kernels;
        fake.kernel_count = count;
    }
    fake_unlock();
    return added;
}

extern const struct weir_fake_cuda_control weir_fake_cuda_control;
const struct weir_fake_cuda_control weir_fake_cuda_control = {
    .reset = control_reset,
    .set_order = control_set_order,
    .set_version = control_set_version,
    .set_memory = control_set_memory,
    .set_peer = control_set_peer,
    .set_pci = control_set_pci,
    .set_clock = control_set_clock,
    .fail_call = control_fail_call,
    .failed = control_failed,
    .calls_made = control_calls_made,
    .drop_wait = control_drop_wait,
    .drop_wait_like = control_drop_wait_like,
    .waits_made = control_waits_made,
    .wait = control_wait,
    .counts = control_counts,
    .entry = control_entry,
    .print = control_print,
    .owns = control_owns,
    .pinned_by = control_pinned_by,
    .peek = control_peek,
    .poke = control_poke,
    .launch = control_launch,
    .go_on = control_go_on,
    .nccl_lose = control_nccl_lose,
    .nccl_given = control_nccl_given,
    .range = control_range,
    .bad_plans = control_bad_plans,
    .add_kernels = control_add_kernels,
};
