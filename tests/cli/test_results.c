/* SPDX-License-Identifier: MIT */
/*
 * Goal: the page of results has the figures of the runs where the notes ask for them, tables and
 * pictures of the runs that the notes do not name, and is found stale once a run changes. Method: a
 * folder of small runs.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define RESULT(name, unit, median, rest)                                                           \
    "{\"name\": \"" name "\", \"unit\": \"" unit "\", \"median\": " #median ", \"samples\": [1], " \
    "\"interval\": [1, 2], \"note\": \"\", \"better\": \"lower\", \"control\": false" rest "}"
#define RUN(results)                                                                               \
    "{\"context\": {\"machine\": {\"model\": \"A Processor\"}, \"versions\": {\"level\": "         \
    "\"v3\"}, "                                                                                    \
    "\"commit\": \"0123456789abcdef\", \"date\": \"2026-01-02T03:04:05Z\", \"configuration\": "    \
    "{\"quick\": false}}, \"benchmarks\": [" results "], \"absent\": [\"a peer: not here\"]}\n"

static const char told[] =
    RUN(RESULT("a/one", "s", 0.0000015, ", \"at_most\": 1, \"met\": true") ", " RESULT(
        "a/two", "s", 0.0000025,
        ", \"at_most\": 0.000001, \"met\": false") ", " RESULT("a/rate", "tokens/s", 538113.7,
                                                               "") ", " RESULT("a/control", "s", 9,
                                                                               ", \"control\": "
                                                                               "true"));
static const char other[] =
    RUN(RESULT("models/m/step/2-stages", "s", 0.25, ", \"ideal\": 0.125") ", " RESULT(
        "models/m/step/eager <1>", "s", 0.5,
        ", \"ideal\": 0.125") ", " RESULT("models/m/against/2-stages", "ratio", 0.5,
                                          ", \"at_most\": 1, \"met\": true"));

static char output[1 << 16];
static const char *folder; /* of the test that runs */

static int run(const char *option) {
    return test_shell(output, sizeof output, "'%s' %s '%s' 2>&1", test_bench(), option, folder);
}

static int show(const char *name) {
    return test_shell(output, sizeof output, "cat '%s/%s'", folder, name);
}

static void make_folder(void) {
    char path[1024];
    folder = test_temporary_directory();
    snprintf(path, sizeof path, "%s/results", folder);
    CHECK(mkdir(path, 0777) == 0);
    cli_write(folder, "results/told.json", told);
    cli_write(folder, "results/other.json", other);
    cli_write(folder, "results/notes.md",
              "Words: {{range told a/*o*}}, {{value told a/one}} {{met told "
              "*}}; {{value told a/rate}}.\n{{others}}{{runs}}");
}

static void test_a_page_has_the_runs_figures(void) {
    if (test_bench() == NULL) SKIP("the benches were not built");
    make_folder();
    CHECK_EQ_INT(run("--results"), 0);
    CHECK_EQ_STR(output, "");
    CHECK_EQ_INT(show("RESULTS.md"), 0);
    static const char *const words[] = {
        "Words: 1.500–2.500 µs, 1.500 µs 1 of 2; 538,114 tokens/s.\n",
        "### `other`",
        "![A training step beside the peers': other](pictures/other-peers.svg)",
        "| `models/m/step/2-stages` | 250.0 ms | | 125.0 ms (50%) | |",
        "| `models/m/against/2-stages` | 0.500× | | | ≤ 1.000× |",
        "Not measured: a peer: not here.",
        "A Processor, v3 | 2026-01-02 | `0123456789ab` | 4 | 1 of 2 |"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) CHECK_CONTAINS(output, words[i]);
    CHECK(strstr(output, "### `told`") == NULL);
    CHECK_EQ_INT(show("pictures/other-peers.svg"), 0);
    CHECK_CONTAINS(output, ">eager &#60;1&#62;</text>");
    CHECK_CONTAINS(output, "milliseconds of a training step: shorter is better");
    CHECK_CONTAINS(output, "</svg>");
}

static void test_a_stale_page_is_found(void) {
    if (test_bench() == NULL) SKIP("the benches were not built");
    make_folder();
    CHECK_EQ_INT(run("--check-results"), 1);
    CHECK_CONTAINS(output, "/RESULTS.md: stale: run './zigw build results'\n");
    CHECK_CONTAINS(output, "/pictures/other-peers.svg: stale: run './zigw build results'\n");
    CHECK_EQ_INT(run("--results"), 0);
    CHECK_EQ_INT(run("--check-results"), 0);
    cli_write(folder, "pictures/gone-peers.svg", "<svg/>");
    CHECK_EQ_INT(run("--check-results"), 1);
    CHECK_CONTAINS(output, "/pictures/gone-peers.svg: of no run: run './zigw build results'\n");
    CHECK_EQ_INT(run("--results"), 0);
    cli_write(folder, "results/told.json", RUN(RESULT("a/one", "s", 0.5, "")));
    CHECK_EQ_INT(run("--check-results"), 1);
}

static void test_notes_and_runs_that_cannot_be_are_named(void) {
    if (test_bench() == NULL) SKIP("the benches were not built");
    make_folder();
    cli_write(folder, "results/notes.md",
              "\n{{value told a/none}} {{range gone a}} {{sum told a}}\n");
    CHECK_EQ_INT(run("--results"), 1);
    CHECK_CONTAINS(output, "bench: notes.md:2: no result is called 'a/none'\n");
    CHECK_CONTAINS(output, "bench: notes.md:2: no run is called 'gone'\n");
    CHECK_CONTAINS(output, "bench: notes.md:2: there is no 'sum'\n");
    cli_write(folder, "results/other.json",
              "{\"benchmarks\": [], \"context\": {\"configuration\": "
              "{\"quick\": true}}}");
    CHECK_EQ_INT(run("--results"), 1);
    CHECK_CONTAINS(output, "/results/other.json: of --quick: its numbers mean nothing\n");
}

WEIR_TEST_SUITE(results, TEST(a_page_has_the_runs_figures), TEST(a_stale_page_is_found),
                TEST(notes_and_runs_that_cannot_be_are_named))
