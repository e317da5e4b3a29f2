/* SPDX-License-Identifier: MIT */
/* From a row count to calls, in the order in which one thing needs the other: table, measures,
 * views, blocks, a replay for lifetimes, offsets, hand-overs, waits. */
#include "pipe/lower/prepared.h"

#include "pipe/describe/groups.h"
#include "pipe/describe/microbatch.h"
#include "pipe/lower/tie_copies.h"
#include "pipe/lanes/ways.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table with N ---- */

static int lower(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    assert(prepared->table == NULL && prepared->exported != NULL);
    const struct weir_table *table = prepared->exported;
    struct weir__table_builder builder;
    weir__table_begin(&builder, setup->options.allocator, table->stage_count, table->worker_count,
                      table->micro_batch_count);
    for (uint32_t w = 0; w < table->worker_count; w++)
        weir__table_add_line(&builder, table, w, 0, setup->flow.replicas);
    return weir__table_finish(&builder, &prepared->table);
}

static int make_table(struct weir__row_plan *prepared, const struct weir__setup *setup,
                      struct weir_faults *faults) {
    const struct weir_allocator *allocator = setup->options.allocator;
    const struct weir_table *placed = setup->placed;
    const struct weir_pipe_options *options = &setup->options;
    prepared->groups = prepared->infer
                           ? weir__groups_infer(options, weir__replica(options), prepared->rows)
                           : weir__groups_of(options, weir__replica(options), prepared->rows);
    prepared->micro_batch_count = prepared->groups.count;
    if (!prepared->infer || placed == NULL) {
        int status = weir__setup_table(setup, weir__replica(options), prepared->rows, faults,
                                       &prepared->exported);
        if (status != WEIR_OK) return status;
        placed = prepared->exported;
    }
    assert(prepared->infer || placed->micro_batch_count == prepared->micro_batch_count);
    if (!prepared->infer) return lower(prepared, setup);
    return weir__table_new_infer(placed, prepared->micro_batch_count, allocator, &prepared->table);
}

static int derive(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    assert(prepared->table != NULL && prepared->deps.begin == NULL);
    struct weir__flow flow = setup->flow;
    flow.infer = prepared->infer;
    return weir__deps_new(prepared->table, &flow, setup->options.allocator, &prepared->deps);
}

/* ---- measures ---- */

uint32_t weir__prepared_sizes(const struct weir__row_plan *prepared, int64_t sizes[2]) {
    assert(prepared->bound.views != NULL && prepared->micro_batch_count > 0);
    uint32_t last = prepared->micro_batch_count - 1;
    sizes[0] = weir__prepared_views(prepared, 0, 0)->rows;
    sizes[1] = weir__prepared_views(prepared, 0, last)->rows;
    assert(sizes[0] >= sizes[1] && sizes[1] > 0);
    return sizes[0] == sizes[1] ? 1 : 2;
}

static int find_phases(struct weir__row_plan *prepared) {
    _Static_assert(WEIR_PHASE_COUNT <= 32, "a bit for each phase");
    const struct weir_table *table = prepared->table;
    assert(prepared->calls != NULL);
    prepared->phases = weir__pool_take(&prepared->pool, table->stage_count, sizeof(uint32_t));
    if (prepared->phases == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir__call *call = &prepared->calls[a];
        if (call->run != NULL) prepared->phases[call->action.stage] |= UINT32_C(1) << call->phase;
    }
    return WEIR_OK;
}

static int measure_size(const struct weir_stage *stage, int64_t rows,
                        struct weir_stage_bytes *bytes) {
    assert(rows > 0 && bytes->area_count == 0);
    int status = stage->calls->measure(stage->context, rows, bytes);
    if (status != WEIR_OK) return status;
    for (uint32_t a = 0; a < bytes->area_count; a++)
        if ((uint32_t)bytes->areas[a].life > WEIR_AREA_LEFT_FOR_WEIGHT) return WEIR_ERR_ARGUMENT;
    return WEIR_OK;
}

