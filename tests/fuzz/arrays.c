/* SPDX-License-Identifier: MIT */
/* What the targets of array files share; see arrays.h. */
#include "fuzz/arrays.h"

#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All numbers, in pieces of an odd length, in every type that they may be had in. */
static void use(const struct weir__array *array, const struct weir__io *io) {
    double f64[100];
    float f32[100];
    int64_t i64[100];
    char text[96];
    FUZZ_CHECK(array->rank <= WEIR__ARRAY_RANK_MAX);
    FUZZ_CHECK(array->offset + array->count * weir__number_bytes(array->number) ==
               array->source.bytes);
    FUZZ_CHECK(strlen(weir__array_text(array, text, sizeof text)) > 0);
    for (uint64_t first = 0; first < array->count; first += 97) {
        uint64_t count = array->count - first < 97 ? array->count - first : 97;
        FUZZ_CHECK(weir__array_read_f64(array, io, first, count, f64) == WEIR_OK);
        FUZZ_CHECK(weir__array_read_f32(array, io, first, count, f32) == WEIR_OK);
        if (weir__number_is_real(array->number)) continue;
        FUZZ_CHECK(weir__array_read_i64(array, io, first, count, i64) == WEIR_OK);
        for (uint64_t i = 0; i < count; i++) FUZZ_CHECK((double)i64[i] == f64[i]);
    }
}

/* "... has 24 bytes, but 0 follow the header": the 24. */
static size_t wanted_bytes(const char *message) {
    const char *has = strstr(message, " has ");
    if (!has || !strstr(has, " follow the header: ") || strstr(message, "the header has")) return 0;
    size_t wanted = (size_t)strtoull(has + 5, NULL, 10);
    return wanted <= FUZZ_ARRAY_BYTES_MAX ? wanted : 0;
}

size_t fuzz_read_array(const uint8_t *bytes, size_t count,
                       int (*open)(const struct weir__io *io, const char *path,
                                   struct weir__array *array)) {
    struct weir__array array = {.rank = 0}, same = {.rank = 0};
    struct weir__io *io = fuzz_begin(bytes, count);
    int status = open(io, "file", &array);
    size_t wanted = status == WEIR_ERR_FORMAT ? wanted_bytes(io->error->message) : 0;
    FUZZ_CHECK(status == WEIR_OK || status == WEIR_ERR_FORMAT || status == WEIR_ERR_UNSUPPORTED);
    FUZZ_CHECK(status == io->error->status);
    if (status == WEIR_OK) {
        FUZZ_CHECK(weir__array_open(io, "file", &same) == WEIR_OK);
        FUZZ_CHECK(same.count == array.count && same.number == array.number);
        use(&array, io);
    }
    weir__array_close(&same);
    weir__array_close(&array);
    fuzz_end(8192);
    return wanted;
}
