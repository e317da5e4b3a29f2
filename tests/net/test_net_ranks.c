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
#include "io/archive.h"
#include "net/cpu/level.h"
#include "net/run/files.h"
#include "world/allreduce.h"

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
    const char *odd_load, *odd_save;
    bool odd_dtype; /* of rank 1, that nets do not have */
    bool beside;    /* saves by copies, of which the last is not committed */
    uint64_t held[RANKS_MAX];
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

/* Takes, trains on, and writes what was taken; then once more, without committing. */
static int save_beside(struct job *job, struct weir_net *net, struct weir_world *world,
                       const struct weir_progress *progress) {
    struct weir_net_copy *copy;
    int status = weir_net_copy_new(net, &copy);
    if (status != WEIR_OK) return status;
    job->held[world->rank] = weir__net_copy_held(copy);
    EXPECT_STATUS(weir_net_copy_take(copy, progress, NULL), WEIR_OK);
    EXPECT_STATUS(train(job, net), WEIR_OK);
    status = weir__world_agree(world, weir_net_copy_save(copy, job->save, NULL), 0, "", NULL);
    if (status == WEIR_OK) status = weir_net_copy_commit(copy, job->save, NULL);
    status = weir__world_agree(world, status, 0, "", NULL);
    EXPECT_STATUS(weir_net_copy_take(copy, progress, NULL), WEIR_OK);
    EXPECT_STATUS(weir_net_copy_save(copy, job->save, NULL), WEIR_OK);
    weir_net_copy_destroy(copy);
    return status;
}

static int run_net(struct job *job, struct weir_net *net, const char *load,
                   struct weir_world *world, struct weir_faults *faults) {
    struct weir_progress progress = {0};
    int status = load != NULL ? weir_net_load(net, load, &progress, faults) : weir_net_init(net, 7);
    if (status != WEIR_OK) return status;
    if ((status = train(job, net)) != WEIR_OK) return status;
    progress.step += STEPS, progress.mini_batch += STEPS;
    if (job->beside && world != NULL) return save_beside(job, net, world, &progress);
    bool odd = job->odd_save != NULL && world != NULL && world->rank == 1;
    return weir_net_save(net, odd ? job->odd_save : job->save, &progress, NULL);
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
    if (r == 1 && job->odd_dtype) options.dtype = WEIR_I64;
    int status = weir_net_new(job->problem->model, &options, &faults, &net);
    if (status == WEIR_OK)
        status =
            run_net(job, net, r == 1 && job->odd_load ? job->odd_load : job->load, world, &faults);
    snprintf(job->said[r], sizeof job->said[r], "%s", faults.kept > 0 ? faults.lines[0] : "");
    job->statuses[r] = status;
    weir_net_destroy(net);
    weir_faults_clean_up(&faults);
    return WEIR_OK;
}

static void run_ranks(struct job *job, uint32_t count) {
    const struct threads_options how = {
        .ranks = count, .seed = test_random_u64(), .delay = (uint32_t)test_random_below(30)};
    EXPECT_STATUS(threads_world_once(&how, run_rank, job), WEIR_OK);
    for (uint32_t r = 0; r < count; r++)
        if (!EXPECT_STATUS(job->statuses[r], WEIR_OK)) TEST_FAIL("rank %u: %s", r, job->said[r]);
}

/* ---- random nets ---- */

struct paths {
    char alone[2][PATH_BYTES], together[2][PATH_BYTES];
};

static void name_files(struct paths *paths) {
    const char *folder = test_temporary_directory();
    for (int i = 0; i < 2; i++) {
        snprintf(paths->alone[i], PATH_BYTES, "%s/alone-%d", folder, i);
        snprintf(paths->together[i], PATH_BYTES, "%s/together-%d", folder, i);
    }
}

