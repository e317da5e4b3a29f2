/* SPDX-License-Identifier: MIT */
/*
 * The machine's roofs, each the best of several short runs: a roof is what it can do, not what it
 * does on average. Threads stand where the engine would put workers.
 */
#include "harness.h"

#include "base/portable.h"
#include "base/processor.h"
#include "net/cpu/level.h"

#include <stdlib.h>
#include <string.h>

enum { TRIES = 20, TRIES_QUICK = 3 };

static uint32_t tries_of(const struct bench *bench) {
    return bench->options.quick ? TRIES_QUICK : TRIES;
}

/* ---- FMA ---- */

/* Enough chains to hide an FMA's latency of four cycles on two units, few enough for registers. */
enum { CHAINS = 12, FMA_TURNS = 200000 };

#if defined(__x86_64__)
#define WITH(features) __attribute__((target(features)))
#else
#define WITH(features)
#endif

#if defined(__has_builtin)
#if __has_builtin(__builtin_elementwise_fma)
#define FUSED(a, b, c) __builtin_elementwise_fma(a, b, c)
#endif
#endif
#if !defined(FUSED)
#define FUSED(a, b, c) ((a) * (b) + (c)) /* half the roof, but Zig's compiler has the other */
#endif

/** x = x / 2 + 1 ends at 2 from anywhere, exactly: the answer that is checked. In vectors of so
 * many numbers, by the expression that makes a * b + c of them. */
#define MULTIPLY_ADDS(name, lanes, attribute, multiply_add)                                        \
    typedef float name##_vector __attribute__((vector_size(4 * (lanes))));                         \
    attribute static bool name(uint32_t turns) {                                                   \
        volatile float half = 0.5f, one = 1.0f;                                                    \
        name##_vector a, c, x[CHAINS];                                                             \
        bool right = true;                                                                         \
        for (int i = 0; i < (lanes); i++) a[i] = half, c[i] = one;                                 \
        for (int k = 0; k < CHAINS; k++)                                                           \
            for (int i = 0; i < (lanes); i++) x[k][i] = (float)k;                                  \
        for (uint32_t turn = 0; turn < turns; turn++)                                              \
            for (int k = 0; k < CHAINS; k++) x[k] = multiply_add;                                  \
        for (int k = 0; k < CHAINS; k++)                                                           \
            for (int i = 0; i < (lanes); i++) right &= x[k][i] == 2.0f;                            \
        return right;                                                                              \
    }

#if defined(__x86_64__)
MULTIPLY_ADDS(by_sse, 4, , (x[k] * a + c))
MULTIPLY_ADDS(by_fma, 8, WITH("avx2,fma"), FUSED(x[k], a, c))
MULTIPLY_ADDS(by_avx512, 16, WITH("avx512f"), FUSED(x[k], a, c))
#else
MULTIPLY_ADDS(by_neon, 4, , FUSED(x[k], a, c))
#endif

/** The widest of an x86-64 level. */
static const struct multiply_adds {
    bool (*run)(uint32_t turns);
    uint32_t lanes;
} * multiply_adds(int level) {
#if defined(__x86_64__)
    static const struct multiply_adds by[] = {{by_sse, 4}, {by_fma, 8}, {by_avx512, 16}};
    return &by[level >= 4 ? 2 : level == 3 ? 1 : 0];
#else
    (void)level;
    static const struct multiply_adds by = {by_neon, 4};
    return &by;
#endif
}

bool bench_multiply_add(uint32_t turns) {
    return multiply_adds(weir__x86_level())->run(turns);
}

double bench_turn_adds(void) {
    return (double)CHAINS * multiply_adds(weir__x86_level())->lanes;
}

uint32_t bench_turns(double seconds) {
    enum { TURNS = 20000, LOOKS = 50 };
    double best = 1.0;
    for (int i = 0; i < LOOKS; i++) {
        uint64_t start = weir__now_ns();
        if (!bench_multiply_add(TURNS)) bench_die("multiply-adds give wrong answers");
        double s = (double)(weir__now_ns() - start) * 1e-9;
        if (s < best) best = s;
    }
    return (uint32_t)(seconds / best * TURNS) + 1;
}

struct fma_run {
    const struct multiply_adds *adds;
    uint32_t members, tries;
    double best[BENCH_CORES_MOST]; /* FLOP/s */
    bool right[BENCH_CORES_MOST];
};

static void fma_member(struct bench_team *team, uint32_t member) {
    struct fma_run *run = team->context;
    run->right[member] = true;
    for (uint32_t i = 0; i < run->tries; i++) {
        bench_meet(team, member, run->members, i + 1);
        uint64_t start = weir__now_ns();
        run->right[member] &= run->adds->run(FMA_TURNS);
        double s = (double)(weir__now_ns() - start) * 1e-9;
        double flops = 2.0 * FMA_TURNS * CHAINS * run->adds->lanes / s;
        if (flops > run->best[member]) run->best[member] = flops;
    }
}

static double measure_fma(struct bench *bench, uint32_t cores, int level) {
    struct fma_run *run = bench_take(bench, 1, sizeof *run);
    run->adds = multiply_adds(level);
    run->members = cores;
    run->tries = tries_of(bench);
    bench_run_team(bench, cores, run, fma_member);
    double sum = 0.0;
    bool right = true;
    for (uint32_t i = 0; i < cores; i++) sum += run->best[i], right &= run->right[i];
    bench_answer(bench, right, "roofs/fma/%u-cores: every lane is 2", cores);
    return sum;
}

