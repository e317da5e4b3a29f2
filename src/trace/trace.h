/* SPDX-License-Identifier: MIT */
/**
 * What the writers of traces share: a worker's kept events by number, and text that goes out in
 * pieces through a weir_write_fn. Nothing here allocates, so that a trace can be written when
 * memory has run out. Not during a step: the events are the workers' then.
 */
#ifndef WEIR_TRACE_H
#define WEIR_TRACE_H

#include "pipe/run/pipe.h"

/* ---- events ---- */

/** How many events the worker's ring holds. */
uint32_t weir__trace_count(const struct weir__worker *worker);
/** The kept event `index`, 0 is the oldest. */
const struct weir_trace_event *weir__trace_event_at(const struct weir__worker *worker,
                                                    uint32_t index);
/** The first event whose step is `step` or a later one; the count where there is none. */
uint32_t weir__trace_step_begin(const struct weir__worker *worker, uint64_t step);
/** The number from 1 of the event's update; 0 where the caller counts none: no step of the pipe had
 * updates before it. An event of inference has that of the next update. */
uint64_t weir__trace_update(const struct weir_pipe *pipe, const struct weir_trace_event *event);
/** "F 1:3" is forward of stage 1, micro-batch 3; "U 1" is stage 1's update. Returns `text`. */
const char *weir__trace_name(const struct weir_action *action, char text[32]);

static inline bool weir__trace_same(const struct weir_action *a, const struct weir_action *b) {
    return a->kind == b->kind && a->stage == b->stage && a->micro_batch == b->micro_batch;
}

/** Of the actions that action `a` waits for on worker `from`, the last: its index in the table, or
 * UINT32_MAX. */
uint32_t weir__trace_last_wait(const struct weir__row_plan *prepared, uint32_t a, uint32_t from);

/* ---- text ---- */

enum { WEIR__TEXT_BYTES = 4096 };

/** Text on its way out. The first failure of `write` sticks: nothing is written after it. */
struct weir__text {
    weir_write_fn *write;
    void *context;
    int status;
    size_t used;
    char buffer[WEIR__TEXT_BYTES];
};

void weir__text_begin(struct weir__text *text, weir_write_fn *write, void *context);
void weir__text_bytes(struct weir__text *text, const char *bytes, size_t count);
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
/** printf-like, cut after 1023 bytes. For whole numbers and texts: the locale changes others. */
void weir__text_add(struct weir__text *text, const char *format, ...);
/** A whole text as it is. */
void weir__text_string(struct weir__text *text, const char *string);
/** Bytes of the character at `at`, which a zero ends: 0 where it is no UTF-8 (RFC 3629: shortest
 * form, no surrogates, nothing above U+10FFFF). */
size_t weir__utf8_bytes(const char *at);
/** A JSON string with its quotes, whatever the bytes; what is not UTF-8 becomes U+FFFD. */
void weir__text_json(struct weir__text *text, const char *string);
/** ,"key":12.345 of so many nanoseconds. */
void weir__text_microseconds(struct weir__text *text, const char *key, uint64_t ns);
/** Writes what is left; returns the first failure, or WEIR_OK. */
int weir__text_end(struct weir__text *text);

#endif
