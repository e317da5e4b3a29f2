/* SPDX-License-Identifier: MIT */
/*
 * Goal: a mini-batch is scattered and gathered as torch.chunk and torch.cat do it, whatever its
 * tensors are. Method: the arithmetic against a loop that deals rows out; pipes of stages that pass
 * their inputs on unchanged, or that note which rows they were given.
 */
#include "engine/engine_stages.h"

#include "pipe/describe/microbatch.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct engine_model model;

/* ---- arithmetic ---- */

/* torch.chunk by its documentation: parts of ceil(rows / chunks) until none is left. */
static uint32_t deal(int64_t rows, uint32_t chunks, int64_t *sizes) {
    int64_t size = rows / chunks + (rows % chunks != 0);
    uint32_t count = 0;
    while (rows > 0) {
        sizes[count++] = rows < size ? rows : size;
        rows -= size;
    }
    return count;
}

// MB-1
static void test_rows_are_dealt_as_torch_chunk_does(void) {
    int64_t sizes[64];
    for (int64_t rows = 1; rows <= 48; rows++) {
        for (uint32_t chunks = 1; chunks <= 50; chunks++) {
            uint32_t count = deal(rows, chunks, sizes);
            CHECK_EQ_UINT(weir__chunk_count(rows, chunks), count);
            int64_t first = 0;
            for (uint32_t i = 0; i < count; i++) {
                CHECK_EQ_INT(weir__chunk_first(rows, chunks, i), first);
                first += sizes[i];
            }
            CHECK_EQ_INT(weir__chunk_first(rows, chunks, count), rows);
        }
    }
    CHECK_EQ_UINT(weir__chunk_count(INT64_MAX, UINT32_MAX), UINT32_MAX);
    CHECK_EQ_UINT(weir__chunk_count(1, UINT32_MAX), 1);
    CHECK_EQ_INT(weir__chunk_first(INT64_MAX, 2, 1), INT64_MAX / 2 + 1);
    CHECK_EQ_INT(weir__chunk_first(INT64_MAX, 2, 2), INT64_MAX);
}

static void count_line(void *context, const char *line) {
    (void)line;
    ++*(uint32_t *)context;
}

static void expect_split(int64_t rows, uint32_t chunks, uint32_t count, const int64_t *sizes) {
    engine_model_init(&model, 2);
    struct weir_pipe_options options = engine_options(&model);
    struct engine_trial trial;
    uint32_t lines = 0;
    options.rows = rows, options.chunks = chunks;
    options.log = count_line, options.log_context = &lines;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    engine_trial_step(&trial);
    EXPECT_EQ_UINT(weir_pipe_table(trial.pipe, rows)->micro_batch_count, count);
    for (uint32_t s = 0; s < 2; s++) {
        int64_t first = 0;
        for (uint32_t i = 0; i < count; first += sizes[i], i++) {
            uint32_t at = engine_find_call(&model, WEIR_BACKWARD, s, i);
            if (!EXPECT(at != UINT32_MAX)) continue;
            EXPECT_EQ_INT(model.calls[at].rows, sizes[i]);
            EXPECT_EQ_INT(model.calls[at].row_first, first);
        }
    }
    EXPECT_EQ_UINT(lines, 0); /* fewer micro-batches than asked for is no reason to warn */
    engine_trial_close(&trial);
}

// MB-1
static void test_a_pipe_gets_the_rows_that_torch_chunk_gives(void) {
    expect_split(7, 4, 4, (const int64_t[]){2, 2, 2, 1});
    expect_split(2, 4, 2, (const int64_t[]){1, 1});
    expect_split(6, 4, 3, (const int64_t[]){2, 2, 2});
}

/* ---- inputs of their own row counts ---- */

static struct weir_pipe_options options_with_factor(int64_t rows, uint32_t chunks, int64_t factor) {
    engine_model_init(&model, 2);
    engine_input(&model, 1, "wide", engine_tensor(WEIR_F64, 2, true))->rows_factor = factor;
    struct weir_pipe_options options = engine_options(&model);
    options.rows = rows, options.chunks = chunks;
    return options;
}

