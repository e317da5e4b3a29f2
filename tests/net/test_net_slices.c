/* SPDX-License-Identifier: MIT */
/*
 * Goal: a loss that makes its logits in slices changes no bit of a net, holds no more than its
 * slices, and is chosen where logits are large. Method: nets that must hold all logits beside nets
 * that must not, of several schedules, stages and dtypes, with outputs and without; plans, and the
 * arenas that come of them; graphs.
 */
#include "harness.h"
#include "net/net_pipes.h"
#include "weir_models.h"

#include "base/base.h"
#include "net/run/net.h"
#include "pipe/run/pipe.h"

#include <string.h>

/* Of a micro-batch more than 1024 tokens, so that they are several slices, with ragged ends. */
enum { ROWS = 56, CHUNKS = 2, CONTEXT = 37, VOCAB = 203, WIDTH = 24, LOGITS_ALL = 1 << 30 };
enum { FLAT_ROWS = 2 * 1100, FLAT_IN = 9 };

static struct net_problem texts(struct weir_model *model) {
    struct net_problem problem = {.model = model, .classes = VOCAB, .labels = VOCAB};
    const char *loss;
    if (EXPECT(model != NULL)) weir_model_border(model, &problem.input, &problem.target, &loss);
    return problem;
}

/* The embedding is the head, too. */
static struct net_problem decoder(void) {
    return texts(net_small_decoder(2, WIDTH, 31, CONTEXT, VOCAB));
}

static struct net_problem gpt(void) {
    return texts(net_small_gpt(WIDTH, CONTEXT, VOCAB));
}

/* Its head does not learn. */
static struct net_problem adapted(void) {
    static const char *const names[] = {"q_proj", "v_proj"};
    struct weir_lora lora = {2, 3, true, 0.25, names, 2};
    struct net_problem problem = decoder();
    if (problem.model != NULL) EXPECT_STATUS(weir_model_lora(problem.model, &lora), WEIR_OK);
    return problem;
}

/* Rows of one token, and a head with a bias. */
static struct net_problem flat(void) {
    const struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {FLAT_IN}};
    const struct weir_tensor label = {.dtype = WEIR_I64};
    struct net_problem problem = {.input = row, .target = label, .classes = 1, .labels = VOCAB};
    problem.model = trial_model(row, label, "cross_entropy");
    trial_add(problem.model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", WIDTH)));
    trial_add(problem.model, "gelu", WEIR_NO_ATTRS);
    trial_add(problem.model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", VOCAB)));
    return problem;
}

static const struct weir__node *head_of(const struct weir_net *net) {
    return weir__graph_head(&net->stages[net->network.stage_count - 1].compiled->graph);
}

/* ---- bits ---- */

/* Some targets are ignored. */
static void data_init(const struct net_problem *problem, const struct weir_net_options *options,
                      struct trial_data *data) {
    net_pipe_data(problem, options, data);
    int64_t *target = data->target;
    for (size_t i = 0; i < data->target_bytes / sizeof *target; i++)
        if (test_random_below(7) == 0) target[i] = -100;
}

static void train(const struct net_problem *problem, struct weir_net_options options,
                  int64_t logits_most, const struct trial_data *data,
                  struct trial_result results[2]) {
    options.logits_most = logits_most;
    struct weir_net *net = trial_net(problem->model, &options);
    if (net == NULL) return;
    EXPECT((head_of(net) != NULL) == (logits_most == 1));
    net_pipe_train_net(problem, net, data, results);
    weir_net_destroy(net);
}

static void compare(const struct net_problem *problem, const struct weir_net_options *options) {
    struct trial_result whole[2] = {{0}}, sliced[2] = {{0}};
    struct trial_data data;
    data_init(problem, options, &data);
    train(problem, *options, LOGITS_ALL, &data, whole);
    train(problem, *options, 1, &data, sliced);
    for (int i = 0; i < 2; i++) {
        if (!test_has_failed()) trial_result_compare(&whole[i], &sliced[i]);
        trial_result_clean_up(&whole[i]);
        trial_result_clean_up(&sliced[i]);
    }
    if (test_has_failed()) net_pipe_print(problem, options);
    trial_data_clean_up(&data);
}

static void compare_all(struct net_problem problem, int64_t rows) {
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
    static const enum weir_dtype dtypes[] = {WEIR_F32, WEIR_BF16, WEIR_F64};
    if (problem.model == NULL) return;
    for (uint32_t i = 0; i < 12 && !test_has_failed(); i++) {
        struct weir_net_options options = trial_options(1 + i % 2, rows, CHUNKS);
        options.dtype = dtypes[i % 3];
        options.pipe.schedule = schedules[(i + i / 3) % 3];
        options.pipe.checkpoint = net_pipe_checkpoint();
        options.pipe.threads_per_worker = 1 + i / 6;
        options.pipe.debug_inputs = true;
        options.optimizer.lr = 0.01;
        compare(&problem, &options);
    }
    weir_model_destroy(problem.model);
}

static void test_slices_change_no_bit_of_a_decoder(void) {
    compare_all(decoder(), ROWS);
}

static void test_slices_change_no_bit_of_a_gpt(void) {
    compare_all(gpt(), ROWS);
}

static void test_slices_change_no_bit_beside_adapters(void) {
    compare_all(adapted(), ROWS);
}

static void test_slices_change_no_bit_with_a_bias(void) {
    compare_all(flat(), FLAT_ROWS);
}

/* ---- without outputs ---- */

static double loss_of(struct weir_net *net, const struct trial_data *data, bool trains,
                      void *output) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    struct weir_step_result result;
    batch.rows = data->rows, batch.input = data->input, batch.target = data->target;
    batch.output = output;
    batch.mini_batch = 3;
    batch.no_update = true;
    int status =
        trains ? weir_net_step(net, &batch, &result) : weir_net_infer(net, &batch, &result);
    if (!EXPECT_STATUS(status, WEIR_OK)) TEST_FAIL("%s", result.error.message);
    return result.loss;
}

