/* SPDX-License-Identifier: MIT */
/* A look at the GPUs and at the libraries for them; weir__cuda_driver does the opening. */
#include "device/gpus.h"

#include "device/cuda_driver.h"
#include "device/cuda_kernels.h"
#include "device/kinds.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- GPUs ---- */

/* Bits of those that it reaches; a question that fails is a no. */
static uint64_t find_reached(const struct weir__cuda_driver *driver, int device, uint32_t count) {
    assert(count < 64);
    uint64_t reached = 0;
    for (uint32_t g = 0; g < count; g++) {
        int peer, can = 0;
        bool known = driver->device_get(&peer, (int)g) == WEIR__CUDA_SUCCESS && peer != device &&
                     driver->device_can_access_peer(&can, device, peer) == WEIR__CUDA_SUCCESS;
        if (known && can) reached |= UINT64_C(1) << g;
    }
    return reached;
}

/* Memory m is GPU m - 1's. */
uint64_t weir__cuda_reach(uint32_t ordinal) {
    struct weir__cuda_driver driver;
    uint64_t unreached = 0;
    int device;
    if (weir__cuda_driver_open(&driver, NULL) != WEIR_OK) return UINT64_MAX;
    uint32_t count = (uint32_t)driver.gpu_count;
    if (count > WEIR__GPUS_MAX - 1) count = WEIR__GPUS_MAX - 1;
    if (ordinal < count && driver.device_get(&device, (int)ordinal) == WEIR__CUDA_SUCCESS) {
        uint64_t reached = find_reached(&driver, device, count) | UINT64_C(1) << ordinal;
        unreached = (~reached & ((UINT64_C(1) << count) - 1)) << 1;
    }
    weir__cuda_driver_close(&driver);
    return ~unreached;
}

/* A CUresult, and by which call. */
static int look_at(const struct weir__cuda_driver *driver, uint32_t ordinal, uint32_t count,
                   struct weir__gpu *gpu, const char **call) {
    assert(ordinal < count);
    int device = 0, result;
    size_t bytes = 0;
#define ASK(symbol, expression)                                                                    \
    *call = symbol;                                                                                \
    if ((result = (expression)) != WEIR__CUDA_SUCCESS) return result;
    ASK("cuDeviceGet", driver->device_get(&device, (int)ordinal))
    ASK("cuDeviceGetName", driver->device_get_name(gpu->name, sizeof gpu->name, device))
    ASK("cuDeviceTotalMem", driver->device_total_memory(&bytes, device))
    ASK("cuDeviceGetPCIBusId", driver->device_get_pci(gpu->pci, sizeof gpu->pci, device))
    ASK("cuDeviceGetAttribute",
        driver->device_get_attribute(&gpu->capability_major, WEIR__CUDA_ATTRIBUTE_CAPABILITY_MAJOR,
                                     device))
    ASK("cuDeviceGetAttribute",
        driver->device_get_attribute(&gpu->capability_minor, WEIR__CUDA_ATTRIBUTE_CAPABILITY_MINOR,
                                     device))
    ASK("cuDeviceGetAttribute",
        driver->device_get_attribute(&gpu->multiprocessors, WEIR__CUDA_ATTRIBUTE_MULTIPROCESSORS,
                                     device))
#undef ASK
    gpu->memory_bytes = bytes;
    gpu->reaches = find_reached(driver, device, count);
    return WEIR__CUDA_SUCCESS;
}

static int survey(const struct weir__cuda_driver *driver, struct weir__gpus *gpus,
                  struct weir_error *error) {
    uint32_t count = (uint32_t)driver->gpu_count;
    if (count > WEIR__GPUS_MAX) count = WEIR__GPUS_MAX;
    for (uint32_t g = 0; g < count; g++) {
        const char *call = NULL;
        char text[128];
        int result = look_at(driver, g, count, &gpus->gpu[g], &call);
        if (result == WEIR__CUDA_SUCCESS) continue;
        return weir__fail(error, weir__cuda_status(result),
                          "GPU %u does not answer (%s): see what 'nvidia-smi' says", g,
                          weir__cuda_text(driver, call, result, text, sizeof text));
    }
    gpus->count = count;
    gpus->fake = driver->fake;
    gpus->version = driver->version;
    return WEIR_OK;
}

int weir__gpus_survey(struct weir__gpus *gpus, struct weir_error *error) {
    struct weir__cuda_driver driver;
    *gpus = (struct weir__gpus){.kernels = weir__cuda_image_count > 0};
    int status = weir__cuda_driver_open(&driver, error);
    if (status != WEIR_OK) return status;
    status = survey(&driver, gpus, error);
    if (status != WEIR_OK) *gpus = (struct weir__gpus){.kernels = gpus->kernels};
    weir__cuda_driver_close(&driver);
    return status;
}

