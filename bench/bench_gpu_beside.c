/* SPDX-License-Identifier: MIT */
/*
 * What does a copy cost a computation that runs beside it, and how much of the shorter of the two
 * is hidden?
 *
 * Napkin. A copy engine takes no multiprocessor, only bandwidth: a product whose tiles lie in the
 * caches loses less than 1%, whatever the engine moves over PCIe. A kernel that copies takes
 * `blocks` multiprocessors of 132 while it runs, so 8 blocks cost 6%, and each moves what its loads
 * under way allow: 16 KiB in 0.8 us, 20 GB/s; 24 blocks for PCIe's or NVLink's half a TB/s. Overlap
 * (T_compute + T_copy - T_both) / min(T_compute, T_copy) is 1 where neither is slowed.
 *
 * The product is a plain one of tiles in shared memory (tests/toys/gemm.cu), no library's.
 */
#include "gpu.h"

#include <math.h>
#include <string.h>

static const double ENGINE_AT_MOST = 1.01, OVERLAP_AT_LEAST = 0.95, BLOCKS_ENOUGH = 0.95;

/* More copies than that would fill the driver's queue, and block the host while streams are held:
 * so on the device they are long, and over the bus short enough to be counted. */
enum { SIDE = 2048, SIDE_QUICK = 64, PRODUCTS = 4, COPIES_MOST = 512, HOST_PART = 8 };
static const size_t BYTES = (size_t)128 << 20, BYTES_QUICK = 16 << 10;
static const uint32_t blocks_tried[] = {1, 2, 4, 8, 16, 32, 64, 0};
static const double ratios_tried[] = {0.25, 0.5, 1.0, 2.0, 4.0};
enum { BLOCKS = WEIR__COUNT_OF(blocks_tried), RATIOS = WEIR__COUNT_OF(ratios_tried) };

enum path { ENGINE_DEVICE, ENGINE_TO_DEVICE, ENGINE_FROM_DEVICE, KERNEL_DEVICE };

struct copy {
    enum path path;
    uint32_t blocks;
    void *to;
    const void *from;
    size_t bytes;
};

struct memory {
    struct gpu_gemm gemm;
    size_t gemm_bytes, bytes;
    unsigned char *device[2], *pinned;
};

/* A computation, a copy, and both. */
struct beside_case {
    struct gpu_work compute, copy;
    double alone;       /* seconds of the product alone */
    double *copy_times; /* of each sample: until the copies' end */
    uint32_t samples;
};

static void enqueue_copy(struct bench_gpu *gpu, struct weir_stream *stream, const void *context) {
    const struct copy *copy = context;
    int status = copy->path == KERNEL_DEVICE
                     ? weir__cuda_copy(stream, copy->to, copy->from, copy->bytes, copy->blocks)
                     : weir__cuda_enqueue_copy(stream, copy->to, copy->from, copy->bytes);
    gpu_check(gpu, status, "a copy");
}

/* ---- memory and answers ---- */

static float element(uint32_t i) {
    return (float)(i % 13) - 6.0f;
}

static void fill_matrix(struct bench_gpu *gpu, float *matrix, uint32_t side) {
    float *part = (float *)(void *)gpu->part;
    for (uint32_t row = 0; row < side; row++) {
        for (uint32_t i = 0; i < side; i++) part[i] = element(row * side + i);
        gpu_copy(gpu, matrix + (size_t)row * side, part, side * sizeof *part);
    }
}

static void take_memory(struct bench *bench, struct memory *memory) {
    struct bench_gpu *gpu = bench->gpu;
    uint32_t side = bench->options.quick ? SIDE_QUICK : SIDE;
    memory->bytes = bench->options.quick ? BYTES_QUICK : BYTES;
    memory->gemm_bytes = (size_t)side * side * sizeof(float);
    memory->gemm.side = side;
    memory->gemm.a = gpu_take(gpu, gpu->device, memory->gemm_bytes);
    memory->gemm.b = gpu_take(gpu, gpu->device, memory->gemm_bytes);
    memory->gemm.c = gpu_take(gpu, gpu->device, memory->gemm_bytes);
    fill_matrix(gpu, memory->gemm.a, side);
    fill_matrix(gpu, memory->gemm.b, side);
    for (int i = 0; i < 2; i++) memory->device[i] = gpu_take(gpu, gpu->device, memory->bytes);
    memory->pinned = gpu_take_pinned(gpu, memory->bytes);
    gpu_fill(gpu, memory->device[0], memory->bytes, 1);
    for (size_t i = 0; i < memory->bytes; i++) memory->pinned[i] = gpu_pattern(i, 1);
}

static void give_memory(struct bench_gpu *gpu, struct memory *memory) {
    gpu_give_pinned(gpu, memory->pinned, memory->bytes);
    for (int i = 0; i < 2; i++) gpu_give(gpu->device, memory->device[i], memory->bytes);
    gpu_give(gpu->device, memory->gemm.a, memory->gemm_bytes);
    gpu_give(gpu->device, memory->gemm.b, memory->gemm_bytes);
    gpu_give(gpu->device, memory->gemm.c, memory->gemm_bytes);
}

