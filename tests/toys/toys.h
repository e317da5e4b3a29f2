/* SPDX-License-Identifier: MIT */
/**
 * The kernels of this folder on a driver: a GPU's, or the fake one, which has them built in. For
 * the tests and the benches.
 */
#ifndef WEIR_TESTS_KERNELS_TOYS_H
#define WEIR_TESTS_KERNELS_TOYS_H

#include "device/cuda.h"

/** Their images; none in a build without nvcc. */
extern const struct weir__cuda_image test_cuda_images[];
extern const size_t test_cuda_image_count;

enum { TOYS_IMAGES_MAX = 16 };

struct toys {
    struct weir__cuda_device *device;
    struct CUmod_st *modules[TOYS_IMAGES_MAX];
    size_t count;
};

/** Loads all images into the device's context, for any thread to use. WEIR_ERR_UNSUPPORTED where
 * this build has none for a real driver; else the status of the call that failed, which the device
 * can explain. What was loaded stays until toys_unload, which is called in any case. */
int toys_load(struct toys *toys, struct weir__device *device);
void toys_unload(struct toys *toys);
/** By its symbol, "weir_affine"; a status, WEIR_ERR_BACKEND where there is no such kernel. */
int toys_find(const struct toys *toys, const char *symbol, struct CUfunc_st **function);
/** Enqueues it on a stream of the device; `arguments` as weir__cuda_launch. */
int toys_launch(struct weir_stream *stream, struct CUfunc_st *function,
                const struct weir__cuda_grid *grid, void **arguments);

#endif
