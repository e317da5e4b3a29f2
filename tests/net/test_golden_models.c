/* SPDX-License-Identifier: MIT */
/*
 * Goal: the built-in networks of images, whole, train to PyTorch's numbers: outputs, all gradients,
 * parameters and running numbers after ten updates, and inference by these. Method: against
 * golden/make_image_models.py's, from numbers that follow from names alone; of each tensor its norm
 * and one sum of products, for there are millions of numbers. That schedules, checkpoints and cuts
 * change no bit of them is test_image_models.c's.
 *
 * Tolerances: PyTorch's own float32 is so far from its float64 in the same run, which the file
 * holds. Which ReLUs flip by rounding is luck, and tensors may have two numbers, so f32 may be 32
 * times as far; it is f64 that is held tightly. There rounding grows as much, from a smaller
 * epsilon; the reference's sums are single chains where PyTorch's are trees, so 16 times that.
 */
#include "harness.h"
#include "io/safetensors.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4, CHUNKS = 2, CLASSES = 10, UPDATES = 10, UPDATES_QUICK = 2, SIDE_MOST = 224 };
enum { NUMBERS_MOST = ROWS * 3 * SIDE_MOST * SIDE_MOST, OUTPUT_MOST = ROWS * 64 * 64 };
static const double F32_SPREADS = 32, F64_SPREADS = 16 * DBL_EPSILON / FLT_EPSILON;

/* ---- numbers from names ---- */

static uint64_t seed_of(const char *prefix, const char *name) {
    const char *const parts[] = {prefix, name};
    uint64_t seed = UINT64_C(14695981039346656037);
    for (int i = 0; i < 2; i++)
        for (const char *c = parts[i]; *c != '\0'; c++)
            seed = (seed ^ (unsigned char)*c) * UINT64_C(1099511628211);
    return seed;
}

