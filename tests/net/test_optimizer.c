/* SPDX-License-Identifier: MIT */
/*
 * Goal: updates and learning rates are PyTorch's formulas.
 * Method: nets of one linear layer take steps; its parameters are compared with the formulas
 * written out in double. Learning rates are compared at the points that define them.
 */
#include "harness.h"
#include "net/net_trial.h"

#include "base/base.h"

#include <math.h>
#include <string.h>

enum { STEPS = 4, COUNT = 15 }; /* a weight [3, 4] and a bias [3] */

static const struct weir_tensor row4 = {.dtype = WEIR_F64, .rank = 1, .shape = {4}};
static const struct weir_tensor row3 = {.dtype = WEIR_F64, .rank = 1, .shape = {3}};

/** The formulas' own state. */
struct oracle {
    struct weir_optimizer options;
    double clip;
    double x[COUNT], m[COUNT], v[COUNT];
};

static double decay_of(const struct oracle *oracle, int i) {
    bool bias = i >= 12;
    return oracle->options.decay_matrices_only && bias ? 0 : oracle->options.weight_decay;
}

static void adamw(struct oracle *oracle, const double *g, double lr, int step) {
    const struct weir_optimizer *o = &oracle->options;
    for (int i = 0; i < COUNT; i++) {
        oracle->x[i] *= 1 - lr * decay_of(oracle, i);
        oracle->m[i] = o->beta1 * oracle->m[i] + (1 - o->beta1) * g[i];
        oracle->v[i] = o->beta2 * oracle->v[i] + (1 - o->beta2) * g[i] * g[i];
        double m = oracle->m[i] / (1 - pow(o->beta1, step));
        double v = oracle->v[i] / (1 - pow(o->beta2, step));
        oracle->x[i] -= lr * m / (sqrt(v) + o->eps);
    }
}

static void sgd(struct oracle *oracle, const double *g, double lr, int step) {
    const struct weir_optimizer *o = &oracle->options;
    for (int i = 0; i < COUNT; i++) {
        double d = g[i] + decay_of(oracle, i) * oracle->x[i];
        if (o->momentum != 0) {
            oracle->m[i] = step == 1 ? d : o->momentum * oracle->m[i] + d;
            d = o->nesterov ? d + o->momentum * oracle->m[i] : oracle->m[i];
        }
        oracle->x[i] -= lr * d;
    }
}

static void take(struct weir_net *net, bool gradients, double *out) {
    for (uint32_t i = 0; i < 2; i++) {
        struct weir_parameter parameter;
        EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK);
        memcpy(out, gradients ? parameter.gradient : parameter.data,
               parameter.count * sizeof(double));
        out += parameter.count;
    }
}

static void oracle_step(struct oracle *oracle, const double *gradient, double lr, int step) {
    double g[COUNT], norm = 0;
    for (int i = 0; i < COUNT; i++) norm += gradient[i] * gradient[i];
    norm = sqrt(norm);
    double scale = oracle->clip > 0 ? fmin(1, oracle->clip / (norm + 1e-6)) : 1;
    for (int i = 0; i < COUNT; i++) g[i] = gradient[i] * scale;
    if (oracle->options.kind == WEIR_OPTIMIZER_ADAMW)
        adamw(oracle, g, lr, step);
    else
        sgd(oracle, g, lr, step);
}

/** An update that is skipped: nothing changes. */
static void skip_update(struct weir_net *net, const struct trial_data *data) {
    double *input = data->input, held = input[5], before[COUNT], after[COUNT];
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    struct weir_step_result result;
    batch.rows = 6;
    batch.input = input;
    batch.target = data->target;
    take(net, false, before);
    input[5] = INFINITY;
    EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    input[5] = held;
    take(net, false, after);
    EXPECT(!result.updated);
    EXPECT_EQ_BYTES(before, after, sizeof before);
}

