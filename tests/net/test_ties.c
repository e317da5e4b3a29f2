/* SPDX-License-Identifier: MIT */
/*
 * Goal: parameters that stages share: the first use's norm adds up all uses, in layer order and not
 * before they are complete; copies stay equal; what cannot be is refused with every reason.
 * Method: stages of one number whose gradients are powers of ten, one of them slow; networks with a
 * tied head at every cut, against one stage.
 */
#include "harness.h"
#include "net/net_trial.h"

#include "net/run/net.h"
#include "schedule/action.h"
#include "weir_net.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- the engine ---- */

enum { STAGES = 3, MICRO_BATCHES = 2 };

/** A stage with one parameter and, for each use of it, a gradient. */
struct number {
    uint32_t stage, uses;
    double gradient; /**< that a micro-batch adds to the first use; ten times as much to the next */
    bool slow;
    double sum;     /**< what norm made of it */
    double updated; /**< what update was given */
};

static int forward(void *context, const struct weir_task *task) {
    (void)context;
    for (int64_t i = 0; i < task->rows; i++) ((double *)task->outputs[0].data)[i] = 1;
    return 0;
}

static int backward(void *context, const struct weir_task *task) {
    struct number *own = context;
    double *gradients = task->gradients, part = own->gradient;
    struct timespec while_others_go_on = {.tv_nsec = 30 * 1000 * 1000};
    if (own->slow) nanosleep(&while_others_go_on, NULL);
    EXPECT_EQ_UINT(task->tied_count, 0);
    for (uint32_t u = 0; u < own->uses; u++, part *= 10)
        gradients[u] = (task->gradients_first ? 0 : gradients[u]) + part;
    return 0;
}

static int norm(void *context, const struct weir_task *task) {
    struct number *own = context;
    *task->norm_squares = 0;
    if (!EXPECT_EQ_UINT(task->tied_count, own->uses > 0) || own->uses == 0) return 0;
    EXPECT_EQ_STR(task->tied[0].name, "w");
    double *const *uses = (double *const *)task->tied[0].gradients;
    if (uses[0] != task->gradients) return 0;
    for (uint32_t u = 1; u < task->tied[0].use_count; u++) *uses[0] += *uses[u];
    own->sum = *uses[0];
    *task->norm_squares = own->sum * own->sum;
    return 0;
}

static int update(void *context, const struct weir_task *task) {
    struct number *own = context;
    if (task->tied_count == 1) own->updated = *(double *)task->tied[0].gradients[0];
    return 0;
}

static const struct weir_stage_calls calls = {
    .forward = forward, .backward = backward, .norm = norm, .update = update};
static const struct weir_stage_calls without_norm = {
    .forward = forward, .backward = backward, .update = update};
static const struct weir_tensor border = {.dtype = WEIR_F64};
static const struct weir_input input = {.tensor = {.dtype = WEIR_F64}, .name = "x"};
static const struct weir_tie uses[] = {{"w", 0, sizeof(double)},
                                       {"w", sizeof(double), sizeof(double)}};

/** Stages 0 and 2 share a number, which the last one uses twice. Borders have no gradient, so that
 * nothing but the tie makes one stage wait for another's backward. */
static struct weir_pipe_options describe(struct number numbers[STAGES],
                                         struct weir_stage stages[STAGES]) {
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    for (uint32_t s = 0; s < STAGES; s++) {
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &calls;
        stages[s].context = &numbers[s];
        stages[s].outputs = &border;
        stages[s].output_count = 1;
        stages[s].gradient_bytes = numbers[s].uses * sizeof(double);
        stages[s].norm_count = 1;
        stages[s].ties = uses;
        stages[s].tie_count = numbers[s].uses;
    }
    options.allocator = test_allocator();
    options.stages = stages, options.stage_count = STAGES;
    options.inputs = &input, options.input_count = 1;
    options.rows = options.chunks = MICRO_BATCHES;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.bind = "none", options.wait = WEIR_WAIT_PARK;
    return options;
}

