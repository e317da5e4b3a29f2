/* SPDX-License-Identifier: MIT */
/** The installed command on a terminal of its own (a pseudo-terminal, 100 columns), as a person has
 * it: what it shows, and Ctrl-C. Bytes go through the terminal unchanged. */
#ifndef WEIR_TESTS_CLI_TERMINAL_H
#define WEIR_TESTS_CLI_TERMINAL_H

#include "cli/cli.h"

struct cli_terminal {
    pid_t process;
    int screen; /**< the other end of its stdin, stdout and stderr */
    size_t used;
    char output[1 << 18]; /**< shown so far, a zero behind it */
};

/** Starts `weir ARGUMENTS` by sh, with `environment` ("NO_COLOR=1 TERM=xterm") before it; then
 * cli_terminal_end must be called. False, and the test failed, if it cannot. */
bool cli_terminal_start(struct cli_terminal *terminal, const char *environment, const char *format,
                        ...) __attribute__((format(printf, 3, 4)));
/** Waits, half a minute at most, until `text` has been shown; else the test fails. */
bool cli_terminal_wait(struct cli_terminal *terminal, const char *text);
/** The same for `bytes` bytes of anything. */
bool cli_terminal_wait_bytes(struct cli_terminal *terminal, size_t bytes);
/** Waits until `text` has been shown so many times. */
bool cli_terminal_wait_times(struct cli_terminal *terminal, const char *text, unsigned times);
/** Types. */
void cli_terminal_type(const struct cli_terminal *terminal, const char *text);
/** Presses Ctrl-C. */
void cli_terminal_interrupt(const struct cli_terminal *terminal);
/** Reads on to the end; the exit code, or 128 + signal. */
int cli_terminal_end(struct cli_terminal *terminal);

#endif
