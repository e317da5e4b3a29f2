/* SPDX-License-Identifier: MIT */
/* Messages on their way, and requests. */
#include "base/base.h"
#include "engine/threads_inside.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xFF };

/* ---- messages on their way ------------------------------------------------------------------- */

static struct threads_way *way_of(const struct threads_operation *send) {
    struct threads_world *world = send->rank->owner;
    uint32_t ranks = world->options.ranks, from = send->rank->world.rank;
    return &world->ways[(send->message.channel * ranks + from) * ranks + send->message.peer];
}

static bool is_between(const struct threads_operation *receive,
                       const struct threads_operation *send) {
    return receive->receives && !send->receives &&
           receive->message.peer == send->rank->world.rank &&
           send->message.peer == receive->rank->world.rank &&
           receive->message.channel == send->message.channel;
}

/* Half of all waits are none. */
static uint32_t wait_of(uint32_t word, uint32_t most) {
    return (word & 1) != 0 ? 0 : (word >> 1) % (most + 1);
}

/* What becomes of a message is a function of the seed and of which it is. */
static void draw(struct threads_operation *send) {
    const struct threads_options *options = &send->rank->owner->options;
    const uint32_t key[2] = {(uint32_t)options->seed, (uint32_t)(options->seed >> 32)};
    const uint32_t ranks = send->rank->world.rank << 16 | send->message.peer;
    uint32_t counter[4] = {send->message.channel, ranks, (uint32_t)send->number, 0}, words[8];
    weir__philox(counter, key, words);
    counter[3] = 1;
    weir__philox(counter, key, words + 4);
    for (int place = 0; place < THREADS_PLACES; place++) send->draws[place] = words[place];
    send->end_calls = wait_of(words[7], options->delay);
    send->copied = (words[7] >> 31) != 0;
}

static void go_on(struct threads_operation *send, enum threads_place place) {
    uint32_t most_us = send->rank->owner->options.delay_us;
    send->place = place;
    send->calls_left = wait_of(send->draws[place], send->rank->owner->options.delay);
    send->until_ns = 0;
    if (most_us == 0) return;
    uint32_t us = wait_of(send->draws[place] >> 16, most_us);
    send->until_ns = weir__now_ns() + us * UINT64_C(1000);
}

/* Counts one call. */
static bool is_due(struct threads_operation *send) {
    if (send->calls_left > 0) {
        send->calls_left--;
        return false;
    }
    return send->until_ns == 0 || weir__now_ns() >= send->until_ns;
}

static void expect_unwritten(const struct threads_operation *send) {
    size_t bytes = send->message.bytes;
    if (bytes > 0 && memcmp(send->bytes, send->message.data, bytes) != 0)
        threads_misuse(send->rank, "a send's memory was written to before its end");
}

static void read_bytes(struct threads_operation *send) {
    expect_unwritten(send);
    if (send->message.bytes > 0) memcpy(send->bytes, send->message.data, send->message.bytes);
}

static bool is_read(const struct threads_operation *send) {
    return send->copied || send->place > THREADS_WANTED;
}

static void match(struct threads_operation *send, struct threads_operation *receive) {
    send->partner = receive;
    receive->partner = send;
    receive->filled = send->message.bytes;
    go_on(send, send->copied ? THREADS_FILLS : THREADS_WANTED);
}

static void come(struct threads_operation *send) {
    struct threads_world *world = send->rank->owner;
    struct threads_operation *receive = world->operations;
    way_of(send)->came++;
    go_on(send, THREADS_CAME);
    while (receive != NULL && (receive->partner != NULL || !is_between(receive, send)))
        receive = receive->next;
    if (receive != NULL)
        match(send, receive);
    else
        world->counts.unexpected++;
}

static void count_overtaken(const struct threads_operation *send) {
    struct threads_world *world = send->rank->owner;
    const struct threads_operation *each = world->operations;
    while (each->receives || each->message.peer != send->message.peer || each->place > THREADS_IN ||
           (each->place == THREADS_IN && each != send))
        each = each->next;
    world->counts.overtaken += each != send;
}

/* What a call of the rank does for a message. Whether it is at another place now. */
static bool advance(struct threads_operation *send, const struct threads_rank *rank) {
    bool from = send->rank == rank, to = send->message.peer == rank->world.rank;
    enum threads_place place = send->place;
    if (place == THREADS_LEAVES && from && is_due(send))
        go_on(send, THREADS_TRAVELS);
    else if (place == THREADS_TRAVELS && to && is_due(send) && way_of(send)->came == send->number)
        come(send);
    else if (place == THREADS_WANTED && from && is_due(send)) {
        read_bytes(send);
        go_on(send, THREADS_FILLS);
    } else if (place == THREADS_FILLS && to && is_due(send)) {
        go_on(send, THREADS_IN);
        count_overtaken(send);
    }
    return send->place != place;
}

