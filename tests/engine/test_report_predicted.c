/* SPDX-License-Identifier: MIT */
/*
 * Goal: what snapshot and page call predicted is what the simulator says, fed with the medians of
 * other steps. Method: steps whose stamps are drawn; the medians are taken here from what was
 * drawn, the simulator is called here, and all numbers must be the same.
 */
#include "engine/html.h"
#include "engine/report_pipe.h"

#include "weir_predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 4, SHOWN = 2, DRAWS_MOST = 4000, CELLS = REPORT_STAGES_MOST * WEIR_KIND_COUNT };

/* Steps of one pipe, stamped, and step number SHOWN (from 1) taken apart. */
struct trial {
    struct report_pipe p;
    struct report_times times[STEPS];
    struct weir_snapshot *shown;
};

static bool trial_new(struct trial *trial, struct report_options options, uint32_t steps) {
    options.trace_actions = 2000;
    trial->shown = NULL;
    if (!report_pipe_new(&trial->p, &options)) return false;
    for (uint32_t i = 0; i < steps; i++) {
        struct report_times *times = &trial->times[i];
        if (!EXPECT_STATUS(report_pipe_step(&trial->p, REPORT_ROWS, true), WEIR_OK)) return false;
        report_times_draw(times, &trial->p, 10000);
        report_times_simulate(times);
        report_times_stamp(times, &trial->p, 50000000 * (uint64_t)(i + 1));
    }
    return EXPECT_STATUS(weir_snapshot_new(trial->p.pipe, steps < SHOWN ? steps : SHOWN,
                                           test_allocator(), &trial->shown),
                         WEIR_OK);
}

static void trial_clean_up(struct trial *trial) {
    weir_snapshot_destroy(trial->shown);
    report_pipe_destroy(&trial->p);
}

/* ---- the same from here ---- */

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of_others(const struct trial *trial, uint32_t stage, uint8_t kind) {
    static double all[STEPS * REPORT_ACTIONS_MOST];
    uint32_t count = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        const struct weir_table *table = trial->times[i].table;
        for (uint32_t a = 0; a < table->action_count && i + 1 != SHOWN; a++)
            if (table->actions[a].stage == stage && table->actions[a].kind == kind)
                all[count++] = trial->times[i].duration[a];
    }
    qsort(all, count, sizeof *all, compare_doubles);
    return count > 0 ? all[count / 2] * 1e-9 : 0.0;
}

/* order_begin and order_from: the waits of CAUSE_MEMORY. */
static void fill_orders(const struct trial *trial, uint32_t *begin, uint32_t *from) {
    const struct weir__deps *orders = &trial->times[0].plan->orders;
    uint32_t count = 0;
    for (uint32_t a = 0; a < orders->action_count; a++) {
        begin[a] = count;
        for (uint32_t e = orders->begin[a]; e < orders->begin[a + 1]; e++)
            if (orders->edges[e].cause == WEIR__CAUSE_MEMORY) from[count++] = orders->edges[e].from;
    }
    begin[orders->action_count] = count;
}

static void check_prediction(const struct trial *trial, const struct weir_prediction *expected) {
    const struct weir_snapshot_prediction *got = &trial->shown->predicted;
    double near = 1e-9 * got->makespan;
    CHECK_EQ_UINT(got->step_count, STEPS - 1);
    CHECK_NEAR(got->makespan, expected->step * 1e9, near);
    CHECK_NEAR(got->bubble, expected->bubble, 1e-9);
    for (uint32_t w = 0; w < expected->worker_count; w++) {
        const struct weir_predicted_worker *worker = &expected->workers[w];
        CHECK_NEAR(got->workers[w].busy, worker->busy * 1e9, near);
        CHECK_NEAR(got->workers[w].idle, worker->idle * 1e9, near);
        CHECK_NEAR(got->workers[w].dependency, worker->dependency * 1e9, near);
        CHECK_NEAR(got->workers[w].copy, worker->copy * 1e9, near);
        CHECK_NEAR(got->workers[w].imbalance, worker->imbalance * 1e9, near);
        CHECK_NEAR(got->workers[w].host, 0.0, near);
        CHECK_NEAR(got->workers[w].steady, (worker->window - worker->busy) / worker->window, 1e-9);
    }
}

