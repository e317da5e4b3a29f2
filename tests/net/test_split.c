/* SPDX-License-Identifier: MIT */
/*
 * Goal: where backward is split, what lasts from I to W is what W reads, all of it and no more, and
 * the plan counts it to the byte. Method: plans of small tables against sums made by hand; the two
 * parts of stages run on memory of this test's, all that W should not need poisoned, then, line by
 * line, what it should.
 */
#include "harness.h"
#include "net/net_trial.h"
#include "weir_net.h"

#include "net/compile/compile.h"
#include "net/compile/program.h"

#include <string.h>

/* ---- plans of the engine ---- */

/** A stage that is planned, never run. */
struct planned {
    struct weir_stage_bytes bytes;
    uint32_t asked[4]; /* phases, of each measure */
    uint32_t count;
};

static int never(void *context, const struct weir_task *task) {
    (void)context;
    (void)task;
    return WEIR_ERR_CALLBACK;
}

static int measure(void *context, int64_t rows, struct weir_stage_bytes *bytes) {
    struct planned *planned = context;
    (void)rows;
    if (planned->count < 4) planned->asked[planned->count++] = bytes->phases;
    *bytes = planned->bytes;
    return WEIR_OK;
}

static const struct weir_stage_calls calls = {.forward = never,
                                              .recompute = never,
                                              .backward = never,
                                              .backward_input = never,
                                              .backward_weight = never,
                                              .measure = measure};
static const struct weir_tensor number = {.dtype = WEIR_F32};

static struct weir_pipe_options options_of(const struct weir_stage *stages, uint32_t count,
                                           const struct weir_input *input, const char *table) {
    struct weir_pipe_options options = WEIR_PIPE_OPTIONS_INIT;
    options.allocator = test_allocator();
    options.stages = stages, options.stage_count = count;
    options.inputs = input, options.input_count = 1;
    options.table_csv = table, options.table_csv_bytes = strlen(table);
    options.checkpoint = WEIR_CHECKPOINT_NEVER;
    options.bind = "none";
    return options;
}

static void plan_devices(const struct weir_pipe_options *options,
                         struct weir_device_plan devices[2]) {
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_plan *plan;
    if (EXPECT_STATUS(weir_plan_new(options, &faults, &plan), WEIR_OK)) {
        memcpy(devices, plan->devices, plan->device_count * sizeof devices[0]);
        weir_plan_destroy(plan);
    }
    for (uint32_t i = 0; i < faults.kept; i++) TEST_FAIL("%s", faults.lines[i]);
    weir_faults_clean_up(&faults);
}

static struct weir_stage stage_of(struct planned *planned, const struct weir_tensor *output) {
    struct weir_stage stage = WEIR_STAGE_INIT;
    stage.calls = &calls, stage.context = planned;
    stage.outputs = output, stage.output_count = 1;
    return stage;
}

/* Areas of 1024, 2048 and 512 bytes, of two micro-batches. */
static void check_areas(const struct weir_stage_bytes *bytes) {
    static const struct {
        const char *table;
        uint64_t activations;
    } cases[] = {{"0F0,0F1,0B0,0B1", 2 * (1024 + 2048)},
                 {"0F0,0F1,0I0,0I1,0W0,0W1", 2 * (1024 + 2048) + 512},
                 {"0F0,0I0,0F1,0I1,0W0,0W1", 2 * 1024 + 2048 + 2 * 512},
                 {"0F0,0I0,0W0,0F1,0I1,0W1", 1024 + 2048 + 512},
                 {"0F0,0I0,0F1,0B1,0W0", 1024 + 512 + 1024 + 2048},
                 {"0F0,0F1,0R0,0I0,0R1,0I1,0W0,0W1", 2 * 1024 + 2048 + 2 * 512}};
    struct planned planned = {.bytes = *bytes};
    struct weir_stage stage = stage_of(&planned, &number);
    struct weir_input input = {.tensor = number, .name = "x"};
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        struct weir_device_plan devices[2] = {{.total = 0}};
        struct weir_pipe_options options = options_of(&stage, 1, &input, cases[i].table);
        options.rows = options.chunks = 2;
        plan_devices(&options, devices);
        if (!EXPECT_EQ_UINT(devices[0].activations, cases[i].activations))
            TEST_FAIL("the table is %s", cases[i].table);
    }
}

