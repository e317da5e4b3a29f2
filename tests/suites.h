/* SPDX-License-Identifier: MIT */
/* One line for each tests/test_<module>.c, in the order of the run. Included several times. */
SUITE(harness)
SUITE(base)
SUITE(device)
SUITE(skip)
SUITE(portal)
SUITE(file)
SUITE(safetensors)
SUITE(corpus)
SUITE(schedule)
SUITE(table)
SUITE(table_random)
SUITE(csv)
