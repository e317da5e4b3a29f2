/* SPDX-License-Identifier: MIT */
/*
 * make_shapes [--stripes] FOLDER [TRAIN] [TEST] [SIZE] [SEED]
 *
 * Writes images for a segmentation model as .npy files: train_images.npy and test_images.npy, u8
 * (N, 3, SIZE, SIZE), and train_masks.npy and test_masks.npy, u8 (N, 1, SIZE, SIZE):
 *
 *     zig-out/examples/make_shapes shapes 800 100 96
 *     weir train --model unet --data shapes
 *
 * On a textured ground lie discs, rectangles and triangles of any colour, one over the other. The
 * mask is 255 where a disc can be seen. Colours say nothing about the form, so a model has to look
 * at outlines, which are larger than a few pixels: it needs its deeper levels and its skips.
 *
 * With --stripes images are for a classifier: striped in any two colours, and their class, u8 (N)
 * in train_labels.npy and test_labels.npy, is which of four ways the stripes run, within 15
 * degrees.
 *
 *     zig-out/examples/make_shapes --stripes stripes 2000 400 32
 *     weir train --model resnet101 --classes 4 --data stripes
 *
 * Image i of a part depends on (SEED, part, i) and SIZE alone: more images begin with the same
 * ones.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CHANNELS = 3, SIZE_MAX_PIXELS = 1024, GRID = 9, SHAPES_MIN = 2, SHAPES_MAX = 4 };
enum { DIRECTIONS = 4 };

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

static struct random random_of(uint64_t seed, uint64_t part, uint64_t image) {
    struct random random = {seed};
    random.state = random_word(&random) ^ part;
    random.state = random_word(&random) ^ image;
    return random;
}

/* ---- one image ---- */

struct picture {
    bool stripes; /* for classes, not for masks */
    int size;
    uint8_t label;
    float *pixels;  /* [CHANNELS][size][size], 0 to 1 */
    uint8_t *mask;  /* [size][size] */
    uint8_t *bytes; /* [CHANNELS][size][size], what is written */
};

/* Bright and dark patches: a coarse grid of random numbers, blended in between. */
static void draw_ground(struct picture *picture, struct random *random) {
    int size = picture->size;
    for (int c = 0; c < CHANNELS; c++) {
        float grid[GRID][GRID], contrast = uniform(random, 0.1f, 0.4f);
        float base = uniform(random, 0.5f * contrast, 1 - 0.5f * contrast);
        for (int i = 0; i < GRID * GRID; i++)
            grid[i / GRID][i % GRID] = base + contrast * uniform(random, -0.5f, 0.5f);
        for (int i = 0; i < size * size; i++) {
            float y = (float)(i / size) * (GRID - 1) / (float)size;
            float x = (float)(i % size) * (GRID - 1) / (float)size;
            int row = (int)y, column = (int)x;
            float v = y - (float)row, u = x - (float)column;
            float above = grid[row][column] * (1 - u) + grid[row][column + 1] * u;
            float below = grid[row + 1][column] * (1 - u) + grid[row + 1][column + 1] * u;
            picture->pixels[c * size * size + i] = above * (1 - v) + below * v;
        }
    }
}

enum form { DISC, RECTANGLE, TRIANGLE };

/* A form around its centre, turned; the same area for every form of one radius, more or less. */
struct shape {
    enum form form;
    float x, y, radius, aspect, cosine, sine;
    float colour[CHANNELS];
    float stripes; /* of the shape's own texture: so many radians per pixel */
};

/* Every other shape is a disc, so that they take about a sixth of the image. */
static enum form random_form(struct random *random) {
    uint64_t word = random_word(random) >> 60;
    return word < 8 ? DISC : word < 12 ? RECTANGLE : TRIANGLE;
}

