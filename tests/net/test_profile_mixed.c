/* SPDX-License-Identifier: MIT */
/*
 * Goal: where workers are CPUs and GPUs, each layer has what it takes on both, and a search goes by
 * the worker's. Method: a profile of both on the fake driver is that of each alone, also from a
 * file and for other rows; times of the GPU are made far shorter and far longer than the CPU's, and
 * the layers go where they are short; a winner's step is that of the simulator with the same costs.
 */
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "net/net_trial.h"
#include "net/profiles.h"
#include "pipe/lanes/ways.h"
#include "weir_profile.h"

#include <stdio.h>
#include <string.h>

static const char *const both[] = {"cuda:0", "cpu"};

static struct weir_profile_options on_both(int64_t rows, uint32_t chunks) {
    struct weir_profile_options options = profile_options(rows, chunks);
    options.net.pipe.devices = both;
    options.net.pipe.device_count = 2;
    options.net.pipe.workers = 2;
    return options;
}

static struct weir_profile_options on_one(const struct weir_profile_options *mixed, bool gpu) {
    struct weir_profile_options options = *mixed;
    options.net.pipe.devices = gpu ? both : NULL;
    options.net.pipe.device_count = gpu;
    options.net.pipe.workers = 1;
    return options;
}

static void expect_bytes(const struct weir_profile *a, const struct weir_profile *b) {
    if (!EXPECT_EQ_UINT(a->costs.layer_count, b->costs.layer_count)) return;
    EXPECT_EQ_STR(a->device, b->device);
    EXPECT_EQ_STR(a->machine, b->machine);
    for (uint32_t i = 0; i < a->costs.layer_count; i++) {
        const struct weir_layer_cost *x = &a->costs.layers[i], *y = &b->costs.layers[i];
        EXPECT_EQ_UINT(x->saved, y->saved);
        EXPECT_EQ_UINT(x->workspace, y->workspace);
        EXPECT_EQ_UINT(x->parameters + x->gradients, y->parameters + y->gradients);
        EXPECT_EQ_UINT(x->optimizer, y->optimizer);
        EXPECT_EQ_UINT(x->border, y->border);
    }
}

static void expect_both(const struct weir_profile *profile,
                        const struct weir_profile_options *mixed, const struct weir_model *model) {
    for (int gpu = 0; gpu < 2; gpu++) {
        struct weir_profile_options alone = on_one(mixed, gpu);
        alone.bytes_only = true;
        struct weir_profile *one = profile_of(model, &alone);
        const struct weir_profile *own = gpu ? profile->other : profile;
        if (EXPECT(one != NULL && own != NULL)) expect_bytes(own, one);
        if (own != NULL) EXPECT_EQ_UINT(own->threads, 1);
        weir_profile_destroy(one);
    }
    EXPECT(profile->costs.other == &profile->other->costs);
    EXPECT(profile->other->other == NULL);
}

static void test_layers_are_measured_on_both(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 2, 0);
    if (fake == NULL) return;
    struct weir_model *models[] = {gpt_model(true, 0.1), unet_model()};
    for (int i = 0; i < 2; i++) {
        struct weir_profile_options options = on_both(4, 2);
        options.net.dtype = i == 0 ? WEIR_BF16 : WEIR_F32;
        struct weir_profile *profile = profile_of(models[i], &options);
        CHECK(profile != NULL && profile->other != NULL);
        EXPECT(profile->measured && profile->other->measured);
        EXPECT(profile->seconds[WEIR_KIND_F] > 0 && profile->other->seconds[WEIR_KIND_F] > 0);
        EXPECT(profile->seconds[WEIR_KIND_B] > 0 && profile->other->seconds[WEIR_KIND_B] > 0);
        expect_both(profile, &options, models[i]);
        CHECK_OK(weir_profile_fit(profile, models[i], &options.net, NULL));
        weir_profile_destroy(profile);
        weir_model_destroy(models[i]);
        EXPECT(fake_gpus_clean(fake));
    }
}

