/* SPDX-License-Identifier: MIT */
/*
 * How near do the kernels that copy and change something come to the device's plain copy, in bytes
 * read and written per second?
 *
 * Napkin, for an H200. All are bound by memory: 4.3 TB/s of traffic, whatever is done with it, as
 * long as each warp's loads and stores fill whole sectors of 32 bytes. Rows of 64 bytes two apart
 * use half of each line that is fetched, but whole sectors: no loss. A transposition of narrow
 * images stages strips in shared memory; elements of one byte need wide tiles. Casts move 6 bytes
 * per element instead of 8. A fill only writes, random words cost ten rounds of arithmetic for each
 * 16 bytes: 60 integer operations per 4 bytes are near the roof of both.
 */
#include "gpu.h"

#include <string.h>

static const double AT_LEAST = 0.90;
static const size_t BYTES = (size_t)256 << 20, BYTES_QUICK = 64 << 10;

enum { PATTERN = 7, ROW_MOST = 4096, LOOKS = 64, LOOK_BYTES = 256 };

enum kind { COPY_ENGINE, COPY_KERNEL, ROWS, LAYOUT, CAST_DOWN, CAST_UP, FILL, RANDOM };

struct kernel_case {
    const char *name;
    enum kind kind;
    uint32_t row_bytes;         /* ROWS */
    bool scatter;               /* else a gather; pitches are twice a row */
    uint32_t channels, element; /* LAYOUT */
    bool to_nchw;
    enum weir_dtype narrow; /* CASTs */
    bool judged;
    /* filled in */
    unsigned char *to;
    const unsigned char *from;
    size_t bytes; /* of source and destination together */
    size_t units; /* rows, pixels of all images, elements */
};

static const struct kernel_case kinds[] = {
    {.name = "copy-engine", .kind = COPY_ENGINE},
    {.name = "copy-kernel", .kind = COPY_KERNEL},
    {.name = "rows-gather-64", .kind = ROWS, .row_bytes = 64, .judged = true},
    {.name = "rows-gather-256", .kind = ROWS, .row_bytes = 256, .judged = true},
    {.name = "rows-gather-4096", .kind = ROWS, .row_bytes = ROW_MOST, .judged = true},
    {.name = "rows-scatter-64", .kind = ROWS, .row_bytes = 64, .scatter = true, .judged = true},
    {.name = "rows-scatter-256", .kind = ROWS, .row_bytes = 256, .scatter = true, .judged = true},
    {.name = "rows-scatter-4096",
     .kind = ROWS,
     .row_bytes = ROW_MOST,
     .scatter = true,
     .judged = true},
    {.name = "nchw-to-nhwc-3x4", .kind = LAYOUT, .channels = 3, .element = 4, .judged = true},
    {.name = "nchw-to-nhwc-64x2", .kind = LAYOUT, .channels = 64, .element = 2, .judged = true},
    {.name = "nchw-to-nhwc-64x4", .kind = LAYOUT, .channels = 64, .element = 4, .judged = true},
    {.name = "nhwc-to-nchw-64x2",
     .kind = LAYOUT,
     .channels = 64,
     .element = 2,
     .to_nchw = true,
     .judged = true},
    {.name = "nhwc-to-nchw-64x4",
     .kind = LAYOUT,
     .channels = 64,
     .element = 4,
     .to_nchw = true,
     .judged = true},
    {.name = "cast-f32-bf16", .kind = CAST_DOWN, .narrow = WEIR_BF16, .judged = true},
    {.name = "cast-bf16-f32", .kind = CAST_UP, .narrow = WEIR_BF16, .judged = true},
    {.name = "fill", .kind = FILL},
    {.name = "random-words", .kind = RANDOM},
};

enum { PIXELS = 28 * 28 };

/* ---- the work ---- */

static int run_rows(struct weir_stream *stream, const struct kernel_case *one) {
    struct weir__cuda_rows rows = {.to = one->to,
                                   .from = one->from,
                                   .to_pitch = one->row_bytes * (one->scatter ? 2 : 1),
                                   .from_pitch = one->row_bytes * (one->scatter ? 1 : 2),
                                   .row_bytes = one->row_bytes,
                                   .rows = one->units};
    return weir__cuda_copy_rows(stream, &rows, 0);
}

static int run_layout(struct weir_stream *stream, const struct kernel_case *one) {
    uint64_t images = one->units / PIXELS;
    if (one->to_nchw)
        return weir__cuda_nhwc_to_nchw(stream, one->to, one->from, images, one->channels, PIXELS,
                                       one->element);
    return weir__cuda_nchw_to_nhwc(stream, one->to, one->from, images, one->channels, PIXELS,
                                   one->element);
}

