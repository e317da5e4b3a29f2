/* SPDX-License-Identifier: MIT */
/* The driver's symbols. Each checks what the real one checks, in its order: initialised, an
 * injected failure, the context, its sticky error, handles and values; then it does, or submits,
 * its work. */
#include "fake_state.h"

#include <stdlib.h>
#include <string.h>

enum { CONCURRENT_MANAGED_ACCESS = 89 }; /* an attribute */

#define HANDLE(handle) ((void *)(uintptr_t)(handle))
#define NUMBER(handle) ((uint64_t)(uintptr_t)(handle))

/* As the loader expects them. */
#define DECLARE(member, symbol, parameters) int symbol parameters;
WEIR__CUDA_CALL_MAP(DECLARE)
#undef DECLARE
int cuDriverGetVersion(int *version);
int cuMemAllocManaged(uint64_t *memory, size_t bytes, unsigned flags);
int cuLaunchHostFunc(struct CUstream_st *stream, void (*function)(void *context), void *context);

/* An entry point: takes the lock; 0, or the result with which the call ends at once. */
static int enter(void) {
    fake_lock();
    int injected = fake_injected();
    if (injected != 0) return injected;
    return fake.initialized ? 0 : WEIR__CUDA_NOT_INITIALIZED;
}

/* The same for calls that need a context, which must not be broken. */
static int enter_context(struct fake_context **context) {
    int result = enter();
    *context = fake_current();
    if (result != 0) return result;
    if (*context == NULL)
        return fake_current_handle() == 0 ? WEIR__CUDA_INVALID_CONTEXT
                                          : WEIR__CUDA_CONTEXT_IS_DESTROYED;
    return (*context)->broken;
}

static int leave(int result) {
    fake_unlock();
    return result;
}

/* ---- the library ---- */

int cuDriverGetVersion(int *version) {
    fake_lock();
    int result = fake_injected();
    if (result == 0) *version = fake.version;
    return leave(result);
}

int cuInit(unsigned flags) {
    fake_lock();
    int result = fake_injected();
    if (result == 0 && flags != 0) result = WEIR__CUDA_INVALID_VALUE;
    if (result == 0 && fake.gpu_count == 0) result = WEIR__CUDA_NO_DEVICE;
    if (result == 0) fake.initialized = true;
    return leave(result);
}

static const char *name_of(int result) {
    switch (result) {
#define NAME_CASE(name, number)                                                                    \
    case number: return number == 0 ? "CUDA_SUCCESS" : "CUDA_ERROR_" #name;
        WEIR__CUDA_RESULT_MAP(NAME_CASE)
#undef NAME_CASE
    default: return NULL;
    }
}

int cuGetErrorName(int result, const char **text) {
    *text = name_of(result);
    return *text != NULL ? 0 : WEIR__CUDA_INVALID_VALUE;
}

int cuGetErrorString(int result, const char **text) {
    *text = name_of(result) != NULL ? "as the fake driver was told" : NULL;
    return *text != NULL ? 0 : WEIR__CUDA_INVALID_VALUE;
}

/* ---- devices ---- */

static int check_gpu(int result, int device) {
    if (result != 0) return result;
    return device >= 0 && device < (int)fake.gpu_count ? 0 : WEIR__CUDA_INVALID_DEVICE;
}

int cuDeviceGetCount(int *count) {
    int result = enter();
    if (result == 0) *count = (int)fake.gpu_count;
    return leave(result);
}

int cuDeviceGet(int *device, int ordinal) {
    int result = check_gpu(enter(), ordinal);
    if (result == 0) *device = ordinal;
    return leave(result);
}

