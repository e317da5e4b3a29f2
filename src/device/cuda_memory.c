/* SPDX-License-Identifier: MIT */
/* The GPU's memory and the host's pinned memory. cuMemAlloc gives 256-byte aligned memory, backed
 * at once; there are no pages to fault in, and the node says nothing. */
#include "device/cuda.h"

#include <stdatomic.h>

static uint64_t address(const void *memory) {
    return (uint64_t)(uintptr_t)memory;
}

int weir__cuda_memory_acquire(struct weir__device *device, size_t bytes, void **memory) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    assert(bytes % WEIR__CACHE_LINE == 0);
    struct weir__cuda_scope scope;
    uint64_t made = 0;
    int status = weir__cuda_scope_begin(own, &scope);
    if (status != WEIR_OK) goto out;
    int result = own->driver.memory_allocate(&made, bytes == 0 ? WEIR__CACHE_LINE : bytes);
    if ((status = weir__cuda_check(own, "cuMemAlloc", result)) != WEIR_OK) goto out;
    atomic_fetch_add(&own->own_bytes, bytes);
    *memory = (void *)(uintptr_t)made;
out:
    weir__cuda_scope_end(own, &scope);
    return status;
}

void weir__cuda_memory_release(struct weir__device *device, void *memory, size_t bytes) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    struct weir__cuda_scope scope;
    if (memory == NULL) return;
    atomic_fetch_sub(&own->own_bytes, bytes);
    (void)weir__cuda_scope_begin(own, &scope);
    (void)weir__cuda_check(own, "cuMemFree", own->driver.memory_free(address(memory)));
    weir__cuda_scope_end(own, &scope);
}

int weir__cuda_memory_touch(struct weir__device *device, void *memory, size_t bytes, int32_t node) {
    (void)node;
    struct weir__cuda_device *own = weir__cuda_device(device);
    assert(memory != NULL || bytes == 0);
    if (bytes == 0) return WEIR_OK;
    struct weir__cuda_scope scope;
    pthread_mutex_lock(&own->lock);
    int status = weir__cuda_scope_begin(own, &scope);
    if (status != WEIR_OK) goto out;
    int result = own->driver.memory_fill(address(memory), 0, bytes, own->own);
    if ((status = weir__cuda_check(own, "cuMemsetD8Async", result)) != WEIR_OK) goto out;
    result = own->driver.stream_synchronize(own->own);
    status = weir__cuda_check(own, "cuStreamSynchronize", result);
out:
    weir__cuda_scope_end(own, &scope);
    pthread_mutex_unlock(&own->lock);
    return status;
}

int weir__cuda_memory_room(struct weir__device *device, struct weir__cuda_room *room) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    struct weir__cuda_scope scope;
    *room = (struct weir__cuda_room){.own_bytes = atomic_load(&own->own_bytes)};
    int status = weir__cuda_scope_begin(own, &scope);
    if (status != WEIR_OK) goto out;
    int result = own->driver.memory_get_info(&room->free_bytes, &room->total_bytes);
    status = weir__cuda_check(own, "cuMemGetInfo", result);
    size_t known = room->free_bytes + room->own_bytes;
    if (known < room->total_bytes) room->beside_bytes = room->total_bytes - known;
out:
    weir__cuda_scope_end(own, &scope);
    return status;
}

/* Portable: any context may use it. Mapped: kernels reach it as well, at the same address. */
int weir__cuda_host_pin(struct weir__device *device, void *memory, size_t bytes) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    const unsigned flags = WEIR__CUDA_HOST_REGISTER_PORTABLE | WEIR__CUDA_HOST_REGISTER_DEVICEMAP;
    if (bytes == 0) return WEIR_OK;
    struct weir__cuda_scope scope;
    int status = weir__cuda_scope_begin(own, &scope);
    if (status != WEIR_OK) goto out;
    int result = own->driver.host_register(memory, bytes, flags);
    status = weir__cuda_check(own, "cuMemHostRegister", result);
out:
    weir__cuda_scope_end(own, &scope);
    return status;
}

void weir__cuda_host_unpin(struct weir__device *device, void *memory, size_t bytes) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    if (memory == NULL || bytes == 0) return;
    struct weir__cuda_scope scope;
    (void)weir__cuda_scope_begin(own, &scope);
    (void)weir__cuda_check(own, "cuMemHostUnregister", own->driver.host_unregister(memory));
    weir__cuda_scope_end(own, &scope);
}

static bool enable_peer(struct weir__cuda_device *device, const struct weir__cuda_device *peer) {
    int can = 0;
    if (device->driver.device_can_access_peer(&can, device->gpu, peer->gpu) != WEIR__CUDA_SUCCESS)
        return false;
    if (!can) return false;
    int result = device->driver.context_enable_peer(peer->context, 0);
    return result == WEIR__CUDA_SUCCESS || result == WEIR__CUDA_PEER_ACCESS_ALREADY_ENABLED;
}

/* Peers must be asked for once, here: some systems allow only eight at a time, and refuse later
 * ones. A peer that cannot be had is no failure: copies are staged. */
bool weir__cuda_reaches(struct weir__device *device, struct weir__device *other) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    if (other->memory == device->memory) return true;
    if (other->calls != &weir__cuda_calls) return false;
    struct weir__cuda_scope scope;
    bool reached = weir__cuda_scope_begin(own, &scope) == WEIR_OK &&
                   enable_peer(own, weir__cuda_device(other));
    weir__cuda_scope_end(own, &scope);
    return reached;
}
