/* SPDX-License-Identifier: MIT */
/*
 * Goal: every kernel of kernels/ computes what its head comment says, writes nothing else, and does
 * nothing that a GPU forbids, for every size, alignment and dtype. Method: each runs emulated (the
 * same source, compiled for the host with UBSan) on memory whose neighbourhood is watched, in
 * random launch shapes and orders of threads, over ragged sizes; where tests run on a GPU, as nvcc
 * compiled it, there. Results are compared bit for bit with plain loops here, which share no code
 * with the kernels.
 */
#include "base/base.h"
#include "cuda/emulated.h"

#include <math.h>
#include <string.h>

#define OPEN_OR_SKIP()                                                                             \
    if (test_fake_cuda_path() == NULL && !test_gpu_is_real())                                      \
    SKIP("there is no library of emulated kernels")

/* Around the widths of vectors, warps, blocks and tiles. */
static const uint32_t sizes[] = {0,   1,   2,    3,    4,    7,    8,    9,    15,    16,    17,
                                 31,  32,  33,   63,   64,   65,   100,  127,  128,   255,   256,
                                 257, 511, 1000, 1023, 1024, 1025, 4096, 5000, 16383, 16385, 70001};

/* A shape that any grid-striding kernel must bear. */
static struct weir__cuda_grid random_grid(void) {
    return emulation_grid(1 + (uint32_t)test_random_below(5),
                          32 * (1 + (uint32_t)test_random_below(8)));
}

static struct weir__cuda_grid random_plane(void) {
    uint32_t x = 1u << test_random_below(9);
    struct weir__cuda_grid grid = {
        {1 + (uint32_t)test_random_below(3), 1 + (uint32_t)test_random_below(3), 1},
        {x, 256 / x, 1},
        0};
    return grid;
}

/* ---- contiguous copies ---- */

static void copy_between(const char *kernel, struct watched to, struct watched from) {
    uint64_t bytes = from.bytes;
    watched_fill(&from);
    void *to_pointer = to.at, *from_pointer = from.at;
    struct weir__cuda_grid grid = random_grid();
    emulation_run(kernel, &grid, (void *[]){&to_pointer, &from_pointer, &bytes});
    EXPECT_EQ_BYTES(to.at, from.at, bytes);
    watched_clean_up(&from);
    watched_clean_up(&to);
}

static void copy_once(const char *kernel, uint64_t bytes, size_t alignment) {
    copy_between(kernel, watched_random(bytes, alignment), watched_random(bytes, alignment));
}

static void copy_all(const char *kernel) {
    static const size_t alignments[] = {1, 4, 16, 64};
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++) {
        for (size_t a = 0; a < WEIR__COUNT_OF(alignments); a++)
            copy_once(kernel, sizes[i], alignments[a]);
        size_t offset = test_random_below(64); /* not aligned, but both alike */
        copy_between(kernel, watched_new(sizes[i], offset, false),
                     watched_new(sizes[i], offset + 16, true));
    }
    copy_once(kernel, (1 << 20) + 7, 1); /* several strides of the grid, unrolled */
}

static void test_copy_moves_any_bytes(void) {
    OPEN_OR_SKIP();
    copy_all("copy");
}

static void test_push_and_pull_copy_too(void) {
    OPEN_OR_SKIP();
    copy_all("push");
    copy_all("pull");
}

static uint64_t make_batch(struct weir__cuda_batch *batch, struct watched to[],
                           struct watched from[]) {
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t bytes = 1 + test_random_below(i % 7 == 0 ? 70000 : 600);
        if (i % 5 == 0) bytes = WEIR__CUDA_BATCH_TILE * (1 + i % 3);
        to[i] = watched_random(bytes, 1);
        from[i] = watched_random(bytes, 1);
        watched_fill(&from[i]);
        batch->copies[i] = (struct weir__cuda_batch_copy){to[i].at, from[i].at, bytes, tiles};
        tiles += (bytes + WEIR__CUDA_BATCH_TILE - 1) / WEIR__CUDA_BATCH_TILE;
    }
    return tiles;
}

static void test_copy_batch_makes_all_its_copies(void) {
    OPEN_OR_SKIP();
    static const uint32_t counts[] = {1, 2, 3, 17, WEIR__CUDA_BATCH_COPIES};
    for (size_t c = 0; c < WEIR__COUNT_OF(counts); c++) {
        struct weir__cuda_batch batch = {.count = counts[c]};
        struct watched to[WEIR__CUDA_BATCH_COPIES], from[WEIR__CUDA_BATCH_COPIES];
        uint32_t tiles = (uint32_t)make_batch(&batch, to, from);
        struct weir__cuda_grid grid = emulation_grid(tiles, 256);
        emulation_run("copy_batch", &grid, (void *[]){&batch});
        for (uint32_t i = 0; i < batch.count; i++) {
            EXPECT_EQ_BYTES(to[i].at, from[i].at, from[i].bytes);
            watched_clean_up(&to[i]);
            watched_clean_up(&from[i]);
        }
        CHECK_HELPERS();
    }
}

