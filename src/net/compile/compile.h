/* SPDX-License-Identifier: MIT */
/**
 * From a list of layers to stages' graphs: skips are verified over the whole list, then each
 * stage's layers build its graph, which is fused and differentiated. What is found out on the way
 * (parameters, skips, dropouts) stands in layer order and does not depend on the partition.
 */
#ifndef WEIR_COMPILE_H
#define WEIR_COMPILE_H

#include "net/backend.h"
#include "net/model/network.h"

/** Where parameters lie that stay in their file. */
struct weir__mapping {
    bool all; /**< also what is not frozen: nothing learns */
    /** Where all of the parameter is, at *stored: F32 or BF16, aligned; NULL: nowhere. */
    const void *(*find)(void *context, const struct weir__parameter_decl *parameter,
                        enum weir_dtype *stored);
    void *context;
};

struct weir__compile_options {
    enum weir_dtype dtype;
    const uint32_t *balance; /**< layers per stage, each at least 1 (0 for an empty model's one) */
    uint32_t stage_count;
    bool infer_only;     /**< no backward nodes */
    bool input_grads;    /**< the model's input is differentiable, if floating-point */
    uint32_t sequences;  /**< > 0: rows are tokens of so many sequences with caches */
    bool layered;        /**< as in struct weir__graph */
    int64_t rows_max;    /**< of a micro-batch; 0: not known, nothing will run */
    int64_t logits_most; /**< as in struct weir__graph */
    const struct weir__backend *const *backends; /**< [stage_count]; NULL: all on CPUs */
    const struct weir__mapping *mapping;         /**< NULL: all parameters have memory */
    bool facts_only; /**< nothing will run: that nothing learns is no fault */
};

/** Compiles. On failure every fault that could be found is in `faults` and nothing is left. Not
 * found are the faults of layers behind one whose output has no known shape: one that cannot take
 * its input's rank, dtype or size, or that uses skips where skips do not match. */
int weir__network_init(struct weir__network *network, const struct weir_allocator *allocator,
                       const struct weir_model *model, const struct weir__compile_options *options,
                       struct weir_faults *faults);
void weir__network_clean_up(struct weir__network *network);

/** Settles which of a stage's parameters stay in their file: matrices of products and tables of
 * embeddings that are used as nothing else, on back ends that read them there. Before parameters
 * are given their places, and after the stage was differentiated. */
void weir__map_parameters(struct weir__network *network, struct weir__stage_graph *stage,
                          const struct weir__backend *backend, const struct weir__mapping *mapping);

/** Only verifies that the model's skips match: every fault is a line. */
int weir__model_check_skips(const struct weir_model *model, struct weir_faults *faults);
/** Collects the model's skips and verifies that they match. */
int weir__network_skips(struct weir__network *network, struct weir_faults *faults);

/** The layers of each stage, `balance` checked or, where it is NULL, found from estimated costs.
 * Fills sizes[stages]. */
int weir__partition_model(const struct weir_model *model, enum weir_dtype dtype, uint32_t stages,
                          const uint32_t *balance, uint32_t *sizes, struct weir_faults *faults);

#endif
