/* SPDX-License-Identifier: MIT */
/*
 * Goal: what a step may be asked for besides one update of one full mini-batch: accumulation, short
 * batches, clipping, gradients that are not finite, no update, few workers; and plans. Method:
 * beside the reference, bit for bit.
 */
#include "engine/engine_stages.h"

#include <math.h>
#include <string.h>

static struct engine_model model;
static struct engine_trial trial;

static struct weir_pipe_options chain(uint32_t stages) {
    engine_model_init(&model, stages);
    model.jitter = 4;
    if (stages > 1) {
        engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
        engine_skip(&model, stages - 1, WEIR_SKIP_POP, "a");
    }
    return engine_options(&model);
}

/* ---- accumulation ---- */

static void accumulate(uint32_t count, double loss_weight) {
    trial.base.loss_weight = loss_weight;
    for (uint32_t k = 0; k < count && !test_has_failed(); k++) {
        trial.base.accumulate_first = k == 0;
        trial.base.accumulate_last = k + 1 == count;
        engine_trial_step(&trial);
        EXPECT(trial.result.updated == (k + 1 == count));
    }
}

static void test_gradients_accumulate_over_mini_batches(void) {
    struct weir_pipe_options options = chain(3);
    options.schedule = "gpipe";
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    accumulate(3, 24.0);
    accumulate(1, 0.0); /* the next one starts from zero */
    accumulate(2, 16.0);
    engine_trial_close(&trial);
}

/* Two mini-batches of 4 rows with the weight of both give the gradient of one of 8, within the
 * rounding of another order of addition. */
static void test_accumulated_gradients_are_the_large_batchs(void) {
    double whole[5];
    struct weir_attachment at;
    struct weir_pipe_options options = chain(2);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    trial.base.no_update = true;
    engine_trial_step(&trial);
    double loss = trial.result.loss;
    CHECK_OK(weir_pipe_attachment(trial.pipe, 0, &at));
    memcpy(whole, at.gradients, sizeof whole);
    CHECK_OK(weir_pipe_prepare(trial.pipe, 4, NULL));
    const float *x = trial.batch.inputs[0];
    for (int half = 0; half < 2; half++) {
        struct weir_step step = WEIR_STEP_INIT;
        const void *inputs[] = {x + half * 4 * 4};
        step.rows = 4, step.inputs = inputs, step.loss_weight = 8.0, step.no_update = true;
        step.accumulate_first = half == 0, step.accumulate_last = half == 1;
        CHECK_OK(weir_pipe_step(trial.pipe, &step, &trial.result));
        loss -= trial.result.loss;
    }
    EXPECT_NEAR(loss, 0.0, 8 * 0x1p-52);
    for (int i = 0; i < 5; i++) EXPECT_NEAR(((double *)at.gradients)[i], whole[i], 8 * 4 * 0x1p-52);
    engine_trial_close(&trial);
}

/* ---- other row counts ---- */

