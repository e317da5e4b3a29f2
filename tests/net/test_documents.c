/* SPDX-License-Identifier: MIT */
/*
 * Goal: a decoder's documents that share a row (packed) have the numbers that they have in rows of
 * their own, weighted over the whole mini-batch. Method: the same documents in two packed rows and
 * in a row each, behind which is padding whose targets are ignored. Logits are the same bits, as a
 * token's are never those of its neighbours; the loss and gradients differ in the order of their
 * sums alone: 1e-12 in f64, and in f32 epsilon times the root of the longest path's sums, as in
 * test_golden_nets.c.
 */
#include "base/base.h"
#include "harness.h"
#include "net/net_trial.h"
#include "weir_models.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { TOKENS = 24, VOCAB = 20, PACKED_ROWS = 2, DOCUMENTS = 6, PADDING = 5, IGNORED = -100 };

#define DECODER                                                                                    \
    .layers = 3, .width = 16, .inner = 24, .heads = 4, .kv_heads = 2, .head_size = 4,              \
    .context = TOKENS, .vocab = VOCAB, .eps = 1e-5, .rope_theta = 10000, .rope_factor = 1,         \
    .rope_low = 1, .rope_high = 4
static const struct weir_decoder_options families[] = {
    {DECODER, .bias = true, .mlp_bias = true},
    {DECODER, .window = 5},
    {DECODER, .qkv_bias = true, .qk_norm = true, .tied = true}};
/** Per block two norms, products, scores and mix; the last norm and the head; rows and tokens. */
static const double length = 3 * (3 * (2 * 16 + 16 + 4 + TOKENS + 24 + 16 + 24) + 16 + 16) +
                             DOCUMENTS * TOKENS;

/** Where each document stands in the packed rows: these are full but for the last row's padding. */
static const struct document {
    int row, first, count;
} documents[DOCUMENTS] = {{0, 0, 7}, {0, 7, 1}, {0, 8, 11}, {0, 19, 5}, {1, 0, 10}, {1, 10, 9}};

static struct weir_model *make_model(const struct weir_decoder_options *family, bool packed) {
    struct weir_decoder_options options = *family;
    struct weir_model *model = NULL;
    options.packed = packed;
    EXPECT_STATUS(weir_model_decoder(test_allocator(), &options, NULL, &model), WEIR_OK);
    return model;
}

/** The packed rows, and each document's alone, of the same random tokens and targets. */
static void make_data(struct trial_data *packed, struct trial_data *alone) {
    struct weir_tensor row = {.dtype = WEIR_I64, .rank = 1, .shape = {TOKENS}};
    struct weir_tensor packed_row = {.dtype = WEIR_I64, .rank = 2, .shape = {2, TOKENS}};
    trial_data_init(packed, &packed_row, &row, WEIR_F64, PACKED_ROWS, VOCAB, VOCAB);
    trial_data_init(alone, &row, &row, WEIR_F64, DOCUMENTS, VOCAB, VOCAB);
    CHECK_HELPERS();
    int64_t *tokens = alone->input, *targets = alone->target;
    int64_t *packed_input = packed->input, *packed_targets = packed->target;
    int64_t *last = packed_input + 4 * TOKENS - PADDING;
    for (int i = 0; i < PADDING; i++) last[i] = TOKENS - PADDING;
    for (int i = 0; i < PADDING; i++) packed_targets[2 * TOKENS - PADDING + i] = IGNORED;
    for (int d = 0; d < DOCUMENTS; d++, tokens += TOKENS, targets += TOKENS) {
        const struct document *document = &documents[d];
        int64_t *to = packed_input + 2 * TOKENS * document->row + document->first;
        targets[document->count - 1] = IGNORED;
        for (int t = document->count; t < TOKENS; t++) targets[t] = IGNORED;
        memcpy(to, tokens, (size_t)document->count * sizeof *to);
        for (int t = 0; t < document->count; t++) to[TOKENS + t] = document->first;
        memcpy(packed_targets + TOKENS * document->row + document->first, targets,
               (size_t)document->count * sizeof *to);
    }
}

