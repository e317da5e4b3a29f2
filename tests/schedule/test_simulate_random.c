/* SPDX-License-Identifier: MIT */
/*
 * Goal: the simulator is right for any table and any costs. Method: random tables (any worker for
 * any stage, any order that can run, B or I and W, R anywhere between F and its backward, stages
 * without backward) with random skips, borders, links, ranks, host time and sizes, groups of
 * gradients and replicas; times are multiples of 1/8, zero among them, so that sums are exact and
 * many things end at once. A simulation written another way must give the same, to the bit where no
 * means are taken.
 */
#include "harness.h"
#include "schedule/simulate_slowly.h"
#include "weir_shared.h"

#include <string.h>

enum { STAGES = 6, WORKERS = 4, MICRO_BATCHES = 6, SKIPS = 4, ACTIONS = 400, TRIALS = 20000 };
enum { REPLICAS = 3, RANKS = REPLICAS * WORKERS };

/** A table and costs with room for all that options point to. */
struct trial {
    struct weir_table table;
    uint32_t rows[WORKERS + 1];
    struct weir_action actions[ACTIONS];
    struct weir_action row[WORKERS][ACTIONS];
    uint32_t length[WORKERS];
    uint32_t worker_of[STAGES];
    bool split[STAGES][MICRO_BATCHES], recomputed[STAGES][MICRO_BATCHES];
    uint32_t progress[STAGES][MICRO_BATCHES]; /* actions of the cell that stand in the table */
    bool no_backward[STAGES], differentiable[STAGES];
    double seconds[STAGES * WEIR_KIND_COUNT];
    uint64_t border_bytes[STAGES], saved[STAGES], kept[STAGES];
    uint32_t readers[SKIPS][STAGES];
    struct weir_skip_route skips[SKIPS];
    struct weir_link_cost links[WORKERS * WORKERS], between[RANKS * RANKS];
    uint32_t hosts[RANKS];
    struct weir_rank_links ranks;
    uint64_t gradients[STAGES], parameters[STAGES];
    struct weir_shared_costs shared;
    uint32_t order_begin[ACTIONS + 1], order_from[ACTIONS];
    double paces[RANKS];
    struct weir_simulate_options options;
};

static uint32_t below(uint32_t bound) {
    return (uint32_t)test_random_below(bound);
}

static double eighths(uint32_t bound) {
    return below(bound) / 8.0;
}

/* ---- a random table ---- */

static void random_counts(struct trial *t) {
    t->table.stage_count = 1 + below(STAGES);
    t->table.worker_count = 1 + below(WORKERS);
    t->table.micro_batch_count = 1 + below(MICRO_BATCHES);
    uint32_t frozen = below(3) == 0 ? below(t->table.stage_count) : 0;
    for (uint32_t s = 0; s < t->table.stage_count; s++) {
        t->worker_of[s] = below(t->table.worker_count);
        t->no_backward[s] = s < frozen;
        for (uint32_t i = 0; i < t->table.micro_batch_count; i++) {
            t->split[s][i] = below(2) == 0;
            t->recomputed[s][i] = below(2) == 0;
        }
    }
}

/* The cell's action number `at`, or WEIR_KIND_COUNT behind the last. */
static uint32_t kind_at(const struct trial *t, uint32_t s, uint32_t i, uint32_t at) {
    if (at == 0) return WEIR_KIND_F;
    if (t->no_backward[s]) return WEIR_KIND_COUNT;
    at -= t->recomputed[s][i] ? 1 : 0;
    if (at == 0) return WEIR_KIND_R;
    if (at == 1) return t->split[s][i] ? WEIR_KIND_I : WEIR_KIND_B;
    return at == 2 && t->split[s][i] ? WEIR_KIND_W : WEIR_KIND_COUNT;
}

static bool sent_gradient(const struct trial *t, uint32_t s, uint32_t i) {
    return t->progress[s][i] > (t->recomputed[s][i] ? 2u : 1u);
}

