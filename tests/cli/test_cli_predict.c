/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir predict` writes what a model gives for each row, whatever the pipeline, or writes
 * nothing. Method: outputs that the tests know, or that `weir grad` computes from the same rows;
 * the file is read here by its format.
 */
#include "cli/cli.h"
#include "io/data_files.h"
#include "io/io_faults.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define PLACE " --threads-per-stage 1 --bind none"
#define COUNT(list) (sizeof(list) / sizeof((list)[0]))
#define NEEDS_COMMAND                                                                              \
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'")

/* The numbers of FOLDER/out.npy, whose header must say `type` and `shape`; free() *file. */
static const void *read_out(const char *folder, const char *type, const char *shape, size_t bytes,
                            char **file) {
    char path[512], wanted[200];
    size_t all = 0;
    snprintf(path, sizeof path, "%s/out.npy", folder);
    snprintf(wanted, sizeof wanted, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
             type, shape);
    *file = cli_read(path, &all);
    if (!EXPECT(*file != NULL && all > 10)) return NULL;
    size_t header = 10 + (size_t)(unsigned char)(*file)[8] + 256 * (size_t)(*file)[9];
    EXPECT(memcmp(*file, "\x93NUMPY\1\0", 8) == 0 && header % 64 == 0);
    EXPECT(strncmp(*file + 10, wanted, strlen(wanted)) == 0 && (*file)[header - 1] == '\n');
    return EXPECT_EQ_UINT(all, header + bytes) ? *file + header : NULL;
}

/* ---- images and other arrays ---- */

/* y = 2 x_0 + x_1 - 1 and x_1, without target and loss; weights in FOLDER/w. */
static void make_model(const char *folder) {
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [2]}, \"layers\": [{\"type\": \"identity\"}, "
        "{\"type\": \"linear\", \"out_features\": 2}, {\"type\": \"identity\"}]}";
    static const float weight[4] = {2, 1, 0, 1}, bias[2] = {-1, 0};
    char path[512];
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[2] = {
        {.name = "1.weight", .dtype = WEIR_F32, .rank = 2, .shape = {2, 2}, .data = weight},
        {.name = "1.bias", .dtype = WEIR_F32, .rank = 1, .shape = {2}, .data = bias}};
    io_make_file(folder, "model.json", model, sizeof model - 1, path);
    snprintf(path, sizeof path, "%s/w", folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, 2, NULL, 0), WEIR_OK);
}

static void test_a_model_without_loss_predicts_rows_in_any_number(void) {
    static const char *const pipes[] = {"--stages 1 --batch 7", "--stages 3 --batch 3 --chunks 2",
                                        "--batch 2 --stages 2 --schedule gpipe", "--batch 100"};
    NEEDS_COMMAND;
    struct cli_run run;
    float x[14];
    const char *folder = test_temporary_directory();
    for (int i = 0; i < 14; i++) x[i] = (float)(i * i % 11);
    make_model(folder);
    data_make_npy(folder, "x.npy", "<f4", "7, 2", x, sizeof x);
    for (size_t i = 0; i < COUNT(pipes) && !test_has_failed(); i++) {
        char *file;
        CLI_CODE(&run, 0,
                 "predict --model %s/model.json --load %s/w --data %s/x.npy --out %s/out.npy "
                 "--json %s/j %s" PLACE,
                 folder, folder, folder, folder, folder, pipes[i]);
        CHECK_CONTAINS(run.output, "out.npy: 7 rows of f32 [2], ");
        const float *y = read_out(folder, "<f4", "7, 2", 7 * 2 * sizeof *y, &file);
        for (int r = 0; y != NULL && r < 7; r++) {
            EXPECT_NEAR(y[2 * r], 2 * x[2 * r] + x[2 * r + 1] - 1, 0);
            EXPECT_NEAR(y[2 * r + 1], x[2 * r + 1], 0);
        }
        free(file);
        char path[512];
        snprintf(path, sizeof path, "%s/j", folder);
        json_t *found = cli_json(path);
        EXPECT_EQ_INT((int64_t)cli_number(found, "rows"), 7);
        EXPECT(cli_number(found, "seconds") > 0 && cli_number(found, "rows_per_second") > 0);
        json_t *shape = json_pack("[i, i]", 7, 2);
        EXPECT(json_equal(json_object_get(found, "shape"), shape));
        json_decref(shape);
        json_decref(found);
    }
}

static void test_rows_that_are_no_numbers_are_told(void) {
    float x[14] = {0};
    NEEDS_COMMAND;
    struct cli_run run;
    char *file;
    const char *folder = test_temporary_directory();
    x[7] = x[12] = NAN;
    make_model(folder);
    data_make_npy(folder, "x.npy", "<f4", "7, 2", x, sizeof x);
    CLI_CODE(&run, 0,
             "predict --model %s/model.json --load %s/w --data %s/x.npy --out %s/out.npy "
             "--batch 2" PLACE,
             folder, folder, folder, folder);
    CHECK_CONTAINS(run.output,
                   "weir: predict: warning: 2 of 7 rows hold numbers that are not finite, the "
                   "first of them row 3: ");
    const float *y = read_out(folder, "<f4", "7, 2", 7 * 2 * sizeof *y, &file);
    if (y != NULL) EXPECT(y[5] == 0 && y[7] != y[7] && y[9] == 0);
    free(file);
}

/* Row by row as `grad`, whose outputs are PyTorch's, and to f64's last bit. */
static void test_images_come_out_in_the_files_order(void) {
    NEEDS_COMMAND;
    enum { ROWS = 5, IN = 3 * 8 * 8, OUT = 2 * 8 * 8 };
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [3, 8, 8]}, \"target\": {\"dtype\": \"f32\", "
        "\"shape\": [2, 8, 8]}, \"loss\": \"mse\", \"layers\": [{\"type\": \"conv2d\", "
        "\"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, {\"type\": \"relu\"}, "
        "{\"type\": "
        "\"conv2d\", \"out_channels\": 2, \"kernel_size\": 1}]}";
    static double x[ROWS * IN], target[ROWS * OUT];
    struct cli_run run;
    struct weir__io io = {.allocator = test_allocator()};
    char path[512], *file;
    const char *folder = test_temporary_directory();
    for (int i = 0; i < ROWS * IN; i++) x[i] = (double)(i * 7919 % 1000) / 500.0 - 1.0;
    struct weir__safetensors_item items[] = {
        {.name = "input", .dtype = WEIR_F64, .rank = 4, .shape = {ROWS, 3, 8, 8}, .data = x},
        {.name = "target", .dtype = WEIR_F64, .rank = 4, .shape = {ROWS, 2, 8, 8}, .data = target}};
    snprintf(path, sizeof path, "%s/rows", folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, 2, NULL, 0), WEIR_OK);
    io_make_file(folder, "m.json", model, sizeof model - 1, path);
    data_make_npy(folder, "x.npy", "<f8", "5, 3, 8, 8", x, sizeof x);
    CLI_CODE(&run, 0, "init --model %s/m.json --out %s/w", folder, folder);
    CLI_CODE(&run, 0,
             "grad --model %s/m.json --dtype f64 --weights %s/w --data %s/rows --out %s/g" PLACE,
             folder, folder, folder, folder);
    CLI_CODE(&run, 0,
             "predict --model %s/m.json --dtype f64 --load %s/w --data %s/x.npy --out %s/out.npy "
             "--batch 2 --stages 2 --chunks 2" PLACE,
             folder, folder, folder, folder);
    const double *y = read_out(folder, "<f8", "5, 2, 8, 8", ROWS * OUT * sizeof *y, &file);
    snprintf(path, sizeof path, "%s/g", folder);
    struct weir__safetensors *grad = cli_open(path);
    const struct weir__safetensor *wanted =
        grad != NULL ? weir__safetensors_find(grad, "output") : NULL;
    if (EXPECT(wanted != NULL && y != NULL) && EXPECT_EQ_UINT(wanted->bytes, ROWS * OUT * 8))
        EXPECT(memcmp(wanted->data, y, wanted->bytes) == 0);
    weir__safetensors_close(grad);
    free(file);
}

/* A folder as `train` takes it: inputs of the part that names mark, targets left alone, u8 / 255.
 */
static void test_a_folder_gives_the_inputs_that_names_mark(void) {
    static const uint8_t train[4] = {1, 2, 3, 4}, test[6] = {0, 255, 51, 102, 153, 204};
    NEEDS_COMMAND;
    struct cli_run run;
    char *file, path[512];
    const char *folder = test_temporary_directory();
    make_model(folder);
    data_make_folder(folder, "data", path);
    data_make_idx(path, "train-images-idx2-ubyte", 2, (uint32_t[]){2, 2}, train);
    data_make_idx(path, "t10k-images-idx2-ubyte", 2, (uint32_t[]){3, 2}, test);
    data_make_idx(path, "t10k-labels-idx1-ubyte", 1, (uint32_t[]){2}, test);
    CLI_CODE(&run, 0,
             "predict --model %s/model.json --load %s/w --data %s/data --out %s/out.npy" PLACE,
             folder, folder, folder, folder);
    CHECK_CONTAINS(run.output, "data: t10k-images-idx2-ubyte u8 [3, 2] / 255\n");
    const float *y = read_out(folder, "<f4", "3, 2", 3 * 2 * sizeof *y, &file);
    for (int r = 0; y != NULL && r < 3; r++) {
        EXPECT_NEAR(y[2 * r + 1], (float)test[2 * r + 1] / 255.0f, 0);
    }
    free(file);
}

/* ---- tokens ---- */

/* A parrot: logits are the token's own row of a table. */
static void test_tokens_come_as_arrays_files_or_text(void) {
    static const char model[] = "{\"input\": {\"dtype\": \"i64\", \"shape\": [4]}, \"layers\": "
                                "[{\"type\": \"embedding\", \"num_embeddings\": 256, "
                                "\"embedding_dim\": 2}, {\"type\": \"identity\"}]}";
    static const struct {
        const char *data, *shape;
        uint32_t rows;
    } cases[] = {{"t.npy", "3, 4, 2", 3}, {"t.bin", "4, 4, 2", 4}, {"text", "5, 4, 2", 5}};
    NEEDS_COMMAND;
    struct cli_run run;
    float table[512];
    int32_t tokens[12];
    char path[512], text[21];
    struct weir__io io = {.allocator = test_allocator()};
    struct weir__safetensors_item items[] = {
        {.name = "0.weight", .dtype = WEIR_F32, .rank = 2, .shape = {256, 2}, .data = table}};
    const char *folder = test_temporary_directory();
    for (int i = 0; i < 512; i++) table[i] = (float)i;
    for (int i = 0; i < 12; i++) tokens[i] = 40 + i;
    for (int i = 0; i < 21; i++) text[i] = (char)(40 + i);
    io_make_file(folder, "m.json", model, sizeof model - 1, path);
    io_make_file(folder, "text", text, sizeof text, path);
    snprintf(path, sizeof path, "%s/w", folder);
    EXPECT_STATUS(weir__safetensors_save(&io, path, items, 1, NULL, 0), WEIR_OK);
    data_make_npy(folder, "t.npy", "<i4", "3, 4", tokens, sizeof tokens);
    data_make_tokens(folder, "t.bin", 18, 40, 1);
    for (size_t i = 0; i < COUNT(cases) && !test_has_failed(); i++) {
        char *file;
        CLI_CODE(&run, 0,
                 "predict --model %s/m.json --load %s/w --data %s/%s --out %s/out.npy --batch 2 "
                 "--stages 2" PLACE,
                 folder, folder, folder, cases[i].data, folder);
        uint32_t numbers = cases[i].rows * 8;
        const float *y = read_out(folder, "<f4", cases[i].shape, numbers * sizeof *y, &file);
        for (uint32_t k = 0; y != NULL && k < numbers; k++) EXPECT_NEAR(y[k], 80 + (float)k, 0);
        free(file);
    }
}

/* ---- streaming ---- */

/* In KiB; -1 if the run fails. */
static long peak_of(const char *folder, const char *data) {
    struct rusage use;
    int status = -1;
    pid_t process = cli_start(-1,
                              "predict --model %s/wide.json --load %s/w --data %s/%s --out "
                              "%s/out.npy --batch 4" PLACE,
                              folder, folder, folder, data, folder);
    bool ended = process > 0 && wait4(process, &status, 0, &use) == process;
    return EXPECT(ended && status == 0) ? use.ru_maxrss : -1;
}

/* Batch norm takes its running numbers: rows are what they are alone, however many go together. */
static void test_rows_of_batch_norm_do_not_depend_on_their_neighbours(void) {
    enum { ROWS = 7, NUMBERS = ROWS * 3 * 8 * 8 };
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [3, 8, 8]}, \"layers\": [{\"type\": "
        "\"conv2d\", "
        "\"out_channels\": 4, \"kernel_size\": 3, \"dilation\": 2}, {\"type\": \"batch_norm2d\"}, "
        "{\"type\": \"relu\"}]}";
    static const char *const pipes[] = {"--batch 7", "--batch 1", "--batch 2 --chunks 1",
                                        "--batch 5 --stages 3 --chunks 2 --schedule gpipe"};
    static float x[NUMBERS];
    struct cli_run run;
    char path[512], first[512];
    NEEDS_COMMAND;
    const char *folder = test_temporary_directory();
    for (int i = 0; i < NUMBERS; i++) x[i] = (float)(i * 7919 % 1000) / 100 * (float)(1 + i / 192);
    io_make_file(folder, "m.json", model, sizeof model - 1, path);
    data_make_npy(folder, "x.npy", "<f4", "7, 3, 8, 8", x, sizeof x);
    CLI_CODE(&run, 0, "init --model %s/m.json --out %s/w", folder, folder);
    snprintf(first, sizeof first, "%s/0.npy", folder);
    for (size_t i = 0; i < COUNT(pipes) && !test_has_failed(); i++) {
        snprintf(path, sizeof path, "%s/%zu.npy", folder, i);
        CLI_CODE(&run, 0, "predict --model %s/m.json --load %s/w --data %s/x.npy --out %s %s" PLACE,
                 folder, folder, folder, path, pipes[i]);
        if (!cli_same_files(first, path)) TEST_FAIL("with %s", pipes[i]);
    }
}

/* 64 MiB in and out, 16 KiB a row: memory stays that of a mini-batch. */
static void test_memory_does_not_grow_with_rows(void) {
    enum { WIDTH = 4096, FEW = 8, MANY = 4096 };
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [1, 64, 64]}, \"layers\": "
        "[{\"type\": \"batch_norm2d\"}, {\"type\": \"identity\"}]}";
    struct cli_run run;
    char path[512];
    NEEDS_COMMAND;
    float *x = calloc(MANY, WIDTH * sizeof *x);
    CHECK(x != NULL);
    const char *folder = test_temporary_directory();
    io_make_file(folder, "wide.json", model, sizeof model - 1, path);
    data_make_npy(folder, "few.npy", "<f4", "8, 1, 64, 64", x, FEW * WIDTH * sizeof *x);
    data_make_npy(folder, "many.npy", "<f4", "4096, 1, 64, 64", x, MANY * WIDTH * sizeof *x);
    free(x);
    CLI_CODE(&run, 0, "init --model %s/wide.json --out %s/w", folder, folder);
    long few = peak_of(folder, "few.npy"), many = peak_of(folder, "many.npy");
    if (few < 0 || many - few > 4 << 10) TEST_FAIL("peak %ld KiB, then %ld KiB", few, many);
}

/* ---- nothing is half-written ---- */

static void test_a_run_that_fails_leaves_the_old_file(void) {
    static const char model[] = "{\"input\": {\"dtype\": \"i64\", \"shape\": [4]}, \"layers\": "
                                "[{\"type\": \"embedding\", \"num_embeddings\": 64, "
                                "\"embedding_dim\": 2}]}";
    NEEDS_COMMAND;
    struct cli_run run;
    int64_t tokens[6 * 4] = {0};
    char path[512], *file;
    const char *folder = test_temporary_directory();
    io_make_file(folder, "m.json", model, sizeof model - 1, path);
    tokens[5 * 4] = 64; /* the last row names a token that there is not */
    data_make_npy(folder, "t.npy", "<i8", "6, 4", tokens, sizeof tokens);
    io_make_file(folder, "out.npy", "old", 3, path);
    CLI_CODE(&run, 0, "init --model %s/m.json --out %s/w", folder, folder);
    CLI_CODE(&run, 1,
             "predict --model %s/m.json --load %s/w --data %s/t.npy --out %s/out.npy --batch 2 "
             "--stages 1" PLACE,
             folder, folder, folder, folder);
    CHECK_CONTAINS(run.output, "weir: predict: ");
    CHECK_CONTAINS(run.output, "64");
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/out.npy", folder);
    file = cli_read(path, &bytes);
    EXPECT(bytes == 3 && memcmp(file, "old", 3) == 0);
    free(file);
    CHECK(test_shell(run.output, sizeof run.output, "ls %s/out.npy.partial", folder) != 0);
}

struct refusal {
    const char *options, *message;
};

static void test_what_cannot_be_predicted_is_refused(void) {
    static const struct refusal refusals[] = {
        {"", "--load is missing: give a file of weights"},
        {"--load w --data x.npy", "--out is missing: give FILE.npy"},
        {"--load w --out o", "--data is missing: give PATH..."},
        {"--load w --data x.npy --out -", "--out '-' is no file: give its name"},
        {"--load w --data x.npy --out /none/o", "--out /none/o: its folder: No such file"},
        {"--load w --data wide.npy --out o", "its samples are f32 [3], but the model's input is"},
        {"--load w --data a.npy b.npy --out o", "which one holds the inputs? Give that file alone"},
        {"--load w --data text --out o", "the data are text, bytes in rows, but the model takes"},
        {"--load w --data x.npy --out o --stages 9", "--stages 9: the model has 3 layers"},
    };
    NEEDS_COMMAND;
    struct cli_run run;
    static const float x[6] = {0};
    char path[512];
    const char *folder = test_temporary_directory();
    make_model(folder);
    io_make_file(folder, "text", "some text", 9, path);
    data_make_npy(folder, "x.npy", "<f4", "3, 2", x, sizeof x);
    data_make_npy(folder, "a.npy", "<f4", "3, 2", x, sizeof x);
    data_make_npy(folder, "b.npy", "<f4", "3, 2", x, sizeof x);
    data_make_npy(folder, "wide.npy", "<f4", "2, 3", x, sizeof x);
    for (size_t i = 0; i < COUNT(refusals); i++) {
        CLI(&run,
            "--version >/dev/null; cd %s && '%s/bin/weir' predict --model model.json %s 2>&1 "
            ">/dev/null",
            folder, test_install_prefix(), refusals[i].options);
        if (run.code != 2) TEST_FAIL("%s: exit code %d", refusals[i].options, run.code);
        EXPECT_CONTAINS(run.output, refusals[i].message);
    }
}

WEIR_TEST_SUITE(cli_predict, TEST(a_model_without_loss_predicts_rows_in_any_number),
                TEST(rows_that_are_no_numbers_are_told), TEST(images_come_out_in_the_files_order),
                TEST(a_folder_gives_the_inputs_that_names_mark),
                TEST(tokens_come_as_arrays_files_or_text), TEST(memory_does_not_grow_with_rows),
                TEST(rows_of_batch_norm_do_not_depend_on_their_neighbours),
                TEST(a_run_that_fails_leaves_the_old_file),
                TEST(what_cannot_be_predicted_is_refused))
