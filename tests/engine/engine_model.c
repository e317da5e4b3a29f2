/* SPDX-License-Identifier: MIT */
/* Describing models of engine stages, looking at what they saw, and mini-batches for them. */
#include "engine/engine_stages.h"

#include <stdlib.h>
#include <string.h>

struct weir_tensor engine_tensor(enum weir_dtype dtype, int64_t width, bool differentiable) {
    return (struct weir_tensor){
        .dtype = dtype, .rank = 1, .shape = {width}, .differentiable = differentiable};
}

void engine_model_init(struct engine_model *model, uint32_t stages) {
    memset(model, 0, sizeof *model);
    model->stage_count = stages;
    model->seed = 1;
    for (uint32_t s = 0; s < stages; s++) {
        struct engine_stage *stage = &model->stages[s];
        stage->outputs[0] = engine_tensor(WEIR_F32, 4, true);
        stage->output_count = 1;
        stage->parameters = 5;
        stage->loss_scale = s + 1 == stages ? 1.0 : 0.0;
    }
    engine_input(model, 0, "x", engine_tensor(WEIR_F32, 4, true));
}

struct weir_skip_use *engine_skip(struct engine_model *model, uint32_t stage,
                                  enum weir_skip_verb verb, const char *name) {
    struct engine_stage *at = &model->stages[stage];
    struct weir_skip_use *use = &at->skips[at->skip_count++];
    *use = (struct weir_skip_use){
        .verb = verb, .name = name, .tensor = engine_tensor(WEIR_F64, 3, true)};
    return use;
}

struct weir_input *engine_input(struct engine_model *model, uint32_t stage, const char *name,
                                struct weir_tensor tensor) {
    struct weir_input *input = &model->inputs[model->input_count++];
    *input = (struct weir_input){.tensor = tensor, .name = name, .stage = stage};
    return input;
}

void engine_tie(struct engine_model *model, uint32_t stage, const char *name, uint32_t first,
                uint32_t count) {
    struct engine_stage *at = &model->stages[stage];
    at->ties[at->tie_count++] =
        (struct weir_tie){name, first * sizeof(double), count * sizeof(double)};
}

/* ---- what follows from a description ---- */

static bool same_name(const struct weir_skip_use *a, const struct weir_skip_use *b) {
    const char *x = a->name_space != NULL ? a->name_space : "";
    const char *y = b->name_space != NULL ? b->name_space : "";
    return strcmp(a->name, b->name) == 0 && strcmp(x, y) == 0;
}

static void freeze_skip(struct engine_model *model, const struct weir_skip_use *use) {
    for (uint32_t s = 0; s < model->stage_count; s++)
        for (uint32_t j = 0; j < model->stages[s].skip_count; j++)
            if (same_name(&model->stages[s].skips[j], use))
                model->stages[s].skips[j].tensor.differentiable = false;
}

void engine_freeze(struct engine_model *model, uint32_t stage) {
    struct engine_stage *at = &model->stages[stage];
    at->frozen = true;
    for (uint32_t s = stage > 0 ? stage - 1 : 0; s <= stage; s++)
        for (uint32_t k = 0; k < model->stages[s].output_count; k++)
            model->stages[s].outputs[k].differentiable = false;
    for (uint32_t j = 0; j < at->skip_count; j++) freeze_skip(model, &at->skips[j]);
    for (uint32_t k = 0; k < model->input_count; k++)
        if (model->inputs[k].stage == stage) model->inputs[k].tensor.differentiable = false;
}

static int64_t elements(const struct weir_tensor *tensor) {
    int64_t count = 1;
    for (uint32_t d = 0; d < tensor->rank && d < WEIR_RANK_MAX; d++) count *= tensor->shape[d];
    return count;
}

static struct engine_port *add_port(struct engine_port *ports, uint32_t *count,
                                    const struct weir_tensor *tensor, uint32_t place) {
    struct engine_port *port = &ports[(*count)++];
    *port = (struct engine_port){.tensor = *tensor, .width = elements(tensor), .place = place};
    return port;
}

static void consume_inputs(struct engine_model *model, struct engine_stage *stage) {
    const struct engine_stage *before = stage->index > 0 ? stage - 1 : NULL;
    uint32_t place = 0;
    for (uint32_t k = 0; before != NULL && k < before->output_count; k++) {
        struct engine_port *port =
            add_port(stage->consumed, &stage->consumed_count, &before->outputs[k], place++);
        port->added = stage->adds_border && k == 0 && weir_dtype_is_float(port->tensor.dtype);
    }
    for (uint32_t k = 0; k < model->input_count; k++) {
        const struct weir_input *input = &model->inputs[k];
        if (input->stage != stage->index) continue;
        struct engine_port *port =
            add_port(stage->consumed, &stage->consumed_count, &input->tensor, place++);
        port->replicated = input->replicated;
        bool many = input->rows_factor > 1 && input->rows_factor < 1 << 16;
        if (!input->replicated && many) port->width *= input->rows_factor;
    }
}

