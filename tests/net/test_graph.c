/* SPDX-License-Identifier: MIT */
/*
 * Goal: the compiler of the net library: builder, skips, fusion, slices, packing, partition.
 * Method: models are compiled and their graphs looked at; layer types that misbehave, or that count
 * on one special thing, are made here.
 */
#include "harness.h"
#include "net/net_trial.h"

#include "net/compile/compile.h"
#include "net/compile/program.h"

#include <string.h>

static const struct weir_tensor row4 = {.dtype = WEIR_F32, .rank = 1, .shape = {4}};
static const struct weir_tensor label = {.dtype = WEIR_I64};

static int compile(const struct weir_model *model, const uint32_t *balance, uint32_t stages,
                   struct weir__network *network, struct weir_faults *faults) {
    struct weir__compile_options options = {
        .dtype = WEIR_F64, .balance = balance, .stage_count = stages};
    return weir__network_init(network, test_allocator(), model, &options, faults);
}

static void add_linear(struct weir_model *model, int64_t out) {
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", out)));
}

/* ---- layer types of these tests ---- */

static const struct weir_attr_rule skip_attrs[] = {
    {.key = "skip", .kind = WEIR_ATTR_KIND_TEXT, .required = true}};

static struct weir_value *build_nothing(struct weir_builder *b, const struct weir_layer *layer,
                                        struct weir_value *x) {
    (void)b;
    (void)layer;
    return x;
}

static struct weir_value *build_stash(struct weir_builder *b, const struct weir_layer *layer,
                                      struct weir_value *x) {
    (void)layer;
    weir_stash(b, "", "a", x);
    return x;
}

static struct weir_value *build_read(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    (void)layer;
    weir_read(b, NULL, "a");
    return x;
}

/** Stashes "b" and pops "a". */
static struct weir_value *build_exchange(struct weir_builder *b, const struct weir_layer *layer,
                                         struct weir_value *x) {
    (void)layer;
    weir_stash(b, "", "b", x);
    return weir_sum(b, x, weir_read(b, "", "a"));
}

/** x + dropout(gelu(x)). */
static struct weir_value *build_branch(struct weir_builder *b, const struct weir_layer *layer,
                                       struct weir_value *x) {
    (void)layer;
    return weir_sum(b, x, weir_dropout(b, weir_gelu(b, x, false), 0.4));
}

#define ATTRS(list) .attrs = list, .attr_count = sizeof(list) / sizeof((list)[0])
static const struct weir_layer_type forgets_stash = {.name = "forgets_stash",
                                                     ATTRS(skip_attrs),
                                                     .skip_count = 1,
                                                     .skips = {{WEIR_SKIP_STASH, "skip", NULL}},
                                                     .build = build_nothing};
static const struct weir_layer_type forgets_pop = {.name = "forgets_pop",
                                                   ATTRS(skip_attrs),
                                                   .skip_count = 1,
                                                   .skips = {{WEIR_SKIP_POP, "skip", NULL}},
                                                   .build = build_nothing};
static const struct weir_layer_type secret_stash = {.name = "secret_stash", .build = build_stash};
static const struct weir_layer_type secret_read = {.name = "secret_read", .build = build_read};
static const struct weir_layer_type ignoring_pop = {.name = "ignoring_pop",
                                                    ATTRS(skip_attrs),
                                                    .skip_count = 1,
                                                    .skips = {{WEIR_SKIP_POP, "skip", NULL}},
                                                    .build = build_read};
static const struct weir_attr_rule two_skips[] = {
    {.key = "in", .kind = WEIR_ATTR_KIND_TEXT, .required = true},
    {.key = "out", .kind = WEIR_ATTR_KIND_TEXT, .required = true}};
static const struct weir_layer_type exchange = {
    .name = "exchange",
    ATTRS(two_skips),
    .skip_count = 2,
    .skips = {{WEIR_SKIP_POP, "in", NULL}, {WEIR_SKIP_STASH, "out", NULL}},
    .build = build_exchange};
