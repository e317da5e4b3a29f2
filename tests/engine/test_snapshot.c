/* SPDX-License-Identifier: MIT */
/*
 * Goal: a snapshot says of a step what its trace says, and what follows from it. Method: small
 * pipes whose stamps are replaced by those of a simulation that knows every cause; the what-ifs
 * must be the simulation's own answers.
 */
#include "engine/report_pipe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct report_options plain = {.stages = 2, .workers = 2, .chunks = 4};

static struct weir_snapshot *take(const struct report_pipe *p, uint64_t step) {
    struct weir_snapshot *snapshot = NULL;
    EXPECT_STATUS(weir_snapshot_new(p->pipe, step, test_allocator(), &snapshot), WEIR_OK);
    return snapshot;
}

/* ---- which step ---- */

/* Every action of the step that ran last takes `ns`, one after the other. */
static void stretch(const struct report_pipe *p, uint64_t ns) {
    for (uint32_t w = 0; w < p->pipe->worker_count; w++) {
        struct weir__worker *worker = &p->pipe->workers[w];
        uint32_t count = (uint32_t)(worker->event_count - worker->step_first_event);
        for (uint32_t i = 0; i < count; i++) {
            struct weir_trace_event *event = weir__worker_event(worker, i);
            event->waited = event->start = 1000000 * event->step + i * ns;
            event->end = event->start + ns;
        }
    }
}

static void test_the_typical_step_is_the_median(void) {
    static const uint64_t times[] = {50, 10, 40, 20, 30, 60};
    struct report_options options = plain;
    struct report_pipe p;
    options.trace_actions = 1000;
    CHECK(report_pipe_new(&p, &options));
    for (int i = 0; i < 6; i++) {
        CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
        stretch(&p, times[i]);
    }
    struct weir_snapshot *s = take(&p, 0);
    CHECK(s != NULL);
    uint32_t in_row = 4 * 3 - 1; /* F, R but for the last, B */
    EXPECT_EQ_UINT(s->step, 3);  /* 40: the later of 30 and 40 */
    EXPECT(s->typical);
    EXPECT_EQ_UINT(s->kept_count, 6);
    EXPECT_NEAR(s->kept_least, 10.0 * in_row, 0.0);
    EXPECT_NEAR(s->kept_most, 60.0 * in_row, 0.0);
    EXPECT_NEAR(s->report.makespan, 40.0 * in_row, 0.0);
    weir_snapshot_destroy(s);
    s = take(&p, 2);
    EXPECT_EQ_UINT(s != NULL ? s->step : 0, 2);
    EXPECT(s == NULL || !s->typical);
    weir_snapshot_destroy(s);
    EXPECT_STATUS(weir_snapshot_new(p.pipe, 7, NULL, &s), WEIR_ERR_NOT_FOUND);
    report_pipe_destroy(&p);
}

static void test_steps_that_are_not_whole_are_left_out(void) {
    struct report_options options = plain;
    struct report_pipe p;
    struct weir_snapshot *s = NULL;
    options.trace_actions = 1000;
    CHECK(report_pipe_new(&p, &options));
    EXPECT_STATUS(weir_snapshot_new(p.pipe, 0, NULL, &s), WEIR_ERR_NOT_FOUND);
    CHECK_OK(weir_pipe_prepare(p.pipe, 8, NULL));
    CHECK_OK(report_pipe_infer(&p));
    p.failure = 9;
    CHECK_EQ_INT(report_pipe_step(&p, REPORT_ROWS, true), 9);
    p.failure = 0;
    EXPECT_STATUS(weir_snapshot_new(p.pipe, 0, NULL, &s), WEIR_ERR_NOT_FOUND);
    CHECK_OK(report_pipe_step(&p, 8, true)); /* step 3: fewer rows, as many micro-batches */
    s = take(&p, 0);
    EXPECT_EQ_INT(s != NULL ? s->rows : 0, 8);
    weir_snapshot_destroy(s);
    CHECK_OK(report_pipe_step(&p, REPORT_ROWS, false)); /* step 4: no norm, no update */
    s = take(&p, 0);
    EXPECT_EQ_UINT(s != NULL ? s->step : 0, 4);
    EXPECT_EQ_UINT(s != NULL ? s->stages[1].count[WEIR_KIND_N] : 9, 0);
    weir_snapshot_destroy(s);
    CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true)); /* step 5 */
    CHECK_OK(report_pipe_infer(&p));
    s = take(&p, 0);
    EXPECT_EQ_UINT(s != NULL ? s->step : 0, 5);
    EXPECT_EQ_UINT(s != NULL ? s->kept_count : 0, 1);
    EXPECT_EQ_UINT(s != NULL ? s->stages[1].count[WEIR_KIND_U] : 0, 1);
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
}

