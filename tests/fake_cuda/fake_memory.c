/* SPDX-License-Identifier: MIT */
/* Device memory is mapped pages that nobody may touch but work that runs, in the context whose
 * memory, or whose peer's, it is. Freed memory keeps its addresses for a while, so that a use of
 * it is known for what it is. */
#include "fake_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { POISON = 0xff }; /* every float type's NaN */

/* ---- device memory ---- */

struct fake_range *fake_range_of(const void *address) {
    for (struct fake_range *range = fake.ranges; range != NULL; range = range->next) {
        uintptr_t offset = (uintptr_t)address - (uintptr_t)range->start;
        if (offset < range->bytes) return range;
    }
    return NULL;
}

static void set_open(struct fake_range *range, bool open) {
    if (range->open == open || (range->managed && range->live)) return;
    if (mprotect(range->start, range->mapped_bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
        abort();
    range->open = open;
}

void fake_memory_open(const struct fake_context *context) {
    int gpu = context == NULL ? -1 : (int)context->gpu;
    if (fake.open_gpu == gpu || (fake.flags & WEIR_FAKE_CUDA_UNGUARDED)) return;
    uint32_t mask = context == NULL ? 0 : context->peers | 1u << context->gpu;
    for (struct fake_range *range = fake.ranges; range != NULL; range = range->next)
        set_open(range, range->live && (mask >> range->gpu & 1u));
    fake.open_gpu = gpu;
}

int fake_memory_new(uint32_t gpu, size_t bytes, bool managed, uint64_t *address) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (bytes == 0) return WEIR__CUDA_INVALID_VALUE;
    if (bytes > fake.memory_bytes || fake.gpus[gpu].memory_used > fake.memory_bytes - bytes)
        return WEIR__CUDA_OUT_OF_MEMORY;
    struct fake_range *range = fake_new(sizeof *range);
    range->gpu = gpu;
    range->managed = managed;
    range->bytes = bytes;
    range->mapped_bytes = (bytes + page - 1) / page * page;
    range->start =
        mmap(NULL, range->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (range->start == MAP_FAILED) abort();
    range->live = range->open = true;
    memset(range->start, POISON, range->mapped_bytes);
    if (!(fake.flags & WEIR_FAKE_CUDA_UNGUARDED)) set_open(range, false);
    fake.open_gpu = -1; /* what is open does not hold for this one */
    range->next = fake.ranges;
    fake.ranges = range;
    fake.gpus[gpu].memory_used += bytes;
    fake.counts.allocations++;
    fake.counts.bytes += bytes;
    *address = (uint64_t)(uintptr_t)range->start;
    return 0;
}

static void forget(struct fake_range **at) {
    struct fake_range *range = *at;
    *at = range->next;
    if (!range->live) fake.quarantined -= range->mapped_bytes;
    munmap(range->start, range->mapped_bytes);
    free(range);
}

/* The oldest stands last. */
static void forget_oldest(void) {
    struct fake_range **oldest = NULL;
    for (struct fake_range **at = &fake.ranges; *at != NULL; at = &(*at)->next)
        if (!(*at)->live) oldest = at;
    if (oldest != NULL) forget(oldest);
}

static void end_range(struct fake_range *range) {
    set_open(range, true);
    memset(range->start, POISON, range->mapped_bytes);
    range->live = false;
    if (!(fake.flags & WEIR_FAKE_CUDA_UNGUARDED)) set_open(range, false);
    fake.gpus[range->gpu].memory_used -= range->bytes;
    fake.counts.allocations--;
    fake.counts.bytes -= range->bytes;
    fake.quarantined += range->mapped_bytes;
}

bool fake_memory_end(uint64_t address) {
    struct fake_range *range = fake_range_of((const void *)(uintptr_t)address);
    if (range == NULL || !range->live || (uint64_t)(uintptr_t)range->start != address) return false;
    end_range(range);
    while (fake.quarantined > FAKE_QUARANTINE_BYTES) forget_oldest();
    return true;
}

uint64_t fake_memory_end_all(uint32_t gpu) {
    uint64_t ended = 0;
    struct fake_range **at = &fake.ranges;
    while (*at != NULL) {
        if ((*at)->gpu != gpu) {
            at = &(*at)->next;
            continue;
        }
        if ((*at)->live) {
            end_range(*at);
            ended++;
        }
        forget(at);
    }
    return ended;
}

/* ---- pinned memory ---- */

/* Whole pages are pinned: what shares one overlaps. */
static bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t a_first = (uintptr_t)a / page, a_last = ((uintptr_t)a + a_bytes - 1) / page;
    uintptr_t b_first = (uintptr_t)b / page, b_last = ((uintptr_t)b + b_bytes - 1) / page;
    return a_first <= b_last && b_first <= a_last;
}

static bool is_cold(const char *start, size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)start / page * page;
    size_t count = ((uintptr_t)start + bytes - first + page - 1) / page;
    unsigned char *there = fake_new(count);
    bool cold = mincore((void *)first, count * page, there) != 0;
    for (size_t i = 0; i < count; i++) cold |= (there[i] & 1) == 0;
    free(there);
    return cold;
}

