/* SPDX-License-Identifier: MIT */
/*
 * Goal: networks train on GPUs: as near to f64 as their dtype allows, and to the same bits whatever
 * the pipeline and in whatever order the GPU does its work. Method: the random models of
 * net_models.h on the fake driver, whose kernels are emulated and whose libraries are the reference
 * kernels; each trained on one stage on one GPU, and on a random pipeline over GPUs, or over GPUs
 * and CPUs; the first is measured against f64, by net_spread.h's formula. (The built-in models'
 * gradients have fixed bounds: test_net_near.c.)
 */
#include "device/cuda_driver.h"
#include "engine/engine_gpu.h"
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "net/net_pipes.h"
#include "net/net_spread.h"

#include "net/run/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES_QUICK = 15, CASES_FULL = 40, GPUS = 2, LOG_BYTES = 4096 };
static const char *const names[] = {"cuda:0", "cuda:1"};

static bool coin(void) {
    return test_random_below(2) == 1;
}

static uint32_t between(uint32_t least, uint32_t most) {
    return least + (uint32_t)test_random_below(most - least + 1);
}

/* ---- random cases ---- */

static void choose_devices(struct weir_net_options *options, bool mixed, const char **devices) {
    uint32_t workers = options->pipe.workers > 0 ? options->pipe.workers : options->stages;
    for (uint32_t w = 0; w < workers; w++)
        devices[w] = mixed && coin() ? "cpu" : engine_gpu_name(names[test_random_below(GPUS)]);
    options->pipe.devices = devices;
    options->pipe.device_count = workers;
}

static void choose_pipeline(struct weir_net_options *several, uint32_t layers, bool descending,
                            uint32_t *balance, enum weir_checkpoint *modes, char *table) {
    several->stages = between(1, layers < 4 ? layers : 4);
    net_pipe_balance(layers, several->stages, balance);
    several->balance = balance;
    net_pipe_schedule(several, descending);
    several->pipe.checkpoint = net_pipe_checkpoint();
    for (uint32_t s = 0; s < several->stages; s++) modes[s] = net_pipe_checkpoint();
    if (coin()) several->pipe.stage_checkpoint = modes;
    several->pipe.recompute_late = coin();
    if (coin() && net_pipe_is_whole(several->pipe.schedule))
        trial_split(several, coin() ? 100 : 50, table);
}

enum { ONE, SEVERAL, NETS };

static void compare(const struct net_problem *problem, const struct weir_net_options *one,
                    const struct weir_net_options *several, bool same) {
    struct trial_data data;
    struct trial_result r[NETS][2] = {{{0}}};
    static struct net_spread spread;
    net_pipe_data(problem, one, &data);
    net_spread_init(&spread, problem, one, &data, one->dtype);
    if (!test_has_failed()) net_pipe_train(problem, one, &data, r[ONE]);
    if (!test_has_failed()) net_pipe_train(problem, several, &data, r[SEVERAL]);
    if (!test_has_failed()) {
        net_spread_check(&spread, r[ONE], one->dtype);
        for (int i = 0; same && i < 2; i++) trial_result_compare(&r[ONE][i], &r[SEVERAL][i]);
        if (!same) net_spread_check(&spread, r[SEVERAL], one->dtype);
    }
    for (int i = 0; i < 2 * NETS; i++) trial_result_clean_up(&r[i / 2][i % 2]);
    net_spread_clean_up(&spread);
    trial_data_clean_up(&data);
}