static void test_areas_live_as_long_as_they_are_read(void) {
    static const struct weir_area further[] = {{500, WEIR_AREA_LEFT_FOR_WEIGHT},
                                               {1000, WEIR_AREA_SAVED_FOR_INPUT},
                                               {0, WEIR_AREA_SAVED},
                                               {500, WEIR_AREA_SAVED},
                                               {1000, WEIR_AREA_SAVED_FOR_INPUT}};
    check_areas(
        &(struct weir_stage_bytes){.saved = 1000, .saved_for_input = 2000, .left_for_weight = 500});
    check_areas(&(struct weir_stage_bytes){.saved = 500, .areas = further, .area_count = 5});
}

static void test_an_area_of_an_unknown_life_is_refused(void) {
    const struct weir_area odd = {64, (enum weir_area_life)3};
    struct planned planned = {.bytes = {.saved = 64, .areas = &odd, .area_count = 1}};
    struct weir_stage stage = stage_of(&planned, &number);
    struct weir_input input = {.tensor = number, .name = "x"};
    struct weir_pipe_options options = options_of(&stage, 1, &input, "0F0,0B0");
    struct weir_faults faults = {.allocator = test_allocator()};
    struct weir_plan *plan;
    options.rows = options.chunks = 1;
    EXPECT_STATUS(weir_plan_new(&options, &faults, &plan), WEIR_ERR_ARGUMENT);
    if (EXPECT_EQ_UINT(faults.kept, 1)) EXPECT_CONTAINS(faults.lines[0], "measuring 1 row failed");
    weir_faults_clean_up(&faults);
}

static void test_a_measure_is_told_which_phases_there_will_be(void) {
    enum { F = 1u << WEIR_FORWARD, FC = 1u << WEIR_FORWARD_CHECKPOINT, R = 1u << WEIR_RECOMPUTE };
    enum { B = 1u << WEIR_BACKWARD, I = 1u << WEIR_BACKWARD_INPUT, W = 1u << WEIR_BACKWARD_WEIGHT };
    static const struct {
        const char *table;
        uint32_t phases[2]; /* of either stage */
    } cases[] = {{"0F0,1F0,1B0,0B0\n", {F | B, F | B}},
                 {"0F0,1F0,1I0,0B0,1W0\n", {F | B, F | I | W}},
                 {"0F0,1F0,1I0,0R0,0I0,1W0,0W0\n", {FC | R | I | W, F | I | W}}};
    struct weir_input input = {.tensor = number, .name = "x"};
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        struct planned planned[2] = {{.count = 0}, {.count = 0}};
        struct weir_device_plan devices[2];
        struct weir_stage stages[2] = {stage_of(&planned[0], &number),
                                       stage_of(&planned[1], &number)};
        struct weir_pipe_options options = options_of(stages, 2, &input, cases[i].table);
        options.rows = options.chunks = 1;
        plan_devices(&options, devices);
        for (uint32_t s = 0; s < 2; s++) {
            EXPECT_EQ_UINT(planned[s].count, 2); /* training and inference */
            EXPECT_EQ_UINT(planned[s].asked[0], cases[i].phases[s]);
            EXPECT_EQ_UINT(planned[s].asked[1], 1u << WEIR_INFER);
        }
    }
}

/* Three micro-batches, one after the other, but for the W, which are last. What W reads of the
 * border lives to the end three times, else once. Borders have 1024 bytes, skips 2048. */
