/* SPDX-License-Identifier: MIT */
/* Ops by name. */
#include "net/kernel.h"

static const char *const op_names[] = {
#define OP_NAME(name) #name,
    WEIR__OP_MAP(OP_NAME)
#undef OP_NAME
};
_Static_assert(WEIR__COUNT_OF(op_names) == WEIR__OP_COUNT, "every op has a name");

const char *weir__op_name(enum weir__op_code op) {
    assert((unsigned)op < WEIR__OP_COUNT);
    return op_names[op];
}

int weir__kernel_workspace(const struct weir__kernel *kernel, const struct weir__op_shape *shape,
                           size_t *bytes) {
    assert(shape->threads > 0);
    *bytes = 0;
    if (kernel->measure == NULL) return WEIR_OK;
    int status = kernel->measure(shape, bytes);
    if (status != WEIR_OK || kernel->cut == WEIR__CUT_NOT) return status;
    bool fits = weir__round_up(*bytes, WEIR__CACHE_LINE, bytes) &&
                weir__multiply(*bytes, shape->threads, bytes);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}
