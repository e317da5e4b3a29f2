/* SPDX-License-Identifier: MIT */
/*
 * Goal: parameters that stay in their file change no bit, have no memory, are told by the plan, and
 * are saved as they are; what cannot stay is copied, and other numbers are refused. Method: small
 * decoders and GPTs with adapters, whose matrices lie in one file as BF16 and in another as the
 * same numbers in F32: nets that map beside nets that copy, over levels, dtypes and cuts.
 */
#include "harness.h"
#include "net/net_models.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include "base/base.h"
#include "io/safetensors.h"
#include "net/cpu/level.h"
#include "net/run/files.h"
#include "net/run/net.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 6, CHUNKS = 3, CONTEXT = 5, VOCAB = 71, WIDTH = 40, INNER = 51, LIST = 64 };

static struct weir_model *decoder(void) {
    return net_small_decoder(2, WIDTH, INNER, CONTEXT, VOCAB);
}

/* Whose matrices of a product are the other way, and whose positions are no embedding's. */
static struct weir_model *gpt(void) {
    return net_small_gpt(WIDTH, CONTEXT, VOCAB);
}

static struct weir_model *adapted(struct weir_model *model) {
    static const char *const all[] = {"all-linear"};
    struct weir_lora lora = {2, 3, true, 0.25, all, 1};
    EXPECT_STATUS(weir_model_lora(model, &lora), WEIR_OK);
    return model;
}

static struct weir_net_options options_of(uint32_t stages, enum weir_dtype dtype) {
    struct weir_net_options options = trial_options(stages, ROWS, CHUNKS);
    options.dtype = dtype;
    options.optimizer.lr = 0.05;
    return options;
}

/* ---- files ---- */

static const char *folder; /* this test's */

static const char *path_of(char path[512], const char *name) {
    snprintf(path, 512, "%s/%s", folder, name);
    return path;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void save_items(const char *name, const struct weir__safetensors_item *items,
                       uint32_t count) {
    struct weir__io io = {.allocator = test_allocator()};
    char path[512];
    EXPECT_STATUS(weir__safetensors_save(&io, path_of(path, name), items, count, NULL, 0), WEIR_OK);
}

/* The model's weights without adapters: "wide" has all as F32, "narrow" matrices as BF16. Both are
 * the same numbers, which are returned as the bytes of matrices in F32. */
static uint64_t write_files(const struct weir_model *model) {
    struct weir__safetensors_item wide[LIST] = {{0}}, narrow[LIST] = {{0}};
    static uint16_t halves[1 << 16];
    struct weir_net_options options = options_of(1, WEIR_F32);
    struct weir_net *net = trial_net(model, &options);
    struct weir_parameter p;
    uint32_t count = 0;
    size_t used = 0;
    if (net == NULL) return 0;
    for (uint32_t i = 0; weir_net_parameter(net, i, &p) == WEIR_OK; i++) {
        if (p.adapter || !EXPECT(count < LIST && used + p.count < WEIR__COUNT_OF(halves))) continue;
        float *numbers = p.data;
        wide[count] = (struct weir__safetensors_item){p.name, WEIR_F32, p.rank, {0}, numbers};
        memcpy(wide[count].shape, p.shape, sizeof p.shape);
        narrow[count] = wide[count];
        for (uint64_t k = 0; p.rank == 2 && k < p.count; k++) {
            halves[used + k] = (uint16_t)(bits_of(numbers[k]) >> 16);
            uint32_t bits = (uint32_t)halves[used + k] << 16;
            memcpy(&numbers[k], &bits, sizeof bits);
        }
        if (p.rank == 2) narrow[count].dtype = WEIR_BF16, narrow[count].data = &halves[used];
        used += p.rank == 2 ? (size_t)p.count : 0;
        count++;
    }
    save_items("wide", wide, count);
    save_items("narrow", narrow, count);
    weir_net_destroy(net);
    return used * sizeof(float);
}

/* ---- nets ---- */

/* Maps `weights` (NULL: none), and has the numbers of `file`. */
static struct weir_net *net_of(const struct weir_model *model, struct weir_net_options options,
                               const char *weights, const char *file) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    char path[512], mapped[512];
    faults.allocator = test_allocator();
    if (weights != NULL) options.weights = path_of(mapped, weights);
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL &&
        !EXPECT_STATUS(weir_net_load(net, path_of(path, file), NULL, &faults), WEIR_OK))
        TEST_FAIL("%s", faults.kept > 0 ? faults.lines[0] : "");
    weir_faults_clean_up(&faults);
    if (net != NULL && !options.pipe.infer_only) trial_fill_adapters(net);
    return net;
}