static void plan_border(const char *table, uint32_t split, const struct weir_weight_reads *reads,
                        struct weir_device_plan devices[2]) {
    struct weir_tensor border = {
        .dtype = WEIR_F32, .rank = 1, .shape = {256}, .differentiable = true};
    struct weir_skip_use skips[2] = {{.verb = WEIR_SKIP_STASH, .name = "a", .tensor = border},
                                     {.verb = WEIR_SKIP_POP, .name = "a", .tensor = border}};
    skips[0].tensor.shape[0] = skips[1].tensor.shape[0] = 512;
    skips[1].kept = true;
    struct planned planned[2] = {{.count = 0}, {.count = 0}};
    struct weir_stage stages[2] = {stage_of(&planned[0], &border), stage_of(&planned[1], &number)};
    for (uint32_t s = 0; s < 2; s++) stages[s].skips = &skips[s], stages[s].skip_count = 1;
    stages[split].weight_reads = *reads;
    struct weir_input input = {.tensor = number, .name = "x"};
    struct weir_pipe_options options = options_of(stages, 2, &input, table);
    options.rows = options.chunks = 3;
    plan_devices(&options, devices);
}

static void test_what_comes_over_the_border_lasts_till_its_reader(void) {
    static const char of_last[] = "0F0,0B0,0F1,0B1,0F2,0B2\n1F0,1I0,1F1,1I1,1F2,1I2,1W0,1W1,1W2\n";
    static const char of_first[] = "0F0,0I0,0F1,0I1,0F2,0I2,0W0,0W1,0W2\n1F0,1B0,1F1,1B1,1F2,1B2\n";
    for (uint32_t mask = 0; mask < 4; mask++) {
        struct weir_weight_reads reads = {.inputs = mask & 1, .skips = mask >> 1};
        struct weir_device_plan devices[2] = {{.total = 0}};
        plan_border(of_last, 1, &reads, devices);
        EXPECT_EQ_UINT(devices[0].borders, (mask & 1 ? 3 : 1) * 1024);
        EXPECT_EQ_UINT(devices[0].portals, (mask & 2 ? 3 : 1) * 2048);
        reads = (struct weir_weight_reads){.output_grads = mask & 1, .skip_grads = mask >> 1};
        plan_border(of_first, 0, &reads, devices);
        EXPECT_EQ_UINT(devices[1].borders, (mask & 1 ? 3 : 1) * 1024);
        EXPECT_EQ_UINT(devices[1].portals, (mask & 2 ? 3 : 1) * 2048);
    }
}

/* A stage that says nothing may read everything. */
static void test_by_default_everything_at_the_border_is_kept(void) {
    struct weir_stage init = WEIR_STAGE_INIT;
    struct weir_device_plan devices[2] = {{.total = 0}};
    plan_border("0F0,0B0,0F1,0B1,0F2,0B2\n1F0,1I0,1F1,1I1,1F2,1I2,1W0,1W1,1W2\n", 1,
                &init.weight_reads, devices);
    EXPECT_EQ_UINT(devices[0].borders, 3 * 1024);
    EXPECT_EQ_UINT(devices[0].portals, 3 * 2048);
}

/* ---- a plan of a net ---- */

static const struct weir_tensor row8 = {.dtype = WEIR_F32, .rank = 1, .shape = {8}};

static void add_linear(struct weir_model *model, int64_t out) {
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", out)));
}

static struct weir_model *linear_model(bool frozen) {
    struct weir_model *model = trial_model(row8, row8, "mse");
    add_linear(model, 16);
    add_linear(model, 32);
    trial_add(model, "gelu", WEIR_NO_ATTRS);
    add_linear(model, 8);
    if (model == NULL || !frozen) return model;
    EXPECT_STATUS(weir_model_freeze(model, "1.*"), WEIR_OK);
    EXPECT_STATUS(weir_model_freeze(model, "3.*"), WEIR_OK);
    return model;
}

/*
 * Two rows of f64, so 512 bytes of width 32 and 128 of width 8. Stage 1 is linear -> h, gelu -> g,
 * linear -> y, loss. I reads h (gelu) and y (loss), W reads g (the second product), and of what I
 * makes the gradients of y and h. Frozen, W reads nothing. Stage 0 is a product whose input and
 * gradient lie at the border: nothing is saved or left.
 */
