/* SPDX-License-Identifier: MIT */
/*
 * Goal: a kept profile is the profile, and is used for nothing else than what it is of. Method:
 * files are written, read, changed in one place and refused with the place named; each thing that a
 * profile is of is changed once.
 */
#include "engine/threads_world.h"
#include "harness.h"
#include "net/net_trial.h"
#include "net/profiles.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *path_of(const char *name, char *path, size_t capacity) {
    snprintf(path, capacity, "%s/%s", test_temporary_directory(), name);
    return path;
}

static void check_equal(const struct weir_profile *a, const struct weir_profile *b) {
    EXPECT_EQ_UINT(a->model, b->model);
    EXPECT(strcmp(a->machine, b->machine) == 0 && strcmp(a->libraries, b->libraries) == 0);
    EXPECT(a->rows == b->rows && a->threads == b->threads && a->dtype == b->dtype);
    EXPECT(a->steps == b->steps && a->measured == b->measured && a->spread == b->spread);
    EXPECT(memcmp(a->seconds, b->seconds, sizeof a->seconds) == 0);
    EXPECT(a->costs.task_seconds == b->costs.task_seconds);
    if (!EXPECT(a->costs.rank_count == b->costs.rank_count)) return;
    for (uint32_t r = 0; r < a->costs.rank_count; r++) {
        EXPECT(a->costs.rank_paces[r] == b->costs.rank_paces[r]);
        EXPECT(strcmp(a->ranks[r].host, b->ranks[r].host) == 0);
        EXPECT(strcmp(a->ranks[r].machine, b->ranks[r].machine) == 0);
    }
    if (!EXPECT(a->costs.layer_count == b->costs.layer_count)) return;
    for (uint32_t i = 0; i < a->costs.layer_count; i++) {
        const struct weir_layer_cost *x = &a->costs.layers[i], *y = &b->costs.layers[i];
        EXPECT(memcmp(x->seconds, y->seconds, sizeof x->seconds) == 0);
        EXPECT(x->recompute_last == y->recompute_last);
        EXPECT(x->saved == y->saved && x->weight_saved == y->weight_saved);
        EXPECT(x->workspace == y->workspace && x->optimizer == y->optimizer);
        EXPECT(x->no_backward == y->no_backward && x->joined == y->joined);
    }
    if (!EXPECT(a->costs.skip_count == b->costs.skip_count)) return;
    for (uint32_t s = 0; s < a->costs.skip_count; s++) {
        const struct weir_skip_route *x = &a->costs.skips[s], *y = &b->costs.skips[s];
        EXPECT(strcmp(x->name, y->name) == 0 && strcmp(x->name_space, y->name_space) == 0);
        EXPECT(x->source == y->source && x->readers[0] == y->readers[0] && x->bytes == y->bytes);
    }
}

static void test_a_file_holds_the_profile(void) {
    struct weir_model *model = unet_model();
    struct weir_profile_options options = profile_options(4, 2);
    struct weir_profile *profile = profile_of(model, &options), *read = NULL;
    struct weir_error error = {0};
    char path[256];
    CHECK(profile != NULL);
    path_of("unet.profile", path, sizeof path);
    CHECK_OK(weir_profile_save(profile, path, &error));
    CHECK_OK(weir_profile_load(test_allocator(), path, NULL, &read));
    check_equal(profile, read);
    CHECK_OK(weir_profile_fit(read, model, &options.net, NULL));
    EXPECT_STATUS(weir_profile_save(profile, "/nowhere/at/all", &error), WEIR_ERR_IO);
    EXPECT(strstr(error.message, "/nowhere/at/all") != NULL);
    weir_profile_destroy(read);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

static void expect_refused(struct weir_profile *profile, const struct weir_model *model,
                           const struct weir_net_options *options, const char *word) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    EXPECT_STATUS(weir_profile_fit(profile, model, options, &faults), WEIR_ERR_CONFIG);
    EXPECT_FAULTS(&faults, word);
    weir_faults_clean_up(&faults);
}

/* ---- of several ranks ---- */

enum { RANKS = 3 };

struct measuring {
    const struct weir_model *model;
    struct weir_profile_options options;
    struct weir_profile *profiles[RANKS];
    uint32_t odd; /* a rank that measures other rows; RANKS: none */
};

static int measure_rank(void *context, struct weir_world *world) {
    struct measuring *all = context;
    struct weir_profile_options own = all->options;
    own.net.pipe.world = world;
    if (world->rank == all->odd) own.net.pipe.rows += 2;
    return weir_profile_new(all->model, &own, NULL, &all->profiles[world->rank]);
}

/* Of `ranks` ranks of so many: whether the profile is theirs, seen by the first. */
static void expect_fit(struct measuring *all, uint32_t ranks, const char *word) {
    const struct threads_options how = {.ranks = ranks, .seed = 1};
    struct threads_world *threads = threads_world_new(&how);
    struct weir_net_options net = all->options.net;
    net.pipe.world = threads_world_rank(threads, 0);
    if (word == NULL)
        EXPECT_STATUS(weir_profile_fit(all->profiles[0], all->model, &net, NULL), WEIR_OK);
    else
        expect_refused(all->profiles[0], all->model, &net, word);
    threads_world_destroy(threads);
}