static void expect_unfit(struct weir_profile *profile, const struct weir_model *model,
                         const struct weir_net_options *net, const char *words) {
    struct weir_faults faults = {.allocator = test_allocator()};
    EXPECT_STATUS(weir_profile_fit(profile, model, net, &faults), WEIR_ERR_CONFIG);
    EXPECT_FAULTS(&faults, words);
    weir_faults_clean_up(&faults);
}

static void test_a_profile_of_both_is_for_both(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_profile_options options = on_both(8, 2), cpu = on_one(&options, false),
                                gpu = on_one(&options, true);
    if (fake_gpus(1, 2, 0) == NULL) return;
    options.steps_least = options.steps_most = 1; /* libraries are of what was measured */
    struct weir_profile *profile = profile_of(model, &options), *here = profile_of(model, &cpu);
    CHECK(profile != NULL && here != NULL);
    expect_unfit(profile, model, &cpu.net, "of device 'cpu and cuda', not 'cpu'");
    expect_unfit(profile, model, &gpu.net, "of device 'cpu and cuda', not 'cuda'");
    expect_unfit(here, model, &options.net, "of device 'cpu', not 'cpu and cuda'");
    options.net.pipe.chunks = 4;
    expect_unfit(profile, model, &options.net, "4 rows per micro-batch, not 2");
    options.net.pipe.chunks = 2;
    static const char *const strangers[] = {"cpu", "cuda:0", "cuda:1"};
    options.net.pipe.devices = strangers;
    options.net.pipe.device_count = options.net.pipe.workers = 3;
    expect_unfit(profile, model, &options.net, "and cuda:1 is 'Fake GPU 1'");
    weir_profile_destroy(here);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

/** The file with one text in place of another, behind `from`, is refused with these words. */
static void expect_changed(char *text, const char *path, const char *from, const char *old,
                           const char *new, const char *words) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_profile *read = NULL;
    char *at = strstr(text, from);
    if (!EXPECT(at != NULL && (at = strstr(at, old)) != NULL)) return;
    if (!EXPECT_EQ_UINT(strlen(old), strlen(new))) return;
    memcpy(at, new, strlen(new));
    profile_write_file(path, text);
    memcpy(at, old, strlen(old));
    EXPECT_STATUS(weir_profile_load(test_allocator(), path, &faults, &read), WEIR_ERR_FORMAT);
    EXPECT_FAULTS(&faults, words);
    weir_faults_clean_up(&faults);
}

static void test_a_file_holds_both(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_profile_options options = on_both(4, 2);
    struct weir_profile *read = NULL;
    char path[256];
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL);
    snprintf(path, sizeof path, "%s/both", test_temporary_directory());
    CHECK_OK(weir_profile_save(profile, path, NULL));
    CHECK_OK(weir_profile_load(test_allocator(), path, NULL, &read));
    expect_both(read, &options, model);
    for (uint32_t i = 0; i < read->costs.layer_count; i++)
        EXPECT_EQ_BYTES(read->other->costs.layers[i].seconds,
                        profile->other->costs.layers[i].seconds,
                        sizeof read->costs.layers[i].seconds);
    CHECK_OK(weir_profile_fit(read, model, &options.net, NULL));
    char *text = profile_read_file(path);
    CHECK(text != NULL);
    expect_changed(text, path, "\"other\"", "\"rows\": 2", "\"rows\": 3", "other must be of the");
    expect_changed(text, path, "\"other\"", "\"cuda\"", "\"cpus\"", "other must be of the");
    expect_changed(text, path, "\"other\"", "\"saved\"", "\"saver\"", "other.layers[0].saved must");
    expect_changed(text, path, "\"device\"", "\"cpu\"", "\"gpu\"", "other must be of the");
    weir_profile_destroy(read);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

