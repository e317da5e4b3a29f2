/* SPDX-License-Identifier: MIT */
/* Times become ranks, once; then the cheap methods. */
#include "pipe/memory/packing.h"

#include <string.h>

/* ---- ranks ---- */

/* By bytes of the key; those that are the same in all keys are passed over. */
void weir__packing_sort(struct weir__keyed *list, struct weir__keyed *other, uint32_t count) {
    assert(list != other);
    uint64_t varies = 0;
    for (uint32_t i = 1; i < count; i++) varies |= list[i].key ^ list[0].key;
    for (uint32_t shift = 0; shift < 64; shift += 8) {
        uint32_t at[256] = {0}, sum = 0;
        if ((varies >> shift & 255) == 0) continue;
        for (uint32_t i = 0; i < count; i++) at[list[i].key >> shift & 255]++;
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t here = at[b];
            at[b] = sum;
            sum += here;
        }
        for (uint32_t i = 0; i < count; i++) other[at[list[i].key >> shift & 255]++] = list[i];
        memcpy(list, other, count * sizeof *list);
    }
}

/* Orders doubles that are not negative. */
static uint64_t time_key(double time) {
    uint64_t bits;
    assert(time >= 0.0);
    time += 0.0; /* no -0.0 */
    memcpy(&bits, &time, sizeof bits);
    return bits;
}

/* Largest first, then by group: consecutive items that are alike are a type. */
static void rank_sizes(struct weir__packing *p, struct weir__keyed *list,
                       struct weir__keyed *other) {
    for (uint32_t i = 0; i < p->count; i++) list[i] = (struct weir__keyed){p->items[i].group, i};
    weir__packing_sort(list, other, p->count);
    for (uint32_t i = 0; i < p->count; i++)
        list[i].key = UINT64_MAX - p->items[list[i].value].bytes;
    weir__packing_sort(list, other, p->count);
    for (uint32_t i = 0; i < p->count; i++) {
        const struct weir__pack_item *item = &p->items[list[i].value];
        const struct weir__pack_item *before = i > 0 ? &p->items[p->by_size[i - 1]] : NULL;
        bool same = before != NULL && before->bytes == item->bytes && before->group == item->group;
        p->type_count += !same;
        p->by_size[i] = list[i].value;
        p->type[list[i].value] = p->type_count - 1;
        assert(p->type_count > 0 && p->by_size[i] < p->count);
    }
}

/* Moments of all items in order; equal times are one rank. */
static void rank_times(struct weir__packing *p, struct weir__keyed *list,
                       struct weir__keyed *other) {
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t item = p->by_size[i];
        list[2 * i] = (struct weir__keyed){time_key(p->items[item].start), 2 * item};
        list[2 * i + 1] = (struct weir__keyed){time_key(p->items[item].end), 2 * item + 1};
    }
    weir__packing_sort(list, other, 2 * p->count);
    uint32_t starts = 0, ends = 0;
    for (uint32_t i = 0; i < 2 * p->count; i++) {
        uint32_t item = list[i].value / 2;
        p->moment_count += i == 0 || list[i].key != list[i - 1].key;
        if (list[i].value % 2 == 0) {
            p->from[item] = p->moment_count - 1;
            p->by_start[starts++] = item;
        } else {
            p->to[item] = p->moment_count - 1;
            p->by_end[ends++] = item;
        }
    }
}

