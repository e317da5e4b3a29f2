/* SPDX-License-Identifier: MIT */
/**
 * The builder: what a layer's build function speaks to. Each call emits an op, infers its shape and
 * returns its value, so that layer code reads like mathematics:
 *
 *     struct weir_value *h = weir_layer_norm(b, x, weight, bias, 1e-5);
 *     h = weir_gelu(b, weir_linear(b, h, w1, b1, false), true);
 *     return weir_sum(b, x, weir_linear(b, h, w2, b2, false));
 *
 * The error is sticky: the first fault is reported once, with the layer's name; afterwards every
 * call returns NULL, and NULL operands are no further fault. So nobody asks before the end
 * (`status`). A NULL operand while all is well means "absent", where the op allows it.
 */
#ifndef WEIR_BUILDER_H
#define WEIR_BUILDER_H

#include "net/model/graph.h"

/** The running numbers of one batch norm. A mini-batch's moments are an accumulator of its
 * running_mean, and move all three when parameters are updated. */
struct weir__running {
    uint32_t mean, variance, batches; /**< the network's numbers of these parameters */
    double momentum;                  /**< the weight of what is new */
    bool cumulative;                  /**< instead: 1 / how many mini-batches there were */
    bool plain;                       /**< they move with each micro-batch */
};

/** A parameter of the network, or another stage's copy of one (weights tied across stages). Those
 * of a stage are neighbours in the list. */
struct weir__parameter_decl {
    const char *name;  /**< "h.0.ln_1.weight"; a copy has its original's */
    const char *local; /**< "ln_1.weight" */
    uint32_t layer;    /**< its first use */
    uint32_t stage;
    uint32_t rank;
    int64_t shape[WEIR_RANK_MAX];
    uint64_t count;
    enum weir_dtype dtype;
    struct weir_init init;
    bool frozen;                         /**< no gradient, no optimizer state */
    bool adapter;                        /**< of LoRA */
    bool copied;                         /**< other stages have copies */
    const struct weir__running *running; /**< it is one of these: frozen, but steps move it; NULL:
                                            it is none */
    uint32_t original;                   /**< of a copy: its number; else WEIR__NONE */
    struct weir_value *value;            /**< in its stage's graph */
    size_t offset; /**< bytes, in the stage's parameter memory and gradient memory */
};

/** Whether several stages have it. */
static inline bool weir__parameter_is_shared(const struct weir__parameter_decl *parameter) {
    return parameter->copied || parameter->original != WEIR__NONE;
}

/** A skip of the network. */
struct weir__skip {
    struct weir_skip_route route; /**< of layers; `bytes` and `differentiable` are not set */
    uint32_t source_stage, last_stage;
    uint32_t reading_stage; /**< the last one that was built; 0: none yet, the first reads none */
    uint32_t reading_use;   /**< its use there */
    struct weir_tensor tensor; /**< known once it was stashed */
    struct weir_value *value;  /**< in the source stage's graph; NULL before */
};

/** A dropout, for weir_net_masks. */
struct weir__dropout_site {
    char name[64]; /**< "3", or "h.0.1" for the second of a composite */
    uint32_t layer;
    uint32_t random_op;
    double p;
    int64_t pixels; /**< elements that are dropped together: 1, or a channel's */
    struct weir_tensor tensor;
};

struct weir_layer;
struct weir__network;

struct weir_builder {
    struct weir__network *network;
    struct weir__graph *graph; /**< the stage's that is being built */
    uint32_t stage;
    enum weir_dtype dtype;
    const struct weir_layer *layer; /**< NULL: the loss */
    uint32_t layer_index;
    uint32_t dropout_count; /**< of this layer, so far */
    uint64_t skips_done;    /**< bit i: the layer's i-th declared skip was used */
    struct weir_faults *faults;
    int status; /**< sticky */
    int noted;  /**< the first fault that building went on after */
};

/* ---- what layers use, beside weir_net.h ---- */

/** Faults for what the present layer declares and did not do. */
void weir__skips_check_done(struct weir_builder *builder);
/** The same memory; a value of its own for differentiation. */
struct weir_value *weir__alias(struct weir_builder *builder, struct weir_value *x);
/** The losses: one double. */
struct weir_value *weir__cross_entropy(struct weir_builder *builder, struct weir_value *logits,
                                       struct weir_value *target, int64_t ignore_index);
struct weir_value *weir__mse(struct weir_builder *builder, struct weir_value *output,
                             struct weir_value *target);
struct weir_value *weir__bce_with_logits(struct weir_builder *builder, struct weir_value *output,
                                         struct weir_value *target);

/** Of each token its sources [..., C], 1 to WEIR__SOURCES_MAX of one shape, by shares that are a
 * softmax over them of query . rms_norm(source, weight): arXiv 2603.15031. */
struct weir_value *weir__residual_mix(struct weir_builder *builder, uint32_t count,
                                      struct weir_value *const *sources, struct weir_value *weight,
                                      struct weir_value *query, double eps);

/** Causal attention of q [tokens, width] to k and v [tokens, kv_heads * width / heads]: each of
 * these heads serves heads / kv_heads of q's. With reach > 0 a query sees the last `reach` tokens,
 * its own among them. With sequences a row is one token, and keys and values are kept. */
struct weir__grouping {
    int64_t heads, kv_heads, reach;
    struct weir_value *documents; /**< of packed rows; NULL: rows are whole */
};
struct weir_value *weir__grouped_attention(struct weir_builder *builder, struct weir_value *q,
                                           struct weir_value *k, struct weir_value *v,
                                           const struct weir__grouping *grouping);
/** Rotary positions of x [tokens, heads * size]: `frequencies` [size / 2], radians per token, live
 * as long as the network. With documents (or NULL) they begin anew in each. */
