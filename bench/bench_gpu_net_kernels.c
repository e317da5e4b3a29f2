/* SPDX-License-Identifier: MIT */
/*
 * How near do the net's own kernels come to the device's plain copy, in bytes read and written per
 * second? All of src/net/cuda but attention, products and convolutions, which are bound by
 * arithmetic.
 *
 * Napkin, for an H200: 4.3 TB/s of traffic for each, 0.12 ms for the 512 MB that a case moves,
 * which is several times the second cache, as a training step's tensors are. What might not reach
 * that: bf16 dropout (20 to 25 instructions a number, as much time as its 4 to 6 bytes), the losses
 * and GELU's erf (transcendental functions, 16 a cycle), and what writes little after it has read
 * much, where the last blocks' sums stand alone.
 *
 * Bytes are those of the kernels' head comments: each operand once, where nothing else is said.
 */
#include "net_kernels.h"

static const double AT_LEAST = 0.90;
static const size_t BYTES = (size_t)512 << 20, BYTES_QUICK = 64 << 10;

enum { ENGINE, KERNEL, AGAIN, COPIES };

struct copy {
    void *to;
    const void *from;
    size_t bytes; /* copied */
    bool by_kernel;
};

void net_kernels_add(struct net_kernels *kernels, const struct net_kernel *kernel) {
    if (kernels->count == NET_KERNELS_MOST) bench_die("gpu-net-kernels: too many kernels");
    kernels->list[kernels->count++] = kernel;
}

static void enqueue_kernel(struct bench_gpu *gpu, struct weir_stream *stream, const void *context) {
    const struct net_kernel *kernel = context;
    gpu_check(gpu, kernel->run(stream, kernel), kernel->label);
}

static void enqueue_copy(struct bench_gpu *gpu, struct weir_stream *stream, const void *context) {
    const struct copy *copy = context;
    gpu_check(gpu,
              copy->by_kernel ? weir__cuda_copy(stream, copy->to, copy->from, copy->bytes, 0)
                              : weir__cuda_enqueue_copy(stream, copy->to, copy->from, copy->bytes),
              "the plain copy");
}

static double time_of(struct bench *bench, gpu_work_fn *work, const void *context) {
    struct gpu_work all = {work, context, bench->gpu->fake ? 1 : 16};
    return gpu_time(bench->gpu, &all) / all.count;
}

static void sample_kernel(struct bench *bench, void *context, double *value) {
    *value = time_of(bench, enqueue_kernel, context);
}

static void sample_copy(struct bench *bench, void *context, double *value) {
    *value = time_of(bench, enqueue_copy, context);
}

/* The plain copy is the faster of the two ways. */
static void report(struct bench *bench, const struct net_kernels *kernels,
                   const struct bench_case *cases) {
    double engine = bench_median(cases[ENGINE].samples, cases[ENGINE].count);
    double kernel = bench_median(cases[KERNEL].samples, cases[KERNEL].count);
    const struct bench_case *copy = engine < kernel ? &cases[ENGINE] : &cases[KERNEL];
    const struct copy *plain = copy->context;
    for (uint32_t i = 0; i < COPIES + kernels->count; i++) {
        if (i == AGAIN) continue;
        size_t bytes = i < COPIES ? 2 * plain->bytes : kernels->list[i - COPIES]->bytes;
        struct bench_result *result =
            gpu_add_to_copy(bench, "gpu-net-kernels", &cases[i], bytes, copy, 2 * plain->bytes);
        if (i >= COPIES) result->at_least = AT_LEAST;
    }
    bench_add_ratio(bench, &cases[ENGINE], &cases[AGAIN], "gpu-net-kernels/control")->control =
        true;
}

void bench_gpu_net_kernels(struct bench *bench) {
    static const char *const labels[COPIES] = {"copy-engine", "copy-kernel", "copy-engine"};
    size_t bytes = bench->options.quick ? BYTES_QUICK : BYTES;
    struct net_areas areas = {{NULL}, {0}};
    struct net_kernels kernels = {.count = 0};
    struct bench_case cases[COPIES + NET_KERNELS_MOST];
    struct copy copies[COPIES];
    net_ops_init(bench, bytes, &areas, &kernels);
    struct net_flat *flat = net_flat_new(bench, &kernels);
    for (uint32_t i = 0; i < COPIES; i++) {
        copies[i] =
            (struct copy){areas.memory[NET_OUT], areas.memory[NET_F32], bytes / 2, i == KERNEL};
        cases[i] =
            (struct bench_case){.label = labels[i], .sample = sample_copy, .context = &copies[i]};
    }
    for (uint32_t i = 0; i < kernels.count; i++)
        cases[COPIES + i] = (struct bench_case){.label = kernels.list[i]->label,
                                                .sample = sample_kernel,
                                                .context = (void *)(uintptr_t)kernels.list[i]};
    bench_interleave(bench, cases, COPIES + kernels.count);
    report(bench, &kernels, cases);
    net_flat_clean_up(flat);
    net_ops_clean_up(bench, &areas);
}
