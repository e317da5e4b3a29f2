/* SPDX-License-Identifier: MIT */
#include "kernels/kernels.h"
#include "harness.h"
#include "cuda/kernel_gpu.h"
#include "net/cuda/cuda.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- cases ---- */

static double *make_doubles(int64_t count) {
    return weir__acquire(test_allocator(), (size_t)count, sizeof(double));
}

static void release_doubles(double *numbers, int64_t count) {
    weir__release(test_allocator(), numbers, (size_t)count, sizeof(double));
}

static void fill(double *numbers, int64_t count) {
    for (int64_t i = 0; i < count; i++) numbers[i] = (float)(4 * test_random_unit() - 2);
}

/** Of each row: numbers of tokens, which only embedding reads, and where documents begin. */
static void fill_documents(const struct weir__op_shape *shape, int64_t *documents) {
    int64_t tokens = shape->tokens, often = 1 + (int64_t)test_random_below((uint64_t)tokens);
    for (int64_t r = 0; r < shape->rows; r++, documents += 2 * tokens)
        for (int64_t t = 0; t < tokens; t++) {
            bool begins = t == 0 || test_random_below((uint64_t)often) == 0;
            documents[t] = (int64_t)test_random_below((uint64_t)shape->in);
            documents[tokens + t] = begins ? t : documents[tokens + t - 1];
        }
}

static void fill_indices(const struct weir__op_shape *shape, int64_t *index, int64_t count) {
    if (shape->packed) {
        fill_documents(shape, index);
        return;
    }
    bool loss = shape->op == WEIR__OP_cross_entropy || shape->op == WEIR__OP_cross_entropy_grad ||
                shape->op == WEIR__OP_linear_cross_entropy ||
                shape->op == WEIR__OP_linear_cross_entropy_grad;
    for (int64_t i = 0; i < count; i++) {
        index[i] = (int64_t)test_random_below((uint64_t)(loss ? shape->width : shape->in));
        if (loss && test_random_below(5) == 0) index[i] = shape->ignore_index;
    }
}

/** What a gradient takes from its forward op: input i of that is input from[i] of the gradient (-1:
 * any numbers, they do not matter; an index without one stands at the same place), and its output i
 * is input to[i] (-1: not taken). */
struct residual {
    enum weir__op_code gradient, forward;
    int from[KERNEL_INS], to[KERNEL_OUTS];
};

