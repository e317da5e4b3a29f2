/* SPDX-License-Identifier: MIT */
/*
 * Goal: GPUs, their links and the libraries for them are told as they are, and what is near a GPU
 * is found from its PCI address. Method: the fake driver; libraries made for the purpose, good, old
 * and mute; a made-up /sys.
 */
#include "device/cuda_driver.h"
#include "device/gpus.h"
#include "cuda/fake_gpu.h"
#include "harness.h"
#include "place/machine.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- GPUs ---- */

static void test_gpus_and_their_links_are_told(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 3, 0);
    if (fake == NULL) return;
    struct weir__gpus gpus;
    fake->set_peer(0, 2, false);
    fake->set_pci(2, "0001:AF:00.0");
    fake->set_version(12080);
    CHECK_OK(weir__gpus_survey(&gpus, NULL));
    CHECK_EQ_UINT(gpus.count, 3);
    CHECK_EQ_INT(gpus.version, 12080);
    CHECK_EQ_STR(gpus.gpu[2].name, "Fake GPU 2");
    CHECK_EQ_STR(gpus.gpu[2].pci, "0001:AF:00.0");
    CHECK_EQ_UINT(gpus.gpu[2].memory_bytes, 1u << 30);
    CHECK_EQ_INT(gpus.gpu[2].capability_major, 9);
    CHECK_EQ_INT(gpus.gpu[2].capability_minor, 0);
    CHECK_EQ_INT(gpus.gpu[2].multiprocessors, 4);
    CHECK_EQ_UINT(gpus.gpu[0].reaches, 2);
    CHECK_EQ_UINT(gpus.gpu[1].reaches, 5);
    CHECK_EQ_UINT(gpus.gpu[2].reaches, 3);
    CHECK(fake_gpus_clean(fake)); /* no context was made */
}

static void test_the_machines_own_gpus_are_told(void) {
    struct weir__gpus gpus;
    if (any_gpus(1, 1, 0) == NULL) return;
    CHECK_OK(weir__gpus_survey(&gpus, NULL));
    CHECK(gpus.count >= 1 && gpus.version >= WEIR__CUDA_VERSION_MIN);
    for (uint32_t g = 0; g < gpus.count; g++) {
        const struct weir__gpu *gpu = &gpus.gpu[g];
        CHECK(gpu->name[0] != '\0' && strchr(gpu->pci, ':') != NULL);
        CHECK(gpu->memory_bytes >= 1u << 30 && gpu->multiprocessors > 0);
        CHECK(gpu->capability_major >= 5);
        CHECK_EQ_UINT(gpu->reaches >> g & 1u, 0);
        CHECK_EQ_UINT(gpu->reaches >> gpus.count, 0);
    }
}

static void test_a_survey_that_fails_says_why_and_finds_nothing(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 2, 0);
    if (fake == NULL) return;
    struct weir__gpus gpus;
    uint64_t k = 0;
    for (;;) {
        struct weir_error error = {0};
        fake->reset(1, 2, 0);
        fake->fail_call(++k, WEIR__CUDA_UNKNOWN);
        int status = weir__gpus_survey(&gpus, &error);
        if (!fake->failed()) break;
        if (status == WEIR_OK) continue; /* a link that could not be asked for is none */
        CHECK_STATUS(status, WEIR_ERR_BACKEND);
        CHECK(gpus.count == 0 && gpus.version == 0);
        CHECK(strstr(error.message, "999") != NULL);
    }
    CHECK(k > 18);
    CHECK_EQ_UINT(gpus.count, 2);
}

/* ---- libraries ---- */

static void find_made(const char *folder, const char *name, const char *source,
                      enum weir__gpu_library_asks asks, struct weir__gpu_library_facts *facts) {
    char output[512], path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int code = test_shell(output, sizeof output, "echo '%s' >%s.c && '%s' cc -shared -o %s %s.c",
                          source, path, test_zig(), path, path);
    EXPECT_EQ_STR(output, "");
    EXPECT_EQ_INT(code, 0);
    const struct weir__gpu_library library = {
        "made", {"/none/libmade.so.2", path}, "madeGetVersion", asks, 21800};
    weir__gpu_library_find(&library, facts);
    EXPECT(facts->file == path);
}

