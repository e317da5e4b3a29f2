/* SPDX-License-Identifier: MIT */
/**
 * Placements as text, for the tests of src/place: "0-3|4-7" is two workers of four cores, "-" a
 * worker that is not bound.
 */
#ifndef WEIR_TESTS_PLACE_PLANS_H
#define WEIR_TESTS_PLACE_PLANS_H

#include "place/machine.h"

enum { PLACE_WORKERS_MAX = 16 };

/** A machine from a string, on test_allocator(); NULL is the real one. Gives NULL, and fails the
 * test, if there is none. */
struct weir__machine *place_machine(const char *synthetic);
/** weir__place_plan for workers without GPUs. */
int place_plan(struct weir__machine *machine, const char *bind, uint32_t workers, uint32_t threads,
               struct weir__worker_place *placements);
/** Plans, and compares what comes out. */
void place_expect(struct weir__machine *machine, const char *bind, uint32_t workers,
                  uint32_t threads, const char *expected);
/** Plans, and expects WEIR_ERR_ARGUMENT with `reason` in the last fault. */
void place_expect_refused(struct weir__machine *machine, const char *bind, uint32_t workers,
                          uint32_t threads, const char *reason);

#endif
