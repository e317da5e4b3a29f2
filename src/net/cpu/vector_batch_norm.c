/* SPDX-License-Identifier: MIT */
/*
 * Batch norm, channels last: sixteen channels of a pixel at a time. Pixels of all rows are cut into
 * parts, by the shape alone, which a team shares; a part's sums are in double, and are added in
 * ascending order. Within a part, tiles of 64 pixels by 16 channels are summed in floats, whose
 * errors are as small as the tile.
 *
 * Moments take one pass over memory. A tile is read from the first cache twice, as distances from
 * the channel's first number, the base: for its mean, then for what is left around that and its
 * squares. So digits are lost neither to a mean far from 0 nor to a difference of large squares.
 *
 * What follows the norm is done while its numbers are in registers, and what comes before its
 * gradient while that is summed: by the parts' formulas.
 */
#include "net/cpu/vector.h"
#include "net/cpu/vector_calls.h"

#include <math.h>

enum { PARTS_MAX = 64, PART_TILES_LEAST = 4, TILE = 64 };

/** How a micro-batch is walked. */
struct batch_walk {
    int64_t channels, pixels, parts;
    int64_t each; /**< pixels of a part, but the last's, which may have fewer */
};

static struct batch_walk walk_of(const struct weir__op_shape *shape) {
    struct batch_walk walk = {.channels = shape->width, .pixels = shape->rows * shape->tokens};
    int64_t tiles = (walk.pixels + TILE - 1) / TILE;
    int64_t each = (tiles + PARTS_MAX - 1) / PARTS_MAX;
    if (each < PART_TILES_LEAST) each = PART_TILES_LEAST;
    walk.each = each * TILE;
    walk.parts = (walk.pixels + walk.each - 1) / walk.each;
    return walk;
}

/** Per channel. In workspace: the sums of each part follow. */
struct batch_tables {
    float *middle, *factor; /**< normal = (x - middle) * factor; while moments are made the base */
    float *first, *second;  /**< what is added or multiplied besides */
    double *sums;           /**< [part][2][channel] */
};
enum { FLOAT_TABLES = 4 };

int VECTOR(measure_batch_norm)(const struct weir__op_shape *shape, size_t *workspace) {
    struct batch_walk walk = walk_of(shape);
    *workspace = FLOAT_TABLES * (size_t)walk.channels * sizeof(float) +
                 2 * (size_t)(walk.parts * walk.channels) * sizeof(double);
    return WEIR_OK;
}

static struct batch_tables tables_of(const struct weir__op_call *call,
                                     const struct batch_walk *walk) {
    float *at = call->workspace;
    int64_t channels = walk->channels;
    return (struct batch_tables){.middle = at,
                                 .factor = at + channels,
                                 .first = at + 2 * channels,
                                 .second = at + 3 * channels,
                                 .sums = (double *)(at + FLOAT_TABLES * channels)};
}

/** What a part is told. */
struct batch_job {
    const struct weir__op_call *call;
    struct batch_walk walk;
    struct batch_tables tables;
    const number *x, *dy;
    const number *addend, *y; /**< what is added; of a ReLU's gradient */
    number *to;
};

/** Pixels of one tile, from the micro-batch's first number on, and channels of one vector. */
struct batch_tile {
    int64_t first, count, channel, lanes;
};

