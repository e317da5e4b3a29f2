/* SPDX-License-Identifier: MIT */
/* What the simulator must know of a pipe besides the times of its actions. */
#include "trace/predict.h"

static int take_borders(const struct weir__setup *setup, int64_t rows, struct weir__pool *pool,
                        struct weir_simulate_options *options) {
    uint64_t *bytes = weir__pool_take(pool, setup->flow.stage_count, sizeof *bytes);
    if (bytes == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t s = 0; s + 1 < setup->flow.stage_count; s++) {
        const struct weir_stage *stage = &setup->stages[s].stage;
        for (uint32_t k = 0; k < stage->output_count; k++) {
            size_t one;
            int status = weir__tensor_bytes(&stage->outputs[k], rows, &one);
            if (status != WEIR_OK) return status;
            bytes[s] += one;
        }
    }
    options->border_bytes = bytes;
    options->border_differentiable = setup->flow.border_differentiable;
    return WEIR_OK;
}

static int take_skips(const struct weir__setup *setup, int64_t rows, struct weir__pool *pool,
                      struct weir_simulate_options *options) {
    uint32_t count = setup->route_count;
    struct weir_skip_route *skips = weir__pool_copy(pool, setup->routes, count, sizeof *skips);
    if (skips == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        size_t bytes;
        int status = weir__tensor_bytes(&setup->route_tensors[i], rows, &bytes);
        if (status != WEIR_OK) return status;
        skips[i].bytes = bytes;
    }
    options->skips = skips;
    options->skip_count = count;
    return WEIR_OK;
}

static int take_orders(const struct weir__deps *orders, struct weir__pool *pool,
                       struct weir_simulate_options *options) {
    uint32_t *begin = weir__pool_take(pool, (size_t)orders->action_count + 1, sizeof *begin);
    uint32_t *from = weir__pool_take(pool, orders->edge_count, sizeof *from);
    uint32_t count = 0;
    if (begin == NULL || from == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    assert(orders->begin[0] == 0);
    for (uint32_t a = 0; a < orders->action_count; a++) {
        begin[a] = count;
        for (uint32_t e = orders->begin[a]; e < orders->begin[a + 1]; e++)
            if (orders->edges[e].cause == WEIR__CAUSE_MEMORY) from[count++] = orders->edges[e].from;
    }
    begin[orders->action_count] = count;
    options->order_begin = begin;
    options->order_from = from;
    return WEIR_OK;
}

int weir__predict_options(const struct weir__setup *setup, const struct weir__row_plan *prepared,
                          struct weir__pool *pool, struct weir_simulate_options *options) {
    assert(prepared->table != NULL && prepared->orders.begin != NULL);
    const struct weir_pipe_options *own = &setup->options;
    int64_t rows = weir__prepared_views(prepared, 0, 0)->rows;
    options->table = prepared->table;
    options->recompute_late = own->recompute_late;
    options->no_backward = setup->flow.no_backward;
    if (own->link == WEIR_LINK_COPY) options->link.latency = (double)own->link_delay_ns * 1e-9;
    int status = take_borders(setup, rows, pool, options);
    if (status != WEIR_OK) return status;
    if ((status = take_skips(setup, rows, pool, options)) != WEIR_OK) return status;
    return take_orders(&prepared->orders, pool, options);
}