static void test_a_step_that_the_ring_has_cut_is_left_out(void) {
    struct report_options options = plain;
    struct report_pipe p;
    struct weir_snapshot *s = NULL;
    options.trace_actions = 60;
    CHECK(report_pipe_new(&p, &options));
    for (int i = 0; i < 9; i++) CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
    uint32_t row = p.pipe->prepared[0]->table->lines[1];
    uint32_t capacity = p.pipe->workers[0].event_capacity, kept = capacity / row;
    CHECK(capacity % row != 0 && kept < 8);
    EXPECT_STATUS(weir_snapshot_new(p.pipe, 9 - kept, NULL, &s), WEIR_ERR_NOT_FOUND);
    s = take(&p, 10 - kept);
    EXPECT_EQ_UINT(s != NULL ? s->kept_count : 0, kept);
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
}

static void test_a_pipe_in_use_is_refused(void) {
    struct report_pipe p;
    struct weir_snapshot *s;
    CHECK(report_pipe_new(&p, &plain));
    CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
    EXPECT_STATUS(weir_snapshot_new(NULL, 0, NULL, &s), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_snapshot_new(p.pipe, 0, NULL, NULL), WEIR_ERR_ARGUMENT);
    p.pipe->outcome.stuck = true;
    EXPECT_STATUS(weir_snapshot_new(p.pipe, 0, NULL, &s), WEIR_ERR_BUSY);
    p.pipe->outcome.stuck = false;
    atomic_store(&p.pipe->in_use, true);
    EXPECT_STATUS(weir_snapshot_new(p.pipe, 0, NULL, &s), WEIR_ERR_BUSY);
    atomic_store(&p.pipe->in_use, false);
    weir_snapshot_destroy(NULL);
    report_pipe_destroy(&p);
}

static void test_every_failing_allocation_is_reported(void) {
    struct report_pipe p;
    struct weir_snapshot *s;
    CHECK(report_pipe_new(&p, &plain));
    CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
    size_t live = test_allocator_live_blocks();
    uint64_t k = 1;
    for (;; k++) {
        test_allocator_fail_at(k, false);
        int status = weir_snapshot_new(p.pipe, 0, test_allocator(), &s);
        bool fired = test_allocator_fired();
        test_allocator_fail_at(0, false);
        if (!fired) {
            EXPECT_STATUS(status, WEIR_OK);
            weir_snapshot_destroy(s);
            break;
        }
        EXPECT_STATUS(status, WEIR_ERR_OUT_OF_MEMORY);
        EXPECT_EQ_UINT(test_allocator_live_blocks(), live);
    }
    EXPECT(k > 5);
    report_pipe_destroy(&p);
}

static void test_a_snapshot_outlives_its_pipe(void) {
    static const char *const names[] = {"front", "back"};
    struct report_options options = plain;
    struct report_pipe p;
    options.names = names;
    CHECK(report_pipe_new(&p, &options));
    CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
    struct weir_snapshot *s = take(&p, 0);
    report_pipe_destroy(&p);
    CHECK(s != NULL);
    EXPECT_EQ_STR(s->stages[0].name, "front");
    EXPECT_EQ_STR(s->stages[1].name, "back");
    EXPECT_EQ_STR(s->schedule, "1f1b");
    EXPECT_EQ_UINT(s->workers[1].plan.parameters, 8192);
    weir_snapshot_destroy(s);
}

