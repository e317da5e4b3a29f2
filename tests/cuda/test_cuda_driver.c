/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever is wrong with a machine's CUDA driver, the message says what it is and how to mend
 * it. Method: libraries that are not there, are no driver or half of one, and a fake driver that is
 * old, has no GPU, or fails.
 */
#include "device/cuda.h"
#include "cuda/fake_gpu.h"
#include "harness.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Expects both ways of asking to refuse `name` with the same words. */
static void check_refused(const char *name, int status, const char *const *words) {
    struct weir_error opened = {0}, checked = {0};
    struct weir__device *device = NULL;
    CHECK_STATUS(weir__device_open(name, test_allocator(), &opened, &device), status);
    CHECK(device == NULL);
    CHECK_EQ_INT(opened.status, status);
    for (; *words != NULL; words++) EXPECT_CONTAINS(opened.message, *words);
    CHECK_STATUS(weir__device_check(name, &checked), status);
    CHECK_EQ_STR(checked.message, opened.message);
    CHECK_STATUS(weir__device_check(name, NULL), status);
}
#define CHECK_REFUSED(name, status, ...)                                                           \
    do {                                                                                           \
        check_refused(name, status, (const char *const[]){__VA_ARGS__, NULL});                     \
        CHECK_HELPERS();                                                                           \
    } while (0)

static void test_a_machine_without_driver_is_told_what_to_install(void) {
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (library != NULL) SKIP("this machine has an NVIDIA driver");
    CHECK_REFUSED("cuda", WEIR_ERR_NOT_FOUND, "there is no GPU to use", "libcuda.so.1",
                  "install the driver (CUDA 12.0 or newer)", "use cpu");
    CHECK(setenv("WEIR_CUDA_DRIVER", "", 1) == 0);
    CHECK_REFUSED("cuda:1", WEIR_ERR_NOT_FOUND, "there is no GPU to use");
}

static void test_a_named_driver_that_is_not_there_is_named(void) {
    CHECK(setenv("WEIR_CUDA_DRIVER", "/none/libcuda.so", 1) == 0);
    CHECK_REFUSED("cuda", WEIR_ERR_NOT_FOUND, "WEIR_CUDA_DRIVER", "/none/libcuda.so",
                  "correct or unset it");
}

static void test_a_library_that_is_no_driver_is_refused(void) {
    CHECK(setenv("WEIR_CUDA_DRIVER", "libm.so.6", 1) == 0);
    CHECK_REFUSED("cuda", WEIR_ERR_UNSUPPORTED, "libm.so.6", "no cuDriverGetVersion");
}

static void test_a_driver_without_a_function_is_refused(void) {
    static const char source[] = "int cuDriverGetVersion(int *v) { *v = 12000; return 0; } "
                                 "int cuInit(unsigned f) { return f; }";
    const char *folder = test_temporary_directory();
    char output[512], path[256];
    if (test_zig() == NULL) SKIP("no compiler to make half a driver with");
    CHECK(folder != NULL);
    snprintf(path, sizeof path, "%s/libhalf.so", folder);
    int code = test_shell(output, sizeof output,
                          "echo '%s' >%s/half.c && '%s' cc -shared -o %s "
                          "%s/half.c",
                          source, folder, test_zig(), path, folder);
    CHECK_EQ_STR(output, "");
    CHECK_EQ_INT(code, 0);
    CHECK(setenv("WEIR_CUDA_DRIVER", path, 1) == 0);
    CHECK_REFUSED("cuda", WEIR_ERR_UNSUPPORTED, path, "incomplete", "no cuGetErrorName");
}

static void test_an_old_driver_is_told_to_update(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 1, 0);
    if (fake == NULL) return;
    fake->set_version(11080);
    CHECK_REFUSED("cuda", WEIR_ERR_UNSUPPORTED, "for CUDA 11.8, Weir needs 12.0",
                  "update the driver");
    fake->set_version(12000);
    CHECK_OK(weir__device_check("cuda", NULL));
}

static void test_a_driver_without_gpu_says_where_to_look(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 0, 0);
    if (fake == NULL) return;
    CHECK_REFUSED("cuda", WEIR_ERR_NOT_FOUND, "finds no GPU", "nvidia-smi", "CUDA_VISIBLE_DEVICES");
}

static void test_a_gpu_that_is_not_there_is_refused_with_those_that_are(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 2, 0);
    if (fake == NULL) return;
    CHECK_REFUSED("cuda:2", WEIR_ERR_NOT_FOUND, "there is no GPU 2: there are 2",
                  "use cuda:0 to cuda:1");
    fake->reset(1, 1, 0);
    CHECK_REFUSED("cuda:999999", WEIR_ERR_NOT_FOUND, "no GPU 999999: there is 1", "use cuda:0");
    CHECK_OK(weir__device_check("cuda:0", NULL));
    CHECK_OK(weir__device_check("cuda", NULL));
    CHECK(fake_gpus_clean(fake));
}