static uint32_t mapped_count(const struct weir_net *net, enum weir_dtype dtype) {
    struct weir_parameter p;
    uint32_t count = 0;
    for (uint32_t i = 0; weir_net_parameter(net, i, &p) == WEIR_OK; i++)
        count += p.mapped && p.dtype == dtype;
    return count;
}

/* What two updates and an inference give. */
struct outcome {
    double losses[3], norms[2];
    unsigned char output[ROWS * CONTEXT * VOCAB * 4];
    float adapters[1 << 14];
};

static void run(struct weir_net *net, const struct trial_data *data, struct outcome *outcome) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    struct weir_step_result result;
    struct weir_parameter p;
    size_t used = 0;
    memset(outcome, 0, sizeof *outcome);
    batch.rows = data->rows, batch.input = data->input, batch.target = data->target;
    batch.output = outcome->output;
    for (int i = 0; i < 3; i++) {
        int status =
            i < 2 ? weir_net_step(net, &batch, &result) : weir_net_infer(net, &batch, &result);
        if (!EXPECT_STATUS(status, WEIR_OK)) TEST_FAIL("%s", result.error.message);
        outcome->losses[i] = result.loss;
        if (i < 2) outcome->norms[i] = result.gradient_norm;
    }
    for (uint32_t i = 0; weir_net_parameter(net, i, &p) == WEIR_OK; i++) {
        if (!p.adapter || !EXPECT(used + p.count < WEIR__COUNT_OF(outcome->adapters))) continue;
        memcpy(outcome->adapters + used, p.data, (size_t)p.count * sizeof(float));
        used += (size_t)p.count;
    }
}

static void expect_same(const struct outcome *a, const struct outcome *b) {
    EXPECT_EQ_BYTES(a->losses, b->losses, sizeof a->losses);
    EXPECT_EQ_BYTES(a->norms, b->norms, sizeof a->norms);
    EXPECT_EQ_BYTES(a->output, b->output, sizeof a->output);
    EXPECT_EQ_BYTES(a->adapters, b->adapters, sizeof a->adapters);
}

static void tokens_init(struct trial_data *data, const struct weir_model *model) {
    trial_data_of(data, model, WEIR_F32, ROWS, VOCAB);
}

/* ---- bits ---- */

static void compare(const struct weir_model *model, struct weir_net_options options,
                    const struct trial_data *data) {
    static struct outcome copied, mapped;
    struct weir_net *plain = net_of(model, options, NULL, "wide");
    if (plain == NULL) return;
    EXPECT_EQ_UINT(mapped_count(plain, WEIR_F32) + mapped_count(plain, WEIR_BF16), 0);
    run(plain, data, &copied);
    for (int narrow = 0; narrow < 2; narrow++) {
        const char *file = narrow ? "narrow" : "wide";
        struct weir_net *net = net_of(model, options, file, file);
        if (net == NULL) break;
        EXPECT(mapped_count(net, narrow ? WEIR_BF16 : WEIR_F32) >= 7);
        run(net, data, &mapped);
        expect_same(&copied, &mapped);
        weir_net_destroy(net);
    }
    weir_net_destroy(plain);
}

