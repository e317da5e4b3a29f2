/* SPDX-License-Identifier: MIT */
/*
 * Goal: rows are the numbers that the files hold, converted and ordered as dataset.h says, whatever
 * was read before; files and systems that fail are named. Method: files whose numbers tell where
 * they came from; whole passes counted; faults in every system call and allocation.
 */
#include "io/data_files.h"
#include "io/dataset_place.h"
#include "harness.h"
#include "data/prefetch.h"
#include "io/io_faults.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- conversion ---- */

static void read_first(struct dataset_place *place, const char *names,
                       struct weir__dataset_model model, uint32_t rows, void *input, void *target) {
    if (!EXPECT_STATUS(dataset_open(place, names, "images masks"), WEIR_OK)) return;
    EXPECT_STATUS(dataset_bind(place, model), WEIR_OK);
    EXPECT_EQ_UINT(dataset_facts(place)->held_out_rows, rows);
    EXPECT_STATUS(weir__dataset_read(place->dataset, &place->io, 1, 0, rows, input, target),
                  WEIR_OK);
    dataset_end(place);
}

static void test_bytes_become_shares_of_one(void) {
    struct dataset_place place;
    struct weir__dataset_model model = dataset_mask_model("bce_with_logits");
    uint8_t pixels[6] = {0, 1, 2, 51, 254, 255}, masks[6] = {0, 255, 0, 0, 255, 255};
    uint8_t flags[6] = {0, 1, 0, 0, 1, 1};
    float input[6], target[6];
    double wide[6];
    dataset_begin(&place);
    data_make_npy(place.directory, "images", "|u1", "1, 2, 3", pixels, 6);
    data_make_npy(place.directory, "masks", "|u1", "1, 1, 2, 3", masks, 6);
    data_make_npy(place.directory, "flags", "|u1", "1, 2, 3", flags, 6);
    data_make_npy(place.directory, "bools", "|b1", "1, 2, 3", flags, 6);
    read_first(&place, "images masks", model, 1, input, target);
    for (int i = 0; i < 6; i++) EXPECT(input[i] == (float)pixels[i] / 255.0f);
    for (int i = 0; i < 6; i++) EXPECT(target[i] == (float)flags[i]);
    read_first(&place, "bools bools", model, 1, input, target);
    for (int i = 0; i < 6; i++) EXPECT(input[i] == (float)flags[i] && target[i] == input[i]);
    model.input.dtype = WEIR_F64;
    read_first(&place, "images masks", model, 1, wide, target);
    for (int i = 0; i < 6; i++) EXPECT(wide[i] == pixels[i] / 255.0);
    model.input.dtype = WEIR_F32;
    /* the held-out masks have 255, so 1 is a 255th in both parts */
    read_first(&place, "images flags", model, 1, input, target);
    for (int i = 0; i < 6; i++) EXPECT(target[i] == (float)flags[i] / 255.0f);
    data_make_npy(place.directory, "masks", "|u1", "1, 2, 3", flags, 6);
    read_first(&place, "images flags", model, 1, input, target);
    for (int i = 0; i < 6; i++) EXPECT(target[i] == (float)flags[i]);
}

static void test_other_numbers_stay_as_they_are(void) {
    struct dataset_place place;
    static const float reals[6] = {-1.5f, 0, 1, 255, 3e30f, 1e-30f};
    static const int16_t shorts[6] = {-300, 0, 1, 255, 256, 32767};
    float input[6], target[6];
    dataset_begin(&place);
    data_make_npy(place.directory, "images", "<f4", "1, 1, 2, 3", reals, 24);
    data_make_npy(place.directory, "masks", "<i2", "1, 2, 3", shorts, 12);
    read_first(&place, "images masks", dataset_mask_model("mse"), 1, input, target);
    EXPECT_EQ_BYTES(input, reals, 24);
    for (int i = 0; i < 6; i++) EXPECT(target[i] == (float)shorts[i]);
}

