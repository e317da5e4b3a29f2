/* SPDX-License-Identifier: MIT */
/*
 * Pooling: sixteen channels of a pixel at a time. Windows of 2x2 and 3x3 that lie whole inside the
 * image, nearly all there are, have loops of constant length.
 */
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

/** Along one side of the image: pixels first … end - 1. */
struct pool_span {
    int64_t first, end;
};

/** One side of a window. */
struct side {
    int64_t in, out, kernel, stride, padding;
    bool adaptive;
};

static struct side side_of(const struct weir__window *window, bool high) {
    return high
               ? (struct side){window->in.height,     window->out.height,     window->kernel.height,
                               window->stride.height, window->padding.height, window->adaptive}
               : (struct side){window->in.width,     window->out.width,     window->kernel.width,
                               window->stride.width, window->padding.width, window->adaptive};
}

/** What output `i` looks at. */
static struct pool_span reach(const struct side *side, int64_t i) {
    assert(i >= 0 && i < side->out);
    if (side->adaptive)
        return (struct pool_span){i * side->in / side->out,
                                  ((i + 1) * side->in + side->out - 1) / side->out};
    int64_t first = i * side->stride - side->padding, end = first + side->kernel;
    return (struct pool_span){first > 0 ? first : 0, end < side->in ? end : side->in};
}

static int64_t length(struct pool_span span) {
    return span.end - span.first;
}

/** What the loops need to know of the images. */
struct images {
    struct weir__plane in, out;
    struct side high, wide;
    int64_t channels;
    int64_t row;   /* numbers in a row of pixels of the input */
    float divisor; /* of the mean; 0: the pixels in the window */
    bool tiled;    /* each pixel of the input's first out.height * kernel.height rows is in exactly
                      one window */
};

static struct images images_of(const struct weir__op_call *call) {
    const struct weir__window *window = &call->shape->window;
    struct images images = {.in = window->in,
                            .out = window->out,
                            .high = side_of(window, true),
                            .wide = side_of(window, false),
                            .channels = call->shape->width,
                            .row = window->in.width * call->shape->width};
    const struct side *high = &images.high, *wide = &images.wide;
    if (window->count_padding && !window->adaptive)
        images.divisor = (float)(window->kernel.height * window->kernel.width);
    images.tiled = !window->adaptive && high->kernel == high->stride && high->padding == 0 &&
                   wide->kernel == wide->stride && wide->padding == 0 &&
                   wide->out * wide->kernel == wide->in;
    return images;
}

/** Whose numbers are `row` and `channels` apart, in rows and columns. */
struct view {
    const number *at;
    int64_t row, channels;
};

VECTOR_INLINE vfloat pixel_of(const struct view *view, int64_t row, int64_t column, int64_t channel,
                              int64_t count) {
    return v_load_some(view->at + row * view->row + column * view->channels + channel, count);
}

/* ---- forward ---- */

/** What a window of rows x columns becomes, at `count` channels; inlined into `pool`. */
typedef vfloat window_fn(const struct view *view, int64_t rows, int64_t columns, int64_t channel,
                         int64_t count);

/** A NaN is larger than any number. */
VECTOR_INLINE vint wins(vfloat x, vfloat largest) {
    return (x > largest) | (x != x);
}

VECTOR_INLINE vfloat largest(const struct view *view, int64_t rows, int64_t columns,
                             int64_t channel, int64_t count) {
    vfloat most = v_all(-INFINITY);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            vfloat x = pixel_of(view, i, j, channel, count);
            most = v_select(wins(x, most), x, most);
        }
    return most;
}

/** Rows' sums are made first. */
VECTOR_INLINE vfloat sum(const struct view *view, int64_t rows, int64_t columns, int64_t channel,
                         int64_t count) {
    vfloat total = v_all(0);
    for (int64_t i = 0; i < rows; i++) {
        vfloat row = v_all(0);
        for (int64_t j = 0; j < columns; j++) row += pixel_of(view, i, j, channel, count);
        total += row;
    }
    return total;
}

VECTOR_INLINE void pool_window(const struct view *view, const int64_t rows, const int64_t columns,
                               float share, number *y, window_fn *window) {
    int64_t c = 0;
    for (; c + LANES <= view->channels; c += LANES)
        v_store(y + c, window(view, rows, columns, c, LANES) * share);
    if (c < view->channels)
        v_store_some(y + c, window(view, rows, columns, c, view->channels - c) * share,
                     view->channels - c);
}

VECTOR_INLINE float share_of(const struct images *images, struct pool_span rows,
                             struct pool_span columns) {
    assert(images->divisor > 0 || (length(rows) > 0 && length(columns) > 0));
    float pixels = (float)(length(rows) * length(columns));
    return 1 / (images->divisor > 0 ? images->divisor : pixels);
}

