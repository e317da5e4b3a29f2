/* SPDX-License-Identifier: MIT */
/*
 * Dependencies from effects. Each effect that an action can read has one rule that says whose write
 * it is: the same effect's counterpart at a neighbour stage, at the other end of a skip, or at the
 * stage itself. The edges are made in two passes over the actions, the first of which only counts.
 */
#include "schedule/derive.h"

/** For each stage, the stages that something comes from: from[begin[s] .. begin[s + 1]). */
struct feeds {
    uint32_t stage_count;
    uint32_t capacity;
    uint32_t *begin;
    uint32_t *from;
};

struct derivation {
    const struct weir_table *table;
    const struct weir__table_index *index;
    const struct weir__flow *flow;
    const struct weir_allocator *allocator;
    struct feeds values;      /**< skips read by a stage: where they are stashed */
    struct feeds gradients;   /**< running sums that a stage takes over: from which reader */
    uint32_t *last_gradient;  /**< [stage]: its last action that writes PARAM_GRADS */
    uint32_t *whole;          /**< [stage]: that one, or with replicas its norm */
    uint32_t *barrier;        /**< [worker]: its last action that the update waits for */
    uint32_t action;          /**< whose edges are being made, */
    uint32_t worker;          /**< and its line */
    bool barrier_passed;      /**< an earlier action of this line stands behind the barrier */
    struct weir__edge *edges; /**< NULL while they are counted */
    uint64_t count;
};

/* ---- skips, by stage ---- */

/** One skip's hand-over, from stage to stage. */
typedef void hand_over_fn(struct feeds *feeds, uint32_t from, uint32_t to);

static void count_feed(struct feeds *feeds, uint32_t from, uint32_t to) {
    assert(from != to && to < feeds->stage_count);
    (void)from;
    feeds->begin[to + 1]++;
}

/* begin[to] serves as the place to write to; restored by shift_back. */
static void place_feed(struct feeds *feeds, uint32_t from, uint32_t to) {
    assert(to < feeds->stage_count && feeds->begin[to] < feeds->capacity);
    feeds->from[feeds->begin[to]++] = from;
}

static void each_value(const struct weir__flow *flow, struct feeds *feeds, hand_over_fn *visit) {
    for (uint32_t i = 0; i < flow->skip_count; i++) {
        const struct weir_skip_route *skip = &flow->skips[i];
        for (uint32_t r = 0; r < skip->reader_count; r++)
            visit(feeds, skip->source, skip->readers[r]);
    }
}

static void each_gradient(const struct weir__flow *flow, struct feeds *feeds, hand_over_fn *visit) {
    for (uint32_t i = 0; i < flow->skip_count; i++) {
        const struct weir_skip_route *skip = &flow->skips[i];
        for (uint32_t r = 0; skip->differentiable && r < skip->reader_count; r++)
            visit(feeds, skip->readers[r], r == 0 ? skip->source : skip->readers[r - 1]);
    }
}

typedef void each_fn(const struct weir__flow *flow, struct feeds *feeds, hand_over_fn *visit);

static void feeds_clean_up(struct feeds *feeds, const struct weir_allocator *allocator) {
    weir__release(allocator, feeds->begin, (size_t)feeds->stage_count + 1, sizeof *feeds->begin);
    weir__release(allocator, feeds->from, feeds->capacity, sizeof *feeds->from);
    *feeds = (struct feeds){0};
}

static void sum_up(struct feeds *feeds) {
    for (uint32_t s = 0; s < feeds->stage_count; s++) feeds->begin[s + 1] += feeds->begin[s];
}

/* After place_feed begin[s] is the end of s's part, which is the beginning of the next one's. */
static void shift_back(struct feeds *feeds) {
    for (uint32_t s = feeds->stage_count; s > 0; s--) feeds->begin[s] = feeds->begin[s - 1];
    feeds->begin[0] = 0;
}