static const struct weir_layer_type branch = {.name = "branch", .build = build_branch};

static void add_type(struct weir_model *model, const struct weir_layer_type *type,
                     struct weir_attrs attrs) {
    EXPECT_STATUS(weir__model_add_layer(model, type, NULL, attrs, NULL), WEIR_OK);
}

/* ---- skips ---- */

/** Compiles in one stage and expects a refusal whose faults contain all of `wanted`. */
static void expect_refused(struct weir_model *model, int status, const char *const *wanted,
                           uint32_t count) {
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir__network network;
    uint32_t layers = weir_model_layer_count(model);
    if (EXPECT_STATUS(compile(model, &layers, 1, &network, &faults), status))
        for (uint32_t i = 0; i < count; i++) {
            bool found = false;
            for (uint32_t k = 0; k < faults.kept; k++)
                found |= strstr(faults.lines[k], wanted[i]) != NULL;
            if (!found) TEST_FAIL("no fault says '%s'", wanted[i]);
        }
    else
        weir__network_clean_up(&network);
    weir_faults_clean_up(&faults);
    weir_model_destroy(model);
}

#define SKIP_ATTRS(name) WEIR_ATTRS(WEIR_ATTR_TEXT("skip", name))
#define EXPECT_REFUSED(model, status, ...)                                                         \
    expect_refused(model, status, (const char *const[]){__VA_ARGS__},                              \
                   sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

// SK-8
static void test_undeclared_and_forgotten_skips_are_refused(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    add_type(model, &forgets_stash, SKIP_ATTRS("a"));
    trial_add_skip(model, "pop_add", "a", "");
    EXPECT_REFUSED(model, WEIR_ERR_SKIP,
                   "layer 0 (forgets_stash): it declares a stash of skip 'a' and does not do it");
    model = trial_model(row4, label, "cross_entropy");
    trial_add_skip(model, "stash", "a", "");
    add_type(model, &forgets_pop, SKIP_ATTRS("a"));
    EXPECT_REFUSED(model, WEIR_ERR_SKIP,
                   "layer 1 (forgets_pop): it declares a pop of skip 'a' and does not do it");
    model = trial_model(row4, label, "cross_entropy");
    add_type(model, &secret_stash, WEIR_NO_ATTRS);
    EXPECT_REFUSED(model, WEIR_ERR_SKIP,
                   "layer 0 (secret_stash): it stashes skip 'a' without declaring it");
    model = trial_model(row4, label, "cross_entropy");
    trial_add_skip(model, "stash", "a", "");
    add_type(model, &secret_read, WEIR_NO_ATTRS);
    trial_add_skip(model, "pop_add", "a", "");
    EXPECT_REFUSED(model, WEIR_ERR_SKIP,
                   "layer 1 (secret_read): it reads skip 'a' without declaring it");
}

static void test_all_skip_faults_are_listed_with_their_layers(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    trial_add_skip(model, "stash", "lost", "");
    trial_add_skip(model, "pop_add", "never", "");
    trial_add_skip(model, "stash", "twice", "");
    trial_add_skip(model, "stash", "twice", "");
    trial_add_skip(model, "pop_add", "twice", "");
    EXPECT_REFUSED(model, WEIR_ERR_SKIP, "'lost'", "'never'", "'twice'", "0 (stash)", "1 (pop_add)",
                   "3 (stash)");
}

// SK-3
static void test_one_layer_may_pop_and_stash_different_names(void) {
    for (uint32_t stages = 1; stages <= 3; stages++) {
        struct weir_model *model = trial_model(row4, label, "cross_entropy");
        trial_add_skip(model, "stash", "a", "");
        add_type(model, &exchange,
                 WEIR_ATTRS(WEIR_ATTR_TEXT("in", "a"), WEIR_ATTR_TEXT("out", "b")));
        trial_add_skip(model, "pop_add", "b", "");
        uint32_t balance[3] = {stages == 1 ? 3 : 1, stages == 2 ? 2 : 1, 1};
        struct weir__network network;
        if (EXPECT_STATUS(compile(model, balance, stages, &network, NULL), WEIR_OK)) {
            EXPECT_EQ_UINT(network.stages[0].graph.skip_count, stages == 1 ? 0 : 1);
            weir__network_clean_up(&network);
        }
        weir_model_destroy(model);
    }
}

static void check_ignored_skip(struct weir_model *model, uint32_t stages,
                               struct trial_result *result, const struct trial_data *data) {
    struct weir_net_options options = trial_options(stages, 4, 2);
    options.input_grads = true;
    trial_run(model, &options, data, result);
}

// SK-6
static void test_a_popped_skip_that_is_not_used_gives_a_zero_gradient(void) {
    struct trial_result want = {0}, got = {0};
    struct trial_data data;
    trial_data_init(&data, &row4, &label, WEIR_F64, 4, 1, 3);
    struct weir_model *plain = trial_model(row4, label, "cross_entropy");
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    add_linear(plain, 4);
    add_linear(model, 4);
    trial_add(plain, "identity", WEIR_NO_ATTRS);
    trial_add_skip(model, "stash", "a", "");
    add_linear(plain, 3);
    add_linear(model, 3);
    trial_add(plain, "identity", WEIR_NO_ATTRS);
    add_type(model, &ignoring_pop, SKIP_ATTRS("a"));
    check_ignored_skip(plain, 1, &want, &data);
    for (uint32_t stages = 1; stages <= 4; stages++) {
        check_ignored_skip(model, stages, &got, &data);
        if (!test_has_failed()) trial_result_compare(&want, &got);
        trial_result_clean_up(&got);
    }
    trial_result_clean_up(&want);
    trial_data_clean_up(&data);
    weir_model_destroy(plain);
    weir_model_destroy(model);
}

// SK-6
static void test_a_skip_of_the_input_needs_no_gradient(void) {
    for (uint32_t stages = 1; stages <= 3; stages++) {
        struct weir_model *model = trial_model(row4, label, "cross_entropy");
        trial_add_skip(model, "stash", "a", "");
        add_linear(model, 4);
        trial_add_skip(model, "pop_add", "a", "");
        struct trial_data data;
        trial_data_init(&data, &row4, &label, WEIR_F64, 4, 1, 3);
        struct weir_net_options options = trial_options(stages, 4, 2);
        trial_check_gradients(model, &options, &data);
        trial_data_clean_up(&data);
        weir_model_destroy(model);
    }
}

/* ---- slices ---- */

// CK-7
static void test_recompute_has_only_what_backward_reads(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    add_linear(model, 8);
    trial_add(model, "gelu", WEIR_NO_ATTRS);
    add_linear(model, 4);
    trial_add(model, "dropout", WEIR_NO_ATTRS);
    add_linear(model, 3);
    uint32_t balance[2] = {4, 1};
    struct weir__network network;
    struct weir__slices slices;
    CHECK_OK(compile(model, balance, 2, &network, NULL));
    CHECK_OK(weir__slice(&network.stages[0].graph, &slices));
    EXPECT_EQ_UINT(slices.node_counts[WEIR__PROGRAM_FORWARD], 4);
    EXPECT_EQ_UINT(slices.node_counts[WEIR__PROGRAM_CHECKPOINT], 4);
    EXPECT_EQ_UINT(slices.node_counts[WEIR__PROGRAM_RECOMPUTE], 2);
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_RECOMPUTE, WEIR__OP_linear), 1);
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_RECOMPUTE, WEIR__OP_gelu), 1);
    EXPECT_EQ_UINT(slices.inputs_kept, 1);
    EXPECT_EQ_UINT(slices.inputs_recomputed, 1);
    /* The loss reads the last product and its own logarithms. */
    CHECK_OK(weir__slice(&network.stages[1].graph, &slices));
    EXPECT_EQ_UINT(slices.node_counts[WEIR__PROGRAM_RECOMPUTE], 2);
    EXPECT_EQ_UINT(slices.inputs_kept, 3);
    weir__network_clean_up(&network);
    weir_model_destroy(model);
}

