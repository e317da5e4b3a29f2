/* SPDX-License-Identifier: MIT */
/* The sets of malformed files and what one of them consists of; see malformed.h. */
#include "io/malformed.h"

#include <stdlib.h>
#include <string.h>

const struct malformed_set *malformed_set_at(size_t index) {
    static const struct malformed_set *const sets[] = {&malformed_safetensors, &malformed_csv,
                                                       &malformed_npy,         &malformed_idx,
                                                       &malformed_tokens,      &malformed_model};
    return index < sizeof sets / sizeof sets[0] ? sets[index] : NULL;
}

char *malformed_bytes(const struct malformed_set *set, const struct malformed *malformed,
                      size_t *bytes) {
    char *memory = malloc(malformed->text_bytes + malformed->zeros + 2048);
    if (!memory) {
        TEST_FAIL("out of memory");
        return NULL;
    }
    if (set->write && !malformed->raw) {
        *bytes = set->write(malformed, memory);
        return memory;
    }
    memcpy(memory, malformed->text, malformed->text_bytes);
    memset(memory + malformed->text_bytes, 0, malformed->zeros);
    *bytes = malformed->text_bytes + malformed->zeros;
    return memory;
}
