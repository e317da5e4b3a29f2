/* SPDX-License-Identifier: MIT */
/* Attention by cuDNN: which way, its plans, and running them. */
#include "net/cuda/cudnn_attention.h"

#include <math.h>
#include <stdio.h>

enum { TENSORS_MAX = 16 };

/** A call's, ready to run. */
struct attention {
    struct weir__cudnn_stream *stream;
    struct weir__cudnn_attention made;
};

/* ---- which way ---- */

enum attention_way { WAY_NONE, WAY_SEARCHED, WAY_ORDERED };

bool weir__cudnn_attends_on(int capability) {
    return (capability >= 80 && capability <= 90) || (capability >= 100 && capability <= 103);
}

static bool can(const struct weir__cudnn *cudnn, const struct weir__cuda_attend *attend) {
    return weir__cudnn_attends_on(cudnn->capability) &&
           cudnn->get_version() >= WEIR__CUDNN_ATTENTION_LEAST &&
           attend->size % WEIR__CUDA_ATTEND_STEP == 0 && attend->size <= WEIR__CUDA_ATTEND_SIZE &&
           attend->tokens > 1;
}

static enum attention_way way_of(const struct weir__cudnn *cudnn,
                                 const struct weir__cuda_attend *attend, bool keeps_scores) {
    if (!can(cudnn, attend)) return WAY_NONE;
    if (!attend->backward) return WAY_SEARCHED;
    if (cudnn->capability >= 100) return WAY_ORDERED;
    return keeps_scores ? WAY_SEARCHED : WAY_NONE;
}

/** The engine of 10.x whose sums of dq have an order: by blocks of 128 x 128, told as the knobs
 * are, and as they were until 9.22. */
static struct weir__cudnn_engine ordered_engine(const struct weir__cudnn *cudnn) {
    static const struct weir__cudnn_knob now[] = {
        {WEIR__CUDNN_KNOB_TILE_M, 3},     {WEIR__CUDNN_KNOB_TILE_N, 2},
        {WEIR__CUDNN_KNOB_KERNEL_CFG, 2}, {WEIR__CUDNN_KNOB_STREAM_K, 0},
        {WEIR__CUDNN_KNOB_TILE_CGA_M, 0}, {WEIR__CUDNN_KNOB_STAGES, 2}};
    static const struct weir__cudnn_knob once[] = {{WEIR__CUDNN_KNOB_KERNEL_CFG, 31},
                                                   {WEIR__CUDNN_KNOB_STAGES, 2}};
    static const size_t renamed = 92300;
    bool is_old = cudnn->get_version() < renamed;
    const struct weir__cudnn_knob *knobs = is_old ? once : now;
    struct weir__cudnn_engine engine = {.index = 5, .knob_count = is_old ? 2 : 6};
    for (int64_t k = 0; k < engine.knob_count; k++) engine.knobs[k] = knobs[k];
    return engine;
}

/* ---- plans ---- */

static void key_of(const struct weir__cudnn *cudnn, const struct weir__cuda_attend *attend,
                   enum attention_way way, const int64_t rows[2], struct weir__cudnn_key *key) {
    const int64_t numbers[] = {attend->backward, way,           rows[0],     rows[1],
                               attend->tokens,   attend->heads, attend->size};
    weir__cudnn_key_init(cudnn, "attention", numbers, WEIR__COUNT_OF(numbers), key);
}

