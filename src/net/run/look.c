/* SPDX-License-Identifier: MIT */
/* Looking at what programs compute, call by call: for the first number that is not finite. Slow; it
 * is done where a step has failed, to say why. */
#include "device/device.h"
#include "net/compile/program.h"

#include <math.h>
#include <unistd.h>

enum { PIECE = 1 << 16 };

static bool all_finite(enum weir_dtype dtype, const char *numbers, size_t bytes) {
    size_t count = bytes / weir_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(weir__number_at(dtype, numbers, i))) return false;
    return true;
}

static int bring(struct weir_stream *stream, void *to, const void *from, size_t bytes) {
    const struct weir__device_calls *calls = stream->device->calls;
    int status = calls->copy(stream, to, from, bytes);
    return status != WEIR_OK ? status : calls->stream_finish(stream);
}

/** Piece by piece, through memory that a GPU's copies reach. */
static int look_on_gpu(struct weir_stream *stream, enum weir_dtype dtype, const char *numbers,
                       size_t bytes, bool *finite) {
    const struct weir__device_calls *calls = stream->device->calls;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *held = weir__acquire(NULL, PIECE + page, 1);
    if (held == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    char *piece = held + (page - (uintptr_t)held % page);
    int status = calls->host_pin(stream->device, piece, PIECE);
    if (status != WEIR_OK) goto out;
    for (size_t at = 0; at < bytes && *finite; at += PIECE) {
        size_t some = bytes - at < PIECE ? bytes - at : PIECE;
        if ((status = bring(stream, piece, numbers + at, some)) != WEIR_OK) break;
        *finite = all_finite(dtype, piece, some);
    }
    calls->host_unpin(stream->device, piece, PIECE);
out:
    weir__release(NULL, held, PIECE + page, 1);
    return status;
}

int weir__program_look(const struct weir__program_run *run,
                       const struct weir__planned_call *planned) {
    if (planned->delivers) return WEIR_OK; /* what has been looked at */
    assert(planned->node >= run->look->nodes &&
           planned->node < run->look->nodes + run->look->graph->node_count);
    const struct weir__node *node = run->look->graph->nodes[planned->node - run->look->nodes];
    struct weir_stream *stream = run->call.stream;
    bool finite = true;
    assert(planned->out_count <= node->out_count);
    for (uint32_t k = 0; k < planned->out_count && finite; k++) {
        const struct weir_value *value = node->out[k];
        const struct weir__location *place = &planned->out[k];
        if (value == NULL || place->base == WEIR__BASE_NONE || run->bases[place->base] == 0)
            continue;
        if (!weir_dtype_is_float(value->dtype)) continue;
        const char *numbers = (const char *)(run->bases[place->base] + place->offset);
        size_t count = (size_t)weir__value_count(value);
        if (value->batched) count *= (size_t)run->look->rows;
        size_t bytes = count * weir_dtype_bytes(value->dtype);
        if (stream == NULL || stream->device->calls->synchronous) {
            finite = all_finite(value->dtype, numbers, bytes);
            continue;
        }
        int status = look_on_gpu(stream, value->dtype, numbers, bytes, &finite);
        if (status != WEIR_OK) return status;
    }
    if (finite) return WEIR_OK;
    return weir__fail(run->call.error, WEIR_ERR_NONFINITE,
                      "%s is the first that gives a number that is not finite",
                      weir__op_name(node->op));
}
