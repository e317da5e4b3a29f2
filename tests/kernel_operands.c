/* SPDX-License-Identifier: MIT */
/* What net/kernel.h says of each op's operands, and random shapes for it. */
#include "harness.h"
#include "kernels.h"

/* ---- operands ---- */

/* Sizes in numbers: m = R*T, in_image = a micro-batch of `in` channels on the input's plane … */
struct sizes {
    int64_t rows, m, in, out, weight, width, elements, table, qkv, lse, c;
    int64_t in_image, out_image, kernel, in_pool, out_pool, joined, turned;
};

static int64_t pixels(struct weir__plane plane) {
    return plane.height * plane.width;
}

static struct sizes sizes_of(const struct weir__op_shape *shape) {
    int64_t m = shape->rows * shape->tokens, groups = shape->window.groups;
    int64_t in_plane = shape->rows * pixels(shape->window.in);
    int64_t out_plane = shape->rows * pixels(shape->window.out);
    int64_t group_in = groups > 0 ? shape->in / groups : 0;
    return (struct sizes){
        .rows = shape->rows,
        .m = m,
        .in = m * shape->in,
        .out = m * shape->out,
        .weight = shape->in * shape->out,
        .width = m * shape->width,
        .elements = shape->rows * shape->width,
        .table = shape->table * shape->width,
        .qkv = 3 * m * shape->width,
        .lse = m * shape->heads,
        .c = shape->width,
        .in_image = in_plane * shape->in,
        .out_image = out_plane * shape->out,
        .kernel = shape->out * group_in * pixels(shape->window.kernel),
        .in_pool = in_plane * shape->width,
        .out_pool = out_plane * shape->width,
        .joined = out_plane * (shape->in + shape->out),
        .turned = m * shape->in * shape->out,
    };
}

/* SHARED: the same for all rows. PACKED: so, and a product's. MOMENT: a row's statistics. INDEX:
 * one per token. */
#define REAL(size)                                                                                 \
    { OPERAND_REAL, size, false, false, false }
#define SHARED(size)                                                                               \
    { OPERAND_REAL, size, true, true, false }
#define PACKED(size)                                                                               \
    { OPERAND_REAL, size, true, true, true }
#define MOMENT(size)                                                                               \
    { OPERAND_REAL, size, false, true, false }
#define INDEX                                                                                      \
    { OPERAND_INDEX, n.m, false, false, false }
#define LOSS                                                                                       \
    { OPERAND_LOSS, 1, false, false, false }
#define CACHE                                                                                      \
    { OPERAND_CACHE, 2 * KERNEL_SEQUENCES *n.table, false, false, false }

/** Products, tables, LayerNorm, attention. Operands of other ops are OPERAND_NONE, here and below.
 */