static void run(const struct weir_pipe_options *options, struct number numbers[STAGES]) {
    double x[MICRO_BATCHES] = {0};
    struct weir_pipe *pipe;
    struct weir_step step = WEIR_STEP_INIT;
    struct weir_step_result result;
    step.rows = MICRO_BATCHES, step.inputs = (const void *[]){x};
    CHECK_OK(weir_pipe_new(options, NULL, &pipe));
    for (int i = 0; i < 2; i++) {
        EXPECT_STATUS(weir_pipe_step(pipe, &step, &result), WEIR_OK);
        EXPECT(numbers[0].sum == 222 && result.gradient_norm == 222);
        EXPECT(numbers[0].updated == 222 && numbers[2].updated == 222);
    }
    weir_pipe_destroy(pipe);
}

// PI-4
static void test_the_first_stage_adds_up_when_the_last_is_done(void) {
    struct weir_stage stages[STAGES];
    struct number numbers[STAGES] = {
        {0, 1, 1, false, 0, 0}, {1, 0, 0, false, 0, 0}, {2, 2, 10, true, 0, 0}};
    struct weir_pipe_options options = describe(numbers, stages);
    for (int gpipe = 0; gpipe < 2; gpipe++) {
        options.schedule = gpipe ? "gpipe" : "1f1b";
        run(&options, numbers);
        options.link = WEIR_LINK_COPY;
        run(&options, numbers);
        options.link = WEIR_LINK_AUTO;
    }
}

static void test_the_owners_norm_waits_for_the_other_gradients(void) {
    static const uint32_t others[] = {2};
    const struct weir__flow_tie tie = {0, 1, others};
    struct weir__flow flow = {.stage_count = 3, .tie_count = 1, .ties = &tie};
    struct weir__table_builder builder;
    struct weir_table *table;
    struct weir__deps deps;
    weir__table_begin(&builder, test_allocator(), 3, 3, 1);
    for (uint32_t s = 0; s < 3; s++) {
        weir__table_line(&builder);
        weir__table_add(&builder, WEIR_KIND_F, s, 0);
        weir__table_add(&builder, WEIR_KIND_B, s, 0);
        weir__table_add(&builder, WEIR_KIND_N, s, 0);
    }
    CHECK_OK(weir__table_finish(&builder, &table));
    CHECK_OK(weir__deps_new(table, &flow, test_allocator(), &deps));
    EXPECT_EQ_UINT(deps.begin[3] - deps.begin[2], 1);
    EXPECT_EQ_UINT(deps.edges[deps.begin[2]].from, 7); /* 2B0 */
    EXPECT_EQ_UINT(deps.begin[9] - deps.begin[8], 0);
    weir__deps_clean_up(&deps);
    weir_table_destroy(table);
}

static void expect_refused(const struct weir_pipe_options *options, const char *reason) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_pipe *pipe;
    faults.allocator = test_allocator();
    EXPECT_STATUS(weir_pipe_new(options, &faults, &pipe), WEIR_ERR_CONFIG);
    EXPECT_FAULTS(&faults, reason);
    weir_faults_clean_up(&faults);
}

