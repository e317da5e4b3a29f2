/* SPDX-License-Identifier: MIT */
/* From the kernels' call to the user's task: pointers are sorted to where the user expects them. */
#include "net/custom.h"

#include <string.h>

static int measure(const struct weir__op_shape *shape, size_t *workspace) {
    const struct weir__custom *custom = shape->custom;
    *workspace = 0;
    if (custom->op->workspace != NULL)
        *workspace = custom->op->workspace(custom->options, shape->dtype, shape->rows);
    return WEIR_OK;
}

static struct weir_op_task task_of(const struct weir__op_call *call, struct weir_error *error) {
    return (struct weir_op_task){.rows = call->shape->rows,
                                 .dtype = call->shape->dtype,
                                 .options = call->shape->custom->options,
                                 .workspace = call->workspace,
                                 .infer = call->infer,
                                 .error = call->error != NULL ? call->error : error};
}

static int run(const struct weir__op_call *call) {
    struct weir_error unread = {0};
    struct weir_op_task task = task_of(call, &unread);
    task.inputs = call->in;
    task.output = call->out[0];
    return call->shape->custom->op->forward(&task);
}

static int run_grad(const struct weir__op_call *call) {
    const struct weir__custom *custom = call->shape->custom;
    struct weir_error unread = {0};
    struct weir_op_task task = task_of(call, &unread);
    void *grads[WEIR_OP_INPUTS_MAX] = {NULL};
    uint32_t made = 0;
    for (uint32_t i = 0; i < custom->input_count; i++) {
        if ((custom->wanted >> i & 1) == 0) continue;
        grads[i] = call->out[made++];
        if (grads[i] == NULL) continue; /* of the other part of a split backward */
        if (call->overwrite && (custom->parameters >> i & 1) != 0)
            memset(grads[i], 0, custom->counts[i] * weir_dtype_bytes(call->shape->dtype));
    }
    task.output_grad = call->in[0];
    task.inputs = call->in + 1;
    /* The task's output is writable for forward only; backward reads it. */
    task.output = (void *)(uintptr_t)call->in[1 + custom->input_count];
    task.input_grads = grads;
    return custom->op->backward(&task);
}

const struct weir__kernel weir__custom_kernel = {.measure = measure, .run = run, .library = "user"};
const struct weir__kernel weir__custom_grad_kernel = {
    .measure = measure, .run = run_grad, .library = "user"};
