/* SPDX-License-Identifier: MIT */
/*
 * The lowering. Each dependency between two workers is a message. The order is that of a replay: an
 * action stands at its start, a message at its producer's end, and of equal times messages come
 * first. Sender and receiver put a message at the same place among all others. So every send meets
 * its receive, and no depth of a link is too small.
 */
#include "schedule/lower.h"

#include <stdlib.h>
#include <string.h>

/** What is needed to build an exchange. */
struct lowering {
    const struct weir_table *table;
    const struct weir__deps *deps;
    const struct weir_allocator *allocator;
    struct weir__exchange *exchange;
    uint32_t *first_sent, *last_sent; /**< [action] */
    uint32_t *first_read, *last_read; /**< [action] */
    uint32_t *links;                  /**< [worker]: a message by the last link from there */
    uint32_t *next_link;              /**< [message]: one by the link before, of the same sender */
};

/* ---- messages ---- */

static bool per_micro_batch(const struct weir_table *table, uint32_t action) {
    return weir__kinds[table->actions[action].kind].per_micro_batch;
}

/* The action's message of this sort to the worker, if there is one. */
static uint32_t find_message(const struct lowering *lowering, uint32_t from, uint32_t receiver,
                             bool skip) {
    assert(from < lowering->table->action_count);
    const struct weir__link_message *messages = lowering->exchange->messages;
    uint32_t m = lowering->first_sent[from];
    while (m != WEIR__NO_MESSAGE && (messages[m].receiver != receiver || messages[m].skip != skip))
        m = messages[m].next_sent;
    return m;
}

static uint32_t link_of(struct lowering *lowering, uint32_t sender, uint32_t receiver, uint32_t m) {
    assert(sender != receiver && sender < lowering->table->worker_count);
    assert(m < lowering->exchange->message_count);
    const struct weir__link_message *messages = lowering->exchange->messages;
    uint32_t other = lowering->links[sender];
    while (other != WEIR__NO_MESSAGE && messages[other].receiver != receiver)
        other = lowering->next_link[other];
    if (other != WEIR__NO_MESSAGE) return messages[other].link;
    lowering->next_link[m] = lowering->links[sender];
    lowering->links[sender] = m;
    return lowering->exchange->link_count++;
}

static void append(struct weir__link_message *messages, uint32_t m, uint32_t *first, uint32_t *last,
                   bool sent) {
    if (*first == WEIR__NO_MESSAGE)
        *first = m;
    else if (sent)
        messages[*last].next_sent = m;
    else
        messages[*last].next_read = m;
    *last = m;
}

static void add_message(struct lowering *lowering, uint32_t from, uint32_t reader,
                        uint32_t receiver, bool skip) {
    struct weir__exchange *exchange = lowering->exchange;
    if (find_message(lowering, from, receiver, skip) != WEIR__NO_MESSAGE) return;
    assert(exchange->message_count < exchange->message_room);
    uint32_t m = exchange->message_count++;
    uint32_t sender = weir__table_worker_of(lowering->table, from);
    exchange->messages[m] = (struct weir__link_message){.from = from,
                                                        .reader = reader,
                                                        .sender = sender,
                                                        .receiver = receiver,
                                                        .skip = skip,
                                                        .next_sent = WEIR__NO_MESSAGE,
                                                        .next_read = WEIR__NO_MESSAGE};
    exchange->messages[m].link = link_of(lowering, sender, receiver, m);
    append(exchange->messages, m, &lowering->first_sent[from], &lowering->last_sent[from], true);
    append(exchange->messages, m, &lowering->first_read[reader], &lowering->last_read[reader],
           false);
}

/* Line by line, so that the first reader of a worker comes first. */
static void find_messages(struct lowering *lowering) {
    const struct weir_table *table = lowering->table;
    const struct weir__deps *deps = lowering->deps;
    for (uint32_t w = 0; w < table->worker_count; w++) lowering->links[w] = WEIR__NO_MESSAGE;
    for (uint32_t a = 0; a < table->action_count; a++)
        lowering->first_sent[a] = lowering->first_read[a] = WEIR__NO_MESSAGE;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            if (!per_micro_batch(table, a)) continue;
            for (uint32_t e = deps->begin[a]; e < deps->begin[a + 1]; e++) {
                bool skip = deps->edges[e].cause == WEIR__CAUSE_SKIP;
                add_message(lowering, deps->edges[e].from, a, w, skip);
            }
        }
    }
}

/* ---- operations ---- */

