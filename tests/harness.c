/* SPDX-License-Identifier: MIT */
/* Checks, random numbers, temporary directories and one test's life. The runner is main.c, the
 * watching allocator harness_allocator.c. */
#include "harness.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

#define MESSAGE_BYTES 1024
#define DIRECTORIES_MAX 64

static struct test_settings settings;

/* The one test that runs. `lock` protects the texts and makes lines whole; the rest is atomic, or
 * belongs to the thread that runs the test. */
static struct {
    pthread_mutex_t lock;
    const char *name;
    atomic_int failures;
    bool skipped;
    _Atomic uint64_t random;
    bool expecting; /* failures are counted in `expected` instead */
    int expected;
    char expected_last[MESSAGE_BYTES];
    char *directories[DIRECTORIES_MAX];
    size_t directory_count;
} current = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- checks ---------------------------------------------------------------------------------- */

void test_fail(const char *file, int line, const char *format, ...) {
    char message[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);

    pthread_mutex_lock(&current.lock);
    if (current.expecting) {
        current.expected++;
        snprintf(current.expected_last, sizeof current.expected_last, "%s", message);
    } else {
        atomic_fetch_add(&current.failures, 1);
        printf("FAIL %s: %s:%d: %s\n", current.name, file, line, message);
        fflush(stdout);
    }
    pthread_mutex_unlock(&current.lock);
}

bool test_has_failed(void) {
    return atomic_load(&current.failures) > 0;
}

bool test_expect(const char *file, int line, const char *text, bool condition) {
    if (!condition) test_fail(file, line, "%s", text);
    return condition;
}

bool test_expect_int(const char *file, int line, const char *text, int64_t a, int64_t b) {
    if (a != b) test_fail(file, line, "%s: %" PRId64 " and %" PRId64, text, a, b);
    return a == b;
}

bool test_expect_uint(const char *file, int line, const char *text, uint64_t a, uint64_t b) {
    if (a != b) test_fail(file, line, "%s: %" PRIu64 " and %" PRIu64, text, a, b);
    return a == b;
}

bool test_expect_str(const char *file, int line, const char *text, const char *a, const char *b) {
    bool equal = a && b ? strcmp(a, b) == 0 : a == b;
    if (!equal) {
        test_fail(file, line, "%s: \"%s\" and \"%s\"", text, a ? a : "(NULL)", b ? b : "(NULL)");
    }
    return equal;
}

bool test_expect_ptr(const char *file, int line, const char *text, const void *a, const void *b) {
    if (a != b) test_fail(file, line, "%s: %p and %p", text, a, b);
    return a == b;
}

bool test_expect_near(const char *file, int line, const char *text, double a, double b,
                      double tolerance) {
    bool near = a == b || fabs(a - b) <= tolerance;
    if (!near) {
        test_fail(file, line, "%s: %.17g and %.17g, apart by %.3g, allowed %.3g", text, a, b,
                  fabs(a - b), tolerance);
    }
    return near;
}

bool test_expect_bytes(const char *file, int line, const char *text, const void *a, const void *b,
                       size_t bytes) {
    const unsigned char *left = a;
    const unsigned char *right = b;
    for (size_t i = 0; i < bytes; i++) {
        if (left[i] == right[i]) continue;
        test_fail(file, line, "%s: byte %zu of %zu is 0x%02x and 0x%02x", text, i, bytes, left[i],
                  right[i]);
        return false;
    }
    return true;
}

bool test_expect_status(const char *file, int line, const char *text, int a, int b) {
    if (a != b) {
        test_fail(file, line, "%s: %d (%s) and %d (%s)", text, a, weir_status_name(a), b,
                  weir_status_name(b));
    }
    return a == b;
}

bool test_expect_contains(const char *file, int line, const char *text, const char *haystack,
                          const char *needle) {
    bool found = haystack && needle && strstr(haystack, needle);
    if (!found) {
        test_fail(file, line, "%s: \"%s\" in \"%s\"", text, needle ? needle : "(NULL)",
                  haystack ? haystack : "(NULL)");
    }
    return found;
}

bool test_expect_faults(const char *file, int line, const char *text,
                        const struct weir_faults *faults, const char *const *wanted, size_t count) {
    bool same = test_expect_uint(file, line, text, faults->count, count);
    for (size_t i = 0; i < count || i < faults->kept; i++) {
        const char *found = i < faults->kept ? faults->lines[i] : "";
        same &= test_expect_contains(file, line, text, found, i < count ? wanted[i] : NULL);
    }
    return same;
}

void test_skip(const char *format, ...) {
    char reason[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reason, sizeof reason, format, arguments);
    va_end(arguments);
    current.skipped = true;
    printf("skip %s: %s\n", current.name, reason);
    fflush(stdout);
}

