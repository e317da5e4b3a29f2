/* SPDX-License-Identifier: MIT */
/*
 * Blocks of fibers on one host thread, and the twins of what kernels/platform.cuh does in PTX.
 *
 * A fiber is a stack. It takes one thread of the block after the other until one has to wait; then
 * the scheduler, which is the caller, starts another fiber or goes on with one whose wait is over.
 * So a block without barriers costs two switches, however many threads it has.
 */
#include "emulation.h"
#include "fiber.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

extern "C" char __start_weir_shared[], __stop_weir_shared[];

namespace emulation {

enum {
    THREADS_MAX = 1024,
    WARP = 32,
    STACK_BYTES = 128 * 1024,
    COPIES_MAX = 64,         /* of a thread, under way */
    SHARED_MAX = 228 * 1024, /* a multiprocessor's, from sm_90 on */
    POISON = 0xA5
};

/* So that the section is there even without kernels that share. */
__attribute__((used)) __shared__ char first_shared;

place here;

namespace {

enum state { RUNNING, READY, WAITING, ENDED }; /* RUNNING: or not begun */

struct fiber {
    fiber_context context;
    char *stack;
    uint32_t thread; /* which it runs, if busy */
    bool busy;
};

/* Of 16 bytes. */
struct copy {
    void *to;
    const void *from;
    bool there;
};

/* A thread of the block that runs. */
struct thread {
    state state;
    operation operation; /* if waiting */
    uint32_t mask;       /* of a warp's operation */
    uint64_t value;      /* given to an exchange */
    fiber *fiber;
    uint32_t copy_count; /* under way */
};

/* Protected by `lock`, which whoever runs a kernel holds. */
struct {
    pthread_mutex_t lock;
    uint64_t random;
    fiber fibers[THREADS_MAX];
    thread threads[THREADS_MAX];
    copy copies[THREADS_MAX][COPIES_MAX];
    uint32_t order[THREADS_MAX]; /* in which threads start */
    uint32_t count, started, ended;
    uint32_t begun; /* fibers that have a thread of this block */
    fiber *current;
    fiber_context scheduler;
    char *shared_end; /* where the page that is none begins */
    uint32_t shared_bytes;
    void (*call)(void **arguments);
    void **arguments;
    bool failed;
} block = {PTHREAD_MUTEX_INITIALIZER};

thread_local char fault[192];

/* ---- faults ---- */

[[noreturn]] void leave_for_good() {
    fiber_switch(&block.current->context, &block.scheduler);
    abort(); /* nobody comes back to a block that failed */
}

__attribute__((format(printf, 1, 2))) void note_fault(const char *format, ...) {
    block.failed = true;
    int length = snprintf(fault, sizeof fault, "block (%u, %u, %u): ", here.block.x, here.block.y,
                          here.block.z);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(fault + length, sizeof fault - static_cast<size_t>(length), format, arguments);
    va_end(arguments);
}

const char *name_of(operation operation) {
    static const char *const names[] = {"__syncthreads", "__syncwarp", "a shuffle", "a vote",
                                        "a product"};
    return names[operation];
}

/* Everyone waits, or has ended, and nothing can bring them on. */
void note_deadlock() {
    uint32_t first = 0, waiting = 0;
    for (uint32_t t = block.count; t-- > 0;) {
        if (block.threads[t].state != WAITING) continue;
        first = t;
        waiting++;
    }
    note_fault("thread %u waits in %s, with %u others in barriers, for threads that do not come: "
               "%u of %u have ended",
               first, name_of(block.threads[first].operation), waiting - 1, block.ended,
               block.count);
}

/* ---- order ---- */

uint32_t random_below(uint32_t bound) {
    block.random += 0x9e3779b97f4a7c15u;
    uint64_t z = block.random;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return static_cast<uint32_t>(((z >> 32) * bound) >> 32);
}

void shuffle_order(uint32_t *order, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) order[i] = i;
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t j = random_below(i), held = order[i - 1];
        order[i - 1] = order[j];
        order[j] = held;
    }
}

/* ---- fibers ---- */

void enter(fiber *fiber, uint32_t thread) {
    fiber->thread = thread;
    block.current = fiber;
    block.threads[thread].fiber = fiber;
    here.rank = thread;
    here.thread = {thread % here.threads.x, thread / here.threads.x % here.threads.y,
                   thread / here.threads.x / here.threads.y};
}