static void add(struct weir__exchange *exchange, uint32_t *at, enum weir__operation_kind kind,
                uint32_t what) {
    assert(*at < exchange->operation_room);
    exchange->operations[(*at)++] = (struct weir__operation){what, (uint8_t)kind};
}

static void lower_late(struct lowering *lowering) {
    const struct weir_table *table = lowering->table;
    struct weir__exchange *exchange = lowering->exchange;
    const struct weir__link_message *messages = exchange->messages;
    uint32_t at = 0;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        exchange->begin[w] = at;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            if (!per_micro_batch(table, a)) continue;
            for (uint32_t m = lowering->first_read[a]; m != WEIR__NO_MESSAGE;
                 m = messages[m].next_read) {
                add(exchange, &at, WEIR__RECEIVE, m);
            }
            add(exchange, &at, WEIR__RUN, a);
            for (uint32_t m = lowering->first_sent[a]; m != WEIR__NO_MESSAGE;
                 m = messages[m].next_sent) {
                add(exchange, &at, WEIR__SEND, m);
            }
        }
    }
    exchange->begin[table->worker_count] = at;
}

/** When something stands in the common order. */
struct moment {
    double time;
    uint32_t message;
};

static int compare_moments(const void *a, const void *b) {
    const struct moment *x = a, *y = b;
    if (x->time < y->time || x->time > y->time) return x->time < y->time ? -1 : 1;
    return (x->message > y->message) - (x->message < y->message);
}

static int replay(const struct lowering *lowering, double *seconds, double *start, double *end) {
    const struct weir_table *table = lowering->table;
    for (uint32_t a = 0; a < table->action_count; a++)
        seconds[a] = weir__kinds[table->actions[a].kind].units;
    return weir__table_replay(table, lowering->deps, seconds, NULL, start, end, NULL,
                              lowering->allocator);
}

/* Each worker's share of the moments, in order: share[begin[w] .. begin[w + 1]). */
static void share_out(const struct weir__exchange *exchange, const struct moment *moments,
                      uint32_t *begin, struct moment *share) {
    for (uint32_t k = 0; k < exchange->message_count; k++) {
        begin[exchange->messages[k].sender + 1]++;
        begin[exchange->messages[k].receiver + 1]++;
    }
    for (uint32_t w = 0; w < exchange->worker_count; w++) begin[w + 1] += begin[w];
    for (uint32_t k = 0; k < exchange->message_count; k++) {
        const struct weir__link_message *message = &exchange->messages[moments[k].message];
        share[begin[message->sender]++] = moments[k];
        share[begin[message->receiver]++] = moments[k];
    }
    memmove(begin + 1, begin, exchange->worker_count * sizeof *begin);
    assert(begin[exchange->worker_count] == 2 * exchange->message_count);
    begin[0] = 0;
}

static void add_moment(const struct lowering *lowering, uint32_t worker, uint32_t *at,
                       uint32_t message) {
    bool sends = lowering->exchange->messages[message].sender == worker;
    add(lowering->exchange, at, sends ? WEIR__SEND : WEIR__RECEIVE, message);
}

static void merge(const struct lowering *lowering, const double *start, const uint32_t *begin,
                  const struct moment *share) {
    const struct weir_table *table = lowering->table;
    struct weir__exchange *exchange = lowering->exchange;
    uint32_t at = 0;
    for (uint32_t w = 0; w < table->worker_count; w++) {
        uint32_t k = begin[w];
        exchange->begin[w] = at;
        for (uint32_t a = table->lines[w]; a < table->lines[w + 1]; a++) {
            if (!per_micro_batch(table, a)) continue;
            for (; k < begin[w + 1] && share[k].time <= start[a]; k++)
                add_moment(lowering, w, &at, share[k].message);
            add(exchange, &at, WEIR__RUN, a);
        }
        for (; k < begin[w + 1]; k++) add_moment(lowering, w, &at, share[k].message);
    }
    exchange->begin[table->worker_count] = at;
}

