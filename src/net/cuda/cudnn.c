/* SPDX-License-Identifier: MIT */
/* Convolutions by cuDNN: the library, a handle for each stream, plans, and running them. */
#include "net/cuda/cudnn.h"

#include "device/gpus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/** One convolution, ready to run. */
struct convolution {
    struct weir__cuda_convolution of;
    struct weir__cudnn_stream *stream;
    struct weir__cudnn_plan plan;
};

int weir__cudnn_status(const struct weir__cudnn *cudnn, const char *call, int result,
                       struct weir__cuda_failure *failure) {
    if (result == WEIR__CUDNN_SUCCESS) return WEIR_OK;
    const char *name = cudnn->get_error_string(result);
    *failure = (struct weir__cuda_failure){call, result, name != NULL ? name : "unknown status"};
    if (result == WEIR__CUDNN_HOST_ALLOCATION_FAILED ||
        result == WEIR__CUDNN_DEVICE_ALLOCATION_FAILED)
        return WEIR_ERR_OUT_OF_MEMORY;
    return result >= WEIR__CUDNN_NOT_SUPPORTED && result < WEIR__CUDNN_INTERNAL_ERROR
               ? WEIR_ERR_UNSUPPORTED
               : WEIR_ERR_BACKEND;
}

/* ---- the library ---- */

static int fail_missing(const char *symbol, struct weir_error *error) {
    return weir__fail(error, WEIR_ERR_UNSUPPORTED,
                      "this cuDNN is incomplete: it has no %s: install it anew, or correct "
                      "WEIR_CUDNN",
                      symbol);
}

