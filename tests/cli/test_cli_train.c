/* SPDX-License-Identifier: MIT */
/*
 * Goal: `weir train` does and reports what its page promises, from the first table to the last
 * file. Method: the installed command on a tiny model and text; what it wrote is read back.
 */
#include "cli/cli.h"
#include "io/data_files.h"
#include "io/io_faults.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- bits ---- */

/* Trains what `job` says in each of these ways, first by defaults alone: the same weights. */
static void expect_one_result(const char *job) {
    static const char *const ways[] = {"",
                                       "--stages 1",
                                       "--stages 2",
                                       "--threads-per-stage 1",
                                       "--stages 1 --threads-per-stage 2",
                                       "--threads-per-stage 3 --checkpoint never",
                                       "--stages 4 --threads-per-stage 4 --bind none"};
    struct cli_run run;
    const char *folder = test_temporary_directory();
    char first[512], path[512];
    snprintf(first, sizeof first, "%s/0", folder);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] && !test_has_failed(); i++) {
        snprintf(path, sizeof path, "%s/%zu", folder, i);
        CLI_CODE(&run, 0, "train %s %s --steps 3 --eval-batches 1 --sample 0 --save-weights %s",
                 job, ways[i], path);
        if (!cli_same_files(first, path)) TEST_FAIL("with %s", ways[i]);
    }
}

static void test_stages_and_threads_are_not_in_the_bits_of_a_gpt(void) {
    char job[512];
    snprintf(job, sizeof job, "--data %s --layers 2 --width 64 --heads 2 --context 48 --batch 16",
             cli_text());
    expect_one_result(job);
}

static void test_stages_and_threads_are_not_in_the_bits_of_a_unet(void) {
    char job[512], output[512];
    const char *folder = test_temporary_directory();
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    int made = test_shell(output, sizeof output, "'%s/examples/make_shapes' %s/shapes 40 9 32 3",
                          test_install_prefix(), folder);
    if (made != 0) SKIP("no installed examples: run by 'zig build test'");
    snprintf(job, sizeof job,
             "--data %s/shapes --model unet --depth 2 --num-convs 2 --base-channels 8 --batch 16 "
             "--chunks 2",
             folder);
    expect_one_result(job);
}

/* ---- what is reported ---- */

static void check_step(const json_t *line, uint32_t number) {
    CHECK_EQ_INT((int64_t)cli_number(line, "step"), number);
    double loss = cli_number(line, "loss");
    CHECK(loss > 0.5 && loss < 7.0);
    CHECK(cli_number(line, "grad_norm") > 0.0);
    CHECK(cli_number(line, "seconds") > 0.0);
    CHECK(cli_number(line, "tokens_per_second") > 0.0);
    double bubble = cli_number(line, "bubble"), hidden = cli_number(line, "recompute_hidden");
    CHECK(bubble >= 0.0 && bubble <= 1.0);
    CHECK(hidden >= 0.0 && hidden <= 1.0);
    /* 0.01 after four updates of warm-up, then half a cosine down to a tenth at update 30 */
    double want = number <= 4 ? 0.01 * number / 4
                              : 0.001 + 0.009 * 0.5 * (1 + cos(acos(-1.0) * (number - 5) / 25.0));
    CHECK_NEAR(cli_number(line, "lr"), want, 1e-15);
}

static void check_summary(const json_t *summary) {
    CHECK_EQ_INT((int64_t)cli_number(summary, "steps"), 30);
    double validation = cli_number(summary, "validation_loss");
    CHECK(validation > 0.1 && validation < log(256.0) - 1.0);
    CHECK(cli_number(summary, "bigram_loss") > 0.1);
    CHECK(cli_number(summary, "planned_bytes") > 0.0);
    CHECK(cli_number(summary, "peak_bytes") > cli_number(summary, "planned_bytes"));
    CHECK(cli_number(summary, "typical_step") > 0.0);
    CHECK(cli_number(summary, "predicted_step") > 0.0);
    CHECK(json_is_false(json_object_get(summary, "interrupted")));
    CHECK(json_is_string(json_object_get(summary, "kernels")));
}