/* What a fiber does from its first switch on; it has nowhere to return to. */
void run_threads() {
    for (;;) {
        fiber *self = block.current;
        while (block.started < block.count) {
            const uint32_t thread = block.order[block.started++];
            enter(self, thread);
            block.call(block.arguments);
            if (block.threads[thread].copy_count > 0)
                note_fault("thread %u ends with %u copies under way", thread,
                           block.threads[thread].copy_count);
            block.threads[thread].state = ENDED;
            block.ended++;
        }
        self->busy = false;
        fiber_switch(&self->context, &block.scheduler);
    }
}

void *map(size_t bytes) {
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

/* A stack above a page that crashes. Kept for good: the next block has as many threads. */
void make_stack(fiber *fiber) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    char *memory = static_cast<char *>(map(page + STACK_BYTES));
    if (mprotect(memory, page, PROT_NONE) != 0) abort();
    fiber->stack = memory + page;
}

/* After a block that failed, fibers stand somewhere inside of it: all begin anew. */
void reset_fiber(fiber *fiber) {
    if (fiber->stack == nullptr) make_stack(fiber);
    fiber_begin(&fiber->context, fiber->stack, STACK_BYTES, run_threads);
}

void switch_to(fiber *fiber) {
    block.current = fiber;
    fiber->busy = true;
    fiber_switch(&block.scheduler, &fiber->context);
}

/* ---- one block ---- */

/* None of the block's other fibers is free as long as there are threads to start. */
void start_fiber() {
    if (block.begun == block.count) abort();
    fiber *fiber = &block.fibers[block.begun++];
    if (fiber->stack == nullptr) reset_fiber(fiber);
    switch_to(fiber);
}

/* Goes on with one of the threads whose wait is over; false if there is none. */
bool resume_one() {
    const uint32_t from = random_below(block.count);
    for (uint32_t i = 0; i < block.count; i++) {
        const uint32_t t = block.order[(from + i) % block.count];
        if (block.threads[t].state != READY) continue;
        block.threads[t].state = RUNNING;
        enter(block.threads[t].fiber, t);
        switch_to(block.threads[t].fiber);
        return true;
    }
    return false;
}

void run_block() {
    memset(__start_weir_shared, POISON,
           static_cast<size_t>(__stop_weir_shared - __start_weir_shared));
    memset(block.shared_end - block.shared_bytes, POISON, block.shared_bytes);
    memset(block.threads, 0, block.count * sizeof block.threads[0]);
    shuffle_order(block.order, block.count);
    block.started = block.ended = block.begun = 0;
    while (!block.failed && block.ended < block.count) {
        if (block.started < block.count)
            start_fiber();
        else if (!resume_one())
            note_deadlock();
    }
}

/* ---- one launch ---- */

/* What every GPU can launch. */
bool is_launchable(const uint32_t blocks[3], const uint32_t threads[3], uint32_t shared_bytes) {
    const uint64_t count = static_cast<uint64_t>(threads[0]) * threads[1] * threads[2];
    return count > 0 && count <= THREADS_MAX && threads[2] <= 64 && blocks[0] > 0 &&
           blocks[0] <= INT32_MAX && blocks[1] > 0 && blocks[1] <= UINT16_MAX && blocks[2] > 0 &&
           blocks[2] <= UINT16_MAX && shared_bytes <= SHARED_MAX;
}

bool prepare(const uint32_t blocks[3], const uint32_t threads[3], uint32_t shared_bytes) {
    fault[0] = '\0';
    block.failed = false;
    here.block = {0, 0, 0};
    if (!is_launchable(blocks, threads, shared_bytes)) {
        note_fault("%u x %u x %u blocks of %u x %u x %u threads with %u bytes of shared memory "
                   "cannot be launched",
                   blocks[0], blocks[1], blocks[2], threads[0], threads[1], threads[2],
                   shared_bytes);
        return false;
    }
    block.count = threads[0] * threads[1] * threads[2];
    block.shared_bytes = (shared_bytes + 15) / 16 * 16;
    if (block.shared_end != nullptr) return true;
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t whole = (SHARED_MAX + page - 1) / page * page;
    char *memory = static_cast<char *>(map(whole + page));
    if (mprotect(memory + whole, page, PROT_NONE) != 0) abort();
    block.shared_end = memory + whole;
    return true;
}

