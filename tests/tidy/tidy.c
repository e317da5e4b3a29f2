/* SPDX-License-Identifier: MIT */
/*
 * tidy, run in the project's folder, enforces the rules of style that a program can check, so that
 * people need not; with --engine=libweir.a --net=libweir_net.a it checks the archives instead.
 * Exit 0 when all hold.
 */
#include "tidy.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int problems;

void tidy_report(const char *path, int line, const char *format, ...) {
    problems++;
    fprintf(stderr, "%s:", path);
    if (line > 0) fprintf(stderr, "%d:", line);
    fputc(' ', stderr);
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

static void *check_memory(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "tidy: out of memory\n");
    exit(2);
}

bool tidy_starts_with(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool tidy_ends_with(const char *text, const char *suffix) {
    size_t length = strlen(text);
    size_t suffix_length = strlen(suffix);
    return length >= suffix_length && strcmp(text + length - suffix_length, suffix) == 0;
}

bool tidy_is_c(const char *path) {
    return tidy_ends_with(path, ".c") || tidy_ends_with(path, ".h") ||
           tidy_ends_with(path, ".inc") || tidy_ends_with(path, ".cpp") ||
           tidy_ends_with(path, ".cc") || tidy_ends_with(path, ".cu") ||
           tidy_ends_with(path, ".cuh");
}

const char *tidy_find(const struct tree *tree, const char *path) {
    for (size_t i = 0; i < tree->count; i++) {
        if (strcmp(tree->files[i].path, path) == 0) return tree->files[i].text;
    }
    return NULL;
}

/* ---- loading --------------------------------------------------------------------------------- */

static char *read_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    size_t length = 0, capacity = 1 << 16;
    char *text = check_memory(malloc(capacity));
    size_t got;
    while ((got = fread(text + length, 1, capacity - length - 1, file)) > 0) {
        length += got;
        if (length + 1 == capacity) text = check_memory(realloc(text, capacity *= 2));
    }
    fclose(file);
    text[length] = 0;
    return text;
}

static void blank(char *at) {
    if (*at != '\n' && *at != 0) *at = ' ';
}

/* Blanks a literal that opens at `at`; returns where it ends. */
static char *blank_literal(char *at) {
    char quote = *at;
    blank(at++);
    while (*at && *at != quote && *at != '\n') {
        if (*at == '\\' && at[1]) blank(at++);
        blank(at++);
    }
    blank(at);
    return *at ? at + 1 : at;
}

static char *blank_comment(char *at) {
    bool line = at[1] == '/';
    blank(at++);
    blank(at++);
    while (*at && !(line ? *at == '\n' : at[0] == '*' && at[1] == '/')) blank(at++);
    if (*at && !line) {
        blank(at++);
        blank(at++);
    }
    return at;
}

static bool opens_literal(const char *text, const char *at) {
    if (*at == '"') return true;
    bool digit_separator = at > text && at[-1] >= '0' && at[-1] <= '9';
    return *at == '\'' && !digit_separator;
}

static void blank_comments_and_literals(char *text) {
    char *at = text;
    while (*at) {
        if (at[0] == '/' && (at[1] == '/' || at[1] == '*'))
            at = blank_comment(at);
        else if (opens_literal(text, at))
            at = blank_literal(at);
        else
            at++;
    }
}

static void blank_preprocessor(char *text) {
    for (char *line = text; *line;) {
        char *at = line + strspn(line, " ");
        bool directive = *at == '#';
        while (*at && *at != '\n') {
            bool continued = directive && at[0] == '\\' && at[1] == '\n';
            if (directive) blank(at);
            at += continued ? 2 : 1;
        }
        line = *at ? at + 1 : at;
    }
}

static void add_file(struct tree *tree, const char *path) {
    char *text = read_file(path);
    if (!text) return;
    if (tree->count == tree->capacity) {
        tree->capacity = tree->capacity ? tree->capacity * 2 : 64;
        tree->files = check_memory(realloc(tree->files, tree->capacity * sizeof *tree->files));
    }
    struct file *file = &tree->files[tree->count++];
    *file = (struct file){.path = check_memory(strdup(path)), .text = text};
    if (!tidy_is_c(path)) return;
    file->plain = check_memory(strdup(text));
    blank_comments_and_literals(file->plain);
    file->code = check_memory(strdup(file->plain));
    blank_preprocessor(file->code);
}

static void add_folder(struct tree *tree, const char *folder) {
    DIR *stream = opendir(folder);
    if (!stream) return;
    struct dirent *entry;
    while ((entry = readdir(stream))) {
        if (entry->d_name[0] == '.') continue;
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        struct stat stat_result;
        if (stat(path, &stat_result) != 0) continue;
        bool source = tidy_is_c(path) || tidy_ends_with(path, ".zig") ||
                      tidy_ends_with(path, ".sh") || tidy_ends_with(path, ".css") ||
                      tidy_ends_with(path, ".js");
        if (S_ISDIR(stat_result.st_mode) && strcmp(entry->d_name, "zig-out") != 0) {
            add_folder(tree, path);
        } else if (S_ISREG(stat_result.st_mode) && source) {
            add_file(tree, path);
        }
    }
    closedir(stream);
}

static int compare_files(const void *a, const void *b) {
    return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static void load(struct tree *tree) {
    static const char *const folders[] = {"src",   "tools",   "bench",   "tests",
                                          "build", "kernels", "examples"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) add_folder(tree, folders[i]);
    static const char *const files[] = {"build.zig", "zigw", ".ci/run"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) add_file(tree, files[i]);
    qsort(tree->files, tree->count, sizeof *tree->files, compare_files);
}

/* So many assertions a function, on average: most where invariants are richest. */
static void check_floors(const struct tree *tree) {
    static const struct {
        const char *folder;
        double least;
    } floors[] = {
        {"src/balance/", 0.5}, {"src/pipe/", 0.5}, {"src/schedule/", 0.4}, {"src/skip/", 0.4},
        {"src/place/", 0.4},   {"src/base/", 0.3}, {"src/device/", 0.3},   {"src/io/", 0.4},
        {"src/trace/", 0.25},  {"src/net/", 0.2},
    };
    for (size_t i = 0; i < sizeof floors / sizeof *floors; i++)
        tidy_check_assertions(tree, floors[i].folder, floors[i].least);
}

static void check_sources(void) {
    struct tree tree = {0};
    load(&tree);
    tidy_check_lines(&tree);
    tidy_check_functions(&tree);
    tidy_check_includes(&tree);
    tidy_check_rooms(&tree);
    tidy_check_comments(&tree);
    tidy_check_kernels(&tree);
    tidy_check_tags(&tree);
    tidy_check_twins(&tree);
    tidy_check_statuses(&tree, "src/");
    tidy_check_statuses(&tree, "tools/");
    check_floors(&tree);
    tidy_check_suites(&tree);
    printf("tidy: %zu files, %d problems\n", tree.count, problems);
}

int main(int argc, char **argv) {
    const char *engine = NULL;
    const char *net = NULL;
    for (int i = 1; i < argc; i++) {
        if (tidy_starts_with(argv[i], "--engine="))
            engine = argv[i] + strlen("--engine=");
        else if (tidy_starts_with(argv[i], "--net="))
            net = argv[i] + strlen("--net=");
        else
            return fprintf(stderr, "tidy: %s: unknown argument\n", argv[i]), 2;
    }
    if (engine && net)
        tidy_check_symbols(engine, net);
    else
        check_sources();
    return problems > 0 ? 1 : 0;
}
