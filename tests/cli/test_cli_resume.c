/* SPDX-License-Identifier: MIT */
/*
 * Goal: a resumed run ends with the same bytes as one that never stopped. Method: runs are killed
 * by SIGKILL after a known step, and resumed, also over other stages; files are compared. Kills at
 * random moments: test_cli_kill.c.
 */
#include "cli/cli.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Updates of several mini-batches, clipped, with dropout, of ragged micro-batches. */
#define TRAIN                                                                                      \
    "train " CLI_TRAIN                                                                             \
    " --dropout 0.1 --accumulate 2 --clip 0.5 --warmup 3 --lr 0.01 --data %s/0.txt"
#define SGD "--optimizer sgd --momentum 0.9 --nesterov --weight-decay 0.01"

/* Starts a run of 20 updates and kills it after the checkpoint of the tenth. Its JSON, some 200
 * bytes per update, goes into a pipe with room for 3 KiB that nobody reads, so it cannot get much
 * further, and never to its end. */
static void kill_after_ten(const char *text, const char *options, const char *path) {
    static const char filled[1024];
    int ends[2];
    CHECK(pipe(ends) == 0);
    CHECK(fcntl(ends[1], F_SETPIPE_SZ, 4096) >= 0);
    CHECK_EQ_INT(write(ends[1], filled, sizeof filled), sizeof filled);
    pid_t process = cli_start(ends[1], TRAIN " --steps 20 %s --save %s --save-every 10 --json -",
                              text, options, path);
    close(ends[1]);
    CHECK(process > 0);
    for (uint32_t i = 0; i < 1000 && access(path, F_OK) != 0; i++) cli_sleep_ms(20);
    kill(process, SIGKILL);
    EXPECT_EQ_INT(cli_wait(process), 128 + SIGKILL);
    close(ends[0]);
    EXPECT_EQ_INT(cli_saved_step(path), 10);
}

/* The lines of a resumed run are those of the straight one from step 11 on. */
static void check_same_losses(const char *straight, const char *resumed) {
    json_t *all = cli_json_lines(straight), *rest = cli_json_lines(resumed);
    EXPECT_EQ_UINT(json_array_size(all), 21);
    EXPECT_EQ_UINT(json_array_size(rest), 11);
    for (uint32_t i = 0; i < 10; i++) {
        const json_t *a = json_array_get(all, 10 + i), *b = json_array_get(rest, i);
        EXPECT(cli_number(a, "step") == cli_number(b, "step"));
        EXPECT(cli_number(a, "loss") == cli_number(b, "loss"));
        EXPECT(cli_number(a, "grad_norm") == cli_number(b, "grad_norm"));
        EXPECT(cli_number(a, "lr") == cli_number(b, "lr"));
    }
    const json_t *a = json_object_get(json_array_get(all, 20), "summary");
    const json_t *b = json_object_get(json_array_get(rest, 10), "summary");
    EXPECT(cli_number(a, "validation_loss") == cli_number(b, "validation_loss"));
    json_decref(all);
    json_decref(rest);
}

static void check_resumes(const char *options, const char *const *variants, uint32_t count) {
    struct cli_run run;
    const char *text = cli_text();
    char straight[512], half[512], lines[512];
    snprintf(straight, sizeof straight, "%s/straight", text);
    snprintf(half, sizeof half, "%s/half", text);
    snprintf(lines, sizeof lines, "%s/straight.json", text);
    CLI_CODE(&run, 0, TRAIN " --steps 20 %s --save %s --json %s", text, options, straight, lines);
    kill_after_ten(text, options, half);
    CHECK_HELPERS();
    for (uint32_t i = 0; i < count; i++) {
        char again[512], own[512];
        snprintf(again, sizeof again, "%s/again%u", text, i);
        snprintf(own, sizeof own, "%s/again%u.json", text, i);
        CLI_CODE(&run, 0, TRAIN " --steps 20 %s %s --resume %s --save %s --json %s", text, options,
                 variants[i], half, again, own);
        CHECK_CONTAINS(run.output, "after 10 updates");
        if (!cli_same_files(straight, again)) TEST_FAIL("resumed with %s", variants[i]);
        check_same_losses(lines, own);
        CHECK_HELPERS();
    }
}

static void test_resuming_gives_the_same_bytes_whatever_the_stages(void) {
    static const char *const variants[] = {"",
                                           "--stages 1 --checkpoint always",
                                           "--stages 3 --checkpoint never",
                                           "--stages 4 --workers 2 --recompute late",
                                           "--stages 3 --workers 1 --checkpoint always",
                                           "--balance 1,3 --wait park"};
    check_resumes("--checkpoint except_last", variants, 6);
}

static void test_resuming_works_for_momentum_too(void) {
    static const char *const variants[] = {"--stages 2", "--stages 4 --checkpoint always"};
    check_resumes(SGD " --schedule gpipe", variants, 2);
}

