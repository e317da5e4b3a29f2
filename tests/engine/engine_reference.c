/* SPDX-License-Identifier: MIT */
/*
 * The unpipelined reference: all stages of a micro-batch after one another, then all backwards,
 * each tensor in memory of its own. Nothing of the engine is used here, not even its arithmetic of
 * micro-batches. And trials: a pipe beside its reference.
 */
#include "engine/engine_stages.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One stage and micro-batch. */
struct cell {
    struct weir_view inputs[ENGINE_PORTS_MAX], input_grads[ENGINE_PORTS_MAX];
    struct weir_view outputs[ENGINE_OUTPUTS_MAX], output_grads[ENGINE_OUTPUTS_MAX];
    struct weir_view skips[ENGINE_SKIPS_MAX], skip_grads[ENGINE_SKIPS_MAX];
    struct weir_view skip_grads_out[ENGINE_SKIPS_MAX];
    void *saved, *saved_for_input;
    void *areas[3];
    double loss;
};

struct pass {
    struct engine_reference *reference;
    struct engine_batch *batch;
    const struct weir_step *step;
    const struct engine_reference_options *how;
    uint32_t m;
    struct cell *cells; /* [stage][micro-batch] */
};

struct chunk {
    struct chunk *next;
    double padding[7];
};

/* Filled with NaNs; freed with the step. */
static void *take(struct engine_reference *reference, size_t bytes) {
    size_t whole = (sizeof(struct chunk) + bytes + 63) / 64 * 64;
    struct chunk *chunk = aligned_alloc(64, whole);
    memset(chunk, 0xFF, whole);
    chunk->next = reference->memory;
    reference->memory = chunk;
    return chunk + 1;
}

static void drop_memory(struct engine_reference *reference) {
    while (reference->memory != NULL) {
        struct chunk *chunk = reference->memory;
        reference->memory = chunk->next;
        free(chunk);
    }
}

/* ---- scatter ---- */

static int64_t chunk_rows(int64_t rows, uint32_t chunks) {
    return (rows + chunks - 1) / chunks;
}

uint32_t engine_chunk_count(int64_t rows, uint32_t chunks) {
    uint32_t count = 0;
    for (int64_t first = 0; first < rows; first += chunk_rows(rows, chunks)) count++;
    return count;
}

static int64_t first_of(const struct pass *pass, uint32_t i) {
    return i * chunk_rows(pass->step->rows, pass->how->chunks);
}

static int64_t rows_of(const struct pass *pass, uint32_t i) {
    int64_t size = chunk_rows(pass->step->rows, pass->how->chunks);
    int64_t left = pass->step->rows - first_of(pass, i);
    return left < size ? left : size;
}

void engine_order_of(struct engine_order *order, const char *schedule, uint32_t micro_batches) {
    bool descending = strcmp(schedule, "gpipe") == 0 || strcmp(schedule, "looped-bfs") == 0;
    for (uint32_t s = 0; s < ENGINE_STAGES_MAX; s++)
        for (uint32_t k = 0; k < micro_batches; k++)
            order->at[s][k] = descending ? micro_batches - 1 - k : k;
}

/* ---- views ---- */

static struct cell *cell_of(const struct pass *pass, uint32_t s, uint32_t i) {
    return &pass->cells[(size_t)s * pass->m + i];
}

static size_t port_bytes(const struct engine_port *port) {
    return (size_t)port->width * weir_dtype_bytes(port->tensor.dtype);
}

static void view_inputs(const struct pass *pass, struct engine_stage *stage, uint32_t i) {
    const struct engine_model *model = pass->reference->model;
    struct cell *cell = cell_of(pass, stage->index, i);
    uint32_t place = 0, borders = stage->index > 0 ? stage[-1].output_count : 0;
    for (; place < borders; place++) {
        const struct engine_port *port = &stage->consumed[place];
        cell->inputs[place] = cell_of(pass, stage->index - 1, i)->outputs[place];
        if (port->tensor.differentiable)
            cell->input_grads[place].data =
                take(pass->reference, port_bytes(port) * (size_t)rows_of(pass, i));
    }
    for (uint32_t k = 0; k < model->input_count; k++) {
        if (model->inputs[k].stage != stage->index) continue;
        const struct engine_port *port = &stage->consumed[place];
        size_t at = port->replicated ? 0 : port_bytes(port) * (size_t)first_of(pass, i);
        cell->inputs[place].data = (char *)pass->batch->inputs[k] + at;
        if (pass->batch->input_grads[k] != NULL)
            cell->input_grads[place].data = (char *)pass->batch->input_grads[k] + at;
        place++;
    }
}

