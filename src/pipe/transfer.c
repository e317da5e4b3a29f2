/* SPDX-License-Identifier: MIT */
/* Between steps: a stage's lasting memory and the caller's. Devices copy from and to pinned memory
 * alone, so what is theirs goes through some of that, piece by piece. */
#include "pipe/pipe.h"

#include <string.h>

enum { PIECE = 4 << 20 };

static int copy_piece(struct weir_stream *stream, void *to, const void *from, size_t bytes) {
    const struct weir__device_calls *calls = stream->device->calls;
    int status = calls->copy(stream, to, from, bytes);
    int finished = calls->stream_finish(stream);
    return status == WEIR_OK ? finished : status;
}

static int copy_pieces(struct weir_stream *stream, char *pinned, char *to, const char *from,
                       size_t bytes, bool to_device) {
    int status = WEIR_OK;
    for (size_t at = 0; status == WEIR_OK && at < bytes; at += PIECE) {
        size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        if (to_device) memcpy(pinned, from + at, piece);
        status = to_device ? copy_piece(stream, to + at, pinned, piece)
                           : copy_piece(stream, pinned, from + at, piece);
        if (status == WEIR_OK && !to_device) memcpy(to + at, pinned, piece);
    }
    return status;
}

static int transfer(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                    size_t bytes, bool to_device) {
    struct weir__worker *worker = &pipe->workers[pipe->prepared[0]->stage_worker[stage]];
    struct weir__device *device = worker->device;
    if (bytes == 0) return WEIR_OK;
    if (device->calls->synchronous) {
        memcpy(to, from, bytes);
        return WEIR_OK;
    }
    struct weir__host_memory pinned;
    int status = device->calls->enter(device);
    if (status != WEIR_OK) return status;
    status = weir__host_memory_init(&pinned, worker, device, bytes < PIECE ? bytes : (size_t)PIECE);
    if (status != WEIR_OK) return status;
    status = copy_pieces(worker->stream, pinned.data, to, from, bytes, to_device);
    weir__host_memory_clean_up(&pinned);
    if (status == WEIR_ERR_DEVICE) pipe->lost = true;
    return status;
}

static int take_turn(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                     size_t bytes, bool to_device) {
    if (stage >= pipe->setup.flow.stage_count) return WEIR_ERR_ARGUMENT;
    int status = weir__pipe_enter(pipe, NULL);
    if (status != WEIR_OK) return status;
    status = transfer(pipe, stage, to, from, bytes, to_device);
    weir__pipe_leave(pipe);
    return status;
}

int weir_pipe_read(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                   size_t bytes) {
    return take_turn(pipe, stage, to, from, bytes, false);
}

int weir_pipe_write(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                    size_t bytes) {
    return take_turn(pipe, stage, to, from, bytes, true);
}
