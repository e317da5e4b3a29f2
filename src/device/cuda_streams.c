/* SPDX-License-Identifier: MIT */
/* Streams, events, copies and launches: one call of the driver each, for they stand on a step's
 * path. Streams are non-blocking, or they would wait for the default stream of whoever shares the
 * context. Copies go by cuMemcpyAsync, which sees from the addresses (they are unified) what lies
 * where, between peers as well. */
#include "device/cuda.h"

#include <stdatomic.h>

static int stream_new(struct weir__device *device, int priority, struct weir_stream **stream) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    struct weir__cuda_stream *made = weir__acquire(device->allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    struct weir__cuda_scope scope;
    int status = weir__cuda_scope_begin(own, &scope);
    if (status != WEIR_OK) goto fail;
    int result = own->driver.stream_create(&made->native, WEIR__CUDA_STREAM_NON_BLOCKING, priority);
    status = weir__cuda_check(own, "cuStreamCreateWithPriority", result);
    if (status != WEIR_OK) goto fail;
    weir__cuda_scope_end(own, &scope);
    made->stream.device = device;
    *stream = &made->stream;
    return WEIR_OK;

fail:
    weir__cuda_scope_end(own, &scope);
    weir__release(device->allocator, made, 1, sizeof *made);
    return status;
}

int weir__cuda_stream_new(struct weir__device *device, struct weir_stream **stream) {
    return stream_new(device, weir__cuda_device(device)->priorities[0], stream);
}

int weir__cuda_copy_stream_new(struct weir__device *device, struct weir_stream **stream) {
    return stream_new(device, weir__cuda_device(device)->priorities[1], stream);
}

void weir__cuda_stream_destroy(struct weir_stream *stream) {
    if (stream == NULL) return;
    struct weir__cuda_device *own = weir__cuda_device(stream->device);
    struct weir__cuda_stream *made = (struct weir__cuda_stream *)stream;
    struct weir__cuda_scope scope;
    (void)weir__cuda_scope_begin(own, &scope);
    (void)weir__cuda_check(own, "cuStreamDestroy", own->driver.stream_destroy(made->native));
    weir__cuda_scope_end(own, &scope);
    weir__release(own->device.allocator, made, 1, sizeof *made);
}

int weir__cuda_stream_finish(struct weir_stream *stream) {
    struct weir__cuda_device *own = weir__cuda_device(stream->device);
    int result = own->driver.stream_synchronize(weir__cuda_stream(stream)->native);
    return weir__cuda_check(own, "cuStreamSynchronize", result);
}

int weir__cuda_event_init(struct weir__device *device, struct weir__event *event) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    struct CUevent_st *native = NULL;
    struct weir__cuda_scope scope;
    int status = weir__cuda_scope_begin(own, &scope);
    if (status != WEIR_OK) goto out;
    status = weir__cuda_check(own, "cuEventCreate", own->driver.event_create(&native, 0));
    if (status != WEIR_OK) goto out;
    *event = (struct weir__event){.device = device, .native = native};
out:
    weir__cuda_scope_end(own, &scope);
    return status;
}

void weir__cuda_event_clean_up(struct weir__event *event) {
    if (event == NULL || event->native == NULL) return;
    struct weir__cuda_device *own = weir__cuda_device(event->device);
    struct weir__cuda_scope scope;
    (void)weir__cuda_scope_begin(own, &scope);
    (void)weir__cuda_check(own, "cuEventDestroy", own->driver.event_destroy(event->native));
    weir__cuda_scope_end(own, &scope);
    *event = (struct weir__event){0};
}

int weir__cuda_event_record(struct weir_stream *stream, struct weir__event *event) {
    struct weir__cuda_device *own = weir__cuda_device(stream->device);
    assert(event->device == stream->device);
    atomic_store_explicit(&event->told_ns, 0, memory_order_relaxed);
    int result = own->driver.event_record(event->native, weir__cuda_stream(stream)->native);
    return weir__cuda_check(own, "cuEventRecord", result);
}