/* bytes[stage * 2 + size] */
static int measure(const struct weir__row_plan *prepared, const struct weir__setup *setup,
                   struct weir_stage_bytes *bytes, struct weir_faults *faults) {
    int64_t sizes[2];
    uint32_t count = weir__prepared_sizes(prepared, sizes);
    assert(prepared->phases != NULL && count <= 2);
    for (uint32_t s = 0; s < setup->flow.stage_count; s++) {
        const struct weir_stage *stage = &setup->stages[s].stage;
        for (uint32_t i = 0; i < count && stage->calls->measure != NULL; i++) {
            bytes[2 * s + i].phases = prepared->phases[s];
            int status = measure_size(stage, sizes[i], &bytes[2 * s + i]);
            if (status == WEIR_OK) continue;
            char text[96];
            weir_faults_add(faults, "%s: measuring %lld row%s failed: %s",
                            weir__setup_stage_text(setup, s, text), (long long)sizes[i],
                            weir__s((uint64_t)sizes[i]), weir_status_text(status));
            return status;
        }
    }
    return WEIR_OK;
}

/* ---- views ---- */

static bool take_views(struct weir__row_plan *prepared, const struct weir__setup *setup,
                       uint32_t stage, struct weir__views *views) {
    assert(views->rows > 0 && stage < setup->flow.stage_count);
    struct weir__pool *pool = &prepared->pool;
    uint32_t inputs = weir__setup_input_count(setup, stage);
    uint32_t outputs = setup->stages[stage].stage.output_count;
    uint32_t skips = setup->stages[stage].stage.skip_count;
    uint32_t all = 2 * inputs + 2 * outputs + 3 * skips;
    struct weir_view *next = weir__pool_take(pool, all, sizeof *next);
    if (next == NULL) return false;
    for (uint32_t k = 0; k < all; k++) next[k].rows = views->rows;
    views->inputs = next, next += inputs;
    views->input_grads = next, next += inputs;
    views->outputs = next, next += outputs;
    views->output_grads = next, next += outputs;
    views->skips = next, next += skips;
    views->skip_grads = next, next += skips;
    views->skip_grads_out = next;
    views->grad_places =
        weir__pool_take(pool, setup->stages[stage].entering_count, sizeof *views->grad_places);
    if (stage + 1 == setup->flow.stage_count)
        views->output_places = weir__pool_take(pool, outputs, sizeof *views->output_places);
    return !pool->failed;
}

static bool take_nothing(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    uint32_t most = 1;
    for (uint32_t s = 0; s < setup->flow.stage_count; s++) {
        const struct weir_stage *stage = &setup->stages[s].stage;
        uint32_t inputs = weir__setup_input_count(setup, s);
        if (inputs > most) most = inputs;
        if (stage->output_count > most) most = stage->output_count;
        if (stage->skip_count > most) most = stage->skip_count;
    }
    prepared->nothing = weir__pool_take(&prepared->pool, most, sizeof *prepared->nothing);
    return prepared->nothing != NULL;
}

/* An entering input has its own row count; a replicated one comes whole. */
static void set_entering_rows(const struct weir__setup *setup, uint32_t stage,
                              struct weir__views *views) {
    const struct weir__stage_setup *at = &setup->stages[stage];
    for (uint32_t e = 0; e < at->entering_count; e++) {
        const struct weir_input *input = &setup->options.inputs[at->entering[e]];
        int64_t rows = input->replicated ? 1 : views->rows * input->rows_factor;
        assert(rows > 0);
        views->inputs[at->border_count + e].rows = rows;
        views->input_grads[at->border_count + e].rows = rows;
    }
}

static int make_views(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    assert(prepared->table != NULL && prepared->bound.views == NULL);
    uint32_t m = prepared->micro_batch_count, chunks = setup->options.chunks;
    size_t count;
    if (!weir__multiply(setup->flow.stage_count, m, &count)) return WEIR_ERR_OVERFLOW;
    prepared->bound.views = weir__pool_take(&prepared->pool, count, sizeof *prepared->bound.views);
    if (prepared->bound.views == NULL || !take_nothing(prepared, setup))
        return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s < setup->flow.stage_count; s++) {
        for (uint32_t i = 0; i < m; i++) {
            struct weir__views *views = weir__prepared_views(prepared, s, i);
            uint32_t number = prepared->groups.first + i;
            views->row_first = weir__chunk_first(prepared->rows, chunks, number);
            views->rows = weir__chunk_first(prepared->rows, chunks, number + 1) - views->row_first;
            if (!take_views(prepared, setup, s, views)) return WEIR_ERR_OUT_OF_MEMORY;
            set_entering_rows(setup, s, views);
        }
    }
    return WEIR_OK;
}

/* ---- bindings ---- */

