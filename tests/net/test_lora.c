/* SPDX-License-Identifier: MIT */
/*
 * Goal: adapters of low rank learn beside frozen weights, in every product that they are asked for,
 * and cost what they must alone. Method: small decoders, GPTs and lists of layers; gradients by
 * differences and, over cuts, schedules and checkpoint modes, the same bits; a CPU's numbers on the
 * fake driver's GPUs; plans and tables by what they hold. That the numbers are PEFT's is
 * test_golden_nets.c's.
 */
#include "engine/engine_gpu.h"
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "net/net_pipes.h"
#include "weir_models.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 6, CONTEXT = 5, VOCAB = 11, WIDTH = 8 };
static const char *const all[] = {"all-linear"};

static struct weir_model *decoder(void) {
    return net_small_decoder(3, WIDTH, 12, CONTEXT, VOCAB);
}

static struct weir_model *gpt(void) {
    return net_small_gpt(WIDTH, CONTEXT, VOCAB);
}

static void adapt(struct weir_model *model, double dropout, const char *const *targets,
                  uint32_t count) {
    struct weir_lora lora = {2, 3, true, dropout, targets, count};
    EXPECT_STATUS(weir_model_lora(model, &lora), WEIR_OK);
}

static void tokens_init(struct trial_data *data, const struct weir_model *model) {
    trial_data_of(data, model, WEIR_F64, ROWS, VOCAB);
}

static void step(const struct weir_model *model, const struct weir_net_options *options,
                 const struct trial_data *data, struct trial_result *result) {
    struct weir_net *net = trial_net(model, options);
    if (net == NULL) return;
    trial_fill_adapters(net);
    trial_step(net, model, data, result);
    weir_net_destroy(net);
}

static void test_gradients_are_the_losss_differences(void) {
    struct weir_model *models[] = {decoder(), gpt()};
    for (int i = 0; i < 2; i++) {
        struct trial_data data;
        adapt(models[i], 0.25, all, 1);
        tokens_init(&data, models[i]);
        struct weir_net_options options = trial_options(2, ROWS, 3);
        options.dtype = WEIR_F64;
        struct weir_net *net = trial_net(models[i], &options);
        if (net != NULL) {
            trial_fill_adapters(net);
            trial_check_net(net, models[i], false, &data);
        }
        weir_net_destroy(net);
        trial_data_clean_up(&data);
        weir_model_destroy(models[i]);
    }
}

static void compare_runs(const struct weir_model *model, enum weir_dtype dtype) {
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
    struct trial_data data;
    struct trial_result first = {0};
    trial_data_of(&data, model, dtype, ROWS, VOCAB);
    for (uint32_t stages = 1; stages <= 4; stages++)
        for (uint32_t s = 0; s < 3; s++)
            for (uint32_t mode = 0; mode < 3 && !test_has_failed(); mode++) {
                struct trial_result other = {0};
                struct weir_net_options options = trial_options(stages, ROWS, 3);
                options.dtype = dtype;
                options.pipe.schedule = s == 0 ? "1f1b" : schedules[s];
                options.pipe.checkpoint = (enum weir_checkpoint)mode;
                bool is_first = stages == 1 && s == 0 && mode == 0;
                step(model, &options, &data, is_first ? &first : &other);
                if (!is_first) trial_result_compare(&first, &other);
                trial_result_clean_up(&other);
            }
    trial_result_clean_up(&first);
    trial_data_clean_up(&data);
}

static void test_cuts_schedules_and_checkpoints_change_no_bit(void) {
    struct weir_model *models[] = {decoder(), gpt()};
    for (int i = 0; i < 2; i++) {
        adapt(models[i], 0.25, all, 1);
        compare_runs(models[i], WEIR_F32);
        if (i == 0) compare_runs(models[i], WEIR_BF16);
        weir_model_destroy(models[i]);
    }
}

static uint32_t count_actions(const struct weir_net *net, uint32_t stage, enum weir_kind kind) {
    const struct weir_table *table = weir_pipe_table(weir_net_pipe((struct weir_net *)net), ROWS);
    uint32_t count = 0;
    for (uint32_t a = 0; table != NULL && a < table->action_count; a++)
        count += table->actions[a].stage == stage && table->actions[a].kind == (uint8_t)kind;
    return count;
}

