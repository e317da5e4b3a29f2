/* SPDX-License-Identifier: MIT */
/* Finds the driver and fills the table. The version is asked for first: a driver that is too old
 * lacks functions as well, and "update it" says more than the first missing name.
 *
 * The library is opened RTLD_NODELETE: it has threads of its own, and unloading it under them is
 * not supported. */
#include "device/cuda_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DRIVER_NAME "libcuda.so.1"

static const char *library_name(void) {
    const char *name = getenv("WEIR_CUDA_DRIVER");
    return name != NULL && name[0] != '\0' ? name : DRIVER_NAME;
}

static int open_library(struct weir__cuda_driver *driver, struct weir_error *error) {
    const char *name = library_name();
    driver->library = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (driver->library != NULL) return WEIR_OK;
    const char *reason = dlerror();
    if (reason == NULL) reason = name;
    if (strcmp(name, DRIVER_NAME) == 0)
        return weir__fail(error, WEIR_ERR_NOT_FOUND,
                          "there is no GPU to use, for there is no NVIDIA driver (%.100s): install "
                          "the driver (CUDA %d.%d or newer), or use cpu",
                          reason, WEIR__CUDA_VERSION_MIN / 1000,
                          WEIR__CUDA_VERSION_MIN % 1000 / 10);
    return weir__fail(error, WEIR_ERR_NOT_FOUND,
                      "WEIR_CUDA_DRIVER names a library that does not open (%.120s): correct or "
                      "unset it",
                      reason);
}

/* POSIX gives functions as object pointers. */
static void *find(const struct weir__cuda_driver *driver, const char *symbol) {
    return dlsym(driver->library, symbol);
}

static int fail_missing(const char *symbol, struct weir_error *error) {
    return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                      "%.100s is no CUDA driver, or an incomplete one: it has no %s: install the "
                      "NVIDIA driver anew, or unset WEIR_CUDA_DRIVER",
                      library_name(), symbol);
}

/* The toolkit brings a library to link with, whose functions all say that it is not the real one.
 */
static int fail_stub(struct weir_error *error) {
    return weir__fail(error, WEIR_ERR_NOT_FOUND,
                      "there is no GPU to use, for %.80s is the toolkit's stub: install the NVIDIA "
                      "driver and take the stub out of LD_LIBRARY_PATH, or use cpu",
                      library_name());
}

static int check_version(struct weir__cuda_driver *driver, struct weir_error *error) {
    void *function = find(driver, "cuDriverGetVersion");
    if (function == NULL) return fail_missing("cuDriverGetVersion", error);
    memcpy(&driver->driver_get_version, &function, sizeof function);
    int result = driver->driver_get_version(&driver->version);
    if (result == WEIR__CUDA_STUB_LIBRARY) return fail_stub(error);
    if (result != WEIR__CUDA_SUCCESS)
        return weir__fail(error, weir__cuda_status(result),
                          "the NVIDIA driver does not say its version (CUDA error %d): install it "
                          "anew, or use cpu",
                          result);
    if (driver->version >= WEIR__CUDA_VERSION_MIN) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                      "the NVIDIA driver is for CUDA %d.%d, Weir needs %d.%d: update the driver, "
                      "or use cpu",
                      driver->version / 1000, driver->version % 1000 / 10,
                      WEIR__CUDA_VERSION_MIN / 1000, WEIR__CUDA_VERSION_MIN % 1000 / 10);
}