static void test_libraries_are_found_with_their_versions(void) {
    struct weir__gpu_library_facts facts;
    const char *folder = test_temporary_directory();
    if (test_zig() == NULL) SKIP("no compiler to make libraries with");
    find_made(folder, "good.so", "unsigned long madeGetVersion(void) { return 130102; }",
              WEIR__ASKS_BY_VALUE, &facts);
    CHECK_EQ_INT(facts.state, WEIR__LIBRARY_FOUND);
    CHECK_EQ_STR(facts.version, "13.1.2");
    find_made(folder, "old.so", "int madeGetVersion(int *v) { *v = 21705; return 0; }",
              WEIR__ASKS_BY_POINTER, &facts);
    CHECK_EQ_INT(facts.state, WEIR__LIBRARY_OLD);
    CHECK_EQ_STR(facts.version, "2.17.5");
    find_made(folder, "mute.so", "int madeGetVersion(int *v) { *v = 30000; return 1; }",
              WEIR__ASKS_BY_POINTER, &facts);
    CHECK_EQ_INT(facts.state, WEIR__LIBRARY_BROKEN);
    CHECK_EQ_STR(facts.version, "");
    find_made(folder, "parts.so",
              "int madeGetVersion(int *a, int *b) { *a = 12; *b = 9; return 0; }",
              WEIR__ASKS_BY_PARTS, &facts);
    CHECK_EQ_INT(facts.state, WEIR__LIBRARY_FOUND);
    CHECK_EQ_STR(facts.version, "12.9.0");
    find_made(folder, "no.so", "int madeGetVersion(int *a, int *b) { *a = 12; *b = 9; return 1; }",
              WEIR__ASKS_BY_PARTS, &facts);
    CHECK_EQ_INT(facts.state, WEIR__LIBRARY_BROKEN);
    find_made(folder, "other.so", "int other(void) { return 1; }", WEIR__ASKS_BY_VALUE, &facts);
    CHECK_EQ_INT(facts.state, WEIR__LIBRARY_BROKEN);
    const struct weir__gpu_library none = {
        "none", {"/none/libnone.so"}, "f", WEIR__ASKS_BY_VALUE, 1};
    weir__gpu_library_find(&none, &facts);
    CHECK_EQ_INT(facts.state, WEIR__LIBRARY_MISSING);
    CHECK(facts.file == NULL);
}

static void test_a_library_that_is_not_there_says_what_to_install(void) {
    const struct weir__gpu_library none = {.name = "cuNone",
                                           .files = {"/none/libnone.so"},
                                           .version_symbol = "f",
                                           .least = 1,
                                           .environment = "WEIR_CUNONE",
                                           .package = "the package of none"};
    struct weir_error error = {0};
    void *opened = NULL;
    EXPECT_STATUS(weir__gpu_library_open(&none, NULL, &opened, &error), WEIR_ERR_NOT_FOUND);
    EXPECT(opened == NULL);
    EXPECT_CONTAINS(error.message, "cuNone (/none/libnone.so)");
    EXPECT_CONTAINS(error.message, "install the package of none");
    EXPECT_CONTAINS(error.message, "WEIR_CUNONE");
    CHECK(setenv("WEIR_CUNONE", "/none/mine.so", 1) == 0);
    EXPECT_STATUS(weir__gpu_library_open(&none, NULL, &opened, &error), WEIR_ERR_NOT_FOUND);
    unsetenv("WEIR_CUNONE");
    EXPECT_CONTAINS(error.message, "WEIR_CUNONE names");
    EXPECT_CONTAINS(error.message, "/none/mine.so");
}

/* What opens on a driver for CUDA 12 and is one for 13 is tried last there. */
static void test_libraries_are_tried_in_the_drivers_order(void) {
    const struct weir__gpu_library *products = weir__gpu_library_named("cuBLASLt");
    const char *files[WEIR__GPU_LIBRARY_FILES_MAX];
    static const int drivers[] = {0, 12000, 12090, 13000, 14000};
    static const char *const first[] = {".so.13", ".so.12", ".so.12", ".so.13", ".so.13"};
    for (size_t i = 0; i < WEIR__COUNT_OF(drivers); i++) {
        weir__gpu_library_order(products, drivers[i], files);
        EXPECT_CONTAINS(files[0], first[i]);
        EXPECT(files[1] != NULL && files[2] == NULL && strcmp(files[0], files[1]) != 0);
    }
    weir__gpu_library_order(weir__gpu_library_named("cuDNN"), 12000, files);
    EXPECT_EQ_STR(files[0], "libcudnn.so.9");
    EXPECT(files[1] == NULL);
}

