/* SPDX-License-Identifier: MIT */
/* A line is drawn over by the next one and blanks: every terminal can do that. */
#include "cli/progress.h"

#include "base/base.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#define REDRAW_NS UINT64_C(100000000)
#define PLAIN_NS UINT64_C(5000000000)
enum { LINE_BYTES = 512 };

/* ---- times ---- */

const char *time_text_clock(double seconds, char text[32]) {
    if (!(seconds >= 0) || seconds > 1e9) {
        snprintf(text, 32, "-");
        return text;
    }
    uint64_t all = (uint64_t)(seconds + 0.5), days = all / 86400, hours = all / 3600 % 24;
    unsigned minutes = (unsigned)(all / 60 % 60), rest = (unsigned)(all % 60);
    if (days > 0)
        snprintf(text, 32, "%" PRIu64 " d %" PRIu64 ":%02u:%02u", days, hours, minutes, rest);
    else if (hours > 0)
        snprintf(text, 32, "%" PRIu64 ":%02u:%02u", hours, minutes, rest);
    else
        snprintf(text, 32, "%u:%02u", minutes, rest);
    return text;
}

const char *time_text_seconds(double seconds, char text[32]) {
    static const char *const units[] = {"s", "ms", "us", "ns"};
    double value = seconds;
    int unit = 0;
    while (value != 0.0 && fabs(value) < 0.99995 && unit < 3) value *= 1e3, unit++;
    snprintf(text, 32, "%.4g %s", value, units[unit]);
    return text;
}

const char *time_text(double seconds, char text[32]) {
    if (!(seconds >= 59.5 && seconds < 1e9)) return time_text_seconds(seconds, text);
    uint64_t all = (uint64_t)(seconds + 0.5), unit = all >= 3600 ? 3600 : 60;
    snprintf(text, 32, "%" PRIu64 ":%02u %s", all / unit, /* what rounds to a minute is one */
             (unsigned)(all % unit / (unit / 60)), all >= 3600 ? "h" : "min");
    return text;
}

/* ---- the line ---- */

void progress_begin(struct progress *p, const struct people *people, uint64_t first,
                    uint64_t total) {
    assert(first <= total);
    *p = (struct progress){
        .people = people, .first = first, .total = total, .start_ns = weir__now_ns()};
}

double progress_elapsed(const struct progress *p) {
    return (double)(weir__now_ns() - p->start_ns) * 1e-9;
}

double progress_left(const struct progress *p, uint64_t done) {
    if (done <= p->first) return NAN;
    return progress_elapsed(p) * (double)(p->total - done) / (double)(done - p->first);
}

static bool due(struct progress *p, uint64_t every) {
    uint64_t now = weir__now_ns();
    if (p->shown_ns != 0 && now - p->shown_ns < every) return false;
    p->shown_ns = now;
    return true;
}

bool progress_due(struct progress *p) {
    return !p->people->terminal && due(p, PLAIN_NS);
}

/* The last column stays empty: some terminals begin a new line after it. */
static void draw(struct progress *p, const char *line) {
    FILE *to = p->people->stream;
    uint32_t columns = people_columns(p->people) - 1, width = (uint32_t)strlen(line);
    if (width > columns) width = columns;
    int blanks = width < p->width && p->width <= columns ? (int)(p->width - width) : 0;
    fprintf(to, "\r%.*s%*s", (int)width, line, blanks, "");
    fflush(to);
    p->width = width;
}

void progress_show(struct progress *p, uint64_t done, const char *format, ...) {
    char line[LINE_BYTES], clock[2][32];
    va_list arguments;
    if (!p->people->terminal || (!due(p, REDRAW_NS) && done < p->total)) return;
    va_start(arguments, format);
    int used = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (used < 0 || (size_t)used >= sizeof line) return;
    time_text_clock(progress_elapsed(p), clock[0]);
    time_text_clock(progress_left(p, done), clock[1]);
    snprintf(line + used, sizeof line - (size_t)used, done < p->total ? "  %s, %s left" : "  %s",
             clock[0], clock[1]);
    draw(p, line);
}

void progress_clear(struct progress *p) {
    if (p->width == 0) return;
    draw(p, "");
    fputc('\r', p->people->stream);
    p->shown_ns = 0;
}

void progress_keep(struct progress *p) {
    if (p->width > 0) fputc('\n', p->people->stream);
    p->width = 0;
}
