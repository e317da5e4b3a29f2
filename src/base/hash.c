/* SPDX-License-Identifier: MIT */
/* FNV-1a, 64 bits: a byte at a time, the same on every machine, kept in files. */
#include "base/base.h"

uint64_t weir__hash(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}
