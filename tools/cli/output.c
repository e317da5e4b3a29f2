/* SPDX-License-Identifier: MIT */
/* Files, stdout and terminals behind one face. */
#include "cli/output.h"

#include "cli/interrupt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define COLUMNS_DEFAULT 100
#define COLUMNS_MIN 40
#define COLUMNS_MAX 400

bool output_is_standard(const char *path) {
    return path && strcmp(path, "-") == 0;
}

int output_begin(struct output *output, const char *path, struct weir_error *error) {
    *output = (struct output){.io = {.error = error}, .kind = OUTPUT_NONE};
    if (!path) {
        return WEIR_OK;
    }
    if (output_is_standard(path)) {
        output->kind = OUTPUT_STANDARD;
        return WEIR_OK;
    }
    int status = weir__file_begin(&output->io, path, &output->file);
    output->kind = status ? OUTPUT_NONE : OUTPUT_FILE;
    return status;
}

/* Around stdio: text that waits in its buffer belongs before. */
static int write_standard(struct output *output, const char *text, size_t bytes) {
    if (fflush(stdout) != 0 || weir__io_write(&output->io, STDOUT_FILENO, text, bytes) != 0) {
        /* nobody reads it any more, of the same Ctrl-C: that costs a run nothing else */
        if (errno == EPIPE && interrupt_came()) return WEIR_OK;
        return weir__io_fail(&output->io, errno, "write", "stdout");
    }
    return WEIR_OK;
}

int output_write(void *context, const char *text, size_t bytes) {
    struct output *output = context;
    switch (output->kind) {
    case OUTPUT_FILE: return weir__file_write(&output->file, text, bytes);
    case OUTPUT_STANDARD: return write_standard(output, text, bytes);
    case OUTPUT_NONE: break;
    }
    return WEIR_OK;
}

int output_commit(struct output *output) {
    int status = output->kind == OUTPUT_FILE ? weir__file_commit(&output->file) : WEIR_OK;
    output->kind = OUTPUT_NONE;
    return status;
}

void output_abort(struct output *output) {
    if (output->kind == OUTPUT_FILE) {
        weir__file_abort(&output->file);
    }
    output->kind = OUTPUT_NONE;
}

int output_text(const char *path, const char *text, size_t bytes, struct weir_error *error) {
    struct output output;
    int status = output_begin(&output, path, error);
    if (!status) {
        status = output_write(&output, text, bytes);
    }
    if (status) {
        output_abort(&output);
        return status;
    }
    return output_commit(&output);
}

static uint32_t columns_of(int descriptor) {
    struct winsize size;
    if (ioctl(descriptor, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        return COLUMNS_DEFAULT;
    }
    return size.ws_col < COLUMNS_MIN   ? COLUMNS_MIN
           : size.ws_col > COLUMNS_MAX ? COLUMNS_MAX
                                       : size.ws_col;
}

void people_init(struct people *people, bool standard_taken) {
    const char *no_colour = getenv("NO_COLOR"), *kind = getenv("TERM");
    people->stream = standard_taken ? stderr : stdout;
    people->silent = false;
    people->terminal = isatty(fileno(people->stream)) == 1;
    bool dumb = !kind || strcmp(kind, "dumb") == 0;
    people->colour = people->terminal && !dumb && !(no_colour && *no_colour);
    people->columns = people->terminal ? columns_of(fileno(people->stream)) : COLUMNS_DEFAULT;
}

/* Bytes of a control character that may move a terminal's cursor or change its state; 0: none. */
static size_t upsets(const char *text, size_t bytes) {
    unsigned char first = (unsigned char)text[0];
    bool controls = (first < 32 && first != '\n' && first != '\t') || first == 127;
    bool follows = bytes > 1 && (unsigned char)text[1] >= 0x80 && (unsigned char)text[1] < 0xa0;
    return controls ? 1 : first == 0xc2 && follows ? 2 : 0; /* U+0080 … U+009F */
}

void people_show(const struct people *people, const char *text, size_t bytes) {
    size_t at = 0;
    while (at < bytes) {
        size_t skipped = upsets(text + at, bytes - at);
        fputc(skipped > 0 ? '?' : text[at], people->stream);
        at += skipped > 0 ? skipped : 1;
    }
}

void people_write(const struct people *people, const char *text, size_t bytes) {
    if (people->terminal)
        people_show(people, text, bytes);
    else
        fwrite(text, 1, bytes, people->stream);
}

void people_silence(struct people *people) {
    FILE *nowhere = fopen("/dev/null", "w"); /* the process's, until it ends */
    if (nowhere != NULL) people->stream = nowhere;
    people->silent = true;
    people->terminal = people->colour = false;
}

uint32_t people_columns(const struct people *people) {
    return people->terminal ? columns_of(fileno(people->stream)) : people->columns;
}

void people_wrap(const struct people *people, const char *title, const char *text) {
    size_t indent = strlen(title), used = indent, columns = people_columns(people);
    fputs(title, people->stream);
    while (*text != '\0') {
        size_t word = strcspn(text, " ");
        if (used > indent && used + word + 1 > columns) {
            fprintf(people->stream, "\n%*s", (int)indent, "");
            used = indent;
        } else if (used > indent) {
            fputc(' ', people->stream);
            used++;
        }
        fprintf(people->stream, "%.*s", (int)word, text);
        used += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', people->stream);
}
