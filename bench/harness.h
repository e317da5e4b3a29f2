/* SPDX-License-Identifier: MIT */
/**
 * The bench harness: what every bench_<topic>.c has in common. A run measures the machine's roofs
 * first, then its topics. A topic opens with a napkin estimate, checks the answer of what it times,
 * and takes its samples interleaved in random order, so that what the machine does meanwhile falls
 * on all cases alike; the same case measured against itself (the control) says how much that is.
 * Every sample is kept; outliers are counted, never dropped.
 *
 * Benches are no library: what goes wrong here is printed and ends the program.
 */
#ifndef WEIR_BENCH_HARNESS_H
#define WEIR_BENCH_HARNESS_H

#include "base/pool.h"
#include "place/place.h"

#include <stdio.h>

/* ---- statistics (statistics.c) --------------------------------------------------------------- */

/** SplitMix64: for orders and resampling, not for anything that is measured. */
uint64_t bench_random(uint64_t *state);

/** The q-quantile, interpolated; NaN without samples. */
double bench_quantile(const double *samples, uint32_t count, double q);
double bench_median(const double *samples, uint32_t count);
/** Samples outside Tukey's fences, 1.5 times the middle half's width from it. */
uint32_t bench_outliers(const double *samples, uint32_t count);

struct bench_interval {
    double low, high;
};
/** The 95% bootstrap interval of the median. */
struct bench_interval bench_median_interval(const double *samples, uint32_t count, uint64_t seed);
/** Of the ratio of medians a / b. `paired`: sample i of both is of one round, resampled together.
 */
struct bench_interval bench_ratio_interval(const double *a, uint32_t a_count, const double *b,
                                           uint32_t b_count, bool paired, uint64_t seed);

struct bench_line {
    double intercept, slope;
};
/** Least squares. */
struct bench_line bench_fit(const double *x, const double *y, uint32_t count);
/** Of times of copies: seconds = alpha + bytes / beta; least squares of the relative errors, so
 * that small copies count as much as large ones. */
void bench_fit_copies(const double *bytes, const double *seconds, uint32_t count, double *alpha,
                      double *beta);

/* ---- roofs (roofs.c) ------------------------------------------------------------------------- */

/** What this machine can do at best, measured in this process; 0 where it could not be. */
struct bench_roofs {
    double fma_flops;     /**< one core, f32, FLOP/s */
    double fma_flops_all; /**< all usable cores at once, their sum */
    double copy_cache;    /**< memcpy within the second-level cache, bytes copied per second */
    double copy_memory;   /**< of buffers several times the last cache */
    double handoff_line;  /**< a cache line from core to core, nothing but a load that polls, s */
    double handoff_spin;  /**< one gate from core to core, spinning, s */
    double handoff_park;  /**< the same through the futex, s */
    double clock_read;    /**< weir__now_ns, s */
};

/* ---- the run --------------------------------------------------------------------------------- */

enum { BENCH_NAME_BYTES = 96, BENCH_NOTE_BYTES = 160, BENCH_ROUNDS_MOST = 1000 };

struct bench_options {
    bool quick;           /**< everything runs, nothing is long enough to believe */
    bool gpu;             /**< topics are those of GPUs */
    uint64_t seed;        /**< of orders and resampling */
    uint32_t repetitions; /**< rounds */
    const char *json;     /**< file, "-" for stdout, NULL for none */
    const char *peer;     /**< a command that does the same work otherwise; NULL: none, or what
                               the topic has of its own */
    const char *peers;    /**< the folder of the scripts that topics of GPUs have */
    uint32_t topic_count;
    const char *const *topics; /**< none: all */
};

