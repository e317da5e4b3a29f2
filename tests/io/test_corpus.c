/* SPDX-License-Identifier: MIT */
/*
 * Goal: the same paths give the same bytes, rows and split on every machine; no training row
 * touches what is held out; the bigram baseline is the number that arithmetic by hand gives.
 * Method: small trees made for the test, all places of all rows counted, faults in every system
 * call.
 */
#include "harness.h"
#include "data/corpus.h"
#include "io/io_faults.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct place {
    const char *directory;
    struct weir_error error;
    struct weir__io io;
    struct weir__corpus corpus;
};

static void place_init(struct place *place) {
    memset(place, 0, sizeof(*place));
    place->directory = test_temporary_directory();
    place->io = (struct weir__io){test_allocator(), io_faults_calls(), &place->error};
    io_faults_at(0, false, IO_FAULT_FAIL, 0);
}

static void add_text(const struct place *place, const char *name, const char *text) {
    char path[512];
    io_make_file(place->directory, name, text, strlen(text), path);
}

static void add_folder(const struct place *place, const char *name) {
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", place->directory, name);
    EXPECT_EQ_INT(mkdir(path, 0777), 0);
}

static int open_path(struct place *place, const char *name, uint32_t context, uint64_t limit) {
    char path[512];
    const char *paths[] = {path};
    snprintf(path, sizeof(path), "%s%s%s", place->directory, *name ? "/" : "", name);
    struct weir__corpus_options options = {paths, 1, context, limit, WEIR__CORPUS_SPLIT};
    return weir__corpus_open(&place->io, &options, &place->corpus);
}

/* One file of `count` bytes, byte i being 1 + i % 251. */
static int open_counting(struct place *place, size_t count, uint32_t context) {
    char path[512];
    char *data = malloc(count + 1);
    if (!EXPECT(data)) return WEIR_ERR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) data[i] = (char)(1 + i % 251);
    io_make_file(place->directory, "counting", data, count, path);
    free(data);
    return open_path(place, "counting", context, 0);
}

static size_t place_of(const struct weir__corpus *corpus, const uint8_t *row) {
    return (size_t)(row - (const uint8_t *)corpus->text.data);
}

/* ---- gathering ---- */

static void make_tree(const struct place *place) {
    add_folder(place, "b");
    add_folder(place, "b/inner");
    add_folder(place, "zig-out");
    add_folder(place, ".git");
    add_text(place, "c.txt", "[c]");
    add_text(place, "a.txt", "[a]");
    add_text(place, "b/two", "[b/two]");
    add_text(place, "b/inner/one", "[b/inner/one]");
    add_text(place, "B", "[B]");
    add_text(place, "empty", "");
    add_text(place, ".hidden", "[hidden]");
    add_text(place, ".git/head", "[git]");
    add_text(place, "zig-out/log", "[zig-out]");
    char path[512];
    io_make_file(place->directory, "picture", "[pic\0ture]", 10, path);
    snprintf(path, sizeof(path), "%s/link", place->directory);
    EXPECT_EQ_INT(symlink("a.txt", path), 0);
    snprintf(path, sizeof(path), "%s/b/circle", place->directory);
    EXPECT_EQ_INT(symlink("..", path), 0);
}

static void test_folder_is_read_in_order_of_names(void) {
    struct place place;
    place_init(&place);
    make_tree(&place);
    CHECK_OK(open_path(&place, "", 1, 0));
    EXPECT_EQ_STR(place.corpus.text.data, "[B][a][b/inner/one][b/two][c]");
    EXPECT_EQ_UINT(place.corpus.file_count, 6);
    EXPECT_EQ_UINT(place.corpus.skipped_count, 1);
    weir__corpus_clean_up(&place.corpus);
}

static void test_given_paths_are_taken_whatever_they_are(void) {
    struct place place;
    char paths[5][512];
    static const char *const names[] = {"c.txt", "picture", ".hidden", "link", "zig-out/"};
    const char *given[5];
    place_init(&place);
    make_tree(&place);
    for (int i = 0; i < 5; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s/%s", place.directory, names[i]);
        given[i] = paths[i];
    }
    struct weir__corpus_options options = {given, 5, 1, 0, WEIR__CORPUS_SPLIT};
    CHECK_OK(weir__corpus_open(&place.io, &options, &place.corpus));
    EXPECT_EQ_UINT(place.corpus.text.count, 33);
    EXPECT_EQ_BYTES(place.corpus.text.data, "[c][pic\0ture][hidden][a][zig-out]", 33);
    weir__corpus_clean_up(&place.corpus);
}

