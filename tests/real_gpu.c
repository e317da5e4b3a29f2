/* SPDX-License-Identifier: MIT */
/* Devices of the library's own, opened for as long as the tests run: their drivers, contexts and
 * streams serve all that tests do beside what they test. */
#include "real_gpu.h"

#include "net/cuda/kernels.h"
#include "toys/toys.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { GPUS_MAX = 8, BOUNCE_BYTES = 1 << 20, ATTRIBUTE_CONCURRENT_MANAGED = 89 };

typedef void host_fn(void *context);
typedef int launch_host_fn(struct CUstream_st *stream, host_fn *function, void *context);

static struct {
    struct weir__cuda_device *device; /* the first; NULL: not opened */
    uint32_t count;
    struct weir_stream *streams[GPUS_MAX]; /* of every one */
    struct toys toys;
    void *bounce;                /* pinned: what peek and poke go through */
    launch_host_fn *launch_host; /* NULL: there is no managed memory */
    char name[160];
} gpu;

/* ---- copies past all order ---- */

static bool check(int status) {
    char text[256];
    if (status == WEIR_OK) return true;
    gpu.device->device.calls->explain(&gpu.device->device, text, sizeof text);
    TEST_FAIL("the GPU's driver: %s", text);
    return false;
}

/* On the first GPU, or, where it does not reach another one's memory, on that one. */
static int copy(void *to, const void *from, size_t bytes) {
    int status = WEIR_ERR_BACKEND;
    for (uint32_t g = 0; status == WEIR_ERR_BACKEND && g < gpu.count; g++) {
        struct weir__device *device = gpu.streams[g]->device;
        struct weir__cuda_scope scope;
        status = weir__cuda_scope_begin(weir__cuda_device(device), &scope);
        if (status == WEIR_OK) status = device->calls->copy(gpu.streams[g], to, from, bytes);
        if (status == WEIR_OK) status = device->calls->stream_finish(gpu.streams[g]);
        weir__cuda_scope_end(weir__cuda_device(device), &scope);
    }
    return status;
}

/* Memory of the host is not pinned: part by part through memory that is. */
static bool move(char *to, const char *from, size_t bytes, bool to_device) {
    bool moved = true;
    for (size_t at = 0; moved && at < bytes; at += BOUNCE_BYTES) {
        size_t part = bytes - at < BOUNCE_BYTES ? bytes - at : BOUNCE_BYTES;
        if (to_device) memcpy(gpu.bounce, from + at, part);
        moved =
            check(to_device ? copy(to + at, gpu.bounce, part) : copy(gpu.bounce, from + at, part));
        if (moved && !to_device) memcpy(to + at, gpu.bounce, part);
    }
    return moved;
}

static bool peek(void *host, const void *device, size_t bytes) {
    return move(host, device, bytes, false);
}

static bool poke(void *device, const void *host, size_t bytes) {
    return move(device, host, bytes, true);
}

/* ---- functions of the host in a stream ---- */

struct call {
    weir_fake_cuda_fn *run;
    _Alignas(16) unsigned char arguments[];
};

static void run_call(void *context) {
    struct call *call = context;
    call->run(call->arguments);
    free(call);
}

static int launch(void *stream, weir_fake_cuda_fn *run, const void *arguments, size_t bytes) {
    struct call *call = malloc(sizeof *call + bytes);
    if (call == NULL) return WEIR__CUDA_OUT_OF_MEMORY;
    call->run = run;
    memcpy(call->arguments, arguments, bytes);
    int result = gpu.launch_host(stream, run_call, call);
    if (result != 0) free(call);
    return result;
}

/* ---- what a real driver cannot be told ---- */

static void ignore_reset(uint64_t seed, uint32_t gpu_count, uint32_t flags) {
    (void)seed, (void)gpu_count, (void)flags;
}

static void ignore_order(enum weir_fake_cuda_order order) {
    (void)order;
}

static void count_nothing(struct weir_fake_cuda_counts *counts) {
    memset(counts, 0, sizeof *counts);
}

/* The host reads managed memory itself. */
static bool leave_to_host(void *to, const void *from, size_t bytes) {
    (void)to, (void)from, (void)bytes;
    return false;
}

static const struct weir_fake_cuda_control with_own_memory = {.reset = ignore_reset,
                                                              .set_order = ignore_order,
                                                              .counts = count_nothing,
                                                              .peek = peek,
                                                              .poke = poke};
static const struct weir_fake_cuda_control with_managed_memory = {.reset = ignore_reset,
                                                                  .set_order = ignore_order,
                                                                  .counts = count_nothing,
                                                                  .peek = leave_to_host,
                                                                  .poke = leave_to_host,
                                                                  .launch = launch};

/* ---- opening ---- */

static void find_managed(void) {
    const struct weir__cuda_driver *driver = &gpu.device->driver;
    int concurrent = 0;
    int result =
        driver->device_get_attribute(&concurrent, ATTRIBUTE_CONCURRENT_MANAGED, gpu.device->gpu);
    if (result != 0 || !concurrent || test_managed_cuda_path() == NULL) return;
    void *function = dlsym(driver->library, "cuLaunchHostFunc");
    memcpy(&gpu.launch_host, &function, sizeof function);
}

