/* SPDX-License-Identifier: MIT */
/* Random shapes for each op. */
#include "harness.h"
#include "kernels/kernels.h"

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

static int64_t outputs_of(int64_t in, int64_t reach, int64_t stride, int64_t padding) {
    return (in + 2 * padding - reach) / stride + 1;
}

/** A row of few numbers may be nearly flat. What BF16 then rounds before the norm is as large as
 * the deviation, and no multiple of it bounds the error: eps must. */
static double eps_for(int64_t row) {
    return row == 2 || row == 3 ? 0.25 : 1e-5;
}

/** A window over a plane of up to 13 x 13, but where it is dilated. A pool's holds a pixel wherever
 * it stands. */
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
    if (!pool && test_random_below(3) == 0)
        window.gap = (struct weir__plane){kernel.height > 1 ? between(0, 3) : 0,
                                          kernel.width > 1 ? between(0, 3) : 0};
    struct weir__plane reach = {kernel.height + (kernel.height - 1) * window.gap.height,
                                kernel.width + (kernel.width - 1) * window.gap.width};
    int64_t least_height = reach.height - 2 * window.padding.height;
    int64_t least_width = reach.width - 2 * window.padding.width;
    window.in.height = (least_height > 1 ? least_height : 1) + between(0, 9);
    window.in.width = (least_width > 1 ? least_width : 1) + between(0, 9);
    window.out.height =
        outputs_of(window.in.height, reach.height, window.stride.height, window.padding.height);
    window.out.width =
        outputs_of(window.in.width, reach.width, window.stride.width, window.padding.width);
    return window;
}

/** What our kernels filter minimally. */
static void choose_filtered(struct weir__op_shape *shape) {
    struct weir__plane in = {between(4, 13), between(4, 13)}, padding = {between(0, 4), 0};
    padding.width = in.height < 6 || in.width < 6 ? 1 : between(0, 4);
    if (in.height < 6) padding.height = 1;
    shape->in = between(20, 70);
    shape->out = between(26, 70);
    if (test_random_below(4) == 0) { /* so few tiles of so many that these are not kept packed */
        in = (struct weir__plane){between(4, 6), between(4, 6)},
        padding = (struct weir__plane){1, 1};
        shape->rows = shape->rows_max = 1;
        shape->in = between(240, 280);
        shape->out = between(280, 300);
    }
    shape->window = (struct weir__window){
        .in = in,
        .kernel = {3, 3},
        .stride = {1, 1},
        .padding = padding,
        .out = {in.height + 2 * padding.height - 2, in.width + 2 * padding.width - 2},
        .groups = 1};
}

static void choose_convolution(struct weir__op_shape *shape) {
    static const int64_t channels[] = {1, 2, 3, 8, 16, 17, 24, 40};
    shape->rows = between(1, 3);
    shape->rows_max = shape->rows + between(0, 3);
    if (test_random_below(4) == 0) {
        choose_filtered(shape);
        return;
    }
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
    shape->eps = test_random_below(2) == 0 ? eps_for(shape->tokens) : 0.25;
    shape->slope = slopes[test_random_below(3)];
    if (test_random_below(3) == 0) shape->p = 0;
}

/** Two numbers per channel at least: one has no variance. */
static void choose_batch(struct weir__op_shape *shape) {
    shape->rows = between(1, 3);
    shape->tokens = any_size() + 1;
    shape->plain = test_random_below(2) == 0;
    shape->momentum = test_random_below(3) == 0 ? -1 : 0.3;
    shape->eps = test_random_below(2) == 0 ? eps_for(shape->rows * shape->tokens) : 0.25;
    if (shape->op != WEIR__OP_batch_norm_act) return;
    shape->adds = test_random_below(2) == 0;
    shape->activates = !shape->adds || test_random_below(2) == 0;
}

static void choose_attention(struct weir__op_shape *shape) {
    static const int64_t head_sizes[] = {1, 5, 8, 16, 20, 32, 33, 48, 64, 80};
    shape->rows = between(1, 2);
    shape->tokens = any_size();
    shape->heads = between(1, 3);
    shape->width = shape->heads * head_sizes[test_random_below(WEIR__COUNT_OF(head_sizes))];
    shape->sees_all = shape->op != WEIR__OP_attention_cached && test_random_below(2) == 0;
    if (shape->op != WEIR__OP_attention_cached) return;
    shape->rows = small_size();
    shape->tokens = 1;
    shape->table = shape->rows + small_size();
}