#define RESIDUAL(gradient, forward, ...)                                                           \
    { WEIR__OP_##gradient, WEIR__OP_##forward, __VA_ARGS__ }
static const struct residual residuals[] = {
    RESIDUAL(layer_norm_grad_input, layer_norm, {1, -1, -1}, {-1, 2, 3}),
    RESIDUAL(layer_norm_grad_weight, layer_norm, {1, -1, -1}, {-1, 2, 3}),
    RESIDUAL(add_layer_norm_grad_input, layer_norm, {2, -1, -1}, {-1, 3, 4}),
    RESIDUAL(rms_norm_grad_input, rms_norm, {1, -1}, {-1, 2}),
    RESIDUAL(rms_norm_grad_weight, rms_norm, {1, -1}, {-1, 2}),
    RESIDUAL(residual_mix_grad, residual_mix, {3, 4, 5, 6, 7, 8}, {-1, 1, 2}),
    RESIDUAL(attention_grad, attention, {1}, {2, 3}),
    RESIDUAL(grouped_attention_grad, grouped_attention, {1, 2, 3, 6}, {4, 5}),
    RESIDUAL(softmax_grad, softmax, {1}, {1}),
    RESIDUAL(sigmoid_grad, sigmoid, {1}, {1}),
    RESIDUAL(tanh_grad, tanh, {1}, {1}),
    RESIDUAL(instance_norm_grad_input, instance_norm, {1, -1, -1}, {-1, 2, 3}),
    RESIDUAL(instance_norm_grad_weight, instance_norm, {1, -1, -1}, {-1, 2, 3}),
    RESIDUAL(instance_norm_act_grad, instance_norm_act, {2}, {1, 3, 4}),
    RESIDUAL(batch_norm_sums, batch_norm, {1, -1, -1, -1, -1}, {-1, 2, 3}),
    RESIDUAL(batch_norm_act_sums, batch_norm, {2, -1, -1, -1, -1}, {-1, 3, 4}),
    RESIDUAL(batch_norm_grad_input, batch_norm, {1, -1, -1, -1, -1}, {-1, 2, 3}),
    RESIDUAL(batch_norm_grad_input, batch_norm_sums, {0, 1, 2, 3}, {4, 5}),
    RESIDUAL(cross_entropy_grad, cross_entropy, {0}, {-1, 2, 3}),
};

/** Runs the forward op in f64 on the gradient's inputs, and puts its outputs there. */
static void take_residuals(struct kernel_case *test, const struct residual *residual) {
    struct kernel_case forward;
    struct kernel_results results;
    struct weir__op_shape shape = test->shape;
    shape.op = residual->forward;
    kernel_case_empty(&forward, &shape);
    forward.seed = test->seed;
    forward.mini_batch = test->mini_batch;
    forward.row_first = test->row_first;
    for (int i = 0; i < KERNEL_INS; i++) {
        size_t count = (size_t)forward.operands.in[i].count;
        int index = residual->from[i] > 0 ? residual->from[i] : i;
        if (forward.index[i] != NULL)
            memcpy(forward.index[i], test->index[index], count * sizeof(int64_t));
        else if (forward.in[i] != NULL && residual->from[i] >= 0)
            memcpy(forward.in[i], test->in[residual->from[i]], count * sizeof(double));
    }
    CHECK_OK(kernel_run(&forward, KERNEL_F64, 0, &results));
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (results.out[i] != NULL && residual->to[i] >= 0)
            memcpy(test->in[residual->to[i]], results.out[i],
                   (size_t)forward.operands.out[i].count * sizeof(double));
    kernel_results_clean_up(&results);
    kernel_case_clean_up(&forward);
}

static void fill_residuals(struct kernel_case *test) {
    for (size_t i = 0; i < WEIR__COUNT_OF(residuals); i++)
        if (residuals[i].gradient == test->shape.op) take_residuals(test, &residuals[i]);
}

/** Rows in turn go to the next place of a random sequence, which begins anywhere. */
static void fill_places(struct kernel_case *test) {
    int64_t rows = test->shape.rows;
    uint32_t next[KERNEL_SEQUENCES];
    for (int i = 0; i < KERNEL_SEQUENCES; i++)
        next[i] = (uint32_t)test_random_below((uint64_t)(test->shape.table - rows + 1));
    for (int64_t r = 0; r < rows; r++) {
        test->sequence[r] = (uint32_t)test_random_below(KERNEL_SEQUENCES);
        test->place[r] = next[test->sequence[r]]++;
    }
}

static bool has_places(enum weir__op_code op) {
    return op == WEIR__OP_attention_cached || op == WEIR__OP_position_cached ||
           op == WEIR__OP_grouped_attention_cached || op == WEIR__OP_rope_cached;
}

void kernel_case_empty(struct kernel_case *test, const struct weir__op_shape *shape) {
    *test = (struct kernel_case){.shape = *shape, .overwrite = true, .loss_weight = 1};
    if (shape->threads == 0) test->shape.threads = 1;
    kernel_operands(shape, &test->operands);
    for (int i = 0; i < KERNEL_INS; i++) {
        struct operand operand = test->operands.in[i];
        if (operand.kind == OPERAND_REAL)
            test->in[i] = make_doubles(operand.count);
        else if (operand.kind == OPERAND_INDEX)
            test->index[i] =
                weir__acquire(test_allocator(), (size_t)operand.count, sizeof(int64_t));
    }
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (test->operands.out[i].kind == OPERAND_REAL ||
            test->operands.out[i].kind == OPERAND_CACHE)
            test->old[i] = make_doubles(test->operands.out[i].count);
    if (has_places(shape->op)) {
        test->sequence =
            weir__acquire(test_allocator(), (size_t)shape->rows, sizeof *test->sequence);
        test->place = weir__acquire(test_allocator(), (size_t)shape->rows, sizeof *test->place);
    }
}

void kernel_case_init(struct kernel_case *test, const struct weir__op_shape *shape) {
    kernel_case_empty(test, shape);
    test->seed = test_random_u64();
    test->mini_batch = test_random_below(1000);
    test->row_first = (int64_t)test_random_below(1000);
    test->loss_weight = 3;
    for (int i = 0; i < KERNEL_INS; i++) {
        if (test->in[i] != NULL) fill(test->in[i], test->operands.in[i].count);
        if (test->index[i] != NULL) fill_indices(shape, test->index[i], test->operands.in[i].count);
    }
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (test->old[i] != NULL) fill(test->old[i], test->operands.out[i].count);
    if (has_places(shape->op)) fill_places(test);
    fill_residuals(test);
}

void kernel_case_clean_up(struct kernel_case *test) {
    for (int i = 0; i < KERNEL_INS; i++) {
        size_t count = (size_t)test->operands.in[i].count;
        release_doubles(test->in[i], (int64_t)count);
        weir__release(test_allocator(), test->index[i], count, sizeof(int64_t));
    }
    for (int i = 0; i < KERNEL_OUTS; i++)
        release_doubles(test->old[i], test->operands.out[i].count);
    size_t rows = (size_t)test->shape.rows;
    weir__release(test_allocator(), test->sequence, rows, sizeof *test->sequence);
    weir__release(test_allocator(), test->place, rows, sizeof *test->place);
}

/* ---- running ---- */

/** A buffer that begins `shift` bytes into its memory. */
struct buffer {
    char *memory;
    size_t bytes, shift;
};

static void *buffer_init(struct buffer *buffer, size_t bytes, size_t shift) {
    buffer->bytes = bytes + shift;
    buffer->shift = shift;
    buffer->memory = weir__acquire(test_allocator(), buffer->bytes, 1);
    memset(buffer->memory, 0xFF, buffer->bytes); /* NaN */
    return buffer->memory + shift;
}

static void buffer_clean_up(struct buffer *buffer) {
    weir__release(test_allocator(), buffer->memory, buffer->bytes, 1);
}

static float narrowed(float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (!isnan(number)) bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000u;
    memcpy(&number, &bits, sizeof number);
    return number;
}

static void to_dtype(void *to, const double *from, int64_t count, enum weir_dtype dtype) {
    for (int64_t i = 0; i < count; i++) {
        float single = narrowed((float)from[i]);
        if (dtype == WEIR_F64)
            ((double *)to)[i] = from[i];
        else if (dtype == WEIR_F32)
            ((float *)to)[i] = (float)from[i];
        else
            memcpy((uint16_t *)to + i, (char *)&single + 2, sizeof(uint16_t));
    }
}

static void from_dtype(double *to, const void *from, int64_t count, enum weir_dtype dtype) {
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = dtype == WEIR_BF16 ? (uint32_t)((const uint16_t *)from)[i] << 16 : 0;
        float single;
        memcpy(&single, &bits, sizeof single);
        if (dtype == WEIR_F64)
            to[i] = ((const double *)from)[i];
        else
            to[i] = dtype == WEIR_F32 ? ((const float *)from)[i] : single;
    }
}

