/* SPDX-License-Identifier: MIT */
/*
 * Runs the tests of all suites, a line for each.
 *
 *   tests [--full] [--jobs N] [--slowest N] [--seed N] [--timeout SECONDS] [--repeat N] [--list]
 *         [PART...]
 *
 * runs those whose name, module/behaviour, contains one of the PARTs. A test that hangs or crashes
 * is named, and the last line is printed all the same: N passed, N failed, N skipped.
 *
 * --full tries more sizes, seeds and repetitions. --jobs N runs so many tests at a time, each in a
 * process of its own; it is as many as there are processors unless said otherwise, and 1, one after
 * the other in this process, under a sanitizer and on GPUs. --slowest N names the slowest at the
 * end.
 *
 *   tests --gpu [--managed-cuda LIBRARY] [--sanitized] …
 *
 * runs what concerns GPUs, on the machine's own; without one it fails, and says what is missing.
 */
#include "harness.h"
#include "real_gpu.h"
#include "runner.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SUITE(module) extern const struct test_suite test_suite_##module;
#include "suites.h"
#undef SUITE

static const struct test_suite *const suites[] = {
#define SUITE(module) &test_suite_##module,
#include "suites.h"
#undef SUITE
};
#define SUITE_COUNT (sizeof suites / sizeof suites[0])

/* What --gpu runs, beside every suite of kernels: kernels_... */
static const char *const gpu_suites[] = {"cuda_launch", "cuda_device",    "gpus",
                                         "engine_cuda", "engine_kernels", "net_cuda",
                                         "net_apart",   "gpu_broken",     "attention_repeats"};

/* What reads the project's files, or programs that only the build makes: skipped elsewhere. */
static const char *const project_suites[] = {"cli_data",     "custom",         "embed",
                                             "golden_nets",  "golden_ops",     "golden_unet",
                                             "upstream_ids", "schedule_forms", "schedule_torch"};

/* Not to be run beside others: they measure, or are about the machine's cores. */
static const char *const alone_suites[] = {"profile", "claim", "place"};

enum { TIMEOUT_S = 600, TIMEOUT_LONG_S = 1800, JOBS_DEFAULT_MAX = 8 };

struct arguments {
    struct runner_options runner;
    bool list;
    char **parts; /* the last ones of argv */
    int part_count;
};

/* ---- arguments ------------------------------------------------------------------------------- */

static bool parse_number(const char *text, uint64_t *out) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 0);
    if (errno != 0 || end == text || *end != 0) return false;
    *out = value;
    return true;
}

/* "--key=value" or "--key value"; NULL if argv[*i] is something else. */
static const char *option_value(int argc, char **argv, int *i, const char *key) {
    size_t length = strlen(key);
    if (strncmp(argv[*i], key, length) != 0) return NULL;
    if (argv[*i][length] == '=') return argv[*i] + length + 1;
    if (argv[*i][length] != 0 || *i + 1 >= argc) return NULL;
    return argv[++*i];
}

static bool parse_count(const char *text, uint64_t least, uint64_t most, unsigned *out) {
    uint64_t number = 0;
    bool valid = parse_number(text, &number) && number >= least && number <= most;
    *out = (unsigned)number;
    return valid;
}

static bool parse_flag(const char *text, struct arguments *out) {
    struct test_settings *settings = &out->runner.settings;
    if (strcmp(text, "--list") == 0) {
        out->list = true;
    } else if (strcmp(text, "--full") == 0) {
        settings->full = true;
    } else if (strcmp(text, "--gpu") == 0) {
        settings->gpu = true;
        settings->cuda_driver = getenv("WEIR_CUDA_DRIVER");
    } else if (strcmp(text, "--sanitized") == 0) {
        settings->sanitized = true;
    } else {
        return false;
    }
    return true;
}

static bool parse_option(int argc, char **argv, int *i, struct arguments *out) {
    struct test_settings *settings = &out->runner.settings;
    const struct {
        const char *key, **value;
    } texts[] = {
        {"--prefix", &settings->install_prefix}, {"--zig", &settings->zig},
        {"--fake-cuda", &settings->fake_cuda},   {"--managed-cuda", &settings->managed_cuda},
        {"--bench", &settings->bench},           {"--mpi", &settings->mpi}};
    const struct {
        const char *key;
        uint64_t least, most;
        unsigned *value;
    } counts[] = {{"--timeout", 1, 86400, &out->runner.timeout_s},
                  {"--repeat", 1, 1000000, &out->runner.repeat},
                  {"--jobs", 1, RUNNER_JOBS_MAX, &out->runner.jobs},
                  {"--slowest", 0, 1000000, &out->runner.slowest}};
    const char *value;
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        if (!(value = option_value(argc, argv, i, texts[k].key))) continue;
        *texts[k].value = value;
        return true;
    }
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        if (!(value = option_value(argc, argv, i, counts[k].key))) continue;
        return parse_count(value, counts[k].least, counts[k].most, counts[k].value);
    }
    if ((value = option_value(argc, argv, i, "--seed"))) {
        return parse_number(value, &settings->seed);
    }
    return parse_flag(argv[*i], out);
}

/* As many jobs as this process may use processors. */
static unsigned processors(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    unsigned count = (unsigned)CPU_COUNT(&set);
    return count < JOBS_DEFAULT_MAX ? count : JOBS_DEFAULT_MAX;
}

/* Commands that search measure the machine's roofs where none are kept: once, and not in the user's
 * folder. */
static void keep_roofs(void) {
    const char *parent = getenv("TMPDIR");
    char path[256];
    bool given = parent != NULL && parent[0] != '\0';
    snprintf(path, sizeof path, "%s/weir-test-cache-%u", given ? parent : "/tmp",
             (unsigned)getuid());
    setenv("WEIR_CACHE", path, 0);
}