static void view_outputs(const struct pass *pass, const struct engine_stage *stage, uint32_t i) {
    struct cell *cell = cell_of(pass, stage->index, i);
    bool last = stage->index + 1 == pass->reference->model->stage_count;
    for (uint32_t k = 0; k < stage->output_count; k++) {
        size_t bytes = port_bytes(&stage->produced[k]);
        cell->outputs[k].data =
            last ? (char *)pass->batch->outputs[k] + bytes * (size_t)first_of(pass, i)
                 : take(pass->reference, bytes * (size_t)rows_of(pass, i));
    }
}

static bool same_skip(const struct weir_skip_use *a, const struct weir_skip_use *b) {
    const char *x = a->name_space != NULL ? a->name_space : "";
    const char *y = b->name_space != NULL ? b->name_space : "";
    return strcmp(a->name, b->name) == 0 && strcmp(x, y) == 0;
}

/* The first use of the same skip from `from` on, upwards; NULL if there is none. */
static const struct weir_skip_use *find_use(const struct engine_model *model, uint32_t from,
                                            const struct weir_skip_use *use, bool stash,
                                            uint32_t *s, uint32_t *j) {
    for (*s = from; *s < model->stage_count; (*s)++) {
        for (*j = 0; *j < model->stages[*s].skip_count; (*j)++) {
            const struct weir_skip_use *other = &model->stages[*s].skips[*j];
            if ((other->verb == WEIR_SKIP_STASH) == stash && same_skip(other, use)) return other;
        }
    }
    return NULL;
}

/* Stages ascending: a stash makes the memory that its readers see. */
static void view_skips(const struct pass *pass, const struct engine_stage *stage, uint32_t i) {
    struct cell *cell = cell_of(pass, stage->index, i);
    size_t rows = (size_t)rows_of(pass, i);
    for (uint32_t j = 0; j < stage->skip_count; j++) {
        const struct weir_skip_use *use = &stage->skips[j];
        uint32_t s, k;
        const struct weir_skip_use *source = find_use(pass->reference->model, 0, use, true, &s, &k);
        if (source == NULL || source->empty) continue;
        size_t bytes = rows * weir_dtype_bytes(use->tensor.dtype);
        for (uint32_t d = 0; d < use->tensor.rank; d++) bytes *= (size_t)use->tensor.shape[d];
        if (use->verb == WEIR_SKIP_STASH) {
            cell->skips[j].data = take(pass->reference, bytes);
            continue;
        }
        cell->skips[j] = cell_of(pass, s, i)->skips[k];
        if (use->tensor.differentiable) cell->skip_grads_out[j].data = take(pass->reference, bytes);
    }
}

/* Gradients come from the stages above, whose cells are complete. */
static void view_arriving(const struct pass *pass, const struct engine_stage *stage, uint32_t i) {
    const struct engine_model *model = pass->reference->model;
    struct cell *cell = cell_of(pass, stage->index, i);
    for (uint32_t k = 0; stage->index + 1 < model->stage_count && k < stage->output_count; k++)
        cell->output_grads[k] = cell_of(pass, stage->index + 1, i)->input_grads[k];
    for (uint32_t j = 0; j < stage->skip_count; j++) {
        uint32_t s, k;
        if (find_use(model, stage->index + 1, &stage->skips[j], false, &s, &k) != NULL)
            cell->skip_grads[j] = cell_of(pass, s, i)->skip_grads_out[k];
    }
}

/* ---- calls ---- */

static struct weir_task task_of(const struct pass *pass, const struct engine_stage *stage,
                                uint32_t i, enum weir_phase phase) {
    struct cell *cell = cell_of(pass, stage->index, i);
    struct engine_reference *reference = pass->reference;
    return (struct weir_task){.phase = phase,
                              .stage = stage->index,
                              .micro_batch = i,
                              .micro_batch_count = pass->m,
                              .rows = rows_of(pass, i),
                              .row_first = first_of(pass, i),
                              .rows_total = pass->step->rows,
                              .mini_batch = pass->step->mini_batch,
                              .update = pass->step->update,
                              .loss_weight = pass->step->loss_weight > 0.0
                                                 ? pass->step->loss_weight
                                                 : (double)pass->step->rows,
                              .inputs = cell->inputs,
                              .outputs = cell->outputs,
                              .output_grads = cell->output_grads,
                              .input_grads = cell->input_grads,
                              .skips = cell->skips,
                              .skip_grads = cell->skip_grads,
                              .skip_grads_out = cell->skip_grads_out,
                              .saved = cell->saved,
                              .saved_for_input = cell->saved_for_input,
                              .areas = cell->areas[0] != NULL ? cell->areas : NULL,
                              .parameters = reference->parameters[stage->index],
                              .gradients = reference->gradients[stage->index],
                              .optimizer = reference->optimizer[stage->index],
                              .gradient_scale = 1.0,
                              .loss = &cell->loss};
}

