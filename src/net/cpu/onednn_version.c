/* SPDX-License-Identifier: MIT */
/*
 * oneDNN's 2.x and 3.x under one interface. 2.x describes operations and memory by structs, 3.x by
 * objects with getters; what both have follows below them.
 */
#include "net/cpu/onednn.h"

#include <string.h>

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

const char *weir__onednn_version(void) {
    return "oneDNN " TEXT(DNNL_VERSION_MAJOR) "." TEXT(DNNL_VERSION_MINOR) "." TEXT(
        DNNL_VERSION_PATCH);
}

bool weir__onednn_implemented_by(const_dnnl_primitive_desc_t primitive, const char *prefix) {
    const char *name = NULL;
    return dnnl_primitive_desc_query(primitive, dnnl_query_impl_info_str, 0, (void *)&name) ==
               dnnl_success &&
           name != NULL && strncmp(name, prefix, strlen(prefix)) == 0;
}

static bool is_named(const_dnnl_primitive_desc_t primitive, const char *const *names) {
    for (; *names != NULL; names++)
        if (weir__onednn_implemented_by(primitive, *names)) return true;
    return false;
}

#if DNNL_VERSION_MAJOR < 3

/* ---- 2.x ------------------------------------------------------------------------------------- */

weir__onednn_view weir__onednn_view_of(const dnnl_memory_desc_t *description) {
    return description;
}

dnnl_status_t weir__onednn_describe(dnnl_memory_desc_t *to, int dimensions, const dnnl_dims_t sizes,
                                    const dnnl_dims_t strides) {
    if (strides == NULL)
        return dnnl_memory_desc_init_by_tag(to, dimensions, sizes, dnnl_f32, dnnl_format_tag_any);
    return dnnl_memory_desc_init_by_strides(to, dimensions, sizes, dnnl_f32, strides);
}

static dnnl_status_t copy_description(dnnl_memory_desc_t *to, weir__onednn_view from) {
    *to = *from;
    return dnnl_success;
}

void weir__onednn_forget(dnnl_memory_desc_t *description) {
    (void)description;
}

void weir__onednn_layout_of(weir__onednn_view description, struct weir__onednn_layout *to) {
    const dnnl_blocking_desc_t *blocking = &description->format_desc.blocking;
    assert(description->format_kind == dnnl_blocked);
    *to = (struct weir__onednn_layout){.dimensions = description->ndims,
                                       .block_count = blocking->inner_nblks};
    for (int i = 0; i < to->dimensions; i++) to->strides[i] = blocking->strides[i];
    for (int i = 0; i < to->block_count; i++) {
        to->blocks[i] = blocking->inner_blks[i];
        to->block_dimensions[i] = (int)blocking->inner_idxs[i];
    }
}

static dnnl_status_t forward_of(const struct weir__onednn_convolution *c,
                                dnnl_convolution_desc_t *to) {
    const dnnl_memory_desc_t *of = c->of;
    return dnnl_convolution_forward_desc_init(to, dnnl_forward_training, dnnl_convolution_direct,
                                              &of[WEIR__ROLE_A], &of[WEIR__ROLE_B],
                                              c->has_bias ? &of[WEIR__ROLE_BIAS] : NULL,
                                              &of[WEIR__ROLE_C], c->stride, c->padding, c->padding);
}

static dnnl_status_t operation_of(const struct weir__onednn_convolution *c,
                                  dnnl_convolution_desc_t *to) {
    const dnnl_memory_desc_t *of = c->of;
    switch (c->pass) {
    case WEIR__ONEDNN_FORWARD: return forward_of(c, to);
    case WEIR__ONEDNN_BACKWARD_DATA:
        return dnnl_convolution_backward_data_desc_init(
            to, dnnl_convolution_direct, &of[WEIR__ROLE_A], &of[WEIR__ROLE_B], &of[WEIR__ROLE_C],
            c->stride, c->padding, c->padding);
    default:
        return dnnl_convolution_backward_weights_desc_init(
            to, dnnl_convolution_direct, &of[WEIR__ROLE_A], &of[WEIR__ROLE_B], NULL,
            &of[WEIR__ROLE_C], c->stride, c->padding, c->padding);
    }
}