static void test_other_rows_are_of_both(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_profile_options options = on_both(8, 4), more = on_both(8, 2);
    struct weir_profile *scaled = NULL;
    if (fake_gpus(1, 2, 0) == NULL) return;
    struct weir_profile *known = profile_of(model, &options);
    struct weir_profile_options cpu = on_one(&options, false);
    struct weir_profile *here = profile_of(model, &cpu);
    CHECK(known != NULL && here != NULL);
    CHECK_OK(weir_profile_scale(model, &more.net, (const struct weir_profile *[]){known}, 1, NULL,
                                &scaled));
    expect_both(scaled, &more, model);
    EXPECT(scaled->other->costs.layers[1].seconds[WEIR_KIND_F] >=
           known->other->costs.layers[1].seconds[WEIR_KIND_F]);
    EXPECT_STATUS(weir_profile_scale(model, &more.net, (const struct weir_profile *[]){here}, 1,
                                     NULL, &scaled),
                  WEIR_ERR_CONFIG);
    weir_profile_destroy(scaled);
    weir_profile_destroy(here);
    weir_profile_destroy(known);
    weir_model_destroy(model);
}

/* ---- searches ---- */

/** On GPUs everything takes so many times what it takes on CPUs. */
static void make_times(struct weir_profile *profile, double times) {
    for (uint32_t i = 0; i < profile->costs.layer_count; i++) {
        const struct weir_layer_cost *from = &profile->costs.layers[i];
        struct weir_layer_cost *to = (struct weir_layer_cost *)&profile->other->costs.layers[i];
        for (int k = 0; k < WEIR_KIND_COUNT; k++) to->seconds[k] = from->seconds[k] * times;
        to->forward_checkpoint = from->forward_checkpoint * times;
        to->recompute_last = from->recompute_last * times;
    }
    ((struct weir_profile *)profile->other)->costs.task_seconds = profile->costs.task_seconds = 0;
}

/** By the costs, the cut and the table that the search chose. */
static double simulated(const struct weir_profile *profile, const struct weir_net_options *net,
                        const struct weir_planner_choice *choice) {
    struct weir_table_options how = WEIR_TABLE_OPTIONS_INIT;
    struct weir_simulate_options simulate = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_simulator *simulator = NULL;
    struct weir_stage_costs *stages = NULL;
    struct weir_prediction prediction = {.step = -1};
    struct weir_worker_cost workers[2];
    struct weir_link_cost links[4];
    static const uint32_t stage_workers[] = {0, 1};
    struct weir_table *table = NULL;
    how.schedule = choice->schedule;
    how.stages = how.workers = 2;
    how.micro_batches = choice->micro_batches;
    how.stage_checkpoint = choice->checkpoint;
    how.recompute_late = choice->recompute_late;
    EXPECT(weir_net_worker_costs(net, 2, workers));
    weir_net_links(net, 2, links);
    EXPECT_STATUS(weir_table_new(&how, NULL, &table), WEIR_OK);
    EXPECT_STATUS(weir_stage_costs_new(&profile->costs, 2, NULL, &stages), WEIR_OK);
    EXPECT_STATUS(weir_stage_costs_fill_on(stages, choice->balance, 2, workers, stage_workers),
                  WEIR_OK);
    EXPECT_STATUS(weir_stage_costs_simulate(stages, WEIR_CHECKPOINT_DEFAULT, choice->checkpoint,
                                            choice->micro_batches, &simulate),
                  WEIR_OK);
    EXPECT_STATUS(weir_simulator_new(NULL, &simulator), WEIR_OK);
    simulate.table = table;
    simulate.links = links;
    simulate.recompute_late = choice->recompute_late;
    EXPECT_STATUS(weir_simulate(simulator, &simulate, NULL, &prediction), WEIR_OK);
    weir_simulator_destroy(simulator);
    weir_stage_costs_destroy(stages);
    weir_table_destroy(table);
    return prediction.step;
}