static void narrow(double *numbers, const struct operand *operand) {
    bool rounded = !operand->wide && (!operand->single || operand->packed);
    for (int64_t i = 0; numbers != NULL && rounded && i < operand->count; i++)
        numbers[i] = narrowed((float)numbers[i]);
}

static void narrow_inputs(struct kernel_case *test) {
    for (int i = 0; i < KERNEL_INS; i++) narrow(test->in[i], &test->operands.in[i]);
}

void kernel_case_narrow(struct kernel_case *test) {
    narrow_inputs(test);
    fill_residuals(test);
    narrow_inputs(test);
    for (int i = 0; i < KERNEL_OUTS; i++) narrow(test->old[i], &test->operands.out[i]);
}

/** Everything that a call points to. */
struct memory {
    struct buffer in[KERNEL_INS], out[KERNEL_OUTS], workspace, packed, sequence, place;
    const void *ins[KERNEL_INS];
    void *outs[KERNEL_OUTS]; /* the cache's too, which a call has elsewhere */
    struct weir__places places;
    enum weir_dtype dtype;
    struct kernel_gpu gpu;
};

static enum weir_dtype dtype_of(const struct memory *memory, const struct operand *operand) {
    if (operand->kind == OPERAND_LOSS || operand->wide) return WEIR_F64;
    return operand->single && memory->dtype == WEIR_BF16 ? WEIR_F32 : memory->dtype;
}

/** Places are those of the mini-batch's rows: before this micro-batch's lies rubbish. */
static const uint32_t *places_init(struct buffer *buffer, const uint32_t *from,
                                   const struct kernel_case *test) {
    size_t bytes = sizeof(uint32_t);
    size_t first = (size_t)test->row_first, rows = (size_t)test->shape.rows;
    uint32_t *to = buffer_init(buffer, (first + rows) * bytes, 0);
    memcpy(to + first, from, rows * bytes);
    return to;
}

