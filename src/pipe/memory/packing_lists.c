/* SPDX-License-Identifier: MIT */
/* Blocks one by one from a list, each at the lowest offset that is free during its whole life. */
#include "pipe/memory/packing.h"

#include <string.h>

/* ---- classes of sizes ---- */

static const double roundings[WEIR__PACK_ROUNDINGS] = {0.0, 0.03, 0.07, 0.12, 0.2, 0.35, 0.6, 1.1};

void weir__packing_round(struct weir__packing *p, uint32_t rounding) {
    assert(rounding < WEIR__PACK_ROUNDINGS);
    size_t largest = 0;
    uint32_t number = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t item = p->by_size[i];
        size_t bytes = p->items[item].bytes;
        bool less = (double)bytes * (1.0 + roundings[rounding]) < (double)largest;
        if (i == 0 || less) largest = bytes, number++;
        assert(largest >= bytes && number > 0);
        p->sizes[item] = largest;
        p->class_of[item] = number;
    }
}

/* ---- one list ---- */

/* Comparisons of blocks in pairs: 5 ms or so for all orders, and 15 ms for repairs. One pass over
 * 640 blocks makes 200,000. */
enum { LIST_WORK = 1 << 23, REPAIR_WORK = 3 << 23, REPAIRS = 8 };

enum order { ORDER_START, ORDER_LIFE, ORDER_END, ORDER_COUNT };

struct placed {
    size_t at, end;
    uint32_t from, to, item;
};

/* An order that has been tried, and how high it got. */
struct tried {
    size_t total;
    uint32_t rounding;
    enum order order;
};

struct weir__lists {
    struct weir__keyed *keyed, *other;
    uint32_t *list;        /* [place] */
    struct placed *placed; /* ascending */
    struct tried tried[WEIR__PACK_ROUNDINGS * ORDER_COUNT];
    uint32_t tried_count;
    uint64_t work; /* done */
};

static size_t lowest_gap(const struct placed *placed, uint32_t count, size_t bytes, uint32_t from,
                         uint32_t to) {
    assert(bytes > 0 && from < to);
    size_t low = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (placed[i].from >= to || from >= placed[i].to) continue;
        if (placed[i].at >= low + bytes) break;
        if (placed[i].end > low) low = placed[i].end;
    }
    return low;
}

static void insert(struct placed *placed, uint32_t count, const struct placed *now) {
    assert(now->at < now->end && now->from < now->to);
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
static size_t pack_list(struct weir__packing *p, struct weir__lists *l, const size_t *sizes) {
    size_t total = 0;
    for (uint32_t n = 0; n < p->count; n++) {
        uint32_t item = l->list[n], from = p->from[item], to = p->to[item];
        size_t bytes = sizes != NULL ? sizes[item] : p->items[item].bytes;
        size_t at = lowest_gap(l->placed, n, bytes, from, to);
        insert(l->placed, n, &(struct placed){at, at + bytes, from, to, item});
        p->offsets[item] = at;
        if (at + bytes > total) total = at + bytes;
        assert(bytes >= p->items[item].bytes);
    }
    l->work += (uint64_t)p->count * p->count / 2;
    return total;
}

/* The same once more from below, now with the true sizes: what rounding took is given back. */
static size_t pack_again(struct weir__packing *p, struct weir__lists *l) {
    for (uint32_t n = 0; n < p->count; n++) l->list[n] = l->placed[n].item;
    return pack_list(p, l, NULL);
}

/* Classes from the largest; within one the earliest, the longest life or the latest end first. */
static void list_classes(const struct weir__packing *p, struct weir__lists *l, enum order order) {
    assert((unsigned)order < ORDER_COUNT);
    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t item = p->by_start[i], key = p->from[item];
        if (order == ORDER_LIFE) key = UINT32_MAX - (p->to[item] - p->from[item]);
        if (order == ORDER_END) key = UINT32_MAX - p->to[item];
        l->keyed[i] = (struct weir__keyed){(uint64_t)p->class_of[item] << 32 | key, item};
    }
    weir__packing_sort(l->keyed, l->other, p->count);
    for (uint32_t i = 0; i < p->count; i++) l->list[i] = l->keyed[i].value;
}

static bool take_lists(struct weir__packing *p, struct weir__lists *l) {
    struct weir__pool *pool = &p->pool;
    l->keyed = weir__pool_take(pool, p->count, sizeof *l->keyed);
    l->other = weir__pool_take(pool, p->count, sizeof *l->other);
    l->list = weir__pool_take(pool, p->count, sizeof *l->list);
    l->placed = weir__pool_take(pool, (size_t)p->count + 1, sizeof *l->placed);
    return l->keyed != NULL && l->other != NULL && l->list != NULL && l->placed != NULL;
}

bool weir__packing_lists_can(const struct weir__packing *p) {
    return (uint64_t)p->count * p->count / 2 <= LIST_WORK;
}

/* Kept in the order of what they have reached. */
static void note_tried(struct weir__lists *l, const struct tried *now) {
    assert(l->tried_count < WEIR__COUNT_OF(l->tried));
    uint32_t i = l->tried_count++;
    for (; i > 0 && l->tried[i - 1].total > now->total; i--) l->tried[i] = l->tried[i - 1];
    l->tried[i] = *now;
}

