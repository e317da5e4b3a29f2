/* SPDX-License-Identifier: MIT */
/*
 * The routes of skips between stages, made once. All of it is six flat arrays: routes, their
 * readers, their texts, and for each stage the routes that arrive.
 */
#include "skip/skip.h"

#include <string.h>

struct weir__skip_layout {
    const struct weir_allocator *allocator;
    uint32_t stage_count;
    uint32_t declaration_count; /**< no array needs more elements */
    uint32_t route_count;
    size_t text_bytes;
    struct weir__skip_route *routes; /**< sorted by source, then first declaration */
    uint32_t *by_name;               /**< indexes of routes, sorted by namespace and name */
    uint32_t *readers;
    char *texts;
    uint32_t *arriving_begin; /**< [stage + 1] */
    uint32_t *arriving;
};

/** What is needed while a layout is made. */
struct layout_work {
    const struct weir__skip_decl *declarations;
    const uint32_t *stage_of_owner;
    uint32_t *order;    /**< the declarations by name */
    uint32_t *route_at; /**< [declaration]: 1 + the found route that it is the first of, or 0 */
    uint32_t *mark;     /**< [stage]: 1 + the last route that was found to be read there */
    uint32_t *place;    /**< [stage + 1]: where the next route from that source goes */
    struct weir__skip_route *found; /**< the routes in order of name */
};

void weir__skip_layout_destroy(struct weir__skip_layout *layout) {
    if (layout == NULL) return;
    const struct weir_allocator *allocator = layout->allocator;
    uint32_t count = layout->declaration_count;
    weir__release(allocator, layout->arriving, count, sizeof *layout->arriving);
    weir__release(allocator, layout->arriving_begin, (size_t)layout->stage_count + 1,
                  sizeof *layout->arriving_begin);
    weir__release(allocator, layout->texts, layout->text_bytes, 1);
    weir__release(allocator, layout->readers, count, sizeof *layout->readers);
    weir__release(allocator, layout->by_name, count, sizeof *layout->by_name);
    weir__release(allocator, layout->routes, count, sizeof *layout->routes);
    weir__release(allocator, layout, 1, sizeof *layout);
}

static size_t bytes_of(const char *text) {
    return (text != NULL ? strlen(text) : 0) + 1;
}

static struct weir__skip_layout *allocate(const struct weir_allocator *allocator,
                                          const struct weir__skip_decl *declarations,
                                          uint32_t count, uint32_t stage_count) {
    struct weir__skip_layout *layout = weir__acquire(allocator, 1, sizeof *layout);
    if (layout == NULL) return NULL;
    *layout = (struct weir__skip_layout){
        .allocator = allocator, .stage_count = stage_count, .declaration_count = count};
    for (uint32_t i = 0; i < count; i++) {
        if (declarations[i].verb == WEIR_SKIP_STASH) {
            layout->text_bytes += bytes_of(declarations[i].name);
            layout->text_bytes += bytes_of(declarations[i].name_space);
        }
    }
    layout->routes = weir__acquire(allocator, count, sizeof *layout->routes);
    layout->by_name = weir__acquire(allocator, count, sizeof *layout->by_name);
    layout->readers = weir__acquire(allocator, count, sizeof *layout->readers);
    layout->texts = weir__acquire(allocator, layout->text_bytes, 1);
    layout->arriving_begin =
        weir__acquire(allocator, (size_t)stage_count + 1, sizeof *layout->arriving_begin);
    layout->arriving = weir__acquire(allocator, count, sizeof *layout->arriving);
    if (layout->routes == NULL || layout->by_name == NULL || layout->readers == NULL ||
        layout->texts == NULL || layout->arriving_begin == NULL || layout->arriving == NULL) {
        weir__skip_layout_destroy(layout);
        return NULL;
    }
    return layout;
}

static const char *keep_text(char **free, const char *text) {
    assert(*free != NULL);
    size_t bytes = bytes_of(text);
    char *kept = *free;
    memcpy(kept, text != NULL ? text : "", bytes);
    *free += bytes;
    return kept;
}

static void sort_ascending(uint32_t *numbers, uint32_t count) {
    for (uint32_t i = 1; i < count; i++) {
        uint32_t number = numbers[i], at = i;
        for (; at > 0 && numbers[at - 1] > number; at--) numbers[at] = numbers[at - 1];
        numbers[at] = number;
    }
}

