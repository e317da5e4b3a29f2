/* SPDX-License-Identifier: MIT */
/*
 * How near does each kernel of the CPU's, f32, come to what one core can do at best? All rows of
 * the level (WEIR_LEVEL chooses another) at the shapes of two GPTs and of a U-Net.
 *
 * A kernel's roof is the longer of two times: its bytes, each once, at the speed of a plain copy
 * that moves as many in all, in the caches that it leaves itself; and its multiply-adds at the
 * speed of the roof's, with its exponentials at that of the level's v_exp over an array in the
 * first cache, for both take the same units. All roofs are measured in the kernels' rounds.
 *
 * Napkin, for a Zen 4: products of matrices keep two fused units of 8 lanes busy, less what packing
 * takes, 2 numbers moved for 2 * 2048 multiply-adds: above 90%. What passes over memory once should
 * reach a copy's speed; what reads more than it writes may pass it, for a copy writes half of its
 * bytes. GELU by erf has a division and nine multiply-adds beside its exponential: half its roof.
 */
#include "kernels.h"
#include "vector_exp.h"

#include <math.h>
#include <string.h>

static const double AT_LEAST = 0.85, AT_LEAST_PRODUCT = 0.90;
#define SAMPLE_NS UINT64_C(20000000)
#define SAMPLE_QUICK_NS UINT64_C(100000)
static const double GROUP_S = 2e-5;

enum { COPIES_MOST = 64, EXPONENTIALS = 2048, TURNS = 1000, GROUPS_MOST = 2048 };
/* A copy's bytes are those of a kernel within a part of so many. */
enum { COPY_PARTS = 16 };

struct copy {
    struct kernel kernel; /* first */
    void *to;
    const void *from;
};

struct exponentials {
    struct kernel kernel; /* first */
    exponentials_fn *run;
    float *to, *from;
};

/* Their cases, in this order. */
enum { EXP, MULTIPLY_ADD, COPY };

struct roofs {
    struct exponentials exponentials;
    struct kernel multiply_add;
    struct copy copies[COPIES_MOST];
    uint32_t copy_count;
    void *memory[2];
    size_t bytes; /* of each */
};

void kernels_add(struct kernels *kernels, const struct kernel *kernel) {
    if (kernels->count == KERNELS_MOST) bench_die("kernels: too many");
    kernels->list[kernels->count++] = kernel;
}

/* ---- memory ---- */

static size_t whole_lines(size_t bytes) {
    return (bytes + 64) / 64 * 64;
}

void *kernels_take(const struct kernels *kernels, size_t bytes) {
    const struct weir__device_calls *calls = kernels->device->calls;
    void *memory;
    bench_check(calls->memory_acquire(kernels->device, whole_lines(bytes), &memory), "kernels");
    bench_check(calls->memory_touch(kernels->device, memory, whole_lines(bytes), -1), "kernels");
    return memory;
}

void kernels_give(const struct kernels *kernels, void *memory, size_t bytes) {
    kernels->device->calls->memory_release(kernels->device, memory, whole_lines(bytes));
}

void kernels_fill(struct bench *bench, float *numbers, size_t count) {
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)(bench_random(&bench->random) >> 40) * 0x1p-22f - 2;
}

/* ---- roofs ---- */

static int run_copy(const struct kernel *kernel) {
    const struct copy *copy = (const struct copy *)kernel;
    memcpy(copy->to, copy->from, kernel->bytes / 2);
    __asm__ volatile("" : : "r"(copy->to) : "memory"); /* or all but the last would go */
    return WEIR_OK;
}

static int run_exponentials(const struct kernel *kernel) {
    const struct exponentials *own = (const struct exponentials *)kernel;
    own->run(own->to, own->from, EXPONENTIALS);
    return WEIR_OK;
}

static int run_multiply_add(const struct kernel *kernel) {
    if (!bench_multiply_add(TURNS)) bench_die("%s: wrong answers", kernel->label);
    return WEIR_OK;
}

/* The copy that moves about as many bytes; their count: there is none yet. */
static uint32_t copy_for(const struct roofs *roofs, size_t bytes) {
    uint32_t k = 0;
    for (; k < roofs->copy_count; k++) {
        size_t own = roofs->copies[k].kernel.bytes;
        if ((own > bytes ? own - bytes : bytes - own) <= bytes / COPY_PARTS) break;
    }
    return k;
}