// CK-7
static void test_recompute_of_a_gpt_block_leaves_its_last_product_out(void) {
    struct weir_gpt_options options = WEIR_GPT_OPTIONS_INIT;
    options.layers = 1, options.width = 8, options.heads = 2, options.context = 4;
    options.dropout = 0.1;
    struct weir_model *model;
    CHECK_OK(weir_model_gpt(test_allocator(), &options, NULL, &model));
    uint32_t balance[3] = {1, 1, 1};
    struct weir__network network;
    struct weir__slices slices;
    CHECK_OK(compile(model, balance, 3, &network, NULL));
    CHECK_OK(weir__slice(&network.stages[1].graph, &slices));
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_FORWARD, WEIR__OP_linear), 4);
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_RECOMPUTE, WEIR__OP_linear), 3);
    EXPECT_EQ_UINT(slices.node_counts[WEIR__PROGRAM_FORWARD], 10);
    EXPECT_EQ_UINT(slices.node_counts[WEIR__PROGRAM_RECOMPUTE], 8);
    weir__network_clean_up(&network);
    weir_model_destroy(model);
}

/** The parts of backward are disjoint and make the whole. */
static void check_parts(const struct weir__slices *slices) {
    uint32_t whole = slices->node_counts[WEIR__PROGRAM_BACKWARD], input = 0, weight = 0;
    for (uint32_t i = 0; i < whole; i++) {
        uint32_t node = slices->nodes[WEIR__PROGRAM_BACKWARD][i];
        bool in_input = input < slices->node_counts[WEIR__PROGRAM_BACKWARD_INPUT] &&
                        slices->nodes[WEIR__PROGRAM_BACKWARD_INPUT][input] == node;
        bool in_weight = weight < slices->node_counts[WEIR__PROGRAM_BACKWARD_WEIGHT] &&
                         slices->nodes[WEIR__PROGRAM_BACKWARD_WEIGHT][weight] == node;
        EXPECT(in_input != in_weight);
        input += in_input;
        weight += in_weight;
    }
    EXPECT_EQ_UINT(input, slices->node_counts[WEIR__PROGRAM_BACKWARD_INPUT]);
    EXPECT_EQ_UINT(weight, slices->node_counts[WEIR__PROGRAM_BACKWARD_WEIGHT]);
    EXPECT(input > 0 && weight > 0);
}

