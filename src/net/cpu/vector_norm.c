/* SPDX-License-Identifier: MIT */
/*
 * LayerNorm, and the sums over rows that parameters' gradients are. A row is summed in two vectors
 * of partial sums; columns are summed in registers, 64 at a time, in ascending order of rows.
 */
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

#include <math.h>

/** The sum of a row, in pairs of vectors and a rest. */
VECTOR_INLINE float row_sum(const number *x, int64_t width) {
    vfloat even = v_all(0), odd = v_all(0);
    int64_t i = 0;
    for (; i + 2 * LANES <= width; i += 2 * LANES) {
        even += v_load(x + i);
        odd += v_load(x + i + LANES);
    }
    for (; i + LANES <= width; i += LANES) even += v_load(x + i);
    if (i < width) odd += v_load_some(x + i, width - i);
    return v_sum(even + odd);
}

/** The sum of (x - mean)^2, and in `rest` that of x - mean. */
VECTOR_INLINE float row_spread(const number *x, float mean, int64_t width, float *rest) {
    vfloat even = v_all(0), odd = v_all(0), middle = v_all(mean), sum = v_all(0);
    int64_t i = 0;
    for (; i + 2 * LANES <= width; i += 2 * LANES) {
        vfloat a = v_load(x + i) - middle, b = v_load(x + i + LANES) - middle;
        even = v_fma(a, a, even);
        odd = v_fma(b, b, odd);
        sum += a + b;
    }
    for (; i < width; i += LANES) {
        int64_t count = width - i < LANES ? width - i : LANES;
        vfloat a = v_load_some(x + i, count) - middle;
        a = v_select(v_lane_numbers() < (int32_t)count, a, v_all(0));
        even = v_fma(a, a, even);
        sum += a;
    }
    *rest = v_sum(sum);
    return v_sum(even + odd);
}

struct row_moments {
    float mean, rstd;
};

/** In double: of a row whose squares have no sum in float. */
static struct row_moments far_moments(const number *x, int64_t width, float eps) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width; i++) sum += (double)v_load_one(x + i);
    double mean = sum / (double)width;
    for (int64_t i = 0; i < width; i++) {
        double distance = (double)v_load_one(x + i) - mean;
        squares += distance * distance;
    }
    double rstd = 1 / sqrt(squares / (double)width + (double)eps);
    return (struct row_moments){(float)mean, (float)rstd};
}

/** The mean is made twice: the second one, of distances to the first, has the first one's error. */
VECTOR_INLINE struct row_moments row_moments(const number *x, int64_t width, float eps) {
    float share = 1 / (float)width, rest;
    float near = row_sum(x, width) * share, squares = row_spread(x, near, width, &rest);
    if (!isfinite(squares)) return far_moments(x, width, eps);
    rest *= share;
    float variance = squares * share - rest * rest;
    return (struct row_moments){near + rest, 1 / sqrtf((variance < 0 ? 0 : variance) + eps)};
}

VECTOR_INLINE vfloat normalise(vfloat x, float mean, float rstd, vfloat weight, vfloat bias) {
    return v_fma((x - mean) * rstd, weight, bias);
}

int VECTOR(layer_norm)(const struct weir__op_call *call) {
    assert(call->shape->eps >= 0);
    const number *x = call->in[0];
    const float *weight = call->in[1], *bias = call->in[2];
    number *y = call->out[0];
    float *means = call->out[1], *rstds = call->out[2];
    int64_t width = call->shape->width, count = token_count(call);
    float eps = (float)call->shape->eps;
    for (int64_t m = 0; m < count; m++, x += width, y += width) {
        struct row_moments row = row_moments(x, width, eps);
        float mean = row.mean, rstd = row.rstd;
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES)
            v_store(y + i,
                    normalise(v_load(x + i), mean, rstd, v_load(weight + i), v_load(bias + i)));
        if (i < width)
            v_store_some(y + i,
                         normalise(v_load_some(x + i, width - i), mean, rstd,
                                   v_load_some(weight + i, width - i),
                                   v_load_some(bias + i, width - i)),
                         width - i);
        means[m] = mean;
        rstds[m] = rstd;
    }
    return WEIR_OK;
}

/* ---- the gradient of the input ---- */

/** Means over the row of g = dy * weight and of g * normalised x. */
struct row_means {
    float gradient, product;
};

