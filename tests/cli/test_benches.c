/* SPDX-License-Identifier: MIT */
/*
 * Goal: the benches of the CPU run, all of them, and their answers are right; how fast, they say
 * themselves where nothing disturbs. Method: the bench program's smoke test.
 */
#include "harness.h"

#include <string.h>

static char output[1 << 18];

static void test_benches_run_through(void) {
    if (test_bench() == NULL) SKIP("the benches were not built");
    int code = test_shell(output, sizeof output, "'%s' --quick --repetitions 1 2>&1", test_bench());
    CHECK_EQ_INT(code, 0);
    CHECK_CONTAINS(output, "overhead: ");
    CHECK_CONTAINS(output, "of their roof; below:");
    CHECK_CONTAINS(output, " answers checked: all right");
}

WEIR_TEST_SUITE(benches, TEST(benches_run_through))
