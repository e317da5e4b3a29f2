/* SPDX-License-Identifier: MIT */
/*
 * Products with panels. A tile of the result stays in registers while the loop runs over the depth:
 * each step loads one row of the panel and multiplies it by one number from each row of a. A tile
 * is as many rows by as many registers as keep both multipliers busy behind their latency and leave
 * registers for what is loaded: 12 x 2 with AVX-512, 6 x 2 with AVX (no row of 16 columns is left
 * to the compiler to split), 6 x 4 with NEON. Every number of the result is one chain, so the tile
 * is not in the bits.
 *
 * A wide tile, 6 x 4 with AVX-512, loads 10 registers for its 24 multiply-adds instead of 14, and
 * has 34 instructions instead of 38. On a core whose other thread is at rest a strip in the caches
 * reaches 0.85 of the roof instead of 0.78, 196 of 230 GFLOP/s (Xeon, 5th generation).
 */
#include "net/cpu/panel.h"

#include <assert.h>

#if defined(__AVX512F__)
enum { REGISTER_LANES = 16, TILE_ROWS = 12, FOLDED = 2 };
typedef float vregister __attribute__((vector_size(64)));
#elif defined(__AVX__)
enum { REGISTER_LANES = 8, TILE_ROWS = 6, FOLDED = 0 };
typedef float vregister __attribute__((vector_size(32)));
#else
enum { REGISTER_LANES = 4, TILE_ROWS = WEIR__TILE_ROWS, FOLDED = 0 };
typedef float vregister __attribute__((vector_size(16)));
#endif
enum { TILE_REGISTERS = WEIR__WIDE_COLUMNS / REGISTER_LANES };

/* Of every three of a tile's rows, two are multiplied from memory where a level's instructions do
 * that: least is decoded then beside multiply-adds, which a neighbour on the core's other thread
 * takes its share of (with all three, loads are in each other's way). Such an instruction is
 * decoded as one if its address is a register and a constant; a load by itself may have two
 * registers. So of rows that are not neighbours as many have pointers that step, at least one of
 * three. Left to itself the compiler steps one from row to row, a chain of additions that takes as
 * long as the multiply-adds. */
enum { GROUP = 3, STEPPED = FOLDED > 0 ? FOLDED : 1 };
enum { BASES = TILE_ROWS / GROUP * STEPPED + STEPPED };

/** Steps of a whole tile at a time, for the same reason. */
enum { STEPS_AT_ONCE = 4 };

_Static_assert(WEIR__PANEL % WEIR__TILE_COLUMNS == 0, "a panel is whole tiles wide");
_Static_assert(TILE_ROWS == WEIR__TILE_ROWS, "as callers know it");
_Static_assert(WEIR__WIDE_ROWS <= TILE_ROWS, "there are pointers for so many rows");
_Static_assert(WEIR__WIDE_ROWS *WEIR__WIDE_COLUMNS <= TILE_ROWS * WEIR__TILE_COLUMNS,
               "there are registers for so many sums");

/** Before a loop that is not to be unrolled: its body is a tile. */
#if defined(__clang__)
#define V_ROLLED _Pragma("clang loop unroll(disable)")
#else
#define V_ROLLED _Pragma("GCC unroll 1")
#endif

VECTOR_INLINE vregister multiply_add(vregister a, vregister b, vregister c) {
#if defined(WEIR_PAIRS)
    return (vregister)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
#elif defined(__AVX512F__)
    return (vregister)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vregister)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    for (int i = 0; i < REGISTER_LANES; i++) c[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return c;
#else
    return a * b + c;
#endif
}

/** The same with a number in memory. */
VECTOR_INLINE vregister multiply_add_from(const float *a, vregister b, vregister c) {
#if defined(WEIR_PAIRS)
    V_BROADCAST_IN("vdpbf16ps", c, a, b);
#elif defined(__AVX512F__)
    V_BROADCAST_IN("vfmadd231ps", c, a, b);
#else
    vregister number;
    V_BROADCAST(number, a);
    c = multiply_add(number, b, c);
#endif
    return c;
}

