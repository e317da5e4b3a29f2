/* SPDX-License-Identifier: MIT */
/*
 * How fast do bytes get from one place to another on the CPU, and does the engine's copy take the
 * best known way at each size?
 *
 * Napkin. A pointer costs one hand-off between cores, whatever it points to: 0.1 us. A copy reads
 * and writes one vector per cycle while both sides lie in the first cache (64 bytes at 3.5 GHz: 220
 * GB/s at best, half of it seen), half that in the second, and in memory what a core's outstanding
 * misses allow: 64 bytes times 24 misses in 90 ns, 17 GB/s of reads; plain stores read the
 * destination's lines as well, so 12 GB/s are left, where stores that pass the caches by leave
 * nearly 20. The two ways cross where source and destination together fill the last cache. Rows of
 * 256 bytes (64 channels) are four lines each, a call apiece: 10 ns per row in cache, 25 GB/s.
 */
#include "harness.h"

#include "device/device.h"
#include "device/past_cache.h"

#include <math.h>
#include <string.h>

static const double ENGINE_AT_LEAST = 0.95;
static const size_t LEAST = (size_t)1 << 10, JUDGED_MOST = (size_t)256 << 20;
static const size_t MOST = (size_t)1 << 30, MOST_QUICK = (size_t)32 << 20;

enum { SIZES_MOST = 32, ROW_BYTES = 256, STRIDE_BYTES = 512, GUARD_BYTES = 64, GUARD = 0x5a };
/* Copies are timed in groups that a look at the clock does not disturb. */
enum { GROUP_BYTES = 256 << 10, GROUPS_PER_SAMPLE = 2048 };
#define SAMPLE_NS UINT64_C(10000000)
#define SAMPLE_QUICK_NS UINT64_C(100000)

enum way { MEMCPY, PAST_CACHE, ENGINE, MEMCPY_AGAIN, GATHER, SCATTER, WAYS };
static const char *const way_names[WAYS] = {"memcpy",       "past-cache", "engine",
                                            "memcpy-again", "gather",     "scatter"};

struct copy_case {
    enum way way;
    size_t bytes, stream_min;
    unsigned char *to;
    const unsigned char *from;
    double *groups; /* s per copy, of every group since the last size */
    uint32_t group_count;
};

struct copies {
    struct weir__device *device;
    void *memory[2];
    size_t memory_bytes, size_count;
    size_t sizes[SIZES_MOST];
    double *samples[SIZES_MOST][WAYS]; /* NULL: not measured */
    double best_ratio[SIZES_MOST], control[SIZES_MOST], p50[SIZES_MOST], p99[SIZES_MOST];
    double *groups[WAYS];
};

/* ---- ways ---- */

/* Rows to or from every other place: what joining or parting the channels of images does. */
static void copy_rows(void *to, size_t to_stride, const void *from, size_t from_stride,
                      size_t bytes) {
    for (size_t row = 0; row < bytes / ROW_BYTES; row++)
        memcpy((char *)to + row * to_stride, (const char *)from + row * from_stride, ROW_BYTES);
}

/* Without this all but the last copy would go. */
static inline void be_read(const void *memory) {
    __asm__ volatile("" : : "r"(memory) : "memory");
}

#define REPEAT(statement)                                                                          \
    for (size_t i = 0; i < count; i++) {                                                           \
        statement;                                                                                 \
        be_read(to);                                                                               \
    }                                                                                              \
    break

/* The way is chosen once, for the smallest copies take 10 ns. */
static void copy_times(const struct copy_case *one, size_t count) {
    void *to = one->to;
    const void *from = one->from;
    size_t bytes = one->bytes, stream_min = one->stream_min;
    switch (one->way) {
    case PAST_CACHE: REPEAT(weir__copy_past_cache(to, from, bytes));
    case ENGINE: REPEAT(weir__cpu_copy(to, from, bytes, stream_min));
    case GATHER: REPEAT(copy_rows(to, ROW_BYTES, from, STRIDE_BYTES, bytes));
    case SCATTER: REPEAT(copy_rows(to, STRIDE_BYTES, from, ROW_BYTES, bytes));
    default: REPEAT(memcpy(to, from, bytes));
    }
}