static void test_long_files_are_read_whole_and_late_zeros_do_not_matter(void) {
    struct place place;
    char *data = malloc(300000), path[512];
    CHECK(data);
    place_init(&place);
    for (size_t i = 0; i < 300000; i++) data[i] = (char)(1 + i * 31 % 255);
    data[8192] = 0;
    io_make_file(place.directory, "a", data, 300000, path);
    data[8192] = 1, data[8191] = 0;
    io_make_file(place.directory, "b", data, 300000, path);
    data[8192] = 0, data[8191] = (char)(1 + 8191 * 31 % 255);
    int status = open_path(&place, "", 100, 0);
    EXPECT_STATUS(status, WEIR_OK);
    EXPECT_EQ_UINT(place.corpus.text.count, 300000);
    EXPECT_EQ_UINT(place.corpus.skipped_count, 1);
    if (!status) EXPECT_EQ_BYTES(place.corpus.text.data, data, 300000);
    weir__corpus_clean_up(&place.corpus);
    free(data);
}

static void test_missing_path_is_named(void) {
    struct place place;
    place_init(&place);
    CHECK_STATUS(open_path(&place, "none.txt", 1, 0), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "none.txt: No such file or directory: check the path");
}

static void test_too_much_and_too_little_text_are_refused(void) {
    struct place place;
    place_init(&place);
    CHECK_STATUS(open_path(&place, "", 1, 0), WEIR_ERR_CONFIG);
    CHECK_CONTAINS(place.error.message, "there is no text in 0 files (0 left out as binary)");
    CHECK_STATUS(open_counting(&place, 89, 8), WEIR_ERR_CONFIG);
    CHECK_CONTAINS(place.error.message, "89 bytes, too few for a context of 8");
    CHECK_OK(open_counting(&place, 90, 8));
    weir__corpus_clean_up(&place.corpus);
    CHECK_STATUS(open_path(&place, "", 8, 89), WEIR_ERR_CONFIG);
    CHECK_CONTAINS(place.error.message, "counting has more than 89 bytes: name fewer");
    CHECK_OK(open_path(&place, "", 8, 90));
    weir__corpus_clean_up(&place.corpus);
}

static void test_folders_without_end_are_refused(void) {
    struct place place;
    char name[512] = "d";
    place_init(&place);
    for (int i = 0; i < 64; i++) {
        add_folder(&place, name);
        strcat(name, "/d");
    }
    CHECK_HELPERS();
    CHECK_STATUS(open_path(&place, "d", 1, 0), WEIR_ERR_CONFIG);
    add_folder(&place, name);
    CHECK_STATUS(open_path(&place, "d", 1, 0), WEIR_ERR_IO);
    CHECK_CONTAINS(place.error.message, "more than 64 deep");
}

static void test_fingerprint_sees_every_byte(void) {
    struct place place;
    uint64_t prints[3];
    place_init(&place);
    static const char *const texts[] = {"some text, quite short", "some text, quite shorT",
                                        "some text, quite short"};
    for (int i = 0; i < 3; i++) {
        add_text(&place, "x", texts[i]);
        CHECK_OK(open_path(&place, "x", 1, 0));
        prints[i] = place.corpus.fingerprint;
        weir__corpus_clean_up(&place.corpus);
    }
    CHECK_EQ_UINT(prints[0], prints[2]);
    CHECK(prints[0] != prints[1]);
}

/* ---- split and rows ---- */

static bool is_held_out(const struct weir__corpus *corpus, size_t place) {
    return place / corpus->block % 10 == 9;
}

/* Marks the targets of every held-out row; none twice, all inside, all that fit. */
static void check_held_out(const struct weir__corpus *corpus) {
    char *seen = calloc(corpus->text.count, 1);
    size_t marked = 0, possible = 0;
    CHECK(seen);
    for (uint64_t i = 0; i < corpus->held_out_rows && !test_has_failed(); i++) {
        size_t at = place_of(corpus, weir__corpus_held_out(corpus, i));
        for (size_t j = 0; j <= corpus->context; j++) {
            EXPECT(at + j < corpus->text.count && is_held_out(corpus, at + j));
            if (j > 0) EXPECT(!seen[at + j]++);
            marked += j > 0;
        }
    }
    for (size_t b = 9 * corpus->block; b < corpus->text.count; b += 10 * corpus->block) {
        size_t left = corpus->text.count - b;
        size_t bytes = left < corpus->block ? left : corpus->block;
        possible += (bytes - 1) / corpus->context * corpus->context;
    }
    EXPECT_EQ_UINT(marked, possible);
    free(seen);
}