const char *weir__gpus_name(const struct weir__gpus *gpus, const char *device) {
    uint32_t number = 0;
    if (sscanf(device, "cuda:%" SCNu32, &number) != 1) number = 0;
    return number < gpus->count ? gpus->gpu[number].name : "unknown";
}

/* ---- libraries ---- */

static const struct weir__gpu_library libraries[] = {
    {"cuBLASLt",
     {"libcublasLt.so.13", "libcublasLt.so.12"},
     "cublasLtGetVersion",
     WEIR__ASKS_BY_VALUE,
     120000,
     "WEIR_CUBLASLT",
     "the CUDA toolkit's libcublas, or PyPI's nvidia-cublas"},
    {"cuDNN",
     {"libcudnn.so.9"},
     "cudnnGetVersion",
     WEIR__ASKS_BY_VALUE,
     90000,
     "WEIR_CUDNN",
     "NVIDIA's cudnn9 package for your CUDA, or PyPI's nvidia-cudnn-cu13 or -cu12"},
    {"NVRTC",
     {"libnvrtc.so.13", "libnvrtc.so.12"},
     "nvrtcVersion",
     WEIR__ASKS_BY_PARTS,
     120000,
     NULL,
     "the CUDA toolkit's nvrtc, or PyPI's nvidia-cuda-nvrtc"},
    {"NCCL",
     {"libnccl.so.2"},
     "ncclGetVersion",
     WEIR__ASKS_BY_POINTER,
     21800,
     "WEIR_NCCL",
     "NVIDIA's libnccl2, or PyPI's nvidia-nccl-cu13 or -cu12",
     "GPUs of several processes exchange"},
};

const struct weir__gpu_library *weir__gpu_library_at(uint32_t index) {
    return index < WEIR__COUNT_OF(libraries) ? &libraries[index] : NULL;
}

const struct weir__gpu_library *weir__gpu_library_named(const char *name) {
    assert(name != NULL);
    const struct weir__gpu_library *library = libraries;
    while (strcmp(library->name, name) != 0) library++;
    assert(library < libraries + WEIR__COUNT_OF(libraries));
    return library;
}

/* 0: it does not say. */
static uint64_t ask_version(const struct weir__gpu_library *library, void *opened) {
    assert(opened != NULL);
    void *symbol = dlsym(opened, library->version_symbol);
    int (*by_pointer)(int *), (*by_parts)(int *, int *), version = 0, minor = 0;
    size_t (*by_value)(void);
    if (symbol == NULL) return 0;
    if (library->asks == WEIR__ASKS_BY_VALUE) {
        memcpy(&by_value, &symbol, sizeof by_value);
        return by_value();
    }
    if (library->asks == WEIR__ASKS_BY_PARTS) {
        memcpy(&by_parts, &symbol, sizeof by_parts);
        bool good = by_parts(&version, &minor) == 0 && version > 0 && minor >= 0;
        return good ? (uint64_t)version * 10000 + (uint64_t)minor * 100 : 0;
    }
    memcpy(&by_pointer, &symbol, sizeof by_pointer);
    return by_pointer(&version) == 0 && version > 0 ? (uint64_t)version : 0;
}

/* The environment's choice, or NULL. */
static const char *chosen_file(const struct weir__gpu_library *library) {
    const char *name = library->environment != NULL ? getenv(library->environment) : NULL;
    return name != NULL && name[0] != '\0' ? name : NULL;
}

/* CUDA's number at a file's end, "libcublasLt.so.13"; 0: there is none. */
static int number_of(const char *file) {
    const char *end = strrchr(file, '.');
    return end == NULL ? 0 : atoi(end + 1);
}

void weir__gpu_library_order(const struct weir__gpu_library *library, int driver,
                             const char *files[WEIR__GPU_LIBRARY_FILES_MAX]) {
    assert(driver >= 0 && library->files[WEIR__GPU_LIBRARY_FILES_MAX - 1] == NULL);
    size_t count = 0;
    for (int newer = 0; newer < 2; newer++) {
        for (size_t i = 0; library->files[i] != NULL; i++) {
            bool is_newer = driver > 0 && number_of(library->files[i]) > driver / 1000;
            if (is_newer == (newer == 1)) files[count++] = library->files[i];
        }
    }
    files[count] = NULL;
}

/* The environment's choice alone, or the order beside this machine's driver. */
static void list_files(const struct weir__gpu_library *library,
                       const char *files[WEIR__GPU_LIBRARY_FILES_MAX]) {
    weir__gpu_library_order(library, weir__cuda_driver_version(), files);
    const char *chosen = chosen_file(library);
    if (chosen == NULL) return;
    files[0] = chosen;
    files[1] = NULL;
}

