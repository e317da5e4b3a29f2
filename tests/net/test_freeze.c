/* SPDX-License-Identifier: MIT */
/*
 * Goal: frozen parameters cost nothing that learning costs, and change nobody else's numbers.
 * Method: one model with and without frozen layers: gradients of what learns are the same bits, the
 * table has no backward where nothing learns, the plan is smaller, updates leave them alone.
 */
#include "harness.h"
#include "net/net_trial.h"

#include <string.h>

enum { WIDTH = 8, ROWS = 6 };

static const struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {WIDTH}};

/** Four linear layers with GELUs between; the first `frozen` of them do not learn. */
static struct weir_model *chain(uint32_t frozen) {
    struct weir_model *model = trial_model(row, row, "mse");
    for (uint32_t i = 0; model != NULL && i < 4; i++) {
        trial_add(
            model, "linear",
            WEIR_ATTRS(WEIR_ATTR_INT("out_features", WIDTH), WEIR_ATTR_FLAG("frozen", i < frozen)));
        trial_add(model, "gelu", WEIR_NO_ATTRS);
    }
    return model;
}

static struct weir_net_options two_stages(void) {
    static const uint32_t balance[] = {4, 4};
    struct weir_net_options options = trial_options(2, ROWS, 3);
    options.balance = balance;
    options.pipe.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    return options;
}

static uint32_t count_actions(const struct weir_table *table, uint32_t stage, enum weir_kind kind) {
    uint32_t count = 0;
    for (uint32_t a = 0; a < table->action_count; a++)
        count += table->actions[a].stage == stage && table->actions[a].kind == (uint8_t)kind;
    return count;
}

static void test_gradients_of_what_learns_are_the_same_bits(void) {
    struct trial_data data;
    struct weir_net_options options = two_stages();
    struct weir_parameter all, some;
    struct trial_result unused[2] = {{0}};
    struct weir_model *models[2] = {chain(0), chain(2)};
    trial_data_init(&data, &row, &row, WEIR_F64, ROWS, 1, 1);
    CHECK_HELPERS();
    struct weir_net *nets[2];
    for (int i = 0; i < 2; i++) {
        nets[i] = trial_net(models[i], &options);
        CHECK_HELPERS();
        trial_step(nets[i], models[i], &data, &unused[i]);
    }
    for (uint32_t p = 0; p < weir_net_parameter_count(nets[0]); p++) {
        EXPECT_STATUS(weir_net_parameter(nets[0], p, &all), WEIR_OK);
        EXPECT_STATUS(weir_net_parameter(nets[1], p, &some), WEIR_OK);
        EXPECT(some.frozen == (p < 4));
        EXPECT((some.gradient == NULL) == some.frozen &&
               (some.optimizer[0] == NULL) == some.frozen);
        if (some.gradient != NULL)
            EXPECT_EQ_BYTES(all.gradient, some.gradient, all.count * sizeof(double));
    }
    for (int i = 0; i < 2; i++) {
        trial_result_clean_up(&unused[i]);
        weir_net_destroy(nets[i]);
        weir_model_destroy(models[i]);
    }
    trial_data_clean_up(&data);
}

