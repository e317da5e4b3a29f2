/* SPDX-License-Identifier: MIT */
/**
 * A stage's graph: values and the nodes that make them, forward nodes first, then the backward
 * nodes that differentiation adds. Shapes are without the row dimension; rows are known when a
 * program is planned (program.h). Everything lies in one pool and is read-only once compiled.
 *
 * An *alias* is a node without kernel: its output is its input's memory under another name (and
 * perhaps shape). Every stash makes one, so that the gradient of a skip is summed on its own before
 * it joins the main path's. All other sums are left folds over consumers in descending order, in
 * which what comes over a border from later layers stands first; so the number and the order of
 * additions never depend on the partition.
 */
#ifndef WEIR_GRAPH_H
#define WEIR_GRAPH_H

#include "base/pool.h"
#include "net/kernel.h"
#include "weir_net.h"

#define WEIR__NODE_IN_MAX (5 + 2 * WEIR__SOURCES_MAX) /**< residual_mix_grad's */
#define WEIR__NODE_OUT_MAX (1 + WEIR__SOURCES_MAX)
#define WEIR__STAGE_INPUT_MAX 2 /**< the border's, then the target */
#define WEIR__OP_ALIAS WEIR__OP_COUNT
#define WEIR__NONE UINT32_MAX

struct weir_builder;
struct weir__node;

/** Where a value's memory comes from. */
enum weir__value_source {
    WEIR__FROM_NODE,
    WEIR__FROM_INPUT,       /**< the stage's input `index` */
    WEIR__FROM_SKIP,        /**< what skip use `index` reads */
    WEIR__FROM_PARAMETER,   /**< the network's parameter `index` */
    WEIR__FROM_OUTPUT_GRAD, /**< of the stage's only output */
    WEIR__FROM_SKIP_GRAD    /**< the running sum that comes in for skip use `index` */
};

struct weir_value {
    uint32_t id; /**< its place in the graph's list */
    enum weir__value_source source;
    uint32_t index;              /**< which input, skip use or parameter */
    struct weir__node *producer; /**< NULL unless FROM_NODE */
    enum weir_dtype dtype;
    bool batched;       /**< has the row dimension; parameters and the loss have none */
    bool requires_grad; /**< depends on a parameter or on a differentiable input */
    uint32_t rank;
    int64_t shape[WEIR_RANK_MAX];
    bool channels_last;      /**< an image [C, H, W] that lies in memory as (H, W, C) */
    uint32_t accumulator;    /**< an acc output: which accumulator it adds to; else WEIR__NONE */
    struct weir_value *grad; /**< the sum so far, while differentiating; then the whole */
};

struct weir__node {
    enum weir__op_code op;       /**< or WEIR__OP_ALIAS */
    struct weir__op_shape shape; /**< rows and threads are filled in by the program */
    uint32_t id;
    uint32_t layer;
    uint32_t in_count, out_count;
    uint32_t in_capacity, out_capacity;
    struct weir_value **in; /**< NULL: absent */
    struct weir_value **out;
    bool dead; /**< fused into another */
};

/** One use of a parameter has one gradient accumulator. The first lies where the parameter's
 * gradient is; the others are added to it, in layer order, once per update. */
struct weir__accumulator {
    uint32_t parameter; /**< the network's number */
    uint64_t count; /**< of numbers: the parameter's, or a statistic's moments (net/moments.h) */
    size_t offset;  /**< in the stage's gradient memory */
};

/** What one stage does with a skip that crosses its border. */
struct weir__graph_skip_use {
    struct weir_skip_use use;    /**< as the engine is told, but for `kept` */
    uint32_t skip;               /**< the network's number */
    struct weir_value *value;    /**< stashed, or read */
    bool later_readers;          /**< a running sum comes in */
    struct weir_value *grad_out; /**< read, pop: what is handed on; NULL: zero */
};

