/* SPDX-License-Identifier: MIT */
/*
 * Goal: a network's gradients add up by groups, and how many replicas share them is in no bit of
 * its file. Method: groups' sums by nets that see one group each; random small models with skips,
 * ties and frozen layers, trained, saved and trained on by one process and by replicas of ranks
 * that are threads with hostile messages.
 */
#include "harness.h"
#include "engine/engine_gpu.h"
#include "engine/threads_world.h"
#include "net/run/files.h"
#include "net/net_pipes.h"

#include "base/base.h"
#include "net/run/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CASES = 30, GROUPS = 4, ROWS = 10, CHUNKS = 10, STEPS = 3, PATH_BYTES = 512 };

/* ---- one process: sums of sums ---- */

static struct weir_model *small_gpt(bool tied, uint32_t vocab, uint32_t width) {
    struct weir_gpt_options gpt = {2, width, 2, 3, vocab, tied, 0};
    struct weir_model *model = NULL;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &gpt, NULL, &model), WEIR_OK);
    return model;
}

static const struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};

/* Gradients of one step without update, all parameters after each other. */
static uint64_t gradients_of(const struct weir_model *model, const struct weir_net_options *options,
                             const int64_t *data, int64_t rows, double weight, float *sum) {
    struct weir_net *net = trial_net(model, options);
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    uint64_t count = 0;
    batch.rows = rows;
    batch.input = data, batch.target = data;
    batch.loss_weight = weight;
    batch.no_update = true;
    EXPECT_STATUS(weir_net_step(net, &batch, NULL), WEIR_OK);
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        EXPECT_STATUS(weir_net_parameter(net, i, &parameter), WEIR_OK);
        memcpy(sum + count, parameter.gradient, parameter.count * sizeof *sum);
        count += parameter.count;
    }
    weir_net_destroy(net);
    return count;
}

