/* SPDX-License-Identifier: MIT */
/* The list of everything wrong with a configuration. Reporting must not fail while a failure is
 * being reported: a line that finds no memory is counted and dropped. */
#include "base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINES_MAX = 256, LINE_BYTES_MAX = 512, LINES_FIRST = 8 };

static bool grow(struct weir_faults *faults) {
    if (faults->kept < faults->capacity) return true;
    if (faults->capacity >= LINES_MAX) return false;
    uint32_t capacity = faults->capacity == 0 ? LINES_FIRST : faults->capacity * 2;
    char **lines = weir__acquire(faults->allocator, capacity, sizeof *lines);
    if (lines == NULL) return false;
    if (faults->kept > 0) memcpy(lines, faults->lines, faults->kept * sizeof *lines);
    weir__release(faults->allocator, faults->lines, faults->capacity, sizeof *lines);
    faults->lines = lines;
    faults->capacity = capacity;
    return true;
}

static bool is_known(const struct weir_faults *faults, const char *line) {
    uint32_t i = 0;
    while (i < faults->kept && strcmp(faults->lines[i], line) != 0) i++;
    return i < faults->kept;
}

/* A line that will not be kept is not formatted either: a hostile file has millions. */
void weir__faults_add_list(struct weir_faults *faults, const char *format, va_list arguments) {
    if (faults == NULL) return;
    assert(faults->kept <= faults->capacity);
    assert(format != NULL);
    if (faults->count < UINT32_MAX) faults->count++;
    if (!grow(faults)) return;
    char line[LINE_BYTES_MAX], visible[LINE_BYTES_MAX], *copy;
    int length = vsnprintf(line, sizeof line, format, arguments);
    if (length < 0) return;
    weir__text_visible(line, visible, sizeof visible);
    if (is_known(faults, visible)) { /* found by two checks */
        faults->count--;
        return;
    }
    if (weir__text_copy(faults->allocator, visible, &copy) != WEIR_OK) return;
    faults->lines[faults->kept++] = copy;
}

void weir_faults_add(struct weir_faults *faults, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    weir__faults_add_list(faults, format, arguments);
    va_end(arguments);
}

void weir_faults_clean_up(struct weir_faults *faults) {
    if (faults == NULL) return;
    for (uint32_t i = 0; i < faults->kept; i++)
        weir__text_release(faults->allocator, faults->lines[i]);
    weir__release(faults->allocator, faults->lines, faults->capacity, sizeof *faults->lines);
    const struct weir_allocator *allocator = faults->allocator;
    *faults = (struct weir_faults){.allocator = allocator};
}
