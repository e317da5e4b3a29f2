/* SPDX-License-Identifier: MIT */
/**
 * CUDA's driver API, declared by ourselves and opened at run time, so that one binary serves
 * machines with and without a GPU and nothing of CUDA is needed to build or link it.
 *
 * The library is libcuda.so.1, which comes with the NVIDIA driver, or the file that the environment
 * variable WEIR_CUDA_DRIVER names: another driver, or the tests' fake one
 * (tests/fake_cuda/fake_cuda.h), which is known by its symbol `weir_fake_cuda_control`. The least
 * version is CUDA 12.0's (525.60.13 on Linux).
 *
 * Functions of the table return CUDA's CUresult as an int; weir__cuda_status makes a status of it.
 * What a stream is called in CUDA's own header (CUstream) is a pointer to the same struct here, so
 * that both headers may be included.
 */
#ifndef WEIR_DEVICE_CUDA_DRIVER_H
#define WEIR_DEVICE_CUDA_DRIVER_H

#include "base/base.h"

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;

#define WEIR__CUDA_VERSION_MIN 12000 /**< 1000 * major + 10 * minor */
#define WEIR__CUDA_GPUS_MAX 64

/** Those of CUDA's results that Weir tells apart: X(NAME, number). */
#define WEIR__CUDA_RESULT_MAP(X)                                                                   \
    X(SUCCESS, 0)                                                                                  \
    X(INVALID_VALUE, 1)                                                                            \
    X(OUT_OF_MEMORY, 2)                                                                            \
    X(NOT_INITIALIZED, 3)                                                                          \
    X(STUB_LIBRARY, 34)                                                                            \
    X(NO_DEVICE, 100)                                                                              \
    X(INVALID_DEVICE, 101)                                                                         \
    X(INVALID_IMAGE, 200)                                                                          \
    X(INVALID_CONTEXT, 201)                                                                        \
    X(NO_BINARY_FOR_GPU, 209)                                                                      \
    X(INVALID_PTX, 218)                                                                            \
    X(UNSUPPORTED_PTX_VERSION, 222)                                                                \
    X(PEER_ACCESS_UNSUPPORTED, 217)                                                                \
    X(ECC_UNCORRECTABLE, 214)                                                                      \
    X(NVLINK_UNCORRECTABLE, 220)                                                                   \
    X(INVALID_HANDLE, 400)                                                                         \
    X(NOT_FOUND, 500)                                                                              \
    X(NOT_READY, 600)                                                                              \
    X(ILLEGAL_ADDRESS, 700)                                                                        \
    X(LAUNCH_OUT_OF_RESOURCES, 701)                                                                \
    X(LAUNCH_TIMEOUT, 702)                                                                         \
    X(PEER_ACCESS_ALREADY_ENABLED, 704)                                                            \
    X(CONTEXT_IS_DESTROYED, 709)                                                                   \
    X(ASSERT, 710)                                                                                 \
    X(HOST_MEMORY_ALREADY_REGISTERED, 712)                                                         \
    X(HOST_MEMORY_NOT_REGISTERED, 713)                                                             \
    X(HARDWARE_STACK_ERROR, 714)                                                                   \
    X(ILLEGAL_INSTRUCTION, 715)                                                                    \
    X(MISALIGNED_ADDRESS, 716)                                                                     \
    X(INVALID_ADDRESS_SPACE, 717)                                                                  \
    X(INVALID_PC, 718)                                                                             \
    X(LAUNCH_FAILED, 719)                                                                          \
    X(SYSTEM_DRIVER_MISMATCH, 803)                                                                 \
    X(UNKNOWN, 999)

enum weir__cuda_result {
#define WEIR__CUDA_RESULT_ENUM(name, number) WEIR__CUDA_##name = (number),
    WEIR__CUDA_RESULT_MAP(WEIR__CUDA_RESULT_ENUM)
#undef WEIR__CUDA_RESULT_ENUM
};

/** Flags and attributes, by CUDA's numbers. */
enum {
    WEIR__CUDA_STREAM_NON_BLOCKING = 1,
    WEIR__CUDA_EVENT_DISABLE_TIMING = 2,
    WEIR__CUDA_HOST_REGISTER_PORTABLE = 1,
    WEIR__CUDA_HOST_REGISTER_DEVICEMAP = 2,
    WEIR__CUDA_FUNCTION_LOCAL_BYTES = 3, /* of a thread: CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES */
    WEIR__CUDA_ATTRIBUTE_MULTIPROCESSORS = 16,
    WEIR__CUDA_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
    WEIR__CUDA_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    WEIR__CUDA_ATTRIBUTE_CAPABILITY_MINOR = 76,
    WEIR__CUDA_ATTRIBUTE_HOST_POINTERS = 91 /* registered memory has one address for both */
};

/** Every function that is used: X(member, symbol, parameters). A device pointer is a uint64_t, a
 * device an int. */