/* ---- actions ---- */

/* Through all schedules and links; `check` is called for each with its snapshot. */
enum stamps { MEASURED, SIMULATED };
typedef void check_fn(const struct report_pipe *p, struct report_times *times,
                      const struct weir_snapshot *s);

static void check_case(struct report_pipe *p, enum stamps stamps, check_fn *check) {
    static struct report_times times;
    struct weir_snapshot *s;
    CHECK_OK(report_pipe_step(p, p->pipe->setup.options.rows, true));
    report_times_draw(&times, p, 1000);
    report_times_simulate(&times);
    if (stamps == SIMULATED) report_times_stamp(&times, p, 5000000 + test_random_below(1000));
    CHECK_OK(weir_snapshot_new(p->pipe, p->pipe->step_count, test_allocator(), &s));
    check(p, &times, s);
    weir_snapshot_destroy(s);
}

static void for_each_case(enum stamps stamps, check_fn *check) {
    static const struct report_options cases[] = {
        {2, 2, 4, "1f1b", WEIR_CHECKPOINT_EXCEPT_LAST, false, 0, NULL, 0},
        {4, 4, 6, "gpipe", WEIR_CHECKPOINT_ALWAYS, false, 0, NULL, 0},
        {4, 2, 5, "gpipe", WEIR_CHECKPOINT_NEVER, false, 0, NULL, 0},
        {3, 3, 6, "1f1b", WEIR_CHECKPOINT_ALWAYS, true, 0, NULL, 0},
        {4, 4, 4, "1f1b", WEIR_CHECKPOINT_EXCEPT_LAST, true, 70, NULL, 0},
        {1, 1, 3, "gpipe", WEIR_CHECKPOINT_NEVER, false, 0, NULL, 0}};
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        struct report_pipe p;
        CHECK(report_pipe_new(&p, &cases[i]));
        for (int k = 0; k < 5 && !test_has_failed(); k++) check_case(&p, stamps, check);
        report_pipe_destroy(&p);
    }
}

static void check_actions(const struct report_pipe *p, struct report_times *times,
                          const struct weir_snapshot *s) {
    uint64_t origin = UINT64_MAX, last = 0;
    for (uint32_t w = 0; w < s->worker_count; w++) {
        struct weir_trace_event *first = weir__worker_event(&p->pipe->workers[w], 0);
        if (first->waited < origin) origin = first->waited;
    }
    CHECK_EQ_UINT(s->action_count, times->table->action_count);
    for (uint32_t w = 0; w < s->worker_count; w++) {
        CHECK_EQ_UINT(s->workers[w].action_begin, times->table->lines[w]);
        CHECK_EQ_UINT(s->workers[w].action_end, times->table->lines[w + 1]);
        for (uint32_t a = times->table->lines[w]; a < times->table->lines[w + 1]; a++) {
            const struct weir_snapshot_action *got = &s->actions[a];
            const struct weir_trace_event *event =
                weir__worker_event(&p->pipe->workers[w], a - times->table->lines[w]);
            CHECK_EQ_UINT(got->worker, w);
            CHECK_EQ_UINT(got->action.kind, event->action.kind);
            CHECK_EQ_UINT(got->action.stage, event->action.stage);
            CHECK_EQ_UINT(got->action.micro_batch, event->action.micro_batch);
            CHECK_EQ_UINT(got->waited, event->waited - origin);
            CHECK_EQ_UINT(got->start, event->start - origin);
            CHECK_EQ_UINT(got->end, event->end - origin);
            CHECK_EQ_INT(got->waited_for, event->waited_for);
            CHECK_EQ_UINT(got->waiting + got->copy + got->host, got->start - got->waited);
            if (got->end > last) last = got->end;
        }
    }
    CHECK_EQ_UINT(s->span, last);
}

static void test_actions_are_the_traces(void) {
    for_each_case(SIMULATED, check_actions);
    for_each_case(MEASURED, check_actions);
}

/* What crosses comes from the neighbour: F from the stage before, B from the one behind. */
static uint32_t memory_waits;