int weir__cudnn_find_functions(struct weir__cudnn *cudnn, struct weir_error *error) {
    void *function;
#define FIND(member, symbol, parameters)                                                           \
    if ((function = dlsym(cudnn->library, #symbol)) == NULL) return fail_missing(#symbol, error);  \
    memcpy(&cudnn->member, &function, sizeof function);
    FIND(get_version, cudnnGetVersion, )
    FIND(get_cuda_version, cudnnGetCudartVersion, )
    FIND(get_error_string, cudnnGetErrorString, )
    WEIR__CUDNN_CALL_MAP(FIND)
#undef FIND
    return WEIR_OK;
}

/** Loads a library for good; whether it could be. */
static bool keep(const char *file) {
    void *library = dlopen(file, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    if (library != NULL) (void)dlclose(library);
    return library != NULL;
}

/** Beside the file that a symbol is from, as cuDNN looks. */
static bool keep_beside(const void *symbol, const char *file) {
    static const char *const folders[] = {"", "../../cublas/lib/", "../../cu13/lib/"};
    Dl_info info;
    char path[1024];
    const char *end = NULL;
    if (dladdr(symbol, &info) != 0 && info.dli_fname != NULL) end = strrchr(info.dli_fname, '/');
    for (size_t i = 0; end != NULL && i < WEIR__COUNT_OF(folders); i++) {
        int length = snprintf(path, sizeof path, "%.*s%s%s", (int)(end + 1 - info.dli_fname),
                              info.dli_fname, folders[i], file);
        if (length < (int)sizeof path && keep(path)) return true;
    }
    return false;
}

int weir__cudnn_need_products(size_t cuda_major, const void *of_cudnn, struct weir_error *error) {
    char file[48];
    void *chosen = NULL;
    snprintf(file, sizeof file, "libcublasLt.so.%zu", cuda_major);
    if (keep(file)) return WEIR_OK;
    if (weir__gpu_library_open(weir__gpu_library_named("cuBLASLt"), NULL, &chosen, NULL) ==
        WEIR_OK) {
        (void)dlclose(chosen); /* it stays loaded */
        if (keep(file)) return WEIR_OK;
    }
    if (keep_beside(of_cudnn, file)) return WEIR_OK;
    return weir__fail(
        error, WEIR_ERR_NOT_FOUND,
        "cuDNN is one for CUDA %zu and needs %s, which is not found: install libcublas "
        "of CUDA %zu, and name its folder in LD_LIBRARY_PATH, or use cpu",
        cuda_major, file, cuda_major);
}

int weir__cudnn_check(struct weir__cudnn *cudnn, int driver_version, struct weir_error *error) {
    assert(cudnn->library != NULL && driver_version > 0);
    int status = weir__cudnn_find_functions(cudnn, error);
    if (status != WEIR_OK) return status;
    size_t major = cudnn->get_cuda_version() / 1000, driver = (size_t)driver_version / 1000;
    if (major > driver)
        return weir__fail(
            error, WEIR_ERR_UNSUPPORTED,
            "this cuDNN is one for CUDA %zu, and the driver one for CUDA %zu: install "
            "cuDNN for CUDA %zu, such as PyPI's nvidia-cudnn-cu%zu, or update the "
            "driver",
            major, driver, driver, driver);
    return weir__cudnn_need_products(major, dlsym(cudnn->library, "cudnnGetCudartVersion"), error);
}

struct cudnn_start {
    struct weir__cudnn *cudnn;
    struct weir__cuda_failure *failure;
};

/** Whether a handle is made, too. */
static int start(void *context, void *opened, const struct weir__gpu_library_facts *facts,
                 struct weir_error *error) {
    const struct cudnn_start *start = context;
    struct weir__cudnn *cudnn = start->cudnn;
    void *handle = NULL;
    cudnn->library = opened;
    int status = weir__cudnn_check(cudnn, cudnn->device->driver.version, error);
    if (status != WEIR_OK) return status;
    status = weir__cudnn_status(cudnn, "cudnnCreate", cudnn->create(&handle), start->failure);
    if (status == WEIR_OK) {
        (void)cudnn->destroy(handle);
        return WEIR_OK;
    }
    return weir__fail(error, status,
                      "cuDNN %s does not start on %s (%s): see what 'weir doctor' says",
                      facts->version, cudnn->device->device.name, start->failure->name);
}

/** What another version makes is another plan. */
static void name_versions(struct weir__cudnn *cudnn) {
    struct weir__gpu_library_facts compiler;
    weir__gpu_library_find(weir__gpu_library_named("NVRTC"), &compiler);
    snprintf(cudnn->versions, sizeof cudnn->versions, "driver %d, cuDNN %zu of CUDA %zu, NVRTC %s",
             cudnn->device->driver.version, cudnn->get_version(), cudnn->get_cuda_version(),
             compiler.version[0] != '\0' ? compiler.version : "none");
}

/** Plans fit one kind of GPU and these versions. */
static int name_gpu(struct weir__cudnn *cudnn, struct weir__cuda_failure *failure) {
    const struct weir__cuda_driver *driver = &cudnn->device->driver;
    int gpu = cudnn->device->gpu, major = 0, minor = 0, processors = 0;
    char name[96] = "";
    *failure = (struct weir__cuda_failure){.call = "cuDeviceGetName"};
    failure->result = driver->device_get_name(name, sizeof name, gpu);
    if (failure->result != 0) return WEIR_ERR_BACKEND;
    failure->call = "cuDeviceGetAttribute";
    failure->result =
        driver->device_get_attribute(&major, WEIR__CUDA_ATTRIBUTE_CAPABILITY_MAJOR, gpu);
    if (failure->result == 0)
        failure->result =
            driver->device_get_attribute(&minor, WEIR__CUDA_ATTRIBUTE_CAPABILITY_MINOR, gpu);
    if (failure->result == 0)
        failure->result =
            driver->device_get_attribute(&processors, WEIR__CUDA_ATTRIBUTE_MULTIPROCESSORS, gpu);
    if (failure->result != 0) return WEIR_ERR_BACKEND;
    cudnn->capability = 10 * major + minor;
    for (char *c = name; *c != '\0'; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
    snprintf(cudnn->gpu, sizeof cudnn->gpu, "%s, %d.%d, %d", name, major, minor, processors);
    name_versions(cudnn);
    return WEIR_OK;
}

int weir__cudnn_open(struct weir__cuda_device *device, void **convolutions,
                     struct weir__cuda_failure *failure, struct weir_error *error) {
    struct weir__cudnn *cudnn = weir__acquire(NULL, 1, sizeof *cudnn);
    if (cudnn == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int status = WEIR_ERR_SYSTEM;
    struct cudnn_start context = {cudnn, failure};
    const struct weir__gpu_library_trial trial = {start, &context};
    cudnn->device = device;
    if (pthread_mutex_init(&cudnn->lock, NULL) != 0) goto fail_lock;
    status =
        weir__gpu_library_open(weir__gpu_library_named("cuDNN"), &trial, &cudnn->library, error);
    if (status != WEIR_OK) goto fail_library;
    if ((status = name_gpu(cudnn, failure)) != WEIR_OK) goto fail_gpu;
    weir__cache_find(cudnn->folder);
    weir__cuda_way_note(device, "convolutions: %s", cudnn->versions);
    *convolutions = cudnn;
    return WEIR_OK;

fail_gpu:
    (void)dlclose(cudnn->library);
fail_library:
    pthread_mutex_destroy(&cudnn->lock);
fail_lock:
    weir__release(NULL, cudnn, 1, sizeof *cudnn);
    return status;
}

void weir__cudnn_close(void *convolutions) {
    struct weir__cudnn *cudnn = convolutions;
    (void)dlclose(cudnn->library);
    pthread_mutex_destroy(&cudnn->lock);
    weir__release(NULL, cudnn, 1, sizeof *cudnn);
}

/* ---- handles ---- */

/** The stream's, or a free place; NULL where all are taken. */
static struct weir__cudnn_stream *find_stream(struct weir__cudnn *cudnn,
                                              const struct CUstream_st *stream) {
    struct weir__cudnn_stream *free_one = NULL;
    for (size_t i = 0; i < WEIR__CUDNN_STREAMS_MAX; i++) {
        struct weir__cudnn_stream *at = &cudnn->streams[i];
        if (at->plans > 0 && at->stream == stream) return at;
        if (at->plans == 0 && free_one == NULL) free_one = at;
    }
    return free_one;
}

int weir__cudnn_take_handle(struct weir__cudnn *cudnn, struct CUstream_st *stream,
                            struct weir__cudnn_stream **to) {
    assert(to != NULL);
    int result = 0;
    pthread_mutex_lock(&cudnn->lock);
    struct weir__cudnn_stream *at = find_stream(cudnn, stream);
    if (at == NULL) {
        result = WEIR__CUDNN_HOST_ALLOCATION_FAILED;
    } else if (at->plans == 0) {
        at->stream = stream;
        result = cudnn->create(&at->handle);
        if (result == 0) {
            result = cudnn->set_stream(at->handle, stream);
            if (result != 0) (void)cudnn->destroy(at->handle);
        }
    }
    if (result == 0) {
        at->plans++;
        *to = at;
    }
    pthread_mutex_unlock(&cudnn->lock);
    return result;
}

void weir__cudnn_give_handle(struct weir__cudnn *cudnn, struct weir__cudnn_stream *stream) {
    pthread_mutex_lock(&cudnn->lock);
    assert(stream->plans > 0);
    if (--stream->plans == 0) (void)cudnn->destroy(stream->handle);
    pthread_mutex_unlock(&cudnn->lock);
}

/* ---- plans ---- */

/** From disk if it is there. */
static int make_plan(const struct weir__cudnn *cudnn, struct convolution *made,
                     struct weir__cuda_failure *failure) {
    struct weir__cudnn_keys keys;
    size_t workspace;
    void *handle = made->stream->handle;
    int status = weir__cuda_convolution_workspace(&made->of, &workspace);
    if (status != WEIR_OK) return status;
    weir__cudnn_convolution_keys(cudnn, &made->of, &keys);
    if (weir__cudnn_cache_load(cudnn, handle, &keys, workspace, &made->plan)) return WEIR_OK;
    int result = weir__cudnn_convolution_plan(cudnn, handle, &made->of, workspace, &made->plan);
    status = weir__cudnn_status(cudnn, "cudnnBackendFinalize", result, failure);
    if (status == WEIR_OK) weir__cudnn_cache_save(cudnn, &keys.own, &made->plan);
    return status;
}

int weir__cudnn_convolution_new(void *convolutions,
                                const struct weir__cuda_convolution *convolution,
                                struct CUstream_st *stream, void **plan,
                                struct weir__cuda_failure *failure) {
    struct weir__cudnn *cudnn = convolutions;
    struct convolution *made = weir__acquire(NULL, 1, sizeof *made);
    int status;
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->of = *convolution;
    int result = weir__cudnn_take_handle(cudnn, stream, &made->stream);
    status = weir__cudnn_status(cudnn, "cudnnCreate", result, failure);
    if (status != WEIR_OK) goto fail_handle;
    status = make_plan(cudnn, made, failure);
    if (status != WEIR_OK) goto fail_plan;
    *plan = made;
    return WEIR_OK;

fail_plan:
    weir__cudnn_give_handle(cudnn, made->stream);
fail_handle:
    weir__release(NULL, made, 1, sizeof *made);
    return status;
}

int weir__cudnn_convolution_next(void *convolutions, void *plan,
                                 struct weir__cuda_failure *failure) {
    struct weir__cudnn *cudnn = convolutions;
    struct convolution *made = plan;
    struct weir__cudnn_keys keys;
    if (made->of.rows != made->of.rows_max) return WEIR_ERR_UNSUPPORTED;
    weir__cudnn_convolution_keys(cudnn, &made->of, &keys);
    if (!weir__cudnn_drop(cudnn, &keys.shape, made->plan.settings)) return WEIR_ERR_UNSUPPORTED;
    weir__cudnn_forget(cudnn, made->plan.plan);
    made->plan = (struct weir__cudnn_plan){NULL, 0, 0, 0};
    return make_plan(cudnn, made, failure);
}

void weir__cudnn_convolution_tell(const void *plan, char *text, size_t capacity) {
    weir__cudnn_plan_tell(&((const struct convolution *)plan)->plan, text, capacity);
}

void weir__cudnn_convolution_destroy(void *convolutions, void *plan) {
    struct weir__cudnn *cudnn = convolutions;
    struct convolution *made = plan;
    if (made == NULL) return;
    weir__cudnn_forget(cudnn, made->plan.plan);
    weir__cudnn_give_handle(cudnn, made->stream);
    weir__release(NULL, made, 1, sizeof *made);
}

/* ---- running ---- */

static int pack_new(const struct weir__cudnn *cudnn, const struct weir__cuda_convolution_call *call,
                    void **pack) {
    const int64_t ids[] = {WEIR__CUDNN_ID_X, WEIR__CUDNN_ID_WEIGHT, WEIR__CUDNN_ID_Y,
                           WEIR__CUDNN_ID_BIAS};
    const void *const pointers[] = {call->x, call->weight, call->y, call->bias};
    int64_t count = call->bias != NULL ? 4 : 3;
    int result = cudnn->descriptor_create(WEIR__CUDNN_VARIANT_PACK, pack);
    if (result == 0)
        result = cudnn->set(*pack, WEIR__CUDNN_VARIANT_PACK_UNIQUE_IDS, WEIR__CUDNN_TYPE_INT64,
                            count, ids);
    if (result == 0)
        result = cudnn->set(*pack, WEIR__CUDNN_VARIANT_PACK_DATA_POINTERS,
                            WEIR__CUDNN_TYPE_VOID_PTR, count, pointers);
    if (result == 0)
        result = cudnn->set(*pack, WEIR__CUDNN_VARIANT_PACK_WORKSPACE, WEIR__CUDNN_TYPE_VOID_PTR, 1,
                            &call->workspace);
    return result == 0 ? cudnn->finalize(*pack) : result;
}

int weir__cudnn_convolution_run(void *convolutions, const void *plan,
                                const struct weir__cuda_convolution_call *call,
                                struct weir__cuda_failure *failure) {
    const struct weir__cudnn *cudnn = convolutions;
    const struct convolution *made = plan;
    assert(made != NULL && made->plan.plan != NULL);
    void *pack = NULL;
    int result = pack_new(cudnn, call, &pack);
    if (result == 0) result = cudnn->execute(made->stream->handle, made->plan.plan, pack);
    weir__cudnn_forget(cudnn, pack);
    return weir__cudnn_status(cudnn, "cudnnBackendExecute", result, failure);
}
