/* SPDX-License-Identifier: MIT */
/*
 * Kernels of 3 x 3 taps in the domain of minimal filtering, 16 columns at a time. Read as they are
 * they take 36 bytes, packed 64: where each is used once (few tiles) they are packed a slice at a
 * time into what the second cache holds, and memory is read at its pace.
 */
#include "net/cpu/vector_winograd.h"

#include <assert.h>

enum {
    TAPS = 9,
    PIECE = LANES, /* channels of the depth whose taps turn together: whole vectors of them */
    PIECE_FLOATS = PIECE * TAPS,
    LINE = 64 / sizeof(float),
    AHEAD_ROWS = 4 /* how far ahead kernels of the next rows are prefetched */
};

/** The kernel's taps, three rows of three, become a column of positions. */
VECTOR_INLINE void transform(const vfloat taps[TAPS], vfloat to[WEIR__WINOGRAD_POSITIONS]) {
    const vfloat half = v_all(0.5f);
    vfloat rows[4][3];
    V_UNROLL
    for (int x = 0; x < 3; x++) {
        vfloat sides = taps[x] + taps[6 + x];
        rows[0][x] = taps[x];
        rows[1][x] = (sides + taps[3 + x]) * half;
        rows[2][x] = (sides - taps[3 + x]) * half;
        rows[3][x] = taps[6 + x];
    }
    V_UNROLL
    for (int y = 0; y < 4; y++) {
        vfloat sides = rows[y][0] + rows[y][2];
        to[y * 4] = rows[y][0];
        to[y * 4 + 1] = (sides + rows[y][1]) * half;
        to[y * 4 + 2] = (sides - rows[y][1]) * half;
        to[y * 4 + 3] = rows[y][2];
    }
}

/** Where 16 columns go: the next channel's are a panel's row further. */
struct packed_piece {
    float *to;
    int64_t distance; /* from position to position */
    bool rounds, past;
};

VECTOR_INLINE void place(const struct packed_piece *piece, int64_t channel,
                         const vfloat taps[TAPS]) {
    vfloat rounded[TAPS], all[WEIR__WINOGRAD_POSITIONS];
    float *to = piece->to + channel * WEIR__TILE_COLUMNS;
    V_UNROLL
    for (int k = 0; k < TAPS; k++)
        rounded[k] = piece->rounds ? v_from_bf16(v_to_bf16(taps[k])) : taps[k];
    transform(rounded, all);
    if (piece->past) {
        V_UNROLL
        for (int p = 0; p < WEIR__WINOGRAD_POSITIONS; p++)
            v_store_past(to + p * piece->distance, all[p]);
    } else {
        V_UNROLL
        for (int p = 0; p < WEIR__WINOGRAD_POSITIONS; p++)
            v_store(to + p * piece->distance, all[p]);
    }
}

VECTOR_INLINE void fetch(const float *from, int64_t floats) {
    for (int64_t i = 0; i < floats; i += LINE) __builtin_prefetch(from + i);
}

/** Columns are outputs, each with its kernels of the depth in a row. */
static void pack_forward(const struct weir__winograd_kernels *kernels, int64_t column,
                         int64_t columns, struct weir__conv_range depth,
                         const struct packed_piece *to) {
    int64_t distance = kernels->in * TAPS;
    for (int64_t d = depth.first; d < depth.end; d += PIECE) {
        _Alignas(64) float turned[PIECE_FLOATS * LANES], rows[LANES * PIECE_FLOATS];
        int64_t channels = v_least(depth.end - d, PIECE), row = distance;
        const float *from = kernels->weight + (column * kernels->in + d) * TAPS;
        if (columns < LANES || channels < PIECE) {
            memset(rows, 0, sizeof rows);
            for (int64_t j = 0; j < columns; j++)
                v_copy(rows + j * PIECE_FLOATS, from + j * distance, channels * TAPS);
            from = rows;
            row = PIECE_FLOATS;
        } else if (d + 2 * PIECE <= kernels->in) {
            for (int64_t j = 0; j < LANES; j++)
                fetch(from + j * distance + PIECE_FLOATS, PIECE_FLOATS);
        }
        for (int64_t f = 0; f < PIECE_FLOATS; f += LANES)
            v_turn(from + f, row, turned + f * LANES, LANES);
        for (int64_t i = 0; i < channels; i++) {
            vfloat taps[TAPS];
            V_UNROLL
            for (int k = 0; k < TAPS; k++) taps[k] = v_load(turned + (i * TAPS + k) * LANES);
            place(to, d - depth.first + i, taps);
        }
    }
}

/** Columns are inputs, whose kernels are neighbours; turned by half. */
static void pack_back(const struct weir__winograd_kernels *kernels, int64_t column, int64_t columns,
                      struct weir__conv_range depth, const struct packed_piece *to) {
    int64_t distance = kernels->in * TAPS;
    const float *from = kernels->weight + depth.first * distance + column * TAPS;
    for (int64_t d = depth.first; d < depth.end; d++, from += distance) {
        float padded[PIECE_FLOATS + LANES];
        vfloat rows[LANES], taps[TAPS];
        const float *row = from;
        bool last = d + 1 == kernels->out && column + columns == kernels->in; /* none follow */
        if (columns < LANES || last) {
            memset(padded, 0, sizeof padded);
            v_copy(padded, from, columns * TAPS);
            row = padded;
        } else if (d + AHEAD_ROWS < kernels->out) {
            fetch(from + AHEAD_ROWS * distance, PIECE_FLOATS);
        }
        V_UNROLL
        for (int j = 0; j < LANES; j++) rows[j] = v_load(row + j * TAPS);
        v_transpose(rows);
        V_UNROLL
        for (int k = 0; k < TAPS; k++) taps[k] = rows[TAPS - 1 - k];
        place(to, d - depth.first, taps);
    }
}

void VECTOR(winograd_pack)(const struct weir__winograd_kernels *kernels, int64_t column,
                           struct weir__conv_range depth, float *to, int64_t distance) {
    int64_t all = kernels->back ? kernels->in : kernels->out;
    bool past = kernels->past && (uintptr_t)to % (LANES * sizeof *to) == 0 && distance % LANES == 0;
    assert(column % WEIR__TILE_COLUMNS == 0 && column < all);
    for (int64_t j = 0; j < WEIR__TILE_COLUMNS; j += LANES) {
        const struct packed_piece piece = {to + j, distance, kernels->rounds, past};
        int64_t columns = v_least(all - column - j, LANES);
        if (columns <= 0)
            for (int64_t d = 0; d < depth.end - depth.first; d++) {
                const vfloat none[TAPS] = {{0}};
                place(&piece, d, none);
            }
        else if (kernels->back)
            pack_back(kernels, column + j, columns, depth, &piece);
        else
            pack_forward(kernels, column + j, columns, depth, &piece);
    }
    if (past) v_past_done();
}