/** multiply_add for the first 8 lanes; the others are anything. Processors whose units are half as
 * wide do it in half the time. */
VECTOR_INLINE vregister multiply_add_8(vregister a, vregister b, vregister c) {
#if defined(__AVX512F__)
    __m256 low_a = _mm512_castps512_ps256((__m512)a), low_b = _mm512_castps512_ps256((__m512)b);
    __m256 low_c = _mm512_castps512_ps256((__m512)c);
#if defined(WEIR_PAIRS)
    low_c = _mm256_dpbf16_ps(low_c, (__m256bh)low_a, (__m256bh)low_b);
#else
    low_c = _mm256_fmadd_ps(low_a, low_b, low_c);
#endif
    return (vregister)_mm512_castps256_ps512(low_c);
#else
    return multiply_add(a, b, c);
#endif
}

/** As many numbers as a tile's register has: all its lanes, or 8. */
VECTOR_INLINE vregister load(const float *from, const int columns) {
    vregister v;
#if defined(__AVX512F__)
    if (columns < REGISTER_LANES) return (vregister)_mm512_castps256_ps512(_mm256_loadu_ps(from));
#endif
    assert(columns >= REGISTER_LANES);
    memcpy(&v, from, sizeof v);
    return v;
}

VECTOR_INLINE void store(float *to, vregister v, const int columns) {
    memcpy(to, &v, columns < REGISTER_LANES ? 8 * sizeof *to : sizeof v);
}

/** Where a tile's operands begin. */
struct tile_place {
    const float *a, *b;
    float *c;
    int64_t c_row;
    const float *begin; /* of chains, or NULL: c is, or 0 */
    const float *add;   /* what the sum is added to, or NULL: c */
};

/** How a tile finds its numbers; a constant where it is passed. */
enum tile_kind {
    ANY,      /**< a's steps are neighbours, its rows and b's lie anyhow */
    ROWS,     /**< the same, and b's rows are as wide as a tile */
    ADJACENT, /**< a's rows are neighbours, its steps and b's rows lie anyhow */
    TILES     /**< a's rows and steps are a tile's, and so are b's rows: all distances are known */
};

/** Rows of a whole tile. */
VECTOR_INLINE int rows_of(const int columns) {
    return columns > WEIR__TILE_COLUMNS ? WEIR__WIDE_ROWS : TILE_ROWS;
}

/** Pointers for so many rows. */
VECTOR_INLINE int bases_of(const int rows) {
    const int rest = rows % GROUP;
    return rows / GROUP * STEPPED + (rest < STEPPED ? rest : STEPPED);
}

/** A tile's row of a, at a step. */
VECTOR_INLINE const float *number_of(const float *const *base, const int row, int64_t a_row,
                                     const enum tile_kind kind) {
    if (kind == ADJACENT || kind == TILES) return base[0] + row;
    const int in_group = row % GROUP, own = in_group < STEPPED ? in_group : STEPPED - 1;
    return base[row / GROUP * STEPPED + own] + (in_group - own) * a_row;
}

/** One step of the depth, for a tile's sums: a's numbers lie `at` behind their bases. */
VECTOR_INLINE void add_step(const float *const *base, int64_t a_row, const int at, const float *b,
                            vregister *sum, const int rows, const int columns,
                            const enum tile_kind kind) {
    const int registers = columns < REGISTER_LANES ? 1 : columns / REGISTER_LANES;
    vregister row[TILE_REGISTERS];
    V_UNROLL
    for (int v = 0; v < registers; v++) row[v] = load(b + v * REGISTER_LANES, columns);
    V_UNROLL
    for (int r = 0; r < rows; r++) {
        const float *from = number_of(base, r, a_row, kind) + at;
        const bool narrow = columns <= WEIR__TILE_COLUMNS;
        const bool folded = columns >= REGISTER_LANES && narrow && r % GROUP < FOLDED;
        vregister number = {0};
        if (!folded) V_BROADCAST(number, from);
        V_UNROLL
        for (int v = 0; v < registers; v++) {
            vregister *to = &sum[r * registers + v];
            if (columns < REGISTER_LANES)
                *to = multiply_add_8(number, row[0], *to);
            else if (folded)
                *to = multiply_add_from(from, row[v], *to);
            else
                *to = multiply_add(number, row[v], *to);
        }
    }
}