static struct shape random_shape(struct random *random, int size) {
    float angle = uniform(random, 0, 6.2831853f);
    struct shape shape = {.form = random_form(random),
                          .x = uniform(random, 0.1f, 0.9f) * (float)size,
                          .y = uniform(random, 0.1f, 0.9f) * (float)size,
                          .radius = (float)size * uniform(random, 0.1f, 0.22f),
                          .aspect = uniform(random, 0.6f, 1),
                          .cosine = cosf(angle),
                          .sine = sinf(angle),
                          .stripes = uniform(random, 0, 1.5f)};
    for (int c = 0; c < CHANNELS; c++) shape.colour[c] = uniform(random, 0, 1);
    return shape;
}

static bool is_inside(const struct shape *shape, float x, float y) {
    float dx = x - shape->x, dy = y - shape->y, r = shape->radius;
    float u = dx * shape->cosine + dy * shape->sine, v = dy * shape->cosine - dx * shape->sine;
    switch (shape->form) {
    case DISC: return dx * dx + dy * dy <= r * r;
    case RECTANGLE: return fabsf(u) <= r && fabsf(v) <= r * shape->aspect;
    default: /* three sides at the same distance from the centre */
        return v <= 0.6f * r && -0.5f * v + 0.8660254f * u <= 0.6f * r &&
               -0.5f * v - 0.8660254f * u <= 0.6f * r;
    }
}

static void draw_shape(struct picture *picture, const struct shape *shape) {
    int size = picture->size;
    for (int i = 0; i < size * size; i++) {
        float x = (float)(i % size), y = (float)(i / size);
        if (!is_inside(shape, x, y)) continue;
        float shade = 0.1f * sinf(shape->stripes * (x * shape->cosine + y * shape->sine));
        for (int c = 0; c < CHANNELS; c++)
            picture->pixels[c * size * size + i] = shape->colour[c] + shade;
        picture->mask[i] = shape->form == DISC ? 255 : 0;
    }
}

/* Over the whole ground, 4 to 9 pixels from one to the next. */
static void draw_stripes(struct picture *picture, struct random *random) {
    int size = picture->size;
    picture->label = (uint8_t)(random_word(random) % DIRECTIONS);
    float angle = ((float)picture->label + uniform(random, -0.33f, 0.33f)) * 0.78539816f;
    float radians = 6.2831853f / uniform(random, 4, 9), phase = uniform(random, 0, 6.2831853f);
    float along = radians * cosf(angle), down = radians * sinf(angle);
    for (int c = 0; c < CHANNELS; c++) {
        float height = uniform(random, 0.1f, 0.35f);
        if (random_word(random) % 2 == 0) height = -height;
        for (int i = 0; i < size * size; i++)
            picture->pixels[c * size * size + i] +=
                height * sinf(along * (float)(i % size) + down * (float)(i / size) + phase);
    }
}

static void draw_shapes(struct picture *picture, struct random *random, int count) {
    for (int i = 0; i < count; i++) {
        struct shape shape = random_shape(random, picture->size);
        draw_shape(picture, &shape);
    }
}

static void draw(struct picture *picture, struct random *random) {
    int size = picture->size;
    int count = SHAPES_MIN + (int)(random_word(random) % (SHAPES_MAX - SHAPES_MIN + 1));
    memset(picture->mask, 0, (size_t)(size * size));
    draw_ground(picture, random);
    if (picture->stripes)
        draw_stripes(picture, random);
    else
        draw_shapes(picture, random, count);
    float noise = uniform(random, 0.02f, 0.1f);
    for (int i = 0; i < CHANNELS * size * size; i++) {
        float value = picture->pixels[i] + noise * uniform(random, -1.7f, 1.7f);
        picture->bytes[i] = (uint8_t)(255 * fminf(1, fmaxf(0, value)) + 0.5f);
    }
}

/* ---- files ---- */

/* A .npy file of version 1: its header, a Python dictionary, fills up to a multiple of 64 bytes.
 * `channels` 0: of one number a row. */