static void test_integers_stay_integers(void) {
    struct dataset_place place;
    static const int64_t wide[6] = {INT64_MIN, -1, 0, 1, 1000000, INT64_MAX};
    static const int32_t labels[2] = {3, -100};
    int64_t input[6], target[2];
    struct weir__dataset_model model = {dataset_tensor(WEIR_I64, 1, 3, 0, 0),
                                        dataset_tensor(WEIR_I64, 0, 0, 0, 0), "cross_entropy", 4,
                                        -100};
    dataset_begin(&place);
    data_make_npy(place.directory, "images", "<i8", "2, 3", wide, 48);
    data_make_npy(place.directory, "masks", "<i4", "2, 1", labels, 8);
    CHECK_OK(dataset_open(&place, "images masks", "images masks"));
    EXPECT_STATUS(dataset_bind(&place, model), WEIR_OK);
    EXPECT(dataset_facts(&place)->ignores);
    for (uint64_t i = 0; i < 2; i++) {
        EXPECT_STATUS(weir__dataset_read_held_out(place.dataset, &place.io, i, 1, input, target),
                      WEIR_OK);
        bool first = target[0] == 3;
        EXPECT(first || target[0] == -100);
        EXPECT_EQ_BYTES(input, wide + (first ? 0 : 3), 24);
    }
    dataset_end(&place);
}

/* ---- order ---- */

static int sample_in(const float *input, uint32_t row) {
    return (int)lrintf(input[6 * row] * 255);
}

static void test_every_pass_visits_every_sample_once(void) {
    enum { SAMPLES = 45, ROWS = 7, BATCHES = 4 * 45 / 7 + 1 };
    struct dataset_place place;
    float input[ROWS * 6];
    int64_t target[ROWS], order[4][SAMPLES];
    uint32_t seen[5][SAMPLES] = {{0}};
    dataset_begin(&place);
    dataset_make_images(&place, "x.npy", "y.npy", 50);
    CHECK_OK(dataset_open(&place, "x.npy y.npy", ""));
    EXPECT_STATUS(dataset_bind(&place, dataset_image_model(10)), WEIR_OK);
    EXPECT(dataset_facts(&place)->pass_rows == SAMPLES);
    for (uint32_t b = 0; b < BATCHES; b++) {
        EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 3, b, ROWS, input, target),
                      WEIR_OK);
        for (uint32_t r = 0; r < ROWS; r++) {
            uint32_t number = b * ROWS + r, pass = number / SAMPLES;
            int sample = sample_in(input, r);
            EXPECT(sample >= 0 && sample < SAMPLES && target[r] == sample % 10);
            seen[pass][sample]++;
            if (pass < 4) order[pass][number % SAMPLES] = sample;
        }
    }
    for (int pass = 0; pass < 4; pass++)
        for (int i = 0; i < SAMPLES; i++) EXPECT_EQ_UINT(seen[pass][i], 1);
    EXPECT(memcmp(order[0], order[1], sizeof(order[0])) != 0);
    EXPECT(memcmp(order[1], order[2], sizeof(order[0])) != 0);
    dataset_end(&place);
}

static void test_rows_depend_on_seed_and_batch_alone(void) {
    struct dataset_place place;
    float input[4][5 * 6];
    int64_t target[5], alone[5];
    dataset_begin(&place);
    dataset_make_images(&place, "x.npy", "y.npy", 200);
    for (int i = 0; i < 2; i++) { /* another run begins in the middle */
        CHECK_OK(dataset_open(&place, "x.npy y.npy", ""));
        EXPECT_STATUS(dataset_bind(&place, dataset_image_model(10)), WEIR_OK);
        for (uint64_t b = 0; b < 9 && i == 0; b++)
            weir__dataset_read(place.dataset, &place.io, 3, b, 5, input[0], target);
        EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 3, 9, 5, input[i], target),
                      WEIR_OK);
        EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 3, 9, 5, NULL, alone), WEIR_OK);
        EXPECT_EQ_BYTES(alone, target, sizeof(target));
        weir__dataset_read(place.dataset, &place.io, 4, 9, 5, input[2], target);
        weir__dataset_read(place.dataset, &place.io, 3, 10, 5, input[3], target);
        dataset_end(&place);
    }
    EXPECT_EQ_BYTES(input[0], input[1], sizeof(input[0]));
    EXPECT(memcmp(input[0], input[2], sizeof(input[0])) != 0);
    EXPECT(memcmp(input[0], input[3], sizeof(input[0])) != 0);
}

/* ---- reading ahead ---- */

static int fill(void *context, uint64_t number, void *input, void *target,
                struct weir_error *error) {
    struct dataset_place *place = context;
    struct weir__io io = {.error = error};
    return weir__dataset_read(place->dataset, &io, 3, number, 5, input, target);
}