int weir__cuda_stream_wait(struct weir_stream *stream, struct weir__event *event) {
    struct weir__cuda_device *own = weir__cuda_device(stream->device);
    if (event->device->calls != &weir__cuda_calls) return event->device->calls->event_wait(event);
    int result = own->driver.stream_wait_event(weir__cuda_stream(stream)->native, event->native, 0);
    return weir__cuda_check(own, "cuStreamWaitEvent", result);
}

/* Called by threads of other devices too, which have not entered this one. */
int weir__cuda_event_wait(struct weir__event *event) {
    struct weir__cuda_device *own = weir__cuda_device(event->device);
    struct weir__cuda_scope scope;
    int status = weir__cuda_scope_begin(own, &scope);
    if (status != WEIR_OK) goto out;
    int result = own->driver.event_synchronize(event->native);
    status = weir__cuda_check(own, "cuEventSynchronize", result);
out:
    weir__cuda_scope_end(own, &scope);
    return status;
}

int weir__cuda_event_query(struct weir__event *event, bool *done) {
    struct weir__cuda_device *own = weir__cuda_device(event->device);
    struct weir__cuda_scope scope;
    int status = weir__cuda_scope_begin(own, &scope);
    if (status != WEIR_OK) goto out;
    int result = own->driver.event_query(event->native);
    *done = result != WEIR__CUDA_NOT_READY;
    if (*done) status = weir__cuda_check(own, "cuEventQuery", result);
out:
    weir__cuda_scope_end(own, &scope);
    return status;
}

int weir__cuda_enqueue_copy(struct weir_stream *stream, void *destination, const void *source,
                            size_t bytes) {
    struct weir__cuda_device *own = weir__cuda_device(stream->device);
    if (bytes == 0) return WEIR_OK;
    assert(destination != NULL && source != NULL);
    int result =
        own->driver.memory_copy((uint64_t)(uintptr_t)destination, (uint64_t)(uintptr_t)source,
                                bytes, weir__cuda_stream(stream)->native);
    return weir__cuda_check(own, "cuMemcpyAsync", result);
}

int weir__cuda_judge(struct weir_stream *stream, const struct weir__judgement *judgement) {
    return weir__cuda_decide(stream, judgement->verdict, judgement->squares, judgement->count,
                             judgement->clip_norm);
}

int weir__cuda_launch(struct weir_stream *stream, enum weir__cuda_kernel kernel,
                      const struct weir__cuda_grid *grid, void **arguments) {
    return weir__cuda_launch_of(stream, &weir__cuda_engine_kernels, kernel, grid, arguments);
}

int weir__cuda_launch_of(struct weir_stream *stream, const struct weir__cuda_set *set,
                         uint32_t kernel, const struct weir__cuda_grid *grid, void **arguments) {
    struct weir__cuda_device *own = weir__cuda_device(stream->device);
    const struct weir__cuda_modules *modules = weir__cuda_modules_of(own, set);
    int status = WEIR_OK;
    if (modules == NULL) status = weir__cuda_set_need(stream->device, set, NULL);
    if (status != WEIR_OK) return status;
    if (modules == NULL) modules = weir__cuda_modules_of(own, set);
    assert(modules != NULL && kernel < set->kernel_count && modules->functions[kernel] != NULL);
    const uint32_t *blocks = grid->blocks, *threads = grid->threads;
    int result = own->driver.launch(modules->functions[kernel], blocks[0], blocks[1], blocks[2],
                                    threads[0], threads[1], threads[2], grid->shared_bytes,
                                    weir__cuda_stream(stream)->native, arguments, NULL);
    return weir__cuda_check(own, "cuLaunchKernel", result);
}

void *weir_stream_cuda(const struct weir_stream *stream) {
    assert(stream != NULL);
    if (stream->device->calls != &weir__cuda_calls) return NULL;
    return weir__cuda_stream(stream)->native;
}
