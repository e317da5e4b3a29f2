/* SPDX-License-Identifier: MIT */
/*
 * Goal: of cuDNN's engines the first one is taken that may be used, the same for all row counts;
 * plans on disk are taken where they are whole and for this GPU; nothing is left behind. Method: in
 * the library's place stands one of this file's, which keeps descriptors and their attributes and
 * offers the engines that a test lists; the library itself needs a GPU.
 */
#include "harness.h"
#include "net/cuda/cudnn_attention.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a library of listed engines ---- */

struct attribute {
    int name, type;
    int64_t count;
    char data[256];
};

struct descriptor {
    int kind, attribute_count;
    int64_t engine, rows; /* of engines and what is made of them: the list's, the graph's */
    struct attribute attributes[12];
    char json[64];
};

struct engine {
    int note; /* -1: none */
    int64_t workspace;
    int64_t refused_rows; /* it cannot be made for so many; 0: any */
    int64_t stream_k;     /* the knob's value; -1: it has none */
    bool fallback;        /* offered by that mode alone */
    int operations;       /* for graphs of so many; 0: any */
};

static struct {
    const struct engine *engines;
    int engine_count;
    int alive, handles, heuristics;
    int64_t heuristic_rows;
    int calls, fail_at, executed;
    int64_t tensors; /* of a variant pack */
    size_t version;
    const void *ran[8][16]; /* where the tensors of a run were, by id */
} dnn;

static int enter(void) {
    return ++dnn.calls == dnn.fail_at ? WEIR__CUDNN_INTERNAL_ERROR : 0;
}

static int create(void **handle) {
    int result = enter();
    if (result == 0) *handle = &dnn.handles;
    if (result == 0) dnn.handles++;
    return result;
}

static int destroy(void *handle) {
    EXPECT(handle == &dnn.handles);
    dnn.handles--;
    return 0;
}

static int set_stream(void *handle, struct CUstream_st *stream) {
    EXPECT(handle == &dnn.handles && stream != NULL);
    return enter();
}

static int descriptor_create(int kind, void **to) {
    int result = enter();
    if (result != 0) return result;
    struct descriptor *made = calloc(1, sizeof *made);
    made->kind = kind;
    *to = made;
    dnn.alive++;
    return 0;
}

static int descriptor_destroy(void *descriptor) {
    free(descriptor);
    dnn.alive--;
    return 0;
}

static const struct attribute *find(const struct descriptor *in, int name) {
    for (int i = 0; i < in->attribute_count; i++)
        if (in->attributes[i].name == name) return &in->attributes[i];
    return NULL;
}

static const struct descriptor *descriptor_of(const struct descriptor *in, int name) {
    const struct descriptor *found = NULL;
    const struct attribute *attribute = find(in, name);
    if (EXPECT(attribute != NULL)) memcpy(&found, attribute->data, sizeof found);
    return found;
}

static int set(void *to, int name, int type, int64_t count, const void *elements) {
    struct descriptor *descriptor = to;
    if (name == WEIR__CUDNN_EXECUTION_PLAN_JSON_REPRESENTATION) {
        EXPECT_EQ_INT(type, WEIR__CUDNN_TYPE_CHAR);
        snprintf(descriptor->json, sizeof descriptor->json, "%.*s", (int)count,
                 (const char *)elements);
        return enter();
    }
    bool small = type == WEIR__CUDNN_TYPE_DATA_TYPE || type == WEIR__CUDNN_TYPE_FLOAT ||
                 type == WEIR__CUDNN_TYPE_CONVOLUTION_MODE || type == WEIR__CUDNN_TYPE_HEUR_MODE ||
                 type == WEIR__CUDNN_TYPE_KNOB_TYPE || type == WEIR__CUDNN_TYPE_POINTWISE_MODE ||
                 type == WEIR__CUDNN_TYPE_REDUCTION_OPERATOR;
    bool single = type == WEIR__CUDNN_TYPE_BOOLEAN;
    size_t bytes = (size_t)count * (single ? sizeof(bool) : small ? sizeof(int) : sizeof(int64_t));
    struct attribute *attribute = &descriptor->attributes[descriptor->attribute_count++];
    EXPECT(descriptor->attribute_count <= 12 && bytes <= sizeof attribute->data);
    *attribute = (struct attribute){name, type, count, {0}};
    memcpy(attribute->data, elements, bytes);
    return enter();
}