static void check_checkpoint(const char *path, bool training) {
    struct weir__safetensors *file = cli_open(path);
    CHECK(file != NULL);
    uint32_t parameters = 2 * 12 + 5; /* per block, and wte, wpe, ln_f, lm_head */
    const char *step = weir__safetensors_metadata(file, "step");
    const struct weir__safetensor *state =
        weir__safetensors_find(file, "optimizer.h.1.mlp.c_fc.weight.exp_avg_sq");
    EXPECT_EQ_UINT(weir__safetensors_count(file), training ? 3 * parameters : parameters);
    EXPECT_EQ_STR(step, training ? "30" : NULL);
    EXPECT((state != NULL) == training);
    const struct weir__safetensor *head = weir__safetensors_find(file, "lm_head.weight");
    if (EXPECT(head != NULL && head->rank == 2)) {
        EXPECT_EQ_INT(head->shape[0], 256);
        EXPECT_EQ_INT(head->shape[1], 16);
    }
    weir__safetensors_close(file);
}

static void check_trace(const char *path) {
    json_t *trace = cli_json(path), *event;
    CHECK(trace != NULL);
    size_t index, slices = 0;
    json_array_foreach(json_object_get(trace, "traceEvents"), index, event) {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        if (phase == NULL || strcmp(phase, "X") != 0) continue;
        slices++;
        EXPECT(cli_number(event, "ts") >= 0.0 && cli_number(event, "dur") >= 0.0);
    }
    json_decref(trace);
    CHECK(slices > 2 * 3 * 2); /* stages, micro-batches, F and B */
}

static void test_a_run_reports_every_step_and_writes_its_files(void) {
    struct cli_run run;
    const char *text = cli_text(), *out = test_temporary_directory();
    char path[512];
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN
             " --data %s --steps 30 --warmup 4 --lr 0.01 --save %s/a --trace %s/t "
             "--save-weights %s/w --json %s/j --eval-every 15 --sample 20",
             text, out, out, out, out);
    CHECK_CONTAINS(run.output, "planned memory");
    CHECK_CONTAINS(run.output, "total");
    CHECK_CONTAINS(run.output, "15 validation ");
    CHECK_CONTAINS(run.output, "worker 0 |");
    CHECK_CONTAINS(run.output, "a bigram model of the same text");
    CHECK_CONTAINS(run.output, "\nsample\n");
    CHECK(strchr(run.output, '\033') == NULL); /* no colours where there is no terminal */
    snprintf(path, sizeof path, "%s/j", out);
    json_t *lines = cli_json_lines(path);
    EXPECT_EQ_UINT(json_array_size(lines), 31);
    for (uint32_t i = 0; i < 30; i++) check_step(json_array_get(lines, i), i + 1);
    check_summary(json_object_get(json_array_get(lines, 30), "summary"));
    json_decref(lines);
    CHECK_HELPERS();
    snprintf(path, sizeof path, "%s/a", out);
    check_checkpoint(path, true);
    snprintf(path, sizeof path, "%s/w", out);
    check_checkpoint(path, false);
    snprintf(path, sizeof path, "%s/t", out);
    check_trace(path);
    CHECK_HELPERS();
    CHECK(test_shell(run.output, sizeof run.output, "ls %s/*.partial", out) != 0);
}

static void test_standard_output_holds_nothing_but_the_json(void) {
    struct cli_run run;
    const char *text = cli_text();
    char path[512];
    snprintf(path, sizeof path, "%s/out", text);
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --data %s/0.txt --steps 3 --json - >%s", text, path);
    CHECK_CONTAINS(run.output, "validation "); /* the text for people: on stderr */
    json_t *lines = cli_json_lines(path);
    EXPECT_EQ_UINT(json_array_size(lines), 4);
    json_decref(lines);
    CLI_CODE(&run, 0, "train " CLI_TRAIN " --data %s/0.txt --steps 1 --trace - >%s", text, path);
    CHECK_CONTAINS(run.output, "validation ");
    check_trace(path);
    CLI_CODE(&run, 2, "train " CLI_TRAIN " --data %s/0.txt --trace - --json -", text);
    CHECK_CONTAINS(run.output, "only one of them can have stdout");
}

