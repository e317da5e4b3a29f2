/* SPDX-License-Identifier: MIT */
/* Signals that end a process, counted. */
#include "cli/interrupt.h"

#include "cli/args.h"

#include <stddef.h>
#include <time.h>
#include <unistd.h>

/* `timeout` and shells of closed terminals send a signal to the process and to its group: what
 * comes within this time is the same request. */
#define ONE_REQUEST_NS 50000000

/* A handler can reach nothing but globals. */
static volatile sig_atomic_t caught;       /* the first signal; 0: none */
static volatile sig_atomic_t counts_pipes; /* a broken pipe counts as a signal */
static volatile struct timespec caught_at; /* written before `caught` */

/* Whoever read our output may be gone, of the same Ctrl-C: what is left to do is done all the same.
 */
static void handle_broken_pipes(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    if (counts_pipes) sigaction(SIGPIPE, &action, NULL);
}

static void count(int signal_number) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    long long since =
        (now.tv_sec - caught_at.tv_sec) * 1000000000LL + now.tv_nsec - caught_at.tv_nsec;
    bool again = caught != 0 || signal_number == SIGINT; /* which may have been taken back */
    if (again && caught_at.tv_sec > 0 && since <= ONE_REQUEST_NS) return;
    if (caught == 0) {
        handle_broken_pipes(SIG_IGN);
        caught_at.tv_sec = now.tv_sec;
        caught_at.tv_nsec = now.tv_nsec;
        caught = signal_number;
        return;
    }
    _exit(128 + signal_number);
}

void interrupt_catch(void) {
    static const struct {
        int number;
        bool may_be_ignored; /* as `nohup` wants it */
    } signals[] = {{SIGINT, false}, {SIGTERM, false}, {SIGHUP, true}, {SIGPIPE, true}};
    enum { SIGNALS = sizeof signals / sizeof signals[0] };
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNALS; i++) sigaddset(&action.sa_mask, signals[i].number);
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction former;
        bool known = sigaction(signals[i].number, NULL, &former) == 0;
        if (signals[i].may_be_ignored && known && former.sa_handler == SIG_IGN) continue;
        sigaction(signals[i].number, &action, NULL);
        if (signals[i].number == SIGPIPE) counts_pipes = true;
    }
}

static const int library_signals[] = {SIGINT, SIGTERM, SIGHUP};

void interrupt_keep(struct interrupt_kept *kept) {
    for (int i = 0; i < 3; i++) sigaction(library_signals[i], NULL, &kept->actions[i]);
}

void interrupt_give_back(const struct interrupt_kept *kept) {
    for (int i = 0; i < 3; i++) sigaction(library_signals[i], &kept->actions[i], NULL);
}

bool interrupt_came(void) {
    return caught != 0;
}

void interrupt_take_back(void) {
    if (caught != SIGINT) return;
    handle_broken_pipes(count);
    caught = 0;
}

int interrupt_exit(int code) {
    return code == EXIT_DONE && interrupt_came() ? 128 + (int)caught : code;
}
