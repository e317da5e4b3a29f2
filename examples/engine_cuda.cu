/* SPDX-License-Identifier: MIT */
/*
 * engine.c on GPUs: the same network, stages and pipe, the callbacks as kernels of one's own. Where
 * the two differ is what CUDA asks for:
 *
 *  - a callback enqueues its work on the task's stream and returns; it waits for nothing;
 *  - the task's memory is the GPU's, but for the numbers that it tells the host: *task->loss;
 *  - update obeys task->verdict, which the GPU knows before the host does;
 *  - each worker has a GPU: stages go over as many as there are.
 *
 *   zig build examples && zig-out/examples/engine_cuda
 *   nvcc -O3 engine_cuda.cu $(pkg-config --cflags --libs weir)
 */
#include "weir.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

enum { WIDTH = 64, LAYERS = 8, STAGES = 4, ROWS = 256, CHUNKS = 8, STEPS = 40 };
enum { LAYER = (WIDTH + 1) * WIDTH }; /* W[in][out], and a last row b[out] */
static const float rate = 0.1f;

struct stage {
    int first, layers;
    bool begins, ends; /* the network */
};

static float random_number(uint32_t *state) { /* -1 … 1 */
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1;
}

static cudaStream_t stream_of(const struct weir_stream *stream) {
    return (cudaStream_t)weir_stream_cuda(stream);
}

/* What CUDA says of the launches and copies before it; not of their work, which is to come. */
static int status_of(const struct weir_task *task) {
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) return WEIR_OK;
    snprintf(task->error->message, sizeof task->error->message, "%s", cudaGetErrorString(error));
    return WEIR_ERR_BACKEND;
}

/* A layer starts with the same numbers whichever stage has it. The copy has read them when it
 * returns, since they are not in pinned memory. */
static int attach(void *context, const struct weir_attachment *attachment) {
    const struct stage *stage = (const struct stage *)context;
    float *to = (float *)attachment->parameters, weights[LAYER];
    for (int l = 0; l < stage->layers; l++, to += LAYER) {
        uint32_t state = (uint32_t)(stage->first + l);
        for (int i = 0; i < LAYER; i++) weights[i] = random_number(&state) / 5;
        cudaMemcpyAsync(to, weights, sizeof weights, cudaMemcpyDefault,
                        stream_of(attachment->stream));
    }
    return cudaGetLastError() == cudaSuccess ? WEIR_OK : WEIR_ERR_BACKEND;
}

/* Every h is saved; under a checkpoint, where nothing is, forward puts it into its workspace. */
static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    const struct stage *stage = (const struct stage *)context;
    size_t one = (size_t)rows * WIDTH * sizeof(float);
    bytes->saved = (size_t)stage->layers * one;
    bytes->workspace[WEIR_FORWARD_CHECKPOINT] = bytes->workspace[WEIR_INFER] = bytes->saved;
    bytes->workspace[WEIR_BACKWARD] = 3 * one;
    return WEIR_OK;
}

/* ---- kernels: a block per row of WIDTH numbers, a thread per number -------------------------- */

__device__ static unsigned here() {
    return blockIdx.x * WIDTH + threadIdx.x;
}

__global__ void run_layer(const float *weights, const float *x, float *h) {
    float sum = weights[WIDTH * WIDTH + threadIdx.x];
    x += blockIdx.x * WIDTH;
    for (int k = 0; k < WIDTH; k++) sum += x[k] * weights[k * WIDTH + threadIdx.x];
    h[here()] = tanhf(sum);
}

/* y, and this micro-batch's part of the loss, which is a mean over the whole mini-batch: one block,
 * which sums in the same order each time. */
__global__ void finish(const float *last, const float *skip, const float *target, float *y,
                       int64_t rows, double loss_weight, double *loss) {
    __shared__ double sums[WIDTH];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < rows * WIDTH; i += WIDTH) {
        y[i] = last[i] + skip[i];
        sum += (double)(y[i] - target[i]) * (y[i] - target[i]);
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int t = 1; t < WIDTH; t++) sum += sums[t];
    *loss = sum / loss_weight;
}