void weir__prepared_point(struct weir__row_plan *prepared, void **where, uint32_t block,
                          size_t offset) {
    if (block == WEIR__NO_BLOCK) return;
    assert(where != NULL && block < prepared->memory.block_count);
    const struct weir__binding added = {where, block, offset};
    (void)weir__pool_add(&prepared->pool, &prepared->bindings, &prepared->binding_count,
                         &prepared->binding_capacity, &added, sizeof added);
}

static void *address(const struct weir__memory *memory, const struct weir__arena *arenas,
                     uint32_t block, size_t offset) {
    assert(block < memory->block_count);
    return weir__arena_at(&arenas[memory->blocks[block].worker],
                          weir__memory_at(memory, block, offset));
}

static void bind_copy(const struct weir__row_plan *prepared, const struct weir__arena *arenas,
                      void *const *staging, uint32_t number) {
    const struct weir__prepared_copy *copy = &prepared->copies[number];
    struct weir__copy_ends *ends = &prepared->bound.ends[number];
    assert(copy->to_block != WEIR__NO_BLOCK && copy->from_block != copy->to_block);
    const struct weir__memory *memory = &prepared->memory;
    uint32_t worker = memory->blocks[copy->to_block].worker;
    ends->to = address(memory, arenas, copy->to_block, 0);
    if (copy->from_block != WEIR__NO_BLOCK)
        ends->from = address(memory, arenas, copy->from_block, copy->from_offset);
    else if (staging[worker] != NULL) /* else another rank's, who makes the copy */
        ends->from = (char *)staging[worker] + copy->staging;
}

void weir__prepared_bind(const struct weir__row_plan *prepared, const struct weir__arena *arenas,
                         void *const *staging, double *losses) {
    assert(arenas != NULL && staging != NULL && losses != NULL);
    const struct weir__memory *memory = &prepared->memory;
    const struct weir__groups *groups = &prepared->groups;
    for (uint32_t s = 0; s < prepared->table->stage_count; s++)
        for (uint32_t i = 0; i < groups->count; i++)
            weir__prepared_views(prepared, s, i)->loss =
                &losses[(size_t)s * groups->whole + groups->first + i];
    for (uint32_t i = 0; i < prepared->binding_count; i++) {
        const struct weir__binding *binding = &prepared->bindings[i];
        *binding->where = address(memory, arenas, binding->block, binding->offset);
    }
    for (uint32_t i = 0; i < prepared->copy_count; i++) bind_copy(prepared, arenas, staging, i);
}

/* ---- calls ---- */

static weir_task_fn *callback(const struct weir_stage_calls *calls, enum weir_phase phase) {
    if (phase == WEIR_PHASE_COUNT) return NULL;
    weir_task_fn *const by_phase[WEIR_PHASE_COUNT] = {[WEIR_FORWARD] = calls->forward,
                                                      [WEIR_FORWARD_CHECKPOINT] = calls->forward,
                                                      [WEIR_RECOMPUTE] = calls->recompute,
                                                      [WEIR_BACKWARD] = calls->backward,
                                                      [WEIR_BACKWARD_INPUT] = calls->backward_input,
                                                      [WEIR_BACKWARD_WEIGHT] =
                                                          calls->backward_weight,
                                                      [WEIR_NORM] = calls->norm,
                                                      [WEIR_UPDATE] = calls->update,
                                                      [WEIR_INFER] = calls->forward};
    return by_phase[phase];
}

static enum weir_phase phase_of(const struct weir__row_plan *prepared, const bool *checkpointed,
                                const struct weir_action *action) {
    if (!weir__writes(action->kind, WEIR__OUTPUTS)) return weir__kinds[action->kind].phase;
    if (prepared->infer) return WEIR_INFER;
    assert(action->micro_batch < prepared->micro_batch_count);
    size_t at = (size_t)action->stage * prepared->micro_batch_count + action->micro_batch;
    return checkpointed[at] ? WEIR_FORWARD_CHECKPOINT : WEIR_FORWARD;
}

static bool *find_checkpointed(struct weir__row_plan *prepared) {
    const struct weir_table *table = prepared->table;
    size_t count = (size_t)table->stage_count * table->micro_batch_count;
    bool *checkpointed = weir__pool_take(&prepared->pool, count, sizeof *checkpointed);
    for (uint32_t a = 0; checkpointed != NULL && a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        assert(action->stage < table->stage_count);
        if (weir__pass_of(action->kind) == WEIR__PASS_RECOMPUTE)
            checkpointed[(size_t)action->stage * table->micro_batch_count + action->micro_batch] =
                true;
    }
    return checkpointed;
}