/* 9 rows in 8 chunks are 5 micro-batches, 8 rows are 8: fewer rows may need more slots. */
static void test_short_batches_run(void) {
    static const uint32_t chunks[] = {4, 8, 5};
    for (int k = 0; k < 12; k++) {
        struct weir_pipe_options options = chain(3);
        options.rows = k % 3 == 1 ? 9 : 12;
        options.chunks = chunks[k % 3];
        options.schedule = k % 2 == 0 ? "gpipe" : "1f1b";
        options.checkpoint = k % 4 < 2 ? WEIR_CHECKPOINT_NEVER : WEIR_CHECKPOINT_ALWAYS;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        for (int64_t rows = options.rows - 1; rows > 0 && !test_has_failed(); rows--) {
            EXPECT_STATUS(weir_pipe_prepare(trial.pipe, rows, NULL), WEIR_OK);
            engine_trial_rows(&trial, rows, false);
            engine_trial_step(&trial);
            engine_trial_rows(&trial, rows, true);
            EXPECT_EQ_UINT(weir_pipe_table(trial.pipe, rows)->micro_batch_count,
                           engine_chunk_count(rows, options.chunks));
        }
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

/* Fewer rows may make more micro-batches, or a longer last one. */
static void test_a_ragged_row_count_leaves_room_for_an_even_one(void) {
    static const struct {
        int64_t rows;
        uint32_t chunks;
        int64_t even;
    } counts[] = {{13, 4, 12}, {17, 9, 16}, {9, 8, 8}, {11, 4, 9}, {40, 32, 32}};
    for (int k = 0; k < 30; k++) {
        struct weir_pipe_options options = chain(k % 2 == 0 ? 3 : 1);
        options.rows = counts[k / 6].rows, options.chunks = counts[k / 6].chunks;
        options.schedule = k % 2 == 0 ? "gpipe" : "1f1b";
        options.checkpoint = (enum weir_checkpoint)(WEIR_CHECKPOINT_ALWAYS + k % 3);
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        int status = weir_pipe_prepare(trial.pipe, counts[k / 6].even, NULL);
        if (EXPECT_STATUS(status, WEIR_OK)) engine_trial_rows(&trial, counts[k / 6].even, false);
        engine_trial_step(&trial);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

/* What a schedule, or a table of one number of micro-batches, refuses to train is still judged. */
static void test_any_short_batch_can_be_inferred(void) {
    static const char table[] = "0F0,0F1,0F2,0F3,0F4,0F5,0B0,0B1,0B2,0B3,0B4,0B5\n";
    static const struct {
        const char *schedule;
        int64_t refused, taken; /* rows: one per micro-batch */
        int status;
    } cases[] = {{"interleaved", 5, 4, WEIR_ERR_ARGUMENT},
                 {"dualpipe-v", 3, 5, WEIR_ERR_ARGUMENT},
                 {"1f1b", 5, 6, WEIR_ERR_CONFIG}};
    for (int k = 0; k < 3; k++) {
        struct weir_pipe_options options = chain(k < 2 ? 4 : 1);
        options.rows = options.chunks = 6, options.schedule = cases[k].schedule;
        if (k == 2) options.table_csv = table, options.table_csv_bytes = strlen(table);
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        int64_t refused = cases[k].refused, taken = cases[k].taken;
        EXPECT_STATUS(weir_pipe_prepare(trial.pipe, refused, NULL), cases[k].status);
        EXPECT_STATUS(weir_pipe_prepare_infer(trial.pipe, refused, NULL), WEIR_OK);
        EXPECT(weir_pipe_table(trial.pipe, refused) == NULL);
        engine_trial_rows(&trial, refused, true);
        struct weir_step step = engine_step(&trial.batch);
        step.rows = refused;
        EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_ROWS);
        EXPECT_STATUS(weir_pipe_prepare_infer(trial.pipe, taken, NULL), WEIR_OK);
        engine_trial_rows(&trial, taken, true);
        EXPECT_STATUS(weir_pipe_prepare(trial.pipe, taken, NULL), WEIR_OK); /* to train as well */
        engine_trial_rows(&trial, taken, false);
        engine_trial_rows(&trial, taken, true);
        engine_trial_step(&trial);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

static void test_an_unprepared_row_count_is_refused(void) {
    struct weir_pipe_options options = chain(2);
    struct weir_faults faults = {.allocator = test_allocator()};
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    struct weir_step step = engine_step(&trial.batch);
    step.rows = 5;
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_ROWS);
    EXPECT_STATUS(trial.result.error.status, WEIR_ERR_ROWS);
    EXPECT_CONTAINS(trial.result.error.message, "weir_pipe_prepare(pipe, 5)");
    EXPECT_STATUS(weir_pipe_infer(trial.pipe, &step, &trial.result), WEIR_ERR_ROWS);
    EXPECT_CONTAINS(trial.result.error.message, "weir_pipe_prepare_infer(pipe, 5)");
    EXPECT_STATUS(weir_pipe_prepare_infer(trial.pipe, 9, NULL), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_pipe_prepare_infer(NULL, 1, NULL), WEIR_ERR_ARGUMENT);
    EXPECT(weir_pipe_table(trial.pipe, 5) == NULL);
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 9, &faults), WEIR_ERR_ARGUMENT);
    EXPECT_CONTAINS(faults.kept > 0 ? faults.lines[0] : "", "built for 1 to 8");
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 0, NULL), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_pipe_prepare(NULL, 1, NULL), WEIR_ERR_ARGUMENT);
    EXPECT_EQ_UINT(atomic_load(&model.call_count), 0);
    uint64_t acquired = test_allocator_count();
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 8, NULL), WEIR_OK); /* is there already */
    EXPECT_EQ_UINT(test_allocator_count(), acquired);
    engine_trial_step(&trial);
    weir_faults_clean_up(&faults);
    engine_trial_close(&trial);
}

