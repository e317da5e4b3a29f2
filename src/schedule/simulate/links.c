/* SPDX-License-Identifier: MIT */
/*
 * The check over links runs the lowered exchange until no worker can go on. What a worker can do it
 * can still do after others have gone on, so every order of running ends alike. A stuck worker
 * waits for exactly one other, so each path of waits ends in a circle.
 */
#include "schedule/lower.h"
#include "schedule/simulate/simulate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct run {
    const struct weir_table *table;
    const struct weir__exchange *exchange;
    const struct weir_allocator *allocator;
    struct weir_faults *faults;
    uint32_t depth;
    uint32_t *cursor;  /**< [worker]: its next operation */
    uint32_t *carried; /**< [link]: messages sent and not received */
    bool *sent;        /**< [message] */
    uint32_t *ready;   /**< [worker]: a stack of workers to look at, */
    bool *waits;       /**< [worker]: and who is not in it */
    uint32_t *met;     /**< [worker]: the path of waiting that came by, or 0 */
    uint32_t ready_count;
    uint32_t circles;
};

/* ---- running ---- */

static void wake(struct run *run, uint32_t worker) {
    if (!run->waits[worker]) return;
    assert(run->ready_count < run->exchange->worker_count);
    run->waits[worker] = false;
    run->ready[run->ready_count++] = worker;
}

static bool is_at(const struct run *run, uint32_t worker, enum weir__operation_kind kind,
                  uint32_t message) {
    assert(worker < run->exchange->worker_count);
    uint32_t at = run->cursor[worker];
    if (at == run->exchange->begin[worker + 1]) return false;
    const struct weir__operation *operation = &run->exchange->operations[at];
    return operation->kind == kind && operation->at == message;
}

/* A send or receive meets its counterpart, which goes on with it. */
static bool meet(struct run *run, const struct weir__link_message *message, uint32_t m,
                 bool sends) {
    assert(run->depth == 0);
    uint32_t other = sends ? message->receiver : message->sender;
    if (!is_at(run, other, sends ? WEIR__RECEIVE : WEIR__SEND, m)) return false;
    run->cursor[other]++;
    wake(run, other);
    return true;
}

static bool try_send(struct run *run, uint32_t m) {
    assert(m < run->exchange->message_count && !run->sent[m]);
    const struct weir__link_message *message = &run->exchange->messages[m];
    if (run->depth == 0) return meet(run, message, m, true);
    if (run->depth != WEIR_LINKS_UNBOUNDED && run->carried[message->link] >= run->depth)
        return false;
    run->carried[message->link]++;
    run->sent[m] = true;
    if (is_at(run, message->receiver, WEIR__RECEIVE, m)) wake(run, message->receiver);
    return true;
}

static bool try_receive(struct run *run, uint32_t m) {
    const struct weir__link_message *message = &run->exchange->messages[m];
    if (run->depth == 0) return meet(run, message, m, false);
    if (!run->sent[m]) return false;
    assert(run->carried[message->link] > 0);
    run->carried[message->link]--;
    wake(run, message->sender);
    return true;
}

static void run_worker(struct run *run, uint32_t worker) {
    while (run->cursor[worker] < run->exchange->begin[worker + 1]) {
        const struct weir__operation *operation = &run->exchange->operations[run->cursor[worker]];
        if (operation->kind == WEIR__SEND && !try_send(run, operation->at)) return;
        if (operation->kind == WEIR__RECEIVE && !try_receive(run, operation->at)) return;
        run->cursor[worker]++;
    }
}

static void run_all(struct run *run) {
    assert(run->ready_count == 0);
    for (uint32_t w = 0; w < run->table->worker_count; w++) {
        run->cursor[w] = run->exchange->begin[w];
        run->ready[run->ready_count++] = w;
    }
    while (run->ready_count > 0) {
        uint32_t worker = run->ready[--run->ready_count];
        run_worker(run, worker);
        run->waits[worker] = true;
    }
}

/* ---- circles ---- */

static bool is_stuck(const struct run *run, uint32_t worker) {
    return run->cursor[worker] < run->exchange->begin[worker + 1];
}

static uint32_t waits_for(const struct run *run, uint32_t worker) {
    const struct weir__operation *operation = &run->exchange->operations[run->cursor[worker]];
    const struct weir__link_message *message = &run->exchange->messages[operation->at];
    assert(operation->kind != WEIR__RUN);
    return operation->kind == WEIR__SEND ? message->receiver : message->sender;
}

static void describe(const struct run *run, uint32_t worker, char *text, size_t capacity) {
    const struct weir__operation *operation = &run->exchange->operations[run->cursor[worker]];
    const struct weir__link_message *message = &run->exchange->messages[operation->at];
    char from[24], reader[24];
    weir__action_text(&run->table->actions[message->from], from);
    weir__action_text(&run->table->actions[message->reader], reader);
    if (operation->kind == WEIR__SEND) {
        snprintf(text, capacity, "worker %" PRIu32 " waits to send %s to worker %" PRIu32, worker,
                 from, message->receiver);
    } else {
        snprintf(text, capacity,
                 "worker %" PRIu32 " waits before %s to receive %s from worker %" PRIu32, worker,
                 reader, from, message->sender);
    }
}

