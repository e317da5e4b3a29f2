/* SPDX-License-Identifier: MIT */
/*
 * Fusion: patterns over the forward graph that one kernel does in one pass over memory. Each
 * pattern is a row. It crosses a layer only where it says so (norm_act, batch_norm_act,
 * linear_cross_entropy), and a fused kernel gives exactly its parts' bits, so that a partition
 * cannot change results. (On CUDA in BF16 a fused kernel rounds less often: there the layer's
 * borders alone keep the partition out.)
 */
#include "net/model/graph.h"

static uint32_t count_consumers(const struct weir__graph *graph, const struct weir_value *value) {
    uint32_t count = graph->output == value || graph->loss == value;
    for (uint32_t i = 0; i < graph->skip_count; i++) count += graph->skips[i].value == value;
    for (uint32_t i = 0; i < graph->node_count; i++)
        for (uint32_t k = 0; k < graph->nodes[i]->in_count; k++)
            count += !graph->nodes[i]->dead && graph->nodes[i]->in[k] == value;
    return count;
}

static bool read_between(const struct weir__graph *graph, uint32_t first, uint32_t last,
                         const struct weir_value *value) {
    for (uint32_t i = first + 1; i < last; i++)
        for (uint32_t k = 0; k < graph->nodes[i]->in_count; k++)
            if (!graph->nodes[i]->dead && graph->nodes[i]->in[k] == value) return true;
    return false;
}

/** residual + dropout(x). Where x is read in between, or is the residual itself, nothing is fused:
 * the terms of its gradient would be added in another order. */
static uint32_t dropout_add(const struct weir__graph *graph, struct weir__node *node) {
    if (node->op != WEIR__OP_add) return 0;
    for (uint32_t k = 0; k < 2; k++) {
        struct weir__node *part = node->in[k]->producer;
        struct weir_value *residual = node->in[1 - k];
        if (part == NULL || part->op != WEIR__OP_dropout || part->layer != node->layer) continue;
        if (count_consumers(graph, part->out[0]) != 1 || residual == part->in[0]) continue;
        if (read_between(graph, part->id, node->id, part->in[0])) continue;
        node->op = WEIR__OP_dropout_add;
        node->shape = part->shape;
        node->shape.op = node->op;
        node->in[0] = part->in[0];
        node->in[1] = residual;
        part->dead = true;
        return 1;
    }
    return 0;
}

/** The node that makes `value`, if it is such an op with one reader. */
static struct weir__node *sole_part(const struct weir__graph *graph, const struct weir_value *value,
                                    enum weir__op_code op) {
    struct weir__node *part = value->producer;
    if (part == NULL || part->op != op || part->out[0] != value) return NULL;
    return count_consumers(graph, value) == 1 ? part : NULL;
}

/** leaky_relu(instance_norm(dropout2d(x))), with or without the dropout. Its parts are layers of
 * their own, and a stage may begin between them: the kernel's bits are its parts', and so is the
 * order in which gradients of x are summed, unless x is read in between. */
static uint32_t norm_act(const struct weir__graph *graph, struct weir__node *node) {
    if (node->op != WEIR__OP_leaky_relu) return 0;
    struct weir__node *norm = sole_part(graph, node->in[0], WEIR__OP_instance_norm);
    if (norm == NULL || norm->in[1] != NULL) return 0;
    struct weir__node *dropout = sole_part(graph, norm->in[0], WEIR__OP_dropout2d);
    const struct weir__node *first = dropout != NULL ? dropout : norm;
    if (read_between(graph, first->id, node->id, first->in[0])) return 0;
    assert(norm->out_count <= node->out_capacity);
    double slope = node->shape.slope;
    node->op = WEIR__OP_instance_norm_act;
    node->shape = norm->shape;
    node->shape.op = node->op;
    node->shape.slope = slope;
    node->shape.p = dropout != NULL ? dropout->shape.p : 0;
    node->shape.random_op = dropout != NULL ? dropout->shape.random_op : 0;
    node->in[0] = first->in[0];
    for (uint32_t k = 1; k < norm->out_count; k++) {
        node->out[k] = norm->out[k];
        node->out[k]->producer = node;
    }
    node->out_count = norm->out_count;
    norm->dead = true;
    if (dropout != NULL) dropout->dead = true;
    return dropout != NULL ? 2 : 1;
}

static bool reads_between(const struct weir__graph *graph, const struct weir__node *part,
                          const struct weir__node *node) {
    for (uint32_t k = 0; k < part->in_count; k++)
        if (part->in[k] != NULL && read_between(graph, part->id, node->id, part->in[k]))
            return true;
    return false;
}

