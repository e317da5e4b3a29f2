/* SPDX-License-Identifier: MIT */
/* A GPU as a device: the primary context, which cuBLASLt, cuDNN and the user's own CUDA code share,
 * retained for as long as the device is open.
 *
 * A thread's current context is the user's business: only `enter` changes it, which workers call on
 * their own threads. Every other call that needs one, and is not on a step's path, borrows it and
 * puts back what was there. */
#include "device/cuda.h"
#include "device/kinds.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- errors ---- */

static bool is_sticky(const struct weir__cuda_failure *failure) {
    return failure->call != NULL && failure->name == NULL && weir__cuda_is_sticky(failure->result);
}

void weir__cuda_note(struct weir__cuda_device *device, const struct weir__cuda_failure *failure) {
    pthread_mutex_lock(&device->failure_lock);
    if (!is_sticky(&device->failure)) device->failure = *failure;
    pthread_mutex_unlock(&device->failure_lock);
}

int weir__cuda_check(struct weir__cuda_device *device, const char *call, int result) {
    assert(call != NULL);
    if (result == WEIR__CUDA_SUCCESS) return WEIR_OK;
    const struct weir__cuda_failure failure = {call, result, NULL};
    weir__cuda_note(device, &failure);
    return weir__cuda_status(result);
}

static void cuda_explain(struct weir__device *device, char *text, size_t capacity) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    pthread_mutex_lock(&own->failure_lock);
    struct weir__cuda_failure failure = own->failure;
    pthread_mutex_unlock(&own->failure_lock);
    assert(capacity > 0);
    text[0] = '\0';
    if (failure.call == NULL) return;
    char words[160];
    if (failure.name != NULL)
        snprintf(words, sizeof words, "%s: %s (%d)", failure.call, failure.name, failure.result);
    else
        weir__cuda_text(&own->driver, failure.call, failure.result, words, sizeof words);
    bool stays = is_sticky(&failure);
    snprintf(text, capacity, "%s: %s%s", device->name, words,
             stays ? "; nothing on this GPU can go on: make the pipe anew" : "");
}

/* ---- ways ---- */

void weir__cuda_way_note(struct weir__cuda_device *device, const char *format, ...) {
    char line[WEIR__CUDA_WAY_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    uint32_t i = 0;
    pthread_mutex_lock(&device->failure_lock);
    while (i < device->way_count && strcmp(device->ways[i], line) != 0) i++;
    if (i == device->way_count && i < WEIR__CUDA_WAYS_MAX)
        memcpy(device->ways[device->way_count++], line, sizeof line);
    pthread_mutex_unlock(&device->failure_lock);
}

static void tell_memory(struct weir__device *device, char *text, size_t capacity) {
    struct weir__cuda_room room;
    const double mib = 1 << 20;
    if (weir__cuda_memory_room(device, &room) == WEIR_OK)
        snprintf(text, capacity,
                 "%s: memory: %.0f MiB of plans, %.0f MiB beside them (the context, code, "
                 "libraries, other processes) of %.0f MiB",
                 device->name, (double)room.own_bytes / mib, (double)room.beside_bytes / mib,
                 (double)room.total_bytes / mib);
    else
        snprintf(text, capacity, "%s: memory: the driver does not say", device->name);
}

/* The first line is measured when it is asked for. */
static bool cuda_tell_way(struct weir__device *device, uint32_t index, char *text,
                          size_t capacity) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    assert(capacity > 0);
    if (index == 0) {
        tell_memory(device, text, capacity);
        return true;
    }
    pthread_mutex_lock(&own->failure_lock);
    bool is_there = index <= own->way_count;
    if (is_there) snprintf(text, capacity, "%s: %s", device->name, own->ways[index - 1]);
    pthread_mutex_unlock(&own->failure_lock);
    return is_there;
}

/* ---- the current context ---- */

int weir__cuda_scope_begin(struct weir__cuda_device *device, struct weir__cuda_scope *scope) {
    assert(device != NULL && scope != NULL);
    *scope = (struct weir__cuda_scope){0};
    bool known = device->driver.context_get_current(&scope->former) == WEIR__CUDA_SUCCESS;
    if (known && scope->former == device->context) return WEIR_OK;
    int result = device->driver.context_set_current(device->context);
    scope->changed = known && result == WEIR__CUDA_SUCCESS;
    return weir__cuda_check(device, "cuCtxSetCurrent", result);
}

