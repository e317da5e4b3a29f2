/* SPDX-License-Identifier: MIT */
/* Checks across files: who includes whom, what is compiled, which tests are registered. */
#include "tidy.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define NAME_MAX_BYTES 256

/* ---- includes -------------------------------------------------------------------------------- */

static bool is_engine(const char *path) {
    return tidy_starts_with(path, "src/") && !tidy_starts_with(path, "src/net/") &&
           !tidy_starts_with(path, "src/io/") && strcmp(path, "src/weir_net.h") != 0 &&
           strcmp(path, "src/weir_layer.h") != 0 && strcmp(path, "src/weir_profile.h") != 0 &&
           strcmp(path, "src/weir_net_search.h") != 0;
}

/* The next `#include "name"` from *at on; false when there is none. */
static bool next_include(const char **at, char name[NAME_MAX_BYTES]) {
    static const char directive[] = "#include \"";
    const char *found = strstr(*at, directive);
    if (!found) return false;
    found += strlen(directive);
    size_t length = strcspn(found, "\"\n");
    snprintf(name, NAME_MAX_BYTES, "%.*s", (int)length, found);
    *at = found + length;
    return true;
}

static int line_of(const char *text, const char *at) {
    int line = 1;
    for (; text < at; text++) line += *text == '\n';
    return line;
}

static void check_direction(const struct file *file) {
    const char *at = file->text;
    char name[NAME_MAX_BYTES];
    while (next_include(&at, name)) {
        bool net = strstr(name, "net/") || strstr(name, "io/") || strstr(name, "weir_net.h") ||
                   strstr(name, "weir_layer.h") || strstr(name, "weir_profile.h") ||
                   strstr(name, "weir_net_search.h");
        if (!net) continue;
        tidy_report(file->path, line_of(file->text, at), "the engine includes %s: it knows no net",
                    name);
    }
}

static bool includes(const struct file *file, const char *header) {
    const char *at = file->text;
    char name[NAME_MAX_BYTES];
    const char *base = strrchr(header, '/') + 1;
    while (next_include(&at, name)) {
        const char *slash = strrchr(name, '/');
        if (strcmp(slash ? slash + 1 : name, base) == 0) return true;
    }
    return false;
}

static void check_header_is_used(const struct tree *tree, const struct file *header) {
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        if (file != header && file->code && includes(file, header->path)) return;
    }
    tidy_report(header->path, 0, "no file includes this header");
}

/* build.zig takes all of src, but only these folders below the others. */
static bool is_compiled(const char *path) {
    if (tidy_starts_with(path, "src/")) return true;
    static const char *const folders[] = {"tests/tidy/", "tests/embed/", "tests/fuzz/"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        if (tidy_starts_with(path, folders[i])) return true;
    }
    return strchr(path, '/') == strrchr(path, '/');
}

void tidy_check_includes(const struct tree *tree) {
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        if (!file->code) continue;
        if (is_engine(file->path)) check_direction(file);
        if (tidy_ends_with(file->path, ".h")) check_header_is_used(tree, file);
        if (tidy_ends_with(file->path, ".c") && !is_compiled(file->path)) {
            tidy_report(file->path, 0, "nothing compiles this file");
        }
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Whether the code has `macro(argument` followed by ) or a comma. */
static bool contains_call(const char *code, const char *macro, const char *argument) {
    size_t macro_length = strlen(macro);
    size_t argument_length = strlen(argument);
    for (const char *at = code; (at = strstr(at, macro)); at++) {
        if (at[macro_length] != '(') continue;
        const char *begin = at + macro_length + 1;
        begin += strspn(begin, " \n");
        if (strncmp(begin, argument, argument_length) != 0) continue;
        if (begin[argument_length] == ')' || begin[argument_length] == ',') return true;
    }
    return false;
}

static void check_registered(const struct file *file) {
    static const char opening[] = "static void test_";
    for (const char *at = file->code; (at = strstr(at, opening)); at++) {
        const char *begin = at + strlen(opening);
        size_t length = 0;
        while (isalnum((unsigned char)begin[length]) || begin[length] == '_') length++;
        char name[NAME_MAX_BYTES];
        snprintf(name, sizeof name, "%.*s", (int)length, begin);
        if (!tidy_starts_with(begin + length, "(void)")) continue; /* a helper */
        if (contains_call(file->code, "TEST", name)) continue;
        tidy_report(file->path, line_of(file->code, at), "TEST(%s) is not in the suite", name);
    }
}

void tidy_check_suites(const struct tree *tree) {
    const char *suites = tidy_find(tree, "tests/suites.h");
    static const char prefix[] = "tests/test_";
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        if (!tidy_starts_with(file->path, prefix) || !tidy_ends_with(file->path, ".c")) continue;
        char module[NAME_MAX_BYTES];
        int length = (int)(strlen(file->path) - strlen(prefix) - strlen(".c"));
        snprintf(module, sizeof module, "%.*s", length, file->path + strlen(prefix));
        if (!suites || !contains_call(suites, "SUITE", module)) {
            tidy_report(file->path, 0, "SUITE(%s) is not in tests/suites.h", module);
        }
        if (!contains_call(file->code, "WEIR_TEST_SUITE", module)) {
            tidy_report(file->path, 0, "it has no WEIR_TEST_SUITE(%s, ...)", module);
        }
        check_registered(file);
    }
}
