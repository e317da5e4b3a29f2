/* SPDX-License-Identifier: MIT */
/*
 * Goal: every behaviour that the project promises to share with torchgpipe and PyTorch's Pipe has a
 * test that names it. Method: reads the sources of the tests; an id counts when it stands in a
 * comment on its own line (`// SK-3`) directly before a registered test, or within it.
 */
#include "harness.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_MAX_BYTES 512
#define IDS_MAX 128

/* Ids are GROUP-1 ... GROUP-last. */
static const struct {
    const char *group;
    int last;
} groups[] = {{"MB", 7}, {"PI", 13}, {"CK", 7}, {"SK", 8}, {"LA", 5},
              {"PO", 9}, {"ST", 4},  {"BN", 3}, {"BA", 3}};
#define GROUP_COUNT (sizeof groups / sizeof groups[0])

struct seen {
    bool found[GROUP_COUNT][IDS_MAX];
    bool pending[GROUP_COUNT][IDS_MAX]; /* in the comment above the line that is being read */
    bool inside;                        /* that line is within a registered test */
};

static bool is_word(char c) {
    return isalnum((unsigned char)c) || c == '_' || c == '-';
}

/* Marks the ids that stand in a comment's text. */
static void mark_ids(const char *text, bool ids[GROUP_COUNT][IDS_MAX]) {
    for (const char *at = text; *at; at++) {
        if (at > text && is_word(at[-1])) continue;
        for (size_t g = 0; g < GROUP_COUNT; g++) {
            size_t length = strlen(groups[g].group);
            if (strncmp(at, groups[g].group, length) != 0 || at[length] != '-') continue;
            char *end;
            long number = strtol(at + length + 1, &end, 10);
            if (end != at + length + 1 && !is_word(*end) && number > 0 && number < IDS_MAX) {
                ids[g][number] = true;
            }
        }
    }
}

static void settle_pending(struct seen *seen, bool registered) {
    for (size_t g = 0; g < GROUP_COUNT; g++) {
        for (int i = 0; i < IDS_MAX; i++) seen->found[g][i] |= registered && seen->pending[g][i];
    }
    memset(seen->pending, 0, sizeof seen->pending);
}

/* "static void test_name(void)" of a test that stands in the file's suite. */
static bool opens_registered_test(const char *line, const char *file_text) {
    static const char opening[] = "static void test_";
    if (strncmp(line, opening, strlen(opening)) != 0) return false;
    const char *name = line + strlen(opening);
    char registration[LINE_MAX_BYTES];
    snprintf(registration, sizeof registration, "TEST(%.*s)", (int)strcspn(name, "("), name);
    return strstr(file_text, registration) != NULL;
}

static void read_line(struct seen *seen, const char *line, const char *file_text) {
    const char *word = line + strspn(line, " ");
    bool comment = strncmp(word, "//", 2) == 0 || strncmp(word, "/*", 2) == 0 || *word == '*';
    if (comment) {
        mark_ids(word, seen->inside ? seen->found : seen->pending);
    } else if (*line == '}') {
        seen->inside = false;
    } else if (!seen->inside && *word != 0) {
        seen->inside = opens_registered_test(line, file_text);
        settle_pending(seen, seen->inside);
    }
}

static char *read_whole(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) return NULL;
    size_t capacity = 1 << 20;
    char *text = malloc(capacity);
    size_t length = text ? fread(text, 1, capacity - 1, file) : 0;
    fclose(file);
    if (text) text[length] = 0;
    return text;
}

static void read_source(struct seen *seen, const char *path) {
    char *text = read_whole(path);
    if (!EXPECT(text)) return;
    seen->inside = false;
    for (const char *at = text; *at;) {
        char line[LINE_MAX_BYTES];
        size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        read_line(seen, line, text);
        at += length + (at[length] == '\n');
    }
    settle_pending(seen, false);
    free(text);
}

/* And those below it. */
static void read_folder(struct seen *seen, const char *folder) {
    DIR *stream = opendir(folder);
    if (stream == NULL) return; /* a file */
    struct dirent *entry;
    while ((entry = readdir(stream))) {
        const char *dot = strrchr(entry->d_name, '.');
        bool test = strncmp(entry->d_name, "test_", 5) == 0 && dot && strcmp(dot, ".c") == 0;
        char path[LINE_MAX_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (test)
            read_source(seen, path);
        else if (dot == NULL)
            read_folder(seen, path);
    }
    closedir(stream);
}

static void test_every_upstream_id_has_a_test(void) {
    static struct seen seen;
    memset(&seen, 0, sizeof seen);
    read_folder(&seen, "tests");
    CHECK_HELPERS();
    char missing[LINE_MAX_BYTES] = "";
    size_t used = 0;
    for (size_t g = 0; g < GROUP_COUNT; g++) {
        for (int i = 1; i <= groups[g].last; i++) {
            if (seen.found[g][i]) continue;
            used += (size_t)snprintf(missing + used, sizeof missing - used, " %s-%d",
                                     groups[g].group, i);
        }
    }
    if (used > 0) TEST_FAIL("no registered test names%s", missing);
}

static void test_ids_count_only_beside_registered_tests(void) {
    static struct seen seen;
    static const char *const lines[] = {
        "// MB-1",
        "static void test_known(void) {",
        "    // MB-2: more words, and XMB-3",
        "}",
        "// MB-4",
        "static void test_unknown(void) {",
        "    // MB-5",
        "}",
        "// MB-6",
        "static int number;",
        "int text = \"MB-7\";",
    };
    memset(&seen, 0, sizeof seen);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        read_line(&seen, lines[i], "TEST(known), TEST(other)");
    }
    settle_pending(&seen, false);
    for (int i = 1; i <= 7; i++) EXPECT_EQ_INT(seen.found[0][i], i <= 2);
}

WEIR_TEST_SUITE(upstream_ids, TEST(every_upstream_id_has_a_test),
                TEST(ids_count_only_beside_registered_tests))
