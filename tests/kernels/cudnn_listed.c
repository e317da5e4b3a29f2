/* SPDX-License-Identifier: MIT */
#include "kernels/cudnn_listed.h"

#include "harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct attribute {
    int name, type;
    int64_t count;
    char data[256];
};

struct descriptor {
    int kind, attribute_count;
    int64_t engine, rows; /* of engines and what is made of them: the list's, the graph's */
    struct attribute attributes[12];
    char json[CUDNN_JSON];
};

struct cudnn_listed cudnn_listed;

static int enter(void) {
    return ++cudnn_listed.calls == cudnn_listed.fail_at ? WEIR__CUDNN_INTERNAL_ERROR : 0;
}

static int create(void **handle) {
    int result = enter();
    if (result == 0) *handle = &cudnn_listed.handles;
    if (result == 0) cudnn_listed.handles++;
    return result;
}

static int destroy(void *handle) {
    EXPECT(handle == &cudnn_listed.handles);
    cudnn_listed.handles--;
    return 0;
}

static int set_stream(void *handle, struct CUstream_st *stream) {
    EXPECT(handle == &cudnn_listed.handles && stream != NULL);
    return enter();
}

static int descriptor_create(int kind, void **to) {
    int result = enter();
    if (result != 0) return result;
    struct descriptor *made = calloc(1, sizeof *made);
    made->kind = kind;
    *to = made;
    cudnn_listed.alive++;
    return 0;
}

static int descriptor_destroy(void *descriptor) {
    free(descriptor);
    cudnn_listed.alive--;
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
    bool refused = plan->rows == cudnn_listed.engines[plan->engine].refused_rows;
    int refusal = cudnn_listed.refusal != 0 ? cudnn_listed.refusal : WEIR__CUDNN_NOT_SUPPORTED;
    return refused ? refusal : 0;
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
        bool has_knob = cudnn_listed.engines[engine->engine].stream_k >= 0;
        EXPECT_EQ_INT(find(descriptor, WEIR__CUDNN_ENGINECFG_KNOB_CHOICES) != NULL, has_knob);
        descriptor->engine = engine->engine;
        descriptor->rows = engine->rows;
    }
    return descriptor->kind == WEIR__CUDNN_EXECUTION_PLAN ? finalize_plan(descriptor) : 0;
}

static int64_t list_engines(const struct descriptor *heuristic, void **configs) {
    int mode, count = 0;
    memcpy(&mode, find(heuristic, WEIR__CUDNN_ENGINEHEUR_MODE)->data, sizeof mode);
    cudnn_listed.heuristics++;
    const struct descriptor *graph =
        descriptor_of(heuristic, WEIR__CUDNN_ENGINEHEUR_OPERATION_GRAPH);
    int64_t operations = find(graph, WEIR__CUDNN_OPERATIONGRAPH_OPS)->count;
    cudnn_listed.heuristic_rows = rows_of(graph);
    for (int e = 0; e < cudnn_listed.engine_count; e++) {
        const struct cudnn_engine *engine = &cudnn_listed.engines[e];
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
    const struct cudnn_engine *engine = &cudnn_listed.engines[descriptor->engine];
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

/* What is by value is there only as long as the call. */
static void note_tensor(int64_t id, const void *pointer) {
    bool by_value = id >= WEIR__CUDNN_ID_SCALE && id < CUDNN_IDS;
    if (id < 0 || id >= CUDNN_IDS) return;
    EXPECT(cudnn_listed.ran[cudnn_listed.executed][id] == NULL);
    cudnn_listed.ran[cudnn_listed.executed][id] = pointer;
    if (by_value) memcpy(&cudnn_listed.numbers[cudnn_listed.executed][id], pointer, sizeof(float));
}

static void note_workspace(const struct descriptor *plan, const struct descriptor *pack) {
    const struct attribute *workspace = find(pack, WEIR__CUDNN_VARIANT_PACK_WORKSPACE);
    if (!EXPECT(workspace != NULL && workspace->count == 1)) return;
    memcpy(&cudnn_listed.workspaces[cudnn_listed.executed], workspace->data, sizeof(void *));
    cudnn_listed.wanted[cudnn_listed.executed] = cudnn_listed.engines[plan->engine].workspace;
}

static int execute(void *handle, void *plan, void *pack) {
    const struct attribute *ids = find(pack, WEIR__CUDNN_VARIANT_PACK_UNIQUE_IDS);
    EXPECT(handle == &cudnn_listed.handles && plan != NULL && ids != NULL);
    EXPECT_EQ_INT(ids->count, cudnn_listed.tensors);
    const struct attribute *pointers = find(pack, WEIR__CUDNN_VARIANT_PACK_DATA_POINTERS);
    CHECK_OR_ZERO(pointers != NULL && ids != NULL && cudnn_listed.executed < 8);
    for (int64_t i = 0; i < ids->count; i++) {
        int64_t id;
        const void *pointer;
        memcpy(&id, ids->data + 8 * i, sizeof id);
        memcpy(&pointer, pointers->data + 8 * i, sizeof pointer);
        note_tensor(id, pointer);
    }
    note_workspace(plan, pack);
    cudnn_listed.executed++;
    cudnn_listed_json(plan, cudnn_listed.ran_json);
    return enter();
}

static size_t version(void) {
    return cudnn_listed.version;
}

static const char *error_string(int status) {
    return status == WEIR__CUDNN_NOT_SUPPORTED ? "CUDNN_STATUS_NOT_SUPPORTED" : "another";
}

void cudnn_listed_init(struct weir__cudnn *cudnn, const struct cudnn_engine *engines, int count) {
    memset(&cudnn_listed, 0, sizeof cudnn_listed);
    cudnn_listed.engines = engines;
    cudnn_listed.engine_count = count;
    cudnn_listed.tensors = 3;
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

void cudnn_listed_begin(void) {
    cudnn_listed.calls = cudnn_listed.executed = 0;
    memset(cudnn_listed.ran, 0, sizeof cudnn_listed.ran);
}

void cudnn_listed_clean_up(struct weir__cudnn *cudnn) {
    pthread_mutex_destroy(&cudnn->lock);
    EXPECT_EQ_INT(cudnn_listed.alive, 0);
    EXPECT_EQ_INT(cudnn_listed.handles, 0);
}

void cudnn_listed_json(const void *plan, char json[CUDNN_JSON]) {
    memcpy(json, ((const struct descriptor *)plan)->json, CUDNN_JSON);
}