/* ---- data and length ---- */

static void test_data_default_to_the_projects_text(void) {
    struct cli_run run;
    const char *text = cli_text(), *empty = test_temporary_directory();
    CLI_CODE(&run, 2, "--version >/dev/null; cd %s; '%s/bin/weir' train " CLI_TRAIN, empty,
             test_install_prefix());
    CHECK_CONTAINS(run.output, "weir: train: no --data, and no project text");
    CLI_CODE(&run, 0,
             "--version >/dev/null; cd %s; mkdir src; cp %s/*.txt src; cp src/0.txt README.md; "
             "'%s/bin/weir' train " CLI_TRAIN " --steps 1",
             empty, text, test_install_prefix());
    CHECK_CONTAINS(run.output, "in 4 files");
}

static void test_epochs_become_updates(void) {
    struct cli_run run;
    const char *text = cli_text();
    /* 3 x 10,239 bytes, nine tenths to train on, a twentieth of those, 5 rows of 8 in 2
     * mini-batches per update */
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --data %s --epochs 0.05 --accumulate 2 --json - 2>/dev/null",
             text);
    CHECK_CONTAINS(run.output, "{\"step\":18,");
    CHECK_CONTAINS(run.output, "{\"summary\":{\"steps\":18,");
    CLI_CODE(&run, 2, "train " CLI_TRAIN " --data %s --epochs 1 --steps 1", text);
    CHECK_CONTAINS(run.output, "--epochs and --steps: give one of them");
}

static void test_a_seed_says_everything(void) {
    struct cli_run run;
    const char *text = cli_text();
    char path[4][512];
    for (uint32_t i = 0; i < 4; i++) {
        snprintf(path[i], sizeof path[i], "%s/a%u", text, i);
        CLI_CODE(&run, 0,
                 "train " CLI_TRAIN " --dropout 0.1 --data %s/1.txt --steps 4 --save %s %s", text,
                 path[i],
                 i == 2   ? "--seed 2"
                 : i == 3 ? "--lr 0.001"
                          : "--seed 1");
    }
    CHECK(cli_same_files(path[0], path[1]));
    test_expect_failures_begin();
    bool same = cli_same_files(path[0], path[2]) || cli_same_files(path[0], path[3]);
    test_expect_failures_end(NULL, 0);
    CHECK(!same);
}

/* ---- what goes wrong on the way ---- */

static void test_gradients_that_are_not_finite_stop_the_run_or_are_skipped(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 1,
             "train " CLI_TRAIN " --data %s/0.txt --steps 5 --lr 1e30 --save %s/a --json -", text,
             text);
    CHECK_CONTAINS(run.output, "weir: train: update 2: its gradient is not finite: layer 1 'h.0' "
                               "(gpt_block), forward ");
    CHECK_CONTAINS(run.output, ": lower --lr, or go on without it by --on-nonfinite skip");
    CHECK_CONTAINS(run.output, "{\"summary\":{\"steps\":1,\"failed\":\"update 2: ");
    CHECK_CONTAINS(run.output, "update 1, the last that was done, is in ");
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN
             " --data %s/0.txt --steps 3 --lr 1e30 --on-nonfinite skip --json %s/j",
             text, text);
    CHECK_CONTAINS(run.output, "gradient not finite: update skipped");
    /* the last one too */
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN
             " --data %s/0.txt --steps 2 --lr 1e30 --on-nonfinite skip --trace %s/t",
             text, text);
    CHECK_CONTAINS(run.output, "warning: update 2 is skipped, its gradient is not finite: layer ");
    CHECK_CONTAINS(run.output, "\nthe last update\nupdate 2: ");
}

/* Twelve rows that are alike, but for one of the bad ones, which is no number. */
static void make_rows(const char *folder, bool bad) {
    enum { ROWS = 12, WIDTH = 3 };
    float inputs[ROWS][WIDTH], targets[ROWS];
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < WIDTH; k++) inputs[i][k] = (float)(k + 1);
        targets[i] = 2.0f;
    }
    if (bad) inputs[4][1] = NAN;
    data_make_npy(folder, bad ? "bad_inputs.npy" : "good_inputs.npy", "<f4", "12, 3", inputs,
                  sizeof inputs);
    data_make_npy(folder, bad ? "bad_targets.npy" : "good_targets.npy", "<f4", "12, 1", targets,
                  sizeof targets);
}