/* ---- rows ---- */

static void expect_rows(const struct weir__cuda_rows *rows, const struct watched *to) {
    const unsigned char *from = rows->from;
    for (uint64_t r = 0; r < rows->rows; r++) {
        const unsigned char *row = to->at + r * rows->to_pitch;
        EXPECT_EQ_BYTES(row, from + r * rows->from_pitch, rows->row_bytes);
        if (r + 1 == rows->rows) break;
        for (uint64_t i = rows->row_bytes; i < rows->to_pitch; i++)
            if (row[i] != 0x5A) TEST_FAIL("byte %d between rows was written to", (int)i);
    }
}

static void copy_rows_once(uint32_t width, uint64_t rows, uint64_t columns, uint32_t kind) {
    struct weir__cuda_rows r = {.row_bytes = columns * width, .rows = rows, .width = width};
    r.to_pitch = r.row_bytes + (kind & 1) * width * (1 + test_random_below(5));
    r.from_pitch = r.row_bytes + (kind & 2) / 2 * width * (1 + test_random_below(5));
    uint64_t before = rows == 0 ? 0 : rows - 1;
    struct watched to = watched_random(rows == 0 ? 0 : before * r.to_pitch + r.row_bytes, width);
    struct watched from =
        watched_random(rows == 0 ? 0 : before * r.from_pitch + r.row_bytes, width);
    watched_fill(&from);
    r.to = to.at;
    r.from = from.at;
    struct weir__cuda_grid grid = random_plane();
    emulation_run("copy_rows", &grid, (void *[]){&r});
    expect_rows(&r, &to);
    watched_clean_up(&to);
    watched_clean_up(&from);
}

static void test_copy_rows_gathers_and_scatters(void) {
    OPEN_OR_SKIP();
    static const uint64_t rows[] = {0, 1, 2, 3, 4, 5, 8, 9, 31, 100}, columns[] = {1, 2, 7, 32, 65};
    for (uint32_t width = 1; width <= 16; width *= 2)
        for (size_t r = 0; r < WEIR__COUNT_OF(rows); r++)
            for (size_t c = 0; c < WEIR__COUNT_OF(columns); c++)
                for (uint32_t kind = 0; kind < 4; kind++)
                    copy_rows_once(width, rows[r], columns[c], kind);
}

/* ---- layout ---- */

static void expect_transposed(const unsigned char *to, const unsigned char *from, uint64_t down,
                              uint64_t across, size_t element) {
    for (uint64_t i = 0; i < down; i++)
        for (uint64_t j = 0; j < across; j++)
            if (memcmp(to + (j * down + i) * element, from + (i * across + j) * element, element)) {
                TEST_FAIL("%dx%d of %d bytes: element (%d, %d) is wrong", (int)down, (int)across,
                          (int)element, (int)i, (int)j);
                return;
            }
}

static uint64_t divide_up(uint64_t value, uint64_t by) {
    return (value + by - 1) / by;
}

/* strip 0: in tiles. */
static void transpose_once(uint64_t count, uint64_t down, uint64_t across, size_t element,
                           uint32_t strip) {
    char name[] = "transpose_0";
    name[10] = (char)('0' + element);
    uint64_t bytes = count * down * across * element, side = element < 4 ? 64 : 32;
    struct watched from = watched_random(bytes, element), to = watched_random(bytes, element);
    watched_fill(&from);
    struct weir__cuda_transpose matrix = {to.at, from.at, count, down, across, strip};
    uint64_t blocks = divide_up(down, side) * divide_up(across, side);
    if (strip > 0) blocks = divide_up(down > across ? down : across, strip);
    struct weir__cuda_grid grid = emulation_grid((uint32_t)(count * blocks), 256);
    emulation_run(name, &grid, (void *[]){&matrix});
    for (uint64_t m = 0; m < count; m++)
        expect_transposed(to.at + m * down * across * element,
                          from.at + m * down * across * element, down, across, element);
    watched_clean_up(&to);
    watched_clean_up(&from);
}