static void test_a_nets_plan_is_the_sum_of_what_its_products_read(void) {
    enum { H = 512, G = 512, Y = 128 };
    static const struct {
        const char *table;
        bool frozen;
        uint64_t activations;
    } cases[] = {
        {"0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", false, 2 * (H + G + Y)},
        {"0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1F1,1I0,1I1,1W0,1W1\n", false, 2 * (H + G + Y) + Y + H},
        {"0F0,0I0,0F1,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n", false,
         2 * G + (H + Y) + 2 * (Y + H)},
        {"0F0,0I0,0F1,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n", true, H + Y}};
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        struct weir_model *model = linear_model(cases[i].frozen);
        struct weir_net_options options = trial_options(2, 4, 2);
        struct weir_plan *plan = NULL;
        options.balance = (const uint32_t[]){1, 3};
        options.pipe.table_csv = cases[i].table;
        options.pipe.table_csv_bytes = strlen(cases[i].table);
        options.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
        CHECK(model != NULL);
        CHECK_OK(weir_net_plan(model, &options, NULL, &plan));
        EXPECT_EQ_UINT(plan->devices[0].activations, 0);
        EXPECT_EQ_UINT(plan->devices[1].activations, cases[i].activations);
        weir_plan_destroy(plan);
        weir_model_destroy(model);
    }
}

/* Micro-batches of 2, 2, 2, 2 rows, then 2, 2, 2, 1: as many, so that the table holds. */
static void test_a_split_table_takes_other_row_counts(void) {
    static char table[TRIAL_TABLE_BYTES];
    struct weir_model *model = linear_model(false);
    struct trial_data data[2];
    struct trial_result want[2] = {{0}, {0}}, got = {0};
    struct weir_net_options options = trial_options(2, 8, 4);
    CHECK(model != NULL);
    for (int k = 0; k < 2; k++) trial_data_init(&data[k], &row8, &row8, WEIR_F64, 8 - k, 1, 1);
    for (int split = 0; split < 2; split++) {
        if (split) trial_split(&options, 60, table);
        struct weir_net *net = trial_net(model, &options);
        for (int k = 0; net != NULL && k < 2; k++) {
            trial_step(net, model, &data[k], split ? &got : &want[k]);
            if (split) trial_result_compare(&want[k], &got);
            if (split) trial_result_clean_up(&got);
        }
        weir_net_destroy(net);
    }
    for (int k = 0; k < 2; k++) {
        trial_result_clean_up(&want[k]);
        trial_data_clean_up(&data[k]);
    }
    weir_model_destroy(model);
}

/* ---- the two parts, on memory of this test's ---- */

enum { AREA = 1 << 15, BASES = WEIR__BASE_SKIPS + 3 * 4, ROWS = 2, LINE = 64 };

/* What the weight parts of a test's stages read. */
static struct weir_weight_reads seen;

struct bench {
    struct weir__stage_graph *stage;
    struct weir__slices slices;
    struct weir__instance *instance;
    enum weir_dtype dtype;
    unsigned char *memory; /* BASES areas */
    uintptr_t bases[BASES];
};

static unsigned char *area(const struct bench *bench, uint32_t base) {
    return bench->memory + (size_t)base * AREA;
}

static void run(struct bench *bench, enum weir__program_kind kind) {
    const struct weir__planned_call *failed;
    struct weir__program_run run = {.bases = bench->bases,
                                    .output_wanted = true,
                                    .call = {.overwrite = true, .seed = 1, .loss_weight = 1}};
    if (!EXPECT(bench->instance->programs[kind].workspace <= AREA)) return;
    EXPECT_STATUS(weir__program_run(&bench->instance->programs[kind], &run, &failed), WEIR_OK);
}

static void fill(struct bench *bench, uint32_t base) {
    for (uint32_t i = 0; i < AREA / weir_dtype_bytes(bench->dtype); i++) {
        double value = test_random_unit() - 0.5;
        if (bench->dtype == WEIR_F64)
            ((double *)(void *)area(bench, base))[i] = value;
        else
            ((float *)(void *)area(bench, base))[i] = (float)value;
    }
}

/* What backward writes for others. */
static bool gives(uint32_t base) {
    bool skip_out = base >= WEIR__BASE_SKIPS && (base - WEIR__BASE_SKIPS) % 3 == 2;
    return base == WEIR__BASE_INPUT_GRAD || base == WEIR__BASE_GRADIENTS || skip_out;
}