/* Adds to *ordered whether what memory orders makes the step longer. */
static void check_against_simulator(const struct trial *trial, uint32_t *ordered) {
    static uint32_t begin[REPORT_ACTIONS_MOST + 1], from[8 * REPORT_ACTIONS_MOST];
    double seconds[CELLS] = {0.0};
    struct weir_simulate_options options = WEIR_SIMULATE_OPTIONS_INIT;
    struct weir_simulator *simulator;
    struct weir_prediction prediction;
    const struct report_options *how = &trial->p.options;
    CHECK(trial->times[0].plan->orders.edge_count <= WEIR__COUNT_OF(from));
    for (uint32_t s = 0; s < how->stages; s++)
        for (uint8_t k = 0; k < WEIR_KIND_N; k++)
            seconds[s * WEIR_KIND_COUNT + k] = median_of_others(trial, s, k);
    fill_orders(trial, begin, from);
    options.table = trial->times[0].table;
    options.stage_seconds = seconds;
    options.link.latency = how->copies ? (double)how->delay * 1e-9 : 0.0;
    options.order_begin = begin;
    options.order_from = from;
    CHECK_OK(weir_simulator_new(test_allocator(), &simulator));
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    check_prediction(trial, &prediction);
    double step = prediction.step;
    options.order_begin = NULL;
    CHECK_OK(weir_simulate(simulator, &options, NULL, &prediction));
    *ordered += prediction.step < step;
    weir_simulator_destroy(simulator);
}

static void test_predictions_are_the_simulators(void) {
    static const struct report_options cases[] = {
        {2, 2, 4, "1f1b", WEIR_CHECKPOINT_EXCEPT_LAST, false, 0, NULL, 0},
        {4, 4, 6, "gpipe", WEIR_CHECKPOINT_ALWAYS, false, 0, NULL, 0},
        {4, 2, 12, "gpipe", WEIR_CHECKPOINT_ALWAYS, false, 0, NULL, 0},
        {3, 3, 6, "1f1b", WEIR_CHECKPOINT_ALWAYS, true, 900, NULL, 0},
        {1, 1, 3, "gpipe", WEIR_CHECKPOINT_NEVER, false, 0, NULL, 0}};
    uint32_t ordered = 0; /* one of some thirty draws of four stages on two workers is */
    for (size_t i = 0; i < DRAWS_MOST && !test_has_failed(); i++) {
        if (i >= WEIR__COUNT_OF(cases) && ordered > 0) break;
        static struct trial trial;
        CHECK(trial_new(&trial, cases[i % WEIR__COUNT_OF(cases)], STEPS));
        check_against_simulator(&trial, &ordered);
        trial_clean_up(&trial);
    }
    EXPECT(ordered > 0);
}

static void test_a_steps_own_times_are_not_in_its_prediction(void) {
    static struct trial trial;
    const struct report_options options = {.stages = 2, .workers = 2, .chunks = 4};
    CHECK(trial_new(&trial, options, STEPS));
    double predicted = trial.shown->predicted.makespan;
    weir_snapshot_destroy(trial.shown);
    struct report_times *own = &trial.times[SHOWN - 1];
    for (uint32_t w = 0; w < 2; w++) { /* the step runs a thousand times slower */
        uint32_t row = own->table->lines[w + 1] - own->table->lines[w];
        struct weir__worker *worker = &trial.p.pipe->workers[w];
        for (uint32_t i = 0; i < row; i++) {
            struct weir_trace_event *event = &worker->events[(SHOWN - 1) * row + i];
            event->waited = event->start = 50000000 * SHOWN + i * 10000000;
            event->end = event->start + 10000000;
        }
    }
    CHECK_OK(weir_snapshot_new(trial.p.pipe, SHOWN, test_allocator(), &trial.shown));
    EXPECT(trial.shown->report.makespan > 10 * predicted);
    EXPECT_NEAR(trial.shown->predicted.makespan, predicted, 0.0);
    trial_clean_up(&trial);
}

static void test_nothing_is_predicted_from_one_step(void) {
    static struct trial trial;
    const struct report_options options = {.stages = 2, .workers = 2, .chunks = 4};
    CHECK(trial_new(&trial, options, 1));
    EXPECT_EQ_UINT(trial.shown->predicted.step_count, 0);
    EXPECT(trial.shown->predicted.workers == NULL);
    EXPECT_NEAR(trial.shown->predicted.makespan, 0.0, 0.0);
    trial_clean_up(&trial);
}

/* ---- the page ---- */

static char *write_page(const struct trial *trial, double planned_step) {
    struct weir_report_options options = WEIR_REPORT_OPTIONS_INIT;
    struct report_sink sink = report_sink_new();
    options.snapshot = trial->shown;
    options.planned_step = planned_step;
    EXPECT_STATUS(weir_report_html(&options, report_sink_write, &sink), WEIR_OK);
    char *page = strdup(sink.text);
    report_sink_destroy(&sink);
    return page;
}

static double number(const json_t *object, const char *key) {
    return json_number_value(json_object_get(object, key));
}

