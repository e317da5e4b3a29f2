/* SPDX-License-Identifier: MIT */
#include "net/cuda/trial.h"

enum { ALIGNMENT = 256, SPARE = 64 << 20 /* left for what a first run takes */ };

/* ---- memory ---- */

/** One plan's. */
struct plan_trial {
    struct weir_stream *stream;
    char *operand; /**< for each of them; NULL: there is no room */
    void *workspace;
    size_t bytes; /**< of both */
};

/** Zero, on the stream. */
static int fill(struct weir_stream *stream, void *memory, size_t bytes) {
    struct weir__cuda_device *device = weir__cuda_device(stream->device);
    int result = device->driver.memory_fill((uint64_t)(uintptr_t)memory, 0, bytes,
                                            weir__cuda_stream(stream)->native);
    return weir__cuda_check(device, "cuMemsetD8Async", result);
}

static int pass_over(struct weir_stream *stream) {
    weir__cuda_way_note(weir__cuda_device(stream->device),
                        "memory: no room to try all plans before the first step");
    return WEIR_OK;
}

/** End it in any case. */
static int begin(struct weir_stream *stream, size_t operand, size_t workspace,
                 struct plan_trial *trial) {
    struct weir__device *device = stream->device;
    struct weir__cuda_room room;
    size_t bytes, needed;
    void *memory = NULL;
    *trial = (struct plan_trial){.stream = stream};
    int status = weir__cuda_memory_room(device, &room);
    if (status != WEIR_OK) return status;
    bool fits = weir__round_up(operand, ALIGNMENT, &operand) &&
                weir__round_up(workspace, ALIGNMENT, &workspace) &&
                weir__add(operand, workspace, &bytes) && weir__add(bytes, SPARE, &needed);
    if (!fits || needed > room.free_bytes) return pass_over(stream);
    status = device->calls->memory_acquire(device, bytes, &memory);
    if (status == WEIR_ERR_OUT_OF_MEMORY) return pass_over(stream); /* another took it meanwhile */
    if (status != WEIR_OK) return status;
    trial->operand = memory;
    trial->workspace = trial->operand + operand;
    trial->bytes = bytes;
    return fill(stream, memory, bytes);
}

static int end(const struct plan_trial *trial, int status) {
    struct weir__device *device = trial->stream->device;
    if (trial->operand == NULL) return status;
    if (status != WEIR_OK) (void)device->calls->stream_finish(trial->stream); /* what is given */
    device->calls->memory_release(device, trial->operand, trial->bytes);
    return status;
}

/** How what was run ended. Where the driver fails, what the library said is no word on the plan. */
static int finish(const struct plan_trial *trial, int status, struct weir__cuda_failure *failure) {
    assert(trial->operand != NULL);
    int finished = trial->stream->device->calls->stream_finish(trial->stream);
    if (finished == WEIR_OK) return status;
    *failure = (struct weir__cuda_failure){0};
    return finished;
}

