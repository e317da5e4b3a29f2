/* SPDX-License-Identifier: MIT */
/*
 * Any MPI from version 3.0 on, as a table of the standard ABI's functions: for an MPI that does not
 * have that ABI itself. Its own mpicc compiles this, by -Dmpicc=mpicc or by hand:
 *
 *   mpicc -shared -fPIC -Isrc build/mpi_shim.c -o libweir_mpi.so
 *
 * Weir takes it from the folder of its program or from ../lib of that, or by WEIR_MPI. The handles
 * are MPI's own, which are ints or pointers, in the bytes of a pointer; of those that the ABI fixes
 * only the ones of src/world/mpi_abi.h are known. A status is told by its first three ints, and by
 * what this file writes behind them.
 */
#include "world/mpi_abi.h"

#include <limits.h>
#include <mpi.h>
#include <string.h>

_Static_assert(sizeof(MPI_Comm) <= sizeof(void *), "a communicator has its place");
_Static_assert(sizeof(MPI_Request) <= sizeof(void *), "a request has its place");
_Static_assert(MPI_MAX_ERROR_STRING <= WEIR__MPI_ERROR_BYTES, "an error's text has room");
_Static_assert(MPI_MAX_PROCESSOR_NAME <= WEIR__MPI_HOST_BYTES, "a host's name has room");
_Static_assert(MPI_MAX_LIBRARY_VERSION_STRING <= WEIR__MPI_LIBRARY_BYTES, "a version has room");

/* ---- handles ---- */

static MPI_Comm comm_of(struct weir__mpi_comm *handle) {
    MPI_Comm comm;
    if (handle == WEIR__MPI_COMM_WORLD) return MPI_COMM_WORLD;
    memcpy(&comm, &handle, sizeof comm);
    return comm;
}

static struct weir__mpi_comm *comm_to(MPI_Comm comm) {
    struct weir__mpi_comm *handle = NULL;
    memcpy(&handle, &comm, sizeof comm);
    return handle;
}

static MPI_Request request_of(struct weir__mpi_request *handle) {
    MPI_Request request;
    memcpy(&request, &handle, sizeof request);
    return request;
}

static struct weir__mpi_request *request_to(MPI_Request request) {
    struct weir__mpi_request *handle = NULL;
    memcpy(&handle, &request, sizeof request);
    return handle;
}

static int thread_to(int level) {
    return level >= MPI_THREAD_SERIALIZED ? WEIR__MPI_THREAD_SERIALIZED : 0;
}

/* ---- the process ---- */

static int init_thread(int *argc, char ***argv, int required, int *provided) {
    int level = MPI_THREAD_SINGLE;
    if (required != WEIR__MPI_THREAD_SERIALIZED) return MPI_ERR_ARG;
    int error = MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level);
    *provided = thread_to(level);
    return error;
}

static int query_thread(int *provided) {
    int level = MPI_THREAD_SINGLE;
    int error = MPI_Query_thread(&level);
    *provided = thread_to(level);
    return error;
}

static int abort_all(struct weir__mpi_comm *comm, int error) {
    return MPI_Abort(comm_of(comm), error);
}

/* ---- communicators ---- */

static int comm_rank(struct weir__mpi_comm *comm, int *rank) {
    return MPI_Comm_rank(comm_of(comm), rank);
}

static int comm_size(struct weir__mpi_comm *comm, int *size) {
    return MPI_Comm_size(comm_of(comm), size);
}

static int comm_dup(struct weir__mpi_comm *comm, struct weir__mpi_comm **made) {
    MPI_Comm own = MPI_COMM_NULL;
    int error = MPI_Comm_dup(comm_of(comm), &own);
    *made = comm_to(own);
    return error;
}

static int comm_split_type(struct weir__mpi_comm *comm, int type, int key,
                           struct weir__mpi_info *info, struct weir__mpi_comm **made) {
    MPI_Comm own = MPI_COMM_NULL;
    if (type != WEIR__MPI_COMM_TYPE_SHARED || info != WEIR__MPI_INFO_NULL) return MPI_ERR_ARG;
    int error = MPI_Comm_split_type(comm_of(comm), MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, &own);
    *made = comm_to(own);
    return error;
}

static int comm_free(struct weir__mpi_comm **comm) {
    MPI_Comm own = comm_of(*comm);
    int error = MPI_Comm_free(&own);
    *comm = comm_to(own);
    return error;
}

static int comm_set_errhandler(struct weir__mpi_comm *comm,
                               struct weir__mpi_errhandler *errhandler) {
    if (errhandler != WEIR__MPI_ERRORS_RETURN) return MPI_ERR_ARG;
    return MPI_Comm_set_errhandler(comm_of(comm), MPI_ERRORS_RETURN);
}

/* ---- messages ---- */

/* One element of more bytes than an int counts; the caller frees it. */
static int make_large(int64_t bytes, MPI_Datatype *type) {
    const int block_bytes = 1 << 30;
    MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int counts[2] = {(int)(bytes / block_bytes), (int)(bytes % block_bytes)};
    MPI_Aint places[2] = {0, (MPI_Aint)(bytes - counts[1])};
    if (bytes / block_bytes > INT_MAX) return MPI_ERR_COUNT;
    int error = MPI_Type_contiguous(block_bytes, MPI_BYTE, &parts[0]);
    if (error != MPI_SUCCESS) return error;
    error = MPI_Type_create_struct(2, counts, places, parts, type);
    (void)MPI_Type_free(&parts[0]);
    if (error != MPI_SUCCESS) return error;
    error = MPI_Type_commit(type);
    if (error != MPI_SUCCESS) (void)MPI_Type_free(type);
    return error;
}

