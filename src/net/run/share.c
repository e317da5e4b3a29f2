/* SPDX-License-Identifier: MIT */
/* Between steps: the optimizer's numbers, of which each replica has its slices, and copies of
 * parameters that stages share. */
#include "net/run/net.h"

#include "io/numbers.h"
#include "pipe/run/pipe.h"

/** NULL where there is nothing: on another rank. */
static void *at(void *base, size_t offset) {
    return base == NULL ? NULL : (char *)base + offset;
}

/** Where this rank has its first number of the parameter in one of the optimizer's arrays. */
static void *place_of(const struct weir_net *net, const struct weir__parameter_decl *parameter,
                      uint32_t array) {
    const struct weir__net_stage *stage = &net->stages[parameter->stage];
    assert(array < weir__optimizer_arrays(&net->optimizer));
    return at(stage->at.optimizer,
              array * stage->array_bytes + weir__stage_optimizer_at(stage, parameter));
}

static const struct weir__parameter_decl *named(const struct weir_net *net, uint32_t parameter) {
    assert(parameter < net->network.named_count);
    return &net->network.parameters[net->network.named[parameter]];
}

void weir__net_optimizer_slice(const struct weir_net *net, uint32_t parameter, uint64_t *begin,
                               uint64_t *count) {
    const struct weir__parameter_decl *info = named(net, parameter);
    const struct weir__net_stage *stage = &net->stages[info->stage];
    size_t first = 0, end = 0, number = weir_dtype_bytes(weir__exact_dtype(net->dtype));
    bool here = weir__stage_is_here(stage);
    if (here && !info->frozen) weir__stage_slice(stage, info, stage->share.replica, &first, &end);
    if (here && info->frozen && stage->share.replica == 0) end = (size_t)info->count * number;
    *begin = first / number;
    *count = (end - first) / number;
}

static int read_array(const struct weir_net *net, const struct weir__parameter_decl *parameter,
                      uint32_t array, void *data) {
    const struct weir__net_stage *stage = &net->stages[parameter->stage];
    for (uint32_t r = 0; r < stage->share.replicas; r++) {
        size_t begin, end;
        weir__stage_slice(stage, parameter, r, &begin, &end);
        if (begin == end) continue;
        int status = weir__pipe_read_from(net->pipe, r, parameter->stage, at(data, begin),
                                          place_of(net, parameter, array), end - begin);
        if (status != WEIR_OK) return status;
    }
    return WEIR_OK;
}

static int write_array(const struct weir_net *net, const struct weir__parameter_decl *parameter,
                       uint32_t array, const void *data) {
    const struct weir__net_stage *stage = &net->stages[parameter->stage];
    size_t begin, end;
    weir__stage_slice(stage, parameter, stage->share.replica, &begin, &end);
    if (begin == end) return WEIR_OK;
    return weir_pipe_write(net->pipe, parameter->stage, place_of(net, parameter, array),
                           (const char *)data + begin, end - begin);
}

/* ---- copies ---- */

/** Through `held`, which is the host's memory. */
static int share_parameter(struct weir_net *net, const struct weir__parameter_decl *copy,
                           void *held, size_t bytes) {
    const struct weir__parameter_decl *from = &net->network.parameters[copy->original];
    assert(from->original == WEIR__NONE && from->count == copy->count);
    assert(copy->mapped == NULL);
    const struct weir__net_stage *a = &net->stages[from->stage], *b = &net->stages[copy->stage];
    int status = WEIR_OK;
    if (from->mapped == NULL)
        status =
            weir_pipe_read(net->pipe, from->stage, held, at(a->at.parameters, from->offset), bytes);
    else
        weir__numbers_read(from->stored, from->mapped, (size_t)from->count, held);
    if (status != WEIR_OK) return status;
    status =
        weir_pipe_write(net->pipe, copy->stage, at(b->at.parameters, copy->offset), held, bytes);
    if (status != WEIR_OK || net->infer_only || copy->frozen) return status;
    for (uint32_t k = 0; k < weir__optimizer_arrays(&net->optimizer); k++) {
        if ((status = read_array(net, from, k, held)) != WEIR_OK) return status;
        if ((status = write_array(net, copy, k, held)) != WEIR_OK) return status;
    }
    return WEIR_OK;
}

void weir__net_weights_given(struct weir_net *net) {
    net->step.weights++;
    net->step.weights_given++;
}

int weir_net_share(struct weir_net *net) {
    const struct weir__network *network = &net->network;
    weir__net_weights_given(net);
    for (uint32_t i = 0; i < network->parameter_count; i++) {
        const struct weir__parameter_decl *copy = &network->parameters[i];
        if (copy->original == WEIR__NONE || copy->mapped != NULL) continue;
        size_t bytes = (size_t)copy->count * weir_dtype_bytes(weir__exact_dtype(net->dtype));
        void *held = weir__acquire(net->allocator, bytes, 1);
        if (held == NULL) return WEIR_ERR_OUT_OF_MEMORY;
        int status = share_parameter(net, copy, held, bytes);
        weir__release(net->allocator, held, bytes, 1);
        if (status != WEIR_OK) return status;
    }
    net->filled = true;
    return WEIR_OK;
}
