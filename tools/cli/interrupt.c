/* SPDX-License-Identifier: MIT */
/* SIGINT, counted. */
#include "cli/interrupt.h"

#include "cli/args.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>

static volatile sig_atomic_t interrupts; /* a handler can reach nothing but globals */

static void count(int signal_number) {
    (void)signal_number;
    if (++interrupts > 1) _exit(EXIT_INTERRUPTED);
}

void interrupt_catch(void) {
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
}

bool interrupt_came(void) {
    return interrupts > 0;
}