/** What the library wants to know of the forward pass before it describes a backward one. */
static dnnl_status_t hint_of(const struct weir__onednn_convolution *convolution,
                             dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                             dnnl_primitive_desc_t *to) {
    dnnl_convolution_desc_t forward;
    *to = NULL;
    if (convolution->pass == WEIR__ONEDNN_FORWARD) return dnnl_success;
    dnnl_status_t status = forward_of(convolution, &forward);
    if (status != dnnl_success) return status;
    return dnnl_primitive_desc_create(to, &forward, attr, engine, NULL);
}

/** The iterator is at the first from the beginning. */
static dnnl_status_t find_implementation(dnnl_primitive_desc_iterator_t iterator,
                                         const char *const *names, dnnl_primitive_desc_t *to) {
    dnnl_status_t status;
    do {
        *to = dnnl_primitive_desc_iterator_fetch(iterator);
        if (*to == NULL) return dnnl_out_of_memory;
        if (is_named(*to, names)) return dnnl_success;
        dnnl_primitive_desc_destroy(*to);
        *to = NULL;
        status = dnnl_primitive_desc_iterator_next(iterator);
    } while (status == dnnl_success);
    return status == dnnl_iterator_ends ? dnnl_unimplemented : status;
}

dnnl_status_t weir__onednn_describe_convolution(const struct weir__onednn_convolution *convolution,
                                                dnnl_engine_t engine,
                                                const_dnnl_primitive_attr_t attr,
                                                const char *const *names,
                                                dnnl_primitive_desc_t *to) {
    dnnl_convolution_desc_t operation;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_primitive_desc_iterator_t iterator = NULL;
    *to = NULL;
    dnnl_status_t status = operation_of(convolution, &operation);
    if (status == dnnl_success) status = hint_of(convolution, engine, attr, &hint);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_iterator_create(&iterator, &operation, attr, engine, hint);
    if (status == dnnl_success) status = find_implementation(iterator, names, to);
    if (iterator != NULL) dnnl_primitive_desc_iterator_destroy(iterator);
    if (hint != NULL) dnnl_primitive_desc_destroy(hint);
    return status;
}

#else

/* ---- 3.x ------------------------------------------------------------------------------------- */

weir__onednn_view weir__onednn_view_of(const dnnl_memory_desc_t *description) {
    return *description;
}

dnnl_status_t weir__onednn_describe(dnnl_memory_desc_t *to, int dimensions, const dnnl_dims_t sizes,
                                    const dnnl_dims_t strides) {
    if (strides == NULL)
        return dnnl_memory_desc_create_with_tag(to, dimensions, sizes, dnnl_f32,
                                                dnnl_format_tag_any);
    return dnnl_memory_desc_create_with_strides(to, dimensions, sizes, dnnl_f32, strides);
}

static dnnl_status_t copy_description(dnnl_memory_desc_t *to, weir__onednn_view from) {
    return dnnl_memory_desc_clone(to, from);
}

void weir__onednn_forget(dnnl_memory_desc_t *description) {
    dnnl_memory_desc_destroy(*description);
}

/** Getters fail for unknown names only. */
void weir__onednn_layout_of(weir__onednn_view description, struct weir__onednn_layout *to) {
    const dnnl_dims_t *strides = NULL, *blocks = NULL, *indices = NULL;
    *to = (struct weir__onednn_layout){0};
    dnnl_memory_desc_query(description, dnnl_query_ndims_s32, &to->dimensions);
    dnnl_memory_desc_query(description, dnnl_query_strides, &strides);
    dnnl_memory_desc_query(description, dnnl_query_inner_nblks_s32, &to->block_count);
    dnnl_memory_desc_query(description, dnnl_query_inner_blks, &blocks);
    dnnl_memory_desc_query(description, dnnl_query_inner_idxs, &indices);
    for (int i = 0; i < to->dimensions; i++) to->strides[i] = (*strides)[i];
    for (int i = 0; i < to->block_count; i++) {
        to->blocks[i] = (*blocks)[i];
        to->block_dimensions[i] = (int)(*indices)[i];
    }
}

