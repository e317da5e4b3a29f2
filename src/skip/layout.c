/* SPDX-License-Identifier: MIT */
/* The routes of skips, made once. */
#include "skip/skip.h"

#include <string.h>

/* A route for each stash, at the stash's place, and in `stash_of` the stash of each use: sorted by
 * name, the uses of a skip stand together, the stash first, and owners ascend. */
static void find_routes(const struct weir__skip_decl *declarations, uint32_t count,
                        const uint32_t *order, uint32_t *readers, struct weir_skip_route *found,
                        uint32_t *stash_of) {
    for (uint32_t i = 0, stash = 0; i < count; i++) {
        const struct weir__skip_decl *decl = &declarations[order[i]];
        if (decl->use.verb == WEIR_SKIP_STASH) {
            stash = order[i];
            found[stash] = (struct weir_skip_route){
                .source = decl->owner,
                .readers = readers,
                .differentiable = decl->use.tensor.differentiable,
                .name_space = decl->use.name_space != NULL ? decl->use.name_space : "",
                .name = decl->use.name};
        }
        struct weir_skip_route *route = &found[stash];
        uint32_t last = route->reader_count > 0 ? readers[-1] : route->source;
        assert(stash <= order[i] && decl->owner >= last);
        stash_of[order[i]] = stash;
        if (decl->owner == last) continue;
        *readers++ = decl->owner;
        route->reader_count++;
    }
}

int weir__skip_layout_init(struct weir__skip_layout *layout, struct weir__pool *pool,
                           const struct weir__skip_decl *declarations, uint32_t count) {
    assert(layout != NULL && pool != NULL);
    uint32_t *order = weir__pool_take(pool, count, sizeof *order);
    uint32_t *readers = weir__pool_take(pool, count, sizeof *readers);
    struct weir_skip_route *routes = weir__pool_take(pool, count, sizeof *routes);
    uint32_t *route_of = weir__pool_take(pool, count, sizeof *route_of);
    if (order == NULL || readers == NULL || routes == NULL || route_of == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    weir__skip_sort(declarations, count, order);
    find_routes(declarations, count, order, readers, routes, route_of);
    *layout = (struct weir__skip_layout){0, routes, route_of};
    for (uint32_t d = 0; d < count; d++) { /* those that are none go; the others move up */
        bool stash = route_of[d] == d;
        bool kept = stash && !declarations[d].use.empty && routes[d].reader_count > 0;
        if (kept) routes[layout->route_count] = routes[d];
        route_of[d] = kept ? layout->route_count++ : stash ? WEIR__NO_ROUTE : route_of[route_of[d]];
    }
    return WEIR_OK;
}

int weir__skip_layout_find(const struct weir__skip_layout *layout, const char *name_space,
                           const char *name, struct weir_error *error, uint32_t *route) {
    assert(name_space != NULL && name != NULL);
    for (uint32_t r = 0; r < layout->route_count; r++) {
        if (strcmp(layout->routes[r].name, name) != 0) continue;
        if (strcmp(layout->routes[r].name_space, name_space) != 0) continue;
        *route = r;
        return WEIR_OK;
    }
    return weir__fail(error, WEIR_ERR_NOT_FOUND,
                      "skip '%.80s' of namespace '%.80s' is no portal: no other stage reads it",
                      name, name_space);
}

bool weir__skip_route_is_valid(const struct weir_skip_route *route, uint32_t count) {
    uint32_t before = route->source;
    if (before >= count || (route->reader_count > 0 && route->readers == NULL)) return false;
    for (uint32_t r = 0; r < route->reader_count; before = route->readers[r++])
        if (route->readers[r] <= before || route->readers[r] >= count) return false;
    return true;
}