static void check_rows(const struct weir__corpus *corpus) {
    uint64_t starts = 0, bytes = 0;
    for (size_t i = 0; i < corpus->text.count; i++) bytes += !is_held_out(corpus, i);
    EXPECT_EQ_UINT(corpus->train_bytes, bytes);
    for (size_t i = 0; i + corpus->context < corpus->text.count; i++) {
        size_t end = i + corpus->context;
        starts += !is_held_out(corpus, i) && !is_held_out(corpus, end) &&
                  i / (10 * corpus->block) == end / (10 * corpus->block);
    }
    EXPECT_EQ_UINT(corpus->train_starts, starts);
    for (uint32_t i = 0; i < 2000 && !test_has_failed(); i++) {
        size_t at = place_of(corpus, weir__corpus_row(corpus, test_random_u64(), i, i % 7));
        EXPECT(at + corpus->context < corpus->text.count);
        for (size_t j = 0; j <= corpus->context; j++) EXPECT(!is_held_out(corpus, at + j));
        EXPECT(at / (10 * corpus->block) == (at + corpus->context) / (10 * corpus->block));
    }
}

static void test_training_never_touches_what_is_held_out(void) {
    struct place place;
    static const struct {
        size_t count;
        uint32_t context;
        size_t block;
    } cases[] = {{90, 8, 9},          {99, 8, 9},         {1000, 1, 100},     {40960, 64, 4096},
                 {40959, 64, 4095},   {77777, 300, 4096}, {81919, 600, 8191}, {123456, 64, 4096},
                 {100000, 600, 8192}, {81921, 64, 4096}};
    place_init(&place);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_OK(open_counting(&place, cases[i].count, cases[i].context));
        EXPECT_EQ_UINT(place.corpus.block, cases[i].block);
        check_held_out(&place.corpus);
        check_rows(&place.corpus);
        weir__corpus_clean_up(&place.corpus);
        CHECK_HELPERS();
    }
}

static void test_rows_depend_on_seed_batch_and_row_alone(void) {
    struct place place, again;
    place_init(&place);
    CHECK_OK(open_counting(&place, 50000, 16));
    place_init(&again);
    int status = open_counting(&again, 50000, 16);
    int same_seed = 0, same_batch = 0, same_row = 0;
    for (uint32_t i = 0; i < 100 && !status; i++) {
        size_t at = place_of(&place.corpus, weir__corpus_row(&place.corpus, 7, i, 3));
        EXPECT_EQ_UINT(at, place_of(&again.corpus, weir__corpus_row(&again.corpus, 7, i, 3)));
        same_seed += at == place_of(&place.corpus, weir__corpus_row(&place.corpus, 8, i, 3));
        same_batch += at == place_of(&place.corpus, weir__corpus_row(&place.corpus, 7, i + 1, 3));
        same_row += at == place_of(&place.corpus, weir__corpus_row(&place.corpus, 7, i, 4));
    }
    EXPECT(same_seed < 5 && same_batch < 5 && same_row < 5);
    EXPECT_STATUS(status, WEIR_OK);
    weir__corpus_clean_up(&place.corpus);
    weir__corpus_clean_up(&again.corpus);
}

/* A frozen draw: another one would make old checkpoints resume with other data. */
static void test_draws_are_frozen(void) {
    struct place place;
    place_init(&place);
    CHECK_OK(open_counting(&place, 50000, 16));
    EXPECT_EQ_UINT(place_of(&place.corpus, weir__corpus_row(&place.corpus, 1, 0, 0)), 49094);
    EXPECT_EQ_UINT(place_of(&place.corpus, weir__corpus_row(&place.corpus, 1, 9, 2)), 20233);
    weir__corpus_clean_up(&place.corpus);
}

