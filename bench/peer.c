/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE_BYTES = 4096 };

/* The next line of JSON; NULL where it has ended, or says something else, which is left in `line`.
 */
static json_t *next_answer(struct peer *peer, char line[LINE_BYTES]) {
    line[0] = 0;
    if (fgets(line, LINE_BYTES, peer->from) == NULL) return NULL;
    return json_loads(line, 0, NULL);
}

static json_t *answer(struct peer *peer) {
    char line[LINE_BYTES];
    json_t *json = next_answer(peer, line);
    if (json == NULL) bench_die("the peer %s%s", line[0] == 0 ? "has ended" : "says ", line);
    return json;
}

static void start(struct peer *peer, const char *command) {
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) bench_die("no pipe for the peer");
    fflush(NULL);
    peer->process = fork();
    if (peer->process == 0) {
        setpgid(0, 0); /* so that signals reach whatever sh starts */
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[0]), close(to[1]), close(from[0]), close(from[1]);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    setpgid(peer->process, 0);
    close(to[0]), close(from[1]);
    peer->to = fdopen(to[1], "w");
    peer->from = fdopen(from[0], "r");
    if (peer->process < 0 || peer->to == NULL || peer->from == NULL)
        bench_die("the peer cannot be started");
    signal(SIGPIPE, SIG_IGN);
}

/* The text that stands under a key, if there is one. */
static void keep(const json_t *line, const char *key, char *text, size_t capacity) {
    const char *value = json_string_value(json_object_get(line, key));
    if (value != NULL) snprintf(text, capacity, "%s", value);
}

static bool get_ready(struct peer *peer, char why[256]) {
    char line[LINE_BYTES];
    json_t *json, *names = NULL;
    snprintf(why, 256, "it ended before it was ready; what it printed stands above");
    while ((json = next_answer(peer, line)) != NULL) {
        names = json_object_get(json, "ready");
        if (names != NULL) break;
        keep(json, "skipped", why, 256);
        keep(json, "error", why, 256);
        json_decref(json);
    }
    if (json == NULL && line[0] != 0) snprintf(why, 256, "it says %.200s", line);
    keep(json, "about", peer->about, sizeof peer->about);
    for (size_t i = 0; i < json_array_size(names) && i < PEER_NAMES_MOST; i++)
        snprintf(peer->names[peer->count++], sizeof peer->names[0], "%s",
                 json_string_value(json_array_get(names, i)));
    json_decref(json);
    return peer->count > 0;
}

bool peer_start(struct peer *peer, const char *command, char why[256]) {
    *peer = (struct peer){0};
    start(peer, command);
    if (get_ready(peer, why)) {
        peer_pause(peer);
        return true;
    }
    peer_stop(peer);
    return false;
}

void peer_resume(struct peer *peer) {
    kill(-peer->process, SIGCONT);
}

void peer_pause(struct peer *peer) {
    kill(-peer->process, SIGSTOP);
}

static double ask(struct peer *peer, const char *line, const char *key) {
    fprintf(peer->to, "%s\n", line);
    fflush(peer->to);
    json_t *json = answer(peer), *value = json_object_get(json, key);
    double number = json_is_number(value) ? json_number_value(value) : NAN;
    json_decref(json);
    return number;
}

double peer_step(struct peer *peer, const char *name) {
    return ask(peer, name, "seconds");
}

double peer_ask(struct peer *peer, const char *line, const char *key) {
    peer_resume(peer);
    double number = ask(peer, line, key);
    peer_pause(peer);
    return number;
}

void peer_stop(struct peer *peer) {
    if (peer->process <= 0) return;
    peer_resume(peer);
    fclose(peer->to);
    fclose(peer->from);
    waitpid(peer->process, NULL, 0);
    *peer = (struct peer){0};
}
