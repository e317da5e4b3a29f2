/* SPDX-License-Identifier: MIT */
/* Updates, sums of squares and sums over flat arrays of GPT-2 124M's parameters, each parameter a
 * span, as a stage of all layers has them. F32. */
#include "net/backend.h"
#include "net_kernels.h"

#include <math.h>
#include <string.h>

enum { LAYERS = 12, WIDTH = 768, VOCABULARY = 50304, CONTEXT = 1024, QUICK_SHRINK = 64 };
enum { SPANS_MOST = 4 + 12 * LAYERS, CHECKED = 1024 };
enum { WEIGHT, GRADIENT, FIRST, SECOND, ARRAYS };
enum flat_kind { SQUARE_SUMS, ACCUMULATE, ADAMW, SGD, SGD_MOMENTUM, FLAT_KINDS };

static const struct {
    const char *name;
    size_t bytes; /* a number */
} kinds[FLAT_KINDS] = {
    {"square_sums", 4}, {"accumulate", 12}, {"adamw", 28}, {"sgd", 12}, {"sgd-momentum", 20}};

static const struct weir_optimizer optimizers[FLAT_KINDS] = {
    [ADAMW] = {.kind = WEIR_OPTIMIZER_ADAMW,
               .lr = 1e-3,
               .beta1 = 0.9,
               .beta2 = 0.95,
               .eps = 1e-8,
               .weight_decay = 0.1},
    [SGD] = {.kind = WEIR_OPTIMIZER_SGD, .lr = 0.1},
    [SGD_MOMENTUM] = {.kind = WEIR_OPTIMIZER_SGD, .lr = 0.1, .momentum = 0.9}};

struct flat_kernel {
    struct net_kernel kernel; /* first */
    const struct net_flat *flat;
    enum flat_kind kind;
};

struct net_flat {
    struct bench_gpu *gpu;
    struct flat_kernel kernels[FLAT_KINDS];
    struct weir__span spans[SPANS_MOST];
    uint32_t count;
    uint64_t numbers;
    size_t bytes, workspace_bytes;
    float *arrays[ARRAYS];
    struct weir_verdict *verdict;
    double *squares;
    void *workspace;
};

/* ---- parameters ---- */

static void add_span(struct net_flat *flat, uint64_t rows, uint64_t columns) {
    struct weir__span span = {
        .first = flat->numbers, .count = rows * columns, .result = flat->count, .decays = rows > 1};
    assert(flat->count < SPANS_MOST);
    flat->spans[flat->count++] = span;
    flat->numbers += (span.count + 63) / 64 * 64;
}

static void add_spans(struct net_flat *flat, uint64_t shrink) {
    uint64_t c = WIDTH / shrink;
    add_span(flat, VOCABULARY / shrink, c);
    add_span(flat, CONTEXT / shrink, c);
    for (int l = 0; l < LAYERS; l++) {
        const uint64_t shapes[][2] = {{1, c}, {1, c}, {c, 3 * c}, {1, 3 * c}, {c, c},     {1, c},
                                      {1, c}, {1, c}, {c, 4 * c}, {1, 4 * c}, {4 * c, c}, {1, c}};
        for (size_t i = 0; i < WEIR__COUNT_OF(shapes); i++)
            add_span(flat, shapes[i][0], shapes[i][1]);
    }
    add_span(flat, 1, c);
    add_span(flat, 1, c);
}

/* ---- the work ---- */

static int update(const struct weir__backend *backend, enum flat_kind kind,
                  const struct weir__spans *spans, float *const *arrays,
                  const struct weir_verdict *verdict) {
    const struct weir_optimizer *optimizer = &optimizers[kind];
    const struct weir__update update = {.optimizer = optimizer,
                                        .lr = optimizer->lr,
                                        .number = 3,
                                        .gradient_scale = 1,
                                        .verdict = verdict,
                                        .parameters = arrays[WEIGHT],
                                        .gradients = arrays[GRADIENT],
                                        .first = arrays[FIRST],
                                        .second = arrays[SECOND]};
    return backend->flat[WEIR_F32]->update[optimizer->kind](spans, &update);
}

static int run(struct weir_stream *stream, const struct net_kernel *kernel) {
    const struct flat_kernel *own = (const struct flat_kernel *)kernel;
    const struct net_flat *flat = own->flat;
    const struct weir__flat_calls *calls = weir__backend_cuda.flat[WEIR_F32];
    const struct weir__spans spans = {flat->spans, flat->count, stream};
    float *w = flat->arrays[WEIGHT], *g = flat->arrays[GRADIENT];
    switch (own->kind) {
    case SQUARE_SUMS: return calls->squares(&spans, g, flat->squares, flat->workspace);
    case ACCUMULATE: return calls->accumulate(stream, w, g, flat->numbers);
    default: return update(&weir__backend_cuda, own->kind, &spans, flat->arrays, flat->verdict);
    }
}

