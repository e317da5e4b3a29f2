/* SPDX-License-Identifier: MIT */
/*
 * Goal: a run's checkpoints are where they were asked for, the newest and the best of them, and
 * nothing else is written or removed; a save that fails is told and fails the run, but does not
 * stop it. Method: the installed command on a tiny model; files are listed, read and compared.
 */
#include "cli/cli.h"
#include "io/io_faults.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* In the folder of cli_text(). */
#define TRAIN "train " CLI_TRAIN " --data 0.txt --lr-schedule constant"
#define NEEDS_COMMAND                                                                              \
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'")

/* The folder's files whose names begin with "a", in one line. */
static void check_files(const char *folder, const char *wanted) {
    static char listed[4096];
    CHECK_EQ_INT(test_shell(listed, sizeof listed, "cd %s && echo a*", folder), 0);
    listed[strcspn(listed, "\n")] = '\0';
    CHECK_EQ_STR(listed, wanted);
}

static int64_t step_of(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return cli_saved_step(path);
}

static void test_nothing_is_written_where_nothing_was_asked_for(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 1");
    CHECK_CONTAINS(run.output, "\nsaves     nothing: give --save FILE to go on from it later\n");
    CHECK(cli_do(text, "test \"$(ls -A | tr '\\n' ' ')\" = '0.txt 1.txt 2.txt '"));
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 1 --save-weights w");
    CHECK_CONTAINS(run.output, "\nsaves     weights alone, at the end: ");
}

static void test_the_newest_stay_and_have_the_name(void) {
    struct cli_run run;
    const char *text = cli_text();
    CHECK(cli_do(text, "touch a-4 a-3x a-1"));
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 9 --save a --save-every 2 --keep 3");
    CHECK_CONTAINS(run.output, "at the end and every 2 updates; the 3 newest as ");
    check_files(text, "a a-1 a-3x a-6 a-8 a-9"); /* a-4 became this run's */
    CHECK_HELPERS();
    static const char *const names[] = {"a", "a-9", "a-8", "a-6"};
    static const int steps[] = {9, 9, 8, 6};
    for (int i = 0; i < 4; i++) CHECK_EQ_INT(step_of(text, names[i]), steps[i]);
    CHECK(cli_do(text, "cmp a a-9"));
}

/* A link to a disk with room, whose file need not be there yet. */
static void test_what_a_link_leads_to_is_written(void) {
    struct cli_run run;
    const char *text = cli_text();
    char made[512], link[512];
    struct stat facts;
    snprintf(made, sizeof made, "%s/far/c", text);
    snprintf(link, sizeof link, "%s/b", text);
    CHECK(cli_do(text, "mkdir far && ln -s far/c b"));
    for (int i = 1; i <= 2; i++) {
        CLI_CODE_IN(text, &run, 0, TRAIN " --steps %d --save b", i);
        CHECK_EQ_INT(cli_saved_step(made), i);
        CHECK(lstat(link, &facts) == 0 && S_ISLNK(facts.st_mode));
    }
}

/* What an earlier part of the run wrote counts as its own; what only looks so does not. */
static void test_a_resumed_run_goes_on_with_its_files(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 6 --save a --save-every 2 --keep 2");
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 3 --save b --seed 9");
    CHECK(cli_do(text, "mv b a-3 && cp a-4 a-5"));
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 9 --resume a --save-every 2 --keep 2");
    check_files(text, "a a-3 a-5 a-8 a-9");
    CHECK_HELPERS();
    CHECK_EQ_INT(step_of(text, "a"), 9);
    /* a FILE-STEP goes on as FILE unless that is further, and one that only has such a name as
     * itself */
    CLI_CODE_IN(text, &run, 2, TRAIN " --steps 10 --resume a-8");
    CHECK_CONTAINS(run.output, "a, which is further (update 9): name another file with --save, ");
    CHECK_EQ_INT(step_of(text, "a"), 9);
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 10 --resume a-8 --save a --keep 2");
    check_files(text, "a a-10 a-3 a-5 a-8 a-9");
    CHECK_EQ_INT(step_of(text, "a"), 10);
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 11 --resume a-5");
    CHECK_EQ_INT(step_of(text, "a-5"), 11);
    CHECK_EQ_INT(step_of(text, "a"), 10);
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 12 --resume a --save c");
    CHECK_EQ_INT(step_of(text, "a"), 10);
    CHECK_EQ_INT(step_of(text, "c"), 12);
    /* nor is what another experiment wrote removed, or what the run was resumed from */
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 6 --save e --save-every 2 --keep 9");
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 8 --save f --lr 1e-2");
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 9 --resume f --save e --keep 1 --lr 1e-2");
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 10 --resume e-9 --save e --keep 1 --lr 1e-2");
    for (int i = 2; i <= 10; i += i < 6 ? 2 : i == 6 ? 3 : 1) {
        char name[16];
        snprintf(name, sizeof name, "e-%d", i);
        CHECK_EQ_INT(step_of(text, name), i);
    }
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 11 --resume e-10 --lr 1e-2");
    CHECK_EQ_INT(step_of(text, "e"), 11);
    /* where nothing is left to do the file stays, with what it says of its run */
    CHECK(cli_do(text, "cp c d"));
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 12 --resume c --lr 0.5");
    CHECK(cli_do(text, "cmp c d"));
}

