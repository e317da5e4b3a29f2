/* SPDX-License-Identifier: MIT */
/*
 * Goal: of cuDNN's engines the first one is taken that may be used, the same for all row counts;
 * plans on disk are taken where they are whole and for this GPU; nothing is left behind. Method: in
 * the library's place stands one of listed engines (cudnn_listed.h); the library itself is
 * test_cudnn_real.c's.
 */
#include "kernels/cudnn_listed.h"
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct weir__cuda_convolution shape_of(enum weir__cuda_convolution_kind kind, int64_t rows,
                                              enum weir_dtype dtype) {
    return (struct weir__cuda_convolution){.kind = kind,
                                           .rows = rows,
                                           .rows_max = 4,
                                           .in = 8,
                                           .out = 8,
                                           .window = {.in = {8, 8},
                                                      .out = {8, 8},
                                                      .kernel = {3, 3},
                                                      .stride = {1, 1},
                                                      .padding = {1, 1},
                                                      .groups = 1},
                                           .image = dtype,
                                           .weight = dtype};
}

/* What was chosen, as JSON; "" if nothing could be. */
static void choose(struct weir__cudnn *cudnn, const struct weir__cuda_convolution *convolution,
                   char json[64]) {
    struct weir__cuda_failure failure = {0};
    void *plan = NULL;
    int status = weir__cudnn_convolution_new(cudnn, convolution, SOME_STREAM, &plan, &failure);
    json[0] = '\0';
    if (status != WEIR_OK) {
        EXPECT_STATUS(status, WEIR_ERR_UNSUPPORTED);
        EXPECT_EQ_STR(failure.name, "CUDNN_STATUS_NOT_SUPPORTED");
        return;
    }
    const float *bias = convolution->has_bias ? (const float *)(uintptr_t)64 : NULL;
    const struct weir__cuda_convolution_call call = {json, json, json, bias, json};
    cudnn_listed.tensors = bias != NULL ? 4 : 3;
    EXPECT_STATUS(weir__cudnn_convolution_run(cudnn, plan, &call, &failure), WEIR_OK);
    struct weir__cudnn_plan again = {0};
    EXPECT_EQ_INT(
        weir__cudnn_convolution_plan(cudnn, &cudnn_listed.handles, convolution, 1 << 20, &again),
        0);
    cudnn_listed_json(again.plan, json);
    weir__cudnn_forget(cudnn, again.plan);
    weir__cudnn_convolution_destroy(cudnn, plan);
}

/* ---- which engine ---- */

static void test_engines_that_do_not_repeat_are_passed_over(void) {
    const struct cudnn_engine engines[] = {{WEIR__CUDNN_NOTE_NONDETERMINISTIC, 0, 0, -1, false},
                                           {WEIR__CUDNN_NOTE_DOWN_CONVERT_INPUTS, 0, 0, -1, false},
                                           {WEIR__CUDNN_NOTE_FFT, 0, 0, -1, false},
                                           {-1, INT64_C(1) << 40, 0, -1, false},
                                           {WEIR__CUDNN_NOTE_TENSOR_CORE, 64, 0, 0, false},
                                           {-1, 64, 0, -1, false}};
    struct weir__cudnn cudnn;
    char json[64];
    cudnn_listed_init(&cudnn, engines, 6);
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_BF16);
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 4 rows 4");
    shape.image = shape.weight = WEIR_F32; /* tensor cores would be TF32 */
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 5 rows 4");
    cudnn_listed_clean_up(&cudnn);
}