/** For rows[0] rows, where rows[1] are the most. */
static int find_plan(const struct weir__cudnn *cudnn, void *handle,
                     const struct weir__cuda_attend *attend, enum attention_way way,
                     const int64_t rows[2], size_t workspace_max, struct weir__cudnn_plan *plan) {
    struct weir__cudnn_graph largest = {.cudnn = cudnn}, own = {.cudnn = cudnn};
    bool is_largest = rows[0] == rows[1];
    struct weir__cudnn_key shape;
    key_of(cudnn, attend, way, (const int64_t[]){rows[1], rows[1]}, &shape);
    const struct weir__cudnn_wish wish = {.shape = &shape,
                                          .largest = &largest,
                                          .own = is_largest ? &largest : &own,
                                          .workspace_max = workspace_max,
                                          .by_rows = true};
    int result = weir__cudnn_attention_graph(&largest, handle, attend, rows[1]);
    if (result == 0 && !is_largest)
        result = weir__cudnn_attention_graph(&own, handle, attend, rows[0]);
    if (result == 0 && way == WAY_SEARCHED) {
        result = weir__cudnn_plan_find(cudnn, handle, &wish, plan);
    } else if (result == 0) {
        const struct weir__cudnn_engine engine = ordered_engine(cudnn);
        bool dropped = weir__cudnn_is_dropped(cudnn, &shape, weir__cudnn_settings(&engine));
        result = dropped
                     ? WEIR__CUDNN_NOT_SUPPORTED
                     : weir__cudnn_plan_of(cudnn, handle, wish.own, &engine, workspace_max, plan);
    }
    weir__cudnn_graph_clean_up(&own);
    weir__cudnn_graph_clean_up(&largest);
    return result;
}

/** Likewise; only the most rows decide that the library lacks it, as they do for all of a pipe:
 * what it lacks for fewer alone is a failure. */
static int find_for_all(const struct weir__cudnn *cudnn, void *handle,
                        const struct weir__cuda_attend *attend, enum attention_way way,
                        const int64_t rows[2], size_t workspace_max,
                        struct weir__cudnn_plan *plan) {
    const int64_t most[] = {rows[1], rows[1]};
    int result = find_plan(cudnn, handle, attend, way, rows, workspace_max, plan);
    if (!weir__cudnn_lacks(result) || rows[0] == rows[1]) return result;
    struct weir__cudnn_plan largest = {NULL, 0, 0, 0};
    int deciding = find_plan(cudnn, handle, attend, way, most, workspace_max, &largest);
    weir__cudnn_forget(cudnn, largest.plan);
    return deciding == 0 ? WEIR__CUDNN_INTERNAL_ERROR : deciding;
}

/** From disk if it is there. */
static int make_plan(const struct weir__cudnn *cudnn, void *handle,
                     const struct weir__cuda_attend *attend, enum attention_way way,
                     const int64_t rows[2], size_t workspace_max, struct weir__cudnn_plan *plan) {
    struct weir__cudnn_keys keys;
    key_of(cudnn, attend, way, rows, &keys.own);
    key_of(cudnn, attend, way, (const int64_t[]){rows[1], rows[1]}, &keys.shape);
    if (weir__cudnn_cache_load(cudnn, handle, &keys, workspace_max, plan)) return 0;
    int result = find_for_all(cudnn, handle, attend, way, rows, workspace_max, plan);
    if (result == 0) weir__cudnn_cache_save(cudnn, &keys.own, plan);
    return result;
}

int weir__cudnn_attention_init(const struct weir__cudnn *cudnn, void *handle,
                               const struct weir__cuda_attend *attend,
                               struct weir__cudnn_attention *attention) {
    assert(attend->rows >= 1 && attend->rows <= attend->rows_max);
    struct weir__cuda_attend_room room;
    *attention = (struct weir__cudnn_attention){.attend = *attend};
    if (weir__cuda_attend_room(attend, &room) != WEIR_OK) return WEIR__CUDNN_NOT_SUPPORTED;
    enum attention_way way = way_of(cudnn, attend, room.keeps_scores);
    if (way == WAY_NONE) return WEIR__CUDNN_NOT_SUPPORTED;
    int64_t most = room.at_once, whole = attend->rows < most ? attend->rows : most;
    int64_t rest = attend->rows % whole;
    attention->room = room;
    attention->at_once = whole;
    attention->scale = (float)(1 / sqrt((double)attend->size));
    attention->masked = -INFINITY;
    attention->one = 1;
    int result = make_plan(cudnn, handle, attend, way, (const int64_t[]){whole, most}, room.plan,
                           &attention->whole);
    if (result == 0 && rest > 0)
        result = make_plan(cudnn, handle, attend, way, (const int64_t[]){rest, most}, room.plan,
                           &attention->rest);
    if (result != 0) weir__cudnn_attention_clean_up(cudnn, attention);
    return weir__cudnn_do_without(result);
}

