/* SPDX-License-Identifier: MIT */
/*
 * Goal: skips arrive where they are read, with their gradients, whatever lies between, and memory
 * is handed from one to the next in order. Method: pipes with skips beside the reference; a
 * hand-made one whose gradients are known; where pointers lead.
 */
#include "engine/engine_stages.h"

#include "pipe/run/pipe.h"

#include <math.h>
#include <string.h>
#include <time.h>

static struct engine_model model;
static struct engine_trial trial;

static void expect_same_bits(const struct weir_pipe_options *options) {
    CHECK(engine_trial_open(&trial, &model, options, NULL));
    engine_trial_step(&trial);
    engine_trial_step(&trial);
    engine_trial_infer(&trial);
    engine_trial_close(&trial);
}

/* ---- what is accepted ---- */

// SK-1
static void test_a_stash_with_its_pop_is_accepted_across_stages(void) {
    for (uint32_t pop = 1; pop < 4; pop++) {
        engine_model_init(&model, 4);
        engine_skip(&model, 0, WEIR_SKIP_STASH, "foo");
        engine_skip(&model, pop, WEIR_SKIP_POP, "foo");
        struct weir_pipe_options options = engine_options(&model);
        expect_same_bits(&options);
    }
}

// SK-4
static void test_one_name_in_two_namespaces_is_two_skips(void) {
    char copy[] = "inner"; /* equal texts are equal namespaces, wherever they are */
    engine_model_init(&model, 4);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "foo");
    engine_skip(&model, 1, WEIR_SKIP_STASH, "foo")->name_space = "inner";
    engine_skip(&model, 2, WEIR_SKIP_POP, "foo")->name_space = "";
    engine_skip(&model, 3, WEIR_SKIP_POP, "foo")->name_space = copy;
    model.stages[0].skips[0].tensor = model.stages[2].skips[0].tensor =
        engine_tensor(WEIR_F32, 5, true);
    struct weir_pipe_options options = engine_options(&model);
    expect_same_bits(&options);
}

// SK-4
static void test_one_name_twice_in_one_namespace_is_refused(void) {
    engine_model_init(&model, 4);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "foo")->name_space = "inner";
    engine_skip(&model, 1, WEIR_SKIP_STASH, "foo")->name_space = "inner";
    engine_skip(&model, 2, WEIR_SKIP_POP, "foo")->name_space = "inner";
    engine_skip(&model, 3, WEIR_SKIP_POP, "foo")->name_space = "inner";
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_SKIP, "stashed"));
    CHECK(engine_expect_refused(&options, WEIR_ERR_SKIP, "popped"));
    EXPECT_EQ_UINT(atomic_load(&model.attached), 0);
}

// SK-2
static void test_all_faults_of_skips_are_reported_together(void) {
    engine_model_init(&model, 3);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "left");
    engine_skip(&model, 1, WEIR_SKIP_POP, "lost");
    engine_skip(&model, 1, WEIR_SKIP_STASH, "own");
    engine_skip(&model, 1, WEIR_SKIP_POP, "own");
    engine_skip(&model, 2, WEIR_SKIP_STASH, "early");
    engine_skip(&model, 1, WEIR_SKIP_POP, "early");
    struct weir_pipe_options options = engine_options(&model);
    static const char *const names[] = {"left", "lost", "own", "early"};
    for (int i = 0; i < 4; i++) CHECK(engine_expect_refused(&options, WEIR_ERR_SKIP, names[i]));
}

// PI-7
static void test_uses_of_a_skip_must_agree_on_its_tensor(void) {
    engine_model_init(&model, 3);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "foo");
    engine_skip(&model, 1, WEIR_SKIP_READ, "foo")->tensor.dtype = WEIR_F32;
    engine_skip(&model, 2, WEIR_SKIP_POP, "foo")->tensor.shape[0] = 4;
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_SKIP, "stage 1: skip 'foo' has another dtype"));
    CHECK(engine_expect_refused(&options, WEIR_ERR_SKIP, "stage 2: skip 'foo' has another dtype"));
}

/* ---- nothing, and no gradient ---- */