static void test_a_step_that_is_no_step_is_refused(void) {
    struct weir_pipe_options options = chain(2);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    struct weir_step step = engine_step(&trial.batch);
    step.size--;
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, NULL, &trial.result), WEIR_ERR_ARGUMENT);
    EXPECT_STATUS(weir_pipe_step(NULL, &step, &trial.result), WEIR_ERR_ARGUMENT);
    step = engine_step(&trial.batch);
    step.inputs = NULL;
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_ARGUMENT);
    EXPECT_CONTAINS(trial.result.error.message, "input 0 (x) is NULL");
    static const double weights[3] = {-1.0, NAN, INFINITY};
    for (size_t i = 0; i < 3; i++) {
        step = engine_step(&trial.batch);
        step.loss_weight = weights[i];
        EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_ARGUMENT);
        EXPECT_CONTAINS(trial.result.error.message, "loss_weight is ");
    }
    step = engine_step(&trial.batch);
    step.outputs = NULL, step.input_grads = NULL;
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_OK);
    engine_expect_clean(&model);
    engine_trial_close(&trial);
}

struct expected_task {
    const struct weir_step *step;
    bool late;
    uint32_t micro_batches;
    _Atomic uint32_t calls, wrong;
};

static int compare_task(void *context, const struct weir_task *task) {
    struct expected_task *expected = context;
    const struct weir_step *step = expected->step;
    bool same = task->mini_batch == step->mini_batch && task->update == step->update &&
                task->rows_total == step->rows && task->user == step->user &&
                task->loss_weight == step->loss_weight && task->stream != NULL &&
                task->recompute_late == expected->late && task->error != NULL &&
                task->micro_batch_count == expected->micro_batches &&
                (task->gradient_scale == 1.0 || task->phase == WEIR_UPDATE);
    expected->wrong += !same;
    expected->calls++;
    return 0;
}

static void test_every_task_tells_of_its_step(void) {
    for (int late = 0; late < 2; late++) {
        struct expected_task expected = {.late = late != 0};
        struct weir_pipe_options options = chain(2);
        options.recompute_late = expected.late, options.clip_norm = 1e-3;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        CHECK_OK(weir_pipe_prepare(trial.pipe, 6, NULL));
        struct weir_step step = engine_step(&trial.batch);
        step.mini_batch = (UINT64_C(1) << 40) + 3, step.update = (UINT64_C(1) << 50) + 5;
        step.loss_weight = 0.75, step.user = &expected;
        expected.step = &step;
        model.hook = compare_task, model.hook_context = &expected;
        for (step.rows = 8; step.rows >= 6; step.rows -= 2) {
            expected.micro_batches = engine_chunk_count(step.rows, 4);
            EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_OK);
            EXPECT_STATUS(weir_pipe_infer(trial.pipe, &step, &trial.result), WEIR_OK);
        }
        EXPECT(expected.calls > 0 && expected.wrong == 0);
        engine_trial_close(&trial);
    }
}