/** With `skips` the net counts, and some updates between are skipped. */
static void check_optimizer(struct weir_optimizer optimizer, double clip, bool skips) {
    struct weir_model *model = trial_model(row4, row3, "mse");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 3)));
    struct weir_net_options options = trial_options(1, 6, 2);
    options.optimizer = optimizer;
    options.pipe.clip_norm = clip;
    options.pipe.skip_nonfinite = skips;
    struct trial_data data;
    trial_data_init(&data, &row4, &row3, WEIR_F64, 6, 1, 1);
    struct weir_net *net = trial_net(model, &options);
    struct oracle oracle = {.options = optimizer, .clip = clip};
    if (net != NULL) take(net, false, oracle.x);
    for (int step = 1; net != NULL && step <= STEPS && !test_has_failed(); step++) {
        double lr = step == 3 ? 0.02 : optimizer.lr, gradient[COUNT], x[COUNT];
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        for (int skip = 0; skips && skip < step; skip++) skip_update(net, &data);
        batch.rows = 6;
        batch.input = data.input;
        batch.target = data.target;
        if (!skips) batch.update = (uint64_t)step - 1;
        batch.lr = step == 3 ? 0.02 : -1;
        struct weir_step_result result;
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
        take(net, true, gradient);
        oracle_step(&oracle, gradient, lr, step);
        take(net, false, x);
        for (int i = 0; i < COUNT; i++) EXPECT_NEAR(x[i], oracle.x[i], 1e-14 * (1 + fabs(x[i])));
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_adamw_is_pytorchs(void) {
    struct weir_optimizer optimizer = WEIR_ADAMW_INIT;
    check_optimizer(optimizer, 0, false);
    optimizer.weight_decay = 0.3;
    optimizer.decay_matrices_only = true;
    check_optimizer(optimizer, 0.1, false);
}

static void test_a_skipped_update_is_no_step(void) {
    struct weir_optimizer optimizer = WEIR_ADAMW_INIT;
    check_optimizer(optimizer, 0, true);
}

static void refuse_optimizer(struct weir_optimizer optimizer, const char *message) {
    struct weir_model *model = trial_model(row4, row3, "mse");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 3)));
    struct weir_net_options options = trial_options(1, 6, 2);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    faults.allocator = test_allocator();
    options.optimizer = optimizer;
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_CONFIG);
    EXPECT_FAULTS(&faults, message);
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

static void test_what_would_unlearn_is_refused(void) {
    struct weir_optimizer optimizer = WEIR_ADAMW_INIT;
    refuse_optimizer((optimizer.lr = -0.1, optimizer), "--lr -0.1: give a number from 0 on");
    optimizer = (struct weir_optimizer)WEIR_ADAMW_INIT;
    refuse_optimizer((optimizer.eps = NAN, optimizer), "--eps nan: give a number from 0 on");
    optimizer = (struct weir_optimizer)WEIR_SGD_INIT;
    refuse_optimizer((optimizer.momentum = INFINITY, optimizer), "--momentum inf: give a number");
    optimizer = (struct weir_optimizer)WEIR_SGD_INIT;
    refuse_optimizer((optimizer.weight_decay = -1, optimizer), "--weight-decay -1: give a number");
    refuse_optimizer((struct weir_optimizer){.kind = (enum weir_optimizer_kind)7},
                     "optimizer.kind is 7: give WEIR_OPTIMIZER_ADAMW, _SGD or _NONE");
}

/** Of a mean that nothing new enters the correction divides by 0. */
static void test_betas_lie_below_1(void) {
    static const double betas[] = {1, 1.5, -0.1, NAN};
    struct weir_model *model = trial_model(row4, row3, "mse");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 3)));
    for (size_t i = 0; i < WEIR__COUNT_OF(betas); i++) {
        struct weir_net_options options = trial_options(1, 6, 2);
        struct weir_faults faults = WEIR_FAULTS_INIT;
        struct weir_net *net = NULL;
        faults.allocator = test_allocator();
        options.optimizer = (struct weir_optimizer)WEIR_ADAMW_INIT;
        options.optimizer.beta1 = options.optimizer.beta2 = betas[i];
        EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_CONFIG);
        EXPECT_FAULTS(&faults, "--beta1 ", "give a number from 0 on and below 1, like 0.999");
        options.optimizer.kind = WEIR_OPTIMIZER_NONE; /* then they mean nothing */
        EXPECT_STATUS(weir_net_new(model, &options, NULL, &net), WEIR_OK);
        weir_net_destroy(net);
        weir_faults_clean_up(&faults);
    }
    weir_model_destroy(model);
}

