/* SPDX-License-Identifier: MIT */
/**
 * Escaped text and numbers for the report's page, through a weir__text. Numbers never depend on the
 * locale. Nothing here allocates.
 */
#ifndef WEIR_HTML_H
#define WEIR_HTML_H

#include "trace/trace.h"

/** A text as an element's content or a quoted attribute's value, whatever its bytes: what is not
 * UTF-8, and control characters but tab and newline, become U+FFFD. NULL is the empty text. */
void weir__html_text(struct weir__text *text, const char *string);
/** A JSON string that may stand in a script element: no <, > or & in it. NULL is null. */
void weir__html_json(struct weir__text *text, const char *string);

/** With `decimals` (up to 9) places, commas between thousands, and a minus sign, not a hyphen;
 * never
 * "-0". What is not finite is a dash. */
void weir__html_fixed(struct weir__text *text, double value, uint32_t decimals);
/** A whole number with commas between thousands. */
void weir__html_count(struct weir__text *text, uint64_t value);
/** Up to 9 significant digits as JSON wants them; null where it is not finite. */
void weir__html_real(struct weir__text *text, double value);
/** "12.3%" of a fraction. */
void weir__html_percent(struct weir__text *text, double fraction);
/** "37.0312%": part of whole as a length. */
void weir__html_share(struct weir__text *text, double part, double whole);

/** A unit for a group of numbers, so that they can be compared. */
struct weir__unit {
    const char *name;
    double size; /**< ns, or bytes */
    uint32_t decimals;
};
/** For times up to `ns`: four digits or more of the largest. */
struct weir__unit weir__unit_of_time(double ns);
/** For sizes up to `bytes`. */
struct weir__unit weir__unit_of_size(double bytes);
/** The number alone, in the unit. */
void weir__html_in(struct weir__text *text, const struct weir__unit *unit, double value);
/** With the unit behind it. */
void weir__html_with(struct weir__text *text, const struct weir__unit *unit, double value);

/** Round numbers in a range: first + k * step for k below count. */
struct weir__ticks {
    double first, step;       /**< step is 1, 2 or 5 times a power of ten */
    uint32_t count, decimals; /**< `decimals`, up to 9, tell them apart */
};
/** At most `most` steps fit between the bounds; `whole`: the step is at least 1. None where the
 * range is empty or beyond numbers. */
struct weir__ticks weir__ticks_of(double from, double to, uint32_t most, bool whole);

#endif
