/* SPDX-License-Identifier: MIT */
/*
 * Goal: batch norm gives PyTorch's numbers on the same micro-batches, its running numbers those of
 * the whole mini-batch, and both the same bits whatever the pipeline and whatever is recomputed;
 * and the networks made of it are upstream's. Method: files written by golden/make_batch_norm.py
 * in float64; and nets that are compared with each other.
 *
 * Tolerances are relative, per tensor, in the 2-norm. f64: 1e-11. f32: as test_golden_nets.c's, of
 * the longest path, through three cells of ten sums of 16 channels and 24 x 16 pixels.
 */
#include "harness.h"
#include "io/safetensors.h"
#include "net/moments.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { ROWS = 7, CHUNKS = 3, UPDATES = 3, NUMBERS_MAX = 1 << 16 };

/* ---- a net and its file ---- */

struct trial {
    struct weir__safetensors *file;
    enum weir_dtype dtype;
    struct weir_model *model;
    struct weir_net *net;
    bool plain; /**< running numbers move by each micro-batch */
    char where[160];
};

static const struct weir__safetensor *find(const struct trial *t, const char *prefix,
                                           const char *name) {
    char full[128];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    const struct weir__safetensor *tensor = weir__safetensors_find(t->file, full);
    if (tensor == NULL) TEST_FAIL("%s: the file holds no %s", t->where, full);
    return tensor;
}

static double at(enum weir_dtype dtype, const void *data, uint64_t i) {
    return dtype == WEIR_I64 ? (double)((const int64_t *)data)[i] : weir__number_at(dtype, data, i);
}

static uint64_t count_of(const struct weir__safetensor *tensor) {
    return tensor->bytes / weir_dtype_bytes(tensor->dtype);
}

static void compare(const struct trial *t, const char *prefix, const char *name,
                    enum weir_dtype dtype, const void *got) {
    const struct weir__safetensor *want = find(t, prefix, name);
    double length = 3 * (3 * 10 * (16.0 + 24 * 16) + 9 * 6 + 20), error = 0, size = 0;
    double tolerance = t->dtype == WEIR_F64 ? 1e-11 : 8 * (double)FLT_EPSILON * sqrt(length);
    if (want == NULL || !EXPECT(got != NULL)) return;
    for (uint64_t i = 0; i < count_of(want); i++) {
        double x = at(want->dtype, want->data, i), d = at(dtype, got, i) - x;
        error += d * d;
        size += x * x;
    }
    if (!(sqrt(error) <= tolerance * sqrt(size)))
        TEST_FAIL("%s: %s%s is off by %.2e of its size", t->where, prefix, name,
                  sqrt(error / size));
}

/** At the trial's dtype where they are real. */
static void load(const struct trial *t, const char *name, uint64_t number, void *to) {
    char numbered[32];
    snprintf(numbered, sizeof numbered, "%s%llu", name, (unsigned long long)number);
    const struct weir__safetensor *from = find(t, "", numbered);
    if (from == NULL || !EXPECT(count_of(from) <= NUMBERS_MAX)) return;
    for (uint64_t i = 0; i < count_of(from); i++) {
        double x = at(from->dtype, from->data, i);
        if (from->dtype == WEIR_I64)
            ((int64_t *)to)[i] = (int64_t)x;
        else if (t->dtype == WEIR_F64)
            ((double *)to)[i] = x;
        else
            ((float *)to)[i] = (float)x;
    }
}

/** Memory of a step. */
static double input[NUMBERS_MAX], input_grad[NUMBERS_MAX], output[NUMBERS_MAX];
static int64_t target[ROWS];

static struct weir_net_batch batch_of(const struct trial *t, uint64_t number) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    load(t, "input.", number, input);
    load(t, "target.", number, target);
    batch.rows = ROWS;
    batch.input = input;
    batch.target = target;
    batch.output = output;
    batch.input_grad = input_grad;
    return batch;
}

