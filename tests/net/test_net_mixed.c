/* SPDX-License-Identifier: MIT */
/*
 * Goal: a net over CPUs and GPUs knows what each of its stages runs on, whatever table says so, and
 * where there is no such table it says why. Method: the same model by two pipelines that put each
 * stage on the same kind of device: one by a table of several stages per worker, with backwards
 * left out or searched for under a limit that only a net with frozen stages keeps, the other by a
 * stage per worker; all results are the same bits. Then tables that cannot be.
 */
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "net/net_trial.h"
#include "weir_predict.h"

#include <string.h>

enum { WIDTH = 8, ROWS = 6, STAGES = 4 };

static const struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {WIDTH}};
static const uint32_t balance[STAGES] = {2, 2, 2, 2};

/** Four linear layers with GELUs between; the first `frozen` of them do not learn. */
static struct weir_model *chain(uint32_t frozen) {
    struct weir_model *model = trial_model(row, row, "mse");
    for (uint32_t i = 0; model != NULL && i < STAGES; i++) {
        trial_add(
            model, "linear",
            WEIR_ATTRS(WEIR_ATTR_INT("out_features", WIDTH), WEIR_ATTR_FLAG("frozen", i < frozen)));
        trial_add(model, "gelu", WEIR_NO_ATTRS);
    }
    return model;
}

static struct weir_net_options on(const char *const *devices, uint32_t count) {
    struct weir_net_options options = trial_options(STAGES, ROWS, 3);
    options.dtype = WEIR_F32;
    options.balance = balance;
    options.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.pipe.workers = count;
    options.pipe.devices = devices;
    options.pipe.device_count = count;
    return options;
}

static void expect_devices(struct weir_net *net, const char *const by_stage[STAGES]) {
    for (uint32_t s = 0; s < STAGES; s++) {
        struct weir_attachment at;
        EXPECT_STATUS(weir_pipe_attachment(weir_net_pipe(net), s, &at), WEIR_OK);
        EXPECT((weir_stream_cuda(at.stream) != NULL) == (strcmp(by_stage[s], "cpu") != 0));
    }
}

/** By `options`, whose table puts stage s on by_stage[s], and by a worker per stage. */
static void expect_same_bits(const struct weir_model *model, const struct weir_net_options *options,
                             const char *const by_stage[STAGES]) {
    struct weir_net_options plain = on(by_stage, STAGES);
    struct trial_result results[2] = {{0}};
    struct trial_data data;
    trial_data_init(&data, &row, &row, WEIR_F32, ROWS, 1, 1);
    struct weir_net *net = trial_net(model, options);
    if (net != NULL) {
        expect_devices(net, by_stage);
        trial_step(net, model, &data, &results[0]);
        trial_run(model, &plain, &data, &results[1]);
        if (!test_has_failed()) trial_result_compare(&results[0], &results[1]);
    }
    weir_net_destroy(net);
    for (int i = 0; i < 2; i++) trial_result_clean_up(&results[i]);
    trial_data_clean_up(&data);
}

static void test_a_table_may_leave_out_backwards_of_frozen_stages(void) {
    static const char text[] = "1F0,1F1,1F2,2F0,2F1,2F2,2B0,2B1,2B2\n"
                               "0F0,0F1,0F2,3F0,3B0,3F1,3B1,3F2,3B2\n";
    static const char *const devices[] = {"cuda:0", "cpu"};
    static const char *const by_stage[] = {"cpu", "cuda:0", "cuda:0", "cpu"};
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_model *model = chain(2);
    struct weir_net_options options = on(devices, 2);
    options.pipe.table_csv = text;
    options.pipe.table_csv_bytes = strlen(text);
    expect_same_bits(model, &options, by_stage);
    weir_model_destroy(model);
}