/* While another thread evaluates, as training does. */
static void test_reading_ahead_gives_the_same_rows(void) {
    struct dataset_place place;
    float input[5 * 6], held_out[6];
    int64_t target[5], label[1];
    struct weir__prefetch *prefetch;
    struct weir__batch batch;
    dataset_begin(&place);
    place.io.calls = NULL; /* the system's: faults are for one thread */
    dataset_make_images(&place, "x.npy", "y.npy", 50);
    CHECK_OK(dataset_open(&place, "x.npy y.npy", ""));
    EXPECT_STATUS(dataset_bind(&place, dataset_image_model(10)), WEIR_OK);
    struct weir__prefetch_options options = {test_allocator(), fill,          &place, 7, 3,
                                             sizeof(input),    sizeof(target)};
    CHECK_OK(weir__prefetch_new(&options, NULL, &prefetch));
    for (uint64_t number = 7; number < 60 && !test_has_failed(); number++) {
        EXPECT_STATUS(weir__prefetch_next(prefetch, &batch, NULL), WEIR_OK);
        EXPECT_STATUS(
            weir__dataset_read_held_out(place.dataset, &place.io, number % 5, 1, held_out, label),
            WEIR_OK);
        EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 3, number, 5, input, target),
                      WEIR_OK);
        EXPECT_EQ_UINT(batch.number, number);
        EXPECT_EQ_BYTES(batch.input, input, sizeof(input));
        EXPECT_EQ_BYTES(batch.target, target, sizeof(target));
    }
    weir__prefetch_destroy(prefetch);
    dataset_end(&place);
}

static void test_reader_s_failure_arrives_with_the_file_s_name(void) {
    struct dataset_place place;
    struct weir__prefetch *prefetch;
    struct weir__batch batch;
    struct weir_error error;
    char path[512];
    dataset_begin(&place);
    dataset_make_images(&place, "x.npy", "y.npy", 50);
    CHECK_OK(dataset_open(&place, "x.npy y.npy", ""));
    EXPECT_STATUS(dataset_bind(&place, dataset_image_model(10)), WEIR_OK);
    snprintf(path, sizeof(path), "%s/x.npy", place.directory);
    EXPECT_EQ_INT(truncate(path, 20), 0);
    struct weir__prefetch_options options = {test_allocator(), fill, &place, 0, 2,
                                             5 * 6 * 4,        5 * 8};
    CHECK_OK(weir__prefetch_new(&options, NULL, &prefetch));
    EXPECT_STATUS(weir__prefetch_next(prefetch, &batch, &error), WEIR_ERR_IO);
    EXPECT_CONTAINS(error.message, "/x.npy: it was cut: byte ");
    weir__prefetch_destroy(prefetch);
    dataset_end(&place);
}

static void test_last_tenth_is_held_out_and_visited_once(void) {
    struct dataset_place place;
    float input[20 * 6];
    int64_t target[20];
    bool seen[20] = {false}, moved = false;
    dataset_begin(&place);
    dataset_make_images(&place, "x.npy", "y.npy", 200);
    CHECK_OK(dataset_open(&place, "x.npy y.npy", ""));
    EXPECT_STATUS(dataset_bind(&place, dataset_image_model(10)), WEIR_OK);
    EXPECT_EQ_UINT(dataset_facts(&place)->held_out_rows, 20);
    EXPECT_STATUS(weir__dataset_read_held_out(place.dataset, &place.io, 0, 15, input, target),
                  WEIR_OK);
    EXPECT_STATUS(
        weir__dataset_read_held_out(place.dataset, &place.io, 15, 5, input + 15 * 6, target + 15),
        WEIR_OK);
    for (uint32_t i = 0; i < 20; i++) {
        int sample = sample_in(input, i) - 180;
        EXPECT(sample >= 0 && sample < 20 && !seen[sample] && target[i] == sample % 10);
        if (sample >= 0 && sample < 20) seen[sample] = true;
        moved = moved || sample != (int)i;
    }
    EXPECT(moved);
    dataset_end(&place);
}

/* ---- tokens ---- */