static int fill_table(struct weir__cuda_driver *driver, struct weir_error *error) {
    void *function;
    _Static_assert(sizeof function == sizeof driver->init, "functions and objects are as long");
#define FIND(member, symbol, parameters)                                                           \
    if ((function = find(driver, #symbol)) == NULL) return fail_missing(#symbol, error);           \
    memcpy(&driver->member, &function, sizeof function);
    WEIR__CUDA_CALL_MAP(FIND)
#undef FIND
    driver->fake = find(driver, "weir_fake_cuda_control") != NULL;
    return WEIR_OK;
}

static int fail_init(const struct weir__cuda_driver *driver, const char *call, int result,
                     struct weir_error *error) {
    char text[128];
    if (result == WEIR__CUDA_NO_DEVICE)
        return weir__fail(error, WEIR_ERR_NOT_FOUND,
                          "the NVIDIA driver finds no GPU: see what 'nvidia-smi' says, and whether "
                          "CUDA_VISIBLE_DEVICES or a container hides it, or use cpu");
    if (result == WEIR__CUDA_STUB_LIBRARY) return fail_stub(error);
    if (result == WEIR__CUDA_SYSTEM_DRIVER_MISMATCH)
        return weir__fail(error, WEIR_ERR_SYSTEM,
                          "the NVIDIA driver's library and its kernel module are of different "
                          "versions: restart the machine, or install the driver anew");
    return weir__fail(error, weir__cuda_status(result),
                      "the NVIDIA driver does not start (%s): see what 'nvidia-smi' says, or use "
                      "cpu",
                      weir__cuda_text(driver, call, result, text, sizeof text));
}

static int find_gpus(struct weir__cuda_driver *driver, struct weir_error *error) {
    int result = driver->init(0);
    if (result != WEIR__CUDA_SUCCESS) return fail_init(driver, "cuInit", result, error);
    result = driver->device_get_count(&driver->gpu_count);
    if (result == WEIR__CUDA_SUCCESS && driver->gpu_count < 1) result = WEIR__CUDA_NO_DEVICE;
    if (result != WEIR__CUDA_SUCCESS) return fail_init(driver, "cuDeviceGetCount", result, error);
    return WEIR_OK;
}

static int open_driver(struct weir__cuda_driver *driver, struct weir_error *error) {
    int status = open_library(driver, error);
    if (status != WEIR_OK) return status;
    if ((status = check_version(driver, error)) != WEIR_OK) return status;
    if ((status = fill_table(driver, error)) != WEIR_OK) return status;
    return find_gpus(driver, error);
}

int weir__cuda_driver_open(struct weir__cuda_driver *driver, struct weir_error *error) {
    assert(driver != NULL);
    *driver = (struct weir__cuda_driver){0};
    int status = open_driver(driver, error);
    if (status != WEIR_OK) weir__cuda_driver_close(driver);
    return status;
}

void weir__cuda_driver_close(struct weir__cuda_driver *driver) {
    assert(driver != NULL);
    if (driver->library != NULL) (void)dlclose(driver->library);
    *driver = (struct weir__cuda_driver){0};
}

int weir__cuda_driver_version(void) {
    struct weir__cuda_driver driver = {0};
    if (open_library(&driver, NULL) == WEIR_OK) (void)check_version(&driver, NULL);
    int version = driver.version;
    weir__cuda_driver_close(&driver);
    return version;
}

int weir__cuda_driver_find(const struct weir__cuda_driver *driver, uint32_t ordinal,
                           struct weir_error *error) {
    assert(driver->gpu_count >= 1);
    if (ordinal < (uint32_t)driver->gpu_count) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_NOT_FOUND,
                      "there is no GPU %u: there %s %d (see CUDA_VISIBLE_DEVICES): use cuda:%s%d",
                      ordinal, driver->gpu_count == 1 ? "is" : "are", driver->gpu_count,
                      driver->gpu_count == 1 ? "" : "0 to cuda:", driver->gpu_count - 1);
}

/* ---- results ---- */

int weir__cuda_status(int result) {
    if (result == WEIR__CUDA_SUCCESS) return WEIR_OK;
    if (result == WEIR__CUDA_OUT_OF_MEMORY) return WEIR_ERR_OUT_OF_MEMORY;
    return weir__cuda_is_sticky(result) ? WEIR_ERR_DEVICE : WEIR_ERR_BACKEND;
}

bool weir__cuda_is_sticky(int result) {
    switch (result) {
    case WEIR__CUDA_ECC_UNCORRECTABLE:
    case WEIR__CUDA_NVLINK_UNCORRECTABLE:
    case WEIR__CUDA_ILLEGAL_ADDRESS:
    case WEIR__CUDA_LAUNCH_TIMEOUT:
    case WEIR__CUDA_CONTEXT_IS_DESTROYED:
    case WEIR__CUDA_ASSERT:
    case WEIR__CUDA_HARDWARE_STACK_ERROR:
    case WEIR__CUDA_ILLEGAL_INSTRUCTION:
    case WEIR__CUDA_MISALIGNED_ADDRESS:
    case WEIR__CUDA_INVALID_ADDRESS_SPACE:
    case WEIR__CUDA_INVALID_PC:
    case WEIR__CUDA_LAUNCH_FAILED: return true;
    default: return false;
    }
}

const char *weir__cuda_text(const struct weir__cuda_driver *driver, const char *call, int result,
                            char *text, size_t capacity) {
    const char *name = NULL, *meaning = NULL;
    if (driver->get_error_name == NULL ||
        driver->get_error_name(result, &name) != WEIR__CUDA_SUCCESS || name == NULL)
        name = "unknown error";
    if (driver->get_error_string == NULL ||
        driver->get_error_string(result, &meaning) != WEIR__CUDA_SUCCESS || meaning == NULL)
        meaning = "the driver has no words for it";
    snprintf(text, capacity, "%s: %s (%d): %s", call, name, result, meaning);
    return text;
}
