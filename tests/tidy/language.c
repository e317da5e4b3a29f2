/* SPDX-License-Identifier: MIT */
/* One word for one thing: tags of structs, public names and their inner twins, how a status is
 * carried, and how many functions say what they take for granted. */
#include "tidy.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A name where it stands in the code. */
struct place {
    const char *at;
    size_t length;
    const struct file *file;
};

struct places {
    struct place *list;
    size_t count, capacity;
};

static void add(struct places *places, const char *at, size_t length, const struct file *file) {
    if (places->count == places->capacity) {
        places->capacity = places->capacity ? 2 * places->capacity : 1024;
        places->list = realloc(places->list, places->capacity * sizeof *places->list);
        if (places->list == NULL) abort();
    }
    places->list[places->count++] = (struct place){at, length, file};
}

static int compare_names(const struct place *x, const struct place *y) {
    size_t shorter = x->length < y->length ? x->length : y->length;
    int order = memcmp(x->at, y->at, shorter);
    return order != 0 ? order : (x->length > y->length) - (x->length < y->length);
}

static int by_name(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    int order = compare_names(x, y);
    if (order != 0) return order;
    if (x->file != y->file) return strcmp(x->file->path, y->file->path);
    return (x->at > y->at) - (x->at < y->at);
}

static void sort(struct places *places) {
    if (places->count > 0) qsort(places->list, places->count, sizeof *places->list, by_name);
}

static int line_at(const struct place *place) {
    int line = 1;
    for (const char *at = place->file->code; at < place->at; at++) line += *at == '\n';
    return line;
}

static bool is_product(const char *path) {
    return tidy_starts_with(path, "src/") || tidy_starts_with(path, "tools/") ||
           tidy_starts_with(path, "kernels/");
}

static size_t word_length(const char *at) {
    size_t length = 0;
    while (isalnum((unsigned char)at[length]) || at[length] == '_') length++;
    return length;
}

static bool begins_word(const struct file *file, const char *at) {
    return at == file->code || !(isalnum((unsigned char)at[-1]) || at[-1] == '_');
}

/* ---- tags ------------------------------------------------------------------------------------ */

static void find_tags(const struct file *file, const char *keyword, struct places *tags) {
    size_t length = strlen(keyword);
    for (const char *at = file->code; (at = strstr(at, keyword)); at += length) {
        if (!begins_word(file, at)) continue;
        const char *tag = at + length;
        size_t blanks = strspn(tag, " "), word = word_length(tag + blanks);
        const char *after = tag + blanks + word;
        bool defines = blanks > 0 && word > 0 && after[strspn(after, " ")] == '{';
        if (defines) add(tags, tag + blanks, word, file);
    }
}

void tidy_check_tags(const struct tree *tree) {
    static const char *const keywords[] = {"struct", "union", "enum"};
    struct places tags = {0};
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        if (!file->code || !is_product(file->path)) continue;
        for (size_t k = 0; k < sizeof keywords / sizeof *keywords; k++)
            find_tags(file, keywords[k], &tags);
    }
    sort(&tags);
    for (size_t i = 1; i < tags.count; i++) {
        const struct place *tag = &tags.list[i], *before = &tags.list[i - 1];
        if (compare_names(tag, before) != 0) continue;
        tidy_report(tag->file->path, line_at(tag), "another %.*s is in %s:%d: one tag, one thing",
                    (int)tag->length, tag->at, before->file->path, line_at(before));
    }
    free(tags.list);
}

/* ---- twins ----------------------------------------------------------------------------------- */

static void find_names(const struct file *file, const char *prefix, struct places *names) {
    size_t length = strlen(prefix);
    for (const char *at = file->code; (at = strstr(at, prefix)); at += length)
        if (begins_word(file, at) && at[length] != '_')
            add(names, at + length, word_length(at + length), file);
}

static const struct place *find(const struct places *places, const struct place *name) {
    size_t low = 0, high = places->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_names(&places->list[middle], name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < places->count && compare_names(&places->list[low], name) == 0;
    return found ? &places->list[low] : NULL;
}

/* weir__x is the library's own, weir_x everybody's: readers take the one for the other. */
void tidy_check_twins(const struct tree *tree) {
    struct places inner = {0}, outer = {0};
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        if (!file->code || !tidy_starts_with(file->path, "src/")) continue;
        find_names(file, "weir__", &inner);
        find_names(file, "weir_", &outer);
    }
    sort(&inner);
    sort(&outer);
    for (size_t i = 0; i < inner.count; i++) {
        const struct place *name = &inner.list[i];
        if (i > 0 && compare_names(name, &inner.list[i - 1]) == 0) continue;
        const struct place *twin = find(&outer, name);
        if (twin == NULL) continue;
        tidy_report(name->file->path, line_at(name), "weir__%.*s beside weir_%.*s of %s:%d",
                    (int)name->length, name->at, (int)name->length, name->at, twin->file->path,
                    line_at(twin));
    }
    free(inner.list);
    free(outer.list);
}

/* ---- a status -------------------------------------------------------------------------------- */

static bool says(const char *at, const char *words) {
    return strncmp(at, words, strlen(words)) == 0;
}

/* Work goes on after `if (status == WEIR_OK)` only where the one before may have failed: there an
 * early return or a ladder of goto says it once. */
void tidy_check_statuses(const struct tree *tree, const char *folder) {
    static const char carried[] = "if (status == WEIR_OK)";
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        if (!file->code || !tidy_starts_with(file->path, folder)) continue;
        for (const char *at = file->code; (at = strstr(at, carried)); at++) {
            const char *next = at + strlen(carried);
            next += strspn(next, " \n{");
            struct place place = {at, strlen(carried), file};
            if (says(next, "status = "))
                tidy_report(file->path, line_at(&place),
                            "a status carried on: return early, or go to a label");
        }
    }
}

/* ---- assertions ------------------------------------------------------------------------------ */

static size_t count_words(const struct file *file, const char *word) {
    size_t length = strlen(word), count = 0;
    for (const char *at = file->code; (at = strstr(at, word)); at += length)
        count += begins_word(file, at) && at[length] == '(';
    return count;
}

/* At depth 0 a function's body opens after a parenthesis. */
static size_t count_functions(const struct file *file) {
    size_t count = 0;
    int depth = 0;
    char before = 0;
    for (const char *at = file->code; *at; at++) {
        count += depth == 0 && *at == '{' && before == ')';
        depth += (*at == '{') - (*at == '}');
        if (!isspace((unsigned char)*at)) before = *at;
    }
    return count;
}

void tidy_check_assertions(const struct tree *tree, const char *folder, double least) {
    size_t functions = 0, assertions = 0;
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        if (!file->code || !tidy_starts_with(file->path, folder)) continue;
        functions += count_functions(file);
        assertions += count_words(file, "assert") + count_words(file, "_Static_assert");
    }
    if (functions == 0)
        tidy_report(folder, 0, "no functions: name the folder anew in tests/tidy/tidy.c");
    else if ((double)assertions < least * (double)functions)
        tidy_report(folder, 0, "%zu assertions in %zu functions, at least %g each: say what holds",
                    assertions, functions, least);
}