/* By the losses that the run itself reports. */
static void test_the_best_is_the_least_loss(void) {
    struct cli_run run;
    const char *text = cli_text();
    char lines[512];
    snprintf(lines, sizeof lines, "%s/j", text);
    /* so fast that it comes past its best */
    static const char options[] =
        " --lr 0.3 --warmup 0 --eval-every 2 --keep-best --eval-batches 4";
    CLI_CODE_IN(text, &run, 0, TRAIN "%s --steps 20 --save a --json j", options);
    json_t *all = cli_json_lines(lines);
    double least = HUGE_VAL;
    int64_t at = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *line = json_array_get(all, i), *last = json_object_get(line, "summary");
        const json_t *loss = json_object_get(last ? last : line, "validation_loss");
        if (loss == NULL || json_number_value(loss) >= least) continue;
        least = json_number_value(loss);
        at = last ? 20 : (int64_t)cli_number(line, "step");
    }
    json_decref(all);
    CHECK(at > 0 && at < 20);
    CHECK_EQ_INT(step_of(text, "a-best"), at);
    CLI_CODE_IN(text, &run, 2, TRAIN " --steps 30 --resume a-best");
    CHECK_CONTAINS(run.output, "a, which is further (update 20)");
    /* where both are saved they are of one copy */
    CLI_CODE_IN(text, &run, 0,
                TRAIN " --lr 0 --eval-every 2 --keep-best --steps 3 --save-every 2 --save s "
                      "--keep 3");
    CHECK(cli_do(text, "cmp s-2 s-best"));
    /* a resumed run, which learns no more, knows the best so far; another run's is not its own */
    CHECK(cli_do(text, "cp a-best first"));
    CLI_CODE_IN(text, &run, 0, TRAIN "%s --steps 24 --resume a --lr 0", options);
    CHECK(cli_do(text, "cmp first a-best"));
    CLI_CODE_IN(text, &run, 0, TRAIN "%s --steps 2 --save a --seed 3", options);
    CHECK_EQ_INT(step_of(text, "a-best"), 2);
    CLI_CODE_IN(text, &run, 2, TRAIN " --steps 2 --save a --keep-best");
    CHECK_CONTAINS(run.output, "--keep-best needs validations: give --eval-every N");
    CLI_CODE_IN(text, &run, 2,
                TRAIN " --steps 2 --keep 3 --keep-best --save-every 4 --eval-every 1");
    CHECK_CONTAINS(run.output, "--keep needs a file");
    CHECK_CONTAINS(run.output, "--keep-best needs a file");
    CHECK_CONTAINS(run.output, "--save-every needs a file");
}

static void test_a_signal_before_the_first_update_saves_the_beginning(void) {
    NEEDS_COMMAND;
    const char *text = cli_text();
    CHECK(cli_do(text, "mkfifo pipe"));
    /* the data are a pipe that nobody has written to yet: so the run has not begun */
    pid_t process = cli_start(-1,
                              "train " CLI_TRAIN " --data %s/pipe --eval-data %s/1.txt --steps "
                              "100000000 --lr-schedule constant --save %s/a",
                              text, text, text);
    CHECK(process > 0);
    CHECK(cli_catches(process, SIGTERM));
    kill(process, SIGTERM);
    CHECK(cli_do(text, "cat 0.txt >pipe"));
    CHECK_EQ_INT(cli_wait(process), 143);
    CHECK_EQ_INT(step_of(text, "a"), 0);
}

static void test_a_save_that_fails_is_told_and_fails_the_run(void) {
    struct cli_run run;
    const char *text = cli_text();
    /* what is in the way of every save */
    CHECK(cli_do(text, "mkdir a.partial"));
    CLI_CODE_IN(text, &run, 1, TRAIN " --steps 6 --save a --save-every 2 --json - 2>&1");
    CHECK_CONTAINS(run.output, "warning: the save after update 2 failed: cannot create ");
    CHECK_CONTAINS(run.output, "training goes on, and ends with exit code 1\n");
    CHECK_CONTAINS(run.output, "{\"step\":6,");
    CHECK_EQ_INT(step_of(text, "a"), -1);
    /* where only one of them fails the files are there all the same */
    CHECK(cli_do(text, "mkdir b-2.partial"));
    CLI_CODE_IN(text, &run, 1, TRAIN " --steps 6 --save b --save-every 2 --keep 9 2>&1");
    CHECK_CONTAINS(run.output, "warning: the save after update 2 failed: cannot create ");
    CHECK_CONTAINS(run.output, "\nweir: train: cannot create ");
    CHECK(strstr(run.output, "after update 4 failed") == NULL);
    CHECK_EQ_INT(step_of(text, "b"), 6);
    CHECK_EQ_INT(step_of(text, "b-4"), 4);
}

