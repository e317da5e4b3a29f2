/* SPDX-License-Identifier: MIT */
/*
 * Goal: attention is cuDNN's where GPU, version and shape allow, in the way that repeats there; its
 * rows are where they should be; nothing is left behind. Method: as in test_cudnn.c.
 */
#include "cudnn_listed.h"
#include "harness.h"

#include <string.h>

static const struct weir__cuda_attend some_attention = {false, 12, 12, 1024, 12, 64};

/* Of engines only the sixth and seventh can be set, as an attention's are. */
static const struct cudnn_engine attention_engines[] = {
    {WEIR__CUDNN_NOTE_NONDETERMINISTIC, 0, 0, -1, false},
    {-1, 0, 0, 1, false},
    {-1, 64, 0, -1, false},
    {-1, INT64_C(1) << 40, 0, -1, true},
    {-1, INT64_C(1) << 40, 0, -1, true},
    {-1, 0, 0, 0, true},
    {-1, 0, 0, 0, true}};

/* The chosen engine and its rows, "" if the library is not to be used. */
static void choose_attention(struct weir__cudnn *cudnn, const struct weir__cuda_attend *attend,
                             char json[64]) {
    struct weir__cudnn_attention made;
    int result = weir__cudnn_attention_init(cudnn, &cudnn_listed.handles, attend, &made);
    json[0] = '\0';
    if (result != 0) {
        EXPECT_EQ_INT(result, WEIR__CUDNN_NOT_SUPPORTED);
        return;
    }
    cudnn_listed_json(made.whole.plan, json);
    weir__cudnn_attention_clean_up(cudnn, &made);
}

static void test_it_is_by_gpu_and_version(void) {
    static const struct {
        int capability;
        size_t version;
        int64_t tokens;
        const char *forward, *backward;
    } cases[] = {
        {80, 91801, 1024, "engine 2 rows 12", "engine 2 rows 4"},
        {80, 92600, 8192, "engine 2 rows 12", ""},
        {90, 92500, 8192, "engine 2 rows 12", ""},
        {90, 92500, 1024, "engine 2 rows 12", "engine 2 rows 4"},
        {90, 91800, 1024, "", ""},
        {100, 91801, 1024, "engine 2 rows 12", "engine 5 rows 4"},
        {103, 92300, 8192, "engine 2 rows 12", "engine 5 rows 12"},
        {75, 92600, 1024, "", ""},
        {120, 92600, 1024, "", ""},
        {90, 92600, 1, "", ""},
    };
    struct weir__cudnn cudnn;
    char json[64];
    cudnn_listed_init(&cudnn, attention_engines, WEIR__COUNT_OF(attention_engines));
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        struct weir__cuda_attend attend = some_attention;
        attend.tokens = cases[i].tokens;
        cudnn.capability = cases[i].capability;
        cudnn_listed.version = cases[i].version;
        choose_attention(&cudnn, &attend, json);
        EXPECT_EQ_STR(json, cases[i].forward);
        attend.backward = true;
        choose_attention(&cudnn, &attend, json);
        EXPECT_EQ_STR(json, cases[i].backward);
    }
    cudnn_listed_clean_up(&cudnn);
}

static void test_it_has_heads_of_some_sizes(void) {
    struct weir__cudnn cudnn;
    char json[64];
    cudnn_listed_init(&cudnn, attention_engines, WEIR__COUNT_OF(attention_engines));
    cudnn.capability = 90;
    cudnn_listed.version = 92600;
    for (int64_t size = 1; size <= 256; size++) {
        struct weir__cuda_attend attend = some_attention;
        attend.size = size;
        choose_attention(&cudnn, &attend, json);
        EXPECT_EQ_INT(json[0] != '\0', size % 8 == 0 && size <= 128);
    }
    cudnn_listed_clean_up(&cudnn);
}

static void test_a_known_engine_must_repeat_too(void) {
    struct cudnn_engine engines[WEIR__COUNT_OF(attention_engines)];
    struct weir__cudnn cudnn;
    struct weir__cuda_attend attend = some_attention;
    char json[64];
    memcpy(engines, attention_engines, sizeof engines);
    attend.backward = true;
    cudnn_listed_init(&cudnn, engines, WEIR__COUNT_OF(engines));
    cudnn.capability = 100;
    cudnn_listed.version = 92600;
    choose_attention(&cudnn, &attend, json);
    EXPECT_EQ_STR(json, "engine 5 rows 4");
    engines[5].note = WEIR__CUDNN_NOTE_NONDETERMINISTIC;
    choose_attention(&cudnn, &attend, json);
    EXPECT_EQ_STR(json, "");
    cudnn_listed_clean_up(&cudnn);
}