static void begin(struct trial *t) {
    struct weir_parameter p;
    for (uint32_t i = 0; i < weir_net_parameter_count(t->net); i++) {
        EXPECT_STATUS(weir_net_parameter(t->net, i, &p), WEIR_OK);
        const struct weir__safetensor *from = find(t, "param.", p.name);
        if (from == NULL || !EXPECT_EQ_UINT(count_of(from), p.count)) return;
        EXPECT_EQ_UINT(p.dtype == WEIR_I64, from->dtype == WEIR_I64);
        for (uint64_t k = 0; k < p.count; k++) {
            double x = at(from->dtype, from->data, k);
            if (p.dtype == WEIR_I64)
                ((int64_t *)p.data)[k] = (int64_t)x;
            else if (p.dtype == WEIR_F64)
                ((double *)p.data)[k] = x;
            else
                ((float *)p.data)[k] = (float)x;
        }
    }
    EXPECT_STATUS(weir_net_share(t->net), WEIR_OK);
}

/** Of all parameters and statistics; of the statistics alone. */
static void digest(const struct weir_net *net, uint64_t digests[2]) {
    struct weir_parameter p;
    digests[0] = digests[1] = WEIR__HASH_BEGIN;
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        EXPECT_STATUS(weir_net_parameter(net, i, &p), WEIR_OK);
        size_t bytes = (size_t)p.count * weir_dtype_bytes(p.dtype);
        digests[0] = weir__hash(digests[0], p.data, bytes);
        if (p.statistic) digests[1] = weir__hash(digests[1], p.data, bytes);
    }
}

/* ---- PyTorch's numbers in every mode ---- */

static const struct mode {
    uint32_t stages, workers;
    const char *schedule;
    enum weir_checkpoint checkpoint;
    bool late;
} modes[] = {{1, 0, "1f1b", WEIR_CHECKPOINT_NEVER, false},
             {1, 0, "1f1b", WEIR_CHECKPOINT_ALWAYS, true},
             {2, 0, "1f1b", WEIR_CHECKPOINT_EXCEPT_LAST, false},
             {2, 0, "zb-h1", WEIR_CHECKPOINT_ALWAYS, false},
             {3, 0, "1f1b", WEIR_CHECKPOINT_ALWAYS, true},
             {3, 0, "zb-h2", WEIR_CHECKPOINT_NEVER, false},
             {4, 2, "zb-v", WEIR_CHECKPOINT_ALWAYS, false},
             {4, 2, "interleaved", WEIR_CHECKPOINT_EXCEPT_LAST, true},
             {4, 2, "zb-v", WEIR_CHECKPOINT_NEVER, false},
             /* gradients in descending order: other bits of parameters */
             {1, 0, "gpipe", WEIR_CHECKPOINT_ALWAYS, false},
             {2, 0, "gpipe", WEIR_CHECKPOINT_EXCEPT_LAST, true},
             {4, 0, "gpipe", WEIR_CHECKPOINT_NEVER, false}};

static void make_net(struct trial *t, const struct mode *mode) {
    struct weir_net_options options = trial_options(mode->stages, ROWS, CHUNKS);
    snprintf(t->where, sizeof t->where, "%s, %u stages, %s, %s", weir_dtype_name(t->dtype),
             mode->stages, mode->schedule, weir_checkpoint_name(mode->checkpoint));
    options.dtype = t->dtype;
    options.input_grads = true;
    options.pipe.schedule = mode->schedule;
    options.pipe.workers = mode->workers;
    options.pipe.checkpoint = mode->checkpoint;
    options.pipe.recompute_late = mode->late;
    options.optimizer =
        (struct weir_optimizer){.kind = WEIR_OPTIMIZER_SGD, .lr = 0.05, .momentum = 0.8};
    struct weir_faults faults = WEIR_FAULTS_INIT;
    faults.allocator = test_allocator();
    if (weir_net_new(t->model, &options, &faults, &t->net) != WEIR_OK)
        TEST_FAIL("%s: %s", t->where, faults.kept > 0 ? faults.lines[0] : "");
    weir_faults_clean_up(&faults);
}

