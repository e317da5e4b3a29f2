/* SPDX-License-Identifier: MIT */
/*
 * Goal: packed copies of weights change no bit, are those of the weights that there are, are made
 * once for them, and are kept where that pays. Method: a net that keeps them beside one whose
 * memory limit forbids it, at all levels, while parameters change in every way there is; then NaNs
 * in the copies, which come out of the net as long as nothing is packed anew.
 */
#include "harness.h"
#include "net/net_trial.h"

#include "net/cpu/level.h"
#include "net/run/net.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 27, CHUNKS = 3, IN = 530, CLASSES = 24 };

static const struct weir_tensor row = {.dtype = WEIR_F32, .rank = 1, .shape = {IN}};
static const struct weir_tensor label = {.dtype = WEIR_I64};

static struct weir_model *three_layers(bool frozen) {
    struct weir_model *model = trial_model(row, label, "cross_entropy");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", 70)));
    trial_add(model, "linear",
              WEIR_ATTRS(WEIR_ATTR_INT("out_features", 35), WEIR_ATTR_FLAG("frozen", frozen)));
    trial_add(model, "gelu", WEIR_NO_ATTRS);
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", CLASSES)));
    return model;
}

static struct weir_net_options options_of(enum weir_dtype dtype, const char *level) {
    struct weir_net_options options = trial_options(1, ROWS, CHUNKS);
    options.dtype = dtype;
    options.level = level;
    return options;
}

static void infer(struct weir_net *net, const struct trial_data *data, double *loss) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    struct weir_step_result result;
    batch.rows = data->rows, batch.input = data->input, batch.target = data->target;
    EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_OK);
    *loss = result.loss;
}

/** `first` and `last` of the mini-batches that an update is of. */
static void step(struct weir_net *net, const struct trial_data *data, bool first, bool last) {
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    batch.rows = data->rows, batch.input = data->input, batch.target = data->target;
    batch.accumulate_next = !first, batch.accumulate_more = !last;
    batch.lr = 0.01;
    EXPECT_STATUS(weir_net_step(net, &batch, NULL), WEIR_OK);
}

static void write_weights(struct weir_net *net) {
    struct weir_parameter parameter;
    for (uint32_t i = 0; i < weir_net_parameter_count(net); i++) {
        CHECK(weir_net_parameter(net, i, &parameter) == WEIR_OK);
        for (uint64_t k = 0; k < parameter.count; k++) ((float *)parameter.data)[k] *= 1.5f;
    }
    EXPECT_STATUS(weir_net_share(net), WEIR_OK);
}

/* ---- bits ---- */

struct pair {
    struct weir_net *nets[2]; /* one that keeps copies, one that must not */
    struct trial_data data;
};

static void expect_same(struct pair *pair, const char *after) {
    struct weir_parameter left, right;
    double losses[2];
    for (int i = 0; i < 2; i++) infer(pair->nets[i], &pair->data, &losses[i]);
    bool same = memcmp(&losses[0], &losses[1], sizeof losses[0]) == 0;
    for (uint32_t i = 0; same && i < weir_net_parameter_count(pair->nets[0]); i++) {
        CHECK(weir_net_parameter(pair->nets[0], i, &left) == WEIR_OK);
        CHECK(weir_net_parameter(pair->nets[1], i, &right) == WEIR_OK);
        same = memcmp(left.data, right.data, left.count * sizeof(float)) == 0;
    }
    if (!same) TEST_FAIL("after %s: losses %.9g and %.9g", after, losses[0], losses[1]);
}

static void change_and_compare(struct pair *pair) {
    char path[512];
    snprintf(path, sizeof path, "%s/weights", test_temporary_directory());
    expect_same(pair, "the beginning");
    EXPECT_STATUS(weir_net_save(pair->nets[0], path, NULL, NULL), WEIR_OK);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 2; i++) step(pair->nets[i], &pair->data, true, true);
        expect_same(pair, "an update");
    }
    for (int i = 0; i < 2; i++) {
        step(pair->nets[i], &pair->data, true, false);
        step(pair->nets[i], &pair->data, false, true);
    }
    expect_same(pair, "an update of two mini-batches");
    for (int i = 0; i < 2; i++) write_weights(pair->nets[i]);
    expect_same(pair, "weights of the caller's");
    for (int i = 0; i < 2; i++) EXPECT_STATUS(weir_net_init(pair->nets[i], 9), WEIR_OK);
    expect_same(pair, "new values");
    for (int i = 0; i < 2; i++)
        EXPECT_STATUS(weir_net_load(pair->nets[i], path, NULL, NULL), WEIR_OK);
    expect_same(pair, "a file's");
}

