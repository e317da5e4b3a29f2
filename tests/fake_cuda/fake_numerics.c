/* SPDX-License-Identifier: MIT */
/* Products, convolutions and attention for the fake driver: run calls enqueue, and compute with the
 * CPU's f32 reference kernels when the work runs: with F32 numbers the bits are theirs. BF16 is
 * widened before and rounded after. Buffers are checked when the work runs, and the workspace is
 * filled with NaN, for a library may use it all. Since a library may lack a kernel, gradients of
 * weights from BF16 images are F32, and biases are added, only where the number of output channels
 * is even, and attention is there only for a multiple of three heads. */
#include "fake_state.h"

#include "net/cpu/cpu.h"
#include "net/cuda/numerics.h"

#include <stdlib.h>
#include <string.h>

/* ---- calls of the driver ---- */

static int say(const char *call, int result, struct weir__cuda_failure *failure) {
    if (result == 0) return WEIR_OK;
    *failure = (struct weir__cuda_failure){call, result, NULL};
    return WEIR_ERR_BACKEND;
}

/* What a plan or a library is: a copy of what describes it, counted. */
static int make(const char *call, const void *from, size_t bytes, void **to,
                struct weir__cuda_failure *failure) {
    fake_lock();
    int result = fake_injected();
    if (result == 0) {
        *to = memcpy(fake_new(bytes), from, bytes);
        fake.counts.plans++;
    }
    fake_unlock();
    return say(call, result, failure);
}

static void destroy(void *made) {
    fake_lock();
    fake.counts.plans--;
    fake_unlock();
    free(made);
}

static void destroy_plan(void *library, void *plan) {
    (void)library;
    destroy(plan);
}

/* What work begins with: in which context it runs. */
struct work {
    struct fake_context *context;
};

static int launch(const char *call, struct CUstream_st *stream, weir_fake_cuda_fn *run,
                  struct work *arguments, size_t bytes, struct weir__cuda_failure *failure) {
    if (fake_is_planted("plan")) {
        *failure = (struct weir__cuda_failure){call, 5000, "it does not run, as planted"};
        return WEIR_ERR_BACKEND;
    }
    fake_lock();
    arguments->context = fake_current();
    int result = fake_launch(stream, call, run, arguments, bytes);
    fake_unlock();
    return say(call, result, failure);
}

static int open_library(struct weir__cuda_device *device, void **library,
                        struct weir__cuda_failure *failure, struct weir_error *error) {
    if (fake_is_planted("library"))
        return weir__fail(error, WEIR_ERR_NOT_FOUND, "a library is not found, as planted");
    return make("open", &device->gpu, sizeof device->gpu, library, failure);
}

/* ---- numbers ---- */

/* Of a call: as the device has them, and as F32. */
struct numbers {
    void *at;
    size_t count;
    enum weir_dtype dtype;
    float *wide; /* owned */
};

static bool touch(struct fake_context *context, const char *call, const void *at, size_t bytes) {
    if (bytes == 0 || fake_place_of(context, at, bytes, call) != FAKE_FORBIDDEN) return true;
    fake_context_break(context, WEIR__CUDA_ILLEGAL_ADDRESS);
    return false;
}

static bool is_touchable(struct fake_context *context, const char *call,
                         const struct numbers *numbers) {
    return touch(context, call, numbers->at, numbers->count * weir_dtype_bytes(numbers->dtype));
}

static void widen(struct numbers *numbers) {
    numbers->wide = fake_new(numbers->count * sizeof(float));
    for (size_t i = 0; i < numbers->count; i++) {
        if (numbers->dtype == WEIR_F32) {
            numbers->wide[i] = ((const float *)numbers->at)[i];
            continue;
        }
        uint32_t bits = (uint32_t)((const uint16_t *)numbers->at)[i] << 16;
        memcpy(&numbers->wide[i], &bits, sizeof bits);
    }
}