/* The gradient of y, which is that of both its terms. */
__global__ void begin_backward(const float *last, const float *skip, const float *target,
                               float scale, float *g, float *skip_gradient) {
    unsigned i = here();
    g[i] = skip_gradient[i] = scale * (last[i] + skip[i] - target[i]);
}

__global__ void add(float *to, const float *from) {
    to[here()] += from[here()];
}

__global__ void through_tanh(const float *h, float *g) {
    unsigned i = here();
    g[i] *= 1 - h[i] * h[i];
}

/* A block per row of W and b. */
__global__ void return_to_weights(float *gradient, const float *x, const float *g, int64_t rows) {
    float sum = 0;
    for (int64_t r = 0; r < rows; r++)
        sum += (blockIdx.x < WIDTH ? x[r * WIDTH + blockIdx.x] : 1) * g[r * WIDTH + threadIdx.x];
    gradient[here()] += sum;
}

__global__ void return_to_input(const float *weights, const float *g, float *dx) {
    float sum = 0;
    for (int j = 0; j < WIDTH; j++)
        sum += weights[threadIdx.x * WIDTH + j] * g[blockIdx.x * WIDTH + j];
    dx[here()] = sum;
}

__global__ void step_down(float *weights, const float *gradient,
                          const struct weir_verdict *verdict) {
    float scale = rate * (float)verdict->gradient_scale;
    if (verdict->applies) weights[here()] -= scale * gradient[here()];
}

/* ---- forward and recompute ------------------------------------------------------------------- */

/* The h of all layers, one after the other; returns the last. */
static const float *run_layers(const struct stage *stage, const struct weir_task *task, float *h) {
    const float *x = (const float *)task->inputs[0].data;
    const float *weights = (const float *)task->parameters;
    for (int l = 0; l < stage->layers; l++, weights += LAYER) {
        run_layer<<<(unsigned)task->rows, WIDTH, 0, stream_of(task->stream)>>>(weights, x, h);
        x = h, h += task->rows * WIDTH;
    }
    return x;
}

static int recompute(void *context, const struct weir_task *task) {
    run_layers((const struct stage *)context, task, (float *)task->saved);
    return status_of(task);
}

static int forward(void *context, const struct weir_task *task) {
    const struct stage *stage = (const struct stage *)context;
    cudaStream_t stream = stream_of(task->stream);
    size_t bytes = (size_t)task->rows * WIDTH * sizeof(float);
    float *h = (float *)(task->saved != NULL ? task->saved : task->workspace);
    const float *last = run_layers(stage, task, h);
    const void *skip = stage->begins ? h : task->skips[0].data;
    if (stage->ends)
        finish<<<1, WIDTH, 0, stream>>>(
            last, (const float *)skip, (const float *)task->inputs[1].data,
            (float *)task->outputs[0].data, task->rows, task->loss_weight, task->loss);
    else
        cudaMemcpyAsync(task->outputs[0].data, last, bytes, cudaMemcpyDefault, stream);
    if (stage->begins && !stage->ends)
        cudaMemcpyAsync(task->skips[0].data, h, bytes, cudaMemcpyDefault, stream);
    return status_of(task);
}

/* ---- backward and update --------------------------------------------------------------------- */

/* `g` is the gradient of h at first. dx NULL: nobody wants it. */
static void return_layer(const float *weights, float *gradient, const float *x, const float *h,
                         float *g, float *dx, int64_t rows, cudaStream_t stream) {
    through_tanh<<<(unsigned)rows, WIDTH, 0, stream>>>(h, g);
    return_to_weights<<<WIDTH + 1, WIDTH, 0, stream>>>(gradient, x, g, rows);
    if (dx != NULL) return_to_input<<<(unsigned)rows, WIDTH, 0, stream>>>(weights, g, dx);
}

/* The gradient of the last h, and of the skip where it goes. */
static void begin(const struct stage *stage, const struct weir_task *task, const float *last,
                  float *g, float *own_skip_gradient) {
    cudaStream_t stream = stream_of(task->stream);
    const void *skip = stage->begins ? task->saved : task->skips[0].data;
    void *back = stage->begins ? own_skip_gradient : task->skip_grads_out[0].data;
    begin_backward<<<(unsigned)task->rows, WIDTH, 0, stream>>>(
        last, (const float *)skip, (const float *)task->inputs[1].data,
        2 / (float)task->loss_weight, g, (float *)back);
}