static void random_case(const struct weir_fake_cuda_control *gpu, bool mixed,
                        enum weir_dtype dtype) {
    struct net_problem problem = {0};
    static char table[TRIAL_TABLE_BYTES];
    const char *devices[8];
    uint32_t balance[8];
    enum weir_checkpoint modes[8];
    net_problem_init_for_gpus(&problem);
    if (problem.model == NULL || test_has_failed()) return;
    gpu->reset(test_random_u64(), GPUS, coin() ? WEIR_FAKE_CUDA_NO_PEERS : 0);
    struct weir_net_options one = trial_options(1, between(1, 9), between(1, 4));
    one.dtype = dtype;
    one.input_grads = coin();
    one.pipe.schedule = coin() ? "gpipe" : "1f1b";
    one.pipe.clip_norm = coin() ? 0.5 : 0;
    if (coin()) one.optimizer = (struct weir_optimizer)WEIR_SGD_INIT;
    one.pipe.devices = names;
    one.pipe.device_count = 1;
    struct weir_net_options several = one;
    choose_pipeline(&several, weir_model_layer_count(problem.model),
                    strcmp(one.pipe.schedule, "gpipe") == 0, balance, modes, table);
    choose_devices(&several, mixed, devices);
    compare(&problem, &one, &several, !mixed);
    fake_gpus_clean(gpu);
    if (test_has_failed()) {
        net_pipe_print(&problem, &several);
        for (uint32_t w = 0; w < several.pipe.device_count; w++)
            printf("  worker %u on %s\n", w, devices[w]);
    }
    weir_model_destroy(problem.model);
}

static void random_cases(const struct weir_fake_cuda_control *gpu, bool mixed,
                         enum weir_dtype dtype) {
    size_t cases = test_count(CASES_QUICK, CASES_FULL);
    for (size_t i = 0; i < cases && !test_has_failed(); i++) random_case(gpu, mixed, dtype);
}

static void test_gpus_give_the_same_bits_whatever_the_pipeline(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL) return;
    if (!net_pipe_has_libraries()) return;
    random_cases(gpu, false, WEIR_F32);
}

static void test_gpus_and_cpus_train_one_network(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL) return;
    if (!net_pipe_has_libraries()) return;
    random_cases(gpu, true, WEIR_F32);
}

static void test_bf16_has_the_same_bits_too(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL) return;
    if (!net_pipe_has_libraries()) return;
    random_cases(gpu, false, WEIR_BF16);
}

/* What a step works in is NaN until something is written there. */
static void test_no_step_needs_memory_that_is_zero(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL) return;
    if (!net_pipe_has_libraries()) return;
    CHECK(setenv("WEIR_RAW_MEMORY", "1", 1) == 0);
    random_cases(gpu, false, WEIR_F32);
    unsetenv("WEIR_RAW_MEMORY");
}

/* ---- failing calls ---- */

/* As small as a net can be that has a product, a convolution, a copy between GPUs, and something of
 * the caller's at both ends. */
static void small_problem(struct net_problem *problem, struct weir_net_options *options) {
    memset(problem, 0, sizeof *problem);
    problem->input = (struct weir_tensor){.dtype = WEIR_F32, .rank = 3, .shape = {1, 2, 2}};
    problem->target = (struct weir_tensor){.dtype = WEIR_I64};
    problem->classes = problem->labels = 2;
    problem->model = trial_model(problem->input, problem->target, "cross_entropy");
    trial_add(problem->model, "conv2d",
              WEIR_ATTRS(WEIR_ATTR_INT("out_channels", 2), WEIR_ATTR_INT("kernel_size", 1)));
    trial_add(problem->model, "flatten", WEIR_NO_ATTRS);
    trial_add(problem->model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 2)));
    *options = trial_options(2, 2, 2);
    options->dtype = WEIR_F32;
    options->pipe.devices = names;
    options->pipe.device_count = options->stages;
}

/* A block of three heads in BF16, which is the fake library's attention. */
static void attention_problem(struct net_problem *problem, struct weir_net_options *options) {
    struct weir_gpt_options gpt = WEIR_GPT_OPTIONS_INIT;
    gpt.layers = 1;
    gpt.heads = 3;
    gpt.width = 24;
    gpt.context = 2;
    gpt.vocab = 3;
    memset(problem, 0, sizeof *problem);
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &gpt, NULL, &problem->model), WEIR_OK);
    problem->input = problem->target =
        (struct weir_tensor){.dtype = WEIR_I64, .rank = 1, .shape = {gpt.context}};
    problem->classes = problem->labels = gpt.vocab;
    *options = trial_options(2, 2, 2);
    options->dtype = WEIR_BF16;
    options->pipe.devices = names;
    options->pipe.device_count = options->stages;
}