static FILE *create(const char *folder, const char *name, uint32_t count, int channels, int size) {
    char path[4096], text[118];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        fprintf(stderr, "make_shapes: %s: %s\n", path, strerror(errno));
        return NULL;
    }
    char row[48] = "";
    if (channels > 0) snprintf(row, sizeof row, " %d, %d, %d", channels, size, size);
    int used = snprintf(text, sizeof text,
                        "{'descr': '|u1', 'fortran_order': False, 'shape': (%u,%s), }", count, row);
    memset(text + used, ' ', sizeof text - (size_t)used);
    text[sizeof text - 1] = '\n';
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fwrite(text, 1, sizeof text, file);
    return file;
}

static bool close_file(FILE *file) {
    bool good = file != NULL && !ferror(file);
    return file != NULL && fclose(file) == 0 && good;
}

static bool write_part(struct picture *picture, const char *folder, const char *part,
                       uint64_t number, uint32_t count, uint64_t seed) {
    char names[2][64];
    snprintf(names[0], sizeof names[0], "%s_images.npy", part);
    snprintf(names[1], sizeof names[1], "%s_%s.npy", part, picture->stripes ? "labels" : "masks");
    FILE *images = create(folder, names[0], count, CHANNELS, picture->size);
    FILE *targets = create(folder, names[1], count, !picture->stripes, picture->size);
    size_t pixels = (size_t)(picture->size * picture->size);
    for (uint32_t i = 0; images != NULL && targets != NULL && i < count; i++) {
        struct random random = random_of(seed, number, i);
        draw(picture, &random);
        fwrite(picture->bytes, 1, CHANNELS * pixels, images);
        if (picture->stripes)
            fwrite(&picture->label, 1, 1, targets);
        else
            fwrite(picture->mask, 1, pixels, targets);
    }
    bool good = close_file(images);
    return close_file(targets) && good;
}

static bool number_of(const char *text, uint64_t least, uint64_t most, uint64_t *number) {
    char *end;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && *number >= least &&
           *number <= most;
}

static int write_all(const char *folder, bool stripes, uint32_t train, uint32_t test, int size,
                     uint64_t seed) {
    size_t pixels = (size_t)(size * size);
    struct picture picture = {.stripes = stripes,
                              .size = size,
                              .pixels = calloc(CHANNELS * pixels, sizeof(float)),
                              .mask = calloc(pixels, 1),
                              .bytes = calloc(CHANNELS * pixels, 1)};
    bool good = picture.pixels != NULL && picture.mask != NULL && picture.bytes != NULL;
    good = good && write_part(&picture, folder, "train", 0, train, seed) &&
           write_part(&picture, folder, "test", 1, test, seed);
    free(picture.pixels);
    free(picture.mask);
    free(picture.bytes);
    if (!good) fprintf(stderr, "make_shapes: %s could not be written\n", folder);
    return good ? 0 : 1;
}

int main(int argc, char **argv) {
    uint64_t train = 800, test = 100, size = 96, seed = 1;
    bool stripes = argc > 1 && strcmp(argv[1], "--stripes") == 0;
    argc -= stripes;
    argv += stripes;
    bool good = argc >= 2 && argc <= 6;
    if (good && argc > 2) good = number_of(argv[2], 1, 10000000, &train);
    if (good && argc > 3) good = number_of(argv[3], 1, 10000000, &test);
    if (good && argc > 4) good = number_of(argv[4], 8, SIZE_MAX_PIXELS, &size);
    if (good && argc > 5) good = number_of(argv[5], 0, UINT64_MAX, &seed);
    if (!good) {
        fprintf(stderr,
                "usage: make_shapes [--stripes] FOLDER [TRAIN=800] [TEST=100] "
                "[SIZE=96 (8 to %d)] [SEED=1]\n",
                SIZE_MAX_PIXELS);
        return 2;
    }
    if (mkdir(argv[1], 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "make_shapes: %s: %s\n", argv[1], strerror(errno));
        return 1;
    }
    return write_all(argv[1], stripes, (uint32_t)train, (uint32_t)test, (int)size, seed);
}