static void test_one_engine_serves_all_row_counts(void) {
    const struct cudnn_engine engines[] = {
        {-1, 0, 4, -1, false}, {-1, 0, 2, -1, false}, {-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    char json[64];
    cudnn_listed_init(&cudnn, engines, 3);
    for (int kind = WEIR__CUDA_CONVOLVE; kind <= WEIR__CUDA_CONVOLVE_GRAD_WEIGHT; kind++) {
        struct weir__cuda_convolution shape =
            shape_of((enum weir__cuda_convolution_kind)kind, 3, WEIR_F32);
        choose(&cudnn, &shape, json); /* engine 0 would serve 3 rows, but not 4 */
        EXPECT_EQ_STR(json, "engine 1 rows 3");
        EXPECT_EQ_INT(cudnn_listed.heuristic_rows, 4);
        shape.rows = 2;
        choose(&cudnn, &shape, json); /* engine 1 does not, the next one does */
        EXPECT_EQ_STR(json, "engine 2 rows 2");
    }
    cudnn_listed_clean_up(&cudnn);
}

static void test_stream_k_is_for_gradients_of_weights(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, 1, false}, {-1, 0, 0, 0, false}};
    struct weir__cudnn cudnn;
    char json[64];
    cudnn_listed_init(&cudnn, engines, 2);
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_F32);
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 1 rows 4");
    shape.kind = WEIR__CUDA_CONVOLVE_GRAD_WEIGHT;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 0 rows 4");
    cudnn_listed_clean_up(&cudnn);
}

/* What rounds once is two operations: with a bias always, a gradient's store where it can be. */
static void test_sums_stay_apart_where_they_are_rounded_later(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, false, 1}, {-1, 0, 0, -1, false, 2}};
    struct weir__cudnn cudnn;
    char json[64];
    cudnn_listed_init(&cudnn, engines, 2);
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_BF16);
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 0 rows 4");
    shape.has_bias = true;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 1 rows 4");
    shape = shape_of(WEIR__CUDA_CONVOLVE_GRAD_WEIGHT, 4, WEIR_BF16);
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 0 rows 4");
    shape.weight = WEIR_F32;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 1 rows 4");
    cudnn_listed.engine_count = 1;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 0 rows 4");
    shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_BF16);
    shape.has_bias = true;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "");
    cudnn_listed_clean_up(&cudnn);
}

static void test_the_fallback_comes_last(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, true},
                                           {WEIR__CUDNN_NOTE_NONDETERMINISTIC, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    char json[64];
    cudnn_listed_init(&cudnn, engines, 2);
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_F32);
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 0 rows 4");
    cudnn_listed.engines = &engines[1];
    cudnn_listed.engine_count = 1;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "");
    cudnn_listed_clean_up(&cudnn);
}

/* Makes and runs a plan; which it was, "" on a failure. */
static int make_and_run(struct weir__cudnn *cudnn, char json[64]) {
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    const struct weir__cuda_convolution_call call = {json, json, json, NULL, json};
    struct weir__cuda_failure failure = {0};
    void *plan = NULL;
    cudnn_listed_begin();
    int status = weir__cudnn_convolution_new(cudnn, &shape, SOME_STREAM, &plan, &failure);
    int calls = cudnn_listed.calls;
    EXPECT_EQ_INT(plan == NULL, status != WEIR_OK);
    json[0] = '\0';
    cudnn_listed.fail_at = 0;
    if (status == WEIR_OK) {
        EXPECT_STATUS(weir__cudnn_convolution_run(cudnn, plan, &call, &failure), WEIR_OK);
        memcpy(json, cudnn_listed.ran_json, 64);
    }
    weir__cudnn_convolution_destroy(cudnn, plan);
    cudnn_listed.calls = calls;
    EXPECT_EQ_INT(cudnn_listed.alive, 0);
    EXPECT_EQ_INT(cudnn_listed.handles, 0);
    return status;
}

