/* SPDX-License-Identifier: MIT */
#include "pipe/memory/live.h"

#include <stdlib.h>

static int by_time(const void *a, const void *b) {
    const struct weir__moment *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

void weir__live_sort(struct weir__moment *moments, uint32_t count) {
    if (count > 1) qsort(moments, count, sizeof *moments, by_time);
}

bool weir__live_next(const struct weir__moment *moments, uint32_t count, uint32_t *next,
                     struct weir__live_point *point) {
    assert(*next <= count);
    if (*next == count) return false;
    assert(point->time <= moments[*next].time);
    point->time = moments[*next].time;
    for (; *next < count && moments[*next].time == point->time; ++*next) {
        const struct weir__moment *moment = &moments[*next];
        assert(moment->class_of < WEIR__BLOCK_CLASS_COUNT);
        point->live[moment->class_of] += (uint64_t)moment->bytes;
        point->sum += (uint64_t)moment->bytes;
    }
    assert(point->sum <= INT64_MAX);
    return true;
}
