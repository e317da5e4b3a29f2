/* SPDX-License-Identifier: MIT */
#include "gpu.h"

#include "net/cuda/numerics.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

enum { SIDE = 8192, SIDE_QUICK = 64, LOOKS = 4, CLOCK_KHZ = 13 /* an attribute */ };

struct gpu_product {
    struct bench_gpu *gpu;
    struct weir__cuda_matmul matmul;
    struct weir__cuda_library_use use;
    void *plan;
    struct weir__cuda_matmul_call call;
    size_t matrix_bytes, workspace_bytes;
};

/* ---- the product ---- */

static void settle(struct bench_gpu *gpu, int status, const struct weir__cuda_failure *failure) {
    gpu_check(gpu, weir__cuda_settle(weir__cuda_device(gpu->device), status, failure),
              "a large product");
}

void gpu_enqueue_product(struct bench_gpu *gpu, struct weir_stream *stream, const void *context) {
    const struct gpu_product *own = context;
    struct weir__cuda_failure failure = {0};
    settle(gpu,
           own->use.calls->matmul_run(own->use.library, own->plan,
                                      weir__cuda_stream(stream)->native, &own->call, &failure),
           &failure);
}

static double bf16(uint16_t bits) {
    union {
        uint32_t bits;
        float value;
    } number = {.bits = (uint32_t)bits << 16};
    return (double)number.value;
}

/* d[row][column]: a's row by b's, which lies transposed; numbers are within 2 and so each of the
 * products within 4. */
static bool is_right(struct gpu_product *own, size_t row, size_t column) {
    uint16_t a[SIDE], b[SIDE], d;
    size_t side = (size_t)own->matmul.k;
    double sum = 0;
    gpu_copy(own->gpu, a, (const uint16_t *)own->call.a + row * side, side * sizeof *a);
    gpu_copy(own->gpu, b, (const uint16_t *)own->call.b + column * side, side * sizeof *b);
    gpu_copy(own->gpu, &d, (const uint16_t *)own->call.d + row * side + column, sizeof d);
    for (size_t i = 0; i < side; i++) sum += bf16(a[i]) * bf16(b[i]);
    double tolerance = 0x1p-24 * 4 * (16 + 4 * sqrt((double)side)) * sqrt((double)side);
    return fabs(bf16(d) - sum) <= 0x1p-8 * fabs(sum) + tolerance;
}

static void check_answer(struct bench *bench, struct gpu_product *own) {
    size_t side = (size_t)own->matmul.k;
    bool right = true;
    gpu_enqueue_product(own->gpu, own->gpu->stream, own);
    gpu_check(own->gpu, own->gpu->device->calls->stream_finish(own->gpu->stream),
              "a large product");
    for (int i = 0; i < LOOKS; i++)
        right &=
            is_right(own, bench_random(&bench->random) % side, bench_random(&bench->random) % side);
    bench_answer(bench, right, "a product of %zu x %zu: the numbers looked at", side, side);
}

static void *take_matrix(struct gpu_product *own, uint64_t seed) {
    void *memory = gpu_take(own->gpu, own->gpu->device, own->matrix_bytes);
    const struct gpu_numbers numbers = {memory, own->matrix_bytes / 2, WEIR_BF16, 0};
    gpu_fill_numbers(own->gpu, &numbers, seed);
    return memory;
}

struct gpu_product *gpu_product_new(struct bench *bench) {
    struct gpu_product *own = bench_take(bench, 1, sizeof *own);
    struct weir__cuda_failure failure = {0};
    int64_t side = bench->options.quick ? SIDE_QUICK : SIDE;
    own->gpu = bench->gpu;
    own->matmul = (struct weir__cuda_matmul){.m = side,
                                             .n = side,
                                             .k = side,
                                             .m_max = side,
                                             .b_transposed = true,
                                             .input = WEIR_BF16,
                                             .output = WEIR_BF16};
    own->matrix_bytes = (size_t)(side * side) * 2;
    gpu_check(own->gpu, weir__cuda_library_use(own->gpu->device, WEIR__CUDA_PRODUCTS, &own->use),
              "the library of products");
    bench_check(weir__cuda_matmul_workspace(&own->matmul, &own->workspace_bytes),
                "a large product");
    own->call.workspace = gpu_take(own->gpu, own->gpu->device, own->workspace_bytes);
    own->call.a = take_matrix(own, 1);
    own->call.b = take_matrix(own, 2);
    own->call.d = take_matrix(own, 3);
    settle(own->gpu,
           own->use.calls->matmul_new(own->use.library, &own->matmul, &own->plan, &failure),
           &failure);
    check_answer(bench, own);
    return own;
}

void gpu_product_destroy(struct gpu_product *own) {
    struct weir__device *device = own->gpu->device;
    own->use.calls->matmul_destroy(own->use.library, own->plan);
    gpu_give(device, (void *)(uintptr_t)own->call.a, own->matrix_bytes);
    gpu_give(device, (void *)(uintptr_t)own->call.b, own->matrix_bytes);
    gpu_give(device, own->call.d, own->matrix_bytes);
    gpu_give(device, own->call.workspace, own->workspace_bytes);
}

double gpu_product_flops(const struct gpu_product *product) {
    const struct weir__cuda_matmul *matmul = &product->matmul;
    return 2.0 * (double)matmul->m * (double)matmul->n * (double)matmul->k;
}

/* ---- what the GPU is said to do ---- */

/* Dense BF16 with sums in F32: operations of a multiprocessor in a cycle, and the clock, in GHz,
 * that the data sheet's figure stands for (A100 312 TFLOP/s, H100 and H200 SXM 989, B200 2250);
 * 0: the fastest, as the driver says it. */
static const struct {
    int major, minor;
    double per_cycle, clock;
} sheets[] = {
    {8, 0, 2048, 1.41}, {8, 6, 1024, 0}, {8, 9, 1024, 0}, {9, 0, 4096, 1.83}, {10, 0, 8192, 1.856}};

double gpu_peak_bf16(const struct bench_gpu *gpu, char words[96]) {
    const struct weir__cuda_device *own = weir__cuda_device(gpu->device);
    int khz = 0;
    (void)own->driver.device_get_attribute(&khz, CLOCK_KHZ, own->gpu);
    snprintf(words, 96, "no data sheet of compute capability %d.%d is known here",
             gpu->capability_major, gpu->capability_minor);
    for (size_t i = 0; i < WEIR__COUNT_OF(sheets) && !gpu->fake; i++) {
        if (sheets[i].major != gpu->capability_major || sheets[i].minor != gpu->capability_minor)
            continue;
        double clock = khz * 1e-6;
        if (sheets[i].clock > 0 && sheets[i].clock < clock) clock = sheets[i].clock;
        if (clock <= 0) clock = sheets[i].clock;
        snprintf(words, 96, "%d multiprocessors x %.0f a cycle x %.3f GHz", gpu->multiprocessors,
                 sheets[i].per_cycle, clock);
        return clock > 0 ? gpu->multiprocessors * sheets[i].per_cycle * clock * 1e9 : NAN;
    }
    return NAN;
}

/* The driver's function is no part of the library's table: only benches ask. */
uint64_t gpu_bytes_in_use(const struct bench_gpu *gpu) {
    const struct weir__cuda_device *own = weir__cuda_device(gpu->device);
    union {
        void *symbol;
        int (*call)(size_t *unused, size_t *all);
    } info = {.symbol = dlsym(own->driver.library, "cuMemGetInfo_v2")};
    size_t unused = 0, all = 0;
    if (info.symbol == NULL || info.call(&unused, &all) != 0) return 0;
    return all - unused;
}