static void test_held_out_data_that_hold_no_numbers_are_told(void) {
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [3]}, \"target\": {\"dtype\": \"f32\", "
        "\"shape\": [1]}, \"layers\": [{\"type\": \"linear\", \"out_features\": 1}], \"loss\": "
        "\"mse\"}";
    struct cli_run run;
    char path[600];
    const char *folder = test_temporary_directory();
    io_make_file(folder, "m.json", model, strlen(model), path);
    make_rows(folder, false);
    make_rows(folder, true);
    CLI_CODE(&run, 0,
             "train --model %s/m.json --data %s/good_inputs.npy %s/good_targets.npy --eval-data "
             "%s/bad_inputs.npy %s/good_targets.npy --batch 2 --stages 1 --bind none --steps 2 "
             "--eval-every 1 2>&1",
             folder, folder, folder, folder, folder);
    CHECK_CONTAINS(run.output, "warning: the validation's loss after update 1 is not finite: ");
    CHECK_CONTAINS(run.output, "warning: the validation's loss after update 2 is not finite: ");
}

/* As if it had never come, in the optimizer's corrections too, and over a resume: two passes over
 * the bad rows end as 22 updates with good ones. */
static void test_an_update_that_is_skipped_is_no_step(void) {
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [3]}, \"target\": {\"dtype\": \"f32\", "
        "\"shape\": [1]}, \"layers\": [{\"type\": \"linear\", \"out_features\": 1}], \"loss\": "
        "\"mse\"}";
    static const char options[] =
        "--batch 1 --chunks 1 --stages 1 --lr-schedule constant --warmup 0 --lr 0.01 "
        "--on-nonfinite skip --threads-per-stage 1 --bind none --log-every 1";
    static const char *const optimizers[] = {"adamw", "sgd --momentum 0.9 --nesterov"};
    struct cli_run run;
    char data[2][1200], weights[2][600], path[600];
    const char *folder = test_temporary_directory();
    io_make_file(folder, "m.json", model, strlen(model), path);
    for (int bad = 0; bad < 2; bad++) {
        make_rows(folder, bad == 1);
        const char *name = bad == 1 ? "bad" : "good";
        snprintf(data[bad], sizeof data[bad],
                 "--model %s/m.json --data %s/%s_inputs.npy %s/%s_targets.npy --eval-data "
                 "%s/good_inputs.npy %s/good_targets.npy",
                 folder, folder, name, folder, name, folder, folder);
        snprintf(weights[bad], sizeof weights[bad], "%s/w%d", folder, bad);
    }
    for (int i = 0; i < 2; i++) {
        CLI_CODE(&run, 0, "train %s %s --optimizer %s --steps 22 --save-weights %s", data[0],
                 options, optimizers[i], weights[0]);
        CLI_CODE(&run, 0, "train %s %s --optimizer %s --steps 24 --save-weights %s", data[1],
                 options, optimizers[i], weights[1]);
        CHECK_CONTAINS(run.output, "gradient not finite: update skipped");
        CHECK_CONTAINS(run.output, "is skipped, its gradient is not finite: sample 4 of ");
        CHECK_CONTAINS(run.output, "/bad_inputs.npy holds nan: mend the data\n");
        CHECK(cli_same_files(weights[0], weights[1]));
        CLI_CODE(&run, 0, "train %s %s --optimizer %s --steps 13 --save %s/c", data[1], options,
                 optimizers[i], folder);
        CLI_CODE(&run, 0, "train %s %s --optimizer %s --steps 24 --resume %s/c --save-weights %s",
                 data[1], options, optimizers[i], folder, weights[1]);
        CHECK(cli_same_files(weights[0], weights[1]));
    }
}

/* What went in, what the weights were, or the layer that made it, forward or backward; whatever the
 * stages and the mini-batch of an update. */
