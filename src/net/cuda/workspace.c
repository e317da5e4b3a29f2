/* SPDX-License-Identifier: MIT */
/* Workspace of products, convolutions and attention: bounded by the shape, since it is counted
 * where no library can be asked. */
#include "net/cuda/numerics.h"

enum { PARTIALS = 16, SPARE_WEIGHTS = 8 };
static const size_t matmul_most = (size_t)32 << 20, convolution_most = (size_t)256 << 20;
static const size_t least = 1024;

/** The bytes of so many F32, in whole multiples of `least`, at most `most`. */
static int limit(size_t count, size_t most, size_t *bytes) {
    bool fits = weir__multiply(count, sizeof(float), bytes) && weir__round_up(*bytes, least, bytes);
    if (!fits) return WEIR_ERR_OVERFLOW;
    if (*bytes > most) *bytes = most;
    return WEIR_OK;
}

int weir__cuda_matmul_workspace(const struct weir__cuda_matmul *matmul, size_t *bytes) {
    size_t count;
    bool fits = weir__multiply((size_t)matmul->m_max, (size_t)matmul->n, &count) &&
                weir__multiply(count, PARTIALS, &count);
    return fits ? limit(count, matmul_most, bytes) : WEIR_ERR_OVERFLOW;
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
    return fits ? limit(count, convolution_most, bytes) : WEIR_ERR_OVERFLOW;
}

/* ---- attention ---- */

enum { TILE = 64, WIDE_TILE = 128, ROW_UNIT = 256 };
/** What a plan may need besides: for each block of 64 tokens of a head, and once. */
enum { BLOCK_BYTES = 64, PLAN_BYTES = 4096 };
static const size_t attend_most = (size_t)128 << 20;

static bool multiply3(size_t a, size_t b, size_t c, size_t *product) {
    return weir__multiply(a, b, product) && weir__multiply(*product, c, product);
}

/** The fewest rows whose numbers by head and token, F32, end at a multiple of 16 bytes. */
static size_t rows_step(size_t heads, size_t tokens) {
    static const size_t steps[] = {1, 4, 2, 4};
    return steps[heads % 4 * (tokens % 4) % 4];
}

/** Of one row: the gradients of scores; false where they are too much. */
static bool count_scores(size_t heads, size_t tokens, size_t *bytes) {
    size_t tall, wide;
    return weir__round_up(tokens, TILE, &tall) && weir__round_up(tokens, WIDE_TILE, &wide) &&
           multiply3(tall, wide, heads, bytes) && weir__multiply(*bytes, sizeof(uint16_t), bytes) &&
           *bytes <= attend_most / rows_step(heads, tokens);
}

/** As many rows as there is room for, of so many bytes each, in parts that are nearly alike, of
 * whole steps. */
static size_t share_rows(size_t rows_max, size_t row, size_t step) {
    size_t most = row == 0 ? rows_max : attend_most / row / step * step;
    if (most >= rows_max) return rows_max;
    size_t parts = (rows_max - 1) / most + 1;
    return ((rows_max - 1) / parts / step + 1) * step;
}

static bool count_backward(size_t heads, size_t tokens, size_t rows_max,
                           struct weir__cuda_attend_room *room) {
    size_t row, rows = rows_max, blocks;
    room->keeps_scores = count_scores(heads, tokens, &row);
    if (room->keeps_scores) rows = share_rows(rows_max, row, rows_step(heads, tokens));
    room->at_once = (int64_t)rows;
    if (!multiply3(rows, heads, tokens, &room->delta) ||
        !weir__multiply(room->delta, sizeof(float), &room->delta) ||
        !weir__round_up(room->delta, ROW_UNIT, &room->delta))
        return false;
    return multiply3(rows, heads, (tokens + TILE - 1) / TILE * BLOCK_BYTES, &blocks) &&
           (!room->keeps_scores ||
            (weir__multiply(rows, row, &row) && weir__add(room->plan, row, &room->plan))) &&
           weir__add(room->plan, blocks, &room->plan);
}

int weir__cuda_attend_room(const struct weir__cuda_attend *attend,
                           struct weir__cuda_attend_room *room) {
    *room = (struct weir__cuda_attend_room){.at_once = attend->rows_max, .plan = PLAN_BYTES};
    bool fits = !attend->backward || count_backward((size_t)attend->heads, (size_t)attend->tokens,
                                                    (size_t)attend->rows_max, room);
    fits = fits && weir__add(room->delta, room->plan, &room->bytes);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}
