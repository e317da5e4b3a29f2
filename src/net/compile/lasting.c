/* SPDX-License-Identifier: MIT */
/* Lasting memory of a stage's nodes: packed copies of weights, caches of keys and values. Its size
 * does not depend on row counts, so it is settled before any instance is planned. The gradient of a
 * product's input takes the weights as its forward pass packed them, where the library has them
 * alike. */
#include "net/compile/program.h"

/** With more rows of a product packing its weights is next to nothing. */
enum { PACKED_ROWS_MOST = 4096 };

static bool is_used(const struct weir__slices *slices, uint32_t node) {
    for (uint32_t kind = 0; kind < WEIR__PROGRAM_COUNT; kind++)
        for (uint32_t i = 0; i < slices->node_counts[kind]; i++)
            if (slices->nodes[kind][i] == node) return true;
    return false;
}

/** Whether the node's weights stay in their file. A packed copy would be what that saves. */
static bool is_mapped(const struct weir__instance_options *options, const struct weir__node *node) {
    const struct weir_value *weight = node->in_count > 1 ? node->in[1] : NULL;
    bool is_parameter = weight != NULL && weight->source == WEIR__FROM_PARAMETER;
    if (options->parameters_mapped == NULL || !is_parameter) return false;
    return options->parameters_mapped[weight->index - options->parameter_first] != NULL;
}

static bool keeps_packed(const struct weir__instance_options *options,
                         const struct weir__kernel *kernel, const struct weir__node *node) {
    const struct weir__op_shape *shape = &node->shape;
    if (kernel == NULL || kernel->measure_pack == NULL) return false;
    if (!kernel->packs_itself) return true;
    if (is_mapped(options, node)) return false;
    assert(shape->tokens >= 1 && options->rows_max >= 1);
    return options->keeps_packed && options->rows_max <= PACKED_ROWS_MOST / shape->tokens;
}

static int pack_bytes(const struct weir__instance_options *options, const struct weir__node *node,
                      size_t *bytes) {
    const struct weir__kernel *kernel = options->backend->kernel(node->op, options->dtype);
    const uint32_t threads[] = {options->threads, 1};
    if (!keeps_packed(options, kernel, node)) return WEIR_OK;
    for (int t = 0; t < (options->threads_known || threads[0] == 1 ? 1 : 2); t++) {
        struct weir__op_shape shape = node->shape;
        shape.rows = shape.rows_max = options->rows_max;
        shape.threads = threads[t];
        size_t measured = 0;
        int status = kernel->measure_pack(&shape, &measured);
        if (status != WEIR_OK) return status;
        if (*bytes < measured) *bytes = measured;
    }
    return WEIR_OK;
}

/** An earlier node's packed weights that may be this node's, too; NULL: there are none. */
static struct weir__net_lasting *owner_of(const struct weir__instance_options *options,
                                          const struct weir__node *node, size_t bytes,
                                          struct weir__net_lasting *lasting) {
    const struct weir__kernel *kernel = options->backend->kernel(node->op, options->dtype);
    if (bytes == 0 || kernel == NULL || !kernel->shares_pack) return NULL;
    for (uint32_t i = 0; i < node->id; i++) {
        const struct weir__node *other = options->slices->graph->nodes[i];
        if (lasting[i].bytes < bytes || lasting[i].owner != NULL) continue;
        const struct weir__kernel *others = options->backend->kernel(other->op, options->dtype);
        if (others == NULL || others->pack != kernel->pack) continue;
        if (weir__value_root(other->in[1]) == weir__value_root(node->in[1])) return &lasting[i];
    }
    return NULL;
}

/** Keys and values: (sequences, places, 2 D). */
static int cache_bytes(const struct weir__op_shape *shape, size_t *bytes) {
    size_t size = weir_dtype_bytes(shape->dtype), heads = (size_t)shape->heads;
    size_t kv_heads = shape->kv_heads == 0 ? heads : (size_t)shape->kv_heads;
    bool fits = weir__multiply((size_t)shape->in, (size_t)shape->table, bytes) &&
                weir__multiply(*bytes, 2 * (size_t)shape->width / heads * kv_heads, bytes) &&
                weir__multiply(*bytes, size, bytes);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

int weir__lasting_plan(const struct weir__instance_options *options,
                       struct weir__net_lasting *lasting, size_t *total) {
    const struct weir__graph *graph = options->slices->graph;
    *total = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct weir__node *node = graph->nodes[i];
        size_t bytes = 0;
        if (node->dead || node->op == WEIR__OP_ALIAS || !is_used(options->slices, i)) continue;
        bool caches =
            node->op == WEIR__OP_attention_cached || node->op == WEIR__OP_grouped_attention_cached;
        int status = caches ? cache_bytes(&node->shape, &bytes) : pack_bytes(options, node, &bytes);
        if (status != WEIR_OK) return status;
        if (!weir__round_up(bytes, WEIR__CACHE_LINE, &bytes)) return WEIR_ERR_OVERFLOW;
        struct weir__net_lasting *owner = owner_of(options, node, bytes, lasting);
        lasting[i] =
            (struct weir__net_lasting){.offset = owner == NULL ? *total : owner->offset,
                                       .bytes = bytes,
                                       .owner = owner,
                                       .frozen = bytes > 0 && node->in[1] != NULL &&
                                                 !weir__value_root(node->in[1])->requires_grad};
        if (owner != NULL) continue;
        if (!weir__add(*total, bytes, total)) return WEIR_ERR_OVERFLOW;
    }
    return WEIR_OK;
}
