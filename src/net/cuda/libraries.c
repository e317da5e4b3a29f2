/* SPDX-License-Identifier: MIT */
/* The table behind a real GPU. */
#include "net/cuda/numerics.h"

static int refuse(struct weir__cuda_device *device, void **library,
                  struct weir__cuda_failure *failure, struct weir_error *error) {
    (void)library;
    (void)failure;
    return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                      "this build of Weir has no products and convolutions for %s: use cpu",
                      device->device.name);
}

const struct weir__cuda_numerics weir__cuda_libraries = {.products_open = refuse,
                                                         .convolutions_open = refuse};
