/* SPDX-License-Identifier: MIT */
/*
 * Goal: a profile says what layers take, and measuring disturbs nothing. Method: layers of the
 * test's own that wait for a known time; models with skips, frozen layers, dropout and tied
 * parameters, whose bytes are compared with what plans and pipes say; a live net is compared byte
 * for byte before and after. The machine may be busy: where the waits themselves came back late,
 * the layers are measured again.
 */
#include "net/profile/profile.h"
#include "net/profile/roofs.h"
#include "weir_profile.h"

#include "base/base.h"
#include "harness.h"
#include "net/net_models.h"
#include "net/net_trial.h"
#include "net/profiles.h"
#include "weir_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Short next to the time that a busy machine gives a process at once. */
enum { UNIT_NS = 40000, UNITS_MOST = 6, ATTEMPTS_MOST = 50 };

/* ---- layers that wait ---- */

struct wait {
    uint64_t units;
    uint64_t forward_ns, backward_ns;
};

/* How often a layer waited, and came back later than by an eighth; written by one worker. */
static struct waits { uint32_t count, late; } waits[UNITS_MOST + 1];

static int wait_shape(const void *options, uint32_t input_count, const struct weir_tensor *inputs,
                      struct weir_tensor *output, struct weir_error *error) {
    (void)options;
    (void)input_count;
    (void)error;
    *output = inputs[0];
    return WEIR_OK;
}

static void wait_for(uint64_t units, uint64_t ns) {
    uint64_t begin = weir__now_ns(), passed = 0;
    while (passed < ns) passed = weir__now_ns() - begin;
    waits[units].count++;
    waits[units].late += passed > ns + ns / 8;
}

static int wait_forward(const struct weir_op_task *task) {
    const struct wait *wait = task->options;
    memcpy(task->output, task->inputs[0], (size_t)task->rows * sizeof(float));
    wait_for(wait->units, wait->forward_ns);
    return WEIR_OK;
}

static int wait_backward(const struct weir_op_task *task) {
    const struct wait *wait = task->options;
    if (task->input_grads[0] != NULL)
        memcpy(task->input_grads[0], task->output_grad, (size_t)task->rows * sizeof(float));
    wait_for(wait->units, wait->backward_ns);
    return WEIR_OK;
}

static const struct weir_op wait_op = {.size = sizeof(struct weir_op),
                                       .name = "wait",
                                       .shape = wait_shape,
                                       .forward = wait_forward,
                                       .backward = wait_backward};

static struct weir_value *build_wait(struct weir_builder *b, const struct weir_layer *layer,
                                     struct weir_value *x) {
    uint64_t units = (uint64_t)weir_layer_int(layer, "units");
    struct wait wait = {units, units * UNIT_NS, 2 * units * UNIT_NS};
    return weir_apply(b, &wait_op, &wait, sizeof wait, 1, (struct weir_value *[]){x});
}

static const struct weir_attr_rule wait_attrs[] = {
    {.key = "units", .kind = WEIR_ATTR_KIND_INT, .required = true, .least = 1}};
static const struct weir_layer_type wait_layer = {
    .name = "wait", .attrs = wait_attrs, .attr_count = 1, .build = build_wait};

/* A small linear, so that something learns, then waits of 1 … 6 units, or 6 … 1. */
static struct weir_model *waiting_model(bool reversed) {
    struct weir_tensor one = {.dtype = WEIR_F32, .rank = 1, .shape = {1}};
    struct weir_model *model = trial_model(one, one, "mse");
    if (model == NULL) return NULL;
    EXPECT_STATUS(weir_model_add_type(model, &wait_layer), WEIR_OK);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 1)));
    for (int64_t i = 1; i <= UNITS_MOST; i++)
        trial_add(model, "wait",
                  WEIR_ATTRS(WEIR_ATTR_INT("units", reversed ? UNITS_MOST + 1 - i : i)));
    return model;
}

/* ---- balances ---- */

static void check_cut(const struct weir_profile *profile, const double *weights, uint32_t first,
                      uint32_t expected) {
    struct weir_partition_options cut = WEIR_PARTITION_OPTIONS_INIT;
    uint32_t sizes[2] = {0, 0};
    cut.allocator = test_allocator();
    cut.weights = weights + first;
    cut.count = profile->costs.layer_count - first;
    cut.parts = 2;
    EXPECT_STATUS(weir_partition(&cut, sizes, NULL), WEIR_OK);
    EXPECT_EQ_UINT(sizes[0], expected);
}