int cuDeviceGetName(char *name, int length, int device) {
    int result = check_gpu(enter(), device);
    if (result == 0) snprintf(name, (size_t)length, "Fake GPU %d", device);
    return leave(result);
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    int result = check_gpu(enter(), device);
    if (result == 0) *bytes = fake.memory_bytes;
    return leave(result);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int result = check_gpu(enter(), device);
    if (result != 0) return leave(result);
    switch (attribute) {
    case WEIR__CUDA_ATTRIBUTE_MULTIPROCESSORS: *value = 4; break;
    case WEIR__CUDA_ATTRIBUTE_UNIFIED_ADDRESSING:
        *value = (fake.flags & WEIR_FAKE_CUDA_NOT_UNIFIED) == 0;
        break;
    case WEIR__CUDA_ATTRIBUTE_HOST_POINTERS:
        *value = (fake.flags & WEIR_FAKE_CUDA_NO_HOST_POINTERS) == 0;
        break;
    case WEIR__CUDA_ATTRIBUTE_CAPABILITY_MAJOR: *value = 9; break;
    case WEIR__CUDA_ATTRIBUTE_CAPABILITY_MINOR: *value = 0; break;
    case CONCURRENT_MANAGED_ACCESS: *value = 1; break;
    default: result = WEIR__CUDA_INVALID_VALUE;
    }
    return leave(result);
}

int cuDeviceGetPCIBusId(char *address, int length, int device) {
    int result = check_gpu(enter(), device);
    if (result == 0) snprintf(address, (size_t)length, "%s", fake.gpus[device].pci);
    return leave(result);
}

int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    int result = check_gpu(check_gpu(enter(), device), peer);
    if (result == 0) *can = (int)(fake.gpus[device].reachable >> peer & 1u);
    return leave(result);
}

/* ---- contexts ---- */

int cuDevicePrimaryCtxRetain(struct CUctx_st **context, int device) {
    int result = check_gpu(enter(), device);
    if (result == 0) *context = HANDLE(fake_context_retain((uint32_t)device)->handle);
    return leave(result);
}

/* What releases something has done so even where it reports a failure, which is then that of work
 * before it. */
int cuDevicePrimaryCtxRelease_v2(int device) {
    int result = enter();
    if (check_gpu(0, device) != 0) return leave(WEIR__CUDA_INVALID_DEVICE);
    bool released = fake_context_release((uint32_t)device);
    return leave(result == 0 && !released ? WEIR__CUDA_INVALID_CONTEXT : result);
}

/* As enter, where a look is enough. */
static int enter_or_look(bool *all) {
    *all = fake_lock_or_look();
    int injected = *all ? fake_injected() : 0;
    if (injected != 0) return injected;
    return fake.initialized ? 0 : WEIR__CUDA_NOT_INITIALIZED;
}

static int leave_looked(bool all, int result) {
    fake_unlock_looked(all);
    return result;
}

int cuCtxSetCurrent(struct CUctx_st *context) {
    bool all;
    int result = enter_or_look(&all);
    if (result == 0 && context != NULL && fake_handle_find(FAKE_CONTEXT, NUMBER(context)) == NULL)
        result = WEIR__CUDA_INVALID_CONTEXT;
    if (result == 0) fake_set_current(NUMBER(context));
    return leave_looked(all, result);
}

int cuCtxGetCurrent(struct CUctx_st **context) {
    bool all;
    int result = enter_or_look(&all);
    if (result == 0) *context = HANDLE(fake_current_handle());
    return leave_looked(all, result);
}

int cuCtxEnablePeerAccess(struct CUctx_st *peer, unsigned flags) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result != 0) return leave(result);
    struct fake_context *other = fake_handle_find(FAKE_CONTEXT, NUMBER(peer));
    if (flags != 0) return leave(WEIR__CUDA_INVALID_VALUE);
    if (other == NULL || other == context) return leave(WEIR__CUDA_INVALID_CONTEXT);
    if (!(fake.gpus[context->gpu].reachable >> other->gpu & 1u))
        return leave(WEIR__CUDA_PEER_ACCESS_UNSUPPORTED);
    if (context->peers >> other->gpu & 1u) return leave(WEIR__CUDA_PEER_ACCESS_ALREADY_ENABLED);
    context->peers |= 1u << other->gpu;
    return leave(0);
}

/* ---- memory ---- */

int cuMemAlloc_v2(uint64_t *memory, size_t bytes) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result == 0) result = fake_memory_new(context->gpu, bytes, false, memory);
    return leave(result);
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result == 0) {
        *total = fake.memory_bytes;
        *free = fake.memory_bytes - fake.gpus[context->gpu].memory_used;
    }
    return leave(result);
}