static void expect_search(const struct weir_model *model, double times, uint32_t gpu_layers) {
    struct weir_planner_options search = WEIR_PLANNER_OPTIONS_INIT;
    struct weir_net_options net = on_both(8, 4).net;
    struct weir_planner_result result;
    struct weir_planner *planner = NULL;
    struct weir_profile *profile = NULL;
    struct weir_plan *plan = NULL;
    search.schedule = "1f1b";
    search.stages = 2;
    CHECK_OK(weir_profile_estimate(model, &net, NULL, &profile));
    make_times(profile, times);
    CHECK_OK(weir_planner_new(test_allocator(), &planner));
    CHECK_OK(weir_net_search(planner, model, &net, &profile->costs, &search, NULL, &result));
    EXPECT_EQ_UINT(result.winner->balance[0], gpu_layers);
    EXPECT_NEAR(simulated(profile, &net, result.winner), result.winner->step, 1e-12);
    struct weir_net_options chosen = net;
    uint64_t most = 0;
    weir_net_choose(result.winner, &chosen);
    chosen.pipe.memory_limit = UINT64_MAX;
    CHECK_OK(weir_net_plan(model, &chosen, NULL, &plan));
    for (uint32_t d = 0; d < plan->device_count; d++)
        if (plan->devices[d].total > most) most = plan->devices[d].total;
    EXPECT_EQ_UINT(result.winner->bytes, most);
    struct weir_layer_costs alone = profile->costs;
    struct weir_faults faults = {.allocator = test_allocator()};
    alone.other = NULL;
    EXPECT_STATUS(weir_net_search(planner, model, &net, &alone, &search, &faults, &result),
                  WEIR_ERR_ARGUMENT);
    EXPECT_FAULTS(&faults, "costs of one of them");
    weir_faults_clean_up(&faults);
    weir_plan_destroy(plan);
    weir_planner_destroy(planner);
    weir_profile_destroy(profile);
}

/** The first worker is the GPU. Four layers, of which each has one at least. */
static void test_layers_go_where_they_are_short(void) {
    struct weir_model *model = gpt_model(false, 0);
    if (fake_gpus(1, 2, 0) == NULL) return;
    CHECK_EQ_UINT(weir_model_layer_count(model), 4);
    expect_search(model, 1e-3, 3);
    expect_search(model, 1e3, 1);
    weir_model_destroy(model);
}

/** Between two CPUs nothing is copied, between a CPU and a GPU it goes over the host's link. */
static void test_each_pair_has_its_link(void) {
    static const char *const devices[] = {"cpu", "cuda:0", "cpu", "cuda:1"};
    struct weir_net_options net = profile_options(8, 4).net;
    struct weir_worker_cost workers[4];
    struct weir_link_cost links[16];
    double host = 1e-9 / weir__link_speed(WEIR__LINK_HOST)->bytes_per_ns;
    double peer = 1e-9 / weir__link_speed(WEIR__LINK_PEER)->bytes_per_ns;
    net.pipe.devices = devices;
    net.pipe.device_count = 4;
    weir_net_links(&net, 4, links);
    EXPECT_NEAR(links[0 * 4 + 2].seconds_per_byte, 0, 0);
    EXPECT_NEAR(links[0 * 4 + 1].seconds_per_byte, host, 0);
    EXPECT_NEAR(links[3 * 4 + 2].seconds_per_byte, host, 0);
    EXPECT_NEAR(links[1 * 4 + 3].seconds_per_byte, peer, 0);
    EXPECT_NEAR(links[1 * 4 + 3].latency, 5e-6, 0);
    EXPECT(weir_net_worker_costs(&net, 4, workers));
    for (uint32_t w = 0; w < 4; w++) EXPECT_EQ_UINT(workers[w].kind, w % 2);
    net.pipe.devices = &devices[1];
    net.pipe.device_count = 1;
    EXPECT(!weir_net_worker_costs(&net, 1, workers));
    EXPECT_EQ_UINT(workers[0].kind, 0); /* of GPUs alone the first costs are theirs */
}

WEIR_TEST_SUITE(profile_mixed, TEST(layers_are_measured_on_both),
                TEST(a_profile_of_both_is_for_both), TEST(a_file_holds_both),
                TEST(other_rows_are_of_both), TEST(layers_go_where_they_are_short),
                TEST(each_pair_has_its_link))
