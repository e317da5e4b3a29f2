/* SPDX-License-Identifier: MIT */
/* A ring of batches between two threads. Two gates hand them over: `filled` counts what the reader
 * has finished, `given_back` what the taker no longer needs. */
#include "data/prefetch.h"

#include <pthread.h>

enum { DEPTH_MIN = 2, DEPTH_MAX = 4 };

/* The reader's until `filled` has passed it, then the taker's until `given_back` has. */
struct slot {
    void *input, *target;
    int status;
    struct weir_error error;
};

struct weir__prefetch {
    struct weir__gate filled;     /* advanced by the reader */
    struct weir__gate given_back; /* advanced by the taker */
    _Atomic bool stop;            /* set by the taker before it advances given_back */
    struct weir__prefetch_options options;
    struct slot slots[DEPTH_MAX];
    uint64_t taken; /* batches that next has handed out; the taker's */
    pthread_t thread;
};

/* ---- the reader ---- */

/* Gates count to 2^32 and begin again: only differences up to the depth are looked at. */
static void wait_for_room(struct weir__prefetch *prefetch, uint64_t batch) {
    uint32_t wanted = (uint32_t)(batch - prefetch->options.depth + 1);
    weir__gate_wait(&prefetch->given_back, wanted, 0, 0);
}

static void *read_ahead(void *context) {
    struct weir__prefetch *prefetch = context;
    const struct weir__prefetch_options *options = &prefetch->options;
    for (uint64_t batch = 0;; batch++) {
        wait_for_room(prefetch, batch);
        if (atomic_load(&prefetch->stop)) {
            break;
        }
        struct slot *slot = &prefetch->slots[batch % options->depth];
        slot->error = (struct weir_error){.status = WEIR_OK, .stage = -1, .micro_batch = -1};
        int status = options->fill(options->context, options->first + batch, slot->input,
                                   slot->target, &slot->error);
        slot->status = status;
        /* from here on the slot is the taker's */
        weir__gate_advance(&prefetch->filled, (uint32_t)(batch + 1));
        if (status) {
            break;
        }
    }
    return NULL;
}

/* ---- the taker ---- */

static void release_slots(struct weir__prefetch *prefetch) {
    const struct weir__prefetch_options *options = &prefetch->options;
    for (uint32_t i = 0; i < options->depth; i++) {
        weir__release(options->allocator, prefetch->slots[i].input, options->input_bytes, 1);
        weir__release(options->allocator, prefetch->slots[i].target, options->target_bytes, 1);
    }
}

static bool acquire_slots(struct weir__prefetch *prefetch) {
    const struct weir__prefetch_options *options = &prefetch->options;
    for (uint32_t i = 0; i < options->depth; i++) {
        struct slot *slot = &prefetch->slots[i];
        slot->input = weir__acquire(options->allocator, options->input_bytes, 1);
        slot->target = weir__acquire(options->allocator, options->target_bytes, 1);
        if (!slot->input || !slot->target) {
            return false;
        }
    }
    return true;
}

int weir__prefetch_new(const struct weir__prefetch_options *options, struct weir_error *error,
                       struct weir__prefetch **prefetch) {
    assert(options->depth >= DEPTH_MIN && options->depth <= DEPTH_MAX);
    assert(options->fill != NULL);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    struct weir__prefetch *made = weir__acquire(options->allocator, 1, sizeof(*made));
    if (!made) {
        return weir__fail(error, status, "out of memory to read ahead");
    }
    made->options = *options;
    if (!acquire_slots(made)) {
        weir__fail(error, status, "out of memory to read %u mini-batch%s of %zu bytes ahead",
                   options->depth, weir__es(options->depth),
                   options->input_bytes + options->target_bytes);
        goto fail_slots;
    }
    if (pthread_create(&made->thread, NULL, read_ahead, made) != 0) {
        status = weir__fail(error, WEIR_ERR_SYSTEM, "no thread can be made to read ahead");
        goto fail_slots;
    }
    *prefetch = made;
    return WEIR_OK;

fail_slots:
    release_slots(made);
    weir__release(options->allocator, made, 1, sizeof(*made));
    return status;
}

void weir__prefetch_destroy(struct weir__prefetch *prefetch) {
    if (!prefetch) {
        return;
    }
    atomic_store(&prefetch->stop, true);
    /* room for everything: the reader wakes, and sees that it is to stop */
    weir__gate_advance(&prefetch->given_back, (uint32_t)(prefetch->taken + DEPTH_MAX));
    pthread_join(prefetch->thread, NULL);
    const struct weir_allocator *allocator = prefetch->options.allocator;
    release_slots(prefetch);
    weir__release(allocator, prefetch, 1, sizeof(*prefetch));
}

int weir__prefetch_next(struct weir__prefetch *prefetch, struct weir__batch *batch,
                        struct weir_error *error) {
    weir__gate_advance(&prefetch->given_back, (uint32_t)prefetch->taken);
    weir__gate_wait(&prefetch->filled, (uint32_t)(prefetch->taken + 1), 0, 0);
    const struct slot *slot = &prefetch->slots[prefetch->taken % prefetch->options.depth];
    if (slot->status) {
        if (error) {
            *error = slot->error;
            error->status = slot->status;
        }
        return slot->status;
    }
    *batch =
        (struct weir__batch){prefetch->options.first + prefetch->taken, slot->input, slot->target};
    prefetch->taken++;
    return WEIR_OK;
}
