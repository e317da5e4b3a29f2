/* SPDX-License-Identifier: MIT */
/*
 * A layer and an op of one's own, without touching the library: RMSNorm (Zhang and Sennrich, 2019),
 * y = weight * x / sqrt(mean(x^2) + eps) over the last dimension, for f32 and f64.
 *
 * The program adds it to a small residual network, trains that over two stages with every
 * micro-batch checkpointed, and exits 0 if the loss fell to a tenth. --check compares the gradients
 * of the same network in f64 with differences of its loss.
 *
 *     zig build examples && zig-out/examples/custom_layer
 */
#include "weir_net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 24, ROWS = 64, CHUNKS = 8, STEPS = 300 };

/* ---- the op -------------------------------------------------------------------------------------
 * inputs: x with rows, weight (a parameter). Backward reads both again and keeps nothing else. */

struct rms_options {
    double eps;
    int64_t tokens, width; /* of a row: tokens x width numbers */
};

static int rms_shape(const void *options, uint32_t input_count, const struct weir_tensor *inputs,
                     struct weir_tensor *output, struct weir_error *error) {
    const struct weir_tensor *x = &inputs[0], *weight = &inputs[1];
    (void)options;
    if (input_count == 2 && x->rank >= 1 && weight->shape[0] == x->shape[x->rank - 1]) {
        *output = *x;
        return WEIR_OK;
    }
    snprintf(error->message, sizeof error->message, "it takes x and a weight of x's width");
    return WEIR_ERR_SHAPE;
}

/* One body for both dtypes: load and store know which it is. */
static double load(const struct weir_op_task *task, const void *from, int64_t i) {
    return task->dtype == WEIR_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

static void store(const struct weir_op_task *task, void *to, int64_t i, double value, bool add) {
    if (task->dtype == WEIR_F64)
        ((double *)to)[i] = (add ? ((double *)to)[i] : 0) + value;
    else
        ((float *)to)[i] = (add ? ((float *)to)[i] : 0) + (float)value;
}

static double inverse_rms(const struct weir_op_task *task, int64_t first) {
    const struct rms_options *options = task->options;
    double squares = 0;
    for (int64_t i = first; i < first + options->width; i++) {
        double x = load(task, task->inputs[0], i);
        squares += x * x;
    }
    return 1 / sqrt(squares / (double)options->width + options->eps);
}

static int rms_forward(const struct weir_op_task *task) {
    const struct rms_options *options = task->options;
    for (int64_t row = 0; row < task->rows * options->tokens; row++) {
        int64_t first = row * options->width;
        double scale = inverse_rms(task, first);
        for (int64_t i = 0; i < options->width; i++)
            store(task, task->output, first + i,
                  load(task, task->inputs[0], first + i) * scale * load(task, task->inputs[1], i),
                  false);
    }
    return WEIR_OK;
}

/* dx = scale * (g - x * scale^2 * mean(g * x)) with g = dy * weight; dweight += dy * x * scale. */
static void backward_row(const struct weir_op_task *task, int64_t first) {
    const struct rms_options *options = task->options;
    double scale = inverse_rms(task, first), mixed = 0;
    void *dx = task->input_grads[0], *dweight = task->input_grads[1];
    for (int64_t i = 0; i < options->width; i++)
        mixed += load(task, task->output_grad, first + i) * load(task, task->inputs[1], i) *
                 load(task, task->inputs[0], first + i);
    mixed *= scale * scale / (double)options->width;
    for (int64_t i = 0; i < options->width; i++) {
        double x = load(task, task->inputs[0], first + i);
        double dy = load(task, task->output_grad, first + i);
        double g = dy * load(task, task->inputs[1], i);
        if (dx != NULL) store(task, dx, first + i, scale * (g - x * mixed), false);
        if (dweight != NULL) store(task, dweight, i, dy * x * scale, true);
    }
}

static int rms_backward(const struct weir_op_task *task) {
    const struct rms_options *options = task->options;
    for (int64_t row = 0; row < task->rows * options->tokens; row++)
        backward_row(task, row * options->width);
    return WEIR_OK;
}

static double rms_flops(const void *options) {
    const struct rms_options *of = options;
    return 4.0 * (double)of->tokens * (double)of->width;
}

static const struct weir_op rms_norm = {
    .size = sizeof(struct weir_op),
    .name = "own_rms_norm",
    .shape = rms_shape,
    .forward = rms_forward,
    .backward = rms_backward,
    .flops = rms_flops,
    .keeps_inputs = 1u << 0 | 1u << 1,
};

/* ---- the layer: an attribute, a parameter, the op ----------------------------------------------
 */

static const struct weir_attr_rule attributes[] = {
    {.key = "eps", .kind = WEIR_ATTR_KIND_REAL, .real = 1e-6, .below = 1}};

static struct weir_value *build_rms_norm(struct weir_builder *b, const struct weir_layer *layer,
                                         struct weir_value *x) {
    struct weir_tensor in = weir_value_tensor(x);
    if (in.rank == 0) return weir_builder_fail(b, WEIR_ERR_SHAPE, "it needs a last dimension");
    struct rms_options options = {weir_layer_real(layer, "eps"), 1, in.shape[in.rank - 1]};
    for (uint32_t d = 0; d + 1 < in.rank; d++) options.tokens *= in.shape[d];
    struct weir_init ones = {WEIR_INIT_ONE, 0};
    struct weir_value *weight = weir_parameter(b, "weight", 1, &options.width, ones);
    return weir_apply(b, &rms_norm, &options, sizeof options, 2,
                      (struct weir_value *[]){x, weight});
}

static const struct weir_layer_type rms_norm_layer = {
    .name = "own_rms_norm", .attrs = attributes, .attr_count = 1, .build = build_rms_norm};

/* ---- a network with it -------------------------------------------------------------------------
 */

static int make_model(struct weir_faults *faults, struct weir_model **model) {
    struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {WIDTH}};
    struct weir_attrs wide = WEIR_ATTRS(WEIR_ATTR_INT("out_features", WIDTH));
    struct weir_attrs skip = WEIR_ATTRS(WEIR_ATTR_TEXT("skip", "x"));
    const struct {
        const char *type;
        struct weir_attrs attrs;
    } layers[] = {{"linear", wide},
                  {"stash", skip},
                  {"own_rms_norm", WEIR_NO_ATTRS},
                  {"linear", wide},
                  {"gelu", {0, 0}},
                  {"pop_add", skip},
                  {"own_rms_norm", WEIR_ATTRS(WEIR_ATTR_REAL("eps", 1e-5))},
                  {"linear", wide}};
    int status = weir_model_new(NULL, &row, &row, "mse", model);
    if (status == WEIR_OK) status = weir_model_add_type(*model, &rms_norm_layer);
    for (size_t i = 0; status == WEIR_OK && i < sizeof layers / sizeof layers[0]; i++)
        status = weir_model_add(*model, layers[i].type, NULL, layers[i].attrs, faults);
    return status;
}

