/* SPDX-License-Identifier: MIT */
/**
 * Which images a driver takes, and whether a GPU has code in them. CUDA's rules of compatibility
 * (its Compatibility Guide): a driver runs the binaries of any toolkit of its own major version or
 * of one before, but compiles PTX only of toolkits that are not newer than itself, minor version
 * too; a binary runs on GPUs of the same major capability and of no smaller minor one; PTX becomes
 * code for any GPU that is not older.
 */
#ifndef WEIR_DEVICE_CUDA_FIT_H
#define WEIR_DEVICE_CUDA_FIT_H

#include "device/cuda_kernels.h"

/** Whether image `index` of a table is the one of its name to load by a driver for CUDA `driver`
 * (1000 * major + 10 * minor): the newest that the driver takes; where it takes none, the oldest,
 * whose refusal then is the driver's word; of one toolkit's, the first. Exactly one of each name
 * is. Any thread. */
bool weir__cuda_image_serves(const struct weir__cuda_image *images, size_t count, size_t index,
                             int driver);

enum weir__cuda_fit_kind {
    WEIR__CUDA_FITS_BINARY, /**< runs `architecture` as it is */
    WEIR__CUDA_FITS_PTX,    /**< the driver compiles it when it is first loaded */
    WEIR__CUDA_OLD_DRIVER,  /**< one for CUDA `needs` would do */
    WEIR__CUDA_OLD_GPU,     /**< no driver helps: the images are for newer GPUs */
};

struct weir__cuda_fit {
    enum weir__cuda_fit_kind kind;
    int toolkit;      /**< that made the image, as weir__cuda_image's */
    int architecture; /**< 10 * major + minor, of the binary or PTX that runs, or would */
    int needs;        /**< OLD_DRIVER: as `driver` */
};

/** How an image's code comes to a GPU of capability `capability` (10 * major + minor) by a driver
 * for CUDA `driver`. Any thread. */
struct weir__cuda_fit weir__cuda_fit(const struct weir__cuda_image *image, int capability,
                                     int driver);

#endif
