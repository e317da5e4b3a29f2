/* SPDX-License-Identifier: MIT */
/* Times become ranks, once; then the cheap methods. */
#include "pipe/packing.h"

#include <string.h>

/* ---- ranks ---- */

struct keyed {
    uint64_t key;
    uint32_t value;
};

/* Stable, by bytes of the key; those that are the same in all keys are passed over. `other` is as
 * large as `list`. */
static void sort_keyed(struct keyed *list, struct keyed *other, uint32_t count) {
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
static void rank_sizes(struct weir__packing *p, struct keyed *list, struct keyed *other) {
    for (uint32_t i = 0; i < p->count; i++) list[i] = (struct keyed){p->items[i].group, i};
    sort_keyed(list, other, p->count);
    for (uint32_t i = 0; i < p->count; i++)
        list[i].key = UINT64_MAX - p->items[list[i].value].bytes;
    sort_keyed(list, other, p->count);
    for (uint32_t i = 0; i < p->count; i++) {
        const struct weir__pack_item *item = &p->items[list[i].value];
        const struct weir__pack_item *before = i > 0 ? &p->items[p->by_size[i - 1]] : NULL;
        bool same = before != NULL && before->bytes == item->bytes && before->group == item->group;
        p->type_count += !same;
        p->by_size[i] = list[i].value;
        p->type[list[i].value] = p->type_count - 1;
    }
}

/* Moments of all items in order; equal times are one rank. */
static void rank_times(struct weir__packing *p, struct keyed *list, struct keyed *other) {
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t item = p->by_size[i];
        list[2 * i] = (struct keyed){time_key(p->items[item].start), 2 * item};
        list[2 * i + 1] = (struct keyed){time_key(p->items[item].end), 2 * item + 1};
    }
    sort_keyed(list, other, 2 * p->count);
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
    struct keyed *list = weir__pool_take(&p->pool, 2 * (size_t)p->count, sizeof *list);
    struct keyed *other = weir__pool_take(&p->pool, 2 * (size_t)p->count, sizeof *other);
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
        if (live > most) most = live;
    }
    return most;
}

void weir__packing_keep(struct weir__packing *p, size_t bytes) {
    assert(bytes >= p->bound);
    if (bytes >= p->best) return;
    p->best = bytes;
    for (uint32_t i = 0; i < p->count; i++) p->items[i].offset = p->offsets[i];
}

/* ---- classes of sizes ---- */

static const double roundings[] = {0.0, 0.03, 0.07, 0.12, 0.2, 0.35, 0.6, 1.1};

struct rounded {
    size_t *sizes;      /* [item] up to its class's largest */
    uint32_t *class_of; /* [item] */
};

/* Sizes that are less than `more` apart become one: blocks of one class fit into each other's
 * places, and none leaves a gap that nothing fits into. */
static void round_sizes(const struct weir__packing *p, struct rounded *r, double more) {
    size_t largest = 0;
    uint32_t number = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t item = p->by_size[i];
        size_t bytes = p->items[item].bytes;
        if (i == 0 || (double)bytes * (1.0 + more) < (double)largest) largest = bytes, number++;
        r->sizes[item] = largest;
        r->class_of[item] = number;
    }
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
    uint32_t low = 0, high = gaps->count - 1; /* the first gap above */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (gaps->list[middle].at >= end)
            high = middle;
        else
            low = middle + 1;
    }
    struct gap *next = &gaps->list[low];
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
        size_t end = p->offsets[item] + p->items[item].bytes;
        if (end > total) total = end;
    }
    weir__packing_keep(p, total);
}

/* ---- by a list ---- */

/* Comparisons of blocks in pairs: 5 ms or so. One pass over 640 blocks makes 200,000. */
enum { LIST_WORK = 1 << 23 };

struct placed {
    size_t at, end;
    uint32_t from, to, item;
};

struct lists {
    struct keyed *keyed, *other;
    uint32_t *list;        /* [place] */
    struct placed *placed; /* ascending */
    uint64_t work;         /* done */
};

static size_t lowest_gap(const struct placed *placed, uint32_t count, size_t bytes, uint32_t from,
                         uint32_t to) {
    size_t low = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (placed[i].from >= to || from >= placed[i].to) continue;
        if (placed[i].at >= low + bytes) break;
        if (placed[i].end > low) low = placed[i].end;
    }
    return low;
}

static void insert(struct placed *placed, uint32_t count, const struct placed *now) {
    uint32_t low = 0, high = count; /* the first above */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (placed[middle].at > now->at)
            high = middle;
        else
            low = middle + 1;
    }
    memmove(&placed[low + 1], &placed[low], (count - low) * sizeof *placed);
    placed[low] = *now;
}