static struct operands operands_of_text(const struct weir__op_shape *shape) {
    struct sizes n = sizes_of(shape);
    int64_t bias = shape->has_bias ? shape->out : 0;
    const struct operands rows[WEIR__OP_COUNT] = {
        [WEIR__OP_linear] = {{REAL(n.in), PACKED(n.weight), PACKED(bias)}, {REAL(n.out)}, false},
        [WEIR__OP_linear_grad_input] = {{REAL(n.out), PACKED(n.weight)}, {REAL(n.in)}, false},
        [WEIR__OP_linear_grad_weight] = {{REAL(n.in), REAL(n.out)}, {SHARED(n.weight)}, true},
        [WEIR__OP_bias_grad] = {{REAL(n.out)}, {SHARED(shape->out)}, true},
        [WEIR__OP_embedding] = {{INDEX, SHARED(n.weight)}, {REAL(n.out)}, false},
        [WEIR__OP_embedding_grad] = {{INDEX, REAL(n.out)}, {SHARED(n.weight)}, true},
        [WEIR__OP_position_add] = {{REAL(n.width), SHARED(n.table)}, {REAL(n.width)}, false},
        [WEIR__OP_position_grad] = {{REAL(n.width)}, {SHARED(n.table)}, true},
        [WEIR__OP_layer_norm] = {{REAL(n.width), SHARED(n.c), SHARED(n.c)},
                                 {REAL(n.width), MOMENT(n.m), MOMENT(n.m)},
                                 false},
        [WEIR__OP_layer_norm_grad_input] = {{REAL(n.width), REAL(n.width), MOMENT(n.m), MOMENT(n.m),
                                             SHARED(n.c)},
                                            {REAL(n.width)},
                                            false},
        [WEIR__OP_layer_norm_grad_weight] = {{REAL(n.width), REAL(n.width), MOMENT(n.m),
                                              MOMENT(n.m)},
                                             {SHARED(n.c), SHARED(n.c)},
                                             true},
        [WEIR__OP_add_layer_norm] = {{REAL(n.width), REAL(n.width), SHARED(n.c), SHARED(n.c)},
                                     {REAL(n.width), MOMENT(n.m), MOMENT(n.m), REAL(n.width)},
                                     false},
        [WEIR__OP_add_layer_norm_grad_input] = {{REAL(n.width), REAL(n.width), REAL(n.width),
                                                 MOMENT(n.m), MOMENT(n.m), SHARED(n.c)},
                                                {REAL(n.width)},
                                                false},
        [WEIR__OP_attention] = {{REAL(n.qkv)}, {REAL(n.width), MOMENT(n.lse)}, false},
        [WEIR__OP_attention_grad] = {{REAL(n.width), REAL(n.qkv), REAL(n.width), MOMENT(n.lse)},
                                     {REAL(n.qkv)},
                                     false},
        [WEIR__OP_attention_cached] = {{REAL(3 * n.elements)}, {REAL(n.elements), CACHE}, false},
        [WEIR__OP_position_cached] = {{REAL(n.elements), SHARED(n.table)},
                                      {REAL(n.elements)},
                                      false},
    };
    return rows[shape->op];
}

/** Ops that look at an image through a window. */
static struct operands operands_of_windows(const struct weir__op_shape *shape) {
    struct sizes n = sizes_of(shape);
    int64_t bias = shape->has_bias ? shape->out : 0;
    const struct operands rows[WEIR__OP_COUNT] = {
        [WEIR__OP_conv2d] = {{REAL(n.in_image), PACKED(n.kernel), SHARED(bias)},
                             {REAL(n.out_image)},
                             false},
        [WEIR__OP_conv2d_grad_input] = {{REAL(n.out_image), PACKED(n.kernel)},
                                        {REAL(n.in_image)},
                                        false},
        [WEIR__OP_conv2d_grad_weight] = {{REAL(n.in_image), REAL(n.out_image)},
                                         {SHARED(n.kernel)},
                                         true},
        [WEIR__OP_max_pool2d] = {{REAL(n.in_pool)}, {REAL(n.out_pool)}, false},
        [WEIR__OP_max_pool2d_grad] = {{REAL(n.out_pool), REAL(n.in_pool)},
                                      {REAL(n.in_pool)},
                                      false},
        [WEIR__OP_avg_pool2d] = {{REAL(n.in_pool)}, {REAL(n.out_pool)}, false},
        [WEIR__OP_avg_pool2d_grad] = {{REAL(n.out_pool)}, {REAL(n.in_pool)}, false},
        [WEIR__OP_upsample] = {{REAL(n.in_pool)}, {REAL(n.out_pool)}, false},
        [WEIR__OP_upsample_grad] = {{REAL(n.out_pool)}, {REAL(n.in_pool)}, false},
        [WEIR__OP_concat] = {{REAL(n.in_image), REAL(n.out_image)}, {REAL(n.joined)}, false},
        [WEIR__OP_concat_grad_a] = {{REAL(n.joined)}, {REAL(n.in_image)}, false},
        [WEIR__OP_concat_grad_b] = {{REAL(n.joined)}, {REAL(n.out_image)}, false},
    };
    return rows[shape->op];
}

