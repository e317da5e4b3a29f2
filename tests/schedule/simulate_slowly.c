/* SPDX-License-Identifier: MIT */
#include "schedule/simulate_slowly_inside.h"

#include "schedule/facts.h"
#include "weir_shared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t row_of(const struct weir_table *table, uint32_t action) {
    uint32_t w = 0;
    while (table->lines[w + 1] <= action) w++;
    return w;
}

int64_t slow_find(const struct slow *s, const char *kinds, uint32_t stage, uint32_t micro_batch) {
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        const struct weir_action *action = &s->table->actions[a];
        if (action->stage == stage && action->micro_batch == micro_batch &&
            strchr(kinds, weir__kinds[action->kind].letter) != NULL)
            return a;
    }
    return -1;
}

static double crossing(const struct slow *s, uint32_t from, uint32_t to, uint64_t bytes) {
    uint32_t a = row_of(s->table, from), b = row_of(s->table, to);
    uint32_t own = s->table->worker_count / s->replicas;
    const struct weir_link_cost *link = &s->options->link;
    if (a == b || s->free_crossings) return 0.0;
    if (s->options->links != NULL) link = &s->options->links[a % own * own + b % own];
    return link->latency + (double)bytes * link->seconds_per_byte;
}

static uint32_t rank_of(const struct slow *s, uint32_t worker) {
    return worker * s->options->ranks->rank_count / s->table->worker_count;
}

static bool is_message(const struct slow *s, uint32_t from, uint32_t to) {
    return s->options->ranks != NULL && !s->free_crossings && rank_of(s, from) != rank_of(s, to);
}

/* One more thing that `action` needs. */
static void need(struct slow *s, uint32_t action, int64_t from, uint64_t bytes, uint32_t what) {
    if (from < 0) return;
    double end = s->end[from];
    uint32_t sender = row_of(s->table, (uint32_t)from), receiver = row_of(s->table, action);
    double arrival = is_message(s, sender, receiver)
                         ? s->came[from][what][receiver]
                         : end + crossing(s, (uint32_t)from, action, bytes);
    if (isnan(end) || isnan(arrival) || isnan(s->ready[action])) { /* not everything is known */
        s->ready[action] = NAN;
        return;
    }
    s->produced[action] = fmax(s->produced[action], end);
    s->ready[action] = fmax(s->ready[action], arrival);
}

static uint64_t border(const struct slow *s, uint32_t at) {
    return s->options->border_bytes != NULL ? s->options->border_bytes[at % s->each] : 0;
}

static bool is_first(const struct slow *s, uint32_t stage) {
    return stage % s->each == 0;
}

static bool is_last(const struct slow *s, uint32_t stage) {
    return is_first(s, stage + 1);
}

/* The replica's first stage. */
static uint32_t base_of(const struct slow *s, uint32_t stage) {
    return stage - stage % s->each;
}

/* ---- what replicas share ---- */

static bool is_over_ranks(const struct slow *s) {
    return s->options->ranks != NULL && !s->free_crossings;
}

uint64_t slow_slice(const struct slow *s, bool parameters, uint32_t stage, uint32_t replica) {
    const uint64_t *list = s->shared->gradient_bytes;
    if (parameters && s->shared->parameter_bytes != NULL) list = s->shared->parameter_bytes;
    const struct weir_section section = {.bytes = list != NULL ? list[stage % s->each] : 0};
    size_t begin, end;
    weir_section_slice(&section, s->replicas, replica, &begin, &end);
    return slow_find(s, "BW", stage, 0) < 0 ? 0 : end - begin;
}

/* The last end of the stage's actions of the kinds; NaN: not all are known; below 0: it has none.
 */
static double last_end(const struct slow *s, const char *kinds, uint32_t stage) {
    double last = -1.0;
    for (uint32_t a = 0; a < s->table->action_count; a++)
        if (s->table->actions[a].stage == stage &&
            strchr(kinds, weir__kinds[s->table->actions[a].kind].letter) != NULL)
            last = isnan(last) || isnan(s->end[a]) ? NAN : fmax(last, s->end[a]);
    return last;
}

