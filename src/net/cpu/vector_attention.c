/* SPDX-License-Identifier: MIT */
/*
 * Attention forward, a block of 32 queries at a time:
 *   scores (keys, 32) = k (keys, size) * q^T, q scaled and packed as a panel;
 *   softmax down the keys, lane by lane;
 *   y (32, size) = p^T * v, 128 keys at a time so that both stay in the first cache.
 * Keys that no query of the block sees are never touched. v is packed once per head: in qkv its
 * rows lie 3C apart, which for usual widths falls on few sets of the cache.
 */
#include "net/cpu/attention.h"
#include "net/cpu/vector_calls.h"

#include <math.h>

enum { KEYS_AT_ONCE = 128 };

struct weir__head VECTOR(head_of)(const struct weir__op_shape *shape) {
    assert(shape->heads >= 1 && shape->width % shape->heads == 0);
    int64_t size = shape->width / shape->heads;
    return (struct weir__head){.tokens = shape->tokens,
                               .width = shape->width,
                               .size = size,
                               .padded = (size + LANES - 1) / LANES * LANES,
                               .sees_all = shape->sees_all,
                               .reach = shape->reach < shape->tokens ? shape->reach : 0,
                               .scale = 1 / sqrtf((float)size)};
}

double VECTOR(attention_work)(const struct weir__op_shape *shape) {
    double tokens = (double)shape->tokens;
    return (double)shape->rows * tokens * tokens * (double)shape->width;
}

void VECTOR(head_takes_documents)(struct weir__head *head, const struct weir__op_shape *shape,
                                  const void *const *in, int64_t row) {
    assert(head->tokens == shape->tokens);
    if (shape->packed) head->documents = (const int64_t *)in[0] + (2 * row + 1) * head->tokens;
}

struct weir__head_documents VECTOR(head_documents)(const struct weir__head *head, int64_t first) {
    struct weir__head_documents documents = {0};
    int64_t queries = VECTOR(head_queries)(head, first);
    if (head->documents == NULL) return documents;
    for (int64_t q = 0; q < queries; q++)
        documents.first[q] = (int32_t)(head->documents[first + q] - first);
    documents.last = head->documents[first + queries - 1];
    return documents;
}

int64_t VECTOR(head_keys_first)(const struct weir__head *head, int64_t first) {
    int64_t key = head->reach > 0 && first >= head->reach ? first + 1 - head->reach : 0;
    if (head->documents == NULL || head->documents[first] < key) return key;
    return head->documents[first];
}

int64_t VECTOR(head_keys)(const struct weir__head *head, int64_t first) {
    assert(first >= 0 && first < head->tokens);
    return head->sees_all ? head->tokens : first + VECTOR(head_queries)(head, first);
}

int64_t VECTOR(head_queries)(const struct weir__head *head, int64_t first) {
    return first + WEIR__PANEL < head->tokens ? WEIR__PANEL : head->tokens - first;
}

void VECTOR(head_pack)(const struct weir__head *head, const number *vectors, float *to) {
    VECTOR(panel_pack)
    (to, head->padded, head->padded, vectors, head->kv_step, head->size, head->tokens, 1);
}

struct weir__head_rows VECTOR(head_rows)(const struct weir__head *head, const number *vectors,
                                         float *room) {
    if (sizeof *vectors == sizeof *room)
        return (struct weir__head_rows){(const void *)vectors, head->kv_step};
    VECTOR(head_pack)(head, vectors, room);
    return (struct weir__head_rows){room, head->padded};
}

void VECTOR(head_product)(const struct weir__head *head, const struct weir__panel *panel) {
    assert(head->padded % LANES == 0);
    struct weir__panel part = *panel;
    for (int64_t j = 0; j < head->padded; j += WEIR__PANEL) {
        part.b = panel->b + j;
        part.c = panel->c + j;
        part.columns = head->padded - j < WEIR__PANEL ? head->padded - j : WEIR__PANEL;
        VECTOR_F32(panel_product)(&part);
    }
}

/* ---- workspace ---- */

struct forward_areas {
    float *values;  /* (T, padded) */
    float *keys;    /* the same, where they are packed */
    float *queries; /* a panel: (size, 32) */
    float *scores;  /* (T, 32) */
    float *y;       /* (32, padded) */
};

static size_t lay_out(const struct weir__head *head, float *memory, struct forward_areas *areas) {
    size_t tokens = (size_t)head->tokens, padded = (size_t)head->padded;
    size_t values = 0, keys = values + tokens * padded;
    size_t queries = keys + (sizeof(number) < sizeof(float) ? tokens * padded : 0);
    size_t scores = queries + (size_t)head->size * WEIR__PANEL;
    size_t y = scores + tokens * WEIR__PANEL, end = y + WEIR__PANEL * padded;
    if (memory != NULL)
        *areas = (struct forward_areas){memory + values, memory + keys, memory + queries,
                                        memory + scores, memory + y};
    return end;
}

