/* SPDX-License-Identifier: MIT */
/*
 * Goal: whoever forgot an option finds it: by help, by man, or by the tab key; all of them say what
 * the option tables say. Method: bash runs the installed command's script and is asked what it
 * would complete, zsh and fish where they are; groff reads the pages.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NEEDS_COMMAND                                                                              \
    if (!test_install_prefix()) SKIP("no installed command: run by 'zig build test'")

/* In the help's order; the last three explain the others. */
static const char *const subcommands[] = {
    "train",    "generate", "chat",     "eval",   "predict",  "grad",    "init",
    "export",   "merge",    "describe", "layers", "tokenize", "profile", "plan",
    "simulate", "schedule", "launch",   "doctor", "help",     "man",     "completion"};
enum { SUBCOMMANDS = sizeof subcommands / sizeof subcommands[0], EXPLAINING = 3 };

static bool has(const char *program) {
    char output[64];
    return test_shell(output, sizeof output, "command -v %s", program) == 0;
}

/* ---- help ---- */

static void test_help_names_a_subcommand_or_lists_them(void) {
    NEEDS_COMMAND;
    static struct cli_run run, other;
    CLI_CODE(&run, 0, "help train");
    CLI_CODE(&other, 0, "train --help");
    CHECK_EQ_STR(run.output, other.output);
    CLI_CODE(&run, 0, "help");
    CLI_CODE(&other, 0, "--help");
    CHECK_EQ_STR(run.output, other.output);
    CLI_CODE(&run, 2, "help trian 2>&1");
    CHECK_CONTAINS(run.output, "weir: trian: no such subcommand: did you mean 'weir train'?");
    CLI_CODE(&run, 2, "help train eval 2>&1");
    CLI_CODE(&run, 2, "train --log-evry 2 --otimizer sgd 2>&1");
    CHECK_CONTAINS(run.output, "unknown option --log-evry: did you mean --log-every?");
    CHECK_CONTAINS(run.output, "unknown option --otimizer: did you mean --optimizer?");
}

/* So does the page; each says what it takes. */
static void test_help_lists_every_subcommand(void) {
    NEEDS_COMMAND;
    if (access("docs/command.md", R_OK) != 0) SKIP("not in the project's folder");
    static struct cli_run run;
    char wanted[1024] = "", text[64], *page = cli_read("docs/command.md", NULL);
    for (size_t i = 0; i < SUBCOMMANDS; i++) {
        snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "%s ", subcommands[i]);
        if (i >= SUBCOMMANDS - EXPLAINING) continue;
        snprintf(text, sizeof text, "usage: weir %s ", subcommands[i]);
        CLI_CODE(&run, 0, "%s --help", subcommands[i]);
        EXPECT_CONTAINS(run.output, text);
        snprintf(text, sizeof text, "\n| `weir %s` | ", subcommands[i]);
        EXPECT_CONTAINS(page, text);
    }
    EXPECT_CONTAINS(page, "\n| `weir help`, `man`, `completion` | ");
    CLI_CODE(&run, 0, "help | sed '1,/Subcommands:/d; s/^  //; s/ .*//' | tr '\\n' ' '");
    EXPECT_EQ_STR(run.output, wanted);
    free(page);
}

/* ---- bash ---- */

/* What bash completes behind `words`, of which the last is what was begun, one per line. */
static const char *completed(const char *folder, const char *words) {
    static char output[1 << 15];
    int code = test_shell(output, sizeof output,
                          "cd %s && bash --norc -c 'source <(\"%s/bin/weir\" completion bash); "
                          "COMP_WORDS=(%s); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _weir; "
                          "printf \"%%s\\n\" \"${COMPREPLY[@]}\" | LC_ALL=C sort' 2>&1",
                          folder, test_install_prefix(), words);
    if (code != 0) TEST_FAIL("%s: %s", words, output);
    return output;
}