#define WEIR__CUDA_CALL_MAP(X)                                                                     \
    X(init, cuInit, (unsigned flags))                                                              \
    X(get_error_name, cuGetErrorName, (int result, const char **text))                             \
    X(get_error_string, cuGetErrorString, (int result, const char **text))                         \
    X(device_get_count, cuDeviceGetCount, (int *count))                                            \
    X(device_get, cuDeviceGet, (int *device, int ordinal))                                         \
    X(device_get_name, cuDeviceGetName, (char *name, int length, int device))                      \
    X(device_total_memory, cuDeviceTotalMem_v2, (size_t * bytes, int device))                      \
    X(device_get_attribute, cuDeviceGetAttribute, (int *value, int attribute, int device))         \
    X(device_get_pci, cuDeviceGetPCIBusId, (char *address, int length, int device))                \
    X(device_can_access_peer, cuDeviceCanAccessPeer, (int *can, int device, int peer))             \
    X(context_retain, cuDevicePrimaryCtxRetain, (struct CUctx_st * *context, int device))          \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (int device))                                 \
    X(context_set_current, cuCtxSetCurrent, (struct CUctx_st * context))                           \
    X(context_get_current, cuCtxGetCurrent, (struct CUctx_st * *context))                          \
    X(context_enable_peer, cuCtxEnablePeerAccess, (struct CUctx_st * peer, unsigned flags))        \
    X(memory_allocate, cuMemAlloc_v2, (uint64_t * memory, size_t bytes))                           \
    X(memory_free, cuMemFree_v2, (uint64_t memory))                                                \
    X(memory_get_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                           \
    X(memory_fill, cuMemsetD8Async,                                                                \
      (uint64_t memory, unsigned char value, size_t bytes, struct CUstream_st *stream))            \
    X(memory_copy, cuMemcpyAsync,                                                                  \
      (uint64_t to, uint64_t from, size_t bytes, struct CUstream_st * stream))                     \
    X(host_register, cuMemHostRegister_v2, (void *memory, size_t bytes, unsigned flags))           \
    X(host_unregister, cuMemHostUnregister, (void *memory))                                        \
    X(stream_priorities, cuCtxGetStreamPriorityRange, (int *least, int *greatest))                 \
    X(stream_create, cuStreamCreateWithPriority,                                                   \
      (struct CUstream_st * *stream, unsigned flags, int priority))                                \
    X(stream_destroy, cuStreamDestroy_v2, (struct CUstream_st * stream))                           \
    X(stream_synchronize, cuStreamSynchronize, (struct CUstream_st * stream))                      \
    X(stream_wait_event, cuStreamWaitEvent,                                                        \
      (struct CUstream_st * stream, struct CUevent_st * event, unsigned flags))                    \
    X(event_create, cuEventCreate, (struct CUevent_st * *event, unsigned flags))                   \
    X(event_destroy, cuEventDestroy_v2, (struct CUevent_st * event))                               \
    X(event_record, cuEventRecord, (struct CUevent_st * event, struct CUstream_st * stream))       \
    X(event_query, cuEventQuery, (struct CUevent_st * event))                                      \
    X(event_synchronize, cuEventSynchronize, (struct CUevent_st * event))                          \
    X(event_elapsed, cuEventElapsedTime,                                                           \
      (float *milliseconds, struct CUevent_st *start, struct CUevent_st *end))                     \
    X(module_load, cuModuleLoadData, (struct CUmod_st * *module, const void *image))               \
    X(module_unload, cuModuleUnload, (struct CUmod_st * module))                                   \
    X(module_get_function, cuModuleGetFunction,                                                    \
      (struct CUfunc_st * *function, struct CUmod_st * module, const char *name))                  \
    X(function_get_attribute, cuFuncGetAttribute,                                                  \
      (int *value, int attribute, struct CUfunc_st *function))                                     \
    X(launch, cuLaunchKernel,                                                                      \
      (struct CUfunc_st * function, unsigned grid_x, unsigned grid_y, unsigned grid_z,             \
       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                \
       struct CUstream_st *stream, void **arguments, void **extra))

/** The opened library. Filled by weir__cuda_driver_open, read-only from then on, so any thread may
 * call through it. */
struct weir__cuda_driver {
    void *library;
    int version;   /**< as WEIR__CUDA_VERSION_MIN */
    int gpu_count; /**< at least 1 */
    bool fake;
    int (*driver_get_version)(int *version);
#define WEIR__CUDA_MEMBER(member, symbol, parameters) int(*member) parameters;
    WEIR__CUDA_CALL_MAP(WEIR__CUDA_MEMBER)
#undef WEIR__CUDA_MEMBER
};

/** Opens the library, checks that it has all functions and is new enough, and that there is a GPU;
 * makes no context. WEIR_ERR_NOT_FOUND: no library, or no GPU; WEIR_ERR_UNSUPPORTED: too old, or no
 * such library; else the status of the call that failed. `error` (may be NULL) says what is missing
 * and how to mend it. On success the caller calls weir__cuda_driver_close. Any thread. */
int weir__cuda_driver_open(struct weir__cuda_driver *driver, struct weir_error *error);
/** Accepts one that was zeroed. The library itself stays in the process. */
void weir__cuda_driver_close(struct weir__cuda_driver *driver);

/** The version of CUDA that this machine's driver is for, as weir__cuda_driver.version, without
 * starting it; 0: there is none, or it does not say. Any thread. */
int weir__cuda_driver_version(void);

/** Whether `ordinal` is one of its GPUs: WEIR_ERR_NOT_FOUND, named in `error`. */
int weir__cuda_driver_find(const struct weir__cuda_driver *driver, uint32_t ordinal,
                           struct weir_error *error);

/** WEIR_OK, WEIR_ERR_OUT_OF_MEMORY, WEIR_ERR_DEVICE for what is sticky (nothing that the context
 * holds can be used any more), WEIR_ERR_BACKEND for all others. */
int weir__cuda_status(int result);
/** Whether the result stays: every later call in its context will give it. */
bool weir__cuda_is_sticky(int result);
/** "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", in the driver's own words, cut at
 * `capacity`. Returns `text`. */
const char *weir__cuda_text(const struct weir__cuda_driver *driver, const char *call, int result,
                            char *text, size_t capacity);

#endif