int weir__packing_lists(struct weir__packing *p) {
    assert(weir__packing_lists_can(p));
    struct weir__lists *l = p->lists = weir__pool_take(&p->pool, 1, sizeof *l);
    if (l == NULL || !take_lists(p, l)) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < WEIR__PACK_ROUNDINGS; i++) {
        weir__packing_round(p, i);
        for (int order = 0; order < ORDER_COUNT; order++) {
            if (weir__packing_is_good(p) || l->work > LIST_WORK) return WEIR_OK;
            list_classes(p, l, (enum order)order);
            size_t total = pack_list(p, l, p->sizes);
            if (i > 0) total = pack_again(p, l);
            weir__packing_keep(p, total);
            note_tried(l, &(struct tried){total, i, (enum order)order});
        }
    }
    return WEIR_OK;
}

/* ---- repairs ---- */

struct repair {
    struct weir__packing *packing;
    struct weir__lists *lists;
    uint32_t *list;  /* what is kept … */
    size_t *offsets; /* … where that puts the blocks, by rounded sizes … */
    double over;     /* … and how much of them is above the goal */
    size_t goal;
    uint32_t round;
};

static double over(const struct repair *r) {
    const struct weir__packing *p = r->packing;
    double sum = 0.0;
    for (uint32_t i = 0; i < p->count; i++) {
        size_t end = p->offsets[i] + p->sizes[i];
        if (end > r->goal) sum += (double)(p->offsets[i] > r->goal ? p->sizes[i] : end - r->goal);
    }
    return sum;
}

static bool lie_high(const struct repair *r, uint32_t item) {
    return r->offsets[item] + r->packing->sizes[item] > r->goal;
}

/* The place in the list of one that lies too high, or, one time in eight, of any. */
static uint32_t choose_place(const struct repair *r, const uint32_t words[4]) {
    uint32_t count = r->packing->count, high = 0;
    for (uint32_t i = 0; i < count; i++) high += lie_high(r, r->list[i]);
    if (high == 0 || words[0] % 8 == 0) return words[1] % count;
    uint32_t skip = words[1] % high, place = 0;
    while (!lie_high(r, r->list[place]) || skip-- > 0) place++;
    assert(place < count);
    return place;
}

static bool live_together(const struct weir__packing *p, uint32_t a, uint32_t b) {
    return p->from[a] < p->to[b] && p->from[b] < p->to[a];
}

/* The place of an earlier one that it lives with, or, one time in four, the first. */
static uint32_t choose_goal(const struct repair *r, uint32_t place, const uint32_t words[4]) {
    const struct weir__packing *p = r->packing;
    uint32_t with = 0, earlier = 0;
    for (uint32_t i = 0; i < place; i++) with += live_together(p, r->list[i], r->list[place]);
    if (with == 0 || words[2] % 4 == 0) return 0;
    uint32_t skip = words[3] % with;
    while (!live_together(p, r->list[earlier], r->list[place]) || skip-- > 0) earlier++;
    assert(earlier < place);
    return earlier;
}

/* One block goes before an earlier one, or changes places with it. */
static void change_list(struct repair *r) {
    uint32_t words[4], *list = r->lists->list;
    weir__philox_words(r->round++, 0, 0, 1, 0, words);
    uint32_t place = choose_place(r, words), to = choose_goal(r, place, words);
    assert(place < r->packing->count && to <= place);
    memcpy(list, r->list, r->packing->count * sizeof *list);
    uint32_t item = list[place];
    if ((words[2] >> 16 & 1) != 0)
        list[place] = list[to];
    else
        memmove(&list[to + 1], &list[to], (place - to) * sizeof *list);
    list[to] = item;
}

/* Takes over the list just packed, and what it comes to with the true sizes. */
static void keep_list(struct repair *r, double now) {
    struct weir__packing *p = r->packing;
    r->over = now;
    memcpy(r->list, r->lists->list, p->count * sizeof *r->list);
    memcpy(r->offsets, p->offsets, p->count * sizeof *r->offsets);
    weir__packing_keep(p, pack_again(p, r->lists));
}

static void repair(struct repair *r, const struct tried *from, uint64_t work) {
    struct weir__packing *p = r->packing;
    struct weir__lists *l = r->lists;
    weir__packing_round(p, from->rounding);
    list_classes(p, l, from->order);
    (void)pack_list(p, l, p->sizes);
    keep_list(r, over(r));
    for (uint64_t end = l->work + work; l->work < end && p->best > r->goal;) {
        change_list(r);
        (void)pack_list(p, l, p->sizes);
        double now = over(r);
        if (now <= r->over) keep_list(r, now);
    }
}

int weir__packing_repair(struct weir__packing *p) {
    assert(p->lists != NULL && p->lists->tried_count > 0);
    struct repair r = {.packing = p, .lists = p->lists, .goal = weir__packing_goal(p)};
    r.list = weir__pool_take(&p->pool, p->count, sizeof *r.list);
    r.offsets = weir__pool_take(&p->pool, p->count, sizeof *r.offsets);
    if (r.list == NULL || r.offsets == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < p->lists->tried_count && i < REPAIRS && p->best > r.goal; i++)
        repair(&r, &p->lists->tried[i], REPAIR_WORK / REPAIRS);
    return WEIR_OK;
}