static void call(const struct pass *pass, struct engine_stage *stage, struct weir_task *task) {
    struct weir_stage_bytes bytes = {0};
    enum engine_lifecycle kept = stage->model->lifecycle.at;
    stage->model->lifecycle.at = ENGINE_NONE;
    engine_stage_calls.measure(stage, task->rows, &bytes);
    stage->model->lifecycle.at = kept;
    if (bytes.workspace[task->phase] > 0)
        task->workspace = take(pass->reference, bytes.workspace[task->phase]);
    struct cell *cell = cell_of(pass, task->stage, task->micro_batch);
    if (task->phase == WEIR_FORWARD && !stage->frozen)
        task->saved = cell->saved = take(pass->reference, bytes.saved);
    if (task->phase == WEIR_FORWARD && !stage->frozen && bytes.saved_for_input > 0)
        task->saved_for_input = cell->saved_for_input =
            take(pass->reference, bytes.saved_for_input);
    if (task->phase == WEIR_FORWARD && !stage->frozen && bytes.area_count > 0) {
        cell->areas[0] = take(pass->reference, bytes.areas[0].bytes);
        cell->areas[2] = take(pass->reference, bytes.areas[2].bytes);
        task->areas = cell->areas;
    }
    EXPECT_STATUS(engine_stage_calls.forward(stage, task), WEIR_OK);
}

static void go_forth(const struct pass *pass) {
    struct engine_model *model = pass->reference->model;
    for (uint32_t i = 0; i < pass->m; i++) {
        for (uint32_t s = 0; s < model->stage_count; s++) {
            struct engine_stage *stage = &model->stages[s];
            view_inputs(pass, stage, i);
            view_outputs(pass, stage, i);
            view_skips(pass, stage, i);
            struct weir_task task =
                task_of(pass, stage, i, pass->how->infer ? WEIR_INFER : WEIR_FORWARD);
            call(pass, stage, &task);
            pass->reference->loss += cell_of(pass, s, i)->loss;
        }
    }
}

/* Which group the micro-batch is of; groups are as torch.chunk makes them of micro-batches. */
static uint32_t group_of(const struct pass *pass, uint32_t i) {
    uint32_t groups = pass->how->groups > 0 ? pass->how->groups : 1;
    return i / (uint32_t)chunk_rows(pass->m, groups);
}

static double *sum_of(const struct pass *pass, uint32_t s, uint32_t group) {
    return group == 0 ? pass->reference->gradients[s] : pass->reference->further[s][group];
}

/* Pairs of neighbours, then pairs of those, … */
static void add_groups(const struct pass *pass, uint32_t s) {
    uint32_t groups = group_of(pass, pass->m - 1) + 1;
    for (uint32_t far = 1; far < groups; far *= 2)
        for (uint32_t j = 0; j < groups; j += 2 * far)
            for (uint32_t k = 0; k < pass->reference->model->stages[s].parameters; k++)
                sum_of(pass, s, j)[k] += sum_of(pass, s, j + far)[k];
}

static void go_back(const struct pass *pass) {
    struct engine_model *model = pass->reference->model;
    bool begun[ENGINE_GROUPS_MAX];
    for (uint32_t s = model->stage_count; s-- > 0;) {
        memset(begun, 0, sizeof begun);
        for (uint32_t k = 0; !model->stages[s].frozen && k < pass->m; k++) {
            uint32_t i = pass->how->order->at[s][k];
            view_arriving(pass, &model->stages[s], i);
            struct weir_task task = task_of(pass, &model->stages[s], i, WEIR_BACKWARD);
            uint32_t group = group_of(pass, i);
            task.gradients = sum_of(pass, s, group);
            task.gradients_first = !begun[group] && pass->step->accumulate_first;
            begun[group] = true;
            call(pass, &model->stages[s], &task);
        }
        if (pass->step->accumulate_last && !model->stages[s].frozen) add_groups(pass, s);
    }
}

/* What a norm or update is given: all uses of each name that the stage has, stages ascending. */
struct given {
    struct weir_tied tied[ENGINE_TIES_MAX];
    void *gradients[ENGINE_TIES_MAX][ENGINE_STAGES_MAX * ENGINE_TIES_MAX];
};