static uint32_t cores_of(const struct bench *bench) {
    uint32_t usable = bench->facts.usable_cores;
    return usable < BENCH_CORES_MOST ? usable : BENCH_CORES_MOST;
}

double bench_level_flops(struct bench *bench, const char *name) {
    const struct weir__level *level;
    bench_check(weir__level_find(name, NULL, &level), name);
    return measure_fma(bench, cores_of(bench), level->x86);
}

/* ---- copies ---- */

/* Bytes copied per second: each is read once and written once. */
static double measure_copy(struct bench *bench, size_t bytes) {
    size_t turns = (bench->options.quick ? 32u << 20 : 256u << 20) / bytes + 1;
    unsigned char *from = aligned_alloc(4096, bytes), *to = aligned_alloc(4096, bytes);
    if (from == NULL || to == NULL) bench_die("no memory for two buffers of %zu bytes", bytes);
    for (size_t i = 0; i < bytes; i++) from[i] = (unsigned char)(i * 31);
    memset(to, 0, bytes);
    double best = 0.0;
    for (uint32_t i = 0; i < tries_of(bench); i++) {
        uint64_t start = weir__now_ns();
        for (size_t turn = 0; turn < turns; turn++) {
            memcpy(to, from, bytes);
            __asm__ volatile("" : : "r"(to) : "memory"); /* or all but the last would go */
        }
        double s = (double)(weir__now_ns() - start) * 1e-9;
        if ((double)(bytes * turns) / s > best) best = (double)(bytes * turns) / s;
    }
    bench_answer(bench, memcmp(from, to, bytes) == 0, "roofs/copy/%zu: all bytes arrived", bytes);
    free(from);
    free(to);
    return best;
}

/* ---- hand-off ---- */

enum { PASSES_SPIN = 20000, PASSES_PARK = 1000 };

struct handoff_run {
    struct weir__gate ping, pong;
    bool bare;        /* polls, and looks at no clock */
    uint64_t spin_ns; /* 0: straight to the futex */
    uint32_t passes, tries;
    double best; /* s per one-way hand-off */
};

static void wait_for(const struct handoff_run *run, struct weir__gate *gate, uint32_t wanted) {
    if (!run->bare) {
        weir__gate_wait(gate, wanted, run->spin_ns, 0);
        return;
    }
    while (!weir__gate_reached(gate, wanted)) {}
}

static void handoff_member(struct bench_team *team, uint32_t member) {
    struct handoff_run *run = team->context;
    for (uint32_t i = 0; i < run->tries; i++) {
        uint32_t first = i * run->passes;
        bench_meet(team, member, 2, i + 1);
        uint64_t start = weir__now_ns();
        for (uint32_t n = first + 1; n <= first + run->passes; n++) {
            if (member == 0) weir__gate_advance(&run->ping, n);
            wait_for(run, member == 0 ? &run->pong : &run->ping, n);
            if (member == 1) weir__gate_advance(&run->pong, n);
        }
        double s = (double)(weir__now_ns() - start) * 1e-9 / (2.0 * run->passes);
        if (member == 0 && (run->best == 0.0 || s < run->best)) run->best = s;
    }
}

static double measure_handoff(struct bench *bench, bool bare, uint64_t spin_ns) {
    struct handoff_run *run = bench_take(bench, 1, sizeof *run);
    run->bare = bare;
    run->spin_ns = spin_ns;
    run->passes = bare || spin_ns > 0 ? PASSES_SPIN : PASSES_PARK;
    run->tries = tries_of(bench);
    bench_run_team(bench, 2, run, handoff_member);
    return run->best;
}

/* ---- the clock ---- */

static double measure_clock(const struct bench *bench) {
    enum { READS = 10000 };
    double best = 1.0;
    for (uint32_t i = 0; i < tries_of(bench); i++) {
        uint64_t start = weir__now_ns(), now = start;
        for (int n = 0; n < READS; n++) now = weir__now_ns();
        double s = (double)(now - start) * 1e-9 / READS;
        if (s < best) best = s;
    }
    return best;
}

void bench_measure_roofs(struct bench *bench) {
    const struct weir__machine_facts *facts = &bench->facts;
    struct bench_roofs *roofs = &bench->roofs;
    uint32_t cores = cores_of(bench);
    int level = weir__x86_level();
    size_t cache = facts->l2_bytes > 0 ? facts->l2_bytes / 4 : 128u << 10;
    size_t memory = facts->l3_bytes > 0 ? 4 * facts->l3_bytes : 128u << 20;
    if (memory > 256u << 20) memory = 256u << 20;
    roofs->fma_flops = measure_fma(bench, 1, level);
    roofs->fma_flops_all = cores > 1 ? measure_fma(bench, cores, level) : roofs->fma_flops;
    roofs->copy_cache = measure_copy(bench, cache);
    roofs->copy_memory = measure_copy(bench, memory);
    if (cores > 1) roofs->handoff_line = measure_handoff(bench, true, 0);
    if (cores > 1) roofs->handoff_spin = measure_handoff(bench, false, 1000000);
    if (cores > 1) roofs->handoff_park = measure_handoff(bench, false, 0);
    roofs->clock_read = measure_clock(bench);
}