/** The i-th of them, in -1 to 1. */
static double number_of(uint64_t seed, uint64_t i) {
    uint64_t x = seed + (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (double)((x ^ (x >> 31)) >> 40) * 0x1p-23 - 1;
}

static void put(enum weir_dtype dtype, void *to, uint64_t i, double number) {
    if (dtype == WEIR_F64)
        ((double *)to)[i] = number;
    else
        ((float *)to)[i] = (float)number;
}

static double get(enum weir_dtype dtype, const void *from, uint64_t i) {
    return dtype == WEIR_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

static void begin_parameter(const struct weir_parameter *p) {
    uint64_t seed = seed_of("", p->name), fan_in = p->count / (uint64_t)p->shape[0];
    size_t length = strlen(p->name);
    bool branch = strstr(p->name, "bn3") != NULL || strstr(p->name, "downsample.1") != NULL;
    bool is_weight = length >= 6 && strcmp(p->name + length - 6, "weight") == 0;
    double scale = (double)(float)sqrt(3 / (double)fan_in);
    for (uint64_t i = 0; i < p->count; i++) {
        double own = number_of(seed, i);
        own = p->rank > 1 ? own * scale : (own / 4 + is_weight) / (branch ? 16 : 1);
        put(p->dtype, p->data, i, (double)(float)own);
    }
}

/* ---- the models ---- */

struct golden {
    const char *name;
    int side;
    double rate;
};
static const struct golden resnet = {"resnet101", 40, 0.0005},
                           amoebanet = {"amoebanetd", 224, 0.0002}, unet = {"unet", 64, 0.01};

static struct weir_model *model_of(const struct golden *golden) {
    struct weir_resnet_options of_resnet = WEIR_RESNET_OPTIONS_INIT;
    struct weir_amoebanet_options of_amoebanet = WEIR_AMOEBANET_OPTIONS_INIT;
    struct weir_unet_options of_unet = WEIR_UNET_OPTIONS_INIT;
    struct weir_model *model = NULL;
    int status;
    if (golden == &resnet) {
        of_resnet.classes = CLASSES;
        of_resnet.height = of_resnet.width = (uint32_t)golden->side;
        status = weir_model_resnet101(test_allocator(), &of_resnet, NULL, &model);
    } else if (golden == &amoebanet) {
        of_amoebanet.layers = 3;
        of_amoebanet.filters = 16;
        of_amoebanet.classes = CLASSES;
        status = weir_model_amoebanetd(test_allocator(), &of_amoebanet, NULL, &model);
    } else {
        of_unet.num_convs = 2;
        of_unet.base_channels = 4;
        of_unet.height = of_unet.width = (uint32_t)golden->side;
        of_unet.dropout = 0;
        status = weir_model_unet(test_allocator(), &of_unet, NULL, &model);
    }
    EXPECT_STATUS(status, WEIR_OK);
    return model;
}

/** A net and what PyTorch makes of it. */
struct trial {
    const struct golden *golden;
    struct weir__safetensors *file;
    enum weir_dtype dtype;
    struct weir_model *model;
    struct weir_net *net;
    double *input, *target, *output; /* numbers of the dtype; labels */
};

static int outputs_of(const struct trial *t) {
    return t->golden == &unet ? t->golden->side * t->golden->side : CLASSES;
}

static struct weir_net_batch batch_of(const struct trial *t, uint64_t update) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    char name[32];
    snprintf(name, sizeof name, "%llu", (unsigned long long)update);
    uint64_t seed = seed_of("input.", name), pixels = (uint64_t)(t->golden->side * t->golden->side);
    for (uint64_t i = 0; i < ROWS * 3 * pixels; i++) put(t->dtype, t->input, i, number_of(seed, i));
    for (int64_t i = 0; t->golden != &unet && i < ROWS; i++)
        ((int64_t *)(void *)t->target)[i] = i * 3 % CLASSES;
    for (uint64_t i = 0; t->golden == &unet && i < ROWS * pixels; i++) {
        uint64_t at = i / pixels * 3 * pixels + i % pixels;
        put(t->dtype, t->target, i, number_of(seed, at) + number_of(seed, at + pixels) > 0);
    }
    batch.rows = ROWS;
    batch.input = t->input;
    batch.target = t->target;
    batch.output = t->output;
    return batch;
}

/* ---- PyTorch's ---- */

enum kind { AFTERS, GRADS, INFER, LOSSES, OUTPUT, SPREADS };

static const double *numbers_in(const struct trial *t, const char *name, uint64_t count) {
    char full[64];
    snprintf(full, sizeof full, "%s/%s", t->golden->name, name);
    const struct weir__safetensor *tensor = weir__safetensors_find(t->file, full);
    if (tensor != NULL && tensor->dtype == WEIR_F64 && tensor->bytes == count * sizeof(double))
        return tensor->data;
    TEST_FAIL("the file holds no %s of %llu numbers", full, (unsigned long long)count);
    return NULL;
}

static void expect_near(const struct trial *t, enum kind kind, const char *what, double off) {
    const double *spread = numbers_in(t, "spread", SPREADS);
    double spreads = t->dtype == WEIR_F64 ? F64_SPREADS : F32_SPREADS;
    if (spread != NULL && !(off <= spreads * spread[kind]))
        TEST_FAIL("%s, %s: %s is off by %.3g, at most %.3g", t->golden->name,
                  weir_dtype_name(t->dtype), what, off, spreads * spread[kind]);
}

/** Relative to the whole. */
static void check_list(const struct trial *t, enum kind kind, const char *name,
                       enum weir_dtype dtype, const void *got, uint64_t count, uint64_t all) {
    const double *want = numbers_in(t, name, all);
    double off = 0, size = 0;
    for (uint64_t i = 0; want != NULL && i < count; i++) {
        off += pow(get(dtype, got, i) - want[i], 2);
        size += pow(want[i], 2);
    }
    if (want != NULL) expect_near(t, kind, name, sqrt(off / size));
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const struct weir_parameter *)a)->name,
                  ((const struct weir_parameter *)b)->name);
}

static void check_tensor(const struct trial *t, enum kind kind, const struct weir_parameter *p,
                         const double want[2]) {
    const void *got = kind == GRADS ? p->gradient : p->data;
    uint64_t seed = seed_of("check.", p->name);
    double squares = 0, sum = 0;
    if (!EXPECT(got != NULL)) return;
    for (uint64_t i = 0; i < p->count; i++) {
        double x = get(p->dtype, got, i);
        squares += x * x;
        sum += x * number_of(seed, i);
    }
    expect_near(t, kind, p->name, hypot(sqrt(squares) - want[0], sum - want[1]) / want[0]);
}

/** Of all parameters; `afters`: and of running numbers. */
static void check_parameters(const struct trial *t, enum kind kind) {
    uint32_t all = weir_net_parameter_count(t->net), count = 0;
    struct weir_parameter *list = calloc(all, sizeof *list);
    for (uint32_t i = 0; list != NULL && i < all; i++) {
        EXPECT_STATUS(weir_net_parameter(t->net, i, &list[count]), WEIR_OK);
        bool wanted = list[count].dtype == t->dtype && (kind == AFTERS || !list[count].statistic);
        count += wanted;
    }
    CHECK(list != NULL && count > 0);
    qsort(list, count, sizeof *list, compare_names);
    const double *want = numbers_in(t, kind == GRADS ? "grads" : "afters", 2 * (uint64_t)count);
    for (uint32_t i = 0; want != NULL && i < count; i++)
        check_tensor(t, kind, &list[i], want + 2 * (size_t)i);
    free(list);
}