static void test_transpose_changes_the_layout_of_images(void) {
    OPEN_OR_SKIP();
    static const uint64_t shapes[][3] = {{1, 1, 1},   {1, 3, 49},  {2, 3, 100}, {1, 32, 32},
                                         {3, 33, 31}, {1, 64, 64}, {2, 65, 63}, {1, 1, 200},
                                         {1, 200, 1}, {1, 96, 130}};
    for (size_t element = 1; element <= 8; element *= 2)
        for (size_t s = 0; s < WEIR__COUNT_OF(shapes); s++)
            transpose_once(shapes[s][0], shapes[s][1], shapes[s][2], element, 0);
}

static void test_transpose_takes_narrow_images_in_strips(void) {
    OPEN_OR_SKIP();
    static const uint64_t wide[] = {1, 3, 16, 31, 256, 257, 1000};
    for (size_t element = 1; element <= 8; element *= 2) {
        for (uint64_t narrow = 1; narrow <= 16; narrow++) {
            uint64_t w = wide[test_random_below(WEIR__COUNT_OF(wide))];
            uint64_t few = narrow < w ? narrow : w;
            uint32_t most = 1024 / (uint32_t)few - 1, strip = 1 + (uint32_t)test_random_below(most);
            transpose_once(1 + narrow % 3, narrow, w, element, narrow % 2 == 0 ? most : strip);
            transpose_once(1 + narrow % 3, w, narrow, element, narrow % 2 == 0 ? strip : most);
        }
    }
}

/* ---- casts: the reference searches for the nearest number ---- */

struct format {
    uint32_t exponent_bits, digit_bits; /* digits without the leading one */
};
static const struct format bf16 = {8, 7}, f16 = {5, 10};

/* The value of a finite number's bits without sign; those of an infinity continue the row. */
static double value_of(struct format format, uint32_t bits) {
    int bias = (1 << (format.exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> format.digit_bits);
    uint32_t digits = bits & ((1u << format.digit_bits) - 1);
    if (exponent == 0) return ldexp(digits, 1 - bias - (int)format.digit_bits);
    return ldexp(digits + (1u << format.digit_bits), exponent - bias - (int)format.digit_bits);
}

/* The bits of the number nearest to `value` >= 0, of two the even ones: by bisection, since bits
 * without sign are ordered as their values are. */
static uint32_t nearest(struct format format, double value) {
    uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.digit_bits;
    if (isinf(value)) return infinity;
    uint32_t low = 0, high = infinity;
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (value_of(format, middle) <= value)
            low = middle;
        else
            high = middle;
    }
    double down = value - value_of(format, low), up = value_of(format, high) - value;
    if (down != up) return down < up ? low : high;
    return low % 2 == 0 ? low : high;
}

static bool is_nan16(struct format format, uint32_t bits) {
    uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.digit_bits;
    return (bits & 0x7fff) > infinity;
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Numbers of all sizes, and those between two of the narrow ones or a little beside. */
static uint32_t interesting(struct format format) {
    static const uint32_t special[] = {0,          0x80000000, 1,          0x7f800000, 0xff800000,
                                       0x7fc00000, 0xffc00001, 0x7f800001, 0x7f7fffff, 0x33000000,
                                       0x33000001, 0x477fefff, 0x477ff000, 0x00800000, 0x387fe000};
    uint64_t kind = test_random_below(4);
    if (kind == 0) return special[test_random_below(WEIR__COUNT_OF(special))];
    if (kind == 1) return (uint32_t)test_random_u64();
    uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.digit_bits;
    uint32_t low = (uint32_t)test_random_below(infinity);
    double middle = (value_of(format, low) + value_of(format, low + 1)) / 2;
    uint32_t bits = bits_of((float)middle) + (uint32_t)test_random_below(3) - 1;
    return test_random_below(2) == 0 ? bits : bits ^ 0x80000000;
}

static void narrow_once(const char *kernel, struct format format, uint64_t n, size_t alignment) {
    struct watched from = watched_random(4 * n, alignment < 4 ? 4 : alignment);
    struct watched to = watched_random(2 * n, alignment);
    uint32_t *numbers = (uint32_t *)(void *)from.at;
    const uint16_t *results = (const uint16_t *)(void *)to.at;
    for (uint64_t i = 0; i < n; i++) numbers[i] = interesting(format);
    void *to_pointer = to.at, *from_pointer = from.at;
    struct weir__cuda_grid grid = random_grid();
    emulation_run(kernel, &grid, (void *[]){&to_pointer, &from_pointer, &n});
    for (uint64_t i = 0; i < n; i++) {
        float value = float_of(numbers[i]);
        uint32_t sign = numbers[i] >> 31 << 15;
        bool good = isnan(value) ? is_nan16(format, results[i])
                                 : results[i] == (sign | nearest(format, fabs((double)value)));
        if (!good) TEST_FAIL("%s: %a (0x%08x) gives 0x%04x", kernel, value, numbers[i], results[i]);
    }
    watched_clean_up(&from);
    watched_clean_up(&to);
}

static void test_narrowing_casts_round_to_nearest_even(void) {
    OPEN_OR_SKIP();
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++) {
        size_t alignment = test_random_below(2) == 0 ? 2 : 16;
        narrow_once("cast_f32_bf16", bf16, sizes[i], alignment);
        narrow_once("cast_f32_f16", f16, sizes[i], alignment);
    }
}

