/* SPDX-License-Identifier: MIT */
/*
 * Runs the tests of all suites, one after the other in one process, a line for each.
 *
 *   tests [--seed N] [--timeout SECONDS] [--repeat N] [--list] [PART...]
 *
 * runs those whose name, module/behaviour, contains one of the PARTs. A test that hangs or crashes
 * is named, and the last line is printed all the same: N passed, N failed, N skipped.
 *
 *   tests --gpu [--managed-cuda LIBRARY] [--sanitized] …
 *
 * runs what concerns GPUs, on the machine's own; without one it fails, and says what is missing.
 */
#include "harness.h"
#include "real_gpu.h"

#include <errno.h>
#include <signal.h>
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
                                         "gpu_broken"};

/* What reads the project's files, or programs that only the build makes: skipped elsewhere. */
static const char *const project_suites[] = {"cli_data",     "custom",         "embed",
                                             "golden_nets",  "golden_ops",     "golden_unet",
                                             "upstream_ids", "schedule_forms", "schedule_torch"};

enum { TIMEOUT_S = 180, TIMEOUT_SANITIZED_S = 900 };

struct arguments {
    struct test_settings settings;
    unsigned timeout_s;
    unsigned repeat;
    bool list;
    char **parts; /* the last ones of argv */
    int part_count;
};

/* Read by the signal handlers, so: written before a test starts, nothing but numbers and bytes. */
static volatile sig_atomic_t totals[TEST_OUTCOME_COUNT];
static volatile sig_atomic_t timeout_s;
static char name[256];

/* ---- when a test hangs or crashes: nothing here but what a signal handler may call ----------- */

static void write_text(const char *text) {
    size_t length = strlen(text);
    while (length > 0) {
        ssize_t written = write(STDOUT_FILENO, text, length);
        if (written <= 0) return;
        text += written;
        length -= (size_t)written;
    }
}

static void write_number(int number) {
    char digits[16];
    size_t at = sizeof digits;
    digits[--at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0 && at > 0);
    write_text(&digits[at]);
}

static void write_totals(void) {
    write_number(totals[TEST_PASSED]);
    write_text(" passed, ");
    write_number(totals[TEST_FAILED]);
    write_text(" failed, ");
    write_number(totals[TEST_SKIPPED]);
    write_text(" skipped\n");
}

static void on_signal(int signal_number) {
    write_text("FAIL ");
    write_text(name);
    write_text(signal_number == SIGALRM ? ": did not end, seconds " : ": crashed, signal ");
    write_number(signal_number == SIGALRM ? (int)timeout_s : signal_number);
    write_text("\n");
    totals[TEST_FAILED] = totals[TEST_FAILED] + 1;
    write_totals();
    _exit(1);
}

static void install_handlers(void) {
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESETHAND};
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGABRT, &action, NULL);
    if (test_is_sanitized()) return; /* they report these better */
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGFPE, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    sigaction(SIGTRAP, &action, NULL);
}

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

static bool parse_option(int argc, char **argv, int *i, struct arguments *out) {
    const char *value;
    uint64_t number = 0;
    if (strcmp(argv[*i], "--list") == 0) {
        out->list = true;
    } else if ((value = option_value(argc, argv, i, "--seed"))) {
        return parse_number(value, &out->settings.seed);
    } else if ((value = option_value(argc, argv, i, "--timeout"))) {
        bool valid = parse_number(value, &number) && number <= 86400;
        out->timeout_s = (unsigned)number;
        return valid;
    } else if ((value = option_value(argc, argv, i, "--repeat"))) {
        bool valid = parse_number(value, &number) && number > 0 && number <= 1000000;
        out->repeat = (unsigned)number;
        return valid;
    } else if ((value = option_value(argc, argv, i, "--prefix"))) {
        out->settings.install_prefix = value;
    } else if ((value = option_value(argc, argv, i, "--zig"))) {
        out->settings.zig = value;
    } else if ((value = option_value(argc, argv, i, "--fake-cuda"))) {
        out->settings.fake_cuda = value;
    } else if ((value = option_value(argc, argv, i, "--managed-cuda"))) {
        out->settings.managed_cuda = value;
    } else if ((value = option_value(argc, argv, i, "--bench"))) {
        out->settings.bench = value;
    } else if (strcmp(argv[*i], "--gpu") == 0) {
        out->settings.gpu = true;
        out->settings.cuda_driver = getenv("WEIR_CUDA_DRIVER");
        if (out->timeout_s < TIMEOUT_SANITIZED_S) out->timeout_s = TIMEOUT_SANITIZED_S;
    } else if (strcmp(argv[*i], "--sanitized") == 0) {
        out->settings.sanitized = true;
        out->timeout_s = TIMEOUT_SANITIZED_S;
    } else {
        return false;
    }
    return true;
}

