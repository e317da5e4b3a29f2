/* SPDX-License-Identifier: MIT */
/**
 * A network: the stages' graphs, and what stands in layer order over all of them. The compiler
 * (compile.h) makes it.
 */
#ifndef WEIR_NET_NETWORK_H
#define WEIR_NET_NETWORK_H

#include "net/model/layer.h"
#include "skip/skip.h"

/** A stage, compiled. */
struct weir__stage_graph {
    struct weir__graph graph;
    uint32_t layer_first, layer_count;
    uint32_t parameter_first, parameter_count;
    size_t parameter_bytes;
    size_t trainable_bytes; /**< what learns stands first: gradients and optimizer state are laid
                                 out alike */
    size_t mapped_bytes;    /**< of files, where parameters lie instead */
    size_t gradient_bytes;  /**< trainable_bytes, moments, and accumulators of further uses */
    bool no_backward;       /**< nothing learns here or before, and nobody wants a gradient */
};

struct weir__network {
    struct weir__pool pool;
    const struct weir_model *model;
    enum weir_dtype dtype;
    uint32_t sequences; /**< 0: rows are whole */
    int64_t places;     /**< of a sequence */
    bool skips_wrong; /**< faults were found: layers are only built up to the first that uses one */
    uint32_t stage_count;
    struct weir__stage_graph *stages;
    uint32_t parameter_count, parameter_capacity;
    struct weir__parameter_decl *parameters;
    uint32_t named_count; /**< without copies */
    uint32_t *named;      /**< their numbers, in layer order */
    struct weir__name_set parameter_names;
    uint32_t skip_count;
    struct weir__skip *skips; /**< in the order of their stashes */
    uint32_t skip_decl_count;
    struct weir__skip_decl *skip_decls; /**< in layer order */
    uint32_t *skip_of;                  /**< [declaration]: the skip */
    uint32_t dropout_count, dropout_capacity;
    struct weir__dropout_site *dropouts;
    struct weir_tensor input, target; /**< at the network's dtype, F32 where that is BF16 */
};

/** "5 'h.3' (gpt_block)" or "loss". */
const char *weir__network_layer_label(const struct weir__network *network, uint32_t layer);

#endif