struct weir_value *weir__rope(struct weir_builder *builder, struct weir_value *x, int64_t heads,
                              const float *frequencies, struct weir_value *documents);
/** Rows of the table for the tokens of documents, which is the model's input (packed rows:
 * net/kernel.h). */
struct weir_value *weir__packed_embedding(struct weir_builder *builder,
                                          struct weir_value *documents, struct weir_value *table);
/** factor * x. */
struct weir_value *weir__scale(struct weir_builder *builder, struct weir_value *x, double factor);
/** A parameter that learns beside others, which are frozen. */
struct weir_value *weir__adapter_parameter(struct weir_builder *builder, const char *local,
                                           uint32_t rank, const int64_t *shape,
                                           struct weir_init init);
/** y, the product of x and `weight`, and with it what the model's adapters (struct weir_lora) add
 * where they take the product; else y. */
struct weir_value *weir__adapted(struct weir_builder *builder, struct weir_value *x,
                                 const struct weir_value *weight, struct weir_value *y);
/** silu(gate) * up, of equal shapes. */
struct weir_value *weir__swiglu(struct weir_builder *builder, struct weir_value *gate,
                                struct weir_value *up);

/** Of an image the pixels (first + 2 i, first + 2 k), half as many of each side, rounded up; 0
 * where there are none. */
struct weir_value *weir__every_second(struct weir_builder *builder, struct weir_value *x,
                                      int64_t first);

/** x with its memory in PyTorch's order, or channels last; x itself where it lies so already. A
 * conversion that moves nothing (one channel, or one pixel) is an alias. */
struct weir_value *weir__plain(struct weir_builder *builder, struct weir_value *x);
struct weir_value *weir__channels_last(struct weir_builder *builder, struct weir_value *x);
/** x in the order of `like`. */
struct weir_value *weir__ordered_like(struct weir_builder *builder, struct weir_value *x,
                                      const struct weir_value *like);
/** The same memory with the shape and order of `like`, whose elements are as many. */
struct weir_value *weir__alias_like(struct weir_builder *builder, struct weir_value *x,
                                    const struct weir_value *like);

/* ---- what ops use ---- */

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
/** Reports a fault of the present layer that leaves the shape of its output known: building goes on
 * with that shape, so that the layers behind are judged too, and nothing comes of the network. */
void weir__builder_note(struct weir_builder *builder, int status, const char *format, ...);

/** A node with these operands; NULL where the builder has failed. */
#define WEIR__EMIT(builder, op, ...)                                                               \
    weir__emit(builder, WEIR__OP_##op,                                                             \
               sizeof((struct weir_value *[]){__VA_ARGS__}) / sizeof(struct weir_value *),         \
               (struct weir_value *[]){__VA_ARGS__})
struct weir__node *weir__emit(struct weir_builder *builder, enum weir__op_code op,
                              uint32_t in_count, struct weir_value *const *in);
/** A backward node, whose shape is the forward node's. */
#define WEIR__EMIT_LIKE(builder, op, node, ...)                                                    \
    weir__emit_like(builder, WEIR__OP_##op, node,                                                  \
                    sizeof((struct weir_value *[]){__VA_ARGS__}) / sizeof(struct weir_value *),    \
                    (struct weir_value *[]){__VA_ARGS__})
struct weir__node *weir__emit_like(struct weir_builder *builder, enum weir__op_code op,
                                   const struct weir__node *forward, uint32_t in_count,
                                   struct weir_value *const *in);
/** Gives `node` one more output, batched, of the network's dtype. NULL for a NULL node. */
struct weir_value *weir__output(struct weir_builder *builder, struct weir__node *node,
                                uint32_t rank, const int64_t *shape);
/** x at the network's dtype, which the model's input and target need not have. */
struct weir_value *weir__narrow(struct weir_builder *builder, struct weir_value *x);
/** As weir__output, of statistics: at weir__exact_dtype. */
struct weir_value *weir__output_exact(struct weir_builder *builder, struct weir__node *node,
                                      uint32_t rank, const int64_t *shape);
/** The same, shaped as `like`. */
struct weir_value *weir__output_like(struct weir_builder *builder, struct weir__node *node,
                                     const struct weir_value *like);
/** An image, channels last. */
struct weir_value *weir__output_image(struct weir_builder *builder, struct weir__node *node,
                                      int64_t channels, struct weir__plane plane);
/** A number that belongs to no row, in double: a loss. */
struct weir_value *weir__output_number(struct weir_builder *builder, struct weir__node *node);
/** An acc output: this use of the parameter gets an accumulator. */
void weir__output_accumulator(struct weir_builder *builder, struct weir__node *node,
                              const struct weir_value *parameter);
/** The same for the statistic that `running_mean` stands for: `count` numbers. */
void weir__output_moments(struct weir_builder *builder, struct weir__node *node,
                          const struct weir_value *running_mean, int64_t count);
/** One of batch norm's running numbers: a parameter that no optimizer has, of F32 or F64 as others,
 * or of I64. Its value asks for a gradient unless it is frozen. */
struct weir_value *weir__statistic(struct weir_builder *builder, const char *local,
                                   enum weir_dtype dtype, uint32_t rank, const int64_t *shape,
                                   struct weir_init init, const struct weir__running *running);
/** True if x is there and its gradient is wanted. */
bool weir__wants_grad(const struct weir_value *x);
/** Adds `grad` to x's gradient; contributions come in descending order of consumers. */
void weir__contribute(struct weir_builder *builder, struct weir_value *x, struct weir_value *grad);

/** Adds the backward nodes for everything that the present graph's stage owes: gradients of its
 * input, of the skips that it reads, and of its parameters. */
int weir__differentiate(struct weir_builder *builder);

#endif