static void test_sgd_is_pytorchs(void) {
    struct weir_optimizer optimizer = WEIR_SGD_INIT;
    optimizer.lr = 0.1;
    check_optimizer(optimizer, 0, false);
    optimizer.weight_decay = 0.2;
    optimizer.momentum = 0.9;
    check_optimizer(optimizer, 0, false);
    optimizer.nesterov = true;
    check_optimizer(optimizer, 0.2, false);
}

static void test_without_an_optimizer_nothing_is_updated(void) {
    struct weir_model *model = trial_model(row4, row3, "mse");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 3)));
    struct weir_net_options options = trial_options(1, 6, 2);
    options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    struct trial_data data;
    trial_data_init(&data, &row4, &row3, WEIR_F64, 6, 1, 1);
    struct weir_net *net = trial_net(model, &options);
    double before[COUNT], after[COUNT];
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = 6;
    batch.input = data.input;
    batch.target = data.target;
    struct weir_step_result result;
    if (net != NULL) {
        take(net, false, before);
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
        take(net, false, after);
        EXPECT_EQ_BYTES(before, after, sizeof before);
        EXPECT(!result.updated);
        EXPECT(result.gradient_norm > 0);
        EXPECT_EQ_UINT(weir_pipe_plan(weir_net_pipe(net))->devices[0].optimizer, 0);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_learning_rates_warm_up_and_decay(void) {
    EXPECT_NEAR(weir_lr(WEIR_LR_CONSTANT, 0.5, 0.1, 0, 0, 10), 0.5, 0);
    EXPECT_NEAR(weir_lr(WEIR_LR_CONSTANT, 0.5, 0.1, 1000, 0, 10), 0.5, 0);
    EXPECT_NEAR(weir_lr(WEIR_LR_CONSTANT, 1.0, 0, 0, 4, 10), 0.25, 0);
    EXPECT_NEAR(weir_lr(WEIR_LR_CONSTANT, 1.0, 0, 3, 4, 10), 1.0, 0);
    EXPECT_NEAR(weir_lr(WEIR_LR_COSINE, 1.0, 0.1, 1, 4, 15), 0.5, 0);
    EXPECT_NEAR(weir_lr(WEIR_LR_COSINE, 1.0, 0.1, 4, 4, 15), 1.0, 1e-15);
    EXPECT_NEAR(weir_lr(WEIR_LR_COSINE, 1.0, 0.1, 9, 4, 15), 0.55, 1e-15);
    EXPECT_NEAR(weir_lr(WEIR_LR_COSINE, 1.0, 0.1, 14, 4, 15), 0.1, 1e-15);
    EXPECT_NEAR(weir_lr(WEIR_LR_COSINE, 1.0, 0.1, 99, 4, 15), 0.1, 1e-15);
    /* One update has no way to go down. */
    EXPECT_NEAR(weir_lr(WEIR_LR_COSINE, 1.0, 0.1, 0, 0, 1), 1.0, 0);
    for (uint64_t i = 5; i < 15; i++)
        EXPECT(weir_lr(WEIR_LR_COSINE, 1.0, 0.1, i, 4, 15) <
               weir_lr(WEIR_LR_COSINE, 1.0, 0.1, i - 1, 4, 15));
}

WEIR_TEST_SUITE(optimizer, TEST(adamw_is_pytorchs), TEST(sgd_is_pytorchs),
                TEST(a_skipped_update_is_no_step), TEST(what_would_unlearn_is_refused),
                TEST(betas_lie_below_1), TEST(without_an_optimizer_nothing_is_updated),
                TEST(learning_rates_warm_up_and_decay))
