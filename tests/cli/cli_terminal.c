/* SPDX-License-Identifier: MIT */
/* A pseudo-terminal, with everything off but the signal of Ctrl-C. */
#include "cli/cli_terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

enum { COLUMNS = 100, WAIT_MS = 120000 };

static bool set_up(int terminal) {
    struct winsize size = {.ws_row = 50, .ws_col = COLUMNS};
    struct termios modes;
    if (tcgetattr(terminal, &modes) != 0) return false;
    cfmakeraw(&modes);
    modes.c_lflag |= ISIG;
    return tcsetattr(terminal, TCSANOW, &modes) == 0 && ioctl(terminal, TIOCSWINSZ, &size) == 0;
}

/* In the child: the terminal becomes its own, and everything is there. */
static void enter(int terminal, const char *command) {
    setsid();
    ioctl(terminal, TIOCSCTTY, 0);
    for (int descriptor = 0; descriptor < 3; descriptor++) dup2(terminal, descriptor);
    signal(SIGINT, SIG_DFL);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static bool open_both(struct cli_terminal *terminal, int *inner) {
    terminal->screen = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal->screen < 0 || grantpt(terminal->screen) != 0 || unlockpt(terminal->screen) != 0)
        return false;
    *inner = open(ptsname(terminal->screen), O_RDWR | O_NOCTTY | O_CLOEXEC);
    return *inner >= 0 && set_up(*inner);
}

bool cli_terminal_start(struct cli_terminal *terminal, const char *environment, const char *format,
                        ...) {
    char arguments[3072], command[4096];
    va_list list;
    int inner = -1;
    va_start(list, format);
    vsnprintf(arguments, sizeof arguments, format, list);
    va_end(list);
    snprintf(command, sizeof command, "exec env %s '%s/bin/weir' %s", environment,
             test_install_prefix(), arguments);
    terminal->used = 0;
    terminal->output[0] = '\0';
    bool good = open_both(terminal, &inner);
    fflush(stdout);
    terminal->process = good ? fork() : -1;
    if (terminal->process == 0) enter(inner, command);
    if (terminal->process < 0) TEST_FAIL("no terminal: %s", strerror(errno));
    if (inner >= 0) close(inner);
    if (terminal->process < 0 && terminal->screen >= 0) close(terminal->screen);
    return terminal->process > 0;
}

/* Reads what comes within `ms`; false at the end, or when nothing comes. */
static bool read_more(struct cli_terminal *terminal, int ms) {
    struct pollfd waited = {.fd = terminal->screen, .events = POLLIN};
    size_t room = sizeof terminal->output - 1 - terminal->used;
    if (room == 0 || poll(&waited, 1, ms) <= 0) return false;
    ssize_t got = read(terminal->screen, terminal->output + terminal->used, room);
    if (got <= 0) return false; /* EIO: nobody has the other end any more */
    terminal->used += (size_t)got;
    terminal->output[terminal->used] = '\0';
    return true;
}

bool cli_terminal_wait_times(struct cli_terminal *terminal, const char *text, unsigned times) {
    while (cli_count(terminal->output, text) < times) {
        if (read_more(terminal, WAIT_MS)) continue;
        TEST_FAIL("'%s' was not shown %u times, but: %s", text, times, terminal->output);
        return false;
    }
    return true;
}

bool cli_terminal_wait(struct cli_terminal *terminal, const char *text) {
    return cli_terminal_wait_times(terminal, text, 1);
}

bool cli_terminal_wait_bytes(struct cli_terminal *terminal, size_t bytes) {
    while (terminal->used < bytes) {
        if (read_more(terminal, WAIT_MS)) continue;
        TEST_FAIL("only this was shown: %s", terminal->output);
        return false;
    }
    return true;
}

void cli_terminal_type(const struct cli_terminal *terminal, const char *text) {
    size_t bytes = strlen(text);
    if (write(terminal->screen, text, bytes) != (ssize_t)bytes) TEST_FAIL("cannot type");
}

void cli_terminal_interrupt(const struct cli_terminal *terminal) {
    cli_terminal_type(terminal, "\003");
}

int cli_terminal_end(struct cli_terminal *terminal) {
    while (read_more(terminal, WAIT_MS)) continue;
    int code = cli_wait(terminal->process);
    close(terminal->screen);
    return code;
}