/** Keys and values of several heads, or positions, or both. */
static void choose_grouped(struct weir__op_shape *shape) {
    static const float frequencies[] = {1,     0.5f,  0.3f,  0.1f,  0.03f, 0.01f, 1e-3f, 2e-4f,
                                        3.1f,  1e-5f, 1,     0.5f,  0.3f,  0.1f,  0.03f, 0.01f,
                                        1e-3f, 2e-4f, 3.1f,  1e-5f, 1,     0.5f,  0.3f,  0.1f,
                                        0.03f, 0.01f, 1e-3f, 2e-4f, 3.1f,  1e-5f, 1,     0.5f,
                                        0.3f,  0.1f,  0.03f, 0.01f, 1e-3f, 2e-4f, 3.1f,  1e-5f};
    static const int64_t head_sizes[] = {2, 4, 6, 8, 16, 20, 32, 34, 64, 80};
    int64_t size = head_sizes[test_random_below(WEIR__COUNT_OF(head_sizes))];
    bool cached =
        shape->op == WEIR__OP_grouped_attention_cached || shape->op == WEIR__OP_rope_cached;
    shape->kv_heads = between(1, 3);
    shape->heads = shape->kv_heads * between(1, 4);
    shape->width = shape->heads * size;
    shape->reach = test_random_below(2) == 0 ? 0 : any_size();
    if (test_random_below(8) == 0) shape->reach = INT32_MAX;
    shape->frequencies = frequencies;
    shape->rows = cached ? small_size() : between(1, 2);
    shape->tokens = cached ? 1 : any_size();
    shape->table = cached ? shape->rows + small_size() : 0;
    shape->packed = !cached && test_random_below(3) == 0;
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
    case WEIR__OP_batch_norm:
    case WEIR__OP_batch_norm_sums:
    case WEIR__OP_batch_norm_act:
    case WEIR__OP_batch_norm_act_sums:
    case WEIR__OP_batch_norm_grad_input:
    case WEIR__OP_batch_norm_grad_weight:
    case WEIR__OP_batch_norm_statistics: choose_batch(shape); break;
    case WEIR__OP_instance_norm:
    case WEIR__OP_instance_norm_grad_input:
    case WEIR__OP_instance_norm_grad_weight:
    case WEIR__OP_instance_norm_act:
    case WEIR__OP_instance_norm_act_grad: choose_instance(shape); break;
    default: break;
    }
}

/** Up to several slices of tokens. */
static void choose_head(struct weir__op_shape *shape) {
    shape->tokens = any_size();
    if (test_random_below(4) == 0) shape->out += any_size();
    if (test_random_below(4) == 0) shape->tokens += 1024 / shape->rows;
    shape->width = shape->out;
    shape->frozen = shape->op == WEIR__OP_linear_cross_entropy_grad && test_random_below(3) == 0;
}

static void choose_sizes(struct weir__op_shape *shape) {
    switch (shape->op) {
    case WEIR__OP_linear:
    case WEIR__OP_linear_grad_input:
    case WEIR__OP_linear_add:
    case WEIR__OP_linear_grad_input_add:
    case WEIR__OP_bias_grad:
    case WEIR__OP_layer_norm:
    case WEIR__OP_layer_norm_grad_input:
    case WEIR__OP_layer_norm_grad_weight:
    case WEIR__OP_add_layer_norm:
    case WEIR__OP_rms_norm:
    case WEIR__OP_rms_norm_grad_input:
    case WEIR__OP_rms_norm_grad_weight:
    case WEIR__OP_add_layer_norm_grad_input:
    case WEIR__OP_softmax:
    case WEIR__OP_softmax_grad:
    case WEIR__OP_dropout2d:
    case WEIR__OP_cross_entropy:
    case WEIR__OP_cross_entropy_grad: shape->tokens = small_size(); break;
    case WEIR__OP_residual_mix:
    case WEIR__OP_residual_mix_grad:
    case WEIR__OP_residual_mix_grad_weight:
        shape->tokens = small_size();
        shape->sources = between(1, KERNEL_SOURCES);
        break;
    case WEIR__OP_linear_grad_weight: shape->tokens = any_size(); break;
    case WEIR__OP_linear_cross_entropy:
    case WEIR__OP_linear_cross_entropy_grad: choose_head(shape); break;
    case WEIR__OP_embedding:
    case WEIR__OP_embedding_grad:
        shape->tokens = small_size();
        shape->width = shape->out;
        shape->packed = test_random_below(3) == 0;
        break;
    case WEIR__OP_position_add:
    case WEIR__OP_position_grad:
        shape->tokens = small_size();
        shape->table = shape->tokens + between(0, 2);
        break;
    case WEIR__OP_attention:
    case WEIR__OP_attention_grad:
    case WEIR__OP_attention_cached: choose_attention(shape); break;
    case WEIR__OP_grouped_attention:
    case WEIR__OP_grouped_attention_grad:
    case WEIR__OP_grouped_attention_cached:
    case WEIR__OP_rope:
    case WEIR__OP_rope_grad:
    case WEIR__OP_rope_cached: choose_grouped(shape); break;
    case WEIR__OP_position_cached: shape->table = shape->rows + small_size(); break;
    case WEIR__OP_dropout:
    case WEIR__OP_dropout_add: choose_dropout(shape); break;
    case WEIR__OP_bias_add:
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

struct weir__op_shape kernel_any_shape(enum weir__op_code op) {
    struct weir__op_shape shape = {.op = op,
                                   .rows = small_size(),
                                   .tokens = 1,
                                   .threads = 1,
                                   .width = any_size(),
                                   .in = any_size(),
                                   .out = any_size(),
                                   .ignore_index = -100,
                                   .p = 0.3,
                                   .slope = 0.01,
                                   .random_op = 1u << 8 | 3,
                                   .weight_in_out = test_random_below(2) == 0,
                                   .has_bias = test_random_below(2) == 0,
                                   .gelu_tanh = test_random_below(2) == 0};
    shape.eps = eps_for(shape.width);
    choose_sizes(&shape);
    shape.rows_max = shape.rows + between(0, 2);
    return shape;
}
