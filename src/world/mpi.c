/* SPDX-License-Identifier: MIT */
/* The world of MPI. A channel is a communicator, since messages of one never meet those of another;
 * MPI keeps the order of two messages between the same ranks if any receive would take either,
 * which is why receives ask for any tag.
 *
 * Errors are returned and not fatal from MPI_Init_thread on; what that call itself cannot do, MPI
 * libraries end the process for. Once a peer is lost MPI is left alone, since it may hang, or read
 * what is not there any more. */
#include "weir_world.h"
#include "world/beats.h"
#include "world/hold.h"
#include "world/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mpi_world {
    const struct weir_allocator *allocator;
    struct weir__mpi mpi;
    struct weir__mpi_comm **channels;
    uint32_t channel_count, channel_capacity;
    unsigned char *rooms; /* [rank_count]: who has memory for channels */
    uint32_t rank, rank_count;
    bool owned;                /* MPI was started here, and is ended here */
    struct weir__beats *beats; /* NULL: nobody is watched over */
    char reason[WEIR__MPI_ERROR_BYTES + 128];
};

/* What lies in a weir_request. */
struct pending {
    struct weir__mpi_request *request;
    size_t room;
    struct weir_arrival arrival; /* where it has arrived */
    uint32_t peer, channel;
    bool receives, arrived;
};
_Static_assert(sizeof(struct pending) <= sizeof(struct weir_request), "a request has its door");

enum { CANCEL_TESTS_MAX = 1000, WAIT_LOST_MS = 500 };

/* A call of MPI, whose error is the value. */
#define CALL(world, call, ...) guarded((weir__hold_enter(), (world)->mpi.calls.call(__VA_ARGS__)))
static int guarded(int error) {
    weir__hold_leave();
    return error;
}

/* ---- errors ---- */

/* MPI's texts may have lines: they become one, in `text`. */
static void join_lines(char *text) {
    size_t used = 0;
    for (const char *at = text; *at != '\0'; at++) {
        bool blank = *at == ' ' || *at == '\t' || *at == '\n' || *at == '\r';
        if (blank && (used == 0 || text[used - 1] == ' ')) continue;
        text[used++] = blank ? ' ' : *at;
    }
    while (used > 0 && text[used - 1] == ' ') used--;
    text[used] = '\0';
}

static int fail_lost(struct mpi_world *world) {
    weir__beats_tell(world->beats, world->reason, sizeof world->reason);
    return WEIR_ERR_PEER;
}

/* What MPI says of a peer that is gone is not who it was. */
static int fail(struct mpi_world *world, const char *call, int error) {
    char text[WEIR__MPI_ERROR_BYTES] = "";
    int length = 0;
    assert(error != WEIR__MPI_SUCCESS);
    if (weir__beats_has_lost(world->beats)) return fail_lost(world);
    if (world->mpi.calls.error_string(error, text, &length) != WEIR__MPI_SUCCESS || text[0] == '\0')
        snprintf(text, sizeof text, "error %d", error);
    snprintf(world->reason, sizeof world->reason, "%s: %s", call, text);
    join_lines(world->reason);
    return WEIR_ERR_PEER;
}

static int fail_message(struct mpi_world *world, const struct pending *pending, const char *call,
                        int error) {
    char text[sizeof world->reason];
    if (weir__beats_wait_lost(world->beats, WAIT_LOST_MS)) return fail_lost(world);
    (void)fail(world, call, error);
    snprintf(text, sizeof text, "%s", world->reason);
    snprintf(world->reason, sizeof world->reason, "a %s rank %u on channel %u: %.500s",
             pending->receives ? "receive from" : "send to", pending->peer, pending->channel, text);
    return WEIR_ERR_PEER;
}

static const char *reason(void *context) {
    const struct mpi_world *world = context;
    return world->reason;
}

/* ---- channels ---- */

static int add_channel(struct mpi_world *world, uint32_t channel) {
    if (weir__beats_has_lost(world->beats)) return fail_lost(world);
    int error = CALL(world, comm_dup, WEIR__MPI_COMM_WORLD, &world->channels[channel]);
    if (error != WEIR__MPI_SUCCESS) return fail(world, "MPI_Comm_dup", error);
    world->channel_count = channel + 1;
    error = CALL(world, comm_set_errhandler, world->channels[channel], WEIR__MPI_ERRORS_RETURN);
    return error == WEIR__MPI_SUCCESS ? WEIR_OK : fail(world, "MPI_Comm_set_errhandler", error);
}

