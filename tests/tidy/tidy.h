/* SPDX-License-Identifier: MIT */
/**
 * Checks of the source tree: what STYLE asks for and a program can see. Each check walks the loaded
 * files and reports what it finds; nothing is ever changed.
 */
#ifndef WEIR_TESTS_TIDY_H
#define WEIR_TESTS_TIDY_H

#include <stdbool.h>
#include <stddef.h>

struct file {
    char *path;  /* relative to the project */
    char *text;  /* ended by 0 */
    char *code;  /* the same, with comments, literals and preprocessor lines blanked; C only */
    char *plain; /* the same, with comments and literals blanked; C only */
};

struct tree {
    struct file *files; /* sorted by path */
    size_t count;
    size_t capacity;
};

/** Reports one problem, printf-like; line 0 is the whole file. */
void tidy_report(const char *path, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

bool tidy_starts_with(const char *text, const char *prefix);
bool tidy_ends_with(const char *text, const char *suffix);
/** Whether `path` is C, C++ or CUDA. */
bool tidy_is_c(const char *path);
/** The text of a loaded file, or NULL. */
const char *tidy_find(const struct tree *tree, const char *path);

/** Lines: width, blanks at the end, tabs, banned words; files: length. */
void tidy_check_lines(const struct tree *tree);
/** Functions are at most 70 lines long. */
void tidy_check_functions(const struct tree *tree);
/** The engine includes nothing of net or io; every header is included, every .c, .cc and .cu
 * compiled. */
void tidy_check_includes(const struct tree *tree);
/** Folders include each other in no cycle; of one that there is, each include is a problem. */
void tidy_check_rooms(const struct tree *tree);
/** Every function of the public headers has a comment before it. */
void tidy_check_comments(const struct tree *tree);
/** No two structs, unions or enums of the product have one tag. */
void tidy_check_tags(const struct tree *tree);
/** No weir__x stands beside a weir_x. */
void tidy_check_twins(const struct tree *tree);
/** In a folder no status is carried on through conditions. */
void tidy_check_statuses(const struct tree *tree, const char *folder);
/** A folder's functions hold at least so many assertions each, on average. */
void tidy_check_assertions(const struct tree *tree, const char *folder, double least);
/** Every CUDA kernel is exported to the emulation. */
void tidy_check_kernels(const struct tree *tree);
/** Every test file has its SUITE line and every test function its TEST. */
void tidy_check_suites(const struct tree *tree);
/** Global symbols of both archives begin with weir_; what they need is the C library, hwloc, and
 * for net jansson too. */
void tidy_check_symbols(const char *engine_path, const char *net_path);

#endif
