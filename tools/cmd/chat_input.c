/* SPDX-License-Identifier: MIT */
/* Read without stdio, whose buffers poll() does not know. A signal that comes to another thread
 * does not end a wait: so it is looked for now and then. */
#include "cmd/chat.h"

#include "cli/interrupt.h"
#include "text/utf8.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 4096, MESSAGE_BYTES_MAX = 1 << 24, LOOK_MS = 200 };

void chat_input_clean_up(struct chat_input *input) {
    weir__bytes_release(NULL, &input->held);
    weir__bytes_release(NULL, &input->message);
}

/* False: a signal came first. */
static bool wait_for_more(void) {
    struct pollfd waited = {.fd = STDIN_FILENO, .events = POLLIN};
    while (!interrupt_came())
        if (poll(&waited, 1, LOOK_MS) > 0) return true;
    return false;
}

/* Some more bytes, or none at the end. */
static int read_more(struct chat *chat) {
    struct weir__bytes *held = &chat->input.held;
    int status = weir__bytes_reserve(&chat->io, held, READ_BYTES);
    if (status != WEIR_OK) return status;
    if (held->count > MESSAGE_BYTES_MAX)
        return weir__fail(chat->error, WEIR_ERR_IO, "stdin: a line has more than %d bytes",
                          (int)MESSAGE_BYTES_MAX);
    if (!wait_for_more()) return WEIR_OK;
    ssize_t got = read(STDIN_FILENO, held->data + held->count, READ_BYTES);
    if (got < 0 && errno == EINTR) return WEIR_OK;
    if (got < 0 && errno != EIO) /* EIO: the terminal is gone */
        return weir__io_fail(&chat->io, errno, "read", "stdin");
    chat->input.ended = got <= 0;
    held->count += got > 0 ? (size_t)got : 0;
    return WEIR_OK;
}

/* Sound text, whatever the bytes are. */
static int append(struct chat *chat, const char *bytes, size_t count) {
    struct weir__bytes *message = &chat->input.message;
    for (size_t at = 0, length; at < count; at += length) {
        uint32_t point;
        char sound[4];
        length = utf8_next(bytes + at, count - at, &point);
        size_t written = utf8_put(point < UTF8_LIMIT ? point : UTF8_REPLACEMENT, sound);
        int status = weir__bytes_append(&chat->io, message, sound, written);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

/* Moves a line to the message; whether another one belongs to it. */
static int take_line(struct chat *chat, size_t bytes, bool ends_line, bool *more) {
    struct weir__bytes *held = &chat->input.held;
    size_t text = bytes > 0 && held->data[bytes - 1] == '\r' ? bytes - 1 : bytes;
    *more = ends_line && text > 0 && held->data[text - 1] == '\\';
    int status = append(chat, held->data, *more ? text - 1 : text);
    if (status == WEIR_OK && *more) status = append(chat, "\n", 1);
    size_t taken = bytes + (ends_line ? 1 : 0);
    memmove(held->data, held->data + taken, held->count - taken);
    held->count -= taken;
    return status;
}

/* `found`: a line was there, perhaps without its end where stdin ends. */
static int next_line(struct chat *chat, bool *found, bool *more) {
    const struct weir__bytes *held = &chat->input.held;
    const char *end = NULL;
    *found = *more = false;
    for (;;) {
        end = held->count > 0 ? memchr(held->data, '\n', held->count) : NULL;
        if (end != NULL || chat->input.ended || interrupt_came()) break;
        int status = read_more(chat);
        if (status != WEIR_OK) return status;
    }
    *found = !interrupt_came() && held->count > 0;
    if (!*found) return WEIR_OK;
    return take_line(chat, end != NULL ? (size_t)(end - held->data) : held->count, end != NULL,
                     more);
}

static bool is_blank(const struct weir__bytes *message) {
    for (size_t i = 0; i < message->count; i++)
        if (strchr(" \t\n", message->data[i]) == NULL || message->data[i] == '\0') return false;
    return true;
}

static void prompt(const struct chat *chat, bool more) {
    if (!chat->people.terminal || !isatty(STDIN_FILENO)) return;
    fputs(more ? "... " : "> ", chat->people.stream);
    fflush(chat->people.stream);
}

int chat_input_next(struct chat *chat, bool *found) {
    bool more = false;
    do {
        if (!more) chat->input.message.count = 0;
        prompt(chat, more);
        int status = next_line(chat, found, &more);
        if (status != WEIR_OK) return status;
        if (!*found) break;
    } while (more || is_blank(&chat->input.message));
    if (!interrupt_came()) *found = !is_blank(&chat->input.message);
    return WEIR_OK;
}