struct refusals {
    int first, tried;
    const char *served; /* the file's name */
};

/* Refuses the first file by the status `first`. */
static int serve(void *context, void *opened, const struct weir__gpu_library_facts *facts,
                 struct weir_error *error) {
    struct refusals *refusals = context;
    EXPECT(opened != NULL && facts->state == WEIR__LIBRARY_FOUND);
    if (refusals->tried++ == 0 && refusals->first != WEIR_OK)
        return weir__fail(error, refusals->first, "%s makes no handle", facts->file);
    refusals->served = facts->file;
    return WEIR_OK;
}

/* Of two files that every system of this kind has. */
static void test_a_library_that_opens_and_does_not_serve_is_passed_over(void) {
    struct weir__gpu_library library = {.name = "two",
                                        .files = {"libm.so.6", "libc.so.6"},
                                        .version_symbol = "getpid",
                                        .least = 1,
                                        .package = "it"};
    static const int statuses[] = {WEIR_OK, WEIR_ERR_BACKEND, WEIR_ERR_UNSUPPORTED};
    void *opened = NULL;
    for (size_t i = 0; i < WEIR__COUNT_OF(statuses); i++) {
        struct refusals refusals = {.first = statuses[i]};
        const struct weir__gpu_library_trial trial = {serve, &refusals};
        struct weir_error error = {0};
        CHECK_OK(weir__gpu_library_open(&library, &trial, &opened, &error));
        EXPECT_EQ_STR(refusals.served, library.files[i > 0]);
        EXPECT_EQ_STR(error.message, "");
        EXPECT(dlclose(opened) == 0);
    }
    struct refusals refusals = {.first = WEIR_ERR_OUT_OF_MEMORY};
    const struct weir__gpu_library_trial trial = {serve, &refusals};
    struct weir_error error = {0};
    EXPECT_STATUS(weir__gpu_library_open(&library, &trial, &opened, &error),
                  WEIR_ERR_OUT_OF_MEMORY);
    library.files[1] = NULL;
    refusals = (struct refusals){.first = WEIR_ERR_BACKEND};
    EXPECT_STATUS(weir__gpu_library_open(&library, &trial, &opened, &error), WEIR_ERR_BACKEND);
    EXPECT(opened == NULL);
    EXPECT_EQ_STR(error.message, "libm.so.6 makes no handle");
}

/* The library that the environment names, and no other, is found and opened. */
static void test_the_environment_names_a_library(void) {
    struct weir__gpu_library_facts facts;
    struct weir_error error = {0};
    const char *folder = test_temporary_directory();
    char path[256];
    void *opened = NULL;
    if (test_zig() == NULL) SKIP("no compiler to make libraries with");
    find_made(folder, "old.so", "unsigned long madeGetVersion(void) { return 20001; }", false,
              &facts);
    snprintf(path, sizeof path, "%s/old.so", folder);
    struct weir__gpu_library library = {.name = "cuMade",
                                        .files = {"/none/libmade.so"},
                                        .version_symbol = "madeGetVersion",
                                        .least = 20000,
                                        .environment = "WEIR_CUMADE",
                                        .package = "it"};
    weir__gpu_library_find(&library, &facts);
    EXPECT_EQ_INT(facts.state, WEIR__LIBRARY_MISSING);
    CHECK(setenv("WEIR_CUMADE", path, 1) == 0);
    weir__gpu_library_find(&library, &facts);
    EXPECT_EQ_INT(facts.state, WEIR__LIBRARY_FOUND);
    EXPECT_EQ_STR(facts.file, path);
    EXPECT_STATUS(weir__gpu_library_open(&library, NULL, &opened, &error), WEIR_OK);
    EXPECT(opened != NULL && dlclose(opened) == 0);
    library.least = 30000;
    EXPECT_STATUS(weir__gpu_library_open(&library, NULL, &opened, &error), WEIR_ERR_UNSUPPORTED);
    EXPECT_CONTAINS(error.message, "cuMade 2.0.1 is too old, Weir needs 3.0");
    library.version_symbol = "other";
    EXPECT_STATUS(weir__gpu_library_open(&library, NULL, &opened, &error), WEIR_ERR_UNSUPPORTED);
    EXPECT_CONTAINS(error.message, "does not say its version");
    unsetenv("WEIR_CUMADE");
}

