/* SPDX-License-Identifier: MIT */
#include "net_shapes.h"

const struct net_update_facts net_updates[NET_UPDATES] = {
    {"square_sums", 4}, {"accumulate", 12}, {"adamw", 28}, {"sgd", 12}, {"sgd-momentum", 20}};

static const struct weir_optimizer optimizers[NET_UPDATES] = {
    [NET_ADAMW] = {.kind = WEIR_OPTIMIZER_ADAMW,
                   .lr = 1e-3,
                   .beta1 = 0.9,
                   .beta2 = 0.95,
                   .eps = 1e-8,
                   .weight_decay = 0.1},
    [NET_SGD] = {.kind = WEIR_OPTIMIZER_SGD, .lr = 0.1},
    [NET_SGD_MOMENTUM] = {.kind = WEIR_OPTIMIZER_SGD, .lr = 0.1, .momentum = 0.9}};

static void add_span(struct net_parameters *all, int64_t rows, int64_t columns) {
    struct weir__span span = {.first = all->numbers,
                              .count = (uint64_t)(rows * columns),
                              .result = all->count,
                              .decays = rows > 1};
    assert(all->count < WEIR__COUNT_OF(all->spans));
    all->spans[all->count++] = span;
    all->numbers += (span.count + 63) / 64 * 64;
}

void net_parameters_init(struct net_parameters *parameters, uint32_t layers,
                         const struct net_sizes *sizes) {
    int64_t c = sizes->width, hidden = sizes->hidden;
    parameters->count = 0;
    parameters->numbers = 0;
    add_span(parameters, sizes->vocabulary, c);
    add_span(parameters, sizes->tokens, c);
    for (uint32_t l = 0; l < layers; l++) {
        const int64_t shapes[][2] = {{1, c}, {1, c}, {c, 3 * c},  {1, 3 * c},  {c, c},      {1, c},
                                     {1, c}, {1, c}, {c, hidden}, {1, hidden}, {hidden, c}, {1, c}};
        for (size_t i = 0; i < WEIR__COUNT_OF(shapes); i++)
            add_span(parameters, shapes[i][0], shapes[i][1]);
    }
    add_span(parameters, 1, c);
    add_span(parameters, 1, c);
}

int net_update_run(const struct weir__flat_calls *calls, enum net_update update,
                   const struct weir__spans *spans, const struct net_flat_arrays *flat,
                   uint64_t numbers) {
    float *w = flat->arrays[NET_WEIGHT], *g = flat->arrays[NET_GRADIENT];
    const struct weir_optimizer *optimizer = &optimizers[update];
    const struct weir__update own = {.optimizer = optimizer,
                                     .lr = optimizer->lr,
                                     .number = 3,
                                     .gradient_scale = 1,
                                     .verdict = flat->verdict,
                                     .parameters = w,
                                     .gradients = g,
                                     .first = flat->arrays[NET_FIRST],
                                     .second = flat->arrays[NET_SECOND]};
    assert(update < NET_UPDATES);
    switch (update) {
    case NET_SQUARES: return calls->squares(spans, g, flat->squares, flat->workspace);
    case NET_ACCUMULATE: return calls->accumulate(spans->stream, w, g, numbers);
    default: return calls->update[optimizer->kind](spans, &own);
    }
}