static int lower_in_order(struct lowering *lowering) {
    const struct weir_table *table = lowering->table;
    const struct weir_allocator *allocator = lowering->allocator;
    struct weir__exchange *exchange = lowering->exchange;
    size_t actions = table->action_count, messages = exchange->message_count;
    size_t workers = (size_t)table->worker_count + 1;
    double *times = weir__acquire(allocator, 3 * actions, sizeof *times);
    struct moment *moments = weir__acquire(allocator, 3 * messages, sizeof *moments);
    uint32_t *begin = weir__acquire(allocator, workers, sizeof *begin);
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (times == NULL || moments == NULL || begin == NULL) goto out;
    status = replay(lowering, times, times + actions, times + 2 * actions);
    if (status != WEIR_OK) goto out;
    for (uint32_t m = 0; m < messages; m++)
        moments[m] = (struct moment){times[2 * actions + exchange->messages[m].from], m};
    if (messages > 0) qsort(moments, messages, sizeof *moments, compare_moments);
    share_out(exchange, moments, begin, moments + messages);
    merge(lowering, times + actions, begin, moments + messages);
out:
    weir__release(allocator, begin, workers, sizeof *begin);
    weir__release(allocator, moments, 3 * messages, sizeof *moments);
    weir__release(allocator, times, 3 * actions, sizeof *times);
    return status;
}

/* ---- memory ---- */

static bool acquire(struct lowering *lowering) {
    const struct weir_allocator *allocator = lowering->allocator;
    struct weir__exchange *exchange = lowering->exchange;
    size_t actions = exchange->action_count, messages = exchange->message_room;
    size_t workers = exchange->worker_count;
    exchange->messages = weir__acquire(allocator, messages, sizeof *exchange->messages);
    exchange->begin = weir__acquire(allocator, workers + 1, sizeof *exchange->begin);
    exchange->operations =
        weir__acquire(allocator, exchange->operation_room, sizeof *exchange->operations);
    lowering->first_sent = weir__acquire(allocator, actions, sizeof *lowering->first_sent);
    lowering->last_sent = weir__acquire(allocator, actions, sizeof *lowering->last_sent);
    lowering->first_read = weir__acquire(allocator, actions, sizeof *lowering->first_read);
    lowering->last_read = weir__acquire(allocator, actions, sizeof *lowering->last_read);
    lowering->links = weir__acquire(allocator, workers, sizeof *lowering->links);
    lowering->next_link = weir__acquire(allocator, messages, sizeof *lowering->next_link);
    return exchange->messages != NULL && exchange->begin != NULL && exchange->operations != NULL &&
           lowering->first_sent != NULL && lowering->last_sent != NULL &&
           lowering->first_read != NULL && lowering->last_read != NULL && lowering->links != NULL &&
           lowering->next_link != NULL;
}

static void release(struct lowering *lowering) {
    const struct weir_allocator *allocator = lowering->allocator;
    size_t actions = lowering->exchange->action_count, messages = lowering->exchange->message_room;
    weir__release(allocator, lowering->next_link, messages, sizeof *lowering->next_link);
    weir__release(allocator, lowering->links, lowering->exchange->worker_count,
                  sizeof *lowering->links);
    weir__release(allocator, lowering->last_read, actions, sizeof *lowering->last_read);
    weir__release(allocator, lowering->first_read, actions, sizeof *lowering->first_read);
    weir__release(allocator, lowering->last_sent, actions, sizeof *lowering->last_sent);
    weir__release(allocator, lowering->first_sent, actions, sizeof *lowering->first_sent);
}

void weir__exchange_clean_up(struct weir__exchange *exchange) {
    const struct weir_allocator *allocator = exchange->allocator;
    weir__release(allocator, exchange->operations, exchange->operation_room,
                  sizeof *exchange->operations);
    weir__release(allocator, exchange->begin, (size_t)exchange->worker_count + 1,
                  sizeof *exchange->begin);
    weir__release(allocator, exchange->messages, exchange->message_room,
                  sizeof *exchange->messages);
    *exchange = (struct weir__exchange){0};
}

int weir__lower(const struct weir_table *table, const struct weir__deps *deps,
                enum weir_receive receive, const struct weir_allocator *allocator,
                struct weir__exchange *exchange) {
    assert(deps->action_count == table->action_count);
    uint64_t room = (uint64_t)table->action_count + 2 * (uint64_t)deps->edge_count;
    *exchange = (struct weir__exchange){.allocator = allocator,
                                        .worker_count = table->worker_count,
                                        .action_count = table->action_count};
    if (room > UINT32_MAX) return WEIR_ERR_OVERFLOW;
    exchange->message_room = deps->edge_count;
    exchange->operation_room = (uint32_t)room;
    struct lowering lowering = {
        .table = table, .deps = deps, .allocator = allocator, .exchange = exchange};
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (!acquire(&lowering)) goto out;
    find_messages(&lowering);
    status = WEIR_OK;
    if (receive == WEIR_RECEIVE_LATE)
        lower_late(&lowering);
    else
        status = lower_in_order(&lowering);
out:
    release(&lowering);
    return status;
}
