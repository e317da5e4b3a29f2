/* SPDX-License-Identifier: MIT */
/**
 * Weir's network library: a model is a list of layers, as data; it is cut into stages, each stage's
 * graph is differentiated once and compiled into programs (forward, forward keeping residuals,
 * recompute, backward, update, infer), and the engine (weir.h) runs them as a pipeline.
 *
 * Errors as in weir.h; everything that is wrong with a model is listed in `faults`, each line with
 * the layer's index and name. A layer is judged by the shape that it gets: where one before it puts
 * out none (a pooling of text, a kernel larger than the image), the faults behind show up once that
 * one is mended. Layer code never checks statuses: the builder's error is sticky.
 *
 * Life: (1) weir_model_new, weir_model_add…, or a built-in list (weir_model_gpt); (2) weir_net_new
 * compiles it, plans memory and builds the pipe; (3) weir_net_init or weir_net_load fill the
 * parameters; (4) weir_net_step, any number; (5) weir_net_destroy, weir_model_destroy.
 *
 * @code
 *   struct weir_model *model;
 *   struct weir_tensor x = {.dtype = WEIR_F32, .rank = 1, .shape = {64}};
 *   struct weir_tensor t = {.dtype = WEIR_I64};
 *   weir_model_new(NULL, &x, &t, "cross_entropy", &model);
 *   weir_model_add(model, "linear", NULL, WEIR_ATTRS(WEIR_ATTR_INT("out_features", 128)), NULL);
 *   weir_model_add(model, "gelu", NULL, WEIR_NO_ATTRS, NULL);
 *   weir_model_add(model, "linear", NULL, WEIR_ATTRS(WEIR_ATTR_INT("out_features", 10)), NULL);
 *
 *   struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
 *   options.stages = 2, options.pipe.rows = 32, options.pipe.chunks = 8;
 *   struct weir_net *net;
 *   int status = weir_net_new(model, &options, &faults, &net);
 *   weir_net_init(net, 1);
 *   struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
 *   batch.rows = 32, batch.input = images, batch.target = labels;
 *   status = weir_net_step(net, &batch, &result);
 * @endcode
 */
#ifndef WEIR_NET_H
#define WEIR_NET_H

#include "weir.h"