/* FILE cannot be written, FILE-STEP can: no more of these stay for it. */
static void test_files_rotate_where_the_name_cannot_be_written(void) {
    struct cli_run run;
    const char *text = cli_text();
    CHECK(cli_do(text, "mkdir a.partial"));
    CLI_CODE_IN(text, &run, 1, TRAIN " --steps 12 --save a --save-every 1 --keep 1 2>&1");
    CHECK_CONTAINS(run.output, "failed: cannot ");
    check_files(text, "a-12 a.partial");
}

/* The run fails by its gradient, and so had its last save. */
static void test_a_failed_save_is_told_where_the_run_fails_too(void) {
    struct cli_run run;
    const char *text = cli_text();
    CHECK(cli_do(text, "mkdir a.partial"));
    CLI_CODE_IN(text, &run, 1, TRAIN " --steps 6 --lr 1e30 --save a --save-every 1 2>&1");
    CHECK_CONTAINS(run.output, "warning: the save after update 1 failed: cannot create ");
    CHECK_CONTAINS(run.output, "its gradient is not finite");
}

/* Nothing of the update that fails is in the file, and nothing else is missing. */
static void test_what_was_done_before_a_gradient_failed_is_saved(void) {
    static const char train[] = TRAIN " --lr 1e18 --accumulate 2";
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE_IN(text, &run, 1, "%s --steps 9 --save n 2>&1", train);
    CHECK_CONTAINS(run.output, "update 2: its gradient is not finite");
    CHECK_CONTAINS(run.output, "update 1, the last that was done, is in n");
    CHECK_EQ_INT(step_of(text, "n"), 1);
    CLI_CODE_IN(text, &run, 1, "%s --steps 9 --resume n 2>&1", train);
    CHECK_CONTAINS(run.output, "update 2: its gradient is not finite");
    CLI_CODE_IN(text, &run, 0, "%s --steps 1 --save m", train);
    CHECK(cli_do(text, "tail -c 4096 n >n.tail && tail -c 4096 m >m.tail && cmp n.tail m.tail"));
}

/* ---- names ---- */