/* Several skips between two stages are one edge. `mark` is zeroed, one per stage. */
static void drop_doubles(struct feeds *feeds, uint32_t *mark) {
    uint32_t kept = 0, begin = 0;
    for (uint32_t s = 0; s < feeds->stage_count; s++) {
        uint32_t end = feeds->begin[s + 1];
        for (uint32_t i = begin; i < end; i++) {
            uint32_t from = feeds->from[i];
            assert(kept <= i && from < feeds->stage_count);
            if (mark[from] != s + 1) {
                mark[from] = s + 1;
                feeds->from[kept++] = from;
            }
        }
        begin = end;
        feeds->begin[s + 1] = kept;
    }
}

static int feeds_init(struct feeds *feeds, const struct weir__flow *flow, each_fn *each,
                      const struct weir_allocator *allocator) {
    *feeds = (struct feeds){.stage_count = flow->stage_count};
    uint64_t total = 0;
    for (uint32_t i = 0; i < flow->skip_count; i++) total += flow->skips[i].reader_count;
    if (total > UINT32_MAX) return WEIR_ERR_OVERFLOW;
    feeds->capacity = (uint32_t)total;
    feeds->begin = weir__acquire(allocator, (size_t)flow->stage_count + 1, sizeof *feeds->begin);
    feeds->from = weir__acquire(allocator, feeds->capacity, sizeof *feeds->from);
    uint32_t *mark = weir__acquire(allocator, flow->stage_count, sizeof *mark);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (feeds->begin != NULL && feeds->from != NULL && mark != NULL) {
        each(flow, feeds, count_feed);
        sum_up(feeds);
        each(flow, feeds, place_feed);
        shift_back(feeds);
        drop_doubles(feeds, mark);
        status = WEIR_OK;
    }
    weir__release(allocator, mark, flow->stage_count, sizeof *mark);
    if (status != WEIR_OK) feeds_clean_up(feeds, allocator);
    return status;
}

/* ---- edges ---- */

static void emit(struct derivation *derivation, uint32_t from, enum weir__edge_cause cause) {
    if (from == WEIR__NO_ACTION) return;
    assert(from < derivation->table->action_count && derivation->count < UINT64_MAX);
    uint32_t stage = derivation->table->actions[from].stage;
    if (derivation->index->worker[stage] == derivation->worker && from < derivation->action) {
        return; /* the line's order implies it */
    }
    if (derivation->edges != NULL)
        derivation->edges[derivation->count] = (struct weir__edge){from, (uint8_t)cause};
    derivation->count++;
}

static void emit_writer(struct derivation *derivation, uint32_t stage, uint32_t micro_batch,
                        uint32_t effect, enum weir__edge_cause cause) {
    emit(derivation, weir__table_index_writer(derivation->index, stage, micro_batch, effect),
         cause);
}

static void emit_feeds(struct derivation *derivation, const struct feeds *feeds,
                       const struct weir_action *action, uint32_t effect) {
    assert(action->stage < feeds->stage_count);
    uint32_t end = feeds->begin[action->stage + 1];
    for (uint32_t i = feeds->begin[action->stage]; i < end; i++)
        emit_writer(derivation, feeds->from[i], action->micro_batch, effect, WEIR__CAUSE_SKIP);
}

static void from_inputs(struct derivation *derivation, const struct weir_action *action) {
    if (action->stage > 0) {
        emit_writer(derivation, action->stage - 1u, action->micro_batch, WEIR__OUTPUTS,
                    WEIR__CAUSE_BORDER);
    }
}

static void from_output_grads(struct derivation *derivation, const struct weir_action *action) {
    const struct weir__flow *flow = derivation->flow;
    uint32_t border = action->stage;
    if (border + 1 < flow->stage_count &&
        (flow->border_differentiable == NULL || flow->border_differentiable[border])) {
        emit_writer(derivation, border + 1, action->micro_batch, WEIR__INPUT_GRADS,
                    WEIR__CAUSE_GRADIENT);
    }
}

static void from_skips_in(struct derivation *derivation, const struct weir_action *action) {
    emit_feeds(derivation, &derivation->values, action, WEIR__SKIPS_OUT);
}

static void from_skip_grads_in(struct derivation *derivation, const struct weir_action *action) {
    emit_feeds(derivation, &derivation->gradients, action, WEIR__SKIP_GRADS_OUT);
}

static void from_saved(struct derivation *derivation, const struct weir_action *action) {
    emit_writer(derivation, action->stage, action->micro_batch, WEIR__SAVED, WEIR__CAUSE_LOCAL);
}

