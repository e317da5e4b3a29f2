/* SPDX-License-Identifier: MIT */
/* Handles, and the contexts that own what is behind them. */
#include "fake_state.h"

#include <stdlib.h>

/* No address: user space ends below it, so whoever follows a handle crashes. */
#define HANDLE_TAG (UINT64_C(0xfa4e) << 48)

static _Thread_local uint64_t current;

uint64_t fake_handle_new(enum fake_kind kind, void *object) {
    if (fake.slot_count == fake.slot_capacity) {
        fake.slot_capacity = fake.slot_capacity == 0 ? 256 : fake.slot_capacity * 2;
        fake.slots = realloc(fake.slots, fake.slot_capacity * sizeof *fake.slots);
        if (fake.slots == NULL) abort();
    }
    fake.slots[fake.slot_count++] = (struct fake_slot){kind, object};
    return HANDLE_TAG | (fake.slot_base + fake.slot_count) << 4;
}

static struct fake_slot *slot_of(uint64_t handle) {
    uint64_t number = (handle & ~(UINT64_C(0xffff) << 48)) >> 4;
    if (handle >> 48 != HANDLE_TAG >> 48 || handle % 16 != 0) return NULL;
    if (number <= fake.slot_base || number > fake.slot_base + fake.slot_count) return NULL;
    return &fake.slots[number - fake.slot_base - 1];
}

void *fake_handle_find(enum fake_kind kind, uint64_t handle) {
    const struct fake_slot *slot = slot_of(handle);
    return slot != NULL && slot->kind == kind ? slot->object : NULL;
}

void fake_handle_end(uint64_t handle) {
    struct fake_slot *slot = slot_of(handle);
    if (slot != NULL) slot->object = NULL;
}

/* ---- contexts ---- */

struct fake_context *fake_current(void) {
    return fake_handle_find(FAKE_CONTEXT, current);
}

uint64_t fake_current_handle(void) {
    return current;
}

void fake_set_current(uint64_t handle) {
    current = handle;
}

struct fake_context *fake_context_retain(uint32_t gpu) {
    struct fake_context *context = &fake.gpus[gpu].context;
    if (context->retained++ == 0) {
        *context = (struct fake_context){.gpu = gpu, .retained = 1};
        context->handle = fake_handle_new(FAKE_CONTEXT, context);
        fake.counts.contexts++;
    }
    return context;
}

bool fake_context_release(uint32_t gpu) {
    struct fake_context *context = &fake.gpus[gpu].context;
    if (context->retained == 0) return false;
    if (--context->retained > 0) return true;
    fake_objects_end(context);
    fake_handle_end(context->handle);
    context->handle = 0;
    for (uint32_t g = 0; g < WEIR_FAKE_CUDA_GPUS_MAX; g++)
        fake.gpus[g].context.peers &= ~(1u << gpu);
    fake.counts.contexts--;
    return true;
}

void fake_context_break(struct fake_context *context, int result) {
    if (context->broken == 0) context->broken = result;
}

/* ---- the end of all ---- */

static bool is_of(enum fake_kind kind, void *object, const struct fake_context *context) {
    if (context == NULL) return true;
    if (kind == FAKE_EVENT) return ((struct fake_event *)object)->context == context;
    return kind == FAKE_MODULE && *(struct fake_context **)object == context;
}

static uint64_t end_handles(const struct fake_context *context) {
    uint64_t ended = 0;
    for (size_t i = 0; i < fake.slot_count; i++) {
        struct fake_slot *slot = &fake.slots[i];
        bool own = slot->kind == FAKE_EVENT || slot->kind == FAKE_MODULE;
        if (slot->object == NULL || !own || !is_of(slot->kind, slot->object, context)) continue;
        if (slot->kind == FAKE_EVENT) {
            fake_record_release(((struct fake_event *)slot->object)->record);
            fake.counts.events--;
        } else {
            fake.counts.modules--;
        }
        free(slot->object);
        slot->object = NULL;
        ended++;
    }
    return ended;
}

void fake_objects_end(struct fake_context *context) {
    uint64_t ended = fake_streams_end(context) + end_handles(context);
    for (uint32_t g = 0; g < WEIR_FAKE_CUDA_GPUS_MAX; g++) {
        if (context != NULL && context->gpu != g) continue;
        ended += fake_memory_end_all(g) + fake_pin_end_all(g);
    }
    if (context != NULL) {
        fake.counts.orphans += ended;
        return;
    }
    fake.slot_base += fake.slot_count;
    fake.slot_count = 0;
}