VECTOR_INLINE struct row_means gradient_means(const number *dy, const number *x,
                                              const float *weight, float mean, float rstd,
                                              int64_t width) {
    vfloat sum = v_all(0), product = v_all(0);
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        vfloat g = v_load(dy + i) * v_load(weight + i);
        sum += g;
        product = v_fma(g, (v_load(x + i) - mean) * rstd, product);
    }
    if (i < width) { /* lanes past the end have g = 0 */
        vfloat g = v_load_some(dy + i, width - i) * v_load_some(weight + i, width - i);
        sum += g;
        product = v_fma(g, (v_load_some(x + i, width - i) - mean) * rstd, product);
    }
    float share = 1 / (float)width;
    return (struct row_means){v_sum(sum) * share, v_sum(product) * share};
}

VECTOR_INLINE vfloat input_gradient(vfloat dy, vfloat x, vfloat weight, float mean, float rstd,
                                    struct row_means means) {
    vfloat normal = (x - mean) * rstd;
    vfloat rest = v_fma(normal, v_all(-means.product), dy * weight - means.gradient);
    return rest * rstd;
}

int VECTOR(layer_norm_grad_input)(const struct weir__op_call *call) {
    const number *dy = call->in[0], *x = call->in[1];
    const float *means = call->in[2], *rstds = call->in[3], *weight = call->in[4];
    number *dx = call->out[0];
    int64_t width = call->shape->width, count = token_count(call);
    for (int64_t m = 0; m < count; m++, dy += width, x += width, dx += width) {
        float mean = means[m], rstd = rstds[m];
        struct row_means row = gradient_means(dy, x, weight, mean, rstd, width);
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES)
            v_store(dx + i, input_gradient(v_load(dy + i), v_load(x + i), v_load(weight + i), mean,
                                           rstd, row));
        if (i < width)
            v_store_some(dx + i,
                         input_gradient(v_load_some(dy + i, width - i),
                                        v_load_some(x + i, width - i),
                                        v_load_some(weight + i, width - i), mean, rstd, row),
                         width - i);
    }
    return WEIR_OK;
}

/* ---- sums over rows ---- */

VECTOR_INLINE void deliver(float *to, vfloat sum, int64_t count, bool overwrite) {
    assert(count >= 0 && count <= LANES);
    v_store_some(to, overwrite ? sum : v_load_some(to, count) + sum, count);
}

enum { COLUMN_VECTORS = 4, COLUMNS = COLUMN_VECTORS * LANES };

/** Parts are columns, COLUMNS each, of results `width` wide. */
static int share_columns(const struct weir__op_call *call, int64_t width, weir__team_fn *run) {
    weir__share(call, (width + COLUMNS - 1) / COLUMNS,
                WEIR__SHARED_NUMBER * (double)width * (double)token_count(call), run,
                (void *)(uintptr_t)call);
    return WEIR_OK;
}

static void sum_bias(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    int64_t width = call->shape->out, count = token_count(call), j = (int64_t)part * COLUMNS;
    const number *dy = (const number *)call->in[0] + j;
    float *to = (float *)call->out[0] + j;
    vfloat sum[COLUMN_VECTORS];
    (void)member;
    V_UNROLL
    for (int v = 0; v < COLUMN_VECTORS; v++)
        sum[v] = call->overwrite ? v_all(0)
                                 : v_load_some(to + v * LANES, lanes_from(j + v * LANES, width));
    if (j + COLUMNS <= width) {
        for (int64_t m = 0; m < count; m++, dy += width) {
            V_UNROLL
            for (int v = 0; v < COLUMN_VECTORS; v++) sum[v] += v_load(dy + v * LANES);
        }
    } else {
        for (int64_t m = 0; m < count; m++, dy += width) {
            V_UNROLL
            for (int v = 0; v < COLUMN_VECTORS; v++)
                sum[v] += v_load_some(dy + v * LANES, lanes_from(j + v * LANES, width));
        }
    }
    V_UNROLL
    for (int v = 0; v < COLUMN_VECTORS; v++)
        v_store_some(to + v * LANES, sum[v], lanes_from(j + v * LANES, width));
}

int VECTOR(bias_grad)(const struct weir__op_call *call) {
    return share_columns(call, call->shape->out, sum_bias);
}

/** Sums of dy * normalised x and of dy over the rows, for the columns from `first` on. */
struct norm_column_sums {
    vfloat weight[COLUMN_VECTORS], bias[COLUMN_VECTORS];
};

