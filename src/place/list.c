/* SPDX-License-Identifier: MIT */
/* Core lists like "0-3,8": read strictly, because a slip would bind two jobs to one core in
 * silence, and written. */
#include "place/machine.h"

#include <stdio.h>
#include <string.h>

enum { DIGITS_MAX = 6 };

/* Where a reading stands. */
struct list_reading {
    const char *text;
    hwloc_const_bitmap_t allowed;
    hwloc_bitmap_t seen, absent, twice;
    uint32_t *units;
    uint32_t capacity, count;
};

static bool read_number(const char **at, uint32_t *number) {
    assert(*at != NULL);
    size_t digits = strspn(*at, "0123456789");
    if (digits == 0 || digits > DIGITS_MAX) return false;
    *number = 0;
    for (size_t i = 0; i < digits; i++) *number = *number * 10 + (uint32_t)((*at)[i] - '0');
    *at += digits;
    return true;
}

/* "3" or "0-3" at *at. */
static bool read_item(const char **at, uint32_t *first, uint32_t *last) {
    if (!read_number(at, first)) return false;
    *last = *first;
    if (**at != '-') return true;
    ++*at;
    return read_number(at, last) && *first <= *last;
}

static bool add(struct list_reading *reading, uint32_t unit) {
    if (!hwloc_bitmap_isset(reading->allowed, unit))
        return hwloc_bitmap_set(reading->absent, unit) == 0;
    if (hwloc_bitmap_isset(reading->seen, unit)) return hwloc_bitmap_set(reading->twice, unit) == 0;
    assert(reading->count < reading->capacity);
    reading->units[reading->count++] = unit;
    return hwloc_bitmap_set(reading->seen, unit) == 0;
}

static int check(const struct list_reading *reading, struct weir_faults *faults) {
    assert(reading->absent != NULL && reading->twice != NULL);
    char cores[64], allowed[64];
    int status = WEIR_OK;
    if (!hwloc_bitmap_iszero(reading->absent)) {
        weir_faults_add(faults,
                        "bind \"%s\": this process has no core %s (not there, or taken away by a "
                        "cpuset): choose from %s",
                        reading->text, weir__list_text(reading->absent, cores, sizeof cores),
                        weir__list_text(reading->allowed, allowed, sizeof allowed));
        status = WEIR_ERR_ARGUMENT;
    }
    if (!hwloc_bitmap_iszero(reading->twice)) {
        weir_faults_add(faults, "bind \"%s\": core %s stands there twice: name each core once",
                        reading->text, weir__list_text(reading->twice, cores, sizeof cores));
        status = WEIR_ERR_ARGUMENT;
    }
    return status;
}

static int read_items(struct list_reading *reading, struct weir_faults *faults) {
    const char *at = reading->text;
    for (;;) {
        const char *item = at;
        uint32_t first, last;
        bool good = read_item(&at, &first, &last) && (*at == ',' || *at == '\0');
        if (!good) {
            int length = (int)strcspn(item, ",");
            weir_faults_add(faults,
                            "bind \"%s\": \"%.*s\" is neither a core's number nor a range: write "
                            "\"auto\", \"none\" or a list like \"0-3,8\"",
                            reading->text, length, item);
            return WEIR_ERR_ARGUMENT;
        }
        for (uint32_t unit = first; unit <= last; unit++) {
            if (!add(reading, unit)) return WEIR_ERR_OUT_OF_MEMORY;
        }
        if (*at == '\0') return check(reading, faults);
        at++;
    }
}

int weir__list_parse(const char *text, hwloc_const_bitmap_t allowed, struct weir_faults *faults,
                     uint32_t capacity, uint32_t *units, uint32_t *count) {
    assert(text != NULL && allowed != NULL && units != NULL && count != NULL);
    assert((int)capacity >= hwloc_bitmap_weight(allowed));
    struct list_reading reading = {
        .text = text, .allowed = allowed, .units = units, .capacity = capacity};
    int status = WEIR_ERR_OUT_OF_MEMORY;
    reading.seen = hwloc_bitmap_alloc();
    if (reading.seen == NULL) goto fail_seen;
    reading.absent = hwloc_bitmap_alloc();
    if (reading.absent == NULL) goto fail_absent;
    reading.twice = hwloc_bitmap_alloc();
    if (reading.twice == NULL) goto fail_twice;
    status = read_items(&reading, faults);
    *count = reading.count;
    hwloc_bitmap_free(reading.twice);
fail_twice:
    hwloc_bitmap_free(reading.absent);
fail_absent:
    hwloc_bitmap_free(reading.seen);
fail_seen:
    return status;
}

const char *weir__list_text(hwloc_const_bitmap_t set, char *text, size_t capacity) {
    static const char more[] = ",...";
    assert(capacity > sizeof more);
    int length = hwloc_bitmap_list_snprintf(text, capacity, set);
    if (length < 0) text[0] = '\0';
    if (length < 0 || (size_t)length < capacity) return text;
    text[capacity - sizeof more + 1] = '\0'; /* the last comma up to here still leaves room */
    char *comma = strrchr(text, ',');
    strcpy(comma != NULL ? comma : text, comma != NULL ? more : more + 1);
    return text;
}