// SK-5
static void test_nothing_may_be_stashed_and_pops_as_nothing(void) {
    for (int mode = WEIR_CHECKPOINT_ALWAYS; mode <= WEIR_CHECKPOINT_NEVER; mode++) {
        engine_model_init(&model, 3);
        engine_skip(&model, 0, WEIR_SKIP_STASH, "foo")->empty = true;
        engine_skip(&model, 1, WEIR_SKIP_READ, "foo");
        engine_skip(&model, 2, WEIR_SKIP_POP, "foo");
        struct weir_pipe_options options = engine_options(&model);
        options.checkpoint = (enum weir_checkpoint)mode;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        engine_trial_step(&trial); /* the callbacks check for NULL */
        EXPECT_EQ_UINT(trial.pipe->prepared[0]->bound.trackers[0].portal_count, 0);
        for (uint32_t w = 0; w < 3; w++)
            EXPECT_EQ_UINT(weir_pipe_plan(trial.pipe)->devices[w].portals, 0);
        engine_trial_close(&trial);
    }
}

// SK-6
static void test_a_skip_without_gradient_reads_as_zero(void) {
    for (int k = 0; k < 2; k++) {
        engine_model_init(&model, 3);
        struct weir_skip_use *stash = engine_skip(&model, 0, WEIR_SKIP_STASH, "foo");
        struct weir_skip_use *pop = engine_skip(&model, 2, WEIR_SKIP_POP, "foo");
        if (k == 0)
            stash->tensor.differentiable = pop->tensor.differentiable = false;
        else
            model.stages[2].loss_scale = 0.0; /* nobody produces one: it is zero everywhere */
        struct weir_pipe_options options = engine_options(&model);
        options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
        expect_same_bits(&options);
        CHECK_HELPERS();
    }
}

/* ---- many readers ---- */

// SK-7
static void test_a_skip_may_be_read_by_several_stages(void) {
    static const enum weir_skip_verb last[] = {WEIR_SKIP_POP, WEIR_SKIP_READ};
    for (int k = 0; k < 8; k++) {
        engine_model_init(&model, 5);
        engine_skip(&model, 0, WEIR_SKIP_STASH, "foo");
        for (uint32_t s = 1; s < 4; s++) engine_skip(&model, s, WEIR_SKIP_READ, "foo");
        engine_skip(&model, 4, last[k % 2], "foo");
        for (uint32_t s = 0; s < 5; s++) /* sums in f32, where their order shows */
            model.stages[s].skips[0].tensor = engine_tensor(WEIR_F32, 7, true);
        struct weir_pipe_options options = engine_options(&model);
        options.workers = k / 2 == 0 ? 5 : (uint32_t)k / 2 + 1;
        options.link = k < 4 ? WEIR_LINK_POINTER : WEIR_LINK_COPY;
        expect_same_bits(&options);
        CHECK_HELPERS();
    }
}

// SK-7
static void test_reads_after_the_pop_and_unread_stashes_are_refused(void) {
    engine_model_init(&model, 4);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "foo");
    engine_skip(&model, 2, WEIR_SKIP_POP, "foo");
    engine_skip(&model, 3, WEIR_SKIP_READ, "foo");
    engine_skip(&model, 1, WEIR_SKIP_STASH, "alone");
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_SKIP, "foo"));
    CHECK(engine_expect_refused(&options, WEIR_ERR_SKIP, "alone"));
}

/* ---- a pipe whose gradients are known: out = 2 a + skip ---- */

struct known {
    float value, border_gradient, skip_gradient;
};

static int known_forward(void *context, const struct weir_task *task) {
    struct known *known = context;
    const float *x = task->inputs[0].data;
    float *y = task->outputs[0].data;
    if (task->stage == 0) y[0] = *(float *)task->skips[0].data = x[0];
    if (task->stage == 1) y[0] = 2.0f * x[0];
    if (task->stage == 2) {
        known->value = *(const float *)task->skips[0].data;
        y[0] = x[0] + known->value;
        *task->loss = (double)y[0];
    }
    return 0;
}

static int known_backward(void *context, const struct weir_task *task) {
    struct known *known = context;
    float *dx = task->input_grads[0].data;
    const float *dy = task->output_grads[0].data;
    if (task->stage == 2) dx[0] = *(float *)task->skip_grads_out[0].data = 1.0f;
    if (task->stage == 1) dx[0] = 2.0f * dy[0];
    if (task->stage == 0) {
        known->border_gradient = dy[0];
        known->skip_gradient = *(const float *)task->skip_grads[0].data;
        dx[0] = dy[0] + known->skip_gradient;
    }
    return 0;
}

static int known_recompute(void *context, const struct weir_task *task) {
    (void)context, (void)task;
    return 0;
}

