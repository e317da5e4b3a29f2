/* SPDX-License-Identifier: MIT */
#include "cmd/launch_train.h"

#include "base/base.h"
#include "cmd/train_log.h"
#include "weir_world.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* A count that is none is refused by `train`. */
static uint32_t number_of(const struct launch_train *train, const char *name) {
    const char *text = find(train, name);
    unsigned long number = text != NULL ? strtoul(text, NULL, 10) : 0;
    return number < UINT32_MAX ? (uint32_t)number : 0;
}

/* Seconds up to the longest time-out; 0: not given. What is none is refused by `train`. */
static double seconds_of(const struct launch_train *train, const char *name) {
    const char *text = find(train, name);
    double seconds = text != NULL ? strtod(text, NULL) : 0;
    return seconds > 0 && seconds <= WEIR_TIMEOUT_MOST_S ? seconds : 0;
}

/* As long as ranks wait for each other. */
static double find_start_timeout(const struct launch_train *train) {
    const struct weir_world_options fallback = WEIR_WORLD_OPTIONS_INIT;
    double start = seconds_of(train, "start-timeout"), peer = seconds_of(train, "peer-timeout");
    if (start > 0) return start;
    if (peer == 0) peer = fallback.peer_timeout;
    return fmax(WEIR_JOIN_TIMEOUTS * peer, WEIR_JOIN_LEAST_S);
}

/* False: there is none, or its name is too long. */
static bool log_path(const struct launch_train *train, char path[PATH_MAX]) {
    if (train->log_dir == NULL) return false;
    return snprintf(path, PATH_MAX, "%s/" TRAIN_LOG_CSV, train->log_dir) < PATH_MAX;
}

void launch_train_read(struct launch_train *train, int count, char **words, uint32_t ranks) {
    char log[PATH_MAX];
    *train = (struct launch_train){.count = count, .words = words};
    train->save = find(train, "save");
    train->resume = find(train, "resume");
    train->log_dir = find(train, "log-dir");
    if (train->save == NULL) train->save = train->resume;
    const char *every = find(train, "save-every");
    train->saves_often = every != NULL && strcmp(every, "0") != 0;
    train->start_timeout = find_start_timeout(train);
    train->names_pipeline = find(train, "workers") != NULL || find(train, "stages") != NULL ||
                            find(train, "balance") != NULL;
    train->before = saved_look(train->save);
    train->log_is_foreign = log_path(train, log) && access(log, F_OK) == 0;
    train->whole = (struct launch_share){ranks, number_of(train, "replicas"), 0};
    if (train->whole.replicas == 0) train->whole.replicas = 1;
    train->groups = number_of(train, "gradient-groups");
    if (train->groups == 0) train->groups = train->whole.replicas;
    train->whole.workers = number_of(train, "workers");
    if (train->whole.workers == 0 && !train->names_pipeline) train->whole.workers = ranks;
}

struct launch_share launch_train_share(const struct launch_train *train, uint32_t ranks) {
    const struct launch_share *whole = &train->whole;
    struct launch_share share = *whole;
    assert(ranks > 0 && whole->replicas > 0);
    if (ranks >= whole->ranks) return share;
    share.replicas = whole->replicas < ranks ? whole->replicas : ranks;
    while (train->groups % share.replicas != 0) share.replicas--;
    uint32_t most = whole->ranks / whole->replicas, each = ranks / share.replicas;
    share.ranks = share.replicas * (each < most || most == 0 ? each : most);
    share.workers = whole->workers / whole->replicas * share.replicas;
    return share;
}

void launch_train_forget_log(const struct launch_train *train) {
    char path[PATH_MAX];
    if (train->resume == NULL && !train->log_is_foreign && log_path(train, path))
        (void)unlink(path);
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

/* Links are those of all ranks: fewer of them search no more than what is shared, which a plan that
 * is to be searched for does not take. */
static bool is_of_links(const struct launch_train *train, int i, int *next) {
    const char *value;
    return is_option(train, i, "links", &value, next) ||
           (find(train, "links") != NULL && is_option(train, i, "plan", &value, next));
}

/* What fewer ranks share otherwise. */
static bool is_shared(const struct launch_train *train, int i, int *next) {
    const char *value;
    return is_option(train, i, "replicas", &value, next) ||
           is_option(train, i, "gradient-groups", &value, next) ||
           is_option(train, i, "workers", &value, next);
}

static bool add_number(struct launch_words *command, const char *option, uint32_t number,
                       char text[16]) {
    snprintf(text, 16, "%u", number);
    return number == 0 || (launch_words_add(command, option) && launch_words_add(command, text));
}

bool launch_train_add(const struct launch_train *train, const struct launch_share *share,
                      char texts[3][16], struct launch_words *command) {
    bool goes_on = launch_train_has_saved(train), fits = launch_words_add(command, "train");
    bool fewer = share->ranks < train->whole.ranks, shares = fewer && train->groups > 1;
    for (int i = 0, next; fits && i < train->count; i = next) {
        next = i + 1;
        if ((goes_on && is_beginning(train, i, &next)) || (fewer && is_of_links(train, i, &next)) ||
            (shares && is_shared(train, i, &next)))
            continue;
        fits = launch_words_add(command, train->words[i]);
    }
    if (fits && shares)
        fits = add_number(command, "--replicas", share->replicas, texts[0]) &&
               add_number(command, "--gradient-groups", train->groups, texts[1]);
    if (fits && goes_on)
        fits = launch_words_add(command, "--resume") && launch_words_add(command, train->save);
    if (fits && goes_on)
        fits = launch_words_add(command, "--save") && launch_words_add(command, train->save);
    if (fits && (shares || !train->names_pipeline))
        fits = add_number(command, "--workers", share->workers, texts[2]);
    return fits;
}
