/* SPDX-License-Identifier: MIT */
/*
 * Goal: attention is cuDNN's where GPU, version and shape allow, in the way that repeats there; its
 * rows are where they should be; nothing is left behind. Method: as in test_cudnn.c.
 */
#include "kernels/cudnn_listed.h"
#include "harness.h"

#include <math.h>
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

/* ---- runs ---- */

/* Tensors of a call, far from each other: nothing is there. */
enum { QKV = 1, Y, LSE, DY, DQKV, WORKSPACE };

static char *base(int tensor) {
    return (char *)((uintptr_t)tensor << 40);
}

static void open_runs(struct weir__cudnn *cudnn, int capability, int64_t tensors) {
    cudnn_listed_init(cudnn, attention_engines, WEIR__COUNT_OF(attention_engines));
    cudnn->capability = capability;
    cudnn_listed.version = 92600;
    cudnn_listed.tensors = tensors;
}

static const struct weir__cuda_attend_call *some_call(struct weir__cuda_attend_call *call) {
    *call = (struct weir__cuda_attend_call){base(QKV), base(Y),    (float *)(void *)base(LSE),
                                            base(DY),  base(DQKV), base(WORKSPACE)};
    return call;
}

/* What run i was given by value: the scale, the mask, and backward, one. */
static void expect_numbers(int i, bool backward) {
    const void *const *ran = cudnn_listed.ran[i];
    const float *numbers = cudnn_listed.numbers[i];
    EXPECT(ran[WEIR__CUDNN_ID_SCALE] != NULL && ran[WEIR__CUDNN_ID_MASKED] != NULL);
    EXPECT(numbers[WEIR__CUDNN_ID_SCALE] == 0.125f);
    EXPECT(isinf(numbers[WEIR__CUDNN_ID_MASKED]) && numbers[WEIR__CUDNN_ID_MASKED] < 0);
    EXPECT_EQ_INT(ran[WEIR__CUDNN_ID_ONE] != NULL, backward);
    if (backward) EXPECT(numbers[WEIR__CUDNN_ID_ONE] == 1);
}

/* Where the caller's tensors begin for run i, whose first row is `first`. */
static void expect_tensors(int i, const struct weir__cuda_attend *attend, int64_t first) {
    const void *const *ran = cudnn_listed.ran[i];
    size_t token = (size_t)(attend->heads * attend->size) * 2;
    size_t numbers = (size_t)(first * attend->tokens), row = numbers * token;
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_Q], base(QKV) + 3 * row);
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_K], base(QKV) + 3 * row + token);
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_V], base(QKV) + 3 * row + 2 * token);
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_OUT], base(Y) + row);
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_LSE], base(LSE) + numbers * (size_t)attend->heads * 4);
    bool backward = attend->backward;
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_DOUT], backward ? base(DY) + row : NULL);
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_DQ], backward ? base(DQKV) + 3 * row : NULL);
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_DK], backward ? base(DQKV) + 3 * row + token : NULL);
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_DV], backward ? base(DQKV) + 3 * row + 2 * token : NULL);
}

/* Delta and the plan's own follow each other in the room for them; `rows` of the run. */
static void expect_workspace(int i, const struct weir__cuda_attend *attend, int64_t rows) {
    struct weir__cuda_attend_room room;
    const void *const *ran = cudnn_listed.ran[i];
    const char *plan = cudnn_listed.workspaces[i], *end = base(WORKSPACE);
    EXPECT_STATUS(weir__cuda_attend_room(attend, &room), WEIR_OK);
    EXPECT_EQ_PTR(ran[WEIR__CUDNN_ID_DELTA], attend->backward ? end : NULL);
    if (attend->backward) end += (size_t)(rows * attend->tokens * attend->heads) * 4;
    EXPECT(plan >= end && (uintptr_t)plan % 256 == 0);
    EXPECT(plan + cudnn_listed.wanted[i] <= base(WORKSPACE) + room.bytes);
}

struct runs {
    int capability;
    struct weir__cuda_attend attend;
    int64_t at_once, tensors;
};

/* Of its rows `at_once` are run together. */
static void run_attention(const struct runs *runs) {
    struct weir__cudnn cudnn;
    struct weir__cuda_failure failure = {0};
    struct weir__cuda_attend_call call;
    void *plan = NULL;
    int64_t rows = runs->attend.rows, first = 0;
    open_runs(&cudnn, runs->capability, runs->tensors);
    CHECK_OK(weir__cudnn_attention_new(&cudnn, &runs->attend, SOME_STREAM, &plan, &failure));
    EXPECT_STATUS(weir__cudnn_attention_run(&cudnn, plan, some_call(&call), &failure), WEIR_OK);
    EXPECT_EQ_INT(cudnn_listed.executed, (rows - 1) / runs->at_once + 1);
    for (int i = 0; i < cudnn_listed.executed; i++, first += runs->at_once) {
        int64_t left = rows - first;
        expect_numbers(i, runs->attend.backward);
        expect_tensors(i, &runs->attend, first);
        expect_workspace(i, &runs->attend, left < runs->at_once ? left : runs->at_once);
    }
    weir__cudnn_attention_destroy(&cudnn, plan);
    cudnn_listed_clean_up(&cudnn);
}