/* Collects the stages that read the skip whose uses are order[begin .. end), each once, without the
 * source. Uses come in owner order, so stages are nearly sorted already. */
static uint32_t collect_readers(const struct layout_work *work, uint32_t begin, uint32_t end,
                                uint32_t source, uint32_t route, uint32_t *readers) {
    assert(begin < end && readers != NULL);
    uint32_t count = 0;
    for (uint32_t i = begin; i < end; i++) {
        const struct weir__skip_decl *use = &work->declarations[work->order[i]];
        uint32_t stage = work->stage_of_owner[use->owner];
        if (use->verb != WEIR_SKIP_STASH && stage != source && work->mark[stage] != route + 1) {
            work->mark[stage] = route + 1;
            readers[count++] = stage;
        }
    }
    sort_ascending(readers, count);
    return count;
}

/* Adds a route for order[begin .. end) if a stage other than the source reads it. */
static void add_route(struct weir__skip_layout *layout, const struct layout_work *work,
                      uint32_t begin, uint32_t end, uint32_t **readers, char **texts) {
    assert(*texts <= layout->texts + layout->text_bytes);
    assert(layout->route_count < layout->declaration_count);
    const struct weir__skip_decl *stash = NULL;
    for (uint32_t i = begin; i < end; i++) {
        const struct weir__skip_decl *use = &work->declarations[work->order[i]];
        stash = stash == NULL && use->verb == WEIR_SKIP_STASH ? use : stash;
    }
    assert(stash != NULL);
    uint32_t source = work->stage_of_owner[stash->owner];
    uint32_t index = layout->route_count;
    uint32_t count = collect_readers(work, begin, end, source, index, *readers);
    if (count == 0) return;
    work->route_at[work->order[begin]] = index + 1;
    work->found[index] =
        (struct weir__skip_route){.name_space = keep_text(texts, stash->name_space),
                                  .name = keep_text(texts, stash->name),
                                  .source = source,
                                  .reader_count = count,
                                  .readers = *readers,
                                  .empty = stash->empty};
    *readers += count;
    layout->route_count++;
}

static void find_routes(struct weir__skip_layout *layout, const struct layout_work *work) {
    uint32_t *readers = layout->readers;
    char *texts = layout->texts;
    uint32_t count = layout->declaration_count;
    for (uint32_t begin = 0, end = 0; begin < count; begin = end) {
        end = begin + 1;
        while (end < count && weir__skip_same(&work->declarations[work->order[begin]],
                                              &work->declarations[work->order[end]]))
            end++;
        add_route(layout, work, begin, end, &readers, &texts);
    }
}

/* Sorts the found routes by source, keeping the order of first declarations. */
static void place_routes(struct weir__skip_layout *layout, const struct layout_work *work) {
    assert(work->place[0] == 0 && layout->route_count <= layout->declaration_count);
    for (uint32_t r = 0; r < layout->route_count; r++) work->place[work->found[r].source + 1]++;
    for (uint32_t s = 0; s < layout->stage_count; s++) work->place[s + 1] += work->place[s];
    for (uint32_t d = 0; d < layout->declaration_count; d++) {
        if (work->route_at[d] != 0) {
            uint32_t found = work->route_at[d] - 1;
            uint32_t at = work->place[work->found[found].source]++;
            layout->routes[at] = work->found[found];
            layout->by_name[found] = at;
        }
    }
}

/* The copy policy: counts, sums up, then places the routes, whose order is kept. */
static void list_arriving(struct weir__skip_layout *layout) {
    uint32_t *begin = layout->arriving_begin;
    for (uint32_t r = 0; r < layout->route_count; r++) {
        const struct weir__skip_route *route = &layout->routes[r];
        for (uint32_t k = 0; !route->empty && k < route->reader_count; k++)
            begin[route->readers[k] + 1]++;
    }
    for (uint32_t s = 0; s < layout->stage_count; s++) begin[s + 1] += begin[s];
    uint32_t total = begin[layout->stage_count];
    assert(total <= layout->declaration_count);
    for (uint32_t r = layout->route_count; r-- > 0;) {
        const struct weir__skip_route *route = &layout->routes[r];
        for (uint32_t k = 0; !route->empty && k < route->reader_count; k++)
            layout->arriving[--begin[route->readers[k] + 1]] = r;
    }
    for (uint32_t s = 0; s < layout->stage_count; s++) begin[s] = begin[s + 1];
    begin[layout->stage_count] = total;
}