/* Where there are no ranks, a part waits for those of higher stages and for nothing else. */
static double part_alone(const struct slow *s, uint32_t from, uint32_t replica) {
    const struct weir_link_cost *link = &s->shared->link;
    uint64_t bytes = slow_slice(s, false, from, replica);
    double due = 0.0;
    for (uint32_t t = from; t < base_of(s, from) + s->each; t++) {
        double end = last_end(s, "BW", t);
        if (isnan(end)) return NAN;
        due = fmax(due, end);
    }
    return due + link->latency + (double)bytes * link->seconds_per_byte;
}

static void need_inputs(struct slow *s, uint32_t a, const struct weir_action *action) {
    uint32_t stage = action->stage, i = action->micro_batch, base = base_of(s, stage);
    if (!is_first(s, stage))
        need(s, a, slow_find(s, "F", stage - 1, i), border(s, stage - 1), BORDER);
    for (uint32_t k = 0; k < s->options->skip_count; k++) {
        const struct weir_skip_route *skip = &s->options->skips[k];
        for (uint32_t r = 0; r < skip->reader_count; r++)
            if (base + skip->readers[r] == stage)
                need(s, a, slow_find(s, "F", base + skip->source, i), skip->bytes, SKIPS + k);
    }
}

static void need_gradients(struct slow *s, uint32_t a, const struct weir_action *action) {
    uint32_t stage = action->stage, i = action->micro_batch, base = base_of(s, stage);
    bool crosses = !is_last(s, stage);
    if (crosses && s->options->border_differentiable != NULL)
        crosses = s->options->border_differentiable[stage - base];
    if (crosses) need(s, a, slow_find(s, "BI", stage + 1, i), border(s, stage), BORDER);
    for (uint32_t k = 0; k < s->options->skip_count; k++) {
        const struct weir_skip_route *skip = &s->options->skips[k];
        for (uint32_t r = 0; skip->differentiable && r < skip->reader_count; r++) {
            uint32_t before = r == 0 ? skip->source : skip->readers[r - 1];
            if (base + before == stage)
                need(s, a, slow_find(s, "BI", base + skip->readers[r], i), skip->bytes, SKIPS + k);
        }
    }
}

static void need_slot(struct slow *s, uint32_t a, const struct weir_action *action) {
    const struct weir_simulate_options *o = s->options;
    uint32_t stage = action->stage;
    if (o->no_backward == NULL || !o->no_backward[stage % s->each] || o->ahead == 0) return;
    if (is_last(s, stage) || action->micro_batch < o->ahead) return;
    int64_t next = slow_find(s, "F", stage + 1, action->micro_batch - o->ahead);
    if (row_of(s->table, (uint32_t)next) == row_of(s->table, a)) return;
    bool free_crossings = s->free_crossings;
    s->free_crossings = true; /* a slot is free at once */
    need(s, a, next, 0, BORDER);
    s->free_crossings = free_crossings;
}

static void need_orders(struct slow *s, uint32_t a) {
    bool free_crossings = s->free_crossings;
    s->free_crossings = true;
    for (uint32_t i = s->options->order_begin[a]; i < s->options->order_begin[a + 1]; i++)
        need(s, a, s->options->order_from[i], 0, BORDER);
    s->free_crossings = free_crossings;
}

static void need_everybody(struct slow *s, uint32_t a) {
    bool free_crossings = s->free_crossings;
    s->free_crossings = true;
    for (uint32_t b = 0; b < s->table->action_count; b++) {
        uint8_t kind = s->table->actions[b].kind;
        if (strchr("BWN", weir__kinds[kind].letter) != NULL) need(s, a, b, 0, BORDER);
    }
    s->free_crossings = free_crossings;
}