static void test_a_gpu_whose_addresses_are_not_the_hosts_is_refused(void) {
    static const struct {
        uint32_t flag;
        const char *lack;
    } cases[] = {
        {WEIR_FAKE_CUDA_NOT_UNIFIED, "cuda:0 has no unified addressing"},
        {WEIR_FAKE_CUDA_NO_HOST_POINTERS, "cuda:0 has no use of pinned memory by the host's"},
    };
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        const struct weir_fake_cuda_control *fake = fake_gpus(1, 1, cases[i].flag);
        if (fake == NULL) return;
        struct weir_error error = {0};
        struct weir__device *device = NULL;
        int status = weir__device_open("cuda:0", test_allocator(), &error, &device);
        CHECK_STATUS(status, WEIR_ERR_UNSUPPORTED);
        CHECK(device == NULL);
        CHECK_CONTAINS(error.message, cases[i].lack);
        CHECK_CONTAINS(error.message, "use another GPU, or cpu");
        CHECK(fake_gpus_clean(fake));
    }
}

/* The second call is cuInit. */
static void test_a_driver_that_does_not_start_says_why(void) {
    static const struct {
        int result;
        int status;
        const char *words;
    } cases[] = {{WEIR__CUDA_STUB_LIBRARY, WEIR_ERR_NOT_FOUND, "toolkit's stub"},
                 {WEIR__CUDA_SYSTEM_DRIVER_MISMATCH, WEIR_ERR_SYSTEM, "different versions"},
                 {WEIR__CUDA_UNKNOWN, WEIR_ERR_BACKEND, "cuInit: CUDA_ERROR_UNKNOWN (999)"},
                 {WEIR__CUDA_OUT_OF_MEMORY, WEIR_ERR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"},
                 {424242, WEIR_ERR_BACKEND, "unknown error (424242)"}};
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 1, 0);
    if (fake == NULL) return;
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        struct weir_error error = {0};
        fake->fail_call(2, cases[i].result);
        CHECK_STATUS(weir__device_check("cuda", &error), cases[i].status);
        CHECK(fake->failed());
        CHECK_CONTAINS(error.message, cases[i].words);
        CHECK(strlen(error.message) + 1 < sizeof error.message);
    }
    struct weir_error error = {0};
    fake->fail_call(1, 999);
    CHECK_STATUS(weir__device_check("cuda", &error), WEIR_ERR_BACKEND);
    CHECK_CONTAINS(error.message, "does not say its version (CUDA error 999)");
    fake->fail_call(1, WEIR__CUDA_STUB_LIBRARY);
    CHECK_STATUS(weir__device_check("cuda", &error), WEIR_ERR_NOT_FOUND);
    CHECK_CONTAINS(error.message, "toolkit's stub");
}

/* The kernels' images are for other GPUs, or too new for the driver. */
static void test_kernels_that_do_not_fit_say_what_to_update(void) {
    const struct weir_fake_cuda_control *fake = fake_gpus(1, 1, 0);
    if (fake == NULL) return;
    bool said = false;
    for (uint64_t k = 1; !said; k++) {
        struct weir__device *device = NULL;
        struct weir_error error = {0};
        fake->fail_call(k, WEIR__CUDA_NO_BINARY_FOR_GPU);
        int status = weir__device_open("cuda:0", test_allocator(), &error, &device);
        if (status == WEIR_OK) device->calls->close(device);
        CHECK(fake->failed()); /* else k is past all calls, and no image was loaded */
        said = strstr(error.message, "does not fit cuda:0") != NULL;
        if (said) CHECK_STATUS(status, WEIR_ERR_UNSUPPORTED);
        CHECK(fake_gpus_clean(fake));
    }
}

static void test_a_build_without_kernels_says_so(void) {
    struct weir_error error = {0};
    const struct weir__cuda_driver real = {.gpu_count = 1}, fake = {.gpu_count = 1, .fake = true};
    CHECK_OK(weir__cuda_modules_check(&fake, &error));
    int status = weir__cuda_modules_check(&real, &error);
    if (weir__cuda_image_count > 0) {
        CHECK_OK(status);
        SKIP("this build has kernels");
    }
    CHECK_STATUS(status, WEIR_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "this build of Weir has no CUDA kernels");
    CHECK_CONTAINS(error.message, "nvcc");
}

static void test_results_that_stay_are_known(void) {
    CHECK_STATUS(weir__cuda_status(0), WEIR_OK);
    CHECK_STATUS(weir__cuda_status(2), WEIR_ERR_OUT_OF_MEMORY);
    CHECK_STATUS(weir__cuda_status(700), WEIR_ERR_DEVICE);
    CHECK_STATUS(weir__cuda_status(1), WEIR_ERR_BACKEND);
    CHECK(weir__cuda_is_sticky(700) && weir__cuda_is_sticky(719));
    CHECK(weir__cuda_is_sticky(214) && weir__cuda_is_sticky(220));
    CHECK(!weir__cuda_is_sticky(1) && !weir__cuda_is_sticky(2) && !weir__cuda_is_sticky(600));
}

WEIR_TEST_SUITE(cuda_driver, TEST(a_machine_without_driver_is_told_what_to_install),
                TEST(a_named_driver_that_is_not_there_is_named),
                TEST(a_library_that_is_no_driver_is_refused),
                TEST(a_driver_without_a_function_is_refused), TEST(an_old_driver_is_told_to_update),
                TEST(a_driver_without_gpu_says_where_to_look),
                TEST(a_gpu_that_is_not_there_is_refused_with_those_that_are),
                TEST(a_gpu_whose_addresses_are_not_the_hosts_is_refused),
                TEST(a_driver_that_does_not_start_says_why),
                TEST(kernels_that_do_not_fit_say_what_to_update),
                TEST(a_build_without_kernels_says_so), TEST(results_that_stay_are_known))
