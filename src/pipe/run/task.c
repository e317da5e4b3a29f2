/* SPDX-License-Identifier: MIT */
/* What a callback is told: its stage's memory, its micro-batch's views, the caller's rows. */
#include "pipe/run/run.h"

/* Whether the device has a memory of its own: then views of the caller's rows point into it. */
static bool is_apart(const struct weir__run *run) {
    return run->worker->device->memory != 0;
}

/* The caller's memory, by rows: set at F, where a micro-batch begins on a stage. */
static void place_inputs(struct weir__run *run, const struct weir__call *call) {
    const struct weir__setup *setup = &run->pipe->setup;
    const struct weir__stage_setup *at = &setup->stages[call->action.stage];
    struct weir__views *views = call->views;
    assert(views->loss != NULL && views->rows > 0);
    for (uint32_t e = 0; !is_apart(run) && e < at->entering_count; e++) {
        uint32_t k = at->entering[e];
        const struct weir_input *input = &setup->options.inputs[k];
        int64_t first = input->replicated ? 0 : views->row_first * input->rows_factor;
        views->inputs[at->border_count + e].data =
            (char *)run->pipe->command.inputs[k] + (size_t)first * setup->input_row_bytes[k];
    }
    for (uint32_t k = 0; views->output_places != NULL && k < at->stage.output_count; k++) {
        char *own = is_apart(run) ? NULL : run->pipe->command.outputs[k];
        views->outputs[k].data = own == NULL
                                     ? views->output_places[k]
                                     : own + (size_t)views->row_first * setup->output_row_bytes[k];
    }
    *views->loss = 0.0;
}

static void place_input_grads(struct weir__run *run, const struct weir__call *call) {
    assert(call->views != NULL && weir__kinds[call->action.kind].per_micro_batch);
    const struct weir__setup *setup = &run->pipe->setup;
    const struct weir__stage_setup *at = &setup->stages[call->action.stage];
    for (uint32_t e = 0; e < at->entering_count; e++) {
        uint32_t k = at->entering[e];
        const struct weir_input *input = &setup->options.inputs[k];
        char *own = input->tensor.differentiable ? run->pipe->command.input_grads[k] : NULL;
        size_t first = (size_t)(call->views->row_first * input->rows_factor);
        void **data = &call->views->input_grads[at->border_count + e].data;
        *data = own == NULL ? NULL : own + first * setup->input_row_bytes[k];
        if (own != NULL && is_apart(run)) *data = call->views->grad_places[e];
    }
}

static void fill_micro_batch(struct weir__run *run, const struct weir__call *call) {
    assert(weir__kinds[call->action.kind].per_micro_batch);
    struct weir_task *task = &run->task;
    struct weir__views *views = call->views;
    const struct weir_view *nothing = run->plan->nothing;
    uint32_t reads = weir__kinds[call->action.kind].reads;
    uint32_t writes = weir__kinds[call->action.kind].writes;
    if (writes & WEIR__OUTPUTS) place_inputs(run, call);
    if (writes & WEIR__INPUT_GRADS) place_input_grads(run, call);
    task->rows = views->rows;
    task->row_first = views->row_first;
    task->inputs = views->inputs;
    task->outputs = writes & WEIR__OUTPUTS ? views->outputs : nothing;
    bool grads = (reads & (WEIR__OUTPUT_GRADS | WEIR__WEIGHT_INPUTS)) != 0;
    task->output_grads = grads ? views->output_grads : nothing;
    task->input_grads = writes & WEIR__INPUT_GRADS ? views->input_grads : nothing;
    task->skips = views->skips;
    task->skip_grads = grads ? views->skip_grads : nothing;
    task->skip_grads_out = writes & WEIR__SKIP_GRADS_OUT ? views->skip_grads_out : nothing;
    uint32_t areas = call->saves ? reads | writes : 0;
    task->saved = areas & WEIR__SAVED ? views->saved : NULL;
    task->saved_for_input = areas & WEIR__SAVED_FOR_INPUT ? views->saved_for_input : NULL;
    task->left_for_weight = areas & WEIR__WEIGHT_INPUTS ? views->left_for_weight : NULL;
    task->areas = areas & (WEIR__SAVED | WEIR__SAVED_FOR_INPUT | WEIR__WEIGHT_INPUTS)
                      ? (void *const *)views->areas
                      : NULL;
    task->loss = views->loss;
}

/* N and U are of a whole mini-batch. */
static void leave_micro_batch(struct weir_task *task, const struct weir_view *nothing) {
    assert(nothing != NULL);
    task->rows = task->row_first = 0;
    task->inputs = task->outputs = task->output_grads = task->input_grads = nothing;
    task->skips = task->skip_grads = task->skip_grads_out = nothing;
    task->saved = task->saved_for_input = task->left_for_weight = NULL;
    task->areas = NULL;
    task->loss = NULL;
}

void weir__run_fill_task(struct weir__run *run, const struct weir__call *call) {
    struct weir_task *task = &run->task;
    uint32_t stage = call->action.stage;
    assert(run->plan->stage_worker[stage] == run->worker->index);
    const struct weir__lasting *blocks = &run->plan->lasting[stage];
    const struct weir__memory *memory = &run->plan->memory;
    const struct weir__arena *arenas = run->pipe->memory.arenas;
    task->phase = call->phase;
    task->stage = stage;
    bool whole = call->views == NULL; /* N and U */
    task->micro_batch = call->action.micro_batch + (whole ? 0 : run->plan->groups.first);
    task->workspace = run->plan->bound.workspaces[call - run->plan->calls];
    task->parameters = weir__arena_block(arenas, memory, blocks->parameters);
    task->gradients = weir__arena_block(arenas, memory, call->gradients);
    task->optimizer = weir__arena_block(arenas, memory, blocks->optimizer);
    task->state = weir__arena_block(arenas, memory, blocks->state);
    task->gradients_first = call->gradients_first && run->pipe->command.step.accumulate_first;
    task->norm_squares = run->pipe->memory.norm_squares[stage];
    task->error = &run->error;
    task->tied = whole ? run->plan->bound.tied[stage] : NULL;
    task->tied_count = whole ? run->pipe->setup.stages[stage].tied_count : 0;
    if (call->views != NULL)
        fill_micro_batch(run, call);
    else
        leave_micro_batch(task, run->plan->nothing);
}
