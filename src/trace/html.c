/* SPDX-License-Identifier: MIT */
/* Text and numbers for a page. printf's way with fractions depends on the locale of the program
 * that the library is part of, so digits are taken from whole numbers, or picked out of its output
 * without looking at what stands between them. */
#include "trace/html.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DECIMALS_MOST = 9, DIGITS = 9 };

/* ---- escaped text ---- */

/* A character that may not stand as itself: what replaces it, or NULL. */
static const char *entity_of(const char *at, size_t bytes) {
    unsigned char first = (unsigned char)*at;
    if (bytes == 0 || first == 0x7f) return "\xef\xbf\xbd";
    if (first < 0x20 && first != '\n' && first != '\t') return "\xef\xbf\xbd";
    if (bytes == 2 && first == 0xc2 && (unsigned char)at[1] < 0xa0) return "\xef\xbf\xbd";
    switch (first) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

void weir__html_text(struct weir__text *text, const char *string) {
    for (const char *at = string; at != NULL && *at != 0;) {
        size_t bytes = weir__utf8_bytes(at);
        const char *entity = entity_of(at, bytes);
        if (entity != NULL)
            weir__text_string(text, entity);
        else
            weir__text_bytes(text, at, bytes);
        at += bytes == 0 ? 1 : bytes;
    }
}

void weir__html_json(struct weir__text *text, const char *string) {
    if (string == NULL) {
        weir__text_string(text, "null");
        return;
    }
    weir__text_bytes(text, "\"", 1);
    for (const char *at = string; *at != 0;) {
        size_t bytes = weir__utf8_bytes(at);
        unsigned char first = (unsigned char)*at;
        if (bytes == 0) {
            weir__text_string(text, "\\ufffd");
        } else if (first < 0x20 || first == 0x7f || strchr("\"\\<>&", first) != NULL) {
            weir__text_add(text, "\\u%04x", first);
        } else {
            weir__text_bytes(text, at, bytes);
        }
        at += bytes == 0 ? 1 : bytes;
    }
    weir__text_bytes(text, "\"", 1);
}

/* ---- whole numbers and fractions ---- */

void weir__html_count(struct weir__text *text, uint64_t value) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%" PRIu64, value);
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) weir__text_string(text, ",");
        weir__text_bytes(text, &digits[i], 1);
    }
}

static uint64_t power_of_ten(uint32_t exponent) {
    assert(exponent <= DECIMALS_MOST);
    uint64_t power = 1;
    while (exponent-- > 0) power *= 10;
    return power;
}

void weir__html_fixed(struct weir__text *text, double value, uint32_t decimals) {
    assert(decimals <= DECIMALS_MOST);
    uint64_t power = power_of_ten(decimals);
    double scaled = fabs(value) * (double)power;
    if (!isfinite(value)) {
        weir__text_string(text, "–");
        return;
    }
    if (scaled >= 0x1p63) {
        weir__html_real(text, value);
        return;
    }
    uint64_t whole = (uint64_t)llround(scaled);
    if (value < 0.0 && whole > 0) weir__text_string(text, "−");
    weir__html_count(text, whole / power);
    if (decimals > 0) weir__text_add(text, ".%0*" PRIu64, (int)decimals, whole % power);
}

void weir__html_percent(struct weir__text *text, double fraction) {
    weir__html_fixed(text, fraction * 100.0, 1);
    weir__text_string(text, "%");
}

void weir__html_share(struct weir__text *text, double part, double whole) {
    double share = whole > 0.0 ? part / whole : 0.0;
    uint64_t millionths = share > 0.0 ? (uint64_t)llround(fmin(share, 1.0) * 1e6) : 0;
    weir__text_add(text, "%" PRIu64 ".%04u%%", millionths / 10000, (unsigned)(millionths % 10000));
}

/* ---- any number ---- */

/* Significant digits without trailing zeros, and the power of ten of the first. */
static int32_t digits_of(double value, char digits[DIGITS + 1]) {
    char printed[64];
    snprintf(printed, sizeof printed, "%.*e", DIGITS - 1, value);
    const char *exponent = strchr(printed, 'e');
    assert(exponent != NULL);
    uint32_t count = 0;
    for (const char *at = printed; at < exponent; at++)
        if (isdigit((unsigned char)*at) && count < DIGITS) digits[count++] = *at;
    while (count > 1 && digits[count - 1] == '0') count--;
    digits[count] = 0;
    return (int32_t)strtol(exponent + 1, NULL, 10);
}