static int take_arrays(struct weir__packing *p) {
    struct weir__pool *pool = &p->pool;
    uint32_t **lists[] = {&p->from, &p->to, &p->by_start, &p->by_end, &p->by_size, &p->type};
    for (size_t i = 0; i < WEIR__COUNT_OF(lists); i++)
        if ((*lists[i] = weir__pool_take(pool, p->count, sizeof **lists[i])) == NULL)
            return WEIR_ERR_OUT_OF_MEMORY;
    p->offsets = weir__pool_take(pool, p->count, sizeof *p->offsets);
    return p->offsets != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

static int rank(struct weir__packing *p) {
    int status = take_arrays(p);
    if (status != WEIR_OK) return status;
    struct weir__keyed *list = weir__pool_take(&p->pool, 2 * (size_t)p->count, sizeof *list);
    struct weir__keyed *other = weir__pool_take(&p->pool, 2 * (size_t)p->count, sizeof *other);
    if (list == NULL || other == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    rank_sizes(p, list, other);
    rank_times(p, list, other);
    return WEIR_OK;
}

/* What ends at an instant is gone before what starts then. */
static size_t find_bound(const struct weir__packing *p) {
    size_t live = 0, most = 0;
    uint32_t ended = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t item = p->by_start[i];
        for (; p->to[p->by_end[ended]] <= p->from[item]; ended++)
            live -= p->items[p->by_end[ended]].bytes;
        live += p->items[item].bytes;
        assert(ended <= i);
        if (live > most) most = live;
    }
    assert(live <= most);
    return most;
}

void weir__packing_keep(struct weir__packing *p, size_t bytes) {
    assert(bytes >= p->bound);
    if (bytes >= p->best) return;
    p->best = bytes;
    for (uint32_t i = 0; i < p->count; i++) p->items[i].offset = p->offsets[i];
}

/* ---- near enough ---- */

static size_t within(const struct weir__pack_options *options, size_t bound, double part) {
    assert(part > 0.0);
    double more = part * ((double)bound + (double)options->beside);
    return options->fit > bound ? options->fit : bound + (options->fit == 0 ? (size_t)more : 0);
}

bool weir__packing_is_far(const struct weir__pack_options *options, size_t bytes, size_t bound) {
    return bytes > within(options, bound, 0.03);
}

size_t weir__packing_goal(const struct weir__packing *p) {
    return within(p->options, p->bound, 0.03);
}

bool weir__packing_is_good(const struct weir__packing *p) {
    return p->best <= within(p->options, p->bound, 0.01);
}

/* ---- by time ---- */

struct gap {
    size_t at, end;
};

struct gaps {
    struct gap *list; /* ascending; the last has no end */
    uint32_t count;
};

static size_t take_gap(struct gaps *gaps, size_t bytes) {
    assert(bytes > 0 && gaps->count > 0 && gaps->list[gaps->count - 1].end == SIZE_MAX);
    uint32_t i = 0;
    while (gaps->list[i].end - gaps->list[i].at < bytes) i++;
    size_t at = gaps->list[i].at;
    gaps->list[i].at += bytes;
    if (gaps->list[i].at < gaps->list[i].end) return at;
    gaps->count--;
    memmove(&gaps->list[i], &gaps->list[i + 1], (gaps->count - i) * sizeof *gaps->list);
    return at;
}

static void give_gap(struct gaps *gaps, size_t at, size_t end) {
    assert(at < end && gaps->count > 0);
    uint32_t low = 0, high = gaps->count - 1; /* the first gap above */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (gaps->list[middle].at >= end)
            high = middle;
        else
            low = middle + 1;
    }
    struct gap *next = &gaps->list[low];
    assert(next->at >= end && (low == 0 || next[-1].end <= at));
    bool below = low > 0 && next[-1].end == at, above = next->at == end;
    if (below && above) {
        next[-1].end = next->end;
        gaps->count--;
        memmove(next, next + 1, (gaps->count - low) * sizeof *next);
    } else if (below) {
        next[-1].end = end;
    } else if (above) {
        next->at = at;
    } else {
        memmove(next + 1, next, (gaps->count - low) * sizeof *next);
        *next = (struct gap){at, end};
        gaps->count++;
    }
}

static bool is_over(const struct weir__packing *p, uint32_t old, uint32_t now, bool backwards) {
    return backwards ? p->from[old] >= p->to[now] : p->to[old] <= p->from[now];
}