static void test_windows_cover_the_tokens_of_each_file(void) {
    struct dataset_place place;
    int64_t input[8 * 10], target[8 * 10];
    bool seen[100] = {false};
    dataset_begin(&place);
    /* windows of 8: 5 of 43 tokens, none of 8, 3 of 25; in all 8 */
    data_make_tokens(place.directory, "1.bin", 43, 1000, 1);
    data_make_tokens(place.directory, "2.bin", 8, 5000, 1);
    data_make_tokens(place.directory, "3.bin", 25, 2000, 1);
    data_make_tokens(place.directory, "my_val_1.bin", 17, 3000, 1);
    CHECK_OK(dataset_open(&place, ".", ""));
    EXPECT_STATUS(dataset_bind(&place, dataset_token_model(8, 60000)), WEIR_OK);
    EXPECT_EQ_UINT(dataset_facts(&place)->file_count, 3);
    EXPECT_EQ_UINT(dataset_facts(&place)->units, 76);
    EXPECT(dataset_facts(&place)->pass_rows == 8);
    EXPECT_EQ_UINT(dataset_facts(&place)->held_out_rows, 2);
    EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 3, 1, 8, input, target), WEIR_OK);
    for (int r = 0; r < 8; r++) {
        int64_t first = input[8 * r];
        for (int i = 0; i < 8; i++)
            EXPECT(input[8 * r + i] == first + i && target[8 * r + i] == first + i + 1);
        int64_t place_in = first < 2000 ? first - 1000 : first - 2000 + 40;
        EXPECT(place_in % 8 == 0 && place_in < 64 && !seen[place_in]);
        if (place_in >= 0 && place_in < 100) seen[place_in] = true;
    }
    EXPECT_STATUS(weir__dataset_read_held_out(place.dataset, &place.io, 0, 2, input, target),
                  WEIR_OK);
    EXPECT(input[0] + input[8] == 3000 + 3008 && target[7] == input[0] + 8);
    dataset_end(&place);
}

static void test_tokens_without_a_held_out_file_hold_out_a_tenth(void) {
    struct dataset_place place;
    int64_t input[10], target[10];
    dataset_begin(&place);
    data_make_tokens(place.directory, "a_val.bin", 301, 0, 1);
    CHECK_OK(dataset_open(&place, "a_val.bin", ""));
    EXPECT_STATUS(dataset_bind(&place, dataset_token_model(10, 301)), WEIR_OK);
    EXPECT(dataset_facts(&place)->pass_rows == 27);
    EXPECT_EQ_UINT(dataset_facts(&place)->held_out_rows, 3);
    for (uint64_t i = 0; i < 3; i++) {
        EXPECT_STATUS(weir__dataset_read_held_out(place.dataset, &place.io, i, 1, input, target),
                      WEIR_OK);
        EXPECT(input[0] >= 270);
    }
    for (uint64_t b = 0; b < 54; b++) {
        EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 1, b, 1, input, target),
                      WEIR_OK);
        EXPECT(input[0] < 270);
    }
    dataset_end(&place);
    data_make_tokens(place.directory, "b.bin", 41, 7, 1);
    CHECK_OK(dataset_open(&place, "a_val.bin", "b.bin"));
    EXPECT_STATUS(dataset_bind(&place, dataset_token_model(10, 301)), WEIR_OK);
    EXPECT(dataset_facts(&place)->pass_rows == 30);
    EXPECT_EQ_UINT(dataset_facts(&place)->held_out_rows, 4);
    dataset_end(&place);
}

/* ---- text ---- */