static uint16_t narrowed(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void store(const struct numbers *numbers) {
    for (size_t i = 0; i < numbers->count; i++) {
        if (numbers->dtype == WEIR_F32)
            ((float *)numbers->at)[i] = numbers->wide[i];
        else
            ((uint16_t *)numbers->at)[i] = narrowed(numbers->wide[i]);
    }
}

/* The reference's row for it, on F32. */
static void compute(const struct weir__op_shape *shape, const float *const in[3], float *out,
                    bool overwrite) {
    const struct weir__kernel *row = &weir__reference_f32[shape->op];
    const void *ins[] = {in[0], in[1], in[2]};
    void *outs[] = {out};
    size_t bytes = 0;
    if (row->measure != NULL && row->measure(shape, &bytes) != WEIR_OK) abort();
    struct weir__op_call call = {.shape = shape,
                                 .in = ins,
                                 .out = outs,
                                 .workspace = fake_new(bytes),
                                 .overwrite = overwrite};
    if (row->run(&call) != WEIR_OK) abort();
    free(call.workspace);
}

/* ---- products ---- */

struct matmul_work {
    struct work work;
    struct weir__cuda_matmul matmul;
    struct weir__cuda_matmul_call call;
    size_t workspace;
};

/* A sum along rows of `a` is the reference's linear, one along its columns a gradient of a weight.
 */
static struct weir__op_shape shape_of_matmul(const struct weir__cuda_matmul *matmul) {
    if (matmul->a_transposed)
        return (struct weir__op_shape){.op = WEIR__OP_linear_grad_weight,
                                       .rows = matmul->k,
                                       .tokens = 1,
                                       .in = matmul->n,
                                       .out = matmul->m};
    return (struct weir__op_shape){.op = WEIR__OP_linear,
                                   .rows = matmul->m,
                                   .tokens = 1,
                                   .in = matmul->k,
                                   .out = matmul->n,
                                   .weight_in_out = !matmul->b_transposed,
                                   .has_bias = matmul->has_bias};
}

static void run_matmul(const void *arguments) {
    const struct matmul_work *work = arguments;
    const struct weir__cuda_matmul *matmul = &work->matmul;
    struct fake_context *context = work->work.context;
    size_t m = (size_t)matmul->m, n = (size_t)matmul->n, k = (size_t)matmul->k;
    struct numbers of[] = {
        {(void *)(uintptr_t)work->call.a, m * k, matmul->input, NULL},
        {(void *)(uintptr_t)work->call.b, k * n, matmul->input, NULL},
        {(void *)(uintptr_t)work->call.bias, matmul->has_bias ? n : 0, matmul->output, NULL},
        {work->call.d, m * n, matmul->output, NULL}};
    for (int i = 0; i < 4; i++)
        if (!is_touchable(context, "cublasLtMatmul", &of[i])) return;
    if (!touch(context, "cublasLtMatmul", work->call.workspace, work->workspace)) return;
    memset(work->call.workspace, 0xff, work->workspace);
    for (int i = 0; i < 4; i++) widen(&of[i]);
    struct weir__op_shape shape = shape_of_matmul(matmul);
    bool flip = matmul->a_transposed;
    const float *const in[] = {of[flip ? 1 : 0].wide, of[flip ? 0 : 1].wide, of[2].wide};
    compute(&shape, in, of[3].wide, !work->call.adds);
    store(&of[3]);
    for (int i = 0; i < 4; i++) free(of[i].wide);
}

static int matmul_new(void *products, const struct weir__cuda_matmul *matmul, void **plan,
                      struct weir__cuda_failure *failure) {
    (void)products;
    if (matmul->a_transposed && (matmul->b_transposed || matmul->has_bias))
        return WEIR_ERR_UNSUPPORTED;
    return make("cublasLtMatmulAlgoGetHeuristic", matmul, sizeof *matmul, plan, failure);
}

/* A product that adds and has a bias, or a buffer at an odd place, is refused as cuBLASLt does. */
static bool is_allowed(const struct weir__cuda_matmul_call *call) {
    uintptr_t addresses = (uintptr_t)call->a | (uintptr_t)call->b | (uintptr_t)call->d;
    return addresses % 64 == 0 && (uintptr_t)call->workspace % 256 == 0 &&
           !(call->adds && call->bias != NULL);
}

static int matmul_run(void *products, const void *plan, struct CUstream_st *stream,
                      const struct weir__cuda_matmul_call *call,
                      struct weir__cuda_failure *failure) {
    struct matmul_work work = {.matmul = *(const struct weir__cuda_matmul *)plan, .call = *call};
    (void)products;
    if (weir__cuda_matmul_workspace(&work.matmul, &work.workspace) != WEIR_OK || !is_allowed(call))
        return say("cublasLtMatmul", WEIR__CUDA_INVALID_VALUE, failure);
    return launch("cublasLtMatmul", stream, run_matmul, &work.work, sizeof work, failure);
}

/* ---- convolutions ---- */

struct convolution_plan {
    struct weir__cuda_convolution convolution;
    struct CUstream_st *stream;
    bool bad; /* does not run */
};

/* Whether a plan is among those to be bad. */
static bool is_bad(void) {
    fake_lock();
    bool bad = fake.bad_plans > 0;
    if (bad) fake.bad_plans--;
    fake_unlock();
    return bad;
}

/* In the library's own words. */
static int refuse_bad(struct weir__cuda_failure *failure) {
    *failure =
        (struct weir__cuda_failure){"cudnnBackendExecute", 5000, "CUDNN_STATUS_EXECUTION_FAILED"};
    return WEIR_ERR_BACKEND;
}

/* There is one other plan than a bad one. */
static int replace(bool *bad) {
    if (!*bad) return WEIR_ERR_UNSUPPORTED;
    *bad = is_bad();
    return WEIR_OK;
}

struct convolution_work {
    struct work work;
    struct convolution_plan plan;
    struct weir__cuda_convolution_call call;
    size_t workspace;
};

static size_t pixels(struct weir__plane plane) {
    return (size_t)(plane.height * plane.width);
}

/* (out, taps, in) to PyTorch's (out, in, taps), or back. */
static void turn(struct numbers *weight, size_t out, size_t taps, size_t in, bool back) {
    float *turned = fake_new(weight->count * sizeof(float));
    for (size_t o = 0; o < out; o++)
        for (size_t t = 0; t < taps; t++)
            for (size_t i = 0; i < in; i++) {
                size_t last = (o * taps + t) * in + i, torch = (o * in + i) * taps + t;
                turned[back ? last : torch] = weight->wide[back ? torch : last];
            }
    free(weight->wide);
    weight->wide = turned;
}

static struct weir__op_shape shape_of_convolution(const struct weir__cuda_convolution *from) {
    static const enum weir__op_code ops[] = {
        [WEIR__CUDA_CONVOLVE] = WEIR__OP_conv2d,
        [WEIR__CUDA_CONVOLVE_GRAD_INPUT] = WEIR__OP_conv2d_grad_input,
        [WEIR__CUDA_CONVOLVE_GRAD_WEIGHT] = WEIR__OP_conv2d_grad_weight};
    return (struct weir__op_shape){.op = ops[from->kind],
                                   .rows = from->rows,
                                   .tokens = 1,
                                   .in = from->in,
                                   .out = from->out,
                                   .window = from->window,
                                   .has_bias = from->has_bias};
}

enum { X, WEIGHT, Y, BIAS, TENSORS };

static void convolve(const struct weir__cuda_convolution *convolution, struct numbers of[TENSORS]) {
    static const int ins[][2] = {[WEIR__CUDA_CONVOLVE] = {X, WEIGHT},
                                 [WEIR__CUDA_CONVOLVE_GRAD_INPUT] = {Y, WEIGHT},
                                 [WEIR__CUDA_CONVOLVE_GRAD_WEIGHT] = {X, Y}};
    static const int outs[] = {[WEIR__CUDA_CONVOLVE] = Y,
                               [WEIR__CUDA_CONVOLVE_GRAD_INPUT] = X,
                               [WEIR__CUDA_CONVOLVE_GRAD_WEIGHT] = WEIGHT};
    size_t out = (size_t)convolution->out, taps = pixels(convolution->window.kernel);
    size_t in = of[WEIGHT].count / (out * taps);
    struct weir__op_shape shape = shape_of_convolution(convolution);
    for (int i = 0; i < TENSORS; i++) widen(&of[i]);
    turn(&of[WEIGHT], out, taps, in, false);
    const int *reads = ins[convolution->kind], writes = outs[convolution->kind];
    const float *const operands[] = {of[reads[0]].wide, of[reads[1]].wide, of[BIAS].wide};
    compute(&shape, operands, of[writes].wide, true);
    if (writes == WEIGHT) turn(&of[WEIGHT], out, taps, in, true);
    store(&of[writes]);
    for (int i = 0; i < TENSORS; i++) free(of[i].wide);
}

static void run_convolution(const void *arguments) {
    const struct convolution_work *work = arguments;
    const struct weir__cuda_convolution *convolution = &work->plan.convolution;
    const struct weir__window *window = &convolution->window;
    struct fake_context *context = work->work.context;
    size_t rows = (size_t)convolution->rows;
    size_t in = (size_t)convolution->in, out = (size_t)convolution->out;
    struct numbers of[TENSORS] = {
        [X] = {work->call.x, rows * pixels(window->in) * in, convolution->image, NULL},
        [WEIGHT] = {work->call.weight, out * pixels(window->kernel) * in / (size_t)window->groups,
                    convolution->weight, NULL},
        [Y] = {work->call.y, rows * pixels(window->out) * out, convolution->image, NULL},
        [BIAS] = {(void *)(uintptr_t)work->call.bias, convolution->has_bias ? out : 0, WEIR_F32,
                  NULL}};
    for (int i = 0; i < TENSORS; i++)
        if (!is_touchable(context, "cudnnBackendExecute", &of[i])) return;
    if (!touch(context, "cudnnBackendExecute", work->call.workspace, work->workspace)) return;
    memset(work->call.workspace, 0xff, work->workspace);
    convolve(convolution, of);
}

static int convolution_new(void *convolutions, const struct weir__cuda_convolution *convolution,
                           struct CUstream_st *stream, void **plan,
                           struct weir__cuda_failure *failure) {
    struct convolution_plan made = {*convolution, stream, false};
    (void)convolutions;
    bool is_rare = convolution->image != convolution->weight || convolution->has_bias;
    if (is_rare && convolution->out % 2 != 0) return WEIR_ERR_UNSUPPORTED;
    made.bad = is_bad();
    return make("cudnnBackendFinalize", &made, sizeof made, plan, failure);
}

static int convolution_next(void *convolutions, void *plan, struct weir__cuda_failure *failure) {
    (void)convolutions, (void)failure;
    return replace(&((struct convolution_plan *)plan)->bad);
}

static int convolution_run(void *convolutions, const void *plan,
                           const struct weir__cuda_convolution_call *call,
                           struct weir__cuda_failure *failure) {
    struct convolution_work work = {.plan = *(const struct convolution_plan *)plan, .call = *call};
    uintptr_t addresses = (uintptr_t)call->x | (uintptr_t)call->weight | (uintptr_t)call->y;
    (void)convolutions;
    if (work.plan.bad) return refuse_bad(failure);
    if (work.plan.convolution.has_bias != (call->bias != NULL) || (uintptr_t)call->bias % 16 != 0)
        return say("cudnnBackendExecute", WEIR__CUDA_INVALID_VALUE, failure);
    if (weir__cuda_convolution_workspace(&work.plan.convolution, &work.workspace) != WEIR_OK ||
        addresses % 64 != 0 || (uintptr_t)call->workspace % 256 != 0)
        return say("cudnnBackendExecute", WEIR__CUDA_INVALID_VALUE, failure);
    return launch("cudnnBackendExecute", work.plan.stream, run_convolution, &work.work, sizeof work,
                  failure);
}

static void tell(const void *plan, char *text, size_t capacity) {
    (void)plan;
    snprintf(text, capacity, "the fake library's");
}

/* There is no later process. */
static void convolutions_keep(void *convolutions) {
    (void)convolutions;
}

/* ---- attention ---- */

struct attention_plan {
    struct weir__cuda_attend attend;
    struct CUstream_st *stream;
    bool bad;
};

struct attention_work {
    struct work work;
    struct attention_plan plan;
    struct weir__cuda_attend_call call;
    size_t workspace;
};

enum { QKV, OUT, LSE, DOUT, DQKV, ATTENDED };

static void attend(const struct weir__cuda_attend *attend, struct numbers of[ATTENDED]) {
    const struct weir__op_shape shape = {.op = attend->backward ? WEIR__OP_attention_grad
                                                                : WEIR__OP_attention,
                                         .rows = attend->rows,
                                         .rows_max = attend->rows,
                                         .tokens = attend->tokens,
                                         .heads = attend->heads,
                                         .width = attend->heads * attend->size,
                                         .threads = 1};
    const struct weir__kernel *row = &weir__reference_f32[shape.op];
    for (int i = 0; i < ATTENDED; i++) widen(&of[i]);
    const void *forward_in[] = {of[QKV].wide};
    const void *backward_in[] = {of[DOUT].wide, of[QKV].wide, of[OUT].wide, of[LSE].wide};
    void *forward_out[] = {of[OUT].wide, of[LSE].wide}, *backward_out[] = {of[DQKV].wide};
    size_t bytes = 0;
    if (row->measure != NULL && row->measure(&shape, &bytes) != WEIR_OK) abort();
    const struct weir__op_call call = {.shape = &shape,
                                       .in = attend->backward ? backward_in : forward_in,
                                       .out = attend->backward ? backward_out : forward_out,
                                       .workspace = fake_new(bytes),
                                       .overwrite = true};
    if (row->run(&call) != WEIR_OK) abort();
    free(call.workspace);
    for (int i = attend->backward ? DQKV : OUT; i <= (attend->backward ? DQKV : LSE); i++)
        store(&of[i]);
    for (int i = 0; i < ATTENDED; i++) free(of[i].wide);
}

static void run_attention(const void *arguments) {
    const struct attention_work *work = arguments;
    const struct weir__cuda_attend *shape = &work->plan.attend;
    const struct weir__cuda_attend_call *call = &work->call;
    struct fake_context *context = work->work.context;
    size_t per_head = (size_t)(shape->rows * shape->tokens * shape->heads);
    size_t out = per_head * (size_t)shape->size;
    struct numbers of[ATTENDED] = {
        [QKV] = {(void *)(uintptr_t)call->qkv, 3 * out, WEIR_BF16, NULL},
        [OUT] = {call->y, out, WEIR_BF16, NULL},
        [LSE] = {call->lse, per_head, WEIR_F32, NULL},
        [DOUT] = {(void *)(uintptr_t)call->dy, shape->backward ? out : 0, WEIR_BF16, NULL},
        [DQKV] = {call->dqkv, shape->backward ? 3 * out : 0, WEIR_BF16, NULL}};
    for (int i = 0; i < ATTENDED; i++)
        if (!is_touchable(context, "cudnnBackendExecute", &of[i])) return;
    if (!touch(context, "cudnnBackendExecute", call->workspace, work->workspace)) return;
    memset(call->workspace, 0xff, work->workspace);
    attend(shape, of);
}

static int attention_new(void *convolutions, const struct weir__cuda_attend *attend,
                         struct CUstream_st *stream, void **plan,
                         struct weir__cuda_failure *failure) {
    struct attention_plan made = {*attend, stream, false};
    (void)convolutions;
    if (attend->heads % 3 != 0) return WEIR_ERR_UNSUPPORTED;
    made.bad = is_bad();
    return make("cudnnBackendFinalize", &made, sizeof made, plan, failure);
}

static int attention_next(void *convolutions, void *plan, struct weir__cuda_failure *failure) {
    (void)convolutions, (void)failure;
    return replace(&((struct attention_plan *)plan)->bad);
}

static int attention_run(void *convolutions, const void *plan,
                         const struct weir__cuda_attend_call *call,
                         struct weir__cuda_failure *failure) {
    struct attention_work work = {.plan = *(const struct attention_plan *)plan, .call = *call};
    struct weir__cuda_attend_room room;
    uintptr_t addresses = (uintptr_t)call->qkv | (uintptr_t)call->y | (uintptr_t)call->lse |
                          (uintptr_t)call->dy | (uintptr_t)call->dqkv;
    (void)convolutions;
    if (work.plan.bad) return refuse_bad(failure);
    if (weir__cuda_attend_room(&work.plan.attend, &room) != WEIR_OK || addresses % 16 != 0 ||
        (uintptr_t)call->workspace % 256 != 0)
        return say("cudnnBackendExecute", WEIR__CUDA_INVALID_VALUE, failure);
    work.workspace = room.bytes;
    return launch("cudnnBackendExecute", work.plan.stream, run_attention, &work.work, sizeof work,
                  failure);
}

extern const struct weir__cuda_numerics weir_fake_cuda_numerics;
const struct weir__cuda_numerics weir_fake_cuda_numerics = {
    .products_open = open_library,
    .products_close = destroy,
    .matmul_new = matmul_new,
    .matmul_destroy = destroy_plan,
    .matmul_run = matmul_run,
    .convolutions_open = open_library,
    .convolutions_close = destroy,
    .convolution_new = convolution_new,
    .convolution_destroy = destroy_plan,
    .convolution_next = convolution_next,
    .convolution_run = convolution_run,
    .convolution_tell = tell,
    .convolutions_keep = convolutions_keep,
    .attention_new = attention_new,
    .attention_destroy = destroy_plan,
    .attention_next = attention_next,
    .attention_tell = tell,
    .attention_run = attention_run,
};
