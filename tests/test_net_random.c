/* SPDX-License-Identifier: MIT */
/*
 * Goal: the Bits contract. For given rows, chunks, schedule and kernels, outputs, loss, norm, every
 * gradient and the parameters after updates are the same bits, whatever the stages, the partition,
 * the workers, the checkpoint modes, the recompute timing and the links.
 * Method: random small models (pointwise layers, dropout, skips that nest, cross and have many
 * readers; GPTs), each trained once on one stage and once on a random pipeline of several.
 */
#include "harness.h"
#include "net_trial.h"

#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { CASES = 100, SKIPS_MAX = 4, LAYERS_MAX = 24 };

static bool coin(void) {
    return test_random_below(2) == 1;
}

static uint32_t between(uint32_t least, uint32_t most) {
    return least + (uint32_t)test_random_below(most - least + 1);
}

/* ---- random models ---- */

struct open_skip {
    char name[8];
    bool read;
};

struct sketch {
    struct weir_model *model;
    int64_t width;
    uint32_t open_count, made;
    struct open_skip open[SKIPS_MAX];
};

static void add_stash(struct sketch *sketch) {
    if (sketch->open_count == SKIPS_MAX) return;
    struct open_skip *skip = &sketch->open[sketch->open_count++];
    snprintf(skip->name, sizeof skip->name, "s%u", sketch->made++);
    skip->read = false;
    trial_add_skip(sketch->model, "stash", skip->name, "");
}

static void add_reader(struct sketch *sketch, bool pop) {
    if (sketch->open_count == 0) return;
    uint32_t at = (uint32_t)test_random_below(sketch->open_count);
    struct open_skip *skip = &sketch->open[at];
    trial_add_skip(sketch->model, pop ? "pop_add" : "read_add", skip->name, "");
    skip->read = true;
    if (pop) *skip = sketch->open[--sketch->open_count];
}

static void add_pointwise(struct sketch *sketch) {
    switch (test_random_below(6)) {
    case 0: trial_add(sketch->model, "gelu", WEIR_NO_ATTRS); break;
    case 1:
        trial_add(sketch->model, "gelu", WEIR_ATTRS(WEIR_ATTR_TEXT("approximate", "tanh")));
        break;
    case 2: trial_add(sketch->model, "relu", WEIR_NO_ATTRS); break;
    case 3: trial_add(sketch->model, "layer_norm", WEIR_NO_ATTRS); break;
    case 4: trial_add(sketch->model, "identity", WEIR_NO_ATTRS); break;
    default: trial_add(sketch->model, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.25))); break;
    }
}

static void add_linear(struct sketch *sketch, int64_t out) {
    trial_add(sketch->model, "linear",
              WEIR_ATTRS(WEIR_ATTR_INT("out_features", out), WEIR_ATTR_FLAG("bias", coin())));
}

static void add_random_layers(struct sketch *sketch) {
    uint32_t count = between(3, 14);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t pick = test_random_below(10);
        if (pick < 3)
            add_linear(sketch, sketch->width);
        else if (pick < 5)
            add_stash(sketch);
        else if (pick < 7)
            add_reader(sketch, pick == 6);
        else
            add_pointwise(sketch);
    }
    while (sketch->open_count > 0) {
        bool reads_only = sketch->open[sketch->open_count - 1].read && coin();
        if (reads_only)
            sketch->open_count--;
        else
            add_reader(sketch, true);
    }
}

struct problem {
    struct weir_model *model;
    struct weir_tensor input, target;
    int64_t classes, labels;
};

static void random_chain(struct problem *problem) {
    static const struct weir_tensor label = {.dtype = WEIR_I64};
    struct sketch sketch = {.width = between(1, 20)};
    bool tokens = test_random_below(4) == 0;
    problem->classes = 7;
    problem->labels = between(2, 9);
    problem->input = (struct weir_tensor){.dtype = WEIR_F32, .rank = 1, .shape = {sketch.width}};
    if (tokens) problem->input = (struct weir_tensor){.dtype = WEIR_I64};
    problem->target = label;
    bool mse = coin();
    if (mse)
        problem->target =
            (struct weir_tensor){.dtype = WEIR_F32, .rank = 1, .shape = {problem->labels}};
    sketch.model = trial_model(problem->input, problem->target, mse ? "mse" : "cross_entropy");
    problem->model = sketch.model;
    if (tokens)
        trial_add(sketch.model, "embedding",
                  WEIR_ATTRS(WEIR_ATTR_INT("num_embeddings", problem->classes),
                             WEIR_ATTR_INT("embedding_dim", sketch.width)));
    add_random_layers(&sketch);
    add_linear(&sketch, problem->labels);
    if (coin()) trial_add(sketch.model, "dropout", WEIR_ATTRS(WEIR_ATTR_REAL("p", 0.1)));
}

static void random_gpt(struct problem *problem) {
    struct weir_gpt_options options = WEIR_GPT_OPTIONS_INIT;
    options.layers = between(1, 3);
    options.heads = between(1, 3);
    options.width = options.heads * between(1, 6);
    options.context = between(1, 6);
    options.vocab = between(3, 11);
    options.dropout = coin() ? 0.2 : 0;
    EXPECT_STATUS(weir_model_gpt(test_allocator(), &options, NULL, &problem->model), WEIR_OK);
    problem->input =
        (struct weir_tensor){.dtype = WEIR_I64, .rank = 1, .shape = {(int64_t)options.context}};
    problem->target = problem->input;
    problem->classes = problem->labels = options.vocab;
}