/* ---- answers ---- */

static size_t span_of(const struct copy_case *one, enum way strided) {
    if (one->way != strided) return one->bytes;
    return one->bytes / ROW_BYTES * STRIDE_BYTES - (STRIDE_BYTES - ROW_BYTES);
}

static bool is_guard(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != GUARD) return false;
    return true;
}

static bool rows_arrived(const struct copy_case *one) {
    size_t to_stride = one->way == SCATTER ? STRIDE_BYTES : ROW_BYTES;
    size_t from_stride = one->way == GATHER ? STRIDE_BYTES : ROW_BYTES;
    size_t rows = one->bytes / ROW_BYTES;
    for (size_t row = 0; row < rows; row++) {
        const unsigned char *to = one->to + row * to_stride;
        if (memcmp(to, one->from + row * from_stride, ROW_BYTES) != 0) return false;
        if (row + 1 < rows && !is_guard(to + ROW_BYTES, to_stride - ROW_BYTES)) return false;
    }
    return true;
}

/* Everything arrived, and nothing else was written. */
static bool has_arrived(const struct copy_case *one) {
    bool rows = one->way == GATHER || one->way == SCATTER;
    bool right = rows ? rows_arrived(one) : memcmp(one->to, one->from, one->bytes) == 0;
    return right && is_guard(one->to + span_of(one, SCATTER), GUARD_BYTES);
}

static bool copies_rightly(const struct copy_case *one) {
    memset(one->to, GUARD, span_of(one, SCATTER) + GUARD_BYTES);
    copy_times(one, 1);
    return has_arrived(one);
}

/* ---- samples ---- */

/* The median time of a copy, in the caches that its predecessor left. */
static void sample_copies(struct bench *bench, void *context, double *value) {
    struct copy_case *one = context;
    uint64_t budget = bench->options.quick ? SAMPLE_QUICK_NS : SAMPLE_NS;
    size_t copies = one->bytes < GROUP_BYTES ? GROUP_BYTES / one->bytes : 1;
    double *groups = &one->groups[one->group_count];
    uint32_t count = 0;
    copy_times(one, copies);
    uint64_t now = weir__now_ns(), end = now + budget;
    do {
        uint64_t start = now;
        copy_times(one, copies);
        now = weir__now_ns();
        groups[count++] = (double)(now - start) * 1e-9 / (double)copies;
    } while (count < GROUPS_PER_SAMPLE && now < end);
    *value = bench_median(groups, count);
    one->group_count += count;
}

static const char *size_text(size_t bytes, char text[32]) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
    uint32_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < WEIR__COUNT_OF(units); unit++) bytes /= 1024;
    snprintf(text, 32, "%zu-%s", bytes, units[unit]);
    return text;
}

static void add_time(struct bench *bench, const struct bench_case *measured, const char *size) {
    const struct copy_case *one = measured->context;
    char rate[32], p50[32], p99[32];
    struct bench_result *result = bench_add(bench, "s", measured->samples, measured->count,
                                            "copy/%s/%s", size, way_names[one->way]);
    result->tabled = true;
    snprintf(result->note, sizeof result->note, "%s; p50 %s, p99 %s of %u groups",
             bench_value_text((double)one->bytes / result->median, "B/s", rate),
             bench_value_text(bench_quantile(one->groups, one->group_count, 0.5), "s", p50),
             bench_value_text(bench_quantile(one->groups, one->group_count, 0.99), "s", p99),
             one->group_count);
}

