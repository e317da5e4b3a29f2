/* SPDX-License-Identifier: MIT */
/*
 * Goal: tidy finds a cycle of folders and names the includes that make it, and nothing else.
 * Method: trees in memory, with and without a planted fault.
 */
#include "../tidy/rooms.c"
#include "harness.h"

#include <stdarg.h>

static char reports[1024];

void tidy_report(const char *path, int line, const char *format, ...) {
    size_t used = strlen(reports);
    used += (size_t)snprintf(reports + used, sizeof reports - used, "%s:%d ", path, line);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reports + used, sizeof reports - used, format, arguments);
    va_end(arguments);
    strncat(reports, "\n", sizeof reports - strlen(reports) - 1);
}

bool tidy_is_c(const char *path) {
    return path[strlen(path) - 1] == 'c' || path[strlen(path) - 1] == 'h';
}

static const char *check_rooms(struct file *files, size_t count) {
    reports[0] = 0;
    tidy_check_rooms(&(struct tree){.files = files, .count = count});
    return reports;
}

static void test_rooms_without_a_cycle_pass(void) {
    struct file files[] = {
        {.path = "src/a/a.c", .text = "#include \"a/a.h\"\n#include \"b/b.h\"\n"},
        {.path = "src/a/a.h", .text = "#include <stdio.h>\n"},
        {.path = "src/b/b.h", .text = "#include \"c.h\"\n#include \"none.h\"\n"},
        {.path = "src/c.h", .text = ""},
        {.path = "src/b/notes.txt", .text = "#include \"a/a.h\"\n"},
        {.path = "tests/t.c", .text = "#include \"a/a.h\"\n#include \"b/b.h\"\n"},
    };
    CHECK_EQ_STR(check_rooms(files, 6), "");
}

static void test_a_cycle_of_folders_is_named_with_its_includes(void) {
    struct file files[] = {
        {.path = "src/a/a.h", .text = "\n#include \"b/b.h\"\n"},
        {.path = "src/b/b.c", .text = "#include \"c/c.h\"\n"},
        {.path = "src/b/b.h", .text = ""},
        {.path = "src/c/c.c", .text = "#  include \"none.h\"\n"},
        {.path = "src/c/c.h", .text = "#include \"d.h\"\n"},
        {.path = "src/d.h", .text = "#include \"a/a.h\"\n"},
    };
    CHECK_EQ_STR(check_rooms(files, 6),
                 "src/a/a.h:2 src/a knows src/b by this include of src/b/b.h, in a cycle of "
                 "folders\n"
                 "src/d.h:1 src knows src/a by this include of src/a/a.h, in a cycle of folders\n"
                 "src/c/c.h:1 src/c knows src by this include of src/d.h, in a cycle of folders\n"
                 "src/b/b.c:1 src/b knows src/c by this include of src/c/c.h, in a cycle of "
                 "folders\n");
}

static void test_the_shortest_cycle_is_named(void) {
    struct file files[] = {
        {.path = "src/a/a.h", .text = "#include \"b/b.h\"\n"},
        {.path = "src/b/b.h", .text = "#include \"c/c.h\"\n"},
        {.path = "src/c/c.h", .text = "#include \"a/a.h\"\n#include \"b/b.h\"\n"},
    };
    CHECK_EQ_STR(
        check_rooms(files, 3),
        "src/b/b.h:1 src/b knows src/c by this include of src/c/c.h, in a cycle of folders\n"
        "src/c/c.h:2 src/c knows src/b by this include of src/b/b.h, in a cycle of folders\n");
}

WEIR_TEST_SUITE(tidy, TEST(rooms_without_a_cycle_pass),
                TEST(a_cycle_of_folders_is_named_with_its_includes),
                TEST(the_shortest_cycle_is_named))
