/* SPDX-License-Identifier: MIT */
/* NCCL's symbols, as far as Weir uses them (src/device/nccl.h), between the fake driver's GPUs in
 * one process. A communicator has two ranks. A message is an operation in each of two streams, and
 * runs when it is the first of both: so who has not given its own keeps the other's stream.
 *
 * Calls of a non-blocking communicator are late: by the seed some of them end, and come into their
 * stream, only after as many questions for the communicator's state; what is recorded before that
 * comes first. The first message of a communicator connects it, and has not ended before the other
 * rank has called for it as well. Every call is a call of the driver that can be made to fail; a
 * peer is lost when it aborts, or by nccl_lose: then the other is told when it asks, and its stream
 * waits until it aborts as well. */
#include "fake_state.h"

#include "device/nccl.h"

#include <stdlib.h>
#include <string.h>

enum { LATE_MOST = 4, MEETINGS_MAX = 256 };

/* What the k-th send and the k-th receive of a communicator make together. */
struct fake_message {
    struct fake_op *op[2]; /* by rank; NULL: not given, or gone */
    struct fake_stream *stream[2];
};

struct ncclComm {
    struct ncclComm *next;
    struct ncclComm *peer; /* NULL: it has not come */
    char id[128];
    int rank;
    struct fake_context *context;
    uint32_t late;                 /* questions until the last call has ended */
    bool failed, lost;             /* lost: the peer is */
    uint64_t given;                /* messages */
    struct fake_op *coming;        /* of the last call, not in its stream yet … */
    struct fake_stream *to;        /* … which is this */
    struct fake_message *messages; /* [MEETINGS_MAX], of both: rank 0's */
};

int ncclGetVersion(int *version);
const char *ncclGetErrorString(int result);
#define DECLARE(member, symbol, parameters) int symbol parameters;
WEIR__NCCL_CALL_MAP(DECLARE)
#undef DECLARE

static struct ncclComm *comms; /* all, under the driver's lock */
static uint64_t ids, lose_at, messages_given;

/* ---- messages in streams ---- */

static struct fake_message *message_of(const struct fake_op *op) {
    return op->message;
}

bool fake_message_is_ready(const struct fake_op *op) {
    const struct fake_message *message = message_of(op);
    if (op->dropped) return true;
    for (int side = 0; side < 2; side++) {
        if (message->op[side] == NULL) return false;
        if (message->stream[side]->head != message->op[side]) return false;
    }
    return true;
}

struct fake_stream *fake_message_other(const struct fake_op *op) {
    const struct fake_message *message = message_of(op);
    int other = message->op[0] == op ? 1 : 0;
    return message->op[other] != NULL ? message->stream[other] : NULL;
}

void fake_message_forget(struct fake_op *op) {
    struct fake_message *message = message_of(op);
    for (int side = 0; side < 2 && message != NULL; side++)
        if (message->op[side] == op) message->op[side] = NULL;
}

/* Neither GPU need reach the other's memory. */
static void move(const struct fake_message *message) {
    const struct fake_op *from = message->op[0], *to = message->op[1];
    if (from->bytes != to->bytes) {
        fake_fault("a send of %zu bytes for a receive of %zu", from->bytes, to->bytes);
        return;
    }
    void *between = fake_new(from->bytes);
    fake_memory_open(message->stream[0]->context);
    memcpy(between, from->from, from->bytes);
    fake_memory_open(message->stream[1]->context);
    memcpy(to->to, between, from->bytes);
    free(between);
}

struct fake_stream *fake_message_run(struct fake_op *op) {
    struct fake_message *message = message_of(op);
    if (op->dropped) return NULL;
    struct fake_stream *other = fake_message_other(op);
    bool whole =
        message->stream[0]->context->broken == 0 && message->stream[1]->context->broken == 0;
    if (whole) move(message);
    return other;
}

/* ---- communicators ---- */

static int enter(void) {
    fake_lock();
    return fake_injected() != 0 ? WEIR__NCCL_UNHANDLED_CUDA : WEIR__NCCL_SUCCESS;
}

static int leave(int result) {
    fake_unlock();
    return result;
}

static uint32_t some(void) {
    return (uint32_t)fake_random_below(LATE_MOST + 1);
}

int ncclGetVersion(int *version) {
    *version = 22703;
    return WEIR__NCCL_SUCCESS;
}

const char *ncclGetErrorString(int result) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return result >= 0 && result <= WEIR__NCCL_IN_PROGRESS ? texts[result] : "unknown";
}

int ncclGetUniqueId(struct weir__nccl_id *id) {
    int result = enter();
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "fake %llu", (unsigned long long)++ids);
    return leave(result);
}

static void find_peer(struct ncclComm *comm) {
    for (struct ncclComm *other = comms; other != NULL; other = other->next) {
        if (other == comm || other->peer != NULL || memcmp(other->id, comm->id, 128) != 0) continue;
        if (other->rank == comm->rank || other->context == comm->context) other->failed = true;
        comm->failed = other->failed;
        other->peer = comm;
        comm->peer = other;
        comm->messages = other->messages;
        return;
    }
    comm->messages = fake_new(MEETINGS_MAX * sizeof *comm->messages);
}