static void widen_once(const char *kernel, struct format format, uint64_t n, size_t alignment) {
    struct watched from = watched_random(2 * n, alignment);
    struct watched to = watched_random(4 * n, alignment < 4 ? 4 : alignment);
    uint16_t *numbers = (uint16_t *)(void *)from.at;
    const uint32_t *results = (const uint32_t *)(void *)to.at;
    uint32_t infinity = ((1u << format.exponent_bits) - 1) << format.digit_bits;
    for (uint64_t i = 0; i < n; i++) numbers[i] = (uint16_t)(i * (n < 65536 ? 8191 : 1));
    void *to_pointer = to.at, *from_pointer = from.at;
    struct weir__cuda_grid grid = random_grid();
    emulation_run(kernel, &grid, (void *[]){&to_pointer, &from_pointer, &n});
    for (uint64_t i = 0; i < n; i++) {
        uint32_t magnitude = numbers[i] & 0x7fff, sign = (uint32_t)numbers[i] >> 15 << 31;
        double value = magnitude == infinity ? INFINITY : value_of(format, magnitude);
        bool good = is_nan16(format, numbers[i]) ? isnan(float_of(results[i]))
                                                 : results[i] == (sign | bits_of((float)value));
        if (!good) TEST_FAIL("%s: 0x%04x gives 0x%08x", kernel, numbers[i], results[i]);
    }
    watched_clean_up(&from);
    watched_clean_up(&to);
}

static void test_widening_casts_are_exact(void) {
    OPEN_OR_SKIP();
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++) { /* the largest has all 65536 of them */
        size_t alignment = test_random_below(2) == 0 ? 2 : 16;
        widen_once("cast_bf16_f32", bf16, sizes[i], alignment);
        widen_once("cast_f16_f32", f16, sizes[i], alignment);
    }
}

/* ---- fills ---- */

static void fill_once(uint64_t bytes, size_t alignment) {
    struct watched to = watched_random(bytes, alignment);
    struct weir__cuda_fill fill = {.to = to.at, .bytes = bytes};
    unsigned char pattern[16];
    for (size_t i = 0; i < 16; i++) pattern[i] = (unsigned char)test_random_u64();
    memcpy(fill.pattern, pattern, 16);
    struct weir__cuda_grid grid = random_grid();
    emulation_run("fill", &grid, (void *[]){&fill});
    for (uint64_t i = 0; i < bytes; i++)
        if (to.at[i] != pattern[i % 16]) {
            TEST_FAIL("byte %d of %d is wrong", (int)i, (int)bytes);
            break;
        }
    watched_clean_up(&to);
}

static void test_fill_repeats_its_pattern(void) {
    OPEN_OR_SKIP();
    for (size_t i = 0; i < WEIR__COUNT_OF(sizes); i++) {
        fill_once(sizes[i], 1);
        fill_once(sizes[i], 16);
    }
}

static void random_once(uint64_t rows, uint64_t elements) {
    struct watched to = watched_random(rows * elements * 4, 4);
    struct weir__cuda_random random = {.to = (uint32_t *)(void *)to.at,
                                       .rows = rows,
                                       .elements = elements,
                                       .seed = test_random_u64(),
                                       .mini_batch = test_random_u64(),
                                       .op = (uint32_t)test_random_u64(),
                                       .row_first = (uint32_t)test_random_below(1000)};
    struct weir__cuda_grid grid = random_plane();
    emulation_run("random_words", &grid, (void *[]){&random});
    for (uint64_t i = 0; i < rows * elements; i++) {
        uint32_t words[4], row = (uint32_t)(i / elements), element = (uint32_t)(i % elements);
        weir__philox_words(random.seed, random.mini_batch, random.op, random.row_first + row,
                           element / 4, words);
        if (random.to[i] != words[element % 4]) {
            TEST_FAIL("row %u, element %u is wrong", row, element);
            break;
        }
    }
    watched_clean_up(&to);
}