/** Whether a kernel may read what an output had before. */
static bool is_read(const struct kernel_case *test, int output) {
    bool adds = test->operands.accumulates && output >= test->operands.written;
    return (adds && !test->overwrite) || test->operands.out[output].kind == OPERAND_CACHE;
}

static void memory_init(struct memory *memory, const struct kernel_case *test, size_t shift) {
    for (int i = 0; i < KERNEL_INS; i++) {
        struct operand operand = test->operands.in[i];
        size_t count = (size_t)operand.count;
        enum weir_dtype dtype = dtype_of(memory, &operand);
        if (operand.kind == OPERAND_INDEX) {
            void *to = buffer_init(&memory->in[i], count * sizeof(int64_t), shift);
            memcpy(to, test->index[i], count * sizeof(int64_t));
            memory->ins[i] = to;
        } else if (operand.kind == OPERAND_REAL && count > 0) {
            void *to = buffer_init(&memory->in[i], count * weir_dtype_bytes(dtype), shift);
            to_dtype(to, test->in[i], operand.count, dtype);
            memory->ins[i] = to;
        }
    }
    for (int i = 0; i < KERNEL_OUTS; i++) {
        struct operand operand = test->operands.out[i];
        if (operand.kind == OPERAND_NONE) continue;
        enum weir_dtype dtype = dtype_of(memory, &operand);
        size_t bytes = (size_t)operand.count * weir_dtype_bytes(dtype);
        memory->outs[i] = buffer_init(&memory->out[i], bytes, shift);
        if (is_read(test, i)) to_dtype(memory->outs[i], test->old[i], operand.count, dtype);
    }
    if (!has_places(test->shape.op)) return;
    memory->places.sequence = places_init(&memory->sequence, test->sequence, test);
    memory->places.place = places_init(&memory->place, test->place, test);
}

static void memory_clean_up(struct memory *memory) {
    for (int i = 0; i < KERNEL_INS; i++) buffer_clean_up(&memory->in[i]);
    for (int i = 0; i < KERNEL_OUTS; i++) buffer_clean_up(&memory->out[i]);
    buffer_clean_up(&memory->workspace);
    buffer_clean_up(&memory->packed);
    buffer_clean_up(&memory->sequence);
    buffer_clean_up(&memory->place);
}

/** Where the kernel has what the host has at `host`. */
static void *there(const struct memory *memory, const void *host) {
    bool on_gpu = memory->gpu.device != NULL;
    return on_gpu ? kernel_gpu_at(&memory->gpu, host) : (void *)(uintptr_t)host;
}

/** Room for packed weights, whose size depends on neither rows nor threads; NULL: none. Who can do
 * without them does where addresses are shifted, with the same bits. */
static int make_room_to_pack(const struct weir__kernel *kernel, const struct weir__op_shape *shape,
                             size_t shift, struct memory *memory, void **packed) {
    struct weir__op_shape largest = *shape;
    size_t bytes = 0, largest_bytes = 0;
    *packed = NULL;
    if (kernel->measure_pack == NULL || (kernel->packs_itself && shift > 0)) return WEIR_OK;
    largest.rows = largest.rows_max;
    largest.threads = 1;
    int status = kernel->measure_pack(shape, &bytes);
    if (status == WEIR_OK) status = kernel->measure_pack(&largest, &largest_bytes);
    EXPECT_EQ_UINT(bytes, largest_bytes);
    if (status == WEIR_OK && bytes > 0) *packed = buffer_init(&memory->packed, bytes, shift);
    return status;
}

/** Packs the parameters, the only operands that are valid then. Who packs has the largest row count
 * and one thread: any of a node's states may be the first of a step. */
static int pack(const struct weir__kernel *kernel, const struct weir__op_call *call) {
    struct weir__op_call early = *call;
    struct weir__op_shape largest = *call->shape;
    const void *ins[KERNEL_INS] = {NULL};
    if (call->packed == NULL) return WEIR_OK;
    largest.rows = largest.rows_max;
    largest.threads = 1;
    int status = WEIR_OK;
    if (kernel->prepare != NULL) status = kernel->prepare(&largest, call->stream, &early.state);
    if (status != WEIR_OK) return status;
    ins[1] = call->in[1];
    ins[2] = call->shape->has_bias ? call->in[2] : NULL;
    early.shape = &largest;
    early.in = ins;
    early.out = NULL;
    early.workspace = NULL;
    status = kernel->pack(&early, (void *)(uintptr_t)call->packed);
    if (kernel->release != NULL) kernel->release(early.state);
    return status;
}

