/* SPDX-License-Identifier: MIT */
/**
 * A world: the processes that one pipe runs in. Each is a rank with some of the workers; the engine
 * knows the others by the calls below alone, as it knows a device by its calls. Worlds are MPI's
 * (weir_world_mpi), or whoever's fills in the table.
 *
 * Messages. A channel leads from one rank to another and keeps order: of two messages on it the one
 * that was sent first is received by the receive that was begun first. Channels with the same
 * number between other ranks, or the other way, have nothing to do with it. A message carries a
 * tag; a receive does not choose by it, test says which came. Memory belongs to the world from send
 * or receive until test has said that the request ended.
 *
 * Progress. Only inside a call, of either end: who waits goes on calling test. A message that was
 * sent before its receive began may be kept by the world, or wait at its sender.
 *
 * Errors. Statuses as in weir.h; WEIR_ERR_PEER where a peer or the way to it failed (a rank that is
 * lost fails all calls at once, whomever they name), or a message was longer than its receive has
 * room for. `reason` says why in words. After any failure the world is of no use but for `abort`
 * and `close`.
 *
 * A pipe in a world. Every rank builds the same pipe, of the same options, and then every call that
 * names the pipe is made on all of them, in the same order, with the same arguments. Where the
 * pipe has replicas (weir_shared.h) the following is of each one's ranks. Rank r of R has the
 * workers w with w * R / workers == r, rounded down, and their stages; there are at least
 * R. Each rank reads of a step's inputs what enters its stages. Loss, norm, outputs, input
 * gradients, flags and failures come to all: a step that fails on one rank fails on all of them.
 * "cuda:N" is the N-th of the rank's own GPUs: ranks whose drivers show the same ones share them
 * evenly, in their order, and where there are fewer, some have the same. A worker has a GPU in all
 * replicas, or in none.
 * Memory is planned for all workers, and taken for the rank's own; the attachment of another's
 * stage is empty. weir_pipe_read gives what is read to all ranks, and weir_pipe_write writes on the
 * stage's; what they name there counts on that rank alone. Trace and report are rank 0's, of all
 * workers' training and on its clock (weir_place.clock_error_ns); the others have none. What one
 * rank alone gives up or cannot get (WEIR_ERR_TIMEOUT, WEIR_ERR_BUSY, memory) the others are not
 * told, and wait for it: its caller then calls `abort`.
 *
 * Threads. From any, one call at a time. No call blocks but open and close, for which every rank
 * must come: in the same order, with the same arguments.
 *
 * @code
 *   struct weir_world world;
 *   int status = weir_world_mpi(NULL, NULL, &faults, &world);      // under mpiexec
 *   options.world = &world;                                        // of weir_pipe_options
 *   status = weir_pipe_new(&options, &faults, &pipe);              // on every rank
 *   ...
 *   weir_pipe_destroy(pipe);
 *   world.calls->close(world.context);
 * @endcode
 */
#ifndef WEIR_WORLD_H
#define WEIR_WORLD_H

#include "weir_base.h"

