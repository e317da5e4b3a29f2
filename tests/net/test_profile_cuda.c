/* SPDX-License-Identifier: MIT */
/*
 * Goal: a profile of GPUs says what layers take there, by events or by estimate, and bytes to the
 * byte. Method: random models on the fake driver, whose plan by the engine says the same sums; a
 * layer whose estimate is known; layers measured while the driver works in any order, and while its
 * calls fail in turn.
 */
#include "device/cuda_driver.h"
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "net/profile/roofs.h"
#include "net/net_models.h"
#include "net/net_trial.h"
#include "pipe/lanes/ways.h"
#include "net/profiles.h"
#include "weir_net.h"
#include "weir_profile.h"

#include <stdio.h>
#include <string.h>

static const char *const gpus[] = {"cuda:0", "cuda:1"};
static const char *const both[] = {"cuda:0", "cpu"};

static struct weir_profile_options on_gpu(int64_t rows, uint32_t chunks, enum weir_dtype dtype) {
    struct weir_profile_options options = profile_options(rows, chunks);
    options.net.dtype = dtype;
    options.net.pipe.devices = gpus;
    options.net.pipe.device_count = 1;
    return options;
}

/* ---- bytes ---- */

/** Of one stage, by the engine's own plan: one micro-batch, all in one arena. */
static void check_bytes(const struct weir_model *model, enum weir_dtype dtype) {
    struct weir_profile_options options = on_gpu(4, 1, dtype);
    struct weir_plan *plan = NULL;
    struct weir_layer_cost sum = {0};
    options.bytes_only = true;
    options.net.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    struct weir_profile *profile = profile_of(model, &options);
    if (!EXPECT(profile != NULL)) return;
    if (EXPECT_STATUS(weir_net_plan(model, &options.net, NULL, &plan), WEIR_OK)) {
        for (uint32_t i = 0; i < profile->costs.layer_count; i++) {
            sum.saved += profile->costs.layers[i].saved;
            sum.parameters += profile->costs.layers[i].parameters;
            sum.gradients += profile->costs.layers[i].gradients;
            sum.optimizer += profile->costs.layers[i].optimizer;
        }
        EXPECT_EQ_UINT(sum.saved, plan->devices[0].activations);
        EXPECT_EQ_UINT(sum.parameters, plan->devices[0].parameters);
        EXPECT_EQ_UINT(sum.gradients, plan->devices[0].gradients);
        EXPECT_EQ_UINT(sum.optimizer, plan->devices[0].optimizer);
    }
    weir_plan_destroy(plan);
    weir_profile_destroy(profile);
}

static void test_layers_bytes_add_up_to_the_plan(void) {
    if (fake_gpus(1, 2, 0) == NULL) return;
    for (int trial = 0; trial < 40 && !test_has_failed(); trial++) {
        struct net_problem problem;
        net_problem_init_for_gpus(&problem);
        CHECK(problem.model != NULL);
        check_bytes(problem.model, trial % 2 == 0 ? WEIR_F32 : WEIR_BF16);
        weir_model_destroy(problem.model);
    }
}

/** The most that a call of one stage takes is what its layer takes alone, and room beside it. */
static void test_workspace_is_that_of_cuda_kernels(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_profile_options options = on_gpu(4, 1, WEIR_F32);
    if (fake_gpus(1, 2, 0) == NULL) return;
    options.bytes_only = true;
    struct weir_profile *there = profile_of(model, &options);
    options.net.pipe.devices = NULL;
    options.net.pipe.device_count = 0;
    struct weir_profile *here = profile_of(model, &options);
    CHECK(there != NULL && here != NULL);
    EXPECT(strcmp(there->device, "cuda") == 0 && strcmp(here->device, "cpu") == 0);
    for (uint32_t i = 1; i <= 2; i++) /* products promise cuBLASLt room for partial results */
        EXPECT(there->costs.layers[i].workspace > here->costs.layers[i].workspace);
    weir_profile_destroy(here);
    weir_profile_destroy(there);
    weir_model_destroy(model);
}

/** What is planned is what is taken, on GPUs and CPUs in one pipe. */
static void test_a_plan_is_the_pipes_to_the_byte(void) {
    struct weir_model *model = gpt_model(false, 0.1);
    struct weir_net_options options = trial_options(2, 6, 3);
    struct weir_plan *plan = NULL;
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 2, 0);
    struct weir_fake_cuda_counts counts;
    if (fake == NULL) return;
    options.dtype = WEIR_F32;
    options.pipe.devices = both;
    options.pipe.device_count = 2;
    CHECK_OK(weir_net_plan(model, &options, NULL, &plan));
    fake->counts(&counts);
    EXPECT_EQ_UINT(counts.bytes, 0);
    struct weir_net *net = trial_net(model, &options);
    CHECK(net != NULL);
    const struct weir_plan *built = weir_pipe_plan(weir_net_pipe(net));
    for (uint32_t d = 0; d < 2; d++)
        EXPECT_EQ_BYTES(&plan->devices[d], &built->devices[d], sizeof plan->devices[d]);
    fake->counts(&counts);
    EXPECT(counts.bytes >= plan->devices[0].total);
    weir_net_destroy(net);
    weir_plan_destroy(plan);
    weir_model_destroy(model);
}

