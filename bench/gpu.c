/* SPDX-License-Identifier: MIT */
#include "gpu.h"

#include "fake_cuda/fake_cuda.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_CLOCK_KHZ = 36, MEMORY_BUS_BITS = 37 }; /* attributes */
enum { SPINS_FIRST = 1 << 17, SPINS_MOST = 1 << 26, SPINS_FAKE = 16 };

void gpu_check(const struct bench_gpu *gpu, int status, const char *what) {
    char text[256];
    if (status == WEIR_OK) return;
    gpu->device->calls->explain(gpu->device, text, sizeof text);
    bench_die("%s: %s: %s", what, weir_status_name(status), text);
}

/* ---- memory ---- */

void *gpu_take(struct bench_gpu *gpu, struct weir__device *device, size_t bytes) {
    void *memory = NULL;
    size_t whole = (bytes + 63) / 64 * 64;
    gpu_check(gpu, device->calls->memory_acquire(device, whole, &memory), "a GPU's memory");
    gpu_check(gpu, device->calls->memory_touch(device, memory, whole, -1), "a GPU's memory");
    return memory;
}

void gpu_give(struct weir__device *device, void *memory, size_t bytes) {
    device->calls->memory_release(device, memory, (bytes + 63) / 64 * 64);
}

void *gpu_take_pinned(struct bench_gpu *gpu, size_t bytes) {
    void *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (memory == NULL) bench_die("no memory for %zu pinned bytes", bytes);
    memset(memory, 0, bytes);
    gpu_check(gpu, gpu->device->calls->host_pin(gpu->device, memory, bytes), "pinned memory");
    return memory;
}

void gpu_give_pinned(struct bench_gpu *gpu, void *memory, size_t bytes) {
    gpu->device->calls->host_unpin(gpu->device, memory, bytes);
    free(memory);
}

void gpu_copy(struct bench_gpu *gpu, void *to, const void *from, size_t bytes) {
    gpu_check(gpu, weir__cuda_enqueue_copy(gpu->stream, to, from, bytes), "a copy");
    gpu_check(gpu, gpu->device->calls->stream_finish(gpu->stream), "a copy");
}

void gpu_fill(struct bench_gpu *gpu, void *memory, size_t bytes, uint32_t seed) {
    for (size_t at = 0; at < bytes; at += GPU_PART_BYTES) {
        size_t part = bytes - at < GPU_PART_BYTES ? bytes - at : GPU_PART_BYTES;
        for (size_t i = 0; i < part; i++) gpu->part[i] = gpu_pattern(at + i, seed);
        gpu_copy(gpu, (char *)memory + at, gpu->part, part);
    }
}

bool gpu_matches(struct bench_gpu *gpu, const void *memory, size_t bytes, uint32_t seed) {
    for (size_t at = 0; at < bytes; at += GPU_PART_BYTES) {
        size_t part = bytes - at < GPU_PART_BYTES ? bytes - at : GPU_PART_BYTES;
        gpu_copy(gpu, gpu->part, (const char *)memory + at, part);
        for (size_t i = 0; i < part; i++)
            if (gpu->part[i] != gpu_pattern(at + i, seed)) return false;
    }
    return true;
}

static void put_number(unsigned char *to, const struct gpu_numbers *numbers, uint64_t random) {
    float single = (float)(random >> 40) * 0x1p-22F - 2.0F;
    int64_t whole = (int64_t)(numbers->limit > 0 ? random % numbers->limit : 0);
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    uint16_t high = (uint16_t)(bits >> 16);
    switch (numbers->dtype) {
    case WEIR_F32: memcpy(to, &single, sizeof single); break;
    case WEIR_BF16: memcpy(to, &high, sizeof high); break;
    default: memcpy(to, &whole, sizeof whole);
    }
}