static void need_parts(struct slow *s, uint32_t a, uint32_t stage) {
    uint32_t replica = stage / s->each;
    if (s->free_crossings || s->replicas == 1 || slow_slice(s, false, stage, replica) == 0) return;
    for (uint32_t k = 0; k < s->replicas; k++) {
        uint32_t from = k * s->each + stage % s->each;
        double arrival = is_over_ranks(s) ? s->part[from][replica] : part_alone(s, from, replica);
        if (k == replica) continue;
        s->ready[a] = isnan(arrival) ? NAN : fmax(s->ready[a], arrival);
        if (isnan(arrival)) return;
    }
}

static void find_needs(struct slow *s, uint32_t a) {
    const struct weir_action *action = &s->table->actions[a];
    s->produced[a] = s->ready[a] = 0.0;
    if (s->options->order_begin != NULL) need_orders(s, a);
    switch (action->kind) {
    case WEIR_KIND_F:
        need_inputs(s, a, action);
        need_slot(s, a, action);
        break;
    case WEIR_KIND_R:
        if (s->options->recompute_late) need_gradients(s, a, action);
        break;
    case WEIR_KIND_B:
    case WEIR_KIND_I: need_gradients(s, a, action); break;
    case WEIR_KIND_N: need_parts(s, a, action->stage); break;
    case WEIR_KIND_U: need_everybody(s, a); break;
    default: break;
    }
}

/* One action's time from what is known now; true if it became known. */
static bool settle(struct slow *s, uint32_t a, uint32_t w) {
    double before = a == s->table->lines[w] ? 0.0 : s->end[a - 1];
    if (!isnan(s->end[a]) || isnan(before)) return false;
    find_needs(s, a);
    if (isnan(s->ready[a])) return false;
    s->start[a] = fmax(before, s->ready[a]) + s->host;
    s->end[a] = s->start[a] + s->seconds[a];
    return true;
}

/* ---- messages ---- */

static uint32_t worker_of(const struct slow *s, uint32_t stage) {
    return row_of(s->table, (uint32_t)slow_find(s, "F", stage, 0));
}

static double arrival(struct slow *s, uint32_t from, uint32_t to, uint64_t bytes, double end) {
    const struct weir_rank_links *ranks = s->options->ranks;
    uint32_t sender = rank_of(s, from), receiver = rank_of(s, to);
    const struct weir_link_cost *cost = &ranks->costs[sender * ranks->rank_count + receiver];
    double *way = &s->way_out[ranks->hosts != NULL ? ranks->hosts[sender] : sender][0];
    if (ranks->hosts != NULL && ranks->hosts[sender] == ranks->hosts[receiver])
        way = &s->way_out[sender][1];
    *way = fmax(*way, end) + (double)bytes * cost->seconds_per_byte;
    return *way + cost->latency;
}

/* One worker's messages to another, as far as they are made in the order in which they are read. */
static void send(struct slow *s, uint32_t a, uint32_t stage, uint64_t bytes, uint32_t what) {
    uint32_t from = row_of(s->table, a), to = worker_of(s, stage);
    (void)bytes;
    if (!is_message(s, from, to)) return;
    s->made[a][what] = true;
    for (uint32_t i = 0; i < s->turn_count[to]; i++) {
        const struct turn *turn = &s->turns[to][i];
        if (row_of(s->table, turn->from) != from) continue;
        if (!s->made[turn->from][turn->what]) return;
        double *came = &s->came[turn->from][turn->what][to];
        if (isnan(*came)) *came = arrival(s, from, to, turn->bytes, s->end[a]);
    }
}

static void take_turn(struct slow *s, uint32_t to, int64_t from, uint64_t bytes, uint32_t what) {
    if (from < 0 || !is_message(s, row_of(s->table, (uint32_t)from), to)) return;
    for (uint32_t i = 0; i < s->turn_count[to]; i++)
        if (s->turns[to][i].from == from && s->turns[to][i].what == what) return;
    s->turns[to][s->turn_count[to]++] = (struct turn){(uint32_t)from, what, bytes};
}