static int isend(const void *data, int64_t count, struct weir__mpi_datatype *datatype, int peer,
                 int tag, struct weir__mpi_comm *comm, struct weir__mpi_request **request) {
    MPI_Datatype type = MPI_BYTE;
    MPI_Request own = MPI_REQUEST_NULL;
    int large = count > INT_MAX, error = MPI_SUCCESS;
    if (datatype != WEIR__MPI_BYTE) return MPI_ERR_TYPE;
    if (large && (error = make_large(count, &type)) != MPI_SUCCESS) return error;
    error = MPI_Isend(data, large ? 1 : (int)count, type, peer, tag, comm_of(comm), &own);
    if (large) (void)MPI_Type_free(&type);
    *request = request_to(own);
    return error;
}

static int irecv(void *data, int64_t count, struct weir__mpi_datatype *datatype, int peer, int tag,
                 struct weir__mpi_comm *comm, struct weir__mpi_request **request) {
    MPI_Datatype type = MPI_BYTE;
    MPI_Request own = MPI_REQUEST_NULL;
    int large = count > INT_MAX, error = MPI_SUCCESS;
    int own_tag = tag == WEIR__MPI_ANY_TAG ? MPI_ANY_TAG : tag;
    if (datatype != WEIR__MPI_BYTE) return MPI_ERR_TYPE;
    if (large && (error = make_large(count, &type)) != MPI_SUCCESS) return error;
    error = MPI_Irecv(data, large ? 1 : (int)count, type, peer, own_tag, comm_of(comm), &own);
    if (large) (void)MPI_Type_free(&type);
    *request = request_to(own);
    return error;
}

static int allgather(const void *own, int own_count, struct weir__mpi_datatype *own_datatype,
                     void *all, int count, struct weir__mpi_datatype *datatype,
                     struct weir__mpi_comm *comm) {
    if (own_datatype != WEIR__MPI_BYTE || datatype != WEIR__MPI_BYTE) return MPI_ERR_TYPE;
    return MPI_Allgather(own, own_count, MPI_BYTE, all, count, MPI_BYTE, comm_of(comm));
}

/* What a status holds inside: the bytes in two ints, -1 where there is no number, and whether it
 * was cancelled. A send's has neither source nor tag nor bytes. */
static int fill_status(const MPI_Status *own, struct weir__mpi_status *status) {
    MPI_Count bytes = -1;
    int cancelled = 0;
    int error = MPI_Test_cancelled(own, &cancelled);
    if (!cancelled && MPI_Get_elements_x(own, MPI_BYTE, &bytes) != MPI_SUCCESS) bytes = -1;
    int64_t wide = bytes;
    *status = (struct weir__mpi_status){own->MPI_SOURCE, own->MPI_TAG, MPI_SUCCESS, {0}};
    memcpy(status->inside, &wide, sizeof wide);
    status->inside[2] = cancelled;
    return error;
}

static int test(struct weir__mpi_request **request, int *flag, struct weir__mpi_status *status) {
    MPI_Request own = request_of(*request);
    MPI_Status inner;
    int error = MPI_Test(&own, flag, &inner);
    *request = request_to(own);
    return error == MPI_SUCCESS && *flag ? fill_status(&inner, status) : error;
}

static int cancel(struct weir__mpi_request **request) {
    MPI_Request own = request_of(*request);
    int error = MPI_Cancel(&own);
    *request = request_to(own);
    return error;
}

static int test_cancelled(const struct weir__mpi_status *status, int *flag) {
    *flag = status->inside[2];
    return MPI_SUCCESS;
}

static int get_count(const struct weir__mpi_status *status, struct weir__mpi_datatype *datatype,
                     int64_t *count) {
    if (datatype != WEIR__MPI_BYTE) return MPI_ERR_TYPE;
    memcpy(count, status->inside, sizeof *count);
    return *count >= 0 ? MPI_SUCCESS : MPI_ERR_COUNT;
}

const struct weir__mpi_calls weir_mpi_shim_2 = {
    .size = sizeof(struct weir__mpi_calls),
    .initialized = MPI_Initialized,
    .finalized = MPI_Finalized,
    .init_thread = init_thread,
    .query_thread = query_thread,
    .finalize = MPI_Finalize,
    .abort = abort_all,
    .comm_rank = comm_rank,
    .comm_size = comm_size,
    .comm_dup = comm_dup,
    .comm_split_type = comm_split_type,
    .comm_free = comm_free,
    .comm_set_errhandler = comm_set_errhandler,
    .isend = isend,
    .irecv = irecv,
    .allgather = allgather,
    .test = test,
    .cancel = cancel,
    .test_cancelled = test_cancelled,
    .get_count = get_count,
    .error_string = MPI_Error_string,
    .get_library_version = MPI_Get_library_version,
    .get_processor_name = MPI_Get_processor_name,
};