/* The rows that a graph's image has. */
static int64_t rows_of(const struct descriptor *graph) {
    const struct descriptor *operation = descriptor_of(graph, WEIR__CUDNN_OPERATIONGRAPH_OPS);
    int name = operation->kind == WEIR__CUDNN_OPERATION_MATMUL ? WEIR__CUDNN_OPERATION_MATMUL_A
               : operation->kind == WEIR__CUDNN_OPERATION_POINTWISE
                   ? WEIR__CUDNN_OPERATION_POINTWISE_X
               : operation->kind == WEIR__CUDNN_OPERATION_FORWARD       ? WEIR__CUDNN_FORWARD_X
               : operation->kind == WEIR__CUDNN_OPERATION_BACKWARD_DATA ? WEIR__CUDNN_BWD_DATA_DX
                                                                        : WEIR__CUDNN_BWD_FILTER_X;
    const struct attribute *sizes =
        find(descriptor_of(operation, name), WEIR__CUDNN_TENSOR_DIMENSIONS);
    int64_t rows = 0;
    if (EXPECT(sizes != NULL && sizes->count == 4)) memcpy(&rows, sizes->data, sizeof rows);
    return rows;
}

/* "engine E rows R", which is what the JSON says. */
static int finalize_plan(struct descriptor *plan) {
    if (plan->json[0] != '\0') {
        bool read =
            sscanf(plan->json, "engine %" SCNd64 " rows %" SCNd64, &plan->engine, &plan->rows) == 2;
        return read ? 0 : WEIR__CUDNN_INTERNAL_ERROR;
    }
    const struct descriptor *config = descriptor_of(plan, WEIR__CUDNN_EXECUTION_PLAN_ENGINE_CONFIG);
    plan->engine = config->engine;
    plan->rows = config->rows;
    snprintf(plan->json, sizeof plan->json, "engine %" PRId64 " rows %" PRId64, plan->engine,
             plan->rows);
    bool refused = plan->rows == dnn.engines[plan->engine].refused_rows;
    return refused ? WEIR__CUDNN_NOT_SUPPORTED : 0;
}

static int finalize(void *made) {
    struct descriptor *descriptor = made;
    int result = enter();
    if (result != 0) return result;
    if (descriptor->kind == WEIR__CUDNN_ENGINE) {
        descriptor->rows = rows_of(descriptor_of(descriptor, WEIR__CUDNN_ENGINE_OPERATION_GRAPH));
        memcpy(&descriptor->engine, find(descriptor, WEIR__CUDNN_ENGINE_GLOBAL_INDEX)->data, 8);
    }
    if (descriptor->kind == WEIR__CUDNN_ENGINECFG) {
        const struct descriptor *engine = descriptor_of(descriptor, WEIR__CUDNN_ENGINECFG_ENGINE);
        bool has_knob = dnn.engines[engine->engine].stream_k >= 0;
        EXPECT_EQ_INT(find(descriptor, WEIR__CUDNN_ENGINECFG_KNOB_CHOICES) != NULL, has_knob);
        descriptor->engine = engine->engine;
        descriptor->rows = engine->rows;
    }
    return descriptor->kind == WEIR__CUDNN_EXECUTION_PLAN ? finalize_plan(descriptor) : 0;
}