static bool may_follow(const struct trial *t, uint32_t s, uint32_t i) {
    uint32_t kind = kind_at(t, s, i, t->progress[s][i]);
    if (kind == WEIR_KIND_COUNT) return false;
    if (kind == WEIR_KIND_F) return s == 0 || t->progress[s - 1][i] > 0;
    if (kind == WEIR_KIND_W || (kind == WEIR_KIND_R && !t->options.recompute_late)) return true;
    for (uint32_t later = s + 1; later < t->table.stage_count; later++)
        if (!sent_gradient(t, later, i)) return false;
    return t->progress[t->table.stage_count - 1][i] > 0;
}

static void append(struct trial *t, uint32_t s, uint32_t i, uint32_t kind) {
    uint32_t w = t->worker_of[s];
    t->row[w][t->length[w]++] = (struct weir_action){i, (uint16_t)s, (uint8_t)kind};
}

static void random_order(struct trial *t) {
    uint32_t idle = 0, cells = t->table.stage_count * t->table.micro_batch_count;
    while (idle < cells) { /* a round without any means that all is done */
        uint32_t from = below(cells);
        for (idle = 0; idle < cells; idle++) {
            uint32_t cell = (from + idle) % cells;
            uint32_t s = cell % t->table.stage_count, i = cell / t->table.stage_count;
            if (!may_follow(t, s, i)) continue;
            append(t, s, i, kind_at(t, s, i, t->progress[s][i]++));
            break;
        }
    }
    for (uint32_t s = 0; s < t->table.stage_count; s++) append(t, s, 0, WEIR_KIND_U);
}

static void join_rows(struct trial *t) {
    uint32_t count = 0;
    for (uint32_t w = 0; w < t->table.worker_count; w++) {
        t->rows[w] = count;
        memcpy(&t->actions[count], t->row[w], t->length[w] * sizeof t->actions[0]);
        count += t->length[w];
    }
    t->rows[t->table.worker_count] = count;
    t->table.action_count = count;
    t->table.lines = t->rows;
    t->table.actions = t->actions;
}

/* ---- random costs ---- */

static void random_skips(struct trial *t) {
    struct weir_simulate_options *o = &t->options;
    uint32_t stages = t->table.stage_count;
    while (stages > 1 && o->skip_count < SKIPS && below(3) > 0) {
        uint32_t k = o->skip_count++;
        struct weir_skip_route *skip = &t->skips[k];
        *skip = (struct weir_skip_route){.source = below(stages - 1),
                                         .readers = t->readers[k],
                                         .bytes = below(5),
                                         .differentiable = below(3) > 0};
        for (uint32_t s = skip->source + 1; s < stages; s++)
            if (below(2) == 0 || (s + 1 == stages && skip->reader_count == 0))
                t->readers[k][skip->reader_count++] = s;
    }
}

static void random_sizes(struct trial *t) {
    for (uint32_t i = 0; i < STAGES * WEIR_KIND_COUNT; i++)
        t->seconds[i] = below(4) == 0 ? 0.0 : eighths(24);
    for (uint32_t s = 0; s < STAGES; s++) {
        t->border_bytes[s] = below(5);
        t->differentiable[s] = below(4) > 0;
        t->saved[s] = below(9);
        t->kept[s] = below(9);
    }
    for (uint32_t i = 0; i < WORKERS * WORKERS; i++)
        t->links[i] = (struct weir_link_cost){eighths(8), eighths(3)};
}

/* Ranks of one worker or more, on hosts of one rank or more; messages that wait, and that do not.
 */
