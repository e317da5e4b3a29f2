/* SPDX-License-Identifier: MIT */
/* torch.chunk's arithmetic. */
#include "pipe/describe/microbatch.h"

static int64_t chunk_rows(int64_t rows, uint32_t chunks) {
    assert(rows >= 1 && chunks >= 1);
    return (rows - 1) / chunks + 1;
}

uint32_t weir__chunk_count(int64_t rows, uint32_t chunks) {
    int64_t size = chunk_rows(rows, chunks);
    return (uint32_t)((rows - 1) / size + 1);
}

int64_t weir__chunk_first(int64_t rows, uint32_t chunks, uint32_t index) {
    int64_t size = chunk_rows(rows, chunks);
    return index > (rows - 1) / size ? rows : size * index; /* no product that could overflow */
}

void weir__chunk_parts(int64_t rows, uint32_t chunks, double *parts) {
    assert(parts != NULL);
    double most = (double)weir__chunk_first(rows, chunks, 1);
    uint32_t count = weir__chunk_count(rows, chunks);
    for (uint32_t i = 0; i < count; i++) {
        int64_t first = weir__chunk_first(rows, chunks, i);
        parts[i] = (double)(weir__chunk_first(rows, chunks, i + 1) - first) / most;
    }
}