VECTOR_INLINE void pool(const struct weir__op_call *call, window_fn *window, const bool shares) {
    const struct images images = images_of(call);
    const number *x = call->in[0];
    number *y = call->out[0];
    for (int64_t i = 0; i < call->shape->rows * images.out.height; i++) {
        const number *plane = x + i / images.out.height * images.in.height * images.row;
        struct pool_span rows = reach(&images.high, i % images.out.height);
        for (int64_t j = 0; j < images.out.width; j++, y += images.channels) {
            struct pool_span columns = reach(&images.wide, j);
            float share = shares ? share_of(&images, rows, columns) : 1;
            const struct view view = {plane + rows.first * images.row +
                                          columns.first * images.channels,
                                      images.row, images.channels};
            if (length(rows) == 2 && length(columns) == 2)
                pool_window(&view, 2, 2, share, y, window);
            else if (length(rows) == 3 && length(columns) == 3)
                pool_window(&view, 3, 3, share, y, window);
            else
                pool_window(&view, length(rows), length(columns), share, y, window);
        }
    }
}

int VECTOR(max_pool2d)(const struct weir__op_call *call) {
    pool(call, largest, false);
    return WEIR_OK;
}

int VECTOR(avg_pool2d)(const struct weir__op_call *call) {
    pool(call, sum, true);
    return WEIR_OK;
}

/* ---- the gradient of the largest: each window's goes to its winner ---- */

/** The number of the pixel that is the largest, counted row by row. */
VECTOR_INLINE vint winner(const struct view *view, int64_t rows, int64_t columns, int64_t channel,
                          int64_t count) {
    vfloat most = v_all(-INFINITY);
    vint number = {0};
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            vfloat x = pixel_of(view, i, j, channel, count);
            vint better = wins(x, most);
            most = v_select(better, x, most);
            number = (better & (int32_t)(i * columns + j)) | (~better & number);
        }
    return number;
}

/** Where windows are tiles, pixels are written once; else they are 0 before the first. */
VECTOR_INLINE void give_to_winner(const struct view *view, const int64_t rows,
                                  const int64_t columns, int64_t channel, const int64_t count,
                                  const number *dy, float *dx, bool tiled) {
    vint number = winner(view, rows, columns, channel, count);
    vfloat gradient = v_load_some(dy + channel, count);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            float *to = dx + i * view->row + j * view->channels + channel;
            vfloat own = v_keep(number == (int32_t)(i * columns + j), gradient);
            v_store_some(to, tiled ? own : v_load_some(to, count) + own, count);
        }
}

VECTOR_INLINE void give_window(const struct view *view, const int64_t rows, const int64_t columns,
                               const number *dy, float *dx, bool tiled) {
    int64_t c = 0;
    for (; c + LANES <= view->channels; c += LANES)
        give_to_winner(view, rows, columns, c, LANES, dy, dx, tiled);
    if (c < view->channels)
        give_to_winner(view, rows, columns, c, view->channels - c, dy, dx, tiled);
}

/** Clears rows of pixels first … end - 1; returns the larger of both. */
static int64_t clear_rows(const struct images *images, float *dx, int64_t first, int64_t end) {
    assert(first >= 0 && end <= images->in.height);
    if (end <= first) return first;
    memset(dx + first * images->row, 0, (size_t)((end - first) * images->row) * sizeof(float));
    return end;
}

/** One row of the micro-batch. Rows of pixels are cleared just before their first window. */
static void give_row(const struct images *images, const number *x, const number *dy, float *dx) {
    int64_t cleared = 0;
    for (int64_t i = 0; i < images->out.height; i++) {
        struct pool_span rows = reach(&images->high, i);
        cleared = images->tiled ? rows.end : clear_rows(images, dx, cleared, rows.end);
        for (int64_t j = 0; j < images->out.width; j++, dy += images->channels) {
            struct pool_span columns = reach(&images->wide, j);
            int64_t at = rows.first * images->row + columns.first * images->channels;
            const struct view view = {x + at, images->row, images->channels};
            if (images->tiled && length(rows) == 2 && length(columns) == 2)
                give_window(&view, 2, 2, dy, dx + at, true);
            else if (!images->tiled && length(rows) == 3 && length(columns) == 3)
                give_window(&view, 3, 3, dy, dx + at, false);
            else
                give_window(&view, length(rows), length(columns), dy, dx + at, images->tiled);
        }
    }
    clear_rows(images, dx, cleared, images->in.height);
}

/** Where numbers are not floats, a row's sums are made in workspace. */
int VECTOR(measure_max_pool2d_grad)(const struct weir__op_shape *shape, size_t *workspace) {
    const struct weir__plane *in = &shape->window.in;
    *workspace = 0;
    if (sizeof(number) < sizeof(float))
        *workspace = (size_t)(in->height * in->width * shape->width) * sizeof(float);
    return WEIR_OK;
}

