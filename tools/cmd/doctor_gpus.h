/* SPDX-License-Identifier: MIT */
/** The doctor's part on GPUs: what there is, what is near what, and which libraries. */
#ifndef WEIR_TOOLS_DOCTOR_GPUS_H
#define WEIR_TOOLS_DOCTOR_GPUS_H

#include "device/cuda_fit.h"
#include "device/gpus.h"
#include "place/place.h"

#include <jansson.h>
#include <stdio.h>

enum { DOCTOR_LIBRARIES_MAX = 8 };

/** Zeroed, then doctor_gpus_look, then doctor_gpus_clean_up. */
struct doctor_gpus {
    struct weir__gpus found;
    struct weir__near *near;     /* per GPU */
    struct weir__cuda_fit *fits; /* per GPU; zeroed where this build has no kernels */
    struct weir_error error;     /* why there is none */
    struct weir__gpu_library_facts libraries[DOCTOR_LIBRARIES_MAX];
    bool opens[DOCTOR_LIBRARIES_MAX]; /* as networks would open it; false where there is no GPU */
};

/** Looks; what is there and does not work is added to `problems`. WEIR_ERR_OUT_OF_MEMORY. */
int doctor_gpus_look(struct doctor_gpus *gpus, const struct weir__machine *machine,
                     struct weir_faults *problems);
void doctor_gpus_clean_up(struct doctor_gpus *gpus);

/** Two lines per GPU (the second: by which code it runs), a third where cuDNN's plans are kept for
 * it, by which engines these compute, the links between them, and the libraries. */
void doctor_gpus_print(FILE *to, const struct doctor_gpus *gpus);
/** `gpus`: [{name, memory, capability, multiprocessors, pci, numa_node (-1: unknown), cores,
 * reaches: [numbers]}]. A new reference. */
json_t *doctor_gpus_json(const struct doctor_gpus *gpus);
/** Adds `cuda` (what the driver is for) and the libraries to `libraries`: versions, "" where one is
 * missing. */
void doctor_gpus_json_libraries(const struct doctor_gpus *gpus, json_t *libraries);

#endif
