/* SPDX-License-Identifier: MIT */
/* Compiled for each level. */
#include "vector_exp.h"

#include "net/cpu/vector.h"

#include <assert.h>

/* Several at once, for one is a chain of a dozen operations. */
enum { TOGETHER = 4 };

void VECTOR(exponentials)(float *to, const float *from, int64_t count) {
    assert(count % (TOGETHER * LANES) == 0);
    for (int64_t i = 0; i < count; i += TOGETHER * LANES) {
        V_UNROLL
        for (int k = 0; k < TOGETHER; k++)
            v_store(to + i + k * LANES, v_exp(v_load(from + i + k * LANES)));
    }
}
