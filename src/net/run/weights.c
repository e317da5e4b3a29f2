/* SPDX-License-Identifier: MIT */
/* The file in which parameters may stay, and where each lies in it. Where one cannot stay, it is
 * weir_net_load's to read or to refuse, as without such a file. */
#include "net/run/net.h"

#include "io/archive.h"

#include <string.h>

static const void *find(void *context, const struct weir__parameter_decl *parameter,
                        enum weir_dtype *stored) {
    struct weir__net_weights *weights = context;
    assert(weights->archive != NULL);
    struct weir_error unread = {.status = WEIR_OK};
    const struct weir__io io = {.allocator = weights->allocator, .error = &unread};
    const struct weir__safetensor *tensor = weir__archive_find(weights->archive, parameter->name);
    const void *data;
    size_t bytes;
    bool known = tensor != NULL && (tensor->dtype == WEIR_F32 || tensor->dtype == WEIR_BF16);
    if (!known || tensor->rank != parameter->rank || tensor->bytes == 0) return NULL;
    if (memcmp(tensor->shape, parameter->shape, tensor->rank * sizeof tensor->shape[0]) != 0)
        return NULL;
    int status = weir__archive_next(&io, weights->archive, tensor, 0, &data, &bytes);
    bool whole = status == WEIR_OK && bytes == tensor->bytes; /* several ranks write pieces */
    if (!whole || (uintptr_t)data % weir_dtype_bytes(tensor->dtype) != 0) return NULL;
    *stored = tensor->dtype;
    return data;
}

int weir__net_weights_open(struct weir__net_weights *weights,
                           const struct weir_net_options *options, struct weir_faults *faults) {
    struct weir_error error = {.status = WEIR_OK};
    const struct weir__io io = {.allocator = options->pipe.allocator, .error = &error};
    if (options->weights == NULL) return WEIR_OK;
    weights->allocator = options->pipe.allocator;
    int status = weir__archive_open(&io, options->weights, &weights->archive);
    if (status != WEIR_OK) {
        weir_faults_add(faults, "%s", error.message);
        return status;
    }
    weights->fresh = true;
    bool all = options->weights_all && options->pipe.infer_only; /* else what learns would stay */
    weights->mapping = (struct weir__mapping){all, find, weights};
    return weir__text_copy(weights->allocator, options->weights, &weights->path);
}

void weir__net_weights_close(struct weir__net_weights *weights) {
    weir__archive_close(weights->archive);
    weir__text_release(weights->allocator, weights->path);
}
