/* SPDX-License-Identifier: MIT */
/**
 * JSON read from front to back as it stands in memory, for texts of a fixed form: the caller says
 * what has to come next and is told whether it does. There is no tree and no recursion, so a
 * hostile text costs no more than a glance at each of its bytes, whatever it nests or repeats.
 *
 * A call that meets something that JSON forbids gives false and leaves the reason in `fault`, with
 * `at` on the spot; nothing is taken from then on. The text must be UTF-8 (weir__utf8_valid).
 * Blocks on nothing, any thread, one scan by one thread at a time.
 */
#ifndef WEIR_IO_JSON_SCAN_H
#define WEIR_IO_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct weir__json_scan {
    const char *begin, *at, *end;
    char *room;        /**< where strings go; room for as many bytes as the text is always enough */
    const char *fault; /**< what JSON forbids, static storage; NULL: nothing so far */
};

/** `room` is the caller's and outlives the strings; it may be NULL where no string is asked for. */
void weir__json_scan_init(struct weir__json_scan *scan, const char *text, size_t bytes, char *room);

/** The next byte that is no space; stays there. 0 at the end and after a fault. */
char weir__json_peek(struct weir__json_scan *scan);
/** Takes the next byte that is no space if it is `byte`. */
bool weir__json_take(struct weir__json_scan *scan, char byte);
/** Whether any value could begin here; if not, that is a fault. Tells a value of the wrong kind,
 * which is the caller's to refuse, from what is no value at all. */
bool weir__json_value_begins(struct weir__json_scan *scan);
/** Inside an object or list whose bracket was taken: whether an element follows. Takes the comma,
 * or `close` and says no. `*first` is true before the first call. */
bool weir__json_more(struct weir__json_scan *scan, char close, bool *first);

/** A string, its escapes resolved, ended by a zero in `room`. A zero inside is a fault. */
bool weir__json_string(struct weir__json_scan *scan, const char **text);
/** A string and the colon behind it. */
bool weir__json_key(struct weir__json_scan *scan, const char **key);
/** An integer of 0 to INT64_MAX, without sign, fraction or exponent. Anything else is false, not a
 * fault, and stays where it is. */
bool weir__json_natural(struct weir__json_scan *scan, int64_t *number);
/** Whether only spaces are left; if not, that is a fault. */
bool weir__json_ends(struct weir__json_scan *scan);

#endif
