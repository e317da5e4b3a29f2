/* SPDX-License-Identifier: MIT */
/* Tables: rows are copied and added whole. */
#include "net/cpu/rows.h"
#include "net/cpu/vector_calls.h"

/** to = a + b. */
static void add_rows(number *to, const number *a, const float *b, int64_t count) {
    assert(count >= 0);
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) v_store(to + i, v_load(a + i) + v_load(b + i));
    if (i < count)
        v_store_some(to + i, v_load_some(a + i, count - i) + v_load_some(b + i, count - i),
                     count - i);
}

int VECTOR(embedding)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const int64_t *index = call->in[0];
    const float *table = call->in[1];
    number *y = call->out[0];
    int64_t width = shape->out, count = shape->rows * shape->tokens;
    for (int64_t m = 0; m < count; m++, y += width) {
        if (index[m] < 0 || index[m] >= shape->in)
            return weir__index_error(call, "token", m, index[m], shape->in);
        row_narrow(y, table + index[m] * width, width);
    }
    return WEIR_OK;
}

/* ---- the embedding's gradient ---- */

int VECTOR(measure_embedding_grad)(const struct weir__op_shape *shape, size_t *workspace) {
    size_t numbers = (size_t)shape->in + (size_t)(shape->rows * shape->tokens);
    *workspace = numbers * sizeof(int64_t);
    return WEIR_OK;
}

/** Chains the tokens of each row of the table, ascending: first[row], then next[token]; -1 ends. */
static int chain_tokens(const struct weir__op_call *call, int64_t *first, int64_t *next) {
    assert(next == first + call->shape->in);
    const struct weir__op_shape *shape = call->shape;
    const int64_t *index = call->in[0];
    memset(first, 0xff, (size_t)shape->in * sizeof(int64_t));
    for (int64_t m = shape->rows * shape->tokens - 1; m >= 0; m--) {
        if (index[m] < 0 || index[m] >= shape->in)
            return weir__index_error(call, "token", m, index[m], shape->in);
        next[m] = first[index[m]];
        first[index[m]] = m;
    }
    return WEIR_OK;
}

/** The sum of dy's rows along a chain, for one vector of columns. */
VECTOR_INLINE vfloat chain_sum(const number *dy, const int64_t *next, int64_t m, int64_t width,
                               int64_t count, const bool whole) {
    vfloat sum = v_all(0);
    for (; m >= 0; m = next[m])
        sum += whole ? v_load(dy + m * width) : v_load_some(dy + m * width, count);
    return sum;
}

int VECTOR(embedding_grad)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    const number *dy = call->in[1];
    float *to = call->out[0];
    int64_t width = shape->out, *first = call->workspace, *next = first + shape->in;
    int status = chain_tokens(call, first, next);
    if (status != WEIR_OK) return status;
    for (int64_t v = 0; v < shape->in; v++, to += width) {
        if (first[v] < 0) {
            if (call->overwrite) memset(to, 0, (size_t)width * sizeof(float));
            continue;
        }
        int64_t i = 0;
        for (; i + LANES <= width; i += LANES) {
            vfloat sum = chain_sum(dy + i, next, first[v], width, LANES, true);
            v_store(to + i, call->overwrite ? sum : v_load(to + i) + sum);
        }
        if (i == width) continue;
        vfloat sum = chain_sum(dy + i, next, first[v], width, width - i, false);
        if (!call->overwrite) sum = v_load_some(to + i, width - i) + sum;
        v_store_some(to + i, sum, width - i);
    }
    return WEIR_OK;
}

/* ---- positions ---- */

int VECTOR(position_add)(const struct weir__op_call *call) {
    assert(call->shape->tokens <= call->shape->table);
    int64_t count = call->shape->tokens * call->shape->width;
    for (int64_t r = 0; r < call->shape->rows; r++)
        add_rows((number *)call->out[0] + r * count, (const number *)call->in[0] + r * count,
                 call->in[1], count);
    return WEIR_OK;
}

/** Positions are one flat array here: each number is a sum over rows of the micro-batch. */
int VECTOR(position_grad)(const struct weir__op_call *call) {
    assert(call->shape->tokens <= call->shape->table);
    const struct weir__op_shape *shape = call->shape;
    float *to = call->out[0];
    int64_t used = shape->tokens * shape->width;
    for (int64_t i = 0; i < used; i += LANES) {
        const number *dy = (const number *)call->in[0] + i;
        int64_t count = used - i < LANES ? used - i : LANES;
        vfloat sum = v_all(0);
        for (int64_t r = 0; r < shape->rows; r++) sum += v_load_some(dy + r * used, count);
        if (!call->overwrite) sum = v_load_some(to + i, count) + sum;
        v_store_some(to + i, sum, count);
    }
    if (call->overwrite)
        memset(to + used, 0, (size_t)(shape->table * shape->width - used) * sizeof(float));
    return WEIR_OK;
}

int VECTOR(position_cached)(const struct weir__op_call *call) {
    assert(call->places != NULL);
    int64_t width = call->shape->width;
    const uint32_t *place = call->places->place + call->row_first;
    for (int64_t r = 0; r < call->shape->rows; r++) {
        assert(place[r] < call->shape->table);
        add_rows((number *)call->out[0] + r * width, (const number *)call->in[0] + r * width,
                 (const float *)call->in[1] + place[r] * width, width);
    }
    return WEIR_OK;
}
