/* SPDX-License-Identifier: MIT */
/**
 * NCCL between two processes' GPUs, opened at run time: libnccl.so.2, or what the environment's
 * WEIR_NCCL names, 2.18 or newer. Declared here by hand, since its headers need CUDA's.
 *
 * A pair is a communicator of two ranks that leads one way. So what goes over it has the one order
 * of its stream on either side, whatever other pairs do. It never blocks (ncclConfig_t.blocking is
 * 0): a call may still be under way when it returns, and pair_poll says when the next may come, or
 * an event may be recorded behind it.
 *
 * Statuses: WEIR_ERR_PEER for what NCCL reports; `error` says it in NCCL's words. Threads: one at a
 * time for a pair. Nobody's current context changes. NCCL fits MPI's calls beside it as long as
 * neither waits for the other on one thread.
 */
#ifndef WEIR_DEVICE_NCCL_H
#define WEIR_DEVICE_NCCL_H

#include "device/device.h"

#include <limits.h>

struct ncclComm;
struct CUstream_st;

/** What the two of a pair have in common: one makes it, and sends it to the other. */
struct weir__nccl_id {
    char bytes[128];
};

/** ncclConfig_t as of 2.18; later libraries take it by `size`. */
struct weir__nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cluster_ctas, ctas_min, ctas_max;
    const char *net;
    int split_shares;
};
#define WEIR__NCCL_CONFIG_INIT                                                                     \
    {                                                                                              \
        sizeof(struct weir__nccl_config), 0xcafebeefu, 21800u, 0, INT_MIN, INT_MIN, INT_MIN, NULL, \
            INT_MIN                                                                                \
    }

enum weir__nccl_result {
    WEIR__NCCL_SUCCESS = 0,
    WEIR__NCCL_UNHANDLED_CUDA = 1,
    WEIR__NCCL_INVALID_ARGUMENT = 4,
    WEIR__NCCL_INVALID_USAGE = 5,
    WEIR__NCCL_REMOTE_ERROR = 6,
    WEIR__NCCL_IN_PROGRESS = 7
};
enum { WEIR__NCCL_INT8 = 0 };

/** X(member, symbol, parameters): functions that return an enum weir__nccl_result. */
#define WEIR__NCCL_CALL_MAP(X)                                                                     \
    X(get_unique_id, ncclGetUniqueId, (struct weir__nccl_id * id))                                 \
    X(comm_init, ncclCommInitRankConfig,                                                           \
      (struct ncclComm * *comm, int count, struct weir__nccl_id id, int rank,                      \
       struct weir__nccl_config *config))                                                          \
    X(comm_get_async_error, ncclCommGetAsyncError, (struct ncclComm * comm, int *result))          \
    X(comm_abort, ncclCommAbort, (struct ncclComm * comm))                                         \
    X(send, ncclSend,                                                                              \
      (const void *data, size_t count, int type, int peer, struct ncclComm *comm,                  \
       struct CUstream_st *stream))                                                                \
    X(receive, ncclRecv,                                                                           \
      (void *data, size_t count, int type, int peer, struct ncclComm *comm,                        \
       struct CUstream_st *stream))

/** The opened library; read-only, any thread. */
struct weir__nccl {
    void *library;    /**< NULL: not open */
    uint32_t version; /**< 10000 * major + 100 * minor + patch */
    const char *(*get_error_string)(int result);
#define WEIR__NCCL_MEMBER(member, symbol, parameters) int(*member) parameters;
    WEIR__NCCL_CALL_MAP(WEIR__NCCL_MEMBER)
#undef WEIR__NCCL_MEMBER
};

/** WEIR_ERR_NOT_FOUND, WEIR_ERR_UNSUPPORTED, as weir__gpu_library_open. It stays in the process;
 * close accepts one that is zero. */
int weir__nccl_open(struct weir__nccl *nccl, struct weir_error *error);
void weir__nccl_close(struct weir__nccl *nccl);

int weir__nccl_make_id(const struct weir__nccl *nccl, struct weir__nccl_id *id,
                       struct weir_error *error);

struct weir__nccl_pair;

/** Begins to join the pair on the device, as its receiver or its sender; the other does the same in
 * its process. `nccl` must stay. */
int weir__nccl_pair_new(const struct weir__nccl *nccl, struct weir__device *device,
                        const struct weir__nccl_id *id, bool receives,
                        struct weir__nccl_pair **pair, struct weir_error *error);
/** *ready: nothing of the last call is under way, on the host. */
int weir__nccl_pair_poll(struct weir__nccl_pair *pair, bool *ready, struct weir_error *error);
/** Gives the stream, of the pair's device, the next message: a send or a receive, by what the pair
 * is here. It ends when the other has given its own, of as many bytes. Only when ready. */
int weir__nccl_pair_give(struct weir__nccl_pair *pair, struct weir_stream *stream, void *data,
                         size_t bytes, struct weir_error *error);
/** Ends all that streams were given of it, wherever the other is, and all later calls fail. */
void weir__nccl_pair_abort(struct weir__nccl_pair *pair);
/** Aborts it. Before the device is closed, and its streams are destroyed. Accepts NULL. */
void weir__nccl_pair_destroy(struct weir__nccl_pair *pair);

#endif