static void from_weight_inputs(struct derivation *derivation, const struct weir_action *action) {
    emit_writer(derivation, action->stage, action->micro_batch, WEIR__WEIGHT_INPUTS,
                WEIR__CAUSE_LOCAL);
}

static void from_param_grads(struct derivation *derivation, const struct weir_action *action) {
    emit(derivation, derivation->last_gradient[action->stage], WEIR__CAUSE_LOCAL);
}

static void from_tied_grads(struct derivation *derivation, const struct weir_action *action) {
    const struct weir__flow *flow = derivation->flow;
    for (uint32_t t = 0; t < flow->tie_count; t++) {
        const struct weir__flow_tie *tie = &flow->ties[t];
        for (uint32_t i = 0; tie->owner == action->stage && i < tie->other_count; i++) {
            assert(tie->others[i] < flow->stage_count);
            emit(derivation, derivation->whole[tie->others[i]], WEIR__CAUSE_GRADIENT);
        }
    }
}

static void from_norms(struct derivation *derivation, const struct weir_action *action) {
    (void)action;
    if (derivation->barrier_passed) return;
    derivation->barrier_passed = true;
    for (uint32_t w = 0; w < derivation->table->worker_count; w++)
        emit(derivation, derivation->barrier[w], WEIR__CAUSE_GRADIENT);
}

/** Who wrote what an action reads: one rule per effect. */
static const struct effect_rule {
    uint32_t effect;
    void (*from)(struct derivation *derivation, const struct weir_action *action);
} rules[] = {
    {WEIR__INPUTS, from_inputs},
    {WEIR__OUTPUT_GRADS, from_output_grads},
    {WEIR__SKIPS_IN, from_skips_in},
    {WEIR__SKIP_GRADS_IN, from_skip_grads_in},
    {WEIR__SAVED, from_saved},
    {WEIR__WEIGHT_INPUTS, from_weight_inputs},
    {WEIR__PARAM_GRADS, from_param_grads},
    {WEIR__TIED_GRADS, from_tied_grads},
    {WEIR__NORMS, from_norms},
};

static void derive_action(struct derivation *derivation, uint32_t at) {
    const struct weir_action *action = &derivation->table->actions[at];
    assert(action->kind < WEIR_KIND_COUNT && action->stage < derivation->table->stage_count);
    uint32_t reads = weir__reads_of(action->kind, derivation->flow->recompute_late);
    derivation->action = at;
    for (size_t i = 0; i < WEIR__COUNT_OF(rules); i++) {
        if ((reads & rules[i].effect) != 0) rules[i].from(derivation, action);
    }
}

/* One pass: counts, or fills in, the edges of all actions. */
static void derive_all(struct derivation *derivation, uint32_t *begin) {
    assert((begin == NULL) == (derivation->edges == NULL));
    const struct weir_table *table = derivation->table;
    derivation->count = 0;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        derivation->worker = w;
        derivation->barrier_passed = false;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            if (begin != NULL) begin[a] = (uint32_t)derivation->count;
            derive_action(derivation, a);
        }
    }
    if (begin != NULL) begin[table->action_count] = (uint32_t)derivation->count;
}

/* The last gradient of each stage, and of each line what updates wait for: its last norm or
 * gradient, so that a table without norms, or with some only, is safe too. */
static void find_ends(struct derivation *derivation) {
    const struct weir_table *table = derivation->table;
    assert(table->lines[table->worker_count] == table->action_count);
    for (uint32_t s = 0; s < table->stage_count; s++)
        derivation->last_gradient[s] = derivation->whole[s] = WEIR__NO_ACTION;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        derivation->barrier[w] = WEIR__NO_ACTION;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            uint32_t writes = weir__kinds[table->actions[a].kind].writes;
            if ((writes & (WEIR__NORMS | WEIR__PARAM_GRADS)) != 0) derivation->barrier[w] = a;
            if ((writes & WEIR__PARAM_GRADS) != 0)
                derivation->last_gradient[table->actions[a].stage] = a;
            bool makes_whole = derivation->flow->replicas && (writes & WEIR__NORMS) != 0;
            if ((writes & WEIR__PARAM_GRADS) != 0 || makes_whole)
                derivation->whole[table->actions[a].stage] = a;
        }
    }
}