static struct weir_pipe *known_pipe(struct known *known, enum weir_link link,
                                    enum weir_checkpoint mode) {
    static const struct weir_stage_calls calls = {
        .forward = known_forward, .recompute = known_recompute, .backward = known_backward};
    struct weir_tensor number = engine_tensor(WEIR_F32, 1, true);
    struct weir_skip_use stash = {WEIR_SKIP_STASH, "foo", NULL, number, false, false};
    struct weir_skip_use pop = {WEIR_SKIP_POP, "foo", NULL, number, false, false};
    struct weir_input input = {number, "a", 0, false, 0};
    struct weir_stage stages[3];
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    struct weir_pipe *pipe = NULL;
    for (int s = 0; s < 3; s++) {
        stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
        stages[s].calls = &calls, stages[s].context = known;
        stages[s].outputs = &number, stages[s].output_count = 1;
        stages[s].skips = s == 0 ? &stash : &pop, stages[s].skip_count = s != 1;
    }
    options.allocator = test_allocator();
    options.stages = stages, options.stage_count = 3;
    options.inputs = &input, options.input_count = 1;
    options.rows = options.chunks = 1, options.link = link, options.checkpoint = mode;
    EXPECT_STATUS(weir_pipe_new(&options, NULL, &pipe), WEIR_OK);
    return pipe;
}

// PO-1
static void test_value_and_gradient_pass_unchanged(void) {
    for (int k = 0; k < 6; k++) {
        struct known known = {0};
        struct weir_step_result result;
        struct weir_pipe *pipe = known_pipe(&known, k % 2 == 0 ? WEIR_LINK_POINTER : WEIR_LINK_COPY,
                                            (enum weir_checkpoint)(WEIR_CHECKPOINT_ALWAYS + k / 2));
        CHECK_HELPERS();
        const float a = 1.7f;
        float gradient = 0.0f, out = 0.0f;
        struct weir_step step = WEIR_STEP_INIT;
        step.rows = 1, step.inputs = (const void *[]){&a};
        step.input_grads = (void *[]){&gradient}, step.outputs = (void *[]){&out};
        EXPECT_STATUS(weir_pipe_step(pipe, &step, &result), WEIR_OK);
        EXPECT(known.value == a && out == 2.0f * a + a && result.loss == (double)out);
        EXPECT(known.border_gradient == 2.0f && known.skip_gradient == 1.0f && gradient == 3.0f);
        weir_pipe_destroy(pipe);
    }
}

/* ---- splits ---- */

// PO-7
static void test_every_split_gives_the_same_bits(void) {
    static const char *const rows[] = {"0F0,1F0,2F0,2B0,1B0,0B0\n", "0F0,0B0\n1F0,2F0,2B0,1B0\n",
                                       "0F0,1F0,1B0,0B0\n2F0,2B0\n", "0F0,2F0,2B0,0B0\n1F0,1B0\n",
                                       "0F0,0B0\n1F0,1B0\n2F0,2B0\n"};
    for (int k = 0; k < 5 * 3 * 2; k++) {
        struct engine_order order = {0};
        engine_model_init(&model, 3);
        engine_skip(&model, 0, WEIR_SKIP_STASH, "foo");
        engine_skip(&model, 2, WEIR_SKIP_POP, "foo");
        struct weir_pipe_options options = engine_options(&model);
        options.rows = 3, options.chunks = 1;
        options.table_csv = rows[k % 5], options.table_csv_bytes = strlen(rows[k % 5]);
        options.checkpoint = (enum weir_checkpoint)(WEIR_CHECKPOINT_ALWAYS + k / 5 % 3);
        options.link = k < 15 ? WEIR_LINK_POINTER : WEIR_LINK_COPY;
        CHECK(engine_trial_open(&trial, &model, &options, &order));
        engine_trial_step(&trial);
        engine_trial_close(&trial);
        CHECK_HELPERS();
    }
}

/* Two readers and a pop in stages of their own, and two pops: of these some skip crosses workers
 * under any placement. In f32, where the order of sums shows. */
static void schedule_model(void) {
    engine_model_init(&model, 4);
    engine_skip(&model, 0, WEIR_SKIP_STASH, "many");
    for (uint32_t s = 1; s < 3; s++) engine_skip(&model, s, WEIR_SKIP_READ, "many");
    engine_skip(&model, 3, WEIR_SKIP_POP, "many");
    for (uint32_t pop = 2; pop < 4; pop++) {
        engine_skip(&model, 0, WEIR_SKIP_STASH, pop == 2 ? "near" : "far");
        engine_skip(&model, pop, WEIR_SKIP_POP, pop == 2 ? "near" : "far");
    }
    for (uint32_t s = 0; s < 4; s++)
        for (uint32_t k = 0; k < model.stages[s].skip_count; k++)
            model.stages[s].skips[k].tensor = engine_tensor(WEIR_F32, 7, true);
}