/* What a life came to. */
struct life {
    int status; /* the first that is not OK */
    double loss, norm;
    char output[256];
    float parameters[8192];
};

static void note(struct life *life, int status) {
    if (life->status == WEIR_OK) life->status = status;
}

static void read_parameters(struct weir_net *net, struct life *life) {
    size_t read = 0;
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        note(life, weir_net_parameter(net, i, &parameter));
        CHECK(read + parameter.count <= sizeof life->parameters / sizeof(float));
        note(life, weir_pipe_read(weir_net_pipe(net), parameter.stage, &life->parameters[read],
                                  parameter.data, parameter.count * sizeof(float)));
        read += parameter.count;
    }
}

static void step_once(struct weir_net *net, const struct trial_data *data, struct life *life) {
    struct weir_step_result done;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = data->rows;
    batch.input = data->input;
    batch.target = data->target;
    batch.output = life->output;
    int status = weir_net_step(net, &batch, &done);
    EXPECT(status == WEIR_OK || done.error.message[0] != '\0');
    note(life, status);
    life->loss = done.loss;
    life->norm = done.gradient_norm;
}

/* A net is built, filled, trained for a step, read and destroyed. */
static void live(const struct net_problem *problem, const struct weir_net_options *options,
                 const struct trial_data *data, struct life *life) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    memset(life, 0, sizeof *life);
    faults.allocator = test_allocator();
    note(life, weir_net_new(problem->model, options, &faults, &net));
    EXPECT(life->status == WEIR_OK || faults.count > 0);
    if (life->status == WEIR_OK) note(life, weir_net_init(net, 7));
    if (life->status == WEIR_OK) step_once(net, data, life);
    if (life->status == WEIR_OK) read_parameters(net, life);
    weir_net_destroy(net);
    weir_faults_clean_up(&faults);
}

/* The same with the k-th call of the driver or its libraries failing. False: there are not so many.
 * A call that fails is told of, or nothing depended on it. */
static bool live_with_failure(const struct weir_fake_cuda_control *gpu,
                              const struct net_problem *problem,
                              const struct weir_net_options *options, const struct trial_data *data,
                              const struct life *want, uint64_t k, int result) {
    struct weir_fake_cuda_counts left;
    static struct life life;
    gpu->reset(1, GPUS, WEIR_FAKE_CUDA_UNGUARDED | WEIR_FAKE_CUDA_NO_PEERS);
    gpu->fail_call(k, result);
    live(problem, options, data, &life);
    if (life.status == WEIR_OK) {
        EXPECT_EQ_BYTES(&life.loss, &want->loss, sizeof life.loss);
        EXPECT_EQ_BYTES(&life.norm, &want->norm, sizeof life.norm);
        EXPECT_EQ_BYTES(life.output, want->output, sizeof life.output);
        EXPECT_EQ_BYTES(life.parameters, want->parameters, sizeof life.parameters);
    }
    gpu->counts(&left);
    EXPECT_EQ_UINT(left.contexts, 0);
    EXPECT_EQ_UINT(left.streams + left.events + left.allocations + left.pins + left.modules, 0);
    if (test_has_failed()) printf("call %llu gave %d\n", (unsigned long long)k, result);
    return gpu->failed();
}

/* One in `stride` calls, from a random one on. How many calls there are, or nearly. */
static uint64_t fail_calls(const struct weir_fake_cuda_control *gpu, struct net_problem *problem,
                           const struct weir_net_options *options, uint64_t stride) {
    static const int results[] = {WEIR__CUDA_OUT_OF_MEMORY, WEIR__CUDA_ILLEGAL_ADDRESS};
    static struct life want;
    struct trial_data data;
    uint64_t k = 1 + test_random_below(stride), tried = 0;
    net_pipe_data(problem, options, &data);
    live(problem, options, &data, &want);
    EXPECT_STATUS(want.status, WEIR_OK);
    while (!test_has_failed() &&
           live_with_failure(gpu, problem, options, &data, &want, k, results[tried % 2])) {
        k += stride;
        tried++;
    }
    printf("  %llu calls failed in turn\n", (unsigned long long)tried);
    trial_data_clean_up(&data);
    weir_model_destroy(problem->model);
    return k;
}