int fake_pin_new(uint32_t gpu, const void *start, size_t bytes) {
    if (start == NULL || bytes == 0 || fake_range_of(start) != NULL)
        return WEIR__CUDA_INVALID_VALUE;
    for (struct fake_pin *pin = fake.pins; pin != NULL; pin = pin->next)
        if (overlap(pin->start, pin->bytes, start, bytes))
            return WEIR__CUDA_HOST_MEMORY_ALREADY_REGISTERED;
    struct fake_pin *pin = fake_new(sizeof *pin);
    *pin = (struct fake_pin){fake.pins, start, bytes, gpu, gettid()};
    fake.pins = pin;
    fake.counts.cold_pins += is_cold(start, bytes);
    fake.counts.pins++;
    return 0;
}

static void unpin(struct fake_pin **at) {
    struct fake_pin *pin = *at;
    *at = pin->next;
    free(pin);
    fake.counts.pins--;
}

bool fake_pin_end(const void *start) {
    for (struct fake_pin **at = &fake.pins; *at != NULL; at = &(*at)->next) {
        if ((*at)->start != start) continue;
        unpin(at);
        return true;
    }
    return false;
}

uint64_t fake_pin_end_all(uint32_t gpu) {
    uint64_t ended = 0;
    struct fake_pin **at = &fake.pins;
    while (*at != NULL) {
        if ((*at)->gpu == gpu) {
            unpin(at);
            ended++;
        } else {
            at = &(*at)->next;
        }
    }
    return ended;
}

const struct fake_pin *fake_pin_of(const void *start, size_t bytes) {
    for (struct fake_pin *pin = fake.pins; pin != NULL; pin = pin->next) {
        uintptr_t offset = (uintptr_t)start - (uintptr_t)pin->start;
        if (offset < pin->bytes && bytes <= pin->bytes - offset) return pin;
    }
    return NULL;
}

bool fake_is_pinned(const void *start, size_t bytes) {
    return fake_pin_of(start, bytes) != NULL;
}

/* ---- what an address is ---- */

static enum fake_place forbid(const char *what, const char *why, const void *start, size_t bytes) {
    fake_fault("%s: [%p, +%zu) %s", what, start, bytes, why);
    return FAKE_FORBIDDEN;
}

enum fake_place fake_place_of(const struct fake_context *context, const void *start, size_t bytes,
                              const char *what) {
    const struct fake_range *range = fake_range_of(start);
    if (range != NULL) {
        size_t offset = (size_t)((const char *)start - range->start);
        if (!range->live) return forbid(what, "was freed", start, bytes);
        if (bytes > range->bytes - offset)
            return forbid(what, "goes over the end of its allocation", start, bytes);
        bool foreign = range->gpu != context->gpu && !range->managed;
        if (foreign && !(context->peers >> range->gpu & 1u))
            return forbid(what, "is a GPU's without peer access", start, bytes);
        return FAKE_DEVICE;
    }
    if (fake_range_of((const char *)start + bytes - 1) != NULL)
        return forbid(what, "begins before an allocation", start, bytes);
    if (fake_is_pinned(start, bytes)) return FAKE_PINNED;
    if (fake.flags & WEIR_FAKE_CUDA_PAGEABLE) return FAKE_PAGEABLE;
    return forbid(what, "is host memory that is not pinned", start, bytes);
}