/* What an action reads of others: of the border, then of skips. */
static void take_turns(struct slow *s, uint32_t a, bool gradients) {
    const struct weir_simulate_options *o = s->options;
    uint32_t stage = s->table->actions[a].stage, i = s->table->actions[a].micro_batch;
    uint32_t base = base_of(s, stage), to = row_of(s->table, a);
    bool differs = o->border_differentiable != NULL && !o->border_differentiable[stage - base];
    if (!gradients && !is_first(s, stage))
        take_turn(s, to, slow_find(s, "F", stage - 1, i), border(s, stage - 1), BORDER);
    if (gradients && !is_last(s, stage) && !differs)
        take_turn(s, to, slow_find(s, "BI", stage + 1, i), border(s, stage), BORDER);
    for (uint32_t k = 0; k < o->skip_count; k++) {
        const struct weir_skip_route *skip = &o->skips[k];
        for (uint32_t r = 0; r < skip->reader_count; r++) {
            uint32_t before = r == 0 ? skip->source : skip->readers[r - 1];
            if (!gradients && base + skip->readers[r] == stage)
                take_turn(s, to, slow_find(s, "F", base + skip->source, i), skip->bytes, SKIPS + k);
            if (gradients && skip->differentiable && base + before == stage)
                take_turn(s, to, slow_find(s, "BI", base + skip->readers[r], i), skip->bytes,
                          SKIPS + k);
        }
    }
}

static void find_turns(struct slow *s) {
    for (uint32_t a = 0; s->options->ranks != NULL && a < s->table->action_count; a++) {
        uint8_t kind = s->table->actions[a].kind;
        bool late = kind == WEIR_KIND_R && s->options->recompute_late;
        if (kind == WEIR_KIND_F) take_turns(s, a, false);
        if (kind == WEIR_KIND_B || kind == WEIR_KIND_I || late) take_turns(s, a, true);
    }
}

static void give(struct slow *s, uint32_t stage, bool parameters, double end) {
    for (uint32_t k = 0; k < s->replicas; k++) {
        uint32_t to = k * s->each + stage % s->each;
        uint64_t bytes = slow_slice(s, parameters, stage, parameters ? stage / s->each : k);
        if (to == stage) continue;
        double there =
            bytes > 0 ? arrival(s, worker_of(s, stage), worker_of(s, to), bytes, end) : 0.0;
        if (parameters)
            s->gathered = fmax(s->gathered, there);
        else
            s->part[stage][k] = there;
    }
    s->shared_out[parameters][stage] = true;
}

/* Whether all that was before a stage's message was sent: the stage's own actions, and messages of
 * those that go before it. */
static bool may_give(const struct slow *s, uint32_t stage, bool parameters) {
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        bool counts =
            strchr(parameters ? "U" : "BW", weir__kinds[s->table->actions[a].kind].letter) != NULL;
        if (s->table->actions[a].stage == stage && counts && !s->sent[a]) return false;
    }
    return true;
}

/* The place of an update in its line, then the worker from the last on: less goes first. */
static uint32_t turn_of(const struct slow *s, uint32_t stage, bool parameters) {
    int64_t update = slow_find(s, "U", stage, 0);
    if (!parameters) return s->table->stage_count - stage;
    uint32_t w = row_of(s->table, (uint32_t)update), place = 0;
    for (int64_t a = s->table->lines[w]; a < update; a++)
        place += s->table->actions[a].kind == WEIR_KIND_U;
    return place * SLOW_WORKERS_MAX + SLOW_WORKERS_MAX - w;
}

/* The next stage of those with the same `of` that has something to give, or UINT32_MAX. */
static uint32_t next_of(const struct slow *s, uint32_t of, bool parameters, bool by_rank) {
    uint32_t next = UINT32_MAX;
    for (uint32_t t = 0; t < s->table->stage_count; t++) {
        uint32_t own = by_rank ? rank_of(s, worker_of(s, t)) : t / s->each;
        if (own != of || slow_find(s, "BW", t, 0) < 0 || s->shared_out[parameters][t]) continue;
        if (next == UINT32_MAX || turn_of(s, t, parameters) < turn_of(s, next, parameters))
            next = t;
    }
    return next;
}