static void check_causes(const struct report_pipe *p, struct report_times *times,
                         const struct weir_snapshot *s) {
    uint32_t updates = 0;
    for (uint32_t a = 0; a < s->action_count; a++) {
        const struct weir_snapshot_action *got = &s->actions[a];
        bool tail = got->action.kind == WEIR_KIND_N || got->action.kind == WEIR_KIND_U;
        if (got->waited_for < 0) {
            CHECK_EQ_UINT(got->awaited, WEIR_NO_ACTION);
            CHECK_EQ_INT(got->cause, WEIR_CAUSE_NOTHING);
        }
        if (got->waited_for < 0) continue;
        CHECK(got->awaited < s->action_count);
        const struct weir_snapshot_action *from = &s->actions[got->awaited];
        CHECK_EQ_UINT(from->worker, (uint32_t)got->waited_for);
        if (tail) { /* the update, for every worker's norm */
            CHECK_EQ_INT(got->cause, WEIR_CAUSE_ALL_GRADIENTS);
            CHECK_EQ_INT(from->action.kind, WEIR_KIND_N);
            updates++;
        }
        if (got->cause == WEIR_CAUSE_MEMORY) { /* what it needs to run is there, and waits too */
            CHECK_EQ_UINT(got->waiting, from->end - got->waited);
            CHECK_EQ_UINT(got->waiting + got->copy + got->host, got->start - got->waited);
            CHECK(times->delay > 0.0 || (double)got->host == times->host[a]);
            memory_waits++;
        }
        if (tail || got->cause == WEIR_CAUSE_MEMORY) continue;
        bool backward = got->action.kind == WEIR_KIND_B;
        CHECK_EQ_INT(got->cause, backward ? WEIR_CAUSE_GRADIENT : WEIR_CAUSE_ACTIVATIONS);
        CHECK_EQ_INT(from->action.kind, backward ? WEIR_KIND_B : WEIR_KIND_F);
        CHECK_EQ_INT(from->action.stage, got->action.stage + (backward ? 1 : -1));
        CHECK_EQ_UINT(from->action.micro_batch, got->action.micro_batch);
        /* the simulation's own parts; a copy is on its way, then copied */
        CHECK_NEAR((double)got->host, times->host[a], 0.0);
        CHECK_NEAR((double)got->copy, times->copying[a] + times->delay, 0.0);
        CHECK_EQ_UINT(got->waiting, from->end - got->waited);
    }
    CHECK_EQ_UINT(updates, s->worker_count > 1 ? s->worker_count : 0);
}

static void test_a_wait_names_its_action_and_cause(void) {
    memory_waits = 0;
    for_each_case(SIMULATED, check_causes);
    EXPECT(memory_waits > 0);
}

static void check_sums(const struct report_pipe *p, struct report_times *times,
                       const struct weir_snapshot *s) {
    for (uint32_t w = 0; w < s->worker_count; w++) {
        const struct weir_worker_time *time = &s->report.workers[w];
        const struct weir_snapshot_action *first = &s->actions[s->workers[w].action_begin];
        double busy = 0.0, copy = 0.0, host = 0.0;
        /* the report begins with the step's first action, not where a worker was told to begin */
        if (s->first > first->waited) host = -(double)(s->first - first->waited);
        for (uint32_t a = s->workers[w].action_begin; a < s->workers[w].action_end; a++) {
            if (times->table->actions[a].kind >= WEIR_KIND_N) continue;
            busy += (double)(s->actions[a].end - s->actions[a].start);
            copy += (double)s->actions[a].copy;
            host += (double)s->actions[a].host;
        }
        CHECK_NEAR(time->busy, busy, 0.0);
        /* a worker that was woken after that is late itself, which no action's wait holds */
        if (first->waited <= s->first) {
            CHECK_NEAR(time->copy, copy, 0.0);
            CHECK_NEAR(time->host, host, 0.0);
        }
        CHECK_NEAR(time->busy + time->idle, s->report.makespan, 1e-6);
        CHECK_NEAR(time->dependency + time->copy + time->imbalance + time->host, time->idle, 1e-6);
    }
}