static void test_a_resumed_run_refuses_what_cannot_go_on(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE(&run, 0, TRAIN " --steps 4 --save %s/a --save-weights %s/w --seed 5", text, text,
             text);
    CLI_CODE(&run, 2, TRAIN " --steps 3 --resume %s/a", text, text);
    CHECK_CONTAINS(run.output, "--steps 3: ");
    CHECK_CONTAINS(run.output, "has done 4: give more");
    CLI_CODE(&run, 2, TRAIN " --steps 9 --resume %s/a --seed 6", text, text);
    CHECK_CONTAINS(run.output, "was trained with seed 5: leave --seed away");
    CLI_CODE(&run, 2, TRAIN " --steps 9 --resume %s/a --seed 6 --optimizer sgd", text, text);
    CHECK_CONTAINS(run.output, "was trained with seed 5: leave --seed away");
    CHECK_CONTAINS(run.output, "--optimizer is sgd, but ");
    CLI_CODE(&run, 2, TRAIN " --steps 9 --resume %s/a --width 24 --optimizer sgd", text, text);
    CHECK_CONTAINS(run.output, "'wpe.weight' is F32 [8, 16], but the model has f32 [8, 24]");
    CHECK_CONTAINS(run.output, "--optimizer is sgd, but ");
    CHECK_CONTAINS(run.output, "/a was trained with adamw, and its state is of no use to this one");
    CHECK(strstr(run.output, "'optimizer.") == NULL); /* that says it once */
    CLI_CODE(&run, 2, TRAIN " --steps 9 --resume %s/a --seed 5 --optimizer sgd", text, text);
    CHECK(strstr(run.output, "--seed") == NULL);
    CLI_CODE(&run, 2, TRAIN " --steps 9 --resume %s/w", text, text);
    CHECK_CONTAINS(run.output, "metadata 'step' is missing: give a training checkpoint, not");
    CHECK(strstr(run.output, "optimizer.") == NULL);
    CLI_CODE(&run, 0, TRAIN " --steps 4 --resume %s/a --save %s/b", text, text, text);
    CLI_CODE(&run, 0, TRAIN " --steps 4 --save %s/s --optimizer sgd --momentum 0.5", text, text);
    CLI_CODE(&run, 2, TRAIN " --steps 5 --resume %s/s --optimizer sgd", text, text);
    CHECK_CONTAINS(run.output, "--momentum is 0, but ");
    CHECK_CONTAINS(run.output, ": give --momentum 0.5, or start anew from its weights with --load");
    CLI_CODE(&run, 0, TRAIN " --steps 5 --resume %s/s --optimizer sgd --momentum 0.6", text, text);
    CHECK_CONTAINS(run.output, "--momentum is 0.6, but ");
    CLI_CODE(&run, 2, TRAIN " --steps 9 --resume %s/a --freeze 'h.0.*'", text, text);
    CHECK_CONTAINS(run.output, "/a was trained with other frozen parameters ('h.0.");
    CHECK_CONTAINS(run.output, "' learned): leave --freeze as it was, or start anew from its ");
    CHECK(strstr(run.output, "'optimizer.") == NULL);
    CLI_CODE(&run, 0, TRAIN " --steps 1 --freeze 'h.0.*' --save %s/f", text, text);
    CLI_CODE(&run, 0, TRAIN " --steps 2 --freeze 'h.0.*' --resume %s/f", text, text);
    CLI_CODE(&run, 2, TRAIN " --steps 3 --resume %s/f", text, text);
    CHECK_CONTAINS(run.output, "' was frozen): leave --freeze as it was");
    char a[512], b[512];
    snprintf(a, sizeof a, "%s/a", text);
    snprintf(b, sizeof b, "%s/b", text);
    CHECK(cli_same_files(a, b));
}

/* The rates of a cosine follow from its end; a constant rate has none. */
static void test_more_steps_are_a_matter_of_the_learning_rate(void) {
    struct cli_run run;
    const char *text = cli_text();
    char half[512];
    snprintf(half, sizeof half, "%s/half", text);
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'");
    kill_after_ten(text, "", half);
    CHECK_HELPERS();
    CLI_CODE(&run, 0, TRAIN " --steps 20 --resume %s --save %s/b", text, half, text);
    CHECK(strstr(run.output, "warning") == NULL);
    CLI_CODE(&run, 0, TRAIN " --steps 40 --resume %s --save %s/b", text, half, text);
    CHECK_CONTAINS(run.output,
                   "/half was trained with 20, and the cosine of the learning rate ends there: "
                   "update 11's is 0.009186 instead of 0.006378: this run will not be bit for bit");
    CLI_CODE(&run, 0, TRAIN " --steps 42 --resume %s/b", text, text);
    CHECK_CONTAINS(run.output, "--steps is 42, but ");
    CHECK_CONTAINS(run.output, "it had come to its end and is 0.00");
    /* in the warm-up there is no cosine yet, and rates that differ little differ in print */
    CLI_CODE(&run, 0, TRAIN " --steps 2 --save %s/c", text, text);
    CLI_CODE(&run, 0, TRAIN " --steps 3 --resume %s/c", text, text);
    CHECK(strstr(run.output, "warning") == NULL);
    CLI_CODE(&run, 0, TRAIN " --steps 20 --save-every 3 --keep 9 --save %s/d", text, text);
    CLI_CODE(&run, 0, TRAIN " --steps 21 --resume %s/d-3 --save %s/e", text, text, text);
    CHECK_CONTAINS(run.output, ": update 5's is 0.009");
    CLI_CODE(&run, 0, TRAIN " --steps 2 --lr-schedule constant --save %s/c", text, text);
    CLI_CODE(&run, 0, TRAIN " --steps 4 --lr-schedule constant --resume %s/c", text, text);
    CHECK(strstr(run.output, "warning") == NULL);
}

WEIR_TEST_SUITE(cli_resume, TEST(resuming_gives_the_same_bytes_whatever_the_stages),
                TEST(resuming_works_for_momentum_too),
                TEST(a_resumed_run_refuses_what_cannot_go_on),
                TEST(more_steps_are_a_matter_of_the_learning_rate))
