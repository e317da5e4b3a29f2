/* SPDX-License-Identifier: MIT */
/**
 * Layers and ops of one's own, and the builder that layers speak to. A layer type says which
 * attributes it takes, which skips it uses, and builds its part of the network by emitting ops; the
 * library infers shapes, differentiates, plans memory and cuts stages. So a new layer is one
 * function that reads like mathematics:
 *
 * @code
 *   static struct weir_value *build(struct weir_builder *b, const struct weir_layer *layer,
 *                                   struct weir_value *x) {
 *       int64_t width = weir_value_tensor(x).shape[0];
 *       struct weir_init init = {WEIR_INIT_UNIFORM, 0.1};
 *       struct weir_value *w = weir_parameter(b, "weight", 2, (int64_t[]){width, width}, init);
 *       return weir_sum(b, x, weir_gelu(b, weir_linear(b, x, w, NULL, false), false));
 *   }
 *   static const struct weir_layer_type residual = {.name = "residual_mlp", .build = build};
 *   ...
 *   weir_model_add_type(model, &residual);
 *   weir_model_add(model, "residual_mlp", NULL, WEIR_NO_ATTRS, &faults);
 * @endcode
 *
 * What no op does is a struct weir_op: a shape rule, forward and backward (weir_apply).
 *
 * Errors are sticky: the first fault is reported once, with the layer's name; afterwards every call
 * returns NULL, and NULL operands are no further fault (but for faults that leave an op's output
 * shape known, such as channels that the groups do not divide: building goes on, so that the layers
 * behind are judged too). So nobody asks before the end, and a build
 * function just returns what it has. A NULL operand while all is well means "absent", where the op
 * allows it. All calls belong into a build function, on the thread that builds the net; values and
 * the builder are the library's and live no longer than it says.
 *
 * Shapes are of one row, in PyTorch's order (channels first). Inside, images lie channels last;
 * ops convert where they must, and what an op of the user's own sees is always PyTorch's order.
 */
#ifndef WEIR_LAYER_H
#define WEIR_LAYER_H

#include "weir_net.h"

