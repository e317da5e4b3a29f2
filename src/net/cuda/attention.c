/* SPDX-License-Identifier: MIT */
/*
 * Attention, also grouped, and with a cache; rotary positions. Attention in BF16 is a library's
 * (numerics.h), where it has it for the shape: that is found out when the pipe is built, and holds
 * for all of its calls. Else, and where heads share keys, it is by kernels of ours, of which a
 * head's size decides the variant; both have the same shapes, so that a workspace is counted for
 * whichever it will be.
 */
#include "net/cuda/attention_arguments.h"
#include "net/cuda/cuda.h"
#include "net/cuda/numerics.h"
#include "net/cuda/trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TILE = 64, PITCH = TILE + 4, THREADS = 256, SIZES = 3, HEAD_MAX = 256 };
/** On the tensor cores a warp has 16 tokens; heads are of up to 128 numbers, a multiple of 8. */
enum { WARP_ROWS = 16, WARP = 32, TENSOR_SIZES = 2, ALIGNMENT = 256 };
_Static_assert(WEIR__CUDA_ATTEND_SIZE == 128 && WEIR__CUDA_ATTEND_STEP == 8, "ours and libraries'");
/** Shared memory: two tiles and two numbers for each token of one; four tiles of BF16 and likewise,
 * twice; query, scores, shares, sums, and eight numbers a thread. */
enum {
    TILE_SHARED = (2 * TILE * PITCH + 2 * TILE) * sizeof(float),
    TENSOR_SHARED = 4 * TILE * (TILE + 8) * 2 + 4 * TILE * sizeof(float),
    CACHED_SHARED = (3 * THREADS + THREADS / WARP + 8 * THREADS) * sizeof(float)
};

#define VARIANTS(name, type)                                                                       \
    {                                                                                              \
        WEIR__NET_KERNEL_##name##_64_##type, WEIR__NET_KERNEL_##name##_128_##type,                 \
            WEIR__NET_KERNEL_##name##_256_##type                                                   \
    }