static void random_ranks(struct trial *t) {
    uint32_t count = (1 + below(t->table.worker_count)) * t->shared.replicas;
    for (uint32_t i = 0; i < RANKS * RANKS; i++)
        t->between[i] = (struct weir_link_cost){eighths(8), eighths(5)};
    for (uint32_t r = 0; r < count; r++) t->hosts[r] = below(count);
    t->ranks = (struct weir_rank_links){
        .rank_count = count, .costs = t->between, .hosts = below(2) == 0 ? t->hosts : NULL};
    t->options.ranks = &t->ranks;
    /* of two messages that are sent at once neither is made of the other */
    for (uint32_t i = 0; i < STAGES * WEIR_KIND_COUNT; i++) t->seconds[i] += 0.125;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) t->options.kind_seconds[k] += 0.125;
}

/* In blocks, where slices may end: a byte takes as much less. */
static void random_shared(struct trial *t) {
    struct weir_simulate_options *o = &t->options;
    uint32_t most = t->table.micro_batch_count, groups = 1u << below(3);
    while (groups > most || (most - 1) / ((most - 1) / groups + 1) + 1 != groups) groups /= 2;
    t->shared.replicas = 1 + below(REPLICAS);
    t->shared.groups = groups;
    for (uint32_t s = 0; s < STAGES; s++) {
        t->gradients[s] = (uint64_t)below(7) * WEIR_SLICE_BLOCK;
        t->parameters[s] = (uint64_t)below(7) * WEIR_SLICE_BLOCK;
    }
    if (below(8) > 0) t->shared.gradient_bytes = t->gradients;
    if (below(3) == 0) t->shared.parameter_bytes = t->parameters;
    if (below(2) == 0) t->shared.add_seconds_per_byte = eighths(3) / WEIR_SLICE_BLOCK;
    t->shared.link = (struct weir_link_cost){eighths(8), eighths(3) / WEIR_SLICE_BLOCK};
    o->shared = &t->shared;
}

/* What crosses is in blocks too. */
static void scale_bytes(struct trial *t) {
    struct weir_simulate_options *o = &t->options;
    for (uint32_t s = 0; s < STAGES; s++) t->border_bytes[s] *= WEIR_SLICE_BLOCK;
    for (uint32_t k = 0; k < o->skip_count; k++) t->skips[k].bytes *= WEIR_SLICE_BLOCK;
    for (uint32_t i = 0; i < WORKERS * WORKERS; i++)
        t->links[i].seconds_per_byte /= WEIR_SLICE_BLOCK;
    for (uint32_t i = 0; i < RANKS * RANKS; i++) t->between[i].seconds_per_byte /= WEIR_SLICE_BLOCK;
    o->link.seconds_per_byte /= WEIR_SLICE_BLOCK;
}

/* Up to one for each action; most of them can be kept, some make a circle. */
static void random_orders(struct trial *t) {
    uint32_t actions = t->table.action_count, count = 0;
    for (uint32_t a = 0; a < actions; a++) {
        t->order_begin[a] = count;
        if (below(20) == 0) t->order_from[count++] = below(actions);
    }
    t->order_begin[actions] = count;
    t->options.order_begin = t->order_begin;
    t->options.order_from = t->order_from;
}

static void random_costs(struct trial *t) {
    struct weir_simulate_options *o = &t->options;
    random_sizes(t);
    random_skips(t);
    o->table = &t->table;
    o->skips = t->skips;
    if (below(4) > 0) o->stage_seconds = t->seconds;
    for (uint32_t k = 0; k < WEIR_KIND_COUNT; k++) o->kind_seconds[k] = eighths(16);
    if (below(2) == 0) o->host_seconds = eighths(4);
    if (below(2) == 0) o->link = (struct weir_link_cost){eighths(8), eighths(3)};
    if (below(3) == 0) o->links = t->links;
    t->shared.replicas = 1;
    if (below(4) == 0) random_shared(t);
    if (below(2) == 0) random_ranks(t);
    scale_bytes(t);
    if (below(2) == 0) o->border_bytes = t->border_bytes;
    if (below(3) == 0) o->border_differentiable = t->differentiable;
    if (below(2) == 0) o->saved_bytes = t->saved;
    if (below(2) == 0) o->kept_bytes = t->kept;
    if (t->shared.replicas == 1 && below(4) == 0) random_orders(t);
    for (uint32_t w = 0; w < RANKS; w++) t->paces[w] = 0.25 * (1u << below(4)); /* exact */
    if (below(3) == 0) o->worker_paces = t->paces;
    o->no_backward = t->no_backward;
    o->ahead = below(3);
    o->want_actions = true;
}