static void test_ranks_have_one_profile(void) {
    struct weir_error error = {0};
    struct weir_profile *read = NULL;
    struct measuring all = {.model = gpt_model(false, 0), .odd = RANKS};
    const struct threads_options how = {.ranks = RANKS, .seed = test_random_u64(), .delay = 10};
    double most = 0;
    char path[256];
    CHECK(all.model != NULL);
    all.options = profile_options(8, 2);
    all.options.net.pipe.workers = RANKS;
    all.options.net.stages = RANKS;
    CHECK_STATUS(threads_world_once(&how, measure_rank, &all), WEIR_OK);
    for (uint32_t r = 0; r < RANKS; r++) {
        check_equal(all.profiles[r], all.profiles[0]);
        EXPECT(all.profiles[0]->costs.rank_paces[r] > 0);
        most = fmax(most, all.profiles[0]->costs.rank_paces[r]);
    }
    EXPECT_EQ_UINT(all.profiles[0]->costs.rank_count, RANKS);
    EXPECT_NEAR(most, 1, 0);
    path_of("ranks.profile", path, sizeof path);
    CHECK_OK(weir_profile_save(all.profiles[0], path, &error));
    CHECK_OK(weir_profile_load(test_allocator(), path, NULL, &read));
    check_equal(read, all.profiles[0]);
    CHECK_OK(weir_profile_fit(read, all.model, &all.options.net, NULL));
    expect_fit(&all, RANKS, NULL);
    expect_fit(&all, RANKS - 1, "the profile is of 3 ranks, and there are 2");
    weir_profile_destroy(read);
    for (uint32_t r = 0; r < RANKS; r++) weir_profile_destroy(all.profiles[r]);
    weir_model_destroy((struct weir_model *)all.model);
}

/* None waits for times that do not come. */
static void test_ranks_that_measure_other_things_are_refused(void) {
    struct measuring all = {.model = gpt_model(false, 0), .odd = 1};
    const struct threads_options how = {.ranks = RANKS, .seed = test_random_u64(), .delay = 10};
    CHECK(all.model != NULL);
    all.options = profile_options(8, 2);
    EXPECT_STATUS(threads_world_once(&how, measure_rank, &all), WEIR_ERR_CONFIG);
    for (uint32_t r = 0; r < RANKS; r++) EXPECT(all.profiles[r] == NULL);
    weir_model_destroy((struct weir_model *)all.model);
}

static void test_a_profile_of_something_else_is_refused(void) {
    struct weir_model *model = gpt_model(false, 0), *other = gpt_model(false, 0.1);
    struct weir_profile_options options = profile_options(8, 2);
    options.bytes_only = true;
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL && other != NULL);
    struct weir_net_options net = options.net;
    CHECK_OK(weir_profile_fit(profile, model, &net, NULL));
    expect_refused(profile, other, &net, "another model");
    net.pipe.chunks = 3;
    expect_refused(profile, model, &net, "4 rows per micro-batch, not 3");
    net = options.net;
    net.pipe.rows = 7; /* 4 and 3: the larger is the same */
    CHECK_OK(weir_profile_fit(profile, model, &net, NULL));
    net.pipe.threads_per_worker = 2;
    expect_refused(profile, model, &net, "1 threads per stage, not 2");
    net = options.net;
    net.dtype = WEIR_F64;
    expect_refused(profile, model, &net, "f32");
    net = options.net;
    net.reference = true;
    expect_refused(profile, model, &net, "reference");
    net = options.net;
    net.pipe.infer_only = true;
    expect_refused(profile, model, &net, "training");
    snprintf(profile->machine, sizeof profile->machine, "an abacus");
    expect_refused(profile, model, &options.net, "an abacus");
    CHECK_OK(weir_model_freeze(model, "h.0.*"));
    weir_profile_destroy(profile);
    profile = profile_of(other, &options);
    expect_refused(profile, model, &options.net, "frozen");
    weir_profile_destroy(profile);
    weir_model_destroy(model);
    weir_model_destroy(other);
}

static uint64_t fingerprint_of(bool frozen, const char *pattern) {
    struct weir_tensor one = {.dtype = WEIR_F32, .rank = 1, .shape = {1}};
    struct weir_model *model = trial_model(one, one, "mse");
    if (!EXPECT(model != NULL)) return 0;
    for (int i = 0; i < 2; i++)
        trial_add(model, "linear",
                  WEIR_ATTRS(WEIR_ATTR_INT("out_features", 1),
                             WEIR_ATTR_FLAG("frozen", i == 0 && frozen)));
    if (pattern != NULL) EXPECT_STATUS(weir_model_freeze(model, pattern), WEIR_OK);
    uint64_t fingerprint = weir_model_fingerprint(model);
    weir_model_destroy(model);
    return fingerprint;
}