/* For tests/managed_cuda, as cuLaunchHostFunc. */
int cuMemAllocManaged(uint64_t *memory, size_t bytes, unsigned flags) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result == 0 && flags != 1) result = WEIR__CUDA_INVALID_VALUE;
    if (result == 0) result = fake_memory_new(context->gpu, bytes, true, memory);
    return leave(result);
}

int cuMemFree_v2(uint64_t memory) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (context == NULL) return leave(result);
    bool freed = fake_memory_end(memory);
    if (!freed) fake_fault("cuMemFree: %p is no memory of a GPU", HANDLE(memory));
    return leave(result == 0 && !freed ? WEIR__CUDA_INVALID_VALUE : result);
}

int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result == 0 && flags > 15) result = WEIR__CUDA_INVALID_VALUE;
    if (result == 0) result = fake_pin_new(context->gpu, memory, bytes);
    return leave(result);
}

int cuMemHostUnregister(void *memory) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (context == NULL) return leave(result);
    bool unpinned = fake_pin_end(memory);
    return leave(result == 0 && !unpinned ? WEIR__CUDA_HOST_MEMORY_NOT_REGISTERED : result);
}

/* Work of a stream: its context may be another than the current one for copies, as the programming
 * guide says, and for fills. */
static int enter_stream(struct CUstream_st *handle, struct fake_stream **stream) {
    struct fake_context *context;
    int result = enter_context(&context);
    *stream = NULL;
    if (result != 0) return result;
    *stream = fake_stream_of(handle);
    if (*stream == NULL) return WEIR__CUDA_INVALID_HANDLE;
    return (*stream)->context->broken;
}

int cuMemsetD8Async(uint64_t memory, unsigned char value, size_t bytes,
                    struct CUstream_st *stream) {
    struct fake_stream *on;
    int result = enter_stream(stream, &on);
    if (result != 0 || bytes == 0) return leave(result);
    enum fake_place place = fake_place_of(on->context, HANDLE(memory), bytes, "cuMemsetD8Async");
    if (place != FAKE_DEVICE && place != FAKE_PINNED) return leave(WEIR__CUDA_INVALID_VALUE);
    struct fake_op *op =
        fake_op_new(FAKE_FILL, fake_log("cuMemsetD8Async", on, NULL, HANDLE(memory), NULL, bytes));
    op->to = HANDLE(memory);
    op->bytes = bytes;
    op->value = value;
    fake_submit(on, op);
    return leave(0);
}

/* Whether the caller must wait: what comes to pageable memory, and what goes between the host's
 * own. */
static bool copy_blocks(enum fake_place to, enum fake_place from) {
    return to == FAKE_PAGEABLE || (to != FAKE_DEVICE && from != FAKE_DEVICE);
}

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, struct CUstream_st *stream) {
    struct fake_stream *on;
    int result = enter_stream(stream, &on);
    if (result != 0 || bytes == 0) return leave(result);
    enum fake_place to_place = fake_place_of(on->context, HANDLE(to), bytes, "cuMemcpyAsync to");
    enum fake_place from_place =
        fake_place_of(on->context, HANDLE(from), bytes, "cuMemcpyAsync from");
    if (to_place == FAKE_FORBIDDEN || from_place == FAKE_FORBIDDEN)
        return leave(WEIR__CUDA_INVALID_VALUE);
    struct fake_op *op = fake_op_new(
        FAKE_COPY, fake_log("cuMemcpyAsync", on, NULL, HANDLE(to), HANDLE(from), bytes));
    op->to = HANDLE(to);
    op->from = HANDLE(from);
    op->bytes = bytes;
    if (from_place == FAKE_PAGEABLE && to_place == FAKE_DEVICE) {
        op->from = memcpy(fake_new(bytes), op->from, bytes);
        op->staged = true;
    }
    fake_submit(on, op);
    if (copy_blocks(to_place, from_place)) fake_force_stream(on);
    return leave(on->context->broken);
}

/* ---- streams ---- */

int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    struct fake_context *context;
    int result = enter_context(&context);
    *least = 0;
    *greatest = WEIR_FAKE_CUDA_PRIORITY;
    return leave(result);
}

