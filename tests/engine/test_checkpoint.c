/* SPDX-License-Identifier: MIT */
/*
 * Goal: recomputation comes before the gradient does, knows what it is, and works on inputs that
 * nobody has changed. Method: the order of the callbacks; a trace with a slowed copy; stages that
 * write to what they may only read.
 */
#include "engine/engine_stages.h"

#include <string.h>
#include <time.h>

static struct engine_model model;
static struct engine_trial trial;
enum { EVENTS_MAX = 256, DELAY_NS = 100000000 };

/* ---- order ---- */

static void expect_serial_order(const char *schedule) {
    static const struct {
        enum weir_phase phase;
        uint32_t stage;
    } order[] = {{WEIR_FORWARD_CHECKPOINT, 0}, {WEIR_FORWARD_CHECKPOINT, 1}, {WEIR_RECOMPUTE, 1},
                 {WEIR_BACKWARD, 1},           {WEIR_RECOMPUTE, 0},          {WEIR_BACKWARD, 0}};
    engine_model_init(&model, 2);
    struct weir_pipe_options options = engine_options(&model);
    options.schedule = schedule, options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    options.chunks = options.workers = 1;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    for (uint32_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        EXPECT_EQ_INT(model.calls[i].phase, order[i].phase);
        EXPECT_EQ_UINT(model.calls[i].stage, order[i].stage);
    }
    engine_trial_close(&trial);
}

// CK-1
static void test_two_segments_on_one_worker_run_in_serial_order(void) {
    expect_serial_order("gpipe");
    expect_serial_order("1f1b");
}

// CK-4
static void test_a_task_can_tell_checkpoint_and_recompute(void) {
    engine_model_init(&model, 2);
    struct weir_pipe_options options = engine_options(&model);
    options.checkpoint = WEIR_CHECKPOINT_EXCEPT_LAST;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    uint32_t forwards = 0, recomputes = 0;
    for (uint32_t i = 0; i < model.call_count; i++) {
        const struct engine_call *call = &model.calls[i];
        bool forward = call->phase == WEIR_FORWARD || call->phase == WEIR_FORWARD_CHECKPOINT;
        bool under = call->micro_batch < 3;
        forwards += forward, recomputes += call->phase == WEIR_RECOMPUTE;
        EXPECT(call->checkpointing == (forward && under));
        EXPECT(call->recomputing == (call->phase == WEIR_RECOMPUTE));
    }
    EXPECT_EQ_UINT(forwards, 8);
    EXPECT_EQ_UINT(recomputes, 6);
    engine_trial_close(&trial);
}

/* ---- segments without gradients of their inputs ---- */