/* Before any is opened: whether all ranks have memory, for they must count channels alike. */
static int agree_on_room(struct mpi_world *world, bool has, uint32_t count) {
    const unsigned char own = has;
    uint32_t without = 0;
    assert(world->rooms != NULL);
    if (weir__beats_has_lost(world->beats)) return fail_lost(world);
    int error = CALL(world, allgather, &own, 1, WEIR__MPI_BYTE, world->rooms, 1, WEIR__MPI_BYTE,
                     WEIR__MPI_COMM_WORLD);
    if (error != WEIR__MPI_SUCCESS) return fail(world, "MPI_Allgather", error);
    while (without < world->rank_count && world->rooms[without]) without++;
    if (without == world->rank_count) return WEIR_OK;
    snprintf(world->reason, sizeof world->reason, "rank %u has no memory for %u channels", without,
             count);
    return has ? WEIR_ERR_PEER : WEIR_ERR_OUT_OF_MEMORY;
}

static int open_channels(void *context, uint32_t count) {
    struct mpi_world *world = context;
    uint32_t before = world->channel_count;
    if (count <= before) return WEIR_OK;
    struct weir__mpi_comm **channels = weir__acquire(world->allocator, count, sizeof *channels);
    int status = agree_on_room(world, channels != NULL, count);
    if (status != WEIR_OK) {
        weir__release(world->allocator, channels, count, sizeof *channels);
        return status;
    }
    if (before > 0) memcpy(channels, world->channels, before * sizeof *channels);
    weir__release(world->allocator, world->channels, world->channel_capacity, sizeof *channels);
    world->channels = channels;
    world->channel_capacity = count;
    for (uint32_t i = before; i < count; i++)
        if ((status = add_channel(world, i)) != WEIR_OK) return status;
    return WEIR_OK;
}

/* ---- messages ---- */

static struct pending load(const struct weir_request *request) {
    struct pending pending;
    memcpy(&pending, request->words, sizeof pending);
    return pending;
}

static void store(const struct pending *pending, struct weir_request *request) {
    memcpy(request->words, pending, sizeof *pending);
}

static struct pending begin(const struct mpi_world *world, const struct weir_message *message,
                            bool receives) {
    assert(message->peer < world->rank_count && message->peer != world->rank);
    assert(message->channel < world->channel_count);
    assert(message->data != NULL || message->bytes == 0);
    assert(message->bytes <= INT64_MAX);
    return (struct pending){.room = message->bytes,
                            .peer = message->peer,
                            .channel = message->channel,
                            .receives = receives};
}

static int send(void *context, const struct weir_message *message, struct weir_request *request) {
    struct mpi_world *world = context;
    struct pending pending = begin(world, message, false);
    assert(message->tag <= WEIR_TAG_MOST);
    if (weir__beats_has_lost(world->beats)) return fail_lost(world);
    int error = CALL(world, isend, message->data, (int64_t)message->bytes, WEIR__MPI_BYTE,
                     (int)message->peer, (int)message->tag, world->channels[message->channel],
                     &pending.request);
    if (error != WEIR__MPI_SUCCESS) return fail_message(world, &pending, "MPI_Isend", error);
    store(&pending, request);
    return WEIR_OK;
}

static int receive(void *context, const struct weir_message *message,
                   struct weir_request *request) {
    struct mpi_world *world = context;
    struct pending pending = begin(world, message, true);
    if (weir__beats_has_lost(world->beats)) return fail_lost(world);
    int error = CALL(world, irecv, message->data, (int64_t)message->bytes, WEIR__MPI_BYTE,
                     (int)message->peer, WEIR__MPI_ANY_TAG, world->channels[message->channel],
                     &pending.request);
    if (error != WEIR__MPI_SUCCESS) return fail_message(world, &pending, "MPI_Irecv", error);
    store(&pending, request);
    return WEIR_OK;
}

