/* SPDX-License-Identifier: MIT */
/* Checks of lines, functions and the public headers' comments. */
#include "tidy.h"

#include <ctype.h>
#include <string.h>

#define COLUMNS_MAX 100
#define FUNCTION_LINES_MAX 70
#define FILE_LINES_MAX 700

/* ---- lines ----------------------------------------------------------------------------------- */

/* Characters of UTF-8, not bytes. */
static int columns(const char *line, size_t length) {
    int count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)line[i] & 0xc0) != 0x80;
    return count;
}

/* Banned words are written in two halves here, or this file would hold them. */
static void check_words(const struct file *file, const char *line, size_t length, int number) {
    static const char *const needs_owner[] = {"TO"
                                              "DO",
                                              "FIX"
                                              "ME",
                                              "XX"
                                              "X"};
    for (size_t i = 0; i < sizeof needs_owner / sizeof needs_owner[0]; i++) {
        const char *word = needs_owner[i];
        size_t word_length = strlen(word);
        for (size_t at = 0; at + word_length <= length; at++) {
            bool inside = at > 0 && (isalnum((unsigned char)line[at - 1]) || line[at - 1] == '_');
            char next = line[at + word_length];
            if (inside || strncmp(line + at, word, word_length) != 0) continue;
            if (next == '(' || isalnum((unsigned char)next) || next == '_') continue;
            tidy_report(file->path, number, "%s without an owner: write %s(name)", word, word);
        }
    }
}

static void check_line(const struct file *file, const char *line, size_t length, int number) {
    if (columns(line, length) > COLUMNS_MAX) {
        tidy_report(file->path, number, "%d columns, at most %d", columns(line, length),
                    COLUMNS_MAX);
    }
    if (length > 0 && (line[length - 1] == ' ' || line[length - 1] == '\r')) {
        tidy_report(file->path, number, "blanks at the end of the line");
    }
    if (memchr(line, '\t', length)) tidy_report(file->path, number, "a tab: use spaces");
    const char *word = line + strspn(line, " ");
    if (tidy_is_c(file->path) && tidy_starts_with(word, "#if"
                                                        " 0")) {
        tidy_report(file->path, number, "code that is switched off: remove it");
    }
    check_words(file, line, length, number);
}

static void check_file(const struct file *file) {
    int number = 0;
    const char *line = file->text;
    while (*line) {
        size_t length = strcspn(line, "\n");
        check_line(file, line, length, ++number);
        if (line[length] == 0) tidy_report(file->path, number, "no newline at the end of the file");
        line += length + (line[length] == '\n');
    }
    if (number > FILE_LINES_MAX) {
        tidy_report(file->path, 0, "%d lines, at most %d: split it", number, FILE_LINES_MAX);
    }
}

void tidy_check_lines(const struct tree *tree) {
    for (size_t i = 0; i < tree->count; i++) check_file(&tree->files[i]);
}

/* ---- functions ------------------------------------------------------------------------------- */

/* Where a scan of a file's code stands, outside or inside braces. */
struct scan {
    const struct file *file;
    int line;
    int depth;
    int start_line;    /* of the declaration that is being read at depth 0; 0: none */
    bool parentheses;  /* it has some */
    bool initializer;  /* it has a = */
    bool linkage;      /* it is just extern (its "C" is blanked) or a namespace */
    bool in_function;  /* the open brace of depth 1 is a function's */
    const char *start; /* of that declaration */
};

static void forget_declaration(struct scan *scan) {
    scan->start_line = 0;
    scan->parentheses = scan->initializer = false;
}

static bool is_linkage_block(const char *start, const char *brace) {
    size_t length = (size_t)(brace - start);
    while (length > 0 && isspace((unsigned char)start[length - 1])) length--;
    return (length == strlen("extern") && tidy_starts_with(start, "extern")) ||
           tidy_starts_with(start, "namespace");
}

static void open_brace(struct scan *scan, const char *at) {
    if (scan->depth == 0 && scan->start && is_linkage_block(scan->start, at)) {
        forget_declaration(scan);
        scan->linkage = true;
        return;
    }
    if (scan->depth == 0) scan->in_function = scan->parentheses && !scan->initializer;
    scan->depth++;
}

static void close_brace(struct scan *scan) {
    if (scan->depth == 0) { /* of a linkage block */
        forget_declaration(scan);
        return;
    }
    if (--scan->depth > 0) return;
    int lines = scan->line - scan->start_line + 1;
    if (scan->in_function && lines > FUNCTION_LINES_MAX) {
        tidy_report(scan->file->path, scan->start_line, "a function of %d lines, at most %d", lines,
                    FUNCTION_LINES_MAX);
    }
    if (scan->in_function) forget_declaration(scan); /* else a ; follows */
}