/* Trained, saved, and trained on from there, alone and by ranks, whose number may change. */
static void compare(struct job *job, uint32_t most, const struct paths *paths) {
    struct weir__io io = {.allocator = test_allocator()};
    for (int i = 0; i < 2 && !test_has_failed(); i++) {
        uint32_t count = 1 + (uint32_t)test_random_below(most);
        EXPECT_STATUS(weir__archive_remove(&io, paths->together[i]), WEIR_OK);
        job->save = paths->alone[i];
        job->load = i > 0 ? paths->alone[0] : NULL;
        run_rank(job, NULL);
        if (!EXPECT_STATUS(job->statuses[0], WEIR_OK)) TEST_FAIL("alone: %s", job->said[0]);
        job->save = paths->together[i];
        job->load = i > 0 ? paths->together[0] : NULL;
        run_ranks(job, count);
        EXPECT(weir__archive_is_folder(&io, job->save) == (count > 1));
        trial_same_exported(paths->alone[i], paths->together[i]);
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
    EXPECT_STATUS(threads_world_once(&how, run_rank, job), WEIR_OK);
    for (uint32_t r = 0; r < 2; r++) EXPECT(job->statuses[r] != WEIR_OK);
    EXPECT_STATUS(job->statuses[0], status);
    EXPECT_CONTAINS(job->said[0], part);
}

/* Stages of a small GPT. */
struct gpt {
    struct net_problem problem;
    struct trial_data data;
    struct paths paths;
    struct job job;
};

static void gpt_init(struct gpt *gpt, uint32_t residual_block) {
    static const struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};
    struct weir_gpt_options options = {2, 4, 2, 3, 5, true, 0, residual_block};
    *gpt = (struct gpt){.problem = {.input = tokens, .target = tokens}};
    name_files(&gpt->paths);
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &gpt->problem.model), WEIR_OK);
    trial_data_init(&gpt->data, &tokens, &tokens, WEIR_F32, 4, 5, 5);
    gpt->job = (struct job){.problem = &gpt->problem, .data = &gpt->data};
}

static void gpt_clean_up(struct gpt *gpt) {
    trial_data_clean_up(&gpt->data);
    weir_model_destroy(gpt->problem.model);
}

static void gpt_run(struct gpt *gpt, uint32_t stages, uint32_t ranks, const char *load,
                    const char *save) {
    struct job *job = &gpt->job;
    job->options = trial_options(stages, 4, 2);
    job->options.dtype = WEIR_F32;
    job->options.pipe.workers = stages;
    job->options.optimizer = (struct weir_optimizer)WEIR_ADAMW_INIT;
    job->load = load;
    job->save = save;
    if (ranks > 0)
        run_ranks(job, ranks);
    else if (run_rank(job, NULL) != WEIR_OK || !EXPECT_STATUS(job->statuses[0], WEIR_OK))
        TEST_FAIL("alone: %s", job->said[0]);
}

static void go_on_with_any_number(uint32_t residual_block) {
    struct gpt gpt;
    struct weir__io io = {.allocator = test_allocator()};
    gpt_init(&gpt, residual_block);
    const struct paths *paths = &gpt.paths;
    gpt_run(&gpt, 3, 0, NULL, paths->alone[0]);
    gpt_run(&gpt, 3, 0, paths->alone[0], paths->alone[1]);
    gpt_run(&gpt, 3, 3, NULL, paths->together[0]);
    trial_same_exported(paths->alone[0], paths->together[0]);
    for (uint32_t ranks = 0; ranks <= 3 && !test_has_failed(); ranks++) {
        EXPECT_STATUS(weir__archive_remove(&io, paths->together[1]), WEIR_OK);
        gpt_run(&gpt, ranks + 1, ranks, paths->together[0], paths->together[1]);
        trial_same_exported(paths->alone[1], paths->together[1]);
    }
    /* of one file, too; and one process goes on in a folder where there is one */
    gpt_run(&gpt, 2, 2, paths->alone[0], paths->together[1]);
    trial_same_exported(paths->alone[1], paths->together[1]);
    gpt_run(&gpt, 1, 0, paths->alone[0], paths->together[1]);
    EXPECT(weir__archive_is_folder(&io, paths->together[1]));
    trial_same_exported(paths->alone[1], paths->together[1]);
    gpt_clean_up(&gpt);
}

static void test_any_number_of_ranks_and_stages_goes_on(void) {
    go_on_with_any_number(0);
}

static void test_mixed_residuals_cross_ranks(void) {
    go_on_with_any_number(1);
}

static void test_copies_are_written_beside_training_and_then_committed(void) {
    struct gpt gpt;
    gpt_init(&gpt, 0);
    gpt_run(&gpt, 3, 0, NULL, gpt.paths.alone[0]);
    gpt.job.beside = true;
    gpt_run(&gpt, 3, 3, NULL, gpt.paths.together[0]);
    trial_same_exported(gpt.paths.alone[0], gpt.paths.together[0]);
    /* and no rank has room for more than its own */
    uint64_t all = weir_net_copy_bytes(gpt.problem.model, &gpt.job.options);
    EXPECT_EQ_UINT(gpt.job.held[0] + gpt.job.held[1] + gpt.job.held[2], all);
    for (int r = 0; r < 3; r++) EXPECT(gpt.job.held[r] > 0 && gpt.job.held[r] < all);
    gpt_clean_up(&gpt);
}

