/* SPDX-License-Identifier: MIT */
/* Events by number, and text through a callback. The buffer is small so that it can stand on the
 * stack, and large enough that a callback which writes to a file is called seldom. */
#include "trace/trace.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TEXT_PIECE_BYTES = 1024 };

/* ---- events ---- */

uint32_t weir__trace_count(const struct weir__worker *worker) {
    return worker->event_count < worker->event_capacity ? (uint32_t)worker->event_count
                                                        : worker->event_capacity;
}

const struct weir_trace_event *weir__trace_event_at(const struct weir__worker *worker,
                                                    uint32_t index) {
    uint32_t count = weir__trace_count(worker);
    assert(index < count);
    return &worker->events[(worker->event_count - count + index) % worker->event_capacity];
}

uint32_t weir__trace_step_begin(const struct weir__worker *worker, uint64_t step) {
    uint32_t low = 0, high = weir__trace_count(worker);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (weir__trace_event_at(worker, middle)->step < step)
            low = middle + 1;
        else
            high = middle;
    }
    assert(low <= weir__trace_count(worker));
    return low;
}

uint64_t weir__trace_update(const struct weir_pipe *pipe, const struct weir_trace_event *event) {
    assert(event->step <= pipe->step_count);
    assert(event->update == 0 || pipe->counts_updates);
    return pipe->counts_updates ? event->update + 1 : 0;
}

const char *weir__trace_name(const struct weir_action *action, char text[32]) {
    assert(action->kind < WEIR_KIND_COUNT);
    const struct weir__kind_facts *kind = &weir__kinds[action->kind];
    if (kind->per_micro_batch) {
        snprintf(text, 32, "%c %u:%u", kind->letter, (unsigned)action->stage,
                 (unsigned)action->micro_batch);
    } else {
        snprintf(text, 32, "%c %u", kind->letter, (unsigned)action->stage);
    }
    return text;
}

uint32_t weir__trace_last_wait(const struct weir__row_plan *prepared, uint32_t a, uint32_t from) {
    assert(a < prepared->table->action_count && from < prepared->table->worker_count);
    const struct weir__needed_wait *last = NULL;
    for (uint32_t i = prepared->calls[a].wait_begin; i < prepared->calls[a].wait_end; i++) {
        const struct weir__needed_wait *wait = &prepared->waits[i];
        if (wait->worker == from && (last == NULL || wait->count > last->count)) last = wait;
    }
    return last != NULL ? last->action : UINT32_MAX;
}

/* ---- text ---- */

void weir__text_begin(struct weir__text *text, weir_write_fn *write, void *context) {
    assert(write != NULL);
    text->write = write;
    text->context = context;
    text->status = WEIR_OK;
    text->used = 0;
}

static void flush(struct weir__text *text) {
    assert(text->used <= sizeof text->buffer);
    if (text->status == WEIR_OK && text->used > 0)
        text->status = text->write(text->context, text->buffer, text->used);
    text->used = 0;
}

void weir__text_bytes(struct weir__text *text, const char *bytes, size_t count) {
    while (count > 0 && text->status == WEIR_OK) {
        size_t room = sizeof text->buffer - text->used;
        assert(room > 0);
        size_t part = count < room ? count : room;
        memcpy(text->buffer + text->used, bytes, part);
        text->used += part;
        bytes += part;
        count -= part;
        if (text->used == sizeof text->buffer) flush(text);
    }
}

void weir__text_string(struct weir__text *text, const char *string) {
    weir__text_bytes(text, string, strlen(string));
}

void weir__text_add(struct weir__text *text, const char *format, ...) {
    char piece[TEXT_PIECE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(piece, sizeof piece, format, arguments);
    va_end(arguments);
    assert(length >= 0);
    if (length < 0) return;
    weir__text_bytes(text, piece,
                     (size_t)length < sizeof piece ? (size_t)length : sizeof piece - 1);
}

size_t weir__utf8_bytes(const char *text) {
    const unsigned char *at = (const unsigned char *)text;
    unsigned char first = at[0], low = 0x80, high = 0xbf;
    if (first < 0x80) return 1;
    if (first < 0xc2 || first > 0xf4) return 0;
    size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (first == 0xe0) low = 0xa0;
    if (first == 0xed) high = 0x9f;
    if (first == 0xf0) low = 0x90;
    if (first == 0xf4) high = 0x8f;
    if (at[1] < low || at[1] > high) return 0;
    for (size_t i = 2; i < bytes; i++)
        if ((at[i] & 0xc0) != 0x80) return 0;
    return bytes;
}

void weir__text_json(struct weir__text *text, const char *string) {
    const char *at = string;
    weir__text_bytes(text, "\"", 1);
    while (*at != 0) {
        size_t bytes = weir__utf8_bytes(at);
        unsigned char first = (unsigned char)*at;
        if (bytes == 0) {
            weir__text_add(text, "\\ufffd");
        } else if (*at == '"' || *at == '\\') {
            weir__text_add(text, "\\%c", *at);
        } else if (first < 0x20 || first == 0x7f) {
            weir__text_add(text, "\\u%04x", first);
        } else {
            weir__text_bytes(text, at, bytes);
        }
        at += bytes == 0 ? 1 : bytes;
    }
    weir__text_bytes(text, "\"", 1);
}

void weir__text_microseconds(struct weir__text *text, const char *key, uint64_t ns) {
    weir__text_add(text, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

int weir__text_end(struct weir__text *text) {
    flush(text);
    return text->status;
}
