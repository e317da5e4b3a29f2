/* SPDX-License-Identifier: MIT */
/**
 * What Weir needs of MPI, by the standard ABI of MPI 5.0 (its chapter "Application Binary
 * Interface"): there a handle is a pointer and the predefined ones are small fixed numbers, a
 * status is eight ints, and a count of the functions with _c has 64 bits. Declared by ourselves and
 * opened at run time, so that one binary serves machines with any such MPI and with none.
 *
 * An MPI of another ABI has the same table by build/mpi_shim.c, which its own mpicc compiles. This
 * header needs no other of Weir.
 */
#ifndef WEIR_WORLD_MPI_ABI_H
#define WEIR_WORLD_MPI_ABI_H

#include <stddef.h>
#include <stdint.h>

struct weir__mpi_comm;
struct weir__mpi_datatype;
struct weir__mpi_errhandler;
struct weir__mpi_info;
struct weir__mpi_request;

#define WEIR__MPI_COMM_WORLD ((struct weir__mpi_comm *)0x101)
#define WEIR__MPI_INFO_NULL ((struct weir__mpi_info *)0x130)
#define WEIR__MPI_ERRORS_RETURN ((struct weir__mpi_errhandler *)0x143)
#define WEIR__MPI_BYTE ((struct weir__mpi_datatype *)0x247)

/** By the standard's numbers. */
enum {
    WEIR__MPI_SUCCESS = 0,
    WEIR__MPI_ANY_TAG = -2,
    WEIR__MPI_COMM_TYPE_SHARED = 221,
    WEIR__MPI_THREAD_SERIALIZED = 2048,
    WEIR__MPI_ERROR_BYTES = 512, /* the room that a text may take, its zero counted */
    WEIR__MPI_HOST_BYTES = 256,
    WEIR__MPI_LIBRARY_BYTES = 8192,
    WEIR__MPI_ABI_MAJOR = 1 /* of MPI_Abi_get_version; an MPI of another ABI says -1 */
};

struct weir__mpi_status {
    int source, tag, error;
    int inside[5]; /**< the library's */
};

/** Every function that is used: X(member, symbol, parameters). Each returns WEIR__MPI_SUCCESS or an
 * error for error_string. */
#define WEIR__MPI_CALL_MAP(X)                                                                      \
    X(initialized, MPI_Initialized, (int *flag))                                                   \
    X(finalized, MPI_Finalized, (int *flag))                                                       \
    X(init_thread, MPI_Init_thread, (int *argc, char ***argv, int required, int *provided))        \
    X(query_thread, MPI_Query_thread, (int *provided))                                             \
    X(finalize, MPI_Finalize, (void))                                                              \
    X(abort, MPI_Abort, (struct weir__mpi_comm * comm, int error))                                 \
    X(comm_rank, MPI_Comm_rank, (struct weir__mpi_comm * comm, int *rank))                         \
    X(comm_size, MPI_Comm_size, (struct weir__mpi_comm * comm, int *size))                         \
    X(comm_dup, MPI_Comm_dup, (struct weir__mpi_comm * comm, struct weir__mpi_comm * *made))       \
    X(comm_split_type, MPI_Comm_split_type,                                                        \
      (struct weir__mpi_comm * comm, int type, int key, struct weir__mpi_info *info,               \
       struct weir__mpi_comm **made))                                                              \
    X(comm_free, MPI_Comm_free, (struct weir__mpi_comm * *comm))                                   \
    X(comm_set_errhandler, MPI_Comm_set_errhandler,                                                \
      (struct weir__mpi_comm * comm, struct weir__mpi_errhandler * errhandler))                    \
    X(isend, MPI_Isend_c,                                                                          \
      (const void *data, int64_t count, struct weir__mpi_datatype *datatype, int peer, int tag,    \
       struct weir__mpi_comm *comm, struct weir__mpi_request **request))                           \
    X(irecv, MPI_Irecv_c,                                                                          \
      (void *data, int64_t count, struct weir__mpi_datatype *datatype, int peer, int tag,          \
       struct weir__mpi_comm *comm, struct weir__mpi_request **request))                           \
    X(allgather, MPI_Allgather,                                                                    \
      (const void *own, int own_count, struct weir__mpi_datatype *own_datatype, void *all,         \
       int count, struct weir__mpi_datatype *datatype, struct weir__mpi_comm *comm))               \
    X(test, MPI_Test,                                                                              \
      (struct weir__mpi_request * *request, int *flag, struct weir__mpi_status *status))           \
    X(cancel, MPI_Cancel, (struct weir__mpi_request * *request))                                   \
    X(test_cancelled, MPI_Test_cancelled, (const struct weir__mpi_status *status, int *flag))      \
    X(get_count, MPI_Get_count_c,                                                                  \
      (const struct weir__mpi_status *status, struct weir__mpi_datatype *datatype,                 \
       int64_t *count))                                                                            \
    X(error_string, MPI_Error_string, (int error, char *text, int *length))                        \
    X(get_library_version, MPI_Get_library_version, (char *text, int *length))                     \
    X(get_processor_name, MPI_Get_processor_name, (char *text, int *length))

struct weir__mpi_calls {
    size_t size; /**< of this struct */
#define WEIR__MPI_MEMBER(member, symbol, parameters) int(*member) parameters;
    WEIR__MPI_CALL_MAP(WEIR__MPI_MEMBER)
#undef WEIR__MPI_MEMBER
};

/** What the library that build/mpi_shim.c becomes exports. Another table has another number. It
 * knows these handles and no other predefined ones, and MPI_BYTE alone. */
#define WEIR__MPI_SHIM "weir_mpi_shim_2"
extern const struct weir__mpi_calls weir_mpi_shim_2;

#endif
