/* SPDX-License-Identifier: MIT */
/* A device's numerics: which table it has, and its libraries, opened when first needed. */
#include "net/cuda/numerics.h"

#include "device/gpus.h"
#include "net/cuda/cublaslt.h"
#include "net/cuda/cudnn.h"

#include <dlfcn.h>
#include <string.h>

enum { LIBRARIES = 2 };
static const char *const names[LIBRARIES] = {
    [WEIR__CUDA_PRODUCTS] = "cuBLASLt", [WEIR__CUDA_CONVOLUTIONS] = "cuDNN"};

struct numerics {
    struct weir__cuda_attached attached; /**< first */
    const struct weir__cuda_numerics *calls;
    void *opened[LIBRARIES]; /**< by enum weir__cuda_library; NULL: not yet */
};

static void close_all(struct weir__cuda_attached *attached, struct weir__cuda_device *device) {
    struct numerics *numerics = (struct numerics *)attached;
    void *products = numerics->opened[WEIR__CUDA_PRODUCTS];
    void *convolutions = numerics->opened[WEIR__CUDA_CONVOLUTIONS];
    if (products != NULL) numerics->calls->products_close(products);
    if (convolutions != NULL) numerics->calls->convolutions_close(convolutions);
    weir__release(device->device.allocator, numerics, 1, sizeof *numerics);
    device->numerics = NULL;
}

/* The fake driver brings its own. */
static const struct weir__cuda_numerics *table_of(const struct weir__cuda_device *device) {
    if (!device->driver.fake) return &weir__cuda_libraries;
    return dlsym(device->driver.library, "weir_fake_cuda_numerics");
}

/* The device's lock is held. */
static int attach(struct weir__cuda_device *device, struct numerics **to) {
    struct numerics *numerics = (struct numerics *)device->numerics;
    *to = numerics;
    if (numerics != NULL) return WEIR_OK;
    const struct weir__cuda_numerics *calls = table_of(device);
    if (calls == NULL) return WEIR_ERR_UNSUPPORTED;
    numerics = weir__acquire(device->device.allocator, 1, sizeof *numerics);
    if (numerics == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    numerics->attached.close = close_all;
    numerics->calls = calls;
    device->numerics = &numerics->attached;
    *to = numerics;
    return WEIR_OK;
}

int weir__cuda_settle(struct weir__cuda_device *device, int status,
                      const struct weir__cuda_failure *failure) {
    assert(failure != NULL);
    if (status == WEIR_OK || failure->call == NULL) return status;
    if (failure->name == NULL) return weir__cuda_check(device, failure->call, failure->result);
    weir__cuda_note(device, failure);
    return status;
}

static int open_library(struct weir__cuda_device *device, enum weir__cuda_library library,
                        struct weir_error *error) {
    assert((unsigned)library < LIBRARIES);
    struct numerics *numerics;
    struct weir__cuda_failure failure = {0};
    int status = attach(device, &numerics);
    if (status != WEIR_OK || numerics->opened[library] != NULL) return status;
    void **to = &numerics->opened[library];
    status = library == WEIR__CUDA_PRODUCTS
                 ? numerics->calls->products_open(device, to, &failure, error)
                 : numerics->calls->convolutions_open(device, to, &failure, error);
    return weir__cuda_settle(device, status, &failure);
}

int weir__cuda_library_need(struct weir__device *device, enum weir__cuda_library library,
                            struct weir_error *error) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    struct weir__cuda_scope scope;
    int status = weir__cuda_scope_begin(own, &scope);
    if (status != WEIR_OK) goto out;
    pthread_mutex_lock(&own->lock);
    status = open_library(own, library, error);
    pthread_mutex_unlock(&own->lock);
out:
    weir__cuda_scope_end(own, &scope);
    return status;
}

static void read_use(struct weir__cuda_device *device, enum weir__cuda_library library,
                     struct weir__cuda_library_use *use) {
    pthread_mutex_lock(&device->lock);
    const struct numerics *numerics = (const struct numerics *)device->numerics;
    assert(numerics != NULL && numerics->opened[library] != NULL);
    *use = (struct weir__cuda_library_use){numerics->calls, numerics->opened[library]};
    pthread_mutex_unlock(&device->lock);
}

int weir__cuda_library_try(struct weir__device *device, enum weir__cuda_library library,
                           struct weir__cuda_library_use *use) {
    *use = (struct weir__cuda_library_use){NULL, NULL};
    int status = weir__cuda_library_need(device, library, NULL);
    if (status == WEIR_ERR_NOT_FOUND || status == WEIR_ERR_UNSUPPORTED) return WEIR_OK;
    if (status != WEIR_OK) return status;
    read_use(weir__cuda_device(device), library, use);
    return WEIR_OK;
}

int weir__cuda_library_use(struct weir__device *device, enum weir__cuda_library library,
                           struct weir__cuda_library_use *use) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    struct weir_error error = {0};
    int status = weir__cuda_library_need(device, library, &error);
    if (status != WEIR_OK && error.message[0] != '\0') {
        const struct weir__cuda_failure failure = {names[library], status,
                                                   weir_status_text(status)};
        weir__cuda_note(own, &failure);
    }
    if (status == WEIR_OK) read_use(own, library, use);
    return status;
}

static int check_products(void *context, void *opened, const struct weir__gpu_library_facts *facts,
                          struct weir_error *error) {
    struct weir__cublaslt lt = {.library = opened};
    (void)context, (void)facts;
    return weir__cublaslt_find_functions(&lt, error);
}

static int check_convolutions(void *context, void *opened,
                              const struct weir__gpu_library_facts *facts,
                              struct weir_error *error) {
    const struct weir__cuda_driver *driver = context;
    struct weir__cudnn *cudnn = weir__acquire(NULL, 1, sizeof *cudnn);
    (void)facts;
    if (cudnn == NULL) return weir__fail(error, WEIR_ERR_OUT_OF_MEMORY, "out of memory");
    cudnn->library = opened;
    int status = weir__cudnn_check(cudnn, driver->version, error);
    weir__release(NULL, cudnn, 1, sizeof *cudnn);
    return status;
}

/* As it will be opened, as far as that takes no device. */
static int check_library(struct weir__cuda_driver *driver, const char *library,
                         struct weir_error *error) {
    bool products = strcmp(library, names[WEIR__CUDA_PRODUCTS]) == 0;
    const struct weir__gpu_library_trial trial = {products ? check_products : check_convolutions,
                                                  driver};
    void *opened = NULL;
    int status = weir__gpu_library_open(weir__gpu_library_named(library), &trial, &opened, error);
    if (status == WEIR_OK) (void)dlclose(opened);
    return status;
}

int weir__cuda_library_check(const char *library, struct weir_error *error) {
    struct weir__cuda_driver driver;
    bool known = false;
    for (int i = 0; i < LIBRARIES; i++) known |= strcmp(library, names[i]) == 0;
    if (!known) return WEIR_OK;
    int status = weir__cuda_driver_open(&driver, error);
    if (status == WEIR_OK && !driver.fake) status = check_library(&driver, library, error);
    weir__cuda_driver_close(&driver);
    return status;
}
