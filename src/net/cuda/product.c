/* SPDX-License-Identifier: MIT */
/*
 * Linear layers and convolutions: cuBLASLt's and cuDNN's products (numerics.h), and small kernels
 * of ours around them.
 *
 * Packed for a step, once for a product and its input's gradient: weights as BF16 where activations
 * are, and a linear's bias, which the product adds; a convolution's weights channels last, as cuDNN
 * wants them. A convolution's bias is added by cuDNN where images are BF16 and it can, else by a
 * kernel of ours: a BF16 output is rounded twice then. The gradient of a convolution's weights is
 * made channels last in the workspace and added to PyTorch's order.
 */
#include "net/cuda/cuda.h"
#include "net/cuda/numerics.h"
#include "net/cuda/trial.h"

enum { THREADS = 256, BIAS_PER_BLOCK = THREADS * 8, TURNED_PER_BLOCK = 512 };
enum { ALIGNMENT = 256 };

/** What prepare makes. */
struct cuda_product {
    struct weir__cuda_library_use use;
    void *plan;
    enum weir_dtype gradient; /**< of a convolution's weights, as the library makes it */
    bool adds_bias;           /**< the library does */
};

static int settle(struct weir_stream *stream, int status,
                  const struct weir__cuda_failure *failure) {
    return weir__cuda_settle(weir__cuda_device(stream->device), status, failure);
}

