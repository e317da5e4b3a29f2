/* SPDX-License-Identifier: MIT */
/*
 * Goal: `mpiexec -n R weir eval`, predict, generate and grad give what one process gives, to the
 * bit, whoever saved the weights; rank 0 speaks, and a signal to any rank ends all. Method: the
 * installed command by whatever MPI is here, on one host, against itself alone.
 */
#include "cli/cli.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL CLI_MODEL " --layers 4 --vocab 256"

static struct cli_run run;
static char folder[512];

/* "w", a file, and "c", what three ranks saved; false: the test has ended, as there is no MPI. */
static bool make_weights(void) {
    snprintf(folder, sizeof folder, "%s", test_temporary_directory());
    if (!cli_run_ranks(&run, folder, 3,
                       "train --data %s " CLI_TRAIN " --layers 4 --steps 3 --plan given --stages 3 "
                       "--save c",
                       cli_text()))
        return false;
    EXPECT_EQ_INT(run.code, 0);
    return cli_do(folder, "'%s/bin/weir' export --load c --out w", test_install_prefix());
}

/* Whether it stands in what was printed just once. */
static bool is_said_once(const char *text) {
    const char *first = strstr(run.output, text);
    if (first != NULL && strstr(first + 1, text) == NULL) return true;
    puts(run.output);
    return false;
}

static bool is_same(const char *a, const char *b) {
    char paths[2][600];
    snprintf(paths[0], sizeof paths[0], "%s/%s", folder, a);
    snprintf(paths[1], sizeof paths[1], "%s/%s", folder, b);
    return cli_same_files(paths[0], paths[1]);
}

static double loss_in(const char *name) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    json_t *object = cli_json(path);
    double loss = cli_number(object, "loss");
    json_decref(object);
    return loss;
}

static void test_eval_finds_the_loss_of_one_process(void) {
    if (!make_weights()) return;
    CLI_CODE_IN(folder, &run, 0, "eval --load w --data %s " MODEL " --batch 7 --json alone",
                cli_text());
    double alone = loss_in("alone");
    for (uint32_t ranks = 2; ranks <= 3 && !test_has_failed(); ranks++) {
        cli_run_ranks(&run, folder, ranks,
                      "eval --load %s --data %s " MODEL " --batch 7 --json together",
                      ranks == 2 ? "w" : "c", cli_text());
        EXPECT_EQ_INT(run.code, 0);
        EXPECT(is_said_once(" nats/byte ("));
        EXPECT_NEAR(loss_in("together"), alone, 0);
    }
}

static void test_predict_writes_the_file_of_one_process(void) {
    if (!make_weights()) return;
    CLI_CODE_IN(folder, &run, 0, "predict --load w --data %s " MODEL " --batch 7 --out alone",
                cli_text());
    for (uint32_t ranks = 2; ranks <= 3 && !test_has_failed(); ranks++) {
        cli_run_ranks(&run, folder, ranks,
                      "predict --load %s --data %s " MODEL " --batch 7 --out together",
                      ranks == 2 ? "c" : "w", cli_text());
        EXPECT_EQ_INT(run.code, 0);
        EXPECT(is_said_once("together: "));
        is_same("alone", "together");
    }
}

/* Texts side by side, beyond the context, and tokens as numbers. */
#define TEXTS                                                                                      \
    "--seed 3 --tokens 20 --prompt 'a b' --prompt c --prompt 'static int' --prompt '' --batch 3"

static void test_generate_continues_as_one_process_does(void) {
    static const char *const options[] = {TEXTS " --top-k 20", TEXTS " --temperature 0",
                                          "--prompt-ids 7,8,9 --prompt-ids 1"};
    if (!make_weights()) return;
    for (size_t i = 0; i < 3 && !test_has_failed(); i++) {
        CLI_CODE_IN(folder, &run, 0, "generate --load w " MODEL " %s >alone 2>said", options[i]);
        for (uint32_t ranks = 2; ranks <= 3 && !test_has_failed(); ranks++) {
            cli_run_ranks(&run, folder, ranks,
                          "generate --load %s " MODEL " %s >together 2>said; C=$?; cat said; "
                          "(exit $C)",
                          ranks == 2 ? "c" : "w", options[i]);
            EXPECT_EQ_INT(run.code, 0);
            EXPECT(is_said_once(" tokens/s (and "));
            is_same("alone", "together");
        }
    }
}

/* Rank 1 has the embedding, rank 0 the head: what is drawn there must come to the other. */
static void test_generate_tells_all_ranks_what_is_drawn(void) {
    if (!make_weights()) return;
    if (!cli_do(folder, "printf '1F0,1F1,1B1,1B0\n0F0,0F1,0B1,0B0\n' > table.csv")) return;
    CLI_CODE_IN(folder, &run, 0, "generate --load w " MODEL " --chunks 2 " TEXTS " >alone");
    cli_run_ranks(&run, folder, 2,
                  "generate --load c " MODEL " --schedule table.csv --stages 2 --workers 2 "
                  "--chunks 2 " TEXTS " >together");
    if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
    is_same("alone", "together");
}