/* What it gives besides would be looked at, and nobody writes it. */
static bool is_loss_alone(const struct weir_net *net) {
    return net->stages[net->network.stage_count - 1].compiled->graph.loss->producer->out_count == 1;
}

static void test_losses_do_without_outputs(void) {
    static float outputs[2][ROWS * CONTEXT * VOCAB];
    struct net_problem problem = decoder();
    CHECK(problem.model != NULL);
    struct weir_net_options options = trial_options(2, ROWS, CHUNKS);
    struct weir_net *nets[2];
    struct trial_data data;
    options.dtype = WEIR_F32;
    data_init(&problem, &options, &data);
    for (int i = 0; i < 2; i++) {
        options.logits_most = i == 0 ? LOGITS_ALL : 1;
        nets[i] = trial_net(problem.model, &options);
        CHECK(nets[i] != NULL);
    }
    EXPECT(is_loss_alone(nets[1]));
    for (int trains = 0; trains < 2; trains++) {
        double wanted = loss_of(nets[0], &data, trains, outputs[0]);
        memset(outputs[1], 0xff, sizeof outputs[1]);
        double asked = loss_of(nets[1], &data, trains, outputs[1]);
        double unasked = loss_of(nets[1], &data, trains, NULL);
        EXPECT_EQ_BYTES(&asked, &wanted, sizeof wanted);
        EXPECT_EQ_BYTES(&unasked, &wanted, sizeof wanted);
        EXPECT_EQ_BYTES(outputs[1], outputs[0], sizeof outputs[0]);
    }
    for (int i = 0; i < 2; i++) weir_net_destroy(nets[i]);
    trial_data_clean_up(&data);
    weir_model_destroy(problem.model);
}

static void test_a_wrong_target_is_told(void) {
    struct net_problem problem = flat();
    struct weir_net_options options = trial_options(1, FLAT_ROWS, 1);
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    struct weir_step_result result;
    struct trial_data data;
    options.dtype = WEIR_F32;
    options.logits_most = 1;
    data_init(&problem, &options, &data);
    ((int64_t *)data.target)[FLAT_ROWS - 2] = VOCAB;
    struct weir_net *net = trial_net(problem.model, &options);
    CHECK(net != NULL && head_of(net) != NULL);
    batch.rows = data.rows, batch.input = data.input, batch.target = data.target;
    EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_ERR_ARGUMENT);
    EXPECT_CONTAINS(result.error.message,
                    "target 2198 of the micro-batch is 203, which is outside [0, 203)");
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(problem.model);
}

/* ---- memory ---- */

/* The plan's bytes of the only worker, which the pipe acquires. */
static uint64_t planned_bytes(const struct weir_model *model, struct weir_net_options options,
                              int64_t logits_most) {
    struct weir_plan *plan;
    options.logits_most = logits_most;
    if (!EXPECT_STATUS(weir_net_plan(model, &options, NULL, &plan), WEIR_OK)) return 0;
    uint64_t total = plan->devices[0].total;
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL) {
        const struct weir__arena *arena = &weir_net_pipe(net)->memory.arenas[0];
        EXPECT_EQ_UINT(arena->lasting_bytes + arena->working_bytes, total);
    }
    weir_net_destroy(net);
    weir_plan_destroy(plan);
    return total;
}

enum { LARGE_VOCAB = 2000, PRODUCTS_BYTES = 1 << 20 };

/* Whole: logits that are saved, and the output or their gradient beside them; in inference what is
 * put out. With slices a slice of either kind, 256 tokens' logits and 96 classes' more, and what
 * its products work in. */
static void check_memory(const struct weir_model *model, const struct weir_net_options *options,
                         uint64_t held) {
    const uint64_t tokens = (uint64_t)options->pipe.rows * CONTEXT;
    const uint64_t logits = tokens * LARGE_VOCAB * 4;
    const uint64_t slice = 512 * (LARGE_VOCAB * sizeof(float) + sizeof(double));
    uint64_t whole = planned_bytes(model, *options, LOGITS_ALL);
    uint64_t sliced = planned_bytes(model, *options, 1);
    if (!EXPECT(sliced + held * logits <= whole + slice + PRODUCTS_BYTES))
        TEST_FAIL("%llu bytes instead of %llu, with %llu of logits", (unsigned long long)sliced,
                  (unsigned long long)whole, (unsigned long long)logits);
}

