/* SPDX-License-Identifier: MIT */
/* Between steps: a stage's lasting memory and the caller's. Devices copy from and to pinned memory
 * alone, so what is theirs goes through the worker's staging, which holds nothing between steps. */
#include "pipe/run/ranks.h"

#include <string.h>

static int copy_piece(struct weir_stream *stream, void *to, const void *from, size_t bytes) {
    const struct weir__device_calls *calls = stream->device->calls;
    int status = calls->copy(stream, to, from, bytes);
    int finished = calls->stream_finish(stream);
    return status == WEIR_OK ? finished : status;
}

static int copy_pieces(struct weir_stream *stream, const struct weir__host_memory *staging,
                       char *to, const char *from, size_t bytes, bool to_device) {
    assert(bytes > 0);
    char *pinned = staging->data;
    assert(staging->bytes > 0);
    for (size_t at = 0; at < bytes; at += staging->bytes) {
        size_t piece = bytes - at < staging->bytes ? bytes - at : staging->bytes;
        if (to_device) memcpy(pinned, from + at, piece);
        int status = to_device ? copy_piece(stream, to + at, pinned, piece)
                               : copy_piece(stream, pinned, from + at, piece);
        if (status != WEIR_OK) return status;
        if (!to_device) memcpy(to + at, pinned, piece);
    }
    return WEIR_OK;
}

int weir__transfer(struct weir__worker *worker) {
    const struct weir__transfer *transfer = &worker->pipe->command.transfer;
    assert(transfer->worker < worker->pipe->worker_count && transfer->bytes > 0);
    if (worker->index != transfer->worker) return WEIR_OK;
    return copy_pieces(worker->stream, &worker->staging, transfer->to, transfer->from,
                       transfer->bytes, transfer->to_device);
}

/* A GPU's by its worker, whose thread is the device's: the caller's context stays what it is. */
static int transfer(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                    size_t bytes, bool to_device) {
    uint32_t worker = pipe->prepared[0]->stage_worker[stage];
    assert(worker < pipe->worker_count);
    if (bytes == 0 || !weir__is_here(pipe, worker)) return WEIR_OK;
    if (pipe->workers[worker].device->calls->synchronous) {
        memcpy(to, from, bytes);
        return WEIR_OK;
    }
    pipe->command.kind = WEIR__COMMAND_TRANSFER;
    pipe->command.transfer = (struct weir__transfer){worker, to, from, bytes, to_device};
    return weir__pipe_command(pipe);
}

static int take_turn(struct weir_pipe *pipe, uint32_t replica, uint32_t stage, void *to,
                     const void *from, size_t bytes, bool to_device, bool to_all) {
    if (stage >= pipe->setup.flow.stage_count) return WEIR_ERR_ARGUMENT;
    int status = weir__pipe_enter(pipe, NULL);
    if (status != WEIR_OK) return status;
    bool has = !to_all || replica == weir__replica(&pipe->setup.options);
    if (has) status = transfer(pipe, stage, to, from, bytes, to_device);
    if (pipe->ranks != NULL && to_all)
        status = weir__ranks_give(pipe, replica, stage, status, to, bytes);
    weir__pipe_leave(pipe);
    return status;
}

int weir_pipe_read(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                   size_t bytes) {
    return take_turn(pipe, 0, stage, to, from, bytes, false, true);
}

int weir__pipe_read_from(struct weir_pipe *pipe, uint32_t replica, uint32_t stage, void *to,
                         const void *from, size_t bytes) {
    if (replica >= weir__replicas(&pipe->setup.options)) return WEIR_ERR_ARGUMENT;
    return take_turn(pipe, replica, stage, to, from, bytes, false, true);
}

int weir_pipe_write(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                    size_t bytes) {
    return take_turn(pipe, 0, stage, to, from, bytes, true, false);
}

int weir__pipe_read_own(struct weir_pipe *pipe, uint32_t stage, void *to, const void *from,
                        size_t bytes) {
    return take_turn(pipe, 0, stage, to, from, bytes, false, false);
}