static void test_the_libraries_are_those_for_networks(void) {
    static const char *const names[] = {"cuBLASLt", "cuDNN", "NVRTC", "NCCL"};
    for (uint32_t i = 0; i < 4; i++) {
        const struct weir__gpu_library *library = weir__gpu_library_at(i);
        CHECK(library != NULL);
        CHECK_EQ_STR(library->name, names[i]);
        CHECK(library->files[0] != NULL && library->least >= 10000);
        CHECK(library->package != NULL && weir__gpu_library_named(names[i]) == library);
    }
    CHECK(weir__gpu_library_at(4) == NULL);
}

/* ---- what is near ---- */

static void make_device(const char *root, const char *address, const char *node,
                        const char *cores) {
    char output[256];
    int code = test_shell(output, sizeof output,
                          "d=%s/sys/bus/pci/devices/%s; mkdir -p $d && echo '%s' >$d/numa_node && "
                          "{ test -z '%s' || echo '%s' >$d/local_cpulist; }",
                          root, address, node, cores, cores);
    EXPECT_EQ_STR(output, "");
    EXPECT_EQ_INT(code, 0);
}

static void test_what_is_near_a_gpu_is_read_from_the_system(void) {
    const char *root = test_temporary_directory();
    struct weir__machine *machine = NULL;
    struct weir__near near;
    CHECK(setenv("HWLOC_SYNTHETIC", "numa:2 core:4 pu:2", 1) == 0);
    int status = weir__machine_new(test_allocator(), &machine);
    unsetenv("HWLOC_SYNTHETIC");
    CHECK_OK(status);
    make_device(root, "0000:3b:00.0", "1", "8-15,40-47");
    make_device(root, "10000:af:1f.7", "-1", "");
    EXPECT_STATUS(weir__near_read(machine, root, "0000:3B:00.0", &near), WEIR_OK);
    EXPECT_EQ_INT(near.numa_node, 1);
    EXPECT_EQ_STR(near.cores, "8-15");
    EXPECT_EQ_UINT(near.core_count, 4);
    for (uint32_t i = 0; i < near.core_count; i++) EXPECT_EQ_UINT(near.core_ids[i], 8 + 2 * i);
    EXPECT_STATUS(weir__near_read(machine, root, "00000000:3B:00.0", &near), WEIR_OK);
    EXPECT_STATUS(weir__near_read(machine, root, "3b:00.0", &near), WEIR_OK);
    EXPECT_STATUS(weir__near_read(machine, root, "10000:AF:1F.7", &near), WEIR_OK);
    EXPECT_EQ_INT(near.numa_node, -1);
    EXPECT_EQ_STR(near.cores, "");
    EXPECT_EQ_UINT(near.core_count, 0);
    EXPECT_STATUS(weir__near_read(machine, root, "0000:3c:00.0", &near), WEIR_ERR_NOT_FOUND);
    static const char *const malformed[] = {"", "x", "0000:3b:00", "0000:3b:00.0x", "../../etc"};
    for (size_t i = 0; i < WEIR__COUNT_OF(malformed); i++)
        EXPECT_STATUS(weir__near_read(machine, root, malformed[i], &near), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir__place_near(machine, "0000:3b:00.0", &near), WEIR_ERR_NOT_FOUND);
    weir__machine_destroy(machine);
}

WEIR_TEST_SUITE(gpus, TEST(gpus_and_their_links_are_told), TEST(the_machines_own_gpus_are_told),
                TEST(a_survey_that_fails_says_why_and_finds_nothing),
                TEST(libraries_are_found_with_their_versions),
                TEST(a_library_that_is_not_there_says_what_to_install),
                TEST(libraries_are_tried_in_the_drivers_order),
                TEST(a_library_that_opens_and_does_not_serve_is_passed_over),
                TEST(the_environment_names_a_library), TEST(the_libraries_are_those_for_networks),
                TEST(what_is_near_a_gpu_is_read_from_the_system))
