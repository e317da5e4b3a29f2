/* SPDX-License-Identifier: MIT */
/*
 * Goal: whatever is asked of any schedule runs, in the simulator as by the validator. Method:
 * random configurations (schedule, stages, workers, micro-batches, checkpoint, frozen stages, skips
 * with many readers, when R waits) with random times and links. What is not refused must pass the
 * validator, simulate to its end, start no action before what the derived dependencies say has
 * ended and arrived, keep each worker to one action at a time, and free each saved activation once:
 * what lives at most, counted from starts and ends alone, is what the simulator says.
 */
#include "harness.h"

#include "schedule/action.h"
#include "weir_predict.h"

#include <math.h>
#include <string.h>

enum { STAGES = 8, MICRO_BATCHES = 10, SKIPS = 3 };
enum { TRIALS_QUICK = 10000, TRIALS_FULL = 100000, TRIALS_SANITIZED = 5000 };

struct trial {
    struct weir_table *table;
    struct weir_table_options asked;
    enum weir_checkpoint modes[STAGES];
    bool no_backward[STAGES];
    uint32_t readers[SKIPS][STAGES];
    struct weir_skip_route skips[SKIPS];
    struct weir__flow flow;
    double seconds[STAGES * WEIR_KIND_COUNT];
    struct weir_simulate_options options;
};

static uint32_t below(uint32_t bound) {
    return (uint32_t)test_random_below(bound);
}

/* ---- random configurations ---- */

static void random_table(struct trial *t) {
    uint32_t schedules = 0;
    while (weir_schedule_name(schedules) != NULL) schedules++;
    t->asked = (struct weir_table_options)WEIR_TABLE_OPTIONS_INIT;
    t->asked.allocator = test_allocator();
    t->asked.schedule = weir_schedule_name(below(schedules));
    t->asked.stages = 1 + below(STAGES);
    t->asked.workers = below(2) == 0 ? 0 : 1 + below(t->asked.stages);
    t->asked.micro_batches = 1 + below(MICRO_BATCHES);
    t->asked.checkpoint = (enum weir_checkpoint)below(4);
    t->asked.stage_checkpoint = below(3) == 0 ? t->modes : NULL;
    t->asked.no_backward = t->no_backward;
    t->asked.recompute_late = below(3) == 0;
    uint32_t frozen = below(4) == 0 ? below(t->asked.stages) : 0;
    for (uint32_t s = 0; s < STAGES; s++) {
        t->modes[s] = (enum weir_checkpoint)below(4);
        t->no_backward[s] = s < frozen;
    }
}

static void random_skips(struct trial *t) {
    uint32_t stages = t->asked.stages;
    while (stages > 1 && t->flow.skip_count < SKIPS && below(2) == 0) {
        uint32_t k = t->flow.skip_count++, source = below(stages - 1), count = 0;
        for (uint32_t s = source + 1; s < stages; s++)
            if (below(2) == 0 || (s + 1 == stages && count == 0)) t->readers[k][count++] = s;
        bool differentiable = !t->no_backward[source] && below(3) > 0;
        t->skips[k] =
            (struct weir_skip_route){source, count, t->readers[k], below(9), differentiable};
    }
    t->flow.stage_count = stages;
    t->flow.skips = t->skips;
    t->flow.no_backward = t->no_backward;
    t->flow.recompute_late = t->asked.recompute_late;
}

static void random_costs(struct trial *t) {
    for (uint32_t i = 0; i < STAGES * WEIR_KIND_COUNT; i++)
        t->seconds[i] = 0.5 + test_random_unit();
    t->options = (struct weir_simulate_options)WEIR_SIMULATE_OPTIONS_INIT;
    t->options.table = t->table;
    t->options.stage_seconds = t->seconds;
    t->options.link.latency = below(2) == 0 ? test_random_unit() : 0.0;
    t->options.skips = t->skips;
    t->options.skip_count = t->flow.skip_count;
    t->options.no_backward = t->no_backward;
    t->options.recompute_late = t->flow.recompute_late;
    t->options.no_causes = true;
    t->options.want_actions = true;
}