/* Small whole numbers: every sum is exact, in any order. */
static bool product_is_right(struct bench *bench, const struct memory *memory) {
    struct bench_gpu *gpu = bench->gpu;
    uint32_t side = memory->gemm.side;
    bool right = true;
    for (uint32_t look = 0; look < 64 && right; look++) {
        uint32_t row = (uint32_t)(bench_random(&bench->random) % side);
        uint32_t column = (uint32_t)(bench_random(&bench->random) % side);
        float got, due = 0.0f;
        gpu_copy(gpu, gpu->part, memory->gemm.c + (size_t)row * side + column, sizeof got);
        memcpy(&got, gpu->part, sizeof got);
        for (uint32_t k = 0; k < side; k++)
            due += element(row * side + k) * element(k * side + column);
        right = got == due;
    }
    return right;
}

static void check_answers(struct bench *bench, const struct memory *memory, const char *when) {
    bench_answer(bench, product_is_right(bench, memory), "gpu-beside: the product is right %s",
                 when);
    bool arrived = gpu_matches(bench->gpu, memory->device[1], memory->bytes, 1);
    bench_answer(bench, arrived, "gpu-beside: all bytes arrived %s", when);
}

static struct copy copy_of(const struct memory *memory, enum path path, uint32_t blocks) {
    struct copy copy = {path, blocks, memory->device[1], memory->device[0], memory->bytes};
    if (path == ENGINE_TO_DEVICE) copy.from = memory->pinned;
    if (path == ENGINE_FROM_DEVICE) copy.to = memory->pinned;
    if (path == ENGINE_TO_DEVICE || path == ENGINE_FROM_DEVICE) copy.bytes /= HOST_PART;
    return copy;
}

/* ---- samples ---- */

static void sample_alone(struct bench *bench, void *context, double *value) {
    const struct gpu_work *work = context;
    *value = gpu_time(bench->gpu, work);
}

static void sample_beside(struct bench *bench, void *context, double *value) {
    struct beside_case *one = context;
    struct gpu_times times = gpu_time_beside(bench->gpu, &one->compute, &one->copy);
    one->copy_times[one->samples++] = times.beside;
    *value = times.work;
}

static double median_of(struct bench *bench, const struct gpu_work *work) {
    double samples[5];
    (void)gpu_time(bench->gpu, work);
    for (int i = 0; i < 5; i++) samples[i] = gpu_time(bench->gpu, work);
    return bench_median(samples, 5);
}

/* So many that they take `seconds`. */
static uint32_t count_for(struct bench *bench, const struct copy *copy, double seconds) {
    struct gpu_work few = {enqueue_copy, copy, 4};
    double each = median_of(bench, &few) / 4.0;
    double count = bench->gpu->fake ? 2.0 : ceil(seconds / each);
    return count < 1.0 ? 1 : count > COPIES_MOST ? COPIES_MOST : (uint32_t)count;
}

/* ---- slow-down ---- */

struct slow_down {
    const char *name;
    struct copy copy;
    struct beside_case beside;
    double rate_alone;
};

static void add_slow_down(struct bench *bench, const struct slow_down *one,
                          const struct bench_case *measured, const struct bench_case *alone) {
    char during[32], by_itself[32];
    double bytes = (double)one->copy.bytes * one->beside.copy.count;
    /* sample 0 warmed up */
    double seconds = bench_median(one->beside.copy_times + 1, one->beside.samples - 1);
    struct bench_result *result =
        bench_add_ratio(bench, measured, alone, "gpu-beside/slow-down/%s", one->name);
    result->ideal = 1.0;
    if (one->copy.path != KERNEL_DEVICE) result->at_most = ENGINE_AT_MOST;
    snprintf(result->note, sizeof result->note, "copies at %s, by themselves %s",
             bench_value_text(bytes / seconds, "B/s", during),
             bench_value_text(one->rate_alone, "B/s", by_itself));
}

static void prepare(struct bench *bench, struct slow_down *one, const struct gpu_work *compute,
                    double seconds) {
    uint32_t count = count_for(bench, &one->copy, 1.25 * seconds);
    one->beside = (struct beside_case){
        .compute = *compute, .copy = {enqueue_copy, &one->copy, count}, .alone = seconds};
    one->beside.copy_times =
        bench_take(bench, bench->options.repetitions + 1, sizeof *one->beside.copy_times);
    double alone = median_of(bench, &one->beside.copy);
    one->rate_alone = (double)one->copy.bytes * count / alone;
}

/* How few blocks copy nearly as fast as all: what a kernel takes from the others. */
static void add_blocks(struct bench *bench, const struct slow_down *by_kernel) {
    double best = 0.0, enough = NAN;
    for (int i = 0; i < BLOCKS; i++) best = fmax(best, by_kernel[i].rate_alone);
    for (int i = BLOCKS - 2; i >= 0; i--)
        if (by_kernel[i].rate_alone >= BLOCKS_ENOUGH * best) enough = blocks_tried[i];
    double *sample = bench_take(bench, 1, sizeof *sample);
    *sample = enough; /* NaN: not with so few */
    struct bench_result *result = bench_add(bench, "blocks", sample, 1, "gpu-beside/blocks-enough");
    snprintf(result->note, sizeof result->note,
             "the fewest of 1, 2, 4 to 64 that copy at 95%% of "
             "the best; of %d multiprocessors",
             bench->gpu->multiprocessors);
}