/** Out of the outputs, to where calls have it. */
static void *cache_of(const struct kernel_case *test, const struct memory *memory,
                      void *outs[KERNEL_OUTS]) {
    void *cache = NULL;
    for (int i = 0; i < KERNEL_OUTS; i++) {
        bool is_cache = test->operands.out[i].kind == OPERAND_CACHE;
        if (is_cache) cache = there(memory, memory->outs[i]);
        outs[i] = is_cache ? NULL : there(memory, memory->outs[i]);
    }
    return cache;
}

static void add_buffer(struct kernel_gpu *gpu, const struct buffer *buffer) {
    kernel_gpu_add(gpu, buffer->memory, buffer->bytes);
}

static void upload(const struct kernel_case *test, struct memory *memory) {
    for (int i = 0; i < KERNEL_INS; i++) add_buffer(&memory->gpu, &memory->in[i]);
    for (int i = 0; i < KERNEL_OUTS; i++) {
        const struct buffer *out = &memory->out[i];
        if (is_read(test, i))
            add_buffer(&memory->gpu, out);
        else
            kernel_gpu_add_blank(&memory->gpu, out->memory, out->bytes, false);
    }
    kernel_gpu_add_blank(&memory->gpu, memory->workspace.memory, memory->workspace.bytes, true);
    kernel_gpu_add_blank(&memory->gpu, memory->packed.memory, memory->packed.bytes, true);
    kernel_gpu_upload(&memory->gpu);
}

static int call_kernel(const struct kernel_case *test, const struct weir__kernel *kernel,
                       size_t shift, struct weir_stream *stream, struct memory *memory) {
    struct weir__op_shape shape = test->shape;
    shape.dtype = memory->dtype;
    if (shape.rows_max < shape.rows) shape.rows_max = shape.rows;
    const void *ins[KERNEL_INS];
    void *outs[KERNEL_OUTS], *state = NULL, *packed = NULL;
    size_t bytes = 0;
    int status = kernel->measure != NULL ? kernel->measure(&shape, &bytes) : WEIR_OK;
    if (status == WEIR_OK && kernel->prepare != NULL && !test->own)
        status = kernel->prepare(&shape, stream, &state);
    if (status != WEIR_OK) return status;
    void *workspace = buffer_init(&memory->workspace, bytes, shift);
    status = make_room_to_pack(kernel, &shape, shift, memory, &packed);
    if (memory->gpu.device != NULL) upload(test, memory);
    for (int i = 0; i < KERNEL_INS; i++) ins[i] = there(memory, memory->ins[i]);
    struct weir__op_call call = {.shape = &shape,
                                 .state = state,
                                 .in = ins,
                                 .out = outs,
                                 .workspace = there(memory, workspace),
                                 .packed = there(memory, packed),
                                 .cache = cache_of(test, memory, outs),
                                 .places = &memory->places,
                                 .stream = stream,
                                 .overwrite = test->overwrite,
                                 .infer = test->infer,
                                 .seed = test->seed,
                                 .mini_batch = test->mini_batch,
                                 .row_first = test->row_first,
                                 .rows_total = test->row_first + 3 * test->shape.rows,
                                 .loss_weight = test->loss_weight,
                                 .error = test->error};
    if (status == WEIR_OK) status = pack(kernel, &call);
    if (status == WEIR_OK) status = kernel->run(&call);
    if (memory->gpu.device != NULL) {
        int finished = kernel_gpu_download(&memory->gpu);
        if (status == WEIR_OK) status = finished;
    }
    if (kernel->release != NULL && !test->own) kernel->release(state);
    return status;
}

void kernel_results_init(struct kernel_results *results, const struct kernel_case *test) {
    *results = (struct kernel_results){.test = test};
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (test->operands.out[i].kind != OPERAND_NONE)
            results->out[i] = make_doubles(test->operands.out[i].count);
}

