/* SPDX-License-Identifier: MIT */
/*
 * Goal: a command line is either understood exactly or refused with every fault named. Method: one
 * table with an option of every type is parsed from made-up command lines. The parser belongs to
 * the command and is in no library, so its source is compiled in here.
 */
#include "../../tools/cli/args.c"
#include "../../tools/cli/args_complete.c"
#include "../../tools/cli/args_help.c"
#include "../../tools/cli/args_man.c"
#include "harness.h"

struct inner {
    uint32_t depth;
};

struct values {
    bool tied;
    const char *text;
    uint32_t count;
    uint64_t seed;
    double rate;
    uint64_t memory;
    uint32_t mode;
    struct arg_numbers balance;
    struct arg_texts devices;
    struct arg_paths data;
    struct inner inner;
};

#define AT(member) offsetof(struct values, member)

static const char *const modes[] = {"always", "except_last", "never", NULL};

static const struct arg_option plain_options[] = {
    {"tied", ARG_FLAG, AT(tied), "one"},
    {"untied", ARG_UNFLAG, AT(tied), "two"},
    {"text", ARG_TEXT, AT(text), "words", .value = "TEXT", .environment = "WEIR_TEST_ARGS_TEXT"},
    {"count", ARG_U32, AT(count), "how many", .value = "N", .fallback = "8", .unit = "rows",
     .environment = "WEIR_TEST_ARGS_COUNT", .least = 1, .most = 1000},
    {"seed", ARG_U64, AT(seed), "any", .value = "S"},
    {"rate", ARG_REAL, AT(rate), "a number", .value = "X", .fallback = "1e-3", .most = 1.0},
    {"memory", ARG_BYTES, AT(memory), "a size", .value = "SIZE", .fallback = "2GiB"},
    {"mode", ARG_CHOICE, AT(mode), "a choice", .fallback = "never", .choices = modes},
    {"balance", ARG_U32_LIST, AT(balance), "numbers", .value = "A,B", .least = 1},
    {"device", ARG_LIST, AT(devices), "names", .value = "A,B"},
    {"data", ARG_PATHS, AT(data), "paths", .value = "PATH..."},
};
static const struct arg_option inner_options[] = {
    {"depth", ARG_U32, offsetof(struct inner, depth), "of the other section", .value = "N",
     .fallback = "5"},
};
static const struct arg_section sections[] = {
    {"Plain", plain_options, sizeof(plain_options) / sizeof(plain_options[0]), 0},
    {"Inner", inner_options, 1, AT(inner)},
};
static const struct arg_command command = {"make", "makes things", "More about it.", sections, 2};

struct parsed {
    char words[24][600];
    char *argv[24];
    struct values values;
    struct args args;
    struct weir_faults faults;
    bool help;
};

/* Parses words separated by blanks; a comma at the end of WORDS adds nothing. */
static void parse(struct parsed *parsed, const char *line) {
    int argc = 1;
    char *rest = NULL, copy[1200];
    memset(parsed, 0, sizeof(*parsed));
    snprintf(copy, sizeof(copy), "%s", line);
    parsed->argv[0] = strcpy(parsed->words[0], "make");
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        parsed->argv[argc] = strcpy(parsed->words[argc], word);
        argc++;
    }
    parsed->faults.allocator = test_allocator();
    parsed->help =
        args_parse(&parsed->args, &command, argc, parsed->argv, &parsed->values, &parsed->faults);
}

/* The line is refused with these faults, NULL after the last, in this order. */
static void refused(const char *line, const char *const *wanted) {
    struct parsed parsed;
    uint32_t count = 0;
    parse(&parsed, line);
    for (; wanted[count]; count++) {
        EXPECT_EQ_STR(count < parsed.faults.kept ? parsed.faults.lines[count] : "(none)",
                      wanted[count]);
    }
    EXPECT_EQ_UINT(parsed.faults.count, count);
    weir_faults_clean_up(&parsed.faults);
}

#define REFUSED(line, ...) refused(line, (const char *const[]){__VA_ARGS__, NULL})

static void accepted(struct parsed *parsed, const char *line) {
    parse(parsed, line);
    for (uint32_t i = 0; i < parsed->faults.kept; i++) TEST_FAIL("%s", parsed->faults.lines[i]);
    weir_faults_clean_up(&parsed->faults);
}