static void add_copies(const struct kernels *kernels, struct roofs *roofs) {
    for (uint32_t i = 0; i < kernels->count; i++) {
        size_t bytes = kernels->list[i]->bytes;
        if (copy_for(roofs, bytes) < roofs->copy_count) continue;
        if (roofs->copy_count == COPIES_MOST) bench_die("kernels: too many sizes");
        roofs->copies[roofs->copy_count++] =
            (struct copy){{.label = "copy", .bytes = bytes, .run = run_copy}, NULL, NULL};
        if (bytes > roofs->bytes) roofs->bytes = bytes;
    }
}

static void add_exponentials(struct bench *bench, const struct kernels *kernels,
                             struct roofs *roofs) {
    static exponentials_fn *const by_level[] = EXPONENTIALS_BY_LEVEL;
    struct exponentials *own = &roofs->exponentials;
    bool right = true;
    own->kernel = (struct kernel){.label = "exponentials", .run = run_exponentials};
    for (uint32_t i = 0; i < WEIR__COUNT_OF(by_level); i++)
        if (weir__level_at(i) == kernels->level) own->run = by_level[i];
    if (own->run == NULL) bench_die("kernels: no exponentials of %s", kernels->level->name);
    own->to = roofs->memory[0];
    own->from = roofs->memory[1];
    (void)run_exponentials(&own->kernel);
    for (int i = 0; i < EXPONENTIALS; i++) {
        double exact = exp((double)own->from[i]);
        right &= fabs((double)own->to[i] - exact) <= 4 * 0x1p-24 * exact;
    }
    bench_answer(bench, right, "kernels/exponentials: near the library's");
}

static void init_roofs(struct bench *bench, const struct kernels *kernels, struct roofs *roofs) {
    roofs->bytes = EXPONENTIALS * sizeof(float);
    roofs->multiply_add = (struct kernel){.label = "multiply-add", .run = run_multiply_add};
    add_copies(kernels, roofs);
    for (int i = 0; i < 2; i++) roofs->memory[i] = kernels_take(kernels, roofs->bytes);
    kernels_fill(bench, roofs->memory[1], roofs->bytes / sizeof(float));
    for (uint32_t k = 0; k < roofs->copy_count; k++) {
        roofs->copies[k].to = roofs->memory[0];
        roofs->copies[k].from = roofs->memory[1];
    }
    add_exponentials(bench, kernels, roofs);
}

/* ---- samples ---- */

static double time_of(const struct kernel *kernel, uint32_t count) {
    uint64_t start = weir__now_ns();
    for (uint32_t i = 0; i < count; i++) bench_check(kernel->run(kernel), kernel->label);
    return (double)(weir__now_ns() - start) * 1e-9 / count;
}

/* The median of groups that a look at the clock does not disturb, in the caches that the kernel
 * leaves itself. */
static void sample(struct bench *bench, void *context, double *value) {
    const struct kernel *kernel = context;
    uint64_t end = weir__now_ns() + (bench->options.quick ? SAMPLE_QUICK_NS : SAMPLE_NS);
    double groups[GROUPS_MOST], once = time_of(kernel, 1);
    uint32_t runs = once < GROUP_S ? (uint32_t)(GROUP_S / once) + 1 : 1, count = 0;
    do {
        groups[count++] = time_of(kernel, runs);
    } while (count < GROUPS_MOST && weir__now_ns() < end);
    *value = bench_median(groups, count);
}

static struct bench_case case_of(const struct kernel *kernel) {
    return (struct bench_case){
        .label = kernel->label, .sample = sample, .context = (void *)(uintptr_t)kernel};
}

/* ---- results ---- */

static double median_of(const struct bench_case *measured) {
    return bench_median(measured->samples, measured->count);
}

struct roof {
    double seconds;
    const char *name;
};

static struct roof roof_of(const struct roofs *roofs, const struct bench_case *cases,
                           const struct kernel *kernel) {
    uint32_t k = copy_for(roofs, kernel->bytes);
    double moved = (double)roofs->copies[k].kernel.bytes;
    double moving = (double)kernel->bytes / moved * median_of(&cases[COPY + k]);
    double adding =
        kernel->multiply_adds / (TURNS * bench_turn_adds()) * median_of(&cases[MULTIPLY_ADD]);
    double raising = kernel->exponentials / EXPONENTIALS * median_of(&cases[EXP]);
    if (moving >= adding + raising) return (struct roof){moving, "copy"};
    return (struct roof){adding + raising, adding >= raising ? "multiply-add" : "exp"};
}