static void test_the_parts_of_backward_make_the_whole(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    add_linear(model, 4);
    trial_add_skip(model, "stash", "a", "");
    trial_add(model, "layer_norm", WEIR_NO_ATTRS);
    add_linear(model, 4);
    trial_add(model, "dropout", WEIR_NO_ATTRS);
    trial_add_skip(model, "pop_add", "a", "");
    add_linear(model, 3);
    uint32_t balance[2] = {3, 4};
    struct weir__network network;
    struct weir__slices slices;
    CHECK_OK(compile(model, balance, 2, &network, NULL));
    for (uint32_t s = 0; s < 2; s++) {
        CHECK_OK(weir__slice(&network.stages[s].graph, &slices));
        if (s == 1) check_parts(&slices);
        EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_BACKWARD_INPUT, WEIR__OP_bias_grad),
                       0);
    }
    weir__network_clean_up(&network);
    struct trial_data data;
    struct trial_result want, got;
    trial_data_init(&data, &row4, &label, WEIR_F64, 5, 1, 3);
    struct weir_net_options options = trial_options(2, 5, 2);
    options.balance = balance;
    static const char split[] = "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1W0,1F1,1I1,1W1\n";
    trial_run(model, &options, &data, &want);
    options.pipe.table_csv = split, options.pipe.table_csv_bytes = strlen(split);
    options.pipe.checkpoint = WEIR_CHECKPOINT_ALWAYS;
    trial_run(model, &options, &data, &got);
    if (!test_has_failed()) trial_result_compare(&want, &got);
    trial_result_clean_up(&want);
    trial_result_clean_up(&got);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* ---- programs ---- */