static void test_defaults_come_from_the_table(void) {
    struct parsed parsed;
    accepted(&parsed, "");
    CHECK(!parsed.help);
    CHECK_EQ_UINT(parsed.values.count, 8);
    CHECK_NEAR(parsed.values.rate, 1e-3, 0.0);
    CHECK_EQ_UINT(parsed.values.memory, (uint64_t)2 << 30);
    CHECK_EQ_UINT(parsed.values.mode, 2);
    CHECK_EQ_UINT(parsed.values.inner.depth, 5);
    CHECK_EQ_STR(parsed.values.text, NULL);
    CHECK_EQ_UINT(parsed.values.data.count, 0);
    CHECK(!args_given(&parsed.args, "count"));
}

static void test_every_type_is_read(void) {
    struct parsed parsed;
    accepted(&parsed, "--tied --text a=b --count 1000 --seed=18446744073709551615 --rate .5 "
                      "--memory 1.5KiB --mode except_last --balance 3,4,2 --device cpu,cuda:0 "
                      "--depth 7 --data x y/z -");
    CHECK(parsed.values.tied);
    CHECK_EQ_STR(parsed.values.text, "a=b");
    CHECK_EQ_UINT(parsed.values.count, 1000);
    CHECK_EQ_UINT(parsed.values.seed, UINT64_MAX);
    CHECK_NEAR(parsed.values.rate, 0.5, 0.0);
    CHECK_EQ_UINT(parsed.values.memory, 1536);
    CHECK_EQ_UINT(parsed.values.mode, 1);
    CHECK_EQ_UINT(parsed.values.balance.count, 3);
    CHECK_EQ_UINT(parsed.values.balance.items[0], 3);
    CHECK_EQ_UINT(parsed.values.balance.items[2], 2);
    CHECK_EQ_UINT(parsed.values.devices.count, 2);
    CHECK_EQ_STR(arg_texts_get(&parsed.values.devices, 0), "cpu");
    CHECK_EQ_STR(arg_texts_get(&parsed.values.devices, 1), "cuda:0");
    CHECK_EQ_UINT(parsed.values.inner.depth, 7);
    CHECK_EQ_UINT(parsed.values.data.count, 3);
    CHECK_EQ_STR(parsed.values.data.items[0], "x");
    CHECK_EQ_STR(parsed.values.data.items[2], "-");
    CHECK(args_given(&parsed.args, "depth") && args_given(&parsed.args, "count"));
    CHECK(!args_given(&parsed.args, "untied") && !args_given(&parsed.args, "none"));
}

static void test_equals_sign_and_last_one_counts(void) {
    struct parsed parsed;
    accepted(&parsed, "--count=3 --count 4 --tied --untied --text=--x --rate=-0 --text=");
    CHECK_EQ_UINT(parsed.values.count, 4);
    CHECK(!parsed.values.tied);
    CHECK_EQ_STR(parsed.values.text, "");
}

static void test_paths_behind_an_equals_sign(void) {
    struct parsed parsed;
    accepted(&parsed, "--data=one two --count 2");
    CHECK_EQ_UINT(parsed.values.data.count, 2);
    CHECK_EQ_STR(parsed.values.data.items[0], "one");
    CHECK_EQ_STR(parsed.values.data.items[1], "two");
    CHECK_EQ_UINT(parsed.values.count, 2);
}

static void test_all_faults_are_listed(void) {
    REFUSED("--cuont 3 --rate x --mode newer --memory 8GB stray --seed",
            "unknown option --cuont: did you mean --count?",
            "--rate x: not a number: write it like 0.001 or 1e-3",
            "--mode newer: not one of always, except_last, never: did you mean never?",
            "--memory 8GB: not a size: write it like 4096, 64KiB, 512MiB or 8GiB",
            "unexpected 'stray': options begin with --", "--seed needs a value: write --seed S");
}