static void add_ratios(struct bench *bench, struct copies *copies, size_t s,
                       const struct bench_case *cases, const char *size) {
    const struct copy_case *engine = cases[ENGINE].context;
    double plain = bench_median(cases[MEMCPY].samples, cases[MEMCPY].count);
    double past = bench_median(cases[PAST_CACHE].samples, cases[PAST_CACHE].count);
    const struct bench_case *best = past < plain ? &cases[PAST_CACHE] : &cases[MEMCPY];
    struct bench_result *result =
        bench_add_ratio(bench, best, &cases[ENGINE], "copy/%s/engine-to-best", size);
    result->higher_is_better = true;
    result->ideal = 1.0;
    if (engine->bytes <= JUDGED_MOST) result->at_least = ENGINE_AT_LEAST;
    snprintf(result->note, sizeof result->note, "the best: %s", best->label);
    copies->best_ratio[s] = result->median;
    result = bench_add_ratio(bench, &cases[MEMCPY], &cases[MEMCPY_AGAIN], "copy/%s/control", size);
    result->control = result->tabled = true;
    copies->control[s] = result->median;
    copies->p50[s] = bench_quantile(engine->groups, engine->group_count, 0.5);
    copies->p99[s] = bench_quantile(engine->groups, engine->group_count, 0.99);
}

static void measure_size(struct bench *bench, struct copies *copies, size_t s) {
    struct copy_case own[WAYS];
    struct bench_case cases[WAYS];
    char size[32];
    uint32_t count = 0;
    size_text(copies->sizes[s], size);
    for (int way = 0; way < WAYS; way++) {
        own[way] = (struct copy_case){.way = (enum way)way,
                                      .bytes = copies->sizes[s],
                                      .stream_min = copies->device->stream_min,
                                      .to = copies->memory[0],
                                      .from = copies->memory[1],
                                      .groups = copies->groups[way]};
        size_t span = span_of(&own[way], SCATTER), read = span_of(&own[way], GATHER);
        if ((span > read ? span : read) + GUARD_BYTES > copies->memory_bytes) break;
        cases[count++] = (struct bench_case){
            .label = way_names[way], .sample = sample_copies, .context = &own[way]};
        bench_answer(bench, copies_rightly(&own[way]), "copy/%s/%s: all bytes arrived", size,
                     way_names[way]);
    }
    bench_interleave(bench, cases, count);
    for (uint32_t way = 0; way < count; way++) {
        copies->samples[s][way] = cases[way].samples;
        add_time(bench, &cases[way], size);
        bench_answer(bench, copies_rightly(&own[way]), "copy/%s/%s: and still do", size,
                     way_names[way]);
    }
    add_ratios(bench, copies, s, cases, size);
}

static void print_sizes(const struct bench *bench, const struct copies *copies) {
    fprintf(bench->text, "\n%-10s", "GB/s");
    for (int way = 0; way < WAYS; way++)
        if (way != MEMCPY_AGAIN) fprintf(bench->text, " %10s", way_names[way]);
    fprintf(bench->text, " %14s %8s %12s %12s\n", "engine to best", "control", "engine's p50",
            "p99");
    for (size_t s = 0; s < copies->size_count; s++) {
        char text[32];
        fprintf(bench->text, "%-10s", size_text(copies->sizes[s], text));
        for (int way = 0; way < WAYS; way++) {
            const double *samples = copies->samples[s][way];
            if (way == MEMCPY_AGAIN) continue;
            if (samples == NULL) {
                fprintf(bench->text, " %10s", "-");
                continue;
            }
            double time = bench_median(samples, bench->options.repetitions);
            fprintf(bench->text, " %10.1f", (double)copies->sizes[s] / time * 1e-9);
        }
        fprintf(bench->text, " %13.1f%% %7.1f%%", copies->best_ratio[s] * 100.0,
                copies->control[s] * 100.0);
        fprintf(bench->text, " %12s", bench_value_text(copies->p50[s], "s", text));
        fprintf(bench->text, " %12s\n", bench_value_text(copies->p99[s], "s", text));
    }
}

/* ---- time = alpha + bytes / beta ---- */

struct range {
    const char *name;
    size_t low, high; /* of bytes copied; where both sides lie in that memory */
};