static void test_bash_completes_what_the_tables_say(void) {
    static const struct {
        const char *words, *wanted;
    } cases[] = {{"weir tr", "train\n"},
                 {"weir --v", "--version\n"},
                 {"weir help si", "simulate\n"},
                 {"weir completion f", "fish\n"},
                 {"weir train --log", "--log-dir\n--log-every\n"},
                 {"weir train --optimizer \"\"", "adamw\nsgd\n"},
                 {"weir train --optimizer = s", "sgd\n"}, /* '=' breaks a word */
                 {"weir train --optimizer sgd --nest", "--nesterov\n"},
                 {"weir train --schedule zb-h", "zb-h1\nzb-h2\n"},
                 {"weir train --save o", "one.txt\nother file\n"},
                 {"weir train --data one.txt oth", "other file\n"},
                 {"weir train --data one.txt --epo", "--epochs\n"},
                 {"weir train --lr \"\"", "\n"}, /* a number, that nobody can guess */
                 {"weir predict --ou", "--out\n--out-channels\n"},
                 {"weir train --tied --unt", "--untied\n"},
                 {"weir nothing --", "\n"}};
    NEEDS_COMMAND;
    if (!has("bash")) SKIP("no bash");
    char output[64];
    const char *folder = test_temporary_directory();
    test_shell(output, sizeof output, "cd %s && touch one.txt 'other file'", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *found = completed(folder, cases[i].words);
        if (strcmp(found, cases[i].wanted) != 0) TEST_FAIL("%s: %s", cases[i].words, found);
    }
}

/* Every option that the help lists is completed, of every subcommand. */
static void test_no_option_is_forgotten(void) {
    NEEDS_COMMAND;
    if (!has("bash")) SKIP("no bash");
    static struct cli_run run;
    const char *folder = test_temporary_directory();
    for (size_t i = 0; i < SUBCOMMANDS - EXPLAINING; i++) {
        char words[64], name[64];
        snprintf(words, sizeof words, "weir %s --", subcommands[i]);
        const char *found = completed(folder, words);
        CLI_CODE(&run, 0, "%s --help", subcommands[i]);
        uint32_t count = 0;
        for (const char *at = run.output; (at = strstr(at, "\n  --")) != NULL; at++, count++) {
            snprintf(name, sizeof name, "%.*s\n", (int)strcspn(at + 3, " ,\n"), at + 3);
            EXPECT_CONTAINS(found, name);
        }
        CHECK(count > 1);
    }
}

/* ---- the other shells ---- */

static void test_zsh_and_fish_can_read_their_scripts(void) {
    NEEDS_COMMAND;
    static struct cli_run run;
    char output[4096];
    const char *folder = test_temporary_directory();
    CLI_CODE(&run, 0, "completion zsh > %s/_weir", folder);
    CLI_CODE(&run, 0, "completion fish > %s/weir.fish", folder);
    CLI_CODE(&run, 2, "completion tcsh 2>&1");
    CHECK_CONTAINS(run.output, "name the shell: weir completion bash, zsh or fish");
    if (has("zsh")) {
        int code = test_shell(output, sizeof output, "zsh -f -n %s/_weir 2>&1", folder);
        if (code != 0) TEST_FAIL("%s", output);
    }
    if (has("fish")) {
        int code = test_shell(output, sizeof output,
                              "fish -N -c 'source %s/weir.fish; complete -C \"weir train "
                              "--optimizer \"; complete -C \"weir he\"' 2>&1",
                              folder);
        if (code != 0) TEST_FAIL("%s", output);
        EXPECT_CONTAINS(output, "adamw");
        EXPECT_CONTAINS(output, "help");
    }
    if (!has("zsh") || !has("fish")) SKIP("zsh or fish is not there");
}

/* ---- man ---- */

static void test_pages_are_roff_and_say_what_help_says(void) {
    static const char *const pages[] = {"", "train", "generate", "simulate", "doctor"};
    NEEDS_COMMAND;
    static struct cli_run run;
    if (!has("groff")) SKIP("no groff");
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        CLI_CODE(&run, 0, "man %s | groff -man -Tascii -ww 2>&1 >/dev/null", pages[i]);
        EXPECT_EQ_STR(run.output, "");
        CLI_CODE(&run, 0, "man %s | groff -man -Tascii -rLL=200n -P-cbou", pages[i]);
        EXPECT_CONTAINS(run.output, pages[i][0] != '\0' ? "SYNOPSIS" : "SUBCOMMANDS");
    }
    CLI_CODE(&run, 0, "man generate | groff -man -Tascii -ww -rLL=200n -P-cbou");
    CHECK_CONTAINS(run.output, "--prompt TEXT");
    CHECK_CONTAINS(run.output, "one prompt per line; \\n in it is a newline");
    CHECK_CONTAINS(run.output, "(default 0.8)");
    CLI_CODE(&run, 2, "man nothing 2>&1");
}

