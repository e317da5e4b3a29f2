/* SPDX-License-Identifier: MIT */
/*
 * Messages between ranks: who sends what, and the lines in which they wait. A line is the way out
 * of a host, or of a rank where the receiver is on the same host. It serves first what was there
 * first, which is why the walk goes by time. Before that a message waits for its turn in its lane.
 */
#include "schedule/simulate/simulate.h"

#include <math.h>
#include <string.h>

#define NONE UINT32_MAX

/* Of a rank's links, the first that cannot be. */
static bool check_links_of(const struct weir_rank_links *ranks, uint32_t from,
                           struct weir_faults *faults) {
    for (uint32_t to = 0; to < ranks->rank_count; to++) {
        const struct weir_link_cost *cost = &ranks->costs[(size_t)from * ranks->rank_count + to];
        if (to == from || weir__is_link(cost)) continue;
        weir_faults_add(faults,
                        "the link from rank %u to %u takes %g s and %g s per byte: both must be "
                        "finite and not negative",
                        (unsigned)from, (unsigned)to, cost->latency, cost->seconds_per_byte);
        return false;
    }
    return true;
}

void weir__check_rank_links(const struct weir_rank_links *ranks, uint32_t worker_count,
                            struct weir_faults *faults) {
    uint32_t count = ranks->rank_count;
    if (count == 0 || count > worker_count || ranks->costs == NULL) {
        weir_faults_add(faults,
                        "links of %u rank%s for %u worker%s: each rank must have a worker, and "
                        "each pair a cost",
                        (unsigned)count, weir__s(count), (unsigned)worker_count,
                        weir__s(worker_count));
        return;
    }
    for (uint32_t r = 0; ranks->hosts != NULL && r < count; r++)
        if (ranks->hosts[r] >= count)
            weir_faults_add(faults, "rank %u is on host %u of %u rank%s: number hosts from 0",
                            (unsigned)r, (unsigned)ranks->hosts[r], (unsigned)count,
                            weir__s(count));
    for (uint32_t r = 0; r < count; r++)
        if (!check_links_of(ranks, r, faults)) return;
}

/* ---- who sends what ---- */

size_t weir__sim_messages_max(const struct weir_simulate_options *options) {
    size_t count = 2 * (size_t)options->table->stage_count;
    for (uint32_t i = 0; i < options->skip_count; i++)
        count += 2 * (size_t)options->skips[i].reader_count;
    return options->shared != NULL ? count * options->shared->replicas : count;
}

static uint32_t worker_of(const struct weir__sim *sim, uint32_t stage) {
    assert(stage < sim->table->stage_count);
    return sim->stages[stage].facts.worker;
}

static bool is_message(const struct weir__sim *sim, uint32_t from, uint32_t to) {
    return weir__crosses_ranks(sim->options, sim->table->worker_count, worker_of(sim, from),
                               worker_of(sim, to));
}

/* The host's, or behind all hosts' the rank's own. */
static uint32_t line_of(const struct weir__sim *sim, uint32_t from, uint32_t to) {
    const struct weir_rank_links *ranks = sim->options->ranks;
    uint32_t count = ranks->rank_count, workers = sim->table->worker_count;
    uint32_t sender = weir__dealt_rank(count, workers, worker_of(sim, from));
    uint32_t receiver = weir__dealt_rank(count, workers, worker_of(sim, to));
    if (ranks->hosts == NULL) return sender;
    bool near = ranks->hosts[sender] == ranks->hosts[receiver];
    return near ? count + sender : ranks->hosts[sender];
}

/* Of the two workers, or a new one. */
static uint32_t lane_between(struct weir__sim *sim, uint32_t sender, uint32_t receiver) {
    struct weir__sim_ranks *ranks = &sim->ranks;
    uint32_t lane = ranks->lane_of[sender];
    while (lane != NONE && ranks->lanes[lane].receiver != receiver) lane = ranks->lanes[lane].other;
    if (lane != NONE) return lane;
    lane = ranks->lane_count++;
    ranks->lanes[lane] =
        (struct weir__sim_lane){.receiver = receiver, .other = ranks->lane_of[sender]};
    ranks->lane_of[sender] = lane;
    return lane;
}