/* What the weight part reads of a base, in bytes. */
static size_t read_of(const struct bench *bench, uint32_t base) {
    const struct weir__graph *graph = &bench->stage->graph;
    const struct weir_weight_reads *reads = &bench->slices.weight_reads;
    const struct weir_value *value = NULL;
    size_t bytes = 0;
    if (base == WEIR__BASE_SAVED) return bench->instance->saved;
    if (base == WEIR__BASE_LEFT_FOR_WEIGHT) return bench->instance->left_for_weight;
    if (base >= WEIR__BASE_AREAS && base - WEIR__BASE_AREAS < bench->instance->area_count) {
        const struct weir_area *further = &bench->instance->areas[base - WEIR__BASE_AREAS];
        return further->life == WEIR_AREA_SAVED_FOR_INPUT ? 0 : further->bytes;
    }
    if (base == WEIR__BASE_INPUT && (reads->inputs & 1)) value = graph->inputs[0];
    if (base == WEIR__BASE_OUTPUT_GRAD && (reads->output_grads & 1)) value = graph->output;
    for (uint32_t k = 0; k < graph->skip_count; k++) {
        if (base == WEIR__BASE_SKIP(k) && (reads->skips >> k & 1)) value = graph->skips[k].value;
        if (base == WEIR__BASE_SKIP_GRAD(k) && (reads->skip_grads >> k & 1))
            value = graph->skips[k].value;
    }
    if (value != NULL) EXPECT_STATUS(weir__value_bytes(value, ROWS, &bytes), WEIR_OK);
    return bytes;
}

/* Runs I, then W with nothing left in memory but what it reads. */
static void check_parts(struct bench *bench, const unsigned char *whole) {
    unsigned char *gradients = area(bench, WEIR__BASE_GRADIENTS);
    for (uint32_t base = 0; base < BASES; base++)
        if (gives(base)) memset(area(bench, base), 0x11, AREA);
    run(bench, WEIR__PROGRAM_BACKWARD_INPUT);
    for (uint32_t base = 0; base < BASES; base++)
        if (gives(base) && base != WEIR__BASE_GRADIENTS)
            EXPECT_EQ_BYTES(area(bench, base), whole + (size_t)base * AREA, AREA);
    for (size_t i = 0; i < AREA && !test_has_failed(); i++)
        if (gradients[i] != 0x11) TEST_FAIL("I wrote byte %zu of the gradients", i);
    for (uint32_t base = 1; base < BASES; base++) {
        if (base == WEIR__BASE_PARAMETERS || base == WEIR__BASE_GRADIENTS) continue;
        size_t keeps = read_of(bench, base);
        memset(area(bench, base) + keeps, 0xFF, AREA - keeps);
    }
    run(bench, WEIR__PROGRAM_BACKWARD_WEIGHT);
    EXPECT_EQ_BYTES(gradients, whole + (size_t)WEIR__BASE_GRADIENTS * AREA, AREA);
}

/* Every line that is kept matters. */
static void check_lines(struct bench *bench, const unsigned char *whole) {
    const unsigned char *want = whole + (size_t)WEIR__BASE_GRADIENTS * AREA;
    for (uint32_t base = 1; base < BASES && !test_has_failed(); base++) {
        size_t bytes = read_of(bench, base);
        for (size_t at = 0; at < bytes; at += LINE) {
            unsigned char kept[LINE];
            size_t count = bytes - at < LINE ? bytes - at : LINE;
            memcpy(kept, area(bench, base) + at, count);
            memset(area(bench, base) + at, 0xFF, count);
            run(bench, WEIR__PROGRAM_BACKWARD_WEIGHT);
            if (memcmp(area(bench, WEIR__BASE_GRADIENTS), want, AREA) == 0)
                TEST_FAIL("W does not read line %zu of base %u", at / LINE, base);
            memcpy(area(bench, base) + at, kept, count);
        }
    }
}

