/* SPDX-License-Identifier: MIT */
/*
 * Models as JSON. What is read is inferred, and if that succeeds planned over one and two stages,
 * which computes every size that a run would need and takes none of it.
 */
#include "fuzz/fuzz.h"

#include "net/compile/model_file.h"

#include <stdlib.h>

#define LAYERS_MAX 24
#define FREE_BYTES ((size_t)4 << 20) /* planning is not what is bounded here */

static void plan(const struct weir_model *model, const struct weir_allocator *allocator,
                 uint32_t stages) {
    struct weir_net_options options = WEIR_NET_OPTIONS_INIT;
    struct weir_faults faults = {.allocator = allocator};
    struct weir_plan *planned = NULL;
    options.pipe.allocator = allocator;
    options.pipe.rows = 3, options.pipe.chunks = 2;
    options.pipe.bind = "none", options.pipe.threads_per_worker = 1;
    options.stages = stages;
    options.reference = true;
    int status = weir_net_plan(model, &options, &faults, &planned);
    FUZZ_CHECK((status == WEIR_OK) == (planned != NULL));
    FUZZ_CHECK(status == WEIR_OK || faults.count > 0);
    weir_plan_destroy(planned);
    weir_faults_clean_up(&faults);
}

static void use(const struct weir_model *model, const struct weir_allocator *allocator) {
    struct weir_faults faults = {.allocator = allocator};
    uint32_t layers = weir_model_layer_count(model);
    struct weir_layer_facts *facts = calloc(layers + 1, sizeof *facts);
    FUZZ_CHECK(facts);
    int status = weir_model_infer(model, WEIR_F32, facts, &faults);
    FUZZ_CHECK((status == WEIR_OK) == (faults.count == 0));
    for (uint32_t stages = 1; status == WEIR_OK && layers <= LAYERS_MAX && stages <= 2; stages++) {
        if (stages <= layers) plan(model, allocator, stages);
    }
    free(facts);
    weir_faults_clean_up(&faults);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t count) {
    struct weir__io *io = fuzz_begin(data, count);
    struct weir_faults faults = {.allocator = io->allocator};
    struct weir_model *model = NULL;
    int status = weir__model_file_read(io, "file", &faults, &model);
    FUZZ_CHECK((status == WEIR_OK) == (model != NULL));
    FUZZ_CHECK((status == WEIR_OK) == (faults.count == 0));
    if (status == WEIR_OK) use(model, io->allocator);
    weir_model_destroy(model);
    weir_faults_clean_up(&faults);
    fuzz_end(FREE_BYTES);
    return 0;
}