/* The first engine's plan or a failure: never another engine's, now or from disk. */
static void test_whichever_call_fails_no_other_engine_serves(void) {
    const struct cudnn_engine engines[] = {
        {-1, 0, 0, 0, false}, {-1, 0, 0, 0, false}, {-1, 0, 0, 0, true}};
    struct weir__cudnn cudnn;
    bool failed = true;
    int k = 0;
    char json[64];
    cudnn_listed_init(&cudnn, engines, 3);
    snprintf(cudnn.folder, sizeof cudnn.folder, "%s", test_temporary_directory());
    while (failed && k < 1000) {
        cudnn_listed.fail_at = ++k;
        snprintf(cudnn.gpu, sizeof cudnn.gpu, "GPU %d", k);
        int status = make_and_run(&cudnn, json);
        failed = cudnn_listed.calls >= k;
        if (status != WEIR_OK) EXPECT_STATUS(status, WEIR_ERR_BACKEND);
        if (status == WEIR_OK) EXPECT_EQ_STR(json, "engine 0 rows 2");
        EXPECT_STATUS(make_and_run(&cudnn, json), WEIR_OK);
        EXPECT_EQ_STR(json, "engine 0 rows 2");
    }
    EXPECT(k > 100 && k < 1000);
    cudnn_listed_clean_up(&cudnn);
}

/* What an engine lacks, the next one may have; what it fails otherwise, it would have the next
 * time. */
static void test_the_next_engine_is_for_what_one_lacks(void) {
    static const struct {
        int refusal, status;
    } cases[] = {{3000, WEIR_OK},
                 {3999, WEIR_OK},
                 {WEIR__CUDNN_COMPILATION_FAILED, WEIR_OK},
                 {2000, WEIR_ERR_BACKEND},
                 {WEIR__CUDNN_INTERNAL_ERROR, WEIR_ERR_BACKEND},
                 {WEIR__CUDNN_HOST_ALLOCATION_FAILED, WEIR_ERR_OUT_OF_MEMORY},
                 {WEIR__CUDNN_DEVICE_ALLOCATION_FAILED, WEIR_ERR_OUT_OF_MEMORY},
                 {5000, WEIR_ERR_BACKEND}};
    struct weir__cudnn cudnn;
    char json[64];
    for (int fallback = 0; fallback < 2; fallback++) {
        const struct cudnn_engine engines[] = {{-1, 0, 2, -1, false}, {-1, 0, 0, -1, fallback}};
        cudnn_listed_init(&cudnn, engines, 2);
        for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
            cudnn_listed.refusal = cases[i].refusal;
            EXPECT_STATUS(make_and_run(&cudnn, json), cases[i].status);
            EXPECT_EQ_STR(json, cases[i].status == WEIR_OK ? "engine 1 rows 2" : "");
        }
        cudnn_listed_clean_up(&cudnn);
    }
}

static void test_a_stream_has_one_handle(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    struct weir__cuda_failure failure = {0};
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    void *plans[3] = {NULL};
    cudnn_listed_init(&cudnn, engines, 1);
    for (int i = 0; i < 3; i++) {
        struct CUstream_st *stream = (struct CUstream_st *)(uintptr_t)(i < 2 ? 16 : 32);
        EXPECT_STATUS(weir__cudnn_convolution_new(&cudnn, &shape, stream, &plans[i], &failure),
                      WEIR_OK);
    }
    EXPECT_EQ_INT(cudnn_listed.handles, 2);
    weir__cudnn_convolution_destroy(&cudnn, plans[0]);
    EXPECT_EQ_INT(cudnn_listed.handles, 2);
    weir__cudnn_convolution_destroy(&cudnn, plans[1]);
    EXPECT_EQ_INT(cudnn_listed.handles, 1);
    weir__cudnn_convolution_destroy(&cudnn, plans[2]);
    cudnn_listed_clean_up(&cudnn);
}

/* ---- other ways ---- */

/* The k-th call fails. */
static int fail_call(struct weir__cudnn *cudnn, const struct weir__cuda_convolution *shape, int k) {
    struct weir__cuda_failure failure = {0};
    void *plan = NULL;
    cudnn_listed.calls = 0;
    cudnn_listed.fail_at = k;
    int status = weir__cudnn_convolution_new(cudnn, shape, SOME_STREAM, &plan, &failure);
    weir__cudnn_convolution_destroy(cudnn, plan);
    return status;
}