VECTOR_INLINE int64_t fewer(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/** Adds a tile's floats to a part's doubles. */
VECTOR_INLINE void add_lanes(double *sums, vfloat v, int64_t lanes) {
    float parts[LANES];
    v_store(parts, v);
    for (int64_t i = 0; i < lanes; i++) sums[i] += (double)parts[i];
}

typedef void tile_fn(const struct batch_job *job, const struct batch_tile *tile, double *sums);

/** Tile by tile of one part: `sums` is its own. */
VECTOR_INLINE void walk_tiles(const struct batch_job *job, uint32_t part, tile_fn *work) {
    const struct batch_walk *walk = &job->walk;
    double *sums = job->tables.sums + 2 * part * walk->channels;
    int64_t begin = part * walk->each, end = fewer(begin + walk->each, walk->pixels);
    memset(sums, 0, 2 * (size_t)walk->channels * sizeof(double));
    for (int64_t first = begin; first < end; first += TILE)
        for (int64_t c = 0; c < walk->channels; c += LANES) {
            const struct batch_tile tile = {first, fewer(TILE, end - first), c,
                                            fewer(LANES, walk->channels - c)};
            work(job, &tile, sums);
        }
}

/* ---- moments ---- */

/** Of x - base: the sum, and the sum of squares. */
VECTOR_INLINE void tile_moments(const struct batch_job *job, const struct batch_tile *tile,
                                double *sums) {
    int64_t channels = job->walk.channels;
    const number *x = job->x + tile->first * channels + tile->channel;
    vfloat base = v_load_some(job->tables.middle + tile->channel, tile->lanes);
    vfloat sum = v_all(0), rest = v_all(0), squares = v_all(0);
    for (int64_t p = 0; p < tile->count; p++)
        sum += v_load_some(x + p * channels, tile->lanes) - base;
    vfloat mean = sum / v_all((float)tile->count);
    for (int64_t p = 0; p < tile->count; p++) {
        vfloat distance = v_load_some(x + p * channels, tile->lanes) - base - mean;
        rest += distance;
        squares = v_fma(distance, distance, squares);
    }
    float means[LANES], rests[LANES], parts[LANES];
    v_store(means, mean);
    v_store(rests, rest);
    v_store(parts, squares);
    double *to = sums + tile->channel, count = (double)tile->count;
    for (int64_t i = 0; i < tile->lanes; i++) {
        double m = (double)means[i], r = (double)rests[i];
        to[i] += count * m + r;
        to[channels + i] += (double)parts[i] + 2 * m * r + count * m * m;
    }
}

static void moments_part(void *context, uint32_t part, uint32_t member) {
    (void)member;
    walk_tiles(context, part, tile_moments);
}

/** A part's sums on those of the first, in ascending order. */
static void fold_parts(const struct batch_job *job) {
    int64_t count = 2 * job->walk.channels;
    double *all = job->tables.sums;
    for (int64_t part = 1; part < job->walk.parts; part++)
        for (int64_t i = 0; i < count; i++) all[i] += all[part * count + i];
}

static void find_moments(const struct batch_job *job, double *mean, double *variance) {
    const struct batch_walk *walk = &job->walk;
    const double *sums = job->tables.sums;
    double count = (double)walk->pixels;
    for (int64_t c = 0; c < walk->channels; c++) job->tables.middle[c] = v_load_one(job->x + c);
    weir__share(job->call, walk->parts, 4 * count * (double)walk->channels, moments_part,
                (void *)(uintptr_t)job);
    fold_parts(job);
    for (int64_t c = 0; c < walk->channels; c++) {
        double distance = sums[c] / count;
        double squares = sums[walk->channels + c] - distance * sums[c];
        mean[c] = (double)job->tables.middle[c] + distance;
        variance[c] = squares > 0 ? squares / count : squares - squares; /* 0, or no number */
    }
}

/* ---- forward ---- */

static void set_factors(const struct batch_job *job, int64_t c, double middle, double variance) {
    job->tables.middle[c] = (float)middle;
    job->tables.factor[c] = (float)(1 / sqrt(variance + job->call->shape->eps));
}

/** What becomes of the numbers from `at` on, which are of channels from `channel` on. */
typedef vfloat apply_fn(const struct batch_job *job, int64_t at, int64_t channel, int64_t lanes);

VECTOR_INLINE void walk_pixels(const struct batch_job *job, uint32_t part, apply_fn *apply) {
    const struct batch_walk *walk = &job->walk;
    int64_t begin = part * walk->each, end = fewer(begin + walk->each, walk->pixels);
    for (int64_t p = begin; p < end; p++) {
        int64_t at = p * walk->channels, c = 0;
        for (; c + LANES <= walk->channels; c += LANES)
            v_store(job->to + at + c, apply(job, at + c, c, LANES));
        if (c < walk->channels)
            v_store_some(job->to + at + c, apply(job, at + c, c, walk->channels - c),
                         walk->channels - c);
    }
}

VECTOR_INLINE vfloat scaled(const struct batch_job *job, int64_t at, int64_t channel,
                            int64_t lanes) {
    const struct batch_tables *tables = &job->tables;
    vfloat x = v_load_some(job->x + at, lanes) - v_load_some(tables->middle + channel, lanes);
    return v_fma(x, v_load_some(tables->factor + channel, lanes),
                 v_load_some(tables->first + channel, lanes));
}

/* As a sum, then a ReLU, would store what they are given. */
VECTOR_INLINE vfloat summed(const struct batch_job *job, int64_t at, int64_t channel,
                            int64_t lanes) {
    return v_as_stored(scaled(job, at, channel, lanes)) + v_load_some(job->addend + at, lanes);
}

VECTOR_INLINE vfloat activated(vfloat x) {
    x = v_as_stored(x);
    return v_select(x <= v_all(0), v_all(0), x);
}

VECTOR_INLINE vfloat scaled_activated(const struct batch_job *job, int64_t at, int64_t channel,
                                      int64_t lanes) {
    return activated(scaled(job, at, channel, lanes));
}

VECTOR_INLINE vfloat summed_activated(const struct batch_job *job, int64_t at, int64_t channel,
                                      int64_t lanes) {
    return activated(summed(job, at, channel, lanes));
}

static void scale_part(void *context, uint32_t part, uint32_t member) {
    (void)member;
    walk_pixels(context, part, scaled);
}

static void sum_part(void *context, uint32_t part, uint32_t member) {
    (void)member;
    walk_pixels(context, part, summed);
}

static void activate_part(void *context, uint32_t part, uint32_t member) {
    (void)member;
    walk_pixels(context, part, scaled_activated);
}

static void sum_and_activate_part(void *context, uint32_t part, uint32_t member) {
    (void)member;
    walk_pixels(context, part, summed_activated);
}

static void share_pixels(struct batch_job *job, weir__team_fn *run) {
    double numbers = (double)(job->walk.pixels * job->walk.channels);
    weir__share(job->call, job->walk.parts, WEIR__SHARED_NUMBER * numbers, run, job);
}

static struct batch_job job_of(const struct weir__op_call *call) {
    struct batch_job job = {.call = call, .walk = walk_of(call->shape)};
    job.tables = tables_of(call, &job.walk);
    return job;
}

/** `addend` is NULL for a `run` that adds nothing. */
static int forward(const struct weir__op_call *call, weir__team_fn *run, const number *addend) {
    const struct weir__op_shape *shape = call->shape;
    struct batch_job job = job_of(call);
    bool running = call->infer && shape->tracks;
    double *mean = call->out[1], *variance = call->out[2];
    const float *weight = shape->has_bias ? call->in[1] : NULL;
    const float *bias = shape->has_bias ? call->in[2] : NULL;
    const float *running_mean = running ? call->in[3] : NULL;
    const float *running_variance = running ? call->in[4] : NULL;
    int status = running ? WEIR_OK : weir__check_batch(call);
    if (status != WEIR_OK) return status;
    job.x = call->in[0];
    job.addend = addend;
    job.to = call->out[0];
    if (!running) find_moments(&job, mean, variance);
    for (int64_t c = 0; c < job.walk.channels; c++) {
        if (running)
            set_factors(&job, c, (double)running_mean[c], (double)running_variance[c]);
        else
            set_factors(&job, c, mean[c], variance[c]);
        if (weight != NULL) job.tables.factor[c] *= weight[c];
        job.tables.first[c] = bias != NULL ? bias[c] : 0;
    }
    share_pixels(&job, run);
    return WEIR_OK;
}

int VECTOR(batch_norm)(const struct weir__op_call *call) {
    return forward(call, scale_part, NULL);
}

int VECTOR(batch_norm_act)(const struct weir__op_call *call) {
    assert(call->shape->adds || call->shape->activates);
    if (!call->shape->adds) return forward(call, activate_part, NULL);
    return forward(call, call->shape->activates ? sum_and_activate_part : sum_part, call->in[5]);
}

/* ---- backward ---- */

VECTOR_INLINE void add_tile(const struct batch_job *job, const struct batch_tile *tile,
                            double *sums, bool activates) {
    const struct batch_tables *tables = &job->tables;
    int64_t channels = job->walk.channels, at = tile->first * channels + tile->channel;
    vfloat middle = v_load_some(tables->middle + tile->channel, tile->lanes);
    vfloat factor = v_load_some(tables->factor + tile->channel, tile->lanes);
    vfloat sum = v_all(0), product = v_all(0);
    for (int64_t p = 0; p < tile->count; p++, at += channels) {
        vfloat dy = v_load_some(job->dy + at, tile->lanes);
        vfloat x = v_load_some(job->x + at, tile->lanes) - middle;
        if (activates) {
            dy = v_select(v_load_some(job->y + at, tile->lanes) <= v_all(0), v_all(0), dy);
            v_store_some(job->to + at, dy, tile->lanes);
        }
        sum += dy;
        product = v_fma(dy, x * factor, product);
    }
    add_lanes(sums + tile->channel, sum, tile->lanes);
    add_lanes(sums + channels + tile->channel, product, tile->lanes);
}

VECTOR_INLINE void tile_sums(const struct batch_job *job, const struct batch_tile *tile,
                             double *sums) {
    add_tile(job, tile, sums, false);
}

VECTOR_INLINE void tile_act_sums(const struct batch_job *job, const struct batch_tile *tile,
                                 double *sums) {
    add_tile(job, tile, sums, true);
}

static void sums_part(void *context, uint32_t part, uint32_t member) {
    (void)member;
    walk_tiles(context, part, tile_sums);
}

static void act_sums_part(void *context, uint32_t part, uint32_t member) {
    (void)member;
    walk_tiles(context, part, tile_act_sums);
}

/** x, mean and variance stand from input `first` on. */
static struct batch_job gradient_job(const struct weir__op_call *call, uint32_t first) {
    struct batch_job job = job_of(call);
    const double *mean = call->in[first + 1], *variance = call->in[first + 2];
    job.dy = call->in[0];
    job.x = call->in[first];
    for (int64_t c = 0; c < job.walk.channels; c++) set_factors(&job, c, mean[c], variance[c]);
    return job;
}

static int add_up(struct batch_job *job, weir__team_fn *run, double *sum, double *product) {
    size_t channels = (size_t)job->walk.channels;
    share_pixels(job, run);
    fold_parts(job);
    memcpy(sum, job->tables.sums, channels * sizeof(double));
    memcpy(product, job->tables.sums + channels, channels * sizeof(double));
    return WEIR_OK;
}

int VECTOR(batch_norm_sums)(const struct weir__op_call *call) {
    struct batch_job job = gradient_job(call, 1);
    return add_up(&job, sums_part, call->out[0], call->out[1]);
}

int VECTOR(batch_norm_act_sums)(const struct weir__op_call *call) {
    struct batch_job job = gradient_job(call, 2);
    job.y = call->in[1];
    job.to = call->out[0];
    return add_up(&job, act_sums_part, call->out[1], call->out[2]);
}

/** (dy - first - normal * second) * factor * weight; `sums` hold the last two factors' product. */
VECTOR_INLINE vfloat slope(const struct batch_job *job, int64_t at, int64_t channel,
                           int64_t lanes) {
    const struct batch_tables *tables = &job->tables;
    const float *scale = (const float *)tables->sums;
    vfloat x = v_load_some(job->x + at, lanes) - v_load_some(tables->middle + channel, lanes);
    vfloat normal = x * v_load_some(tables->factor + channel, lanes);
    vfloat dy = v_load_some(job->dy + at, lanes) - v_load_some(tables->first + channel, lanes);
    dy -= normal * v_load_some(tables->second + channel, lanes);
    return dy * v_load_some(scale + channel, lanes);
}

static void slope_part(void *context, uint32_t part, uint32_t member) {
    (void)member;
    walk_pixels(context, part, slope);
}

int VECTOR(batch_norm_grad_input)(const struct weir__op_call *call) {
    struct batch_job job = gradient_job(call, 1);
    const double *sum = call->in[4], *product = call->in[5];
    const float *weight = call->shape->has_bias ? call->in[6] : NULL;
    float *scale = (float *)job.tables.sums;
    double count = (double)job.walk.pixels;
    for (int64_t c = 0; c < job.walk.channels; c++) {
        job.tables.first[c] = (float)(sum[c] / count);
        job.tables.second[c] = (float)(product[c] / count);
        scale[c] = job.tables.factor[c] * (weight != NULL ? weight[c] : 1);
    }
    job.to = call->out[0];
    share_pixels(&job, slope_part);
    return WEIR_OK;
}

/* What has no pixels is as the reference does it: numbers in double, parameters in F32. */

int VECTOR(batch_norm_grad_weight)(const struct weir__op_call *call) {
    return weir__reference_f32[WEIR__OP_batch_norm_grad_weight].run(call);
}

int VECTOR(batch_norm_statistics)(const struct weir__op_call *call) {
    return weir__reference_f32[WEIR__OP_batch_norm_statistics].run(call);
}