void weir__cudnn_attention_clean_up(const struct weir__cudnn *cudnn,
                                    struct weir__cudnn_attention *attention) {
    weir__cudnn_forget(cudnn, attention->rest.plan);
    weir__cudnn_forget(cudnn, attention->whole.plan);
    *attention = (struct weir__cudnn_attention){.at_once = 0};
}

bool weir__cudnn_attention_drop(struct weir__cudnn *cudnn,
                                const struct weir__cudnn_attention *attention) {
    const struct weir__cuda_attend *attend = &attention->attend;
    const int64_t most[] = {attention->room.at_once, attention->room.at_once};
    struct weir__cudnn_key shape;
    if (attention->at_once != most[0]) return false;
    key_of(cudnn, attend, way_of(cudnn, attend, attention->room.keeps_scores), most, &shape);
    return weir__cudnn_drop(cudnn, &shape, attention->whole.settings);
}

/* ---- the table's calls ---- */

int weir__cudnn_attention_new(void *convolutions, const struct weir__cuda_attend *attend,
                              struct CUstream_st *stream, void **plan,
                              struct weir__cuda_failure *failure) {
    struct weir__cudnn *cudnn = convolutions;
    struct attention *made = weir__acquire(NULL, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    int result = weir__cudnn_take_handle(cudnn, stream, &made->stream);
    int status = weir__cudnn_status(cudnn, "cudnnCreate", result, failure);
    if (status != WEIR_OK) goto fail_handle;
    result = weir__cudnn_attention_init(cudnn, made->stream->handle, attend, &made->made);
    status = weir__cudnn_status(cudnn, "cudnnBackendFinalize", result, failure);
    if (status != WEIR_OK) goto fail_plans;
    *plan = made;
    return WEIR_OK;

fail_plans:
    weir__cudnn_give_handle(cudnn, made->stream);
fail_handle:
    weir__release(NULL, made, 1, sizeof *made);
    return status;
}

void weir__cudnn_attention_destroy(void *convolutions, void *plan) {
    struct weir__cudnn *cudnn = convolutions;
    struct attention *made = plan;
    if (made == NULL) return;
    weir__cudnn_attention_clean_up(cudnn, &made->made);
    weir__cudnn_give_handle(cudnn, made->stream);
    weir__release(NULL, made, 1, sizeof *made);
}

int weir__cudnn_attention_next(void *convolutions, void *plan, struct weir__cuda_failure *failure) {
    struct weir__cudnn *cudnn = convolutions;
    struct attention *made = plan;
    const struct weir__cuda_attend attend = made->made.attend;
    if (!weir__cudnn_attention_drop(cudnn, &made->made)) return WEIR_ERR_UNSUPPORTED;
    weir__cudnn_attention_clean_up(cudnn, &made->made);
    int result = weir__cudnn_attention_init(cudnn, made->stream->handle, &attend, &made->made);
    return weir__cudnn_status(cudnn, "cudnnBackendFinalize", result, failure);
}

void weir__cudnn_attention_tell(const void *plan, char *text, size_t capacity) {
    weir__cudnn_plan_tell(&((const struct attention *)plan)->made.whole, text, capacity);
}

/* ---- running ---- */

/** What a variant pack says. */
struct pack {
    int64_t ids[TENSORS_MAX];
    const void *pointers[TENSORS_MAX];
    int64_t count;
};

static void put(struct pack *pack, int64_t id, const void *memory, size_t offset) {
    assert(pack->count < TENSORS_MAX);
    pack->ids[pack->count] = id;
    pack->pointers[pack->count++] = (const char *)memory + offset;
}

/** From row `first` on; returns where the plan's own workspace is. */
static void *fill_pack(const struct weir__cudnn_attention *attention,
                       const struct weir__cuda_attend_call *call, int64_t first,
                       struct pack *pack) {
    assert(first >= 0 && first < attention->attend.rows);
    const struct weir__cuda_attend *attend = &attention->attend;
    const struct weir__cuda_attend_room *room = &attention->room;
    size_t tokens = (size_t)(first * attend->tokens), heads = (size_t)attend->heads;
    size_t third = heads * (size_t)attend->size * sizeof(uint16_t), row = tokens * third;
    char *workspace = call->workspace;
    put(pack, WEIR__CUDNN_ID_Q, call->qkv, 3 * row);
    put(pack, WEIR__CUDNN_ID_K, call->qkv, 3 * row + third);
    put(pack, WEIR__CUDNN_ID_V, call->qkv, 3 * row + 2 * third);
    put(pack, WEIR__CUDNN_ID_OUT, call->y, row);
    put(pack, WEIR__CUDNN_ID_LSE, call->lse, tokens * heads * sizeof(float));
    put(pack, WEIR__CUDNN_ID_SCALE, &attention->scale, 0);
    put(pack, WEIR__CUDNN_ID_MASKED, &attention->masked, 0);
    if (!attend->backward) return workspace;
    put(pack, WEIR__CUDNN_ID_DOUT, call->dy, row);
    put(pack, WEIR__CUDNN_ID_DQ, call->dqkv, 3 * row);
    put(pack, WEIR__CUDNN_ID_DK, call->dqkv, 3 * row + third);
    put(pack, WEIR__CUDNN_ID_DV, call->dqkv, 3 * row + 2 * third);
    put(pack, WEIR__CUDNN_ID_ONE, &attention->one, 0);
    put(pack, WEIR__CUDNN_ID_DELTA, workspace, 0);
    return workspace + room->delta;
}

static int run_rows(const struct weir__cudnn *cudnn, const struct attention *made,
                    const struct weir__cuda_attend_call *call, int64_t first,
                    const struct weir__cudnn_plan *plan) {
    struct pack pack = {.count = 0};
    void *workspace = fill_pack(&made->made, call, first, &pack), *described = NULL;
    int result = cudnn->descriptor_create(WEIR__CUDNN_VARIANT_PACK, &described);
    if (result == 0)
        result = cudnn->set(described, WEIR__CUDNN_VARIANT_PACK_UNIQUE_IDS, WEIR__CUDNN_TYPE_INT64,
                            pack.count, pack.ids);
    if (result == 0)
        result = cudnn->set(described, WEIR__CUDNN_VARIANT_PACK_DATA_POINTERS,
                            WEIR__CUDNN_TYPE_VOID_PTR, pack.count, pack.pointers);
    if (result == 0)
        result = cudnn->set(described, WEIR__CUDNN_VARIANT_PACK_WORKSPACE,
                            WEIR__CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (result == 0) result = cudnn->finalize(described);
    if (result == 0) result = cudnn->execute(made->stream->handle, plan->plan, described);
    weir__cudnn_forget(cudnn, described);
    return result;
}

int weir__cudnn_attention_run(void *convolutions, const void *plan,
                              const struct weir__cuda_attend_call *call,
                              struct weir__cuda_failure *failure) {
    const struct weir__cudnn *cudnn = convolutions;
    const struct attention *made = plan;
    int64_t rows = made->made.attend.rows, at_once = made->made.at_once, first = 0;
    assert(at_once >= 1);
    int result = 0;
    for (; result == 0 && rows - first >= at_once; first += at_once)
        result = run_rows(cudnn, made, call, first, &made->made.whole);
    if (result == 0 && first < rows) result = run_rows(cudnn, made, call, first, &made->made.rest);
    return weir__cudnn_status(cudnn, "cudnnBackendExecute", result, failure);
}
