/* SPDX-License-Identifier: MIT */
/*
 * Block attention residuals. A token's sources, some 4 KB each, are read twice, the second time
 * from the first cache: once for the products of whole vectors, then number by number. Products are
 * summed in two vectors of partial sums, sources in ascending order.
 */
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

#include <math.h>

int VECTOR(measure_residual_mix)(const struct weir__op_shape *shape, size_t *workspace) {
    *workspace = (size_t)shape->width * sizeof(float);
    return WEIR_OK;
}

/** weight * query, in the workspace. */
static const float *direction_of(const struct weir__op_call *call, const float *weight,
                                 const float *query) {
    float *direction = call->workspace;
    int64_t width = call->shape->width;
    for (int64_t i = 0; i < width; i += LANES) {
        int64_t lanes = lanes_from(i, width);
        v_store_some(direction + i, v_load_some(weight + i, lanes) * v_load_some(query + i, lanes),
                     lanes);
    }
    return direction;
}

struct pair {
    float first, second;
};

/** x . a and x . b */
VECTOR_INLINE struct pair products(const number *x, const number *a, const float *b,
                                   int64_t width) {
    vfloat first[2] = {v_all(0), v_all(0)}, second[2] = {v_all(0), v_all(0)};
    int64_t i = 0;
    for (; i + 2 * LANES <= width; i += 2 * LANES) {
        V_UNROLL
        for (int v = 0; v < 2; v++) {
            vfloat of_x = v_load(x + i + v * LANES);
            first[v] = v_fma(of_x, v_load(a + i + v * LANES), first[v]);
            second[v] = v_fma(of_x, v_load(b + i + v * LANES), second[v]);
        }
    }
    for (; i < width; i += LANES) {
        int64_t lanes = lanes_from(i, width);
        vfloat of_x = v_load_some(x + i, lanes);
        first[0] = v_fma(of_x, v_load_some(a + i, lanes), first[0]);
        second[0] = v_fma(of_x, v_load_some(b + i, lanes), second[0]);
    }
    return (struct pair){v_sum(first[0] + first[1]), v_sum(second[0] + second[1])};
}

/** Logits become shares. */
VECTOR_INLINE void take_shares(float *share, int64_t count) {
    float largest = row_largest(share, sizeof share[0], count);
    float scale = 1 / row_exponentials(share, sizeof share[0], largest, count, share);
    for (int64_t s = 0; s < count; s++) share[s] *= scale;
}

/** Numbers `at` … of the sources' sum. */
VECTOR_INLINE vfloat mixed(const number *const *sources, const float *share, int64_t count,
                           int64_t at, int64_t lanes) {
    vfloat sum = v_load_some(sources[0] + at, lanes) * share[0];
    for (int64_t s = 1; s < count; s++)
        sum = v_fma(v_load_some(sources[s] + at, lanes), v_all(share[s]), sum);
    return sum;
}

int VECTOR(residual_mix)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const number *const *sources = (const number *const *)call->in + 2;
    const float *direction = direction_of(call, call->in[0], call->in[1]);
    number *y = call->out[0];
    float *share = call->out[1], *rstd = call->out[2];
    int64_t width = shape->width, count = shape->sources, tokens = token_count(call);
    assert(count >= 1 && count <= WEIR__SOURCES_MAX);
    for (int64_t m = 0; m < tokens; m++, share += count, rstd += count) {
        int64_t first = m * width, i = 0;
        for (int64_t s = 0; s < count; s++) {
            const number *x = sources[s] + first;
            struct pair sums = products(x, x, direction, width);
            rstd[s] = row_rstd(x, sums.first, width, shape->eps);
            share[s] = sums.second * rstd[s];
        }
        take_shares(share, count);
        for (; i + LANES <= width; i += LANES)
            v_store(y + first + i, mixed(sources, share, count, first + i, LANES));
        if (i < width)
            v_store_some(y + first + i, mixed(sources, share, count, first + i, width - i),
                         width - i);
    }
    return WEIR_OK;
}

/* ---- gradients ---- */

/** What a token's gradients are made of, by source: dx = share * dy + slope * direction - inward *
 * x. */
struct token {
    float slope[WEIR__SOURCES_MAX], inward[WEIR__SOURCES_MAX];
};

VECTOR_INLINE void make_token(struct token *token, const number *dy, const number *const *sources,
                              int64_t first, const float *share, const float *rstd,
                              const float *direction, const struct weir__op_shape *shape) {
    float mean = 0;
    for (int64_t s = 0; s < shape->sources; s++) {
        struct pair sums = products(sources[s] + first, dy, direction, shape->width);
        token->slope[s] = sums.first;
        token->inward[s] = sums.second * rstd[s] * rstd[s] / (float)shape->width;
        mean += share[s] * sums.first;
    }
    for (int64_t s = 0; s < shape->sources; s++) {
        token->slope[s] = share[s] * (token->slope[s] - mean) * rstd[s];
        token->inward[s] *= token->slope[s];
    }
}

/** Numbers i … of all sources' gradients; returns those of pull. */
VECTOR_INLINE vfloat give(const struct weir__op_call *call, const struct token *token,
                          const float *share, vfloat dy, vfloat direction, int64_t at,
                          int64_t lanes) {
    int64_t count = call->shape->sources;
    const number *const *sources = (const number *const *)call->in + 5, *const * sums;
    number *const *dx = (number *const *)call->out + 1;
    vfloat pull = v_all(0);
    sums = sources + count;
    for (int64_t s = 0; s < count; s++) {
        vfloat x = v_load_some(sources[s] + at, lanes), slope = v_all(token->slope[s]);
        vfloat own = v_fma(slope, direction, dy * share[s]);
        own = v_fma(x, v_all(-token->inward[s]), own);
        pull = v_fma(slope, x, pull);
        if (sums[s] != NULL) own += v_load_some(sums[s] + at, lanes);
        v_store_some(dx[s] + at, own, lanes);
    }
    return pull;
}

int VECTOR(residual_mix_grad)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const number *dy = call->in[0], *const *sources = (const number *const *)call->in + 5;
    const float *share = call->in[1], *rstd = call->in[2];
    const float *direction = direction_of(call, call->in[3], call->in[4]);
    float *pull = call->out[0];
    struct token token;
    int64_t width = shape->width, count = shape->sources, tokens = token_count(call);
    assert(count >= 1 && count <= WEIR__SOURCES_MAX);
    for (int64_t m = 0; m < tokens; m++, share += count, rstd += count) {
        int64_t first = m * width, i = 0;
        make_token(&token, dy + first, sources, first, share, rstd, direction, shape);
        for (; i + LANES <= width; i += LANES)
            v_store(pull + first + i, give(call, &token, share, v_load(dy + first + i),
                                           v_load(direction + i), first + i, LANES));
        if (i >= width) continue;
        int64_t lanes = width - i;
        v_store_some(pull + first + i,
                     give(call, &token, share, v_load_some(dy + first + i, lanes),
                          v_load_some(direction + i, lanes), first + i, lanes),
                     lanes);
    }
    return WEIR_OK;
}