/* From a stage's forward, or its gradient; a message takes the place of a copy of its own. */
static void add(struct weir__sim *sim, uint32_t from, uint32_t to, bool gradient, uint32_t input,
                uint64_t bytes) {
    struct weir__sim_ranks *ranks = &sim->ranks;
    uint32_t sender = gradient ? sim->table->stage_count + from : from;
    uint32_t m = ranks->message_count++;
    assert(m < weir__sim_messages_max(sim->options));
    const struct weir_link_cost *cost = weir__link_between(
        sim->options, sim->table->worker_count, worker_of(sim, from), worker_of(sim, to));
    ranks->messages[m] = (struct weir__sim_message){
        .input = input,
        .with = NONE,
        .line = line_of(sim, from, to),
        .lane = lane_between(sim, worker_of(sim, from), worker_of(sim, to)),
        .next = NONE,
        .receiver = worker_of(sim, to),
        .bytes_seconds = (double)bytes * cost->seconds_per_byte,
        .latency = cost->latency};
    uint32_t *link = ranks->first[sender] == NONE ? &ranks->first[sender]
                                                  : &ranks->messages[ranks->last[sender]].next;
    *link = ranks->last[sender] = m;
    ranks->message_of[input] = m;
}

static void list_borders(struct weir__sim *sim) {
    uint32_t stages = sim->table->stage_count;
    for (uint32_t s = 0; s + 1 < stages; s++) {
        if (!sim->stages[s + 1].takes_value || !is_message(sim, s, s + 1)) continue;
        uint64_t bytes = weir__border_bytes(sim->options, weir__sim_own(sim, s));
        add(sim, s, s + 1, false, s + 1, bytes);
        sim->stages[s + 1].value_copy = WEIR__SIM_MESSAGE;
        if (!sim->stages[s].waits_gradient || sim->stages[s].backwards == 0) continue;
        add(sim, s + 1, s, true, stages + s, bytes);
        sim->stages[s].gradient_copy = WEIR__SIM_MESSAGE;
    }
}

/* The receiver's next feed of that kind: they stand in the skips' order. */
static struct weir__sim_feed *take_feed(struct weir__sim *sim, uint32_t to, bool gradient,
                                        uint32_t *input) {
    const struct weir__sim_stage *stage = &sim->stages[to];
    uint32_t stages = sim->table->stage_count;
    uint32_t at = sim->ranks.taken[gradient ? stages + to : to]++;
    at += gradient ? stage->gradients_begin : stage->values_begin;
    assert(at < (gradient ? stage->gradients_end : stage->values_end));
    *input = 2 * stages + at;
    return &sim->feeds[at];
}

/* The message since the first one that goes to the worker, or NONE. */
static uint32_t find_message(const struct weir__sim *sim, uint32_t first, uint32_t receiver) {
    for (uint32_t m = first; m < sim->ranks.message_count; m++)
        if (sim->ranks.messages[m].receiver == receiver) return m;
    return NONE;
}

/* Of the replica whose stages begin at `base`. */
static void list_values(struct weir__sim *sim, const struct weir_skip_route *skip, uint32_t base) {
    struct weir__sim_ranks *ranks = &sim->ranks;
    uint32_t first = ranks->message_count, source = base + skip->source, input;
    for (uint32_t r = 0; r < skip->reader_count; r++) {
        uint32_t reader = base + skip->readers[r];
        struct weir__sim_feed *feed = take_feed(sim, reader, false, &input);
        if (!is_message(sim, source, reader)) continue;
        uint32_t before = find_message(sim, first, worker_of(sim, reader));
        feed->copy = WEIR__SIM_MESSAGE;
        add(sim, source, reader, false, input, skip->bytes);
        if (before == NONE) continue;
        ranks->messages[ranks->message_count - 1].with = ranks->messages[before].input;
    }
}

static void list_gradients(struct weir__sim *sim, const struct weir_skip_route *skip,
                           uint32_t base) {
    uint32_t input;
    for (uint32_t r = 0; skip->differentiable && r < skip->reader_count; r++) {
        uint32_t from = base + skip->readers[r];
        uint32_t to = base + (r == 0 ? skip->source : skip->readers[r - 1]);
        if (!sim->stages[from].sends) continue;
        struct weir__sim_feed *feed = take_feed(sim, to, true, &input);
        if (!is_message(sim, from, to)) continue;
        feed->copy = WEIR__SIM_MESSAGE;
        add(sim, from, to, true, input, skip->bytes);
    }
}

