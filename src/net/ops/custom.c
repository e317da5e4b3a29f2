/* SPDX-License-Identifier: MIT */
/* Ops of the user's own: emitted, checked, and differentiated into one backward node. */
#include "net/custom.h"
#include "net/model/network.h"
#include "net/ops/rules.h"

#include <string.h>

static bool op_is_valid(struct weir_builder *builder, const struct weir_op *op,
                        uint32_t input_count) {
    if (builder->status != WEIR_OK) return false;
    bool valid = weir__is_sized(op) && op->name != NULL && op->shape != NULL &&
                 op->forward != NULL && input_count >= 1 && input_count <= WEIR_OP_INPUTS_MAX;
    if (!valid)
        weir_builder_fail(builder, WEIR_ERR_ARGUMENT,
                          "an op needs size, name, shape, forward and 1 to %d inputs",
                          WEIR_OP_INPUTS_MAX);
    return valid;
}

/** Asks the op for its output's shape. */
static bool infer_shape(struct weir_builder *builder, const struct weir__custom *custom,
                        struct weir_value *const *inputs, struct weir_tensor *output) {
    struct weir_tensor tensors[WEIR_OP_INPUTS_MAX];
    struct weir_error error = {0};
    for (uint32_t i = 0; i < custom->input_count; i++) tensors[i] = weir_value_tensor(inputs[i]);
    *output = (struct weir_tensor){.dtype = builder->dtype};
    int status = custom->op->shape(custom->options, custom->input_count, tensors, output, &error);
    size_t bytes;
    if (status == WEIR_OK && output->rank <= WEIR_RANK_MAX && output->dtype == builder->dtype &&
        weir__tensor_bytes(output, 1, &bytes) == WEIR_OK)
        return true;
    weir_builder_fail(builder, status != WEIR_OK ? status : WEIR_ERR_SHAPE, "%s: %s",
                      custom->op->name,
                      error.message[0] != '\0' ? error.message : "its shape rule failed");
    return false;
}

static struct weir__custom *new_custom(struct weir_builder *builder, const struct weir_op *op,
                                       const void *options, size_t bytes, uint32_t count) {
    struct weir__custom *custom = weir__pool_take(builder->graph->pool, 1, sizeof *custom);
    void *copy = bytes == 0 ? NULL : weir__pool_copy(builder->graph->pool, options, bytes, 1);
    if (custom == NULL || (bytes > 0 && copy == NULL))
        return weir_builder_fail(builder, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    *custom = (struct weir__custom){.op = op, .options = copy, .input_count = count};
    return custom;
}

static bool take_input(struct weir_builder *builder, struct weir__custom *custom, uint32_t i,
                       struct weir_value **input) {
    if (*input == NULL) {
        weir_builder_fail(builder, WEIR_ERR_ARGUMENT, "%s: its input %u is absent",
                          custom->op->name, i);
        return false;
    }
    bool parameter = (*input)->source == WEIR__FROM_PARAMETER;
    if (!parameter && !weir__expects_rows(builder, custom->op->name, *input)) return false;
    *input = weir__plain(builder, *input);
    if (*input == NULL) return false;
    if (parameter) custom->parameters |= 1u << i;
    custom->counts[i] = (uint64_t)weir__value_count(*input);
    if ((*input)->requires_grad) custom->wanted |= 1u << i;
    if (custom->wanted == 0 || custom->op->backward != NULL) return true;
    weir_builder_fail(builder, WEIR_ERR_UNSUPPORTED,
                      "%s has no backward, but gradients flow through it", custom->op->name);
    return false;
}

struct weir_value *weir_apply(struct weir_builder *builder, const struct weir_op *op,
                              const void *options, size_t options_bytes, uint32_t input_count,
                              struct weir_value *const *inputs) {
    struct weir_value *in[WEIR_OP_INPUTS_MAX];
    struct weir_tensor output;
    if (!op_is_valid(builder, op, input_count)) return NULL;
    struct weir__custom *custom = new_custom(builder, op, options, options_bytes, input_count);
    if (custom == NULL) return NULL;
    memcpy(in, inputs, input_count * sizeof in[0]);
    for (uint32_t i = 0; i < input_count; i++)
        if (!take_input(builder, custom, i, &in[i])) return NULL;
    if (!infer_shape(builder, custom, in, &output)) return NULL;
    struct weir__node *node = weir__emit(builder, WEIR__OP_custom, input_count, in);
    if (node == NULL) return NULL;
    node->shape.custom = custom;
    return weir__output(builder, node, output.rank, output.shape);
}

static void gradient(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy) {
    const struct weir__custom *custom = node->shape.custom;
    struct weir_value *in[WEIR__NODE_IN_MAX] = {dy};
    uint32_t count = custom->input_count;
    if (custom->wanted == 0) return;
    for (uint32_t i = 0; i < count; i++)
        if ((custom->op->keeps_inputs >> i & 1) != 0) in[1 + i] = node->in[i];
    if (custom->op->keeps_output) in[1 + count] = node->out[0];
    struct weir__node *grad = weir__emit_like(builder, WEIR__OP_custom_grad, node, count + 2, in);
    for (uint32_t i = 0; grad != NULL && i < count; i++) {
        if ((custom->wanted >> i & 1) == 0) continue;
        if ((custom->parameters >> i & 1) != 0)
            weir__output_accumulator(builder, grad, node->in[i]);
        else
            weir__contribute(builder, node->in[i], weir__output_like(builder, grad, node->in[i]));
    }
}

static double cost(const struct weir__node *node) {
    const struct weir__custom *custom = node->shape.custom;
    return custom->op->flops == NULL ? 0 : custom->op->flops(custom->options);
}

const struct weir__op_rule weir__rule_custom = {.gradient = gradient, .cost = cost};
