/* SPDX-License-Identifier: MIT */
/* Uses with one name make a group; stages are walked in order, so a group's first use is its
 * owner's. */
#include "pipe/ties.h"

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

static struct weir__tie *find_or_begin(struct weir__setup *setup, struct weir__name_set *names,
                                       const char *name) {
    uint32_t found = weir__name_set_find(names, name);
    if (found != WEIR__NO_NAME) return &setup->ties[found];
    struct weir__tie *tie = &setup->ties[setup->tie_count];
    tie->name = weir__pool_text(&setup->pool, name);
    if (tie->name == NULL || !weir__name_set_add(names, tie->name, setup->tie_count)) return NULL;
    setup->tie_count++;
    return tie;
}

/* The stage's uses into their groups, and the groups, once each, into the stage's list. */
static bool group_stage(struct weir__setup *setup, struct weir__name_set *names, uint32_t s,
                        uint32_t all) {
    struct weir__stage_setup *at = &setup->stages[s];
    uint32_t *list = weir__pool_take(&setup->pool, at->stage.tie_count, sizeof *list);
    if (list == NULL) return false;
    for (uint32_t i = 0; i < at->stage.tie_count; i++) {
        const struct weir_tie *from = &at->stage.ties[i];
        struct weir__tie *tie = find_or_begin(setup, names, from->name);
        if (tie == NULL) return false;
        uint32_t number = (uint32_t)(tie - setup->ties), k = 0;
        if (tie->uses == NULL) tie->uses = weir__pool_take(&setup->pool, all, sizeof *tie->uses);
        if (tie->uses == NULL) return false;
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
        const struct weir__tie *tie = &setup->ties[t];
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

/* ---- copies between memories ---- */

static uint32_t *no_blocks(struct weir__pool *pool, uint32_t count) {
    uint32_t *blocks = weir__pool_take(pool, count, sizeof *blocks);
    for (uint32_t i = 0; blocks != NULL && i < count; i++) blocks[i] = WEIR__NO_BLOCK;
    return blocks;
}

/* Rows are in order, and a stage's actions all in one. */
static void find_writers(struct builder *b) {
    const struct weir_table *table = b->prepared->table;
    for (uint32_t a = 0; a < table->action_count; a++) {
        uint32_t writes = weir__kinds[table->actions[a].kind].writes;
        if (writes & WEIR__PARAM_GRADS) b->last_gradient[table->actions[a].stage] = a;
        if (writes & WEIR__NORMS) b->norm[table->actions[a].stage] = a;
    }
}

bool weir__ties_begin(struct builder *b) {
    struct weir__pool *pool = &b->prepared->pool;
    uint32_t count = b->setup->tie_count, workers = b->prepared->table->worker_count;
    struct weir__tie_copies *copies = weir__pool_take(pool, count, sizeof *copies);
    b->last_gradient = weir__pool_take(pool, b->setup->flow.stage_count, sizeof(uint32_t));
    b->norm = weir__pool_take(pool, b->setup->flow.stage_count, sizeof(uint32_t));
    if (copies == NULL || b->last_gradient == NULL || b->norm == NULL) return false;
    for (uint32_t t = 0; t < count; t++) {
        copies[t].arrived = no_blocks(pool, b->setup->ties[t].use_count);
        copies[t].whole = no_blocks(pool, workers);
        if (copies[t].arrived == NULL || copies[t].whole == NULL) return false;
    }
    b->prepared->tie_copies = copies;
    find_writers(b);
    return true;
}

static uint32_t memory_of(const struct weir__prepared *prepared, const struct weir__setup *setup,
                          uint32_t stage) {
    return weir__setup_device(setup, prepared->stage_worker[stage]).memory;
}

/* The use's gradient, which `made` writes last, into a block that the action reads. */
static bool copy_use(struct builder *b, uint32_t action, const struct weir__tie *tie, uint32_t use,
                     uint32_t made, uint32_t *block) {
    struct weir__memory *memory = &b->prepared->memory;
    uint32_t worker = weir__lifetimes_worker_of(b, b->prepared->table->actions[action].stage);
    if (*block == WEIR__NO_BLOCK) {
        *block = weir__memory_block(memory, WEIR__BLOCK_WORKSPACE, worker, tie->bytes);
        const struct weir__copy copy = {.action = action,
                                        .made = made,
                                        .from_block =
                                            b->prepared->lasting[tie->uses[use].stage].gradients,
                                        .from_offset = tie->uses[use].offset,
                                        .to_block = *block,
                                        .bytes = tie->bytes};
        if (*block == WEIR__NO_BLOCK || !weir__lifetimes_copy(b, worker, &copy)) return false;
    }
    weir__memory_use(memory, *block, action);
    return true;
}

static bool copy_uses(struct builder *b, uint32_t action, uint32_t t) {
    const struct weir__tie *tie = &b->setup->ties[t];
    uint32_t *arrived = b->prepared->tie_copies[t].arrived;
    uint32_t own = memory_of(b->prepared, b->setup, tie->uses[0].stage);
    bool made = true;
    for (uint32_t u = 1; made && u < tie->use_count; u++) {
        uint32_t stage = tie->uses[u].stage;
        if (memory_of(b->prepared, b->setup, stage) != own)
            made = copy_use(b, action, tie, u, b->last_gradient[stage], &arrived[u]);
    }
    return made;
}

bool weir__ties_copy(struct builder *b, uint32_t action) {
    const struct weir__call *call = &b->prepared->calls[action];
    const struct weir__kind *kind = &weir__kinds[call->action.kind];
    uint32_t stage = call->action.stage, worker = weir__lifetimes_worker_of(b, stage);
    const struct weir__stage_setup *at = &b->setup->stages[stage];
    bool made = true;
    for (uint32_t i = 0; made && call->run != NULL && i < at->tied_count; i++) {
        uint32_t t = at->ties[i], owner = b->setup->ties[t].uses[0].stage;
        bool apart =
            memory_of(b->prepared, b->setup, owner) != memory_of(b->prepared, b->setup, stage);
        if ((kind->reads & WEIR__TIED_GRADS) && owner == stage) made = copy_uses(b, action, t);
        if ((kind->writes & WEIR__PARAMETERS) && apart)
            made = copy_use(b, action, &b->setup->ties[t], 0, b->norm[owner],
                            &b->prepared->tie_copies[t].whole[worker]);
    }
    return made;
}

/* ---- in a prepared plan ---- */

/* Where the stage finds a use's gradient: where it lies, a copy, or nowhere. */
static bool point_use(struct weir__prepared *prepared, const struct weir__setup *setup,
                      uint32_t stage, uint32_t t, uint32_t u, void **where) {
    const struct weir__tie *tie = &setup->ties[t];
    const struct weir__tie_use *use = &tie->uses[u];
    const struct weir__tie_copies *copies = &prepared->tie_copies[t];
    if (memory_of(prepared, setup, use->stage) == memory_of(prepared, setup, stage))
        return weir__prepared_point(prepared, where, prepared->lasting[use->stage].gradients,
                                    use->offset);
    uint32_t copy = tie->uses[0].stage == stage ? copies->arrived[u] : WEIR__NO_BLOCK;
    if (u == 0) copy = copies->whole[prepared->stage_worker[stage]];
    return weir__prepared_point(prepared, where, copy, 0);
}

/* What the stage is given of one tie. */
static bool take_tied(struct weir__prepared *prepared, const struct weir__setup *setup,
                      uint32_t stage, uint32_t t, struct weir_tied *tied) {
    const struct weir__tie *tie = &setup->ties[t];
    void **gradients = weir__pool_take(&prepared->pool, tie->use_count, sizeof *gradients);
    bool pointed = gradients != NULL;
    for (uint32_t u = 0; pointed && u < tie->use_count; u++)
        pointed = point_use(prepared, setup, stage, t, u, &gradients[u]);
    *tied = (struct weir_tied){tie->name, tie->use_count, gradients};
    return pointed;
}

bool weir__ties_take(struct weir__prepared *prepared, const struct weir__setup *setup) {
    struct weir__pool *pool = &prepared->pool;
    uint32_t stages = setup->options.stage_count;
    prepared->tied = weir__pool_take(pool, stages, sizeof *prepared->tied);
    if (prepared->tied == NULL) return false;
    for (uint32_t s = 0; s < stages; s++) {
        const struct weir__stage_setup *at = &setup->stages[s];
        prepared->tied[s] = weir__pool_take(pool, at->tied_count, sizeof **prepared->tied);
        if (prepared->tied[s] == NULL) return false;
        for (uint32_t i = 0; i < at->tied_count; i++)
            if (!take_tied(prepared, setup, s, at->ties[i], &prepared->tied[s][i])) return false;
    }
    return true;
}
