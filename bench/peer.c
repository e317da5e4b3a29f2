/* SPDX-License-Identifier: MIT */
#include "peer.h"

#include <jansson.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
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
    /* closed in later peers: a program ends when the last who may write to it has closed */
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) bench_die("no pipe for the peer");
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

static bool get_ready(struct bench *bench, struct peer *peer, const struct peer_job *job,
                      char why[256]) {
    char line[LINE_BYTES];
    json_t *json, *names = NULL;
    snprintf(why, 256, "it ended before it was ready; what it printed stands above");
    while ((json = next_answer(peer, line)) != NULL) {
        names = json_object_get(json, "ready");
        if (names != NULL) break;
        const char *skipped = json_string_value(json_object_get(json, "skipped"));
        if (skipped != NULL) bench_absent(bench, "%s: %s", job->topic, skipped);
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

void peer_start(struct bench *bench, struct peer *peer, const struct peer_job *job) {
    const char *python = getenv("PYTHON"), *reason = job->not_now;
    char command[2048], why[256];
    int used = 0;
    if (job->settings != NULL)
        used = snprintf(command, sizeof command, "export %s; ", job->settings);
    if (bench->options.peer != NULL) {
        snprintf(command + used, sizeof command - (size_t)used, "%s --serve %s",
                 bench->options.peer, job->arguments);
        reason = NULL;
    } else {
        snprintf(command + used, sizeof command - (size_t)used, "exec '%s' '%s/%s' %s --serve",
                 python != NULL ? python : "python3", bench->options.peers, job->script,
                 job->arguments);
    }
    *peer = (struct peer){0};
    if (reason == NULL) {
        start(peer, command);
        if (get_ready(bench, peer, job, why)) {
            peer_pause(peer);
            return;
        }
        peer_stop(peer);
        reason = why;
    }
    bench_absent(bench, "%s: against %s: %s", job->topic,
                 bench->options.peer != NULL ? "--peer" : job->script, reason);
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

double peer_loss(struct peer *peer, const struct weir_net *net) {
    char line[] = "weights /tmp/weir-bench-XXXXXX", *path = strchr(line, '/');
    struct weir_error error = {0};
    int file = mkstemp(path);
    if (file < 0) bench_die("%s: cannot be made", path);
    close(file);
    int status = weir_net_save(net, path, NULL, &error);
    double loss = status == WEIR_OK ? peer_ask(peer, line, "loss") : NAN;
    unlink(path);
    if (status != WEIR_OK) bench_die("%s: %s", path, error.message);
    return loss;
}

void peer_stop(struct peer *peer) {
    if (peer->process <= 0) return;
    peer_resume(peer);
    fclose(peer->to);
    fclose(peer->from);
    waitpid(peer->process, NULL, 0);
    *peer = (struct peer){0};
}

/* ---- data ---- */

/* Number i of it, 24 bits. */
static uint32_t data(uint64_t i) {
    return (uint32_t)(i * 2654435761u) >> 8;
}

void peer_fill_texts(int64_t *input, int64_t *target, int64_t rows, int64_t context,
                     uint32_t tokens) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t t = 0; t < context; t++) {
            uint64_t at = (uint64_t)(r * (context + 1) + t);
            input[r * context + t] = data(at) % tokens;
            target[r * context + t] = data(at + 1) % tokens;
        }
}

void peer_fill_images(float *input, float *target, size_t rows, size_t pixels) {
    for (size_t i = 0; i < rows * 3 * pixels; i++) input[i] = (float)data(i) * 0x1p-24F;
    for (size_t r = 0; target != NULL && r < rows; r++)
        memcpy(target + r * pixels, input + r * 3 * pixels, pixels * sizeof *target);
}