static void test_random_words_are_the_host_s(void) {
    OPEN_OR_SKIP();
    static const uint64_t elements[] = {1, 2, 3, 4, 5, 8, 31, 64, 1001};
    for (uint64_t rows = 0; rows < 9; rows += 2)
        for (size_t e = 0; e < WEIR__COUNT_OF(elements); e++) random_once(rows, elements[e]);
}

/* ---- decide ---- */

enum { SQUARES_MAX = 300 };

struct sum {
    double squares[SQUARES_MAX];
    uint64_t count;
    double norm; /* as weir__judge_sum sums */
};

static void make_sum(struct sum *sum) {
    double total = 0.0;
    sum->count = test_random_below(SQUARES_MAX + 1);
    for (uint64_t i = 0; i < sum->count; i++) {
        sum->squares[i] = ldexp(test_random_unit(), (int)test_random_below(60) - 50);
        total += sum->squares[i];
    }
    sum->norm = sqrt(total);
}

static struct weir_verdict decide(const struct sum *sum, double clip_norm) {
    struct weir_verdict verdict;
    struct watched to = watched_random(sizeof verdict, _Alignof(struct weir_verdict));
    struct watched squares = watched_random(sum->count * sizeof(double), sizeof(double));
    memcpy(squares.at, sum->squares, squares.bytes);
    void *to_pointer = to.at, *squares_pointer = squares.at;
    uint64_t count = sum->count;
    struct weir__cuda_grid grid = emulation_grid(1, 32);
    emulation_run("decide", &grid, (void *[]){&to_pointer, &squares_pointer, &count, &clip_norm});
    memcpy(&verdict, to.at, sizeof verdict);
    watched_clean_up(&squares);
    watched_clean_up(&to);
    return verdict;
}

static void expect_verdict(const struct sum *sum, double clip_norm) {
    double scale = clip_norm / (sum->norm + 1e-6);
    double expected = clip_norm > 0.0 && scale < 1.0 ? scale : 1.0;
    struct weir_verdict verdict = decide(sum, clip_norm), host;
    const struct weir__judgement judgement = {sum->squares, sum->count, clip_norm, &host};
    EXPECT_STATUS(weir__cpu_judge(NULL, &judgement), WEIR_OK);
    EXPECT_EQ_BYTES(&verdict, &host, offsetof(struct weir_verdict, reserved));
    EXPECT_EQ_BYTES(&verdict.norm, &sum->norm, sizeof sum->norm);
    EXPECT_EQ_BYTES(&verdict.gradient_scale, &expected, sizeof expected);
    EXPECT_EQ_INT(verdict.applies, 1);
}

static void test_decide_clips_as_the_host_does(void) {
    OPEN_OR_SKIP();
    for (uint32_t i = 0; i < 50; i++) {
        struct sum sum;
        make_sum(&sum);
        expect_verdict(&sum, 0.0);
        expect_verdict(&sum, sum.norm * test_random_unit());
        expect_verdict(&sum, sum.norm * 1.5);
        expect_verdict(&sum, sum.norm * 2 + 1);
        CHECK_HELPERS();
    }
}

static void test_decide_leaves_out_what_is_not_finite(void) {
    OPEN_OR_SKIP();
    static const double bad[] = {NAN, INFINITY, -1.0};
    for (size_t i = 0; i < WEIR__COUNT_OF(bad); i++) {
        struct sum sum = {.squares = {1.0, 2.0, bad[i]}, .count = 3};
        if (bad[i] == -1.0) sum.squares[2] = -100.0; /* a root of less than nothing */
        struct weir_verdict verdict = decide(&sum, 0.5);
        CHECK_EQ_INT(verdict.applies, 0);
        CHECK_NEAR(verdict.gradient_scale, 1.0, 0.0);
        CHECK(!isfinite(verdict.norm));
    }
}

WEIR_TEST_SUITE(kernels_cuda, TEST(copy_moves_any_bytes), TEST(push_and_pull_copy_too),
                TEST(copy_batch_makes_all_its_copies), TEST(copy_rows_gathers_and_scatters),
                TEST(transpose_changes_the_layout_of_images),
                TEST(transpose_takes_narrow_images_in_strips),
                TEST(narrowing_casts_round_to_nearest_even), TEST(widening_casts_are_exact),
                TEST(fill_repeats_its_pattern), TEST(random_words_are_the_host_s),
                TEST(decide_clips_as_the_host_does), TEST(decide_leaves_out_what_is_not_finite))