/* Every callback that the table asks for must be there: each that is not is told once. */
static int check_callbacks(struct weir__row_plan *prepared, const struct weir__setup *setup,
                           struct weir_faults *faults) {
    const struct weir_table *table = prepared->table;
    uint32_t *told = weir__pool_take(&prepared->pool, table->stage_count, sizeof *told);
    int status = told == NULL ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK;
    _Static_assert(WEIR_KIND_COUNT <= 32, "a bit for each kind");
    for (uint32_t a = 0; told != NULL && a < table->action_count; a++) {
        uint32_t stage = table->actions[a].stage, number = table->actions[a].kind;
        const struct weir__kind_facts *kind = &weir__kinds[number];
        if (!kind->per_micro_batch || (told[stage] >> number & 1) != 0) continue;
        if (kind->phase == WEIR_PHASE_COUNT) continue;
        if (callback(setup->stages[stage].stage.calls, kind->phase) != NULL) continue;
        char text[96];
        weir_faults_add(faults, "%s: the table has %s actions (%c), so it needs that callback%s",
                        weir__setup_stage_text(setup, stage, text), kind->name, kind->letter,
                        kind->phase == WEIR_RECOMPUTE ? ", or checkpoint mode never" : "");
        told[stage] |= UINT32_C(1) << number;
        status = WEIR_ERR_CONFIG;
    }
    return status;
}

static int make_calls(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    assert(prepared->bound.views != NULL && prepared->calls == NULL);
    const struct weir_table *table = prepared->table;
    bool *checkpointed = find_checkpointed(prepared);
    prepared->calls =
        weir__pool_take(&prepared->pool, table->action_count, sizeof *prepared->calls);
    prepared->bound.workspaces =
        weir__pool_take(&prepared->pool, table->action_count, sizeof(void *));
    if (prepared->pool.failed) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t a = 0; a < table->action_count; a++) {
        const struct weir_action *action = &table->actions[a];
        const struct weir__kind_facts *kind = &weir__kinds[action->kind];
        struct weir__call *call = &prepared->calls[a];
        call->action = *action;
        call->phase = phase_of(prepared, checkpointed, action);
        call->run = callback(setup->stages[action->stage].stage.calls, call->phase);
        if (kind->per_micro_batch)
            call->views = weir__prepared_views(prepared, action->stage, action->micro_batch);
        bool forgets = (kind->writes & WEIR__OUTPUTS) && call->phase != WEIR_FORWARD;
        call->saves = kind->per_micro_batch && !forgets;
    }
    return WEIR_OK;
}

static int find_tails(struct weir__row_plan *prepared) {
    assert(prepared->tail == NULL);
    const struct weir_table *table = prepared->table;
    prepared->tail = weir__pool_take(&prepared->pool, table->worker_count, sizeof(uint32_t));
    if (prepared->tail == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint32_t a = table->lines[w];
        while (a < table->lines[w + 1] && weir__kinds[table->actions[a].kind].per_micro_batch) a++;
        prepared->tail[w] = a - table->lines[w];
    }
    return WEIR_OK;
}

/* ---- the plan ---- */

static int replay(struct weir__row_plan *prepared, const struct weir__setup *setup,
                  const struct weir__deps *deps, const double *duration) {
    assert(prepared->start != NULL && prepared->end != NULL);
    return weir__table_replay(prepared->table, deps, duration, NULL, prepared->start, prepared->end,
                              &prepared->makespan, setup->options.allocator);
}

static int replay_held(struct weir__row_plan *prepared, const struct weir__setup *setup,
                       uint32_t ahead, const double *duration) {
    assert(ahead > 0 && ahead < prepared->micro_batch_count);
    struct weir__deps held;
    int status =
        weir__deps_hold(prepared->table, &prepared->deps, setup->flow.no_backward, ahead, &held);
    if (status != WEIR_OK) return status;
    status = replay(prepared, setup, &held, duration);
    weir__deps_clean_up(&held);
    return status;
}

/* Stages without backward run two micro-batches ahead, so that one is made while the next stage
 * reads the other; or, where the lines do not allow that, as few more as they do. */