/* ---- estimates ---- */

enum { WIDE = 4096, WIDE_ROWS = 512 };

static struct weir_profile *estimate(const struct weir_model *model,
                                     const struct weir_net_options *net) {
    struct weir_profile *profile = NULL;
    EXPECT_STATUS(weir_profile_estimate(model, net, NULL, &profile), WEIR_OK);
    return profile;
}

/** A linear of 4096 by 4096, 512 rows: 17 GFLOPs, and the bytes of weights and images. */
static double wide_seconds(enum weir_dtype dtype) {
    double flops = 2.0 * WIDE * WIDE * WIDE_ROWS, bytes = dtype == WEIR_BF16 ? 2 : 4;
    double peak = dtype == WEIR_BF16 ? WEIR__ROOF_GPU_BF16_FLOPS : WEIR__ROOF_GPU_F32_FLOPS;
    double moved = 2 * bytes * WIDE * WIDE_ROWS + 4.0 * (WIDE * WIDE + WIDE);
    return flops / peak + moved / WEIR__ROOF_GPU_BYTES + WEIR__ROOF_GPU_START;
}

static void test_estimates_follow_the_roofs(void) {
    static const enum weir_dtype dtypes[] = {WEIR_F32, WEIR_BF16};
    struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {WIDE}};
    struct weir_model *model = trial_model(row, row, "mse");
    if (fake_gpus(1, 2, 0) == NULL) return;
    for (int i = 0; i < 2; i++)
        trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", WIDE)));
    for (int i = 0; i < 2; i++) {
        struct weir_profile_options options = on_gpu(WIDE_ROWS, 1, dtypes[i]);
        struct weir_profile *profile = estimate(model, &options.net);
        CHECK(profile != NULL);
        const struct weir_layer_cost *layer = &profile->costs.layers[0];
        double want = wide_seconds(dtypes[i]), kept = layer->saved * 2 / WEIR__ROOF_GPU_BYTES;
        if (dtypes[i] == WEIR_BF16) want += 2 * WEIR__ROOF_GPU_START; /* narrowed first */
        EXPECT(!profile->measured);
        EXPECT(layer->seconds[WEIR_KIND_F] >= 0.99 * (want - 2 * WEIR__ROOF_GPU_START));
        EXPECT(layer->seconds[WEIR_KIND_F] <= 1.01 * (want + kept));
        EXPECT_NEAR(layer->seconds[WEIR_KIND_B], 2 * layer->seconds[WEIR_KIND_F], 1e-12);
        EXPECT_NEAR(profile->costs.task_seconds, WEIR__ROOF_GPU_TASK, 0);
        weir_profile_destroy(profile);
    }
    weir_model_destroy(model);
}

/** A small layer takes as long as its kernels' starts, however many rows. */
static void test_small_kernels_cost_their_starts(void) {
    struct weir_model *model = gpt_model(false, 0);
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_profile_options options = on_gpu(1, 1, WEIR_F32);
    struct weir_profile *one = estimate(model, &options.net);
    options = on_gpu(4, 1, WEIR_F32);
    struct weir_profile *four = estimate(model, &options.net);
    CHECK(one != NULL && four != NULL);
    double block = one->costs.layers[1].seconds[WEIR_KIND_F];
    EXPECT(block >= 5 * WEIR__ROOF_GPU_START && block < 20 * WEIR__ROOF_GPU_START);
    EXPECT_NEAR(four->costs.layers[1].seconds[WEIR_KIND_F], block, 0.01 * block);
    weir_profile_destroy(four);
    weir_profile_destroy(one);
    weir_model_destroy(model);
}

static double link_bytes_per_ns(const char *const *devices, uint32_t count) {
    struct weir_net_options net = trial_options(count, 4, 2);
    net.pipe.devices = devices;
    net.pipe.device_count = count;
    struct weir_link_cost link = weir_net_link(&net);
    EXPECT_NEAR(link.latency, 5e-6, 0);
    return link.seconds_per_byte > 0 ? 1e-9 / link.seconds_per_byte : 0;
}

