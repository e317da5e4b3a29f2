/* SPDX-License-Identifier: MIT */
/**
 * Convolutions of 3 x 3 taps by minimal filtering (Winograd; Lavin and Gray, 2015): 2 x 2 pixels of
 * the result, a *tile*, take 16 multiply-adds of each pair of channels where taps take 36. The 4 x
 * 4 pixels that a tile sees, and the kernel, are brought into a domain of 16 *positions*, in which
 * a convolution is a product of channels at each position. Signs and halves are all that the
 * transforms multiply by, so that errors stay of a direct sum's size; larger tiles lose digits.
 *
 * The gradient of the input is the same with kernels turned by half. That of the weights has the
 * same domain: 3 x 3 results of 2 x 2 taps, dy's pixels.
 */
#ifndef WEIR_VECTOR_WINOGRAD_H
#define WEIR_VECTOR_WINOGRAD_H

#include "net/cpu/vector_conv.h"

enum {
    WEIR__WINOGRAD_POSITIONS = 16,
    WEIR__WINOGRAD_SLICE = 128 /* channels of the depth that are multiplied at a time */
};

/** Floats from a tile to the next one, and from a position to the next one, of an area of so many
 * tiles: the positions' places must not fall on few sets of the first cache. */
VECTOR_INLINE int64_t v_winograd_row(int64_t numbers) {
    return v_up(numbers, LANES) + LANES;
}

VECTOR_INLINE int64_t v_winograd_distance(int64_t tiles, int64_t row) {
    enum { UNIT = 256, APART = 80 };
    return v_up(tiles * row - APART, UNIT) + APART;
}

/** Tiles of all images, image by image and row by row. */
struct weir__winograd_tiles {
    int64_t down, across; /**< of an image */
};

/** Of a walk. */
struct weir__winograd_tiles VECTOR(winograd_tiles)(const struct weir__conv_walk *walk);

/** A tile's image, and the first of its pixels in it. */
struct weir__winograd_place {
    int64_t image, y, x;
};

VECTOR_INLINE struct weir__winograd_place v_winograd_place(struct weir__winograd_tiles all,
                                                           int64_t tile) {
    int64_t place = tile % (all.down * all.across);
    return (struct weir__winograd_place){tile / (all.down * all.across), 2 * (place / all.across),
                                         2 * (place % all.across)};
}

/** Images that tiles see or make. */
struct weir__winograd_image {
    const float *numbers;
    struct weir__plane plane;
    int64_t channels; /**< of a pixel */
};

/** Where an area's numbers are: of tile t at position p from p * distance + t * row on. */
struct weir__winograd_area {
    float *numbers;
    int64_t row, distance;
};

/** Brings what tiles see into the domain, `depth` channels from `channel` on, zeros beyond the
 * image. */
void VECTOR(winograd_source)(const struct weir__winograd_image *image,
                             const struct weir__conv_walk *walk, struct weir__conv_range tiles,
                             int64_t channel, int64_t depth, const struct weir__winograd_area *to);

/** Whether the op is made so: by kernel, stride and channels, and by the sides of images, never by
 * their number. */
bool VECTOR(winograd_takes)(const struct weir__op_shape *shape);

/** Whether its kernels are packed once for all calls until they change: not where they are many and
 * the largest micro-batch has so few tiles that each is multiplied for no longer than it takes to
 * pack it. Then a call packs them as it goes: the same bits. */
bool VECTOR(winograd_keeps_packed)(const struct weir__op_shape *shape);

/** Kernels in PyTorch's order: the one of output o and input i begins at weight + (o * in + i) * 9.
 */
struct weir__winograd_kernels {
    const float *weight;
    int64_t in, out;
    bool back;   /**< columns are inputs, the depth is of outputs, and kernels are turned by half */
    bool rounds; /**< to what bf16 holds, first */
    bool past;   /**< packed past the caches, where they lie on whole lines */
};

/** Brings a tile of columns, from `column` on, into the domain: channel d of the depth's range at
 * position p goes to to[p * distance + (d - depth.first) * WEIR__TILE_COLUMNS] and after. */
void VECTOR(winograd_pack)(const struct weir__winograd_kernels *kernels, int64_t column,
                           struct weir__conv_range depth, float *to, int64_t distance);

/* As the ones of vector_conv.h, of what is taken. */
void VECTOR(winograd)(const struct weir__op_call *call);
int VECTOR(measure_winograd)(const struct weir__op_shape *shape, size_t *workspace);
void VECTOR(winograd_weight)(const struct weir__op_call *call);
int VECTOR(measure_winograd_weight)(const struct weir__op_shape *shape, size_t *workspace);

/** One column of the sums at all positions. */
VECTOR_INLINE void v_winograd_column(const float *sums, int64_t distance, int column, vfloat m[4]) {
    V_UNROLL
    for (int y = 0; y < 4; y++) m[y] = v_load(sums + (y * 4 + column) * distance);
}

#endif