enum { AREA = 1 << 16, AREAS = WEIR__BASE_SKIPS, SAVED = (1 + WEIR__AREAS_MAX) * AREA };

/** A stage's programs on memory of this test's. */
struct bench {
    struct weir__instance *instance;
    unsigned char *areas[AREAS]; /* one per base */
    uintptr_t bases[AREAS];
};

/** Runs a program with its saved area at `saved`, further ones behind it, AREA apart; workspace is
 * full of `poison`. */
static void run_program(struct bench *bench, enum weir__program_kind kind, unsigned char *saved,
                        int poison) {
    const struct weir__planned_call *failed;
    struct weir__program_run run = {.bases = bench->bases,
                                    .output_wanted = true,
                                    .call = {.overwrite = true, .seed = 1, .loss_weight = 1}};
    bench->bases[WEIR__BASE_SAVED] = (uintptr_t)saved;
    for (uint32_t a = 0; a < WEIR__AREAS_MAX; a++)
        bench->bases[WEIR__BASE_AREAS + a] = saved == NULL ? 0 : (uintptr_t)saved + (1 + a) * AREA;
    memset(bench->areas[WEIR__BASE_WORKSPACE], poison, AREA);
    EXPECT(bench->instance->programs[kind].workspace <= AREA && bench->instance->saved <= AREA);
    EXPECT_STATUS(weir__program_run(&bench->instance->programs[kind], &run, &failed), WEIR_OK);
}

static void check_recompute(struct bench *bench) {
    static _Alignas(64) unsigned char forward[SAVED], recompute[SAVED];
    for (int i = 1; i < AREAS; i++) {
        bench->areas[i] = weir__acquire(test_allocator(), AREA, 1);
        if (!EXPECT(bench->areas[i] != NULL)) return;
        bench->bases[i] = (uintptr_t)bench->areas[i];
    }
    for (uint32_t base = WEIR__BASE_PARAMETERS; base <= WEIR__BASE_INPUT; base++)
        for (size_t i = 0; i < AREA / sizeof(double); i++)
            ((double *)bench->areas[base])[i] = test_random_unit() - 0.5;
    memset(forward, 0xA5, SAVED);
    memset(recompute, 0xA5, SAVED);
    run_program(bench, WEIR__PROGRAM_FORWARD, forward, 0xFF);
    memset(bench->areas[WEIR__BASE_OUTPUT], 0x11, AREA);
    run_program(bench, WEIR__PROGRAM_RECOMPUTE, recompute, 0x7F);
    EXPECT(bench->instance->area_count > 0);
    EXPECT_EQ_BYTES(forward, recompute, SAVED);
    for (int i = 0; i < AREA; i++) EXPECT_EQ_INT(bench->areas[WEIR__BASE_OUTPUT][i], 0x11);
    run_program(bench, WEIR__PROGRAM_CHECKPOINT, NULL, 0xFF);
    memcpy(recompute, bench->areas[WEIR__BASE_OUTPUT], AREA);
    memset(bench->areas[WEIR__BASE_OUTPUT], 0x11, AREA);
    run_program(bench, WEIR__PROGRAM_FORWARD, forward, 0x7F);
    EXPECT_EQ_BYTES(bench->areas[WEIR__BASE_OUTPUT], recompute, AREA);
    for (int i = 1; i < AREAS; i++) weir__release(test_allocator(), bench->areas[i], AREA, 1);
}