/* False: such a thing cannot be. */
static bool random_trial(struct trial *t) {
    memset(t, 0, sizeof *t);
    random_table(t);
    if (weir_table_new(&t->asked, NULL, &t->table) != WEIR_OK) return false;
    random_skips(t);
    random_costs(t);
    return true;
}

/* ---- what must hold ---- */

static bool keeps_order(const struct trial *t, const struct weir_prediction *p) {
    struct weir__deps deps;
    bool kept = EXPECT_STATUS(weir__deps_new(t->table, &t->flow, test_allocator(), &deps), WEIR_OK);
    if (!kept) return false;
    for (uint32_t w = 0; w < t->table->worker_count; w++) {
        double now = 0.0;
        for (uint32_t a = t->table->lines[w]; a < t->table->lines[w + 1]; a++) {
            bool per_micro_batch = weir__kinds[t->table->actions[a].kind].per_micro_batch;
            double latency = per_micro_batch ? t->options.link.latency : 0.0;
            kept = kept && p->start[a] >= now;
            for (uint32_t e = deps.begin[a]; e < deps.begin[a + 1]; e++)
                kept = kept && p->start[a] >= p->end[deps.edges[e].from] + latency;
            now = p->end[a];
        }
    }
    weir__deps_clean_up(&deps);
    return kept;
}

/* Times are random, so that no end is another one's start on the same worker but in row order. */
static bool frees_once(const struct trial *t, const struct weir_prediction *p) {
    bool same = true;
    for (uint32_t w = 0; w < t->table->worker_count; w++) {
        int64_t live = 0, most = 0;
        for (uint32_t a = t->table->lines[w]; a < t->table->lines[w + 1]; a++) {
            const struct weir_action *action = &t->table->actions[a];
            bool frozen = t->no_backward[action->stage];
            live += action->kind == WEIR_KIND_F && !frozen;
            most = live > most ? live : most;
            live -= action->kind == WEIR_KIND_B || action->kind == WEIR_KIND_W;
        }
        same = same && live == 0 && (uint64_t)most == p->workers[w].peak_activations;
    }
    return same;
}

static bool check_trial(struct trial *t, struct weir_simulator *simulator) {
    struct weir_prediction p;
    const struct weir_allocator *allocator = test_allocator();
    struct weir_faults faults = {.allocator = allocator};
    if (!EXPECT_STATUS(weir__table_check_flow(t->table, &t->flow, allocator, &faults), WEIR_OK)) {
        for (uint32_t i = 0; i < faults.kept && i < 3; i++) TEST_FAIL("%s", faults.lines[i]);
        weir_faults_clean_up(&faults);
        return false;
    }
    if (!EXPECT_STATUS(weir_simulate(simulator, &t->options, NULL, &p), WEIR_OK)) return false;
    return EXPECT(keeps_order(t, &p)) && EXPECT(frees_once(t, &p)) &&
           EXPECT(p.step > 0.0 && p.bubble >= -1e-9 && p.bubble < 1.0);
}

static void test_every_configuration_runs(void) {
    static struct trial t;
    struct weir_simulator *simulator;
    uint32_t ran = 0, trials = (uint32_t)test_count(TRIALS_QUICK, TRIALS_FULL);
    if (test_is_sanitized()) trials = TRIALS_SANITIZED;
    CHECK_OK(weir_simulator_new(test_allocator(), &simulator));
    for (uint32_t trial = 0; ran < trials && trial < 20 * trials; trial++) {
        if (!random_trial(&t)) continue;
        ran++;
        bool good = check_trial(&t, simulator);
        weir_table_destroy(t.table);
        if (good) continue;
        uint32_t frozen = 0;
        for (uint32_t s = 0; s < STAGES; s++) frozen += t.no_backward[s];
        TEST_FAIL("%s, %u stages of them %u frozen, %u workers, %u micro-batches, %u skips, %s",
                  t.asked.schedule, (unsigned)t.asked.stages, (unsigned)frozen,
                  (unsigned)t.asked.workers, (unsigned)t.asked.micro_batches,
                  (unsigned)t.flow.skip_count, t.flow.recompute_late ? "late" : "early");
        break;
    }
    weir_simulator_destroy(simulator);
    if (!test_has_failed()) EXPECT_EQ_UINT(ran, trials);
}

WEIR_TEST_SUITE(simulate_schedules, TEST(every_configuration_runs))
