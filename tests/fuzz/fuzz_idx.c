/* SPDX-License-Identifier: MIT */
/*
 * IDX files. An input is the whole file; if it is refused for nothing but the size of its data, it
 * must be taken with data of that size.
 */
#include "fuzz/fuzz.h"
#include "fuzz/arrays.h"

#include "data/idx.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    size_t wanted = fuzz_read_array(data, count, weir__idx_open);
    if (wanted == 0) return 0;
    size_t header = 4 + 4 * (size_t)data[3];
    uint8_t *file = calloc(1, header + wanted);
    FUZZ_CHECK(file && header <= count);
    memcpy(file, data, header);
    FUZZ_CHECK(fuzz_read_array(file, header + wanted, weir__idx_open) == 0);
    free(file);
    return 0;
}