static void fit_line(const struct copies *copies, const struct range *range, int way,
                     uint32_t round, double *alpha, double *beta) {
    double bytes[SIZES_MOST], seconds[SIZES_MOST];
    uint32_t count = 0;
    for (size_t s = 0; s < copies->size_count; s++) {
        if (copies->sizes[s] < range->low || copies->sizes[s] > range->high) continue;
        bytes[count] = (double)copies->sizes[s];
        seconds[count++] = copies->samples[s][way][round];
    }
    bench_fit_copies(bytes, seconds, count, alpha, beta);
}

static void add_fit(struct bench *bench, const struct copies *copies, const struct range *range,
                    int way) {
    uint32_t rounds = bench->options.repetitions;
    double *alpha = bench_take(bench, rounds, sizeof *alpha);
    double *beta = bench_take(bench, rounds, sizeof *beta);
    char time[32], rate[32];
    for (uint32_t r = 0; r < rounds; r++) fit_line(copies, range, way, r, &alpha[r], &beta[r]);
    struct bench_result *result =
        bench_add(bench, "s", alpha, rounds, "copy/fit/%s/%s/alpha", range->name, way_names[way]);
    result->tabled = true;
    bench_value_text(result->median, "s", time);
    result =
        bench_add(bench, "B/s", beta, rounds, "copy/fit/%s/%s/beta", range->name, way_names[way]);
    result->higher_is_better = result->tabled = true;
    bench_value_text(result->median, "B/s", rate);
    fprintf(bench->text, "%-8s %-12s %12s %12s\n", range->name, way_names[way], time, rate);
}

static void add_fits(struct bench *bench, const struct copies *copies) {
    const struct weir__machine_facts *facts = &bench->facts;
    size_t l1 = facts->l1d_bytes, l2 = facts->l2_bytes, l3 = facts->l3_bytes;
    const struct range ranges[] = {
        {"L1", LEAST, l1 / 4}, {"L2", l1, l2 / 4}, {"L3", l2, l3 / 4}, {"memory", 2 * l3, MOST}};
    fprintf(bench->text, "\ntime = alpha + bytes / beta\n%-8s %-12s %12s %12s\n", "both in", "",
            "alpha", "beta");
    for (size_t i = 0; i < WEIR__COUNT_OF(ranges); i++) {
        uint32_t points = 0;
        for (size_t s = 0; s < copies->size_count; s++)
            points += copies->sizes[s] >= ranges[i].low && copies->sizes[s] <= ranges[i].high;
        if (points < 3 || ranges[i].low == 0) continue;
        for (int way = MEMCPY; way <= ENGINE; way++) add_fit(bench, copies, &ranges[i], way);
    }
}

/* ---- a pointer ---- */

enum { PASSES = 4000, PASSES_QUICK = 100 };

/* Two cores hand each other a pointer to what they have just written. */
struct passing {
    struct weir__gate ping, pong;
    uint32_t passes, rounds;
    _Alignas(WEIR__CACHE_LINE) uint32_t first; /* what the pointers point to */
    _Alignas(WEIR__CACHE_LINE) uint32_t second;
    _Alignas(WEIR__CACHE_LINE) const uint32_t *there;
    _Alignas(WEIR__CACHE_LINE) const uint32_t *back;
    double *trips, *samples; /* one way, s */
    bool right[2];
};

static void lead(struct passing *p, uint32_t n) {
    p->first = n;
    p->there = &p->first;
    weir__gate_advance(&p->ping, n);
    weir__gate_wait(&p->pong, n, UINT64_C(1000000000), 0);
    p->right[0] &= p->back == &p->second && *p->back == n + 1;
}

static void follow(struct passing *p, uint32_t n) {
    weir__gate_wait(&p->ping, n, UINT64_C(1000000000), 0);
    p->right[1] &= p->there == &p->first && *p->there == n;
    p->second = n + 1;
    p->back = &p->second;
    weir__gate_advance(&p->pong, n);
}