static void compare_bits(const struct weir_model *model, enum weir_dtype dtype, const char *level,
                         bool slices) {
    struct weir_net_options options = options_of(dtype, level);
    options.logits_most = slices ? 1 : 0;
    struct pair pair = {.nets = {NULL, NULL}};
    trial_data_init(&pair.data, &row, &label, WEIR_F32, ROWS, 1, CLASSES);
    pair.nets[0] = trial_net(model, &options);
    options.pipe.memory_limit = UINT64_MAX;
    pair.nets[1] = trial_net(model, &options);
    if (!test_has_failed()) {
        EXPECT(pair.nets[0]->stages[0].state_bytes > 0);
        EXPECT_EQ_UINT(pair.nets[1]->stages[0].state_bytes, 0);
        change_and_compare(&pair);
    }
    if (test_has_failed()) TEST_FAIL("%s at level %s", weir_dtype_name(dtype), level);
    for (int i = 0; i < 2; i++) weir_net_destroy(pair.nets[i]);
    trial_data_clean_up(&pair.data);
}

static void test_copies_change_no_bit(void) {
    const struct weir__level *level;
    for (int frozen = 0; frozen < 2; frozen++) {
        struct weir_model *model = three_layers(frozen == 1);
        for (uint32_t i = 0; (level = weir__level_at(i)) != NULL && !test_has_failed(); i++) {
            if (!weir__level_runs(level)) continue;
            for (int slices = 0; slices < 2; slices++) {
                compare_bits(model, WEIR_F32, level->name, slices == 1);
                compare_bits(model, WEIR_BF16, level->name, slices == 1);
            }
        }
        weir_model_destroy(model);
    }
}

/* ---- when they are made ---- */

static void spoil_copies(struct weir_net *net) {
    struct weir__net_stage *stage = &net->stages[0];
    CHECK(stage->state_bytes > 0);
    memset(stage->at.state, 0xff, stage->state_bytes); /* NaNs */
}

static bool is_spoilt(struct weir_net *net, const struct trial_data *data) {
    double loss = 0;
    infer(net, data, &loss);
    return isnan(loss);
}