static void check_stage(struct bench *bench) {
    unsigned char *whole = weir__acquire(test_allocator(), BASES, AREA);
    bench->memory = weir__acquire(test_allocator(), BASES, AREA);
    if (!EXPECT(bench->memory != NULL && whole != NULL)) return;
    for (uint32_t base = 1; base < BASES; base++) {
        bench->bases[base] = (uintptr_t)area(bench, base);
        fill(bench, base);
        if (gives(base)) memset(area(bench, base), 0x11, AREA);
    }
    run(bench, WEIR__PROGRAM_FORWARD);
    run(bench, WEIR__PROGRAM_BACKWARD);
    memcpy(whole, bench->memory, (size_t)BASES * AREA);
    check_parts(bench, whole);
    if (!test_has_failed()) check_lines(bench, whole);
    weir__release(test_allocator(), whole, BASES, AREA);
    weir__release(test_allocator(), bench->memory, BASES, AREA);
}

static void make_bench(const struct weir__network *network, uint32_t s, enum weir_dtype dtype) {
    struct bench bench = {.stage = &network->stages[s], .dtype = dtype};
    struct weir__net_lasting lasting[128] = {{0}};
    size_t offsets[32] = {0}, state;
    uint32_t first = bench.stage->parameter_first, count = bench.stage->parameter_count;
    CHECK(count <= 32 && bench.stage->graph.skip_count <= 4 &&
          bench.stage->graph.node_count <= 128);
    CHECK_OK(weir__slice(&bench.stage->graph, &bench.slices));
    for (uint32_t i = 0; i < count; i++) offsets[i] = network->parameters[first + i].offset;
    struct weir__instance_options options = {.allocator = test_allocator(),
                                             .backend = &weir__backend_reference,
                                             .slices = &bench.slices,
                                             .parameter_offsets = offsets,
                                             .parameter_first = first,
                                             .dtype = dtype,
                                             .rows_max = ROWS,
                                             .threads = 1,
                                             .threads_known = true};
    CHECK_OK(weir__lasting_plan(&options, lasting, &state));
    CHECK(state <= AREA);
    options.lasting = lasting;
    CHECK_OK(weir__instance_new(&options, ROWS, &bench.instance));
    EXPECT_STATUS(weir__instance_plan(&options, bench.instance, UINT32_MAX), WEIR_OK);
    EXPECT_STATUS(weir__instance_prepare(bench.instance, bench.stage->graph.node_count, 1, NULL),
                  WEIR_OK);
    if (!test_has_failed()) check_stage(&bench);
    seen.inputs |= bench.slices.weight_reads.inputs;
    seen.skips |= bench.slices.weight_reads.skips;
    seen.output_grads |= bench.slices.weight_reads.output_grads;
    seen.skip_grads |= bench.slices.weight_reads.skip_grads;
    weir__instance_release(bench.instance, bench.stage->graph.node_count);
    weir__instance_destroy(test_allocator(), bench.instance);
}

/* Stages `from` and on, in both precisions. */
static void check_model(struct weir_model *model, const uint32_t *balance, uint32_t stages,
                        uint32_t from, uint32_t end) {
    for (int k = 0; model != NULL && k < 2 && !test_has_failed(); k++) {
        struct weir__network network;
        struct weir__compile_options options = {
            .dtype = k == 0 ? WEIR_F64 : WEIR_F32, .balance = balance, .stage_count = stages};
        if (!EXPECT_STATUS(weir__network_init(&network, test_allocator(), model, &options, NULL),
                           WEIR_OK))
            break;
        for (uint32_t s = from; s < end && !test_has_failed(); s++) {
            make_bench(&network, s, options.dtype);
            if (test_has_failed()) TEST_FAIL("stage %u, %s", s, weir_dtype_name(options.dtype));
        }
        weir__network_clean_up(&network);
    }
    weir_model_destroy(model);
}

static void test_a_gpt_block_keeps_for_w_what_w_reads(void) {
    struct weir_gpt_options gpt = {1, 8, 2, 4, 5, false, 0.3};
    struct weir_model *model;
    CHECK_OK(weir_model_gpt(test_allocator(), &gpt, NULL, &model));
    check_model(model, (const uint32_t[]){1, 1, 1}, 3, 1, 2);
}