/** The batch norm that makes `node`'s input k and ends there, perhaps with a sum. */
static struct weir__node *batch_norm_part(const struct weir__graph *graph,
                                          const struct weir__node *node, uint32_t k) {
    struct weir__node *part = sole_part(graph, node->in[k], WEIR__OP_batch_norm);
    if (part == NULL && node->op == WEIR__OP_relu) {
        part = sole_part(graph, node->in[k], WEIR__OP_batch_norm_act);
        if (part != NULL && part->shape.activates) part = NULL;
    }
    return part == NULL || reads_between(graph, part, node) ? NULL : part;
}

/** batch_norm(x) + addend, or relu of a batch norm or of such a sum. The parts may be layers of
 * their own, as norm_act's. */
static uint32_t batch_norm_act(const struct weir__graph *graph, struct weir__node *node) {
    enum { ADDEND = 5 };
    bool adds = node->op == WEIR__OP_add;
    if (!graph->fuses_batch_norms || (!adds && node->op != WEIR__OP_relu)) return 0;
    struct weir__node *norm = batch_norm_part(graph, node, 0);
    struct weir_value *addend = adds ? node->in[1] : NULL;
    if (adds && norm == NULL) {
        norm = batch_norm_part(graph, node, 1);
        addend = node->in[0];
    }
    if (norm == NULL) return 0;
    if (norm->in_count > ADDEND) addend = norm->in[ADDEND];
    assert(node->in_capacity > ADDEND && node->out_capacity >= norm->out_count);
    for (uint32_t k = 0; k < ADDEND; k++) node->in[k] = norm->in[k];
    if (addend != NULL) node->in[ADDEND] = addend;
    node->in_count = addend != NULL ? ADDEND + 1 : ADDEND;
    for (uint32_t k = 1; k < norm->out_count; k++) {
        node->out[k] = norm->out[k];
        node->out[k]->producer = node;
    }
    node->out_count = norm->out_count;
    node->op = WEIR__OP_batch_norm_act;
    node->shape = norm->shape;
    node->shape.op = node->op;
    node->shape.adds = addend != NULL;
    node->shape.activates = !adds;
    norm->dead = true;
    return 1;
}

/** addend + product: of the same layer, the product with one reader, and with no other use of what
 * it reads in between, whose gradient would then be summed in another order. Of two products the
 * second is made with the sum, an adapter's: the first one's input is read in between. */
static uint32_t linear_add(const struct weir__graph *graph, struct weir__node *node) {
    if (node->op != WEIR__OP_add || !graph->adds_to_products) return 0;
    for (uint32_t k = 2; k-- > 0;) {
        struct weir__node *product = sole_part(graph, node->in[k], WEIR__OP_linear);
        if (product == NULL || product->layer != node->layer) continue;
        if (reads_between(graph, product, node)) continue;
        assert(node->in_count == 2 && node->in_capacity >= 4);
        node->op = WEIR__OP_linear_add;
        node->shape = product->shape;
        node->shape.op = node->op;
        node->in[2] = node->in[1 - k];
        node->in[0] = product->in[0];
        node->in[1] = product->in[1];
        node->in_count = 3;
        if (product->shape.has_bias) node->in[node->in_count++] = product->in[2];
        product->dead = true;
        return 1;
    }
    return 0;
}

/* ---- a loss with its product, for memory ---- */

/** Whoever asks for a step's output pays a product of the head for it. That is not worth the 32 MiB
 * that so many logits take in F32, and as much their gradient. Where classes are few, the layers
 * before hold more of so many tokens than logits do. */
enum { LOGITS_MOST = 8 << 20, CLASSES_LEAST = 8192 };

static bool are_large(const struct weir__graph *graph, const struct weir__op_shape *head) {
    assert(head->tokens >= 1 && head->out >= 1 && graph->logits_most >= 0);
    int64_t most = graph->logits_most > 0 ? graph->logits_most : LOGITS_MOST;
    if (graph->logits_most == 0 && head->out < CLASSES_LEAST) return false;
    return graph->rows_max > most / head->out / head->tokens;
}

/** Whether one node can make the product's gradients: that of x with or without all others. */
static bool learns_at_once(const struct weir__node *head) {
    bool weight = head->in[1]->requires_grad;
    bool bias = head->shape.has_bias ? head->in[2]->requires_grad : weight;
    return weight == bias && (head->in[0]->requires_grad || !weight);
}

/** cross_entropy(product), whose logits nobody reads but whoever asks for the output: for them the
 * product stays. Its layer is the product's, where the work is. */