#ifdef __cplusplus
#pragma GCC system_header
extern "C" {
#endif

/* ---- models as data -------------------------------------------------------------------------- */

enum weir_attr_kind {
    WEIR_ATTR_KIND_INT,
    WEIR_ATTR_KIND_REAL,
    WEIR_ATTR_KIND_FLAG,
    WEIR_ATTR_KIND_TEXT,
    WEIR_ATTR_KIND_PAIR /**< two whole numbers, height and width; an INT serves for both */
};

/** One attribute of a layer, with PyTorch's name. Texts are copied. */
struct weir_attr {
    const char *key;
    enum weir_attr_kind kind;
    int64_t integer; /**< INT, PAIR's first, and FLAG as 0 or 1 */
    double real;
    const char *text;
    int64_t second; /**< PAIR */
};
#define WEIR_ATTR_INT(key, value)                                                                  \
    { key, WEIR_ATTR_KIND_INT, value, 0.0, 0, 0 }
#define WEIR_ATTR_REAL(key, value)                                                                 \
    { key, WEIR_ATTR_KIND_REAL, 0, value, 0, 0 }
#define WEIR_ATTR_FLAG(key, value)                                                                 \
    { key, WEIR_ATTR_KIND_FLAG, value, 0.0, 0, 0 }
#define WEIR_ATTR_TEXT(key, value)                                                                 \
    { key, WEIR_ATTR_KIND_TEXT, 0, 0.0, value, 0 }
#define WEIR_ATTR_PAIR(key, first, second)                                                         \
    { key, WEIR_ATTR_KIND_PAIR, first, 0.0, 0, second }

struct weir_attrs {
    uint32_t count;
    const struct weir_attr *list;
};
#ifndef __cplusplus
#define WEIR_ATTRS(...)                                                                            \
    ((struct weir_attrs){sizeof((struct weir_attr[]){__VA_ARGS__}) / sizeof(struct weir_attr),     \
                         (struct weir_attr[]){__VA_ARGS__}})
#define WEIR_NO_ATTRS ((struct weir_attrs){0, 0})
#endif

/** A list of layers with the input that it takes, the target and the loss. Built by one thread. */
struct weir_model;

/** An empty model. `input` and `target` are one row (target may be NULL: no loss, inference only);
 * `loss` is "cross_entropy", "bce_with_logits", "mse" or NULL; anything else, and one without a
 * target, is WEIR_ERR_LOSS. The caller's: weir_model_destroy. */
int weir_model_new(const struct weir_allocator *allocator, const struct weir_tensor *input,
                   const struct weir_tensor *target, const char *loss, struct weir_model **model);
/** Accepts NULL. No net of the model may live. */
void weir_model_destroy(struct weir_model *model);
/** Targets with this value weigh nothing in cross_entropy (default -100). Other losses have none:
 * there it changes nothing. */
void weir_model_ignore_index(struct weir_model *model, int64_t ignore_index);
/** Adds a layer. `name` (may be NULL) replaces its index in parameter names and must be new: the
 * same layer added twice is refused (WEIR_ERR_EXISTS). Unknown types, unknown, missing or bad
 * attributes: WEIR_ERR_ARGUMENT, each a line in `faults`. */
int weir_model_add(struct weir_model *model, const char *type, const char *name,
                   struct weir_attrs attributes, struct weir_faults *faults);
/** Parameters whose names match the pattern (as a shell matches file names, `*` and `?`, over the
 * whole name: "h.0.*") do not learn: no gradient, no optimizer state, no backward where nothing
 * before them learns. A pattern that no parameter matches is refused when a net is made. A single
 * layer is frozen by its attribute "frozen". WEIR_ERR_ARGUMENT for an empty pattern. */
int weir_model_freeze(struct weir_model *model, const char *pattern);
/** The i-th pattern so far, NULL after the last; borrowed from the model. */
const char *weir_model_freeze_pattern(const struct weir_model *model, uint32_t index);
/** Layers can be counted, listed and indexed. */
uint32_t weir_model_layer_count(const struct weir_model *model);
/** The model's border: the input of one row, the target (zeroed without a loss) and the loss's name
 * (NULL for none; borrowed). */
void weir_model_border(const struct weir_model *model, struct weir_tensor *input,
                       struct weir_tensor *target, const char **loss);
/** The label that weighs nothing in cross_entropy. */
int64_t weir_model_ignored(const struct weir_model *model);
/** Type, name ("" if none) and attributes of layer `index`; pointers borrowed from the model. */
int weir_model_layer(const struct weir_model *model, uint32_t index, const char **type,
                     const char **name, struct weir_attrs *attributes);
/** What a layer is, as numbers that are the same on every machine. */
struct weir_layer_hash {
    uint64_t form;    /**< type, name, and attributes that are not real numbers */
    uint64_t numbers; /**< attributes that are: dropout's p, a normalisation's eps */
};
/** Of layer `index`, attributes that were not given included, "frozen" and freezes not; of border
 * and loss for `index` = weir_model_layer_count. Lists whose hashes are all equal are one model.
 * WEIR_ERR_NOT_FOUND. */
int weir_model_hash(const struct weir_model *model, uint32_t index, struct weir_layer_hash *hash);
/** The i-th layer type that the library has, NULL after the last: what it takes, what it makes of
 * its input, what PyTorch calls it. */
const struct weir_layer_type *weir_layer_type_at(uint32_t index);

/** The GPT of the built-in list: gpt_embedding, layers x gpt_block, gpt_head; with residual_block
 * their kin gpt_residual_embedding, gpt_residual_block and gpt_residual_head. */
struct weir_gpt_options {
    uint32_t layers, width, heads, context, vocab;
    bool tied;               /**< the head's weight is the token embedding */
    double dropout;          /**< on the embedding sum and each residual branch */
    uint32_t residual_block; /**< layers of a block, of at most 63 blocks, whose sums later layers
                                  mix (block attention residuals, arXiv 2603.15031); 0: a plain
                                  residual stream */
};
#define WEIR_GPT_OPTIONS_INIT                                                                      \
    { .layers = 4, .width = 256, .heads = 8, .context = 128, .vocab = 256 }
/** GPT-2's list of layers (pre-LayerNorm, learned positions, GELU tanh) with its loss. The
 * model is the caller's. WEIR_ERR_ARGUMENT: heads that do not divide the width, sizes of 0, too
 * many blocks. */
int weir_model_gpt(const struct weir_allocator *allocator, const struct weir_gpt_options *options,
                   struct weir_faults *faults, struct weir_model **model);

/** A model from its JSON form, as `weir describe --json` writes it (docs/formats.md has its rules,
 * `weir layers` its types). Every fault, unreadable files included, is a line in `faults`;
 * WEIR_ERR_IO, WEIR_ERR_FORMAT (no JSON), WEIR_ERR_ARGUMENT (no model). The caller's model. */
int weir_model_read(const struct weir_allocator *allocator, const char *path,
                    struct weir_faults *faults, struct weir_model **model);

/** What shape inference says of one layer. */
struct weir_layer_facts {
    struct weir_tensor output; /**< one row */
    uint64_t parameters;       /**< numbers, tied ones counted at their first use */
    uint64_t statistics;       /**< batch norm's running numbers, which are no parameters */
    uint64_t trainable;        /**< those of them that are not frozen */
    uint64_t flops;            /**< of one row's forward pass: 2 per multiply-add */
    uint64_t activation_bytes; /**< saved for backward, one row */
};
/** Infers the whole list at `dtype`; facts[weir_model_layer_count]. Every fault is listed, as far
 * as shapes are known (see above). */
int weir_model_infer(const struct weir_model *model, enum weir_dtype dtype,
                     struct weir_layer_facts *facts, struct weir_faults *faults);

/* ---- a network on a pipeline ----------------------------------------------------------------- */

enum weir_optimizer_kind { WEIR_OPTIMIZER_NONE, WEIR_OPTIMIZER_ADAMW, WEIR_OPTIMIZER_SGD };

/** PyTorch's torch.optim.AdamW and SGD, their formulas and names. Weight decay applies to
 * parameters of rank >= 2 only where `decay_matrices_only`. */
struct weir_optimizer {
    enum weir_optimizer_kind kind;
    double lr, weight_decay;
    double beta1, beta2, eps; /**< AdamW */
    double momentum;          /**< SGD */
    bool nesterov;
    bool decay_matrices_only;
};
#define WEIR_ADAMW_INIT                                                                            \
    {                                                                                              \
        .kind = WEIR_OPTIMIZER_ADAMW, .lr = 1e-3, .weight_decay = 0.01, .beta1 = 0.9,              \
        .beta2 = 0.999, .eps = 1e-8                                                                \
    }
#define WEIR_SGD_INIT                                                                              \
    { .kind = WEIR_OPTIMIZER_SGD, .lr = 1e-3 }

enum weir_lr_schedule { WEIR_LR_CONSTANT, WEIR_LR_COSINE };
/** The rate of update `update` (0-based) of `updates` in all: linear warm-up over `warmup` updates
 * from lr / warmup to lr, then constant, or a half cosine down to `floor` * lr at the last. */
double weir_lr(enum weir_lr_schedule schedule, double lr, double floor, uint64_t update,
               uint64_t warmup, uint64_t updates);

struct weir_net_options {
    size_t size;
    /** Stages, inputs and layers' callbacks are filled in by the net; all else is the caller's. */
    struct weir_pipe_options pipe;
    uint32_t stages;         /**< parts of the layer list; cut evenly by estimated cost */
    const uint32_t *balance; /**< layers per stage, `stages` of them; NULL: automatic */
    /** F32; F64 on the CPU's reference kernels; BF16: what is stored of activations and of their
     * gradients and the output, and the operands of products, while parameters, their gradients,
     * the optimizer, sums, and a floating-point input and target are F32. Not by the reference
     * kernels, and without ops of one's own. */
    enum weir_dtype dtype;
    uint64_t seed;  /**< key of dropout's random numbers */
    bool reference; /**< plain-C kernels even where faster ones exist */
    /** Of the kernels on CPUs: "v2", "v3", "v4", "v4-bf16" (x86-64; the last with AVX512-BF16),
     * "neon" (aarch64). NULL: what the environment's WEIR_LEVEL says, else the best that runs here.
     * In F32 all but v2 give the same bits on every machine, v2 others that are the same on every
     * machine. In BF16 v3, v4 and neon give the same bits, v4-bf16 others, at twice the speed. */
    const char *level;
    bool input_grads;                /**< compute the gradient of a floating-point input */
    uint32_t sequences;              /**< > 0: a net that continues so many texts, see below */
    struct weir_optimizer optimizer; /**< kind NONE: no optimizer state */
    /** A file or folder of weights, which weir_net_load is to read first. What does not learn stays
     * there: matrices of linear layers and tables of embeddings that are frozen, or with infer_only
     * and `weights_all` all of them, are read from the mapped file by each product, on CPUs, where
     * the file has them as F32 or BF16; all else is copied. That changes no bit. Nothing may write
     * into the file while the net lives; it may be replaced or removed. NULL: all is copied. */
    const char *weights;
    bool weights_all;
    /** Numbers of a micro-batch's logits that a CPU holds at once: where a model's last product has
     * more, its cross-entropy takes slices of them, and makes the gradients while it has each. That
     * changes no bit. A step's output is made by itself then, where it is asked for. 0: 8388608,
     * and any number with fewer than 8192 classes. */
    int64_t logits_most;
};
#define WEIR_NET_OPTIONS_INIT                                                                      \
    {                                                                                              \
        .size = sizeof(struct weir_net_options), .pipe = WEIR_PIPE_OPTIONS_INIT, .stages = 1,      \
        .optimizer = WEIR_ADAMW_INIT                                                               \
    }

/*
 * Continuing texts (options.sequences > 0, pipe.infer_only): a row is one token, [1] i64, of one of
 * the sequences, at a place below the model's context; weir_net_batch says which. Each stage keeps
 * the keys and values of all places of its sequences, so a token costs what one token costs. Rows
 * of a step may be many tokens of a sequence (a prompt) as long as their places ascend and none
 * before them is missing; a place that is given again is written again. Outputs are one row each.
 */

/** A model compiled into stages on a pipe. One thread at a time. */
struct weir_net;

/** Compiles and builds. The model must outlive the net. A partition that does not fit the list is
 * refused, and the message names the automatic balance. A model without layers puts out what goes
 * in. */
int weir_net_new(const struct weir_model *model, const struct weir_net_options *options,
                 struct weir_faults *faults, struct weir_net **net);
/** Accepts NULL; waits as weir_pipe_destroy does. */
void weir_net_destroy(struct weir_net *net);
/** The plan alone, as weir_plan_new; also refused for what a net is: libraries that are missing. */
int weir_net_plan(const struct weir_model *model, const struct weir_net_options *options,
                  struct weir_faults *faults, struct weir_plan **plan);
/** The engine's pipe, for traces, reports, places and plans. The net's. */
struct weir_pipe *weir_net_pipe(struct weir_net *net);
/** Layers of each stage. */
const uint32_t *weir_net_balance(const struct weir_net *net);

/** A parameter: its data and gradient lie in the pipe's arena, on its stage's device; touch them
 * between steps only, and through weir_pipe_read and weir_pipe_write where that may be a GPU. */
struct weir_parameter {
    const char *name; /**< "h.0.ln_1.weight": never depends on the partition */
    uint32_t stage;   /**< of its first use */
    uint32_t layer;
    enum weir_dtype dtype;
    uint32_t rank;
    int64_t shape[WEIR_RANK_MAX];
    uint64_t count;
    bool frozen;    /**< does not learn: no gradient, no optimizer state */
    bool mapped;    /**< stays in options.weights: `data` is of the dtype there, and read-only */
    bool adapter;   /**< of LoRA */
    bool statistic; /**< batch norm's: frozen, but moved by steps, and counted apart */
    void *data;
    void *gradient;     /**< NULL where it is frozen, or the net only infers */
    void *optimizer[2]; /**< AdamW: exp_avg, exp_avg_sq; SGD: momentum_buffer; of the own slice */
};
/** In layer order. */
uint32_t weir_net_parameter_count(const struct weir_net *net);
/** Facts and memory of parameter `index`, or WEIR_ERR_NOT_FOUND. */
int weir_net_parameter(const struct weir_net *net, uint32_t index,
                       struct weir_parameter *parameter);

/** Weights that are tied across stages have a copy in each of them, which stay equal by themselves:
 * every stage updates its own by the sum of all uses' gradients. A parameter above is the first
 * stage's. Whoever writes data or optimizer state, tied or not, calls this afterwards, which copies
 * them to the others, and has weights packed anew that the stages keep packed; weir_net_init and
 * weir_net_load have done so. Fails as a device does. */
int weir_net_share(struct weir_net *net);

/** Fills the parameters, but those that are mapped, from the seed: PyTorch's distributions (GPT:
 * GPT-2's). The values depend on the seed and the parameter's place in the list alone. A net steps
 * and infers only after this, weir_net_load or, for values of the caller's own, weir_net_share. */
int weir_net_init(struct weir_net *net, uint64_t seed);

/** As a mini-batch's or an update's number: the one after the last that this net did. The net
 * begins with 0, and after weir_net_load where the checkpoint ends; steps with no_update count for
 * neither, updates that were skipped are none. */
#define WEIR_NET_NEXT UINT64_MAX

/** A mini-batch. All memory is the caller's, rows first and contiguous. */
struct weir_net_batch {
    size_t size;
    int64_t rows;
    const void *input;
    const void *target;
    const uint32_t *sequence; /**< [rows], of a net with `sequences`: which each row continues */
    const uint32_t *place;    /**< [rows]: where in it, from 0 */
    void *output;             /**< the model's output, rows first, or NULL */
    int64_t output_first;     /**< with `sequences`: of rows before it the output is undefined */
    void *input_grad;         /**< or NULL */
    uint64_t mini_batch;      /**< number since the beginning: what dropout draws by */
    uint64_t update;          /**< updates done before, not those skipped: AdamW's correction */
    double loss_weight;       /**< 0: this mini-batch's own: weir_net_loss_weight */
    bool accumulate_more;     /**< more mini-batches follow before the update */
    bool accumulate_next;     /**< not the first since the last update */
    bool no_update;           /**< gradients only */
    double lr;                /**< of this update; < 0: the optimizer's */
    bool look;                /**< at every result, which is slow: the first number that is not
                                   finite fails the step with WEIR_ERR_NONFINITE, and the error
                                   says in which layer, op, micro-batch and phase it came up */
    uint32_t flags;           /**< as weir_step's */
};
#define WEIR_NET_BATCH_INIT                                                                        \
    {                                                                                              \
        .size = sizeof(struct weir_net_batch), .mini_batch = WEIR_NET_NEXT,                        \
        .update = WEIR_NET_NEXT, .lr = -1                                                          \
    }

/** The weight of a target: tokens that are not ignored for cross_entropy, elements for mse. */
double weir_net_loss_weight(const struct weir_net *net, const void *target, int64_t rows);
/** One training step, as weir_pipe_step. Rows that were not prepared are prepared first (which
 * allocates, and may be refused; call weir_pipe_prepare before to see to it in time). `result` may
 * be NULL. */
int weir_net_step(struct weir_net *net, const struct weir_net_batch *batch,
                  struct weir_step_result *result);
/** Forward only: output, and the loss where there is a target. Dropout is the identity. */
int weir_net_infer(struct weir_net *net, const struct weir_net_batch *batch,
                   struct weir_step_result *result);

/** Which kernels run, e.g. "vector (v4): linear, gelu, …; reference: none", into text. Returns the
 * number of distinct ops that run on reference kernels. */
uint32_t weir_net_kernels(const struct weir_net *net, char *text, size_t capacity);
/** Told each dropout's name ("h.0.1"), shape of one row, and mask of all rows (u8, 1 = kept). */
typedef int weir_mask_fn(void *context, const char *name, const struct weir_tensor *shape,
                         int64_t rows, const uint8_t *mask);
/** Draws a mini-batch's masks again from seed and counters; nothing of a step is needed. Stops at,
 * and returns, what a visit returned if that is not 0. */
int weir_net_masks(const struct weir_net *net, uint64_t mini_batch, int64_t rows,
                   weir_mask_fn *visit, void *context);

/* ---- files ----------------------------------------------------------------------------------- */

/** A line of a checkpoint's metadata, for the caller's own use. */
struct weir_note {
    const char *key; /**< not "step", "mini_batch", "seed", "skipped", "heads" or "residual_block";
                        unique */
    const char *value;
};

/** What a training checkpoint holds besides parameters. */
struct weir_progress {
    uint64_t step;       /**< updates done */
    uint64_t mini_batch; /**< mini-batches consumed: the data's position */
    uint64_t seed;
    const struct weir_note *notes; /**< what was trained with; for saving, borrowed */
    uint32_t note_count;
    uint64_t skipped; /**< of `step`: updates whose gradients were not finite, which were no steps
                           of the optimizer */
};
/** Writes safetensors: parameters under their names, and for a GPT the metadata "heads" (of its
 * attention: no shape tells how many) and, where residuals are mixed, "residual_block"; with
 * `progress` also optimizer state
 * ("optimizer.<parameter>.exp_avg" …) and metadata ("step", "mini_batch", "seed", "skipped" if it
 * is not 0, and the notes). Of several ranks each writes its own into a folder of that name, which
 * all see; so does one process where there is one. Atomic: the old stays until the new is whole. */
int weir_net_save(const struct weir_net *net, const char *path,
                  const struct weir_progress *progress, struct weir_error *error);

/** Reads parameters (of F32, F64, BF16 or F16), and with `progress` the rest, but no notes: those
 * of `progress` stay. Any number of ranks reads what any number wrote, each its own. What is mapped
 * stays, and must be the same in the file. Every missing, superfluous or misshapen tensor is a line
 * in `faults`; on failure the net is unchanged. */
int weir_net_load(struct weir_net *net, const char *path, struct weir_progress *progress,
                  struct weir_faults *faults);
/** Reads those parameters that the file has; the others stay. Which are missing, and which tensors
 * of the file are left over, is told in `notes`, a line each. A misshapen one is still a fault. */
int weir_net_load_some(struct weir_net *net, const char *path, struct weir_faults *notes,
                       struct weir_faults *faults);

/* ---- layers and ops of one's own ------------------------------------------------------------- */

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
 * shape known, such as channels that groups do not divide: then the layers behind are judged too).
 * So a build function just returns what it has. A NULL operand while all is well means "absent",
 * where the op allows it. All calls belong into a build function, on the thread that builds the
 * net; values and the builder live no longer.
 *
 * Shapes are of one row, in PyTorch's order (channels first). Inside, images lie channels last;
 * ops convert where they must, and what an op of the user's own sees is always PyTorch's order.
 */

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
    /** INT: a size that follows from the input and may be repeated, as PyTorch's lists do: 1 is a
     * row's first dimension, -1 its last. Another one is refused. 0: no such size. */
    int32_t of_input;
    bool fixed; /**< PyTorch's attribute of which one case is offered, the default */
    bool later; /**< it came after files had hashes (weir_model_hash): FLAG, PAIR or REAL, and where
                   it has its default no hash says so, that older files go on being known */
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
    /** For `weir layers`; NULL: nothing to say. PyTorch's name ("nn.Linear"), a row's shape before
     * and after ("..., in_features"), and a line for what these do not say. */
    const char *torch, *input, *output, *about;
    /** Instead of `skips`, where attributes say how many there are: fills in verb, name and
     * namespace of the layer's i-th use, or returns false behind the last, of 64 at most. The name
     * may be written to `text`. NULL: as `skips` says. */
    bool (*skip_at)(const struct weir_layer *layer, uint32_t index, struct weir_skip_use *use,
                    char text[32]);
    /** Emits the layer's ops for input x; called once per net that is built, and for shapes. */
    struct weir_value *(*build)(struct weir_builder *builder, const struct weir_layer *layer,
                                struct weir_value *x);
};