/* ---- norm, clipping, no update ---- */

static void test_the_norm_is_clipped_as_pytorch_does(void) {
    struct weir_pipe_options options = chain(3);
    options.clip_norm = 1e-3;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    EXPECT(trial.result.gradient_norm > 1e-3); /* before clipping */
    const double *m = trial.reference.optimizer[1], *g = trial.reference.gradients[1];
    EXPECT(m[0] != 0.0 && m[0] == 1e-3 / (trial.result.gradient_norm + 1e-6) * g[0]);
    engine_trial_step(&trial);
    engine_trial_close(&trial);
    options.clip_norm = 1e3; /* larger than any gradient here: as if there were none */
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    EXPECT(trial.reference.optimizer[1][0] == trial.reference.gradients[1][0]);
    engine_trial_close(&trial);
    options.clip_norm = -1.0;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "clip_norm"));
    options.clip_norm = NAN;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "clip_norm"));
}

static void test_without_update_gradients_stay_to_be_read(void) {
    struct weir_pipe_options options = chain(2);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    trial.base.no_update = true;
    engine_trial_step(&trial);
    EXPECT(!trial.result.updated && trial.result.gradient_norm > 0.0);
    EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_UPDATE), 0);
    EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_NORM), 2);
    trial.base.no_update = false;
    engine_trial_step(&trial);
    EXPECT(trial.result.updated);
    engine_trial_close(&trial);
}

static void test_stages_without_norm_give_none(void) {
    struct weir_pipe_options options = chain(2);
    model.stages[0].fixed = model.stages[1].fixed = true;
    options = engine_options(&model);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    EXPECT(isnan(trial.result.gradient_norm) && trial.result.updated);
    EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_NORM), 0);
    engine_trial_close(&trial);
    options.clip_norm = 1.0; /* which nobody would do */
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "no stage has a norm callback"));
}

/* A step on inputs that make the gradient infinite; parameters must not change. */
static int step_to_infinity(void) {
    float *x = trial.batch.inputs[0], kept = x[9];
    struct weir_step step = engine_step(&trial.batch);
    x[9] = NAN;
    int status = weir_pipe_step(trial.pipe, &step, &trial.result);
    x[9] = kept;
    EXPECT(!isfinite(trial.result.gradient_norm) && !trial.result.updated);
    EXPECT_EQ_UINT(engine_calls_of(&model, WEIR_UPDATE), 0);
    for (uint32_t s = 0; s < model.stage_count; s++) {
        struct weir_attachment at;
        EXPECT_STATUS(weir_pipe_attachment(trial.pipe, s, &at), WEIR_OK);
        EXPECT_EQ_BYTES(at.parameters, trial.reference.parameters[s], 5 * sizeof(double));
        EXPECT_EQ_BYTES(at.optimizer, trial.reference.optimizer[s], 5 * sizeof(double));
    }
    return status;
}