static void train(struct trial *t) {
    struct weir_step_result result;
    struct weir_parameter p;
    for (uint64_t k = 0; k < UPDATES && !test_has_failed(); k++) {
        struct weir_net_batch batch = batch_of(t, k);
        EXPECT_STATUS(weir_net_step(t->net, &batch, &result), WEIR_OK);
        if (k > 0) continue;
        compare(t, "", "loss", WEIR_F64, &result.loss);
        compare(t, "", "output", t->dtype, output);
        compare(t, "grad.", "input", t->dtype, input_grad);
        for (uint32_t i = 0; i < weir_net_parameter_count(t->net); i++) {
            EXPECT_STATUS(weir_net_parameter(t->net, i, &p), WEIR_OK);
            EXPECT_EQ_UINT(p.statistic, p.gradient == NULL);
            if (!p.statistic) compare(t, "grad.", p.name, p.dtype, p.gradient);
        }
    }
    for (uint32_t i = 0; i < weir_net_parameter_count(t->net); i++) {
        EXPECT_STATUS(weir_net_parameter(t->net, i, &p), WEIR_OK);
        bool plain = t->plain && p.statistic && strstr(p.name, "downsample") == NULL;
        compare(t, plain ? "plain." : "after.", p.name, p.dtype, p.data);
    }
    struct weir_net_batch batch = batch_of(t, 0);
    EXPECT_STATUS(weir_net_infer(t->net, &batch, &result), WEIR_OK);
    compare(t, t->plain ? "plain." : "", "infer", t->dtype, output);
}

/** The numbers of `name`; `plain`: the model beside it whose batch norms are not deferred. */
static void run_modes(const char *name, enum weir_dtype dtype, const char *plain) {
    char path[64];
    struct weir_error error = {0};
    struct weir__io io = {.allocator = test_allocator(), .error = &error};
    struct trial t = {.dtype = dtype, .plain = plain != NULL};
    uint64_t all[2] = {0, 0}, statistics = 0;
    snprintf(path, sizeof path, "tests/golden/%s.safetensors", name);
    CHECK_OK(weir__safetensors_open(&io, path, NULL, &t.file));
    snprintf(path, sizeof path, "tests/golden/%s.json", t.plain ? plain : name);
    EXPECT_STATUS(weir_model_read(test_allocator(), path, NULL, &t.model), WEIR_OK);
    for (size_t i = 0; i < WEIR__COUNT_OF(modes) && !test_has_failed(); i++) {
        uint64_t digests[2];
        bool descending = strcmp(modes[i].schedule, "gpipe") == 0;
        t.net = NULL;
        make_net(&t, &modes[i]);
        if (test_has_failed()) break;
        begin(&t);
        train(&t);
        digest(t.net, digests);
        if (all[descending] == 0) all[descending] = digests[0];
        if (!EXPECT_EQ_UINT(digests[0], all[descending])) TEST_FAIL("%s", t.where);
        if (i == 0) statistics = digests[1];
        if (!descending) EXPECT_EQ_UINT(digests[1], statistics);
        weir_net_destroy(t.net);
        t.net = NULL;
    }
    weir_net_destroy(t.net);
    weir_model_destroy(t.model);
    weir__safetensors_close(t.file);
}

// BN-1, BN-2, BN-3
static void test_layers_are_pytorchs_in_f64(void) {
    run_modes("batch_layers", WEIR_F64, NULL);
}

static void test_layers_are_pytorchs_in_f32(void) {
    run_modes("batch_layers", WEIR_F32, NULL);
}

static void test_plain_layers_are_pytorchs_by_micro_batches(void) {
    run_modes("batch_layers", WEIR_F64, "batch_plain");
    run_modes("batch_layers", WEIR_F32, "batch_plain");
}