static const dnnl_dims_t undilated = {0, 0};

static dnnl_status_t describe_forward(const struct weir__onednn_convolution *c,
                                      dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                                      dnnl_primitive_desc_t *to) {
    const dnnl_memory_desc_t *of = c->of;
    return dnnl_convolution_forward_primitive_desc_create(
        to, engine, dnnl_forward_training, dnnl_convolution_direct, of[WEIR__ROLE_A],
        of[WEIR__ROLE_B], c->has_bias ? of[WEIR__ROLE_BIAS] : NULL, of[WEIR__ROLE_C], c->stride,
        undilated, c->padding, c->padding, attr);
}

static dnnl_status_t describe_pass(const struct weir__onednn_convolution *c, dnnl_engine_t engine,
                                   const_dnnl_primitive_attr_t attr, dnnl_primitive_desc_t hint,
                                   dnnl_primitive_desc_t *to) {
    const dnnl_memory_desc_t *of = c->of;
    switch (c->pass) {
    case WEIR__ONEDNN_FORWARD: return describe_forward(c, engine, attr, to);
    case WEIR__ONEDNN_BACKWARD_DATA:
        return dnnl_convolution_backward_data_primitive_desc_create(
            to, engine, dnnl_convolution_direct, of[WEIR__ROLE_A], of[WEIR__ROLE_B],
            of[WEIR__ROLE_C], c->stride, undilated, c->padding, c->padding, hint, attr);
    default:
        return dnnl_convolution_backward_weights_primitive_desc_create(
            to, engine, dnnl_convolution_direct, of[WEIR__ROLE_A], of[WEIR__ROLE_B], NULL,
            of[WEIR__ROLE_C], c->stride, undilated, c->padding, c->padding, hint, attr);
    }
}

dnnl_status_t weir__onednn_describe_convolution(const struct weir__onednn_convolution *convolution,
                                                dnnl_engine_t engine,
                                                const_dnnl_primitive_attr_t attr,
                                                const char *const *names,
                                                dnnl_primitive_desc_t *to) {
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = dnnl_success;
    *to = NULL;
    if (convolution->pass != WEIR__ONEDNN_FORWARD)
        status = describe_forward(convolution, engine, attr, &hint);
    if (status == dnnl_success) status = describe_pass(convolution, engine, attr, hint, to);
    while (status == dnnl_success && !is_named(*to, names))
        status = dnnl_primitive_desc_next_impl(*to);
    if (status != dnnl_success && *to != NULL) {
        dnnl_primitive_desc_destroy(*to);
        *to = NULL;
    }
    /* Only now: going to the next implementation looks at the hint again. */
    if (hint != NULL) dnnl_primitive_desc_destroy(hint);
    return status == dnnl_last_impl_reached ? dnnl_unimplemented : status;
}

#endif

/* ---- both ------------------------------------------------------------------------------------ */

dnnl_status_t weir__onednn_describe_argument(dnnl_memory_desc_t *to,
                                             const_dnnl_primitive_desc_t primitive, int argument) {
    return copy_description(
        to, dnnl_primitive_desc_query_md(primitive, dnnl_query_exec_arg_md, argument));
}

dnnl_status_t weir__onednn_attributes(dnnl_primitive_attr_t *to) {
    dnnl_primitive_attr_t attributes;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (status != dnnl_success) return status;
    status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_fpmath_mode(attributes, dnnl_fpmath_mode_strict);
    if (status != dnnl_success)
        dnnl_primitive_attr_destroy(attributes);
    else
        *to = attributes;
    return status;
}

size_t weir__onednn_scratchpad_bytes(const_dnnl_primitive_desc_t primitive) {
    if (primitive == NULL) return 0;
    size_t bytes = dnnl_memory_desc_get_size(
        dnnl_primitive_desc_query_md(primitive, dnnl_query_scratchpad_md, 0));
    return (bytes + 63) / 64 * 64;
}

int weir__onednn_status_of(dnnl_status_t status) {
    if (status == dnnl_success) return WEIR_OK;
    return status == dnnl_out_of_memory ? WEIR_ERR_OUT_OF_MEMORY : WEIR_ERR_BACKEND;
}