static int backward(void *context, const struct weir_task *task) {
    const struct stage *stage = (const struct stage *)context;
    cudaStream_t stream = stream_of(task->stream);
    unsigned rows = (unsigned)task->rows;
    int64_t count = task->rows * WIDTH;
    size_t top = (size_t)stage->layers - 1, bytes = (size_t)count * sizeof(float);
    const float *h = (const float *)task->saved + (int64_t)top * count;
    const float *weights = (const float *)task->parameters + top * LAYER;
    float *gradient = (float *)task->gradients + top * LAYER;
    float *g = (float *)task->workspace, *dx = g + count, *skip_gradient = g + 2 * count;

    if (task->gradients_first)
        cudaMemsetAsync(task->gradients, 0, (top + 1) * LAYER * sizeof(float), stream);
    if (stage->ends)
        begin(stage, task, h, g, skip_gradient);
    else
        cudaMemcpyAsync(g, task->output_grads[0].data, bytes, cudaMemcpyDefault, stream);
    for (int l = stage->layers; l-- > 0; h -= count, weights -= LAYER, gradient -= LAYER) {
        const float *x = l > 0 ? h - count : (const float *)task->inputs[0].data;
        float *to = l > 0 ? dx : (float *)task->input_grads[0].data;
        if (l == 0 && stage->begins)
            add<<<rows, WIDTH, 0, stream>>>(
                g, stage->ends ? skip_gradient : (const float *)task->skip_grads[0].data);
        return_layer(weights, gradient, x, h, g, to, task->rows, stream);
        dx = g, g = to;
    }
    return status_of(task);
}

static int update(void *context, const struct weir_task *task) {
    const struct stage *stage = (const struct stage *)context;
    unsigned blocks = (unsigned)stage->layers * (WIDTH + 1);
    step_down<<<blocks, WIDTH, 0, stream_of(task->stream)>>>(
        (float *)task->parameters, (const float *)task->gradients, task->verdict);
    return status_of(task);
}

/* ---- the pipe -------------------------------------------------------------------------------- */

static const struct weir_stage_calls calls = {.forward = forward,
                                              .recompute = recompute,
                                              .backward = backward,
                                              .update = update,
                                              .measure = measure,
                                              .attach = attach};

static int build(struct stage *stages, int count, int gpus, struct weir_faults *faults,
                 struct weir_pipe **pipe) {
    const struct weir_tensor hidden = {WEIR_F32, 1, {WIDTH}, true}, data = {WEIR_F32, 1, {WIDTH}};
    const struct weir_skip_use stash = {WEIR_SKIP_STASH, "h0", NULL, hidden};
    const struct weir_skip_use pop = {WEIR_SKIP_POP, "h0", NULL, hidden, false, true};
    const struct weir_input inputs[] = {{data, "x", 0}, {data, "target", (uint32_t)count - 1}};
    const struct weir_stage plain = WEIR_STAGE_INIT;
    struct weir_stage list[STAGES];
    char names[STAGES][16];
    const char *devices[STAGES];
    for (int s = 0; s < count; s++) {
        int layers = LAYERS / count;
        stages[s] = {s * layers, layers, s == 0, s == count - 1};
        snprintf(names[s], sizeof names[s], "cuda:%d", s * gpus / count);
        devices[s] = names[s];
        list[s] = plain;
        list[s].calls = &calls, list[s].context = &stages[s];
        list[s].outputs = &hidden, list[s].output_count = 1;
        list[s].skips = s == 0 ? &stash : &pop;
        list[s].skip_count = stages[s].begins != stages[s].ends ? 1 : 0;
        list[s].parameter_bytes = list[s].gradient_bytes = (size_t)layers * LAYER * sizeof(float);
    }
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    options.stages = list, options.stage_count = (uint32_t)count;
    options.inputs = inputs, options.input_count = 2;
    options.rows = ROWS, options.chunks = CHUNKS;
    options.devices = devices, options.device_count = (uint32_t)count;
    options.schedule = "1f1b", options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    return weir_pipe_new(&options, faults, pipe);
}

