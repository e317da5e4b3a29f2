/* SPDX-License-Identifier: MIT */
/**
 * How far long work has come. On a terminal one line that renews itself, at most ten times a second
 * and never wider than the terminal; elsewhere whoever works is told when a plain line is due. And
 * times as people read them.
 */
#ifndef WEIR_TOOLS_PROGRESS_H
#define WEIR_TOOLS_PROGRESS_H

#include "cli/output.h"

/** One thread's. */
struct progress {
    const struct people *people;
    uint64_t first, total; /**< of what is counted: there at the beginning, there at the end */
    uint64_t start_ns;
    uint64_t shown_ns; /**< 0: never */
    uint32_t width;    /**< columns of the line that stands there, 0: none */
};

/** The clock starts. `people` outlives it. */
void progress_begin(struct progress *progress, const struct people *people, uint64_t first,
                    uint64_t total);
/** On a terminal "FACTS  1:02, 0:31 left" (printf-like facts) where the last line stood, if it is
 * time for that or `done` is all. */
void progress_show(struct progress *progress, uint64_t done, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Takes the line away, so that something else can be printed; the next one is shown at once. */
void progress_clear(struct progress *progress);
/** The line stays, and what is printed next begins a new one. */
void progress_keep(struct progress *progress);
/** Where there is no terminal: whether a plain line is due, the first time and every five seconds
 * from then on. */
bool progress_due(struct progress *progress);
/** Seconds since the beginning, and those that are left if it goes on like this (NaN: unknown). */
double progress_elapsed(const struct progress *progress);
double progress_left(const struct progress *progress, uint64_t done);

/** "0:31", "12:05", "1:02:03", "3 d 1:02:03"; "-" for NaN. Returns `text`. */
const char *time_text_clock(double seconds, char text[32]);
/** "31.2 us", "291.4 ms", "1.204 s", "2:05 min", "3:12 h". Returns `text`. */
const char *time_text(double seconds, char text[32]);
/** "12.6 ms", "131 s": the same without minutes, for times that need not be of this world. */
const char *time_text_seconds(double seconds, char text[32]);

#endif