static const struct weir_skip_use *find_stash(const struct engine_model *model,
                                              const struct weir_skip_use *use) {
    for (uint32_t s = 0; s < model->stage_count; s++) {
        for (uint32_t j = 0; j < model->stages[s].skip_count; j++) {
            const struct weir_skip_use *other = &model->stages[s].skips[j];
            if (other->verb == WEIR_SKIP_STASH && same_name(other, use)) return other;
        }
    }
    return NULL;
}

static void connect_skips(struct engine_model *model, struct engine_stage *stage) {
    for (uint32_t j = 0; j < stage->skip_count; j++) {
        struct weir_skip_use *use = &stage->skips[j];
        bool stash = use->verb == WEIR_SKIP_STASH;
        const struct weir_skip_use *source = find_stash(model, use);
        bool is_float = weir_dtype_is_float(use->tensor.dtype);
        struct engine_port *port =
            stash ? add_port(stage->produced, &stage->produced_count, &use->tensor, j)
                  : add_port(stage->consumed, &stage->consumed_count, &use->tensor, j);
        port->skip = true;
        port->empty = source != NULL && source->empty;
        port->added = !stash && stage->adds_skips && is_float;
        bool keeps = stage->keeps_inputs || stage->checks_inputs;
        use->kept = !stash && keeps && is_float && !port->added;
    }
}

static void derive(struct engine_model *model, uint32_t s) {
    struct engine_stage *stage = &model->stages[s];
    stage->model = model;
    stage->index = s;
    stage->consumed_count = stage->produced_count = 0;
    if (!weir_dtype_is_float(stage->outputs[0].dtype)) stage->loss_scale = 0.0;
    for (uint32_t k = 0; k < stage->output_count; k++)
        add_port(stage->produced, &stage->produced_count, &stage->outputs[k], k);
    consume_inputs(model, stage);
    connect_skips(model, stage);
}

/* Uses by themselves, since all need equal slices, and what is between them. */
static void cut_sections(struct engine_stage *stage) {
    size_t at = 0, all = stage->parameters * sizeof(double), *cuts = stage->cuts;
    stage->section_count = 0;
    while (stage->model->sliced && at < all) {
        const struct weir_tie *next = NULL;
        for (uint32_t i = 0; i < stage->tie_count; i++)
            if (stage->ties[i].gradient_offset >= at &&
                (next == NULL || stage->ties[i].gradient_offset < next->gradient_offset))
                next = &stage->ties[i];
        size_t end = next == NULL ? all : next->gradient_offset;
        if (end == at) end += next->bytes;
        struct weir_section section = {.offset = at, .bytes = end - at, .parameters = true};
        section.cuts = cuts;
        for (size_t cut = ENGINE_CUT * sizeof(double); cut < end - at;
             cut += ENGINE_CUT * sizeof(double))
            cuts[section.cut_count++] = cut;
        cuts += section.cut_count;
        stage->sections[stage->section_count++] = section;
        at = end;
    }
}

/* Only what backward really reads is kept, and what recompute reads. */
static void describe(const struct engine_stage *stage, struct weir_stage *to) {
    size_t bytes = stage->parameters * sizeof(double);
    *to = (struct weir_stage)WEIR_STAGE_INIT;
    to->calls = stage->fixed ? &engine_fixed_calls : &engine_stage_calls;
    to->no_backward = stage->frozen;
    if (stage->frozen && stage->index % 2 == 0) to->calls = &engine_frozen_calls;
    to->context = (void *)stage;
    to->outputs = stage->outputs;
    to->output_count = stage->output_count;
    to->skips = stage->skips;
    to->skip_count = stage->skip_count;
    to->parameter_bytes = to->gradient_bytes = to->optimizer_bytes = bytes;
    to->state_bytes = stage->state_bytes;
    bool normed = stage->parameters > 0 && !stage->fixed;
    to->norm_count = !normed ? 0 : stage->model->sliced ? stage->parameters : 2;
    to->sections = stage->sections;
    to->section_count = stage->section_count;
    to->ties = stage->ties;
    to->tie_count = stage->tie_count;
    to->inputs_kept = to->inputs_recomputed = 0;
    for (uint32_t c = 0; c < stage->consumed_count; c++) {
        const struct engine_port *port = &stage->consumed[c];
        if (port->skip || port->added) continue;
        to->inputs_recomputed |= UINT64_C(1) << port->place;
        bool keeps = stage->keeps_inputs || stage->checks_inputs;
        if (keeps && weir_dtype_is_float(port->tensor.dtype))
            to->inputs_kept |= UINT64_C(1) << port->place;
    }
    if (!stage->keeps_inputs) to->weight_reads.inputs = to->weight_reads.skips = 0;
    if (!stage->reads_grads) to->weight_reads.output_grads = to->weight_reads.skip_grads = 0;
}

