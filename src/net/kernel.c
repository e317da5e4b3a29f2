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
