/* SPDX-License-Identifier: MIT */
/*
 * Goal: torchgpipe's U-Net gives PyTorch's numbers at every depth and at sizes that do not halve
 * evenly. Method: golden/unets.safetensors (made by golden/make_unets.py in float64): loss, output
 * and all gradients of U-Nets with 2 to 5 levels, here over 1 to 4 stages, with and without
 * checkpoints, in f64 on the reference kernels and in f32 on the fast ones.
 *
 * Tolerances are relative, per tensor, in the 2-norm. f64: 1e-11. f32: each convolution sums up to
 * 9 channels in, each norm up to a plane of pixels; errors of random sign along the path, forward
 * and back: 8 epsilon sqrt(sum of their lengths).
 */
#include "harness.h"
#include "net/net_trial.h"
#include "io/safetensors.h"
#include "weir_models.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct unet {
    uint32_t depth, num_convs, base_channels, height, width;
    int64_t rows;
};

static const struct unet unets[] = {
    {2, 2, 4, 13, 11, 3}, {3, 1, 4, 19, 21, 2}, {4, 2, 2, 35, 17, 2}, {5, 1, 2, 37, 71, 2}};

struct trial {
    const struct unet *unet;
    struct weir__safetensors *file;
    enum weir_dtype dtype;
    struct weir_model *model;
    struct weir_net *net;
    void *input, *target, *output, *input_grad;
};

static const struct weir__safetensor *find(const struct trial *t, const char *prefix,
                                           const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%u/%s%s", t->unet->depth, prefix, name);
    const struct weir__safetensor *tensor = weir__safetensors_find(t->file, path);
    if (tensor == NULL) TEST_FAIL("the golden file holds no %s", path);
    return tensor;
}

static size_t count_of(const struct weir__safetensor *tensor) {
    return tensor->bytes / weir_dtype_bytes(tensor->dtype);
}

static double number(enum weir_dtype dtype, const void *data, size_t i) {
    float single;
    double real;
    if (dtype == WEIR_F32)
        memcpy(&single, (const char *)data + 4 * i, 4);
    else
        memcpy(&real, (const char *)data + 8 * i, 8);
    return dtype == WEIR_F32 ? (double)single : real;
}

static void copy_numbers(const struct trial *t, const struct weir__safetensor *from, void *to) {
    for (size_t i = 0; i < count_of(from); i++) {
        double x = number(from->dtype, from->data, i);
        if (t->dtype == WEIR_F64)
            ((double *)to)[i] = x;
        else
            ((float *)to)[i] = (float)x;
    }
}

static void *load(const struct trial *t, const char *name) {
    const struct weir__safetensor *from = find(t, "", name);
    if (from == NULL) return NULL;
    void *to = weir__acquire(test_allocator(), count_of(from), weir_dtype_bytes(t->dtype));
    if (EXPECT(to != NULL)) copy_numbers(t, from, to);
    return to;
}

static void release(const struct trial *t, const char *name, void *data) {
    const struct weir__safetensor *tensor = find(t, "", name);
    if (tensor != NULL && data != NULL)
        weir__release(test_allocator(), data, count_of(tensor), weir_dtype_bytes(t->dtype));
}

static double tolerance(const struct trial *t) {
    double convs = (2.0 * t->unet->depth + 1) * t->unet->num_convs;
    double widest = 9.0 * (double)(t->unet->base_channels << t->unet->depth);
    double length = convs * (widest + t->unet->height * t->unet->width);
    return t->dtype == WEIR_F64 ? 1e-11 : 8 * (double)FLT_EPSILON * sqrt(length);
}

static void compare(const struct trial *t, const char *prefix, const char *name, const void *got) {
    const struct weir__safetensor *want = find(t, prefix, name);
    if (want == NULL) return;
    double error = 0, size = 0;
    for (size_t i = 0; i < count_of(want); i++) {
        double x = number(want->dtype, want->data, i), d = number(t->dtype, got, i) - x;
        error += d * d;
        size += x * x;
    }
    if (!(sqrt(error) <= tolerance(t) * sqrt(size)))
        TEST_FAIL("depth %u, %s: %s%s is off by %.2e of its size", t->unet->depth,
                  weir_dtype_name(t->dtype), prefix, name, sqrt(error / size));
}

