/* SPDX-License-Identifier: MIT */
/*
 * Attention backward: scores are made again, block by block, from q, k and lse. For a block
 * of 32 queries and a chunk of 64 keys, all lying key by key:
 *   p = exp(k q^T - lse),  ds = p * (v dy^T - delta),  delta = rowsum(dy * y)
 *   dv += p dy,  dk += ds q,  dq += ds^T k
 * q is scaled when it is packed, which scales dk too; dq is scaled when it is written. dk and dv
 * are summed in workspace over ascending blocks of queries.
 */
#include "net/cpu/attention.h"
#include "net/cpu/vector_calls.h"

#include <math.h>

enum { KEYS_AT_ONCE = 64 };

struct grad_areas {
    float *keys, *dkeys, *dvalues;  /* (T, padded) */
    float *values;                  /* the same, where they are packed */
    float *query_panel, *dy_panel;  /* (size, 32): queries in lanes */
    float *queries, *dy, *dqueries; /* (32, padded) */
    float *p, *dscores;             /* (KEYS_AT_ONCE, 32) */
};

static size_t lay_out(const struct weir__head *head, float *memory, struct grad_areas *areas) {
    size_t all = (size_t)(head->tokens * head->padded), panel = (size_t)head->size * WEIR__PANEL;
    size_t block = (size_t)head->padded * WEIR__PANEL, scores = KEYS_AT_ONCE * WEIR__PANEL;
    size_t values = sizeof(number) < sizeof(float) ? all : 0;
    if (memory != NULL) {
        float **const members[] = {&areas->keys,    &areas->dkeys, &areas->dvalues,
                                   &areas->queries, &areas->dy,    &areas->dqueries};
        for (size_t i = 0; i < WEIR__COUNT_OF(members); i++) {
            *members[i] = memory;
            memory += i < 3 ? all : block;
        }
        areas->query_panel = memory;
        areas->dy_panel = areas->query_panel + panel;
        areas->p = areas->dy_panel + panel;
        areas->dscores = areas->p + scores;
        areas->values = areas->dscores + scores;
    }
    return 3 * all + values + 3 * block + 2 * panel + 2 * scores;
}

