/* SPDX-License-Identifier: MIT */
/* The skyline over time: how high the blocks placed so far reach at each moment. Blocks go onto the
 * lowest valley, or the valley is filled up to its lower side where none fits. */
#include "pipe/memory/packing.h"

#include <string.h>

#define NONE UINT32_MAX

/* Blocks that one valley looks at, and blocks placed in a search (some 0.1 us each), where the goal
 * is to be near the bound, or to fit. */
enum { WINDOW = 256, SEARCH_WORK = 1 << 16, SEARCH_WORK_FIT = 1 << 18, SEARCH_RESTART = 200 };

/* What is preferred of the blocks that fit into a valley. */
enum rule { BY_RANK, BY_LIFE };
enum tie { TIE_START, TIE_LIFE, TIE_END, TIE_COUNT };

struct segment {
    size_t height;
    uint32_t from, to; /* moments */
    uint32_t left, right;
    bool alive;
};

struct low { /* of the heap */
    size_t height;
    uint32_t from, segment;
};

struct skyline {
    struct weir__packing *packing;
    struct segment *segments;
    struct low *heap;
    uint32_t segment_count, heap_count;
    uint32_t *first; /* [moment] the first in by_start that starts there or later */
    uint32_t *next;  /* [place in by_start] itself, or a later one: leads to one not placed yet */
    size_t *live;    /* [moment] bytes that live then */
    size_t *lost;    /* [moment] what valleys that were filled up have left unused */
    double *rank;    /* [type] the smaller is preferred */
    double *kept_rank;
    enum rule rule;
    enum tie tie;
    uint64_t work; /* blocks placed */
};

/* ---- the lowest segment ---- */

static bool is_lower(const struct low *a, const struct low *b) {
    return a->height != b->height ? a->height < b->height : a->from < b->from;
}

