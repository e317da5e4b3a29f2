/* SPDX-License-Identifier: MIT */
/* Random models of engine stages, and random tables that can be executed. */
#include "engine/engine_stages.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint32_t below(uint32_t bound) {
    return (uint32_t)test_random_below(bound);
}

static bool chance(uint32_t percent) {
    return below(100) < percent;
}

/* ---- models ---- */

static struct weir_tensor random_tensor(bool floating) {
    static const enum weir_dtype dtypes[] = {WEIR_F32, WEIR_F64, WEIR_I64, WEIR_U8, WEIR_BOOL};
    struct weir_tensor tensor = {.dtype = dtypes[below(floating ? 2 : 5)], .rank = below(3)};
    for (uint32_t d = 0; d < tensor.rank; d++) tensor.shape[d] = 1 + below(d == 0 ? 6 : 2);
    tensor.differentiable = weir_dtype_is_float(tensor.dtype) && chance(80);
    return tensor;
}

static void random_stage(struct engine_model *model, uint32_t s) {
    struct engine_stage *stage = &model->stages[s];
    stage->output_count = 1 + below(3);
    for (uint32_t k = 0; k < stage->output_count; k++)
        stage->outputs[k] = random_tensor(k == 0 && chance(90));
    stage->parameters = chance(80) ? 1 + below(9) : 0;
    stage->state_bytes = chance(30) ? 1 + below(200) : 0;
    stage->keeps_inputs = chance(40);
    stage->checks_inputs = !stage->keeps_inputs && chance(40);
    stage->parts_areas = chance(50);
    stage->lists_areas = stage->parts_areas && chance(50);
    stage->reads_grads = !stage->parts_areas && chance(50);
    stage->adds_border = s > 0 && chance(30);
    stage->adds_skips = chance(30);
    stage->fixed = chance(15);
    stage->loss_scale = s + 1 == model->stage_count ? 1.0 : chance(15) ? 0.1 : 0.0;
}

static void random_inputs(struct engine_model *model) {
    static const char *const names[] = {"x", "second", "third", "fourth"};
    uint32_t count = 1 + below(4);
    model->input_count = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t stage = k == 0 ? 0 : below(model->stage_count);
        if (k == 1 && chance(60)) stage = model->stage_count - 1;
        struct weir_input *input =
            engine_input(model, stage, names[k], random_tensor(k == 0 && chance(85)));
        input->replicated = k > 0 && chance(20);
        if (input->replicated) input->tensor.differentiable = false;
    }
}

static void random_skip(struct engine_model *model, uint32_t number) {
    static const char *const names[] = {"a", "b", "a", "b"};
    static const char *const spaces[] = {NULL, "", "inner", "inner"};
    uint32_t source = below(model->stage_count - 1);
    uint32_t pop = source + 1 + below(model->stage_count - source - 1);
    bool popped = chance(70), empty = chance(15);
    struct weir_tensor tensor = random_tensor(chance(75));
    for (uint32_t s = source; s <= pop; s++) {
        bool reads = s == pop || s == source || chance(40);
        if (!reads || model->stages[s].skip_count == ENGINE_SKIPS_MAX) continue;
        enum weir_skip_verb verb = s == source          ? WEIR_SKIP_STASH
                                   : s == pop && popped ? WEIR_SKIP_POP
                                                        : WEIR_SKIP_READ;
        struct weir_skip_use *use = engine_skip(model, s, verb, names[number]);
        use->name_space = spaces[number];
        use->tensor = tensor;
        use->empty = s == source && empty;
    }
}

/* Mostly the first stages, at times all of them, or one anywhere. */
static void random_frozen(struct engine_model *model) {
    uint32_t count = chance(25) ? below(model->stage_count) + chance(10) : 0;
    for (uint32_t s = 0; s < count; s++) engine_freeze(model, s);
    if (chance(8)) engine_freeze(model, below(model->stage_count));
}

/* Ranges of one length from `from` on, of one name, in at least two of the stages that learn; at
 * times two in a stage, where others may stand. */
static void random_tie(struct engine_model *model, const char *name, uint32_t from) {
    uint32_t stages[ENGINE_STAGES_MAX], count = 0, length = 1 + below(3);
    for (uint32_t s = 0; s < model->stage_count; s++) {
        const struct engine_stage *stage = &model->stages[s];
        bool fits = !stage->fixed && !stage->frozen && stage->parameters >= from + length;
        if (fits && chance(70)) stages[count++] = s;
    }
    for (uint32_t i = 0; count > 1 && i < count; i++) {
        uint32_t spare = from > 0 ? model->stages[stages[i]].parameters - from - length : 0;
        bool twice = spare >= length && chance(30);
        engine_tie(model, stages[i], name, from + (twice ? 0 : below(spare + 1)), length);
        if (twice) engine_tie(model, stages[i], name, from + length, length);
    }
}