static void test_where_nothing_learns_there_is_no_backward(void) {
    struct weir_model *model = chain(2);
    struct weir_net_options options = two_stages();
    struct weir_net *net = trial_net(model, &options);
    CHECK(net != NULL);
    const struct weir_table *table = weir_pipe_table(weir_net_pipe(net), ROWS);
    CHECK(table != NULL);
    EXPECT_EQ_UINT(count_actions(table, 0, WEIR_KIND_F), 3);
    EXPECT_EQ_UINT(count_actions(table, 0, WEIR_KIND_R), 0);
    EXPECT_EQ_UINT(count_actions(table, 0, WEIR_KIND_B), 0);
    EXPECT_EQ_UINT(count_actions(table, 1, WEIR_KIND_R), 3);
    EXPECT_EQ_UINT(count_actions(table, 1, WEIR_KIND_B), 3);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static void test_an_input_gradient_needs_backward_all_the_same(void) {
    struct weir_model *model = chain(2);
    struct weir_net_options options = two_stages();
    options.input_grads = true;
    struct trial_data data;
    trial_data_init(&data, &row, &row, WEIR_F64, ROWS, 1, 1);
    struct weir_net *net = trial_net(model, &options);
    CHECK(net != NULL);
    const struct weir_table *table = weir_pipe_table(weir_net_pipe(net), ROWS);
    EXPECT_EQ_UINT(count_actions(table, 0, WEIR_KIND_B), 3);
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void plan_of(uint32_t frozen, struct weir_device_plan *device) {
    struct weir_model *model = chain(frozen);
    struct weir_net_options options = two_stages();
    struct weir_plan *plan = NULL;
    if (EXPECT_STATUS(weir_net_plan(model, &options, NULL, &plan), WEIR_OK))
        *device = plan->devices[0];
    weir_plan_destroy(plan);
    weir_model_destroy(model);
}

static void test_the_plan_counts_no_gradients_for_them(void) {
    struct weir_device_plan all = {0}, some = {0};
    plan_of(0, &all);
    plan_of(2, &some);
    EXPECT_EQ_UINT(all.parameters, some.parameters);
    EXPECT(all.gradients > 0 && some.gradients == 0);
    EXPECT(all.optimizer > 0 && some.optimizer == 0);
    EXPECT_EQ_UINT(some.activations, 0);
    EXPECT(some.total < all.total);
}

static void test_updates_leave_them_alone(void) {
    struct weir_model *model = chain(0);
    struct weir_net_options options = two_stages();
    EXPECT_STATUS(weir_model_freeze(model, "?.bias"), WEIR_OK);
    EXPECT_STATUS(weir_model_freeze(model, "4.*"), WEIR_OK);
    struct trial_data data;
    trial_data_init(&data, &row, &row, WEIR_F64, ROWS, 1, 1);
    struct weir_net *net = trial_net(model, &options);
    CHECK(net != NULL);
    double before[8][WIDTH * WIDTH];
    struct weir_parameter parameter;
    for (uint32_t p = 0; p < 8; p++) {
        EXPECT_STATUS(weir_net_parameter(net, p, &parameter), WEIR_OK);
        memcpy(before[p], parameter.data, parameter.count * sizeof(double));
    }
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = ROWS;
    batch.input = data.input;
    batch.target = data.target;
    struct weir_step_result result;
    EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    for (uint32_t p = 0; p < 8; p++) {
        EXPECT_STATUS(weir_net_parameter(net, p, &parameter), WEIR_OK);
        bool same = memcmp(before[p], parameter.data, parameter.count * sizeof(double)) == 0;
        bool learns = strcmp(parameter.name, "0.weight") == 0 ||
                      strcmp(parameter.name, "2.weight") == 0 ||
                      strcmp(parameter.name, "6.weight") == 0;
        if (same == learns) TEST_FAIL("%s changed: %d", parameter.name, !same);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void expect_refused(struct weir_model *model, const char *message) {
    struct weir_net_options options = two_stages();
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_CONFIG);
    if (EXPECT(faults.kept > 0)) EXPECT_CONTAINS(faults.lines[0], message);
    weir_faults_clean_up(&faults);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static void test_a_pattern_that_freezes_nothing_is_refused(void) {
    struct weir_model *model = chain(0);
    EXPECT_STATUS(weir_model_freeze(model, "h.0.*"), WEIR_OK);
    EXPECT_STATUS(weir_model_freeze(model, ""), WEIR_ERR_ARGUMENT);
    expect_refused(model,
                   "no parameter matches the pattern 'h.0.*' that is to be frozen: the first "
                   "is named '0.weight'");
}

static void test_a_model_that_learns_nothing_is_refused(void) {
    struct weir_model *model = chain(0);
    EXPECT_STATUS(weir_model_freeze(model, "*"), WEIR_OK);
    expect_refused(model, "all parameters are frozen: nothing is left to train");
}

WEIR_TEST_SUITE(freeze, TEST(gradients_of_what_learns_are_the_same_bits),
                TEST(where_nothing_learns_there_is_no_backward),
                TEST(an_input_gradient_needs_backward_all_the_same),
                TEST(the_plan_counts_no_gradients_for_them), TEST(updates_leave_them_alone),
                TEST(a_pattern_that_freezes_nothing_is_refused),
                TEST(a_model_that_learns_nothing_is_refused))