/* At most a fifth of any layer's waits was late: then what is typical of them is known. */
static bool waits_were_quiet(void) {
    bool quiet = true;
    for (int units = 1; units <= UNITS_MOST; units++)
        quiet &= 5 * waits[units].late <= waits[units].count;
    return quiet;
}

static struct weir_profile *quiet_profile(const struct weir_model *model) {
    struct weir_profile_options options = profile_options(4, 2);
    struct weir_profile *profile = NULL;
    options.steps_least = options.steps_most = 25;
    for (int attempt = 0; attempt < ATTEMPTS_MOST && !test_has_failed(); attempt++) {
        memset(waits, 0, sizeof waits);
        weir_profile_destroy(profile);
        profile = profile_of(model, &options);
        if (waits_were_quiet()) return profile;
    }
    weir_profile_destroy(profile);
    return NULL;
}

// BA-2
static void test_known_times_are_found_and_balanced(void) {
    for (int reversed = 0; reversed < 2; reversed++) {
        struct weir_model *model = waiting_model(reversed);
        struct weir_profile *profile = quiet_profile(model);
        struct weir_balance_options by = WEIR_BALANCE_OPTIONS_INIT;
        double weights[7];
        if (profile == NULL) weir_model_destroy(model);
        if (profile == NULL) SKIP("the machine is too busy to wait in time");
        for (uint32_t i = 1; i <= UNITS_MOST; i++) {
            double unit = (reversed ? UNITS_MOST + 1 - i : i) * UNIT_NS * 1e-9;
            const struct weir_layer_cost *layer = &profile->costs.layers[i];
            EXPECT_NEAR(layer->seconds[WEIR_KIND_F], unit, unit / 2);
            EXPECT_NEAR(layer->forward_checkpoint, unit, unit / 2);
            EXPECT_NEAR(layer->seconds[WEIR_KIND_B], 2 * unit, unit);
            EXPECT_NEAR(layer->seconds[WEIR_KIND_I] + layer->seconds[WEIR_KIND_W], 2 * unit, unit);
        }
        CHECK_OK(weir_layer_weights(&profile->costs, &by, weights));
        check_cut(profile, weights, 1, reversed ? 2 : 4);
        weir_profile_destroy(profile);
        weir_model_destroy(model);
        CHECK_HELPERS();
    }
}

/* Behind a layer that makes gradients flow: six without parameters, six with; all keep as much. */
static struct weir_model *tradeoff_model(void) {
    struct weir_tensor input = {.dtype = WEIR_F32, .rank = 1, .shape = {16}};
    struct weir_tensor target = {.dtype = WEIR_F32, .rank = 1, .shape = {16}};
    struct weir_model *model = trial_model(input, target, "mse");
    if (model == NULL) return NULL;
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 16)));
    for (int i = 0; i < 6; i++) trial_add(model, "tanh", WEIR_NO_ATTRS);
    for (int i = 0; i < 6; i++)
        trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 16)));
    return model;
}

