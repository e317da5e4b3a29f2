/* SPDX-License-Identifier: MIT */
/*
 * spin: takes time, in proportion to `iterations`, and says in the end how it came out.
 *
 * Launch: one thread is enough; each computes the same.
 */
#include "platform.cuh"

extern "C" __global__ void weir_spin(uint32_t *result, /* (1) */
                                     uint64_t iterations) {
    uint32_t value = 1;
    for (uint64_t i = 0; i < iterations; i++) value = value * 1664525u + 1013904223u;
    *result = value;
}
EXPORT_KERNEL(weir_spin);