static void look_into(const struct weir__gpu_library *library, void *opened,
                      struct weir__gpu_library_facts *facts) {
    assert(opened != NULL && facts->file != NULL);
    uint64_t version = ask_version(library, opened);
    facts->state = version == 0               ? WEIR__LIBRARY_BROKEN
                   : version < library->least ? WEIR__LIBRARY_OLD
                                              : WEIR__LIBRARY_FOUND;
    if (version > 0)
        snprintf(facts->version, sizeof facts->version, "%u.%u.%u",
                 (unsigned)(version / 10000 % 10000), (unsigned)(version / 100 % 100),
                 (unsigned)(version % 100));
}

void weir__gpu_library_find(const struct weir__gpu_library *library,
                            struct weir__gpu_library_facts *facts) {
    assert(library != NULL && facts != NULL);
    const char *files[WEIR__GPU_LIBRARY_FILES_MAX];
    *facts = (struct weir__gpu_library_facts){.state = WEIR__LIBRARY_MISSING};
    list_files(library, files);
    for (size_t i = 0; files[i] != NULL; i++) {
        struct weir__gpu_library_facts own = {.file = files[i]};
        void *opened = dlopen(files[i], RTLD_LAZY | RTLD_LOCAL);
        if (opened == NULL) continue;
        look_into(library, opened, &own);
        (void)dlclose(opened);
        if (facts->file == NULL || own.state == WEIR__LIBRARY_FOUND) *facts = own;
        if (own.state == WEIR__LIBRARY_FOUND) return;
    }
}

static int refuse_missing(const struct weir__gpu_library *library, struct weir_error *error) {
    const char *chosen = chosen_file(library), *reason = dlerror();
    if (chosen != NULL)
        return weir__fail(error, WEIR_ERR_NOT_FOUND,
                          "%s names a library that does not open (%.120s): correct or unset it",
                          library->environment, reason != NULL ? reason : chosen);
    return weir__fail(error, WEIR_ERR_NOT_FOUND,
                      "%s (%s) is not found, which %s with: install %s, and name its "
                      "folder in LD_LIBRARY_PATH%s%s%s",
                      library->name, library->files[0],
                      library->purpose != NULL ? library->purpose : "the GPU computes",
                      library->package, library->environment != NULL ? " or its file in " : "",
                      library->environment != NULL ? library->environment : "",
                      library->purpose != NULL ? "" : ", or use cpu");
}

static int refuse_version(const struct weir__gpu_library *library,
                          const struct weir__gpu_library_facts *facts, struct weir_error *error) {
    assert(facts->state == WEIR__LIBRARY_BROKEN || facts->state == WEIR__LIBRARY_OLD);
    if (facts->state == WEIR__LIBRARY_BROKEN)
        return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                          "%.120s does not say its version, and so is no %s: install %s",
                          facts->file, library->name, library->package);
    return weir__fail(error, WEIR_ERR_UNSUPPORTED, "%s %s is too old, Weir needs %u.%u: install %s",
                      library->name, facts->version, (unsigned)(library->least / 10000),
                      (unsigned)(library->least / 100 % 100), library->package);
}

/* It has threads and memory of its own, and is not unloaded under them: RTLD_NODELETE. NULL and
 * WEIR_OK: there is no such file. */
static int try_file(const struct weir__gpu_library *library,
                    const struct weir__gpu_library_trial *trial, const char *file, void **opened,
                    struct weir_error *error) {
    struct weir__gpu_library_facts facts = {.file = file};
    *opened = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (*opened == NULL) return WEIR_OK;
    look_into(library, *opened, &facts);
    int status =
        facts.state == WEIR__LIBRARY_FOUND ? WEIR_OK : refuse_version(library, &facts, error);
    if (status == WEIR_OK && trial != NULL)
        status = trial->serves(trial->context, *opened, &facts, error);
    if (status == WEIR_OK) return WEIR_OK;
    (void)dlclose(*opened);
    *opened = NULL;
    return status;
}

int weir__gpu_library_open(const struct weir__gpu_library *library,
                           const struct weir__gpu_library_trial *trial, void **opened,
                           struct weir_error *error) {
    assert(library != NULL && opened != NULL);
    const char *files[WEIR__GPU_LIBRARY_FILES_MAX];
    int first = WEIR_OK;
    list_files(library, files);
    for (size_t i = 0; files[i] != NULL; i++) {
        int status = try_file(library, trial, files[i], opened, first == WEIR_OK ? error : NULL);
        if (status == WEIR_OK && *opened != NULL) {
            if (first != WEIR_OK && error != NULL) *error = (struct weir_error){0};
            return WEIR_OK;
        }
        if (status == WEIR_ERR_OUT_OF_MEMORY) return status;
        if (first == WEIR_OK) first = status;
    }
    return first == WEIR_OK ? refuse_missing(library, error) : first;
}