void clear_fibers() {
    for (uint32_t f = 0; f < THREADS_MAX; f++) {
        if (!block.fibers[f].busy) continue;
        block.fibers[f].busy = false;
        reset_fiber(&block.fibers[f]);
    }
}

uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

void run_blocks(const uint32_t blocks[3]) {
    const uint64_t count = static_cast<uint64_t>(blocks[0]) * blocks[1] * blocks[2];
    const uint32_t bound = count < UINT32_MAX ? static_cast<uint32_t>(count) : UINT32_MAX;
    uint64_t step = 1; /* without a divisor in common with the count it visits every block once */
    do {
        step = 1 + random_below(bound);
    } while (common_divisor(count, step) != 1);
    uint64_t at = random_below(bound);
    for (uint64_t i = 0; i < count && !block.failed; i++, at = (at + step) % count) {
        here.block = {static_cast<uint32_t>(at % blocks[0]),
                      static_cast<uint32_t>(at / blocks[0] % blocks[1]),
                      static_cast<uint32_t>(at / blocks[0] / blocks[1])};
        run_block();
    }
}

/* ---- waiting ---- */

void wait() {
    thread *self = &block.threads[here.rank];
    fiber *own = self->fiber;
    fiber_switch(&own->context, &block.scheduler);
}

void release(uint32_t thread) {
    block.threads[thread].state = READY;
}

void start_waiting(operation operation, uint32_t mask) {
    thread *self = &block.threads[here.rank];
    self->state = WAITING;
    self->operation = operation;
    self->mask = mask;
}

bool waits_here(const thread &thread, operation operation, uint32_t mask) {
    return thread.state == WAITING && thread.operation == operation && thread.mask == mask;
}

void check_mask(operation operation, uint32_t mask, uint32_t first) {
    const uint32_t lanes = block.count - first < WARP ? block.count - first : WARP;
    const uint32_t there = lanes == WARP ? 0xffffffffu : (1u << lanes) - 1;
    if ((mask >> here.rank % WARP & 1) == 0)
        note_fault("thread %u is not in its own mask 0x%08x in %s", here.rank, mask,
                   name_of(operation));
    else if ((mask & ~there) != 0)
        note_fault("thread %u: the mask 0x%08x in %s names lanes that are not there", here.rank,
                   mask, name_of(operation));
    if (block.failed) leave_for_good();
}

} // namespace

void wait_for_block() {
    start_waiting(BARRIER, 0);
    for (uint32_t t = 0; t < block.count; t++)
        if (!waits_here(block.threads[t], BARRIER, 0)) return wait();
    for (uint32_t t = 0; t < block.count; t++) release(t);
    wait(); /* the last to come need not be the first to go on */
}

void wait_for_warp(operation operation, uint32_t mask) {
    const uint32_t first = here.rank / WARP * WARP;
    check_mask(operation, mask, first);
    start_waiting(operation, mask);
    for (uint32_t lane = 0; lane < WARP; lane++)
        if ((mask >> lane & 1) != 0 && !waits_here(block.threads[first + lane], operation, mask))
            return wait();
    for (uint32_t lane = 0; lane < WARP; lane++)
        if ((mask >> lane & 1) != 0) release(first + lane);
    wait();
}

uint64_t exchange(operation operation, uint32_t mask, uint64_t value, uint32_t source) {
    const uint32_t self = here.rank, from = self / WARP * WARP + source;
    block.threads[self].value = value;
    wait_for_warp(operation, mask);
    if ((mask >> source & 1) == 0) {
        note_fault("thread %u reads lane %u, which is not in the mask 0x%08x of %s", self, source,
                   mask, name_of(operation));
        leave_for_good();
    }
    const uint64_t result = block.threads[from].value;
    wait_for_warp(operation, mask); /* all have read before anyone gives the next value */
    return result;
}

void meet(operation operation, const void *own, const void *(&all)[32]) {
    const uint32_t first = here.rank / WARP * WARP;
    block.threads[here.rank].value = reinterpret_cast<uintptr_t>(own);
    wait_for_warp(operation, 0xffffffffu);
    for (uint32_t lane = 0; lane < WARP; lane++)
        all[lane] = reinterpret_cast<const void *>(block.threads[first + lane].value);
}

void part(operation operation) {
    wait_for_warp(operation, 0xffffffffu);
}