static void test_what_is_not_finite_is_traced_to_its_origin(void) {
    struct cli_run run;
    char path[600];
    const char *folder = test_temporary_directory();
    /* 1e25 is finite, its square is not; a product of 1e20 and the weight of the last layer neither
     */
    static const char model[] =
        "{\"input\": {\"dtype\": \"f32\", \"shape\": [3]}, \"target\": {\"dtype\": \"f32\", "
        "\"shape\": [1]}, \"layers\": [{\"type\": \"linear\", \"out_features\": 3}, "
        "{\"type\": \"relu\"}, {\"type\": \"linear\", \"out_features\": 1, \"name\": \"last\"}], "
        "\"loss\": \"mse\"}";
    static float weights[4][12] = {{1, 1, 1, 1, 1, 1, 1, 1, 1}, {0}, {1, 1, 1}, {0}};
    static const struct {
        float weight, value, bias; /* of the last layer, of the first input and of the last layer */
        const char *said;
    } cases[] = {
        {1, 0, NAN, "parameter 'last.bias' held nan before it: go on from an earlier checkpoint"},
        {1, INFINITY, 0, "/bad_inputs.npy holds inf: mend the data"},
        {1e38f, 1e20f, 0, "layer 2 'last' (linear), forward"},
        {1, 1e25f, 0, "layer 2 'last' (linear), backward of micro-batch "}, /* the loss is finite */
    };
    io_make_file(folder, "m.json", model, strlen(model), path);
    make_rows(folder, false);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float inputs[12][3] = {{0}};
        for (int k = 0; k < 12; k++) inputs[k][0] = cases[i].value;
        data_make_npy(folder, "bad_inputs.npy", "<f4", "12, 3", inputs, sizeof inputs);
        for (int k = 0; k < 3; k++) weights[2][k] = cases[i].weight;
        weights[3][0] = cases[i].bias;
        struct weir__io io = {.allocator = test_allocator()};
        struct weir__safetensors_item items[] = {
            {.name = "0.weight", .dtype = WEIR_F32, .rank = 2, .shape = {3, 3}, .data = weights[0]},
            {.name = "0.bias", .dtype = WEIR_F32, .rank = 1, .shape = {3}, .data = weights[1]},
            {.name = "last.weight", .rank = 2, .shape = {1, 3}, .data = weights[2]},
            {.name = "last.bias", .rank = 1, .shape = {1}, .data = weights[3]}};
        snprintf(path, sizeof path, "%s/w", folder);
        CHECK_STATUS(weir__safetensors_save(&io, path, items, 4, NULL, 0), WEIR_OK);
        for (int stages = 1; stages <= 2; stages++) {
            CLI_CODE(
                &run, 1,
                "train --model %s/m.json --data %s/bad_inputs.npy %s/good_targets.npy --batch 2 "
                "--accumulate 2 --load %s/w --stages %d --threads-per-stage 1 --bind none",
                folder, folder, folder, folder, stages);
            CHECK_CONTAINS(run.output, "update 1: its gradient is not finite: ");
            CHECK_CONTAINS(strstr(run.output, "weir: train: update"), cases[i].said);
        }
    }
}

/* The last update leaves weights that nothing can be drawn with. */
static void test_a_sample_that_fails_is_no_failure_of_the_run(void) {
    struct cli_run run;
    char path[512];
    const char *text = cli_text();
    snprintf(path, sizeof path, "%s/j", text);
    CLI_CODE(&run, 0,
             "train " CLI_TRAIN " --data %s/0.txt --steps 1 --lr 1e38 --warmup 0 --sample 9 "
             "--json %s",
             text, path);
    CHECK_CONTAINS(run.output, "no sample: the model's output is not finite: its weights are");
    json_t *lines = cli_json_lines(path);
    EXPECT_EQ_UINT(json_array_size(lines), 2); /* a step and one summary */
    json_decref(lines);
}