static void test_it_goes_backward_by_a_few_rows(void) {
    static const struct runs cases[] = {
        {80, {false, 12, 12, 1024, 12, 64}, 12, 7}, {80, {false, 5, 12, 1024, 12, 64}, 5, 7},
        {80, {true, 12, 12, 1024, 12, 64}, 4, 13},  {80, {true, 7, 12, 1024, 12, 64}, 4, 13},
        {80, {true, 3, 12, 1024, 12, 64}, 4, 13},   {90, {true, 7, 12, 1024, 12, 64}, 4, 13},
        {90, {false, 5, 12, 8192, 12, 64}, 5, 7},   {100, {true, 7, 12, 8192, 12, 64}, 7, 13}};
    for (size_t i = 0; i < WEIR__COUNT_OF(cases) && !test_has_failed(); i++)
        run_attention(&cases[i]);
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

/* Two runs of rows: each call of both is told of. */
static void test_a_run_tells_which_call_failed(void) {
    struct weir__cudnn cudnn;
    struct weir__cuda_failure failure = {0};
    struct weir__cuda_attend attend = {true, 7, 12, 1024, 12, 64};
    struct weir__cuda_attend_call call;
    void *plan = NULL;
    int k = 0, alive;
    open_runs(&cudnn, 90, 13);
    CHECK_OK(weir__cudnn_attention_new(&cudnn, &attend, SOME_STREAM, &plan, &failure));
    alive = cudnn_listed.alive;
    do {
        failure = (struct weir__cuda_failure){0};
        cudnn_listed_begin();
        cudnn_listed.fail_at = ++k;
        int status = weir__cudnn_attention_run(&cudnn, plan, some_call(&call), &failure);
        bool failed = cudnn_listed.calls >= k;
        EXPECT_EQ_INT(cudnn_listed.calls > k, false);
        EXPECT_EQ_INT(status != WEIR_OK, failed);
        EXPECT_EQ_INT(failure.name != NULL, failed);
        EXPECT_EQ_INT(cudnn_listed.alive, alive);
    } while (cudnn_listed.calls >= k && k < 100 && !test_has_failed());
    EXPECT_EQ_INT(k, 2 * 6 + 1);
    EXPECT_EQ_INT(cudnn_listed.executed, 2);
    cudnn_listed.fail_at = 0;
    weir__cudnn_attention_destroy(&cudnn, plan);
    cudnn_listed_clean_up(&cudnn);
}

/* Until no way is left, and the kernels of ours have their turn; where engines are searched and
 * where there is one. */
static void test_an_engine_that_does_not_run_is_dropped(void) {
    static const struct cudnn_engine any = {-1, 0, 0, -1, false}, set = {-1, 0, 0, 0, false};
    const struct cudnn_engine engines[] = {any, any, any, any, any, set};
    const struct weir__cuda_attend attend = {true, 2, 2, 64, 2, 64};
    for (int ordered = 0; ordered < 2; ordered++) {
        struct weir__cudnn cudnn;
        struct weir__cuda_failure failure = {0};
        char text[48];
        void *plan = NULL;
        cudnn_listed_init(&cudnn, engines, ordered ? 6 : 2);
        cudnn_listed.version = 92300;
        cudnn.capability = ordered ? 100 : 90;
        int status = weir__cudnn_attention_new(&cudnn, &attend, SOME_STREAM, &plan, &failure);
        CHECK_OK(status);
        weir__cudnn_attention_tell(plan, text, sizeof text);
        EXPECT_EQ_STR(text, ordered ? "cuDNN's, engine 5" : "cuDNN's, engine 0");
        for (int k = ordered; k < 2; k++) {
            status = weir__cudnn_attention_next(&cudnn, plan, &failure);
            EXPECT_STATUS(status, k == 0 ? WEIR_OK : WEIR_ERR_UNSUPPORTED);
            if (k == 0) weir__cudnn_attention_tell(plan, text, sizeof text);
        }
        if (!ordered) EXPECT_EQ_STR(text, "cuDNN's, engine 1");
        weir__cudnn_attention_destroy(&cudnn, plan);
        cudnn_listed_clean_up(&cudnn);
    }
}

WEIR_TEST_SUITE(cudnn_attention, TEST(it_is_by_gpu_and_version), TEST(it_has_heads_of_some_sizes),
                TEST(a_known_engine_must_repeat_too), TEST(the_largest_rows_decide),
                TEST(it_goes_backward_by_a_few_rows), TEST(whichever_call_fails_nothing_is_left),
                TEST(a_run_tells_which_call_failed), TEST(an_engine_that_does_not_run_is_dropped))
