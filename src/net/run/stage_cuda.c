/* SPDX-License-Identifier: MIT */
#include "net/run/stage_cuda.h"

#include "net/cuda/flat.h"

static const struct weir__parameter_decl *parameter_of(const struct weir__net_stage *stage,
                                                       uint32_t i) {
    assert(i < stage->compiled->parameter_count);
    return &stage->network->parameters[stage->compiled->parameter_first + i];
}

static float *at(void *base, size_t offset) {
    return (float *)((uintptr_t)base + offset);
}

/** Adds spans of the stage's own parameters, or of its copies. A copy's gradient and its sum of
 * squares are the business of the stage that has the original. */
static void add_spans(struct weir__net_stage *stage, bool copies) {
    for (uint32_t i = 0; i < stage->compiled->parameter_count; i++) {
        const struct weir__parameter_decl *parameter = parameter_of(stage, i);
        bool decays = !stage->optimizer.decay_matrices_only || parameter->rank >= 2;
        if (parameter->frozen || (parameter->original != WEIR__NONE) != copies) continue;
        assert(parameter->offset % sizeof(float) == 0);
        stage->spans[stage->span_count++] = (struct weir__cuda_span){
            parameter->offset / sizeof(float), parameter->count, i, decays};
    }
}

int weir__stage_init_cuda(struct weir__net_stage *stage, struct weir__network *network) {
    uint32_t most = stage->compiled->parameter_count;
    stage->spans = weir__pool_take(&network->pool, most, sizeof stage->spans[0]);
    if (stage->spans == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    add_spans(stage, false);
    stage->own_count = stage->span_count;
    add_spans(stage, true);
    stage->norm_workspace = weir__cuda_square_sums_workspace(stage->spans, stage->own_count);
    return WEIR_OK;
}

/** Adds up uses in the order that a CPU takes: those within the stage, then those of all stages. */
static int fold_uses(const struct weir__net_stage *stage, const struct weir_task *task) {
    const struct weir__graph *graph = &stage->compiled->graph;
    int status;
    for (uint32_t i = 0; i < graph->accumulator_count; i++) {
        const struct weir__accumulator *use = &graph->accumulators[i];
        const struct weir__parameter_decl *parameter = &stage->network->parameters[use->parameter];
        if (use->offset == parameter->offset || weir__parameter_is_shared(parameter)) continue;
        status = weir__cuda_accumulate(task->stream, at(task->gradients, parameter->offset),
                                       at(task->gradients, use->offset), parameter->count);
        if (status != WEIR_OK) return status;
    }
    for (uint32_t t = 0; t < task->tied_count; t++) {
        const struct weir__parameter_decl *parameter = &stage->network->parameters[stage->tied[t]];
        if (parameter->original != WEIR__NONE) continue;
        for (uint32_t u = 1; u < task->tied[t].use_count; u++) {
            status = weir__cuda_accumulate(task->stream, task->tied[t].gradients[0],
                                           task->tied[t].gradients[u], parameter->count);
            if (status != WEIR_OK) return status;
        }
    }
    return WEIR_OK;
}

int weir__stage_norm_cuda(struct weir__net_stage *stage, const struct weir_task *task) {
    int status = fold_uses(stage, task);
    if (status != WEIR_OK) return status;
    for (uint32_t i = 0; i < stage->compiled->parameter_count; i++) {
        const struct weir__parameter_decl *parameter = parameter_of(stage, i);
        bool counted = !parameter->frozen && parameter->original == WEIR__NONE;
        if (!counted) task->norm_squares[i] = 0; /* the GPU writes the others */
    }
    return weir__cuda_square_sums(task->stream, task->gradients, stage->spans, stage->own_count,
                                  task->norm_squares, task->workspace);
}

/** `gradients` is where the spans' would begin if they were laid out as the parameters are. */
static int update_spans(const struct weir__net_stage *stage, const struct weir_task *task,
                        const struct weir__cuda_span *spans, uint32_t count,
                        const float *gradients) {
    const struct weir_optimizer *optimizer = &stage->optimizer;
    const struct weir__net_step_state *step = task->user;
    double lr = step == NULL ? optimizer->lr : step->lr;
    if (count == 0) return WEIR_OK; /* nothing to learn, and no optimizer's memory */
    float *first = at(task->optimizer, 0);
    float *second = at(task->optimizer, stage->compiled->trainable_bytes);
    if (optimizer->kind == WEIR_OPTIMIZER_ADAMW) {
        struct weir__adamw_step adamw = {.lr = lr,
                                         .beta1 = optimizer->beta1,
                                         .beta2 = optimizer->beta2,
                                         .eps = optimizer->eps,
                                         .weight_decay = optimizer->weight_decay,
                                         .step = task->update + 1};
        return weir__cuda_adamw(task->stream, &adamw, task->verdict, spans, count, task->parameters,
                                gradients, first, second);
    }
    if (optimizer->kind != WEIR_OPTIMIZER_SGD) return WEIR_OK;
    struct weir__sgd_step sgd = {.lr = lr,
                                 .momentum = optimizer->momentum,
                                 .weight_decay = optimizer->weight_decay,
                                 .nesterov = optimizer->nesterov,
                                 .first = task->update == 0};
    return weir__cuda_sgd(task->stream, &sgd, task->verdict, spans, count, task->parameters,
                          gradients, optimizer->momentum != 0 ? first : NULL);
}

/** Where a copy's whole gradient lies: with its original, which the ties name. */
static const float *gradients_of(const struct weir__net_stage *stage, const struct weir_task *task,
                                 const struct weir__cuda_span *span) {
    uint32_t number = stage->compiled->parameter_first + span->result;
    for (uint32_t t = 0; t < task->tied_count; t++)
        if (stage->tied[t] == number)
            return (const float *)((uintptr_t)task->tied[t].gradients[0] -
                                   span->first * sizeof(float));
    assert(false);
    return NULL;
}

int weir__stage_update_cuda(struct weir__net_stage *stage, const struct weir_task *task) {
    int status = update_spans(stage, task, stage->spans, stage->own_count, task->gradients);
    if (status != WEIR_OK) return status;
    for (uint32_t i = stage->own_count; i < stage->span_count; i++) {
        status = update_spans(stage, task, &stage->spans[i], 1,
                              gradients_of(stage, task, &stage->spans[i]));
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}
