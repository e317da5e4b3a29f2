/* SPDX-License-Identifier: MIT */
/*
 * How fast do bytes get to a GPU, from it, on it and between two, by which way, and is the engine's
 * copy the best at each size?
 *
 * Napkin, for an H200. Pinned over PCIe 5: 55 GB/s of 64 each way behind 8 us, so that half of it
 * is reached at 440 KiB. Pageable memory goes through the driver's own pinned pages, at what a core
 * copies: 6 to 12 GB/s. On the GPU a copy reads and writes: 4.3 TB/s of traffic are 2.15 TB/s of
 * bytes copied behind 2 us for a kernel, more for a copy engine, and only what does not lie in the
 * 50 MiB of the second cache counts. Peers over NVLink: 450 GB/s each way.
 */
#include "gpu.h"
#include "pipe/lanes/ways.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double CHOICE_AT_LEAST = 0.95;
static const size_t LEAST = 1 << 10, MOST = (size_t)1 << 30, MOST_QUICK = 64 << 10;
static const size_t HOST_MOST = (size_t)256 << 20, SAMPLE_BYTES = (size_t)256 << 20;

enum { SIZES_MOST = 32, COPIES_MOST = 16, PATTERNS = 5 };

/* For each link a copy engine, a kernel of as many blocks as the engine gives it, and which of the
 * two the engine (src/pipe/lanes/ways.h) takes where nothing runs beside; then what it never does.
 */
enum { ENGINE, KERNEL, CHOICE, HOWS };
enum link { UP, DOWN, OWN, PEER, LINKS };
enum way { PAGEABLE_UP = LINKS * HOWS, PAGEABLE_DOWN, OWN_ALL_BLOCKS, OWN_BATCH, PEER_PUSH, WAYS };
static const char *const way_names[WAYS] = {
    "h2d-engine",   "h2d-kernel",   "h2d-choice",     "d2h-engine", "d2h-kernel", "d2h-choice",
    "d2d-engine",   "d2d-kernel",   "d2d-choice",     "p2p-engine", "p2p-kernel", "p2p-choice",
    "h2d-pageable", "d2h-pageable", "d2d-all-blocks", "d2d-batch",  "p2p-push"};

struct copies {
    struct bench_gpu *gpu;
    size_t bytes_most, host_most;
    unsigned char *device[2], *peer; /* NULL: there is none */
    unsigned char *pinned, *pageable;
    size_t sizes[SIZES_MOST];
    uint32_t size_count;
    double *samples[SIZES_MOST][WAYS]; /* NULL: not measured */
};

struct copy_case {
    struct copies *copies;
    int way;
    size_t bytes;
    unsigned char *to;
    const unsigned char *from;
};

/* ---- ways ---- */

static bool is_pageable(int way) {
    return way == PAGEABLE_UP || way == PAGEABLE_DOWN;
}

static enum link link_of(int way) {
    if (way < PAGEABLE_UP) return (enum link)(way / HOWS);
    return way == PAGEABLE_UP ? UP : way == PAGEABLE_DOWN ? DOWN : way == PEER_PUSH ? PEER : OWN;
}

/* Who reads copies, but the host: so a peer's memory is the source. */
static void set_ends(const struct copies *copies, struct copy_case *one) {
    unsigned char *host = is_pageable(one->way) ? copies->pageable : copies->pinned;
    enum link link = link_of(one->way);
    one->from = link == UP ? host : copies->device[0];
    one->to = link == DOWN ? host : copies->device[1];
    if (link == PEER && one->way == PEER_PUSH) one->to = copies->peer;
    if (link == PEER && one->way != PEER_PUSH) one->from = copies->peer;
}

static int copy_in_parts(struct weir_stream *stream, const struct copy_case *one) {
    struct weir__copy_item items[WEIR__CUDA_BATCH_COPIES];
    size_t part = (one->bytes / WEIR__CUDA_BATCH_COPIES + 15) / 16 * 16, at = 0;
    uint32_t count = 0;
    for (; at < one->bytes; at += part, count++) {
        size_t bytes = one->bytes - at < part ? one->bytes - at : part;
        items[count] = (struct weir__copy_item){one->to + at, one->from + at, bytes};
    }
    return weir__cuda_copy_batch(stream, items, count);
}