static void test_units_of_images_keep_for_w_what_w_reads(void) {
    struct weir_tensor image = {.dtype = WEIR_F32, .rank = 3, .shape = {2, 5, 4}};
    struct weir_model *model =
        trial_model(image, (struct weir_tensor){.dtype = WEIR_I64}, "cross_entropy");
    struct weir_attrs conv =
        WEIR_ATTRS(WEIR_ATTR_INT("out_channels", 3), WEIR_ATTR_INT("kernel_size", 3));
    trial_add(model, "conv2d", conv);
    trial_add(model, "upsample", WEIR_ATTRS(WEIR_ATTR_INT("scale_factor", 3)));
    trial_add(model, "conv2d", conv);
    trial_add(model, "dropout2d", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.3)));
    trial_add(model, "instance_norm2d", WEIR_NO_ATTRS);
    trial_add(model, "leaky_relu", WEIR_NO_ATTRS);
    trial_add(model, "conv2d", conv);
    trial_add(model, "instance_norm2d", WEIR_ATTRS(WEIR_ATTR_FLAG("affine", true)));
    trial_add(model, "relu", WEIR_NO_ATTRS);
    trial_add(model, "flatten", WEIR_NO_ATTRS);
    add_linear(model, 4);
    check_model(model, (const uint32_t[]){2, 7, 2}, 3, 0, 2);
}

/* x + linear(skip): the product reads a skip where it lies. */
static struct weir_value *build_bridge(struct weir_builder *b, const struct weir_layer *layer,
                                       struct weir_value *x) {
    struct weir_init init = {WEIR_INIT_UNIFORM, 0.5};
    struct weir_value *skip = weir_read(b, "", weir_layer_text(layer, "skip"));
    struct weir_value *w = weir_parameter(b, "w", 2, (int64_t[]){8, 8}, init);
    return weir_sum(b, x, weir_linear(b, skip, w, NULL, false));
}

static const struct weir_attr_rule bridge_attrs[] = {
    {.key = "skip", .kind = WEIR_ATTR_KIND_TEXT, .required = true}};
static const struct weir_layer_type bridge = {.name = "bridge",
                                              .attrs = bridge_attrs,
                                              .attr_count = 1,
                                              .skip_count = 1,
                                              .skips = {{WEIR_SKIP_READ, "skip", NULL}},
                                              .build = build_bridge};

static void test_chains_with_skips_keep_for_w_what_w_reads(void) {
    struct weir_model *model = trial_model(row8, row8, "mse");
    CHECK(model != NULL);
    EXPECT_STATUS(weir_model_add_type(model, &bridge), WEIR_OK);
    add_linear(model, 8);
    trial_add_skip(model, "stash", "a", "");
    add_linear(model, 8);
    trial_add(model, "gelu", WEIR_NO_ATTRS);
    trial_add(model, "bridge", WEIR_ATTRS(WEIR_ATTR_TEXT("skip", "a")));
    trial_add(model, "layer_norm", WEIR_NO_ATTRS);
    add_linear(model, 8);
    trial_add_skip(model, "stash", "b", "");
    trial_add(model, "silu", WEIR_NO_ATTRS);
    trial_add_skip(model, "pop_add", "b", "");
    add_linear(model, 8);
    trial_add_skip(model, "pop_add", "a", "");
    memset(&seen, 0, sizeof seen);
    check_model(model, (const uint32_t[]){2, 6, 4}, 3, 0, 3);
    EXPECT(seen.inputs != 0 && seen.skips != 0 && seen.output_grads != 0 && seen.skip_grads != 0);
}

WEIR_TEST_SUITE(split, TEST(areas_live_as_long_as_they_are_read),
                TEST(an_area_of_an_unknown_life_is_refused),
                TEST(a_measure_is_told_which_phases_there_will_be),
                TEST(what_comes_over_the_border_lasts_till_its_reader),
                TEST(by_default_everything_at_the_border_is_kept),
                TEST(a_nets_plan_is_the_sum_of_what_its_products_read),
                TEST(a_split_table_takes_other_row_counts),
                TEST(a_gpt_block_keeps_for_w_what_w_reads),
                TEST(units_of_images_keep_for_w_what_w_reads),
                TEST(chains_with_skips_keep_for_w_what_w_reads))