/** Of so many numbers, a * b * c * d; SIZE_MAX where that is too much. */
static size_t count(size_t bytes, int64_t a, int64_t b, int64_t c, int64_t d) {
    size_t all;
    assert(a >= 0 && b >= 0 && c >= 0 && d >= 0);
    bool fits = weir__multiply(bytes, (size_t)a, &all) && weir__multiply(all, (size_t)b, &all) &&
                weir__multiply(all, (size_t)c, &all) && weir__multiply(all, (size_t)d, &all);
    return fits ? all : SIZE_MAX;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* ---- what does not run ---- */

static bool is_plans(int status, const struct weir__cuda_failure *failure) {
    return status != WEIR_OK && status != WEIR_ERR_OUT_OF_MEMORY && failure->call != NULL &&
           failure->name != NULL;
}

typedef int next_fn(void *library, void *plan, struct weir__cuda_failure *failure);

/** After a run that came to `status`: WEIR_OK where another plan stands there, to be tried. */
static int take_next(const struct weir__cuda_library_use *use, void *plan, bool decides,
                     next_fn *next, struct weir_stream *stream, int status,
                     struct weir__cuda_failure *failure) {
    struct weir__cuda_failure own = {0};
    assert(status != WEIR_OK && failure->call != NULL);
    if (!decides) return status;
    weir__cuda_way_note(weir__cuda_device(stream->device),
                        "a plan did not run (%s: %s) and was dropped", failure->call,
                        failure->name);
    int found = next(use->library, plan, &own);
    if (found != WEIR_OK && own.call != NULL) *failure = own;
    return found;
}

/* ---- products ---- */

int weir__cuda_try_matmul(const struct weir__cuda_library_use *use, const void *plan,
                          const struct weir__cuda_matmul *of, struct weir_stream *stream,
                          struct weir__cuda_failure *failure) {
    size_t input = weir_dtype_bytes(of->input), output = weir_dtype_bytes(of->output), workspace;
    size_t operand = larger(count(input, of->m, of->k, 1, 1), count(input, of->k, of->n, 1, 1));
    struct plan_trial trial;
    if (of->m == 0 || of->n == 0 || of->k == 0) return WEIR_OK;
    int status = weir__cuda_matmul_workspace(of, &workspace);
    if (status != WEIR_OK) return status;
    operand = larger(operand, count(output, of->m, of->n, 1, 1));
    status = begin(stream, operand, workspace, &trial);
    if (status == WEIR_OK && trial.operand != NULL) {
        const struct weir__cuda_matmul_call call = {.a = trial.operand,
                                                    .b = trial.operand,
                                                    .bias = of->has_bias ? trial.operand : NULL,
                                                    .d = trial.operand,
                                                    .workspace = trial.workspace};
        status = use->calls->matmul_run(use->library, plan, weir__cuda_stream(stream)->native,
                                        &call, failure);
        status = finish(&trial, status, failure);
    }
    return end(&trial, status);
}

/* ---- convolutions ---- */

static size_t convolution_operand(const struct weir__cuda_convolution *of) {
    const struct weir__window *w = &of->window;
    size_t image = weir_dtype_bytes(of->image), weight = weir_dtype_bytes(of->weight);
    size_t x = count(image, of->rows, w->in.height, w->in.width, of->in);
    size_t y = count(image, of->rows, w->out.height, w->out.width, of->out);
    size_t bias = count(sizeof(float), of->out, 1, 1, 1);
    weight = count(weight, of->out, w->kernel.height, w->kernel.width, of->in / w->groups);
    return larger(larger(x, y), larger(weight, bias));
}

int weir__cuda_try_convolution(const struct weir__cuda_library_use *use, void *plan,
                               const struct weir__cuda_convolution *of, struct weir_stream *stream,
                               struct weir__cuda_failure *failure) {
    struct plan_trial trial;
    size_t workspace;
    if (of->rows == 0) return WEIR_OK;
    int status = weir__cuda_convolution_workspace(of, &workspace);
    if (status != WEIR_OK) return status;
    status = begin(stream, convolution_operand(of), workspace, &trial);
    void *const operand = trial.operand;
    const struct weir__cuda_convolution_call call = {
        operand, operand, operand, of->has_bias ? (const float *)operand : NULL, trial.workspace};
    while (status == WEIR_OK && operand != NULL) {
        *failure = (struct weir__cuda_failure){0};
        status = use->calls->convolution_run(use->library, plan, &call, failure);
        status = finish(&trial, status, failure);
        if (!is_plans(status, failure)) break;
        status = take_next(use, plan, of->rows == of->rows_max, use->calls->convolution_next,
                           stream, status, failure);
    }
    if (status == WEIR_OK && operand != NULL) use->calls->convolutions_keep(use->library);
    return end(&trial, status);
}

/* ---- attention ---- */

int weir__cuda_try_attention(const struct weir__cuda_library_use *use, void *plan,
                             const struct weir__cuda_attend *of, struct weir_stream *stream,
                             struct weir__cuda_failure *failure) {
    struct weir__cuda_attend_room room;
    struct plan_trial trial;
    if (of->rows == 0) return WEIR_OK;
    int status = weir__cuda_attend_room(of, &room);
    if (status != WEIR_OK) return status;
    size_t qkv = count(3 * sizeof(uint16_t), of->rows, of->tokens, of->heads, of->size);
    size_t lse = count(sizeof(float), of->rows, of->tokens, of->heads, 1);
    status = begin(stream, larger(qkv, lse), room.bytes, &trial);
    void *const operand = trial.operand;
    const struct weir__cuda_attend_call call = {operand, operand, (float *)operand,
                                                operand, operand, trial.workspace};
    while (status == WEIR_OK && operand != NULL) {
        *failure = (struct weir__cuda_failure){0};
        status = use->calls->attention_run(use->library, plan, &call, failure);
        status = finish(&trial, status, failure);
        if (!is_plans(status, failure)) break;
        status = take_next(use, plan, of->rows == of->rows_max, use->calls->attention_next, stream,
                           status, failure);
    }
    if (status == WEIR_OK && operand != NULL) use->calls->convolutions_keep(use->library);
    return end(&trial, status);
}