static int64_t list_engines(const struct descriptor *heuristic, void **configs) {
    int mode, count = 0;
    memcpy(&mode, find(heuristic, WEIR__CUDNN_ENGINEHEUR_MODE)->data, sizeof mode);
    dnn.heuristics++;
    const struct descriptor *graph =
        descriptor_of(heuristic, WEIR__CUDNN_ENGINEHEUR_OPERATION_GRAPH);
    int64_t operations = find(graph, WEIR__CUDNN_OPERATIONGRAPH_OPS)->count;
    dnn.heuristic_rows = rows_of(graph);
    for (int e = 0; e < dnn.engine_count; e++) {
        const struct engine *engine = &dnn.engines[e];
        bool fits = engine->operations == 0 || engine->operations == operations;
        if (fits && engine->fallback == (mode == WEIR__CUDNN_HEUR_MODE_FALLBACK))
            ((struct descriptor *)configs[count++])->engine = e;
    }
    return count;
}

static void give(void *elements, int64_t *count, const void *value, size_t bytes) {
    memcpy(elements, value, bytes);
    *count = 1;
}

static int get(void *from, int name, int type, int64_t wanted, int64_t *count, void *elements) {
    struct descriptor *descriptor = from;
    const struct engine *engine = &dnn.engines[descriptor->engine];
    int knob = WEIR__CUDNN_KNOB_STREAM_K;
    EXPECT(type > 0 && (wanted > 0 || elements == NULL));
    *count = 0;
    if (name == WEIR__CUDNN_ENGINEHEUR_RESULTS)
        *count = list_engines(descriptor, elements);
    else if (name == WEIR__CUDNN_ENGINECFG_ENGINE) {
        (*(struct descriptor **)elements)->engine = descriptor->engine;
        *count = 1;
    } else if (name == WEIR__CUDNN_ENGINECFG_KNOB_CHOICES && engine->stream_k >= 0) {
        (*(struct descriptor **)elements)->engine = descriptor->engine;
        *count = 1;
    } else if (name == WEIR__CUDNN_KNOB_CHOICE_KNOB_TYPE)
        give(elements, count, &knob, sizeof knob);
    else if (name == WEIR__CUDNN_KNOB_CHOICE_KNOB_VALUE)
        give(elements, count, &engine->stream_k, 8);
    else if (name == WEIR__CUDNN_ENGINE_GLOBAL_INDEX)
        give(elements, count, &descriptor->engine, 8);
    else if (name == WEIR__CUDNN_ENGINE_NUMERICAL_NOTE && engine->note >= 0)
        give(elements, count, &engine->note, sizeof engine->note);
    else if (name == WEIR__CUDNN_EXECUTION_PLAN_WORKSPACE_SIZE)
        give(elements, count, &engine->workspace, 8);
    else if (name == WEIR__CUDNN_EXECUTION_PLAN_JSON_REPRESENTATION) {
        *count = (int64_t)strlen(descriptor->json) + 1;
        if (wanted > 0) memcpy(elements, descriptor->json, (size_t)*count);
    }
    return enter();
}

#define CHECK_OR_ZERO(condition)                                                                   \
    if (!EXPECT(condition)) return 0

static int execute(void *handle, void *plan, void *pack) {
    const struct attribute *ids = find(pack, WEIR__CUDNN_VARIANT_PACK_UNIQUE_IDS);
    EXPECT(handle == &dnn.handles && plan != NULL && ids != NULL);
    EXPECT_EQ_INT(ids->count, dnn.tensors);
    const struct attribute *pointers = find(pack, WEIR__CUDNN_VARIANT_PACK_DATA_POINTERS);
    CHECK_OR_ZERO(pointers != NULL && ids != NULL && dnn.executed < 8);
    for (int64_t i = 0; i < ids->count; i++) {
        int64_t id;
        memcpy(&id, ids->data + 8 * i, sizeof id);
        if (id < 16) memcpy(&dnn.ran[dnn.executed][id], pointers->data + 8 * i, 8);
    }
    dnn.executed++;
    return enter();
}

static size_t version(void) {
    return dnn.version;
}

