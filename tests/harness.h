/* SPDX-License-Identifier: MIT */
/**
 * The test harness.
 *
 * A file tests/test_<module>.c holds tests, `static void test_<behaviour>(void)`, and ends with
 *
 * @code
 *   WEIR_TEST_SUITE(module, TEST(first_behaviour), TEST(second_behaviour))
 * @endcode
 *
 * plus one line SUITE(module) in tests/suites.h. `zig build tidy` finds forgotten ones.
 *
 * A CHECK that fails prints both values, marks the test failed and returns from the function that
 * it stands in, which must return void. EXPECT is the same as an expression: it does not return,
 * but gives false. In a helper use EXPECT, or CHECK and then CHECK_HELPERS() after the call. Both
 * may be used on any thread. The test's memory comes from test_allocator(), which fails a test that
 * leaks.
 */
#ifndef WEIR_TESTS_HARNESS_H
#define WEIR_TESTS_HARNESS_H

#include "weir.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- suites ---------------------------------------------------------------------------------- */

struct test_case {
    const char *name;
    void (*run)(void);
};

struct test_suite {
    const char *name;
    const struct test_case *cases;
    size_t count;
};

#define TEST(behaviour)                                                                            \
    { #behaviour, test_##behaviour }
#define WEIR_TEST_SUITE(module, ...)                                                               \
    static const struct test_case module##_cases[] = {__VA_ARGS__};                                \
    extern const struct test_suite test_suite_##module;                                            \
    const struct test_suite test_suite_##module = {                                                \
        #module, module##_cases, sizeof(module##_cases) / sizeof(module##_cases[0])};

/* ---- checks ---------------------------------------------------------------------------------- */

#define TEST_HERE(text) __FILE__, __LINE__, text

#define EXPECT(condition) test_expect(TEST_HERE(#condition), (condition))
/** As int64_t, or uint64_t. */
#define EXPECT_EQ_INT(a, b) test_expect_int(TEST_HERE(#a " == " #b), (a), (b))
#define EXPECT_EQ_UINT(a, b) test_expect_uint(TEST_HERE(#a " == " #b), (a), (b))
/** NULL equals only NULL. */
#define EXPECT_EQ_STR(a, b) test_expect_str(TEST_HERE(#a " == " #b), (a), (b))
#define EXPECT_EQ_PTR(a, b) test_expect_ptr(TEST_HERE(#a " == " #b), (a), (b))
/** |a - b| <= tolerance; a NaN is near nothing, an infinity only itself. */
#define EXPECT_NEAR(a, b, tolerance) test_expect_near(TEST_HERE(#a " ~ " #b), (a), (b), (tolerance))
/** On failure names the first byte that differs. */
#define EXPECT_EQ_BYTES(a, b, bytes) test_expect_bytes(TEST_HERE(#a " == " #b), (a), (b), (bytes))
/** Two statuses, printed by name. */
#define EXPECT_STATUS(a, b) test_expect_status(TEST_HERE(#a " == " #b), (a), (b))
#define EXPECT_CONTAINS(haystack, needle)                                                          \
    test_expect_contains(TEST_HERE(#haystack " contains " #needle), (haystack), (needle))
/** Exactly these lines in this order: each contains its text. */
#define EXPECT_FAULTS(faults, ...)                                                                 \
    test_expect_faults(TEST_HERE(#faults), (faults), (const char *const[]){__VA_ARGS__},           \
                       sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

#define TEST_RETURN_UNLESS(expected)                                                               \
    do {                                                                                           \
        if (!(expected)) return;                                                                   \
    } while (0)

#define CHECK(condition) TEST_RETURN_UNLESS(EXPECT(condition))
#define CHECK_EQ_INT(a, b) TEST_RETURN_UNLESS(EXPECT_EQ_INT(a, b))
#define CHECK_EQ_UINT(a, b) TEST_RETURN_UNLESS(EXPECT_EQ_UINT(a, b))
#define CHECK_EQ_STR(a, b) TEST_RETURN_UNLESS(EXPECT_EQ_STR(a, b))
#define CHECK_EQ_PTR(a, b) TEST_RETURN_UNLESS(EXPECT_EQ_PTR(a, b))
#define CHECK_NEAR(a, b, tolerance) TEST_RETURN_UNLESS(EXPECT_NEAR(a, b, tolerance))
#define CHECK_EQ_BYTES(a, b, bytes) TEST_RETURN_UNLESS(EXPECT_EQ_BYTES(a, b, bytes))
#define CHECK_STATUS(a, b) TEST_RETURN_UNLESS(EXPECT_STATUS(a, b))
#define CHECK_OK(status) TEST_RETURN_UNLESS(EXPECT_STATUS(status, WEIR_OK))
#define CHECK_CONTAINS(haystack, needle) TEST_RETURN_UNLESS(EXPECT_CONTAINS(haystack, needle))
/** Returns if anything has failed so far in this test, in a helper for instance. */
#define CHECK_HELPERS() TEST_RETURN_UNLESS(!test_has_failed())

/** Fails the test with a printf-like message, without returning. */
#define TEST_FAIL(...) test_fail(__FILE__, __LINE__, __VA_ARGS__)

/** Ends the test as skipped, with a printf-like reason that says what is missing here. */
#define SKIP(...)                                                                                  \
    do {                                                                                           \
        test_skip(__VA_ARGS__);                                                                    \
        return;                                                                                    \
    } while (0)

/* ---- what a test may use --------------------------------------------------------------------- */

/** Of this test, on any thread. */
bool test_has_failed(void);

/**
 * An allocator that watches. After a test the harness fails it if blocks are still live, naming
 * their sizes and which acquisition they were. Memory comes filled with 0xA5; guard bytes on both
 * sides and the size are verified at release. Thread-safe.
 */
const struct weir_allocator *test_allocator(void);
/** Makes the k-th acquisition from now on (1 is the next) fail, and with `persistent` every later
 * one too; 0 turns this off. */
void test_allocator_fail_at(uint64_t k, bool persistent);
/** Whether a failure was injected since the last test_allocator_fail_at: loop over k until not. */
bool test_allocator_fired(void);
/** Acquisitions since the start of the test, failed ones included. */
uint64_t test_allocator_count(void);
size_t test_allocator_live_blocks(void);
size_t test_allocator_live_bytes(void);

/** What the process took meanwhile, on any thread and in any library. */
struct test_memory_use {
    uint64_t blocks;   /**< from malloc and its like */
    uint64_t largest;  /**< bytes of the largest one */
    uint64_t mappings; /**< by mmap, but for malloc's own */
};
/** Whether that can be told here: not under a sanitizer, nor without glibc. */
bool test_can_watch_memory(void);
/** Counts from now on, until it is asked for. */
void test_watch_memory(void);
struct test_memory_use test_memory_used(void);

/** Makes a fresh, empty directory, removed with all its contents after the test. The path lives
 * until then; NULL (and the test failed) if it cannot be made. */
const char *test_temporary_directory(void);

/** Random numbers that depend on the printed seed and the test's name only (and, on several
 * threads, on their order). */
uint64_t test_random_u64(void);
/** Uniform in 0 … bound - 1; bound > 0. */
uint64_t test_random_below(uint64_t bound);
/** Uniform in [0, 1). */
double test_random_unit(void);

/** Runs a printf-like command by sh, its output (stdout and stderr together, cut at capacity,
 * always ended by 0) into `output`; returns the exit status, 128 + signal, or -1. */
int test_shell(char *output, size_t capacity, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Where the build was installed (bin/weir, lib/libweir.a …), or NULL: skip then. Absolute. */
const char *test_install_prefix(void);
/** The benches' program, or NULL: skip then. */
const char *test_bench(void);
/** The Zig that built this, or NULL: skip then. */
const char *test_zig(void);
/** A folder with bin/mpiexec that tests of ranks must take, or NULL: PATH's, else skip. */
const char *test_mpi_path(void);
/** The library with the emulated CUDA kernels and the fake driver, or NULL: skip then. */
const char *test_fake_cuda_path(void);
/** Whether the tests run on the machine's own GPUs (tests/real_gpu.h). */
bool test_gpu_is_real(void);
/** The library that gives managed memory for a GPU's (tests/managed_cuda), or NULL: skip then. */
const char *test_managed_cuda_path(void);

/** Whether depth is wanted: more seeds, sizes and repetitions of what every run checks. */
bool test_is_full(void);
/** How often, how many, or how large: `quick` in every run, `full` where depth is wanted. */
size_t test_count(size_t quick, size_t full);

/** Built with Address- or ThreadSanitizer, or run under another: everything is slower then, and the
 * process's own memory says nothing, because it holds their records too. */
bool test_is_sanitized(void);

/* ---- behind the macros, and for main.c ------------------------------------------------------- */

bool test_expect(const char *file, int line, const char *text, bool condition);
bool test_expect_int(const char *file, int line, const char *text, int64_t a, int64_t b);
bool test_expect_uint(const char *file, int line, const char *text, uint64_t a, uint64_t b);
bool test_expect_str(const char *file, int line, const char *text, const char *a, const char *b);
bool test_expect_ptr(const char *file, int line, const char *text, const void *a, const void *b);
bool test_expect_near(const char *file, int line, const char *text, double a, double b,
                      double tolerance);
bool test_expect_bytes(const char *file, int line, const char *text, const void *a, const void *b,
                       size_t bytes);
bool test_expect_status(const char *file, int line, const char *text, int a, int b);
bool test_expect_contains(const char *file, int line, const char *text, const char *haystack,
                          const char *needle);
bool test_expect_faults(const char *file, int line, const char *text,
                        const struct weir_faults *faults, const char *const *wanted, size_t count);
void test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void test_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum test_outcome { TEST_PASSED, TEST_FAILED, TEST_SKIPPED, TEST_OUTCOME_COUNT };

/** What main.c gives the harness; the strings live as long as the program. */
struct test_settings {
    uint64_t seed;
    const char *install_prefix;
    const char *zig;
    const char *fake_cuda;
    const char *managed_cuda;
    const char *bench;
    const char *mpi;
    const char *cuda_driver; /**< WEIR_CUDA_DRIVER, as every test finds it; NULL: none */
    bool full;               /**< test_is_full */
    bool gpu;                /**< on the machine's own */
    bool sanitized;          /**< under a sanitizer that the build knows nothing of */
};
void test_set_up(const struct test_settings *settings);
/** Runs one test, printing what fails and why it was skipped; `name` outlives it. */
enum test_outcome test_run(const char *name, void (*run)(void));

/** The harness's own tests expect failures: between begin and end they are kept from the output and
 * from the test's result. End gives how many there were and, if not NULL, the last one's text. */
void test_expect_failures_begin(void);
int test_expect_failures_end(char *last, size_t capacity);

/** For the harness: called before and after every test; the latter reports leaks. */
void test_allocator_reset(void);
void test_allocator_finish(void);

#endif