/* One MPI_Test. A receive that ended has either its arrival or *cancelled. */
static int progress(struct mpi_world *world, struct pending *pending, bool *ended,
                    bool *cancelled) {
    const struct weir__mpi_calls *mpi = &world->mpi.calls;
    struct weir__mpi_status status = {0};
    int flag = 0, stopped = 0;
    int64_t bytes = 0;
    if (weir__beats_has_lost(world->beats)) return fail_lost(world);
    int error = CALL(world, test, &pending->request, &flag, &status);
    if (error != WEIR__MPI_SUCCESS) return fail_message(world, pending, "MPI_Test", error);
    *ended = flag != 0;
    *cancelled = false;
    if (!*ended || !pending->receives) return WEIR_OK;
    error = mpi->test_cancelled(&status, &stopped);
    if (error != WEIR__MPI_SUCCESS)
        return fail_message(world, pending, "MPI_Test_cancelled", error);
    *cancelled = stopped != 0;
    if (*cancelled) return WEIR_OK;
    error = mpi->get_count(&status, WEIR__MPI_BYTE, &bytes);
    if (error != WEIR__MPI_SUCCESS) return fail_message(world, pending, "MPI_Get_count", error);
    if (bytes < 0 || (uint64_t)bytes > pending->room) {
        snprintf(world->reason, sizeof world->reason,
                 "a receive from rank %u on channel %u took %lld bytes into room for %zu",
                 pending->peer, pending->channel, (long long)bytes, pending->room);
        return WEIR_ERR_PEER;
    }
    pending->arrival = (struct weir_arrival){.tag = (uint32_t)status.tag, .bytes = (size_t)bytes};
    pending->arrived = true;
    return WEIR_OK;
}

static int test(void *context, struct weir_request *request, bool *ended,
                struct weir_arrival *arrival) {
    struct mpi_world *world = context;
    struct pending pending = load(request);
    bool cancelled = false;
    *ended = pending.arrived;
    int status = *ended ? WEIR_OK : progress(world, &pending, ended, &cancelled);
    if (status != WEIR_OK) return status;
    if (cancelled) {
        snprintf(world->reason, sizeof world->reason,
                 "a receive from rank %u on channel %u was cancelled, but only later", pending.peer,
                 pending.channel);
        return WEIR_ERR_PEER;
    }
    if (*ended && arrival != NULL) *arrival = pending.arrival;
    store(&pending, request);
    return WEIR_OK;
}

/* MPI says that a cancelled receive ends soon, whatever others do, but not by how many tests. */
static int cancel(void *context, struct weir_request *request, bool *ended) {
    struct mpi_world *world = context;
    struct pending pending = load(request);
    bool cancelled = false;
    assert(pending.receives);
    *ended = false;
    if (pending.arrived) return WEIR_OK;
    if (weir__beats_has_lost(world->beats)) return fail_lost(world);
    int error = CALL(world, cancel, &pending.request);
    if (error != WEIR__MPI_SUCCESS) return fail_message(world, &pending, "MPI_Cancel", error);
    for (uint32_t i = 0; i < CANCEL_TESTS_MAX && !cancelled && !pending.arrived; i++) {
        bool over;
        int status = progress(world, &pending, &over, &cancelled);
        if (status != WEIR_OK) return status;
    }
    *ended = cancelled;
    store(&pending, request);
    return WEIR_OK;
}

/* ---- the end ---- */

static void abort_all(void *context, int exit_status) {
    struct mpi_world *world = context;
    weir__beats_abort(world->beats, exit_status);
    (void)CALL(world, abort, WEIR__MPI_COMM_WORLD, exit_status);
    _exit(exit_status); /* MPI may return, but promises nothing then */
}

static void release(struct mpi_world *world) {
    weir__release(world->allocator, world->channels, world->channel_capacity,
                  sizeof *world->channels);
    weir__release(world->allocator, world->rooms, world->rank_count, sizeof *world->rooms);
    weir__release(world->allocator, world, 1, sizeof *world);
}

/* Nobody is there to be told of errors here. Goodbye comes last: a rank that is lost before would
 * keep the others in MPI. */
static void close_world(void *context) {
    struct mpi_world *world = context;
    for (uint32_t i = 0; i < world->channel_count && !weir__beats_has_lost(world->beats); i++)
        (void)CALL(world, comm_free, &world->channels[i]);
    if (world->owned && !weir__beats_has_lost(world->beats)) (void)CALL(world, finalize);
    weir__beats_end(world->beats);
    release(world);
}

