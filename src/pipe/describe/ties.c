/* SPDX-License-Identifier: MIT */
/* Uses with one name make a group; stages are walked in order, so a group's first use is its
 * owner's. */
#include "pipe/describe/ties.h"

#include "base/name_set.h"

#include <inttypes.h>
#include <string.h>

/* ---- checks ---- */

struct checking {
    const struct weir_pipe_options *options;
    struct weir_faults *faults;
    struct weir__name_set names; /**< of the uses, the first with each */
    const struct weir_tie **first;
    uint32_t *owner, *last; /**< [name]: stages */
    uint32_t count;
};

static void check_place(const struct checking *c, uint32_t s, const struct weir_tie *tie) {
    assert(tie->name != NULL && s < c->options->stage_count);
    size_t gradients = c->options->stages[s].gradient_bytes, end;
    if (tie->bytes > 0 && weir__add(tie->gradient_offset, tie->bytes, &end) && end <= gradients)
        return;
    weir_faults_add(c->faults,
                    "stage %" PRIu32 ", tied parameter '%s': bytes %zu at %zu do not lie in the "
                    "stage's %zu gradient bytes",
                    s, tie->name, tie->bytes, tie->gradient_offset, gradients);
}

/* The first use of a name: its stage will add up. False without memory. */
static bool begin_name(struct checking *c, uint32_t s, const struct weir_tie *tie) {
    if (!weir__name_set_add(&c->names, tie->name, c->count)) return false;
    c->first[c->count] = tie;
    c->owner[c->count] = c->last[c->count] = s;
    c->count++;
    if (c->options->stages[s].calls == NULL || c->options->stages[s].calls->norm != NULL)
        return true;
    weir_faults_add(c->faults,
                    "stage %" PRIu32 ": it has the first use of the tied parameter '%s', whose "
                    "gradients its norm adds up: give it a norm callback",
                    s, tie->name);
    return true;
}

static bool check_use(struct checking *c, uint32_t s, const struct weir_tie *tie) {
    if (tie->name == NULL) {
        weir_faults_add(c->faults, "stage %" PRIu32 ": a tied parameter has no name", s);
        return true;
    }
    check_place(c, s, tie);
    uint32_t found = weir__name_set_find(&c->names, tie->name);
    if (found == WEIR__NO_NAME) return begin_name(c, s, tie);
    assert(found < c->count);
    c->last[found] = s;
    if (tie->bytes != c->first[found]->bytes)
        weir_faults_add(c->faults,
                        "stage %" PRIu32 ": the tied parameter '%s' has %zu bytes, but %zu in "
                        "stage %" PRIu32,
                        s, tie->name, tie->bytes, c->first[found]->bytes, c->owner[found]);
    return true;
}

static bool check_stage(struct checking *c, uint32_t s) {
    const struct weir_stage *stage = &c->options->stages[s];
    if (stage->tie_count > 0 && (stage->ties == NULL || stage->no_backward)) {
        weir_faults_add(c->faults, "stage %" PRIu32 ": tie_count is %" PRIu32 " but %s", s,
                        stage->tie_count,
                        stage->ties == NULL ? "ties is NULL" : "nothing learns in it");
        return true;
    }
    for (uint32_t i = 0; i < stage->tie_count; i++)
        if (!check_use(c, s, &stage->ties[i])) return false;
    return true;
}

static uint32_t count_uses(const struct weir_pipe_options *options) {
    uint32_t count = 0;
    for (uint32_t s = 0; s < options->stage_count; s++) count += options->stages[s].tie_count;
    return count;
}

void weir__ties_check(const struct weir_pipe_options *options, struct weir_faults *faults) {
    uint32_t count = count_uses(options);
    if (count == 0 || options->infer_only) return;
    struct weir__pool pool;
    weir__pool_init(&pool, options->allocator);
    struct checking c = {.options = options,
                         .faults = faults,
                         .first = weir__pool_take(&pool, count, sizeof *c.first),
                         .owner = weir__pool_take(&pool, count, sizeof *c.owner),
                         .last = weir__pool_take(&pool, count, sizeof *c.last)};
    weir__name_set_init(&c.names, &pool);
    bool enough = c.first != NULL && c.owner != NULL && c.last != NULL;
    for (uint32_t s = 0; enough && s < options->stage_count; s++) enough = check_stage(&c, s);
    for (uint32_t i = 0; enough && i < c.count; i++)
        if (c.owner[i] == c.last[i])
            weir_faults_add(faults,
                            "stage %" PRIu32 ": no other stage uses the tied parameter '%s': what "
                            "one stage shares with itself is its own business",
                            c.owner[i], c.first[i]->name);
    if (!enough) weir_faults_add(faults, "out of memory while ties were checked");
    weir__pool_clean_up(&pool);
}

