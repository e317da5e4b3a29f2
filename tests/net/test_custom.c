/* SPDX-License-Identifier: MIT */
/*
 * Goal: layers and ops of the user's own (weir_net.h) are as good as built-in ones. Method: the
 * example program trains and checks its gradients against differences; small ops here show what an
 * op is given (PyTorch's order, zeroed parameter gradients) and which mistakes are refused.
 */
#include "harness.h"
#include "net/net_trial.h"
#include "weir_net.h"

#include <stdio.h>
#include <string.h>

/* ---- an op: y = x + the element's number in PyTorch's order, times a parameter ------------------
 */

static int ramp_shape(const void *options, uint32_t input_count, const struct weir_tensor *inputs,
                      struct weir_tensor *output, struct weir_error *error) {
    (void)options;
    (void)input_count;
    *output = inputs[0];
    if (inputs[0].rank == 3) return WEIR_OK;
    snprintf(error->message, sizeof error->message, "it wants images");
    return WEIR_ERR_SHAPE;
}

static int64_t ramp_count(const struct weir_op_task *task) {
    int64_t count;
    memcpy(&count, task->options, sizeof count);
    return count;
}

static int ramp_forward(const struct weir_op_task *task) {
    const double *x = task->inputs[0], *w = task->inputs[1];
    double *y = task->output;
    for (int64_t i = 0; i < task->rows * ramp_count(task); i++)
        y[i] = x[i] + w[0] * (double)(i % ramp_count(task));
    return WEIR_OK;
}

static int ramp_backward(const struct weir_op_task *task) {
    const double *dy = task->output_grad;
    double *dx = task->input_grads[0], *dw = task->input_grads[1];
    /* Nothing was asked to be kept. */
    if (task->inputs[0] != NULL || task->inputs[1] != NULL || task->output != NULL)
        return WEIR_ERR_CALLBACK;
    for (int64_t i = 0; i < task->rows * ramp_count(task); i++) {
        if (dx != NULL) dx[i] = dy[i];
        if (dw != NULL) dw[0] += dy[i] * (double)(i % ramp_count(task));
    }
    return WEIR_OK;
}

static const struct weir_op ramp = {.size = sizeof(struct weir_op),
                                    .name = "ramp",
                                    .shape = ramp_shape,
                                    .forward = ramp_forward,
                                    .backward = ramp_backward};
static const struct weir_op ramp_forward_only = {
    .size = sizeof(struct weir_op), .name = "ramp", .shape = ramp_shape, .forward = ramp_forward};

static struct weir_value *emit_ramp(struct weir_builder *b, struct weir_value *x,
                                    const struct weir_op *op) {
    struct weir_tensor in = weir_value_tensor(x);
    int64_t count = 1, one = 1;
    for (uint32_t d = 0; d < in.rank; d++) count *= in.shape[d];
    struct weir_value *w = weir_parameter(b, "w", 1, &one, (struct weir_init){WEIR_INIT_ONE, 0});
    return weir_apply(b, op, &count, sizeof count, 2, (struct weir_value *[]){x, w});
}

static struct weir_value *build_ramp(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    (void)layer;
    return emit_ramp(b, x, &ramp);
}

static struct weir_value *build_forward_only(struct weir_builder *b, const struct weir_layer *layer,
                                             struct weir_value *x) {
    (void)layer;
    return emit_ramp(b, x, &ramp_forward_only);
}

static struct weir_value *build_absent(struct weir_builder *b, const struct weir_layer *layer,
                                       struct weir_value *x) {
    (void)layer;
    return weir_apply(b, &ramp, NULL, 0, 2, (struct weir_value *[]){x, NULL});
}

static const struct weir_layer_type ramp_layer = {.name = "ramp", .build = build_ramp};
static const struct weir_layer_type forward_only_layer = {.name = "ramp",
                                                          .build = build_forward_only};
static const struct weir_layer_type absent_layer = {.name = "ramp", .build = build_absent};

/** conv2d -> ramp -> conv2d -> flatten -> linear: images lie channels last around the op. */
static struct weir_model *image_model(const struct weir_layer_type *type) {
    struct weir_tensor input = {.dtype = WEIR_F32, .rank = 3, .shape = {2, 4, 3}};
    struct weir_model *model =
        trial_model(input, (struct weir_tensor){.dtype = WEIR_I64}, "cross_entropy");
    if (model == NULL) return NULL;
    struct weir_attrs conv =
        WEIR_ATTRS(WEIR_ATTR_INT("out_channels", 3), WEIR_ATTR_INT("kernel_size", 3),
                   WEIR_ATTR_INT("padding", 1));
    EXPECT_STATUS(weir_model_add_type(model, type), WEIR_OK);
    trial_add(model, "conv2d", conv);
    trial_add(model, "ramp", WEIR_NO_ATTRS);
    trial_add(model, "conv2d", conv);
    trial_add(model, "flatten", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4)));
    return model;
}