void threads_progress(const struct threads_rank *rank) {
    struct threads_operation *each = rank->failed ? NULL : rank->owner->operations;
    for (; each != NULL; each = each->next) {
        if (each->receives) continue;
        if (each->rank == rank && is_read(each) && each->end_calls > 0) each->end_calls--;
        while (advance(each, rank)) continue;
    }
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct threads_operation *find(const struct threads_rank *rank,
                                      const struct weir_request *request) {
    struct threads_operation *each = rank->owner->operations;
    while (each != NULL && (each->rank != rank || each->request != request)) each = each->next;
    return each;
}

void threads_drop(struct threads_operation *operation) {
    struct threads_operation **at = &operation->rank->owner->operations;
    while (*at != operation) at = &(*at)->next;
    *at = operation->next;
    free(operation->bytes);
    free(operation);
}

static int check_message(struct threads_rank *rank, const struct weir_message *message,
                         const struct weir_request *request, bool receives) {
    const struct threads_world *world = rank->owner;
    if (message->channel >= world->channels)
        return threads_misuse(rank, "channel %u of %u", message->channel, world->channels);
    if (message->peer >= world->options.ranks || message->peer == rank->world.rank)
        return threads_misuse(rank, "peer %u of %u", message->peer, world->options.ranks);
    if (!receives && message->tag > WEIR_TAG_MOST)
        return threads_misuse(rank, "tag %u", message->tag);
    if (message->data == NULL && message->bytes > 0)
        return threads_misuse(rank, "bytes without memory");
    if (find(rank, request) != NULL)
        return threads_misuse(rank, "a request that is under way is begun");
    return WEIR_OK;
}

static void begin_receive(struct threads_operation *receive) {
    struct threads_operation *send = receive->rank->owner->operations;
    if (receive->message.bytes > 0) memset(receive->message.data, POISON, receive->message.bytes);
    while (send != NULL && (send->place != THREADS_CAME || !is_between(receive, send)))
        send = send->next;
    if (send != NULL) match(send, receive);
}

static void begin_send(struct threads_operation *send) {
    send->number = way_of(send)->sent++;
    draw(send);
    go_on(send, THREADS_LEAVES);
    send->bytes = threads_take(send->message.bytes, 1);
    if (send->message.bytes > 0) memcpy(send->bytes, send->message.data, send->message.bytes);
    send->rank->owner->counts.sent++;
    send->rank->owner->counts.copied += send->copied;
}

static int begin(struct threads_rank *rank, const struct weir_message *message,
                 struct weir_request *request, enum threads_call kind) {
    struct threads_operation **last = &rank->owner->operations;
    bool receives = kind == THREADS_RECEIVE;
    int status = threads_admit(rank, kind);
    if (status != WEIR_OK) return status;
    status = check_message(rank, message, request, receives);
    if (status != WEIR_OK) return status;
    struct threads_operation *operation = threads_take(1, sizeof *operation);
    *operation = (struct threads_operation){
        .rank = rank, .message = *message, .request = request, .receives = receives};
    if (receives)
        begin_receive(operation);
    else
        begin_send(operation);
    while (*last != NULL) last = &(*last)->next;
    *last = operation;
    request->words[0] = (uintptr_t)operation;
    threads_progress(rank);
    return WEIR_OK;
}

int threads_send(void *context, const struct weir_message *message, struct weir_request *request) {
    if (!threads_come_in(context)) return WEIR_ERR_ARGUMENT;
    int status = begin(context, message, request, THREADS_SEND);
    threads_go_out(context);
    return status;
}

int threads_receive(void *context, const struct weir_message *message,
                    struct weir_request *request) {
    if (!threads_come_in(context)) return WEIR_ERR_ARGUMENT;
    int status = begin(context, message, request, THREADS_RECEIVE);
    threads_go_out(context);
    return status;
}

static bool is_poison(const uint8_t *memory, size_t bytes) {
    size_t i = 0;
    while (i < bytes && memory[i] == POISON) i++;
    return i == bytes;
}

static int end_send(struct threads_operation *send, bool *ended) {
    if (!is_read(send) || send->end_calls > 0) return WEIR_OK;
    expect_unwritten(send);
    send->request = NULL;
    *ended = true;
    if (send->place == THREADS_RECEIVED) threads_drop(send);
    return WEIR_OK;
}

static bool is_untouched(const struct threads_operation *receive) {
    const struct threads_operation *send = receive->partner;
    const uint8_t *memory = receive->message.data;
    size_t bytes = send->message.bytes, rest = bytes - receive->filled;
    if (receive->message.bytes == 0) return true;
    return is_poison(memory, receive->filled) &&
           is_poison(memory + bytes, receive->message.bytes - bytes) &&
           (rest == 0 ||
            memcmp(memory + receive->filled, send->bytes + receive->filled, rest) == 0);
}

static int end_receive(struct threads_operation *receive, struct weir_arrival *arrival) {
    struct threads_operation *send = receive->partner;
    size_t bytes = send->message.bytes;
    if (bytes > receive->message.bytes)
        return threads_refuse(
            receive->rank, "%zu bytes came from rank %u on channel %u for room of %zu", bytes,
            receive->message.peer, receive->message.channel, receive->message.bytes);
    if (!is_untouched(receive))
        return threads_misuse(receive->rank, "a receive's memory was written to before its end");
    if (bytes > 0) memcpy(receive->message.data, send->bytes, bytes);
    if (arrival != NULL) *arrival = (struct weir_arrival){send->message.tag, bytes};
    receive->rank->owner->counts.received++;
    go_on(send, THREADS_RECEIVED);
    send->partner = NULL;
    if (send->request == NULL) threads_drop(send);
    threads_drop(receive);
    return WEIR_OK;
}

/* A part, from the back: who looks at the memory instead of asking sees all of it but the truth. */
static void fill_some(struct threads_operation *receive) {
    const struct threads_operation *send = receive->partner;
    size_t at = receive->filled / 2, bytes = receive->filled - at;
    if (send->message.bytes > receive->message.bytes || at == 0) return;
    memcpy((uint8_t *)receive->message.data + at, send->bytes + at, bytes);
    receive->filled = at;
}

static bool was_sent(const struct threads_operation *receive) {
    const struct threads_operation *each = receive->rank->owner->operations;
    while (each != NULL && (each->place >= THREADS_WANTED || !is_between(receive, each)))
        each = each->next;
    return receive->partner != NULL || each != NULL;
}

static int test_receive(struct threads_operation *receive, bool *ended,
                        struct weir_arrival *arrival) {
    struct threads_operation *send = receive->partner;
    if (send != NULL && send->place == THREADS_IN) {
        int status = end_receive(receive, arrival);
        *ended = status == WEIR_OK;
        return status;
    }
    if (send != NULL && send->place == THREADS_FILLS) fill_some(receive);
    receive->rank->owner->counts.late += was_sent(receive);
    return WEIR_OK;
}

/* The request's operation, after a call's progress; or why there is none. */
static int admit_request(struct threads_rank *rank, enum threads_call kind,
                         const struct weir_request *request, struct threads_operation **operation) {
    int status = threads_admit(rank, kind);
    if (status != WEIR_OK) return status;
    *operation = find(rank, request);
    if (*operation == NULL) return threads_misuse(rank, "a request that is not under way");
    if (request->words[0] != (uintptr_t)*operation)
        return threads_misuse(rank, "a request was written to");
    threads_progress(rank);
    return WEIR_OK;
}

static int test_request(struct threads_rank *rank, struct weir_request *request, bool *ended,
                        struct weir_arrival *arrival) {
    struct threads_operation *operation = NULL;
    int status = admit_request(rank, THREADS_TEST, request, &operation);
    if (status != WEIR_OK) return status;
    return operation->receives ? test_receive(operation, ended, arrival)
                               : end_send(operation, ended);
}

int threads_test(void *context, struct weir_request *request, bool *ended,
                 struct weir_arrival *arrival) {
    *ended = false;
    if (arrival != NULL) *arrival = (struct weir_arrival){UINT32_MAX, SIZE_MAX};
    if (!threads_come_in(context)) return WEIR_ERR_ARGUMENT;
    int status = test_request(context, request, ended, arrival);
    threads_go_out(context);
    if (!*ended) sched_yield(); /* or who polls keeps the lock from those that it waits for */
    return status;
}

static int cancel_request(struct threads_rank *rank, struct weir_request *request, bool *ended) {
    struct threads_operation *operation = NULL;
    int status = admit_request(rank, THREADS_CANCEL, request, &operation);
    if (status != WEIR_OK) return status;
    if (!operation->receives) return threads_misuse(rank, "a send is cancelled");
    *ended = operation->partner == NULL;
    if (!*ended) return WEIR_OK;
    rank->owner->counts.cancelled++;
    threads_drop(operation);
    return WEIR_OK;
}

int threads_cancel(void *context, struct weir_request *request, bool *ended) {
    *ended = false;
    if (!threads_come_in(context)) return WEIR_ERR_ARGUMENT;
    int status = cancel_request(context, request, ended);
    threads_go_out(context);
    return status;
}

/* ---- for people ------------------------------------------------------------------------------ */

void threads_describe(const struct threads_operation *operation, char *text, size_t capacity) {
    static const char *const waits[THREADS_PLACES] = {"waits for calls of its sender",
                                                      "waits for calls of its receiver",
                                                      "came, no receive has begun",
                                                      "came, waits for calls of its sender",
                                                      "came, waits for calls of its receiver",
                                                      "came, waits for its test",
                                                      "was received"};
    const struct weir_message *message = &operation->message;
    const struct threads_operation *send = operation->receives ? operation->partner : operation;
    if (send == NULL) {
        send = operation->rank->owner->operations;
        while (send != NULL && (send->place > THREADS_CAME || !is_between(operation, send)))
            send = send->next;
    }
    snprintf(text, capacity, "%s %u on channel %u, %zu bytes, tag %u: %s",
             operation->receives ? "receive from" : "send to", message->peer, message->channel,
             send == NULL ? message->bytes : send->message.bytes,
             send == NULL ? 0 : send->message.tag,
             send == NULL ? "nothing was sent" : waits[send->place]);
}