/* ---- training -------------------------------------------------------------------------------- */

struct outcome {
    double first_loss, last_loss;
    float weights[LAYERS * LAYER];
};

static int train(struct weir_pipe *pipe, struct outcome *outcome) {
    static float x[ROWS * WIDTH], target[ROWS * WIDTH];
    const void *inputs[] = {x, target};
    uint32_t state = 1;
    for (int i = 0; i < ROWS * WIDTH; i++) x[i] = random_number(&state);
    for (int i = 0; i < ROWS * WIDTH; i++) target[i] = x[i] * x[i ^ 1];
    int status = WEIR_OK;
    for (int i = 0; status == WEIR_OK && i < STEPS; i++) {
        struct weir_step step = WEIR_STEP_INIT;
        struct weir_step_result result;
        step.rows = ROWS, step.inputs = inputs;
        step.mini_batch = step.update = (uint64_t)i;
        status = weir_pipe_step(pipe, &step, &result);
        if (status != WEIR_OK) fprintf(stderr, "engine_cuda: %s\n", result.error.message);
        if (i == 0) outcome->first_loss = result.loss;
        if (i % 10 == 9) printf("step %d  loss %.4f\n", i + 1, result.loss);
        outcome->last_loss = result.loss;
    }
    return status;
}

static int read_weights(const struct weir_pipe *pipe, int count, struct outcome *outcome) {
    size_t each = LAYERS / count * LAYER;
    int status = WEIR_OK;
    for (int s = 0; status == WEIR_OK && s < count; s++) {
        struct weir_attachment at;
        status = weir_pipe_attachment(pipe, (uint32_t)s, &at);
        if (status == WEIR_OK)
            cudaMemcpy(outcome->weights + s * each, at.parameters, each * sizeof(float),
                       cudaMemcpyDefault);
    }
    return status != WEIR_OK || cudaGetLastError() == cudaSuccess ? status : WEIR_ERR_BACKEND;
}

static int print(void *file, const char *text, size_t bytes) {
    return fwrite(text, 1, bytes, (FILE *)file) == bytes ? WEIR_OK : WEIR_ERR_IO;
}

static int run(int count, int gpus, struct outcome *outcome) {
    struct stage stages[STAGES];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_pipe *pipe = NULL;
    int status = build(stages, count, gpus, &faults, &pipe);
    for (uint32_t i = 0; i < faults.kept; i++)
        fprintf(stderr, "engine_cuda: %s\n", faults.lines[i]);
    weir_faults_clean_up(&faults);
    if (status == WEIR_OK) status = train(pipe, outcome);
    if (status == WEIR_OK) status = weir_pipe_trace_text(pipe, 100, false, print, stdout);
    if (status == WEIR_OK) status = read_weights(pipe, count, outcome);
    weir_pipe_destroy(pipe);
    return status;
}

/* How many there are; 0 after a message. */
static int find_gpus() {
    int gpus = 0;
    cudaError_t error = cudaGetDeviceCount(&gpus);
    if (error == cudaSuccess && gpus > 0) return gpus;
    fprintf(stderr, "engine_cuda: no GPU to run on (%s): engine.c is this for CPUs\n",
            error == cudaSuccess ? "none is visible" : cudaGetErrorString(error));
    return 0;
}

int main() {
    static struct outcome many, one;
    int gpus = find_gpus();
    if (gpus == 0) return EXIT_FAILURE;
    if (run(STAGES, gpus, &many) != WEIR_OK || run(1, gpus, &one) != WEIR_OK) return EXIT_FAILURE;
    bool same = memcmp(&many, &one, sizeof many) == 0;
    printf("%d stages over %d GPU%s, and one: %s\n", STAGES, gpus, gpus == 1 ? "" : "s",
           same ? "the same bits" : "DIFFERENT BITS");
    return same && many.last_loss < many.first_loss / 2 ? EXIT_SUCCESS : EXIT_FAILURE;
}
