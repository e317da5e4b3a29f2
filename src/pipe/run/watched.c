/* SPDX-License-Identifier: MIT */
/* Catches stages that write to what they may only read: a hash of it before the call and after. */
#include "pipe/run/run.h"

static uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; data != NULL && i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_view(uint64_t hash, const struct weir_tensor *tensor,
                          const struct weir_view *view) {
    size_t bytes = 0;
    if (weir__tensor_bytes(tensor, view->rows, &bytes) != WEIR_OK) return hash;
    return hash_bytes(hash, view->data, bytes);
}

static bool is_weight_part(const struct weir__call *call) {
    return (weir__kinds[call->action.kind].reads & WEIR__WEIGHT_INPUTS) != 0;
}

/* The border inputs that a call may read: others may be gone, and something else lie there. */
static uint64_t readable_inputs(const struct weir_stage *stage, const struct weir__call *call) {
    if (weir__writes(call->action.kind, WEIR__OUTPUTS)) return UINT64_MAX;
    if (call->phase == WEIR_RECOMPUTE) return stage->inputs_recomputed;
    uint64_t weight = is_weight_part(call) ? stage->weight_reads.inputs : UINT64_MAX;
    return stage->inputs_kept & weight;
}

static bool is_readable_skip(const struct weir_stage *stage, const struct weir__call *call,
                             uint32_t j) {
    assert(j < stage->skip_count);
    if (stage->skips[j].verb == WEIR_SKIP_STASH) return false;
    if (weir__kinds[call->action.kind].reads & WEIR__SKIPS_IN) return true;
    return stage->skips[j].kept &&
           (!is_weight_part(call) || weir__input_bit(stage->weight_reads.skips, j));
}

static uint64_t hash_gradients(const struct weir__run *run, const struct weir__call *call,
                               uint64_t hash) {
    assert(call->views != NULL);
    const struct weir_stage *stage = &run->pipe->setup.stages[call->action.stage].stage;
    bool weight = is_weight_part(call);
    uint64_t outputs = weight ? stage->weight_reads.output_grads : UINT64_MAX;
    uint64_t skips = weight ? stage->weight_reads.skip_grads : UINT64_MAX;
    if (!weight && !(weir__kinds[call->action.kind].reads & WEIR__OUTPUT_GRADS)) return hash;
    for (uint32_t k = 0; k < stage->output_count; k++)
        if (weir__input_bit(outputs, k))
            hash = hash_view(hash, &stage->outputs[k], &call->views->output_grads[k]);
    for (uint32_t j = 0; j < stage->skip_count; j++)
        if (weir__input_bit(skips, j))
            hash = hash_view(hash, &stage->skips[j].tensor, &call->views->skip_grads[j]);
    return hash;
}

static uint64_t hash_read_only(const struct weir__run *run, const struct weir__call *call) {
    const struct weir__setup *setup = &run->pipe->setup;
    uint32_t s = call->action.stage;
    const struct weir__stage_setup *at = &setup->stages[s];
    uint64_t hash = 0xcbf29ce484222325u, mask = readable_inputs(&at->stage, call);
    for (uint32_t k = 0; k < weir__setup_input_count(setup, s); k++)
        if (k >= at->border_count || weir__input_bit(mask, k))
            hash = hash_view(hash, weir__setup_input(setup, s, k), &call->views->inputs[k]);
    for (uint32_t j = 0; j < at->stage.skip_count; j++) {
        const struct weir_skip_use *use = &at->stage.skips[j];
        if (is_readable_skip(&at->stage, call, j))
            hash = hash_view(hash, &use->tensor, &call->views->skips[j]);
    }
    return hash_gradients(run, call, hash);
}

int weir__run_guarded(struct weir__run *run, const struct weir__call *call, void *context) {
    assert(call->run != NULL && call->views != NULL);
    assert(run->worker->device->memory == 0);
    uint64_t before = hash_read_only(run, call);
    int status = call->run(context, &run->task);
    if (status != WEIR_OK || hash_read_only(run, call) == before) return status;
    return weir__fail(&run->error, WEIR_ERR_CALLBACK,
                      "the stage wrote to its inputs, skips or incoming gradients, which are "
                      "read-only: write to outputs or workspace instead");
}