struct weir_pipe_options engine_options(struct engine_model *model) {
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    for (uint32_t s = 0; s < model->stage_count; s++) {
        derive(model, s);
        cut_sections(&model->stages[s]);
        describe(&model->stages[s], &model->described[s]);
    }
    options.allocator = test_allocator();
    options.stages = model->described;
    options.stage_count = model->stage_count;
    options.inputs = model->inputs;
    options.input_count = model->input_count;
    options.bind = "none";
    options.rows = 8;
    options.chunks = 4;
    return options;
}

/* ---- what was seen ---- */

void engine_forget(struct engine_model *model) {
    atomic_store(&model->call_count, 0);
}

static uint32_t logged(const struct engine_model *model) {
    uint32_t count = atomic_load(&model->call_count);
    return count < ENGINE_CALLS_MAX ? count : ENGINE_CALLS_MAX;
}

uint32_t engine_calls_of(const struct engine_model *model, enum weir_phase phase) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < logged(model); i++)
        count += phase == WEIR_PHASE_COUNT || model->calls[i].phase == phase;
    return count;
}

uint32_t engine_find_call(const struct engine_model *model, enum weir_phase phase, uint32_t stage,
                          uint32_t micro_batch) {
    for (uint32_t i = 0; i < logged(model); i++) {
        const struct engine_call *call = &model->calls[i];
        if (call->phase == phase && call->stage == stage && call->micro_batch == micro_batch)
            return i;
    }
    return UINT32_MAX;
}

bool engine_expect_clean(struct engine_model *model) {
    uint32_t violations = atomic_load(&model->violations);
    if (violations > 0) TEST_FAIL("%u violations, the first: %s", violations, model->violation);
    return violations == 0;
}

/* ---- batches ---- */

static void fill_input(void *data, enum weir_dtype dtype, size_t count, uint64_t seed) {
    for (size_t i = 0; i < count; i++) {
        uint64_t z = (seed + i + 1) * 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z ^= z >> 27;
        double unit = (double)(z >> 11) * 0x1p-52 - 1.0;
        if (dtype == WEIR_F32)
            ((float *)data)[i] = (float)unit;
        else if (dtype == WEIR_F64)
            ((double *)data)[i] = unit;
        else if (dtype == WEIR_I64)
            ((int64_t *)data)[i] = (int64_t)(z % 100);
        else
            ((uint8_t *)data)[i] = (uint8_t)(dtype == WEIR_BOOL ? z & 1 : z);
    }
}

static size_t input_count_of(const struct weir_input *input, int64_t rows) {
    size_t own = (size_t)elements(&input->tensor);
    if (input->replicated) return own;
    return own * (size_t)rows * (size_t)(input->rows_factor > 0 ? input->rows_factor : 1);
}

void engine_batch_init(struct engine_batch *batch, const struct engine_model *model, int64_t rows,
                       uint64_t seed) {
    *batch = (struct engine_batch){.model = model, .rows = rows};
    for (uint32_t k = 0; k < model->input_count; k++) {
        const struct weir_tensor *tensor = &model->inputs[k].tensor;
        size_t count = input_count_of(&model->inputs[k], rows);
        batch->input_bytes[k] = count * weir_dtype_bytes(tensor->dtype);
        batch->inputs[k] = malloc(batch->input_bytes[k]);
        fill_input(batch->inputs[k], tensor->dtype, count, seed * 1000 + k * 100);
        if (tensor->differentiable) batch->input_grads[k] = malloc(batch->input_bytes[k]);
    }
    const struct engine_stage *last = &model->stages[model->stage_count - 1];
    for (uint32_t k = 0; k < last->output_count; k++) {
        size_t count = (size_t)(elements(&last->outputs[k]) * rows);
        batch->output_bytes[k] = count * weir_dtype_bytes(last->outputs[k].dtype);
        batch->outputs[k] = malloc(batch->output_bytes[k]);
    }
    engine_batch_clear(batch);
}

void engine_batch_clear(struct engine_batch *batch) {
    for (uint32_t k = 0; k < ENGINE_INPUTS_MAX; k++)
        if (batch->input_grads[k] != NULL)
            memset(batch->input_grads[k], 0x5A, batch->input_bytes[k]);
    for (uint32_t k = 0; k < ENGINE_OUTPUTS_MAX; k++)
        if (batch->outputs[k] != NULL) memset(batch->outputs[k], 0x5A, batch->output_bytes[k]);
}

void engine_batch_clean_up(struct engine_batch *batch) {
    for (uint32_t k = 0; k < ENGINE_INPUTS_MAX; k++) {
        free(batch->inputs[k]);
        free(batch->input_grads[k]);
    }
    for (uint32_t k = 0; k < ENGINE_OUTPUTS_MAX; k++) free(batch->outputs[k]);
    memset(batch, 0, sizeof *batch);
}

struct weir_step engine_step(const struct engine_batch *batch) {
    struct weir_step step = WEIR_STEP_INIT;
    step.rows = batch->rows;
    step.inputs = (const void *const *)batch->inputs;
    step.input_grads = (void *const *)batch->input_grads;
    step.outputs = (void *const *)batch->outputs;
    return step;
}