// MB-2
static void test_each_input_is_split_by_its_own_rows(void) {
    struct weir_pipe_options options = options_with_factor(3, 3, 2);
    struct engine_trial trial;
    CHECK(engine_trial_open(&trial, &model, &options, NULL)); /* 3 and 6 rows */
    engine_trial_step(&trial);
    engine_trial_close(&trial);
    options = options_with_factor(7, 4, 2);
    CHECK(engine_trial_open(&trial, &model, &options, NULL)); /* 2,2,2,1 and 4,4,4,2 */
    engine_trial_step(&trial);
    engine_trial_close(&trial);
}

// MB-2
static void test_row_counts_that_split_differently_are_refused(void) {
    struct weir_pipe_options options = options_with_factor(5, 4, 2);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG,
                                "its 10 rows in 4 chunks make 4 micro-batches"));
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "mini-batch's 5 make 3"));
    /* as many micro-batches, but 5, 5, 4 rows beside 3, 3, 1 */
    options = options_with_factor(7, 3, 2);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "14 rows"));
    options = options_with_factor(2, 2, INT64_MAX);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "rows_factor"));
    options = options_with_factor(2, 2, -1);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "rows_factor is negative"));
}

// MB-2
static void test_a_row_count_that_splits_differently_is_not_prepared(void) {
    struct weir_pipe_options options = options_with_factor(8, 4, 2);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct engine_trial trial;
    faults.allocator = test_allocator();
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 5, &faults), WEIR_ERR_CONFIG);
    EXPECT_CONTAINS(faults.kept > 0 ? faults.lines[0] : "", "10 rows in 4 chunks");
    EXPECT_STATUS(weir_pipe_prepare(trial.pipe, 7, NULL), WEIR_OK);
    engine_trial_step(&trial);
    weir_faults_clean_up(&faults);
    engine_trial_close(&trial);
}

/* ---- replicated inputs ---- */

struct whole {
    const void *data;
    _Atomic uint32_t seen, wrong;
};

static int see_whole(void *context, const struct weir_task *task) {
    struct whole *whole = context;
    if (task->stage != 1 || task->phase == WEIR_NORM || task->phase == WEIR_UPDATE) return 0;
    whole->wrong += task->inputs[1].data != whole->data || task->inputs[1].rows != 1;
    whole->seen++;
    return 0;
}

// MB-3
static void test_a_replicated_input_reaches_every_micro_batch_whole(void) {
    struct engine_trial trial;
    struct whole whole = {0};
    engine_model_init(&model, 3);
    struct weir_tensor table = {.dtype = WEIR_F32, .rank = 2, .shape = {3, 5}};
    engine_input(&model, 1, "table", table)->replicated = true;
    model.hook = see_whole;
    model.hook_context = &whole;
    struct weir_pipe_options options = engine_options(&model);
    options.rows = 7, options.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    CHECK(engine_trial_open(&trial, &model, &options, NULL));
    whole.data = trial.batch.inputs[1];
    engine_trial_step(&trial);
    EXPECT_EQ_UINT(whole.seen, 3 * 4); /* F, R and B of four micro-batches */
    EXPECT_EQ_UINT(whole.wrong, 0);
    engine_trial_close(&trial);
}

static void test_a_replicated_input_has_no_gradient(void) {
    engine_model_init(&model, 1);
    engine_input(&model, 0, "table", engine_tensor(WEIR_F32, 2, true))->replicated = true;
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "input 1: a replicated input"));
}

/* ---- scatter, then gather ---- */

static const struct weir_tensor passed[] = {
    {.dtype = WEIR_F32, .rank = 2, .shape = {3, 2}},
    {.dtype = WEIR_F64, .rank = 0},
    {.dtype = WEIR_I64, .rank = 1, .shape = {2}},
    {.dtype = WEIR_U8, .rank = 3, .shape = {1, 5, 1}},
    {.dtype = WEIR_BOOL, .rank = 1, .shape = {1}},
    {.dtype = WEIR_BF16, .rank = 1, .shape = {3}},
    {.dtype = WEIR_F16, .rank = 1, .shape = {1}},
    {.dtype = WEIR_I32, .rank = 1, .shape = {9}},
};
enum { PASSED = sizeof passed / sizeof passed[0] };
static const size_t passed_bytes[PASSED] = {24, 8, 16, 5, 1, 6, 2, 36};

