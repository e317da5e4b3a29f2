/* SPDX-License-Identifier: MIT */
/*
 * Token files. An input is the first 12 bytes of a file and its tokens, between which the rest of
 * the header is filled in; it is read as it is too.
 */
#include "fuzz/fuzz.h"

#include "data/tokens.h"

#include <stdlib.h>
#include <string.h>

static void read_file(const uint8_t *bytes, size_t count) {
    struct weir__tokens tokens = {.count = 0};
    struct weir__io *io = fuzz_begin(bytes, count);
    int64_t out[100];
    int status = weir__tokens_open(io, "file", &tokens);
    FUZZ_CHECK(status == WEIR_OK || status == WEIR_ERR_FORMAT || status == WEIR_ERR_UNSUPPORTED);
    FUZZ_CHECK(status == io->error->status);
    FUZZ_CHECK(status != WEIR_OK ||
               WEIR__TOKENS_HEADER_BYTES + tokens.count * tokens.token_bytes == count);
    for (uint64_t first = 0; first < tokens.count; first += 97) {
        uint64_t some = tokens.count - first < 97 ? tokens.count - first : 97;
        FUZZ_CHECK(weir__tokens_read(&tokens, io, first, some, out) == WEIR_OK);
        for (uint64_t i = 0; i < some; i++) {
            FUZZ_CHECK(out[i] >= 0 && out[i] < INT64_C(1) << (8 * tokens.token_bytes));
        }
    }
    weir__tokens_close(&tokens);
    fuzz_end(8192);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    read_file(data, count);
    if (count < 12) return 0;
    size_t bytes = WEIR__TOKENS_HEADER_BYTES + count - 12;
    uint8_t *file = calloc(1, bytes);
    FUZZ_CHECK(file);
    memcpy(file, data, 12);
    memcpy(file + WEIR__TOKENS_HEADER_BYTES, data + 12, count - 12);
    read_file(file, bytes);
    free(file);
    return 0;
}