#ifdef __cplusplus
extern "C" {
#endif

struct weir_builder;
struct weir_value;
struct weir_layer;

/* ---- layer types ----------------------------------------------------------------------------- */

/** An attribute that a type takes, and its default. */
struct weir_attr_rule {
    const char *key;
    enum weir_attr_kind kind;
    bool required;
    int64_t integer; /**< the default; FLAG: 0 or 1; PAIR: both */
    double real;
    const char *text;
    int64_t least;       /**< INT, PAIR: the smallest value */
    double below;        /**< REAL: 0 <= value < below */
    const char *choices; /**< TEXT: "none|tanh"; NULL: anything */
};

/** A skip that a type uses, whose name and namespace are attributes (TEXT) of the layer. */
struct weir_skip_rule {
    enum weir_skip_verb verb;
    const char *name_key;
    const char *name_space_key; /**< NULL: the default namespace */
};

/** What stands before a parameter's own name. */
enum weir_prefix {
    WEIR_PREFIX_INDEX,  /**< "4.": the layer's index */
    WEIR_PREFIX_NONE,   /**< nothing: "wte.weight" */
    WEIR_PREFIX_ORDINAL /**< "h.2.": how many of the type stand before */
};

#define WEIR_LAYER_SKIPS_MAX 4

struct weir_layer_type {
    const char *name;
    const struct weir_attr_rule *attrs;
    uint32_t attr_count;
    uint32_t skip_count;
    struct weir_skip_rule skips[WEIR_LAYER_SKIPS_MAX];
    enum weir_prefix prefix; /**< unless the layer has a name */
    bool composite;          /**< its dropouts are numbered: "mask.h.0.1" */
    /** Emits the layer's ops for input x; called once per net that is built, and for shapes. */
    struct weir_value *(*build)(struct weir_builder *builder, const struct weir_layer *layer,
                                struct weir_value *x);
};

/** Makes a type known to one model; it must outlive the model. WEIR_ERR_EXISTS for a name that is
 * taken, WEIR_ERR_ARGUMENT for a type without name or build, or with a skip whose name or namespace
 * is no TEXT attribute that is required or has a default. */
int weir_model_add_type(struct weir_model *model, const struct weir_layer_type *type);

/** An attribute of the layer, an INT, or its default. The key must be one of the type's, here and
 * below. */
int64_t weir_layer_int(const struct weir_layer *layer, const char *key);
/** A REAL. */
double weir_layer_real(const struct weir_layer *layer, const char *key);
/** A FLAG. */
bool weir_layer_flag(const struct weir_layer *layer, const char *key);
/** A TEXT; borrowed from the model. */
const char *weir_layer_text(const struct weir_layer *layer, const char *key);
/** A PAIR: height and width. */
void weir_layer_pair(const struct weir_layer *layer, const char *key, int64_t pair[2]);

/* ---- values and parameters ------------------------------------------------------------------- */

/** Dtype and shape of one row; `differentiable` where its gradient is wanted. */
struct weir_tensor weir_value_tensor(const struct weir_value *value);

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
/** Reports a fault of the present layer, unless one was reported; returns NULL. */
void *
weir_builder_fail(struct weir_builder *builder, int status, const char *format, ...);

/** How a parameter is filled when training starts. */
enum weir_init_kind { WEIR_INIT_ZERO, WEIR_INIT_ONE, WEIR_INIT_NORMAL, WEIR_INIT_UNIFORM };
struct weir_init {
    enum weir_init_kind kind;
    double scale; /**< NORMAL: standard deviation; UNIFORM: between -scale and scale */
};

/** The present layer's parameter `local` ("weight"), of the network's dtype. */
struct weir_value *weir_parameter(struct weir_builder *builder, const char *local, uint32_t rank,
                                  const int64_t *shape, struct weir_init init);
/** Tied weights: the parameter `local` ("wte.weight") of the last earlier layer that has one. It is
 * one parameter, whose gradient is the sum over its uses in layer order, also where a pipeline cuts
 * between them: each stage then has a copy, and the copies stay equal. */
struct weir_value *weir_tied_parameter(struct weir_builder *builder, const char *local);
/** Stashes x under a name that the layer's type declares. */
void weir_stash(struct weir_builder *builder, const char *name_space, const char *name,
                struct weir_value *x);
/** Reads, or pops, a skip that the layer's type declares. */
struct weir_value *weir_read(struct weir_builder *builder, const char *name_space,
                             const char *name);

/* ---- ops: PyTorch's formulas ----------------------------------------------------------------- */

/** x W^T + b over the last dimension; weight [out, in], or [in, out] if `weight_in_out`. */
struct weir_value *weir_linear(struct weir_builder *builder, struct weir_value *x,
                               struct weir_value *weight, struct weir_value *bias,
                               bool weight_in_out);
/** Rows of `table` [count, width] picked by i64 numbers. */
struct weir_value *weir_embedding(struct weir_builder *builder, struct weir_value *index,
                                  struct weir_value *table);
/** x [T, C] + the table's first T rows. */
struct weir_value *weir_position_add(struct weir_builder *builder, struct weir_value *x,
                                     struct weir_value *table);
/** Causal self-attention of qkv [T, 3 C]. */
struct weir_value *weir_attention(struct weir_builder *builder, struct weir_value *qkv,
                                  int64_t heads);
/** Over the last dimension. */
struct weir_value *weir_layer_norm(struct weir_builder *builder, struct weir_value *x,
                                   struct weir_value *weight, struct weir_value *bias, double eps);
/** Over dimension `dim` of a row (0 is the first behind the rows). */
struct weir_value *weir_softmax(struct weir_builder *builder, struct weir_value *x, uint32_t dim);
/** x times the normal distribution's share below x, exact or in its tanh form. */
struct weir_value *weir_gelu(struct weir_builder *builder, struct weir_value *x,
                             bool approximate_tanh);
/** max(x, 0). */
struct weir_value *weir_relu(struct weir_builder *builder, struct weir_value *x);
/** x where x > 0, else negative_slope * x; the slope is not negative. */
struct weir_value *weir_leaky_relu(struct weir_builder *builder, struct weir_value *x,
                                   double negative_slope);
/** x * sigmoid(x). */
struct weir_value *weir_silu(struct weir_builder *builder, struct weir_value *x);
/** 1 / (1 + exp(-x)). */
struct weir_value *weir_sigmoid(struct weir_builder *builder, struct weir_value *x);
/** The hyperbolic tangent. */
struct weir_value *weir_tanh(struct weir_builder *builder, struct weir_value *x);
/** Zero with probability p (0 <= p < 1), else x / (1 - p); the identity in inference. */
struct weir_value *weir_dropout(struct weir_builder *builder, struct weir_value *x, double p);
/** a + b, of equal shapes. */
struct weir_value *weir_sum(struct weir_builder *builder, struct weir_value *a,
                            struct weir_value *b);
/** Another shape of as many elements per row, in PyTorch's order. */
struct weir_value *weir_reshape(struct weir_builder *builder, struct weir_value *x, uint32_t rank,
                                const int64_t *shape);

/* ---- ops on images [channels, height, width] ---- */

/** Height and width of each. */
struct weir_conv_options {
    int64_t stride[2], padding[2];
    int64_t groups;
};
/** weight [out, in / groups, kernel height, kernel width], bias [out] or NULL. */
struct weir_value *weir_conv2d(struct weir_builder *builder, struct weir_value *x,
                               struct weir_value *weight, struct weir_value *bias,
                               const struct weir_conv_options *options);
/** Weight and bias [channels], both or neither (NULL). */
struct weir_value *weir_instance_norm2d(struct weir_builder *builder, struct weir_value *x,
                                        struct weir_value *weight, struct weir_value *bias,
                                        double eps);
/** Drops whole channels. */
struct weir_value *weir_dropout2d(struct weir_builder *builder, struct weir_value *x, double p);
struct weir_pool_options {
    int64_t kernel[2], stride[2], padding[2];
    bool count_include_pad; /**< of avg_pool2d */
};
/** The largest of each window; padding is never taken. */
struct weir_value *weir_max_pool2d(struct weir_builder *builder, struct weir_value *x,
                                   const struct weir_pool_options *options);
/** The mean of each window. */
struct weir_value *weir_avg_pool2d(struct weir_builder *builder, struct weir_value *x,
                                   const struct weir_pool_options *options);
/** Means of windows that cover the image, `size` of them (height, width). */
struct weir_value *weir_adaptive_avg_pool2d(struct weir_builder *builder, struct weir_value *x,
                                            const int64_t size[2]);
/** Nearest neighbour. */
struct weir_value *weir_upsample(struct weir_builder *builder, struct weir_value *x,
                                 const int64_t scale[2]);
/** Along the first dimension of a row: PyTorch's dim = 1. Of images, `a` may have a smaller plane
 * than `b`: zeros to the right and below make up for it, as torchgpipe's U-Net does. */
struct weir_value *weir_concat(struct weir_builder *builder, struct weir_value *a,
                               struct weir_value *b);

/* ---- ops of one's own ------------------------------------------------------------------------ */

#define WEIR_OP_INPUTS_MAX 4

/** What an op's callbacks are told. Tensors are contiguous, rows first, in PyTorch's order. */
struct weir_op_task {
    int64_t rows;
    enum weir_dtype dtype;     /**< of every floating-point tensor: F32 or F64 */
    const void *options;       /**< the copy of what weir_apply was given */
    const void *const *inputs; /**< `rows` rows each, parameters whole; backward: NULL for inputs
                                    that are not in `keeps_inputs` */
    void *output;              /**< forward writes it; backward reads it, if `keeps_output` */
    const void *output_grad;   /**< backward */
    void *const *input_grads;  /**< backward; NULL where nobody wants it. "=" for inputs with rows;
                                    "+=" for parameters, whose gradient is zeroed before the first
                                    micro-batch. Where a schedule splits backward there are two
                                    calls: for inputs with rows, later for parameters. So the bits
                                    of a gradient must not depend on which others are wanted */
    void *workspace;           /**< as many bytes as the op asked for, or NULL */
    bool infer;                /**< inference, not training */
    struct weir_error *error;  /**< a failing callback may put a message here; never NULL */
};

/** An op: callbacks that must be pure functions of the task (no state, no dependence on time or
 * addresses), because recompute calls forward again. They run on the worker's thread, allocate
 * nothing, and return a status; any but WEIR_OK fails the step and names the layer. */
struct weir_op {
    size_t size; /**< sizeof(struct weir_op) */
    const char *name;
    /** The output of one row from the inputs' (`differentiable` means nothing here). On failure
     * error->message says why. */
    int (*shape)(const void *options, uint32_t input_count, const struct weir_tensor *inputs,
                 struct weir_tensor *output, struct weir_error *error);
    int (*forward)(const struct weir_op_task *task);
    int (*backward)(const struct weir_op_task *task); /**< NULL: refused where gradients flow */
    /** Bytes of workspace for `rows` rows, for both directions; NULL: none. */
    size_t (*workspace)(const void *options, enum weir_dtype dtype, int64_t rows);
    double (*flops)(const void *options); /**< of one row's forward pass; NULL: 0 */
    uint32_t keeps_inputs;                /**< bit i: backward reads input i */
    bool keeps_output;                    /**< backward reads the output */
};
/** Emits `op`, which must outlive the model; `options` (may be NULL) are copied. Inputs are values
 * with rows, or parameters. */
struct weir_value *weir_apply(struct weir_builder *builder, const struct weir_op *op,
                              const void *options, size_t options_bytes, uint32_t input_count,
                              struct weir_value *const *inputs);

#ifdef __cplusplus
}
#endif
#endif
