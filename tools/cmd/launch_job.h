/* SPDX-License-Identifier: MIT */
/** One start of a job of several processes, by its launcher, which is watched over here. */
#ifndef WEIR_TOOLS_LAUNCH_JOB_H
#define WEIR_TOOLS_LAUNCH_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LAUNCH_WORDS = 1024 };

/** A command line as it grows; words are borrowed. */
struct launch_words {
    uint32_t count;
    const char *list[LAUNCH_WORDS + 1]; /**< NULL behind the last */
};
/** False where there are too many. */
bool launch_words_add(struct launch_words *words, const char *word);

/** How a start ended. */
struct job_end {
    int code;       /**< an exit code, or 128 and the signal */
    bool refused;   /**< a rank said why it cannot join */
    bool lost;      /**< a rank said that one is lost */
    char what[256]; /**< rank and host, where one said so */
    int asked;      /**< the last signal that this process got and passed on; 0: none */
};

/** Catches SIGINT, SIGTERM and, unless it is ignored (nohup), SIGHUP from now on, for job_run to
 * pass on. */
void job_catch_signals(void);
/** A signal that came; 0: none. */
int job_asked(void);
/** How a launcher is told that its ranks are to end in good order. Of a SIGTERM srun kills them at
 * once; SIGUSR2 it passes on, and ranks take it as one (launch_rank.h). */
enum job_ends { JOB_ENDS_BY_TERM, JOB_ENDS_BY_USR2 };
/** Runs the command to its end; its stderr goes on to this one's, but for the lines that a run
 * writes for its launcher. A command that stays after a loss is ended, and so is one of whose
 * ranks one is refused, or some have begun to start and for `start_timeout` seconds no
 * other does, nor have all started. False: it cannot be started. */
bool job_run(const struct launch_words *command, enum job_ends ends, double start_timeout,
             struct job_end *end);
/** Runs the command, for `limit_s` at most, with what it prints into `text`; its exit code, or -1.
 */
int job_capture(const struct launch_words *command, unsigned limit_s, char *text, size_t capacity);

#endif