static const char *error_string(int status) {
    return status == WEIR__CUDNN_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "another";
}

static void library_init(struct weir__cudnn *cudnn, const struct engine *engines, int count) {
    memset(&dnn, 0, sizeof dnn);
    dnn.engines = engines;
    dnn.engine_count = count;
    dnn.tensors = 3;
    *cudnn = (struct weir__cudnn){.gpu = "a GPU",
                                  .get_error_string = error_string,
                                  .get_version = version,
                                  .create = create,
                                  .destroy = destroy,
                                  .set_stream = set_stream,
                                  .descriptor_create = descriptor_create,
                                  .descriptor_destroy = descriptor_destroy,
                                  .finalize = finalize,
                                  .set = set,
                                  .get = get,
                                  .execute = execute};
    pthread_mutex_init(&cudnn->lock, NULL);
}

static void library_clean_up(struct weir__cudnn *cudnn) {
    pthread_mutex_destroy(&cudnn->lock);
    EXPECT_EQ_INT(dnn.alive, 0);
    EXPECT_EQ_INT(dnn.handles, 0);
}

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

#define SOME_STREAM ((struct CUstream_st *)(uintptr_t)16)

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
    dnn.tensors = bias != NULL ? 4 : 3;
    EXPECT_STATUS(weir__cudnn_convolution_run(cudnn, plan, &call, &failure), WEIR_OK);
    struct weir__cudnn_plan again = {0};
    EXPECT_EQ_INT(weir__cudnn_convolution_plan(cudnn, &dnn.handles, convolution, 1 << 20, &again),
                  0);
    memcpy(json, ((struct descriptor *)again.plan)->json, 64);
    weir__cudnn_forget(cudnn, again.plan);
    weir__cudnn_convolution_destroy(cudnn, plan);
}

/* ---- which engine ---- */

static void test_engines_that_do_not_repeat_are_passed_over(void) {
    const struct engine engines[] = {{WEIR__CUDNN_NOTE_NONDETERMINISTIC, 0, 0, -1, false},
                                     {WEIR__CUDNN_NOTE_DOWN_CONVERT_INPUTS, 0, 0, -1, false},
                                     {WEIR__CUDNN_NOTE_FFT, 0, 0, -1, false},
                                     {-1, INT64_C(1) << 40, 0, -1, false},
                                     {WEIR__CUDNN_NOTE_TENSOR_CORE, 64, 0, 0, false},
                                     {-1, 64, 0, -1, false}};
    struct weir__cudnn cudnn;
    char json[64];
    library_init(&cudnn, engines, 6);
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_BF16);
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 4 rows 4");
    shape.image = shape.weight = WEIR_F32; /* tensor cores would be TF32 */
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 5 rows 4");
    library_clean_up(&cudnn);
}

static void test_one_engine_serves_all_row_counts(void) {
    const struct engine engines[] = {
        {-1, 0, 4, -1, false}, {-1, 0, 2, -1, false}, {-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    char json[64];
    library_init(&cudnn, engines, 3);
    for (int kind = WEIR__CUDA_CONVOLVE; kind <= WEIR__CUDA_CONVOLVE_GRAD_WEIGHT; kind++) {
        struct weir__cuda_convolution shape =
            shape_of((enum weir__cuda_convolution_kind)kind, 3, WEIR_F32);
        choose(&cudnn, &shape, json); /* engine 0 would serve 3 rows, but not 4 */
        EXPECT_EQ_STR(json, "engine 1 rows 3");
        EXPECT_EQ_INT(dnn.heuristic_rows, 4);
        shape.rows = 2;
        choose(&cudnn, &shape, json); /* engine 1 does not, the next one does */
        EXPECT_EQ_STR(json, "engine 2 rows 2");
    }
    library_clean_up(&cudnn);
}

static void test_stream_k_is_for_gradients_of_weights(void) {
    const struct engine engines[] = {{-1, 0, 0, 1, false}, {-1, 0, 0, 0, false}};
    struct weir__cudnn cudnn;
    char json[64];
    library_init(&cudnn, engines, 2);
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_F32);
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 1 rows 4");
    shape.kind = WEIR__CUDA_CONVOLVE_GRAD_WEIGHT;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 0 rows 4");
    library_clean_up(&cudnn);
}

/* What rounds once is two operations: with a bias always, a gradient's store where it can be. */
static void test_sums_stay_apart_where_they_are_rounded_later(void) {
    const struct engine engines[] = {{-1, 0, 0, -1, false, 1}, {-1, 0, 0, -1, false, 2}};
    struct weir__cudnn cudnn;
    char json[64];
    library_init(&cudnn, engines, 2);
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
    dnn.engine_count = 1;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 0 rows 4");
    shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_BF16);
    shape.has_bias = true;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "");
    library_clean_up(&cudnn);
}

