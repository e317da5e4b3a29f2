/* SPDX-License-Identifier: MIT */
#include "world/hold.h"

#include <signal.h>
#include <time.h>

/* A handler can reach nothing but globals; `hold_seconds` and `former` are set before it is. */
static _Thread_local volatile sig_atomic_t inside;
static volatile sig_atomic_t is_caught, has_heard;
static time_t hold_seconds;
static const int signals[] = {SIGSEGV, SIGBUS};
static struct sigaction former[WEIR__COUNT_OF(signals)];

/* On return the instruction is run again, and dies by what was set before. */
static void hold(int number) {
    const struct timespec time = {.tv_sec = hold_seconds};
    if (inside) (void)nanosleep(&time, NULL);
    for (size_t i = 0; i < WEIR__COUNT_OF(signals); i++)
        if (signals[i] == number) (void)sigaction(number, &former[i], NULL);
}

static void hear(int number) {
    (void)number;
    has_heard = 1;
}

void weir__hold_hear_launcher(void) {
    struct sigaction action = {.sa_handler = hear, .sa_flags = SA_RESTART}, now;
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGUSR1, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        (void)sigaction(SIGUSR1, &action, NULL);
}

bool weir__hold_has_heard(void) {
    return has_heard != 0;
}

void weir__hold_begin(double seconds) {
    struct sigaction action = {.sa_handler = hold};
    assert(seconds > 0);
    if (is_caught) return;
    hold_seconds = (time_t)seconds + 1;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < WEIR__COUNT_OF(signals); i++)
        (void)sigaction(signals[i], &action, &former[i]);
    is_caught = 1;
}

void weir__hold_enter(void) {
    assert(!inside);
    inside = 1;
}

void weir__hold_leave(void) {
    assert(inside);
    inside = 0;
}
