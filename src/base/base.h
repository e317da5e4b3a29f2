/* SPDX-License-Identifier: MIT */
/**
 * What every module of the engine stands on: the allocator's short forms, checked arithmetic,
 * bounded text, time, and waiting. Internal; statuses as in weir.h.
 */
#ifndef WEIR_BASE_INSIDE_H
#define WEIR_BASE_INSIDE_H

#include "weir.h"

#include <assert.h>
#include <stdarg.h>
#include <stdatomic.h>

#define WEIR__CACHE_LINE 64u
#define WEIR__HUGE_PAGE (2u << 20)
#define WEIR__COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* ---- memory ---- */

/** `count` elements of `bytes` each, zeroed, 64-byte aligned; NULL when out of memory or when the
 * product overflows. `allocator` NULL is the default one. Zero elements give a valid pointer. */
void *weir__acquire(const struct weir_allocator *allocator, size_t count, size_t bytes);
/** Gives back what weir__acquire(allocator, count, bytes) gave; NULL does nothing. */
void weir__release(const struct weir_allocator *allocator, void *memory, size_t count,
                   size_t bytes);
/** A copy of `text` (NULL gives NULL with *out = NULL, WEIR_OK). */
int weir__text_copy(const struct weir_allocator *allocator, const char *text, char **out);
void weir__text_release(const struct weir_allocator *allocator, char *text);

/* ---- checked arithmetic: false (and *out untouched) on overflow ---- */

bool weir__add(size_t a, size_t b, size_t *out);
bool weir__multiply(size_t a, size_t b, size_t *out);
/** Up to the next multiple of `alignment`, a power of two. */
bool weir__round_up(size_t a, size_t alignment, size_t *out);
/** Elements of one row of a border tensor, and bytes of `rows` rows; WEIR_ERR_OVERFLOW, or
 * WEIR_ERR_SHAPE for a rank above WEIR_RANK_MAX, a size < 1 or an unknown dtype. */
int weir__tensor_bytes(const struct weir_tensor *tensor, int64_t rows, size_t *bytes);
/** Number `index` of a floating-point dtype; `numbers` need not be aligned. */
double weir__number_at(enum weir_dtype dtype, const void *numbers, uint64_t index);
/** "f32 [3, 32, 32]" into `text`, cut if need be. Returns `text`. */
const char *weir__tensor_text(const struct weir_tensor *tensor, char *text, size_t capacity);
/** Same dtype, shape and differentiability. */
bool weir__tensor_equal(const struct weir_tensor *a, const struct weir_tensor *b);

/* ---- hashes ---- */

/** FNV-1a of `bytes` bytes, going on from `hash`, which begins with this. It tells different things
 * apart, not against somebody who means to deceive. */
#define WEIR__HASH_BEGIN UINT64_C(0xcbf29ce484222325)
uint64_t weir__hash(uint64_t hash, const void *data, size_t bytes);
/** XXH64 with seed 0 (Collet, github.com/Cyan4973/xxHash), as `xxhsum -H64` prints it: for what is
 * large, at some bytes per cycle; no more against deceit than the other. */
uint64_t weir__xxh64(const void *data, size_t bytes);

/* ---- errors and time ---- */

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
/** Fills status and message (visible as weir__text_visible makes it, cut at its size), leaving the
 * place alone; returns `status`. `error` may be NULL. */
int weir__fail(struct weir_error *error, int status, const char *format, ...);

/** Nothing failed, at no place. Accepts NULL. */
void weir__error_clear(struct weir_error *error);

/** Copies `from` into `to`, cut at `capacity` >= 1 between characters, as one line that does
 * nothing to a terminal and is UTF-8: control characters (newline, escape, delete, C1) and bytes
 * that are no UTF-8 are written like \x1b, \n, \r or \t. What it wrote it leaves alone. Returns
 * `to`. */
char *weir__text_visible(const char *from, char *to, size_t capacity);

/** Whether `text` ends so, as a file's name does with ".csv". */
bool weir__text_ends(const char *text, const char *end);

/** The one of `names` (NULL-terminated) that `text` may have been meant to be: the nearest in
 * insertions, deletions, replacements and swaps of neighbours, if it is near; else NULL. */
const char *weir__nearest(const char *text, const char *const *names);
/** That distance; texts are compared up to 63 bytes. */
uint32_t weir__edit_distance(const char *a, const char *b);

/** What a counted word ends with: "%u worker%s", "%u micro-batch%s". */
static inline const char *weir__s(uint64_t count) {
    return count == 1 ? "" : "s";
}
/** The same before "too few": "%u byte%s too few". */
static inline const char *weir__s_are(uint64_t count) {
    return count == 1 ? " is" : "s are";
}
static inline const char *weir__es(uint64_t count) {
    return count == 1 ? "" : "es";
}

/** Whether a struct from a caller keeps the rule for `size` (weir_base.h); else it is refused with
 * WEIR__BEGIN_WITH, which takes the initialiser's name. */
#define weir__is_sized(given) ((given) != NULL && (given)->size == sizeof *(given))
#define WEIR__BEGIN_WITH                                                                           \
    "the member `size` is not this library's: begin with %s, and compile with its headers"

/** weir_faults_add for a function that is printf-like itself. */
void weir__faults_add_list(struct weir_faults *faults, const char *format, va_list arguments);

/** CLOCK_MONOTONIC in nanoseconds. */
uint64_t weir__now_ns(void);

/* ---- waiting: spin first, then futex ---- */

/**
 * A counter that one thread advances and others wait for. On its own cache line. The writer's
 * stores before weir__gate_advance are seen by a reader that saw the new value. Values wrap:
 * "reached" means (int32_t)(value - wanted) >= 0.
 */
struct weir__gate {
    _Alignas(64) _Atomic uint32_t value; /**< written by its owner only */
    _Atomic uint32_t sleepers;           /**< threads in, or on their way into, the futex */
};

static inline bool weir__gate_reached(struct weir__gate *gate, uint32_t wanted) {
    uint32_t now = atomic_load_explicit(&gate->value, memory_order_acquire);
    return (int32_t)(now - wanted) >= 0;
}
/** Publishes `value` and wakes sleepers, if any. Called by the owner only; the gate must outlive
 * the call, which looks at it once more after the value is out. */
void weir__gate_advance(struct weir__gate *gate, uint32_t value);
/** Waits until `wanted` is reached: spins up to `spin_ns`, then sleeps in the futex. `timeout_ns` 0
 * is for ever; returns false when it ran out. */
bool weir__gate_wait(struct weir__gate *gate, uint32_t wanted, uint64_t spin_ns,
                     uint64_t timeout_ns);

/* ---- random numbers ---- */

/** Philox4x32-10 (Salmon et al., SC 2011): four random words from a counter and a key. */
void weir__philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/** The project's counter, whose four words are (group, row, op, mini_batch), keyed by `seed`:
 * `mini_batch` is the number since the beginning (its low 32 bits), `op` the layer's index << 8 |
 * the op's index within the layer, `row` the row's place in the mini-batch, `group` element / 4 in
 * PyTorch's order of dimensions. So a random number depends on nothing else. */
void weir__philox_words(uint64_t seed, uint64_t mini_batch, uint32_t op, uint32_t row,
                        uint32_t group, uint32_t out[4]);

#endif
