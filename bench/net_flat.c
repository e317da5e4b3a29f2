/* SPDX-License-Identifier: MIT */
/* Updates, sums of squares and sums over flat arrays of GPT-2 124M's parameters. F32. */
#include "net_kernels.h"
#include "net_shapes.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 12, QUICK_SHRINK = 64, CHECKED = 1024 };

struct flat_kernel {
    struct net_kernel kernel; /* first */
    const struct net_flat *flat;
    enum net_update update;
};

struct net_flat {
    struct bench_gpu *gpu;
    struct flat_kernel kernels[NET_UPDATES];
    struct net_parameters parameters;
    size_t bytes, workspace_bytes;
    struct net_flat_arrays there;
    struct weir_verdict *verdict;
};

/* ---- the work ---- */

static int run(struct weir_stream *stream, const struct net_kernel *kernel) {
    const struct flat_kernel *own = (const struct flat_kernel *)kernel;
    const struct net_parameters *parameters = &own->flat->parameters;
    const struct weir__spans spans = {parameters->spans, parameters->count, stream};
    return net_update_run(weir__backend_cuda.flat[WEIR_F32], own->update, &spans, &own->flat->there,
                          parameters->numbers);
}

/* ---- answers ---- */

/* The first numbers of the arrays, which are one span's that decays. */
struct head {
    float arrays[NET_ARRAYS][CHECKED];
    uint64_t count;
};

static void read_head(const struct net_flat *flat, struct head *head) {
    head->count =
        flat->parameters.spans[0].count < CHECKED ? flat->parameters.spans[0].count : CHECKED;
    for (int a = 0; a < NET_ARRAYS; a++)
        gpu_copy(flat->gpu, head->arrays[a], flat->there.arrays[a], head->count * sizeof(float));
}

static void update_head(enum net_update update, struct head *head) {
    struct net_flat_arrays flat = {.verdict = NULL};
    const struct weir__span span = {.count = head->count, .decays = true};
    const struct weir__spans spans = {&span, 1, NULL};
    for (int a = 0; a < NET_ARRAYS; a++) flat.arrays[a] = head->arrays[a];
    (void)net_update_run(weir__backend_reference.flat[WEIR_F32], update, &spans, &flat,
                         head->count);
}

static bool updates_right(const struct flat_kernel *own) {
    struct head wanted, got;
    struct bench_gpu *gpu = own->flat->gpu;
    bool same = true;
    read_head(own->flat, &wanted);
    gpu_check(gpu, run(gpu->stream, &own->kernel), own->kernel.label);
    read_head(own->flat, &got);
    update_head(own->update, &wanted);
    for (int a = 0; a < NET_ARRAYS; a++)
        same &= memcmp(wanted.arrays[a], got.arrays[a], got.count * sizeof(float)) == 0;
    return same;
}

/* Of the short spans: doubles, which are rounded in another order. */
static bool sums_right(const struct flat_kernel *own) {
    const struct net_flat *flat = own->flat;
    double squares[WEIR__COUNT_OF(flat->parameters.spans)];
    float numbers[CHECKED];
    bool right = true;
    gpu_check(flat->gpu, run(flat->gpu->stream, &own->kernel), own->kernel.label);
    gpu_copy(flat->gpu, squares, flat->there.squares, flat->parameters.count * sizeof *squares);
    for (uint32_t i = 0; i < flat->parameters.count; i++) {
        const struct weir__span *span = &flat->parameters.spans[i];
        if (span->count > CHECKED) continue;
        gpu_copy(flat->gpu, numbers, flat->there.arrays[NET_GRADIENT] + span->first,
                 span->count * sizeof *numbers);
        const struct weir__span one = {.count = span->count};
        double wanted;
        (void)weir__backend_reference.flat[WEIR_F32]->squares(&(struct weir__spans){&one, 1, NULL},
                                                              numbers, &wanted, NULL);
        right &= fabs(squares[i] - wanted) <= 0x1p-52 * (double)span->count * wanted;
    }
    return right;
}

/* ---- the cases ---- */

static void take_memory(struct net_flat *flat) {
    static const struct weir_verdict verdict = {.gradient_scale = 1.0, .norm = 1.0, .applies = 1};
    struct bench_gpu *gpu = flat->gpu;
    const struct net_parameters *parameters = &flat->parameters;
    flat->bytes = parameters->numbers * sizeof(float);
    flat->workspace_bytes = weir__backend_cuda.flat[WEIR_F32]->squares_workspace(
        &(struct weir__spans){parameters->spans, parameters->count, NULL});
    for (int a = 0; a < NET_ARRAYS; a++) {
        flat->there.arrays[a] = gpu_take(gpu, gpu->device, flat->bytes);
        const struct gpu_numbers numbers = {flat->there.arrays[a], parameters->numbers, WEIR_F32,
                                            0};
        if (a != NET_SECOND) gpu_fill_numbers(gpu, &numbers, (uint64_t)a); /* squares: 0 */
    }
    flat->verdict = gpu_take(gpu, gpu->device, sizeof verdict);
    gpu_copy(gpu, flat->verdict, &verdict, sizeof verdict);
    flat->there.verdict = flat->verdict;
    flat->there.squares = gpu_take(gpu, gpu->device, sizeof(double) * parameters->count);
    flat->there.workspace = gpu_take(gpu, gpu->device, flat->workspace_bytes);
}

struct net_flat *net_flat_new(struct bench *bench, struct net_kernels *kernels) {
    static const struct net_sizes whole = {1024, 768, 3072, 50304, 0, 0};
    struct net_flat *flat = bench_take(bench, 1, sizeof *flat);
    struct net_sizes sizes = whole;
    flat->gpu = bench->gpu;
    if (bench->options.quick) {
        sizes.tokens /= QUICK_SHRINK, sizes.width /= QUICK_SHRINK;
        sizes.hidden /= QUICK_SHRINK, sizes.vocabulary /= QUICK_SHRINK;
    }
    net_parameters_init(&flat->parameters, LAYERS, &sizes);
    take_memory(flat);
    for (int k = 0; k < NET_UPDATES; k++) {
        struct flat_kernel *own = &flat->kernels[k];
        *own = (struct flat_kernel){
            {"", net_updates[k].bytes * flat->parameters.numbers, run}, flat, (enum net_update)k};
        snprintf(own->kernel.label, sizeof own->kernel.label, "%s/f32", net_updates[k].name);
        bench_answer(bench, k == NET_SQUARES ? sums_right(own) : updates_right(own),
                     "gpu-net-kernels/%s: the first numbers are as the CPU's", own->kernel.label);
        net_kernels_add(kernels, &own->kernel);
    }
    return flat;
}

void net_flat_clean_up(struct net_flat *flat) {
    struct weir__device *device = flat->gpu->device;
    for (int a = 0; a < NET_ARRAYS; a++) gpu_give(device, flat->there.arrays[a], flat->bytes);
    gpu_give(device, flat->verdict, sizeof *flat->verdict);
    gpu_give(device, flat->there.squares, sizeof(double) * flat->parameters.count);
    gpu_give(device, flat->there.workspace, flat->workspace_bytes);
}