static void heap_push(struct skyline *s, uint32_t segment) {
    assert(s->segments[segment].alive);
    assert(s->heap_count < 2 * (3 * (size_t)s->packing->count + 1));
    struct low entry = {s->segments[segment].height, s->segments[segment].from, segment};
    uint32_t i = s->heap_count++;
    for (; i > 0 && is_lower(&entry, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = entry;
}

static struct low heap_pop(struct skyline *s) {
    assert(s->heap_count > 0);
    struct low top = s->heap[0], entry = s->heap[--s->heap_count];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= s->heap_count) break;
        if (child + 1 < s->heap_count && is_lower(&s->heap[child + 1], &s->heap[child])) child++;
        if (!is_lower(&s->heap[child], &entry)) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = entry;
    return top;
}

/* Entries of segments that are no more, or have changed since, are passed over. */
static uint32_t lowest(struct skyline *s) {
    for (;;) {
        struct low top = heap_pop(s);
        const struct segment *segment = &s->segments[top.segment];
        if (segment->alive && segment->height == top.height && segment->from == top.from)
            return top.segment;
    }
}

/* ---- segments ---- */

static uint32_t add_segment(struct skyline *s, size_t height, uint32_t from, uint32_t to) {
    assert(from < to && s->segment_count < 3 * (size_t)s->packing->count + 1);
    s->segments[s->segment_count] = (struct segment){height, from, to, NONE, NONE, true};
    return s->segment_count++;
}

static void join(struct skyline *s, uint32_t left, uint32_t right) {
    assert(left == NONE || left != right);
    if (left != NONE) s->segments[left].right = right;
    if (right != NONE) s->segments[right].left = left;
}

/* Swallows neighbours of the same height, and stands for itself in the heap. */
static void settle(struct skyline *s, uint32_t at) {
    struct segment *segment = &s->segments[at];
    assert(segment->alive && segment->from < segment->to);
    uint32_t left = segment->left, right = segment->right;
    if (left != NONE && s->segments[left].height == segment->height) {
        segment->from = s->segments[left].from;
        s->segments[left].alive = false;
        join(s, s->segments[left].left, at);
    }
    if (right != NONE && s->segments[right].height == segment->height) {
        segment->to = s->segments[right].to;
        s->segments[right].alive = false;
        join(s, at, s->segments[right].right);
    }
    heap_push(s, at);
}

/* Returns the most that must be reached at the moments of the valley, since their blocks go onto
 * it. */
static size_t fill_up(struct skyline *s, uint32_t at) {
    struct segment *segment = &s->segments[at];
    size_t left = segment->left == NONE ? SIZE_MAX : s->segments[segment->left].height;
    size_t right = segment->right == NONE ? SIZE_MAX : s->segments[segment->right].height;
    size_t height = left < right ? left : right, most = 0;
    assert(height != SIZE_MAX); /* the whole time fits every block */
    assert(height > segment->height);
    for (uint32_t moment = segment->from; moment < segment->to; moment++) {
        s->lost[moment] += height - segment->height;
        if (s->live[moment] + s->lost[moment] > most) most = s->live[moment] + s->lost[moment];
    }
    segment->height = height;
    settle(s, at);
    return most;
}

/* Puts a block of [from, to) into the valley; what is left of it on both sides stays low. */
static void build_up(struct skyline *s, uint32_t at, uint32_t from, uint32_t to, size_t bytes) {
    struct segment valley = s->segments[at];
    assert(valley.alive && valley.from <= from && to <= valley.to);
    uint32_t left = valley.left, right = valley.right;
    s->segments[at].alive = false;
    uint32_t block = add_segment(s, valley.height + bytes, from, to);
    if (valley.from < from) {
        uint32_t rest = add_segment(s, valley.height, valley.from, from);
        join(s, left, rest);
        left = rest;
        heap_push(s, rest);
    }
    if (to < valley.to) {
        uint32_t rest = add_segment(s, valley.height, to, valley.to);
        join(s, rest, right);
        right = rest;
        heap_push(s, rest);
    }
    join(s, left, block);
    join(s, block, right);
    settle(s, block);
}

/* ---- which block ---- */

static uint32_t next_left(struct skyline *s, uint32_t place) {
    assert(place <= s->packing->count);
    uint32_t root = place;
    while (s->next[root] != root) root = s->next[root];
    while (s->next[place] != root) {
        uint32_t after = s->next[place];
        s->next[place] = root;
        place = after;
    }
    assert(root <= s->packing->count);
    return root;
}

static uint32_t tie_of(const struct skyline *s, uint32_t item) {
    const struct weir__packing *p = s->packing;
    if (s->tie == TIE_START) return p->from[item];
    return s->tie == TIE_LIFE ? UINT32_MAX - (p->to[item] - p->from[item])
                              : UINT32_MAX - p->to[item];
}

/* Longer is better, then a wall that is touched; best is what fills the valley. */
static uint64_t life_in(const struct weir__packing *p, const struct segment *valley,
                        uint32_t item) {
    bool left = p->from[item] == valley->from, right = p->to[item] == valley->to;
    return left && right ? UINT64_MAX
                         : 2 * (uint64_t)(p->to[item] - p->from[item]) + (left || right);
}

static bool is_better(const struct skyline *s, const struct segment *valley, uint32_t a,
                      uint32_t b) {
    const struct weir__packing *p = s->packing;
    if (s->rule == BY_LIFE) {
        uint64_t x = life_in(p, valley, a), y = life_in(p, valley, b);
        if (x != y) return x > y;
    }
    double x = s->rank[p->type[a]], y = s->rank[p->type[b]];
    return x != y ? x < y : tie_of(s, a) < tie_of(s, b);
}

/* The place in by_start of the block for the valley, or NONE. */
static uint32_t choose(struct skyline *s, const struct segment *valley) {
    const struct weir__packing *p = s->packing;
    uint32_t best = NONE, looked = 0;
    uint32_t place = next_left(s, s->first[valley->from]);
    for (; place < p->count && looked < WINDOW; place = next_left(s, place + 1), looked++) {
        uint32_t item = p->by_start[place];
        if (p->from[item] >= valley->to) break;
        if (p->to[item] > valley->to) continue;
        if (best == NONE || is_better(s, valley, item, p->by_start[best])) best = place;
    }
    assert(best == NONE || best < p->count);
    return best;
}

/* Returns how high it gets; ends early where that is above the limit. */
static size_t pack(struct skyline *s, size_t limit) {
    struct weir__packing *p = s->packing;
    size_t total = 0;
    memset(s->lost, 0, p->moment_count * sizeof *s->lost);
    s->segment_count = s->heap_count = 0;
    for (uint32_t i = 0; i <= p->count; i++) s->next[i] = i;
    heap_push(s, add_segment(s, 0, 0, p->moment_count - 1));
    for (uint32_t placed = 0; placed < p->count;) {
        uint32_t at = lowest(s), place = choose(s, &s->segments[at]);
        if (place == NONE) {
            size_t least = fill_up(s, at);
            if (least > limit) return least;
            continue;
        }
        uint32_t item = p->by_start[place];
        size_t low = s->segments[at].height, bytes = p->items[item].bytes;
        assert(s->next[place] == place);
        p->offsets[item] = low;
        s->work++;
        if (low + bytes > total) total = low + bytes;
        s->next[place] = place + 1;
        build_up(s, at, p->from[item], p->to[item], bytes);
        placed++;
    }
    weir__packing_keep(p, total);
    return total;
}

/* ---- the search ---- */

/* Near enough to log2, and the same everywhere. */
static double log2_near(size_t bytes) {
    double value = (double)bytes, power = 0.0;
    for (; value >= 2.0; value /= 2.0) power += 1.0;
    return power + (value - 1.0);
}

static void rank_by_size(struct skyline *s) {
    const struct weir__packing *p = s->packing;
    for (uint32_t i = 0; i < p->count; i++) s->rank[p->type[i]] = -log2_near(p->items[i].bytes);
}

/* One to three types move, up to the place of ones about twice or half as large. */
static void change_ranks(struct skyline *s, uint32_t round) {
    assert(s->packing->type_count > 0);
    uint32_t words[4];
    weir__philox_words(round, 0, 0, 0, 0, words);
    s->tie = (enum tie)(words[0] % TIE_COUNT);
    s->rule = words[0] >> 8 & 1 ? BY_LIFE : BY_RANK;
    for (uint32_t i = 1; i <= 1 + (words[0] >> 16) % 3; i++) {
        double by = ((double)(words[i] >> 16) / 65536.0 - 0.5) * 2.5;
        s->rank[words[i] % 65536 % s->packing->type_count] += by;
    }
}

static void search(struct skyline *s) {
    struct weir__packing *p = s->packing;
    size_t ranks = p->type_count * sizeof *s->rank, last = SIZE_MAX;
    uint64_t most = s->work + (p->options->fit > 0 ? SEARCH_WORK_FIT : SEARCH_WORK);
    for (uint32_t round = 0; s->work < most; round++) {
        if (!weir__packing_is_far(p->options, p->best, p->bound)) return;
        if (round % SEARCH_RESTART == 0) {
            rank_by_size(s);
            memcpy(s->kept_rank, s->rank, ranks);
            last = SIZE_MAX;
        }
        memcpy(s->rank, s->kept_rank, ranks);
        change_ranks(s, round);
        size_t total = pack(s, last);
        if (total > last) continue;
        memcpy(s->kept_rank, s->rank, ranks);
        last = total;
    }
}

static bool take_arrays(struct skyline *s) {
    struct weir__packing *p = s->packing;
    /* a block adds three segments at most, and each of these stands twice in the heap at most */
    size_t segments = 3 * (size_t)p->count + 1;
    s->segments = weir__pool_take(&p->pool, segments, sizeof *s->segments);
    s->heap = weir__pool_take(&p->pool, 2 * segments, sizeof *s->heap);
    s->first = weir__pool_take(&p->pool, p->moment_count, sizeof *s->first);
    s->next = weir__pool_take(&p->pool, (size_t)p->count + 1, sizeof *s->next);
    s->live = weir__pool_take(&p->pool, p->moment_count, sizeof *s->live);
    s->lost = weir__pool_take(&p->pool, p->moment_count, sizeof *s->lost);
    s->rank = weir__pool_take(&p->pool, p->type_count, sizeof *s->rank);
    s->kept_rank = weir__pool_take(&p->pool, p->type_count, sizeof *s->kept_rank);
    return s->segments != NULL && s->heap != NULL && s->first != NULL && s->next != NULL &&
           s->live != NULL && s->lost != NULL && s->rank != NULL && s->kept_rank != NULL;
}

static void find_live(struct skyline *s) {
    const struct weir__packing *p = s->packing;
    for (uint32_t i = 0; i < p->count; i++) {
        s->live[p->from[i]] += p->items[i].bytes;
        s->live[p->to[i]] -= p->items[i].bytes;
    }
    for (uint32_t moment = 1; moment < p->moment_count; moment++)
        s->live[moment] += s->live[moment - 1];
    assert(s->live[p->moment_count - 1] == 0);
}

static void find_first(struct skyline *s) {
    const struct weir__packing *p = s->packing;
    uint32_t place = 0;
    for (uint32_t moment = 0; moment < p->moment_count; moment++) {
        while (place < p->count && p->from[p->by_start[place]] < moment) place++;
        s->first[moment] = place;
    }
}

int weir__packing_skyline(struct weir__packing *packing) {
    struct skyline s = {.packing = packing, .rule = BY_LIFE, .tie = TIE_START};
    if (!take_arrays(&s)) return WEIR_ERR_OUT_OF_MEMORY;
    find_first(&s);
    find_live(&s);
    rank_by_size(&s);
    (void)pack(&s, SIZE_MAX);
    if (packing->options->search) search(&s);
    return WEIR_OK;
}