static void test_cells_are_pytorchs_in_f64(void) {
    run_modes("amoeba_layers", WEIR_F64, NULL);
}

static void test_cells_are_pytorchs_in_f32(void) {
    run_modes("amoeba_layers", WEIR_F32, NULL);
}

/* ---- running numbers ---- */

/** A batch norm between two layers that learn, of 3 channels. */
static struct weir_model *small_model(bool frozen) {
    struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 2, 2}};
    struct weir_tensor out = {.dtype = WEIR_F32, .rank = 1, .shape = {2}};
    struct weir_model *model = trial_model(image, out, "mse");
    trial_add(model, "batch_norm2d", WEIR_ATTRS(WEIR_ATTR_FLAG("frozen", frozen)));
    trial_add(model, "flatten", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 2)));
    return model;
}

enum { SMALL_ROWS = 12, SMALL = SMALL_ROWS * 3 * 4 };

struct small {
    struct weir_model *model;
    struct weir_net *net;
    float input[SMALL], target[2 * SMALL_ROWS];
};

static void small_init(struct small *s, bool frozen, uint32_t chunks, const char *schedule,
                       uint32_t groups, double offset) {
    struct weir_net_options options = trial_options(1, SMALL_ROWS, chunks);
    options.dtype = WEIR_F32;
    options.pipe.schedule = schedule;
    options.pipe.gradient_groups = groups;
    options.pipe.accumulates = groups > 1;
    options.optimizer = (struct weir_optimizer){.kind = WEIR_OPTIMIZER_SGD, .lr = 0.01};
    s->model = small_model(frozen);
    s->net = trial_net(s->model, &options);
    for (int i = 0; i < SMALL; i++)
        s->input[i] = (float)(offset + (double)((i * 37) % 101) / 50 - 1);
    memset(s->target, 0, sizeof s->target);
}

static void small_clean_up(struct small *s) {
    weir_net_destroy(s->net);
    weir_model_destroy(s->model);
}

static struct weir_net_batch small_batch(const struct small *s, int64_t first, int64_t rows) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = rows;
    batch.input = s->input + 12 * first;
    batch.target = s->target + 2 * first;
    batch.loss_weight = 2 * SMALL_ROWS;
    return batch;
}

static const void *numbers_of(const struct small *s, const char *name) {
    struct weir_parameter p;
    for (uint32_t i = 0; i < weir_net_parameter_count(s->net); i++)
        if (weir_net_parameter(s->net, i, &p) == WEIR_OK && strcmp(p.name, name) == 0)
            return p.data;
    TEST_FAIL("no %s", name);
    return NULL;
}

/** PyTorch's rule in double: what channel c's become of (0, 1). */
static void expect_moved(const struct small *s, double momentum) {
    const float *mean = numbers_of(s, "0.running_mean"), *var = numbers_of(s, "0.running_var");
    for (int c = 0; c < 3; c++) {
        double sum = 0, squares = 0, count = SMALL_ROWS * 4;
        for (int i = 0; i < SMALL; i++)
            if (i / 4 % 3 == c) sum += (double)s->input[i];
        for (int i = 0; i < SMALL; i++)
            if (i / 4 % 3 == c) squares += pow((double)s->input[i] - sum / count, 2);
        EXPECT_NEAR((double)mean[c], momentum * sum / count, 1e-6 * fabs(sum / count) + 1e-7);
        EXPECT_NEAR((double)var[c], 1 - momentum + momentum * squares / (count - 1), 1e-6);
    }
    EXPECT(*(const int64_t *)numbers_of(s, "0.num_batches_tracked") == 1);
}

