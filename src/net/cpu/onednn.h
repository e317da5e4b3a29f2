/* SPDX-License-Identifier: MIT */
/**
 * What the files share that call oneDNN, its 2.x or its 3.x: where these differ, onednn_version.c
 * hides it. Only the onednn_*.c include this header, and the library's own through it.
 *
 * Results are the library's status, dnnl_success where nothing went wrong; dnnl_unimplemented where
 * it has no kernel for what is described. What a function makes is the caller's to destroy, by the
 * library's call for it.
 */
#ifndef WEIR_ONEDNN_H
#define WEIR_ONEDNN_H

#if defined(WEIR_ONEDNN)

#include "net/cpu/vector_calls.h"

#include <oneapi/dnnl/dnnl.h>
#include <oneapi/dnnl/dnnl_version.h>

/* ---- rows; compiled for each level, as onednn_weights.c ---- */

/* onednn_conv.c: conv2d and its gradients */
int VECTOR(onednn_measure)(const struct weir__op_shape *shape, size_t *workspace);
int VECTOR(onednn_prepare)(const struct weir__op_shape *shape, struct weir_stream *stream,
                              void **state);
void VECTOR(onednn_release)(void *state);
int VECTOR(onednn_run)(const struct weir__op_call *call);
int VECTOR(onednn_measure_pack)(const struct weir__op_shape *shape, size_t *bytes);
int VECTOR(onednn_pack)(const struct weir__op_call *call, void *packed);

/* ---- memory ---- */

/** How the library's calls take a description of memory that they only read. */
#if DNNL_VERSION_MAJOR < 3
typedef const dnnl_memory_desc_t *weir__onednn_view;
#else
typedef const_dnnl_memory_desc_t weir__onednn_view;
#endif

weir__onednn_view weir__onednn_view_of(const dnnl_memory_desc_t *description);
/** f32 memory of at most DNNL_MAX_NDIMS dimensions; strides in numbers, NULL: whatever suits the
 * primitive best. Pairs with `forget`. */
dnnl_status_t weir__onednn_describe(dnnl_memory_desc_t *to, int dimensions, const dnnl_dims_t sizes,
                                    const dnnl_dims_t strides);
/** A description of its own of what the primitive takes as DNNL_ARG_...; pairs with `forget`. */
dnnl_status_t weir__onednn_describe_argument(dnnl_memory_desc_t *to,
                                             const_dnnl_primitive_desc_t primitive, int argument);
void weir__onednn_forget(dnnl_memory_desc_t *description);

/** Where numbers lie: number (i, j, …) at the sum over dimensions of (i / the product of its
 * blocks) * stride, and within the innermost block as a row-major array of `blocks`, outermost
 * first. */
struct weir__onednn_layout {
    int dimensions, block_count;
    int64_t strides[DNNL_MAX_NDIMS];
    int64_t blocks[DNNL_MAX_NDIMS];
    int block_dimensions[DNNL_MAX_NDIMS]; /**< which dimension each block belongs to */
};
void weir__onednn_layout_of(weir__onednn_view description, struct weir__onednn_layout *to);

/** A convolution's weights: (groups, out, in, kernel), out and in of one group, in PyTorch's order;
 * and how the library blocks them. With `turned`, for one group only, the library's are (in, out,
 * kernel) and every kernel is turned by half. */
struct weir__onednn_weights {
    struct weir__onednn_layout layout;
    int64_t groups, out, in;
    struct weir__plane kernel;
    bool turned;
};
/* onednn_weights.c */
/** plain = blocked, or += where not `overwrite`: sixteen output channels of a group, `part` of so
 * many. */
void VECTOR(onednn_deliver)(const struct weir__onednn_weights *weights, const float *blocked,
                          float *plain, bool overwrite, int64_t part);
int64_t VECTOR(onednn_deliveries)(const struct weir__onednn_weights *weights);
/** blocked = plain, for turned ones; what pads the blocks is not touched. */
void VECTOR(onednn_turn)(const struct weir__onednn_weights *weights, const float *plain,
                       float *blocked);

/* ---- primitives ---- */

/** Scratchpad from the caller, f32 arithmetic whatever the environment says. */
dnnl_status_t weir__onednn_attributes(dnnl_primitive_attr_t *to);

/** The operands of a convolution: a is x, b the weight, c is y. */
enum weir__role {
    WEIR__ROLE_A,
    WEIR__ROLE_B,
    WEIR__ROLE_BIAS,
    WEIR__ROLE_C,
    WEIR__ROLE_SCRATCHPAD,
    WEIR__ROLE_COUNT
};

enum weir__onednn_pass {
    WEIR__ONEDNN_FORWARD,
    WEIR__ONEDNN_BACKWARD_DATA,
    WEIR__ONEDNN_BACKWARD_WEIGHTS,
};
/** y from x and weight (+ bias), or the gradient of x or weight from the other two; the
 * descriptions of gradients are those of what they belong to. */
struct weir__onednn_convolution {
    enum weir__onednn_pass pass;
    dnnl_memory_desc_t of[WEIR__ROLE_COUNT];
    bool has_bias; /**< forward */
    dnnl_dims_t stride, padding;
};
/** The library's first implementation whose name begins with one of `names`, which NULL ends. */
dnnl_status_t weir__onednn_describe_convolution(const struct weir__onednn_convolution *convolution,
                                                dnnl_engine_t engine,
                                                const_dnnl_primitive_attr_t attr,
                                                const char *const *names,
                                                dnnl_primitive_desc_t *to);

bool weir__onednn_implemented_by(const_dnnl_primitive_desc_t primitive, const char *prefix);
/** Up to a multiple of 64; 0 for NULL. */
size_t weir__onednn_scratchpad_bytes(const_dnnl_primitive_desc_t primitive);
int weir__onednn_status_of(dnnl_status_t status);

#endif

#endif