/* Priorities order nothing that a program may rely on, and so nothing here. */
int cuStreamCreateWithPriority(struct CUstream_st **stream, unsigned flags, int priority) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result == 0 && flags > WEIR__CUDA_STREAM_NON_BLOCKING) result = WEIR__CUDA_INVALID_VALUE;
    if (result == 0) *stream = HANDLE(fake_stream_new(context, flags == 0, false)->handle);
    if (result == 0 && priority == WEIR_FAKE_CUDA_PRIORITY) fake.counts.preferred++;
    return leave(result);
}

int cuStreamDestroy_v2(struct CUstream_st *stream) {
    struct fake_context *context;
    int result = enter_context(&context);
    struct fake_stream *gone = fake_handle_find(FAKE_STREAM, NUMBER(stream));
    if (gone != NULL) fake_stream_end(gone);
    return leave(result == 0 && gone == NULL ? WEIR__CUDA_INVALID_HANDLE : result);
}

int cuStreamSynchronize(struct CUstream_st *stream) {
    struct fake_stream *on;
    int result = enter_stream(stream, &on);
    if (result != 0) return leave(result);
    (void)fake_log("cuStreamSynchronize", on, NULL, NULL, NULL, 0);
    fake_force_stream(on);
    return leave(on->context->broken);
}

static struct weir_fake_cuda_wait wait_of(const struct fake_stream *stream,
                                          const struct fake_record *record) {
    if (record == NULL) return (struct weir_fake_cuda_wait){.blocks = stream == NULL};
    return (struct weir_fake_cuda_wait){.blocks = stream == NULL,
                                        .recorded = true,
                                        .done = record->done,
                                        .implied =
                                            stream != NULL && fake_is_implied(stream, record)};
}

int cuStreamWaitEvent(struct CUstream_st *stream, struct CUevent_st *event, unsigned flags) {
    struct fake_stream *on;
    int result = enter_stream(stream, &on);
    if (result != 0) return leave(result);
    struct fake_event *of = fake_handle_find(FAKE_EVENT, NUMBER(event));
    if (of == NULL) return leave(WEIR__CUDA_INVALID_HANDLE);
    if (flags != 0) return leave(WEIR__CUDA_INVALID_VALUE);
    struct weir_fake_cuda_wait wait = wait_of(on, of->record);
    wait.of = on->number;
    uint64_t entry = fake_log("cuStreamWaitEvent", on, of, NULL, NULL, 0);
    bool dropped = fake_note_wait(&wait, of->record);
    if (!dropped && of->record != NULL) fake_submit_wait(on, of->record, entry);
    return leave(of->context->broken);
}

/* ---- events ---- */

int cuEventCreate(struct CUevent_st **event, unsigned flags) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result == 0 && flags > 3) result = WEIR__CUDA_INVALID_VALUE;
    if (result != 0) return leave(result);
    struct fake_event *made = fake_new(sizeof *made);
    made->context = context;
    made->timed = (flags & WEIR__CUDA_EVENT_DISABLE_TIMING) == 0;
    made->number = ++fake.event_numbers;
    made->handle = fake_handle_new(FAKE_EVENT, made);
    fake.counts.events++;
    *event = HANDLE(made->handle);
    return leave(0);
}

/* The event, in a context that can be used. */
static int enter_event(struct CUevent_st *handle, struct fake_event **event) {
    struct fake_context *context;
    int result = enter_context(&context);
    *event = fake_handle_find(FAKE_EVENT, NUMBER(handle));
    if (result != 0) return result;
    return *event == NULL ? WEIR__CUDA_INVALID_HANDLE : (*event)->context->broken;
}

int cuEventDestroy_v2(struct CUevent_st *event) {
    struct fake_event *gone;
    int result = enter_event(event, &gone);
    if (gone == NULL) return leave(result);
    fake_handle_end(gone->handle);
    fake_record_release(gone->record);
    free(gone);
    fake.counts.events--;
    return leave(result);
}