static void random_trial(struct trial *t) {
    memset(t, 0, sizeof *t);
    t->options = (struct weir_simulate_options)WEIR_SIMULATE_OPTIONS_INIT;
    t->options.recompute_late = below(3) == 0;
    random_counts(t);
    random_order(t);
    join_rows(t);
    random_costs(t);
}

/* ---- both ---- */

static void compare_worker(const struct weir_predicted_worker *a, const struct slow_worker *b,
                           double step) {
    EXPECT_NEAR(a->busy, b->busy, 0.0);
    EXPECT_NEAR(a->idle, step - b->busy, 0.0);
    EXPECT_NEAR(a->copy, b->copy, 0.0);
    EXPECT_NEAR(a->host, b->host, 0.0);
    EXPECT_NEAR(a->window, b->window, 0.0);
    EXPECT_NEAR(a->dependency, b->model_idle, 1e-9);
    EXPECT_NEAR(a->dependency + a->copy + a->imbalance + a->host, a->idle, 1e-9);
    EXPECT_EQ_UINT(a->peak_activations, b->peak_activations);
    EXPECT_EQ_UINT(a->peak_bytes, b->peak_bytes);
}

static void compare(const struct weir_prediction *a, const struct slow_prediction *b,
                    const struct weir_table *table) {
    EXPECT_NEAR(a->step, b->step, 0.0);
    EXPECT_NEAR(a->total, b->total, 1e-9); /* updates take thirds */
    EXPECT_EQ_UINT(a->moved_bytes, b->moved_bytes);
    for (uint32_t i = 0; i < a->replicas * table->action_count; i++) {
        bool updates = table->actions[i % table->action_count].kind == WEIR_KIND_U;
        EXPECT_NEAR(a->start[i], b->start[i], updates ? 1e-9 : 0.0);
        EXPECT_NEAR(a->end[i], b->end[i], updates ? 1e-9 : 0.0);
    }
    for (uint32_t w = 0; w < a->replicas * table->worker_count; w++)
        compare_worker(&a->workers[w], &b->workers[w], b->step);
    for (uint32_t s = 0; s < a->replicas * table->stage_count; s++)
        EXPECT_EQ_UINT(a->stage_peak_activations[s], b->stage_peaks[s]);
}

static void test_agrees_with_a_simulation_written_another_way(void) {
    static struct trial t;
    static struct slow_prediction slow;
    struct weir_simulator *simulator;
    uint32_t complete = 0, stuck = 0;
    CHECK_OK(weir_simulator_new(test_allocator(), &simulator));
    for (uint32_t trial = 0; trial < TRIALS && !test_has_failed(); trial++) {
        struct weir_prediction fast;
        random_trial(&t);
        simulate_slowly(&t.options, &slow);
        int status = weir_simulate(simulator, &t.options, NULL, &fast);
        EXPECT_STATUS(status, slow.complete ? WEIR_OK : WEIR_ERR_SCHEDULE);
        if (status == WEIR_OK) compare(&fast, &slow, &t.table);
        complete += slow.complete;
        stuck += !slow.complete;
    }
    weir_simulator_destroy(simulator);
    CHECK(complete > TRIALS / 2);
    CHECK(stuck > 0); /* orders that cannot be kept, or more slots ahead than there are */
}

WEIR_TEST_SUITE(simulate_random, TEST(agrees_with_a_simulation_written_another_way))