static int replay_table(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    assert(prepared->start == NULL && prepared->end == NULL);
    const struct weir_table *table = prepared->table;
    bool any = false;
    double *duration = weir__pool_take(&prepared->pool, table->action_count, sizeof *duration);
    prepared->start = weir__pool_take(&prepared->pool, table->action_count, sizeof(double));
    prepared->end = weir__pool_take(&prepared->pool, table->action_count, sizeof(double));
    if (prepared->pool.failed) return WEIR_ERR_OUT_OF_MEMORY;
    /* None is zero, so that start order is a topological order. */
    for (uint32_t a = 0; a < table->action_count; a++)
        duration[a] = weir__kinds[table->actions[a].kind].units;
    for (uint32_t s = 0; s < table->stage_count; s++)
        any |= setup->flow.no_backward[s] && !prepared->infer;
    for (uint32_t ahead = 2; any && ahead < prepared->micro_batch_count; ahead += 1 + ahead / 4) {
        int status = replay_held(prepared, setup, ahead, duration);
        if (status != WEIR_ERR_SCHEDULE) return status;
    }
    return replay(prepared, setup, &prepared->deps, duration);
}

/* The block of what comes by a lane is held while the copy may run: from when its source is made,
 * but at most during the one action before the one that needs it. All copies for an action begin at
 * the same moment, so that a lane's copies are in its order. */
static void look_ahead(struct weir__row_plan *prepared, const struct weir__call *call,
                       double before) {
    assert(before >= 0.0 && call->copy_begin <= call->copy_end);
    struct weir__memory *memory = &prepared->memory;
    double moment = before;
    for (uint32_t i = call->copy_begin; i < call->copy_end; i++) {
        const struct weir__prepared_copy *copy = &prepared->copies[i];
        if (copy->lane == WEIR__NO_LANE || copy->from_block == WEIR__NO_BLOCK) continue;
        uint32_t made = weir__prepared_made(prepared, copy);
        if (prepared->end[made] > moment) moment = prepared->end[made];
    }
    for (uint32_t i = call->copy_begin; i < call->copy_end; i++) {
        struct weir__prepared_copy *copy = &prepared->copies[i];
        copy->start = copy->lane == WEIR__NO_LANE ? prepared->start[copy->action] : moment;
        assert(copy->start <= prepared->start[copy->action]);
        memory->blocks[copy->to_block].ahead = copy->start;
    }
}

/* A worker that does its actions itself gives copies to their streams before it begins the one
 * before theirs (worker.c). */
static void look_ahead_all(struct weir__row_plan *prepared) {
    const struct weir_table *table = prepared->table;
    for (uint32_t w = 0; w < table->worker_count; w++)
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++)
            look_ahead(prepared, &prepared->calls[a],
                       a == table->lines[w] ? 0.0 : prepared->start[a - 1]);
}

static int plan(struct weir__row_plan *prepared, const struct weir__setup *setup) {
    const struct weir_table *table = prepared->table;
    assert(prepared->arena_bytes == NULL && prepared->least_bytes == NULL);
    const double *start = prepared->start, *end = prepared->end;
    struct weir__memory *memory = &prepared->memory;
    prepared->least_bytes = weir__pool_take(&prepared->pool, table->worker_count, sizeof(size_t));
    prepared->arena_bytes =
        setup->estimate ? prepared->least_bytes
                        : weir__pool_take(&prepared->pool, table->worker_count, sizeof(size_t));
    if (prepared->arena_bytes == NULL || prepared->least_bytes == NULL)
        return WEIR_ERR_OUT_OF_MEMORY;
    look_ahead_all(prepared);
    weir__ways_choose(prepared, setup);
    if (setup->estimate)
        return weir__memory_least(memory, table, start, end, prepared->least_bytes);
    for (uint32_t w = 0; setup->arena_bytes != NULL && w < table->worker_count; w++)
        prepared->arena_bytes[w] = setup->arena_bytes[w];
    int status = weir__memory_pack(memory, table, &prepared->deps, start, end,
                                   prepared->arena_bytes, prepared->least_bytes);
    if (status != WEIR_OK) return status;
    return weir__prepared_waits(prepared, setup, start, end);
}