void gpu_fill_numbers(struct bench_gpu *gpu, const struct gpu_numbers *numbers, uint64_t seed) {
    size_t each = weir_dtype_bytes(numbers->dtype), bytes = numbers->count * each;
    for (size_t at = 0; at < bytes; at += GPU_PART_BYTES) {
        size_t part = bytes - at < GPU_PART_BYTES ? bytes - at : GPU_PART_BYTES;
        for (size_t i = 0; i < part; i += each)
            put_number(&gpu->part[i], numbers, bench_random(&seed));
        gpu_copy(gpu, (char *)numbers->memory + at, gpu->part, part);
    }
}

/* ---- the GPU ---- */

/* As the real one: copies of memory that is not pinned. */
static void set_up_fake(struct bench *bench, const struct weir__cuda_driver *driver) {
    const struct weir_fake_cuda_control *fake = dlsym(driver->library, "weir_fake_cuda_control");
    if (!bench->options.quick)
        bench_die("WEIR_CUDA_DRIVER names the fake driver, whose times mean nothing: unset it, or "
                  "give --quick to see whether everything runs");
    fprintf(bench->text, "the fake driver: everything runs, nothing is measured\n");
    fake->reset(1, (uint32_t)driver->gpu_count, WEIR_FAKE_CUDA_PAGEABLE);
}

static void look_at_driver(struct bench *bench) {
    struct weir__cuda_driver driver;
    struct weir_error error = {0};
    if (weir__cuda_driver_open(&driver, &error) != WEIR_OK)
        bench_die("nothing was measured on a GPU: %s", error.message);
    if (driver.fake) set_up_fake(bench, &driver);
    weir__cuda_driver_close(&driver);
}

static int attribute(const struct weir__cuda_device *own, int which) {
    int value = 0;
    return own->driver.device_get_attribute(&value, which, own->gpu) == 0 ? value : 0;
}

static void take_facts(struct bench_gpu *gpu) {
    const struct weir__cuda_device *own = weir__cuda_device(gpu->device);
    size_t bytes = 0;
    (void)own->driver.device_get_name(gpu->name, sizeof gpu->name, own->gpu);
    (void)own->driver.device_total_memory(&bytes, own->gpu);
    gpu->memory_bytes = bytes;
    gpu->fake = own->driver.fake;
    char pci[32] = "";
    (void)own->driver.device_get_pci(pci, sizeof pci, own->gpu);
    gpu_state_open(&gpu->state, gpu->fake ? own->driver.library : NULL, pci);
    gpu->count = (uint32_t)own->driver.gpu_count;
    gpu->version = own->driver.version;
    gpu->multiprocessors = attribute(own, WEIR__CUDA_ATTRIBUTE_MULTIPROCESSORS);
    gpu->capability_major = attribute(own, WEIR__CUDA_ATTRIBUTE_CAPABILITY_MAJOR);
    gpu->capability_minor = attribute(own, WEIR__CUDA_ATTRIBUTE_CAPABILITY_MINOR);
    double clock = 1e3 * attribute(own, MEMORY_CLOCK_KHZ); /* two transfers in each */
    gpu->memory_roof = 2.0 * clock * attribute(own, MEMORY_BUS_BITS) / 8.0;
}

static struct weir__device *open_device(const char *name) {
    struct weir__device *device = NULL;
    struct weir_error error = {0};
    if (weir__device_open(name, NULL, &error, &device) != WEIR_OK)
        bench_die("nothing was measured on a GPU: %s", error.message);
    return device;
}