/* ---- the beginning ---- */

static int fail_start(struct mpi_world *world, const char *call, int error,
                      struct weir_faults *faults) {
    (void)fail(world, call, error);
    weir_faults_add(faults, "%.200s does not start: %.280s", world->mpi.path, world->reason);
    return WEIR_ERR_PEER;
}

/* A program that has started MPI itself goes on to end it. */
static int start(struct mpi_world *world, struct weir_faults *faults) {
    const struct weir__mpi_calls *mpi = &world->mpi.calls;
    int started = 0, over = 0, provided = 0;
    int error = mpi->finalized(&over);
    if (error == WEIR__MPI_SUCCESS) error = mpi->initialized(&started);
    if (error != WEIR__MPI_SUCCESS) return fail_start(world, "MPI_Initialized", error, faults);
    if (over) {
        weir_faults_add(faults, "MPI has ended in this process, and starts only once: open one "
                                "world, and close it at the end");
        return WEIR_ERR_PEER;
    }
    error = started ? mpi->query_thread(&provided)
                    : mpi->init_thread(NULL, NULL, WEIR__MPI_THREAD_SERIALIZED, &provided);
    if (error != WEIR__MPI_SUCCESS) return fail_start(world, "MPI_Init_thread", error, faults);
    world->owned = !started;
    if (provided >= WEIR__MPI_THREAD_SERIALIZED) return WEIR_OK;
    weir_faults_add(faults,
                    "%.300s cannot be called from several threads in turn (thread level %d): %s",
                    world->mpi.path, provided,
                    started ? "start MPI by MPI_Init_thread with MPI_THREAD_SERIALIZED"
                            : "take an MPI with MPI_THREAD_SERIALIZED");
    return WEIR_ERR_UNSUPPORTED;
}

static int number_ranks(struct mpi_world *world, struct weir_world *out,
                        struct weir_faults *faults) {
    const struct weir__mpi_calls *mpi = &world->mpi.calls;
    struct weir__mpi_comm *host = NULL;
    int rank = 0, size = 0, host_rank = 0, host_size = 0, error;
    if (world->owned &&
        (error = mpi->comm_set_errhandler(WEIR__MPI_COMM_WORLD, WEIR__MPI_ERRORS_RETURN)))
        return fail_start(world, "MPI_Comm_set_errhandler", error, faults);
    if ((error = mpi->comm_rank(WEIR__MPI_COMM_WORLD, &rank)) ||
        (error = mpi->comm_size(WEIR__MPI_COMM_WORLD, &size)))
        return fail_start(world, "MPI_Comm_size", error, faults);
    if ((error = mpi->comm_split_type(WEIR__MPI_COMM_WORLD, WEIR__MPI_COMM_TYPE_SHARED, rank,
                                      WEIR__MPI_INFO_NULL, &host)))
        return fail_start(world, "MPI_Comm_split_type", error, faults);
    if ((error = mpi->comm_rank(host, &host_rank)) || (error = mpi->comm_size(host, &host_size)) ||
        (error = mpi->comm_free(&host)))
        return fail_start(world, "MPI_Comm_size", error, faults);
    assert(rank >= 0 && rank < size && host_rank >= 0 && host_rank < host_size);
    out->rank = world->rank = (uint32_t)rank;
    out->rank_count = world->rank_count = (uint32_t)size;
    out->host_rank = (uint32_t)host_rank;
    out->host_count = (uint32_t)host_size;
    return WEIR_OK;
}

/* The library's first line, without the room between its columns. */
static int name_world(struct mpi_world *world, struct weir_world *out, struct weir_faults *faults) {
    const struct weir__mpi_calls *mpi = &world->mpi.calls;
    char library[WEIR__MPI_LIBRARY_BYTES] = "", host[WEIR__MPI_HOST_BYTES] = "";
    int length = 0;
    int error = mpi->get_library_version(library, &length);
    if (error != WEIR__MPI_SUCCESS)
        return fail_start(world, "MPI_Get_library_version", error, faults);
    error = mpi->get_processor_name(host, &length);
    if (error != WEIR__MPI_SUCCESS)
        return fail_start(world, "MPI_Get_processor_name", error, faults);
    library[strcspn(library, "\n")] = '\0';
    join_lines(library);
    weir__text_visible(library, out->name, sizeof out->name);
    weir__text_visible(host, out->host, sizeof out->host);
    return WEIR_OK;
}