/* Returns how high it gets. */
static size_t pack_list(struct weir__packing *p, struct lists *l, const size_t *sizes) {
    size_t total = 0;
    for (uint32_t n = 0; n < p->count; n++) {
        uint32_t item = l->list[n], from = p->from[item], to = p->to[item];
        size_t bytes = sizes != NULL ? sizes[item] : p->items[item].bytes;
        size_t at = lowest_gap(l->placed, n, bytes, from, to);
        insert(l->placed, n, &(struct placed){at, at + bytes, from, to, item});
        p->offsets[item] = at;
        if (at + bytes > total) total = at + bytes;
    }
    l->work += (uint64_t)p->count * p->count / 2;
    return total;
}

/* The same once more from below, now with the true sizes: what rounding took is given back. */
static size_t pack_again(struct weir__packing *p, struct lists *l) {
    for (uint32_t n = 0; n < p->count; n++) l->list[n] = l->placed[n].item;
    return pack_list(p, l, NULL);
}

enum order { ORDER_START, ORDER_LIFE, ORDER_END, ORDER_COUNT };

/* Classes from the largest; within one the earliest, the longest life or the latest end first. */
static void list_classes(const struct weir__packing *p, struct lists *l, const struct rounded *r,
                         enum order order) {
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t item = p->by_start[i], key = p->from[item];
        if (order == ORDER_LIFE) key = UINT32_MAX - (p->to[item] - p->from[item]);
        if (order == ORDER_END) key = UINT32_MAX - p->to[item];
        l->keyed[i] = (struct keyed){(uint64_t)r->class_of[item] << 32 | key, item};
    }
    sort_keyed(l->keyed, l->other, p->count);
    for (uint32_t i = 0; i < p->count; i++) l->list[i] = l->keyed[i].value;
}

static bool take_lists(struct weir__packing *p, struct lists *l) {
    struct weir__pool *pool = &p->pool;
    l->keyed = weir__pool_take(pool, p->count, sizeof *l->keyed);
    l->other = weir__pool_take(pool, p->count, sizeof *l->other);
    l->list = weir__pool_take(pool, p->count, sizeof *l->list);
    l->placed = weir__pool_take(pool, (size_t)p->count + 1, sizeof *l->placed);
    return l->keyed != NULL && l->other != NULL && l->list != NULL && l->placed != NULL;
}

static bool is_good(const struct weir__packing *p) {
    size_t goal = p->target > p->bound ? p->target : p->bound + p->bound / 256;
    return p->best <= goal;
}

static int pack_lists(struct weir__packing *p, struct rounded *r) {
    struct lists l = {0};
    if (!take_lists(p, &l)) return WEIR_ERR_OUT_OF_MEMORY;
    for (size_t i = 0; i < WEIR__COUNT_OF(roundings); i++) {
        round_sizes(p, r, roundings[i]);
        for (int order = 0; order < ORDER_COUNT; order++) {
            if (is_good(p) || l.work > LIST_WORK) return WEIR_OK;
            list_classes(p, &l, r, (enum order)order);
            size_t total = pack_list(p, &l, r->sizes);
            weir__packing_keep(p, i == 0 ? total : pack_again(p, &l));
        }
    }
    return WEIR_OK;
}

/* ---- the portfolio ---- */

static int pack_all(struct weir__packing *p) {
    struct gaps gaps = {weir__pool_take(&p->pool, (size_t)p->count + 2, sizeof *gaps.list), 0};
    struct rounded r = {weir__pool_take(&p->pool, p->count, sizeof *r.sizes),
                        weir__pool_take(&p->pool, p->count, sizeof *r.class_of)};
    bool few = (uint64_t)p->count * p->count / 2 <= LIST_WORK;
    if (gaps.list == NULL || r.sizes == NULL || r.class_of == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (size_t i = 0; i < (few ? 1 : WEIR__COUNT_OF(roundings)); i++) {
        round_sizes(p, &r, roundings[i]);
        for (int backwards = 0; backwards < 2 && !is_good(p); backwards++)
            pack_by_time(p, &gaps, r.sizes, backwards != 0);
    }
    int status = is_good(p) || !few ? WEIR_OK : pack_lists(p, &r);
    return status != WEIR_OK || is_good(p) ? status : weir__packing_skyline(p);
}

int weir__packing_run(struct weir__pack_item *items, uint32_t count,
                      const struct weir_allocator *allocator, size_t *bytes, size_t *bound) {
    struct weir__packing p = {.items = items, .count = count, .target = *bytes, .best = SIZE_MAX};
    *bytes = *bound = 0;
    if (count == 0) return WEIR_OK;
    weir__pool_init(&p.pool, allocator);
    int status = rank(&p);
    if (status == WEIR_OK) {
        p.bound = find_bound(&p);
        status = pack_all(&p);
        *bytes = p.best, *bound = p.bound;
    }
    weir__pool_clean_up(&p.pool);
    return status;
}
