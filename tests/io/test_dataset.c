/* SPDX-License-Identifier: MIT */
/*
 * Goal: paths become the kinds and pairs that dataset.h says and fit the model, or are refused with
 * what was found and what was expected. Method: small files of every kind, every message provoked.
 */
#include "io/data_files.h"
#include "io/dataset_place.h"
#include "harness.h"
#include "io/io_faults.h"

#include <stdio.h>

static void refuse(struct dataset_place *place, const char *names, const char *eval_names,
                   int status, const char *text) {
    EXPECT_STATUS(dataset_open(place, names, eval_names), status);
    dataset_check_fault(place, text);
    EXPECT(place->dataset == NULL);
    weir_faults_clean_up(&place->faults);
}

/* ---- kinds ---- */

static void test_names_and_first_bytes_say_the_kind(void) {
    static const struct {
        const char *names;
        enum weir__data_kind kind;
    } cases[] = {
        {"text.txt", WEIR__DATA_TEXT},
        {"sources", WEIR__DATA_TEXT},
        {"text.txt sources", WEIR__DATA_TEXT},
        {"a.bin", WEIR__DATA_TOKENS},
        {"shards", WEIR__DATA_TOKENS},
        {"shards a.bin", WEIR__DATA_TOKENS},
        {"tokens.dat", WEIR__DATA_TOKENS},
        {"x.npy y.npy", WEIR__DATA_ARRAYS},
        {"array.dat y.npy", WEIR__DATA_ARRAYS},
        {"mnist", WEIR__DATA_ARRAYS},
        {"mnist/train-images.idx3-ubyte mnist/train-labels-idx1-ubyte", WEIR__DATA_ARRAYS}};
    struct dataset_place place, inner;
    char path[512];
    dataset_begin(&place);
    inner = place;
    io_make_file(place.directory, "text.txt", "text", 4, path);
    data_make_folder(place.directory, "sources", path);
    io_make_file(path, "main.c", "int x;", 6, path);
    data_make_folder(place.directory, "sources/deeper", path);
    data_make_tokens(path, "deep.bin", 5, 0, 1);
    data_make_tokens(place.directory, "a.bin", 5, 0, 1);
    data_make_tokens(place.directory, "tokens.dat", 5, 0, 1);
    data_make_folder(place.directory, "shards", path);
    data_make_tokens(path, "b.bin", 5, 0, 1);
    io_make_file(path, "README.md", "about", 5, path);
    data_make_npy(place.directory, "x.npy", "|u1", "2,", "\1\2", 2);
    data_make_npy(place.directory, "y.npy", "|u1", "2,", "\1\2", 2);
    data_make_npy(place.directory, "array.dat", "|u1", "2,", "\1\2", 2);
    data_make_folder(place.directory, "mnist", path);
    inner.directory = path;
    dataset_make_images(&inner, "train-images.idx3-ubyte", "train-labels-idx1-ubyte", 20);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (dataset_open(&place, cases[i].names, ""))
            TEST_FAIL("%s: %s", cases[i].names, place.faults.lines[0]);
        CHECK_HELPERS();
        EXPECT_EQ_INT(weir__dataset_kind(place.dataset), cases[i].kind);
        dataset_end(&place);
    }
}

static void test_what_is_given_is_text_where_that_is_asked_for(void) {
    struct dataset_place place;
    char path[512];
    dataset_begin(&place);
    data_make_tokens(place.directory, "a.bin", 100, 0, 1);
    snprintf(path, sizeof(path), "%s/a.bin", place.directory);
    struct weir__dataset_options options = {
        .paths = (const char *[]){path}, .path_count = 1, .text = true};
    CHECK_OK(weir__dataset_open(&place.io, &options, &place.faults, &place.dataset));
    EXPECT_EQ_INT(weir__dataset_kind(place.dataset), WEIR__DATA_TEXT);
    dataset_end(&place);
}

static void test_kinds_are_not_mixed(void) {
    struct dataset_place place;
    char path[512];
    dataset_begin(&place);
    io_make_file(place.directory, "text.txt", "text", 4, path);
    data_make_folder(place.directory, "both", path);
    data_make_tokens(path, "a.bin", 5, 0, 1);
    data_make_npy(path, "x.npy", "|u1", "2,", "\1\2", 2);
    data_make_tokens(place.directory, "a.bin", 5, 0, 1);
    refuse(&place, "text.txt a.bin", "", WEIR_ERR_CONFIG, "text.txt is text, but ");
    refuse(&place, "text.txt a.bin", "", WEIR_ERR_CONFIG, "a.bin is tokens: give paths of one");
    refuse(&place, "both", "", WEIR_ERR_CONFIG, "both arrays (.npy, IDX) and tokens (.bin)");
    refuse(&place, "a.bin", "text.txt", WEIR_ERR_CONFIG,
           "the data to train on are tokens, but the held-out data are text");
    refuse(&place, "none", "", WEIR_ERR_IO, "No such file or directory");
    refuse(&place, "a.bin", "none", WEIR_ERR_IO, "No such file or directory");
}

