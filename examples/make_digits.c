/* SPDX-License-Identifier: MIT */
/*
 * make_digits FOLDER [TRAIN] [TEST] [SEED]
 *
 * Writes handwritten-looking digits as MNIST's four files have them (IDX: 28x28 bytes, a label per
 * image), so that a small image model has something to learn where no data set is at hand:
 *
 *     zig-out/examples/make_digits digits 12000 2000
 *     weir train --model net.json --data digits
 *
 * A digit is a few strokes through points; every image draws them anew with its own slant, size,
 * place, thickness, wobble of each point, brightness, stray marks and noise. All of that moves what
 * a linear classifier looks at, and little of it what a small convolutional net does.
 *
 * Image i of a part depends on (SEED, part, i) alone: more images begin with the same ones.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    SIZE = 28,
    DIGITS = 10,
    VARIANTS = 2,
    STROKES = 3,
    POINTS = 9,
    PIECES = 8,
    STRAY_MARKS_MAX = 3
};

/* ---- random numbers: splitmix64, a state per image ---- */

struct random {
    uint64_t state;
};

static uint64_t random_word(struct random *random) {
    uint64_t z = random->state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static float uniform(struct random *random, float from, float to) {
    return from + (to - from) * (float)(random_word(random) >> 40) * 0x1p-24f;
}

/* Nearly normal, mean 0 and variance 1: four uniform numbers. */
static float bell(struct random *random) {
    float sum = 0;
    for (int i = 0; i < 4; i++) sum += uniform(random, -1, 1);
    return sum * 0.8660254f;
}

static struct random random_of(uint64_t seed, uint64_t part, uint64_t image) {
    struct random random = {seed};
    random.state = random_word(&random) ^ part;
    random.state = random_word(&random) ^ image;
    return random;
}

/* ---- the glyphs: strokes through points, x to the right, y down, both 0 to 1 ---- */

struct point {
    float x, y;
};

/* A point that stands twice is a corner: the curve stops there and sets out anew. */
struct stroke {
    int count;
    struct point points[POINTS];
};

struct glyph {
    int count;
    struct stroke strokes[STROKES];
};

static const struct glyph glyphs[DIGITS][VARIANTS] = {
    {{1,
      {{9,
        {{.5f, 0},
         {.15f, .2f},
         {.1f, .6f},
         {.3f, .95f},
         {.6f, 1},
         {.88f, .7f},
         {.9f, .3f},
         {.7f, .05f},
         {.5f, 0}}}}},
     {1,
      {{8,
        {{.62f, .02f},
         {.3f, .08f},
         {.12f, .5f},
         {.3f, .95f},
         {.7f, .95f},
         {.88f, .5f},
         {.7f, .1f},
         {.4f, .06f}}}}}},
    {{1, {{2, {{.5f, 0}, {.5f, 1}}}}},
     {2, {{4, {{.25f, .25f}, {.55f, 0}, {.55f, 0}, {.55f, 1}}}, {2, {{.25f, 1}, {.85f, 1}}}}}},
    {{1,
      {{8,
        {{.12f, .25f},
         {.3f, .02f},
         {.75f, .05f},
         {.82f, .35f},
         {.45f, .7f},
         {.1f, 1},
         {.1f, 1},
         {.9f, 1}}}}},
     {1,
      {{8,
        {{.15f, .18f},
         {.5f, 0},
         {.85f, .2f},
         {.65f, .6f},
         {.25f, .95f},
         {.15f, .85f},
         {.4f, .82f},
         {.92f, 1}}}}}},
    {{1,
      {{9,
        {{.12f, .12f},
         {.5f, 0},
         {.82f, .2f},
         {.7f, .42f},
         {.42f, .48f},
         {.8f, .58f},
         {.85f, .85f},
         {.5f, 1},
         {.1f, .88f}}}}},
     {1,
      {{8,
        {{.1f, .02f},
         {.85f, .02f},
         {.85f, .02f},
         {.45f, .4f},
         {.85f, .6f},
         {.8f, .9f},
         {.45f, 1},
         {.1f, .88f}}}}}},
    {{3,
      {{3, {{.62f, 0}, {.08f, .65f}, {.08f, .65f}}},
       {2, {{.08f, .66f}, {.95f, .66f}}},
       {2, {{.68f, .3f}, {.66f, 1}}}}},
     {3,
      {{3, {{.2f, .02f}, {.12f, .5f}, {.12f, .5f}}},
       {3, {{.12f, .5f}, {.5f, .56f}, {.9f, .48f}}},
       {2, {{.78f, .05f}, {.74f, 1}}}}}},
    {{2,
      {{7,
        {{.2f, .02f},
         {.15f, .42f},
         {.15f, .42f},
         {.7f, .42f},
         {.88f, .72f},
         {.6f, 1},
         {.12f, .92f}}},
       {2, {{.2f, .02f}, {.85f, .02f}}}}},
     {1,
      {{8,
        {{.88f, .04f},
         {.25f, .06f},
         {.25f, .06f},
         {.2f, .45f},
         {.65f, .42f},
         {.85f, .7f},
         {.6f, .98f},
         {.15f, .94f}}}}}},
    {{1,
      {{8,
        {{.72f, 0},
         {.3f, .3f},
         {.12f, .75f},
         {.45f, 1},
         {.82f, .85f},
         {.75f, .55f},
         {.4f, .52f},
         {.16f, .75f}}}}},
     {1,
      {{7,
        {{.45f, 0},
         {.15f, .45f},
         {.2f, .95f},
         {.7f, .98f},
         {.85f, .7f},
         {.5f, .55f},
         {.18f, .72f}}}}}},
    {{1, {{4, {{.08f, .02f}, {.9f, .02f}, {.9f, .02f}, {.38f, 1}}}}},
     {2,
      {{5, {{.1f, .1f}, {.5f, .04f}, {.9f, .04f}, {.62f, .4f}, {.45f, 1}}},
       {2, {{.3f, .52f}, {.82f, .48f}}}}}},
    {{1,
      {{9,
        {{.5f, .48f},
         {.15f, .25f},
         {.5f, 0},
         {.85f, .25f},
         {.5f, .48f},
         {.1f, .76f},
         {.5f, 1},
         {.9f, .76f},
         {.5f, .48f}}}}},
     {2,
      {{6, {{.5f, .5f}, {.2f, .22f}, {.5f, .02f}, {.8f, .22f}, {.5f, .5f}, {.5f, .5f}}},
       {6, {{.5f, .5f}, {.1f, .75f}, {.5f, .98f}, {.9f, .75f}, {.5f, .5f}, {.5f, .5f}}}}}},
    {{2,
      {{6, {{.85f, .28f}, {.5f, 0}, {.15f, .25f}, {.4f, .5f}, {.75f, .42f}, {.85f, .2f}}},
       {3, {{.86f, .2f}, {.8f, .6f}, {.55f, 1}}}}},
     {2,
      {{6, {{.8f, .25f}, {.45f, .04f}, {.18f, .28f}, {.5f, .52f}, {.8f, .25f}, {.8f, .25f}}},
       {2, {{.8f, .2f}, {.78f, 1}}}}}},
};
_Static_assert(sizeof glyphs / sizeof glyphs[0] == DIGITS, "a glyph for every digit");

/* ---- drawing ---- */

/* How one image turns a glyph's points into pixels: pixel = matrix * (point - 1/2) + centre. */
struct pen {
    float matrix[2][2];
    struct point centre;
    float wobble; /* of each point, in the glyph's units */
    float radius; /* half the thickness, in pixels */
    float ink;    /* brightness, 0 to 1 */
};

static struct pen random_pen(struct random *random) {
    float angle = 0.2f * bell(random), shear = 0.3f * bell(random);
    float width = uniform(random, 8, 17), height = uniform(random, 13, 21);
    float c = cosf(angle), s = sinf(angle);
    struct pen pen = {
        .matrix = {{c * width, (c * shear - s) * height}, {s * width, (s * shear + c) * height}},
        .wobble = uniform(random, 0.01f, 0.06f),
        .radius = uniform(random, 0.6f, 1.7f),
        .ink = uniform(random, 0.55f, 1)};
    pen.centre.x = (SIZE - 1) * 0.5f + uniform(random, -3.5f, 3.5f);
    pen.centre.y = (SIZE - 1) * 0.5f + uniform(random, -3.5f, 3.5f);
    return pen;
}

static struct point place(const struct pen *pen, struct point p) {
    float x = p.x - 0.5f, y = p.y - 0.5f;
    return (struct point){pen->matrix[0][0] * x + pen->matrix[0][1] * y + pen->centre.x,
                          pen->matrix[1][0] * x + pen->matrix[1][1] * y + pen->centre.y};
}

static float distance_to_line(struct point p, struct point a, struct point b) {
    float dx = b.x - a.x, dy = b.y - a.y, square = dx * dx + dy * dy;
    float t = square > 0 ? ((p.x - a.x) * dx + (p.y - a.y) * dy) / square : 0;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    return hypotf(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

/* The pixels from `low` less `reach` to `high` plus `reach`, inside the image: first and after. */
static void reach_of(float low, float high, float reach, int bounds[2]) {
    float first = fmaxf(0, floorf(fminf(low, high) - reach));
    float last = fminf(SIZE - 1, ceilf(fmaxf(low, high) + reach));
    bounds[0] = (int)fminf(first, SIZE);
    bounds[1] = (int)fmaxf(last, -1) + 1;
}

/* Where the line passes, its ink; half a pixel beyond its edge it has faded out. */
static void draw_line(float image[SIZE][SIZE], const struct pen *pen, struct point a,
                      struct point b) {
    int rows[2], columns[2];
    reach_of(a.y, b.y, pen->radius + 0.5f, rows);
    reach_of(a.x, b.x, pen->radius + 0.5f, columns);
    for (int y = rows[0]; y < rows[1]; y++) {
        for (int x = columns[0]; x < columns[1]; x++) {
            float away = distance_to_line((struct point){(float)x, (float)y}, a, b);
            float ink = pen->ink * fminf(1, fmaxf(0, pen->radius + 0.5f - away));
            if (ink > image[y][x]) image[y][x] = ink;
        }
    }
}

/* Catmull-Rom: through b at t = 0 and c at t = 1, in the direction of their neighbours. */
static struct point on_curve(const struct point p[4], float t) {
    float a = ((-t + 2) * t - 1) * t * 0.5f, b = ((3 * t - 5) * t * t + 2) * 0.5f;
    float c = ((-3 * t + 4) * t + 1) * t * 0.5f, d = (t - 1) * t * t * 0.5f;
    return (struct point){a * p[0].x + b * p[1].x + c * p[2].x + d * p[3].x,
                          a * p[0].y + b * p[1].y + c * p[2].y + d * p[3].y};
}

static void draw_stroke(float image[SIZE][SIZE], const struct pen *pen, const struct stroke *stroke,
                        struct random *random) {
    struct point points[POINTS];
    int last = stroke->count - 1;
    for (int i = 0; i <= last; i++) {
        const struct point *p = &stroke->points[i];
        bool corner = i > 0 && p->x == p[-1].x && p->y == p[-1].y;
        points[i] = corner ? points[i - 1]
                           : (struct point){p->x + pen->wobble * bell(random),
                                            p->y + pen->wobble * bell(random)};
    }
    for (int i = 0; i < last; i++) {
        struct point four[4] = {points[i > 0 ? i - 1 : 0], points[i], points[i + 1],
                                points[i + 2 <= last ? i + 2 : last]};
        struct point from = place(pen, points[i]);
        for (int piece = 1; piece <= PIECES; piece++) {
            struct point to = place(pen, on_curve(four, (float)piece / PIECES));
            draw_line(image, pen, from, to);
            from = to;
        }
    }
}

/* Short faint lines anywhere, as dirt or another digit's end would leave. */
static void draw_stray_marks(float image[SIZE][SIZE], struct random *random) {
    int count = (int)(random_word(random) % (STRAY_MARKS_MAX + 1));
    for (int i = 0; i < count; i++) {
        struct pen pen = {.radius = uniform(random, 0.3f, 1), .ink = uniform(random, 0.3f, 0.8f)};
        struct point a = {uniform(random, 0, SIZE), uniform(random, 0, SIZE)};
        struct point b = {a.x + 3 * bell(random), a.y + 3 * bell(random)};
        draw_line(image, &pen, a, b);
    }
}

static void draw_digit(struct random *random, int digit, uint8_t pixels[SIZE * SIZE]) {
    float image[SIZE][SIZE] = {{0}};
    const struct glyph *glyph = &glyphs[digit][random_word(random) % VARIANTS];
    struct pen pen = random_pen(random);
    for (int i = 0; i < glyph->count; i++) draw_stroke(image, &pen, &glyph->strokes[i], random);
    draw_stray_marks(image, random);
    float noise = uniform(random, 0.02f, 0.12f);
    for (int i = 0; i < SIZE * SIZE; i++) {
        float value = image[i / SIZE][i % SIZE] + noise * bell(random);
        pixels[i] = (uint8_t)(255 * fminf(1, fmaxf(0, value)) + 0.5f);
    }
}

/* ---- files ---- */

static void put_big_endian(FILE *file, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) fputc((int)(value >> shift & 0xff), file);
}

static FILE *create(const char *folder, const char *part, const char *what) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s-%s", folder, part, what);
    FILE *file = fopen(path, "wb");
    if (file == NULL) fprintf(stderr, "make_digits: %s: %s\n", path, strerror(errno));
    return file;
}

static bool close_file(FILE *file) {
    bool good = file != NULL && !ferror(file);
    return file != NULL && fclose(file) == 0 && good;
}

static bool write_part(const char *folder, const char *part, uint64_t number, uint32_t count,
                       uint64_t seed) {
    FILE *images = create(folder, part, "images-idx3-ubyte");
    FILE *labels = create(folder, part, "labels-idx1-ubyte");
    if (images != NULL && labels != NULL) {
        put_big_endian(images, 0x803);
        put_big_endian(images, count);
        put_big_endian(images, SIZE);
        put_big_endian(images, SIZE);
        put_big_endian(labels, 0x801);
        put_big_endian(labels, count);
    }
    for (uint32_t i = 0; images != NULL && labels != NULL && i < count; i++) {
        uint8_t pixels[SIZE * SIZE];
        struct random random = random_of(seed, number, i);
        int digit = (int)(random_word(&random) % DIGITS);
        draw_digit(&random, digit, pixels);
        fwrite(pixels, 1, sizeof pixels, images);
        fputc(digit, labels);
    }
    bool good = close_file(images);
    return close_file(labels) && good;
}

static bool number_of(const char *text, uint64_t most, uint64_t *number) {
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *number <= most;
}

int main(int argc, char **argv) {
    uint64_t train = 12000, test = 2000, seed = 1;
    bool good = argc >= 2 && argc <= 5;
    if (good && argc > 2) good = number_of(argv[2], 10000000, &train) && train > 0;
    if (good && argc > 3) good = number_of(argv[3], 10000000, &test) && test > 0;
    if (good && argc > 4) good = number_of(argv[4], UINT64_MAX, &seed);
    if (!good) {
        fprintf(stderr, "usage: make_digits FOLDER [TRAIN=12000] [TEST=2000] [SEED=1]\n");
        return 2;
    }
    if (mkdir(argv[1], 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "make_digits: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    if (!write_part(argv[1], "train", 0, (uint32_t)train, seed) ||
        !write_part(argv[1], "t10k", 1, (uint32_t)test, seed)) {
        fprintf(stderr, "make_digits: %s could not be written\n", argv[1]);
        return 1;
    }
    return 0;
}