#define TENSOR_VARIANTS(name)                                                                      \
    { WEIR__NET_KERNEL_##name##_tensor_64_bf16, WEIR__NET_KERNEL_##name##_tensor_128_bf16 }

/** A kernel's variants, by head size. */
struct variants {
    enum weir__net_kernel by[2][SIZES]; /**< F32, BF16 */
    enum weir__net_kernel tensor[TENSOR_SIZES];
    uint32_t tensor_tile; /**< tokens of a block */
};

static const struct variants forward = {
    {VARIANTS(attention, f32), VARIANTS(attention, bf16)}, TENSOR_VARIANTS(attention), 128};
static const struct variants grad_q = {
    {VARIANTS(attention_grad_q, f32), VARIANTS(attention_grad_q, bf16)},
    TENSOR_VARIANTS(attention_grad_q),
    64};
static const struct variants grad_kv = {
    {VARIANTS(attention_grad_kv, f32), VARIANTS(attention_grad_kv, bf16)},
    TENSOR_VARIANTS(attention_grad_kv),
    64};

static int64_t head_size(const struct weir__op_shape *shape) {
    assert(shape->heads > 0 && shape->width % shape->heads == 0);
    return shape->width / shape->heads;
}

/** Of attention that is not grouped as many as heads. */
static int64_t kv_heads(const struct weir__op_shape *shape) {
    int64_t count = shape->kv_heads == 0 ? shape->heads : shape->kv_heads;
    assert(count > 0 && shape->heads % count == 0);
    return count;
}

/** How many of `count` keys a query sees at most. */
static uint32_t reach_of(const struct weir__op_shape *shape, int64_t count) {
    assert(count <= INT32_MAX && (shape->reach == 0 || !shape->sees_all));
    return (uint32_t)(shape->reach > 0 && shape->reach < count ? shape->reach : count);
}

static bool is_gradient(const struct weir__op_shape *shape) {
    return shape->op == WEIR__OP_attention_grad || shape->op == WEIR__OP_grouped_attention_grad;
}

static bool is_for_tensor_cores(const struct weir__op_shape *shape) {
    int64_t size = head_size(shape);
    return shape->dtype == WEIR_BF16 && size <= WEIR__CUDA_ATTEND_SIZE &&
           size % WEIR__CUDA_ATTEND_STEP == 0;
}

/** Libraries are asked for causal attention only, whose heads have keys of their own. */
static bool may_be_librarys(const struct weir__op_shape *shape) {
    return is_for_tensor_cores(shape) && !shape->sees_all && shape->kv_heads == 0;
}

/** A block for each `tile` tokens of each of `heads`. */
static uint64_t row_blocks_of(const struct weir__op_shape *shape, int64_t heads, uint32_t tile) {
    assert(tile > 0);
    return ((uint64_t)shape->tokens + tile - 1) / tile * (uint64_t)heads;
}

/** Heads of up to 256 numbers, and no more blocks than a launch may have. */
static int check(const struct weir__op_shape *shape) {
    static const int64_t most = INT32_MAX;
    if (head_size(shape) > HEAD_MAX || shape->rows > most || shape->tokens > most ||
        shape->heads > most)
        return WEIR_ERR_UNSUPPORTED;
    uint64_t blocks = row_blocks_of(shape, shape->heads, TILE);
    bool fits = blocks <= INT32_MAX && blocks * (uint64_t)shape->rows <= INT32_MAX;
    return fits ? WEIR_OK : WEIR_ERR_UNSUPPORTED;
}

/* ---- a library's ---- */

/** What prepare makes, where the library has it. */
struct own_attention {
    struct weir__cuda_library_use use;
    void *plan;
};

static struct weir__cuda_attend describe(const struct weir__op_shape *shape) {
    return (struct weir__cuda_attend){.backward = shape->op == WEIR__OP_attention_grad,
                                      .rows = shape->rows,
                                      .rows_max = shape->rows_max > shape->rows ? shape->rows_max
                                                                                : shape->rows,
                                      .tokens = shape->tokens,
                                      .heads = shape->heads,
                                      .size = head_size(shape)};
}

static void release(void *state) {
    struct own_attention *attention = state;
    if (attention == NULL) return;
    if (attention->plan != NULL)
        attention->use.calls->attention_destroy(attention->use.library, attention->plan);
    weir__release(NULL, attention, 1, sizeof *attention);
}

/** What a pipe's log says: whose it is, and for which shape. */
static void note_way(const struct weir__op_shape *shape, struct weir_stream *stream,
                     const char *way) {
    char keys[48] = "";
    if (shape->kv_heads > 0)
        snprintf(keys, sizeof keys, " by %lld of keys", (long long)shape->kv_heads);
    weir__cuda_way_note(weir__cuda_device(stream->device),
                        "attention%s, %lld tokens, %lld heads of %lld%s: %s",
                        is_gradient(shape) ? "'s gradient" : "", (long long)shape->tokens,
                        (long long)shape->heads, (long long)head_size(shape), keys, way);
}

/** Of `attention`, whose library is known. */
static int plan_attention(struct own_attention *attention, const struct weir__cuda_attend *attend,
                          struct weir_stream *stream, struct weir__cuda_failure *failure) {
    const struct weir__cuda_library_use *use = &attention->use;
    int status = use->calls->attention_new(use->library, attend, weir__cuda_stream(stream)->native,
                                           &attention->plan, failure);
    if (status != WEIR_OK) return status;
    return weir__cuda_try_attention(use, attention->plan, attend, stream, failure);
}

/** None of it is a failure where the library only lacks it: the state is NULL then. Any other
 * failure is one, for our kernels have other bits. */
static int prepare_librarys(const struct weir__op_shape *shape, struct weir_stream *stream,
                            void **state) {
    const struct weir__cuda_attend attend = describe(shape);
    struct weir__cuda_failure failure = {0};
    struct weir__cuda_library_use use;
    *state = NULL;
    if (!may_be_librarys(shape) || shape->tokens == 0 || shape->heads == 0) return WEIR_OK;
    int status = weir__cuda_library_try(stream->device, WEIR__CUDA_CONVOLUTIONS, &use);
    if (status != WEIR_OK || use.library == NULL) return status;
    struct own_attention *made = weir__acquire(NULL, 1, sizeof *made);
    if (made == NULL) return WEIR_ERR_OUT_OF_MEMORY;
    made->use = use;
    status = plan_attention(made, &attend, stream, &failure);
    if (status == WEIR_OK)
        *state = made;
    else
        release(made);
    if (status == WEIR_ERR_UNSUPPORTED) return WEIR_OK;
    return weir__cuda_settle(weir__cuda_device(stream->device), status, &failure);
}

static int prepare(const struct weir__op_shape *shape, struct weir_stream *stream, void **state) {
    int status = prepare_librarys(shape, stream, state);
    if (status != WEIR_OK) return status;
    char way[48];
    const struct own_attention *own = *state;
    if (own != NULL)
        own->use.calls->attention_tell(own->plan, way, sizeof way);
    else
        snprintf(way, sizeof way, "Weir's%s",
                 is_for_tensor_cores(shape) ? ", on tensor cores" : "");
    note_way(shape, stream, way);
    return WEIR_OK;
}

static int run(const struct weir__op_call *call, struct weir__cuda_attend_call *attend) {
    const struct own_attention *attention = call->state;
    assert(attention != NULL && attention->plan != NULL);
    struct weir__cuda_failure failure = {0};
    uintptr_t begin = (uintptr_t)call->workspace;
    attend->workspace = (void *)((begin + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    int status = attention->use.calls->attention_run(attention->use.library, attention->plan,
                                                     attend, &failure);
    return weir__cuda_settle(weir__cuda_device(call->stream->device), status, &failure);
}

/* ---- measuring ---- */

static int measure(const struct weir__op_shape *shape, size_t *workspace) {
    const struct weir__cuda_attend attend = describe(shape);
    struct weir__cuda_attend_room room;
    *workspace = 0;
    int status = check(shape);
    if (status != WEIR_OK || !may_be_librarys(shape)) return status;
    status = weir__cuda_attend_room(&attend, &room);
    if (status != WEIR_OK) return status;
    return weir__add(room.bytes, ALIGNMENT, workspace) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/** The library's, or delta. */
static int measure_grad(const struct weir__op_shape *shape, size_t *workspace) {
    int status = measure(shape, workspace);
    if (status != WEIR_OK) return status;
    size_t delta = (size_t)(shape->rows * shape->heads * shape->tokens) * sizeof(float);
    if (*workspace < delta) *workspace = delta;
    return WEIR_OK;
}

/* ---- ours ---- */

/** For each tile of `heads` heads. */
static int launch(const struct weir__op_call *call, const struct variants *variants, int64_t heads,
                  struct weir__cuda_attention *pass) {
    const struct weir__op_shape *shape = call->shape;
    bool tensor = is_for_tensor_cores(shape);
    int which = pass->size <= 64 ? 0 : pass->size <= 128 ? 1 : 2;
    uint32_t tile = tensor ? variants->tensor_tile : TILE;
    uint64_t blocks = row_blocks_of(shape, heads, tile) * (uint64_t)shape->rows;
    assert(blocks <= INT32_MAX);
    struct weir__cuda_grid grid = {{(uint32_t)blocks, 1, 1},
                                   {tensor ? tile / WARP_ROWS * WARP : THREADS, 1, 1},
                                   tensor ? TENSOR_SHARED : TILE_SHARED};
    if (blocks == 0) return WEIR_OK;
    return weir__net_launch(call->stream,
                            tensor ? variants->tensor[which]
                                   : variants->by[shape->dtype == WEIR_BF16][which],
                            &grid, (void *[]){pass});
}

/** What both passes take: of `in`, which begins with qkv, or q, k and v, and `rest`, which is y and
 * lse. */
static struct weir__cuda_attention pass_of(const struct weir__op_shape *shape,
                                           const void *const *in, const void *const *rest) {
    uint64_t size = (uint64_t)head_size(shape), width = (uint64_t)shape->width;
    uint64_t kept = (uint64_t)kv_heads(shape) * size;
    bool grouped = shape->kv_heads > 0;
    size_t third = (size_t)shape->width * weir_dtype_bytes(shape->dtype);
    return (struct weir__cuda_attention){.q = in[0],
                                         .k = grouped ? in[1] : (const char *)in[0] + third,
                                         .v = grouped ? in[2] : (const char *)in[0] + 2 * third,
                                         .y = (void *)(uintptr_t)rest[0],
                                         .lse = (float *)(uintptr_t)rest[1],
                                         .step = grouped ? width : 3 * width,
                                         .kv_step = grouped ? kept : 3 * width,
                                         .tokens = (uint32_t)shape->tokens,
                                         .heads = (uint32_t)shape->heads,
                                         .group = (uint32_t)(shape->heads / kv_heads(shape)),
                                         .size = (uint32_t)size,
                                         .reach = reach_of(shape, shape->tokens),
                                         .sees_all = shape->sees_all,
                                         .scale = (float)(1 / sqrt((double)size))};
}

static int attend(const struct weir__op_call *call) {
    struct weir__cuda_attention pass =
        pass_of(call->shape, call->in, (const void *const *)call->out);
    return launch(call, &forward, call->shape->heads, &pass);
}

static int differentiate(const struct weir__op_call *call, struct weir__cuda_attention *pass) {
    pass->dy = call->in[0];
    pass->delta = call->workspace;
    int status = launch(call, &grad_q, call->shape->heads, pass);
    if (status != WEIR_OK) return status;
    return launch(call, &grad_kv, kv_heads(call->shape), pass);
}

static int attention(const struct weir__op_call *call) {
    if (call->state == NULL) return attend(call);
    struct weir__cuda_attend_call librarys = {
        .qkv = call->in[0], .y = call->out[0], .lse = call->out[1]};
    return run(call, &librarys);
}

static int attention_grad(const struct weir__op_call *call) {
    if (call->state != NULL) {
        struct weir__cuda_attend_call librarys = {.qkv = call->in[1],
                                                  .y = (void *)(uintptr_t)call->in[2],
                                                  .lse = (float *)(uintptr_t)call->in[3],
                                                  .dy = call->in[0],
                                                  .dqkv = call->out[0]};
        return run(call, &librarys);
    }
    struct weir__cuda_attention pass = pass_of(call->shape, call->in + 1, call->in + 2);
    size_t third = (size_t)call->shape->width * weir_dtype_bytes(call->shape->dtype);
    pass.dq = call->out[0];
    pass.dk = (char *)call->out[0] + third;
    pass.dv = (char *)call->out[0] + 2 * third;
    return differentiate(call, &pass);
}

static int grouped_attention_grad(const struct weir__op_call *call) {
    struct weir__cuda_attention pass = pass_of(call->shape, call->in + 1, call->in + 4);
    pass.dq = call->out[0];
    pass.dk = call->out[1];
    pass.dv = call->out[2];
    return differentiate(call, &pass);
}

/* ---- with a cache ---- */

/** Fills in where rows from `first` on stand, at most `most`, which is at most what one launch
 * takes; returns how many. */
static uint32_t take_places(const struct weir__op_call *call, int64_t first, uint32_t most,
                            struct weir__cuda_places *places) {
    assert(call->places != NULL && first < call->shape->rows && most <= WEIR__CUDA_PLACES);
    int64_t left = call->shape->rows - first;
    uint32_t count = left < most ? (uint32_t)left : most;
    size_t bytes = count * sizeof(uint32_t);
    memcpy(places->sequence, call->places->sequence + call->row_first + first, bytes);
    memcpy(places->place, call->places->place + call->row_first + first, bytes);
    for (uint32_t r = 0; r < count; r++) assert(places->place[r] < call->shape->table);
    return count;
}

/** Parts of a past, and how many rows' have room at once: all that a launch takes, unless the
 * pasts are long. */
struct past_parts {
    uint32_t count, rows;
    size_t row_bytes; /**< 0: there is one part, which needs no room */
};

static int count_parts(const struct weir__op_shape *shape, struct past_parts *parts) {
    static const int64_t heads_most = INT32_MAX / WEIR__CUDA_PLACES;
    static const int64_t table_most = (int64_t)UINT16_MAX * WEIR__CUDA_CACHED_PART;
    static const size_t room = (size_t)16 << 20;
    if (head_size(shape) > HEAD_MAX || shape->heads > heads_most || shape->table > table_most)
        return WEIR_ERR_UNSUPPORTED;
    uint32_t reach = reach_of(shape, shape->table);
    int64_t count = (reach + WEIR__CUDA_CACHED_PART - 1) / WEIR__CUDA_CACHED_PART;
    *parts = (struct past_parts){.count = (uint32_t)count, .rows = WEIR__CUDA_PLACES};
    if (count < 2) return WEIR_OK;
    size_t numbers = (size_t)(WEIR__CUDA_CACHED_HEAD + head_size(shape)) * sizeof(float);
    if (!weir__multiply((size_t)count * (size_t)shape->heads, numbers, &parts->row_bytes))
        return WEIR_ERR_OVERFLOW;
    size_t rows = parts->row_bytes == 0 ? 1 : room / parts->row_bytes;
    if (rows < parts->rows) parts->rows = rows == 0 ? 1 : (uint32_t)rows;
    return WEIR_OK;
}

static int measure_cached(const struct weir__op_shape *shape, size_t *workspace) {
    struct past_parts parts;
    *workspace = 0;
    int status = count_parts(shape, &parts);
    if (status != WEIR_OK) return status;
    size_t rows = (size_t)shape->rows < parts.rows ? (size_t)shape->rows : parts.rows;
    return weir__multiply(rows, parts.row_bytes, workspace) ? WEIR_OK : WEIR_ERR_OVERFLOW;
}

/** A row's blocks of 256 threads with 8 numbers each. */
static uint32_t row_blocks(int64_t width) {
    assert(width >= 0);
    static const int64_t per_block = 2048, most = 1 << 16;
    int64_t blocks = (width + per_block - 1) / per_block;
    return (uint32_t)(blocks < most ? blocks : most);
}

/** Launches a kernel for rows of `pass`. */
typedef int cached_fn(const struct weir__op_call *call, struct weir__cuda_cached *pass,
                      uint32_t count);

static int launch_keep(const struct weir__op_call *call, struct weir__cuda_cached *pass,
                       uint32_t count) {
    bool single = call->shape->dtype == WEIR_F32;
    struct weir__cuda_grid grid = {
        {row_blocks((int64_t)(pass->heads / pass->group * pass->size)), count, 1},
        {THREADS, 1, 1},
        0};
    return weir__net_launch(call->stream,
                            single ? WEIR__NET_KERNEL_attention_keep_f32
                                   : WEIR__NET_KERNEL_attention_keep_bf16,
                            &grid, (void *[]){pass});
}

static int launch_attend(const struct weir__op_call *call, struct weir__cuda_cached *pass,
                         uint32_t count) {
    bool single = call->shape->dtype == WEIR_F32;
    pass->part_count = 1;
    pass->parts = call->workspace;
    for (uint32_t r = 0; r < count; r++) {
        uint32_t last = pass->places.place[r];
        uint32_t own = (last < pass->reach ? last : pass->reach - 1) / WEIR__CUDA_CACHED_PART + 1;
        if (own > pass->part_count) pass->part_count = own;
    }
    struct weir__cuda_grid grid = {
        {count * pass->heads, pass->part_count, 1}, {THREADS, 1, 1}, CACHED_SHARED};
    struct weir__cuda_grid join = {{count * pass->heads, 1, 1}, {THREADS, 1, 1}, 0};
    int status = weir__net_launch(call->stream,
                                  single ? WEIR__NET_KERNEL_attention_cached_f32
                                         : WEIR__NET_KERNEL_attention_cached_bf16,
                                  &grid, (void *[]){pass});
    if (status != WEIR_OK || pass->part_count == 1) return status;
    return weir__net_launch(call->stream,
                            single ? WEIR__NET_KERNEL_attention_join_f32
                                   : WEIR__NET_KERNEL_attention_join_bf16,
                            &join, (void *[]){pass});
}

/** For all rows, at most so many at once. */
static int cached_rows(const struct weir__op_call *call, cached_fn *launch, uint32_t most) {
    const struct weir__op_shape *shape = call->shape;
    size_t bytes = weir_dtype_bytes(shape->dtype), width = (size_t)shape->width;
    const void *nothing[] = {NULL, NULL};
    const struct weir__cuda_attention all = pass_of(shape, call->in, nothing);
    int status = WEIR_OK;
    struct weir__cuda_cached pass = {.cache = call->cache,
                                     .step = all.step,
                                     .kv_step = all.kv_step,
                                     .table = (uint32_t)shape->table,
                                     .heads = all.heads,
                                     .group = all.group,
                                     .size = all.size,
                                     .reach = reach_of(shape, shape->table),
                                     .scale = all.scale};
    for (int64_t first = 0; first < shape->rows && status == WEIR_OK; first += most) {
        uint32_t count = take_places(call, first, most, &pass.places);
        pass.q = (const char *)all.q + (size_t)first * all.step * bytes;
        pass.k = (const char *)all.k + (size_t)first * all.kv_step * bytes;
        pass.v = (const char *)all.v + (size_t)first * all.kv_step * bytes;
        pass.y = (char *)call->out[0] + (size_t)first * width * bytes;
        status = launch(call, &pass, count);
    }
    return status;
}

static int attention_cached(const struct weir__op_call *call) {
    struct past_parts parts;
    int status = count_parts(call->shape, &parts);
    if (status != WEIR_OK) return status;
    status = cached_rows(call, launch_keep, WEIR__CUDA_PLACES);
    return status == WEIR_OK ? cached_rows(call, launch_attend, parts.rows) : status;
}

static int position_cached(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    size_t row_bytes = (size_t)shape->width * weir_dtype_bytes(shape->dtype);
    enum weir__net_kernel kernel = shape->dtype == WEIR_F32 ? WEIR__NET_KERNEL_position_cached_f32
                                                            : WEIR__NET_KERNEL_position_cached_bf16;
    struct weir__cuda_position_cached pass = {.table = call->in[1],
                                              .width = (uint64_t)shape->width};
    int status = WEIR_OK;
    for (int64_t first = 0; first < shape->rows && status == WEIR_OK; first += WEIR__CUDA_PLACES) {
        uint32_t count = take_places(call, first, WEIR__CUDA_PLACES, &pass.places);
        struct weir__cuda_grid grid = {{row_blocks(shape->width), count, 1}, {THREADS, 1, 1}, 0};
        pass.x = (const char *)call->in[0] + (size_t)first * row_bytes;
        pass.y = (char *)call->out[0] + (size_t)first * row_bytes;
        status = weir__net_launch(call->stream, kernel, &grid, (void *[]){&pass});
    }
    return status;
}

/* ---- rotary positions ---- */

enum { ROPE_TOKENS = 8 /* of a block */ };

/** Heads of up to 256 numbers, as attention has. */
static int measure_rope(const struct weir__op_shape *shape, size_t *workspace) {
    static const int64_t width_most = INT32_MAX / ROPE_TOKENS;
    *workspace = 0;
    bool fits = head_size(shape) <= 2 * WEIR__CUDA_ROPE_PAIRS && shape->width <= width_most &&
                shape->tokens <= INT32_MAX && shape->rows <= INT32_MAX;
    return fits ? WEIR_OK : WEIR_ERR_UNSUPPORTED;
}

static struct weir__cuda_rope rope_of(const struct weir__op_call *call, float way) {
    const struct weir__op_shape *shape = call->shape;
    struct weir__cuda_rope rope = {.y = call->out[0],
                                   .x = call->in[0],
                                   .rows = (uint64_t)(shape->rows * shape->tokens),
                                   .tokens = (uint32_t)shape->tokens,
                                   .heads = (uint32_t)shape->heads,
                                   .pairs = (uint32_t)(head_size(shape) / 2),
                                   .way = way};
    assert(shape->frequencies != NULL && rope.pairs <= WEIR__CUDA_ROPE_PAIRS);
    memcpy(rope.frequencies, shape->frequencies, rope.pairs * sizeof rope.frequencies[0]);
    return rope;
}

static struct weir__cuda_grid rope_grid(uint64_t rows) {
    return weir__cuda_line(rows, ROPE_TOKENS, THREADS, 0);
}

static int turn(const struct weir__op_call *call, float way) {
    struct weir__cuda_rope pass = rope_of(call, way);
    struct weir__cuda_grid grid = rope_grid(pass.rows);
    if (pass.rows == 0) return WEIR_OK;
    return weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(rope, call->shape), &grid,
                            (void *[]){&pass});
}

static int rope(const struct weir__op_call *call) {
    return turn(call, 1);
}

static int rope_grad(const struct weir__op_call *call) {
    return turn(call, -1);
}

static int rope_cached(const struct weir__op_call *call) {
    const struct weir__op_shape *shape = call->shape;
    size_t row_bytes = (size_t)shape->width * weir_dtype_bytes(shape->dtype);
    struct weir__cuda_rope_cached pass = {.rope = rope_of(call, 1)};
    int status = WEIR_OK;
    for (int64_t first = 0; first < shape->rows && status == WEIR_OK; first += WEIR__CUDA_PLACES) {
        pass.rope.rows = take_places(call, first, WEIR__CUDA_PLACES, &pass.places);
        pass.rope.x = (const char *)call->in[0] + (size_t)first * row_bytes;
        pass.rope.y = (char *)call->out[0] + (size_t)first * row_bytes;
        struct weir__cuda_grid grid = rope_grid(pass.rope.rows);
        status = weir__net_launch(call->stream, WEIR__CUDA_BY_DTYPE(rope_cached, shape), &grid,
                                  (void *[]){&pass});
    }
    return status;
}

#define WHOLE(name, measure_, run_)                                                                \
    [WEIR__OP_##name] = {.measure = (measure_),                                                    \
                         .prepare = prepare,                                                       \
                         .release = release,                                                       \
                         .run = (run_),                                                            \
                         .library = "CUDA"}
#define ROW(name, measure_, run_)                                                                  \
    [WEIR__OP_##name] = {.measure = (measure_), .run = (run_), .library = "CUDA"}

const struct weir__kernel weir__cuda_attention[WEIR__OP_COUNT] = {
    WHOLE(attention, measure, attention),
    WHOLE(attention_grad, measure_grad, attention_grad),
    WHOLE(grouped_attention, measure, attend),
    WHOLE(grouped_attention_grad, measure_grad, grouped_attention_grad),
    ROW(attention_cached, measure_cached, attention_cached),
    ROW(grouped_attention_cached, measure_cached, attention_cached),
    ROW(position_cached, NULL, position_cached),
    ROW(rope, measure_rope, rope),
    ROW(rope_grad, measure_rope, rope_grad),
    ROW(rope_cached, measure_rope, rope_cached),
};