static void test_an_op_sees_pytorchs_order_of_dimensions(void) {
    struct weir_tensor input = {.dtype = WEIR_F32, .rank = 3, .shape = {2, 4, 3}};
    struct weir_tensor target = {.dtype = WEIR_F32, .rank = 3, .shape = {3, 4, 3}};
    struct trial_data data;
    struct trial_result with = {0}, without = {0};
    struct weir_net_options options = trial_options(1, 2, 1);
    for (int has = 0; has < 2; has++) {
        struct weir_model *model = trial_model(input, target, "mse");
        CHECK(model != NULL);
        EXPECT_STATUS(weir_model_add_type(model, &ramp_layer), WEIR_OK);
        trial_add(model, "conv2d",
                  WEIR_ATTRS(WEIR_ATTR_INT("out_channels", 3), WEIR_ATTR_INT("kernel_size", 1)));
        if (has) trial_add(model, "ramp", WEIR_NO_ATTRS);
        if (!has) trial_data_init(&data, &input, &target, WEIR_F64, 2, 1, 1);
        trial_run(model, &options, &data, has ? &with : &without);
        weir_model_destroy(model);
    }
    CHECK_HELPERS();
    const double *a = with.output, *b = without.output;
    for (int i = 0; i < 2 * 36; i++) EXPECT_NEAR(a[i] - b[i], i % 36, 1e-12);
    trial_result_clean_up(&with);
    trial_result_clean_up(&without);
    trial_data_clean_up(&data);
}

static void test_gradients_flow_through_an_op(void) {
    struct weir_model *model = image_model(&ramp_layer);
    CHECK(model != NULL);
    struct weir_net_options options = trial_options(2, 5, 2);
    options.input_grads = true;
    struct trial_data data;
    struct weir_tensor input, target;
    const char *loss;
    weir_model_border(model, &input, &target, &loss);
    trial_data_init(&data, &input, &target, WEIR_F64, 5, 1, 4);
    trial_check_gradients(model, &options, &data);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_bits_do_not_depend_on_the_pipeline_around_an_op(void) {
    struct weir_model *model = image_model(&ramp_layer);
    CHECK(model != NULL);
    struct weir_tensor input, target;
    struct trial_result one = {0}, several = {0};
    struct trial_data data;
    const char *loss;
    weir_model_border(model, &input, &target, &loss);
    trial_data_init(&data, &input, &target, WEIR_F64, 7, 1, 4);
    struct weir_net_options options = trial_options(1, 7, 3);
    trial_run(model, &options, &data, &one);
    options = trial_options(4, 7, 3);
    options.pipe.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    trial_run(model, &options, &data, &several);
    CHECK_HELPERS();
    trial_result_compare(&one, &several);
    trial_result_clean_up(&one);
    trial_result_clean_up(&several);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* The op makes both sorts of gradients. The second step must not add to what the first has left. */
static void test_a_split_backward_calls_an_op_once_for_each_part(void) {
    static char table[TRIAL_TABLE_BYTES];
    struct weir_model *model = image_model(&ramp_layer);
    CHECK(model != NULL);
    struct weir_tensor input, target;
    struct trial_result want = {0}, got[2] = {{0}, {0}};
    struct trial_data data;
    const char *loss;
    weir_model_border(model, &input, &target, &loss);
    trial_data_init(&data, &input, &target, WEIR_F64, 7, 1, 4);
    for (uint32_t stages = 1; stages <= 4 && !test_has_failed(); stages++) {
        struct weir_net_options options = trial_options(stages, 7, 3);
        options.input_grads = true;
        trial_run(model, &options, &data, &want);
        trial_split(&options, 100, table);
        struct weir_net *net = trial_net(model, &options);
        for (int i = 0; net != NULL && i < 2; i++) {
            trial_step(net, model, &data, &got[i]);
            trial_result_compare(&want, &got[i]);
            trial_result_clean_up(&got[i]);
        }
        weir_net_destroy(net);
        trial_result_clean_up(&want);
    }
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* ---- mistakes -----------------------------------------------------------------------------------
 */

static void expect_refused_in(enum weir_dtype dtype, const struct weir_model *model, int status,
                              const char *message) {
    struct weir_net_options options = trial_options(1, 2, 1);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    options.dtype = dtype;
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), status);
    if (EXPECT(faults.kept > 0)) EXPECT_CONTAINS(faults.lines[0], message);
    weir_faults_clean_up(&faults);
    weir_net_destroy(net);
}

static void expect_refused(const struct weir_model *model, int status, const char *message) {
    expect_refused_in(WEIR_F64, model, status, message);
}

static void test_an_op_is_refused_in_bf16(void) {
    struct weir_model *model = image_model(&ramp_layer);
    CHECK(model != NULL);
    expect_refused_in(WEIR_BF16, model, WEIR_ERR_UNSUPPORTED,
                      "layer 1 (ramp): 'custom' has no kernel of bf16: use --dtype f32");
    weir_model_destroy(model);
}

static void test_an_op_without_backward_is_refused_where_gradients_flow(void) {
    struct weir_model *model = image_model(&forward_only_layer);
    CHECK(model != NULL);
    expect_refused(model, WEIR_ERR_UNSUPPORTED,
                   "layer 1 (ramp): ramp has no backward, but gradients flow through it");
    weir_model_destroy(model);
}

static void test_an_absent_operand_is_refused(void) {
    struct weir_model *model = image_model(&absent_layer);
    CHECK(model != NULL);
    expect_refused(model, WEIR_ERR_ARGUMENT, "layer 1 (ramp): ramp: its input 1 is absent");
    weir_model_destroy(model);
}

static void test_the_shape_rules_own_words_reach_the_caller(void) {
    struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {4}};
    struct weir_model *model = trial_model(row, row, "mse");
    CHECK(model != NULL);
    EXPECT_STATUS(weir_model_add_type(model, &ramp_layer), WEIR_OK);
    trial_add(model, "ramp", WEIR_NO_ATTRS);
    expect_refused(model, WEIR_ERR_SHAPE, "layer 0 (ramp): ramp: it wants images");
    weir_model_destroy(model);
}