static void test_the_fallback_comes_last(void) {
    const struct engine engines[] = {{-1, 0, 0, -1, true},
                                     {WEIR__CUDNN_NOTE_NONDETERMINISTIC, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    char json[64];
    library_init(&cudnn, engines, 2);
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_F32);
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "engine 0 rows 4");
    dnn.engines = &engines[1];
    dnn.engine_count = 1;
    choose(&cudnn, &shape, json);
    EXPECT_EQ_STR(json, "");
    library_clean_up(&cudnn);
}

static void test_whichever_call_fails_nothing_is_left(void) {
    const struct engine engines[] = {{-1, 0, 0, 0, false}};
    struct weir__cudnn cudnn;
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    bool failed = true;
    int k = 0;
    library_init(&cudnn, engines, 1);
    while (failed && k < 1000) {
        struct weir__cuda_failure failure = {0};
        void *plan = NULL;
        dnn.calls = 0;
        dnn.fail_at = ++k;
        int status = weir__cudnn_convolution_new(&cudnn, &shape, SOME_STREAM, &plan, &failure);
        failed = dnn.calls >= k;
        EXPECT_EQ_INT(plan == NULL, status != WEIR_OK); /* the fallback may still do */
        weir__cudnn_convolution_destroy(&cudnn, plan);
        EXPECT_EQ_INT(dnn.alive, 0);
        EXPECT_EQ_INT(dnn.handles, 0);
    }
    EXPECT(k > 100 && k < 1000);
    library_clean_up(&cudnn);
}

