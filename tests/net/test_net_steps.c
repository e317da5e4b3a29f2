/* SPDX-License-Identifier: MIT */
/*
 * Goal: what a net promises around its steps: dropout and its masks, inference, weights of losses,
 * accumulation, ties, row counts, errors with the layer's name, no allocation, clean failures.
 * Method: small nets; where a rule says "the same", bytes are compared.
 */
#include "harness.h"
#include "net/net_trial.h"

#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct weir_tensor row4 = {.dtype = WEIR_F32, .rank = 1, .shape = {4}};
static const struct weir_tensor label = {.dtype = WEIR_I64};

static void add_linear(struct weir_model *model, int64_t out) {
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", out)));
}

static void add_dropout(struct weir_model *model, double p) {
    trial_add(model, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", p)));
}

/** linear, gelu, dropout, linear. */
static struct weir_model *small_model(double p) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    add_linear(model, 8);
    trial_add(model, "gelu", WEIR_NO_ATTRS);
    add_dropout(model, p);
    add_linear(model, 3);
    return model;
}

static int step(struct weir_net *net, const struct trial_data *data, struct weir_net_batch batch,
                struct weir_step_result *result) {
    batch.rows = batch.rows == 0 ? data->rows : batch.rows;
    batch.input = batch.input == NULL ? data->input : batch.input;
    batch.target = batch.target == NULL ? data->target : batch.target;
    return weir_net_step(net, &batch, result);
}

/* ---- dropout ---- */

enum { DROPOUTS = 100, WIDTH = 8, ROWS = 20 };

// CK-3
static void test_zeros_of_dropout_are_the_zeros_of_the_gradient(void) {
    struct weir_tensor row = {.dtype = WEIR_F64, .rank = 1, .shape = {WIDTH}};
    struct weir_model *model = trial_model(row, row, "mse");
    for (int i = 0; i < DROPOUTS; i++) add_dropout(model, 0.01);
    struct weir_net_options options = trial_options(2, ROWS, 10);
    options.input_grads = true;
    options.pipe.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    options.balance = (uint32_t[]){DROPOUTS / 2, DROPOUTS / 2};
    struct trial_data data;
    trial_data_init(&data, &row, &row, WEIR_F64, ROWS, 1, 1);
    struct weir_net *net = trial_net(model, &options);
    double output[ROWS * WIDTH], grad[ROWS * WIDTH];
    struct weir_step_result result;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.output = output;
    batch.input_grad = grad;
    batch.mini_batch = 9;
    if (net != NULL) EXPECT_STATUS(step(net, &data, batch, &result), WEIR_OK);
    int zeros = 0;
    for (int i = 0; net != NULL && i < ROWS * WIDTH; i++) {
        EXPECT_EQ_INT(output[i] == 0, grad[i] == 0);
        zeros += output[i] == 0;
    }
    /* 63% are dropped on average. */
    EXPECT(zeros > ROWS * WIDTH / 4 && zeros < ROWS * WIDTH);
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

struct mask_check {
    const double *output;
    int visits;
};

static int compare_mask(void *context, const char *name, const struct weir_tensor *shape,
                        int64_t rows, const uint8_t *mask) {
    struct mask_check *check = context;
    EXPECT_EQ_STR(name, "0");
    EXPECT_EQ_INT(shape->dtype, WEIR_U8);
    EXPECT_EQ_INT(shape->shape[0], WIDTH);
    for (int64_t i = 0; i < rows * WIDTH; i++) EXPECT_EQ_INT(mask[i], check->output[i] != 0);
    check->visits++;
    return WEIR_OK;
}

static void test_masks_are_the_ones_that_the_step_used(void) {
    struct weir_tensor row = {.dtype = WEIR_F64, .rank = 1, .shape = {WIDTH}};
    struct weir_model *model = trial_model(row, row, "mse");
    add_dropout(model, 0.4);
    struct weir_net_options options = trial_options(1, ROWS, 3);
    struct trial_data data;
    trial_data_init(&data, &row, &row, WEIR_F64, ROWS, 1, 1);
    struct weir_net *net = trial_net(model, &options);
    double output[ROWS * WIDTH];
    struct mask_check check = {.output = output};
    struct weir_step_result result;
    if (net != NULL) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.output = output;
        batch.mini_batch = 77;
        EXPECT_STATUS(step(net, &data, batch, &result), WEIR_OK);
        EXPECT_STATUS(weir_net_masks(net, 77, ROWS, compare_mask, &check), WEIR_OK);
        EXPECT_EQ_INT(check.visits, 1);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

struct names {
    char text[128];
};

static int list_name(void *context, const char *name, const struct weir_tensor *shape, int64_t rows,
                     const uint8_t *mask) {
    struct names *names = context;
    (void)shape;
    size_t length = strlen(names->text);
    snprintf(names->text + length, sizeof names->text - length, "%s ", name);
    for (int64_t i = 0; i < rows; i++) EXPECT_EQ_INT(mask[i], 1);
    return length > 20 ? 7 : WEIR_OK;
}

static void test_masks_are_named_and_stop_when_the_visitor_says_so(void) {
    struct weir_gpt_options gpt = {3, 4, 2, 3, 5, false, 0.0};
    struct weir_model *model;
    CHECK_OK(weir_model_gpt(test_allocator(), &gpt, NULL, &model));
    struct weir_net_options options = trial_options(2, 2, 1);
    struct weir_net *net = trial_net(model, &options);
    struct names names = {""};
    if (net != NULL) EXPECT_STATUS(weir_net_masks(net, 0, 2, list_name, &names), 7);
    EXPECT_EQ_STR(names.text, "0.0 h.0.0 h.0.1 h.1.0 h.1.1 ");
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/* ---- inference ---- */

static void test_inference_is_the_step_without_dropout(void) {
    struct weir_model *with = small_model(0.5), *without = small_model(0);
    struct trial_data data;
    trial_data_init(&data, &row4, &label, WEIR_F64, 7, 1, 3);
    struct weir_net_options options = trial_options(2, 7, 3);
    struct trial_result want;
    trial_run(without, &options, &data, &want);
    struct weir_net *net = trial_net(with, &options);
    double output[7 * 3];
    struct weir_step_result result;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = 7;
    batch.input = data.input;
    batch.target = data.target;
    batch.output = output;
    if (net != NULL) {
        EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_OK);
        EXPECT_EQ_BYTES(output, want.output, sizeof output);
        EXPECT_EQ_BYTES(&result.loss, &want.loss, sizeof want.loss);
        batch.target = NULL;
        memset(output, 0, sizeof output);
        EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_OK);
        EXPECT_EQ_BYTES(output, want.output, sizeof output);
        EXPECT_NEAR(result.loss, 0, 0);
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_ERR_ARGUMENT);
    }
    weir_net_destroy(net);
    trial_result_clean_up(&want);
    trial_data_clean_up(&data);
    weir_model_destroy(with);
    weir_model_destroy(without);
}