static void report_circle(struct run *run, uint32_t first) {
    assert(is_stuck(run, first));
    char line[440], wait[128], links[40] = "unbounded links";
    size_t used = 0;
    uint32_t worker = first;
    if (run->depth != WEIR_LINKS_UNBOUNDED)
        snprintf(links, sizeof links, "links of depth %" PRIu32, run->depth);
    do {
        describe(run, worker, wait, sizeof wait);
        if (used + strlen(wait) + 8 > sizeof line) {
            snprintf(line + used, sizeof line - used, "; ...");
            break;
        }
        used +=
            (size_t)snprintf(line + used, sizeof line - used, "%s%s", used > 0 ? "; " : "", wait);
        worker = waits_for(run, worker);
    } while (worker != first);
    weir_faults_add(run->faults, "deadlock over %s: %s", links, line);
    run->circles++;
}

static void report_circles(struct run *run) {
    for (uint32_t w = 0; w < run->table->worker_count; w++) {
        uint32_t at = w;
        while (is_stuck(run, at) && run->met[at] == 0) {
            run->met[at] = w + 1;
            at = waits_for(run, at);
        }
        if (is_stuck(run, at) && run->met[at] == w + 1) report_circle(run, at);
    }
}

/* ---- all of it ---- */

static bool acquire(struct run *run) {
    const struct weir_allocator *allocator = run->allocator;
    size_t workers = run->exchange->worker_count;
    run->cursor = weir__acquire(allocator, workers, sizeof *run->cursor);
    run->ready = weir__acquire(allocator, workers, sizeof *run->ready);
    run->waits = weir__acquire(allocator, workers, sizeof *run->waits);
    run->met = weir__acquire(allocator, workers, sizeof *run->met);
    run->carried = weir__acquire(allocator, run->exchange->link_count, sizeof *run->carried);
    run->sent = weir__acquire(allocator, run->exchange->message_count, sizeof *run->sent);
    return run->cursor != NULL && run->ready != NULL && run->waits != NULL && run->met != NULL &&
           run->carried != NULL && run->sent != NULL;
}

static void release(struct run *run) {
    const struct weir_allocator *allocator = run->allocator;
    size_t workers = run->exchange->worker_count;
    weir__release(allocator, run->sent, run->exchange->message_count, sizeof *run->sent);
    weir__release(allocator, run->carried, run->exchange->link_count, sizeof *run->carried);
    weir__release(allocator, run->met, workers, sizeof *run->met);
    weir__release(allocator, run->waits, workers, sizeof *run->waits);
    weir__release(allocator, run->ready, workers, sizeof *run->ready);
    weir__release(allocator, run->cursor, workers, sizeof *run->cursor);
}

static int check_exchange(const struct weir_table *table, const struct weir__exchange *exchange,
                          const struct weir_links_options *options, struct weir_faults *faults) {
    assert(exchange->worker_count == table->worker_count);
    struct run run = {.table = table,
                      .exchange = exchange,
                      .allocator = options->allocator,
                      .faults = faults,
                      .depth = options->depth};
    int status = WEIR_ERR_OUT_OF_MEMORY;
    if (!acquire(&run)) goto out;
    run_all(&run);
    report_circles(&run);
    status = run.circles > 0 ? WEIR_ERR_SCHEDULE : WEIR_OK;
out:
    release(&run);
    return status;
}

static int check_flow(const struct weir_table *table, const struct weir__flow *flow,
                      const struct weir_links_options *options, struct weir_faults *faults) {
    struct weir__deps deps;
    struct weir__exchange exchange;
    int status = weir__table_check_flow(table, flow, options->allocator, faults);
    if (status != WEIR_OK) return status;
    status = weir__deps_new(table, flow, options->allocator, &deps);
    if (status != WEIR_OK) return status;
    status = weir__lower(table, &deps, options->receive, options->allocator, &exchange);
    if (status != WEIR_OK) goto out;
    status = check_exchange(table, &exchange, options, faults);
out:
    weir__exchange_clean_up(&exchange);
    weir__deps_clean_up(&deps);
    return status;
}

int weir_table_check_links(const struct weir_table *table, const struct weir_links_options *options,
                           struct weir_faults *faults) {
    if (table == NULL || !weir__is_sized(options) ||
        (uint32_t)options->receive > WEIR_RECEIVE_LATE) {
        weir_faults_add(faults,
                        "weir_table_check_links: no table, no such receive, or " WEIR__BEGIN_WITH,
                        "WEIR_LINKS_OPTIONS_INIT");
        return WEIR_ERR_ARGUMENT;
    }
    struct weir_links_options own = *options;
    if (!weir__simulate_check_skips(own.skips, own.skip_count, table->stage_count, faults))
        return WEIR_ERR_ARGUMENT;
    struct weir__flow flow = {.stage_count = table->stage_count,
                              .border_differentiable = own.border_differentiable,
                              .no_backward = own.no_backward,
                              .skip_count = own.skip_count,
                              .skips = own.skips,
                              .recompute_late = own.recompute_late};
    return check_flow(table, &flow, &own, faults);
}