/* Putting back fails where the caller's own context is gone; then there is nothing to put back. */
void weir__cuda_scope_end(struct weir__cuda_device *device, const struct weir__cuda_scope *scope) {
    if (scope->changed) (void)device->driver.context_set_current(scope->former);
}

static int cuda_enter(struct weir__device *device) {
    struct weir__cuda_device *own = weir__cuda_device(device);
    int result = own->driver.context_set_current(own->context);
    return weir__cuda_check(own, "cuCtxSetCurrent", result);
}

static int cuda_visit(struct weir__device *device, struct weir__visit *visit) {
    struct weir__cuda_scope scope;
    int status = weir__cuda_scope_begin(weir__cuda_device(device), &scope);
    *visit = (struct weir__visit){scope.former, scope.changed};
    return status;
}

static void cuda_leave(struct weir__device *device, const struct weir__visit *visit) {
    const struct weir__cuda_scope scope = {visit->former, visit->changed};
    weir__cuda_scope_end(weir__cuda_device(device), &scope);
}

/* ---- opening and closing ---- */

static int refuse(const struct weir__cuda_device *device, struct weir_error *error, int status) {
    assert(status != WEIR_OK);
    char text[160];
    if (device->failure.call == NULL) return status;
    weir__cuda_text(&device->driver, device->failure.call, device->failure.result, text,
                    sizeof text);
    return weir__fail(error, status,
                      "%s does not open (%s): see what 'nvidia-smi' says, another process may hold "
                      "its memory, or use cpu",
                      device->device.name, text);
}

/* Copies and kernels are given the host's addresses of its pinned memory. */
static int check_addressing(struct weir__cuda_device *device, struct weir_error *error) {
    static const struct {
        int attribute;
        const char *name;
    } needed[] = {
        {WEIR__CUDA_ATTRIBUTE_UNIFIED_ADDRESSING, "unified addressing"},
        {WEIR__CUDA_ATTRIBUTE_HOST_POINTERS, "use of pinned memory by the host's addresses"},
    };
    for (size_t i = 0; i < WEIR__COUNT_OF(needed); i++) {
        int has = 0;
        int result = device->driver.device_get_attribute(&has, needed[i].attribute, device->gpu);
        int status = weir__cuda_check(device, "cuDeviceGetAttribute", result);
        if (status != WEIR_OK) return status;
        if (!has)
            return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                              "%s has no %s, which copies need: use another GPU, or cpu",
                              device->device.name, needed[i].name);
    }
    return WEIR_OK;
}

static int check_gpu(struct weir__cuda_device *device, uint32_t ordinal, struct weir_error *error) {
    const struct weir__cuda_driver *driver = &device->driver;
    int result = driver->device_get(&device->gpu, (int)ordinal);
    int status = weir__cuda_check(device, "cuDeviceGet", result);
    if (status != WEIR_OK) return status;
    result = driver->device_get_pci(device->device.pci, sizeof device->device.pci, device->gpu);
    status = weir__cuda_check(device, "cuDeviceGetPCIBusId", result);
    return status == WEIR_OK ? check_addressing(device, error) : status;
}

static int fill_context(struct weir__cuda_device *device, struct weir_error *error) {
    struct weir__cuda_scope scope;
    int status = weir__cuda_scope_begin(device, &scope);
    if (status != WEIR_OK) goto out;
    int *priorities = device->priorities;
    int result = device->driver.stream_priorities(&priorities[0], &priorities[1]);
    status = weir__cuda_check(device, "cuCtxGetStreamPriorityRange", result);
    if (status != WEIR_OK) goto out;
    if ((status = weir__cuda_clock_new(device)) != WEIR_OK) goto fail;
    status = weir__cuda_set_need(&device->device, &weir__cuda_engine_kernels, error);
    if (status == WEIR_OK) goto out;
fail:
    weir__cuda_modules_destroy(device);
    weir__cuda_clock_destroy(device);
out:
    weir__cuda_scope_end(device, &scope);
    return status;
}

static int open_context(struct weir__cuda_device *device, struct weir_error *error) {
    int result = device->driver.context_retain(&device->context, device->gpu);
    int status = weir__cuda_check(device, "cuDevicePrimaryCtxRetain", result);
    if (status != WEIR_OK) return status;
    status = fill_context(device, error);
    if (status != WEIR_OK) (void)device->driver.context_release(device->gpu);
    return status;
}

static int try_gpu(struct weir__cuda_device *device, uint32_t ordinal, struct weir_error *error) {
    assert(device->context == NULL);
    int status = weir__cuda_driver_find(&device->driver, ordinal, error);
    if (status != WEIR_OK) return status;
    if ((status = weir__cuda_modules_check(&device->driver, error)) != WEIR_OK) return status;
    if ((status = check_gpu(device, ordinal, error)) != WEIR_OK) return status;
    return open_context(device, error);
}