static uint32_t linear_cross_entropy(const struct weir__graph *graph, struct weir__node *node) {
    if (node->op != WEIR__OP_cross_entropy) return 0;
    const struct weir_value *logits = node->in[0];
    struct weir__node *head = logits->producer;
    if (head == NULL || head->op != WEIR__OP_linear || logits != graph->output) return 0;
    if (count_consumers(graph, logits) != 2 || reads_between(graph, head, node)) return 0;
    if (!are_large(graph, &head->shape) || !learns_at_once(head)) return 0;
    int64_t ignored = node->shape.ignore_index;
    node->op = WEIR__OP_linear_cross_entropy;
    node->layer = head->layer;
    node->shape = head->shape;
    node->shape.op = node->op;
    node->shape.width = head->shape.out;
    node->shape.ignore_index = ignored;
    assert(node->in_count == 2 && node->in_capacity >= 4 && node->out[0] == graph->loss);
    node->out_count = 1;
    node->in[2] = node->in[1];
    node->in[0] = head->in[0];
    node->in[1] = head->in[1];
    node->in_count = 3;
    if (head->shape.has_bias) node->in[node->in_count++] = head->in[2];
    return 0;
}

/* ---- where the back end fuses sums ---- */

/** A product whose bias `node` can add to its input k: of the same layer, with one reader, and with
 * no other use of the bias in between, whose gradient would then be summed in another order. */
static struct weir__node *biased_part(const struct weir__graph *graph,
                                      const struct weir__node *node, uint32_t k) {
    struct weir__node *product = sole_part(graph, node->in[k], WEIR__OP_linear);
    if (!graph->fuses_sums || product == NULL || product->layer != node->layer) return NULL;
    if (!product->shape.has_bias) return NULL;
    return read_between(graph, product->id, node->id, product->in[2]) ? NULL : product;
}

/** The bias leaves the product, and becomes the node's input 1. */
static void take_bias(struct weir__node *node, enum weir__op_code op, struct weir__node *product) {
    assert(node->in_count < node->in_capacity);
    assert(product->in_count == 3 && product->shape.has_bias);
    node->op = op;
    node->shape.op = op;
    node->shape.tokens = product->shape.tokens;
    node->shape.out = product->shape.out;
    for (uint32_t k = node->in_count++; k > 1; k--) node->in[k] = node->in[k - 1];
    node->in[1] = product->in[2];
    product->in[2] = NULL;
    product->in_count = 2;
    product->shape.has_bias = false;
}

/** gelu(product + bias). */
static uint32_t bias_gelu(const struct weir__graph *graph, struct weir__node *node) {
    struct weir__node *product = NULL;
    if (node->op == WEIR__OP_gelu) product = biased_part(graph, node, 0);
    if (product != NULL) take_bias(node, WEIR__OP_bias_gelu, product);
    return 0;
}

/** residual + dropout(product + bias). Not where the residual is the bias's product itself: that
 * has two readers then. */
static uint32_t bias_dropout_add(const struct weir__graph *graph, struct weir__node *node) {
    struct weir__node *product = NULL;
    if (node->op == WEIR__OP_dropout_add) product = biased_part(graph, node, 0);
    if (product != NULL) take_bias(node, WEIR__OP_bias_dropout_add, product);
    return 0;
}

/** LayerNorm(a + b), which gives the sum too: it may have other readers, later ones. What is added
 * may not be read in between, where its gradient's terms would be added in another order. */
static uint32_t add_layer_norm(const struct weir__graph *graph, struct weir__node *node) {
    if (!graph->fuses_sums || node->op != WEIR__OP_layer_norm) return 0;
    struct weir_value *value = node->in[0];
    struct weir__node *sum = value->producer;
    if (sum == NULL || sum->op != WEIR__OP_add || sum->layer != node->layer) return 0;
    if (count_consumers(graph, node->out[0]) == 0) return 0; /* its gradient leads to the sum's */
    if (read_between(graph, sum->id, node->id, value)) return 0;
    for (uint32_t k = 0; k < 2; k++)
        if (read_between(graph, sum->id, node->id, sum->in[k])) return 0;
    assert(node->in_count == 3 && node->out_count < node->out_capacity);
    node->op = WEIR__OP_add_layer_norm;
    node->shape.op = node->op;
    node->in[3] = node->in[2];
    node->in[2] = node->in[1];
    node->in[1] = sum->in[1];
    node->in[0] = sum->in[0];
    node->in_count = 4;
    node->out[node->out_count++] = value;
    value->producer = node;
    sum->dead = true;
    return 1;
}

/** Returns how many nodes it removed. */
typedef uint32_t pattern_fn(const struct weir__graph *graph, struct weir__node *node);
static pattern_fn *const patterns[] = {
    dropout_add,          norm_act,  batch_norm_act,   linear_add,
    linear_cross_entropy, bias_gelu, bias_dropout_add, add_layer_norm};

uint32_t weir__fuse(struct weir__graph *graph) {
    uint32_t removed = 0;
    for (uint32_t i = 0; i < graph->node_count; i++)
        for (size_t p = 0; p < WEIR__COUNT_OF(patterns); p++)
            if (!graph->nodes[i]->dead) removed += patterns[p](graph, graph->nodes[i]);
    return removed;
}