static void test_lost_times_add_up(void) {
    for_each_case(SIMULATED, check_sums);
    for_each_case(MEASURED, check_sums);
}

static void check_stages(const struct report_pipe *p, struct report_times *times,
                         const struct weir_snapshot *s) {
    for (uint32_t i = 0; i < s->stage_count; i++) {
        const struct weir_snapshot_stage *stage = &s->stages[i];
        double busy = 0.0, most = 0.0;
        uint32_t count = 0, below = 0;
        for (uint32_t a = 0; a < times->table->action_count; a++) {
            const struct weir_action *action = &times->table->actions[a];
            if (action->stage != i || action->kind >= WEIR_KIND_N) continue;
            busy += times->duration[a];
            if (action->kind != WEIR_KIND_B) continue;
            count++;
            below += times->duration[a] < stage->median[WEIR_KIND_B];
            most = fmax(most, times->duration[a]);
        }
        CHECK_NEAR(stage->busy, busy, 0.0);
        CHECK_EQ_UINT(stage->count[WEIR_KIND_B], count);
        CHECK(stage->median[WEIR_KIND_B] <= most && below <= count / 2);
        CHECK_EQ_UINT(stage->parameter_bytes, 4096 * (i + 1));
    }
}

static void test_stages_have_their_times(void) {
    for_each_case(SIMULATED, check_stages);
}

/* ---- what if ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double steady_makespan(const struct report_times *measured) {
    static struct report_times t;
    static double same[REPORT_ACTIONS_MOST];
    t = *measured;
    for (uint32_t a = 0; a < t.table->action_count; a++) {
        const struct weir_action *action = &t.table->actions[a];
        uint32_t count = 0;
        for (uint32_t b = 0; b < t.table->action_count; b++)
            if (t.table->actions[b].kind == action->kind &&
                t.table->actions[b].stage == action->stage)
                same[count++] = measured->duration[b];
        qsort(same, count, sizeof *same, compare_doubles);
        t.duration[a] = same[count / 2];
    }
    return report_times_simulate(&t);
}

static double equal_makespan(const struct report_times *measured) {
    static struct report_times t;
    double of_stage[REPORT_STAGES_MOST] = {0}, mean = 0.0;
    t = *measured;
    for (uint32_t a = 0; a < t.table->action_count; a++) {
        if (t.table->actions[a].kind >= WEIR_KIND_N) continue;
        of_stage[t.table->actions[a].stage] += t.duration[a];
        mean += t.duration[a] / t.table->stage_count;
    }
    for (uint32_t a = 0; a < t.table->action_count; a++)
        t.duration[a] *= mean / of_stage[t.table->actions[a].stage];
    return report_times_simulate(&t);
}

static double free_makespan(const struct report_times *measured, bool copies, bool host,
                            bool recompute) {
    static struct report_times t;
    t = *measured;
    if (copies) t.delay = 0.0;
    for (uint32_t a = 0; a < t.table->action_count; a++) {
        if (copies) t.copying[a] = 0.0;
        if (host) t.host[a] = 0.0;
        if (recompute && t.table->actions[a].kind == WEIR_KIND_R) t.duration[a] = 0.0;
    }
    return report_times_simulate(&t);
}

static double even_makespan(const struct report_times *measured) {
    double sum = 0.0;
    for (uint32_t a = 0; a < measured->table->action_count; a++)
        if (measured->table->actions[a].kind < WEIR_KIND_N) sum += measured->duration[a];
    return sum / measured->table->worker_count;
}

static void check_what_ifs(const struct report_pipe *p, struct report_times *times,
                           const struct weir_snapshot *s) {
    double near = 1e-9 * s->report.makespan;
    CHECK_NEAR(s->what_if[WEIR_WHAT_IF_MEASURED], s->report.makespan, 0.0);
    CHECK_NEAR(s->what_if[WEIR_WHAT_IF_MEASURED], report_times_simulate(times), 0.0);
    CHECK_NEAR(s->what_if[WEIR_WHAT_IF_EQUAL_STAGES], equal_makespan(times), near);
    CHECK_NEAR(s->what_if[WEIR_WHAT_IF_STEADY_TIMES], steady_makespan(times), near);
    CHECK_NEAR(s->what_if[WEIR_WHAT_IF_FREE_COPIES], free_makespan(times, true, false, false),
               near);
    CHECK_NEAR(s->what_if[WEIR_WHAT_IF_FREE_HOST], free_makespan(times, false, true, false), near);
    CHECK_NEAR(s->what_if[WEIR_WHAT_IF_FREE_RECOMPUTE], free_makespan(times, false, false, true),
               near);
    CHECK_NEAR(s->what_if[WEIR_WHAT_IF_NO_WAITING], even_makespan(times), near);
    if (p->options.copies) CHECK(s->what_if[WEIR_WHAT_IF_FREE_COPIES] < s->report.makespan);
}

static void test_what_ifs_are_those_of_a_simulation(void) {
    for_each_case(SIMULATED, check_what_ifs);
}

static void test_what_ifs_have_texts(void) {
    EXPECT_EQ_STR(weir_what_if_text(WEIR_WHAT_IF_EQUAL_STAGES), "with equal stages");
    EXPECT_EQ_STR(weir_what_if_text(WEIR_WHAT_IF_NO_WAITING), "without any waiting");
    EXPECT_EQ_STR(weir_cause_text(WEIR_CAUSE_NOTHING), "nothing");
    EXPECT_EQ_STR(weir_cause_text(WEIR_CAUSE_ALL_GRADIENTS), "every worker's gradients");
}

/* ---- memory ---- */