static void test_copies_are_made_once_for_weights(void) {
    struct weir_net_options options = options_of(WEIR_F32, NULL);
    struct weir_model *model = three_layers(false);
    struct trial_data data;
    trial_data_init(&data, &row, &label, WEIR_F32, ROWS, 1, CLASSES);
    struct weir_net *net = trial_net(model, &options);
    CHECK(net != NULL);
    EXPECT(!is_spoilt(net, &data));
    spoil_copies(net);
    EXPECT(is_spoilt(net, &data));
    EXPECT_STATUS(weir_net_share(net), WEIR_OK);
    EXPECT(!is_spoilt(net, &data));
    step(net, &data, true, false); /* takes them from inference, and changes nothing yet */
    spoil_copies(net);
    EXPECT(is_spoilt(net, &data));
    EXPECT_STATUS(weir_net_init(net, 3), WEIR_OK);
    step(net, &data, true, true);
    spoil_copies(net);
    EXPECT(!is_spoilt(net, &data));
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

static void test_copies_of_what_does_not_learn_stay_over_updates(void) {
    struct weir_net_options options = options_of(WEIR_F32, NULL);
    struct weir_model *model = three_layers(true);
    struct trial_data data;
    trial_data_init(&data, &row, &label, WEIR_F32, ROWS, 1, CLASSES);
    struct weir_net *net = trial_net(model, &options);
    CHECK(net != NULL);
    EXPECT(!is_spoilt(net, &data));
    step(net, &data, true, true);
    spoil_copies(net);
    EXPECT(is_spoilt(net, &data));
    EXPECT_STATUS(weir_net_share(net), WEIR_OK);
    EXPECT(!is_spoilt(net, &data));
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* The head's alone. */
static void spoil_head(struct weir_net *net) {
    struct weir__net_stage *stage = &net->stages[0];
    const struct weir__node *head = weir__graph_head(&stage->compiled->graph);
    CHECK(head != NULL);
    const struct weir__net_lasting *lasting = &stage->plan.lasting[head->id];
    CHECK(lasting->bytes > 0);
    memset((char *)stage->at.state + lasting->offset, 0xff, lasting->bytes);
}

/* The loss makes logits from the copy that the output's product has, and packs it for that. */
static void test_a_copy_serves_the_loss_and_the_output(void) {
    struct weir_net_options options = options_of(WEIR_F32, NULL);
    struct weir_model *model = three_layers(false);
    struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
    float output[ROWS * CLASSES];
    struct trial_data data;
    options.logits_most = 1;
    trial_data_init(&data, &row, &label, WEIR_F32, ROWS, 1, CLASSES);
    struct weir_net *net = trial_net(model, &options);
    CHECK(net != NULL);
    EXPECT(!is_spoilt(net, &data));
    spoil_head(net);
    batch.rows = data.rows, batch.input = data.input, batch.output = output;
    EXPECT_STATUS(weir_net_infer(net, &batch, NULL), WEIR_OK);
    EXPECT(isnan(output[0]) && is_spoilt(net, &data));
    EXPECT_STATUS(weir_net_share(net), WEIR_OK);
    EXPECT_STATUS(weir_net_infer(net, &batch, NULL), WEIR_OK);
    EXPECT(!isnan(output[0]) && !is_spoilt(net, &data));
    weir_net_destroy(net);
    trial_data_clean_up(&data);
    weir_model_destroy(model);
}

/* ---- where ---- */

enum { WIDE = 64, WIDER = 96, NARROW = 32 }; /* whole tiles */

/** Of 64 -> 96 -> 32; the first layer's input needs no gradient. */
static size_t kept_bytes(const struct weir_model *model, const struct weir_net_options *options) {
    struct weir_net *net = trial_net(model, options);
    size_t bytes = net == NULL ? SIZE_MAX : net->stages[0].state_bytes;
    weir_net_destroy(net);
    return bytes;
}

static void test_copies_are_kept_where_they_pay(void) {
    const struct weir_tensor wide = {.dtype = WEIR_F32, .rank = 1, .shape = {WIDE}};
    const size_t first = WIDE * WIDER * sizeof(float), second = WIDER * NARROW * sizeof(float);
    struct weir_model *model = trial_model(wide, label, "cross_entropy");
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", WIDER)));
    trial_add(model, "linear", WEIR_ATTRS(WEIR_ATTR_INT("out_features", NARROW)));
    struct weir_net_options options = options_of(WEIR_F32, NULL);
    EXPECT_EQ_UINT(kept_bytes(model, &options), first + 2 * second);
    options.logits_most = 1; /* the loss packs for its gradient itself, once in a slice */
    EXPECT_EQ_UINT(kept_bytes(model, &options), first + second);
    options.logits_most = 0;
    options.pipe.rows = 8 * CHUNKS; /* few rows read what lies in their order where it is */
    EXPECT_EQ_UINT(kept_bytes(model, &options), first + second);
    options.pipe.rows = ROWS;
    options.pipe.memory_limit = UINT64_C(1) << 40;
    EXPECT_EQ_UINT(kept_bytes(model, &options), 0);
    options.pipe.memory_limit = 0;
    options.pipe.chunks = 1;
    EXPECT_EQ_UINT(kept_bytes(model, &options), 0);
    options.pipe.infer_only = true;
    EXPECT_EQ_UINT(kept_bytes(model, &options), first + second);
    options.pipe.infer_only = false;
    options.pipe.chunks = 2;
    options.pipe.rows = 2 * 4096;
    EXPECT_EQ_UINT(kept_bytes(model, &options), first + 2 * second);
    options.pipe.rows++;
    EXPECT_EQ_UINT(kept_bytes(model, &options), 0);
    weir_model_destroy(model);
}

WEIR_TEST_SUITE(net_packed, TEST(copies_change_no_bit), TEST(copies_are_made_once_for_weights),
                TEST(copies_of_what_does_not_learn_stay_over_updates),
                TEST(a_copy_serves_the_loss_and_the_output), TEST(copies_are_kept_where_they_pay))