static void share(struct slow *s, uint32_t a) {
    uint32_t rank = rank_of(s, row_of(s->table, a));
    for (int parameters = 0; s->replicas > 1 && parameters < 2; parameters++) {
        uint32_t next = next_of(s, rank, parameters != 0, true);
        while (next != UINT32_MAX && may_give(s, next, parameters != 0)) {
            give(s, next, parameters != 0, s->end[a]);
            next = next_of(s, rank, parameters != 0, true);
        }
    }
}

/* Without ranks parameters wait for those before them alone. */
static void gather_alone(struct slow *s) {
    for (uint32_t k = 0; k < s->replicas; k++) {
        double due = 0.0;
        for (uint32_t t; (t = next_of(s, k, true, false)) != UINT32_MAX;) {
            uint64_t bytes = slow_slice(s, true, t, k);
            const struct weir_link_cost *link = &s->shared->link;
            due = fmax(due, last_end(s, "U", t));
            s->shared_out[1][t] = true;
            if (bytes == 0) continue;
            s->gathered =
                fmax(s->gathered, due + link->latency + (double)bytes * link->seconds_per_byte);
        }
    }
}

static bool returns(const struct slow *s, uint32_t stage) {
    return slow_find(s, "BI", stage, 0) >= 0;
}

static void send_all(struct slow *s, uint32_t a) {
    const struct weir_simulate_options *o = s->options;
    const struct weir_action *action = &s->table->actions[a];
    uint32_t stage = action->stage, base = base_of(s, stage);
    bool forward = action->kind == WEIR_KIND_F;
    bool back = action->kind == WEIR_KIND_B || action->kind == WEIR_KIND_I;
    if (forward && !is_last(s, stage)) send(s, a, stage + 1, border(s, stage), BORDER);
    bool wanted = o->border_differentiable == NULL ||
                  (stage > base && o->border_differentiable[stage - base - 1]);
    if (back && stage > base && wanted && returns(s, stage - 1))
        send(s, a, stage - 1, border(s, stage - 1), BORDER);
    for (uint32_t k = 0; k < o->skip_count; k++) {
        const struct weir_skip_route *skip = &o->skips[k];
        for (uint32_t r = 0; r < skip->reader_count; r++) {
            uint32_t before = r == 0 ? skip->source : skip->readers[r - 1];
            if (forward && base + skip->source == stage)
                send(s, a, base + skip->readers[r], skip->bytes, SKIPS + k);
            if (back && base + skip->readers[r] == stage && skip->differentiable)
                send(s, a, base + before, skip->bytes, SKIPS + k);
        }
    }
}

/* Of all that ended and did not send yet, the first to end, of equals the lowest worker's. */
static bool send_next(struct slow *s) {
    uint32_t next = UINT32_MAX;
    for (uint32_t a = 0; a < s->table->action_count; a++)
        if (!s->sent[a] && !isnan(s->end[a]) && (next == UINT32_MAX || s->end[a] < s->end[next]))
            next = a;
    if (next == UINT32_MAX) return false;
    s->sent[next] = true;
    send_all(s, next);
    share(s, next);
    return true;
}

static void begin(struct slow *s) {
    memset(s->sent, 0, sizeof s->sent);
    memset(s->made, 0, sizeof s->made);
    memset(s->way_out, 0, sizeof s->way_out);
    memset(s->shared_out, 0, sizeof s->shared_out);
    for (uint32_t t = 0; t < SLOW_STAGES_MAX; t++)
        for (uint32_t k = 0; k < SLOW_WORKERS_MAX; k++) s->part[t][k] = NAN;
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        s->end[a] = NAN;
        for (uint32_t what = 0; what < SKIPS + SLOW_SKIPS_MAX; what++)
            for (uint32_t w = 0; w < SLOW_WORKERS_MAX; w++) s->came[a][what][w] = NAN;
    }
}