void engine_random_model(struct engine_model *model, uint32_t stages) {
    engine_model_init(model, stages);
    model->seed = test_random_u64();
    for (uint32_t s = 0; s < stages; s++) random_stage(model, s);
    random_inputs(model);
    uint32_t skips = stages > 1 ? below(5) : 0;
    for (uint32_t i = 0; i < skips; i++) random_skip(model, i);
    random_frozen(model);
    if (chance(40)) random_tie(model, "v", 0);
    if (chance(40)) random_tie(model, "w", 3);
}

/* ---- tables ---- */

enum { ROW_BYTES = 16384 };

struct cell_state {
    bool f, r, i, done; /* done: B or W */
    bool splits, recomputes;
};

struct rows {
    uint32_t stages, workers, m;
    bool late;
    const bool *forward_only;
    uint32_t worker_of[ENGINE_STAGES_MAX];
    struct cell_state cells[ENGINE_STAGES_MAX][ENGINE_CHUNKS_MAX];
    uint32_t done[ENGINE_STAGES_MAX]; /* gradients so far */
    char text[ENGINE_STAGES_MAX][ROW_BYTES];
    size_t length[ENGINE_STAGES_MAX];
};

static void put(struct rows *rows, uint32_t s, char kind, uint32_t i) {
    uint32_t w = rows->worker_of[s];
    if (kind != 'F' && rows->forward_only != NULL && rows->forward_only[s]) return;
    size_t at = rows->length[w];
    int length = snprintf(rows->text[w] + at, ROW_BYTES - at, "%s%" PRIu32 "%c%" PRIu32,
                          at > 0 ? "," : "", s, kind, i);
    rows->length[w] = at + (size_t)length;
}

/* Does one thing that can be done; false if it cannot be done now. */
static bool advance(struct rows *rows, uint32_t s, uint32_t i, struct engine_order *order) {
    struct cell_state *cell = &rows->cells[s][i];
    bool last = s + 1 == rows->stages;
    bool gradient_there = last ? cell->f : rows->cells[s + 1][i].done || rows->cells[s + 1][i].i;
    if (!cell->f) {
        if (s > 0 && !rows->cells[s - 1][i].f) return false;
        cell->f = true;
        put(rows, s, 'F', i);
    } else if (cell->recomputes && !cell->r) {
        if (rows->late && !gradient_there) return false;
        cell->r = true;
        put(rows, s, 'R', i);
    } else if (cell->done || (!cell->i && !gradient_there)) {
        return false;
    } else if (cell->splits && !cell->i) {
        cell->i = true;
        put(rows, s, 'I', i);
    } else {
        cell->done = true;
        put(rows, s, cell->splits ? 'W' : 'B', i);
        order->at[s][rows->done[s]++] = i;
    }
    return true;
}

static void deal_stages(struct rows *rows) {
    for (uint32_t s = 0; s < rows->stages; s++)
        rows->worker_of[s] = s < rows->workers ? s : below(rows->workers);
    for (uint32_t s = rows->stages; s-- > 1;) {
        uint32_t other = below(s + 1), kept = rows->worker_of[s];
        rows->worker_of[s] = rows->worker_of[other];
        rows->worker_of[other] = kept;
    }
}

static void decide_cells(struct rows *rows) {
    uint32_t recomputes = below(3) * 50, splits = below(3) * 50;
    for (uint32_t s = 0; s < rows->stages; s++) {
        for (uint32_t i = 0; i < rows->m; i++) {
            rows->cells[s][i].recomputes = chance(recomputes);
            rows->cells[s][i].splits = chance(splits);
        }
    }
    /* with no R anywhere the reader would add what the options ask for */
    rows->cells[below(rows->stages)][below(rows->m)].recomputes = true;
}

size_t engine_random_table(char *text, size_t capacity, uint32_t stages, uint32_t workers,
                           uint32_t micro_batches, bool late, const bool *forward_only,
                           struct engine_order *order) {
    static struct rows rows;
    memset(&rows, 0, sizeof rows);
    rows.stages = stages, rows.workers = workers, rows.m = micro_batches;
    rows.late = late, rows.forward_only = forward_only;
    deal_stages(&rows);
    decide_cells(&rows);
    uint32_t idle = 0, cells = stages * micro_batches;
    while (idle < 64 * cells) {
        bool did = advance(&rows, below(stages), below(micro_batches), order);
        idle = did ? 0 : idle + 1;
    }
    for (uint32_t s = 0; s < stages; s++) /* what chance has left */
        while (rows.done[s] < micro_batches) {
            bool any = false;
            for (uint32_t c = 0; c < cells; c++)
                any |= advance(&rows, c / micro_batches, c % micro_batches, order);
            if (!any) break;
        }
    size_t length = 0;
    for (uint32_t w = 0; w < workers; w++)
        length += (size_t)snprintf(text + length, capacity - length, "%s\n", rows.text[w]);
    return length;
}

