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

/** Of a part: tokens, columns; and parts of a table's rows. */
enum { PART_TOKENS = 16, PART_COLUMNS = 128, TABLE_PARTS = 256 };

static int64_t parts_of(int64_t count, int64_t part) {
    return (count + part - 1) / part;
}

static void copy_part(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    const struct weir__op_shape *shape = call->shape;
    int64_t width = shape->out, count = shape->rows * shape->tokens;
    int64_t first = (int64_t)part * PART_TOKENS;
    (void)member;
    for (int64_t m = first; m < count && m < first + PART_TOKENS; m++) {
        int64_t token = weir__token_number(shape, call->in[0], m);
        row_narrow((number *)call->out[0] + m * width, (const float *)call->in[1] + token * width,
                   width);
    }
}

int VECTOR(embedding)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    int64_t count = shape->rows * shape->tokens;
    for (int64_t m = 0; m < count; m++) {
        int64_t token = weir__token_number(shape, call->in[0], m);
        if (token < 0 || token >= shape->in)
            return weir__index_error(call, "token", m, token, shape->in);
    }
    int status = weir__check_documents(call);
    if (status != WEIR_OK) return status;
    weir__share(call, parts_of(count, PART_TOKENS),
                WEIR__SHARED_NUMBER * (double)count * (double)shape->out, copy_part,
                (void *)(uintptr_t)call);
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
    memset(first, 0xff, (size_t)shape->in * sizeof(int64_t));
    for (int64_t m = shape->rows * shape->tokens - 1; m >= 0; m--) {
        int64_t token = weir__token_number(shape, call->in[0], m);
        if (token < 0 || token >= shape->in)
            return weir__index_error(call, "token", m, token, shape->in);
        next[m] = first[token];
        first[token] = m;
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

/** A row of the table, its columns from `first` up to `end`; `m` begins its chain. */
static void add_chain(const struct weir__op_call *call, const int64_t *next, int64_t m, float *to,
                      int64_t first, int64_t end) {
    const number *dy = call->in[1];
    int64_t width = call->shape->out, i = first;
    if (m < 0 && call->overwrite) memset(to + first, 0, (size_t)(end - first) * sizeof *to);
    if (m < 0) return;
    for (; i + LANES <= end; i += LANES) {
        vfloat sum = chain_sum(dy + i, next, m, width, LANES, true);
        v_store(to + i, call->overwrite ? sum : v_load(to + i) + sum);
    }
    if (i == end) return;
    vfloat sum = chain_sum(dy + i, next, m, width, end - i, false);
    if (!call->overwrite) sum = v_load_some(to + i, end - i) + sum;
    v_store_some(to + i, sum, end - i);
}

/** Some rows of the table, some columns: a token that is everywhere is several threads' too. */
static void add_part(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    const struct weir__op_shape *shape = call->shape;
    const int64_t *first = call->workspace;
    int64_t width = shape->out, across = parts_of(width, PART_COLUMNS);
    int64_t rows = parts_of(shape->in, TABLE_PARTS), v = part / across * rows;
    int64_t begin = part % across * PART_COLUMNS, end = begin + PART_COLUMNS;
    int64_t last = v + rows < shape->in ? v + rows : shape->in;
    (void)member;
    for (; v < last; v++)
        add_chain(call, first + shape->in, first[v], (float *)call->out[0] + v * width, begin,
                  end < width ? end : width);
}

int VECTOR(embedding_grad)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    int64_t *first = call->workspace, *next = first + shape->in;
    int64_t parts = parts_of(shape->in, parts_of(shape->in, TABLE_PARTS));
    int status = chain_tokens(call, first, next);
    if (status != WEIR_OK) return status;
    double numbers = (double)(shape->rows * shape->tokens + shape->in) * (double)shape->out;
    weir__share(call, parts * parts_of(shape->out, PART_COLUMNS), WEIR__SHARED_NUMBER * numbers,
                add_part, (void *)(uintptr_t)call);
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
static void add_positions(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    const struct weir__op_shape *shape = call->shape;
    float *to = call->out[0];
    int64_t used = shape->tokens * shape->width, first = (int64_t)part * PART_COLUMNS;
    (void)member;
    for (int64_t i = first; i < used && i < first + PART_COLUMNS; i += LANES) {
        const number *dy = (const number *)call->in[0] + i;
        int64_t count = used - i < LANES ? used - i : LANES;
        vfloat sum = v_all(0);
        for (int64_t r = 0; r < shape->rows; r++) sum += v_load_some(dy + r * used, count);
        if (!call->overwrite) sum = v_load_some(to + i, count) + sum;
        v_store_some(to + i, sum, count);
    }
}

int VECTOR(position_grad)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    int64_t used = shape->tokens * shape->width;
    assert(shape->tokens <= shape->table);
    weir__share(call, parts_of(used, PART_COLUMNS),
                WEIR__SHARED_NUMBER * (double)(shape->rows * used), add_positions,
                (void *)(uintptr_t)call);
    if (call->overwrite)
        memset((float *)call->out[0] + used, 0,
               (size_t)(shape->table * shape->width - used) * sizeof(float));
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