static struct bench_result *add_result(struct bench *bench, const struct kernel *kernel,
                                       const struct bench_case *measured, struct roof roof) {
    char median[32], ideal[32];
    struct bench_result *result =
        bench_add(bench, "s", measured->samples, measured->count, "kernels/%s", kernel->label);
    result->tabled = true;
    result->ideal = roof.seconds;
    result->at_most = roof.seconds / (kernel->product ? AT_LEAST_PRODUCT : AT_LEAST);
    snprintf(result->note, sizeof result->note, "roof: %s", roof.name);
    fprintf(bench->text, "%-44s %12s %12s (%.0f%%) %s%s\n", kernel->label,
            bench_value_text(result->median, "s", median),
            bench_value_text(roof.seconds, "s", ideal), roof.seconds / result->median * 100,
            roof.name, bench_is_met(result) ? "" : " BELOW");
    return result;
}

static void print_below(const struct bench *bench, uint32_t first) {
    for (uint32_t i = first; i < bench->result_count; i++) {
        const struct bench_result *result = &bench->results[i];
        if (!bench_is_met(result))
            fprintf(bench->text, "  %-44s %3.0f%%  %s\n", result->name,
                    result->ideal / result->median * 100, result->note);
    }
}

static void report(struct bench *bench, const struct kernels *kernels, const struct roofs *roofs,
                   const struct bench_case *cases) {
    uint32_t met = 0, first = bench->result_count;
    double *part = bench_take(bench, 1, sizeof *part);
    fprintf(bench->text, "level %s, one core; %.3g multiply-adds, %.3g exponentials a second\n",
            kernels->level->name, TURNS * bench_turn_adds() / median_of(&cases[MULTIPLY_ADD]),
            EXPONENTIALS / median_of(&cases[EXP]));
    fprintf(bench->text, "%-44s %12s %12s\n", "", "median", "roof");
    for (uint32_t i = 0; i < kernels->count; i++) {
        const struct kernel *kernel = kernels->list[i];
        met += bench_is_met(add_result(bench, kernel, &cases[COPY + roofs->copy_count + i],
                                       roof_of(roofs, cases, kernel)));
    }
    fprintf(bench->text, "\n%u of %u at >= %.0f%% (%.0f%% products) of their roof; below:\n", met,
            kernels->count, AT_LEAST * 100, AT_LEAST_PRODUCT * 100);
    print_below(bench, first);
    *part = (double)met / kernels->count;
    struct bench_result *result = bench_add(bench, "fraction", part, 1, "kernels/at-their-roof");
    result->higher_is_better = true;
    result->ideal = 1.0;
}

static struct bench_case *make_cases(struct bench *bench, const struct kernels *kernels,
                                     const struct roofs *roofs, uint32_t *count) {
    struct bench_case *cases =
        bench_take(bench, COPY + COPIES_MOST + kernels->count, sizeof *cases);
    cases[EXP] = case_of(&roofs->exponentials.kernel);
    cases[MULTIPLY_ADD] = case_of(&roofs->multiply_add);
    *count = COPY;
    for (uint32_t k = 0; k < roofs->copy_count; k++)
        cases[(*count)++] = case_of(&roofs->copies[k].kernel);
    for (uint32_t i = 0; i < kernels->count; i++) cases[(*count)++] = case_of(kernels->list[i]);
    return cases;
}

void bench_kernels(struct bench *bench) {
    struct kernels *kernels = bench_take(bench, 1, sizeof *kernels);
    struct roofs *roofs = bench_take(bench, 1, sizeof *roofs);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    uint32_t count;
    bench_check_faults(weir__level_find(NULL, &faults, &kernels->level), "kernels", &faults);
    bench_check(weir__device_open("cpu", NULL, NULL, &kernels->device), "kernels: the device");
    struct kernel_ops *ops = kernel_ops_new(bench, kernels);
    struct kernel_updates *updates = kernel_updates_new(bench, kernels);
    init_roofs(bench, kernels, roofs);
    struct bench_case *cases = make_cases(bench, kernels, roofs, &count);
    bench_interleave(bench, cases, count);
    report(bench, kernels, roofs, cases);
    for (int i = 0; i < 2; i++) kernels_give(kernels, roofs->memory[i], roofs->bytes);
    kernel_updates_clean_up(updates);
    kernel_ops_clean_up(ops);
    kernels->device->calls->close(kernels->device);
}