/** Ops that treat channels or vectors. */
static struct operands operands_of_channels(const struct weir__op_shape *shape) {
    struct sizes n = sizes_of(shape);
    int64_t affine = shape->has_bias ? n.c : 0, moments = n.elements;
    const struct operands rows[WEIR__OP_COUNT] = {
        [WEIR__OP_softmax] = {{REAL(n.width)}, {REAL(n.width)}, false},
        [WEIR__OP_softmax_grad] = {{REAL(n.width), REAL(n.width)}, {REAL(n.width)}, false},
        [WEIR__OP_bias_gelu] = {{REAL(n.elements), SHARED(shape->out)}, {REAL(n.elements)}, false},
        [WEIR__OP_bias_gelu_grad] = {{REAL(n.elements), REAL(n.elements), SHARED(shape->out)},
                                     {REAL(n.elements)},
                                     false},
        [WEIR__OP_bias_dropout_add] = {{REAL(n.elements), SHARED(shape->out), REAL(n.elements)},
                                       {REAL(n.elements)},
                                       false},
        [WEIR__OP_transpose] = {{REAL(n.turned)}, {REAL(n.turned)}, false},
        [WEIR__OP_dropout2d] = {{REAL(n.width)}, {REAL(n.width)}, false},
        [WEIR__OP_instance_norm] = {{REAL(n.width), SHARED(affine), SHARED(affine)},
                                    {REAL(n.width), MOMENT(moments), MOMENT(moments)},
                                    false},
        [WEIR__OP_instance_norm_grad_input] = {{REAL(n.width), REAL(n.width), MOMENT(moments),
                                                MOMENT(moments), SHARED(affine)},
                                               {REAL(n.width)},
                                               false},
        [WEIR__OP_instance_norm_grad_weight] = {{REAL(n.width), REAL(n.width), MOMENT(moments),
                                                 MOMENT(moments)},
                                                {SHARED(n.c), SHARED(n.c)},
                                                true},
        [WEIR__OP_instance_norm_act] = {{REAL(n.width)},
                                        {REAL(n.width), MOMENT(moments), MOMENT(moments)},
                                        false},
        [WEIR__OP_instance_norm_act_grad] = {{REAL(n.width), REAL(n.width), REAL(n.width),
                                              MOMENT(moments), MOMENT(moments)},
                                             {REAL(n.width)},
                                             false},
        [WEIR__OP_cross_entropy] = {{REAL(n.width), INDEX}, {LOSS, MOMENT(n.m)}, false},
        [WEIR__OP_cross_entropy_grad] = {{REAL(n.width), INDEX, MOMENT(n.m)},
                                         {REAL(n.width)},
                                         false},
    };
    return rows[shape->op];
}

static bool has_one_operand(enum weir__op op) {
    switch (op) {
    case WEIR__OP_gelu:
    case WEIR__OP_relu:
    case WEIR__OP_leaky_relu:
    case WEIR__OP_silu:
    case WEIR__OP_sigmoid:
    case WEIR__OP_tanh:
    case WEIR__OP_dropout:
    case WEIR__OP_narrow:
    case WEIR__OP_widen:
    case WEIR__OP_copy: return true;
    default: return false;
    }
}

void kernel_operands(const struct weir__op_shape *shape, struct operands *operands) {
    struct sizes n = sizes_of(shape);
    *operands = operands_of_text(shape);
    if (operands->out[0].kind == OPERAND_NONE) *operands = operands_of_windows(shape);
    if (operands->out[0].kind == OPERAND_NONE) *operands = operands_of_channels(shape);
    if (operands->out[0].kind != OPERAND_NONE) return;
    bool loss = shape->op == WEIR__OP_mse || shape->op == WEIR__OP_bce_with_logits;
    *operands =
        (struct operands){.in = {REAL(n.elements), REAL(n.elements)}, .out = {REAL(n.elements)}};
    if (has_one_operand(shape->op)) operands->in[1] = (struct operand)REAL(0);
    if (loss) operands->out[0] = (struct operand)LOSS;
    operands->in[0].single = shape->op == WEIR__OP_narrow;
    operands->out[0].single = shape->op == WEIR__OP_widen;
}

/* ---- random shapes ---- */

static const int64_t sizes[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 65, 100, 257};

static int64_t any_size(void) {
    return sizes[test_random_below(WEIR__COUNT_OF(sizes))];
}

static int64_t small_size(void) {
    return sizes[test_random_below(8)];
}

/** Uniform in low … high. */
static int64_t between(int64_t low, int64_t high) {
    return low + (int64_t)test_random_below((uint64_t)(high - low + 1));
}

static int64_t outputs_of(int64_t in, int64_t kernel, int64_t stride, int64_t padding) {
    return (in + 2 * padding - kernel) / stride + 1;
}