/* ---- pairs ---- */

static void expect_pair(struct dataset_place *place, const char *names, const char *eval_names,
                        const char *text, uint64_t samples, uint64_t held_out) {
    char found[256];
    if (dataset_open(place, names, eval_names)) TEST_FAIL("%s: %s", names, place->faults.lines[0]);
    CHECK_HELPERS();
    EXPECT_CONTAINS(weir__dataset_text(place->dataset, found, sizeof(found)), text);
    EXPECT_STATUS(dataset_bind(place, dataset_image_model(10)), WEIR_OK);
    EXPECT_EQ_UINT(dataset_facts(place)->units, samples);
    EXPECT_EQ_UINT(dataset_facts(place)->held_out_rows, held_out);
    dataset_end(place);
}

static void test_pairs_are_found_by_order_or_by_names(void) {
    struct dataset_place place, inner;
    char path[512];
    dataset_begin(&place);
    inner = place;
    dataset_make_images(&place, "a.npy", "b.npy", 50); /* IDX inside: the first bytes count */
    expect_pair(&place, "a.npy b.npy", "", "a.npy u8 [50, 2, 3] and b.npy u8 [50]", 45, 5);
    static const char *const names[][2] = {{"Train-Images-idx3-ubyte", "train-labels-idx1-ubyte"},
                                           {"x.npy", "y.npy"},
                                           {"X_train.npy", "y_train.npy"},
                                           {"my_input.npy", "my_target.npy"},
                                           {"images.idx", "masks.idx"},
                                           {"interval-images.npy", "tested-labels.npy"}};
    inner.directory = path;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char folder[16], file[300];
        snprintf(folder, sizeof(folder), "f%d", (int)i);
        data_make_folder(place.directory, folder, path);
        dataset_make_images(&inner, names[i][0], names[i][1], 20);
        io_make_file(path, "notes.txt", "input", 5, file);
        expect_pair(&place, folder, "", names[i][0], 18, 2);
        CHECK_HELPERS();
    }
}