static void check_schedule(const char *schedule, enum weir_checkpoint mode, enum weir_link link) {
    schedule_model();
    struct weir_pipe_options options = engine_options(&model);
    options.rows = 7, options.chunks = 4; /* the last micro-batch is shorter */
    options.schedule = schedule, options.checkpoint = mode, options.link = link;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    EXPECT(trial.pipe->worker_count >= 2 &&
           trial.pipe->prepared[0]->bound.trackers[0].portal_count > 0);
    EXPECT((trial.pipe->prepared[0]->copy_count > 0) == (link == WEIR_LINK_COPY));
    bool same = engine_trial_step(&trial) && engine_trial_step(&trial);
    if (!same)
        TEST_FAIL("%s, checkpoint %s, %s", schedule, weir_checkpoint_name(mode),
                  link == WEIR_LINK_COPY ? "copies" : "pointers");
    engine_trial_close(&trial);
}

// PO-8
static void test_every_schedule_gives_the_same_bits(void) {
    static const enum weir_link links[] = {WEIR_LINK_POINTER, WEIR_LINK_COPY};
    for (uint32_t i = 0; weir_schedule_name(i) != NULL; i++)
        for (int k = 0; k < 3 * 2; k++) {
            check_schedule(weir_schedule_name(i), (enum weir_checkpoint)(1 + k / 2), links[k % 2]);
            CHECK_HELPERS();
        }
}

// PO-5
static void test_a_plain_model_makes_no_portal(void) {
    engine_model_init(&model, 1);
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    EXPECT_EQ_UINT(trial.pipe->prepared[0]->bound.trackers[0].portal_count, 0);
    EXPECT_EQ_UINT(trial.pipe->prepared[0]->move_count, 0);
    EXPECT_EQ_UINT(weir_pipe_plan(trial.pipe)->devices[0].portals, 0);
    engine_trial_close(&trial);
}

/* ---- where it lies ---- */

struct places {
    const void *written[ENGINE_CHUNKS_MAX], *read[ENGINE_CHUNKS_MAX];
};

static int see_places(void *context, const struct weir_task *task) {
    struct places *places = context;
    if (task->phase != WEIR_FORWARD) return 0;
    if (task->stage == 0) places->written[task->micro_batch] = task->skips[0].data;
    if (task->stage == 2) places->read[task->micro_batch] = task->skips[0].data;
    return 0;
}

static bool lies_in(const struct weir_pipe *pipe, uint32_t worker, const void *memory) {
    const struct weir__arena *arena = &pipe->memory.arenas[worker];
    return (uintptr_t)memory - (uintptr_t)arena->working < arena->working_bytes;
}

// PO-6
static void test_a_copy_lands_at_its_destination_before_its_use(void) {
    for (int copies = 0; copies < 2; copies++) {
        struct places places = {0};
        engine_model_init(&model, 3);
        engine_skip(&model, 0, WEIR_SKIP_STASH, "foo");
        engine_skip(&model, 2, WEIR_SKIP_POP, "foo");
        model.hook = see_places, model.hook_context = &places;
        struct weir_pipe_options options = engine_options(&model);
        options.checkpoint = WEIR_CHECKPOINT_NEVER;
        options.link = copies ? WEIR_LINK_COPY : WEIR_LINK_POINTER;
        CHECK(engine_trial_open(&trial, &model, &options, NULL));
        for (int k = 0; k < 10; k++) engine_trial_step(&trial); /* the values are right */
        for (uint32_t i = 0; i < 4; i++) {
            EXPECT(lies_in(trial.pipe, 0, places.written[i]));
            EXPECT(lies_in(trial.pipe, copies ? 2 : 0, places.read[i]));
            EXPECT((places.written[i] == places.read[i]) == !copies);
        }
        engine_trial_close(&trial);
    }
}

/* ---- borders of several tensors ---- */

/* Writes its tensors one after the other, slowly; checks that all of the previous stage's came. */
static int write_slowly(void *context, const struct weir_task *task) {
    _Atomic uint32_t *wrong = context;
    struct timespec little = {.tv_nsec = 200000};
    if (task->phase == WEIR_NORM || task->phase == WEIR_UPDATE) return 0;
    double stamp = (double)(task->mini_batch * 100 + task->micro_batch);
    for (uint32_t k = 0; k < 3; k++) {
        bool backward = task->phase == WEIR_BACKWARD;
        const double *in = backward          ? task->output_grads[k].data
                           : task->stage > 0 ? task->inputs[k].data
                                             : NULL;
        double *out = backward ? task->input_grads[k].data : task->outputs[k].data;
        if (in != NULL && in[0] != stamp + k) ++*wrong;
        if (k > 0) nanosleep(&little, NULL);
        if (out != NULL && task->phase != WEIR_RECOMPUTE) out[0] = stamp + k;
    }
    return 0;
}