static enum weir__link_kind kind_of(enum link link) {
    return link == OWN ? WEIR__LINK_OWN : link == PEER ? WEIR__LINK_PEER : WEIR__LINK_HOST;
}

static int copy_by_kernel(struct weir_stream *stream, const struct copy_case *one) {
    enum link link = link_of(one->way);
    uint32_t own = stream->device->memory;
    uint32_t blocks = weir__way_blocks(kind_of(link), one->bytes, false);
    const struct weir__copy_item item = {one->to, one->from, one->bytes};
    const struct weir__copy_set set = {.items = &item,
                                       .count = 1,
                                       .to_memory = link == DOWN ? 0 : own,
                                       .from_memory = link == UP     ? 0
                                                      : link == PEER ? own + 1
                                                                     : own,
                                       .blocks_max = blocks};
    return stream->device->calls->copy_set(stream, &set);
}

static bool chooses_kernel(const struct copy_case *one) {
    enum weir__link_kind kind = kind_of(link_of(one->way));
    uint32_t blocks = weir__way_blocks(kind, one->bytes, false);
    return weir__way_kernel_ns(kind, one->bytes, blocks, false) <
           weir__way_engine_ns(kind, one->bytes);
}

static int copy_once(struct weir_stream *stream, const struct copy_case *one) {
    void *to = one->to;
    const void *from = one->from;
    if (one->way == OWN_BATCH) return copy_in_parts(stream, one);
    if (one->way == OWN_ALL_BLOCKS) return weir__cuda_copy(stream, to, from, one->bytes, 0);
    if (one->way == PEER_PUSH) return weir__cuda_push(stream, to, from, one->bytes, 0);
    int how = is_pageable(one->way) ? ENGINE : one->way % HOWS;
    if (how == CHOICE) how = chooses_kernel(one) ? KERNEL : ENGINE;
    return how == KERNEL ? copy_by_kernel(stream, one)
                         : stream->device->calls->copy(stream, to, from, one->bytes);
}

static void enqueue_copy(struct bench_gpu *gpu, struct weir_stream *stream, const void *context) {
    gpu_check(gpu, copy_once(stream, context), "a copy");
}

/* ---- answers ---- */

static void set_bytes(const struct copies *copies, unsigned char *memory, size_t bytes,
                      uint32_t seed) {
    if (memory == copies->pinned || memory == copies->pageable)
        for (size_t i = 0; i < bytes; i++) memory[i] = gpu_pattern(i, seed);
    else
        gpu_fill(copies->gpu, memory, bytes, seed);
}

static bool has_bytes(const struct copies *copies, const unsigned char *memory, size_t bytes,
                      uint32_t seed) {
    if (memory != copies->pinned && memory != copies->pageable)
        return gpu_matches(copies->gpu, memory, bytes, seed);
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != gpu_pattern(i, seed)) return false;
    return true;
}

static bool copies_rightly(struct copy_case *one) {
    const struct copies *copies = one->copies;
    uint32_t seed = (uint32_t)one->way * PATTERNS + (uint32_t)one->bytes % PATTERNS;
    set_bytes(copies, (unsigned char *)(uintptr_t)one->from, one->bytes, seed);
    set_bytes(copies, one->to, one->bytes, seed + 1);
    enqueue_copy(copies->gpu, copies->gpu->stream, one);
    gpu_check(copies->gpu, copies->gpu->device->calls->stream_finish(copies->gpu->stream),
              "a copy");
    return has_bytes(copies, one->to, one->bytes, seed);
}

/* ---- samples ---- */

static uint32_t copies_at_once(const struct copy_case *one) {
    size_t count = SAMPLE_BYTES / one->bytes;
    if (count > COPIES_MOST) count = COPIES_MOST;
    if (count < 1 || one->copies->gpu->fake) count = 1;
    return (uint32_t)count;
}