/** Squares of numbers whose mean is 30,000 times their deviation have no digit of it in F32. */
static void test_a_mean_far_from_0_leaves_the_variance_its_digits(void) {
    static const double offsets[] = {0, 1000, -20000};
    for (size_t i = 0; i < WEIR__COUNT_OF(offsets); i++) {
        struct small s;
        small_init(&s, false, 5, "1f1b", 1, offsets[i]);
        struct weir_net_batch batch = small_batch(&s, 0, SMALL_ROWS);
        EXPECT_STATUS(weir_net_step(s.net, &batch, NULL), WEIR_OK);
        expect_moved(&s, 0.1);
        small_clean_up(&s);
    }
}

/** One update by one mini-batch, by two, by any order of backwards: nothing of it is in the bits,
 * as long as micro-batches are the same. */
static void test_how_a_mini_batch_is_added_up_is_not_in_the_bits(void) {
    static const char *const schedules[] = {"1f1b", "gpipe"};
    static const uint32_t groups[] = {1, 2, 2, 1};
    uint64_t first = 0;
    for (int i = 0; i < 4; i++) {
        struct small s;
        uint64_t digests[2];
        small_init(&s, false, i < 2 ? 4 : 2, schedules[i % 2], groups[i], 3);
        struct weir_net_batch batch = small_batch(&s, 0, i < 2 ? SMALL_ROWS : SMALL_ROWS / 2);
        batch.accumulate_more = i >= 2;
        EXPECT_STATUS(weir_net_step(s.net, &batch, NULL), WEIR_OK);
        if (i >= 2) {
            EXPECT(*(const int64_t *)numbers_of(&s, "0.num_batches_tracked") == 0);
            batch = small_batch(&s, SMALL_ROWS / 2, SMALL_ROWS / 2);
            batch.accumulate_next = true;
            EXPECT_STATUS(weir_net_step(s.net, &batch, NULL), WEIR_OK);
        }
        expect_moved(&s, 0.1);
        digest(s.net, digests);
        if (i == 0) first = digests[1];
        EXPECT_EQ_UINT(digests[1], first);
        small_clean_up(&s);
    }
}

static void test_steps_that_update_nothing_leave_them(void) {
    struct small s;
    uint64_t before[2], after[2];
    small_init(&s, false, 3, "1f1b", 1, 0);
    struct weir_net_batch batch = small_batch(&s, 0, SMALL_ROWS);
    digest(s.net, before);
    batch.no_update = true;
    EXPECT_STATUS(weir_net_step(s.net, &batch, NULL), WEIR_OK);
    EXPECT_STATUS(weir_net_infer(s.net, &batch, NULL), WEIR_OK);
    batch.no_update = false;
    s.input[5] = NAN;
    EXPECT_STATUS(weir_net_step(s.net, &batch, NULL), WEIR_ERR_NONFINITE);
    digest(s.net, after);
    EXPECT_EQ_UINT(after[0], before[0]);
    s.input[5] = 0;
    EXPECT_STATUS(weir_net_step(s.net, &batch, NULL), WEIR_OK);
    expect_moved(&s, 0.1); /* what failed left nothing behind */
    small_clean_up(&s);
}

/** Nothing tells how many micro-batches of the update are to come. */
static void test_plain_batch_norm_accumulates_no_mini_batches(void) {
    struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 2, 2}};
    struct weir_net_options options = trial_options(1, 4, 2);
    float numbers[48] = {1, 2, 3};
    struct weir_step_result result;
    options.dtype = WEIR_F32;
    struct weir_model *model = trial_model(image, image, "mse");
    trial_add(model, "batch_norm2d", WEIR_ATTRS(WEIR_ATTR_FLAG("deferred", false)));
    struct weir_net *net = trial_net(model, &options);
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = 4;
    batch.input = batch.target = numbers;
    batch.loss_weight = 96;
    batch.accumulate_more = true;
    EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_ERR_UNSUPPORTED);
    EXPECT_CONTAINS(result.error.message, "0.running_mean");
    batch.accumulate_more = false;
    EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    weir_net_destroy(net);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    options.pipe.accumulates = true; /* what `train` says, before it begins */
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_CONFIG);
    EXPECT(faults.count == 1);
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

