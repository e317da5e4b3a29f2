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
           strcmp(path, "src/weir_profile.h") != 0 && strcmp(path, "src/weir_models.h") != 0;
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

/* The engine knows neither nets nor io, and io knows no net. */
static void check_direction(const struct file *file) {
    bool engine = is_engine(file->path);
    if (!engine && !tidy_starts_with(file->path, "src/io/")) return;
    const char *at = file->text;
    char name[NAME_MAX_BYTES];
    while (next_include(&at, name)) {
        bool net = strstr(name, "net/") || strstr(name, "weir_net.h") ||
                   strstr(name, "weir_models.h") || strstr(name, "weir_profile.h") ||
                   (engine && strstr(name, "io/"));
        if (!net) continue;
        tidy_report(file->path, line_of(file->text, at), "%s includes %s: it knows no net",
                    engine ? "the engine" : "io", name);
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

/* build.zig takes all .c of src, but only these folders below the others. */
static bool is_compiled(const char *path) {
    static const char *const cuda_folders[] = {"kernels/engine/", "kernels/net/", "tests/toys/",
                                               "examples/", NULL};
    static const char *const folders[] = {
        "tests/cli/",  "tests/cuda/",      "tests/engine/", "tests/io/",           "tests/kernels/",
        "tests/net/",  "tests/schedule/",  "tests/world/",  "tests/tidy/",         "tests/embed/",
        "tests/fuzz/", "tests/fake_cuda/", "tests/toys/",   "tests/managed_cuda/", "tools/cli/",
        "tools/cmd/",  "tools/data/",      "tools/text/",   "tests/text/",         NULL};
    bool cuda = tidy_ends_with(path, ".cu");
    bool fake = tidy_ends_with(path, ".cc");
    if (!cuda && !fake && tidy_starts_with(path, "src/")) return true;
    for (const char *const *folder = cuda ? cuda_folders : folders; *folder; folder++) {
        const char *rest = path + strlen(*folder);
        if (tidy_starts_with(path, *folder) && (!cuda || !strchr(rest, '/'))) return true;
    }
    return !cuda && !fake && strchr(path, '/') == strrchr(path, '/');
}

void tidy_check_includes(const struct tree *tree) {
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        if (!file->code) continue;
        check_direction(file);
        bool header = tidy_ends_with(file->path, ".h") || tidy_ends_with(file->path, ".cuh");
        if (header) check_header_is_used(tree, file);
        bool source = tidy_ends_with(file->path, ".c") || tidy_ends_with(file->path, ".cu") ||
                      tidy_ends_with(file->path, ".cc");
        if (source && !is_compiled(file->path)) {
            tidy_report(file->path, 0, "nothing compiles this file");
        }
    }
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* The emulation runs a kernel, and the tests reach it, only if it is exported in build.zig's
 * words: a line that is just that. */
static void check_exports(const struct file *file) {
    static const char opening[] = "extern \"C\" __global__ void";
    for (const char *at = file->text; (at = strstr(at, opening)); at++) {
        const char *name = strstr(at, "weir_");
        size_t length = name ? strcspn(name, "( \n") : 0;
        char line[NAME_MAX_BYTES];
        if (name && memchr(name, '#', length)) continue; /* a macro's: its uses are exported */
        snprintf(line, sizeof line, "\nEXPORT_KERNEL(%.*s);\n", (int)length, name ? name : "");
        if (name && strstr(at, line)) continue;
        tidy_report(file->path, line_of(file->text, at), "this kernel has no line%s", line);
    }
}

void tidy_check_kernels(const struct tree *tree) {
    for (size_t i = 0; i < tree->count; i++) {
        if (tidy_ends_with(tree->files[i].path, ".cu")) check_exports(&tree->files[i]);
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
    static const char prefix[] = "test_";
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        const char *name = strrchr(file->path, '/');
        name = name ? name + 1 : file->path;
        if (!tidy_starts_with(file->path, "tests/") || !tidy_starts_with(name, prefix)) continue;
        if (!tidy_ends_with(name, ".c")) continue;
        char module[NAME_MAX_BYTES];
        int length = (int)(strlen(name) - strlen(prefix) - strlen(".c"));
        /* Compiled for each level: a suite of that name and the level's for each. */
        bool leveled = strstr(file->code, "WEIR_LEVEL") != NULL;
        const char *begin = name + strlen(prefix);
        snprintf(module, sizeof module, "%.*s%s", length, begin, leveled ? "_v2" : "");
        if (!suites || !contains_call(suites, "SUITE", module)) {
            tidy_report(file->path, 0, "SUITE(%s) is not in tests/suites.h", module);
        }
        if (!leveled && !contains_call(file->code, "WEIR_TEST_SUITE", module)) {
            tidy_report(file->path, 0, "it has no WEIR_TEST_SUITE(%s, ...)", module);
        }
        check_registered(file);
    }
}