static void test_draws_are_uniform(void) {
    struct place place;
    uint32_t tenth[10] = {0};
    place_init(&place);
    CHECK_OK(open_counting(&place, 60000, 16));
    for (uint32_t i = 0; i < 20000; i++) {
        size_t at = place_of(&place.corpus, weir__corpus_row(&place.corpus, 5, i / 8, i % 8));
        tenth[at / 6000]++;
    }
    /* 20,000 draws over 60,000 bytes less the one block held out, 36,864 to 40,959: six sigmas. */
    double expected = 20000.0 * 6000 / (60000 - 4096 - 32), sigma = sqrt(expected);
    for (int i = 0; i < 10; i++) {
        if (i != 6) EXPECT_NEAR(tenth[i], expected, 6 * sigma);
    }
    weir__corpus_clean_up(&place.corpus);
}

static void test_batches_are_the_rows_shifted_by_one(void) {
    struct place place;
    int64_t inputs[3 * 16], targets[3 * 16];
    place_init(&place);
    CHECK_OK(open_counting(&place, 50000, 16));
    weir__corpus_batch(&place.corpus, 3, 11, 0, 1, inputs, targets);
    memset(inputs + 16, -1, 32 * sizeof *inputs);
    weir__corpus_batch(&place.corpus, 3, 11, 2, 1, inputs, targets);
    EXPECT_EQ_INT(inputs[16], -1); /* a row of nobody's */
    weir__corpus_batch(&place.corpus, 3, 11, 1, 1, inputs, targets);
    for (uint32_t r = 0; r < 3; r++) {
        const uint8_t *row = weir__corpus_row(&place.corpus, 3, 11, r);
        for (uint32_t i = 0; i < 16; i++) {
            EXPECT_EQ_INT(inputs[r * 16 + i], row[i]);
            EXPECT_EQ_INT(targets[r * 16 + i], row[i + 1]);
        }
    }
    weir__corpus_batch_held_out(&place.corpus, 5, 2, inputs, targets);
    const uint8_t *row = weir__corpus_held_out(&place.corpus, 6);
    EXPECT_EQ_INT(inputs[16], row[0]);
    EXPECT_EQ_INT(targets[31], row[16]);
    weir__corpus_clean_up(&place.corpus);
}

/* ---- two texts ---- */

static int open_part(struct place *place, enum weir__corpus_part part, size_t count,
                     uint32_t context) {
    char path[512];
    const char *paths[] = {path};
    char *data = calloc(count + 1, 1);
    if (!EXPECT(data)) return WEIR_ERR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++) data[i] = (char)(1 + i % 251);
    io_make_file(place->directory, "part", data, count, path);
    free(data);
    struct weir__corpus_options options = {paths, 1, context, 0, part};
    return weir__corpus_open(&place->io, &options, &place->corpus);
}

static void test_text_for_training_alone_is_used_to_its_end(void) {
    struct place place;
    bool first = false, last = false;
    place_init(&place);
    CHECK_OK(open_part(&place, WEIR__CORPUS_TRAIN, 9000, 8990));
    EXPECT_EQ_UINT(place.corpus.train_starts, 10);
    EXPECT_EQ_UINT(place.corpus.held_out_rows, 0);
    for (uint32_t i = 0; i < 1000; i++) {
        size_t at = place_of(&place.corpus, weir__corpus_row(&place.corpus, 1, i, 0));
        EXPECT(at < 10);
        first = first || at == 0;
        last = last || at == 9;
    }
    EXPECT(first && last);
    weir__corpus_clean_up(&place.corpus);
    CHECK_STATUS(open_part(&place, WEIR__CORPUS_TRAIN, 16, 16), WEIR_ERR_CONFIG);
    CHECK_CONTAINS(place.error.message, "the training text has 16 bytes, but a row of context 16");
}

/* No target twice, and all but what blocks leave over. */
static void test_text_that_is_held_out_is_evaluated_throughout(void) {
    enum { COUNT = 10000, CONTEXT = 100 };
    struct place place;
    char seen[COUNT] = {0};
    place_init(&place);
    CHECK_OK(open_part(&place, WEIR__CORPUS_HELD_OUT, COUNT, CONTEXT));
    EXPECT_EQ_UINT(place.corpus.train_starts, 0);
    EXPECT_EQ_UINT(place.corpus.held_out_rows, 40 + 40 + 18);
    for (uint64_t i = 0; i < place.corpus.held_out_rows; i++) {
        size_t at = place_of(&place.corpus, weir__corpus_held_out(&place.corpus, i));
        if (i < 2) EXPECT_EQ_UINT(at, i * 4096);
        for (size_t j = 1; j <= CONTEXT; j++) EXPECT(at + j < COUNT && !seen[at + j]++);
    }
    weir__corpus_clean_up(&place.corpus);
    CHECK_STATUS(open_part(&place, WEIR__CORPUS_HELD_OUT, 3, 16), WEIR_ERR_CONFIG);
    CHECK_CONTAINS(place.error.message, "the held-out text has 3 bytes");
}