static void derivation_clean_up(struct derivation *derivation) {
    const struct weir_allocator *allocator = derivation->allocator;
    feeds_clean_up(&derivation->values, allocator);
    feeds_clean_up(&derivation->gradients, allocator);
    weir__release(allocator, derivation->last_gradient, derivation->table->stage_count,
                  sizeof *derivation->last_gradient);
    weir__release(allocator, derivation->whole, derivation->table->stage_count,
                  sizeof *derivation->whole);
    weir__release(allocator, derivation->barrier, derivation->table->worker_count,
                  sizeof *derivation->barrier);
}

static int derivation_init(struct derivation *derivation) {
    const struct weir_allocator *allocator = derivation->allocator;
    int status = feeds_init(&derivation->values, derivation->flow, each_value, allocator);
    if (status != WEIR_OK) return status;
    status = feeds_init(&derivation->gradients, derivation->flow, each_gradient, allocator);
    if (status != WEIR_OK) goto fail_gradients;
    derivation->last_gradient =
        weir__acquire(allocator, derivation->table->stage_count, sizeof *derivation->last_gradient);
    derivation->whole =
        weir__acquire(allocator, derivation->table->stage_count, sizeof *derivation->whole);
    derivation->barrier =
        weir__acquire(allocator, derivation->table->worker_count, sizeof *derivation->barrier);
    if (derivation->last_gradient == NULL || derivation->whole == NULL ||
        derivation->barrier == NULL) {
        derivation_clean_up(derivation);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    find_ends(derivation);
    return WEIR_OK;

fail_gradients:
    feeds_clean_up(&derivation->values, allocator);
    return status;
}

/* Both passes; what was acquired stays in `deps` on failure too. */
static int make_edges(struct derivation *derivation, struct weir__deps *deps) {
    assert(derivation->edges == NULL && deps->begin == NULL);
    derive_all(derivation, NULL);
    if (derivation->count > UINT32_MAX) return WEIR_ERR_OVERFLOW;
    deps->edge_count = (uint32_t)derivation->count;
    deps->begin =
        weir__acquire(deps->allocator, (size_t)deps->action_count + 1, sizeof *deps->begin);
    deps->edges = weir__acquire(deps->allocator, deps->edge_count, sizeof *deps->edges);
    if (deps->begin == NULL || deps->edges == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    derivation->edges = deps->edges;
    derive_all(derivation, deps->begin);
    assert(derivation->count == deps->edge_count);
    return WEIR_OK;
}

int weir__deps_derive(const struct weir_table *table, const struct weir__table_index *index,
                      const struct weir__flow *flow, const struct weir_allocator *allocator,
                      struct weir__deps *deps) {
    assert(index->stage_count == table->stage_count);
    assert(index->micro_batch_count == table->micro_batch_count);
    assert(flow->stage_count == table->stage_count);
    *deps = (struct weir__deps){.allocator = allocator, .action_count = table->action_count};
    struct derivation derivation = {
        .table = table, .index = index, .flow = flow, .allocator = allocator};
    int status = derivation_init(&derivation);
    if (status != WEIR_OK) return status;
    status = make_edges(&derivation, deps);
    if (status != WEIR_OK) weir__deps_clean_up(deps);
    derivation_clean_up(&derivation);
    return status;
}

int weir__deps_new(const struct weir_table *table, const struct weir__flow *flow,
                   const struct weir_allocator *allocator, struct weir__deps *deps) {
    struct weir__table_index index;
    int status = weir__table_index_init(&index, table, allocator);
    if (status != WEIR_OK) return status;
    weir__table_index_fill(&index, table);
    status = weir__deps_derive(table, &index, flow, allocator, deps);
    weir__table_index_clean_up(&index);
    return status;
}

void weir__deps_clean_up(struct weir__deps *deps) {
    if (deps->begin != NULL || deps->edges != NULL) {
        weir__release(deps->allocator, deps->edges, deps->edge_count, sizeof *deps->edges);
        weir__release(deps->allocator, deps->begin, (size_t)deps->action_count + 1,
                      sizeof *deps->begin);
    }
    *deps = (struct weir__deps){0};
}