int VECTOR(max_pool2d_grad)(const struct weir__op_call *call) {
    const struct images images = images_of(call);
    const number *dy = call->in[0], *x = call->in[1];
    number *dx = call->out[0];
    int64_t in = images.in.height * images.row;
    int64_t out = images.out.height * images.out.width * images.channels;
    for (int64_t r = 0; r < call->shape->rows; r++, x += in, dy += out, dx += in) {
        float *sums = sizeof *dx < sizeof *sums ? call->workspace : (void *)dx;
        give_row(&images, x, dy, sums);
        if (sizeof *dx < sizeof *sums) row_narrow(dx, sums, in);
    }
    return WEIR_OK;
}

/* ---- the gradient of the mean: each pixel collects from the windows that it is in ---- */

/** What is worked out once for all rows and channels. */
struct pool_tables {
    struct pool_span *columns; /* outputs that look at each column of the input */
    float *shares;             /* of each output */
};

static struct pool_tables tables_in(void *memory, const struct weir__window *window) {
    assert(memory != NULL);
    struct pool_span *columns = memory;
    return (struct pool_tables){columns, (float *)(columns + window->in.width)};
}

int VECTOR(measure_avg_pool2d_grad)(const struct weir__op_shape *shape, size_t *workspace) {
    const struct weir__window *window = &shape->window;
    *workspace = (size_t)window->in.width * sizeof(struct pool_span) +
                 (size_t)(window->out.height * window->out.width) * sizeof(float);
    return WEIR_OK;
}

/** The outputs that look at `pixel`, from those that look at the pixel before it on. */
static struct pool_span windows_over(const struct side *side, struct pool_span span,
                                     int64_t pixel) {
    while (span.first < side->out && reach(side, span.first).end <= pixel) span.first++;
    while (span.end < side->out && reach(side, span.end).first <= pixel) span.end++;
    assert(span.end >= span.first);
    return span;
}

static void fill_tables(const struct images *images, const struct pool_tables *tables) {
    struct pool_span columns = {0, 0};
    float *share = tables->shares;
    for (int64_t j = 0; j < images->in.width; j++)
        tables->columns[j] = columns = windows_over(&images->wide, columns, j);
    for (int64_t i = 0; i < images->out.height; i++)
        for (int64_t j = 0; j < images->out.width; j++)
            *share++ = share_of(images, reach(&images->high, i), reach(&images->wide, j));
}

/** From rows x columns outputs, `row` of which are in a row. */
VECTOR_INLINE vfloat collected(const number *dy, const float *shares, int64_t row, int64_t channels,
                               const int64_t rows, const int64_t columns, const int64_t count) {
    vfloat total = v_all(0);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            vfloat gradient = v_load_some(dy + (i * row + j) * channels, count);
            total = v_fma(gradient, v_all(shares[i * row + j]), total);
        }
    return total;
}

/** One pixel's channels; 0 where no window is. */
VECTOR_INLINE void collect(const number *dy, const float *shares, int64_t row, int64_t channels,
                           const int64_t rows, const int64_t columns, number *dx) {
    int64_t c = 0;
    for (; c + LANES <= channels; c += LANES)
        v_store(dx + c, collected(dy + c, shares, row, channels, rows, columns, LANES));
    if (c < channels)
        v_store_some(dx + c, collected(dy + c, shares, row, channels, rows, columns, channels - c),
                     channels - c);
}

/** One row of pixels; `dy` and the shares begin at the first output row that looks at it. */
static void collect_row(const struct images *images, const struct pool_span *spans, int64_t rows,
                        const number *dy, const float *shares, number *dx) {
    int64_t row = images->out.width, channels = images->channels;
    for (int64_t j = 0; j < images->in.width; j++, dx += channels) {
        int64_t first = spans[j].first, columns = length(spans[j]);
        const number *from = dy + first * channels;
        if (rows == 1 && columns == 1)
            collect(from, shares + first, row, channels, 1, 1, dx);
        else if (rows == 3 && columns == 3)
            collect(from, shares + first, row, channels, 3, 3, dx);
        else
            collect(from, shares + first, row, channels, rows, columns, dx);
    }
}

int VECTOR(avg_pool2d_grad)(const struct weir__op_call *call) {
    const struct images images = images_of(call);
    const struct pool_tables tables = tables_in(call->workspace, &call->shape->window);
    const number *dy = call->in[0];
    number *dx = call->out[0];
    fill_tables(&images, &tables);
    for (int64_t r = 0; r < call->shape->rows; r++) {
        struct pool_span rows = {0, 0};
        for (int64_t i = 0; i < images.in.height; i++, dx += images.row) {
            rows = windows_over(&images.high, rows, i);
            int64_t at = rows.first * images.out.width;
            collect_row(&images, tables.columns, length(rows), dy + at * images.channels,
                        tables.shares + at, dx);
        }
        dy += images.out.height * images.out.width * images.channels;
    }
    return WEIR_OK;
}