/* ---- runs ---- */

static enum weir_checkpoint random_mode(void) {
    return (enum weir_checkpoint)below(WEIR_CHECKPOINT_NEVER + 1);
}

bool engine_random_accepts(const struct engine_random *run, int64_t rows) {
    struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
    struct weir_table *table = NULL;
    want.schedule = run->options.schedule;
    want.stages = run->options.stage_count;
    want.workers = run->options.workers;
    want.micro_batches = engine_chunk_count(rows, run->options.chunks);
    int status = weir_table_new(&want, NULL, &table);
    weir_table_destroy(table);
    return status == WEIR_OK;
}

/* One that can be had for the stages and micro-batches, with workers that it can be had on. */
static void choose_named(struct engine_random *run) {
    struct weir_pipe_options *options = &run->options;
    uint32_t count = 0, stages = options->stage_count;
    while (weir_schedule_name(count) != NULL) count++;
    do {
        options->schedule = weir_schedule_name(below(count));
        options->workers = 1 + below(stages < 4 ? stages : 4);
    } while (!engine_random_accepts(run, options->rows));
}

static void choose_schedule(struct engine_random *run, const struct engine_model *model) {
    bool frozen[ENGINE_STAGES_MAX];
    for (uint32_t s = 0; s < model->stage_count; s++) frozen[s] = model->stages[s].frozen;
    struct weir_pipe_options *options = &run->options;
    uint32_t m = engine_chunk_count(options->rows, options->chunks);
    choose_named(run);
    run->has_table = below(4) == 0;
    if (!run->has_table) return;
    options->workers = 1 + below(options->stage_count < 4 ? options->stage_count : 4);
    options->table_csv = run->table;
    options->table_csv_bytes =
        engine_random_table(run->table, sizeof run->table, options->stage_count, options->workers,
                            m, options->recompute_late, below(2) == 0 ? frozen : NULL, &run->order);
}

bool engine_fills_groups(uint32_t micro_batches, uint32_t groups) {
    return engine_chunk_count(micro_batches, groups) == groups;
}

void engine_random_groups(struct engine_random *run) {
    struct weir_pipe_options *options = &run->options;
    uint32_t m = engine_chunk_count(options->rows, options->chunks);
    do options->gradient_groups = UINT32_C(1) << below(5);
    while (!engine_fills_groups(m, options->gradient_groups));
    options->accumulates = below(2) == 0;
}

void engine_random_choose(struct engine_random *run, struct engine_model *model) {
    memset(run, 0, sizeof *run);
    engine_random_model(model, 1 + below(6));
    model->jitter = below(3) == 0 ? 0 : 1 + below(12);
    run->options = engine_options(model);
    struct weir_pipe_options *options = &run->options;
    options->rows = 1 + (int64_t)below(20);
    options->chunks = 1 + below(9);
    options->checkpoint = random_mode();
    for (uint32_t s = 0; s < model->stage_count; s++) run->stage_checkpoint[s] = random_mode();
    if (below(3) == 0) options->stage_checkpoint = run->stage_checkpoint;
    options->recompute_late = below(4) == 0;
    options->debug_inputs = below(6) == 0;
    options->link = below(3) == 0 ? WEIR_LINK_COPY : WEIR_LINK_POINTER;
    if (options->link == WEIR_LINK_COPY && below(3) == 0) options->link_delay_ns = below(100000);
    options->wait = (enum weir_wait)below(3);
    bool normed = false;
    for (uint32_t s = 0; s < model->stage_count; s++)
        normed |= engine_norm_count(&model->stages[s]) > 0;
    options->clip_norm = normed && below(3) == 0 ? 0.01 : 0.0;
    choose_schedule(run, model);
}

void engine_random_describe(const struct engine_random *run, uint32_t number) {
    const struct weir_pipe_options *options = &run->options;
    printf("run %u: %u stages, %u workers, %lld rows in %u chunks, %s, checkpoint %s%s, %s%s%s\n",
           number, options->stage_count, options->workers, (long long)options->rows,
           options->chunks, run->has_table ? "table" : options->schedule,
           weir_checkpoint_name(options->checkpoint),
           options->stage_checkpoint != NULL ? " and per stage" : "",
           options->recompute_late ? "late" : "early",
           options->link == WEIR_LINK_COPY ? ", copies" : "",
           options->debug_inputs ? ", inputs watched" : "");
    if (run->has_table) fputs(run->table, stdout);
}