/* ---- pieces ---- */

enum { PARTS = 3, TENSORS_MAX = 128 };

/* Part `part` of a file whose tensors are cut in three somewhere; the middle one empty at times. */
static void write_pieces(const struct weir__safetensors *file, uint32_t part, const char *folder,
                         uint64_t cuts[TENSORS_MAX][PARTS + 1], const char *name) {
    static struct weir__archive_piece pieces[TENSORS_MAX];
    struct weir__io io = {.allocator = test_allocator()};
    uint32_t count = 0;
    for (uint32_t i = 0; i < weir__safetensors_count(file); i++) {
        const struct weir__safetensor *tensor = weir__safetensors_get(file, i);
        uint64_t begin = cuts[i][part], end = cuts[i][part + 1];
        struct weir__archive_piece piece = {.begin = begin, .count = end - begin};
        if (begin == end) continue;
        piece.item.name = tensor->name;
        piece.item.dtype = tensor->dtype;
        piece.item.data = (const char *)tensor->data + begin * weir_dtype_bytes(tensor->dtype);
        pieces[count++] = piece;
    }
    EXPECT_STATUS(weir__archive_write(&io, folder, name, pieces, count), WEIR_OK);
}

/* The file as a folder in which no tensor is whole. */
static void cut_file(const char *path, const char *folder) {
    static uint64_t cuts[TENSORS_MAX][PARTS + 1];
    static struct weir__safetensors_item items[TENSORS_MAX];
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors *file;
    char names[PARTS][WEIR__PART_NAME_BYTES];
    const char *parts[PARTS];
    struct weir__archive_commit commit = {.parts = parts, .part_count = PARTS, .tensors = items};
    EXPECT_STATUS(weir__archive_prepare(&io, folder), WEIR_OK);
    if (!EXPECT_STATUS(weir__safetensors_open(&io, path, NULL, &file), WEIR_OK)) return;
    commit.tensor_count = weir__safetensors_count(file);
    EXPECT(commit.tensor_count <= TENSORS_MAX);
    for (uint32_t i = 0; i < commit.tensor_count; i++) {
        const struct weir__safetensor *tensor = weir__safetensors_get(file, i);
        uint64_t all = tensor->bytes / weir_dtype_bytes(tensor->dtype);
        items[i] = (struct weir__safetensors_item){tensor->name, tensor->dtype, tensor->rank};
        memcpy(items[i].shape, tensor->shape, sizeof tensor->shape);
        cuts[i][1] = test_random_below(all + 1);
        cuts[i][2] = cuts[i][1] + test_random_below(all - cuts[i][1] + 1);
        cuts[i][3] = all;
    }
    for (uint32_t p = 0; p < PARTS; p++) {
        weir__part_name(2, 77, p, names[p]);
        parts[p] = names[p];
        write_pieces(file, p, folder, cuts, names[p]);
    }
    commit.texts = weir__safetensors_texts(file, &commit.text_count);
    EXPECT_STATUS(weir__archive_commit(&io, folder, &commit), WEIR_OK);
    weir__safetensors_close(file);
}

static void test_parameters_in_pieces_are_loaded(void) {
    struct gpt gpt;
    gpt_init(&gpt, 0);
    const struct paths *paths = &gpt.paths;
    gpt_run(&gpt, 2, 0, NULL, paths->alone[0]);
    gpt_run(&gpt, 2, 0, paths->alone[0], paths->alone[1]);
    cut_file(paths->alone[0], paths->together[0]);
    trial_same_exported(paths->alone[0], paths->together[0]);
    gpt_run(&gpt, 2, 2, paths->together[0], paths->together[1]);
    trial_same_exported(paths->alone[1], paths->together[1]);
    gpt_clean_up(&gpt);
}

/* ---- refused ---- */

