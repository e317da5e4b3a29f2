/* SPDX-License-Identifier: MIT */
/* The host's memory that GPUs copy from and to. Pinning faults a range's pages in where it is
 * called from, so the worker that the memory is for touches it first, on its own thread, bound to
 * the GPU's NUMA node: then it is made of huge pages that lie there, and is pinned as it is. All of
 * it is made when rows are prepared, none in a step. */
#include "pipe/run/pipe.h"

#include <unistd.h>

int weir__host_pin(struct weir__device *device, void *memory, size_t bytes) {
    size_t whole;
    if (!weir__round_up(bytes, (size_t)sysconf(_SC_PAGESIZE), &whole)) return WEIR_ERR_OVERFLOW;
    return device->calls->host_pin(device, memory, whole);
}

void weir__host_unpin(struct weir__device *device, void *memory, size_t bytes) {
    size_t whole = 0;
    (void)weir__round_up(bytes, (size_t)sysconf(_SC_PAGESIZE), &whole); /* as it was pinned */
    device->calls->host_unpin(device, memory, whole);
}

int weir__host_memory_init(struct weir__host_memory *memory, const struct weir__worker *worker,
                           struct weir__device *device, size_t bytes) {
    struct weir__device *host = worker->pipe->host;
    size_t whole;
    *memory = (struct weir__host_memory){0};
    if (!weir__round_up(bytes, WEIR__HUGE_PAGE, &whole)) return WEIR_ERR_OVERFLOW;
    void *data;
    int status = host->calls->memory_acquire(host, whole, &data);
    if (status != WEIR_OK) return status;
    int32_t node = worker->pipe->placements[worker->index].memory_node;
    if ((status = host->calls->memory_touch(host, data, whole, node)) != WEIR_OK) goto fail;
    if ((status = weir__host_pin(device, data, whole)) != WEIR_OK) goto fail;
    *memory = (struct weir__host_memory){host, device, data, whole};
    return WEIR_OK;
fail:
    host->calls->memory_release(host, data, whole);
    return status;
}

void weir__host_memory_clean_up(struct weir__host_memory *memory) {
    if (memory->data == NULL) return;
    weir__host_unpin(memory->device, memory->data, memory->bytes);
    memory->host->calls->memory_release(memory->host, memory->data, memory->bytes);
    *memory = (struct weir__host_memory){0};
}

/* ---- what a worker needs ---- */

/* Replaced as a whole: what is there holds nothing between steps. */
static int grow(struct weir__worker *worker, struct weir__host_memory *memory,
                struct weir__device *device, size_t bytes, struct weir_error *error) {
    struct weir__host_memory grown;
    if (bytes <= memory->bytes) return WEIR_OK;
    int status = weir__host_memory_init(&grown, worker, device, bytes);
    if (status != WEIR_OK)
        return weir__fail(error, status,
                          "worker %u: %zu bytes of the host's memory cannot be pinned for %s (%s): "
                          "use fewer rows or more chunks",
                          worker->index, bytes, device->name, weir_status_text(status));
    weir__host_memory_clean_up(memory);
    *memory = grown;
    return WEIR_OK;
}

static int grow_hop(struct weir__worker *worker, struct weir__hop *hop, struct weir_error *error) {
    size_t bytes;
    if (hop->wanted_bytes <= hop->slot_bytes) return WEIR_OK;
    if (!weir__multiply(hop->slot_count, hop->wanted_bytes, &bytes)) return WEIR_ERR_OVERFLOW;
    int status = grow(worker, &hop->slots, hop->device, bytes, error);
    if (status == WEIR_OK)
        hop->slot_bytes = hop->wanted_bytes;
    else
        hop->wanted_bytes = hop->slot_bytes;
    return status;
}

void weir__host_memory_forget(struct weir_pipe *pipe) {
    for (uint32_t w = 0; w < pipe->worker_count; w++) {
        struct weir__worker *worker = &pipe->workers[w];
        worker->staging_wanted = worker->staging.bytes;
        for (struct weir__copy_stream *s = worker->copy_streams; s != NULL; s = s->next)
            s->hop.wanted_bytes = s->hop.slot_bytes;
        for (struct weir__copy_stream *s = worker->rank_streams; s != NULL; s = s->next)
            s->hop.wanted_bytes = s->hop.slot_bytes;
    }
}

int weir__host_memory_settle(struct weir__worker *worker, struct weir_error *error) {
    struct weir_pipe *pipe = worker->pipe;
    int status = grow(worker, &worker->staging, worker->device, worker->staging_wanted, error);
    if (status != WEIR_OK) {
        worker->staging_wanted = worker->staging.bytes;
        return status;
    }
    for (struct weir__copy_stream *s = worker->copy_streams; s != NULL; s = s->next)
        if ((status = grow_hop(worker, &s->hop, error)) != WEIR_OK) return status;
    for (struct weir__copy_stream *s = worker->rank_streams; s != NULL; s = s->next)
        if ((status = grow_hop(worker, &s->hop, error)) != WEIR_OK) return status;
    if (pipe->memory.numbers_worker != worker->index) return WEIR_OK;
    return grow(worker, &pipe->memory.numbers, worker->device, pipe->memory.numbers_bytes, error);
}