/** One measured quantity. Values are in the unit's base: seconds, bytes, fractions of 1. */
struct bench_result {
    char name[BENCH_NAME_BYTES]; /**< topic/case/parameters */
    const char *unit;            /**< "s", "ratio", "fraction", "FLOP/s", "B/s", "B", … */
    bool higher_is_better;
    bool control;    /**< should be 1: its distance says how much to trust the rest */
    double ideal;    /**< NaN: none */
    double at_least; /**< what the median must reach; NaN: no bound */
    double at_most;
    double median;
    struct bench_interval interval; /**< 95%, of the median, or of the ratio of medians */
    char note[BENCH_NOTE_BYTES];
    bool tabled; /**< the topic shows it in a table of its own */
    uint32_t count;
    const double *samples;
};

struct bench_answer {
    char name[BENCH_NAME_BYTES];
    bool right;
};

struct bench_absence {
    char text[BENCH_NOTE_BYTES]; /**< what, and why */
};

struct bench_gpu; /* gpu.h */

struct bench {
    struct bench_options options;
    FILE *text; /**< for people: stdout, or stderr where stdout has the JSON */
    struct weir__pool pool;
    struct weir__machine *machine;
    struct weir__machine_facts facts;
    struct bench_roofs roofs;
    struct bench_gpu *gpu; /**< NULL: no topic of GPUs ran */
    uint64_t random;
    uint32_t result_count, result_capacity;
    struct bench_result *results;
    uint32_t answer_count, answer_capacity;
    struct bench_answer *answers;
    uint32_t absence_count, absence_capacity;
    struct bench_absence *absences;
};

/** Prints "bench: …" to stderr and ends the program with 1. */
void bench_die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));
/** Dies with the status' text unless it is WEIR_OK. */
void bench_check(int status, const char *what);
/** Dies with every fault unless `status` is WEIR_OK; empties `faults`. */
void bench_check_faults(int status, const char *what, struct weir_faults *faults);
/** Zeroed memory until the end of the run. Never NULL. */
void *bench_take(struct bench *bench, size_t count, size_t bytes);

/** One thing that is timed. */
struct bench_case {
    const char *label; /**< for messages */
    /** One repetition, of 0.2 s where affordable: work, warmed up by itself where the caches of the
     * case before matter, and its value. */
    void (*sample)(struct bench *bench, void *context, double *value);
    void *context;
    double *samples; /**< filled in; the run's */
    uint32_t count;
};

/** Warms every case up, then takes options.repetitions rounds of one sample of each case, in an
 * order that is drawn anew for each round: sample i of all cases is of one round. */
void bench_interleave(struct bench *bench, struct bench_case *cases, uint32_t count);

/** Adds a result with its statistics; the rest of it (ideal, bounds, note) is the caller's to fill.
 * Valid until the next one is added. Printf-like name. */