/* ---- groups ---- */

static struct weir__tie_group *find_or_begin(struct weir__setup *setup,
                                             struct weir__name_set *names, const char *name) {
    assert(setup->ties != NULL && name != NULL);
    uint32_t found = weir__name_set_find(names, name);
    if (found != WEIR__NO_NAME) return &setup->ties[found];
    struct weir__tie_group *tie = &setup->ties[setup->tie_count];
    tie->name = weir__pool_text(&setup->pool, name);
    if (tie->name == NULL || !weir__name_set_add(names, tie->name, setup->tie_count)) return NULL;
    setup->tie_count++;
    return tie;
}

/* The stage's uses into their groups, and the groups, once each, into the stage's list. */
static bool group_stage(struct weir__setup *setup, struct weir__name_set *names, uint32_t s,
                        uint32_t all) {
    struct weir__stage_setup *at = &setup->stages[s];
    assert(at->ties == NULL && s < setup->options.stage_count);
    uint32_t *list = weir__pool_take(&setup->pool, at->stage.tie_count, sizeof *list);
    if (list == NULL) return false;
    for (uint32_t i = 0; i < at->stage.tie_count; i++) {
        const struct weir_tie *from = &at->stage.ties[i];
        struct weir__tie_group *tie = find_or_begin(setup, names, from->name);
        if (tie == NULL) return false;
        uint32_t number = (uint32_t)(tie - setup->ties), k = 0;
        if (tie->uses == NULL) tie->uses = weir__pool_take(&setup->pool, all, sizeof *tie->uses);
        if (tie->uses == NULL) return false;
        assert(tie->use_count < all);
        tie->bytes = from->bytes;
        tie->uses[tie->use_count++] = (struct weir__tie_use){s, from->gradient_offset};
        while (k < at->tied_count && list[k] != number) k++;
        if (k == at->tied_count) list[at->tied_count++] = number;
    }
    at->ties = list;
    return true;
}

static bool make_flow(struct weir__setup *setup) {
    struct weir__pool *pool = &setup->pool;
    struct weir__flow_tie *flow = weir__pool_take(pool, setup->tie_count, sizeof *flow);
    if (flow == NULL) return false;
    for (uint32_t t = 0; t < setup->tie_count; t++) {
        const struct weir__tie_group *tie = &setup->ties[t];
        assert(tie->use_count > 0);
        uint32_t *others = weir__pool_take(pool, tie->use_count, sizeof *others);
        if (others == NULL) return false;
        flow[t] = (struct weir__flow_tie){.owner = tie->uses[0].stage, .others = others};
        for (uint32_t u = 1; u < tie->use_count; u++)
            if (tie->uses[u].stage != tie->uses[u - 1].stage)
                others[flow[t].other_count++] = tie->uses[u].stage;
    }
    setup->flow.tie_count = setup->tie_count;
    setup->flow.ties = flow;
    return true;
}

int weir__ties_init(struct weir__setup *setup) {
    assert(setup->ties == NULL && setup->tie_count == 0);
    uint32_t all = 0;
    if (setup->options.infer_only) return WEIR_OK;
    for (uint32_t s = 0; s < setup->options.stage_count; s++)
        all += setup->stages[s].stage.tie_count;
    if (all == 0) return WEIR_OK;
    struct weir__name_set names;
    weir__name_set_init(&names, &setup->pool);
    setup->ties = weir__pool_take(&setup->pool, all, sizeof *setup->ties);
    bool enough = setup->ties != NULL;
    for (uint32_t s = 0; enough && s < setup->options.stage_count; s++)
        enough = group_stage(setup, &names, s, all);
    return enough && make_flow(setup) ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY;
}