/** At most one saved activation per worker, of which each has two stages: both must not learn. */
static void limit_activations(struct weir_net_options *options,
                              struct weir_search_options *search) {
    *search = (struct weir_search_options)WEIR_SEARCH_OPTIONS_INIT;
    search->activation_limit = 1;
    options->pipe.schedule = "auto";
    options->pipe.search = search;
}

static void test_a_search_under_a_limit_knows_what_is_frozen(void) {
    static const char *const devices[] = {"cuda:1", "cpu"};
    static const char *const by_stage[] = {"cuda:1", "cpu", "cpu", "cuda:1"};
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_model *model = chain(2);
    struct weir_search_options search;
    struct weir_net_options options = on(devices, 2);
    limit_activations(&options, &search);
    expect_same_bits(model, &options, by_stage);
    weir_model_destroy(model);
}

static void test_inference_places_stages_as_training_does(void) {
    static const char *const devices[] = {"cpu", "cuda:0"};
    static const char *const by_stage[] = {"cpu", "cuda:0", "cuda:0", "cpu"};
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_model *model = chain(STAGES); /* nothing that could be trained */
    struct weir_net_options options = on(devices, 2);
    options.pipe.schedule = "zb-v";
    options.pipe.infer_only = true;
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL) expect_devices(net, by_stage);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/* ---- refusals ---- */

/** Refused with this status and these words, once. */
static void expect_refusal(const struct weir_model *model, const struct weir_net_options *options,
                           int status, const char *words) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    uint32_t told = 0;
    faults.allocator = test_allocator();
    EXPECT_STATUS(weir_net_new(model, options, &faults, &net), status);
    for (uint32_t i = 0; i < faults.kept; i++) told += strstr(faults.lines[i], words) != NULL;
    if (!EXPECT_EQ_UINT(told, 1))
        for (uint32_t i = 0; i < faults.kept; i++) TEST_FAIL("told: %s", faults.lines[i]);
    weir_faults_clean_up(&faults);
}

static void test_tables_that_cannot_be_are_told(void) {
    static const char *const devices[] = {"cuda:0", "cpu"};
    static const char sparse[] = "0F0,1F0,3F0,3B0,1B0,0B0,0F1,1F1,3F1,3B1,1B1,0B1\n"
                                 "0F2,1F2,3F2,3B2,1B2,0B2\n";
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_model *model = chain(0), *frozen = chain(STAGES);
    struct weir_search_options search;
    struct weir_net_options options = on(devices, 2);
    options.pipe.schedule = "no-such";
    expect_refusal(model, &options, WEIR_ERR_ARGUMENT, "there is no schedule 'no-such'");
    limit_activations(&options, &search);
    expect_refusal(model, &options, WEIR_ERR_ARGUMENT, "limit");
    options = on(devices, 2);
    expect_refusal(frozen, &options, WEIR_ERR_CONFIG, "nothing is left to train");
    options.pipe.table_csv = sparse;
    options.pipe.table_csv_bytes = strlen(sparse);
    expect_refusal(model, &options, WEIR_ERR_SCHEDULE, "stage 2 has no action in the table");
    weir_model_destroy(model);
    weir_model_destroy(frozen);
}

static void test_a_dtype_is_judged_by_where_stages_are(void) {
    static const char *const devices[] = {"cuda:0", "cpu"};
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_model *model = chain(2);
    struct weir_net_options options = on(devices, 2);
    options.pipe.schedule = "zb-v";
    options.dtype = WEIR_BF16;
    options.reference = true;
    expect_refusal(model, &options, WEIR_ERR_CONFIG, "--dtype bf16: the reference kernels have");
    options.dtype = WEIR_F64;
    expect_refusal(model, &options, WEIR_ERR_CONFIG, "--dtype f64 is the CPU's");
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(net_mixed, TEST(a_dtype_is_judged_by_where_stages_are),
                TEST(a_search_under_a_limit_knows_what_is_frozen),
                TEST(a_table_may_leave_out_backwards_of_frozen_stages),
                TEST(inference_places_stages_as_training_does),
                TEST(tables_that_cannot_be_are_told))