/** So many steps of it; what is not a variable is a constant where this is inlined. */
VECTOR_INLINE void add_steps(const struct weir__panel *panel, const float **base, const float **b,
                             vregister *sum, const int steps, const int rows, const int columns,
                             const enum tile_kind kind) {
    const bool tiles = kind == TILES, adjacent = kind == ADJACENT;
    const int64_t b_row = tiles || kind == ROWS ? columns : panel->b_row;
    const int a_step = tiles ? rows_of(columns) : 1;
    V_UNROLL
    for (int i = 0; i < steps; i++) {
        add_step(base, panel->a_row, adjacent ? 0 : i * a_step, *b, sum, rows, columns, kind);
        *b += b_row;
        if (adjacent) base[0] += panel->a_step;
        if (adjacent && FOLDED > 0) V_OPAQUE(base[0]);
    }
    V_UNROLL
    for (int i = 0; i < (tiles ? 1 : bases_of(rows)) && !adjacent; i++) {
        base[i] += steps * a_step;
        V_OPAQUE(base[i]);
    }
}

/** The steps of one line. */
VECTOR_INLINE void add_line(const struct weir__panel *panel, const float *a, const float *b,
                            vregister *sum, const int rows, const int columns,
                            const enum tile_kind kind) {
    const int at_once = rows == rows_of(columns) ? STEPS_AT_ONCE : 1;
    const int64_t next = panel->next;
    const float *base[BASES];
    int64_t left = panel->depth;
    V_UNROLL
    for (int i = 0; i < bases_of(rows); i++)
        base[i] = a + (i / STEPPED * GROUP + i % STEPPED) * panel->a_row;
    V_ROLLED
    for (; left >= at_once; left -= at_once) {
        for (int i = 0; i < at_once && next != 0; i++)
            __builtin_prefetch(b + i * panel->b_row + next);
        add_steps(panel, base, &b, sum, at_once, rows, columns, kind);
    }
    V_ROLLED
    for (; at_once > 1 && left > 0; left--) add_steps(panel, base, &b, sum, 1, rows, columns, kind);
}

/** What a tile of c is read for comes near while the loop runs: for its end where the sum is added
 * to it, else, for its beginning, where the next one down is. */
VECTOR_INLINE void bring_near(const struct weir__panel *panel, const struct tile_place *place,
                              const int rows, const int columns) {
    enum { LINE = 64 / sizeof(float) };
    bool added = panel->mode == WEIR__PANEL_CHAIN && place->begin == NULL;
    const float *c = place->c + (added ? rows * place->c_row : 0);
    V_UNROLL
    for (int r = 0; r < rows; r++)
        for (int j = 0; j < columns; j += LINE) __builtin_prefetch(c + r * place->c_row + j, 1, 3);
}

