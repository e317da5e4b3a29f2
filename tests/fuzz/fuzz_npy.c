/* SPDX-License-Identifier: MIT */
/*
 * .npy files. An input that begins with '{' is a header, which is given its magic and length; any
 * other one is the whole file. A header that is refused for nothing but the size of its data must
 * be taken with data of that size.
 */
#include "fuzz/fuzz.h"
#include "fuzz/arrays.h"

#include "data/npy.h"

#include <stdlib.h>
#include <string.h>

#define PREFIX 10

static size_t read_file(const uint8_t *bytes, size_t count) {
    return fuzz_read_array(bytes, count, weir__npy_open);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    if (count == 0 || data[0] != '{' || count > UINT16_MAX) {
        read_file(data, count);
        return 0;
    }
    uint8_t *file = calloc(1, PREFIX + count + FUZZ_ARRAY_BYTES_MAX);
    FUZZ_CHECK(file);
    memcpy(file, "\x93NUMPY\1", 8);
    file[8] = (uint8_t)(count & 0xFF);
    file[9] = (uint8_t)(count >> 8);
    memcpy(file + PREFIX, data, count);
    size_t wanted = read_file(file, PREFIX + count);
    if (wanted > 0) FUZZ_CHECK(read_file(file, PREFIX + count + wanted) == 0);
    free(file);
    return 0;
}
