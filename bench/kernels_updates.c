/* SPDX-License-Identifier: MIT */
/* Updates, sums of squares and sums over the parameters of the small GPT's stage. */
#include "kernels.h"
#include "net_shapes.h"

#include <string.h>

enum { LAYERS = 4, LAYERS_QUICK = 1, CHECKED = 1000 };

struct update {
    struct kernel kernel; /* first */
    const struct kernel_updates *all;
    enum net_update update;
};

struct kernel_updates {
    const struct kernels *kernels;
    struct net_parameters parameters;
    struct net_flat_arrays flat;
    struct update updates[NET_UPDATES];
    size_t workspace_bytes;
    double squares[WEIR__COUNT_OF(((struct net_parameters *)0)->spans)];
    size_t bytes; /* of an array */
};

static int run(const struct kernel *kernel) {
    const struct update *own = (const struct update *)kernel;
    const struct net_parameters *parameters = &own->all->parameters;
    const struct weir__spans spans = {parameters->spans, parameters->count, NULL};
    return net_update_run(own->all->kernels->level->flat, own->update, &spans, &own->all->flat,
                          parameters->numbers);
}

/* A span of some of the numbers, by the level's calls and by the reference's. */
static bool is_right(struct bench *bench, const struct update *own) {
    const struct weir__flat_calls *calls[] = {own->all->kernels->level->flat,
                                              weir__backend_reference.flat[WEIR_F32]};
    static float numbers[2][NET_ARRAYS][CHECKED];
    double squares[2] = {0, 0};
    const struct weir__span span = {.count = CHECKED, .decays = true};
    const struct weir__spans spans = {&span, 1, NULL};
    const struct operand array = {.kind = OPERAND_REAL, .count = CHECKED};
    const struct operand sum = {.kind = OPERAND_LOSS, .count = 1};
    bool right = true;
    kernels_fill(bench, numbers[0][0], NET_ARRAYS * CHECKED);
    for (int i = 0; i < CHECKED; i++) /* squares */
        numbers[0][NET_SECOND][i] *= numbers[0][NET_SECOND][i];
    memcpy(numbers[1], numbers[0], sizeof numbers[0]);
    for (int k = 0; k < 2; k++) {
        double piece;
        struct net_flat_arrays flat = {.squares = &squares[k], .workspace = &piece};
        for (int a = 0; a < NET_ARRAYS; a++) flat.arrays[a] = numbers[k][a];
        bench_check(net_update_run(calls[k], own->update, &spans, &flat, CHECKED),
                    own->kernel.label);
    }
    for (int a = 0; a < NET_ARRAYS; a++)
        right &= net_is_near(&array, WEIR_F32, numbers[0][a], numbers[1][a], 16 * 0x1p-24);
    return right && net_is_near(&sum, WEIR_F32, &squares[0], &squares[1], CHECKED * 0x1p-52);
}

struct kernel_updates *kernel_updates_new(struct bench *bench, struct kernels *kernels) {
    static const struct net_sizes whole = {128, 256, 1024, 256, 0, 0};
    static const struct net_sizes quick = {16, 32, 128, 64, 0, 0};
    struct kernel_updates *all = bench_take(bench, 1, sizeof *all);
    net_parameters_init(&all->parameters, bench->options.quick ? LAYERS_QUICK : LAYERS,
                        bench->options.quick ? &quick : &whole);
    uint64_t numbers = all->parameters.numbers;
    all->kernels = kernels;
    all->bytes = numbers * sizeof(float);
    all->flat.squares = all->squares;
    const struct weir__spans spans = {all->parameters.spans, all->parameters.count, NULL};
    all->workspace_bytes = kernels->level->flat->squares_workspace(&spans);
    all->flat.workspace = kernels_take(kernels, all->workspace_bytes);
    for (int a = 0; a < NET_ARRAYS; a++) {
        all->flat.arrays[a] = kernels_take(kernels, all->bytes); /* squares: 0 */
        if (a != NET_SECOND) kernels_fill(bench, all->flat.arrays[a], numbers);
    }
    for (int k = 0; k < NET_UPDATES; k++) {
        struct update *own = &all->updates[k];
        *own = (struct update){
            {.bytes = net_updates[k].bytes * numbers, .run = run}, all, (enum net_update)k};
        snprintf(own->kernel.label, sizeof own->kernel.label, "gpt-s/%s", net_updates[k].name);
        bench_answer(bench, is_right(bench, own), "kernels/%s: as the reference's",
                     own->kernel.label);
        kernels_add(kernels, &own->kernel);
    }
    return all;
}

void kernel_updates_clean_up(struct kernel_updates *updates) {
    for (int a = 0; a < NET_ARRAYS; a++)
        kernels_give(updates->kernels, updates->flat.arrays[a], updates->bytes);
    kernels_give(updates->kernels, updates->flat.workspace, updates->workspace_bytes);
}