static void test_a_types_name_must_be_new(void) {
    static const struct weir_layer_type linear = {.name = "linear", .build = build_ramp};
    static const struct weir_layer_type empty = {.name = "empty"};
    struct weir_tensor row = {.dtype = WEIR_F32};
    struct weir_model *model = trial_model(row, row, "mse");
    CHECK(model != NULL);
    EXPECT_STATUS(weir_model_add_type(model, &linear), WEIR_ERR_EXISTS);
    EXPECT_STATUS(weir_model_add_type(model, &empty), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_model_add_type(model, &ramp_layer), WEIR_OK);
    EXPECT_STATUS(weir_model_add_type(model, &ramp_layer), WEIR_ERR_EXISTS);
    weir_model_destroy(model);
}

/** Each is a slip that a build function can make. */
static struct weir_value *build_slip(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    int64_t width = 4, wide[WEIR_RANK_MAX + 1] = {1, 1, 1, 1, 1, 1, 1};
    struct weir_init init = {WEIR_INIT_ONE, 0};
    const char *slip = weir_layer_text(layer, "slip");
    if (strcmp(slip, "nothing") == 0) return NULL;
    if (strcmp(slip, "rank") == 0) return weir_parameter(b, "v", WEIR_RANK_MAX + 1, wide, init);
    if (strcmp(slip, "size") == 0) return weir_parameter(b, "v", 1, (int64_t[]){0}, init);
    if (strcmp(slip, "huge") == 0)
        return weir_parameter(b, "v", 3, (int64_t[]){1 << 30, 1 << 30, 1 << 30}, init);
    struct weir_value *w = weir_parameter(b, "w", 1, &width, init);
    if (strcmp(slip, "gelu") == 0) return weir_gelu(b, w, false);
    if (strcmp(slip, "sum") == 0) return weir_sum(b, x, w);
    if (strcmp(slip, "absent") == 0) return weir_sum(b, x, NULL);
    if (strcmp(slip, "reshape") == 0) return weir_reshape(b, x, 2, (int64_t[]){2, 3});
    if (strcmp(slip, "flat") == 0) return weir_reshape(b, w, 2, (int64_t[]){2, 2});
    if (strcmp(slip, "heads") == 0)
        return weir_attention(b, weir_reshape(b, x, 2, (int64_t[]){1, 4}), 0, true);
    return w;
}

static const struct weir_attr_rule slip_attrs[] = {
    {.key = "slip", .kind = WEIR_ATTR_KIND_TEXT, .required = true}};
static const struct weir_layer_type slip_layer = {
    .name = "slip", .attrs = slip_attrs, .attr_count = 1, .build = build_slip};