/* Under another MPI's launcher every process finds itself alone, and would work alone. */
static int check_launch(const struct mpi_world *world, const struct weir_world *out,
                        const struct weir__launch *launch, struct weir_faults *faults) {
    char claim[64];
    if (launch->size == out->rank_count) return WEIR_OK;
    if (launch->size == 0 && launch->rank < out->rank_count) return WEIR_OK;
    if (launch->size > 0) {
        snprintf(claim, sizeof claim, "%u processes", launch->size);
    } else {
        snprintf(claim, sizeof claim, "a rank %u", launch->rank);
    }
    weir_faults_add(faults,
                    "the launcher started %s (%s), but %s (%.120s) finds a world of %u: it is not "
                    "the launcher's MPI",
                    claim, launch->by, out->name, world->mpi.path, out->rank_count);
    weir_faults_add(faults, "start with the mpiexec of that MPI, or name the library of the "
                            "launcher's in WEIR_MPI; under srun, see 'srun --mpi=list'");
    return WEIR_ERR_PEER;
}

static int join(struct mpi_world *world, const struct weir__launch *launch,
                struct weir_faults *faults, struct weir_world *out) {
    int status = number_ranks(world, out, faults);
    if (status != WEIR_OK) return status;
    status = name_world(world, out, faults);
    return status != WEIR_OK ? status : check_launch(world, out, launch, faults);
}

/* ---- who is watched over ---- */

static int begin_beats(struct mpi_world *world, const struct weir_world_options *options,
                       struct weir_faults *faults) {
    char host[sizeof((struct weir__door *)NULL)->host] = "";
    if (gethostname(host, sizeof host - 1) != 0) strcpy(host, "an unknown host");
    const struct weir__beats_options beats = {.allocator = world->allocator,
                                              .host = host,
                                              .peer_timeout = options->peer_timeout,
                                              .start_timeout = options->start_timeout,
                                              .lost = options->lost,
                                              .context = options->context};
    int status = weir__beats_begin(&beats, &world->beats);
    if (status != WEIR_OK)
        weir_faults_add(faults, "no thread can be made to watch over the other ranks: %s",
                        weir_status_text(status));
    return status;
}

static int gather(struct mpi_world *world, const void *own, void *all, size_t bytes,
                  struct weir_faults *faults) {
    int error = CALL(world, allgather, own, (int)bytes, WEIR__MPI_BYTE, all, (int)bytes,
                     WEIR__MPI_BYTE, WEIR__MPI_COMM_WORLD);
    return error == WEIR__MPI_SUCCESS ? WEIR_OK : fail_start(world, "MPI_Allgather", error, faults);
}

/* Connections that there are not. */
struct unwatched {
    uint32_t count, first;
};

static void warn(const struct mpi_world *world, const struct unwatched *all,
                 struct weir_world *out) {
    uint32_t count = 0, from = 0;
    for (uint32_t r = world->rank_count; r-- > 0;) {
        count += all[r].count;
        if (all[r].count > 0) from = r;
    }
    if (count == 0) return;
    snprintf(out->warning, sizeof out->warning,
             "rank %u cannot be reached by rank %u over TCP (%u pair%s so; a firewall?): whether "
             "they live is known by MPI alone, which may wait for a dead one for ever",
             all[from].first, from, (count + 1) / 2, weir__s((count + 1) / 2));
}

/* In the memory for doors there is room for gaps too. */
static int meet(struct mpi_world *world, struct weir__door *doors, struct weir_faults *faults,
                struct weir_world *out) {
    struct unwatched own, *all = (struct unwatched *)doors;
    int status = gather(world, weir__beats_door(world->beats), doors, sizeof *doors, faults);
    if (status != WEIR_OK) return status;
    status = weir__beats_meet(world->beats, world->rank, world->rank_count, doors, &own.count,
                              &own.first);
    if (status != WEIR_OK) {
        snprintf(world->reason, sizeof world->reason, "%s", weir_status_text(status));
        if (weir__beats_has_lost(world->beats)) (void)fail_lost(world);
        weir_faults_add(faults, "the ranks do not come together: %.300s", world->reason);
        return status;
    }
    if ((status = gather(world, &own, all, sizeof own, faults)) != WEIR_OK) return status;
    weir__beats_settle(world->beats);
    warn(world, all, out);
    return WEIR_OK;
}