void test_expect_failures_begin(void) {
    pthread_mutex_lock(&current.lock);
    current.expecting = true;
    current.expected = 0;
    current.expected_last[0] = 0;
    pthread_mutex_unlock(&current.lock);
}

int test_expect_failures_end(char *last, size_t capacity) {
    pthread_mutex_lock(&current.lock);
    current.expecting = false;
    int count = current.expected;
    if (last) snprintf(last, capacity, "%s", current.expected_last);
    pthread_mutex_unlock(&current.lock);
    return count;
}

/* ---- random numbers -------------------------------------------------------------------------- */

/* SplitMix64 (Steele et al., OOPSLA 2014): its state is a counter, so one atomic add is enough. */
uint64_t test_random_u64(void) {
    uint64_t z = atomic_fetch_add(&current.random, 0x9e3779b97f4a7c15u) + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t test_random_below(uint64_t bound) {
    return (uint64_t)(((unsigned __int128)test_random_u64() * bound) >> 64);
}

double test_random_unit(void) {
    return (double)(test_random_u64() >> 11) * 0x1p-53;
}

static uint64_t seed_for(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (const char *c = name; *c; c++) hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return hash ^ settings.seed;
}

/* ---- temporary directories, commands --------------------------------------------------------- */

const char *test_temporary_directory(void) {
    const char *parent = getenv("TMPDIR");
    if (!parent || !*parent) parent = "/tmp";
    if (current.directory_count == DIRECTORIES_MAX) {
        TEST_FAIL("more than %d temporary directories in one test", DIRECTORIES_MAX);
        return NULL;
    }
    size_t bytes = strlen(parent) + sizeof "/weir-test-XXXXXX";
    char *path = malloc(bytes);
    if (path) snprintf(path, bytes, "%s/weir-test-XXXXXX", parent);
    if (!path || !mkdtemp(path)) {
        TEST_FAIL("no temporary directory in %s: %s", parent, strerror(errno));
        free(path);
        return NULL;
    }
    current.directories[current.directory_count++] = path;
    return path;
}

static int remove_one(const char *path, const struct stat *stat, int flag, struct FTW *place) {
    (void)stat, (void)flag, (void)place;
    return remove(path);
}

static void remove_directories(void) {
    while (current.directory_count > 0) {
        char *path = current.directories[--current.directory_count];
        if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) {
            TEST_FAIL("cannot remove %s: %s", path, strerror(errno));
        }
        free(path);
    }
}

int test_shell(char *output, size_t capacity, const char *format, ...) {
    char command[4096];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    output[0] = 0;
    if (length < 0 || (size_t)length + sizeof " 2>&1" > sizeof command) return -1;
    strcat(command, " 2>&1");

    fflush(stdout);
    FILE *pipe = popen(command, "r");
    if (!pipe) return -1;
    size_t used = fread(output, 1, capacity - 1, pipe);
    output[used] = 0;
    char rest[4096];
    while (fread(rest, 1, sizeof rest, pipe) > 0) continue; /* or the command would block */
    int status = pclose(pipe);
    if (status == -1) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *test_install_prefix(void) {
    return settings.install_prefix;
}

const char *test_bench(void) {
    return settings.bench;
}

const char *test_zig(void) {
    return settings.zig;
}

const char *test_mpi_path(void) {
    return settings.mpi;
}

const char *test_fake_cuda_path(void) {
    return settings.fake_cuda;
}

bool test_gpu_is_real(void) {
    return settings.gpu;
}

const char *test_managed_cuda_path(void) {
    return settings.managed_cuda;
}

bool test_is_full(void) {
    return settings.full;
}

size_t test_count(size_t quick, size_t full) {
    return settings.full ? full : quick;
}

bool test_is_sanitized(void) {
    return SANITIZED || settings.sanitized;
}

/* ---- one test's life ------------------------------------------------------------------------- */

void test_set_up(const struct test_settings *given) {
    settings = *given;
}

/* Which a test before may have changed: tests/cuda/fake_gpu.h. */
static void restore_driver(void) {
    unsetenv("WEIR_TEST_CUDA_DRIVER");
    if (settings.cuda_driver != NULL)
        setenv("WEIR_CUDA_DRIVER", settings.cuda_driver, 1);
    else
        unsetenv("WEIR_CUDA_DRIVER");
}

enum test_outcome test_run(const char *name, void (*run)(void)) {
    current.name = name;
    current.skipped = false;
    current.expecting = false;
    atomic_store(&current.failures, 0);
    atomic_store(&current.random, seed_for(name));
    test_allocator_reset();
    restore_driver();
    run();
    test_allocator_finish();
    remove_directories();
    if (test_has_failed()) return TEST_FAILED;
    return current.skipped ? TEST_SKIPPED : TEST_PASSED;
}