int VECTOR(measure_attention_grad)(const struct weir__op_shape *shape, size_t *workspace) {
    struct weir__head head = VECTOR(head_of)(shape);
    bool fits =
        weir__multiply(lay_out(&head, NULL, NULL), shape->threads * sizeof(float), workspace);
    return fits ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/** What is per head besides struct weir__head. */
struct gradients {
    const number *dy, *y; /* (T, C), this head's columns */
    number *dq;           /* as q: this head's columns */
};

/* ---- a block of queries with a chunk of keys ---- */

/** A block of queries: what its lanes hold. */
struct grad_block {
    int64_t first, queries;
    float lse[2 * LANES], delta[2 * LANES];
    struct weir__head_documents documents;
};

/** p and ds from the scores and dy's products, which they replace. */
static void probabilities(const struct weir__head *head, const struct grad_areas *areas,
                          const struct grad_block *block, int64_t key, int64_t keys) {
    vfloat lse[2] = {v_load(block->lse), v_load(block->lse + LANES)};
    vfloat delta[2] = {v_load(block->delta), v_load(block->delta + LANES)};
    for (int64_t j = 0; j < keys; j++) {
        V_UNROLL
        for (int half = 0; half < 2; half++) {
            int64_t at = j * WEIR__PANEL + half * LANES;
            vfloat p = v_exp(v_load(areas->p + at) - lse[half]);
            if (weir__head_masks(head, &block->documents, block->first, key + j)) {
                vint mask =
                    weir__head_mask(head, &block->documents, block->first, half, key + j);
                p = v_select(mask, p, v_all(0));
            }
            v_store(areas->p + at, p);
            v_store(areas->dscores + at, p * (v_load(areas->dscores + at) - delta[half]));
        }
    }
}

/** Scores, or dy's products with values: (keys, 32) from rows of k or v and a panel. */
static void score(const struct weir__head *head, const struct weir__head_rows *rows, int64_t key,
                  const float *panel_rows, float *to, int64_t keys) {
    assert(keys >= 1 && keys <= KEYS_AT_ONCE);
    struct weir__panel panel = {.a = rows->at + key * rows->step,
                                .a_row = rows->step,
                                .a_step = 1,
                                .b = panel_rows,
                                .b_row = WEIR__PANEL,
                                .c = to,
                                .c_row = WEIR__PANEL,
                                .rows = keys,
                                .depth = head->size,
                                .columns = WEIR__PANEL,
                                .mode = WEIR__PANEL_SET};
    VECTOR_F32(panel_product)(&panel);
}

/** to (keys, padded) += weights (keys, 32) * rows (32, padded). */
static void spread(const struct weir__head *head, const float *weights, const float *rows,
                   float *to, int64_t keys, int64_t queries) {
    assert(keys <= KEYS_AT_ONCE && queries <= WEIR__PANEL);
    struct weir__panel panel = {.a = weights,
                                .a_row = WEIR__PANEL,
                                .a_step = 1,
                                .b = rows,
                                .b_row = head->padded,
                                .c = to,
                                .c_row = head->padded,
                                .rows = keys,
                                .depth = queries,
                                .mode = WEIR__PANEL_CHAIN};
    VECTOR(head_product)(head, &panel);
}

static void add_chunk(const struct weir__head *head, const struct grad_areas *areas,
                      const struct grad_block *block, int64_t key, int64_t keys) {
    assert(key + keys <= VECTOR(head_keys)(head, block->first));
    score(head, &head->keys, key, areas->query_panel, areas->p, keys);
    score(head, &head->values, key, areas->dy_panel, areas->dscores, keys);
    probabilities(head, areas, block, key, keys);
    int64_t at = key * head->padded;
    spread(head, areas->p, areas->dy, areas->dvalues + at, keys, block->queries);
    spread(head, areas->dscores, areas->queries, areas->dkeys + at, keys, block->queries);
    struct weir__panel panel = {.a = areas->dscores,
                                .a_row = 1,
                                .a_step = WEIR__PANEL,
                                .b = areas->keys + at,
                                .b_row = head->padded,
                                .c = areas->dqueries,
                                .c_row = head->padded,
                                .rows = block->queries,
                                .depth = keys,
                                .mode = key == VECTOR(head_keys_first)(head, block->first)
                                            ? WEIR__PANEL_SET
                                            : WEIR__PANEL_CHAIN};
    VECTOR(head_product)(head, &panel);
}

/* ---- a block of queries ---- */

/** delta and lse of the block's lanes; lanes past the last query are 0 and add nothing. */
static void fill_lanes(const struct weir__head *head, const struct gradients *gradients,
                       struct grad_block *block) {
    assert(block->queries >= 1 && block->queries <= WEIR__PANEL);
    memset(block->lse, 0, sizeof block->lse);
    memset(block->delta, 0, sizeof block->delta);
    memcpy(block->lse, head->lse + block->first, (size_t)block->queries * sizeof(float));
    for (int64_t r = 0; r < block->queries; r++) {
        const number *dy = gradients->dy + (block->first + r) * head->width;
        const number *y = gradients->y + (block->first + r) * head->width;
        vfloat sum = v_all(0);
        for (int64_t i = 0; i < head->size; i += LANES) {
            int64_t count = head->size - i < LANES ? head->size - i : LANES;
            sum = v_fma(v_load_some(dy + i, count), v_load_some(y + i, count), sum);
        }
        block->delta[r] = v_sum(sum);
    }
}

/** Copies (count, padded) to (count, size) at rows `stride` apart. */
static void write_rows(const struct weir__head *head, number *to, int64_t stride, const float *from,
                       int64_t count, float scale) {
    assert(count >= 0 && head->padded >= head->size);
    for (int64_t r = 0; r < count; r++)
        for (int64_t i = 0; i < head->size; i += LANES)
            v_store_some(to + r * stride + i, v_load(from + r * head->padded + i) * scale,
                         head->size - i < LANES ? head->size - i : LANES);
}

static void add_block(const struct weir__head *head, const struct gradients *gradients,
                      const struct grad_areas *areas, int64_t first) {
    assert(first % WEIR__PANEL == 0);
    struct grad_block block = {.first = first,
                               .queries = VECTOR(head_queries)(head, first),
                               .documents = VECTOR(head_documents)(head, first)};
    int64_t stride = head->step, keys = VECTOR(head_keys)(head, first);
    const number *q = head->q + first * stride, *dy = gradients->dy + first * head->width;
    fill_lanes(head, gradients, &block);
    VECTOR(panel_pack_rows)
    (areas->query_panel, WEIR__PANEL, q, stride, block.queries, head->size, head->scale);
    VECTOR(panel_pack_rows)
    (areas->dy_panel, WEIR__PANEL, dy, head->width, block.queries, head->size, 1);
    VECTOR(panel_pack)
    (areas->queries, head->padded, head->padded, q, stride, head->size, block.queries, head->scale);
    VECTOR(panel_pack)
    (areas->dy, head->padded, head->padded, dy, head->width, head->size, block.queries, 1);
    for (int64_t key = VECTOR(head_keys_first)(head, first); key < keys; key += KEYS_AT_ONCE)
        add_chunk(head, areas, &block, key, keys - key < KEYS_AT_ONCE ? keys - key : KEYS_AT_ONCE);
    write_rows(head, gradients->dq + first * stride, stride, areas->dqueries, block.queries,
               head->scale);
}

/** One head of one row; its keys' and values' gradients are added to those of its group. */
static void differentiate_head(const struct weir__op_call *call, struct weir__head *head,
                               const struct weir__head_place *at, int64_t number_of_head,
                               const struct grad_areas *areas) {
    int y_operand = at->v_operand + 2;
    head->q = (const number *)call->in[1] + at->q;
    head->lse = (const float *)call->in[y_operand + 1] + number_of_head * head->tokens;
    const struct gradients gradients = {.dy = (const number *)call->in[0] + at->y,
                                        .y = (const number *)call->in[y_operand] + at->y,
                                        .dq = (number *)call->out[0] + at->q};
    for (int64_t first = 0; first < head->tokens; first += WEIR__PANEL)
        add_block(head, &gradients, areas, first);
}

/** The heads of one row that share their keys and values. */
static void differentiate_part(void *context, uint32_t part, uint32_t member) {
    const struct weir__op_call *call = context;
    const struct weir__op_shape *shape = call->shape;
    struct weir__head head = VECTOR(head_of)(shape);
    struct grad_areas areas = {0};
    lay_out(&head, (float *)call->workspace + member * lay_out(&head, NULL, NULL), &areas);
    int64_t group = weir__head_group(shape), groups = shape->heads / group;
    int64_t row = part / groups, first = part % groups * group;
    struct weir__head_place at = weir__head_place(shape, row, first);
    VECTOR(head_stands)(&head, &at, call->in + 1);
    VECTOR(head_takes_documents)(&head, shape, call->in + at.v_operand + 4, row);
    head.keys = VECTOR(head_rows)(&head, head.k, areas.keys);
    head.values = VECTOR(head_rows)(&head, head.v, areas.values);
    if (head.keys.at != areas.keys) VECTOR(head_pack)(&head, head.k, areas.keys);
    size_t bytes = (size_t)(head.tokens * head.padded) * sizeof(float);
    memset(areas.dkeys, 0, bytes);
    memset(areas.dvalues, 0, bytes);
    for (int64_t h = first; h < first + group; h++) {
        at = weir__head_place(shape, row, h);
        differentiate_head(call, &head, &at, row * shape->heads + h, &areas);
    }
    number *dk = (number *)call->out[at.k_operand] + at.k;
    number *dv = (number *)call->out[at.v_operand] + at.v;
    write_rows(&head, dk, at.kv_step, areas.dkeys, head.tokens, 1);
    write_rows(&head, dv, at.kv_step, areas.dvalues, head.tokens, 1);
}

int VECTOR(attention_grad)(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    weir__share(call, shape->rows * shape->heads / weir__head_group(shape),
                2 * VECTOR(attention_work)(shape), differentiate_part, (void *)(uintptr_t)call);
    return WEIR_OK;
}