static void test_no_more_than_a_slice_is_held(void) {
    struct weir_model *model = net_small_decoder(1, 8, 8, CONTEXT, LARGE_VOCAB);
    struct weir_net_options options = trial_options(1, 128, 1);
    CHECK(model != NULL);
    options.dtype = WEIR_F32;
    for (int mode = 0; mode < 2; mode++) {
        options.pipe.checkpoint = mode == 0 ? WEIR_CHECKPOINT_NEVER : WEIR_CHECKPOINT_ALWAYS;
        check_memory(model, &options, 2);
    }
    options.pipe.infer_only = true;
    check_memory(model, &options, 1);
    weir_model_destroy(model);
}

/* ---- where ---- */

enum { CLASSES = 8192, LARGE_ROWS = 1025 };

/* A linear layer to so many classes. */
static bool is_sliced(const struct weir_model *model, struct weir__compile_options options) {
    const uint32_t balance = weir_model_layer_count(model);
    struct weir__network network;
    options.balance = &balance;
    options.stage_count = 1;
    options.dtype = WEIR_F32;
    if (!EXPECT_STATUS(weir__network_init(&network, test_allocator(), model, &options, NULL),
                       WEIR_OK))
        return false;
    bool sliced = weir__graph_head(&network.stages[0].graph) != NULL;
    weir__network_clean_up(&network);
    return sliced;
}

static struct weir_model *classifier(int64_t classes) {
    const struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {2}};
    const struct weir_tensor label = {.dtype = WEIR_I64};
    struct weir_model *model = trial_model(row, label, "cross_entropy");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 3)));
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", classes)));
    return model;
}

static void test_logits_are_sliced_where_they_are_large(void) {
    struct weir_model *many = classifier(CLASSES), *few = classifier(CLASSES - 1);
    EXPECT(is_sliced(many, (struct weir__compile_options){.rows_max = LARGE_ROWS}));
    EXPECT(!is_sliced(many, (struct weir__compile_options){.rows_max = LARGE_ROWS - 1}));
    EXPECT(!is_sliced(many, (struct weir__compile_options){.rows_max = 0}));
    EXPECT(!is_sliced(few, (struct weir__compile_options){.rows_max = 100 * LARGE_ROWS}));
    EXPECT(!is_sliced(
        many, (struct weir__compile_options){.rows_max = LARGE_ROWS, .logits_most = LOGITS_ALL}));
    EXPECT(is_sliced(few, (struct weir__compile_options){.rows_max = 1, .logits_most = 1}));
    weir_model_destroy(many);
    weir_model_destroy(few);
}

static void test_a_bound_below_0_is_refused(void) {
    struct weir_model *model = classifier(3);
    struct weir_net_options options = trial_options(1, 2, 1);
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_net *net;
    options.logits_most = -1;
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_CONFIG);
    if (EXPECT_EQ_UINT(faults.kept, 1)) EXPECT_CONTAINS(faults.lines[0], "logits_most is -1");
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

static void test_a_gpu_holds_all_logits(void) {
    struct weir_model *model = classifier(CLASSES);
    const struct weir__backend *backend = &weir__backend_cuda;
    EXPECT(!is_sliced(
        model, (struct weir__compile_options){.rows_max = LARGE_ROWS, .backends = &backend}));
    weir_model_destroy(model);
}

/* One node makes the gradients of weight and bias, or neither. */
static void test_what_learns_in_part_is_not_sliced(void) {
    static const struct {
        const char *freeze;
        bool sliced;
    } cases[] = {{"1.weight", false}, {"1.bias", false}, {"1.*", true}, {"0.*", false}};
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        struct weir_model *model = classifier(CLASSES);
        EXPECT_STATUS(weir_model_freeze(model, cases[i].freeze), WEIR_OK);
        bool sliced = is_sliced(model, (struct weir__compile_options){.rows_max = LARGE_ROWS});
        if (sliced != cases[i].sliced) TEST_FAIL("%s is frozen", cases[i].freeze);
        weir_model_destroy(model);
    }
}

WEIR_TEST_SUITE(net_slices, TEST(slices_change_no_bit_of_a_decoder),
                TEST(slices_change_no_bit_of_a_gpt), TEST(slices_change_no_bit_beside_adapters),
                TEST(slices_change_no_bit_with_a_bias), TEST(losses_do_without_outputs),
                TEST(a_wrong_target_is_told), TEST(no_more_than_a_slice_is_held),
                TEST(logits_are_sliced_where_they_are_large), TEST(a_gpu_holds_all_logits),
                TEST(a_bound_below_0_is_refused), TEST(what_learns_in_part_is_not_sliced))