static void test_a_net_for_inference_has_no_gradients(void) {
    struct weir_model *model;
    CHECK_OK(weir_model_new(test_allocator(), &row4, NULL, NULL, &model));
    add_linear(model, 3);
    struct weir_net_options options = trial_options(1, 4, 2);
    options.pipe.infer_only = true;
    struct weir_net *net = trial_net(model, &options);
    double input[16] = {0}, output[12];
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = 4;
    batch.input = input;
    batch.output = output;
    struct weir_step_result result;
    struct weir_parameter parameter;
    if (net != NULL) {
        EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_OK);
        EXPECT_STATUS(weir_net_parameter(net, 1, &parameter), WEIR_OK);
        EXPECT(parameter.gradient == NULL && parameter.optimizer[0] == NULL);
        EXPECT_EQ_BYTES(output + 9, parameter.data, 3 * sizeof(double));
        EXPECT_STATUS(weir_net_parameter(net, 2, &parameter), WEIR_ERR_NOT_FOUND);
        EXPECT_EQ_UINT(weir_pipe_plan(weir_net_pipe(net))->devices[0].gradients, 0);
    }
    weir_net_destroy(net);
    weir_model_destroy(model);
}

// PI-5
static void test_an_empty_model_is_the_identity(void) {
    struct weir_tensor row = {.dtype = WEIR_F64, .rank = 1, .shape = {4}};
    struct weir_model *model = trial_model(row, row, "mse");
    struct weir_net_options options = trial_options(1, 5, 2);
    options.input_grads = true;
    struct trial_data data;
    trial_data_init(&data, &row, &row, WEIR_F64, 5, 1, 1);
    struct weir_net *net = trial_net(model, &options);
    double output[20], grad[20];
    struct weir_step_result result;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.output = output;
    batch.input_grad = grad;
    if (net != NULL) {
        EXPECT_EQ_UINT(weir_net_parameter_count(net), 0);
        EXPECT_STATUS(step(net, &data, batch, &result), WEIR_OK);
        EXPECT_EQ_BYTES(output, data.input, sizeof output);
        const double *x = data.input, *t = data.target;
        for (int i = 0; i < 20; i++) EXPECT_NEAR(grad[i], 2 * (x[i] - t[i]) / 20, 1e-15);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* ---- weights, accumulation, ties ---- */

static void test_ignored_targets_weigh_nothing(void) {
    struct weir_model *model = small_model(0);
    struct trial_data data;
    trial_data_init(&data, &row4, &label, WEIR_F64, 6, 1, 3);
    struct weir_net_options options = trial_options(2, 6, 3);
    struct weir_net *net = trial_net(model, &options);
    int64_t *labels = data.target;
    struct weir_step_result whole = {0}, part = {0}, none = {0};
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.no_update = true;
    if (net != NULL) {
        labels[4] = labels[5] = -100;
        EXPECT_NEAR(weir_net_loss_weight(net, labels, 6), 4, 0);
        EXPECT_STATUS(step(net, &data, batch, &part), WEIR_OK);
        batch.rows = 4;
        EXPECT_STATUS(step(net, &data, batch, &whole), WEIR_OK);
        EXPECT_NEAR(part.loss, whole.loss, 1e-15);
        EXPECT_NEAR(part.gradient_norm, whole.gradient_norm, 1e-15);
        for (int i = 0; i < 4; i++) labels[i] = -100;
        EXPECT_STATUS(step(net, &data, batch, &none), WEIR_OK);
        EXPECT_NEAR(none.loss, 0, 0);
        EXPECT_NEAR(none.gradient_norm, 0, 0);
    }
    weir_net_destroy(net);
    weir_model_ignore_index(model, 1);
    net = trial_net(model, &options);
    for (int i = 0; i < 6; i++) labels[i] = i % 2;
    if (net != NULL) EXPECT_NEAR(weir_net_loss_weight(net, labels, 6), 3, 0);
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_accumulated_mini_batches_give_the_whole_ones_gradient(void) {
    struct weir_model *model = small_model(0);
    struct trial_data data;
    trial_data_init(&data, &row4, &label, WEIR_F64, 9, 1, 3);
    struct weir_net_options options = trial_options(2, 9, 2);
    struct weir_net *net = trial_net(model, &options);
    struct weir_step_result whole = {0}, first = {0}, second = {0};
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.no_update = true;
    const double *input = data.input;
    const int64_t *labels = data.target;
    if (net != NULL) {
        EXPECT_STATUS(step(net, &data, batch, &whole), WEIR_OK);
        batch.rows = 5, batch.loss_weight = 9, batch.accumulate_more = true;
        EXPECT_STATUS(step(net, &data, batch, &first), WEIR_OK);
        EXPECT(isnan(first.gradient_norm));
        batch.rows = 4, batch.accumulate_more = false, batch.accumulate_next = true;
        batch.input = input + 20, batch.target = labels + 5;
        EXPECT_STATUS(step(net, &data, batch, &second), WEIR_OK);
        EXPECT_NEAR(first.loss + second.loss, whole.loss, 1e-14);
        EXPECT_NEAR(second.gradient_norm, whole.gradient_norm, 1e-14);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

// PI-4
static void test_a_tied_parameter_is_one_and_its_gradient_the_sum_of_its_uses(void) {
    struct weir_gpt_options gpt = {1, 4, 2, 3, 5, true, 0.0};
    struct weir_model *model;
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};
    CHECK_OK(weir_model_gpt(test_allocator(), &gpt, NULL, &model));
    struct trial_data data;
    trial_data_init(&data, &tokens, &tokens, WEIR_F64, 4, 5, 5);
    struct weir_net_options options = trial_options(1, 4, 2);
    struct weir_net *net = trial_net(model, &options);
    struct weir_step_result once = {0}, again = {0};
    struct weir_parameter parameter;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.no_update = true;
    if (net != NULL) {
        for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
            EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK);
            EXPECT(strcmp(parameter.name, "lm_head.weight") != 0);
        }
        EXPECT_STATUS(step(net, &data, batch, &once), WEIR_OK);
        EXPECT_STATUS(step(net, &data, batch, &again), WEIR_OK);
        EXPECT_EQ_BYTES(&once.gradient_norm, &again.gradient_norm, sizeof once.gradient_norm);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* ---- rows, errors, allocations ---- */

static void test_other_row_counts_are_prepared_when_they_come(void) {
    struct weir_model *model = small_model(0.1);
    struct trial_data data;
    struct weir_net_options options = trial_options(2, 8, 3);
    struct weir_net *net = trial_net(model, &options);
    for (int64_t rows = 1; net != NULL && rows <= 9; rows++) {
        trial_data_init(&data, &row4, &label, WEIR_F64, rows, 1, 3);
        struct weir_step_result result;
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.no_update = true;
        int status = step(net, &data, batch, &result);
        EXPECT_EQ_INT(status == WEIR_OK, rows <= 8);
        if (status != WEIR_OK) EXPECT_CONTAINS(result.error.message, "9 rows");
        trial_data_clean_up(&data);
    }
    for (int64_t rows = -1; net != NULL && rows <= 9; rows += rows == 0 ? 9 : 1) {
        float input[9 * 4] = {0};
        int64_t target[9] = {0};
        struct weir_step_result result;
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = rows, batch.input = input, batch.target = target;
        EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_ERR_ROWS);
        EXPECT_CONTAINS(result.error.message, "the pipe was built for 1 to 8: give so many, or");
        EXPECT_EQ_INT(result.error.stage, -1);
        EXPECT_EQ_STR(weir_phase_name(result.error.phase), "none");
    }
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/** What is only judged first has the kernels of its forward alone. */
static void test_rows_may_be_judged_before_they_are_trained(void) {
    struct weir_model *model = small_model(0.1);
    struct weir_net_options options = trial_options(2, 8, 3);
    struct weir_net *net = trial_net(model, &options);
    for (int64_t rows = 1; net != NULL && rows < 8; rows++) {
        struct trial_data data;
        trial_data_init(&data, &row4, &label, WEIR_F64, rows, 1, 3);
        struct weir_step_result judged, trained;
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = rows;
        batch.input = data.input;
        batch.target = data.target;
        batch.no_update = true;
        EXPECT_STATUS(weir_net_infer(net, &batch, &judged), WEIR_OK);
        EXPECT_STATUS(weir_net_step(net, &batch, &trained), WEIR_OK);
        EXPECT(isfinite(judged.loss) && trained.gradient_norm > 0);
        trial_data_clean_up(&data);
    }
    weir_net_destroy(net);
    weir_model_destroy(model);
}

// PI-8
static void test_a_failing_layer_is_named_and_the_next_step_is_right(void) {
    struct weir_gpt_options gpt = {1, 4, 2, 3, 5, false, 0.0};
    struct weir_model *model;
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};
    CHECK_OK(weir_model_gpt(test_allocator(), &gpt, NULL, &model));
    struct trial_data data;
    trial_data_init(&data, &tokens, &tokens, WEIR_F64, 6, 5, 5);
    struct weir_net_options options = trial_options(3, 6, 3);
    struct weir_net *net = trial_net(model, &options);
    struct weir_step_result result = {0};
    struct trial_result want = {0}, got = {0};
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.no_update = true;
    int64_t *input = data.input, kept = input[9];
    if (net != NULL) {
        trial_step(net, model, &data, &want);
        input[9] = 5;
        EXPECT_STATUS(step(net, &data, batch, &result), WEIR_ERR_ARGUMENT);
        EXPECT_EQ_STR(result.error.layer, "0 (gpt_embedding)");
        EXPECT_CONTAINS(result.error.message, "5");
        EXPECT_EQ_INT(result.error.stage, 0);
        EXPECT_EQ_INT(result.error.micro_batch, 1);
        input[9] = kept;
        int64_t *target = data.target, label_kept = target[0];
        target[0] = 99;
        EXPECT_STATUS(step(net, &data, batch, &result), WEIR_ERR_ARGUMENT);
        EXPECT_EQ_STR(result.error.layer, "loss");
        target[0] = label_kept;
        trial_step(net, model, &data, &got);
        if (!test_has_failed()) trial_result_compare(&want, &got);
    }
    trial_result_clean_up(&want);
    trial_result_clean_up(&got);
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void allocate_nothing(enum weir_dtype dtype) {
    struct weir_model *model = small_model(0.1);
    struct trial_data data;
    trial_data_init(&data, &row4, &label, dtype == WEIR_BF16 ? WEIR_F32 : dtype, 8, 1, 3);
    struct weir_net_options options = trial_options(2, 8, 4);
    options.dtype = dtype;
    struct weir_net *net = trial_net(model, &options);
    uint64_t before = test_allocator_count();
    for (uint64_t i = 0; net != NULL && i < 100; i++) {
        struct weir_step_result result;
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.mini_batch = i;
        batch.update = i;
        EXPECT_STATUS(step(net, &data, batch, &result), WEIR_OK);
    }
    EXPECT_EQ_UINT(test_allocator_count(), before);
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_steps_allocate_nothing(void) {
    allocate_nothing(WEIR_F64);
    allocate_nothing(WEIR_F32);
    allocate_nothing(WEIR_BF16);
}

static void test_the_plan_is_the_pipes_to_the_byte(void) {
    static const enum weir_dtype dtypes[] = {WEIR_F64, WEIR_BF16};
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t stages = i % 4 + 1;
        struct weir_model *model = small_model(0.1);
        struct weir_net_options options = trial_options(stages, 7, 3);
        options.dtype = dtypes[i / 4];
        struct weir_net *net = trial_net(model, &options);
        struct weir_plan *plan = NULL;
        EXPECT_STATUS(weir_net_plan(model, &options, NULL, &plan), WEIR_OK);
        if (net != NULL && plan != NULL) {
            const struct weir_plan *pipe = weir_pipe_plan(weir_net_pipe(net));
            EXPECT_EQ_UINT(plan->device_count, pipe->device_count);
            EXPECT_EQ_BYTES(plan->devices, pipe->devices,
                            pipe->device_count * sizeof pipe->devices[0]);
        }
        weir_plan_destroy(plan);
        weir_net_destroy(net);
        weir_model_destroy(model);
    }
}

/** Everything that allocates, once; the first failure's status. */
static int build_and_step(const struct trial_data *data) {
    struct weir_gpt_options gpt = {1, 4, 2, 3, 5, false, 0.1};
    struct weir_net_options options = trial_options(2, 4, 2);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_model *model = NULL;
    struct weir_net *net = NULL;
    struct weir_plan *plan = NULL;
    struct weir_step_result result;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.no_update = true;
    faults.allocator = test_allocator();
    int status = weir_model_gpt(test_allocator(), &gpt, &faults, &model);
    if (status == WEIR_OK) status = weir_net_plan(model, &options, &faults, &plan);
    if (status == WEIR_OK) status = weir_net_new(model, &options, &faults, &net);
    if (status == WEIR_OK) status = weir_net_init(net, 1);
    if (status == WEIR_OK) status = step(net, data, batch, &result);
    batch.rows = 3;
    if (status == WEIR_OK) status = step(net, data, batch, &result);
    weir_plan_destroy(plan);
    weir_net_destroy(net);
    weir_model_destroy(model);
    weir_faults_clean_up(&faults);
    return status;
}

static void test_every_failing_allocation_is_reported_cleanly(void) {
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};
    for (int persistent = 0; persistent < 2; persistent++) {
        bool fired = true;
        for (uint64_t k = 1; fired && !test_has_failed(); k++) {
            struct trial_data data;
            trial_data_init(&data, &tokens, &tokens, WEIR_F64, 4, 5, 5);
            test_allocator_fail_at(k, persistent != 0);
            int status = build_and_step(&data);
            fired = test_allocator_fired();
            test_allocator_fail_at(0, false);
            EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
            EXPECT_EQ_UINT(test_allocator_live_blocks(), 2);
            trial_data_clean_up(&data);
        }
    }
}

static void test_kernels_are_listed(void) {
    struct weir_model *model = small_model(0.1);
    struct weir_net_options options = trial_options(2, 4, 2);
    struct weir_net *net = trial_net(model, &options);
    char text[512], little[8];
    if (net != NULL) {
        uint32_t count = weir_net_kernels(net, text, sizeof text);
        EXPECT_EQ_UINT(count, 9);
        EXPECT_CONTAINS(text, "reference: linear, linear_grad_input, linear_grad_weight");
        EXPECT_EQ_UINT(weir_net_kernels(net, little, sizeof little), count);
        EXPECT_EQ_UINT(strlen(little), sizeof little - 1);
    }
    weir_net_destroy(net);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(net_steps, TEST(zeros_of_dropout_are_the_zeros_of_the_gradient),
                TEST(masks_are_the_ones_that_the_step_used),
                TEST(masks_are_named_and_stop_when_the_visitor_says_so),
                TEST(inference_is_the_step_without_dropout),
                TEST(a_net_for_inference_has_no_gradients), TEST(an_empty_model_is_the_identity),
                TEST(ignored_targets_weigh_nothing),
                TEST(accumulated_mini_batches_give_the_whole_ones_gradient),
                TEST(a_tied_parameter_is_one_and_its_gradient_the_sum_of_its_uses),
                TEST(other_row_counts_are_prepared_when_they_come),
                TEST(rows_may_be_judged_before_they_are_trained),
                TEST(a_failing_layer_is_named_and_the_next_step_is_right),
                TEST(steps_allocate_nothing), TEST(the_plan_is_the_pipes_to_the_byte),
                TEST(every_failing_allocation_is_reported_cleanly), TEST(kernels_are_listed))