// CK-2
static void test_a_segment_whose_input_needs_no_gradient_trains(void) {
    for (int mode = WEIR_CHECKPOINT_ALWAYS; mode <= WEIR_CHECKPOINT_NEVER; mode++) {
        engine_model_init(&model, 3);
        model.inputs[0].tensor.differentiable = false;
        model.stages[1].outputs[0].differentiable = false; /* and stages 0 and 1 get none back */
        model.stages[1].outputs[1] = engine_tensor(WEIR_F64, 2, true);
        model.stages[1].outputs[2] = engine_tensor(WEIR_F32, 3, false);
        model.stages[1].output_count = 3;
        struct weir_pipe_options options = engine_options(&model);
        options.checkpoint = (enum weir_checkpoint)mode;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        engine_trial_step(&trial);
        for (uint32_t s = 0; s < 3; s++) EXPECT(trial.reference.gradients[s][1] != 0.0);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

/* Nothing differentiable crosses: stages below get no gradient and wait for none. */
static void test_a_border_without_gradients_cuts_the_backward(void) {
    engine_model_init(&model, 3);
    model.stages[1].outputs[0].differentiable = false;
    model.stages[1].loss_scale = 0.1;
    struct weir_pipe_options options = engine_options(&model);
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    EXPECT(trial.reference.gradients[0][0] != 0.0); /* of stage 1's own loss */
    engine_trial_close(&trial);
}

/* ---- early and late ---- */

static int be_slow(void *context, const struct weir_task *task) {
    struct timespec time = {.tv_nsec = 1000000};
    (void)context;
    if (task->stage == 1) nanosleep(&time, NULL);
    return 0;
}

static struct weir_trace_event events[2][EVENTS_MAX];
static uint32_t counts[2];

static const struct weir_trace_event *event_of(enum weir_kind kind, uint32_t stage, uint32_t i) {
    for (uint32_t k = 0; k < counts[stage]; k++) {
        const struct weir_action *action = &events[stage][k].action;
        if (action->kind == kind && action->micro_batch == i) return &events[stage][k];
    }
    TEST_FAIL("no such event");
    return &events[0][0];
}

/* How many of stage 0's recomputes began before their gradient had arrived. Early ones are given
 * time; late ones wait however short the way is. */
static uint32_t count_early(bool late, const char *schedule, uint32_t m) {
    uint32_t early = 0;
    uint64_t delay = late ? DELAY_NS / 20 : DELAY_NS;
    struct weir_step_report report;
    engine_model_init(&model, 2);
    model.hook = be_slow;
    struct weir_pipe_options options = engine_options(&model);
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS, options.recompute_late = late;
    options.link = WEIR_LINK_COPY, options.link_delay_ns = delay;
    options.schedule = schedule, options.chunks = m;
    if (!engine_trial_open(&trial, &model, &options, NULL)) return 0;
    engine_trial_step(&trial);
    for (uint32_t w = 0; w < 2; w++)
        counts[w] = weir_pipe_trace(trial.pipe, w, EVENTS_MAX, events[w]);
    for (uint32_t i = 0; i < m; i++) {
        uint64_t arrived = event_of(WEIR_KIND_B, 1, i)->end + delay;
        const struct weir_trace_event *r = event_of(WEIR_KIND_R, 0, i);
        const struct weir_trace_event *b = event_of(WEIR_KIND_B, 0, i);
        EXPECT(b->start >= arrived && b->start >= r->end);
        early += r->start < arrived;
    }
    EXPECT_STATUS(weir_pipe_report(trial.pipe, &report), WEIR_OK);
    EXPECT(late ? report.recompute_hidden == 0.0 : report.recompute_hidden > 0.0);
    engine_trial_close(&trial);
    return early;
}

// CK-5
static void test_recompute_starts_before_its_gradient_is_there(void) {
    EXPECT_EQ_UINT(count_early(false, "1f1b", 1), 1);
    EXPECT_EQ_UINT(count_early(false, "gpipe", 1), 1);
    /* with more, the worker is free for the first at least */
    EXPECT(count_early(false, "gpipe", 4) >= 1);
    EXPECT(count_early(false, "1f1b", 4) >= 1);
}

// CK-5
static void test_late_recompute_never_does(void) {
    EXPECT_EQ_UINT(count_early(true, "1f1b", 1), 0);
    EXPECT_EQ_UINT(count_early(true, "gpipe", 4), 0);
    EXPECT_EQ_UINT(count_early(true, "1f1b", 4), 0);
}

/* Both ways of waiting, forth and back; the first micro-batch's, so that nothing else is in the
 * way. A crossing of a pointer takes no delay, which is long, so that a slow machine is none. */
static void expect_delayed(enum weir_link link, enum weir_wait wait, uint64_t delay) {
    engine_model_init(&model, 2);
    struct weir_pipe_options options = engine_options(&model);
    options.link = link, options.wait = wait, options.link_delay_ns = delay;
    if (!engine_trial_open(&trial, &model, &options, NULL)) return;
    engine_trial_step(&trial);
    for (uint32_t w = 0; w < 2; w++)
        counts[w] = weir_pipe_trace(trial.pipe, w, EVENTS_MAX, events[w]);
    uint64_t forth = event_of(WEIR_KIND_F, 1, 0)->start - event_of(WEIR_KIND_F, 0, 0)->end;
    uint64_t back = event_of(WEIR_KIND_B, 0, 0)->start - event_of(WEIR_KIND_B, 1, 0)->end;
    EXPECT(link == WEIR_LINK_COPY ? forth >= delay : forth < delay);
    EXPECT(link == WEIR_LINK_COPY ? back >= delay : back < delay);
    engine_trial_close(&trial);
}

static void test_copied_crossings_alone_are_delayed(void) {
    expect_delayed(WEIR_LINK_COPY, WEIR_WAIT_SPIN, 3000000);
    expect_delayed(WEIR_LINK_COPY, WEIR_WAIT_PARK, 3000000);
    expect_delayed(WEIR_LINK_POINTER, WEIR_WAIT_PARK, UINT64_C(60000000000));
}

static int recompute_long(void *context, const struct weir_task *task) {
    struct timespec time = {.tv_nsec = 3 * DELAY_NS / 2};
    (void)context;
    if (task->stage == 0 && task->phase == WEIR_RECOMPUTE) nanosleep(&time, NULL);
    return 0;
}

/* The gradient's producer is done before its reader looks; the gradient is still on its way. */
static void test_what_is_on_its_way_is_waited_for(void) {
    engine_model_init(&model, 2);
    model.hook = recompute_long;
    struct weir_pipe_options options = engine_options(&model);
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS, options.chunks = 1;
    options.link = WEIR_LINK_COPY, options.link_delay_ns = DELAY_NS;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    for (uint32_t w = 0; w < 2; w++)
        counts[w] = weir_pipe_trace(trial.pipe, w, EVENTS_MAX, events[w]);
    EXPECT_EQ_INT(event_of(WEIR_KIND_B, 0, 0)->waited_for, 1);
    EXPECT_EQ_INT(event_of(WEIR_KIND_R, 0, 0)->waited_for, -1);
    engine_trial_close(&trial);
}

/* ---- inputs that a stage writes to ---- */

struct vandal {
    enum weir_phase phase;
    uint32_t stage;
    enum { AN_INPUT, A_SKIP, A_GRADIENT, A_SKIP_GRADIENT } what;
};

static int scribble(void *context, const struct weir_task *task) {
    const struct vandal *vandal = context;
    if (task->phase != vandal->phase || task->stage != vandal->stage) return 0;
    unsigned char *byte = vandal->what == AN_INPUT     ? task->inputs[0].data
                          : vandal->what == A_SKIP     ? task->skips[0].data
                          : vandal->what == A_GRADIENT ? task->output_grads[0].data
                                                       : task->skip_grads[0].data;
    byte[1] ^= 0x10;
    return 0;
}

static struct weir_pipe_options vandalised(struct vandal *vandal, bool kept) {
    engine_model_init(&model, 3);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "a");
    engine_skip(&model, 2, WEIR_SKIP_POP, "a");
    for (uint32_t s = 0; s < 3; s++) model.stages[s].keeps_inputs = kept;
    model.hook = scribble, model.hook_context = vandal;
    struct weir_pipe_options options = engine_options(&model);
    options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    return options;
}

static void expect_caught(enum weir_phase phase, uint32_t stage, int what) {
    struct vandal vandal = {phase, stage, what};
    struct weir_pipe_options options = vandalised(&vandal, true);
    options.debug_inputs = true;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_ERR_CALLBACK);
    EXPECT_CONTAINS(trial.result.error.message, "read-only");
    EXPECT_EQ_INT(trial.result.error.stage, (int)stage);
    EXPECT_EQ_INT(trial.result.error.phase, phase);
    model.hook = NULL;
    atomic_store(&model.violations, 0);  /* a saved area may have noticed too */
    engine_batch_clean_up(&trial.batch); /* an input of the caller's was written to */
    engine_batch_init(&trial.batch, &model, 8, 1);
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

// CK-6
static void test_a_write_to_an_input_is_caught(void) {
    for (uint32_t stage = 0; stage < 3; stage++) {
        expect_caught(WEIR_FORWARD_CHECKPOINT, stage, AN_INPUT);
        expect_caught(WEIR_RECOMPUTE, stage, AN_INPUT);
        expect_caught(WEIR_BACKWARD, stage, AN_INPUT);
    }
    expect_caught(WEIR_FORWARD_CHECKPOINT, 2, A_SKIP);
    expect_caught(WEIR_RECOMPUTE, 2, A_SKIP);
    expect_caught(WEIR_BACKWARD, 2, A_SKIP);
    expect_caught(WEIR_BACKWARD, 1, A_GRADIENT);
    expect_caught(WEIR_BACKWARD, 0, A_SKIP_GRADIENT);
}

// CK-6
static void test_well_behaved_stages_are_let_through(void) {
    for (int kept = 0; kept < 2; kept++) {
        struct vandal none = {WEIR_PHASE_COUNT, 0, AN_INPUT};
        struct weir_pipe_options options = vandalised(&none, kept != 0);
        model.stages[1].adds_border = model.stages[2].adds_skips = true; /* not recomputed */
        options = engine_options(&model);
        options.debug_inputs = true;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        engine_trial_step(&trial);
        engine_trial_infer(&trial);
        engine_trial_close(&trial);
    }
}

/* What the check is there for: without it the gradient is wrong and nobody says so. */
static void test_without_the_check_a_write_goes_unnoticed(void) {
    struct vandal vandal = {WEIR_FORWARD_CHECKPOINT, 1, AN_INPUT};
    struct weir_pipe_options options = vandalised(&vandal, false);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    struct weir_step step = engine_step(&trial.batch);
    EXPECT_STATUS(weir_pipe_step(trial.pipe, &step, &trial.result), WEIR_OK);
    engine_trial_close(&trial);
}

WEIR_TEST_SUITE(checkpoint, TEST(two_segments_on_one_worker_run_in_serial_order),
                TEST(a_task_can_tell_checkpoint_and_recompute),
                TEST(a_segment_whose_input_needs_no_gradient_trains),
                TEST(a_border_without_gradients_cuts_the_backward),
                TEST(recompute_starts_before_its_gradient_is_there),
                TEST(late_recompute_never_does), TEST(copied_crossings_alone_are_delayed),
                TEST(what_is_on_its_way_is_waited_for), TEST(a_write_to_an_input_is_caught),
                TEST(well_behaved_stages_are_let_through),
                TEST(without_the_check_a_write_goes_unnoticed))