/* What was not given. A GPU's driver does not outlive a fork, and sanitizers look for leaks at the
 * end of one process. */
static void complete(struct arguments *arguments) {
    struct runner_options *runner = &arguments->runner;
    bool sanitized = test_is_sanitized() || runner->settings.sanitized;
    bool here = sanitized || runner->settings.gpu;
    if (runner->settings.gpu || runner->jobs == 0) runner->jobs = here ? 1 : processors();
    keep_roofs();
    if (runner->timeout_s > 0) return;
    runner->timeout_s = here || runner->settings.full ? TIMEOUT_LONG_S : TIMEOUT_S;
}

static bool parse_arguments(int argc, char **argv, struct arguments *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = ((uint64_t)now.tv_sec << 20 ^ (uint64_t)now.tv_nsec) & 0xffffffffu;
    *out = (struct arguments){.runner = {.repeat = 1}};
    const char *from_environment = getenv("WEIR_TEST_SEED");
    if (from_environment && !parse_number(from_environment, &seed)) {
        fprintf(stderr, "tests: WEIR_TEST_SEED=%s is not a number\n", from_environment);
        return false;
    }
    out->runner.settings.seed = seed;
    out->parts = argv + 1; /* what is no option moves to the front */
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            out->parts[out->part_count++] = argv[i];
            continue;
        }
        if (parse_option(argc, argv, &i, out)) continue;
        fprintf(stderr,
                "tests: %s: unknown option, or a bad value\n"
                "usage: tests [--full] [--jobs N] [--slowest N] [--seed N] [--timeout SECONDS] "
                "[--repeat N] [--list] [--gpu] [PART-OF-NAME...]\n",
                argv[i < argc ? i : argc - 1]);
        return false;
    }
    complete(out);
    return true;
}

static bool is_listed(const struct test_suite *suite, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], suite->name) == 0) return true;
    return false;
}

static bool concerns_gpus(const struct test_suite *suite) {
    return strncmp(suite->name, "kernels_", 8) == 0 ||
           is_listed(suite, gpu_suites, sizeof gpu_suites / sizeof *gpu_suites);
}

static bool lacks_project(const struct test_suite *suite) {
    size_t count = sizeof project_suites / sizeof *project_suites;
    return is_listed(suite, project_suites, count) && access("build.zig", R_OK) != 0;
}

static void skip_without_project(void) {
    SKIP("it takes the project's files: run it in the project's folder");
}

static bool is_chosen(const struct arguments *arguments, const char *full_name) {
    for (int i = 0; i < arguments->part_count; i++) {
        if (strstr(full_name, arguments->parts[i])) return true;
    }
    return arguments->part_count == 0;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* The chosen tests of a suite, behind those that are listed already. */
static size_t choose(const struct arguments *arguments, const struct test_suite *suite,
                     struct runner_test *list) {
    size_t count = 0;
    if (arguments->runner.settings.gpu && !concerns_gpus(suite)) return 0;
    bool lacks = lacks_project(suite);
    bool alone = is_listed(suite, alone_suites, sizeof alone_suites / sizeof *alone_suites);
    for (size_t c = 0; c < suite->count; c++) {
        struct runner_test *test = &list[count];
        snprintf(test->name, sizeof test->name, "%s/%s", suite->name, suite->cases[c].name);
        test->run = lacks ? skip_without_project : suite->cases[c].run;
        test->alone = alone;
        if (is_chosen(arguments, test->name)) count++;
    }
    return count;
}

/* The caller's to free; NULL: no memory. */
static struct runner_test *choose_all(const struct arguments *arguments, size_t *count) {
    size_t room = 1;
    for (size_t s = 0; s < SUITE_COUNT; s++) room += suites[s]->count;
    struct runner_test *list = calloc(room, sizeof *list);
    *count = 0;
    for (size_t s = 0; list && s < SUITE_COUNT; s++) {
        *count += choose(arguments, suites[s], &list[*count]);
    }
    return list;
}

static int print_names(const struct runner_test *tests, size_t count, unsigned repeat) {
    for (unsigned i = 0; i < repeat; i++) {
        for (size_t t = 0; t < count; t++) puts(tests[t].name);
    }
    return 0;
}

/* False, and why is said, where tests are to run on a GPU and cannot. */
static bool find_gpu(const struct arguments *arguments) {
    struct weir_error error = {0};
    if (!arguments->runner.settings.gpu) return true;
    if (real_gpu_open(&error) > 0) {
        printf("on %s\n", real_gpu_name());
        return true;
    }
    fprintf(stderr, "tests: nothing was tested on a GPU: %s\n", error.message);
    return false;
}

static int run(const struct arguments *arguments, const struct runner_test *tests, size_t count) {
    test_set_up(&arguments->runner.settings);
    if (!find_gpu(arguments)) return 1;
    printf("seed %llu (again with WEIR_TEST_SEED or --seed)\n",
           (unsigned long long)arguments->runner.settings.seed);
    fflush(stdout);
    runner_run(tests, count, &arguments->runner);
    real_gpu_close();
    if (count == 0) fprintf(stderr, "tests: no test's name contains that\n");
    return runner_end();
}

int main(int argc, char **argv) {
    struct arguments arguments;
    size_t count = 0;
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* lines of several processes stay whole */
    if (!parse_arguments(argc, argv, &arguments)) return 2;
    struct runner_test *tests = choose_all(&arguments, &count);
    if (!tests) return 2;
    int status = arguments.list ? print_names(tests, count, arguments.runner.repeat)
                                : run(&arguments, tests, count);
    free(tests);
    return status;
}
