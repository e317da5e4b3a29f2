/* SPDX-License-Identifier: MIT */
/*
 * Attention of single tokens over what a cache keeps: the inner loop of text generation, bound by
 * reading the cache. So keys, then values, are walked once each in the order in which they lie,
 * all heads of a place at once.
 */
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

/** One row's query against its sequence. */
struct query {
    int64_t width, heads, size;
    int64_t group, half; /* heads that share keys; numbers of a place's keys, D */
    int64_t places;      /* that it sees */
    const number *at;    /* (C) */
    const number *cache; /* (places, 2D) */
    float *scores;       /* (heads, places) */
    float *sums;         /* (C) */
};

int VECTOR(measure_attention_cached)(const struct weir__op_shape *shape, size_t *workspace) {
    size_t scores = (size_t)shape->heads * (size_t)shape->table;
    *workspace = (scores + (size_t)shape->width) * sizeof(float);
    return WEIR_OK;
}

static void make_scores(const struct query *query) {
    assert(query->places >= 1 && query->heads * query->size == query->width);
    float scale = 1 / sqrtf((float)query->size);
    const number *key = query->cache;
    for (int64_t j = 0; j < query->places; j++, key += 2 * query->half)
        for (int64_t h = 0; h < query->heads; h++)
            query->scores[h * query->places + j] =
                row_product(query->at + h * query->size, key + h / query->group * query->size,
                            query->size) *
                scale;
}

/** Scores become shares of 1. */
static void share_out(const struct query *query) {
    for (int64_t h = 0; h < query->heads; h++) {
        float *p = query->scores + h * query->places;
        float largest = row_largest(p, sizeof *p, query->places);
        float sum = row_exponentials(p, sizeof *p, largest, query->places, p);
        for (int64_t j = 0; j < query->places; j++) p[j] /= sum;
    }
}

enum { VALUES_AT_ONCE = 4 };

/** sums (size) += the `count` values of one head from place `first` on, in ascending order. */
VECTOR_INLINE void add_values(const struct query *query, int64_t head, int64_t first,
                              const int64_t count, float *sums) {
    assert(head < query->heads && first + count <= query->places);
    const number *value =
        query->cache + (2 * first + 1) * query->half + head / query->group * query->size;
    const float *p = query->scores + head * query->places + first;
    for (int64_t i = 0; i < query->size; i += LANES) {
        int64_t lanes = query->size - i < LANES ? query->size - i : LANES;
        vfloat sum = v_load_some(sums + i, lanes);
        for (int64_t j = 0; j < count; j++)
            sum = v_fma(v_all(p[j]), v_load_some(value + 2 * j * query->half + i, lanes), sum);
        v_store_some(sums + i, sum, lanes);
    }
}

static void weigh_values(const struct query *query, number *y) {
    int64_t j = 0;
    memset(query->sums, 0, (size_t)query->width * sizeof(float));
    for (; j + VALUES_AT_ONCE <= query->places; j += VALUES_AT_ONCE)
        for (int64_t h = 0; h < query->heads; h++)
            add_values(query, h, j, VALUES_AT_ONCE, query->sums + h * query->size);
    for (; j < query->places; j++)
        for (int64_t h = 0; h < query->heads; h++)
            add_values(query, h, j, 1, query->sums + h * query->size);
    row_narrow(y, query->sums, query->width);
}

/** Keys and values of all rows' tokens go to their places. */
static void keep_rows(const struct weir__op_call *call, int64_t half) {
    const struct weir__op_shape *shape = call->shape;
    const uint32_t *sequence = call->places->sequence + call->row_first;
    const uint32_t *place = call->places->place + call->row_first;
    for (int64_t r = 0; r < shape->rows; r++) {
        assert(place[r] < shape->table);
        struct weir__head_place at = weir__head_place(shape, r, 0);
        number *to = (number *)call->cache + (sequence[r] * shape->table + place[r]) * 2 * half;
        memcpy(to, (const number *)call->in[at.k_operand] + at.k, (size_t)half * sizeof(number));
        memcpy(to + half, (const number *)call->in[at.v_operand] + at.v,
               (size_t)half * sizeof(number));
    }
}

int VECTOR(attention_cached)(const struct weir__op_call *call) {
    assert(call->places != NULL);
    const struct weir__op_shape *shape = call->shape;
    const uint32_t *sequence = call->places->sequence + call->row_first;
    const uint32_t *place = call->places->place + call->row_first;
    int64_t group = weir__head_group(shape), half = shape->width / group;
    float *scores = call->workspace;
    keep_rows(call, half);
    for (int64_t r = 0; r < shape->rows; r++) {
        int64_t first = weir__keys_first(shape, place[r]);
        const struct query query = {
            .width = shape->width,
            .heads = shape->heads,
            .size = shape->width / shape->heads,
            .group = group,
            .half = half,
            .places = (int64_t)place[r] + 1 - first,
            .at = (const number *)call->in[0] + weir__head_place(shape, r, 0).q,
            .cache = (const number *)call->cache + (sequence[r] * shape->table + first) * 2 * half,
            .scores = scores,
            .sums = scores + shape->heads * shape->table};
        make_scores(&query);
        share_out(&query);
        weigh_values(&query, (number *)call->out[0] + r * shape->width);
    }
    return WEIR_OK;
}