/* Starts a run whose JSON fills a pipe; it is under way when the first line comes. */
static pid_t start_endless(int ends[2], const char *text, char first[16]) {
    if (pipe(ends) != 0) return -1;
    pid_t process =
        cli_start(ends[1],
                  "train " CLI_TRAIN " --data %s/0.txt --steps 100000000 --lr 1e-6 --save "
                  "%s/a --json -",
                  text, text);
    close(ends[1]);
    if (process > 0 && read(ends[0], first, 8) != 8) TEST_FAIL("no first line");
    first[8] = '\0';
    return process;
}

static void test_an_interrupt_ends_the_step_and_saves(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *text = cli_text();
    char first[16] = "", path[512], *last;
    static char output[1 << 22];
    int ends[2];
    pid_t process = start_endless(ends, text, first);
    CHECK(process > 0);
    EXPECT_EQ_STR(first, "{\"step\":");
    kill(process, SIGINT);
    size_t used = 0;
    ssize_t got;
    while (used + 1 < sizeof output &&
           (got = read(ends[0], output + used, sizeof output - 1 - used)) > 0)
        used += (size_t)got;
    output[used] = '\0';
    close(ends[0]);
    CHECK_EQ_INT(cli_wait(process), 130);
    snprintf(path, sizeof path, "%s/a", text);
    int64_t saved = cli_saved_step(path);
    CHECK(saved >= 1);
    CHECK((last = strstr(output, "{\"summary\":")) != NULL);
    CHECK_CONTAINS(last, "\"interrupted\":true");
    char line[64];
    snprintf(line, sizeof line, "{\"summary\":{\"steps\":%lld,", (long long)saved);
    CHECK_CONTAINS(last, line);
}

/* To the last byte, so that the next line that somebody writes waits. */
static void fill_pipe(int end) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", end);
    int writes = open(path, O_WRONLY | O_NONBLOCK);
    CHECK(writes >= 0);
    while (write(writes, "\n", 1) == 1) continue;
    close(writes);
}

static void test_a_second_interrupt_ends_at_once(void) {
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    const char *text = cli_text();
    char first[16] = "", path[512];
    int ends[2];
    pid_t process = start_endless(ends, text, first);
    CHECK(process > 0);
    fill_pipe(ends[0]);
    cli_sleep_ms(1000); /* it writes its next step, which nobody reads: it cannot end */
    kill(process, SIGINT);
    cli_sleep_ms(100);
    kill(process, SIGINT);
    CHECK_EQ_INT(cli_wait(process), 130);
    close(ends[0]);
    snprintf(path, sizeof path, "%s/a", text);
    CHECK_EQ_INT(cli_saved_step(path), -1);
}

/* One stage has the embedding alone, the other one everything else. */
static void test_a_worker_with_little_to_do_is_explained(void) {
    struct cli_run run;
    CLI_CODE(&run, 0,
             "train --layers 2 --width 64 --heads 2 --context 32 --threads-per-stage 1 --bind none "
             "--batch 8 --eval-batches 1 --sample 0 --data %s/0.txt --steps 3 --balance 1,3",
             cli_text());
    CHECK_CONTAINS(run.output, "uneven      worker 0 is busy ");
    CHECK_CONTAINS(run.output, "the model has few layers to divide, and a layer");
}

WEIR_TEST_SUITE(cli_train, TEST(stages_and_threads_are_not_in_the_bits_of_a_gpt),
                TEST(stages_and_threads_are_not_in_the_bits_of_a_unet),
                TEST(a_worker_with_little_to_do_is_explained),
                TEST(held_out_data_that_hold_no_numbers_are_told),
                TEST(a_run_reports_every_step_and_writes_its_files),
                TEST(standard_output_holds_nothing_but_the_json),
                TEST(data_default_to_the_projects_text), TEST(epochs_become_updates),
                TEST(a_seed_says_everything),
                TEST(gradients_that_are_not_finite_stop_the_run_or_are_skipped),
                TEST(an_update_that_is_skipped_is_no_step),
                TEST(what_is_not_finite_is_traced_to_its_origin),
                TEST(a_sample_that_fails_is_no_failure_of_the_run),
                TEST(an_interrupt_ends_the_step_and_saves), TEST(a_second_interrupt_ends_at_once))