static void expect_slip(const char *slip, int status, const char *message) {
    struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {4}};
    struct weir_model *model = trial_model(row, row, "mse");
    CHECK(model != NULL);
    EXPECT_STATUS(weir_model_add_type(model, &slip_layer), WEIR_OK);
    trial_add(model, "slip", WEIR_ATTRS(WEIR_ATTR_TEXT("slip", slip)));
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4)));
    expect_refused(model, status, message);
    weir_model_destroy(model);
}

static void test_slips_of_a_build_function_are_refused(void) {
    expect_slip("nothing", WEIR_ERR_ARGUMENT,
                "layer 0 (slip): its build function returned nothing instead of a value with rows");
    expect_slip("parameter", WEIR_ERR_ARGUMENT, "returned a parameter instead of a value");
    expect_slip("rank", WEIR_ERR_SHAPE, "its parameter 'v' has more than 6 dimensions");
    expect_slip("size", WEIR_ERR_SHAPE, "its parameter 'v' cannot be f64 [0]");
    expect_slip("huge", WEIR_ERR_OVERFLOW,
                "its parameter 'v' would be f64 [1073741824, 1073741824, 1073741824], which no");
    expect_slip("gelu", WEIR_ERR_ARGUMENT,
                "gelu takes a value with rows, but its input is a parameter");
    expect_slip("sum", WEIR_ERR_ARGUMENT,
                "add takes a value with rows, but its input is a parameter");
    expect_slip("absent", WEIR_ERR_ARGUMENT,
                "add takes a value with rows, but its input is absent");
    expect_slip("reshape", WEIR_ERR_SHAPE, "reshape from f64 [4] to f64 [2, 3]");
    expect_slip("flat", WEIR_ERR_ARGUMENT, "reshape takes a value with rows");
    expect_slip("heads", WEIR_ERR_SHAPE, "attention with 0 heads");
}

static void test_a_skip_must_be_named_by_an_attribute(void) {
    static const struct weir_attr_rule attrs[] = {
        {.key = "skip", .kind = WEIR_ATTR_KIND_TEXT, .required = true},
        {.key = "optional", .kind = WEIR_ATTR_KIND_TEXT},
        {.key = "number", .kind = WEIR_ATTR_KIND_INT, .required = true}};
    static const char *const wrong[][2] = {
        {NULL, NULL}, {"none", NULL}, {"optional", NULL}, {"number", NULL}, {"skip", "number"}};
    struct weir_tensor row = {.dtype = WEIR_F32};
    struct weir_model *model = trial_model(row, row, "mse");
    CHECK(model != NULL);
    struct weir_layer_type type = {
        .name = "keeps", .attrs = attrs, .attr_count = 3, .skip_count = 1, .build = build_ramp};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        type.skips[0] = (struct weir_skip_rule){WEIR_SKIP_STASH, wrong[i][0], wrong[i][1]};
        EXPECT_STATUS(weir_model_add_type(model, &type), WEIR_ERR_ARGUMENT);
    }
    type.skips[0] = (struct weir_skip_rule){WEIR_SKIP_STASH, "skip", NULL};
    EXPECT_STATUS(weir_model_add_type(model, &type), WEIR_OK);
    weir_model_destroy(model);
}

/* ---- the example --------------------------------------------------------------------------------
 */

static void run_example(const char *arguments) {
    char output[2048];
    if (!test_install_prefix()) SKIP("no --prefix of an installation was given");
    int status = test_shell(output, sizeof output, "'%s/examples/custom_layer' %s",
                            test_install_prefix(), arguments);
    if (status != 0) TEST_FAIL("examples/custom_layer %s: exit %d:\n%s", arguments, status, output);
}

static void test_the_example_trains(void) {
    run_example("");
}

static void test_the_examples_gradients_are_right(void) {
    run_example("--check");
}

WEIR_TEST_SUITE(custom, TEST(an_op_sees_pytorchs_order_of_dimensions),
                TEST(gradients_flow_through_an_op),
                TEST(bits_do_not_depend_on_the_pipeline_around_an_op),
                TEST(a_split_backward_calls_an_op_once_for_each_part),
                TEST(an_op_without_backward_is_refused_where_gradients_flow),
                TEST(an_op_is_refused_in_bf16), TEST(an_absent_operand_is_refused),
                TEST(the_shape_rules_own_words_reach_the_caller), TEST(a_types_name_must_be_new),
                TEST(slips_of_a_build_function_are_refused),
                TEST(a_skip_must_be_named_by_an_attribute), TEST(the_example_trains),
                TEST(the_examples_gradients_are_right))