/* ---- random pipelines ---- */

static void random_balance(uint32_t layers, uint32_t stages, uint32_t *balance) {
    for (uint32_t s = 0; s < stages; s++) balance[s] = 1;
    for (uint32_t i = stages; i < layers; i++) balance[test_random_below(stages)]++;
}

static enum weir_checkpoint random_checkpoint(void) {
    static const enum weir_checkpoint modes[] = {
        WEIR_CHECKPOINT_ALWAYS, WEIR_CHECKPOINT_EXCEPT_LAST, WEIR_CHECKPOINT_NEVER};
    return modes[test_random_below(3)];
}

/** Loss, outputs and gradients of one step, then the parameters after two more with updates. */
static void train(const struct problem *problem, const struct weir_net_options *options,
                  const struct trial_data *data, struct trial_result *first,
                  struct trial_result *last) {
    struct weir_net *net = trial_net(problem->model, options);
    if (net == NULL) return;
    trial_step(net, problem->model, data, first);
    for (uint64_t i = 0; i < 2; i++) {
        struct weir_net_batch batch = {.rows = data->rows,
                                       .input = data->input,
                                       .target = data->target,
                                       .mini_batch = 4 + i,
                                       .update = i,
                                       .lr = -1};
        struct weir_step_result result;
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    }
    trial_step(net, problem->model, data, last);
    weir_net_destroy(net);
}

static void compare(const struct problem *problem, const struct weir_net_options *one,
                    const struct weir_net_options *several) {
    struct trial_data data;
    struct trial_result want[2] = {{0}}, got[2] = {{0}};
    trial_data_init(&data, &problem->input, &problem->target, one->dtype, one->pipe.rows,
                    problem->classes, problem->labels);
    train(problem, one, &data, &want[0], &want[1]);
    train(problem, several, &data, &got[0], &got[1]);
    for (int i = 0; i < 2; i++) {
        if (!test_has_failed()) trial_result_compare(&want[i], &got[i]);
        trial_result_clean_up(&want[i]);
        trial_result_clean_up(&got[i]);
    }
    trial_data_clean_up(&data);
}

static void describe(const struct problem *problem, const struct weir_net_options *options) {
    uint32_t stages = options->stages;
    for (uint32_t s = 0, layer = 0; s < stages; s++)
        for (uint32_t i = 0; i < options->balance[s]; i++, layer++) {
            const char *type = "", *name;
            struct weir_attrs attrs;
            weir_model_layer(problem->model, layer, &type, &name, &attrs);
            printf("  stage %u: %s %s\n", s, type,
                   attrs.count > 0 && attrs.list[0].text != NULL ? attrs.list[0].text : "");
        }
    printf("  %s, %lld rows in %u chunks, %u workers, checkpoint %s, %s recompute, dtype %s\n",
           options->pipe.schedule, (long long)options->pipe.rows, options->pipe.chunks,
           options->pipe.workers, weir_checkpoint_name(options->pipe.checkpoint),
           options->pipe.recompute_late ? "late" : "early", weir_dtype_name(options->dtype));
}

static void random_case(void) {
    struct problem problem = {0};
    if (test_random_below(4) == 0)
        random_gpt(&problem);
    else
        random_chain(&problem);
    if (problem.model == NULL || test_has_failed()) return;
    uint32_t layers = weir_model_layer_count(problem.model), balance[8];
    enum weir_checkpoint modes[8];
    struct weir_net_options one = trial_options(1, between(1, 13), between(1, 5));
    one.dtype = coin() ? WEIR_F64 : WEIR_F32;
    one.reference = coin();
    one.input_grads = coin();
    one.pipe.schedule = coin() ? "gpipe" : "1f1b";
    one.pipe.checkpoint = random_checkpoint();
    one.pipe.clip_norm = coin() ? 0.5 : 0;
    if (coin()) one.optimizer = (struct weir_optimizer)WEIR_SGD_INIT;
    if (one.optimizer.kind == WEIR_OPTIMIZER_SGD) one.optimizer.momentum = 0.9;
    struct weir_net_options several = one;
    several.stages = between(1, layers < 4 ? layers : 4);
    random_balance(layers, several.stages, balance);
    several.balance = balance;
    several.pipe.workers = coin() ? 0 : between(1, several.stages);
    several.pipe.checkpoint = random_checkpoint();
    for (uint32_t s = 0; s < several.stages; s++) modes[s] = random_checkpoint();
    if (coin()) several.pipe.stage_checkpoint = modes;
    several.pipe.recompute_late = coin();
    several.pipe.debug_inputs = coin();
    several.pipe.link = coin() ? WEIR_LINK_COPY : WEIR_LINK_AUTO;
    compare(&problem, &one, &several);
    if (test_has_failed()) describe(&problem, &several);
    weir_model_destroy(problem.model);
}

// MB-7
// PO-7
static void test_bits_do_not_depend_on_the_pipeline(void) {
    for (int i = 0; i < CASES && !test_has_failed(); i++) random_case();
}

WEIR_TEST_SUITE(net_random, TEST(bits_do_not_depend_on_the_pipeline))