static void test_another_way_is_for_what_is_lacking(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 5, -1, false}}; /* which never is made */
    struct weir__cudnn cudnn;
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_BF16);
    cudnn_listed_init(&cudnn, engines, 0);
    int last = 0; /* of the calls: the fallback's engines are asked for */
    EXPECT_STATUS(fail_call(&cudnn, &shape, 0), WEIR_ERR_UNSUPPORTED);
    last = cudnn_listed.calls;
    EXPECT_STATUS(fail_call(&cudnn, &shape, last), WEIR_ERR_BACKEND);
    shape.has_bias = true;
    EXPECT_STATUS(fail_call(&cudnn, &shape, 0), WEIR_ERR_UNSUPPORTED);
    last = cudnn_listed.calls;
    EXPECT_STATUS(fail_call(&cudnn, &shape, last), WEIR_ERR_BACKEND);
    EXPECT_STATUS(fail_call(&cudnn, &shape, 1), WEIR_ERR_BACKEND); /* the handle */
    EXPECT_EQ_INT(weir__cudnn_do_without(WEIR__CUDNN_COMPILATION_FAILED),
                  WEIR__CUDNN_NOT_SUPPORTED);
    EXPECT_EQ_INT(weir__cudnn_do_without(WEIR__CUDNN_DEVICE_ALLOCATION_FAILED),
                  WEIR__CUDNN_DEVICE_ALLOCATION_FAILED);
    EXPECT_EQ_INT(weir__cudnn_do_without(0), 0);
    cudnn_listed_clean_up(&cudnn);
}

/* ---- plans on disk ---- */

static bool is_kept(struct weir__cudnn *cudnn, const struct weir__cuda_convolution *shape) {
    struct weir__cuda_failure failure = {0};
    void *plan = NULL;
    cudnn_listed.heuristics = 0;
    EXPECT_STATUS(weir__cudnn_convolution_new(cudnn, shape, SOME_STREAM, &plan, &failure), WEIR_OK);
    weir__cudnn_convolution_destroy(cudnn, plan);
    return cudnn_listed.heuristics == 0;
}

static void test_plans_are_kept_for_their_gpu_and_shape(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    cudnn_listed_init(&cudnn, engines, 1);
    CHECK(setenv("XDG_CACHE_HOME", test_temporary_directory(), 1) == 0 &&
          unsetenv("WEIR_CACHE") == 0);
    weir__cache_find(cudnn.folder);
    EXPECT_CONTAINS(cudnn.folder, "/weir");
    EXPECT(!is_kept(&cudnn, &shape));
    EXPECT(is_kept(&cudnn, &shape));
    shape.rows = 3;
    EXPECT(!is_kept(&cudnn, &shape));
    snprintf(cudnn.gpu, sizeof cudnn.gpu, "another GPU");
    EXPECT(!is_kept(&cudnn, &shape));
    EXPECT(is_kept(&cudnn, &shape));
    snprintf(cudnn.versions, sizeof cudnn.versions, "another driver");
    EXPECT(!is_kept(&cudnn, &shape));
    EXPECT(is_kept(&cudnn, &shape));
    cudnn_listed_clean_up(&cudnn);
}