static void test_links_follow_the_devices(void) {
    static const char *const same[] = {"cuda:1", "cuda:1"}, *const cpus[] = {"cpu", "cpu"};
    double peer = weir__link_speed(WEIR__LINK_PEER)->bytes_per_ns;
    double host = weir__link_speed(WEIR__LINK_HOST)->bytes_per_ns;
    EXPECT_NEAR(link_bytes_per_ns(gpus, 2), peer, 1e-9);
    EXPECT_NEAR(link_bytes_per_ns(both, 2), host, 1e-9);
    EXPECT_NEAR(link_bytes_per_ns(same, 2), 0, 0);
    EXPECT_NEAR(link_bytes_per_ns(cpus, 2), 0, 0);
}

/* ---- measuring ---- */

static void check_times(const struct weir_profile *profile) {
    static const enum weir_kind kinds[] = {WEIR_KIND_F, WEIR_KIND_R, WEIR_KIND_B, WEIR_KIND_I,
                                           WEIR_KIND_W};
    for (int k = 0; k < 5; k++) {
        double sum = 0, whole = profile->seconds[kinds[k]];
        for (uint32_t i = 0; i < profile->costs.layer_count; i++) {
            EXPECT(profile->costs.layers[i].seconds[kinds[k]] >= 0);
            sum += profile->costs.layers[i].seconds[kinds[k]];
        }
        EXPECT(whole > 0 && sum > 0);
    }
}

static void test_layers_are_measured_by_events(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 2, 0);
    if (fake == NULL) return;
    for (int i = 0; i < 3; i++) {
        struct weir_model *model = i == 2 ? unet_model() : gpt_model(i == 1, 0.1);
        struct weir_profile_options options = on_gpu(2, 1, i == 1 ? WEIR_BF16 : WEIR_F32);
        options.steps_least = options.steps_most = 3;
        fake->reset(test_random_u64(), 2, 0);
        struct weir_profile *profile = profile_of(model, &options);
        CHECK(profile != NULL);
        EXPECT(profile->measured && profile->steps == 3);
        EXPECT_EQ_INT(profile->rows, 2);
        EXPECT_EQ_UINT(profile->threads, 1);
        check_times(profile);
        struct weir_faults faults = WEIR_FAULTS_INIT;
        EXPECT_STATUS(weir_profile_fit(profile, model, &options.net, &faults), WEIR_OK);
        for (uint32_t k = 0; k < faults.kept; k++) TEST_FAIL("fault: %s", faults.lines[k]);
        weir_faults_clean_up(&faults);
        weir_profile_destroy(profile);
        weir_model_destroy(model);
        EXPECT(fake_gpus_clean(fake));
    }
}

/** The third of four products takes a hundred times the others' multiplications, and more. */
static void test_times_are_those_of_their_layers(void) {
    static const int64_t widths[] = {8, 8, 1024, 1024, 8};
    struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {8}};
    struct weir_model *model = trial_model(row, row, "mse");
    struct weir_profile_options options = on_gpu(2, 1, WEIR_F32);
    if (fake_gpus(1, 2, 0) == NULL) return;
    for (int i = 1; i < 5; i++)
        trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", widths[i])));
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL);
    const struct weir_layer_cost *layers = profile->costs.layers;
    for (int k = 0; k < 4; k++) {
        if (k == 2) continue;
        EXPECT(layers[2].seconds[WEIR_KIND_F] > layers[k].seconds[WEIR_KIND_F]);
        EXPECT(layers[2].seconds[WEIR_KIND_B] > layers[k].seconds[WEIR_KIND_B]);
    }
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

static void test_inference_is_measured_there_too(void) {
    struct weir_model *model = unet_model();
    struct weir_profile_options options = on_gpu(2, 2, WEIR_F32);
    if (fake_gpus(1, 2, 0) == NULL) return;
    options.net.pipe.infer_only = true;
    options.steps_least = options.steps_most = 2;
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL);
    EXPECT(profile->infer_only && profile->seconds[WEIR_KIND_F] > 0);
    EXPECT_NEAR(profile->seconds[WEIR_KIND_B], 0, 0);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