static const struct {
    const char *options, *said; /* NULL: runs */
} path_cases[] = {
    {"train --save a --log-dir ./a", "--save a is also the file of --log-dir ./a"},
    {"train --save a --log-dir a.partial", "--log-dir a.partial"},
    {"train --save a --save-weights ./a", "--save a is also the file of --save-weights ./a"},
    {"train --save a --json copy/../a", "is also the file of --json copy/../a"},
    {"train --save w --report link", "--save w is also the file of --report link"},
    {"train --save a --trace a.partial", "is also the file of --trace a.partial"},
    {"train --save a --keep-best --eval-every 1 --json a-best", "is also the file of"},
    {"train --save copy/0.txt", "--save copy/0.txt is an input file of --data copy/0.txt"},
    {"train --save q --eval-data 1.txt --json ./1.txt", "an input file of --eval-data 1.txt"},
    {"train --save q --eval-data copy --json copy/0.txt", "is an input file of --eval-data"},
    {"train --resume w --save-weights w", "--save-weights w is an input file of --resume w"},
    {"train --resume w --save b --report ./w", "--report ./w is an input file of --resume w"},
    {"train --model m.json --json m.json", "--json m.json is an input file of --model m.json"},
    {"train --model ./p --json p", "--json p is an input file of --model ./p"},
    {"train --schedule s.csv --json s.csv", "is an input file of --schedule s.csv"},
    {"train --profile p --trace p", "--trace p is an input file of --profile p"},
    {"grad --weights w --data d --out ./w", "--out ./w is an input file of --weights w"},
    {"grad --model m.json --weights w --data d --out m.json", "is an input file of --model m.json"},
    {"grad --schedule s.csv --weights w --data d --out s.csv", "file of --schedule s.csv"},
    {"init --model m.json --out ./m.json", "--out ./m.json is an input file of --model m.json"},
    {"profile --model m.json --out m.json", "--out m.json is an input file of --model m.json"},
    {"describe --model m.json --json m.json", "--json m.json is an input file of --model m.json"},
    {"plan --model m.json --json m.json", "--json m.json is an input file of --model m.json"},
    {"plan --schedule s.csv --json s.csv", "--json s.csv is an input file of --schedule s.csv"},
    {"plan --profile p --json p", "--json p is an input file of --profile p"},
    {"predict --model m.json --load w --data d --out m.json", "input file of --model m.json"},
    {"eval --model m.json --load w --data 0.txt --json m.json", "input file of --model m.json"},
    {"eval --load w --data 0.txt --schedule s.csv --json s.csv", "file of --schedule s.csv"},
    {"generate --load w --model m.json --json m.json", "is an input file of --model m.json"},
    {"simulate --model m.json --svg m.json", "--svg m.json is an input file of --model m.json"},
    {"simulate --schedule s.csv --json s.csv", "--json s.csv is an input file of --schedule s.csv"},
    {"eval --load w --data 0.txt --json link", "--json link is an input file of --load w"},
    {"eval --load w --data 0.txt --json 0.txt", "is an input file of --data 0.txt"},
    {"generate --load w --prompt-file p --json p", "is an input file of --prompt-file p"},
    {"train --save a --keep 2 --json a-10", "--json a-10 is also the file of --save a-STEP"},
    {"train --save a --keep 2 --json ./a-10.partial", "is also the file of --save a-STEP"},
    {"train --save none --json elsewhere", "--save none is also the file of --json elsewhere"},
    {"train --save w --keep 2 --load w-3", "is an input file of --load w-3"},
    {"train --save a --keep 2 --log-dir a-7", "--save a-STEP is also the file of --log-dir"},
    {"train --log-dir l --json l/metrics.csv", "also the file of --log-dir l/metrics.csv"},
    {"train --data copy --json copy/j",
     "--json copy/j would be read by the next run as part of --data copy: give another name"},
    {"train --data copy --report copy/sub/r.html", "as part of --data copy"},
    {"train --data copy --log-dir copy/logs/run/1", "as part of --data copy"},
    {"train --data copy --save copy/a.bin", "--save copy/a.bin would be read by the next run"},
    {"train --data copy --save copy/a.npz", "--save copy/a.npz would be read by the next run"},
    {"train --data copy --json copy/.j --steps 1", NULL},
    {"train --data copy --report copy/zig-out/r --steps 1", NULL},
    {"train --data copy --save copy/sub/a.bin --steps 1", NULL},
    {"train --save a --keep 2 --json a-x --trace a10 --steps 1", NULL},
    {"train --save b --keep-best --eval-every 1 --steps 2", NULL},
    {"train --resume b-best --keep-best --eval-every 1 --steps 3 --save b", NULL},
    {"train --resume w --save w --steps 1", NULL},
    {"train --save /dev/null --json /dev/null --steps 1", NULL},
    {"train --data copy --save copy/run --steps 1", NULL},
    {"train --data copy --save copy/run --steps 1", NULL}, /* over the former one */
};

static void test_outputs_are_files_of_their_own(void) {
    struct cli_run run;
    const char *text = cli_text();
    CLI_CODE_IN(text, &run, 0, TRAIN " --steps 1 --save w");
    CHECK(cli_do(text, "ln -s w link && ln -s elsewhere none && mkdir -p copy/sub copy/zig-out && "
                       "cp 0.txt copy && cp w v && cp w w-3 && tee m.json s.csv p d </dev/null"));
    for (size_t i = 0; i < sizeof path_cases / sizeof path_cases[0]; i++) {
        const char *options = path_cases[i].options, *said = path_cases[i].said;
        bool trains = options[0] == 't' && strstr(options, "--data") == NULL;
        CLI_CODE_IN(text, &run, said != NULL ? 2 : 0, "%s %s %s", options,
                    trains ? "--data copy/0.txt" : "", options[0] == 't' ? CLI_TRAIN : "");
        if (said != NULL) CHECK_CONTAINS(run.output, said);
        if (!cli_do(text, "cmp 0.txt copy/0.txt && cmp w v")) TEST_FAIL("with %s", options);
        CHECK_HELPERS();
    }
}

WEIR_TEST_SUITE(cli_save, TEST(nothing_is_written_where_nothing_was_asked_for),
                TEST(the_newest_stay_and_have_the_name), TEST(what_a_link_leads_to_is_written),
                TEST(a_resumed_run_goes_on_with_its_files), TEST(the_best_is_the_least_loss),
                TEST(a_signal_before_the_first_update_saves_the_beginning),
                TEST(a_save_that_fails_is_told_and_fails_the_run),
                TEST(files_rotate_where_the_name_cannot_be_written),
                TEST(a_failed_save_is_told_where_the_run_fails_too),
                TEST(what_was_done_before_a_gradient_failed_is_saved),
                TEST(outputs_are_files_of_their_own))