/* `doctor` says which engines runs took: of this GPU and driver, whatever else is there. */
static void test_kept_plans_are_counted_by_engine(void) {
    static const char gpu[] = "Some GPU, 9.0, 132";
    const struct cudnn_engine engines[] = {{-1, 0, 3, -1, false}, {-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    struct weir__cudnn_kept kept[4];
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    char text[64];
    void *plan = NULL;
    struct weir__cuda_failure failure = {0};
    cudnn_listed_init(&cudnn, engines, 2);
    snprintf(cudnn.folder, sizeof cudnn.folder, "%s", test_temporary_directory());
    snprintf(cudnn.gpu, sizeof cudnn.gpu, "%s", gpu);
    snprintf(cudnn.versions, sizeof cudnn.versions, "driver 13000, cuDNN 1 of CUDA 2, NVRTC none");
    EXPECT_EQ_UINT(weir__cudnn_kept(cudnn.folder, gpu, 13000, kept, 4), 0);
    for (int64_t rows = 2; rows <= 4; rows++) {
        shape.rows = shape.rows_max = rows; /* for three the first engine is none */
        EXPECT(!is_kept(&cudnn, &shape));
    }
    CHECK_OK(weir__cudnn_convolution_new(&cudnn, &shape, SOME_STREAM, &plan, &failure));
    weir__cudnn_convolution_tell(plan, text, sizeof text);
    EXPECT_EQ_STR(text, "cuDNN's, engine 0");
    weir__cudnn_convolution_destroy(&cudnn, plan);
    snprintf(cudnn.gpu, sizeof cudnn.gpu, "Some GPU, 9.0, 13");
    EXPECT(!is_kept(&cudnn, &shape));
    EXPECT_EQ_UINT(weir__cudnn_kept(cudnn.folder, gpu, 13000, kept, 4), 2);
    EXPECT(kept[0].engine == 0 && kept[0].plans == 2);
    EXPECT(kept[1].engine == 1 && kept[1].plans == 1);
    EXPECT_EQ_STR(kept[0].what, "convolution");
    EXPECT_EQ_UINT(weir__cudnn_kept(cudnn.folder, gpu, 1300, kept, 4), 0);
    EXPECT_EQ_UINT(weir__cudnn_kept(cudnn.folder, gpu, 13000, kept, 1), 1);
    int code = test_shell(text, sizeof text, "cd '%s' && for f in cudnn-*; do printf y >>$f; done",
                          cudnn.folder);
    EXPECT_EQ_INT(code, 0);
    EXPECT_EQ_UINT(weir__cudnn_kept(cudnn.folder, gpu, 13000, kept, 4), 0);
    EXPECT_EQ_UINT(weir__cudnn_kept("", gpu, 13000, kept, 4), 0);
    cudnn_listed_clean_up(&cudnn);
}

static void test_a_broken_plan_is_written_anew(void) {
    static const char *const commands[] = {
        "for f in cudnn-*; do printf x | dd of=$f bs=1 seek=9 conv=notrunc 2>/dev/null; done",
        "for f in cudnn-*; do head -c 80 $f >t; mv t $f; done",
        "for f in cudnn-*; do : >$f; done",
        "for f in cudnn-*; do printf y >>$f; done",
        "for f in cudnn-*; do tr '\\n' ' ' <$f >t; mv t $f; done",
        "for f in cudnn-*; do sed 's/engine/ENGINE/' $f >t; mv t $f; done",
    };
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    char output[256];
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    cudnn_listed_init(&cudnn, engines, 1);
    snprintf(cudnn.folder, sizeof cudnn.folder, "%s", test_temporary_directory());
    EXPECT(!is_kept(&cudnn, &shape));
    for (size_t i = 0; i < WEIR__COUNT_OF(commands); i++) {
        int code = test_shell(output, sizeof output, "cd '%s' && %s", cudnn.folder, commands[i]);
        EXPECT_EQ_INT(code, 0);
        EXPECT(!is_kept(&cudnn, &shape));
        EXPECT(is_kept(&cudnn, &shape));
    }
    cudnn_listed_clean_up(&cudnn);
}

/* What a plan runs as. */
static void run_to_see(struct weir__cudnn *cudnn, const void *plan, char json[CUDNN_JSON]) {
    struct weir__cuda_failure failure = {0};
    const struct weir__cuda_convolution_call call = {json, json, json, NULL, json};
    cudnn_listed_begin();
    CHECK_OK(weir__cudnn_convolution_run(cudnn, plan, &call, &failure));
    snprintf(json, CUDNN_JSON, "%s", cudnn_listed.ran_json);
}

static void test_an_engine_that_does_not_run_is_dropped_for_good(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, false}, {-1, 0, 0, -1, false}};
    struct weir__cuda_convolution most = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_F32), fewer = most;
    struct weir__cuda_failure failure = {0};
    struct weir__cudnn cudnn;
    char json[CUDNN_JSON];
    void *plan = NULL;
    cudnn_listed_init(&cudnn, engines, 2);
    snprintf(cudnn.folder, sizeof cudnn.folder, "%s", test_temporary_directory());
    CHECK_OK(weir__cudnn_convolution_new(&cudnn, &most, SOME_STREAM, &plan, &failure));
    run_to_see(&cudnn, plan, json);
    EXPECT_EQ_STR(json, "engine 0 rows 4");
    CHECK_OK(weir__cudnn_convolution_next(&cudnn, plan, &failure));
    run_to_see(&cudnn, plan, json);
    EXPECT_EQ_STR(json, "engine 1 rows 4");
    weir__cudnn_convolution_destroy(&cudnn, plan);
    weir__cudnn_dropped_keep(&cudnn);
    for (int64_t rows = 2; rows <= 4; rows++) {
        fewer.rows = rows;
        if (rows == 3) memset(&cudnn.dropped, 0, sizeof cudnn.dropped); /* another process */
        CHECK_OK(weir__cudnn_convolution_new(&cudnn, &fewer, SOME_STREAM, &plan, &failure));
        run_to_see(&cudnn, plan, json);
        EXPECT_CONTAINS(json, "engine 1 rows ");
        EXPECT_STATUS(weir__cudnn_convolution_next(&cudnn, plan, &failure), WEIR_ERR_UNSUPPORTED);
        weir__cudnn_convolution_destroy(&cudnn, plan);
    }
    int status = weir__cudnn_convolution_new(&cudnn, &most, SOME_STREAM, &plan, &failure);
    EXPECT_STATUS(status, WEIR_ERR_UNSUPPORTED); /* the most rows dropped engine 1, too */
    cudnn_listed_clean_up(&cudnn);
}