static int product_new(enum weir__cuda_library library, struct weir_stream *stream,
                       struct cuda_product **to) {
    struct cuda_product *made = weir__acquire(NULL, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir__cuda_library_use(stream->device, library, &made->use);
    if (status == WEIR_OK)
        *to = made;
    else
        weir__release(NULL, made, 1, sizeof *made);
    return status;
}

static int count_bytes(int64_t a, int64_t b, size_t element_bytes, size_t *bytes) {
    bool fits = weir__multiply((size_t)a, (size_t)b, bytes) &&
                weir__multiply(*bytes, element_bytes, bytes) &&
                weir__round_up(*bytes, ALIGNMENT, bytes);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/** The libraries want more than a call's workspace promises: measured is room to round up. */
static void *workspace_of(const struct weir__op_call *call) {
    uintptr_t begin = (uintptr_t)call->workspace;
    return (void *)((begin + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

static void *behind(const void *memory, size_t bytes) {
    return (void *)((uintptr_t)memory + bytes);
}

/* ---- linear layers ---- */

static int describe_matmul(const struct weir__op_shape *shape, struct weir__cuda_matmul *matmul) {
    size_t m, m_max, tokens = (size_t)shape->tokens;
    int64_t rows_max = shape->rows_max > shape->rows ? shape->rows_max : shape->rows;
    if (!weir__multiply((size_t)shape->rows, tokens, &m) ||
        !weir__multiply((size_t)rows_max, tokens, &m_max) || m_max > INT64_MAX)
        return WEIR_ERR_OVERFLOW;
    bool flip = shape->weight_in_out;
    *matmul = (struct weir__cuda_matmul){.m = (int64_t)m,
                                         .m_max = (int64_t)m_max,
                                         .n = shape->out,
                                         .k = shape->in,
                                         .b_transposed = !flip,
                                         .has_bias = shape->has_bias,
                                         .by_rows = true,
                                         .input = shape->dtype,
                                         .output = shape->dtype};
    if (shape->op == WEIR__OP_linear) return WEIR_OK;
    matmul->has_bias = false;
    if (shape->op == WEIR__OP_linear_grad_input) {
        matmul->n = shape->in;
        matmul->k = shape->out;
        matmul->b_transposed = flip;
        return WEIR_OK;
    }
    assert(shape->op == WEIR__OP_linear_grad_weight);
    matmul->m = matmul->m_max = flip ? shape->in : shape->out;
    matmul->n = flip ? shape->out : shape->in;
    matmul->k = (int64_t)m;
    matmul->a_transposed = true;
    matmul->b_transposed = false;
    matmul->by_rows = false;
    matmul->output = WEIR_F32;
    return WEIR_OK;
}

static int measure_linear(const struct weir__op_shape *shape, size_t *workspace) {
    struct weir__cuda_matmul matmul;
    int status = describe_matmul(shape, &matmul);
    if (status != WEIR_OK) return status;
    if ((status = weir__cuda_matmul_workspace(&matmul, workspace)) != WEIR_OK) return status;
    return weir__add(*workspace, ALIGNMENT, workspace) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

static void release_linear(void *state) {
    struct cuda_product *product = state;
    if (product == NULL) return;
    if (product->plan != NULL)
        product->use.calls->matmul_destroy(product->use.library, product->plan);
    weir__release(NULL, product, 1, sizeof *product);
}

static int plan_matmul(struct cuda_product *product, const struct weir__cuda_matmul *matmul,
                       struct weir_stream *stream, struct weir__cuda_failure *failure) {
    const struct weir__cuda_library_use *use = &product->use;
    int status = use->calls->matmul_new(use->library, matmul, &product->plan, failure);
    if (status != WEIR_OK) return status;
    return weir__cuda_try_matmul(use, product->plan, matmul, stream, failure);
}

static int prepare_linear(const struct weir__op_shape *shape, struct weir_stream *stream,
                          void **state) {
    struct weir__cuda_matmul matmul;
    struct weir__cuda_failure failure = {0};
    struct cuda_product *product;
    *state = NULL;
    int status = describe_matmul(shape, &matmul);
    if (status != WEIR_OK) return status;
    status = product_new(WEIR__CUDA_PRODUCTS, stream, &product);
    if (status != WEIR_OK) return status;
    status = plan_matmul(product, &matmul, stream, &failure);
    status = settle(stream, status, &failure);
    if (status == WEIR_OK)
        *state = product;
    else
        release_linear(product);
    return status;
}

/** BF16 has copies of the weight and, behind it, of the bias; F32 needs none. */
static int measure_linear_pack(const struct weir__op_shape *shape, size_t *bytes) {
    size_t weight, bias;
    *bytes = 0;
    if (shape->dtype != WEIR_BF16) return WEIR_OK;
    int status = count_bytes(shape->in, shape->out, sizeof(uint16_t), &weight);
    if (status != WEIR_OK) return status;
    if ((status = count_bytes(shape->out, 1, sizeof(uint16_t), &bias)) != WEIR_OK) return status;
    bool has_bias = shape->op == WEIR__OP_linear && shape->has_bias;
    return weir__add(weight, has_bias ? bias : 0, bytes) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

static int pack_linear(const struct weir__op_call *call, void *packed) {
    const struct weir__op_shape *shape = call->shape;
    size_t weight;
    if (shape->dtype != WEIR_BF16) return WEIR_OK;
    uint64_t count = (uint64_t)(shape->in * shape->out);
    bool has_bias = shape->op == WEIR__OP_linear && shape->has_bias;
    int status = count_bytes(shape->in, shape->out, sizeof(uint16_t), &weight);
    if (status != WEIR_OK) return status;
    /* A layer's parameters lie one behind the other; if nothing is between them, it is one copy. */
    bool joined = has_bias && weight == count * sizeof(uint16_t) &&
                  call->in[2] == behind(call->in[1], count * sizeof(float));
    status = weir__cuda_cast(call->stream, packed, WEIR_BF16, call->in[1], WEIR_F32,
                             count + (joined ? (uint64_t)shape->out : 0), 0);
    if (status != WEIR_OK || !has_bias || joined) return status;
    return weir__cuda_cast(call->stream, behind(packed, weight), WEIR_BF16, call->in[2], WEIR_F32,
                           (uint64_t)shape->out, 0);
}

static int run_matmul(const struct weir__op_call *call, struct weir__cuda_matmul_call *matmul) {
    const struct cuda_product *product = call->state;
    struct CUstream_st *stream = weir__cuda_stream(call->stream)->native;
    struct weir__cuda_failure failure = {0};
    matmul->d = call->out[0];
    matmul->workspace = workspace_of(call);
    int status = product->use.calls->matmul_run(product->use.library, product->plan, stream, matmul,
                                                &failure);
    return settle(call->stream, status, &failure);
}

static bool is_empty(const struct weir__op_shape *shape) {
    return shape->rows == 0 || shape->tokens == 0;
}

static int linear(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_matmul_call matmul = {.a = call->in[0], .b = call->in[1]};
    if (is_empty(shape)) return WEIR_OK;
    if (shape->has_bias) matmul.bias = call->in[2];
    if (shape->dtype == WEIR_BF16) {
        size_t weight = 0;
        int status = count_bytes(shape->in, shape->out, sizeof(uint16_t), &weight);
        if (status != WEIR_OK) return status;
        assert(call->packed != NULL);
        matmul.b = call->packed;
        if (shape->has_bias) matmul.bias = behind(call->packed, weight);
    }
    return run_matmul(call, &matmul);
}

static int linear_grad_input(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    if (is_empty(shape)) return WEIR_OK;
    assert(shape->dtype != WEIR_BF16 || call->packed != NULL);
    struct weir__cuda_matmul_call matmul = {
        .a = call->in[0], .b = shape->dtype == WEIR_BF16 ? call->packed : call->in[1]};
    return run_matmul(call, &matmul);
}

static int linear_grad_weight(const struct weir__op_call *call) {
    bool flip = call->shape->weight_in_out;
    struct weir__cuda_matmul_call matmul = {
        .a = call->in[flip ? 0 : 1], .b = call->in[flip ? 1 : 0], .adds = !call->overwrite};
    return run_matmul(call, &matmul);
}

/* ---- convolutions ---- */

static struct weir__cuda_convolution describe_convolution(const struct weir__op_shape *shape) {
    int64_t rows_max = shape->rows_max > shape->rows ? shape->rows_max : shape->rows;
    enum weir__cuda_convolution_kind kind = WEIR__CUDA_CONVOLVE;
    if (shape->op == WEIR__OP_conv2d_grad_input) kind = WEIR__CUDA_CONVOLVE_GRAD_INPUT;
    if (shape->op == WEIR__OP_conv2d_grad_weight) kind = WEIR__CUDA_CONVOLVE_GRAD_WEIGHT;
    bool by_rows = kind != WEIR__CUDA_CONVOLVE_GRAD_WEIGHT;
    return (struct weir__cuda_convolution){.kind = kind,
                                           .rows = shape->rows,
                                           .rows_max = by_rows ? rows_max : shape->rows,
                                           .in = shape->in,
                                           .out = shape->out,
                                           .window = shape->window,
                                           .image = shape->dtype,
                                           .weight = shape->dtype};
}

/** Of the weights (out, in / groups, kernel). */
static bool count_weights(const struct weir__op_shape *shape, size_t *count) {
    const struct weir__window *window = &shape->window;
    return weir__multiply((size_t)shape->out, (size_t)(shape->in / window->groups), count) &&
           weir__multiply(*count, (size_t)window->kernel.height, count) &&
           weir__multiply(*count, (size_t)window->kernel.width, count) && *count <= INT64_MAX;
}

static int count_weight_bytes(const struct weir__op_shape *shape, enum weir_dtype dtype,
                              size_t *bytes) {
    size_t count;
    if (!count_weights(shape, &count)) return WEIR_ERR_OVERFLOW;
    return count_bytes((int64_t)count, 1, weir_dtype_bytes(dtype), bytes);
}

static int measure_convolution(const struct weir__op_shape *shape, size_t *workspace) {
    struct weir__cuda_convolution convolution = describe_convolution(shape);
    size_t weight = 0;
    int status = weir__cuda_convolution_workspace(&convolution, workspace);
    if (status == WEIR_OK && shape->op == WEIR__OP_conv2d_grad_weight)
        status = count_weight_bytes(shape, WEIR_F32, &weight);
    if (status != WEIR_OK) return status;
    bool fits =
        weir__add(*workspace, weight, workspace) && weir__add(*workspace, ALIGNMENT, workspace);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

static void release_convolution(void *state) {
    struct cuda_product *product = state;
    if (product == NULL) return;
    const struct weir__cuda_numerics *calls = product->use.calls;
    if (product->plan != NULL) calls->convolution_destroy(product->use.library, product->plan);
    weir__release(NULL, product, 1, sizeof *product);
}

static int new_convolution(const struct weir__cuda_convolution *convolution,
                           struct weir_stream *stream, struct cuda_product *product,
                           struct weir__cuda_failure *failure) {
    *failure = (struct weir__cuda_failure){0};
    product->gradient = convolution->weight;
    product->adds_bias = convolution->has_bias;
    const struct weir__cuda_numerics *calls = product->use.calls;
    void *library = product->use.library;
    int status = calls->convolution_new(library, convolution, weir__cuda_stream(stream)->native,
                                        &product->plan, failure);
    if (status != WEIR_OK) return status;
    status = weir__cuda_try_convolution(&product->use, product->plan, convolution, stream, failure);
    if (status == WEIR_OK) return WEIR_OK;
    calls->convolution_destroy(library, product->plan);
    product->plan = NULL;
    return status;
}

/** In BF16 first what rounds once: a gradient of weights in F32, a bias that the library adds. */
static int plan_convolution(const struct weir__op_shape *shape, struct weir_stream *stream,
                            struct cuda_product *product) {
    const struct weir__cuda_convolution plain = describe_convolution(shape);
    struct weir__cuda_convolution once = plain;
    struct weir__cuda_failure failure;
    int status = WEIR_ERR_UNSUPPORTED;
    if (shape->op == WEIR__OP_conv2d) once.has_bias = shape->has_bias;
    if (shape->op == WEIR__OP_conv2d_grad_weight) once.weight = WEIR_F32;
    if (shape->dtype == WEIR_BF16) status = new_convolution(&once, stream, product, &failure);
    if (status == WEIR_ERR_UNSUPPORTED) status = new_convolution(&plain, stream, product, &failure);
    return settle(stream, status, &failure);
}

/** A pipe's log has a line for each engine, not for each shape: nets of images have many. */
static void note_convolution(const struct weir__op_shape *shape, struct weir_stream *stream,
                             const struct cuda_product *product) {
    char way[48];
    const char *of = shape->op == WEIR__OP_conv2d              ? ""
                     : shape->op == WEIR__OP_conv2d_grad_input ? ", gradients of images"
                                                               : ", gradients of weights";
    product->use.calls->convolution_tell(product->plan, way, sizeof way);
    weir__cuda_way_note(weir__cuda_device(stream->device), "convolutions in %s%s: %s",
                        weir_dtype_name(shape->dtype), of, way);
}

static int prepare_convolution(const struct weir__op_shape *shape, struct weir_stream *stream,
                               void **state) {
    struct cuda_product *product;
    *state = NULL;
    int status = product_new(WEIR__CUDA_CONVOLUTIONS, stream, &product);
    if (status != WEIR_OK) return status;
    status = plan_convolution(shape, stream, product);
    if (status != WEIR_OK) {
        release_convolution(product);
        return status;
    }
    note_convolution(shape, stream, product);
    *state = product;
    return WEIR_OK;
}

static int measure_convolution_pack(const struct weir__op_shape *shape, size_t *bytes) {
    return count_weight_bytes(shape, shape->dtype, bytes);
}

/** A matrix (in / groups, taps) of each output channel is turned. */
static int turn_weights(const struct weir__op_call *call, enum weir__net_kernel kernel, void *to,
                        const void *from, bool adds) {
    const struct weir__op_shape *shape = call->shape;
    const struct weir__window *window = &shape->window;
    uint64_t out = (uint64_t)shape->out, in = (uint64_t)(shape->in / window->groups);
    uint64_t taps = (uint64_t)(window->kernel.height * window->kernel.width);
    struct weir__cuda_grid grid = weir__cuda_line(
        out * in * taps, TURNED_PER_BLOCK, WEIR__CUDA_WEIGHT_THREADS, WEIR__CUDA_WEIGHT_BLOCKS);
    uint32_t add = adds;
    void *arguments[] = {&to, &from, &out, &in, &taps, &add};
    if (out == 0 || in == 0 || taps == 0) return WEIR_OK;
    return weir__net_launch(call->stream, kernel, &grid, arguments);
}

static int pack_convolution(const struct weir__op_call *call, void *packed) {
    bool single = call->shape->dtype == WEIR_F32;
    enum weir__net_kernel kernel =
        single ? WEIR__NET_KERNEL_weight_pack_f32 : WEIR__NET_KERNEL_weight_pack_bf16;
    return turn_weights(call, kernel, packed, call->in[1], false);
}

static int run_convolution(const struct weir__op_call *call,
                           struct weir__cuda_convolution_call *convolution) {
    const struct cuda_product *product = call->state;
    struct weir__cuda_failure failure = {0};
    int status = product->use.calls->convolution_run(product->use.library, product->plan,
                                                     convolution, &failure);
    return settle(call->stream, status, &failure);
}

static int add_bias(const struct weir__op_call *call, const void *bias, uint64_t pixels) {
    const struct weir__op_shape *shape = call->shape;
    void *y = call->out[0];
    uint64_t channels = (uint64_t)shape->out;
    struct weir__cuda_grid grid = weir__cuda_line(pixels * channels, BIAS_PER_BLOCK, THREADS, 0);
    void *arguments[] = {&y, &bias, &pixels, &channels};
    bool single = shape->dtype == WEIR_F32;
    return weir__net_launch(call->stream,
                            single ? WEIR__NET_KERNEL_bias_add_f32 : WEIR__NET_KERNEL_bias_add_bf16,
                            &grid, arguments);
}

static int conv2d(const struct weir__op_call *call) {
    struct weir__cuda_convolution_call convolution = {.x = (void *)(uintptr_t)call->in[0],
                                                      .weight = (void *)(uintptr_t)call->packed,
                                                      .y = call->out[0],
                                                      .workspace = workspace_of(call)};
    if (call->shape->rows == 0) return WEIR_OK;
    assert(call->packed != NULL);
    const struct cuda_product *product = call->state;
    if (product->adds_bias) convolution.bias = call->in[2];
    int status = run_convolution(call, &convolution);
    if (status != WEIR_OK || !call->shape->has_bias || product->adds_bias) return status;
    const struct weir__plane *plane = &call->shape->window.out;
    return add_bias(call, call->in[2],
                    (uint64_t)(call->shape->rows * plane->height * plane->width));
}

static int conv2d_grad_input(const struct weir__op_call *call) {
    struct weir__cuda_convolution_call convolution = {.y = (void *)(uintptr_t)call->in[0],
                                                      .weight = (void *)(uintptr_t)call->packed,
                                                      .x = call->out[0],
                                                      .workspace = workspace_of(call)};
    if (call->shape->rows == 0) return WEIR_OK;
    assert(call->packed != NULL);
    return run_convolution(call, &convolution);
}

static int conv2d_grad_weight(const struct weir__op_call *call) {
    const struct cuda_product *product = call->state;
    size_t weight;
    int status = count_weight_bytes(call->shape, WEIR_F32, &weight);
    if (status != WEIR_OK) return status;
    void *gradient = workspace_of(call);
    struct weir__cuda_convolution_call convolution = {.x = (void *)(uintptr_t)call->in[0],
                                                      .y = (void *)(uintptr_t)call->in[1],
                                                      .weight = gradient,
                                                      .workspace = behind(gradient, weight)};
    status = run_convolution(call, &convolution);
    if (status != WEIR_OK) return status;
    bool single = product->gradient == WEIR_F32;
    return turn_weights(
        call, single ? WEIR__NET_KERNEL_weight_deliver_f32 : WEIR__NET_KERNEL_weight_deliver_bf16,
        call->out[0], gradient, !call->overwrite);
}

/** What comes in place is not moved first. */
static int bias_add(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    uint64_t count = (uint64_t)(shape->rows * shape->width);
    if (count == 0) return WEIR_OK;
    assert(shape->out > 0 && shape->width % shape->out == 0);
    int status = WEIR_OK;
    if (call->out[0] != call->in[0])
        status = weir__cuda_copy(call->stream, call->out[0], call->in[0],
                                 count * weir_dtype_bytes(shape->dtype), 0);
    return status == WEIR_OK ? add_bias(call, call->in[1], count / (uint64_t)shape->out) : status;
}

/* ---- the rows ---- */

const struct weir__kernel weir__cuda_product[WEIR__OP_COUNT] = {
    [WEIR__OP_linear] = {.measure = measure_linear,
                         .prepare = prepare_linear,
                         .release = release_linear,
                         .run = linear,
                         .measure_pack = measure_linear_pack,
                         .pack = pack_linear,
                         .library = "cuBLASLt"},
    [WEIR__OP_linear_grad_input] = {.measure = measure_linear,
                                    .prepare = prepare_linear,
                                    .release = release_linear,
                                    .run = linear_grad_input,
                                    .measure_pack = measure_linear_pack,
                                    .pack = pack_linear,
                                    .shares_pack = true,
                                    .library = "cuBLASLt"},
    [WEIR__OP_linear_grad_weight] = {.measure = measure_linear,
                                     .prepare = prepare_linear,
                                     .release = release_linear,
                                     .run = linear_grad_weight,
                                     .library = "cuBLASLt"},
    [WEIR__OP_bias_add] = {.run = bias_add, .library = "CUDA"},
    [WEIR__OP_conv2d] = {.measure = measure_convolution,
                         .prepare = prepare_convolution,
                         .release = release_convolution,
                         .run = conv2d,
                         .measure_pack = measure_convolution_pack,
                         .pack = pack_convolution,
                         .library = "cuDNN"},
    [WEIR__OP_conv2d_grad_input] = {.measure = measure_convolution,
                                    .prepare = prepare_convolution,
                                    .release = release_convolution,
                                    .run = conv2d_grad_input,
                                    .measure_pack = measure_convolution_pack,
                                    .pack = pack_convolution,
                                    .shares_pack = true,
                                    .library = "cuDNN"},
    [WEIR__OP_conv2d_grad_weight] = {.measure = measure_convolution,
                                     .prepare = prepare_convolution,
                                     .release = release_convolution,
                                     .run = conv2d_grad_weight,
                                     .library = "cuDNN"},
};