int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream) {
    struct fake_stream *on;
    int result = enter_stream(stream, &on);
    if (result != 0) return leave(result);
    struct fake_event *of = fake_handle_find(FAKE_EVENT, NUMBER(event));
    if (of == NULL || of->context != on->context) return leave(WEIR__CUDA_INVALID_HANDLE);
    (void)fake_log("cuEventRecord", on, of, NULL, NULL, 0);
    fake_record_release(of->record);
    of->record = fake_submit_record(on);
    return leave(0);
}

/* Where a function of the host runs, another thread sees what is done and makes nothing run. */
int cuEventQuery(struct CUevent_st *event) {
    bool all;
    int result = enter_or_look(&all);
    const struct fake_event *of = fake_handle_find(FAKE_EVENT, NUMBER(event));
    if (result == 0 && fake_current() == NULL) result = WEIR__CUDA_INVALID_CONTEXT;
    if (result == 0 && of == NULL) result = WEIR__CUDA_INVALID_HANDLE;
    if (result == 0) result = of->context->broken;
    if (result != 0 || of->record == NULL) return leave_looked(all, result);
    bool done = all ? fake_poll(of->record, NULL) : of->record->done;
    return leave_looked(all, done ? of->context->broken : WEIR__CUDA_NOT_READY);
}

int cuEventSynchronize(struct CUevent_st *event) {
    struct fake_event *of;
    int result = enter_event(event, &of);
    if (result != 0) return leave(result);
    struct weir_fake_cuda_wait wait = wait_of(NULL, of->record);
    wait.of = of->number;
    (void)fake_log("cuEventSynchronize", NULL, of, NULL, NULL, 0);
    bool dropped = fake_note_wait(&wait, of->record);
    if (!dropped && of->record != NULL) fake_force_record(of->record);
    return leave(of->context->broken);
}

int cuEventElapsedTime(float *milliseconds, struct CUevent_st *start, struct CUevent_st *end) {
    struct fake_event *first;
    int result = enter_event(start, &first);
    struct fake_event *last = fake_handle_find(FAKE_EVENT, NUMBER(end));
    if (result != 0) return leave(result);
    if (last == NULL || last->context != first->context || !first->timed || !last->timed ||
        first->record == NULL || last->record == NULL)
        return leave(WEIR__CUDA_INVALID_HANDLE);
    bool done = fake_poll(first->record, NULL);
    done = fake_poll(last->record, NULL) && done;
    if (!done) return leave(WEIR__CUDA_NOT_READY);
    *milliseconds = (float)((double)(int64_t)(last->record->ns - first->record->ns) * 1e-6);
    return leave(first->context->broken);
}

/* ---- kernels ---- */

struct fake_module {
    struct fake_context *context; /* first: see is_of */
};

int cuModuleLoadData(struct CUmod_st **module, const void *image) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result == 0 && image == NULL) result = WEIR__CUDA_INVALID_VALUE;
    if (result == 0 && fake_is_planted("image")) result = WEIR__CUDA_UNSUPPORTED_PTX_VERSION;
    if (result != 0) return leave(result);
    struct fake_module *made = fake_new(sizeof *made);
    made->context = context;
    fake.counts.modules++;
    *module = HANDLE(fake_handle_new(FAKE_MODULE, made));
    return leave(0);
}

int cuModuleUnload(struct CUmod_st *module) {
    struct fake_context *context;
    int result = enter_context(&context);
    struct fake_module *gone = fake_handle_find(FAKE_MODULE, NUMBER(module));
    if (gone == NULL) return leave(result != 0 ? result : WEIR__CUDA_INVALID_HANDLE);
    fake_handle_end(NUMBER(module));
    free(gone);
    fake.counts.modules--;
    return leave(result);
}

static const struct fake_cuda_kernel *find_kernel(const struct fake_cuda_kernel *kernels,
                                                  size_t count, const char *name) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(kernels[i].name, name) == 0) return &kernels[i];
    return NULL;
}

int cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result != 0) return leave(result);
    if (fake_handle_find(FAKE_MODULE, NUMBER(module)) == NULL)
        return leave(WEIR__CUDA_INVALID_HANDLE);
    const struct fake_cuda_kernel *kernel = find_kernel(fake.kernels, fake.kernel_count, name);
    if (kernel == NULL) kernel = find_kernel(fake_cuda_kernels, fake_cuda_kernel_count, name);
    if (kernel == NULL) return leave(WEIR__CUDA_NOT_FOUND);
    *function = HANDLE(fake_handle_new(FAKE_FUNCTION, (void *)(uintptr_t)kernel));
    return leave(0);
}