VECTOR_INLINE void add_column(struct norm_column_sums *sums, int v, vfloat dy, vfloat x, float mean,
                              float rstd) {
    sums->weight[v] = v_fma(dy, (x - mean) * rstd, sums->weight[v]);
    sums->bias[v] += dy;
}

VECTOR_INLINE void sum_columns(const struct weir__op_call *call, int64_t first, const bool whole,
                               struct norm_column_sums *sums) {
    int64_t width = call->shape->width, count = token_count(call);
    const number *dy = (const number *)call->in[0] + first;
    const number *x = (const number *)call->in[1] + first;
    const float *means = call->in[2], *rstds = call->in[3];
    for (int64_t m = 0; m < count; m++, dy += width, x += width) {
        V_UNROLL
        for (int v = 0; v < COLUMN_VECTORS; v++) {
            int64_t at = v * LANES, lanes = whole ? LANES : lanes_from(first + at, width);
            add_column(sums, v, whole ? v_load(dy + at) : v_load_some(dy + at, lanes),
                       whole ? v_load(x + at) : v_load_some(x + at, lanes), means[m], rstds[m]);
        }
    }
}

static void sum_norm(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    int64_t width = call->shape->width, j = (int64_t)part * COLUMNS;
    float *dweight = call->out[0], *dbias = call->out[1];
    struct norm_column_sums sums;
    (void)member;
    memset(&sums, 0, sizeof sums);
    if (j + COLUMNS <= width)
        sum_columns(call, j, true, &sums);
    else
        sum_columns(call, j, false, &sums);
    V_UNROLL
    for (int v = 0; v < COLUMN_VECTORS; v++) {
        int64_t at = j + v * LANES, lanes = lanes_from(at, width);
        deliver(dweight + at, sums.weight[v], lanes, call->overwrite);
        deliver(dbias + at, sums.bias[v], lanes, call->overwrite);
    }
}

int VECTOR(layer_norm_grad_weight)(const struct weir__op_call *call) {
    return share_columns(call, call->shape->width, sum_norm);
}

/** Sums of dy * x / rms over the rows. */
static void sum_rms(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    const float *rstds = call->in[2];
    int64_t width = call->shape->width, count = token_count(call), j = (int64_t)part * COLUMNS;
    const number *dy = (const number *)call->in[0] + j, *x = (const number *)call->in[1] + j;
    vfloat sum[COLUMN_VECTORS] = {v_all(0), v_all(0), v_all(0), v_all(0)};
    (void)member;
    for (int64_t m = 0; m < count; m++, dy += width, x += width) {
        V_UNROLL
        for (int v = 0; v < COLUMN_VECTORS; v++) {
            int64_t at = v * LANES, lanes = lanes_from(j + at, width);
            vfloat normal = v_load_some(x + at, lanes) * rstds[m];
            sum[v] = v_fma(v_load_some(dy + at, lanes), normal, sum[v]);
        }
    }
    V_UNROLL
    for (int v = 0; v < COLUMN_VECTORS; v++)
        deliver((float *)call->out[0] + j + v * LANES, sum[v], lanes_from(j + v * LANES, width),
                call->overwrite);
}

int VECTOR(rms_norm_grad_weight)(const struct weir__op_call *call) {
    return share_columns(call, call->shape->width, sum_rms);
}

/** The sum of pull over the rows, times query and times weight. */
static void sum_pulls(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    int64_t width = call->shape->width, count = token_count(call), j = (int64_t)part * COLUMNS;
    const float *pull = (const float *)call->in[0] + j, *weight = call->in[1], *query = call->in[2];
    float *dweight = call->out[0], *dquery = call->out[1];
    vfloat sum[COLUMN_VECTORS] = {v_all(0), v_all(0), v_all(0), v_all(0)};
    (void)member;
    for (int64_t m = 0; m < count; m++, pull += width) {
        V_UNROLL
        for (int v = 0; v < COLUMN_VECTORS; v++)
            sum[v] += v_load_some(pull + v * LANES, lanes_from(j + v * LANES, width));
    }
    V_UNROLL
    for (int v = 0; v < COLUMN_VECTORS; v++) {
        int64_t at = j + v * LANES, lanes = lanes_from(at, width);
        deliver(dweight + at, sum[v] * v_load_some(query + at, lanes), lanes, call->overwrite);
        deliver(dquery + at, sum[v] * v_load_some(weight + at, lanes), lanes, call->overwrite);
    }
}

int VECTOR(residual_mix_grad_weight)(const struct weir__op_call *call) {
    return share_columns(call, call->shape->width, sum_pulls);
}