/* ---- in which order ---- */

static void begin_lanes(struct weir__sim *sim) {
    struct weir__sim_ranks *ranks = &sim->ranks;
    size_t used = 0;
    for (uint32_t m = 0; m < ranks->message_count; m++)
        ranks->lanes[ranks->messages[m].lane].count += ranks->messages[m].with == NONE;
    for (uint32_t l = 0; l < ranks->lane_count; l++) {
        struct weir__sim_lane *lane = &ranks->lanes[l];
        lane->begin = lane->end = used;
        used += (size_t)lane->count * sim->table->micro_batch_count;
    }
}

/* Its message comes next in its lane, if it is one and did not come before. */
static void queue_input(struct weir__sim *sim, uint32_t input, double copy, uint32_t micro_batch) {
    struct weir__sim_ranks *ranks = &sim->ranks;
    if (copy >= 0.0) return;
    uint32_t m = ranks->message_of[input];
    if (ranks->messages[m].with != NONE) m = ranks->message_of[ranks->messages[m].with];
    uint8_t *listed = &ranks->made[(size_t)ranks->messages[m].input * sim->stride + micro_batch];
    if (*listed != 0) return;
    *listed = 1;
    ranks->queue[ranks->lanes[ranks->messages[m].lane].end++] =
        (struct weir__sim_queued){m, micro_batch};
}

static void queue_inputs(struct weir__sim *sim, const struct weir_action *action) {
    const struct weir__sim_stage *stage = &sim->stages[action->stage];
    uint32_t reads = weir__reads_of(action->kind, sim->options->recompute_late);
    uint32_t stages = sim->table->stage_count, i = action->micro_batch;
    if (!weir__kinds[action->kind].per_micro_batch) return;
    if ((reads & WEIR__INPUTS) != 0) queue_input(sim, action->stage, stage->value_copy, i);
    if ((reads & WEIR__OUTPUT_GRADS) != 0 && stage->waits_gradient)
        queue_input(sim, stages + action->stage, stage->gradient_copy, i);
    bool values = (reads & WEIR__SKIPS_IN) != 0, gradients = (reads & WEIR__SKIP_GRADS_IN) != 0;
    for (uint32_t f = stage->values_begin; values && f < stage->values_end; f++)
        queue_input(sim, 2 * stages + f, sim->feeds[f].copy, i);
    for (uint32_t f = stage->gradients_begin; gradients && f < stage->gradients_end; f++)
        queue_input(sim, 2 * stages + f, sim->feeds[f].copy, i);
}

static void list_lanes(struct weir__sim *sim) {
    struct weir__sim_ranks *ranks = &sim->ranks;
    memset(ranks->made, 0, ranks->input_count * sim->stride);
    begin_lanes(sim);
    for (uint32_t a = 0; a < sim->table->action_count; a++)
        queue_inputs(sim, &sim->table->actions[a]);
}

void weir__sim_list_messages(struct weir__sim *sim) {
    struct weir__sim_ranks *ranks = &sim->ranks;
    assert(sim->over_ranks && ranks->messages != NULL);
    ranks->message_count = ranks->lane_count = 0;
    for (uint32_t w = 0; w < sim->table->worker_count; w++) ranks->lane_of[w] = NONE;
    for (uint32_t s = 0; s < 2u * sim->table->stage_count; s++) {
        ranks->first[s] = ranks->last[s] = NONE;
        ranks->taken[s] = 0;
    }
    list_borders(sim);
    for (uint32_t base = 0; base < sim->table->stage_count; base += sim->shares.each)
        for (uint32_t i = 0; i < sim->options->skip_count; i++) {
            list_values(sim, &sim->options->skips[i], base);
            list_gradients(sim, &sim->options->skips[i], base);
        }
    list_lanes(sim);
}

/* ---- sending ---- */

static double send_on(struct weir__sim *sim, uint32_t line, double bytes_seconds, double latency,
                      double end) {
    double *free = &sim->ranks.line_free[line];
    *free = (*free > end ? *free : end) + bytes_seconds;
    return *free + latency;
}

