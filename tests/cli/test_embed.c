/* SPDX-License-Identifier: MIT */
/*
 * Goal: what is installed serves programs that Weir's own build knows nothing of. Method:
 * tests/embed/run.sh builds and runs an example that uses only the engine, in C, in C++, in CUDA,
 * through CMake, and as a dependency of a Zig project; each checks the result of its own small
 * training. So does examples/engine.c, which the build makes.
 */
#include "harness.h"

#include <stdio.h>
#include <string.h>

#define OUTPUT_BYTES 8192
#define EXIT_SKIPPED 77

static const char *last_line(char *text) {
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '\n') text[--length] = 0;
    const char *newline = strrchr(text, '\n');
    return newline ? newline + 1 : text;
}

static void build_and_run(const char *language) {
    const char *folder = test_temporary_directory();
    CHECK(folder);
    if (!test_install_prefix()) SKIP("no --prefix of an installation was given");
    char output[OUTPUT_BYTES];
    int status = test_shell(output, sizeof output, "sh tests/embed/run.sh %s '%s' '%s' '%s'",
                            language, folder, test_install_prefix(), test_zig() ? test_zig() : "");
    if (status == EXIT_SKIPPED) SKIP("%s", last_line(output));
    if (status != 0) TEST_FAIL("tests/embed/run.sh %s: exit %d:\n%s", language, status, output);
}

static void test_c_program_links_by_pkg_config(void) {
    build_and_run("c");
}

static void test_cpp_program_links_by_pkg_config(void) {
    build_and_run("cpp");
}

/* Where a GPU is, it is run as well. */
static void test_cuda_program_links_and_says_where_no_gpu_is(void) {
    build_and_run("cuda");
}

static void test_engine_example_has_the_same_bits_over_stages(void) {
    char output[OUTPUT_BYTES];
    if (!test_install_prefix()) SKIP("no --prefix of an installation was given");
    int status = test_shell(output, sizeof output, "'%s/examples/engine'", test_install_prefix());
    if (status != 0) TEST_FAIL("examples/engine: exit %d:\n%s", status, output);
    CHECK_CONTAINS(output, "4 stages and one: the same bits");
}

static void test_c_program_links_by_cmake(void) {
    build_and_run("cmake");
}

static void test_zig_project_depends_on_weir(void) {
    if (!test_zig()) SKIP("no --zig was given");
    build_and_run(test_is_full() ? "zig-net" : "zig");
}

static void test_programs_link_the_shared_library(void) {
    build_and_run("shared");
}

WEIR_TEST_SUITE(embed, TEST(c_program_links_by_pkg_config), TEST(cpp_program_links_by_pkg_config),
                TEST(cuda_program_links_and_says_where_no_gpu_is),
                TEST(engine_example_has_the_same_bits_over_stages), TEST(c_program_links_by_cmake),
                TEST(zig_project_depends_on_weir), TEST(programs_link_the_shared_library))