/** By its attribute, and by a pattern that its parameters match. */
static void test_a_frozen_layer_keeps_them(void) {
    static const char *const patterns[] = {NULL, "0.*", "*.weight"};
    for (int i = 0; i < 3; i++) {
        struct small s;
        small_init(&s, i == 0, 3, "1f1b", 1, 4);
        struct weir_net_options options = trial_options(1, SMALL_ROWS, 3);
        options.dtype = WEIR_F32;
        options.optimizer = (struct weir_optimizer){.kind = WEIR_OPTIMIZER_SGD, .lr = 0.01};
        weir_net_destroy(s.net);
        if (patterns[i] != NULL) CHECK_OK(weir_model_freeze(s.model, patterns[i]));
        s.net = trial_net(s.model, &options);
        struct weir_net_batch batch = small_batch(&s, 0, SMALL_ROWS);
        EXPECT_STATUS(weir_net_step(s.net, &batch, NULL), WEIR_OK);
        EXPECT_EQ_UINT(((const float *)numbers_of(&s, "0.running_mean"))[1] == 0, i < 2);
        EXPECT(*(const int64_t *)numbers_of(&s, "0.num_batches_tracked") == i / 2);
        small_clean_up(&s);
    }
}

static void test_files_hold_them(void) {
    struct small s, other;
    uint64_t saved[2], loaded[2];
    char path[64];
    struct weir_error error = {0};
    struct weir_progress progress = {.step = 1, .mini_batch = 1};
    snprintf(path, sizeof path, "/tmp/weir_batch_norm_%ld.safetensors", (long)getpid());
    small_init(&s, false, 3, "1f1b", 1, 4);
    small_init(&other, false, 3, "1f1b", 1, 4);
    struct weir_net_batch batch = small_batch(&s, 0, SMALL_ROWS);
    EXPECT_STATUS(weir_net_step(s.net, &batch, NULL), WEIR_OK);
    EXPECT_STATUS(weir_net_save(s.net, path, &progress, &error), WEIR_OK);
    EXPECT_STATUS(weir_net_load(other.net, path, &progress, NULL), WEIR_OK);
    digest(s.net, saved);
    digest(other.net, loaded);
    EXPECT_EQ_UINT(loaded[0], saved[0]);
    EXPECT(*(const int64_t *)numbers_of(&other, "0.num_batches_tracked") == 1);
    unlink(path);
    small_clean_up(&other);
    small_clean_up(&s);
}

static void test_one_number_per_channel_is_refused(void) {
    struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 1, 1}};
    struct weir_tensor out = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 1, 1}};
    struct weir_net_options options = trial_options(1, 4, 2);
    float numbers[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    struct weir_step_result result;
    options.dtype = WEIR_F32;
    options.optimizer = (struct weir_optimizer){.kind = WEIR_OPTIMIZER_SGD, .lr = 0.01};
    struct weir_model *model = trial_model(image, out, "mse");
    trial_add(model, "batch_norm2d", WEIR_NO_ATTRS);
    struct weir_net *net = trial_net(model, &options);
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = 2;
    batch.input = batch.target = numbers;
    EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_ERR_ROWS);
    EXPECT_CONTAINS(result.error.message, "more than one number per channel");
    EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_OK);
    batch.rows = 4;
    EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/* ---- exact sums ---- */

static double sum_of_terms(const double *values, int count, const int *order) {
    float moments[3 * WEIR__MOMENT_DIGITS] = {0}, mean = 0, variance = 0;
    int64_t batches = 0;
    for (int i = 0; i < count; i++) {
        struct weir__term term = weir__term_of(values[order[i]]);
        for (int k = 0; k < term.count; k++) moments[term.first - k] += (float)term.digits[k];
    }
    struct weir__term one = weir__term_of(1);
    moments[2 * WEIR__MOMENT_DIGITS + one.first] = (float)one.digits[0];
    const struct weir__running_numbers numbers = {.dtype = WEIR_F32,
                                                  .channels = 1,
                                                  .moments = moments,
                                                  .mean = &mean,
                                                  .variance = &variance,
                                                  .batches = &batches};
    weir__running_move(&numbers, 1);
    return (double)mean;
}