/* Counts outputs without memory. */
static int pass_on(void *context, const struct weir_task *task) {
    for (int k = 0; k < PASSED; k++) {
        size_t bytes = passed_bytes[k] * (size_t)task->rows;
        if (task->outputs[k].data != NULL)
            memcpy(task->outputs[k].data, task->inputs[k].data, bytes);
        else
            atomic_fetch_add((_Atomic int *)context, 1);
    }
    return 0;
}

static int nothing(void *context, const struct weir_task *task) {
    (void)context, (void)task;
    return 0;
}

/* Stages that pass all on. */
struct identity {
    struct weir_stage stages[4];
    struct weir_input inputs[PASSED];
    struct weir_pipe_options options;
    _Atomic int without; /* outputs of micro-batches, that had no memory */
};

static void identity_init(struct identity *identity, uint32_t stages, int64_t rows,
                          uint32_t chunks) {
    static const struct weir_stage_calls calls = {
        .forward = pass_on, .recompute = nothing, .backward = nothing};
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    for (int k = 0; k < PASSED; k++)
        identity->inputs[k] = (struct weir_input){passed[k], "in", 0, false, 0};
    for (uint32_t s = 0; s < stages; s++) {
        struct weir_stage init = WEIR_STAGE_INIT, *stage = &identity->stages[s];
        *stage = init;
        stage->calls = &calls, stage->context = &identity->without;
        stage->outputs = passed, stage->output_count = PASSED;
    }
    options.allocator = test_allocator();
    options.stages = identity->stages, options.stage_count = stages;
    options.inputs = identity->inputs, options.input_count = PASSED;
    options.rows = rows, options.chunks = chunks, options.bind = "none";
    identity->options = options;
    atomic_store(&identity->without, 0);
}

static struct weir_pipe *identity_pipe(uint32_t stage_count, int64_t rows, uint32_t chunks,
                                       enum weir_link link) {
    static struct identity identity;
    struct weir_pipe *pipe = NULL;
    identity_init(&identity, stage_count, rows, chunks);
    identity.options.link = link;
    EXPECT_STATUS(weir_pipe_new(&identity.options, NULL, &pipe), WEIR_OK);
    return pipe;
}

/* The k-th output may be left out (the caller does not want it). */
static void expect_identity(uint32_t stages, int64_t rows, uint32_t chunks, enum weir_link link,
                            int without) {
    struct weir_pipe *pipe = identity_pipe(stages, rows, chunks, link);
    if (pipe == NULL) return;
    char *in[PASSED], *out[PASSED], *kept[PASSED];
    for (int k = 0; k < PASSED; k++) {
        size_t bytes = passed_bytes[k] * (size_t)rows;
        in[k] = malloc(bytes);
        kept[k] = out[k] = malloc(bytes + 1);
        for (size_t i = 0; i < bytes; i++) in[k][i] = (char)test_random_u64();
        memset(out[k], 0x77, bytes + 1);
        if (k == without) out[k] = NULL;
    }
    struct weir_step step = WEIR_STEP_INIT;
    struct weir_step_result result;
    step.rows = rows;
    step.inputs = (const void *const *)in, step.outputs = (void *const *)out;
    for (int infer = 0; infer < 2; infer++) {
        EXPECT_STATUS(infer ? weir_pipe_infer(pipe, &step, &result)
                            : weir_pipe_step(pipe, &step, &result),
                      WEIR_OK);
        for (int k = 0; k < PASSED; k++) {
            size_t bytes = passed_bytes[k] * (size_t)rows;
            if (out[k] != NULL) EXPECT_EQ_BYTES(out[k], in[k], bytes);
            EXPECT_EQ_INT(kept[k][bytes], 0x77);
            EXPECT_EQ_INT(kept[k][0], out[k] != NULL ? in[k][0] : 0x77);
            if (out[k] != NULL) memset(out[k], 0x77, bytes);
        }
    }
    for (int k = 0; k < PASSED; k++) free(in[k]), free(kept[k]);
    weir_pipe_destroy(pipe);
}