/* Nor is the next plan, which would be one row count's alone. */
static void test_a_drop_is_not_kept_before_a_plan_has_run(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, false}, {-1, 0, 0, -1, false}};
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_F32);
    struct weir__cuda_failure failure = {0};
    for (int kept = 0; kept < 2; kept++) {
        struct weir__cudnn cudnn;
        char json[CUDNN_JSON];
        void *plan = NULL;
        cudnn_listed_init(&cudnn, engines, 2);
        snprintf(cudnn.folder, sizeof cudnn.folder, "%s", test_temporary_directory());
        CHECK_OK(weir__cudnn_convolution_new(&cudnn, &shape, SOME_STREAM, &plan, &failure));
        CHECK_OK(weir__cudnn_convolution_next(&cudnn, plan, &failure));
        if (kept) weir__cudnn_dropped_keep(&cudnn);
        weir__cudnn_convolution_destroy(&cudnn, plan);
        memset(&cudnn.dropped, 0, sizeof cudnn.dropped); /* another process */
        CHECK_OK(weir__cudnn_convolution_new(&cudnn, &shape, SOME_STREAM, &plan, &failure));
        run_to_see(&cudnn, plan, json);
        EXPECT_EQ_STR(json, kept ? "engine 1 rows 4" : "engine 0 rows 4");
        weir__cudnn_convolution_destroy(&cudnn, plan);
        cudnn_listed_clean_up(&cudnn);
    }
}

/* Else it would be made again for ever. */
static void test_what_cannot_be_remembered_is_the_last(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, false}, {-1, 0, 0, -1, false}};
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_F32);
    struct weir__cuda_failure failure = {0};
    struct weir__cudnn cudnn;
    void *plan = NULL;
    cudnn_listed_init(&cudnn, engines, 2);
    for (size_t i = 0; i < WEIR__CUDNN_DROPPED_MAX; i++) cudnn.dropped[i] = i + 1;
    CHECK_OK(weir__cudnn_convolution_new(&cudnn, &shape, SOME_STREAM, &plan, &failure));
    EXPECT_STATUS(weir__cudnn_convolution_next(&cudnn, plan, &failure), WEIR_ERR_UNSUPPORTED);
    weir__cudnn_convolution_destroy(&cudnn, plan);
    cudnn_listed_clean_up(&cudnn);
}

