/* SPDX-License-Identifier: MIT */
/* Our own vector kernels as one table. */
#include "net/cpu/cpu.h"

const struct weir__kernel weir__vector_f32[WEIR__OP_COUNT] = {{.run = NULL}};
const struct weir__flat_calls weir__vector_flat_f32;