static void test_text_is_the_corpus(void) {
    struct dataset_place place;
    char text[5000], path[512];
    int64_t input[16], target[16];
    double loss = 0;
    for (size_t i = 0; i < sizeof(text); i++) text[i] = (char)('a' + i % 26);
    dataset_begin(&place);
    io_make_file(place.directory, "a.txt", text, sizeof(text), path);
    io_make_file(place.directory, "b.txt", text + 13, 200, path);
    CHECK_OK(dataset_open(&place, "a.txt", ""));
    EXPECT_STATUS(dataset_bind(&place, dataset_token_model(16, 256)), WEIR_OK);
    EXPECT_EQ_UINT(dataset_facts(&place)->units, 5000);
    EXPECT(dataset_facts(&place)->pass_rows == 4500.0 / 16);
    EXPECT_EQ_UINT(dataset_facts(&place)->held_out_rows, 31);
    EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 3, 1, 1, NULL, target), WEIR_OK);
    EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 3, 1, 1, input, target), WEIR_OK);
    for (int i = 0; i < 15; i++) EXPECT(input[i + 1] == target[i]);
    EXPECT_STATUS(weir__dataset_bigram(place.dataset, 0, &loss), WEIR_OK);
    EXPECT(loss > 0 && loss < 0.3);
    dataset_end(&place);
    CHECK_OK(dataset_open(&place, "a.txt", "b.txt"));
    EXPECT_STATUS(dataset_bind(&place, dataset_token_model(16, 256)), WEIR_OK);
    EXPECT_EQ_UINT(dataset_facts(&place)->held_out_rows, 12);
    EXPECT_STATUS(weir__dataset_read_held_out(place.dataset, &place.io, 0, 1, input, target),
                  WEIR_OK);
    EXPECT_EQ_INT(input[0], 'a' + 13);
    EXPECT_STATUS(weir__dataset_bigram(place.dataset, 3, &loss), WEIR_OK);
    dataset_end(&place);
    data_make_tokens(place.directory, "c.bin", 100, 0, 1);
    CHECK_OK(dataset_open(&place, "c.bin", ""));
    EXPECT_STATUS(weir__dataset_bigram(place.dataset, 3, &loss), WEIR_OK);
    EXPECT(isnan(loss));
    dataset_end(&place);
}

static void make_all(const struct dataset_place *place) {
    struct dataset_place inner = *place;
    char folder[512], path[512];
    inner.directory = folder;
    data_make_folder(place->directory, "arrays", folder);
    dataset_make_images(&inner, "x.npy", "y.npy", 20);
    dataset_make_images(&inner, "x_val.npy", "y_val.npy", 4);
    data_make_folder(place->directory, "tokens", folder);
    data_make_tokens(folder, "a.bin", 50, 0, 1);
    data_make_tokens(folder, "val.bin", 50, 0, 1);
    io_make_file(place->directory, "text.txt", "a text that is long enough for a few rows", 41,
                 path);
}

/* ---- all of it held out ---- */

/* The first number of each of the `count` held-out rows. */
static void expect_rows(struct dataset_place *place, const char *names,
                        struct weir__dataset_model model, uint32_t count, const int64_t *firsts) {
    bool image = model.input.dtype == WEIR_F32;
    float pixels[6];
    int64_t tokens[16], target[16];
    place->whole = true;
    if (!EXPECT_STATUS(dataset_open(place, names, ""), WEIR_OK)) return;
    EXPECT_STATUS(dataset_bind(place, model), WEIR_OK);
    EXPECT_EQ_UINT(dataset_facts(place)->held_out_rows, count);
    for (uint32_t i = 0; i < count && !test_has_failed(); i++) {
        EXPECT_STATUS(weir__dataset_read_held_out(place->dataset, &place->io, i, 1,
                                                  image ? (void *)pixels : tokens, target),
                      WEIR_OK);
        EXPECT_EQ_INT(image ? sample_in(pixels, 0) : tokens[0], firsts[i]);
    }
    double loss;
    EXPECT_STATUS(weir__dataset_bigram(place->dataset, 0, &loss), WEIR_OK);
    EXPECT(isnan(loss));
    dataset_end(place);
}

static void test_a_whole_set_is_read_in_its_order(void) {
    struct dataset_place place;
    char text[9000], path[512];
    int64_t firsts[600];
    dataset_begin(&place);
    make_all(&place);
    for (int i = 0; i < 20; i++) firsts[i] = i;
    expect_rows(&place, "arrays/x.npy arrays/y.npy", dataset_image_model(10), 20, firsts);
    expect_rows(&place, "arrays", dataset_image_model(10), 4, firsts); /* what names mark */
    for (int i = 0; i < 12; i++) firsts[i] = i * 4;
    expect_rows(&place, "tokens/a.bin", dataset_token_model(4, 256), 12, firsts);
    expect_rows(&place, "tokens", dataset_token_model(4, 256), 12, firsts);
    for (size_t i = 0; i < sizeof(text); i++) text[i] = (char)('a' + i % 25);
    for (int i = 0; i < 562; i++) firsts[i] = 'a' + i * 16 % 25; /* also where blocks would end */
    io_make_file(place.directory, "long.txt", text, sizeof(text), path);
    expect_rows(&place, "long.txt", dataset_token_model(16, 256), 562, firsts);
    /* one sample is enough where nothing is to train on */
    dataset_make_images(&place, "x1.npy", "y1.npy", 1);
    firsts[0] = 0;
    expect_rows(&place, "x1.npy y1.npy", dataset_image_model(10), 1, firsts);
}