/* What the only engine lacks for the largest part is lacking, for another part it is a failure. */
static void test_the_largest_rows_decide(void) {
    static const struct {
        int64_t refused;
        int result[3]; /* of 3, 7, 8 rows: parts of 3; 4 and 3; 4 and 4 */
    } cases[] = {
        {0, {0, 0, 0}},
        {3, {WEIR__CUDNN_INTERNAL_ERROR, WEIR__CUDNN_INTERNAL_ERROR, 0}},
        {4, {WEIR__CUDNN_NOT_SUPPORTED, WEIR__CUDNN_NOT_SUPPORTED, WEIR__CUDNN_NOT_SUPPORTED}}};
    static const int64_t rows[] = {3, 7, 8};
    struct weir__cudnn cudnn;
    for (size_t c = 0; c < WEIR__COUNT_OF(cases); c++) {
        const struct cudnn_engine engine = {-1, 64, cases[c].refused, -1, false};
        cudnn_listed_init(&cudnn, &engine, 1);
        cudnn.capability = 80;
        cudnn_listed.version = 92600;
        cudnn_listed.refusal = WEIR__CUDNN_COMPILATION_FAILED;
        for (size_t i = 0; i < WEIR__COUNT_OF(rows); i++) {
            struct weir__cudnn_attention made;
            struct weir__cuda_attend attend = some_attention;
            attend.backward = true;
            attend.rows = rows[i];
            int result = weir__cudnn_attention_init(&cudnn, &cudnn_listed.handles, &attend, &made);
            EXPECT_EQ_INT(result, cases[c].result[i]);
            if (result == 0) weir__cudnn_attention_clean_up(&cudnn, &made);
        }
        cudnn_listed_clean_up(&cudnn);
    }
}

/* Of `rows` rows, each of 16 units of memory, `at_once` are run together. */
static void run_attention(bool backward, int64_t rows, int64_t at_once, int64_t tensors) {
    struct weir__cudnn cudnn;
    struct weir__cuda_failure failure = {0};
    void *plan = NULL;
    struct weir__cuda_attend attend = some_attention;
    attend.backward = backward;
    attend.rows = rows;
    cudnn_listed_init(&cudnn, attention_engines, WEIR__COUNT_OF(attention_engines));
    cudnn.capability = 80;
    cudnn_listed.version = 92600;
    cudnn_listed.tensors = tensors;
    CHECK_OK(weir__cudnn_attention_new(&cudnn, &attend, SOME_STREAM, &plan, &failure));
    char *memory = (char *)(uintptr_t)4096, *none = (char *)(uintptr_t)64;
    const struct weir__cuda_attend_call call = {memory, none, (float *)none, none, none, none};
    EXPECT_STATUS(weir__cudnn_attention_run(&cudnn, plan, &call, &failure), WEIR_OK);
    EXPECT_EQ_INT(cudnn_listed.executed, (rows - 1) / at_once + 1);
    size_t token = 12 * 64 * 2, row = 1024 * token;
    for (int i = 0; i < cudnn_listed.executed; i++) {
        size_t first = (size_t)i * (size_t)at_once;
        EXPECT_EQ_PTR(cudnn_listed.ran[i][WEIR__CUDNN_ID_Q], memory + 3 * first * row);
        EXPECT_EQ_PTR(cudnn_listed.ran[i][WEIR__CUDNN_ID_V], memory + 3 * first * row + 2 * token);
        EXPECT_EQ_PTR(cudnn_listed.ran[i][WEIR__CUDNN_ID_OUT], none + first * row);
        EXPECT_EQ_PTR(cudnn_listed.ran[i][WEIR__CUDNN_ID_LSE], none + first * 1024 * 12 * 4);
        if (!backward) continue;
        EXPECT_EQ_PTR(cudnn_listed.ran[i][WEIR__CUDNN_ID_DK], none + 3 * first * row + token);
        EXPECT_EQ_PTR(cudnn_listed.ran[i][WEIR__CUDNN_ID_DELTA], none);
    }
    weir__cudnn_attention_destroy(&cudnn, plan);
    cudnn_listed_clean_up(&cudnn);
}

static void test_it_goes_backward_by_a_few_rows(void) {
    run_attention(false, 12, 12, 7);
    run_attention(false, 5, 5, 7);
    run_attention(true, 12, 4, 13);
    run_attention(true, 7, 4, 13);
    run_attention(true, 3, 4, 13);
}

static void test_whichever_call_fails_nothing_is_left(void) {
    struct weir__cudnn cudnn;
    struct weir__cuda_attend attend = some_attention;
    bool failed = true;
    int k = 0;
    attend.backward = true;
    attend.rows = 7;
    cudnn_listed_init(&cudnn, attention_engines, WEIR__COUNT_OF(attention_engines));
    cudnn.capability = 80;
    cudnn_listed.version = 92600;
    while (failed && k < 4000) {
        struct weir__cuda_failure failure = {0};
        void *plan = NULL;
        cudnn_listed.calls = 0;
        cudnn_listed.fail_at = ++k;
        int status = weir__cudnn_attention_new(&cudnn, &attend, SOME_STREAM, &plan, &failure);
        failed = cudnn_listed.calls >= k;
        EXPECT_EQ_INT(plan == NULL, status != WEIR_OK);
        if (status != WEIR_OK)
            EXPECT_STATUS(status, WEIR_ERR_BACKEND); /* our kernels do not serve */
        if (status != WEIR_OK) EXPECT(failed);
        weir__cudnn_attention_destroy(&cudnn, plan);
        EXPECT_EQ_INT(cudnn_listed.alive, 0);
        EXPECT_EQ_INT(cudnn_listed.handles, 0);
    }
    EXPECT(k > 500 && k < 4000);
    cudnn_listed_clean_up(&cudnn);
}

WEIR_TEST_SUITE(cudnn_attention, TEST(it_is_by_gpu_and_version), TEST(it_has_heads_of_some_sizes),
                TEST(a_known_engine_must_repeat_too), TEST(the_largest_rows_decide),
                TEST(it_goes_backward_by_a_few_rows), TEST(whichever_call_fails_nothing_is_left))
