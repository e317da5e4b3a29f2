/* SPDX-License-Identifier: MIT */
/**
 * Where results go. For programs: `--json FILE`, `--csv FILE`, `--trace FILE`, a file that appears
 * complete or not at all, or `-`, stdout. For people: stdout, or stderr where stdout is taken by a
 * `-`; colours and redrawn lines only on a terminal.
 */
#ifndef WEIR_TOOLS_OUTPUT_H
#define WEIR_TOOLS_OUTPUT_H

#include "io/file.h"

#include <stdio.h>

/** Results for programs. Phases: begin, write, commit or abort. */
struct output {
    struct weir__io io;
    struct weir__file file;
    enum { OUTPUT_NONE, OUTPUT_FILE, OUTPUT_STANDARD } kind;
};

/** Whether `path` is `-`. NULL is not. */
bool output_is_standard(const char *path);
/** Begins; `path` NULL: nothing is wanted, and all that follows does nothing. `error` must live
 * until the end. WEIR_ERR_IO, WEIR_ERR_OUT_OF_MEMORY. */
int output_begin(struct output *output, const char *path, struct weir_error *error);
/** A weir_write_fn; `context` is the struct output. To stdout it writes at once. */
int output_write(void *context, const char *text, size_t bytes);
/** The file appears. Also after failed writes, whose status it then returns. */
int output_commit(struct output *output);
/** The file does not appear. Does nothing after a commit or a failure. */
void output_abort(struct output *output);
/** All of the above for one text. */
int output_text(const char *path, const char *text, size_t bytes, struct weir_error *error);

/** Where text for people goes. */
struct people {
    FILE *stream;
    bool silent;      /**< `stream` goes nowhere */
    bool terminal;    /**< may redraw a line */
    bool colour;      /**< a terminal, and NO_COLOR is not set */
    uint32_t columns; /**< of the terminal; 100 where there is none */
};
/** `standard_taken`: some output for programs goes to stdout. */
void people_init(struct people *people, bool standard_taken);
/** `title`, then `text`, broken at blanks; later lines are indented as far as the title. */
void people_wrap(const struct people *people, const char *title, const char *text);
/** Text that nobody has read yet, as it is; on a terminal control characters but newlines and tabs
 * become '?'. */
void people_write(const struct people *people, const char *text, size_t bytes);
/** The same as on a terminal, whatever the stream is. */
void people_show(const struct people *people, const char *text, size_t bytes);
/** `--quiet`: text for people goes nowhere; warnings and errors are not among it. */
void people_silence(struct people *people);
/** Columns now: a terminal's window changes. */
uint32_t people_columns(const struct people *people);

#endif