int cuFuncGetAttribute(int *value, int attribute, struct CUfunc_st *function) {
    struct fake_context *context;
    int result = enter_context(&context);
    if (result == 0 && fake_handle_find(FAKE_FUNCTION, NUMBER(function)) == NULL)
        result = WEIR__CUDA_INVALID_HANDLE;
    if (result == 0 && attribute != WEIR__CUDA_FUNCTION_LOCAL_BYTES)
        result = WEIR__CUDA_INVALID_VALUE;
    if (result == 0) *value = 0;
    return leave(result);
}

/* Pointers to the arguments and behind them the arguments, 16-byte aligned. NULL: too long. */
static void *copy_arguments(const struct fake_cuda_kernel *kernel, void *const *arguments) {
    size_t count = 0, bytes = 0;
    for (; kernel->parameter_bytes[count] > 0; count++)
        bytes += (kernel->parameter_bytes[count] + 15) / 16 * 16;
    if (bytes > FAKE_ARGUMENT_BYTES_MAX) return NULL;
    size_t at = (count * sizeof(void *) + 15) / 16 * 16;
    char *made = fake_new(at + bytes);
    for (size_t i = 0; i < count; i++) {
        ((void **)made)[i] = memcpy(made + at, arguments[i], kernel->parameter_bytes[i]);
        at += (kernel->parameter_bytes[i] + 15) / 16 * 16;
    }
    return made;
}

static bool fits(const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes) {
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    return grid[0] > 0 && grid[1] > 0 && grid[2] > 0 && grid[0] < 1u << 31 && grid[1] < 1u << 16 &&
           grid[2] < 1u << 16 && threads > 0 && block[0] <= 1024 && block[1] <= 1024 &&
           block[2] <= 64 && threads <= 1024 && shared_bytes <= 48u << 10;
}

int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   struct CUstream_st *stream, void **arguments, void **extra) {
    struct fake_stream *on;
    int result = enter_stream(stream, &on);
    if (result != 0) return leave(result);
    const struct fake_cuda_kernel *kernel = fake_handle_find(FAKE_FUNCTION, NUMBER(function));
    if (kernel == NULL || on->context != fake_current()) return leave(WEIR__CUDA_INVALID_HANDLE);
    const uint32_t grid[3] = {grid_x, grid_y, grid_z}, block[3] = {block_x, block_y, block_z};
    void *copied =
        fits(grid, block, shared_bytes) && extra == NULL ? copy_arguments(kernel, arguments) : NULL;
    if (copied == NULL) return leave(WEIR__CUDA_INVALID_VALUE);
    struct fake_op *op =
        fake_op_new(FAKE_RUN, fake_log(kernel->name, on, NULL, NULL, NULL, shared_bytes));
    op->kernel = kernel;
    op->arguments = copied;
    memcpy(op->grid, grid, sizeof grid);
    memcpy(op->block, block, sizeof block);
    op->shared_bytes = shared_bytes;
    fake_submit(on, op);
    return leave(0);
}

struct host_call {
    void (*function)(void *context);
    void *context;
};

static void run_host_call(const void *arguments) {
    const struct host_call *call = arguments;
    call->function(call->context);
}

int cuLaunchHostFunc(struct CUstream_st *stream, void (*function)(void *context), void *context) {
    struct fake_stream *on;
    int result = enter_stream(stream, &on);
    if (result == 0 && function == NULL) result = WEIR__CUDA_INVALID_VALUE;
    if (result != 0) return leave(result);
    struct fake_op *op =
        fake_op_new(FAKE_RUN, fake_log("cuLaunchHostFunc", on, NULL, NULL, NULL, 0));
    struct host_call *call = fake_new(sizeof *call);
    *call = (struct host_call){function, context};
    op->run = run_host_call;
    op->arguments = call;
    fake_submit(on, op);
    return leave(0);
}
