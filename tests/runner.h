/* SPDX-License-Identifier: MIT */
/**
 * Runs a list of tests and counts what came out.
 *
 * With one job they run one after the other in this process, which a crash or a hang ends: the
 * test is named and the totals are printed all the same. With more jobs each test has a process of
 * its own, so many at a time as there are jobs; one that crashes or hangs is named, and the others
 * go on. Those that are `alone` come last then, one at a time.
 */
#ifndef WEIR_TESTS_RUNNER_H
#define WEIR_TESTS_RUNNER_H

#include "harness.h"

#include <stdbool.h>
#include <stddef.h>

enum { RUNNER_NAME_BYTES = 256, RUNNER_JOBS_MAX = 64 };

struct runner_test {
    char name[RUNNER_NAME_BYTES]; /**< module/behaviour */
    void (*run)(void);
    bool alone; /**< not beside others: it is about the machine's cores, or a process's memory */
};

struct runner_options {
    struct test_settings settings;
    unsigned timeout_s; /**< of one test; it only catches hangs */
    unsigned repeat;    /**< each time with the next seed */
    unsigned jobs;      /**< 1 … RUNNER_JOBS_MAX */
    unsigned slowest;   /**< print so many of the slowest tests at the end */
};

/** Runs them, printing a line for each, and then the slowest ones if wanted. The test that runs
 * sees the seed of its repetition. */
void runner_run(const struct runner_test *tests, size_t count,
                const struct runner_options *options);

/** Prints the last line: N passed, N failed, N skipped. Returns the process's exit status, 0 only
 * if something ran and nothing failed. */
int runner_end(void);

#endif
