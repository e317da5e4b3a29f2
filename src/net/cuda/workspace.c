/* SPDX-License-Identifier: MIT */
/* Workspace of products and convolutions: bounded by the shape, since it is counted where no
 * library can be asked. */
#include "net/cuda/numerics.h"

enum { PARTIALS = 16, SPARE_WEIGHTS = 8 };
static const size_t matmul_most = (size_t)32 << 20, convolution_most = (size_t)256 << 20;
static const size_t least = 1024;

/** The bytes of so many F32, in whole multiples of `least`, at most `most`. */
static int bound(size_t count, size_t most, size_t *bytes) {
    bool fits = weir__multiply(count, sizeof(float), bytes) && weir__round_up(*bytes, least, bytes);
    if (!fits) return WEIR_ERR_OVERFLOW;
    if (*bytes > most) *bytes = most;
    return WEIR_OK;
}

int weir__cuda_matmul_workspace(const struct weir__cuda_matmul *matmul, size_t *bytes) {
    size_t count;
    bool fits = weir__multiply((size_t)matmul->m_max, (size_t)matmul->n, &count) &&
                weir__multiply(count, PARTIALS, &count);
    return fits ? bound(count, matmul_most, bytes) : WEIR_ERR_OVERFLOW;
}

static bool count_image(int64_t rows, struct weir__plane plane, int64_t channels, size_t *count) {
    return weir__multiply((size_t)rows, (size_t)plane.height, count) &&
           weir__multiply(*count, (size_t)plane.width, count) &&
           weir__multiply(*count, (size_t)channels, count);
}

int weir__cuda_convolution_workspace(const struct weir__cuda_convolution *convolution,
                                     size_t *bytes) {
    const struct weir__window *window = &convolution->window;
    size_t x, y, weight, count;
    bool fits =
        count_image(convolution->rows_max, window->in, convolution->in, &x) &&
        count_image(convolution->rows_max, window->out, convolution->out, &y) &&
        count_image(convolution->out, window->kernel, convolution->in / window->groups, &weight) &&
        weir__multiply(weight, SPARE_WEIGHTS, &weight) && weir__add(x, y, &count) &&
        weir__multiply(count, 2, &count) && weir__add(count, weight, &count);
    return fits ? bound(count, convolution_most, bytes) : WEIR_ERR_OVERFLOW;
}