/** Makes a type known to one model; it must outlive the model. WEIR_ERR_EXISTS for a name that is
 * taken, WEIR_ERR_ARGUMENT for a type without name or build, or with a skip whose name or namespace
 * is no TEXT attribute that is required or has a default. */
int weir_model_add_type(struct weir_model *model, const struct weir_layer_type *type);

/** An attribute of the layer, an INT, or its default. A key that the type does not list as of that
 * kind gives 0 (an empty text), here and below, and the net is refused with its name. */
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
/** Tied weights: the parameter `local` ("wte.weight") of the last earlier layer that has one, or
 * that with this whole name. It is one parameter, whose gradient is the sum over its uses in layer
 * order, also where a pipeline cuts between them: each stage then has a copy, and the copies stay
 * equal. */
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
/** Self-attention of qkv [T, 3 C]: of each token to all, or, causal, to those up to itself. */
struct weir_value *weir_attention(struct weir_builder *builder, struct weir_value *qkv,
                                  int64_t heads, bool causal);
/** Over the last dimension. */
struct weir_value *weir_layer_norm(struct weir_builder *builder, struct weir_value *x,
                                   struct weir_value *weight, struct weir_value *bias, double eps);
/** x over the root of its squares' mean, over the last dimension. weight may be NULL; eps < 0: the
 * epsilon of the numbers, PyTorch's default (in BF16 of F32). */
