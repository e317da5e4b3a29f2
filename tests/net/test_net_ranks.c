/* SPDX-License-Identifier: MIT */
/*
 * Goal: a network trained over several processes gives the checkpoint that one process gives, byte
 * for byte once it is one file, and any number goes on from it. Method: random small models with
 * skips, ties and frozen layers on random pipelines, over ranks that are threads with hostile
 * messages; what differs between ranks is refused.
 */
#include "harness.h"
#include "engine/threads_world.h"
#include "net/net_pipes.h"

#include "base/base.h"
#include "io/checkpoint.h"
#include "net/cpu/level.h"
#include "net/run/files.h"

#include <stdio.h>
#include <string.h>

enum { CASES = 40, RANKS_MAX = 3, STEPS = 2, PATH_BYTES = 512 };

/* What every rank does: the same, but for `odd`. */
struct job {
    const struct net_problem *problem;
    const struct trial_data *data;
    struct weir_net_options options;
    const char *load, *save;
    const char *odd_level; /* of rank 1, instead; NULL: as all */
    const char *odd_load;
    char said[RANKS_MAX][256];
    int statuses[RANKS_MAX];
};

static int train(const struct job *job, struct weir_net *net) {
    for (uint64_t i = 0; i < STEPS; i++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = job->data->rows;
        batch.input = job->data->input;
        batch.target = job->data->target;
        batch.lr = 0.01;
        int status = weir_net_step(net, &batch, NULL);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int run_net(const struct job *job, struct weir_net *net, const char *load,
                   struct weir_faults *faults) {
    struct weir_progress progress = {0};
    int status = load != NULL ? weir_net_load(net, load, &progress, faults) : weir_net_init(net, 7);
    if (status != WEIR_OK) return status;
    if ((status = train(job, net)) != WEIR_OK) return status;
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
    options.pipe.bind = "none";
    if (r == 1 && job->odd_level != NULL) options.level = job->odd_level;
    int status = weir_net_new(job->problem->model, &options, &faults, &net);
    if (status == WEIR_OK)
        status = run_net(job, net, r == 1 && job->odd_load ? job->odd_load : job->load, &faults);
    snprintf(job->said[r], sizeof job->said[r], "%s", faults.kept > 0 ? faults.lines[0] : "");
    job->statuses[r] = status;
    weir_net_destroy(net);
    weir_faults_clean_up(&faults);
    return WEIR_OK;
}

static void run_ranks(struct job *job, uint32_t count) {
    const struct threads_options how = {
        .ranks = count, .seed = test_random_u64(), .delay = (uint32_t)test_random_below(30)};
    struct threads_world *world = threads_world_new(&how);
    EXPECT_STATUS(threads_world_run(world, run_rank, job), WEIR_OK);
    threads_world_destroy(world);
    for (uint32_t r = 0; r < count; r++)
        if (!EXPECT_STATUS(job->statuses[r], WEIR_OK)) TEST_FAIL("rank %u: %s", r, job->said[r]);
}

static bool same_files(const char *a, const char *b) {
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__bytes left = {0}, right = {0};
    bool same = EXPECT_STATUS(weir__file_read(&io, a, 1 << 22, &left), WEIR_OK) &&
                EXPECT_STATUS(weir__file_read(&io, b, 1 << 22, &right), WEIR_OK) &&
                EXPECT_EQ_UINT(left.count, right.count) &&
                EXPECT_EQ_BYTES(left.data, right.data, left.count);
    weir__bytes_release(test_allocator(), &left);
    weir__bytes_release(test_allocator(), &right);
    return same;
}

/* ---- random nets ---- */

struct paths {
    char alone[2][PATH_BYTES], together[2][PATH_BYTES], exported[PATH_BYTES];
};

static void name_files(struct paths *paths) {
    const char *folder = test_temporary_directory();
    for (int i = 0; i < 2; i++) {
        snprintf(paths->alone[i], PATH_BYTES, "%s/alone-%d", folder, i);
        snprintf(paths->together[i], PATH_BYTES, "%s/together-%d", folder, i);
    }
    snprintf(paths->exported, PATH_BYTES, "%s/exported", folder);
}

static void expect_same(const char *alone, const char *together, const char *exported) {
    struct weir__io io = {.allocator = test_allocator()};
    if (test_has_failed()) return;
    EXPECT_STATUS(weir__net_export(&io, together, exported, false), WEIR_OK);
    if (!test_has_failed()) same_files(alone, exported);
}

/* Trained, saved, and trained on from there, alone and by ranks, whose number may change. */
static void compare(struct job *job, uint32_t most, const struct paths *paths) {
    struct weir__io io = {.allocator = test_allocator()};
    for (int i = 0; i < 2 && !test_has_failed(); i++) {
        uint32_t count = 1 + (uint32_t)test_random_below(most);
        EXPECT_STATUS(weir__checkpoint_remove(&io, paths->together[i]), WEIR_OK);
        job->save = paths->alone[i];
        job->load = i > 0 ? paths->alone[0] : NULL;
        run_rank(job, NULL);
        if (!EXPECT_STATUS(job->statuses[0], WEIR_OK)) TEST_FAIL("alone: %s", job->said[0]);
        job->save = paths->together[i];
        job->load = i > 0 ? paths->together[0] : NULL;
        run_ranks(job, count);
        EXPECT(weir__checkpoint_is_folder(&io, job->save) == (count > 1));
        expect_same(paths->alone[i], paths->together[i], paths->exported);
    }
}

static void random_case(const struct paths *paths) {
    struct net_problem problem = {0};
    struct trial_data data;
    uint32_t balance[8];
    net_problem_init(&problem);
    if (problem.model == NULL || test_has_failed()) return;
    uint32_t layers = weir_model_layer_count(problem.model);
    uint32_t stages = 1 + (uint32_t)test_random_below(layers < 5 ? layers : 5);
    struct job job = {.problem = &problem, .data = &data, .options = trial_options(stages, 6, 3)};
    net_pipe_balance(layers, stages, balance);
    job.options.dtype = WEIR_F32;
    job.options.balance = balance;
    job.options.optimizer = (struct weir_optimizer)WEIR_ADAMW_INIT;
    job.options.pipe.checkpoint = net_pipe_checkpoint();
    net_pipe_schedule(&job.options, test_random_below(2) == 1);
    net_pipe_data(&problem, &job.options, &data);
    uint32_t workers = job.options.pipe.workers > 0 ? job.options.pipe.workers : 1;
    uint32_t most = workers < RANKS_MAX ? workers : RANKS_MAX;
    compare(&job, most, paths);
    if (test_has_failed()) net_pipe_print(&problem, &job.options);
    trial_data_clean_up(&data);
    weir_model_destroy(problem.model);
}

static void test_ranks_write_what_one_process_writes(void) {
    struct paths paths;
    name_files(&paths);
    for (int i = 0; i < CASES && !test_has_failed(); i++) random_case(&paths);
}

/* ---- what differs ---- */

static void refuse(struct job *job, int status, const char *part) {
    const struct threads_options how = {.ranks = 2, .seed = test_random_u64(), .delay = 10};
    struct threads_world *world = threads_world_new(&how);
    EXPECT_STATUS(threads_world_run(world, run_rank, job), WEIR_OK);
    threads_world_destroy(world);
    for (uint32_t r = 0; r < 2; r++) EXPECT(job->statuses[r] != WEIR_OK);
    EXPECT_STATUS(job->statuses[0], status);
    EXPECT_CONTAINS(job->said[0], part);
}

/* Two stages of a small GPT, one for each rank. */
static void refuse_odd(const char *level, const char *load, int status, const char *part) {
    static const struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};
    struct weir_gpt_options gpt = {2, 4, 2, 3, 5, true, 0};
    struct net_problem problem = {.input = tokens, .target = tokens};
    struct trial_data data;
    struct paths paths;
    name_files(&paths);
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &gpt, NULL, &problem.model), WEIR_OK);
    trial_data_init(&data, &tokens, &tokens, WEIR_F32, 4, 5, 5);
    struct job job = {.problem = &problem,
                      .data = &data,
                      .options = trial_options(2, 4, 2),
                      .save = paths.alone[0]};
    job.options.dtype = WEIR_F32;
    job.options.pipe.workers = 2;
    job.options.optimizer = (struct weir_optimizer)WEIR_ADAMW_INIT;
    run_rank(&job, NULL);
    EXPECT_STATUS(job.statuses[0], WEIR_OK);
    job.save = paths.alone[1];
    job.load = paths.alone[0];
    job.odd_level = level;
    job.odd_load = load;
    refuse(&job, status, part);
    trial_data_clean_up(&data);
    weir_model_destroy(problem.model);
}

static void test_ranks_by_other_levels_are_refused(void) {
    const struct weir__level *best;
    EXPECT_STATUS(weir__level_find(NULL, NULL, &best), WEIR_OK);
    if (best == weir__level_at(0)) SKIP("one level runs here");
    refuse_odd(weir__level_at(0)->name, NULL, WEIR_ERR_CONFIG, "levels of kernels");
}

static void test_a_file_that_one_rank_lacks_is_loaded_by_none(void) {
    refuse_odd(NULL, "no/such/file", WEIR_ERR_PEER, "rank 1");
}

WEIR_TEST_SUITE(net_ranks, TEST(ranks_write_what_one_process_writes),
                TEST(ranks_by_other_levels_are_refused),
                TEST(a_file_that_one_rank_lacks_is_loaded_by_none))