static bool settle_all(struct slow *s) {
    uint32_t known = 0;
    bool changed = true, ranks = is_over_ranks(s);
    begin(s);
    while (changed || (ranks && send_next(s))) {
        changed = false;
        for (uint32_t a = 0; a < s->table->action_count; a++) {
            bool settled = settle(s, a, row_of(s->table, a));
            known += settled;
            changed |= settled;
        }
    }
    return known == s->table->action_count;
}

/* Time begins with the first start. */
static void shift(struct slow *s) {
    double first = INFINITY;
    for (uint32_t a = 0; a < s->table->action_count; a++) first = fmin(first, s->start[a]);
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        s->start[a] -= first;
        s->end[a] -= first;
        s->produced[a] -= first;
        s->ready[a] -= first;
    }
    s->gathered -= first;
}

/* ---- figures ---- */

static bool in_step(const struct weir_action *action) {
    return action->kind != WEIR_KIND_N && action->kind != WEIR_KIND_U;
}

static double step_of(const struct slow *s) {
    double step = 0.0;
    for (uint32_t a = 0; a < s->table->action_count; a++)
        if (in_step(&s->table->actions[a])) step = fmax(step, s->end[a]);
    return step;
}

static void read_worker(const struct slow *s, uint32_t w, struct slow_worker *worker) {
    double now = 0.0, first = -1.0;
    for (uint32_t a = s->table->lines[w]; a < s->table->lines[w + 1]; a++) {
        if (!in_step(&s->table->actions[a])) continue;
        double produced = fmax(now, fmin(s->produced[a], s->start[a]));
        double ready = fmin(fmax(produced, s->ready[a]), s->start[a]);
        worker->copy += ready - produced;
        worker->host += s->start[a] - ready;
        worker->busy += s->seconds[a];
        if (first < 0.0) first = s->start[a];
        now = s->end[a];
    }
    worker->window = first < 0.0 ? 0.0 : now - first;
}

/* ---- memory ---- */

struct change {
    double at;
    bool begins;
    int64_t amount;
};

static int compare_changes(const void *a, const void *b) {
    const struct change *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return (int)x->begins - (int)y->begins;
}

static uint64_t most_at_once(struct change *changes, uint32_t count) {
    int64_t now = 0, most = 0;
    qsort(changes, count, sizeof *changes, compare_changes);
    for (uint32_t i = 0; i < count; i++) {
        now += changes[i].begins ? changes[i].amount : -changes[i].amount;
        most = now > most ? now : most;
    }
    return (uint64_t)most;
}

/* Both ends of what stage and micro-batch keep from the action's start; nothing without backward.
 */
static uint32_t add_life(const struct slow *s, struct change *changes, uint32_t count, uint32_t a,
                         int64_t amount) {
    const struct weir_action *action = &s->table->actions[a];
    int64_t last = slow_find(s, "BW", action->stage, action->micro_batch);
    if (last < 0) return count;
    changes[count] = (struct change){s->start[a], true, amount};
    changes[count + 1] = (struct change){s->end[last], false, amount};
    return count + 2;
}

static uint64_t peak_activations(const struct slow *s, int64_t worker, int64_t stage) {
    static struct change changes[2 * SLOW_ACTIONS_MAX];
    uint32_t count = 0;
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        const struct weir_action *action = &s->table->actions[a];
        bool counts = action->kind == WEIR_KIND_F &&
                      (worker < 0 || row_of(s->table, a) == worker) &&
                      (stage < 0 || action->stage == stage);
        if (counts) count = add_life(s, changes, count, a, 1);
    }
    return most_at_once(changes, count);
}

