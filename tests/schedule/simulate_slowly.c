/* SPDX-License-Identifier: MIT */
#include "schedule/simulate_slowly.h"

#include "schedule/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/** What is being simulated: times per action and copies or none. */
struct slow {
    const struct weir_simulate_options *options;
    const struct weir_table *table;
    double seconds[SLOW_ACTIONS_MAX];
    bool free_crossings;
    double host;
    double start[SLOW_ACTIONS_MAX], end[SLOW_ACTIONS_MAX]; /* NaN: not known */
    double produced[SLOW_ACTIONS_MAX], ready[SLOW_ACTIONS_MAX];
    /* over ranks: when a worker has what an action sends, the border's or a skip's; NaN: it was not
     * sent yet */
    double came[SLOW_ACTIONS_MAX][1 + SLOW_SKIPS_MAX][SLOW_WORKERS_MAX];
    bool sent[SLOW_ACTIONS_MAX];
    double way_out[SLOW_WORKERS_MAX]
                  [2]; /* a host's, and a rank's within its host: free from then */
};

enum { BORDER, SKIPS };

static uint32_t row_of(const struct weir_table *table, uint32_t action) {
    uint32_t w = 0;
    while (table->lines[w + 1] <= action) w++;
    return w;
}

/* The first action of one of the kinds, or -1. */
static int64_t find(const struct slow *s, const char *kinds, uint32_t stage, uint32_t micro_batch) {
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
    const struct weir_link_cost *link = &s->options->link;
    if (a == b || s->free_crossings) return 0.0;
    if (s->options->links != NULL) link = &s->options->links[a * s->table->worker_count + b];
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
    return s->options->border_bytes != NULL ? s->options->border_bytes[at] : 0;
}

static void need_inputs(struct slow *s, uint32_t a, const struct weir_action *action) {
    uint32_t stage = action->stage, i = action->micro_batch;
    if (stage > 0) need(s, a, find(s, "F", stage - 1, i), border(s, stage - 1), BORDER);
    for (uint32_t k = 0; k < s->options->skip_count; k++) {
        const struct weir_skip_route *skip = &s->options->skips[k];
        for (uint32_t r = 0; r < skip->reader_count; r++)
            if (skip->readers[r] == stage)
                need(s, a, find(s, "F", skip->source, i), skip->bytes, SKIPS + k);
    }
}

static void need_gradients(struct slow *s, uint32_t a, const struct weir_action *action) {
    uint32_t stage = action->stage, i = action->micro_batch;
    bool crosses = stage + 1 < s->table->stage_count;
    if (crosses && s->options->border_differentiable != NULL)
        crosses = s->options->border_differentiable[stage];
    if (crosses) need(s, a, find(s, "BI", stage + 1, i), border(s, stage), BORDER);
    for (uint32_t k = 0; k < s->options->skip_count; k++) {
        const struct weir_skip_route *skip = &s->options->skips[k];
        for (uint32_t r = 0; skip->differentiable && r < skip->reader_count; r++) {
            uint32_t before = r == 0 ? skip->source : skip->readers[r - 1];
            if (before == stage)
                need(s, a, find(s, "BI", skip->readers[r], i), skip->bytes, SKIPS + k);
        }
    }
}

static void need_slot(struct slow *s, uint32_t a, const struct weir_action *action) {
    const struct weir_simulate_options *o = s->options;
    uint32_t stage = action->stage;
    if (o->no_backward == NULL || !o->no_backward[stage] || o->ahead == 0) return;
    if (stage + 1 == s->table->stage_count || action->micro_batch < o->ahead) return;
    int64_t next = find(s, "F", stage + 1, action->micro_batch - o->ahead);
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
        if (kind == WEIR_KIND_B || kind == WEIR_KIND_W) need(s, a, b, 0, BORDER);
    }
    s->free_crossings = free_crossings;
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

static void send(struct slow *s, uint32_t a, uint32_t stage, uint64_t bytes, uint32_t what) {
    const struct weir_rank_links *ranks = s->options->ranks;
    int64_t forward = find(s, "F", stage, 0);
    uint32_t from = row_of(s->table, a), to = row_of(s->table, (uint32_t)forward);
    if (!is_message(s, from, to) || !isnan(s->came[a][what][to])) return;
    uint32_t sender = rank_of(s, from), receiver = rank_of(s, to);
    const struct weir_link_cost *cost = &ranks->costs[sender * ranks->rank_count + receiver];
    double *way = &s->way_out[ranks->hosts != NULL ? ranks->hosts[sender] : sender][0];
    if (ranks->hosts != NULL && ranks->hosts[sender] == ranks->hosts[receiver])
        way = &s->way_out[sender][1];
    *way = fmax(*way, s->end[a]) + (double)bytes * cost->seconds_per_byte;
    s->came[a][what][to] = *way + cost->latency;
}

static bool returns(const struct slow *s, uint32_t stage) {
    return find(s, "BI", stage, 0) >= 0;
}