/* The driver blocks in such copies: nothing can be held back, and the host's clock is right. */
static double time_pageable(struct bench_gpu *gpu, const struct gpu_work *work) {
    uint64_t start = weir__now_ns();
    for (uint32_t i = 0; i < work->count; i++) work->enqueue(gpu, gpu->stream, work->context);
    gpu_check(gpu, gpu->device->calls->stream_finish(gpu->stream), "a copy");
    return (double)(weir__now_ns() - start) * 1e-9;
}

static void sample_copies(struct bench *bench, void *context, double *value) {
    struct copy_case *one = context;
    struct gpu_work work = {enqueue_copy, one, copies_at_once(one)};
    bool pageable = is_pageable(one->way);
    double s = pageable ? time_pageable(bench->gpu, &work) : gpu_time(bench->gpu, &work);
    *value = s / work.count;
}

static double ideal_time(const struct bench *bench, const struct copy_case *one) {
    bool on_device = link_of(one->way) == OWN;
    double roof = bench->gpu->memory_roof;
    return on_device && roof > 0.0 ? 2.0 * (double)one->bytes / roof : NAN;
}

static void add_time(struct bench *bench, const struct bench_case *measured) {
    const struct copy_case *one = measured->context;
    char rate[32];
    struct bench_result *result = bench_add(bench, "s", measured->samples, measured->count,
                                            "gpu-copy/%s/%zu", way_names[one->way], one->bytes);
    result->ideal = ideal_time(bench, one);
    result->tabled = true;
    snprintf(result->note, sizeof result->note, "%s",
             bench_value_text((double)one->bytes / result->median, "B/s", rate));
}

/* What the engine takes against the better of the two ways. */
static void add_choice(struct bench *bench, const struct bench_case *cases, enum link link,
                       size_t bytes) {
    const struct bench_case *engine = &cases[link * HOWS + ENGINE];
    const struct bench_case *kernel = &cases[link * HOWS + KERNEL];
    const struct bench_case *choice = &cases[link * HOWS + CHOICE];
    if (choice->samples == NULL) return;
    bool by_engine =
        bench_median(engine->samples, engine->count) < bench_median(kernel->samples, kernel->count);
    struct bench_result *result =
        bench_add_ratio(bench, by_engine ? engine : kernel, choice,
                        "gpu-copy/choice-to-best/%.3s/%zu", engine->label, bytes);
    result->higher_is_better = true;
    result->ideal = 1.0;
    result->at_least = CHOICE_AT_LEAST;
    snprintf(result->note, sizeof result->note, "the best: %s; chosen: %s",
             by_engine ? "engine" : "kernel",
             chooses_kernel(choice->context) ? "kernel" : "engine");
}

static bool can_run(const struct copies *copies, int way, size_t bytes) {
    enum link link = link_of(way);
    if (link == UP || link == DOWN) return bytes <= copies->host_most;
    return link != PEER || copies->peer != NULL;
}

static void measure_size(struct bench *bench, struct copies *copies, uint32_t s) {
    struct copy_case own[WAYS];
    struct bench_case cases[WAYS] = {{0}}, ran[WAYS];
    uint32_t count = 0;
    for (int way = 0; way < WAYS; way++) {
        if (!can_run(copies, way, copies->sizes[s])) continue;
        own[way] = (struct copy_case){copies, way, copies->sizes[s], NULL, NULL};
        set_ends(copies, &own[way]);
        bench_answer(bench, copies_rightly(&own[way]), "gpu-copy/%s/%zu: all bytes arrived",
                     way_names[way], copies->sizes[s]);
        ran[count++] = (struct bench_case){
            .label = way_names[way], .sample = sample_copies, .context = &own[way]};
    }
    bench_interleave(bench, ran, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct copy_case *one = ran[i].context;
        cases[one->way] = ran[i];
        copies->samples[s][one->way] = ran[i].samples;
        add_time(bench, &ran[i]);
    }
    for (int link = 0; link < LINKS; link++)
        add_choice(bench, cases, (enum link)link, copies->sizes[s]);
}

/* ---- tables ---- */