static void pass_pointers(struct bench_team *team, uint32_t member) {
    struct passing *p = team->context;
    uint32_t n = 0;
    for (uint32_t round = 0; round < p->rounds; round++) {
        double *trips = &p->trips[(size_t)round * p->passes];
        bench_meet(team, member, 2, round + 1);
        uint64_t now = weir__now_ns();
        for (uint32_t i = 0; i < p->passes; i++) {
            n++;
            if (member == 1) {
                follow(p, n);
                continue;
            }
            uint64_t start = now;
            lead(p, n);
            now = weir__now_ns();
            trips[i] = (double)(now - start) * 0.5e-9;
        }
        if (member == 0) p->samples[round] = bench_median(trips, p->passes);
    }
}

static void measure_pointer(struct bench *bench) {
    if (bench->facts.usable_cores < 2) {
        fprintf(bench->text, "fewer than two usable cores: no pointer is handed over\n");
        return;
    }
    struct passing *p = bench_take(bench, 1, sizeof *p);
    char p50[32], p99[32];
    p->passes = bench->options.quick ? PASSES_QUICK : PASSES;
    p->rounds = bench->options.repetitions;
    p->trips = bench_take(bench, (size_t)p->passes * p->rounds, sizeof *p->trips);
    p->samples = bench_take(bench, p->rounds, sizeof *p->samples);
    p->right[0] = p->right[1] = true;
    bench_run_team(bench, 2, p, pass_pointers);
    bench_answer(bench, p->right[0] && p->right[1], "copy/pointer: it points to what was written");
    struct bench_result *result = bench_add(bench, "s", p->samples, p->rounds, "copy/pointer");
    uint32_t trips = p->passes * p->rounds;
    result->ideal = bench->roofs.handoff_line;
    snprintf(result->note, sizeof result->note,
             "any size; p50 %s, p99 %s; half a look at the clock is in it",
             bench_value_text(bench_quantile(p->trips, trips, 0.5), "s", p50),
             bench_value_text(bench_quantile(p->trips, trips, 0.99), "s", p99));
}

/* ---- the topic ---- */

static void take_memory(struct bench *bench, struct copies *copies) {
    size_t most = bench->options.quick ? MOST_QUICK : MOST;
    while (most > JUDGED_MOST && most > bench->facts.memory_bytes / 8) most /= 2;
    bench_check(weir__device_open("cpu", NULL, NULL, &copies->device), "copy: the device");
    copies->device->stream_min = weir__copy_stream_min(bench->facts.l3_bytes);
    copies->memory_bytes = most + WEIR__HUGE_PAGE;
    for (int i = 0; i < 2; i++) {
        const struct weir__device_calls *calls = copies->device->calls;
        bench_check(calls->memory_acquire(copies->device, copies->memory_bytes, &copies->memory[i]),
                    "copy: memory");
        bench_check(
            calls->memory_touch(copies->device, copies->memory[i], copies->memory_bytes, -1),
            "copy: memory");
    }
    uint64_t random = bench->options.seed, *words = copies->memory[1];
    for (size_t i = 0; i < copies->memory_bytes / sizeof *words; i++)
        words[i] = bench_random(&random);
    for (size_t bytes = LEAST; bytes <= most; bytes *= 2)
        copies->sizes[copies->size_count++] = bytes;
    size_t groups = (size_t)GROUPS_PER_SAMPLE * (bench->options.repetitions + 1);
    for (int way = 0; way < WAYS; way++)
        copies->groups[way] = bench_take(bench, groups, sizeof *copies->groups[way]);
}

void bench_copy(struct bench *bench) {
    struct copies *copies = bench_take(bench, 1, sizeof *copies);
    char edge[32], row[32], stride[32];
    take_memory(bench, copies);
    fprintf(bench->text,
            "the engine's copies pass the caches by from %s on; rows of %s, every %s\n",
            size_text(copies->device->stream_min, edge), size_text(ROW_BYTES, row),
            size_text(STRIDE_BYTES, stride));
    for (size_t s = 0; s < copies->size_count; s++) measure_size(bench, copies, s);
    print_sizes(bench, copies);
    add_fits(bench, copies);
    measure_pointer(bench);
    for (int i = 0; i < 2; i++)
        copies->device->calls->memory_release(copies->device, copies->memory[i],
                                              copies->memory_bytes);
    copies->device->calls->close(copies->device);
}