static void measure_slow_down(struct bench *bench, const struct memory *memory,
                              struct gpu_work *compute, double seconds) {
    enum { ENGINES = 3, COUNT = ENGINES + BLOCKS };
    static const char *const names[ENGINES] = {"engine-d2d", "engine-h2d", "engine-d2h"};
    static const char *const block_names[BLOCKS] = {"kernel-1",  "kernel-2",  "kernel-4",
                                                    "kernel-8",  "kernel-16", "kernel-32",
                                                    "kernel-64", "kernel-all"};
    struct slow_down own[COUNT];
    struct bench_case cases[COUNT + 2];
    for (int i = 0; i < COUNT; i++) {
        bool engine = i < ENGINES;
        own[i].name = engine ? names[i] : block_names[i - ENGINES];
        own[i].copy = copy_of(memory, engine ? (enum path)i : KERNEL_DEVICE,
                              engine ? 0 : blocks_tried[i - ENGINES]);
        prepare(bench, &own[i], compute, seconds);
        cases[i] = (struct bench_case){
            .label = own[i].name, .sample = sample_beside, .context = &own[i].beside};
    }
    for (int i = COUNT; i < COUNT + 2; i++)
        cases[i] =
            (struct bench_case){.label = "alone", .sample = sample_alone, .context = compute};
    bench_interleave(bench, cases, COUNT + 2);
    for (int i = 0; i < COUNT; i++) add_slow_down(bench, &own[i], &cases[i], &cases[COUNT]);
    add_blocks(bench, &own[ENGINES]);
    bench_add_ratio(bench, &cases[COUNT], &cases[COUNT + 1], "gpu-beside/control")->control = true;
}

/* ---- overlap ---- */

struct overlap {
    struct gpu_work compute, copy;
};

/* (T_compute + T_copy - T_both) / min(T_compute, T_copy), all three of one round. */
static void sample_overlap(struct bench *bench, void *context, double *value) {
    const struct overlap *one = context;
    double compute = gpu_time(bench->gpu, &one->compute);
    double copy = gpu_time(bench->gpu, &one->copy);
    struct gpu_times both = gpu_time_beside(bench->gpu, &one->compute, &one->copy);
    *value = (compute + copy - fmax(both.work, both.beside)) / fmin(compute, copy);
}

static void measure_overlap(struct bench *bench, const struct memory *memory,
                            const struct gpu_work *compute, double seconds) {
    static const char *const paths[] = {"h2d", "d2h"};
    struct copy copies[2] = {copy_of(memory, ENGINE_TO_DEVICE, 0),
                             copy_of(memory, ENGINE_FROM_DEVICE, 0)};
    struct overlap own[2 * RATIOS];
    struct bench_case cases[2 * RATIOS];
    for (int i = 0; i < 2 * RATIOS; i++) {
        const struct copy *copy = &copies[i / RATIOS];
        uint32_t count = count_for(bench, copy, ratios_tried[i % RATIOS] * seconds);
        own[i] = (struct overlap){*compute, {enqueue_copy, copy, count}};
        cases[i] = (struct bench_case){
            .label = paths[i / RATIOS], .sample = sample_overlap, .context = &own[i]};
    }
    bench_interleave(bench, cases, 2 * RATIOS);
    for (int i = 0; i < 2 * RATIOS; i++) {
        struct bench_result *result =
            bench_add(bench, "fraction", cases[i].samples, cases[i].count,
                      "gpu-beside/overlap/%s/%g", paths[i / RATIOS], ratios_tried[i % RATIOS]);
        result->higher_is_better = true;
        result->ideal = 1.0;
        result->at_least = OVERLAP_AT_LEAST;
        snprintf(result->note, sizeof result->note, "copies take about %g of the computation",
                 ratios_tried[i % RATIOS]);
    }
}

void bench_gpu_beside(struct bench *bench) {
    struct memory memory = {0};
    take_memory(bench, &memory);
    struct gpu_work compute = {gpu_enqueue_gemm, &memory.gemm, bench->gpu->fake ? 1 : PRODUCTS};
    double seconds = median_of(bench, &compute);
    double flops = 2.0 * pow(memory.gemm.side, 3.0) * compute.count / seconds;
    char rate[32], time[32];
    fprintf(bench->gpu->table, "the computation: products at %s, %s\n",
            bench_value_text(flops, "FLOP/s", rate), bench_value_text(seconds, "s", time));
    measure_slow_down(bench, &memory, &compute, seconds);
    check_answers(bench, &memory, "beside copies");
    measure_overlap(bench, &memory, &compute, seconds);
    check_answers(bench, &memory, "after all");
    give_memory(bench->gpu, &memory);
}
