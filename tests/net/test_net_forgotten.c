/* SPDX-License-Identifier: MIT */
/*
 * Goal: what an embedder forgets is refused, or has the default that it would have written.
 * Method: two nets side by side, one told every number, one none.
 */
#include "harness.h"
#include "net/net_trial.h"

#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct weir_tensor row4 = {.dtype = WEIR_F64, .rank = 1, .shape = {4}};
static const struct weir_tensor label = {.dtype = WEIR_I64};

enum { ROWS = 6, STEPS = 5 };

static struct weir_model *dropping_model(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 8)));
    trial_add(model, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.4)));
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 3)));
    return model;
}

static struct weir_net_batch batch_of(const struct trial_data *data) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = data->rows, batch.input = data->input, batch.target = data->target;
    return batch;
}

static void expect_same_parameters(struct weir_net *a, struct weir_net *b) {
    for (uint32_t i = 0; i < weir_net_parameter_count(a); i++) {
        struct weir_parameter left, right;
        EXPECT_STATUS(weir_net_parameter(a, i, &left), WEIR_OK);
        EXPECT_STATUS(weir_net_parameter(b, i, &right), WEIR_OK);
        EXPECT_EQ_BYTES(left.data, right.data, left.count * sizeof(double));
    }
}

static void expect_zeros(struct weir_net *net) {
    static const double zeros[64];
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK);
        CHECK(parameter.count <= 64);
        EXPECT_EQ_BYTES(parameter.data, zeros, parameter.count * sizeof(double));
    }
}

/** A net, and its data in f64. */
struct pair {
    struct weir_model *model;
    struct weir_net *told, *untold;
    struct trial_data data;
};

static bool pair_init(struct pair *pair, bool skip) {
    struct weir_net_options options = trial_options(2, ROWS, 3);
    options.pipe.skip_nonfinite = skip;
    pair->model = dropping_model();
    trial_data_init(&pair->data, &row4, &label, WEIR_F64, ROWS, 1, 3);
    pair->told = trial_net(pair->model, &options);
    pair->untold = trial_net(pair->model, &options);
    return pair->told != NULL && pair->untold != NULL;
}

static void pair_clean_up(struct pair *pair) {
    weir_net_destroy(pair->told);
    weir_net_destroy(pair->untold);
    trial_data_clean_up(&pair->data);
    weir_model_destroy(pair->model);
}

static void step_told(struct pair *pair, uint64_t mini_batch, uint64_t update) {
    struct weir_net_batch batch = batch_of(&pair->data);
    struct weir_step_result result;
    batch.mini_batch = mini_batch, batch.update = update;
    EXPECT_STATUS(weir_net_step(pair->told, &batch, &result), WEIR_OK);
}

static void step_untold(struct pair *pair, bool updates) {
    struct weir_net_batch batch = batch_of(&pair->data);
    batch.no_update = !updates;
    EXPECT_STATUS(weir_net_step(pair->untold, &batch, NULL), WEIR_OK);
}

static void test_numbers_that_are_not_given_count_on(void) {
    struct pair pair;
    if (pair_init(&pair, false)) {
        for (uint64_t i = 0; i < STEPS; i++) {
            step_told(&pair, i, i);
            step_untold(&pair, false); /* counts for nothing */
            step_untold(&pair, true);
        }
        expect_same_parameters(pair.told, pair.untold);
    }
    pair_clean_up(&pair);
}

static void test_a_skipped_update_is_none(void) {
    struct pair pair;
    if (pair_init(&pair, true)) {
        double *input = pair.data.input, kept = input[0];
        step_untold(&pair, true);
        input[0] = NAN;
        step_untold(&pair, true);
        input[0] = kept;
        step_untold(&pair, true);
        step_told(&pair, 0, 0);
        step_told(&pair, 2, 1);
        expect_same_parameters(pair.told, pair.untold);
    }
    pair_clean_up(&pair);
}

static void test_numbers_go_on_where_a_checkpoint_ends(void) {
    char path[512];
    struct pair pair;
    struct weir_progress progress = {.step = 4, .mini_batch = 9, .skipped = 1}, found = {0};
    snprintf(path, sizeof path, "%s/three", test_temporary_directory());
    if (pair_init(&pair, false)) {
        EXPECT_STATUS(weir_net_save(pair.told, path, &progress, NULL), WEIR_OK);
        EXPECT_STATUS(weir_net_load(pair.untold, path, &found, NULL), WEIR_OK);
        step_told(&pair, 9, 3);
        step_untold(&pair, true);
        expect_same_parameters(pair.told, pair.untold);
        EXPECT_STATUS(weir_net_init(pair.untold, 7), WEIR_OK); /* begins anew */
        EXPECT_STATUS(weir_net_init(pair.told, 7), WEIR_OK);
        expect_same_parameters(pair.told, pair.untold);
        step_told(&pair, 0, 0);
        step_untold(&pair, true);
        expect_same_parameters(pair.told, pair.untold);
    }
    pair_clean_up(&pair);
}