static void test_a_gradient_that_is_not_finite_stops_or_skips(void) {
    for (int skip = 0; skip < 2; skip++) {
        struct weir_pipe_options options = chain(3);
        options.skip_nonfinite = skip != 0;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        int status = step_to_infinity();
        EXPECT_STATUS(status, skip ? WEIR_OK : WEIR_ERR_NONFINITE);
        EXPECT_STATUS(trial.result.error.status, status);
        if (!skip) EXPECT_CONTAINS(trial.result.error.message, "norm is nan");
        EXPECT_EQ_INT(trial.result.error.stage, -1);
        engine_trial_step(&trial); /* starts its gradients from zero */
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

/* ---- several stages on a worker ---- */

static void test_fewer_workers_than_stages_give_the_same_bits(void) {
    for (uint32_t stages = 2; stages <= 5; stages++) {
        for (uint32_t workers = 1; workers < stages; workers++) {
            for (int k = 0; k < 2; k++) {
                struct weir_pipe_options options = chain(stages);
                options.workers = workers, options.schedule = k == 0 ? "gpipe" : "1f1b";
                CHECK(engine_trial_open(&trial, &model, &options, NULL));
                engine_trial_step(&trial);
                engine_trial_infer(&trial);
                EXPECT_EQ_UINT(weir_pipe_table(trial.pipe, 8)->worker_count, workers);
                for (uint32_t s = 0; s < stages; s++)
                    EXPECT_EQ_INT(model.stages[s].thread, model.stages[s % workers].thread);
                engine_trial_close(&trial);
                CHECK_HELPERS();
            }
        }
    }
}

static void test_more_workers_than_stages_are_refused(void) {
    struct weir_pipe_options options = chain(2);
    options.workers = 3;
    CHECK(engine_expect_refused(&options, WEIR_ERR_ARGUMENT, "3 workers for 2 stages"));
    options.workers = 0, options.schedule = "2f2b";
    CHECK(engine_expect_refused(&options, WEIR_ERR_ARGUMENT, "choose one of"));
}

static const char *const early_update = "0F0,0B0,0U\n1F0,1U,1B0\n";

static void test_a_table_that_cannot_run_is_refused(void) {
    struct weir_pipe_options options = chain(2);
    options.rows = options.chunks = 1;
    options.table_csv = early_update, options.table_csv_bytes = strlen(early_update);
    CHECK(engine_expect_refused(&options, WEIR_ERR_SCHEDULE, "1B0 stands behind 1U"));
    options.table_csv = "0B0,0F0\n1F0,1B0\n", options.table_csv_bytes = 16;
    CHECK(engine_expect_refused(&options, WEIR_ERR_SCHEDULE, "0B0"));
    options.table_csv = "0F0\n1F0,1B0\n", options.table_csv_bytes = 12;
    CHECK(engine_expect_refused(&options, WEIR_ERR_SCHEDULE, "0"));
    options.rows = options.chunks = 2; /* a table for other micro-batches */
    options.table_csv = "0F0,0B0\n1F0,1B0\n", options.table_csv_bytes = 16;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "micro-batch"));
    EXPECT_EQ_UINT(atomic_load(&model.attached), 0);
}

/* ---- plans ---- */

static void expect_plans(const struct weir_plan *a, const struct weir_plan *b) {
    CHECK_EQ_UINT(a->device_count, b->device_count);
    for (uint32_t d = 0; d < a->device_count; d++) {
        const struct weir_device_plan *p = &a->devices[d];
        EXPECT_EQ_BYTES(p, &b->devices[d], sizeof *p);
        EXPECT_EQ_UINT(p->total, p->parameters + p->gradients + p->optimizer + p->activations +
                                     p->borders + p->portals + p->workspace + p->padding);
        EXPECT(p->parameters >= 5 * sizeof(double) && p->borders > 0);
    }
}

static void test_a_plan_is_the_pipes_to_the_byte(void) {
    for (int k = 0; k < 12; k++) {
        struct weir_plan *plan;
        struct weir_pipe_options options = chain(3);
        options.schedule = k % 2 == 0 ? "gpipe" : "1f1b";
        options.checkpoint = (enum weir_checkpoint)(1 + k / 4);
        options.link = k / 2 % 2 == 0 ? WEIR_LINK_POINTER : WEIR_LINK_COPY;
        CHECK_OK(weir_plan_new(&options, NULL, &plan));
        EXPECT_EQ_UINT(atomic_load(&model.attached), 0);
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        expect_plans(plan, weir_pipe_plan(trial.pipe));
        weir_plan_destroy(plan);
        engine_trial_close(&trial);
    }
    weir_plan_destroy(NULL);
}