static void give_uses(const struct pass *pass, const char *name, struct weir_tied *tied,
                      void **gradients) {
    const struct engine_model *model = pass->reference->model;
    *tied = (struct weir_tied){name, 0, gradients};
    for (uint32_t s = 0; s < model->stage_count; s++)
        for (uint32_t i = 0; i < model->stages[s].tie_count; i++)
            if (strcmp(model->stages[s].ties[i].name, name) == 0)
                gradients[tied->use_count++] = (char *)pass->reference->gradients[s] +
                                               model->stages[s].ties[i].gradient_offset;
}

static void give_ties(const struct pass *pass, const struct engine_stage *stage,
                      struct weir_task *task, struct given *given) {
    for (uint32_t i = 0; i < stage->tie_count; i++)
        give_uses(pass, stage->ties[i].name, &given->tied[i], given->gradients[i]);
    task->tied = given->tied;
    task->tied_count = stage->tie_count;
}

static void take_norm(const struct pass *pass, double *squares) {
    struct engine_model *model = pass->reference->model;
    bool any = false;
    for (uint32_t s = 0; s < model->stage_count; s++) {
        struct engine_stage *stage = &model->stages[s];
        struct weir_task task = task_of(pass, stage, 0, WEIR_NORM);
        struct given given;
        double parts[ENGINE_PARTS_MAX];
        task.norm_squares = parts;
        give_ties(pass, stage, &task, &given);
        if (engine_norm_count(stage) == 0) continue;
        call(pass, stage, &task);
        for (uint32_t i = 0; i < engine_norm_count(stage); i++) *squares = *squares + parts[i];
        any = true;
    }
    pass->reference->gradient_norm = any ? sqrt(*squares) : NAN;
}

static void finish(const struct pass *pass) {
    struct engine_model *model = pass->reference->model;
    double squares = 0.0, scale = 1.0, clip = pass->how->clip_norm;
    take_norm(pass, &squares);
    double norm = pass->reference->gradient_norm;
    if (clip > 0.0 && clip / (norm + 1e-6) < 1.0) scale = clip / (norm + 1e-6);
    pass->reference->updated = !pass->step->no_update;
    for (uint32_t s = 0; !pass->step->no_update && s < model->stage_count; s++) {
        struct weir_task task = task_of(pass, &model->stages[s], 0, WEIR_UPDATE);
        struct given given;
        task.gradient_scale = scale;
        give_ties(pass, &model->stages[s], &task, &given);
        if (!model->stages[s].fixed && !model->stages[s].frozen)
            call(pass, &model->stages[s], &task);
    }
}

void engine_reference_step(struct engine_reference *reference, struct engine_batch *batch,
                           const struct weir_step *step,
                           const struct engine_reference_options *options) {
    struct pass pass = {.reference = reference,
                        .batch = batch,
                        .step = step,
                        .how = options,
                        .m = engine_chunk_count(step->rows, options->chunks)};
    pass.cells = calloc((size_t)reference->model->stage_count * pass.m, sizeof *pass.cells);
    reference->loss = 0.0;
    reference->gradient_norm = NAN;
    reference->updated = false;
    reference->model->reference = true;
    go_forth(&pass);
    if (!options->infer) go_back(&pass);
    if (!options->infer && step->accumulate_last) finish(&pass);
    reference->model->reference = false;
    free(pass.cells);
    drop_memory(reference);
}

static double *lasting(uint32_t count) {
    double *memory = aligned_alloc(64, ((size_t)count * sizeof(double) / 64 + 1) * 64);
    memset(memory, 0, count * sizeof(double));
    return memory;
}

void engine_reference_init(struct engine_reference *reference, struct engine_model *model) {
    *reference = (struct engine_reference){.model = model};
    for (uint32_t s = 0; s < model->stage_count; s++) {
        uint32_t count = model->stages[s].parameters;
        reference->parameters[s] = lasting(count);
        reference->gradients[s] = lasting(count);
        for (uint32_t j = 1; j < ENGINE_GROUPS_MAX; j++) reference->further[s][j] = lasting(count);
        reference->optimizer[s] = lasting(count);
        for (uint32_t i = 0; i < count; i++)
            reference->parameters[s][i] = engine_initial_parameter(model, s, i);
    }
}

void engine_reference_clean_up(struct engine_reference *reference) {
    for (uint32_t s = 0; s < ENGINE_STAGES_MAX; s++) {
        free(reference->parameters[s]);
        free(reference->gradients[s]);
        for (uint32_t j = 1; j < ENGINE_GROUPS_MAX; j++) free(reference->further[s][j]);
        free(reference->optimizer[s]);
    }
    memset(reference, 0, sizeof *reference);
}