static void print_sizes(const struct bench *bench, const struct copies *copies) {
    FILE *to = bench->gpu->table;
    fprintf(to, "\n%-12s", "GB/s of");
    for (int way = 0; way < WAYS; way++)
        if (link_of(way) != PEER || copies->peer != NULL) fprintf(to, " %14s", way_names[way]);
    for (uint32_t s = 0; s < copies->size_count; s++) {
        fprintf(to, "\n%-12zu", copies->sizes[s]);
        for (int way = 0; way < WAYS; way++) {
            const double *samples = copies->samples[s][way];
            if (link_of(way) == PEER && copies->peer == NULL) continue;
            if (samples == NULL) {
                fprintf(to, " %14s", "-");
                continue;
            }
            double time = bench_median(samples, bench->options.repetitions);
            fprintf(to, " %14.2f", (double)copies->sizes[s] / time * 1e-9);
        }
    }
    fprintf(to, "\n");
}

static void add_fit(struct bench *bench, const struct copies *copies, int way) {
    uint32_t rounds = bench->options.repetitions, points = 0;
    double *alpha = bench_take(bench, rounds, sizeof *alpha);
    double *beta = bench_take(bench, rounds, sizeof *beta);
    double bytes[SIZES_MOST], seconds[SIZES_MOST];
    char time[32], rate[32];
    for (uint32_t r = 0; r < rounds; r++) {
        points = 0;
        for (uint32_t s = 0; s < copies->size_count; s++) {
            if (copies->samples[s][way] == NULL) continue;
            bytes[points] = (double)copies->sizes[s];
            seconds[points++] = copies->samples[s][way][r];
        }
        bench_fit_copies(bytes, seconds, points, &alpha[r], &beta[r]);
    }
    if (points < 3) return;
    struct bench_result *result =
        bench_add(bench, "s", alpha, rounds, "gpu-copy/fit/%s/alpha", way_names[way]);
    result->tabled = true;
    bench_value_text(result->median, "s", time);
    result = bench_add(bench, "B/s", beta, rounds, "gpu-copy/fit/%s/beta", way_names[way]);
    result->higher_is_better = result->tabled = true;
    bench_value_text(result->median, "B/s", rate);
    fprintf(bench->gpu->table, "%-14s %12s %14s\n", way_names[way], time, rate);
}

/* ---- memory ---- */

static void take_memory(struct bench *bench, struct copies *copies) {
    struct bench_gpu *gpu = bench->gpu;
    size_t most = bench->options.quick ? MOST_QUICK : MOST;
    while (most > gpu->memory_bytes / 4) most /= 2;
    *copies = (struct copies){.gpu = gpu, .bytes_most = most};
    copies->host_most = most < HOST_MOST ? most : HOST_MOST;
    for (int i = 0; i < 2; i++) copies->device[i] = gpu_take(gpu, gpu->device, most);
    if (gpu->peer != NULL) copies->peer = gpu_take(gpu, gpu->peer, most);
    copies->pinned = gpu_take_pinned(gpu, copies->host_most);
    copies->pageable = aligned_alloc(4096, (copies->host_most + 4095) / 4096 * 4096);
    if (copies->pageable == NULL) bench_die("gpu-copy: no memory");
    memset(copies->pageable, 0, copies->host_most);
    size_t factor = gpu->fake ? 8 : 2;
    for (size_t bytes = LEAST; bytes <= most; bytes *= factor)
        copies->sizes[copies->size_count++] = bytes;
}

static void give_memory(struct copies *copies) {
    struct bench_gpu *gpu = copies->gpu;
    free(copies->pageable);
    gpu_give_pinned(gpu, copies->pinned, copies->host_most);
    if (copies->peer != NULL) gpu_give(gpu->peer, copies->peer, copies->bytes_most);
    for (int i = 0; i < 2; i++) gpu_give(gpu->device, copies->device[i], copies->bytes_most);
}

void bench_gpu_copy(struct bench *bench) {
    struct copies *copies = bench_take(bench, 1, sizeof *copies);
    take_memory(bench, copies);
    for (uint32_t s = 0; s < copies->size_count; s++) measure_size(bench, copies, s);
    print_sizes(bench, copies);
    fprintf(bench->gpu->table, "\ntime = alpha + bytes / beta\n");
    for (int way = 0; way < WAYS; way++)
        if (copies->samples[0][way] != NULL) add_fit(bench, copies, way);
    give_memory(copies);
}