/* Counted on "ab" in turn: 450 "ab", 449 "ba"; four targets in "abab", b a b, at one kind of
 * follower each. */
static void test_bigram_of_one_text_is_tried_on_another(void) {
    struct place place, other;
    char text[901] = "";
    double loss = 0.0;
    for (int i = 0; i < 900; i++) text[i] = i % 2 ? 'b' : 'a';
    place_init(&place);
    place_init(&other);
    char a[512], b[512];
    const char *train[] = {a}, *held_out[] = {b};
    io_make_file(place.directory, "a", text, 900, a);
    io_make_file(place.directory, "b", "abab", 4, b);
    struct weir__corpus_options options = {train, 1, 3, 0, WEIR__CORPUS_TRAIN};
    CHECK_OK(weir__corpus_open(&place.io, &options, &place.corpus));
    options = (struct weir__corpus_options){held_out, 1, 3, 0, WEIR__CORPUS_HELD_OUT};
    EXPECT_STATUS(weir__corpus_open(&place.io, &options, &other.corpus), WEIR_OK);
    EXPECT_STATUS(weir__corpus_bigram(&place.corpus, &other.corpus, 0, &loss), WEIR_OK);
    double to_b = (450 + 451.0 / 1155) / 451, to_a = (449 + 450.0 / 1155) / 450;
    EXPECT_NEAR(loss, -(2 * log(to_b) + log(to_a)) / 3, 1e-15);
    weir__corpus_clean_up(&place.corpus);
    weir__corpus_clean_up(&other.corpus);
}

/* ---- the bigram model ---- */

/* 'a' and 'b' in turn: 9 blocks of 10 to train on, one held out, all pairs "ab" or "ba". */
static void test_bigram_loss_is_what_arithmetic_says(void) {
    struct place place;
    char text[101] = "";
    double loss = 0.0;
    for (int i = 0; i < 100; i++) text[i] = i % 2 ? 'b' : 'a';
    place_init(&place);
    add_text(&place, "x", text);
    CHECK_OK(open_path(&place, "x", 3, 0));
    int status = weir__corpus_bigram(&place.corpus, &place.corpus, 0, &loss);
    uint64_t rows = place.corpus.held_out_rows;
    weir__corpus_clean_up(&place.corpus);
    CHECK_OK(status);
    CHECK_EQ_UINT(rows, 3);
    /* Counts in 90 bytes: 45 "ab", 44 "ba"; one kind of follower each. Witten-Bell:
     * P(b|a) = (45 + P(b)) / 46, P(b) = (45 + 1) / (89 + 256). Nine targets: b a b | b? the rows
     * begin at 90, 93 and 96, so their targets are b a b, a b a, b a b: five b, four a. */
    double b = (45 + 46.0 / 345) / 46, a = (44 + 45.0 / 345) / 45;
    CHECK_NEAR(loss, -(5 * log(b) + 4 * log(a)) / 9, 1e-15);
}

/* Two bytes that never meet in training: the better of the two smoothings is the one reported. */
static void test_bigram_is_the_better_smoothing(void) {
    struct place place;
    char text[1001] = "";
    double loss = 0.0;
    for (int i = 0; i < 900; i++) text[i] = (char)(1 + test_random_below(255));
    for (int i = 900; i < 1000; i++) text[i] = (char)(1 + test_random_below(255));
    place_init(&place);
    add_text(&place, "x", text);
    CHECK_OK(open_path(&place, "x", 9, 0));
    int status = weir__corpus_bigram(&place.corpus, &place.corpus, 0, &loss);
    weir__corpus_clean_up(&place.corpus);
    CHECK_OK(status);
    /* Noise cannot be predicted: Laplace stays near log(256), Witten-Bell lies above it. */
    CHECK(loss < log(256) + 0.1 && loss > log(255) - 0.1);
}