static void test_a_stream_has_one_handle(void) {
    const struct engine engines[] = {{-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    struct weir__cuda_failure failure = {0};
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    void *plans[3] = {NULL};
    library_init(&cudnn, engines, 1);
    for (int i = 0; i < 3; i++) {
        struct CUstream_st *stream = (struct CUstream_st *)(uintptr_t)(i < 2 ? 16 : 32);
        EXPECT_STATUS(weir__cudnn_convolution_new(&cudnn, &shape, stream, &plans[i], &failure),
                      WEIR_OK);
    }
    EXPECT_EQ_INT(dnn.handles, 2);
    weir__cudnn_convolution_destroy(&cudnn, plans[0]);
    EXPECT_EQ_INT(dnn.handles, 2);
    weir__cudnn_convolution_destroy(&cudnn, plans[1]);
    EXPECT_EQ_INT(dnn.handles, 1);
    weir__cudnn_convolution_destroy(&cudnn, plans[2]);
    library_clean_up(&cudnn);
}

/* ---- attention ---- */

static const struct weir__cuda_attend some_attention = {false, 12, 12, 1024, 12, 64};

/* Of engines only the sixth and seventh can be set, as an attention's are. */
static const struct engine attention_engines[] = {
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
    int result = weir__cudnn_attention_init(cudnn, &dnn.handles, attend, &made);
    json[0] = '\0';
    if (result != 0) {
        EXPECT_EQ_INT(result, WEIR__CUDNN_NOT_SUPPORTED);
        return;
    }
    memcpy(json, ((struct descriptor *)made.whole.plan)->json, 64);
    weir__cudnn_attention_clean_up(cudnn, &made);
}

static void test_attention_is_by_gpu_and_version(void) {
    static const struct {
        int capability;
        size_t version;
        int64_t tokens;
        const char *forward, *backward;
    } cases[] = {
        {80, 91801, 1024, "engine 2 rows 12", "engine 2 rows 4"},
        {80, 92600, 8192, "engine 2 rows 12", ""},
        {90, 92400, 8192, "engine 2 rows 12", ""},
        {90, 92500, 8192, "engine 2 rows 12", "engine 6 rows 4"},
        {90, 92500, 1024, "engine 2 rows 12", "engine 2 rows 4"},
        {90, 91800, 1024, "", ""},
        {100, 91801, 1024, "engine 2 rows 12", "engine 5 rows 4"},
        {103, 92300, 8192, "engine 2 rows 12", "engine 5 rows 4"},
        {75, 92600, 1024, "", ""},
        {120, 92600, 1024, "", ""},
        {90, 92600, 1, "", ""},
    };
    struct weir__cudnn cudnn;
    char json[64];
    library_init(&cudnn, attention_engines, WEIR__COUNT_OF(attention_engines));
    for (size_t i = 0; i < WEIR__COUNT_OF(cases); i++) {
        struct weir__cuda_attend attend = some_attention;
        attend.tokens = cases[i].tokens;
        cudnn.capability = cases[i].capability;
        dnn.version = cases[i].version;
        choose_attention(&cudnn, &attend, json);
        EXPECT_EQ_STR(json, cases[i].forward);
        attend.backward = true;
        choose_attention(&cudnn, &attend, json);
        EXPECT_EQ_STR(json, cases[i].backward);
    }
    library_clean_up(&cudnn);
}

static void test_attention_has_heads_of_some_sizes(void) {
    struct weir__cudnn cudnn;
    char json[64];
    library_init(&cudnn, attention_engines, WEIR__COUNT_OF(attention_engines));
    cudnn.capability = 90;
    dnn.version = 92600;
    for (int64_t size = 1; size <= 256; size++) {
        struct weir__cuda_attend attend = some_attention;
        attend.size = size;
        choose_attention(&cudnn, &attend, json);
        EXPECT_EQ_INT(json[0] != '\0', size % 8 == 0 && size <= 128);
    }
    library_clean_up(&cudnn);
}

/* Of `rows` rows, each of 16 units of memory, `at_once` are run together. */
static void run_attention(bool backward, int64_t rows, int64_t at_once, int64_t tensors) {
    struct weir__cudnn cudnn;
    struct weir__cuda_failure failure = {0};
    void *plan = NULL;
    struct weir__cuda_attend attend = some_attention;
    attend.backward = backward;
    attend.rows = rows;
    library_init(&cudnn, attention_engines, WEIR__COUNT_OF(attention_engines));
    cudnn.capability = 80;
    dnn.version = 92600;
    dnn.tensors = tensors;
    CHECK_OK(weir__cudnn_attention_new(&cudnn, &attend, SOME_STREAM, &plan, &failure));
    char *memory = (char *)(uintptr_t)4096, *none = (char *)(uintptr_t)64;
    const struct weir__cuda_attend_call call = {memory, none, (float *)none, none, none, none};
    EXPECT_STATUS(weir__cudnn_attention_run(&cudnn, plan, &call, &failure), WEIR_OK);
    EXPECT_EQ_INT(dnn.executed, (rows - 1) / at_once + 1);
    size_t token = 12 * 64 * 2, row = 1024 * token;
    for (int i = 0; i < dnn.executed; i++) {
        size_t first = (size_t)i * (size_t)at_once;
        EXPECT_EQ_PTR(dnn.ran[i][WEIR__CUDNN_ID_Q], memory + 3 * first * row);
        EXPECT_EQ_PTR(dnn.ran[i][WEIR__CUDNN_ID_V], memory + 3 * first * row + 2 * token);
        EXPECT_EQ_PTR(dnn.ran[i][WEIR__CUDNN_ID_OUT], none + first * row);
        EXPECT_EQ_PTR(dnn.ran[i][WEIR__CUDNN_ID_LSE], none + first * 1024 * 12 * 4);
        if (!backward) continue;
        EXPECT_EQ_PTR(dnn.ran[i][WEIR__CUDNN_ID_DK], none + 3 * first * row + token);
        EXPECT_EQ_PTR(dnn.ran[i][WEIR__CUDNN_ID_DELTA], none);
    }
    weir__cudnn_attention_destroy(&cudnn, plan);
    library_clean_up(&cudnn);
}

static void test_attention_goes_backward_by_a_few_rows(void) {
    run_attention(false, 12, 12, 7);
    run_attention(false, 5, 5, 7);
    run_attention(true, 12, 4, 13);
    run_attention(true, 7, 4, 13);
    run_attention(true, 3, 4, 13);
}

static void test_whichever_call_of_attention_fails_nothing_is_left(void) {
    struct weir__cudnn cudnn;
    struct weir__cuda_attend attend = some_attention;
    bool failed = true;
    int k = 0;
    attend.backward = true;
    attend.rows = 7;
    library_init(&cudnn, attention_engines, WEIR__COUNT_OF(attention_engines));
    cudnn.capability = 80;
    dnn.version = 92600;
    while (failed && k < 4000) {
        struct weir__cuda_failure failure = {0};
        void *plan = NULL;
        dnn.calls = 0;
        dnn.fail_at = ++k;
        int status = weir__cudnn_attention_new(&cudnn, &attend, SOME_STREAM, &plan, &failure);
        failed = dnn.calls >= k;
        EXPECT_EQ_INT(plan == NULL, status != WEIR_OK);
        weir__cudnn_attention_destroy(&cudnn, plan);
        EXPECT_EQ_INT(dnn.alive, 0);
        EXPECT_EQ_INT(dnn.handles, 0);
    }
    EXPECT(k > 500 && k < 4000);
    library_clean_up(&cudnn);
}

/* ---- other ways ---- */

/* The k-th call fails: a plan without another way says so, others are only not supported. */
static int fail_call(struct weir__cudnn *cudnn, const struct weir__cuda_convolution *shape, int k) {
    struct weir__cuda_failure failure = {0};
    void *plan = NULL;
    dnn.calls = 0;
    dnn.fail_at = k;
    int status = weir__cudnn_convolution_new(cudnn, shape, SOME_STREAM, &plan, &failure);
    weir__cudnn_convolution_destroy(cudnn, plan);
    return status;
}

static void test_failures_are_not_supported_where_there_is_another_way(void) {
    const struct engine engines[] = {{-1, 0, 5, -1, false}}; /* which never is made */
    struct weir__cudnn cudnn;
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 4, WEIR_BF16);
    library_init(&cudnn, engines, 0);
    int last = 0; /* of the calls: the fallback's engines are asked for */
    EXPECT_STATUS(fail_call(&cudnn, &shape, 0), WEIR_ERR_UNSUPPORTED);
    last = dnn.calls;
    EXPECT_STATUS(fail_call(&cudnn, &shape, last), WEIR_ERR_BACKEND);
    shape.has_bias = true;
    EXPECT_STATUS(fail_call(&cudnn, &shape, 0), WEIR_ERR_UNSUPPORTED);
    last = dnn.calls;
    EXPECT_STATUS(fail_call(&cudnn, &shape, last), WEIR_ERR_UNSUPPORTED);
    EXPECT_STATUS(fail_call(&cudnn, &shape, 1), WEIR_ERR_BACKEND); /* the handle */
    EXPECT_EQ_INT(weir__cudnn_do_without(WEIR__CUDNN_DEVICE_ALLOCATION_FAILED),
                  WEIR__CUDNN_DEVICE_ALLOCATION_FAILED);
    EXPECT_EQ_INT(weir__cudnn_do_without(0), 0);
    library_clean_up(&cudnn);
}

/* ---- plans on disk ---- */

static bool is_kept(struct weir__cudnn *cudnn, const struct weir__cuda_convolution *shape) {
    struct weir__cuda_failure failure = {0};
    void *plan = NULL;
    dnn.heuristics = 0;
    EXPECT_STATUS(weir__cudnn_convolution_new(cudnn, shape, SOME_STREAM, &plan, &failure), WEIR_OK);
    weir__cudnn_convolution_destroy(cudnn, plan);
    return dnn.heuristics == 0;
}

static void test_plans_are_kept_for_their_gpu_and_shape(void) {
    const struct engine engines[] = {{-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    library_init(&cudnn, engines, 1);
    CHECK(setenv("XDG_CACHE_HOME", test_temporary_directory(), 1) == 0);
    weir__cudnn_cache_find(cudnn.folder);
    EXPECT_CONTAINS(cudnn.folder, "/weir");
    EXPECT(!is_kept(&cudnn, &shape));
    EXPECT(is_kept(&cudnn, &shape));
    shape.rows = 3;
    EXPECT(!is_kept(&cudnn, &shape));
    snprintf(cudnn.gpu, sizeof cudnn.gpu, "another GPU");
    EXPECT(!is_kept(&cudnn, &shape));
    EXPECT(is_kept(&cudnn, &shape));
    library_clean_up(&cudnn);
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
    const struct engine engines[] = {{-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    char output[256];
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    library_init(&cudnn, engines, 1);
    snprintf(cudnn.folder, sizeof cudnn.folder, "%s", test_temporary_directory());
    EXPECT(!is_kept(&cudnn, &shape));
    for (size_t i = 0; i < WEIR__COUNT_OF(commands); i++) {
        int code = test_shell(output, sizeof output, "cd '%s' && %s", cudnn.folder, commands[i]);
        EXPECT_EQ_INT(code, 0);
        EXPECT(!is_kept(&cudnn, &shape));
        EXPECT(is_kept(&cudnn, &shape));
    }
    library_clean_up(&cudnn);
}

static void test_no_place_for_plans_is_no_failure(void) {
    const struct engine engines[] = {{-1, 0, 0, -1, false}};
    struct weir__cudnn cudnn;
    const struct weir__cuda_convolution shape = shape_of(WEIR__CUDA_CONVOLVE, 2, WEIR_F32);
    library_init(&cudnn, engines, 1);
    CHECK(setenv("XDG_CACHE_HOME", "/dev/null", 1) == 0);
    weir__cudnn_cache_find(cudnn.folder);
    unsetenv("XDG_CACHE_HOME");
    EXPECT_EQ_STR(cudnn.folder, "");
    EXPECT(!is_kept(&cudnn, &shape));
    snprintf(cudnn.folder, sizeof cudnn.folder, "/dev/null/weir");
    EXPECT(!is_kept(&cudnn, &shape));
    library_clean_up(&cudnn);
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
                TEST(whichever_call_fails_nothing_is_left), TEST(attention_is_by_gpu_and_version),
                TEST(attention_has_heads_of_some_sizes),
                TEST(attention_goes_backward_by_a_few_rows),
                TEST(whichever_call_of_attention_fails_nothing_is_left),
                TEST(failures_are_not_supported_where_there_is_another_way),
                TEST(a_stream_has_one_handle), TEST(plans_are_kept_for_their_gpu_and_shape),
                TEST(a_broken_plan_is_written_anew), TEST(no_place_for_plans_is_no_failure),
                TEST(a_missing_library_is_named), TEST(cudnn_is_not_left_without_products))
