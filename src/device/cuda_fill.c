/* SPDX-License-Identifier: MIT */
/* Launch shapes of the kernels that make numbers: fill, random words, the decision on a step. */
#include "base/base.h"
#include "device/cuda_kernels.h"

#include <string.h>

enum { THREADS = 256, FILL_BYTES = THREADS * 4 * 16, PATTERN_BYTES = 16, GROUP = 4, WARP = 32 };

static uint32_t divide_up(uint64_t value, uint64_t by, uint32_t most) {
    uint64_t result = value / by + (value % by != 0);
    return result > most ? most : (uint32_t)result;
}

int weir__cuda_fill(struct weir_stream *stream, void *to, const void *element, size_t element_bytes,
                    uint64_t elements) {
    bool whole =
        element_bytes > 0 && element_bytes <= PATTERN_BYTES && PATTERN_BYTES % element_bytes == 0;
    size_t bytes;
    if (!whole || !weir__multiply(elements, element_bytes, &bytes)) return WEIR_ERR_ARGUMENT;
    if (bytes == 0) return WEIR_OK;
    struct weir__cuda_fill fill = {.to = to, .bytes = bytes};
    for (size_t at = 0; at < PATTERN_BYTES; at += element_bytes)
        memcpy((char *)fill.pattern + at, element, element_bytes);
    struct weir__cuda_grid grid = {
        {divide_up(fill.bytes, FILL_BYTES, INT32_MAX), 1, 1}, {THREADS, 1, 1}, 0};
    void *arguments[] = {&fill};
    return weir__cuda_launch(stream, WEIR__CUDA_KERNEL_fill, &grid, arguments);
}

int weir__cuda_random_words(struct weir_stream *stream, const struct weir__cuda_random *random) {
    if (random->rows == 0 || random->elements == 0) return WEIR_OK;
    uint64_t groups = random->elements / GROUP + (random->elements % GROUP != 0);
    uint32_t x = 1;
    while (x < THREADS && x < groups) x *= 2;
    uint32_t y = THREADS / x;
    struct weir__cuda_random own = *random;
    struct weir__cuda_grid grid = {
        {divide_up(groups, x, INT32_MAX), divide_up(random->rows, y, UINT16_MAX), 1}, {x, y, 1}, 0};
    void *arguments[] = {&own};
    return weir__cuda_launch(stream, WEIR__CUDA_KERNEL_random_words, &grid, arguments);
}

int weir__cuda_decide(struct weir_stream *stream, struct weir_verdict *verdict,
                      const double *squares, uint64_t count, double clip_norm) {
    struct weir__cuda_grid grid = {{1, 1, 1}, {WARP, 1, 1}, 0};
    void *arguments[] = {&verdict, &squares, &count, &clip_norm};
    return weir__cuda_launch(stream, WEIR__CUDA_KERNEL_decide, &grid, arguments);
}
