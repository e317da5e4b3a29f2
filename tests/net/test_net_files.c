/* SPDX-License-Identifier: MIT */
/*
 * Goal: initial values, and nets in files: what is saved is what is loaded, whatever the partition,
 * and a file that does not fit is refused with every reason and changes nothing.
 * Method: small GPTs, saved by one net and loaded by another.
 */
#include "harness.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include "base/base.h"
#include "io/safetensors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct weir_tensor tokens = {.dtype = WEIR_I64, .rank = 1, .shape = {3}};

static struct weir_model *gpt_model(uint32_t layers, uint32_t vocab) {
    struct weir_gpt_options gpt = {layers, 4, 2, 3, vocab, false, 0.1};
    struct weir_model *model = NULL;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &gpt, NULL, &model), WEIR_OK);
    return model;
}

static const char *file_path(char path[512], const char *name) {
    snprintf(path, 512, "%s/%s", test_temporary_directory(), name);
    return path;
}

static int train(struct weir_net *net, const struct trial_data *data, uint64_t first,
                 uint64_t count) {
    for (uint64_t i = first; i < first + count; i++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = data->rows;
        batch.input = data->input;
        batch.target = data->target;
        batch.mini_batch = i;
        batch.update = i;
        batch.lr = 0.01;
        struct weir_step_result result;
        int status = weir_net_step(net, &batch, &result);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static void read_bytes(const char *path, struct weir__bytes *bytes) {
    struct weir__io io = {.allocator = test_allocator()};
    memset(bytes, 0, sizeof *bytes);
    EXPECT_STATUS(weir__file_read(&io, path, 1 << 20, bytes), WEIR_OK);
}

static void compare_files(const char *a, const char *b) {
    struct weir__bytes left, right;
    read_bytes(a, &left);
    read_bytes(b, &right);
    if (EXPECT_EQ_UINT(left.count, right.count)) EXPECT_EQ_BYTES(left.data, right.data, left.count);
    weir__bytes_release(test_allocator(), &left);
    weir__bytes_release(test_allocator(), &right);
}

/* The numbers of a file. */
static uint64_t tensor_bytes(const char *path) {
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors *file;
    uint64_t bytes = 0;
    if (!EXPECT_STATUS(weir__safetensors_open(&io, path, NULL, &file), WEIR_OK)) return 0;
    for (uint32_t i = 0; i < weir__safetensors_count(file); i++)
        bytes += weir__safetensors_get(file, i)->bytes;
    weir__safetensors_close(file);
    return bytes;
}

static void check_resumed(struct weir_model *model, struct weir_optimizer optimizer) {
    struct trial_data data;
    trial_data_init(&data, &tokens, &tokens, WEIR_F32, 5, 5, 5);
    struct weir_net_options options = trial_options(1, 5, 2);
    options.dtype = WEIR_F32;
    options.optimizer = optimizer;
    char half[512], straight[512], resumed[512];
    file_path(half, "half"), file_path(straight, "straight"), file_path(resumed, "resumed");
    struct weir_net *net = trial_net(model, &options);
    struct weir_progress progress = {3, 3, 11}, found = {0}, other = {9, 9, 9};
    struct weir_net_copy *copy = NULL;
    if (net != NULL && EXPECT_STATUS(weir_net_copy_new(net, &copy), WEIR_OK)) {
        EXPECT_STATUS(weir_net_copy_take(copy, &other, NULL), WEIR_OK);
        EXPECT_STATUS(train(net, &data, 0, 3), WEIR_OK);
        EXPECT_STATUS(weir_net_save(net, half, &progress, NULL), WEIR_OK);
        EXPECT_STATUS(weir_net_copy_take(copy, &progress, NULL), WEIR_OK);
        EXPECT_STATUS(train(net, &data, 3, 3), WEIR_OK);
        EXPECT_STATUS(weir_net_save(net, straight, &progress, NULL), WEIR_OK);
        /* what was taken stays, whatever the net has learnt since */
        file_path(resumed, "copied");
        EXPECT_STATUS(weir_net_copy_save(copy, resumed, NULL), WEIR_OK);
        compare_files(half, resumed);
        EXPECT_EQ_UINT(weir_net_copy_bytes(model, &options), tensor_bytes(half));
        file_path(resumed, "resumed");
    }
    weir_net_copy_destroy(copy);
    weir_net_destroy(net);
    options.stages = 3;
    options.pipe.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    net = trial_net(model, &options);
    if (net != NULL) {
        EXPECT_STATUS(weir_net_load(net, half, &found, NULL), WEIR_OK);
        EXPECT_EQ_BYTES(&found, &progress, sizeof found);
        EXPECT_STATUS(train(net, &data, 3, 3), WEIR_OK);
        EXPECT_STATUS(weir_net_save(net, resumed, &progress, NULL), WEIR_OK);
        if (!test_has_failed()) compare_files(straight, resumed);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_a_resumed_run_goes_on_bit_for_bit(void) {
    check_resumed(gpt_model(2, 5), (struct weir_optimizer)WEIR_ADAMW_INIT);
}

static void test_a_resumed_run_with_frozen_parameters_goes_on(void) {
    static const char *const patterns[] = {"wte.*", "*.bias", "h.0.*"};
    for (int i = 0; i < 6; i++) {
        struct weir_model *model = gpt_model(2, 5);
        struct weir_optimizer optimizer = WEIR_SGD_INIT;
        optimizer.momentum = 0.9;
        EXPECT_STATUS(weir_model_freeze(model, patterns[i / 2]), WEIR_OK);
        check_resumed(model, i % 2 == 0 ? optimizer : (struct weir_optimizer)WEIR_ADAMW_INIT);
    }
}

static void test_notes_are_written_and_left_alone_by_loading(void) {
    static const struct weir_note notes[] = {{"data", "0123"}, {"option.lr", "0.5"}};
    struct weir_progress progress = {3, 4, 11, notes, 2}, found = {.notes = notes, .note_count = 1};
    struct weir__io io = {.allocator = test_allocator()};
    struct weir_net_options options = trial_options(1, 5, 2);
    struct weir_model *model = gpt_model(1, 5);
    struct weir_net *net = trial_net(model, &options);
    struct weir__safetensors *file = NULL;
    char path[512];
    file_path(path, "notes");
    if (net != NULL) {
        EXPECT_STATUS(weir_net_save(net, path, &progress, NULL), WEIR_OK);
        EXPECT_STATUS(weir_net_load(net, path, &found, NULL), WEIR_OK);
        EXPECT_STATUS(weir__safetensors_open(&io, path, NULL, &file), WEIR_OK);
        EXPECT_EQ_STR(weir__safetensors_metadata(file, "data"), "0123");
        EXPECT_EQ_STR(weir__safetensors_metadata(file, "option.lr"), "0.5");
        EXPECT_EQ_STR(weir__safetensors_metadata(file, "mini_batch"), "4");
        EXPECT_EQ_STR(weir__safetensors_metadata(file, "heads"), "2");
        weir__safetensors_close(file);
        progress.notes = (const struct weir_note[]){{"seed", "1"}, {"x", "2"}};
        EXPECT_STATUS(weir_net_save(net, path, &progress, NULL), WEIR_ERR_ARGUMENT);
    }
    EXPECT(found.step == 3 && found.seed == 11);
    EXPECT(found.notes == notes && found.note_count == 1);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static void test_momentum_is_saved_too(void) {
    struct weir_model *model = gpt_model(1, 5);
    struct weir_net_options options = trial_options(1, 4, 1);
    options.optimizer = (struct weir_optimizer)WEIR_SGD_INIT;
    options.optimizer.momentum = 0.9;
    char path[512];
    struct weir_net *net = trial_net(model, &options);
    struct weir_progress progress = {0};
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors *file = NULL;
    if (net != NULL) {
        EXPECT_STATUS(weir_net_save(net, file_path(path, "sgd"), &progress, NULL), WEIR_OK);
        EXPECT_STATUS(weir__safetensors_open(&io, path, NULL, &file), WEIR_OK);
        EXPECT(weir__safetensors_find(file, "optimizer.wte.weight.momentum_buffer") != NULL);
        EXPECT_EQ_UINT(weir__safetensors_count(file), 2 * weir_net_parameter_count(net));
        EXPECT_EQ_STR(weir__safetensors_metadata(file, "step"), "0");
    }
    weir__safetensors_close(file);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static void test_weights_alone_can_be_taken_from_a_checkpoint_of_another_precision(void) {
    struct weir_model *model = gpt_model(1, 5);
    struct weir_net_options options = trial_options(1, 4, 1);
    options.dtype = WEIR_F32;
    char path[512];
    struct weir_net *single = trial_net(model, &options);
    options.dtype = WEIR_F64;
    struct weir_net *twice = trial_net(model, &options);
    struct weir_progress progress = {0};
    struct weir_parameter a, b;
    if (single != NULL && twice != NULL) {
        file_path(path, "f32");
        EXPECT_STATUS(weir_net_save(single, path, &progress, NULL), WEIR_OK);
        EXPECT_STATUS(weir_net_load(twice, path, NULL, NULL), WEIR_OK);
        for (uint32_t i = 0; i < weir_net_parameter_count(twice); i++) {
            EXPECT_STATUS(weir_net_parameter(single, i, &a), WEIR_OK);
            EXPECT_STATUS(weir_net_parameter(twice, i, &b), WEIR_OK);
            for (uint64_t k = 0; k < a.count; k++)
                EXPECT_NEAR(((double *)b.data)[k], ((float *)a.data)[k], 0);
        }
        EXPECT_STATUS(weir_net_save(twice, path, NULL, NULL), WEIR_OK);
        EXPECT_STATUS(weir_net_init(single, 99), WEIR_OK);
        EXPECT_STATUS(weir_net_load(single, path, NULL, NULL), WEIR_OK);
        EXPECT_STATUS(weir_net_parameter(single, 0, &a), WEIR_OK);
        EXPECT_STATUS(weir_net_parameter(twice, 0, &b), WEIR_OK);
        EXPECT_NEAR(((float *)a.data)[3], ((double *)b.data)[3], 1e-8);
    }
    weir_net_destroy(single);
    weir_net_destroy(twice);
    weir_model_destroy(model);
}

static void expect_fault(const struct weir_faults *faults, const char *part) {
    for (uint32_t i = 0; i < faults->kept; i++)
        if (strstr(faults->lines[i], part) != NULL) return;
    TEST_FAIL("no fault says '%s'", part);
}

static void check_no_place(const struct weir_error *error, int status) {
    EXPECT_STATUS(error->status, status);
    EXPECT_EQ_INT(error->stage, -1);
    EXPECT_EQ_INT(error->micro_batch, -1);
    EXPECT_EQ_STR(weir_phase_name(error->phase), "none");
}

/* Whatever the caller's struct held before. */
static void test_a_file_that_cannot_be_written_is_at_no_place_of_the_pipe(void) {
    struct weir_model *model = gpt_model(1, 5);
    struct weir_net_options options = trial_options(1, 4, 1);
    struct weir_net *net = trial_net(model, &options);
    struct weir_net_copy *copy = NULL;
    struct weir_progress progress = {1, 1, 1};
    struct weir_error first = {0}, second = {0};
    if (net != NULL && EXPECT_STATUS(weir_net_copy_new(net, &copy), WEIR_OK)) {
        EXPECT_STATUS(weir_net_save(net, "/none/w", NULL, &first), WEIR_ERR_IO);
        check_no_place(&first, WEIR_ERR_IO);
        EXPECT_STATUS(weir_net_copy_take(copy, &progress, &second), WEIR_OK);
        check_no_place(&second, WEIR_OK);
        second = (struct weir_error){0};
        EXPECT_STATUS(weir_net_copy_save(copy, "/none/w", &second), WEIR_ERR_IO);
        check_no_place(&second, WEIR_ERR_IO);
    }
    weir_net_copy_destroy(copy);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static void test_a_file_that_does_not_fit_is_refused_and_changes_nothing(void) {
    struct weir_model *small = gpt_model(1, 5), *large = gpt_model(2, 6);
    struct weir_net_options options = trial_options(1, 4, 1);
    struct weir_net *from = trial_net(small, &options), *to = trial_net(large, &options);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_parameter parameter;
    struct weir_progress progress = {0};
    char path[512], before[200];
    if (from != NULL && to != NULL) {
        file_path(path, "small");
        weir_net_parameter(to, 1, &parameter);
        memcpy(before, parameter.data, sizeof before / 4);
        EXPECT_STATUS(weir_net_save(from, path, &progress, NULL), WEIR_OK);
        weir_net_init(from, 3);
        EXPECT_STATUS(weir_net_load(to, path, &progress, &faults), WEIR_ERR_SHAPE);
        expect_fault(&faults, "tensor 'wte.weight' is F64 [5, 4], but the model has f64 [6, 4]");
        expect_fault(&faults, "tensor 'h.1.ln_1.weight' f64 [4] is missing");
        expect_fault(&faults, "tensor 'optimizer.h.1.ln_1.weight.exp_avg' f64 [4] is missing");
        EXPECT_EQ_BYTES(before, parameter.data, sizeof before / 4);
        weir_faults_clean_up(&faults);
        EXPECT_STATUS(weir_net_save(to, path, NULL, NULL), WEIR_OK);
        EXPECT_STATUS(weir_net_load(to, path, &progress, &faults), WEIR_ERR_SHAPE);
        EXPECT_FAULTS(&faults, "metadata 'step' is missing: give a training checkpoint",
                      "'mini_batch' is missing",
                      "'seed' is missing"); /* not each optimizer's tensor */
        weir_faults_clean_up(&faults);
        EXPECT_STATUS(weir_net_load(from, path, NULL, &faults), WEIR_ERR_SHAPE);
        expect_fault(&faults, "tensor 'h.1.ln_2.bias' F64 [4] is not the model's");
        weir_faults_clean_up(&faults);
        EXPECT_STATUS(weir_net_load(from, file_path(path, "none"), NULL, &faults), WEIR_ERR_IO);
        EXPECT_FAULTS(&faults, "none: No such file or directory: check the path");
    }
    weir_faults_clean_up(&faults);
    weir_net_destroy(from);
    weir_net_destroy(to);
    weir_model_destroy(small);
    weir_model_destroy(large);
}

static void test_every_failing_allocation_of_save_and_load_is_clean(void) {
    struct weir_model *model = gpt_model(1, 5);
    struct weir_net_options options = trial_options(2, 4, 1);
    struct weir_net *net = trial_net(model, &options);
    struct weir_progress progress = {1, 2, 3};
    char path[512];
    file_path(path, "file");
    if (net != NULL) EXPECT_STATUS(weir_net_save(net, path, &progress, NULL), WEIR_OK);
    size_t live = test_allocator_live_blocks();
    bool fired = net != NULL;
    for (uint64_t k = 1; fired && !test_has_failed(); k++) {
        struct weir_faults faults = WEIR_FAULTS_INIT;
        faults.allocator = test_allocator();
        test_allocator_fail_at(k, false);
        int status = weir_net_save(net, path, &progress, NULL);
        if (status == WEIR_OK) status = weir_net_load(net, path, &progress, &faults);
        struct weir_net_copy *copy = NULL;
        if (status == WEIR_OK) status = weir_net_copy_new(net, &copy);
        if (status == WEIR_OK) status = weir_net_copy_take(copy, &progress, NULL);
        if (status == WEIR_OK) status = weir_net_copy_save(copy, path, NULL);
        weir_net_copy_destroy(copy);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        EXPECT_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
        weir_faults_clean_up(&faults);
        EXPECT_EQ_UINT(test_allocator_live_blocks(), live);
    }
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/* ---- initial values ---- */

// PI-6
static void test_names_and_initial_values_do_not_depend_on_the_partition(void) {
    struct weir_model *model = gpt_model(2, 5);
    struct weir_net_options options = trial_options(1, 4, 1);
    struct weir_net *one = trial_net(model, &options);
    options.stages = 4;
    options.dtype = WEIR_F32;
    struct weir_net *four = trial_net(model, &options);
    if (one != NULL && four != NULL) {
        struct weir_parameter a, b;
        for (uint32_t i = 0; i < weir_net_parameter_count(one); i++) {
            EXPECT_STATUS(weir_net_parameter(one, i, &a), WEIR_OK);
            EXPECT_STATUS(weir_net_parameter(four, i, &b), WEIR_OK);
            EXPECT_EQ_STR(a.name, b.name);
            for (uint64_t k = 0; k < a.count; k++)
                EXPECT_NEAR((float)((double *)a.data)[k], ((float *)b.data)[k], 0);
        }
        EXPECT_STATUS(weir_net_parameter(one, 0, &a), WEIR_OK);
        double first = *(double *)a.data;
        weir_net_init(one, 8);
        EXPECT(*(double *)a.data != first);
    }
    weir_net_destroy(one);
    weir_net_destroy(four);
    weir_model_destroy(model);
}

/** Mean 0 and the given deviation, each within five standard errors; the largest below `bound`. */
static void check_moments(const struct weir_parameter *parameter, double deviation,
                          double fourth_moment, double bound) {
    const double *x = parameter->data;
    double n = (double)parameter->count, sum = 0, squares = 0, largest = 0;
    for (uint64_t i = 0; i < parameter->count; i++) {
        sum += x[i];
        squares += x[i] * x[i];
        largest = fmax(largest, fabs(x[i]));
    }
    double variance = deviation * deviation;
    EXPECT_NEAR(sum / n, 0, 5 * deviation / sqrt(n));
    EXPECT_NEAR(squares / n, variance, 5 * variance * sqrt((fourth_moment - 1) / n));
    EXPECT(largest < bound && largest > 0.9 * fmin(bound, 3 * deviation));
}

static void test_initial_values_have_pytorchs_distributions(void) {
    struct weir_tensor row = {.dtype = WEIR_I64};
    struct weir_model *model = trial_model(row, row, "cross_entropy");
    trial_add(model, "embedding",
              WEIR_ATTRS(WEIR_ATTR_INT("num_embeddings", 40), WEIR_ATTR_INT("embedding_dim", 100)));
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 60)));
    trial_add(model, "layer_norm", WEIR_NO_ATTRS);
    struct weir_net_options options = trial_options(1, 4, 1);
    struct weir_net *net = trial_net(model, &options);
    struct weir_parameter p;
    if (net != NULL) {
        EXPECT_STATUS(weir_net_parameter(net, 0, &p), WEIR_OK);
        check_moments(&p, 1, 3, 7);
        EXPECT_STATUS(weir_net_parameter(net, 1, &p), WEIR_OK);
        check_moments(&p, 0.1 / sqrt(3), 1.8, 0.1);
        EXPECT_STATUS(weir_net_parameter(net, 3, &p), WEIR_OK);
        EXPECT_NEAR(((double *)p.data)[59], 1, 0);
        EXPECT_STATUS(weir_net_parameter(net, 4, &p), WEIR_OK);
        EXPECT_NEAR(((double *)p.data)[59], 0, 0);
    }
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/** What a file of weights says of the heads: of two blocks with the given ones. */
static void check_heads(int64_t first, int64_t second, const char *wanted) {
    struct weir__io io = {.allocator = test_allocator()};
    struct weir_net_options options = trial_options(1, 5, 2);
    struct weir_tensor row = {.dtype = WEIR_F32, .rank = 2, .shape = {3, 4}};
    struct weir_model *model = trial_model(row, row, "mse");
    const int64_t heads[] = {first, second};
    struct weir__safetensors *file = NULL;
    char path[512];
    file_path(path, "heads");
    for (int i = 0; i < 2 && heads[i] > 0; i++)
        trial_add(model, "gpt_block",
                  WEIR_ATTRS(WEIR_ATTR_INT("width", 4), WEIR_ATTR_INT("heads", heads[i])));
    trial_add(model, "relu", WEIR_NO_ATTRS);
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL && EXPECT_STATUS(weir_net_save(net, path, NULL, NULL), WEIR_OK) &&
        EXPECT_STATUS(weir__safetensors_open(&io, path, NULL, &file), WEIR_OK))
        EXPECT_EQ_STR(weir__safetensors_metadata(file, "heads"), wanted);
    weir__safetensors_close(file);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

static void test_weights_say_how_many_heads_attend(void) {
    check_heads(2, 2, "2");
    check_heads(4, 2, NULL);
    check_heads(0, 0, NULL);
}

WEIR_TEST_SUITE(net_files, TEST(a_resumed_run_goes_on_bit_for_bit),
                TEST(a_resumed_run_with_frozen_parameters_goes_on),
                TEST(notes_are_written_and_left_alone_by_loading),
                TEST(weights_say_how_many_heads_attend), TEST(momentum_is_saved_too),
                TEST(weights_alone_can_be_taken_from_a_checkpoint_of_another_precision),
                TEST(a_file_that_cannot_be_written_is_at_no_place_of_the_pipe),
                TEST(a_file_that_does_not_fit_is_refused_and_changes_nothing),
                TEST(every_failing_allocation_of_save_and_load_is_clean),
                TEST(names_and_initial_values_do_not_depend_on_the_partition),
                TEST(initial_values_have_pytorchs_distributions))