/* ---- answers ---- */

/* The first numbers of the arrays, which are one span's that decays. */
struct head {
    float arrays[ARRAYS][CHECKED];
    uint64_t count;
};

static void read_head(const struct net_flat *flat, struct head *head) {
    head->count = flat->spans[0].count < CHECKED ? flat->spans[0].count : CHECKED;
    for (int a = 0; a < ARRAYS; a++)
        gpu_copy(flat->gpu, head->arrays[a], flat->arrays[a], head->count * sizeof(float));
}

static void update_head(enum flat_kind kind, struct head *head) {
    float *arrays[ARRAYS];
    const struct weir__span span = {.count = head->count, .decays = true};
    const struct weir__spans spans = {&span, 1, NULL};
    for (int a = 0; a < ARRAYS; a++) arrays[a] = head->arrays[a];
    if (kind == ACCUMULATE)
        (void)weir__backend_reference.flat[WEIR_F32]->accumulate(NULL, arrays[WEIGHT],
                                                                 arrays[GRADIENT], head->count);
    else
        (void)update(&weir__backend_reference, kind, &spans, arrays, NULL);
}

static bool updates_right(const struct flat_kernel *own) {
    struct head wanted, got;
    struct bench_gpu *gpu = own->flat->gpu;
    bool same = true;
    read_head(own->flat, &wanted);
    gpu_check(gpu, run(gpu->stream, &own->kernel), own->kernel.label);
    read_head(own->flat, &got);
    update_head(own->kind, &wanted);
    for (int a = 0; a < ARRAYS; a++)
        same &= memcmp(wanted.arrays[a], got.arrays[a], got.count * sizeof(float)) == 0;
    return same;
}

/* Of the short spans: doubles, which are rounded in another order. */
static bool sums_right(const struct flat_kernel *own) {
    const struct net_flat *flat = own->flat;
    double squares[SPANS_MOST];
    float numbers[CHECKED];
    bool right = true;
    gpu_check(flat->gpu, run(flat->gpu->stream, &own->kernel), own->kernel.label);
    gpu_copy(flat->gpu, squares, flat->squares, flat->count * sizeof *squares);
    for (uint32_t i = 0; i < flat->count; i++) {
        const struct weir__span *span = &flat->spans[i];
        if (span->count > CHECKED) continue;
        gpu_copy(flat->gpu, numbers, flat->arrays[GRADIENT] + span->first,
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
    flat->bytes = flat->numbers * sizeof(float);
    flat->workspace_bytes = weir__backend_cuda.flat[WEIR_F32]->squares_workspace(
        &(struct weir__spans){flat->spans, flat->count, NULL});
    for (int a = 0; a < ARRAYS; a++) {
        flat->arrays[a] = gpu_take(gpu, gpu->device, flat->bytes);
        const struct gpu_numbers numbers = {flat->arrays[a], flat->numbers, WEIR_F32, 0};
        if (a != SECOND) gpu_fill_numbers(gpu, &numbers, (uint64_t)a); /* squares: 0 */
    }
    flat->verdict = gpu_take(gpu, gpu->device, sizeof verdict);
    gpu_copy(gpu, flat->verdict, &verdict, sizeof verdict);
    flat->squares = gpu_take(gpu, gpu->device, sizeof(double) * SPANS_MOST);
    flat->workspace = gpu_take(gpu, gpu->device, flat->workspace_bytes);
}

struct net_flat *net_flat_new(struct bench *bench, struct net_kernels *kernels) {
    struct net_flat *flat = bench_take(bench, 1, sizeof *flat);
    flat->gpu = bench->gpu;
    add_spans(flat, bench->options.quick ? QUICK_SHRINK : 1);
    take_memory(flat);
    for (int k = 0; k < FLAT_KINDS; k++) {
        struct flat_kernel *own = &flat->kernels[k];
        *own = (struct flat_kernel){
            {"", kinds[k].bytes * flat->numbers, run}, flat, (enum flat_kind)k};
        snprintf(own->kernel.label, sizeof own->kernel.label, "%s/f32", kinds[k].name);
        bench_answer(bench, k == SQUARE_SUMS ? sums_right(own) : updates_right(own),
                     "gpu-net-kernels/%s: the first numbers are as the CPU's", own->kernel.label);
        net_kernels_add(kernels, &own->kernel);
    }
    return flat;
}

void net_flat_clean_up(struct net_flat *flat) {
    struct weir__device *device = flat->gpu->device;
    for (int a = 0; a < ARRAYS; a++) gpu_give(device, flat->arrays[a], flat->bytes);
    gpu_give(device, flat->verdict, sizeof *flat->verdict);
    gpu_give(device, flat->squares, sizeof(double) * SPANS_MOST);
    gpu_give(device, flat->workspace, flat->workspace_bytes);
}