static void test_a_failed_call_never_passes_for_success(void) {
    const struct weir_fake_cuda_control *gpu = fake_gpus(1, GPUS, WEIR_FAKE_CUDA_NO_PEERS);
    struct net_problem problem;
    struct weir_net_options options;
    if (gpu == NULL) return;
    small_problem(&problem, &options);
    EXPECT(fail_calls(gpu, &problem, &options, 1) > 400);
}

static void test_nor_does_one_of_attention(void) {
    enum { STRIDE = 7 }; /* odd: both results take turns on all that repeats by twos */
    const struct weir_fake_cuda_control *gpu = fake_gpus(1, GPUS, WEIR_FAKE_CUDA_NO_PEERS);
    struct net_problem problem;
    struct weir_net_options options;
    if (gpu == NULL) return;
    attention_problem(&problem, &options);
    EXPECT(fail_calls(gpu, &problem, &options, STRIDE) > 400);
}

/* ---- ways ---- */

static void add_line(void *context, const char *line) {
    char *text = context;
    size_t used = strlen(text);
    snprintf(text + used, LOG_BYTES - used, "%s\n", line);
}

/* What computes a convolution and its gradients, once, however many there are. */
static void test_the_log_says_by_what_convolutions_are(void) {
    static char log[LOG_BYTES];
    const struct weir_fake_cuda_control *gpu = fake_gpus(1, GPUS, 0);
    struct net_problem problem;
    struct weir_net_options options;
    if (gpu == NULL) return;
    small_problem(&problem, &options);
    options.pipe.log = add_line;
    options.pipe.log_context = log;
    log[0] = '\0';
    struct weir_net *net = trial_net(problem.model, &options);
    CHECK(net != NULL);
    static const char wanted[] = "cuda:0: convolutions in f32: the fake library's\n";
    const char *line = strstr(log, wanted);
    EXPECT(line != NULL && strstr(line + strlen(wanted), "convolutions in f32: the") == NULL);
    EXPECT_CONTAINS(log, "convolutions in f32, gradients of weights: the fake library's\n");
    weir_net_destroy(net);
    weir_model_destroy(problem.model);
}

/* ---- packed weights ---- */

/* Of a net with one stage after a step, which has changed the weights since: an input's gradient
 * had the weights that the forward pass packed, and packed none. How many did. */
static uint32_t count_sharing(const struct weir_net *net) {
    const struct weir__net_stage *stage = &net->stages[0];
    const struct weir__graph *graph = &stage->compiled->graph;
    const uint64_t packed = net->step.weights - 1;
    uint32_t sharing = 0;
    size_t bytes = 0;
    for (uint32_t i = 0; i < graph->node_count; i++) {
        const struct weir__net_lasting *lasting = &stage->plan.lasting[i];
        if (lasting->bytes == 0) continue;
        bool forward = i < graph->forward_count;
        EXPECT(forward == (lasting->owner == NULL));
        EXPECT_EQ_UINT(lasting->packed_of, forward ? packed : 0);
        if (forward) bytes += lasting->bytes;
        if (lasting->owner == NULL) continue;
        const struct weir__node *owner = graph->nodes[lasting->owner - stage->plan.lasting];
        EXPECT(owner->in[1] == graph->nodes[i]->in[1]);
        EXPECT_EQ_UINT(lasting->offset, lasting->owner->offset);
        EXPECT_EQ_UINT(lasting->owner->packed_of, packed);
        sharing++;
    }
    EXPECT_EQ_UINT(stage->state_bytes, bytes);
    return sharing;
}