static uint64_t in_use(const struct weir_snapshot_worker *worker,
                       const struct weir_snapshot_memory *point) {
    return worker->lasting + point->activations + point->borders + point->portals +
           point->workspace;
}

static void check_memory(const struct report_pipe *p, struct report_times *times,
                         const struct weir_snapshot *s) {
    for (uint32_t w = 0; w < s->worker_count; w++) {
        const struct weir_snapshot_worker *worker = &s->workers[w];
        const struct weir_snapshot_memory *last = &worker->memory[worker->memory_count - 1];
        uint64_t peak = 0, peak_ns = 0;
        CHECK_EQ_UINT(worker->plan.total, p->pipe->plan.devices[w].total);
        CHECK_EQ_UINT(worker->lasting,
                      worker->plan.parameters + worker->plan.gradients + worker->plan.optimizer);
        CHECK_EQ_UINT(worker->memory[0].ns, 0);
        CHECK_EQ_UINT(in_use(worker, last), worker->lasting);
        for (uint32_t i = 0; i < worker->memory_count; i++) {
            const struct weir_snapshot_memory *point = &worker->memory[i];
            CHECK(i == 0 || point->ns > worker->memory[i - 1].ns);
            CHECK(in_use(worker, point) <= worker->plan.total);
            if (in_use(worker, point) <= peak) continue;
            peak = in_use(worker, point);
            peak_ns = point->ns;
        }
        CHECK_EQ_UINT(worker->peak, peak);
        CHECK_EQ_UINT(worker->peak_ns, peak_ns);
        CHECK(peak > worker->lasting);
        /* alone, nothing comes earlier or later than planned */
        if (s->worker_count == 1) CHECK_EQ_UINT(peak, worker->plan.total - worker->plan.padding);
    }
}

static bool runs(const struct weir_snapshot *s, int first_kind, uint32_t first_stage, int last_kind,
                 uint32_t last_stage, uint32_t micro_batch, uint64_t ns) {
    bool begun = false, over = false;
    for (uint32_t a = 0; a < s->action_count; a++) {
        const struct weir_snapshot_action *action = &s->actions[a];
        if (action->action.micro_batch != micro_batch) continue;
        if (action->action.kind == first_kind && action->action.stage == first_stage)
            begun = action->start <= ns;
        if (action->action.kind == last_kind && action->action.stage == last_stage)
            over = action->end <= ns;
    }
    return begun && !over;
}

/* Border tensors that are there: an output from its F to the next stage's B, the last stage's
 * during its F, a gradient from its B to the B of the stage before. */