#ifdef __cplusplus
#pragma GCC system_header
extern "C" {
#endif

struct weir_pipe; /* weir.h */

/** What a tag may be at most: as much as every MPI takes. */
enum { WEIR_TAG_MOST = 32767 };

/** One end of a message. */
struct weir_message {
    void *data;       /**< a send only reads it; may be NULL where there are no bytes */
    size_t bytes;     /**< of a receive: the room there is */
    uint32_t peer;    /**< the rank at the other end; not this one */
    uint32_t channel; /**< one that was opened */
    uint32_t tag;     /**< of a send */
};

/** A send or receive under way: the world's, from the call that begins it until it has ended. The
 * caller keeps it where it is. */
struct weir_request {
    uintptr_t words[8];
};

/** What came, of a receive. */
struct weir_arrival {
    uint32_t tag;
    size_t bytes;
};

struct weir_world_calls {
    size_t size;
    /** Opens channels 0 to `count` - 1 between all ranks; those that are open already stay. Blocks.
     * Collective: where a rank has no memory, none opens any, and all may ask again. */
    int (*open)(void *context, uint32_t count);
    int (*send)(void *context, const struct weir_message *message, struct weir_request *request);
    int (*receive)(void *context, const struct weir_message *message, struct weir_request *request);
    /** Whether the request has ended; then it is the caller's again, and of a receive `arrival`
     * (may be NULL) says what came. A send has ended when its memory may be written to again, which
     * says nothing about its receive. */
    int (*test)(void *context, struct weir_request *request, bool *ended,
                struct weir_arrival *arrival);
    /** Ends a receive to which nothing has come. *ended: false where something had, and then it
     * goes on to its end by test. */
    int (*cancel)(void *context, struct weir_request *request, bool *ended);
    /** Why the last call failed: one line, the world's, until its next call. */
    const char *(*reason)(void *context);
    /** Ends all ranks of the world as soon as can be, this process too, with that exit status; does
     * not return where the world can do that. */
    void (*abort)(void *context, int exit_status);
    /** Blocks until every rank has come. Collective. Nothing may be under way. Where a rank
     * is lost it leaves MPI as it is. */
    void (*close)(void *context);
};

struct weir_world {
    size_t size;
    const struct weir_world_calls *calls;
    void *context;
    uint32_t rank, rank_count;
    uint32_t host_rank, host_count; /**< among the ranks of this host */
    char name[96];                  /**< the library and its version, for people */
    char host[64];
    char warning[192]; /**< which ranks cannot be watched over; "" : none. The same on all */
};

/** Why a rank is of no more use to the others. */
enum weir_lost_how {
    WEIR_LOST_DEAD,   /**< its process ended without a close */
    WEIR_LOST_SILENT, /**< not heard of for the time-out: stopped, or its host is down or cut off */
    WEIR_LOST_ABORTED, /**< it called `abort` */
    WEIR_LOST_ABSENT   /**< somebody did not come to the start; nobody knows who */
};

/** A rank that is lost. All that live are told the same one, which was missed first. */
struct weir_lost {
    size_t size;
    uint32_t rank; /**< this process's own: the others have gone on without it */
    enum weir_lost_how how;
    uint32_t count;  /**< of ranks that are lost, at this moment */
    bool speaks;     /**< this rank is the one to say so: the lowest that lives */
    int exit_status; /**< ABORTED: what it ended all with */
    double seconds;  /**< how long it was not heard of; 0 where its end was seen */
    char host[64];   /**< of the rank */
    char text[224];  /**< one line for people: rank, host, how */
};

/** For how many time-outs, and seconds at least, ranks may come to the start after each other,
 * where no other limit is given. */
enum { WEIR_JOIN_TIMEOUTS = 6, WEIR_JOIN_LEAST_S = 10 };
/** The longest time-out: some thirty years. */
enum { WEIR_TIMEOUT_MOST_S = 1000000000 };

struct weir_world_options {
    size_t size;
    const char *library; /**< of MPI; NULL: it is looked for, see weir_world_mpi */
    double peer_timeout; /**< seconds that a rank may be silent; > 0, up to the longest */
    /** Seconds in which every rank must have come; 0: WEIR_JOIN_TIMEOUTS. What dies in the start of
     * MPI is known to its launcher alone, so those that wait there for it end no sooner. */
    double start_timeout;
    /** Called once, on a thread of the world, when a rank is lost; may be NULL. The calls of the
     * world fail with WEIR_ERR_PEER from a moment before, but a thread that is inside MPI may never
     * come back: who must end then does so here, by _exit. Where this is given, SIGSEGV and SIGBUS
     * inside MPI's calls are held up for the time-out, since an MPI may read what a dead peer left:
     * so the lost rank is told first; and SIGUSR1 is caught, unless the program does, by which
     * MPICH's launcher tells of a process that has failed. */
    void (*lost)(void *context, const struct weir_lost *lost);
    void *context; /**< of `lost` */
};
/** Ten seconds, and nobody is called. */
#define WEIR_WORLD_OPTIONS_INIT                                                                    \
    { sizeof(struct weir_world_options), NULL, 10.0, 0.0, NULL, NULL }

/** Joins the world that a launcher (mpiexec, srun) started this process in, by the first MPI that
 * is found: what `options->library` (`options` NULL: WEIR_WORLD_OPTIONS_INIT) names (NULL: the
 * environment's WEIR_MPI), else libmpi_abi.so.1 beside the mpiexec of PATH (../lib), else
 * libweir_mpi.so beside the program or in its ../lib, else libmpi_abi.so.1 of the loader's path. It
 * must have MPI 5's standard ABI, or be libweir_mpi.so: what build/mpi_shim.c becomes by another
 * MPI's mpicc. Each is opened at run time and stays; nothing is linked. Blocks, for every rank must
 * come; on the thread that will call close.
 *
 * Ranks are watched over by a thread and by TCP connections between them, from before MPI starts
 * until close: a rank that dies, or is silent for the time-out, is lost (weir_lost), and so is one
 * of ranks that have not all come here within start_timeout. What no connection leads to
 * is said in world->warning, and left to what MPI tells.
 *
 * A process of no launcher, or of one that started it alone, is a world of one and needs no MPI.
 * Close ends MPI, which cannot start again in this process; a program that started MPI itself, with
 * MPI_THREAD_SERIALIZED at least, goes on to end it after close.
 *
 * WEIR_ERR_NOT_FOUND where there is no MPI or it does not open, WEIR_ERR_UNSUPPORTED where it has
 * no such ABI or cannot be called from several threads in turn, WEIR_ERR_PEER where it cannot start
 * or is not the launcher's (its world is not of the size that the launcher says) or a rank is lost
 * meanwhile, WEIR_ERR_ARGUMENT for other options, WEIR_ERR_SYSTEM where no thread can be made, and
 * WEIR_ERR_OUT_OF_MEMORY; every reason is in `faults`. Some MPIs end the process themselves where
 * they cannot start. */
int weir_world_mpi(const struct weir_allocator *allocator, const struct weir_world_options *options,
                   struct weir_faults *faults, struct weir_world *world);

/** How GPUs of different ranks exchange what crosses between them: a line for people, the pipe's;
 * "" where nothing does, or all ranks are on CPUs. By NCCL (libnccl.so.2, 2.18 or newer, opened at
 * run time, or what the environment's WEIR_NCCL names) where both ranks have the same version and
 * are not on one GPU; else through pinned memory and the world, and the line says why. */
const char *weir_pipe_exchange(const struct weir_pipe *pipe);

/** Which rows of an input this process's workers read in a training step of `rows` rows: *count
 * from *first on, those of its replica; *count 0: none, for another rank has the input's stage.
 * What a step is given elsewhere is not looked at, so who reads data needs no more than these.
 * `input` is one of weir_pipe_options.inputs, and rows are as the pipe was given them; of one that
 * is replicated they are all, where its stage is. */
void weir_pipe_input_rows(const struct weir_pipe *pipe, uint32_t input, int64_t rows,
                          int64_t *first, int64_t *count);

#ifdef __cplusplus
}
#endif

#endif