static int make_net(const struct weir_model *model, enum weir_dtype dtype,
                    struct weir_faults *faults, struct weir_net **net) {
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    options.stages = 2;
    options.dtype = dtype;
    options.pipe.rows = ROWS;
    options.pipe.chunks = CHUNKS;
    options.pipe.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    options.optimizer.lr = 3e-3;
    int status = weir_net_new(model, &options, faults, net);
    return status == WEIR_OK ? weir_net_init(*net, 1) : status;
}

/** A mapping to be learned: each target is a mix of neighbouring inputs. */
static void make_data(double *x, double *y) {
    uint32_t state = 12345;
    for (int i = 0; i < ROWS * WIDTH; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (double)(state >> 8) * 0x1p-23 - 1;
    }
    for (int i = 0; i < ROWS * WIDTH; i++) {
        int other = i / WIDTH * WIDTH + (i + 7) % WIDTH;
        y[i] = 0.5 * x[i] - x[other] * x[other];
    }
}

static int train(struct weir_net *net, const float *x, const float *y) {
    struct weir_step_result result;
    double first = 0;
    for (uint64_t step = 0; step < STEPS; step++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = ROWS;
        batch.input = x;
        batch.target = y;
        batch.mini_batch = step;
        batch.update = step;
        int status = weir_net_step(net, &batch, &result);
        if (status != WEIR_OK) return status;
        if (step == 0) first = result.loss;
    }
    printf("loss %.4f, after %d steps %.4f\n", first, STEPS, result.loss);
    return result.loss < 0.1 * first ? WEIR_OK : WEIR_ERR_CALLBACK;
}

/* ---- gradients against differences -------------------------------------------------------------
 */

/** Every 5th number of a parameter; the gradients are those of the unchanged parameters. */
static int check_parameter(struct weir_net *net, const struct weir_net_batch *batch,
                           const struct weir_parameter *parameter, double *worst) {
    struct weir_step_result up, down;
    size_t bytes = (size_t)parameter->count * sizeof(double);
    double *data = parameter->data, *gradient = malloc(bytes);
    if (gradient == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = weir_net_step(net, batch, &up);
    memcpy(gradient, parameter->gradient, bytes);
    for (uint64_t i = 0; status == WEIR_OK && i < parameter->count; i += 5) {
        double kept = data[i], step = 1e-5;
        data[i] = kept + step;
        status = weir_net_step(net, batch, &up);
        data[i] = kept - step;
        if (status == WEIR_OK) status = weir_net_step(net, batch, &down);
        data[i] = kept;
        *worst = fmax(*worst, fabs((up.loss - down.loss) / (2 * step) - gradient[i]));
    }
    free(gradient);
    return status;
}

static int check(struct weir_net *net, const double *x, const double *y) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = ROWS;
    batch.input = x;
    batch.target = y;
    batch.no_update = true;
    double worst = 0;
    int status = WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        status = weir_net_parameter(net, i, &parameter);
        if (status == WEIR_OK) status = check_parameter(net, &batch, &parameter, &worst);
    }
    printf("gradients are within %.1e of differences\n", worst);
    return status != WEIR_OK || worst < 1e-9 ? status : WEIR_ERR_CALLBACK;
}

/* ---- all of it ---------------------------------------------------------------------------------
 */

static int run(const struct weir_model *model, bool checks, struct weir_faults *faults) {
    static double x[ROWS * WIDTH], y[ROWS * WIDTH];
    static float x_single[ROWS * WIDTH], y_single[ROWS * WIDTH];
    struct weir_net *net = NULL;
    make_data(x, y);
    for (int i = 0; i < ROWS * WIDTH; i++) x_single[i] = (float)x[i], y_single[i] = (float)y[i];
    int status = make_net(model, checks ? WEIR_F64 : WEIR_F32, faults, &net);
    if (status == WEIR_OK) status = checks ? check(net, x, y) : train(net, x_single, y_single);
    weir_net_destroy(net);
    return status;
}

int main(int argc, char **argv) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_model *model = NULL;
    bool checks = argc > 1 && strcmp(argv[1], "--check") == 0;
    int status = make_model(&faults, &model);
    if (status == WEIR_OK) status = run(model, checks, &faults);
    for (uint32_t i = 0; i < faults.kept; i++) fprintf(stderr, "%s\n", faults.lines[i]);
    if (status != WEIR_OK) fprintf(stderr, "%s\n", weir_status_text(status));
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
    return status == WEIR_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