static void send_all(struct slow *s, uint32_t a) {
    const struct weir_simulate_options *o = s->options;
    const struct weir_action *action = &s->table->actions[a];
    uint32_t stage = action->stage;
    bool forward = action->kind == WEIR_KIND_F;
    bool back = action->kind == WEIR_KIND_B || action->kind == WEIR_KIND_I;
    if (forward && stage + 1 < s->table->stage_count)
        send(s, a, stage + 1, border(s, stage), BORDER);
    bool wanted =
        o->border_differentiable == NULL || (stage > 0 && o->border_differentiable[stage - 1]);
    if (back && stage > 0 && wanted && returns(s, stage - 1))
        send(s, a, stage - 1, border(s, stage - 1), BORDER);
    for (uint32_t k = 0; k < o->skip_count; k++) {
        const struct weir_skip_route *skip = &o->skips[k];
        for (uint32_t r = 0; r < skip->reader_count; r++) {
            uint32_t before = r == 0 ? skip->source : skip->readers[r - 1];
            if (forward && skip->source == stage)
                send(s, a, skip->readers[r], skip->bytes, SKIPS + k);
            if (back && skip->readers[r] == stage && skip->differentiable)
                send(s, a, before, skip->bytes, SKIPS + k);
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
    return true;
}

static void begin(struct slow *s) {
    memset(s->sent, 0, sizeof s->sent);
    memset(s->way_out, 0, sizeof s->way_out);
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        s->end[a] = NAN;
        for (uint32_t what = 0; what < SKIPS + SLOW_SKIPS_MAX; what++)
            for (uint32_t w = 0; w < SLOW_WORKERS_MAX; w++) s->came[a][what][w] = NAN;
    }
}

static bool settle_all(struct slow *s) {
    uint32_t known = 0;
    bool changed = true, ranks = s->options->ranks != NULL && !s->free_crossings;
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
    int64_t last = find(s, "BW", action->stage, action->micro_batch);
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

static uint64_t peak_bytes(const struct slow *s, uint32_t worker) {
    static struct change changes[4 * SLOW_ACTIONS_MAX];
    const struct weir_simulate_options *o = s->options;
    uint32_t count = 0;
    for (uint32_t a = s->table->lines[worker]; a < s->table->lines[worker + 1]; a++) {
        const struct weir_action *action = &s->table->actions[a];
        uint32_t stage = action->stage;
        int64_t saved = o->saved_bytes != NULL ? (int64_t)o->saved_bytes[stage] : 0;
        int64_t kept = o->kept_bytes != NULL ? (int64_t)o->kept_bytes[stage] : 0;
        bool again = find(s, "R", stage, action->micro_batch) >= 0;
        if (action->kind == WEIR_KIND_F)
            count = add_life(s, changes, count, a, kept + (again ? 0 : saved));
        if (action->kind == WEIR_KIND_R) count = add_life(s, changes, count, a, saved);
    }
    return most_at_once(changes, count);
}

/* ---- bytes ---- */

static bool differ(const struct slow *s, uint32_t a, uint32_t b) {
    return row_of(s->table, (uint32_t)find(s, "F", a, 0)) !=
           row_of(s->table, (uint32_t)find(s, "F", b, 0));
}

static uint64_t skip_moves(const struct slow *s, const struct weir_skip_route *skip) {
    bool has[SLOW_WORKERS_MAX] = {false};
    uint64_t moves = 0;
    has[row_of(s->table, (uint32_t)find(s, "F", skip->source, 0))] = true;
    for (uint32_t r = 0; r < skip->reader_count; r++) {
        uint32_t reader = skip->readers[r], to = r == 0 ? skip->source : skip->readers[r - 1];
        uint32_t worker = row_of(s->table, (uint32_t)find(s, "F", reader, 0));
        moves += !has[worker];
        has[worker] = true;
        moves += skip->differentiable && find(s, "BI", reader, 0) >= 0 && differ(s, reader, to);
    }
    return moves * skip->bytes;
}

static uint64_t moved_bytes(const struct slow *s) {
    const struct weir_simulate_options *o = s->options;
    uint64_t bytes = 0;
    for (uint32_t b = 0; b + 1 < s->table->stage_count; b++) {
        bool back = o->border_differentiable == NULL || o->border_differentiable[b];
        back = back && find(s, "BI", b, 0) >= 0 && find(s, "BI", b + 1, 0) >= 0;
        if (differ(s, b, b + 1)) bytes += border(s, b) * (back ? 2 : 1);
    }
    for (uint32_t k = 0; k < o->skip_count; k++) bytes += skip_moves(s, &o->skips[k]);
    return bytes * s->table->micro_batch_count;
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

void simulate_slowly(const struct weir_simulate_options *options, struct slow_prediction *out) {
    static struct slow slow;
    struct slow *s = &slow;
    memset(s, 0, sizeof *s);
    memset(out, 0, sizeof *out);
    s->options = options;
    s->table = options->table;
    s->host = options->host_seconds;
    for (uint32_t a = 0; a < s->table->action_count; a++) {
        const struct weir_action *action = &s->table->actions[a];
        const double *seconds = options->kind_seconds;
        if (options->stage_seconds != NULL)
            seconds = &options->stage_seconds[(size_t)action->stage * WEIR_KIND_COUNT];
        s->seconds[a] = seconds[action->kind];
    }
    out->complete = settle_all(s);
    if (!out->complete) return;
    shift(s);
    out->step = step_of(s);
    out->moved_bytes = moved_bytes(s);
    memcpy(out->start, s->start, sizeof out->start);
    memcpy(out->end, s->end, sizeof out->end);
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