static void test_grad_writes_the_file_of_one_process(void) {
    static const char *const options[] = {"--dropout 0.5 --masks", "--tied --plan auto"};
    char data[512];
    snprintf(folder, sizeof folder, "%s", test_temporary_directory());
    cli_make_data(folder, "data", 5, 5, data);
    for (size_t i = 0; i < 2 && !test_has_failed(); i++) {
        CLI_CODE_IN(folder, &run, 0,
                    "init --layers 4 --width 16 --heads 2 --context 8 --vocab 32 %s --out w",
                    i == 0 ? "" : "--tied");
        CLI_CODE_IN(folder, &run, 0,
                    "grad " CLI_MODEL " --vocab 32 --layers 4 %s --chunks 3 --weights w --data "
                    "data --out alone",
                    options[i]);
        for (uint32_t ranks = 2; ranks <= 3 && !test_has_failed(); ranks++) {
            if (!cli_run_ranks(&run, folder, ranks,
                               "grad " CLI_MODEL " --vocab 32 --layers 4 %s --chunks 3 --weights "
                               "w --data data --out together",
                               options[i]))
                return;
            if (!EXPECT_EQ_INT(run.code, 0)) puts(run.output);
            is_same("alone", "together");
        }
    }
}

/* Rank 1 alone is told to end. */
static void test_a_signal_to_one_rank_ends_all(void) {
    if (!make_weights()) return;
    run.code = test_shell(
        run.output, sizeof run.output,
        "{ cd '%s' && %s -n 2 sh -c 'echo $$ > pid.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}; exec "
        "\"%s/bin/weir\" generate --load w " MODEL " --prompt a --tokens 16777216 --json said' "
        "> text & P=$!; w() { I=0; while ! eval \"$1\" && [ $I -lt 600 ]; do sleep 0.1; "
        "I=$((I+1)); done; }; w '[ -e pid.1 ]'; w '[ $((0x$(sed -n "
        "\"s/SigCgt:[^0-9a-f]*//p\" /proc/$(cat pid.1)/status) & 0x4000)) != 0 ]'; kill -TERM "
        "$(cat pid.1); wait $P; }",
        folder, cli_launcher(), test_install_prefix());
    EXPECT_EQ_INT(run.code, 128 + SIGTERM);
    EXPECT_CONTAINS(run.output, "weir: generate: 1 text, ");
    EXPECT_CONTAINS(run.output, ": interrupted");
}

/* Each rank has a text of its own. */
static void test_ranks_that_read_other_data_are_refused(void) {
    if (!make_weights()) return;
    run.code = test_shell(
        run.output, sizeof run.output,
        "{ cd '%s' && for R in 0 1; do seq $((R+1)) 500 > text.$R; done && %s -n 2 sh -c 'exec "
        "\"%s/bin/weir\" eval --load w " MODEL " --data "
        "text.${PMI_RANK:-$OMPI_COMM_WORLD_RANK}'; }",
        folder, cli_launcher(), test_install_prefix());
    EXPECT_EQ_INT(run.code, 2);
    EXPECT_CONTAINS(run.output, "weir: eval: the ranks have different data:");
}

static void test_refusals_are_said_once(void) {
    static const struct {
        const char *arguments, *said;
    } cases[] = {{"eval --data none", "eval: --load is missing"},
                 {"predict --load none", "predict: --out is missing"},
                 {"predict --load w --data w --out none/p", "--out none/p: its folder: "},
                 {"generate --load w --prompt-file -", "--prompt-file -: of several processes"},
                 {"generate --load w --prompt a --balance-by time",
                  "--balance-by time: over several processes"},
                 {"grad --data none", "grad: --out is missing"}};
    snprintf(folder, sizeof folder, "%s", test_temporary_directory());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!cli_run_ranks(&run, folder, 2, "%s", cases[i].arguments)) return;
        EXPECT_EQ_INT(run.code, 2);
        EXPECT(is_said_once(cases[i].said));
    }
}

WEIR_TEST_SUITE(cli_ranks_infer, TEST(eval_finds_the_loss_of_one_process),
                TEST(predict_writes_the_file_of_one_process),
                TEST(generate_continues_as_one_process_does),
                TEST(generate_tells_all_ranks_what_is_drawn),
                TEST(grad_writes_the_file_of_one_process), TEST(a_signal_to_one_rank_ends_all),
                TEST(ranks_that_read_other_data_are_refused), TEST(refusals_are_said_once))