static void test_unknown_options_suggest_the_nearest(void) {
    REFUSED("--balanse 1,2", "unknown option --balanse: did you mean --balance?");
    REFUSED("--dpeth=3", "unknown option --dpeth=3: did you mean --depth?");
    REFUSED("-count 3", "unknown option -count: did you mean --count?");
    REFUSED("--hepl", "unknown option --hepl: did you mean --help?");
    REFUSED("--quux", "unknown option --quux: 'weir make --help' lists them");
    REFUSED("--", "unknown option --: 'weir make --help' lists them");
    REFUSED("--c 3", "unknown option --c: 'weir make --help' lists them");
}

static void test_numbers_are_strict(void) {
    static const char *const wrong[] = {"",   "-1", "+1",  "1e3", "0x10",
                                        "8x", " 8", "1.0", "x",   "1,2"};
    char line[64], fault[128];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        if (wrong[i][0] == ' ') continue;
        snprintf(line, sizeof(line), "--seed=%s", wrong[i]);
        snprintf(fault, sizeof(fault), "--seed %s: not a whole number: write digits only, like 8",
                 wrong[i]);
        REFUSED(line, fault);
    }
    REFUSED("--seed 18446744073709551616",
            "--seed 18446744073709551616: too large: give at most 18446744073709551615");
    REFUSED("--depth 4294967296", "--depth 4294967296: too large: give at most 4294967295");
    REFUSED("--count 0", "--count 0: too small: give at least 1");
    REFUSED("--count 1001", "--count 1001: too large: give at most 1000");
}

static void test_real_numbers_are_finite_and_in_range(void) {
    static const char *const wrong[] = {"nan", "inf", "0x1p3", "1e999", "1.5.2", "", "1e"};
    char line[64], fault[128];
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(line, sizeof(line), "--rate=%s", wrong[i]);
        snprintf(fault, sizeof(fault), "--rate %s: not a number: write it like 0.001 or 1e-3",
                 wrong[i]);
        REFUSED(line, fault);
    }
    REFUSED("--rate -0.5", "--rate -0.5: too small: give at least 0");
    REFUSED("--rate 1.5", "--rate 1.5: too large: give at most 1");
}

static void test_sizes_have_binary_units(void) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } right[] = {{"0", 0},
                 {"4096", 4096},
                 {"7B", 7},
                 {"64KiB", 65536},
                 {"512MiB", 512u << 20},
                 {"8GiB", (uint64_t)8 << 30},
                 {"0.5TiB", (uint64_t)1 << 39}};
    static const char *const wrong[] = {"8G", "8gib", "GiB", "1.2.3KiB", "-1", ".", "8GiBx"};
    struct parsed parsed;
    char line[64];
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        snprintf(line, sizeof(line), "--memory %s", right[i].text);
        accepted(&parsed, line);
        CHECK_EQ_UINT(parsed.values.memory, right[i].bytes);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        snprintf(line, sizeof(line), "--memory=%s", wrong[i]);
        parse(&parsed, line);
        EXPECT(parsed.faults.count > 0);
        if (parsed.faults.kept) EXPECT_CONTAINS(parsed.faults.lines[0], "write it like 4096");
        weir_faults_clean_up(&parsed.faults);
    }
    REFUSED("--memory 1.3B",
            "--memory 1.3B: not a whole number of bytes: write it like 4096, 64KiB "
            "or 8GiB");
    REFUSED("--memory 8193TiB", "--memory 8193TiB: not a size below 8192TiB: give less");
}

static void test_lists_are_read_item_by_item(void) {
    REFUSED("--balance 3,x,0,,5", "--balance x: not a whole number: write digits only, like 8",
            "--balance 0: too small: give at least 1",
            "--balance : not a whole number: write digits only, like 8");
    REFUSED("--device cpu,,cpu",
            "--device cpu,,cpu: not a list: separate up to 256 names by single commas");
    REFUSED("--device cpu,",
            "--device cpu,: not a list: separate up to 256 names by single commas");
    char line[1200] = "--balance 1";
    for (int i = 0; i < 255; i++) strcat(line, ",1");
    struct parsed parsed;
    memset(&parsed, 0, sizeof(parsed));
    accepted(&parsed, line);
    CHECK_EQ_UINT(parsed.values.balance.count, 256);
    strcat(line, ",1");
    REFUSED(line, "--balance: more than 256 numbers: give fewer");
}