/** A window over a plane of up to 13 x 13. A pool's holds a pixel wherever it stands. */
static struct weir__window any_window(bool pool) {
    static const struct weir__plane kernels[] = {{1, 1}, {2, 2}, {3, 3}, {1, 7}, {7, 1},
                                                 {7, 7}, {3, 2}, {5, 5}, {3, 3}};
    struct weir__plane kernel = kernels[test_random_below(WEIR__COUNT_OF(kernels))];
    struct weir__plane most = {pool ? kernel.height / 2 : kernel.height,
                               pool ? kernel.width / 2 : kernel.width};
    struct weir__window window = {.kernel = kernel,
                                  .stride = {between(1, 3), between(1, 3)},
                                  .padding = {between(0, most.height), between(0, most.width)},
                                  .groups = 1,
                                  .count_padding = test_random_below(2) == 0};
    int64_t least_height = kernel.height - 2 * window.padding.height;
    int64_t least_width = kernel.width - 2 * window.padding.width;
    window.in.height = between(least_height > 1 ? least_height : 1, 13);
    window.in.width = between(least_width > 1 ? least_width : 1, 13);
    window.out.height =
        outputs_of(window.in.height, kernel.height, window.stride.height, window.padding.height);
    window.out.width =
        outputs_of(window.in.width, kernel.width, window.stride.width, window.padding.width);
    return window;
}

static void choose_convolution(struct weir__op_shape *shape) {
    static const int64_t channels[] = {1, 2, 3, 8, 16, 17, 24, 40};
    shape->rows = between(1, 3);
    shape->rows_max = shape->rows + between(0, 3);
    shape->window = any_window(false);
    shape->in = channels[test_random_below(WEIR__COUNT_OF(channels))];
    shape->out = channels[test_random_below(WEIR__COUNT_OF(channels))];
    if (test_random_below(3) > 0) return;
    bool depthwise = test_random_below(2) == 0;
    shape->window.groups = depthwise ? shape->in : 1 + between(1, 3);
    shape->in = shape->window.groups * (depthwise ? 1 : between(1, 17));
    shape->out = shape->window.groups * between(1, depthwise ? 2 : 17);
}

static void choose_pool(struct weir__op_shape *shape) {
    shape->rows = between(1, 3);
    shape->window = any_window(true);
    bool average = shape->op == WEIR__OP_avg_pool2d || shape->op == WEIR__OP_avg_pool2d_grad;
    if (!average || test_random_below(2) == 0) return;
    shape->window = (struct weir__window){.adaptive = true,
                                          .in = {between(1, 13), between(1, 13)},
                                          .out = {between(1, 15), between(1, 15)}};
}

static void choose_upsample(struct weir__op_shape *shape) {
    struct weir__plane in = {between(1, 9), between(1, 9)}, factor = {between(1, 3), between(1, 3)};
    shape->rows = between(1, 3);
    shape->window = (struct weir__window){
        .in = in, .stride = factor, .out = {in.height * factor.height, in.width * factor.width}};
}

static void choose_concat(struct weir__op_shape *shape) {
    struct weir__plane in = {between(1, 9), between(1, 9)};
    shape->rows = between(1, 3);
    shape->window = (struct weir__window){
        .in = in, .out = {in.height + between(0, 2), in.width + between(0, 2)}};
}

static void choose_instance(struct weir__op_shape *shape) {
    static const double slopes[] = {0.01, 0.3, 0};
    shape->rows = between(1, 3);
    shape->tokens = any_size();
    /* A channel that is dropped, or a single pixel, has the deviation sqrt(eps), and the tolerance
     * is divided by the least deviation. */
    shape->eps = test_random_below(2) == 0 ? 1e-5 : 0.25;
    shape->slope = slopes[test_random_below(3)];
    if (test_random_below(3) == 0) shape->p = 0;
}

static void choose_attention(struct weir__op_shape *shape) {
    static const int64_t head_sizes[] = {1, 5, 8, 16, 20, 32, 33, 48, 64, 80};
    shape->rows = between(1, 2);
    shape->tokens = any_size();
    shape->heads = between(1, 3);
    shape->width = shape->heads * head_sizes[test_random_below(WEIR__COUNT_OF(head_sizes))];
    if (shape->op != WEIR__OP_attention_cached) return;
    shape->rows = small_size();
    shape->tokens = 1;
    shape->table = shape->rows + small_size();
}

