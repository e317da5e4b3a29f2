/* SPDX-License-Identifier: MIT */
#include "device/cuda_fit.h"

#include <stdlib.h>
#include <string.h>

static bool takes(int driver, const struct weir__cuda_image *image) {
    return image->toolkit / 1000 <= driver / 1000;
}

/* Whether a driver for CUDA `driver` loads `other` rather than `image`. */
static bool is_better(const struct weir__cuda_image *other, const struct weir__cuda_image *image,
                      int driver) {
    bool newer = other->toolkit > image->toolkit;
    if (takes(driver, other) != takes(driver, image)) return takes(driver, other);
    return takes(driver, image) ? newer : other->toolkit < image->toolkit;
}

bool weir__cuda_image_serves(const struct weir__cuda_image *images, size_t count, size_t index,
                             int driver) {
    assert(index < count);
    const struct weir__cuda_image *image = &images[index];
    for (size_t i = 0; i < count; i++) {
        bool tie = i < index && images[i].toolkit == image->toolkit;
        if (strcmp(images[i].name, image->name) == 0 &&
            (tie || is_better(&images[i], image, driver)))
            return false;
    }
    return true;
}

struct weir__cuda_fit weir__cuda_fit(const struct weir__cuda_image *image, int capability,
                                     int driver) {
    assert(image->targets != NULL && capability >= 10);
    struct weir__cuda_fit fit = {.kind = WEIR__CUDA_OLD_GPU, .toolkit = image->toolkit};
    int binary = 0, ptx = 0;
    for (const char *at = image->targets; *at >= '0' && *at <= '9';) {
        char *end;
        int target = (int)strtol(at, &end, 10);
        if (target / 10 == capability / 10 && target <= capability) binary = target;
        if (*end == '+' && target <= capability) ptx = target;
        at = *end == ' ' ? end + 1 : end;
    }
    if (binary == 0 && ptx == 0) return fit;
    fit.architecture = binary != 0 ? binary : ptx;
    fit.needs = binary != 0 ? image->toolkit / 1000 * 1000 : image->toolkit;
    fit.kind = driver < fit.needs ? WEIR__CUDA_OLD_DRIVER
               : binary != 0      ? WEIR__CUDA_FITS_BINARY
                                  : WEIR__CUDA_FITS_PTX;
    return fit;
}