static void test_recompute_leaves_the_bytes_that_forward_saved(void) {
    struct weir_gpt_options gpt = {1, 8, 2, 4, 5, false, 0.3};
    struct weir_model *model;
    CHECK_OK(weir_model_gpt(test_allocator(), &gpt, NULL, &model));
    uint32_t balance[3] = {1, 1, 1};
    struct weir__network network;
    struct weir__slices slices;
    CHECK_OK(compile(model, balance, 3, &network, NULL));
    CHECK_OK(weir__slice(&network.stages[1].graph, &slices));
    size_t offsets[16] = {0};
    const struct weir__stage_graph *stage = &network.stages[1];
    for (uint32_t i = 0; i < stage->parameter_count && i < 16; i++)
        offsets[i] = network.parameters[stage->parameter_first + i].offset;
    struct weir__instance_options options = {.allocator = test_allocator(),
                                             .backend = &weir__backend_reference,
                                             .slices = &slices,
                                             .parameter_offsets = offsets,
                                             .parameter_first = stage->parameter_first,
                                             .dtype = WEIR_F64,
                                             .rows_max = 2,
                                             .threads = 1,
                                             .threads_known = true};
    struct bench bench = {0};
    CHECK_OK(weir__instance_new(&options, 2, &bench.instance));
    CHECK_OK(weir__instance_plan(&options, bench.instance, UINT32_MAX));
    CHECK_OK(weir__instance_prepare(bench.instance, stage->graph.node_count, 1, NULL));
    check_recompute(&bench);
    weir__instance_release(bench.instance, stage->graph.node_count);
    weir__instance_destroy(test_allocator(), bench.instance);
    weir__network_clean_up(&network);
    weir_model_destroy(model);
}

/* ---- fusion ---- */

static void test_dropout_and_sum_are_fused_within_a_layer_only(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    add_type(model, &branch, WEIR_NO_ATTRS);
    trial_add_skip(model, "stash", "a", "");
    trial_add(model, "gelu", WEIR_NO_ATTRS);
    trial_add(model, "dropout", WEIR_NO_ATTRS);
    trial_add_skip(model, "pop_add", "a", "");
    uint32_t balance = 5;
    struct weir__network network;
    struct weir__slices slices;
    CHECK_OK(compile(model, &balance, 1, &network, NULL));
    CHECK_OK(weir__slice(&network.stages[0].graph, &slices));
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_FORWARD, WEIR__OP_dropout_add), 1);
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_FORWARD, WEIR__OP_dropout), 1);
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_FORWARD, WEIR__OP_add), 1);
    weir__network_clean_up(&network);
    weir_model_destroy(model);
}

static void check_fused(bool reference) {
    struct weir_model *fused = trial_model(row4, label, "cross_entropy");
    add_linear(fused, 4);
    trial_add(fused, "identity", WEIR_NO_ATTRS);
    trial_add(fused, "identity", WEIR_NO_ATTRS);
    add_type(fused, &branch, WEIR_NO_ATTRS);
    struct weir_model *parts = trial_model(row4, label, "cross_entropy");
    add_linear(parts, 4);
    trial_add_skip(parts, "stash", "a", "");
    trial_add(parts, "gelu", WEIR_NO_ATTRS);
    trial_add(parts, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.4)));
    trial_add_skip(parts, "pop_add", "a", "");
    struct trial_data data;
    struct trial_result want, got;
    struct weir_net_options options = trial_options(1, 64, 3);
    options.dtype = WEIR_F32;
    options.reference = reference;
    options.input_grads = true;
    trial_data_init(&data, &row4, &label, WEIR_F32, 64, 1, 4);
    trial_run(parts, &options, &data, &want);
    trial_run(fused, &options, &data, &got);
    if (!test_has_failed()) trial_result_compare(&want, &got);
    trial_result_clean_up(&want);
    trial_result_clean_up(&got);
    trial_data_clean_up(&data);
    weir_model_destroy(fused);
    weir_model_destroy(parts);
}

static void test_a_fused_sum_has_its_parts_bits(void) {
    check_fused(true);
    check_fused(false);
}

/* ---- fusion on CUDA, with the reference's rows ---- */

/** The middle stage of a model of three layers, ready to run. */
struct middle {
    struct weir__network network;
    struct weir__slices slices;
    struct bench bench;
};