int ncclCommInitRankConfig(struct ncclComm **comm, int count, struct weir__nccl_id id, int rank,
                           struct weir__nccl_config *config) {
    int result = enter();
    bool right = count == 2 && (rank == 0 || rank == 1) && config->size == sizeof *config &&
                 config->magic == 0xcafebeefu && config->blocking == 0 && fake_current() != NULL;
    if (result != 0) return leave(result);
    if (!right) return leave(WEIR__NCCL_INVALID_ARGUMENT);
    struct ncclComm *made = fake_new(sizeof *made);
    memcpy(made->id, id.bytes, sizeof made->id);
    made->rank = rank;
    made->context = fake_current();
    made->late = some();
    find_peer(made);
    made->next = comms;
    comms = made;
    fake.counts.plans++;
    *comm = made;
    return leave(WEIR__NCCL_IN_PROGRESS);
}

static void come(struct ncclComm *comm) {
    struct fake_op *op = comm->coming;
    if (op == NULL) return;
    comm->coming = NULL;
    struct fake_message *message = &comm->messages[comm->given++ % MEETINGS_MAX];
    message->op[comm->rank] = op;
    message->stream[comm->rank] = comm->to;
    op->message = message;
    fake_submit(comm->to, op);
}

static bool connects(const struct ncclComm *comm) {
    const struct ncclComm *peer = comm->peer;
    return comm->coming != NULL && comm->given == 0 && peer->given == 0 && peer->coming == NULL;
}

int ncclCommGetAsyncError(struct ncclComm *comm, int *state) {
    int result = enter();
    *state = WEIR__NCCL_SUCCESS;
    if (result != 0) return leave(result);
    if (comm->failed) *state = WEIR__NCCL_INVALID_USAGE;
    if (comm->lost) *state = WEIR__NCCL_REMOTE_ERROR;
    if (*state != WEIR__NCCL_SUCCESS) return leave(result);
    if (comm->peer == NULL || comm->late > 0 || connects(comm)) *state = WEIR__NCCL_IN_PROGRESS;
    if (comm->late > 0) comm->late--;
    if (*state == WEIR__NCCL_SUCCESS) come(comm);
    return leave(result);
}

/* What its stream has of it ends without a byte, and so does what is on its way there. */
static void drop_all(struct ncclComm *comm) {
    free(comm->coming);
    comm->coming = NULL;
    for (uint32_t i = 0; i < MEETINGS_MAX; i++)
        if (comm->messages[i].op[comm->rank] != NULL)
            comm->messages[i].op[comm->rank]->dropped = true;
}

int ncclCommAbort(struct ncclComm *comm) {
    int result = enter();
    struct ncclComm **at = &comms;
    while (*at != comm) at = &(*at)->next;
    *at = comm->next;
    drop_all(comm);
    if (comm->peer != NULL) {
        comm->peer->lost = true;
        comm->peer->peer = NULL;
    }
    fake.counts.plans--;
    free(comm); /* the messages may be in streams: they stay */
    return leave(result);
}

static int give(struct ncclComm *comm, struct fake_op *op, const void *memory, bool receives,
                int type, int peer, struct CUstream_st *stream) {
    struct fake_stream *on = fake_stream_of(stream);
    bool right = on != NULL && on->context == comm->context && fake_current() == comm->context &&
                 type == WEIR__NCCL_INT8 && peer == !comm->rank && receives == (comm->rank == 1);
    if (!right) return WEIR__NCCL_INVALID_ARGUMENT;
    if (comm->peer == NULL || comm->coming != NULL || comm->late > 0)
        return WEIR__NCCL_INVALID_USAGE;
    if (fake_place_of(on->context, memory, op->bytes, receives ? "ncclRecv" : "ncclSend") !=
        FAKE_DEVICE)
        return WEIR__NCCL_INVALID_ARGUMENT;
    comm->coming = op;
    comm->to = on;
    comm->late = some();
    if (++messages_given == lose_at) comm->lost = comm->peer->lost = true;
    if (comm->late > 0 || comm->lost || connects(comm)) return WEIR__NCCL_IN_PROGRESS;
    come(comm);
    return WEIR__NCCL_SUCCESS;
}

int ncclSend(const void *data, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream) {
    int result = enter();
    if (result != 0) return leave(result);
    struct fake_op *op =
        fake_op_new(FAKE_MESSAGE, fake_log("ncclSend", NULL, NULL, NULL, data, count));
    op->from = data;
    op->bytes = count;
    result = give(comm, op, data, false, type, peer, stream);
    if (result != WEIR__NCCL_SUCCESS && result != WEIR__NCCL_IN_PROGRESS) free(op);
    return leave(result);
}

int ncclRecv(void *data, size_t count, int type, int peer, struct ncclComm *comm,
             struct CUstream_st *stream) {
    int result = enter();
    if (result != 0) return leave(result);
    struct fake_op *op =
        fake_op_new(FAKE_MESSAGE, fake_log("ncclRecv", NULL, NULL, data, NULL, count));
    op->to = data;
    op->bytes = count;
    result = give(comm, op, data, true, type, peer, stream);
    if (result != WEIR__NCCL_SUCCESS && result != WEIR__NCCL_IN_PROGRESS) free(op);
    return leave(result);
}

void fake_nccl_lose(uint64_t k) {
    lose_at = k == 0 ? 0 : messages_given + k;
}

uint64_t fake_nccl_given(void) {
    return messages_given;
}
