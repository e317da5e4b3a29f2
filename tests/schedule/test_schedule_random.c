/* SPDX-License-Identifier: MIT */
/*
 * Goal: every schedule serves every model: any skips with any readers, any borders, any checkpoint
 * modes, stages without backward. Method: 100,000 random configurations per run, each proven under
 * its flow and replayed at random times; the replay's starts are held against the rules of the
 * definition, written out here from the flow alone.
 */
#include "schedule/schedule_facts.h"

#include <stdio.h>
#include <string.h>

enum { STAGES = 12, MICRO_BATCHES = 10, SKIPS = 4, RUNS = 100000, ROOM = 1024 };

struct configuration {
    struct weir_table_options options;
    enum weir_checkpoint modes[STAGES];
    bool no_backward[STAGES], borders[STAGES];
    struct weir__flow flow;
    struct weir_skip_route skips[SKIPS];
    uint32_t readers[SKIPS][STAGES];
};

static uint32_t below(uint32_t bound) {
    return (uint32_t)test_random_below(bound);
}

static void random_skips(struct configuration *c) {
    uint32_t stages = c->options.stages;
    c->flow.skips = c->skips;
    while (stages > 1 && c->flow.skip_count < SKIPS && below(3) > 0) {
        struct weir_skip_route *skip = &c->skips[c->flow.skip_count];
        uint32_t *readers = c->readers[c->flow.skip_count++];
        skip->source = below(stages - 1);
        skip->readers = readers;
        skip->reader_count = 0;
        skip->differentiable = below(4) > 0;
        for (uint32_t s = skip->source + 1; s < stages; s++)
            if (below(3) == 0 || (s + 1 == stages && skip->reader_count == 0))
                readers[skip->reader_count++] = s;
    }
}

/* Stages 0 to k without backward: no border or skip that touches them is differentiable. */
static void random_freezing(struct configuration *c) {
    uint32_t frozen = below(8) == 0 ? below(c->options.stages) : 0;
    if (frozen == 0) return;
    c->options.no_backward = c->flow.no_backward = c->no_backward;
    c->flow.border_differentiable = c->borders;
    for (uint32_t s = 0; s < STAGES; s++) {
        c->no_backward[s] = s < frozen;
        c->borders[s] = s >= frozen && below(5) > 0;
    }
    for (uint32_t k = 0; k < c->flow.skip_count; k++)
        c->skips[k].differentiable &= c->skips[k].source >= frozen;
}

static void random_configuration(struct configuration *c) {
    memset(c, 0, sizeof *c);
    struct schedule_counts counts = {.workers = 1 + below(4), .micro_batches = 1 + below(8)};
    counts.stages = counts.workers * (1 + below(3));
    if (below(8) == 0) counts.stages = counts.workers + below(STAGES - counts.workers + 1);
    c->options = schedule_options(schedule_any(), counts, (enum weir_checkpoint)(1 + below(3)));
    c->options.recompute_late = below(4) == 0;
    if (below(4) == 0) {
        for (uint32_t s = 0; s < STAGES; s++) c->modes[s] = (enum weir_checkpoint)below(4);
        c->options.stage_checkpoint = c->modes;
    }
    c->flow.stage_count = counts.stages;
    c->flow.recompute_late = c->options.recompute_late;
    random_skips(c);
    random_freezing(c);
}

/* ---- the rules, from the definition ---- */

struct timing {
    const struct weir_table *table;
    const struct weir__flow *flow;
    double start[ROOM], end[ROOM];
    uint32_t at[STAGES][MICRO_BATCHES][WEIR_KIND_COUNT];
};

/* When what sends the gradient on is done; -1 where nothing does. */
static double sent(const struct timing *t, uint32_t s, uint32_t i) {
    uint32_t input = t->at[s][i][WEIR_KIND_I], whole = t->at[s][i][WEIR_KIND_B];
    uint32_t at = input != UINT32_MAX ? input : whole;
    return at != UINT32_MAX ? t->end[at] : -1;
}

static double inputs_ready(const struct timing *t, uint32_t s, uint32_t i) {
    double ready = s > 0 ? t->end[t->at[s - 1][i][WEIR_KIND_F]] : 0;
    for (uint32_t k = 0; k < t->flow->skip_count; k++) {
        const struct weir_skip_route *skip = &t->flow->skips[k];
        for (uint32_t r = 0; r < skip->reader_count; r++) {
            double end = t->end[t->at[skip->source][i][WEIR_KIND_F]];
            if (skip->readers[r] == s && end > ready) ready = end;
        }
    }
    return ready;
}