static void test_no_bit_changes_at_any_level(void) {
    folder = test_temporary_directory();
    struct weir_model *models[] = {adapted(decoder()), adapted(gpt())};
    const struct weir__level *level;
    for (int m = 0; m < 2; m++) {
        struct trial_data data;
        tokens_init(&data, models[m]);
        write_files(models[m]);
        for (uint32_t i = 0; (level = weir__level_at(i)) != NULL && !test_has_failed(); i++) {
            if (!weir__level_runs(level)) continue;
            for (int narrow = 0; narrow < 2; narrow++) {
                struct weir_net_options options = options_of(1, narrow ? WEIR_BF16 : WEIR_F32);
                options.level = level->name;
                options.pipe.threads_per_worker = 1 + i % 2;
                compare(models[m], options, &data);
            }
        }
        trial_data_clean_up(&data);
        weir_model_destroy(models[m]);
    }
}

static void test_no_bit_changes_whatever_the_cut(void) {
    folder = test_temporary_directory();
    static const char *const schedules[] = {"gpipe", "1f1b", "zb-h1"};
    struct weir_model *model = adapted(decoder());
    struct trial_data data;
    tokens_init(&data, model);
    write_files(model);
    for (uint32_t stages = 2; stages <= 4 && !test_has_failed(); stages++) {
        struct weir_net_options options = options_of(stages, WEIR_F32);
        options.pipe.schedule = schedules[stages - 2];
        options.pipe.checkpoint = (enum weir_checkpoint)(stages - 2);
        compare(model, options, &data);
    }
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* ---- memory ---- */

static void plan_of(const struct weir_model *model, const char *weights, uint32_t stages,
                    struct weir_device_plan devices[4]) {
    struct weir_net_options options = options_of(stages, WEIR_F32);
    struct weir_plan *plan = NULL;
    char path[512];
    if (weights != NULL) options.weights = path_of(path, weights);
    options.pipe.memory_limit = UINT64_C(1) << 40; /* nothing is kept packed */
    if (!EXPECT_STATUS(weir_net_plan(model, &options, NULL, &plan), WEIR_OK)) return;
    for (uint32_t w = 0; w < plan->device_count; w++) devices[w] = plan->devices[w];
    weir_plan_destroy(plan);
}

static uint64_t rounded(uint64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static void test_the_plan_tells_them_apart(void) {
    folder = test_temporary_directory();
    struct weir_device_plan copied[4] = {{{0}}}, mapped[4] = {{{0}}};
    struct weir_model *model = adapted(decoder());
    uint64_t bytes = write_files(model);
    /* q, k, v, o and gate, up, down of each layer, and the embedding, which is the head */
    uint64_t gone = 2 * (2 * rounded(WIDTH * WIDTH * 4) + 2 * rounded(WIDTH * WIDTH / 2 * 4) +
                         3 * rounded(WIDTH * INNER * 4)) +
                    rounded(WIDTH * VOCAB * 4);
    plan_of(model, NULL, 1, copied);
    plan_of(model, "narrow", 1, mapped);
    EXPECT_EQ_UINT(copied[0].mapped, 0);
    EXPECT_EQ_UINT(mapped[0].mapped, bytes / 2);
    EXPECT_EQ_UINT(mapped[0].parameters + gone, copied[0].parameters);
    EXPECT_EQ_UINT(mapped[0].total + gone, copied[0].total);
    plan_of(model, "wide", 1, mapped);
    EXPECT_EQ_UINT(mapped[0].mapped, bytes);
    plan_of(model, "narrow", 2, mapped);
    EXPECT_EQ_UINT(mapped[0].mapped + mapped[1].mapped, bytes / 2 + WIDTH * VOCAB * 2);
    weir_model_destroy(model);
}

static void test_nothing_is_kept_packed_of_them(void) {
    folder = test_temporary_directory();
    struct weir_model *model = adapted(decoder());
    write_files(model);
    struct weir_net *plain = net_of(model, options_of(1, WEIR_F32), NULL, "wide");
    struct weir_net *net = net_of(model, options_of(1, WEIR_F32), "narrow", "narrow");
    if (plain != NULL && net != NULL)
        EXPECT(net->stages[0].state_bytes + 8 * WIDTH * WIDTH * 4 < plain->stages[0].state_bytes);
    weir_net_destroy(plain);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/* ---- files ---- */

static struct weir_net *resumed(const struct weir_model *model, const char *weights,
                                const char *file, struct weir_progress *progress) {
    struct weir_net_options options = options_of(2, WEIR_F32);
    char path[512], mapped[512];
    if (weights != NULL) options.weights = path_of(mapped, weights);
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL)
        EXPECT_STATUS(weir_net_load(net, path_of(path, file), progress, NULL), WEIR_OK);
    return net;
}

static void test_checkpoints_hold_them_as_they_are(void) {
    folder = test_temporary_directory();
    static struct outcome outcomes[3];
    struct weir__io io = {.allocator = test_allocator()};
    struct weir_model *model = adapted(decoder());
    struct trial_data data;
    struct weir_net_copy *copy = NULL;
    struct weir_progress progress = {.step = 2, .mini_batch = 2, .seed = 7};
    struct weir__safetensors *files[2] = {NULL, NULL};
    char path[512];
    tokens_init(&data, model);
    write_files(model);
    struct weir_net *net = net_of(model, options_of(1, WEIR_F32), "narrow", "narrow");
    CHECK(net != NULL);
    run(net, &data, &outcomes[0]);
    EXPECT_STATUS(weir_net_save(net, path_of(path, "saved"), &progress, NULL), WEIR_OK);
    EXPECT_STATUS(weir_net_copy_new(net, &copy), WEIR_OK);
    EXPECT_STATUS(weir_net_copy_take(copy, &progress, NULL), WEIR_OK);
    EXPECT_STATUS(weir_net_copy_save(copy, path_of(path, "copied"), NULL), WEIR_OK);
    struct weir_net_options options = options_of(1, WEIR_F32);
    options.weights = path_of(path, "narrow");
    EXPECT_EQ_UINT(weir__net_copy_held(copy), weir_net_copy_bytes(model, &options));
    char other[512];
    EXPECT(trial_same_files(path_of(path, "saved"), path_of(other, "copied")));
    EXPECT_STATUS(weir__safetensors_open(&io, path_of(path, "narrow"), NULL, &files[0]), WEIR_OK);
    EXPECT_STATUS(weir__safetensors_open(&io, path_of(path, "saved"), NULL, &files[1]), WEIR_OK);
    for (uint32_t i = 0; i < weir__safetensors_count(files[0]); i++) {
        const struct weir__safetensor *was = weir__safetensors_get(files[0], i);
        const struct weir__safetensor *is = weir__safetensors_find(files[1], was->name);
        CHECK(is != NULL && is->dtype == was->dtype);
        EXPECT_EQ_BYTES(was->data, is->data, was->bytes);
    }
    for (int i = 0; i < 2; i++) weir__safetensors_close(files[i]);
    run(net, &data, &outcomes[0]);
    for (int i = 0; i < 2; i++) {
        struct weir_net *next = resumed(model, i == 0 ? "saved" : NULL, "saved", &progress);
        CHECK(next != NULL);
        EXPECT_EQ_UINT(progress.step, 2);
        /* it replaces the file that it reads from */
        EXPECT_STATUS(weir_net_save(next, path_of(path, "saved"), &progress, NULL), WEIR_OK);
        run(next, &data, &outcomes[1 + i]);
        expect_same(&outcomes[0], &outcomes[1 + i]);
        weir_net_destroy(next);
    }
    weir_net_copy_destroy(copy);
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_other_numbers_are_refused(void) {
    folder = test_temporary_directory();
    struct weir_model *model = adapted(decoder());
    struct weir_faults faults = WEIR_FAULTS_INIT;
    char path[512];
    faults.allocator = test_allocator();
    write_files(model);
    struct weir_net *net = net_of(model, options_of(2, WEIR_F32), "narrow", "narrow");
    struct weir_net_options options = options_of(1, WEIR_F32);
    struct weir_net *other = trial_net(model, &options);
    CHECK(net != NULL && other != NULL);
    EXPECT_STATUS(weir_net_load(net, path_of(path, "wide"), NULL, &faults), WEIR_OK);
    EXPECT_STATUS(weir_net_init(other, 8), WEIR_OK);
    EXPECT_STATUS(weir_net_save(other, path_of(path, "other"), NULL, NULL), WEIR_OK);
    EXPECT_STATUS(weir_net_load(net, path, NULL, &faults), WEIR_ERR_CONFIG);
    EXPECT_FAULTS(&faults, "'model.embed_tokens.weight' stays in the file that the net was made "
                           "with, and has other numbers here: make the net with this file");
    weir_faults_clean_up(&faults);
    weir_net_destroy(other);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static void test_what_cannot_stay_is_copied(void) {
    folder = test_temporary_directory();
    static const float numbers[WIDTH * VOCAB];
    struct weir_model *model = adapted(decoder());
    char path[512];
    const struct weir__safetensors_item items[] = {
        {"model.embed_tokens.weight", WEIR_F16, 2, {VOCAB, WIDTH}, numbers},
        {"model.layers.0.mlp.up_proj.weight", WEIR_F32, 2, {INNER, WIDTH - 1}, numbers},
        {"model.norm.weight", WEIR_F32, 1, {WIDTH}, numbers},
        {"model.layers.0.mlp.down_proj.weight", WEIR_F32, 2, {WIDTH, INNER}, numbers}};
    save_items("few", items, 4);
    struct weir_net_options options = options_of(1, WEIR_F32);
    options.weights = path_of(path, "few");
    struct weir_net *net = trial_net(model, &options);
    CHECK(net != NULL);
    EXPECT_EQ_UINT(mapped_count(net, WEIR_F32), 1);
    weir_net_destroy(net);
    options.reference = true;
    write_files(model);
    options.weights = path_of(path, "narrow");
    net = trial_net(model, &options);
    CHECK(net != NULL);
    EXPECT_EQ_UINT(mapped_count(net, WEIR_BF16), 0);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static void test_a_file_that_is_none_is_refused(void) {
    folder = test_temporary_directory();
    struct weir_model *model = adapted(decoder());
    struct weir_net_options options = options_of(1, WEIR_F32);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    char path[512];
    faults.allocator = test_allocator();
    options.weights = path_of(path, "missing");
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_IO);
    EXPECT_FAULTS(&faults, "missing");
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

/* ---- inference ---- */

static void test_inference_maps_all(void) {
    folder = test_temporary_directory();
    static struct outcome outcomes[2];
    struct weir_model *model = gpt();
    struct weir_net_options options = options_of(2, WEIR_F32);
    struct trial_data data;
    tokens_init(&data, model);
    write_files(model);
    options.pipe.infer_only = true;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = ROWS, batch.input = data.input;
    for (int i = 0; i < 2; i++) {
        options.weights_all = i == 1;
        struct weir_net *net = net_of(model, options, "narrow", "narrow");
        CHECK(net != NULL);
        /* four products of each layer, the embedding and the head */
        EXPECT_EQ_UINT(mapped_count(net, WEIR_BF16), i == 0 ? 0 : 10);
        batch.output = outcomes[i].output;
        EXPECT_STATUS(weir_net_infer(net, &batch, NULL), WEIR_OK);
        weir_net_destroy(net);
    }
    EXPECT_EQ_BYTES(outcomes[0].output, outcomes[1].output, sizeof outcomes[0].output);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(mapped, TEST(no_bit_changes_at_any_level), TEST(no_bit_changes_whatever_the_cut),
                TEST(the_plan_tells_them_apart), TEST(nothing_is_kept_packed_of_them),
                TEST(checkpoints_hold_them_as_they_are), TEST(other_numbers_are_refused),
                TEST(what_cannot_stay_is_copied), TEST(a_file_that_is_none_is_refused),
                TEST(inference_maps_all))
