/* SPDX-License-Identifier: MIT */
/* What kernels of all of the CPU's backends call. */
#include "device/device.h"
#include "net/cpu/cpu.h"

#include <math.h>

int weir__index_error(const struct weir__op_call *call, const char *what, int64_t place,
                      int64_t index, int64_t limit) {
    assert(index < 0 || index >= limit);
    return weir__fail(call->error, WEIR_ERR_ARGUMENT,
                      "%s %lld of the micro-batch is %lld, which is outside [0, %lld)", what,
                      (long long)place, (long long)index, (long long)limit);
}

double weir__weighted(double sum, double weight) {
    return weight > 0 ? sum / weight : 0;
}

/* k * 2^-24 >= p for whole k is k >= p * 2^24, and that product is exact. */
uint32_t weir__dropout_threshold(double p) {
    assert(p >= 0 && p <= 1);
    return (uint32_t)ceil(p * 0x1p24);
}

void weir__share(const struct weir__op_call *call, int64_t parts, double work, weir__team_fn *run,
                 void *context) {
    assert(parts >= 0 && parts <= UINT32_MAX && work >= 0);
    struct weir__team *team = call->stream == NULL ? NULL : call->stream->team;
    uint32_t members = work < 2 * WEIR__SHARED_LEAST ? 1 : call->shape->threads;
    weir__team_run(team, members, (uint32_t)parts, run, context);
}