static void test_moments_are_exact_in_any_order(void) {
    static const double values[] = {1e30, 3.5, -1e30, 1e-20, -2.25, 1e15, -1e15, 0};
    static const int up[] = {0, 1, 2, 3, 4, 5, 6, 7}, mixed[] = {5, 3, 0, 7, 4, 2, 1, 6};
    EXPECT(sum_of_terms(values, 8, up) == 1.25);
    EXPECT(sum_of_terms(values, 8, mixed) == 1.25);
    static const double lost[] = {INFINITY, 1, 1e300, NAN};
    EXPECT(isinf(sum_of_terms(lost, 2, up)));
    EXPECT(isinf(sum_of_terms(lost + 2, 1, up)));
    EXPECT(isnan(sum_of_terms(lost, 4, up)));
}

/* ---- upstream's networks ---- */

static void expect_counts(struct weir_model *model, uint32_t layers, uint64_t parameters) {
    static struct weir_layer_facts facts[2200];
    uint64_t sum = 0;
    CHECK(model != NULL);
    CHECK_EQ_UINT(weir_model_layer_count(model), layers);
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, NULL), WEIR_OK);
    for (uint32_t i = 0; i < layers; i++) sum += facts[i].parameters;
    EXPECT_EQ_UINT(sum, parameters);
    weir_model_destroy(model);
}

static void test_networks_have_upstreams_layers_and_parameters(void) {
    static const struct {
        uint32_t layers, filters;
        uint64_t parameters;
    } amoebanets[] = {{18, 208, 81505540},  {18, 256, 122470120},  {18, 416, 319024120},
                      {18, 544, 542734840}, {36, 544, 1055832376}, {72, 512, 1844858344}};
    static const struct {
        uint32_t convs, channels;
        uint64_t parameters;
    } unets[] = {{5, 64, 232687328},    {6, 72, 362157516},    {11, 128, 2213834176},
                 {24, 128, 4993859008}, {24, 160, 7802903600}, {48, 160, 15822206000}};
    struct weir_model *model = NULL;
    for (size_t i = 0; i < WEIR__COUNT_OF(amoebanets); i++) {
        struct weir_amoebanet_options options = WEIR_AMOEBANET_OPTIONS_INIT;
        options.layers = amoebanets[i].layers;
        options.filters = amoebanets[i].filters;
        EXPECT_STATUS(weir_model_amoebanetd(test_allocator(), &options, NULL, &model), WEIR_OK);
        expect_counts(model, options.layers + 6, amoebanets[i].parameters);
    }
    for (size_t i = 0; i < WEIR__COUNT_OF(unets); i++) {
        struct weir_unet_options options = WEIR_UNET_OPTIONS_INIT;
        options.num_convs = unets[i].convs;
        options.base_channels = unets[i].channels;
        EXPECT_STATUS(weir_model_unet(test_allocator(), &options, NULL, &model), WEIR_OK);
        expect_counts(model, 44 * unets[i].convs + 21, unets[i].parameters);
    }
    struct weir_resnet_options options = WEIR_RESNET_OPTIONS_INIT;
    EXPECT_STATUS(weir_model_resnet101(test_allocator(), &options, NULL, &model), WEIR_OK);
    expect_counts(model, 370, 44549160);
}

