/* SPDX-License-Identifier: MIT */
/*
 * Goal: a process finds its world, or hears what is missing and how to mend it, where no MPI need
 * be. Method: launchers' variables, and folders with a false mpiexec.
 */
#include "harness.h"

#include "world/world.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const variables[] = {
    "PMI_RANK",  "PMI_SIZE",       "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "PMIX_RANK", "PMIX_NAMESPACE", "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS",
    "WEIR_MPI"};

/* Tests of other suites start commands, which must not think that they were launched. */
static void forget_launch(void) {
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
}

/* "NAME=value NAME=value" */
static void set_launch(const char *settings) {
    char text[256], *rest = text;
    forget_launch();
    snprintf(text, sizeof text, "%s", settings);
    for (char *each; (each = strtok_r(rest, " ", &rest)) != NULL;) {
        char *value = strchr(each, '=');
        *value = '\0';
        setenv(each, value + 1, 1);
    }
}

static void test_launchers_are_known_by_their_variables(void) {
    static const struct {
        const char *settings, *by;
        uint32_t rank, size;
    } cases[] = {
        {"", NULL, 0, 0},
        {"PMI_RANK=3 PMI_SIZE=4", "PMI_SIZE", 3, 4},
        {"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 PMIX_RANK=0", "OMPI_COMM_WORLD_SIZE", 0, 2},
        {"PMIX_RANK=5 PMIX_NAMESPACE=prterun-1", "PMIX_RANK", 5, 0},
        {"SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_NUM_TASKS", 1, 8},
        /* Slurm's PMIx, and an mpiexec that srun started once for each host. */
        {"PMIX_RANK=1 PMIX_NAMESPACE=slurm.pmix.7.0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=8",
         "SLURM_STEP_NUM_TASKS", 1, 8},
        {"PMI_RANK=5 PMI_SIZE=6 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2", "PMI_SIZE", 5, 6},
        {"SLURM_PROCID=0", NULL, 0, 0}, /* a batch script's own process */
        {"PMI_RANK=4 PMI_SIZE=4", NULL, 0, 0},
        {"PMI_RANK=-1 PMI_SIZE=4", NULL, 0, 0},
        {"PMI_RANK=0x PMI_SIZE=4", NULL, 0, 0},
        {"PMI_RANK=0 PMI_SIZE=4294967297", NULL, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_launch(cases[i].settings);
        struct weir__launch launch = weir__launch_read();
        bool known = EXPECT_EQ_STR(launch.by, cases[i].by);
        known = EXPECT_EQ_UINT(launch.rank, cases[i].rank) && known;
        known = EXPECT_EQ_UINT(launch.size, cases[i].size) && known;
        if (!known) printf("  with '%s'\n", cases[i].settings);
    }
    forget_launch();
}

static void expect_alone(const char *settings) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_world world;
    struct weir_message message = {.peer = 1};
    struct weir_request request;
    set_launch(settings);
    struct weir_world_options options = WEIR_WORLD_OPTIONS_INIT;
    options.library = "/none/libmpi.so";
    CHECK_OK(weir_world_mpi(test_allocator(), &options, &faults, &world));
    EXPECT_EQ_UINT(faults.count, 0);
    EXPECT_EQ_UINT(world.size, sizeof world);
    EXPECT_EQ_UINT(world.rank, 0);
    EXPECT_EQ_UINT(world.rank_count, 1);
    EXPECT_EQ_UINT(world.host_rank, 0);
    EXPECT_EQ_UINT(world.host_count, 1);
    EXPECT(world.host[0] != '\0' && world.name[0] != '\0');
    EXPECT_STATUS(world.calls->open(world.context, 3), WEIR_OK);
    EXPECT_STATUS(world.calls->send(world.context, &message, &request), WEIR_ERR_ARGUMENT);
    EXPECT_CONTAINS(world.calls->reason(world.context), "no peer");
    world.calls->close(world.context);
    forget_launch();
}

static void test_a_process_of_no_launcher_is_alone_without_mpi(void) {
    expect_alone("");
    expect_alone("PMI_RANK=0 PMI_SIZE=1");
}

/* Looks as rank 1 of 4, with this PATH. */
static void look(const char *library, const char *path, int wanted, struct weir_faults *faults) {
    struct weir_world world;
    char before[4096];
    snprintf(before, sizeof before, "%s", getenv("PATH"));
    set_launch("PMI_RANK=1 PMI_SIZE=4");
    setenv("PATH", path, 1);
    struct weir_world_options options = WEIR_WORLD_OPTIONS_INIT;
    options.library = library;
    EXPECT_STATUS(weir_world_mpi(test_allocator(), &options, faults, &world), wanted);
    setenv("PATH", before, 1);
    forget_launch();
}