static void test_held_out_pairs_are_found_by_names_or_given(void) {
    struct dataset_place place, inner;
    char path[512];
    dataset_begin(&place);
    inner = place;
    inner.directory = path;
    data_make_folder(place.directory, "m", path);
    dataset_make_images(&inner, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 40);
    dataset_make_images(&inner, "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 7);
    dataset_make_images(&place, "x_val.npy", "y_val.npy", 9);
    dataset_make_images(&place, "x.npy", "y.npy", 30);
    expect_pair(&place, "m", "", "train-images-idx3-ubyte u8 [40, 2, 3]", 40, 7);
    expect_pair(&place, ".", "", "x.npy u8 [30, 2, 3] and y.npy", 30, 9);
    expect_pair(&place, "x.npy x_val.npy y.npy y_val.npy", "", "x.npy u8 [30, 2, 3]", 30, 9);
    expect_pair(&place, "m", "x_val.npy y_val.npy", "train-images-idx3", 40, 9);
    expect_pair(&place, "x.npy y.npy", "m", "x.npy u8 [30, 2, 3]", 30, 7);
    expect_pair(&place, "x.npy y.npy", "x.npy y.npy", "x.npy u8 [30, 2, 3]", 30, 30);
}

static void test_unclear_pairs_are_refused_with_what_was_found(void) {
    struct dataset_place place;
    char path[512];
    dataset_begin(&place);
    data_make_folder(place.directory, "empty", path);
    dataset_make_images(&place, "images.npy", "labels.npy", 20);
    refuse(&place, "images.npy", "", WEIR_ERR_CONFIG,
           "found images.npy: the training part has 1 file of inputs and 0 of targets by their "
           "names: name one of inputs (image, input or x in its name) and one of targets (label, "
           "mask, target or y), or give two files, inputs first");
    dataset_make_images(&place, "more-images.npy", "a.npy", 20);
    refuse(&place, ".", "", WEIR_ERR_CONFIG,
           "found a.npy, images.npy, labels.npy, more-images.npy: the training part has 2 files");
    dataset_make_images(&place, "test-images.npy", "input_labels.npy", 20);
    refuse(&place, "images.npy labels.npy test-images.npy", "", WEIR_ERR_CONFIG,
           "the held-out part has 1 file of inputs and 0 of targets");
    refuse(&place, "input_labels.npy a.npy images.npy", "", WEIR_ERR_CONFIG,
           "has 1 file of inputs and 0 of targets");
    refuse(&place, "images.npy labels.npy a.npy", "", WEIR_ERR_CONFIG,
           "found images.npy, labels.npy, a.npy: a.npy is neither by its name: name one of inputs");
    refuse(&place, "images.npy labels.npy", "test-images.npy", WEIR_ERR_CONFIG,
           "found test-images.npy: the held-out part has 1 file");
    for (int i = 0; i < 30; i++) {
        char name[32];
        snprintf(name, sizeof(name), "images-%d.npy", i);
        io_make_file(place.directory, name, "", 0, path);
    }
    refuse(&place, ".", "", WEIR_ERR_CONFIG, ", … (36 files): the training part has 32 files");
}

static void test_pairs_that_do_not_belong_together_are_refused(void) {
    struct dataset_place place;
    float number = 1;
    dataset_begin(&place);
    dataset_make_images(&place, "x.npy", "y.npy", 20);
    data_make_npy(place.directory, "19.npy", "|u1", "19,", "0123456789012345678", 19);
    refuse(&place, "x.npy 19.npy", "", WEIR_ERR_CONFIG, "19.npy holds u8 [19]: the first dimensio");
    data_make_npy(place.directory, "one.npy", "<f4", "", &number, 4);
    refuse(&place, "x.npy one.npy", "", WEIR_ERR_CONFIG, "one.npy: f32 [] has a single number");
    data_make_npy(place.directory, "none.npy", "<f4", "20, 0", "", 0);
    refuse(&place, "none.npy y.npy", "", WEIR_ERR_CONFIG, "f32 [20, 0] has no numbers");
    data_make_npy(place.directory, "deep.npy", "<f4", "1,1,1,1,1,1,1,1", &number, 4);
    refuse(&place, "deep.npy y.npy", "", WEIR_ERR_CONFIG, "has too many dimensions");
    data_make_npy(place.directory, "1x.npy", "<f4", "1, 1", &number, 4);
    refuse(&place, "1x.npy 1x.npy", "", WEIR_ERR_CONFIG, "holds one sample");
    refuse(&place, "x.npy none", "", WEIR_ERR_IO, "No such file");
    data_make_npy(place.directory, "bad.npy", "<c8", "1,", &number, 4);
    refuse(&place, "bad.npy bad.npy", "", WEIR_ERR_UNSUPPORTED, "dtype '<c8' is not read");
    data_make_npy(place.directory, "worse.npy", "<c16", "1,", &number, 4);
    EXPECT_STATUS(dataset_open(&place, "bad.npy worse.npy", ""), WEIR_ERR_UNSUPPORTED);
    EXPECT_FAULTS(&place.faults, "bad.npy: dtype '<c8'", "worse.npy: dtype '<c16'");
    dataset_end(&place);
}

/* ---- arrays and models ---- */

static void expect_sample(struct dataset_place *place, const char *names, const char *wanted) {
    struct weir_tensor input, target;
    char texts[2][64], both[136];
    if (!EXPECT_STATUS(dataset_open(place, names, ""), WEIR_OK)) return;
    weir__dataset_sample(place->dataset, &input, &target);
    snprintf(both, sizeof(both), "%s to %s", weir__tensor_text(&input, texts[0], sizeof(texts[0])),
             weir__tensor_text(&target, texts[1], sizeof(texts[1])));
    EXPECT_EQ_STR(both, wanted);
    dataset_end(place);
}

static void test_shape_of_the_model_is_taken_from_the_data(void) {
    static const float reals[4] = {0};
    struct dataset_place place;
    dataset_begin(&place);
    dataset_make_images(&place, "x.npy", "y.npy", 20);
    data_make_npy(place.directory, "rgb.npy", "|u1", "2, 3, 2, 2", "abcdefghijklmnopqrstuvwx", 24);
    data_make_npy(place.directory, "masks.npy", "|b1", "2, 2, 2", "abcdefgh", 8);
    data_make_npy(place.directory, "z.npy", "|u1", "2,", "ab", 2);
    data_make_npy(place.directory, "f.npy", "<f4", "2,", reals, 8);
    data_make_npy(place.directory, "i.npy", "<i2", "2, 1, 2", reals, 8);
    expect_sample(&place, "x.npy y.npy", "f32 [1, 2, 3] to i64 []");
    expect_sample(&place, "rgb.npy z.npy", "f32 [3, 2, 2] to i64 []");
    expect_sample(&place, "rgb.npy masks.npy", "f32 [3, 2, 2] to f32 [1, 2, 2]");
    expect_sample(&place, "i.npy f.npy", "i64 [1, 1, 2] to f32 []");
}

static void refuse_model(struct dataset_place *place, const char *names,
                         struct weir__dataset_model model, int status, const char *text) {
    if (!EXPECT_STATUS(dataset_open(place, names, ""), WEIR_OK)) return;
    EXPECT_STATUS(dataset_bind(place, model), status);
    dataset_check_fault(place, text);
    dataset_end(place);
}

static void test_data_that_do_not_fit_the_model_are_refused(void) {
    static const float reals[12] = {0.5f, 2};
    struct dataset_place place;
    char path[512];
    dataset_begin(&place);
    dataset_make_images(&place, "x.npy", "y.npy", 20);
    io_make_file(place.directory, "text.txt", "text", 4, path);
    data_make_npy(place.directory, "real.npy", "<f4", "2, 2, 3", reals, 48);
    data_make_tokens(place.directory, "a.bin", 50, 0, 1);
    struct weir__dataset_model model = dataset_image_model(10);
    model.input.shape[1] = 28;
    refuse_model(&place, "x.npy y.npy", model, WEIR_ERR_SHAPE,
                 "x.npy: its samples are u8 [2, 3], but the model's input is f32 [1, 28, 3]");
    refuse_model(&place, "x.npy x.npy", dataset_image_model(10), WEIR_ERR_SHAPE,
                 "x.npy: its samples are u8 [2, 3], but the model's target is i64 []");
    refuse_model(&place, "real.npy real.npy", dataset_image_model(10), WEIR_ERR_SHAPE,
                 "real.npy holds f32, but the model's target is integers");
    refuse_model(&place, "x.npy y.npy", dataset_image_model(9), WEIR_ERR_CONFIG,
                 "y.npy: sample 9 has the label 9, but the model's labels are 0 to 8");
    refuse_model(&place, "real.npy real.npy", dataset_mask_model("bce_with_logits"),
                 WEIR_ERR_CONFIG, "real.npy: sample 0 has the target 2, but the loss takes 0 to 1");
    refuse_model(&place, "text.txt", dataset_image_model(10), WEIR_ERR_SHAPE,
                 "the data are text, bytes in rows, but the model takes the input f32 [1, 2, 3] "
                 "and the target i64 []: give arrays");
    refuse_model(&place, "text.txt", dataset_token_model(2, 255), WEIR_ERR_SHAPE,
                 "the data are text, read as bytes, but the model's vocabulary has 255");
    refuse_model(&place, "text.txt", dataset_token_model(2, 256), WEIR_ERR_CONFIG,
                 "too few for a context");
    refuse_model(&place, "a.bin", dataset_image_model(10), WEIR_ERR_SHAPE,
                 "the data are tokens in rows");
    refuse_model(&place, "a.bin", dataset_token_model(8, 49), WEIR_ERR_CONFIG,
                 "a.bin: token 49 is 49, but the model's vocabulary has 49: give a --vocab above");
    refuse_model(&place, "a.bin", dataset_token_model(50, 256), WEIR_ERR_CONFIG,
                 "a.bin: 50 tokens, but a row of context 50 needs 51");
    refuse_model(&place, "a.bin", dataset_token_model(30, 256), WEIR_ERR_CONFIG,
                 "a.bin holds one row of the context, but one is to train on and one held out");
    model = dataset_image_model(10);
    model.input.dtype = WEIR_U8;
    refuse_model(&place, "x.npy y.npy", model, WEIR_ERR_SHAPE, "the model's input is u8, but arr");
}

WEIR_TEST_SUITE(dataset, TEST(names_and_first_bytes_say_the_kind),
                TEST(what_is_given_is_text_where_that_is_asked_for), TEST(kinds_are_not_mixed),
                TEST(pairs_are_found_by_order_or_by_names),
                TEST(held_out_pairs_are_found_by_names_or_given),
                TEST(unclear_pairs_are_refused_with_what_was_found),
                TEST(pairs_that_do_not_belong_together_are_refused),
                TEST(shape_of_the_model_is_taken_from_the_data),
                TEST(data_that_do_not_fit_the_model_are_refused))