static void test_paths_are_given_once_and_not_empty(void) {
    REFUSED("--data", "--data needs a value: give one or more paths");
    REFUSED("--data --count 2", "--data needs a value: give one or more paths");
    REFUSED("--data a --data b", "--data is given twice: name all paths after one --data");
}

static void test_flags_take_no_value(void) {
    REFUSED("--tied=yes", "--tied takes no value: write --tied");
    REFUSED("--text --count 3", "--text needs a value: write --text TEXT");
}

static void test_environment_replaces_defaults_only(void) {
    struct parsed parsed;
    setenv("WEIR_TEST_ARGS_COUNT", "17", 1);
    setenv("WEIR_TEST_ARGS_TEXT", "", 1);
    accepted(&parsed, "");
    EXPECT_EQ_UINT(parsed.values.count, 17);
    EXPECT_EQ_STR(parsed.values.text, NULL);
    EXPECT(!args_given(&parsed.args, "count"));
    accepted(&parsed, "--count 3");
    EXPECT_EQ_UINT(parsed.values.count, 3);
    setenv("WEIR_TEST_ARGS_COUNT", "many", 1);
    REFUSED("", "WEIR_TEST_ARGS_COUNT many: not a whole number: write digits only, like 8");
    unsetenv("WEIR_TEST_ARGS_COUNT");
    unsetenv("WEIR_TEST_ARGS_TEXT");
}

static void test_distance_counts_edits_and_swaps(void) {
    CHECK_EQ_UINT(weir__edit_distance("", ""), 0);
    CHECK_EQ_UINT(weir__edit_distance("", "abc"), 3);
    CHECK_EQ_UINT(weir__edit_distance("abc", ""), 3);
    CHECK_EQ_UINT(weir__edit_distance("kitten", "sitting"), 3);
    CHECK_EQ_UINT(weir__edit_distance("stages", "satges"), 1);
    CHECK_EQ_UINT(weir__edit_distance("ab", "ba"), 1);
    CHECK_EQ_UINT(weir__edit_distance("schedule", "schedule"), 0);
    static const char *const names[] = {"gpipe", "1f1b", NULL};
    CHECK_EQ_STR(weir__nearest("gpip", names), "gpipe");
    CHECK_EQ_STR(weir__nearest("1b1f", names), "1f1b");
    CHECK_EQ_STR(weir__nearest("interleaved", names), NULL);
    char endless[4000];
    memset(endless, 'x', sizeof(endless) - 1);
    endless[sizeof(endless) - 1] = 0;
    CHECK_EQ_STR(weir__nearest(endless, names), NULL);
}

/* A surplus of faults, long words and no memory for them are no trouble. */
static void test_hostile_lines_are_survived(void) {
    struct parsed parsed;
    char line[1200] = "--count ";
    memset(line + 8, '9', 500);
    parse(&parsed, line);
    EXPECT_FAULTS(&parsed.faults, "too large: give at most 1000");
    weir_faults_clean_up(&parsed.faults);
    memset(line, '-', 500);
    line[500] = 0;
    parse(&parsed, line);
    EXPECT_FAULTS(&parsed.faults, "unknown option ----");
    weir_faults_clean_up(&parsed.faults);
    test_allocator_fail_at(1, true);
    parse(&parsed, "--nonsense 1 --count x");
    test_allocator_fail_at(0, false);
    CHECK_EQ_UINT(parsed.faults.count, 2); /* the lines found no memory */
    EXPECT_EQ_UINT(parsed.faults.kept, 0);
    weir_faults_clean_up(&parsed.faults);
}

WEIR_TEST_SUITE(args, TEST(defaults_come_from_the_table), TEST(every_type_is_read),
                TEST(equals_sign_and_last_one_counts), TEST(paths_behind_an_equals_sign),
                TEST(all_faults_are_listed), TEST(unknown_options_suggest_the_nearest),
                TEST(numbers_are_strict), TEST(real_numbers_are_finite_and_in_range),
                TEST(sizes_have_binary_units), TEST(lists_are_read_item_by_item),
                TEST(paths_are_given_once_and_not_empty), TEST(flags_take_no_value),
                TEST(environment_replaces_defaults_only), TEST(distance_counts_edits_and_swaps),
                TEST(hostile_lines_are_survived))