static int run_random(struct weir_stream *stream, const struct kernel_case *one) {
    const struct weir__cuda_random random = {
        .to = (uint32_t *)(void *)one->to, .rows = one->units / 1024, .elements = 1024, .seed = 1};
    return weir__cuda_random_words(stream, &random);
}

static int run(struct weir_stream *stream, const struct kernel_case *one) {
    static const uint32_t word = 0x2f3e4d5c;
    switch (one->kind) {
    case COPY_ENGINE: return weir__cuda_enqueue_copy(stream, one->to, one->from, one->units);
    case COPY_KERNEL: return weir__cuda_copy(stream, one->to, one->from, one->units, 0);
    case ROWS: return run_rows(stream, one);
    case LAYOUT: return run_layout(stream, one);
    case CAST_DOWN:
        return weir__cuda_cast(stream, one->to, one->narrow, one->from, WEIR_F32, one->units, 0);
    case CAST_UP:
        return weir__cuda_cast(stream, one->to, WEIR_F32, one->from, one->narrow, one->units, 0);
    case FILL: return weir__cuda_fill(stream, one->to, &word, sizeof word, one->units);
    default: return run_random(stream, one);
    }
}

static void enqueue(struct bench_gpu *gpu, struct weir_stream *stream, const void *context) {
    gpu_check(gpu, run(stream, context), "a kernel");
}

/* How many units, so that all is about `bytes` of traffic and fits into two ranges of that size. */
static void set_size(struct kernel_case *one, size_t bytes) {
    size_t half = bytes / 2;
    switch (one->kind) {
    case ROWS:
        one->units = half / one->row_bytes, one->bytes = 2 * one->units * one->row_bytes;
        break;
    case LAYOUT:
        one->units = half / one->element / one->channels / PIXELS * PIXELS;
        one->bytes = 2 * one->units * one->channels * one->element;
        break;
    case CAST_DOWN:
    case CAST_UP: one->units = half / 4, one->bytes = 6 * one->units; break;
    case FILL: one->units = half / 4, one->bytes = 4 * one->units; break;
    case RANDOM: one->units = half / 4 / 1024 * 1024, one->bytes = 4 * one->units; break;
    default: one->units = half, one->bytes = 2 * half; break;
    }
}

/* ---- answers: bytes of the result, against those of the pattern that they come from ---- */

/* Bytes that a fill writes. */
static size_t result_bytes(const struct kernel_case *one) {
    switch (one->kind) {
    case ROWS: return one->units * one->row_bytes * (one->scatter ? 2 : 1);
    case LAYOUT: return one->units * one->channels * one->element;
    case CAST_DOWN: return one->units * 2;
    case COPY_ENGINE:
    case COPY_KERNEL: return one->units;
    default: return one->units * 4;
    }
}

/* The source's byte that stands at `at` of the result. */
static size_t source_of_layout(const struct kernel_case *one, size_t at) {
    size_t e = at / one->element, image = e / ((size_t)PIXELS * one->channels);
    size_t in = e % ((size_t)PIXELS * one->channels);
    size_t c = one->to_nchw ? in / PIXELS : in % one->channels;
    size_t p = one->to_nchw ? in % PIXELS : in / one->channels;
    size_t from = one->to_nchw ? p * one->channels + c : c * PIXELS + p;
    return (image * PIXELS * one->channels + from) * one->element + at % one->element;
}

static unsigned char random_byte(size_t at) {
    uint32_t words[4], row = (uint32_t)(at / 4096), element = (uint32_t)(at / 4 % 1024);
    weir__philox_words(1, 0, 0, row, element / 4, words);
    return (unsigned char)(words[element % 4] >> (at % 4 * 8));
}

static unsigned char pattern(size_t at) {
    return gpu_pattern(at, PATTERN);
}