/** False: there are not so many calls. */
static bool measure_with_failure(const struct weir_fake_cuda_control *fake,
                                 const struct weir_model *model, uint64_t k) {
    struct weir_profile_options options = on_gpu(4, 2, WEIR_F32);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_fake_cuda_counts left;
    struct weir_profile *profile = NULL;
    options.warm_up = 0;
    options.steps_least = options.steps_most = 1;
    fake->reset(k, 2, WEIR_FAKE_CUDA_UNGUARDED);
    fake->fail_call(k, WEIR__CUDA_ILLEGAL_ADDRESS);
    int status = weir_profile_new(model, &options, &faults, &profile);
    EXPECT(status == WEIR_OK || (faults.count > 0 && profile == NULL));
    weir_profile_destroy(profile);
    weir_faults_clean_up(&faults);
    fake->counts(&left);
    EXPECT_EQ_UINT(left.contexts, 0);
    EXPECT_EQ_UINT(left.streams + left.events + left.allocations + left.pins + left.modules, 0);
    if (test_has_failed()) printf("call %llu\n", (unsigned long long)k);
    return fake->failed();
}

static void test_failing_calls_leave_nothing_behind(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 2, 0);
    struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {8}};
    uint32_t failed = 0;
    if (fake == NULL) return;
    struct weir_model *model = trial_model(row, row, "mse");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 8)));
    for (uint64_t k = 1, step = 1; !test_has_failed(); k += step, step = 1 + k / 8) {
        if (!measure_with_failure(fake, model, k)) break;
        failed++;
    }
    EXPECT(failed > 20);
    weir_model_destroy(model);
}

/* ---- refusals ---- */

static int same_shape(const void *options, uint32_t input_count, const struct weir_tensor *inputs,
                      struct weir_tensor *output, struct weir_error *error) {
    (void)options;
    (void)input_count;
    (void)error;
    *output = inputs[0];
    return WEIR_OK;
}

static int copy_row(const struct weir_op_task *task) {
    memcpy(task->output, task->inputs[0], (size_t)task->rows * sizeof(float));
    return WEIR_OK;
}

static const struct weir_op own_op = {
    .size = sizeof(struct weir_op), .name = "own", .shape = same_shape, .forward = copy_row};

static struct weir_value *build_own(struct weir_builder *b, const struct weir_layer *layer,
                                    struct weir_value *x) {
    (void)layer;
    return weir_apply(b, &own_op, NULL, 0, 1, (struct weir_value *[]){x});
}

static const struct weir_layer_type own_layer = {.name = "own", .build = build_own};

static void expect_refusal(const struct weir_model *model, const struct weir_net_options *net,
                           int status, const char *words) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_profile *profile = NULL;
    EXPECT_STATUS(weir_profile_estimate(model, net, &faults, &profile), status);
    EXPECT_FAULTS(&faults, words);
    weir_faults_clean_up(&faults);
}

static void test_what_cannot_be_profiled_is_told(void) {
    struct weir_tensor one = {.dtype = WEIR_F32, .rank = 1, .shape = {1}};
    struct weir_profile_options options = on_gpu(4, 2, WEIR_F64);
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_model *model = trial_model(one, one, "mse");
    CHECK_OK(weir_model_add_type(model, &own_layer));
    trial_add(model, "own", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 1)));
    expect_refusal(model, &options.net, WEIR_ERR_CONFIG, "--dtype f64 is the CPU's");
    options.net.dtype = WEIR_F32;
    expect_refusal(model, &options.net, WEIR_ERR_UNSUPPORTED, "'custom' has no CUDA kernel");
    options.net.pipe.devices = both;
    options.net.pipe.device_count = 2;
    expect_refusal(model, &options.net, WEIR_ERR_UNSUPPORTED, "one kind of device");
    weir_model_destroy(model);
}

static void test_times_of_a_cpu_are_not_a_gpus(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_profile_options options = profile_options(8, 2), other = on_gpu(8, 4, WEIR_F32);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_profile *scaled = NULL;
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_profile *here = profile_of(model, &options);
    CHECK(here != NULL);
    EXPECT_STATUS(weir_profile_fit(here, model, &other.net, NULL), WEIR_ERR_CONFIG);
    EXPECT_STATUS(weir_profile_scale(model, &other.net, (const struct weir_profile *[]){here}, 1,
                                     &faults, &scaled),
                  WEIR_ERR_CONFIG);
    EXPECT_FAULTS(&faults, "times of another model, device, dtype or number of threads");
    weir_faults_clean_up(&faults);
    weir_profile_destroy(here);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(profile_cuda, TEST(a_plan_is_the_pipes_to_the_byte),
                TEST(estimates_follow_the_roofs), TEST(failing_calls_leave_nothing_behind),
                TEST(inference_is_measured_there_too), TEST(layers_are_measured_by_events),
                TEST(layers_bytes_add_up_to_the_plan), TEST(links_follow_the_devices),
                TEST(small_kernels_cost_their_starts), TEST(times_are_those_of_their_layers),
                TEST(times_of_a_cpu_are_not_a_gpus), TEST(what_cannot_be_profiled_is_told),
                TEST(workspace_is_that_of_cuda_kernels))