// BA-2
static void test_what_parameters_count_moves_the_cut(void) {
    struct weir_model *model = tradeoff_model();
    struct weir_profile_options options = profile_options(256, 1);
    options.bytes_only = true;
    struct weir_profile *profile = profile_of(model, &options);
    struct weir_balance_options by = WEIR_BALANCE_OPTIONS_INIT;
    double weights[13];
    CHECK(profile != NULL);
    EXPECT(!profile->measured && profile->costs.layers[7].seconds[WEIR_KIND_F] == 0);
    by.by = WEIR_BALANCE_BY_SIZE;
    by.checkpoint = WEIR_CHECKPOINT_NEVER;
    by.parameter_scale = 0;
    CHECK_OK(weir_layer_weights(&profile->costs, &by, weights));
    check_cut(profile, weights, 1, 6);
    by.parameter_scale = 100;
    CHECK_OK(weir_layer_weights(&profile->costs, &by, weights));
    check_cut(profile, weights, 1, 9);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

/* ---- nothing is touched ---- */

struct kept {
    size_t bytes;
    char *data;
};

static struct kept keep(struct weir_net *net) {
    struct kept kept = {0, malloc(1 << 24)};
    for (uint32_t i = 0; kept.data != NULL && i < weir_net_parameter_count(net); i++) {
        struct weir_parameter p;
        if (weir_net_parameter(net, i, &p) != WEIR_OK) continue;
        void *parts[] = {p.data, p.gradient, p.optimizer[0], p.optimizer[1]};
        for (int k = 0; k < 4; k++) {
            if (parts[k] == NULL) continue;
            memcpy(kept.data + kept.bytes, parts[k], p.count * weir_dtype_bytes(p.dtype));
            kept.bytes += p.count * weir_dtype_bytes(p.dtype);
        }
    }
    return kept;
}

static void check_untouched(const struct weir_model *model, int64_t classes) {
    struct weir_net_options options = trial_options(1, 4, 2);
    struct trial_data data;
    struct weir_step_result result;
    options.dtype = WEIR_F32;
    trial_data_of(&data, model, WEIR_F32, 4, classes);
    struct weir_net *net = trial_net(model, &options);
    if (!EXPECT(net != NULL)) return;
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = 4;
    batch.input = data.input;
    batch.target = data.target;
    EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    struct kept before = keep(net);
    struct weir_profile_options how = profile_options(4, 2);
    struct weir_profile *profile = profile_of(model, &how);
    struct kept after = keep(net);
    EXPECT(before.bytes > 0 && before.bytes == after.bytes &&
           memcmp(before.data, after.data, before.bytes) == 0);
    free(before.data);
    free(after.data);
    weir_profile_destroy(profile);
    weir_net_destroy(net);
    trial_data_clean_up(&data);
}

// BA-3
static void test_measuring_touches_no_net_of_the_model(void) {
    struct weir_model *unet = unet_model(), *gpt = gpt_model(true, 0.1);
    CHECK(unet != NULL && gpt != NULL);
    check_untouched(unet, 2);
    check_untouched(gpt, 40);
    weir_model_destroy(unet);
    weir_model_destroy(gpt);
}

/* ---- times ---- */

static void check_sums(const struct weir_profile *profile) {
    static const enum weir_kind kinds[] = {WEIR_KIND_F, WEIR_KIND_R, WEIR_KIND_B, WEIR_KIND_I,
                                           WEIR_KIND_W};
    for (int k = 0; k < 5; k++) {
        double sum = 0, whole = profile->seconds[kinds[k]];
        for (uint32_t i = 0; i < profile->costs.layer_count; i++) {
            double seconds = profile->costs.layers[i].seconds[kinds[k]];
            EXPECT(seconds >= 0);
            sum += seconds;
        }
        if (whole <= 0 || sum <= 0) TEST_FAIL("%d: %g, %g", kinds[k], whole, sum);
        /* what calls take against the median of the whole, on a busy machine */
        EXPECT(sum < 3 * whole && whole < 3 * sum);
    }
}

/* Lateness counts, interruptions do not. */
static void test_a_call_takes_the_mean_of_its_usual_times(void) {
    double late[] = {1.4, 1, 50, 1, 1.2, 1}, even[] = {2, 2, 2};
    EXPECT_NEAR(weir__profile_typical(late, 6), (1 + 1 + 1 + 1.2 + 1.4) / 5, 1e-12);
    EXPECT_NEAR(weir__profile_typical(even, 3), 2, 0);
    EXPECT_NEAR(weir__profile_typical(even, 1), 2, 0);
    EXPECT_NEAR(weir__profile_typical(NULL, 0), 0, 0);
}

static void test_layers_add_up_to_the_whole(void) {
    struct weir_model *models[] = {gpt_model(false, 0.1), gpt_model(true, 0), unet_model()};
    for (int i = 0; i < 3; i++) {
        struct weir_profile_options options = profile_options(8, 2);
        struct weir_profile *profile = profile_of(models[i], &options);
        CHECK(profile != NULL);
        EXPECT_EQ_INT(profile->rows, 4);
        EXPECT_EQ_UINT(profile->threads, 1);
        EXPECT(profile->measured && profile->steps == 5 && profile->costs.task_seconds >= 0);
        check_sums(profile);
        weir_profile_destroy(profile);
        weir_model_destroy(models[i]);
        CHECK_HELPERS();
    }
}

static void test_recompute_of_a_last_layer_leaves_its_end_out(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_profile_options options = profile_options(8, 1);
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL);
    for (uint32_t i = 1; i <= 2; i++) { /* a block's last product is read by the next one only */
        const struct weir_layer_cost *block = &profile->costs.layers[i];
        EXPECT(block->recompute_last > 0);
        EXPECT(block->recompute_last < block->seconds[WEIR_KIND_R]);
    }
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

static void test_frozen_layers_have_no_backward(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_profile_options options = profile_options(4, 1);
    CHECK_OK(weir_model_freeze(model, "wte*"));
    CHECK_OK(weir_model_freeze(model, "wpe*"));
    CHECK_OK(weir_model_freeze(model, "h.0.*"));
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL);
    for (uint32_t i = 0; i < 4; i++) {
        const struct weir_layer_cost *layer = &profile->costs.layers[i];
        EXPECT_EQ_INT(layer->no_backward, i < 2);
        EXPECT_EQ_INT(layer->seconds[WEIR_KIND_B] > 0, i >= 2);
        EXPECT_EQ_INT(layer->border_gradient > 0, i == 2);
        EXPECT_EQ_INT(layer->gradients > 0, i >= 2);
        EXPECT_EQ_INT(layer->saved > layer->saved_output, i >= 2);
        EXPECT(layer->seconds[WEIR_KIND_F] > 0 && layer->parameters > 0);
    }
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

static void test_joined_layers_are_marked(void) {
    struct weir_model *model = unet_model();
    struct weir_profile_options options = profile_options(2, 1);
    struct weir_profile *profile = profile_of(model, &options);
    uint32_t joined = 0;
    CHECK(profile != NULL);
    for (uint32_t i = 0; i < profile->costs.layer_count; i++) {
        const char *type;
        CHECK_OK(weir_model_layer(model, i, &type, NULL, NULL));
        bool part = strcmp(type, "dropout2d") == 0 || strcmp(type, "instance_norm2d") == 0;
        EXPECT_EQ_INT(profile->costs.layers[i].joined, part);
        if (profile->costs.layers[i].joined)
            EXPECT_NEAR(profile->costs.layers[i].seconds[WEIR_KIND_F], 0, 0);
        joined += profile->costs.layers[i].joined;
    }
    EXPECT(joined > 0);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

static void test_inference_is_measured_by_itself(void) {
    struct weir_model *model = unet_model();
    struct weir_profile_options options = profile_options(4, 2);
    options.net.pipe.infer_only = true;
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL);
    EXPECT(profile->infer_only && profile->seconds[WEIR_KIND_F] > 0);
    EXPECT_NEAR(profile->seconds[WEIR_KIND_B], 0, 0);
    for (uint32_t i = 0; i < profile->costs.layer_count; i++)
        EXPECT(profile->costs.layers[i].gradients == 0 && profile->costs.layers[i].saved == 0);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

/* ---- bytes ---- */

/* Of one stage, by the engine's own plan: one micro-batch, all in one arena. Whether the output is
 * not held. */
static bool check_bytes(const struct weir_model *model, int64_t logits_most) {
    struct weir_profile_options options = profile_options(4, 1);
    struct weir_net_options net = trial_options(1, 4, 1);
    struct weir_plan *plan;
    struct weir_layer_cost sum = {0};
    net.dtype = WEIR_F32;
    net.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    net.logits_most = options.net.logits_most = logits_most;
    options.bytes_only = true;
    struct weir_profile *profile = profile_of(model, &options);
    if (!EXPECT(profile != NULL)) return false;
    if (!EXPECT_STATUS(weir_net_plan(model, &net, NULL, &plan), WEIR_OK)) return false;
    for (uint32_t i = 0; i < profile->costs.layer_count; i++) {
        const struct weir_layer_cost *layer = &profile->costs.layers[i];
        sum.saved += layer->saved;
        sum.parameters += layer->parameters;
        sum.gradients += layer->gradients;
        sum.optimizer += layer->optimizer;
        EXPECT(layer->saved_output <= layer->saved);
        bool last = i + 1 == profile->costs.layer_count;
        EXPECT(layer->border > 0 || (last && logits_most > 0));
    }
    EXPECT_EQ_UINT(sum.saved, plan->devices[0].activations);
    EXPECT_EQ_UINT(sum.parameters, plan->devices[0].parameters);
    EXPECT_EQ_UINT(sum.gradients, plan->devices[0].gradients);
    EXPECT_EQ_UINT(sum.optimizer, plan->devices[0].optimizer);
    bool none = profile->costs.layers[profile->costs.layer_count - 1].border == 0;
    EXPECT(!none || plan->devices[0].borders == 0);
    weir_plan_destroy(plan);
    weir_profile_destroy(profile);
    return none;
}

/* Moments take more than the statistics in whose place they lie. */
static void test_batch_norms_bytes_add_up_to_the_plan(void) {
    static const char *const files[] = {"batch_layers", "amoeba_layers"};
    for (int i = 0; i < 4; i++) {
        char path[64];
        struct weir_model *model = NULL;
        snprintf(path, sizeof path, "tests/golden/%s.json", files[i % 2]);
        CHECK_OK(weir_model_read(test_allocator(), path, NULL, &model));
        if (i >= 2) CHECK_OK(weir_model_freeze(model, "*1.*"));
        check_bytes(model, 0);
        weir_model_destroy(model);
    }
}

static void test_layers_bytes_add_up_to_the_plan(void) {
    for (int trial = 0; trial < 60 && !test_has_failed(); trial++) {
        struct net_problem problem;
        net_problem_init(&problem);
        CHECK(problem.model != NULL);
        check_bytes(problem.model, trial % 2);
        weir_model_destroy(problem.model);
    }
    struct weir_model *tied = gpt_model(true, 0.1);
    CHECK(tied != NULL);
    EXPECT(!check_bytes(tied, 0));
    EXPECT(check_bytes(tied, 1));
    weir_model_destroy(tied);
}

static void check_stages(bool tied, double dropout) {
    struct weir_model *model = gpt_model(tied, dropout);
    struct weir_profile_options options = profile_options(4, 1);
    struct weir_net_options net = trial_options(2, 4, 1);
    struct weir_stage_costs *stages;
    struct weir_plan *plan;
    const uint32_t balance[] = {2, 2};
    options.bytes_only = true;
    net.dtype = WEIR_F32;
    net.balance = balance;
    net.pipe.checkpoint = WEIR_CHECKPOINT_NEVER;
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL);
    CHECK_OK(weir_net_plan(model, &net, NULL, &plan));
    CHECK_OK(weir_stage_costs_new(&profile->costs, 2, test_allocator(), &stages));
    CHECK_OK(weir_stage_costs_fill(stages, balance, 2));
    for (int s = 0; s < 2; s++) {
        EXPECT_EQ_UINT(stages->list[s].parameters, plan->devices[s].parameters);
        EXPECT_EQ_UINT(stages->list[s].optimizer, plan->devices[s].optimizer);
        EXPECT_EQ_UINT(stages->list[s].saved, plan->devices[s].activations);
    }
    EXPECT_EQ_INT(profile->costs.layers[3].copied > 0, tied);
    weir_stage_costs_destroy(stages);
    weir_plan_destroy(plan);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

/* To the byte, what a plan of these stages says: with copies of what is tied, and without what the
 * border keeps. */
static void test_stages_bytes_are_the_plans(void) {
    check_stages(false, 0);
    check_stages(true, 0.1);
}

/* Random models: whatever their skips and freezes, they are measured. */
static void test_random_models_can_be_measured(void) {
    for (int trial = 0; trial < 25 && !test_has_failed(); trial++) {
        struct net_problem problem;
        struct weir_profile_options options = profile_options(3, 2);
        net_problem_init(&problem);
        CHECK(problem.model != NULL);
        options.warm_up = 0;
        options.steps_least = options.steps_most = 1;
        struct weir_profile *profile = profile_of(problem.model, &options);
        CHECK(profile != NULL);
        EXPECT(profile->seconds[WEIR_KIND_F] > 0);
        struct weir_stage_costs *stages;
        uint32_t layers = profile->costs.layer_count;
        CHECK_OK(weir_stage_costs_new(&profile->costs, 1, test_allocator(), &stages));
        CHECK_OK(weir_stage_costs_fill(stages, &layers, 1));
        EXPECT_EQ_UINT(stages->skip_count, 0);
        EXPECT(stages->list[0].seconds[WEIR_KIND_R] <= profile->seconds[WEIR_KIND_R] * 3 + 1e-4);
        weir_stage_costs_destroy(stages);
        weir_profile_destroy(profile);
        weir_model_destroy(problem.model);
    }
}

static void test_skips_are_listed_with_their_bytes(void) {
    struct weir_model *model = unet_model();
    struct weir_profile_options options = profile_options(4, 2);
    options.bytes_only = true;
    struct weir_profile *profile = profile_of(model, &options);
    CHECK(profile != NULL);
    CHECK(profile->costs.skip_count >= 2);
    for (uint32_t s = 0; s < profile->costs.skip_count; s++) {
        const struct weir_skip_route *skip = &profile->costs.skips[s];
        EXPECT(skip->differentiable && skip->reader_count == 1);
        EXPECT(skip->readers[0] > skip->source);
        EXPECT(s == 0 || skip->source > profile->costs.skips[s - 1].source);
        EXPECT_EQ_UINT(skip->bytes, profile->costs.layers[skip->source].border);
    }
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

/* ---- estimates ---- */

static void estimated_by(const struct weir_model *model, enum weir_dtype dtype, const char *name) {
    struct weir_profile_options options = profile_options(16, 1);
    struct weir_profile *profile;
    const struct weir__roofs *roofs;
    options.net.dtype = dtype;
    if (!EXPECT_STATUS(weir_profile_estimate(model, &options.net, NULL, &profile), WEIR_OK)) return;
    if (EXPECT_STATUS(weir__roofs_find(profile, &roofs), WEIR_OK)) {
        const char *last = strrchr(roofs->key, ' ');
        EXPECT(last != NULL && strcmp(last + 1, name) == 0);
    }
    weir_profile_destroy(profile);
}

static void test_each_dtype_is_estimated_by_its_own_roofs(void) {
    struct weir_model *model = gpt_model(false, 0);
    estimated_by(model, WEIR_F32, "f32");
    estimated_by(model, WEIR_BF16, "bf16");
    estimated_by(model, WEIR_F64, "f64");
    weir_model_destroy(model);
}

/* ---- refusals ---- */

static void test_what_cannot_be_measured_is_refused(void) {
    struct weir_model *model = gpt_model(false, 0);
    struct weir_profile_options options = profile_options(4, 1);
    struct weir_profile *profile = NULL;
    options.steps_least = 6;
    EXPECT_STATUS(weir_profile_new(model, &options, NULL, &profile), WEIR_ERR_ARGUMENT);
    options = profile_options(4, 1);
    options.size--;
    EXPECT_STATUS(weir_profile_new(model, &options, NULL, &profile), WEIR_ERR_ARGUMENT);
    options = profile_options(4, 1);
    options.net.dtype = WEIR_BF16;
    options.net.reference = true;
    EXPECT_STATUS(weir_profile_new(model, &options, NULL, &profile), WEIR_ERR_CONFIG);
    options.net.reference = false;
    CHECK_OK(weir_model_freeze(model, "*"));
    options.net.dtype = WEIR_F32;
    EXPECT_STATUS(weir_profile_new(model, &options, NULL, &profile), WEIR_ERR_CONFIG);
    weir_model_destroy(model);
    struct weir_tensor one = {.dtype = WEIR_F32, .rank = 1, .shape = {1}};
    model = trial_model(one, one, "mse");
    EXPECT_STATUS(weir_profile_new(model, &options, NULL, &profile), WEIR_ERR_ARGUMENT);
    weir_model_destroy(model);
}

static void test_a_profile_without_memory_leaves_nothing_behind(void) {
    struct weir_model *model = unet_model();
    struct weir_profile_options options = profile_options(2, 1);
    struct weir_profile *profile = NULL;
    options.bytes_only = true;
    bool done = false;
    for (uint64_t k = 1; k < 5000 && !done && !test_has_failed(); k += 1 + k / 8) {
        test_allocator_fail_at(k, false);
        int status = weir_profile_new(model, &options, NULL, &profile);
        done = !test_allocator_fired();
        EXPECT_STATUS(status, done ? WEIR_OK : WEIR_ERR_OUT_OF_MEMORY);
    }
    test_allocator_fail_at(0, false);
    EXPECT(done);
    weir_profile_destroy(profile);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(profile, TEST(known_times_are_found_and_balanced),
                TEST(what_parameters_count_moves_the_cut),
                TEST(each_dtype_is_estimated_by_its_own_roofs),
                TEST(measuring_touches_no_net_of_the_model),
                TEST(a_call_takes_the_mean_of_its_usual_times), TEST(layers_add_up_to_the_whole),
                TEST(recompute_of_a_last_layer_leaves_its_end_out),
                TEST(frozen_layers_have_no_backward), TEST(joined_layers_are_marked),
                TEST(inference_is_measured_by_itself), TEST(layers_bytes_add_up_to_the_plan),
                TEST(batch_norms_bytes_add_up_to_the_plan), TEST(stages_bytes_are_the_plans),
                TEST(random_models_can_be_measured), TEST(skips_are_listed_with_their_bytes),
                TEST(what_cannot_be_measured_is_refused),
                TEST(a_profile_without_memory_leaves_nothing_behind))