static void test_what_is_frozen_makes_another_model(void) {
    uint64_t plain = fingerprint_of(false, NULL);
    EXPECT(plain == fingerprint_of(false, NULL));
    EXPECT(plain != fingerprint_of(true, NULL));
    EXPECT(plain != fingerprint_of(false, "0.*"));
    EXPECT(fingerprint_of(false, "1.*") != fingerprint_of(false, "0.*"));
}

static void test_a_fit_counts_the_optimizer_that_is_used(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_profile_options options = profile_options(8, 2);
    struct weir_optimizer sgd = WEIR_SGD_INIT;
    options.bytes_only = true;
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL);
    const struct weir_layer_cost *layer = &profile->costs.layers[1];
    EXPECT_EQ_UINT(layer->optimizer, 2 * layer->trainable);
    options.net.optimizer = sgd;
    CHECK_OK(weir_profile_fit(profile, model, &options.net, NULL));
    EXPECT_EQ_UINT(layer->optimizer, 0);
    options.net.optimizer.momentum = 0.9;
    CHECK_OK(weir_profile_fit(profile, model, &options.net, NULL));
    EXPECT_EQ_UINT(layer->optimizer, layer->trainable);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

/* The first `from` becomes `to`. */
static void check_changed(const char *path, const char *good, const char *from, const char *to,
                          const char *word) {
    static char text[1 << 18];
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_profile *profile = NULL;
    const char *at = strstr(good, from);
    if (!EXPECT(at != NULL)) return;
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    profile_write_file(path, text);
    EXPECT_STATUS(weir_profile_load(test_allocator(), path, &faults, &profile), WEIR_ERR_FORMAT);
    if (faults.kept != 1 || strstr(faults.lines[0], word) == NULL)
        TEST_FAIL("'%s' instead of '%s': '%s'", to, from, faults.kept ? faults.lines[0] : "");
    weir_faults_clean_up(&faults);
}

static void test_files_that_are_no_profiles_are_refused(void) {
    static const char *const changes[][3] = {
        {"{", "[", "no profile"},
        {"\"weir_profile\": 1", "\"weir_profile\": 2", "no profile"},
        {"\"rows\": 2", "\"rows\": -2", "rows must be"},
        {"\"rows\": 2", "\"rows\": 1e99", "rows must be"},
        {"\"dtype\": \"f32\"", "\"dtype\": \"f23\"", "dtype must be"},
        {"\"measured\": true", "\"measured\": 1", "measured must be"},
        {"\"task\": ", "\"task\": -", "task must be"},
        {"\"whole\": ", "\"hole\": ", "forward must be"},
        {"\"layers\": ", "\"players\": ", "layers must be"},
        {"\"saved\": ", "\"saved\": 1.5, \"x\": ", "layers[0].saved must be"},
        {"\"border\": ", "\"border\": \"\", \"x\": ", "layers[0].border must be"},
        {"\"forward_checkpoint\": ", "\"forward_checkpoint\": null, \"x\": ", "must be"},
        {"\"joined\": false", "\"joined\": 0", "layers[0].joined must be"},
        {"\"skips\": ", "\"ships\": ", "skips must be"},
        {"\"source\": ", "\"source\": 9", "skips[0].source must be"},
        {"\"readers\": [", "\"readers\": [0,", "skips[0].readers must be"},
        {"\"readers\": [", "\"readers\": [9999,", "skips[0].readers must be"},
        {"\"skip\": ", "\"slip\": ", "skips[0].skip must be"},
        {"\"model\": \"", "\"model\": \"g", "model must be"}};
    struct weir_model *model = unet_model();
    struct weir_profile_options options = profile_options(4, 2);
    struct weir_profile *profile = profile_of(model, &options);
    struct weir_error error = {0};
    char path[256];
    CHECK(profile != NULL);
    path_of("good.profile", path, sizeof path);
    CHECK_OK(weir_profile_save(profile, path, &error));
    const char *good = profile_read_file(path);
    CHECK(good != NULL);
    path_of("bad.profile", path, sizeof path);
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++)
        check_changed(path, good, changes[i][0], changes[i][1], changes[i][2]);
    weir_profile_destroy(profile);
    profile = NULL;
    path_of("missing", path, sizeof path);
    EXPECT_STATUS(weir_profile_load(test_allocator(), path, NULL, &profile), WEIR_ERR_IO);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(profile_file, TEST(a_file_holds_the_profile), TEST(ranks_have_one_profile),
                TEST(ranks_that_measure_other_things_are_refused),
                TEST(a_profile_of_something_else_is_refused),
                TEST(what_is_frozen_makes_another_model),
                TEST(a_fit_counts_the_optimizer_that_is_used),
                TEST(files_that_are_no_profiles_are_refused))
