/* SPDX-License-Identifier: MIT */
/*
 * Goal: what is added to a product is added by it, where the order of sums stays, and products are
 * made for the rows that are asked for. Method: counts of ops in programs of small networks.
 */
#include "harness.h"
#include "net/net_trial.h"

#include "net/compile/compile.h"
#include "net/compile/program.h"
#include "net/cpu/level.h"

static const struct weir_tensor row4 = {.dtype = WEIR_F32, .rank = 1, .shape = {4}};
static const struct weir_tensor label = {.dtype = WEIR_I64};

static struct weir_value *square(struct weir_builder *b, const char *local, struct weir_value *x) {
    const struct weir_init init = {WEIR_INIT_UNIFORM, 0.5};
    return weir_linear(b, x, weir_parameter(b, local, 2, (int64_t[]){4, 4}, init), NULL, false);
}

/** W x + B (A x). */
static struct weir_value *build_beside(struct weir_builder *b, const struct weir_layer *layer,
                                       struct weir_value *x) {
    (void)layer;
    struct weir_value *y = square(b, "w", x);
    return weir_sum(b, y, square(b, "b", square(b, "a", x)));
}

/** W x + gelu(x): x is read between the product and the sum. */
static struct weir_value *build_between(struct weir_builder *b, const struct weir_layer *layer,
                                        struct weir_value *x) {
    (void)layer;
    struct weir_value *y = square(b, "w", x);
    return weir_sum(b, y, weir_gelu(b, x, false));
}

static const struct weir_layer_type beside = {.name = "beside", .build = build_beside};
static const struct weir_layer_type between = {.name = "between", .build = build_between};

static void add_linear(struct weir_model *model) {
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 4)));
}

static void add_type(struct weir_model *model, const struct weir_layer_type *type) {
    EXPECT_STATUS(weir__model_add_layer(model, type, NULL, WEIR_NO_ATTRS, NULL), WEIR_OK);
}

static void test_sums_are_made_with_products_within_a_layer_only(void) {
    struct weir_model *model = trial_model(row4, label, "cross_entropy");
    add_linear(model);
    add_type(model, &beside);
    add_type(model, &between);
    trial_add_skip(model, "stash", "a", "");
    add_linear(model);
    trial_add_skip(model, "pop_add", "a", "");
    const uint32_t balance = 6;
    const struct weir__compile_options compiling = {
        .dtype = WEIR_F64, .balance = &balance, .stage_count = 1};
    struct weir__network network;
    struct weir__slices slices;
    CHECK_OK(weir__network_init(&network, test_allocator(), model, &compiling, NULL));
    CHECK_OK(weir__slice(&network.stages[0].graph, &slices));
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_FORWARD, WEIR__OP_linear_add), 1);
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_FORWARD, WEIR__OP_add), 2);
    /* of W, after A's in the one layer and gelu's in the other; a skip's gradient comes alone */
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_BACKWARD, WEIR__OP_linear_grad_input_add),
                   2);
    EXPECT_EQ_UINT(trial_count_ops(&slices, WEIR__PROGRAM_BACKWARD, WEIR__OP_add), 1);
    weir__network_clean_up(&network);
    weir_model_destroy(model);
}

static void test_what_only_the_output_needs_may_be_made_for_fewer_rows(void) {
    struct weir_gpt_options gpt = {1, 8, 2, 4, 5, false, 0};
    const struct weir__level *level;
    struct weir_model *model;
    EXPECT_STATUS(weir__level_find(NULL, NULL, &level), WEIR_OK);
    CHECK_OK(weir_model_gpt(test_allocator(), &gpt, NULL, &model));
    const uint32_t balance = 3;
    const struct weir__compile_options compiling = {.dtype = WEIR_F32,
                                                    .balance = &balance,
                                                    .stage_count = 1,
                                                    .infer_only = true,
                                                    .sequences = 1};
    struct weir__network network;
    struct weir__slices slices;
    CHECK_OK(weir__network_init(&network, test_allocator(), model, &compiling, NULL));
    CHECK_OK(weir__slice(&network.stages[0].graph, &slices));
    size_t offsets[32] = {0};
    EXPECT(network.stages[0].parameter_count <= 32);
    struct weir__instance_options options = {.allocator = test_allocator(),
                                             .backend = level->backend,
                                             .slices = &slices,
                                             .parameter_offsets = offsets,
                                             .dtype = WEIR_F32,
                                             .rows_max = 2,
                                             .threads = 1,
                                             .threads_known = true};
    struct weir__instance *instance;
    CHECK_OK(weir__instance_new(&options, 2, &instance));
    CHECK_OK(weir__instance_plan(&options, instance, UINT32_C(1) << WEIR__PROGRAM_INFER));
    const struct weir__program *program = &instance->programs[WEIR__PROGRAM_INFER];
    uint32_t made = 0;
    for (uint32_t i = 0; i < program->call_count; i++) {
        const struct weir__planned_call *call = &program->calls[i];
        if (!call->to_output || call->delivers) continue;
        made++;
        if (!EXPECT(call->row_units > 0)) TEST_FAIL("%s", weir__op_name(call->node->shape.op));
    }
    EXPECT(made >= 7); /* from the product behind attention to the head */
    weir__instance_destroy(test_allocator(), instance);
    weir__network_clean_up(&network);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(graph_products, TEST(sums_are_made_with_products_within_a_layer_only),
                TEST(what_only_the_output_needs_may_be_made_for_fewer_rows))