/* Of two stage counts that follow one another one precision has split backwards, then the other. */
static void build(struct trial *t, uint32_t stages, uint32_t chunks, enum weir_checkpoint mode) {
    static char table[TRIAL_TABLE_BYTES];
    struct weir_unet_options unet = WEIR_UNET_OPTIONS_INIT;
    unet.depth = t->unet->depth;
    unet.num_convs = t->unet->num_convs;
    unet.base_channels = t->unet->base_channels;
    unet.height = t->unet->height;
    unet.width = t->unet->width;
    unet.dropout = 0;
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    options.pipe.allocator = test_allocator();
    options.pipe.bind = "none";
    options.pipe.rows = t->unet->rows;
    options.pipe.chunks = chunks;
    options.pipe.checkpoint = mode;
    options.pipe.threads_per_worker = 1;
    options.stages = stages;
    options.dtype = t->dtype;
    options.input_grads = true;
    if (stages % 2 == (t->dtype == WEIR_F32)) trial_split(&options, 100, table);
    EXPECT_STATUS(weir_model_unet(test_allocator(), &unet, NULL, &t->model), WEIR_OK);
    if (t->model != NULL) EXPECT_STATUS(weir_net_new(t->model, &options, NULL, &t->net), WEIR_OK);
}

static void step(struct trial *t) {
    struct weir_parameter parameter;
    struct weir_step_result result;
    for (uint32_t i = 0; i < weir_net_parameter_count(t->net); i++) {
        EXPECT_STATUS(weir_net_parameter(t->net, i, &parameter), WEIR_OK);
        const struct weir__safetensor *from = find(t, "param.", parameter.name);
        if (from != NULL && EXPECT_EQ_UINT(count_of(from), parameter.count))
            copy_numbers(t, from, parameter.data);
    }
    EXPECT_STATUS(weir_net_share(t->net), WEIR_OK);
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = t->unet->rows;
    batch.input = t->input;
    batch.target = t->target;
    batch.output = t->output;
    batch.input_grad = t->input_grad;
    batch.no_update = true;
    EXPECT_STATUS(weir_net_step(t->net, &batch, &result), WEIR_OK);
    EXPECT_NEAR(result.loss, number(WEIR_F64, find(t, "", "loss")->data, 0), tolerance(t));
    compare(t, "", "output", t->output);
    compare(t, "grad.", "input", t->input_grad);
    for (uint32_t i = 0; i < weir_net_parameter_count(t->net); i++) {
        EXPECT_STATUS(weir_net_parameter(t->net, i, &parameter), WEIR_OK);
        compare(t, "grad.", parameter.name, parameter.gradient);
    }
}

static void run(const struct unet *unet, enum weir_dtype dtype, uint32_t stages, uint32_t chunks,
                enum weir_checkpoint mode) {
    struct weir_error error = {0};
    struct weir__io io = {.allocator = test_allocator(), .error = &error};
    struct trial t = {.unet = unet, .dtype = dtype};
    CHECK_OK(weir__safetensors_open(&io, "tests/golden/unets.safetensors", NULL, &t.file));
    t.input = load(&t, "input");
    t.target = load(&t, "target");
    t.output = load(&t, "output");
    t.input_grad = load(&t, "grad.input");
    build(&t, stages, chunks, mode);
    if (t.net != NULL && !test_has_failed()) step(&t);
    weir_net_destroy(t.net);
    weir_model_destroy(t.model);
    release(&t, "input", t.input);
    release(&t, "target", t.target);
    release(&t, "output", t.output);
    release(&t, "grad.input", t.input_grad);
    weir__safetensors_close(t.file);
}

static void run_depth(uint32_t at) {
    static const enum weir_checkpoint modes[] = {WEIR_CHECKPOINT_NEVER, WEIR_CHECKPOINT_EXCEPT_LAST,
                                                 WEIR_CHECKPOINT_ALWAYS};
    for (uint32_t stages = 1; stages <= 4 && !test_has_failed(); stages++) {
        run(&unets[at], WEIR_F64, stages, 1 + stages % 2, modes[stages % 3]);
        run(&unets[at], WEIR_F32, stages, 1 + stages % 2, modes[stages % 3]);
    }
}

static void test_two_levels_are_pytorchs(void) {
    run_depth(0);
}

static void test_three_levels_are_pytorchs(void) {
    run_depth(1);
}

static void test_four_levels_are_pytorchs(void) {
    run_depth(2);
}

static void test_five_levels_are_pytorchs(void) {
    run_depth(3);
}

WEIR_TEST_SUITE(golden_unet, TEST(two_levels_are_pytorchs), TEST(three_levels_are_pytorchs),
                TEST(four_levels_are_pytorchs), TEST(five_levels_are_pytorchs))