static uint32_t count_borders(const struct weir_snapshot *s, uint32_t worker, uint64_t ns) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < s->micro_batch_count; i++) {
        for (uint32_t k = 0; k < s->stage_count; k++) {
            bool last = k + 1 == s->stage_count;
            int until = last ? WEIR_KIND_F : WEIR_KIND_B;
            if (s->stages[k].worker == worker)
                count += runs(s, WEIR_KIND_F, k, until, last ? k : k + 1, i, ns);
            if (k > 0 && s->stages[k].worker == worker)
                count += runs(s, WEIR_KIND_B, k, WEIR_KIND_B, k - 1, i, ns);
        }
    }
    return count;
}

static void check_borders(const struct report_pipe *p, struct report_times *times,
                          const struct weir_snapshot *s) {
    uint64_t bytes = (uint64_t)s->rows / s->micro_batch_count * 16 * sizeof(float);
    if (p->options.copies) return; /* a copy more for each reader */
    for (uint32_t w = 0; w < s->worker_count; w++)
        for (uint32_t i = 0; i < s->workers[w].memory_count; i++) {
            const struct weir_snapshot_memory *point = &s->workers[w].memory[i];
            CHECK_EQ_UINT(point->borders, bytes * count_borders(s, w, point->ns));
        }
}

static void test_borders_live_from_first_to_last_use(void) {
    for_each_case(MEASURED, check_borders);
    for_each_case(SIMULATED, check_borders);
}

static void test_memory_stays_within_the_plan(void) {
    for_each_case(MEASURED, check_memory);
}

static void test_memory_follows_the_actions(void) {
    struct report_options options = {
        .stages = 1, .workers = 1, .chunks = 2, .checkpoint = WEIR_CHECKPOINT_NEVER};
    static struct report_times times; /* F0 B0 F1 B1 N U, 6 rows each */
    struct report_pipe p;
    CHECK(report_pipe_new(&p, &options));
    CHECK_OK(report_pipe_step(&p, REPORT_ROWS, true));
    report_times_draw(&times, &p, 1000);
    report_times_simulate(&times);
    report_times_stamp(&times, &p, 1000);
    struct weir_snapshot *s = take(&p, 0);
    CHECK(s != NULL);
    const struct weir_snapshot_memory *m = s->workers[0].memory;
    uint64_t saved = 6016, forward = 1856, backward = 4224; /* rounded up to 64 */
    CHECK(s->workers[0].memory_count >= 5);
    EXPECT_EQ_UINT(m[0].activations, saved);
    EXPECT_EQ_UINT(m[0].workspace, forward);
    EXPECT_EQ_UINT(m[1].ns, (uint64_t)times.end[0]);
    EXPECT_EQ_UINT(m[1].activations, saved);
    EXPECT_EQ_UINT(m[1].workspace, times.host[1] > 0.0 ? 0 : backward);
    uint64_t end = (uint64_t)times.end[1];
    uint32_t i = 0;
    while (m[i].ns < end) i++;
    EXPECT_EQ_UINT(m[i].ns, end);
    EXPECT_EQ_UINT(m[i].activations, times.host[2] > 0.0 ? 0 : saved);
    EXPECT_EQ_UINT(m[i - 1].workspace, backward);
    weir_snapshot_destroy(s);
    report_pipe_destroy(&p);
}

WEIR_TEST_SUITE(snapshot, TEST(the_typical_step_is_the_median),
                TEST(steps_that_are_not_whole_are_left_out),
                TEST(a_step_that_the_ring_has_cut_is_left_out), TEST(a_pipe_in_use_is_refused),
                TEST(every_failing_allocation_is_reported), TEST(a_snapshot_outlives_its_pipe),
                TEST(actions_are_the_traces), TEST(a_wait_names_its_action_and_cause),
                TEST(lost_times_add_up), TEST(stages_have_their_times),
                TEST(what_ifs_are_those_of_a_simulation), TEST(what_ifs_have_texts),
                TEST(borders_live_from_first_to_last_use), TEST(memory_stays_within_the_plan),
                TEST(memory_follows_the_actions))
