/* SPDX-License-Identifier: MIT */
#include "toys/toys.h"

#include "device/cuda_fit.h"

static int load_all(struct toys *toys) {
    static const struct weir__cuda_image built_in = {.name = "of the fake driver", .data = ""};
    struct weir__cuda_device *device = toys->device;
    bool any = test_cuda_image_count > 0;
    if (!any && !device->driver.fake) return WEIR_ERR_UNSUPPORTED;
    const struct weir__cuda_image *images = any ? test_cuda_images : &built_in;
    size_t count = any ? test_cuda_image_count : 1;
    for (size_t i = 0; i < count; i++) {
        if (any && !weir__cuda_image_serves(images, count, i, device->driver.version)) continue;
        assert(toys->count < TOYS_IMAGES_MAX);
        int result = device->driver.module_load(&toys->modules[toys->count], images[i].data);
        if (result != 0) return weir__cuda_check(device, "cuModuleLoadData", result);
        toys->count++;
    }
    return WEIR_OK;
}

int toys_load(struct toys *toys, struct weir__device *device) {
    *toys = (struct toys){.device = weir__cuda_device(device)};
    struct weir__cuda_scope scope;
    int status = weir__cuda_scope_begin(toys->device, &scope);
    if (status == WEIR_OK) status = load_all(toys);
    weir__cuda_scope_end(toys->device, &scope);
    return status;
}

void toys_unload(struct toys *toys) {
    struct weir__cuda_scope scope;
    if (toys->count == 0) return;
    (void)weir__cuda_scope_begin(toys->device, &scope);
    while (toys->count > 0) (void)toys->device->driver.module_unload(toys->modules[--toys->count]);
    weir__cuda_scope_end(toys->device, &scope);
}

int toys_find(const struct toys *toys, const char *symbol, struct CUfunc_st **function) {
    struct weir__cuda_device *device = toys->device;
    struct weir__cuda_scope scope;
    int result = WEIR__CUDA_NOT_FOUND, status = weir__cuda_scope_begin(device, &scope);
    for (size_t i = 0; status == WEIR_OK && i < toys->count; i++) {
        result = device->driver.module_get_function(function, toys->modules[i], symbol);
        if (result != WEIR__CUDA_NOT_FOUND) break;
    }
    if (status == WEIR_OK) status = weir__cuda_check(device, "cuModuleGetFunction", result);
    weir__cuda_scope_end(device, &scope);
    return status;
}

int toys_launch(struct weir_stream *stream, struct CUfunc_st *function,
                const struct weir__cuda_grid *grid, void **arguments) {
    struct weir__cuda_device *device = weir__cuda_device(stream->device);
    const uint32_t *blocks = grid->blocks, *threads = grid->threads;
    int result = device->driver.launch(function, blocks[0], blocks[1], blocks[2], threads[0],
                                       threads[1], threads[2], grid->shared_bytes,
                                       weir__cuda_stream(stream)->native, arguments, NULL);
    return weir__cuda_check(device, "cuLaunchKernel", result);
}