static void make_tools(struct bench_gpu *gpu) {
    const struct weir__device_calls *calls = gpu->device->calls;
    gpu_check(gpu, calls->enter(gpu->device), "the GPU");
    gpu_check(gpu, calls->stream_new(gpu->device, &gpu->stream), "a stream");
    gpu_check(gpu, calls->stream_new(gpu->device, &gpu->beside), "a stream");
    gpu_check(gpu, calls->event_init(gpu->device, &gpu->start), "an event");
    gpu_check(gpu, calls->event_init(gpu->device, &gpu->end), "an event");
    gpu_check(gpu, calls->event_init(gpu->device, &gpu->beside_end), "an event");
    gpu_check(gpu, toys_load(&gpu->toys, gpu->device), "the benches' kernels");
    gpu_check(gpu, toys_find(&gpu->toys, "weir_spin", &gpu->spin), "the benches' kernels");
    gpu_check(gpu, toys_find(&gpu->toys, "weir_gemm", &gpu->gemm), "the benches' kernels");
    gpu_check(gpu, toys_find(&gpu->toys, "weir_add", &gpu->add), "the benches' kernels");
    gpu->spun = gpu_take(gpu, gpu->device, sizeof *gpu->spun);
    gpu->part = gpu_take_pinned(gpu, GPU_PART_BYTES);
    gpu->spins = gpu->fake ? SPINS_FAKE : SPINS_FIRST;
}

struct bench_gpu *bench_gpu_open(struct bench *bench) {
    if (bench->gpu != NULL) return bench->gpu;
    look_at_driver(bench);
    struct bench_gpu *gpu = bench_take(bench, 1, sizeof *gpu);
    gpu->device = open_device("cuda:0");
    take_facts(gpu);
    gpu->table = gpu->fake ? fopen("/dev/null", "w") : bench->text;
    if (gpu->table == NULL) bench_die("/dev/null cannot be opened");
    make_tools(gpu);
    if (gpu->count > 1) gpu->peer = open_device("cuda:1");
    bool near = gpu->peer != NULL && gpu->device->calls->reaches(gpu->device, gpu->peer) &&
                gpu->peer->calls->reaches(gpu->peer, gpu->device);
    if (gpu->peer != NULL && !near) {
        fprintf(gpu->table, "the first two GPUs do not reach each other: no copies of peers\n");
        gpu->peer->calls->close(gpu->peer);
        gpu->peer = NULL;
    }
    if (!gpu->fake)
        fprintf(bench->text, "%s, %d multiprocessors, CUDA %d.%d\n", gpu->name,
                gpu->multiprocessors, gpu->version / 1000, gpu->version % 1000 / 10);
    bench->gpu = gpu;
    return gpu;
}

void bench_gpu_close(struct bench *bench) {
    struct bench_gpu *gpu = bench->gpu;
    if (gpu == NULL) return;
    const struct weir__device_calls *calls = gpu->device->calls;
    gpu_give_pinned(gpu, gpu->part, GPU_PART_BYTES);
    gpu_give(gpu->device, gpu->spun, sizeof *gpu->spun);
    toys_unload(&gpu->toys);
    calls->event_clean_up(&gpu->beside_end);
    calls->event_clean_up(&gpu->end);
    calls->event_clean_up(&gpu->start);
    calls->stream_destroy(gpu->beside);
    calls->stream_destroy(gpu->stream);
    if (gpu->peer != NULL) gpu->peer->calls->close(gpu->peer);
    gpu_state_close(&gpu->state);
    calls->close(gpu->device);
    if (gpu->fake) fclose(gpu->table);
    bench->gpu = NULL;
}

/* ---- times ---- */

static void hold(struct bench_gpu *gpu) {
    const struct weir__device_calls *calls = gpu->device->calls;
    const struct weir__cuda_grid one = {{1, 1, 1}, {1, 1, 1}, 0};
    void *arguments[] = {&gpu->spun, &gpu->spins};
    /* a net that was closed in between may have had another GPU's memory last */
    gpu_check(gpu, calls->enter(gpu->device), "the GPU");
    gpu_check(gpu, toys_launch(gpu->stream, gpu->spin, &one, arguments), "a kernel that spins");
    gpu_check(gpu, calls->event_record(gpu->stream, &gpu->start), "an event");
    gpu_check(gpu, calls->stream_wait(gpu->beside, &gpu->start), "an event");
}