int kernel_run(const struct kernel_case *test, enum kernel_backend backend, size_t shift,
               struct kernel_results *results) {
    const struct weir__kernel *kernel = kernel_of(test->shape.op, backend);
    struct memory memory = {.dtype = WEIR_F32};
    if (backend == KERNEL_F64) memory.dtype = WEIR_F64;
    if (kernel_is_bf16(backend)) memory.dtype = WEIR_BF16;
    kernel_results_init(results, test);
    bool on_gpu = backend == KERNEL_CUDA || backend == KERNEL_CUDA_BF16;
    if (on_gpu && !kernel_gpu_init(&memory.gpu)) return WEIR_ERR_NOT_FOUND;
    memory_init(&memory, test, shift);
    struct weir_stream of_cpu = {.spins = false};
    if (!on_gpu && test->shape.threads > 1)
        EXPECT_STATUS(weir__team_new(test_allocator(), test->shape.threads, false, &of_cpu.team),
                      WEIR_OK);
    int status = call_kernel(test, kernel, shift, on_gpu ? memory.gpu.stream : &of_cpu, &memory);
    weir__team_destroy(of_cpu.team);
    kernel_gpu_clean_up(&memory.gpu);
    for (int i = 0; i < KERNEL_OUTS; i++) {
        struct operand operand = test->operands.out[i];
        if (operand.kind != OPERAND_NONE)
            from_dtype(results->out[i], memory.outs[i], operand.count, dtype_of(&memory, &operand));
    }
    memory_clean_up(&memory);
    return status;
}

void kernel_results_clean_up(struct kernel_results *results) {
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (results->out[i] != NULL)
            release_doubles(results->out[i], results->test->operands.out[i].count);
}

/* ---- comparing ---- */

double kernel_largest(const struct kernel_results *results, int output, double least) {
    double largest = least;
    for (int64_t i = 0; i < results->test->operands.out[output].count; i++)
        largest = fmax(largest, fabs(results->out[output][i]));
    return largest;
}

static void describe(const struct weir__op_shape *shape, char *text, size_t capacity) {
    const struct weir__window *window = &shape->window;
    int used = snprintf(
        text, capacity,
        "%s rows %lld tokens %lld in %lld out %lld width %lld heads %lld table %lld%s%s%s%s",
        weir__op_name(shape->op), (long long)shape->rows, (long long)shape->tokens,
        (long long)shape->in, (long long)shape->out, (long long)shape->width,
        (long long)shape->heads, (long long)shape->table, shape->has_bias ? " bias" : "",
        shape->weight_in_out ? " in_out" : "", shape->gelu_tanh ? " tanh" : "",
        shape->packed ? " packed" : "");
    if (window->in.height == 0) return;
    snprintf(text + used, capacity - (size_t)used,
             " from %lldx%lld to %lldx%lld, kernel %lldx%lld stride %lldx%lld padding %lldx%lld "
             "gap %lldx%lld groups %lld%s%s",
             (long long)window->in.height, (long long)window->in.width,
             (long long)window->out.height, (long long)window->out.width,
             (long long)window->kernel.height, (long long)window->kernel.width,
             (long long)window->stride.height, (long long)window->stride.width,
             (long long)window->padding.height, (long long)window->padding.width,
             (long long)window->gap.height, (long long)window->gap.width, (long long)window->groups,
             window->count_padding ? " counted" : "", window->adaptive ? " adaptive" : "");
}

static void expect_output(const struct kernel_results *got, const struct kernel_results *wanted,
                          int output, double bound, const char *what) {
    char text[512];
    for (int64_t i = 0; i < got->test->operands.out[output].count; i++) {
        double a = got->out[output][i], b = wanted->out[output][i];
        if (fabs(a - b) <= bound) continue;
        describe(&got->test->shape, text, sizeof text);
        TEST_FAIL("%s: %s: output %d, number %lld is %.17g, not %.17g: %.3g apart, at most %.3g",
                  what, text, output, (long long)i, a, b, fabs(a - b), bound);
        return;
    }
}

void kernel_expect_near(const struct kernel_results *got, const struct kernel_results *wanted,
                        double tolerance, const char *what) {
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (got->test->operands.out[i].kind != OPERAND_NONE)
            expect_output(got, wanted, i, tolerance * kernel_magnitude(wanted, i), what);
}

void kernel_expect_same(const struct kernel_results *got, const struct kernel_results *wanted,
                        const char *what) {
    for (int i = 0; i < KERNEL_OUTS; i++)
        if (got->test->operands.out[i].kind != OPERAND_NONE) expect_output(got, wanted, i, 0, what);
}