// ST-2
static void test_every_tensor_of_a_border_is_ordered(void) {
    static const struct weir_stage_calls calls = {
        .forward = write_slowly, .recompute = write_slowly, .backward = write_slowly};
    for (int k = 0; k < 4; k++) {
        _Atomic uint32_t wrong = 0;
        struct weir_tensor three[3];
        struct weir_stage stages[3];
        struct weir_input inputs[3];
        struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
        struct weir_step_result result;
        struct weir_pipe *pipe;
        double x[8] = {0};
        for (int s = 0; s < 3; s++) {
            three[s] = engine_tensor(WEIR_F64, 1, true);
            inputs[s] = (struct weir_input){three[s], "x", 0, false, 0};
            stages[s] = (struct weir_stage)WEIR_STAGE_INIT;
            stages[s].calls = &calls, stages[s].context = (void *)&wrong;
            stages[s].outputs = three, stages[s].output_count = 3;
        }
        options.allocator = test_allocator();
        options.stages = stages, options.stage_count = 3, options.inputs = inputs;
        options.input_count = 3, options.rows = options.chunks = 8;
        options.link = k % 2 == 0 ? WEIR_LINK_POINTER : WEIR_LINK_COPY;
        options.schedule = k < 2 ? "gpipe" : "1f1b";
        CHECK_OK(weir_pipe_new(&options, NULL, &pipe));
        struct weir_step step = WEIR_STEP_INIT;
        step.rows = 8, step.inputs = (const void *[]){x, x, x}, step.mini_batch = 3;
        EXPECT_STATUS(weir_pipe_step(pipe, &step, &result), WEIR_OK);
        EXPECT_EQ_UINT(wrong, 0);
        weir_pipe_destroy(pipe);
    }
}

/* ---- reuse ---- */

static int see_saved(void *context, const struct weir_task *task) {
    struct places *places = context;
    struct timespec little = {.tv_nsec = 300000};
    if (task->stage == 1) nanosleep(&little, NULL); /* the first stage is ahead and must wait */
    if (task->stage == 0 && task->phase == WEIR_FORWARD)
        places->written[task->micro_batch] = task->saved;
    return 0;
}

// ST-3
static void test_memory_is_reused_after_its_use_and_not_before(void) {
    enum { MICRO_BATCHES = 16 };
    struct places places = {0};
    uint32_t distinct = 0;
    engine_model_init(&model, 2);
    model.hook = see_saved, model.hook_context = &places;
    struct weir_pipe_options options = engine_options(&model);
    options.rows = options.chunks = MICRO_BATCHES;
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    for (int k = 0; k < 3; k++) engine_trial_step(&trial); /* the saved areas are whole */
    for (uint32_t i = 0; i < MICRO_BATCHES; i++) {
        bool again = false;
        for (uint32_t o = 0; o < i; o++) again |= places.written[o] == places.written[i];
        distinct += !again;
    }
    EXPECT(distinct >= 2 && distinct <= 4); /* two are in flight on the first of two stages */
    engine_trial_close(&trial);
}

WEIR_TEST_SUITE(
    pipe_skips, TEST(a_stash_with_its_pop_is_accepted_across_stages),
    TEST(one_name_in_two_namespaces_is_two_skips), TEST(one_name_twice_in_one_namespace_is_refused),
    TEST(all_faults_of_skips_are_reported_together), TEST(uses_of_a_skip_must_agree_on_its_tensor),
    TEST(nothing_may_be_stashed_and_pops_as_nothing), TEST(a_skip_without_gradient_reads_as_zero),
    TEST(a_skip_may_be_read_by_several_stages),
    TEST(reads_after_the_pop_and_unread_stashes_are_refused),
    TEST(value_and_gradient_pass_unchanged), TEST(every_split_gives_the_same_bits),
    TEST(every_schedule_gives_the_same_bits), TEST(a_plain_model_makes_no_portal),
    TEST(a_copy_lands_at_its_destination_before_its_use), TEST(every_tensor_of_a_border_is_ordered),
    TEST(memory_is_reused_after_its_use_and_not_before))
