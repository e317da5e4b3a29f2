/* SPDX-License-Identifier: MIT */
/* A pipe beside its reference, and comparing the two bit for bit. */
#include "engine/engine_gpu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

bool engine_expect_batches(const struct engine_batch *batch, const struct engine_batch *expected,
                           bool gradients) {
    bool same = true;
    for (uint32_t k = 0; same && k < ENGINE_OUTPUTS_MAX; k++)
        if (batch->outputs[k] != NULL)
            same = EXPECT_EQ_BYTES(batch->outputs[k], expected->outputs[k], batch->output_bytes[k]);
    for (uint32_t k = 0; same && gradients && k < ENGINE_INPUTS_MAX; k++)
        if (batch->input_grads[k] != NULL)
            same = EXPECT_EQ_BYTES(batch->input_grads[k], expected->input_grads[k],
                                   batch->input_bytes[k]);
    return same;
}

static bool expect_memory(const struct engine_reference *reference, const void *memory,
                          const void *expected, size_t bytes) {
    void *got = malloc(bytes);
    engine_gpu_read(reference->model, got, memory, bytes);
    bool same = EXPECT_EQ_BYTES(got, expected, bytes);
    free(got);
    return same;
}

bool engine_expect_state(struct weir_pipe *pipe, const struct engine_reference *reference) {
    bool same = true;
    for (uint32_t s = 0; same && s < reference->model->stage_count; s++) {
        struct weir_attachment at;
        size_t bytes = reference->model->stages[s].parameters * sizeof(double);
        if (!EXPECT_STATUS(weir_pipe_attachment(pipe, s, &at), WEIR_OK)) return false;
        if (bytes == 0) continue;
        same = expect_memory(reference, at.parameters, reference->parameters[s], bytes);
        if (reference->model->stages[s].frozen)
            same = same && EXPECT(at.gradients == NULL && at.optimizer == NULL);
        if (!same || at.gradients == NULL) continue; /* frozen, or for inference only */
        same = expect_memory(reference, at.gradients, reference->gradients[s], bytes) &&
               expect_memory(reference, at.optimizer, reference->optimizer[s], bytes);
    }
    return same;
}

bool engine_expect_result(const struct weir_step_result *result,
                          const struct engine_reference *reference) {
    bool no_norm = isnan(reference->gradient_norm);
    return EXPECT_EQ_BYTES(&result->loss, &reference->loss, sizeof result->loss) &&
           EXPECT(isnan(result->gradient_norm) == no_norm) &&
           (no_norm || EXPECT_EQ_BYTES(&result->gradient_norm, &reference->gradient_norm,
                                       sizeof result->gradient_norm)) &&
           EXPECT(result->updated == reference->updated) &&
           EXPECT_STATUS(result->error.status, WEIR_OK);
}

bool engine_trial_open(struct engine_trial *trial, struct engine_model *model,
                       const struct weir_pipe_options *options, const struct engine_order *order) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    memset(trial, 0, sizeof *trial);
    trial->model = model;
    int status = weir_pipe_new(options, &faults, &trial->pipe);
    if (!EXPECT_STATUS(status, WEIR_OK))
        for (uint32_t i = 0; i < faults.kept; i++) TEST_FAIL("%s", faults.lines[i]);
    weir_faults_clean_up(&faults);
    if (status != WEIR_OK) return false;
    if (order != NULL) trial->order = *order;
    trial->schedule = order == NULL ? options->schedule : NULL;
    trial->base = (struct weir_step)WEIR_STEP_INIT;
    trial->how = (struct engine_reference_options){
        .chunks = options->chunks,
        .order = &trial->order,
        .clip_norm = options->clip_norm,
        .groups = options->gradient_groups > 0 ? options->gradient_groups : options->replicas};
    engine_reference_init(&trial->reference, model);
    engine_batch_init(&trial->batch, model, options->rows, 1);
    engine_batch_init(&trial->expected, model, options->rows, 1);
    return true;
}

static struct weir_step step_of(struct engine_trial *trial, const struct engine_batch *batch) {
    struct weir_step step = engine_step(batch);
    step.mini_batch = step.update = trial->steps++;
    step.loss_weight = trial->base.loss_weight;
    step.accumulate_first = trial->base.accumulate_first;
    step.accumulate_last = trial->base.accumulate_last;
    step.no_update = trial->base.no_update;
    return step;
}

static bool run_both(struct engine_trial *trial, struct engine_batch *batch,
                     struct engine_batch *expected, bool infer) {
    engine_batch_clear(batch);
    engine_batch_clear(expected);
    struct weir_step step = step_of(trial, batch);
    int status = infer ? weir_pipe_infer(trial->pipe, &step, &trial->result)
                       : weir_pipe_step(trial->pipe, &step, &trial->result);
    trial->how.infer = infer;
    if (trial->schedule != NULL)
        engine_order_of(&trial->order, trial->schedule,
                        engine_chunk_count(batch->rows, trial->how.chunks));
    engine_reference_step(&trial->reference, expected, &step, &trial->how);
    if (status != WEIR_OK) TEST_FAIL("step: %s", trial->result.error.message);
    return engine_expect_clean(trial->model) && EXPECT_STATUS(status, WEIR_OK) &&
           engine_expect_result(&trial->result, &trial->reference) &&
           engine_expect_batches(batch, expected, true) &&
           engine_expect_state(trial->pipe, &trial->reference);
}

bool engine_trial_step(struct engine_trial *trial) {
    return run_both(trial, &trial->batch, &trial->expected, false);
}

bool engine_trial_infer(struct engine_trial *trial) {
    return run_both(trial, &trial->batch, &trial->expected, true);
}

bool engine_trial_rows(struct engine_trial *trial, int64_t rows, bool infer) {
    struct engine_batch batch, expected;
    engine_batch_init(&batch, trial->model, rows, (uint64_t)rows);
    engine_batch_init(&expected, trial->model, rows, (uint64_t)rows);
    bool same = run_both(trial, &batch, &expected, infer);
    engine_batch_clean_up(&batch);
    engine_batch_clean_up(&expected);
    return same;
}

void engine_trial_close(struct engine_trial *trial) {
    weir_pipe_destroy(trial->pipe);
    engine_reference_clean_up(&trial->reference);
    engine_batch_clean_up(&trial->batch);
    engine_batch_clean_up(&trial->expected);
    if (trial->model != NULL) {
        engine_expect_clean(trial->model);
        EXPECT_EQ_UINT(atomic_load(&trial->model->attached), atomic_load(&trial->model->detached));
    }
}

bool engine_expect_refused(const struct weir_pipe_options *options, int status, const char *part) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_pipe *pipe = NULL;
    faults.allocator = test_allocator();
    int got = weir_pipe_new(options, &faults, &pipe);
    bool found = false;
    for (uint32_t i = 0; i < faults.kept; i++) found |= strstr(faults.lines[i], part) != NULL;
    bool right = EXPECT_STATUS(got, status);
    if (right && !found) {
        const char *first = faults.kept > 0 ? faults.lines[0] : "nothing";
        right = EXPECT_CONTAINS(first, part);
    }
    if (got == WEIR_OK) weir_pipe_destroy(pipe);
    weir_faults_clean_up(&faults);
    return right;
}