/** One tile, all columns of it there. */
VECTOR_INLINE void tile(const struct weir__panel *panel, const struct tile_place *place,
                        const int rows, const int columns, const enum tile_kind kind) {
    assert(rows >= 1 && rows <= rows_of(columns) && columns <= WEIR__WIDE_COLUMNS);
    const int registers = columns < REGISTER_LANES ? 1 : columns / REGISTER_LANES;
    const struct weir__panel_again lines = panel->lines, planes = panel->planes;
    const int64_t c_row = place->c_row;
    float *c = place->c;
    const bool begins = place->begin != NULL;
    const float *begin = begins ? place->begin : c;
    const int64_t begin_row = begins ? panel->begin_row : c_row;
    const float *add = place->add != NULL ? place->add : c;
    const int64_t add_row = place->add != NULL ? panel->add_row : c_row;
    vregister sum[TILE_ROWS * WEIR__TILE_COLUMNS / REGISTER_LANES];
    V_UNROLL
    for (int s = 0; s < rows * registers; s++) {
        const float *from = begin + s / registers * begin_row + s % registers * REGISTER_LANES;
        sum[s] = begins || panel->mode == WEIR__PANEL_CHAIN ? load(from, columns) : (vregister){0};
    }
    bring_near(panel, place, rows, columns);
    const float *a_plane = place->a, *b_plane = place->b;
    int64_t plane = planes.times, line;
    V_ROLLED
    do {
        const float *a = a_plane, *b = b_plane;
        line = lines.times;
        V_ROLLED
        do {
            add_line(panel, a, b, sum, rows, columns, kind);
            a += lines.a;
            b += lines.b;
        } while (--line > 0);
        a_plane += planes.a;
        b_plane += planes.b;
    } while (--plane > 0);
    V_UNROLL
    for (int s = 0; s < rows * registers; s++) {
        float *to = c + s / registers * c_row + s % registers * REGISTER_LANES;
        const float *old = add + s / registers * add_row + s % registers * REGISTER_LANES;
        if (panel->mode == WEIR__PANEL_ADD) sum[s] += load(old, columns);
        store(to, sum[s], columns);
    }
}

/** Some rows: a tile's, or half of those that fill no tile or no two, for a tile of a row or two
 * waits for its own multiply-adds. Returns how many it took. */
VECTOR_INLINE int64_t step(const struct weir__panel *panel, const struct tile_place *place,
                           int64_t rows, const int columns, const enum tile_kind kind) {
    const int whole = rows_of(columns);
    const bool odd = rows > 6 && rows % 2 != 0;
    bool halves = rows < whole ? odd : rows > whole && rows < 2 * whole;
    int64_t take = halves ? (rows + 1) / 2 : rows;
#define V_TAKE(n)                                                                                  \
    if (whole >= (n) && take >= (n)) return tile(panel, place, n, columns, kind), n
    V_TAKE(12);
    V_TAKE(10);
    V_TAKE(8);
    V_TAKE(6);
    V_TAKE(5);
    V_TAKE(4);
    V_TAKE(3);
    V_TAKE(2);
#undef V_TAKE
    return tile(panel, place, 1, columns, kind), 1;
}

/** All rows of one tile's columns. */
VECTOR_INLINE void column(const struct weir__panel *panel, struct tile_place place,
                          const int columns, const enum tile_kind kind) {
    for (int64_t row = 0; row < panel->rows;) {
        int64_t taken = step(panel, &place, panel->rows - row, columns, kind);
        place.a += taken * panel->a_row;
        place.c += taken * place.c_row;
        if (place.begin != NULL) place.begin += taken * panel->begin_row;
        if (place.add != NULL) place.add += taken * panel->add_row;
        row += taken;
    }
}

/** The same for a width of a tile, or of a wide one, whose distances may be known. */
VECTOR_INLINE void any_column(const struct weir__panel *panel, const struct tile_place *place,
                              const int columns) {
    const bool adjacent = panel->a_row == 1, packed = panel->b_row == columns;
    if (packed && adjacent && panel->a_step == rows_of(columns))
        column(panel, *place, columns, TILES);
    else if (adjacent)
        column(panel, *place, columns, ADJACENT);
    else if (packed)
        column(panel, *place, columns, ROWS);
    else
        column(panel, *place, columns, ANY);
}