/* What fails without a message of its own gets the driver's. */
static int open_gpu(struct weir__cuda_device *device, uint32_t ordinal, struct weir_error *error) {
    struct weir_error own = {0};
    int status = try_gpu(device, ordinal, &own);
    if (status == WEIR_OK) return WEIR_OK;
    if (own.status == WEIR_OK) return refuse(device, error, status);
    return weir__fail(error, status, "%s", own.message);
}

int weir__cuda_open(const char *name, uint32_t ordinal, const struct weir_allocator *allocator,
                    struct weir_error *error, struct weir__device **device) {
    struct weir__cuda_device *made = weir__acquire(allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    assert(strlen(name) < sizeof made->device.name);
    made->device.calls = &weir__cuda_calls;
    made->device.allocator = allocator;
    made->device.memory = 1 + ordinal;
    memcpy(made->device.name, name, strlen(name) + 1);
    int status = weir__cuda_driver_open(&made->driver, error);
    if (status != WEIR_OK) goto fail_driver;
    status = WEIR_ERR_SYSTEM;
    if (pthread_mutex_init(&made->lock, NULL) != 0) goto fail_lock;
    if (pthread_mutex_init(&made->failure_lock, NULL) != 0) goto fail_failure_lock;
    status = open_gpu(made, ordinal, error);
    if (status != WEIR_OK) goto fail_gpu;
    *device = &made->device;
    return WEIR_OK;

fail_gpu:
    pthread_mutex_destroy(&made->failure_lock);
fail_failure_lock:
    pthread_mutex_destroy(&made->lock);
fail_lock:
    weir__cuda_driver_close(&made->driver);
fail_driver:
    weir__release(allocator, made, 1, sizeof *made);
    return status;
}

int weir__cuda_probe(uint32_t ordinal, struct weir_error *error) {
    struct weir__cuda_driver driver;
    int status = weir__cuda_driver_open(&driver, error);
    if (status != WEIR_OK) return status;
    if ((status = weir__cuda_driver_find(&driver, ordinal, error)) != WEIR_OK) goto out;
    status = weir__cuda_modules_check(&driver, error);
out:
    weir__cuda_driver_close(&driver);
    return status;
}

/* Everything is given back whatever the driver says: after a sticky error it says no to all. */
static void cuda_close(struct weir__device *device) {
    if (device == NULL) return;
    struct weir__cuda_device *own = weir__cuda_device(device);
    struct weir__cuda_scope scope;
    (void)weir__cuda_scope_begin(own, &scope);
    if (own->numerics != NULL) own->numerics->close(own->numerics, own);
    weir__cuda_modules_destroy(own);
    weir__cuda_clock_destroy(own);
    weir__cuda_scope_end(own, &scope);
    (void)own->driver.context_release(own->gpu);
    pthread_mutex_destroy(&own->failure_lock);
    pthread_mutex_destroy(&own->lock);
    weir__cuda_driver_close(&own->driver);
    weir__release(device->allocator, own, 1, sizeof *own);
}

const struct weir__device_calls weir__cuda_calls = {
    .kind = "cuda",
    .enter = cuda_enter,
    .visit = cuda_visit,
    .leave = cuda_leave,
    .memory_acquire = weir__cuda_memory_acquire,
    .memory_release = weir__cuda_memory_release,
    .memory_touch = weir__cuda_memory_touch,
    .host_pin = weir__cuda_host_pin,
    .host_unpin = weir__cuda_host_unpin,
    .stream_new = weir__cuda_stream_new,
    .copy_stream_new = weir__cuda_copy_stream_new,
    .stream_destroy = weir__cuda_stream_destroy,
    .stream_finish = weir__cuda_stream_finish,
    .event_init = weir__cuda_event_init,
    .event_clean_up = weir__cuda_event_clean_up,
    .event_record = weir__cuda_event_record,
    .stream_wait = weir__cuda_stream_wait,
    .event_wait = weir__cuda_event_wait,
    .event_query = weir__cuda_event_query,
    .event_time = weir__cuda_event_time,
    .copy = weir__cuda_enqueue_copy,
    .copy_set = weir__cuda_copy_set,
    .judge = weir__cuda_judge,
    .reaches = weir__cuda_reaches,
    .close = cuda_close,
    .explain = cuda_explain,
    .tell_way = cuda_tell_way,
};