static int watch_over(struct mpi_world *world, const struct weir_world_options *options,
                      struct weir_faults *faults, struct weir_world *out) {
    _Static_assert(sizeof(struct unwatched) <= sizeof(struct weir__door), "gaps fit among doors");
    struct weir__door *doors = weir__acquire(world->allocator, world->rank_count, sizeof *doors);
    world->rooms = weir__acquire(world->allocator, world->rank_count, sizeof *world->rooms);
    if (doors == NULL || world->rooms == NULL) {
        weir__release(world->allocator, doors, world->rank_count, sizeof *doors);
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    if (options->lost != NULL) weir__hold_begin(options->peer_timeout);
    int status = meet(world, doors, faults, out);
    weir__release(world->allocator, doors, world->rank_count, sizeof *doors);
    return status;
}

/* ---- the whole ---- */

static int open_world(struct mpi_world *world, const struct weir_world_options *options,
                      const struct weir__launch *launch, struct weir_faults *faults,
                      struct weir_world *out) {
    int status = weir__mpi_open(options->library, faults, &world->mpi);
    if (status != WEIR_OK) return status;
    if (options->lost != NULL) weir__hold_hear_launcher();
    if ((status = begin_beats(world, options, faults)) != WEIR_OK) return status;
    if ((status = start(world, faults)) != WEIR_OK) goto fail_beats;
    if ((status = join(world, launch, faults, out)) != WEIR_OK) goto fail_joined;
    if ((status = watch_over(world, options, faults, out)) == WEIR_OK) return WEIR_OK;
fail_joined:
    if (world->owned && !weir__beats_has_lost(world->beats)) (void)CALL(world, finalize);
fail_beats:
    weir__beats_end(world->beats);
    return status;
}

static bool are_times(const struct weir_world_options *options) {
    return options->peer_timeout > 0 && options->peer_timeout <= WEIR_TIMEOUT_MOST_S &&
           options->start_timeout >= 0 && options->start_timeout <= WEIR_TIMEOUT_MOST_S;
}

int weir_world_mpi(const struct weir_allocator *allocator, const struct weir_world_options *options,
                   struct weir_faults *faults, struct weir_world *world) {
    static const struct weir_world_options fallback = WEIR_WORLD_OPTIONS_INIT;
    static const struct weir_world_calls calls = {
        .size = sizeof calls,
        .open = open_channels,
        .send = send,
        .receive = receive,
        .test = test,
        .cancel = cancel,
        .reason = reason,
        .abort = abort_all,
        .close = close_world,
    };
    const struct weir__launch launch = weir__launch_read();
    assert(world != NULL);
    if (options == NULL) options = &fallback;
    bool sized = weir__is_sized(options);
    if (!sized || !are_times(options)) {
        weir_faults_add(faults,
                        "the world's options: a time-out of %g s, or of %g s at the start, or the "
                        "member `size`, is not right: begin with WEIR_WORLD_OPTIONS_INIT, and give "
                        "seconds above 0 (at the start 0, too) up to 1e9",
                        sized ? options->peer_timeout : 0.0, sized ? options->start_timeout : 0.0);
        return WEIR_ERR_ARGUMENT;
    }
    weir__world_of_one(world);
    if (launch.by == NULL || launch.size == 1) return WEIR_OK;
    struct mpi_world *context = weir__acquire(allocator, 1, sizeof *context);
    if (context == NULL) {
        weir_faults_add(faults, "there is no memory for a world");
        return WEIR_ERR_OUT_OF_MEMORY;
    }
    context->allocator = allocator;
    int status = open_world(context, options, &launch, faults, world);
    world->calls = &calls;
    world->context = context;
    if (status == WEIR_OK) return WEIR_OK;
    release(context);
    *world = (struct weir_world){0};
    return status;
}