static void work_clean_up(struct layout_work *work, const struct weir_allocator *allocator,
                          uint32_t count, uint32_t stage_count) {
    weir__release(allocator, work->found, count, sizeof *work->found);
    weir__release(allocator, work->place, (size_t)stage_count + 1, sizeof *work->place);
    weir__release(allocator, work->mark, stage_count, sizeof *work->mark);
    weir__release(allocator, work->route_at, count, sizeof *work->route_at);
    weir__release(allocator, work->order, count, sizeof *work->order);
}

static bool work_init(struct layout_work *work, const struct weir_allocator *allocator,
                      uint32_t count, uint32_t stage_count) {
    work->order = weir__acquire(allocator, count, sizeof *work->order);
    work->route_at = weir__acquire(allocator, count, sizeof *work->route_at);
    work->mark = weir__acquire(allocator, stage_count, sizeof *work->mark);
    work->place = weir__acquire(allocator, (size_t)stage_count + 1, sizeof *work->place);
    work->found = weir__acquire(allocator, count, sizeof *work->found);
    if (work->order == NULL || work->route_at == NULL || work->mark == NULL ||
        work->place == NULL || work->found == NULL) {
        work_clean_up(work, allocator, count, stage_count);
        return false;
    }
    return true;
}

int weir__skip_layout_new(const struct weir_allocator *allocator,
                          const struct weir__skip_decl *declarations, uint32_t count,
                          const uint32_t *stage_of_owner, uint32_t stage_count,
                          struct weir__skip_layout **layout) {
    assert(layout != NULL && stage_count > 0);
    struct layout_work work = {.declarations = declarations, .stage_of_owner = stage_of_owner};
    if (!work_init(&work, allocator, count, stage_count)) return WEIR_ERR_OUT_OF_MEMORY;
    struct weir__skip_layout *made = allocate(allocator, declarations, count, stage_count);
    if (made != NULL) {
        weir__skip_sort(declarations, count, work.order);
        find_routes(made, &work);
        place_routes(made, &work);
        list_arriving(made);
        *layout = made;
    }
    work_clean_up(&work, allocator, count, stage_count);
    return made != NULL ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}

/* ---- questions ---- */

uint32_t weir__skip_layout_count(const struct weir__skip_layout *layout) {
    return layout->route_count;
}

const struct weir__skip_route *weir__skip_layout_route(const struct weir__skip_layout *layout,
                                                       uint32_t index) {
    assert(index < layout->route_count);
    return &layout->routes[index];
}

uint32_t weir__skip_layout_arriving(const struct weir__skip_layout *layout, uint32_t stage,
                                    const uint32_t **routes) {
    assert(stage < layout->stage_count);
    uint32_t begin = layout->arriving_begin[stage];
    *routes = &layout->arriving[begin];
    return layout->arriving_begin[stage + 1] - begin;
}

/* Halves by_name; the route's index, or route_count. */
static uint32_t find_name(const struct weir__skip_layout *layout, const char *name_space,
                          const char *name) {
    uint32_t low = 0, high = layout->route_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct weir__skip_route *route = &layout->routes[layout->by_name[middle]];
        int order = strcmp(name_space, route->name_space);
        order = order != 0 ? order : strcmp(name, route->name);
        if (order == 0) return layout->by_name[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return layout->route_count;
}

int weir__skip_layout_find(const struct weir__skip_layout *layout, const char *name_space,
                           const char *name, struct weir_error *error, uint32_t *route) {
    assert(name != NULL && route != NULL);
    const char *space = name_space != NULL ? name_space : "";
    uint32_t found = find_name(layout, space, name);
    if (found == layout->route_count || layout->routes[found].empty) {
        return weir__fail(error, WEIR_ERR_NOT_FOUND,
                          "skip '%.80s'%s%.80s%s is no portal: no other stage reads it", name,
                          space[0] != 0 ? " of namespace '" : "", space, space[0] != 0 ? "'" : "");
    }
    *route = found;
    return WEIR_OK;
}

bool weir__skip_layout_requires_copy(const struct weir__skip_layout *layout, const char *name_space,
                                     const char *name) {
    uint32_t route = 0;
    return weir__skip_layout_find(layout, name_space, name, NULL, &route) == WEIR_OK;
}