static bool middle_init(struct middle *middle, const struct weir_model *model, bool on_cuda) {
    static const uint32_t balance[] = {1, 1, 1};
    const struct weir__backend *backends[] = {&weir__backend_reference, &weir__backend_reference,
                                              &weir__backend_reference};
    if (on_cuda) backends[1] = &weir__backend_cuda;
    const struct weir__compile_options compile = {
        .dtype = WEIR_F64, .balance = balance, .stage_count = 3, .backends = backends};
    size_t offsets[16] = {0};
    *middle = (struct middle){.network = {.model = NULL}};
    if (!EXPECT_STATUS(
            weir__network_init(&middle->network, test_allocator(), model, &compile, NULL), WEIR_OK))
        return false;
    struct weir__stage_graph *stage = &middle->network.stages[1];
    for (uint32_t i = 0; i < stage->parameter_count && i < 16; i++)
        offsets[i] = middle->network.parameters[stage->parameter_first + i].offset;
    const struct weir__instance_options options = {.allocator = test_allocator(),
                                                   .backend = &weir__backend_reference,
                                                   .slices = &middle->slices,
                                                   .parameter_offsets = offsets,
                                                   .parameter_first = stage->parameter_first,
                                                   .dtype = WEIR_F64,
                                                   .rows_max = 2,
                                                   .threads = 1,
                                                   .threads_known = true};
    struct weir__instance **instance = &middle->bench.instance;
    return EXPECT_STATUS(weir__slice(&stage->graph, &middle->slices), WEIR_OK) &&
           EXPECT_STATUS(weir__instance_new(&options, 2, instance), WEIR_OK) &&
           EXPECT_STATUS(weir__instance_plan(&options, *instance, UINT32_MAX), WEIR_OK) &&
           EXPECT_STATUS(weir__instance_prepare(*instance, stage->graph.node_count, 1, NULL),
                         WEIR_OK);
}

static void middle_clean_up(struct middle *middle) {
    for (int i = 1; i < AREAS; i++)
        weir__release(test_allocator(), middle->bench.areas[i], AREA, 1);
    weir__instance_release(middle->bench.instance, middle->network.stages[1].graph.node_count);
    weir__instance_destroy(test_allocator(), middle->bench.instance);
    weir__network_clean_up(&middle->network);
}

/** Forward and backward, from the numbers that `seed` gives. */
static void run_middle(struct middle *middle, uint64_t seed) {
    static _Alignas(64) unsigned char saved[SAVED];
    struct bench *bench = &middle->bench;
    for (int i = 1; i < AREAS; i++) {
        bench->areas[i] = weir__acquire(test_allocator(), AREA, 1);
        bench->bases[i] = (uintptr_t)bench->areas[i];
        for (size_t k = 0; k < AREA / sizeof(double); k++) {
            uint32_t words[4];
            weir__philox_words(seed, 0, 0, (uint32_t)i, (uint32_t)k, words);
            ((double *)bench->areas[i])[k] = words[0] * 0x1p-32 - 0.5;
        }
    }
    memset(saved, 0xA5, SAVED);
    run_program(bench, WEIR__PROGRAM_FORWARD, saved, 0xFF);
    run_program(bench, WEIR__PROGRAM_BACKWARD, saved, 0x7F);
}

static void compare_middles(const struct weir_gpt_options *gpt, uint32_t gelus, uint32_t sums) {
    static const enum weir__pointer_base results[] = {WEIR__BASE_OUTPUT, WEIR__BASE_INPUT_GRAD,
                                                      WEIR__BASE_GRADIENTS};
    struct weir_model *model;
    struct middle parts, fused;
    uint64_t seed = test_random_u64();
    CHECK_OK(weir_model_gpt(test_allocator(), gpt, NULL, &model));
    if (middle_init(&parts, model, false) && middle_init(&fused, model, true)) {
        const enum weir__program_kind kind = WEIR__PROGRAM_FORWARD;
        EXPECT_EQ_UINT(trial_count_ops(&parts.slices, kind, WEIR__OP_bias_gelu), 0);
        EXPECT_EQ_UINT(trial_count_ops(&parts.slices, kind, WEIR__OP_bias_dropout_add), 0);
        EXPECT_EQ_UINT(trial_count_ops(&fused.slices, kind, WEIR__OP_bias_gelu), gelus);
        EXPECT_EQ_UINT(trial_count_ops(&fused.slices, kind, WEIR__OP_bias_dropout_add), sums);
        run_middle(&parts, seed);
        run_middle(&fused, seed);
        for (size_t i = 0; i < WEIR__COUNT_OF(results); i++)
            EXPECT_EQ_BYTES(fused.bench.areas[results[i]], parts.bench.areas[results[i]], AREA);
        middle_clean_up(&parts);
        middle_clean_up(&fused);
    }
    weir_model_destroy(model);
}

