/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir init` and `weir grad` read and write what other programs rely on: names, shapes,
 * dtypes, masks; ragged rows change nothing; files that do not fit are refused with every fault.
 * Method: the installed command on a tiny GPT; its files are read back.
 */
#include "cli/cli.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GPT CLI_MODEL " --vocab 32"

/* ---- names ---- */

struct expected {
    const char *name;
    uint32_t rank;
    int64_t shape[3];
};

/* Hugging Face's names and shapes; of blocks, one. */
static const struct expected parameters[] = {
    {"wte.weight", 2, {32, 16}},
    {"wpe.weight", 2, {8, 16}},
    {"h.1.ln_1.weight", 1, {16}},
    {"h.1.ln_1.bias", 1, {16}},
    {"h.1.attn.c_attn.weight", 2, {16, 48}},
    {"h.1.attn.c_attn.bias", 1, {48}},
    {"h.1.attn.c_proj.weight", 2, {16, 16}},
    {"h.1.attn.c_proj.bias", 1, {16}},
    {"h.1.ln_2.weight", 1, {16}},
    {"h.1.ln_2.bias", 1, {16}},
    {"h.1.mlp.c_fc.weight", 2, {16, 64}},
    {"h.1.mlp.c_fc.bias", 1, {64}},
    {"h.1.mlp.c_proj.weight", 2, {64, 16}},
    {"h.1.mlp.c_proj.bias", 1, {16}},
    {"ln_f.weight", 1, {16}},
    {"ln_f.bias", 1, {16}},
    {"lm_head.weight", 2, {32, 16}},
};
enum { PARAMETERS = sizeof parameters / sizeof parameters[0], PARAMETERS_ALL = PARAMETERS + 12 };

static void check_tensor(const struct weir__safetensors *file, const char *prefix,
                         const struct expected *want, enum weir_dtype dtype) {
    char name[64];
    snprintf(name, sizeof name, "%s%s", prefix, want->name);
    const struct weir__safetensor *tensor = weir__safetensors_find(file, name);
    if (tensor == NULL) {
        TEST_FAIL("no tensor %s", name);
        return;
    }
    if (tensor->dtype != dtype || tensor->rank != want->rank)
        TEST_FAIL("%s: %s of rank %u", name, tensor->dtype_name, tensor->rank);
    for (uint32_t d = 0; d < want->rank && d < tensor->rank; d++)
        EXPECT_EQ_INT(tensor->shape[d], want->shape[d]);
}

static void check_gradients(const char *path, enum weir_dtype dtype, bool masks) {
    static const struct expected loss = {"loss", 0, {0}}, output = {"output", 3, {5, 8, 32}};
    static const struct expected mask[] = {{"0.0", 3, {5, 8, 16}},
                                           {"h.0.0", 3, {5, 8, 16}},
                                           {"h.0.1", 3, {5, 8, 16}},
                                           {"h.1.0", 3, {5, 8, 16}},
                                           {"h.1.1", 3, {5, 8, 16}}};
    struct weir__safetensors *file = cli_open(path);
    CHECK(file != NULL);
    EXPECT_EQ_UINT(weir__safetensors_count(file), PARAMETERS_ALL + 2 + (masks ? 5 : 0));
    check_tensor(file, "", &loss, dtype);
    check_tensor(file, "", &output, dtype);
    for (uint32_t i = 0; i < PARAMETERS; i++) check_tensor(file, "grad.", &parameters[i], dtype);
    for (uint32_t i = 0; masks && i < 5; i++) check_tensor(file, "mask.", &mask[i], WEIR_U8);
    weir__safetensors_close(file);
}

static void test_files_hold_the_promised_names_shapes_and_dtypes(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char data[512], path[512];
    cli_make_data(folder, "d", 5, 5, data);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --context 8 --vocab 32 --out %s/w",
             folder);
    snprintf(path, sizeof path, "%s/w", folder);
    struct weir__safetensors *file = cli_open(path);
    CHECK(file != NULL);
    EXPECT_EQ_UINT(weir__safetensors_count(file), PARAMETERS_ALL);
    for (uint32_t i = 0; i < PARAMETERS; i++) check_tensor(file, "", &parameters[i], WEIR_F32);
    weir__safetensors_close(file);
    snprintf(path, sizeof path, "%s/g", folder);
    CLI_CODE(&run, 0, "grad " GPT " --weights %s/w --data %s --out %s", folder, data, path);
    check_gradients(path, WEIR_F32, false);
    CLI_CODE(&run, 0,
             "grad " GPT " --dtype f64 --dropout 0.5 --masks --weights %s/w --data %s --out %s",
             folder, data, path);
    check_gradients(path, WEIR_F64, true);
}

static void test_init_depends_on_the_seed_alone(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char a[512], b[512], c[512];
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    snprintf(c, sizeof c, "%s/c", folder);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --seed 7 --out %s", a);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --seed 7 --out %s", b);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --out %s", c);
    CHECK(cli_same_files(a, b));
    test_expect_failures_begin();
    bool same = cli_same_files(a, c);
    test_expect_failures_end(NULL, 0);
    CHECK(!same);
    CLI_CODE(&run, 2, "init --out -");
    CHECK_CONTAINS(run.output, "weir: init: --out '-' is no file: give its name");
    CLI_CODE(&run, 2, "init --width 30 --heads 4");
    CHECK_CONTAINS(run.output, "--out is missing");
    CHECK_CONTAINS(run.output, "--width 30 is not a multiple of --heads 4");
}

/* ---- numbers ---- */

static double largest_difference(const char *left, const char *right) {
    struct weir__safetensors *a = cli_open(left), *b = cli_open(right);
    double worst = a == NULL || b == NULL ? INFINITY : 0.0;
    for (uint32_t i = 0; worst < INFINITY && i < weir__safetensors_count(a); i++) {
        const struct weir__safetensor *x = weir__safetensors_get(a, i);
        const struct weir__safetensor *y = weir__safetensors_find(b, x->name);
        double difference = 0.0, norm = 0.0, p, q;
        if (!EXPECT(y != NULL && y->bytes == x->bytes && x->dtype == WEIR_F64)) break;
        for (size_t at = 0; at < x->bytes; at += sizeof p) {
            memcpy(&p, (const char *)x->data + at, sizeof p);
            memcpy(&q, (const char *)y->data + at, sizeof q);
            difference += (p - q) * (p - q);
            norm += p * p;
        }
        worst = fmax(worst, norm > 0.0 ? sqrt(difference / norm) : difference);
    }
    weir__safetensors_close(a);
    weir__safetensors_close(b);
    return worst;
}

// MB-1
static void test_ragged_rows_give_the_gradient_of_the_whole(void) {
    static const char *const chunks[] = {"2", "3", "4", "5", "9"};
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char data[512], whole[512], cut[512];
    cli_make_data(folder, "d", 7, 7, data);
    snprintf(whole, sizeof whole, "%s/whole", folder);
    snprintf(cut, sizeof cut, "%s/cut", folder);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --context 8 --vocab 32 --out %s/w",
             folder);
    CLI_CODE(&run, 0,
             "grad " GPT
             " --dtype f64 --dropout 0.3 --stages 1 --chunks 1 --weights %s/w --data %s "
             "--out %s",
             folder, data, whole);
    for (uint32_t i = 0; i < 5; i++) {
        CLI_CODE(&run, 0,
                 "grad " GPT " --dtype f64 --dropout 0.3 --stages 3 --chunks %s --weights %s/w "
                 "--data %s --out %s --schedule %s",
                 chunks[i], folder, data, cut, i % 2 == 0 ? "gpipe" : "1f1b");
        double difference = largest_difference(whole, cut);
        if (!(difference < 1e-12)) TEST_FAIL("%s chunks differ by %.3g", chunks[i], difference);
    }
}

/* Each backward of 1F1B in two; the second part at its end, or as late as can be. */
static void test_split_backwards_give_the_same_bytes(void) {
    static const char *const tables[] = {
        "0F0,0F1,0F2,0I0,0W0,0I1,0W1,0I2,0W2\n1F0,1I0,1W0,1F1,1I1,1W1,1F2,1I2,1W2\n",
        "0F0,0F1,0F2,0I0,0I1,0I2,0W0,0W1,0W2\n1F0,1I0,1F1,1I1,1F2,1I2,1W0,1W1,1W2\n",
        "0F0,0F1,0F2,0B0,0I1,0W1,0B2\n1F0,1I0,1F1,1W0,1B1,1F2,1I2,1W2\n"};
    static const char *const modes[] = {"always", "except_last", "never"};
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char data[512], whole[512], split[512];
    cli_make_data(folder, "d", 5, 5, data);
    snprintf(whole, sizeof whole, "%s/whole", folder);
    snprintf(split, sizeof split, "%s/split", folder);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --context 8 --vocab 32 --out %s/w",
             folder);
    CLI_CODE(&run, 0,
             "grad " GPT " --dropout 0.3 --stages 2 --chunks 3 --schedule 1f1b --weights %s/w "
             "--data %s --out %s",
             folder, data, whole);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK(test_shell(run.output, sizeof run.output, "printf '%s' >%s/t.csv", tables[i],
                         folder) == 0);
        CLI_CODE(&run, 0,
                 "grad " GPT " --dropout 0.3 --stages 2 --chunks 3 --schedule %s/t.csv "
                 "--checkpoint %s --weights %s/w --data %s --out %s",
                 folder, modes[i], folder, data, split);
        CHECK(cli_same_files(whole, split));
    }
}

/* The bytes of a mask, whose values are 0 and 1; how many are kept into `kept`. */
static const uint8_t *find_mask(const struct weir__safetensors *file, const char *name,
                                size_t *kept) {
    const struct weir__safetensor *mask = weir__safetensors_find(file, name);
    *kept = 0;
    if (!EXPECT(mask != NULL && mask->bytes == 5 * 8 * 16)) return NULL;
    const uint8_t *bytes = mask->data;
    for (size_t i = 0; i < mask->bytes; i++) {
        if (!EXPECT(bytes[i] <= 1)) return NULL;
        *kept += bytes[i];
    }
    return bytes;
}

static void test_masks_depend_on_the_seed_alone(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char data[512], path[3][512];
    struct weir__safetensors *file[3];
    cli_make_data(folder, "d", 5, 5, data);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --context 8 --vocab 32 --out %s/w",
             folder);
    for (uint32_t i = 0; i < 3; i++) {
        snprintf(path[i], sizeof path[i], "%s/g%u", folder, i);
        CLI_CODE(&run, 0,
                 "grad " GPT " --dropout 0.25 --masks --weights %s/w --data %s --out %s %s", folder,
                 data, path[i],
                 i == 0   ? "--chunks 1 --stages 1 --seed 4"
                 : i == 1 ? "--chunks 3 --stages 4 --seed 4 --checkpoint always"
                          : "--chunks 3 --stages 4 --seed 5");
    }
    for (uint32_t i = 0; i < 3; i++) file[i] = cli_open(path[i]);
    if (file[0] != NULL && file[1] != NULL && file[2] != NULL) {
        size_t kept[4];
        const uint8_t *a = find_mask(file[0], "mask.h.1.0", &kept[0]);
        const uint8_t *b = find_mask(file[1], "mask.h.1.0", &kept[1]);
        const uint8_t *c = find_mask(file[2], "mask.h.1.0", &kept[2]);
        const uint8_t *d = find_mask(file[0], "mask.h.1.1", &kept[3]);
        /* 640 draws of 0.75: five standard deviations are 55 */
        for (uint32_t i = 0; i < 4; i++) EXPECT(kept[i] > 480 - 55 && kept[i] < 480 + 55);
        EXPECT(a != NULL && b != NULL && memcmp(a, b, 640) == 0);
        EXPECT(a != NULL && c != NULL && memcmp(a, c, 640) != 0);
        EXPECT(a != NULL && d != NULL && memcmp(a, d, 640) != 0);
    }
    for (uint32_t i = 0; i < 3; i++) weir__safetensors_close(file[i]);
}

/* ---- refusals ---- */

static void test_weights_that_do_not_fit_are_refused_with_every_fault(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char data[512];
    cli_make_data(folder, "d", 5, 5, data);
    CLI_CODE(&run, 0, "init --layers 3 --width 16 --heads 2 --context 8 --vocab 48 --out %s/w",
             folder);
    CLI_CODE(&run, 2, "grad " GPT " --weights %s/w --data %s --out %s/g", folder, data, folder);
    CHECK_CONTAINS(run.output,
                   "/w: tensor 'wte.weight' is F32 [48, 16], but the model has f32 [32, "
                   "16]");
    CHECK_CONTAINS(run.output, "/w: tensor 'lm_head.weight' is F32 [48, 16]");
    CHECK_CONTAINS(run.output, "/w: tensor 'h.2.ln_1.weight' F32 [16] is not the model's");
    CLI_CODE(&run, 2, "grad " GPT " --layers 4 --weights %s/w --data %s --out %s/g", folder, data,
             folder);
    CHECK_CONTAINS(run.output, "/w: tensor 'h.3.mlp.c_proj.bias' f32 [16] is missing");
    CHECK(test_shell(run.output, sizeof run.output, "ls %s/g", folder) != 0);
}

static void test_data_that_do_not_fit_are_refused_with_every_fault(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char data[512];
    cli_make_data(folder, "d", 5, 4, data);
    CLI_CODE(&run, 2, "grad " GPT " --weights %s --data %s --out /none/g --stages 9 --schedule x",
             data, data);
    CHECK_CONTAINS(run.output, "input has 5 rows, target 4");
    CHECK_CONTAINS(run.output, "--out /none/g: its folder: No such file");
    CHECK_CONTAINS(run.output, "--stages 9: the model has 4 layers: choose 1 to 4");
    CHECK_CONTAINS(run.output, "there is no schedule 'x'");
    CLI_CODE(&run, 2, "grad " GPT " --context 6 --weights %s --data %s --out %s/g", data, data,
             folder);
    CHECK_CONTAINS(run.output, "'input' is I64 [5, 8], the model takes rows of i64 [6]");
    CHECK_CONTAINS(run.output, "'target' is I64 [4, 8], the model takes rows of i64 [6]");
    CLI_CODE(&run, 2, "grad " GPT);
    CHECK_CONTAINS(run.output, "--weights is missing");
    CHECK_CONTAINS(run.output, "--data is missing");
    CHECK_CONTAINS(run.output, "--out is missing");
    CLI_CODE(&run, 2, "grad " GPT " --weights /none/w --data /none/d --out %s/g", folder);
    CHECK_CONTAINS(run.output, "--weights /none/w: No such file");
    CHECK_CONTAINS(run.output, "cannot open /none/d: No such file");
}

// PI-8
static void test_a_failure_names_stage_micro_batch_phase_and_layer(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char data[512];
    cli_make_data(folder, "d", 5, 5, data);
    /* the data hold tokens up to 31 */
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --context 8 --vocab 31 --out %s/w",
             folder);
    CLI_CODE(&run, 1,
             "grad " CLI_MODEL " --vocab 31 --weights %s/w --data %s --out %s/g --chunks 5", folder,
             data, folder);
    CHECK_CONTAINS(run.output, "weir: grad: stage ");
    CHECK_CONTAINS(run.output, ", micro-batch ");
    CHECK_CONTAINS(run.output, ", forward");
    CHECK_CONTAINS(run.output, ", layer ");
    CHECK_CONTAINS(run.output, "is 31, which is outside [0, 31)");
    CHECK(test_shell(run.output, sizeof run.output, "ls %s/g*", folder) != 0);
}

static void test_a_result_that_cannot_be_written_leaves_nothing(void) {
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char data[512];
    cli_make_data(folder, "d", 5, 5, data);
    CLI_CODE(&run, 0, "init --layers 2 --width 16 --heads 2 --context 8 --vocab 32 --out %s/w",
             folder);
    CLI_CODE(&run, 1, "grad " GPT " --weights %s/w --data %s --out /dev/full", folder, data);
    CHECK_CONTAINS(run.output, "weir: grad: cannot write /dev/full: No space left on device");
    CLI_CODE(&run, 2, "grad " GPT " --weights %s/w --data %s --out %s", folder, data, folder);
    CHECK_CONTAINS(run.output, "is a folder: give a file in it");
}

WEIR_TEST_SUITE(cli_grad, TEST(files_hold_the_promised_names_shapes_and_dtypes),
                TEST(init_depends_on_the_seed_alone),
                TEST(ragged_rows_give_the_gradient_of_the_whole),
                TEST(split_backwards_give_the_same_bytes), TEST(masks_depend_on_the_seed_alone),
                TEST(weights_that_do_not_fit_are_refused_with_every_fault),
                TEST(data_that_do_not_fit_are_refused_with_every_fault),
                TEST(a_failure_names_stage_micro_batch_phase_and_layer),
                TEST(a_result_that_cannot_be_written_leaves_nothing))
