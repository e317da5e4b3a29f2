/* SPDX-License-Identifier: MIT */
/**
 * How many steps some of Weir's loops take: a count that is the same on every machine, however busy
 * it is, where a time is not. The build compiles what reads files, fills and simulates tables, and
 * searches (build/files.zig: countedSources) so that every basic block that runs is counted.
 */
#ifndef WEIR_TESTS_STEPS_H
#define WEIR_TESTS_STEPS_H

#include <stdint.h>

/** Of the calling thread since it began; always 0 under AddressSanitizer, which has a build of its
 * own: bounds are upper ones. */
uint64_t test_steps(void);

#endif