static void test_ties_that_cannot_be_are_refused(void) {
    struct weir_stage stages[STAGES];
    struct number numbers[STAGES] = {
        {0, 1, 1, false, 0, 0}, {1, 0, 0, false, 0, 0}, {2, 2, 10, false, 0, 0}};
    struct weir_pipe_options options = describe(numbers, stages);
    stages[0].gradient_bytes = 4;
    expect_refused(&options,
                   "stage 0, tied parameter 'w': bytes 8 at 0 do not lie in the stage's 4 "
                   "gradient bytes");
    options = describe(numbers, stages);
    stages[0].calls = &without_norm;
    expect_refused(&options, "stage 0: it has the first use of the tied parameter 'w', whose "
                             "gradients its norm adds up: give it a norm callback");
    options = describe(numbers, stages);
    stages[0].ties = &(struct weir_tie){"v", 0, 8};
    stages[1].ties = &(struct weir_tie){"v", 0, 8};
    stages[1].tie_count = 1, stages[1].gradient_bytes = 8;
    expect_refused(&options, "stage 2: no other stage uses the tied parameter 'w'");
    options = describe(numbers, stages);
    stages[0].ties = &(struct weir_tie){"w", 0, 4};
    stages[2].tie_count = 1;
    expect_refused(&options, "stage 2: the tied parameter 'w' has 8 bytes, but 4 in stage 0");
    options = describe(numbers, stages);
    stages[2].ties = NULL;
    stages[0].tie_count = 0;
    expect_refused(&options, "stage 2: tie_count is 2 but ties is NULL");
    options = describe(numbers, stages);
    stages[1].ties = &(struct weir_tie){NULL, 0, 8};
    stages[1].tie_count = 1;
    expect_refused(&options, "stage 1: a tied parameter has no name");
    options.infer_only = true; /* nothing is summed */
    struct weir_pipe *pipe;
    CHECK_OK(weir_pipe_new(&options, NULL, &pipe));
    weir_pipe_destroy(pipe);
}

/* ---- networks ---- */

static struct weir_value *build_first(struct weir_builder *b, const struct weir_layer *layer,
                                      struct weir_value *x) {
    (void)layer;
    return weir_linear(b, x,
                       weir_parameter(b, "shared", 2, (int64_t[]){4, 4},
                                      (struct weir_init){WEIR_INIT_NORMAL, 0.5}),
                       NULL, false);
}

static struct weir_value *build_again(struct weir_builder *b, const struct weir_layer *layer,
                                      struct weir_value *x) {
    (void)layer;
    return weir_linear(b, x, weir_tied_parameter(b, "shared"), NULL, false);
}

static const struct weir_layer_type first_layer = {.name = "first", .build = build_first};
static const struct weir_layer_type again_layer = {.name = "again", .build = build_again};

static void run_cut(const struct weir_model *model, const struct trial_data *data, uint32_t stages,
                    const uint32_t *balance, struct trial_result *result) {
    struct weir_net_options options = trial_options(stages, 6, 3);
    options.dtype = WEIR_F32;
    options.balance = balance;
    struct weir_net *net = trial_net(model, &options);
    if (net == NULL) return;
    for (uint64_t i = 0; i < 2; i++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = 6;
        batch.input = data->input;
        batch.target = data->target;
        batch.mini_batch = i;
        batch.update = i;
        batch.lr = 0.1;
        struct weir_step_result step;
        EXPECT_STATUS(weir_net_step(net, &batch, &step), WEIR_OK);
    }
    trial_step(net, model, data, result);
    weir_net_destroy(net);
}

/* Sums of five terms: another order of them gives other bits. */
// PI-4
static void test_uses_are_summed_in_layer_order_wherever_the_cuts_are(void) {
    static const uint32_t cuts[][5] = {{1, 1, 1, 1, 1}, {3, 2}, {2, 3}, {1, 3, 1}, {2, 1, 2}};
    static const uint32_t counts[] = {5, 2, 2, 3, 3};
    struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {4}};
    struct weir_model *model = trial_model(row, row, "mse");
    struct trial_data data;
    struct trial_result whole = {0};
    CHECK(model != NULL);
    CHECK_OK(weir_model_add_type(model, &first_layer));
    CHECK_OK(weir_model_add_type(model, &again_layer));
    trial_add(model, "first", WEIR_NO_ATTRS);
    for (int i = 0; i < 4; i++) trial_add(model, "again", WEIR_NO_ATTRS);
    trial_data_init(&data, &row, &row, WEIR_F32, 6, 1, 1);
    run_cut(model, &data, 1, (const uint32_t[]){5}, &whole);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct trial_result result = {0};
        run_cut(model, &data, counts[i], cuts[i], &result);
        if (!test_has_failed()) trial_result_compare(&whole, &result);
        trial_result_clean_up(&result);
    }
    trial_result_clean_up(&whole);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static struct weir_value *build_idle(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    (void)layer;
    weir_tied_parameter(b, "shared");
    return x;
}