// MB-4
static void test_scatter_then_gather_is_the_identity(void) {
    for (uint32_t stages = 1; stages <= 3; stages++)
        for (int64_t rows = 1; rows <= 9; rows += 2)
            for (uint32_t chunks = 1; chunks <= 5; chunks++)
                expect_identity(stages, rows, chunks, WEIR_LINK_AUTO, -1);
    expect_identity(3, 7, 4, WEIR_LINK_COPY, -1);
}

// MB-4
static void test_each_output_is_gathered_separately(void) {
    for (int without = 0; without < PASSED; without++)
        expect_identity(2, 7, 4, WEIR_LINK_AUTO, without);
}

static uint64_t planned_borders(const struct weir_pipe_options *options, uint32_t worker) {
    struct weir_plan *plan;
    if (!EXPECT_STATUS(weir_plan_new(options, NULL, &plan), WEIR_OK)) return 0;
    uint64_t bytes = plan->devices[worker].borders;
    weir_plan_destroy(plan);
    return bytes;
}

/* Of all outputs one is asked for; the stage is told so, and the others have no memory. */
static void test_outputs_on_request_have_the_callers_memory_alone(void) {
    enum { STAGES = 2, BATCH = 7, PARTS = 4, ASKED = 1 };
    static struct identity identity;
    static char in[PASSED][36 * BATCH], out[8 * BATCH];
    const void *ins[PASSED];
    void *outs[PASSED] = {NULL};
    struct weir_step step = WEIR_STEP_INIT;
    struct weir_step_result result;
    struct weir_pipe *pipe = NULL;
    identity_init(&identity, STAGES, BATCH, PARTS);
    uint64_t held = planned_borders(&identity.options, STAGES - 1);
    identity.stages[0].output_on_request = true; /* no last stage */
    EXPECT_EQ_UINT(planned_borders(&identity.options, STAGES - 1), held);
    identity.stages[STAGES - 1].output_on_request = true;
    EXPECT(held > 0);
    EXPECT_EQ_UINT(planned_borders(&identity.options, STAGES - 1), 0);
    CHECK_OK(weir_pipe_new(&identity.options, NULL, &pipe));
    for (int k = 0; k < PASSED; k++) ins[k] = in[k];
    for (size_t i = 0; i < sizeof out; i++) in[ASKED][i] = (char)test_random_u64();
    outs[ASKED] = out;
    step.rows = BATCH, step.inputs = ins, step.outputs = outs;
    for (int infer = 0; infer < 2; infer++) {
        memset(out, 0, sizeof out);
        EXPECT_STATUS(infer ? weir_pipe_infer(pipe, &step, &result)
                            : weir_pipe_step(pipe, &step, &result),
                      WEIR_OK);
        EXPECT_EQ_BYTES(out, in[ASKED], sizeof out);
        EXPECT_EQ_INT(atomic_exchange(&identity.without, 0), PARTS * (PASSED - 1));
    }
    step.outputs = NULL;
    EXPECT_STATUS(weir_pipe_step(pipe, &step, &result), WEIR_OK);
    EXPECT_EQ_INT(atomic_load(&identity.without), PARTS * PASSED);
    weir_pipe_destroy(pipe);
}

/* ---- borders of many tensors ---- */

static void many_tensors(void) {
    engine_model_init(&model, 3);
    engine_input(&model, 0, "ids", engine_tensor(WEIR_I64, 3, false));
    engine_input(&model, 0, "mask", engine_tensor(WEIR_BOOL, 1, false));
    engine_input(&model, 2, "labels", engine_tensor(WEIR_U8, 2, false));
    for (uint32_t s = 0; s < 3; s++) {
        struct engine_stage *stage = &model.stages[s];
        stage->outputs[0] = engine_tensor(s == 1 ? WEIR_F64 : WEIR_F32, 3 + s, true);
        stage->outputs[1] = engine_tensor(WEIR_I64, 2, false);
        stage->outputs[2] = engine_tensor(WEIR_BOOL, 3, false);
        stage->outputs[3] = engine_tensor(WEIR_F64, 2, s == 0);
        stage->output_count = 4;
    }
}