struct weir__graph {
    struct weir__pool *pool;
    struct weir_value **values;
    struct weir__node **nodes;
    uint32_t value_count, value_capacity;
    uint32_t node_count, node_capacity;
    uint32_t forward_count; /**< nodes before this one are forward nodes */
    struct weir_value *inputs[WEIR__STAGE_INPUT_MAX]; /**< NULL: none */
    struct weir_value *output;
    struct weir_value *loss;          /**< one double; NULL but in the last stage */
    struct weir_value *backward_loss; /**< the same, where training makes it with its gradients
                                           and not in the forward pass; NULL: it does not */
    struct weir_value *input_grad;    /**< of inputs[0]; NULL: nothing flows there */
    struct weir__graph_skip_use *skips;
    uint32_t skip_count, skip_capacity;
    struct weir__accumulator *accumulators; /**< in layer order */
    uint32_t accumulator_count, accumulator_capacity;
    bool fuses_sums;        /**< as the stage's back end (net/backend.h) */
    bool by_tokens;         /**< rows are tokens of sequences, whose keys and values are kept */
    bool fuses_batch_norms; /**< the back end has batch_norm_act */
    bool adds_to_products;  /**< the back end has linear_add and linear_grad_input_add */
    int64_t rows_max;       /**< of a micro-batch; 0: not known, or the back end takes no slices of
                                 logits: these are held as a whole then */
    int64_t logits_most;    /**< numbers of a micro-batch's logits that are; 0: the default */
    bool layered; /**< slices take every layer's gradient of its input for a border's, so that the
                       input part and the weight part can be told apart layer by layer */
};

/** What the compiler knows of an op: an entry per op, in net/ops. */
struct weir__op_rule {
    /** Emits backward nodes for `node`, whose first output has the gradient `dy` (NULL for a loss),
     * with weir__contribute. NULL: not differentiable. */
    void (*gradient)(struct weir_builder *builder, const struct weir__node *node,
                     struct weir_value *dy);
    /** Floating-point operations of one row's forward pass, 2 per multiply-add; NULL: 0. */
    double (*cost)(const struct weir__node *node);
    uint8_t in_place; /**< bit i: the first output may take input i's memory */
    bool sums;        /**< an output but the first may take the memory of the input that stands as
                           far from the last as it does */
};

/** The rule of a forward or backward op. */
const struct weir__op_rule *weir__op_rule(enum weir__op_code op);

/** The value whose memory `value` is: aliases followed to their origin. */
struct weir_value *weir__value_root(struct weir_value *value);
/** Elements without the row dimension. */
int64_t weir__value_count(const struct weir_value *value);
/** Product of all dimensions but the last (1 for rank 0), and the last (1 for rank 0). */
int64_t weir__value_tokens(const struct weir_value *value);
int64_t weir__value_width(const struct weir_value *value);
/** Bytes of `rows` rows, or of the whole where it is not batched. */
int weir__value_bytes(const struct weir_value *value, int64_t rows, size_t *bytes);
/** Dtype, dimensions and rows; the order in memory may differ. */
bool weir__value_same_shape(const struct weir_value *a, const struct weir_value *b);

/** Of parameters, their gradients and rows' statistics in a network of that dtype: F32 where it is
 * BF16, which is too coarse to add up in. */
enum weir_dtype weir__exact_dtype(enum weir_dtype dtype);

/** Adds a value to the graph; NULL without memory. */
struct weir_value *weir__graph_value(struct weir__graph *graph, enum weir__value_source source,
                                     uint32_t index, const struct weir_tensor *tensor);
/** Adds a node with room for so many operands, and, where these are few, for those that fusion adds
 * and up to four results; NULL without memory. */
struct weir__node *weir__graph_node(struct weir__graph *graph, enum weir__op_code op,
                                    uint32_t layer, uint32_t in_count);

/** The product that makes the output alone, where the loss makes its logits itself: it has to run
 * only where the output is asked for. NULL: there is no such loss. */
struct weir__node *weir__graph_head(const struct weir__graph *graph);

/** Puts fused nodes where their parts stood; before differentiation. The same bits, fewer passes
 * over memory. Returns how many nodes it removed. */
uint32_t weir__fuse(struct weir__graph *graph);

#endif