static int make_stage_workers(struct weir__row_plan *prepared) {
    assert(prepared->table != NULL && prepared->stage_worker == NULL);
    uint32_t *workers =
        weir__pool_take(&prepared->pool, prepared->table->stage_count, sizeof *workers);
    if (workers == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    weir__table_workers(prepared->table, workers);
    prepared->stage_worker = workers;
    return WEIR_OK;
}

static int outline(struct weir__row_plan *prepared, const struct weir__setup *setup,
                   struct weir_faults *faults) {
    int status = make_table(prepared, setup, faults);
    if (status != WEIR_OK) return status;
    if ((status = derive(prepared, setup)) != WEIR_OK) return status;
    if ((status = make_stage_workers(prepared)) != WEIR_OK) return status;
    if ((status = make_views(prepared, setup)) != WEIR_OK) return status;
    return replay_table(prepared, setup);
}

static int build(struct weir__row_plan *prepared, const struct weir__setup *setup,
                 struct weir_faults *faults) {
    assert(setup->flow.stage_count > 0);
    int status = outline(prepared, setup, faults);
    if (status != WEIR_OK) return status;
    struct weir_stage_bytes *bytes =
        weir__pool_take(&prepared->pool, 2 * (size_t)setup->flow.stage_count, sizeof *bytes);
    if (bytes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    if ((status = check_callbacks(prepared, setup, faults)) != WEIR_OK) return status;
    if ((status = make_calls(prepared, setup)) != WEIR_OK) return status;
    if ((status = find_phases(prepared)) != WEIR_OK) return status;
    if ((status = measure(prepared, setup, bytes, faults)) != WEIR_OK) return status;
    if ((status = find_tails(prepared)) != WEIR_OK) return status;
    status = weir__prepared_lifetimes(prepared, setup, bytes);
    if (status == WEIR_ERR_OVERFLOW)
        weir_faults_add(faults, "all sizes together overflow: use fewer rows or smaller stages");
    if (status != WEIR_OK) return status;
    struct weir__bound *bound = &prepared->bound;
    bound->ends = weir__pool_take(&prepared->pool, prepared->copy_count, sizeof *bound->ends);
    bound->streams = weir__pool_take(&prepared->pool, prepared->lane_count, sizeof(void *));
    size_t ports = prepared->lane_count + 2 * (size_t)weir__replicas(&setup->options) *
                                              (1 + (size_t)prepared->table->worker_count);
    bound->ports = weir__pool_take(&prepared->pool, ports, sizeof(void *));
    weir__ties_take(prepared, setup);
    if (prepared->pool.failed) return WEIR_ERR_OUT_OF_MEMORY;
    return plan(prepared, setup);
}

static void begin(struct weir__row_plan *prepared, const struct weir__setup *setup, int64_t rows,
                  bool infer) {
    assert(rows >= 1 && rows <= setup->options.rows);
    memset(prepared, 0, sizeof *prepared);
    weir__pool_init(&prepared->pool, setup->options.allocator);
    weir__memory_init(&prepared->memory, &prepared->pool);
    prepared->rows = rows;
    prepared->infer = infer;
}

int weir__prepared_init(struct weir__row_plan *prepared, const struct weir__setup *setup,
                        int64_t rows, bool infer, struct weir_faults *faults) {
    begin(prepared, setup, rows, infer);
    int status = build(prepared, setup, faults);
    if (status != WEIR_OK) weir__prepared_clean_up(prepared);
    return status;
}

int weir__prepared_outline(struct weir__row_plan *prepared, const struct weir__setup *setup,
                           int64_t rows) {
    begin(prepared, setup, rows, setup->options.infer_only);
    int status = outline(prepared, setup, NULL);
    if (status != WEIR_OK) weir__prepared_clean_up(prepared);
    return status;
}

void weir__prepared_clean_up(struct weir__row_plan *prepared) {
    weir__deps_clean_up(&prepared->deps);
    weir__deps_clean_up(&prepared->orders);
    weir_table_destroy(prepared->table);
    weir_table_destroy(prepared->exported);
    weir__pool_clean_up(&prepared->pool);
    memset(prepared, 0, sizeof *prepared);
}

int weir__prepared_new(const struct weir__setup *setup, int64_t rows, bool infer,
                       struct weir__row_plan **list, uint32_t *count, struct weir_faults *faults) {
    assert(list != NULL && count != NULL);
    const struct weir_allocator *allocator = setup->options.allocator;
    struct weir__row_plan *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__prepared_init(made, setup, rows, infer, faults);
    if (status != WEIR_OK) {
        weir__release(allocator, made, 1, sizeof *made);
        return status;
    }
    list[(*count)++] = made;
    return WEIR_OK;
}

void weir__prepared_destroy(const struct weir_allocator *allocator, struct weir__row_plan **list,
                            uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        weir__prepared_clean_up(list[i]);
        weir__release(allocator, list[i], 1, sizeof **list);
    }
}