/* Of two ranks with a stage each. */
static void refuse_odd(const char *level, const char *load, int status, const char *part) {
    struct gpt gpt;
    gpt_init(&gpt, 0);
    gpt_run(&gpt, 2, 0, NULL, gpt.paths.alone[0]);
    gpt.job.save = gpt.paths.alone[1];
    gpt.job.load = gpt.paths.alone[0];
    gpt.job.odd_level = level;
    gpt.job.odd_load = load;
    refuse(&gpt.job, status, part);
    gpt_clean_up(&gpt);
}

/* Nor does what the other ranks wrote stay. */
static void test_a_save_that_one_rank_cannot_write_leaves_the_former(void) {
    const struct threads_options how = {.ranks = 2, .seed = test_random_u64(), .delay = 10};
    struct gpt gpt;
    char files[16];
    gpt_init(&gpt, 0);
    gpt_run(&gpt, 2, 0, NULL, gpt.paths.alone[0]);
    gpt_run(&gpt, 2, 2, NULL, gpt.paths.together[0]);
    gpt.job.load = gpt.paths.together[0];
    gpt.job.odd_save = "/none/folder";
    EXPECT_STATUS(threads_world_once(&how, run_rank, &gpt.job), WEIR_OK);
    EXPECT_STATUS(gpt.job.statuses[0], WEIR_ERR_PEER);
    EXPECT_STATUS(gpt.job.statuses[1], WEIR_ERR_IO);
    trial_same_exported(gpt.paths.alone[0], gpt.paths.together[0]);
    test_shell(files, sizeof files, "printf %%s $(ls %s | wc -l)", gpt.paths.together[0]);
    EXPECT_EQ_STR(files, "3");
    gpt_clean_up(&gpt);
}

/* One byte of the second rank's numbers is another. */
static void test_a_folder_with_a_damaged_part_is_loaded_by_none(void) {
    struct gpt gpt;
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__bytes bytes = {0};
    char part[PATH_BYTES + 8];
    gpt_init(&gpt, 0);
    gpt_run(&gpt, 2, 2, NULL, gpt.paths.together[0]);
    test_shell(part, sizeof part, "printf %%s \"$(ls %s/part-*-1.safetensors)\"",
               gpt.paths.together[0]);
    if (EXPECT_STATUS(weir__file_read(&io, part, 1 << 22, &bytes), WEIR_OK)) {
        FILE *file = fopen(part, "wb");
        bytes.data[bytes.count - 1] ^= 1;
        EXPECT_EQ_UINT(fwrite(bytes.data, 1, bytes.count, file), bytes.count);
        fclose(file);
    }
    weir__bytes_release(test_allocator(), &bytes);
    gpt.job.load = gpt.paths.together[0];
    gpt.job.save = gpt.paths.together[1];
    refuse(&gpt.job, WEIR_ERR_PEER, "is not what was saved");
    gpt_clean_up(&gpt);
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

/* Before it has a pipe: what others would say to it there is not mixed with that. */
static void test_a_net_that_one_rank_cannot_make_is_made_by_none(void) {
    struct gpt gpt;
    gpt_init(&gpt, 0);
    gpt_run(&gpt, 2, 0, NULL, gpt.paths.alone[0]);
    gpt.job.odd_dtype = true;
    const struct threads_options how = {
        .ranks = 2, .seed = test_random_u64(), .delay = 10, .no_launcher = true};
    EXPECT_STATUS(threads_world_once(&how, run_rank, &gpt.job), WEIR_OK);
    EXPECT_STATUS(gpt.job.statuses[0], WEIR_ERR_PEER);
    EXPECT_CONTAINS(gpt.job.said[0], "rank 1: --dtype i64 is not supported");
    EXPECT_CONTAINS(gpt.job.said[1], "--dtype i64 is not supported");
    gpt_clean_up(&gpt);
}

WEIR_TEST_SUITE(net_ranks, TEST(ranks_write_what_one_process_writes),
                TEST(any_number_of_ranks_and_stages_goes_on), TEST(mixed_residuals_cross_ranks),
                TEST(copies_are_written_beside_training_and_then_committed),
                TEST(parameters_in_pieces_are_loaded),
                TEST(a_save_that_one_rank_cannot_write_leaves_the_former),
                TEST(a_folder_with_a_damaged_part_is_loaded_by_none),
                TEST(ranks_by_other_levels_are_refused),
                TEST(a_net_that_one_rank_cannot_make_is_made_by_none),
                TEST(a_file_that_one_rank_lacks_is_loaded_by_none))
