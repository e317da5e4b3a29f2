/* SPDX-License-Identifier: MIT */
#include "cmd/launch_rank.h"

#include "cli/args.h"
#include "cli/ranks_lost.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A handler can reach nothing but globals; written before there is one. */
static pid_t rank;

static void pass_on(int number) {
    int former = errno;
    (void)kill(rank, number == SIGUSR2 ? SIGTERM : number);
    errno = former;
}

/* What launchers send: to end, and MPICH's, that another has failed. */
static const int passed[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
enum { PASSED = sizeof passed / sizeof passed[0] };

static void pass_signals_on(void) {
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART}, former;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < PASSED; i++) {
        bool ignored = sigaction(passed[i], NULL, &former) == 0 && former.sa_handler == SIG_IGN;
        if (!ignored) (void)sigaction(passed[i], &action, NULL);
    }
}

/* In the rank, which is nobody's without its parent, and of a group of its own: what a launcher
 * sends to the parent's group comes once. */
static void begin(pid_t parent, const sigset_t *mask) {
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(128 + SIGKILL);
    (void)sigprocmask(SIG_SETMASK, mask, NULL);
}

/* Once it has ended, and nothing is passed on any more. */
static int wait_for_rank(const sigset_t *all) {
    siginfo_t ended;
    int status = 0;
    while (waitid(P_PID, (id_t)rank, &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR) continue;
    (void)sigprocmask(SIG_SETMASK, all, NULL);
    if (waitpid(rank, &status, 0) != rank) return EXIT_FAILED;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool launch_rank_waits(int *code) {
    sigset_t all, mask;
    pid_t parent = getpid();
    if (getenv(RANKS_LOST_VARIABLE) == NULL) return false;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &mask); /* what comes now comes to the rank, or later */
    (void)signal(SIGCHLD, SIG_DFL);              /* ignored, no child would leave its exit code */
    fflush(NULL);
    rank = fork();
    if (rank == 0) begin(parent, &mask);
    if (rank > 0) pass_signals_on();
    (void)sigprocmask(SIG_SETMASK, &mask, NULL);
    if (rank <= 0) return false;
    *code = wait_for_rank(&all);
    return true;
}