static double number(enum weir_dtype dtype, const void *data, size_t i) {
    return dtype == WEIR_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void compare_logits(enum weir_dtype dtype, const void *packed, const void *alone) {
    size_t bytes = VOCAB * weir_dtype_bytes(dtype);
    for (int d = 0; d < DOCUMENTS; d++) {
        size_t from = (size_t)(TOKENS * documents[d].row + documents[d].first);
        EXPECT_EQ_BYTES((const char *)packed + from * bytes,
                        (const char *)alone + (size_t)(d * TOKENS) * bytes,
                        (size_t)documents[d].count * bytes);
    }
}

/** In the 2-norm, parameter by parameter. */
static void compare_gradients(struct weir_net *net, enum weir_dtype dtype, double tolerance,
                              const struct trial_result *got, const struct trial_result *wanted) {
    size_t at = 0;
    CHECK_EQ_UINT(got->gradient_bytes, wanted->gradient_bytes);
    for (uint32_t p = 0; p < weir_net_parameter_count(net); p++) {
        struct weir_parameter parameter;
        double error = 0, norm = 0;
        CHECK_OK(weir_net_parameter(net, p, &parameter));
        for (uint64_t i = 0; i < parameter.count; i++, at++) {
            double a = number(dtype, got->gradients, at), b = number(dtype, wanted->gradients, at);
            error += (a - b) * (a - b);
            norm += b * b;
        }
        if (!(norm > 0 && sqrt(error) <= tolerance * sqrt(norm)))
            TEST_FAIL("%s is %.3g apart, at most %.3g", parameter.name, sqrt(error / norm),
                      tolerance);
    }
}

static struct weir_net *run(const struct weir_model *model, struct weir_net_options options,
                            const struct trial_data *data, struct trial_result *result) {
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL) trial_step(net, model, data, result);
    return net;
}

static void compare(const struct weir_decoder_options *family, enum weir_dtype dtype,
                    uint32_t stages, uint32_t chunks) {
    double tolerance = dtype == WEIR_F64 ? 1e-12 : FLT_EPSILON * sqrt(length);
    struct weir_model *packed_model = make_model(family, true), *model = make_model(family, false);
    struct weir_net_options several = trial_options(stages, PACKED_ROWS, chunks);
    struct weir_net_options one = trial_options(1, DOCUMENTS, 1);
    struct trial_data packed, alone;
    struct trial_result got = {0}, wanted = {0};
    several.dtype = one.dtype = dtype;
    several.pipe.schedule = "1f1b";
    make_data(&packed, &alone);
    struct weir_net *net = run(packed_model, several, &packed, &got);
    weir_net_destroy(run(model, one, &alone, &wanted));
    if (net != NULL && !test_has_failed()) {
        EXPECT_NEAR(got.loss, wanted.loss, tolerance * wanted.loss);
        compare_logits(dtype, got.output, wanted.output);
        compare_gradients(net, dtype, tolerance, &got, &wanted);
    }
    weir_net_destroy(net);
    trial_result_clean_up(&got);
    trial_result_clean_up(&wanted);
    trial_data_clean_up(&packed);
    trial_data_clean_up(&alone);
    weir_model_destroy(packed_model);
    weir_model_destroy(model);
}

static void test_packed_documents_have_the_numbers_of_rows_of_their_own(void) {
    static const enum weir_dtype dtypes[] = {WEIR_F64, WEIR_F32};
    for (size_t f = 0; f < WEIR__COUNT_OF(families); f++)
        for (size_t d = 0; d < WEIR__COUNT_OF(dtypes); d++)
            for (uint32_t stages = 1; stages <= 3 && !test_has_failed(); stages++)
                compare(&families[f], dtypes[d], stages, stages == 2 ? 2 : 1);
}