// MB-5
static void test_tensors_of_all_dtypes_cross_borders(void) {
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (int mode = WEIR_CHECKPOINT_ALWAYS; mode <= WEIR_CHECKPOINT_NEVER; mode++) {
        for (int k = 0; k < 4; k++) {
            struct engine_trial trial;
            many_tensors();
            struct weir_pipe_options options = engine_options(&model);
            options.rows = 7, options.schedule = schedules[k % 2];
            options.checkpoint = (enum weir_checkpoint)mode;
            options.link = k / 2 == 0 ? WEIR_LINK_POINTER : WEIR_LINK_COPY;
            CHECK(engine_trial_open(&trial, &model, &options, NULL));
            engine_trial_step(&trial);
            engine_trial_infer(&trial);
            engine_trial_close(&trial);
            CHECK_HELPERS();
        }
    }
}

// MB-5
static void test_only_floating_point_carries_a_gradient(void) {
    engine_model_init(&model, 2);
    model.stages[0].outputs[1] = engine_tensor(WEIR_I64, 2, true);
    model.stages[0].output_count = 2;
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG,
                                "stage 0, output 1: i64 tensors carry no gradient"));
}

/* ---- what is refused ---- */

// MB-6
static void test_a_border_without_a_tensor_is_refused(void) {
    engine_model_init(&model, 3);
    model.stages[1].output_count = 0;
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG,
                                "stage 1: a border needs at least one tensor"));
    engine_model_init(&model, 2);
    model.inputs[0].stage = 1;
    options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG,
                                "stage 0: a border needs at least one tensor"));
}

// MB-6
static void test_no_chunks_and_no_rows_are_refused(void) {
    engine_model_init(&model, 2);
    struct weir_pipe_options options = engine_options(&model);
    options.chunks = 0;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "chunks must be at least 1"));
    options.rows = 0;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "rows must be at least 1"));
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "chunks must be at least 1"));
    options.rows = -3, options.chunks = 1;
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "rows must be at least 1"));
}

static void test_shapes_that_cannot_be_are_refused(void) {
    engine_model_init(&model, 2);
    model.stages[0].outputs[0].shape[0] = 0;
    struct weir_pipe_options options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "stage 0, output 0"));
    engine_model_init(&model, 2);
    model.stages[0].outputs[0].shape[0] = INT64_MAX;
    options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "stage 0, output 0"));
    engine_model_init(&model, 2);
    model.inputs[0].tensor.rank = WEIR_RANK_MAX + 1;
    options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "input 0"));
    engine_model_init(&model, 2);
    model.inputs[0].tensor.dtype = WEIR_DTYPE_COUNT;
    options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "input 0"));
    engine_model_init(&model, 2);
    engine_input(&model, 2, "late", engine_tensor(WEIR_F32, 1, false));
    options = engine_options(&model);
    CHECK(engine_expect_refused(&options, WEIR_ERR_CONFIG, "input 1: enters at stage 2"));
}

WEIR_TEST_SUITE(microbatch, TEST(rows_are_dealt_as_torch_chunk_does),
                TEST(a_pipe_gets_the_rows_that_torch_chunk_gives),
                TEST(each_input_is_split_by_its_own_rows),
                TEST(row_counts_that_split_differently_are_refused),
                TEST(a_row_count_that_splits_differently_is_not_prepared),
                TEST(a_replicated_input_reaches_every_micro_batch_whole),
                TEST(a_replicated_input_has_no_gradient), TEST(scatter_then_gather_is_the_identity),
                TEST(each_output_is_gathered_separately),
                TEST(outputs_on_request_have_the_callers_memory_alone),
                TEST(tensors_of_all_dtypes_cross_borders),
                TEST(only_floating_point_carries_a_gradient),
                TEST(a_border_without_a_tensor_is_refused), TEST(no_chunks_and_no_rows_are_refused),
                TEST(shapes_that_cannot_be_are_refused))