static void check_data(const json_t *data, const struct weir_snapshot_prediction *expected) {
    const json_t *predicted = json_object_get(data, "predicted");
    double near = 1e-8 * expected->makespan;
    EXPECT_EQ_INT(json_integer_value(json_object_get(predicted, "steps")), expected->step_count);
    EXPECT_NEAR(number(predicted, "makespan"), expected->makespan, near);
    EXPECT_NEAR(number(predicted, "bubble"), expected->bubble, 1e-8);
    CHECK_EQ_UINT(json_array_size(json_object_get(predicted, "workers")), 2);
    for (uint32_t w = 0; w < 2; w++) {
        const json_t *worker = json_array_get(json_object_get(predicted, "workers"), w);
        EXPECT_NEAR(number(worker, "busy"), expected->workers[w].busy, near);
        EXPECT_NEAR(number(worker, "idle"), expected->workers[w].idle, near);
        EXPECT_NEAR(number(worker, "dependency"), expected->workers[w].dependency, near);
        EXPECT_NEAR(number(worker, "imbalance"), expected->workers[w].imbalance, near);
    }
}

/* Durations that make all numbers on the page round. */
static void make_round(struct trial *trial) {
    const struct report_options options = {
        .stages = 2, .workers = 2, .chunks = 2, .checkpoint = WEIR_CHECKPOINT_NEVER};
    CHECK(trial_new(trial, options, STEPS));
    weir_snapshot_destroy(trial->shown);
    trial->shown = NULL;
    for (uint32_t i = 0; i < STEPS; i++) {
        struct report_times *times = &trial->times[i];
        double unit = i + 1 == SHOWN ? 1.25e6 : 1e6; /* the shown one is slower */
        for (uint32_t w = 0; w < 2; w++) {
            uint32_t row = times->table->lines[w + 1] - times->table->lines[w];
            for (uint32_t k = 0; k < row; k++) {
                struct weir_trace_event *event = &trial->p.pipe->workers[w].events[i * row + k];
                event->waited = event->start = 50000000 * (uint64_t)(i + 1) + k * (uint64_t)unit;
                event->end = event->start + (uint64_t)unit;
            }
        }
    }
    CHECK_OK(weir_snapshot_new(trial->p.pipe, SHOWN, test_allocator(), &trial->shown));
}

static void test_the_page_sets_predicted_beside_measured(void) {
    static struct trial trial;
    make_round(&trial);
    CHECK_HELPERS();
    /* F F B B and F B F B of 1 ms each: the second worker begins 1 ms late, the first waits for
     * its second B: 6 ms. Measured: 4 of 1.25 ms on both. */
    EXPECT_NEAR(trial.shown->predicted.makespan, 6e6, 1.0);
    EXPECT_NEAR(trial.shown->report.makespan, 5e6, 0.0);
    char *page = write_page(&trial, 4.5e6);
    json_t *data = html_data(page);
    check_data(data, &trial.shown->predicted);
    EXPECT_NEAR(number(data, "planned_step"), 4.5e6, 0.0);
    EXPECT_CONTAINS(page, "<h2>Predicted and measured <small>ms</small></h2>");
    EXPECT_CONTAINS(page, "the step, by the plan</th><td>4.500</td><td>5.000</td>"
                          "<td>\xe2\x88\x92"
                          "10.0%</td>");
    EXPECT_CONTAINS(page, "row\">the step</th><td>6.000</td><td>5.000</td><td>+20.0%</td>");
    EXPECT_CONTAINS(page, "worker 0 busy</th><td>4.000</td><td>5.000</td><td>\xe2\x88\x92"
                          "20.0%</td>");
    EXPECT_CONTAINS(page, "worker 1 idle</th><td>2.000</td><td>0.000</td><td></td>");
    EXPECT_CONTAINS(page, "<dt>predicted</dt><dd>6.000 ms <small>+20.0%</small></dd>");
    EXPECT_CONTAINS(page, "over 3 other steps of this run");
    json_decref(data);
    free(page);
    trial_clean_up(&trial);
}

static void test_the_page_is_silent_where_nothing_is_predicted(void) {
    static struct trial trial;
    const struct report_options options = {.stages = 2, .workers = 2, .chunks = 4};
    CHECK(trial_new(&trial, options, 1));
    char *page = write_page(&trial, 0.0);
    json_t *data = html_data(page);
    EXPECT(json_is_null(json_object_get(data, "predicted")));
    EXPECT(strstr(page, "id=\"predicted\"") == NULL);
    EXPECT(strstr(page, "<dt>predicted") == NULL);
    json_decref(data);
    free(page);
    page = write_page(&trial, 5e6);
    EXPECT_CONTAINS(page, "the step, by the plan</th><td>");
    EXPECT(strstr(page, "row\">the step</th>") == NULL);
    free(page);
    trial_clean_up(&trial);
}

WEIR_TEST_SUITE(report_predicted, TEST(predictions_are_the_simulators),
                TEST(a_steps_own_times_are_not_in_its_prediction),
                TEST(nothing_is_predicted_from_one_step),
                TEST(the_page_sets_predicted_beside_measured),
                TEST(the_page_is_silent_where_nothing_is_predicted))
