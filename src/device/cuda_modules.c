/* SPDX-License-Identifier: MIT */
/* Sets' images as modules of the device's context. A kernel is looked for in every module of its
 * set: which file it stands in is not written down anywhere else. The fake driver has the kernels
 * built in and takes any image, and so runs in a build without nvcc. */
#include "device/cuda.h"
#include "device/cuda_fit.h"

static const char *const kernel_names[] = {
#define KERNEL_NAME(name) "weir_" #name,
    WEIR__CUDA_KERNEL_MAP(KERNEL_NAME)
#undef KERNEL_NAME
};

const struct weir__cuda_set weir__cuda_engine_kernels = {
    kernel_names, WEIR__CUDA_KERNEL_COUNT, weir__cuda_images, &weir__cuda_image_count};

int weir__cuda_modules_check(const struct weir__cuda_driver *driver, struct weir_error *error) {
    if (weir__cuda_image_count > 0 || driver->fake) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                      "there is a GPU, but this build of Weir has no CUDA kernels, for nvcc was "
                      "not found: install the CUDA toolkit (nvcc) and build again, or use cpu");
}

static bool is_unfit(int result) {
    return result == WEIR__CUDA_NO_BINARY_FOR_GPU || result == WEIR__CUDA_INVALID_IMAGE ||
           result == WEIR__CUDA_UNSUPPORTED_PTX_VERSION || result == WEIR__CUDA_INVALID_PTX;
}

static int load(struct weir__cuda_device *device, struct weir__cuda_modules *into,
                const struct weir__cuda_image *image, struct weir_error *error) {
    struct CUmod_st *module = NULL;
    int result = device->driver.module_load(&module, image->data);
    if (result == WEIR__CUDA_SUCCESS) {
        assert(into->module_count < into->module_capacity);
        into->modules[into->module_count++] = module;
        return WEIR_OK;
    }
    int status = weir__cuda_check(device, "cuModuleLoadData", result);
    if (!is_unfit(result)) return status;
    char text[120];
    return weir__fail(
        error, WEIR_ERR_UNSUPPORTED,
        "this build's kernel %s does not fit %s (%s): update the NVIDIA driver, or "
        "build Weir with its GPU's architecture",
        image->name, device->device.name,
        weir__cuda_text(&device->driver, "cuModuleLoadData", result, text, sizeof text));
}

/* A driver that loads code when it is first launched loads it when it is asked about, too: now, so
 * that it has its memory before a plan is made for the rest. */
static int load_code(struct weir__cuda_device *device, struct CUfunc_st *function) {
    int bytes = 0;
    int result =
        device->driver.function_get_attribute(&bytes, WEIR__CUDA_FUNCTION_LOCAL_BYTES, function);
    return weir__cuda_check(device, "cuFuncGetAttribute", result);
}

static int find_kernel(struct weir__cuda_device *device, struct weir__cuda_modules *in,
                       uint32_t kernel, struct weir_error *error) {
    const char *name = in->set->names[kernel];
    int result = WEIR__CUDA_NOT_FOUND;
    for (uint32_t m = 0; m < in->module_count && result == WEIR__CUDA_NOT_FOUND; m++)
        result = device->driver.module_get_function(&in->functions[kernel], in->modules[m], name);
    int status = weir__cuda_check(device, "cuModuleGetFunction", result);
    if (status == WEIR_OK) return load_code(device, in->functions[kernel]);
    if (result != WEIR__CUDA_NOT_FOUND) return status;
    return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                      "this build's CUDA images lack the kernel %s: build again, from scratch",
                      name);
}

static void unload(struct weir__cuda_device *device, struct weir__cuda_modules *modules) {
    const struct weir_allocator *allocator = device->device.allocator;
    if (modules == NULL) return;
    while (modules->module_count > 0)
        (void)device->driver.module_unload(modules->modules[--modules->module_count]);
    weir__release(allocator, modules->modules, modules->module_capacity, sizeof *modules->modules);
    weir__release(allocator, modules->functions, modules->set->kernel_count,
                  sizeof *modules->functions);
    weir__release(allocator, modules, 1, sizeof *modules);
}

static int fill(struct weir__cuda_device *device, struct weir__cuda_modules *modules,
                struct weir_error *error) {
    static const struct weir__cuda_image built_in = {.name = "of the fake driver", .data = ""};
    const struct weir_allocator *allocator = device->device.allocator;
    const struct weir__cuda_set *set = modules->set;
    bool any = *set->image_count > 0;
    uint32_t count = any ? (uint32_t)*set->image_count : 1;
    modules->functions = weir__acquire(allocator, set->kernel_count, sizeof *modules->functions);
    modules->modules = weir__acquire(allocator, count, sizeof *modules->modules);
    if (modules->modules != NULL) modules->module_capacity = count;
    if (modules->modules == NULL || modules->functions == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < count; i++)
        if (!any || weir__cuda_image_serves(set->images, count, i, device->driver.version))
            status = load(device, modules, any ? &set->images[i] : &built_in, error);
    for (uint32_t k = 0; status == WEIR_OK && k < set->kernel_count; k++)
        status = find_kernel(device, modules, k, error);
    return status;
}

/* The device's lock is held, its context current. */
static int add(struct weir__cuda_device *device, const struct weir__cuda_set *set,
               struct weir_error *error) {
    uint32_t place = 0;
    while (place < WEIR__CUDA_SETS_MAX && device->sets[place] != NULL) place++;
    assert(place < WEIR__CUDA_SETS_MAX);
    struct weir__cuda_modules *modules =
        weir__acquire(device->device.allocator, 1, sizeof *modules);
    if (modules == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    modules->set = set;
    int status = fill(device, modules, error);
    if (status == WEIR_OK)
        atomic_store_explicit(&device->sets[place], modules, memory_order_release);
    else
        unload(device, modules);
    return status;
}

const struct weir__cuda_modules *weir__cuda_modules_of(const struct weir__cuda_device *device,
                                                       const struct weir__cuda_set *set) {
    for (uint32_t i = 0; i < WEIR__CUDA_SETS_MAX; i++) {
        const struct weir__cuda_modules *modules =
            atomic_load_explicit(&device->sets[i], memory_order_acquire);
        if (modules == NULL || modules->set == set) return modules;
    }
    return NULL;
}

int weir__cuda_set_need(struct weir__device *device, const struct weir__cuda_set *set,
                        struct weir_error *error) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    struct weir__cuda_scope scope;
    if (weir__cuda_modules_of(own, set) != NULL) return WEIR_OK;
    int status = weir__cuda_scope_begin(own, &scope);
    if (status == WEIR_OK) {
        pthread_mutex_lock(&own->lock);
        if (weir__cuda_modules_of(own, set) == NULL) status = add(own, set, error);
        pthread_mutex_unlock(&own->lock);
    }
    weir__cuda_scope_end(own, &scope);
    return status;
}

void weir__cuda_modules_destroy(struct weir__cuda_device *device) {
    for (uint32_t i = 0; i < WEIR__CUDA_SETS_MAX; i++) {
        unload(device, device->sets[i]);
        device->sets[i] = NULL;
    }
}
