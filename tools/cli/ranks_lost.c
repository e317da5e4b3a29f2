/* SPDX-License-Identifier: MIT */
#include "cli/ranks_lost.h"

#include "base/base.h"
#include "cli/ranks.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long the run's thread is left to fail by itself, and then to end; how long a rank that does
 * not speak leaves to the one that does, since launchers end all with the first; how long an abort
 * is left to come through. All of them are within the 5 s that this may take. */
enum { OWN_MS = 1500, END_MS = 2000, OTHERS_MS = 1000, ABORT_MS = 2000, TOLD_MS = 700 };
enum { PASS_ON_MS = 100, MOMENT_MS = 10 };

static void sleep_ms(long ms) {
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)nanosleep(&time, NULL);
}

void ranks_at(struct ranks *ranks, const char *what, uint64_t done) {
    atomic_store_explicit(&ranks->lost.done, done, memory_order_relaxed);
    atomic_store_explicit(&ranks->lost.at, what, memory_order_release);
}

/* ---- words ---- */

/* In one write: other ranks' lines come through the same launcher. */
static void say(int descriptor, const char *text) {
    size_t bytes = strlen(text);
    while (bytes > 0) {
        ssize_t written = write(descriptor, text, bytes);
        if (written <= 0) return;
        text += written;
        bytes -= (size_t)written;
    }
}

static void say_what_is_saved(const struct ranks *ranks, int descriptor) {
    const struct ranks_command *of = &ranks->of;
    char text[PATH_MAX + 128];
    if (!of->saves) return;
    struct saved now = saved_look(of->save);
    if (!saved_is_there(&now) || !saved_is_other(&now, &ranks->lost.before))
        snprintf(text, sizeof text, "weir: %s: this run has saved nothing yet\n",
                 of->command->name);
    else
        snprintf(text, sizeof text, "weir: %s: --resume %s goes on from the last checkpoint\n",
                 of->command->name, of->save);
    say(descriptor, text);
}

static void say_to_launcher(int descriptor, const char *news) {
    char text[384];
    const char *word = getenv(RANKS_LOST_VARIABLE);
    if (word == NULL) return;
    snprintf(text, sizeof text, RANKS_LOST_MARK " %.64s %s\n", word, news);
    say(descriptor, text);
}

static void tell_launcher_who(const struct ranks_lost *lost, int descriptor) {
    char who[256];
    snprintf(who, sizeof who,
             lost->peer.how == WEIR_LOST_ABSENT ? RANKS_LOST "a rank" : RANKS_LOST "rank %u on %s",
             lost->peer.rank, lost->peer.host);
    say_to_launcher(descriptor, who);
}

/* ---- the start ---- */

static bool is_starting; /* of this process, which joins once; read as it exits */

static void tell_broken_start(void) {
    if (is_starting) say_to_launcher(STDERR_FILENO, RANKS_BROKEN);
}

void ranks_start_begin(void) {
    if (getenv(RANKS_LOST_VARIABLE) == NULL) return;
    say_to_launcher(STDERR_FILENO, RANKS_STARTING);
    is_starting = true;
    (void)atexit(tell_broken_start);
}

void ranks_start_end(int status, bool refused) {
    const char *how = refused ? RANKS_REFUSED : RANKS_BROKEN;
    if (is_starting) say_to_launcher(STDERR_FILENO, status == WEIR_OK ? RANKS_STARTED : how);
    is_starting = false;
}

/* Where no action is known that waited. */
static const char *describe(const struct ranks *ranks, char *text, size_t capacity) {
    const struct ranks_lost *lost = &ranks->lost;
    const char *at = atomic_load_explicit(&lost->at, memory_order_acquire);
    uint64_t done = atomic_load_explicit(&lost->done, memory_order_relaxed);
    snprintf(text, capacity, "%s, while this rank was at %s (%" PRIu64 " %s%s done)",
             lost->peer.text, at != NULL ? at : "its start", done, ranks->of.unit, weir__s(done));
    return text;
}

static void say_lost(const struct ranks *ranks, int descriptor) {
    char what[384], text[512];
    snprintf(text, sizeof text, "weir: %s: %s\n", ranks->of.command->name,
             describe(ranks, what, sizeof what));
    say(descriptor, text);
    say_what_is_saved(ranks, descriptor);
    tell_launcher_who(&ranks->lost, descriptor);
}

/* ---- the world's thread ---- */

static int exit_code(const struct weir_lost *peer) {
    return peer->how == WEIR_LOST_ABORTED ? peer->exit_status : EXIT_FAILED;
}

void ranks_lost_tell(void *context, const struct weir_lost *peer) {
    struct ranks *ranks = context;
    struct ranks_lost *lost = &ranks->lost;
    lost->peer = *peer;
    atomic_store_explicit(&lost->told, true, memory_order_release);
    sleep_ms(OWN_MS);
    if (!atomic_flag_test_and_set(&lost->claimed)) {
        if (peer->speaks) say_lost(ranks, lost->errors != 0 ? lost->errors : STDERR_FILENO);
        sleep_ms(PASS_ON_MS);
    } else {
        sleep_ms(END_MS);
    }
    _exit(exit_code(peer));
}

/* ---- the run's thread ---- */

static bool wait_until_told(struct ranks_lost *lost, long ms) {
    while (!atomic_load_explicit(&lost->told, memory_order_acquire) && ms > 0) {
        sleep_ms(MOMENT_MS);
        ms -= MOMENT_MS;
    }
    return atomic_load_explicit(&lost->told, memory_order_acquire);
}

bool ranks_lost_claim(struct ranks *ranks, int status) {
    struct ranks_lost *lost = &ranks->lost;
    struct weir_error *error = ranks->of.error;
    bool of_peers = status == WEIR_ERR_PEER || status == WEIR_ERR_TORN;
    if (!wait_until_told(lost, of_peers ? TOLD_MS : 0)) return false;
    if (atomic_flag_test_and_set(&lost->claimed))
        for (;;) sleep_ms(END_MS); /* the other thread ends the process */
    fflush(stderr);
    int to = lost->peer.speaks ? lost->errors : open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (to > 0) (void)dup2(to, STDERR_FILENO);
    if (ranks->of.faults->count == 0 && error->stage < 0) {
        char text[sizeof error->message];
        weir__fail(error, WEIR_ERR_PEER, "%s", describe(ranks, text, sizeof text));
    }
    return true;
}

_Noreturn void ranks_lost_end(struct ranks *ranks) {
    struct ranks_lost *lost = &ranks->lost;
    const struct weir_world *world = &ranks->world;
    fflush(NULL);
    if (!lost->peer.speaks) {
        sleep_ms(lost->peer.how == WEIR_LOST_ABORTED ? ABORT_MS : OTHERS_MS);
        _exit(exit_code(&lost->peer));
    }
    say_what_is_saved(ranks, STDERR_FILENO);
    tell_launcher_who(lost, STDERR_FILENO);
    sleep_ms(PASS_ON_MS);
    /* those that are stopped end only so; where MPI does not come back the other thread does it */
    if (ranks->joined) world->calls->abort(world->context, EXIT_FAILED);
    _exit(EXIT_FAILED);
}
