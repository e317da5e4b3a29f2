/* SPDX-License-Identifier: MIT */
/* NCCL's errors stay with a communicator: after one it is only good for abort, which also is how a
 * pair ends at all. Finalize would wait for the other side, and nothing is under way then. */
#include "device/nccl.h"

#include "device/cuda.h"
#include "device/gpus.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

struct weir__nccl_pair {
    const struct weir__nccl *nccl;
    struct weir__device *device;
    struct ncclComm *comm; /* NULL: aborted */
    bool receives;
    bool under_way; /* the last call's result is in the communicator's */
};

/* ---- the library ---- */

static int fill(void *context, void *opened, const struct weir__gpu_library_facts *facts,
                struct weir_error *error) {
    struct weir__nccl *nccl = context;
    unsigned major = 0, minor = 0, patch = 0;
    void *function;
    assert(facts->state == WEIR__LIBRARY_FOUND);
    (void)sscanf(facts->version, "%u.%u.%u", &major, &minor, &patch);
    nccl->library = opened;
    nccl->version = major * 10000 + minor * 100 + patch;
#define FIND(member, symbol)                                                                       \
    if ((function = dlsym(nccl->library, #symbol)) == NULL)                                        \
        return weir__fail(error, WEIR_ERR_UNSUPPORTED, "NCCL has no %s: install another",          \
                          #symbol);                                                                \
    memcpy(&nccl->member, &function, sizeof function);
#define FIND_CALL(member, symbol, parameters) FIND(member, symbol)
    FIND(get_error_string, ncclGetErrorString)
    WEIR__NCCL_CALL_MAP(FIND_CALL)
#undef FIND_CALL
#undef FIND
    return WEIR_OK;
}

int weir__nccl_open(struct weir__nccl *nccl, struct weir_error *error) {
    assert(nccl != NULL);
    *nccl = (struct weir__nccl){0};
    const struct weir__gpu_library_trial trial = {fill, nccl};
    int status =
        weir__gpu_library_open(weir__gpu_library_named("NCCL"), &trial, &nccl->library, error);
    if (status != WEIR_OK) *nccl = (struct weir__nccl){0};
    return status;
}

void weir__nccl_close(struct weir__nccl *nccl) {
    assert(nccl != NULL);
    if (nccl->library != NULL) (void)dlclose(nccl->library);
    *nccl = (struct weir__nccl){0};
}

static int check(const struct weir__nccl *nccl, const char *call, int result,
                 struct weir_error *error) {
    assert(nccl->get_error_string != NULL);
    if (result == WEIR__NCCL_SUCCESS || result == WEIR__NCCL_IN_PROGRESS) return WEIR_OK;
    return weir__fail(error, WEIR_ERR_PEER, "%s: %.120s (%d)", call, nccl->get_error_string(result),
                      result);
}

int weir__nccl_make_id(const struct weir__nccl *nccl, struct weir__nccl_id *id,
                       struct weir_error *error) {
    assert(nccl->library != NULL && id != NULL);
    return check(nccl, "ncclGetUniqueId", nccl->get_unique_id(id), error);
}

/* ---- pairs ---- */

int weir__nccl_pair_new(const struct weir__nccl *nccl, struct weir__device *device,
                        const struct weir__nccl_id *id, bool receives,
                        struct weir__nccl_pair **pair, struct weir_error *error) {
    struct weir__nccl_config config = WEIR__NCCL_CONFIG_INIT;
    struct weir__visit visit;
    struct weir__nccl_pair *made = weir__acquire(device->allocator, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    assert(nccl->library != NULL && id != NULL);
    *made = (struct weir__nccl_pair){.nccl = nccl, .device = device, .receives = receives};
    made->under_way = true;
    int result = WEIR__NCCL_SUCCESS, status = device->calls->visit(device, &visit);
    if (status == WEIR_OK) result = nccl->comm_init(&made->comm, 2, *id, receives, &config);
    device->calls->leave(device, &visit);
    if (status != WEIR_OK) goto fail;
    if ((status = check(nccl, "ncclCommInitRankConfig", result, error)) != WEIR_OK) goto fail;
    *pair = made;
    return WEIR_OK;
fail:
    weir__nccl_pair_destroy(made);
    return status;
}

int weir__nccl_pair_poll(struct weir__nccl_pair *pair, bool *ready, struct weir_error *error) {
    int result = WEIR__NCCL_SUCCESS;
    *ready = false;
    if (pair->comm == NULL) return weir__fail(error, WEIR_ERR_PEER, "this pair was aborted");
    int asked = pair->nccl->comm_get_async_error(pair->comm, &result);
    int status = check(pair->nccl, "ncclCommGetAsyncError", asked, error);
    if (status != WEIR_OK) return status;
    if ((status = check(pair->nccl, "NCCL", result, error)) != WEIR_OK) return status;
    pair->under_way = asked == WEIR__NCCL_IN_PROGRESS || result == WEIR__NCCL_IN_PROGRESS;
    *ready = !pair->under_way;
    return WEIR_OK;
}

int weir__nccl_pair_give(struct weir__nccl_pair *pair, struct weir_stream *stream, void *data,
                         size_t bytes, struct weir_error *error) {
    const struct weir__nccl *nccl = pair->nccl;
    struct CUstream_st *native = weir__cuda_stream(stream)->native;
    struct weir__visit visit;
    assert(stream->device == pair->device && data != NULL && bytes > 0 && !pair->under_way);
    if (pair->comm == NULL) return weir__fail(error, WEIR_ERR_PEER, "this pair was aborted");
    int result = WEIR__NCCL_SUCCESS, status = pair->device->calls->visit(pair->device, &visit);
    if (status == WEIR_OK && pair->receives)
        result = nccl->receive(data, bytes, WEIR__NCCL_INT8, 0, pair->comm, native);
    else if (status == WEIR_OK)
        result = nccl->send(data, bytes, WEIR__NCCL_INT8, 1, pair->comm, native);
    pair->device->calls->leave(pair->device, &visit);
    if (status != WEIR_OK) return status;
    pair->under_way = true;
    return check(nccl, pair->receives ? "ncclRecv" : "ncclSend", result, error);
}

void weir__nccl_pair_abort(struct weir__nccl_pair *pair) {
    struct weir__visit visit;
    if (pair->comm == NULL) return;
    (void)pair->device->calls->visit(pair->device, &visit);
    (void)pair->nccl->comm_abort(pair->comm);
    pair->device->calls->leave(pair->device, &visit);
    pair->comm = NULL;
}

void weir__nccl_pair_destroy(struct weir__nccl_pair *pair) {
    if (pair == NULL) return;
    weir__nccl_pair_abort(pair);
    weir__release(pair->device->allocator, pair, 1, sizeof *pair);
}
