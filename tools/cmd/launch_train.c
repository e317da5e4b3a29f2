/* SPDX-License-Identifier: MIT */
#include "cmd/launch_train.h"

#include <string.h>

/* The value of word `i`, if that is --NAME or --NAME=VALUE; *next is the word behind it. */
static bool is_option(const struct launch_train *train, int i, const char *name, const char **value,
                      int *next) {
    const char *word = train->words[i];
    size_t length = strlen(name);
    if (strncmp(word, "--", 2) != 0 || strncmp(word + 2, name, length) != 0) return false;
    bool joined = word[2 + length] == '=';
    if (!joined && word[2 + length] != '\0') return false;
    if (!joined && i + 1 >= train->count) return false;
    *value = joined ? word + 3 + length : train->words[i + 1];
    *next = i + (joined ? 1 : 2);
    return true;
}

static const char *find(const struct launch_train *train, const char *name) {
    const char *found = NULL, *value;
    int next;
    for (int i = 0; i < train->count; i++)
        if (is_option(train, i, name, &value, &next)) found = value;
    return found;
}

void launch_train_read(struct launch_train *train, int count, char **words) {
    *train = (struct launch_train){.count = count, .words = words};
    train->save = find(train, "save");
    train->resume = find(train, "resume");
    train->log_dir = find(train, "log-dir");
    if (train->save == NULL) train->save = train->resume;
    const char *every = find(train, "save-every");
    train->saves_often = every != NULL && strcmp(every, "0") != 0;
    train->names_pipeline = find(train, "workers") != NULL || find(train, "stages") != NULL ||
                            find(train, "balance") != NULL;
    train->before = saved_look(train->save);
}

bool launch_train_has_suffix(const struct launch_train *train) {
    const char *dash = train->resume != NULL ? strrchr(train->resume, '-') : NULL;
    if (dash == NULL || train->save != train->resume) return false;
    bool number = dash[1] != '\0' && dash[1 + strspn(dash + 1, "0123456789")] == '\0';
    return number || strcmp(dash, "-best") == 0;
}

bool launch_train_has_saved(const struct launch_train *train) {
    struct saved now = saved_look(train->save);
    return saved_is_there(&now) && saved_is_other(&now, &train->before);
}

/* What says where a run begins. */
static bool is_beginning(const struct launch_train *train, int i, int *next) {
    const char *value;
    return is_option(train, i, "resume", &value, next) ||
           is_option(train, i, "load", &value, next) ||
           is_option(train, i, "load-strict", &value, next);
}

bool launch_train_add(const struct launch_train *train, const char *workers,
                      struct launch_words *command) {
    bool goes_on = launch_train_has_saved(train), fits = launch_words_add(command, "train");
    for (int i = 0, next; fits && i < train->count; i = next) {
        next = i + 1;
        if (!goes_on || !is_beginning(train, i, &next))
            fits = launch_words_add(command, train->words[i]);
    }
    if (fits && goes_on)
        fits = launch_words_add(command, "--resume") && launch_words_add(command, train->save);
    if (fits && goes_on)
        fits = launch_words_add(command, "--save") && launch_words_add(command, train->save);
    if (fits && !train->names_pipeline)
        fits = launch_words_add(command, "--workers") && launch_words_add(command, workers);
    return fits;
}