static void choose_dropout(struct weir__op_shape *shape) {
    if (test_random_below(2) == 0) return;
    shape->channels = between(1, 40);
    shape->width = shape->channels * small_size();
}

static void choose_image(struct weir__op_shape *shape) {
    switch (shape->op) {
    case WEIR__OP_conv2d:
    case WEIR__OP_conv2d_grad_input:
    case WEIR__OP_conv2d_grad_weight: choose_convolution(shape); break;
    case WEIR__OP_max_pool2d:
    case WEIR__OP_max_pool2d_grad:
    case WEIR__OP_avg_pool2d:
    case WEIR__OP_avg_pool2d_grad: choose_pool(shape); break;
    case WEIR__OP_upsample:
    case WEIR__OP_upsample_grad: choose_upsample(shape); break;
    case WEIR__OP_concat:
    case WEIR__OP_concat_grad_a:
    case WEIR__OP_concat_grad_b: choose_concat(shape); break;
    case WEIR__OP_instance_norm:
    case WEIR__OP_instance_norm_grad_input:
    case WEIR__OP_instance_norm_grad_weight:
    case WEIR__OP_instance_norm_act:
    case WEIR__OP_instance_norm_act_grad: choose_instance(shape); break;
    default: break;
    }
}

static void choose_sizes(struct weir__op_shape *shape) {
    switch (shape->op) {
    case WEIR__OP_linear:
    case WEIR__OP_linear_grad_input:
    case WEIR__OP_bias_grad:
    case WEIR__OP_layer_norm:
    case WEIR__OP_layer_norm_grad_input:
    case WEIR__OP_layer_norm_grad_weight:
    case WEIR__OP_add_layer_norm:
    case WEIR__OP_add_layer_norm_grad_input:
    case WEIR__OP_softmax:
    case WEIR__OP_softmax_grad:
    case WEIR__OP_dropout2d:
    case WEIR__OP_cross_entropy:
    case WEIR__OP_cross_entropy_grad: shape->tokens = small_size(); break;
    case WEIR__OP_linear_grad_weight: shape->tokens = any_size(); break;
    case WEIR__OP_embedding:
    case WEIR__OP_embedding_grad:
        shape->tokens = small_size();
        shape->width = shape->out;
        break;
    case WEIR__OP_position_add:
    case WEIR__OP_position_grad:
        shape->tokens = small_size();
        shape->table = shape->tokens + between(0, 2);
        break;
    case WEIR__OP_attention:
    case WEIR__OP_attention_grad:
    case WEIR__OP_attention_cached: choose_attention(shape); break;
    case WEIR__OP_position_cached: shape->table = shape->rows + small_size(); break;
    case WEIR__OP_dropout:
    case WEIR__OP_dropout_add: choose_dropout(shape); break;
    case WEIR__OP_bias_gelu:
    case WEIR__OP_bias_gelu_grad:
    case WEIR__OP_bias_dropout_add:
        shape->tokens = small_size();
        shape->width = shape->tokens * shape->out;
        break;
    case WEIR__OP_transpose:
        shape->rows = between(1, 3);
        shape->tokens = between(1, 3);
        break;
    default: choose_image(shape); break;
    }
}

struct weir__op_shape kernel_any_shape(enum weir__op op) {
    struct weir__op_shape shape = {.op = op,
                                   .rows = small_size(),
                                   .tokens = 1,
                                   .threads = 1,
                                   .width = any_size(),
                                   .in = any_size(),
                                   .out = any_size(),
                                   .ignore_index = -100,
                                   .eps = 1e-5,
                                   .p = 0.3,
                                   .slope = 0.01,
                                   .random_op = 1u << 8 | 3,
                                   .weight_in_out = test_random_below(2) == 0,
                                   .has_bias = test_random_below(2) == 0,
                                   .gelu_tanh = test_random_below(2) == 0};
    choose_sizes(&shape);
    shape.rows_max = shape.rows + between(0, 2);
    return shape;
}