static void pack_by_time(struct weir__packing *p, struct gaps *gaps, const size_t *sizes,
                         bool backwards) {
    assert(p->count > 0);
    size_t total = 0;
    uint32_t last = p->count - 1, over = 0;
    gaps->list[0] = (struct gap){0, SIZE_MAX};
    gaps->count = 1;
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t item = backwards ? p->by_end[last - i] : p->by_start[i];
        for (;; over++) {
            uint32_t old = backwards ? p->by_start[last - over] : p->by_end[over];
            if (!is_over(p, old, item, backwards)) break;
            give_gap(gaps, p->offsets[old], p->offsets[old] + sizes[old]);
        }
        p->offsets[item] = take_gap(gaps, sizes[item]);
        assert(over <= i);
        size_t end = p->offsets[item] + p->items[item].bytes;
        if (end > total) total = end;
    }
    weir__packing_keep(p, total);
}

/* ---- the portfolio ---- */

/* With the true sizes and, where there are too many blocks for lists, with rounded ones. */
static void pack_by_times(struct weir__packing *p, struct gaps *gaps, uint32_t roundings) {
    for (uint32_t i = 0; i < roundings; i++) {
        weir__packing_round(p, i);
        for (int backwards = 0; backwards < 2 && !weir__packing_is_good(p); backwards++)
            pack_by_time(p, gaps, p->sizes, backwards != 0);
    }
}

static int pack_all(struct weir__packing *p) {
    assert(p->count > 0 && p->bound > 0);
    struct gaps gaps = {weir__pool_take(&p->pool, (size_t)p->count + 2, sizeof *gaps.list), 0};
    bool few = weir__packing_lists_can(p);
    p->sizes = weir__pool_take(&p->pool, p->count, sizeof *p->sizes);
    p->class_of = weir__pool_take(&p->pool, p->count, sizeof *p->class_of);
    if (gaps.list == NULL || p->sizes == NULL || p->class_of == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    pack_by_times(p, &gaps, few ? 1 : WEIR__PACK_ROUNDINGS);
    if (weir__packing_is_good(p)) return WEIR_OK;
    int status = few ? weir__packing_lists(p) : WEIR_OK;
    if (status != WEIR_OK || weir__packing_is_good(p)) return status;
    if ((status = weir__packing_skyline(p)) != WEIR_OK) return status;
    bool far = weir__packing_is_far(p->options, p->best, p->bound);
    return p->options->search && few && far ? weir__packing_repair(p) : WEIR_OK;
}

/* As if nobody had asked for a fit, and nothing were found yet: so it is as good as that. What was
 * found is taken back where it is better. */
static int pack_without_fit(struct weir__packing *p) {
    assert(p->options->fit > 0 && p->best < SIZE_MAX);
    struct weir__pack_options wide = *p->options;
    size_t found = p->best, *offsets = weir__pool_take(&p->pool, p->count, sizeof *offsets);
    if (offsets == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < p->count; i++) offsets[i] = p->items[i].offset;
    wide.fit = 0;
    p->options = &wide;
    p->best = SIZE_MAX;
    int status = pack_all(p);
    if (status != WEIR_OK || p->best <= found) return status;
    p->best = found;
    for (uint32_t i = 0; i < p->count; i++) p->items[i].offset = offsets[i];
    return WEIR_OK;
}

static int rank_and_pack(struct weir__packing *p) {
    int status = rank(p);
    if (status != WEIR_OK) return status;
    p->bound = find_bound(p);
    status = pack_all(p);
    if (status != WEIR_OK || p->options->fit == 0 || p->best <= p->options->fit) return status;
    return pack_without_fit(p);
}

int weir__packing_run(struct weir__pack_item *items, uint32_t count,
                      const struct weir__pack_options *options, size_t *bytes, size_t *bound) {
    struct weir__packing p = {.items = items, .count = count, .options = options, .best = SIZE_MAX};
    *bytes = *bound = 0;
    if (count == 0) return WEIR_OK;
    assert(items != NULL && options != NULL);
    weir__pool_init(&p.pool, options->allocator);
    int status = rank_and_pack(&p);
    if (status == WEIR_OK) *bytes = p.best, *bound = p.bound;
    weir__pool_clean_up(&p.pool);
    return status;
}