static bool is_last_gradient(const struct slow *s, uint32_t a) {
    uint32_t stage = s->table->actions[a].stage;
    for (uint32_t b = a + 1; b < s->table->action_count; b++)
        if (s->table->actions[b].stage == stage &&
            strchr("BW", weir__kinds[s->table->actions[b].kind].letter) != NULL)
            return false;
    return true;
}

/* Sums of groups beside the first, and what arrives from the last gradient's start to the norm's
 * end. */
static uint32_t add_shared(const struct slow *s, struct change *changes, uint32_t count,
                           uint32_t a) {
    uint32_t stage = s->table->actions[a].stage;
    int64_t norm = slow_find(s, "N", stage, 0), arrives = 0;
    int64_t bytes =
        s->shared->gradient_bytes != NULL ? (int64_t)s->shared->gradient_bytes[stage % s->each] : 0;
    if (norm >= 0)
        arrives = (s->replicas - 1) * (int64_t)slow_slice(s, false, stage, stage / s->each);
    changes[count++] = (struct change){s->start[a], true, (int64_t)s->sums_begun[a] * bytes};
    changes[count++] = (struct change){s->end[a], false, (int64_t)s->sums_added[a] * bytes};
    if (s->table->actions[a].kind == WEIR_KIND_N)
        changes[count++] = (struct change){s->end[a], false, arrives};
    if (strchr("BW", weir__kinds[s->table->actions[a].kind].letter) != NULL &&
        is_last_gradient(s, a))
        changes[count++] = (struct change){s->start[a], true, arrives};
    return count;
}

static uint64_t peak_bytes(const struct slow *s, uint32_t worker) {
    static struct change changes[8 * SLOW_ACTIONS_MAX];
    const struct weir_simulate_options *o = s->options;
    uint32_t count = 0;
    for (uint32_t a = s->table->lines[worker]; a < s->table->lines[worker + 1]; a++) {
        const struct weir_action *action = &s->table->actions[a];
        uint32_t stage = action->stage % s->each;
        int64_t saved = o->saved_bytes != NULL ? (int64_t)o->saved_bytes[stage] : 0;
        int64_t kept = o->kept_bytes != NULL ? (int64_t)o->kept_bytes[stage] : 0;
        bool again = slow_find(s, "R", action->stage, action->micro_batch) >= 0;
        if (action->kind == WEIR_KIND_F)
            count = add_life(s, changes, count, a, kept + (again ? 0 : saved));
        if (action->kind == WEIR_KIND_R) count = add_life(s, changes, count, a, saved);
        if (s->shared != NULL) count = add_shared(s, changes, count, a);
    }
    return most_at_once(changes, count);
}

/* ---- bytes ---- */

static bool differ(const struct slow *s, uint32_t a, uint32_t b) {
    return worker_of(s, a) != worker_of(s, b);
}

static uint64_t skip_moves(const struct slow *s, const struct weir_skip_route *skip) {
    bool has[SLOW_WORKERS_MAX] = {false};
    uint64_t moves = 0;
    has[worker_of(s, skip->source)] = true;
    for (uint32_t r = 0; r < skip->reader_count; r++) {
        uint32_t reader = skip->readers[r], to = r == 0 ? skip->source : skip->readers[r - 1];
        uint32_t worker = worker_of(s, reader);
        moves += !has[worker];
        has[worker] = true;
        moves +=
            skip->differentiable && slow_find(s, "BI", reader, 0) >= 0 && differ(s, reader, to);
    }
    return moves * skip->bytes;
}

static uint64_t moved_bytes(const struct slow *s) {
    const struct weir_simulate_options *o = s->options;
    uint64_t bytes = 0;
    for (uint32_t b = 0; b + 1 < s->each; b++) {
        bool back = o->border_differentiable == NULL || o->border_differentiable[b];
        back = back && slow_find(s, "BI", b, 0) >= 0 && slow_find(s, "BI", b + 1, 0) >= 0;
        if (differ(s, b, b + 1)) bytes += border(s, b) * (back ? 2 : 1);
    }
    for (uint32_t k = 0; k < o->skip_count; k++) bytes += skip_moves(s, &o->skips[k]);
    bytes *= s->table->micro_batch_count * s->replicas;
    for (uint32_t t = 0; s->shared != NULL && t < s->table->stage_count; t++)
        for (uint32_t k = 0; k < s->replicas; k++)
            bytes += k == t / s->each
                         ? 0
                         : slow_slice(s, false, t, k) + slow_slice(s, true, t, t / s->each);
    return bytes;
}