static void test_too_little_memory_is_refused_before_any_is_there(void) {
    struct weir_plan *plan = NULL;
    struct weir_pipe_options options = chain(3);
    CHECK_OK(weir_plan_new(&options, NULL, &plan));
    uint64_t largest = 0;
    for (uint32_t d = 0; d < plan->device_count; d++)
        if (plan->devices[d].total > largest) largest = plan->devices[d].total;
    weir_plan_destroy(plan);
    options.memory_limit = largest - 1;
    CHECK(engine_expect_refused(&options, WEIR_ERR_MEMORY_LIMIT, "1 more than the limit"));
    EXPECT_STATUS(weir_plan_new(&options, NULL, &plan), WEIR_ERR_MEMORY_LIMIT);
    EXPECT_EQ_UINT(atomic_load(&model.attached), 0);
    options.memory_limit = 1; /* every worker that lacks memory is named */
    CHECK(engine_expect_refused(&options, WEIR_ERR_MEMORY_LIMIT, "worker 0 needs"));
    CHECK(engine_expect_refused(&options, WEIR_ERR_MEMORY_LIMIT, "worker 2 needs"));
    options.memory_limit = largest;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

/* ---- reports ---- */

static void expect_report(struct weir_step_report *report) {
    CHECK_OK(weir_pipe_report(trial.pipe, report));
    EXPECT(report->makespan > 0.0 && report->bubble >= 0.0 && report->bubble < 1.0);
    EXPECT_EQ_UINT(report->worker_count, 3);
    for (uint32_t w = 0; w < 3; w++) {
        const struct weir_worker_time *time = &report->workers[w];
        double lost = time->dependency + time->copy + time->imbalance + time->host;
        EXPECT_NEAR(time->busy + time->idle, report->makespan, 1e-9 * report->makespan);
        EXPECT_NEAR(lost, time->idle, 1e-9 * report->makespan);
        EXPECT(time->busy > 0.0 && time->copy >= 0.0 && time->host >= 0.0);
    }
}

static void test_a_report_is_of_the_last_training_step(void) {
    struct weir_step_report report, again;
    struct weir_pipe_options options = chain(3);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    EXPECT_STATUS(weir_pipe_report(trial.pipe, &report), WEIR_ERR_NOT_FOUND);
    engine_trial_step(&trial);
    expect_report(&report);
    double makespan = report.makespan, busy = report.workers[1].busy;
    engine_trial_infer(&trial); /* is none */
    expect_report(&again);
    EXPECT(makespan == again.makespan && busy == again.workers[1].busy);
    for (int k = 0; k < 40; k++) engine_trial_infer(&trial); /* its events are gone by now */
    EXPECT_STATUS(weir_pipe_report(trial.pipe, &again), WEIR_ERR_NOT_FOUND);
    engine_trial_step(&trial);
    expect_report(&report);
    engine_trial_close(&trial);
}

WEIR_TEST_SUITE(pipe_step, TEST(gradients_accumulate_over_mini_batches),
                TEST(accumulated_gradients_are_the_large_batchs), TEST(short_batches_run),
                TEST(a_ragged_row_count_leaves_room_for_an_even_one),

                TEST(any_short_batch_can_be_inferred), TEST(an_unprepared_row_count_is_refused),
                TEST(a_step_that_is_no_step_is_refused), TEST(every_task_tells_of_its_step),
                TEST(the_norm_is_clipped_as_pytorch_does),
                TEST(without_update_gradients_stay_to_be_read), TEST(stages_without_norm_give_none),
                TEST(a_gradient_that_is_not_finite_stops_or_skips),
                TEST(fewer_workers_than_stages_give_the_same_bits),
                TEST(more_workers_than_stages_are_refused),
                TEST(a_table_that_cannot_run_is_refused), TEST(a_plan_is_the_pipes_to_the_byte),
                TEST(too_little_memory_is_refused_before_any_is_there),
                TEST(a_report_is_of_the_last_training_step))