double weir__sim_send_bytes(struct weir__sim *sim, uint32_t from, uint32_t to, uint64_t bytes,
                            double end) {
    assert(sim->over_ranks && is_message(sim, from, to));
    const struct weir_link_cost *cost = weir__link_between(
        sim->options, sim->table->worker_count, worker_of(sim, from), worker_of(sim, to));
    return send_on(sim, line_of(sim, from, to), (double)bytes * cost->seconds_per_byte,
                   cost->latency, end);
}

/* Of one message, and of what came with it. */
static void deliver(struct weir__sim *sim, const struct weir__sim_message *message,
                    uint32_t micro_batch, double arrival) {
    const struct weir__sim_ranks *ranks = &sim->ranks;
    (void)weir__sim_tell(sim, weir__sim_arrived(sim, message->input, micro_batch), arrival);
    for (uint32_t m = message->next; m != NONE; m = ranks->messages[m].next)
        if (ranks->messages[m].with == message->input)
            (void)weir__sim_tell(sim, weir__sim_arrived(sim, ranks->messages[m].input, micro_batch),
                                 arrival);
}

/* What is made, as far as it is the lane's turn. */
static void go_on(struct weir__sim *sim, struct weir__sim_lane *lane, double end) {
    const struct weir__sim_ranks *ranks = &sim->ranks;
    for (; lane->next < lane->end; lane->next++) {
        const struct weir__sim_queued *next = &ranks->queue[lane->next];
        const struct weir__sim_message *message = &ranks->messages[next->message];
        if (ranks->made[(size_t)message->input * sim->stride + next->micro_batch] == 0) return;
        deliver(sim, message, next->micro_batch,
                send_on(sim, message->line, message->bytes_seconds, message->latency, end));
    }
}

void weir__sim_send(struct weir__sim *sim, uint32_t stage, bool gradient, uint32_t micro_batch,
                    double end) {
    struct weir__sim_ranks *ranks = &sim->ranks;
    uint32_t sender = gradient ? sim->table->stage_count + stage : stage;
    for (uint32_t m = ranks->first[sender]; m != NONE; m = ranks->messages[m].next) {
        if (ranks->messages[m].with != NONE) continue;
        ranks->made[(size_t)ranks->messages[m].input * sim->stride + micro_batch] = 1;
        go_on(sim, &ranks->lanes[ranks->messages[m].lane], end);
    }
}

/* ---- ends in order ---- */

void weir__sim_rewind_ranks(struct weir__sim *sim) {
    struct weir__sim_ranks *ranks = &sim->ranks;
    assert(sim->options->ranks != NULL);
    ranks->event_count = 0;
    for (uint32_t i = 0; i < 2 * sim->options->ranks->rank_count; i++) ranks->line_free[i] = 0.0;
    for (size_t i = 0; i < ranks->input_count * sim->stride; i++) ranks->arrived[i] = -1.0;
    memset(ranks->made, 0, ranks->input_count * sim->stride);
    for (uint32_t l = 0; l < ranks->lane_count; l++) ranks->lanes[l].next = ranks->lanes[l].begin;
}

static bool is_before(const struct weir__sim_event *a, const struct weir__sim_event *b) {
    if (a->end < b->end) return true;
    return a->end <= b->end && a->worker < b->worker;
}

void weir__sim_push(struct weir__sim *sim, double end, uint32_t worker) {
    struct weir__sim_event *events = sim->ranks.events;
    const struct weir__sim_event event = {end, worker};
    uint32_t at = sim->ranks.event_count++;
    assert(at < sim->table->worker_count); /* each has one at most */
    for (; at > 0 && is_before(&event, &events[(at - 1) / 2]); at = (at - 1) / 2)
        events[at] = events[(at - 1) / 2];
    events[at] = event;
}

bool weir__sim_pop(struct weir__sim *sim, struct weir__sim_event *event) {
    struct weir__sim_event *events = sim->ranks.events;
    if (sim->ranks.event_count == 0) return false;
    *event = events[0];
    uint32_t count = --sim->ranks.event_count, at = 0;
    const struct weir__sim_event last = events[count];
    for (uint32_t child = 1; child < count; child = 2 * at + 1) {
        if (child + 1 < count && is_before(&events[child + 1], &events[child])) child++;
        if (!is_before(&events[child], &last)) break;
        events[at] = events[child];
        at = child;
    }
    events[at] = last;
    return true;
}