/** Stage 0 has the embedding alone: the others have the documents by portals. */
static void test_a_document_that_cannot_be_fails_the_step(void) {
    static const uint32_t balance[] = {1, 5};
    struct weir_model *model = make_model(&families[0], true);
    struct weir_net_options options = trial_options(2, PACKED_ROWS, 1);
    struct weir_step_result result = {0};
    struct trial_data packed, alone;
    options.balance = balance;
    make_data(&packed, &alone);
    struct weir_net *net = trial_net(model, &options);
    if (net != NULL && !test_has_failed()) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        batch.rows = PACKED_ROWS;
        batch.input = packed.input;
        batch.target = packed.target;
        ((int64_t *)packed.input)[TOKENS + 3] = 4;
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_ERR_ARGUMENT);
        EXPECT_CONTAINS(result.error.message, "the document of token 3");
        EXPECT_CONTAINS(result.error.layer, "model.embed_tokens");
        EXPECT(!result.updated);
        ((int64_t *)packed.input)[TOKENS + 3] = 0;
        EXPECT_STATUS(weir_net_step(net, &batch, &result), WEIR_OK);
    }
    weir_net_destroy(net);
    trial_data_clean_up(&packed);
    trial_data_clean_up(&alone);
    weir_model_destroy(model);
}

/** A block of packed rows reads what a packed_embedding stashed, and nothing else. */
static void test_other_tensors_are_no_documents(void) {
    const struct weir_attr attrs[] = {
        WEIR_ATTR_INT("width", 4),    WEIR_ATTR_INT("inner", 4),     WEIR_ATTR_INT("heads", 1),
        WEIR_ATTR_INT("kv_heads", 1), WEIR_ATTR_INT("head_size", 4), WEIR_ATTR_FLAG("packed", true)};
    struct weir_tensor row = {.dtype = WEIR_F32, .rank = 2, .shape = {3, 4}};
    struct weir_net_options options = trial_options(1, 2, 1);
    struct weir_faults faults = WEIR_FAULTS_INIT;
    struct weir_net *net = NULL;
    struct weir_model *model = trial_model(row, row, "mse");
    trial_add_skip(model, "stash", "documents", "");
    trial_add(model, "decoder_block", (struct weir_attrs){WEIR__COUNT_OF(attrs), attrs});
    EXPECT_STATUS(weir_net_new(model, &options, &faults, &net), WEIR_ERR_SHAPE);
    EXPECT_CONTAINS(faults.kept > 0 ? faults.lines[0] : "", "begin the model with a packed_embed");
    weir_faults_clean_up(&faults);
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/** Logits of a text's tokens, one by one, on two stages. */
static void continue_text(bool packed, float logits[TOKENS][VOCAB]) {
    struct weir_model *model = make_model(&families[1], packed);
    struct weir_net_options options = trial_options(2, 1, 1);
    options.dtype = WEIR_F32;
    options.pipe.infer_only = true;
    options.sequences = 1;
    struct weir_net *net = trial_net(model, &options);
    for (uint32_t t = 0; t < TOKENS && net != NULL && !test_has_failed(); t++) {
        struct weir_net_batch batch = WEIR_NET_BATCH_INIT;
        struct weir_step_result result;
        const int64_t token = t * 7 % VOCAB;
        const uint32_t sequence = 0;
        batch.rows = 1;
        batch.input = &token;
        batch.output = logits[t];
        batch.sequence = &sequence;
        batch.place = &t;
        EXPECT_STATUS(weir_net_infer(net, &batch, &result), WEIR_OK);
    }
    weir_net_destroy(net);
    weir_model_destroy(model);
}

/** Token by token there are no rows to pack. */
static void test_a_packed_model_continues_texts_as_any_other(void) {
    static float packed[TOKENS][VOCAB], plain[TOKENS][VOCAB];
    continue_text(true, packed);
    continue_text(false, plain);
    EXPECT_EQ_BYTES(packed, plain, sizeof plain);
    EXPECT(plain[1][0] != plain[2][0]);
}

WEIR_TEST_SUITE(documents, TEST(packed_documents_have_the_numbers_of_rows_of_their_own),
                TEST(a_document_that_cannot_be_fails_the_step),
                TEST(other_tensors_are_no_documents),
                TEST(a_packed_model_continues_texts_as_any_other))