static void test_biases_are_fused_on_cuda_with_their_parts_bits(void) {
    compare_middles(&(struct weir_gpt_options){1, 8, 2, 4, 5, false, 0.3}, 1, 2);
    compare_middles(&(struct weir_gpt_options){1, 8, 2, 4, 5, false, 0}, 1, 0);
}

static void test_biases_are_fused_within_a_layer_only(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    add_linear(model, 4);
    trial_add(model, "gelu", WEIR_NO_ATTRS);
    const uint32_t balance = 2;
    const struct weir__backend *const backend = &weir__backend_cuda;
    const struct weir__compile_options options = {
        .dtype = WEIR_F64, .balance = &balance, .stage_count = 1, .backends = &backend};
    struct weir__network network;
    struct weir__slices slices;
    CHECK_OK(weir__network_init(&network, test_allocator(), model, &options, NULL));
    CHECK_OK(weir__slice(&network.stages[0].graph, &slices));
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_FORWARD, WEIR__OP_gelu), 1);
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_FORWARD, WEIR__OP_bias_gelu), 0);
    weir__network_clean_up(&network);
    weir_model_destroy(model);
}

/* ---- packing ---- */

static void check_packing(struct weir__buffer *buffers, uint32_t count, size_t total) {
    size_t busiest = 0;
    for (uint32_t i = 0; i < count; i++) {
        size_t live = 0;
        for (uint32_t k = 0; k < count; k++) {
            const struct weir__buffer *a = &buffers[i], *b = &buffers[k];
            if (b->first <= a->first && a->first <= b->last) live += b->bytes;
            if (i == k || a->last < b->first || b->last < a->first) continue;
            EXPECT(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset ||
                   a->bytes == 0 || b->bytes == 0);
        }
        if (live > busiest) busiest = live;
        EXPECT(buffers[i].offset % 64 == 0 && buffers[i].offset + buffers[i].bytes <= total);
    }
    EXPECT(total >= busiest && total <= 2 * busiest);
}

static void test_packed_buffers_that_live_together_do_not_overlap(void) {
    struct weir__buffer buffers[24];
    uint32_t order[48];
    for (int trial = 0; trial < 200 && !test_has_failed(); trial++) {
        uint32_t count = 1 + (uint32_t)test_random_below(24);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t first = (uint32_t)test_random_below(20);
            buffers[i] = (struct weir__buffer){.bytes = 64 * test_random_below(9),
                                               .first = first,
                                               .last = first + (uint32_t)test_random_below(6)};
        }
        check_packing(buffers, count, weir__pack(buffers, count, order));
    }
}

WEIR_TEST_SUITE(graph, TEST(undeclared_and_forgotten_skips_are_refused),
                TEST(all_skip_faults_are_listed_with_their_layers),
                TEST(one_layer_may_pop_and_stash_different_names),
                TEST(a_popped_skip_that_is_not_used_gives_a_zero_gradient),
                TEST(a_skip_of_the_input_needs_no_gradient),
                TEST(recompute_has_only_what_backward_reads),
                TEST(recompute_of_a_gpt_block_leaves_its_last_product_out),
                TEST(the_parts_of_backward_make_the_whole),
                TEST(recompute_leaves_the_bytes_that_forward_saved),
                TEST(dropout_and_sum_are_fused_within_a_layer_only),
                TEST(a_fused_sum_has_its_parts_bits),
                TEST(biases_are_fused_on_cuda_with_their_parts_bits),
                TEST(biases_are_fused_within_a_layer_only),
                TEST(packed_buffers_that_live_together_do_not_overlap))