void copy_later(void *to, const void *from, bool there) {
    thread *self = &block.threads[here.rank];
    if (self->copy_count == COPIES_MAX) {
        note_fault("thread %u has more than %d copies under way", here.rank, COPIES_MAX);
        leave_for_good();
    }
    block.copies[here.rank][self->copy_count++] = {to, from, there};
}

void finish_copies() {
    thread *self = &block.threads[here.rank];
    for (uint32_t i = 0; i < self->copy_count; i++) {
        const copy &copy = block.copies[here.rank][i];
        *static_cast<uint4 *>(copy.to) =
            copy.there ? *static_cast<const uint4 *>(copy.from) : uint4(0, 0, 0, 0);
    }
    self->copy_count = 0;
}

void *dynamic_shared() {
    return block.shared_end - block.shared_bytes;
}

void launch(const uint32_t blocks[3], const uint32_t threads[3], uint32_t shared_bytes,
            void (*call)(void **arguments), void **arguments) {
    pthread_mutex_lock(&block.lock);
    block.call = call;
    block.arguments = arguments;
    if (prepare(blocks, threads, shared_bytes)) {
        here.threads = {threads[0], threads[1], threads[2]};
        here.blocks = {blocks[0], blocks[1], blocks[2]};
        run_blocks(blocks);
        if (block.failed) clear_fibers();
    }
    pthread_mutex_unlock(&block.lock);
}

} // namespace emulation

uint32_t __ballot_sync(uint32_t mask, bool predicate) {
    uint32_t ballot = 0;
    for (uint32_t lane = 0; lane < 32; lane++) {
        if ((mask >> lane & 1) == 0) continue;
        if (emulation::exchange(emulation::VOTE, mask, predicate, lane) != 0) ballot |= 1u << lane;
    }
    return ballot;
}

void fake_cuda_seed(uint64_t seed) {
    pthread_mutex_lock(&emulation::block.lock);
    emulation::block.random = seed;
    pthread_mutex_unlock(&emulation::block.lock);
}

void fake_cuda_shape(uint32_t blocks[3], uint32_t threads[3]) {
    pthread_mutex_lock(&emulation::block.lock);
    memcpy(blocks, &emulation::here.blocks, sizeof emulation::here.blocks);
    memcpy(threads, &emulation::here.threads, sizeof emulation::here.threads);
    pthread_mutex_unlock(&emulation::block.lock);
}

const char *fake_cuda_fault(void) {
    static thread_local char text[sizeof emulation::fault];
    if (emulation::fault[0] == '\0') return nullptr;
    memcpy(text, emulation::fault, sizeof text);
    emulation::fault[0] = '\0';
    return text;
}

/* ---- numbers ---- */

/* `value` without its lowest `bits` bits, to nearest even. */
static uint64_t round_off(uint64_t value, uint32_t bits) {
    const uint64_t half = uint64_t(1) << (bits - 1), kept = value >> bits;
    const uint64_t rest = value & ((half << 1) - 1);
    return kept + (rest > half || (rest == half && (kept & 1) != 0));
}

uint16_t bf16_from_f32(float value) {
    if (isnan(value)) return 0x7fff;
    return static_cast<uint16_t>(round_off(bits_from_f32(value), 16));
}

uint16_t f16_from_f32(float value) {
    if (isnan(value)) return 0x7fff;
    const uint32_t bits = bits_from_f32(value), sign = bits >> 31 << 15;
    const int32_t exponent = static_cast<int32_t>(bits >> 23 & 0xff) - 127;
    const uint64_t digits = (bits & 0x7fffff) | 0x800000; /* of 2^(exponent - 23) */
    uint64_t result;
    if (exponent > 15)
        result = 0x7c00;
    else if (exponent >= -14) /* the digits' top bit counts one exponent up; so may rounding */
        result = (static_cast<uint64_t>(exponent + 14) << 10) + round_off(digits, 13);
    else if (exponent >= -25)
        result = round_off(digits, static_cast<uint32_t>(-1 - exponent));
    else
        result = 0;
    return static_cast<uint16_t>(sign | result);
}

float f32_from_f16(uint16_t bits) {
    const uint32_t exponent = bits >> 10 & 0x1f, digits = bits & 0x3ff;
    const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == 0x1f) return digits != 0 ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexpf(static_cast<float>(digits), -24);
    return sign * ldexpf(static_cast<float>(digits | 0x400), static_cast<int>(exponent) - 25);
}