static void test_amoebanet_has_upstreams_parameters_in_each_layer(void) {
    static const uint64_t wanted[] = {1856,     74304,    343168,   676096,   839936,   905472,
                                      905472,   905472,   905472,   1956096,  2826752,  3351040,
                                      3613184,  3613184,  3613184,  3613184,  7811584,  11289600,
                                      13386752, 14435328, 14435328, 14435328, 14435328, 4097000};
    struct weir_amoebanet_options options = WEIR_AMOEBANET_OPTIONS_INIT;
    struct weir_layer_facts facts[WEIR__COUNT_OF(wanted)];
    struct weir_model *model = NULL;
    CHECK_OK(weir_model_amoebanetd(test_allocator(), &options, NULL, &model));
    EXPECT_STATUS(weir_model_infer(model, WEIR_F32, facts, NULL), WEIR_OK);
    for (size_t i = 0; i < WEIR__COUNT_OF(wanted); i++)
        EXPECT_EQ_UINT(facts[i].parameters, wanted[i]);
    weir_model_destroy(model);
}

/** Layers whose batch norm begins with weights of 0. */
static uint32_t count_zeros(bool zero_init_residual) {
    struct weir_resnet_options options = WEIR_RESNET_OPTIONS_INIT;
    struct weir_model *model = NULL;
    const char *type, *name;
    struct weir_attrs attrs;
    uint32_t count = 0;
    options.zero_init_residual = zero_init_residual;
    EXPECT_STATUS(weir_model_resnet101(test_allocator(), &options, NULL, &model), WEIR_OK);
    for (uint32_t i = 0; weir_model_layer(model, i, &type, &name, &attrs) == WEIR_OK; i++)
        for (uint32_t a = 0; strcmp(type, "batch_norm2d") == 0 && a < attrs.count; a++)
            if (strcmp(attrs.list[a].key, "zero_init") == 0 && attrs.list[a].integer != 0)
                count += EXPECT(strstr(name, ".bn3") != NULL);
    weir_model_destroy(model);
    return count;
}

static void test_blocks_begin_as_identities_on_request(void) {
    static const struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 2, 2}};
    struct weir_net_options options = trial_options(1, 4, 2);
    EXPECT_EQ_UINT(count_zeros(true), 33);
    EXPECT_EQ_UINT(count_zeros(false), 0);
    for (int zero = 0; zero < 2; zero++) {
        struct weir_model *model = trial_model(image, image, "mse");
        trial_add(model, "batch_norm2d", WEIR_ATTRS(WEIR_ATTR_FLAG("zero_init", zero)));
        struct weir_net *net = trial_net(model, &options);
        struct weir_parameter p;
        for (uint32_t i = 0; net != NULL && i < weir_net_parameter_count(net); i++) {
            EXPECT_STATUS(weir_net_parameter(net, i, &p), WEIR_OK);
            if (strcmp(p.name, "0.weight") == 0)
                for (uint64_t k = 0; k < 3; k++)
                    EXPECT(weir__number_at(p.dtype, p.data, k) == 1 - zero);
        }
        weir_net_destroy(net);
        weir_model_destroy(model);
    }
}

WEIR_TEST_SUITE(batch_norm, TEST(layers_are_pytorchs_in_f64), TEST(layers_are_pytorchs_in_f32),
                TEST(plain_layers_are_pytorchs_by_micro_batches),
                TEST(plain_batch_norm_accumulates_no_mini_batches), TEST(cells_are_pytorchs_in_f64),
                TEST(cells_are_pytorchs_in_f32),
                TEST(a_mean_far_from_0_leaves_the_variance_its_digits),
                TEST(how_a_mini_batch_is_added_up_is_not_in_the_bits),
                TEST(steps_that_update_nothing_leave_them), TEST(a_frozen_layer_keeps_them),
                TEST(files_hold_them), TEST(one_number_per_channel_is_refused),
                TEST(moments_are_exact_in_any_order),
                TEST(networks_have_upstreams_layers_and_parameters),
                TEST(amoebanet_has_upstreams_parameters_in_each_layer),
                TEST(blocks_begin_as_identities_on_request))