static double gradients_ready(const struct timing *t, uint32_t s, uint32_t i) {
    const struct weir__flow *flow = t->flow;
    bool border = s + 1 < flow->stage_count &&
                  (flow->border_differentiable == NULL || flow->border_differentiable[s]);
    double ready = border ? sent(t, s + 1, i) : 0;
    for (uint32_t k = 0; k < flow->skip_count; k++) {
        const struct weir_skip_route *skip = &flow->skips[k];
        for (uint32_t r = 0; skip->differentiable && r < skip->reader_count; r++) {
            uint32_t to = r == 0 ? skip->source : skip->readers[r - 1];
            double end = to == s ? sent(t, skip->readers[r], i) : 0;
            ready = end > ready ? end : ready;
        }
    }
    return ready;
}

static double ready_of(const struct timing *t, const struct weir_action *action) {
    uint32_t s = action->stage, i = action->micro_batch;
    double forward = t->end[t->at[s][i][WEIR_KIND_F]];
    uint32_t again = t->at[s][i][WEIR_KIND_R];
    double saved = again != UINT32_MAX ? t->end[again] : forward;
    double gradients = action->kind == WEIR_KIND_F ? 0 : gradients_ready(t, s, i);
    switch (action->kind) {
    case WEIR_KIND_F: return inputs_ready(t, s, i);
    case WEIR_KIND_R: return t->flow->recompute_late && gradients > forward ? gradients : forward;
    case WEIR_KIND_W: return t->end[t->at[s][i][WEIR_KIND_I]];
    default: return gradients > saved ? gradients : saved;
    }
}

static bool rules_hold(struct timing *t) {
    memset(t->at, 0xff, sizeof t->at);
    for (uint32_t a = 0; a < t->table->action_count; a++) {
        const struct weir_action *action = &t->table->actions[a];
        if (weir__kinds[action->kind].in_step)
            t->at[action->stage][action->micro_batch][action->kind] = a;
    }
    for (uint32_t w = 0; w < t->table->worker_count; w++)
        for (uint32_t a = t->table->lines[w]; a < t->table->lines[w + 1]; a++) {
            const struct weir_action *action = &t->table->actions[a];
            if (a > t->table->lines[w] && t->start[a] < t->end[a - 1]) return false;
            if (weir__kinds[action->kind].in_step && t->start[a] < ready_of(t, action))
                return false;
        }
    return true;
}

/* ---- all of it ---- */

static bool replay(const struct configuration *c, const struct weir_table *table) {
    static struct timing timing;
    struct weir__deps deps;
    double duration[ROOM], makespan = 0;
    timing.table = table;
    timing.flow = &c->flow;
    if (!EXPECT(table->action_count <= ROOM)) return false;
    for (uint32_t a = 0; a < table->action_count; a++) duration[a] = 1.0 + below(4);
    if (!EXPECT_STATUS(weir__deps_new(table, &c->flow, NULL, &deps), WEIR_OK)) return false;
    int status =
        weir__table_replay(table, &deps, duration, NULL, timing.start, timing.end, &makespan, NULL);
    weir__deps_clean_up(&deps);
    return EXPECT_STATUS(status, WEIR_OK) && EXPECT(makespan > 0) && EXPECT(rules_hold(&timing));
}

/* 1 for a table that holds, 0 for a refusal, -1 with the test failed. */
static int judge(struct configuration *c) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_table *table = NULL;
    c->options.allocator = NULL; /* the suite's own takes most of the time */
    int status = weir_table_new(&c->options, &faults, &table), verdict = 1;
    if (status == WEIR_ERR_ARGUMENT && EXPECT(faults.count > 0)) {
        verdict = 0;
    } else if (!EXPECT_STATUS(status, WEIR_OK) ||
               !EXPECT_STATUS(weir__table_check_flow(table, &c->flow, NULL, &faults), WEIR_OK) ||
               !replay(c, table)) {
        verdict = -1;
        TEST_FAIL("%s of %u stages on %u workers, %u micro-batches: %s", c->options.schedule,
                  c->options.stages, c->options.workers, c->options.micro_batches,
                  faults.kept > 0 ? faults.lines[0] : "");
    }
    weir_table_destroy(table);
    weir_faults_clean_up(&faults);
    return verdict;
}

static void test_every_schedule_serves_every_flow(void) {
    static struct configuration configuration;
    uint32_t accepted = 0, refused = 0, runs = test_is_sanitized() ? RUNS / 10 : RUNS;
    while (accepted < runs) {
        random_configuration(&configuration);
        int verdict = judge(&configuration);
        CHECK(verdict >= 0);
        accepted += verdict > 0;
        refused += verdict == 0;
        CHECK(refused < 3 * RUNS);
    }
    printf("  %u random configurations hold, %u more were refused\n", accepted, refused);
}

WEIR_TEST_SUITE(schedule_random, TEST(every_schedule_serves_every_flow))