/* ---- all of it, installed ---- */

static void test_a_user_installs_it_into_a_folder(void) {
    static const char *const files[] = {"bin/weir",
                                        "share/man/man1/weir.1",
                                        "share/man/man1/weir-train.1",
                                        "share/man/man1/weir-predict.1",
                                        "share/bash-completion/completions/weir",
                                        "share/zsh/site-functions/_weir",
                                        "share/fish/vendor_completions.d/weir.fish"};
    NEEDS_COMMAND;
    if (access("build/install_user.sh", R_OK) != 0) SKIP("not in the project's folder");
    static char output[1 << 14];
    const char *folder = test_temporary_directory();
    int code =
        test_shell(output, sizeof output, "sh build/install_user.sh '%s/bin/weir' '%s/a b' 2>&1",
                   test_install_prefix(), folder);
    if (code != 0) TEST_FAIL("%s", output);
    EXPECT_CONTAINS(output, "put this into ~/.profile: PATH=\"");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        code = test_shell(output, sizeof output, "test -s '%s/a b/%s'", folder, files[i]);
        if (code != 0) TEST_FAIL("%s is missing", files[i]);
    }
    code = test_shell(output, sizeof output,
                      "PATH=\"%s/a b/bin:$PATH\"; weir --version && sh build/install_user.sh "
                      "'%s/bin/weir' '%s/a b'",
                      folder, test_install_prefix(), folder);
    if (code != 0) TEST_FAIL("%s", output);
    EXPECT(strncmp(output, "weir ", 5) == 0 && strstr(output, "~/.profile") == NULL);
}

/* ---- the pages ---- */

/* The examples of README and docs that need no data and no time, run as they stand; what the pages
 * print below them is what they print. */
static void test_examples_run_and_print_what_the_pages_say(void) {
    NEEDS_COMMAND;
    if (access("docs/figures.sh", R_OK) != 0) SKIP("not in the project's folder");
    static char output[1 << 14];
    int code = test_shell(output, sizeof output, "sh docs/figures.sh --check '%s/bin/weir' 2>&1",
                          test_install_prefix());
    if (code != 0) TEST_FAIL("%s", output);
}

/* Every option that README and docs name behind 'weir SUBCOMMAND' is one of its options. */
static void test_examples_use_options_that_there_are(void) {
    NEEDS_COMMAND;
    if (access("docs/figures.sh", R_OK) != 0) SKIP("not in the project's folder");
    static char output[1 << 15];
    const char *folder = test_temporary_directory();
    int code = test_shell(
        output, sizeof output,
        "sed -e ':a' -e '/\\\\$/N; s/\\\\\\n//; ta' README.md docs/*.md | "
        "sed -n 's/^    \\(\\$ \\)\\{0,1\\}\\(zig-out\\/bin\\/\\)\\{0,1\\}weir "
        "\\([a-z]*\\) /\\3 /p' | sed 's/#.*//; s/|.*//; s/ -- .*//' | while read -r name rest; do "
        "for word in $rest; do case $word in --*) \"%s/bin/weir\" $name --help | "
        "grep -q -e \"^  $word \" -e \"^  $word\\$\" || echo \"$name $word\" ;; esac; done; "
        "echo seen >&2; done 2>%s/seen; test $(wc -l <%s/seen) -gt 12 || echo too few",
        test_install_prefix(), folder, folder);
    EXPECT_EQ_INT(code, 0);
    EXPECT_EQ_STR(output, "");
}

WEIR_TEST_SUITE(cli_help, TEST(examples_run_and_print_what_the_pages_say),
                TEST(examples_use_options_that_there_are),
                TEST(help_names_a_subcommand_or_lists_them), TEST(help_lists_every_subcommand),
                TEST(bash_completes_what_the_tables_say), TEST(no_option_is_forgotten),
                TEST(zsh_and_fish_can_read_their_scripts),
                TEST(pages_are_roff_and_say_what_help_says), TEST(a_user_installs_it_into_a_folder))