static const struct weir_layer_type idle_layer = {.name = "idle", .build = build_idle};

/* A copy without a gradient would not be updated as its original is. */
static void test_a_copy_that_nothing_uses_is_refused(void) {
    struct weir_tensor row = {.dtype = WEIR_F64, .rank = 1, .shape = {4}};
    struct weir_model *model = trial_model(row, row, "mse");
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_net *net = NULL;
    CHECK(model != NULL);
    CHECK_OK(weir_model_add_type(model, &first_layer));
    CHECK_OK(weir_model_add_type(model, &again_layer));
    CHECK_OK(weir_model_add_type(model, &idle_layer));
    trial_add(model, "first", WEIR_NO_ATTRS);
    trial_add(model, "again", WEIR_NO_ATTRS);
    trial_add(model, "idle", WEIR_NO_ATTRS);
    trial_add(model, "again", WEIR_NO_ATTRS);
    struct weir_net_options options = trial_options(4, 4, 2);
    options.balance = (const uint32_t[]){1, 1, 1, 1};
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_CONFIG);
    EXPECT_FAULTS(&faults, "but stage 2 does not use it");
    weir_faults_clean_up(&faults);
    options.stages = 2;
    options.balance = (const uint32_t[]){1, 3}; /* beside a use of it nothing drifts */
    CHECK_OK(weir_net_new(model, &options, NULL, &net));
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static const void *data_of(const struct weir_net *net,
                           const struct weir__parameter_decl *parameter) {
    return (const char *)net->stages[parameter->stage].at.parameters + parameter->offset;
}

/** Every copy in a net, against its original; returns how many there are. */
static uint32_t check_copies(const struct weir_net *net) {
    uint32_t copies = 0;
    for (uint32_t i = 0; i < net->network.parameter_count; i++) {
        const struct weir__parameter_decl *copy = &net->network.parameters[i];
        if (copy->original == WEIR__NONE) continue;
        const struct weir__parameter_decl *from = &net->network.parameters[copy->original];
        EXPECT_EQ_BYTES(data_of(net, from), data_of(net, copy), from->count * sizeof(double));
        copies++;
    }
    return copies;
}

static void train(struct weir_net *net, const struct trial_data *data) {
    for (uint64_t i = 0; i < 3; i++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = data->rows;
        batch.input = data->input;
        batch.target = data->target;
        batch.mini_batch = i;
        batch.update = i;
        batch.lr = 0.1;
        struct weir_step_result result;
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    }
}

// PI-4
static void test_copies_stay_equal_and_stand_once_in_files(void) {
    static const uint32_t balance[] = {1, 1, 1, 1};
    struct weir_gpt_options gpt = {2, 4, 2, 3, 5, true, 0.0};
    struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};
    struct weir_model *model;
    struct weir_parameter parameter;
    struct trial_data data;
    CHECK_OK(weir_model_gpt(test_allocator(), &gpt, NULL, &model));
    trial_data_init(&data, &tokens, &tokens, WEIR_F64, 4, 5, 5);
    struct weir_net_options options = trial_options(4, 4, 2);
    options.balance = balance;
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL) {
        EXPECT_EQ_UINT(check_copies(net), 1);
        train(net, &data);
        EXPECT_EQ_UINT(check_copies(net), 1);
        uint32_t tables = 0;
        for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
            EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK);
            tables += strcmp(parameter.name, "wte.weight") == 0;
        }
        EXPECT_EQ_UINT(tables, 1);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(ties, TEST(the_first_stage_adds_up_when_the_last_is_done),
                TEST(the_owners_norm_waits_for_the_other_gradients),
                TEST(ties_that_cannot_be_are_refused), TEST(a_copy_that_nothing_uses_is_refused),
                TEST(uses_are_summed_in_layer_order_wherever_the_cuts_are),
                TEST(copies_stay_equal_and_stand_once_in_files))