static uint16_t rounded(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* What is packed for a linear layer is its weight, and its bias at once behind it. */
static void check_linear(struct weir_net *net, const struct weir__node *node) {
    enum { MOST = 300 };
    const struct weir__net_lasting *lasting = &net->stages[0].plan.lasting[node->id];
    const char *state = (const char *)net->stages[0].at.state + lasting->offset;
    struct weir_parameter weight, bias;
    float numbers[MOST];
    uint16_t packed[MOST];
    EXPECT_STATUS(weir_net_parameter(net, node->in[1]->index, &weight), WEIR_OK);
    EXPECT_STATUS(weir_net_parameter(net, node->in[2]->index, &bias), WEIR_OK);
    size_t count = (size_t)(weight.count + bias.count);
    CHECK(count <= MOST);
    struct weir_pipe *pipe = weir_net_pipe(net);
    size_t bytes = (size_t)bias.count * sizeof(float);
    EXPECT_STATUS(weir_pipe_read(pipe, 0, numbers, weight.data, weight.count * sizeof(float)),
                  WEIR_OK);
    EXPECT_STATUS(weir_pipe_read(pipe, 0, &numbers[weight.count], bias.data, bytes), WEIR_OK);
    EXPECT_STATUS(weir_pipe_read(pipe, 0, packed, state, count * sizeof(uint16_t)), WEIR_OK);
    for (size_t i = 0; i < count; i++) EXPECT_EQ_UINT(packed[i], rounded(numbers[i]));
    EXPECT(packed[count - 1] != 0);
}

static void check_linears(struct weir_net *net) {
    const struct weir__graph *graph = &net->stages[0].compiled->graph;
    for (uint32_t i = 0; i < graph->forward_count; i++)
        if (graph->nodes[i]->op == WEIR__OP_linear) check_linear(net, graph->nodes[i]);
}

/* A linear layer of 128 x 2, whose weight fills lines of memory: its bias follows at once. */
static void packed_problem(struct net_problem *problem, struct weir_net_options *options) {
    small_problem(problem, options);
    weir_model_destroy(problem->model);
    problem->input.shape[1] = problem->input.shape[2] = 8;
    problem->model = trial_model(problem->input, problem->target, "cross_entropy");
    trial_add(problem->model, "conv2d",
              WEIR_ATTRS(WEIR_ATTR_INT("out_channels", 2), WEIR_ATTR_INT("kernel_size", 1)));
    trial_add(problem->model, "flatten", WEIR_NO_ATTRS);
    trial_add(problem->model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 2)));
    options->stages = options->pipe.device_count = 1;
    options->input_grads = true;
    options->dtype = WEIR_BF16;
}

static void test_weights_are_packed_once_a_step(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    struct net_problem problem;
    struct weir_net_options options;
    struct weir_step_result done;
    struct trial_data data;
    float output[64];
    if (gpu == NULL) return;
    if (!net_pipe_has_libraries()) return;
    packed_problem(&problem, &options);
    net_pipe_data(&problem, &options, &data);
    struct weir_net *net = trial_net(problem.model, &options);
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = data.rows;
    batch.input = data.input;
    batch.target = data.target;
    batch.output = output;
    batch.lr = 0;
    for (int step = 0; step < 3 && !test_has_failed(); step++) {
        EXPECT_STATUS(weir_net_step(net, &batch, &done), WEIR_OK);
        EXPECT_EQ_UINT(count_sharing(net), 2);
        check_linears(net);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(problem.model);
}

WEIR_TEST_SUITE(net_cuda, TEST(weights_are_packed_once_a_step), TEST(bf16_has_the_same_bits_too),
                TEST(the_log_says_by_what_convolutions_are),
                TEST(a_failed_call_never_passes_for_success), TEST(nor_does_one_of_attention),
                TEST(gpus_give_the_same_bits_whatever_the_pipeline),
                TEST(no_step_needs_memory_that_is_zero), TEST(gpus_and_cpus_train_one_network))