static void test_below_the_first_adapter_there_is_no_backward(void) {
    static const char *const last[] = {"model.layers.2.*q_proj", "layers.2.mlp.down_proj"};
    static const uint32_t balance[] = {2, 1, 3};
    struct weir_model *model = decoder();
    struct weir_net_options options = trial_options(3, ROWS, 3);
    options.balance = balance;
    adapt(model, 0, last, 2);
    struct weir_net *net = trial_net(model, &options);
    CHECK(net != NULL);
    EXPECT_EQ_UINT(count_actions(net, 0, WEIR_KIND_B), 0);
    EXPECT_EQ_UINT(count_actions(net, 1, WEIR_KIND_B), 0);
    EXPECT_EQ_UINT(count_actions(net, 2, WEIR_KIND_B), 3);
    struct weir_parameter p;
    uint32_t learning = 0;
    for (uint32_t i = 0; weir_net_parameter(net, i, &p) == WEIR_OK; i++) {
        bool adapter = strstr(p.name, ".lora_") != NULL;
        EXPECT(p.adapter == adapter && p.frozen == !adapter);
        EXPECT((p.gradient != NULL) == adapter && (p.optimizer[0] != NULL) == adapter);
        learning += adapter;
    }
    EXPECT_EQ_UINT(learning, 4);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/* Of plain weights nothing changes; A is uniform within 1 / sqrt(in), B is 0, and so is what they
 * add. */
static void test_adapters_begin_as_nothing(void) {
    struct weir_model *plain = decoder(), *adapted = decoder();
    struct weir_net_options options = trial_options(1, ROWS, 3);
    struct trial_data data;
    struct trial_result a = {0}, b = {0};
    options.dtype = WEIR_F32;
    struct weir_parameter p, q;
    adapt(adapted, 0.25, all, 1);
    tokens_init(&data, plain);
    struct weir_net *without = trial_net(plain, &options), *with = trial_net(adapted, &options);
    CHECK(without != NULL && with != NULL);
    uint32_t next = 0;
    double largest = 0;
    for (uint32_t i = 0; weir_net_parameter(with, i, &p) == WEIR_OK; i++) {
        const float *numbers = p.data;
        bool is_b = strstr(p.name, ".lora_B.") != NULL;
        if (!p.adapter) {
            CHECK_OK(weir_net_parameter(without, next++, &q));
            EXPECT(strcmp(p.name, q.name) == 0);
            EXPECT_EQ_BYTES(p.data, q.data, p.count * sizeof(float));
        }
        for (uint64_t k = 0; p.adapter && k < p.count; k++) {
            double bound = is_b ? 0 : 1 / sqrt((double)p.shape[1]);
            EXPECT(fabs((double)numbers[k]) <= bound);
            if (!is_b) largest = fmax(largest, fabs((double)numbers[k]) / bound);
        }
    }
    EXPECT(largest > 0.9);
    trial_step(without, plain, &data, &a);
    trial_step(with, adapted, &data, &b);
    CHECK(a.output_bytes > 0 && a.output_bytes == b.output_bytes);
    EXPECT_EQ_BYTES(a.output, b.output, a.output_bytes);
    trial_result_clean_up(&a);
    trial_result_clean_up(&b);
    weir_net_destroy(without);
    weir_net_destroy(with);
    weir_model_destroy(plain);
    weir_model_destroy(adapted);
    trial_data_clean_up(&data);
}

/* Of gradients in F32 from those in F64, as a part of the largest. */
static double distance(const struct trial_result *of, const struct trial_result *exact) {
    size_t count = of->gradient_bytes / sizeof(float);
    const float *numbers = of->gradients;
    const double *wanted = exact->gradients;
    double most = 0, largest = 0;
    if (!EXPECT(count > 0 && exact->gradient_bytes == count * sizeof(double))) return 0;
    for (size_t i = 0; i < count; i++) {
        if (!EXPECT(isfinite(numbers[i]))) return 0;
        most = fmax(most, fabs((double)numbers[i] - wanted[i]));
        largest = fmax(largest, fabs(wanted[i]));
    }
    return EXPECT(largest > 0) ? most / largest : 0;
}

/* How many times as far from F64 as a CPU's they may be. In 500 draws the median was 1.1;
 * the most were 2.5 for the decoder, whose own distance was up to 6e-7, and 41 for the GPT,
 * which multiplies what is rounded, on CPUs too: there up to 4e-5. */
static const double times[] = {4, 64};

static void test_gpus_give_a_cpus_gradients(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open_any();
    if (gpu == NULL || !net_pipe_has_libraries()) return;
    const char *devices[] = {engine_gpu_name("cuda:0"), engine_gpu_name("cuda:1")};
    struct weir_model *models[] = {decoder(), gpt()};
    for (int i = 0; i < 2; i++) {
        struct weir_net_options options = trial_options(2, ROWS, 3);
        struct trial_result exact = {0}, own = {0}, got = {0};
        struct trial_data data;
        adapt(models[i], 0.25, all, 1);
        tokens_init(&data, models[i]);
        options.dtype = WEIR_F64;
        step(models[i], &options, &data, &exact);
        options.dtype = WEIR_F32;
        step(models[i], &options, &data, &own);
        gpu->reset(test_random_u64(), 2, 0);
        options.pipe.devices = devices;
        options.pipe.device_count = 2;
        step(models[i], &options, &data, &got);
        if (!test_has_failed()) {
            double error = distance(&own, &exact);
            EXPECT(error > 0 && error < 1e-3);
            EXPECT_NEAR(distance(&got, &exact), 0, times[i] * error);
            EXPECT_NEAR(got.loss, exact.loss, 1e-5 * fabs(exact.loss));
        }
        fake_gpus_clean(gpu);
        trial_result_clean_up(&exact);
        trial_result_clean_up(&own);
        trial_result_clean_up(&got);
        trial_data_clean_up(&data);
        weir_model_destroy(models[i]);
    }
}

static void plan_of(bool adapted, struct weir_device_plan *device) {
    struct weir_net_options options = trial_options(1, ROWS, 3);
    struct weir_model *model = decoder();
    struct weir_plan *plan = NULL;
    if (adapted) adapt(model, 0, all, 1);
    if (EXPECT_STATUS(weir_net_plan(model, &options, NULL, &plan), WEIR_OK))
        *device = plan->devices[0];
    weir_plan_destroy(plan);
    weir_model_destroy(model);
}

static void test_the_plan_counts_what_learns(void) {
    struct weir_device_plan full = {0}, adapted = {0};
    plan_of(false, &full);
    plan_of(true, &adapted);
    EXPECT(adapted.parameters > full.parameters);
    EXPECT(adapted.gradients > 0 && adapted.gradients < full.gradients);
    EXPECT(adapted.optimizer > 0 && adapted.optimizer < full.optimizer);
}

static void test_adapters_are_saved_and_loaded_under_pefts_names(void) {
    struct weir_net_options options = trial_options(2, ROWS, 3);
    struct weir_model *models[] = {decoder(), gpt()};
    options.dtype = WEIR_F32;
    static const char *const names[] = {
        "base_model.model.model.layers.1.mlp.up_proj.lora_A.weight",
        "base_model.model.transformer.h.1.attn.c_attn.lora_B.weight"};
    char path[512], weights[512];
    snprintf(path, sizeof path, "%s/adapter", test_temporary_directory());
    snprintf(weights, sizeof weights, "%s.weights", path);
    for (int i = 0; i < 2; i++) {
        struct weir_faults faults = WEIR_FAULTS_INIT;
        struct weir_parameter p, q;
        adapt(models[i], 0, all, 1);
        struct weir_net *from = trial_net(models[i], &options),
                        *to = trial_net(models[i], &options);
        CHECK(from != NULL && to != NULL);
        trial_fill_adapters(from);
        EXPECT_STATUS(weir_net_save_adapters(from, path, NULL), WEIR_OK);
        EXPECT_STATUS(weir_net_load_adapters(to, path, &faults), WEIR_OK);
        for (uint32_t k = 0; weir_net_parameter(from, k, &p) == WEIR_OK; k++) {
            CHECK_OK(weir_net_parameter(to, k, &q));
            EXPECT_EQ_BYTES(p.data, q.data, p.count * sizeof(float));
        }
        EXPECT_STATUS(weir_net_load(to, path, NULL, &faults), WEIR_ERR_SHAPE);
        EXPECT_STATUS(weir_net_save(from, weights, NULL, NULL), WEIR_OK);
        EXPECT_STATUS(weir_net_load_adapters(to, weights, &faults), WEIR_ERR_SHAPE);
        bool named = false;
        for (uint32_t k = 0; k < faults.kept; k++)
            named |= strstr(faults.lines[k], names[i]) != NULL;
        EXPECT(named);
        weir_faults_clean_up(&faults);
        weir_net_destroy(from);
        weir_net_destroy(to);
        weir_model_destroy(models[i]);
    }
}

static void test_bad_adapters_are_refused(void) {
    static const char *const wrong[] = {"q_proj", "head"}, *const empty[] = {""};
    const struct weir_lora bad[] = {{0, 1, false, 0, all, 1},       {1, 0, false, 0, all, 1},
                                    {1, NAN, false, 0, all, 1},     {1, 1, false, 1, all, 1},
                                    {1, 1, false, 0, all, 0},       {1, 1, false, 0, empty, 1},
                                    {1, INFINITY, false, 0, all, 1}};
    struct weir_model *model = decoder();
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net_options options = trial_options(1, ROWS, 3);
    struct weir_net *net = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        EXPECT_STATUS(weir_model_lora(model, &bad[i]), WEIR_ERR_ARGUMENT);
    adapt(model, 0, wrong, 2);
    const struct weir_lora twice = {1, 1, false, 0, all, 1};
    EXPECT_STATUS(weir_model_lora(model, &twice), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_CONFIG);
    EXPECT_EQ_UINT(faults.count, 1);
    if (faults.kept > 0) EXPECT_CONTAINS(faults.lines[0], "no product is named like 'head'");
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(lora, TEST(gradients_are_the_losss_differences),
                TEST(cuts_schedules_and_checkpoints_change_no_bit),
                TEST(below_the_first_adapter_there_is_no_backward), TEST(adapters_begin_as_nothing),
                TEST(gpus_give_a_cpus_gradients), TEST(the_plan_counts_what_learns),
                TEST(adapters_are_saved_and_loaded_under_pefts_names),
                TEST(bad_adapters_are_refused))