static void train(const struct trial *t, uint64_t updates) {
    uint64_t outputs = ROWS * (uint64_t)outputs_of(t);
    struct weir_step_result result;
    double losses[UPDATES];
    for (uint64_t k = 0; k < updates && !test_has_failed(); k++) {
        struct weir_net_batch batch = batch_of(t, k);
        EXPECT_STATUS(weir_net_step(t->net, &batch, &result), WEIR_OK);
        losses[k] = result.loss;
        if (k > 0) continue;
        check_list(t, OUTPUT, "output", t->dtype, t->output, outputs, outputs);
        check_parameters(t, GRADS);
    }
    if (test_has_failed()) return;
    check_list(t, LOSSES, "losses", WEIR_F64, losses, updates, UPDATES);
    if (updates < UPDATES) return;
    check_parameters(t, AFTERS);
    struct weir_net_batch batch = batch_of(t, 0);
    EXPECT_STATUS(weir_net_infer(t->net, &batch, &result), WEIR_OK);
    check_list(t, INFER, "infer", t->dtype, t->output, outputs, outputs);
}

static void begin(struct trial *t, uint32_t stages) {
    struct weir_net_options options = trial_options(stages, ROWS, CHUNKS);
    struct weir_parameter p;
    options.dtype = t->dtype;
    options.optimizer =
        (struct weir_optimizer){.kind = WEIR_OPTIMIZER_SGD, .lr = t->golden->rate, .momentum = 0.9};
    t->model = model_of(t->golden);
    t->net = trial_net(t->model, &options);
    for (uint32_t i = 0; !test_has_failed() && i < weir_net_parameter_count(t->net); i++) {
        EXPECT_STATUS(weir_net_parameter(t->net, i, &p), WEIR_OK);
        if (!p.statistic) begin_parameter(&p);
    }
    if (!test_has_failed()) EXPECT_STATUS(weir_net_share(t->net), WEIR_OK);
}

static void run(const struct golden *golden, enum weir_dtype dtype, uint32_t stages,
                uint64_t updates) {
    struct weir_error error = {0};
    struct weir__io io = {.allocator = test_allocator(), .error = &error};
    struct trial t = {.golden = golden, .dtype = dtype};
    CHECK_OK(weir__safetensors_open(&io, "tests/golden/image_models.safetensors", NULL, &t.file));
    t.input = calloc(NUMBERS_MOST, sizeof *t.input);
    t.target = calloc(NUMBERS_MOST, sizeof *t.target);
    t.output = calloc(OUTPUT_MOST, sizeof *t.output);
    if (EXPECT(t.input != NULL && t.target != NULL && t.output != NULL)) begin(&t, stages);
    if (!test_has_failed()) train(&t, updates);
    free(t.input);
    free(t.target);
    free(t.output);
    weir_net_destroy(t.net);
    weir_model_destroy(t.model);
    weir__safetensors_close(t.file);
}

static void test_resnet101_is_pytorchs_in_f32(void) {
    run(&resnet, WEIR_F32, 4, UPDATES);
}

/* The reference takes its time. */
static void test_resnet101_is_pytorchs_in_f64(void) {
    run(&resnet, WEIR_F64, 2, test_count(UPDATES_QUICK, UPDATES));
}

static void test_amoebanetd_is_pytorchs_in_f32(void) {
    run(&amoebanet, WEIR_F32, 3, UPDATES);
}

static void test_amoebanetd_is_pytorchs_in_f64(void) {
    run(&amoebanet, WEIR_F64, 2, UPDATES);
}

static void test_unet_is_pytorchs_in_f32(void) {
    run(&unet, WEIR_F32, 4, UPDATES);
}

static void test_unet_is_pytorchs_in_f64(void) {
    run(&unet, WEIR_F64, 3, UPDATES);
}

WEIR_TEST_SUITE(golden_models, TEST(resnet101_is_pytorchs_in_f32),
                TEST(resnet101_is_pytorchs_in_f64), TEST(amoebanetd_is_pytorchs_in_f32),
                TEST(amoebanetd_is_pytorchs_in_f64), TEST(unet_is_pytorchs_in_f32),
                TEST(unet_is_pytorchs_in_f64))