/* A gradient of weights in F32 has two. */
static void test_an_engine_is_dropped_for_one_graph(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, false}};
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE_GRAD_WEIGHT, 4, WEIR_BF16);
    struct weir__cuda_failure failure = {0};
    struct weir__cudnn cudnn;
    void *plan = NULL;
    shape.weight = WEIR_F32;
    cudnn_listed_init(&cudnn, engines, 1);
    CHECK_OK(weir__cudnn_convolution_new(&cudnn, &shape, SOME_STREAM, &plan, &failure));
    EXPECT_STATUS(weir__cudnn_convolution_next(&cudnn, plan, &failure), WEIR_OK);
    EXPECT_STATUS(weir__cudnn_convolution_next(&cudnn, plan, &failure), WEIR_ERR_UNSUPPORTED);
    weir__cudnn_convolution_destroy(&cudnn, plan);
    cudnn_listed_clean_up(&cudnn);
}

static void test_no_place_for_plans_is_no_failure(void) {
    const struct cudnn_engine engines[] = {{-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    cudnn_listed_init(&cudnn, engines, 1);
    CHECK(setenv("XDG_CACHE_HOME", "/dev/null", 1) == 0 && unsetenv("WEIR_CACHE") == 0);
    weir__cache_find(cudnn.folder);
    unsetenv("XDG_CACHE_HOME");
    EXPECT_EQ_STR(cudnn.folder, "");
    EXPECT(!is_kept(&cudnn, &shape));
    snprintf(cudnn.folder, sizeof cudnn.folder, "/dev/null/weir");
    EXPECT(!is_kept(&cudnn, &shape));
    cudnn_listed_clean_up(&cudnn);
}

static void test_a_missing_library_is_named(void) {
    struct weir_error error = {0};
    struct weir__cuda_failure failure = {0};
    struct weir__cuda_device device = {0};
    void *convolutions = NULL;
    CHECK(setenv("WEIR_CUDNN", "/none/libcudnn.so", 1) == 0);
    EXPECT_STATUS(weir__cudnn_open(&device, &convolutions, &failure, &error), WEIR_ERR_NOT_FOUND);
    unsetenv("WEIR_CUDNN");
    EXPECT(convolutions == NULL);
    EXPECT_CONTAINS(error.message, "WEIR_CUDNN");
    EXPECT_CONTAINS(error.message, "/none/libcudnn.so");
}

static void test_cudnn_is_not_left_without_products(void) {
    struct weir_error error = {0};
    int here = 0;
    EXPECT_STATUS(weir__cudnn_need_products(99, &here, &error), WEIR_ERR_NOT_FOUND);
    EXPECT_CONTAINS(error.message, "libcublasLt.so.99");
    EXPECT_CONTAINS(error.message, "LD_LIBRARY_PATH");
}

WEIR_TEST_SUITE(cudnn, TEST(engines_that_do_not_repeat_are_passed_over),
                TEST(one_engine_serves_all_row_counts), TEST(stream_k_is_for_gradients_of_weights),
                TEST(sums_stay_apart_where_they_are_rounded_later), TEST(the_fallback_comes_last),
                TEST(whichever_call_fails_no_other_engine_serves),
                TEST(the_next_engine_is_for_what_one_lacks),
                TEST(another_way_is_for_what_is_lacking), TEST(a_stream_has_one_handle),
                TEST(plans_are_kept_for_their_gpu_and_shape), TEST(a_broken_plan_is_written_anew),
                TEST(kept_plans_are_counted_by_engine),
                TEST(an_engine_that_does_not_run_is_dropped_for_good),
                TEST(a_drop_is_not_kept_before_a_plan_has_run),
                TEST(what_cannot_be_remembered_is_the_last),
                TEST(an_engine_is_dropped_for_one_graph), TEST(no_place_for_plans_is_no_failure),
                TEST(a_missing_library_is_named), TEST(cudnn_is_not_left_without_products))