struct bench_result *bench_add(struct bench *bench, const char *unit, const double *samples,
                               uint32_t count, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/** The same for the ratio of two cases' medians, a / b; its samples are the rounds' ratios. */
struct bench_result *bench_add_ratio(struct bench *bench, const struct bench_case *a,
                                     const struct bench_case *b, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/** Keeps whether an answer was right; a wrong one is printed and fails the run at its end. */
void bench_answer(struct bench *bench, bool right, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** Prints and keeps what is not measured, and why: a peer that is not installed. Printf-like. */
void bench_absent(struct bench *bench, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** All answers were right. */
bool bench_all_right(const struct bench *bench);
/** Whether the median is within its bounds. */
bool bench_is_met(const struct bench_result *result);

/** Measures the roofs into bench->roofs. Takes some seconds. */
void bench_measure_roofs(struct bench *bench);
/** The multiply-adds of all usable cores with the instructions of a level of kernels, FLOP/s. */
double bench_level_flops(struct bench *bench, const char *level);
/** What the FMA roof is measured with, as work that touches no memory: some microseconds for every
 * 1,000 turns. False if the answer is wrong; from 100 turns on it can be told. */
bool bench_multiply_add(uint32_t turns);
/** Multiply-adds of a turn. */
double bench_turn_adds(void);
/** How many of these turns take so long, at the fastest that the core does them. */
uint32_t bench_turns(double seconds);

/* ---- several cores at once (team.c) ---------------------------------------------------------- */

enum { BENCH_CORES_MOST = 256 };

struct bench_team {
    void (*run)(struct bench_team *team, uint32_t member);
    void *context;
    struct weir__machine *machine;
    const struct weir__worker_place *placements;
    struct weir__gate ready[BENCH_CORES_MOST]; /**< per member: rounds that it is ready for */
    struct weir__gate go;
};

/** Runs `run` on `count` cores at once, once on each, and waits for all. */
void bench_run_team(struct bench *bench, uint32_t count, void *context,
                    void (*run)(struct bench_team *team, uint32_t member));
/** All members start together: the last to come opens the gate. `round` counts from 1. */
void bench_meet(struct bench_team *team, uint32_t member, uint32_t members, uint32_t round);

/* ---- output ---------------------------------------------------------------------------------- */

/** A value with its unit for people: "1.23 us", "117 GFLOP/s", "98.1%". Returns `text`. */
const char *bench_value_text(double value, const char *unit, char text[32]);
/** Whether bench_value_text knows larger and smaller units of it. */
bool bench_is_scaled(const char *unit);
/** Machine, versions, commit and roofs. (table.c) */
void bench_print_context(const struct bench *bench);
/** Results from number `first` on, as a table. (table.c) */
void bench_print_results(const struct bench *bench, uint32_t first);
/** Writes context, results and answers where options.json says; a file appears whole or not at
 * all. (json.c) */
void bench_write_json(const struct bench *bench);
/** The same where that is a file, between parts of a run: one that is stopped keeps what it has.
 * (json.c) */
void bench_save(const struct bench *bench);
/** The commit of the working folder, or outside of one what this was built from. Returns `text`.
 * (json.c) */
const char *bench_commit(char text[64]);
/** The level of the kernels, "v4". (json.c) */
const char *bench_level(void);
/** Compares two files that bench_write_json made, prints a table; 0, or 1 where something got worse
 * by more than noise, or 2 where a file cannot be read. (compare.c) */
int bench_compare(const char *before, const char *after, uint64_t seed);

/** Makes FOLDER/RESULTS.md and FOLDER/pictures of FOLDER/results (results.h), or with `check` only
 * looks whether they are so; 0, or 1 where they are not or the notes ask for what is not there.
 * (results.c) */
int bench_results(const char *folder, bool check);

/* ---- topics ---------------------------------------------------------------------------------- */

void bench_overhead(struct bench *bench);
void bench_pipeline(struct bench *bench);
void bench_planner_gpt(struct bench *bench);
void bench_planner_unet(struct bench *bench);
void bench_recompute(struct bench *bench);
void bench_schedules_equal(struct bench *bench);
void bench_schedules_gpt(struct bench *bench);
void bench_schedules_unet(struct bench *bench);
void bench_simulate(struct bench *bench);
void bench_models_gpt_s(struct bench *bench);
void bench_models_gpt_m(struct bench *bench);
void bench_models_unet(struct bench *bench);
void bench_models_residual(struct bench *bench);
void bench_models_always(struct bench *bench);
void bench_models_resnet101(struct bench *bench);
void bench_models_amoebanetd(struct bench *bench);
void bench_models_smollm2(struct bench *bench);
void bench_models_smollm2_lora(struct bench *bench);
void bench_ablation(struct bench *bench);
void bench_hosts(struct bench *bench);
void bench_oneway(struct bench *bench);
void bench_copy(struct bench *bench);
void bench_kernels(struct bench *bench);
void bench_gpu_copy(struct bench *bench);
void bench_gpu_kernels(struct bench *bench);
void bench_gpu_net_kernels(struct bench *bench);
void bench_gpu_beside(struct bench *bench);
void bench_gpu_overhead(struct bench *bench);
void bench_gpu_gpt2(struct bench *bench);
void bench_gpu_unet(struct bench *bench);

#endif