static void write_file(const char *folder, const char *name, mode_t mode) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs("#!/bin/sh\n", file);
    fclose(file);
    CHECK(chmod(path, mode) == 0);
}

static void make_folder(const char *folder, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK(mkdir(path, 0755) == 0);
}

static void test_the_library_beside_mpiexec_comes_first_past_links(void) {
    const char *folder = test_temporary_directory();
    char path[512];
    CHECK(folder != NULL);
    make_folder(folder, "links");
    make_folder(folder, "mpi");
    make_folder(folder, "mpi/bin");
    make_folder(folder, "mpi/lib");
    write_file(folder, "mpi/bin/mpiexec", 0755);
    write_file(folder, "mpi/lib/libmpi_abi.so.1", 0644);
    CHECK_HELPERS();
    snprintf(path, sizeof path, "%s/links/mpiexec", folder);
    CHECK(symlink("../mpi/bin/mpiexec", path) == 0);
    snprintf(path, sizeof path, "/none:%s/links:%s/mpi/bin", folder, folder);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    look(NULL, path, WEIR_ERR_NOT_FOUND, &faults);
    EXPECT_FAULTS(&faults, "/mpi/lib/libmpi_abi.so.1 does not open");
    weir_faults_clean_up(&faults);
}

static void test_times_that_are_none_are_refused(void) {
    static const struct {
        double peer, start;
    } times[] = {{0, 0},    {-1, 0}, {NAN, 0}, {INFINITY, 0},
                 {1e10, 0}, {1, -1}, {1, NAN}, {1, 1e300}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct weir_world_options options = WEIR_WORLD_OPTIONS_INIT;
        struct weir_faults faults = WEIR_FAULTS_INIT;
        struct weir_world world;
        options.peer_timeout = times[i].peer;
        options.start_timeout = times[i].start;
        EXPECT_STATUS(weir_world_mpi(test_allocator(), &options, &faults, &world),
                      WEIR_ERR_ARGUMENT);
        EXPECT_FAULTS(&faults, "give seconds above 0");
        weir_faults_clean_up(&faults);
    }
}

static void test_where_none_is_found_every_place_is_named(void) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    if (dlopen("libmpi_abi.so.1", RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE) != NULL)
        SKIP("the loader finds an MPI here");
    look(NULL, "/none", WEIR_ERR_NOT_FOUND, &faults);
    TEST_RETURN_UNLESS(EXPECT_FAULTS(&faults, "the folder of PATH's mpiexec", "pip install mpich"));
    EXPECT_CONTAINS(faults.lines[0], "/libweir_mpi.so");
    EXPECT_CONTAINS(faults.lines[0], "/lib/libweir_mpi.so");
    EXPECT_CONTAINS(faults.lines[0], "libmpi_abi.so.1 of the loader's path");
    EXPECT_CONTAINS(faults.lines[1], "WEIR_MPI");
    weir_faults_clean_up(&faults);
}

static void test_a_library_that_is_none_is_refused(void) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    look("/none/libmpi.so", "/none", WEIR_ERR_NOT_FOUND, &faults);
    look("libm.so.6", "/none", WEIR_ERR_UNSUPPORTED, &faults);
    TEST_RETURN_UNLESS(
        EXPECT_FAULTS(&faults, "/none/libmpi.so does not open", "libm.so.6 is no MPI library"));
    EXPECT_CONTAINS(faults.lines[0], "WEIR_MPI");
    EXPECT_CONTAINS(faults.lines[1], "build/mpi_shim.c");
    weir_faults_clean_up(&faults);
}

static void test_without_memory_there_is_no_world(void) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    test_allocator_fail_at(1, false);
    look("libm.so.6", "/none", WEIR_ERR_OUT_OF_MEMORY, &faults);
    EXPECT(test_allocator_fired());
    test_allocator_fail_at(0, false);
    EXPECT_FAULTS(&faults, "no memory");
    weir_faults_clean_up(&faults);
}

WEIR_TEST_SUITE(world, TEST(launchers_are_known_by_their_variables),
                TEST(a_process_of_no_launcher_is_alone_without_mpi),
                TEST(the_library_beside_mpiexec_comes_first_past_links),
                TEST(times_that_are_none_are_refused),
                TEST(where_none_is_found_every_place_is_named),
                TEST(a_library_that_is_none_is_refused), TEST(without_memory_there_is_no_world))