/* Without an optimizer the caller updates, and dropout draws anew all the same. */
static void test_mini_batches_count_without_an_optimizer(void) {
    struct weir_model *model = trial_model(row4, row4, "mse");
    struct weir_net_options options = trial_options(1, ROWS, 3);
    struct trial_data data;
    double outputs[2][ROWS * 4];
    trial_add(model, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.5)));
    options.optimizer.kind = WEIR_OPTIMIZER_NONE;
    trial_data_init(&data, &row4, &row4, WEIR_F64, ROWS, 1, 1);
    struct weir_net *net = trial_net(model, &options);
    for (int i = 0; i < 2 && net != NULL; i++) {
        struct weir_net_batch batch = batch_of(&data);
        batch.output = outputs[i];
        EXPECT_STATUS(weir_net_step(net, &batch, NULL), WEIR_OK);
    }
    EXPECT(net != NULL && memcmp(outputs[0], outputs[1], sizeof outputs[0]) != 0);
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void expect_refused(struct weir_net *net, const struct weir_net_batch *batch, int status,
                           const char *message) {
    struct weir_step_result result;
    for (int train = 0; train < 2; train++) {
        int got = train ? weir_net_step(net, batch, &result) : weir_net_infer(net, batch, &result);
        EXPECT_STATUS(got, status);
        EXPECT_CONTAINS(result.error.message, message);
        EXPECT_EQ_INT(result.error.stage, -1);
    }
}

static void test_a_net_without_values_is_refused(void) {
    struct weir_model *model = dropping_model();
    struct weir_net_options options = trial_options(2, ROWS, 3);
    struct trial_data data;
    struct weir_net *net = NULL;
    trial_data_init(&data, &row4, &label, WEIR_F64, ROWS, 1, 3);
    EXPECT_STATUS(weir_net_new(model, &options, NULL, &net), WEIR_OK);
    if (net != NULL) {
        struct weir_net_batch batch = batch_of(&data);
        expect_refused(net, &batch, WEIR_ERR_CONFIG, "call weir_net_init or weir_net_load");
        expect_zeros(net);
        EXPECT_STATUS(weir_net_share(net), WEIR_OK); /* zeros are what was wanted */
        EXPECT_STATUS(weir_net_infer(net, &batch, NULL), WEIR_OK);
        expect_zeros(net);
        EXPECT_STATUS(weir_net_step(net, &batch, NULL), WEIR_OK);
        struct weir_net *other = trial_net(model, &options);
        EXPECT_STATUS(weir_net_init(net, 7), WEIR_OK); /* as if never forgotten */
        if (other != NULL) expect_same_parameters(net, other);
        weir_net_destroy(other);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* The one line that says why there is no net. */
static void expect_no_net(const struct weir_model *model, int64_t rows, int status,
                          const char *reason) {
    struct weir_net_options options = trial_options(1, rows, 3);
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_net *net = NULL;
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), status);
    if (EXPECT_EQ_UINT(faults.count, 1)) EXPECT_CONTAINS(faults.lines[0], reason);
    EXPECT_EQ_PTR(net, NULL);
    weir_faults_clean_up(&faults);
}

static void test_more_rows_than_can_be_are_refused(void) {
    static const char reason[] = "the targets of 4611686018427387904 rows: a size overflows: use "
                                 "fewer rows";
    struct weir_model *model = dropping_model();
    expect_no_net(model, INT64_C(1) << 58, WEIR_ERR_OUT_OF_MEMORY, ": out of memory: use fewer");
    expect_no_net(model, INT64_C(1) << 62, WEIR_ERR_OVERFLOW, reason);
    weir_model_destroy(model);
}

static void test_a_batch_without_initialiser_is_refused(void) {
    struct pair pair;
    if (pair_init(&pair, false)) {
        struct weir_net_batch bare = {.rows = ROWS, .input = pair.data.input, .lr = -1};
        expect_refused(pair.told, &bare, WEIR_ERR_ARGUMENT, "WEIR_NET_BATCH_INIT");
        struct weir_net_batch batch = batch_of(&pair.data);
        batch.lr = NAN;
        expect_refused(pair.told, &batch, WEIR_ERR_ARGUMENT, "lr is not a number");
    }
    pair_clean_up(&pair);
}

/* ---- attributes that a build function asks for ---- */

static struct weir_value *ask_for_what_is_not_there(struct weir_builder *builder,
                                                    const struct weir_layer *layer,
                                                    struct weir_value *x) {
    int64_t pair[2] = {5, 5};
    weir_layer_pair(layer, "width", pair); /* an INT */
    EXPECT(pair[0] == 0 && pair[1] == 0);
    EXPECT_EQ_INT(weir_layer_int(layer, "nokey"), 0);
    EXPECT(weir_layer_real(layer, "nokey") == 0 && !weir_layer_flag(layer, "nokey"));
    EXPECT_EQ_STR(weir_layer_text(layer, "nokey"), "");
    return weir_relu(builder, x);
}

static void test_an_attribute_that_is_not_listed_is_told(void) {
    static const struct weir_attr_rule width = {.key = "width", .kind = WEIR_ATTR_KIND_INT};
    static const struct weir_layer_type type = {
        .name = "asking", .attrs = &width, .attr_count = 1, .build = ask_for_what_is_not_there};
    struct weir_model *model = trial_model(row4, row4, "mse");
    struct weir_net_options options = trial_options(1, ROWS, 3);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    EXPECT_STATUS(weir_model_add_type(model, &type), WEIR_OK);
    trial_add(model, "asking", WEIR_NO_ATTRS);
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_ARGUMENT);
    if (EXPECT_EQ_UINT(faults.kept, 1)) {
        EXPECT_CONTAINS(faults.lines[0], "0 (asking)");
        EXPECT_CONTAINS(faults.lines[0], "'nokey', which its type does not list");
    }
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(net_forgotten, TEST(numbers_that_are_not_given_count_on),
                TEST(a_skipped_update_is_none), TEST(numbers_go_on_where_a_checkpoint_ends),
                TEST(mini_batches_count_without_an_optimizer),
                TEST(a_net_without_values_is_refused), TEST(more_rows_than_can_be_are_refused),
                TEST(a_batch_without_initialiser_is_refused),
                TEST(an_attribute_that_is_not_listed_is_told))
