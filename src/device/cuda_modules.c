/* SPDX-License-Identifier: MIT */
/* The kernels' images as modules of the device's context. A kernel is looked for in every module:
 * which file it stands in is not written down anywhere else. The fake driver has the kernels
 * built in and takes any image, and so runs in a build without nvcc. */
#include "device/cuda.h"

static const char *const kernel_names[] = {
#define KERNEL_NAME(name) "weir_" #name,
    WEIR__CUDA_KERNEL_MAP(KERNEL_NAME)
#undef KERNEL_NAME
};

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

static int load(struct weir__cuda_device *device, const struct weir__cuda_image *image,
                struct weir_error *error) {
    struct CUmod_st *module = NULL;
    int result = device->driver.module_load(&module, image->data);
    if (result == WEIR__CUDA_SUCCESS) {
        assert(device->module_count < device->module_capacity);
        device->modules[device->module_count++] = module;
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

static int find_kernel(struct weir__cuda_device *device, uint32_t kernel,
                       struct weir_error *error) {
    int result = WEIR__CUDA_NOT_FOUND;
    for (uint32_t m = 0; m < device->module_count && result == WEIR__CUDA_NOT_FOUND; m++)
        result = device->driver.module_get_function(&device->functions[kernel], device->modules[m],
                                                    kernel_names[kernel]);
    if (result == WEIR__CUDA_NOT_FOUND)
        return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                          "this build's CUDA images lack the kernel %s: build again, from scratch",
                          kernel_names[kernel]);
    return weir__cuda_check(device, "cuModuleGetFunction", result);
}

int weir__cuda_modules_new(struct weir__cuda_device *device, struct weir_error *error) {
    static const struct weir__cuda_image built_in = {"of the fake driver", "", 0};
    const struct weir__cuda_image *images =
        weir__cuda_image_count > 0 ? weir__cuda_images : &built_in;
    uint32_t count = weir__cuda_image_count > 0 ? (uint32_t)weir__cuda_image_count : 1;
    device->modules = weir__acquire(device->device.allocator, count, sizeof *device->modules);
    if (device->modules == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    device->module_capacity = count;
    int status = WEIR_OK;
    for (uint32_t i = 0; status == WEIR_OK && i < count; i++)
        status = load(device, &images[i], error);
    for (uint32_t k = 0; status == WEIR_OK && k < WEIR__CUDA_KERNEL_COUNT; k++)
        status = find_kernel(device, k, error);
    return status;
}

void weir__cuda_modules_destroy(struct weir__cuda_device *device) {
    while (device->module_count > 0)
        (void)device->driver.module_unload(device->modules[--device->module_count]);
    weir__release(device->device.allocator, device->modules, device->module_capacity,
                  sizeof *device->modules);
    device->modules = NULL;
    device->module_capacity = 0;
}