/* The bf16 nearest to the pattern's f32 number, to even; or its NaN, which is any. */
static bool is_rounded(size_t element, uint16_t got) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 4; i++) bits |= (uint32_t)pattern(element * 4 + i) << (8 * i);
    if ((bits & 0x7fffffff) > 0x7f800000) return (got & 0x7fff) > 0x7f80;
    return got == (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static bool is_right(const struct kernel_case *one, size_t at, const unsigned char *got) {
    static const unsigned char word[4] = {0x5c, 0x4d, 0x3e, 0x2f};
    size_t pitch = 2 * (size_t)one->row_bytes;
    switch (one->kind) {
    case ROWS:
        if (!one->scatter)
            return *got == pattern(at / one->row_bytes * pitch + at % one->row_bytes);
        if (at % pitch >= one->row_bytes) return *got == 0; /* between the rows */
        return *got == pattern(at / pitch * one->row_bytes + at % pitch);
    case LAYOUT: return *got == pattern(source_of_layout(one, at));
    case CAST_DOWN: return at % 2 != 0 || is_rounded(at / 2, (uint16_t)(got[0] | got[1] << 8));
    case CAST_UP: return *got == (at % 4 < 2 ? 0 : pattern(at / 4 * 2 + at % 4 - 2));
    case FILL: return *got == word[at % 4];
    case RANDOM: return *got == random_byte(at);
    default: return *got == pattern(at);
    }
}

/* Parts of it, the first and the last among them. A bf16 NaN may widen to any: its low half is 0
 * all the same. */
static bool looks_right(struct bench *bench, const struct kernel_case *one) {
    struct bench_gpu *gpu = bench->gpu;
    size_t bytes = result_bytes(one), last = (bytes - LOOK_BYTES) / 4 * 4;
    bool right = true;
    gpu_check(gpu, run(gpu->stream, one), one->name);
    for (uint32_t look = 0; look < LOOKS && right; look++) {
        size_t at = look == 0 ? 0 : bench_random(&bench->random) % (last + 1) / 4 * 4;
        if (look == 1) at = last;
        gpu_copy(gpu, gpu->part, one->to + at, LOOK_BYTES);
        for (size_t i = 0; i < LOOK_BYTES && right; i++)
            right = is_right(one, at + i, &gpu->part[i]);
    }
    return right;
}

/* ---- the run ---- */

static void sample_kernel(struct bench *bench, void *context, double *value) {
    const struct kernel_case *one = context;
    struct gpu_work work = {enqueue, one, bench->gpu->fake ? 1 : 16};
    *value = gpu_time(bench->gpu, &work) / work.count;
}

static void add_control(struct bench *bench, const struct bench_case *a,
                        const struct bench_case *b) {
    bench_add_ratio(bench, a, b, "gpu-kernels/control")->control = true;
}

/* The plain copy that others are measured by is the faster of the two. */
static void report(struct bench *bench, const struct bench_case *cases, uint32_t count) {
    double engine = bench_median(cases[0].samples, cases[0].count);
    double kernel = bench_median(cases[1].samples, cases[1].count);
    const struct bench_case *copy = engine < kernel ? &cases[0] : &cases[1];
    fprintf(bench->gpu->table, "the plain copy: by %s\n", engine < kernel ? "engine" : "kernel");
    const struct kernel_case *plain = copy->context;
    for (uint32_t i = 0; i < count; i++) {
        const struct kernel_case *own = cases[i].context;
        struct bench_result *result =
            gpu_add_to_copy(bench, "gpu-kernels", &cases[i], own->bytes, copy, plain->bytes);
        if (own->judged) result->at_least = AT_LEAST;
    }
    add_control(bench, &cases[0], &cases[count]);
}

void bench_gpu_kernels(struct bench *bench) {
    enum { COUNT = WEIR__COUNT_OF(kinds) };
    struct bench_gpu *gpu = bench->gpu;
    struct kernel_case own[COUNT + 1];
    struct bench_case cases[COUNT + 1];
    size_t bytes = bench->options.quick ? 8 * BYTES_QUICK : 2 * BYTES, room = bytes;
    unsigned char *from = gpu_take(gpu, gpu->device, room), *to = gpu_take(gpu, gpu->device, room);
    gpu_fill(gpu, from, room, PATTERN);
    for (uint32_t i = 0; i <= COUNT; i++) {
        own[i] = kinds[i % COUNT]; /* the first once more: the control */
        own[i].to = to;
        own[i].from = from;
        set_size(&own[i], bytes);
        gpu_check(gpu, gpu->device->calls->memory_touch(gpu->device, to, room, -1), "gpu-kernels");
        bench_answer(bench, looks_right(bench, &own[i]), "gpu-kernels/%s: all bytes looked at",
                     own[i].name);
        cases[i] =
            (struct bench_case){.label = own[i].name, .sample = sample_kernel, .context = &own[i]};
    }
    bench_interleave(bench, cases, COUNT + 1);
    report(bench, cases, COUNT);
    gpu_give(gpu->device, from, room);
    gpu_give(gpu->device, to, room);
}