static void scan_declaration(struct scan *scan, const char *at) {
    if (*at == ';') {
        forget_declaration(scan);
        return;
    }
    if (scan->start_line == 0 && !isspace((unsigned char)*at) && *at != '}') {
        scan->start_line = scan->line;
        scan->start = at;
    }
    if (*at == '(') scan->parentheses = true;
    if (*at == '=') scan->initializer = true;
}

static void check_functions_of(const struct file *file) {
    struct scan scan = {.file = file, .line = 1};
    for (const char *at = file->code; *at; at++) {
        if (*at == '\n') scan.line++;
        if (scan.depth == 0) scan_declaration(&scan, at);
        if (*at == '{') open_brace(&scan, at);
        if (*at == '}') close_brace(&scan);
    }
    if (scan.depth != 0) tidy_report(file->path, 0, "tidy cannot match the braces of this file");
}

void tidy_check_functions(const struct tree *tree) {
    for (size_t i = 0; i < tree->count; i++) {
        if (tree->files[i].code) check_functions_of(&tree->files[i]);
    }
}

/* ---- comments of the public headers ---------------------------------------------------------- */

/* Whether the last thing in text[0 … end) that is neither blank nor preprocessor nor attribute is a
 * comment. */
static bool comment_ends_at(const char *text, const char *code, size_t end) {
    while (end > 0) {
        size_t begin = end - 1;
        while (begin > 0 && text[begin - 1] != '\n') begin--;
        const char *line = text + begin + strspn(text + begin, " ");
        bool skipped = *line == '\n' || *line == '#' || tidy_starts_with(line, "__attribute__");
        if (!skipped) {
            size_t last = end;
            while (last > begin && isspace((unsigned char)text[last - 1])) last--;
            return last >= begin + 2 && memcmp(text + last - 2, "*/", 2) == 0 &&
                   isspace((unsigned char)code[last - 1]);
        }
        end = begin;
    }
    return false;
}

static bool declares_function(const char *code, size_t begin, size_t end) {
    const char *start = code + begin;
    size_t length = end - begin;
    if (tidy_starts_with(start, "typedef") || tidy_starts_with(start, "extern")) return false;
    if (tidy_starts_with(start, "_Static_assert") || memchr(start, '{', length)) return false;
    return memchr(start, '(', length) && !memchr(start, '=', length);
}

/* Where the declaration goes on after an attribute: the comment may stand there. */
static size_t skip_attribute(const char *code, size_t begin) {
    if (!tidy_starts_with(code + begin, "__attribute__")) return begin;
    size_t at = begin + strcspn(code + begin, "(");
    int depth = 0;
    do {
        depth += (code[at] == '(') - (code[at] == ')');
        at += code[at] != 0;
    } while (depth > 0 && code[at]);
    return at + strspn(code + at, " \n");
}

static bool has_comment(const struct file *file, size_t begin) {
    return comment_ends_at(file->text, file->code, begin) ||
           comment_ends_at(file->text, file->code, skip_attribute(file->code, begin));
}

static void check_comments_of(const struct file *file) {
    const char *code = file->code;
    int depth = 0, line = 1, begin_line = 0;
    size_t begin = 0;
    for (size_t i = 0; code[i]; i++) {
        if (code[i] == '\n') line++;
        bool linkage = code[i] == '{' && begin_line > 0 && is_linkage_block(code + begin, code + i);
        if (linkage)
            begin_line = 0;
        else if (code[i] == '{')
            depth++;
        else if (code[i] == '}' && depth > 0)
            depth--;
        else if (depth == 0 && begin_line == 0 && !isspace((unsigned char)code[i]) &&
                 code[i] != '}') {
            begin = i;
            begin_line = line;
        }
        if (depth > 0 || code[i] != ';' || begin_line == 0) continue;
        if (declares_function(code, begin, i) && !has_comment(file, begin)) {
            tidy_report(file->path, begin_line, "a public function without a comment before it");
        }
        begin_line = 0;
    }
}

void tidy_check_comments(const struct tree *tree) {
    for (size_t i = 0; i < tree->count; i++) {
        const struct file *file = &tree->files[i];
        bool is_public = tidy_starts_with(file->path, "src/weir") && tidy_is_c(file->path);
        if (is_public) check_comments_of(file);
    }
}