/* ---- all ---- */

static void take_means(struct slow *s) {
    double sum[WEIR_KIND_COUNT] = {0.0}, count[WEIR_KIND_COUNT] = {0.0};
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        sum[s->table->actions[a].kind] += s->seconds[a];
        count[s->table->actions[a].kind] += 1.0;
    }
    for (uint32_t a = 0; a < s->table->action_count; a++)
        s->seconds[a] = sum[s->table->actions[a].kind] / count[s->table->actions[a].kind];
    s->free_crossings = true;
    s->host = 0.0;
}

static double busy_of(const struct slow *s, uint32_t w) {
    double busy = 0.0;
    for (uint32_t a = s->table->lines[w]; a < s->table->lines[w + 1]; a++)
        if (in_step(&s->table->actions[a])) busy += s->seconds[a];
    return busy;
}

static double pace_of(const struct slow *s, uint32_t a) {
    uint32_t w = 0;
    while (a >= s->table->lines[w + 1]) w++;
    return s->options->worker_paces != NULL ? s->options->worker_paces[w] : 1.0;
}

static void begin_all(struct slow *s) {
    s->shared = s->options->shared;
    s->table = s->options->table;
    s->replicas = s->shared != NULL ? s->shared->replicas : 1;
    s->each = s->table->stage_count;
    if (s->replicas > 1) slow_expand(s);
    for (uint32_t t = 0; s->shared != NULL && t < s->table->stage_count; t++) slow_sum_stage(s, t);
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        const struct weir_action *action = &s->table->actions[a];
        const double *seconds = s->options->kind_seconds;
        if (s->options->stage_seconds != NULL)
            seconds = &s->options->stage_seconds[action->stage % s->each * WEIR_KIND_COUNT];
        s->seconds[a] = seconds[action->kind] * pace_of(s, a);
        if (s->shared != NULL) slow_share_seconds(s, a);
    }
}

/* Without the norms that only the table of all replicas has. */
static void read_times(struct slow *s, struct slow_prediction *out) {
    uint32_t kept = 0;
    out->total = s->gathered;
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        out->total = fmax(out->total, s->end[a]);
        if (s->table->actions[a].kind == WEIR_KIND_N) continue;
        out->start[kept] = s->start[a];
        out->end[kept++] = s->end[a];
    }
}

void simulate_slowly(const struct weir_simulate_options *options, struct slow_prediction *out) {
    static struct slow slow;
    struct slow *s = &slow;
    memset(s, 0, sizeof *s);
    memset(out, 0, sizeof *out);
    s->options = options;
    s->host = options->host_seconds;
    begin_all(s);
    find_turns(s);
    out->complete = settle_all(s);
    if (!out->complete) return;
    if (s->replicas > 1 && options->ranks == NULL) gather_alone(s);
    shift(s);
    out->step = step_of(s);
    out->moved_bytes = moved_bytes(s);
    read_times(s, out);
    for (uint32_t w = 0; w < s->table->worker_count; w++) {
        read_worker(s, w, &out->workers[w]);
        out->workers[w].peak_activations = peak_activations(s, w, -1);
        out->workers[w].peak_bytes = peak_bytes(s, w);
    }
    for (uint32_t i = 0; i < s->table->stage_count; i++)
        out->stage_peaks[i] = peak_activations(s, -1, i);
    take_means(s);
    settle_all(s);
    for (uint32_t w = 0; w < s->table->worker_count; w++)
        out->workers[w].model_idle = step_of(s) - busy_of(s, w);
}