static bool parse_arguments(int argc, char **argv, struct arguments *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed = ((uint64_t)now.tv_sec << 20 ^ (uint64_t)now.tv_nsec) & 0xffffffffu;
    *out = (struct arguments){.timeout_s = TIMEOUT_S, .repeat = 1};
    if (test_is_sanitized()) out->timeout_s = TIMEOUT_SANITIZED_S;
    const char *from_environment = getenv("WEIR_TEST_SEED");
    if (from_environment && !parse_number(from_environment, &seed)) {
        fprintf(stderr, "tests: WEIR_TEST_SEED=%s is not a number\n", from_environment);
        return false;
    }
    out->settings.seed = seed;
    out->parts = argv + 1; /* what is no option moves to the front */
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--", 2) != 0) {
            out->parts[out->part_count++] = argv[i];
            continue;
        }
        if (parse_option(argc, argv, &i, out)) continue;
        fprintf(stderr,
                "tests: %s: unknown option, or a bad value\n"
                "usage: tests [--seed N] [--timeout SECONDS] [--repeat N] [--list] [--gpu] "
                "[PART-OF-NAME...]\n",
                argv[i < argc ? i : argc - 1]);
        return false;
    }
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

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static void run_case(const struct arguments *arguments, const struct test_suite *suite,
                     const struct test_case *test) {
    snprintf(name, sizeof name, "%s/%s", suite->name, test->name);
    if (arguments->settings.gpu && !concerns_gpus(suite)) return;
    if (!is_chosen(arguments, name)) return;
    if (arguments->list) {
        puts(name);
        return;
    }
    double start_ms = now_ms();
    alarm(arguments->timeout_s);
    enum test_outcome outcome =
        test_run(name, lacks_project(suite) ? skip_without_project : test->run);
    alarm(0);
    totals[outcome] = totals[outcome] + 1;
    if (outcome == TEST_PASSED) printf("ok %s (%.0f ms)\n", name, now_ms() - start_ms);
    fflush(stdout);
}

static void run_all(const struct arguments *arguments) {
    for (size_t s = 0; s < SUITE_COUNT; s++) {
        for (size_t c = 0; c < suites[s]->count; c++) {
            run_case(arguments, suites[s], &suites[s]->cases[c]);
        }
    }
}

/* False, and why is said, where tests are to run on a GPU and cannot. */
static bool find_gpu(const struct arguments *arguments) {
    struct weir_error error = {0};
    if (!arguments->settings.gpu || arguments->list) return true;
    if (real_gpu_open(&error) > 0) {
        printf("on %s\n", real_gpu_name());
        return true;
    }
    fprintf(stderr, "tests: nothing was tested on a GPU: %s\n", error.message);
    return false;
}

int main(int argc, char **argv) {
    struct arguments arguments;
    if (!parse_arguments(argc, argv, &arguments)) return 2;
    test_set_up(&arguments.settings);
    if (!find_gpu(&arguments)) return 1;
    if (!arguments.list) {
        printf("seed %llu (again with WEIR_TEST_SEED or --seed)\n",
               (unsigned long long)arguments.settings.seed);
        fflush(stdout);
    }
    timeout_s = (sig_atomic_t)arguments.timeout_s;
    install_handlers();
    for (unsigned i = 0; i < arguments.repeat; i++) {
        run_all(&arguments);
        arguments.settings.seed++;
        test_set_up(&arguments.settings);
    }
    if (arguments.list) return 0;
    real_gpu_close();
    fflush(stdout);
    write_totals();
    bool none = totals[TEST_PASSED] + totals[TEST_FAILED] + totals[TEST_SKIPPED] == 0;
    if (none) fprintf(stderr, "tests: no test's name contains that\n");
    return none || totals[TEST_FAILED] > 0 ? 1 : 0;
}