/* ---- the fingerprint ---- */

static uint64_t fingerprint(struct dataset_place *place, const char *names, const char *eval_names,
                            struct weir__dataset_model model) {
    if (!EXPECT_STATUS(dataset_open(place, names, eval_names), WEIR_OK)) return 0;
    EXPECT_STATUS(dataset_bind(place, model), WEIR_OK);
    uint64_t print = dataset_facts(place)->fingerprint;
    dataset_end(place);
    return print;
}

static void test_fingerprint_tells_other_data(void) {
    struct dataset_place place;
    uint8_t labels[30] = {1, 2};
    dataset_begin(&place);
    dataset_make_images(&place, "x.npy", "y.npy", 30);
    dataset_make_images(&place, "x_val.npy", "y_val.npy", 8);
    uint64_t print = fingerprint(&place, "x.npy y.npy", "", dataset_image_model(10));
    EXPECT(print == fingerprint(&place, "x.npy y.npy", "", dataset_image_model(10)));
    EXPECT(print ==
           fingerprint(&place, "x.npy y.npy", "x_val.npy y_val.npy", dataset_image_model(10)));
    EXPECT(print == fingerprint(&place, ".", "", dataset_image_model(10)));
    data_make_idx(place.directory, "z.npy", 1, (uint32_t[]){30}, labels);
    EXPECT(print != fingerprint(&place, "x.npy z.npy", "", dataset_image_model(10)));
    data_make_tokens(place.directory, "a.bin", 100, 0, 1);
    data_make_tokens(place.directory, "b.bin", 100, 0, 2);
    uint64_t tokens = fingerprint(&place, "a.bin b.bin", "", dataset_token_model(8, 300));
    EXPECT(tokens == fingerprint(&place, "a.bin b.bin", "", dataset_token_model(9, 301)));
    EXPECT(tokens != fingerprint(&place, "b.bin a.bin", "", dataset_token_model(8, 300)));
    EXPECT(tokens != fingerprint(&place, "a.bin", "", dataset_token_model(8, 300)));
}

/* ---- files that change, systems that fail ---- */

static void test_changed_files_are_named_when_they_are_read(void) {
    struct dataset_place place;
    char path[512];
    float input[6 * 18];
    int64_t target[18 * 8];
    uint8_t labels[20];
    dataset_begin(&place);
    dataset_make_images(&place, "x.npy", "y.npy", 20);
    CHECK_OK(dataset_open(&place, "x.npy y.npy", ""));
    EXPECT_STATUS(dataset_bind(&place, dataset_image_model(10)), WEIR_OK);
    memset(labels, 77, sizeof(labels));
    data_make_idx(place.directory, "y.npy", 1, (uint32_t[]){20}, labels);
    EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 1, 0, 18, input, target),
                  WEIR_ERR_CONFIG);
    EXPECT_CONTAINS(place.error.message, "/y.npy: sample ");
    EXPECT_CONTAINS(place.error.message, "has the label 77, but the model's labels are 0 to 9");
    snprintf(path, sizeof(path), "%s/x.npy", place.directory);
    EXPECT_EQ_INT(truncate(path, 30), 0);
    EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 1, 0, 18, input, target),
                  WEIR_ERR_IO);
    EXPECT_CONTAINS(place.error.message, "/x.npy: it was cut: byte ");
    dataset_end(&place);
    data_make_tokens(place.directory, "a.bin", 65536 + 33, 0, 0);
    CHECK_OK(dataset_open(&place, "a.bin", ""));
    EXPECT_STATUS(dataset_bind(&place, dataset_token_model(8, 5)), WEIR_OK);
    data_make_tokens(place.directory, "a.bin", 65536 + 33, 5, 0);
    EXPECT_STATUS(weir__dataset_read(place.dataset, &place.io, 1, 0, 1, target, target + 8),
                  WEIR_ERR_CONFIG);
    EXPECT_CONTAINS(place.error.message, "/a.bin: token ");
    EXPECT_CONTAINS(place.error.message, " is 5, but the model's vocabulary has 5");
    dataset_end(&place);
}

