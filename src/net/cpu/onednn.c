/* SPDX-License-Identifier: MIT */
/* oneDNN's matrix products. */
#include "net/cpu/cpu.h"

#include <oneapi/dnnl/dnnl_version.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *weir__onednn_version(void) {
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(
        DNNL_VERSION_PATCH);
}

const struct weir__kernel weir__onednn_f32[WEIR__OP_COUNT] = {{.run = NULL}};