/** For a whole width. */
static void whole_column(const struct weir__panel *panel, const struct tile_place *place,
                         int64_t columns) {
    const bool adjacent = panel->a_row == 1;
    if (columns == WEIR__WIDE_COLUMNS)
        any_column(panel, place, WEIR__WIDE_COLUMNS);
    else if (columns == WEIR__TILE_COLUMNS)
        any_column(panel, place, WEIR__TILE_COLUMNS);
    else if (columns == 16 && adjacent)
        column(panel, *place, 16, ADJACENT);
    else if (columns == 16)
        column(panel, *place, 16, ANY);
    else if (adjacent)
        column(panel, *place, 8, ADJACENT);
    else
        column(panel, *place, 8, ANY);
}

/** The last columns, which do not fill a tile: rows by way of a whole one. */
static void part_column(const struct weir__panel *panel, int64_t j, int64_t columns) {
    assert(columns > 0 && columns < WEIR__TILE_COLUMNS);
    float c[TILE_ROWS * WEIR__TILE_COLUMNS] = {0}, begin[TILE_ROWS * WEIR__TILE_COLUMNS] = {0};
    const size_t bytes = (size_t)columns * sizeof *c;
    for (int64_t row = 0; row < panel->rows; row += TILE_ROWS) {
        struct weir__panel part = *panel;
        part.rows = panel->rows - row < TILE_ROWS ? panel->rows - row : TILE_ROWS;
        part.begin_row = WEIR__TILE_COLUMNS;
        const struct tile_place at = {.a = panel->a + row * panel->a_row,
                                      .b = panel->b + j,
                                      .c = c,
                                      .c_row = WEIR__TILE_COLUMNS,
                                      .begin = panel->begin != NULL ? begin : NULL};
        float *to = panel->c + row * panel->c_row + j;
        const bool adds = panel->mode == WEIR__PANEL_ADD && panel->add != NULL;
        const float *old = adds ? panel->add + row * panel->add_row + j : to;
        const int64_t old_row = adds ? panel->add_row : panel->c_row;
        for (int64_t r = 0; r < part.rows && panel->mode != WEIR__PANEL_SET; r++)
            memcpy(c + r * WEIR__TILE_COLUMNS, old + r * old_row, bytes);
        for (int64_t r = 0; r < part.rows && panel->begin != NULL; r++)
            memcpy(begin + r * WEIR__TILE_COLUMNS, panel->begin + (row + r) * panel->begin_row + j,
                   bytes);
        whole_column(&part, &at, VECTOR_F32(panel_width)(columns));
        for (int64_t r = 0; r < part.rows; r++)
            memcpy(to + r * panel->c_row, c + r * WEIR__TILE_COLUMNS, bytes);
    }
}

int64_t VECTOR_F32(panel_width)(int64_t columns) {
    return columns <= 8 ? 8 : columns <= 16 ? 16 : WEIR__TILE_COLUMNS;
}

void VECTOR_F32(panel_product)(const struct weir__panel *panel) {
    assert(panel->rows >= 0 && panel->depth >= 0);
    assert(panel->a_row == 1 || panel->a_step == 1);
    assert(panel->columns > 0);
    assert(panel->columns <= WEIR__PANEL || panel->columns <= WEIR__WIDE_COLUMNS);
    for (int64_t j = 0, columns; j < panel->columns; j += columns) {
        const struct tile_place place = {.a = panel->a,
                                         .b = panel->b + j,
                                         .c = panel->c + j,
                                         .c_row = panel->c_row,
                                         .begin = panel->begin != NULL ? panel->begin + j : NULL,
                                         .add = panel->add != NULL ? panel->add + j : NULL};
        columns = panel->columns - j;
        const bool wide = columns == WEIR__WIDE_COLUMNS;
        if (columns > WEIR__TILE_COLUMNS && !wide) columns = WEIR__TILE_COLUMNS;
        if (wide || columns == VECTOR_F32(panel_width)(columns))
            whole_column(panel, &place, columns);
        else
            part_column(panel, j, columns);
    }
}