static int use(struct dataset_place *place, const char *names, const char *eval_names,
               struct weir__dataset_model model) {
    float input[6 * 8];
    int64_t target[8 * 8];
    int status = dataset_open(place, names, eval_names);
    if (!status) status = dataset_bind(place, model);
    if (!status && !place->whole)
        status = weir__dataset_read(place->dataset, &place->io, 1, 0, 2, input, target);
    if (!status)
        status = weir__dataset_read_held_out(place->dataset, &place->io, 0, 1, input, target);
    return status;
}

static const struct {
    const char *names, *eval_names;
    bool image, whole;
} uses[] = {{"arrays", "", true, false},
            {"arrays/x.npy arrays/y.npy", "arrays", true, false},
            {"tokens", "", false, false},
            {"tokens/a.bin", "tokens", false, false},
            {"text.txt", "text.txt", false, false},
            {"arrays", "", true, true},
            {"tokens", "", false, true},
            {"text.txt", "", false, true}};

static void test_it_survives_any_failing_call(void) {
    struct dataset_place place;
    dataset_begin(&place);
    make_all(&place);
    for (size_t i = 0; i < 2 * sizeof(uses) / sizeof(uses[0]); i++) {
        enum io_fault fault = i % 2 ? IO_FAULT_SHORT : IO_FAULT_FAIL;
        place.whole = uses[i / 2].whole;
        struct weir__dataset_model model =
            uses[i / 2].image ? dataset_image_model(10) : dataset_token_model(4, 256);
        for (uint64_t k = 1, fired = 1; fired && k < 300; k++) {
            int before = io_open_descriptors();
            place.error.message[0] = 0;
            io_faults_at(k, false, fault, EIO);
            int status = use(&place, uses[i / 2].names, uses[i / 2].eval_names, model);
            fired = io_faults_fired();
            io_faults_at(0, false, IO_FAULT_FAIL, 0);
            EXPECT(status == WEIR_OK || (status == WEIR_ERR_IO && fault == IO_FAULT_FAIL));
            const char *message =
                place.faults.kept > 0 ? place.faults.lines[0] : place.error.message;
            if (status) EXPECT_CONTAINS(message, "Input/output error");
            dataset_end(&place);
            CHECK_EQ_INT(io_open_descriptors(), before);
            CHECK_HELPERS();
        }
    }
}

static void test_it_survives_any_failing_allocation(void) {
    struct dataset_place place;
    dataset_begin(&place);
    make_all(&place);
    for (size_t i = 0; i < sizeof(uses) / sizeof(uses[0]); i++) {
        place.whole = uses[i].whole;
        struct weir__dataset_model model =
            uses[i].image ? dataset_image_model(10) : dataset_token_model(4, 256);
        for (uint64_t k = 1, fired = 1; fired && k < 300; k++) {
            int before = io_open_descriptors();
            test_allocator_fail_at(k, false);
            int status = use(&place, uses[i].names, uses[i].eval_names, model);
            fired = test_allocator_fired();
            test_allocator_fail_at(0, false);
            /* a line that finds no memory is lost, and that is all */
            EXPECT(status == WEIR_ERR_OUT_OF_MEMORY || (status == WEIR_OK && !fired));
            dataset_end(&place);
            CHECK_EQ_INT(io_open_descriptors(), before);
            CHECK_HELPERS();
        }
    }
}

WEIR_TEST_SUITE(dataset_rows, TEST(bytes_become_shares_of_one),
                TEST(other_numbers_stay_as_they_are), TEST(integers_stay_integers),
                TEST(every_pass_visits_every_sample_once),
                TEST(rows_depend_on_seed_and_batch_alone), TEST(reading_ahead_gives_the_same_rows),
                TEST(reader_s_failure_arrives_with_the_file_s_name),
                TEST(last_tenth_is_held_out_and_visited_once),
                TEST(windows_cover_the_tokens_of_each_file),
                TEST(tokens_without_a_held_out_file_hold_out_a_tenth), TEST(text_is_the_corpus),
                TEST(a_whole_set_is_read_in_its_order), TEST(fingerprint_tells_other_data),
                TEST(changed_files_are_named_when_they_are_read),
                TEST(it_survives_any_failing_call), TEST(it_survives_any_failing_allocation))