static void describe(void) {
    const struct weir__cuda_driver *driver = &gpu.device->driver;
    char name[96] = "a GPU";
    (void)driver->device_get_name(name, sizeof name, gpu.device->gpu);
    snprintf(gpu.name, sizeof gpu.name, "%d x %s, CUDA %d.%d%s", driver->gpu_count, name,
             driver->version / 1000, driver->version % 1000 / 10,
             driver->fake ? ", which is the fake driver: nothing is tested on a GPU" : "");
}

static int set_up(struct weir__device *device) {
    const struct weir__device_calls *calls = device->calls;
    gpu.device = weir__cuda_device(device);
    gpu.bounce =
        mmap(NULL, BOUNCE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (gpu.bounce == MAP_FAILED) return WEIR_ERR_OUT_OF_MEMORY;
    int status = calls->host_pin(device, gpu.bounce, BOUNCE_BYTES);
    if (status == WEIR_OK) status = calls->stream_new(device, &gpu.streams[0]);
    if (status != WEIR_OK) return status;
    gpu.count = 1;
    return toys_load(&gpu.toys, device);
}

static int open_others(struct weir_error *error) {
    int status = WEIR_OK;
    for (char name[] = "cuda:1"; status == WEIR_OK && gpu.count < GPUS_MAX; name[5]++) {
        struct weir__device *device = NULL;
        if ((int)gpu.count == gpu.device->driver.gpu_count) break;
        status = weir__device_open(name, NULL, error, &device);
        if (status != WEIR_OK) continue;
        status = device->calls->stream_new(device, &gpu.streams[gpu.count]);
        if (status == WEIR_OK)
            gpu.count++;
        else
            device->calls->close(device);
    }
    return status;
}

uint32_t real_gpu_open(struct weir_error *error) {
    struct weir__device *device = NULL;
    int status = weir__device_open("cuda", NULL, error, &device);
    if (status != WEIR_OK) return 0;
    status = set_up(device);
    if (status != WEIR_OK) {
        size_t capacity = sizeof error->message;
        device->calls->explain(device, error->message, capacity);
        if (error->message[0] == '\0')
            snprintf(error->message, capacity, "no kernels of the tests");
        return 0;
    }
    if (open_others(error) != WEIR_OK) return 0;
    find_managed();
    describe();
    return (uint32_t)gpu.device->driver.gpu_count;
}

const char *real_gpu_name(void) {
    return gpu.name;
}

bool real_gpu_is_fake(void) {
    return gpu.device->driver.fake;
}

void real_gpu_close(void) {
    if (gpu.device == NULL) return;
    struct weir__device *device = &gpu.device->device;
    toys_unload(&gpu.toys);
    device->calls->host_unpin(device, gpu.bounce, BOUNCE_BYTES);
    while (gpu.count > 0) {
        struct weir_stream *stream = gpu.streams[--gpu.count];
        struct weir__device *owner = stream->device;
        owner->calls->stream_destroy(stream);
        owner->calls->close(owner);
    }
    gpu.device = NULL;
}

const struct weir_fake_cuda_control *real_gpus(uint32_t count, bool managed) {
    uint32_t there = (uint32_t)gpu.device->driver.gpu_count;
    if (there < count) {
        test_skip("it takes %u GPUs, and there %s %u", count, there == 1 ? "is" : "are", there);
        return NULL;
    }
    if (!managed) return &with_own_memory;
    if (gpu.launch_host == NULL) {
        test_skip("the host cannot touch this GPU's managed memory while the GPU works");
        return NULL;
    }
    const char *own = getenv("WEIR_CUDA_DRIVER");
    if (own != NULL) EXPECT(setenv("WEIR_TEST_CUDA_DRIVER", own, 1) == 0);
    EXPECT(setenv("WEIR_CUDA_DRIVER", test_managed_cuda_path(), 1) == 0);
    return &with_managed_memory;
}

/* ---- kernels by name ---- */

static bool find_in(const struct weir__cuda_set *set, const char *symbol,
                    struct CUfunc_st **function) {
    if (!check(weir__cuda_set_need(&gpu.device->device, set, NULL))) return false;
    for (uint32_t k = 0; k < set->kernel_count; k++) {
        if (strcmp(set->names[k], symbol) != 0) continue;
        *function = weir__cuda_modules_of(gpu.device, set)->functions[k];
        return true;
    }
    return false;
}

static bool find_kernel(const char *name, struct CUfunc_st **function) {
    char symbol[128];
    bool whole = strncmp(name, "weir_", 5) == 0;
    snprintf(symbol, sizeof symbol, "%s%s", whole ? "" : "weir_", name);
    return find_in(&weir__cuda_engine_kernels, symbol, function) ||
           find_in(&weir__net_kernel_set, symbol, function) ||
           check(toys_find(&gpu.toys, symbol, function));
}

bool real_gpu_run(const char *name, const struct weir__cuda_grid *grid, void **arguments) {
    struct CUfunc_st *function = NULL;
    struct weir__cuda_scope scope;
    bool ran = check(weir__cuda_scope_begin(gpu.device, &scope)) && find_kernel(name, &function) &&
               check(toys_launch(gpu.streams[0], function, grid, arguments)) &&
               check(gpu.device->device.calls->stream_finish(gpu.streams[0]));
    weir__cuda_scope_end(gpu.device, &scope);
    return ran;
}

bool real_gpu_pin(void *memory, size_t bytes) {
    struct weir__device *device = &gpu.device->device;
    return check(device->calls->host_pin(device, memory, bytes));
}

void real_gpu_unpin(void *memory) {
    struct weir__device *device = &gpu.device->device;
    device->calls->host_unpin(device, memory, 1);
}