struct weir_value *weir_rms_norm(struct weir_builder *builder, struct weir_value *x,
                                 struct weir_value *weight, double eps);
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
/** a * b, number by number, of equal shapes. */
struct weir_value *weir_product(struct weir_builder *builder, struct weir_value *a,
                                struct weir_value *b);
/** Another shape of as many elements per row, in PyTorch's order. */
struct weir_value *weir_reshape(struct weir_builder *builder, struct weir_value *x, uint32_t rank,
                                const int64_t *shape);

/* ---- ops on images [channels, height, width] ---- */

/** Height and width of each. */
struct weir_conv_options {
    int64_t stride[2], padding[2];
    int64_t groups;
    int64_t output_padding[2]; /**< of conv_transpose2d, below the stride */
    int64_t dilation[2];       /**< pixels from one tap to the next; 0 stands for 1 */
};
/** weight [out, in / groups, kernel height, kernel width], bias [out] or NULL. */
struct weir_value *weir_conv2d(struct weir_builder *builder, struct weir_value *x,
                               struct weir_value *weight, struct weir_value *bias,
                               const struct weir_conv_options *options);
/** conv2d's gradient of its input, as a layer: PyTorch's transposed convolution. weight [in, out /
 * groups, kernel height, kernel width], bias [out] or NULL. */
struct weir_value *weir_conv_transpose2d(struct weir_builder *builder, struct weir_value *x,
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