int VECTOR(measure_attention)(const struct weir__op_shape *shape, size_t *workspace) {
    struct weir__head head = VECTOR(head_of)(shape);
    bool fits =
        weir__multiply(lay_out(&head, NULL, NULL), shape->threads * sizeof(float), workspace);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/* ---- a block of queries ---- */

/** The keys that a block of queries sees: scores lie from the first one on. */
struct seen {
    int64_t first, count;
};

/** The largest score of each query; scores of keys that a query may not see become -infinity. */
VECTOR_INLINE void mask_and_find(const struct weir__head *head, float *scores, int64_t first,
                                 const struct seen *keys, vfloat largest[2]) {
    assert(first < keys->first + keys->count);
    const struct weir__head_documents documents = VECTOR(head_documents)(head, first);
    const vfloat never = v_all(-INFINITY);
    largest[0] = largest[1] = never;
    for (int64_t j = 0; j < keys->count; j++) {
        V_UNROLL
        for (int half = 0; half < 2; half++) {
            float *at = scores + j * WEIR__PANEL + half * LANES;
            vfloat score = v_load(at);
            int64_t key = keys->first + j;
            if (weir__head_masks(head, &documents, first, key)) {
                vint mask = weir__head_mask(head, &documents, first, half, key);
                score = v_select(mask, score, never);
                v_store(at, score);
            }
            largest[half] = v_max(score, largest[half]);
        }
    }
}

/** Scores become exp(score - largest); returns their sums. */
VECTOR_INLINE void exponentials(float *scores, int64_t keys, const vfloat largest[2],
                                vfloat sums[2]) {
    sums[0] = sums[1] = v_all(0);
    for (int64_t j = 0; j < keys; j++) {
        V_UNROLL
        for (int half = 0; half < 2; half++) {
            float *at = scores + j * WEIR__PANEL + half * LANES;
            vfloat p = v_exp(v_load(at) - largest[half]);
            sums[half] += p;
            v_store(at, p);
        }
    }
}

/** y (queries, size) = exponentials^T * v / sums. */
static void weigh_values(const struct weir__head *head, const struct forward_areas *areas,
                         const struct seen *keys, int64_t queries, const float *sums, number *y) {
    for (int64_t j = 0; j < keys->count; j += KEYS_AT_ONCE) {
        int64_t left = keys->count - j;
        struct weir__panel panel = {.a = areas->scores + j * WEIR__PANEL,
                                    .a_row = 1,
                                    .a_step = WEIR__PANEL,
                                    .b = areas->values + (keys->first + j) * head->padded,
                                    .b_row = head->padded,
                                    .c = areas->y,
                                    .c_row = head->padded,
                                    .rows = queries,
                                    .depth = left < KEYS_AT_ONCE ? left : KEYS_AT_ONCE,
                                    .mode = j == 0 ? WEIR__PANEL_SET : WEIR__PANEL_CHAIN};
        VECTOR(head_product)(head, &panel);
    }
    for (int64_t r = 0; r < queries; r++) {
        const float *from = areas->y + r * head->padded;
        float share = 1 / sums[r];
        for (int64_t i = 0; i < head->size; i += LANES)
            v_store_some(y + r * head->width + i, v_load(from + i) * share,
                         head->size - i < LANES ? head->size - i : LANES);
    }
}

static void attend_block(const struct weir__head *head, const struct forward_areas *areas,
                         int64_t first, number *y, float *lse) {
    assert(first % WEIR__PANEL == 0);
    int64_t queries = VECTOR(head_queries)(head, first);
    int64_t from = VECTOR(head_keys_first)(head, first);
    const struct seen keys = {from, VECTOR(head_keys)(head, first) - from};
    VECTOR(panel_pack_rows)
    (areas->queries, WEIR__PANEL, head->q + first * head->step, head->step, queries, head->size,
     head->scale);
    struct weir__panel panel = {.a = head->keys.at + keys.first * head->keys.step,
                                .a_row = head->keys.step,
                                .a_step = 1,
                                .b = areas->queries,
                                .b_row = WEIR__PANEL,
                                .c = areas->scores,
                                .c_row = WEIR__PANEL,
                                .rows = keys.count,
                                .depth = head->size,
                                .columns = WEIR__PANEL,
                                .mode = WEIR__PANEL_SET};
    VECTOR_F32(panel_product)(&panel);

    vfloat largest[2], sums[2];
    float total[2 * LANES];
    mask_and_find(head, areas->scores, first, &keys, largest);
    exponentials(areas->scores, keys.count, largest, sums);
    for (int half = 0; half < 2; half++) {
        int64_t left = queries - half * LANES;
        v_store(total + half * LANES, sums[half]);
        v_store_some(lse + half * LANES, largest[half] + v_log(sums[half]),
                     left < 0       ? 0
                     : left < LANES ? left
                                    : LANES);
    }
    weigh_values(head, areas, &keys, queries, total, y);
}

void VECTOR(head_stands)(struct weir__head *head, const struct weir__head_place *at,
                         const void *const *in) {
    head->step = at->step;
    head->kv_step = at->kv_step;
    head->q = (const number *)in[0] + at->q;
    head->k = (const number *)in[at->k_operand] + at->k;
    head->v = (const number *)in[at->v_operand] + at->v;
}

/** One head of one row. */
static void attend_head(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    const struct weir__op_shape *shape = call->shape;
    struct weir__head head = VECTOR(head_of)(shape);
    struct forward_areas areas = {0};
    lay_out(&head, (float *)call->workspace + member * lay_out(&head, NULL, NULL), &areas);
    struct weir__head_place at = weir__head_place(shape, part / shape->heads, part % shape->heads);
    VECTOR(head_stands)(&head, &at, call->in);
    VECTOR(head_takes_documents)
    (&head, shape, call->in + at.v_operand + 1, part / shape->heads);
    float *lse = (float *)call->out[1] + part * head.tokens;
    number *y = (number *)call->out[0] + at.y;
    head.keys = VECTOR(head_rows)(&head, head.k, areas.keys);
    VECTOR(head_pack)(&head, head.v, areas.values);
    for (int64_t first = 0; first < head.tokens; first += WEIR__PANEL)
        attend_block(&head, &areas, first, y + first * head.width, lse + first);
}

int VECTOR(attention)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    weir__share(call, shape->rows * shape->heads, VECTOR(attention_work)(shape), attend_head,
                (void *)(uintptr_t)call);
    return WEIR_OK;
}