static void add_zeros(struct weir__text *text, int32_t count) {
    for (; count > 0; count--) weir__text_string(text, "0");
}

void weir__html_real(struct weir__text *text, double value) {
    char digits[DIGITS + 1];
    if (!isfinite(value)) {
        weir__text_string(text, "null");
        return;
    }
    if (value < 0.0) weir__text_string(text, "-");
    int32_t exponent = digits_of(fabs(value), digits), count = (int32_t)strlen(digits);
    if (exponent < -5 || exponent > 15) {
        weir__text_add(text, count > 1 ? "%c.%se%d" : "%c%se%d", digits[0], digits + 1, exponent);
    } else if (exponent < 0) {
        weir__text_string(text, "0.");
        add_zeros(text, -exponent - 1);
        weir__text_add(text, "%s", digits);
    } else if (count <= exponent + 1) {
        weir__text_add(text, "%s", digits);
        add_zeros(text, exponent + 1 - count);
    } else {
        weir__text_add(text, "%.*s.%s", exponent + 1, digits, digits + exponent + 1);
    }
}

/* ---- units ---- */

struct unit_row {
    const char *name;
    double size;
    double least; /* the largest number that it is taken for */
};

static struct weir__unit unit_of(double largest, const struct unit_row *rows, uint32_t count) {
    assert(count > 0);
    uint32_t i = 0;
    while (i + 1 < count && largest < rows[i].least) i++;
    double number = largest / rows[i].size;
    uint32_t decimals = number < 10.0 ? 3 : number < 1000.0 ? 2 : 1;
    return (struct weir__unit){rows[i].name, rows[i].size, rows[i].size == 1.0 ? 0 : decimals};
}

struct weir__unit weir__unit_of_time(double ns) {
    static const struct unit_row rows[] = {
        {"s", 1e9, 1e10}, {"ms", 1e6, 1e6}, {"µs", 1e3, 1e3}, {"ns", 1.0, 1.0}};
    return unit_of(ns, rows, WEIR__COUNT_OF(rows));
}

struct weir__unit weir__unit_of_size(double bytes) {
    static const struct unit_row rows[] = {{"TiB", 0x1p40, 0x1p40},
                                           {"GiB", 0x1p30, 0x1p30},
                                           {"MiB", 0x1p20, 0x1p20},
                                           {"KiB", 0x1p10, 0x1p10},
                                           {"bytes", 1.0, 1.0}};
    return unit_of(bytes, rows, WEIR__COUNT_OF(rows));
}

void weir__html_in(struct weir__text *text, const struct weir__unit *unit, double value) {
    assert(unit->size > 0.0);
    weir__html_fixed(text, value / unit->size, unit->decimals);
}

void weir__html_with(struct weir__text *text, const struct weir__unit *unit, double value) {
    weir__html_in(text, unit, value);
    weir__text_add(text, " %s", unit->name);
}

/* ---- ticks ---- */

/* The smallest round step that is not below `least`. */
static double round_up(double least) {
    static const double steps[] = {1.0, 2.0, 5.0};
    double power = pow(10.0, floor(log10(least)));
    for (uint32_t i = 0; i < WEIR__COUNT_OF(steps); i++)
        if (steps[i] * power >= least * (1.0 - 1e-9)) return steps[i] * power;
    return 10.0 * power;
}

static uint32_t decimals_of(double step) {
    uint32_t decimals = 0;
    while (decimals < DECIMALS_MOST && step < 0.999999) step *= 10.0, decimals++;
    return decimals;
}

struct weir__ticks weir__ticks_of(double from, double to, uint32_t most, bool whole) {
    assert(most > 0);
    double step = round_up((to - from) / most);
    if (whole) step = fmax(step, 1.0);
    if (!(to > from) || !isfinite(to - from) || !isnormal(step)) return (struct weir__ticks){0};
    double first = ceil(from / step - 1e-9) * step, count = floor((to - first) / step + 1e-9) + 1.0;
    return (struct weir__ticks){first, step, count > 0.0 ? (uint32_t)fmin(count, most + 1.0) : 0,
                                decimals_of(step)};
}
