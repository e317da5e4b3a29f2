/* SPDX-License-Identifier: MIT */
/* Rows of tables, losses. */
#include "net/cuda/cuda.h"

const struct weir__kernel weir__cuda_table[WEIR__OP_COUNT] = {
    [WEIR__OP_custom] = {.run = NULL},
};