/* Whether the hold is still on, and so was long enough; else the next one is longer. */
static bool was_held(struct bench_gpu *gpu) {
    const struct weir__cuda_device *own = weir__cuda_device(gpu->device);
    if (gpu->fake || own->driver.event_query(gpu->start.native) == WEIR__CUDA_NOT_READY)
        return true;
    if (gpu->spins < SPINS_MOST) gpu->spins *= 2;
    return gpu->spins >= SPINS_MOST;
}

static double elapsed(struct bench_gpu *gpu, const struct weir__event *end) {
    struct weir__cuda_device *own = weir__cuda_device(gpu->device);
    float milliseconds = 0.0f;
    int result = own->driver.event_elapsed(&milliseconds, gpu->start.native, end->native);
    gpu_check(gpu, weir__cuda_check(own, "cuEventElapsedTime", result), "a time");
    return milliseconds > 0.0f ? (double)milliseconds * 1e-3 : 1e-9;
}

static void enqueue(struct bench_gpu *gpu, struct weir_stream *stream, const struct gpu_work *work,
                    struct weir__event *end) {
    for (uint32_t i = 0; i < work->count; i++) work->enqueue(gpu, stream, work->context);
    gpu_check(gpu, gpu->device->calls->event_record(stream, end), "an event");
}

struct gpu_times gpu_time_beside(struct bench_gpu *gpu, const struct gpu_work *work,
                                 const struct gpu_work *beside) {
    const struct weir__device_calls *calls = gpu->device->calls;
    bool held;
    do {
        hold(gpu);
        enqueue(gpu, gpu->stream, work, &gpu->end);
        enqueue(gpu, gpu->beside, beside, &gpu->beside_end);
        held = was_held(gpu);
        gpu_check(gpu, calls->stream_finish(gpu->stream), "work that is timed");
        gpu_check(gpu, calls->stream_finish(gpu->beside), "work that is timed");
    } while (!held);
    gpu_state_look(&gpu->state);
    return (struct gpu_times){elapsed(gpu, &gpu->end), elapsed(gpu, &gpu->beside_end)};
}

double gpu_time(struct bench_gpu *gpu, const struct gpu_work *work) {
    return gpu_time_beside(gpu, work, &(struct gpu_work){.count = 0}).work;
}

/* ---- results ---- */

struct bench_result *gpu_add_to_copy(struct bench *bench, const char *topic,
                                     const struct bench_case *measured, size_t bytes,
                                     const struct bench_case *copy, size_t copy_bytes) {
    double roof = bench->gpu->memory_roof, *ratios, fraction;
    char rate[32], of_roof[32];
    double median = bench_median(measured->samples, measured->count);
    struct bench_result *result =
        bench_add(bench, "s", measured->samples, measured->count, "%s/%s", topic, measured->label);
    result->ideal = roof > 0.0 ? (double)bytes / roof : NAN;
    result->tabled = true;
    ratios = bench_take(bench, measured->count, sizeof *ratios);
    for (uint32_t i = 0; i < measured->count; i++)
        ratios[i] = (double)bytes / measured->samples[i] / ((double)copy_bytes / copy->samples[i]);
    result = bench_add(bench, "fraction", ratios, measured->count, "%s/%s/to-copy", topic,
                       measured->label);
    fraction = (double)bytes / median / roof;
    result->higher_is_better = true;
    result->ideal = 1.0;
    snprintf(result->note, sizeof result->note, "%s read and written, %s of the memory's",
             bench_value_text((double)bytes / median, "B/s", rate),
             bench_value_text(fraction, "fraction", of_roof));
    return result;
}

/* ---- work ---- */

void gpu_enqueue_gemm(struct bench_gpu *gpu, struct weir_stream *stream, const void *context) {
    struct gpu_gemm own = *(const struct gpu_gemm *)context;
    const struct weir__cuda_grid grid = {{own.side / 64, own.side / 64, 1}, {256, 1, 1}, 0};
    void *arguments[] = {&own.c, &own.a, &own.b, &own.side, &own.side};
    gpu_check(gpu, toys_launch(stream, gpu->gemm, &grid, arguments), "a matrix product");
}