static void test_groups_of_gradients_add_up_as_a_tree(void) {
    enum { MOST = 4096 };
    static float sums[GROUPS][MOST], whole[MOST];
    struct weir_model *model = small_gpt(false, 5, 4);
    struct trial_data data;
    struct weir_net_options options = trial_options(2, ROWS, CHUNKS);
    trial_data_init(&data, &tokens, &tokens, WEIR_F32, ROWS, 5, 5);
    options.dtype = WEIR_F32;
    options.pipe.gradient_groups = GROUPS;
    uint64_t count = gradients_of(model, &options, data.input, ROWS, ROWS * 3, whole);
    CHECK(count < MOST);
    options.pipe.gradient_groups = 1;
    for (int64_t j = 0; j < GROUPS; j++) { /* 3, 3, 3, 1 micro-batches of a row */
        int64_t rows = j < 3 ? 3 : 1;
        options.pipe.rows = options.pipe.chunks = (uint32_t)rows;
        gradients_of(model, &options, (const int64_t *)data.input + 9 * j, rows, ROWS * 3, sums[j]);
    }
    for (uint64_t i = 0; i < count; i++)
        sums[0][i] = (sums[0][i] + sums[1][i]) + (sums[2][i] + sums[3][i]);
    EXPECT_EQ_BYTES(whole, sums[0], count * sizeof(float));
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* ---- files ---- */

struct job {
    const struct net_problem *problem;
    const struct trial_data *data;
    struct weir_net_options options;
    uint32_t replicas;
    uint32_t parts; /* mini-batches of an update */
    const char *folder, *load, *save;
    char said[256];
    int status;
    double losses[STEPS], norms[STEPS];
    uint64_t optimizer[8]; /* bytes planned for it, by rank */
};

static int train(struct job *job, struct weir_net *net, bool notes) {
    for (uint64_t i = 0; i < STEPS * job->parts; i++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        struct weir_step_result result;
        batch.rows = job->data->rows;
        batch.input = job->data->input;
        batch.target = job->data->target;
        batch.lr = 0.01;
        batch.accumulate_next = i % job->parts != 0;
        batch.accumulate_more = (i + 1) % job->parts != 0;
        int status = weir_net_step(net, &batch, &result);
        if (status != WEIR_OK) return status;
        if (notes) job->losses[i / job->parts] = result.loss;
        if (notes) job->norms[i / job->parts] = result.gradient_norm;
    }
    return WEIR_OK;
}

static int run_net(struct job *job, struct weir_net *net, bool first, struct weir_faults *faults) {
    struct weir_progress progress = {0};
    int status = job->load != NULL ? weir_net_load(net, job->load, &progress, faults)
                                   : weir_net_init(net, 7);
    if (status != WEIR_OK) return status;
    if ((status = train(job, net, first)) != WEIR_OK) return status;
    progress.step += STEPS, progress.mini_batch += STEPS;
    return weir_net_save(net, job->save, &progress, NULL);
}

static int run_rank(void *context, struct weir_world *world) {
    struct job *job = context;
    uint32_t r = world != NULL ? world->rank : 0;
    struct weir_net_options options = job->options;
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    faults.allocator = test_allocator();
    options.pipe.world = world;
    options.pipe.replicas = world != NULL ? job->replicas : 0;
    int status = weir_net_new(job->problem->model, &options, &faults, &net);
    if (status == WEIR_OK) status = run_net(job, net, r == 0, &faults);
    if (net != NULL) job->optimizer[r] = weir_pipe_plan(weir_net_pipe(net))->devices[0].optimizer;
    if (r == 0) {
        snprintf(job->said, sizeof job->said, "%s", faults.kept > 0 ? faults.lines[0] : "");
        job->status = status;
    }
    weir_net_destroy(net);
    weir_faults_clean_up(&faults);
    return status;
}

static void run_ranks(struct job *job, uint32_t count) {
    const struct threads_options how = {
        .ranks = count, .seed = test_random_u64(), .delay = (uint32_t)test_random_below(30)};
    EXPECT_STATUS(threads_world_once(&how, run_rank, job), WEIR_OK);
    if (!EXPECT_STATUS(job->status, WEIR_OK)) TEST_FAIL("%s", job->said);
}

/* Trained, saved, and trained on from the file: by one stage and process, and by ranks. */
static void compare(struct job *job, uint32_t count) {
    char alone[2][PATH_BYTES], together[2][PATH_BYTES];
    double losses[STEPS], norms[STEPS];
    for (int i = 0; i < 2 && !test_has_failed(); i++) {
        struct job single = *job;
        snprintf(alone[i], PATH_BYTES, "%s/alone-%d", job->folder, i);
        snprintf(together[i], PATH_BYTES, "%s/%s-%d", job->folder, count > 1 ? "folder" : "file",
                 i);
        single.options.stages = 1;
        single.options.balance = NULL;
        single.options.pipe.workers = 1;
        single.save = alone[i], single.load = i > 0 ? alone[0] : NULL;
        if (strcmp(single.options.pipe.schedule, "looped-bfs") == 0)
            single.options.pipe.schedule = "gpipe";
        else if (strcmp(single.options.pipe.schedule, "gpipe") != 0)
            single.options.pipe.schedule = "1f1b";
        run_rank(&single, NULL);
        if (!EXPECT_STATUS(single.status, WEIR_OK)) TEST_FAIL("alone: %s", single.said);
        memcpy(losses, single.losses, sizeof losses);
        memcpy(norms, single.norms, sizeof norms);
        job->save = together[i], job->load = i > 0 ? together[0] : NULL;
        run_ranks(job, count);
        EXPECT_EQ_BYTES(job->losses, losses, sizeof losses);
        EXPECT_EQ_BYTES(job->norms, norms, sizeof norms);
        trial_same_exported(alone[i], together[i]);
    }
}

static void choose_optimizer(struct weir_net_options *options) {
    static const struct weir_optimizer adamw = WEIR_ADAMW_INIT;
    options->optimizer = adamw;
    if (test_random_below(3) == 0)
        options->optimizer = (struct weir_optimizer){
            .kind = WEIR_OPTIMIZER_SGD, .lr = 0.1, .momentum = test_random_below(2) * 0.9};
    if (test_random_below(2) == 0) options->pipe.clip_norm = 0.1;
}

/* A schedule that each replica's micro-batches can have: the fewest are the last one's. */
static void choose_schedule(struct job *job) {
    struct weir_table *table = NULL;
    bool can;
    do {
        struct weir_table_options want = WEIR_TABLE_OPTIONS_INIT;
        net_pipe_schedule(&job->options, test_random_below(2) == 1);
        can = true;
        for (uint32_t m = 1; m <= CHUNKS && can; m++) {
            want.schedule = job->options.pipe.schedule;
            want.stages = job->options.stages;
            want.workers = job->options.pipe.workers;
            want.micro_batches = m;
            can = weir_table_new(&want, NULL, &table) == WEIR_OK;
            if (can && job->options.pipe.workers == 0) can = table->worker_count == 1;
            weir_table_destroy(table);
            table = NULL;
        }
    } while (!can);
}

static void random_case(const char *folder, int number) {
    struct net_problem problem = {0};
    struct trial_data data;
    uint32_t balance[8];
    net_problem_init(&problem);
    if (problem.model == NULL || test_has_failed()) return;
    uint32_t layers = weir_model_layer_count(problem.model);
    uint32_t stages = 1 + (uint32_t)test_random_below(layers < 5 ? layers : 5);
    struct job job = {.problem = &problem,
                      .data = &data,
                      .options = trial_options(stages, ROWS, CHUNKS),
                      .folder = folder,
                      .replicas = UINT32_C(1) << number % 3,
                      .parts = 1 + (uint32_t)test_random_below(2)};
    net_pipe_balance(layers, stages, balance);
    job.options.dtype = test_random_below(3) == 0 ? WEIR_F64 : WEIR_F32;
    job.options.balance = balance;
    job.options.pipe.gradient_groups = GROUPS;
    job.options.pipe.accumulates = job.parts > 1;
    job.options.pipe.checkpoint = net_pipe_checkpoint();
    choose_optimizer(&job.options);
    choose_schedule(&job);
    net_pipe_data(&problem, &job.options, &data);
    uint32_t workers = job.options.pipe.workers > 0 ? job.options.pipe.workers : 1;
    compare(&job, job.replicas * (1 + (uint32_t)test_random_below(workers < 2 ? workers : 2)));
    if (test_has_failed())
        printf("%u replicas, %u parts\n", job.replicas, job.parts),
            net_pipe_print(&problem, &job.options);
    trial_data_clean_up(&data);
    weir_model_destroy(problem.model);
}

static void test_replicas_write_the_file_that_one_process_writes(void) {
    const char *folder = test_temporary_directory();
    for (int i = 0; i < CASES && !test_has_failed(); i++) random_case(folder, i);
}

/* A table of some blocks, used by the first and by the last stage: all its uses are cut alike. */
static void test_slices_of_tied_tables_give_the_same_file_with_less_state(void) {
    struct net_problem problem = {.model = small_gpt(true, 9000, 8)};
    struct trial_data data;
    trial_data_init(&data, &tokens, &tokens, WEIR_F32, ROWS, 9000, 9000);
    struct job job = {.problem = &problem,
                      .data = &data,
                      .options = trial_options(2, ROWS, CHUNKS),
                      .folder = test_temporary_directory(),
                      .replicas = 2,
                      .parts = 1};
    static const struct weir_optimizer adamw = WEIR_ADAMW_INIT;
    job.options.dtype = WEIR_F32;
    job.options.optimizer = adamw;
    job.options.pipe.workers = 2;
    job.options.pipe.clip_norm = 0.1;
    job.options.pipe.gradient_groups = GROUPS;
    compare(&job, 4);
    uint64_t table = 2 * 9000 * 8 * sizeof(float), half = job.optimizer[0] + job.optimizer[2];
    EXPECT(half >= table && half < table + 2 * WEIR_SLICE_BLOCK);
    for (uint32_t r = 0; r < 4; r++) /* each has two or three blocks of 5 in each of two arrays */
        EXPECT(job.optimizer[r] > table / 4 && job.optimizer[r] < table * 3 / 4);
    trial_data_clean_up(&data);
    weir_model_destroy(problem.model);
}

/* What replicas of GPUs add, norm, update and send is done by kernels. */
static void test_replicas_on_gpus_write_the_file_that_one_process_writes(void) {
    const struct weir_fake_cuda_control *gpu = engine_gpu_open();
    const char *devices[] = {"cuda", "cuda"};
    for (uint32_t k = 0; gpu != NULL && k < 2 && !test_has_failed(); k++) {
        uint32_t vocab = k == 0 ? 2100 : 7; /* a block and some, or few */
        struct net_problem problem = {.model = small_gpt(true, vocab, 8)};
        struct trial_data data;
        struct engine_gpu_goer goer;
        trial_data_init(&data, &tokens, &tokens, WEIR_F32, ROWS, vocab, vocab);
        struct job job = {.problem = &problem,
                          .data = &data,
                          .options = trial_options(2, ROWS, CHUNKS),
                          .folder = test_temporary_directory(),
                          .replicas = k == 0 ? 2 : 4,
                          .parts = 1 + k % 2};
        job.options.dtype = WEIR_F32;
        choose_optimizer(&job.options);
        job.options.pipe.workers = 2;
        job.options.pipe.devices = devices;
        job.options.pipe.device_count = 2;
        job.options.pipe.gradient_groups = GROUPS;
        job.options.pipe.accumulates = job.parts > 1;
        gpu->reset(test_random_u64(), k == 0 ? 4 : 2, WEIR_FAKE_CUDA_UNGUARDED);
        setenv("WEIR_NCCL", getenv("WEIR_CUDA_DRIVER"), 1);
        engine_gpu_goer_begin(&goer, gpu);
        compare(&job, job.replicas * (k == 0 ? 2 : 1));
        engine_gpu_goer_end(&goer);
        trial_data_clean_up(&data);
        weir_model_destroy(problem.model);
        engine_gpu_expect_clean(gpu);
    }
}

/* ---- what is where ---- */

static int look_at_slices(void *context, struct weir_world *world) {
    struct job *job = context;
    struct weir_net_options options = job->options;
    struct weir_net *net = NULL;
    options.pipe.world = world;
    options.pipe.replicas = 2;
    int status = weir_net_new(job->problem->model, &options, NULL, &net);
    for (uint32_t i = 0; status == WEIR_OK && i < weir_net_parameter_count(net); i++) {
        struct weir_parameter parameter;
        uint64_t begin, count;
        status = weir_net_parameter(net, i, &parameter);
        weir__net_optimizer_slice(net, i, &begin, &count);
        EXPECT(begin + count <= parameter.count);
        if (world->rank == 0) EXPECT(begin == 0);
        if (world->rank == 1) EXPECT(begin + count == parameter.count || count == 0);
        if (strcmp(parameter.name, "wte.weight") == 0)
            EXPECT_EQ_UINT(count, world->rank == 0 ? 3 * 16384 : 72000 - 3 * 16384);
    }
    weir_net_destroy(net);
    return status;
}

static void test_each_rank_says_which_numbers_it_has(void) {
    struct net_problem problem = {.model = small_gpt(true, 9000, 8)};
    struct job job = {.problem = &problem, .options = trial_options(1, ROWS, CHUNKS)};
    static const struct weir_optimizer adamw = WEIR_ADAMW_INIT;
    const struct threads_options how = {.ranks = 2, .seed = test_random_u64()};
    job.options.dtype = WEIR_F32;
    job.options.optimizer = adamw;
    EXPECT_STATUS(threads_world_once(&how, look_at_slices, &job), WEIR_OK);
    weir_model_destroy(problem.model);
}

WEIR_TEST_SUITE(net_replicas, TEST(groups_of_gradients_add_up_as_a_tree),
                TEST(replicas_write_the_file_that_one_process_writes),
                TEST(replicas_on_gpus_write_the_file_that_one_process_writes),
                TEST(slices_of_tied_tables_give_the_same_file_with_less_state),
                TEST(each_rank_says_which_numbers_it_has))
