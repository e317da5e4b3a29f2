/* SPDX-License-Identifier: MIT */
/* The command that repeats a run, and the options that it ran with. */
#include "cmd/train.h"
#include "cmd/train_report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a growing text ---- */

struct words {
    struct weir__pool *pool;
    char *text;
    uint32_t used, capacity;
    bool failed;
};

static void add_byte(struct words *words, char byte) {
    void *text = words->text;
    if (words->failed || !weir__pool_grow(words->pool, &text, words->used, &words->capacity, 1)) {
        words->failed = true;
        return;
    }
    words->text = text;
    words->text[words->used++] = byte;
}

static void add(struct words *words, const char *text) {
    for (; *text != 0; text++) add_byte(words, *text);
}

static const char *finish(struct words *words) {
    add_byte(words, 0);
    return words->failed ? NULL : words->text;
}

/* ---- quoting ---- */

static bool is_plain(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    return word[0] != 0 && word[strspn(word, plain)] == 0;
}

static bool is_printable(const char *word) {
    for (; *word != 0; word++)
        if ((unsigned char)*word < 0x20 || (unsigned char)*word >= 0x7f) return false;
    return true;
}

/* Anything else than plain ASCII is spelt out, since a page may not show it as it is. */
static void quote_bytes(struct words *words, const char *word) {
    add(words, "$'");
    for (; *word != 0; word++) {
        char text[8];
        bool as_is = (unsigned char)*word >= 0x20 && (unsigned char)*word < 0x7f && *word != '\'' &&
                     *word != '\\';
        snprintf(text, sizeof text, as_is ? "%c" : "\\%03o", (unsigned char)*word);
        add(words, text);
    }
    add(words, "'");
}

static void quote(struct words *words, const char *word) {
    if (is_plain(word)) {
        add(words, word);
    } else if (!is_printable(word)) {
        quote_bytes(words, word);
    } else {
        add_byte(words, '\'');
        for (; *word != 0; word++) {
            if (*word == '\'') {
                add(words, "'\\''");
            } else {
                add_byte(words, *word);
            }
        }
        add_byte(words, '\'');
    }
}

const char *train_report_words(struct weir__pool *pool, int argc, char **argv) {
    struct words words = {.pool = pool};
    for (int i = 1; i < argc; i++) {
        add(&words, " ");
        quote(&words, argv[i]);
    }
    return finish(&words);
}

/* ---- the command ---- */

/* A variable that gave an option its value is part of what has to be typed. */
static void add_environment(struct words *words, const struct args *args) {
    for (uint32_t s = 0; s < args->command->section_count; s++) {
        const struct arg_section *section = &args->command->sections[s];
        for (uint32_t i = 0; i < section->option_count; i++) {
            const struct arg_option *option = &section->options[i];
            const char *value = option->environment ? getenv(option->environment) : NULL;
            if (value == NULL || *value == 0 || args_given(args, option->name)) continue;
            add(words, option->environment);
            add(words, "=");
            quote(words, value);
            add(words, " ");
        }
    }
}

const char *train_report_command(const struct train *t, struct weir__pool *pool) {
    struct words words = {.pool = pool};
    char *folder = getcwd(NULL, 0);
    if (folder != NULL) {
        add(&words, "cd ");
        quote(&words, folder);
        add(&words, " && ");
    }
    free(folder);
    add_environment(&words, t->args);
    add(&words, "weir train");
    add(&words, t->report->command);
    return finish(&words);
}

/* ---- options ---- */

/* What the run took where nothing was given: an empty text for options that have no say. */
static void resolve(const struct train *t, const char *name, char *text, size_t capacity) {
    struct weir_pipe *pipe = t->net != NULL ? weir_net_pipe(t->net) : NULL;
    const struct weir_table *table = pipe != NULL ? weir_pipe_table(pipe, t->values->batch) : NULL;
    struct weir_attachment first;
    uint64_t number = 0;
    if (table == NULL || weir_pipe_attachment(pipe, 0, &first) != WEIR_OK) return;
    if (strcmp(name, "stages") == 0) number = table->stage_count;
    if (strcmp(name, "workers") == 0) number = table->worker_count;
    if (strcmp(name, "virtual-stages") == 0) number = pipe_virtual_stages(&t->values->pipe);
    if (strcmp(name, "threads-per-stage") == 0) number = first.threads;
    if (strcmp(name, "steps") == 0) number = t->steps;
    if (strcmp(name, "eval-batches") == 0)
        number = (t->eval_rows + t->values->batch - 1) / t->values->batch;
    if (number > 0) snprintf(text, capacity, "%llu", (unsigned long long)number);
    if (strcmp(name, "device") == 0 && text[0] == 0) snprintf(text, capacity, "cpu");
    if (strcmp(name, "balance") != 0) return;
    size_t used = 0;
    for (uint32_t s = 0; s < table->stage_count && used < capacity; s++)
        used += (size_t)snprintf(text + used, capacity - used, "%s%u", s > 0 ? "," : "",
                                 (unsigned)weir_net_balance(t->net)[s]);
}

static bool add_fact(const struct train *t, uint32_t section, uint32_t option,
                     struct weir__pool *pool, struct weir_report_fact *fact) {
    const struct args *args = t->args;
    const struct arg_option *of = &args->command->sections[section].options[option];
    char value[1024], text[sizeof value + 64];
    args_value(args, section, option, value, sizeof value);
    if (!args_given(args, of->name)) resolve(t, of->name, value, sizeof value);
    if (strcmp(value, "0") == 0 && of->least > 0.0 && of->fallback == NULL) value[0] = 0;
    snprintf(text, sizeof text, "%s%s%s", value, of->unit != NULL && value[0] != 0 ? " " : "",
             of->unit != NULL && value[0] != 0 ? of->unit : "");
    fact->name = of->name;
    fact->value = value[0] != 0 ? weir__pool_text(pool, text) : "–";
    fact->strong = args_given(args, of->name);
    return fact->value != NULL;
}

uint32_t train_report_options(const struct train *t, struct weir__pool *pool,
                              struct weir_report_fact *facts) {
    const struct args *args = t->args;
    uint32_t count = 0;
    for (uint32_t s = 0; s < args->command->section_count; s++)
        for (uint32_t i = 0; i < args->command->sections[s].option_count; i++)
            if (!add_fact(t, s, i, pool, &facts[count++])) return 0;
    return count;
}
