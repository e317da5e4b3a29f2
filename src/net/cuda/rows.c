/* SPDX-License-Identifier: MIT */
/* The families' rows as one table, and what their launches share. */
#include "net/cuda/cuda.h"

static int narrow(const struct weir__op_call *call) {
    uint64_t count = (uint64_t)(call->shape->rows * call->shape->width);
    if (call->shape->dtype == WEIR_F32)
        return weir__cuda_copy(call->stream, call->out[0], call->in[0], count * sizeof(float), 0);
    return weir__cuda_cast(call->stream, call->out[0], WEIR_BF16, call->in[0], WEIR_F32, count, 0);
}

static int widen(const struct weir__op_call *call) {
    uint64_t count = (uint64_t)(call->shape->rows * call->shape->width);
    if (call->shape->dtype == WEIR_F32)
        return weir__cuda_copy(call->stream, call->out[0], call->in[0], count * sizeof(float), 0);
    return weir__cuda_cast(call->stream, call->out[0], WEIR_F32, call->in[0], WEIR_BF16, count, 0);
}

static const struct weir__kernel casts[WEIR__OP_COUNT] = {
    [WEIR__OP_narrow] = {.run = narrow, .library = "CUDA"},
    [WEIR__OP_widen] = {.run = widen, .library = "CUDA"},
};

static const struct weir__kernel *kernel(enum weir__op_code op, enum weir_dtype dtype) {
    static const struct weir__kernel *const families[] = {
        weir__cuda_pointwise, weir__cuda_image,     weir__cuda_norm,    weir__cuda_image_norm,
        weir__cuda_table,     weir__cuda_attention, weir__cuda_product, casts};
    assert((unsigned)op < WEIR__OP_COUNT);
    if (dtype != WEIR_F32 && dtype != WEIR_BF16) return NULL;
    for (size_t f = 0; f < WEIR__COUNT_OF(families); f++)
        if (families[f][op].run != NULL) return &families[f][op];
    return NULL;
}

struct weir__cuda_grid weir__cuda_line(uint64_t items, uint64_t per_block, uint32_t threads,
                                       uint32_t blocks_max) {
    assert(per_block > 0 && threads > 0);
    uint64_t blocks = items / per_block + (items % per_block != 0);
    uint64_t most = blocks_max == 0 || blocks_max > INT32_MAX ? INT32_MAX : blocks_max;
    if (blocks > most) blocks = most;
    if (blocks == 0) blocks = 1;
    return (struct weir__cuda_grid){{(uint32_t)blocks, 1, 1}, {threads, 1, 1}, 0};
}

struct weir__cuda_grid weir__cuda_plane(uint64_t columns, uint64_t rows, uint32_t rows_at_once,
                                        uint64_t layers) {
    assert(rows_at_once > 0);
    enum { THREADS = 256 };
    uint32_t x = 1;
    while (x < THREADS && x < columns) x *= 2;
    struct weir__cuda_grid along = weir__cuda_line(columns, x, x, 0);
    struct weir__cuda_grid down =
        weir__cuda_line(rows, (uint64_t)rows_at_once * (THREADS / x), THREADS / x, UINT16_MAX);
    uint32_t deep = layers < UINT16_MAX ? (uint32_t)layers : UINT16_MAX;
    return (struct weir__cuda_grid){
        {along.blocks[0], down.blocks[0], deep == 0 ? 1 : deep}, {x, THREADS / x, 1}, 0};
}

uint64_t weir__cuda_part_rows(uint64_t rows, uint64_t tiles) {
    enum { BLOCKS = 256, MULTIPLE = 32 };
    uint64_t parts = tiles < BLOCKS ? BLOCKS / (tiles > 0 ? tiles : 1) : 1;
    uint64_t part_rows = rows / parts + (rows % parts != 0);
    part_rows = (part_rows + MULTIPLE - 1) / MULTIPLE * MULTIPLE;
    return part_rows > 0 ? part_rows : MULTIPLE;
}

uint64_t weir__cuda_parts(uint64_t rows, uint64_t part_rows) {
    assert(part_rows > 0);
    return rows == 0 ? 1 : (rows - 1) / part_rows + 1;
}

int weir__cuda_fold(struct weir_stream *stream, const struct weir__cuda_fold *fold) {
    assert(fold->parts >= 1 && fold->to[0] != NULL);
    enum { COLUMNS = 32, THREADS = 256 };
    uint64_t columns = (uint64_t)fold->width * (fold->to[1] != NULL ? 2 : 1);
    struct weir__cuda_grid grid = weir__cuda_line(columns, COLUMNS, THREADS, 0);
    void *arguments[] = {(void *)(uintptr_t)fold};
    if (columns == 0) return WEIR_OK;
    return weir__net_launch(stream, WEIR__NET_KERNEL_fold, &grid, arguments);
}

/* Granlund and Montgomery's: exact for n < 2^31, where the sum in the kernel does not overflow. */
struct weir__cuda_divisor weir__cuda_divisor(uint32_t by) {
    uint32_t shift = 0;
    assert(by >= 1 && by <= UINT32_C(1) << 31);
    while (UINT64_C(1) << shift < by) shift++;
    uint64_t excess = (UINT64_C(1) << shift) - by;
    return (struct weir__cuda_divisor){by, (uint32_t)((excess << 32) / by + 1), shift};
}

static int move(const struct weir__op_call *call) {
    return weir__cuda_copy(call->stream, call->out[0], call->in[0], (size_t)call->shape->width, 0);
}

static int zero(const struct weir__op_call *call) {
    static const unsigned char byte = 0;
    return weir__cuda_fill(call->stream, call->out[0], &byte, 1, (size_t)call->shape->width);
}

static int attach(struct weir_stream *stream, uint32_t threads) {
    (void)threads;
    return weir__cuda_set_need(stream->device, &weir__net_kernel_set, NULL);
}

const struct weir__backend weir__backend_cuda = {.on_gpu = true,
                                                 .fuses_sums = true,
                                                 .kernel = kernel,
                                                 .move = {.run = move, .library = ""},
                                                 .zero = {.run = zero, .library = ""},
                                                 .flat = {[WEIR_F32] = &weir__cuda_flat_f32},
                                                 .attach = attach};