static void test_bigram_on_fewer_rows_looks_at_those(void) {
    struct place place;
    double all = 0.0, one = 0.0, two = 0.0;
    char *text = calloc(1, 40001);
    CHECK(text);
    place_init(&place);
    for (int i = 0; i < 40000; i++) text[i] = (char)('a' + i % 7 + (i / 100 % 3));
    add_text(&place, "x", text);
    free(text);
    CHECK_OK(open_path(&place, "x", 50, 0));
    uint64_t rows = place.corpus.held_out_rows;
    EXPECT_STATUS(weir__corpus_bigram(&place.corpus, &place.corpus, 0, &all), WEIR_OK);
    EXPECT_STATUS(weir__corpus_bigram(&place.corpus, &place.corpus, rows, &two), WEIR_OK);
    EXPECT_STATUS(weir__corpus_bigram(&place.corpus, &place.corpus, 1, &one), WEIR_OK);
    EXPECT(all == two);
    EXPECT(all != one);
    test_allocator_fail_at(1, false);
    EXPECT_STATUS(weir__corpus_bigram(&place.corpus, &place.corpus, 1, &one),
                  WEIR_ERR_OUT_OF_MEMORY);
    test_allocator_fail_at(0, false);
    weir__corpus_clean_up(&place.corpus);
}

/* ---- faults ---- */

static void open_under_faults(struct place *place, bool persistent, enum io_fault fault) {
    for (uint64_t k = 1, fired = 1; fired && k < 500; k++) {
        int before = io_open_descriptors();
        io_faults_at(k, persistent, fault, EIO);
        int status = open_path(place, "", 1, 0);
        fired = io_faults_fired();
        io_faults_at(0, false, fault, 0);
        if (status) {
            EXPECT_STATUS(status, WEIR_ERR_IO);
            EXPECT_CONTAINS(place->error.message, place->directory);
        } else {
            EXPECT_EQ_STR(place->corpus.text.data, "[B][a][b/inner/one][b/two][c]");
            weir__corpus_clean_up(&place->corpus);
        }
        CHECK_HELPERS();
        CHECK_EQ_INT(io_open_descriptors(), before);
        CHECK_EQ_UINT(test_allocator_live_blocks(), 0);
    }
}

static void test_opening_survives_any_failing_call(void) {
    struct place place;
    place_init(&place);
    make_tree(&place);
    for (int persistent = 0; persistent < 2; persistent++) {
        open_under_faults(&place, persistent, IO_FAULT_FAIL);
        open_under_faults(&place, persistent, IO_FAULT_SHORT);
        open_under_faults(&place, persistent, IO_FAULT_INTERRUPT);
    }
}

static void test_opening_survives_any_failing_allocation(void) {
    struct place place;
    place_init(&place);
    make_tree(&place);
    for (uint64_t k = 1, fired = 1; fired; k++) {
        test_allocator_fail_at(k, k % 2);
        int status = open_path(&place, "", 1, 0);
        fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        CHECK_STATUS(status, fired ? WEIR_ERR_OUT_OF_MEMORY : WEIR_OK);
    }
    weir__corpus_clean_up(&place.corpus);
}

WEIR_TEST_SUITE(
    corpus, TEST(folder_is_read_in_order_of_names), TEST(given_paths_are_taken_whatever_they_are),
    TEST(long_files_are_read_whole_and_late_zeros_do_not_matter), TEST(missing_path_is_named),
    TEST(too_much_and_too_little_text_are_refused), TEST(folders_without_end_are_refused),
    TEST(fingerprint_sees_every_byte), TEST(training_never_touches_what_is_held_out),
    TEST(rows_depend_on_seed_batch_and_row_alone), TEST(draws_are_frozen), TEST(draws_are_uniform),
    TEST(batches_are_the_rows_shifted_by_one), TEST(text_for_training_alone_is_used_to_its_end),
    TEST(text_that_is_held_out_is_evaluated_throughout),
    TEST(bigram_of_one_text_is_tried_on_another), TEST(bigram_loss_is_what_arithmetic_says),
    TEST(bigram_is_the_better_smoothing), TEST(bigram_on_fewer_rows_looks_at_those),
    TEST(opening_survives_any_failing_call), TEST(opening_survives_any_failing_allocation))
