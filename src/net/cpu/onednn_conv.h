/* SPDX-License-Identifier: MIT */
/** How a convolution is computed: what onednn_plan.c decides and onednn_conv.c does. */
#ifndef WEIR_ONEDNN_CONV_H
#define WEIR_ONEDNN_CONV_H

#include "net/cpu/onednn.h"

#if defined(WEIR_ONEDNN)

enum weir__conv_way { WEIR__CONV_LOOPS, WEIR__CONV_PRODUCT, WEIR__CONV_LIBRARY };

/** How a shape is computed. Made alike by whoever needs to know. */
struct weir__conv_plan {
    enum weir__conv_way way;
    struct weir__op_shape shape; /**< of the product, or of what the library convolves */
    bool turned;                 /**< the latter is not the op, but see `turn` */
    bool takes_packed;
    int64_t part_rows; /**< of a part, which one execution of the primitive computes */
    dnnl_engine_t engine;
    /** For the most rows and one thread: its weights' format is that of packed ones. NULL for the
     * gradient of weights. */
    dnnl_primitive_desc_t chief;
    dnnl_primitive_desc_t convolution;
};

/** On any thread. What it makes is the caller's: plan_clean_up, also after a failure. */
int weir__conv_plan_init(const struct weir__op_shape *shape, struct weir__conv_plan *plan);
void weir__conv_plan_clean_up(struct weir__conv_plan *plan);

enum weir__onednn_pass weir__conv_pass(const struct weir__op_shape *shape);
/** What the library calls the operands, by pass. */
extern const int weir__conv_arguments[][WEIR__ROLE_COUNT];
bool weir__conv_has_bias(const struct weir__op_shape *shape);
/** The weights in PyTorch's order, or in any. */
dnnl_status_t weir__conv_describe_weight(const struct weir__op_shape *shape, bool any,
                                         dnnl_memory_desc_t *to);
/** How many parts of a gradient of weights may have sums of their own; no fewer for more rows. */
int64_t weir__conv_sums_most(const struct weir__op_shape *shape);

#endif

#endif
